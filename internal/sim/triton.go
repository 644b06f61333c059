package sim

import "github.com/traceview/traceview/trace"

// stages is a span with events.
func stages(s *trace.Span, pairs ...any) *trace.Span {
	for i := 0; i < len(pairs); i += 2 {
		s.Events = append(s.Events, trace.Event{Name: pairs[i].(string), At: trace.Some(pairs[i+1].(trace.Time))})
	}
	return s
}

// Triton writes requests as Triton does in mode=opentelemetry: InferRequest, a
// span named as the model and compute, whose times are events. A request that
// left its queue has no compute; of others that did not end well there is no
// trace.
func Triton(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for i, r := range rs {
		if r.Outcome != trace.OK && (r.Outcome != trace.Aborted || r.Scheduled.Present()) {
			continue
		}
		span := func(k int, parent, name string, from, to trace.Time, attrs ...trace.Attr) *trace.Span {
			s := &trace.Span{
				TraceID: r.TraceID, SpanID: childID(r, k), ParentID: parent, Name: name, Kind: trace.KindServer, Scope: "triton-server",
				Resource: res.of("triton-inference-server", r.Replica, nil), Start: trace.Some(from), End: trace.Some(to), Attrs: attrs,
			}
			spans = append(spans, s)
			return s
		}
		mid := r.Arrival.At.Add(r.Queued.At.Sub(r.Arrival.At) / 2)
		// It begins when sampling has been decided, after the receipt.
		root := stages(span(0, "", "InferRequest", mid, r.Completed.At), "HTTP_RECV_START", r.Arrival.At, "HTTP_RECV_END", mid, "HTTP_SEND_END", r.Completed.At)
		end := r.Completed.At
		if r.Outcome == trace.OK {
			end = r.LastToken.At.Add(end.Sub(r.LastToken.At) / 2)
		}
		m := stages(span(1, root.SpanID, r.Model, mid, end, text("triton.model_name", r.Model), trace.Attr{Key: "triton.model_version", Value: trace.IntValue(1)},
			trace.Attr{Key: "triton.trace_id", Value: trace.IntValue(int64(i + 1))}, trace.Attr{Key: "triton.trace_parent_id", Value: trace.IntValue(0)},
			text("triton.request_id", r.ID)), "REQUEST_START", mid, "QUEUE_START", r.Queued.At, "REQUEST_END", end)
		m.SpanID = r.SpanID
		if r.Outcome == trace.OK {
			stages(span(2, m.SpanID, "compute", r.Scheduled.At, r.LastToken.At), "COMPUTE_START", r.Scheduled.At, "COMPUTE_INPUT_END", r.Scheduled.At,
				"COMPUTE_OUTPUT_START", r.LastToken.At, "COMPUTE_END", r.LastToken.At)
		}
	}
	return spans
}

// VisibleTriton returns what [Triton] lets be known: arrival, queueing, compute
// that is prefill or decode, completion.
func VisibleTriton(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		if v.Outcome != trace.OK && (v.Outcome != trace.Aborted || v.Scheduled.Present()) {
			return false
		}
		wait := trace.Interval{Phase: trace.Queueing, Basis: trace.Measured, Start: v.Queued.At, End: v.Completed.At}
		v.Intervals = []trace.Interval{{Phase: trace.Arrival, Basis: trace.Measured, Start: v.Arrival.At, End: v.Queued.At}}
		if v.Outcome == trace.OK {
			wait.End = v.Scheduled.At
			v.Intervals = append(v.Intervals, trace.Interval{Phase: trace.Prefill | trace.Decode, Basis: trace.Measured, Start: v.Scheduled.At, End: v.LastToken.At},
				trace.Interval{Phase: trace.Completion, Basis: trace.Measured, Start: v.LastToken.At, End: v.Completed.At})
		}
		v.Intervals = append(v.Intervals, wait)
		v.Service, v.FinishReason = "triton-inference-server", ""
		onlyTimes(v)
		return true
	})
}

// onlyTimes removes what engines that count no tokens do not tell.
func onlyTimes(v *trace.Request) {
	none := trace.Opt[int]{}
	v.Input, v.Output, v.MaxTokens, v.Preemptions, v.Attrs = none, none, none, none, nil
	v.FirstToken = trace.Instant{}
}
