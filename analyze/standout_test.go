package analyze

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// Of 5, of which 2 have a value, 2 are drawn: both have it once in 10, at
// least one in 7 of 10.
func TestHypergeometric(t *testing.T) {
	lf := logFactorials(5)
	for a, want := range []float64{1, 0.7, 0.1} {
		if got := hypergeometric(lf, 5, 2, 2, int64(a)); math.Abs(got-want) > 1e-12 {
			t.Errorf("at least %d: %v, want %v", a, got, want)
		}
	}
}

func TestSignFlips(t *testing.T) {
	for _, c := range []struct {
		x    []float64
		want float64
	}{
		{nil, 1},
		{[]float64{0, 0}, 1},
		{[]float64{3}, 0.5},
		{[]float64{1, 1, 1}, 1.0 / 8},
		{[]float64{2, -1}, 0.5}, // 3 and 1 of 3, 1, −1, −3
		{[]float64{1, 1, 0}, 0.25},
		{[]float64{-1, -1}, 1},
	} {
		if got := signFlips(c.x); got != c.want {
			t.Errorf("%v: %v, want %v", c.x, got, c.want)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		x := make([]float64, rnd.IntN(11))
		var total float64
		for i := range x {
			x[i] = float64(rnd.IntN(9) - 3)
			total += x[i]
		}
		count := 0
		for signs := range 1 << len(x) {
			var s float64
			for i, v := range x {
				if signs>>i&1 == 1 {
					v = -v
				}
				s += v
			}
			if s >= total {
				count++
			}
		}
		if got, want := signFlips(x), float64(count)/float64(int(1)<<len(x)); got != want {
			t.Errorf("%v: %v, want %v", x, got, want)
		}
	}
}

// steady runs an engine of four equal replicas, with attributes that mean
// nothing: a coin, a die, and two that last for some 50 and some 500 arrivals.
func steady(t testing.TB, seed uint64, load float64) []*trace.Request {
	t.Helper()
	const ms = time.Millisecond
	run, err := sim.Engine{
		Seed: seed, Service: "s", Model: "m", Replicas: 4, Routing: []sim.Routing{sim.RoundRobin, sim.LeastLoaded}[seed%2],
		Slots: 6, Chunked: true, Budget: 2048, Limit: 4096,
		Base: 10 * ms, PerPrefill: 20 * time.Microsecond, PerDecode: 300 * time.Microsecond,
		Tenants: []sim.Tenant{{Name: "one", Requests: 3000, Rate: 18 * load, Prompt: sim.Length{Min: 20, Max: 800, Skew: 1}, Output: sim.Length{Min: 10, Max: 250, Skew: 1}}},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, 7))
	spell, era := 0, 0
	for _, r := range run.Requests {
		if rnd.IntN(50) == 0 {
			spell = rnd.IntN(4)
		}
		if rnd.IntN(500) == 0 {
			era = rnd.IntN(3)
		}
		coin := "heads"
		if rnd.Float64() < 0.3 {
			coin = "tails"
		}
		r.SetAttr("coin", trace.StringValue(coin))
		r.SetAttr("die", trace.StringValue(strconv.Itoa(rnd.IntN(6))))
		r.SetAttr("spell", trace.StringValue(strconv.Itoa(spell)))
		r.SetAttr("era", trace.StringValue(strconv.Itoa(era)))
	}
	return run.Requests
}

// standsOut is what stands out among those requests.
func standsOut(rs []*trace.Request) []StandOut {
	a := New(Options{})
	for _, r := range rs {
		a.Add(r)
	}
	return a.Report().Tail.StandsOut
}

// falseAlarms counts the runs in which an attribute that means nothing, or one
// of the equal replicas, stands out.
func falseAlarms(t testing.TB, seeds int, load float64) (runs int) {
	for seed := range seeds {
		if slices.ContainsFunc(standsOut(steady(t, uint64(seed), load)), func(s StandOut) bool {
			return slices.Contains([]string{"coin", "die", "spell", "era", "replica"}, s.Key)
		}) {
			runs++
		}
	}
	return runs
}

// Long outputs stand out where the slots are never short, and nothing that
// means nothing does.
func TestStandsOut(t *testing.T) {
	const runs = 6
	if n := falseAlarms(t, runs, 1); n > 0 {
		t.Errorf("chance stands out in %d of %d runs", n, runs)
	}
	rs := steady(t, 1, 0.7)
	found := standsOut(rs)
	if len(found) == 0 || found[0].Key != "output_bucket" || found[0].Value != "128-255" {
		t.Fatalf("found %+v", found)
	}
	s := found[0]
	if s.Requests != 30 || s.BandShare != 1 || math.Abs(s.Ratio.Or(0)-1/s.RestShare) > 1e-9 || s.P > 0.01 {
		t.Errorf("%+v", s)
	}
}

// Of three spells of slow requests all are of one tenant: that many requests
// are no draw, but three spells show little.
func TestStandsOutNeedsSpells(t *testing.T) {
	make := func(spells int) []*trace.Request {
		var b strings.Builder
		for i := range 2000 {
			d, tenant := 10+i%7, "b"
			if i%4 == 0 {
				tenant = "a"
			}
			if at := i % (2000 / spells); at < 20/spells*4 && at%4 == 0 {
				d = 500
			}
			fmt.Fprintf(&b, "r%d arrival=%dms end=%dms @tenant=%s\n", i, 100*i, 100*i+d, tenant)
		}
		return reqtext.MustParse(t, b.String())
	}
	if found := standsOut(make(2)); len(found) != 0 {
		t.Errorf("two spells: %+v", found)
	}
	found := standsOut(make(20))
	if len(found) != 1 || found[0].Key != "tenant" || found[0].Value != "a" || found[0].Requests != 20 {
		t.Fatalf("twenty spells: %+v", found)
	}
	// 20 of 20 beside 480 of 1,980.
	if got, want := found[0].Ratio.Or(0), 1980.0/480; math.Abs(got-want) > 1e-12 {
		t.Errorf("%v times, want %v", got, want)
	}
}

// Keys of many values, and long values, are no classes; and what was added in
// parts shows what all together shows.
func TestTraits(t *testing.T) {
	var parts [3]traits
	var whole traits
	for i := range 300 {
		r := &trace.Request{Replica: strconv.Itoa(i % 3)}
		r.SetAttr("user", trace.StringValue(strconv.Itoa(i%60)))
		r.SetAttr("tenant", trace.StringValue(strconv.Itoa(i%50)))
		if i == 7 {
			r.SetAttr("text", trace.StringValue(strings.Repeat("x", 1000)))
		} else {
			r.SetAttr("text", trace.StringValue("x"))
		}
		parts[i%3].of(r)
		whole.of(r)
	}
	parts[0].merge(&parts[1])
	parts[0].merge(&parts[2])
	for _, x := range []*traits{&whole, &parts[0]} {
		got := map[string]int{}
		for k, name := range x.keys.names {
			if x.values[k] != nil {
				got[name] = len(x.values[k].names)
			}
		}
		if want := map[string]int{"replica": 3, "tenant": 50, "outcome": 1}; !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// BenchmarkFalseAlarms gives the share of steady runs in which anything that
// means nothing stands out, at four loads.
func BenchmarkFalseAlarms(b *testing.B) {
	for _, load := range []float64{0.7, 0.9, 1, 1.1} {
		b.Run(fmt.Sprint("load=", load), func(b *testing.B) {
			for b.Loop() {
				const runs = 50
				b.ReportMetric(float64(falseAlarms(b, runs, load))/runs, "alarms/run")
			}
		})
	}
}
