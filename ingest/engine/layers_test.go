package engine

import (
	"fmt"
	"testing"

	"github.com/traceview/traceview/trace"
)

// mk makes a span of a service, without a scope.
func mk(parent *trace.Span, svc, name string, k trace.SpanKind, from, to float64, attrs ...any) *trace.Span {
	s := with(with(span(name, at(from), at(to), attrs...), service(svc)), kind(k))
	if parent != nil {
		below(parent, s)
	}
	return s
}

const (
	internal = trace.KindInternal
	server   = trace.KindServer
	client   = trace.KindClient
)

// vllmV1At is a span of vLLM V1: queueing 0.5, prefill 0.25, decode for the rest
// but 0.25 of the front end; no decode where there is one token.
func vllmV1At(parent *trace.Span, id string, from, to float64, more ...any) *trace.Span {
	decode := to - from - 1
	if len(more) > 1 && more[0] == "out" && more[1] == 1 {
		decode = 0
	}
	s := span("llm_request", at(from), at(to), append([]any{"id", id, "queue", 0.5, "prefill", 0.25, "decode", decode, "e2e", to - from}, more...)...)
	s.Scope = "vllm.tracing.otel"
	if parent != nil {
		below(parent, s)
	}
	return s
}

func TestTriton(t *testing.T) {
	events := func(s *trace.Span, pairs ...any) *trace.Span {
		for i := 0; i < len(pairs); i += 2 {
			event(s, pairs[i].(string), pairs[i+1].(float64))
		}
		return s
	}
	const svc = "triton-inference-server"
	model := func(parent *trace.Span, name string, id, up int, from, to float64) *trace.Span {
		return mk(parent, svc, name, server, from, to, "triton.model_name", name, "triton.model_version", 1, "triton.trace_id", id, "triton.trace_parent_id", up)
	}
	compute := func(parent *trace.Span, from, to float64) *trace.Span {
		return events(mk(parent, svc, "compute", server, from, to), "COMPUTE_START", from, "COMPUTE_INPUT_END", from+0.01, "COMPUTE_OUTPUT_START", to-0.01, "COMPUTE_END", to)
	}
	whole := func(from, to float64) *trace.Span {
		return events(mk(nil, svc, "InferRequest", server, from, to), "HTTP_RECV_START", from-0.25, "HTTP_RECV_END", from, "INFER_RESPONSE_COMPLETE", to-0.1, "HTTP_SEND_START", to-0.1, "HTTP_SEND_END", to-0.05)
	}
	// The receipt is before its span: 0.25 + 0.25 + 0.125 arrival.
	root := whole(1, 5)
	m := events(model(root, "demo", 7, 0, 1.25, 4.75), "REQUEST_START", 1.25, "QUEUE_START", 1.375, "REQUEST_END", 4.75)
	got := run(Options{}, root, m, compute(m, 2, 4.5))
	check(t, got, " triton ok arrival=0.75 queued=1.375 scheduled=2 end=5 | arrival=0.625 queueing=0.625 prefill|decode=2.5 completion=0.5")

	// Cancelled in the queue: no compute.
	root = whole(1, 5)
	m = events(model(root, "demo", 8, 0, 1.25, 4.75), "REQUEST_START", 1.25, "QUEUE_START", 1.5, "REQUEST_END", 4.5)
	check(t, run(Options{}, root, m),
		" triton aborted arrival=0.75 queued=1.5 end=5 | arrival=0.75 queueing=3 completion=0.25 unattributed=0.25")

	// An ensemble of three: one request, queued thrice.
	root = whole(1, 10)
	ens := events(model(root, "ens", 9, 0, 1, 10), "REQUEST_START", 1.0, "QUEUE_START", 1.0, "REQUEST_END", 10.0)
	spans := []*trace.Span{root, ens}
	for i, x := range [][3]float64{{1.5, 2, 3}, {3, 5, 8}, {8.5, 8.75, 9.5}} {
		m := events(model(ens, fmt.Sprint("part", i), 10+i, 9, x[0], x[2]), "REQUEST_START", x[0], "QUEUE_START", x[0], "REQUEST_END", x[2])
		spans = append(spans, m, compute(m, x[1], x[2]))
	}
	check(t, run(Options{}, spans...),
		" triton ok arrival=0.75 queued=1.5 scheduled=2 end=10 | arrival=0.75 queueing=2.75 completion=0.5 arrival|prefill|decode|completion=4.75 unattributed=0.5")

	// A model that calls another: the call's wait is the request's.
	root = whole(1, 10)
	m = events(model(root, "bls", 20, 0, 1, 10), "REQUEST_START", 1.0, "QUEUE_START", 1.0, "REQUEST_END", 10.0)
	c := compute(m, 2, 9)
	in := events(model(c, "llm", 21, 20, 3, 8), "REQUEST_START", 3.0, "QUEUE_START", 3.0, "REQUEST_END", 8.0)
	check(t, run(Options{}, root, m, c, in, compute(in, 5, 8)),
		" triton ok arrival=0.75 queued=1 scheduled=2 end=10 | arrival=0.25 queueing=3 prefill|decode=5 completion=1")
}

func TestTensorRT(t *testing.T) {
	trt := scope("trt.llm")
	check(t, run(Options{},
		with(span("llm_request", at(0.01), at(2.51), "id", 3, "out", 90, "ttft", 0.698, "e2e", 2.5, "queue", 0.306), trt),
		// A queue of zero is −1 too: then it is part of what leads to the first token.
		with(span("llm_request", at(0), at(2.5), "id", 4, "out", 90, "ttft", 0.75, "e2e", 2.5, "queue", -1), trt),
		// Without e2e the start is one second after the end.
		with(span("llm_request", at(3.51), at(2.51), "id", 5, "e2e", -1, "queue", -1), trt)),
		"3 tensorrt-llm ok arrival=~0.01 queued=~0.01 scheduled=~0.316 first=0.708 last=~2.51 end=2.51 | queueing=0.306 prefill=0.392 decode=1.802",
		"4 tensorrt-llm ok arrival=~0 first=0.75 last=~2.5 end=2.5 | queueing|prefill=0.75 decode=1.75 | negative-duration",
		"5 tensorrt-llm incomplete end=2.51 | | end-before-start negative-duration negative-duration")

	// Its disaggregated server: 1 to 3 the context, 3 to 3.5 the cache, 3.25 on the rest.
	hub := mk(nil, "disagg", "openai_completion", server, 0, 9)
	event(hub, "ctx_server.selected", 0.5)
	event(hub, "gen_server.selected", 3)
	event(hub, "kv_cache_transfer_start", 3)
	event(hub, "kv_cache_transfer_end", 3.5)
	ctx := with(below(hub, span("llm_request", at(1), at(3), "id", 1, "out", 1, "in", 100, "queue", 0.5, "ttft", 2.0, "e2e", 2.0)), trt)
	gen := with(below(hub, span("llm_request", at(3.25), at(8.25), "id", 1, "out", 50, "queue", 0.5, "ttft", 0.75, "e2e", 5.0)), trt)
	check(t, run(Options{}, hub, gen, ctx),
		"1 tensorrt-llm ok arrival=0 queued=~1 scheduled=~1.5 first=4 last=~8.25 end=9 | arrival=1 queueing=0.75 prefill=1.75 decode=4.25 transfer=0.5 completion=0.75")
}

func TestTGI(t *testing.T) {
	const svc = "text-generation-inference.router"
	gen := func(from, to float64, attrs ...any) *trace.Span {
		return mk(nil, svc, "generate", internal, from, to, attrs...)
	}
	figures := func(queue string) []any {
		return []any{"total_time", "2.513908s", "validation_time", "187.4µs", "queue_time", queue, "inference_time", "2.081302s",
			"time_per_token", "23.125578ms", "seed", "None", "parameters", "GenerateParameters { prompt: secret }"}
	}
	got := run(Options{}, gen(0, 2.514, figures("431.2ms")...), gen(3, 4), gen(5, 7.514, figures("431.2 ms ago")...), gen(8, 8.1, figures("431.2ms")...))
	check(t, got,
		" text-generation-inference ok arrival=0 queued=~0.0001874 scheduled=~0.4313874 last=~2.5126894 end=2.514 | arrival=0.0001874 queueing=0.4312 prefill|decode=2.081302 completion=0.0013106",
		" text-generation-inference ok arrival=8 end=8.1 | arrival=0.0001874 unattributed=0.0998126 | phase-too-long",
		" text-generation-inference error arrival=3 end=4 | unattributed=1",
		" text-generation-inference ok arrival=5 end=7.514 | arrival=0.0001874 unattributed=2.5138126 | bad-number")
	if r := got.requests[0]; r.Output.Or(0) != 90 || len(r.Attrs) != 1 {
		t.Errorf("%d tokens, %v", r.Output.Or(0), r.Attrs)
	}
	// Below a caller's span, with its own below: "waiting" is no queueing. The
	// batches are traces of their own and no requests.
	post := mk(nil, "app", "POST /generate", client, 0, 4)
	g := below(post, gen(1, 3.514, figures("431.2ms")...))
	batch := mk(nil, svc, "batch", internal, 1, 3, "batch_size", 4)
	check(t, run(Options{}, post, g, mk(g, svc, "queued", internal, 1, 1.5), mk(g, svc, "infer", internal, 1.5, 3), mk(g, svc, "waiting", internal, 2, 2.5),
		batch, mk(batch, svc, "prefill", internal, 1, 2, "id", 7, "size", 4), mk(batch, svc, "decode", internal, 2, 3)),
		" text-generation-inference ok arrival=0 queued=~1.0001874 scheduled=~1.4313874 last=~3.5126894 end=4 | arrival=1.0001874 queueing=0.4312 prefill|decode=2.081302 completion=0.4873106")
}

func TestDynamo(t *testing.T) {
	const front, work = "dynamo", "dynamo-worker"
	root := mk(nil, front, "http-request", internal, 0, 10, "method", "POST", "uri", "/v1/chat/completions", "ttft_ms", 4000.0)
	// Two workers without engine spans: the route waits from 0.5 until 1.
	pr := mk(root, front, "prefill_routing", internal, 0.5, 3.25)
	p := mk(pr, work, "handle_payload", server, 1, 3, "component", "prefill", "endpoint", "generate", "instance_id", 11)
	rt := mk(root, front, "kv_router.route_request", client, 3.25, 9.5, "phase", "Decode", "worker_id", 12)
	d := mk(rt, work, "handle_payload", server, 3.5, 9.25, "component", "backend", "endpoint", "generate", "instance_id", 12, "trace_id", "x")
	got := run(Options{}, root, pr, p, rt, d, mk(root, front, "kv_router.select_worker", internal, 0.25, 0.375))
	check(t, got,
		" dynamo ok arrival=0 first=4 last=~9.25 end=10 | arrival=0.25 arrival|queueing=0.75 queueing|prefill=2 decode=5.25 queueing|prefill|transfer=0.5 completion=0.75 unattributed=0.5")
	if r := got.requests[0]; r.Replica != "12" {
		t.Errorf("on %q", r.Replica)
	}
	// One worker, with and without the first token.
	for _, c := range []struct {
		attrs []any
		want  string
	}{
		{[]any{"uri", "/", "ttft_ms", 4000}, " dynamo ok arrival=0 first=4 last=~9 end=10 | arrival=0.5 arrival|queueing=0.5 queueing|prefill=3 decode=5 completion=1"},
		{[]any{"uri", "/"}, " dynamo ok arrival=0 end=10 | arrival=0.5 arrival|queueing=0.5 queueing|prefill|decode=8 completion=1"},
	} {
		root := mk(nil, front, "http-request", internal, 0, 10, c.attrs...)
		rt := mk(root, front, "router.route_request", internal, 0.5, 9.5, "phase", "Aggregated")
		d := mk(rt, work, "handle_payload", server, 1, 9, "component", "backend", "endpoint", "generate", "instance_id", 12)
		check(t, run(Options{}, root, rt, d), c.want)
	}
	// The engines' spans below the workers' count: decode's queue holds the transfer.
	root = mk(nil, front, "http-request", internal, 0, 10, "uri", "/", "ttft_ms", 1)
	p = mk(root, work, "handle_payload", server, 1, 3, "component", "prefill", "instance_id", 11)
	d = mk(root, work, "handle_payload", server, 3, 9, "component", "decode", "instance_id", 12)
	check(t, run(Options{}, root, p, d, vllmV1At(p, "a", 1, 3, "out", 1), vllmV1At(d, "b", 4, 9, "out", 9, "ttft", 0.875)),
		"b vllm-v1 ok arrival=0 queued=~2.25 scheduled=~2.75 first=4.875 last=~8.875 end=10 | arrival=1 queueing=0.5 prefill=0.5 decode=4 queueing|transfer=0.5 completion=1 arrival|completion=1.5 unattributed=1")
}

func TestLLMD(t *testing.T) {
	gw := func() (*trace.Span, []*trace.Span) {
		g := mk(nil, "epp", "gateway.request", server, 0, 10)
		o := mk(g, "epp", "gateway.request_orchestration", server, 0.25, 2, "target_model", "demo")
		return g, []*trace.Span{g, o, mk(o, "epp", "run_scheduler_profile", internal, 1.75, 1.875, "llm_d.epp.scheduling.profile.name", "p")}
	}
	// 0.25 to 1.75 and 1.875 to 2 nothing explains: flow control.
	g, spans := gw()
	check(t, run(Options{}, append(spans, vllmV1At(g, "x", 2.5, 9.5))...),
		"x vllm-v1 ok arrival=0 queued=~2.75 scheduled=~3.25 first=~3.5 last=~9.5 end=10 | arrival=0.875 queueing=2.125 prefill=0.25 decode=6 completion=0.5 arrival|completion=0.25")
	// Without an engine's span.
	_, spans = gw()
	check(t, run(Options{}, spans...), " llm-d ok arrival=0 end=10 | queueing=1.625 unattributed=8.375")

	// The proxy: decode below prefill, which has ended; the client's spans of its calls between.
	g, spans = gw()
	f := mk(g, "proxy", "forward_request", server, 2.25, 9.75, "llm_d.pd_proxy.connector", "nixlv2")
	p := mk(f, "proxy", "prefill", internal, 2.5, 4.5, "llm_d.pd_proxy.prefill.duration_ms", 2000.0)
	d := mk(p, "proxy", "decode", internal, 4.75, 9.5, "llm_d.pd_proxy.true_ttft_ms", 2500.0)
	pc, dc := mk(p, "proxy", "POST /v1/completions", client, 2.5, 4.5), mk(d, "proxy", "POST /v1/completions", client, 4.75, 9.5)
	check(t, run(Options{}, append(spans, f, p, d, pc, dc, vllmV1At(pc, "cmpl-r-0", 2.5, 4.5, "out", 1), vllmV1At(dc, "cmpl-r-0", 5, 9.25, "out", 50))...),
		"cmpl-r-0 vllm-v1 ok arrival=0 queued=~3.75 scheduled=~4.25 first=~6 last=~9.25 end=10 | arrival=0.875 queueing=2.125 prefill=0.5 decode=3.25 queueing|transfer=0.5 completion=0.75 arrival|completion=1.5 unattributed=0.5")
	// Not split: the decode call alone is the whole request.
	f = mk(nil, "proxy", "forward_request", server, 0, 5, "llm_d.pd_proxy.disaggregation_used", false)
	d = mk(f, "proxy", "decode", internal, 0.5, 4.5, "llm_d.pd_proxy.decode.streaming", true)
	check(t, run(Options{}, f, d, vllmV1At(d, "y", 0.5, 4.5)),
		"y vllm-v1 ok arrival=0 queued=~0.75 scheduled=~1.25 first=~1.5 last=~4.5 end=5 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25")
	// The prefill engine's span alone.
	f = mk(nil, "proxy", "forward_request", server, 0, 5, "llm_d.pd_proxy.disaggregation_used", true)
	p = mk(f, "proxy", "prefill", internal, 0.5, 2.5, "llm_d.pd_proxy.prefill.status_code", 200)
	check(t, run(Options{}, f, p, vllmV1At(p, "z", 0.5, 2.5, "out", 1)),
		"z vllm-v1 incomplete arrival=0 queued=~1.75 scheduled=~2.25 first=~2.5 | arrival=0.5 queueing=0.5 prefill=0.25 arrival|completion=1.25 | half-request")
}

// A half whose other one is missing is not joined with another request's.
func TestHalvesOfTwoCalls(t *testing.T) {
	agent := mk(nil, "agent", "workflow", internal, 0, 20)
	f1 := mk(agent, "proxy", "forward_request", server, 0, 5, "llm_d.pd_proxy.disaggregation_used", true)
	p := mk(f1, "proxy", "prefill", internal, 0.5, 2.5, "llm_d.pd_proxy.prefill.status_code", 200)
	f2 := mk(agent, "proxy", "forward_request", server, 6, 11, "llm_d.pd_proxy.disaggregation_used", false)
	d := mk(f2, "proxy", "decode", internal, 6.5, 10.5, "llm_d.pd_proxy.decode.streaming", true)
	check(t, run(Options{}, agent, f1, p, f2, d, vllmV1At(p, "one", 0.5, 2.5, "out", 1), vllmV1At(d, "two", 6.5, 10.5)),
		"one vllm-v1 incomplete arrival=0 queued=~1.75 scheduled=~2.25 first=~2.5 | arrival=0.5 queueing=0.5 prefill=0.25 arrival|completion=1.25 | half-request",
		"two vllm-v1 ok arrival=6 queued=~6.75 scheduled=~7.25 first=~7.5 last=~10.5 end=11 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25")
}

func TestRayServe(t *testing.T) {
	h := mk(nil, "ray", "proxy_http_request", server, 0, 10)
	rt := mk(h, "ray", "proxy_route_to_replica", server, 0.5, 9.5)
	rep := mk(rt, "ray", "handle_request_streaming", internal, 3, 9)
	check(t, run(Options{}, h, rt, rep, vllmV1At(rep, "a", 4, 8)),
		"a vllm-v1 ok arrival=0 queued=~4.25 scheduled=~4.75 first=~5 last=~8 end=10 | arrival=1.5 queueing=3 prefill=0.25 decode=3 completion=2 arrival|completion=0.25")
	h = mk(nil, "ray", "proxy_http_request", server, 0, 10)
	rt = mk(h, "ray", "proxy_route_to_replica", server, 0.5, 9.5)
	check(t, run(Options{}, h, rt, vllmV1At(rt, "b", 4, 8)),
		"b vllm-v1 ok arrival=0 queued=~4.25 scheduled=~4.75 first=~5 last=~8 end=10 | arrival=0.5 queueing=0.5 arrival|queueing=3.5 prefill=0.25 decode=3 completion=2 arrival|completion=0.25")
	h = mk(nil, "ray", "proxy_http_request", server, 0, 10)
	rt = mk(h, "ray", "proxy_route_to_replica", server, 0.5, 9.5)
	check(t, run(Options{}, h, rt, mk(rt, "ray", "replica", internal, 3, 9)),
		" ray-serve ok arrival=0 end=10 | queueing=2.5 unattributed=7.5")
}

// opentelemetry-instrument vllm serve: the HTTP server's span is beside the
// engine's.
func TestServerBeside(t *testing.T) {
	caller := &trace.Span{TraceID: "51", SpanID: "52"} // not in the input
	http := func(from, to float64) *trace.Span {
		return with(below(caller, mk(nil, "vllm-server", "POST /v1/completions", server, from, to, "http.route", "/v1/completions")), func(s *trace.Span) {
			s.Scope = "opentelemetry.instrumentation.fastapi"
		})
	}
	h := http(0, 5)
	check(t, run(Options{}, h, vllmV1At(caller, "a", 0.5, 4.5), mk(h, "vllm-server", "POST /v1/completions http send", internal, 4.75, 5)),
		"a vllm-v1 ok arrival=0 queued=~0.75 scheduled=~1.25 first=~1.5 last=~4.5 end=5 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25 | missing-parent")
	// One after the other, and samples of one request.
	check(t, run(Options{}, http(0, 5), http(6, 11), vllmV1At(caller, "b", 0.5, 4.5), vllmV1At(caller, "c", 6.5, 10.5), vllmV1At(caller, "c", 6.5, 10.5)),
		"b vllm-v1 ok arrival=0 queued=~0.75 scheduled=~1.25 first=~1.5 last=~4.5 end=5 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25 | missing-parent",
		"c vllm-v1 ok arrival=6 queued=~6.75 scheduled=~7.25 first=~7.5 last=~10.5 end=11 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25 | missing-parent",
		"c vllm-v1 ok arrival=6 queued=~6.75 scheduled=~7.25 first=~7.5 last=~10.5 end=11 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25 | missing-parent")
	// Two at once, or another process's: which is whose is not known.
	alone := "d vllm-v1 ok arrival=0.5 queued=~0.75 scheduled=~1.25 first=~1.5 last=~4.5 end=4.5 | queueing=0.5 prefill=0.25 decode=3 arrival|completion=0.25 | missing-parent"
	got := run(Options{}, http(0, 5), http(0.25, 6), vllmV1At(caller, "d", 0.5, 4.5))
	check(t, result{requests: got.requests}, alone)
	other := with(http(0, 5), service("gateway"))
	got = run(Options{}, other, vllmV1At(caller, "d", 0.5, 4.5))
	check(t, result{requests: got.requests}, alone)
}

// A NIXL proxy asks two vLLM servers under one request id.
func TestOneIDTwoServers(t *testing.T) {
	proxy := mk(nil, "proxy", "POST /v1/completions", server, 0, 9)
	p := with(vllmV1At(proxy, "cmpl-r-0", 1, 3, "out", 1, "gen_ai.request.max_tokens", 1), func(s *trace.Span) { s.Resource = &trace.Resource{Attrs: attributes("service.name", "p")} })
	d := with(vllmV1At(proxy, "cmpl-r-0", 3.5, 8.5, "out", 50, "gen_ai.request.max_tokens", 50), func(s *trace.Span) { s.Resource = &trace.Resource{Attrs: attributes("service.name", "d")} })
	got := run(Options{}, proxy, d, p)
	check(t, got,
		"cmpl-r-0 vllm-v1 ok arrival=0 queued=~2.25 scheduled=~2.75 first=~4.5 last=~8.5 end=9 | arrival=1 queueing=0.5 prefill=0.5 decode=4 queueing|transfer=0.5 completion=0.5 arrival|completion=1.5 unattributed=0.5")
	if r := got.requests[0]; r.Service != "d" {
		t.Errorf("%+v", r)
	} else if v, _ := r.Attr("prefill.service"); v.String() != "p" {
		t.Errorf("prefill on %v", v)
	}
	// With the transfer as a span of its own, the rest of the queue is queueing.
	mv := with(below(d, span("vllm_async_kv_transfer", at(4), at(4.25))), kind(internal))
	eng := []*trace.Span{
		with(below(d, span("vllm_queue", at(3.75), at(4.5))), kind(internal)), mv,
		with(below(d, span("vllm_prefill", at(4.5), at(5))), kind(internal)), with(below(d, span("vllm_decode", at(5), at(8))), kind(internal)),
	}
	check(t, run(Options{}, append(eng, proxy, p, d)...),
		"cmpl-r-0 vllm-v1 ok arrival=0 queued=~2.25 scheduled=~2.75 first=~5 last=~8 end=9 | arrival=1 queueing=1 prefill=0.75 decode=3 transfer=0.25 completion=0.5 arrival|completion=1.25 unattributed=1.25")
	// On one server, or asked for one token again: two requests.
	for _, change := range []func(s *trace.Span){
		func(s *trace.Span) { s.Resource = p.Resource },
		func(s *trace.Span) {
			s.Attrs = append(s.Attrs, attributes("gen_ai.request.max_tokens", 1, "out", 1)...)
		},
	} {
		o := *d
		change(&o)
		if got := run(Options{}, proxy, p, &o); len(got.requests) != 2 {
			t.Errorf("%d requests", len(got.requests))
		}
	}
}

// Client-side spans are requests where nothing of an engine is in the trace.
func TestClients(t *testing.T) {
	ev := func(s *trace.Span, name string, ts ...float64) *trace.Span {
		for _, x := range ts {
			event(s, name, x)
		}
		return s
	}
	app := mk(nil, "app", "GET /ask", server, 0, 9)
	chain := mk(app, "app", "invoke_agent planner", internal, 0.5, 8.5, "gen_ai.operation.name", "invoke_agent")
	check(t, run(Options{}, app, chain,
		mk(chain, "app", "chat demo-8b", client, 1, 3, "gen_ai.operation.name", "chat", "gen_ai.response.id", "a", "gen_ai.response.time_to_first_chunk", 0.5),
		mk(chain, "app", "execute_tool x", internal, 3, 4, "gen_ai.operation.name", "execute_tool"),
		mk(chain, "app", "embeddings e", client, 3, 4, "gen_ai.operation.name", "embeddings"),
		mk(chain, "app", "chat demo-8b", client, 4, 6, "gen_ai.operation.name", "chat", "gen_ai.response.id", "b", "gen_ai.server.time_to_first_token", 0.25),
		ev(mk(chain, "app", "ChatCompletion", internal, 6, 7, "openinference.span.kind", "LLM", "gen_ai.response.id", "c"), "First Token Stream Event", 6.5),
		ev(mk(chain, "app", "openai.chat", client, 7, 8, "llm.request.type", "chat", "gen_ai.response.id", "d"), "llm.content.completion.chunk", 7.75, 7.25, 7.5),
		mk(chain, "app", "ai.streamText.doStream", internal, 8, 8.25, "ai.operationId", "ai.streamText.doStream", "gen_ai.response.id", "e", "ai.response.msToFirstChunk", 125.0)),
		"a genai-client ok arrival=1 first=1.5 end=3 | unattributed=2",
		"b genai-client ok arrival=4 first=4.25 end=6 | unattributed=2",
		"c genai-client ok arrival=6 first=6.5 end=7 | unattributed=1",
		"d genai-client ok arrival=7 first=7.25 end=8 | unattributed=1",
		"e genai-client ok arrival=8 first=8.125 end=8.25 | unattributed=0.25")

	// Below it an engine: that one counts, the client gives arrival and end.
	c := mk(nil, "app", "chat demo-8b", internal, 0, 5, "gen_ai.operation.name", "chat", "gen_ai.response.time_to_first_chunk", 0.5)
	check(t, run(Options{}, c, vllmV1At(c, "v", 0.5, 4.5)),
		"v vllm-v1 ok arrival=0 queued=~0.75 scheduled=~1.25 first=~1.5 last=~4.5 end=5 | arrival=0.5 queueing=0.5 prefill=0.25 decode=3 completion=0.5 arrival|completion=0.25")

	// Envoy's first-token event comes with the last; the innermost call counts.
	e := mk(nil, "gateway", "ChatCompletion", internal, 1, 4, "openinference.span.kind", "LLM")
	e.Scope = "envoyproxy/ai-gateway"
	event(e, "First Token Stream Event", 3.999)
	outer := mk(nil, "app", "chat", client, 0, 5, "gen_ai.operation.name", "chat")
	check(t, run(Options{}, outer, below(outer, e)),
		" envoy-ai-gateway ok arrival=0 end=5 | arrival=1 completion=1 unattributed=3")
	check(t, run(Options{}, e, vllmV1At(e, "v", 1.5, 3.5)),
		"v vllm-v1 ok arrival=1 queued=~1.75 scheduled=~2.25 first=~2.5 last=~3.5 end=4 | arrival=0.5 queueing=0.5 prefill=0.25 decode=1 completion=0.5 arrival|completion=0.25 | missing-parent")

	// LiteLLM: what is before the call is the proxy's.
	l := mk(nil, "litellm", "Received Proxy Server Request", server, 0, 5)
	q := mk(l, "litellm", "litellm_request", internal, 1, 4, "gen_ai.request.model", "demo")
	check(t, run(Options{}, l, mk(l, "litellm", "auth", internal, 0, 0.5), q, mk(q, "litellm", "raw_gen_ai_request", internal, 1, 4)),
		" litellm ok arrival=0 end=5 | arrival=1 completion=1 unattributed=3")
	l = mk(nil, "litellm", "POST /v1/chat/completions", server, 0, 5)
	q = mk(l, "litellm", "chat demo", client, 1, 4, "gen_ai.operation.name", "chat", "litellm.call_id", "x", "gen_ai.response.time_to_first_chunk", 0.5)
	check(t, run(Options{}, l, q), " litellm ok arrival=0 first=1.5 end=5 | arrival=1 completion=1 unattributed=3")
	check(t, run(Options{}, l, q, vllmV1At(q, "v", 1.5, 3.5)),
		"v vllm-v1 ok arrival=0 queued=~1.75 scheduled=~2.25 first=~2.5 last=~3.5 end=5 | arrival=1.5 queueing=0.5 prefill=0.25 decode=1 completion=1.5 arrival|completion=0.25")
	// A first chunk after the end, or without an end.
	check(t, run(Options{}, mk(nil, "app", "chat", client, 0, 5, "gen_ai.operation.name", "chat", "gen_ai.response.time_to_first_chunk", 500.0)),
		" genai-client ok arrival=0 end=5 | unattributed=5 | phase-too-long")
}

// A span of many requests, called as text-generation-inference calls a batch,
// hides none of them.
func TestBatchOfOthers(t *testing.T) {
	job := mk(nil, "offline", "batch", internal, 0, 20, "batch_size", 2)
	got := run(Options{}, job, vllmV1At(job, "a", 1, 5), vllmV1At(job, "b", 1, 6))
	if len(got.requests) != 2 || len(got.issues) != 0 {
		t.Errorf("%d requests, %v", len(got.requests), got.issues)
	}
}

// A cache's own work is no request.
func TestLMCache(t *testing.T) {
	root := with(mk(nil, "lmcache", "mp.retrieve", internal, 0, 1, "session_id", "a"), scope("lmcache_mp.server"))
	check(t, run(Options{}, root, mk(root, "lmcache", "decode", internal, 0, 1)))
}

// A hundred thousand spans of one trace take no more than some seconds, whatever
// they are: nothing looks at all of them for each.
func TestManyInOneTrace(t *testing.T) {
	const n = 25_000
	root := mk(nil, "x", "root", internal, 0, 9)
	far := &trace.Span{TraceID: root.TraceID, SpanID: "5555555555555555"}
	var many [5][]*trace.Span
	prefill, decode := sgl(root, "prefill Req 1", 0, 9, "bootstrap_room", "0x1"), sgl(root, "decode Req 1", 0, 9, "bootstrap_room", "0x1")
	orch := mk(root, "epp", "gateway.request_orchestration", server, 0, 9)
	for i := range n {
		f := float64(i) / n
		many[0] = append(many[0], below(far, mk(nil, "vllm-server", "POST /v1/completions", server, f, f+0.5/n)), vllmV1At(far, "a", f, f+0.5/n))
		h := trace.StringValue("0x" + fmt.Sprint(i+2))
		many[1] = append(many[1], sgl(root, "prefill Req 2", f, f+1, "bootstrap_room", h), sgl(root, "decode Req 2", f, f+1, "bootstrap_room", h))
		many[2] = append(many[2], sgl(prefill, "prefill_bootstrap", 2*f, 2*f+0.5/n), sgl(decode, "decode_waiting", 2*f+0.5/n, 2*f+1.0/n), sgl(decode, "decode_forward", 2*f, 2*f+0.25/n))
		many[3] = append(many[3], mk(orch, "epp", "run_scheduler_profile", internal, f, f+0.5/n), mk(root, "d", "kv_router.find_matches", internal, f, f+0.5/n))
		many[4] = append(many[4], mk(root, "d", "handle_payload", server, f, f+1, "component", "prefill"), mk(root, "d", "handle_payload", server, f+2, f+3, "component", "decode"))
	}
	many[2] = append(many[2], prefill, decode)
	many[3] = append(many[3], orch, vllmV1At(root, "b", 3, 8))
	for i, want := range []int{n, n, 1, 1, 2 * n} {
		if got := run(Options{}, append(many[i], root)...); len(got.requests) != want {
			t.Errorf("%d: %d requests, want %d", i, len(got.requests), want)
		}
	}
}
