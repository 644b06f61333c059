package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

func kind(k trace.SpanKind) func(*trace.Span) { return func(s *trace.Span) { s.Kind = k } }

func service(name string) func(*trace.Span) {
	return func(s *trace.Span) {
		s.Scope = ""
		s.Resource = &trace.Resource{Attrs: attributes("service.name", name)}
	}
}

func scope(name string) func(*trace.Span) { return func(s *trace.Span) { s.Scope = name } }

func TestEngines(t *testing.T) {
	for _, c := range []struct {
		name  string
		spans []*trace.Span
		want  []string
	}{
		{"V1: what is known is placed", []*trace.Span{
			span("llm_request", at(0), at(10), "id", "q", "queue", 2.0, "prefill", "x"),
			span("llm_request", at(0), at(10), "id", "p,ttft", "prefill", 1.0, "ttft", 4.0),
			span("llm_request", at(0), at(10), "id", "qp,ttft", "queue", 2.0, "prefill", 1.0, "ttft", 4.0),
			span("llm_request", at(0), at(10), "id", "qd,e2e", "queue", 2.0, "decode", 5.0, "e2e", 9.0),
			span("llm_request", at(0), at(10), "id", "pd", "prefill", 1.0, "decode", 5.0),
			span("llm_request", at(0), at(10), "id", "pi", "queue", 1.0, "prefill", 1.0, "inference", 6.0, "ttft", 3.0),
			span("llm_request", at(0), at(10), "id", "di", "decode", 5.0, "inference", 6.0, "e2e", 9.5),
			span("llm_request", at(0), at(10), "id", "qi", "queue", 2.0, "inference", 6.0, "e2e", 9.0),
			span("llm_request", at(0), at(10), "id", "i", "inference", 6.0),
			span("llm_request", at(0), never, "id", "no end", "queue", 1.0, "prefill", 1.0, "decode", 2.0, "ttft", 3.0),
		}, []string{
			"q vllm-v1 ok arrival=0 queued=~0 scheduled=~2 end=10 | queueing=2 unattributed=8 | bad-number",
			"p,ttft vllm-v1 ok arrival=0 scheduled=~3 first=4 end=10 | prefill=1 unattributed=9",
			"qp,ttft vllm-v1 ok arrival=0 queued=~1 scheduled=~3 first=4 end=10 | queueing=2 prefill=1 unattributed=7",
			"qd,e2e vllm-v1 ok arrival=0 queued=~0 scheduled=~2 first=~4 last=~9 end=10 | queueing=2 decode=5 unattributed=3",
			"pd vllm-v1 ok arrival=0 scheduled=~4 first=~5 last=~10 end=10 | prefill=1 decode=5 unattributed=4",
			"pi vllm-v1 ok arrival=0 queued=~1 scheduled=~2 first=3 last=~8 end=10 | queueing=1 prefill=1 decode=5 arrival|completion=3",
			"di vllm-v1 ok arrival=0 scheduled=~3.5 first=~4.5 last=~9.5 end=10 | prefill=1 decode=5 unattributed=4",
			"qi vllm-v1 ok arrival=0 queued=~1 scheduled=~3 end=10 | queueing=2 prefill|decode=6 arrival|completion=2",
			"i vllm-v1 ok arrival=0 scheduled=~4 end=10 | prefill|decode=6 unattributed=4",
			"no end vllm-v1 incomplete arrival=0 queued=~1 scheduled=~2 first=3 last=~5 | queueing=1 prefill=1 decode=2 arrival|completion=1 | missing-end",
		}},
		{"V1: the chain moves into the span", []*trace.Span{
			// ttft would begin the chain at −0.5, and end it 0.5 too early.
			span("llm_request", at(0), at(10), "id", "early", "queue", 1.0, "prefill", 1.0, "decode", 7.0, "ttft", 1.5),
			// ttft would end the chain at 11.
			span("llm_request", at(0), at(10), "id", "late", "queue", 1.0, "prefill", 1.0, "decode", 7.0, "ttft", 4.0),
			// 40 ms longer than the span: more than rounding, less than garbage.
			span("llm_request", at(0), at(1), "id", "long", "queue", 0.5, "prefill", 0.04, "decode", 0.5, "ttft", 0.54),
			// 0.5 µs longer: rounding.
			span("llm_request", at(0), at(1), "id", "rounded", "queue", 0.5, "prefill", 0.0000005, "decode", 0.5, "e2e", 1.0),
			span("llm_request", at(0), at(1), "id", "sum", "queue", 0.25, "prefill", 0.25, "decode", 0.25, "inference", 0.75, "e2e", 1.0),
			span("llm_request", at(0), at(1), "id", "near", "queue", 0.25, "prefill", 0.25, "decode", 0.25, "inference", 0.5000005, "e2e", 1.0),
			// An embedding has no token.
			span("llm_request", at(0), at(1), "id", "pooling", "out", 0, "queue", 0.25, "prefill", 0.25, "decode", 0.0, "inference", 0.25, "ttft", 0.75, "e2e", 0.75),
		}, []string{
			"early vllm-v1 ok arrival=0 queued=~0 scheduled=~1 first=1.5 last=~9 end=10 | queueing=1 prefill=1 decode=7 arrival|completion=1",
			"late vllm-v1 ok arrival=0 queued=~1 scheduled=~2 first=4 last=~10 end=10 | queueing=1 prefill=1 decode=7 arrival|completion=1",
			"long vllm-v1 ok arrival=0 queued=~0 scheduled=~0.5 first=0.54 last=~1.04 end=1 | queueing=0.5 prefill=0.04 decode=0.46 outside=0.04 | inconsistent",
			"rounded vllm-v1 ok arrival=0 queued=~0 scheduled=~0.5 first=~0.5000005 last=~1.0000005 end=1 | queueing=0.5 prefill=0.0000005 decode=0.4999995 outside=0.0000005",
			"sum vllm-v1 ok arrival=0 queued=~0.25 scheduled=~0.5 first=~0.75 last=~1 end=1 | queueing=0.25 prefill=0.25 decode=0.25 arrival|completion=0.25 | inconsistent",
			"near vllm-v1 ok arrival=0 queued=~0.25 scheduled=~0.5 first=~0.75 last=~1 end=1 | queueing=0.25 prefill=0.25 decode=0.25 arrival|completion=0.25",
			"pooling vllm-v1 ok arrival=0 queued=~0.25 scheduled=~0.5 end=1 | queueing=0.25 prefill=0.25 arrival|completion=0.5",
		}},
		{"V0: one clock", []*trace.Span{
			span("llm_request", at(0), at(1.5), "id", "v0", "queue", 0.25, "ttft", 0.75, "e2e", 1.25, "gen_ai.latency.time_in_scheduler", 0.1),
			span("llm_request", at(0), at(2), "id", "no queue", "ttft", 0.75, "e2e", 1.25),
			span("llm_request", at(0), at(2), "id", "no first", "queue", 0.75, "e2e", 1.25),
			span("llm_request", at(0), at(2), "id", "odd", "queue", 1.0, "ttft", 0.5, "e2e", 2.0),
			// TensorRT-LLM: −1 is absent; without an e2e its start is after its end.
			with(span("llm_request", at(0), at(2.5), "id", 3, "ttft", 0.75, "e2e", 2.5, "queue", 0.25), scope("")),
			with(span("llm_request", at(3.5), at(2.5), "e2e", -1, "queue", -1), scope("")),
		}, []string{
			"v0 vllm-v0 ok arrival=0 queued=0 scheduled=~0.25 first=0.75 last=~1.25 end=1.5 | queueing=0.25 prefill=0.5 decode=0.5 completion=0.25",
			"no queue vllm-v0 ok arrival=0 first=0.75 last=~1.25 end=2 | queueing|prefill=0.75 decode=0.5 completion=0.75",
			"no first vllm-v0 ok arrival=0 queued=0 scheduled=~0.75 last=~1.25 end=2 | queueing=0.75 prefill|decode=0.5 completion=0.75",
			"odd vllm-v0 ok arrival=0 queued=0 scheduled=~1 first=0.5 last=~2 end=2 | queueing=0.5 decode=1.5 conflict=0.5 | inconsistent",
			"3 vllm-or-tensorrt-llm ok arrival=0 queued=0 scheduled=~0.25 first=0.75 last=~2.5 end=2.5 | queueing=0.25 prefill=0.5 decode=1.75 | engine-ambiguous",
			" vllm-or-tensorrt-llm incomplete arrival=3.5 | | end-before-start engine-ambiguous negative-duration negative-duration",
		}},
		{"SGLang: queueing and prefill are one amount", []*trace.Span{
			with(span(" Req 7d1e4c0b", at(0), at(2.5), "rid", "7d1e", "module", "sglang::request", "out", 90, "ttft", 0.9, "prefill", 0.75, "decode", 1.5, "e2e", 2.4), service("sglang")),
			with(span(" Req 2", at(0), at(2.5), "rid", "inf", "inference", 2.0, "e2e", 2.5), scope("sglang server")),
			with(span(" Req 3", at(0), at(2.5), "rid", "bare"), scope("sglang server")),
			with(span(" Req 4", at(0), at(2.5), "rid", "pre", "prefill", 0.75), scope("sglang server")),
			with(span(" Req 5", at(0), at(2.5), "rid", "dec", "decode", 0.75, "e2e", 2.0), scope("sglang server")),
		}, []string{
			"7d1e sglang ok arrival=0 first=0.9 last=~2.4 end=2.5 | arrival=0.15 queueing|prefill=0.75 decode=1.5 completion=0.1",
			"inf sglang ok arrival=0 end=2.5 | queueing|prefill|decode=2 unattributed=0.5",
			"bare sglang ok arrival=0 end=2.5 | unattributed=2.5",
			"pre sglang ok arrival=0 end=2.5 | queueing|prefill=0.75 unattributed=1.75",
			"dec sglang ok arrival=0 first=~1.25 last=~2 end=2.5 | decode=0.75 completion=0.5 unattributed=1.25",
		}},
		{"latencies of an unknown writer", []*trace.Span{
			with(span("generate", at(0), at(2), "id", "a", "prefill", 0.5, "decode", 1.0, "ttft", 0.75, "e2e", 2.0), scope("x")),
			with(span("generate", at(0), at(2), "id", "b", "queue", 0.5, "ttft", 0.75, "e2e", 2.0), scope("x")),
			with(span("generate", at(0), at(2), "id", "c", "queue", 0.25, "prefill", 0.25, "decode", 1.0, "ttft", 0.75, "e2e", 2.0), scope("x")),
		}, []string{
			"a latency-attributes ok arrival=0 first=0.75 last=~1.75 end=2 | queueing|prefill=0.5 decode=1 unattributed=0.5 | engine-ambiguous",
			"b latency-attributes ok arrival=0 queued=0 scheduled=~0.5 first=0.75 last=~2 end=2 | queueing=0.5 prefill=0.25 decode=1.25 | engine-ambiguous",
			"c latency-attributes ok arrival=0 queued=~0.25 scheduled=~0.5 first=0.75 last=~1.75 end=2 | queueing=0.25 prefill=0.25 decode=1 arrival|completion=0.5 | engine-ambiguous",
		}},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, run(Options{}, c.spans...), c.want...) })
	}
}

func TestEvents(t *testing.T) {
	ev := func(pairs ...any) func(*trace.Span) {
		return func(s *trace.Span) {
			for i := 0; i < len(pairs); i += 2 {
				s.Events = append(s.Events, trace.Event{At: at(pairs[i].(float64)), Name: pairs[i+1].(string)})
			}
		}
	}
	core := with(span("llm_core", at(1), at(9)), ev(1.0, "journey.QUEUED", 2.0, "journey.SCHEDULED", 3.0, "journey.FIRST_TOKEN", 9.0, "journey.FINISHED"))
	core.Scope = "vllm.scheduler"
	api := with(span("llm_request", at(0), at(10), "id", "api", "in", 7), scope("vllm.api"))
	check(t, run(Options{},
		with(span("llm_request", at(0), at(10), "id", "all"),
			// Out of order, any case: queueing 1, prefill 1, decode 1+3, preempted 2, completion 1.
			ev(9.0, "last_token", 2.0, "SCHEDULED", 1.0, "Queued", 3.0, "first_token", 4.0, "PREEMPTED", 9.0, "FINISHED", 6.0, "RESUMED")),
		with(span("llm_request", at(0), at(10), "id", "twice"),
			ev(0.0, "QUEUED", 1.0, "SCHEDULED", 2.0, "PREEMPTED", 3.0, "QUEUED", 4.0, "SCHEDULED", 6.0, "PREEMPTED", 7.0, "SCHEDULED", 9.0, "FINISHED")),
		with(span("llm_request", at(0), at(10), "id", "open"), ev(1.0, "QUEUED", 2.0, "SCHEDULED")),
		with(span("llm_request", at(0), at(10), "id", "token", "queue", 1.0, "prefill", 2.0, "decode", 3.0, "out", 3), ev(4.0, "first_token")),
		with(span("llm_request", at(5), at(10), "id", "outside"), ev(1.0, "QUEUED", 7.0, "SCHEDULED", 8.0, "FINISHED")),
		with(span("llm_request", at(5), at(10), "id", "before"), ev(4.0, "first_token")),
		with(span("llm_request", at(5), at(10), "id", "after"), ev(6.0, "first_token")),
		with(span("llm_request", at(5), at(10), "id", "epoch"), ev(-1760000000.0, "QUEUED")),
		api, below(api, core),
	),
		"token vllm-v1 ok arrival=0 queued=~1 scheduled=~2 first=4 last=~7 end=10 | queueing=1 prefill=2 decode=3 arrival|completion=4",
		"all vllm ok arrival=0 queued=1 scheduled=2 first=3 last=9 end=10 | arrival=1 queueing=1 prefill=1 decode=4 preempted=2 completion=1",
		"twice vllm ok arrival=0 queued=0 scheduled=1 last=~9 end=10 | queueing=1 prefill|decode=5 preempted=3 completion=1",
		"open vllm ok arrival=0 queued=1 scheduled=2 end=10 | arrival=1 queueing=1 unattributed=8",
		"outside vllm ok arrival=5 queued=1 scheduled=7 last=~8 end=10 | queueing=2 prefill|decode=1 completion=2 outside=4 | inconsistent",
		"before vllm ok arrival=5 end=10 | unattributed=5 | inconsistent",
		"after vllm ok arrival=5 first=6 end=10 | unattributed=5",
		"epoch vllm ok arrival=5 end=10 | unattributed=5 | time-out-of-range",
		"api scheduler-events ok arrival=0 queued=1 scheduled=2 first=3 last=~9 end=10 | arrival=1 queueing=1 prefill=1 decode=6 completion=1",
	)
}

func TestChildSpans(t *testing.T) {
	req := span("llm_request", at(0), at(10), "id", "rbln")
	phase := func(parent *trace.Span, name string, from, to float64) *trace.Span {
		return below(parent, with(span(name, at(from), at(to)), kind(trace.KindInternal)))
	}
	prefill := phase(req, "Prefill", 2, 4)
	check(t, run(Options{},
		// Children may come first; a prefill inside a prefill is no second claim.
		phase(prefill, "prefill", 2, 3), phase(req, "queue", 1, 2), prefill,
		phase(req, "vllm_decode", 4, 6), phase(req, "preempted", 6, 7), phase(req, "decode", 7, 9),
		phase(req, "kv_transfer", 9, 9.5), phase(req, "tokenize", 0, 0.5), phase(req, "detokenize", 9.5, 9.75),
		with(phase(req, "decode", 9, 9), func(s *trace.Span) { s.End = never }),
		req),
		"rbln vllm ok arrival=0 queued=1 scheduled=2 first=~4 last=~9 end=10 | arrival=0.5 queueing=1 prefill=2 decode=4 transfer=0.5 preempted=1 completion=0.25 unattributed=0.75",
		"! missing-end",
	)

	// A span of no known engine is a request if prefill or decode is below it.
	gen := with(span("generate", at(0), at(5), "id", "gen"), service("mine"))
	other := with(span("checkout", at(0), at(5)), service("shop"))
	check(t, run(Options{}, gen, with(phase(gen, "inference", 1, 4), service("mine")), with(phase(gen, "waiting", 0, 1), service("mine"))),
		"gen phase-spans ok arrival=0 queued=0 scheduled=1 last=~4 end=5 | queueing=1 prefill|decode=3 unattributed=1")
	check(t, run(Options{}, other, phase(other, "queue", 1, 4)),
		" unknown ok arrival=0 end=5 | unattributed=5 | engine-unknown")

	// Deeper ones count in the same service only.
	eng := span("llm_request", at(0), at(5), "id", "eng")
	mid := phase(eng, "step", 0, 5)
	check(t, run(Options{}, eng, mid, phase(mid, "prefill", 1, 2), with(phase(mid, "decode", 2, 5), service("else")),
		with(phase(mid, "transfer", 2, 3), func(s *trace.Span) { service("kv")(s); s.Scope = "vllm/kv" })),
		"eng vllm ok arrival=0 scheduled=1 first=~2 end=5 | prefill=1 transfer=1 unattributed=3")

	// llm-d's sidecar calls its own stages prefill and decode.
	fwd := with(span("forward_request", at(0), at(3), "llm_d.pd_proxy.connector", "nixlv2"), service("proxy"))
	pre := with(phase(fwd, "prefill", 0, 1), func(s *trace.Span) { s.Attrs = attributes("llm_d.pd_proxy.prefill.status_code", 200) })
	dec := with(phase(pre, "decode", 1, 3), func(s *trace.Span) { s.Attrs = attributes("llm_d.pd_proxy.decode.duration_ms", 2000.0) })
	check(t, run(Options{}, fwd, pre, dec),
		" llm-d ok arrival=0 end=3 | unattributed=3")

	// An event says better when the first token was than the end of prefill.
	ev := span("llm_request", at(0), at(5), "id", "ev")
	ev.Events = []trace.Event{{At: at(2.5), Name: "first_token"}}
	check(t, run(Options{}, ev, phase(ev, "prefill", 1, 2), phase(ev, "decode", 2, 5)),
		"ev vllm ok arrival=0 scheduled=1 first=2.5 last=~5 end=5 | prefill=1 decode=3 unattributed=1")

	told := below(&trace.Span{TraceID: "88", SpanID: "89"}, span("llm_request", at(0), at(5), "id", "told", "ttft", 2.5))
	check(t, run(Options{}, told, phase(told, "prefill", 1, 2)),
		"told vllm-v0 ok arrival=0 scheduled=1 first=2.5 end=5 | prefill=1 unattributed=4 | missing-parent")

	out := span("llm_request", at(0), at(5), "id", "out")
	check(t, run(Options{}, out, phase(out, "prefill", 1, 7)),
		"out vllm ok arrival=0 scheduled=1 first=~7 end=5 | prefill=4 unattributed=1 outside=2 | inconsistent")
}

func TestOuterSpans(t *testing.T) {
	v1 := func(parent *trace.Span, id string, from, to float64) *trace.Span {
		return below(parent, span("llm_request", at(from), at(to), "id", id, "queue", 0.5, "prefill", 0.25, "decode", 1.0, "e2e", to-from))
	}
	post := func(from, to float64, k trace.SpanKind, attrs ...any) *trace.Span {
		return with(span("POST /v1/completions", at(from), at(to), attrs...), func(s *trace.Span) { service("gateway")(s); s.Kind = k })
	}
	const phases = "queueing=0.5 prefill=0.25 decode=1"

	a := post(0, 4, trace.KindServer)
	inner := with(below(a, span("route", at(0.5), at(3.5))), kind(trace.KindInternal))
	client := below(inner, post(0.75, 3.25, trace.KindClient, "out", 10))
	got := run(Options{}, v1(client, "deep", 1, 3), client, inner, a)
	if r := got.requests[0]; r.Output.Or(0) != 10 {
		t.Errorf("the gateway's token count is lost: %+v", r)
	}
	check(t, got,
		"deep vllm-v1 ok arrival=0 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=4 | arrival=1 "+phases+" completion=1 arrival|completion=0.25")

	// An agent's span over several calls is nobody's arrival; each call's is.
	agent := with(span("workflow", at(0), at(10)), service("agent"))
	c1, c2 := below(agent, post(1, 4, trace.KindClient)), below(agent, post(5, 8, trace.KindClient))
	check(t, run(Options{}, agent, c1, c2, v1(c1, "one", 1.5, 3.5), v1(c2, "two", 5.5, 7.5)),
		"one vllm-v1 ok arrival=1 queued=~1.75 scheduled=~2.25 first=~2.5 last=~3.5 end=4 | arrival=0.5 "+phases+" completion=0.5 arrival|completion=0.25",
		"two vllm-v1 ok arrival=5 queued=~5.75 scheduled=~6.25 first=~6.5 last=~7.5 end=8 | arrival=0.5 "+phases+" completion=0.5 arrival|completion=0.25")

	// An internal span that is no HTTP is climbed through and not used.
	job := with(span("job", at(0), at(10)), kind(trace.KindInternal))
	check(t, run(Options{}, job, v1(job, "job", 1, 3)),
		"job vllm-v1 ok arrival=1 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=3 | "+phases+" arrival|completion=0.25")

	// Samples of one request share its outer span; two requests do not.
	n := post(0, 4, trace.KindServer)
	check(t, run(Options{}, n, v1(n, "cmpl-1", 1, 3), v1(n, "cmpl-1", 1, 3.5)),
		"cmpl-1 vllm-v1 ok arrival=0 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=4 | arrival=1 "+phases+" completion=1 arrival|completion=0.25",
		"cmpl-1 vllm-v1 ok arrival=0 queued=~1.75 scheduled=~2.25 first=~2.5 last=~3.5 end=4 | arrival=1 "+phases+" completion=0.5 arrival|completion=0.75")
	n = post(0, 4, trace.KindServer, "out", 30)
	got = run(Options{}, n, v1(n, "0_cmpl-1", 1, 3), v1(n, "1_cmpl-1", 1, 3), v1(n, "cmpl-1_parallel_sample_2", 1, 3))
	for _, r := range got.requests {
		if r.Output.Present() {
			t.Errorf("sample %s: the tokens of all", r.ID)
		}
		if r.Arrival.At != t0 {
			t.Errorf("sample %s: arrival %v", r.ID, r.Arrival.At.Sub(t0))
		}
	}
	n = post(0, 4, trace.KindServer)
	check(t, run(Options{}, n, v1(n, "a", 1, 3), v1(n, "b", 1, 3)),
		"a vllm-v1 ok arrival=1 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=3 | "+phases+" arrival|completion=0.25",
		"b vllm-v1 ok arrival=1 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=3 | "+phases+" arrival|completion=0.25")

	// Clocks: late by more than fits, too long, and off by less than rounding.
	late := post(0, 3, trace.KindServer)
	long := post(0, 1, trace.KindServer)
	near := post(1.0000005, 3, trace.KindServer)
	check(t, run(Options{}, late, v1(late, "late", 2, 4)),
		"late vllm-v1 ok arrival=0 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=3 | "+phases+" arrival|completion=1.25 | clock-skew")
	check(t, run(Options{}, long, v1(long, "long", 2, 4), near, v1(near, "near", 1, 3)),
		"long vllm-v1 ok arrival=2 queued=~2.25 scheduled=~2.75 first=~3 last=~4 end=4 | "+phases+" arrival|completion=0.25 | clock-skew",
		"near vllm-v1 ok arrival=1 queued=~1.25 scheduled=~1.75 first=~2 last=~3 end=3 | "+phases+" arrival|completion=0.25")

	// Where the engine's span lacks an end or a start, and where the gateway failed.
	open, head, failed := post(0, 3, trace.KindServer), post(0, 3, trace.KindServer), post(0, 3, trace.KindServer)
	failed.Status = trace.StatusError
	check(t, run(Options{}, open, with(v1(open, "open", 1, 2), func(s *trace.Span) { s.End = never }),
		head, with(v1(head, "head", 1, 2), func(s *trace.Span) { s.Start = never }),
		failed, below(failed, span("llm_request", at(1), at(2), "id", "failed"))),
		"open vllm-v1 incomplete arrival=0 queued=~1 scheduled=~1.5 first=~1.75 last=~2.75 | arrival=1 "+phases+" | missing-end",
		"head vllm-v1 ok arrival=0 end=3 | completion=1 unattributed=2 | missing-start",
		"failed vllm error arrival=0 end=3 | arrival=1 completion=1 unattributed=1")
}

func TestUnknown(t *testing.T) {
	root := with(span("job", at(0), at(9)), func(s *trace.Span) { service("x")(s); s.Kind = trace.KindInternal })
	server := with(below(root, span("GET /items", at(1), at(2))), service("shop"))
	nested := with(below(server, span("GET /price", at(1), at(2))), service("shop"))
	call := with(span("chat demo-8b", at(0), at(3), "gen_ai.request.model", "demo-8b", "gen_ai.usage.input_tokens", 220), func(s *trace.Span) { service("app")(s); s.Kind = trace.KindClient })
	orphan := with(below(&trace.Span{TraceID: "77", SpanID: "78"}, span("db", at(1), at(2))), func(s *trace.Span) { service("x")(s); s.Kind = trace.KindClient })
	got := run(Options{}, nested, server, root, call, orphan)
	check(t, got,
		" unknown ok arrival=1 end=2 | unattributed=1 | engine-unknown",
		" unknown ok arrival=0 end=3 | unattributed=3 | engine-unknown",
		"! missing-parent")
	if r := got.requests[1]; r.Model != "demo-8b" || r.Input.Or(0) != 220 {
		t.Errorf("%+v", r)
	}

	// What the server answered where no engine took anything up.
	answered := func(i float64, attrs ...any) *trace.Span {
		return with(span("POST /v1/completions", at(i), at(i+0.5), attrs...), service("gw"))
	}
	failed := func(s *trace.Span) { s.Status = trace.StatusError }
	check(t, run(Options{},
		answered(0, "http.response.status_code", 429), answered(1, "http.status_code", "400"), answered(2, "http.response.status_code", 503),
		answered(3, "http.response.status_code", 499), answered(4, "http.response.status_code", 500), with(answered(5, "http.response.status_code", 500), failed),
		with(answered(6, "error.type", "asyncio.CancelledError"), failed), answered(7, "http.response.status_code", 200)),
		" unknown rejected arrival=0 end=0.5 | unattributed=0.5 | engine-unknown",
		" unknown rejected arrival=1 end=1.5 | unattributed=0.5 | engine-unknown",
		" unknown rejected arrival=2 end=2.5 | unattributed=0.5 | engine-unknown",
		" unknown aborted arrival=3 end=3.5 | unattributed=0.5 | engine-unknown",
		" unknown error arrival=4 end=4.5 | unattributed=0.5 | engine-unknown",
		" unknown error arrival=5 end=5.5 | unattributed=0.5 | engine-unknown",
		" unknown aborted arrival=6 end=6.5 | unattributed=0.5 | engine-unknown",
		" unknown ok arrival=7 end=7.5 | unattributed=0.5 | engine-unknown")

	a, b := span("a", at(0), at(1)), span("b", at(0), at(1))
	a.TraceID, a.ParentID, b.TraceID, b.ParentID = "5", b.SpanID, "5", a.SpanID
	a.Kind, b.Kind = trace.KindInternal, trace.KindInternal
	check(t, run(Options{}, a, b),
		" unknown ok arrival=0 end=1 | unattributed=1 | engine-unknown parent-cycle",
		" unknown ok arrival=0 end=1 | unattributed=1 | engine-unknown parent-cycle")
}

func TestStartupSpansAreNoRequests(t *testing.T) {
	overall := with(span("Overall Loading", at(0), at(60), "code.function", "main", "code.lineno", "12"), kind(trace.KindInternal))
	load := with(below(overall, span("Load weights", at(1), at(50), "code.function", "load")), func(s *trace.Span) { s.Scope = "x"; s.Kind = trace.KindInternal })
	fork := with(below(overall, span("New stage", at(1), at(50), "code.function", "f")), kind(trace.KindInternal))
	check(t, run(Options{}, overall, load, fork))
}

// A request that was yielded when it came is not found again by what is below it.
func TestBelowYielded(t *testing.T) {
	req := span("llm_request", at(0), at(4), "id", "a", "queue", 1.0, "prefill", 1.0, "decode", 2.0, "e2e", 4.0)
	child := with(below(req, span("prefill", at(1), at(2))), kind(trace.KindInternal))
	step := below(child, span("GET /kv", at(1), at(2)))
	core := with(below(req, span("llm_core", at(1), at(2), "e2e", 1.0)), kind(trace.KindInternal))
	for _, spans := range [][]*trace.Span{{req, child, step, core}, {core, step, child, req}} {
		check(t, run(Options{}, spans...),
			"a vllm-v1 ok arrival=0 queued=~0 scheduled=~1 first=~2 last=~4 end=4 | queueing=1 prefill=1 decode=2",
			"! nested-request")
	}
}

// A request span inside another that has figures or an id of its own is not
// dropped in silence.
func TestNestedRequests(t *testing.T) {
	gateway := span("POST /v1/completions", at(0), at(9))
	outer := below(gateway, with(span("llm_request", at(1), at(8), "id", "outer"), scope("vllm.llm_engine")))
	inner := below(outer, with(span("llm_request", at(2), at(4), "id", "inner"), scope("vllm.llm_engine")))
	check(t, run(Options{}, gateway, outer, inner),
		"inner vllm ok arrival=0 end=9 | arrival=2 completion=5 unattributed=2",
		"! nested-request")
}

func TestTooManyOpen(t *testing.T) {
	var spans []*trace.Span
	for i := range 3 {
		spans = append(spans, span("llm_request", at(float64(i)), at(float64(i)+1), "id", fmt.Sprint(i)))
	}
	gateway := span("POST /v1/completions", at(0), at(9))
	late := below(gateway, span("llm_request", at(1), at(2), "id", "late"))
	check(t, run(Options{MaxOpen: 2}, append(spans, gateway, spans[0], late)...),
		"0 vllm ok arrival=0 end=1 | unattributed=1",
		"1 vllm ok arrival=1 end=2 | unattributed=1",
		"2 vllm ok arrival=2 end=3 | unattributed=1",
		"late vllm ok arrival=0 end=9 | arrival=1 completion=7 unattributed=1",
		"! too-many-open", "! too-many-open", "! duplicate-span", "! too-many-open")
}

func TestStop(t *testing.T) {
	b := NewBuilder(Options{})
	stop := func(*trace.Request, *trace.Issue) bool { return false }
	if !b.Add(span("llm_request", at(0), at(1)), stop) {
		t.Error("stopped by a span that is held")
	}
	for range 2 {
		if b.Add(span("llm_request", at(0), at(1), "e2e", 1.0), stop) {
			t.Error("went on after yield said stop")
		}
	}
	if b.Finish(stop) {
		t.Error("finished after yield said stop")
	}
}

func TestAttributes(t *testing.T) {
	const secret = "the user's words"
	gateway := span("POST /v1/completions", at(0), at(9),
		"http.route", "/v1/completions", "tenant.id", "acme", "region", "outer", "url.full", "https://h/v1?q="+secret,
		"http.request.body.text", secret, "gen_ai.request.model", "demo-8b")
	req := below(gateway, span("llm_request", at(1), at(2), "id", "r", "region", "inner", "zone", "b",
		"gen_ai.prompt.0.content", secret, "gen_ai.completion", secret, "gen_ai.input.messages", secret, "input.value", secret,
		"output.value", secret, "llm.prompts", secret, "llm.input_messages.0.message.content", secret, "gen_ai.system_instructions", secret,
		"ai.promptText", secret, "ai.response.text", secret, "exception.message", secret, "db.statement", secret, "completion", secret,
		"note", strings.Repeat("x", 257), "lines", "a\nb", "list", trace.JSONValue(`["`+secret+`"]`),
		"gen_ai.response.finish_reasons", trace.JSONValue(`["stop","length"]`), "gen_ai.usage.cached_tokens", 5,
		"gen_ai.request.temperature", 0.5, "stream", true, "gen_ai.latency.time_in_scheduler", 0.25))
	req.Events = []trace.Event{{At: at(1), Name: "gen_ai.content.prompt", Attrs: attributes("gen_ai.prompt", secret)}}
	req.StatusMessage = secret
	req.Resource = &trace.Resource{Attrs: attributes("service.name", "vllm-blue", "host.name", "h1", "k8s.pod.name", "pod-1",
		"region", "resource", "zone", "a", "vllm.process_id", "41", "cluster", "c1", "gen_ai.prompt", secret)}
	got := run(Options{}, gateway, req)
	if len(got.requests) != 1 {
		t.Fatalf("%d requests", len(got.requests))
	}
	r := got.requests[0]
	var lines []string
	for _, a := range r.Attrs {
		lines = append(lines, a.Key+"="+a.Value.String())
	}
	want := []string{
		"cluster=c1", "gen_ai.latency.time_in_scheduler=0.25", "gen_ai.request.temperature=0.5", "host.name=h1",
		"http.route=/v1/completions", "k8s.pod.name=pod-1", "region=inner", "stream=true", "tenant.id=acme",
		"url.full=https://h/v1", "vllm.process_id=41", "zone=b",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("attributes\n got %q\nwant %q", lines, want)
	}
	if s := fmt.Sprintf("%+v", *r); strings.Contains(s, secret) {
		t.Errorf("a prompt reached the request: %s", s)
	}
	if r.Service != "vllm-blue" || r.Replica != "pod-1" || r.Model != "demo-8b" || r.FinishReason != "stop" || r.Cached.Or(0) != 5 {
		t.Errorf("%+v", r)
	}
}

// Spans with very many attributes keep the first.
func TestManyAttributes(t *testing.T) {
	s := span("llm_request", at(0), at(1))
	for i := range 1000 {
		s.Attrs = append(s.Attrs, attributes(fmt.Sprintf("k%04d", i), i)...)
	}
	s.Attrs = append(s.Attrs, attributes("id", "r")...)
	r := run(Options{}, s).requests[0]
	if len(r.Attrs) != maxAttrs || r.Attrs[maxAttrs-1].Key != "k0127" || r.ID != "r" {
		t.Errorf("%d attributes, id %q", len(r.Attrs), r.ID)
	}
}

func TestEnginesAreListed(t *testing.T) {
	var got []string
	for _, e := range Engines {
		got = append(got, e.Name)
		if e.Evidence == "" || e.Missing == "" {
			t.Errorf("%s: not described", e.Name)
		}
	}
	want := []string{sglang, vllmV1, vllmV0, vllm, tensorrt, vllmOrTRT, latency, events, triton, tgi, dynamo, llmd, rayServe, phaseSpans,
		liteLLM, envoyGateway, genaiClient, unknown}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFinishReason(t *testing.T) {
	for _, c := range []struct {
		value any
		want  string
	}{
		{"stop", "stop"}, {`["length"]`, "length"}, {trace.JSONValue(`["stop"]`), "stop"}, {"[]", ""}, {`["a`, `["a`},
		{strings.Repeat("x", 65), ""},
	} {
		r := run(Options{}, span("llm_request", at(0), at(1), "gen_ai.response.finish_reasons", c.value)).requests[0]
		if r.FinishReason != c.want {
			t.Errorf("%v: %q, want %q", c.value, r.FinishReason, c.want)
		}
	}
	r := run(Options{}, span("llm_request", at(0), at(1), "gen_ai.response.finish_reasons", "error")).requests[0]
	if r.Outcome != trace.Error {
		t.Errorf("finish reason error: %v", r.Outcome)
	}
}

func TestReplica(t *testing.T) {
	for _, c := range []struct {
		attrs []any
		want  string
	}{
		{[]any{"service.instance.id", "i", "k8s.pod.name", "p", "host.name", "h"}, "i"},
		{[]any{"k8s.pod.name", "p", "host.name", "h"}, "p"},
		{[]any{"host.name", "h", "vllm.process_id", "41"}, "h"},
		{[]any{"vllm.process_id", "41", "service.name", "unknown_service"}, ""},
	} {
		s := span("llm_request", at(0), at(1))
		s.Resource = &trace.Resource{Attrs: attributes(c.attrs...)}
		if r := run(Options{}, s).requests[0]; r.Replica != c.want || r.Service != "" {
			t.Errorf("%v: replica %q, service %q", c.attrs, r.Replica, r.Service)
		}
	}
}

// A chain of a million spans, and as many siblings, take linear time.
func TestLongChain(t *testing.T) {
	const n = 300_000
	res := &trace.Resource{}
	b := NewBuilder(Options{})
	count := 0
	yield := func(*trace.Request, *trace.Issue) bool { count++; return true }
	id := func(i int) string { return fmt.Sprintf("%x", i+1) }
	for i := range n {
		s := &trace.Span{TraceID: "1", SpanID: id(i), Name: "step", Kind: trace.KindClient, Start: at(1), End: at(2), Resource: res}
		if i > 0 {
			s.ParentID = id(i - 1)
		}
		b.Add(s, yield)
	}
	for i := range n / 10 { // samples of one request, all at the bottom
		b.Add(&trace.Span{TraceID: "1", SpanID: id(n + i), ParentID: id(n - 1), Name: "llm_request", Start: at(1), End: at(2), Resource: res}, yield)
	}
	b.Finish(yield)
	if count != n/10 {
		t.Errorf("%d requests and issues, want %d", count, n/10)
	}
}

// Where a container's clock has steps, what they make of sums is nothing odd;
// where it writes all values as text, text is.
func TestStepsAndText(t *testing.T) {
	micro := func(s *trace.Span) { s.Step, s.Untyped = time.Microsecond, true }
	texts := []any{"out", "2", "queue", "0.5", "prefill", "0.0000025", "decode", "0.5", "e2e", "1.0"}
	got := run(Options{},
		with(span("llm_request", at(0), at(1), append([]any{"id", "steps"}, texts...)...), micro),
		span("llm_request", at(0), at(1), append([]any{"id", "exact"}, texts...)...),
	)
	if len(got.requests) != 2 {
		t.Fatalf("%d requests", len(got.requests))
	}
	if r := got.requests[0]; r.Resolution != time.Microsecond || len(r.Issues) > 0 || r.Output != trace.Some(2) {
		t.Errorf("to 1 µs: resolution %v, %v tokens, %v", r.Resolution, r.Output, r.Issues)
	}
	has := map[trace.Code]bool{}
	for _, is := range got.requests[1].Issues {
		has[is.Code] = true
	}
	if r := got.requests[1]; r.Resolution != 1 || !has[trace.NumberAsText] || !has[trace.Inconsistent] {
		t.Errorf("to 1 ns: resolution %v, %v", r.Resolution, r.Issues)
	}
}
