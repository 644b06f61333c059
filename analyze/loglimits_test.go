package analyze

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

// What a log says of limits counts where it is the replica's for certain, and
// while it holds.
func TestWaitsLogLimits(t *testing.T) {
	const two = `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms service=s replica=r
b queued=0 scheduled=10ms last=20ms end=20ms queueing=0..10ms decode=10ms..20ms service=s replica=r
`
	const other = `
c queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms service=s replica=r2
`
	const attr = `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms service=s replica=r @vllm.max_num_seqs=3
b queued=0 scheduled=10ms last=20ms end=20ms queueing=0..10ms decode=10ms..20ms service=s replica=r
`
	told := func(service, replica string, at time.Duration, slots int64) trace.EngineLimits {
		return trace.EngineLimits{
			Clock: trace.ClockUnix, Service: service, Replica: replica,
			At: trace.At(reqtext.Base.Add(at), trace.Measured), Slots: trace.Some(slots),
		}
	}
	none := trace.Opt[int64]{}
	undated := told("s", "r", 0, 1)
	undated.At = trace.Instant{}
	monotonic := told("s", "r", -time.Second, 1)
	monotonic.Clock = trace.ClockMonotonic
	for _, c := range []struct {
		name    string
		text    string
		opts    WaitOptions
		told    []trace.EngineLimits
		slots   trace.Opt[int64]
		how     string
		changed bool
	}{
		{"of this replica", two + other, WaitOptions{}, []trace.EngineLimits{told("s", "r", -time.Second, 1)}, trace.Some[int64](1), LimitLog, false},
		{"of no name, and this is the only one", two, WaitOptions{}, []trace.EngineLimits{told("", "", -time.Second, 1)}, trace.Some[int64](1), LimitLog, false},
		{"of no name, and there are two", two + other, WaitOptions{}, []trace.EngineLimits{told("", "", -time.Second, 1)}, none, "", false},
		{"of another", two, WaitOptions{}, []trace.EngineLimits{told("s", "x", -time.Second, 1)}, none, "", false},
		{"on another clock", two, WaitOptions{}, []trace.EngineLimits{monotonic}, none, "", false},
		{"without a time", two, WaitOptions{}, []trace.EngineLimits{undated}, trace.Some[int64](1), LimitLog, false},
		{"the user's goes first", two, WaitOptions{Slots: trace.Some[int64](5)}, []trace.EngineLimits{told("s", "r", -time.Second, 1)}, trace.Some[int64](5), LimitStated, false},
		{"an attribute's goes first", attr, WaitOptions{}, []trace.EngineLimits{told("s", "r", -time.Second, 1)}, trace.Some[int64](3), LimitData, false},
		{"a start before and one after", two, WaitOptions{}, []trace.EngineLimits{
			told("s", "r", time.Hour, 8), told("s", "r", -time.Hour, 9), told("s", "r", -time.Second, 1),
		}, trace.Some[int64](1), LimitLog, false},
		{"two starts with the same", two, WaitOptions{}, []trace.EngineLimits{told("s", "r", -time.Second, 1), told("s", "r", 15*time.Millisecond, 1)}, trace.Some[int64](1), LimitLog, false},
		{"two starts with others", two, WaitOptions{}, []trace.EngineLimits{told("s", "r", -time.Second, 1), told("s", "r", 15*time.Millisecond, 2)}, none, "", true},
	} {
		ws, later := NewWaits(c.opts), NewWaits(c.opts)
		for _, r := range reqtext.MustParse(t, c.text) {
			ws.Add(r)
		}
		for i, l := range c.told {
			if i%2 == 0 {
				ws.AddLimits(l)
			} else {
				later.AddLimits(l)
			}
		}
		ws.Merge(later)
		for _, rep := range ws.Result().Replicas {
			if rep.Replica != "r" {
				continue
			}
			l := rep.Limits
			if l.Slots.Value != c.slots || l.Slots.How != c.how || l.Changed != c.changed {
				t.Errorf("%s: slots %+v, changed %v", c.name, l.Slots, l.Changed)
			}
		}
	}
}

// Requests of a log, stamped to the second, do not blur those of spans that
// share their replica.
func TestWaitsCoarse(t *testing.T) {
	ws := NewWaits(WaitOptions{Slots: trace.Some[int64](1)})
	for _, r := range reqtext.MustParse(t, `
a queued=0 scheduled=0 last=10ms end=10ms decode=0..10ms replica=r
b queued=0 scheduled=10ms last=20ms end=20ms queueing=0..10ms decode=10ms..20ms replica=r
`) {
		ws.Add(r)
	}
	for _, r := range reqtext.MustParse(t, `
l arrival=0 first=0 last=1s end=1s decode=0..1s replica=r
`) {
		r.Resolution = time.Second
		ws.Add(r)
	}
	res := ws.Result()
	if res.Untold != 1 || res.Replicas[0].RunningPeak != 1 || res.Replicas[0].ToleranceNS >= int64(time.Millisecond) {
		t.Errorf("untold %d, at most %d, tolerance %d", res.Untold, res.Replicas[0].RunningPeak, res.Replicas[0].ToleranceNS)
	}
}

// The lines of engines have what logs say of them: of one engine, or of all of
// a server's; the last start counts, and an engine without readings has a line
// of its own.
func TestEngineLimits(t *testing.T) {
	reading := func(replica string) trace.Reading {
		return trace.Reading{Clock: trace.ClockUnix, At: reqtext.Base, Replica: replica, Running: trace.Some(1), Waiting: trace.Some(0)}
	}
	told := func(replica string, at time.Duration, slots, kv int64) trace.EngineLimits {
		l := trace.EngineLimits{Clock: trace.ClockUnix, Replica: replica, At: trace.At(reqtext.Base.Add(at), trace.Measured)}
		if slots > 0 {
			l.Slots = trace.Some(slots)
		}
		if kv > 0 {
			l.KVTokens = trace.Some(kv)
		}
		return l
	}
	a := New(Options{})
	for _, name := range []string{"engine 0", "engine 1", "b engine 0", "engine x"} {
		a.AddReading(reading(name))
	}
	for _, l := range []trace.EngineLimits{told("", time.Second, 6, 0), told("engine 1", 0, 5, 700), told("b engine 0", 0, 7, 0), told("c", 0, 8, 0)} {
		a.AddLimits(l)
	}
	b := New(Options{})
	b.Add(&trace.Request{Clock: trace.ClockUnix, Resolution: time.Second, Arrival: trace.At(reqtext.Base, trace.Measured), Replica: "a", ReplicaInferred: true})
	a.Merge(b)
	rep, _ := a.Explain()
	if !slices.ContainsFunc(rep.Limits, func(s string) bool { return strings.Contains(s, "(inferred)") }) {
		t.Errorf("nothing says that a replica's name is inferred: %q", rep.Limits)
	}
	got := map[string][2]int64{}
	for _, e := range rep.Engines {
		got[e.Replica] = [2]int64{e.Slots.Or(0), e.KVTokens.Or(0)}
	}
	want := map[string][2]int64{"engine 0": {6, 0}, "engine 1": {6, 700}, "b engine 0": {7, 0}, "engine x": {0, 0}, "c": {8, 0}}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestEngineAt(t *testing.T) {
	for _, c := range []struct {
		reading, replica string
		want             bool
	}{
		{"a", "a", true}, {"a engine 0", "a", true}, {"engine 3", "", true}, {"", "", true},
		{"ab", "a", false}, {"a engine x", "a", false}, {"aengine 0", "a", false}, {"a", "a engine 0", false}, {"b engine 0", "", false},
	} {
		if got := engineAt(c.reading, c.replica); got != c.want {
			t.Errorf("%q at %q: %v", c.reading, c.replica, got)
		}
	}
}
