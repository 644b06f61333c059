package engine

import (
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// widen gives r, read off the engine's spans, the arrival and end of the
// outermost service around them. Where the engine's span sticks out of it, two
// clocks differ: no duration changes, the engine's part is moved as a whole,
// and which side of it the rest of the outer span lies on is not known.
func widen(r *trace.Request, outer *node) {
	rounding := tolerance(r)
	os, _ := outer.start.Get()
	oe, _ := outer.end.Get()
	es, okS := r.Arrival.Get()
	ee, okE := r.Completed.Get()
	claim := func(p trace.Phase, basis trace.Basis, a, z trace.Time) {
		if z > a {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: basis, Start: a, End: z})
		}
	}
	switch {
	case !okS && !okE:
		return
	case !okS:
		if ee >= os && ee <= oe.Add(rounding) {
			r.Arrival, r.Completed = trace.At(os, trace.Measured), trace.At(max(oe, ee), trace.Measured)
			claim(trace.Completion, trace.Measured, ee, oe)
		}
		return
	case !okE:
		if es >= os.Add(-rounding) && es <= oe {
			r.Arrival = trace.At(min(os, es), trace.Measured)
			claim(trace.Arrival, trace.Measured, os, es)
		}
		return
	}
	ours, theirs := ee.Sub(es), oe.Sub(os)
	early, late := os.Sub(es), ee.Sub(oe)
	r.Outer = trace.Some(trace.Nesting{Service: outer.res.service, Replica: outer.res.replica, Before: -early, After: -late})
	if early <= rounding && late <= rounding {
		r.Arrival, r.Completed = trace.At(min(os, es), trace.Measured), trace.At(max(oe, ee), trace.Measured)
		claim(trace.Arrival, trace.Measured, os, es)
		claim(trace.Completion, trace.Measured, ee, oe)
		return
	}
	out := "child starts " + units.Duration(early, 0) + " before its parent"
	if early <= rounding {
		out = "child ends " + units.Duration(late, 0) + " after its parent"
	}
	if ours > theirs+rounding {
		note(r, trace.ClockSkew, "%s; engine span %s, outer %s, too short to be used", out, units.Duration(ours, 0), units.Duration(theirs, 0))
		return
	}
	by, sign := early, "+"
	if early <= rounding {
		by, sign = -late, ""
	}
	move(r, by)
	es, ee = es.Add(by), ee.Add(by)
	r.Arrival, r.Completed = trace.At(os, trace.Measured), trace.At(max(oe, ee), trace.Measured)
	claim(trace.Arrival|trace.Completion, trace.Derived, os, es)
	claim(trace.Arrival|trace.Completion, trace.Derived, ee, oe)
	note(r, trace.ClockSkew, "%s; engine span %s, outer %s, moved by %s%s", out,
		units.Duration(ours, 0), units.Duration(theirs, 0), sign, units.Duration(by, 0))
}

// move shifts all of r's instants and intervals, which are derived from then on.
func move(r *trace.Request, by time.Duration) {
	for _, in := range []*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
		if !in.Present() {
			continue
		}
		in.At, in.Basis = in.At.Add(by), max(in.Basis, trace.Derived)
		if in.At < 0 {
			*in = trace.Instant{}
		}
	}
	for i := range r.Intervals {
		iv := &r.Intervals[i]
		iv.Start, iv.End, iv.Basis = iv.Start.Add(by), iv.End.Add(by), max(iv.Basis, trace.Derived)
	}
}

// fillIn takes from an outer span what the engine's does not tell. counts: its
// token counts are this request's alone.
func fillIn(r *trace.Request, outer *node, counts bool) {
	var f fields
	f.read(outer)
	if r.Model == "" {
		r.Model = f.text(fieldResponseModel, fieldRequestModel)
	}
	if r.ID == "" {
		r.ID = f.text(fieldRequestID, fieldResponseID)
	}
	if !counts {
		return
	}
	for _, c := range []struct {
		to *trace.Opt[int]
		k  field
	}{{&r.Input, fieldInput}, {&r.Output, fieldOutput}, {&r.Cached, fieldCached}, {&r.MaxTokens, fieldMaxTokens}} {
		if !c.to.Present() {
			*c.to = f.count(r, c.k)
		}
	}
}
