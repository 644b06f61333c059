package receive

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/traceview/traceview/ingest/otlp"
	"github.com/traceview/traceview/trace"
)

// receiver is a server on loopback.
type receiver struct {
	*Server
	grpc, http string // addresses
	folder     string
	stop       func() // ends it gracefully; may be called again
}

func start(t testing.TB, w WriterOptions, opts Options) *receiver {
	t.Helper()
	if w.Folder == "" {
		w.Folder = t.TempDir()
	}
	writer, err := NewWriter(w)
	if err != nil {
		t.Fatal(err)
	}
	return serve(t, writer, opts)
}

func serve(t testing.TB, w *Writer, opts Options) *receiver {
	t.Helper()
	g, h := listen(t), listen(t)
	r := &receiver{Server: NewServer(w, opts), grpc: g.Addr().String(), http: h.Addr().String(), folder: w.opts.Folder}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, g, h) }()
	ended := false
	r.stop = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		w.Close()
	}
	t.Cleanup(r.stop)
	return r
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// records reads the records of a folder's files, in order.
func records(t testing.TB, folder string) (list [][]byte, formats []Format) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		var r io.Reader = f
		plain := name
		switch filepath.Ext(name) {
		case ".gz":
			r, err = gzip.NewReader(f)
			plain = strings.TrimSuffix(name, ".gz")
		case ".zst":
			r, err = zstd.NewReader(f)
			plain = strings.TrimSuffix(name, ".zst")
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for len(b) > 0 {
			if filepath.Ext(plain) == ".pb" {
				n := binary.BigEndian.Uint32(b)
				list, formats = append(list, b[4:4+n]), append(formats, Proto)
				b = b[4+n:]
				continue
			}
			line, rest, whole := bytes.Cut(b, []byte("\n"))
			if !whole {
				t.Fatalf("%s ends inside a line", name)
			}
			list, formats = append(list, line), append(formats, JSON)
			b = rest
		}
	}
	return list, formats
}

// spansOf reads the spans of a folder's files as the other commands do.
func spansOf(t testing.TB, folder string) (spans []*trace.Span) {
	t.Helper()
	d := otlp.NewDecoder(maxRecord, func(s *trace.Span, is *trace.Issue) bool {
		if is != nil {
			t.Errorf("issue: %v", is)
			return true
		}
		for _, is := range s.Issues {
			t.Errorf("issue: %v", &is)
		}
		spans = append(spans, s)
		return true
	})
	list, formats := records(t, folder)
	for i, b := range list {
		read := d.JSON
		if formats[i] == Proto {
			read = d.Proto
		}
		if err := read(bytes.NewReader(b), otlp.At{}); err != nil {
			t.Fatal(err)
		}
	}
	return spans
}

// sample makes a request of n spans, the first of which has the number from.
func sample(from, n int) ptraceotlp.ExportRequest {
	req := ptraceotlp.NewExportRequest()
	rs := req.Traces().ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "sample")
	list := rs.ScopeSpans().AppendEmpty().Spans()
	for i := from; i < from+n; i++ {
		s := list.AppendEmpty()
		s.SetName("llm_request")
		s.SetTraceID(pcommon.TraceID{1, 15: 1})
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(i+1))
		s.SetSpanID(id)
		s.SetStartTimestamp(1_700_000_000_000_000_001)
		s.SetEndTimestamp(1_700_000_000_500_000_002)
		s.Attributes().PutInt("gen_ai.usage.prompt_tokens", int64(i))
		s.Attributes().PutStr("gen_ai.request.id", "cmpl-0123456789abcdef")
		s.Attributes().PutDouble("gen_ai.latency.e2e", 0.5)
	}
	return req
}

func inProto(t testing.TB, req ptraceotlp.ExportRequest) []byte {
	t.Helper()
	b, err := req.MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func inJSON(t testing.TB, req ptraceotlp.ExportRequest) []byte {
	t.Helper()
	b, err := req.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return b
}
