package sim

import (
	"encoding/json"
	"fmt"

	"github.com/traceview/traceview/trace"
)

// perfReport is inference-perf's file of single requests.
func perfReport(rs []*trace.Request) []object {
	list := []object{}
	for _, r := range rs {
		if !r.Completed.Present() {
			continue
		}
		var failed any
		times, out := []any{}, 0
		if r.Outcome == trace.OK {
			times, out = append(times, since(rs, r.FirstToken), since(rs, r.LastToken)), or0(r.Output)
		} else {
			failed = object{{"error_type", "HTTPError"}, {"error_msg", ""}}
		}
		list = append(list, object{
			{"start_time", since(rs, r.Arrival)}, {"end_time", since(rs, r.Completed)}, {"request", "{}"}, {"response", ""},
			{"info", object{{"input_tokens", or0(r.Input)}, {"response_metrics", object{{"output_tokens", out}, {"output_token_times", times}}}, {"lora_adapter", nil}}},
			{"error", failed},
		})
	}
	return list
}

// VisiblePerf is what inference-perf's file tells of requests.
func VisiblePerf(rs []*trace.Request) []*trace.Request {
	var list []*trace.Request
	for _, r := range rs {
		if !r.Completed.Present() {
			continue
		}
		c := clientView(r)
		c.ID, c.Clock = "", trace.ClockMonotonic
		if r.Outcome != trace.OK {
			c.Outcome, c.Output, c.FirstToken, c.LastToken = trace.Error, trace.Opt[int]{}, trace.Instant{}, trace.Instant{}
		}
		moveBy(c, trace.Time(boot)-rs[0].Arrival.At)
		list = append(list, c)
	}
	return list
}

// guideReport is guidellm's report of one benchmark.
func guideReport(rs []*trace.Request) object {
	kinds := map[trace.Outcome][]object{}
	stamp := func(i trace.Instant) any {
		if !i.Present() {
			return nil
		}
		return json.Number(fmt.Sprintf("%d.%09d", i.At/1e9, i.At%1e9))
	}
	for _, c := range VisibleGuide(rs) {
		var out any
		if n, ok := c.Output.Get(); ok {
			out = n
		}
		kinds[c.Outcome] = append(kinds[c.Outcome], object{
			{"type_", "generative_request_stats"}, {"request_id", c.ID}, {"output", nil},
			{"info", object{{"timings", object{
				{"targeted_start", stamp(c.Arrival)}, {"request_start", stamp(c.Arrival)}, {"first_token_iteration", stamp(c.FirstToken)},
				{"last_token_iteration", stamp(c.LastToken)}, {"request_end", stamp(c.Completed)},
			}}}},
			{"prompt_tokens", or0(c.Input)}, {"output_tokens", out},
		})
	}
	return object{{"type_", "generative_benchmarks_report"}, {"args", object{}}, {"benchmarks", []any{object{
		{"type_", "generative_benchmark"},
		{"requests", object{{"successful", kinds[trace.OK]}, {"errored", kinds[trace.Error]}, {"incomplete", kinds[trace.Incomplete]}}},
	}}}}
}

// VisibleGuide is what guidellm's report tells of requests, in its order: the
// served, the failed, those that were cut off.
func VisibleGuide(rs []*trace.Request) []*trace.Request {
	var list []*trace.Request
	for _, kind := range []trace.Outcome{trace.OK, trace.Error, trace.Incomplete} {
		for _, r := range rs {
			c := clientView(r)
			switch {
			case !r.Completed.Present():
				c.Outcome = trace.Incomplete
			case r.Outcome != trace.OK:
				c.Outcome, c.Output, c.FirstToken, c.LastToken = trace.Error, trace.Opt[int]{}, trace.Instant{}, trace.Instant{}
			}
			if c.Resolution = trace.Rounding; c.Outcome == kind {
				list = append(list, c)
			}
		}
	}
	return list
}
