package spanfile

import (
	"bytes"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// ClickHouse is rows of otel_traces, the table of the collector's ClickHouse
// exporter, as SELECT * gives them FORMAT JSONEachRow (one object a row) or
// FORMAT JSON (rows under "data"). Read at the exporter's schema of v0.159;
// older names of kinds and states are read too. [ClickHouseParquet] reads the
// same rows as Parquet.
//
// Stamps have nine digits and no zone: ClickHouse prints them in the zone of
// its server, unless the query says otherwise. Maps hold text only; with the
// schema of type JSON, values keep their types.
var ClickHouse = Container{
	Name:     "clickhouse-json",
	Evidence: `JSON objects with the keys "TraceId", "SpanId", "SpanName" and "Duration"`,
	Yields:   "spans, then requests",
	NotTold:  "the zone of its stamps (--zone, else UTC), the types of attributes",
	Sniff: func(head []byte) bool {
		return firstObject(head) != nil && has(head, `"TraceId"`, `"SpanId"`, `"SpanName"`, `"Duration"`)
	},
	untyped: true,
	value: func(p *parser) {
		p.clickHouse(true)
	},
}

// clickHouse reads a row, or the rows of an answer.
func (p *parser) clickHouse(outer bool) {
	if outer {
		// {"meta":[…],"data":[{row}, …],"rows":…}
		start := p.I
		data := -1
		p.object("an answer", func(key []byte) {
			if string(key) == "data" && p.Peek() == '[' {
				data = p.I
			}
			p.Skip()
		})
		end, wrong, badAt, ended := p.I, p.Wrong, p.BadAt, p.Ended
		p.Wrong, p.Ended = "", false
		if data >= 0 {
			p.ours()
			p.I = data
			for i, ok := 0, p.Enter('[', ']'); ok; i, ok = i+1, p.Next(']') {
				if p.Peek() != '{' {
					p.Skip()
					continue
				}
				p.span(p.row, element("data", i))
			}
			if p.Wrong == "" {
				p.I, p.Wrong, p.BadAt, p.Ended = end, wrong, badAt, ended
			}
			return
		}
		p.I = start
	}
	p.span(p.row, "")
}

func (p *parser) row(s *trace.Span) bool {
	var had scan.Seen
	var length trace.Opt[trace.Time]
	var service string
	var own *trace.Resource
	var times []trace.Opt[trace.Time]
	var names []string
	var attrs [][]trace.Attr
	id := false
	p.object("a row", func(key []byte) {
		switch string(key) {
		case "Timestamp":
			p.Twice(&had, 0, key)
			s.Start = p.clickHouseTime("Timestamp")
		case "TraceId":
			p.Twice(&had, 1, key)
			s.TraceID, id = p.id(p.Plain("TraceId"), 16, "trace"), true
		case "SpanId":
			p.Twice(&had, 2, key)
			s.SpanID = p.id(p.Plain("SpanId"), 8, "span")
		case "ParentSpanId":
			p.Twice(&had, 3, key)
			s.ParentID = p.id(p.Plain("ParentSpanId"), 8, "parent")
		case "SpanName":
			p.Twice(&had, 4, key)
			s.Name = p.Text("SpanName")
		case "SpanKind":
			p.Twice(&had, 5, key)
			s.Kind = trace.SpanKind(p.name("SpanKind", kindNames))
		case "ServiceName":
			p.Twice(&had, 6, key)
			service = p.Text("ServiceName")
		case "ResourceAttributes":
			p.Twice(&had, 7, key)
			own = p.resource(func() []trace.Attr { return p.flat("ResourceAttributes") })
		case "ScopeName":
			p.Twice(&had, 8, key)
			s.Scope = p.Text("ScopeName")
		case "SpanAttributes":
			p.Twice(&had, 9, key)
			s.Attrs = p.flat("SpanAttributes")
		case "Duration":
			p.Twice(&had, 10, key)
			length = p.clickHouseDuration()
		case "StatusCode":
			p.Twice(&had, 11, key)
			s.Status = trace.StatusCode(p.name("StatusCode", statusNames))
		case "StatusMessage":
			p.Twice(&had, 12, key)
			s.StatusMessage = p.Text("StatusMessage")
		case "Events.Timestamp":
			p.Twice(&had, 13, key)
			p.values("Events.Timestamp", func() { times = append(times, p.clickHouseTime("Events.Timestamp")) })
		case "Events.Name":
			p.Twice(&had, 14, key)
			p.values("Events.Name", func() { names = append(names, p.Text("Events.Name")) })
		case "Events.Attributes":
			p.Twice(&had, 15, key)
			p.values("Events.Attributes", func() { attrs = append(attrs, p.flat("Events.Attributes")) })
		default:
			p.Skip()
		}
	})
	for i, at := range times {
		e := trace.Event{At: at}
		if i < len(names) {
			e.Name = names[i]
		}
		if i < len(attrs) {
			e.Attrs = attrs[i]
		}
		s.Events = append(s.Events, e)
	}
	s.End = p.after(s.Start, length)
	s.Resource = p.named(own, service)
	return id
}

// named returns the resource with the service's name, which has a column of
// its own.
func (p *parser) named(own *trace.Resource, service string) *trace.Resource {
	if service == "" {
		return own
	}
	attrs := []trace.Attr{{Key: "service.name", Value: trace.StringValue(service)}}
	if own != nil {
		if _, ok := trace.Find(own.Attrs, "service.name"); ok {
			return own
		}
		attrs = append(attrs, own.Attrs...)
	}
	return p.shared(attrs)
}

// values calls f at each member of the array at hand.
func (p *parser) values(key string, f func()) {
	if p.Null() {
		return
	}
	if p.Peek() != '[' {
		p.WrongType(key, "array")
		return
	}
	for ok := p.Enter('[', ']'); ok; ok = p.Next(']') {
		f()
	}
}

// clickHouseTime reads a stamp: text, or with another output format a number
// of seconds.
func (p *parser) clickHouseTime(key string) trace.Opt[trace.Time] {
	if p.Peek() == '"' {
		b, _ := p.Raw()
		if len(b) > 0 && bytes.IndexByte(b, '-') < 0 {
			return p.nanos(key, b, 9)
		}
		return p.stamp(key, b)
	}
	return p.scaled(key, 9)
}

// clickHouseDuration reads nanoseconds. The column is unsigned: a span that
// ends before it starts has a duration beyond int64.
func (p *parser) clickHouseDuration() (none trace.Opt[trace.Time]) {
	tok := p.Scalar("Duration", "number")
	if len(tok) == 0 {
		return none
	}
	if x, v := scan.ParseInteger(tok); v == scan.Fine && !x.Neg && x.Abs > 1<<63 {
		return trace.Some(trace.Time(x.Abs)) // below zero
	}
	return p.nanos("Duration", tok, 0)
}

// flat reads a map, or an object of type JSON, whose keys with a dot may have
// become objects in objects: {"gen_ai":{"request":{"id":…}}}.
func (p *parser) flat(key string) []trace.Attr {
	return p.flatten(nil, p.attributes(key), 0)
}

// flatten gives the members of objects keys with dots.
func (p *parser) flatten(dst, attrs []trace.Attr, depth int) []trace.Attr {
	for _, a := range attrs {
		t := a.Value.String()
		if a.Value.Kind() != trace.ValueJSON || len(t) == 0 || t[0] != '{' || depth >= maxNesting {
			dst = append(dst, a)
			continue
		}
		inner := parser{Parser: scan.Parser{B: []byte(t), Texts: p.Texts}, d: p.d, c: p.c}
		list := inner.attributes(a.Key)
		for i := range list {
			list[i].Key = a.Key + "." + list[i].Key
		}
		dst = p.flatten(dst, list, depth+1)
	}
	return dst
}
