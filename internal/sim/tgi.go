package sim

import (
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// TGI writes requests as text-generation-inference's router does: a span of the
// route with durations as text. Requests that did not go well have the span
// alone.
func TGI(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range rs {
		s := &trace.Span{
			TraceID: r.TraceID, SpanID: r.SpanID, Name: "chat_completions", Kind: trace.KindInternal, Scope: "opentelemetry-otlp",
			Resource: res.of("text-generation-inference.router", r.Replica, nil), Start: when(r.Arrival), End: when(r.Completed),
			Attrs: []trace.Attr{text("seed", "None")},
		}
		if n := r.Output.Or(0); r.Outcome == trace.OK && n > 0 {
			work := r.LastToken.At.Sub(r.Scheduled.At)
			s.Attrs = append(s.Attrs,
				text("total_time", rust(r.Completed.At.Sub(r.Arrival.At))), text("validation_time", rust(r.Queued.At.Sub(r.Arrival.At))),
				text("queue_time", rust(r.Scheduled.At.Sub(r.Queued.At))), text("inference_time", rust(work)), text("time_per_token", rust(work/time.Duration(n))))
		}
		spans = append(spans, s)
	}
	return spans
}

// rust prints a duration as Rust's debug format does: 2.5s, 431.2ms, 7µs, 0ns.
func rust(d time.Duration) string {
	for _, u := range []struct {
		name string
		unit time.Duration
	}{{"s", time.Second}, {"ms", time.Millisecond}, {"µs", time.Microsecond}} {
		if d < u.unit {
			continue
		}
		whole, rest := d/u.unit, d%u.unit
		out := strconv.FormatInt(int64(whole), 10)
		if rest > 0 {
			digits := strconv.FormatInt(int64(u.unit+rest), 10)[1:]
			out += "." + strings.TrimRight(digits, "0")
		}
		return out + u.name
	}
	return strconv.FormatInt(int64(d), 10) + "ns"
}

// VisibleTGI returns what [TGI] lets be known: arrival, queueing, prefill and
// decode as one amount, completion; of the others the length, and that they
// failed.
func VisibleTGI(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		out := v.Output
		v.Intervals = nil
		if v.Outcome == trace.OK && out.Or(0) > 0 {
			v.Intervals = []trace.Interval{
				{Phase: trace.Arrival, Basis: trace.Derived, Start: v.Arrival.At, End: v.Queued.At},
				{Phase: trace.Queueing, Basis: trace.Derived, Start: v.Queued.At, End: v.Scheduled.At},
				{Phase: trace.Prefill | trace.Decode, Basis: trace.Derived, Start: v.Scheduled.At, End: v.LastToken.At},
				{Phase: trace.Completion, Basis: trace.Derived, Start: v.LastToken.At, End: v.Completed.At},
			}
		} else {
			out, v.Outcome = trace.Opt[int]{}, trace.Error
		}
		v.ID, v.Model, v.FinishReason, v.Service = "", "", "", "text-generation-inference.router"
		v.Queued, v.Scheduled, v.LastToken = trace.Instant{}, trace.Instant{}, trace.Instant{}
		onlyTimes(v)
		v.Output = out
		return true
	})
}
