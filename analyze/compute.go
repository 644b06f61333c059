package analyze

import (
	"cmp"
	"math/bits"
	"slices"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/trace"
)

// work is what the parts of a report share while it is computed.
type work struct {
	*Analyzer
	rep    *Report
	rows   []*row // arrived in the window
	others []*row // arrived outside it: they may lie in it all the same
	used   []*row // in the latency figures, by e2e, ties in input order
	phases []trace.Phase
	total  map[trace.Phase]int64 // over used
	all    map[trace.Phase]int64 // over rows
	tells  bool                  // some request tells how long it waited
	why    *WaitResult           // why the rows waited
	mixed  bool                  // rows are on more than one clock
	clock  trace.Clock

	start, end int64 // of the window; valid where rep.Card.Window is set
	slices     int   // of the window; 0: no intervals
	tooLong    bool  // times do not add up within int64: nothing is said of Little's law
}

// Report computes the report on all that was added so far. More may be added
// afterwards.
func (a *Analyzer) Report() *Report {
	rep, _ := a.Explain()
	return rep
}

// Explain computes the report and, for the same requests, why they waited: the
// causes in the report are those of the result. Requests outside a stated
// window hold their replica all the same.
func (a *Analyzer) Explain() (*Report, *WaitResult) {
	w := &work{
		Analyzer: a, rep: &Report{Version: ReportVersion},
		total: map[trace.Phase]int64{}, all: map[trace.Phase]int64{},
	}
	w.choose()
	w.counts()
	w.window()
	w.card()
	w.figures()
	w.reasons()
	w.tail()
	w.examples()
	w.groups()
	w.engines()
	w.little()
	w.words()
	return w.rep, w.why
}

func (w *work) partsOf(r *row) []trace.Part {
	return w.parts.get(r.part, r.parts)
}

func (r *row) e2e() int64 { return r.end - r.start }

// unattributed is what the parts leave of the extent.
func (w *work) unattributed(r *row) int64 {
	rest := r.end - r.start
	for _, p := range w.partsOf(r) {
		rest -= int64(p.Dur)
	}
	return rest
}

func (w *work) id(r *row) string { return string(w.text.get(r.text, r.idLen)) }
func (w *work) path(r *row) string {
	return string(w.text.get(r.text, r.idLen+r.path)[r.idLen:])
}

// choose picks the rows in the window, and of these the used ones.
func (w *work) choose() {
	asked := make([]bool, w.Analyzer.rows.n)
	bounded := w.opts.From.set || w.opts.To.set
	clocks := map[trace.Clock]bool{}
	for i := range w.Analyzer.rows.n {
		r := w.Analyzer.rows.at(uint32(i))
		r.at = uint32(i)
		if bounded && (r.has&hasArrival == 0 || !inWindow(w.opts.From, w.opts.To, r.clock, trace.Time(r.arrival), &w.origin)) {
			w.rep.Counts.NotInWindow++
			w.others = append(w.others, r)
			continue
		}
		w.rows = append(w.rows, r)
		asked[i] = true
		if r.has&hasExtent != 0 {
			clocks[r.clock] = true
			w.clock = r.clock
		}
		if w.isUsed(r) {
			w.used = append(w.used, r)
		}
		for _, p := range w.partsOf(r) {
			w.all[p.Phase] += int64(p.Dur)
		}
		w.all[trace.Unattributed] += w.unattributed(r)
		w.tells = w.tells || r.has&tellsWaiting != 0
	}
	// On an unknown clock each request may count from its own begin.
	w.mixed = len(clocks) > 1 || clocks[trace.ClockUnknown]
	w.why = w.Analyzer.why.result(func(i int) bool { return asked[i] })
	slices.SortFunc(w.used, func(x, y *row) int {
		if c := cmp.Compare(x.e2e(), y.e2e()); c != 0 {
			return c
		}
		return w.compare(x, y)
	})
	for _, r := range w.used {
		for _, p := range w.partsOf(r) {
			w.total[p.Phase] += int64(p.Dur)
		}
		w.total[trace.Unattributed] += w.unattributed(r)
	}
	for p := range w.all {
		if p != trace.Unattributed {
			w.phases = append(w.phases, p)
		}
	}
	slices.SortFunc(w.phases, comparePhases)
	w.phases = append(w.phases, trace.Unattributed)
}

// comparePhases orders sets by their first member, then by the others.
func comparePhases(p, q trace.Phase) int {
	return cmp.Or(cmp.Compare(p&-p, q&-q), cmp.Compare(p, q))
}

func (w *work) isUsed(r *row) bool {
	return r.has&complete != 0 && (r.outcome == trace.OK || w.opts.AllOutcomes)
}

// compare orders rows by arrival and, so that the order of adding never
// shows, by all that tells them apart.
func (w *work) compare(x, y *row) int {
	if c := cmp.Or(cmp.Compare(x.start, y.start), cmp.Compare(x.end, y.end)); c != 0 {
		return c
	}
	if c := cmp.Or(
		cmp.Compare(w.files.names[x.file], w.files.names[y.file]),
		cmp.Compare(x.offset, y.offset), cmp.Compare(x.line, y.line),
	); c != 0 {
		return c
	}
	if c := cmp.Or(cmp.Compare(w.path(x), w.path(y)), cmp.Compare(w.id(x), w.id(y))); c != 0 {
		return c
	}
	return slices.CompareFunc(w.partsOf(x), w.partsOf(y), func(p, q trace.Part) int {
		return cmp.Or(cmp.Compare(p.Phase, q.Phase), cmp.Compare(p.Dur, q.Dur))
	})
}

func (w *work) counts() {
	c := &w.rep.Counts
	c.Requests, c.Used, c.Readings = int64(len(w.rows)), int64(len(w.used)), int64(len(w.readings))
	outcomes := map[trace.Outcome]int64{}
	left := map[string]int64{}
	for _, r := range w.rows {
		outcomes[r.outcome]++
		switch {
		case w.isUsed(r):
		case r.outcome != trace.OK && !w.opts.AllOutcomes:
			left[r.outcome.String()]++
		case r.has&hasArrival == 0:
			left["no arrival"]++
		default:
			left["no end"]++
		}
		if r.has&inconsistent != 0 {
			c.Inconsistent++
		}
		c.OverlapNS += r.overlap
		c.OutsideNS += r.outside
		c.ConflictNS += r.conflict
	}
	for _, o := range trace.Outcomes() {
		c.Outcomes = append(c.Outcomes, NamedCount{o.String(), outcomes[o]})
	}
	c.LeftOut = named(left)
	if c.Requests > 0 {
		notOK := c.Requests - outcomes[trace.OK]
		c.NotOKShare = trace.Some(float64(notOK) / float64(c.Requests))
		c.NotOKMark = notOK*100 > c.Requests
	}
}

// named lists the counts, most first, ties by name. It is never nil.
func named(m map[string]int64) []NamedCount {
	list := make([]NamedCount, 0, len(m))
	for k, n := range m {
		list = append(list, NamedCount{k, n})
	}
	slices.SortFunc(list, func(x, y NamedCount) int {
		return cmp.Or(cmp.Compare(y.Requests, x.Requests), cmp.Compare(x.Name, y.Name))
	})
	return list
}

// valued is a value and the slice of time that its request arrived in.
type valued struct {
	v int64
	b uint8
}

// distribution describes the values of some requests.
func (w *work) distribution(name string, values []valued) Distribution {
	d := Distribution{Name: name, Requests: int64(len(values)), Quantiles: []Quantile{}}
	if len(values) == 0 {
		return d
	}
	slices.SortFunc(values, func(x, y valued) int { return cmp.Compare(x.v, y.v) })
	sorted, slice := make([]int64, len(values)), make([]uint8, len(values))
	for i, x := range values {
		sorted[i], slice[i] = x.v, x.b
		d.TotalNS += x.v
	}
	d.MeanNS = trace.Some(divide(d.TotalNS, d.Requests))
	d.MinNS, d.MaxNS = trace.Some(sorted[0]), trace.Some(sorted[len(sorted)-1])
	for _, q := range w.opts.Quantiles {
		out := Quantile{Q: q, NS: stats.Quantile(sorted, q)}
		out.Interval, out.Supported = w.interval(sorted, slice, q)
		d.Quantiles = append(d.Quantiles, out)
	}
	return d
}

// interval is how sure a quantile of ascending values is, whose requests
// arrived in these slices, and whether enough independent ones lie beyond it.
// It is nil where the window is not cut, or too finely for so few: two requests
// a slice are the least from which scatter can be seen.
func (w *work) interval(sorted []int64, slice []uint8, q float64) (*Interval, bool) {
	if w.slices == 0 || len(sorted) < 2*w.slices {
		return nil, false
	}
	iv, _ := stats.QuantileInterval(sorted, slice, w.slices, q)
	out := &Interval{Slices: w.slices, NEff: trace.Some(min(iv.NEff, float64(len(sorted))))}
	if iv.HasLow {
		out.LowNS = trace.Some(iv.Low)
	}
	if iv.HasHigh {
		out.HighNS = trace.Some(iv.High)
	}
	return out, iv.Supported
}

// divide is sum/n rounded to the nearest, halves away from zero.
func divide(sum, n int64) int64 {
	q, r := sum/n, sum%n
	switch {
	case r >= 0 && r >= n-r:
		q++
	case r < 0 && -r >= n+r:
		q--
	}
	return q
}

// figures fills phases, kinds, and the figures of whole requests.
func (w *work) figures() {
	byPhase := map[trace.Phase][]valued{}
	var e2e, ttft, tpot []valued
	var e2eAll int64
	for _, r := range w.used {
		b := w.slice(r)
		e2e = append(e2e, valued{r.e2e(), b})
		e2eAll += r.e2e()
		if r.ttft >= 0 {
			ttft = append(ttft, valued{r.ttft, b})
		}
		if r.tpot >= 0 {
			tpot = append(tpot, valued{r.tpot, b})
		}
		rest := r.e2e()
		for _, p := range w.partsOf(r) {
			byPhase[p.Phase] = append(byPhase[p.Phase], valued{int64(p.Dur), b})
			rest -= int64(p.Dur)
		}
		byPhase[trace.Unattributed] = append(byPhase[trace.Unattributed], valued{rest, b})
	}
	w.rep.Figures = []Distribution{w.distribution("ttft", ttft), w.distribution("tpot", tpot), w.distribution("e2e", e2e)}

	sums := make([]int64, len(w.phases))
	for i, p := range w.phases {
		sums[i] = w.total[p]
	}
	means := apportion(sums, int64(len(w.used)))
	kinds := map[trace.Kind]*KindRow{}
	w.rep.Kinds = make([]KindRow, len(trace.Kinds()))
	for i, k := range trace.Kinds() {
		w.rep.Kinds[i].Kind = k.String()
		kinds[k] = &w.rep.Kinds[i]
	}
	for i, p := range w.phases {
		row := PhaseRow{Distribution: w.distribution(p.String(), byPhase[p]), Kind: p.Kind().String(), TotalAllNS: w.all[p]}
		row.MeanNS = trace.Opt[int64]{}
		if len(w.used) > 0 {
			row.MeanNS = trace.Some(means[i])
		}
		row.Share = share(row.TotalNS, e2eAll)
		k := kinds[p.Kind()]
		k.TotalNS += row.TotalNS
		k.TotalAllNS += row.TotalAllNS
		if v, ok := row.MeanNS.Get(); ok {
			k.MeanNS = trace.Some(k.MeanNS.Or(0) + v)
		}
		w.rep.Phases = append(w.rep.Phases, row)
	}
	for i := range w.rep.Kinds {
		k := &w.rep.Kinds[i]
		k.Share = share(k.TotalNS, e2eAll)
		if len(w.used) > 0 {
			k.MeanNS = trace.Some(k.MeanNS.Or(0))
		}
	}
}

// share is part/whole, absent where there is no whole.
func share(part, whole int64) trace.Opt[float64] {
	if whole <= 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(float64(part) / float64(whole))
}

// reasons sums up why the requests waited.
func (w *work) reasons() {
	if !w.tells {
		return
	}
	w.rep.Waiting = &ReportWaiting{
		WaitingNS: w.why.WaitingNS, Confidence: w.why.Confidence,
		HiddenNS: w.why.HiddenNS, AvoidableNS: w.why.AvoidableNS, Causes: w.why.Causes,
	}
}

// apportion divides each sum by n so that the results add up to the rounded
// quotient of the total: the units that rounding down leaves go to the largest
// remainders, ties to the first.
func apportion(sums []int64, n int64) []int64 {
	out := make([]int64, len(sums))
	if n == 0 {
		return out
	}
	var total, floor int64
	order := make([]int, len(sums))
	for i, s := range sums {
		order[i] = i
		total += s
		out[i] = s / n
		floor += out[i]
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(sums[j]%n, sums[i]%n) })
	for _, i := range order[:max(0, min(int64(len(order)), divide(total, n)-floor))] {
		out[i]++
	}
	return out
}

// apportionTo divides a total in proportion to sums, to whole units that add
// up to it: what rounding down leaves goes to the largest remainders, ties to
// the first. Nothing is below zero.
func apportionTo(sums []int64, total int64) []int64 {
	out := make([]int64, len(sums))
	var whole uint64
	for _, s := range sums {
		whole += uint64(s)
	}
	if whole == 0 {
		return out
	}
	rest := make([]uint64, len(sums))
	order := make([]int, len(sums))
	left := total
	for i, s := range sums {
		high, low := bits.Mul64(uint64(total), uint64(s))
		q, r := bits.Div64(high, low, whole)
		out[i], rest[i], order[i] = int64(q), r, i
		left -= out[i]
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(rest[j], rest[i]) })
	for _, i := range order[:left] {
		out[i]++
	}
	return out
}
