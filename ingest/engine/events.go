package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/traceview/traceview/trace"
)

// A milestone is a point in a request's life for which an engine writes an
// event.
type milestone uint8

const (
	queuedMark milestone = iota + 1
	scheduledMark
	preemptedMark
	resumedMark
	firstTokenMark
	lastTokenMark
	finishedMark
	transferMark    // the KV cache begins to move
	transferredMark // it has moved
	splitMark       // a router sent it to two engines
)

var milestones = map[string]milestone{
	"queued": queuedMark, "scheduled": scheduledMark, "preempted": preemptedMark, "resumed": resumedMark,
	"first_token": firstTokenMark, "last_token": lastTokenMark, "finished": finishedMark,
	"kv_cache_transfer_start": transferMark, "kv_cache_transfer_end": transferredMark, "ctx_server.selected": splitMark,
}

type mark struct {
	at   trace.Time
	what milestone
}

// milestoneOf reads an event's name: in any case, also after "journey.".
func milestoneOf(name string) milestone {
	if len(name) > 32 {
		return 0
	}
	return milestones[strings.TrimPrefix(strings.ToLower(name), "journey.")]
}

// first returns the instant of the first such milestone.
func first(marks []mark, what milestone) trace.Instant {
	var in trace.Instant
	for _, m := range marks {
		if m.what == what && (!in.Present() || m.at < in.At) {
			in = trace.At(m.at, trace.Measured)
		}
	}
	return in
}

// hasScheduling reports whether the events say when it waited.
func hasScheduling(marks []mark) bool {
	return first(marks, queuedMark).Present() || first(marks, scheduledMark).Present()
}

// readEvents claims what lies between the scheduler's events. A wait after
// QUEUED is queueing, however often it happens (a session queues once for each
// chunk of input); one after PREEMPTED is preempted. Work before the first
// token is prefill, after it decode, and one of both where that token's time is
// not known. r has its arrival, end, and first token where an attribute told
// it. e2e is the engine's own figure: where the last token lacks an event, it
// ends decode.
func readEvents(r *trace.Request, marks []mark, e2e trace.Instant) {
	marks = slices.Clone(marks)
	slices.SortStableFunc(marks, func(x, y mark) int { return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.what, y.what)) })

	r.Queued, r.Scheduled = first(marks, queuedMark), first(marks, scheduledMark)
	if in := first(marks, firstTokenMark); in.Present() {
		r.FirstToken = in
	}
	last := first(marks, lastTokenMark)
	if !last.Present() {
		if at, ok := first(marks, finishedMark).Get(); ok {
			last = trace.At(at, trace.Derived)
		}
	}
	if !last.Present() && e2e.Present() {
		last = trace.At(e2e.At, trace.Derived)
	}
	r.LastToken = last

	claim := func(p trace.Phase, from, to trace.Time, basis trace.Basis) {
		if to > from {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: basis, Start: from, End: to})
		}
	}
	work := func(from, to trace.Time, basis trace.Basis) {
		first, ok := r.FirstToken.Get()
		if !ok {
			claim(trace.Prefill|trace.Decode, from, to, basis)
			return
		}
		claim(trace.Prefill, from, min(to, first), basis)
		claim(trace.Decode, max(from, first), to, basis)
	}
	var (
		state trace.Phase // what goes on since from; Prefill stands for work
		from  trace.Time
		count int
	)
	if a, ok := r.Arrival.Get(); ok && r.Queued.Present() {
		claim(trace.Arrival, a, r.Queued.At, trace.Measured)
	}
	change := func(to trace.Phase, at trace.Time, basis trace.Basis) {
		switch state {
		case trace.Queueing, trace.Preempted:
			claim(state, from, at, basis)
		case trace.Prefill:
			work(from, at, basis)
		}
		state, from = to, at
	}
	for _, m := range marks {
		switch m.what {
		case queuedMark:
			if state != trace.Preempted && state != trace.Queueing {
				change(trace.Queueing, m.at, trace.Measured)
			}
		case preemptedMark:
			if state != trace.Preempted {
				change(trace.Preempted, m.at, trace.Measured)
				count++
			}
		case scheduledMark, resumedMark:
			if state != trace.Prefill {
				change(trace.Prefill, m.at, trace.Measured)
			}
		case lastTokenMark, finishedMark:
			change(trace.Unattributed, m.at, trace.Measured)
		}
	}
	if last.Present() && last.At > from {
		change(trace.Unattributed, last.At, last.Basis)
	}
	if count > 0 { // without any, the engine may not write them
		r.Preemptions = trace.Some(count)
	}
	if end, ok := r.Completed.Get(); ok && last.Present() {
		claim(trace.Completion, last.At, end, last.Basis)
	}
	if b := r.Breakdown(); max(b.Outside, b.Conflict, b.Doubled) > tolerance(r) {
		note(r, trace.Inconsistent, "events claim %v outside the span or twice", b.Outside+b.Conflict+b.Doubled)
	}
}
