package engine

import (
	"fmt"
	"testing"

	"github.com/traceview/traceview/trace"
)

func benchmark(b *testing.B, spans []*trace.Span) {
	b.ReportAllocs()
	yield := func(*trace.Request, *trace.Issue) bool { return true }
	n := 0
	for b.Loop() {
		bl := NewBuilder(Options{})
		for _, s := range spans {
			bl.Add(s, yield)
		}
		bl.Finish(yield)
		n += len(spans)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "spans/s")
	b.ReportMetric(0, "ns/op")
}

func v1Span(i int) *trace.Span {
	s := span("llm_request", at(float64(i)), at(float64(i)+2.877546443), "ttft", 0.4123, "e2e", 2.8769, "queue", 0.2511,
		"in", 913, "out", 128, "prefill", 0.1402, "decode", 2.4631, "inference", 2.6033,
		"id", fmt.Sprintf("chatcmpl-%032x", i), "gen_ai.request.top_p", 1.0, "gen_ai.request.max_tokens", 128, "gen_ai.request.n", 1)
	s.Scope = "vllm.tracing.otel"
	return s
}

// Each span is a request by itself.
func BenchmarkAlone(b *testing.B) {
	var spans []*trace.Span
	res := &trace.Resource{Attrs: attributes("service.name", "vllm-blue", "vllm.process_id", "41")}
	for i := range 20000 {
		s := v1Span(i)
		s.Resource = res
		spans = append(spans, s)
	}
	benchmark(b, spans)
}

// Each trace has a gateway's span, the engine's and three phases.
func BenchmarkTraces(b *testing.B) {
	var spans []*trace.Span
	for i := range 4000 {
		t := float64(i)
		gateway := span("POST /v1/chat/completions", at(t), at(t+4), "http.route", "/v1/chat/completions", "tenant.id", fmt.Sprint(i%7))
		req := below(gateway, span("llm_request", at(t+0.5), at(t+3.5), "id", fmt.Sprintf("chatcmpl-%032x", i), "in", 913, "out", 128))
		spans = append(spans,
			below(req, span("queue", at(t+0.5), at(t+1))), below(req, span("prefill", at(t+1), at(t+2))), below(req, span("decode", at(t+2), at(t+3.25))),
			req, gateway)
	}
	benchmark(b, spans)
}
