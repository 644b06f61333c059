package analyze

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func examine(t testing.TB, rs []*trace.Request, readings ...trace.Reading) *Physics {
	t.Helper()
	var c Check
	for _, r := range rs {
		c.Add(r)
	}
	for _, r := range readings {
		c.AddReading(r)
	}
	p := c.Report(1).Physics
	return &p
}

func (p *Physics) law(t testing.TB, name string) Law {
	t.Helper()
	for _, l := range p.Laws {
		if l.Law == name {
			return l
		}
	}
	t.Fatalf("no law %q", name)
	return Law{}
}

// repeat makes n requests of one line, a second apart; # stands for their
// number. Instants move with it.
func repeat(t testing.TB, n int, line string) []*trace.Request {
	t.Helper()
	var rs []*trace.Request
	for i := range n {
		r := reqtext.MustParse(t, strings.ReplaceAll(line, "#", fmt.Sprint(i)))[0]
		d := time.Duration(i) * time.Second
		for _, in := range []*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
			if in.Present() {
				in.At = in.At.Add(d)
			}
		}
		for k := range r.Intervals {
			r.Intervals[k].Start, r.Intervals[k].End = r.Intervals[k].Start.Add(d), r.Intervals[k].End.Add(d)
		}
		rs = append(rs, r)
	}
	return rs
}

// sound is a request with nothing wrong: 17 tokens in 160 ms, 10 ms each.
const sound = `r# engine=vllm-v1 service=s replica=a arrival=0 queued=1.1ms scheduled=11.1ms first=31.1ms last=191.1ms end=192.3ms queueing=1.1ms..11.1ms prefill=11.1ms..31.1ms decode=31.1ms..191.1ms completion=191.1ms..192.3ms in=100 out=17 max=20 reported.e2e=191ms reported.ttft=32ms reported.queue=10ms reported.prefill=20ms`

// TestLaws breaks one thing of a sound request at a time.
func TestLaws(t *testing.T) {
	const line = sound
	with := func(from, to string) string {
		if !strings.Contains(line, from) {
			t.Fatalf("no %q", from)
		}
		return strings.Replace(line, from, to, 1)
	}
	for _, c := range []struct {
		name, line string
		n          int
		law        string
		want       Verdict
		broken     int64
		found      string
	}{
		{"all as it should be", line, 40, "order", Holds, 0, "in all of 40 requests"},
		{"a phase outside", with("completion=191.1ms..192.3ms", "completion=191.1ms..195.3ms"), 40, "phases", Fails, 40, "in 40 of 40 requests (100 %) a phase lies outside or two exclude each other; by 3 ms at most"},
		{"a phase outside by what floats lose", with("completion=191.1ms..192.3ms", "completion=191.1ms..192.301ms"), 40, "phases", Holds, 0, ""},
		{"two at once", with("queueing=1.1ms..11.1ms", "queueing=1.1ms..12.1ms"), 40, "phases", Fails, 40, "by 2 ms at most"}, // overlap and conflict
		{"no phases", `r# arrival=0 end=1s`, 40, "phases", Untested, 0, "no request tells of phases"},
		{"first token before scheduled", with("first=31.1ms", "first=9.1ms"), 40, "order", Fails, 40, "not so in 40 of 40 requests (100 %); by 2 ms at most"},
		{"ttft beyond e2e", with("reported.ttft=32ms", "reported.ttft=192ms"), 40, "order", Fails, 40, "by 1 ms at most"},
		{"queue and prefill beyond ttft", with("reported.queue=10ms", "reported.queue=14ms"), 40, "order", Fails, 40, "by 2 ms at most"},
		{"source's e2e beyond ours", with("reported.e2e=191ms", "reported.e2e=200.3ms"), 40, "order", Fails, 40, "by 8 ms at most"},
		{"begin and end alone", `r# arrival=0 end=1s`, 40, "order", Untested, 0, ""},
		{"a token in 10 ms", line, 40, "tokens", Holds, 0, ""},
		{"5,001 tokens in 160 ms", with("out=17 max=20", "out=5001"), 40, "tokens", Fails, 40, "not so in 40 of 40"}, // 32 µs
		{"more tokens than allowed", with("max=20", "max=16"), 40, "tokens", Fails, 40, ""},
		{"more cached than there are", with("in=100", "in=100 cached=101"), 40, "tokens", Fails, 40, ""},
		{"15 tokens at once say nothing", `r# arrival=0 first=1ms last=1ms end=2ms out=15`, 40, "tokens", Untested, 0, ""},
		{"phase too long everywhere", line + " issue=phase-too-long", 40, "units", Fails, 40, "40 of 40 requests (100 %) have a phase longer"},
		{"seconds as milliseconds", `r# arrival=0 scheduled=10µs first=30µs last=191µs end=192.3ms queueing=0..10µs prefill=10µs..30µs decode=30µs..191µs out=2`, 40, "units", Fails, 40, "come to a thousandth"},
		{"19 requests", line, 19, "units", Untested, 0, ""},
		{"on whole milliseconds", `r# arrival=0 end=7ms`, 40, "resolution", Fails, 40, "40 of 40 requests (100 %) begin and end on a whole ms"},
		{"on whole seconds", `r# arrival=0 end=7s`, 40, "resolution", Fails, 40, "on a whole s"},
		{"on whole milliseconds, as said", `r# arrival=0 end=7ms resolution=1ms`, 40, "resolution", Untested, 0, ""},
		{"not on whole milliseconds", `r# arrival=0 end=7.1ms`, 40, "resolution", Holds, 0, ""},
		{"one clock", line, 2, "clock", Holds, 0, ""},
		{"alone", line, 40, "nesting", Untested, 0, "no request was seen by two processes"},
		{"below what is not there", line + " issue=missing-parent", 40, "nesting", Untested, 0, "40 requests name a span around it that is not in the input"},
		{"vLLM, nothing failed", line, 40, "failures", Untested, 0, ""},
		{"some failed, vLLM", line + " outcome=error", 40, "failures", Untested, 0, "vLLM writes no span for an aborted request"},
		{"some failed, with phases", with("engine=vllm-v1", "engine=phase-spans") + " outcome=error", 40, "failures", Holds, 0, "40 of 40 requests (100 %) were not served"},
		{"no readings", line, 40, "depth", Untested, 0, noReadings},
		{"no word of a sampler", line, 40, "sampling", Untested, 0, noReadings},
		{"a sampler's word", line + " @sampler.param=0.1", 40, "sampling", Fails, 1, "the data say so: sampler.param = 0.1"},
		{"Little", line, 40, "little", Holds, 0, "off by 0 %"},
		{"one replica", line, 200, "silence", Untested, 0, ""},
	} {
		l := examine(t, repeat(t, c.n, c.line)).law(t, c.law)
		if l.Verdict != c.want || l.Broken != c.broken || !strings.Contains(l.Found, c.found) {
			t.Errorf("%s: %s %s, %d broken: %s; want %s, %d: %s", c.name, l.Law, l.Verdict, l.Broken, l.Found, c.want, c.broken, c.found)
		}
		if (l.Verdict == Fails) != (l.Likely != "") || (l.Verdict == Fails) != (len(l.Distrust) > 0) || l.Found == "" || l.Statement == "" {
			t.Errorf("%s: %+v", c.name, l)
		}
	}

	mixed := append(repeat(t, 3, line), reqtext.MustParse(t, "m clock=monotonic arrival=0 end=1s")...)
	if l := examine(t, mixed).law(t, "clock"); l.Verdict != Fails || l.Broken != 1 || l.Found != "they are on several: 3 unix and 1 monotonic" {
		t.Errorf("mixed clocks: %+v", l)
	}
	micros := repeat(t, 3, line)
	for _, r := range micros { // as if nanoseconds were microseconds
		r.Arrival.At /= 1000
		r.Completed.At /= 1000
	}
	if l := examine(t, micros).law(t, "units"); l.Verdict != Fails || l.Broken != 3 {
		t.Errorf("microseconds: %+v", l)
	}
}

// TestClockPairs nests spans by hand: an engine whose true margins are 1 to 3
// ms before and 1 to 2 ms behind, on a clock that is off by 10 ms.
func TestClockPairs(t *testing.T) {
	rs := repeat(t, 3, sound)
	for i, m := range []struct{ before, after int64 }{{1, 2}, {2, 1}, {3, 1}} {
		rs[i].Outer = trace.Some(trace.Nesting{Service: "gw", Before: time.Duration((m.before + 10) * ms), After: time.Duration((m.after - 10) * ms)})
	}
	p := examine(t, rs)
	want := ClockPair{Outer: "gw", Inner: "s/a", Requests: 3, StickOut: 3, LowNS: 9 * ms, HighNS: 11 * ms, OffsetNS: 10 * ms, Consistent: true}
	if len(p.Clocks) != 1 || p.Clocks[0] != want {
		t.Errorf("got %+v, want %+v", p.Clocks, want)
	}
	if l := p.law(t, "nesting"); l.Verdict != Fails || l.Found != "it sticks out in 3 of 3 requests (100 %): s/a is 10 ms ahead of gw (between 9 ms and 11 ms)" {
		t.Errorf("%+v", l)
	}
	// Another request says that it is behind: no one offset explains both.
	rs[2].Outer = trace.Some(trace.Nesting{Service: "gw", Before: time.Duration(-5 * ms), After: time.Duration(9 * ms)})
	p = examine(t, rs)
	if c := p.Clocks[0]; c.Consistent || c.LowNS != 9*ms || c.HighNS != -5*ms {
		t.Errorf("a drift: %+v", c)
	}
	if l := p.law(t, "nesting"); l.Verdict != Fails || !strings.Contains(l.Likely, "drifts") {
		t.Errorf("a drift: %+v", l)
	}
}

// TestDepths: requests are in the engine for 191.1 − 1.1 = 190 ms of each
// second; readings 100 ms into each second.
func TestDepths(t *testing.T) {
	rs := repeat(t, 200, sound)
	reading := func(i, running, waiting int, replica string) trace.Reading {
		return trace.Reading{Service: "s", Replica: replica, Clock: trace.ClockUnix, At: reqtext.Base.Add(time.Duration(i)*time.Second + 100*time.Millisecond),
			Running: trace.Some(running), Waiting: trace.Some(waiting)}
	}
	var all []trace.Reading
	for i := range 200 {
		all = append(all, reading(i, 1, 0, "a"))
	}
	p := examine(t, rs, all...)
	// The last request's end is 199.1911 s; a stay of 0.19 s before it there is
	// no reading, nor one before 0.1911 s.
	want := DepthCheck{Engine: "s/a", Readings: 198, Stated: 1, Seen: 1, Ratio: 1, Low: 1, High: 1, Least: 1}
	if len(p.Depths) != 1 || p.Depths[0] != want {
		t.Errorf("got %+v, want %+v", p.Depths, want)
	}
	for _, law := range []string{"depth", "sampling"} {
		if l := p.law(t, law); l.Verdict != Holds {
			t.Errorf("%+v", l)
		}
	}
	// Every twentieth request has no span.
	var most []*trace.Request
	for i, r := range rs {
		if i%20 != 10 {
			most = append(most, r)
		}
	}
	p = examine(t, most, all...)
	if l := p.law(t, "depth"); l.Verdict != Fails || l.Broken != 10 || l.Tested != 198 {
		t.Errorf("%+v", l)
	}
	if l := p.law(t, "failures"); l.Verdict != Fails || l.Broken != 10 {
		t.Errorf("%+v", l)
	}
	if l := p.law(t, "sampling"); l.Verdict != Untested {
		t.Errorf("%+v", l)
	}
	// None from the 100th to the 150th: for a quarter of the time.
	p = examine(t, slices.Concat(rs[:100], rs[150:]), all...)
	if l := p.law(t, "depth"); l.Verdict != Fails || p.Depths[0].Least != 0 {
		t.Errorf("%+v %+v", l, p.Depths)
	}
	// Nine of ten have none: of 189 readings between the first and the last, 18
	// see one.
	var few []*trace.Request
	for i, r := range rs {
		if i%10 == 0 {
			few = append(few, r)
		}
	}
	p = examine(t, few, all...)
	if l := p.law(t, "sampling"); l.Verdict != Fails || !strings.Contains(l.Found, "about 9.5 %") {
		t.Errorf("%+v", l)
	}
	// A second engine that no request names.
	two := slices.Clone(all)
	for i := range 200 {
		two = append(two, reading(i, 3, 1, "b"))
	}
	p = examine(t, rs, two...)
	if l := p.law(t, "depth"); l.Verdict != Fails || l.Likely != "spans of s/b were lost" {
		t.Errorf("%+v", l)
	}
	if n := len(p.Depths); n != 3 || p.Depths[2].Seen != 1 || p.Depths[2].Stated != 5 {
		t.Errorf("%+v", p.Depths)
	}
	// A log's engine goes by another name than the spans'.
	for i := range all {
		all[i].Service, all[i].Replica = "", "0"
	}
	if l := examine(t, rs, all...).law(t, "depth"); l.Verdict != Holds {
		t.Errorf("%+v", l)
	}
	// Of twenty, two tell of no end, as most of a log's requests: how many
	// were there is not known.
	open := slices.Clone(few)
	for i := range 2 {
		r := *open[i]
		r.Completed, r.Outcome = trace.Instant{}, trace.Incomplete
		open[i] = &r
	}
	if p := examine(t, open, all...); p.law(t, "depth").Verdict != Untested || p.law(t, "sampling").Verdict != Untested {
		t.Errorf("%+v", p.Laws)
	}
	// Requests chosen by a tenant are not all of the engine's.
	c := Check{Chosen: true}
	for _, r := range few {
		c.Add(r)
	}
	for _, r := range all {
		c.AddReading(r)
	}
	if p := c.Report(1).Physics; p.law(t, "depth").Verdict != Untested || p.law(t, "sampling").Verdict != Untested {
		t.Errorf("%+v", p.Laws)
	}
}

// TestSilence: two replicas take turns; b's requests from the 100th to the
// 200th are lost, or go to a instead, or are those of a client who left.
func TestSilence(t *testing.T) {
	const line = sound
	for _, c := range []struct {
		name  string
		spoil func(i int, r *trace.Request) bool // whether to keep it
		want  Verdict
	}{
		{"nothing", func(int, *trace.Request) bool { return true }, Holds},
		{"lost", func(i int, r *trace.Request) bool { return r.Replica == "a" || i < 100 || i > 200 }, Fails},
		{"lost to the end", func(i int, r *trace.Request) bool { return r.Replica == "a" || i < 100 }, Fails},
		{"routed around", func(i int, r *trace.Request) bool {
			if i >= 100 && i <= 200 {
				r.Replica = "a"
			}
			return true
		}, Holds},
		{"a client left", func(i int, r *trace.Request) bool {
			r.SetAttr("tenant", trace.StringValue(r.Replica))
			return r.Replica == "a" || i < 100
		}, Holds},
		{"a client did not leave", func(i int, r *trace.Request) bool {
			r.SetAttr("tenant", trace.StringValue("x"))
			return r.Replica == "a" || i < 100
		}, Fails},
	} {
		var rs []*trace.Request
		for i, r := range repeat(t, 300, line) {
			if i%2 == 1 {
				r.Replica = "b"
			}
			if c.spoil(i, r) {
				rs = append(rs, r)
			}
		}
		p := examine(t, rs)
		if l := p.law(t, "silence"); l.Verdict != c.want {
			t.Errorf("%s: %+v", c.name, l)
		}
		if c.name == "lost" {
			// b's 99th request is the last before, its 201st the next; between
			// them a has 51.
			want := Silence{Replica: "s/b", StartNS: int64(reqtext.Base) + 99e9, EndNS: int64(reqtext.Base) + 201e9, Others: 51, Expected: 51 * 50.0 / 49}
			if len(p.Silence) != 1 || math.Abs(p.Silence[0].Expected-want.Expected) > 1e-9 {
				t.Fatalf("%+v", p.Silence)
			}
			p.Silence[0].Expected = want.Expected
			if p.Silence[0] != want {
				t.Errorf("got %+v, want %+v", p.Silence[0], want)
			}
		}
	}
}

// TestPhysicsOrder adds in another order, and nothing changes.
func TestPhysicsOrder(t *testing.T) {
	const line = sound
	rs := repeat(t, 120, line)
	var readings []trace.Reading
	for i, r := range rs {
		r.Replica = string(rune('a' + i%3))
		r.Outer = trace.Some(trace.Nesting{Service: "gw", Before: time.Duration(i%7) * time.Millisecond, After: time.Duration(i%5-1) * time.Millisecond})
		if i%6 == 0 {
			r.FirstToken.At -= 40_000_000
		}
		readings = append(readings, trace.Reading{Service: "s", Replica: r.Replica, Clock: trace.ClockUnix, At: r.Queued.At.Add(time.Millisecond), Running: trace.Some(1), Waiting: trace.Some(i % 2)})
	}
	show := func() string {
		b, err := json.Marshal(examine(t, rs, readings...))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	want := show()
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 5 {
		rnd.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		rnd.Shuffle(len(readings), func(i, j int) { readings[i], readings[j] = readings[j], readings[i] })
		if got := show(); got != want {
			t.Fatalf("got %s\nwant %s", got, want)
		}
	}
}

// TestPhysicsHostile gives it values at the ends of their ranges: no panic, and
// what comes can be written.
func TestPhysicsHostile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	ends := []int64{0, 1, -1, math.MaxInt64, math.MinInt64, 1e18, 1e9}
	pick := func() int64 { return ends[rnd.IntN(len(ends))] }
	for range 300 {
		var c Check
		for range rnd.IntN(60) {
			r := &trace.Request{Replica: string(rune('a' + rnd.IntN(3))), Clock: trace.Clock(rnd.IntN(4)), Resolution: time.Duration(pick()), Outcome: trace.Outcome(rnd.IntN(5))}
			for _, in := range []*trace.Instant{&r.Arrival, &r.Queued, &r.FirstToken, &r.LastToken, &r.Completed} {
				if rnd.IntN(3) > 0 {
					*in = trace.At(trace.Time(pick()), trace.Measured)
				}
			}
			a, z := pick(), pick()
			r.Intervals = []trace.Interval{{Phase: trace.Queueing, Basis: trace.Measured, Start: trace.Time(min(a, z)), End: trace.Time(max(a, z))}}
			r.Output, r.Input, r.MaxTokens = trace.Some(int(pick())), trace.Some(int(pick())), trace.Some(int(pick()))
			r.Outer = trace.Some(trace.Nesting{Before: time.Duration(pick()), After: time.Duration(pick())})
			r.Reported.TTFT, r.Reported.E2E = trace.Some(time.Duration(pick())), trace.Some(time.Duration(pick()))
			c.Add(r)
			c.AddReading(trace.Reading{Replica: r.Replica, Clock: r.Clock, At: trace.Time(pick()), Running: trace.Some(int(pick())), Waiting: trace.Some(int(pick()))})
		}
		if _, err := json.Marshal(c.Report(1)); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkCheck holds a million requests on ten replicas against the laws.
func BenchmarkCheck(b *testing.B) {
	rs := repeat(b, 1000, sound)
	b.ReportAllocs()
	for b.Loop() {
		var c Check
		for n := range 1000 {
			for i, r := range rs {
				q := *r
				d := time.Duration(n) * 1000 * time.Second
				q.Arrival.At, q.Completed.At = r.Arrival.At.Add(d), r.Completed.At.Add(d)
				q.Replica = string(rune('a' + i%10))
				c.Add(&q)
			}
		}
		c.Report(1)
	}
}

// server makes requests of one replica by hand: each is queued, let in and
// leaves at these milliseconds, 10 tokens of decode after a first token that
// comes with its being let in.
func server(t testing.TB, times [][3]int, more string) []*trace.Request {
	t.Helper()
	var rs []*trace.Request
	for i, at := range times {
		rs = append(rs, reqtext.MustParse(t, fmt.Sprintf(
			"r%d service=s replica=a arrival=%[2]dms queued=%[2]dms scheduled=%[3]dms first=%[3]dms last=%[4]dms end=%[4]dms queueing=%[2]dms..%[3]dms decode=%[3]dms..%[4]dms in=10 out=10 %s",
			i, at[0], at[1], at[2], more))...)
	}
	return rs
}

// TestTenure: one slot. A request comes about every 100 ms, is let in when the
// one before it leaves, and runs for 100 ms.
func TestTenure(t *testing.T) {
	var busy, idle, batches, timeouts, hidden [][3]int
	for i := range 60 {
		busy = append(busy, [3]int{100*i + 37*i%40, 100*i + 150, 100*i + 250})
		// Each waits at an idle replica for a time of its own.
		idle = append(idle, [3]int{1000 * i, 1000*i + 300 + 7*i, 1000*i + 900})
		// Two come 100 ms apart and are let in together.
		batches = append(batches, [3]int{1000*(i/2) + 100*(i%2), 1000*(i/2) + 500 + 5*(i/2), 1000*(i/2) + 900})
		// Each waits for 250 ms.
		timeouts = append(timeouts, [3]int{1000 * i, 1000*i + 250, 1000*i + 900})
	}
	for i, r := range busy {
		if i%10 != 5 { // every tenth has no span: its slot looks free
			hidden = append(hidden, r)
		}
	}
	for _, c := range []struct {
		name, more string
		times      [][3]int
		law        string
		want       Verdict
		found      string
	}{
		{"one after the other", "", busy, "holders", Holds, "for all but 0 % of waiting"},
		{"one after the other", "", busy, "idle", Holds, "0 % of waiting is so"},
		{"limit said", "@max_num_seqs=1", busy, "slots", Holds, "but for 0 % of the running"},
		{"no limit said", "", busy, "slots", Untested, "no slot limit is stated"},
		{"idle", "", idle, "idle", Fails, "at an idle replica, and ends without a batch"},
		{"batches", "", batches, "idle", Holds, "0 % of waiting is so"},
		{"a timeout", "", timeouts, "idle", Holds, "0 % of waiting is so"},
		{"a timeout", "", timeouts, "holders", Untested, "no limit explains 100 % of waiting"},
		{"nobody waits", "", [][3]int{{0, 0, 10}, {5, 5, 15}}, "idle", Untested, "no request waited"},
		{"nobody waits", "", [][3]int{{0, 0, 10}, {5, 5, 15}}, "holders", Untested, "hardly ever refused"},
		{"idle meanwhile", "", hidden, "idle", Fails, ""},
		// 450 ms of running in all, two at once from 101 to 151 and from 201 to
		// 251 ms.
		{"above its limit", "@max_num_seqs=1", [][3]int{{0, 1, 151}, {100, 101, 251}, {200, 201, 351}}, "slots", Fails, "22.2 % of the running is above the limit; at most s/a 2 (limit 1)"},
	} {
		p := examine(t, server(t, c.times, c.more))
		if l := p.law(t, c.law); l.Verdict != c.want || !strings.Contains(l.Found, c.found) {
			t.Errorf("%s: %s %s: %s", c.name, l.Law, l.Verdict, l.Found)
		}
	}

	// The engine itself says that it ran two.
	rd := trace.Reading{Service: "s", Replica: "a", Clock: trace.ClockUnix, At: reqtext.Base, Running: trace.Some(2)}
	if l := examine(t, server(t, busy, "@max_num_seqs=1"), rd).law(t, "slots"); l.Verdict != Fails || l.Likely != "the stated limit is not the engine's" {
		t.Errorf("%+v", l)
	}
	// Whoever leaves out requests cannot say who held the replica.
	c := Check{Chosen: true}
	for _, r := range server(t, idle, "") {
		c.Add(r)
	}
	p := c.Report(1).Physics
	if l := p.law(t, "idle"); l.Verdict != Untested {
		t.Errorf("%+v", l)
	}
}

// Times that do not add up within 292 years are no reason to doubt the input.
func TestLittleOfLongTimes(t *testing.T) {
	year := repeat(t, 300, `r# engine=vllm-v1 service=s replica=a arrival=0 queued=0 scheduled=8760h first=8760h last=8760.1h end=8760.1h queueing=0..8760h decode=8760h..8760.1h`)
	if l := examine(t, year[:100]).law(t, "little"); l.Verdict != Holds {
		t.Errorf("a hundred years in all: %+v", l)
	}
	const far = `
r1 clock=monotonic arrival=-2500000h queued=-2500000h scheduled=-2499999h end=-2499998h queueing=-2500000h..-2499999h decode=-2499999h..-2499998h
r2 clock=monotonic arrival=2500000h queued=2500000h scheduled=2500001h end=2500002h queueing=2500000h..2500001h decode=2500001h..2500002h`
	for name, rs := range map[string][]*trace.Request{"waiting": year, "window": reqtext.MustParse(t, far)} {
		if l := examine(t, rs).law(t, "little"); l.Verdict != Untested || l.Found != "the times are too long to be added up" {
			t.Errorf("%s: %+v", name, l)
		}
	}
}

// A log that tells of requests that were not served, beside the spans of those
// that were, shows what these lack. A log alone lacks no spans.
func TestFailuresByLog(t *testing.T) {
	gone := repeat(t, 4, `g# service=s replica=a outcome=aborted arrival=500ms end=1500ms`)
	for _, r := range gone {
		r.Source.Format, r.Resolution = logFormat, time.Second
	}
	rs := append(repeat(t, 60, sound), gone...)
	if l := examine(t, rs).law(t, "failures"); l.Verdict != Fails || l.Broken != 4 || l.Tested != 64 {
		t.Errorf("%+v", l)
	}
	if l := examine(t, gone).law(t, "failures"); l.Verdict != Untested {
		t.Errorf("%+v", l)
	}
}
