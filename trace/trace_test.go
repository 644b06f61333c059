package trace

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestPhaseNames(t *testing.T) {
	for p := Phase(0); p <= allPhases; p++ {
		if got, ok := ParsePhase(p.String()); !ok || got != p {
			t.Errorf("ParsePhase(%q) = %v, %v; want %v", p.String(), got, ok, p)
		}
	}
	for _, bad := range []string{"", "queue", "queueing|", "|", "Queueing"} {
		if p, ok := ParsePhase(bad); ok {
			t.Errorf("ParsePhase(%q) = %v; want none", bad, p)
		}
	}
}

func TestKindOfSets(t *testing.T) {
	for _, c := range []struct {
		p    Phase
		want Kind
	}{
		{Unattributed, Unknown},
		{Queueing, Waiting}, {Preempted, Waiting}, {Queueing | Preempted, Waiting},
		{Prefill, Compute}, {Prefill | Decode, Compute},
		{Arrival | Completion, Overhead}, {Transfer, Overhead},
		{Queueing | Prefill, Unsplit}, {Decode | Completion, Unsplit},
	} {
		if got := c.p.Kind(); got != c.want {
			t.Errorf("%v is %v, want %v", c.p, got, c.want)
		}
	}
}

// The cases can be checked by hand: times in ms after arrival.
func TestBreakdown(t *testing.T) {
	type claim struct {
		p        Phase
		from, to int
	}
	for _, c := range []struct {
		name         string
		end          int // < 0: no end
		claims       []claim
		parts        string
		unattributed int
		overlap      int
		outside      int
		conflict     int
		doubled      int
	}{
		{name: "nothing known", end: 10, unattributed: 10},
		{name: "abutting phases", end: 100,
			claims: []claim{{Queueing, 0, 10}, {Prefill, 10, 38}, {Decode, 38, 100}},
			parts:  "queueing=10 prefill=28 decode=62"},
		{name: "a gap", end: 100,
			claims: []claim{{Queueing, 0, 10}, {Decode, 40, 100}},
			parts:  "queueing=10 decode=60", unattributed: 30},
		{name: "a set over a nested member", end: 10,
			claims: []claim{{Queueing | Prefill, 0, 10}, {Prefill, 6, 10}},
			parts:  "prefill=4 queueing|prefill=6", overlap: 4},
		{name: "two sets meet in their intersection", end: 10,
			claims: []claim{{Queueing | Prefill, 0, 10}, {Prefill | Decode, 5, 10}},
			parts:  "prefill=5 queueing|prefill=5", overlap: 5},
		{name: "nothing in common: the later start wins", end: 10,
			claims: []claim{{Queueing, 0, 8}, {Prefill, 5, 10}},
			parts:  "queueing=5 prefill=5", overlap: 3, conflict: 3},
		{name: "a tie: the higher phase wins", end: 10,
			claims: []claim{{Decode, 0, 10}, {Queueing, 0, 10}},
			parts:  "decode=10", overlap: 10, conflict: 10},
		{name: "the winner ends, the older claim goes on", end: 10,
			claims: []claim{{Queueing, 0, 10}, {Prefill, 2, 4}},
			parts:  "queueing=8 prefill=2", overlap: 2, conflict: 2},
		{name: "claimed twice alike", end: 10,
			claims: []claim{{Decode, 0, 10}, {Decode, 4, 6}},
			parts:  "decode=10", overlap: 2, doubled: 2},
		{name: "before and after the request", end: 10,
			claims: []claim{{Queueing, -5, 2}, {Decode, 2, 14}, {Completion, 20, 30}},
			parts:  "queueing=2 decode=8", outside: 5 + 4 + 10},
		{name: "zero length request", end: 0,
			claims: []claim{{Queueing, 0, 0}, {Decode, 0, 3}}, outside: 3},
		{name: "no end: as far as it got", end: -1,
			claims: []claim{{Queueing, 0, 10}, {Prefill, 12, 20}},
			parts:  "queueing=10 prefill=8", unattributed: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			const base = Time(1_760_000_000_000_000_000)
			ms := func(n int) Time { return base + Time(n)*1_000_000 }
			r := &Request{Clock: ClockUnix, Resolution: 1, Arrival: At(base, Measured)}
			if c.end >= 0 {
				r.Completed, r.Outcome = At(ms(c.end), Measured), OK
			}
			for _, cl := range c.claims {
				r.Intervals = append(r.Intervals, Interval{cl.p, Measured, ms(cl.from), ms(cl.to)})
			}
			if err := r.Check(); err != nil {
				t.Fatal(err)
			}
			b := r.Breakdown()
			var parts []string
			for _, p := range b.Parts {
				parts = append(parts, p.Phase.String()+"="+itoa(p.Dur))
			}
			if got := strings.Join(parts, " "); got != c.parts {
				t.Errorf("parts %q, want %q", got, c.parts)
			}
			for _, f := range []struct {
				name string
				got  time.Duration
				want int
			}{
				{"unattributed", b.Unattributed, c.unattributed}, {"overlap", b.Overlap, c.overlap},
				{"outside", b.Outside, c.outside}, {"conflict", b.Conflict, c.conflict}, {"doubled", b.Doubled, c.doubled},
			} {
				if f.got != time.Duration(f.want)*time.Millisecond {
					t.Errorf("%s %v, want %d ms", f.name, f.got, f.want)
				}
			}
			if b.Complete != (c.end >= 0) {
				t.Errorf("complete %v", b.Complete)
			}
			if want := c.outside+c.conflict+c.doubled > 0; b.Inconsistent() != want {
				t.Errorf("inconsistent %v, want %v", b.Inconsistent(), want)
			}
		})
	}
}

// What float64 seconds cannot hold is no contradiction; it is kept all the same.
func TestInconsistentBeyondRounding(t *testing.T) {
	for _, c := range []struct {
		length time.Duration // of a phase of a request of 1 ms
		want   bool
	}{{time.Millisecond, false}, {time.Millisecond + 60, false}, {time.Millisecond + Rounding, false}, {time.Millisecond + Rounding + 1, true}} {
		r := &Request{Clock: ClockUnix, Resolution: 1, Arrival: At(0, Measured), Completed: At(1e6, Measured), Outcome: OK}
		r.Intervals = []Interval{{Decode, Derived, 0, Time(c.length)}}
		b := r.Breakdown()
		if b.Inconsistent() != c.want || b.Outside != c.length-time.Millisecond {
			t.Errorf("%v of 1 ms: inconsistent %v, outside %v", c.length, b.Inconsistent(), b.Outside)
		}
	}
}

func itoa(d time.Duration) string { return strings.TrimSuffix(d.String(), "ms") }

// brute attributes each instant of a short request by looking at all claims.
func brute(r *Request) Breakdown {
	var b Breakdown
	start, end, _ := r.Extent()
	b.Extent, b.Complete = end.Sub(start), r.Arrival.Present() && r.Completed.Present()
	parts := map[Phase]time.Duration{}
	for _, iv := range r.Intervals {
		b.Claimed += iv.End.Sub(iv.Start)
		for t := iv.Start; t < iv.End; t++ {
			if t < start || t >= end {
				b.Outside++
			}
		}
	}
	for t := start; t < end; t++ {
		all, n := Phase(allPhases), 0
		same := map[Phase]int{}
		doubled := false
		var last *Interval
		for i := range r.Intervals {
			iv := &r.Intervals[i]
			if iv.Start > t || iv.End <= t {
				continue
			}
			all &= iv.Phase
			n++
			same[iv.Phase]++
			doubled = doubled || same[iv.Phase] > 1
			if last == nil || iv.Start > last.Start || iv.Start == last.Start && iv.Phase > last.Phase {
				last = iv
			}
		}
		if doubled {
			b.Doubled++
		}
		switch {
		case n == 0:
			b.Unattributed++
			continue
		case all == 0:
			all = last.Phase
			b.Conflict++
		}
		parts[all]++
		b.Overlap += time.Duration(n - 1)
	}
	for p := Phase(0); p <= allPhases; p++ {
		if parts[p] > 0 {
			b.Parts = append(b.Parts, Part{p, parts[p]})
		}
	}
	return b
}

// random returns a request of at most 40 ns with up to 8 claims around it.
func random(rng *rand.Rand) *Request {
	r := &Request{Clock: ClockUnix, Resolution: 1}
	base := Time(1000)
	if rng.IntN(8) > 0 {
		r.Arrival = At(base+Time(rng.IntN(5)), Measured)
	}
	if rng.IntN(8) > 0 {
		r.Completed = At(base+5+Time(rng.IntN(35)), Measured)
	}
	for range rng.IntN(9) {
		s := base - 5 + Time(rng.IntN(45))
		r.Intervals = append(r.Intervals, Interval{Phase(1 + rng.IntN(allPhases)), Derived, s, s + Time(rng.IntN(20))})
	}
	return r
}

func TestBreakdownAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 20000 {
		r := random(rng)
		got, want := r.Breakdown(), brute(r)
		if err := got.Check(); err != nil {
			t.Fatalf("case %d: %v\n%+v", i, err, r)
		}
		if !equal(got, want) {
			t.Fatalf("case %d: %+v\ngot  %+v\nwant %+v", i, r, got, want)
		}
		checkSegments(t, r, got)
		// The order of claims must not matter, nor a shift of all times.
		rng.Shuffle(len(r.Intervals), func(i, j int) { r.Intervals[i], r.Intervals[j] = r.Intervals[j], r.Intervals[i] })
		if again := r.Breakdown(); !equal(again, want) {
			t.Fatalf("case %d: order changes the result: %+v, %+v", i, again, want)
		}
		const shift = 1_000_000_007
		for j := range r.Intervals {
			r.Intervals[j].Start += shift
			r.Intervals[j].End += shift
		}
		if r.Arrival.Present() {
			r.Arrival.At += shift
		}
		if r.Completed.Present() {
			r.Completed.At += shift
		}
		if again := r.Breakdown(); !equal(again, want) {
			t.Fatalf("case %d: a shift changes the result: %+v, %+v", i, again, want)
		}
	}
}

// checkSegments holds the segments to the breakdown that sums them.
func checkSegments(t *testing.T, r *Request, b Breakdown) {
	t.Helper()
	at, end, _ := r.Extent()
	sums := map[Phase]time.Duration{}
	last := Phase(allPhases + 1)
	for _, s := range r.Segments(nil) {
		if s.Start != at || s.End <= s.Start || s.Phase == last {
			t.Fatalf("segment %+v after %d, phase %v: %+v", s, at, last, r)
		}
		at, last = s.End, s.Phase
		sums[s.Phase] += s.End.Sub(s.Start)
	}
	if at != end {
		t.Fatalf("segments end at %d, extent at %d: %+v", at, end, r)
	}
	for p := Phase(0); p <= allPhases; p++ {
		if sums[p] != b.Of(p) {
			t.Fatalf("%v: segments %d, breakdown %d: %+v", p, sums[p], b.Of(p), r)
		}
	}
}

func equal(a, b Breakdown) bool {
	if len(a.Parts) != len(b.Parts) {
		return false
	}
	for i := range a.Parts {
		if a.Parts[i] != b.Parts[i] {
			return false
		}
	}
	a.Parts, b.Parts = nil, nil
	return a.Extent == b.Extent && a.Complete == b.Complete && a.Unattributed == b.Unattributed && a.Claimed == b.Claimed &&
		a.Overlap == b.Overlap && a.Outside == b.Outside && a.Conflict == b.Conflict && a.Doubled == b.Doubled
}

// A request that was preempted very often must not cost the square of it.
func BenchmarkBreakdown(b *testing.B) {
	for _, n := range []int{4, 1000, 100_000} {
		b.Run("claims="+time.Duration(n).String(), func(b *testing.B) {
			r := &Request{Clock: ClockUnix, Resolution: 1, Arrival: At(0, Measured), Completed: At(Time(2*n), Measured)}
			for i := range n {
				p := Decode
				if i%2 == 1 {
					p = Preempted
				}
				r.Intervals = append(r.Intervals, Interval{p, Measured, Time(2 * i), Time(2*i + 3)})
			}
			b.ReportAllocs()
			for b.Loop() {
				r.Breakdown()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/claim")
		})
	}
}

func TestFigures(t *testing.T) {
	r := &Request{Arrival: At(100, Measured), FirstToken: At(140, Derived), LastToken: At(240, Measured), Completed: At(250, Measured), Output: Some(11)}
	if d, ok := r.E2E().Get(); !ok || d != 150 {
		t.Errorf("e2e %v %v", d, ok)
	}
	if d, ok := r.TTFT().Get(); !ok || d != 40 {
		t.Errorf("ttft %v %v", d, ok)
	}
	if d, ok := r.TPOT().Get(); !ok || d != 10 {
		t.Errorf("tpot %v %v", d, ok)
	}
	r.Output = Some(1)
	if _, ok := r.TPOT().Get(); ok {
		t.Error("tpot of a single token")
	}
	r.Arrival = Instant{}
	if r.E2E().Present() || r.TTFT().Present() {
		t.Error("figures without an arrival")
	}
}

func TestAttrs(t *testing.T) {
	var r Request
	for _, k := range []string{"b", "a", "c", "b"} {
		r.SetAttr(k, StringValue("v"+k))
	}
	if len(r.Attrs) != 3 || r.Attrs[0].Key != "a" || r.Attrs[2].Key != "c" {
		t.Fatalf("attrs %v", r.Attrs)
	}
	if v, ok := r.Attr("b"); !ok || v.String() != "vb" {
		t.Errorf("b = %v, %v", v, ok)
	}
	if _, ok := r.Attr("d"); ok {
		t.Error("found d")
	}
	s := Span{Attrs: []Attr{{"k", IntValue(1)}, {"k", IntValue(2)}}}
	if v, _ := s.Attr("k"); v != IntValue(2) {
		t.Error("of equal keys the last counts")
	}
}

func TestCodesHaveHelp(t *testing.T) {
	seen := map[Code]bool{}
	for _, c := range Codes {
		if seen[c.Code] || c.Meaning == "" || c.Do == "" {
			t.Errorf("code %q: twice, or without words", c.Code)
		}
		seen[c.Code] = true
		if strings.ToLower(string(c.Code)) != string(c.Code) || strings.ContainsAny(string(c.Code), " _") {
			t.Errorf("code %q is not kebab-case", c.Code)
		}
	}
}

func TestIssueText(t *testing.T) {
	for _, c := range []struct {
		pos  Pos
		want string
	}{
		{Pos{}, "ends early [truncated]"},
		{Pos{File: "a.json", Line: 3, Offset: 99}, "a.json:3: ends early [truncated]"},
		{Pos{File: "a.pb", Offset: 99, Path: "spans[2]"}, "a.pb at byte 99 spans[2]: ends early [truncated]"},
	} {
		i := NewIssue(Truncated, c.pos, "ends early")
		if i.Error() != c.want {
			t.Errorf("%q, want %q", i.Error(), c.want)
		}
		if i.Severity != Dropped {
			t.Errorf("severity %v", i.Severity)
		}
	}
}

func TestCheck(t *testing.T) {
	ok := func() *Request {
		return &Request{Clock: ClockUnix, Resolution: 1, Arrival: At(10, Measured), Completed: At(20, Measured), Outcome: OK}
	}
	if err := ok().Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Request){
		"negative e2e":            func(r *Request) { r.Completed.At = 5 },
		"absent instant not zero": func(r *Request) { r.Queued = Instant{At: 7} },
		"before the epoch":        func(r *Request) { r.Arrival.At = -1 },
		"empty phase":             func(r *Request) { r.Intervals = []Interval{{0, Measured, 1, 2}} },
		"interval backwards":      func(r *Request) { r.Intervals = []Interval{{Decode, Measured, 2, 1}} },
		"interval without basis":  func(r *Request) { r.Intervals = []Interval{{Decode, Absent, 1, 2}} },
		"attributes unsorted":     func(r *Request) { r.Attrs = []Attr{{Key: "b"}, {Key: "a"}} },
		"negative count":          func(r *Request) { r.Output = Some(-1) },
		"no resolution":           func(r *Request) { r.Resolution = 0 },
		"ok without an end":       func(r *Request) { r.Completed = Instant{} },
	} {
		r := ok()
		spoil(r)
		if r.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
