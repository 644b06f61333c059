package analyze

import "github.com/traceview/traceview/trace"

// Span is the stretch from the first arrival to the last completion of the
// requests it has seen. The zero Span has seen none.
type Span struct {
	start, end trace.Opt[trace.Time]
	mixed      bool // a clock has no calendar
}

// See takes r into account.
func (s *Span) See(r *trace.Request) {
	s.mixed = s.mixed || r.Clock != trace.ClockUnix
	if t, ok := r.Arrival.Get(); ok {
		s.start = trace.Some(min(t, s.start.Or(t)))
	}
	if t, ok := r.Completed.Get(); ok {
		s.end = trace.Some(max(t, s.end.Or(t)))
	}
}

// Merge takes into account what o has seen.
func (s *Span) Merge(o Span) {
	s.mixed = s.mixed || o.mixed
	if t, ok := o.start.Get(); ok {
		s.start = trace.Some(min(t, s.start.Or(t)))
	}
	if t, ok := o.end.Get(); ok {
		s.end = trace.Some(max(t, s.end.Or(t)))
	}
}

// Bounds returns the ends of the stretch, Unix nanoseconds: absent where no
// request tells, and where some clock is not unix.
func (s *Span) Bounds() (start, end trace.Opt[trace.Time]) {
	if s.mixed {
		return
	}
	return s.start, s.end
}
