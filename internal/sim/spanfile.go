package sim

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// The forms of files of spans that are not OTLP.
const (
	Jaeger            Form = "jaeger"             // the answer of Jaeger's interface, v1
	Zipkin            Form = "zipkin"             // an array of version 2
	PythonConsole     Form = "python-console"     // ConsoleSpanExporter of OpenTelemetry's Python SDK
	JSConsole         Form = "js-console"         // ConsoleSpanExporter of its JavaScript SDK
	GoConsole         Form = "go-console"         // stdouttrace of its Go SDK, indented
	ClickHouse        Form = "clickhouse"         // rows of otel_traces, FORMAT JSONEachRow
	ClickHouseParquet Form = "clickhouse-parquet" // the same, FORMAT Parquet
)

// SpanFiles lists the forms of files of spans that are not OTLP.
func SpanFiles() []Form {
	return []Form{Jaeger, Zipkin, PythonConsole, JSConsole, GoConsole, ClickHouse, ClickHouseParquet}
}

// Step is the clock step in which the form writes times.
func (f Form) Step() time.Duration {
	switch f {
	case Jaeger, Zipkin, PythonConsole, JSConsole:
		return time.Microsecond
	}
	return 1
}

// Untyped reports whether the form writes all attributes as text.
func (f Form) Untyped() bool { return f == Zipkin || f == ClickHouse || f == ClickHouseParquet }

// spanFile returns the pieces that make a file of a form that is not OTLP; nil
// for other forms. Times are cut to the form's step.
func spanFile(form Form, spans []*trace.Span) ([][]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	each := func(one func(*trace.Span) any) error {
		for _, s := range spans {
			if err := enc.Encode(one(s)); err != nil {
				return fmt.Errorf("span %s: %w", s.SpanID, err)
			}
		}
		return nil
	}
	var err error
	switch form {
	case Jaeger:
		err = enc.Encode(jaegerAnswer(spans))
	case Zipkin:
		list := []any{}
		for _, s := range spans {
			list = append(list, zipkinSpan(s))
		}
		err = enc.Encode(list)
	case PythonConsole:
		enc.SetIndent("", "    ")
		err = each(pythonSpan)
	case GoConsole:
		enc.SetIndent("", "\t")
		err = each(goSpan)
	case ClickHouse:
		err = each(clickHouseRow)
	case JSConsole:
		for _, s := range spans {
			inspect(&b, jsSpan(s), "")
			b.WriteByte('\n')
		}
	case ClickHouseParquet:
		data, err := clickHouseParquet(spans)
		return [][]byte{data}, err
	default:
		return nil, nil
	}
	return [][]byte{b.Bytes()}, err
}

// object is a JSON object whose members keep their order.
type object []member

type member struct {
	key   string
	value any
}

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		for k, x := range []any{m.key, m.value} {
			if k == 1 {
				b.WriteByte(':')
			}
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(x); err != nil {
				return nil, err
			}
			b.Truncate(b.Len() - 1)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// unlessEmpty appends a member unless it is empty.
func (o object) unlessEmpty(key, text string) object {
	if text == "" {
		return o
	}
	return append(o, member{key, text})
}

func serviceOf(s *trace.Span) string {
	v, _ := s.ResourceAttr("service.name")
	return v.String()
}

// plain is a value as JSON has it.
func plain(v trace.Value) any {
	switch v.Kind() {
	case trace.ValueInt:
		i, _ := v.Int()
		return i
	case trace.ValueFloat:
		f, _ := v.Float()
		if text := strconv.FormatFloat(f, 'f', -1, 64); !strings.Contains(text, ".") {
			return json.RawMessage(text + ".0") // as Python and others keep the type
		}
		return f
	case trace.ValueBool:
		return v.String() == "true"
	case trace.ValueJSON:
		return json.RawMessage(v.String())
	case trace.ValueNone:
		return nil
	}
	return v.String()
}

func plainAttrs(attrs []trace.Attr) object {
	o := object{}
	for _, a := range attrs {
		o = append(o, member{a.Key, plain(a.Value)})
	}
	return o
}

// textAttrs are attributes of which all values are text.
func textAttrs(attrs []trace.Attr) object {
	o := object{}
	for _, a := range attrs {
		o = append(o, member{a.Key, a.Value.String()})
	}
	return o
}

var kinds = []string{"UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"}

// kindName is the name of a kind, as SDKs know it: they have no unspecified one.
func kindName(k trace.SpanKind) string { return kinds[max(k, trace.KindInternal)] }

var statuses = []string{"UNSET", "OK", "ERROR"}

func us(t trace.Opt[trace.Time]) int64 { return int64(t.Or(0)) / 1000 }

// jaegerID drops the leading zeros of an id's upper half, as Jaeger does.
func jaegerID(id string) string {
	if len(id) == 32 {
		return strings.TrimPrefix(id, "0000000000000000")
	}
	return id
}

func jaegerTag(key string, v trace.Value) object {
	o := object{{"key", key}}
	switch v.Kind() {
	case trace.ValueInt:
		i, _ := v.Int()
		var value any = i
		if i > 1<<53-1 || i < -(1<<53-1) {
			value = strconv.FormatInt(i, 10)
		}
		return append(o, member{"type", "int64"}, member{"value", value})
	case trace.ValueFloat:
		f, _ := v.Float()
		return append(o, member{"type", "float64"}, member{"value", f})
	case trace.ValueBool:
		return append(o, member{"type", "bool"}, member{"value", v.String() == "true"})
	}
	return append(o, member{"type", "string"}, member{"value", v.String()})
}

func jaegerTags(attrs []trace.Attr, skip string) []any {
	list := []any{}
	for _, a := range attrs {
		if a.Key != skip {
			list = append(list, jaegerTag(a.Key, a.Value))
		}
	}
	return list
}

// jaegerAnswer writes spans as /api/traces answers, a trace after the other.
func jaegerAnswer(spans []*trace.Span) object {
	var order []string
	byTrace := map[string][]*trace.Span{}
	for _, s := range spans {
		if byTrace[s.TraceID] == nil {
			order = append(order, s.TraceID)
		}
		byTrace[s.TraceID] = append(byTrace[s.TraceID], s)
	}
	data := []any{}
	for _, id := range order {
		list, processes := []any{}, object{}
		names := map[*trace.Resource]string{}
		for _, s := range byTrace[id] {
			if names[s.Resource] == "" {
				names[s.Resource] = fmt.Sprintf("p%d", len(names)+1)
				p := object{{"serviceName", serviceOf(s)}, {"tags", []any{}}}
				if s.Resource != nil {
					p[1].value = jaegerTags(s.Resource.Attrs, "service.name")
				}
				processes = append(processes, member{names[s.Resource], p})
			}
			refs := []any{}
			if s.ParentID != "" {
				refs = append(refs, object{{"refType", "CHILD_OF"}, {"traceID", jaegerID(id)}, {"spanID", s.ParentID}})
			}
			tags := jaegerTags(s.Attrs, "")
			if s.Scope != "" {
				tags = append(tags, jaegerTag("otel.scope.name", trace.StringValue(s.Scope)))
			}
			if s.Kind != 0 {
				tags = append(tags, jaegerTag("span.kind", trace.StringValue(strings.ToLower(kindName(s.Kind)))))
			}
			if s.Status != trace.StatusUnset {
				tags = append(tags, jaegerTag("otel.status_code", trace.StringValue(statuses[s.Status])))
			}
			if s.Status == trace.StatusError {
				tags = append(tags, jaegerTag("error", trace.BoolValue(true)))
			}
			if s.StatusMessage != "" {
				tags = append(tags, jaegerTag("otel.status_description", trace.StringValue(s.StatusMessage)))
			}
			logs := []any{}
			for _, e := range s.Events {
				fields := append([]any{jaegerTag("event", trace.StringValue(e.Name))}, jaegerTags(e.Attrs, "")...)
				logs = append(logs, object{{"timestamp", us(e.At)}, {"fields", fields}})
			}
			list = append(list, object{
				{"traceID", jaegerID(id)}, {"spanID", s.SpanID}, {"flags", 1}, {"operationName", s.Name}, {"references", refs},
				{"startTime", us(s.Start)}, {"duration", us(s.End) - us(s.Start)}, {"tags", tags}, {"logs", logs},
				{"processID", names[s.Resource]}, {"warnings", nil},
			})
		}
		data = append(data, object{{"traceID", jaegerID(id)}, {"spans", list}, {"processes", processes}, {"warnings", nil}})
	}
	return object{{"data", data}, {"total", 0}, {"limit", 0}, {"offset", 0}, {"errors", nil}}
}

func zipkinSpan(s *trace.Span) any {
	o := object{{"traceId", s.TraceID}}.unlessEmpty("parentId", s.ParentID)
	o = append(o, member{"id", s.SpanID})
	if s.Kind > trace.KindInternal {
		o = append(o, member{"kind", kindName(s.Kind)})
	}
	o = append(o, member{"name", s.Name}, member{"timestamp", us(s.Start)})
	if s.End.Present() {
		o = append(o, member{"duration", max(1, us(s.End)-us(s.Start))})
	}
	tags := object{}
	if s.Resource != nil {
		o = append(o, member{"localEndpoint", object{{"serviceName", serviceOf(s)}}})
		for _, m := range textAttrs(s.Resource.Attrs) {
			if m.key != "service.name" {
				tags = append(tags, m)
			}
		}
	}
	tags = append(tags, textAttrs(s.Attrs)...)
	tags = tags.unlessEmpty("otel.scope.name", s.Scope)
	if s.Status != trace.StatusUnset {
		tags = append(tags, member{"otel.status_code", statuses[s.Status]})
	}
	if s.Status == trace.StatusError {
		tags = append(tags, member{"error", s.StatusMessage})
	}
	var notes []any
	for _, e := range s.Events {
		value := e.Name
		if len(e.Attrs) > 0 {
			text, _ := textAttrs(e.Attrs).MarshalJSON() // text always can
			value += "|" + string(text) + "|0"
		}
		notes = append(notes, object{{"timestamp", us(e.At)}, {"value", value}})
	}
	if notes != nil {
		o = append(o, member{"annotations", notes})
	}
	return append(o, member{"tags", tags})
}

// iso writes an instant with that many digits; null for none.
func iso(t trace.Opt[trace.Time], layout string) any {
	at, ok := t.Get()
	if !ok {
		return nil
	}
	return at.UTC().Format(layout)
}

func pythonSpan(s *trace.Span) any {
	const layout = "2006-01-02T15:04:05.000000Z"
	status := object{{"status_code", statuses[s.Status]}}.unlessEmpty("description", s.StatusMessage)
	events := []any{}
	for _, e := range s.Events {
		events = append(events, object{{"name", e.Name}, {"timestamp", iso(e.At, layout)}, {"attributes", plainAttrs(e.Attrs)}})
	}
	var parent any
	if s.ParentID != "" {
		parent = "0x" + s.ParentID
	}
	res := object{}
	if s.Resource != nil {
		res = plainAttrs(s.Resource.Attrs)
	}
	return object{
		{"name", s.Name}, {"context", object{{"trace_id", "0x" + s.TraceID}, {"span_id", "0x" + s.SpanID}, {"trace_state", "[]"}}},
		{"kind", "SpanKind." + kindName(s.Kind)}, {"parent_id", parent}, {"start_time", iso(s.Start, layout)}, {"end_time", iso(s.End, layout)},
		{"status", status}, {"attributes", plainAttrs(s.Attrs)}, {"events", events}, {"links", []any{}},
		{"resource", object{{"attributes", res}, {"schema_url", ""}}},
	}
}

// jsSpan has the members that the exporter shows; kinds count from 0 there.
func jsSpan(s *trace.Span) object {
	var parent any
	if s.ParentID != "" {
		parent = object{{"traceId", s.TraceID}, {"spanId", s.ParentID}, {"traceFlags", 1}, {"traceState", nil}}
	}
	res := object{}
	if s.Resource != nil {
		res = plainAttrs(s.Resource.Attrs)
	}
	status := object{{"code", int(s.Status)}}.unlessEmpty("message", s.StatusMessage)
	events := []any{}
	for _, e := range s.Events {
		at := int64(e.At.Or(0))
		events = append(events, object{
			{"name", e.Name}, {"attributes", plainAttrs(e.Attrs)}, {"time", []any{at / 1e9, at % 1e9}}, {"droppedAttributesCount", 0},
		})
	}
	return object{
		{"resource", object{{"attributes", res}}}, {"instrumentationScope", object{{"name", s.Scope}, {"version", nil}, {"schemaUrl", nil}}},
		{"traceId", s.TraceID}, {"parentSpanContext", parent}, {"traceState", nil}, {"name", s.Name}, {"id", s.SpanID},
		{"kind", int(max(s.Kind, trace.KindInternal)) - 1}, {"timestamp", us(s.Start)},
		{"duration", json.Number(strconv.FormatFloat(float64(s.End.Or(0)-s.Start.Or(0))/1e3, 'f', -1, 64))},
		{"attributes", plainAttrs(s.Attrs)}, {"status", status}, {"events", events}, {"links", []any{}},
	}
}

// inspect writes a value as Node.js shows it.
func inspect(b *bytes.Buffer, v any, indent string) {
	switch v := v.(type) {
	case object:
		if len(v) == 0 {
			b.WriteString("{}")
			return
		}
		b.WriteString("{\n")
		for i, m := range v {
			key := m.key
			if strings.ContainsAny(key, ".-/ ") {
				key = "'" + key + "'"
			}
			fmt.Fprintf(b, "%s  %s: ", indent, key)
			inspect(b, m.value, indent+"  ")
			if i < len(v)-1 {
				b.WriteByte(',')
			}
			b.WriteByte('\n')
		}
		b.WriteString(indent + "}")
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteByte(' ')
			inspect(b, x, indent+"  ")
		}
		b.WriteString(" ]")
	case string:
		quote := "'"
		if strings.Contains(v, "'") {
			quote = `"`
		}
		b.WriteString(quote + strings.NewReplacer(`\`, `\\`, "\n", `\n`, quote, `\`+quote).Replace(v) + quote)
	case json.RawMessage:
		b.Write(v)
	case nil:
		b.WriteString("undefined")
	default:
		fmt.Fprint(b, v)
	}
}

func goAttrs(attrs []trace.Attr) any {
	if len(attrs) == 0 {
		return nil
	}
	var list []any
	for _, a := range attrs {
		typ := "STRING"
		switch a.Value.Kind() {
		case trace.ValueInt:
			typ = "INT64"
		case trace.ValueFloat:
			typ = "FLOAT64"
		case trace.ValueBool:
			typ = "BOOL"
		case trace.ValueJSON:
			typ = "STRINGSLICE"
		}
		value := plain(a.Value)
		if f, ok := a.Value.Float(); ok {
			value = f
		}
		list = append(list, object{{"Key", a.Key}, {"Value", object{{"Type", typ}, {"Value", value}}}})
	}
	return list
}

func goContext(traceID, spanID string) object {
	if spanID == "" {
		traceID, spanID = hex.EncodeToString(make([]byte, 16)), hex.EncodeToString(make([]byte, 8))
	}
	return object{{"TraceID", traceID}, {"SpanID", spanID}, {"TraceFlags", "01"}, {"TraceState", ""}, {"Remote", false}}
}

func goSpan(s *trace.Span) any {
	stamp := func(t trace.Opt[trace.Time]) any {
		if at, ok := t.Get(); ok {
			return at.UTC().Format(time.RFC3339Nano)
		}
		return time.Time{}
	}
	var events any
	if len(s.Events) > 0 {
		var list []any
		for _, e := range s.Events {
			list = append(list, object{{"Name", e.Name}, {"Attributes", goAttrs(e.Attrs)}, {"DroppedAttributeCount", 0}, {"Time", stamp(e.At)}})
		}
		events = list
	}
	var res any
	if s.Resource != nil {
		res = goAttrs(s.Resource.Attrs)
	}
	scope := object{{"Name", s.Scope}, {"Version", ""}, {"SchemaURL", ""}, {"Attributes", nil}}
	return object{
		{"Name", s.Name}, {"SpanContext", goContext(s.TraceID, s.SpanID)}, {"Parent", goContext(s.TraceID, s.ParentID)},
		{"SpanKind", max(s.Kind, trace.KindInternal)}, {"StartTime", stamp(s.Start)}, {"EndTime", stamp(s.End)},
		{"Attributes", goAttrs(s.Attrs)}, {"Events", events}, {"Links", nil},
		{"Status", object{{"Code", []string{"Unset", "Ok", "Error"}[s.Status]}, {"Description", s.StatusMessage}}},
		{"DroppedAttributes", 0}, {"DroppedEvents", 0}, {"DroppedLinks", 0}, {"ChildSpanCount", 0}, {"Resource", res},
		{"InstrumentationScope", scope}, {"InstrumentationLibrary", scope},
	}
}

func clickHouseRow(s *trace.Span) any {
	const layout = "2006-01-02 15:04:05.000000000"
	times, names, attrs := []any{}, []any{}, []any{}
	for _, e := range s.Events {
		times, names, attrs = append(times, iso(e.At, layout)), append(names, e.Name), append(attrs, textAttrs(e.Attrs))
	}
	res := object{}
	if s.Resource != nil {
		res = textAttrs(s.Resource.Attrs)
	}
	return object{
		{"Timestamp", iso(s.Start, layout)}, {"TraceId", s.TraceID}, {"SpanId", s.SpanID}, {"ParentSpanId", s.ParentID}, {"TraceState", ""},
		{"SpanName", s.Name}, {"SpanKind", []string{"Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"}[s.Kind]},
		{"ServiceName", serviceOf(s)}, {"ResourceAttributes", res}, {"ScopeName", s.Scope}, {"ScopeVersion", ""},
		{"SpanAttributes", textAttrs(s.Attrs)}, {"Duration", strconv.FormatUint(uint64(s.End.Or(0)-s.Start.Or(0)), 10)},
		{"StatusCode", []string{"Unset", "Ok", "Error"}[s.Status]}, {"StatusMessage", s.StatusMessage},
		{"Events.Timestamp", times}, {"Events.Name", names}, {"Events.Attributes", attrs},
		{"Links.TraceId", []any{}}, {"Links.SpanId", []any{}}, {"Links.TraceState", []any{}}, {"Links.Attributes", []any{}},
	}
}
