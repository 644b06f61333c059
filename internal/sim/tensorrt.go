package sim

import (
	"slices"

	"github.com/traceview/traceview/trace"
)

// TensorRT writes requests as TensorRT-LLM does: llm_request with the time in
// the queue, to the first token and e2e, from the engine's arrival; its start is
// its end less e2e, so that all of it lies late by half of what follows the last
// token. Only requests that were served have one.
func TensorRT(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		s := requestSpan(r, "trt.llm", res.of(r.Service, r.Replica, nil))
		late := r.Completed.At.Sub(r.LastToken.At) / 2
		s.Start, s.End = trace.Some(r.Queued.At.Add(late)), trace.Some(r.LastToken.At.Add(late))
		s.Attrs = slices.Concat(s.Attrs, counts(r), []trace.Attr{
			seconds("gen_ai.latency.time_in_queue", r.Scheduled.At.Sub(r.Queued.At)),
			seconds("gen_ai.latency.time_to_first_token", r.FirstToken.At.Sub(r.Queued.At)),
			seconds("gen_ai.latency.e2e", r.LastToken.At.Sub(r.Queued.At)),
		})
		spans = append(spans, s)
	}
	return spans
}

// VisibleTensorRT returns what [TensorRT] lets be known: the engine's phases,
// all shifted.
func VisibleTensorRT(rs []*trace.Request) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		late := v.Completed.At.Sub(v.LastToken.At) / 2
		queue, prefill, decode := engineTimes(v)
		a := v.Queued.At.Add(late)
		v.Arrival, v.FirstToken.At, v.Completed.At = trace.At(a, trace.Derived), v.FirstToken.At.Add(late), v.LastToken.At.Add(late)
		v.Intervals = []trace.Interval{
			{Phase: trace.Queueing, Basis: trace.Measured, Start: a, End: a.Add(queue)},
			{Phase: trace.Prefill, Basis: trace.Derived, Start: a.Add(queue), End: a.Add(queue + prefill)},
			{Phase: trace.Decode, Basis: trace.Derived, Start: a.Add(queue + prefill), End: a.Add(queue + prefill + decode)},
		}
		hide(v, VLLM{})
		return true
	})
}
