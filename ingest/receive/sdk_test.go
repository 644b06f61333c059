package receive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/traceview/traceview/trace"
)

// clients makes the exporters of the Go SDK, by name.
func clients(t testing.TB, r *receiver) map[string]*otlptrace.Exporter {
	t.Helper()
	ctx := context.Background()
	// No retries: an error is then the first answer's.
	g := []otlptracegrpc.Option{otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(r.grpc), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{})}
	h := []otlptracehttp.Option{otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(r.http), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{})}
	list := map[string]*otlptrace.Exporter{}
	add := func(name string, e *otlptrace.Exporter, err error) {
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Shutdown(ctx) })
		list[name] = e
	}
	e, err := otlptracegrpc.New(ctx, g...)
	add("grpc", e, err)
	e, err = otlptracegrpc.New(ctx, append(g, otlptracegrpc.WithCompressor("gzip"))...)
	add("grpc gzip", e, err)
	e, err = otlptracehttp.New(ctx, h...)
	add("http", e, err)
	e, err = otlptracehttp.New(ctx, append(h, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))...)
	add("http gzip", e, err)
	return list
}

// stubs makes n spans with all that a span can have, and what a reader should
// say of them.
func stubs(batch byte, n int) (out []sdktrace.ReadOnlySpan, want []*trace.Span) {
	res := resource.NewSchemaless(attribute.String("service.name", "sdk"), attribute.Int("batch", int(batch)))
	wantRes := &trace.Resource{Attrs: []trace.Attr{{Key: "batch", Value: trace.IntValue(int64(batch))}, {Key: "service.name", Value: trace.StringValue("sdk")}}}
	var list tracetest.SpanStubs
	for i := range n {
		start := time.Unix(1_700_000_000, int64(i)*1001+1)
		end := start.Add(time.Duration(i+1) * 1_000_003)
		tid, sid, pid := oteltrace.TraceID{batch, 15: byte(i + 1)}, oteltrace.SpanID{batch, 7: byte(i + 1)}, oteltrace.SpanID{batch, 6: 1}
		list = append(list, tracetest.SpanStub{
			Name:        fmt.Sprintf("llm_request ü %d", i),
			SpanContext: oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: tid, SpanID: sid, TraceFlags: oteltrace.FlagsSampled}),
			Parent:      oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: tid, SpanID: pid}),
			SpanKind:    oteltrace.SpanKindServer,
			StartTime:   start, EndTime: end,
			Attributes:           []attribute.KeyValue{attribute.String("s", "a\"\n\u2028"), attribute.Int64("i", -1<<63), attribute.Float64("f", 0.1), attribute.Bool("b", true)},
			Events:               []sdktrace.Event{{Name: "first token", Time: start.Add(7), Attributes: []attribute.KeyValue{attribute.Int("n", 1)}}},
			Status:               sdktrace.Status{Code: codes.Error, Description: "why"},
			Resource:             res,
			InstrumentationScope: instrumentation.Scope{Name: "vllm.llm_engine", Version: "1"},
		})
		want = append(want, &trace.Span{
			TraceID: tid.String(), SpanID: sid.String(), ParentID: pid.String(),
			Name: list[i].Name, Kind: trace.KindServer, Scope: "vllm.llm_engine", Resource: wantRes,
			Start: trace.Some(trace.Time(start.UnixNano())), End: trace.Some(trace.Time(end.UnixNano())),
			Status: trace.StatusError, StatusMessage: "why",
			Attrs:  []trace.Attr{{Key: "s", Value: trace.StringValue("a\"\n\u2028")}, {Key: "i", Value: trace.IntValue(-1 << 63)}, {Key: "f", Value: trace.FloatValue(0.1)}, {Key: "b", Value: trace.BoolValue(true)}},
			Events: []trace.Event{{At: trace.Some(trace.Time(start.Add(7).UnixNano())), Name: "first token", Attrs: []trace.Attr{{Key: "n", Value: trace.IntValue(1)}}}},
		})
	}
	return list.Snapshots(), want
}

// What the Go SDK's exporters send is what is read, span for span, whatever the
// protocol, the compression and the files' format.
func TestSDK(t *testing.T) {
	for _, w := range []WriterOptions{{}, {Compress: "zstd"}, {Compress: "gzip"}, {Format: Proto}, {Format: Proto, Compress: "zstd"}, {Format: Proto, Compress: "gzip"}} {
		t.Run(fmt.Sprint(w.Format, w.Compress), func(t *testing.T) {
			r := start(t, w, Options{})
			var want []*trace.Span
			batch := byte(0)
			for name, c := range clients(t, r) {
				batch++
				list, spans := stubs(batch, 20)
				if err := c.ExportSpans(t.Context(), list); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				want = append(want, spans...)
			}
			// Acknowledged is written: it is read while the server runs.
			check(t, r.folder, want)
			r.stop()
			check(t, r.folder, want)
			if got := r.w.Totals(); got.Spans != 80 || got.Records != 4 || got.Files != 1 || got.Failed != 0 {
				t.Errorf("totals %+v", got)
			}
			if got := r.Stats(); got.Requests != 4 || got.Refused != 0 {
				t.Errorf("stats %+v", got)
			}
		})
	}
}

func check(t *testing.T, folder string, want []*trace.Span) {
	t.Helper()
	got := spansOf(t, folder)
	byID := func(a, b *trace.Span) int { return cmp.Compare(a.SpanID, b.SpanID) }
	slices.SortFunc(got, byID)
	slices.SortFunc(want, byID)
	if d := gocmp.Diff(want, got, gocmp.AllowUnexported(trace.Value{}), cmpopts.IgnoreFields(trace.Span{}, "Format", "Pos"), gocmp.Comparer(func(a, b trace.Opt[trace.Time]) bool { return a == b })); d != "" {
		t.Errorf("what was read is not what was sent:\n%.3000s", d)
	}
}

// A batch processor, as programs use it, loses nothing when it is shut down.
func TestBatchProcessor(t *testing.T) {
	r := start(t, WriterOptions{Format: Proto}, Options{})
	for name, c := range clients(t, r) {
		p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(c, sdktrace.WithMaxExportBatchSize(7), sdktrace.WithBlocking()))
		for range 50 {
			_, s := p.Tracer("x").Start(t.Context(), name)
			s.End()
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	count := map[string]int{}
	for _, s := range spansOf(t, r.folder) {
		count[s.Name]++
	}
	if want := map[string]int{"grpc": 50, "grpc gzip": 50, "http": 50, "http gzip": 50}; !gocmp.Equal(count, want) {
		t.Errorf("spans %v", count)
	}
}

// What a real vLLM sent is kept byte for byte, and as JSON it reads the same.
func TestSample(t *testing.T) {
	want, err := os.ReadFile(filepath.Join("..", "..", "samples", "vllm-real.pb"))
	if err != nil {
		t.Fatal(err)
	}
	kept, read := start(t, WriterOptions{Format: Proto}, Options{}), start(t, WriterOptions{}, Options{})
	for b := want; len(b) > 0; {
		n := binary.BigEndian.Uint32(b)
		message := b[4 : 4+n]
		b = b[4+n:]
		if _, err := call(t.Context(), dial(t, kept.grpc), exportMethod, message); err != nil {
			t.Fatal(err)
		}
		if !sendHTTP(read.http, message) {
			t.Fatal("refused")
		}
	}
	files, err := filepath.Glob(filepath.Join(kept.folder, "*"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if got, err := os.ReadFile(files[0]); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes are not the sample's %d, %v", len(got), len(want), err)
	}
	check(t, read.folder, spansOf(t, kept.folder))
}
