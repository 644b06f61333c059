package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	otel "go.opentelemetry.io/otel/trace"

	"github.com/traceview/traceview/trace"
)

// emit has OpenTelemetry's Go SDK make spans of requests, as a server written
// in Go would: a server span with a child for each phase and an event for the
// first token. Ids and times are handed to the SDK, so that nothing of it
// depends on when it runs.
func emit(rs []*trace.Request) []*trace.Span {
	mem := &memory{resources: map[*resource.Resource]*trace.Resource{}}
	ctx := context.Background()
	for _, replica := range replicas(rs) {
		provider := sdk.NewTracerProvider(
			sdk.WithSyncer(mem), sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(&ids{next: uint64(len(mem.spans))}),
			sdk.WithRawSpanLimits(sdk.SpanLimits{AttributeValueLengthLimit: -1, AttributeCountLimit: 128, EventCountLimit: 128}),
			sdk.WithResource(resource.NewSchemaless(attribute.String("service.name", "go-server"), attribute.String("service.instance.id", replica))),
		)
		tracer := provider.Tracer("example.com/go-server")
		for _, r := range rs {
			if r.Replica == replica {
				emitOne(ctx, tracer, r)
			}
		}
	}
	return mem.spans
}

var names = map[trace.Phase]string{trace.Queueing: "queue", trace.Prefill: "prefill", trace.Decode: "decode", trace.Preempted: "preempted"}

func emitOne(ctx context.Context, tracer otel.Tracer, r *trace.Request) {
	at := func(t trace.Time) time.Time { return t.UTC() }
	ctx, root := tracer.Start(ctx, "llm_request", otel.WithSpanKind(otel.SpanKindServer), otel.WithTimestamp(at(r.Arrival.At)),
		otel.WithAttributes(attribute.String("gen_ai.request.id", r.ID), attribute.String("gen_ai.request.model", r.Model),
			attribute.Int("gen_ai.usage.input_tokens", r.Input.Or(0)), attribute.Int("gen_ai.usage.output_tokens", r.Output.Or(0))))
	tenant, _ := r.Attr("tenant")
	root.SetAttributes(attribute.String("tenant", tenant.String()))
	for _, iv := range r.Intervals {
		if name, ok := names[iv.Phase]; ok {
			_, child := tracer.Start(ctx, name, otel.WithTimestamp(at(iv.Start)))
			child.End(otel.WithTimestamp(at(iv.End)))
		}
	}
	if t, ok := r.FirstToken.Get(); ok {
		root.AddEvent("first_token", otel.WithTimestamp(at(t)))
	}
	if r.FinishReason != "" {
		root.SetAttributes(attribute.StringSlice("gen_ai.response.finish_reasons", []string{r.FinishReason}))
	}
	if r.Outcome != trace.OK {
		root.SetStatus(codes.Error, r.Outcome.String())
	}
	root.End(otel.WithTimestamp(at(r.Completed.At)))
}

// replicas lists the replicas in order of first use.
func replicas(rs []*trace.Request) []string {
	var names []string
	seen := map[string]bool{"": true} // rejected requests never had one
	for _, r := range rs {
		if !seen[r.Replica] {
			seen[r.Replica] = true
			names = append(names, r.Replica)
		}
	}
	return names
}

// ids hands out ids that differ and look like none in particular.
type ids struct{ next uint64 }

func (g *ids) number() uint64 {
	g.next++
	return g.next * 0x9e3779b97f4a7c15
}

func (g *ids) NewIDs(context.Context) (t otel.TraceID, s otel.SpanID) {
	binary.BigEndian.PutUint64(t[:8], g.number())
	binary.BigEndian.PutUint64(t[8:], g.number())
	return t, g.NewSpanID(context.Background(), t)
}

func (g *ids) NewSpanID(context.Context, otel.TraceID) (s otel.SpanID) {
	binary.BigEndian.PutUint64(s[:], g.number())
	return s
}

// memory keeps what the SDK exports.
type memory struct {
	spans     []*trace.Span
	resources map[*resource.Resource]*trace.Resource
}

func (m *memory) Shutdown(context.Context) error { return nil }

func (m *memory) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	for _, s := range spans {
		res := m.resources[s.Resource()]
		if res == nil {
			res = &trace.Resource{Attrs: attrs(s.Resource().Attributes())}
			m.resources[s.Resource()] = res
		}
		out := &trace.Span{
			TraceID: s.SpanContext().TraceID().String(), SpanID: s.SpanContext().SpanID().String(),
			Name: s.Name(), Kind: trace.SpanKind(s.SpanKind()), Scope: s.InstrumentationScope().Name, Resource: res,
			Start: at(s.StartTime()), End: at(s.EndTime()), StatusMessage: s.Status().Description, Attrs: attrs(s.Attributes()),
		}
		if s.Parent().IsValid() {
			out.ParentID = s.Parent().SpanID().String()
		}
		switch s.Status().Code {
		case codes.Ok:
			out.Status = trace.StatusOK
		case codes.Error:
			out.Status = trace.StatusError
		}
		for _, e := range s.Events() {
			out.Events = append(out.Events, trace.Event{At: at(e.Time), Name: e.Name, Attrs: attrs(e.Attributes)})
		}
		m.spans = append(m.spans, out)
	}
	return nil
}

func at(t time.Time) trace.Opt[trace.Time] { return trace.Some(trace.Time(t.UnixNano())) }

func attrs(kvs []attribute.KeyValue) []trace.Attr {
	var out []trace.Attr
	for _, kv := range kvs {
		a := trace.Attr{Key: string(kv.Key)}
		switch kv.Value.Type() {
		case attribute.STRING:
			a.Value = trace.StringValue(kv.Value.AsString())
		case attribute.INT64:
			a.Value = trace.IntValue(kv.Value.AsInt64())
		case attribute.STRINGSLICE:
			text, _ := json.Marshal(kv.Value.AsStringSlice()) // strings always can
			a.Value = trace.JSONValue(string(text))
		}
		out = append(out, a)
	}
	return out
}
