package otlp

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// Proto decodes an ExportTraceServiceRequest or TracesData, which are the same
// on the wire, or several of them one after the other. It returns the first
// error of r, after having decoded what came before, or ErrStopped. One
// resource with its spans is held in memory at a time.
func (d *Decoder) Proto(r io.Reader, at At) error {
	if d.reader == nil {
		d.reader = bufio.NewReaderSize(nil, 64<<10)
	}
	d.reader.Reset(r)
	w := wire{d: d, at: at, r: d.reader}
	return w.run()
}

// wire decodes one stream of protobuf.
type wire struct {
	d  *Decoder
	at At
	r  *bufio.Reader

	off   int64 // of the next byte of r
	batch int   // resourceSpans seen
	path  string
	notes scan.Notes
}

// ReadByte counts while it reads, for binary.ReadUvarint.
func (w *wire) ReadByte() (byte, error) {
	c, err := w.r.ReadByte()
	if err == nil {
		w.off++
	}
	return c, err
}

func (w *wire) issue(code trace.Code, off int64, path, format string, args ...any) error {
	pos := w.at.Pos(off)
	pos.Path = path
	is := trace.NewIssue(code, pos, format, args...)
	if !w.d.sink(nil, &is) {
		return ErrStopped
	}
	return nil
}

// torn reports the end of the input inside a record, unless the reader failed:
// then its error says it.
func (w *wire) torn(start int64, err error) error {
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	return w.issue(trace.Truncated, start, w.at.Path, "last message incomplete (%d bytes)", w.off-start)
}

func (w *wire) run() error {
	prefix := w.at.Path
	if prefix != "" {
		prefix += "."
	}
	for {
		start := w.off
		if _, err := w.r.Peek(1); err != nil {
			if err == io.EOF {
				return nil
			}
			return err
		}
		tag, err := binary.ReadUvarint(w)
		num, typ := protowire.DecodeTag(tag)
		var n uint64
		switch {
		case err != nil:
		case num < 1 || num > protowire.MaxValidNumber:
			return w.issue(trace.BadProtobuf, start, w.at.Path, "no field has number %d; the rest cannot be read", num)
		case typ == protowire.BytesType:
			n, err = binary.ReadUvarint(w)
		case typ == protowire.VarintType:
			_, err = binary.ReadUvarint(w)
		case typ == protowire.Fixed32Type:
			n = 4
		case typ == protowire.Fixed64Type:
			n = 8
		default:
			return w.issue(trace.BadProtobuf, start, w.at.Path, "a field has type %d; the rest cannot be read", typ)
		}
		if err != nil {
			if w.off-start >= binary.MaxVarintLen64 {
				return w.issue(trace.BadProtobuf, start, w.at.Path, "a number has no end; the rest cannot be read")
			}
			return w.torn(start, err)
		}
		if num != 1 || typ != protowire.BytesType || n > uint64(w.d.max) {
			if num == 1 && n > uint64(w.d.max) {
				if err := w.issue(trace.RecordTooLarge, start, w.at.Path, "a message has %d bytes, more than %d", n, w.d.max); err != nil {
					return err
				}
			}
			m, err := io.CopyN(io.Discard, w.r, int64(min(n, math.MaxInt64)))
			if w.off += m; err != nil {
				return w.torn(start, err)
			}
			continue
		}
		w.d.Roots++
		payload := w.off
		b, err := readAtMost(w.r, w.d.payload, int64(n))
		w.d.payload = b
		w.off += int64(len(b))
		w.path = w.d.resourcePath.of(prefix, "resourceSpans", w.batch)
		w.batch++
		partial := len(b) < int(n)
		if err2 := w.resourceSpans(b, payload, partial); err2 != nil {
			return err2
		}
		if partial {
			return w.torn(start, err)
		}
	}
}

// fields walks the fields of a message.
type fields struct {
	b       []byte
	i       int
	partial bool // b breaks off at its end

	num   protowire.Number
	typ   protowire.Type
	u     uint64 // of a varint, fixed32 or fixed64
	val   []byte // of bytes
	valAt int    // its index in b
	cut   bool   // val breaks off
	bad   int    // where the message is malformed; −1: nowhere
}

func walk(b []byte, partial bool) fields { return fields{b: b, partial: partial, bad: -1} }

// next reads a field. Where it returns false, bad says whether all was read.
// A field of bytes that is longer than its message is returned as far as it
// goes, with cut.
func (f *fields) next() bool {
	if f.i >= len(f.b) || f.bad >= 0 {
		return false
	}
	start := f.i
	num, typ, n := protowire.ConsumeTag(f.b[f.i:])
	if n < 0 {
		f.bad = start
		return false
	}
	f.i += n
	f.num, f.typ, f.u, f.val, f.cut = num, typ, 0, nil, false
	rest := f.b[f.i:]
	switch typ {
	case protowire.BytesType:
		size, m := protowire.ConsumeVarint(rest)
		if m < 0 {
			f.bad = start
			return false
		}
		f.valAt = f.i + m
		if size > uint64(len(rest)-m) {
			f.cut, f.bad = true, start
			size = uint64(len(rest) - m)
		}
		f.val = f.b[f.valAt : f.valAt+int(size)]
		f.i = f.valAt + int(size)
		return true
	case protowire.VarintType:
		f.u, n = protowire.ConsumeVarint(rest)
	case protowire.Fixed64Type:
		f.u, n = protowire.ConsumeFixed64(rest)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(rest)
		f.u = uint64(v)
	default:
		n = protowire.ConsumeFieldValue(num, typ, rest)
	}
	if n < 0 {
		f.bad = start
		return false
	}
	f.i += n
	return true
}

// container reports the fault of a message around spans, if it has one that
// is not just the end of a torn input.
func (w *wire) container(f *fields, off int64) error {
	if f.bad < 0 || f.partial {
		return nil
	}
	return w.issue(trace.BadProtobuf, off+int64(f.bad), w.path[:len(w.path)-1], "the message is malformed behind here")
}

// resourceSpans reads one resource with its spans. off is the offset of b.
func (w *wire) resourceSpans(b []byte, off int64, partial bool) error {
	var resource *trace.Resource
	w.begin(off, w.path[:len(w.path)-1])
	for f := walk(b, partial); f.next(); {
		if f.num == 1 && f.typ == protowire.BytesType && !f.cut {
			resource = w.resource(f.val)
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	outer := w.path
	scopes := 0
	f := walk(b, partial)
	for f.next() {
		// 1000 was its number while the libraries' spans were renamed.
		if f.num != 2 && f.num != 1000 || f.typ != protowire.BytesType {
			continue
		}
		w.path = w.d.scopePath.of(outer, "scopeSpans", scopes)
		scopes++
		err := w.scopeSpans(f.val, off+int64(f.valAt), resource, partial && f.cut)
		w.path = outer
		if err != nil {
			return err
		}
	}
	return w.container(&f, off)
}

func (w *wire) begin(off int64, path string) {
	pos := w.at.Pos(off)
	pos.Path = path
	w.notes.Begin(pos)
}

// flush gives the issues that are not about one span to the sink.
func (w *wire) flush() error {
	for i := range w.notes.List {
		if !w.d.sink(nil, &w.notes.List[i]) {
			return ErrStopped
		}
	}
	w.notes.List = nil
	return nil
}

// resource reads a resource; one whose bytes are those of the last is shared.
func (w *wire) resource(b []byte) *trace.Resource {
	if w.d.resource != nil && string(w.d.resText) == string(b) {
		return w.d.resource
	}
	base := len(w.d.attrs)
	f := walk(b, false)
	for f.next() {
		if f.num == 1 && f.typ == protowire.BytesType && !w.attribute(f.val) {
			f.bad = f.i
		}
	}
	if f.bad >= 0 {
		w.notes.Add(trace.BadProtobuf, "the resource is malformed")
	}
	attrs := w.d.popAttrs(base)
	if len(attrs) == 0 {
		return nil
	}
	res := &trace.Resource{Attrs: attrs}
	if len(w.notes.List) == 0 {
		w.d.resource, w.d.resText = res, append(w.d.resText[:0], b...)
	}
	return res
}

// popAttrs takes what was collected behind base.
func (d *Decoder) popAttrs(base int) []trace.Attr {
	var list []trace.Attr
	if n := len(d.attrs) - base; n > 0 {
		list = make([]trace.Attr, n)
		copy(list, d.attrs[base:])
		clear(d.attrs[base:])
	}
	d.attrs = d.attrs[:base]
	return list
}

func (w *wire) scopeSpans(b []byte, off int64, resource *trace.Resource, partial bool) error {
	scope := ""
	w.begin(off, w.path[:len(w.path)-1])
	for f := walk(b, partial); f.next(); {
		if f.num != 1 || f.typ != protowire.BytesType || f.cut {
			continue
		}
		for g := walk(f.val, false); g.next(); {
			if g.num == 1 && g.typ == protowire.BytesType {
				scope = w.text(g.val)
			}
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	n := 0
	f := walk(b, partial)
	for f.next() {
		if f.num != 2 || f.typ != protowire.BytesType {
			continue
		}
		pos := w.at.Pos(off + int64(f.valAt))
		pos.Path = w.d.spanPath(w.path, n)
		n++
		w.notes.Begin(pos)
		if f.cut {
			break // container tells of it
		}
		s := &trace.Span{Format: FormatProto, Scope: scope, Resource: resource, Pos: pos}
		base := len(w.d.attrs)
		if at := w.span(f.val, s); at >= 0 {
			w.d.attrs = w.d.attrs[:base]
			w.notes.List = nil
			if err := w.issue(trace.BadSpan, off+int64(f.valAt), pos.Path, "a span is malformed at its byte %d", at); err != nil {
				return err
			}
			continue
		}
		s.Issues, w.notes.List = w.notes.List, nil
		w.d.Spans++
		if !w.d.sink(s, nil) {
			return ErrStopped
		}
	}
	return w.container(&f, off)
}

func (w *wire) text(b []byte) string { return w.d.texts.Intern(w.notes.Mend(b)) }

// span reads a span. It returns the place at which it is malformed; −1 where
// it is well.
func (w *wire) span(b []byte, s *trace.Span) int {
	var ids [3][]byte
	base := len(w.d.attrs)
	events := w.d.events[:0]
	f := walk(b, false)
	for f.next() {
		bytesField := f.typ == protowire.BytesType
		ok := bytesField
		switch f.num {
		case 1:
			ids[0] = f.val
		case 2:
			ids[1] = f.val
		case 4:
			ids[2] = f.val
		case 5:
			s.Name = w.text(f.val)
		case 6:
			if ok = f.typ == protowire.VarintType; ok && f.u <= uint64(trace.KindConsumer) {
				s.Kind = trace.SpanKind(f.u)
			} else if ok {
				w.notes.Add(trace.BadField, "kind is unknown")
			}
		case 7:
			if ok = f.typ == protowire.Fixed64Type; ok {
				s.Start = w.time(f.u, "startTimeUnixNano")
			}
		case 8:
			if ok = f.typ == protowire.Fixed64Type; ok {
				s.End = w.time(f.u, "endTimeUnixNano")
			}
		case 9:
			if bytesField && !f.cut && !w.attribute(f.val) {
				return f.valAt
			}
		case 11:
			if bytesField && !f.cut {
				e, good := w.event(f.val)
				if !good {
					return f.valAt
				}
				events = append(events, e)
			}
		case 15:
			if bytesField && !f.cut && !w.status(f.val, s) {
				return f.valAt
			}
		default:
			ok = true
		}
		if !ok {
			w.notes.Add(trace.BadField, "field %d has the wrong type", f.num)
		}
	}
	w.d.events = events
	if f.bad >= 0 {
		return f.bad
	}
	s.Attrs = w.d.popAttrs(base)
	if len(events) > 0 {
		s.Events = slices.Clone(events)
		clear(events)
	}
	id := w.d.scratch[:0]
	var ends [3]int
	for i, raw := range ids {
		size := 8
		if i == 0 {
			size = 16
		}
		begin := len(id)
		id = scan.AppendHexID(id, raw)
		if len(id) > begin && len(raw) != size {
			w.notes.Add(trace.BadID, "the %s id %q has %d bytes", idNames[i], scan.Short(id[begin:]), len(raw))
		}
		ends[i] = len(id)
	}
	w.d.scratch = id
	all := string(id)
	s.TraceID, s.SpanID, s.ParentID = all[:ends[0]], all[ends[0]:ends[1]], all[ends[1]:]
	return -1
}

// time reads Unix nanoseconds; 0 is absent.
func (w *wire) time(u uint64, field string) trace.Opt[trace.Time] {
	if u > math.MaxInt64 {
		w.notes.Add(trace.TimeOutOfRange, "%s does not fit int64 nanoseconds", field)
	} else if u > 0 {
		return trace.Some(trace.Time(u))
	}
	return trace.Opt[trace.Time]{}
}

func (w *wire) event(b []byte) (e trace.Event, ok bool) {
	base := len(w.d.attrs)
	f := walk(b, false)
	for f.next() {
		switch {
		case f.num == 1 && f.typ == protowire.Fixed64Type:
			e.At = w.time(f.u, "timeUnixNano")
		case f.num == 2 && f.typ == protowire.BytesType:
			e.Name = w.text(f.val)
		case f.num == 3 && f.typ == protowire.BytesType:
			if !w.attribute(f.val) {
				return e, false
			}
		}
	}
	if f.bad >= 0 {
		return e, false
	}
	e.Attrs = w.d.popAttrs(base)
	return e, true
}

func (w *wire) status(b []byte, s *trace.Span) bool {
	f := walk(b, false)
	code, old := uint64(0), uint64(0)
	for f.next() {
		switch {
		case f.num == 1 && f.typ == protowire.VarintType: // before 2021
			old = f.u
		case f.num == 2 && f.typ == protowire.BytesType:
			s.StatusMessage = w.text(f.val)
		case f.num == 3 && f.typ == protowire.VarintType:
			code = f.u
		}
	}
	switch {
	case code <= uint64(trace.StatusError):
		s.Status = trace.StatusCode(code)
	default:
		w.notes.Add(trace.BadField, "the status code is unknown")
	}
	if code == 0 && old != 0 {
		s.Status = trace.StatusError
	}
	return f.bad < 0
}

// attribute reads a key with its value onto the decoder's list. It reports
// whether it is well-formed.
func (w *wire) attribute(b []byte) bool {
	var a trace.Attr
	var value []byte
	f := walk(b, false)
	for f.next() {
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			a.Key = w.text(f.val)
		case f.num == 2 && f.typ == protowire.BytesType:
			value = f.val
		}
	}
	if f.bad >= 0 {
		return false
	}
	var ok bool
	a.Value, ok = w.any(value, a.Key)
	w.d.attrs = append(w.d.attrs, a)
	return ok
}

// any reads the value of the attribute named key.
func (w *wire) any(b []byte, key string) (v trace.Value, ok bool) {
	f := walk(b, false)
	for f.next() {
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			v = trace.StringValue(w.text(f.val))
		case f.num == 2 && f.typ == protowire.VarintType:
			v = trace.BoolValue(f.u != 0)
		case f.num == 3 && f.typ == protowire.VarintType:
			v = trace.IntValue(int64(f.u))
		case f.num == 4 && f.typ == protowire.Fixed64Type:
			x := math.Float64frombits(f.u)
			if v = trace.FloatValue(x); math.IsNaN(x) || math.IsInf(x, 0) {
				v = trace.Value{}
				w.notes.Add(trace.BadNumber, "%s is no finite number", scan.Short(key))
			}
		case f.num >= 5 && f.num <= 7 && f.typ == protowire.BytesType:
			text, ok := w.appendAny(nil, protowire.AppendBytes(protowire.AppendTag(nil, f.num, f.typ), f.val), key, 1)
			if !ok {
				return v, false
			}
			v = trace.Value{}
			if text != nil {
				v = trace.JSONValue(string(text))
			}
		}
	}
	return v, f.bad < 0
}

// appendAny appends a value as JSON. ok is false where it is malformed; text
// is nil where it is nested too deep.
func (w *wire) appendAny(dst, b []byte, key string, depth int) (text []byte, ok bool) {
	begin := len(dst)
	f := walk(b, false)
	for f.next() {
		dst = dst[:begin] // the last wins
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			dst = scan.AppendQuoted(dst, w.notes.Mend(f.val))
		case f.num == 2 && f.typ == protowire.VarintType:
			dst = strconv.AppendBool(dst, f.u != 0)
		case f.num == 3 && f.typ == protowire.VarintType:
			dst = strconv.AppendInt(dst, int64(f.u), 10)
		case f.num == 4 && f.typ == protowire.Fixed64Type:
			x := math.Float64frombits(f.u)
			if math.IsNaN(x) || math.IsInf(x, 0) {
				w.notes.Add(trace.BadNumber, "%s is no finite number", scan.Short(key))
			} else {
				dst = strconv.AppendFloat(dst, x, 'g', -1, 64)
			}
		case f.num == 7 && f.typ == protowire.BytesType:
			dst = scan.AppendQuoted(dst, base64.StdEncoding.AppendEncode(nil, f.val))
		case (f.num == 5 || f.num == 6) && f.typ == protowire.BytesType:
			if depth > maxNesting {
				w.notes.Add(trace.BadField, "%s is nested more than %d deep", scan.Short(key), maxNesting)
				break
			}
			if dst, ok = w.appendList(dst, f.val, f.num == 6, key, depth); !ok {
				return nil, false
			}
		}
	}
	if len(dst) == begin {
		dst = append(dst, "null"...)
	}
	return dst, f.bad < 0
}

// appendList appends the values of an array, or of a map, as JSON.
func (w *wire) appendList(dst, b []byte, isMap bool, key string, depth int) (text []byte, ok bool) {
	open, end := byte('['), byte(']')
	if isMap {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	first := len(dst)
	f := walk(b, false)
	for f.next() {
		if f.num != 1 || f.typ != protowire.BytesType {
			continue
		}
		if len(dst) > first {
			dst = append(dst, ',')
		}
		value := f.val
		if isMap {
			var name []byte
			value = nil
			g := walk(f.val, false)
			for g.next() {
				switch {
				case g.num == 1 && g.typ == protowire.BytesType:
					name = g.val
				case g.num == 2 && g.typ == protowire.BytesType:
					value = g.val
				}
			}
			if g.bad >= 0 {
				return nil, false
			}
			dst = scan.AppendQuoted(dst, w.notes.Mend(name))
			dst = append(dst, ':')
		}
		if dst, ok = w.appendAny(dst, value, key, depth+1); !ok {
			return nil, false
		}
	}
	return append(dst, end), f.bad < 0
}
