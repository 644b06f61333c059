package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/traceview/traceview/trace"
)

// pairOf is a gateway's span and the engine's in it, each in seconds by its
// own clock.
func pairOf(id, gateway, engine string, os, oe, es, ee float64) []*trace.Span {
	outer := with(span("POST /v1/completions", at(os), at(oe)), func(s *trace.Span) { service(gateway)(s); s.Kind = trace.KindServer })
	inner := with(below(outer, span("llm_request", at(es), at(ee), "id", id)), func(s *trace.Span) { service(engine)(s); s.Scope = "vllm.llm_engine" })
	return []*trace.Span{outer, inner}
}

// The clock of a pair is estimated over its requests and moves all of them
// alike, or none.
func TestSkewOfPairs(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans [][]*trace.Span
		want  []string
		msg   string // of the last request
	}{
		{"one clock: nothing is moved", [][]*trace.Span{
			pairOf("a", "gw", "llm", 0, 3, 0.5, 2.5), pairOf("b", "gw", "llm", 10, 13, 10.2, 12.9),
		}, []string{
			"a vllm ok arrival=0 end=3 | arrival=0.5 completion=0.5 unattributed=2",
			"b vllm ok arrival=10 end=13 | arrival=0.2 completion=0.1 unattributed=2.7",
		}, ""},
		// a would fit as it is, and its network times would be wrong by 0.7 s.
		{"0.7 s behind: both are moved by the same", [][]*trace.Span{
			pairOf("a", "gw", "llm", 0, 9, 2, 4), pairOf("b", "gw", "llm", 10, 13, 9.3, 11.8),
		}, []string{
			"a vllm ok arrival=0 end=9 | arrival|completion=7 unattributed=2 | clock-skew",
			"b vllm ok arrival=10 end=13 | arrival|completion=0.5 unattributed=2.5 | clock-skew",
		}, "child starts 700 ms before its parent; engine span 2.5 s, outer 3 s, moved by +700 ms, as 2 requests of both services tell"},
		{"the one that needs most decides", [][]*trace.Span{
			pairOf("a", "gw", "llm", 0, 9, -0.2, 4), pairOf("b", "gw", "llm", 10, 13, 9.3, 11.8),
		}, []string{
			"a vllm ok arrival=0 end=9 | arrival|completion=4.8 unattributed=4.2 | clock-skew",
			"b vllm ok arrival=10 end=13 | arrival|completion=0.5 unattributed=2.5 | clock-skew",
		}, "child starts 700 ms before its parent; engine span 2.5 s, outer 3 s, moved by +700 ms, as 2 requests of both services tell"},
		{"ahead", [][]*trace.Span{pairOf("b", "gw", "llm", 10, 13, 11, 13.25)}, []string{
			"b vllm ok arrival=10 end=13 | arrival|completion=0.75 unattributed=2.25 | clock-skew",
		}, "child ends 250 ms after its parent; engine span 2.25 s, outer 3 s, moved by -250 ms"},
		{"another pair has another clock", [][]*trace.Span{
			pairOf("a", "gw", "llm", 0, 3, 0.5, 2.5), pairOf("b", "gw", "llm-2", 10, 13, 9.3, 11.8),
		}, []string{
			"a vllm ok arrival=0 end=3 | arrival=0.5 completion=0.5 unattributed=2",
			"b vllm ok arrival=10 end=13 | arrival|completion=0.5 unattributed=2.5 | clock-skew",
		}, "child starts 700 ms before its parent; engine span 2.5 s, outer 3 s, moved by +700 ms"},
		// a cannot be earlier by more than 0.25 s, nor later; b needs 0.7 s.
		// Its 2.5 s stand, and so do the 3 s of its call: it did not begin before it.
		{"no constant explains it: what would begin before its call is put there", [][]*trace.Span{
			pairOf("a", "gw", "llm", 0, 2.5, 0.25, 2.25), pairOf("b", "gw", "llm", 10, 13, 9.3, 11.8),
		}, []string{
			"a vllm ok arrival=0 end=2.5 | arrival=0.25 completion=0.25 unattributed=2",
			"b vllm ok arrival=10 end=13 | arrival|completion=0.5 unattributed=2.5 | clock-skew",
		}, "child starts 700 ms before its parent; engine span 2.5 s, outer 3 s; no constant offset explains it, as 2 requests of both services tell: put at its parent's start alone"},
		{"nor where it is far off", [][]*trace.Span{
			pairOf("a", "gw", "llm", 0, 2.5, 0.25, 2.25), pairOf("b", "gw", "llm", 10, 13, 110, 112),
		}, []string{
			"a vllm ok arrival=0 end=2.5 | arrival=0.25 completion=0.25 unattributed=2",
			"b vllm ok arrival=110 end=112 | unattributed=2 | clock-skew",
		}, "child ends 99 s after its parent; engine span 2 s, outer 3 s; no constant offset explains it, as 2 requests of both services tell: the outer span was not used"},
	} {
		var spans []*trace.Span
		for _, p := range c.spans {
			spans = append(spans, p...)
		}
		got := run(Options{}, spans...)
		t.Run(c.name, func(t *testing.T) { check(t, got, c.want...) })
		if last := got.requests[len(got.requests)-1]; c.msg != "" && (len(last.Issues) == 0 || last.Issues[0].Msg != c.msg) {
			t.Errorf("%s: %v", c.name, last.Issues)
		}
	}
}

// Of many requests of a pair one in a hundred may be odd, in any order: that
// one is said, and the others are not moved for it.
func TestSkewOddOnes(t *testing.T) {
	var spans [][]*trace.Span
	for i := range 200 {
		s := float64(10 * i)
		spans = append(spans, pairOf(fmt.Sprint("r", i), "gw", "llm", s, s+3, s+0.5, s+2.5))
	}
	spans = append(spans, pairOf("odd", "gw", "llm", 5000, 5003, 4999, 5001))
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
	var all []*trace.Span
	for _, p := range spans {
		all = append(all, p...)
	}
	for _, r := range run(Options{}, all...).requests {
		b := r.Breakdown()
		if r.ID == "odd" {
			if len(r.Issues) != 1 || !strings.Contains(r.Issues[0].Msg, "no constant offset explains it, as 201 requests") {
				t.Errorf("%v", r.Issues)
			}
		} else if len(r.Issues) > 0 || b.Of(trace.Arrival) != 5e8 {
			t.Errorf("%s: arrival %v, %v", r.ID, b.Of(trace.Arrival), r.Issues)
		}
	}
}

// Traces that are closed early, since too many are open, are told too.
func TestSkewEarly(t *testing.T) {
	const n = 3 * minQueue
	b := NewBuilder(Options{MaxOpen: 6})
	var requests []*trace.Request
	yield := func(r *trace.Request, _ *trace.Issue) bool {
		if r != nil {
			requests = append(requests, r)
		}
		return true
	}
	for i := range n {
		s := float64(10 * i)
		for _, sp := range pairOf(fmt.Sprint("r", i), "gw", "llm", s, s+3, s-0.5, s+2) {
			b.Add(sp, yield)
		}
	}
	if len(requests) < minQueue {
		t.Errorf("%d requests before the end: they are not told early", len(requests))
	}
	b.Finish(yield)
	if len(requests) != n {
		t.Fatalf("%d requests", len(requests))
	}
	for _, r := range requests {
		if b := r.Breakdown(); b.Extent != 3e9 || b.Of(trace.Arrival|trace.Completion) != 5e8 {
			t.Errorf("%s: %+v", r.ID, b)
		}
	}
}
