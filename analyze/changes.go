package analyze

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/trace"
)

// What a [Change] is of. They are looked for in each replica alone.
const (
	// OfSpeed: from an instant on, steps take longer or less long than before
	// for the same work. It is seen in how long decodes take, prompts that are
	// computed beside them included.
	OfSpeed = "speed"
	// OfOverload: from an instant on, requests come faster than they can be
	// taken up, and the queue grows without bound.
	OfOverload = "overload"
	// OfStall: requests ran and nothing progressed.
	OfStall = "stall"
	// OfArrivals: from an instant on, requests come more or less often than
	// before.
	OfArrivals = "arrivals"
)

// What became of a [ChangeTest].
const (
	Changed   = "changed"
	Steady    = "steady"     // tested; what there was, chance explains
	NotTested = "not tested" // too little to say
)

// Change is something that did not stay as it was on one replica.
type Change struct {
	Of      string      `json:"of"`    // OfSpeed, OfOverload, OfStall, OfArrivals
	Phase   string      `json:"phase"` // that changed, a set where several did; "" of a stall and of arrivals
	Replica ReplicaName `json:"replica"`
	// AtNS is the instant; null where only the stretch from FromNS to ToNS is
	// known in which it lies. Of a stall, FromNS and ToNS are its ends.
	AtNS   trace.Opt[int64] `json:"at_ns"`
	FromNS int64            `json:"from_ns"`
	ToNS   int64            `json:"to_ns"`
	// Ratio is time after / time before for the same work, of decodes with the
	// prompts beside them; DecodeRatio that of their own steps, PrefillRatio
	// that of a prompt token. Null unless of speed, the last also where prompts
	// are too little of the time to tell.
	Ratio        trace.Opt[float64] `json:"time_ratio"`
	DecodeRatio  trace.Opt[float64] `json:"decode_time_ratio"`
	PrefillRatio trace.Opt[float64] `json:"prefill_time_ratio"`
	// CapacityPerS is how many requests a second were taken up while the queue
	// grew, OfferedPerS how many came; null unless an overload.
	CapacityPerS trace.Opt[float64] `json:"capacity_requests_per_s"`
	OfferedPerS  trace.Opt[float64] `json:"offered_requests_per_s"`
	Cause        string             `json:"cause"` // what was short in an overload; "" otherwise
	// How sure: the share of random orders that show as much (speed), or the
	// growth of the queue (overload) or the change of the rate (arrivals) in
	// standard deviations; null of a stall, where every request running across
	// it is late.
	P trace.Opt[float64] `json:"p"`
	Z trace.Opt[float64] `json:"z"`
	// ArrivalsBefore and ArrivalsAfter are requests a second that were queued;
	// null unless of arrivals.
	ArrivalsBefore trace.Opt[float64] `json:"arrivals_before_per_s"`
	ArrivalsAfter  trace.Opt[float64] `json:"arrivals_after_per_s"`
	// What went with a change of speed or of arrivals: how many waited and ran
	// on average since the change before it and until the one behind it. They
	// are measured and not tested. Null of others.
	WaitingBefore trace.Opt[float64] `json:"waiting_before"`
	WaitingAfter  trace.Opt[float64] `json:"waiting_after"`
	RunningBefore trace.Opt[float64] `json:"running_before"`
	RunningAfter  trace.Opt[float64] `json:"running_after"`
}

// ChangeTest is one question that was asked of one replica.
type ChangeTest struct {
	Of       string             `json:"of"`
	Replica  ReplicaName        `json:"replica"`
	Outcome  string             `json:"outcome"` // Changed, Steady, NotTested
	Reason   string             `json:"reason"`  // why not tested, or steady all the same; else ""
	Requests int64              `json:"requests"`
	P        trace.Opt[float64] `json:"p"` // of the largest change; null unless of speed
	Z        trace.Opt[float64] `json:"z"` // null unless of overload or arrivals
}

// ChangeResult is what did and what did not change over time.
type ChangeResult struct {
	Changes []Change     `json:"changes"` // by time
	Tests   []ChangeTest `json:"tests"`   // by question, then by replica
}

// The rules are those of the method that was tried: what they miss and what
// they raise on steady runs is measured by BenchmarkChanges.
const (
	mostBlocks   = 40
	leastBlocks  = 12   // fewer: no test
	blockLeast   = 8    // requests in a block
	blockEdge    = 4    // blocks on each side of a change
	speedP       = 0.01 // at most
	speedLeast   = 0.03 // a change that is smaller is not told
	furtherLeast = 0.05 // likewise, of one that is taken back, and of a second one
	prefillLeast = 0.08 // a change of a prompt token's cost that is smaller is not told
	tokensLeast  = 0.02 // of the decodes' own time: what prompts must take
	kneeZ        = 4    // at least
	kneeLeast    = 0.05 // of the window
	minPassages  = 30   // fewer requests: no test

	rateBlocks = 40  // of equal length, in which arrivals are counted
	rateLeast  = 5   // requests in a block on average; fewer: no test
	rateZ      = 4.5 // at least
	rateRatio  = 1.2 // a change by less than this factor is not told

	refineSpan = int64(30 * time.Second)
	refineStep = int64(500 * time.Millisecond)
)

// history is what changes are looked for in: one replica's requests on an axis
// of their own.
type history struct {
	decodes  []timedDecode
	passages []passage
	length   int64 // from its first event to its last
}

// timedDecode is a decode with its place.
type timedDecode struct {
	decode
	from, to int64
}

func (d *timedDecode) mid() int64 { return d.from + (d.to-d.from)/2 }

// passage is a request's way through the queue, before it first ran.
type passage struct {
	queued, left int64 // left: taken up, given up, or the last that is known of it
	taken        bool
}

// level is a stretch of a history at one speed, with the change at its begin.
type level struct {
	decodes []timedDecode
	change  *speedChange // nil for the first
}

// speedChange is a change of speed: at, or somewhere from from to to.
type speedChange struct {
	at, from, to int64
	edge         bool // the instant was not found within reach of the block
	p            float64
}

// speeds cuts decodes, which it sorts, into stretches of one speed. reason
// says why there was no test.
func speeds(ds []timedDecode) (levels []level, p trace.Opt[float64], reason string) {
	ds = slices.DeleteFunc(ds, func(d timedDecode) bool { return d.steps < minModelOutput-1 })
	if need := leastBlocks * blockLeast; len(ds) < need {
		return nil, p, fmt.Sprintf("%s of at least %d output tokens, %d are needed", plural(int64(len(ds)), "decode", "decodes"), minModelOutput, need)
	}
	slices.SortFunc(ds, func(x, y timedDecode) int {
		if c := cmp.Compare(x.mid(), y.mid()); c != 0 {
			return c
		}
		return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.steps, y.steps),
			cmp.Compare(x.running, y.running), cmp.Compare(x.resident, y.resident), cmp.Compare(x.prompts, y.prompts))
	})
	c, p, ok := shift(ds, speedLeast)
	if !ok {
		return nil, p, "no model of a step fits"
	}
	// Each side is looked at again by a model of its own: a second deploy.
	var split func(ds []timedDecode, first *speedChange, found *speedChange)
	split = func(ds []timedDecode, first, found *speedChange) {
		if found == nil {
			levels = append(levels, level{ds, first})
			return
		}
		before, after := sides(ds, found.at)
		again := func(ds []timedDecode) *speedChange {
			if len(ds) < leastBlocks*blockLeast {
				return nil
			}
			c, _, _ := shift(ds, furtherLeast)
			return c
		}
		split(before, first, again(before))
		split(after, found, again(after))
	}
	split(ds, nil, c)
	return levels, p, ""
}

// shift looks for one change of at least so much in decodes sorted by their
// middle; nil where there is none. ok is false where no model fits.
func shift(ds []timedDecode, least float64) (c *speedChange, p trace.Opt[float64], ok bool) {
	ratios, ok := predicted(ds, ds)
	if !ok {
		return nil, p, false
	}
	ends := stats.Blocks(len(ds), mostBlocks, blockLeast)
	medians := make([]float64, len(ends))
	from := 0
	for i, end := range ends {
		medians[i] = stats.Median(slices.Clone(ratios[from:end]))
		from = end
	}
	s, ok := stats.LevelShift(medians, blockEdge)
	if !ok {
		return nil, p, false
	}
	p = trace.Some(s.P)
	told := func(p, ratio, least float64) bool { return p <= speedP && math.Abs(ratio-1) >= least }
	if told(s.P, s.After/s.Before, least) {
		return newSpeedChange(s.P, ds, ends, ends[s.At-1]), p, true
	}
	// A change that is taken back: its end is found when what lies behind its
	// begin is looked at.
	if b, ok := stats.LevelBump(medians, blockEdge); ok {
		p = trace.Some(min(s.P, b.P))
		if told(b.P, b.Inside/b.Outside, furtherLeast) {
			c = newSpeedChange(b.P, ds[:ends[b.To-1]], ends[:b.To], ends[b.From-1])
		}
	}
	return c, p, true
}

// newSpeedChange places a change. It is nil where the models of both sides do
// not bear it out.
func newSpeedChange(p float64, ds []timedDecode, ends []int, split int) *speedChange {
	c := &speedChange{p: p}
	c.locate(ds, ends, split)
	before, after := sides(ds, c.at)
	if len(before) == 0 || len(after) == 0 {
		return nil // placed beyond all of them: it divides nothing
	}
	if r, ok := ratio(before, after).Get(); ok && math.Abs(r-1) < speedLeast {
		return nil
	}
	return c
}

// locate finds the instant of a change between ds[split-1] and ds[split],
// about. The model that showed it was fitted over both sides and fits neither;
// so each side gets its own, and the instant is where the two together explain
// the decodes best. That is repeated as long as it moves.
func (c *speedChange) locate(ds []timedDecode, ends []int, split int) {
	margin := ends[blockEdge-1]
	c.at, c.edge = ds[split].mid(), true
	for range 8 {
		before, after := sides(ds, c.at)
		old, ok := predicted(ds, before)
		if !ok {
			break
		}
		now, ok := predicted(ds, after)
		if !ok {
			break
		}
		split = bestSplit(old, now, margin)
		was := c.at
		if c.at, c.edge = refine(ds, old, now, ds[split].mid()); c.at == was {
			break
		}
	}
	i, _ := slices.BinarySearchFunc(ds, c.at, func(d timedDecode, t int64) int { return cmp.Compare(d.mid(), t) })
	block := len(ds) / len(ends)
	c.from, c.to = min(ds[max(0, i-block)].mid(), c.at), max(ds[min(len(ds)-1, i+block)].mid(), c.at)
}

// sides are the decodes that end before an instant and those that begin after
// it.
func sides(ds []timedDecode, at int64) (before, after []timedDecode) {
	for _, d := range ds {
		switch {
		case d.to <= at:
			before = append(before, d)
		case d.from >= at:
			after = append(after, d)
		}
	}
	return before, after
}

// bestSplit is the index, at least margin from both ends, at which to go from
// one model to the other, so that the ratios are nearest to 1.
func bestSplit(old, now []float64, margin int) int {
	var cost, least float64
	best := margin
	for i := range old {
		if i >= margin && i <= len(old)-margin && (i == margin || cost < least) {
			best, least = i, cost
		}
		cost += math.Abs(old[i]-1) - math.Abs(now[i]-1)
	}
	return best
}

// predicted is the time of each of ds over that predicted by a model fitted to
// others.
func predicted(ds, others []timedDecode) ([]float64, bool) {
	m := fitTimed(others)
	if m == nil {
		return nil, false
	}
	out := make([]float64, len(ds))
	for i := range ds {
		out[i] = ds[i].ns / max(m.predict(&ds[i].decode), 1)
	}
	return out, true
}

// refine finds the instant near about at which going from one model to the
// other explains the decodes across it best: the shares of the work done before
// and after add up to 1. edge says that it is no better than what lies out of
// reach.
func refine(ds []timedDecode, old, now []float64, about int64) (at int64, edge bool) {
	n := int(2*refineSpan/refineStep) + 1
	cost := make([]float64, n)
	for i := range ds {
		d := &ds[i]
		if d.to <= about-refineSpan || d.from >= about+refineSpan {
			continue // on one side whatever the instant is
		}
		for k := range n {
			t := about - refineSpan + int64(k)*refineStep
			share := min(max(float64(t-d.from)/float64(max(d.to-d.from, 1)), 0), 1)
			cost[k] += math.Abs(share*old[i] + (1-share)*now[i] - 1)
		}
	}
	best := 0
	for k := range cost {
		if cost[k] < cost[best] {
			best = k
		}
	}
	// While nothing decodes, one instant is as good as the other: the middle.
	last := best
	for last+1 < n && cost[last+1] <= cost[best]+1e-9 {
		last++
	}
	return about - refineSpan + int64(best+last)*refineStep/2, best == 0 || last == n-1
}

func fitTimed(ds []timedDecode) *StepModel {
	plain := make([]decode, len(ds))
	for i := range ds {
		plain[i] = ds[i].decode
	}
	return fit(plain)
}

// ratios divides what the model of each side says of the work of both: the
// decodes' own steps, and a prompt token. The parts of a step by running
// request and by resident token rise together and are not told apart.
func ratios(before, after []timedDecode) (decoding, prefill trace.Opt[float64]) {
	old, now := fitTimed(before), fitTimed(after)
	if old == nil || now == nil {
		return decoding, prefill
	}
	var steps, tokens [2]float64
	for _, ds := range [2][]timedDecode{before, after} {
		for i := range ds {
			for j, m := range [2]*StepModel{old, now} {
				own := ds[i].decode
				own.prompts = 0
				t := m.predict(&own)
				steps[j] += t
				tokens[j] += m.predict(&ds[i].decode) - t
			}
		}
	}
	if steps[0] > 0 && steps[1] > 0 {
		decoding = trace.Some(steps[1] / steps[0])
	}
	if min(tokens[0], tokens[1]) > tokensLeast*steps[0] {
		prefill = trace.Some(tokens[1] / tokens[0])
	}
	return decoding, prefill
}

// changedPhase names what a change of speed is of. Where requests are pushed
// back, a prompt token's cost is known to 6 %, and a fifth of a change of it
// may show as one of decode.
func changedPhase(decoding, prefill trace.Opt[float64]) trace.Phase {
	d, p := math.Abs(math.Log(decoding.Or(1))), math.Abs(math.Log(prefill.Or(1)))
	switch {
	case p < prefillLeast:
		return trace.Decode
	case d < max(speedLeast/2, p/5):
		return trace.Prefill
	}
	return trace.Prefill | trace.Decode
}

// ratio is the time after over the time before for the same work: each side's
// decodes by the other side's model.
func ratio(before, after []timedDecode) trace.Opt[float64] {
	var logs []float64
	if r, ok := predicted(after, before); ok {
		logs = append(logs, math.Log(stats.Median(r)))
	}
	if r, ok := predicted(before, after); ok {
		logs = append(logs, -math.Log(stats.Median(r)))
	}
	var sum float64
	for _, l := range logs {
		sum += l / float64(len(logs))
	}
	if len(logs) == 0 || math.IsNaN(sum) || math.IsInf(sum, 0) {
		return trace.Opt[float64]{}
	}
	return trace.Some(math.Exp(sum))
}

// knee is where a queue begins to grow without bound.
type knee struct {
	at, last          int64 // from here to the last arrival it never emptied
	arrived, taken    int64 // meanwhile
	z                 float64
	offered, capacity float64 // a second
}

// overload tests whether the queue that stands at the last arrival is more
// than chance. ok is false where that cannot be said.
func overload(ps []passage, length int64) (k knee, found, ok bool) {
	if len(ps) < minPassages || length <= 0 {
		return k, false, false
	}
	ps = slices.Clone(ps)
	slices.SortFunc(ps, func(x, y passage) int { return cmp.Compare(x.queued, y.queued) })
	k.last = ps[len(ps)-1].queued

	// When the queue that stands at the last arrival began. Who leaves at an
	// instant leaves before others enter; who leaves as it enters never waits.
	left := make([]int64, 0, len(ps))
	for _, p := range ps {
		if p.left > p.queued {
			left = append(left, p.left)
		}
	}
	slices.Sort(left)
	waiting, gone := 0, 0
	for _, p := range ps {
		for gone < len(left) && left[gone] <= p.queued {
			gone++
			waiting--
		}
		if waiting == 0 {
			k.at = p.queued
		}
		if p.left > p.queued {
			waiting++
		}
	}
	var gaps, squares float64
	for i := 1; i < len(ps); i++ {
		g := float64(ps[i].queued - ps[i-1].queued)
		gaps += g
		squares += g * g
	}
	n := float64(len(ps) - 1)
	cv2 := 1.0
	if gaps > 0 {
		cv2 = squares*n/(gaps*gaps) - 1
	}
	for _, p := range ps {
		switch {
		case p.queued < k.at:
		case p.left > k.last: // waits still
			k.arrived++
		case p.taken:
			k.arrived++
			k.taken++
		}
	}
	a, d := float64(k.arrived), float64(k.taken)
	if k.last > k.at {
		k.z = (a - d) / math.Sqrt(a*max(1, cv2)+0.6*d)
		seconds := float64(k.last-k.at) / 1e9
		k.offered, k.capacity = a/seconds, d/seconds
	}
	found = float64(k.last-k.at) >= kneeLeast*float64(length) && k.z >= kneeZ
	return k, found, true
}

// rateChange is an instant from which requests come more or less often.
type rateChange struct {
	at, about     int64   // it lies within about of at, with 95 %
	before, after float64 // requests a second
	z             float64
}

// arrivals tests whether requests are queued as often all the time. ok is false
// where there are too few to say.
func arrivals(ps []passage) (c rateChange, found, ok bool) {
	at := make([]int64, len(ps))
	for i, p := range ps {
		at[i] = p.queued
	}
	slices.Sort(at)
	if len(at) < rateBlocks*rateLeast || at[len(at)-1]-at[0] < rateBlocks {
		return c, false, false
	}
	from, to := at[0], at[len(at)-1]
	g := grid{start: from, end: to, every: (to-from)/rateBlocks + 1, n: rateBlocks}
	counts := make([]float64, rateBlocks)
	for _, t := range at {
		counts[g.index(t)]++
	}
	s, ok := stats.LevelShift(counts, blockEdge)
	if !ok {
		return c, false, false
	}
	c.z = s.Deviations(counts, 1./12) // counts are whole: their scatter is known to that
	// The stretch that holds a change with 95 % is 11 (σ/δ)² blocks to each
	// side, δ its size, with whose square z² grows: z² = (δ/σ)² n/4 in the middle.
	c.about = int64(max(1, 11*rateBlocks/(4*max(c.z, 1)*max(c.z, 1))) * float64(g.every))

	// The instant within two blocks at which two rates explain the arrivals
	// best, as if they came independently.
	gain := func(n int, d int64) float64 {
		if n == 0 || d <= 0 {
			return 0
		}
		return float64(n) * math.Log(float64(n)/float64(d))
	}
	about := from + int64(s.At)*g.every
	best := math.Inf(-1)
	for i, t := range at {
		if t < about-2*g.every || t > about+2*g.every || t <= from || t >= to {
			continue
		}
		// The change may lie just behind the last of the old or just before
		// the first of the new.
		for _, x := range [2]struct {
			n int
			t int64
		}{{i, t}, {i + 1, t}} {
			if v := gain(x.n, x.t-from) + gain(len(at)-x.n, to-x.t); v > best {
				best, c.at = v, x.t
			}
		}
	}
	if math.IsInf(best, -1) {
		c.at = about
	}
	n, _ := slices.BinarySearch(at, c.at)
	c.before = float64(n) / (float64(c.at-from) / 1e9)
	c.after = float64(len(at)-n) / (float64(to-c.at) / 1e9)
	more := max(c.before, c.after) >= rateRatio*min(c.before, c.after)
	return c, c.z >= rateZ && more, true
}

// depth is how many waited and ran on average from one instant to another.
func (tl *timeline) depth(from, to int64) (waiting, running trace.Opt[float64]) {
	if to <= from {
		return waiting, running
	}
	var waited, ran float64
	for i := range tl.waits {
		waited += float64(max(0, min(tl.waits[i].end, to)-max(tl.waits[i].start, from)))
	}
	for i := range tl.runs {
		ran += float64(max(0, min(tl.runs[i].end, to)-max(tl.runs[i].start, from)))
	}
	return trace.Some(waited / float64(to-from)), trace.Some(ran / float64(to-from))
}

// beside says of each change of speed and of arrivals how deep the queue was
// before and after it. One that lies within near of another has the same
// stretches.
func (tl *timeline) beside(cs []Change, last, near int64) {
	cut := func(c *Change) int64 { return c.AtNS.Or(c.FromNS/2+c.ToNS/2) - tl.origin }
	drives := func(c *Change) bool { return c.Of == OfSpeed || c.Of == OfArrivals }
	for i := range cs {
		c := &cs[i]
		if !drives(c) {
			continue
		}
		at, from, to := cut(c), int64(0), last
		for j := range cs {
			switch t := cut(&cs[j]); {
			case !drives(&cs[j]):
			case t < at-near:
				from = max(from, t)
			case t > at+near:
				to = min(to, t)
			}
		}
		c.WaitingBefore, c.RunningBefore = tl.depth(from, at)
		c.WaitingAfter, c.RunningAfter = tl.depth(at, to)
	}
}

// Timeline is what "traceview timeline" shows.
type Timeline struct {
	Windows *WindowResult `json:"timeline"`
	Changes *ChangeResult `json:"over_time"`
}

// changes looks for what changed on one replica. It is asked once causes and
// stalls are known.
func (p *replicaWork) changes() ([]Change, []ChangeTest) {
	name := ReplicaName{p.key.service, p.key.model, p.key.replica}
	origin := p.tl.origin
	h := p.history()
	var changes []Change

	knee, overloaded, ok := overload(h.passages, h.length)
	test := ChangeTest{Of: OfOverload, Replica: name, Outcome: Steady, Requests: int64(len(h.passages))}
	if !ok {
		test.Outcome, test.Reason = NotTested, fmt.Sprintf("%s through its queue, %d are needed", plural(test.Requests, "request", "requests"), minPassages)
	} else {
		test.Z = trace.Some(knee.z)
	}
	if overloaded {
		cause := p.mainCause(knee.at+origin, knee.last+origin)
		if cause == CauseHold || cause == CauseStall || cause == CauseStep {
			// The queue stands, but for no want of capacity.
			overloaded, test.Reason = false, "the queue waits for another cause: "+cause.String()
		} else {
			test.Outcome = Changed
			// The rising rate of the trials was told early by this much at most.
			about := h.length / 10
			changes = append(changes, Change{
				Of: OfOverload, Phase: trace.Queueing.String(), Replica: name, Cause: cause.String(),
				AtNS: trace.Some(knee.at + origin), FromNS: knee.at + origin - about, ToNS: knee.at + origin + about,
				CapacityPerS: trace.Some(knee.capacity), OfferedPerS: trace.Some(knee.offered), Z: trace.Some(knee.z),
			})
		}
	}
	tests := []ChangeTest{test}

	test = ChangeTest{Of: OfSpeed, Replica: name, Outcome: Steady, Requests: int64(len(h.decodes))}
	levels, share, reason := speeds(h.decodes)
	switch test.P = share; {
	case reason != "":
		test.Outcome, test.Reason = NotTested, reason
	case len(levels) > 1:
		test.Outcome = Changed
	}
	tests = append(tests, test)
	for i := 1; i < len(levels); i++ {
		l := &levels[i]
		before := levels[i-1].decodes
		c := Change{
			Of: OfSpeed, Replica: name, P: trace.Some(l.change.p),
			FromNS: l.change.from + origin, ToNS: l.change.to + origin, Ratio: ratio(before, l.decodes),
		}
		c.DecodeRatio, c.PrefillRatio = ratios(before, l.decodes)
		c.Phase = changedPhase(c.DecodeRatio, c.PrefillRatio).String()
		// Where the replica is overloaded, an instant found to the second is
		// wrong by up to a minute.
		if !overloaded && !l.change.edge {
			c.AtNS = trace.Some(l.change.at + origin)
		}
		changes = append(changes, c)
	}

	test = ChangeTest{Of: OfArrivals, Replica: name, Outcome: Steady, Requests: int64(len(h.passages))}
	if c, found, ok := arrivals(h.passages); !ok {
		test.Outcome, test.Reason = NotTested, fmt.Sprintf("%s through its queue, %d are needed", plural(test.Requests, "request", "requests"), rateBlocks*rateLeast)
	} else {
		test.Z = trace.Some(c.z)
		if found {
			test.Outcome = Changed
			changes = append(changes, Change{
				Of: OfArrivals, Replica: name, AtNS: trace.Some(c.at + origin), FromNS: c.at + origin - c.about, ToNS: c.at + origin + c.about,
				ArrivalsBefore: trace.Some(c.before), ArrivalsAfter: trace.Some(c.after), Z: trace.Some(c.z),
			})
		}
	}
	tests = append(tests, test)
	last := int64(0)
	for _, p := range h.passages {
		last = max(last, p.queued)
	}
	p.tl.beside(changes, last, h.length/rateBlocks)

	test = ChangeTest{Of: OfStall, Replica: name, Outcome: Steady, Requests: int64(len(p.rows))}
	if p.model == nil {
		test.Outcome, test.Reason = NotTested, "no model of a step fits: a silence cannot be told from a long generation"
	}
	for _, s := range p.stalls {
		if s.Confirmed {
			test.Outcome = Changed
			changes = append(changes, Change{Of: OfStall, Replica: name, AtNS: trace.Some(s.StartNS), FromNS: s.StartNS, ToNS: s.EndNS})
		}
	}
	return changes, append(tests, test)
}

// history is p's decodes and its requests' ways through the queue.
func (p *replicaWork) history() history {
	h := history{length: p.tl.end, decodes: make([]timedDecode, 0, len(p.tl.runs)), passages: make([]passage, 0, len(p.rows))}
	for i := range p.tl.runs {
		if d := p.decodes[i]; d.steps > 0 {
			h.decodes = append(h.decodes, timedDecode{d, p.tl.runs[i].first, p.tl.runs[i].end})
		}
	}
	// Runs and waits stand in the order of p.rows.
	runs, waits := p.tl.runs, p.tl.waits
	for _, row := range p.rows {
		began := int64(-1) // the first run
		for ; len(runs) > 0 && runs[0].row == row; runs = runs[1:] {
			if began < 0 {
				began = runs[0].start
			}
		}
		way := passage{began, began, true}
		for first := true; len(waits) > 0 && waits[0].row == row; waits = waits[1:] {
			if w := &waits[0]; first && (began < 0 || w.start < began) {
				way = passage{w.start, w.end, w.admitted}
			}
			first = false
		}
		if way.queued >= 0 {
			h.passages = append(h.passages, way)
		}
	}
	return h
}

// mainCause is the cause for most of the time from one instant to another.
func (p *replicaWork) mainCause(from, to int64) Cause {
	var sum [CauseStep + 1]int64
	for i := range p.segments {
		s := &p.segments[i]
		sum[s.cause] += max(0, min(s.end, to)-max(s.start, from))
	}
	best := CauseUnknown
	for c := range sum {
		if sum[c] > sum[best] {
			best = Cause(c)
		}
	}
	return best
}

func (r *ChangeResult) add(changes []Change, tests []ChangeTest) {
	r.Changes = append(r.Changes, changes...)
	r.Tests = append(r.Tests, tests...)
}

// sort orders changes by time and tests by question, then by replica.
func (r *ChangeResult) sort() {
	slices.SortFunc(r.Changes, func(x, y Change) int {
		return cmp.Or(cmp.Compare(x.AtNS.Or(x.FromNS), y.AtNS.Or(y.FromNS)), x.Replica.compare(y.Replica), cmp.Compare(x.Of, y.Of))
	})
	slices.SortFunc(r.Tests, func(x, y ChangeTest) int { return cmp.Or(cmp.Compare(x.Of, y.Of), x.Replica.compare(y.Replica)) })
}

// Tables gives the timeline as tables: "windows", a row for each series and
// window, "changes" and "change_tests".
func (t *Timeline) Tables() []*Table {
	return []*Table{t.Windows.Table(), t.Changes.table(), t.Changes.testTable()}
}

func numberCell(o trace.Opt[float64]) Cell {
	if v, ok := o.Get(); ok {
		return FloatCell(v)
	}
	return Cell{}
}

func (r *ChangeResult) table() *Table {
	t := &Table{Name: "changes", Title: "Changes", Columns: []Column{
		text("change", ""), text("of", "of"), text("replica", "replica"),
		{Name: "at_ns", Title: "at", Unit: UnitNanos}, {Name: "from_ns", Title: "from", Unit: UnitNanos}, {Name: "to_ns", Title: "to", Unit: UnitNanos},
		{Name: "time_ratio", Title: "time"}, {Name: "decode_time_ratio", Title: "decode"}, {Name: "prefill_time_ratio", Title: "prefill"},
		{Name: "phase", Title: "phase", Text: true}, {Name: "offered_requests_per_s", Title: "offered", Unit: UnitRate},
		{Name: "capacity_requests_per_s", Title: "capacity", Unit: UnitRate}, {Name: "cause", Title: "cause", Text: true},
		{Name: "p", Title: "p"}, {Name: "z", Title: "z"},
		{Name: "arrivals_before_per_s", Title: "came before", Unit: UnitRate}, {Name: "arrivals_after_per_s", Title: "after", Unit: UnitRate},
		{Name: "waiting_before", Title: "waiting before", Unit: UnitRequests}, {Name: "waiting_after", Title: "after", Unit: UnitRequests},
		{Name: "running_before", Title: "running before", Unit: UnitRequests}, {Name: "running_after", Title: "after", Unit: UnitRequests},
	}}
	for i := range r.Changes {
		c := &r.Changes[i]
		cause, phase := Cell{}, Cell{}
		if c.Cause != "" {
			cause = TextCell(c.Cause)
		}
		if c.Phase != "" {
			phase = TextCell(c.Phase)
		}
		t.Rows = append(t.Rows, []Cell{
			TextCell(strconv.Itoa(i + 1)), TextCell(c.Of), TextCell(c.Replica.String()), OptCell(c.AtNS), IntCell(c.FromNS), IntCell(c.ToNS),
			numberCell(c.Ratio), numberCell(c.DecodeRatio), numberCell(c.PrefillRatio), phase, numberCell(c.OfferedPerS), numberCell(c.CapacityPerS), cause, numberCell(c.P), numberCell(c.Z),
			numberCell(c.ArrivalsBefore), numberCell(c.ArrivalsAfter), numberCell(c.WaitingBefore), numberCell(c.WaitingAfter), numberCell(c.RunningBefore), numberCell(c.RunningAfter),
		})
	}
	return t
}

func (r *ChangeResult) testTable() *Table {
	t := &Table{Name: "change_tests", Title: "What was tested", Columns: []Column{
		text("of", ""), text("replica", "replica"),
		{Name: "requests", Title: "requests", Unit: UnitRequests}, {Name: "p", Title: "p"}, {Name: "z", Title: "z"},
		{Name: "outcome", Title: "outcome", Text: true}, {Name: "reason", Title: "reason", Text: true},
	}}
	for i := range r.Tests {
		c := &r.Tests[i]
		reason := Cell{}
		if c.Reason != "" {
			reason = TextCell(c.Reason)
		}
		t.Rows = append(t.Rows, []Cell{
			TextCell(c.Of), TextCell(c.Replica.String()), IntCell(c.Requests), numberCell(c.P), numberCell(c.Z), TextCell(c.Outcome), reason,
		})
	}
	return t
}
