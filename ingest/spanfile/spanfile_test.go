package spanfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// containers are those that are text.
var containers = []*Container{&Jaeger, &Zipkin, &ClickHouse, &PythonConsole, &GoConsole, &JSConsole}

// decode writes each span as "trace/span<parent name kind start+length", in µs
// since 1788000000 s, with its service, status, events and attributes where
// they are asked for; and each issue as "!code".
func decode(t testing.TB, c *Container, in string, limit int64) string {
	t.Helper()
	var out []string
	codes := func(list []trace.Issue) (s string) {
		for _, is := range list {
			s += " !" + string(is.Code)
		}
		return s
	}
	d := NewDecoder(limit, nil, func(s *trace.Span, is *trace.Issue) bool {
		if is != nil {
			out = append(out, "!"+string(is.Code))
			return true
		}
		line := fmt.Sprintf("%s/%s", strings.TrimLeft(s.TraceID, "0"), s.SpanID)
		if s.ParentID != "" {
			line += "<" + s.ParentID
		}
		line += fmt.Sprintf(" %s %d", s.Name, s.Kind)
		if a, ok := s.Start.Get(); ok {
			line += fmt.Sprintf(" %v", (a-1788000000e9)/1000)
			if z, ok := s.End.Get(); ok {
				line += fmt.Sprintf("+%v", z.Sub(a))
			}
		}
		if v, ok := s.ResourceAttr("service.name"); ok {
			line += " of " + v.String()
		}
		if s.Status != 0 {
			line += fmt.Sprintf(" status=%d%s", s.Status, s.StatusMessage)
		}
		for _, a := range s.Attrs {
			line += fmt.Sprintf(" %s=%d:%s", a.Key, a.Value.Kind(), a.Value)
		}
		for _, e := range s.Events {
			line += fmt.Sprintf(" @%v %s", (e.At.Or(0)-1788000000e9)/1000, e.Name)
		}
		out = append(out, line+codes(s.Issues))
		return true
	})
	if err := readAll(d, c, in); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

func readAll(d *Decoder, c *Container, in string) error {
	at := scan.At{File: "f", Line: 1}
	if c == &JSConsole {
		return d.JS(strings.NewReader(in), at)
	}
	return d.JSON(c, strings.NewReader(in), at)
}

const (
	jaegerOne = `{"traceID":"a1","spanID":"b2","operationName":"q","startTime":1788000000000000,"duration":5,"process":{"serviceName":"e"}}`
	zipkinOne = `{"traceId":"00000000000000000000000000000001","id":"b2","name":"q","timestamp":1788000000000000,"duration":5,"localEndpoint":{"serviceName":"e"}}`
)

func TestContainers(t *testing.T) {
	span := func(more string) string {
		return `{"data":[{"traceID":"a1","spans":[{"traceID":"a1","spanID":"b2","operationName":"q","startTime":1788000000000000,"duration":5` + more + `}],"processes":{"p1":{"serviceName":"e"}}}]}`
	}
	row := func(more string) string {
		return `{"Timestamp":"2026-08-29 10:40:00.000001000","TraceId":"01","SpanId":"b2","SpanName":"q","SpanKind":"Server","Duration":"5000"` + more + "}\n"
	}
	for _, tt := range []struct {
		c              *Container
		name, in, want string
	}{
		{&Jaeger, "ids without zeros", span(""), "a1/00000000000000b2 q 0 0+5µs"},
		{&Jaeger, "process", span(`,"processID":"p1"`), "a1/00000000000000b2 q 0 0+5µs of e"},
		{&Jaeger, "no such process", span(`,"processID":"p2"`), "a1/00000000000000b2 q 0 0+5µs"},
		{&Jaeger, "references", span(`,"references":[{"refType":"FOLLOWS_FROM","traceID":"a1","spanID":"c1"},{"refType":"CHILD_OF","traceID":"ff","spanID":"c2"},{"refType":"CHILD_OF","traceID":"a1","spanID":"c3"}]`),
			"a1/00000000000000b2<00000000000000c3 q 0 0+5µs"},
		{&Jaeger, "old parent", span(`,"parentSpanID":"c3"`), "a1/00000000000000b2<00000000000000c3 q 0 0+5µs"},
		{&Jaeger, "types", span(`,"tags":[{"key":"i","type":"int64","value":"9007199254740993"},{"key":"f","type":"float64","value":2},{"key":"b","type":"bool","value":true},{"key":"x","type":"binary","value":"AQI="},{"key":"n","value":null}]`),
			`a1/00000000000000b2 q 0 0+5µs i=2:9007199254740993 f=3:2 b=4:true x=5:"AQI=" n=0:`},
		{&Jaeger, "kind and status", span(`,"tags":[{"key":"span.kind","type":"string","value":"server"},{"key":"error","type":"bool","value":true},{"key":"otel.status_description","type":"string","value":"no"}]`),
			"a1/00000000000000b2 q 2 0+5µs status=2no"},
		{&Jaeger, "an event", span(`,"logs":[{"timestamp":1788000000000003,"fields":[{"key":"event","type":"string","value":"first_token"}]}]`), "a1/00000000000000b2 q 0 0+5µs @3 first_token"},
		{&Jaeger, "moved", span(`,"warnings":["This span's timestamps were adjusted by 2ms","other"]`), "a1/00000000000000b2 q 0 0+5µs !clock-adjusted"},
		{&Jaeger, "not moved", span(`,"warnings":["clock skew adjustment disabled; not applying calculated delta of 2ms"]`), "a1/00000000000000b2 q 0 0+5µs"},
		{&Jaeger, "one span", jaegerOne, "a1/00000000000000b2 q 0 0+5µs of e"},
		{&Jaeger, "spans in an array", "[" + jaegerOne + "]", "a1/00000000000000b2 q 0 0+5µs of e"},
		{&Jaeger, "Elasticsearch", `{"_index":"jaeger-span","_source":` + jaegerOne + "}\n" + `{"hits":{"hits":[{"_source":` + jaegerOne + `}]}}`,
			"a1/00000000000000b2 q 0 0+5µs of e\na1/00000000000000b2 q 0 0+5µs of e"},
		{&Jaeger, "a span broken", span(`},{"traceID":"a1","spanID" 7},{"traceID":"a1","spanID":"b3","operationName":"r"`), "a1/00000000000000b2 q 0 0+5µs\n!bad-span\na1/00000000000000b3 r 0"},
		{&Jaeger, "torn", span(`},{"traceID":"a1","spanID":"b3","operationName":"r"`)[:150], "a1/00000000000000b2 q 0 0+5µs\n!truncated"},
		{&Jaeger, "too long", strings.Replace(jaegerOne, `"duration":5`, `"duration":9223372036854775807`, 1), "a1/00000000000000b2 q 0 0 of e !time-out-of-range"},
		{&Jaeger, "below zero", strings.Replace(jaegerOne, `"duration":5`, `"duration":-5`, 1), "a1/00000000000000b2 q 0 0+-5µs of e"},
		{&Jaeger, "wrong types", strings.Replace(jaegerOne, `"duration":5`, `"duration":{},"tags":7,"logs":{"a":1},"references":"x","warnings":3`, 1),
			"a1/00000000000000b2 q 0 0 of e !bad-field !bad-field !bad-field !bad-field !bad-field"},
		{&Jaeger, "a key twice", strings.Replace(jaegerOne, `"duration":5`, `"duration":4,"duration":5`, 1), "a1/00000000000000b2 q 0 0+5µs of e !duplicate-key"},

		{&Zipkin, "one", "[" + zipkinOne + "]", "1/00000000000000b2 q 0 0+5µs of e"},
		{&Zipkin, "arrays of arrays", "[[" + zipkinOne + "],[" + zipkinOne + "]]", "1/00000000000000b2 q 0 0+5µs of e\n1/00000000000000b2 q 0 0+5µs of e"},
		{&Zipkin, "shared", `[{"traceId":"1","id":"b2","parentId":"a1","kind":"SERVER","shared":true,"name":"q","timestamp":1788000000000000}]`,
			"1/00000000000000b2-shared<00000000000000b2 q 2 0"},
		{&Zipkin, "no duration", strings.Replace(zipkinOne, `,"duration":5`, "", 1), "1/00000000000000b2 q 0 0 of e"},
		{&Zipkin, "no times", `{"traceId":"1","id":"b2","annotations":[]}`, "1/00000000000000b2  0"},
		{&Zipkin, "annotations", strings.Replace(zipkinOne, `"name"`, `"annotations":[{"timestamp":1788000000000001,"value":"queued"},{"timestamp":1788000000000002,"value":"first_token|{\"a\":\"1\"}|0"},{"timestamp":1788000000000003,"value":"x: {}"}],"name"`, 1),
			"1/00000000000000b2 q 0 0+5µs of e @1 queued @2 first_token @3 x"},
		{&Zipkin, "error", strings.Replace(zipkinOne, `"name"`, `"tags":{"error":"cancelled","a":"1","host.name":"h"},"name"`, 1), "1/00000000000000b2 q 0 0+5µs of e status=2cancelled a=1:1"},

		{&ClickHouse, "a row", row(`,"ServiceName":"e","StatusCode":"Error","StatusMessage":"no","SpanAttributes":{"a":"1"}`), "1/00000000000000b2 q 2 1+5µs of e status=2no a=1:1 !zone-assumed"},
		{&ClickHouse, "old names", strings.Replace(row(`,"StatusCode":"STATUS_CODE_UNSET"`), `"Server"`, `"SPAN_KIND_CLIENT"`, 1), "1/00000000000000b2 q 3 1+5µs !zone-assumed"},
		{&ClickHouse, "type JSON", row(`,"SpanAttributes":{"gen_ai":{"usage":{"prompt_tokens":5}},"b":[1,2]}`), "1/00000000000000b2 q 2 1+5µs gen_ai.usage.prompt_tokens=2:5 b=5:[1,2] !zone-assumed"},
		{&ClickHouse, "an answer", `{"meta":[{"name":"TraceId"}],"data":[` + row("") + "," + row("") + `],"rows":2}`, "1/00000000000000b2 q 2 1+5µs !zone-assumed\n1/00000000000000b2 q 2 1+5µs"},
		{&ClickHouse, "end before start", strings.Replace(row(""), `"5000"`, `"18446744073709546616"`, 1), "1/00000000000000b2 q 2 1+-5µs !zone-assumed"},
		{&ClickHouse, "events", row(`,"Events.Timestamp":["2026-08-29 10:40:00.000002000","2026-08-29 10:40:00.000003000"],"Events.Name":["queued"],"Events.Attributes":[{},{}]`), "1/00000000000000b2 q 2 1+5µs @2 queued @3  !zone-assumed"},
		{&ClickHouse, "stamps as numbers", strings.Replace(row(""), `"2026-08-29 10:40:00.000001000"`, `1788000000.000001`, 1), "1/00000000000000b2 q 2 1+5µs"},
		{&ClickHouse, "one row torn", row("") + row("")[:90] + "\n" + row(""), "1/00000000000000b2 q 2 1+5µs !zone-assumed\n!bad-json\n1/00000000000000b2 q 2 1+5µs"},

		{&PythonConsole, "no 0x, behind a log's text", "INFO x {y}\n(Proxy pid=1) {\"name\":\"q\",\"context\":{\"trace_id\":\"0x01\",\"span_id\":\"0xb2\"},\"kind\":\"SpanKind.CLIENT\",\"parent_id\":\"00000000000000a9\",\"start_time\":\"2026-08-29T10:40:00.000001Z\",\"end_time\":null}\n",
			"!foreign-line\n1/00000000000000b2<00000000000000a9 q 3 1"},
		{&PythonConsole, "values", `{"name":"q","context":{"trace_id":"0x1","span_id":"0x2"},"parent_id":null,"start_time":"x","attributes":{"n":NaN,"i":Infinity,"u":18446744073709551615,"f":1e3,"l":[1,"a",{"k":null,"n":NaN}],"z":null}}`,
			`1/0000000000000002 q 0 n=0: i=0: u=3:1.8446744073709552e+19 f=3:1000 l=5:[1,"a",{"k":null,"n":null}] z=0: !bad-field !bad-number !bad-number !bad-number`},
		{&PythonConsole, "nested too deep", `{"name":"q","context":{"trace_id":"0x1","span_id":"0x2"},"attributes":{"x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000) + `}}`,
			"1/0000000000000002 q 0 x=0: !bad-field"},
		{&PythonConsole, "other objects", `{"name":"a metric"} {"name":"q","context":{"trace_id":"0x1","span_id":"0x2"}}`, "1/0000000000000002 q 0"},

		{&PythonConsole, "what a program prints", "{'a': 1}\n{ starting\n" + `{"name":"q","context":{"trace_id":"0x1","span_id":"0x2"}}` + "\n", "!foreign-line\n!foreign-line\n1/0000000000000002 q 0"},
		{&GoConsole, "no times", `{"Name":"q","SpanContext":{"TraceID":"00000000000000000000000000000001","SpanID":"00000000000000b2"},"Parent":{"TraceID":"00000000000000000000000000000000","SpanID":"0000000000000000"},"SpanKind":3,"StartTime":"0001-01-01T00:00:00Z","EndTime":"0001-01-01T00:00:00Z","Status":{"Code":"Unset"}}`,
			"1/00000000000000b2 q 3"},
		{&GoConsole, "beyond int64", `{"Name":"q","SpanContext":{"TraceID":"01","SpanID":"b2"},"StartTime":"2500-01-01T00:00:00Z","EndTime":"1950-01-01T00:00:00Z"}`, "1/00000000000000b2 q 0 !time-out-of-range !time-out-of-range"},
		{&GoConsole, "a long id", `{"Name":"q","SpanContext":{"TraceID":"` + strings.Repeat("a", 1000) + `","SpanID":"zz"}}`, strings.Repeat("a", 1000) + "/zz q 0 !bad-id !bad-id"},
	} {
		if got := decode(t, tt.c, tt.in, 1<<20); got != tt.want {
			t.Errorf("%s, %s:\n got %s\nwant %s", tt.c.Name, tt.name, got, tt.want)
		}
	}
}

// Each container knows its own files, and no other's.
func TestSniff(t *testing.T) {
	for form, c := range map[sim.Form]*Container{
		sim.Jaeger: &Jaeger, sim.Zipkin: &Zipkin, sim.ClickHouse: &ClickHouse, sim.PythonConsole: &PythonConsole, sim.GoConsole: &GoConsole,
		sim.JSConsole: &JSConsole,
	} {
		var b strings.Builder
		if err := sim.Encode(&b, captured(), sim.Encoding{Form: form}); err != nil {
			t.Fatal(err)
		}
		for _, x := range containers {
			if got := x.Sniff([]byte(b.String())); got != (x == c) {
				t.Errorf("%s takes %s: %v", x.Name, form, got)
			}
		}
	}
}

func fuzz(f *testing.F, c *Container, form sim.Form) {
	var b strings.Builder
	if err := sim.Encode(&b, captured(), sim.Encoding{Form: form}); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(b.String()))
	files, _ := filepath.Glob("testdata/*.json")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		if c.Sniff(data) {
			f.Add(data)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c.Sniff(data)
		spans := 0
		d := NewDecoder(1<<16, nil, func(s *trace.Span, is *trace.Issue) bool {
			var list []trace.Issue
			if s != nil {
				spans++
				list = s.Issues
				// Dates are of this era; what counts from 1970 may be below it, which
				// is for the engine's table to judge.
				if a, ok := s.Start.Get(); ok && a < 0 && (c == &PythonConsole || c == &GoConsole) {
					t.Fatalf("a start at %d", a)
				}
			} else {
				list = []trace.Issue{*is}
			}
			for _, is := range list {
				if is.Pos.Offset < 0 || is.Pos.Offset > int64(len(data)) || is.Pos.File != "f" || is.Code.Info().Meaning == "" {
					t.Fatalf("an issue at %+v: %v", is.Pos, is)
				}
			}
			return true
		})
		if err := readAll(d, c, string(data)); err != nil || d.Spans != spans {
			t.Fatalf("%v; %d spans of %d", err, spans, d.Spans)
		}
	})
}

func FuzzJaeger(f *testing.F)     { fuzz(f, &Jaeger, sim.Jaeger) }
func FuzzZipkin(f *testing.F)     { fuzz(f, &Zipkin, sim.Zipkin) }
func FuzzClickHouse(f *testing.F) { fuzz(f, &ClickHouse, sim.ClickHouse) }
func FuzzPython(f *testing.F)     { fuzz(f, &PythonConsole, sim.PythonConsole) }
func FuzzGo(f *testing.F)         { fuzz(f, &GoConsole, sim.GoConsole) }

func TestJS(t *testing.T) {
	const head = "{\n  traceId: '01',\n  id: 'b2',\n  timestamp: 1788000000000001,\n  duration: 5.25,\n"
	const tail = "  links: []\n}\n"
	const want = "1/00000000000000b2  0 1+5.25µs"
	for _, tt := range []struct{ name, in, want string }{
		{"plain", head + tail, want},
		{"colours", strings.ReplaceAll(strings.ReplaceAll(head, "'01'", "\x1b[32m'01'\x1b[39m"), "5.25", "\x1b[33m5.25\x1b[39m") + tail, want},
		{"CRLF", strings.ReplaceAll(head+tail, "\n", "\r\n"), want},
		{"kinds", head + "  kind: 4\n}\n", "1/00000000000000b2  5 1+5.25µs"},
		{"no such kind", head + "  kind: 5\n}\n", want + " !bad-field"},
		{"values", head + "  attributes: {\n    a: -1.5e+21, b: NaN, 'c d': 12n, e: undefined, f: [Object], g: [ 1, 'x', ... 3 more items ], h: \"it's\", i: `'\"`, j: 'a' +\n      'b', k: [Function: x], l: 'a\\n\\x41\\'', m: Foo { z: 1 }, n: [Object: null prototype] {}, o: Map(1) { 'q' => 2 }\n  }\n}\n", "!bad-span"},
		{"more values", head + "  attributes: {\n    a: -1.5e+21, b: NaN, 'c d': 12n, e: undefined, f: [Object], g: [ 1, 'x', ... 3 more items ], h: \"it's\", i: `'\"`, j: 'a' +\n      'b', k: [Function: x], l: 'a\\n\\x41\\'', m: Foo { z: 1 }, n: [Object: null prototype] {}\n  }\n}\n",
			want + " a=3:-1.5e+21 b=0: c d=2:12 e=0: f=0: g=5:[1,\"x\",null] h=1:it's i=1:'\" j=1:ab k=0: l=1:a\nA' m=5:{\"z\":1} n=5:{} !bad-number"},
		{"text between", "start\n" + head + tail + "hello {\n" + head + tail + "end\n", "!foreign-line\n" + want + "\n!foreign-line\n" + want + "\n!foreign-line"},
		{"torn in the middle", head + head + tail, "!bad-json\n" + want},
		{"torn at the end", head + tail + head, want + "\n!truncated"},
		{"other objects", "{\n  a: 1\n}\n" + head + tail, want},
		{"too large", "{\n  x: '" + strings.Repeat("x", 1<<20) + "',\n}\n" + head + tail, "!record-too-large\n" + want},
		{"old names", "{\n  traceId: '01',\n  parentId: 'a1',\n  name: 'q',\n  id: 'b2',\n  timestamp: 1788000000000001,\n  duration: 5\n}", "1/00000000000000b2<00000000000000a1 q 0 1+5µs"},
	} {
		if got := decode(t, &JSConsole, tt.in, 1<<20); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.name, got, tt.want)
		}
	}
}

func FuzzJS(f *testing.F) { fuzz(f, &JSConsole, sim.JSConsole) }

func BenchmarkContainers(b *testing.B) {
	var spans []*trace.Span
	for range 500 {
		spans = append(spans, captured()...)
	}
	for _, form := range sim.SpanFiles() {
		var data strings.Builder
		if err := sim.Encode(&data, spans, sim.Encoding{Form: form}); err != nil {
			b.Fatal(err)
		}
		b.Run(string(form), func(b *testing.B) {
			c := &ClickHouseParquet
			for _, x := range containers {
				if x.Sniff([]byte(data.String())) {
					c = x
				}
			}
			n := 0
			b.SetBytes(int64(data.Len()))
			b.ReportAllocs()
			for b.Loop() {
				d := NewDecoder(64<<20, nil, func(s *trace.Span, _ *trace.Issue) bool {
					if s != nil {
						n++
					}
					return true
				})
				var err error
				if c == &ClickHouseParquet {
					_, err = d.Parquet(strings.NewReader(data.String()), int64(data.Len()), scan.At{})
				} else {
					err = readAll(d, c, data.String())
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			if n != b.N*len(spans) {
				b.Fatalf("%d spans in %d rounds", n, b.N)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "spans/s")
		})
	}
}
