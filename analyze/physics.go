package analyze

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// Verdict says what became of a [Law].
type Verdict string

const (
	Fails    Verdict = "fails"
	Untested Verdict = "cannot be tested"
	Holds    Verdict = "holds"
)

// Law is something that every true trace obeys, held against this one. Holds
// says that a breach would have been seen; where the data could not show one
// the verdict is Untested.
type Law struct {
	Law       string   `json:"law"`       // stable short name: "order"
	Statement string   `json:"statement"` // what must hold
	Verdict   Verdict  `json:"verdict"`
	Found     string   `json:"found"`    // the numbers; for Untested what is missing
	Likely    string   `json:"likely"`   // the likely reason; "" unless it fails
	Distrust  []string `json:"distrust"` // figures not to rely on; empty unless it fails
	Unit      string   `json:"unit"`     // of Tested and Broken: "requests", "readings", "ns of waiting"
	Tested    int64    `json:"tested"`
	Broken    int64    `json:"broken"`
	Example   string   `json:"example"` // the request furthest off, and where it stands; "" if none
}

// share is the broken part: what fails is listed by it, worst first.
func (l *Law) share() float64 {
	if l.Tested <= 0 {
		return 0
	}
	return float64(l.Broken) / float64(l.Tested)
}

// Physics is what [Check] found of the laws, with the numbers behind them.
type Physics struct {
	Laws    []Law         `json:"laws"`    // what fails, worst first; then what cannot be tested; then what holds
	Clocks  []ClockPair   `json:"clocks"`  // two processes that saw the same requests
	Depths  []DepthCheck  `json:"depths"`  // spans against engine readings, one row an engine; the last, if several, over all
	Little  []LittleCheck `json:"little"`  // over all, then by replica
	Silence []Silence     `json:"silence"` // replicas that stopped while others went on
}

// ClockPair is what the spans of two processes say of their clocks: the
// inner's less the outer's is at least LowNS and at most HighNS, since an inner
// span lies inside the outer one. Low above high: no constant offset explains
// the requests.
type ClockPair struct {
	Outer        string `json:"outer"` // service/replica
	Inner        string `json:"inner"`
	Requests     int64  `json:"requests"`
	StickOut     int64  `json:"stick_out"` // requests whose inner span sticks out of the outer
	LowNS        int64  `json:"offset_low_ns"`
	HighNS       int64  `json:"offset_high_ns"`
	OffsetNS     int64  `json:"offset_ns"`     // the middle; it means something where Consistent and not Possible0
	Consistent   bool   `json:"consistent"`    // low ≤ high
	ZeroPossible bool   `json:"zero_possible"` // low ≤ 0 ≤ high
}

// DepthCheck sets the number of requests in an engine by spans beside the
// engine's own running + waiting, at the instants of its readings.
type DepthCheck struct {
	Engine   string  `json:"engine"` // service/replica as the readings name it; "" over all
	Readings int64   `json:"readings"`
	Stated   float64 `json:"stated_mean"`
	Seen     float64 `json:"seen_mean"`
	Ratio    float64 `json:"ratio"` // seen / stated
	Low      float64 `json:"ratio_low"`
	High     float64 `json:"ratio_high"` // 95 % interval by batch means
	// Least is the ratio in the tenth of the time in which it is least, of those
	// with enough readings; 1 where there is none.
	Least float64 `json:"ratio_least_tenth"`
}

// Silence is a stretch without arrivals at one replica.
type Silence struct {
	Replica  string  `json:"replica"` // service/replica
	StartNS  int64   `json:"start_ns"`
	EndNS    int64   `json:"end_ns"`
	Others   int64   `json:"others"`   // arrivals elsewhere meanwhile
	Expected float64 `json:"expected"` // arrivals that its share before would have given
}

// The thresholds. Each was set on runs of the simulator without defects (see
// TestCleanTraces and BenchmarkCheckClean) and on the same runs with one defect
// planted (TestPhysicsFindsDefects).
const (
	// Float seconds since the epoch lose 240 ns: what is off by no more is not.
	rounding = int64(time.Microsecond)
	// A broken instrument is off in most requests; one request in a hundred may
	// be odd for reasons of its own (a client that hung up, a cached answer).
	oddShare = 0.01
	// No accelerator decodes one request at 20,000 tokens a second, and no
	// caller waits a minute a token: the fastest published decoders stay below
	// 3,000 a second. Short outputs may come in one piece, so that their gaps
	// say nothing.
	fastToken, slowToken = int64(50 * time.Microsecond), int64(time.Minute)
	shortOutput          = 16
	// Fewer requests than this show no habit.
	fewRequests = 20
)

// placed is what physics keeps of a request.
type placed struct {
	arrival, queued, left int64 // queued > left: it was in no engine
	replica, class        uint32
	arrived               bool
	open                  bool // its end is not known: it may have stayed on
}

// pair are the gaps between outer and inner spans of two processes.
type pair struct{ before, after []int64 }

// odd counts breaches and remembers the worst request.
type odd struct {
	tested, broken int64
	worst          int64
	example        string
}

// see takes a request into account that is off by so much; 0: not at all.
func (o *odd) see(r *trace.Request, by int64) {
	o.tested++
	if by <= 0 {
		return
	}
	o.broken++
	if by < o.worst {
		return
	}
	name := r.ID
	if name == "" {
		name = r.TraceID
	}
	if p := r.Source.Pos.String(); p != "" {
		name += " (" + p + ")"
	}
	if by > o.worst || name < o.example {
		o.worst, o.example = by, strings.Clone(name)
	}
}

func (o *odd) share() float64 {
	if o.tested == 0 {
		return 0
	}
	return float64(o.broken) / float64(o.tested)
}

// physics collects what the laws are tested on.
type physics struct {
	rows              []placed
	replicas, classes interner
	pairs             map[[2]string]*pair
	segments          []trace.Segment // scratch

	phases, order, tokens odd
	tooLong, tiny, epoch  odd
	grain                 [len(grains)]int64
	grained               int64 // requests with both ends on a clock finer than a grain
	served, failed        int64 // with phases, in an engine
	vllm                  int64 // requests of engines that write no span for an abort
	spanned               int64 // requests in an engine, of spans
	logged                int64 // requests that were not served, as a log alone tells
	bare                  map[string]*bareCount
	orphans               int64 // requests in an engine whose span names a parent that is not in the input
}

// bareCount counts a service's requests that no engine's span belongs to.
type bareCount struct{ ok, failed, joined int64 }

var grains = [...]int64{int64(time.Millisecond), int64(time.Second)}

const engineTime = trace.Queueing | trace.Prefill | trace.Decode | trace.Preempted | trace.Transfer

func processName(service, replica string) string {
	switch {
	case service == "" && replica == "":
		return "(unnamed)"
	case replica == "":
		return service
	case service == "":
		return replica
	}
	return service + "/" + replica
}

func (p *physics) add(r *trace.Request, b *trace.Breakdown) {
	if p.pairs == nil {
		p.pairs, p.bare = map[[2]string]*pair{}, map[string]*bareCount{}
	}
	tolerance := max(rounding, 2*int64(r.Resolution))

	if len(r.Intervals) > 0 {
		off := int64(b.Outside + b.Overlap + b.Conflict)
		if off <= rounding {
			off = 0
		}
		p.phases.see(r, off)
	}
	p.instants(r, tolerance)
	p.counts(r)
	p.unit(r, b)

	s := placed{queued: math.MaxInt64, left: math.MinInt64}
	p.segments = r.Segments(p.segments[:0])
	for _, g := range p.segments {
		if g.Phase&engineTime != 0 {
			s.queued, s.left = min(s.queued, int64(g.Start)), max(s.left, int64(g.End))
		}
	}
	inEngine := s.queued <= s.left
	switch {
	case r.Source.Format != logFormat && inEngine:
		p.spanned++
	case r.Source.Format == logFormat && r.Outcome != trace.OK && r.Outcome != trace.Incomplete:
		p.logged++
	}
	s.open = !r.Completed.Present()
	s.replica = p.replicas.id(processName(r.Service, r.Replica))
	for _, k := range TenantKeys {
		if v, ok := r.Attr(k); ok {
			s.class = p.classes.id(v.String()) + 1
			break
		}
	}
	if t, ok := r.Arrival.Get(); ok {
		s.arrival, s.arrived = int64(t), true
	}
	if inEngine || s.arrived {
		p.rows = append(p.rows, s)
	}

	if o, ok := r.Outer.Get(); ok {
		k := [2]string{processName(o.Service, o.Replica), processName(r.Service, r.Replica)}
		q := p.pairs[k]
		if q == nil {
			q = &pair{}
			p.pairs[k] = q
		}
		// A caller that leaves closes the outer span while the engine's goes on.
		if r.Outcome == trace.OK {
			q.before, q.after = append(q.before, int64(o.Before)), append(q.after, int64(o.After))
		}
		p.outer(o.Service).joined++
	} else if !inEngine && r.Outcome != trace.Incomplete {
		if c := p.outer(r.Service); r.Outcome == trace.OK {
			c.ok++
		} else {
			c.failed++
		}
	}
	if inEngine {
		if r.Outcome == trace.OK {
			p.served++
		} else if r.Outcome != trace.Incomplete {
			p.failed++
		}
		if strings.HasPrefix(r.Source.Engine, "vllm") {
			p.vllm++
		}
		// Where the outer span is there, it is its parent that is missing.
		if !r.Outer.Present() && slices.ContainsFunc(r.Issues, func(i trace.Issue) bool { return i.Code == trace.MissingParent }) {
			p.orphans++
		}
	}

	if a, ok := r.Arrival.Get(); ok {
		if z, ok := r.Completed.Get(); ok && int64(r.Resolution) < grains[0] {
			p.grained++
			for i, g := range grains {
				if int64(a)%g == 0 && int64(z)%g == 0 {
					p.grain[i]++
				}
			}
		}
	}
}

func (p *physics) outer(service string) *bareCount {
	c := p.bare[service]
	if c == nil {
		c = &bareCount{}
		p.bare[strings.Clone(service)] = c
	}
	return c
}

// instants tests the order of r's instants, and the source's figures against
// each other and against the whole.
func (p *physics) instants(r *trace.Request, tolerance int64) {
	var off int64
	last, known := int64(math.MinInt64), 0
	for _, in := range []trace.Instant{r.Arrival, r.Queued, r.Scheduled, r.FirstToken, r.LastToken, r.Completed} {
		if t, ok := in.Get(); ok {
			if known > 0 && last-int64(t) > tolerance {
				off = max(off, last-int64(t))
			}
			last = max(last, int64(t))
			known++
		}
	}
	inside := func(part, whole trace.Opt[time.Duration], slack int64) {
		a, ok := part.Get()
		b, ok2 := whole.Get()
		if !ok || !ok2 {
			return
		}
		known++
		if d := int64(a - b); d > slack {
			off = max(off, d)
		}
	}
	// The source's e2e may be taken off another clock than the span's: a
	// millisecond is allowed.
	inside(r.Reported.E2E, r.E2E(), max(tolerance, int64(time.Millisecond)))
	inside(r.Reported.TTFT, r.Reported.E2E, tolerance)
	if strings.HasPrefix(r.Source.Engine, "vllm") {
		// The front end has the first token after the engine: arrival to first
		// token holds queueing and prefill.
		if q, ok := r.Reported.Queue.Get(); ok {
			inside(trace.Some(q+r.Reported.Prefill.Or(0)), r.Reported.TTFT, max(tolerance, int64(time.Millisecond)))
		}
	}
	if known > 2 { // more than begin and end
		p.order.see(r, off)
	}
}

// counts tests token counts against each other and against time.
func (p *physics) counts(r *trace.Request) {
	out, ok := r.Output.Get()
	if !ok {
		return
	}
	var off int64
	tested := false
	if m, ok := r.MaxTokens.Get(); ok {
		tested = true
		off = max(off, int64(out-m))
	}
	if in, ok := r.Input.Get(); ok {
		if c, ok := r.Cached.Get(); ok {
			tested = true
			off = max(off, int64(c-in))
		}
	}
	if d := tpot(r); out >= shortOutput && d.Present() {
		tested = true
		if v := d.Or(0); v < fastToken {
			off = max(off, fastToken-v)
		} else if v > slowToken {
			off = max(off, v-slowToken)
		}
	}
	if tested {
		p.tokens.see(r, off)
	}
}

// unit looks for a factor of 1000: phases a thousand times too long, which an
// ingester has left out; a thousand times too short, which leaves nearly all of
// the request unexplained; instants in microseconds or milliseconds, which lie
// just behind 1970.
func (p *physics) unit(r *trace.Request, b *trace.Breakdown) {
	if t, ok := r.Arrival.Get(); ok && r.Clock == trace.ClockUnix {
		var off int64
		if t < 1e18/5 { // 1976: microseconds of this century are in January 1970
			off = 1
		}
		p.epoch.see(r, off)
	}
	if r.Outcome != trace.OK || r.Output.Or(1) == 0 {
		return
	}
	long := slices.ContainsFunc(r.Issues, func(i trace.Issue) bool { return i.Code == trace.PhaseTooLong })
	told := int64(0)
	for _, q := range b.Parts {
		if q.Phase&engineTime != 0 {
			told += int64(q.Dur)
		}
	}
	if !long && told == 0 {
		return
	}
	var off int64
	if long {
		off = 1
	}
	p.tooLong.see(r, off)
	if long {
		return
	}
	// Between 1/2000 and 1/900 of the request: the whole of it in other units.
	off = 0
	if e := int64(b.Extent); told <= e/900 && told >= e/2000 {
		off = 1
	}
	p.tiny.see(r, off)
}

// report tests the laws.
func (c *Check) physics() Physics {
	out := Physics{Laws: []Law{}, Clocks: []ClockPair{}, Depths: []DepthCheck{}, Little: []LittleCheck{}, Silence: []Silence{}}
	p := &c.p
	if c.requests == 0 {
		return out
	}
	add := func(l Law) {
		if l.Distrust == nil {
			l.Distrust = []string{}
		}
		out.Laws = append(out.Laws, l)
	}
	add(p.phaseLaw())
	add(p.orderLaw())
	add(p.tokenLaw())
	add(p.unitLaw())
	add(p.grainLaw())

	w := c.work()
	add(clockLaw(w))
	out.Little = w.rep.Little
	add(littleLaw(w))

	out.Clocks = p.clockPairs()
	add(p.nestingLaw(out.Clocks))
	add(p.joinLaw())

	if !c.Chosen {
		out.Depths = p.depths(c.readings, w)
		out.Silence = p.silences()
	}
	add(depthLaw(out.Depths))
	add(p.silenceLaw(out.Silence))
	add(samplingLaw(c.a.sampling, out.Depths))
	add(p.failureLaw(out.Depths))

	h, slots := c.tenure()
	for _, l := range []Law{h.idleLaw(), h.holderLaw(), slots} {
		if c.Chosen && l.Verdict != Untested {
			l.Tested, l.Broken, l.Likely, l.Distrust = 0, 0, "", nil
			l = untested(l, "requests were left out that shared their engines with these")
		}
		add(l)
	}

	order := map[Verdict]int{Fails: 0, Untested: 1, Holds: 2}
	slices.SortStableFunc(out.Laws, func(x, y Law) int {
		if d := cmp.Compare(order[x.Verdict], order[y.Verdict]); d != 0 || x.Verdict != Fails {
			return d
		}
		return cmp.Compare(y.share(), x.share())
	})
	return out
}

// law starts a law on what o counted.
func (o *odd) law(name, statement string) Law {
	return Law{
		Law: name, Statement: statement, Verdict: Holds, Unit: "requests",
		Tested: o.tested, Broken: o.broken, Example: o.example,
	}
}

func untested(l Law, why string) Law {
	l.Verdict, l.Found = Untested, why
	return l
}

func of(n, all int64) string {
	return fmt.Sprintf("%s of %s (%s)", units.Count(n), plural(all, "request", "requests"), units.Percent(float64(n)/float64(all)))
}

// but words that all are as they should be, or nearly.
func but(n, all int64) string {
	if n == 0 {
		return "in all of " + plural(all, "request", "requests")
	}
	return "in all but " + of(n, all)
}

func nanos(ns int64) string { return units.Duration(time.Duration(ns), 0) }

func (p *physics) phaseLaw() Law {
	l := p.phases.law("phases", "phases lie within their request and never two at once")
	switch {
	case l.Tested == 0:
		return untested(l, "no request tells of phases")
	case l.Broken == 0:
		l.Found = but(0, l.Tested)
		return l
	}
	l.Verdict = Fails
	l.Found = fmt.Sprintf("in %s a phase lies outside or two exclude each other; by %s at most", of(l.Broken, l.Tested), nanos(p.phases.worst))
	l.Likely = "one of the phases is in another unit or on another clock than the request"
	if p.phases.share() < 0.5 {
		l.Likely = "some phases were stamped wrongly, or are on another clock than the request"
	}
	l.Distrust = []string{"the split of these requests into phases"}
	return l
}

func (p *physics) orderLaw() Law {
	l := p.order.law("order", "arrived, queued, scheduled, first token, last token, completed: in this order, and the source's own figures fit into each other")
	switch {
	case l.Tested == 0:
		return untested(l, "no request tells more than its begin and end")
	case l.Broken == 0:
		l.Found = but(0, l.Tested)
		return l
	}
	l.Verdict = Fails
	l.Found = fmt.Sprintf("not so in %s; by %s at most", of(l.Broken, l.Tested), nanos(p.order.worst))
	l.Likely = "the instants are of two clocks, or one of the durations is in another unit"
	l.Distrust = []string{"ttft", "tpot", "queueing, prefill and decode"}
	return l
}

func (p *physics) tokenLaw() Law {
	l := p.tokens.law("tokens", fmt.Sprintf("a token takes between %s and %s, and no count is above its limit", nanos(fastToken), nanos(slowToken)))
	switch {
	case l.Tested == 0:
		return untested(l, fmt.Sprintf("no request of %d output tokens or more tells when its tokens came", shortOutput))
	case p.tokens.share() <= oddShare:
		l.Found = but(l.Broken, l.Tested)
		return l
	}
	l.Verdict = Fails
	l.Found = "not so in " + of(l.Broken, l.Tested)
	l.Likely = "decode is in another unit, or the token counts are not those of the request"
	l.Distrust = []string{"tpot", "token rates", "the step model, and causes that rest on it"}
	return l
}

func (p *physics) unitLaw() Law {
	l := Law{Law: "units", Statement: "times are in the units that they claim", Unit: "requests", Verdict: Holds}
	use := func(o *odd) { l.Tested, l.Broken, l.Example = o.tested, o.broken, o.example }
	switch {
	// A source whose unit is wrong has it wrong everywhere; half leaves room
	// for phases so short that a thousandfold still fits into the request.
	case p.epoch.share() > 0.5:
		use(&p.epoch)
		l.Verdict, l.Found = Fails, of(l.Broken, l.Tested)+" arrived before 1976"
		l.Likely = "instants are written in microseconds or milliseconds where nanoseconds are meant"
		l.Distrust = []string{"every time"}
	case p.tooLong.broken >= 5 && p.tooLong.share() > 0.5:
		use(&p.tooLong)
		l.Verdict = Fails
		l.Found = of(l.Broken, l.Tested) + " have a phase longer than the request itself"
		l.Likely = "milliseconds were written where seconds are meant (a factor of 1,000)"
		l.Distrust = []string{"every phase of these requests: those still there may be a thousand times too long", "ttft", "tpot"}
	case p.tiny.broken >= 5 && p.tiny.share() > 0.9:
		use(&p.tiny)
		l.Verdict = Fails
		l.Found = "the phases of " + of(l.Broken, l.Tested) + " come to a thousandth of the request"
		l.Likely = "phases are a factor of 1,000 too short (seconds where milliseconds are meant), or the span a factor too long"
		l.Distrust = []string{"every phase", "tpot", "causes and blame"}
	case p.tooLong.tested < fewRequests:
		use(&p.tooLong)
		return untested(l, fmt.Sprintf("fewer than %d served requests tell of phases", fewRequests))
	default:
		use(&p.tooLong)
		l.Broken = 0
		l.Found = "no factor of 1,000 between phases and requests"
	}
	return l
}

func (p *physics) grainLaw() Law {
	l := Law{Law: "resolution", Statement: "instants are as fine as the source claims", Unit: "requests", Verdict: Holds, Tested: p.grained}
	if p.grained < fewRequests {
		return untested(l, fmt.Sprintf("fewer than %d requests claim to be finer than %s", fewRequests, nanos(grains[0])))
	}
	for i, g := range slices.Backward(grains[:]) {
		// By chance one request in 10^12 has both ends on a whole millisecond.
		if p.grain[i]*2 > p.grained {
			l.Verdict, l.Broken = Fails, p.grain[i]
			l.Found = fmt.Sprintf("%s begin and end on a whole %s", of(p.grain[i], p.grained), strings.TrimPrefix(nanos(g), "1 "))
			l.Likely = "the source or an exporter rounds its clock"
			l.Distrust = []string{"phases and waits shorter than " + nanos(g), "the cause step"}
			return l
		}
	}
	l.Found = "no rounding to milliseconds or seconds"
	return l
}

// work prepares what the analyzer knows of the window and of Little's law.
func (c *Check) work() *work {
	w := &work{Analyzer: c.a, rep: &Report{}, total: map[trace.Phase]int64{}, all: map[trace.Phase]int64{}}
	w.choose()
	w.window()
	w.little()
	return w
}

func clockLaw(w *work) Law {
	l := Law{Law: "clock", Statement: "all requests are on one clock", Unit: "requests", Verdict: Holds, Tested: int64(len(w.rows)), Found: "they are"}
	if w.mixed {
		l.Verdict, l.Broken = Fails, l.Tested
		n := map[trace.Clock]int64{}
		for _, r := range w.rows {
			n[r.clock]++
		}
		most := int64(0)
		var parts []string
		for k := trace.ClockUnknown; k <= trace.ClockRelative; k++ {
			if n[k] > 0 {
				parts = append(parts, units.Count(n[k])+" "+k.String())
				most = max(most, n[k])
			}
		}
		l.Broken = l.Tested - most
		l.Found = "they are on several: " + join(parts)
		l.Likely = "inputs of different kinds were given together"
		l.Distrust = []string{"rates", "concurrency", "everything that sets one request beside another"}
	}
	return l
}

func littleLaw(w *work) Law {
	l := Law{Law: "little", Statement: "mean waiting = arrivals a second × mean wait (to 1 %), in total and for each replica", Unit: "replicas and total", Verdict: Holds}
	worst := 0.0
	var off []string
	untold := int64(0)
	for _, r := range w.rows {
		if r.has&(hasArrival|tellsWaiting) == hasArrival {
			untold++
		}
	}
	for _, k := range w.rep.Little {
		if k.Deviation.Present() {
			l.Tested++
		}
		d := math.Abs(k.Deviation.Or(0))
		worst = max(worst, d)
		if k.BeyondPercent {
			l.Broken++
			where := k.Replica.Or("in total")
			off = append(off, where+" "+units.Percent(d))
			l.Likely = k.Reason
		}
	}
	switch {
	case w.mixed:
		return untested(l, "the requests are on different clocks")
	case w.tooLong:
		return untested(l, "the times are too long to be added up")
	case len(off) > 0 && untold > 0:
		return untested(l, plural(untold, "request does", "requests do")+" not tell of waiting")
	case l.Tested == 0:
		return untested(l, "no request tells that it waited")
	case len(off) == 0:
		l.Found = fmt.Sprintf("off by %s at most; it says nothing of requests that are not in the input", units.Percent(worst))
		return l
	}
	l.Verdict = Fails
	l.Found = "off: " + strings.Join(off[:min(len(off), 4)], ", ")
	if len(off) > 4 {
		l.Found += fmt.Sprintf(" and %d more", len(off)-4)
	}
	l.Distrust = []string{"mean waiting", "waiting of replicas"}
	return l
}

// clockPairs bounds the offset between the clocks of each pair of processes.
func (p *physics) clockPairs() []ClockPair {
	out := []ClockPair{}
	for k, q := range p.pairs {
		n := len(q.before)
		if n == 0 {
			continue
		}
		c := ClockPair{Outer: k[0], Inner: k[1], Requests: int64(n)}
		for i := range q.before {
			if q.before[i] < -rounding || q.after[i] < -rounding {
				c.StickOut++
			}
		}
		before, after := slices.Clone(q.before), slices.Clone(q.after)
		slices.Sort(before)
		slices.Sort(after)
		// The one in a hundred that may be odd does not decide.
		skip := int(float64(n) * oddShare)
		c.LowNS, c.HighNS = -after[skip], before[skip]
		c.OffsetNS = c.LowNS/2 + c.HighNS/2
		c.Consistent = c.LowNS <= c.HighNS+2*rounding
		c.ZeroPossible = c.LowNS <= rounding && c.HighNS >= -rounding
		out = append(out, c)
	}
	slices.SortFunc(out, func(x, y ClockPair) int {
		return cmp.Or(cmp.Compare(x.Outer, y.Outer), cmp.Compare(x.Inner, y.Inner))
	})
	return out
}

func (p *physics) nestingLaw(pairs []ClockPair) Law {
	l := Law{Law: "nesting", Statement: "an engine's span lies inside the span around it", Unit: "requests", Verdict: Holds}
	var off []string
	var most int64
	drift := false
	for _, c := range pairs {
		l.Tested += c.Requests
		l.Broken += c.StickOut
		most = max(most, c.HighNS, -c.LowNS)
		if float64(c.StickOut) <= oddShare*float64(c.Requests) {
			continue
		}
		switch {
		case c.Consistent && !c.ZeroPossible:
			off = append(off, fmt.Sprintf("%s is %s %s (between %s and %s)", c.Inner, ahead(c.OffsetNS), c.Outer, nanos(c.LowNS), nanos(c.HighNS)))
		default:
			drift = true
			off = append(off, fmt.Sprintf("%s within %s: no constant offset explains it", c.Inner, c.Outer))
		}
	}
	switch {
	case l.Tested == 0:
		if p.orphans > 0 {
			return untested(l, plural(p.orphans, "request names", "requests name")+" a span around it that is not in the input")
		}
		return untested(l, "no request was seen by two processes")
	case len(off) == 0:
		l.Found = fmt.Sprintf("%s; clocks may still differ by up to %s", but(l.Broken, l.Tested), nanos(most))
		return l
	}
	l.Verdict = Fails
	l.Found = fmt.Sprintf("it sticks out in %s: %s", of(l.Broken, l.Tested), strings.Join(off[:min(len(off), 4)], "; "))
	if len(off) > 4 {
		l.Found += fmt.Sprintf("; and %d more", len(off)-4)
	}
	l.Likely = "the clocks of the two hosts differ by a constant"
	if drift {
		l.Likely = "a clock drifts or jumped, or spans were joined that do not belong together"
	}
	l.Distrust = []string{"arrival and completion", "ttft", "order of events between hosts"}
	return l
}

// ahead words an offset.
func ahead(ns int64) string {
	if ns < 0 {
		return nanos(-ns) + " behind"
	}
	return nanos(ns) + " ahead of"
}

// joinLaw looks for requests that an outer service served and no engine did,
// or the other way round.
func (p *physics) joinLaw() Law {
	l := Law{Law: "joined", Statement: "what an outer service served, some engine served, and both tell of it", Unit: "requests", Verdict: Holds}
	for _, c := range p.bare {
		if c.joined > 0 {
			l.Tested += c.joined + c.ok
			l.Broken += c.ok
		}
	}
	if l.Tested == 0 {
		return untested(l, "no outer service is in the input")
	}
	bare := l.Broken
	l.Tested += p.orphans
	l.Broken += p.orphans
	if float64(l.Broken) <= oddShare*float64(l.Tested) {
		l.Found = but(l.Broken, l.Tested)
		return l
	}
	l.Verdict = Fails
	if bare >= p.orphans {
		l.Found = of(bare, l.Tested) + " were served without an engine's span"
		l.Likely = "the spans of a replica were lost, or engine and gateway were sampled apart"
		l.Distrust = []string{"depth, running and waiting", "causes and blame: holders are missing", "rates by replica"}
		return l
	}
	l.Found = of(p.orphans, l.Tested) + " have an engine's span and not the one around it"
	l.Likely = "spans of the outer service were lost, or are in another file"
	l.Distrust = []string{"arrival and completion", "ttft and e2e: for these they begin at the engine"}
	return l
}

// depths sets the requests in an engine, by spans, beside what the engines
// say: each engine whose replica the requests name too, and all together.
func (p *physics) depths(readings []trace.Reading, w *work) []DepthCheck {
	out := []DepthCheck{}
	if w.mixed {
		return out
	}
	type edges struct{ in, out []int64 }
	byReplica := map[string]*edges{}
	all := &edges{}
	var stays []int64
	first, last := int64(math.MaxInt64), int64(math.MinInt64)
	open := 0
	for _, r := range p.rows {
		if r.open {
			open++
		}
		if r.queued > r.left {
			continue
		}
		name := p.replicas.names[r.replica]
		e := byReplica[name]
		if e == nil {
			e = &edges{}
			byReplica[name] = e
		}
		for _, e := range []*edges{e, all} {
			e.in, e.out = append(e.in, r.queued), append(e.out, r.left)
		}
		stays = append(stays, r.left-r.queued)
		first, last = min(first, r.queued), max(last, r.left)
	}
	// Most logs tell of no request when it ended: nothing can be said of how
	// many were there.
	if len(stays) == 0 || float64(open) > depthOff*float64(len(p.rows)) {
		return out
	}
	slices.Sort(stays)
	for _, e := range byReplica {
		slices.Sort(e.in)
		slices.Sort(e.out)
	}
	slices.Sort(all.in)
	slices.Sort(all.out)
	// Near the ends of the input requests in flight have no span yet, or had
	// ended before it began.
	edge := stats.Quantile(stays, 0.99)
	first, last = first+edge, last-edge

	byEngine := map[string][]trace.Reading{}
	var names []string
	for _, r := range readings {
		if !r.Running.Present() || !r.Waiting.Present() || r.Clock != w.clock || int64(r.At) < first || int64(r.At) > last {
			continue
		}
		name := processName(r.Service, r.Replica)
		if byEngine[name] == nil {
			names = append(names, name)
		}
		byEngine[name] = append(byEngine[name], r)
	}
	slices.Sort(names)
	named := slices.ContainsFunc(names, func(n string) bool { return byReplica[n] != nil })
	var total DepthCheck
	var seen, stated [depthBatches]float64
	var read [depthBatches]int
	for _, name := range names {
		rs := byEngine[name]
		slices.SortFunc(rs, compareReadings)
		e, part := byReplica[name], 1.0
		switch {
		case e == nil && named:
			e = &edges{} // an engine that is known by its readings alone
		case e == nil:
			// Readings and requests name replicas differently: each engine is
			// held against its share of all.
			e, part = all, 1/float64(len(names))
		}
		c := DepthCheck{Engine: name}
		var s, t [depthBatches]float64
		var n [depthBatches]int
		for _, r := range rs {
			b := min(depthBatches-1, int(depthBatches*(float64(r.At)-float64(first))/(float64(last)-float64(first)+1)))
			s[b] += part * float64(depthAt(e.in, e.out, int64(r.At)))
			t[b] += float64(max(0, r.Running.Or(0))) + float64(max(0, r.Waiting.Or(0)))
			n[b]++
		}
		c.fill(n, s, t)
		for b := range s {
			seen[b] += s[b]
			stated[b] += t[b]
			read[b] += n[b]
		}
		if named || len(names) == 1 {
			out = append(out, c)
		}
	}
	if len(names) > 1 {
		total.fill(read, seen, stated)
		// Of all engines at once, not of one on average.
		total.Seen *= float64(len(names))
		total.Stated *= float64(len(names))
		out = append(out, total)
	}
	return out
}

// depthBatches is the number of batches of time of which depths are compared:
// few, so that each is long against the memory of a queue.
const depthBatches = 10

// fill computes the means and their ratio from sums over batches of readings.
func (c *DepthCheck) fill(readings [depthBatches]int, seen, stated [depthBatches]float64) {
	c.Least = 1
	var s, t float64
	for b := range seen {
		c.Readings += int64(readings[b])
		s += seen[b]
		t += stated[b]
		if readings[b] >= fewReadings/4 && stated[b] >= fewReadings {
			c.Least = min(c.Least, seen[b]/stated[b])
		}
	}
	c.Seen, c.Stated = s/float64(c.Readings), t/float64(c.Readings)
	if m, ok := stats.MeanInterval(seen[:], stated[:]); ok {
		c.Ratio, c.Low, c.High = m.Mean, m.Low, m.High
	}
}

// depthAt counts the intervals open just before t. Both must be sorted.
func depthAt(in, out []int64, t int64) int {
	a, _ := slices.BinarySearch(in, t)
	b, _ := slices.BinarySearch(out, t)
	return a - b
}

const (
	// On clean runs the interval of the ratio was inside 1 ± 0.001 wherever
	// there were enough readings; a twohundredth is beyond what the places of
	// derived instants and a reading's own delay explain.
	depthOff = 0.005
	// Below this the spans cannot be those of all requests alone but for some
	// that failed: they were sampled, or lost.
	sampledBelow = 0.8
	// Fewer readings give no interval to rely on.
	fewReadings = 20
)

// enough reports whether there are readings at which someone was there.
func (c *DepthCheck) enough() bool {
	return c.Readings >= fewReadings && c.Stated*float64(c.Readings) >= fewReadings
}

// tells reports whether the readings are enough to find a hole of a twentieth.
func (c *DepthCheck) tells() bool { return c.enough() && c.High-c.Low <= 0.1 }

// short reports whether requests are missing: all along, or for a while.
func (c *DepthCheck) short() bool {
	return c.enough() && (c.High < 1-depthOff || c.Least < sampledBelow)
}

func (c *DepthCheck) over() bool { return c.enough() && c.Low > 1+depthOff }

// lost reports whether so much is missing that more than failures is.
func (c *DepthCheck) lost() bool { return c.short() && c.Ratio < sampledBelow }

const noReadings = "no engine readings (running and waiting) beside requests whose time in the engine is known"

func depthLaw(ds []DepthCheck) Law {
	l := Law{Law: "depth", Statement: "arrivals less departures are the running and waiting that the engine states", Unit: "requests at readings", Verdict: Holds}
	var off []string
	var over, known, dark bool
	worst := 0.0
	for _, c := range ds {
		if c.Engine != "" || len(ds) == 1 {
			l.Tested += int64(math.Round(c.Stated * float64(c.Readings)))
		}
		if !c.tells() && !c.short() {
			dark = dark || c.enough()
			continue
		}
		known = true
		worst = max(worst, math.Abs(c.Ratio-1))
		if !c.short() && !c.over() {
			continue
		}
		over = over || c.over()
		name := c.Engine
		if name == "" {
			name = "all engines"
		} else {
			l.Broken += int64(math.Round(math.Abs(c.Stated-c.Seen) * float64(c.Readings)))
		}
		off = append(off, fmt.Sprintf("%s: %s by spans, %s by its readings", name, units.Number(c.Seen), units.Number(c.Stated)))
	}
	switch {
	case len(ds) == 0:
		return untested(l, noReadings)
	case len(off) == 0 && (!known || dark):
		return untested(l, fmt.Sprintf("too few readings, or too few requests at them, to see a hole of 5 %% (%s)", plural(ds[len(ds)-1].Readings, "reading", "readings")))
	case len(off) == 0:
		l.Found = fmt.Sprintf("within %s of what the engines state", units.Percent(worst))
		return l
	}
	l.Verdict = Fails
	l.Found = "on average " + strings.Join(off[:min(len(off), 4)], "; ")
	if len(off) > 4 {
		l.Found += fmt.Sprintf("; and %d more", len(off)-4)
	}
	l.Likely = "requests are missing from the input: see sampling and failures"
	l.Distrust = []string{"depth, running and waiting", "rates", "causes and blame: holders are missing"}
	if name := apart(ds); name != "" {
		l.Likely = "spans of " + name + " were lost"
	} else if over {
		l.Likely = "requests are in the input that this engine did not run, or twice"
	}
	return l
}

// apart names the engine of which less is in the input than of the others, by
// more than chance; "" if there is none.
func apart(ds []DepthCheck) string {
	var least, most *DepthCheck
	for i := range ds {
		c := &ds[i]
		if c.Engine == "" || !c.enough() {
			continue
		}
		if least == nil || c.High < least.High {
			least = c
		}
		if most == nil || c.Low > most.Low {
			most = c
		}
	}
	if least == nil || least.High >= sampledBelow*most.Low {
		return ""
	}
	return least.Engine
}

// samplingLaw asks whether all requests are in the input.
func samplingLaw(attrs map[string]map[string]int64, ds []DepthCheck) Law {
	l := Law{Law: "sampling", Statement: "all requests are in the input, not a sample of them", Unit: "requests at readings", Verdict: Holds}
	distrust := []string{"rates, depth and concurrency: those of the sample only", "causes, limits and blame: most holders are missing"}
	var said []string
	for _, k := range sortedKeys(attrs) {
		for _, v := range sortedKeys(attrs[k]) {
			if k == "SampleRate" && v == "1" {
				continue
			}
			said = append(said, k+" = "+v)
		}
	}
	if len(said) > 0 {
		l.Verdict, l.Distrust = Fails, distrust
		l.Unit, l.Tested, l.Broken = "requests", 1, 1
		l.Found = "the data say so: " + strings.Join(said[:min(len(said), 4)], ", ")
		l.Likely = "a sampler chose the traces"
		return l
	}
	if len(ds) == 0 {
		return untested(l, noReadings)
	}
	// Sampling takes alike from all; a lost replica from one.
	all := ds[len(ds)-1]
	apart := apart(ds) != ""
	l.Tested = int64(math.Round(all.Stated * float64(all.Readings)))
	switch {
	case all.lost() && !apart:
		l.Verdict, l.Distrust = Fails, distrust
		l.Broken = int64(math.Round((all.Stated - all.Seen) * float64(all.Readings)))
		l.Found = fmt.Sprintf("by the engines' own count about %s of the requests are in the input", units.Percent(all.Ratio))
		l.Likely = "traces were sampled, or spans were dropped on their way"
	case all.short():
		return untested(l, fmt.Sprintf("%s of what the engines count is in the input: a sample of most requests and missing failures look alike", units.Percent(all.Ratio)))
	case !all.tells():
		return untested(l, "too few readings, or too few requests at them")
	default:
		l.Found = fmt.Sprintf("by the engines' own count %s of the requests are in the input", units.Percent(min(1, all.Ratio)))
	}
	return l
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// failureLaw asks whether requests that were not served are in the input.
func (p *physics) failureLaw(ds []DepthCheck) Law {
	l := Law{Law: "failures", Statement: "requests that failed or were aborted are in the input as far as they got", Unit: "requests", Verdict: Holds}
	distrust := []string{"causes: slots and memory look free that such requests held", "blame", "outcome shares"}
	var bare, joined int64
	for _, c := range p.bare {
		if c.joined > 0 {
			bare, joined = bare+c.failed, joined+c.joined+c.failed
		}
	}
	all := p.served + p.failed
	var short []string
	for _, c := range ds {
		if c.tells() && c.High < 1-depthOff && !c.lost() {
			name := c.Engine
			if name == "" {
				name = "all engines"
			}
			short = append(short, fmt.Sprintf("%s %s", name, units.Percent(1-c.Ratio)))
		}
	}
	switch {
	case float64(bare) > oddShare*float64(joined):
		l.Verdict, l.Distrust = Fails, distrust
		l.Tested, l.Broken = joined, bare
		l.Found = of(bare, joined) + " failed at the outer service and have no engine's span"
		l.Likely = "the engine writes no span for a request that it did not serve"
	case p.spanned > 0 && float64(p.logged) > oddShare*float64(p.spanned+p.logged):
		l.Verdict, l.Distrust = Fails, distrust
		l.Tested, l.Broken = p.spanned+p.logged, p.logged
		l.Found = of(p.logged, p.spanned+p.logged) + " were not served by the log and have no engine's span"
		l.Likely = "the engine writes no span for a request that it did not serve"
	case len(short) > 0:
		last := ds[len(ds)-1]
		l.Verdict, l.Distrust = Fails, distrust
		l.Unit = "requests at readings"
		l.Tested = int64(math.Round(last.Stated * float64(last.Readings)))
		l.Broken = int64(math.Round(math.Abs(last.Stated-last.Seen) * float64(last.Readings)))
		l.Found = "the engines count more requests than there are spans: " + strings.Join(short[:min(len(short), 4)], ", ") + " more"
		l.Likely = "the engine writes no span for a request that was aborted or failed, or a few spans were lost"
	case joined > 0:
		l.Tested = joined
		l.Found = "the outer service knows of " + plural(bare, "failure", "failures") + " that the engine does not show"
	case p.failed > 0 && p.vllm == 0:
		l.Tested = all
		l.Found = of(p.failed, all) + " were not served, and their phases are there"
	case len(ds) > 0 && ds[len(ds)-1].tells():
		// One in twenty that leaves soon is in no reading that one could tell.
		return untested(l, "the engines count no more than there are spans, but failures that are soon gone would not show")
	case p.vllm > 0:
		return untested(l, "vLLM writes no span for an aborted request, and nothing else in the input counts them")
	default:
		return untested(l, "no request failed, and nothing says whether the source would show it")
	}
	return l
}

// A replica that falls silent: thresholds. On clean runs, whatever the routing,
// no gap was more than 4 times the next longest of its replica.
const (
	silentFactor   = 8
	silentExpected = 20 // arrivals that it would have had
)

// silences finds replicas to which arrivals stop for a stretch while the
// total falls by their share: routing around a replica leaves the total as it
// was. Where all clients of the replica fall silent, it is not the replica.
func (p *physics) silences() []Silence {
	out := []Silence{}
	services := map[string][]int{} // rows by the service of their replica
	for i, r := range p.rows {
		if r.arrived && r.queued <= r.left {
			name := p.replicas.names[r.replica]
			service, _, _ := strings.Cut(name, "/")
			services[service] = append(services[service], i)
		}
	}
	for _, service := range sortedKeys(services) {
		rows := services[service]
		slices.SortFunc(rows, func(i, j int) int {
			return cmp.Or(cmp.Compare(p.rows[i].arrival, p.rows[j].arrival),
				cmp.Compare(p.replicas.names[p.rows[i].replica], p.replicas.names[p.rows[j].replica]))
		})
		at := map[string][]int{} // places in rows
		for k, i := range rows {
			name := p.replicas.names[p.rows[i].replica]
			at[name] = append(at[name], k)
		}
		if len(at) < 2 {
			continue
		}
		for _, name := range sortedKeys(at) {
			if s, ok := p.silence(rows, at[name]); ok {
				s.Replica = name
				out = append(out, s)
			}
		}
	}
	return out
}

// silence tests one replica, whose arrivals are at these places among all.
func (p *physics) silence(rows, at []int) (Silence, bool) {
	var longest, next, from int
	for k, place := range at {
		end := len(rows)
		if k+1 < len(at) {
			end = at[k+1]
		}
		switch gap := end - place - 1; {
		case gap > longest:
			longest, next, from = gap, longest, k
		case gap > next:
			next = gap
		}
	}
	// Its share of arrivals up to the gap.
	before := at[from] + 1 - at[0]
	share := float64(from+1) / float64(before)
	if share >= 1 {
		return Silence{}, false
	}
	s := Silence{Others: int64(longest), Expected: float64(longest) * share / (1 - share)}
	if from+1 < fewRequests || s.Expected < silentExpected || longest < silentFactor*max(1, next) {
		return s, false
	}
	time := func(place int) int64 { return p.rows[rows[place]].arrival }
	last := min(at[from]+longest+1, len(rows)-1)
	s.StartNS, s.EndNS = time(at[from]), time(last)
	rate := float64(longest) / float64(max(1, s.EndNS-s.StartNS))
	rateBefore := float64(before) / float64(max(1, s.StartNS-time(at[0])))
	if rate > rateBefore*(1-share/2) {
		return s, false
	}
	classes := map[uint32]bool{}
	for _, k := range at[:from+1] {
		if c := p.rows[rows[k]].class; c > 0 {
			classes[c] = true
		}
	}
	if len(classes) == 0 {
		return s, true
	}
	for place := at[from] + 1; place <= last; place++ {
		if classes[p.rows[rows[place]].class] {
			return s, true
		}
	}
	return s, false
}

func (p *physics) silenceLaw(ss []Silence) Law {
	l := Law{Law: "silence", Statement: "no replica falls silent while others go on", Unit: "requests", Verdict: Holds}
	counts := map[uint32]int64{}
	for _, r := range p.rows {
		if r.arrived && r.queued <= r.left {
			counts[r.replica]++
			l.Tested++
		}
	}
	full := 0
	for _, n := range counts {
		if n >= 2*fewRequests {
			full++
		}
	}
	if len(ss) == 0 {
		if full < 2 {
			return untested(l, fmt.Sprintf("fewer than two replicas with %d requests are named", 2*fewRequests))
		}
		l.Found = "none does; a replica without any span would not be seen"
		return l
	}
	l.Verdict = Fails
	var parts []string
	for _, s := range ss {
		parts = append(parts, fmt.Sprintf("%s for %s, while %s arrived elsewhere", s.Replica, nanos(s.EndNS-s.StartNS), plural(s.Others, "request", "requests")))
		l.Broken += int64(math.Round(s.Expected))
	}
	l.Found = strings.Join(parts[:min(len(parts), 4)], "; ")
	l.Likely = "its spans were lost (the total fell with it), or it stopped and its clients with it"
	l.Distrust = []string{"rates and depth of that time", "imbalance between replicas, and what was avoidable", "throughput"}
	return l
}
