// Prints the three spans of capture_test.go by OpenTelemetry's Go SDK, with
// go.opentelemetry.io/otel/exporters/stdout/stdouttrace v1.47.0:
//
//	go run . > go-console.json
package main

import (
	"context"
	"encoding/hex"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

type ids struct{ traces, spans []string }

func (g *ids) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	hex.Decode(t[:], []byte(g.traces[0]))
	g.traces = g.traces[1:]
	return t, g.NewSpanID(ctx, t)
}

func (g *ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	hex.Decode(s[:], []byte(g.spans[0]))
	g.spans = g.spans[1:]
	return s
}

func main() {
	at := func(ms int64) trace.SpanEventOption { return trace.WithTimestamp(time.UnixMilli(1788000000000 + ms)) }
	exporter, err := stdouttrace.New()
	if err != nil {
		panic(err)
	}
	provider := sdk.NewTracerProvider(sdk.WithSyncer(exporter), sdk.WithIDGenerator(&ids{
		[]string{"5b8efff798038103d269b633813fc60c", "0000000000000000a1b2c3d4e5f60718"},
		[]string{"eee19b7ec3c1b174", "1111aaaa2222bbbb", "0333cccc4444dddd"},
	}), sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "engine-a"), attribute.String("service.instance.id", "gpu-3"))))
	tracer := provider.Tracer("demo.tracer")
	ctx := context.Background()
	inner, a := tracer.Start(ctx, "POST /v1/completions", trace.WithSpanKind(trace.SpanKindServer), at(0).(trace.SpanStartOption))
	_, b := tracer.Start(inner, "llm_request", trace.WithSpanKind(trace.SpanKindServer), at(100).(trace.SpanStartOption), trace.WithAttributes(
		attribute.String("gen_ai.request.id", "req-1"), attribute.Int("gen_ai.usage.prompt_tokens", 512),
		attribute.Float64("gen_ai.latency.time_in_queue", 0.7), attribute.Bool("stream", true),
		attribute.StringSlice("gen_ai.response.finish_reasons", []string{"stop"})))
	b.AddEvent("first_token", trace.WithAttributes(attribute.Int("n", 1)), at(900).(trace.EventOption))
	b.SetStatus(codes.Ok, "")
	b.End(at(2500).(trace.SpanEndOption))
	a.End(at(2600).(trace.SpanEndOption))
	_, c := tracer.Start(ctx, "llm_request", at(3000).(trace.SpanStartOption))
	c.SetStatus(codes.Error, "it's gone")
	c.End(at(3000).(trace.SpanEndOption))
}
