package engine

import (
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// widen gives r, read off the engine's spans, the arrival and end of the
// outermost service around them: at once where one end is all there is, else
// by what it returns, once it is known how the two clocks stand to each other.
// gates are where it waited on the way to the engine, which had it by until at
// the latest.
func widen(r *trace.Request, outer *node, gates []trace.Interval, until trace.Time) *nested {
	rounding := tolerance(r)
	os, _ := outer.start.Get()
	oe, _ := outer.end.Get()
	es, okS := r.Arrival.Get()
	ee, okE := r.Completed.Get()
	switch {
	case !okS && !okE:
	case !okS:
		if ee >= os && ee <= oe.Add(rounding) {
			r.Arrival, r.Completed = trace.At(os, trace.Measured), trace.At(max(oe, ee), trace.Measured)
			claim(r, trace.Completion, trace.Measured, ee, oe)
		}
	case !okE:
		if es >= os.Add(-rounding) && es <= oe {
			r.Arrival = trace.At(min(os, es), trace.Measured)
			n := nested{gates: gates, until: until}
			n.arrives(r, trace.Arrival, trace.Measured, os, es)
		}
	default:
		n := &nested{outer: process{outer.res.service, outer.res.replica}, inner: process{r.Service, r.Replica}, start: os, end: oe, gates: gates, until: until}
		r.Outer = trace.Some(trace.Nesting{Service: n.outer.service, Replica: n.outer.replica, Before: es.Sub(os), After: oe.Sub(ee)})
		return n
	}
	return nil
}

func claim(r *trace.Request, p trace.Phase, basis trace.Basis, a, z trace.Time) {
	if z > a {
		r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: basis, Start: a, End: z})
	}
}

// widen gives r the arrival and end of the span around it. Where c says by how
// much its clock is off, no duration changes, the engine's part is moved as a
// whole, and which side of it the rest of the outer span lies on is not known.
// Where no constant explains that it sticks out, nothing is moved but a served
// request that would begin before its call.
func (n *nested) widen(r *trace.Request, c offset) {
	rounding := tolerance(r)
	es, ee := r.Arrival.At, r.Completed.At
	ours, theirs := ee.Sub(es), n.end.Sub(n.start)
	early, late := n.start.Sub(es), ee.Sub(n.end)
	fits := early <= rounding && late <= rounding
	whole := func() {
		r.Arrival, r.Completed = trace.At(min(n.start, es), trace.Measured), trace.At(max(n.end, ee), trace.Measured)
		n.arrives(r, trace.Arrival, trace.Measured, n.start, es)
		claim(r, trace.Completion, trace.Measured, ee, n.end)
	}
	if fits && c.by == 0 {
		whole()
		return
	}
	out := "child starts " + units.Duration(early, 0) + " before its parent"
	switch {
	case fits:
		out = "child lies inside its parent"
	case early <= rounding:
		out = "child ends " + units.Duration(late, 0) + " after its parent"
	}
	out += "; engine span " + units.Duration(ours, 0) + ", outer " + units.Duration(theirs, 0)
	overlap := min(ee, n.end).Sub(max(es, n.start))
	inside := func(by time.Duration) {
		move(r, by)
		es, ee = es.Add(by), ee.Add(by)
		r.Arrival, r.Completed = trace.At(min(n.start, es), trace.Measured), trace.At(max(n.end, ee), trace.Measured)
		n.arrives(r, trace.Arrival|trace.Completion, trace.Derived, n.start, es)
		claim(r, trace.Arrival|trace.Completion, trace.Derived, ee, n.end)
	}
	switch {
	case c.by != 0 && early <= c.by+rounding && late <= rounding-c.by:
		inside(c.by)
		sign := ""
		if c.by > 0 {
			sign = "+"
		}
		note(r, trace.ClockSkew, "%s, moved by %s%s%s", out, sign, units.Duration(c.by, 0), c.others())
	case fits: // the clock is off for others
		whole()
	case ours > theirs+rounding:
		note(r, trace.ClockSkew, "%s, too short to be used", out)
	case 2*overlap >= ours && early > rounding && r.Outcome == trace.OK:
		// No engine begins before it is called. Both lengths are of one clock each
		// and stand; how the rest divides into before and after is not known.
		inside(early)
		note(r, trace.ClockSkew, "%s; no constant offset explains it%s: put at its parent's start alone", out, c.others())
	case 2*overlap >= ours:
		// What sticks out counts as outside of the request: an end may be the
		// caller's, who did not wait for the engine's.
		r.Arrival, r.Completed = trace.At(n.start, trace.Measured), trace.At(n.end, trace.Measured)
		n.arrives(r, trace.Arrival, trace.Measured, n.start, es)
		claim(r, trace.Completion, trace.Measured, ee, n.end)
		note(r, trace.ClockSkew, "%s; no constant offset explains it%s: nothing was moved", out, c.others())
	default:
		note(r, trace.ClockSkew, "%s; no constant offset explains it%s: the outer span was not used", out, c.others())
	}
}

// arrives claims [a, z), before the engine had the request: p, but where it
// waited.
func (n *nested) arrives(r *trace.Request, p trace.Phase, basis trace.Basis, a, z trace.Time) {
	if len(n.gates) == 0 {
		claim(r, p, basis, a, z)
		return
	}
	waits, covered := between(n.gates, a, min(z, n.until))
	r.Intervals = append(r.Intervals, waits...)
	for _, s := range without([]stretch{{a, z}}, covered) {
		claim(r, p, basis, s.from, s.to)
	}
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
