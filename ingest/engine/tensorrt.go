package engine

import (
	"time"

	"github.com/traceview/traceview/trace"
)

// TensorRT-LLM (llmapi/otel_tracing.py, executor/result.py) writes llm_request
// with the keys of vLLM V0, for the same intervals, all on one clock:
//
//	time_in_queue        first scheduled − arrival
//	time_to_first_token  first token − arrival
//	e2e                  last token − arrival
//
// −1 stands for absent, and for zero too. The span's start is its end less e2e,
// taken when the span is written: it lies late by the post-processing, and where
// e2e is −1, one second after the end. Not told: the model, often the prompt's
// tokens, what came after the last token. Its disaggregated server marks the
// transfer of the KV cache by events on its own span.

const tensorrtScope = "trt.llm"

func readTensorRT(r *trace.Request, n *node, d durations, tokens bool) {
	if z, ok := n.rawEnd.Get(); ok && r.Arrival.Present() && r.Arrival.At.Sub(z) == time.Second && !d.e2e.Present() {
		r.Arrival, r.Completed = trace.Instant{}, trace.At(z, trace.Measured)
		return
	}
	readV0(r, d, tokens)
	if r.Arrival.Present() {
		r.Arrival.Basis = trace.Derived
	}
	if r.Queued.Present() {
		r.Queued.Basis = trace.Derived
	}
}

// readTransfers claims what a disaggregated server's span says of the KV cache.
func readTransfers(r *trace.Request, outers []*node) {
	for _, o := range outers {
		var from trace.Time
		open := false
		for _, m := range o.marks {
			switch {
			case m.what == transferMark:
				from, open = m.at, true
			case m.what == transferredMark && open && m.at > from:
				claimAll(r, trace.Transfer, trace.Measured, []stretch{{from, m.at}})
				open = false
			}
		}
	}
}
