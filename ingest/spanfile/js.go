package spanfile

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// JSConsole is what OpenTelemetry's JavaScript SDK prints: ConsoleSpanExporter,
// read at SDK 2.12 and older names: objects as Node.js shows them to people
// (util.inspect), each from a line "{" to a line "}", between whatever else the
// process prints. It is no JSON: keys stand bare, texts in quotes of three
// kinds, and what lies deeper than three levels is left out as [Object].
//
// Times are microseconds.
var JSConsole = Container{
	Name:     "otel-console-js",
	Evidence: "objects as Node.js shows them, with the keys traceId, id, timestamp and duration",
	Yields:   "spans, then requests; times to 1 µs",
	NotTold:  "times below 1 µs, attributes that are nested deep, texts and lists that Node.js cuts",
	Sniff: func(head []byte) bool {
		head = plainText(head)
		return has(head, "{\n", " traceId: '", " id: '", " timestamp: ", " duration: ")
	},
	step: time.Microsecond,
}

// plainText drops the colours that terminals get.
func plainText(b []byte) []byte {
	if bytes.IndexByte(b, 0x1b) < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if bytes.HasPrefix(b[i:], []byte("\x1b[")) {
			if end := bytes.IndexByte(b[i:min(len(b), i+10)], 'm'); end > 0 {
				i += end
				continue
			}
		}
		out = append(out, b[i])
	}
	return out
}

// JS decodes what Node.js shows of spans. It returns the first error of r,
// after having decoded what came before, or [scan.ErrStopped].
func (d *Decoder) JS(r io.Reader, at scan.At) error {
	s := inspected{d: d, at: at, line: at.Line, foreign: -1}
	br := bufio.NewReaderSize(r, 64<<10)
	var err error
	for err == nil {
		var piece []byte
		piece, err = br.ReadSlice('\n')
		if len(piece) == 0 {
			continue
		}
		whole := err == nil || errors.Is(err, io.EOF)
		if errors.Is(err, bufio.ErrBufferFull) {
			err = nil
		}
		if e := s.add(piece, whole); e != nil {
			return e
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	return s.end()
}

// inspected finds the objects that util.inspect wrote.
type inspected struct {
	d    *Decoder
	at   scan.At
	off  int64
	line int

	within  bool // an object; else text
	middle  bool // of a line
	large   bool // the object is over the limit
	begin   trace.Pos
	start   int64 // of the object
	buf     []byte
	json    []byte
	foreign int64 // where text began; −1: there is none
	text    trace.Pos
}

func (s *inspected) pos() trace.Pos {
	p := s.at.Pos(s.off)
	p.Line = s.line
	return p
}

func (s *inspected) issue(code trace.Code, pos trace.Pos, format string, args ...any) error {
	is := trace.NewIssue(code, pos, format, args...)
	if !s.d.sink(nil, &is) {
		return scan.ErrStopped
	}
	return nil
}

// add takes a line or, where it is long, a piece of it; last says that it ends.
func (s *inspected) add(piece []byte, last bool) error {
	defer func() {
		s.off += int64(len(piece))
		if s.middle = !last; last && s.line > 0 {
			s.line++
		}
	}()
	shown := bytes.TrimRight(plainText(piece), " \t\r\n")
	alone := last && !s.middle
	switch {
	case alone && string(shown) == "{":
		if s.within {
			if err := s.issue(trace.BadJSON, s.begin, "an object stops in the middle; %d bytes skipped", s.off-s.start); err != nil {
				return err
			}
		}
		if err := s.flush(); err != nil {
			return err
		}
		s.within, s.large, s.begin, s.start, s.buf = true, false, s.pos(), s.off, append(s.buf[:0], "{\n"...)
	case s.within && alone && string(shown) == "}":
		s.within = false
		if s.large {
			return nil
		}
		s.buf = append(s.buf, '}')
		return s.value()
	case s.within && !s.large:
		if int64(len(s.buf)+len(piece)) > s.d.max {
			s.large = true
			return s.issue(trace.RecordTooLarge, s.begin, "an object is larger than %d bytes", s.d.max)
		}
		s.buf = append(s.buf, plainText(piece)...)
	case !s.within && s.foreign < 0 && len(shown) > 0:
		s.foreign, s.text = s.off, s.pos()
	}
	return nil
}

// flush tells of the text before an object.
func (s *inspected) flush() error {
	if s.foreign < 0 {
		return nil
	}
	n := s.off - s.foreign
	s.foreign = -1
	return s.issue(trace.ForeignLine, s.text, "no spans in %d bytes of text", n)
}

func (s *inspected) end() error {
	if s.within && !s.large {
		return s.issue(trace.Truncated, s.begin, "last object incomplete (%d bytes)", s.off-s.start)
	}
	return s.flush()
}

// value decodes the object in buf.
func (s *inspected) value() error {
	s.json = jsonOf(s.json[:0], s.buf)
	p := parser{
		Parser: scan.Parser{B: s.json, At: s.at, Begin: s.begin, Texts: &s.d.texts},
		d:      s.d, c: &JSConsole, path: s.at.Path,
		v: scan.Value{B: s.json, Begin: s.begin, Report: true, Ours: func() error { return nil }},
	}
	if p.path != "" {
		p.path += "."
	}
	p.span(p.jsSpan, "")
	if !p.mine {
		s.d.Others++
	}
	return p.Err
}

// jsonOf appends what util.inspect shows as JSON; where it shows no value, null.
func jsonOf(dst, b []byte) []byte {
	var text []byte
	joined := false // "+" stands between two texts
	for i := 0; i < len(b); {
		switch c := b[i]; {
		case c == '\'' || c == '"' || c == '`':
			text, i = inspectedText(text[:0], b, i)
			if joined && len(dst) > 0 && dst[len(dst)-1] == '"' {
				dst = append(dst[:len(dst)-1], scan.AppendQuoted(nil, text)[1:]...)
			} else {
				dst = scan.AppendQuoted(dst, text)
			}
			joined = false
		case c == '+':
			joined = true
			dst = bytes.TrimRight(dst, " \t\r\n")
			i++
			for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\r') {
				i++
			}
		case c == '[' && i+1 < len(b) && b[i+1] >= 'A' && b[i+1] <= 'Z': // [Object], [Array], [Object: null prototype] {
			end := bytes.IndexByte(b[i:], ']')
			if end < 0 {
				return dst
			}
			if i += end + 1; following(b[i:]) != '{' {
				dst = append(dst, "null"...)
			}
		case c == '.' && bytes.HasPrefix(b[i:], []byte("...")): // ... 3 more items
			for i < len(b) && b[i] != '\n' && b[i] != ']' && b[i] != '}' {
				i++
			}
			dst = append(dst, "null"...)
		case isWord(c):
			begin := i
			for i < len(b) && (isWord(b[i]) || b[i] == '+' && b[i-1] == 'e') { // 1e+21
				i++
			}
			word := b[begin:i]
			switch next := following(b[i:]); {
			case next == ':':
				dst = scan.AppendQuoted(dst, word)
			case next == '{' || next == '[' || next == '(': // the name of a class
				if next == '(' {
					for i < len(b) && b[i] != ')' && b[i] != '\n' {
						i++
					}
					i = min(i+1, len(b))
				}
			default:
				dst = append(dst, inspectedWord(word)...)
			}
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c == '.' || c == '-'
}

// following returns the first byte of b that is no blank.
func following(b []byte) byte {
	if b = bytes.TrimLeft(b, " \t\r\n"); len(b) > 0 {
		return b[0]
	}
	return 0
}

func inspectedWord(w []byte) []byte {
	switch string(w) {
	case "true", "false", "null", "NaN", "Infinity", "-Infinity":
		return w
	}
	if c := w[0]; c == '-' || c >= '0' && c <= '9' {
		return bytes.TrimSuffix(w, []byte("n")) // a BigInt
	}
	return []byte("null") // undefined, and what has no value
}

// inspectedText appends the text in quotes that begins at b[i], and returns
// where it ends.
func inspectedText(dst, b []byte, i int) ([]byte, int) {
	quote := b[i]
	for i++; i < len(b); i++ {
		c := b[i]
		switch {
		case c == quote:
			return dst, i + 1
		case c != '\\' || i+1 == len(b):
			dst = append(dst, c)
			continue
		}
		i++
		switch c := b[i]; c {
		case 'n':
			dst = append(dst, '\n')
		case 't':
			dst = append(dst, '\t')
		case 'r':
			dst = append(dst, '\r')
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'x', 'u':
			n := 2
			if c == 'u' {
				n = 4
			}
			if v, err := strconv.ParseUint(string(b[i+1:min(len(b), i+1+n)]), 16, 32); err == nil && i+n < len(b) {
				dst = utf8.AppendRune(dst, rune(v))
				i += n
			}
		default:
			dst = append(dst, c)
		}
	}
	return dst, i
}

func (p *parser) jsSpan(s *trace.Span) bool {
	var length trace.Opt[trace.Time]
	id := false
	p.object("a span", func(key []byte) {
		switch string(key) {
		case "resource":
			s.Resource = p.resource(func() (list []trace.Attr) {
				p.object("resource", func(key []byte) {
					if string(key) == "attributes" {
						list = p.attributes("attributes")
					} else {
						p.Skip()
					}
				})
				return list
			})
		case "instrumentationScope", "instrumentationLibrary":
			p.object("scope", func(key []byte) {
				if string(key) == "name" {
					s.Scope = p.Text("scope name")
				} else {
					p.Skip()
				}
			})
		case "traceId":
			id = true
			s.TraceID = p.id(p.Plain("traceId"), 16, "trace")
		case "parentSpanContext":
			p.object("parentSpanContext", func(key []byte) {
				if string(key) == "spanId" {
					s.ParentID = p.id(p.Plain("spanId"), 8, "parent")
				} else {
					p.Skip()
				}
			})
		case "parentId", "parentSpanId":
			s.ParentID = p.id(p.Plain("parentId"), 8, "parent")
		case "name":
			s.Name = p.Text("name")
		case "id":
			s.SpanID = p.id(p.Plain("id"), 8, "span")
		case "kind": // counts from 0, without an unspecified one
			if x, v := scan.ParseInteger(p.Scalar("kind", "number")); v == scan.Fine && !x.Neg && x.Abs < uint64(len(kindNames)-1) {
				s.Kind = trace.SpanKind(x.Abs + 1)
			} else {
				p.Notes.Add(trace.BadField, "kind is unknown")
			}
		case "timestamp":
			s.Start = p.scaled("timestamp", micros)
		case "duration":
			length = p.scaled("duration", micros)
		case "attributes":
			s.Attrs = p.attributes("attributes")
		case "status":
			p.object("status", func(key []byte) {
				switch string(key) {
				case "code":
					if x, v := scan.ParseInteger(p.Scalar("code", "number")); v == scan.Fine && !x.Neg && x.Abs < uint64(len(statusNames)) {
						s.Status = trace.StatusCode(x.Abs)
					} else {
						p.Notes.Add(trace.BadField, "the status code is unknown")
					}
				case "message":
					s.StatusMessage = p.Text("message")
				default:
					p.Skip()
				}
			})
		case "events":
			p.array("events", func(int) { s.Events = append(s.Events, p.jsEvent()) })
		default:
			p.Skip()
		}
	})
	s.End = p.after(s.Start, length)
	return id
}

// jsEvent reads an event, whose time is [seconds, nanoseconds].
func (p *parser) jsEvent() (e trace.Event) {
	p.object("an event", func(key []byte) {
		switch string(key) {
		case "name":
			e.Name = p.Text("event name")
		case "attributes":
			e.Attrs = p.attributes("attributes")
		case "time":
			var parts []trace.Opt[trace.Time]
			p.values("time", func() {
				if exp := 9 * (1 - len(parts)); exp >= 0 {
					parts = append(parts, p.scaled("time", exp))
				} else {
					p.Skip()
				}
			})
			if len(parts) == 2 {
				e.At = p.after(parts[0], parts[1])
			}
		default:
			p.Skip()
		}
	})
	return e
}
