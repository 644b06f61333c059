package analyze

import (
	"cmp"
	"math"
	"slices"
)

// StepModel is what a step of an engine costs, fitted to the decode times of
// its requests: a step takes base + tokens · prompt tokens in it + a part that
// grows with how many run and how much they hold.
type StepModel struct {
	Rows     int     `json:"rows"` // requests that it was fitted to
	BaseNS   float64 `json:"base_ns"`
	TokenNS  float64 `json:"prompt_token_ns"`
	MedianNS float64 `json:"median_step_ns"` // over the requests' decodes, as measured

	// The parts by running request and by resident prompt token rise together.
	// Their sum is good for the length of a step; neither is a property of the
	// engine.
	perRunning, perResident float64
	tokenLow, tokenHigh     float64 // what is believed of TokenNS
}

const (
	minModelRows   = 20      // fewer requests: no model
	minModelOutput = 8       // output tokens of a request that counts
	maxModelRows   = 1 << 14 // a stride is taken through more
	fewPrefills    = 12      // fewer tell nothing of when prompts are computed
)

// step predicts the length of a step in nanoseconds, and how much of it is
// prefill, at that cost of a prompt token.
func (m *StepModel) step(s *state, c float64) (total, prefill float64) {
	base := m.BaseNS + m.perRunning*float64(s.n) + m.perResident*s.prompts
	// A prompt that takes several steps has as much in one as the step is
	// long: total = base + c·(whole + rate·total).
	total = (base + c*(s.compute-s.inChunks)) / max(0.1, 1-c*s.rate)
	return total, total - base
}

// decode is one request's decode, as the model sees it.
type decode struct {
	steps             float64 // output tokens less one
	running, resident float64 // their means
	prompts           float64 // tokens of the prompts that were computed meanwhile
	ns                float64
}

// counts reports whether d is long enough to fit to.
func (d *decode) counts() bool { return d.steps >= minModelOutput-1 }

func (m *StepModel) predict(d *decode) float64 {
	return d.steps*(m.BaseNS+m.perRunning*d.running+m.perResident*d.resident) + m.TokenNS*d.prompts
}

// decodes sweeps the timeline and returns each run's decode; steps is 0 where
// there is none that can be told. On the way it finds the prefills that take
// several steps.
func (tl *timeline) decodes(rows *rowList[waitRow], tol int64, early bool) ([]decode, prefills) {
	ds := make([]decode, len(tl.runs))
	type sums struct{ running, resident, prompts float64 }
	var (
		now   sums
		s     state
		t     int64
		edge  int      // the first edge after t
		since = ds     // the sums at the first token are kept where the result will be
		began []uint32 // runs whose first token came at t
		g     group
		took  = prefills{stride: len(tl.runs)/mostSample + 1}
	)
	for _, e := range tl.events {
		if d := e.at - t; d != 0 {
			for _, i := range began {
				since[i] = decode{running: now.running, resident: now.resident, prompts: now.prompts}
			}
			began = began[:0]
			now.running += float64(s.n) * float64(d)
			now.resident += s.prompts * float64(d)
			t = e.at
		}
		switch e.kind {
		case enterRunning:
			edge = tl.behind(edge, t)
			r := &tl.runs[e.of]
			if r.first == r.start {
				began = append(began, e.of)
				break
			}
			i := tl.behind(edge, t+tol)
			r.spans = i < len(tl.edges) && tl.edges[i] < r.first-tol
			if early && i < len(tl.edges) {
				i = tl.behind(i, tl.edges[i]+tol) // it computes from there on
			}
			r.chunked = i < len(tl.edges) && tl.edges[i] < r.first-tol
			took.join(&g, r, &s, tol, rows.at(r.row).in >= 0)
		case prefillEnds:
			r := &tl.runs[e.of]
			now.prompts += r.compute
			if r.first < r.end {
				began = append(began, e.of)
			}
		case leaveRunning:
			r := &tl.runs[e.of]
			out := rows.at(r.row).out
			if d := float64(r.end - r.first); d > 0 && r.last && out >= 2 && r.whole(rows.at(r.row), tl.origin) {
				was := since[e.of]
				ds[e.of] = decode{
					steps: float64(out - 1), ns: d,
					running: (now.running - was.running) / d, resident: (now.resident - was.resident) / d,
					prompts: now.prompts - was.prompts,
				}
			} else {
				ds[e.of] = decode{}
			}
		}
		s.change(tl, e)
	}
	took.close(&g)
	return ds, took
}

// behind returns the first edge after t, from edge i on.
func (tl *timeline) behind(i int, t int64) int {
	for i < len(tl.edges) && tl.edges[i] <= t {
		i++
	}
	return i
}

// group is the requests that were taken up at one instant.
type group struct {
	open, chunked      bool
	mixed              bool  // what else was computed with it, or all of it, is not known
	start, first       int64 // taken up, and with the first token of any
	prompts            int
	tokens             float64 // of their prompts
	decoding, resident float64 // beside them: requests, and the tokens of their prompts
}

// prefills is what is known of the prompts that were computed.
type prefills struct {
	all, inChunks int // and those of them that took several steps
	// The largest group that was taken up at one instant and computed in one
	// step, and the smallest that was not, in tokens.
	whole, parts float64
	stride       int
	groups       int
	steps        []group // those computed in one step beside others, one in stride
}

// join takes a prompt into account that is taken up in state s; told says
// whether its length is known.
func (p *prefills) join(g *group, r *run, s *state, tol int64, told bool) {
	if g.open && r.start-g.start > tol {
		p.close(g)
	}
	if !g.open {
		// With a prefill already under way, what else the step computed is not
		// known.
		*g = group{open: true, start: r.start, mixed: s.prefills > 0, decoding: float64(s.n - s.prefills), resident: s.prompts, first: r.first}
	}
	g.mixed = g.mixed || !told
	g.prompts++
	g.tokens += r.compute
	g.first = min(g.first, r.first)
	g.chunked = g.chunked || r.chunked
	p.all++
	if r.chunked {
		p.inChunks++
	}
}

func (p *prefills) close(g *group) {
	size := g.tokens + g.decoding
	switch {
	case !g.open || g.mixed:
	case !g.chunked:
		p.whole = max(p.whole, size)
	case p.parts == 0 || size < p.parts:
		p.parts = size
	}
	if g.open && !g.mixed && g.decoding > 0 {
		if p.groups%p.stride == 0 {
			p.steps = append(p.steps, *g)
		}
		p.groups++
	}
	*g = group{}
}

// whole reports whether r is all of its request's decode.
func (r *run) whole(row *waitRow, origin int64) bool {
	return r.first+origin == row.first && r.end+origin == row.runEnd
}

// fit fits the model by weighted least squares with trimming; nil where there
// is too little to fit to.
func fit(ds []decode) *StepModel {
	n := 0
	for i := range ds {
		if ds[i].counts() {
			n++
		}
	}
	if n < minModelRows {
		return nil
	}
	stride := (n + maxModelRows - 1) / maxModelRows
	rows := make([]decode, 0, n/stride+1)
	n = 0
	for i := range ds {
		if !ds[i].counts() {
			continue
		}
		if n%stride == 0 {
			rows = append(rows, ds[i])
		}
		n++
	}
	steps := make([]float64, len(rows))
	for i, d := range rows {
		steps[i] = d.ns / d.steps
	}
	median := medianOf(steps)
	m := solve(rows)
	resid := make([]float64, len(rows))
	abs := make([]float64, len(rows))
	for range 3 {
		for i := range rows {
			resid[i] = (rows[i].ns - m.predict(&rows[i])) / math.Sqrt(rows[i].steps)
		}
		copy(abs, resid)
		mid := medianOf(abs)
		for i, r := range resid {
			abs[i] = math.Abs(r - mid)
		}
		limit := max(4*1.4826*medianOf(abs), 1)
		kept := rows[:0]
		for i, d := range rows {
			if math.Abs(resid[i]-mid) <= limit {
				kept = append(kept, d)
			}
		}
		if len(kept) < minModelRows {
			return nil
		}
		if len(kept) == len(rows) {
			break
		}
		rows = kept
		resid, abs = resid[:len(rows)], abs[:len(rows)]
		m = solve(rows)
	}
	m.Rows, m.MedianNS = len(rows), median
	if !(m.BaseNS+m.perRunning+m.perResident > 0) {
		return nil // nothing decodes for nothing
	}
	return m
}

// medianOf sorts v.
func medianOf(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

// solve returns the least squares over the rows. Coefficients that come out
// below zero are dropped, the most negative first: no step gets shorter by
// more work.
func solve(rows []decode) *StepModel {
	const n = 4
	var a [n][n]float64
	var b [n]float64
	for i := range rows {
		d := &rows[i]
		x := [n]float64{d.steps, d.prompts, d.steps * d.running, d.steps * d.resident}
		w := 1 / d.steps
		for j := range n {
			for k := range n {
				a[j][k] += w * x[j] * x[k]
			}
			b[j] += w * x[j] * d.ns
		}
	}
	use := [n]bool{true, true, true, true}
	for {
		c := normal(a, b, use)
		worst := -1
		for j := range n {
			if c[j] < 0 && (worst < 0 || c[j]*math.Sqrt(a[j][j]) < c[worst]*math.Sqrt(a[worst][worst])) {
				worst = j
			}
		}
		if worst < 0 {
			return &StepModel{BaseNS: c[0], TokenNS: c[1], perRunning: c[2], perResident: c[3]}
		}
		use[worst] = false
	}
}

// normal solves the normal equations over the columns in use. A column that
// the ones before it explain gets 0.
func normal(a [4][4]float64, b [4]float64, use [4]bool) (c [4]float64) {
	const n = 4
	var scale [n]float64
	for j := range n {
		if use[j] = use[j] && a[j][j] > 0; use[j] {
			scale[j] = 1 / math.Sqrt(a[j][j])
		}
	}
	for j := range n {
		for k := range n {
			a[j][k] *= scale[j] * scale[k]
		}
		b[j] *= scale[j]
	}
	for j := range n {
		if use[j] = use[j] && a[j][j] > 1e-9; !use[j] {
			continue
		}
		for i := j + 1; i < n; i++ {
			f := a[i][j] / a[j][j]
			for k := j; k < n; k++ {
				a[i][k] -= f * a[j][k]
			}
			b[i] -= f * b[j]
		}
	}
	for j := n - 1; j >= 0; j-- {
		if !use[j] {
			continue
		}
		c[j] = b[j]
		for k := j + 1; k < n; k++ {
			c[j] -= a[j][k] * c[k]
		}
		c[j] /= a[j][j]
	}
	for j := range n {
		c[j] *= scale[j]
	}
	return c
}

// plain is the length of a step that computes no prompt, in which g joins.
func (m *StepModel) plain(g *group) float64 {
	return m.BaseNS + m.perRunning*(g.decoding+float64(g.prompts)) + m.perResident*(g.resident+g.tokens)
}

// early reports whether prefills take a step longer than their prompts: an
// engine that schedules while a step runs takes work up a step before it is
// computed.
func (m *StepModel) early(steps []group) bool {
	if len(steps) < fewPrefills {
		return false
	}
	// The smallest: of large ones many take several steps, seen or not.
	steps = slices.Clone(steps)
	slices.SortFunc(steps, func(x, y group) int { return cmp.Or(cmp.Compare(x.tokens, y.tokens), cmp.Compare(x.start, y.start)) })
	steps = steps[:max(len(steps)/2, fewPrefills)]
	over := make([]float64, len(steps))
	for i := range steps {
		g := &steps[i]
		over[i] = (float64(g.first-g.start) - m.tokenHigh*g.tokens) / m.plain(g)
	}
	return medianOf(over) >= 1.5
}

// unseen reports whether many steps with prompts are longer than what is known
// to be in them explains: prompts were computed that the data do not show.
func (m *StepModel) unseen(steps []group) bool {
	longer, all := 0, 0
	for i := range steps {
		g := &steps[i]
		if g.chunked {
			continue
		}
		all++
		if plain := m.plain(g); float64(g.first-g.start) > plain/2+1.25*(plain+m.tokenHigh*g.tokens) {
			longer++
		}
	}
	return all >= fewPrefills && 20*longer > all
}

// doubt sets between what a prompt token's cost may lie: the decodes beside
// which prompts were computed tell it, and how long the prefills of prompts
// that were taken up alone are.
func (m *StepModel) doubt(steps []group) {
	m.tokenLow, m.tokenHigh = 0.85*m.TokenNS, 1.15*m.TokenNS
	steps = slices.DeleteFunc(slices.Clone(steps), func(g group) bool { return g.prompts > 1 })
	if len(steps) < 2*fewPrefills {
		return
	}
	slices.SortFunc(steps, func(x, y group) int { return cmp.Or(cmp.Compare(x.tokens, y.tokens), cmp.Compare(x.start, y.start)) })
	third := len(steps) / 3
	var tokens, over [2]float64 // medians of the smallest and of the largest
	for k, part := range [2][]group{steps[:third], steps[len(steps)-third:]} {
		tokens[k] = part[third/2].tokens
		ns := make([]float64, third)
		for i := range part {
			ns[i] = float64(part[i].first-part[i].start) - m.plain(&part[i])
		}
		over[k] = medianOf(ns)
	}
	if tokens[1] >= 2*tokens[0] {
		c := (over[1] - over[0]) / (tokens[1] - tokens[0])
		m.tokenLow, m.tokenHigh = max(0, min(m.tokenLow, c)), max(m.tokenHigh, c)
	}
}
