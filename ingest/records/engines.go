package records

import (
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// Dynamo is NVIDIA Dynamo's request trace (DYN_REQUEST_TRACE=1), JSON lines of the
// schema dynamo.request.trace.v1 (dynamo.agent.trace.v1 before), also inside
// {"timestamp", "event"}. Read off docs/observability/request-tracing.md of 2026;
// float milliseconds, all of them the frontend's.
//
//	prefill_wait_time_ms  received − handed to the prefill worker  arrival|queueing
//	prefill_time_ms       from there to the first token            queueing|prefill (|transfer
//	                                                               with two workers)
//	ttft_ms               received − the first token
//	total_time_ms         received − the end
var Dynamo = Format{
	Name:     "dynamo-request-trace",
	Evidence: "JSON lines whose schema is dynamo.request.trace.v1 (NVIDIA Dynamo's DYN_REQUEST_TRACE)",
	Yields:   "requests with what the frontend saw: wait for a worker, first token, end; tokens, workers",
	NotTold:  "what a worker did before the first token: its queue apart from prefill; the last token",
	Sniff: func(head []byte) bool {
		return dynamoShape(head) && (strings.Contains(string(head[:min(len(head), 4096)]), `"dynamo.`))
	},
	logs:   true,
	engine: "dynamo", clock: trace.ClockUnix, step: time.Millisecond,
	value: (*parser).dynamo,
}

var dynamoShape = sniff([]string{"schema", "event_type", "event"}, func(has func(string) bool) bool { return has("schema") && has("event_type") || has("event") })

var dynamoNames = []string{
	"request_id", "model", "input_tokens", "output_tokens", "cached_tokens", "request_received_ms", "prefill_wait_time_ms", "prefill_time_ms", "ttft_ms", "total_time_ms",
	"worker", "finish_reason_metadata",
}

func (p *parser) dynamo() {
	r := p.begin("")
	var top [4]int
	if p.fields(0, []string{"schema", "event_type", "request", "event"}, top[:]); top[3] >= 0 && top[0] < 0 {
		p.fields(top[3], []string{"schema", "event_type", "request", "event"}, top[:])
	}
	if !strings.HasPrefix(p.text("schema", top[0]), "dynamo.") {
		return
	}
	if p.ours(); p.text("event_type", top[1]) != "request_end" {
		return
	}
	f := make([]int, len(dynamoNames))
	p.fields(top[2], dynamoNames, f)
	at := func(name string) int { return f[slices.Index(dynamoNames, name)] }
	d := func(name string) trace.Opt[time.Duration] { return p.span(name, at(name), millis) }
	r.ID, r.Model = p.text("request_id", at("request_id")), p.text("model", at("model"))
	r.Input, r.Output, r.Cached = p.count("input_tokens", at("input_tokens")), p.count("output_tokens", at("output_tokens")), p.count("cached_tokens", at("cached_tokens"))
	r.Arrival = p.instant("request_received_ms", at("request_received_ms"), millis)
	wait, ttft, total := d("prefill_wait_time_ms"), d("ttft_ms"), d("total_time_ms")
	r.Reported.Prefill, r.Reported.TTFT, r.Reported.E2E = d("prefill_time_ms"), ttft, total
	r.Completed, r.FirstToken = plus(r.Arrival, total, trace.Measured), plus(r.Arrival, ttft, trace.Measured)
	r.Outcome = trace.OK
	var w [3]int
	p.fields(at("worker"), []string{"decode_worker_id", "decode_dp_rank", "prefill_worker_id"}, w[:])
	r.Replica = p.text("decode_worker_id", w[0])
	if rank := p.text("decode_dp_rank", w[1]); rank != "" && rank != "0" && r.Replica != "" {
		r.Replica += "/" + rank
	}
	work := trace.Queueing | trace.Prefill
	if prefill := p.text("prefill_worker_id", w[2]); prefill != "" {
		r.SetAttr("prefill_worker", trace.StringValue(prefill))
		if prefill != p.text("decode_worker_id", w[0]) {
			work |= trace.Transfer
		}
	}
	var reason [1]int
	p.fields(at("finish_reason_metadata"), []string{"finish_reason"}, reason[:])
	switch r.FinishReason = p.short("finish_reason", reason[0]); r.FinishReason {
	case "error":
		r.Outcome = trace.Error
	case "cancelled", "abort":
		r.Outcome = trace.Aborted
	}
	p.settle(r)
	handed := plus(r.Arrival, wait, trace.Measured)
	switch {
	case handed.Present() && r.FirstToken.Present() && handed.At <= r.FirstToken.At:
		claim(r, trace.Arrival|trace.Queueing, r.Arrival, handed)
		claim(r, work, handed, r.FirstToken)
	case handed.Present() && !r.FirstToken.Present() && (!r.Completed.Present() || handed.At <= r.Completed.At):
		claim(r, trace.Arrival|trace.Queueing, r.Arrival, handed)
	case handed.Present():
		p.Notes.Add(trace.PhaseTooLong, "the wait for a worker is longer than the time to the first token")
		fallthrough
	default:
		claim(r, trace.Arrival|work, r.Arrival, r.FirstToken)
	}
	claim(r, trace.Decode|trace.Preempted|trace.Completion, r.FirstToken, r.Completed)
	p.yield(r)
}

// TensorRT is what TensorRT-LLM gives at /perf_metrics (return_perf_metrics), an
// array, and writes to perf_metrics-*.jsonl. Read off its source of 2026. Float
// seconds of the server's steady clock: no calendar, and with a prefill and a
// decode server each on its own.
var TensorRT = Format{
	Name:     "tensorrt-llm-metrics",
	Evidence: "JSON with perf_metrics (timing_metrics), or ctx_perf_metrics and gen_perf_metrics (TensorRT-LLM's /perf_metrics)",
	Yields:   "requests with queueing, prefill and decode as the engine stamped them",
	NotTold:  "the calendar, tokens, the model, failures, what came behind the last token; with a prefill and a decode server, whose clocks differ, all but the first token and the end",
	Sniff: sniff([]string{"perf_metrics", "ctx_perf_metrics", "gen_perf_metrics"}, func(has func(string) bool) bool {
		return has("perf_metrics") || has("ctx_perf_metrics") && has("gen_perf_metrics")
	}),
	engine: "tensorrt-llm", clock: trace.ClockMonotonic, step: trace.Rounding,
	value: (*parser).tensorrt,
}

var tensorrtNames = []string{"server_arrival_time", "arrival_time", "first_scheduled_time", "first_token_time", "last_token_time", "server_first_token_time"}

// tensorrtTimes reads the timing_metrics of the record at B[i]; 0 and below is
// what the engine did not stamp.
func (p *parser) tensorrtTimes(i int) (id string, at map[string]trace.Instant) {
	var f [2]int
	p.fields(i, []string{"request_id", "perf_metrics"}, f[:])
	id = p.text("request_id", f[0])
	var m [1]int
	p.fields(f[1], []string{"timing_metrics"}, m[:])
	t := make([]int, len(tensorrtNames))
	p.fields(m[0], tensorrtNames, t)
	at = map[string]trace.Instant{}
	for k, name := range tensorrtNames {
		if in := p.instant(name, t[k], secs); in.At > 0 {
			at[name] = in
		}
	}
	return id, at
}

func (p *parser) tensorrt() {
	r := p.begin("")
	var f [5]int
	p.fields(0, []string{"perf_metrics", "ctx_perf_metrics", "gen_perf_metrics", "disagg_server_arrival_time", "disagg_server_first_token_time"}, f[:])
	r.Outcome = trace.OK
	if f[0] >= 0 {
		p.ours()
		id, at := p.tensorrtTimes(0)
		r.ID = id
		if r.Arrival = at["server_arrival_time"]; !r.Arrival.Present() {
			r.Arrival = at["arrival_time"]
		}
		r.Queued, r.Scheduled, r.FirstToken, r.LastToken = at["arrival_time"], at["first_scheduled_time"], at["first_token_time"], at["last_token_time"]
		r.Completed = r.LastToken
		p.settle(r)
		claim(r, trace.Arrival, r.Arrival, r.Queued)
		claimEngine(r)
		p.yield(r)
		return
	}
	if f[1] < 0 || f[2] < 0 {
		return
	}
	p.ours()
	id, _ := p.tensorrtTimes(f[1])
	_, gen := p.tensorrtTimes(f[2])
	r.ID = id
	if in := p.instant("disagg_server_arrival_time", f[3], secs); in.At > 0 {
		r.Arrival = in
	}
	if in := p.instant("disagg_server_first_token_time", f[4], secs); in.At > 0 {
		r.FirstToken = in
	}
	// The decode server's clock gives a duration only.
	first := gen["server_first_token_time"]
	if !first.Present() {
		first = gen["first_token_time"]
	}
	if d, ok := gen["last_token_time"].Sub(first).Get(); ok && d >= 0 {
		r.LastToken = plus(r.FirstToken, trace.Some(d), trace.Derived)
		r.Completed = r.LastToken
	}
	p.settle(r)
	claim(r, trace.Arrival|trace.Queueing|trace.Prefill|trace.Transfer, r.Arrival, r.FirstToken)
	claim(r, trace.Queueing|trace.Decode|trace.Transfer|trace.Completion, r.FirstToken, r.LastToken)
	p.yield(r)
}

// TGI is the log of text-generation-inference's router with --json-output
// (3.3.6-dev0): each success is a line with the route's figures, as texts such as
// "431.2ms".
var TGI = Format{
	Name:     "tgi-log",
	Evidence: "JSON lines whose target is text_generation_router (text-generation-inference's --json-output)",
	Yields:   "requests that were served: arrival (by the line's stamp, less total_time), queueing, prefill|decode, end",
	NotTold:  "failed requests' times, ids, the model, prompt tokens, the first token",
	Sniff: func(head []byte) bool {
		return tgiShape(head) && strings.Contains(string(head[:min(len(head), 64<<10)]), `"text_generation_router`)
	},
	logs:   true,
	engine: "text-generation-inference", clock: trace.ClockUnix, step: trace.Rounding,
	value: (*parser).tgi,
}

var tgiShape = sniff([]string{"timestamp", "level", "target"}, func(has func(string) bool) bool { return has("timestamp") && has("target") && has("level") })

func (p *parser) tgi() {
	r := p.begin("")
	var f [4]int
	if !p.fields(0, []string{"timestamp", "message", "span", "level"}, f[:]) || f[2] < 0 || p.short("message", f[1]) != "Success" {
		return
	}
	var s [5]int
	names := []string{"total_time", "validation_time", "queue_time", "inference_time", "time_per_token"}
	if p.fields(f[2], names, s[:]); s[0] == none {
		return
	}
	p.ours()
	var d [5]trace.Opt[time.Duration]
	for i, name := range names {
		text := p.text(name, s[i])
		if text == "" {
			continue
		}
		if v, err := time.ParseDuration(text); err != nil || v < 0 || v > longest {
			p.Notes.Add(trace.BadNumber, "%s is no duration", name)
		} else {
			d[i] = trace.Some(v)
		}
	}
	r.Outcome = trace.OK
	r.Completed = p.stamp("timestamp", f[0])
	if total, ok := d[0].Get(); ok && r.Completed.Present() {
		r.Arrival = trace.At(r.Completed.At.Add(-total), trace.Derived)
	}
	r.Reported.E2E, r.Reported.Queue, r.Reported.Inference = d[0], d[2], d[3]
	r.Queued = plus(r.Arrival, d[1], trace.Derived)
	if r.Queued.Present() {
		r.Scheduled = plus(r.Queued, d[2], trace.Derived)
	}
	if inference, each := d[3].Or(0), d[4].Or(0); each > 0 {
		if n := (inference + each/2) / each; n < 1<<31 {
			r.Output = trace.Some(int(n))
		}
	}
	p.settle(r)
	claim(r, trace.Arrival, r.Arrival, r.Queued)
	claim(r, trace.Queueing, r.Queued, r.Scheduled)
	if end := plus(r.Scheduled, d[3], trace.Derived); end.Present() {
		if over := end.At.Sub(r.Completed.At); r.Completed.Present() && over > r.Resolution+trace.Rounding {
			p.Notes.Add(trace.PhaseTooLong, "its times add up to %v more than the total", over)
		} else {
			claim(r, trace.Prefill|trace.Decode, r.Scheduled, end)
		}
	}
	p.yield(r)
}

// Ollama is the last object of Ollama's answers (/api/chat, /api/generate), as its
// client saved them (v0.33): integer nanoseconds, left out where they are 0.
// created_at is when the answer was done. load_duration waits for a runner and
// loads the model; what of total_duration no member explains lies behind it.
var Ollama = Format{
	Name:     "ollama",
	Evidence: "JSON with model, created_at and done (Ollama's answers)",
	Yields:   "requests: arrival (created_at less total_duration), arrival|queueing (load_duration), prefill, decode, end; tokens",
	NotTold:  "the wait for a slot: it is within unattributed; failures, ids",
	Sniff: sniff([]string{"model", "created_at", "done"}, func(has func(string) bool) bool {
		return has("model") && has("created_at") && has("done")
	}),
	engine: "ollama", clock: trace.ClockUnix, step: trace.Rounding,
	value: (*parser).ollama,
}

var ollamaNames = []string{"model", "created_at", "done", "done_reason", "total_duration", "load_duration", "prompt_eval_duration", "eval_duration", "prompt_eval_count", "eval_count"}

func (p *parser) ollama() {
	r := p.begin("")
	f := make([]int, len(ollamaNames))
	if !p.fields(0, ollamaNames, f) || !p.is(f[2]) || f[4] == none {
		return
	}
	p.ours()
	r.Model, r.FinishReason = p.text("model", f[0]), p.short("done_reason", f[3])
	if r.FinishReason == "load" || r.FinishReason == "unload" {
		return // of the model: no request
	}
	r.Outcome = trace.OK
	r.Completed = p.stamp("created_at", f[1])
	total, load, prompt, eval := p.span("total_duration", f[4], nanos), p.span("load_duration", f[5], nanos), p.span("prompt_eval_duration", f[6], nanos), p.span("eval_duration", f[7], nanos)
	r.Input, r.Output = p.count("prompt_eval_count", f[8]), p.count("eval_count", f[9])
	if d, ok := total.Get(); ok && r.Completed.Present() {
		r.Arrival = trace.At(r.Completed.At.Add(-d), trace.Derived)
	}
	r.Reported.E2E, r.Reported.Prefill, r.Reported.Decode = total, prompt, eval
	if sum := load.Or(0) + prompt.Or(0) + eval.Or(0); total.Present() && sum > total.Or(0)+trace.Rounding {
		p.Notes.Add(trace.PhaseTooLong, "its phases add up to %v, the whole is %v", sum, total.Or(0))
		p.done(r)
		return
	}
	if d, ok := eval.Get(); ok && r.Arrival.Present() {
		r.LastToken = trace.At(r.Completed.At, trace.Derived)
		r.FirstToken = trace.At(r.Completed.At.Add(-d), trace.Derived)
		r.Scheduled = trace.At(r.FirstToken.At.Add(-prompt.Or(0)), trace.Derived)
	}
	p.settle(r)
	if load.Present() {
		claim(r, trace.Arrival|trace.Queueing, r.Arrival, plus(r.Arrival, load, trace.Derived))
	}
	if prompt.Present() {
		claim(r, trace.Prefill, r.Scheduled, r.FirstToken)
	}
	claim(r, trace.Decode, r.FirstToken, r.LastToken)
	p.yield(r)
}

// LlamaCpp is what llama.cpp's server adds to its answers: timings, float
// milliseconds of prefill and decode.
var LlamaCpp = Format{
	Name:     "llama.cpp",
	Evidence: "JSON with timings that have prompt_ms and predicted_ms (llama.cpp's answers)",
	Yields:   "requests from the begin of prefill to the last token: prefill and decode; tokens",
	NotTold:  "when it arrived, and how long it waited before: e2e is without that",
	Sniff: func(head []byte) bool {
		return llamaShape(head) && strings.Contains(string(head), `"predicted_ms"`)
	},
	engine: "llama.cpp", clock: trace.ClockUnknown, step: trace.Rounding,
	value: (*parser).llama,
}

var llamaShape = sniff([]string{"timings", "content", "choices"}, func(has func(string) bool) bool { return has("timings") || has("content") || has("choices") })

func (p *parser) llama() {
	r := p.begin("")
	var f [5]int
	if !p.fields(0, []string{"timings", "id", "model", "stop_type", "id_slot"}, f[:]) || f[0] < 0 {
		return
	}
	var t [5]int
	if p.fields(f[0], []string{"prompt_n", "prompt_ms", "predicted_n", "predicted_ms", "cache_n"}, t[:]); t[1] == none && t[3] == none {
		return
	}
	p.ours()
	r.ID, r.Model, r.FinishReason = p.text("id", f[1]), p.text("model", f[2]), p.short("stop_type", f[3])
	r.Input, r.Output, r.Cached = p.count("prompt_n", t[0]), p.count("predicted_n", t[2]), p.count("cache_n", t[4])
	if n, ok := r.Input.Get(); ok { // without what was cached
		r.Input = trace.Some(n + r.Cached.Or(0))
	}
	prefill, decode := p.span("prompt_ms", t[1], millis), p.span("predicted_ms", t[3], millis)
	p.measured(r, trace.Opt[time.Duration]{}, prefill, decode)
}

// VLLMResponse is what vLLM adds to its answers with --enable-per-request-metrics
// (2026-07): metrics, float milliseconds. Its time_to_first_token_ms counts from
// scheduled: it is prefill.
var VLLMResponse = Format{
	Name:     "vllm-response",
	Evidence: "JSON with usage and metrics that have queue_time_ms or generation_time_ms (vLLM's answers with --enable-per-request-metrics)",
	Yields:   "requests from the queue to the last token: queueing, prefill, decode; tokens",
	NotTold:  "when it arrived, and the time outside the engine: e2e is without that",
	Sniff: func(head []byte) bool {
		return responseShape(head) && strings.Contains(string(head), `"generation_time_ms"`)
	},
	engine: "vllm-v1", clock: trace.ClockUnknown, step: trace.Rounding,
	value: (*parser).response,
}

var responseShape = sniff([]string{"metrics", "choices", "object"}, func(has func(string) bool) bool { return has("metrics") || has("choices") && has("object") })

func (p *parser) response() {
	r := p.begin("")
	var f [4]int
	if !p.fields(0, []string{"metrics", "id", "model", "usage"}, f[:]) || f[0] < 0 {
		return
	}
	var m [3]int
	if p.fields(f[0], []string{"queue_time_ms", "time_to_first_token_ms", "generation_time_ms"}, m[:]); m[0] == none && m[2] == none {
		return
	}
	p.ours()
	r.ID, r.Model = p.text("id", f[1]), p.text("model", f[2])
	var u [3]int
	p.fields(f[3], []string{"prompt_tokens", "completion_tokens", "prompt_tokens_details"}, u[:])
	r.Input, r.Output = p.count("prompt_tokens", u[0]), p.count("completion_tokens", u[1])
	var c [1]int
	p.fields(u[2], []string{"cached_tokens"}, c[:])
	r.Cached = p.count("cached_tokens", c[0])
	p.measured(r, p.span("queue_time_ms", m[0], millis), p.span("time_to_first_token_ms", m[1], millis), p.span("generation_time_ms", m[2], millis))
}

// measured gives a request of which only the engine's phases are known, on a clock
// of its own, from the first of them that is.
func (p *parser) measured(r *trace.Request, queue, prefill, decode trace.Opt[time.Duration]) {
	r.Outcome = trace.OK
	r.Reported.Queue, r.Reported.Prefill, r.Reported.Decode = queue, prefill, decode
	p.unplaced(r, "when it arrived is not told: it begins with its first phase that is")
	r.Scheduled = r.Arrival
	if queue.Present() {
		r.Queued, r.Scheduled = r.Arrival, plus(r.Arrival, queue, trace.Derived)
	}
	r.FirstToken = plus(r.Scheduled, prefill, trace.Derived)
	r.LastToken = plus(r.FirstToken, decode, trace.Derived)
	r.Completed = r.LastToken
	p.settle(r)
	claimEngine(r)
	p.yield(r)
}
