package otlp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/traceview/traceview/trace"
)

// The collector's own library is the oracle for input that is well-formed.

// fromPdata turns its traces into spans as a decoder should give them.
func fromPdata(td ptrace.Traces) []*trace.Span {
	opt := func(ts pcommon.Timestamp) trace.Opt[trace.Time] {
		if ts == 0 || uint64(ts) > math.MaxInt64 {
			return trace.Opt[trace.Time]{}
		}
		return trace.Some(trace.Time(ts))
	}
	var list []*trace.Span
	for _, rs := range td.ResourceSpans().All() {
		var res *trace.Resource
		if attrs := fromMap(rs.Resource().Attributes()); attrs != nil {
			res = &trace.Resource{Attrs: attrs}
		}
		for _, ss := range rs.ScopeSpans().All() {
			for _, sp := range ss.Spans().All() {
				s := &trace.Span{
					Name: sp.Name(), Kind: trace.SpanKind(sp.Kind()), Scope: ss.Scope().Name(), Resource: res,
					Start: opt(sp.StartTimestamp()), End: opt(sp.EndTimestamp()),
					Status: trace.StatusCode(sp.Status().Code()), StatusMessage: sp.Status().Message(),
					Attrs: fromMap(sp.Attributes()),
				}
				if id := sp.TraceID(); !id.IsEmpty() {
					s.TraceID = hex.EncodeToString(id[:])
				}
				if id := sp.SpanID(); !id.IsEmpty() {
					s.SpanID = hex.EncodeToString(id[:])
				}
				if id := sp.ParentSpanID(); !id.IsEmpty() {
					s.ParentID = hex.EncodeToString(id[:])
				}
				for _, e := range sp.Events().All() {
					s.Events = append(s.Events, trace.Event{At: opt(e.Timestamp()), Name: e.Name(), Attrs: fromMap(e.Attributes())})
				}
				list = append(list, s)
			}
		}
	}
	return list
}

func fromMap(m pcommon.Map) []trace.Attr {
	var list []trace.Attr
	for k, v := range m.All() {
		list = append(list, trace.Attr{Key: k, Value: fromValue(v)})
	}
	return list
}

func fromValue(v pcommon.Value) trace.Value {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return trace.StringValue(v.Str())
	case pcommon.ValueTypeInt:
		return trace.IntValue(v.Int())
	case pcommon.ValueTypeDouble:
		if math.IsNaN(v.Double()) || math.IsInf(v.Double(), 0) {
			return trace.Value{}
		}
		return trace.FloatValue(v.Double())
	case pcommon.ValueTypeBool:
		return trace.BoolValue(v.Bool())
	case pcommon.ValueTypeSlice, pcommon.ValueTypeMap, pcommon.ValueTypeBytes:
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(plain(v)); err != nil {
			panic(err)
		}
		return trace.JSONValue(strings.TrimSpace(b.String()))
	}
	return trace.Value{}
}

// plain is for maps of one key at most, since encoding/json sorts keys.
func plain(v pcommon.Value) any {
	switch v.Type() {
	case pcommon.ValueTypeSlice:
		list := []any{}
		for _, e := range v.Slice().All() {
			list = append(list, plain(e))
		}
		return list
	case pcommon.ValueTypeMap:
		m := map[string]any{}
		for k, e := range v.Map().All() {
			m[k] = plain(e)
		}
		return m
	case pcommon.ValueTypeBytes:
		return append([]byte{}, v.Bytes().AsRaw()...)
	}
	return v.AsRaw()
}

// random makes traces of every shape.
type random struct{ *rand.Rand }

func (r random) text() string {
	parts := []string{"", "a", "service.name", "gen_ai.latency.e2e", "Zürich", "日本", "\"quoted\\", "\n\t\x01", "😀", "{\"resourceSpans\"", "x/y", strings.Repeat("long ", 40)}
	return parts[r.IntN(len(parts))] + parts[r.IntN(len(parts))]
}

func (r random) value(v pcommon.Value, depth int) {
	n := 9
	if depth > 2 {
		n = 6
	}
	switch r.IntN(n) {
	case 0:
	case 1:
		v.SetStr(r.text())
	case 2:
		v.SetInt(int64(r.Uint64()))
	case 3:
		v.SetDouble([]float64{0, 0.25, -1.5, 0.1, 123456.789, 3}[r.IntN(6)])
	case 4:
		v.SetBool(r.IntN(2) == 0)
	case 5:
		v.SetInt(int64(r.IntN(100)))
	case 6:
		s := v.SetEmptySlice()
		for range r.IntN(4) {
			r.value(s.AppendEmpty(), depth+1)
		}
	case 7:
		m := v.SetEmptyMap()
		if r.IntN(2) == 0 {
			r.value(m.PutEmpty(r.text()), depth+1)
		}
	case 8:
		b := v.SetEmptyBytes()
		for range r.IntN(5) {
			b.Append(byte(r.Uint32()))
		}
	}
}

func (r random) attrs(m pcommon.Map) {
	for i := range r.IntN(5) {
		r.value(m.PutEmpty(r.text()+fmt.Sprint(i)), 0)
	}
}

func (r random) time() pcommon.Timestamp {
	return pcommon.Timestamp([]uint64{0, 1, 1760000000000000001, math.MaxInt64, 5}[r.IntN(5)])
}

func (r random) id(b []byte) {
	if r.IntN(8) > 0 {
		for i := range b {
			b[i] = byte(r.Uint32())
		}
	}
}

func (r random) traces() ptrace.Traces {
	td := ptrace.NewTraces()
	for range r.IntN(4) {
		rs := td.ResourceSpans().AppendEmpty()
		r.attrs(rs.Resource().Attributes())
		for range r.IntN(3) {
			ss := rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(r.text())
			ss.Scope().SetVersion("1")
			ss.SetSchemaUrl("https://example.com")
			for range r.IntN(4) {
				s := ss.Spans().AppendEmpty()
				var tid [16]byte
				var sid, pid [8]byte
				r.id(tid[:])
				r.id(sid[:])
				r.id(pid[:])
				s.SetTraceID(tid)
				s.SetSpanID(sid)
				s.SetParentSpanID(pid)
				s.SetName(r.text())
				s.SetKind(ptrace.SpanKind(r.IntN(6)))
				s.SetStartTimestamp(r.time())
				s.SetEndTimestamp(r.time())
				s.SetFlags(r.Uint32())
				s.TraceState().FromRaw("a=b")
				s.Status().SetCode(ptrace.StatusCode(r.IntN(3)))
				s.Status().SetMessage(r.text())
				r.attrs(s.Attributes())
				for range r.IntN(3) {
					e := s.Events().AppendEmpty()
					e.SetName(r.text())
					e.SetTimestamp(r.time())
					r.attrs(e.Attributes())
				}
				for range r.IntN(2) {
					s.Links().AppendEmpty().SetTraceID(tid)
				}
			}
		}
	}
	return td
}

// same compares what a decoder gave with what it should have given.
func same(want, got []*trace.Span) string {
	for _, s := range got {
		s.Pos, s.Format = trace.Pos{}, ""
	}
	return cmp.Diff(want, got, cmp.AllowUnexported(trace.Opt[trace.Time]{}, trace.Value{}))
}

func TestAgainstPdata(t *testing.T) {
	r := random{rand.New(rand.NewPCG(1, 2))}
	for i := range 400 {
		td := r.traces()
		want := fromPdata(td)
		j, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		if err != nil {
			t.Fatal(err)
		}
		res := decodeJSON(t, bytes.NewReader(j))
		if diff := same(want, res.spans); diff != "" || len(res.issues) > 0 {
			t.Fatalf("JSON %d: %v\n%s\n%s", i, res.issues, diff, j)
		}
		var pretty bytes.Buffer
		if err := json.Indent(&pretty, j, "", "\t"); err != nil {
			t.Fatal(err)
		}
		res = decodeJSON(t, &pretty)
		if diff := same(want, res.spans); diff != "" || len(res.issues) > 0 {
			t.Fatalf("pretty JSON %d: %v\n%s", i, res.issues, diff)
		}
		res = decodeProto(t, bytes.NewReader(p))
		if diff := same(want, res.spans); diff != "" || len(res.issues) > 0 {
			t.Fatalf("protobuf %d: %v\n%s", i, res.issues, diff)
		}
		if len(want) > 0 && !SniffJSON(j) {
			t.Errorf("not recognised: %.200s", j)
		}
		if len(want) > 0 && !SniffProto(p) {
			t.Errorf("not recognised: % .40x", p)
		}
	}
}

// wellFormed checks what holds for every span and issue, whatever the input.
func wellFormed(t *testing.T, res result, size int) {
	t.Helper()
	inside := func(p trace.Pos) {
		if p.Offset < 0 || p.Offset > int64(size) || p.File != "f" {
			t.Errorf("position %+v in %d bytes", p, size)
		}
	}
	for _, s := range res.spans {
		inside(s.Pos)
		if s.Pos.Path == "" || s.Format == "" {
			t.Errorf("a span without path or format: %+v", s)
		}
		for _, o := range []trace.Opt[trace.Time]{s.Start, s.End} {
			if v, ok := o.Get(); ok && v <= 0 {
				t.Errorf("time %d", v)
			}
		}
		for _, text := range []string{s.TraceID, s.SpanID, s.ParentID, s.Name, s.Scope, s.StatusMessage} {
			if strings.ToValidUTF8(text, "") != text {
				t.Errorf("invalid text %q", text)
			}
		}
		for _, a := range s.Attrs {
			if v := a.Value.String(); strings.ToValidUTF8(v, "") != v || a.Value.Kind() == trace.ValueJSON && !json.Valid([]byte(v)) {
				t.Errorf("attribute %q: %q", a.Key, v)
			}
			if f, ok := a.Value.Float(); ok && (math.IsNaN(f) || math.IsInf(f, 0)) {
				t.Errorf("attribute %q: %v", a.Key, f)
			}
		}
		for _, is := range s.Issues {
			inside(is.Pos)
		}
	}
	for _, is := range res.issues {
		inside(is.Pos)
	}
}

func FuzzJSON(f *testing.F) {
	r := random{rand.New(rand.NewPCG(3, 4))}
	for range 5 {
		j, err := (&ptrace.JSONMarshaler{}).MarshalTraces(r.traces())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(j)
		f.Add(j[:len(j)*2/3])
		f.Add(append(j[:len(j)/2:len(j)/2], j...))
	}
	f.Add([]byte("[agent] x - " + batch("a") + "\n" + batch("b")[:70]))
	f.Fuzz(func(t *testing.T, data []byte) {
		res := decodeJSON(t, bytes.NewReader(data))
		wellFormed(t, res, len(data))
		if res.dec.Spans != len(res.spans) {
			t.Errorf("%d spans counted, %d given", res.dec.Spans, len(res.spans))
		}
		// Followed by a good line, the good line is read.
		after := decodeJSON(t, bytes.NewReader(append(append(bytes.Clone(data), '\n'), batch("the last")...)))
		if n := len(after.spans); n == 0 || after.spans[n-1].Name != "the last" {
			t.Errorf("the line behind is lost: %s", after.String())
		}
		// Where the oracle reads spans from one value, so do we, the same.
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data)
		if err != nil || !json.Valid(data) || len(res.issues) > 0 {
			return
		}
		for _, s := range res.spans {
			if len(s.Issues) > 0 {
				return
			}
		}
		if td.SpanCount() != len(res.spans) && !oddKeys(data) {
			t.Errorf("%d spans, the oracle has %d", len(res.spans), td.SpanCount())
		}
	})
}

// oddKeys reports whether the text has something that only one of both reads:
// other names for the lists, names with escapes.
func oddKeys(data []byte) bool {
	for _, k := range []string{"batches", "traces", "result", "trace\"", "data\"", "nstrumentation", "\\"} {
		if bytes.Contains(data, []byte(k)) {
			return true
		}
	}
	return !bytes.HasPrefix(bytes.TrimSpace(data), []byte(`{"resourceSpans"`))
}

func FuzzProto(f *testing.F) {
	r := random{rand.New(rand.NewPCG(5, 6))}
	for range 5 {
		p, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(r.traces())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(p)
		f.Add(p[:len(p)*2/3])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		res := decodeProto(t, bytes.NewReader(data))
		wellFormed(t, res, len(data))
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data)
		// Of groups, which nobody writes, the oracle also takes those without an
		// end. Such a span is lost to us, and told of.
		told := len(res.spans)
		for _, is := range res.issues {
			if is.Code == trace.BadSpan {
				told++
			}
		}
		if err == nil && td.SpanCount() != told {
			t.Errorf("%d spans read or told of, the oracle has %d; %v", told, td.SpanCount(), res.issues)
		}
	})
}

// vllmBatch is n generated spans of vLLM V1, perBatch a message.
func vllmBatch(n, perBatch int) []ptrace.Traces {
	var list []ptrace.Traces
	for i := 0; i < n; i += perBatch {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", "vllm-server")
		rs.Resource().Attributes().PutStr("telemetry.sdk.language", "python")
		ss := rs.ScopeSpans().AppendEmpty()
		ss.Scope().SetName("vllm.llm_engine")
		for j := i; j < min(n, i+perBatch); j++ {
			s := ss.Spans().AppendEmpty()
			s.SetTraceID([16]byte{1, 2, 3, byte(j >> 16), byte(j >> 8), byte(j), 7: 9})
			s.SetSpanID([8]byte{5, byte(j >> 16), byte(j >> 8), byte(j)})
			s.SetName("llm_request")
			s.SetKind(ptrace.SpanKindServer)
			start := pcommon.Timestamp(1760000000000000000 + j*1000003)
			s.SetStartTimestamp(start)
			s.SetEndTimestamp(start + 1500000000)
			a := s.Attributes()
			a.PutDouble("gen_ai.latency.time_to_first_token", 0.2511+float64(j)/1e6)
			a.PutDouble("gen_ai.latency.e2e", 1.4987+float64(j)/1e6)
			a.PutDouble("gen_ai.latency.time_in_queue", 0.1003+float64(j)/1e7)
			a.PutInt("gen_ai.usage.prompt_tokens", int64(j%4000))
			a.PutInt("gen_ai.usage.completion_tokens", int64(j%500))
			a.PutDouble("gen_ai.latency.time_in_model_prefill", 0.1508)
			a.PutDouble("gen_ai.latency.time_in_model_decode", 1.2465)
			a.PutDouble("gen_ai.latency.time_in_model_inference", 1.3973)
			a.PutStr("gen_ai.request.id", fmt.Sprintf("chatcmpl-%032x", j))
			a.PutInt("gen_ai.request.max_tokens", 512)
			a.PutDouble("gen_ai.request.temperature", 0.7)
			a.PutDouble("gen_ai.request.top_p", 0.95)
			a.PutInt("gen_ai.request.n", 1)
		}
		list = append(list, td)
	}
	return list
}

func benchmark(b *testing.B, data []byte, spans int, decode func(*Decoder, *bytes.Reader) error) {
	n := 0
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		d := NewDecoder(1<<28, func(s *trace.Span, _ *trace.Issue) bool { n++; return s != nil })
		if err := decode(d, bytes.NewReader(data)); err != nil {
			b.Fatal(err)
		}
	}
	if n != b.N*spans {
		b.Fatalf("%d spans in %d rounds", n, b.N)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "spans/s")
}

func BenchmarkJSON(b *testing.B) {
	for _, per := range []int{1, 512, 10000} {
		var data []byte
		for _, td := range vllmBatch(10000, per) {
			j, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
			if err != nil {
				b.Fatal(err)
			}
			data = append(append(data, j...), '\n')
		}
		b.Run(fmt.Sprintf("batch=%d", per), func(b *testing.B) {
			benchmark(b, data, 10000, func(d *Decoder, r *bytes.Reader) error { return d.JSON(r, At{Line: 1}) })
		})
	}
}

func BenchmarkProto(b *testing.B) {
	for _, per := range []int{1, 512, 10000} {
		var data []byte
		for _, td := range vllmBatch(10000, per) {
			p, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			if err != nil {
				b.Fatal(err)
			}
			data = append(data, p...)
		}
		b.Run(fmt.Sprintf("batch=%d", per), func(b *testing.B) {
			benchmark(b, data, 10000, func(d *Decoder, r *bytes.Reader) error { return d.Proto(r, At{}) })
		})
	}
}

// BenchmarkPdata is how fast the collector's own library reads the same.
func BenchmarkPdata(b *testing.B) {
	td := vllmBatch(10000, 10000)[0]
	j, err := (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(j)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(j); err != nil {
			b.Fatal(err)
		}
	}
}
