package records

import (
	"fmt"
	"slices"
	"time"

	"github.com/traceview/traceview/trace"
)

// VLLMBench is the result that vllm bench serve saves (--save-result
// --save-detailed; benchmark_serving.py before), one JSON document, or one a line
// with --append-result. Read off the file that vLLM 0.32.0 wrote and the source
// of vLLM 0.4 to 0.25; times are the client's, in float seconds.
//
//	member          since   meaning
//	input_lens      0.4     prompt tokens, for each request
//	output_lens     0.4     output tokens
//	ttfts           0.4     time to the first chunk; 0 where there was none
//	itls            0.4     gaps between chunks, which may hold several tokens
//	latencies       0.26    end to end; else ttft + itls
//	start_times     0.16    on the host's monotonic clock; the Rust client's count
//	                        from the benchmark's begin, and it writes failed_requests
//	errors          0.4     empty: none
//
// Not told: ids, and everything between sending and the first chunk. Without
// start_times there is no arrival. What SGLang's bench_serving saves has the same
// members.
var VLLMBench = Format{
	Name:     "vllm-bench",
	Evidence: "JSON with completed or num_prompts beside input_lens, ttfts or request_throughput (vllm bench serve --save-result --save-detailed)",
	Yields:   "requests as their client saw them: sent, first chunk, end; tokens; failures",
	NotTold:  "the engine's phases, and ids; before vLLM 0.16 when a request was sent; without --save-detailed any request",
	Sniff: sniff(benchNames, func(has func(string) bool) bool {
		return (has("completed") || has("num_prompts")) && (has("input_lens") || has("ttfts") || has("request_throughput"))
	}),
	engine: client, clock: trace.ClockMonotonic, step: 1,
	value: (*parser).bench,
}

// client is the "engine" of what only a load generator saw.
const client = "load-generator"

var benchNames = []string{
	"input_lens", "output_lens", "ttfts", "itls", "latencies", "start_times", "errors", // the arrays, in this order
	"completed", "num_prompts", "request_throughput", "failed_requests",
	"model_id", "date", "request_rate", "max_concurrency", "label",
}

// The arrays, by their index in benchNames.
const (
	benchIn = iota
	benchOut
	benchTTFT
	benchITL
	benchLatency
	benchStart
	benchError
	benchArrays
)

func (p *parser) bench() {
	f := make([]int, len(benchNames))
	if !p.fields(0, benchNames, f) && p.Wrong == "" {
		return
	}
	at := func(name string) int { return f[slices.Index(benchNames, name)] }
	if at("completed") == none && at("num_prompts") == none {
		return
	}
	p.ours()
	if p.Wrong != "" {
		return
	}
	model := p.text("model_id", at("model_id"))
	var attrs []trace.Attr
	for _, a := range [][2]string{{"run", "date"}, {"label", "label"}, {"request_rate", "request_rate"}, {"max_concurrency", "max_concurrency"}} {
		if s := p.short(a[1], at(a[1])); s != "" {
			attrs = append(attrs, trace.Attr{Key: a[0], Value: trace.StringValue(s)})
		}
	}
	clock := trace.ClockMonotonic
	if at("failed_requests") != none {
		clock = trace.ClockRelative
		if p.d.file.runs++; p.d.file.runs == 2 {
			p.issue(trace.MixedClocks, p.v.Begin, "each run in it counts from its own begin: they lie on one another")
		}
	}
	var arrays [benchArrays]*list
	n := 0
	for i := range arrays {
		if arrays[i] = p.list(benchNames[i], f[i]); arrays[i] != nil {
			n++
		}
	}
	for _, is := range p.Notes.List { // of the run, not of a request
		p.give(nil, &is)
	}
	p.Notes.List = nil
	for row := 0; n > 0 && p.Err == nil; row++ {
		var v [benchArrays]int
		ended := 0
		for i, a := range arrays {
			v[i] = none
			if a != nil {
				if v[i] = p.next(a); v[i] < 0 {
					ended++
				}
			}
		}
		if ended > 0 {
			if ended < n && p.Wrong == "" {
				p.issue(trace.BadField, p.v.Begin, "the arrays are not of one length: only %d requests have all", row)
			}
			return
		}
		r := p.begin(fmt.Sprintf("[%d]", row))
		r.Model, r.Clock = model, clock
		for _, a := range attrs {
			r.SetAttr(a.Key, a.Value)
		}
		p.benchRow(r, &v)
	}
}

func (p *parser) benchRow(r *trace.Request, v *[benchArrays]int) {
	r.Input = p.count("input_lens", v[benchIn])
	r.Output = p.count("output_lens", v[benchOut])
	ttft := p.positive("ttfts", v[benchTTFT], secs)
	last, chunks := p.benchGaps(ttft, v[benchITL])
	e2e := p.positive("latencies", v[benchLatency], secs)
	r.Outcome = trace.OK
	empty := false
	if v[benchTTFT] >= 0 && !ttft.Present() && r.Output.Or(0) == 0 && chunks == 0 {
		empty = true
		r.Output = trace.Opt[int]{}
	}
	switch {
	case p.text("errors", v[benchError]) != "":
		r.Outcome = trace.Error
	case empty:
		// The client counts it as served, but no token came.
		r.Outcome, r.FinishReason = trace.Error, noTokens
		r.Output = trace.Some(0)
	}
	if start := p.instant("start_times", v[benchStart], secs); start.Present() {
		r.Arrival = start
	} else if ttft.Present() || e2e.Present() {
		p.unplaced(r, "when it was sent is not told: it has durations only")
	}
	r.FirstToken = plus(r.Arrival, ttft, trace.Measured)
	r.LastToken = plus(r.Arrival, last, trace.Derived)
	r.Reported.TTFT, r.Reported.E2E = ttft, e2e
	if r.Completed = plus(r.Arrival, e2e, trace.Measured); !r.Completed.Present() && r.Outcome == trace.OK {
		r.Completed = r.LastToken
	}
	p.done(r)
}

// benchGaps adds the gaps between chunks to the time to the first one.
func (p *parser) benchGaps(ttft trace.Opt[time.Duration], at int) (last trace.Opt[time.Duration], chunks int) {
	sum, ok := ttft.Get()
	l := p.list("itls", at)
	if l == nil {
		return last, 0
	}
	for {
		v := p.next(l)
		if v < 0 {
			break
		}
		chunks++
		d, fine := p.span("itls", v, secs).Get()
		ok = ok && fine && sum <= longest
		sum += d
	}
	if !ok || sum > longest {
		return last, chunks
	}
	return trace.Some(sum), chunks
}
