package analyze

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func windows(t testing.TB, every time.Duration, rs []*trace.Request, readings ...trace.Reading) *WindowResult {
	t.Helper()
	return windowsBy(t, every, nil, rs, readings...)
}

func windowsBy(t testing.TB, every time.Duration, parts func(int) []WaitPart, rs []*trace.Request, readings ...trace.Reading) *WindowResult {
	t.Helper()
	w := NewWindows(WindowOptions{Every: every})
	for _, r := range rs {
		w.Add(r)
	}
	for _, r := range readings {
		w.AddReading(r)
	}
	res, err := w.Result(parts)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// inTwo gives the first half of each wait one cause and the rest another.
func inTwo(rs []*trace.Request) func(int) []WaitPart {
	return func(i int) (parts []WaitPart) {
		for _, g := range rs[i].Segments(nil) {
			if g.Phase.Kind() == trace.Waiting {
				mid := g.Start + (g.End-g.Start)/2
				parts = append(parts, WaitPart{Start: g.Start, End: mid, Cause: CauseSlots}, WaitPart{Start: mid, End: g.End, Cause: CauseStep})
			}
		}
		return parts
	}
}

// sketch is a series as text: arrivals, served, failed; waiting and running
// mean and most; each phase in milliseconds.
func sketch(res *WindowResult, s *WindowSeries) string {
	var b strings.Builder
	mean := func(o trace.Opt[float64], most trace.Opt[int64]) string {
		v, ok := o.Get()
		m, _ := most.Get()
		if !ok {
			return "—"
		}
		return fmt.Sprintf("%.4g/%d", v, m)
	}
	for _, w := range s.Windows {
		fmt.Fprintf(&b, "%d-%d: %d in %d ok %d bad, waiting %s running %s,", (w.StartNS-res.StartNS)/ms, (w.EndNS-res.StartNS)/ms,
			w.Arrivals, w.Served, w.Failed, mean(w.WaitingMean, w.WaitingMax), mean(w.RunningMean, w.RunningMax))
		for i, p := range res.Phases {
			if w.PhaseNS[i] != 0 {
				fmt.Fprintf(&b, " %s %d", p, w.PhaseNS[i]/ms)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestWindowsByHand(t *testing.T) {
	// One at a time, setup 4 ms and 1 ms a request: section 11 of the definitions.
	const model = `
r1 arrival=0   end=5ms  prefill|decode=0..5ms
r2 arrival=1ms end=10ms queueing=1ms..5ms  prefill|decode=5ms..10ms
r3 arrival=2ms end=15ms queueing=2ms..10ms prefill|decode=10ms..15ms
r4 arrival=3ms end=20ms queueing=3ms..15ms prefill|decode=15ms..20ms
`
	for _, c := range []struct {
		name, text string
		every      time.Duration
		want       string
	}{
		{"the queue model", model, 5 * time.Millisecond, `
0-5: 4 in 0 ok 0 bad, waiting 1.8/3 running 1/1, queueing 9 prefill|decode 5
5-10: 0 in 1 ok 0 bad, waiting 2/2 running 1/1, queueing 10 prefill|decode 5
10-15: 0 in 1 ok 0 bad, waiting 1/1 running 1/1, queueing 5 prefill|decode 5
15-20: 0 in 2 ok 0 bad, waiting 0/0 running 1/1, prefill|decode 5
`},
		{"a last window that is shorter", model, 8 * time.Millisecond, `
0-8: 4 in 1 ok 0 bad, waiting 1.875/3 running 1/1, queueing 15 prefill|decode 8
8-16: 0 in 2 ok 0 bad, waiting 1.125/2 running 1/1, queueing 9 prefill|decode 8
16-20: 0 in 1 ok 0 bad, waiting 0/0 running 1/1, prefill|decode 4
`},
		{"one window", model, time.Hour, `
0-20: 4 in 4 ok 0 bad, waiting 1.2/3 running 1/1, queueing 24 prefill|decode 20
`},
		{"gaps, failures and what nobody tells", `
a arrival=0   end=30ms outcome=error prefill=5ms..10ms
b arrival=2ms end=12ms outcome=ok    prefill=2ms..12ms
c arrival=4ms
`, 10 * time.Millisecond, `
0-10: 3 in 0 ok 0 bad, waiting — running 1.3/2, prefill 13 unattributed 5
10-20: 0 in 1 ok 0 bad, waiting — running 0.2/1, prefill 2 unattributed 10
20-30: 0 in 0 ok 1 bad, waiting — running 0/0, unattributed 10
`},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := windows(t, c.every, reqtext.MustParse(t, c.text))
			if got := sketch(res, &res.Series[0]); got != strings.TrimPrefix(c.want, "\n") {
				t.Errorf("got\n%swant%s", got, c.want)
			}
			if len(res.Series) != 1 {
				t.Errorf("%d series", len(res.Series))
			}
		})
	}
}

func TestWindowsByReplica(t *testing.T) {
	res := windows(t, 10*time.Millisecond, reqtext.MustParse(t, `
a replica=two arrival=0    end=20ms queueing=0..10ms    decode=10ms..20ms
b replica=one arrival=5ms  end=15ms queueing=5ms..10ms  decode=10ms..15ms
c replica=two arrival=12ms end=20ms queueing=12ms..14ms decode=14ms..20ms
`))
	var names []string
	for i := range res.Series {
		names = append(names, res.Series[i].Name())
	}
	if got := strings.Join(names, " "); got != "all one two" {
		t.Fatalf("series %s", got)
	}
	for i, want := range []string{
		"0-10: 2 in 0 ok 0 bad, waiting 1.5/2 running 0/0, queueing 15\n10-20: 1 in 3 ok 0 bad, waiting 0.2/1 running 2.1/3, queueing 2 decode 21\n",
		"0-10: 1 in 0 ok 0 bad, waiting 0.5/1 running 0/0, queueing 5\n10-20: 0 in 1 ok 0 bad, waiting 0/0 running 0.5/1, decode 5\n",
		"0-10: 1 in 0 ok 0 bad, waiting 1/1 running 0/0, queueing 10\n10-20: 1 in 2 ok 0 bad, waiting 0.2/1 running 1.6/2, queueing 2 decode 16\n",
	} {
		if got := sketch(res, &res.Series[i]); got != want {
			t.Errorf("%s:\n%swant\n%s", names[i], got, want)
		}
	}
}

func TestWindowsReadings(t *testing.T) {
	rs := reqtext.MustParse(t, `
a service=s replica=one arrival=0 end=20ms decode=0..20ms
b service=s replica=two arrival=0 end=20ms decode=0..20ms
`)
	at := func(replica string, d time.Duration, running, waiting int, kv float64) trace.Reading {
		return trace.Reading{
			Service: "s", Replica: replica, Clock: trace.ClockUnix, Resolution: 1, At: reqtext.Base.Add(d),
			Running: trace.Some(running), Waiting: trace.Some(waiting), KVUsage: trace.Some(kv),
		}
	}
	const ms = time.Millisecond
	res := windows(t, 10*ms, rs,
		at("one", 0, 2, 0, 0.1), at("one", 5*ms, 4, 1, 0.5), at("one", 20*ms, 6, 0, 0.2),
		at("two", 10*ms, 1, 7, 0.9), at("two", 25*ms, 1, 0, 0.9))
	opt := trace.Some[float64]
	count := trace.Some[int64]
	one := []*EngineSlot{
		{2, opt(3), count(4), opt(0.5), count(1), opt(0.5)}, // 2 for 5 ms, 4 for 5 ms
		{1, opt(4), count(6), opt(1), count(1), opt(0.5)},   // 4 stands for 10 ms; 6 at its end
	}
	two := []*EngineSlot{nil, {1, opt(1), count(1), opt(7), count(7), opt(0.9)}}
	all := []*EngineSlot{one[0], {2, opt(5), trace.Opt[int64]{}, opt(8), trace.Opt[int64]{}, opt(0.9)}}
	for i, want := range [][]*EngineSlot{all, one, two} {
		for j := range want {
			if d := cmp.Diff(want[j], res.Series[i].Windows[j].Engine, cmp.AllowUnexported(trace.Opt[float64]{}, trace.Opt[int64]{})); d != "" {
				t.Errorf("%s, window %d: %s", res.Series[i].Name(), j, d)
			}
		}
	}
	if n := strings.Join(res.Notes, " "); n != "1 reading lies before the first or after the last request." {
		t.Errorf("notes %q", n)
	}

	// Readings alone make an axis of their own.
	res = windows(t, 10*ms, nil, at("one", 0, 2, 0, 0.1), at("one", 20*ms, 4, 1, 0.5))
	if len(res.Series) != 1 || len(res.Series[0].Windows) != 2 || res.Series[0].Windows[1].Engine.RunningMean != opt(2) {
		t.Errorf("%+v", res)
	}
}

// randomRequests draws requests of a few dozen nanoseconds with all that a
// source may leave out, on one clock.
func randomRequests(rnd *rand.Rand, n int) []*trace.Request {
	var rs []*trace.Request
	for i := range n {
		r := &trace.Request{ID: fmt.Sprint(i), Clock: trace.ClockRelative, Resolution: 1, Replica: []string{"", "a", "b", "c"}[rnd.IntN(4)]}
		at := trace.Time(rnd.IntN(200) - 50)
		if rnd.IntN(6) > 0 {
			r.Arrival = trace.At(at, trace.Measured)
		}
		if rnd.IntN(6) > 0 {
			r.Completed, r.Outcome = trace.At(at+trace.Time(rnd.IntN(60)), trace.Measured), trace.OK
		}
		for range rnd.IntN(5) {
			s := at + trace.Time(rnd.IntN(50)) - 5
			r.Intervals = append(r.Intervals, trace.Interval{Phase: trace.Phase(1 + rnd.IntN(127)), Basis: trace.Measured, Start: s, End: s + trace.Time(rnd.IntN(25))})
		}
		rs = append(rs, r)
	}
	return rs
}

// The windows add up to the breakdowns, the replicas to all, and depths are
// what counting at every instant gives. The order of requests changes nothing.
func TestWindowsAddUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		rs := randomRequests(rnd, rnd.IntN(12))
		every := time.Duration(rnd.IntN(40)) // 0: chosen
		res := windowsBy(t, every, inTwo(rs), rs)
		want := map[string]int64{}
		var arrivals, ended int64
		for _, r := range rs {
			b := r.Breakdown()
			for _, p := range b.Parts {
				want[p.Phase.String()] += int64(p.Dur)
			}
			want["unattributed"] += int64(b.Unattributed)
			if r.Arrival.Present() {
				arrivals++
			}
			if r.Completed.Present() {
				ended++
			}
		}
		got := map[string]int64{}
		for k, s := range res.Series {
			at := res.StartNS
			for j, w := range s.Windows {
				if w.StartNS != at || w.EndNS < at {
					t.Fatalf("case %d: window %d begins at %d, not %d", i, j, w.StartNS, at)
				}
				at = w.EndNS
				var waiting, caused int64
				for p, ns := range w.PhaseNS {
					if ph, _ := trace.ParsePhase(res.Phases[p]); ph.Kind() == trace.Waiting {
						waiting += ns
					}
					if k == 0 {
						got[res.Phases[p]] += ns
					} else {
						got[res.Phases[p]] -= ns // all of it, in the end
					}
				}
				for c, ns := range w.CauseNS {
					if ns != 0 && res.Causes[c] != "slots" && res.Causes[c] != "step" {
						t.Fatalf("case %d: %d ns of %s", i, ns, res.Causes[c])
					}
					caused += ns
				}
				if caused != waiting {
					t.Fatalf("case %d, window %d: causes %d ns, waiting %d ns", i, j, caused, waiting)
				}
			}
			if at != res.EndNS {
				t.Fatalf("case %d: windows end at %d, not %d", i, at, res.EndNS)
			}
			if k == 0 {
				for _, w := range s.Windows {
					arrivals -= w.Arrivals
					ended -= w.Served + w.Failed
				}
				for p, ns := range want {
					if got[p] != ns {
						t.Fatalf("case %d: %s: windows have %d ns, breakdowns %d", i, p, got[p], ns)
					}
				}
			}
		}
		if arrivals != 0 || ended != 0 {
			t.Fatalf("case %d: %d arrivals and %d ends are in no window", i, arrivals, ended)
		}
		if len(res.Series) > 1 {
			for p, ns := range got {
				if ns != 0 {
					t.Fatalf("case %d: %s: replicas differ from all by %d ns", i, p, ns)
				}
			}
		}
		if len(res.Series) > 0 {
			checkDepths(t, rs, &res.Series[0])
		}
		rnd.Shuffle(len(rs), func(a, b int) { rs[a], rs[b] = rs[b], rs[a] })
		if a, b := windowJSON(t, res), windowJSON(t, windowsBy(t, every, inTwo(rs), rs)); a != b {
			t.Fatalf("case %d: order changes the result:\n%s\n%s", i, a, b)
		}
	}
}

func windowJSON(t *testing.T, res *WindowResult) string {
	t.Helper()
	b, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// checkDepths counts at every nanosecond.
func checkDepths(t *testing.T, rs []*trace.Request, s *WindowSeries) {
	t.Helper()
	for _, w := range s.Windows {
		var system, waiting, running int64
		for at := w.StartNS; at < w.EndNS; at++ {
			var sys, wait, run int64
			for _, r := range rs {
				for _, g := range r.Segments(nil) {
					if int64(g.Start) > at || int64(g.End) <= at {
						continue
					}
					sys++
					switch g.Phase.Kind() {
					case trace.Waiting:
						wait++
					case trace.Compute:
						run++
					}
				}
			}
			system, waiting, running = max(system, sys), max(waiting, wait), max(running, run)
		}
		if w.SystemMax.Or(system) != system || w.WaitingMax.Or(waiting) != waiting || w.RunningMax.Or(running) != running {
			t.Fatalf("window %+v: counted %d, %d, %d", w, system, waiting, running)
		}
	}
}

func TestWindowsBounds(t *testing.T) {
	long := reqtext.MustParse(t, "a arrival=0 end=300s decode=0..300s")
	w := NewWindows(WindowOptions{Every: time.Millisecond})
	w.Add(long[0])
	_, err := w.Result(nil)
	if err == nil || err.Error() != "windows of 1 ms would be 300,000 over 300 s, more than 100,000: take 5ms or longer, or a part of the time" {
		t.Errorf("error %v", err)
	}
	// As far apart as int64 allows, in both directions.
	far := &trace.Request{Clock: trace.ClockRelative, Resolution: 1, Arrival: trace.At(math.MinInt64, trace.Measured), Completed: trace.At(math.MaxInt64, trace.Measured), Outcome: trace.OK}
	res := windows(t, 0, []*trace.Request{far})
	if n := len(res.Series[0].Windows); n < 1 || n > 60 {
		t.Errorf("%d windows", n)
	}
	if _, err := newGrid(math.MinInt64, math.MaxInt64, 1, 1); err == nil {
		t.Error("windows of 1 ns over 584 years")
	}
	// Very many replicas and windows: the small ones share a series.
	w = NewWindows(WindowOptions{Every: 2 * time.Millisecond})
	w.Add(long[0])
	for i := range 10 {
		for range 10 - i {
			r := *long[0]
			r.Replica = fmt.Sprint(i)
			w.Add(&r)
		}
	}
	w.opts.Every = 3 * time.Millisecond
	if res, err = w.Result(nil); err != nil {
		t.Fatal(err)
	}
	if len(res.Series) != 3 || res.Series[1].Name() != "0" || res.Series[1].Requests != 10 || !res.Series[2].Rest || res.Series[2].Requests != 46 {
		t.Errorf("%d series: %q with %d requests", len(res.Series), res.Series[1].Name(), res.Series[1].Requests)
	}
	// Ten thousand replicas in sixty windows: as many series as make a table of
	// tens of megabytes, and no time is lost.
	w = NewWindows(WindowOptions{Every: 5 * time.Second})
	w.Add(long[0])
	one := *long[0]
	for i := range 10_000 {
		one.Replica = fmt.Sprint(i)
		w.Add(&one)
	}
	if res, err = w.Result(nil); err != nil {
		t.Fatal(err)
	}
	var requests int64
	for i := range res.Series[1:] {
		requests += res.Series[i+1].Requests
	}
	if cells := len(res.Series) * len(res.Series[0].Windows); cells > maxCells || requests != 10_001 || len(res.Notes) != 1 {
		t.Errorf("%d windows in %d series with %d requests; %q", cells, len(res.Series), requests, res.Notes)
	}
	// Two clocks have no axis in common.
	mono := *long[0]
	mono.Clock = trace.ClockMonotonic
	if res := windows(t, 0, []*trace.Request{long[0], &mono}); res.Clock != "mixed" || len(res.Series) != 0 || len(res.Notes) != 1 {
		t.Errorf("%+v", res)
	}
	if res := windows(t, 0, nil); len(res.Series) != 0 || len(res.Notes) != 1 {
		t.Errorf("%+v", res)
	}
	if res := windows(t, 0, []*trace.Request{{Resolution: 1}}); len(res.Series) != 0 || res.NoTime != 1 {
		t.Errorf("%+v", res)
	}
}

func TestWindowsChosen(t *testing.T) {
	for _, c := range []struct{ length, resolution, want time.Duration }{
		{0, 1, 1},
		{20 * time.Millisecond, 1, 500 * time.Microsecond},
		{60 * time.Second, 1, 2 * time.Second},
		{59 * time.Second, 1, time.Second},
		{10 * time.Minute, 1, 20 * time.Second},
		{9 * time.Minute, 1, 10 * time.Second},
		{5 * time.Second, time.Second, time.Second},
		{10 * 24 * time.Hour, 1, 6 * time.Hour},
	} {
		if got := chooseEvery(uint64(c.length), c.resolution); got != c.want {
			t.Errorf("%v to %v: %v, want %v", c.length, c.resolution, got, c.want)
		}
	}
}

func BenchmarkWindows(b *testing.B) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var rs []*trace.Request
	for i := range 100_000 {
		at := trace.Time(i) * 20_000_000
		wait := trace.Time(rnd.IntN(5_000_000_000))
		r := &trace.Request{
			Clock: trace.ClockUnix, Resolution: 1, Replica: fmt.Sprint(i % 10), Outcome: trace.OK,
			Arrival: trace.At(at, trace.Measured), Completed: trace.At(at+wait+5e9, trace.Measured),
			Intervals: []trace.Interval{
				{Phase: trace.Queueing, Basis: trace.Measured, Start: at, End: at + wait},
				{Phase: trace.Prefill, Basis: trace.Measured, Start: at + wait, End: at + wait + 1e9},
				{Phase: trace.Decode, Basis: trace.Measured, Start: at + wait + 1e9, End: at + wait + 5e9},
			},
		}
		rs = append(rs, r)
	}
	b.ReportAllocs()
	for b.Loop() {
		w := NewWindows(WindowOptions{})
		for _, r := range rs {
			w.Add(r)
		}
		if _, err := w.Result(nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(rs)), "ns/request")
}

// Requests that tell no end say nothing of who was in the system; readings of
// the parts of a rotated log are those of one engine.
func TestWindowsUnended(t *testing.T) {
	w := NewWindows(WindowOptions{Every: time.Second})
	for _, r := range reqtext.MustParse(t, `
a arrival=0 outcome=incomplete
b arrival=1s outcome=incomplete
c arrival=1s end=3s outcome=aborted
`) {
		w.Add(r)
	}
	for i, file := range []string{"vllm.log.1", "vllm.log.1", "vllm.log"} {
		w.AddReading(trace.Reading{
			Source: trace.Source{Engine: "vllm", Pos: trace.Pos{File: file}}, Replica: "engine 0", Clock: trace.ClockUnix,
			At: reqtext.Base.Add(time.Duration(i) * 400 * time.Millisecond), Running: trace.Some(3), Waiting: trace.Some(1),
		})
	}
	res, err := w.Result(nil)
	if err != nil {
		t.Fatal(err)
	}
	s := res.Series[0]
	if s.Unended != 2 {
		t.Errorf("%d without an end", s.Unended)
	}
	for _, x := range s.Windows {
		if x.SystemMean.Present() || x.SystemMax.Present() {
			t.Errorf("in the system %v, at most %v", x.SystemMean, x.SystemMax)
		}
	}
	if e := s.Windows[0].Engine; e == nil || e.RunningMean.Or(0) != 3 || e.RunningMax != trace.Some[int64](3) {
		t.Errorf("the engine: %+v", e)
	}
}
