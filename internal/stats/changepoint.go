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

// Deviations is the size of a change of x in standard deviations of what chance
// does to values that remember the one before: the scatter around both levels,
// its square at least least, above 0, widened by (1+r)/(1−r). r is the
// correlation of neighbours around the levels, raised by one standard error,
// since the levels follow the values and hide some of it.
func (s Shift) Deviations(x []float64, least float64) float64 {
	n, k := float64(len(x)), float64(s.At)
	var square, product, last float64
	for i, v := range x {
		d := v - s.Before
		if i >= s.At {
			d = v - s.After
		}
		square += d * d
		if i > 0 {
			product += d * last
		}
		last = d
	}
	r := 1 / math.Sqrt(n)
	if square > 0 {
		r = min(max(r+product/square, 0), 0.99)
	}
	size := math.Abs(s.Before-s.After) * math.Sqrt(k*(n-k)/n)
	return size / math.Sqrt(max(square/(n-2), least)*(1+r)/(1-r))
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
	s.P = shuffled(x, size, func(y []float64) float64 { _, other := largestShift(y, edge); return other })
	return s, true
}

// shuffled is the share of orders of x, its own included, whose size is at
// least that of x.
func shuffled(x []float64, size float64, of func([]float64) float64) float64 {
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
		if of(y) >= size*(1-1e-12) {
			atLeast++
		}
	}
	return float64(atLeast) / (shuffles + 1)
}

// Bump is the stretch whose level differs most from that of all other values.
type Bump struct {
	From, To        int     // indices of its first value and of the first behind it
	Inside, Outside float64 // means
	P               float64 // as in Shift
}

// LevelBump finds a change of level that is taken back, which [LevelShift]
// overlooks: at least edge values inside, before and behind. ok is false where
// the series is too short. It takes quadratic time.
func LevelBump(x []float64, edge int) (b Bump, ok bool) {
	edge = max(edge, 1)
	if len(x) < 3*edge {
		return b, false
	}
	b, size := largestBump(x, edge)
	b.P = shuffled(x, size, func(y []float64) float64 { _, other := largestBump(y, edge); return other })
	return b, true
}

func largestBump(x []float64, edge int) (b Bump, size float64) {
	var total float64
	for _, v := range x {
		total += v
	}
	n := float64(len(x))
	size = -1
	for i := edge; i <= len(x)-2*edge; i++ {
		var inside float64
		for j := i + 1; j <= len(x)-edge; j++ {
			inside += x[j-1]
			if j-i < edge {
				continue
			}
			m := float64(j - i)
			in, out := inside/m, (total-inside)/(n-m)
			if d := math.Abs(in-out) * math.Sqrt(m*(n-m)/n); d > size {
				b, size = Bump{From: i, To: j, Inside: in, Outside: out}, d
			}
		}
	}
	return b, size
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
