package main

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// trueDepth is how many requests were in phases of a kind at each of n looks,
// a step apart.
func trueDepth(rs []*trace.Request, kind trace.Kind, from trace.Time, step time.Duration, n int) []int {
	change := make([]int, n+1)
	look := func(t trace.Time) int { // the first at or after t
		return min(max(0, int((t.Sub(from)+step-1)/step)), n)
	}
	for _, r := range rs {
		for _, iv := range r.Intervals {
			if iv.Phase.Kind() == kind {
				change[look(iv.Start)]++
				change[look(iv.End)]--
			}
		}
	}
	for i := 1; i <= n; i++ {
		change[i] += change[i-1]
	}
	return change[:n]
}

// TestDepthFromLog holds what a vLLM log alone tells of depth over time to the
// truth of the engine that wrote it. The log counts every ten seconds, stamped
// to the second; so a window's mean must lie between the least and the most
// that truly waited, or ran, from the reading before it to its end. Over the
// whole the mean must be near the true one, as far as ten to twenty looks at a
// queue that moves can be, and the replica at which most waited must show.
func TestDepthFromLog(t *testing.T) {
	const every, step = 10 * time.Second, 20 * time.Millisecond
	scenarios := sim.Scenarios(3)
	for i, c := range []struct {
		scenario string
		version  sim.LogVersion
		deepest  int // the replica at which most wait: the one that froze, the hot one
	}{
		{"long prompts, 30,000 tokens", sim.Log16, 0}, {"one of four frozen", sim.Log10, 2}, {"four sticky, one hot", sim.Log08, 2},
		{"memory, over", sim.Log06, 0}, {"slots, near", sim.Log04, 0}, {"light", sim.Log16, 0},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			s := scenarios[slices.IndexFunc(scenarios, func(s sim.Scenario) bool { return s.Name == c.scenario })]
			s.Every, s.Before, s.After = every, time.Millisecond, time.Millisecond
			run, err := s.Run()
			if err != nil {
				t.Fatal(err)
			}
			deepest, most := -1, -1.0
			for replica := range s.Replicas {
				name := "replica-" + strconv.Itoa(replica)
				var b bytes.Buffer
				if err := sim.Log(&b, run, name, sim.LogShape{Version: c.version, Outputs: true}); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(t.TempDir(), strconv.Itoa(i)+".log")
				if err := os.WriteFile(file, b.Bytes(), 0o666); err != nil {
					t.Fatal(err)
				}
				args := []string{"--format", "json", "--zone", "UTC", "--year", "2025", file}
				var tl analyze.Timeline
				if err := json.Unmarshal(call(t, nil, append([]string{"timeline", "--every", every.String()}, args...)...), &tl); err != nil {
					t.Fatal(err)
				}
				var rs []*trace.Request
				for _, r := range run.Requests {
					if r.Replica == name {
						rs = append(rs, r)
					}
				}
				ws := tl.Windows.Series[0].Windows
				from := trace.Time(ws[0].StartNS)
				n := int(trace.Time(ws[len(ws)-1].EndNS).Sub(from) / step)
				for _, d := range []struct {
					name string
					kind trace.Kind
					told func(*analyze.EngineSlot) trace.Opt[float64]
					own  func(*analyze.Slot) trace.Opt[float64]
				}{
					{"waiting", trace.Waiting, func(e *analyze.EngineSlot) trace.Opt[float64] { return e.WaitingMean }, func(w *analyze.Slot) trace.Opt[float64] { return w.WaitingMean }},
					{"running", trace.Compute, func(e *analyze.EngineSlot) trace.Opt[float64] { return e.RunningMean }, func(w *analyze.Slot) trace.Opt[float64] { return w.RunningMean }},
				} {
					truth := trueDepth(rs, d.kind, from, step, n)
					var told, truly, windows float64
					for i := range ws {
						w := &ws[i]
						if d.own(w).Present() {
							t.Errorf("%s: window %d: a log tells of no request's phases", name, i)
						}
						if w.Engine == nil {
							continue
						}
						v, ok := d.told(w.Engine).Get()
						if !ok {
							t.Errorf("%s: window %d: no depth %s", name, i, d.name)
							continue
						}
						at := func(t int64) int { return min(max(0, int(trace.Time(t).Sub(from)/step)), n) }
						// A reading is stamped up to a second before it is made.
						near := truth[at(w.StartNS-int64(every)):at(w.EndNS+int64(time.Second))]
						if len(near) == 0 {
							continue
						}
						if lo, hi := slices.Min(near), slices.Max(near); v < float64(lo) || v > float64(hi) {
							t.Errorf("%s: window %d: %v %s, in truth %d to %d", name, i, v, d.name, lo, hi)
						}
						in := truth[at(w.StartNS):at(w.EndNS)]
						for _, x := range in {
							truly += float64(x) / float64(len(in))
						}
						told += v
						windows++
					}
					if windows < 5 {
						t.Fatalf("%s: %v windows", name, windows)
					}
					told, truly = told/windows, truly/windows
					if math.Abs(told-truly) > max(2, 0.35*truly) {
						t.Errorf("%s: %.2f %s on average, in truth %.2f", name, told, d.name, truly)
					}
					if d.kind == trace.Waiting && told > most {
						deepest, most = replica, told
					}
				}
			}
			if deepest != c.deepest {
				t.Errorf("most wait at replica %d, want %d", deepest, c.deepest)
			}
		})
	}
}
