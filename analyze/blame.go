package analyze

import (
	"cmp"
	"math"
	"slices"
)

// A ledger charges the waiting of one replica to those who held it.
//
// The charge of a holder is its weight times the integral of what a unit of
// weight is charged: nothing is done for a holder but when it comes, ends its
// prefill and goes. There is one such integral for each cause and class of
// waiter, in four parts: a holder weighs something as such, by what it holds in
// memory (which grows with time), and by how fast its prompt is computed. The
// integrals are floats and say only in which proportion whole nanoseconds are
// handed out; the nanoseconds are counted in integers.
type ledger struct {
	p     *replicaWork
	equal bool

	next int // event
	t    int64
	s    state

	classes []uint32 // those of the replica; below, a class is its place here
	local   []int32  // the reverse
	waiting []int64  // how many wait now, by class
	holding []holding

	sums    [causeCount][]part // by class of waiter
	changes [causeCount]int    // of sums, counted
	total   part               // over all causes and classes
	began   []part             // total, when each run last changed
	held    []float64          // charge of each run

	charged   [causeCount][]int64   // waiting that somebody pays for, by class of waiter
	uncharged [causeCount][]int64   // and nobody
	cells     [causeCount][]float64 // waiter · classes + holder
}

const causeCount = int(CauseStep) + 1

// part is an integral in its four parts.
type part struct{ each, resident, growing, prefill float64 }

func (x part) minus(y part) part {
	return part{x.each - y.each, x.resident - y.resident, x.growing - y.growing, x.prefill - y.prefill}
}

func (x *part) add(y part, f float64) {
	x.each += f * y.each
	x.resident += f * y.resident
	x.growing += f * y.growing
	x.prefill += f * y.prefill
}

// holding is what the running requests of a class hold together: resident
// tokens are alpha + beta·t.
type holding struct {
	n                    int
	alpha, beta, prefill float64
	seen                 [causeCount][]part // sums, as far as they have been charged
	changes              [causeCount]int
}

func newLedger(p *replicaWork, equal bool) *ledger {
	l := &ledger{p: p, equal: equal, local: make([]int32, len(p.ws.classNames))}
	seen := make([]bool, len(l.local))
	for _, row := range p.rows {
		seen[p.ws.rows.at(row).class] = true
	}
	for c, ok := range seen {
		if ok {
			l.local[c] = int32(len(l.classes))
			l.classes = append(l.classes, uint32(c))
		}
	}
	k := len(l.classes)
	l.waiting, l.holding = make([]int64, k), make([]holding, k)
	for c := range causeCount {
		l.sums[c] = make([]part, k)
		l.charged[c], l.uncharged[c] = make([]int64, k), make([]int64, k)
		l.cells[c] = make([]float64, k*k)
		for g := range l.holding {
			l.holding[g].seen[c] = make([]part, k)
		}
	}
	l.began, l.held = make([]part, len(p.tl.runs)), make([]float64, len(p.tl.runs))
	return l
}

func (l *ledger) classOf(row uint32) int32 { return l.local[l.p.ws.rows.at(row).class] }

// charge takes a stretch into account. Stretches come in order of time.
func (l *ledger) charge(v *stretch, c Cause) {
	l.forward(v.start)
	d := v.end - v.start
	book := l.charged[c]
	free := c == CauseHold || c == CauseStall || l.s.n <= 0
	if free {
		book = l.uncharged[c]
	}
	per := part{}
	if !free {
		per = l.shares(c, d)
	}
	l.changes[c]++
	for k, w := range l.waiting {
		if w == 0 {
			continue
		}
		book[k] += w * d
		if !free {
			l.sums[c][k].add(per, float64(w)*float64(d))
		}
	}
	l.total.add(per, float64(v.w)*float64(d))
}

// forward takes the state to the instant t, all its events included.
func (l *ledger) forward(t int64) {
	events := l.p.tl.events
	for ; l.next < len(events) && events[l.next].at <= t; l.next++ {
		e := events[l.next]
		l.s.advance(e.at - l.t)
		l.t = e.at
		switch e.kind {
		case enterWaiting:
			if w := &l.p.tl.waits[e.of]; !w.aside {
				l.waiting[l.classOf(w.row)]++
			}
		case leaveWaiting:
			if w := &l.p.tl.waits[e.of]; !w.aside {
				l.waiting[l.classOf(w.row)]--
			}
		default:
			l.change(e)
		}
		l.s.change(l.p.tl, e)
	}
	l.s.advance(t - l.t)
	l.t = t
}

// change settles what the class of a run has been charged and changes what it
// holds.
func (l *ledger) change(e event) {
	r := &l.p.tl.runs[e.of]
	g := l.classOf(r.row)
	h := &l.holding[g]
	l.settle(int(g))
	hasPrefill := r.first > r.start
	switch e.kind {
	case enterRunning:
		h.n++
		if hasPrefill {
			h.alpha += r.prompt
			h.prefill += r.rate
		} else {
			h.alpha += r.alpha
			h.beta += r.beta
		}
	case prefillEnds:
		d := l.total.minus(l.began[e.of])
		l.held[e.of] += d.each + r.prompt*d.resident + r.rate*d.prefill
		h.alpha += r.alpha - r.prompt
		h.beta += r.beta
		h.prefill -= r.rate
	case leaveRunning:
		d := l.total.minus(l.began[e.of])
		l.held[e.of] += d.each + r.alpha*d.resident + r.beta*d.growing
		h.n--
		h.alpha -= r.alpha
		h.beta -= r.beta
	}
	if h.n == 0 { // sums of floats that should be zero again are made so
		h.alpha, h.beta, h.prefill = 0, 0, 0
	}
	l.began[e.of] = l.total
}

// settle charges a class for what was added to the sums since it last changed.
func (l *ledger) settle(g int) {
	h, k := &l.holding[g], len(l.classes)
	for c := range causeCount {
		if h.changes[c] == l.changes[c] {
			continue
		}
		h.changes[c] = l.changes[c]
		if h.n > 0 {
			for w := range k {
				d := l.sums[c][w].minus(h.seen[c][w])
				l.cells[c][w*k+g] += float64(h.n)*d.each + h.alpha*d.resident + h.beta*d.growing + h.prefill*d.prefill
			}
		}
		copy(h.seen[c], l.sums[c])
	}
}

// shares returns what a nanosecond of one request's waiting with that cause
// charges a unit of each weight; over all holders it comes to one nanosecond.
// The state is that at the begin of a stretch of length d.
func (l *ledger) shares(c Cause, d int64) part {
	s, m := &l.s, l.p.model
	mid := float64(l.t) + float64(d)/2
	resident := s.resident + s.growth*float64(d)/2
	switch {
	case l.equal:
	case c == CauseKVCache && resident > 0:
		return part{resident: 1 / resident, growing: mid / resident}
	case c == CausePrefill && s.speed > 0, c == CauseStep && m == nil && s.speed > 0:
		return part{prefill: 1 / s.speed}
	case c == CauseStep && m != nil:
		length, _ := m.step(s, m.TokenNS)
		each, token, prompt := m.perRunning, m.perResident, m.TokenNS*length
		if sum := each*float64(s.n) + token*resident + prompt*s.speed; sum > 0 {
			return part{each / sum, token / sum, token / sum * mid, prompt / sum}
		}
	}
	return part{each: 1 / float64(s.n)}
}

// close settles all accounts: it returns the cells in whole nanoseconds, and
// adds to charges what each row is charged. Both sum exactly to the waiting
// that somebody pays for.
func (l *ledger) close(charges []int64) []blameCell {
	for i := len(l.p.tl.events); l.next < i; {
		l.forward(l.p.tl.events[l.next].at)
	}
	for g := range l.classes {
		l.settle(g)
	}
	var cells []blameCell
	k := len(l.classes)
	owed := make([]int64, k) // by class of holder
	for c := range causeCount {
		for w := range k {
			if ns := l.uncharged[c][w]; ns != 0 {
				cells = append(cells, blameCell{l.classes[w], nobody, Cause(c), ns})
			}
			row := l.cells[c][w*k : w*k+k]
			hand := newCarry(l.charged[c][w], row)
			for g, f := range row {
				if ns := hand.next(f); ns != 0 {
					cells = append(cells, blameCell{l.classes[w], l.classes[g], Cause(c), ns})
					owed[g] += ns
				}
			}
		}
	}
	hands := make([]carry, k)
	for g := range hands {
		hands[g].total = owed[g]
	}
	for i := range l.held {
		hands[l.classOf(l.p.tl.runs[i].row)].sum += max(0, l.held[i])
	}
	for i, f := range l.held {
		row := l.p.tl.runs[i].row
		charges[row] += hands[l.classOf(row)].next(f)
	}
	return cells
}

// nobody stands for the holder where nobody held.
const nobody = math.MaxUint32

type blameCell struct {
	waiter, holder uint32
	cause          Cause
	ns             int64
}

// carry hands out a whole total in proportion to weights, one after the
// other. What rounding leaves of one it carries to the next, so that nothing
// is lost and each gets its share to within a nanosecond.
type carry struct {
	total     int64
	sum, seen float64
	given     int64
}

// newCarry returns a carry for those weights, of which those below zero count
// as zero.
func newCarry(total int64, weights []float64) carry {
	c := carry{total: total}
	for _, w := range weights {
		c.sum += max(0, w)
	}
	return c
}

// next returns the part of the next weight.
func (c *carry) next(w float64) int64 {
	c.seen += max(0, w)
	until := c.total
	if c.seen < c.sum { // else it is the last that weighs anything, or nobody does
		until = min(int64(float64(c.total)*(c.seen/c.sum)+0.5), c.total)
		until = max(until, c.given)
	}
	got := until - c.given
	c.given = until
	return got
}

// Holder is a request that made others wait.
type Holder struct {
	ID          string `json:"id"` // the request's; else of its trace; else ""
	Class       string `json:"class"`
	Service     string `json:"service"`
	Model       string `json:"model"`
	Replica     string `json:"replica"`
	File        string `json:"file"` // where it stands
	Line        int    `json:"line"` // 1-based; 0: not known
	Offset      int64  `json:"offset"`
	Input       int64  `json:"prompt_tokens"` // negative: not known
	Output      int64  `json:"output_tokens"`
	ScheduledNS int64  `json:"scheduled_ns"`
	EndNS       int64  `json:"end_ns"` // of its holding the replica
	ChargedNS   int64  `json:"charged_ns"`
	WaitedNS    int64  `json:"waited_ns"` // itself
}

// topHolders is how many single requests a result names.
const topHolders = 20

// Overtaken is the waiting of a class during which requests that were queued
// later had been scheduled first.
type Overtaken struct {
	Class    string `json:"class"`
	Requests int64  `json:"requests"`
	NS       int64  `json:"ns"`
}

// overtaking adds to byClass the time that requests of the replica were
// overtaken for. tol is within what instants agree.
func (p *replicaWork) overtaking(byClass []Overtaken) {
	type turn struct {
		queued, scheduled int64
		row               uint32
	}
	turns := make([]turn, 0, len(p.rows))
	for _, i := range p.rows {
		r := p.ws.rows.at(i)
		if r.queues && r.runEnd > r.runStart {
			turns = append(turns, turn{r.queued, r.runStart, i})
		}
	}
	slices.SortStableFunc(turns, func(x, y turn) int { return cmp.Compare(x.queued, y.queued) })
	// From the last queued backwards: the first schedule among those queued
	// later by more than the tolerance.
	first, j := int64(math.MaxInt64), len(turns)-1
	for i := len(turns) - 1; i >= 0; i-- {
		t := &turns[i]
		for ; j > i && turns[j].queued > t.queued+p.tol; j-- {
			first = min(first, turns[j].scheduled)
		}
		if first < t.scheduled-p.tol && !p.ws.rows.at(t.row).aside {
			o := &byClass[p.ws.rows.at(t.row).class]
			o.Requests++
			o.NS += t.scheduled - max(first, t.queued)
		}
	}
}
