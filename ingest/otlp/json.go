package otlp

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/traceview/traceview/trace"
)

// A parser decodes one value.
//
// Nothing is kept of what is skipped, and skipping looks at brackets and
// quotes only. A syntax error stops parsing where it stands; the span, scope
// or resource that it is in is then left by its brackets, and the rest counts.
type parser struct {
	d       *Decoder
	b       []byte
	i       int
	at      At
	begin   trace.Pos // of b[0]
	partial bool      // b breaks off at its end
	report  bool      // a syntax error even where no spans are meant
	onRoot  func() error

	root  bool
	wrong string // the syntax error, empty: none
	badAt int    // its place
	ended bool   // b ended too early
	err   error  // the sink's
	notes notes

	lines, linesAt int    // ends of lines in b[:linesAt]
	path           string // of the object being read, with its dot
	scope          string
	resource       *trace.Resource
}

// value decodes the object at the begin of b. It returns the number of bytes
// used: less than all where another value seems to begin inside.
func (p *parser) value() (n int, root bool, err error) {
	p.path = p.at.Path
	if p.path != "" {
		p.path += "."
	}
	p.batch(0)
	switch {
	case p.err != nil:
		return p.i, p.root, p.err
	case p.wrong == "" || p.partial && p.ended:
		return len(p.b), p.root, nil
	}
	n = len(p.b)
	if q := lastRoot(p.b[p.badAt:]); q >= 0 && p.badAt+q > 0 {
		n = p.badAt + q
	}
	if !p.partial && (p.root || p.report) {
		p.issue(trace.BadJSON, p.pos(p.badAt), "%s", p.wrong)
	}
	return n, p.root, p.err
}

// pos returns the place of b[i]; to count lines costs least in order.
func (p *parser) pos(i int) trace.Pos {
	pos := p.begin
	pos.Path = p.at.Path
	if !p.at.Inside {
		pos.Offset += int64(i)
	}
	if pos.Line > 0 {
		if i < p.linesAt {
			p.lines, p.linesAt = 0, 0
		}
		p.lines += bytes.Count(p.b[p.linesAt:i], []byte{'\n'})
		p.linesAt = i
		pos.Line += p.lines
	}
	return pos
}

func (p *parser) issue(code trace.Code, pos trace.Pos, format string, args ...any) {
	is := trace.NewIssue(code, pos, format, args...)
	if p.err == nil && !p.d.sink(nil, &is) {
		p.err = ErrStopped
	}
}

// fail notes the first syntax error.
func (p *parser) fail(what string) {
	if p.wrong == "" {
		p.wrong, p.badAt, p.ended = what, p.i, p.i >= len(p.b)
	}
}

// peek skips blanks and returns the byte there; 0 at the end.
func (p *parser) peek() byte {
	for p.i < len(p.b) {
		switch c := p.b[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return c
		}
	}
	return 0
}

// enter steps into an object or array and reports whether it has a member.
func (p *parser) enter(open, end byte) bool {
	if p.wrong != "" || p.err != nil {
		return false
	}
	if p.peek() != open {
		p.fail("expected " + string(open))
		return false
	}
	p.i++
	if p.peek() == end {
		p.i++
		return false
	}
	return true
}

// next steps past a comma and reports whether there is a member behind it.
func (p *parser) next(end byte) bool {
	if p.wrong != "" || p.err != nil {
		return false
	}
	switch p.peek() {
	case ',':
		p.i++
		return true
	case end:
		p.i++
	default:
		p.fail("expected , or " + string(end))
	}
	return false
}

// raw reads a string without its quotes and reports whether it has escapes.
func (p *parser) raw() (text []byte, escaped bool) {
	if p.wrong != "" {
		return nil, false
	}
	if p.peek() != '"' {
		p.fail("expected a string")
		return nil, false
	}
	b, start := p.b, p.i+1
	for i := start; i < len(b); i++ {
		switch b[i] {
		case '"':
			p.i = i + 1
			return b[start:i], escaped
		case '\\':
			escaped = true
			i++
		}
	}
	p.i = len(b)
	p.fail("a string without an end")
	return nil, false
}

// key reads a member's name and the colon.
func (p *parser) key() []byte {
	k, escaped := p.raw()
	if p.peek() != ':' {
		p.fail("expected :")
		return nil
	}
	p.i++
	if escaped {
		k, _ = unescape(nil, k)
	}
	return k
}

// token reads a number or a bare word.
func (p *parser) token() []byte {
	p.peek()
	start := p.i
	for p.i < len(p.b) {
		switch p.b[p.i] {
		case ' ', '\t', '\n', '\r', ',', ':', '"', '{', '}', '[', ']':
			if p.i == start {
				p.fail("expected a value")
			}
			return p.b[start:p.i]
		}
		p.i++
	}
	p.fail("the value has no end")
	return nil
}

// skip passes over a value of any kind.
func (p *parser) skip() {
	if p.wrong != "" {
		return
	}
	switch p.peek() {
	case '"':
		p.raw()
	case '{', '[':
		if end := closing(p.b, p.i); end >= 0 {
			p.i = end
		} else {
			p.i = len(p.b)
			p.fail("brackets without an end")
		}
	default:
		p.token()
	}
}

// closing returns the index behind the bracket that closes the one at b[i].
func closing(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// null skips a null and reports whether there was one.
func (p *parser) null() bool {
	if p.wrong == "" && p.peek() == 'n' && bytes.HasPrefix(p.b[p.i:], []byte("null")) {
		p.i += 4
		return true
	}
	return false
}

// A seen notes which members an object had.
type seen uint32

// twice notes member n and reports a second one.
func (p *parser) twice(s *seen, n uint, key []byte) {
	if *s&(1<<n) != 0 {
		p.notes.add(trace.DuplicateKey, "the key %q stands twice in one object", key)
	}
	*s |= 1 << n
}

// recover leaves the value that began at start by its brackets, after a syntax
// error in it. Where it has no end the error stays.
func (p *parser) recover(start int) bool {
	if p.err != nil || start >= len(p.b) || p.b[start] != '{' && p.b[start] != '[' {
		return false
	}
	end := closing(p.b, start)
	if end < 0 || p.ended {
		return false
	}
	p.i, p.wrong = end, ""
	return true
}

// maxWrappers is how deep the object with the spans may stand in others.
const maxWrappers = 4

// batch reads an object that holds spans: the root, the resource level, or
// what some backends wrap around these.
func (p *parser) batch(depth int) {
	var had seen
	p.flushNotes()
	here := p.pos(p.i)
	here.Path = strings.TrimSuffix(p.path, ".")
	p.notes.begin(here)
	outer := p.resource
	path := p.path
	scopes := -1 // where spans stand whose resource has not come yet
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		key := p.key()
		var n uint
		var name string
		switch string(key) {
		case "resource":
			p.twice(&had, 0, key)
			p.readResource()
			continue
		case "scopeSpans", "scope_spans":
			n, name = 1, "scopeSpans"
		case "instrumentationLibrarySpans", "instrumentation_library_spans":
			n, name = 2, "scopeSpans"
		case "resourceSpans", "resource_spans", "batches", "traces":
			n, name = 3, "resourceSpans"
		case "result", "trace", "data":
			n = 4
		default:
			p.skip()
			continue
		}
		if n <= 3 {
			p.twice(&had, n, key)
		}
		if p.null() {
			continue
		}
		switch {
		case n <= 2:
			p.isRoot()
			if had&1 == 0 && scopes < 0 {
				scopes = p.i
				p.skip()
				continue
			}
			p.readScopes()
			p.notes.begin(here)
		case depth >= maxWrappers:
			p.skip()
		case n == 4:
			if p.peek() == '{' {
				p.batch(depth + 1)
				p.notes.begin(here)
			} else {
				p.skip()
			}
		case p.peek() == '{':
			p.batch(depth + 1)
			p.notes.begin(here)
		default:
			if n == 3 && string(key) != "traces" {
				p.isRoot()
			}
			for i, ok := 0, p.enter('[', ']'); ok; i, ok = i+1, p.next(']') {
				if p.peek() != '{' {
					p.skip()
					if p.wrong == "" {
						p.issue(trace.BadJSON, p.pos(p.i), "%s is no object", element(path, name, i))
					}
					continue
				}
				start := p.i
				p.path = p.d.resourcePath.of(path, name, i)
				p.batch(depth + 1)
				p.skipBroken(start)
			}
			p.path = path
			p.notes.begin(here)
		}
	}
	if scopes >= 0 {
		end, wrong, badAt, ended := p.i, p.wrong, p.badAt, p.ended
		p.i, p.wrong, p.ended = scopes, "", false
		p.readScopes()
		if p.wrong == "" || wrong != "" {
			p.i, p.wrong, p.badAt, p.ended = end, wrong, badAt, ended
		}
	}
	p.resource = outer
	p.flushNotes()
}

// skipBroken goes on behind a resource or scope with a syntax error, and tells
// of it unless the whole value is torn.
func (p *parser) skipBroken(start int) {
	if what, at := p.wrong, p.badAt; what != "" && p.recover(start) && !p.partial {
		pos := p.pos(at)
		pos.Path = strings.TrimSuffix(p.path, ".")
		p.issue(trace.BadJSON, pos, "%s", what)
	}
}

// isRoot notes that the value is meant to hold spans.
func (p *parser) isRoot() {
	if !p.root && p.wrong == "" {
		p.root = true
		p.d.Roots++
		if err := p.onRoot(); err != nil {
			p.err = err
		}
	}
}

// flushNotes gives the issues that are not about one span to the sink.
func (p *parser) flushNotes() {
	if p.root {
		for i := range p.notes.list {
			if p.err == nil && !p.d.sink(nil, &p.notes.list[i]) {
				p.err = ErrStopped
			}
		}
	}
	p.notes.list = nil
}

// readResource reads {"attributes":[…]}. Batches of one process repeat it
// byte for byte, so the last one is kept.
func (p *parser) readResource() {
	if p.null() {
		return
	}
	p.peek()
	start := p.i
	if p.d.resource != nil && bytes.HasPrefix(p.b[start:], p.d.resText) {
		p.i += len(p.d.resText)
		p.resource = p.d.resource
		return
	}
	complaints := len(p.notes.list)
	res := &trace.Resource{}
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		if string(p.key()) == "attributes" {
			res.Attrs = p.attributes()
		} else {
			p.skip()
		}
	}
	if p.wrong != "" {
		p.skipBroken(start)
		return
	}
	if len(res.Attrs) == 0 {
		p.resource = nil
		return
	}
	p.resource = res
	if len(p.notes.list) == complaints {
		p.d.resource, p.d.resText = res, append(p.d.resText[:0], p.b[start:p.i]...)
	}
}

// readScopes reads the array of scopes with their spans.
func (p *parser) readScopes() {
	path := p.path
	for i, ok := 0, p.enter('[', ']'); ok; i, ok = i+1, p.next(']') {
		if p.peek() != '{' {
			p.skip()
			if p.wrong == "" {
				p.issue(trace.BadJSON, p.pos(p.i), "%s is no object", element(path, "scopeSpans", i))
			}
			continue
		}
		p.flushNotes()
		start := p.i
		p.path = p.d.scopePath.of(path, "scopeSpans", i)
		p.readScope()
		p.skipBroken(start)
	}
	p.path = path
}

// readScope reads {"scope":{…},"spans":[…]}.
func (p *parser) readScope() {
	var had seen
	p.scope = ""
	spans := -1
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		switch key := p.key(); string(key) {
		case "scope", "instrumentationLibrary", "instrumentation_library":
			p.twice(&had, 0, key)
			if p.null() {
				continue
			}
			for ok := p.enter('{', '}'); ok; ok = p.next('}') {
				if string(p.key()) == "name" {
					p.scope = p.text("scope name")
				} else {
					p.skip()
				}
			}
		case "spans":
			p.twice(&had, 1, key)
			switch {
			case p.null():
			case had&1 == 0 && spans < 0:
				// The scope may follow; it is needed first.
				spans = p.i
				p.skip()
			default:
				p.readSpans()
			}
		default:
			p.skip()
		}
	}
	if spans >= 0 {
		end, wrong, badAt, ended := p.i, p.wrong, p.badAt, p.ended
		p.i, p.wrong, p.ended = spans, "", false
		p.readSpans()
		if p.wrong == "" || wrong != "" {
			p.i, p.wrong, p.badAt, p.ended = end, wrong, badAt, ended
		}
	}
}

func (p *parser) readSpans() {
	p.flushNotes()
	for i, ok := 0, p.enter('[', ']'); ok; i, ok = i+1, p.next(']') {
		p.peek()
		start := p.i
		pos := p.pos(start)
		pos.Path = p.d.spanPath(p.path, i)
		p.notes.begin(pos)
		if p.peek() != '{' {
			p.skip()
			if p.wrong == "" {
				p.issue(trace.BadSpan, pos, "a span is no object")
			}
			continue
		}
		s := &trace.Span{Format: FormatJSON, Scope: p.scope, Resource: p.resource, Pos: pos}
		p.span(s)
		if p.wrong != "" {
			what, at := p.wrong, p.badAt
			if p.recover(start) {
				p.issue(trace.BadSpan, pos, "a span is broken at its byte %d: %s", at-start, what)
			}
			p.notes.list = nil
			continue
		}
		s.Issues, p.notes.list = p.notes.list, nil
		p.d.Spans++
		if p.err == nil && !p.d.sink(s, nil) {
			p.err = ErrStopped
		}
	}
}

// span reads one span.
func (p *parser) span(s *trace.Span) {
	var had seen
	var ids [3][]byte // as written
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		key := p.key()
		switch string(key) {
		case "traceId", "trace_id":
			p.twice(&had, 0, key)
			ids[0] = p.id("traceId")
		case "spanId", "span_id":
			p.twice(&had, 1, key)
			ids[1] = p.id("spanId")
		case "parentSpanId", "parent_span_id":
			p.twice(&had, 2, key)
			ids[2] = p.id("parentSpanId")
		case "name":
			p.twice(&had, 3, key)
			s.Name = p.text("name")
		case "kind":
			p.twice(&had, 4, key)
			s.Kind = trace.SpanKind(p.enum("kind", "SPAN_KIND_", kindNames))
		case "startTimeUnixNano", "start_time_unix_nano":
			p.twice(&had, 5, key)
			s.Start = p.time("startTimeUnixNano")
		case "endTimeUnixNano", "end_time_unix_nano":
			p.twice(&had, 6, key)
			s.End = p.time("endTimeUnixNano")
		case "attributes":
			p.twice(&had, 7, key)
			s.Attrs = p.attributes()
		case "events":
			p.twice(&had, 8, key)
			s.Events = p.readEvents()
		case "status":
			p.twice(&had, 9, key)
			p.status(s)
		default:
			p.skip()
		}
	}
	if p.wrong == "" {
		s.TraceID, s.SpanID, s.ParentID = p.d.ids(ids, &p.notes)
	}
}

// The names of enums without their prefixes, by number.
var (
	kindNames   = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}
	statusNames = []string{"UNSET", "OK", "ERROR"}
)

// ids turns the texts of a span's ids into one allocation.
func (d *Decoder) ids(texts [3][]byte, n *notes) (traceID, spanID, parentID string) {
	var ends [3]int
	b := d.scratch[:0]
	for i, t := range texts {
		size := 8
		if i == 0 {
			size = 16
		}
		begin := len(b)
		var ok bool
		if b, ok = appendID(b, n.mend(t), size); !ok {
			n.add(trace.BadID, "the %s id %q is odd", idNames[i], short(b[begin:]))
		}
		ends[i] = len(b)
	}
	d.scratch = b
	all := string(b)
	return all[:ends[0]], all[ends[0]:ends[1]], all[ends[1]:]
}

var idNames = [3]string{"trace", "span", "parent"}

// short cuts a text that is quoted in a message.
func short[T string | []byte](text T) string {
	if len(text) > 40 {
		return strings.ToValidUTF8(string(text[:40]), "") + "…"
	}
	return string(text)
}

// wrongType skips a value that has the wrong type and says so.
func (p *parser) wrongType(key string, want string) {
	p.skip()
	if p.wrong == "" {
		p.notes.add(trace.BadField, "%s is no %s", short(key), want)
	}
}

// str reads a string; nil for a null and for a value of another type, of which
// it complains. The bytes hold until the next call.
func (p *parser) str(key string) []byte {
	if p.null() {
		return nil
	}
	if p.peek() != '"' {
		p.wrongType(key, "text")
		return nil
	}
	b, escaped := p.raw()
	if escaped {
		var ok bool
		p.d.scratch, ok = unescape(p.d.scratch[:0], b)
		b = p.d.scratch
		if !ok {
			p.notes.add(trace.BadField, "%s has an escape that JSON does not know", short(key))
			return nil
		}
	}
	return p.notes.mend(b)
}

func (p *parser) text(key string) string { return p.d.intern(p.str(key)) }

// id reads the text of an id. Escapes make no sense in it.
func (p *parser) id(key string) []byte {
	if p.null() {
		return nil
	}
	if p.peek() != '"' {
		p.wrongType(key, "text")
		return nil
	}
	b, _ := p.raw()
	return b
}

// scalar reads a number, a bare word or a string without escapes; nil for a
// null and for other types, of which it complains.
func (p *parser) scalar(key string, want string) []byte {
	if p.null() {
		return nil
	}
	switch p.peek() {
	case '"':
		b, _ := p.raw()
		return b
	case '{', '[':
		p.wrongType(key, want)
		return nil
	}
	return p.token()
}

// enum reads an enum by number or by name.
func (p *parser) enum(key string, prefix string, names []string) int {
	tok := p.scalar(key, "number")
	if tok == nil {
		return 0
	}
	if x, v := parseInteger(tok); v == fine && !x.neg && x.abs < uint64(len(names)) {
		return int(x.abs)
	}
	short := bytes.TrimPrefix(tok, []byte(prefix))
	for i, n := range names {
		if string(short) == n {
			return i
		}
	}
	p.notes.add(trace.BadField, "%s is unknown", key)
	return 0
}

// time reads Unix nanoseconds; 0 is absent.
func (p *parser) time(key string) trace.Opt[trace.Time] {
	tok := p.scalar(key, "number")
	if len(tok) == 0 {
		return trace.Opt[trace.Time]{}
	}
	x, v := parseInteger(tok)
	switch {
	case v == notANumber || v == fraction:
		p.notes.add(trace.BadField, "%s is no whole number of nanoseconds", key)
	case v == tooLarge || x.neg || x.abs > math.MaxInt64:
		p.notes.add(trace.TimeOutOfRange, "%s does not fit int64 nanoseconds", key)
	case x.abs > 0:
		return trace.Some(trace.Time(x.abs))
	}
	return trace.Opt[trace.Time]{}
}

func (p *parser) status(s *trace.Span) {
	if p.null() {
		return
	}
	if p.peek() != '{' {
		p.wrongType("status", "object")
		return
	}
	var had seen
	old := 0
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		switch key := p.key(); string(key) {
		case "code":
			p.twice(&had, 0, key)
			s.Status = trace.StatusCode(p.enum("status code", "STATUS_CODE_", statusNames))
		case "message":
			p.twice(&had, 1, key)
			s.StatusMessage = p.text("status message")
		case "deprecatedCode", "deprecated_code":
			// Before 2021 anything but 0 meant an error.
			if x, v := parseInteger(p.scalar("deprecatedCode", "number")); v == fine && x.abs != 0 {
				old = 1
			}
		default:
			p.skip()
		}
	}
	if had&1 == 0 && old != 0 {
		s.Status = trace.StatusError
	}
}

func (p *parser) readEvents() []trace.Event {
	if p.null() {
		return nil
	}
	if p.peek() != '[' {
		p.wrongType("events", "array")
		return nil
	}
	list := p.d.events[:0]
	for ok := p.enter('[', ']'); ok; ok = p.next(']') {
		if p.null() {
			continue
		}
		if p.peek() != '{' {
			p.wrongType("an event", "object")
			continue
		}
		var had seen
		var e trace.Event
		for ok := p.enter('{', '}'); ok; ok = p.next('}') {
			switch key := p.key(); string(key) {
			case "timeUnixNano", "time_unix_nano":
				p.twice(&had, 0, key)
				e.At = p.time("timeUnixNano")
			case "name":
				p.twice(&had, 1, key)
				e.Name = p.text("event name")
			case "attributes":
				p.twice(&had, 2, key)
				e.Attrs = p.attributes()
			default:
				p.skip()
			}
		}
		list = append(list, e)
	}
	p.d.events = list
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	clear(p.d.events)
	return list
}

// attributes reads [{"key":…,"value":{…}}, …].
func (p *parser) attributes() []trace.Attr {
	if p.null() {
		return nil
	}
	if p.peek() != '[' {
		p.wrongType("attributes", "array")
		return nil
	}
	base := len(p.d.attrs)
	for ok := p.enter('[', ']'); ok; ok = p.next(']') {
		if p.null() {
			continue
		}
		if p.peek() != '{' {
			p.wrongType("an attribute", "object")
			continue
		}
		var a trace.Attr
		var had seen
		value := -1
		for ok := p.enter('{', '}'); ok; ok = p.next('}') {
			switch key := p.key(); string(key) {
			case "key":
				p.twice(&had, 0, key)
				a.Key = p.text("attribute key")
			case "value":
				p.twice(&had, 1, key)
				if value = p.i; had&1 == 0 {
					p.skip() // its issues name the key
				} else {
					a.Value, value = p.any(a.Key), -1
				}
			default:
				p.skip()
			}
		}
		if value >= 0 && p.wrong == "" {
			end := p.i
			p.i = value
			a.Value = p.any(a.Key)
			if p.wrong == "" {
				p.i = end
			}
		}
		p.d.attrs = append(p.d.attrs, a)
	}
	return p.d.popAttrs(base)
}

// The kinds of an attribute's value, as the members of its object name them.
func anyKind(key []byte) uint {
	switch string(key) {
	case "stringValue", "string_value":
		return 1
	case "intValue", "int_value":
		return 2
	case "doubleValue", "double_value":
		return 3
	case "boolValue", "bool_value":
		return 4
	case "arrayValue", "array_value":
		return 5
	case "kvlistValue", "kvlist_value":
		return 6
	case "bytesValue", "bytes_value":
		return 7
	}
	return 0
}

// any reads the value of the attribute named key.
func (p *parser) any(key string) (v trace.Value) {
	if p.null() {
		return v
	}
	if p.peek() != '{' {
		p.wrongType(key, "value in an object")
		return v
	}
	var had seen
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		member := p.key()
		kind := anyKind(member)
		if kind == 0 {
			p.skip()
			continue
		}
		p.twice(&had, kind, member)
		switch kind {
		case 1:
			v = trace.Value{}
			if p.peek() == '"' {
				v = trace.StringValue(p.text(key))
			} else if !p.null() {
				p.wrongType(key, "text")
			}
		case 2:
			if i, ok := p.int(key); ok {
				v = trace.IntValue(i)
			} else {
				v = trace.Value{}
			}
		case 3:
			if f, ok := p.float(key); ok {
				v = trace.FloatValue(f)
			} else {
				v = trace.Value{}
			}
		case 4:
			switch tok := p.scalar(key, "boolean"); string(tok) {
			case "true":
				v = trace.BoolValue(true)
			case "false":
				v = trace.BoolValue(false)
			default:
				v = trace.Value{}
				if tok != nil {
					p.notes.add(trace.BadField, "%s is no boolean", short(key))
				}
			}
		default:
			var text []byte
			if text = p.composite(nil, kind, key, 1); text != nil {
				v = trace.JSONValue(string(text))
			} else {
				v = trace.Value{}
			}
		}
	}
	return v
}

// int reads a 64-bit integer, as a number or in quotes.
func (p *parser) int(key string) (int64, bool) {
	tok := p.scalar(key, "number")
	if tok == nil {
		return 0, false
	}
	if x, v := parseInteger(tok); v == fine {
		if i, ok := x.int64(); ok {
			return i, true
		}
	}
	p.notes.add(trace.BadNumber, "%s is no 64-bit integer", short(key))
	return 0, false
}

// float reads a finite number, also in quotes.
func (p *parser) float(key string) (float64, bool) {
	tok := p.scalar(key, "number")
	if tok == nil {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(tok), 64)
	if err != nil || bytes.ContainsAny(tok, "xX_") || math.IsNaN(f) || math.IsInf(f, 0) {
		p.notes.add(trace.BadNumber, "%s is no finite number", short(key))
		return 0, false
	}
	return f, true
}

// composite reads what an attribute's value can be beyond plain ones and
// appends it as JSON; nil where it cannot be read.
func (p *parser) composite(dst []byte, kind uint, key string, depth int) []byte {
	if p.null() {
		return nil
	}
	if kind == 7 {
		if p.peek() != '"' {
			p.wrongType(key, "base64 text")
			return nil
		}
		// It is base64 already.
		return appendQuoted(dst, p.str(key))
	}
	if p.peek() != '{' || depth > maxNesting {
		if depth > maxNesting {
			p.skip()
			p.notes.add(trace.BadField, "%s is nested more than %d deep", short(key), maxNesting)
		} else {
			p.wrongType(key, "object with values")
		}
		return nil
	}
	open, end := byte('['), byte(']')
	if kind == 6 {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	first := len(dst)
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		if string(p.key()) != "values" {
			p.skip()
			continue
		}
		if p.null() {
			continue
		}
		for ok := p.enter('[', ']'); ok; ok = p.next(']') {
			if len(dst) > first {
				dst = append(dst, ',')
			}
			if kind == 5 {
				dst = p.appendAny(dst, key, depth)
				continue
			}
			name, value := -1, -1
			for ok := p.enter('{', '}'); ok; ok = p.next('}') {
				switch string(p.key()) {
				case "key":
					name = p.i
				case "value":
					value = p.i
				}
				p.skip()
			}
			after := p.i
			dst = p.appendAt(dst, name, func(dst []byte) []byte { return appendQuoted(dst, p.str(key)) }, `""`)
			dst = append(dst, ':')
			dst = p.appendAt(dst, value, func(dst []byte) []byte { return p.appendAny(dst, key, depth) }, "null")
			if p.wrong == "" {
				p.i = after
			}
		}
	}
	return append(dst, end)
}

// appendAt appends what f reads at index i, or alt where i is negative.
func (p *parser) appendAt(dst []byte, i int, f func([]byte) []byte, alt string) []byte {
	if i < 0 || p.wrong != "" {
		return append(dst, alt...)
	}
	p.i = i
	return f(dst)
}

// appendAny appends a value inside an array or map as JSON.
func (p *parser) appendAny(dst []byte, key string, depth int) []byte {
	begin := len(dst)
	if p.null() {
		return append(dst, "null"...)
	}
	for ok := p.enter('{', '}'); ok; ok = p.next('}') {
		kind := anyKind(p.key())
		if kind == 0 || p.null() {
			if kind == 0 {
				p.skip()
			}
			continue
		}
		dst = dst[:begin] // the last wins
		switch kind {
		case 1:
			dst = appendQuoted(dst, p.str(key))
		case 2:
			if i, ok := p.int(key); ok {
				dst = strconv.AppendInt(dst, i, 10)
			}
		case 3:
			if f, ok := p.float(key); ok {
				dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
			}
		case 4:
			if tok := p.scalar(key, "boolean"); string(tok) == "true" || string(tok) == "false" {
				dst = append(dst, tok...)
			}
		default:
			if text := p.composite(dst, kind, key, depth+1); text != nil {
				dst = text
			}
		}
	}
	if len(dst) == begin {
		dst = append(dst, "null"...)
	}
	return dst
}

// unescape appends the text of a JSON string's inside. A surrogate without its
// pair becomes invalid UTF-8, to be mended; ok is false for an unknown escape.
func unescape(dst, raw []byte) (text []byte, ok bool) {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			dst = append(dst, c)
			continue
		}
		if i++; i == len(raw) {
			return dst, false
		}
		switch raw[i] {
		case '"', '\\', '/':
			dst = append(dst, raw[i])
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, ok := hex4(raw[i+1:])
			if !ok {
				return dst, false
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					low, _ = hex4(raw[i+3:])
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					dst = append(dst, 0xff)
					continue
				}
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			return dst, false
		}
	}
	return dst, true
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return -1, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
