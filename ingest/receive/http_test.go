package receive

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/traceview/traceview/ingest/otlp"
	"github.com/traceview/traceview/trace"
)

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Write(b)
	z.Close()
	return out.Bytes()
}

func zstandard(b []byte, opts ...zstd.EOption) []byte {
	z, _ := zstd.NewWriter(nil, opts...)
	defer z.Close()
	return z.EncodeAll(b, nil)
}

// windowed is a zstd frame that asks for a window larger than decoders need to
// have.
func windowed() []byte {
	var out bytes.Buffer
	z, _ := zstd.NewWriter(&out, zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1))
	for range 100 {
		z.Write(make([]byte, 1<<20))
	}
	z.Close()
	return out.Bytes()
}

const limitInTest = 1 << 20

// Each kind of request has the answer that OTLP/HTTP asks for.
func TestHTTP(t *testing.T) {
	r := start(t, WriterOptions{Format: Proto}, Options{MaxRequest: limitInTest})
	pb, js := inProto(t, sample(0, 3)), inJSON(t, sample(0, 3))
	nested := func(n int) []byte {
		return []byte(`{"resourceSpans":[{"resource":{"attributes":[{"key":"k","value":` + strings.Repeat(`{"arrayValue":{"values":[`, n) + `{}` + strings.Repeat(`]}}`, n) + `}]},"scopeSpans":[{"spans":[{}]}]}]}`)
	}
	deep := []byte{}
	for range 2000 { // AnyValue in ArrayValue in AnyValue …
		deep = nestedFields(deep, 0x0a, 0x2a)
	}
	deep = nestedFields(deep, 0x12, 0x0a, 0x0a, 0x0a) // value of a pair of a resource of a batch
	for _, c := range []struct {
		name, method, path, kind, encoding string
		body                               []byte
		status                             int
		spans                              int
	}{
		{name: "protobuf", kind: typeProto, body: pb, status: 200, spans: 3},
		{name: "JSON", kind: typeJSON, body: js, status: 200, spans: 3},
		{name: "JSON with a charset", kind: "application/json; charset=utf-8", body: js, status: 200, spans: 3},
		{name: "a type in capitals", kind: "Application/JSON", body: js, status: 200, spans: 3},
		{name: "gzip", kind: typeProto, encoding: "gzip", body: zipped(pb), status: 200, spans: 3},
		{name: "zstd", kind: typeJSON, encoding: "ZSTD", body: zstandard(js), status: 200, spans: 3},
		{name: "identity", kind: typeJSON, encoding: "identity", body: js, status: 200, spans: 3},
		{name: "nothing in protobuf", kind: typeProto, status: 200},
		{name: "nothing in JSON", kind: typeJSON, body: []byte(`{}`), status: 200},
		{name: "a batch without spans", kind: typeJSON, body: []byte(`{"resourceSpans":[{}]}`), status: 200},
		{name: "fields that OTLP does not have", kind: typeJSON, body: []byte(`{"new":[1],"resourceSpans":[{"scopeSpans":[{"spans":[{"newer":{}}]}]}]}`), status: 200, spans: 1},
		{name: "deep values in JSON", kind: typeJSON, body: nested(20), status: 200, spans: 1},

		{name: "GET", method: "GET", kind: typeJSON, status: 405},
		{name: "HEAD", method: "HEAD", kind: typeJSON, status: 405},
		{name: "OPTIONS", method: "OPTIONS", status: 405},
		{name: "metrics", path: "/v1/metrics", kind: typeProto, body: pb, status: 404},
		{name: "logs", path: "/v1/logs", kind: typeJSON, body: js, status: 404},
		{name: "another path", path: "/", kind: typeJSON, body: js, status: 404},
		{name: "a path below", path: "/v1/traces/x", kind: typeJSON, body: js, status: 404},
		{name: "a path around", path: "/x/../v1/traces", kind: typeJSON, body: js, status: 404},
		{name: "no type", body: pb, status: 415},
		{name: "another type", kind: "text/plain", body: js, status: 415},
		{name: "no type at all", kind: ";;;", body: js, status: 415},
		{name: "another encoding", kind: typeJSON, encoding: "br", body: js, status: 415},
		{name: "two encodings", kind: typeJSON, encoding: "gzip, gzip", body: zipped(zipped(js)), status: 415},

		{name: "garbage for protobuf", kind: typeProto, body: []byte("\xff\xff\xff\xff"), status: 400},
		{name: "protobuf cut off", kind: typeProto, body: pb[:len(pb)-1], status: 400},
		{name: "JSON for protobuf", kind: typeProto, body: js, status: 400},
		{name: "protobuf for JSON", kind: typeJSON, body: pb, status: 400},
		{name: "no JSON", kind: typeJSON, status: 400},
		{name: "JSON cut off", kind: typeJSON, body: js[:len(js)-1], status: 400},
		{name: "JSON and more", kind: typeJSON, body: append(bytes.Clone(js), "{}"...), status: 400},
		{name: "an array", kind: typeJSON, body: []byte(`[]`), status: 400},
		{name: "a trace id that is too short", kind: typeJSON, body: []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"12"}]}]}]}`), status: 400},
		{name: "values that are too deep in protobuf", kind: typeProto, body: deep, status: 400},
		{name: "values that are too deep in JSON", kind: typeJSON, body: nested(20_000), status: 400},
		{name: "no gzip", kind: typeJSON, encoding: "gzip", body: js, status: 400},
		{name: "gzip cut off", kind: typeJSON, encoding: "gzip", body: zipped(js)[:40], status: 400},
		{name: "no zstd", kind: typeJSON, encoding: "zstd", body: js, status: 400},
		{name: "zstd cut off", kind: typeJSON, encoding: "zstd", body: zstandard(js)[:40], status: 400},

		{name: "too large", kind: typeJSON, body: make([]byte, limitInTest+1), status: 413},
		{name: "a bomb of gzip", kind: typeProto, encoding: "gzip", body: zipped(make([]byte, 3*limitInTest)), status: 413},
		{name: "a bomb of zstd", kind: typeProto, encoding: "zstd", body: zstandard(make([]byte, 3*limitInTest)), status: 413},
		{name: "a window that is too large", kind: typeProto, encoding: "zstd", body: windowed(), status: 413},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := r.w.Totals()
			req, err := http.NewRequest("POST", "http://"+r.http+tracesPath, bytes.NewReader(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if c.method != "" {
				req.Method = c.method
			}
			if c.path != "" {
				req.URL.Path = c.path
			}
			if c.kind != "" {
				req.Header.Set("Content-Type", c.kind)
			}
			if c.encoding != "" {
				req.Header.Set("Content-Encoding", c.encoding)
			}
			res, err := http.DefaultTransport.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			body, err := io.ReadAll(res.Body)
			if err != nil {
				t.Fatal(err)
			}
			if res.StatusCode != c.status {
				t.Fatalf("status %d, want %d: %q", res.StatusCode, c.status, body)
			}
			want := typeJSON
			if c.kind == typeProto {
				want = typeProto
			}
			if got := res.Header.Get("Content-Type"); got != want {
				t.Errorf("answered in %q", got)
			}
			switch {
			case c.method == "HEAD":
			case c.status == 200:
				if want := map[string]string{typeJSON: "{}", typeProto: ""}[want]; string(body) != want {
					t.Errorf("body %q", body)
				}
			case statusOf(t, want, body).Message == "":
				t.Error("no message")
			}
			if got := res.Header.Get("Allow"); (c.status == 405) != (got == "POST") {
				t.Errorf("Allow: %s", got)
			}
			if got := int(r.w.Totals().Spans - before.Spans); got != c.spans {
				t.Errorf("%d spans were written, want %d", got, c.spans)
			}
		})
	}
	r.stop()
	if list, _ := records(t, r.folder); !bytes.Equal(list[0], pb) {
		t.Error("protobuf was not kept byte for byte")
	}
	spansOf(t, r.folder)
}

// nestedFields puts b into fields of these tags, the innermost first.
func nestedFields(b []byte, tags ...byte) []byte {
	for _, tag := range tags {
		b = append([]byte{tag}, append(varint(len(b)), b...)...)
	}
	return b
}

func varint(n int) []byte {
	var b []byte
	for ; n >= 0x80; n >>= 7 {
		b = append(b, byte(n)|0x80)
	}
	return append(b, byte(n))
}

// statusOf reads the Status of an error.
func statusOf(t *testing.T, kind string, body []byte) *spb.Status {
	t.Helper()
	st := new(spb.Status)
	var err error
	if kind == typeProto {
		err = proto.Unmarshal(body, st)
	} else {
		var s struct {
			Code    int32
			Message string
		}
		err = json.Unmarshal(body, &s)
		st.Code, st.Message = s.Code, s.Message
	}
	if err != nil {
		t.Errorf("the body of an error is no Status: %v: %q", err, body)
	}
	return st
}

// post sends JSON and returns the answer.
func post(t testing.TB, address string, body []byte) (*http.Response, []byte) {
	t.Helper()
	res, err := http.Post("http://"+address+tracesPath, typeJSON, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res, b
}

// An empty value takes two bytes and becomes a hundred: there may not be many.
func TestTooManyElements(t *testing.T) {
	for name, c := range map[string]struct {
		body []byte
		from Format
	}{
		"batches in protobuf":    {bytes.Repeat([]byte{0x0a, 0}, maxElements/4+1), Proto},
		"batches in JSON":        {[]byte(`{"resourceSpans":[{}` + strings.Repeat(`,{}`, maxElements/2) + `]}`), JSON},
		"spans that are null":    {[]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[null` + strings.Repeat(`,null`, maxElements/2) + `]}]}]}`), JSON},
		"attributes in protobuf": {nestedFields(bytes.Repeat([]byte{0x0a, 0}, maxElements), 0x0a, 0x0a), Proto},
	} {
		if _, _, why := encode(c.body, c.from, JSON); why == nil || why.http != 413 {
			t.Errorf("%s: %v", name, why)
		}
	}
	// In a text, braces are a text.
	req := sample(0, 1)
	req.Traces().ResourceSpans().At(0).Resource().Attributes().PutStr("prompt", strings.Repeat(`{"null\`, maxElements))
	if _, spans, why := encode(inJSON(t, req), JSON, JSON); spans != 1 || why != nil {
		t.Errorf("a text of braces: %v", why)
	}
}

// The status of a failed write is one to come again with.
func TestWriteFails(t *testing.T) {
	w, err := NewWriter(WriterOptions{Folder: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	room := 0
	sicken(w, &room, nil)
	r := serve(t, w, Options{})
	res, body := post(t, r.http, inJSON(t, sample(0, 1)))
	if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" {
		t.Errorf("%s, Retry-After %q", res.Status, res.Header.Get("Retry-After"))
	}
	if st := statusOf(t, typeJSON, body); codes.Code(st.Code) != codes.Unavailable || st.Message != "cannot write: no space left on device" {
		t.Errorf("%v", st)
	}
	for name, c := range clients(t, r) {
		list, _ := stubs(1, 1)
		if err := c.ExportSpans(t.Context(), list); err == nil {
			t.Errorf("%s was told that all is well", name)
		}
	}
	room = 1 << 20
	if res, _ := post(t, r.http, inJSON(t, sample(0, 1))); res.StatusCode != 200 {
		t.Error(res.Status)
	}
	if got := len(spansOf(t, r.folder)); got != 1 {
		t.Errorf("%d spans are in the files", got)
	}
}

// The server ends when a listener does.
func TestListenerFails(t *testing.T) {
	for i := range 2 {
		l := []net.Listener{listen(t), listen(t)}
		l[i].Close()
		if err := NewServer(newWriter(t, WriterOptions{}), Options{}).Serve(t.Context(), l[0], l[1]); err == nil {
			t.Error("no error")
		}
		if c, err := net.Dial("tcp", l[1-i].Addr().String()); err == nil {
			c.Close()
			t.Error("the other one still listens")
		}
	}
}

// While the server shuts down, and when a limit is reached, clients are told to
// come again.
func TestClosing(t *testing.T) {
	w := newWriter(t, WriterOptions{MaxSpans: 1})
	s := NewServer(w, Options{})
	ask := func() *httptest.ResponseRecorder {
		rec := httptest.NewRecorder()
		req := httptest.NewRequest("POST", tracesPath, bytes.NewReader(inJSON(t, sample(0, 1))))
		req.Header.Set("Content-Type", typeJSON)
		s.handle(rec, req)
		return rec
	}
	for i, want := range []int{200, 503, 503} {
		s.closing.Store(i == 2)
		if rec := ask(); rec.Code != want || (want == 503) != (rec.Header().Get("Retry-After") == "5") {
			t.Errorf("request %d: %d, %v", i, rec.Code, rec.Header())
		}
	}
}

// A client that sends too slowly is cut off, and others are served meanwhile.
func TestSlowClients(t *testing.T) {
	r := start(t, WriterOptions{}, Options{})
	r.grace = time.Millisecond
	for range 20 {
		for _, begin := range []string{
			"", "POST /v1/tra", "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{",
		} {
			for _, address := range []string{r.http, r.grpc} {
				c, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				fmt.Fprint(c, begin)
			}
		}
	}
	for name, c := range clients(t, r) {
		list, _ := stubs(1, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := c.ExportSpans(ctx, list); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whoever has come to the wrong port is told so, once.
func TestGreetings(t *testing.T) {
	said := make(chan string, 100)
	r := start(t, WriterOptions{}, Options{Say: func(s string) { said <- s }})
	for _, c := range []struct{ address, greeting, want string }{
		{r.http, "\x16\x03\x01\x02\x00\x01\x00", "TLS"},
		{r.grpc, "\x16\x03\x01\x02\x00\x01\x00", ""}, // said already
		{r.http, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "OTLP/gRPC to the port of OTLP/HTTP"},
		{r.grpc, "POST /v1/traces HTTP/1.1\r\n\r\n", "OTLP/HTTP to the port of OTLP/gRPC"},
	} {
		conn, err := net.Dial("tcp", c.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, c.greeting)
		if c.want != "" {
			if got := <-said; !strings.Contains(got, c.want) {
				t.Errorf("%q: %s", c.greeting, got)
			}
		}
	}
	if len(said) > 0 {
		t.Errorf("also said %q", <-said)
	}
}

// Connections beyond the limit are closed at once, and come in again when others
// have left.
func TestConnectionLimit(t *testing.T) {
	l := limit(listen(t), func([]byte) {})
	defer l.Close()
	l.(*limited).slots = make(chan struct{}, 2)
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	dial()
	dial()
	first := <-accepted
	<-accepted
	if _, err := dial().Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection too many: %v", err)
	}
	first.Close()
	first.Close() // gives back one slot, not two
	dial()
	<-accepted
	if _, err := dial().Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection too many, again: %v", err)
	}
}

// FuzzHTTP sends any body. What is acknowledged is read back by what the other
// commands read with, and what is not leaves nothing behind.
func FuzzHTTP(f *testing.F) {
	pb, js := inProto(f, sample(0, 2)), inJSON(f, sample(0, 2))
	kinds := []string{typeProto, typeJSON, "application/json; charset=utf-8", "text/plain", ""}
	encodings := []string{"", "gzip", "zstd", "identity", "br"}
	f.Add(pb, uint8(0), uint8(0), false)
	f.Add(js, uint8(1), uint8(0), true)
	f.Add(zipped(pb), uint8(0), uint8(1), true)
	f.Add(zstandard(js), uint8(1), uint8(2), false)
	f.Add([]byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"attributes":[{"key":"\ud800","value":{"doubleValue":"NaN"}}],"links":[{}],"endTimeUnixNano":"1"}]}]}]}`), uint8(1), uint8(0), true)
	f.Add([]byte("\x0a\x04\x12\x02\x12\x00\x0a\x00"), uint8(0), uint8(0), false)
	f.Add([]byte("\x12\x00\x0a\x06\x1a\x00\x12\x02\x12\x00"), uint8(0), uint8(0), false)
	f.Fuzz(func(t *testing.T, body []byte, kind, encoding uint8, asProto bool) {
		if len(body) > 1<<16 {
			return
		}
		format := JSON
		if asProto {
			format = Proto
		}
		s := NewServer(&Writer{opts: WriterOptions{Format: format}}, Options{MaxRequest: limitInTest})
		var record []byte
		var acknowledged int
		s.write = func(b []byte, n int) error {
			record, acknowledged = b, n
			return nil
		}
		rec := httptest.NewRecorder()
		req := httptest.NewRequest("POST", tracesPath, bytes.NewReader(body))
		req.Header.Set("Content-Type", kinds[int(kind)%len(kinds)])
		req.Header.Set("Content-Encoding", encodings[int(encoding)%len(encodings)])
		s.handle(rec, req)
		switch rec.Code {
		case 200:
		case 400, 413, 415:
			statusOf(t, rec.Header().Get("Content-Type"), rec.Body.Bytes())
			if record != nil {
				t.Fatal("something was written of what was refused")
			}
			return
		default:
			t.Fatalf("status %d", rec.Code)
		}
		if record == nil {
			return
		}
		spans := 0
		d := otlp.NewDecoder(maxRecord, func(s *trace.Span, is *trace.Issue) bool {
			if s != nil {
				spans++
			}
			return true
		})
		read, sniff := d.JSON, otlp.SniffJSON
		if asProto {
			read, sniff = d.Proto, otlp.SniffProto
			n := binary.BigEndian.Uint32(record)
			if record = record[4:]; len(record) != int(n) {
				t.Fatalf("%d bytes stand behind a length of %d", len(record), n)
			}
		} else if bytes.Count(record, []byte("\n")) != 1 || !bytes.HasSuffix(record, []byte("\n")) {
			t.Fatal("is not one line")
		}
		if !sniff(record) {
			t.Fatalf("is not known for OTLP: %q", record)
		}
		if err := read(bytes.NewReader(record), otlp.At{}); err != nil {
			t.Fatal(err)
		}
		if spans != acknowledged {
			t.Fatalf("%d spans were acknowledged and %d are read", acknowledged, spans)
		}
	})
}

// sendHTTP sends protobuf and reports whether it was acknowledged.
func sendHTTP(address string, body []byte) bool {
	res, err := http.Post("http://"+address+tracesPath, typeProto, bytes.NewReader(body))
	if err != nil {
		return false
	}
	defer res.Body.Close()
	io.Copy(io.Discard, res.Body)
	return res.StatusCode == 200
}
