package records

import (
	"slices"

	"github.com/traceview/traceview/trace"
)

// VLLMStats is what people dump of vLLM's RequestOutput.metrics, one JSON object
// a request: RequestStateStats of V1 (since 2025-10), RequestMetrics of V0. Read
// off the source of vLLM 0.6 to 0.25; float seconds.
//
// V1's arrival_time is of the wall clock, all else of a monotonic one, and nothing
// ties the two: the stamps of the engine are placed so that the request was queued
// when it arrived. So the time between is not told, and it is not within the e2e.
// V0 has all on the wall clock, but where it was wrapped: arrival can then be of
// the monotonic one, and is not used. It may stand in a member named metrics, as
// in the rows of Ray Data.
var VLLMStats = Format{
	Name:     "vllm-request-stats",
	Evidence: "JSON with arrival_time beside queued_ts (vLLM's RequestStateStats, V1) or first_scheduled_time (RequestMetrics, V0)",
	Yields:   "requests with queueing, prefill and decode as the engine stamped them, placed by their arrival",
	NotTold:  "V1: the time before the queue, and behind the last token: e2e is without it; preempted time is within decode",
	Sniff: sniff(append(slices.Clone(statsNames), "metrics.arrival_time", "metrics.first_scheduled_time"), func(has func(string) bool) bool {
		return has("arrival_time") && (has("queued_ts") || has("first_scheduled_time")) || has("metrics.arrival_time") && has("metrics.first_scheduled_time")
	}),
	engine: "vllm-v1", clock: trace.ClockUnix, step: trace.Rounding,
	value: (*parser).stats,
}

var statsNames = []string{
	"arrival_time", "queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts",
	"first_scheduled_time", "first_token_time", "last_token_time", "finished_time",
	"request_id", "id", "input_toks", "prompt_tokens", "num_prompt_tokens", "output_toks", "completion_tokens", "num_generation_tokens", "finish_reason",
	"metrics", // the last
}

func (p *parser) stats() {
	r := p.begin("")
	f := make([]int, len(statsNames))
	if !p.fields(0, statsNames, f) {
		return
	}
	if m := f[len(f)-1]; m >= 0 { // Ray Data
		inner := make([]int, len(statsNames))
		p.fields(m, statsNames, inner)
		for i := range f {
			if f[i] == none {
				f[i] = inner[i]
			}
		}
	}
	at := func(names ...string) int {
		for _, n := range names {
			if i := f[slices.Index(statsNames, n)]; i >= 0 {
				return i
			}
		}
		return none
	}
	if at("arrival_time") < 0 || at("queued_ts", "first_scheduled_time") < 0 {
		return
	}
	r.ID = p.text("request_id", at("request_id", "id"))
	r.Input = p.count("prompt tokens", at("input_toks", "prompt_tokens", "num_prompt_tokens"))
	r.Output = p.count("output tokens", at("output_toks", "completion_tokens", "num_generation_tokens"))
	r.FinishReason = p.short("finish_reason", at("finish_reason"))
	r.Arrival = p.instant("arrival_time", at("arrival_time"), secs)
	r.Outcome = trace.OK
	if at("queued_ts") < 0 { // V0
		r.Source.Engine = "vllm-v0"
		r.Queued = r.Arrival
		r.Scheduled = p.instant("first_scheduled_time", at("first_scheduled_time"), secs)
		r.FirstToken = p.instant("first_token_time", at("first_token_time"), secs)
		r.LastToken = p.instant("last_token_time", at("last_token_time"), secs)
		r.Completed = p.instant("finished_time", at("finished_time"), secs)
		if r.Arrival.At < early && r.Scheduled.At >= early { // of the host's start, not of the calendar
			r.Arrival, r.Queued = trace.Instant{}, trace.Instant{}
			p.Notes.Add(trace.NoArrival, "its arrival_time is of another clock than the rest")
		}
	} else {
		if r.Arrival.Present() && r.Arrival.At < early {
			r.Clock = trace.ClockMonotonic
		}
		queued := p.instant("queued_ts", at("queued_ts"), secs)
		place := func(key string) trace.Instant {
			i := p.instant(key, at(key), secs)
			d, ok := i.Sub(queued).Get()
			if i.At == 0 || queued.At == 0 || !ok { // never stamped
				return trace.Instant{}
			}
			return plus(r.Arrival, trace.Some(d), trace.Derived)
		}
		r.Queued, r.Scheduled, r.FirstToken, r.LastToken = place("queued_ts"), place("scheduled_ts"), place("first_token_ts"), place("last_token_ts")
		r.Completed = r.LastToken
	}
	p.settle(r)
	claimEngine(r)
	p.yield(r)
}
