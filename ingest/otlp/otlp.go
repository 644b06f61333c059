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
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

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
var ErrStopped = errors.New("stopped by the receiver")

// At says where the bytes to decode stand, for positions in spans and issues.
type At struct {
	File   string
	Offset int64  // of the first byte
	Line   int    // of the first byte; 0: lines are not counted
	Path   string // before paths inside the record, such as "message[3]"
	// Inside says that the bytes are packed at Offset and have no offsets of
	// their own in the input: a message that was compressed by itself.
	Inside bool
}

func (a At) pos(i int64) trace.Pos {
	p := trace.Pos{File: a.File, Offset: a.Offset, Path: a.Path}
	if !a.Inside {
		p.Offset += i
	}
	return p
}

// A Decoder decodes any number of streams. It is not for concurrent use.
type Decoder struct {
	// Roots counts the values read that are meant to hold spans, Spans the
	// spans given to the sink, Others the JSON objects that are something else
	// (metrics, logs) and were passed over.
	Roots, Spans, Others int

	max  int64
	sink Sink

	strings  [1 << 10]string // by hash: the last string seen there
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

// intern returns b as a string, the same one where the text repeats soon.
func (d *Decoder) intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > 64 {
		return string(b)
	}
	h := uint32(2166136261) // FNV-1a
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	s := &d.strings[(h^h>>16)%uint32(len(d.strings))]
	if *s != string(b) {
		*s = string(b)
	}
	return *s
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

// maxIssues bounds what one span or resource can complain of.
const maxIssues = 100

// notes collects the issues of one span or resource.
type notes struct {
	list []trace.Issue
	pos  trace.Pos
	utf8 bool // the issue about it stands already
}

func (n *notes) begin(pos trace.Pos) { *n = notes{pos: pos} }

func (n *notes) add(code trace.Code, format string, args ...any) {
	switch {
	case len(n.list) < maxIssues:
		n.list = append(n.list, trace.NewIssue(code, n.pos, format, args...))
	case len(n.list) == maxIssues:
		n.list = append(n.list, trace.NewIssue(code, n.pos, "more of the kind follow in the same place"))
	}
}

// mend returns text as valid UTF-8, using scratch where it has to change.
func (n *notes) mend(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	if !n.utf8 {
		n.utf8 = true
		n.add(trace.InvalidUTF8, "a text is not valid UTF-8")
	}
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// A decimal is an integer as a source writes it, read exactly.
type decimal struct {
	neg bool
	abs uint64
}

type verdict uint8

const (
	fine     verdict = iota
	tooLarge         // an integer beyond uint64
	fraction         // a finite number, but not an integer
	notANumber
)

// parseInteger reads a JSON number, or the same in quotes, as an integer:
// digits, or any form such as 1.76e18 whose value is one. No float takes part.
func parseInteger(tok []byte) (decimal, verdict) {
	var x decimal
	i := 0
	if i < len(tok) && (tok[i] == '-' || tok[i] == '+') {
		x.neg = tok[i] == '-'
		i++
	}
	// mantissa: up to 20 significant digits; scale: the power of ten that is
	// still to be applied; rest: a digit that is not zero went unread.
	var (
		digits, scale int
		seen, point   bool
		over, rest    bool
	)
	for ; i < len(tok); i++ {
		c := tok[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		seen = true
		v := uint64(c - '0')
		switch {
		case digits == 0 && v == 0:
			if point {
				scale--
			}
		case over || x.abs > (math.MaxUint64-v)/10:
			over = true
			rest = rest || v != 0
			if !point {
				scale++
			}
		default:
			x.abs = x.abs*10 + v
			digits++
			if point {
				scale--
			}
		}
	}
	if !seen {
		return x, notANumber
	}
	if i < len(tok) {
		if tok[i] != 'e' && tok[i] != 'E' {
			return x, notANumber
		}
		i++
		neg := false
		if i < len(tok) && (tok[i] == '-' || tok[i] == '+') {
			neg = tok[i] == '-'
			i++
		}
		if i == len(tok) {
			return x, notANumber
		}
		exp := 0
		for ; i < len(tok); i++ {
			if tok[i] < '0' || tok[i] > '9' {
				return x, notANumber
			}
			exp = min(exp*10+int(tok[i]-'0'), 1<<30)
		}
		if neg {
			exp = -exp
		}
		scale += exp
	}
	if x.abs == 0 {
		return decimal{}, fine
	}
	for ; scale < 0 && x.abs%10 == 0; scale++ {
		x.abs /= 10
	}
	switch {
	case scale < 0:
		return x, fraction
	case rest && scale == 0:
		// Digits after the twentieth were dropped and all lay behind the point.
		return x, fraction
	case rest:
		return x, tooLarge
	}
	for ; scale > 0; scale-- {
		if x.abs > math.MaxUint64/10 {
			return x, tooLarge
		}
		x.abs *= 10
	}
	return x, fine
}

// int64 returns the value where it fits.
func (x decimal) int64() (int64, bool) {
	switch {
	case !x.neg && x.abs <= math.MaxInt64:
		return int64(x.abs), true
	case x.neg && x.abs <= 1<<63:
		return -int64(x.abs), true
	}
	return 0, false
}

// appendID appends the id that the text says: lower-case hexadecimal of size
// bytes, also where it was base64; nothing for an empty or zero id; any other
// text as it stands, with ok false.
func appendID(dst, text []byte, size int) (id []byte, ok bool) {
	hex, zero := true, true
	for _, c := range text {
		hex = hex && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F')
		zero = zero && c == '0'
	}
	if zero {
		return dst, true
	}
	if hex {
		for _, c := range text {
			if c >= 'A' && c <= 'F' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
		}
		return dst, len(text) == 2*size
	}
	var raw [16]byte
	if n := decodeBase64(raw[:], text); n == size {
		return appendHexID(dst, raw[:n]), true
	}
	return append(dst, text...), false
}

// appendHexID appends raw in hexadecimal; nothing where all of it is zero.
func appendHexID(dst, raw []byte) []byte {
	if !slices.ContainsFunc(raw, func(c byte) bool { return c != 0 }) {
		return dst
	}
	const digits = "0123456789abcdef"
	for _, c := range raw {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

// decodeBase64 decodes text of either alphabet, padded or not, into dst and
// returns the number of bytes; −1 where it is no base64 or does not fit.
func decodeBase64(dst, text []byte) int {
	for range 2 {
		text = bytes.TrimSuffix(text, []byte("="))
	}
	if len(text)%4 == 1 {
		return -1
	}
	var n int
	var bits uint32
	have := 0
	for _, c := range text {
		var v byte
		switch {
		case c >= 'A' && c <= 'Z':
			v = c - 'A'
		case c >= 'a' && c <= 'z':
			v = c - 'a' + 26
		case c >= '0' && c <= '9':
			v = c - '0' + 52
		case c == '+' || c == '-':
			v = 62
		case c == '/' || c == '_':
			v = 63
		default:
			return -1
		}
		bits = bits<<6 | uint32(v)
		if have += 6; have >= 8 {
			have -= 8
			if n == len(dst) {
				return -1
			}
			dst[n] = byte(bits >> have)
			n++
		}
	}
	return n
}

// appendQuoted appends text, which is valid UTF-8, as a JSON string.
func appendQuoted(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
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
