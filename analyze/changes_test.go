package analyze

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

func overTime(rs []*trace.Request) *ChangeResult {
	w := NewWaits(WaitOptions{OverTime: true})
	for _, r := range rs {
		w.Add(r)
	}
	return w.Result().OverTime
}

// of returns the first change of a kind.
func (r *ChangeResult) of(kind string) *Change {
	for i := range r.Changes {
		if r.Changes[i].Of == kind {
			return &r.Changes[i]
		}
	}
	return nil
}

// load is an engine under a load with a name.
type load struct {
	name   string
	engine sim.Engine
	shape  []sim.Tenant // rate 1: the load's rate multiplies
	rate   float64      // requests a second
}

// loads are steady ones, from idle to full.
func loads() []load {
	const ms = time.Millisecond
	base := sim.Engine{
		Service: "s", Model: "m", Replicas: 1, Routing: sim.RoundRobin,
		Slots: 16, Budget: 2048, Chunked: true, Limit: 8000,
		Base: 12 * ms, PerPrefill: 60 * time.Microsecond, PerDecode: 300 * time.Microsecond, PerResident: 150 * time.Microsecond,
	}
	tenants := []sim.Tenant{
		{Name: "chat", Rate: 0.8, Prompt: sim.Length{Min: 20, Max: 1500, Skew: 2}, Output: sim.Length{Min: 5, Max: 250, Skew: 1}},
		{Name: "batch", Rate: 0.2, Prompt: sim.Length{Min: 500, Max: 3000, Skew: 1}, Output: sim.Length{Min: 40, Max: 200}},
	}
	memory := base
	memory.Slots, memory.Blocks, memory.Limit = 64, 700, 4000
	burst := slices.Clone(tenants)
	for i := range burst {
		burst[i].Burst = 8
	}
	return []load{
		{"light", base, tenants, 1.5},
		{"moderate", base, tenants, 4},
		{"near the slot limit", base, tenants, 6.3},
		{"memory-limited", memory, tenants, 6},
		{"bursty", base, burst, 4},
	}
}

// from returns tenants at a rate from an instant on for so long.
func (l load) from(rate float64, start, length time.Duration) []sim.Tenant {
	out := slices.Clone(l.shape)
	for i := range out {
		out[i].Rate *= rate
		out[i].Start = start
		out[i].Requests = max(1, int(math.Round(out[i].Rate*length.Seconds())))
	}
	return out
}

func (l load) run(t testing.TB, seed uint64, length time.Duration) []*trace.Request {
	e := l.engine
	e.Seed, e.Tenants = seed, l.from(l.rate, 0, length)
	return simulate(t, e)
}

func simulate(t testing.TB, e sim.Engine) []*trace.Request {
	t.Helper()
	r, err := e.Run()
	if err != nil {
		t.Fatal(err)
	}
	return r.Requests
}

// pace is a stretch in which every step takes factor times as long.
type pace struct {
	length time.Duration
	factor float64
}

// paced is a run at changing speed, while requests come as before: in the
// engine's own time they come more quickly where it is slow, and that time is
// stretched.
func (l load) paced(t testing.TB, seed uint64, paces ...pace) []*trace.Request {
	e := l.engine
	e.Seed = seed
	var own time.Duration
	for _, p := range paces {
		d := time.Duration(float64(p.length) / p.factor)
		e.Tenants = append(e.Tenants, l.from(l.rate*p.factor, own, d)...)
		own += d
	}
	warp := func(t *trace.Time) {
		if *t == 0 {
			return
		}
		from, to := sim.Base, sim.Base // in the engine's time, and outside
		for i, p := range paces {
			d := time.Duration(float64(p.length) / p.factor)
			if i == len(paces)-1 || *t <= from.Add(d) {
				*t = to + trace.Time(math.Round(float64(*t-from)*p.factor))
				return
			}
			from, to = from.Add(d), to.Add(p.length)
		}
	}
	rs := simulate(t, e)
	for _, r := range rs {
		for _, i := range []*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
			warp(&i.At)
		}
		for i := range r.Intervals {
			warp(&r.Intervals[i].Start)
			warp(&r.Intervals[i].End)
		}
	}
	return rs
}

// slowed is a run that gets slower at an instant. idle is how long before it
// there was nothing left to do.
func (l load) slowed(t testing.TB, seed uint64, length, at time.Duration, factor float64) (rs []*trace.Request, idle time.Duration) {
	rs = l.paced(t, seed, pace{at, 1}, pace{length - at, factor})
	from := sim.Base.Add(at)
	idle = at
	for _, r := range rs {
		if r.Arrival.At < from {
			idle = max(0, min(idle, from.Sub(r.LastToken.At)))
		}
	}
	return rs, idle
}

// restarted is a run of an engine that drains, stops, and comes back with
// other costs of decode and of prefill.
func (l load) restarted(t testing.TB, seed uint64, half time.Duration, decode, prefill float64) []*trace.Request {
	rs := l.run(t, seed, half)
	var end trace.Time
	for _, r := range rs {
		end = max(end, r.Completed.At)
	}
	times := func(d *time.Duration, by float64) { *d = time.Duration(math.Round(float64(*d) * by)) }
	times(&l.engine.PerPrefill, prefill)
	times(&l.engine.Base, decode)
	times(&l.engine.PerDecode, decode)
	times(&l.engine.PerResident, decode)
	for _, r := range l.run(t, seed+1000, half) {
		rs = append(rs, shifted(r, end.Sub(sim.Base)))
	}
	return rs
}

// ramp is a run whose rate rises in steps from one rate to another.
func (l load) ramp(t testing.TB, seed uint64, length time.Duration, from, to float64) []*trace.Request {
	const steps = 40
	e := l.engine
	e.Seed = seed
	for i := range steps {
		part := length / steps
		tenants := l.from(from+(to-from)*(float64(i)+0.5)/steps, time.Duration(i)*part, part)
		e.Tenants = append(e.Tenants, tenants...)
	}
	return simulate(t, e)
}

// capacity is how many requests a second the engine takes up when it always
// has work.
func (l load) capacity(t testing.TB) float64 {
	rs := l.with(60).run(t, 99, time.Minute)
	var first, last trace.Time
	for i, r := range rs {
		if i == 0 || r.Scheduled.At < first {
			first = r.Scheduled.At
		}
		last = max(last, r.Scheduled.At)
	}
	return float64(len(rs)) / last.Sub(first).Seconds()
}

func (l load) with(rate float64) load { l.rate = rate; return l }

// A request a second comes, and from 40 s on one is taken up every other
// second, after 1.5 s at first: when the last comes at 139 s, 51 of 100 wait.
func TestOverloadByHand(t *testing.T) {
	const s = int64(time.Second)
	var ps []passage
	for i := range int64(140) {
		p := passage{queued: i * s, left: i * s, taken: true}
		if i >= 40 {
			p.left = (41+2*(i-40))*s + s/2
		}
		ps = append(ps, p)
	}
	k, found, ok := overload(ps, 340*s)
	if !found || !ok || k.at != 40*s || k.last != 139*s || k.arrived != 100 || k.taken != 49 {
		t.Fatalf("%+v %v %v", k, found, ok)
	}
	// Gaps are all alike, so that the count of arrivals alone scatters.
	if want := 51 / math.Sqrt(100+0.6*49); math.Abs(k.z-want) > 1e-9 {
		t.Errorf("z %v, want %v", k.z, want)
	}
	if k.offered != 100./99 || k.capacity != 49./99 {
		t.Errorf("offered %v, capacity %v", k.offered, k.capacity)
	}
	if _, found, _ := overload(ps, 2000*s); found {
		t.Error("found in less than a twentieth of the window")
	}
	// Without the last quarter of the arrivals 38 of 75 wait: z = 3.85.
	if k, found, _ := overload(ps[:115], 340*s); found || k.arrived != 75 || k.taken != 37 {
		t.Errorf("%+v %v", k, found)
	}
	// Who gave up neither came to stay nor was taken up.
	gone := slices.Clone(ps)
	for i := 41; i < 60; i++ {
		gone[i].taken = false
	}
	if k, _, _ := overload(gone, 340*s); k.arrived != 81 || k.taken != 30 {
		t.Errorf("%+v", k)
	}
	// The queue empties at the instant at which the last but one comes.
	empty := slices.Clone(ps[:100])
	for i := range empty[:98] {
		empty[i].left = min(empty[i].left, 98*s)
	}
	if k, found, _ := overload(empty, 100*s); found || k.at != 98*s {
		t.Errorf("%+v %v", k, found)
	}
	// Who is taken up at once, as another begins to wait, empties no queue.
	tie := slices.Clone(ps)
	for range 5 {
		tie = append(tie, passage{queued: 100 * s, left: 100 * s, taken: true})
	}
	if k, found, _ := overload(tie, 340*s); !found || k.at != 40*s || k.arrived != 105 || k.taken != 54 {
		t.Errorf("%+v %v", k, found)
	}
	if _, _, ok := overload(ps[:minPassages-1], s); ok {
		t.Error("tested with too few requests")
	}
}

// steadily draws decodes whose steps take 10 ms at level 1, one every half
// second; levels begin at the given seconds.
func steadily(n int, levels map[int]float64) []timedDecode {
	rnd := rand.New(rand.NewPCG(1, 2))
	var ds []timedDecode
	for i := range n {
		at := int64(i) * int64(time.Second) / 2
		steps := 50 + rnd.IntN(400)
		to := float64(at)
		level := func(t float64) float64 {
			l, since := 1.0, -1
			for from, x := range levels {
				if t >= float64(from)*1e9 && from > since {
					l, since = x, from
				}
			}
			return l
		}
		for range steps {
			to += 10e6 * level(to) * (1 + 0.02*rnd.NormFloat64())
		}
		ds = append(ds, timedDecode{decode{steps: float64(steps), running: 1, ns: to - float64(at)}, at, int64(to)})
	}
	return ds
}

func TestSpeedsByHand(t *testing.T) {
	for _, c := range []struct {
		name   string
		n      int
		levels map[int]float64
		want   []float64 // seconds
		ratios []float64
	}{
		{"steady", 400, nil, nil, nil},
		{"a fifth slower at 100 s", 400, map[int]float64{100: 1.2}, []float64{100}, []float64{1.2}},
		{"a twentieth faster at 60 s", 400, map[int]float64{60: 0.95}, []float64{60}, []float64{0.95}},
		{"slower, and slower still", 600, map[int]float64{100: 1.2, 200: 1.5}, []float64{100, 200}, []float64{1.2, 1.25}},
		{"slower, and back", 600, map[int]float64{100: 1.2, 200: 1}, []float64{100, 200}, []float64{1.2, 1 / 1.2}},
		{"a little slower for a while", 800, map[int]float64{120: 1.06, 170: 1}, []float64{120, 170}, []float64{1.06, 1 / 1.06}},
		{"too little to tell", 400, map[int]float64{100: 1.02}, nil, nil},
		{"few, yet enough", 96, map[int]float64{24: 1.5}, []float64{24}, []float64{1.5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			levels, p, reason := speeds(steadily(c.n, c.levels))
			if reason != "" || !p.Present() || len(levels) != len(c.want)+1 {
				t.Fatalf("%d levels, p %v, reason %q", len(levels), p, reason)
			}
			for i, want := range c.want {
				l := levels[i+1]
				if off := float64(l.change.at)/1e9 - want; math.Abs(off) > 0.7 || l.change.edge || l.change.from > l.change.at || l.change.to < l.change.at {
					t.Errorf("change %d is off by %v s: %+v", i, off, l.change)
				}
				if r := ratio(levels[i].decodes, l.decodes).Or(0); math.Abs(r/c.ratios[i]-1) > 0.01 {
					t.Errorf("change %d: ratio %v, want %v", i, r, c.ratios[i])
				}
			}
		})
	}
	if _, p, reason := speeds(steadily(95, nil)); p.Present() || reason != "95 decodes of at least 8 output tokens, 96 are needed" {
		t.Errorf("reason %q", reason)
	}
}

// A history shorter than the reach within which a change's instant is looked
// for, with outliers: the instant may come to lie beyond all decodes. Each cut
// has decodes on both sides, so that cutting ends.
func TestSpeedsOfShortHistory(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		var ds []timedDecode
		for i := range 240 {
			running := float64(1 + rnd.IntN(8))
			step := 1e7 + 1e6*running
			if i > 120 {
				step *= 1.5
			}
			if rnd.IntN(3) == 0 {
				step *= 1 + 3*rnd.Float64()
			}
			steps := float64(10 + rnd.IntN(100))
			d := decode{steps: steps, running: running, resident: 300 * running, prompts: float64(rnd.IntN(2000)), ns: steps * step}
			from := int64(i) * int64(20*time.Second) / 240
			ds = append(ds, timedDecode{d, from, from + int64(d.ns)})
		}
		levels, _, _ := speeds(ds)
		for i, l := range levels {
			if len(l.decodes) == 0 {
				t.Errorf("seed %d: level %d of %d has no decodes", seed, i, len(levels))
			}
		}
	}
}

func changeJSON(t *testing.T, r *ChangeResult) string {
	t.Helper()
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestChangedPhase(t *testing.T) {
	for _, c := range []struct {
		decoding, prefill float64 // 0: not known
		want              trace.Phase
	}{
		{1.1, 1, trace.Decode}, {1.1, 1.05, trace.Decode}, {1.1, 0, trace.Decode}, {0.9, 1, trace.Decode},
		{1, 1.3, trace.Prefill}, {1.01, 0.8, trace.Prefill}, {1.05, 2, trace.Prefill},
		{1.3, 1.3, trace.Prefill | trace.Decode}, {0.9, 1.2, trace.Prefill | trace.Decode},
	} {
		opt := func(v float64) (o trace.Opt[float64]) {
			if v > 0 {
				o = trace.Some(v)
			}
			return o
		}
		if got := changedPhase(opt(c.decoding), opt(c.prefill)); got != c.want {
			t.Errorf("decode %v, prefill %v: %v, want %v", c.decoding, c.prefill, got, c.want)
		}
	}
}

// TestChanges plants one change each and wants it alone, in any order of the
// requests and wherever they lie on the axis of time.
func TestChanges(t *testing.T) {
	const length, at = 5 * time.Minute, 155 * time.Second
	l := loads()[1]
	slow, _ := l.slowed(t, 1, length, at, 1.1)
	frozen := l
	frozen.engine.Freezes = []sim.Freeze{{Replica: 0, From: 100 * time.Second, For: 5 * time.Second}}
	full := l.capacity(t)
	for _, c := range []struct {
		name  string
		rs    []*trace.Request
		want  string
		phase string
		at    time.Duration
		off   time.Duration
	}{
		{"steady", l.run(t, 1, length), "", "", 0, 0},
		{"slower", slow, OfSpeed, "prefill|decode", at, 2 * time.Second},
		{"slower prefill", l.restarted(t, 1, length/2, 1, 1.3), OfSpeed, "prefill", length / 2, 15 * time.Second},
		{"a stall", frozen.run(t, 1, length), OfStall, "", 100 * time.Second, time.Second},
		{"a rising rate", l.ramp(t, 1, length, 0.6*full, 1.4*full), OfOverload, "queueing", length / 2, length / 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			all := overTime(c.rs)
			// These loads' tenants end one by one: that their rates change at
			// the end is right, and no matter here.
			r := &ChangeResult{
				Changes: slices.DeleteFunc(slices.Clone(all.Changes), func(c Change) bool { return c.Of == OfArrivals }),
				Tests:   slices.DeleteFunc(slices.Clone(all.Tests), func(t ChangeTest) bool { return t.Of == OfArrivals }),
			}
			for _, x := range r.Tests {
				if want := map[bool]string{true: Changed, false: Steady}[x.Of == c.want]; x.Outcome != want {
					t.Errorf("%s: %s %s, want %s", x.Of, x.Outcome, x.Reason, want)
				}
			}
			if len(r.Tests) != 3 {
				t.Errorf("%d tests", len(r.Tests))
			}
			if c.want == "" {
				if len(r.Changes) != 0 {
					t.Errorf("changes %+v", r.Changes)
				}
			} else if len(r.Changes) != 1 || r.Changes[0].Of != c.want || r.Changes[0].Phase != c.phase {
				t.Fatalf("changes %+v", r.Changes)
			} else if off := trace.Time(r.Changes[0].AtNS.Or(0)).Sub(sim.Base.Add(c.at)); off.Abs() > c.off {
				t.Errorf("off by %v", off)
			}
			for _, x := range r.Changes {
				decoding, prefill := 1.0, 1.0
				switch x.Phase {
				case "prefill|decode":
					decoding, prefill = 1.1, 1.1
				case "prefill":
					prefill = 1.3
				default:
					continue
				}
				if d, p := x.DecodeRatio.Or(0), x.PrefillRatio.Or(0); math.Abs(d/decoding-1) > 0.01 || math.Abs(p/prefill-1) > 0.03 {
					t.Errorf("ratios %v and %v, want %v and %v", d, p, decoding, prefill)
				}
			}
			r = all
			was := changeJSON(t, r)
			rs := slices.Clone(c.rs)
			rnd := rand.New(rand.NewPCG(9, 9))
			rnd.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
			if is := changeJSON(t, overTime(rs)); is != was {
				t.Errorf("another order gives another result:\n%s\n%s", was, is)
			}
			const shift = 123_456_789_012
			for i := range r.Changes {
				x := &r.Changes[i]
				if t, ok := x.AtNS.Get(); ok {
					x.AtNS = trace.Some(t + shift)
				}
				x.FromNS += shift
				x.ToNS += shift
			}
			for i := range rs {
				rs[i] = shifted(rs[i], shift)
			}
			if is, want := changeJSON(t, overTime(rs)), changeJSON(t, r); is != want {
				t.Errorf("another time gives another result:\n%s\n%s", want, is)
			}
		})
	}
}

// stepped is a run of so long, cut at its end as a measurement is, in which
// factor times as many requests come from the middle on.
func (l load) stepped(t testing.TB, seed uint64, length time.Duration, factor float64) (rs []*trace.Request) {
	e := l.engine
	e.Seed = seed
	// Some come behind the end, so that no tenant ends before it.
	e.Tenants = l.from(l.rate, 0, length*14/10)
	if factor > 1 {
		e.Tenants = append(e.Tenants, l.from(l.rate*(factor-1), length/2, length)...)
	}
	for _, r := range simulate(t, e) {
		if r.Arrival.At <= sim.Base.Add(length) {
			rs = append(rs, r)
		}
	}
	return rs
}

// A rate that doubles is found, with the queue that it brings; a steady one is
// not, be it near the limit.
func TestArrivals(t *testing.T) {
	const length = 5 * time.Minute
	for _, l := range loads() {
		if c := overTime(l.stepped(t, 3, length, 1)).of(OfArrivals); c != nil {
			t.Errorf("%s: %+v", l.name, c)
		}
	}
	c := overTime(loads()[1].stepped(t, 3, length, 2)).of(OfArrivals)
	if c == nil {
		t.Fatal("not found")
	}
	if off := trace.Time(c.AtNS.Or(0)).Sub(sim.Base.Add(length / 2)); off.Abs() > 5*time.Second {
		t.Errorf("off by %v", off)
	}
	if mid := int64(sim.Base.Add(length / 2)); mid < c.FromNS || mid > c.ToNS {
		t.Errorf("not between %d and %d", c.FromNS, c.ToNS)
	}
	if b, a := c.ArrivalsBefore.Or(0), c.ArrivalsAfter.Or(0); math.Abs(b-4) > 0.5 || math.Abs(a-8) > 0.8 {
		t.Errorf("from %v to %v a second", b, a)
	}
	if b, a := c.WaitingBefore.Or(-1), c.WaitingAfter.Or(-1); b < 0 || b > 1 || a < 10 {
		t.Errorf("waiting from %v to %v", b, a)
	}
	if b, a := c.RunningBefore.Or(-1), c.RunningAfter.Or(-1); b < 4 || b > 12 || a < 14 || a > 16 {
		t.Errorf("running from %v to %v", b, a)
	}
}

// With one model over both sides these were off by half a minute and more.
func TestChangeIsPlaced(t *testing.T) {
	const at = 155 * time.Second
	for _, seed := range []uint64{71, 79, 188} {
		rs, _ := loads()[1].slowed(t, seed, 5*time.Minute, at, 1.3)
		c := overTime(rs).of(OfSpeed)
		if c == nil {
			t.Errorf("seed %d: not found", seed)
		} else if off := trace.Time(c.AtNS.Or(0)).Sub(sim.Base.Add(at)); off.Abs() > 2*time.Second {
			t.Errorf("seed %d: off by %v", seed, off)
		}
	}
}

// shifted is r shifted in time.
func shifted(r *trace.Request, d time.Duration) *trace.Request {
	s := *r
	for _, i := range []*trace.Instant{&s.Arrival, &s.Queued, &s.Scheduled, &s.FirstToken, &s.LastToken, &s.Completed} {
		if i.Present() {
			i.At = i.At.Add(d)
		}
	}
	s.Intervals = slices.Clone(s.Intervals)
	for i := range s.Intervals {
		s.Intervals[i].Start = s.Intervals[i].Start.Add(d)
		s.Intervals[i].End = s.Intervals[i].End.Add(d)
	}
	return &s
}

// BenchmarkChanges measures both errors of the rules over many seeds: what
// they raise on steady runs, and what they find of planted changes. Its
// numbers are counts and sizes, not times. It is run once:
//
//	go test ./analyze -run NONE -bench Changes -benchtime 1x
func BenchmarkChanges(b *testing.B) {
	const length = 5 * time.Minute
	kinds := []struct{ of, unit string }{{OfSpeed, "speed"}, {OfOverload, "overload"}, {OfStall, "stall"}}
	count := func(b *testing.B, seeds uint64, f func(seed uint64) *ChangeResult, look func(*ChangeResult)) {
		for b.Loop() {
			found := make([]int, len(kinds))
			low := 0
			for seed := range seeds {
				r := f(seed)
				for i, k := range kinds {
					if r.of(k.of) != nil {
						found[i]++
					}
				}
				for _, t := range r.Tests {
					if p, ok := t.P.Get(); ok && p <= speedP {
						low++
					}
				}
				if look != nil {
					look(r)
				}
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(seeds), "runs")
			b.ReportMetric(float64(low), "small-p")
			for i, k := range kinds {
				b.ReportMetric(float64(found[i]), k.unit)
			}
		}
	}
	for _, l := range loads() {
		b.Run("steady/"+l.name, func(b *testing.B) {
			count(b, 200, func(seed uint64) *ChangeResult { return overTime(l.run(b, seed, length)) }, nil)
		})
	}
	for _, l := range loads() {
		for _, factor := range []float64{1.05, 1.1, 1.3} {
			b.Run(fmt.Sprintf("slower/%s/%v", l.name, factor), func(b *testing.B) {
				const at = 155 * time.Second
				var off, sizes []float64
				far, stretches, extra := 0, 0, 0
				var idle time.Duration
				count(b, 200, func(seed uint64) *ChangeResult {
					var rs []*trace.Request
					rs, idle = l.slowed(b, seed, length, at, factor)
					return overTime(rs)
				}, func(r *ChangeResult) {
					n := 0
					for i := range r.Changes {
						c := &r.Changes[i]
						if c.Of != OfSpeed {
							continue
						}
						if n++; n > 1 {
							extra++
							continue
						}
						sizes = append(sizes, c.Ratio.Or(math.NaN()))
						if t, ok := c.AtNS.Get(); ok {
							// While idle, any instant is as good.
							d := trace.Time(t).Sub(sim.Base.Add(at))
							off = append(off, max(d, -idle-d, 0).Seconds())
						} else if stretches++; trace.Time(c.FromNS) > sim.Base.Add(at) || trace.Time(c.ToNS) < sim.Base.Add(at) {
							far++
						}
					}
				})
				slices.Sort(off)
				slices.Sort(sizes)
				b.ReportMetric(float64(extra), "extra")
				b.ReportMetric(float64(stretches), "stretches")
				b.ReportMetric(float64(far), "stretches-beside")
				if n := len(off); n > 0 {
					b.ReportMetric(off[n/2], "s-off-median")
					b.ReportMetric(off[n-1], "s-off-most")
				}
				if n := len(sizes); n > 0 {
					b.ReportMetric(sizes[0], "ratio-least")
					b.ReportMetric(sizes[n/2], "ratio-median")
					b.ReportMetric(sizes[n-1], "ratio-most")
				}
			})
		}
	}
	for _, l := range loads() {
		for _, c := range []struct{ decode, prefill float64 }{{1, 1}, {1, 1.3}, {1, 2}, {1.1, 1}, {1.3, 1}, {1.1, 1.1}, {1.3, 1.3}} {
			b.Run(fmt.Sprintf("restart/%s/decode_%v_prefill_%v", l.name, c.decode, c.prefill), func(b *testing.B) {
				phases := map[string]int{}
				var most [2]float64 // how far the ratios are off, as logs
				count(b, 25, func(seed uint64) *ChangeResult { return overTime(l.restarted(b, seed, length/2, c.decode, c.prefill)) }, func(r *ChangeResult) {
					if x := r.of(OfSpeed); x != nil {
						phases[x.Phase]++
						most[0] = max(most[0], math.Abs(math.Log(x.DecodeRatio.Or(0)/c.decode)))
						if v, ok := x.PrefillRatio.Get(); ok {
							most[1] = max(most[1], math.Abs(math.Log(v/c.prefill)))
						}
					}
				})
				b.ReportMetric(float64(phases["decode"]), "decode")
				b.ReportMetric(float64(phases["prefill"]), "prefill")
				b.ReportMetric(float64(phases["prefill|decode"]), "both")
				b.ReportMetric(most[0], "decode-off-most")
				b.ReportMetric(most[1], "prefill-off-most")
			})
		}
	}
	b.Run("slower_and_back", func(b *testing.B) {
		l := loads()[1]
		count(b, 200, func(seed uint64) *ChangeResult {
			return overTime(l.paced(b, seed, pace{100 * time.Second, 1}, pace{100 * time.Second, 1.1}, pace{100 * time.Second, 1}))
		}, nil)
	})
	l := loads()[1]
	full := l.capacity(b)
	for _, c := range []struct {
		name     string
		burst    int
		from, to float64 // shares of capacity
	}{
		{"0.7", 0, 0.7, 0.7}, {"0.85", 0, 0.85, 0.85}, {"0.95", 0, 0.95, 0.95}, {"0.99", 0, 0.99, 0.99}, {"1.1", 0, 1.1, 1.1},
		{"bursty_0.85", 8, 0.85, 0.85}, {"bursty_0.95", 8, 0.95, 0.95},
		{"rising_0.6_to_1.4", 0, 0.6, 1.4},
	} {
		b.Run("overload/"+c.name, func(b *testing.B) {
			l := l
			l.shape = slices.Clone(l.shape)
			for i := range l.shape {
				l.shape[i].Burst = c.burst
			}
			var early, capacity []float64
			outside := 0
			count(b, 200, func(seed uint64) *ChangeResult {
				if c.from == c.to {
					return overTime(l.with(c.from*full).run(b, seed, length))
				}
				return overTime(l.ramp(b, seed, length, c.from*full, c.to*full))
			}, func(r *ChangeResult) {
				if k := r.of(OfOverload); k != nil {
					if mid := int64(sim.Base.Add(length / 2)); mid < k.FromNS || mid > k.ToNS {
						outside++
					}
					early = append(early, trace.Time(k.AtNS.Or(0)).Sub(sim.Base.Add(length/2)).Seconds())
					capacity = append(capacity, k.CapacityPerS.Or(0)/full)
				}
			})
			if n := len(early); n > 0 && c.from != c.to {
				slices.Sort(early)
				slices.Sort(capacity)
				b.ReportMetric(early[0], "s-off-least")
				b.ReportMetric(early[n/2], "s-off-median")
				b.ReportMetric(early[n-1], "s-off-most")
				b.ReportMetric(capacity[n/2], "of-capacity")
				b.ReportMetric(float64(outside), "outside")
			}
		})
	}
}
