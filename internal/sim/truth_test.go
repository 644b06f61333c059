package sim

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

// oddEngine is a random engine with all that an [Engine] may have.
func oddEngine(rnd *rand.Rand) Engine {
	e := randomEngine(rnd)
	e.Unkind.Scatter = time.Duration(rnd.IntN(2)) * 300 * time.Microsecond
	e.Unkind.Uneven = 0.2 * float64(rnd.IntN(2))
	e.Unkind.ChunkMemory = e.Chunked && rnd.IntN(2) == 0
	e.Unkind.Async = e.Chunked && rnd.IntN(2) == 0
	if rnd.IntN(2) == 0 {
		e.Freezes = []Freeze{{rnd.IntN(e.Replicas), time.Second, 2 * time.Second}, {rnd.IntN(e.Replicas), 2 * time.Second, 2 * time.Second}}
	}
	if rnd.IntN(3) == 0 {
		e.Gather, e.GatherFor = 2+rnd.IntN(6), time.Duration(rnd.IntN(300))*ms
	}
	e.Tenants[0].Priority = rnd.IntN(3) - 1
	e.Tenants[1].Cached = 0.5 * float64(rnd.IntN(2))
	return e
}

// TestWaits holds the causes of random engines against what must be so of any.
func TestWaits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	count := map[string]int{}
	for range 200 {
		e := oddEngine(rnd)
		run, err := e.Run()
		if err != nil {
			t.Fatal(err)
		}
		steps := make([][]Step, e.Replicas)
		for _, s := range run.Steps {
			steps[s.Replica] = append(steps[s.Replica], s)
		}
		for i, r := range run.Requests {
			if err := r.Check(); err != nil {
				t.Fatalf("%s: %v", r.ID, err)
			}
			b := r.Breakdown()
			if b.Unattributed != 0 || b.Inconsistent() || b.Overlap != 0 || !b.Complete {
				t.Fatalf("%s: %+v", r.ID, b)
			}
			waits := run.Waits(i)
			var sum time.Duration
			for k, w := range waits {
				d := w.End.Sub(w.Start)
				sum += d
				count[w.Cause]++
				if w.Avoidable {
					count["avoidable"]++
				}
				if d <= 0 || k > 0 && w.Start < waits[k-1].End || w.Avoidable && w.Cause == "step" {
					t.Fatalf("%s: stretch %d of %+v", r.ID, k, waits)
				}
				held := 0.0
				for _, h := range w.Held {
					held += h
				}
				if w.Cause == "hold" || w.Cause == "stall" {
					d = 0
				}
				if w.Cause != "step" && math.Abs(held-float64(d)) > 1+1e-6*float64(d) || held > 1+(1+1e-6)*float64(d) {
					t.Fatalf("%s: %v held of %+v", r.ID, held, w)
				}
			}
			if sum != b.Kind(trace.Waiting) {
				t.Fatalf("%s: causes add up to %v, waiting is %v", r.ID, sum, b.Kind(trace.Waiting))
			}
		}
		for at, all := range steps {
			check(t, run, at, all)
		}
		if again, _ := e.Run(); !reflect.DeepEqual(again, run) {
			t.Fatal("the same seed gives another run")
		}
	}
	for _, c := range []string{"hold", "stall", "slots", "kv_cache", "prefill", "step", "avoidable"} {
		if count[c] == 0 {
			t.Errorf("nobody ever waited for %s", c)
		}
	}
}

// check looks at one replica's causes from the side of its steps, which know
// nothing of them.
func check(t *testing.T, run *Run, at int, steps []Step) {
	t.Helper()
	e, tr := run.Engine, run.truth[at]
	frozen := func(t trace.Time) bool {
		return slices.ContainsFunc(e.Freezes, func(f Freeze) bool {
			return f.Replica == at && Base.Add(f.From) <= t && t < Base.Add(f.From+f.For)
		})
	}
	k := 0
	for i, p := range tr.pieces {
		for k < len(steps) && steps[k].End <= p.start {
			k++
		}
		if p.cause == "" {
			continue
		}
		runs := k < len(steps) && steps[k].Start <= p.start
		switch {
		case p.cause == "hold":
			if runs && e.Gather < 2 || !runs && e.Gather < 2 && !frozen(p.start) {
				t.Fatalf("piece %d is hold, though no policy holds", i)
			}
		case p.cause == "stall" != frozen(p.start):
			t.Fatalf("piece %d is %s, frozen %v", i, p.cause, frozen(p.start))
		case p.cause == "stall":
		case !runs:
			t.Fatalf("piece %d is %s, though nothing runs", i, p.cause)
		default:
			s := steps[k]
			full := s.Running >= e.Slots
			if full != (p.cause == "slots") {
				t.Fatalf("piece %d is %s with %d of %d running", i, p.cause, s.Running, e.Slots)
			}
			// Who was refused is the head for the whole step, but where
			// priorities may put another in front.
			if e.Tenants[0].Priority != 0 {
				continue
			}
			if s.Waiting > 0 && s.Blocked != ByPolicy && (p.cause == "step" || s.Blocked == ByKV && p.cause != "kv_cache" || s.Blocked == BySlots && p.cause != "slots") {
				t.Fatalf("piece %d is %s: %+v", i, p.cause, s)
			}
		}
	}
}

// TestWaitsByHand follows requests through one slot, of which one is frozen in
// the middle: as in TestEngineByHand, but 100 ms late at 20 ms.
func TestWaitsByHand(t *testing.T) {
	e := Engine{
		Replicas: 2, Routing: Sticky, Slots: 1, Budget: 4, Chunked: true, Limit: 100,
		Base: 10 * ms, PerPrefill: ms, PerDecode: ms,
		Tenants: []Tenant{{Name: "a", Requests: 2, Rate: 1e9, Burst: 2, Prompt: Length{6, 6, 0}, Output: Length{2, 2, 0}}},
	}
	run, err := e.Run()
	if err != nil {
		t.Fatal(err)
	}
	from := run.Requests[0].Scheduled.At.Sub(Base)
	e.Freezes = []Freeze{{0, from + 20*ms, 100 * ms}}
	if run, err = e.Run(); err != nil {
		t.Fatal(err)
	}
	a, b := run.Requests[0], run.Requests[1]
	if d := a.FirstToken.At.Sub(a.Scheduled.At); d != 126*ms {
		t.Errorf("first token after %v", d)
	}
	if w := run.Waits(0); w != nil {
		t.Errorf("the first waits: %v", w)
	}
	at := func(d time.Duration) trace.Time { return a.Scheduled.At.Add(d) }
	want := []Wait{
		{b.Queued.At, at(20 * ms), "slots", true, []float64{float64(at(20 * ms).Sub(b.Queued.At))}},
		{at(20 * ms), at(120 * ms), "stall", true, []float64{0}},
		{at(120 * ms), at(137 * ms), "slots", true, []float64{17e6}},
	}
	if got := run.Waits(1); !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// TestNoise: every request moves, as a whole.
func TestNoise(t *testing.T) {
	run, err := randomEngine(rand.New(rand.NewPCG(1, 2))).Run()
	if err != nil {
		t.Fatal(err)
	}
	before, _ := run.Engine.Run()
	var sum time.Duration
	moved := Noise(run.Requests, 1, ms)
	for i, r := range run.Requests {
		d := moved[i].Arrival.At.Sub(r.Arrival.At)
		sum += d
		if d < 0 || !reflect.DeepEqual(moved[i].Breakdown(), r.Breakdown()) || moved[i].Completed.At.Sub(r.Completed.At) != d {
			t.Errorf("%s: moved by %v", r.ID, d)
		}
	}
	if mean := sum / time.Duration(len(moved)); mean < ms/2 || mean > 2*ms {
		t.Errorf("moved by %v on average", mean)
	}
	if !equal(run.Requests, before.Requests) {
		t.Error("noise changed the truth")
	}
}
