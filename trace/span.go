package trace

import (
	"math"
	"strconv"
	"time"
)

// ValueKind is the type of a [Value].
type ValueKind uint8

const (
	ValueNone ValueKind = iota // present without a value
	ValueString
	ValueInt
	ValueFloat
	ValueBool
	ValueJSON // an array, map or bytes, kept as JSON text
)

// Value is an attribute's value. It is comparable.
type Value struct {
	kind ValueKind
	num  uint64
	str  string
}

// StringValue returns a string.
func StringValue(s string) Value { return Value{kind: ValueString, str: s} }

// IntValue returns an integer.
func IntValue(i int64) Value { return Value{kind: ValueInt, num: uint64(i)} }

// FloatValue returns a float.
func FloatValue(f float64) Value { return Value{kind: ValueFloat, num: math.Float64bits(f)} }

// JSONValue returns an array, map or bytes, given as JSON text.
func JSONValue(text string) Value { return Value{kind: ValueJSON, str: text} }

// BoolValue returns a boolean.
func BoolValue(b bool) (v Value) {
	v.kind = ValueBool
	if b {
		v.num = 1
	}
	return v
}

// Kind returns the type of v.
func (v Value) Kind() ValueKind { return v.kind }

// Int returns the value of an int; it does not convert.
func (v Value) Int() (int64, bool) { return int64(v.num), v.kind == ValueInt }

// Float returns the value of a float; it does not convert.
func (v Value) Float() (float64, bool) {
	return math.Float64frombits(v.num), v.kind == ValueFloat
}

// Text returns the value of a string; it does not convert.
func (v Value) Text() (string, bool) { return v.str, v.kind == ValueString }

// String formats any value as text: what tables, labels and filters show.
func (v Value) String() string {
	switch v.kind {
	case ValueString, ValueJSON:
		return v.str
	case ValueInt:
		return strconv.FormatInt(int64(v.num), 10)
	case ValueFloat:
		return strconv.FormatFloat(math.Float64frombits(v.num), 'g', -1, 64)
	case ValueBool:
		return strconv.FormatBool(v.num != 0)
	}
	return ""
}

// Attr is a named value of a resource, span, event or request.
type Attr struct {
	Key   string
	Value Value
}

// Find returns the value of the first attribute of that key.
func Find(attrs []Attr, key string) (Value, bool) {
	for i := range attrs {
		if attrs[i].Key == key {
			return attrs[i].Value, true
		}
	}
	return Value{}, false
}

// Resource is what emitted spans: a process, a pod. It is shared between the
// spans of one batch and is not changed once they are made.
type Resource struct {
	Attrs []Attr // in the source's order
}

// SpanKind is OpenTelemetry's kind of a span, with its numbers.
type SpanKind uint8

const (
	KindUnspecified SpanKind = iota
	KindInternal
	KindServer
	KindClient
	KindProducer
	KindConsumer
)

// StatusCode is OpenTelemetry's status of a span, with its numbers.
type StatusCode uint8

const (
	StatusUnset StatusCode = iota
	StatusOK
	StatusError
)

// Event is a point on a span.
type Event struct {
	At    Opt[Time]
	Name  string
	Attrs []Attr
}

// Span is one OpenTelemetry span, whatever container it came in. Times are
// Unix nanoseconds; a time of zero or outside int64 is absent. A span with End
// before Start is kept as the source wrote it.
type Span struct {
	TraceID, SpanID, ParentID string // lower-case hexadecimal, empty: absent
	Name                      string
	Kind                      SpanKind
	Scope                     string    // the instrumentation scope's name
	Resource                  *Resource // nil: none
	Start, End                Opt[Time]
	Status                    StatusCode
	StatusMessage             string
	Attrs                     []Attr // in the source's order; the last of equal keys counts
	Events                    []Event
	Format                    string // as in Source
	// Step is the clock step in which the container writes times; 0: 1 ns.
	Step time.Duration
	// Untyped says that the container writes all values as text: that a number
	// is text is nothing odd then.
	Untyped bool
	Pos     Pos
	Issues  []Issue // what the decoder had to leave out or mend
}

// Attr returns the span's attribute of that key, the last where it repeats.
func (s *Span) Attr(key string) (Value, bool) {
	for i := len(s.Attrs) - 1; i >= 0; i-- {
		if s.Attrs[i].Key == key {
			return s.Attrs[i].Value, true
		}
	}
	return Value{}, false
}

// ResourceAttr returns the attribute of that key of the span's resource.
func (s *Span) ResourceAttr(key string) (Value, bool) {
	if s.Resource == nil {
		return Value{}, false
	}
	return Find(s.Resource.Attrs, key)
}
