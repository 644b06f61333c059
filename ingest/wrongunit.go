package ingest

import (
	"slices"
	"time"

	"github.com/traceview/traceview/trace"
)

// unitWatch tells values in another unit than the format's by what cannot be:
// phases a thousandth of the request that they fill, phases longer than it,
// instants just behind 1970. Of phases one request proves nothing, most of them do.
type unitWatch struct {
	timed, early     int64 // requests on the Unix clock; of them before 1976
	served           int64 // ok, with tokens, and phases told or too long
	thousandth, long int64
	at               [3]trace.Pos // the first of early, thousandth, long
}

const (
	fewestServed = 5
	// Microseconds of this century, read as nanoseconds, are in January 1970.
	early = trace.Time(200_000_000_000_000_000)
)

func (u *unitWatch) see(r *trace.Request) {
	count := func(n *int64, i int) {
		if *n++; *n == 1 {
			u.at[i] = r.Source.Pos
		}
	}
	if t, ok := r.Arrival.Get(); ok && r.Clock == trace.ClockUnix {
		u.timed++
		if t < early {
			count(&u.early, 0)
		}
	}
	e2e, ok := r.E2E().Get()
	if !ok || e2e <= 0 || r.Outcome != trace.OK || r.Output.Or(1) == 0 {
		return
	}
	if slices.ContainsFunc(r.Issues, func(is trace.Issue) bool { return is.Code == trace.PhaseTooLong }) {
		u.served++
		count(&u.long, 2)
		return
	}
	const engine = trace.Queueing | trace.Prefill | trace.Decode | trace.Preempted | trace.Transfer
	var told time.Duration
	for _, iv := range r.Intervals {
		if iv.Phase&^engine == 0 && iv.End > iv.Start {
			told += iv.End.Sub(iv.Start)
		}
	}
	if told == 0 {
		return
	}
	// Between 1/2000 and 1/900: the whole of it in milliseconds for seconds.
	if u.served++; told <= e2e/900 && told >= e2e/2000 {
		count(&u.thousandth, 1)
	}
}

// unitIssues says what was found, once all requests have been seen.
func (run *run) unitIssues() {
	u := &run.units
	say := func(i int, format string, args ...any) {
		is := trace.NewIssue(trace.WrongUnit, u.at[i], format, args...)
		run.issue(&is)
	}
	if u.early > 0 { // one is enough to make the window last since 1970
		say(0, "%d of %d requests arrived before 1976: are their times in milliseconds or microseconds?", u.early, u.timed)
	}
	if u.served < fewestServed {
		return
	}
	if 10*u.thousandth >= 9*u.served {
		say(1, "in %d of %d requests the phases are a thousandth of the request: is their unit a thousand times the format's?", u.thousandth, u.served)
	}
	if 10*u.long >= 9*u.served {
		say(2, "in %d of %d requests a phase is longer than the request: are they in milliseconds instead of seconds?", u.long, u.served)
	}
}
