package otlp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/trace"
)

const testMax = 1 << 20

// result is what a decoder gave.
type result struct {
	spans  []*trace.Span
	issues []*trace.Issue
	dec    *Decoder
}

// decodeJSON decodes all of r.
func decodeJSON(t testing.TB, r io.Reader) result {
	t.Helper()
	var res result
	res.dec = NewDecoder(testMax, res.sink)
	if err := res.dec.JSON(r, At{File: "f", Line: 1}); err != nil {
		t.Fatal(err)
	}
	return res
}

func decodeProto(t testing.TB, r io.Reader) result {
	t.Helper()
	var res result
	res.dec = NewDecoder(testMax, res.sink)
	if err := res.dec.Proto(r, At{File: "f"}); err != nil {
		t.Fatal(err)
	}
	return res
}

func (r *result) sink(s *trace.Span, is *trace.Issue) bool {
	if is != nil {
		r.issues = append(r.issues, is)
	} else {
		r.spans = append(r.spans, s)
	}
	return true
}

// names lists the spans' names, then the codes of all issues.
func (r *result) String() string {
	var b strings.Builder
	for _, s := range r.spans {
		fmt.Fprintf(&b, "%s ", s.Name)
	}
	b.WriteString("|")
	for _, s := range r.spans {
		for _, is := range s.Issues {
			fmt.Fprintf(&b, " %s:%s", s.Name, is.Code)
		}
	}
	for _, is := range r.issues {
		fmt.Fprintf(&b, " %s", is.Code)
	}
	return strings.TrimSpace(b.String())
}

// batch is a document with spans of these names.
func batch(names ...string) string {
	var spans []string
	for _, n := range names {
		spans = append(spans, `{"name":"`+n+`"}`)
	}
	return `{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{},"spans":[` + strings.Join(spans, ",") + `]}]}]}`
}

func TestStreams(t *testing.T) {
	a, b := batch("a1", "a2"), batch("b")
	level := func(s string) string { // the resource level alone
		return strings.TrimSuffix(strings.TrimPrefix(s, `{"resourceSpans":[`), "]}")
	}
	pretty := strings.NewReplacer("{", "{\n ", "[", "[\n  ", ",", ",\n  ", "}", "\n}").Replace
	tests := []struct{ name, in, want string }{
		{"one", a, "a1 a2 |"},
		{"lines", a + "\n" + b + "\n", "a1 a2 b |"},
		{"crlf", a + "\r\n" + b + "\r\n", "a1 a2 b |"},
		{"concatenated", a + b + " " + a, "a1 a2 b a1 a2 |"},
		{"pretty", pretty(a) + "\n" + pretty(b), "a1 a2 b |"},
		{"byte order mark", "\xef\xbb\xbf" + a, "a1 a2 |"},
		{"array", "[" + a + ",\n" + b + "]", "a1 a2 b |"},
		{"array without end", "[" + a + ",\n" + b + ",", "a1 a2 b |"},
		{"resource level", level(a) + "\n" + level(b), "a1 a2 b |"},
		{"array of resource level", "[" + level(a) + "," + level(b) + "]", "a1 a2 b |"},
		{"batches", strings.ReplaceAll(a, "resourceSpans", "batches"), "a1 a2 |"},
		{"old names", strings.NewReplacer("scopeSpans", "instrumentationLibrarySpans", `"scope"`, `"instrumentationLibrary"`).Replace(a), "a1 a2 |"},
		{"snake case", strings.NewReplacer("scopeSpans", "scope_spans", "resourceSpans", "resource_spans").Replace(a), "a1 a2 |"},
		{"wrapped", `{"result":` + "\n" + a + `,"status":"x"}`, "a1 a2 |"},
		{"trace list", `{"traces":[` + a + `,` + b + `]}`, "a1 a2 b |"},
		{"resource last", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"}],"scope":{}}],"resource":{}}]}`, "x |"},
		{"metrics between", a + "\n" + `{"resourceMetrics":[{"scopeMetrics":[{}]}]}` + "\n" + b, "a1 a2 b |"},
		{"nothing", "", "|"},
		{"null members", `{"resourceSpans":null}{"resourceSpans":[{"resource":null,"scopeSpans":null}]}`, "|"},
		{"unknown members", `{"x":[{"y":"}"}],"resourceSpans":[{"z":1.5,"scopeSpans":[{"spans":[{"name":"x","links":[{}],"flags":1}]}]}]}`, "x |"},

		{"torn at the end", a + "\n" + b[:len(b)-8], "a1 a2 | truncated"},
		{"torn, a span is whole", b + "\n" + a[:len(a)-10], "b a1 | truncated"},
		{"torn in a text, line ended", b + "\n" + a[:len(a)-9] + "\n", "b a1 | truncated"},
		{"torn in the middle, outside a text", a[:strings.Index(a, `,{"name":"a2`)] + "\n" + b, "a1 b | bad-json"},
		{"torn in the middle, inside a text", a[:len(a)-9] + "\n" + b, "a1 b | bad-json"},
		{"torn in the middle, outside a text, lines behind", a[:strings.Index(a, `,{"name":"a2`)] + "\n" + b + "\n" + b, "a1 b b | bad-json"},
		{"torn behind a backslash", a[:len(a)-9] + "\\\n" + b + "\n" + b, "a1 b b | bad-json"},
		{"torn at the list", `{"resourceSpans":[{"scopeSpans":[{"spans":[` + "\n" + b, "b | bad-json"},
		{"torn without a line's end", a[:len(a)-9] + b, "a1 b | bad-json"},
		{"torn without a line's end, outside", a[:strings.Index(a, `,{"name":"a2`)] + b, "a1 b | bad-json"},
		{"torn in pretty text", pretty(a[:len(a)-9]) + "\n" + pretty(b), "a1 b | bad-json"},
		{"zeros after a crash", a + "\n" + strings.Repeat("\x00", 100) + "\n" + b, "a1 a2 b | bad-json"},
		{"zeros before a value", a + "\n" + strings.Repeat("\x00", 100) + b, "a1 a2 b | bad-json"},
		{"text", "hello\n" + a, "a1 a2 | bad-json"},
		{"text at the end", a + "\nhello", "a1 a2 | bad-json"},
		{"log lines", "[agent] INFO x - " + level(a) + "\nother line\n[agent] INFO x - " + level(b), "a1 a2 b | foreign-line"},
		{"log lines, other first", "other line\n[agent] INFO x - " + level(a) + "\n", "a1 a2 | foreign-line"},

		{"broken span", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"},{"name":"y" "kind":2},{"name":"z"}]}]}]}`, "x z | bad-span"},
		{"broken span, not closed", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"},{"name":"y",{"name":"z"}]}]}]}`, "x | bad-span truncated"},
		{"a number for a span", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"},7,{"name":"z"}]}]}]}`, "x z | bad-span"},
		{"broken scope", `{"resourceSpans":[{"scopeSpans":[{"scope":{"name" 1},"spans":[{"name":"x"}]},{"spans":[{"name":"y"}]}]}]}`, "y | bad-json"},
		{"broken resource", `{"resourceSpans":[{"resource":{"attributes":[{"key" 1}]},"scopeSpans":[{"spans":[{"name":"x"}]}]}]}`, "x | bad-json"},
		{"broken resource, resource level", `{"resource":{"attributes":[{"key" 1}]},"scopeSpans":[{"spans":[{"name":"x"}]}]}`, "x | bad-json"},
		{"broken list", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"} {"name":"y"}]}]},{"scopeSpans":[{"spans":[{"name":"z"}]}]}]}`, "x z | bad-json"},
		{"not an object", `{"resourceSpans":[7,{"scopeSpans":[8,{"spans":[{"name":"z"}]}]}]}`, "z | bad-json bad-json"},
		{"key twice", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x","name":"y"}]}]}]}`, "y | y:duplicate-key"},
		{"spans twice", `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"}],"spans":[{"name":"y"}],"scope":{}}]}]}`, "y x | duplicate-key"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := decodeJSON(t, strings.NewReader(tt.in))
			// The bytes may come in any pieces.
			slow := decodeJSON(t, iotest.OneByteReader(strings.NewReader(tt.in)))
			if got := slow.String(); got != res.String() {
				t.Errorf("byte by byte: %s\nat once:      %s", got, res.String())
			}
			if diff := cmp.Diff(slow.issues, res.issues); diff != "" {
				t.Errorf("issues differ byte by byte: %s", diff)
			}
			if res.String() != tt.want {
				t.Errorf("got  %s\nwant %s\nissues: %v", res.String(), tt.want, res.issues)
			}
		})
	}
}

func TestPositions(t *testing.T) {
	in := batch("a") + "\n{\"resourceSpans\":[{},{\"scopeSpans\":[{},{\n\"spans\":[{},\n{\"name\" 7}]}]}]}"
	res := decodeJSON(t, strings.NewReader(in))
	want := trace.Pos{File: "f", Offset: int64(strings.Index(in, `{"name" 7`)), Line: 4, Path: "resourceSpans[1].scopeSpans[1].spans[1]"}
	if len(res.issues) != 1 || res.issues[0].Pos != want {
		t.Errorf("got %+v, want %+v", res.issues, want)
	}
	if got, want := res.spans[1].Pos, (trace.Pos{File: "f", Offset: int64(strings.Index(in, "[{},\n") + 1), Line: 3, Path: "resourceSpans[1].scopeSpans[1].spans[0]"}); got != want {
		t.Errorf("span at %+v, want %+v", got, want)
	}
}

func TestTruncatedSays(t *testing.T) {
	whole := batch("a")
	torn := batch("b")[:60]
	res := decodeJSON(t, strings.NewReader(whole+"\n"+torn))
	if len(res.issues) != 1 || res.issues[0].Msg != "last line incomplete (60 bytes)" || res.issues[0].Pos.Line != 2 {
		t.Errorf("got %v", res.issues)
	}
}

// spanOf decodes one span given as the members of its JSON object.
func spanOf(t *testing.T, members string) *trace.Span {
	t.Helper()
	res := decodeJSON(t, strings.NewReader(`{"resourceSpans":[{"scopeSpans":[{"spans":[{`+members+`}]}]}]}`))
	if len(res.spans) != 1 || len(res.issues) > 0 {
		t.Fatalf("%s: spans %d, issues %v", members, len(res.spans), res.issues)
	}
	return res.spans[0]
}

func codes(s *trace.Span) string {
	var list []string
	for _, is := range s.Issues {
		list = append(list, string(is.Code))
	}
	return strings.Join(list, " ")
}

func TestIDs(t *testing.T) {
	const hex32 = "5b8efff798038103d269b633813fc60c"
	tests := []struct{ in, want, codes string }{
		{hex32, hex32, ""},
		{strings.ToUpper(hex32), hex32, ""},
		{"W47/95gDgQPSabYzgT/GDA==", hex32, ""},
		{"W47_95gDgQPSabYzgT_GDA", hex32, ""},
		{"", "", ""},
		{strings.Repeat("0", 32), "", ""},
		{"AAAAAAAAAAAAAAAAAAAAAA==", "", ""},
		{"ABC123", "abc123", "bad-id"},
		{"trace-7", "trace-7", "bad-id"},
		{"A\xffb", "A\uFFFDb", "invalid-utf8 bad-id"},
	}
	for _, tt := range tests {
		s := spanOf(t, `"traceId":"`+tt.in+`"`)
		if s.TraceID != tt.want || codes(s) != tt.codes {
			t.Errorf("%q: got %q %s, want %q %s", tt.in, s.TraceID, codes(s), tt.want, tt.codes)
		}
	}
	s := spanOf(t, `"spanId":"7uGbfsPBsXQ=","parentSpanId":"EEE19B7EC3C1B174"`)
	if s.SpanID != "eee19b7ec3c1b174" || s.ParentID != s.SpanID {
		t.Errorf("got %q %q", s.SpanID, s.ParentID)
	}
}

func TestTimes(t *testing.T) {
	tests := []struct {
		in    string
		want  int64 // 0: absent
		codes string
	}{
		{`"1760000000000000001"`, 1760000000000000001, ""},
		{`1760000000000000001`, 1760000000000000001, ""},
		{`1.760000000000000e18`, 1760000000000000000, ""},
		{`1.76E+18`, 1760000000000000000, ""},
		{`1.760000000000000001e18`, 1760000000000000001, ""},
		{`1760000000000000001.000`, 1760000000000000001, ""},
		{`17600000000000000010000000e-7`, 1760000000000000001, ""},
		{`9223372036854775807`, math.MaxInt64, ""},
		{`9223372036854775808`, 0, "time-out-of-range"},
		{`"18446744073709551615"`, 0, "time-out-of-range"},
		{`99999999999999999999999999`, 0, "time-out-of-range"},
		{`1e400`, 0, "time-out-of-range"},
		{`1e99999999999999999999`, 0, "time-out-of-range"},
		{`-5`, 0, "time-out-of-range"},
		{`0`, 0, ""},
		{`"0"`, 0, ""},
		{`-0.0e7`, 0, ""},
		{`""`, 0, ""},
		{`null`, 0, ""},
		{`"soon"`, 0, "bad-field"},
		{`1760000000.5`, 0, "bad-field"},
		{`1760000000000000000123e-3`, 1760000000000000000, "bad-field"},
		{`17600000000000000000.5`, 0, "bad-field"},
		{`1e`, 0, "bad-field"},
		{`true`, 0, "bad-field"},
		{`{}`, 0, "bad-field"},
		{`[1]`, 0, "bad-field"},
	}
	for _, tt := range tests {
		if tt.codes != "" {
			tt.want = 0
		}
		for _, key := range []string{"startTimeUnixNano", "start_time_unix_nano"} {
			s := spanOf(t, `"`+key+`":`+tt.in)
			if got, ok := s.Start.Get(); int64(got) != tt.want || ok != (tt.want != 0) || codes(s) != tt.codes {
				t.Errorf("%s: got %d %v %s, want %d %s", tt.in, got, ok, codes(s), tt.want, tt.codes)
			}
		}
	}
}

func TestValues(t *testing.T) {
	none := trace.Value{}
	tests := []struct {
		in    string
		want  trace.Value
		codes string
	}{
		{`{"stringValue":"a"}`, trace.StringValue("a"), ""},
		{`{"string_value":"\u00e9\ud83d\ude00\n"}`, trace.StringValue("é😀\n"), ""},
		{`{"stringValue":"\ud83d"}`, trace.StringValue("\uFFFD"), "invalid-utf8"},
		{"{\"stringValue\":\"a\xff\xfeb\xff\"}", trace.StringValue("a\uFFFDb\uFFFD"), "invalid-utf8"},
		{`{"stringValue":"\q"}`, trace.StringValue(""), "bad-field"},
		{`{"stringValue":5}`, none, "bad-field"},
		{`{"intValue":14}`, trace.IntValue(14), ""},
		{`{"intValue":"-14"}`, trace.IntValue(-14), ""},
		{`{"intValue":1.4e1}`, trace.IntValue(14), ""},
		{`{"intValue":"-9223372036854775808"}`, trace.IntValue(math.MinInt64), ""},
		{`{"intValue":9223372036854775808}`, none, "bad-number"},
		{`{"intValue":"x"}`, none, "bad-number"},
		{`{"doubleValue":0.2511}`, trace.FloatValue(0.2511), ""},
		{`{"doubleValue":"0.5"}`, trace.FloatValue(0.5), ""},
		{`{"doubleValue":14}`, trace.FloatValue(14), ""},
		{`{"doubleValue":"NaN"}`, none, "bad-number"},
		{`{"doubleValue":NaN}`, none, "bad-number"},
		{`{"doubleValue":"-Infinity"}`, none, "bad-number"},
		{`{"doubleValue":-Infinity}`, none, "bad-number"},
		{`{"doubleValue":1e400}`, none, "bad-number"},
		{`{"doubleValue":null}`, none, ""},
		{`{"boolValue":true}`, trace.BoolValue(true), ""},
		{`{"boolValue":"false"}`, trace.BoolValue(false), ""},
		{`{"boolValue":1}`, none, "bad-field"},
		{`{"bytesValue":"AQI="}`, trace.JSONValue(`"AQI="`), ""},
		{`{"arrayValue":{"values":[{"stringValue":"a\"\u0001"},{"intValue":"2"},{"doubleValue":2.50},{"boolValue":true},{},null]}}`, trace.JSONValue(`["a\"\u0001",2,2.5,true,null,null]`), ""},
		{`{"arrayValue":{}}`, trace.JSONValue(`[]`), ""},
		{`{"kvlistValue":{"values":[{"value":{"arrayValue":{"values":[{"doubleValue":"NaN"}]}},"key":"k"},{"key":"l"}]}}`, trace.JSONValue(`{"k":[null],"l":null}`), "bad-number"},
		{`{"arrayValue":7}`, none, "bad-field"},
		{`{"intValue":1,"intValue":2}`, trace.IntValue(2), "duplicate-key"},
		{`{}`, none, ""},
		{`null`, none, ""},
		{`7`, none, "bad-field"},
	}
	for _, tt := range tests {
		for _, in := range []string{`"key":"k","value":` + tt.in, `"value":` + tt.in + `,"key":"k"`} {
			s := spanOf(t, `"attributes":[{`+in+`},{"key":"after","value":{"intValue":1}}]`)
			want := []trace.Attr{{Key: "k", Value: tt.want}, {Key: "after", Value: trace.IntValue(1)}}
			if len(s.Attrs) != 2 || s.Attrs[0] != want[0] || s.Attrs[1] != want[1] || codes(s) != tt.codes {
				t.Errorf("%s: got %v %s, want %v %s", in, s.Attrs, codes(s), want, tt.codes)
			}
			for _, is := range s.Issues {
				if is.Code == trace.BadNumber && !strings.Contains(is.Msg, "k is") {
					t.Errorf("%s: the message does not name the key: %s", in, is.Msg)
				}
			}
		}
	}
}

func TestNestingLimit(t *testing.T) {
	deep := strings.Repeat(`{"arrayValue":{"values":[`, 40) + `{"intValue":1}` + strings.Repeat(`]}}`, 40)
	s := spanOf(t, `"name":"n","attributes":[{"key":"k","value":`+deep+`}]`)
	if codes(s) != "bad-field" || s.Name != "n" {
		t.Errorf("got %s", codes(s))
	}
	res := decodeJSON(t, strings.NewReader(strings.Repeat(`{"resourceSpans":[`, 20000)))
	if len(res.issues) == 0 {
		t.Error("no issue for a bottomless document")
	}
}

func TestEnumsAndStatus(t *testing.T) {
	tests := []struct {
		in     string
		kind   trace.SpanKind
		status trace.StatusCode
		codes  string
	}{
		{`"kind":2,"status":{"code":2,"message":"m"}`, trace.KindServer, trace.StatusError, ""},
		{`"kind":"SPAN_KIND_CLIENT","status":{"code":"STATUS_CODE_ERROR"}`, trace.KindClient, trace.StatusError, ""},
		{`"kind":"5","status":{"code":"1"}`, trace.KindConsumer, trace.StatusOK, ""},
		{`"kind":null,"status":null`, 0, 0, ""},
		{`"kind":77,"status":{"code":"BROKEN"}`, 0, 0, "bad-field bad-field"},
		{`"status":{"deprecatedCode":2}`, 0, trace.StatusError, ""},
		{`"status":{"deprecatedCode":2,"code":1}`, 0, trace.StatusOK, ""},
		{`"status":7`, 0, 0, "bad-field"},
	}
	for _, tt := range tests {
		s := spanOf(t, tt.in)
		if s.Kind != tt.kind || s.Status != tt.status || codes(s) != tt.codes {
			t.Errorf("%s: got %v %v %s", tt.in, s.Kind, s.Status, codes(s))
		}
	}
}

func TestEventsAndSharing(t *testing.T) {
	in := `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"v"}}]},"scopeSpans":[{"scope":{"name":"sc"},"spans":[` +
		`{"name":"x","events":[{"timeUnixNano":"5","name":"QUEUED","attributes":[{"key":"k","value":{"intValue":1}}]},{"name":"B"},7]},{"name":"y"}]}]}]}`
	res := decodeJSON(t, strings.NewReader(in+"\n"+in))
	if len(res.spans) != 4 {
		t.Fatal(res.String())
	}
	x := res.spans[0]
	want := []trace.Event{{At: trace.Some(trace.Time(5)), Name: "QUEUED", Attrs: []trace.Attr{{Key: "k", Value: trace.IntValue(1)}}}, {Name: "B"}}
	if diff := cmp.Diff(want, x.Events, cmp.AllowUnexported(trace.Opt[trace.Time]{}, trace.Value{})); diff != "" || codes(x) != "bad-field" {
		t.Errorf("events: %s %s", codes(x), diff)
	}
	for _, s := range res.spans {
		if s.Scope != "sc" || s.Resource != x.Resource {
			t.Errorf("scope %q, resource %p and %p", s.Scope, s.Resource, x.Resource)
		}
	}
	if v, _ := x.ResourceAttr("service.name"); v.String() != "v" {
		t.Errorf("service %q", v)
	}
}

func TestMembersInAnyOrder(t *testing.T) {
	spans := `"spans":[{"attributes":[],"name":"x"}]`
	scope := `"scope":{"version":"1","name":"sc"}`
	resource := `"resource":{"attributes":[{"value":{"stringValue":"v"},"key":"service.name"}]}`
	for _, inner := range []string{scope + "," + spans, spans + "," + scope} {
		list := `"scopeSpans":[{` + inner + `}]`
		for _, outer := range []string{resource + "," + list, list + "," + resource} {
			res := decodeJSON(t, strings.NewReader(`{"resourceSpans":[{`+outer+`},{`+list+`}]}`))
			if res.String() != "x x |" || res.spans[0].Scope != "sc" || res.spans[1].Resource != nil {
				t.Fatalf("%s: %s", outer, res.String())
			}
			if v, _ := res.spans[0].ResourceAttr("service.name"); v.String() != "v" {
				t.Errorf("%s: the resource is lost", outer)
			}
		}
	}
}

func TestRecordLimit(t *testing.T) {
	large := batch(strings.Repeat("x", 3000))
	for _, in := range []string{batch("a") + "\n" + large + "\n" + batch("b"), batch("a") + large + batch("b")} {
		for _, r := range []io.Reader{strings.NewReader(in), iotest.OneByteReader(strings.NewReader(in))} {
			var res result
			d := NewDecoder(1000, res.sink)
			if err := d.JSON(r, At{Line: 1}); err != nil {
				t.Fatal(err)
			}
			if res.String() != "a b | record-too-large" {
				t.Errorf("got %s", res.String())
			}
		}
	}
}

func TestReaderFails(t *testing.T) {
	in := batch("a") + "\n" + batch("b", "c")[:90]
	var res result
	d := NewDecoder(testMax, res.sink)
	err := d.JSON(io.MultiReader(strings.NewReader(in), iotest.ErrReader(io.ErrUnexpectedEOF)), At{Line: 1})
	if err != io.ErrUnexpectedEOF || res.String() != "a b |" {
		t.Errorf("got %s and %v", res.String(), err)
	}
}

func TestStop(t *testing.T) {
	for n := range 4 {
		seen := 0
		d := NewDecoder(testMax, func(*trace.Span, *trace.Issue) bool { seen++; return seen <= n })
		err := d.JSON(strings.NewReader(batch("a", "b", "c")+"x\n"+batch("d", "e")), At{})
		if err != ErrStopped || seen != n+1 {
			t.Errorf("stopped after %d of %d: %v", seen, n+1, err)
		}
	}
}

// field appends a protobuf field of bytes.
func field(num byte, parts ...[]byte) []byte {
	val := bytes.Join(parts, nil)
	return append(binary.AppendUvarint([]byte{num<<3 | 2}, uint64(len(val))), val...)
}

func TestProto(t *testing.T) {
	span := func(name string) []byte { return field(2, field(5, []byte(name))) }
	doc := func(spans ...[]byte) []byte { return field(1, field(2, spans...)) }
	two := doc(span("a"), span("b"))
	badSpan := field(2, []byte{0x2a, 0x7f, 'x'})
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"one", two, "a b |"},
		{"two", append(bytes.Clone(two), doc(span("c"))...), "a b c |"},
		{"nothing", nil, "|"},
		{"broken span", doc(span("a"), badSpan, span("c")), "a c | bad-span"},
		{"invalid text", doc(span("a\xff")), "a\uFFFD | a\uFFFD:invalid-utf8"},
		{"cut in a span", two[:len(two)-1], "a | truncated"},
		{"cut in a length", append(bytes.Clone(two), 0x0a), "a b | truncated"},
		{"scope longer than its resource", field(1, field(2, span("a"), span("b"))[:9]), "a | bad-protobuf bad-protobuf"},
		{"not a field", append(bytes.Clone(two), 0x07), "a b | bad-protobuf"},
		{"field 0", append(bytes.Clone(two), 0x00), "a b | bad-protobuf"},
		{"endless number", append(bytes.Clone(two), bytes.Repeat([]byte{0xff}, 20)...), "a b | bad-protobuf"},
		{"other fields", append([]byte{0x10, 5, 0x1d, 1, 2, 3, 4, 0x22, 1, 'x'}, two...), "a b |"},
		{"odd id", doc(field(2, field(5, []byte("a")), field(1, []byte{1, 2}))), "a | a:bad-id"},
		{"wrong type", doc(field(2, field(5, []byte("a")), []byte{0x38, 1})), "a | a:bad-field"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []io.Reader{bytes.NewReader(tt.in), iotest.OneByteReader(bytes.NewReader(tt.in))} {
				res := decodeProto(t, r)
				if got := res.String(); got != tt.want {
					t.Errorf("got %s, want %s; %v", got, tt.want, res.issues)
				}
			}
		})
	}
	var res result
	d := NewDecoder(20, res.sink)
	err := d.Proto(bytes.NewReader(append(doc(span(strings.Repeat("x", 30))), doc(span("a"))...)), At{})
	if res.String() != "a | record-too-large" || err != nil {
		t.Errorf("limit: %s %v", res.String(), err)
	}
}

// The stores' own spellings, as their interfaces answer and pages download.
func TestStores(t *testing.T) {
	span := func(id, more string) string {
		return `{"traceId":"` + id + `","spanId":"7uGbfsPBsXQ=","name":"q","kind":"SPAN_KIND_SERVER",` + more + `}`
	}
	const b64 = "W47/95gDgQPSabYzgT/GDA=="
	times := `"startTimeUnixNano":"1788000000000000000","endTimeUnixNano":"1788000002500000000","status":{"code":"STATUS_CODE_ERROR"}`
	numbers := strings.NewReplacer(`"17`, "17", `000"`, "000").Replace(times)
	scopes := func(s string) string { return `[{"resource":{},"scopeSpans":[{"scope":{},"spans":[` + s + `]}]}]` }
	old := func(s string) string {
		return `[{"resource":{},"instrumentationLibrarySpans":[{"instrumentationLibrary":{},"spans":[` + s + `]}]}]`
	}
	for _, tt := range []struct {
		name, in string
		step     int
		codes    string
	}{
		{"Tempo 1", `{"batches":` + scopes(span(b64, times)) + `}`, 0, ""},
		{"Tempo 2", `{"trace":{"resourceSpans":` + scopes(span(b64, times)) + `},"metrics":{},"status":"COMPLETE"}`, 0, ""},
		{"Tempo 2, a part", `{"trace":{"resourceSpans":` + scopes(span(b64, times)) + `},"metrics":{},"status":"PARTIAL","message":"too large"}`, 0, "partial-trace"},
		{"Explore", `{"batches":` + old(span("5B8EFFF798038103D269B633813FC60C", numbers)) + `}`, 512, ""},
		{"Explore of our days, exact", `{"batches":` + old(span(b64, strings.Replace(numbers, "0,", "1,", 1))) + `}`, 0, ""},
		{"Jaeger 3", `{"result":{"resourceSpans":` + scopes(span("5b8efff798038103d269b633813fc60c", times)) + `}}`, 0, ""},
		{"numbers", `{"resource_spans":` + strings.Replace(scopes(span(b64, numbers)), "scopeSpans", "scope_spans", 1) + `}`, 0, ""},
	} {
		if !SniffJSON([]byte(tt.in)) {
			t.Errorf("%s: not recognised", tt.name)
		}
		got := decodeJSON(t, strings.NewReader(tt.in))
		var codes []string
		for _, is := range got.issues {
			codes = append(codes, string(is.Code))
		}
		if len(got.spans) != 1 || strings.Join(codes, " ") != tt.codes {
			t.Errorf("%s: %d spans, %v", tt.name, len(got.spans), codes)
			continue
		}
		s := got.spans[0]
		if s.TraceID != "5b8efff798038103d269b633813fc60c" || s.SpanID != "eee19b7ec3c1b174" || s.Kind != trace.KindServer ||
			s.Status != trace.StatusError || s.End.Or(0)-s.Start.Or(0) < 2.4e9 || int(s.Step) != tt.step || len(s.Issues) > 0 {
			t.Errorf("%s: %+v", tt.name, s)
		}
	}
}
