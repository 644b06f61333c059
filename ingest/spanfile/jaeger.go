package spanfile

import (
	"bytes"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// Jaeger is what Jaeger's page gives to download and its interface answers
// (/api/traces, v1): {"data":[{"traceID", "spans":[…], "processes":{…}}]}. One
// trace alone is read too, also a bare array of spans, and a span with its
// process inside, as Elasticsearch keeps it ({"_source":{…}}, one a line).
// Version 3 of the interface answers in OTLP. Read at Jaeger 2.20.
//
// Times are microseconds. The page cuts the zeros off ids, which are put back.
// The query service may have moved spans of hosts whose clocks differ; it warns
// of it in the span, and so do we.
var Jaeger = Container{
	Name:     "jaeger-json",
	Evidence: `JSON with the keys "traceID", "spanID" and "operationName"`,
	Yields:   "spans, then requests; times to 1 µs",
	NotTold:  "times below 1 µs; where Jaeger moved spans for clock skew, by how much each (it says that it did)",
	Sniff: func(head []byte) bool {
		return firstObject(head) != nil && has(head, `"operationName"`, `"spanID"`, `"traceID"`)
	},
	step:  time.Microsecond,
	value: (*parser).jaeger,
}

// jaeger reads one value: an answer, a trace or a span.
func (p *parser) jaeger() { p.jaegerObject(0) }

// jaegerObject reads an object that is a trace, a span, or holds some.
func (p *parser) jaegerObject(depth int) {
	start := p.I
	var had struct{ spans, operation, inner bool }
	spans := len(p.B)
	processes := map[string]*trace.Resource{}
	p.object("a trace", func(key []byte) {
		switch string(key) {
		case "operationName":
			had.operation = true
			p.Skip()
		case "spans":
			had.spans = true
			p.Peek()
			spans = p.I
			p.Skip()
		case "processes":
			p.object("processes", func(key []byte) {
				name := string(p.Notes.Mend(key))
				processes[name] = p.resource(p.process)
			})
		case "data", "hits", "_source":
			had.inner = true
			p.jaegerInner(depth+1, string(key))
		default:
			p.Skip()
		}
	})
	end, wrong, badAt, ended := p.I, p.Wrong, p.BadAt, p.Ended
	switch {
	case had.spans && spans < len(p.B) && p.B[spans] == '[':
		p.ours()
		p.I, p.Wrong, p.Ended = spans, "", false
		for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
			if p.Peek() != '{' {
				p.Skip()
				if p.Wrong == "" {
					p.issue(trace.BadSpan, p.Pos(p.I), "a span is no object")
				}
				continue
			}
			p.span(func(s *trace.Span) bool { return p.jaegerSpan(s, processes) }, element("spans", i))
		}
	case had.operation && !had.inner:
		p.I, p.Wrong, p.Ended = start, "", false
		p.span(func(s *trace.Span) bool { return p.jaegerSpan(s, processes) }, "")
	default:
		return
	}
	if p.Wrong == "" {
		p.I, p.Wrong, p.BadAt, p.Ended = end, wrong, badAt, ended
	}
}

// jaegerInner reads what holds traces or spans: an array or an object.
func (p *parser) jaegerInner(depth int, name string) {
	path := p.path
	defer func() { p.path = path }()
	const deep = 5 // {"hits":{"hits":[{"_source":{…}}]}}
	switch {
	case depth > deep:
		p.Skip()
	case p.Peek() == '{':
		p.path = path + name + "."
		p.jaegerObject(depth)
	case p.Peek() == '[':
		for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
			if p.Peek() != '{' {
				p.Skip()
				continue
			}
			start := p.I
			p.path = path + element(name, i) + "."
			p.jaegerObject(depth)
			if what, at := p.Wrong, p.BadAt; what != "" && p.Recover(start) {
				p.issue(trace.BadJSON, p.Pos(at), "%s", what)
			}
		}
	default:
		p.Skip()
	}
}

// process reads {"serviceName":…,"tags":[…]} as a resource.
func (p *parser) process() []trace.Attr {
	var list []trace.Attr
	p.object("a process", func(key []byte) {
		switch string(key) {
		case "serviceName":
			if name := p.Text("serviceName"); name != "" {
				list = append([]trace.Attr{{Key: "service.name", Value: trace.StringValue(name)}}, list...)
			}
		case "tags":
			list = append(list, p.tags("tags")...)
		default:
			p.Skip()
		}
	})
	return list
}

// tags reads [{"key":…,"type":…,"value":…}, …], or the plain object that
// Elasticsearch may keep.
func (p *parser) tags(key string) []trace.Attr {
	if p.Peek() == '{' {
		return p.attributes(key)
	}
	var list []trace.Attr
	p.array(key, func(int) {
		var a trace.Attr
		var typ []byte
		value := -1
		p.object("a tag", func(key []byte) {
			switch string(key) {
			case "key":
				a.Key = p.Text("key")
			case "type":
				typ = p.Plain("type")
			case "value":
				p.Peek()
				value = p.I
				p.Skip()
			default:
				p.Skip()
			}
		})
		if value >= 0 && p.Wrong == "" {
			end := p.I
			p.I = value
			a.Value = p.tag(a.Key, string(typ))
			p.I = end
		}
		list = append(list, a)
	})
	return list
}

// tag reads the value of a tag of that type. Integers that a browser would
// round are written as text.
func (p *parser) tag(key, typ string) trace.Value {
	typ = strings.ToLower(typ)
	quoted := p.Peek() == '"'
	switch {
	case quoted && (typ == "int64" || typ == "float64" || typ == "bool"):
		b, _ := p.Raw()
		return p.plain(key, b)
	case quoted && typ == "binary":
		return trace.JSONValue(string(scan.AppendQuoted(nil, p.Str(key))))
	}
	v := p.any(key)
	if i, ok := v.Int(); ok && typ == "float64" {
		v = trace.FloatValue(float64(i))
	}
	return v
}

// adjusted are the words by which the query service says that it moved a span.
var adjusted = []string{"timestamps were adjusted by"}

func (p *parser) jaegerSpan(s *trace.Span, processes map[string]*trace.Resource) bool {
	var had scan.Seen
	var length trace.Opt[trace.Time]
	var parent, traceID []byte
	var tags []trace.Attr
	named := false
	p.object("a span", func(key []byte) {
		switch string(key) {
		case "traceID":
			p.Twice(&had, 0, key)
			traceID = p.Plain("traceID")
			s.TraceID = p.id(traceID, 16, "trace")
		case "spanID":
			p.Twice(&had, 1, key)
			s.SpanID = p.id(p.Plain("spanID"), 8, "span")
		case "parentSpanID":
			p.Twice(&had, 2, key)
			parent = p.Plain("parentSpanID")
		case "operationName":
			p.Twice(&had, 3, key)
			named = true
			s.Name = p.Text("operationName")
		case "startTime":
			p.Twice(&had, 4, key)
			s.Start = p.scaled("startTime", micros)
		case "duration":
			p.Twice(&had, 5, key)
			length = p.scaled("duration", micros)
		case "references":
			p.Twice(&had, 6, key)
			if id, ok := p.childOf(traceID); ok {
				s.ParentID = id
			}
		case "tags":
			p.Twice(&had, 7, key)
			if list := p.tags("tags"); len(list) > 0 {
				tags = append(list, tags...)
			}
		case "tag":
			p.Twice(&had, 11, key)
			tags = append(tags, p.attributes("tag")...)
		case "logs":
			p.Twice(&had, 8, key)
			p.array("logs", func(int) { s.Events = append(s.Events, p.jaegerLog()) })
		case "processID":
			p.Twice(&had, 9, key)
			if res, ok := processes[p.Text("processID")]; ok {
				s.Resource = res
			}
		case "process":
			p.Twice(&had, 10, key)
			if p.Peek() == '{' {
				s.Resource = p.resource(p.process)
			} else {
				p.Skip()
			}
		case "warnings":
			p.warnings()
		default:
			p.Skip()
		}
	})
	if s.ParentID == "" && len(parent) > 0 {
		s.ParentID = p.id(parent, 8, "parent")
	}
	s.End = p.after(s.Start, length)
	s.Attrs = p.special(s, tags)
	return named
}

// childOf reads the references and returns the span that it is a child of, in
// the same trace.
func (p *parser) childOf(traceID []byte) (id string, ok bool) {
	p.array("references", func(int) {
		var typ, in, of []byte
		p.object("a reference", func(key []byte) {
			switch string(key) {
			case "refType":
				typ = p.Plain("refType")
			case "traceID":
				in = p.Plain("traceID")
			case "spanID":
				of = p.Plain("spanID")
			default:
				p.Skip()
			}
		})
		if !ok && string(typ) == "CHILD_OF" && (traceID == nil || in == nil || bytes.Equal(in, traceID)) {
			id, ok = p.id(of, 8, "parent"), true
		}
	})
	return id, ok
}

// jaegerLog reads {"timestamp":…,"fields":[…]}; the field "event" is the name.
func (p *parser) jaegerLog() (e trace.Event) {
	p.object("a log", func(key []byte) {
		switch string(key) {
		case "timestamp":
			e.At = p.scaled("timestamp", micros)
		case "fields":
			for _, a := range p.tags("fields") {
				if a.Key == "event" && e.Name == "" {
					e.Name = text(a.Value)
				} else {
					e.Attrs = append(e.Attrs, a)
				}
			}
		default:
			p.Skip()
		}
	})
	return e
}

// warnings reads the texts that the query service added.
func (p *parser) warnings() {
	if p.Null() {
		return
	}
	if p.Peek() != '[' {
		p.WrongType("warnings", "array")
		return
	}
	for ok := p.Enter('[', ']'); ok; ok = p.Next(']') {
		if p.Peek() != '"' {
			p.Skip()
			continue
		}
		b := p.Str("a warning")
		for _, w := range adjusted {
			if bytes.Contains(b, []byte(w)) {
				p.Notes.Add(trace.ClockAdjusted, "Jaeger: %.80s", b)
			}
		}
	}
}

// special takes from the tags of a span what OpenTelemetry has fields for, as
// its exporters to Jaeger and Zipkin write it, and returns the rest.
func (p *parser) special(s *trace.Span, tags []trace.Attr) []trace.Attr {
	kept := tags[:0]
	failed := false
	for _, a := range tags {
		switch a.Key {
		case "span.kind":
			s.Kind = trace.SpanKind(p.enum("span.kind", []byte(text(a.Value)), kindNames))
		case "otel.status_code", "status.code":
			s.Status = trace.StatusCode(p.enum(a.Key, []byte(text(a.Value)), statusNames))
		case "otel.status_description", "status.message":
			s.StatusMessage = text(a.Value)
		case "otel.scope.name", "otel.library.name":
			s.Scope = text(a.Value)
		case "otel.scope.version", "otel.library.version", "internal.span.format":
		case "error":
			// true, or in Zipkin what went wrong.
			if failed = isTrue(a.Value) || text(a.Value) != "" && text(a.Value) != "false"; failed && s.StatusMessage == "" && text(a.Value) != "true" {
				s.StatusMessage = text(a.Value)
			}
		default:
			kept = append(kept, a)
		}
	}
	if failed && s.Status == trace.StatusUnset {
		s.Status = trace.StatusError
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}
