package records

import (
	"fmt"
	"strings"

	"github.com/traceview/traceview/trace"
)

// InferencePerf is what inference-perf writes of each request
// (per_request_lifecycle_metrics.json, report.request_lifecycle.per_request), an
// array. Read off the source of 2025 and 2026: float seconds of the client's
// monotonic clock.
//
//	start_time, end_time     the exchange; a failed one's end is when it failed
//	info.output_token_times  an instant a token (info.response_metrics since 2026)
//
// The texts in request and response are not kept.
var InferencePerf = Format{
	Name:     "inference-perf",
	Evidence: "JSON with start_time, end_time, request, info and error (inference-perf's per_request_lifecycle_metrics.json)",
	Yields:   "requests as their client saw them: sent, first and last token, end; tokens; failures; lora_adapter as an attribute",
	NotTold:  "the engine's phases, the calendar, ids and the model; how late requests were sent",
	Sniff: sniff(inferencePerfNames, func(has func(string) bool) bool {
		return has("start_time") && has("end_time") && has("request") && (has("info") || has("response"))
	}),
	engine: client, clock: trace.ClockMonotonic, step: 1,
	value: (*parser).inferencePerf,
}

var inferencePerfNames = []string{"start_time", "end_time", "info", "error", "request", "response"}

func (p *parser) inferencePerf() {
	r := p.begin("")
	var f [6]int
	if !p.fields(0, inferencePerfNames, f[:]) || f[0] == none || f[1] == none || f[4] == none {
		return
	}
	p.ours()
	r.Arrival, r.Completed = p.instant("start_time", f[0], secs), p.instant("end_time", f[1], secs)
	r.Outcome = trace.OK
	var i [5]int
	if f[2] >= 0 {
		p.fields(f[2], []string{"input_tokens", "output_tokens", "output_token_times", "lora_adapter", "response_metrics"}, i[:])
		r.Input = p.count("input_tokens", i[0])
		at := i[1:3]
		if i[4] >= 0 {
			at = make([]int, 2)
			p.fields(i[4], []string{"output_tokens", "output_token_times"}, at)
		}
		r.Output = p.count("output_tokens", at[0])
		if l := p.list("output_token_times", at[1]); l != nil {
			for n, v := 0, p.next(l); v >= 0; n, v = n+1, p.next(l) {
				if r.LastToken = p.instant("output_token_times", v, secs); n == 0 {
					r.FirstToken = r.LastToken
				}
			}
		}
		if s := p.short("lora_adapter", i[3]); s != "" {
			r.SetAttr("lora_adapter", trace.StringValue(s))
		}
	}
	switch {
	case f[3] >= 0:
		var e [1]int
		p.fields(f[3], []string{"error_type"}, e[:])
		r.Outcome, r.FinishReason = trace.Error, p.short("error_type", e[0])
		if r.Output.Or(0) == 0 { // it is 0 where nothing was counted
			r.Output = trace.Opt[int]{}
		}
	case r.Output.Present() && r.Output.Or(0) == 0:
		r.Outcome, r.FinishReason = trace.Error, noTokens
	}
	p.done(r)
}

// GuideLLM is the report of guidellm (benchmarks.json), one JSON document of one
// benchmark or several, such as one a rate. Read off the schemas of guidellm 0.3
// to 0.6: float seconds since 1970 of the client.
//
//	info.timings.targeted_start         when it was meant to be sent
//	info.timings.request_start          sent (start_time in 0.3)
//	info.timings.first_token_iteration  first token (first_token_time)
//	info.timings.last_token_iteration   last token (last_token_time)
//	info.timings.request_end            end (end_time)
//
// Its queue is the client's own and none of an engine's. Of requests that it cut
// off at the end of a benchmark (incomplete), the end is not known. Its
// time_per_output_token_ms counts the first token too: ours is of the instants.
var GuideLLM = Format{
	Name:     "guidellm",
	Evidence: "JSON with benchmarks whose type_ begins with generative_ (guidellm's benchmarks.json)",
	Yields:   "requests as their client saw them: sent, first and last token, end; tokens; failures, and those cut off; how late they were sent; the benchmark's number as attribute run",
	NotTold:  "the engine's phases, and the model; what request sampling (--sample-requests) left out",
	Sniff: func(head []byte) bool {
		return guideShape(head) && strings.Contains(string(head), `"generative_`)
	},
	engine: client, clock: trace.ClockUnix, step: trace.Rounding,
	value: (*parser).guide,
}

var guideShape = sniff([]string{"benchmarks"}, func(has func(string) bool) bool { return has("benchmarks") })

func (p *parser) guide() {
	var f [1]int
	if !p.fields(0, []string{"benchmarks"}, f[:]) && p.Wrong == "" || f[0] < 0 {
		return
	}
	p.ours()
	runs := p.list("benchmarks", f[0])
	if runs == nil || p.Wrong != "" {
		return
	}
	for n, at := 0, p.next(runs); at >= 0; n, at = n+1, p.next(runs) {
		var b [1]int
		p.fields(at, []string{"requests"}, b[:])
		kinds := []string{"successful", "errored", "incomplete"}
		var k [3]int
		p.fields(b[0], kinds, k[:])
		for i, outcome := range []trace.Outcome{trace.OK, trace.Error, trace.Incomplete} {
			l := p.list(kinds[i], k[i])
			if l == nil {
				continue
			}
			for row, at := 0, p.next(l); at >= 0 && p.Err == nil; row, at = row+1, p.next(l) {
				r := p.begin(fmt.Sprintf("benchmarks[%d].requests.%s[%d]", n, kinds[i], row))
				r.Outcome = outcome
				r.SetAttr("run", trace.IntValue(int64(n)))
				p.guideRow(r, at)
			}
		}
	}
}

func (p *parser) guideRow(r *trace.Request, at int) {
	names := []string{"request_id", "info", "prompt_tokens", "output_tokens", "cached_tokens", "start_time", "first_token_time", "last_token_time", "end_time"}
	var f [9]int
	p.fields(at, names, f[:])
	r.ID = p.text("request_id", f[0])
	r.Input, r.Output, r.Cached = p.count("prompt_tokens", f[2]), p.count("output_tokens", f[3]), p.count("cached_tokens", f[4])
	var i [1]int
	meant := none
	t := [5]int{none, f[5], f[6], f[7], f[8]}
	if p.fields(f[1], []string{"timings"}, i[:]); i[0] >= 0 {
		p.fields(i[0], []string{"targeted_start", "request_start", "first_token_iteration", "last_token_iteration", "request_end"}, t[:])
		meant = t[0]
	}
	stamp := func(name string, at int) trace.Instant {
		if in := p.instant(name, at, secs); in.At > 0 {
			return in
		}
		return trace.Instant{} // 0 and −1: not stamped
	}
	r.Arrival = stamp("request_start", t[1])
	r.FirstToken, r.LastToken = stamp("first_token_iteration", t[2]), stamp("last_token_iteration", t[3])
	if r.Outcome != trace.Incomplete { // else the client cut it off then
		r.Completed = stamp("request_end", t[4])
	}
	if !r.Arrival.Present() {
		p.Notes.Add(trace.NoArrival, "when it was sent is not told")
	}
	p.meant(r, opt(stamp("targeted_start", meant)))
	p.done(r)
}
