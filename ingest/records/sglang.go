package records

import (
	"slices"
	"strings"

	"github.com/traceview/traceview/trace"
)

// SGLangMetrics is what SGLang writes with --export-metrics-to-file: JSON lines
// of a request's meta_info, its parameters before it as text. Read off the source
// of 2026.
//
//	member                 unit     meaning
//	request_received_ts    s, 1970  the API server got it       arrival
//	queue_time             s        forward entry − queue entry queueing
//	forward_entry_time     s, 1970  it first got work           scheduled
//	prefill_finished_time  s, 1970                              first token
//	request_finished_ts    s, 1970                              end
//	e2e_latency            s
//
// A request that was retracted (total_retractions) enters the queue anew and keeps
// its first forward entry: queue_time is then below zero and counts as not
// reported. The stamps are there with --enable-metrics only; without them a record
// has its e2e and no arrival.
var SGLangMetrics = Format{
	Name:     "sglang-metrics",
	Evidence: "JSON lines with request_parameters beside e2e_latency or prompt_tokens (SGLang's --export-metrics-to-file)",
	Yields:   "requests with queueing and prefill as the scheduler stamped them, tokens, retractions",
	NotTold:  "the last token: decode|completion behind the first; how long a retracted request waited, and its queueing",
	Sniff: sniff([]string{"request_parameters", "prompt_tokens", "e2e_latency"}, func(has func(string) bool) bool {
		return has("request_parameters") && (has("prompt_tokens") || has("e2e_latency"))
	}),
	engine: "sglang", clock: trace.ClockUnix, step: trace.Rounding,
	value: func(p *parser) {
		r := p.begin("")
		var f [2]int
		if p.fields(0, []string{"request_parameters", "prompt_tokens"}, f[:]); f[0] == none {
			return
		}
		p.ours()
		p.meta(r, 0)
		p.sglangDone(r)
	},
}

// SGLangLog is SGLang's request log with --log-requests-format json: an object
// when a request came and one when it ended, which has the same meta_info. Its own
// stamps are local times without a zone, and are used where meta_info has none.
var SGLangLog = Format{
	Name:     "sglang-log",
	Evidence: "JSON lines with event request.received or request.finished, and rid (SGLang's --log-requests-format json)",
	Yields:   "the same, and requests that came and did not end",
	NotTold:  "the same; without --enable-metrics all phases",
	Sniff: func(head []byte) bool {
		return sglangEvent(head) && strings.Contains(string(head[:min(len(head), 64<<10)]), "request.")
	},
	logs:   true,
	engine: "sglang", clock: trace.ClockUnix, step: trace.Rounding,
	value: (*parser).sglangLog,
	end:   (*Decoder).unended,
}

var sglangEvent = sniff([]string{"event", "rid", "timestamp"}, func(has func(string) bool) bool { return has("event") && has("rid") && has("timestamp") })

func (p *parser) sglangLog() {
	r := p.begin("")
	var f [4]int
	if !p.fields(0, []string{"timestamp", "event", "rid", "out"}, f[:]) || f[1] < 0 || f[2] < 0 {
		return
	}
	event, id := p.text("event", f[1]), strings.Clone(p.text("rid", f[2]))
	if event != "request.received" && event != "request.finished" {
		return
	}
	p.ours()
	at := p.stamp("timestamp", f[0])
	r.ID = id
	if event == "request.received" {
		r.Arrival = at
		p.d.open(r, p.Notes.List)
		p.Notes.List = nil
		return
	}
	var out [1]int
	p.fields(f[3], []string{"meta_info"}, out[:])
	p.meta(r, out[0])
	r.ID = id
	if begun := p.d.close(id); begun != nil {
		p.Notes.List = append(begun.Issues, p.Notes.List...)
		if !r.Arrival.Present() {
			r.Arrival = begun.Arrival
		}
	}
	if !r.Completed.Present() {
		r.Completed = at
		if d, ok := r.Reported.E2E.Get(); ok && !r.Arrival.Present() && at.Present() {
			r.Arrival = trace.At(at.At.Add(-d), trace.Derived)
		}
	}
	p.sglangDone(r)
}

var metaNames = []string{
	"id", "finish_reason", "prompt_tokens", "completion_tokens", "cached_tokens", "total_retractions", "e2e_latency",
	"queue_time", "forward_entry_time", "prefill_finished_time", "request_received_ts", "request_finished_ts",
}

// meta reads the meta_info at B[i].
func (p *parser) meta(r *trace.Request, i int) {
	f := make([]int, len(metaNames))
	r.Outcome = trace.OK
	p.fields(i, metaNames, f)
	at := func(name string) int { return f[slices.Index(metaNames, name)] }
	r.ID = p.text("id", at("id"))
	r.Input, r.Output, r.Cached = p.count("prompt_tokens", at("prompt_tokens")), p.count("completion_tokens", at("completion_tokens")), p.count("cached_tokens", at("cached_tokens"))
	r.Preemptions = p.count("total_retractions", at("total_retractions"))
	if reason := at("finish_reason"); reason >= 0 {
		var t [1]int
		if p.fields(reason, []string{"type"}, t[:]) {
			r.FinishReason = p.short("type", t[0])
		} else if p.B[reason] == '"' {
			r.FinishReason = p.short("finish_reason", reason)
		}
	}
	if r.FinishReason == "abort" {
		r.Outcome = trace.Aborted
	}
	stamp := func(name string) trace.Instant {
		if in := p.instant(name, at(name), secs); in.At > 0 {
			return in
		}
		return trace.Instant{} // 0: it never came to that
	}
	r.Arrival, r.Completed = stamp("request_received_ts"), stamp("request_finished_ts")
	r.Scheduled, r.FirstToken = stamp("forward_entry_time"), stamp("prefill_finished_time")
	r.Reported.E2E = p.positive("e2e_latency", at("e2e_latency"), secs)
	if q, ok := p.span("queue_time", at("queue_time"), secs).Get(); ok && r.Scheduled.Present() {
		r.Reported.Queue = trace.Some(q)
		r.Queued = trace.At(r.Scheduled.At.Add(-q), trace.Derived)
	}
}

// sglangDone claims what the scheduler's stamps say.
func (p *parser) sglangDone(r *trace.Request) {
	if !r.Completed.Present() {
		r.Completed = plus(r.Arrival, r.Reported.E2E, trace.Derived)
	}
	if !r.Arrival.Present() && r.Reported.E2E.Present() && !r.Scheduled.Present() && !r.Completed.Present() {
		p.unplaced(r, "when it was sent is not told: it has its e2e only")
		r.Completed = plus(r.Arrival, r.Reported.E2E, trace.Derived)
	}
	p.settle(r)
	before, after := trace.Arrival|trace.Queueing, trace.Decode|trace.Completion
	if r.Preemptions.Or(0) > 0 {
		after |= trace.Preempted
	}
	if r.Queued.Present() {
		claim(r, trace.Arrival, r.Arrival, r.Queued)
		claim(r, trace.Queueing, r.Queued, r.Scheduled)
	} else {
		claim(r, before, r.Arrival, r.Scheduled)
	}
	claim(r, trace.Prefill, r.Scheduled, r.FirstToken)
	claim(r, after, r.FirstToken, r.Completed)
	p.yield(r)
}
