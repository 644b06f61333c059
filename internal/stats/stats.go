// Package stats computes quantiles and intervals of numbers that depend on each
// other in time, as the latencies of a queue do. It knows nothing of requests.
//
// The textbook interval of a quantile takes the values as independent. Requests
// that queue behind each other are not: such intervals hold the true value far
// less often than they say. Here the run is cut into a few slices of time that
// are long against the memory of the queue ([Memory], [Slices]); how much the
// slices differ among themselves tells how much the whole can be trusted
// ([MeanInterval], [QuantileInterval]). No random numbers take part in that; where
// a level changes is found by shuffling ([LevelShift]), seeded by the values.
package stats

import (
	"math"
	"math/bits"
)

// Quantile returns the q-quantile of sorted values by linear interpolation
// between order statistics (Hyndman and Fan's type 7, what NumPy, pandas and
// DuckDB's quantile_cont give), rounded to the nearest integer, halves up. The
// interpolation is done in integers, so that no digit of large values is lost.
// Without values it returns 0; q outside [0, 1] is taken as the nearer end.
func Quantile(sorted []int64, q float64) int64 {
	if len(sorted) == 0 {
		return 0
	}
	i, frac := position(len(sorted), q)
	if frac == 0 {
		return sorted[i]
	}
	// d · frac in 64.53 fixed point. The subtraction cannot overflow as
	// unsigned, since the values ascend.
	d := uint64(sorted[i+1]) - uint64(sorted[i])
	hi, lo := bits.Mul64(d, uint64(frac*(1<<53)))
	lo, carry := bits.Add64(lo, 1<<52, 0)
	return int64(uint64(sorted[i]) + ((hi+carry)<<11 | lo>>53))
}

// Rank returns the index, into n sorted values, of the one whose rank is
// nearest to the q-quantile: a real value that stands for it.
func Rank(n int, q float64) int {
	i, frac := position(n, q)
	if frac >= 0.5 {
		i++
	}
	return i
}

// position returns where the q-quantile lies among n values: frac of the way
// from index i to i+1. A frac other than 0 implies that i+1 exists.
func position(n int, q float64) (i int, frac float64) {
	if !(q > 0) || n < 1 {
		return 0, 0
	}
	h := float64(n-1) * q
	if q >= 1 || h >= float64(n-1) {
		return n - 1, 0
	}
	floor := math.Floor(h)
	return int(floor), h - floor
}

// T returns the p-quantile of Student's distribution with df degrees of
// freedom, to the precision of float64. It is NaN where p is outside (0, 1) or
// df below 1.
func T(p float64, df int) float64 {
	if !(p > 0 && p < 1) || df < 1 {
		return math.NaN()
	}
	if p < 0.5 {
		return -T(1-p, df)
	}
	// With t = √df · tan θ the share within ±t is a finite sum in θ, which
	// ascends: halve the interval until it cannot be halved.
	want := 2*p - 1
	lo, hi := 0.0, math.Pi/2
	for {
		mid := lo + (hi-lo)/2
		if mid == lo || mid == hi {
			return math.Sqrt(float64(df)) * math.Tan(lo)
		}
		if within(mid, df) < want {
			lo = mid
		} else {
			hi = mid
		}
	}
}

// within is P(|T| ≤ √df · tan θ) for integer df.
func within(theta float64, df int) float64 {
	sin, cos := math.Sincos(theta)
	c2 := cos * cos
	if df%2 == 0 {
		sum, term := 0.0, 1.0
		for k := 2; k <= df; k += 2 {
			sum += term
			term *= c2 * float64(k-1) / float64(k)
		}
		return sin * sum
	}
	sum, term := 0.0, cos
	for k := 3; k <= df; k += 2 {
		sum += term
		term *= c2 * float64(k-1) / float64(k)
	}
	return 2 / math.Pi * (theta + sin*sum)
}

// Depth samples how many intervals are open: n samples, the k-th at
// from + k·step, each the number of starts at or before that instant less the
// number of ends. Both must be sorted.
func Depth(starts, ends []int64, from, step int64, n int) []float64 {
	out := make([]float64, n)
	s, e := 0, 0
	for k := range out {
		t := from + int64(k)*step
		for s < len(starts) && starts[s] <= t {
			s++
		}
		for e < len(ends) && ends[e] <= t {
			e++
		}
		out[k] = float64(s - e)
	}
	return out
}

// Memory returns the autocorrelation time of a series, in steps: looks at it
// that are this far apart are about independent. The sum of correlations ends
// at the first lag of at least three times what it has come to. It is at least
// 1, and biased low for a series that is short against its memory.
func Memory(x []float64) float64 {
	n := len(x)
	if n < 2 {
		return 1
	}
	var mean float64
	for _, v := range x {
		mean += v
	}
	mean /= float64(n)
	d := make([]float64, n)
	var c0 float64
	for i, v := range x {
		d[i] = v - mean
		c0 += d[i] * d[i]
	}
	if c0 == 0 {
		return 1
	}
	tau := 1.0
	for k := 1; k < n; k++ {
		var c float64
		for i, v := range d[k:] {
			c += v * d[i]
		}
		tau += 2 * c / c0
		if float64(k) >= 3*tau {
			break
		}
	}
	return max(tau, 1)
}

// Slices returns into how many slices of equal length a run is cut: ten times
// the memory each, at least 5 and at most 20 slices. More slices are not
// better: short ones depend on each other and make intervals too narrow.
func Slices(length, memory float64) int {
	m := length / (10 * memory)
	if !(m > 5) {
		return 5
	}
	return int(min(m, 20))
}

// Mean is a mean with its interval at 95 %.
type Mean struct {
	Mean, SE, Low, High float64
}

// MeanInterval returns the mean Σ sums / Σ counts of a run in slices, with its
// interval by batch means in ratio form. counts may be any weights; slices may
// be empty. ok is false below two slices or without weight.
func MeanInterval(sums, counts []float64) (m Mean, ok bool) {
	k := len(sums)
	var sum, n float64
	for b := range sums {
		sum += sums[b]
		n += counts[b]
	}
	if k < 2 || n == 0 {
		return m, false
	}
	m.Mean = sum / n
	var rr float64
	for b := range sums {
		r := sums[b] - m.Mean*counts[b]
		rr += r * r
	}
	m.SE = math.Sqrt(float64(k)/float64(k-1)*rr) / n
	h := T(0.975, k-1) * m.SE
	m.Low, m.High = m.Mean-h, m.Mean+h
	return m, true
}

// Interval is a quantile with its interval at 95 %.
type Interval struct {
	Value     int64
	Low, High int64
	// Whether the data bound that end at all. An end that they do not bound is
	// 0 here and must be shown as unbounded, never as the extreme seen.
	HasLow, HasHigh bool
	// NEff is the number of independent values that would tell as much about
	// this quantile: q(1−q)/se². It is +Inf where the slices agree exactly.
	NEff float64
	// Supported reports whether enough independent values lie beyond the
	// quantile: E = min(NEff, n) · min(q, 1−q) is at least 10.
	Supported bool
}

// QuantileInterval returns the q-quantile of sorted values, each from the
// slice of the same index (0 to m−1), with its interval by inverting the
// batch-means test of the share of values at or below x: the interval ends
// where that share differs from q by more than the slices' own scatter
// explains. O(n). ok is false below two slices or without values.
//
// Where the quantile is the least value of all, that value is the low end:
// nothing smaller was seen in any slice.
func QuantileInterval(sorted []int64, slice []uint8, m int, q float64) (iv Interval, ok bool) {
	n := len(sorted)
	if n == 0 || m < 2 || len(slice) != n {
		return iv, false
	}
	iv.Value = Quantile(sorted, q)
	s := newShares(slice, m)
	at := 0 // values that s counts: those with index below at
	for at < n && sorted[at] <= iv.Value {
		s.add(slice[at])
		at++
	}
	se := s.se()
	t := T(0.975, m-1)
	iv.NEff = math.Inf(1)
	if se > 0 {
		iv.NEff = q * (1 - q) / (se * se)
	}
	iv.Supported = min(iv.NEff, float64(n))*min(q, 1-q) >= 10

	up := s.clone()
	// Upwards from the first value that is not below the quantile.
	for i := at; ; {
		if i > 0 && sorted[i-1] >= iv.Value && up.share()-q > t*max(up.se(), se) {
			iv.High, iv.HasHigh = sorted[i-1], true
			break
		}
		if i == n {
			break
		}
		for x := sorted[i]; i < n && sorted[i] == x; i++ {
			up.add(slice[i])
		}
	}
	if iv.Value == sorted[0] {
		iv.Low, iv.HasLow = iv.Value, true
		return iv, true
	}
	for i := at; i > 0; {
		if q-s.share() > t*max(s.se(), se) {
			iv.Low, iv.HasLow = sorted[i-1], true
			break
		}
		for x := sorted[i-1]; i > 0 && sorted[i-1] == x; i-- {
			s.remove(slice[i-1])
		}
	}
	return iv, true
}

// shares counts, for each slice, the values at or below a moving x, and keeps
// the sums from which the scatter of the slices follows in O(1).
type shares struct {
	n, c   []int64 // in each slice: all values, those counted
	total  int64   // Σ n
	count  int64   // Σ c
	cc, cn int64   // Σ c², Σ c·n
	nn     int64   // Σ n²
}

func newShares(slice []uint8, m int) *shares {
	s := &shares{n: make([]int64, m), c: make([]int64, m), total: int64(len(slice))}
	for _, b := range slice {
		s.n[b]++
	}
	for _, n := range s.n {
		s.nn += n * n
	}
	return s
}

func (s *shares) clone() *shares {
	t := *s
	t.n, t.c = s.n, append([]int64(nil), s.c...)
	return &t
}

func (s *shares) add(b uint8) {
	s.cc += 2*s.c[b] + 1
	s.cn += s.n[b]
	s.c[b]++
	s.count++
}

func (s *shares) remove(b uint8) {
	s.cc -= 2*s.c[b] - 1
	s.cn -= s.n[b]
	s.c[b]--
	s.count--
}

// share is the share of values counted.
func (s *shares) share() float64 { return float64(s.count) / float64(s.total) }

// se is the standard error of share by batch means in ratio form.
func (s *shares) se() float64 {
	f := s.share()
	rr := float64(s.cc) - 2*f*float64(s.cn) + f*f*float64(s.nn)
	m := float64(len(s.n))
	return math.Sqrt(m/(m-1)*max(rr, 0)) / float64(s.total)
}
