package sim

import (
	"bytes"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/traceview/traceview/trace"
)

// clickHouseParquet writes spans as ClickHouse gives rows of otel_traces FORMAT
// Parquet.
func clickHouseParquet(spans []*trace.Span) ([]byte, error) {
	text := parquet.String
	stamp := parquet.Timestamp(parquet.Nanosecond)
	schema := parquet.NewSchema("schema", parquet.Group{
		"Timestamp": stamp, "TraceId": text(), "SpanId": text(), "ParentSpanId": text(), "TraceState": text(), "SpanName": text(),
		"SpanKind": parquet.Encoded(text(), &parquet.RLEDictionary), "ServiceName": parquet.Encoded(text(), &parquet.RLEDictionary),
		"ResourceAttributes": parquet.Map(text(), text()), "ScopeName": text(), "ScopeVersion": text(),
		"SpanAttributes": parquet.Map(text(), text()), "Duration": parquet.Uint(64), "StatusCode": text(), "StatusMessage": text(),
		"Events.Timestamp": parquet.List(stamp), "Events.Name": parquet.List(text()), "Events.Attributes": parquet.List(parquet.Map(text(), text())),
	})
	var b bytes.Buffer
	w := parquet.NewWriter(&b, schema, parquet.Compression(&parquet.Zstd), parquet.CreatedBy("traceview", "sim", ""))
	for _, s := range spans {
		if _, err := w.WriteRows([]parquet.Row{clickHouseCells(schema, s)}); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

// clickHouseCells makes a row, cell by cell, in the order of the columns.
func clickHouseCells(schema *parquet.Schema, s *trace.Span) parquet.Row {
	type cell struct {
		v        parquet.Value
		repeated bool // not the first of its list
	}
	str := func(s string) parquet.Value { return parquet.ByteArrayValue([]byte(s)) }
	at := func(t trace.Opt[trace.Time]) parquet.Value { return parquet.Int64Value(int64(t.Or(0))) }
	values := map[string][]cell{}
	one := func(name string, v parquet.Value) {
		values[name] = append(values[name], cell{v, len(values[name]) > 0})
	}
	pairs := func(name string, attrs []trace.Attr) {
		for _, a := range attrs {
			one(name+".key", str(a.Key))
			one(name+".value", str(a.Value.String()))
		}
	}
	one("Timestamp", at(s.Start))
	one("TraceId", str(s.TraceID))
	one("SpanId", str(s.SpanID))
	one("ParentSpanId", str(s.ParentID))
	one("TraceState", str(""))
	one("SpanName", str(s.Name))
	one("SpanKind", str([]string{"Unspecified", "Internal", "Server", "Client", "Producer", "Consumer"}[s.Kind]))
	one("ServiceName", str(serviceOf(s)))
	one("ScopeName", str(s.Scope))
	one("ScopeVersion", str(""))
	one("Duration", parquet.Int64Value(int64(s.End.Or(0)-s.Start.Or(0))))
	one("StatusCode", str([]string{"Unset", "Ok", "Error"}[s.Status]))
	one("StatusMessage", str(s.StatusMessage))
	if s.Resource != nil {
		pairs("ResourceAttributes", s.Resource.Attrs)
	}
	pairs("SpanAttributes", s.Attrs)
	for _, e := range s.Events {
		one("Events.Timestamp", at(e.At))
		one("Events.Name", str(e.Name))
	}
	var row parquet.Row
	for i, path := range schema.Columns() {
		leaf, _ := schema.Lookup(path...)
		name := path[0]
		if last := path[len(path)-1]; slices.Contains([]string{"key", "value"}, last) {
			name += "." + last
		}
		for _, c := range values[name] {
			rep := 0
			if c.repeated {
				rep = leaf.MaxRepetitionLevel
			}
			row = append(row, c.v.Level(rep, leaf.MaxDefinitionLevel, i))
		}
		if len(values[name]) == 0 { // an empty list; of the attributes of events, none is written
			row = append(row, parquet.NullValue().Level(0, 0, i))
		}
	}
	return row
}
