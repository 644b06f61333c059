package analyze

import (
	"fmt"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/trace"
)

// tail sets the slowest requests beside those around the median.
func (w *work) tail() {
	n := len(w.used)
	if n < 2 {
		return
	}
	// Ten requests are the least whose mean says something about more than
	// themselves; of few requests, a tenth.
	k := (n + 99) / 100
	band := "slowest 1 %"
	if k < 10 {
		k = max(1, min(10, n/10))
		band = fmt.Sprintf("slowest %d requests", k)
		if k == 1 {
			band = "slowest request"
		}
	}
	lo := min(stats.Rank(n, 0.45), n-k-1)
	hi := min(stats.Rank(n, 0.55), n-k-1)
	slow, middle := w.used[n-k:], w.used[lo:hi+1]
	t := &Tail{
		Band: band, Requests: int64(len(slow)), FromNS: slow[0].e2e(),
		MedianBand: "p45 to p55", MedianRequests: int64(len(middle)), Phases: []TailPhase{}, Causes: []TailCause{}, StandsOut: []StandOut{},
	}
	a, b := w.means(slow), w.means(middle)
	var waitA, waitB int64
	for i, p := range w.phases {
		t.MeanNS += a[i]
		t.MedianMeanNS += b[i]
		if p.Kind() == trace.Waiting {
			waitA, waitB = waitA+a[i], waitB+b[i]
		}
		if a[i] != 0 || b[i] != 0 {
			t.Phases = append(t.Phases, TailPhase{p.String(), p.Kind().String(), a[i], b[i], a[i] - b[i]})
		}
	}
	t.DifferenceNS = t.MeanNS - t.MedianMeanNS
	ca, cb := w.causes(slow, waitA), w.causes(middle, waitB)
	for _, c := range Causes() {
		if x, y := ca[c], cb[c]; x != 0 || y != 0 {
			t.Causes = append(t.Causes, TailCause{c.String(), x, y, x - y})
		}
	}
	w.rep.Tail = t
	w.standOut(slow)
}

// causes is the mean waiting over the rows by cause, such that the causes add
// up to mean.
func (w *work) causes(rows []*row, mean int64) []int64 {
	sums := make([]int64, causeCount)
	for _, r := range rows {
		for _, p := range w.why.Parts(int(r.at)) {
			sums[p.Cause] += int64(p.End.Sub(p.Start))
		}
	}
	return apportionTo(sums, mean)
}

// means is the mean of each phase over the rows, such that they add up to the
// rounded mean of e2e.
func (w *work) means(rows []*row) []int64 {
	at := map[trace.Phase]int{}
	for i, p := range w.phases {
		at[p] = i
	}
	sums := make([]int64, len(w.phases))
	for _, r := range rows {
		for _, p := range w.partsOf(r) {
			sums[at[p.Phase]] += int64(p.Dur)
		}
		sums[at[trace.Unattributed]] += w.unattributed(r)
	}
	return apportion(sums, int64(len(rows)))
}

// examples picks, for each quantile, the request that stands nearest to it.
func (w *work) examples() {
	w.rep.Examples = []Example{}
	if len(w.used) == 0 {
		return
	}
	for _, q := range w.opts.Quantiles {
		r := w.used[stats.Rank(len(w.used), q)]
		e := Example{
			Q: q, E2ENS: r.e2e(), ID: w.id(r), File: w.files.names[r.file],
			Line: int(r.line), Offset: r.offset, Path: w.path(r), Phases: []PhaseAmount{},
		}
		amount := map[trace.Phase]int64{trace.Unattributed: w.unattributed(r)}
		for _, p := range w.partsOf(r) {
			amount[p.Phase] = int64(p.Dur)
		}
		for _, p := range w.phases {
			if ns := amount[p]; ns != 0 {
				e.Phases = append(e.Phases, PhaseAmount{p.String(), ns})
			}
		}
		w.rep.Examples = append(w.rep.Examples, e)
	}
}
