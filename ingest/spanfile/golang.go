package spanfile

import (
	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// GoConsole is what OpenTelemetry's Go SDK prints: the exporter stdouttrace,
// read at v1.44: JSON objects one after the other, each on a line or indented.
//
// WithoutTimestamps makes all times the year 1: absent.
var GoConsole = Container{
	Name:     "otel-console-go",
	Evidence: `JSON objects with the keys "SpanContext", "TraceID", "Parent" and "StartTime"`,
	Yields:   "spans, then requests",
	NotTold:  "what the spans do not tell themselves",
	Sniff: func(head []byte) bool {
		return has(head, `"SpanContext"`, `"TraceID"`, `"SpanID"`, `"Parent"`, `"StartTime"`)
	},
	logs:  true,
	roots: [][]byte{[]byte(`"Name"`)},
	value: func(p *parser) {
		p.span(p.goSpan, "")
	},
}

func (p *parser) goSpan(s *trace.Span) bool {
	var had scan.Seen
	context := false
	ids := func(what string, traceID, spanID *string) {
		p.object(what, func(key []byte) {
			switch string(key) {
			case "TraceID":
				if id := p.id(p.Plain("TraceID"), 16, "trace"); traceID != nil {
					*traceID = id
				}
			case "SpanID":
				*spanID = p.id(p.Plain("SpanID"), 8, "span")
			default:
				p.Skip()
			}
		})
	}
	p.object("a span", func(key []byte) {
		switch string(key) {
		case "Name":
			p.Twice(&had, 0, key)
			s.Name = p.Text("Name")
		case "SpanContext":
			p.Twice(&had, 1, key)
			context = true
			ids("SpanContext", &s.TraceID, &s.SpanID)
		case "Parent":
			p.Twice(&had, 2, key)
			ids("Parent", nil, &s.ParentID)
		case "SpanKind":
			p.Twice(&had, 3, key)
			tok := p.Scalar("SpanKind", "number")
			if x, v := scan.ParseInteger(tok); v == scan.Fine && !x.Neg && x.Abs < uint64(len(kindNames)) {
				s.Kind = trace.SpanKind(x.Abs)
			} else {
				s.Kind = trace.SpanKind(p.enum("SpanKind", tok, kindNames))
			}
		case "StartTime":
			p.Twice(&had, 4, key)
			s.Start = p.instant("StartTime")
		case "EndTime":
			p.Twice(&had, 5, key)
			s.End = p.instant("EndTime")
		case "Attributes":
			p.Twice(&had, 6, key)
			s.Attrs = p.goAttributes()
		case "Events":
			p.Twice(&had, 7, key)
			p.array("Events", func(int) {
				var e trace.Event
				p.object("an event", func(key []byte) {
					switch string(key) {
					case "Name":
						e.Name = p.Text("event name")
					case "Time":
						e.At = p.instant("Time")
					case "Attributes":
						e.Attrs = p.goAttributes()
					default:
						p.Skip()
					}
				})
				s.Events = append(s.Events, e)
			})
		case "Status":
			p.Twice(&had, 8, key)
			p.object("Status", func(key []byte) {
				switch string(key) {
				case "Code":
					s.Status = trace.StatusCode(p.name("Code", statusNames))
				case "Description":
					s.StatusMessage = p.Text("Description")
				default:
					p.Skip()
				}
			})
		case "Resource":
			p.Twice(&had, 9, key)
			s.Resource = p.resource(p.goAttributes)
		case "InstrumentationScope", "InstrumentationLibrary":
			p.object("scope", func(key []byte) {
				if string(key) == "Name" {
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

// goAttributes reads [{"Key":…,"Value":{"Type":…,"Value":…}}, …].
func (p *parser) goAttributes() []trace.Attr {
	var list []trace.Attr
	p.array("attributes", func(int) {
		var a trace.Attr
		var typ []byte
		value := -1
		p.object("an attribute", func(key []byte) {
			switch string(key) {
			case "Key":
				a.Key = p.Text("Key")
			case "Value":
				p.object("a value", func(key []byte) {
					switch string(key) {
					case "Type":
						typ = p.Plain("Type")
					case "Value":
						p.Peek()
						value = p.I
						p.Skip()
					default:
						p.Skip()
					}
				})
			default:
				p.Skip()
			}
		})
		if value >= 0 && p.Wrong == "" {
			end := p.I
			p.I = value
			a.Value = p.any(a.Key)
			if i, ok := a.Value.Int(); ok && string(typ) == "FLOAT64" {
				a.Value = trace.FloatValue(float64(i))
			}
			p.I = end
		}
		list = append(list, a)
	})
	return list
}
