package engine

import (
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// text-generation-inference (router of 3.3.6-dev0) records on the span of the
// route, all as text such as "431.2ms":
//
//	validation_time  start − queued: tokenising and checks   arrival
//	queue_time       queued − scheduled                      queueing
//	inference_time   scheduled − the last token               prefill|decode
//	total_time       all of it
//	time_per_token   inference_time / output tokens
//
// They are set only where all went well. Not told: the model, the prompt's
// tokens, the first token, prefill apart from decode (only through links to the
// batches, which are traces of their own), pauses for other requests' prefill
// (spans "waiting": they stay inside prefill|decode). A call with several
// prompts keeps the figures of one of them.

// tgiSpan is what only text-generation-inference's spans have.
type tgiSpan struct {
	validation, queue, inference, perToken trace.Opt[time.Duration]
}

// readTGISpan recognises the span of a route, and that of a batch, which is no
// request.
func readTGISpan(n *node, s *trace.Span) {
	if n.name == "batch" {
		_, n.apart = s.Attr("batch_size")
		return
	}
	_, total := s.Attr("total_time")
	_, queue := s.Attr("queue_time")
	if n.engine != "" || !(total && queue) && !strings.HasPrefix(n.res.service, "text-generation-inference") {
		return
	}
	x := &tgiSpan{}
	n.engine, n.tgi, n.phase = tgi, x, 0
	for _, f := range []struct {
		key string
		to  *trace.Opt[time.Duration]
	}{{"validation_time", &x.validation}, {"queue_time", &x.queue}, {"inference_time", &x.inference}, {"time_per_token", &x.perToken}} {
		v, ok := s.Attr(f.key)
		if !ok {
			continue
		}
		d, err := units.ParseDuration(v.String())
		if err != nil || d < 0 {
			n.issues = append(n.issues[:len(n.issues):len(n.issues)], trace.NewIssue(trace.BadNumber, n.pos, "%s is no duration", f.key))
			continue
		}
		*f.to = trace.Some(d)
	}
	// Without figures it did not go well.
	n.failed = n.failed || !total
	n.attrs = dropAttrs(n.attrs, "validation_time", "queue_time", "inference_time", "time_per_token", "total_time", "parameters")
}

// readTGI claims what the route's span tells.
func readTGI(r *trace.Request, x *tgiSpan) {
	at, ok := r.Arrival.Get()
	if !ok {
		return
	}
	r.Reported.Queue, r.Reported.Inference = x.queue, x.inference
	claim := func(p trace.Phase, d trace.Opt[time.Duration]) bool {
		v, ok := d.Get()
		if !ok {
			return false
		}
		if e2e, ok := r.E2E().Get(); ok && v > e2e+slack {
			note(r, trace.PhaseTooLong, "%s is %s, the span %s", p, units.Duration(v, 0), units.Duration(e2e, 0))
			return false
		}
		claimAll(r, p, trace.Derived, []stretch{{at, at.Add(v)}})
		at = at.Add(v)
		return true
	}
	if n, ok := x.perToken.Get(); ok && n > 0 {
		if all, ok := x.inference.Get(); ok {
			if tokens := (all + n/2) / n; tokens <= maxCount {
				r.Output = trace.Some(int(tokens))
			}
		}
	}
	if !claim(trace.Arrival, x.validation) {
		return // the rest has no place
	}
	if queued := at; claim(trace.Queueing, x.queue) {
		r.Queued, r.Scheduled = trace.At(queued, trace.Derived), trace.At(at, trace.Derived)
		if claim(trace.Prefill|trace.Decode, x.inference) {
			r.LastToken = trace.At(at, trace.Derived)
			if end, ok := r.Completed.Get(); ok {
				claimAll(r, trace.Completion, trace.Derived, []stretch{{at, end}})
			}
		}
	}
	if b := r.Breakdown(); b.Outside > tolerance(r) {
		note(r, trace.Inconsistent, "phases claim %v outside the span", b.Outside)
	}
}

// dropAttrs removes attributes that are read, and so are no grouping keys.
func dropAttrs(attrs []attr, keys ...string) []attr {
	kept := attrs[:0]
next:
	for _, a := range attrs {
		for _, k := range keys {
			if a.Key == k && a.field == fieldNone {
				continue next
			}
		}
		kept = append(kept, a)
	}
	return kept
}
