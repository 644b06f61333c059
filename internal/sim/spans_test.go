package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

// TestV1Span reads the attributes of one span by eye. Of a request the engine
// has 10 ms in the queue, 20 ms of prefill, 30 ms of decode with 5 ms pushed
// back inside; the front end has 4 ms before and 2 ms behind.
func TestV1Span(t *testing.T) {
	at := func(n int) trace.Time { return Base.Add(time.Duration(n) * ms) }
	m := func(n int) trace.Instant { return trace.At(at(n), trace.Measured) }
	iv := func(p trace.Phase, a, z int) trace.Interval {
		return trace.Interval{Phase: p, Basis: trace.Measured, Start: at(a), End: at(z)}
	}
	r := &trace.Request{
		ID: "cmpl-1", TraceID: traceID(1, 1), SpanID: spanID(1, 1, 0), Service: "s", Replica: "r", Model: "m", Clock: trace.ClockUnix, Resolution: 1,
		Arrival: m(0), Queued: m(4), Scheduled: m(14), FirstToken: m(34), LastToken: m(64), Completed: m(66),
		Input: trace.Some(7), Output: trace.Some(3), MaxTokens: trace.Some(3), Preemptions: trace.Some(1), Outcome: trace.OK,
		Intervals: []trace.Interval{iv(trace.Arrival, 0, 4), iv(trace.Queueing, 4, 14), iv(trace.Prefill, 14, 34), iv(trace.Decode, 34, 50), iv(trace.Preempted, 50, 55), iv(trace.Decode, 55, 64), iv(trace.Completion, 64, 66)},
	}
	rs := []*trace.Request{r}
	check := func(s *trace.Span, want map[string]float64) {
		t.Helper()
		for key, w := range want {
			v, _ := s.Attr("gen_ai.latency." + key)
			if f, ok := v.Float(); !ok || f != w {
				t.Errorf("%s is %v, want %v", key, v, w)
			}
		}
		if _, ok := s.Attr("gen_ai.response.model"); ok != (s.Scope == "vllm.llm_engine") {
			t.Error("the model: V1 never tells it, V0 does")
		}
	}
	check(V1(rs, VLLM{})[0], map[string]float64{
		"time_in_queue": 0.010, "time_in_model_prefill": 0.020, "time_in_model_decode": 0.030, "time_in_model_inference": 0.050,
		"time_to_first_token": 0.035, "e2e": 0.065,
	})
	check(V0(rs, VLLM{})[0], map[string]float64{"time_in_queue": 0.010, "time_to_first_token": 0.030, "e2e": 0.060})

	for _, c := range []struct {
		name string
		v    *trace.Request
		want map[trace.Phase]int
	}{
		{"v1", VisibleV1(rs, VLLM{})[0], map[trace.Phase]int{trace.Queueing: 10, trace.Prefill: 20, trace.Decode: 30, trace.Arrival | trace.Completion: 6}},
		{"v0", VisibleV0(rs, VLLM{})[0], map[trace.Phase]int{trace.Queueing: 10, trace.Prefill: 20, trace.Decode: 30, trace.Completion: 2}},
		{"child", VisibleChildSpans(rs)[0], map[trace.Phase]int{trace.Arrival: 4, trace.Queueing: 10, trace.Prefill: 20, trace.Decode: 25, trace.Preempted: 5, trace.Completion: 2}},
		{"gateway", VisibleGateway(rs)[0], map[trace.Phase]int{trace.Arrival: 2, trace.Queueing: 10, trace.Prefill: 20, trace.Decode: 30, trace.Completion: 1, trace.Arrival | trace.Completion: 3}},
		{"unknown", VisibleUnknown(rs)[0], map[trace.Phase]int{trace.Unattributed: 66}},
	} {
		b := c.v.Breakdown()
		for p, w := range c.want {
			// A microsecond: what float seconds lose of the span's start.
			if d := (b.Of(p) - time.Duration(w)*ms).Abs(); d > time.Microsecond {
				t.Errorf("%s: %v is %v, want %d ms", c.name, p, b.Of(p), w)
			}
		}
	}
}

// TestSpans writes runs in every way: each span has ids of its own, each
// visible request is a sound one, and no writer changes the truth.
func TestSpans(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	for range 20 {
		e := randomEngine(rnd)
		e.Before, e.After = 2*ms, ms
		run, err := e.Run()
		if err != nil {
			t.Fatal(err)
		}
		rs := run.Requests
		ok := len(served(rs))
		for _, c := range []struct {
			name    string
			spans   []*trace.Span
			visible []*trace.Request
			want    int
		}{
			{"v1", V1(rs, VLLM{}), VisibleV1(rs, VLLM{}), ok},
			{"v0", V0(rs, VLLM{Attrs: true}), VisibleV0(rs, VLLM{Attrs: true}), ok},
			{"child", ChildSpans(rs), VisibleChildSpans(rs), len(rs)},
			{"gateway", Gateway(rs), VisibleGateway(rs), len(rs)},
			{"unknown", Unknown(rs), VisibleUnknown(rs), len(rs)},
		} {
			if len(c.visible) != c.want {
				t.Errorf("%s: %d requests, want %d", c.name, len(c.visible), c.want)
			}
			for _, v := range c.visible {
				if err := v.Check(); err != nil {
					t.Fatalf("%s: %s: %v", c.name, v.ID, err)
				}
				if b := v.Breakdown(); b.Inconsistent() {
					t.Fatalf("%s: %s: %+v", c.name, v.ID, b)
				}
			}
			if got, want := tally(c.visible), tally(rs); c.want == len(rs) &&
				(got[trace.OK] != want[trace.OK] || got[trace.Aborted] != want[trace.Aborted] || got[trace.Error]+got[trace.Rejected] != want[trace.Error]+want[trace.Rejected] ||
					c.name == "gateway" && got[trace.Rejected] != want[trace.Rejected]) {
				t.Fatalf("%s: outcomes %v of %v", c.name, got, want)
			}
			ids := map[string]bool{}
			for _, s := range c.spans {
				if ids[s.SpanID] {
					t.Fatalf("%s: span id %s twice", c.name, s.SpanID)
				}
				ids[s.SpanID] = true
			}
		}
		if again, _ := e.Run(); !equal(again.Requests, rs) {
			t.Fatal("a writer changed the truth")
		}
	}
}

func tally(rs []*trace.Request) map[trace.Outcome]int {
	n := map[trace.Outcome]int{}
	for _, r := range rs {
		n[r.Outcome]++
	}
	return n
}
