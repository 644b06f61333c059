// Package otlp decodes OpenTelemetry traces, as JSON or protobuf, to
// [trace.Span]. It reads the bytes itself, because the usual libraries give up
// a whole batch for one bad span and stop after the first JSON value: here one
// bad span costs one span, and what had to be left out or mended comes as a
// [trace.Issue].
//
// What the spans mean is package engine's business; files, compression and
// framing are package ingest's.
package otlp

import (
	"bufio"
	"io"
	"slices"
	"strconv"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// The values of [trace.Source].Format for spans from here.
const (
	FormatJSON  = "otlp-json"
	FormatProto = "otlp-proto"
)

// A Sink takes what is decoded, in input order. Exactly one argument is not
// nil. Issues about one span are in the span; those given apart are about
// spans or bytes that are lost, or about a resource. It returns false to stop.
type Sink func(*trace.Span, *trace.Issue) bool

// ErrStopped is returned when the sink wanted no more.
var ErrStopped = scan.ErrStopped

// At says where the bytes to decode stand.
type At = scan.At

// A Decoder decodes any number of streams. It is not for concurrent use.
type Decoder struct {
	// Roots counts the values read that are meant to hold spans, Spans the
	// spans given to the sink, Others the JSON objects that are something else
	// (metrics, logs) and were passed over.
	Roots, Spans, Others int

	max  int64
	sink Sink

	texts    scan.Texts
	scratch  []byte
	attrs    []trace.Attr
	events   []trace.Event
	buf      []byte        // of JSON
	reader   *bufio.Reader // of protobuf
	payload  []byte
	resource *trace.Resource // of the text resText
	resText  []byte
	paths    []string // of the spans below pathsOf
	pathsOf  string

	resourcePath, scopePath memo
}

// A memo keeps the last path that was put together.
type memo struct {
	prefix, name, path string
	i                  int
}

// of returns prefix + "name[i].".
func (m *memo) of(prefix, name string, i int) string {
	if m.path == "" || m.i != i || m.prefix != prefix || m.name != name {
		*m = memo{prefix, name, element(prefix, name, i) + ".", i}
	}
	return m.path
}

// NewDecoder returns a decoder that refuses single values of more than
// maxRecord bytes; at most that much of the input is held in memory.
func NewDecoder(maxRecord int64, sink Sink) *Decoder {
	return &Decoder{max: maxRecord, sink: sink}
}

// spanPath returns prefix + "spans[i]".
func (d *Decoder) spanPath(prefix string, i int) string {
	if prefix != d.pathsOf {
		d.pathsOf, d.paths = prefix, d.paths[:0]
	}
	const kept = 1 << 14
	if i >= kept {
		return element(prefix, "spans", i)
	}
	for len(d.paths) <= i {
		d.paths = append(d.paths, element(prefix, "spans", len(d.paths)))
	}
	return d.paths[i]
}

func element(prefix, name string, i int) string {
	b := make([]byte, 0, len(prefix)+len(name)+10)
	b = append(b, prefix...)
	b = append(b, name...)
	b = append(b, '[')
	b = strconv.AppendInt(b, int64(i), 10)
	return string(append(b, ']'))
}

// maxNesting is how deep an attribute's arrays and maps may go.
const maxNesting = 32

// readAtMost reads n bytes of r into buf, which grows with what really comes
// and not with what was declared. It returns fewer at the end of r, with the
// reader's error unless that is io.EOF.
func readAtMost(r io.Reader, buf []byte, n int64) ([]byte, error) {
	buf = buf[:0]
	for int64(len(buf)) < n {
		if len(buf) == cap(buf) {
			buf = slices.Grow(buf, max(4096, min(len(buf), 1<<24)))
		}
		room := min(int64(cap(buf)-len(buf)), n-int64(len(buf)))
		m, err := r.Read(buf[len(buf) : len(buf)+int(room)])
		buf = buf[:len(buf)+m]
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return buf, err
		}
	}
	return buf, nil
}
