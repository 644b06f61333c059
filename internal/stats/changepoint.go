package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Shift is the place where the level of a series changes most.
type Shift struct {
	At            int     // index of the first value behind it
	Before, After float64 // means of the values on both sides
	// P is the share of orders of the same values, this one included, that
	// show a change at least as large: what chance alone does.
	P float64
}

// shuffles is how many other orders of the values are looked at: P comes in
// steps of 1/500.
const shuffles = 499

// LevelShift finds the largest change of level in a series, with at least edge
// values on each side. The values must not depend on each other: blocks that
// are long against the memory of what they sum up, not single requests. ok is
// false where the series is too short.
//
// The size of a change at k is |mean before − mean after|·√(k(n−k)/n). The
// orders are drawn from a generator that the values seed, so that the same
// series gives the same P.
func LevelShift(x []float64, edge int) (s Shift, ok bool) {
	edge = max(edge, 1)
	if len(x) < 2*edge {
		return s, false
	}
	at, size := largestShift(x, edge)
	s.At = at
	for i, v := range x {
		if i < at {
			s.Before += v / float64(at)
		} else {
			s.After += v / float64(len(x)-at)
		}
	}
	seed := uint64(14695981039346656037) // FNV-1a over words
	for _, v := range x {
		seed = (seed ^ math.Float64bits(v)) * 1099511628211
	}
	rnd := rand.New(rand.NewPCG(seed, uint64(len(x))))
	y := slices.Clone(x)
	atLeast := 1
	for range shuffles {
		rnd.Shuffle(len(y), func(i, j int) { y[i], y[j] = y[j], y[i] })
		// The sums run in another order: what is equal may differ in the last
		// bits.
		if _, other := largestShift(y, edge); other >= size*(1-1e-12) {
			atLeast++
		}
	}
	s.P = float64(atLeast) / (shuffles + 1)
	return s, true
}

// largestShift returns where the change is largest, in a tie first, and its
// size.
func largestShift(x []float64, edge int) (at int, size float64) {
	var total, before float64
	for _, v := range x {
		total += v
	}
	n := float64(len(x))
	at, size = edge, -1
	for k := 1; k <= len(x)-edge; k++ {
		before += x[k-1]
		if k < edge {
			continue
		}
		m := float64(k)
		d := math.Abs(before/m-(total-before)/(n-m)) * math.Sqrt(m*(n-m)/n)
		if d > size {
			at, size = k, d
		}
	}
	return at, size
}

// Blocks cuts n things in order into blocks of equal count, give or take one:
// at most most of them, of at least least things each. It returns the index
// behind the last thing of each block.
func Blocks(n, most, least int) []int {
	k := min(most, n/max(least, 1))
	ends := make([]int, max(k, 0))
	for i := range ends {
		ends[i] = int(int64(n) * int64(i+1) / int64(k))
	}
	return ends
}

// Median returns the middle of values, the mean of the two middle ones where
// their number is even, NaN where there are none. It sorts them.
func Median(x []float64) float64 {
	slices.Sort(x)
	n := len(x)
	if n == 0 {
		return math.NaN()
	}
	return (x[(n-1)/2] + x[n/2]) / 2
}
