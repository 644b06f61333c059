package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/traceview/traceview/trace"
)

// childNames are the names of the spans that stand for a phase.
var childNames = map[trace.Phase]string{
	trace.Arrival: "arrival", trace.Queueing: "queue", trace.Prefill: "prefill", trace.Decode: "decode",
	trace.Preempted: "preempted", trace.Completion: "completion", trace.Prefill | trace.Decode: "inference",
}

// ChildSpans writes requests as engines with a span a phase do: a server span
// llm_request with the children arrival, queue, prefill (or inference, where
// compute is not split), decode, preempted and completion. It covers all
// outcomes: a request that did not end well has status error, and the children
// that it got to; one that has not ended has no end.
func ChildSpans(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range rs {
		root := requestSpan(r, Scope, res.of(r.Service, r.Replica, nil))
		if r.Model != "" {
			root.Attrs = append(root.Attrs, text("gen_ai.response.model", r.Model))
		}
		if r.FinishReason != "" {
			root.Attrs = append(root.Attrs, trace.Attr{Key: "gen_ai.response.finish_reasons", Value: trace.JSONValue(`["` + r.FinishReason + `"]`)})
		}
		root.Attrs = append(append(root.Attrs, counts(r)...), r.Attrs...)
		root.Start, root.End = when(r.Arrival), when(r.Completed)
		if r.Outcome != trace.OK && r.Outcome != trace.Incomplete {
			root.Status, root.StatusMessage = trace.StatusError, r.Outcome.String()
		}
		spans = append(spans, root)
		for k, iv := range r.Intervals {
			spans = append(spans, &trace.Span{
				TraceID: r.TraceID, SpanID: childID(r, k+1), ParentID: r.SpanID,
				Name: childNames[iv.Phase], Kind: trace.KindInternal, Scope: Scope, Resource: root.Resource,
				Start: trace.Some(iv.Start), End: trace.Some(iv.End),
			})
		}
	}
	return spans
}

// VisibleChildSpans returns what [ChildSpans] lets be known: everything but
// that a request was rejected (its status is an error's).
func VisibleChildSpans(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		if v.Outcome == trace.Rejected {
			v.Outcome = trace.Error
		}
		if v.Outcome == trace.Incomplete {
			v.Completed = trace.Instant{}
		}
		if !slices.ContainsFunc(v.Intervals, func(iv trace.Interval) bool { return iv.Phase == trace.Preempted }) {
			v.Preemptions = trace.Opt[int]{}
		}
		return true
	})
}

// VLLM says how [V1] and [V0] write.
type VLLM struct {
	Scope string // empty: vllm.tracing.otel for V1, vllm.llm_engine for V0
	// Attrs: the request's own attributes stand on the span too. vLLM never
	// writes them; a collector's processor may.
	Attrs bool
}

// V1 writes requests as vLLM 0.11 and later do: one span llm_request for each
// that was served, its phases as attributes in float seconds. Queueing, prefill
// and decode are the engine's; preempted time is inside prefill or decode. The
// front end sees the first token half its time after the engine has it.
func V1(rs []*trace.Request, o VLLM) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		spans = append(spans, v1(r, o, res, r.Arrival.At, r.Completed.At, ""))
	}
	return spans
}

func v1(r *trace.Request, o VLLM, res resources, arrival, end trace.Time, parent string) *trace.Span {
	if o.Scope == "" {
		o.Scope = "vllm.tracing.otel"
	}
	process := []trace.Attr{text("telemetry.sdk.language", "python"), text("vllm.instrumenting_module_name", "vllm.llm_engine"), text("vllm.process_id", "1")}
	s := requestSpan(r, o.Scope, res.of(r.Service, r.Replica, process))
	s.ParentID = parent
	s.Start, s.End = trace.Some(wall(arrival)), trace.Some(end)
	late := end.Sub(r.LastToken.At) / 2 // from the engine to the front end
	queue, prefill, decode := engineTimes(r)
	s.Attrs = slices.Concat([]trace.Attr{
		seconds("gen_ai.latency.time_to_first_token", r.FirstToken.At.Add(late).Sub(arrival)),
		seconds("gen_ai.latency.e2e", r.LastToken.At.Add(late).Sub(arrival)),
		seconds("gen_ai.latency.time_in_queue", queue),
		seconds("gen_ai.latency.time_in_model_prefill", prefill),
		seconds("gen_ai.latency.time_in_model_decode", decode),
		seconds("gen_ai.latency.time_in_model_inference", prefill+decode),
	}, s.Attrs, counts(r), []trace.Attr{{Key: "gen_ai.request.top_p", Value: trace.FloatValue(1)}, {Key: "gen_ai.request.n", Value: trace.IntValue(1)}})
	if o.Attrs {
		s.Attrs = append(s.Attrs, r.Attrs...)
	}
	return s
}

// VisibleV1 returns what [V1] lets be known of the requests that it writes.
// Arrival carries the rounding of float seconds (up to half a microsecond), end
// none; queueing, prefill and decode are exact to the nanosecond; all else of
// the span is arrival|completion. Where on the axis the engine's phases lie is
// not known: here they begin at arrival, and what a reader says of their place
// is not to be compared.
func VisibleV1(rs []*trace.Request, o VLLM) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		chain(v, v.Arrival.At, v.Completed.At)
		v.Arrival.At = wall(v.Arrival.At)
		hide(v, o)
		return true
	})
}

// V0 writes requests as vLLM 0.5 to 0.10 do: the span begins when the engine
// takes the request up, and time in the queue, to the first token and e2e count
// from there. Only requests that were served have one.
func V0(rs []*trace.Request, o VLLM) []*trace.Span {
	if o.Scope == "" {
		o.Scope = "vllm.llm_engine"
	}
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		s := requestSpan(r, o.Scope, res.of(r.Service, r.Replica, []trace.Attr{text("telemetry.sdk.language", "python")}))
		s.Start, s.End = trace.Some(wall(r.Queued.At)), trace.Some(r.Completed.At)
		since := func(i trace.Instant) time.Duration { return i.At.Sub(r.Queued.At) }
		s.Attrs = slices.Concat([]trace.Attr{text("gen_ai.response.model", r.Model)}, s.Attrs, []trace.Attr{
			{Key: "gen_ai.request.temperature", Value: trace.FloatValue(0)}, {Key: "gen_ai.request.top_p", Value: trace.FloatValue(1)},
			{Key: "gen_ai.request.n", Value: trace.IntValue(1)}, {Key: "gen_ai.usage.num_sequences", Value: trace.IntValue(1)},
		}, counts(r), []trace.Attr{
			seconds("gen_ai.latency.time_in_queue", since(r.Scheduled)),
			seconds("gen_ai.latency.time_to_first_token", since(r.FirstToken)),
			seconds("gen_ai.latency.e2e", since(r.LastToken)),
		})
		if o.Attrs {
			s.Attrs = append(s.Attrs, r.Attrs...)
		}
		spans = append(spans, s)
	}
	return spans
}

// VisibleV0 returns what [V0] lets be known: as for V1, but from the queue on,
// on one clock, and with the time after the last token as completion.
func VisibleV0(rs []*trace.Request, o VLLM) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		queue, prefill, decode := engineTimes(v)
		start := wall(v.Queued.At)
		model := v.Model
		v.Arrival, v.Queued = trace.At(start, trace.Measured), trace.At(start, trace.Measured)
		v.Scheduled = trace.At(start.Add(queue), trace.Derived)
		v.FirstToken = trace.At(start.Add(queue+prefill), trace.Measured)
		v.LastToken = trace.At(start.Add(queue+prefill+decode), trace.Derived)
		v.Intervals = []trace.Interval{
			{Phase: trace.Queueing, Basis: trace.Measured, Start: start, End: v.Scheduled.At},
			{Phase: trace.Prefill, Basis: trace.Derived, Start: v.Scheduled.At, End: v.FirstToken.At},
			{Phase: trace.Decode, Basis: trace.Derived, Start: v.FirstToken.At, End: v.LastToken.At},
			{Phase: trace.Completion, Basis: trace.Measured, Start: v.LastToken.At, End: v.Completed.At},
		}
		hide(v, o)
		v.Model = model
		return true
	})
}

// Gateway writes requests that passed a gateway: its server span, with route,
// tenant and status, around V1's span, in front of which and behind which it
// takes half of the time outside the engine. Requests that were not served have
// the gateway's span alone, with an error status.
func Gateway(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range rs {
		status := map[trace.Outcome]int64{trace.OK: 200, trace.Error: 500, trace.Aborted: 499, trace.Rejected: 400}[r.Outcome]
		g := &trace.Span{
			TraceID: r.TraceID, SpanID: childID(r, 0), Name: "POST /v1/completions", Kind: trace.KindServer, Scope: "gateway",
			Resource: res.of("gateway", "gateway-0", nil), Start: when(r.Arrival), End: when(r.Completed),
			Attrs: append([]trace.Attr{text("http.route", "/v1/completions"), {Key: "http.response.status_code", Value: trace.IntValue(status)}}, r.Attrs...),
		}
		if r.Outcome != trace.OK {
			g.Status, g.StatusMessage = trace.StatusError, r.Outcome.String()
		}
		if r.Outcome == trace.OK {
			from, to := inside(r)
			spans = append(spans, v1(r, VLLM{}, res, from, to, g.SpanID))
		}
		spans = append(spans, g)
	}
	return spans
}

// inside is the stretch of the engine's span within the gateway's.
func inside(r *trace.Request) (from, to trace.Time) {
	return r.Arrival.At.Add(r.Queued.At.Sub(r.Arrival.At) / 2), r.Completed.At.Add(-r.Completed.At.Sub(r.LastToken.At) / 2)
}

// VisibleGateway returns what [Gateway] lets be known: of a request that was
// served, arrival and completion outside the engine's span, its phases as for
// V1, and arrival|completion for the rest of the engine's span. Of the others
// the length alone, their outcome and attributes. It takes some time outside
// the engine to tell which span is within which: more than the microsecond that
// float seconds lose.
func VisibleGateway(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		v.SetAttr("http.route", trace.StringValue("/v1/completions"))
		attrs := v.Attrs
		if v.Outcome != trace.OK {
			*v = trace.Request{
				TraceID: v.TraceID, SpanID: childID(v, 0), Service: "gateway", Replica: "gateway-0", Clock: trace.ClockUnix, Resolution: 1,
				Arrival: v.Arrival, Completed: v.Completed, Outcome: v.Outcome, Attrs: attrs,
			}
			return true
		}
		from, to := inside(v)
		chain(v, from, to)
		hide(v, VLLM{})
		v.Attrs = attrs
		v.Intervals = append(v.Intervals,
			trace.Interval{Phase: trace.Arrival, Basis: trace.Measured, Start: v.Arrival.At, End: wall(from)},
			trace.Interval{Phase: trace.Completion, Basis: trace.Measured, Start: to, End: v.Completed.At})
		return true
	})
}

// Unknown writes requests as a server that nobody knows: a server span for
// each, without phases.
func Unknown(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range rs {
		s := &trace.Span{
			TraceID: r.TraceID, SpanID: r.SpanID, Name: "generate", Kind: trace.KindServer, Scope: "someone.else",
			Resource: res.of(r.Service, r.Replica, nil), Start: when(r.Arrival), End: when(r.Completed), Attrs: slices.Clone(r.Attrs),
		}
		if r.Outcome != trace.OK && r.Outcome != trace.Incomplete {
			s.Status, s.StatusMessage = trace.StatusError, r.Outcome.String()
		}
		spans = append(spans, s)
	}
	return spans
}

// VisibleUnknown returns what [Unknown] lets be known: length, outcome (rejected
// looks like an error) and attributes; all time is unattributed.
func VisibleUnknown(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		*v = trace.Request{
			TraceID: v.TraceID, SpanID: v.SpanID, Service: v.Service, Replica: v.Replica, Clock: trace.ClockUnix, Resolution: 1,
			Arrival: v.Arrival, Completed: v.Completed, Outcome: v.Outcome, Attrs: v.Attrs,
		}
		if v.Outcome == trace.Rejected {
			v.Outcome = trace.Error
		}
		return true
	})
}

// The Visible functions list in Attrs what spans say of a request. A reader may
// add what resources say.

// visible applies f to copies of rs and keeps those for which it is true.
func visible(rs []*trace.Request, f func(*trace.Request) bool) []*trace.Request {
	var vs []*trace.Request
	for _, r := range rs {
		v := *r
		v.Intervals, v.Attrs = slices.Clone(r.Intervals), slices.Clone(r.Attrs)
		v.Cached = trace.Opt[int]{} // no span tells it
		if f(&v) {
			vs = append(vs, &v)
		}
	}
	return vs
}

// served returns the requests for which vLLM writes a span.
func served(rs []*trace.Request) []*trace.Request {
	return slices.DeleteFunc(slices.Clone(rs), func(r *trace.Request) bool { return r.Outcome != trace.OK })
}

// engineTimes are the phases as vLLM has them, preempted time inside.
func engineTimes(r *trace.Request) (queue, prefill, decode time.Duration) {
	return r.Scheduled.At.Sub(r.Queued.At), r.FirstToken.At.Sub(r.Scheduled.At), r.LastToken.At.Sub(r.FirstToken.At)
}

// chain replaces v's intervals by what V1's span, from from to to, tells.
func chain(v *trace.Request, from, to trace.Time) {
	queue, prefill, decode := engineTimes(v)
	late := to.Sub(v.LastToken.At) / 2
	start := wall(from)
	a, b, c := start.Add(queue), start.Add(queue+prefill), start.Add(queue+prefill+decode)
	v.FirstToken = trace.At(start.Add(v.FirstToken.At.Add(late).Sub(from)), trace.Measured)
	v.Intervals = []trace.Interval{
		{Phase: trace.Queueing, Basis: trace.Derived, Start: start, End: a},
		{Phase: trace.Prefill, Basis: trace.Derived, Start: a, End: b},
		{Phase: trace.Decode, Basis: trace.Derived, Start: b, End: c},
		{Phase: trace.Arrival | trace.Completion, Basis: trace.Derived, Start: c, End: to},
	}
	v.Queued, v.Scheduled, v.LastToken = trace.At(start, trace.Derived), trace.At(a, trace.Derived), trace.At(c, trace.Derived)
}

// hide removes from v what vLLM's spans never tell.
func hide(v *trace.Request, o VLLM) {
	v.Model, v.FinishReason, v.Preemptions = "", "", trace.Opt[int]{}
	if !o.Attrs {
		v.Attrs = nil
	}
}

// requestSpan starts a server span llm_request for r.
func requestSpan(r *trace.Request, scope string, res *trace.Resource) *trace.Span {
	return &trace.Span{
		TraceID: r.TraceID, SpanID: r.SpanID, Name: "llm_request", Kind: trace.KindServer, Scope: scope, Resource: res,
		Attrs: []trace.Attr{text("gen_ai.request.id", r.ID)},
	}
}

// counts lists the token counts that r has.
func counts(r *trace.Request) []trace.Attr {
	var attrs []trace.Attr
	for _, c := range []struct {
		key string
		n   trace.Opt[int]
	}{
		{"gen_ai.request.max_tokens", r.MaxTokens},
		{"gen_ai.usage.prompt_tokens", r.Input},
		{"gen_ai.usage.completion_tokens", r.Output},
	} {
		if n, ok := c.n.Get(); ok {
			attrs = append(attrs, trace.Attr{Key: c.key, Value: trace.IntValue(int64(n))})
		}
	}
	return attrs
}

func text(key, value string) trace.Attr { return trace.Attr{Key: key, Value: trace.StringValue(value)} }

// seconds writes d as float seconds. Below 52 days nothing is lost by that, to
// one who rounds to nanoseconds.
func seconds(key string, d time.Duration) trace.Attr {
	return trace.Attr{Key: key, Value: trace.FloatValue(float64(d) / 1e9)}
}

// wall is an instant as vLLM writes it: float seconds since the epoch, turned
// into nanoseconds. Some two hundred nanoseconds are lost.
func wall(t trace.Time) trace.Time { return trace.Time(float64(t) / 1e9 * 1e9) }

func when(i trace.Instant) trace.Opt[trace.Time] {
	if t, ok := i.Get(); ok {
		return trace.Some(t)
	}
	return trace.Opt[trace.Time]{}
}

// childID is the id of r's k-th span beside its own.
func childID(r *trace.Request, k int) string {
	n, _ := strconv.ParseUint(r.SpanID, 16, 64)
	return spanID(n, 0, k)
}

// resources keeps one resource for each process.
type resources map[[2]string]*trace.Resource

func (rs resources) of(service, instance string, more []trace.Attr) *trace.Resource {
	key := [2]string{service, instance}
	if res := rs[key]; res != nil {
		return res
	}
	res := &trace.Resource{}
	if service != "" {
		res.Attrs = append(res.Attrs, text("service.name", service))
	}
	if instance != "" {
		res.Attrs = append(res.Attrs, text("service.instance.id", instance))
	}
	res.Attrs = append(res.Attrs, more...)
	rs[key] = res
	return res
}
