package otlp

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// A parser decodes one value. A syntax error costs the span, scope or resource
// that it is in.
type parser struct {
	scan.Parser
	d       *Decoder
	partial bool // B breaks off at its end
	report  bool // a syntax error even where no spans are meant
	onRoot  func() error

	root     bool
	old      bool   // the spans stand under the names of before 2022
	bare     bool   // the last time was a number without quotes that a float64 can hold
	path     string // of the object being read, with its dot
	scope    string
	resource *trace.Resource
}

// value decodes the object at the begin of b. It returns the number of bytes
// used: less than all where another value seems to begin inside.
func (p *parser) value() (n int, root bool, err error) {
	p.path = p.At.Path
	if p.path != "" {
		p.path += "."
	}
	p.batch(0)
	switch {
	case p.Err != nil:
		return p.I, p.root, p.Err
	case p.Wrong == "" || p.partial && p.Ended:
		return len(p.B), p.root, nil
	}
	n = len(p.B)
	if q := rootKeys.Last(p.B[p.BadAt:]); q >= 0 && p.BadAt+q > 0 {
		n = p.BadAt + q
	}
	if !p.partial && (p.root || p.report) {
		p.issue(trace.BadJSON, p.Pos(p.BadAt), "%s", p.Wrong)
	}
	return n, p.root, p.Err
}

func (p *parser) issue(code trace.Code, pos trace.Pos, format string, args ...any) {
	is := trace.NewIssue(code, pos, format, args...)
	if p.Err == nil && !p.d.sink(nil, &is) {
		p.Err = ErrStopped
	}
}

// maxWrappers is how deep the object with the spans may stand in others.
const maxWrappers = 4

// batch reads an object that holds spans: the root, the resource level, or
// what some backends wrap around these.
func (p *parser) batch(depth int) {
	var had scan.Seen
	p.flushNotes()
	here := p.Pos(p.I)
	here.Path = strings.TrimSuffix(p.path, ".")
	p.Notes.Begin(here)
	outer := p.resource
	path := p.path
	scopes := -1 // where spans stand whose resource has not come yet
	cut := false // the store says that there is more
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		key := p.Key()
		var n uint
		var name string
		switch string(key) {
		case "resource":
			p.Twice(&had, 0, key)
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
		case "status": // beside a trace, as Tempo answers
			if p.Peek() != '"' {
				p.Skip()
			} else if string(p.Plain("status")) == "PARTIAL" {
				cut = true
			}
			continue
		default:
			p.Skip()
			continue
		}
		if n <= 3 {
			p.Twice(&had, n, key)
		}
		if p.Null() {
			continue
		}
		if n <= 2 {
			p.old = n == 2
		}
		switch {
		case n <= 2:
			p.isRoot()
			if had&1 == 0 && scopes < 0 {
				scopes = p.I
				p.Skip()
				continue
			}
			p.readScopes()
			p.Notes.Begin(here)
		case depth >= maxWrappers:
			p.Skip()
		case n == 4:
			if p.Peek() == '{' {
				p.batch(depth + 1)
				p.Notes.Begin(here)
			} else {
				p.Skip()
			}
		case p.Peek() == '{':
			p.batch(depth + 1)
			p.Notes.Begin(here)
		default:
			if n == 3 && string(key) != "traces" {
				p.isRoot()
			}
			for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
				if p.Peek() != '{' {
					p.Skip()
					if p.Wrong == "" {
						p.issue(trace.BadJSON, p.Pos(p.I), "%s is no object", element(path, name, i))
					}
					continue
				}
				start := p.I
				p.path = p.d.resourcePath.of(path, name, i)
				p.batch(depth + 1)
				p.skipBroken(start)
			}
			p.path = path
			p.Notes.Begin(here)
		}
	}
	if scopes >= 0 {
		end, wrong, badAt, ended := p.I, p.Wrong, p.BadAt, p.Ended
		p.I, p.Wrong, p.Ended = scopes, "", false
		p.readScopes()
		if p.Wrong == "" || wrong != "" {
			p.I, p.Wrong, p.BadAt, p.Ended = end, wrong, badAt, ended
		}
	}
	if cut {
		p.Notes.Add(trace.PartialTrace, "the answer's status is PARTIAL")
	}
	p.resource = outer
	p.flushNotes()
}

// skipBroken goes on behind a resource or scope with a syntax error, and tells
// of it unless the whole value is torn.
func (p *parser) skipBroken(start int) {
	if what, at := p.Wrong, p.BadAt; what != "" && p.Recover(start) && !p.partial {
		pos := p.Pos(at)
		pos.Path = strings.TrimSuffix(p.path, ".")
		p.issue(trace.BadJSON, pos, "%s", what)
	}
}

// isRoot notes that the value is meant to hold spans.
func (p *parser) isRoot() {
	if !p.root && p.Wrong == "" {
		p.root = true
		p.d.Roots++
		if err := p.onRoot(); err != nil {
			p.Err = err
		}
	}
}

// flushNotes gives the issues that are not about one span to the sink.
func (p *parser) flushNotes() {
	if p.root {
		for i := range p.Notes.List {
			if p.Err == nil && !p.d.sink(nil, &p.Notes.List[i]) {
				p.Err = ErrStopped
			}
		}
	}
	p.Notes.List = nil
}

// readResource reads {"attributes":[…]}. Batches of one process repeat it
// byte for byte, so the last one is kept.
func (p *parser) readResource() {
	if p.Null() {
		return
	}
	p.Peek()
	start := p.I
	if p.d.resource != nil && bytes.HasPrefix(p.B[start:], p.d.resText) {
		p.I += len(p.d.resText)
		p.resource = p.d.resource
		return
	}
	complaints := len(p.Notes.List)
	res := &trace.Resource{}
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		if string(p.Key()) == "attributes" {
			res.Attrs = p.attributes()
		} else {
			p.Skip()
		}
	}
	if p.Wrong != "" {
		p.skipBroken(start)
		return
	}
	if len(res.Attrs) == 0 {
		p.resource = nil
		return
	}
	p.resource = res
	if len(p.Notes.List) == complaints {
		p.d.resource, p.d.resText = res, append(p.d.resText[:0], p.B[start:p.I]...)
	}
}

// readScopes reads the array of scopes with their spans.
func (p *parser) readScopes() {
	path := p.path
	for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
		if p.Peek() != '{' {
			p.Skip()
			if p.Wrong == "" {
				p.issue(trace.BadJSON, p.Pos(p.I), "%s is no object", element(path, "scopeSpans", i))
			}
			continue
		}
		p.flushNotes()
		start := p.I
		p.path = p.d.scopePath.of(path, "scopeSpans", i)
		p.readScope()
		p.skipBroken(start)
	}
	p.path = path
}

// readScope reads {"scope":{…},"spans":[…]}.
func (p *parser) readScope() {
	var had scan.Seen
	p.scope = ""
	spans := -1
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		switch key := p.Key(); string(key) {
		case "scope", "instrumentationLibrary", "instrumentation_library":
			p.Twice(&had, 0, key)
			if p.Null() {
				continue
			}
			for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
				if string(p.Key()) == "name" {
					p.scope = p.Text("scope name")
				} else {
					p.Skip()
				}
			}
		case "spans":
			p.Twice(&had, 1, key)
			switch {
			case p.Null():
			case had&1 == 0 && spans < 0:
				// The scope may follow; it is needed first.
				spans = p.I
				p.Skip()
			default:
				p.readSpans()
			}
		default:
			p.Skip()
		}
	}
	if spans >= 0 {
		end, wrong, badAt, ended := p.I, p.Wrong, p.BadAt, p.Ended
		p.I, p.Wrong, p.Ended = spans, "", false
		p.readSpans()
		if p.Wrong == "" || wrong != "" {
			p.I, p.Wrong, p.BadAt, p.Ended = end, wrong, badAt, ended
		}
	}
}

func (p *parser) readSpans() {
	p.flushNotes()
	for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
		p.Peek()
		start := p.I
		pos := p.Pos(start)
		pos.Path = p.d.spanPath(p.path, i)
		p.Notes.Begin(pos)
		if p.Peek() != '{' {
			p.Skip()
			if p.Wrong == "" {
				p.issue(trace.BadSpan, pos, "a span is no object")
			}
			continue
		}
		s := &trace.Span{Format: FormatJSON, Scope: p.scope, Resource: p.resource, Pos: pos}
		p.span(s)
		if p.Wrong != "" {
			what, at := p.Wrong, p.BadAt
			if p.Recover(start) {
				p.issue(trace.BadSpan, pos, "a span is broken at its byte %d: %s", at-start, what)
			}
			p.Notes.List = nil
			continue
		}
		s.Issues, p.Notes.List = p.Notes.List, nil
		p.d.Spans++
		if p.Err == nil && !p.d.sink(s, nil) {
			p.Err = ErrStopped
		}
	}
}

// span reads one span.
func (p *parser) span(s *trace.Span) {
	var had scan.Seen
	var ids [3][]byte // as written
	bare := false
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		key := p.Key()
		switch string(key) {
		case "traceId", "trace_id":
			p.Twice(&had, 0, key)
			ids[0] = p.Plain("traceId")
		case "spanId", "span_id":
			p.Twice(&had, 1, key)
			ids[1] = p.Plain("spanId")
		case "parentSpanId", "parent_span_id":
			p.Twice(&had, 2, key)
			ids[2] = p.Plain("parentSpanId")
		case "name":
			p.Twice(&had, 3, key)
			s.Name = p.Text("name")
		case "kind":
			p.Twice(&had, 4, key)
			s.Kind = trace.SpanKind(p.enum("kind", "SPAN_KIND_", kindNames))
		case "startTimeUnixNano", "start_time_unix_nano":
			p.Twice(&had, 5, key)
			s.Start = p.time("startTimeUnixNano")
			bare = p.bare
		case "endTimeUnixNano", "end_time_unix_nano":
			p.Twice(&had, 6, key)
			s.End = p.time("endTimeUnixNano")
			bare = bare && p.bare
		case "attributes":
			p.Twice(&had, 7, key)
			s.Attrs = p.attributes()
		case "events":
			p.Twice(&had, 8, key)
			s.Events = p.readEvents()
		case "status":
			p.Twice(&had, 9, key)
			p.status(s)
		default:
			p.Skip()
		}
	}
	if p.Wrong == "" {
		s.TraceID, s.SpanID, s.ParentID = p.d.ids(ids, &p.Notes)
		if bare && p.old {
			s.Step = exploreStep
		}
	}
}

// exploreStep is the step of times that Grafana's Explore made of floats of
// milliseconds: neighbouring floats lie 244 ns apart, those of nanoseconds 256.
const exploreStep = 512

// The names of enums without their prefixes, by number.
var (
	kindNames   = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}
	statusNames = []string{"UNSET", "OK", "ERROR"}
)

// ids turns the texts of a span's ids into one allocation.
func (d *Decoder) ids(texts [3][]byte, n *scan.Notes) (traceID, spanID, parentID string) {
	var ends [3]int
	b := d.scratch[:0]
	for i, t := range texts {
		size := 8
		if i == 0 {
			size = 16
		}
		begin := len(b)
		var ok bool
		if b, ok = scan.AppendID(b, n.Mend(t), size); !ok {
			n.Add(trace.BadID, "the %s id %q is odd", idNames[i], scan.Short(b[begin:]))
		}
		ends[i] = len(b)
	}
	d.scratch = b
	all := string(b)
	return all[:ends[0]], all[ends[0]:ends[1]], all[ends[1]:]
}

var idNames = [3]string{"trace", "span", "parent"}

// enum reads an enum by number or by name.
func (p *parser) enum(key string, prefix string, names []string) int {
	tok := p.Scalar(key, "number")
	if tok == nil {
		return 0
	}
	if x, v := scan.ParseInteger(tok); v == scan.Fine && !x.Neg && x.Abs < uint64(len(names)) {
		return int(x.Abs)
	}
	short := bytes.TrimPrefix(tok, []byte(prefix))
	for i, n := range names {
		if string(short) == n {
			return i
		}
	}
	p.Notes.Add(trace.BadField, "%s is unknown", key)
	return 0
}

// time reads Unix nanoseconds; 0 is absent.
func (p *parser) time(key string) trace.Opt[trace.Time] {
	quoted := p.Peek() == '"'
	tok := p.Scalar(key, "number")
	if len(tok) == 0 {
		return trace.Opt[trace.Time]{}
	}
	x, v := scan.ParseInteger(tok)
	p.bare = !quoted && x.Abs >= 1<<60 && x.Abs%256 == 0
	switch {
	case v == scan.NotANumber || v == scan.Fraction:
		p.Notes.Add(trace.BadField, "%s is no whole number of nanoseconds", key)
	case v == scan.TooLarge || x.Neg || x.Abs > math.MaxInt64:
		p.Notes.Add(trace.TimeOutOfRange, "%s does not fit int64 nanoseconds", key)
	case x.Abs > 0:
		return trace.Some(trace.Time(x.Abs))
	}
	return trace.Opt[trace.Time]{}
}

func (p *parser) status(s *trace.Span) {
	if p.Null() {
		return
	}
	if p.Peek() != '{' {
		p.WrongType("status", "object")
		return
	}
	var had scan.Seen
	old := 0
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		switch key := p.Key(); string(key) {
		case "code":
			p.Twice(&had, 0, key)
			s.Status = trace.StatusCode(p.enum("status code", "STATUS_CODE_", statusNames))
		case "message":
			p.Twice(&had, 1, key)
			s.StatusMessage = p.Text("status message")
		case "deprecatedCode", "deprecated_code":
			// Before 2021 anything but 0 meant an error.
			if x, v := scan.ParseInteger(p.Scalar("deprecatedCode", "number")); v == scan.Fine && x.Abs != 0 {
				old = 1
			}
		default:
			p.Skip()
		}
	}
	if had&1 == 0 && old != 0 {
		s.Status = trace.StatusError
	}
}

func (p *parser) readEvents() []trace.Event {
	if p.Null() {
		return nil
	}
	if p.Peek() != '[' {
		p.WrongType("events", "array")
		return nil
	}
	list := p.d.events[:0]
	for ok := p.Enter('[', ']'); ok; ok = p.Next(']') {
		if p.Null() {
			continue
		}
		if p.Peek() != '{' {
			p.WrongType("an event", "object")
			continue
		}
		var had scan.Seen
		var e trace.Event
		for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
			switch key := p.Key(); string(key) {
			case "timeUnixNano", "time_unix_nano":
				p.Twice(&had, 0, key)
				e.At = p.time("timeUnixNano")
			case "name":
				p.Twice(&had, 1, key)
				e.Name = p.Text("event name")
			case "attributes":
				p.Twice(&had, 2, key)
				e.Attrs = p.attributes()
			default:
				p.Skip()
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
	if p.Null() {
		return nil
	}
	if p.Peek() != '[' {
		p.WrongType("attributes", "array")
		return nil
	}
	base := len(p.d.attrs)
	for ok := p.Enter('[', ']'); ok; ok = p.Next(']') {
		if p.Null() {
			continue
		}
		if p.Peek() != '{' {
			p.WrongType("an attribute", "object")
			continue
		}
		var a trace.Attr
		var had scan.Seen
		value := -1
		for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
			switch key := p.Key(); string(key) {
			case "key":
				p.Twice(&had, 0, key)
				a.Key = p.Text("attribute key")
			case "value":
				p.Twice(&had, 1, key)
				if value = p.I; had&1 == 0 {
					p.Skip() // its issues name the key
				} else {
					a.Value, value = p.any(a.Key), -1
				}
			default:
				p.Skip()
			}
		}
		if value >= 0 && p.Wrong == "" {
			end := p.I
			p.I = value
			a.Value = p.any(a.Key)
			if p.Wrong == "" {
				p.I = end
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
	if p.Null() {
		return v
	}
	if p.Peek() != '{' {
		p.WrongType(key, "value in an object")
		return v
	}
	var had scan.Seen
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		member := p.Key()
		kind := anyKind(member)
		if kind == 0 {
			p.Skip()
			continue
		}
		p.Twice(&had, kind, member)
		switch kind {
		case 1:
			v = trace.Value{}
			if p.Peek() == '"' {
				v = trace.StringValue(p.Text(key))
			} else if !p.Null() {
				p.WrongType(key, "text")
			}
		case 2:
			if i, ok := p.Int(key); ok {
				v = trace.IntValue(i)
			} else {
				v = trace.Value{}
			}
		case 3:
			if f, ok := p.Float(key); ok {
				v = trace.FloatValue(f)
			} else {
				v = trace.Value{}
			}
		case 4:
			switch tok := p.Scalar(key, "boolean"); string(tok) {
			case "true":
				v = trace.BoolValue(true)
			case "false":
				v = trace.BoolValue(false)
			default:
				v = trace.Value{}
				if tok != nil {
					p.Notes.Add(trace.BadField, "%s is no boolean", scan.Short(key))
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

// composite reads what an attribute's value can be beyond plain ones and
// appends it as JSON; nil where it cannot be read.
func (p *parser) composite(dst []byte, kind uint, key string, depth int) []byte {
	if p.Null() {
		return nil
	}
	if kind == 7 {
		if p.Peek() != '"' {
			p.WrongType(key, "base64 text")
			return nil
		}
		// It is base64 already.
		return scan.AppendQuoted(dst, p.Str(key))
	}
	if p.Peek() != '{' || depth > maxNesting {
		if depth > maxNesting {
			p.Skip()
			p.Notes.Add(trace.BadField, "%s is nested more than %d deep", scan.Short(key), maxNesting)
		} else {
			p.WrongType(key, "object with values")
		}
		return nil
	}
	open, end := byte('['), byte(']')
	if kind == 6 {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	first := len(dst)
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		if string(p.Key()) != "values" {
			p.Skip()
			continue
		}
		if p.Null() {
			continue
		}
		for ok := p.Enter('[', ']'); ok; ok = p.Next(']') {
			if len(dst) > first {
				dst = append(dst, ',')
			}
			if kind == 5 {
				dst = p.appendAny(dst, key, depth)
				continue
			}
			name, value := -1, -1
			for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
				switch string(p.Key()) {
				case "key":
					name = p.I
				case "value":
					value = p.I
				}
				p.Skip()
			}
			after := p.I
			dst = p.appendAt(dst, name, func(dst []byte) []byte { return scan.AppendQuoted(dst, p.Str(key)) }, `""`)
			dst = append(dst, ':')
			dst = p.appendAt(dst, value, func(dst []byte) []byte { return p.appendAny(dst, key, depth) }, "null")
			if p.Wrong == "" {
				p.I = after
			}
		}
	}
	return append(dst, end)
}

// appendAt appends what f reads at index i, or alt where i is negative.
func (p *parser) appendAt(dst []byte, i int, f func([]byte) []byte, alt string) []byte {
	if i < 0 || p.Wrong != "" {
		return append(dst, alt...)
	}
	p.I = i
	return f(dst)
}

// appendAny appends a value inside an array or map as JSON.
func (p *parser) appendAny(dst []byte, key string, depth int) []byte {
	begin := len(dst)
	if p.Null() {
		return append(dst, "null"...)
	}
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		kind := anyKind(p.Key())
		if kind == 0 || p.Null() {
			if kind == 0 {
				p.Skip()
			}
			continue
		}
		dst = dst[:begin] // the last wins
		switch kind {
		case 1:
			dst = scan.AppendQuoted(dst, p.Str(key))
		case 2:
			if i, ok := p.Int(key); ok {
				dst = strconv.AppendInt(dst, i, 10)
			}
		case 3:
			if f, ok := p.Float(key); ok {
				dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
			}
		case 4:
			if tok := p.Scalar(key, "boolean"); string(tok) == "true" || string(tok) == "false" {
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
