package engine

import (
	"testing"

	"github.com/traceview/traceview/trace"
)

// The engine's phases fill the span, and are 60 ns longer by what float64
// seconds cannot hold: that is kept, and is no contradiction.
func TestRoundingIsNoContradiction(t *testing.T) {
	got := run(Options{}, span("llm_request", at(0), at(3), "id", "a", "out", 9, "queue", 0.5, "ttft", 1.0, "prefill", 0.5, "decode", 2.00000006, "inference", 2.50000006, "e2e", 3.0))
	r := got.requests[0]
	b := r.Breakdown()
	if b.Inconsistent() || b.Outside != 60 || b.Of(trace.Decode) != 2e9 || len(r.Issues) > 0 {
		t.Errorf("inconsistent %v, %+v, %v", b.Inconsistent(), b, r.Issues)
	}
}
