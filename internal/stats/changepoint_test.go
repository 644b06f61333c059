package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestLevelShiftByHand(t *testing.T) {
	// 0 0 0 0 4 4 4 4: the change at 4 has the size 4·√(4·4/8) = 5.66, and of
	// the 70 ways to place the fours only two are as large.
	x := []float64{0, 0, 0, 0, 4, 4, 4, 4}
	at, size := largestShift(x, 1)
	if at != 4 || math.Abs(size-4*math.Sqrt2) > 1e-12 {
		t.Errorf("at %d, size %v", at, size)
	}
	s, ok := LevelShift(x, 4)
	if !ok || s.At != 4 || s.Before != 0 || s.After != 4 {
		t.Errorf("%+v %v", s, ok)
	}
	if s.P < 0.005 || s.P > 0.08 { // 2/70 = 0.029
		t.Errorf("p %v, want about 0.029", s.P)
	}
	// The edge keeps off a lone value at the end.
	if s, _ := LevelShift([]float64{9, 0, 0, 0, 0, 0, 0, 0, 0}, 3); s.At != 3 || s.Before != 3 || s.After != 0 || s.P < 0.3 {
		t.Errorf("%+v", s)
	}
	if s, _ := LevelShift([]float64{1, 1, 1, 1}, 2); s.P != 1 {
		t.Errorf("all alike: %+v", s)
	}
	if _, ok := LevelShift([]float64{1, 2, 3}, 2); ok {
		t.Error("three values have no two on each side")
	}
}

// Independent values without a change must give each p as often as p says.
func TestLevelShiftIsHonest(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	const runs = 1000
	low := 0
	for range runs {
		x := make([]float64, 30)
		for i := range x {
			x[i] = rnd.ExpFloat64()
		}
		if s, _ := LevelShift(x, 4); s.P <= 0.05 {
			low++
		}
	}
	// 5 % of 1000 are 50, standard deviation 6.9.
	if low < 23 || low > 77 {
		t.Errorf("p ≤ 0.05 in %d of %d steady series", low, runs)
	}
}

func TestLevelShiftFinds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for i := range 50 {
		x := make([]float64, 40)
		for j := range x {
			if x[j] = 1 + 0.01*rnd.NormFloat64(); j >= 17 {
				x[j] += 0.05
			}
		}
		s, _ := LevelShift(x, 4)
		if s.P > 0.01 || s.At < 16 || s.At > 18 {
			t.Errorf("run %d: %+v", i, s)
		}
		if again, _ := LevelShift(slices.Clone(x), 4); again != s {
			t.Errorf("run %d: %+v, then %+v", i, s, again)
		}
	}
}

func TestLevelBump(t *testing.T) {
	// 0 0 3 3 0 0: inside 3, outside 0, size 3·√(2·4/6). Of the 15 places of the
	// threes one is as large.
	b, size := largestBump([]float64{0, 0, 3, 3, 0, 0}, 2)
	if b.From != 2 || b.To != 4 || b.Inside != 3 || b.Outside != 0 || math.Abs(size-3*math.Sqrt(8./6)) > 1e-12 {
		t.Errorf("%+v, size %v", b, size)
	}
	if b, ok := LevelBump([]float64{0, 0, 3, 3, 0, 0}, 2); !ok || b.P < 0.03 || b.P > 0.12 { // 1/15 = 0.067
		t.Errorf("%+v %v", b, ok)
	}
	if _, ok := LevelBump([]float64{0, 0, 3, 3, 0}, 2); ok {
		t.Error("five values have no two inside, before and behind")
	}
	rnd := rand.New(rand.NewPCG(3, 5))
	low := 0
	for range 300 {
		x := make([]float64, 30)
		for i := range x {
			x[i] = rnd.ExpFloat64()
		}
		if b, _ := LevelBump(x, 4); b.P <= 0.05 {
			low++
		}
	}
	if low < 4 || low > 28 { // 5 % of 300 are 15, standard deviation 3.8
		t.Errorf("p ≤ 0.05 in %d of 300 steady series", low)
	}
}

func TestBlocks(t *testing.T) {
	for _, c := range []struct {
		n, most, least int
		want           []int
	}{
		{10, 40, 5, []int{5, 10}},
		{11, 2, 1, []int{5, 11}},
		{7, 3, 1, []int{2, 4, 7}},
		{4, 40, 5, nil},
		{0, 40, 8, nil},
	} {
		if got := Blocks(c.n, c.most, c.least); !slices.Equal(got, c.want) {
			t.Errorf("Blocks(%d, %d, %d) = %v, want %v", c.n, c.most, c.least, got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	if m := Median([]float64{3, 1, 2}); m != 2 {
		t.Error(m)
	}
	if m := Median([]float64{4, 1, 2, 3}); m != 2.5 {
		t.Error(m)
	}
	if !math.IsNaN(Median(nil)) {
		t.Error("median of nothing")
	}
}

func TestDeviationsByHand(t *testing.T) {
	for _, c := range []struct {
		name string
		x    []float64
		want float64
	}{
		// No scatter: 1·√(4·4/8) = √2 over the least, √(1/2), widened by r = 1/√8.
		{"two levels", []float64{0, 0, 0, 0, 1, 1, 1, 1}, 2 * math.Sqrt((math.Sqrt(8)-1)/(math.Sqrt(8)+1))},
		// Around 1 and 11 neighbours go to and fro: r is cut at 0, the squares are 8/6.
		{"to and fro", []float64{0, 2, 0, 2, 10, 12, 10, 12}, 10 * math.Sqrt2 / math.Sqrt(8./6)},
		// They keep to one side: Σ d·d' = 3 of 8.
		{"in pairs", []float64{0, 0, 2, 2, 10, 10, 12, 12}, 10 * math.Sqrt2 / math.Sqrt(8./6*(1+1./8+1/math.Sqrt(8))/(1-1./8-1/math.Sqrt(8)))},
		{"nothing", make([]float64, 8), 0},
	} {
		s, ok := LevelShift(c.x, 4)
		if got := s.Deviations(c.x, 0.5); !ok || math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
