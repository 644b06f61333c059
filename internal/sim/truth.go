package sim

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/traceview/traceview/trace"
)

// Wait is a stretch of a request's waiting that has one cause.
type Wait struct {
	Start, End trace.Time
	// Cause is the state of the replica then. The first of these that holds:
	//
	//	hold      nothing runs, or the policy keeps the queue out
	//	stall     requests run and the replica is frozen
	//	slots     all are taken
	//	kv_cache  the head of the queue does not fit, or someone was just pushed back
	//	prefill   the step's tokens are used up, or most of it is prefill
	//	step      the step under way has to end
	Cause string
	// Avoidable: another replica had no queue and a free slot. Never where the
	// cause is step.
	Avoidable bool
	// Held is how much of the stretch each of the engine's tenants is charged
	// with, in nanoseconds, by what its requests hold of the scarce thing: slots,
	// blocks, prompt tokens in the step, or time of the step. It adds up to the
	// stretch, but is zero for hold and stall.
	Held []float64
}

// Waits returns the waiting of the i-th request, whatever its cause: stretch by
// stretch, in order. The stretches add up to the waiting in its breakdown.
func (r *Run) Waits(i int) []Wait {
	req := r.Requests[i]
	var waits []Wait
	for _, s := range req.Segments(nil) {
		if s.Phase.Kind() != trace.Waiting {
			continue
		}
		for k := range r.truth {
			if replicaName(k) == req.Replica {
				waits = r.truth[k].cut(waits, s.Start, s.End)
			}
		}
	}
	return waits
}

// truth is what happened on a replica, as pieces of time without gaps.
type truth struct {
	tenants int
	pieces  []piece
	held    []float64 // len(pieces)+1 rows: what each tenant was charged before
	until   trace.Time
	free    []span // no queue and a free slot
	spare   []span // the same of any other replica, ascending and apart
}

// piece is a stretch of a replica's time.
type piece struct {
	start trace.Time // it ends where the next begins
	cause string     // empty: nobody waited
}

type span struct{ start, end trace.Time }

// add appends a piece up to end in which weights, one a tenant, were held.
func (tr *truth) add(end trace.Time, cause string, weights []float64, free bool) {
	if len(tr.pieces) == 0 {
		tr.held = make([]float64, tr.tenants)
	}
	tr.pieces = append(tr.pieces, piece{tr.until, cause})
	row := tr.held[len(tr.held)-tr.tenants:]
	sum := 0.0
	for _, w := range weights {
		sum += w
	}
	for k, before := range row {
		if sum > 0 {
			before += weights[k] / sum * float64(end.Sub(tr.until))
		}
		tr.held = append(tr.held, before)
	}
	if free {
		if n := len(tr.free); n > 0 && tr.free[n-1].end == tr.until {
			tr.free[n-1].end = end
		} else {
			tr.free = append(tr.free, span{tr.until, end})
		}
	}
	tr.until = end
}

// cut appends to waits the causes from start to end.
func (tr *truth) cut(waits []Wait, start, end trace.Time) []Wait {
	k, _ := slices.BinarySearchFunc(tr.pieces, start, func(p piece, t trace.Time) int {
		if p.start <= t {
			return -1
		}
		return 1
	})
	from := len(waits)
	for k = max(0, k-1); start < end; k++ {
		// Behind the last piece, or where nobody waits: an event that was seen
		// late. Nothing is scarce then.
		cause, begin, stop := "step", start, end
		var before, after []float64
		if k < len(tr.pieces) {
			begin, stop = tr.pieces[k].start, tr.until
			if k+1 < len(tr.pieces) {
				stop = tr.pieces[k+1].start
			}
			if c := tr.pieces[k].cause; c != "" {
				cause = c
			}
			before, after = tr.held[k*tr.tenants:(k+1)*tr.tenants], tr.held[(k+1)*tr.tenants:(k+2)*tr.tenants]
		}
		for to := min(end, stop); start < to; {
			next, spare := to, false
			if cause != "step" {
				next, spare = tr.mark(start, to)
			}
			n := len(waits) - 1
			if n < from || waits[n].Cause != cause || waits[n].Avoidable != spare {
				waits = append(waits, Wait{Start: start, Cause: cause, Avoidable: spare, Held: make([]float64, tr.tenants)})
				n++
			}
			waits[n].End = next
			for i := range before {
				waits[n].Held[i] += (after[i] - before[i]) * float64(next.Sub(start)) / float64(stop.Sub(begin))
			}
			start = next
		}
	}
	return waits
}

// mark returns how far, up to end, another replica stays as it is at start:
// spare or not.
func (tr *truth) mark(start, end trace.Time) (next trace.Time, spare bool) {
	k, _ := slices.BinarySearchFunc(tr.spare, start, func(s span, t trace.Time) int {
		if s.end <= t {
			return -1
		}
		return 1
	})
	switch {
	case k == len(tr.spare):
		return end, false
	case start < tr.spare[k].start:
		return min(end, tr.spare[k].start), false
	}
	return min(end, tr.spare[k].end), true
}

// spare fills in where another replica could have helped.
func (r *Run) spare() {
	for i := range r.truth {
		var all []span
		for k := range r.truth {
			if k == i {
				continue
			}
			all = append(all, r.truth[k].free...)
			all = append(all, span{r.truth[k].until, math.MaxInt64}) // nobody comes any more
		}
		slices.SortFunc(all, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
		var apart []span
		for _, s := range all {
			if n := len(apart); n > 0 && s.start <= apart[n-1].end {
				apart[n-1].end = max(apart[n-1].end, s.end)
			} else {
				apart = append(apart, s)
			}
		}
		r.truth[i].spare = apart
	}
}

// settle writes down what a replica was like since the last time, up to t.
func (e *server) settle(at int, t trace.Time) {
	r, tr := &e.replicas[at], &e.run.truth[at]
	for tr.until < t {
		from, to := tr.until, t
		border := func(b trace.Time) {
			if b > from {
				to = min(to, b)
			}
		}
		for _, f := range e.Freezes {
			if f.Replica == at {
				border(Base.Add(f.From))
				border(Base.Add(f.From + f.For))
			}
		}
		if len(r.queue) == 0 {
			tr.add(to, "", nil, len(r.running) < e.Slots)
			continue
		}
		if e.gathering(r, from) {
			border(r.queue[0].since.Add(e.GatherFor))
		}
		cause := e.cause(at, from)
		tr.add(to, cause, e.weights(r, cause), false)
	}
}

// cause is why the head of a replica's queue waits at t.
func (e *server) cause(at int, t trace.Time) string {
	r := &e.replicas[at]
	head := r.queue[0]
	_, frozen := e.frozen(at, t)
	switch {
	case len(r.running) == 0:
		return "hold"
	case frozen:
		return "stall"
	case e.gathering(r, t):
		return "hold"
	case len(r.running) >= e.Slots:
		return "slots"
	case r.pushed || !e.fits(r, head, e.entry(head, r.left)):
		return "kv_cache"
	case r.left <= 0 || !e.Chunked && head.remaining > r.left || r.prefill:
		return "prefill"
	}
	return "step"
}

// weights is what each tenant's requests hold of the thing that the cause says
// is scarce.
func (e *server) weights(r *replica, cause string) []float64 {
	w := make([]float64, len(e.Tenants))
	for _, j := range r.running {
		switch cause {
		case "slots":
			w[j.tenant]++
		case "kv_cache":
			w[j.tenant] += float64(j.blocks)
		case "prefill":
			w[j.tenant] += float64(j.planned)
			if j.remaining > 0 {
				w[j.tenant] += float64(j.chunk)
			}
		case "step":
			each := time.Duration(j.resident()) * e.PerResident / 1024
			if j.remaining > 0 {
				each += time.Duration(j.chunk) * e.PerPrefill
			} else {
				each += e.PerDecode
			}
			w[j.tenant] += float64(each)
		}
	}
	return w
}
