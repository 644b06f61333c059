package spanfile

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// captured are the spans that the programs in testdata have the SDKs write.
func captured() []*trace.Span {
	at := func(ms int64) trace.Opt[trace.Time] { return trace.Some(trace.Time((1788000000000 + ms) * 1e6)) }
	res := &trace.Resource{Attrs: []trace.Attr{
		{Key: "service.instance.id", Value: trace.StringValue("gpu-3")}, {Key: "service.name", Value: trace.StringValue("engine-a")},
	}}
	return []*trace.Span{
		{
			TraceID: "5b8efff798038103d269b633813fc60c", SpanID: "1111aaaa2222bbbb", ParentID: "eee19b7ec3c1b174",
			Name: "llm_request", Kind: trace.KindServer, Scope: "demo.tracer", Resource: res, Start: at(100), End: at(2500), Status: trace.StatusOK,
			Attrs: []trace.Attr{
				{Key: "gen_ai.request.id", Value: trace.StringValue("req-1")}, {Key: "gen_ai.usage.prompt_tokens", Value: trace.IntValue(512)},
				{Key: "gen_ai.latency.time_in_queue", Value: trace.FloatValue(0.7)}, {Key: "stream", Value: trace.BoolValue(true)},
				{Key: "gen_ai.response.finish_reasons", Value: trace.JSONValue(`["stop"]`)},
			},
			Events: []trace.Event{{At: at(900), Name: "first_token", Attrs: []trace.Attr{{Key: "n", Value: trace.IntValue(1)}}}},
		},
		{
			TraceID: "5b8efff798038103d269b633813fc60c", SpanID: "eee19b7ec3c1b174",
			Name: "POST /v1/completions", Kind: trace.KindServer, Scope: "demo.tracer", Resource: res, Start: at(0), End: at(2600),
		},
		{
			TraceID: "0000000000000000a1b2c3d4e5f60718", SpanID: "0333cccc4444dddd",
			Name: "llm_request", Kind: trace.KindInternal, Scope: "demo.tracer", Resource: res, Start: at(3000), End: at(3000),
			Status: trace.StatusError, StatusMessage: "it's gone",
		},
	}
}

// What SDKs and stores themselves wrote reads as the spans that they were
// given, but for what a container cannot tell.
func TestCaptures(t *testing.T) {
	typeless := func(s *trace.Span) {
		for i, a := range s.Attrs {
			s.Attrs[i].Value = trace.StringValue(a.Value.String())
		}
		for _, e := range s.Events {
			for i, a := range e.Attrs {
				e.Attrs[i].Value = trace.StringValue(a.Value.String())
			}
		}
	}
	for _, tt := range []struct {
		file   string
		c      *Container
		loses  func(*trace.Span)
		issues int
	}{
		{"python-console.txt", &PythonConsole, func(s *trace.Span) { s.Scope = "" }, 1}, // and a line of log
		{"go-console.json", &GoConsole, func(s *trace.Span) {}, 0},
		{"zipkin.json", &Zipkin, func(s *trace.Span) {
			typeless(s)
			if s.Kind == trace.KindInternal {
				s.Kind = trace.KindUnspecified
			}
			for i := range s.Events {
				s.Events[i].Attrs = nil
			}
		}, 0},
		{"js-console.txt", &JSConsole, func(s *trace.Span) {}, 1},
		{"clickhouse.jsonl", &ClickHouse, typeless, 0},
		{"clickhouse.json", &ClickHouse, typeless, 0},
		{"clickhouse.parquet", &ClickHouseParquet, func(s *trace.Span) {
			typeless(s)
			for i := range s.Events {
				s.Events[i].Attrs = nil
			}
		}, 0},
		{"jaeger.json", &Jaeger, func(s *trace.Span) {
			for i, a := range s.Attrs { // arrays are text
				if a.Value.Kind() == trace.ValueJSON {
					s.Attrs[i].Value = trace.StringValue(a.Value.String())
				}
			}
		}, 0},
	} {
		t.Run(tt.file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", tt.file))
			if err != nil {
				t.Fatal(err)
			}
			if !tt.c.Sniff(data) {
				t.Error("it is not recognised")
			}
			var got []*trace.Span
			issues := 0
			d := NewDecoder(1<<20, time.UTC, func(s *trace.Span, is *trace.Issue) bool {
				if is != nil {
					issues++
					return true
				}
				if s.Pos.Line == 0 && s.Pos.Path == "" || s.Format != tt.c.Name || len(s.Issues) > 0 {
					t.Errorf("%s: %+v %v", s.Format, s.Pos, s.Issues)
				}
				got = append(got, s)
				return true
			})
			at := scan.At{File: "f", Line: 1}
			switch tt.c {
			case &ClickHouseParquet:
				_, err = d.Parquet(bytes.NewReader(data), int64(len(data)), at)
			case &JSConsole:
				err = d.JS(bytes.NewReader(data), at)
			default:
				err = d.JSON(tt.c, bytes.NewReader(data), at)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := captured()
			for _, s := range want {
				tt.loses(s)
				s.Format, s.Step, s.Untyped = tt.c.Name, tt.c.step, tt.c.untyped
			}
			for _, s := range got {
				s.Pos = trace.Pos{}
				slices.SortFunc(s.Resource.Attrs, func(a, b trace.Attr) int { return cmp.Compare(a.Key, b.Key) })
			}
			byID := func(a, b *trace.Span) int { return cmp.Compare(a.SpanID, b.SpanID) }
			slices.SortFunc(got, byID)
			slices.SortFunc(want, byID)
			if issues != tt.issues {
				t.Errorf("%d issues", issues)
			}
			if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(trace.Value{}, trace.Opt[trace.Time]{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}
