package spanfile

import (
	"time"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// PythonConsole is what OpenTelemetry's Python SDK prints: ConsoleSpanExporter,
// read at SDK 1.44: indented JSON objects one after the other, between whatever
// else the process prints; also one a line, as formatters of others print them.
//
// Times are ISO dates of microseconds, made by way of a float, so that the last
// digit may be off by one.
var PythonConsole = Container{
	Name:     "otel-console-python",
	Evidence: `JSON objects with the keys "context", "trace_id", "parent_id" and "start_time"`,
	Yields:   "spans, then requests; times to 1 µs",
	NotTold:  "times below 1 µs, the name of the instrumentation scope",
	Sniff: func(head []byte) bool {
		return has(head, `"context"`, `"trace_id"`, `"span_id"`, `"parent_id"`, `"start_time"`)
	},
	step:  time.Microsecond,
	logs:  true,
	roots: [][]byte{[]byte(`"name"`)},
	value: func(p *parser) {
		p.span(p.pythonSpan, "")
	},
}

func (p *parser) pythonSpan(s *trace.Span) bool {
	var had scan.Seen
	context := false
	p.object("a span", func(key []byte) {
		switch string(key) {
		case "name":
			p.Twice(&had, 0, key)
			s.Name = p.Text("name")
		case "context":
			p.Twice(&had, 1, key)
			p.object("context", func(key []byte) {
				switch string(key) {
				case "trace_id":
					context = true
					s.TraceID = p.id(p.Plain("trace_id"), 16, "trace")
				case "span_id":
					s.SpanID = p.id(p.Plain("span_id"), 8, "span")
				default:
					p.Skip()
				}
			})
		case "kind":
			p.Twice(&had, 2, key)
			s.Kind = trace.SpanKind(p.name("kind", kindNames))
		case "parent_id":
			p.Twice(&had, 3, key)
			s.ParentID = p.id(p.Plain("parent_id"), 8, "parent")
		case "start_time":
			p.Twice(&had, 4, key)
			s.Start = p.instant("start_time")
		case "end_time":
			p.Twice(&had, 5, key)
			s.End = p.instant("end_time")
		case "status":
			p.Twice(&had, 6, key)
			p.object("status", func(key []byte) {
				switch string(key) {
				case "status_code":
					s.Status = trace.StatusCode(p.name("status_code", statusNames))
				case "description":
					s.StatusMessage = p.Text("description")
				default:
					p.Skip()
				}
			})
		case "attributes":
			p.Twice(&had, 7, key)
			s.Attrs = p.attributes("attributes")
		case "events":
			p.Twice(&had, 8, key)
			p.array("events", func(int) {
				var e trace.Event
				p.object("an event", func(key []byte) {
					switch string(key) {
					case "name":
						e.Name = p.Text("event name")
					case "timestamp":
						e.At = p.instant("timestamp")
					case "attributes":
						e.Attrs = p.attributes("attributes")
					default:
						p.Skip()
					}
				})
				s.Events = append(s.Events, e)
			})
		case "resource":
			p.Twice(&had, 9, key)
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
		case "instrumentation_scope", "instrumentation_info": // of formatters of others
			p.object("scope", func(key []byte) {
				if string(key) == "name" {
					s.Scope = p.Text("scope name")
				} else {
					p.Skip()
				}
			})
		default:
			p.Skip()
		}
	})
	return context
}
