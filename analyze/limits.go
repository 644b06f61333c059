package analyze

import (
	"math"
	"slices"

	"github.com/traceview/traceview/trace"
)

// How a limit is known, best first.
const (
	LimitStated   = "stated"   // by the user
	LimitData     = "data"     // an attribute of the input says so
	LimitLog      = "log"      // the engine's log says so
	LimitReadings = "readings" // the engine's own counts over time show it
	LimitInferred = "inferred" // read off the instants at which waiting requests were refused
)

// Limit is one limit of an engine. Absent is not known.
type Limit struct {
	Value trace.Opt[int64] `json:"value"`
	How   string           `json:"how"` // one of the Limit words; "" where not known
	// What supports an inferred limit: the share of the refused time that lies
	// at it, in how many stretches, and by how much those differ. Of readings:
	// the share of those with a queue, how many, and by how much they differ.
	Share     trace.Opt[float64] `json:"refused_time_share"`
	Intervals int64              `json:"refused_intervals"`
	Spread    trace.Opt[float64] `json:"spread_share"`
	// A limit that no stretch shows exactly may still be bracketed: at least
	// Low, below High.
	Low  trace.Opt[int64] `json:"low"`
	High trace.Opt[int64] `json:"high"`
}

// Limits are those of one replica.
type Limits struct {
	Slots  Limit `json:"slots"`         // requests that run at once
	Budget Limit `json:"budget_tokens"` // tokens in a step
	KV     Limit `json:"kv_tokens"`     // tokens resident in memory
	// RefusedNS is the time during which a waiting request had been looked at
	// and refused: what inferred limits are read from.
	RefusedNS int64 `json:"refused_ns"`
	// OverNS is how long more ran than the slots that are stated; 0 where they
	// are not. See [ReplicaWaits.Disproved].
	OverNS int64 `json:"over_slots_ns"`
	// Changed: the engine's log states several values of a limit while it
	// served these requests. Such a limit is taken as not stated.
	Changed bool `json:"log_limits_changed"`
	// Scarce is what varies clearly less than the other while requests are
	// refused: "slots" or "kv_cache"; "" where neither does.
	Scarce string `json:"scarce"`
}

func known(v int64, how string) Limit { return Limit{Value: trace.Some(v), How: how} }

const (
	minReadings   = 10   // that have a queue, or show memory in use
	leastUsage    = 0.05 // of memory, for a reading to tell its size
	readingSpread = 0.1  // by how much the middle half of them may differ
)

// fromReadings reads limits off the engine's own counts: slots where all are
// taken whenever there is a queue, memory where what requests hold is a steady
// multiple of the share in use.
func (p *replicaWork) fromReadings(l *Limits) {
	if !l.Slots.Value.Present() {
		most, queues, full := 0, 0, 0
		for _, r := range p.readings {
			most = max(most, r.Running.Or(0))
		}
		for _, r := range p.readings {
			if r.Waiting.Or(0) > 0 && r.Running.Present() {
				if queues++; r.Running.Or(0) == most {
					full++
				}
			}
		}
		if most > 0 && queues >= minReadings && 10*full >= 9*queues {
			l.Slots = known(int64(most), LimitReadings)
			l.Slots.Share, l.Slots.Intervals = share(int64(full), int64(queues)), int64(full)
		}
	}
	if v := p.sizes; !l.KV.Value.Present() && len(v) >= minReadings {
		slices.Sort(v)
		mid := v[len(v)/2]
		if spread := (v[len(v)*3/4] - v[len(v)/4]) / mid; spread <= readingSpread && mid >= 1 && mid < farthest {
			l.KV = known(int64(math.Round(mid)), LimitReadings)
			l.KV.Intervals, l.KV.Spread = int64(len(v)), trace.Some(spread)
		}
	}
}

// weighted is a value with the time for which it stood.
type weighted struct{ v, t float64 }

// scatter sums up a value over time.
type scatter struct{ t, sum, squares float64 }

func (s *scatter) add(v, t float64) {
	s.t += t
	s.sum += v * t
	s.squares += v * v * t
}

// share is the standard deviation as a share of the mean; 0 without one.
func (s *scatter) share() float64 {
	if s.sum <= 0 {
		return 0
	}
	mean := s.sum / s.t
	return math.Sqrt(max(0, s.squares/s.t-mean*mean)) / mean
}

// limits infers what is not stated.
func (p *replicaWork) limits(stated Limits) Limits {
	l := stated
	p.fromReadings(&l)
	var byN []int64 // refused time by the number running
	var atN []int64 // stretches
	var n, u scatter
	evidence := make([]*stretch, 0, len(p.stretches))
	stall := 0
	for i := range p.stretches {
		s := &p.stretches[i]
		for stall < len(p.stalls) && p.stalls[stall].EndNS-p.tl.origin <= s.start {
			stall++
		}
		frozen := stall < len(p.stalls) && p.stalls[stall].StartNS-p.tl.origin <= s.start
		if d := s.end - s.start; s.flags&refused != 0 && d >= p.tol && d > 0 && !frozen {
			evidence = append(evidence, s)
		}
	}
	for _, s := range evidence {
		d := s.end - s.start
		for int(s.n) >= len(byN) {
			byN, atN = append(byN, 0), append(atN, 0)
		}
		byN[s.n] += d
		atN[s.n]++
		l.RefusedNS += d
		n.add(float64(s.n), float64(d))
		u.add(float64(s.u), float64(d))
	}
	if l.RefusedNS <= 0 {
		return l
	}
	share := func(t int64) float64 { return float64(t) / float64(l.RefusedNS) }
	if !l.Slots.Value.Present() {
		var above, ever int64 // time with more running, while refused and at all
		for c := len(p.timeAt) - 1; c > 0 && share(above) <= 0.02 && float64(ever) <= 0.005*float64(p.busy); c-- {
			ever += p.timeAt[c]
			if c >= len(byN) {
				continue
			}
			if share(byN[c]) < 0.05 || atN[c] < 10 {
				above += byN[c]
				continue
			}
			var near int64
			for k := max(1, c-3); k < c; k++ {
				near = max(near, byN[k])
			}
			if share(byN[c]) >= 0.25 || byN[c] >= 2*near {
				l.Slots = known(int64(c), LimitInferred)
				l.Slots.Share, l.Slots.Intervals = trace.Some(share(byN[c])), atN[c]
			}
			break
		}
	}
	switch {
	case u.sum <= 0: // no token counts
	case n.share()*1.5 < u.share():
		l.Scarce = CauseSlots.String()
	case u.share()*1.5 < n.share():
		l.Scarce = CauseKVCache.String()
	}
	if !l.KV.Value.Present() {
		var us []weighted
		var t float64
		var n, u scatter
		c := l.Slots.Value.Or(math.MaxInt64)
		for _, s := range evidence {
			if d := s.end - s.start; s.flags&prefilling == 0 && int64(s.n) < c {
				us = append(us, weighted{float64(s.u), float64(d)})
				t += float64(d)
				n.add(float64(s.n), float64(d))
				u.add(float64(s.u), float64(d))
			}
		}
		if len(us) >= 15 && t >= 0.02*float64(l.RefusedNS) {
			low, mid := weightedQuantile(us, t, 0.05), weightedQuantile(us, t, 0.5)
			if (mid-low)/mid > 0.12 && l.Scarce == CauseKVCache.String() {
				// The lowest are of times at which somebody who was pushed back
				// unseen, and is large, was next.
				low = weightedQuantile(us, t, 0.25)
			}
			// Where what runs is the steadier, it is slots, some of them taken by
			// requests that are not seen: many that run hold about as much at any
			// time.
			if mid > 0 && low >= 1 && (mid-low)/mid <= 0.12 && u.share() < n.share() {
				p.guessed = 1.5*u.share() > n.share()
				l.KV = known(int64(math.Round(low)), LimitInferred)
				l.KV.Share, l.KV.Intervals = trace.Some(t/float64(l.RefusedNS)), int64(len(us))
				l.KV.Spread = trace.Some((mid - low) / mid)
			}
		}
	}
	if !l.Budget.Value.Present() && 0 < p.took.whole && p.took.whole < p.took.parts {
		// Only from both sides: what was taken whole bounds nothing by itself.
		// A long prompt takes many steps with no event in between to tell, so
		// that a small budget seems to be the largest prompt.
		l.Budget.Low, l.Budget.High = trace.Some(int64(p.took.whole)), trace.Some(int64(p.took.parts))
	}
	return l
}

// weightedQuantile sorts v; t is the sum of its times.
func weightedQuantile(v []weighted, t, q float64) float64 {
	slices.SortFunc(v, func(x, y weighted) int {
		switch {
		case x.v < y.v:
			return -1
		case x.v > y.v:
			return 1
		}
		return 0
	})
	var seen float64
	for _, x := range v {
		if seen += x.t; seen >= q*t {
			return x.v
		}
	}
	return v[len(v)-1].v
}
