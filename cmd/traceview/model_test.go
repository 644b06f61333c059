package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The queue model's table, through the whole path: the trace that simulate
// writes, read again, gives each of its figures exactly. Four requests at 0, 1,
// 2 and 3 ms, 1 ms of work each.
func TestModelTable(t *testing.T) {
	for _, c := range []struct {
		setup, policy                 string
		completions, latencies, waits []int // ms
		mean                          int64 // ns
		rate                          float64
	}{
		{"4ms", "individual", []int{5, 10, 15, 20}, []int{5, 9, 13, 17}, []int{0, 4, 8, 12}, 11_000_000, 4 / 0.020},
		{"4ms", "batch", []int{11, 11, 11, 11}, []int{11, 10, 9, 8}, []int{3, 2, 1, 0}, 9_500_000, 4 / 0.011},
		{"2ms", "individual", []int{3, 6, 9, 12}, []int{3, 5, 7, 9}, []int{0, 2, 4, 6}, 6_000_000, 4 / 0.012},
		{"2ms", "batch", []int{9, 9, 9, 9}, []int{9, 8, 7, 6}, []int{3, 2, 1, 0}, 7_500_000, 4 / 0.009},
	} {
		t.Run(c.setup+" "+c.policy, func(t *testing.T) {
			spans := call(t, nil, "simulate", "--arrivals", "0ms,1ms,2ms,3ms", "--setup", c.setup, "--per-request", "1ms", "--policy", c.policy)

			rows, err := csv.NewReader(bytes.NewReader(call(t, spans, "export", "--format", "csv", "-"))).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			slices.SortFunc(rows[1:], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
			millis := func(name string, want []int) {
				t.Helper()
				at := slices.Index(rows[0], name)
				for i, r := range rows[1:] {
					if r[at] != strconv.Itoa(want[i]*1_000_000) {
						t.Errorf("%s of %s is %s, want %d ms", name, r[0], r[at], want[i])
					}
				}
			}
			if len(rows) != 5 {
				t.Fatalf("%d rows, want a head and 4", len(rows))
			}
			millis("e2e_ns", c.latencies)
			millis("waiting_ns", c.waits)
			at := slices.Index(rows[0], "completed")
			for i, r := range rows[1:] {
				want := strings.TrimRight(fmt.Sprintf("2025-10-09T08:53:20.%03d", c.completions[i]), "0") + "Z"
				if r[at] != want {
					t.Errorf("%s completed at %s, want %s", r[0], r[at], want)
				}
			}

			var rep struct {
				Measurement struct {
					Throughput float64 `json:"throughput_requests_per_s"`
				}
				Figures []struct {
					Name string
					Mean *int64 `json:"mean_ns"`
				}
			}
			if err := json.Unmarshal(call(t, spans, "report", "--format", "json", "-"), &rep); err != nil {
				t.Fatal(err)
			}
			if d := rep.Measurement.Throughput/c.rate - 1; d < -1e-12 || d > 1e-12 {
				t.Errorf("throughput %v /s, want %v", rep.Measurement.Throughput, c.rate)
			}
			e2e := rep.Figures[len(rep.Figures)-1]
			if e2e.Name != "e2e" || e2e.Mean == nil || *e2e.Mean != c.mean {
				t.Errorf("the mean of %s is not %d ns", e2e.Name, c.mean)
			}
		})
	}
}

// call runs the command, wants status 0 and returns its standard output.
func call(t *testing.T, stdin []byte, args ...string) []byte {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(context.Background(), args, bytes.NewReader(stdin), &stdout, &stderr); status != 0 {
		t.Fatalf("%v: status %d: %s", args, status, stderr.String())
	}
	return stdout.Bytes()
}
