package records

import (
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// AIPerf is what NVIDIA AIPerf writes of each request
// (profile_export.jsonl, --export-level records), JSON lines. Read off the models
// of AIPerf 0.13.0. Times are the client's wall clock, in integer nanoseconds;
// metrics carry their units.
//
// request_latency ends with the last response, request_end_ns with the exchange.
// Requests of the phase warmup are left out. Of a failed request whose end is its
// start, the length is not known.
var AIPerf = Format{
	Name:     "aiperf",
	Evidence: "JSON lines with metadata (request_start_ns) and metrics (AIPerf's profile_export.jsonl)",
	Yields:   "requests as their client saw them: sent, first token, last response, end; tokens; failures; how late they were sent. Those of the warm-up are left out",
	NotTold:  "the engine's phases",
	Sniff: func(head []byte) bool {
		return sniffPlain(head) && strings.Contains(string(head[:min(len(head), 64<<10)]), `"request_start_ns"`)
	},
	engine: client, clock: trace.ClockUnix, step: 1,
	value: (*parser).aiperf,
}

var sniffPlain = sniff([]string{"metadata", "metrics"}, func(has func(string) bool) bool { return has("metadata") && has("metrics") })

func (p *parser) aiperf() {
	r := p.begin("")
	var f [3]int
	if !p.fields(0, []string{"metadata", "metrics", "error"}, f[:]) || f[0] < 0 {
		return
	}
	names := []string{"x_request_id", "request_start_ns", "request_end_ns", "benchmark_phase", "was_cancelled", "credit_issued_ns", "worker_id", "conversation_id"}
	var m [8]int
	if !p.fields(f[0], names, m[:]) || m[1] == none {
		return
	}
	p.ours()
	if p.text("benchmark_phase", m[3]) == "warmup" {
		p.d.file.warm.add(r.Source.Pos)
		return
	}
	r.ID = p.text("x_request_id", m[0])
	r.Arrival = p.instant("request_start_ns", m[1], nanos)
	r.Completed = p.instant("request_end_ns", m[2], nanos)
	r.Outcome = trace.OK
	if f[2] >= 0 {
		var e [2]int
		p.fields(f[2], []string{"type", "code"}, e[:])
		r.Outcome, r.FinishReason = trace.Error, p.short("type", e[0])
		if code := p.short("code", e[1]); code != "" {
			r.SetAttr("error_code", trace.StringValue(code))
		}
		if strings.Contains(r.FinishReason, "Cancel") {
			r.Outcome = trace.Aborted
		}
		if r.Completed == r.Arrival {
			r.Completed = trace.Instant{}
		}
	} else if p.is(m[4]) {
		r.Outcome = trace.Aborted
	}
	if s := p.short("worker_id", m[6]); s != "" {
		r.SetAttr("worker_id", trace.StringValue(s))
	}
	metrics := []string{"time_to_first_token", "request_latency", "input_sequence_length", "output_sequence_length"}
	var v [4]int
	p.fields(f[1], metrics, v[:])
	r.Reported.TTFT = p.metric(metrics[0], v[0])
	r.Reported.E2E = p.metric(metrics[1], v[1])
	r.Input = p.metricCount(metrics[2], v[2])
	r.Output = p.metricCount(metrics[3], v[3])
	r.FirstToken = plus(r.Arrival, r.Reported.TTFT, trace.Measured)
	if r.FirstToken.Present() {
		r.LastToken = plus(r.Arrival, r.Reported.E2E, trace.Measured)
	}
	if r.Outcome == trace.OK && r.Output.Or(1) == 0 {
		r.Outcome, r.FinishReason, r.FirstToken, r.LastToken = trace.Error, noTokens, trace.Instant{}, trace.Instant{}
	}
	p.meant(r, opt(p.instant("credit_issued_ns", m[5], nanos)))
	p.done(r)
}

func opt(i trace.Instant) trace.Opt[trace.Time] {
	if t, ok := i.Get(); ok {
		return trace.Some(t)
	}
	return trace.Opt[trace.Time]{}
}

// unitNames are the names of units of time, as powers of ten of nanoseconds.
var unitNames = map[string]int{"ns": nanos, "us": micros, "µs": micros, "ms": millis, "s": secs, "sec": secs, "seconds": secs}

// metric reads a duration with its unit.
func (p *parser) metric(key string, at int) (none trace.Opt[time.Duration]) {
	var f [2]int
	if !p.fields(at, []string{"value", "unit"}, f[:]) {
		return none
	}
	unit := p.text("unit", f[1])
	exp, ok := unitNames[unit]
	if !ok {
		p.Notes.Add(trace.BadField, "%s has no unit of time", key)
		return none
	}
	return p.span(key, f[0], exp)
}

func (p *parser) metricCount(key string, at int) trace.Opt[int] {
	var f [1]int
	if p.fields(at, []string{"value"}, f[:]); f[0] < 0 {
		return trace.Opt[int]{}
	}
	return p.count(key, f[0])
}
