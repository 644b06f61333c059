package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// The books agree: whatever the input, the totals of the report over all
// requests, the sums of the table's columns and the totals of the profile are
// the same to the nanosecond. The table's Parquet form has the values of its
// CSV form: package export tests that.
func TestBooks(t *testing.T) {
	dir := t.TempDir()
	for i, in := range bookInputs(t) {
		t.Run(in.name, func(t *testing.T) {
			file := filepath.Join(dir, strconv.Itoa(i))
			if err := os.WriteFile(file, in.data, 0o666); err != nil {
				t.Fatal(err)
			}
			some := [][]string{nil, {"--where", "tenant="}, {"--from", "2s", "--to", "20s"}}[i%3]
			if in.spans && i%3 == 1 { // no log knows tenants
				some[1] = "tenant=a"
			}
			profile := filepath.Join(dir, strconv.Itoa(i)+".pb.gz")
			rows := tableSums(t, call(t, nil, slices.Concat([]string{"export", "-o", "-", "--format", "csv", "--zone", "UTC", "--year", "2025", file}, some)...))
			call(t, nil, slices.Concat([]string{"export", "-o", profile, "--zone", "UTC", "--year", "2025", file}, some)...)
			rep := reportTotals(t, call(t, nil, slices.Concat([]string{"report", "--format", "json", "--zone", "UTC", "--year", "2025", file}, some)...))
			if rows["causes"] != rows["kind waiting"] {
				t.Errorf("the causes add up to %d, waiting is %d", rows["causes"], rows["kind waiting"])
			}
			delete(rows, "causes")
			if rep["requests"] == 0 || in.spans && rep["e2e"] == 0 {
				t.Fatalf("there is nothing to add up: %v", rep)
			}
			for k := range rep {
				if rep[k] != rows[k] {
					t.Errorf("%s: the report has %d, the table %d", k, rep[k], rows[k])
				}
			}
			for k := range rows {
				if _, ok := rep[k]; !ok && rows[k] != 0 {
					t.Errorf("%s: the table has %d, the report nothing", k, rows[k])
				}
			}
			for k, n := range profileTotals(t, profile) {
				if rep[k] != n {
					t.Errorf("%s: the report has %d, the profile %d", k, rep[k], n)
				}
			}
		})
	}
}

type bookInput struct {
	name  string
	spans bool // not a log, which may know no end
	data  []byte
}

// bookInputs is a random run of the engine in every format that it can be
// written in; each form, compression and wrapper comes at least once.
func bookInputs(t *testing.T) (all []bookInput) {
	rnd := rand.New(rand.NewPCG(11, 7))
	engine := func() *sim.Run {
		run, err := sim.Engine{
			Seed: rnd.Uint64(), Service: "s", Model: "m", Replicas: 1 + rnd.IntN(2), Routing: sim.LeastLoaded,
			Slots: 2 + rnd.IntN(6), Budget: 256 << rnd.IntN(4), Chunked: true, Blocks: 140 + rnd.IntN(100), Limit: 2200,
			Base: time.Duration(1 + rnd.IntN(20e6)), PerPrefill: time.Duration(1 + rnd.IntN(90_000)), PerDecode: time.Duration(1 + rnd.IntN(400_000)),
			Before: time.Duration(rnd.IntN(5e6)), After: time.Duration(rnd.IntN(5e6)), Every: 5 * time.Second,
			Tenants: []sim.Tenant{
				{Name: "a", Requests: 60, Rate: 5, Prompt: sim.Length{Min: 1, Max: 900, Skew: 1}, Output: sim.Length{Min: 1, Max: 120}, Abort: 0.1, Fail: 0.1},
				{Name: "b", Requests: 20, Rate: 2, Burst: 5, Prompt: sim.Length{Min: 300, Max: 2300}, Output: sim.Length{Min: 1, Max: 60}},
			},
		}.Run()
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	add := func(name string, spans bool, write func(*bytes.Buffer) error) {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, bookInput{name, spans, b.Bytes()})
	}
	writers := []struct {
		name  string
		spans func([]*trace.Request) []*trace.Span
	}{
		{"v1", func(rs []*trace.Request) []*trace.Span { return sim.V1(rs, sim.VLLM{Attrs: true}) }},
		{"v0", func(rs []*trace.Request) []*trace.Span { return sim.V0(rs, sim.VLLM{Attrs: true}) }},
		{"child-spans", sim.ChildSpans}, {"gateway", sim.Gateway}, {"unknown", sim.Unknown},
	}
	for i := range max(len(writers), len(sim.Forms()), len(sim.Compressions())) {
		w, e := writers[i%len(writers)], sim.Encoding{Form: sim.Forms()[i%len(sim.Forms())], Compression: sim.Compressions()[i%len(sim.Compressions())], Batch: 1 + rnd.IntN(100)}
		add(fmt.Sprintf("%s %s %s", w.name, e.Form, e.Compression), true, func(b *bytes.Buffer) error {
			return sim.Encode(b, w.spans(engine().Requests), e)
		})
	}
	for i, v := range sim.LogVersions() {
		shape := sim.LogShape{Version: v, Wrapper: sim.Wrappers()[i%len(sim.Wrappers())], CRLF: i%2 == 1, Outputs: v == sim.Log10 || v == sim.Log16}
		add(fmt.Sprintf("log %s %s", v, shape.Wrapper), false, func(b *bytes.Buffer) error {
			return sim.Log(b, engine(), "replica-0", shape)
		})
	}
	return all
}

// tableSums adds up the columns of durations, by the names that the report
// has for them, and counts the rows as "requests".
func tableSums(t *testing.T, table []byte) map[string]int64 {
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]string{
		"frontend_ns": "arrival|completion", "queueing_prefill_ns": "queueing|prefill", "prefill_decode_ns": "prefill|decode",
		"waiting_ns": "kind waiting", "compute_ns": "kind compute", "overhead_ns": "kind overhead",
		"overlap_ns": "overlap", "outside_ns": "outside", "conflict_ns": "conflict",
	}
	for _, p := range trace.Phases() {
		named[p.String()+"_ns"] = p.String()
	}
	named["unattributed_ns"] = trace.Unattributed.String()
	for _, c := range analyze.Causes() {
		named["cause_"+c.String()+"_ns"] = "causes"
	}
	sums := map[string]int64{"requests": int64(len(rows) - 1)}
	for _, row := range rows[1:] {
		for i, name := range rows[0] {
			k, known := named[name]
			switch {
			case row[i] == "":
			case name == "other_sets":
				sets := map[string]int64{}
				if err := json.Unmarshal([]byte(row[i]), &sets); err != nil {
					t.Fatal(err)
				}
				for set, ns := range sets {
					sums[set] += ns
				}
			case known:
				n, err := strconv.ParseInt(row[i], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				sums[k] += n
			}
		}
	}
	for k, n := range sums {
		if _, ok := trace.ParsePhase(k); ok {
			sums["e2e"] += n
		}
	}
	return sums
}

// reportTotals takes the totals over all requests out of a report.
func reportTotals(t *testing.T, report []byte) map[string]int64 {
	var rep struct {
		Counts struct {
			Requests int64
			Overlap  int64 `json:"overlap_ns"`
			Outside  int64 `json:"outside_ns"`
			Conflict int64 `json:"conflict_ns"`
		}
		Measurement struct {
			RequestTime int64 `json:"request_time_ns"`
		}
		Phases []struct {
			Name  string
			Total int64 `json:"total_all_ns"`
		}
		Kinds []struct {
			Kind  string
			Total int64 `json:"total_all_ns"`
		}
	}
	if err := json.Unmarshal(report, &rep); err != nil {
		t.Fatal(err)
	}
	totals := map[string]int64{
		"requests": rep.Counts.Requests, "overlap": rep.Counts.Overlap, "outside": rep.Counts.Outside,
		"conflict": rep.Counts.Conflict, "e2e": rep.Measurement.RequestTime,
	}
	for _, p := range rep.Phases {
		totals[p.Name] = p.Total
	}
	for _, k := range rep.Kinds {
		if k.Kind != "unsplit" && k.Kind != "unknown" { // the table has no column for them
			totals["kind "+k.Kind] = k.Total
		}
	}
	return totals
}

// profileTotals adds up a profile's samples as go tool pprof reads them.
func profileTotals(t *testing.T, profile string) map[string]int64 {
	raw, err := exec.Command("go", "tool", "pprof", "-raw", profile).Output()
	if err != nil {
		t.Fatalf("go tool pprof: %v", err)
	}
	_, samples, ok := strings.Cut(string(raw), "\nSamples:\nrequests/count waiting/nanoseconds[dflt] compute/nanoseconds overhead/nanoseconds e2e/nanoseconds\n")
	if !ok {
		t.Fatalf("go tool pprof reads other types:\n%.400s", raw)
	}
	samples, _, _ = strings.Cut(samples, "\nLocations\n")
	keys := []string{"requests", "kind waiting", "kind compute", "kind overhead", "e2e"}
	totals := map[string]int64{}
	for line := range strings.Lines(samples) {
		values, _, ok := strings.Cut(line, ": ")
		fields := strings.Fields(values)
		if !ok || len(fields) != len(keys) {
			continue // labels
		}
		for i, f := range fields {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			totals[keys[i]] += n
		}
	}
	return totals
}
