package sim

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/traceview/traceview/trace"
)

// Records is a form in which requests are written that are no spans.
type Records string

const (
	VLLMBench Records = "vllm-bench"         // what vllm bench serve saves
	AIPerf    Records = "aiperf"             // profile_export.jsonl
	VLLMStats Records = "vllm-request-stats" // RequestStateStats of vLLM V1
	Own       Records = "requests"           // traceview's own

	InferencePerf Records = "inference-perf" // per_request_lifecycle_metrics.json
	GuideLLM      Records = "guidellm"       // benchmarks.json

	Mooncake   Records = "mooncake"        // a workload, JSON lines
	Bailian    Records = "bailian"         // likewise
	AzureTrace Records = "azure-llm-trace" // likewise, CSV
	BurstGPT   Records = "burstgpt"        // likewise
)

// RecordForms lists all.
func RecordForms() []Records {
	return []Records{VLLMBench, AIPerf, VLLMStats, Own, InferencePerf, GuideLLM, Mooncake, Bailian, AzureTrace, BurstGPT}
}

// boot is when the host of clocks that have no calendar started.
const boot = 3600 * time.Second

// WriteRecords writes requests in the form, without texts.
func WriteRecords(w io.Writer, rs []*trace.Request, form Records) error {
	switch form {
	case VLLMBench:
		return writeJSON(w, benchResult(rs))
	case InferencePerf:
		return writeJSON(w, perfReport(rs))
	case GuideLLM:
		return writeJSON(w, guideReport(rs))
	case Mooncake, Bailian, AzureTrace, BurstGPT:
		return writeWorkload(w, rs, form)
	}
	for i, r := range rs {
		var o object
		switch form {
		case AIPerf:
			o = aiperfRecord(r, i)
		case VLLMStats:
			o = statsRecord(r, rs[0])
		case Own:
			o = ownRecord(r)
		}
		if o == nil { // the writer knows nothing of it
			continue
		}
		if err := writeJSON(w, o); err != nil {
			return err
		}
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = w.Write(append(b, '\n'))
	}
	return err
}

// inSeconds are float seconds, as Python writes them: to the nanosecond.
func inSeconds(d time.Duration) json.Number { return json.Number(fmt.Sprintf("%.9f", d.Seconds())) }

func since(rs []*trace.Request, i trace.Instant) json.Number {
	return inSeconds(boot + i.At.Sub(rs[0].Arrival.At))
}

func or0[T any](o trace.Opt[T]) T {
	v, _ := o.Get()
	return v
}

func benchResult(rs []*trace.Request) object {
	var in, out, ttfts, itls, lat, starts, errs []any
	ok := 0
	for _, r := range rs {
		failed := r.Outcome != trace.OK
		in, starts = append(in, or0(r.Input)), append(starts, since(rs, r.Arrival))
		if failed {
			out, ttfts, itls, lat, errs = append(out, 0), append(ttfts, 0.0), append(itls, []any{}), append(lat, 0.0), append(errs, "failed")
			continue
		}
		ok++
		gaps := []any{}
		if d := r.LastToken.At.Sub(r.FirstToken.At); d > 0 { // two chunks: what is between is nobody's business
			gaps = append(gaps, inSeconds(d/2), inSeconds(d-d/2))
		}
		out, ttfts, itls = append(out, or0(r.Output)), append(ttfts, inSeconds(or0(r.TTFT()))), append(itls, gaps)
		lat, errs = append(lat, inSeconds(or0(r.E2E()))), append(errs, "")
	}
	return object{
		{"date", "20260301-120000"}, {"backend", "openai"}, {"label", nil}, {"model_id", rs[0].Model}, {"num_prompts", len(rs)},
		{"request_rate", "inf"}, {"max_concurrency", nil}, {"completed", ok}, {"failed", len(rs) - ok},
		{"input_lens", in}, {"output_lens", out}, {"ttfts", ttfts}, {"itls", itls}, {"latencies", lat}, {"start_times", starts}, {"errors", errs},
	}
}

// VisibleBench is what a bench's result tells of requests.
func VisibleBench(rs []*trace.Request) []*trace.Request {
	var list []*trace.Request
	for _, r := range rs {
		c := clientView(r)
		c.ID, c.Clock, c.Model = "", trace.ClockMonotonic, r.Model
		if r.Outcome != trace.OK {
			c.Outcome, c.Output, c.Completed, c.FirstToken, c.LastToken = trace.Error, trace.Opt[int]{}, trace.Instant{}, trace.Instant{}, trace.Instant{}
		}
		moveBy(c, trace.Time(boot)-rs[0].Arrival.At)
		list = append(list, c)
	}
	return list
}

// clientView is a request as its client sees it.
func clientView(r *trace.Request) *trace.Request {
	return &trace.Request{
		ID: r.ID, Clock: trace.ClockUnix, Resolution: 1, Arrival: r.Arrival, FirstToken: r.FirstToken, LastToken: r.LastToken, Completed: r.Completed,
		Input: r.Input, Output: r.Output, Outcome: r.Outcome,
	}
}

func moveBy(r *trace.Request, by trace.Time) {
	for _, i := range []*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
		if i.Present() {
			i.At += by
		}
	}
	for k := range r.Intervals {
		r.Intervals[k].Start += by
		r.Intervals[k].End += by
	}
}

func inMillis(d time.Duration) object {
	return object{{"value", json.Number(fmt.Sprintf("%.6f", float64(d)/1e6))}, {"unit", "ms"}}
}

func aiperfRecord(r *trace.Request, i int) object {
	if !r.Completed.Present() {
		return nil
	}
	metrics := object{{"input_sequence_length", object{{"value", or0(r.Input)}, {"unit", "tokens"}}}}
	var failed any
	if r.Outcome != trace.OK {
		failed = object{{"code", 500}, {"type", "HTTPError"}, {"message", ""}}
	} else {
		metrics = append(metrics, member{"time_to_first_token", inMillis(or0(r.TTFT()))}, member{"request_latency", inMillis(r.LastToken.At.Sub(r.Arrival.At))},
			member{"output_sequence_length", object{{"value", or0(r.Output)}, {"unit", "tokens"}}})
	}
	return object{
		{"metadata", object{
			{"session_num", i}, {"x_request_id", r.ID}, {"credit_issued_ns", int64(r.Arrival.At) - 100_000}, {"request_start_ns", int64(r.Arrival.At)}, {"request_ack_ns", nil},
			{"request_end_ns", int64(r.Completed.At)}, {"worker_id", "worker-1"}, {"benchmark_phase", "profiling"}, {"was_cancelled", false},
		}},
		{"metrics", metrics}, {"error", failed},
	}
}

// VisibleAIPerf is what AIPerf's records tell of requests.
func VisibleAIPerf(rs []*trace.Request) []*trace.Request {
	var list []*trace.Request
	for _, r := range rs {
		if !r.Completed.Present() {
			continue
		}
		c := clientView(r)
		if r.Outcome != trace.OK {
			c.Outcome, c.Output, c.FirstToken, c.LastToken = trace.Error, trace.Opt[int]{}, trace.Instant{}, trace.Instant{}
			if c.Completed == c.Arrival {
				c.Completed = trace.Instant{}
			}
		}
		list = append(list, c)
	}
	return list
}

// statsRecord is of requests that were served.
func statsRecord(r, first *trace.Request) object {
	if r.Outcome != trace.OK {
		return nil
	}
	at := func(i trace.Instant) json.Number { return inSeconds(boot + i.At.Sub(first.Arrival.At)) }
	return object{
		{"request_id", r.ID}, {"num_prompt_tokens", or0(r.Input)}, {"num_generation_tokens", or0(r.Output)},
		{"arrival_time", json.Number(fmt.Sprintf("%d.%06d", r.Arrival.At/1e9, r.Arrival.At%1e9/1000))},
		{"queued_ts", at(r.Queued)}, {"scheduled_ts", at(r.Scheduled)}, {"first_token_ts", at(r.FirstToken)}, {"last_token_ts", at(r.LastToken)},
	}
}

// VisibleStats is what RequestStateStats tell of requests: the engine's stamps,
// placed as if the request had been queued when it arrived.
func VisibleStats(rs []*trace.Request) []*trace.Request {
	var list []*trace.Request
	for _, r := range rs {
		if r.Outcome != trace.OK {
			continue
		}
		c := clientView(r)
		c.Queued, c.Scheduled = r.Queued, r.Scheduled
		c.Completed, c.Resolution = c.LastToken, trace.Rounding
		arrival := c.Arrival.At / 1000 * 1000
		c.Arrival = c.Queued
		engineView(c)
		moveBy(c, arrival-r.Queued.At)
		list = append(list, c)
	}
	return list
}

// engineView claims the phases between an engine's stamps; what was preempted is
// within decode, or prefill.
func engineView(r *trace.Request) {
	for _, x := range []struct {
		phase    trace.Phase
		from, to trace.Instant
	}{{trace.Queueing, r.Queued, r.Scheduled}, {trace.Prefill, r.Scheduled, r.FirstToken}, {trace.Decode, r.FirstToken, r.LastToken}} {
		if x.from.Present() && x.to.Present() {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: x.phase, Basis: trace.Measured, Start: x.from.At, End: x.to.At})
		}
	}
}

func ownRecord(r *trace.Request) object {
	o := object{{"id", r.ID}, {"service", r.Service}, {"replica", r.Replica}, {"model", r.Model}, {"outcome", r.Outcome.String()}}
	for _, x := range []struct {
		name string
		at   trace.Instant
	}{{"arrival_ns", r.Arrival}, {"queued_ns", r.Queued}, {"scheduled_ns", r.Scheduled}, {"first_token_ns", r.FirstToken}, {"last_token_ns", r.LastToken}, {"end_ns", r.Completed}} {
		if x.at.Present() {
			o = append(o, member{x.name, int64(x.at.At)})
		}
	}
	for _, x := range []struct {
		name string
		n    trace.Opt[int]
	}{{"input_tokens", r.Input}, {"output_tokens", r.Output}, {"max_tokens", r.MaxTokens}, {"preemptions", r.Preemptions}} {
		if n, ok := x.n.Get(); ok {
			o = append(o, member{x.name, n})
		}
	}
	return append(o.unlessEmpty("finish_reason", r.FinishReason), member{"attributes", plainAttrs(r.Attrs)})
}

// VisibleOwn is what traceview's own records tell of requests.
func VisibleOwn(rs []*trace.Request) []*trace.Request {
	var list []*trace.Request
	for _, r := range rs {
		c := clientView(r)
		c.Service, c.Replica, c.Model, c.MaxTokens, c.Preemptions, c.FinishReason, c.Attrs = r.Service, r.Replica, r.Model, r.MaxTokens, r.Preemptions, r.FinishReason, r.Attrs
		c.Queued, c.Scheduled = r.Queued, r.Scheduled
		if c.Queued.Present() {
			c.Intervals = append(c.Intervals, trace.Interval{Phase: trace.Arrival, Basis: trace.Measured, Start: c.Arrival.At, End: c.Queued.At})
			engineView(c)
			if c.LastToken.Present() && c.Completed.Present() {
				c.Intervals = append(c.Intervals, trace.Interval{Phase: trace.Completion, Basis: trace.Measured, Start: c.LastToken.At, End: c.Completed.At})
			}
		}
		list = append(list, c)
	}
	return list
}

// VisibleRecords is what the form tells of requests.
func VisibleRecords(rs []*trace.Request, form Records) []*trace.Request {
	switch form {
	case VLLMBench:
		return VisibleBench(rs)
	case AIPerf:
		return VisibleAIPerf(rs)
	case VLLMStats:
		return VisibleStats(rs)
	case InferencePerf:
		return VisiblePerf(rs)
	case GuideLLM:
		return VisibleGuide(rs)
	case Mooncake, Bailian, AzureTrace, BurstGPT:
		return VisibleWorkload(rs, form)
	}
	return VisibleOwn(rs)
}
