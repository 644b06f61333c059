package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/traceview/traceview/trace"
)

// The functions that follow return spoilt copies; what they are given stays as
// it was. A span is named by its index.

func spoil(spans []*trace.Span, i int, f func(*trace.Span)) []*trace.Span {
	out := slices.Clone(spans)
	s := *out[i]
	s.Attrs = slices.Clone(s.Attrs)
	f(&s)
	out[i] = &s
	return out
}

// Skew moves all spans of a service by d, as a clock that is off does.
func Skew(spans []*trace.Span, service string, d time.Duration) []*trace.Span {
	out := slices.Clone(spans)
	for i, s := range out {
		if name, _ := s.ResourceAttr("service.name"); name.String() == service {
			out = spoil(out, i, func(s *trace.Span) { s.Start, s.End = shift(s.Start, d), shift(s.End, d) })
		}
	}
	return out
}

func shift(o trace.Opt[trace.Time], d time.Duration) trace.Opt[trace.Time] {
	if t, ok := o.Get(); ok {
		return trace.Some(t.Add(d))
	}
	return o
}

// Noise moves every request as a whole, by an exponential delay of its own with
// that mean, as clocks and queues on the way to the writer do. No duration
// changes.
func Noise(rs []*trace.Request, seed uint64, mean time.Duration) []*trace.Request {
	rnd := rand.New(rand.NewPCG(seed, 0))
	out := make([]*trace.Request, len(rs))
	for i, r := range rs {
		v, d := *r, time.Duration(rnd.ExpFloat64()*float64(mean))
		for _, at := range []*trace.Instant{&v.Arrival, &v.Queued, &v.Scheduled, &v.FirstToken, &v.LastToken, &v.Completed} {
			if at.Present() {
				at.At = at.At.Add(d)
			}
		}
		v.Intervals = slices.Clone(r.Intervals)
		for k := range v.Intervals {
			v.Intervals[k].Start, v.Intervals[k].End = v.Intervals[k].Start.Add(d), v.Intervals[k].End.Add(d)
		}
		out[i] = &v
	}
	return out
}

// DropAttr removes an attribute.
func DropAttr(spans []*trace.Span, i int, key string) []*trace.Span {
	return spoil(spans, i, func(s *trace.Span) {
		s.Attrs = slices.DeleteFunc(s.Attrs, func(a trace.Attr) bool { return a.Key == key })
	})
}

// RenameAttr gives an attribute another name.
func RenameAttr(spans []*trace.Span, i int, from, to string) []*trace.Span {
	return spoil(spans, i, func(s *trace.Span) {
		for k := range s.Attrs {
			if s.Attrs[k].Key == from {
				s.Attrs[k].Key = to
			}
		}
	})
}

// SetAttr sets an attribute.
func SetAttr(spans []*trace.Span, i int, key string, v trace.Value) []*trace.Span {
	return spoil(spans, i, func(s *trace.Span) {
		for k := range s.Attrs {
			if s.Attrs[k].Key == key {
				s.Attrs[k].Value = v
				return
			}
		}
		s.Attrs = append(s.Attrs, trace.Attr{Key: key, Value: v})
	})
}

// Milliseconds writes the attribute as if its unit were milliseconds: times
// 1000.
func Milliseconds(spans []*trace.Span, i int, key string) []*trace.Span {
	v, _ := spans[i].Attr(key)
	f, _ := v.Float()
	return SetAttr(spans, i, key, trace.FloatValue(f*1000))
}

// AsText writes a number as text.
func AsText(spans []*trace.Span, i int, key string) []*trace.Span {
	v, _ := spans[i].Attr(key)
	return SetAttr(spans, i, key, trace.StringValue(v.String()))
}

// Duplicate exports a span a second time, at the end.
func Duplicate(spans []*trace.Span, i int) []*trace.Span {
	return append(slices.Clone(spans), spans[i])
}

// Conflict exports a span a second time, at the end, with another end.
func Conflict(spans []*trace.Span, i int) []*trace.Span {
	out := Duplicate(spans, i)
	return spoil(out, len(out)-1, func(s *trace.Span) { s.End = shift(s.End, time.Millisecond) })
}

// Parent makes a span the child of another id: of one that nobody has, of its
// own, of its child's.
func Parent(spans []*trace.Span, i int, id string) []*trace.Span {
	return spoil(spans, i, func(s *trace.Span) { s.ParentID = id })
}

// Shuffle puts the spans into another order.
func Shuffle(spans []*trace.Span, seed uint64) []*trace.Span {
	out := slices.Clone(spans)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// SetTimes sets start and end. Absent ones are written as none.
func SetTimes(spans []*trace.Span, i int, start, end trace.Opt[trace.Time]) []*trace.Span {
	return spoil(spans, i, func(s *trace.Span) { s.Start, s.End = start, end })
}

// StripIDs removes a span's ids.
func StripIDs(spans []*trace.Span, i int) []*trace.Span {
	return spoil(spans, i, func(s *trace.Span) { s.TraceID, s.SpanID, s.ParentID = "", "", "" })
}

// Cut keeps the first n bytes.
func Cut(data []byte, n int) []byte { return data[:min(n, len(data))] }

// Undecodable puts a number in the place of the k-th span of the first line of
// OTLP/JSON lines.
func Undecodable(data []byte, k int) ([]byte, error) {
	line, rest, _ := bytes.Cut(data, []byte("\n"))
	var doc struct {
		ResourceSpans []struct {
			Resource   json.RawMessage `json:"resource"`
			ScopeSpans []struct {
				Scope json.RawMessage   `json:"scope"`
				Spans []json.RawMessage `json:"spans"`
			} `json:"scopeSpans"`
		} `json:"resourceSpans"`
	}
	if err := json.Unmarshal(line, &doc); err != nil {
		return nil, err
	}
	for _, rs := range doc.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			if k < len(ss.Spans) {
				ss.Spans[k] = json.RawMessage("7")
				out, err := json.Marshal(doc)
				return slices.Concat(out, []byte("\n"), rest), err
			}
			k -= len(ss.Spans)
		}
	}
	return nil, fmt.Errorf("the first line has %d spans too few", k+1)
}

// A Defect spoils the trace of a run in one way.
type Defect struct {
	Name string
	// Make returns the spoilt file.
	Make func(*Run) ([]byte, error)
	// Codes are the issues that a reader must raise, each once or more, and no
	// others.
	Codes []trace.Code
	// Lost is the number of requests that the file no longer tells of.
	Lost int
	// Whole says that the phases of all requests left are what they were.
	Whole bool
}

// Defects lists defects to be made to order. A run needs at least four served
// requests, and time in the front end.
func Defects() []Defect {
	const latency = "gen_ai.latency."
	v1 := func(f func([]*trace.Span) []*trace.Span) func(*Run) ([]byte, error) {
		return func(r *Run) ([]byte, error) {
			var b bytes.Buffer
			err := Encode(&b, f(V1(r.Requests, VLLM{})), Encoding{Form: Lines, Batch: 16})
			return b.Bytes(), err
		}
	}
	proto := func(f func([]*trace.Span) []*trace.Span) func(*Run) ([]byte, error) {
		return func(r *Run) ([]byte, error) {
			var b bytes.Buffer
			err := Encode(&b, f(V1(r.Requests, VLLM{})), Encoding{Form: Prefixed, Batch: 16})
			return b.Bytes(), err
		}
	}
	attr := func(key string, v trace.Value) func(*Run) ([]byte, error) {
		return v1(func(s []*trace.Span) []*trace.Span { return SetAttr(s, 1, latency+key, v) })
	}
	none := trace.Opt[trace.Time]{}
	return []Defect{
		{"nothing", v1(func(s []*trace.Span) []*trace.Span { return s }), nil, 0, true},
		{"shuffled", v1(func(s []*trace.Span) []*trace.Span { return Shuffle(s, 1) }), nil, 0, true},
		{"prefill missing", v1(func(s []*trace.Span) []*trace.Span { return DropAttr(s, 1, latency+"time_in_model_prefill") }), nil, 0, true},
		{"queue missing", v1(func(s []*trace.Span) []*trace.Span { return DropAttr(s, 1, latency+"time_in_queue") }), nil, 0, false},
		{"queue renamed", v1(func(s []*trace.Span) []*trace.Span {
			return RenameAttr(s, 1, latency+"time_in_queue", "queue_seconds")
		}), nil, 0, false},
		{"decode in milliseconds", v1(func(s []*trace.Span) []*trace.Span { return Milliseconds(s, 1, latency+"time_in_model_decode") }), []trace.Code{trace.PhaseTooLong}, 0, true},
		{"decode not a number", attr("time_in_model_decode", trace.FloatValue(math.NaN())), []trace.Code{trace.BadNumber}, 0, true},
		{"decode as text", v1(func(s []*trace.Span) []*trace.Span { return AsText(s, 1, latency+"time_in_model_decode") }), []trace.Code{trace.NumberAsText}, 0, true},
		{"queue below zero", attr("time_in_queue", trace.FloatValue(-27536.5)), []trace.Code{trace.NegativeDuration}, 0, false},
		{"prefill as long as the host is up", attr("time_in_model_prefill", trace.FloatValue(4012345.67)), []trace.Code{trace.PhaseTooLong}, 0, true},
		{"clock of the gateway off", func(r *Run) ([]byte, error) {
			var b bytes.Buffer
			err := Encode(&b, Skew(Gateway(served(r.Requests)), "gateway", -time.Hour), Encoding{})
			return b.Bytes(), err
		}, []trace.Code{trace.ClockSkew}, 0, false},
		{"cut", func(r *Run) ([]byte, error) {
			var b bytes.Buffer
			spans := V1(r.Requests, VLLM{})
			last := len(spans) - 1
			if err := Encode(&b, spans[:last], Encoding{}); err != nil {
				return nil, err
			}
			whole := b.Len()
			err := Encode(&b, spans[last:], Encoding{})
			return Cut(b.Bytes(), whole+(b.Len()-whole)/2), err
		}, []trace.Code{trace.Truncated}, 1, true},
		{"exported twice", v1(func(s []*trace.Span) []*trace.Span { return Duplicate(s, 1) }), []trace.Code{trace.DuplicateSpan}, 0, true},
		{"exported twice, not the same", v1(func(s []*trace.Span) []*trace.Span { return Conflict(s, 1) }), []trace.Code{trace.ConflictingSpan}, 0, true},
		{"orphan", v1(func(s []*trace.Span) []*trace.Span { return Parent(s, 1, "00f1e2d3c4b5a697") }), []trace.Code{trace.MissingParent}, 0, true},
		{"its own parent", v1(func(s []*trace.Span) []*trace.Span { return Parent(s, 1, s[1].SpanID) }), []trace.Code{trace.SelfParent}, 0, true},
		{"parents of each other", func(r *Run) ([]byte, error) {
			var b bytes.Buffer
			s := Gateway(served(r.Requests)) // an engine's span, then the gateway's around it
			err := Encode(&b, Parent(s, 1, s[0].SpanID), Encoding{})
			return b.Bytes(), err
		}, []trace.Code{trace.ParentCycle}, 0, false},
		{"end before start", v1(func(s []*trace.Span) []*trace.Span { return SetTimes(s, 1, s[1].End, s[1].Start) }), []trace.Code{trace.EndBeforeStart}, 0, false},
		{"no end", v1(func(s []*trace.Span) []*trace.Span { return SetTimes(s, 1, s[1].Start, none) }), []trace.Code{trace.MissingEnd}, 0, false},
		{"no start", v1(func(s []*trace.Span) []*trace.Span { return SetTimes(s, 1, none, s[1].End) }), []trace.Code{trace.MissingStart}, 0, false},
		{"end beyond int64", v1(func(s []*trace.Span) []*trace.Span { return SetTimes(s, 1, s[1].Start, trace.Some(trace.Time(-1))) }), []trace.Code{trace.TimeOutOfRange, trace.MissingEnd}, 0, false},
		{"text not UTF-8", proto(func(s []*trace.Span) []*trace.Span { return SetAttr(s, 1, "note", trace.StringValue("a\xffb")) }), []trace.Code{trace.InvalidUTF8}, 0, true},
		{"no ids", v1(func(s []*trace.Span) []*trace.Span { return StripIDs(s, 1) }), []trace.Code{trace.MissingIDs}, 0, true},
		{"a span that is none", func(r *Run) ([]byte, error) {
			data, err := v1(func(s []*trace.Span) []*trace.Span { return s })(r)
			if err != nil {
				return nil, err
			}
			return Undecodable(data, 1)
		}, []trace.Code{trace.BadSpan}, 1, true},
	}
}
