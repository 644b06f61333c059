package analyze

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// draw draws requests with instants on a grid of milliseconds, so that ties
// abound, in any order of admission.
func draw(rnd *rand.Rand, n int) []*trace.Request {
	var rs []*trace.Request
	for i := range n {
		queued := rnd.IntN(30)
		scheduled := queued + max(0, rnd.IntN(15)-4)
		first := scheduled + rnd.IntN(6)
		last := first + rnd.IntN(12)
		at := func(ms int) trace.Time { return reqtext.Base.Add(time.Duration(ms) * time.Millisecond) }
		r := &trace.Request{
			ID: strconv.Itoa(i), Clock: trace.ClockUnix, Resolution: 1, Outcome: trace.OK,
			Arrival: trace.At(at(queued), trace.Measured), Queued: trace.At(at(queued), trace.Measured),
			Input: trace.Some(1 + rnd.IntN(400)), Output: trace.Some(1 + rnd.IntN(40)),
		}
		r.SetAttr("tenant", trace.StringValue(string(rune('a'+rnd.IntN(3)))))
		claim := func(p trace.Phase, from, to int) {
			if to > from {
				r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: trace.Measured, Start: at(from), End: at(to)})
			}
		}
		end := last
		claim(trace.Queueing, queued, scheduled)
		if rnd.IntN(8) == 0 { // left while waiting
			r.Outcome, end = trace.Aborted, scheduled
		} else {
			r.Scheduled, r.FirstToken = trace.At(at(scheduled), trace.Measured), trace.At(at(first), trace.Measured)
			r.LastToken = trace.At(at(last), trace.Measured)
			claim(trace.Prefill, scheduled, first)
			claim(trace.Decode, first, last)
		}
		r.Completed = trace.At(at(end), trace.Measured)
		rs = append(rs, r)
	}
	return rs
}

// moment is what the definitions say of one instant, found by looking at
// every request.
type moment struct {
	running, waiting []*trace.Request
	cause            Cause
	weights          map[*trace.Request]float64 // of those who are charged
}

func queueing(r *trace.Request, t trace.Time) bool {
	return len(r.Intervals) > 0 && r.Intervals[0].Phase == trace.Queueing && r.Intervals[0].Start <= t && t < r.Intervals[0].End
}

// lookAt finds the moment in the middle of from and to, between which nothing
// happens.
func lookAt(rs []*trace.Request, from, to trace.Time, o WaitOptions) moment {
	var m moment
	ran := func(r *trace.Request) bool { return r.Scheduled.Present() && r.LastToken.At > r.Scheduled.At }
	var edges []trace.Time
	for _, r := range rs {
		if ran(r) {
			edges = append(edges, r.Scheduled.At, r.LastToken.At)
			if r.FirstToken.At > r.Scheduled.At {
				edges = append(edges, r.FirstToken.At)
			}
			if r.Scheduled.At <= from && from < r.LastToken.At {
				m.running = append(m.running, r)
			}
		}
		if queueing(r, from) {
			m.waiting = append(m.waiting, r)
		}
	}
	if len(m.waiting) == 0 {
		return m
	}
	// Who is next: the first to be admitted; who never is comes last.
	head := slices.MinFunc(m.waiting, func(a, b *trace.Request) int {
		admitted := func(r *trace.Request) int {
			if ran(r) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(admitted(a), admitted(b)), cmp.Compare(a.Intervals[0].End, b.Intervals[0].End), rowOrder(a, b))
	})
	headEnd := head.Intervals[0].End
	refused := false
	for _, e := range edges {
		if e <= from && head.Queued.At < e && (headEnd > e || !ran(head)) {
			refused = true
		}
	}
	var n, resident, prefilled float64
	prefilling, chunked, full := false, false, false
	m.weights = map[*trace.Request]float64{}
	tokens := map[*trace.Request]float64{}
	rates := map[*trace.Request]float64{}
	for _, r := range m.running {
		n++
		in, out := float64(r.Input.Or(0)), float64(r.Output.Or(0))
		tokens[r] = in
		if from >= r.FirstToken.At {
			mid := float64(from.Sub(r.FirstToken.At)) + float64(to.Sub(from))/2
			tokens[r] += out * mid / float64(r.LastToken.At.Sub(r.FirstToken.At))
		} else {
			prefilling = true
			prefilled += in
			rates[r] = in / float64(r.FirstToken.At.Sub(r.Scheduled.At))
			for _, e := range edges {
				if r.Scheduled.At < e && e < r.FirstToken.At {
					chunked = true
					full = full || ran(head) && r.FirstToken.At > headEnd
				}
			}
		}
		resident += tokens[r]
	}
	u := resident + 8*n + float64(head.Input.Or(0))
	group := prefilled + n - float64(len(rates)) + float64(head.Input.Or(0))
	c, k, b := orInf(o.Slots), orInf(o.KVTokens), orInf(o.Budget)
	equal := map[*trace.Request]float64{}
	for _, r := range m.running {
		equal[r] = 1
	}
	m.cause, m.weights = CauseStep, equal
	if prefilling {
		m.weights = rates
	}
	switch {
	case n == 0:
		m.cause, m.weights = CauseHold, nil
	case n >= c:
		m.cause, m.weights = CauseSlots, equal
	case refused && u > 0.98*k && (!chunked || u >= k), refused && !(chunked || prefilling && group > b) && !(n >= 0.75*c || n >= c-1) && u > 0.85*k:
		m.cause, m.weights = CauseKVCache, tokens
	case refused && (chunked || prefilling && group > b):
		m.cause, m.weights = CausePrefill, rates
	case refused && (n >= 0.75*c || n >= c-1):
		m.cause, m.weights = CauseSlots, equal
	case refused:
		m.cause, m.weights = CauseUnknown, equal
	case full:
		m.cause, m.weights = CausePrefill, rates
	case prefilling:
		m.cause, m.weights = CauseUnknown, equal
	}
	if o.Equal && m.weights != nil {
		m.weights = equal
	}
	return m
}

// rowOrder breaks ties as nothing that the answer depends on: the test draws
// no two requests that differ in what the cause asks of them and tie here.
func rowOrder(a, b *trace.Request) int {
	return cmp.Or(cmp.Compare(a.Queued.At, b.Queued.At), cmp.Compare(a.Scheduled.At, b.Scheduled.At),
		cmp.Compare(a.LastToken.At, b.LastToken.At), cmp.Compare(a.FirstToken.At, b.FirstToken.At), cmp.Compare(a.Input.Or(0), b.Input.Or(0)))
}

// TestWaitsBruteForce compares the sweep with a look at every instant.
func TestWaitsBruteForce(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	seen := map[Cause]int{}
	for n := range 400 {
		rs := draw(rnd, 2+rnd.IntN(14))
		o := WaitOptions{
			Slots: trace.Some(int64(2 + rnd.IntN(6))), KVTokens: trace.Some(int64(300 + rnd.IntN(2000))),
			Budget: trace.Some(int64(200 + rnd.IntN(600))), Equal: n%5 == 0,
		}
		ws := NewWaits(o)
		for _, r := range rs {
			ws.Add(r)
		}
		res := ws.Result()
		if err := checkBooks(res, rs); err != nil {
			t.Fatal(err)
		}
		var at []trace.Time // between these nothing changes
		for _, r := range rs {
			if len(r.Intervals) == 0 {
				continue
			}
			for _, i := range []trace.Instant{r.Queued, r.Scheduled, r.FirstToken, r.LastToken, r.Completed} {
				if i.Present() {
					at = append(at, i.At)
				}
			}
		}
		slices.Sort(at)
		at = slices.Compact(at)
		charged := map[*trace.Request]float64{}
		cells := map[BlameCell]float64{}
		tenant := func(r *trace.Request) string {
			v, _ := r.Attr("tenant")
			return v.String()
		}
		for i := 1; i < len(at); i++ {
			m := lookAt(rs, at[i-1], at[i], o)
			sum := 0.0
			for _, w := range m.weights {
				sum += w
			}
			for _, w := range m.waiting {
				seen[m.cause]++
				var got Cause
				for _, p := range res.Parts(slices.Index(rs, w)) {
					if p.Start <= at[i-1] && at[i] <= p.End {
						got = p.Cause
					}
				}
				if got != m.cause {
					t.Fatalf("%s at %v: %v, want %v\n%s", w.ID, at[i-1].Sub(reqtext.Base), got, m.cause, reqtext.FormatAll(rs))
				}
				d := float64(at[i].Sub(at[i-1]))
				if m.weights == nil {
					cells[BlameCell{Waiter: tenant(w), Cause: m.cause.String()}] += d
				}
				for r, weight := range m.weights {
					charged[r] += d * weight / sum
					cells[BlameCell{tenant(w), tenant(r), m.cause.String(), 0}] += d * weight / sum
				}
			}
		}
		for i, r := range rs {
			if diff := float64(res.Charged(i)) - charged[r]; math.Abs(diff) > 30 {
				t.Fatalf("%s is charged %d, want %.1f\n%s", r.ID, res.Charged(i), charged[r], reqtext.FormatAll(rs))
			}
		}
		for _, c := range res.Matrix {
			k := c
			k.NS = 0
			if diff := float64(c.NS) - cells[k]; math.Abs(diff) > 2 {
				t.Fatalf("cell %+v, want %.1f", c, cells[k])
			}
			delete(cells, k)
		}
		for k, v := range cells {
			if v > 2 {
				t.Fatalf("no cell %+v of %.1f", k, v)
			}
		}
	}
	for _, c := range Causes() {
		if seen[c] < 50 && c != CauseStall {
			t.Errorf("%v was seen %d times: not tested", c, seen[c])
		}
	}
}

// TestWaitsTruth runs engines of which the cause of every wait is known.
func TestWaitsTruth(t *testing.T) {
	for _, sc := range sim.Scenarios(1) {
		var least float64
		switch sc.Name {
		case "slots, near", "few slots, bursty", "priorities", "one of four frozen", "short stalls", "four sticky, one hot":
			least = 0.99
		case "memory, near", "long prompts", "long prompts, 30,000 tokens":
			least = 0.98
		default:
			continue
		}
		t.Run(sc.Name, func(t *testing.T) {
			run, err := sc.Engine.Run()
			if err != nil {
				t.Fatal(err)
			}
			res := explain(t, WaitOptions{}, run.Requests)
			var right, all, avoidable, truly int64
			for i := range run.Requests {
				for _, w := range run.Waits(i) {
					for _, p := range res.Parts(i) {
						d := int64(max(0, min(w.End, p.End)-max(w.Start, p.Start)))
						all += d
						if w.Cause == p.Cause.String() {
							right += d
						}
						if p.Avoidable {
							avoidable += d
						}
						if w.Avoidable {
							truly += d
						}
					}
				}
			}
			accuracy := float64(right) / float64(all)
			if accuracy < least {
				t.Errorf("%.3f of waiting has the right cause, want %.2f", accuracy, least)
			}
			if c := res.Confidence.Or(1); c > accuracy+0.05 {
				t.Errorf("confidence %.3f, but %.3f is right", c, accuracy)
			}
			if d := float64(avoidable-truly) / float64(all); math.Abs(d) > 0.05 {
				t.Errorf("avoidable: %.3f too much", d)
			}
			l := res.Replicas[0].Limits
			if c, ok := l.Slots.Value.Get(); sc.Main == "slots" && c != int64(sc.Slots) || ok && c != int64(sc.Slots) {
				t.Errorf("slots %+v, truly %d", l.Slots, sc.Slots)
			}
			if k, ok := l.KV.Value.Get(); ok != (sc.Main == "kv_cache") || ok && math.Abs(float64(k)/float64(sc.Blocks*sim.BlockTokens)-1) > 0.05 {
				t.Errorf("memory %+v, truly %d", l.KV, sc.Blocks*sim.BlockTokens)
			}
			if sc.Name == "long prompts, 30,000 tokens" {
				charged, waited := 0.0, 0.0
				for _, c := range res.Matrix {
					if c.Waiter == "chat" {
						waited += float64(c.NS)
						if c.Holder == "big" {
							charged += float64(c.NS)
						}
					}
				}
				if charged < 0.9*waited || waited == 0 {
					t.Errorf("the long prompts hold %.3f of what chat waits for", charged/waited)
				}
			}
			checkStalls(t, run, res)
		})
	}
}

// checkStalls compares the confirmed stalls with the freezes that were
// planted.
func checkStalls(t *testing.T, run *sim.Run, res *WaitResult) {
	planted, found := 0, 0
	for i, rw := range res.Replicas {
		for _, s := range rw.Stalls {
			if !s.Confirmed {
				continue
			}
			found++
			ok := slices.ContainsFunc(run.Engine.Freezes, func(f sim.Freeze) bool {
				from := int64(sim.Base.Add(f.From))
				return f.Replica == i && math.Abs(float64(s.StartNS-from)) < 1e9 && math.Abs(float64(s.EndNS-from-int64(f.For))) < 1e9
			})
			if !ok {
				t.Errorf("a stall that was not planted: %+v", s)
			}
		}
	}
	for _, f := range run.Engine.Freezes {
		if f.For >= 3*time.Second {
			planted++
		}
	}
	if found < planted {
		t.Errorf("%d stalls found, %d planted", found, planted)
	}
}

// TestWaitsWhatIsKnown tells what may not be concluded.
func TestWaitsWhatIsKnown(t *testing.T) {
	const two = `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms @max_num_seqs=1
b queued=0 scheduled=15ms last=20ms end=20ms queueing=0..15ms decode=15ms..20ms
`
	for _, c := range []struct {
		name     string
		text     string
		opts     WaitOptions
		want     map[Cause]int64 // in ms
		unplaced int64
		how      string // of the slots
	}{
		{"limit from an attribute", two, WaitOptions{}, map[Cause]int64{CauseSlots: 10, CauseHold: 5}, 0, LimitData},
		{"a stated limit goes first", two, WaitOptions{Slots: trace.Some[int64](1)}, map[Cause]int64{CauseSlots: 10, CauseHold: 5}, 0, LimitStated},
		{"stated as a sample", two, WaitOptions{Sampled: true}, map[Cause]int64{CauseSlots: 10, CauseUnknown: 5}, 0, LimitData},
		{"prefill and decode on two engines", `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b queued=0 scheduled=15ms last=20ms end=20ms queueing=0..15ms decode=15ms..20ms @disaggregated=true
`, WaitOptions{Slots: trace.Some[int64](1)}, map[Cause]int64{CauseUnknown: 15}, 0, LimitStated},
		{"sampled by an attribute", `
a queued=0 scheduled=5ms last=10ms end=10ms queueing=0..5ms decode=5ms..10ms @sampling.probability=0.1
`, WaitOptions{}, map[Cause]int64{CauseUnknown: 5}, 0, ""},
		{"all were kept", `
a queued=0 scheduled=5ms last=10ms end=10ms queueing=0..5ms decode=5ms..10ms @sampling.probability=1.0
`, WaitOptions{}, map[Cause]int64{CauseHold: 5}, 0, ""},
		{"a clock of its own", `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b queued=0 scheduled=5ms last=10ms end=10ms queueing=0..5ms decode=5ms..10ms
c clock=monotonic queued=0 scheduled=7ms last=10ms end=10ms queueing=0..7ms decode=7ms..10ms
`, WaitOptions{Slots: trace.Some[int64](1)}, map[Cause]int64{CauseSlots: 5, CauseUnknown: 7}, 7, LimitStated},
		{"a clock of no known origin", `
a clock=unknown queued=0 scheduled=5ms last=10ms end=10ms queueing=0..5ms decode=5ms..10ms
`, WaitOptions{}, map[Cause]int64{CauseUnknown: 5}, 5, ""},
		{"a log tells nothing", `
a arrival=0 end=10ms resolution=1s
`, WaitOptions{}, nil, 0, ""},
		{"the step under way", `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b queued=4ms scheduled=10ms last=20ms end=20ms queueing=4ms..10ms decode=10ms..20ms
`, WaitOptions{}, map[Cause]int64{CauseStep: 6}, 0, ""},
		{"an abort is no end of a step", `
a queued=0 scheduled=0 last=20ms end=20ms decode=0..20ms
b queued=2ms scheduled=20ms last=30ms end=30ms queueing=2ms..20ms decode=20ms..30ms
c queued=0 scheduled=0 first=1ms end=5ms prefill=0..1ms decode=1ms..5ms outcome=aborted
`, WaitOptions{}, map[Cause]int64{CauseStep: 18}, 0, ""},
		{"left without being served", `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b queued=4ms end=7ms queueing=4ms..7ms outcome=aborted
`, WaitOptions{Slots: trace.Some[int64](1)}, map[Cause]int64{CauseSlots: 3}, 0, LimitStated},
		{"pushed back", `
a queued=0 scheduled=0 first=1ms last=20ms end=20ms prefill=0..1ms decode=1ms..20ms in=10 out=5
b queued=0 scheduled=0 first=1ms last=30ms end=30ms prefill=0..1ms decode=1ms..5ms preempted=5ms..20ms decode=20ms..30ms in=10 out=5
`, WaitOptions{}, map[Cause]int64{CauseKVCache: 15}, 0, ""},
		{"another service", `
a service=x queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b service=y queued=0 scheduled=10ms last=20ms end=20ms queueing=0..10ms decode=10ms..20ms
`, WaitOptions{Slots: trace.Some[int64](1)}, map[Cause]int64{CauseHold: 10}, 0, LimitStated},
	} {
		res := explain(t, c.opts, reqtext.MustParse(t, c.text))
		for _, row := range res.Causes {
			want := int64(0)
			for k, ms := range c.want {
				if k.String() == row.Cause {
					want = ms * msNS
				}
			}
			if row.NS != want {
				t.Errorf("%s: %s has %d ns, want %d", c.name, row.Cause, row.NS, want)
			}
		}
		if res.UnplacedNS != c.unplaced*msNS {
			t.Errorf("%s: %d ns have no place", c.name, res.UnplacedNS)
		}
		if len(res.Replicas) > 0 && res.Replicas[0].Limits.Slots.How != c.how {
			t.Errorf("%s: slots are known by %q", c.name, res.Replicas[0].Limits.Slots.How)
		}
	}
}

// Another replica of the model is free from 10 ms on: what b still waits at the
// first could have been avoided.
func TestWaitsAvoidable(t *testing.T) {
	res := explain(t, WaitOptions{Slots: trace.Some[int64](1)}, reqtext.MustParse(t, `
a replica=1 model=m queued=0 scheduled=0 last=30ms end=30ms decode=0..30ms
b replica=1 model=m queued=5ms scheduled=30ms last=40ms end=40ms queueing=5ms..30ms decode=30ms..40ms
c replica=2 model=m queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
d replica=3 model=other queued=0 scheduled=0 last=1ms end=1ms decode=0..1ms
`))
	if res.AvoidableNS != 20*msNS {
		t.Errorf("avoidable %d", res.AvoidableNS)
	}
	want := []WaitPart{
		{reqtext.Base.Add(5e6), reqtext.Base.Add(10e6), CauseSlots, false, false},
		{reqtext.Base.Add(10e6), reqtext.Base.Add(30e6), CauseSlots, false, true},
	}
	if got := res.Parts(1); !slices.Equal(got, want) {
		t.Errorf("parts %+v", got)
	}
	// Elsewhere it had to wait for the step under way too.
	res = explain(t, WaitOptions{}, reqtext.MustParse(t, `
a replica=1 queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b replica=1 queued=5ms scheduled=10ms last=20ms end=20ms queueing=5ms..10ms decode=10ms..20ms
c replica=2 queued=0 scheduled=0 last=1ms end=1ms decode=0..1ms
`))
	if res.AvoidableNS != 0 || causeOf(res, CauseStep).NS != 5*msNS {
		t.Errorf("avoidable %d of %+v", res.AvoidableNS, res.Causes)
	}
}

// Of two that run, one slot cannot be had: that c waits for a slot is not sure
// then. With two it is.
func TestWaitsDisproved(t *testing.T) {
	rs := reqtext.MustParse(t, `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms
b queued=0 scheduled=0 last=20ms end=20ms decode=0..20ms
c queued=0 scheduled=10ms last=30ms end=30ms queueing=0..10ms decode=10ms..30ms
`)
	for slots, want := range map[int64]struct {
		over       int64
		basis      string
		confidence float64
	}{1: {20 * msNS, "inferred", 0}, 2: {0, "derived", 1}} {
		res := explain(t, WaitOptions{Slots: trace.Some(slots)}, rs)
		r, c := &res.Replicas[0], causeOf(res, CauseSlots)
		if r.Limits.OverNS != want.over || r.Disproved() != (want.over > 0) {
			t.Errorf("%d slots: over for %d", slots, r.Limits.OverNS)
		}
		if c.NS != 10*msNS || c.Basis != want.basis || c.Confidence.Or(-1) != want.confidence {
			t.Errorf("%d slots: %+v", slots, c)
		}
	}
}

// b is queued after a and scheduled before it, at 10 ms: a is overtaken for the
// 20 ms that are left. c comes in its turn.
func TestWaitsOvertaking(t *testing.T) {
	res := explain(t, WaitOptions{}, reqtext.MustParse(t, `
a queued=0 scheduled=30ms last=40ms end=40ms queueing=0..30ms decode=30ms..40ms @tenant=x
b queued=5ms scheduled=10ms last=20ms end=20ms queueing=5ms..10ms decode=10ms..20ms @tenant=y
d queued=0 scheduled=2ms last=3ms end=3ms queueing=0..2ms decode=2ms..3ms @tenant=y  # no later than a
c queued=35ms scheduled=40ms last=50ms end=50ms queueing=35ms..40ms decode=40ms..50ms @tenant=y
`))
	if want := []Overtaken{{"x", 1, 20 * msNS}}; !slices.Equal(res.Overtaking, want) {
		t.Errorf("overtaking %+v", res.Overtaking)
	}
}

// Readings say what no request can: 2 run whenever someone waits, and memory
// is half full with what is known to be resident.
func TestWaitsReadings(t *testing.T) {
	ws := NewWaits(WaitOptions{})
	for _, r := range reqtext.MustParse(t, `
a queued=0 scheduled=0 first=1ms last=100ms end=100ms prefill=0..1ms decode=1ms..100ms in=992 out=0
b queued=0 scheduled=100ms last=200ms end=200ms queueing=0..100ms decode=100ms..200ms in=992 out=0
`) {
		ws.Add(r)
	}
	for i := range 12 {
		ws.AddReading(trace.Reading{
			Clock: trace.ClockUnix, At: reqtext.Base.Add(time.Duration(2+i) * time.Millisecond),
			Running: trace.Some(2), Waiting: trace.Some(1), KVUsage: trace.Some(0.5),
		})
	}
	l := ws.Result().Replicas[0].Limits
	if l.Slots.Value != trace.Some[int64](2) || l.Slots.How != LimitReadings {
		t.Errorf("slots %+v", l.Slots)
	}
	if l.KV.Value != trace.Some[int64](2000) || l.KV.How != LimitReadings { // (992 + 8) / 0.5
		t.Errorf("memory %+v", l.KV)
	}
}

// TestWaitsHostile offers times that no clock has. Nothing may break, and the
// books balance modulo what int64 holds.
func TestWaitsHostile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	edge := []trace.Time{math.MinInt64, math.MinInt64 / 2, -farthest, -1, 0, 1, farthest - 1, farthest, math.MaxInt64 / 2, math.MaxInt64}
	any := func() trace.Time { return edge[rnd.IntN(len(edge))] }
	for range 300 {
		ws := NewWaits(WaitOptions{})
		for range 1 + rnd.IntN(20) {
			r := &trace.Request{Clock: trace.ClockMonotonic, Outcome: trace.Outcome(rnd.IntN(5)), Input: trace.Some(rnd.IntN(3) * (math.MaxInt / 2)), Output: trace.Some(rnd.IntN(3) * (math.MaxInt / 2))}
			for _, i := range []*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
				if rnd.IntN(3) > 0 {
					*i = trace.At(any(), trace.Measured)
				}
			}
			for range rnd.IntN(4) {
				from, to := any(), any()
				r.Intervals = append(r.Intervals, trace.Interval{Phase: trace.Phases()[rnd.IntN(7)], Basis: trace.Measured, Start: min(from, to), End: max(from, to)})
			}
			ws.Add(r)
		}
		res := ws.Result()
		var causes, cells int64
		for _, c := range res.Causes {
			causes += c.NS
		}
		for _, c := range res.Matrix {
			cells += c.NS
		}
		if causes != res.WaitingNS || cells != res.WaitingNS {
			t.Fatalf("waiting %d, causes %d, matrix %d", res.WaitingNS, causes, cells)
		}
	}
}

// TestCarry hands out totals of all sizes: nothing is lost, and each gets its
// share to within a nanosecond.
func TestCarry(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 2000 {
		total := rnd.Int64N(1 << (1 + rnd.IntN(50)))
		weights := make([]float64, 1+rnd.IntN(20))
		sum := 0.0
		for i := range weights {
			if rnd.IntN(4) > 0 {
				weights[i] = rnd.ExpFloat64()
			}
			sum += weights[i]
		}
		c := newCarry(total, weights)
		var given int64
		for _, w := range weights {
			got := c.next(w)
			given += got
			if want := float64(total) * w / sum; sum > 0 && (got < 0 || math.Abs(float64(got)-want) > 1.01) {
				t.Fatalf("%d of %d for a share of %v", got, total, w/sum)
			}
		}
		if given != total {
			t.Fatalf("%d handed out of %d", given, total)
		}
	}
}

// TestFit fits decodes whose cost is known.
func TestFit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 8))
	make := func(n int, cost func(*decode) float64) []decode {
		var ds []decode
		for range n {
			d := decode{steps: float64(10 + rnd.IntN(200)), running: 1 + 20*rnd.Float64(), prompts: 5000 * rnd.Float64()}
			d.resident = 300*d.running + 2000*rnd.Float64()
			d.ns = cost(&d)
			ds = append(ds, d)
		}
		return ds
	}
	linear := func(d *decode) float64 { return d.steps*(8e6+1e5*d.running+50*d.resident) + 4e4*d.prompts }
	ds := make(500, linear)
	for i := range 25 { // some were held up
		ds[20*i].ns += 5e9
	}
	m := fit(ds)
	if m == nil || math.Abs(m.BaseNS/8e6-1) > 0.001 || math.Abs(m.TokenNS/4e4-1) > 0.001 || math.Abs(m.perRunning/1e5-1) > 0.01 || math.Abs(m.perResident/50-1) > 0.01 {
		t.Errorf("model %+v", m)
	}
	if m := fit(make(minModelRows-1, linear)); m != nil {
		t.Errorf("a model from too few rows: %+v", m)
	}
	// More running for less time: not believed.
	if m := fit(make(200, func(d *decode) float64 { return d.steps * (8e6 - 1e5*d.running) })); m == nil || m.perRunning != 0 || m.perResident != 0 {
		t.Errorf("model %+v", m)
	}
}
