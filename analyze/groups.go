package analyze

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/trace"
)

// most is how many values a key may have to be grouped by without being asked
// for.
const most = 50

// groups fills the groupings that were asked for, or those that divide the
// requests.
func (w *work) groups() {
	w.rep.Groups = []Grouping{}
	if len(w.opts.By) > 0 {
		at := make([]int, len(w.opts.By))
		for i := range at {
			at[i] = i
		}
		w.rep.Groups = append(w.rep.Groups, w.grouping(w.opts.By, at))
		return
	}
	for i, key := range defaultBy {
		if w.values[i] == nil {
			continue
		}
		seen := map[string]bool{}
		for _, r := range w.rows {
			if v, ok := w.dimRows[r.dim].by[i].Get(); ok {
				seen[v] = true
			}
		}
		if len(seen) > 1 {
			w.rep.Groups = append(w.rep.Groups, w.grouping([]string{key}, []int{i}))
		}
	}
}

// grouping divides the rows by the values at these places of their dims.
func (w *work) grouping(by []string, at []int) Grouping {
	groups := []Group{}
	var e2e [][]int64             // by group, ascending
	var slice [][]uint8           // of time, likewise
	var told, meanSum []int64     // used requests that tell how long they waited, and the sum
	index := map[string]int{}     // of the group, by its values
	group := make(map[uint32]int) // of the group, by dim
	groupOf := func(dim uint32) int {
		if g, ok := group[dim]; ok {
			return g
		}
		var values []trace.Opt[string]
		key := ""
		for _, i := range at {
			v := w.dimRows[dim].by[i]
			values = append(values, v)
			if s, ok := v.Get(); ok {
				key += strconv.Itoa(len(s)) + "=" + s
			}
			key += ","
		}
		g, ok := index[key]
		if !ok {
			g = len(groups)
			index[key] = g
			groups = append(groups, Group{Values: values})
			e2e, slice, told, meanSum = append(e2e, nil), append(slice, nil), append(told, 0), append(meanSum, 0)
		}
		group[dim] = g
		return g
	}
	var all int64
	for _, r := range w.rows {
		g := &groups[groupOf(r.dim)]
		g.Requests++
		if r.has&tellsWaiting != 0 {
			ns := w.waiting(r)
			g.WaitingAllNS = trace.Some(g.WaitingAllNS.Or(0) + ns)
			all += ns
		}
	}
	for _, r := range w.used { // ascending
		g := groupOf(r.dim)
		groups[g].Used++
		groups[g].E2ETotalNS += r.e2e()
		e2e[g] = append(e2e[g], r.e2e())
		slice[g] = append(slice[g], w.slice(r))
		if r.has&tellsWaiting != 0 {
			told[g]++
			meanSum[g] += w.waiting(r)
		}
	}
	for i := range groups {
		g := &groups[i]
		if ns, ok := g.WaitingAllNS.Get(); ok {
			g.WaitingShare = share(ns, all)
		}
		if told[i] > 0 {
			g.WaitingMean = trace.Some(divide(meanSum[i], told[i]))
		}
		if g.Used > 0 {
			g.E2EMean = trace.Some(divide(g.E2ETotalNS, g.Used))
			g.E2EP50 = trace.Some(stats.Quantile(e2e[i], 0.5))
			g.E2EP99 = trace.Some(stats.Quantile(e2e[i], 0.99))
			g.E2EP50Interval, _ = w.interval(e2e[i], slice[i], 0.5)
			g.E2EP99Interval, g.P99Supported = w.interval(e2e[i], slice[i], 0.99)
		}
	}
	slices.SortFunc(groups, func(x, y Group) int {
		if c := cmp.Or(
			cmp.Compare(y.WaitingAllNS.Or(-1), x.WaitingAllNS.Or(-1)),
			cmp.Compare(y.E2ETotalNS, x.E2ETotalNS), cmp.Compare(y.Requests, x.Requests),
		); c != 0 {
			return c
		}
		return slices.CompareFunc(x.Values, y.Values, func(a, b trace.Opt[string]) int {
			if c := cmp.Compare(a.Or(""), b.Or("")); c != 0 {
				return c
			}
			switch {
			case a.Present() == b.Present():
				return 0
			case b.Present():
				return -1
			}
			return 1
		})
	})
	return Grouping{By: slices.Clone(by), Rows: groups}
}

// waiting is the time that was attributed to waiting.
func (w *work) waiting(r *row) int64 {
	var ns int64
	for _, p := range w.partsOf(r) {
		if p.Phase.Kind() == trace.Waiting {
			ns += int64(p.Dur)
		}
	}
	return ns
}
