package sim

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

var update = flag.Bool("update", false, "write the golden files anew")

const ms = time.Millisecond

func millis(n ...int) (ds []time.Duration) {
	for _, v := range n {
		ds = append(ds, time.Duration(v)*ms)
	}
	return ds
}

// The table of the definitions, section 11: four arrivals 1 ms apart, 1 ms a
// request, two setups, two policies.
func TestQueueTable(t *testing.T) {
	for _, c := range []struct {
		setup                         int
		policy                        Policy
		completions, latencies, waits []int
		meanMicros                    int
		seconds                       float64 // that the four take
	}{
		{4, Individual, []int{5, 10, 15, 20}, []int{5, 9, 13, 17}, []int{0, 4, 8, 12}, 11000, 0.020},
		{4, Batch, []int{11, 11, 11, 11}, []int{11, 10, 9, 8}, []int{3, 2, 1, 0}, 9500, 0.011},
		{2, Individual, []int{3, 6, 9, 12}, []int{3, 5, 7, 9}, []int{0, 2, 4, 6}, 6000, 0.012},
		{2, Batch, []int{9, 9, 9, 9}, []int{9, 8, 7, 6}, []int{3, 2, 1, 0}, 7500, 0.009},
	} {
		res, err := Queue{Arrivals: millis(0, 1, 2, 3), Setup: time.Duration(c.setup) * ms, PerRequest: ms, Policy: c.policy}.Run()
		if err != nil {
			t.Fatal(err)
		}
		var completions, latencies, waits []time.Duration
		for _, s := range res.Served {
			completions, latencies, waits = append(completions, s.End), append(latencies, s.Latency()), append(waits, s.Waited())
		}
		for _, x := range []struct {
			name string
			got  []time.Duration
			want []int
		}{{"completions", completions, c.completions}, {"latencies", latencies, c.latencies}, {"waits", waits, c.waits}} {
			if !slices.Equal(x.got, millis(x.want...)) {
				t.Errorf("setup %d ms, %s: %s %v, want %v ms", c.setup, c.policy, x.name, x.got, x.want)
			}
		}
		if mean := res.Latency() / 4; mean != time.Duration(c.meanMicros)*time.Microsecond {
			t.Errorf("setup %d ms, %s: mean %v", c.setup, c.policy, mean)
		}
		if got := res.Throughput(); got != trace.Some(4/c.seconds) {
			t.Errorf("setup %d ms, %s: throughput %v", c.setup, c.policy, got)
		}
		for i, r := range res.Requests() {
			b := r.Breakdown()
			if err := r.Check(); err != nil || b.Unattributed != 0 || b.Inconsistent() ||
				b.Of(trace.Queueing) != res.Served[i].Waited() || b.Extent != res.Served[i].Latency() {
				t.Errorf("%s: %v %+v", r.ID, err, b)
			}
		}
	}
}

func TestQueueCap(t *testing.T) {
	// Setup 4 ms, 1 ms a request. At most 2 a group, 3 ms at most.
	// r1 at 0 waits for r2 at 1: full, 1..7. r3 at 2 and r4 at 9: r3 may start
	// at 2+3 = 5, the worker is free at 7, r4 is not there: 7..12. r4 alone,
	// 9+3 = 12: r5 arrives at that very instant and goes with it: 12..18.
	// r6 at 30 waits in vain: 33..38.
	q := Queue{Arrivals: millis(0, 1, 2, 9, 12, 30), Setup: 4 * ms, PerRequest: ms, Policy: Cap, Max: 2, Wait: 3 * ms}
	res, err := q.Run()
	if err != nil {
		t.Fatal(err)
	}
	want := []Served{
		{0, 1 * ms, 7 * ms, 1}, {1 * ms, 1 * ms, 7 * ms, 1}, {2 * ms, 7 * ms, 12 * ms, 2},
		{9 * ms, 12 * ms, 18 * ms, 3}, {12 * ms, 12 * ms, 18 * ms, 3}, {30 * ms, 33 * ms, 38 * ms, 4},
	}
	if !slices.Equal(res.Served, want) {
		t.Errorf("got  %v\nwant %v", res.Served, want)
	}
}

// A cap of one without a wait is one at a time; a cap of all with an endless
// wait is the batch.
func TestQueueLimits(t *testing.T) {
	arrivals, err := Poisson(200, 300, 7)
	if err != nil {
		t.Fatal(err)
	}
	base := Queue{Arrivals: arrivals, Setup: 2 * ms, PerRequest: ms / 2}
	run := func(p Policy, n int, wait time.Duration) []Served {
		q := base
		q.Policy, q.Max, q.Wait = p, n, wait
		res, err := q.Run()
		if err != nil {
			t.Fatal(err)
		}
		return res.Served
	}
	if a, b := run(Individual, 0, 0), run(Cap, 1, time.Hour); !slices.Equal(a, b) {
		t.Error("cap of 1 differs from one at a time")
	}
	if a, b := run(Batch, 0, 0), run(Cap, 200, time.Hour); !slices.Equal(a, b) {
		t.Error("cap of all differs from the batch")
	}
}

// TestQueueRules checks the statement of the policy on random runs: groups
// follow each other on one worker, are no larger than the cap, take the first
// that wait, and start neither sooner nor later than the policy says.
func TestQueueRules(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		arrivals, _ := Poisson(1+rnd.IntN(60), 1000, rnd.Uint64())
		q := Queue{Arrivals: arrivals, Setup: time.Duration(rnd.IntN(4)) * ms, PerRequest: time.Duration(rnd.IntN(3)) * ms, Policy: Cap, Max: 1 + rnd.IntN(6), Wait: time.Duration(rnd.IntN(5)) * ms}
		res, err := q.Run()
		if err != nil {
			t.Fatal(err)
		}
		var free time.Duration
		for i := 0; i < len(res.Served); {
			s, n := res.Served[i], 0
			for i+n < len(res.Served) && res.Served[i+n].Group == s.Group {
				if m := res.Served[i+n]; m.Start != s.Start || m.End != s.End || m.Arrival > s.Start {
					t.Fatalf("group %d is not one: %+v, %+v", s.Group, s, m)
				}
				n++
			}
			due := s.Arrival + q.Wait
			if i+q.Max <= len(arrivals) {
				due = min(due, arrivals[i+q.Max-1])
			}
			left := n < q.Max && i+n < len(arrivals) && arrivals[i+n] <= s.Start
			if n > q.Max || left || s.Start != max(due, free) || s.End != s.Start+q.Setup+time.Duration(n)*q.PerRequest {
				t.Fatalf("%+v: group %d of %d at %v, due %v, free %v, left behind %v", q, s.Group, n, s.Start, due, free, left)
			}
			free = s.End
			i += n
		}
	}
}

func TestQueueRefuses(t *testing.T) {
	ok := Queue{Arrivals: millis(0, 1), Policy: Individual}
	for name, change := range map[string]func(*Queue){
		"no arrivals":      func(q *Queue) { q.Arrivals = nil },
		"negative arrival": func(q *Queue) { q.Arrivals = millis(-1, 0) },
		"unsorted":         func(q *Queue) { q.Arrivals = millis(1, 0) },
		"negative setup":   func(q *Queue) { q.Setup = -1 },
		"negative wait":    func(q *Queue) { q.Wait = -1 },
		"no policy":        func(q *Queue) { q.Policy = "" },
		"cap without max":  func(q *Queue) { q.Policy = Cap },
		"too long":         func(q *Queue) { q.Setup = 1 << 62 },
	} {
		q := ok
		change(&q)
		if _, err := q.Run(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	for _, rate := range []float64{0, -1, 1e-12} {
		if _, err := Poisson(5, rate, 1); err == nil {
			t.Errorf("rate %v: no error", rate)
		}
	}
}

func TestPoisson(t *testing.T) {
	a, _ := Poisson(20000, 50, 1)
	b, _ := Poisson(20000, 50, 1)
	c, _ := Poisson(20000, 50, 2)
	if !slices.Equal(a, b) || slices.Equal(a, c) {
		t.Error("a seed does not decide")
	}
	// 20,000 gaps of 20 ms: 400 s, give or take five standard deviations of
	// 20 ms · √20000 = 2.83 s.
	if end := a[len(a)-1]; end < 386*time.Second || end > 414*time.Second {
		t.Errorf("20,000 arrivals at 50/s take %v", end)
	}
}

func TestQueueSpans(t *testing.T) {
	res, err := Queue{Arrivals: millis(0, 1), Setup: 4 * ms, PerRequest: ms, Policy: Individual}.Run()
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		name       string
		start, end time.Duration
		child      bool
	}
	var got []row
	ids := map[string]bool{}
	for _, s := range res.Spans() {
		start, _ := s.Start.Get()
		end, _ := s.End.Get()
		got = append(got, row{s.Name, start.Sub(Base), end.Sub(Base), s.ParentID != ""})
		ids[s.SpanID] = true
	}
	want := []row{
		{"llm_request", 0, 5 * ms, false}, {"queue", 0, 0, true}, {"inference", 0, 5 * ms, true},
		{"llm_request", 1 * ms, 10 * ms, false}, {"queue", 1 * ms, 5 * ms, true}, {"inference", 5 * ms, 10 * ms, true},
	}
	if !reflect.DeepEqual(got, want) || len(ids) != len(want) {
		t.Errorf("got  %v\nwant %v\n%d ids", got, want, len(ids))
	}
}

func TestDraw(t *testing.T) {
	table := Queue{Arrivals: millis(0, 1, 2, 3), Setup: 4 * ms, PerRequest: ms}
	poisson, _ := Poisson(60, 120, 1)
	for _, c := range []struct {
		name string
		q    func(q Queue) Queue
		o    Drawing
	}{
		{"individual", func(q Queue) Queue { q.Policy = Individual; return q }, Drawing{}},
		{"batch", func(q Queue) Queue { q.Policy = Batch; return q }, Drawing{}},
		{"batch-ascii", func(q Queue) Queue { q.Policy = Batch; return q }, Drawing{ASCII: true, Width: 60}},
		{"cap", func(q Queue) Queue { q.Arrivals, q.Policy, q.Max, q.Wait = poisson, Cap, 8, 20*ms; return q }, Drawing{Rows: 12, Width: 100}},
		{"micro", func(q Queue) Queue {
			return Queue{Arrivals: []time.Duration{0, 1500, 2750}, Setup: 1250, PerRequest: 333, Policy: Individual}
		}, Drawing{ASCII: true}},
		{"zero", func(q Queue) Queue { return Queue{Arrivals: millis(0, 0), Policy: Individual} }, Drawing{}},
		{"minutes", func(q Queue) Queue {
			return Queue{Arrivals: millis(0, 90_000), Setup: time.Minute, PerRequest: 1, Policy: Individual}
		}, Drawing{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, err := c.q(table).Run()
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := res.Draw(&b, c.o); err != nil {
				t.Fatal(err)
			}
			golden(t, filepath.Join("testdata", "draw-"+c.name+".txt"), b.Bytes())
		})
	}
}

// TestDrawFits draws runs of all sizes within the width asked for.
func TestDrawFits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		arrivals, _ := Poisson(1+rnd.IntN(30), 1/(float64(1+rnd.IntN(9))*[]float64{1e-9, 1e-6, 1e-3, 1, 1e4}[rnd.IntN(5)]), rnd.Uint64())
		q := Queue{Arrivals: arrivals, Setup: time.Duration(rnd.Int64N(1 << rnd.IntN(40))), PerRequest: time.Duration(rnd.Int64N(1 << rnd.IntN(40))), Policy: Cap, Max: 3, Wait: time.Duration(rnd.Int64N(1 << rnd.IntN(40)))}
		res, err := q.Run()
		if err != nil {
			t.Fatal(err)
		}
		width := 40 + rnd.IntN(100)
		var b bytes.Buffer
		if err := res.Draw(&b, Drawing{Width: width, ASCII: true}); err != nil {
			t.Fatal(err)
		}
		drawing, _, _ := bytes.Cut(b.Bytes(), []byte("\n\n"))
		for line := range bytes.Lines(drawing) {
			if len(line) > width+1 {
				t.Fatalf("%d columns, not %d:\n%s", len(line), width, drawing)
			}
		}
	}
}

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs (run the test with -update to accept):\n%s", path, got)
	}
}
