package sim

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/traceview/traceview/trace"
)

// Form is how messages of spans follow each other in a file.
type Form string

const (
	JSON     Form = "json"     // one object with all spans
	Lines    Form = "lines"    // one object a line, as the collector's file exporter writes them
	Pretty   Form = "pretty"   // indented objects, one after the other
	Array    Form = "array"    // one array of objects
	Proto    Form = "proto"    // one protobuf message with all spans
	Prefixed Form = "prefixed" // protobuf messages, each behind its length (4 bytes, big-endian)
)

// Forms lists the forms.
func Forms() []Form { return []Form{JSON, Lines, Pretty, Array, Proto, Prefixed} }

// Compression is how a file is compressed.
type Compression string

const (
	Plain       Compression = "plain"
	Gzip        Compression = "gzip"
	GzipMembers Compression = "gzip-members" // each message a member of its own
	Zstd        Compression = "zstd"
	// ZstdFramed is the file exporter's own: each message is compressed alone
	// and stands behind the length of what that gave (4 bytes, big-endian).
	ZstdFramed Compression = "zstd-framed"
)

// Compressions lists the compressions.
func Compressions() []Compression { return []Compression{Plain, Gzip, GzipMembers, Zstd, ZstdFramed} }

// Encoding says how [Encode] writes spans.
type Encoding struct {
	Form        Form        // empty: Lines
	Compression Compression // empty: Plain
	Batch       int         // spans a message, where the form has several; 0: 64
}

// Encode writes spans, as OTLP unless the form says otherwise. Of OTLP the encoding is that of the OpenTelemetry
// collector's own library, so that a reader that shares a mistake with us is
// found out. What a span does not have is not written; a time below zero is
// written as the unsigned number that it is then, beyond int64.
func Encode(w io.Writer, spans []*trace.Span, e Encoding) error {
	messages, err := e.messages(spans)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	switch e.Compression {
	case Plain, "":
		b.Write(bytes.Join(messages, nil))
	case Gzip:
		err = gz(&b, bytes.Join(messages, nil))
	case GzipMembers:
		for _, m := range messages {
			if err = gz(&b, m); err != nil {
				break
			}
		}
	case Zstd, ZstdFramed:
		var enc *zstd.Encoder
		if enc, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
			return err
		}
		if e.Compression == Zstd {
			b.Write(enc.EncodeAll(bytes.Join(messages, nil), nil))
			break
		}
		for _, m := range messages {
			if e.Form == Prefixed {
				m = m[4:]
			}
			b.Write(prefix(enc.EncodeAll(m, nil)))
		}
	default:
		err = fmt.Errorf("no such compression: %q", e.Compression)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// messages returns the pieces that make the file when put together.
func (e Encoding) messages(spans []*trace.Span) ([][]byte, error) {
	if pieces, err := spanFile(e.Form, spans); pieces != nil || err != nil {
		return pieces, err
	}
	size := e.Batch
	if size == 0 {
		size = 64
	}
	if e.Form == JSON || e.Form == Proto {
		size = max(1, len(spans))
	}
	var messages [][]byte
	for batch := range slices.Chunk(spans, size) {
		td, err := traces(batch)
		if err != nil {
			return nil, err
		}
		var m []byte
		if e.Form == Proto || e.Form == Prefixed {
			m, err = (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		} else {
			m, err = (&ptrace.JSONMarshaler{}).MarshalTraces(td)
		}
		if err != nil {
			return nil, err
		}
		switch e.Form {
		case JSON, Lines, "":
			m = append(m, '\n')
		case Pretty:
			var b bytes.Buffer
			if err := json.Indent(&b, m, "", "  "); err != nil {
				return nil, err
			}
			m = append(b.Bytes(), '\n')
		case Array:
			m = append([]byte{"[,"[min(1, len(messages))], '\n'}, m...)
		case Prefixed:
			m = prefix(m)
		case Proto:
		default:
			return nil, fmt.Errorf("no such form: %q", e.Form)
		}
		messages = append(messages, m)
	}
	if e.Form == Array {
		end := []byte("\n]\n")
		if len(messages) == 0 {
			return [][]byte{[]byte("[]\n")}, nil
		}
		messages[len(messages)-1] = append(messages[len(messages)-1], end...)
	}
	return messages, nil
}

func gz(w io.Writer, data []byte) error {
	z := gzip.NewWriter(w)
	if _, err := z.Write(data); err != nil {
		return err
	}
	return z.Close()
}

func prefix(m []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(m))), m...)
}

// traces turns spans into the collector's record, neighbours of one resource
// and scope together.
func traces(spans []*trace.Span) (ptrace.Traces, error) {
	td := ptrace.NewTraces()
	var (
		rs   ptrace.ResourceSpans
		ss   ptrace.ScopeSpans
		last *trace.Span
	)
	for _, s := range spans {
		if last == nil || last.Resource != s.Resource {
			rs = td.ResourceSpans().AppendEmpty()
			if s.Resource != nil {
				if err := attributes(rs.Resource().Attributes(), s.Resource.Attrs); err != nil {
					return td, err
				}
			}
		}
		if last == nil || last.Resource != s.Resource || last.Scope != s.Scope {
			ss = rs.ScopeSpans().AppendEmpty()
			ss.Scope().SetName(s.Scope)
		}
		last = s
		out := ss.Spans().AppendEmpty()
		var t [16]byte
		var id, parent [8]byte
		for _, x := range []struct {
			to   []byte
			text string
		}{{t[:], s.TraceID}, {id[:], s.SpanID}, {parent[:], s.ParentID}} {
			if x.text == "" {
				continue
			}
			raw, err := hex.DecodeString(x.text)
			if err != nil || len(raw) != len(x.to) {
				return td, fmt.Errorf("id %q cannot be written: it needs %d hexadecimal digits", x.text, 2*len(x.to))
			}
			copy(x.to, raw)
		}
		out.SetTraceID(t)
		out.SetSpanID(id)
		out.SetParentSpanID(parent)
		out.SetName(s.Name)
		out.SetKind(ptrace.SpanKind(s.Kind))
		out.SetStartTimestamp(stamp(s.Start))
		out.SetEndTimestamp(stamp(s.End))
		out.Status().SetCode(ptrace.StatusCode(s.Status))
		out.Status().SetMessage(s.StatusMessage)
		if err := attributes(out.Attributes(), s.Attrs); err != nil {
			return td, err
		}
		for _, ev := range s.Events {
			e := out.Events().AppendEmpty()
			e.SetName(ev.Name)
			e.SetTimestamp(stamp(ev.At))
			if err := attributes(e.Attributes(), ev.Attrs); err != nil {
				return td, err
			}
		}
	}
	return td, nil
}

func stamp(t trace.Opt[trace.Time]) pcommon.Timestamp { return pcommon.Timestamp(t.Or(0)) }

func attributes(m pcommon.Map, attrs []trace.Attr) error {
	m.EnsureCapacity(len(attrs))
	for _, a := range attrs {
		v := m.PutEmpty(a.Key)
		switch a.Value.Kind() {
		case trace.ValueString:
			v.SetStr(a.Value.String())
		case trace.ValueInt:
			i, _ := a.Value.Int()
			v.SetInt(i)
		case trace.ValueFloat:
			f, _ := a.Value.Float()
			v.SetDouble(f)
		case trace.ValueBool:
			v.SetBool(a.Value.String() == "true")
		case trace.ValueJSON:
			var raw any
			if err := json.Unmarshal([]byte(a.Value.String()), &raw); err != nil {
				return fmt.Errorf("attribute %s: %w", a.Key, err)
			}
			if err := v.FromRaw(raw); err != nil {
				return fmt.Errorf("attribute %s: %w", a.Key, err)
			}
		}
	}
	return nil
}
