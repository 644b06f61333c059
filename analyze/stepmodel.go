package analyze

import (
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
}

const (
	minModelRows   = 20      // fewer requests: no model
	minModelOutput = 8       // output tokens of a request that counts
	maxModelRows   = 1 << 14 // a stride is taken through more
)

// step predicts the length of a step in nanoseconds, and how much of it is
// prefill, with the prefill's cost scaled.
func (m *StepModel) step(s *state, scale float64) (total, prefill float64) {
	base := m.BaseNS + m.perRunning*float64(s.n) + m.perResident*s.prompts
	c := m.TokenNS * scale
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
func (tl *timeline) decodes(rows *rowList, tol int64) []decode {
	ds := make([]decode, len(tl.runs))
	type sums struct{ running, resident, prompts float64 }
	var (
		now   sums
		s     state
		t     int64
		edge  int                           // the first edge after t
		since = ds                          // the sums at the first token are kept where the result will be
		began []uint32                      // runs whose first token came at t
		after = make([]int32, len(tl.runs)) // the first edge well after each run's start
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
			for edge < len(tl.edges) && tl.edges[edge] <= t {
				edge++
			}
			i := edge
			for i < len(tl.edges) && tl.edges[i] <= t+tol {
				i++
			}
			after[e.of] = int32(i)
			if r := &tl.runs[e.of]; r.first == r.start {
				began = append(began, e.of)
			}
		case prefillEnds:
			r := &tl.runs[e.of]
			now.prompts += r.compute
			i := int(after[e.of])
			r.chunked = i < len(tl.edges) && tl.edges[i] < r.first-tol
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
	return ds
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
