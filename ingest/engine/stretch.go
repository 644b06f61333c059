package engine

import (
	"cmp"
	"slices"

	"github.com/traceview/traceview/trace"
)

// stretch is a piece of the time axis, from until before to.
type stretch struct{ from, to trace.Time }

// union joins stretches that touch or overlap. It sorts its argument.
func union(all []stretch) []stretch {
	slices.SortFunc(all, func(x, y stretch) int { return cmp.Or(cmp.Compare(x.from, y.from), cmp.Compare(x.to, y.to)) })
	out := all[:0]
	for _, s := range all {
		switch n := len(out); {
		case s.to <= s.from:
		case n > 0 && s.from <= out[n-1].to:
			out[n-1].to = max(out[n-1].to, s.to)
		default:
			out = append(out, s)
		}
	}
	return out
}

// without returns what of a lies outside b. Both are unions.
func without(a, b []stretch) []stretch {
	var out []stretch
	k := 0
	for _, s := range a {
		for k < len(b) && b[k].to <= s.from {
			k++
		}
		at := s.from
		for i := k; i < len(b) && b[i].from < s.to; i++ {
			if b[i].from > at {
				out = append(out, stretch{at, b[i].from})
			}
			at = max(at, b[i].to)
		}
		if at < s.to {
			out = append(out, stretch{at, s.to})
		}
	}
	return out
}

// claimAll claims p for each stretch.
func claimAll(r *trace.Request, p trace.Phase, basis trace.Basis, all []stretch) {
	for _, s := range all {
		if s.to > s.from {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: basis, Start: s.from, End: s.to})
		}
	}
}
