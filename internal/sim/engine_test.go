package sim

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

func randomEngine(rnd *rand.Rand) Engine {
	e := Engine{
		Seed: rnd.Uint64(), Service: "s", Model: "m", Replicas: 1 + rnd.IntN(3), Routing: []Routing{RoundRobin, LeastLoaded, Sticky}[rnd.IntN(3)],
		Slots: 1 + rnd.IntN(12), Chunked: rnd.IntN(2) == 0, Limit: 600,
		Base: 5 * ms, PerPrefill: 20 * time.Microsecond, PerDecode: 200 * time.Microsecond, PerResident: 100 * time.Microsecond,
		Before: time.Duration(rnd.IntN(3)) * ms, After: time.Duration(rnd.IntN(3)) * ms, Every: time.Second,
		Tenants: []Tenant{
			{Name: "a", Requests: 40, Rate: 20, Prompt: Length{1, 500, 1}, Output: Length{1, 60, 1}, Abort: 0.1, Fail: 0.1},
			{Name: "b", Requests: 30, Rate: 10, Burst: 10, Prompt: Length{50, 550, 0}, Output: Length{1, 200, 0}, Start: time.Second},
		},
	}
	e.Budget = e.Slots + rnd.IntN(500)
	if !e.Chunked {
		e.Budget = e.Limit + e.Slots
	}
	if rnd.IntN(3) > 0 {
		e.Blocks = blocks(e.Limit+1) + rnd.IntN(40)
	}
	return e
}

// TestEngine runs engines of all kinds: time is conserved, no limit is passed,
// everyone leaves once, and a seed decides all.
func TestEngine(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	outcomes := map[trace.Outcome]int{}
	preempted, beforeFirst := 0, 0
	blocked := map[Blocked]int{}
	for range 150 {
		e := randomEngine(rnd)
		run, err := e.Run()
		if err != nil {
			t.Fatal(err)
		}
		if len(run.Requests) != 70 {
			t.Fatalf("%d requests", len(run.Requests))
		}
		for _, r := range run.Requests {
			outcomes[r.Outcome]++
			b := r.Breakdown()
			if err := r.Check(); err != nil {
				t.Fatalf("%s: %v", r.ID, err)
			}
			if b.Unattributed != 0 || b.Inconsistent() || b.Overlap != 0 || !b.Complete {
				t.Fatalf("%s: %+v", r.ID, b)
			}
			if r.Outcome == trace.OK && r.Output != r.MaxTokens {
				t.Fatalf("%s: ok with %v of %v tokens", r.ID, r.Output, r.MaxTokens)
			}
			n := 0
			for _, iv := range r.Intervals {
				if iv.Phase == trace.Preempted {
					n++
					if !r.FirstToken.Present() || iv.Start < r.FirstToken.At {
						beforeFirst++
					}
				}
			}
			// Pushed back at the instant at which it left: no interval.
			if p := r.Preemptions.Or(0); n > p || r.Outcome == trace.OK && n != p {
				t.Fatalf("%s: %d preemptions, %d intervals", r.ID, p, n)
			}
			preempted += n
		}
		made, written := 0, 0
		for _, r := range run.Requests {
			made += r.Output.Or(0)
		}
		for _, s := range run.Steps {
			written += s.OutputTokens
		}
		if made != written {
			t.Fatalf("requests have %d output tokens, steps made %d", made, written)
		}
		until := make([]trace.Time, e.Replicas)
		for _, s := range run.Steps {
			blocked[s.Blocked]++
			if s.Running > e.Slots || e.Blocks > 0 && s.Blocks > e.Blocks || s.PrefillTokens > e.Budget || s.Start < until[s.Replica] || s.End <= s.Start {
				t.Fatalf("step passes a limit: %+v", s)
			}
			until[s.Replica] = s.End
			// What the length leaves for decoding is a token each of some that made
			// one, of all where no prompt was computed; the budget holds it too.
			if e.PerDecode > 0 && e.Unkind.Uneven == 0 && len(e.Freezes) == 0 {
				rest := s.End.Sub(s.Start) - e.Base - time.Duration(s.PrefillTokens)*e.PerPrefill - time.Duration(s.Resident)*e.PerResident/1024
				if n := int(rest / e.PerDecode); rest%e.PerDecode != 0 || n < 0 || n > s.OutputTokens || s.PrefillTokens+n > e.Budget || s.PrefillTokens == 0 && n != s.OutputTokens {
					t.Fatalf("%v for decoding, %v a token, in %+v", rest, e.PerDecode, s)
				}
			}
			tokens := 0
			for _, i := range s.Requests {
				r := run.Requests[i]
				if r.Replica != replicaName(s.Replica) || s.Start < r.Scheduled.At || s.End > r.Completed.At {
					t.Fatalf("%s runs where or when it should not: %+v", r.ID, s)
				}
				tokens += r.Input.Or(0)
			}
			if e.Blocks > 0 && s.Resident > s.Blocks*BlockTokens {
				t.Fatalf("more tokens than blocks hold: %+v", s)
			}
		}
		if again, _ := e.Run(); !reflect.DeepEqual(again, run) {
			t.Fatal("the same seed gives another run")
		}
	}
	for _, o := range []trace.Outcome{trace.OK, trace.Error, trace.Aborted, trace.Rejected} {
		if outcomes[o] == 0 {
			t.Errorf("no request ended %v", o)
		}
	}
	for _, b := range []Blocked{ByNothing, BySlots, ByKV, ByBudget} {
		if blocked[b] == 0 {
			t.Errorf("nothing was ever blocked by %q", b)
		}
	}
	if preempted == 0 || beforeFirst == 0 {
		t.Errorf("%d preemptions, %d of them in prefill: not tested", preempted, beforeFirst)
	}
}

// TestEngineByHand follows two requests through one slot. A step takes 10 ms
// and 1 ms for each prompt token or decoding request.
func TestEngineByHand(t *testing.T) {
	run, err := Engine{
		Replicas: 1, Routing: RoundRobin, Slots: 1, Budget: 4, Chunked: true, Limit: 100,
		Base: 10 * ms, PerPrefill: ms, PerDecode: ms,
		Tenants: []Tenant{{Name: "a", Requests: 2, Rate: 1e9, Burst: 2, Prompt: Length{6, 6, 0}, Output: Length{2, 2, 0}}},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	// Six tokens in two steps (14 and 12 ms), one token more (11 ms): 37 ms.
	a, b := run.Requests[0], run.Requests[1]
	at := a.Arrival.At
	for _, c := range []struct {
		name string
		got  trace.Instant
		want time.Duration
	}{
		{"a first", a.FirstToken, 26 * ms}, {"a end", a.Completed, 37 * ms},
		{"b scheduled", b.Scheduled, 37 * ms}, {"b first", b.FirstToken, 63 * ms}, {"b end", b.Completed, 74 * ms},
	} {
		if d := c.got.At.Sub(at); d != c.want {
			t.Errorf("%s after %v, want %v", c.name, d, c.want)
		}
	}
	if s := run.Steps[0]; s.Blocked != ByNothing && s.Blocked != BySlots {
		t.Errorf("first step blocked by %q", s.Blocked)
	}
	if s := run.Steps[1]; s.Blocked != BySlots || s.Waiting != 1 {
		t.Errorf("second step: %+v", s)
	}
}

func TestEngineRefuses(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for name, change := range map[string]func(*Engine){
		"no replica":     func(e *Engine) { e.Replicas = 0 },
		"no time":        func(e *Engine) { e.Base = 0 },
		"starving":       func(e *Engine) { e.Budget = e.Slots - 1 },
		"no chunks":      func(e *Engine) { e.Chunked, e.Budget = false, e.Limit },
		"too few blocks": func(e *Engine) { e.Blocks = 3 },
		"no routing":     func(e *Engine) { e.Routing = "" },
		"no rate":        func(e *Engine) { e.Tenants[0].Rate = 0 },
		"no length":      func(e *Engine) { e.Tenants[0].Prompt.Max = 0 },
	} {
		e := randomEngine(rnd)
		e.Slots += 2
		change(&e)
		if _, err := e.Run(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func equal(a, b []*trace.Request) bool { return reflect.DeepEqual(a, b) }
