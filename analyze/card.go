package analyze

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/trace"
)

// window finds the stretch of time that rates refer to, and into how many
// slices it is cut for intervals.
func (w *work) window() {
	if w.mixed {
		return
	}
	var first, done, last int64
	arrived, completed := false, false
	for _, r := range w.rows {
		if r.has&hasExtent == 0 {
			continue
		}
		if r.has&hasArrival != 0 {
			if !arrived || r.arrival < first {
				first = r.arrival
			}
			if !arrived || r.end > last {
				last = r.end
			}
			arrived = true
		}
		if r.has&complete != 0 && (!completed || r.end > done) {
			done, completed = r.end, true
		}
	}
	if !arrived {
		return
	}
	w.start, w.end = first, done
	if !completed {
		w.end = last // nothing ended: as far as anything was seen
	}
	origin := w.origin[w.clock].Or(0)
	if t, ok := w.opts.From.resolve(w.clock, origin); ok && w.opts.From.set {
		w.start = int64(t)
	}
	if t, ok := w.opts.To.resolve(w.clock, origin); ok && w.opts.To.set {
		w.end = int64(t)
	}
	w.end = max(w.end, w.start)
	w.rep.Card.Window = &Window{
		Stated:  w.opts.From.set || w.opts.To.set,
		StartNS: w.start, EndNS: w.end, LengthNS: w.end - w.start,
	}
}

// slice is the slice of the window that r arrived in.
func (w *work) slice(r *row) uint8 {
	if w.slices == 0 {
		return 0
	}
	b := float64(w.slices) * float64(r.arrival-w.start) / float64(w.end-w.start)
	return uint8(max(0, min(b, float64(w.slices-1))))
}

// resolution finds the coarsest clock step behind the figures. Requests that
// none of them is of do not count: the spans of a server are not less fine for a
// log that adds, to the second, those that its clients left.
func (w *work) resolution() {
	c := &w.rep.Card
	figures, all := int64(-1), int64(-1)
	step := func(r *row) int64 { return int64(w.dimRows[r.dim].resolution) }
	for _, r := range w.used {
		figures = max(figures, step(r))
	}
	for _, r := range w.rows {
		all = max(all, step(r))
		if r.has&tellsWaiting != 0 {
			figures = max(figures, step(r))
		}
	}
	if figures < 0 {
		figures = all
	}
	if figures < 0 {
		return
	}
	c.ResolutionNS = trace.Some(figures)
	for _, r := range w.rows {
		if step(r) > figures {
			c.Coarser++
		}
	}
}

func (w *work) card() {
	c := &w.rep.Card
	names := func() map[string]int64 { return map[string]int64{} }
	services, models, replicas, engines, formats, files := names(), names(), names(), names(), names(), names()
	add := func(m map[string]int64, name string) {
		if name != "" {
			m[name]++
		}
	}
	var in, cached, out []int64
	for _, r := range w.rows {
		d := &w.dimRows[r.dim]
		add(services, d.service)
		add(models, d.model)
		add(replicas, d.replica)
		add(engines, d.engine)
		add(formats, d.format)
		add(files, w.files.names[r.file])
		if r.has&hasExtent != 0 {
			c.RequestTimeNS += r.end - r.start
		}
		if r.in >= 0 {
			in = append(in, r.in)
		}
		if r.cached >= 0 {
			cached = append(cached, r.cached)
		}
		if r.out >= 0 {
			out = append(out, r.out)
		}
	}
	w.resolution()
	c.Services, c.Models, c.Replicas = named(services), named(models), named(replicas)
	c.Engines, c.Formats, c.Files = named(engines), named(formats), named(files)
	c.Versions = named(w.versions)
	c.Hardware, c.Sampling = attrValues(w.hardware), attrValues(w.sampling)
	c.PromptTokens, c.CachedTokens, c.OutputTokens = w.tokens(in), w.tokens(cached), w.tokens(out)
	c.Objectives = []string{}
	for _, o := range w.opts.Objectives {
		c.Objectives = append(c.Objectives, o.String())
	}
	switch {
	case w.mixed && w.clock != trace.ClockUnknown:
		c.Clock = "mixed"
	case len(w.rows) > 0:
		c.Clock = w.clock.String()
	}
	if c.Window != nil && w.clock == trace.ClockUnix {
		// The calendar times have no finer digit than the clock.
		stamp := func(ns int64) string {
			return trace.Time(ns - ns%max(1, c.ResolutionNS.Or(1))).UTC().Format(time.RFC3339Nano)
		}
		c.Window.Start, c.Window.End = stamp(w.start), stamp(w.end)
	}
	if c.Window != nil && c.Window.LengthNS > 0 {
		w.rates(in, out)
	}
}

// workload reports whether nothing tells how any request was served: what is
// counted of that would be a 0 of nothing.
func (w *work) workload() bool {
	return len(w.rep.Card.Engines) == 1 && w.rep.Card.Engines[0].Name == trace.Workload
}

// rates fills what is counted over the window.
func (w *work) rates(in, out []int64) {
	c := &w.rep.Card
	length := float64(c.Window.LengthNS)
	perSecond := func(n int64) trace.Opt[float64] { return trace.Some(float64(n) * 1e9 / length) }
	var arrivals, served, good, prompt, output int64
	var starts, ends, gone []int64 // gone: last seen, of those whose end is not known
	var waits []span
	open := func(r *row) {
		waits = append(waits, w.waits.get(r.wait, r.waits)...)
		if r.has&hasArrival == 0 {
			return
		}
		starts = append(starts, r.arrival)
		if r.has&complete == 0 {
			gone = append(gone, r.end)
			return
		}
		ends = append(ends, r.end)
		if r.outcome != trace.OK || r.end < w.start || r.end > w.end {
			return
		}
		served++
		prompt += max(r.in, 0)
		output += max(r.out, 0)
		if w.meets(r) {
			good++
		}
	}
	for _, r := range w.rows {
		if r.has&hasArrival != 0 {
			arrivals++
		}
		open(r)
	}
	// Who arrived before the window may run, wait and end in it.
	for _, r := range w.others {
		if r.has&hasArrival != 0 && r.clock == w.clock {
			open(r)
		}
	}
	c.OfferedPerS = perSecond(arrivals)
	if w.workload() {
		return
	}
	c.ThroughputPerS = perSecond(served)
	if len(in) > 0 {
		c.PromptTokensPerS = perSecond(prompt)
	}
	if len(out) > 0 {
		c.OutputTokensPerS = perSecond(output)
	}
	if len(w.opts.Objectives) > 0 {
		c.GoodputPerS = perSecond(good)
	}
	slices.Sort(starts)
	slices.Sort(ends)
	// A request without a known end may have stayed to the end of the window,
	// or have left when it was last seen.
	high, peak := depth(starts, ends, w.start, w.end)
	c.ConcurrencyHigh = trace.Some(high)
	if ends = append(ends, gone...); len(gone) > 0 {
		slices.Sort(ends)
		low, _ := depth(starts, ends, w.start, w.end)
		c.ConcurrencyLow = trace.Some(low)
	} else {
		c.ConcurrencyLow, c.ConcurrencyMean, c.ConcurrencyPeak = trace.Some(high), trace.Some(high), trace.Some(peak)
	}
	if w.tells {
		ws, we := make([]int64, len(waits)), make([]int64, len(waits))
		for i, s := range waits {
			ws[i], we[i] = s.start, s.end
		}
		slices.Sort(ws)
		slices.Sort(we)
		mean, peak := depth(ws, we, w.start, w.end)
		c.WaitingMean, c.WaitingPeak = trace.Some(mean), trace.Some(peak)
	}

	// The number of samples and the step are those of the method: a quarter of
	// a second, coarser only for runs of more than an hour.
	step := max(0.25e9, length/14400)
	n := int(min(length/step, 14400))
	memory := stats.Memory(stats.Depth(starts, ends, w.start, int64(step), n))
	w.slices = stats.Slices(length, memory*step)
}

// depth sweeps what is open between from and to: the mean over time and the
// peak. Ends come before starts at the same instant. What has a start and no
// end (fewer ends than starts) stays open to the end.
func depth(starts, ends []int64, from, to int64) (mean float64, peak int64) {
	var open int64
	var area float64
	t := from // up to where the window has been swept
	hold := func(until int64) {
		if until = min(until, to); until > t {
			area += float64(open) * float64(until-t)
			peak = max(peak, open)
			t = until
		}
	}
	for s, e := 0, 0; s < len(starts) || e < len(ends); {
		next := int64(math.MaxInt64)
		if s < len(starts) {
			next = starts[s]
		}
		if e < len(ends) {
			next = min(next, ends[e])
		}
		hold(next)
		for ; e < len(ends) && ends[e] == next; e++ {
			open--
		}
		for ; s < len(starts) && starts[s] == next; s++ {
			open++
		}
	}
	hold(to)
	if to <= from {
		return 0, 0
	}
	return area / float64(to-from), peak
}

func (w *work) tokens(n []int64) Tokens {
	t := Tokens{Requests: int64(len(n)), Quantiles: []TokenQuantile{}}
	if len(n) == 0 {
		return t
	}
	slices.Sort(n)
	for _, v := range n {
		t.Total += v
	}
	t.Mean = trace.Some(float64(t.Total) / float64(len(n)))
	t.Max = trace.Some(n[len(n)-1])
	for _, q := range w.opts.Quantiles {
		t.Quantiles = append(t.Quantiles, TokenQuantile{q, stats.Quantile(n, q)})
	}
	return t
}

func attrValues(m map[string]map[string]int64) []AttrValues {
	list := []AttrValues{}
	for k, values := range m {
		list = append(list, AttrValues{k, named(values)})
	}
	slices.SortFunc(list, func(x, y AttrValues) int { return cmp.Compare(x.Key, y.Key) })
	return list
}
