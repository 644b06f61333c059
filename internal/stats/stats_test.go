package stats

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQuantile(t *testing.T) {
	tenths := make([]int64, 10) // 0.1 s to 1.0 s in nanoseconds
	for i := range tenths {
		tenths[i] = int64(i+1) * 100_000_000
	}
	for _, c := range []struct {
		name string
		x    []int64
		q    float64
		want int64
	}{
		{"p50 of tenths", tenths, 0.5, 550_000_000},
		{"p90 of tenths", tenths, 0.9, 910_000_000},
		{"p99 of tenths", tenths, 0.99, 991_000_000},
		{"least", tenths, 0, 100_000_000},
		{"greatest", tenths, 1, 1_000_000_000},
		{"below 0", tenths, -3, 100_000_000},
		{"above 1", tenths, 3, 1_000_000_000},
		{"not a number", tenths, math.NaN(), 100_000_000},
		{"none", nil, 0.5, 0},
		{"one", []int64{7}, 0.99, 7},
		{"half rounds up", []int64{1, 2}, 0.5, 2},
		{"half rounds up below zero", []int64{-2, -1}, 0.5, -1},
		{"digits of large values", []int64{1 << 62, 1<<62 + 2}, 0.5, 1<<62 + 1},
		{"whole range", []int64{math.MinInt64, math.MaxInt64}, 0.5, 0},
	} {
		if got := Quantile(c.x, c.q); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestQuantileAgainstExact compares with the same formula in exact arithmetic.
func TestQuantileAgainstExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		x := make([]int64, 1+rng.IntN(30))
		for i := range x {
			x[i] = rng.Int64() >> rng.IntN(60)
		}
		slices.Sort(x)
		q := rng.Float64()
		h := float64(len(x)-1) * q
		i := int(h)
		want := new(big.Rat).SetInt64(x[i])
		if i+1 < len(x) {
			d := new(big.Rat).SetInt64(x[i+1])
			d.Sub(d, want).Mul(d, new(big.Rat).SetFloat64(h-float64(i)))
			want.Add(want, d)
		}
		diff := want.Sub(want, new(big.Rat).SetInt64(Quantile(x, q)))
		if diff.Abs(diff).Cmp(big.NewRat(1, 1)) > 0 {
			t.Fatalf("quantile %v of %v: off by %v", q, x, diff.FloatString(3))
		}
	}
}

func TestRank(t *testing.T) {
	for _, c := range []struct {
		n    int
		q    float64
		want int
	}{{1, 0.99, 0}, {2, 0.5, 1}, {3, 0.5, 1}, {101, 0.99, 99}, {100, 0.99, 98}, {10, 1, 9}, {10, 0, 0}, {0, 0.5, 0}} {
		if got := Rank(c.n, c.q); got != c.want {
			t.Errorf("rank of %v among %d: %d, want %d", c.q, c.n, got, c.want)
		}
	}
}

// TestT compares with printed tables of the distribution.
func TestT(t *testing.T) {
	for _, c := range []struct {
		p    float64
		df   int
		want float64
	}{
		{0.975, 1, 12.706205}, {0.975, 2, 4.302653}, {0.975, 3, 3.182446}, {0.975, 4, 2.776445},
		{0.975, 5, 2.570582}, {0.975, 9, 2.262157}, {0.975, 10, 2.228139}, {0.975, 19, 2.093024},
		{0.95, 4, 2.131847}, {0.995, 9, 3.249836}, {0.9995, 6, 5.958816}, {0.75, 1, 1},
		{0.975, 1000, 1.962339}, {0.5, 7, 0}, {0.025, 9, -2.262157},
	} {
		if got := T(c.p, c.df); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("T(%v, %d) = %.7f, want %.6f", c.p, c.df, got, c.want)
		}
	}
	for _, bad := range []float64{T(0, 3), T(1, 3), T(0.5, 0), T(math.NaN(), 3)} {
		if !math.IsNaN(bad) {
			t.Errorf("outside the domain: %v", bad)
		}
	}
}

func TestDepth(t *testing.T) {
	// Open: [0,10) [5,10) [10,20): one at 0, two at 5, one at 10, none at 20.
	got := Depth([]int64{0, 5, 10}, []int64{10, 10, 20}, 0, 5, 5)
	if want := []float64{1, 2, 1, 1, 0}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, phi := range []float64{0, 0.5, 0.9} {
		x := make([]float64, 20000)
		for i := 1; i < len(x); i++ {
			x[i] = phi*x[i-1] + rng.NormFloat64()
		}
		want := (1 + phi) / (1 - phi)
		if got := Memory(x); math.Abs(got-want) > 0.25*want+0.1 {
			t.Errorf("correlation %v: %.2f steps, want about %.2f", phi, got, want)
		}
	}
	for _, x := range [][]float64{nil, {1}, {3, 3, 3, 3}, {1, -1, 1, -1, 1, -1}} {
		if got := Memory(x); got != 1 {
			t.Errorf("%v: %v, want 1", x, got)
		}
	}
}

func TestSlices(t *testing.T) {
	for _, c := range []struct {
		length, memory float64
		want           int
	}{{600, 4.7, 12}, {600, 2, 20}, {600, 32, 5}, {0, 1, 5}, {600, 0, 20}, {0, 0, 5}, {700, 10, 7}} {
		if got := Slices(c.length, c.memory); got != c.want {
			t.Errorf("%v over %v: %d, want %d", c.length, c.memory, got, c.want)
		}
	}
}

func TestMeanInterval(t *testing.T) {
	// Means 1, 2, 3 of two values each: mean 2; r = -2, 0, 2; se = √(3/2·8)/6.
	m, ok := MeanInterval([]float64{2, 4, 6}, []float64{2, 2, 2})
	se := math.Sqrt(1.5*8) / 6
	if !ok || m.Mean != 2 || math.Abs(m.SE-se) > 1e-12 || math.Abs(m.High-2-T(0.975, 2)*se) > 1e-12 {
		t.Errorf("%+v", m)
	}
	// In ratio form a slice of more requests is no scatter.
	if m, ok := MeanInterval([]float64{2, 20}, []float64{1, 10}); !ok || m.SE != 0 {
		t.Errorf("equal means: %+v", m)
	}
	if _, ok := MeanInterval([]float64{1}, []float64{1}); ok {
		t.Error("one slice cannot bound")
	}
	if _, ok := MeanInterval([]float64{0, 0}, []float64{0, 0}); ok {
		t.Error("nothing cannot bound")
	}
}

// bruteInterval is the definition, with all shares counted anew at each x.
func bruteInterval(sorted []int64, slice []uint8, m int, q float64) (low, high int64, hasLow, hasHigh bool) {
	n := float64(len(sorted))
	count := func(x int64) (f, se float64) {
		c, all := make([]float64, m), make([]float64, m)
		for i, v := range sorted {
			all[slice[i]]++
			if v <= x {
				c[slice[i]]++
				f += 1 / n
			}
		}
		var rr float64
		for b := range c {
			rr += (c[b] - f*all[b]) * (c[b] - f*all[b])
		}
		return f, math.Sqrt(float64(m)/float64(m-1)*rr) / n
	}
	est := Quantile(sorted, q)
	t := T(0.975, m-1)
	_, s0 := count(est)
	for _, x := range sorted {
		f, se := count(x)
		d := t * max(se, s0)
		if x <= est && q-f > d+1e-12 {
			low, hasLow = x, true
		}
		if x >= est && f-q > d+1e-12 && !hasHigh {
			high, hasHigh = x, true
		}
	}
	if est == sorted[0] {
		low, hasLow = est, true
	}
	return low, high, hasLow, hasHigh
}

func TestQuantileIntervalAgainstBrute(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	bounded := 0
	for i := range 300 {
		n, m := 1+rng.IntN(400), 2+rng.IntN(19)
		x, slice := make([]int64, n), make([]uint8, n)
		most := int64(1) << (1 + rng.IntN(30)) // few distinct values, or many
		for k := range x {
			x[k], slice[k] = rng.Int64N(most), uint8(rng.IntN(m))
		}
		slices.Sort(x)
		q := []float64{0.5, 0.9, 0.99, rng.Float64()}[i%4]
		got, ok := QuantileInterval(x, slice, m, q)
		low, high, hasLow, hasHigh := bruteInterval(x, slice, m, q)
		if !ok || got.Low != low || got.High != high || got.HasLow != hasLow || got.HasHigh != hasHigh {
			t.Fatalf("n %d m %d q %v: %+v, want %d %v %d %v", n, m, q, got, low, hasLow, high, hasHigh)
		}
		if hasLow && hasHigh {
			bounded++
		}
		if hasLow && low > got.Value || hasHigh && high < got.Value {
			t.Fatalf("estimate outside its interval: %+v", got)
		}
	}
	if bounded < 50 {
		t.Errorf("only %d of 300 samples had two ends: the comparison tells little", bounded)
	}
}

func TestQuantileIntervalEdges(t *testing.T) {
	if _, ok := QuantileInterval(nil, nil, 5, 0.5); ok {
		t.Error("nothing has no interval")
	}
	if _, ok := QuantileInterval([]int64{1}, []uint8{0}, 1, 0.5); ok {
		t.Error("one slice has no interval")
	}
	same := []int64{4, 4, 4, 4}
	iv, ok := QuantileInterval(same, []uint8{0, 1, 0, 1}, 2, 0.5)
	if !ok || !iv.HasLow || !iv.HasHigh || iv.Low != 4 || iv.High != 4 || !math.IsInf(iv.NEff, 1) || iv.Supported {
		t.Errorf("all equal: %+v", iv)
	}
}

// TestOneSpell has the whole slowest 1 % in one slice: the data cannot bound
// the p99 from above, and the low end must leave the spell.
func TestOneSpell(t *testing.T) {
	var x []int64
	var slice []uint8
	for i := range 990 {
		x, slice = append(x, int64(i)), append(slice, uint8(i%10))
	}
	for i := range 10 {
		x, slice = append(x, int64(100_000+i)), append(slice, 3)
	}
	iv, ok := QuantileInterval(x, slice, 10, 0.99)
	if !ok || iv.HasHigh || !iv.HasLow || iv.Low >= 990 || iv.Supported {
		t.Errorf("%+v", iv)
	}
}

// TestIndependentWidth: for independent values the interval is about as wide
// as the binomial one, which is right there.
func TestIndependentWidth(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	const n, m, q, runs = 2000, 20, 0.9, 200
	var ratio float64
	for range runs {
		x, slice := make([]int64, n), make([]uint8, n)
		for i := range x {
			x[i], slice[i] = rng.Int64N(1<<40), uint8(i%m)
		}
		idx := order(x)
		sx, sb := permute(x, slice, idx)
		iv, _ := QuantileInterval(sx, sb, m, q)
		if !iv.HasLow || !iv.HasHigh {
			t.Fatalf("unbounded: %+v", iv)
		}
		lo, hi := binomial(sx, q)
		ratio += float64(iv.High-iv.Low) / float64(hi-lo) / runs
	}
	t.Logf("width over the binomial width: %.3f", ratio)
	if ratio < 0.95 || ratio > 1.3 {
		t.Errorf("width over the binomial width: %.3f, want about 1.1", ratio)
	}
}

// binomial is the textbook interval of a quantile of independent values.
func binomial(sorted []int64, q float64) (lo, hi int64) {
	n := float64(len(sorted))
	d := 1.96 * math.Sqrt(n*q*(1-q))
	return sorted[max(0, int(n*q-d))], sorted[min(len(sorted)-1, int(math.Ceil(n*q+d)))]
}

func order(x []int64) []int {
	idx := make([]int, len(x))
	for i := range idx {
		idx[i] = i
	}
	slices.SortFunc(idx, func(i, j int) int {
		if x[i] != x[j] {
			if x[i] < x[j] {
				return -1
			}
			return 1
		}
		return i - j
	})
	return idx
}

func permute(x []int64, slice []uint8, idx []int) ([]int64, []uint8) {
	sx, sb := make([]int64, len(x)), make([]uint8, len(x))
	for k, i := range idx {
		sx[k], sb[k] = x[i], slice[i]
	}
	return sx, sb
}

// TestCoverage runs a queue whose quantiles are known: in M/M/1 the time in
// the system is exponential with rate μ(1−ρ). It counts how often the interval
// holds the true value, beside the binomial interval.
func TestCoverage(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	const (
		n, runs = 6000, 150
		rho     = 0.8
		service = 0.1e9 // mean, ns
	)
	qs := []float64{0.5, 0.9, 0.99}
	hit, binom, supported := make([]int, len(qs)), make([]int, len(qs)), make([]int, len(qs))
	for range runs {
		arrive, leave, stay := make([]int64, n), make([]int64, n), make([]int64, n)
		var now, free float64
		// Start in the steady state: the time to finish what is there is
		// exponential with probability ρ.
		if rng.Float64() < rho {
			free = rng.ExpFloat64() * service / (1 - rho)
		}
		for i := range n {
			now += rng.ExpFloat64() * service / rho
			free = max(free, now) + rng.ExpFloat64()*service
			arrive[i], leave[i], stay[i] = int64(now), int64(free), int64(free-now)
		}
		length := float64(leave[n-1] - arrive[0])
		step := max(0.25e9, length/14400)
		depth := Depth(arrive, leave, arrive[0], int64(step), int(length/step))
		m := Slices(length, Memory(depth)*step)
		slice := make([]uint8, n)
		for i := range slice {
			slice[i] = uint8(min(m-1, int(float64(m)*float64(arrive[i]-arrive[0])/length)))
		}
		sx, sb := permute(stay, slice, order(stay))
		for k, q := range qs {
			truth := -math.Log(1-q) * service / (1 - rho)
			iv, _ := QuantileInterval(sx, sb, m, q)
			if (!iv.HasLow || float64(iv.Low) <= truth) && (!iv.HasHigh || truth <= float64(iv.High)) {
				hit[k]++
			}
			if lo, hi := binomial(sx, q); float64(lo) <= truth && truth <= float64(hi) {
				binom[k]++
			}
			if iv.Supported {
				supported[k]++
			}
		}
	}
	for k, q := range qs {
		cover, other := float64(hit[k])/runs, float64(binom[k])/runs
		t.Logf("p%v: holds the truth in %.0f %% (binomial interval %.0f %%), supported in %.0f %%",
			100*q, 100*cover, 100*other, 100*float64(supported[k])/runs)
		if cover < 0.88 {
			t.Errorf("p%v: coverage %.2f", 100*q, cover)
		}
		if cover < other+0.2 {
			t.Errorf("p%v: coverage %.2f is not well above the binomial interval's %.2f", 100*q, cover, other)
		}
	}
}

func BenchmarkQuantileInterval(b *testing.B) {
	rng := rand.New(rand.NewPCG(11, 12))
	const n, m = 1_000_000, 20
	x, slice := make([]int64, n), make([]uint8, n)
	for i := range x {
		x[i], slice[i] = rng.Int64N(1<<40), uint8(rng.IntN(m))
	}
	slices.Sort(x)
	for b.Loop() {
		QuantileInterval(x, slice, m, 0.99)
	}
}
