package analyze

import (
	"cmp"
	"math"
	"slices"

	"github.com/traceview/traceview/trace"
)

// stretch is a piece of a replica's time during which some request waited and
// nothing changed, with all that the cause depends on.
type stretch struct {
	start, end int64
	n, w       int32   // running; waiting, and asked why
	u          float32 // tokens in memory with the next request in it
	group      float32 // tokens in the step with the next request in it
	flags      stretchFlags
}

type stretchFlags uint16

const (
	refused      stretchFlags = 1 << iota // the next request had been looked at and was not taken
	prefilling                            // a prefill was under way
	inChunks                              // one of those that take several steps
	waitedLong                            // the next request's whole wait exceeds the step
	headOfLine                            // prefill is most of the step in flight
	nearHalf                              // whether it is hangs on the model's error
	noModel                               // there is no model to tell that
	fullStep                              // the step in flight has all the tokens it may
	tooShort                              // the next request's whole wait is within the clock's error
	pushedBack                            // the next request had been taken and was pushed back
	recomputing                           // who had been pushed back computes all anew
	perhapsWhole                          // what takes several steps may have been taken up early
)

const (
	tolerance    = 50_000 // nanoseconds: how exact clocks are believed to be where the data agree with it
	refusedSteps = 1.3    // steps after which who still waits has been refused
	overhead     = 8      // tokens of memory that a request takes beside its own: half a block
)

// replicaWork is one replica on its way to a result.
type replicaWork struct {
	ws   *Waits
	key  place
	rows []uint32
	tl   *timeline

	readings []trace.Reading // by time
	sizes    []float64       // tokens of memory, as each reading implies

	tol       int64
	model     *StepModel
	decodes   []decode
	stretches []stretch
	limit     Limits
	stalls    []StallSpan
	peak      int
	timeAt    []int64 // by the number running, beyond doubt
	busy      int64   // time with n > 0
	area      [2]float64
	took      prefills
	unseen    bool // prompts are computed that the data do not show
	guessed   bool // the memory limit is: what runs is hardly less steady than what it holds
	early     bool // work is taken up a step before it is computed
	sampled   bool
	split     bool    // its requests ran on two engines
	free      []spell // shared by the replicas of one model
	segments  []segment
	sum       [causeCount]causeSum
	blame     *ledger
}

// causeSum is the waiting of one cause.
type causeSum struct{ ns, sure, hidden, avoidable int64 }

// segment is a stretch of time, on the replica's own clock, whose waiting has
// one cause.
type segment struct {
	start, end        int64
	cause             Cause
	hidden, avoidable bool
}

// prepare does all that one replica can do alone.
func (p *replicaWork) prepare(stated Limits) {
	var s sorter
	p.ws.order(p.rows, &s)
	p.tl = p.ws.newTimeline(p.rows, &s)
	ds, took := p.tl.decodes(&p.ws.rows, tolerance, false)
	p.model = fit(ds)
	p.tol = p.clockTolerance()
	if p.tol != tolerance {
		// For what is chunked: a border between two steps lies a step from
		// both ends of a prefill, what is seen late does not.
		ds, took = p.tl.decodes(&p.ws.rows, 2*p.tol, false)
	}
	if p.model != nil {
		p.model.doubt(took.steps)
		p.early = p.model.early(took.steps)
		p.unseen = !p.early && p.model.unseen(took.steps)
	}
	if p.early {
		tol := int64(tolerance)
		if p.tol != tol {
			tol = 2 * p.tol
		}
		ds, took = p.tl.decodes(&p.ws.rows, tol, true)
	}
	p.decodes, p.took = ds, took

	p.sweep()
	p.findStalls()
	p.limit = p.limits(stated)
	if c := stated.Slots.Value.Or(math.MaxInt64); c < int64(len(p.timeAt)) {
		for _, d := range p.timeAt[c+1:] {
			p.limit.OverNS += d
		}
	}
}

// disproved reports whether more ran than slots, of which limits tell, for
// longer than the ends of steps explain.
func disproved(l *Limits, busy int64) bool { return float64(l.OverNS) > 0.005*float64(busy) }

// clockTolerance tells within what the instants of one step agree. What is
// nearer than a part of the shortest step belongs to one border between steps,
// and how far that spreads is seen; where too few borders show two instants,
// clocks are trusted to that part of the step.
func (p *replicaWork) clockTolerance() int64 {
	tol := int64(tolerance)
	if p.model != nil {
		reach := max(tol, int64(partOfStep*min(p.model.BaseNS, 1e15)))
		if spread := p.tl.spread(reach); len(spread) < fewBorders {
			tol = reach
		} else {
			slices.Sort(spread)
			most := spread[len(spread)*95/100]
			tol = max(tol, min(most+most/2, reach))
		}
	}
	return max(tol, p.ws.resolution(p.rows))
}

const (
	partOfStep = 0.4 // of the base step: what is nearer belongs to one border
	fewBorders = 20  // that show two instants: too few to tell
	mostSample = 1 << 12
)

// spread returns how far the instants of a border between two steps lie apart,
// for those that show several, each within reach of the one before.
func (tl *timeline) spread(reach int64) []int64 {
	spread := make([]int64, 0, min(len(tl.edges), mostSample))
	stride := len(tl.edges)/mostSample + 1 // of borders
	var from, last int64
	seen, border := 0, 0
	for _, e := range tl.events {
		if !tl.isEdge(e) {
			continue
		}
		if seen > 0 && e.at-last >= reach {
			if border++; seen > 1 && border%stride == 0 {
				spread = append(spread, last-from)
			}
			seen = 0
		}
		if seen++; seen == 1 {
			from = e.at
		}
		last = e.at
	}
	return spread
}

// waitHeap holds waiting requests; the first is the one that is scheduled
// next, as hindsight knows. Those that never are come last.
type waitHeap struct {
	waits []wait
	of    []uint32
}

func (h *waitHeap) before(i, j uint32) bool {
	x, y := &h.waits[i], &h.waits[j]
	if x.admitted != y.admitted {
		return x.admitted
	}
	if x.end != y.end {
		return x.end < y.end
	}
	return i < j
}

func (h *waitHeap) push(w uint32) {
	i := len(h.of)
	h.of = append(h.of, w)
	for i > 0 {
		up := (i - 1) / 2
		if !h.before(w, h.of[up]) {
			break
		}
		h.of[i], i = h.of[up], up
	}
	h.of[i] = w
}

// pop removes the first.
func (h *waitHeap) pop() {
	n := len(h.of) - 1
	w := h.of[n]
	h.of = h.of[:n]
	i := 0
	for down := 1; down < n; down = 2*i + 1 {
		if down+1 < n && h.before(h.of[down+1], h.of[down]) {
			down++
		}
		if !h.before(h.of[down], w) {
			break
		}
		h.of[i], i = h.of[down], down
	}
	if n > 0 {
		h.of[i] = w
	}
}

// sweep cuts the timeline into stretches and gathers what limits are read
// from.
func (p *replicaWork) sweep() {
	tl := p.tl
	var (
		s      state
		queue  = waitHeap{waits: tl.waits}
		edge   = -1 // the latest edge
		gone   = make([]bool, len(tl.waits))
		chunks int64 // when the last of the prefills of several steps ends
		reads  = p.readings
		events = tl.events
		fresh  fresh
		anew   int64 // when the last of those that were pushed back has computed what it had
	)
	if len(tl.waits) > 0 {
		p.stretches = make([]stretch, 0, tl.instants)
	}
	for i := 0; i < len(events); {
		t := events[i].at
		for ; i < len(events) && events[i].at == t; i++ {
			e := events[i]
			switch e.kind {
			case enterWaiting:
				queue.push(e.of)
			case leaveWaiting:
				gone[e.of] = true
			case enterRunning:
				r := &tl.runs[e.of]
				if r.first == r.start && p.model != nil && r.start+tl.origin > p.ws.rows.at(r.row).runStart {
					anew = max(anew, t+int64(min(p.model.TokenNS*r.at(t)+p.model.BaseNS, 1e15)))
				}
				if r.first > r.start {
					if r.chunked {
						chunks = max(chunks, r.first)
					}
					if p.early {
						fresh.add(r, p.tol)
					}
				}
			}
			s.change(tl, e)
		}
		p.peak = max(p.peak, s.n)
		for edge+1 < len(tl.edges) && tl.edges[edge+1] <= t {
			edge++
		}
		for len(queue.of) > 0 && gone[queue.of[0]] {
			queue.pop()
		}
		if i == len(events) {
			break
		}
		next := events[i].at
		d := next - t
		for s.n >= len(p.timeAt) {
			p.timeAt = append(p.timeAt, 0)
		}
		if d >= 2*p.tol {
			p.timeAt[s.n] += d
		}
		if s.n > 0 {
			p.busy += d
		}
		for len(reads) > 0 && int64(reads[0].At)-tl.origin < next {
			at := int64(reads[0].At) - tl.origin
			if u, ok := reads[0].KVUsage.Get(); ok && at >= t && u >= leastUsage && u <= 1 {
				p.sizes = append(p.sizes, (s.resident+s.growth*float64(at-t)+overhead*float64(s.n))/u)
			}
			reads = reads[1:]
		}
		p.area[0] += float64(s.n) * float64(d)
		p.area[1] += float64(s.w) * float64(d)
		if s.w > 0 && len(queue.of) > 0 {
			since := int64(-1 << 62)
			if edge >= 0 {
				since = tl.edges[edge]
			}
			if since > fresh.at+p.tol {
				fresh.compute, fresh.inChunks, fresh.rate = 0, 0, 0
			}
			from := len(p.stretches)
			p.cut(&s, &tl.waits[queue.of[0]], &fresh, t, next, since, chunks)
			if t < anew {
				for k := range p.stretches[from:] {
					p.stretches[from+k].flags |= recomputing
				}
			}
		}
		s.advance(d)
	}
}

// fresh is the prompts that were taken up at the latest edge, and are computed
// only from the next one on.
type fresh struct {
	at                      int64
	compute, inChunks, rate float64
}

func (f *fresh) add(r *run, tol int64) {
	if r.start > f.at+tol {
		*f = fresh{at: r.start}
	}
	f.compute += r.compute
	if r.chunked {
		f.inChunks += r.compute
		f.rate += r.rate
	}
}

// cut appends the stretch from t to next with head next in line. f is what is
// under way and not yet computed, since the latest edge, chunks the end of the
// last prefill of several steps.
func (p *replicaWork) cut(s *state, head *wait, f *fresh, t, next, since, chunks int64) {
	flight := *s // the step in flight
	if f.compute > 0 && p.model != nil {
		flight.compute, flight.inChunks, flight.rate = s.compute-f.compute, s.inChunks-f.inChunks, s.rate-f.rate
		total, _ := p.model.step(&flight, p.model.TokenNS)
		until := f.at + int64(min(total, 1e15))
		if until <= t+p.tol {
			flight = *s // the next one has begun
		} else if until < next {
			p.cut(s, head, f, t, until, since, chunks)
			t = until
			flight = *s
		}
	}
	v := stretch{
		start: t, end: next, n: int32(s.n), w: int32(s.asked),
		u:     float32(s.resident + s.growth*float64(next-t)/2 + overhead*float64(s.n) + head.need),
		group: float32(s.compute + float64(s.n-s.prefills) + head.compute),
	}
	if s.prefills > 0 {
		v.flags |= prefilling
	}
	if s.spans > 0 {
		v.flags |= inChunks
		if s.chunked == 0 {
			v.flags |= perhapsWhole
		}
		// Who goes on after the step in flight got all of its tokens.
		if head.admitted && chunks > head.end+p.tol {
			v.flags |= fullStep
		}
	}
	if p.tol > tolerance && head.end-head.start < p.tol {
		v.flags |= tooShort
	}
	if head.pushed {
		v.flags |= pushedBack
	}
	var looked int64 // when a look at head is overdue
	if p.model != nil {
		total, prefill := p.model.step(&flight, p.model.TokenNS)
		if prefill > total/2 {
			v.flags |= headOfLine
		}
		for _, c := range [2]float64{p.model.tokenLow, p.model.tokenHigh} {
			if total, prefill := p.model.step(&flight, c); (prefill > total/2) != (v.flags&headOfLine != 0) {
				v.flags |= nearHalf
			}
		}
		if p.unseen && head.end-since > int64(1.6*min(total, 1e15)) {
			v.flags |= nearHalf // the step may be longer than what is seen in it
		}
		long := int64(refusedSteps * min(total, 1e15))
		looked = head.start + long
		if head.end-head.start > long {
			v.flags |= waitedLong
		}
	} else if s.prefills > 0 {
		v.flags |= noModel
	}
	if s.n > 0 {
		switch {
		case head.pushed, head.start < since-p.tol && (!head.admitted || head.end > since+p.tol),
			p.model != nil && looked <= t:
			v.flags |= refused
		case p.model != nil && looked < next:
			v.end = looked
			p.stretches = append(p.stretches, v)
			v.start, v.end = looked, next
			v.flags |= refused
		}
	}
	p.stretches = append(p.stretches, v)
}

// verdict is what is assumed where a cause is decided.
type verdict struct {
	slots, budget, kv float64 // infinite: not known
	whole, proven     float64 // tokens that a step takes beyond doubt, and that none does
	crowded           bool    // many prompts take several steps
	guessed           bool    // the memory limit is
	modelled          bool    // how long a step takes is known
	hidden            bool    // holders that the data do not show may be assumed
	sampled, split    bool
}

// decide names the cause of a stretch. hidden says that it assumes holders
// that the data do not show.
func (v *verdict) decide(s *stretch, stalled bool) (c Cause, hidden bool) {
	n, u := float64(s.n), float64(s.u)
	is := func(f stretchFlags) bool { return s.flags&f != 0 }
	switch {
	case v.split, s.n <= 0 && v.sampled:
		return CauseUnknown, false
	case s.n <= 0:
		return CauseHold, false
	case stalled:
		return CauseStall, false
	case n >= v.slots:
		return CauseSlots, false
	case is(refused|waitedLong) && u > 0.98*v.kv && (!is(inChunks) || u >= v.kv):
		return CauseKVCache, false
	case is(refused) && (is(inChunks) || is(prefilling) && float64(s.group) > v.budget):
		return CausePrefill, false
	case is(refused) && v.hidden && (n >= 0.75*v.slots || n >= v.slots-1):
		return CauseSlots, true
	case is(refused) && v.hidden && u > 0.85*v.kv:
		return CauseKVCache, true
	case is(pushedBack) && math.IsInf(v.kv, 1):
		return CauseKVCache, false
	case is(refused), is(noModel) && !is(fullStep):
		return CauseUnknown, false
	case is(headOfLine | fullStep):
		return CausePrefill, false
	}
	return CauseStep, false
}

// A spell is a stretch of time.
type spell struct{ start, end int64 }

// explain gives every stretch its cause and charges the holders.
func (p *replicaWork) explain(equal bool) {
	base := verdict{
		slots: orInf(p.limit.Slots.Value), kv: orInf(p.limit.KV.Value),
		budget: orInf(p.limit.Budget.Value), hidden: true, sampled: p.sampled, split: p.split,
	}
	base.guessed, base.modelled = p.guessed, p.model != nil
	base.crowded = 4*p.took.inChunks > p.took.all
	base.whole, base.proven = base.budget, base.budget
	if !p.limit.Budget.Value.Present() {
		base.proven = orInf(p.limit.Budget.High)
		if p.took.whole > 0 {
			base.budget = p.took.whole
		}
		// A long prompt takes many steps with no event in between to tell: what
		// seems the largest that one takes may be several.
		base.whole = p.took.whole / 2
	}
	less, more := base, base
	less.kv *= 0.97
	more.kv *= 1.03

	if p.split {
		p.free = nil // another replica's slot is of one of the two engines only
	}
	p.blame = newLedger(p, equal)
	stall, free := 0, 0
	var (
		turnedAway [causeCount]int64 // waiting of those who were refused
		doubtful   int64             // of it, what is sure to be prefill unless all else is unknown
	)
	for i := range p.stretches {
		s := &p.stretches[i]
		for stall < len(p.stalls) && p.stalls[stall].EndNS-p.tl.origin <= s.start {
			stall++
		}
		stalled := stall < len(p.stalls) && p.stalls[stall].Confirmed && p.stalls[stall].StartNS-p.tl.origin <= s.start
		c, hidden := base.decide(s, stalled)
		ns := int64(s.w) * (s.end - s.start)
		sum := &p.sum[c]
		sum.ns += ns
		if hidden {
			sum.hidden += ns
		} else if c != CauseUnknown && base.sure(s, c) && !(c == CauseSlots && disproved(&p.limit, p.busy)) {
			c1, _ := less.decide(s, stalled)
			c2, _ := more.decide(s, stalled)
			if c1 == c && c2 == c {
				sum.sure += ns
				if c == CausePrefill && s.flags&refused != 0 {
					doubtful += ns
				}
			}
		}
		if s.flags&refused != 0 {
			turnedAway[c] += ns
		}
		p.blame.charge(s, c)
		from, to := s.start+p.tl.origin, s.end+p.tl.origin
		if c == CauseStep {
			p.segment(segment{from, to, c, hidden, false})
			continue
		}
		for free < len(p.free) && p.free[free].end <= from {
			free++
		}
		for k := free; from < to; k++ {
			if k >= len(p.free) || p.free[k].start >= to {
				p.segment(segment{from, to, c, hidden, false})
				break
			}
			if f := p.free[k].start; f > from {
				p.segment(segment{from, f, c, hidden, false})
				from = f
			}
			f := min(p.free[k].end, to)
			p.segment(segment{from, f, c, hidden, true})
			sum.avoidable += int64(s.w) * (f - from)
			from = f
		}
	}
	// Where many refusals have no explanation, a limit that is not seen is at
	// work, and may be at work beside a prefill too.
	if 8*float64(turnedAway[CauseUnknown]) > float64(turnedAway[CausePrefill]) {
		p.sum[CausePrefill].sure -= doubtful
	}
}

// sure reports whether a cause rests on more than one reading of the data.
func (v *verdict) sure(s *stretch, c Cause) bool {
	is := func(f stretchFlags) bool { return s.flags&f != 0 }
	switch {
	case c == CauseKVCache:
		// The step's tokens may have been used up just as well.
		return !v.guessed && !is(recomputing) && !is(inChunks) && (!is(prefilling) || !v.crowded && float64(s.group) <= v.whole)
	case c == CausePrefill && is(refused):
		// That no larger group was ever taken in one step does not show that
		// none could.
		return is(inChunks) && !is(perhapsWhole) || float64(s.group) > v.proven
	case c == CausePrefill && is(fullStep):
		return true
	case c == CausePrefill || c == CauseStep:
		return !is(nearHalf | tooShort)
	case c == CauseHold:
		// What takes no longer than a step may be one of a request that is not
		// seen.
		return !is(tooShort) && (!v.modelled || is(waitedLong))
	}
	return true
}

func orInf(o trace.Opt[int64]) float64 {
	if v, ok := o.Get(); ok {
		return float64(v)
	}
	return math.Inf(1)
}

// segment appends to the segments, or makes the last one longer.
func (p *replicaWork) segment(s segment) {
	if n := len(p.segments); n > 0 {
		if l := &p.segments[n-1]; l.end == s.start && l.cause == s.cause && l.hidden == s.hidden && l.avoidable == s.avoidable {
			l.end = s.end
			return
		}
	}
	p.segments = append(p.segments, s)
}

// parts appends what of the segments lies in the wait.
func (p *replicaWork) parts(dst []WaitPart, w waitSpan) []WaitPart {
	i, _ := slices.BinarySearchFunc(p.segments, w.start, func(s segment, t int64) int {
		if s.end <= t {
			return -1
		}
		return 1
	})
	for ; i < len(p.segments) && p.segments[i].start < w.end; i++ {
		s := &p.segments[i]
		dst = append(dst, WaitPart{
			Start: trace.Time(max(s.start, w.start)), End: trace.Time(min(s.end, w.end)),
			Cause: s.cause, Hidden: s.hidden, Avoidable: s.avoidable,
		})
	}
	return dst
}

// StallSpan is a gap in a replica's progress while requests ran.
type StallSpan struct {
	StartNS int64 `json:"start_ns"` // the last progress before it, on the replica's clock
	EndNS   int64 `json:"end_ns"`   // the first progress after it
	Running int   `json:"running"`  // requests that ran across it
	// Confirmed: every request that ran across it was late, and more than one
	// did. Without a step model nothing can be confirmed: a long generation
	// alone is silent too.
	Confirmed bool `json:"confirmed"`
}

const (
	stallGap     = 1_000_000_000 // nanoseconds without progress
	stallMedians = 10            // times the trailing median gap
	stallTrail   = 101           // gaps in that
	maxGaps      = 1000          // the longest are looked at
)

// findStalls looks for gaps in which everything froze.
func (p *replicaWork) findStalls() {
	var gaps []spell
	var trail [stallTrail]int64
	edges := p.tl.edges
	for i := 1; i < len(edges); i++ {
		gap := edges[i] - edges[i-1]
		if gap > stallGap {
			// Beyond ten medians: most gaps before it are below a tenth of it.
			below, have := 0, min(i-1, stallTrail)
			for _, g := range trail[:have] {
				if g < gap/stallMedians {
					below++
				}
			}
			if 2*below > have {
				gaps = append(gaps, spell{edges[i-1], edges[i]})
			}
		}
		trail[(i-1)%stallTrail] = gap
	}
	if len(gaps) > maxGaps {
		slices.SortFunc(gaps, func(x, y spell) int {
			if c := cmp.Compare(y.end-y.start, x.end-x.start); c != 0 {
				return c
			}
			return cmp.Compare(x.start, y.start)
		})
		gaps = gaps[:maxGaps]
		slices.SortFunc(gaps, func(x, y spell) int { return cmp.Compare(x.start, y.start) })
	}
	if len(gaps) == 0 {
		return
	}
	var (
		s       state
		running []uint32
		at      = make([]uint32, len(p.tl.runs)) // where in running
		tl      = p.tl
		pace    = p.tempo()
	)
	for i := 0; len(gaps) > 0 && i < len(tl.events); {
		t := tl.events[i].at
		for ; i < len(tl.events) && tl.events[i].at == t; i++ {
			e := tl.events[i]
			s.change(tl, e)
			switch e.kind {
			case enterRunning:
				at[e.of] = uint32(len(running))
				running = append(running, e.of)
			case leaveRunning:
				last := running[len(running)-1]
				running[at[e.of]], at[last] = last, at[e.of]
				running = running[:len(running)-1]
			}
		}
		if t != gaps[0].start {
			continue
		}
		level, scatter, late := pace.near(gaps[0], p.stalls, tl.origin)
		if stall, ok := p.judge(gaps[0], running, &s, level, scatter); ok {
			stall.Confirmed = stall.Confirmed && late <= lateShare && p.lateBeside(gaps[0], running, p.models(pace, gaps[0]))
			p.stalls = append(p.stalls, stall)
		}
		gaps = gaps[1:]
	}
}

// A tempo is how decodes went against the step model, by their end.
type tempo []paced

// paced is a decode's end, the ratio of the time that it took to the time
// predicted, and that time.
type paced struct {
	end   int64
	ratio float64
	ns    float64
	of    int // run
}

func (p *replicaWork) tempo() (all tempo) {
	if p.model == nil {
		return nil
	}
	for i := range p.decodes {
		d := &p.decodes[i]
		if want := p.model.predict(d); d.counts() && want > 0 {
			all = append(all, paced{p.tl.runs[i].end, d.ns / want, d.ns, i})
		}
	}
	slices.SortFunc(all, func(x, y paced) int { return cmp.Or(cmp.Compare(x.end, y.end), cmp.Compare(x.ratio, y.ratio)) })
	return all
}

// near returns the usual ratio before the gap and how far ratios lie from it,
// as a standard deviation. An engine that was changed since keeps another pace
// than the model, which is fitted to all; and where single decodes scatter,
// one that is late is no sign. Nor is it where others, in no stall, were late
// by as much, since they had been pushed back unseen: late is their share.
func (all tempo) near(gap spell, stalls []StallSpan, origin int64) (level, scatter, late float64) {
	n, _ := slices.BinarySearchFunc(all, gap.start+1, func(x paced, t int64) int { return cmp.Compare(x.end, t) })
	last := all[max(0, n-paceDecodes):n]
	if len(last) < fewDecodes {
		last = all[:min(len(all), paceDecodes)] // the first ones, for want of earlier
	}
	if len(last) < fewDecodes {
		return 1, 0, 0
	}
	ratios := make([]float64, len(last))
	for i := range last {
		ratios[i] = last[i].ratio
	}
	slices.Sort(ratios)
	level = max(1, ratios[len(ratios)/2])
	for i, r := range ratios {
		ratios[i] = math.Abs(r - level)
	}
	slices.Sort(ratios)
	n = 0
	for _, x := range last {
		if x.end <= gap.start && x.ns*(1-level/x.ratio) >= float64(gap.end-gap.start)/2 &&
			!slices.ContainsFunc(stalls, func(s StallSpan) bool {
				return s.Confirmed && s.StartNS-origin < x.end && float64(s.EndNS-origin) > float64(x.end)-x.ns
			}) {
			n++
		}
	}
	return level, 1.4826 * ratios[len(ratios)/2], float64(n) / float64(len(last))
}

// models returns what steps cost just before a gap, and just behind it: where
// an engine has become slower, one model for all is wrong by more where few or
// many run. Nil where there is too little.
func (p *replicaWork) models(all tempo, gap spell) (ms [2]*StepModel) {
	n, _ := slices.BinarySearchFunc(all, gap.start+1, func(x paced, t int64) int { return cmp.Compare(x.end, t) })
	var rows [2][]decode
	for _, x := range all[max(0, n-2*paceDecodes):n] {
		rows[0] = append(rows[0], p.decodes[x.of])
	}
	for _, x := range all[n:min(len(all), n+10*paceDecodes)] {
		if p.tl.runs[x.of].first >= gap.end && len(rows[1]) < 2*paceDecodes {
			rows[1] = append(rows[1], p.decodes[x.of])
		}
	}
	for k := range rows {
		if len(rows[k]) >= paceDecodes {
			ms[k] = fit(rows[k])
		}
	}
	return ms
}

const (
	paceDecodes = 50 // that ended last before a gap
	fewDecodes  = 10 // tell of no pace
	lateBy      = 3  // standard deviations
	lateShare   = 0.05
)

// lateBeside reports whether the decodes across a gap are late by those models
// too.
func (p *replicaWork) lateBeside(gap spell, running []uint32, models [2]*StepModel) bool {
	for _, m := range models {
		for _, i := range running {
			d := &p.decodes[i]
			if m != nil && d.steps > 0 && p.tl.runs[i].first < gap.end && p.tl.runs[i].end >= gap.end &&
				d.ns-m.predict(d) < float64(gap.end-gap.start)/2 {
				return false
			}
		}
	}
	return true
}

// judge tells a stall from a silence. running are those in flight when the gap
// begins, s is the state then; level and scatter are the pace of decodes before
// it.
func (p *replicaWork) judge(gap spell, running []uint32, s *state, level, scatter float64) (StallSpan, bool) {
	stall := StallSpan{StartNS: gap.start + p.tl.origin, EndNS: gap.end + p.tl.origin}
	length := float64(gap.end - gap.start)
	var step float64
	if p.model != nil {
		whole := *s
		whole.inChunks, whole.rate = 0, 0
		if step, _ = p.model.step(&whole, p.model.TokenNS); s.prefills > 0 && length <= 3*step {
			return stall, false
		}
	}
	checked := 0
	for _, i := range running {
		r := &p.tl.runs[i]
		if r.end < gap.end {
			continue
		}
		stall.Running++
		if p.model == nil {
			continue
		}
		var late, usual float64
		switch d := &p.decodes[i]; {
		case r.first >= gap.end && r.first > r.start:
			usual = step
			late = float64(r.first-r.start) - step*level
		case d.steps > 0:
			usual = p.model.predict(d)
			late = d.ns - usual*level
		default:
			continue
		}
		if late < max(length/2, lateBy*scatter*usual) {
			return stall, false
		}
		checked++
	}
	stall.Confirmed = checked >= 2
	return stall, stall.Running > 0 && (checked > 0 || p.model == nil)
}
