package analyze

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func report(t testing.TB, opts Options, text string) *Report {
	t.Helper()
	a := New(opts)
	for _, r := range reqtext.MustParse(t, text) {
		a.Add(r)
	}
	return a.Report()
}

// asJSON is the report as bytes: what has to be equal is what users see.
func asJSON(t testing.TB, r *Report) string {
	t.Helper()
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (r *Report) figure(name string) *Distribution {
	for i := range r.Figures {
		if r.Figures[i].Name == name {
			return &r.Figures[i]
		}
	}
	return nil
}

func (r *Report) phase(name string) *PhaseRow {
	for i := range r.Phases {
		if r.Phases[i].Name == name {
			return &r.Phases[i]
		}
	}
	return nil
}

const ms = int64(time.Millisecond)

// TestQueueModel is section 11 of the definitions: one at a time against all
// together, setup 4 ms and 1 ms a request.
func TestQueueModel(t *testing.T) {
	for _, c := range []struct {
		name, text string
		mean       int64
		waits      int64
		throughput float64
	}{
		{"one at a time", `
a arrival=0   queueing=0..0     prefill=0..5ms   end=5ms
b arrival=1ms queueing=1ms..5ms prefill=5ms..10ms end=10ms
c arrival=2ms queueing=2ms..10ms prefill=10ms..15ms end=15ms
d arrival=3ms queueing=3ms..15ms prefill=15ms..20ms end=20ms`, 11 * ms, 24 * ms, 200},
		{"all four", `
a arrival=0   queueing=0..3ms   prefill=3ms..11ms end=11ms
b arrival=1ms queueing=1ms..3ms prefill=3ms..11ms end=11ms
c arrival=2ms queueing=2ms..3ms prefill=3ms..11ms end=11ms
d arrival=3ms queueing=3ms..3ms prefill=3ms..11ms end=11ms`, 19 * ms / 2, 6 * ms, 4 / 0.011},
	} {
		r := report(t, Options{}, c.text)
		if got := r.figure("e2e").MeanNS.Or(0); got != c.mean {
			t.Errorf("%s: mean %d, want %d", c.name, got, c.mean)
		}
		q := r.phase("queueing")
		if q.TotalNS != c.waits || q.Requests != 4 || q.MinNS.Or(-1) != 0 {
			t.Errorf("%s: queueing %+v, want a total of %d over 4, the least 0", c.name, q, c.waits)
		}
		if got := r.Card.ThroughputPerS.Or(0); got < c.throughput-1e-9 || got > c.throughput+1e-9 {
			t.Errorf("%s: throughput %v, want %v", c.name, got, c.throughput)
		}
	}
}

// A request without a known end may have left when last seen or have stayed:
// over 10 ms a is there for 4 ms, b for 10, c for 2 or 9.
func TestConcurrencyWithoutEnds(t *testing.T) {
	r := report(t, Options{}, `
a arrival=0   end=4ms
b arrival=0   end=10ms
c arrival=1ms queued=3ms outcome=incomplete`)
	c := r.Card
	if c.ConcurrencyMean.Present() || c.ConcurrencyPeak.Present() {
		t.Errorf("mean %v, peak %v: not known", c.ConcurrencyMean, c.ConcurrencyPeak)
	}
	if low, high := c.ConcurrencyLow.Or(0), c.ConcurrencyHigh.Or(0); low != 1.6 || high != 2.3 {
		t.Errorf("between %v and %v, want 1.6 and 2.3", low, high)
	}
}

// A stated window chooses requests by arrival. What runs, waits or ends in it
// counts there all the same.
func TestStatedWindow(t *testing.T) {
	bound := func(s string) Bound {
		b, err := ParseBound(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := report(t, Options{From: bound("10ms"), To: bound("30ms")}, `
a arrival=0    queueing=5ms..15ms  end=20ms
b arrival=10ms queueing=10ms..12ms end=25ms
c arrival=5ms  end=40ms
d arrival=30ms end=50ms
e clock=relative arrival=0 end=1s`)
	c := r.Card
	if r.Counts.Requests != 1 || r.Counts.NotInWindow != 4 || c.OfferedPerS.Or(0) != 50 {
		t.Errorf("b alone arrived, 50 /s: got %+v, %v /s", r.Counts, c.OfferedPerS)
	}
	if c.ThroughputPerS.Or(0) != 100 {
		t.Errorf("a and b were completed in 20 ms, 100 /s: got %v", c.ThroughputPerS)
	}
	// In the system: a 10 ms, b 15 ms, c 20 ms; waiting: a 5 ms, b 2 ms.
	if c.ConcurrencyMean.Or(0) != 2.25 || c.ConcurrencyPeak.Or(0) != 3 || c.WaitingMean.Or(0) != 0.35 {
		t.Errorf("concurrency %v, at most %v, waiting %v; want 2.25, 3, 0.35", c.ConcurrencyMean, c.ConcurrencyPeak, c.WaitingMean)
	}
	if l := r.Little[0]; l.MeanWaiting != 0.35 || l.ArrivalsPerS != 50 || l.MeanWaitNS != 2*ms {
		t.Errorf("Little's law has %+v", l)
	}
}

// The window's calendar times have no finer digit than the clock.
func TestWindowDigits(t *testing.T) {
	r := report(t, Options{}, "a resolution=1s arrival=950ms end=6s")
	if w := r.Card.Window; w.Start != "2025-10-09T08:53:20Z" || w.End != "2025-10-09T08:53:26Z" || w.LengthNS != 5050*ms {
		t.Errorf("the window is %+v", *w)
	}
}

// Requests that no figure is of make none coarser, and are counted.
func TestResolution(t *testing.T) {
	const fine, coarse = "a arrival=0 end=50ms decode=0..50ms", "b resolution=1s arrival=0 end=2s outcome=aborted"
	for _, c := range []struct {
		requests            string
		resolution, coarser int64
	}{
		{"", 0, 0},
		{fine, 1, 0},
		{coarse, 1000 * ms, 0},
		{fine + "\n" + coarse, 1, 1},
		{fine + "\n" + coarse + " queueing=0..1s", 1000 * ms, 0},
		{fine + "\nc resolution=1s arrival=0 end=2s", 1000 * ms, 0},
	} {
		if card := report(t, Options{}, c.requests).Card; card.ResolutionNS.Or(0) != c.resolution || card.Coarser != c.coarser {
			t.Errorf("%q: known to %d ns, %d coarser", c.requests, card.ResolutionNS.Or(0), card.Coarser)
		}
	}
}

func TestHandChecked(t *testing.T) {
	// e2e 10, 20, 40 ms; the failed one waits too, and is in all-totals only.
	r := report(t, Options{Objectives: []Objective{{"ttft", 12 * ms}}}, `
a arrival=0    queueing=0..2ms     prefill=2ms..4ms   first=4ms  decode=4ms..10ms  last=10ms end=10ms in=100 out=4 model=m @tenant=x
b arrival=10ms queueing=10ms..16ms prefill=16ms..20ms first=20ms decode=20ms..30ms last=30ms end=30ms in=200 out=11 model=m @tenant=y
c arrival=20ms queueing=20ms..44ms prefill=44ms..48ms first=48ms decode=48ms..58ms last=58ms end=60ms in=300 out=1 model=m @tenant=y
d arrival=30ms queueing=30ms..50ms end=50ms outcome=aborted model=m @tenant=x`)
	want := map[string]int64{"queueing": 32 * ms, "prefill": 10 * ms, "decode": 26 * ms, "unattributed": 2 * ms}
	var sum, means int64
	for _, p := range r.Phases {
		if p.TotalNS != want[p.Name] {
			t.Errorf("%s: %d ns, want %d", p.Name, p.TotalNS, want[p.Name])
		}
		sum += p.TotalNS
		means += p.MeanNS.Or(0)
	}
	if sum != 70*ms || r.phase("queueing").TotalAllNS != 52*ms || means != r.figure("e2e").MeanNS.Or(0) {
		t.Errorf("sum %d, queueing of all %d, means %d", sum, r.phase("queueing").TotalAllNS, means)
	}
	check := func(name string, got, want any) {
		t.Helper()
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	check("ttft", r.figure("ttft").Quantiles[0].NS, 10*ms) // 4, 10, 28
	check("tpot", r.figure("tpot").TotalNS, 2*ms+1*ms)     // 6/3, 10/10; c has one token
	check("tpot requests", r.figure("tpot").Requests, int64(2))
	check("window", r.Card.Window.LengthNS, 60*ms)
	check("offered", r.Card.OfferedPerS.Or(0), 4/0.060)
	check("throughput", r.Card.ThroughputPerS.Or(0), 3/0.060)
	check("goodput", r.Card.GoodputPerS.Or(0), 2/0.060)
	check("prompt tokens/s", r.Card.PromptTokensPerS.Or(0), 600/0.060)
	check("request time", r.Card.RequestTimeNS, 90*ms)
	check("concurrency", r.Card.ConcurrencyMean.Or(0), 1.5)
	// a ends when b arrives, and b when d does: never more than two... at 30 ms
	// c and d are in.
	check("peak", r.Card.ConcurrencyPeak.Or(0), int64(2))
	check("waiting peak", r.Card.WaitingPeak.Or(0), int64(2))
	check("not ok", r.Counts.NotOKMark, true)
	check("left out", r.Counts.LeftOut, []NamedCount{{"aborted", 1}})
	var tenants *Grouping
	for i := range r.Groups {
		if r.Groups[i].By[0] == "tenant" {
			tenants = &r.Groups[i]
		}
	}
	if tenants == nil {
		t.Fatalf("no grouping by tenant: %+v", r.Groups)
	}
	y := tenants.Rows[0]
	check("first tenant", y.Values[0].Or(""), "y")
	check("its waiting", y.WaitingAllNS.Or(0), 30*ms)
	check("its mean wait", y.WaitingMean.Or(0), 15*ms)
	check("tail", []int64{r.Tail.Requests, r.Tail.MeanNS, r.Tail.MedianMeanNS, r.Tail.DifferenceNS}, []int64{1, 40 * ms, 20 * ms, 20 * ms})
	check("example", r.Examples[2].ID, "c")
	check("little", r.Little[0].MeanWaiting, 52.0/60)
	if r.Little[0].BeyondPercent {
		t.Errorf("Little's law: %+v", r.Little[0])
	}
}

// TestTenths holds the values where an off-by-one shows.
func TestTenths(t *testing.T) {
	var text strings.Builder
	for i := range 10 {
		fmt.Fprintf(&text, "r%d arrival=%ds end=%dms\n", i, i, i*1000+(i+1)*100)
	}
	r := report(t, Options{}, text.String())
	e := r.figure("e2e")
	var got []int64
	for _, q := range e.Quantiles {
		got = append(got, q.NS)
	}
	if want := []int64{550 * ms, 910 * ms, 991 * ms}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if e.MeanNS.Or(0) != 550*ms || e.MinNS.Or(0) != 100*ms || e.MaxNS.Or(0) != 1000*ms {
		t.Errorf("%+v", e)
	}
}

// TestNothingToSay asks for plain words, and neither NaN nor panic, where
// there is little or nothing.
func TestNothingToSay(t *testing.T) {
	for _, c := range []struct {
		name, text, verdict string
		used                int64
	}{
		{"no requests", "", "There is no request to report on.", 0},
		{"all failed", "a arrival=0 end=30s outcome=error\nb arrival=1s end=31s outcome=aborted", "None of 2 requests can be used for latency figures: 1 aborted, 1 error.", 0},
		{"one", "a arrival=0 end=1s", "The source tells when requests begin and end and nothing between: all of the mean e2e of 1 s is unattributed.", 1},
		{"no length", "a arrival=0 end=0", "1 request, all of zero length: there is no time to divide.", 1},
		{"no arrival", "a end=3s", "None of 1 request can be used for latency figures: 1 no arrival.", 0},
		{"running", "a arrival=3s", "None of 1 request can be used for latency figures: 1 incomplete.", 0},
		{"no instant", "a outcome=error", "None of 1 request can be used for latency figures: 1 error.", 0},
		{"two clocks", "a arrival=0 end=1s queueing=0..1s\nb clock=relative arrival=0 end=1s queueing=0..1s", "The requests' time (mean e2e 1 s) is 100 % waiting.", 2},
	} {
		r := report(t, Options{}, c.text)
		if r.Verdict[0] != c.verdict || r.Counts.Used != c.used {
			t.Errorf("%s: %q, %d used", c.name, r.Verdict, r.Counts.Used)
		}
		asJSON(t, r) // fails on NaN
		for _, tab := range r.Tables() {
			for _, row := range tab.Rows {
				if len(row) != len(tab.Columns) {
					t.Errorf("%s: table %s: a row of %d cells under %d columns", c.name, tab.Name, len(row), len(tab.Columns))
				}
			}
		}
		if c.name == "two clocks" && (r.Card.Window != nil || r.Card.OfferedPerS.Present() || r.Card.Clock != "mixed") {
			t.Errorf("two clocks on one axis: %+v", r.Card)
		}
	}
}

// random makes requests of every shape, sums of claims that contradict each
// other included.
func random(rng *rand.Rand, n int) []*trace.Request {
	var rs []*trace.Request
	at := func(v int64) trace.Instant { return trace.At(reqtext.Base+trace.Time(v), trace.Measured) }
	for i := range n {
		r := &trace.Request{
			ID: fmt.Sprint("r", i), Clock: trace.ClockUnix, Resolution: time.Duration(1 + rng.IntN(3)),
			Model: []string{"", "m", "n"}[rng.IntN(3)], Replica: fmt.Sprint(rng.IntN(3)),
			Source:  trace.Source{Format: "otlp-json", Engine: "e", Pos: trace.Pos{File: "f", Line: i}},
			Outcome: trace.Outcome(rng.IntN(5)), Input: trace.Some(rng.IntN(3000)),
		}
		if rng.IntN(4) > 0 {
			r.Outcome = trace.OK
		}
		start := rng.Int64N(1e9)
		length := rng.Int64N(1e7)
		if rng.IntN(2) == 0 {
			length = rng.Int64N(4) * 1e6 // ties
		}
		r.Arrival = at(start)
		if r.Outcome != trace.Incomplete {
			r.Completed = at(start + length)
		}
		if rng.IntN(3) > 0 {
			r.FirstToken, r.LastToken, r.Output = at(start+length/2), at(start+length), trace.Some(rng.IntN(50))
		}
		for range rng.IntN(5) {
			s := start + rng.Int64N(length+1)
			r.Intervals = append(r.Intervals, trace.Interval{
				Phase: trace.Phase(1 + rng.IntN(127)), Basis: trace.Measured,
				Start: reqtext.Base + trace.Time(s), End: reqtext.Base + trace.Time(s+rng.Int64N(length+1)),
			})
		}
		rs = append(rs, r)
	}
	return rs
}

// TestOrderAndSplit: neither the order of requests nor their split between
// merged analyzers may show.
func TestOrderAndSplit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for round := range 20 {
		rs := random(rng, 1+rng.IntN(300))
		readings := []trace.Reading{
			{Replica: "0", Clock: trace.ClockUnix, At: reqtext.Base, Running: trace.Some(1), Waiting: trace.Some(3)},
			{Replica: "0", Clock: trace.ClockUnix, At: reqtext.Base + 5e8, Running: trace.Some(2), Waiting: trace.Some(1)},
			{Replica: "1", Clock: trace.ClockUnix, At: reqtext.Base + 1e8, Waiting: trace.Some(7)},
		}
		opts := Options{}
		if round%2 == 1 {
			opts.By = []string{"model", "replica"}
			opts.From, _ = ParseBound("100ms")
		}
		a := New(opts)
		for _, r := range rs {
			a.Add(r)
		}
		for _, r := range readings {
			a.AddReading(r)
		}
		want := asJSON(t, a.Report())
		if again := asJSON(t, a.Report()); again != want {
			t.Fatal("the second report differs")
		}
		parts := make([]*Analyzer, 1+rng.IntN(4))
		for i := range parts {
			parts[i] = New(opts)
		}
		for _, i := range rng.Perm(len(rs)) {
			parts[rng.IntN(len(parts))].Add(rs[i])
		}
		for _, i := range rng.Perm(len(readings)) {
			parts[rng.IntN(len(parts))].AddReading(readings[i])
		}
		for _, b := range parts[1:] {
			parts[0].Merge(b)
		}
		if d := cmp.Diff(want, asJSON(t, parts[0].Report())); d != "" {
			t.Fatalf("round %d: %s", round, d)
		}
	}
}

// TestSums: every total must equal what the breakdowns say, every
// decomposition its whole.
func TestSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 30 {
		rs := random(rng, 1+rng.IntN(200))
		a := New(Options{})
		used, all := map[string]int64{}, map[string]int64{}
		var e2e, n int64
		for _, r := range rs {
			a.Add(r)
			b := r.Breakdown()
			add := func(p trace.Phase, d time.Duration) {
				all[p.String()] += int64(d)
				if r.Outcome == trace.OK {
					used[p.String()] += int64(d)
				}
			}
			for _, p := range b.Parts {
				add(p.Phase, p.Dur)
			}
			add(trace.Unattributed, b.Unattributed)
			if r.Outcome == trace.OK {
				e2e += int64(b.Extent)
				n++
			}
		}
		rep := a.Report()
		var means, total, kinds, kindMeans int64
		for _, p := range rep.Phases {
			if p.TotalNS != used[p.Name] || p.TotalAllNS != all[p.Name] {
				t.Fatalf("%s: %d and %d, want %d and %d", p.Name, p.TotalNS, p.TotalAllNS, used[p.Name], all[p.Name])
			}
			total += p.TotalNS
			means += p.MeanNS.Or(0)
		}
		for _, k := range rep.Kinds {
			kinds += k.TotalNS
			kindMeans += k.MeanNS.Or(0)
		}
		if mean := rep.figure("e2e").MeanNS.Or(0); total != e2e || kinds != e2e || means != mean || kindMeans != mean {
			t.Fatalf("total %d, kinds %d, want %d; means %d, kinds' %d, want %d", total, kinds, e2e, means, kindMeans, mean)
		}
		if tail := rep.Tail; tail != nil {
			var a, b, d int64
			for _, p := range tail.Phases {
				a, b, d = a+p.MeanNS, b+p.MedianMeanNS, d+p.DifferenceNS
			}
			if a != tail.MeanNS || b != tail.MedianMeanNS || d != tail.DifferenceNS || a-b != d {
				t.Fatalf("tail: %+v", tail)
			}
		}
		for _, e := range rep.Examples {
			var sum int64
			for _, p := range e.Phases {
				sum += p.NS
			}
			if sum != e.E2ENS {
				t.Fatalf("example %+v adds up to %d", e, sum)
			}
		}
		for _, g := range rep.Groups {
			var requests, u int64
			for _, x := range g.Rows {
				requests += x.Requests
				u += x.Used
			}
			if requests != int64(len(rs)) || u != n {
				t.Fatalf("by %v: %d requests, %d used", g.By, requests, u)
			}
		}
		var left int64
		for _, l := range rep.Counts.LeftOut {
			left += l.Requests
		}
		if left+rep.Counts.Used != rep.Counts.Requests {
			t.Fatalf("left out: %+v", rep.Counts)
		}
	}
}

// TestDepth compares the sweep with a count at every instant.
func TestDepth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	for range 500 {
		n := rng.IntN(8)
		var starts, ends []int64
		spans := make([][2]int64, n)
		for i := range spans {
			s := rng.Int64N(30)
			spans[i] = [2]int64{s, s + rng.Int64N(10)}
			starts, ends = append(starts, s), append(ends, spans[i][1])
		}
		slices.Sort(starts)
		slices.Sort(ends)
		from := rng.Int64N(20)
		to := from + 1 + rng.Int64N(20)
		var area float64
		var peak int64
		for at := from; at < to; at++ {
			var open int64
			for _, s := range spans {
				if s[0] <= at && at < s[1] {
					open++
				}
			}
			area += float64(open)
			peak = max(peak, open)
		}
		if mean, p := depth(starts, ends, from, to); mean != area/float64(to-from) || p != peak {
			t.Fatalf("%v from %d to %d: mean %v peak %d, want %v and %d", spans, from, to, mean, p, area/float64(to-from), peak)
		}
	}
}

// TestWaitingClaimedTwice: a request that claims the same wait twice is one
// request that waits.
func TestWaitingClaimedTwice(t *testing.T) {
	r := report(t, Options{}, "a arrival=0 queueing=0..8ms queueing=2ms..6ms preempted=8ms..10ms end=20ms")
	if mean, peak := r.Card.WaitingMean.Or(-1), r.Card.WaitingPeak.Or(-1); mean != 0.5 || peak != 1 {
		t.Errorf("%v waiting, %d at most; want 0.5 and 1", mean, peak)
	}
	if r.Counts.Inconsistent != 1 || r.Counts.OverlapNS != 4*ms {
		t.Errorf("%+v", r.Counts)
	}
}

// TestGroupOrder: who waits most comes first, who takes most only where no
// waiting is known.
func TestGroupOrder(t *testing.T) {
	for text, want := range map[string]string{
		"a arrival=0 queueing=0..1ms end=90ms @tenant=long\nb arrival=0 queueing=0..5ms end=5ms @tenant=waits\nc arrival=0 end=99ms @tenant=silent": "waits long silent",
		"a arrival=0 end=1ms @tenant=short\nb arrival=0 end=9ms @tenant=long\nc arrival=0 end=1ms @tenant=also":                                     "long also short",
		"a arrival=0 end=1ms @tenant=\"\"\nb arrival=0 end=1ms":                                                                                     "- ",
	} {
		var got []string
		for _, g := range report(t, Options{By: []string{"tenant"}}, text).Groups[0].Rows {
			got = append(got, g.Values[0].Or("-"))
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%q, want %q", s, want)
		}
	}
}

func TestReadings(t *testing.T) {
	// Depth 0, 10, 10 at 0, 10, 20 s: between 100 and 200 (150 in a straight
	// line) request-seconds over ten arrivals.
	a := New(Options{})
	for i := range 10 {
		for _, r := range reqtext.MustParse(t, fmt.Sprintf("r%d arrival=%ds resolution=1s", i, i)) {
			a.Add(r)
		}
	}
	for i, n := range []int{0, 10, 10} {
		a.AddReading(trace.Reading{
			Source: trace.Source{Engine: "vllm-log"}, Clock: trace.ClockUnix, At: reqtext.Base + trace.Time(i)*1e10,
			Running: trace.Some(4), Waiting: trace.Some(n), KVUsage: trace.Some(0.5),
		})
	}
	r := a.Report()
	if want := (&LittleWait{Arrivals: 10, MeanNS: 15e9, LowNS: 10e9, HighNS: 20e9}); r.LogWait == nil || *r.LogWait != *want {
		t.Errorf("%+v, want %+v", r.LogWait, want)
	}
	e := r.Engines[0]
	if e.WaitingMean.Or(0) != 5 || e.WaitingMax.Or(0) != 10 || e.RunningMean.Or(0) != 4 || e.KVUsageMax.Or(0) != 0.5 {
		t.Errorf("%+v", e)
	}
	if !strings.Contains(r.Verdict[0], "waits 15 s on average (inferred; between 10 s and 20 s)") {
		t.Error(r.Verdict)
	}
}

func TestApportion(t *testing.T) {
	for _, c := range []struct {
		sums []int64
		n    int64
		want []int64
	}{
		{[]int64{10, 10, 10}, 3, []int64{4, 3, 3}},
		{[]int64{1, 2, 0}, 2, []int64{1, 1, 0}}, // 1.5 rounds to 2: the half goes to 0.5
		{[]int64{7}, 2, []int64{4}},
		{nil, 3, []int64{}},
		{[]int64{5}, 0, []int64{0}},
	} {
		if got := apportion(c.sums, c.n); !slices.Equal(got, c.want) {
			t.Errorf("%v / %d: %v, want %v", c.sums, c.n, got, c.want)
		}
	}
}

func TestMetrics(t *testing.T) {
	r := reqtext.MustParse(t, "a arrival=0 queueing=0..2ms prefill=2ms..4ms first=4ms decode=4ms..10ms last=10ms end=11ms in=9 out=4")[0]
	b := r.Breakdown()
	want := map[string]int64{
		"ttft": 4 * ms, "tpot": 2 * ms, "e2e": 11 * ms, "waiting": 2 * ms, "compute": 8 * ms, "unattributed": ms,
		"queueing": 2 * ms, "prefill": 2 * ms, "decode": 6 * ms, "prompt_tokens": 9, "output_tokens": 4,
	}
	for _, m := range Metrics {
		v, ok := m.Of(r, &b).Get()
		if w, has := want[m.Name]; ok != has || v != w {
			t.Errorf("%s: %d %v, want %d %v", m.Name, v, ok, w, has)
		}
		if m.Definition == "" {
			t.Errorf("%s has no definition", m.Name)
		}
	}
}

func many(n int) []*trace.Request {
	rng := rand.New(rand.NewPCG(4, 4))
	rs := make([]*trace.Request, n)
	var now int64
	for i := range rs {
		now += int64(rng.ExpFloat64() * 1e8)
		at := func(v int64) trace.Time { return reqtext.Base + trace.Time(now+v) }
		q, p, d := int64(rng.ExpFloat64()*2e8), int64(5e7), int64(rng.ExpFloat64()*2e9)
		rs[i] = &trace.Request{
			ID: fmt.Sprintf("cmpl-%032d", i), Clock: trace.ClockUnix, Resolution: 1, Outcome: trace.OK, Model: "m",
			Replica: fmt.Sprint(i % 4), Input: trace.Some(i % 4000), Output: trace.Some(i % 500),
			Arrival: trace.At(at(0), trace.Measured), FirstToken: trace.At(at(q+p), trace.Measured),
			LastToken: trace.At(at(q+p+d), trace.Measured), Completed: trace.At(at(q+p+d+1000), trace.Measured),
			Intervals: []trace.Interval{
				{Phase: trace.Queueing, Basis: trace.Measured, Start: at(0), End: at(q)},
				{Phase: trace.Prefill, Basis: trace.Measured, Start: at(q), End: at(q + p)},
				{Phase: trace.Decode, Basis: trace.Measured, Start: at(q + p), End: at(q + p + d)},
			},
			Source: trace.Source{Format: "otlp-json", Engine: "vllm-v1", Pos: trace.Pos{File: "trace.jsonl", Line: i}},
		}
	}
	return rs
}

func BenchmarkReport(b *testing.B) {
	rs := many(1_000_000)
	b.Run("add", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := New(Options{})
			for _, r := range rs {
				a.Add(r)
			}
		}
		b.ReportMetric(float64(len(rs))*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	})
	a := New(Options{})
	for _, r := range rs {
		a.Add(r)
	}
	b.Run("report", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a.Report()
		}
		b.ReportMetric(float64(len(rs))*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	})
}

// A group's quantile is marked by the independent requests beyond it, not by
// their number: 2,000 requests that come in five lumps support no p99.
func TestGroupSupport(t *testing.T) {
	for _, c := range []struct {
		name      string
		slow      func(i int) bool
		supported bool
	}{
		{"even", func(i int) bool { return i%50 == 0 }, true},
		{"lumps", func(i int) bool { return i < 40 }, false},
	} {
		a := New(Options{By: []string{"tenant"}})
		for i := range 2000 {
			start := trace.Time(i) * 1e9
			length := 10 * time.Millisecond
			if c.slow(i) {
				length = 20*time.Millisecond + time.Duration(i)
			}
			r := &trace.Request{Clock: trace.ClockUnix, Resolution: 1, Outcome: trace.OK,
				Arrival: trace.At(start, trace.Measured), Completed: trace.At(start.Add(length), trace.Measured)}
			r.SetAttr("tenant", trace.StringValue("a"))
			a.Add(r)
		}
		g := a.Report().Groups[0].Rows[0]
		if g.P99Supported != c.supported || g.E2EP99Interval == nil || g.E2EP50Interval == nil {
			t.Errorf("%s: supported %v, want %v; intervals %+v %+v", c.name, g.P99Supported, c.supported, g.E2EP50Interval, g.E2EP99Interval)
		}
	}
}

// Where a source does not tell how front-end time divides, a first token that
// was not measured has no sure place: the report says so.
func TestPlacedFirstToken(t *testing.T) {
	const text = `
a arrival=0 queueing=1ms..2ms prefill=2ms..4ms first=%s decode=4ms..9ms last=9ms end=10ms arrival|completion=0..1ms arrival|completion=9ms..10ms`
	for _, c := range []struct {
		first string
		want  bool
	}{{"4ms", false}, {"~4ms", true}} {
		r := report(t, Options{}, fmt.Sprintf(text, c.first))
		got := slices.ContainsFunc(r.Limits, func(s string) bool { return strings.HasPrefix(s, "ttft of 1 request is placed") })
		if got != c.want {
			t.Errorf("first token at %s: limits %q", c.first, r.Limits)
		}
	}
}

// A key of more than 50 values over the whole input divides nothing by itself,
// however the input is split and ordered, and its values are not kept. Asked
// for, it has all its groups.
func TestManyGroups(t *testing.T) {
	requests := func(n int) (rs []*trace.Request) {
		for i := range 3 * n {
			r := &trace.Request{Outcome: trace.OK, Clock: trace.ClockUnix, Resolution: 1, Arrival: trace.At(1, trace.Measured), Completed: trace.At(11, trace.Measured)}
			r.SetAttr("tenant", trace.StringValue(strconv.Itoa(i%n)))
			rs = append(rs, r)
		}
		return rs
	}
	groups := func(a *Analyzer) int {
		if g := a.Report().Groups; len(g) > 0 {
			return len(g[0].Rows)
		}
		return 0
	}
	for n, want := range map[int]int{50: 50, 51: 0, 2000: 0} {
		for name, cut := range map[string]int{"whole": 0, "halves": n, "thirds": n / 2} {
			rs := requests(n)
			a, b := New(Options{}), New(Options{})
			for i, r := range rs {
				if i < cut {
					b.Add(r)
				} else {
					a.Add(r)
				}
			}
			a.Merge(b)
			if got := groups(a); got != want {
				t.Errorf("%d values, %s: %d groups, want %d", n, name, got, want)
			}
			if dims := len(a.dimRows); dims > 2*51 { // those of each analyzer
				t.Errorf("%d values, %s: %d are kept", n, name, dims)
			}
		}
		a := New(Options{By: []string{"tenant"}})
		for _, r := range requests(n) {
			a.Add(r)
		}
		if got := groups(a); got != n {
			t.Errorf("asked for %d values: %d groups", n, got)
		}
	}
}
