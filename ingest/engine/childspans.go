package engine

import "github.com/traceview/traceview/trace"

// phaseNames are the names, in lower case, of spans that are phases of the
// request span above them: of vllm#44402, of plugins, and as people write them.
// An inference span is prefill and decode together.
var phaseNames = map[string]trace.Phase{
	"queue": trace.Queueing, "queueing": trace.Queueing, "queuing": trace.Queueing, "waiting": trace.Queueing,
	"vllm_queue": trace.Queueing,
	"prefill":    trace.Prefill, "vllm_prefill": trace.Prefill,
	"decode": trace.Decode, "vllm_decode": trace.Decode,
	"inference": trace.Prefill | trace.Decode, "vllm_inference": trace.Prefill | trace.Decode,
	"preempted":   trace.Preempted,
	"kv_transfer": trace.Transfer, "vllm_async_kv_transfer": trace.Transfer, "transfer": trace.Transfer,
	"arrival": trace.Arrival, "tokenize": trace.Arrival, "tokenise": trace.Arrival,
	"completion": trace.Completion, "detokenize": trace.Completion, "detokenise": trace.Completion,
}

// readChildren claims the phases that stand as spans below the request's. What
// lies between them stays unattributed. The first token is where prefill ends
// unless an event or attribute says so itself.
func readChildren(r *trace.Request, children []*node, tokens bool) {
	preempted := 0
	var first, last, sched, queueEnd trace.Instant
	for _, c := range children {
		a, okA := c.start.Get()
		z, okZ := c.end.Get()
		if !okA || !okZ {
			continue // the span's own issue says so
		}
		r.Intervals = append(r.Intervals, trace.Interval{Phase: c.phase, Basis: trace.Measured, Start: a, End: z})
		switch c.phase {
		case trace.Queueing:
			earliest(&r.Queued, a, trace.Measured)
			latest(&queueEnd, z, trace.Measured)
		case trace.Prefill:
			earliest(&sched, a, trace.Measured)
			latest(&first, z, trace.Derived)
		case trace.Prefill | trace.Decode:
			earliest(&sched, a, trace.Measured)
			latest(&last, z, trace.Derived)
		case trace.Decode:
			latest(&last, z, trace.Derived)
		case trace.Preempted:
			preempted++
		}
	}
	outOfQueue(r)
	if preempted > 0 {
		r.Preemptions = trace.Some(preempted)
	}
	if r.Scheduled = sched; !sched.Present() {
		r.Scheduled = queueEnd
	}
	if tokens {
		if !r.FirstToken.Present() {
			r.FirstToken = first
		}
		r.LastToken = last
	}
	if b := r.Breakdown(); max(b.Outside, b.Conflict, b.Doubled) > tolerance(r) {
		note(r, trace.Inconsistent, "phase spans claim %v outside the request's span or twice", b.Outside+b.Conflict+b.Doubled)
	}
}

func earliest(in *trace.Instant, t trace.Time, basis trace.Basis) {
	if !in.Present() || t < in.At {
		*in = trace.At(t, basis)
	}
}

func latest(in *trace.Instant, t trace.Time, basis trace.Basis) {
	if !in.Present() || t > in.At {
		*in = trace.At(t, basis)
	}
}

// sameFamily reports whether c may speak for the request span n although
// others lie between: the same service, or the same first word of the scope.
func sameFamily(c, n *node) bool {
	if c.res.service != "" && c.res.service == n.res.service {
		return true
	}
	return c.scope != "" && firstWord(c.scope) == firstWord(n.scope)
}

func firstWord(scope string) string {
	for i := range len(scope) {
		if scope[i] == '.' || scope[i] == '/' || scope[i] == ' ' {
			return scope[:i]
		}
	}
	return scope
}
