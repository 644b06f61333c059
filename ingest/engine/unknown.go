package engine

import "github.com/traceview/traceview/trace"

// A span of an engine that is not recognised still tells how long the request
// took. All of that time stays unattributed.

// readLatency reads latency attributes on a span of an unknown writer with the
// widest set that is true of all who use these keys. Who writes prefill without
// a time in the queue may mean both together by it. Who writes neither, counts
// from arrival.
func readLatency(r *trace.Request, d durations, tokens bool) {
	switch {
	case !d.prefill.Present() && !d.decode.Present() && !d.inference.Present():
		readV0(r, d, tokens)
	case d.queue.Present():
		readV1(r, d, tokens)
	default:
		readDispatched(r, d, tokens)
	}
}
