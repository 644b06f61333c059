package analyze

import (
	"time"

	"github.com/traceview/traceview/trace"
)

// Metric is a figure that can be read off a request.
type Metric struct {
	Name       string // "ttft"
	Definition string // one clause
	Unit       Unit
	Better     string // "lower", "higher", or "" where neither is
	// Of reads the figure off a request and its breakdown; absent where the
	// source does not tell.
	Of func(r *trace.Request, b *trace.Breakdown) trace.Opt[int64]
}

// Metrics is every figure of a request, in the order of reports.
var Metrics = []Metric{
	{"ttft", "time to first token: first token − arrival", UnitNanos, "lower",
		func(r *trace.Request, _ *trace.Breakdown) trace.Opt[int64] { return nonNegative(r.TTFT()) }},
	{"tpot", "time per output token: (last − first token) / (output tokens − 1), to the nearest nanosecond; absent below two tokens", UnitNanos, "lower",
		func(r *trace.Request, _ *trace.Breakdown) trace.Opt[int64] { return tpot(r) }},
	{"e2e", "end to end: completed − arrival", UnitNanos, "lower",
		func(r *trace.Request, _ *trace.Breakdown) trace.Opt[int64] { return nonNegative(r.E2E()) }},
	{"waiting", "queueing + preempted: in a queue while others are served", UnitNanos, "lower", ofKind(trace.Waiting)},
	{"compute", "prefill + decode: the engine works on the request", UnitNanos, "lower", ofKind(trace.Compute)},
	{"overhead", "arrival + transfer + completion: gateway, tokenising, network, streaming", UnitNanos, "lower", ofKind(trace.Overhead)},
	{"unsplit", "time that the source gives for phases of different kinds together", UnitNanos, "", ofKind(trace.Unsplit)},
	{"unattributed", "what the source leaves unexplained", UnitNanos, "", ofKind(trace.Unknown)},
	{"arrival", "arrival → queued", UnitNanos, "lower", ofPhase(trace.Arrival)},
	{"queueing", "queued → scheduled", UnitNanos, "lower", ofPhase(trace.Queueing)},
	{"prefill", "scheduled → first token", UnitNanos, "lower", ofPhase(trace.Prefill)},
	{"decode", "first token → last token, less preempted", UnitNanos, "lower", ofPhase(trace.Decode)},
	{"transfer", "KV cache sent between a prefill and a decode engine", UnitNanos, "lower", ofPhase(trace.Transfer)},
	{"preempted", "pushed back to the queue → resumed", UnitNanos, "lower", ofPhase(trace.Preempted)},
	{"completion", "last token → completed", UnitNanos, "lower", ofPhase(trace.Completion)},
	{"prompt_tokens", "tokens of the prompt", UnitTokens, "", ofCount(func(r *trace.Request) trace.Opt[int] { return r.Input })},
	{"cached_tokens", "tokens of the prompt that were found in the prefix cache", UnitTokens, "higher", ofCount(func(r *trace.Request) trace.Opt[int] { return r.Cached })},
	{"output_tokens", "tokens produced", UnitTokens, "", ofCount(func(r *trace.Request) trace.Opt[int] { return r.Output })},
}

func nonNegative(o trace.Opt[time.Duration]) trace.Opt[int64] {
	if d, ok := o.Get(); ok && d >= 0 {
		return trace.Some(int64(d))
	}
	return trace.Opt[int64]{}
}

func tpot(r *trace.Request) trace.Opt[int64] {
	v, ok := r.TPOT().Get()
	if !ok || !(v >= 0 && v < 1<<62) {
		return trace.Opt[int64]{}
	}
	return trace.Some(int64(v + 0.5))
}

func ofKind(k trace.Kind) func(*trace.Request, *trace.Breakdown) trace.Opt[int64] {
	return func(r *trace.Request, b *trace.Breakdown) trace.Opt[int64] {
		if !b.Complete {
			return trace.Opt[int64]{}
		}
		if k == trace.Unknown {
			return trace.Some(int64(b.Unattributed))
		}
		for _, iv := range r.Intervals {
			if iv.Phase.Kind() == k {
				return trace.Some(int64(b.Kind(k)))
			}
		}
		return trace.Opt[int64]{}
	}
}

func ofPhase(p trace.Phase) func(*trace.Request, *trace.Breakdown) trace.Opt[int64] {
	return func(r *trace.Request, b *trace.Breakdown) trace.Opt[int64] {
		for _, iv := range r.Intervals {
			if iv.Phase == p {
				return trace.Some(int64(b.Of(p)))
			}
		}
		return trace.Opt[int64]{}
	}
}

func ofCount(f func(*trace.Request) trace.Opt[int]) func(*trace.Request, *trace.Breakdown) trace.Opt[int64] {
	return func(r *trace.Request, _ *trace.Breakdown) trace.Opt[int64] {
		if v, ok := f(r).Get(); ok {
			return trace.Some(int64(v))
		}
		return trace.Opt[int64]{}
	}
}

// Objective is an upper limit on a figure of each request.
type Objective struct {
	Figure string // "e2e", "ttft" or "tpot"
	MaxNS  int64
}

func (o Objective) String() string { return o.Figure + " ≤ " + time.Duration(o.MaxNS).String() }

// meets reports whether r met every objective. A figure that the source does
// not tell was not met; below two tokens there is no tpot to miss.
func (w *work) meets(r *row) bool {
	for _, o := range w.opts.Objectives {
		v := int64(-1)
		switch o.Figure {
		case "e2e":
			v = r.e2e()
		case "ttft":
			v = r.ttft
		case "tpot":
			if v = r.tpot; v < 0 && (r.out == 0 || r.out == 1) {
				v = 0
			}
		}
		if v < 0 || v > o.MaxNS {
			return false
		}
	}
	return true
}
