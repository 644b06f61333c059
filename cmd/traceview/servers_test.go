package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// Spans of several replicas beside each one's log: every request counts once,
// and each replica has the limits that its own log states, so that causes are
// those that the same limits as flags give.
func TestLogsBesideSpans(t *testing.T) {
	const block = 16
	var scenario sim.Scenario
	for _, s := range sim.Scenarios(3) {
		if s.Name == "memory, over" {
			scenario = s
		}
	}
	scenario.Replicas = 3
	for i := range scenario.Tenants {
		scenario.Tenants[i].Rate *= 3
	}
	scenario.Tenants[0].Abort = 0.05
	scenario.Every = 5e9
	run, err := scenario.Run()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var b bytes.Buffer
	if err := sim.Encode(&b, sim.V1(run.Requests, sim.VLLM{}), sim.Encoding{Form: sim.Lines, Batch: 32}); err != nil {
		t.Fatal(err)
	}
	spans := filepath.Join(dir, "spans.jsonl")
	write := func(name string, data []byte) string {
		t.Helper()
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	write(spans, b.Bytes())
	both := []string{spans}
	begin := run.Requests[0].Arrival.At
	for i := range scenario.Replicas {
		b.Reset()
		head := begin.Add(-60e9).UTC().Format("(APIServer pid=1) INFO 01-02 15:04:05 [utils.py:233] ")
		fmt.Fprintf(&b, "%snon-default args: {'model': 'm', 'max_num_batched_tokens': %d, 'max_num_seqs': %d}\n", head, scenario.Budget, scenario.Slots)
		fmt.Fprintf(&b, "%sGPU KV cache size: %d tokens\n", head, scenario.Blocks*block)
		if err := sim.Log(&b, run, fmt.Sprintf("replica-%d", i), sim.LogShape{Version: sim.Log16}); err != nil {
			t.Fatal(err)
		}
		// The name says nothing: requests do.
		both = append(both, write(filepath.Join(dir, fmt.Sprintf("log-%c.txt", 'a'+i)), b.Bytes()))
	}

	type limit struct {
		Value *int64
		How   string
	}
	type result struct {
		Requests int
		Causes   []struct {
			Cause string
			NS    int64
		}
		Replicas []struct {
			Replica string
			Limits  struct {
				Slots  limit
				Budget limit `json:"budget_tokens"`
				KV     limit `json:"kv_tokens"`
			}
		}
	}
	waiting := func(args ...string) (r result) {
		t.Helper()
		if err := json.Unmarshal(call(t, nil, append([]string{"waiting", "--format", "json", "--year", "2025"}, args...)...), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	logs, flags := waiting(both...), waiting("--max-num-seqs", fmt.Sprint(scenario.Slots),
		"--max-num-batched-tokens", fmt.Sprint(scenario.Budget), "--kv-tokens", fmt.Sprint(scenario.Blocks*block), spans)
	told := 0
	for _, r := range run.Requests {
		if r.Outcome != trace.Rejected {
			told++
		}
	}
	if logs.Requests != told {
		t.Errorf("%d requests, want %d", logs.Requests, told)
	}
	if !slices.Equal(logs.Causes, flags.Causes) {
		t.Errorf("causes %v, with the same limits as flags %v", logs.Causes, flags.Causes)
	}
	if len(logs.Replicas) != scenario.Replicas {
		t.Fatalf("%d replicas", len(logs.Replicas))
	}
	for _, r := range logs.Replicas {
		for _, x := range []struct {
			limit
			want int
		}{{r.Limits.Slots, scenario.Slots}, {r.Limits.Budget, scenario.Budget}, {r.Limits.KV, scenario.Blocks * block}} {
			if x.Value == nil || int(*x.Value) != x.want || x.How != "log" {
				t.Errorf("%s: %+v, want %d", r.Replica, x.limit, x.want)
			}
		}
	}
}
