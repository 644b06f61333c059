package engine

import "github.com/traceview/traceview/trace"

// A span of an engine that is not recognised still tells how long the request
// took. All of that time stays unattributed.

// readLatency reads latency attributes on a span of an unknown writer with the
// widest set that is true of all who use these keys: prefill may hold the
// queue, and time in the queue is not placed apart from it.
func readLatency(r *trace.Request, d durations, tokens bool) {
	if d.prefill.Present() || d.decode.Present() || d.inference.Present() {
		readDispatched(r, d, tokens, trace.Queueing|trace.Prefill)
		return
	}
	readV0(r, d, tokens)
}
