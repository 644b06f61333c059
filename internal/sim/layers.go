package sim

import (
	"slices"
	"time"

	"github.com/traceview/traceview/trace"
)

// layer starts a span of one layer of r's trace.
func layer(r *trace.Request, k int, parent, name string, kind trace.SpanKind, res *trace.Resource, from, to trace.Time, attrs ...trace.Attr) *trace.Span {
	return &trace.Span{
		TraceID: r.TraceID, SpanID: childID(r, k), ParentID: parent, Name: name, Kind: kind, Scope: "", Resource: res,
		Start: trace.Some(from), End: trace.Some(to), Attrs: attrs,
	}
}

// part is the instant k n-ths of the way from a to z.
func part(a, z trace.Time, k, n time.Duration) trace.Time { return a.Add(z.Sub(a) * k / n) }

// Dynamo writes requests as NVIDIA Dynamo does, without spans of its engines: the
// frontend's http-request with the time to the first token, the route, and the
// worker's handle_payload, which has the request from its queue to its last
// token. Only requests that were served have one.
func Dynamo(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		front, work := res.of("dynamo-frontend", "frontend-0", nil), res.of("dynamo-worker", r.Replica, nil)
		a, q := r.Arrival.At, r.Queued.At
		root := layer(r, 0, "", "http-request", trace.KindInternal, front, a, r.Completed.At,
			text("method", "POST"), text("uri", "/v1/chat/completions"), trace.Attr{Key: "ttft_ms", Value: trace.FloatValue(float64(r.FirstToken.At.Sub(a)) / 1e6)})
		route := layer(r, 2, root.SpanID, "kv_router.route_request", trace.KindClient, front, part(a, q, 2, 3), r.Completed.At, text("phase", "Aggregated"))
		load := layer(r, 3, route.SpanID, "handle_payload", trace.KindServer, work, q, r.LastToken.At, append([]trace.Attr{
			text("component", "backend"), text("endpoint", "generate"), text("gen_ai.request.id", r.ID), text("gen_ai.response.model", r.Model)}, counts(r)...)...)
		load.SpanID = r.SpanID
		spans = append(spans, root, layer(r, 1, root.SpanID, "kv_router.select_worker", trace.KindInternal, front, part(a, q, 1, 3), part(a, q, 2, 3)), route, load)
	}
	return spans
}

// VisibleDynamo returns what [Dynamo] lets be known: the wait for a worker is
// arrival or queueing, the worker's time before the first token queueing or
// prefill.
func VisibleDynamo(rs []*trace.Request) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		gate := part(v.Arrival.At, v.Queued.At, 1, 3)
		v.Intervals = []trace.Interval{
			{Phase: trace.Arrival, Basis: trace.Measured, Start: v.Arrival.At, End: gate},
			{Phase: trace.Arrival | trace.Queueing, Basis: trace.Derived, Start: gate, End: v.Queued.At},
			{Phase: trace.Queueing | trace.Prefill, Basis: trace.Derived, Start: v.Queued.At, End: v.FirstToken.At},
			{Phase: trace.Decode, Basis: trace.Derived, Start: v.FirstToken.At, End: v.LastToken.At},
			{Phase: trace.Completion, Basis: trace.Measured, Start: v.LastToken.At, End: v.Completed.At},
		}
		model := v.Model
		hide(v, VLLM{})
		v.Model, v.Service = model, "dynamo-worker"
		return true
	})
}

// halve makes requests run on two engines: after the first token the cache is
// on its way for an eighth of the decoding, and the request waits for a
// sixteenth more, so that the caller has the first token then. Only requests
// that were served, were never pushed back and have more than one token stay.
func halve(rs []*trace.Request) []*trace.Request {
	var out []*trace.Request
	for _, r := range served(rs) {
		if r.Preemptions.Or(0) > 0 || r.LastToken.At.Sub(r.FirstToken.At) < time.Millisecond {
			continue
		}
		v := *r
		moved, ready := part(r.FirstToken.At, r.LastToken.At, 2, 16), part(r.FirstToken.At, r.LastToken.At, 3, 16)
		v.Intervals = []trace.Interval{
			{Phase: trace.Arrival, Basis: trace.Measured, Start: r.Arrival.At, End: r.Queued.At},
			{Phase: trace.Queueing, Basis: trace.Measured, Start: r.Queued.At, End: r.Scheduled.At},
			{Phase: trace.Prefill, Basis: trace.Measured, Start: r.Scheduled.At, End: r.FirstToken.At},
			{Phase: trace.Transfer, Basis: trace.Measured, Start: r.FirstToken.At, End: moved},
			{Phase: trace.Queueing, Basis: trace.Measured, Start: moved, End: ready},
			{Phase: trace.Decode, Basis: trace.Measured, Start: ready, End: r.LastToken.At},
			{Phase: trace.Completion, Basis: trace.Measured, Start: r.LastToken.At, End: r.Completed.At},
		}
		v.FirstToken.At = ready
		out = append(out, &v)
	}
	return out
}

// SGLangHalves writes requests as SGLang does where prefill and decode run on
// two engines: two requests, each in a trace of its own, that share a bootstrap
// room and both begin with the request.
func SGLangHalves(rs []*trace.Request) []*trace.Span {
	res := &trace.Resource{Attrs: []trace.Attr{text("service.name", "sglang")}}
	var spans []*trace.Span
	for _, r := range halve(rs) {
		done, moved, ready := r.Intervals[2].End, r.Intervals[3].End, r.Intervals[4].End
		q, s := r.Queued.At, r.Scheduled.At
		room := text("bootstrap_room", "0x"+childID(r, 99))
		mid := part(r.Arrival.At, q, 1, 2)

		w := &sglang{res: res, traceID: "0000000000000000" + childID(r, 98), seed: r}
		root := w.span("", "prefill Req "+r.ID[:min(8, len(r.ID))], r.Arrival.At, moved.Add(time.Microsecond), text("rid", r.ID), room)
		w.arrives(root, r, "Prefill ", "dispatch")
		th := w.thread(root.SpanID, "Prefill Scheduler", 0, sglangPID(r.Replica, 50), mid, moved.Add(time.Microsecond))
		w.span(th.SpanID, "prefill_prepare", mid, q)
		w.span(th.SpanID, "prefill_bootstrap", q, part(q, s, 1, 4))
		w.span(th.SpanID, "prefill_waiting", part(q, s, 1, 4), s)
		w.span(th.SpanID, "prefill_forward", s, done)
		w.span(th.SpanID, "prefill_transfer_kv_cache", done, moved.Add(time.Microsecond))
		spans = append(spans, w.spans...)

		w = &sglang{res: res, traceID: r.TraceID, seed: r, next: 50}
		root = w.span("", "decode Req "+r.ID[:min(8, len(r.ID))], r.Arrival.At, r.Completed.At, text("rid", r.ID), room)
		root.SpanID = r.SpanID
		root.Attrs = append(root.Attrs, sglangCounts(r)...)
		w.arrives(root, r, "Decode ", "dispatch")
		th = w.thread(root.SpanID, "Decode Scheduler", 0, sglangPID(r.Replica, 0), mid, r.Completed.At)
		w.span(th.SpanID, "decode_prepare", mid, q)
		w.span(th.SpanID, "decode_bootstrap", q, part(q, s, 1, 2))
		w.span(th.SpanID, "decode_transferred", part(q, s, 1, 2), moved)
		w.span(th.SpanID, "decode_waiting", moved, ready)
		w.span(th.SpanID, "decode_forward", ready, r.LastToken.At)
		spans = append(spans, w.spans...)
	}
	return spans
}

// VisibleSGLangHalves returns what [SGLangHalves] lets be known: all of it.
func VisibleSGLangHalves(rs []*trace.Request) []*trace.Request { return VisibleSGLang(halve(rs)) }

// LLMD writes requests as llm-d does around two vLLM: the endpoint picker's
// gateway.request with its flow control, the proxy's forward_request, its two
// calls, and V1's spans below these. The decode engine's queue is where it
// waits for the cache; what it computes before its first token is its prefill.
func LLMD(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range halve(rs) {
		t := llmdTimes(r)
		epp, proxy := res.of("epp", "epp-0", nil), res.of("llm-d-proxy", r.Replica+"-proxy", nil)
		root := layer(r, 0, "", "gateway.request", trace.KindServer, epp, r.Arrival.At, r.Completed.At)
		orch := layer(r, 1, root.SpanID, "gateway.request_orchestration", trace.KindServer, epp, t.control, t.picked, text("target_model", r.Model))
		pick := layer(r, 2, orch.SpanID, "run_scheduler_profile", trace.KindInternal, epp, t.pick, t.picked, text("llm_d.epp.scheduling.profile.name", "decode"))
		fwd := layer(r, 3, root.SpanID, "forward_request", trace.KindServer, proxy, t.forward, r.Completed.At, text("llm_d.pd_proxy.connector", "nixlv2"))
		pre := layer(r, 4, fwd.SpanID, "prefill", trace.KindInternal, proxy, t.forward, t.answered, text("llm_d.pd_proxy.request_id", r.ID))
		dec := layer(r, 5, pre.SpanID, "decode", trace.KindInternal, proxy, t.answered, r.Completed.At, text("llm_d.pd_proxy.request_id", r.ID))
		engine := func(k int, parent *trace.Span, instance string, from, to trace.Time, queue, prefill, decode time.Duration, tokens ...trace.Attr) *trace.Span {
			s := layer(r, k, parent.SpanID, "llm_request", trace.KindServer, res.of(r.Service, instance, nil), from, to, slices.Concat([]trace.Attr{
				text("gen_ai.request.id", "cmpl-"+r.ID),
				seconds("gen_ai.latency.time_in_queue", queue), seconds("gen_ai.latency.time_in_model_prefill", prefill),
				seconds("gen_ai.latency.time_in_model_decode", decode), seconds("gen_ai.latency.time_in_model_inference", prefill+decode),
			}, tokens)...)
			s.Scope = "vllm.tracing.otel"
			return s
		}
		one := func(key string) trace.Attr { return trace.Attr{Key: key, Value: trace.IntValue(1)} }
		p := engine(6, pre, r.Replica+"-prefill", t.forward, t.answered, r.Scheduled.At.Sub(r.Queued.At), t.done.Sub(r.Scheduled.At), 0,
			one("gen_ai.request.max_tokens"), one("gen_ai.usage.completion_tokens"), trace.Attr{Key: "gen_ai.usage.prompt_tokens", Value: trace.IntValue(int64(r.Input.Or(0)))})
		d := engine(7, dec, r.Replica, t.answered, t.sent, t.moved.Sub(t.answered), t.ready.Sub(t.moved), r.LastToken.At.Sub(t.ready), append(counts(r),
			seconds("gen_ai.latency.time_to_first_token", t.ready.Sub(t.answered)))...)
		d.SpanID = r.SpanID
		spans = append(spans, root, orch, pick, fwd, pre, dec, p, d)
	}
	return spans
}

// llmdMoments are the instants of a request behind llm-d.
type llmdMoments struct {
	control, pick, picked, forward trace.Time // before the engines: a quarter of the arrival each
	done, answered                 trace.Time // the prompt, and the prefill engine's answer
	moved, ready                   trace.Time
	sent                           trace.Time // the decode engine's end
}

func llmdTimes(r *trace.Request) llmdMoments {
	a, q := r.Arrival.At, r.Queued.At
	done, moved := r.Intervals[2].End, r.Intervals[3].End
	return llmdMoments{
		control: part(a, q, 1, 5), pick: part(a, q, 2, 5), picked: part(a, q, 3, 5), forward: part(a, q, 4, 5),
		done: done, answered: part(done, moved, 1, 2), moved: moved, ready: r.Intervals[4].End,
		sent: part(r.LastToken.At, r.Completed.At, 1, 2),
	}
}

// VisibleLLMD returns what [LLMD] lets be known: flow control is queueing, the
// decode engine's queue queueing or transfer.
func VisibleLLMD(rs []*trace.Request) []*trace.Request {
	return visible(halve(rs), func(v *trace.Request) bool {
		t := llmdTimes(v)
		at := trace.Time(0)
		var ivs []trace.Interval
		claim := func(p trace.Phase, to trace.Time) {
			ivs = append(ivs, trace.Interval{Phase: p, Basis: trace.Derived, Start: at, End: to})
			at = to
		}
		at = v.Arrival.At
		claim(trace.Arrival, t.control)
		claim(trace.Queueing, t.pick)
		claim(trace.Arrival, t.forward)
		claim(trace.Arrival|trace.Completion, v.Queued.At)
		claim(trace.Queueing, v.Scheduled.At)
		claim(trace.Prefill, t.done)
		claim(trace.Arrival|trace.Completion, t.answered)
		claim(trace.Queueing|trace.Transfer, t.moved)
		claim(trace.Prefill, t.ready)
		claim(trace.Decode, v.LastToken.At)
		claim(trace.Arrival|trace.Completion, t.sent)
		claim(trace.Completion, v.Completed.At)
		id, limit := "cmpl-"+v.ID, v.MaxTokens
		hide(v, VLLM{})
		v.Intervals, v.ID, v.MaxTokens = ivs, id, limit
		return true
	})
}

// Clients writes requests as callers see them, by OpenTelemetry's conventions
// for generative AI: a span "chat MODEL" with the time to the first chunk.
func Clients(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range rs {
		s := layer(r, 0, "", "chat "+r.Model, trace.KindClient, res.of("app", "app-0", nil), r.Arrival.At, r.Completed.At,
			text("gen_ai.operation.name", "chat"), text("gen_ai.provider.name", "openai"), text("gen_ai.request.model", r.Model), text("gen_ai.response.id", r.ID))
		s.SpanID, s.Scope = r.SpanID, "opentelemetry.instrumentation.openai_v2"
		switch {
		case r.Outcome != trace.OK:
			s.Status = trace.StatusError
			s.Attrs = append(s.Attrs, text("error.type", map[trace.Outcome]string{trace.Aborted: "asyncio.CancelledError", trace.Rejected: "BadRequestError"}[r.Outcome]))
		default:
			s.Attrs = append(append(s.Attrs, counts(r)...), seconds("gen_ai.response.time_to_first_chunk", r.FirstToken.At.Sub(r.Arrival.At)))
		}
		spans = append(spans, s)
	}
	return spans
}

// VisibleClients returns what [Clients] lets be known: length, first token and
// outcome (rejected looks like an error); all time is unattributed.
func VisibleClients(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		v.Intervals, v.Attrs, v.FinishReason, v.Preemptions = nil, nil, "", trace.Opt[int]{}
		if v.Outcome != trace.OK {
			none := trace.Opt[int]{}
			v.FirstToken, v.Input, v.Output, v.MaxTokens = trace.Instant{}, none, none, none
		}
		if v.Outcome == trace.Rejected {
			v.Outcome = trace.Error
		}
		v.Service, v.Replica = "app", "app-0"
		return true
	})
}

// Instrumented writes requests as "opentelemetry-instrument vllm serve" does: the
// HTTP server's span beside V1's, both below a caller's span that is not in the
// input. Only requests that were served are there.
func Instrumented(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		from, to := inside(r)
		caller := childID(r, 9)
		s := layer(r, 0, caller, "POST /v1/completions", trace.KindServer, res.of(r.Service, r.Replica, nil), r.Arrival.At, r.Completed.At,
			append([]trace.Attr{text("http.route", "/v1/completions")}, r.Attrs...)...)
		s.Scope = "opentelemetry.instrumentation.fastapi"
		spans = append(spans, v1(r, VLLM{}, res, from, to, caller), s)
	}
	return spans
}

// VisibleInstrumented returns what [Instrumented] lets be known: as for Gateway.
func VisibleInstrumented(rs []*trace.Request) []*trace.Request { return VisibleGateway(served(rs)) }

// RayServe writes requests as Ray Serve does around V1: the proxy's span, its
// route to a replica, and the replica's, for which the request waits.
func RayServe(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		from, to := inside(r)
		ray := res.of("ray-serve", "proxy-0", nil)
		proxy := layer(r, 0, "", "proxy_http_request", trace.KindServer, ray, r.Arrival.At, r.Completed.At)
		route := layer(r, 2, proxy.SpanID, "proxy_route_to_replica", trace.KindServer, ray, part(r.Arrival.At, from, 1, 4), r.Completed.At)
		replica := layer(r, 3, route.SpanID, "handle_request_streaming", trace.KindInternal, ray, part(r.Arrival.At, from, 3, 4), r.Completed.At)
		spans = append(spans, proxy, route, replica, v1(r, VLLM{}, res, from, to, replica.SpanID))
	}
	return spans
}

// VisibleRayServe returns what [RayServe] lets be known: as for Gateway, and the
// wait for the replica.
func VisibleRayServe(rs []*trace.Request) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		a := v.Arrival.At
		from, to := inside(v)
		chain(v, from, to)
		hide(v, VLLM{})
		v.Intervals = append(v.Intervals,
			trace.Interval{Phase: trace.Arrival, Basis: trace.Measured, Start: a, End: part(a, from, 1, 4)},
			trace.Interval{Phase: trace.Queueing, Basis: trace.Derived, Start: part(a, from, 1, 4), End: part(a, from, 3, 4)},
			trace.Interval{Phase: trace.Arrival, Basis: trace.Measured, Start: part(a, from, 3, 4), End: wall(from)},
			trace.Interval{Phase: trace.Completion, Basis: trace.Measured, Start: to, End: v.Completed.At})
		return true
	})
}

// LiteLLM writes requests as LiteLLM's proxy does (second generation): the
// server's span, and the call below it with the time to the first chunk. Only
// requests that were served are there.
func LiteLLM(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		from, to := inside(r)
		proxy := res.of("litellm-proxy", "litellm-0", nil)
		s := layer(r, 0, "", "POST /v1/chat/completions", trace.KindServer, proxy, r.Arrival.At, r.Completed.At, text("http.route", "/v1/chat/completions"))
		call := layer(r, 1, s.SpanID, "chat "+r.Model, trace.KindClient, proxy, from, to, append([]trace.Attr{
			text("gen_ai.operation.name", "chat"), text("gen_ai.request.model", r.Model), text("gen_ai.response.id", r.ID), text("litellm.call_id", r.ID),
			seconds("gen_ai.response.time_to_first_chunk", r.FirstToken.At.Sub(from))}, counts(r)...)...)
		call.SpanID = r.SpanID
		spans = append(spans, s, layer(r, 2, s.SpanID, "auth /v1/chat/completions", trace.KindInternal, proxy, r.Arrival.At, part(r.Arrival.At, from, 1, 2)), call)
	}
	return spans
}

// VisibleLiteLLM returns what [LiteLLM] lets be known: the proxy's own time
// before and after the call, and the first token as it saw it.
func VisibleLiteLLM(rs []*trace.Request) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		from, to := inside(v)
		v.Intervals = []trace.Interval{
			{Phase: trace.Arrival, Basis: trace.Measured, Start: v.Arrival.At, End: from},
			{Phase: trace.Completion, Basis: trace.Measured, Start: to, End: v.Completed.At},
		}
		model := v.Model
		hide(v, VLLM{})
		v.Model, v.Service, v.Replica = model, "litellm-proxy", "litellm-0"
		return true
	})
}

// Envoy writes requests as Envoy AI Gateway does, by OpenInference's
// conventions; its event of the first token comes with the last. Only requests
// that were served are there.
func Envoy(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range served(rs) {
		s := layer(r, 0, "", "ChatCompletion", trace.KindInternal, res.of("ai-gateway-extproc", "envoy-0", nil), r.Arrival.At, r.Completed.At,
			text("openinference.span.kind", "LLM"), text("llm.system", "openai"), text("gen_ai.request.model", r.Model), text("gen_ai.response.id", r.ID),
			trace.Attr{Key: "llm.token_count.prompt", Value: trace.IntValue(int64(r.Input.Or(0)))},
			trace.Attr{Key: "llm.token_count.completion", Value: trace.IntValue(int64(r.Output.Or(0)))})
		s.SpanID, s.Scope = r.SpanID, "envoyproxy/ai-gateway"
		spans = append(spans, stages(s, "First Token Stream Event", r.Completed.At.Add(-time.Microsecond)))
	}
	return spans
}

// VisibleEnvoy returns what [Envoy] lets be known: the length, and no first
// token.
func VisibleEnvoy(rs []*trace.Request) []*trace.Request {
	return visible(served(rs), func(v *trace.Request) bool {
		model := v.Model
		hide(v, VLLM{})
		v.Intervals, v.FirstToken, v.MaxTokens = nil, trace.Instant{}, trace.Opt[int]{}
		v.Model, v.Service, v.Replica = model, "ai-gateway-extproc", "envoy-0"
		return true
	})
}
