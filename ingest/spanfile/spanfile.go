// Package spanfile decodes files of spans that are not OTLP (what a store's
// page or interface gives to download, what an SDK prints, rows of a table) to
// [trace.Span]. Each container has a file that says what it looks like, where
// that was read, and what it cannot tell. The name is that of what it reads:
// files that hold spans, each in a form of its own.
//
// OTLP in all its spellings is in package otlp, what spans mean is package
// engine's business, compression and archives are package ingest's.
package spanfile

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// A Container is a form in which files hold spans.
type Container struct {
	Name     string // the value of [trace.Source].Format
	Evidence string // by what content it is recognised
	Yields   string // what comes out of it
	NotTold  string // what it cannot tell, beyond what the spans themselves do not
	// Sniff reports whether head, the first bytes of an input, begins like it.
	Sniff func(head []byte) bool

	step    time.Duration // of its clock
	untyped bool          // all values of attributes are text
	logs    bool          // text between the values is a program's log
	roots   [][]byte      // first keys, in quotes, of values among text
	value   func(*parser)
}

// A Sink takes what is decoded, in input order, as package otlp's does: exactly
// one argument is not nil; false stops.
type Sink func(*trace.Span, *trace.Issue) bool

// A Decoder decodes any number of files. It is not for concurrent use.
type Decoder struct {
	// Spans counts the spans given to the sink, Others the JSON objects that
	// are something else and were passed over.
	Spans, Others int

	max  int64
	zone *time.Location // of stamps without one; nil: UTC, with a note
	sink Sink

	texts     scan.Texts
	buf       []byte
	scratch   []byte
	resources map[string]*trace.Resource // by their text
	keys      map[string]bool            // of the object being read
	zoned     bool                       // that UTC was assumed is told
}

// NewDecoder returns a decoder that refuses single values of more than
// maxRecord bytes. Stamps without a zone are read in zone; nil: as UTC, with a
// note.
func NewDecoder(maxRecord int64, zone *time.Location, sink Sink) *Decoder {
	return &Decoder{max: maxRecord, zone: zone, sink: sink, resources: map[string]*trace.Resource{}, keys: map[string]bool{}}
}

// JSON decodes a stream of JSON values of the container c. It returns the first
// error of r, after having decoded what came before, or [scan.ErrStopped].
func (d *Decoder) JSON(c *Container, r io.Reader, at scan.At) error {
	d.zoned = false
	s := scan.Stream{
		R: r, At: at, Max: d.max, What: "spans", Keys: scan.Keys{Roots: c.roots, Lines: c.roots}, Learn: c.roots == nil, Logs: c.logs, Buf: d.buf,
		Issue: func(is *trace.Issue) bool { return d.sink(nil, is) },
		Decode: func(v scan.Value) (int, bool, error) {
			p := parser{
				Parser: scan.Parser{B: v.B, At: at, Begin: v.Begin, Texts: &d.texts},
				d:      d, c: c, v: v, path: at.Path,
			}
			if p.path != "" {
				p.path += "."
			}
			c.value(&p)
			if p.Wrong != "" && !p.told && !v.Partial && (p.mine || v.Report && !c.logs) {
				p.issue(trace.BadJSON, p.Pos(p.BadAt), "%s", p.Wrong)
			}
			return len(v.B), p.mine, p.Err
		},
	}
	err := s.Run()
	d.buf = s.Buf
	d.Others += s.Others
	return err
}

// A parser decodes one value.
type parser struct {
	scan.Parser
	d    *Decoder
	c    *Container
	v    scan.Value
	mine bool   // the value is meant to hold spans
	told bool   // of the syntax error
	path string // of the object being read, with its dot
}

func (p *parser) issue(code trace.Code, pos trace.Pos, format string, args ...any) {
	is := trace.NewIssue(code, pos, format, args...)
	p.give(nil, &is)
}

func (p *parser) give(s *trace.Span, is *trace.Issue) {
	p.ours()
	if p.Err == nil && !p.d.sink(s, is) {
		p.Err = scan.ErrStopped
	}
}

// ours notes that the value is meant to hold spans.
func (p *parser) ours() {
	if !p.mine && p.Err == nil {
		p.mine = true
		p.Err = p.v.Ours()
	}
}

// span reads the object at hand as a span: read fills it and reports whether it
// is one. name and i are its place in an array, if it is in one.
func (p *parser) span(read func(*trace.Span) bool, place string) {
	p.Peek()
	start := p.I
	pos := p.Pos(start)
	pos.Path = p.path + place
	p.Notes.Begin(pos)
	s := &trace.Span{Format: p.c.Name, Step: p.c.step, Untyped: p.c.untyped, Pos: pos}
	ok := read(s)
	if p.Wrong != "" {
		what, at := p.Wrong, p.BadAt
		whole := p.Recover(start)
		switch {
		case !whole && p.v.Partial: // the stream tells
			if ok {
				p.ours()
			}
		case p.c.logs && !ok && !p.mine:
			// Programs print what looks like JSON, too.
			p.told = true
			p.foreign(pos)
		case ok || p.v.Report || p.mine:
			p.told = true
			p.issue(trace.BadSpan, pos, "a span is broken at its byte %d: %s", at-start, what)
		}
		p.Notes.List = nil
		return
	}
	if !ok {
		p.Notes.List = nil
		return
	}
	s.Issues, p.Notes.List = p.Notes.List, nil
	p.d.Spans++
	p.give(s, nil)
}

// foreign tells of an object that is a program's log.
func (p *parser) foreign(pos trace.Pos) {
	is := trace.NewIssue(trace.ForeignLine, pos, "an object that is no JSON, and no span")
	if p.Err == nil && !p.d.sink(nil, &is) {
		p.Err = scan.ErrStopped
	}
}

// array calls f at each member of the array at hand that is an object, and
// tells of the others.
func (p *parser) array(key string, f func(i int)) {
	if p.Null() {
		return
	}
	if p.Peek() != '[' {
		p.WrongType(key, "array")
		return
	}
	for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
		if p.Null() {
			continue
		}
		if p.Peek() != '{' {
			p.WrongType(key, "object")
			continue
		}
		f(i)
	}
}

// object calls f at the value of each member of the object at hand; f reads it
// or skips it. Null is an object without members.
func (p *parser) object(key string, f func(key []byte)) {
	if p.Null() {
		return
	}
	if p.Peek() != '{' {
		p.WrongType(key, "object")
		return
	}
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		f(p.Key())
	}
}

// id returns the id that the text says, as [scan.AppendID] does; where stores
// print ids without their leading zeros, they are put back.
func (p *parser) id(text []byte, size int, what string) string {
	text = bytes.TrimPrefix(bytes.TrimPrefix(text, []byte("0x")), []byte("0X"))
	hex := len(text) < 2*size
	for _, c := range text {
		hex = hex && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F')
	}
	b := p.d.scratch[:0]
	if hex && len(text) > 0 {
		for range 2*size - len(text) {
			b = append(b, '0')
		}
		text = append(b, text...)
		b = text[len(text):]
	}
	begin := len(b)
	b, ok := scan.AppendID(b, p.Notes.Mend(text), size)
	if !ok {
		p.Notes.Add(trace.BadID, "the %s id %q is odd", what, scan.Short(b[begin:]))
	}
	p.d.scratch = b[:0]
	return string(b[begin:])
}

// scaled reads a number of units of 10^exp nanoseconds.
func (p *parser) scaled(key string, exp int) trace.Opt[trace.Time] {
	tok := p.Scalar(key, "number")
	if len(tok) == 0 {
		return trace.Opt[trace.Time]{}
	}
	return p.nanos(key, tok, exp)
}

func (p *parser) nanos(key string, tok []byte, exp int) (none trace.Opt[trace.Time]) {
	x, v := scan.ParseScaled(tok, exp)
	if v == scan.Fraction { // of a nanosecond
		x, v = scan.ParseScaled(cutFraction(tok, exp), exp)
	}
	i, ok := x.Int64()
	switch {
	case v == scan.NotANumber || v == scan.Fraction:
		p.Notes.Add(trace.BadField, "%s is no number", key)
	case v == scan.TooLarge || !ok:
		p.Notes.Add(trace.TimeOutOfRange, "%s does not fit int64 nanoseconds", key)
	default:
		return trace.Some(trace.Time(i))
	}
	return none
}

// cutFraction drops what a number of units of 10^exp ns says beyond the
// nanosecond, where it is written without an exponent.
func cutFraction(tok []byte, exp int) []byte {
	i := bytes.IndexByte(tok, '.')
	if i < 0 || bytes.ContainsAny(tok, "eE") {
		return tok
	}
	return tok[:min(len(tok), i+1+max(exp, 0))]
}

// after returns the instant d (a duration that was read as a time) after start.
// A duration below zero gives an end before the start, which is told later.
func (p *parser) after(start, d trace.Opt[trace.Time]) (none trace.Opt[trace.Time]) {
	a, okA := start.Get()
	n, okN := d.Get()
	if !okA || !okN {
		return none
	}
	z := a + n
	if n > 0 && z < a || n < 0 && z > a || z < 0 {
		p.Notes.Add(trace.TimeOutOfRange, "the end does not fit int64 nanoseconds")
		return none
	}
	return trace.Some(z)
}

// instant reads a date and time as text, or is absent for null and for the year
// 1, by which Go means no time.
func (p *parser) instant(key string) (none trace.Opt[trace.Time]) {
	if p.Null() {
		return none
	}
	if p.Peek() != '"' {
		p.WrongType(key, "time as text")
		return none
	}
	b, _ := p.Raw()
	return p.stamp(key, b)
}

func (p *parser) stamp(key string, b []byte) (none trace.Opt[trace.Time]) {
	if len(b) == 0 {
		return none
	}
	text := string(b[:min(len(b), 64)])
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		for _, layout := range []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05"} {
			zone := p.d.zone
			if zone == nil {
				zone = time.UTC
			}
			if t, err = time.ParseInLocation(layout, text, zone); err == nil {
				if p.d.zone == nil && !p.d.zoned {
					p.d.zoned = true
					p.Notes.Add(trace.ZoneAssumed, "stamps have no zone: read as UTC")
				}
				break
			}
		}
	}
	switch {
	case err != nil:
		p.Notes.Add(trace.BadField, "%s is no date and time", key)
		return none
	case t.Year() <= 1:
		return none
	case t.Year() < 1970 || t.Year() > 2261:
		p.Notes.Add(trace.TimeOutOfRange, "%s does not fit int64 nanoseconds", key)
		return none
	}
	return trace.Some(trace.Time(t.UnixNano()))
}

// The names of enumerations without their prefixes, by OpenTelemetry's number.
var (
	kindNames   = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}
	statusNames = []string{"UNSET", "OK", "ERROR"}
)

// enum returns the number of a name, in any case, behind any of the prefixes
// that SDKs put before it. Empty is 0.
func (p *parser) enum(key string, text []byte, names []string) int {
	if len(text) == 0 {
		return 0
	}
	for _, prefix := range []string{"SPAN_KIND_", "SpanKind.", "STATUS_CODE_", "StatusCode."} {
		text = bytes.TrimPrefix(text, []byte(prefix))
	}
	for i, n := range names {
		if strings.EqualFold(string(text), n) {
			return i
		}
	}
	p.Notes.Add(trace.BadField, "%s is unknown", key)
	return 0
}

// name reads an enumeration by its name.
func (p *parser) name(key string, names []string) int {
	return p.enum(key, p.Scalar(key, "name"), names)
}

// maxNesting is how deep an attribute's arrays and maps may go.
const maxNesting = 32

// maxResources is how many different resources are remembered, of no more than
// maxResourceText bytes each.
const (
	maxResources    = 1 << 10
	maxResourceText = 1 << 14
)

// resource reads what describes a resource. The same text gives the same one.
func (p *parser) resource(read func() []trace.Attr) *trace.Resource {
	p.Peek()
	start := p.I
	p.Skip()
	if p.Wrong != "" {
		return nil
	}
	end := p.I
	if res, ok := p.d.resources[string(p.B[start:end])]; ok {
		return res
	}
	p.I = start
	complaints := len(p.Notes.List)
	attrs := read()
	if p.Wrong != "" || len(attrs) == 0 {
		return nil
	}
	res := &trace.Resource{Attrs: attrs}
	if len(p.Notes.List) == complaints {
		p.keep(string(p.B[start:end]), res)
	}
	return res
}

func (p *parser) keep(text string, res *trace.Resource) {
	if len(text) > maxResourceText {
		return
	}
	if len(p.d.resources) >= maxResources {
		clear(p.d.resources)
	}
	p.d.resources[text] = res
}

// shared returns the resource of these attributes, the same one for the same.
func (p *parser) shared(attrs []trace.Attr) *trace.Resource {
	if len(attrs) == 0 {
		return nil
	}
	b := p.d.scratch[:0]
	for _, a := range attrs {
		b = scan.AppendQuoted(scan.AppendQuoted(b, []byte(a.Key)), []byte(a.Value.String()))
	}
	p.d.scratch = b[:0]
	if res, ok := p.d.resources[string(b)]; ok {
		return res
	}
	res := &trace.Resource{Attrs: attrs}
	p.keep(string(b), res)
	return res
}

// resourceSpaces are the name spaces of keys that describe who wrote a span,
// where a container has no place for them but among the span's attributes.
var resourceSpaces = []string{"service.", "host.", "k8s.", "container.", "process.", "telemetry.", "os.", "cloud.", "deployment.", "vllm."}

func isResourceKey(key string) bool {
	for _, s := range resourceSpaces {
		if strings.HasPrefix(key, s) {
			return true
		}
	}
	return false
}

// attributes reads an object of plain values: {"key": value, …}.
func (p *parser) attributes(key string) []trace.Attr {
	var list []trace.Attr
	clear(p.d.keys)
	p.object(key, func(k []byte) {
		name := p.d.texts.Intern(p.Notes.Mend(k))
		if p.d.keys[name] {
			p.Notes.Add(trace.DuplicateKey, "the key %q stands twice in one object", scan.Short(name))
		}
		p.d.keys[name] = true
		list = append(list, trace.Attr{Key: name, Value: p.any(name)})
	})
	return list
}

// any reads a plain JSON value.
func (p *parser) any(key string) trace.Value {
	switch p.Peek() {
	case '"':
		return trace.StringValue(p.Text(key))
	case '{', '[':
		start := p.I
		text := p.composite(nil, key, 1)
		switch {
		case p.Wrong != "":
		case text == nil:
			p.I = start
			p.Skip()
		default:
			return trace.JSONValue(string(text))
		}
		return trace.Value{}
	}
	return p.plain(key, p.Token())
}

// plain reads a bare word: a number, a boolean or null.
func (p *parser) plain(key string, tok []byte) trace.Value {
	switch string(tok) {
	case "null", "":
		return trace.Value{}
	case "true":
		return trace.BoolValue(true)
	case "false":
		return trace.BoolValue(false)
	}
	if !bytes.ContainsAny(tok, ".eE") {
		if x, v := scan.ParseInteger(tok); v == scan.Fine {
			if i, ok := x.Int64(); ok {
				return trace.IntValue(i)
			}
		}
	}
	if f, ok := scan.ParseFloat(tok); ok {
		return trace.FloatValue(f)
	}
	p.Notes.Add(trace.BadNumber, "%s is no finite number", scan.Short(key))
	return trace.Value{}
}

// composite reads an array or object and appends it as JSON of one form; nil
// where it is nested too deep.
func (p *parser) composite(dst []byte, key string, depth int) []byte {
	if depth > maxNesting {
		p.Notes.Add(trace.BadField, "%s is nested more than %d deep", scan.Short(key), maxNesting)
		return nil
	}
	open, end := p.Peek(), byte(']')
	if open == '{' {
		end = '}'
	}
	dst = append(dst, open)
	first := len(dst)
	for ok := p.Enter(open, end); ok; ok = p.Next(end) {
		if len(dst) > first {
			dst = append(dst, ',')
		}
		if open == '{' {
			dst = append(scan.AppendQuoted(dst, p.Notes.Mend(p.Key())), ':')
		}
		switch p.Peek() {
		case '"':
			dst = scan.AppendQuoted(dst, p.Str(key))
		case '{', '[':
			if dst = p.composite(dst, key, depth+1); dst == nil {
				return nil
			}
		default:
			dst = appendPlain(dst, p.plain(key, p.Token()))
		}
	}
	return append(dst, end)
}

func appendPlain(dst []byte, v trace.Value) []byte {
	if v.Kind() == trace.ValueNone {
		return append(dst, "null"...)
	}
	return append(dst, v.String()...)
}

// Units of time: how many nanoseconds they have, as powers of ten.
const (
	micros = 3
	millis = 6
)

func set(attrs []trace.Attr, key string, v trace.Value) []trace.Attr {
	return append(attrs, trace.Attr{Key: key, Value: v})
}

// text returns the text of a value, empty for others.
func text(v trace.Value) string {
	t, _ := v.Text()
	return t
}

// isTrue reports whether a value, of whatever type, says yes.
func isTrue(v trace.Value) bool { return v.String() == "true" }

// has reports whether head has all of the texts.
func has(head []byte, all ...string) bool {
	for _, t := range all {
		if !bytes.Contains(head, []byte(t)) {
			return false
		}
	}
	return true
}

// firstObject cuts head at its first object, behind a byte order mark, blanks
// and the brackets of arrays; nil where something else comes first.
func firstObject(head []byte) []byte {
	b := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n\x1e[")
	if len(b) == 0 || b[0] != '{' {
		return nil
	}
	return b
}

func element(name string, i int) string { return name + "[" + strconv.Itoa(i) + "]" }
