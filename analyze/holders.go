package analyze

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// The laws of this file look at replicas: at who ran while others waited.

// Thresholds, by what was measured on the simulator's scenarios (1,500 to 2,000
// requests each; see TestCleanTraces and BenchmarkCheckClean).
const (
	// Clean runs with derived instants are above a true limit for 0.3 % of the
	// running time at most: a request that leaves is seen a little late.
	aboveLimit = 0.01
	// Waiting at an idle replica that no group of admissions ends: 0 to 0.5 %
	// in clean runs, 8 to 50 % with nine of ten spans missing.
	idleShare = 0.05
	// Waiting for slots at a running count below the limit: up to 0.2 % in
	// clean runs; 2 % and more with one request in twenty aborted unseen.
	hiddenShare = 0.01
	// Waiting that no limit explains: below 1 % in clean runs but for two
	// kinds, a batching policy and memory with hidden preemptions; 25 to 98 %
	// with nine of ten spans missing.
	unexplainedShare = 0.2
	// Of what was refused, how much is let in when someone leaves or ends a
	// prefill, beyond chance: 0.75 to 1 in clean runs, −0.1 to 0.3 with nine
	// of ten spans missing.
	freedShare = 0.5
	// Of what was refused, how much is let in when another request arrives,
	// beyond chance: a batch was full. 0.9 with such a policy, else below 0.2.
	gatherShare = 0.5
	// Fewer refusals show nothing.
	fewRefusals = 20
)

// tenure is what the replicas show of who held them.
type tenure struct {
	waiting, idle, unexplained int64   // nanoseconds
	bySlots, hidden            int64   // waiting for slots, and of it below the limit
	refusals                   int64   // waits that were refused at least once
	gathered                   int64   // of them let in with others, or after as long as most
	freed, chance              float64 // let in when someone left or ended a prefill, and by chance
	arrived, arrives           float64 // let in when someone arrived, and by chance
	worst                      string  // the replica with most unexplained waiting
	most                       int64
}

// tenure looks at all replicas, each as [Waits.Result] explains it.
func (c *Check) tenure() (tenure, Law) {
	res := &WaitResult{ws: c.ws, of: make([]int32, c.ws.rows.n), charges: make([]int64, c.ws.rows.n)}
	c.ws.told = c.told
	c.ws.classify(res)
	c.ws.group(res)
	alone := len(res.work) == 1
	inParallel(len(res.work), func(i int) { res.work[i].prepare(c.ws.statedLimits(res.work[i], alone)) })
	freeSpells(res.work)
	var h tenure
	slots := newSlots(c.readings)
	for i, p := range res.work {
		p.explain(false)
		if !p.split { // else the waits are of two engines, and the holders of one
			h.replica(p)
			slots.replica(p)
		}
		res.work[i] = nil
	}
	return h, slots.law()
}

func (h *tenure) replica(p *replicaWork) {
	step := 4 * p.tol
	if p.model != nil {
		step = max(p.tol, int64(min(p.model.MedianNS, 1e15)))
	}
	g := p.gates(step)
	tol := g.tol

	from, to := p.whole()
	inside := func(s *stretch) bool { return s.start >= from && s.end <= to }

	// Idle stretches with work waiting; those that share an end are one.
	var unexplained int64
	seg := 0
	for i := 0; i < len(p.stretches); {
		s := &p.stretches[i]
		if !inside(s) {
			i++
			continue
		}
		if s.n > 0 {
			ns := int64(s.w) * (s.end - s.start)
			h.waiting += ns
			for p.segments[seg].end <= s.start+p.tl.origin {
				seg++
			}
			switch g := &p.segments[seg]; g.cause {
			case CauseSlots:
				// Where memory binds too, a count below the limit is no sign.
				if p.limit.Scarce != "slots" {
					break
				}
				h.bySlots += ns
				if g.hidden {
					h.hidden += ns
				}
			case CauseUnknown:
				unexplained += ns
			}
			i++
			continue
		}
		begin, end, ns := s.start, s.start, int64(0)
		for ; i < len(p.stretches) && p.stretches[i].n <= 0 && p.stretches[i].start == end; i++ {
			s := &p.stretches[i]
			ns += int64(s.w) * (s.end - s.start)
			end = s.end
		}
		h.waiting += ns
		unexplained += ns
		// A request that left is seen late by less than a step.
		if end-begin > step && !g.policy(end) {
			h.idle += ns
		}
	}
	h.unexplained += unexplained
	if unexplained > h.most {
		h.most, h.worst = unexplained, processName(p.key.service, p.key.replica)
	}

	// What the admissions of refused work come with.
	chance := byChance(len(g.freeing), 2*tol, p.busy)
	arrives := byChance(len(g.arrivals), step, p.tl.end)
	for i := range p.tl.waits {
		w := &p.tl.waits[i]
		if !w.admitted || w.start < from || w.end > to || float64(w.end-w.start) <= refusedSteps*float64(step) {
			continue
		}
		h.refusals++
		h.chance += chance
		h.arrives += arrives
		if within(g.freeing, w.end-tol, w.end+tol) > 0 {
			h.freed++
		}
		if within(g.arrivals, w.end-step, w.end) > 0 {
			h.arrived++
		}
		if g.together(w.end) || g.timeout(w.end-w.start) {
			h.gathered++
		}
	}
}

// whole is the stretch of time in which all who ran are in the input, wherever
// it was cut: spans are written when requests end, so that those are missing
// that had ended before the first that is there, or had not when the last did.
func (p *replicaWork) whole() (from, to int64) {
	from, to = math.MaxInt64, math.MinInt64
	lengths := make([]int64, len(p.tl.runs))
	for i, r := range p.tl.runs {
		from, to = min(from, r.end), max(to, r.end)
		lengths[i] = r.end - r.start
	}
	slices.Sort(lengths)
	return from, to - stats.Quantile(lengths, 0.99)
}

// gates are the instants by which one sees why work is let in. All are sorted.
type gates struct {
	// Derived instants of one moment lie up to milliseconds apart, where most
	// of a replica's may agree to the microsecond: a quarter of a step is
	// allowed, and what chance gives is taken off.
	tol, step int64
	admitted  []int64
	length    map[int64]int64 // the longest wait that ends then
	arrivals  []int64         // of work that had to wait
	freeing   []int64         // last tokens and ends of prefills
	usual     int64           // the length of most waits; negative: there is none
}

func (p *replicaWork) gates(step int64) *gates {
	g := &gates{tol: max(p.tol, step/4), step: step, length: map[int64]int64{}, usual: -1}
	var lengths []int64
	for i := range p.tl.waits {
		w := &p.tl.waits[i]
		g.arrivals = append(g.arrivals, w.start)
		if w.admitted {
			g.admitted = append(g.admitted, w.end)
			g.length[w.end] = max(g.length[w.end], w.end-w.start)
			lengths = append(lengths, w.end-w.start)
		}
	}
	for _, e := range p.tl.events {
		if (e.kind == prefillEnds || e.kind == leaveRunning) && p.tl.isEdge(e) {
			g.freeing = append(g.freeing, e.at)
		}
	}
	slices.Sort(g.arrivals)
	slices.Sort(g.admitted)
	slices.Sort(lengths)
	if n := len(lengths); n >= fewRefusals {
		m := lengths[n/2]
		if m > 3*step && 2*within(lengths, m-m/50-g.tol, m+m/50+g.tol) > n {
			g.usual = m
		}
	}
	return g
}

// together reports whether several were let in at t.
func (g *gates) together(t int64) bool { return within(g.admitted, t-g.tol, t+g.tol) >= 2 }

// timeout reports whether a wait was as long as most.
func (g *gates) timeout(length int64) bool {
	return g.usual >= 0 && max(length-g.usual, g.usual-length) <= g.usual/50+g.tol
}

// policy reports whether what was let in at t was let in by a batching policy:
// with others, after a timeout, or because another had come.
func (g *gates) policy(t int64) bool {
	if g.together(t) || g.timeout(g.length[t]) {
		return true
	}
	return g.length[t] > g.step && within(g.arrivals, t-g.tol, t) > 0
}

// byChance is how likely one of n instants in the whole lies in a stretch.
func byChance(n int, stretch, whole int64) float64 {
	return 1 - math.Exp(-float64(n)*float64(stretch)/float64(max(1, whole)))
}

// within counts the sorted values from from to to.
func within(sorted []int64, from, to int64) int {
	a, _ := slices.BinarySearch(sorted, from)
	b, _ := slices.BinarySearch(sorted, to+1)
	return b - a
}

// beyond is the share of n that was seen, less what chance gives. ok is false
// where chance alone gives nearly all.
func beyond(seen, chance float64, n int64) (share float64, ok bool) {
	rest := float64(n) - chance
	return (seen - chance) / rest, rest > float64(n)/10
}

func waitLaw(name, statement string, tested, broken int64) Law {
	return Law{Law: name, Statement: statement, Verdict: Holds, Unit: "ns of waiting", Tested: tested, Broken: broken}
}

func (h *tenure) idleLaw() Law {
	l := waitLaw("idle", "no work waits for longer than a step while its replica is idle, unless a batch gathers", h.waiting, h.idle)
	if h.waiting == 0 {
		return untested(l, "no request waited beside others of its replica")
	}
	share := l.share()
	l.Found = units.Percent(share) + " of waiting is"
	if share <= idleShare {
		l.Found += " so"
		return l
	}
	l.Verdict = Fails
	l.Found += " at an idle replica, and ends without a batch"
	l.Likely = "requests without a span ran meanwhile (sampled, lost), or the engine slept"
	l.Distrust = []string{"causes: hold is not hold", "utilisation", "what was avoidable"}
	return l
}

func (h *tenure) holderLaw() Law {
	l := waitLaw("holders", "work is refused at a limit, and let in when someone leaves", h.waiting, max(h.hidden, h.unexplained))
	distrust := []string{"causes and limits", "blame: holders are missing", "what was avoidable"}
	share := float64(h.unexplained) / float64(max(1, h.waiting))
	freed, told := beyond(h.freed, h.chance, h.refusals)
	arrived, _ := beyond(h.arrived, h.arrives, h.refusals)
	policy := 2*h.gathered >= h.refusals || arrived >= gatherShare
	switch {
	case h.refusals < fewRefusals:
		return untested(l, "work was hardly ever refused")
	case 5*h.bySlots > h.waiting && float64(h.hidden) > hiddenShare*float64(h.bySlots):
		l.Verdict, l.Distrust, l.Broken = Fails, distrust, h.hidden
		l.Found = units.Percent(float64(h.hidden)/float64(h.bySlots)) + " of the waiting for slots was at a running count below the limit"
		l.Likely = "requests without a span held slots: aborted ones, or spans that were lost"
	case share > unexplainedShare && told && freed < freedShare && !policy:
		l.Verdict, l.Distrust, l.Broken = Fails, distrust, h.unexplained
		l.Found = fmt.Sprintf("%s of waiting is at no limit, and of what was refused %s came in when someone left, beyond chance",
			units.Percent(share), units.Percent(max(0, freed)))
		// The captured vLLM looks like this as long as its memory is not known, and
		// has all its spans.
		l.Likely = "most who held the replica have no span (sampled, or lost), or a limit is not in the data: state --kv-tokens, or add the engine's log"
	case share > unexplainedShare:
		why := "a batching policy, or a limit that the data do not show"
		if h.worst != "" {
			why += "; most at " + h.worst
		}
		return untested(l, fmt.Sprintf("no limit explains %s of waiting: %s", units.Percent(share), why))
	default:
		l.Found = fmt.Sprintf("for all but %s of waiting", units.Percent(share))
	}
	return l
}

// slots holds running counts against stated limits, and those against what
// engines say.
type slots struct {
	top             map[string]int64 // the largest running count that an engine stated
	running, beyond int64            // request-nanoseconds, and of them above the limit
	peaks           []string
	denied          string // what an engine stated against its limit
}

func newSlots(readings []trace.Reading) *slots {
	s := &slots{top: map[string]int64{}}
	for _, r := range readings {
		name := processName(r.Service, r.Replica)
		s.top[name] = max(s.top[name], int64(r.Running.Or(0)))
	}
	return s
}

func (s *slots) replica(p *replicaWork) {
	limit, ok := p.limit.Slots.Value.Get()
	if !ok || p.limit.Slots.How == LimitInferred {
		return
	}
	var n, at int64
	for _, e := range p.tl.events {
		s.running = addUp(s.running, n, e.at-at)
		s.beyond = addUp(s.beyond, max(0, n-limit), e.at-at)
		at = e.at
		switch e.kind {
		case enterRunning:
			n++
		case leaveRunning:
			n--
		}
	}
	name := processName(p.key.service, p.key.replica)
	if int64(p.peak) > limit {
		s.peaks = append(s.peaks, fmt.Sprintf("%s %s (limit %s)", name, units.Count(int64(p.peak)), units.Count(limit)))
	}
	if t := s.top[name]; t > limit && s.denied == "" {
		s.denied = fmt.Sprintf("%s itself states that it ran %s, and its limit is stated as %s", name, units.Count(t), units.Count(limit))
	}
}

func (s *slots) law() Law {
	l := Law{
		Law: "slots", Statement: "no replica runs more than its slot limit", Verdict: Holds,
		Unit: "ns of running", Tested: s.running, Broken: s.beyond,
	}
	switch {
	case s.running == 0:
		return untested(l, "no slot limit is stated, by the user or in the input")
	case s.denied != "":
		l.Found = s.denied
		l.Likely = "the stated limit is not the engine's"
	case l.share() > aboveLimit:
		l.Found = units.Percent(l.share()) + " of the running is above the limit; at most " + strings.Join(s.peaks[:min(len(s.peaks), 4)], ", ")
		l.Likely = "several engines share one name, the stated limit is not the engine's, or requests that were pushed back count as running"
	default:
		l.Found = "but for " + units.Percent(l.share()) + " of the running"
		return l
	}
	l.Verdict = Fails
	l.Distrust = []string{"the cause slots", "utilisation", "what was avoidable"}
	return l
}

// addUp adds n·d, and stays at the largest sum that there is.
func addUp(sum, n, d int64) int64 {
	if d > 0 && n > (math.MaxInt64-sum)/d {
		return math.MaxInt64
	}
	return sum + n*d
}
