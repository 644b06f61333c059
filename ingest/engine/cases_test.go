package engine

import (
	"math"
	"testing"

	"github.com/traceview/traceview/trace"
)

// TestCases holds inputs that users reported, with what they should give.
// Where a request's line goes on after "|", those are its phases, then its
// issues; a line with "!" is an issue of no request.
func TestCases(t *testing.T) {
	status := func(code trace.StatusCode, msg string) func(*trace.Span) {
		return func(s *trace.Span) { s.Status, s.StatusMessage = code, msg }
	}
	noIDs := func(s *trace.Span) {
		s.TraceID, s.SpanID, s.Scope, s.Resource, s.Kind = "", "", "", nil, trace.KindUnspecified
	}
	bare := func(s *trace.Span) { s.Scope, s.Resource, s.Kind = "", nil, trace.KindUnspecified }
	named := func(traceID, spanID, parent string) func(*trace.Span) {
		return func(s *trace.Span) { s.TraceID, s.SpanID, s.ParentID = traceID, spanID, parent }
	}
	for _, c := range []struct {
		name  string
		spans []*trace.Span
		want  []string
	}{
		{"an abort is no success", []*trace.Span{
			span("llm_request", at(0), at(2), "id", "good", "in", 100, "out", 50, "e2e", 2.0),
			with(span("llm_request", at(0), at(0.1), "id", "gone", "out", 3, "gen_ai.response.finish_reason", "abort"), status(trace.StatusError, "request aborted")),
			with(span("llm_request", at(0), at(0.2), "id", "err", "out", 0), status(trace.StatusError, "")),
		}, []string{
			"good vllm ok arrival=0 end=2 | unattributed=2",
			"gone vllm aborted arrival=0 end=0.1 | unattributed=0.1",
			"err vllm error arrival=0 end=0.2 | unattributed=0.2",
		}},
		{"one request id, two requests", []*trace.Span{
			span("llm_request", at(0), at(2), "id", "id"), span("llm_request", at(0.5), at(3.5), "id", "id"),
		}, []string{
			"id vllm ok arrival=0 end=2 | unattributed=2",
			"id vllm ok arrival=0.5 end=3.5 | unattributed=3",
		}},
		{"zero length", []*trace.Span{
			span("llm_request", at(0), at(0), "id", "z", "out", 10, "queue", 0.0, "prefill", 0.0, "decode", 0.0, "e2e", 0.0),
		}, []string{
			"z vllm-v1 ok arrival=0 queued=~0 scheduled=~0 first=~0 last=~0 end=0 |",
		}},
		{"end before start", []*trace.Span{
			span("llm_request", at(0), at(2), "id", "ok"),
			span("llm_request", at(5), at(4.999), "id", "skewed"),
			span("llm_request", at(6), never, "id", "unfinished"),
			span("llm_request", never, at(1), "id", "headless"),
			span("llm_request", trace.Some(trace.Time(math.MaxInt64-5)), trace.Some(trace.Time(-3)), "id", "far"),
		}, []string{
			"ok vllm ok arrival=0 end=2 | unattributed=2",
			"skewed vllm incomplete arrival=5 | | end-before-start",
			"unfinished vllm incomplete arrival=6 | | missing-end",
			"headless vllm incomplete end=1 | | missing-start",
			"far vllm incomplete | | missing-start time-out-of-range time-out-of-range",
		}},
		{"milestones never reached", []*trace.Span{
			span("llm_request", at(0), at(3), "id", "done", "out", 10, "queue", 0.5, "ttft", 1.0, "prefill", 0.5, "decode", 2.0, "e2e", 3.0),
			span("llm_request", at(0), at(1), "id", "never-scheduled", "out", 0, "queue", -27536.660701067, "ttft", -1760000000.0, "prefill", 0.0, "decode", 0.0, "e2e", 1.0),
			span("llm_request", at(0), at(4), "id", "no-first-token", "out", 0, "queue", 0.25, "prefill", -27537.5, "decode", 27537.5, "e2e", 4.0),
			// The engine dropped it before it was scheduled: prefill is the host's uptime.
			span("llm_request", at(0), at(31.2), "id", "poisoned", "out", 0, "ttft", 31.2, "queue", 0.0, "prefill", 4012345.67, "decode", 0.0, "inference", 4012345.67, "e2e", 31.2),
		}, []string{
			"done vllm-v1 ok arrival=0 queued=~0 scheduled=~0.5 first=1 last=~3 end=3 | queueing=0.5 prefill=0.5 decode=2",
			"never-scheduled vllm-v1 aborted arrival=0 end=1 | unattributed=1 | negative-duration negative-duration",
			"no-first-token vllm-v1 aborted arrival=0 queued=~0 scheduled=~0.25 end=4 | queueing=0.25 unattributed=3.75 | negative-duration phase-too-long",
			"poisoned vllm-v1 aborted arrival=0 end=31.2 | unattributed=31.2 | phase-too-long phase-too-long",
		}},
		{"numbers of all types", []*trace.Span{
			with(span("llm_request", at(0), at(0.000000002), "id", "n1", "in", 14, "out", "8"), bare),
			with(span("llm_request", at(0), at(0.000000129), "id", "n2", "in", 14.0, "queue", "0.5"), bare),
			with(span("llm_request", at(0), at(1), "id", "n3", "queue", math.NaN(), "e2e", math.Inf(1)), bare),
			with(span("llm_request", at(0), at(1), "id", "n4", "queue", "NaN", "in", -1, "out", 1.5, "e2e", 1e300), bare),
			span("llm_request", at(0), at(1), "id", "n5", "queue", " 0.5 ", "ttft", "0.75", "e2e", 1),
		}, []string{
			"n2 vllm-or-tensorrt-llm ok arrival=0 end=0.000000129 | unattributed=0.000000129 | engine-ambiguous number-as-text phase-too-long",
			"n3 vllm-or-tensorrt-llm ok arrival=0 end=1 | unattributed=1 | bad-number bad-number engine-ambiguous",
			"n4 vllm-or-tensorrt-llm ok arrival=0 end=1 | unattributed=1 | bad-number bad-number bad-number bad-number engine-ambiguous",
			"n5 vllm-v0 ok arrival=0 queued=0 scheduled=~0.5 first=0.75 last=~1 end=1 | queueing=0.5 prefill=0.25 decode=0.25 | number-as-text number-as-text",
			"n1 vllm-or-tensorrt-llm ok arrival=0 end=0.000000002 | unattributed=0.000000002 | engine-ambiguous number-as-text",
		}},
		{"no ids", []*trace.Span{
			with(span("llm_request", at(0), at(0.3), "id", "w1", "queue", 5e-05, "prefill", 0.1, "decode", 0.15, "e2e", 0.299), noIDs),
			with(span("llm_request", at(0), at(0.3), "id", "w2", "queue", 5e-05, "prefill", 0.1, "decode", 0.15, "e2e", 0.299), noIDs),
			with(span("GET /health", at(0), at(1)), func(s *trace.Span) { noIDs(s); s.ParentID, s.Kind = "5", trace.KindClient }),
			with(span("Load model", at(0), at(1), "code.function", "load"), noIDs),
		}, []string{
			// e2e 0.299 − 0.25005 = 0.04895 before the queue.
			"w1 vllm-v1 ok arrival=0 queued=~0.04895 scheduled=~0.049 first=~0.149 last=~0.299 end=0.3 | queueing=0.00005 prefill=0.1 decode=0.15 arrival|completion=0.04995 | missing-ids",
			"w2 vllm-v1 ok arrival=0 queued=~0.04895 scheduled=~0.049 first=~0.149 last=~0.299 end=0.3 | queueing=0.00005 prefill=0.1 decode=0.15 arrival|completion=0.04995 | missing-ids",
			"! missing-ids",
		}},
		{"an absurd phase", []*trace.Span{
			span("llm_request", at(0), at(10), "id", "o1", "queue", 1.0, "prefill", 1.0, "decode", 8.0, "e2e", 10.0),
			span("llm_request", at(0), at(4), "id", "too-long", "queue", 0.5, "prefill", 0.5, "decode", 600.0, "e2e", 4.0),
		}, []string{
			"o1 vllm-v1 ok arrival=0 queued=~0 scheduled=~1 first=~2 last=~10 end=10 | queueing=1 prefill=1 decode=8",
			"too-long vllm-v1 ok arrival=0 queued=~0 scheduled=~0.5 first=~1 end=4 | queueing=0.5 prefill=0.5 unattributed=3 | phase-too-long",
		}},
		{"queued again", []*trace.Span{
			with(span("llm_request", at(0), at(60), "id", "session", "out", 10, "queue", -48.0, "ttft", 2.5, "prefill", 0.5, "decode", 57.5, "e2e", 60.0), func(s *trace.Span) {
				s.Events = []trace.Event{{At: at(1), Name: "QUEUED"}, {At: at(2), Name: "SCHEDULED"}, {At: at(50), Name: "QUEUED"}, {At: at(50.2), Name: "SCHEDULED"}}
			}),
			span("llm_request", at(0), at(10), "id", "retracted", "out", 10, "queue", -2.99079, "decode", 9.0, "e2e", 10.0),
		}, []string{
			"session vllm-v1 ok arrival=0 queued=1 scheduled=2 first=2.5 last=~60 end=60 | arrival=1 queueing=1.2 prefill=0.5 decode=57.3 | negative-duration",
			"retracted vllm-v1 ok arrival=0 first=~1 last=~10 end=10 | decode=9 unattributed=1 | negative-duration",
		}},
		{"exported again", []*trace.Span{
			with(span("llm_request", at(0), at(1), "id", "d1"), named("1", "1", "")),
			with(span("llm_request", at(0), at(2), "id", "d2"), named("2", "2", "")),
			with(span("llm_request", at(0), at(1), "id", "d1"), named("1", "1", "")),
			with(span("llm_request", at(0), at(2.5), "id", "d2"), named("2", "2", "")),
			with(span("llm_request", at(0), at(1), "id", "d1"), named("1", "1", "")),
			// After a restart the engine's ids begin anew.
			with(span("llm_request", at(100), at(101), "id", "d3", "e2e", 1.0), named("1", "1", "")),
			with(span("llm_request", at(100), at(101), "id", "d3", "e2e", 1.0), named("1", "1", "")),
		}, []string{
			"d3 vllm ok arrival=100 end=101 | unattributed=1",
			"d1 vllm ok arrival=0 end=1 | unattributed=1",
			"d2 vllm ok arrival=0 end=2 | unattributed=2",
			"! duplicate-span", "! conflicting-span", "! duplicate-span", "! span-id-reused", "! duplicate-span",
		}},
		{"a clock behind", func() []*trace.Span {
			gateway := with(span("POST /v1/chat/completions", at(0), at(3)), func(s *trace.Span) {
				bare(s)
				s.Kind = trace.KindClient
			})
			return []*trace.Span{gateway, with(below(gateway, span("llm_request", at(-0.7), at(1.8), "id", "skew", "out", 10, "queue", 0.5, "prefill", 0.4, "decode", 1.6, "e2e", 2.5)), func(s *trace.Span) { s.Scope = "" })}
		}(), []string{
			"skew vllm-v1 ok arrival=0 queued=~0 scheduled=~0.5 first=~0.9 last=~2.5 end=3 | queueing=0.5 prefill=0.4 decode=1.6 arrival|completion=0.5 | clock-skew",
		}},
		{"broken parents", []*trace.Span{
			with(span("llm_request", at(10), at(12), "id", "child-a"), named("1", "b", "63")),
			with(span("llm_request", at(30), at(31), "id", "child-b"), named("1", "c", "63")),
			with(span("llm_request", at(40), at(41), "id", "self-parent"), named("1", "d", "d")),
			with(span("llm_request", at(50), at(51), "id", "loop-1"), named("1", "e", "f")),
			with(span("llm_request", at(50.2), at(50.8), "id", "loop-2"), named("1", "f", "e")),
		}, []string{
			"child-a vllm ok arrival=10 end=12 | unattributed=2 | missing-parent",
			"child-b vllm ok arrival=30 end=31 | unattributed=1 | missing-parent",
			"self-parent vllm ok arrival=40 end=41 | unattributed=1 | self-parent",
			"loop-1 vllm ok arrival=50 end=51 | unattributed=1 | parent-cycle",
			"loop-2 vllm ok arrival=50.2 end=50.8 | unattributed=0.6 | parent-cycle",
		}},
		// A start that nobody set, one in seconds, a year read wrongly.
		{"half a century", []*trace.Span{
			span("llm_request", trace.Some(trace.Time(1)), at(1), "id", "zero", "e2e", 2.0, "queue", 0.5, "prefill", 0.5, "decode", 1.0),
			span("llm_request", trace.Some(t0/1e9), at(1), "id", "seconds"),
			span("llm_request", at(0), at(366*24*3600+0.001), "id", "after"),
			span("llm_request", at(0), at(366*24*3600), "id", "a-year"),
			span("llm_request", trace.Some(trace.Time(1)), trace.Some(century-1), "id", "both"),
		}, []string{
			"zero vllm-v1 incomplete end=1 | | time-out-of-range",
			"seconds vllm incomplete end=1 | | time-out-of-range",
			"after vllm incomplete arrival=0 | | time-out-of-range",
			"a-year vllm ok arrival=0 end=31622400 | unattributed=31622400",
			"both vllm incomplete arrival=-1760000000 | | time-out-of-range",
		}},
		// More tokens than a sum could hold.
		{"a billion tokens", []*trace.Span{
			span("llm_request", at(0), at(1), "id", "most", "in", 1000000000),
			span("llm_request", at(0), at(1), "id", "more", "in", 1000000001, "out", math.MaxInt64),
		}, []string{
			"most vllm ok arrival=0 end=1 | unattributed=1",
			"more vllm ok arrival=0 end=1 | unattributed=1 | bad-number bad-number",
		}},
	} {
		t.Run(c.name, func(t *testing.T) { check(t, run(Options{}, c.spans...), c.want...) })
	}
}

func TestSkewMessage(t *testing.T) {
	gateway := with(span("POST /v1/chat/completions", at(0), at(3)), func(s *trace.Span) { s.Kind = trace.KindClient })
	got := run(Options{}, gateway, below(gateway, span("llm_request", at(-0.7), at(1.8), "e2e", 2.5)))
	const want = "child starts 700 ms before its parent; engine span 2.5 s, outer 3 s, moved by +700 ms"
	if len(got.requests) != 1 || len(got.requests[0].Issues) != 1 || got.requests[0].Issues[0].Msg != want {
		t.Fatalf("%+v", got.requests)
	}
}

func TestRawEnd(t *testing.T) {
	r := run(Options{}, span("llm_request", at(5), at(4.999))).requests[0]
	v, _ := r.Attr("raw_end_unix_nano")
	if i, ok := v.Int(); !ok || i != int64(t0)+4999e6 {
		t.Errorf("raw end %v", v)
	}
}
