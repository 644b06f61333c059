package analyze

import (
	"cmp"
	"math"
	"slices"

	"github.com/traceview/traceview/trace"
)

// engines sums up the engines' own statements, one line an engine, and infers
// the mean wait from them where no request tells its own.
func (w *work) engines() {
	w.rep.Engines = []EngineState{}
	// A log's parts are one engine: ingest names servers apart.
	type id struct{ engine, service, replica string }
	byEngine := map[id][]trace.Reading{}
	bounded := w.opts.From.set || w.opts.To.set
	for _, r := range w.readings {
		if bounded && !inWindow(w.opts.From, w.opts.To, r.Clock, r.At, &w.origin) {
			continue
		}
		k := id{r.Source.Engine, r.Service, r.Replica}
		byEngine[k] = append(byEngine[k], r)
	}
	var (
		mean, low, high float64 // ∫ waiting dt over all engines
		from, to        int64   = math.MaxInt64, math.MinInt64
		clock                   = trace.ClockUnknown
		depthKnown      bool
	)
	ids := make([]id, 0, len(byEngine))
	for k := range byEngine {
		ids = append(ids, k)
	}
	slices.SortFunc(ids, func(x, y id) int {
		return cmp.Or(cmp.Compare(x.service, y.service),
			cmp.Compare(x.replica, y.replica), cmp.Compare(x.engine, y.engine))
	})
	for _, k := range ids {
		rs := byEngine[k]
		slices.SortFunc(rs, compareReadings)
		e := EngineState{
			Engine: k.engine, Service: k.service, Replica: k.replica, File: rs[0].Source.Pos.File,
			Samples: int64(len(rs)), StartNS: int64(rs[0].At), EndNS: int64(rs[len(rs)-1].At),
		}
		var running, waiting, usage held
		for i := range rs {
			var dt float64
			if i+1 < len(rs) {
				dt = float64(rs[i+1].At) - float64(rs[i].At)
			}
			running.add(number(rs[i].Running), dt)
			waiting.add(number(rs[i].Waiting), dt)
			usage.add(rs[i].KVUsage, dt)
			if n, ok := rs[i].Preemptions.Get(); ok {
				e.Preemptions = trace.Some(max(e.Preemptions.Or(0), int64(n)))
			}
			if i+1 < len(rs) {
				if a, ok := rs[i].Waiting.Get(); ok {
					b := rs[i+1].Waiting.Or(a)
					mean += float64(a+b) / 2 * dt
					low += float64(min(a, b)) * dt
					high += float64(max(a, b)) * dt
					depthKnown = true
				}
			}
		}
		e.RunningMean, e.WaitingMean, e.KVUsageMean = running.mean(), waiting.mean(), usage.mean()
		e.RunningMax, e.WaitingMax, e.KVUsageMax = whole(running.top), whole(waiting.top), usage.top
		from, to, clock = min(from, e.StartNS), max(to, e.EndNS), rs[0].Clock
		w.rep.Engines = append(w.rep.Engines, e)
	}
	w.engineLimits()
	if w.tells || !depthKnown || w.mixed || clock != w.clock {
		return
	}
	var arrivals int64
	for _, r := range w.rows {
		if r.has&hasArrival != 0 && r.arrival >= from && r.arrival < to {
			arrivals++
		}
	}
	if arrivals == 0 || !(high/float64(arrivals) < math.MaxInt64) {
		return
	}
	per := func(v float64) int64 { return int64(math.Round(v / float64(arrivals))) }
	w.rep.LogWait = &LittleWait{Arrivals: arrivals, MeanNS: per(mean), LowNS: per(low), HighNS: per(high)}
}

func compareReadings(x, y trace.Reading) int {
	return cmp.Or(cmp.Compare(x.At, y.At),
		cmp.Compare(x.Source.Pos.Offset, y.Source.Pos.Offset), cmp.Compare(x.Source.Pos.Line, y.Source.Pos.Line),
		cmp.Compare(x.Running.Or(-1), y.Running.Or(-1)), cmp.Compare(x.Waiting.Or(-1), y.Waiting.Or(-1)),
		cmp.Compare(x.KVUsage.Or(-1), y.KVUsage.Or(-1)))
}

// held averages a value that stands until the next one.
type held struct {
	area, time, sum float64
	n               int
	top             trace.Opt[float64]
}

func (h *held) add(o trace.Opt[float64], dt float64) {
	v, ok := o.Get()
	if !ok || math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	h.area += v * dt
	h.time += dt
	h.sum += v
	h.n++
	if t, ok := h.top.Get(); !ok || v > t {
		h.top = trace.Some(v)
	}
}

func (h *held) mean() trace.Opt[float64] {
	switch {
	case h.time > 0:
		return trace.Some(h.area / h.time)
	case h.n > 0: // one reading, or all at one instant
		return trace.Some(h.sum / float64(h.n))
	}
	return trace.Opt[float64]{}
}

func number(o trace.Opt[int]) trace.Opt[float64] {
	if v, ok := o.Get(); ok {
		return trace.Some(float64(v))
	}
	return trace.Opt[float64]{}
}

func whole(o trace.Opt[float64]) trace.Opt[int64] {
	if v, ok := o.Get(); ok {
		return trace.Some(int64(v))
	}
	return trace.Opt[int64]{}
}

// little checks Little's law, over all and for each replica. It says nothing
// where times are too long to be added up (tooLong).
func (w *work) little() {
	w.rep.Little = []LittleCheck{}
	win := w.rep.Card.Window
	if win == nil || win.LengthNS == 0 || !w.tells {
		return
	}
	// A window that does not fit its type has come out below zero.
	if w.tooLong = win.LengthNS < 0; w.tooLong {
		return
	}
	sum := func(to *int64, ns int64) {
		w.tooLong = w.tooLong || ns > math.MaxInt64-*to
		*to += ns
	}
	type tally struct {
		arrivals, told int64
		waited         int64 // by those that told
		inside         int64 // waiting inside the window
	}
	var total tally
	byReplica := map[string]*tally{}
	see := func(r *row, arrived bool) {
		var inside int64
		for _, s := range w.waits.get(r.wait, r.waits) {
			sum(&inside, max(0, min(s.end, w.end)-max(s.start, w.start)))
		}
		add := func(t *tally) {
			sum(&t.inside, inside)
			if !arrived {
				return
			}
			if r.has&hasArrival != 0 {
				t.arrivals++
			}
			if r.has&tellsWaiting != 0 {
				t.told++
				sum(&t.waited, w.waiting(r))
			}
		}
		add(&total)
		if name := w.dimRows[r.dim].replica; name != "" {
			if byReplica[name] == nil {
				byReplica[name] = &tally{}
			}
			add(byReplica[name])
		}
	}
	for _, r := range w.rows {
		see(r, true)
	}
	for _, r := range w.others {
		if r.has&hasArrival != 0 && r.clock == w.clock {
			see(r, false)
		}
	}
	if w.tooLong {
		return
	}
	check := func(name trace.Opt[string], t *tally) {
		if t.told == 0 {
			return
		}
		length := float64(win.LengthNS)
		c := LittleCheck{
			Replica: name, MeanWaiting: float64(t.inside) / length,
			ArrivalsPerS: float64(t.arrivals) * 1e9 / length, MeanWaitNS: divide(t.waited, t.told),
		}
		if c.MeanWaiting > 0 {
			d := float64(t.arrivals)/length*float64(t.waited)/float64(t.told)/c.MeanWaiting - 1
			c.Deviation, c.BeyondPercent = trace.Some(d), math.Abs(d) > 0.01
		}
		if c.BeyondPercent {
			switch {
			case t.told < t.arrivals:
				c.Reason = "some requests do not tell how long they waited"
			case t.told > t.arrivals:
				c.Reason = "some requests have no arrival"
			case win.Stated:
				c.Reason = "edges: requests wait across the ends of the window"
			default:
				c.Reason = "some waiting lies outside the window or is claimed by other phases too"
			}
		}
		w.rep.Little = append(w.rep.Little, c)
	}
	check(trace.Opt[string]{}, &total)
	if len(byReplica) < 2 {
		return
	}
	names := make([]string, 0, len(byReplica))
	for n := range byReplica {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		check(trace.Some(n), byReplica[n])
	}
}
