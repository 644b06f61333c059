package spanfile

import (
	"bytes"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// Zipkin is version 2 of Zipkin's JSON: an array of spans, an array of such
// arrays (/api/v2/traces), or one span a line. Read at the OpenAPI description
// of version 2 and what OpenTelemetry's exporters write.
//
// Times are microseconds, durations are rounded up to 1. All tags are text. Two
// records may share one span id: the client's and the server's half of a call;
// the server's ("shared") is read as a child of the client's. Resource and span
// have one set of tags: what lies in the name spaces service., host., k8s. and
// the like is taken for the resource's.
var Zipkin = Container{
	Name:     "zipkin-json",
	Evidence: `JSON with the keys "traceId", "id", and "localEndpoint", "timestamp" or "annotations"`,
	Yields:   "spans, then requests; times to 1 µs",
	NotTold:  "times below 1 µs, the types of attributes, which attributes are the resource's; what hangs below a shared span id may be the client's or the server's",
	Sniff: func(head []byte) bool {
		return firstObject(head) != nil && has(head, `"traceId"`, `"id"`) && !has(head, `"spanId"`) &&
			(has(head, `"localEndpoint"`) || has(head, `"timestamp"`, `"duration"`) || has(head, `"annotations"`))
	},
	step:    time.Microsecond,
	untyped: true,
	value: func(p *parser) {
		p.span(p.zipkinSpan, "")
	},
}

func (p *parser) zipkinSpan(s *trace.Span) bool {
	var had scan.Seen
	var length trace.Opt[trace.Time]
	var own, tags []trace.Attr
	shared, id := false, false
	p.object("a span", func(key []byte) {
		switch string(key) {
		case "traceId":
			p.Twice(&had, 0, key)
			s.TraceID = p.id(p.Plain("traceId"), 16, "trace")
		case "id":
			p.Twice(&had, 1, key)
			s.SpanID, id = p.id(p.Plain("id"), 8, "span"), true
		case "parentId":
			p.Twice(&had, 2, key)
			s.ParentID = p.id(p.Plain("parentId"), 8, "parent")
		case "name":
			p.Twice(&had, 3, key)
			s.Name = p.Text("name")
		case "kind":
			p.Twice(&had, 4, key)
			s.Kind = trace.SpanKind(p.name("kind", kindNames))
		case "timestamp":
			p.Twice(&had, 5, key)
			s.Start = p.scaled("timestamp", micros)
		case "duration":
			p.Twice(&had, 6, key)
			length = p.scaled("duration", micros)
		case "localEndpoint":
			p.Twice(&had, 7, key)
			p.object("localEndpoint", func(key []byte) {
				if string(key) != "serviceName" {
					p.Skip()
				} else if name := p.Text("serviceName"); name != "" {
					own = set(own, "service.name", trace.StringValue(name))
				}
			})
		case "tags":
			p.Twice(&had, 8, key)
			tags = p.attributes("tags")
		case "annotations":
			p.Twice(&had, 9, key)
			p.array("annotations", func(int) {
				var e trace.Event
				p.object("an annotation", func(key []byte) {
					switch string(key) {
					case "timestamp":
						e.At = p.scaled("timestamp", micros)
					case "value":
						e.Name = eventName(p.Text("value"))
					default:
						p.Skip()
					}
				})
				s.Events = append(s.Events, e)
			})
		case "shared":
			p.Twice(&had, 10, key)
			shared = string(p.Scalar("shared", "boolean")) == "true"
		default:
			p.Skip()
		}
	})
	if zero, ok := s.Start.Get(); ok && zero == 0 {
		s.Start = trace.Opt[trace.Time]{}
	}
	if shared && s.SpanID != "" {
		s.ParentID = s.SpanID
		s.SpanID += "-shared"
	}
	s.End = p.after(s.Start, length)
	kept := tags[:0]
	for _, a := range tags {
		if isResourceKey(a.Key) {
			if a.Key == "service.name" && len(own) > 0 { // the SDK's own word for it
				own[0].Value = a.Value
				continue
			}
			own = append(own, a)
			continue
		}
		kept = append(kept, a)
	}
	s.Resource = p.shared(own)
	s.Attrs = p.special(s, kept)
	return id
}

// eventName returns the name of an event, behind which exporters write its
// attributes: name|{…}|0, "name: {…}" or {"name":{…}}.
func eventName(s string) string {
	if key, ok := strings.CutPrefix(s, `{"`); ok {
		if name, _, ok := strings.Cut(key, `"`); ok {
			return name
		}
	}
	for _, sep := range []string{"|{", ": {"} {
		if i := bytes.Index([]byte(s), []byte(sep)); i > 0 {
			return s[:i]
		}
	}
	return s
}
