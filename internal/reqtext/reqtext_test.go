package reqtext

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

func TestParse(t *testing.T) {
	text := `
# a comment line
r1 arrival=0 end=100ms first=40ms queueing=0..10ms prefill=10ms..38ms decode=40ms..100ms out=13  # and one behind
"a b" arrival=~-3ms end=?1.5s queueing|prefill=~0..3s outcome=error @tenant=7 @share=0.5 @ok=true @note="7" @list=json:[1,2] @none= service="x y"
r3 clock=relative arrival=5ns in=4 cached=1 max=9 preemptions=2 reported.ttft=12µs issue=clock-skew issue=bad-number resolution=1s
`
	rs, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	ms := func(n int64) trace.Time { return Base + trace.Time(n*1e6) }
	want := []*trace.Request{{
		ID: "r1", Clock: trace.ClockUnix, Resolution: 1, Outcome: trace.OK,
		Arrival: trace.At(ms(0), trace.Measured), FirstToken: trace.At(ms(40), trace.Measured), Completed: trace.At(ms(100), trace.Measured),
		Intervals: []trace.Interval{
			{Phase: trace.Queueing, Basis: trace.Measured, Start: ms(0), End: ms(10)},
			{Phase: trace.Prefill, Basis: trace.Measured, Start: ms(10), End: ms(38)},
			{Phase: trace.Decode, Basis: trace.Measured, Start: ms(40), End: ms(100)},
		},
		Output: trace.Some(13),
	}, {
		ID: "a b", Clock: trace.ClockUnix, Resolution: 1, Outcome: trace.Error, Service: "x y",
		Arrival: trace.At(ms(-3), trace.Derived), Completed: trace.At(ms(1500), trace.Inferred),
		Intervals: []trace.Interval{{Phase: trace.Queueing | trace.Prefill, Basis: trace.Derived, Start: ms(0), End: ms(3000)}},
		Attrs: []trace.Attr{
			{Key: "list", Value: trace.JSONValue("[1,2]")}, {Key: "none"}, {Key: "note", Value: trace.StringValue("7")},
			{Key: "ok", Value: trace.BoolValue(true)}, {Key: "share", Value: trace.FloatValue(0.5)}, {Key: "tenant", Value: trace.IntValue(7)},
		},
	}, {
		ID: "r3", Clock: trace.ClockRelative, Resolution: time.Second,
		Arrival: trace.At(5, trace.Measured),
		Input:   trace.Some(4), Cached: trace.Some(1), MaxTokens: trace.Some(9), Preemptions: trace.Some(2),
		Reported: trace.Reported{TTFT: trace.Some(12 * time.Microsecond)},
		Issues:   []trace.Issue{{Code: trace.ClockSkew, Severity: trace.Degraded}, {Code: trace.BadNumber, Severity: trace.Degraded}},
	}}
	if len(rs) != len(want) {
		t.Fatalf("%d requests, want %d", len(rs), len(want))
	}
	for i := range want {
		if !reflect.DeepEqual(rs[i], want[i]) {
			t.Errorf("request %d:\n got %s\nwant %s", i, Format(rs[i]), Format(want[i]))
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"arrival=0":                  "id should be",
		"@a=0":                       "id should be",
		"r arrival=10":               "missing unit",
		"r arrival":                  "no value",
		"r tenant=a":                 "@tenant",
		"r unattributed=0..1s":       "no such field",
		"r prefill=3s":               "start..end",
		"r arrival=0 arrival=1s":     "twice",
		"r @a=1 @a=2":                "twice",
		"r @decode=0..1 @decode=2":   "twice",
		"r outcome=fine":             "outcome",
		"r clock=wall":               "clock",
		"r in=x":                     "invalid syntax",
		"ok\n\nr in=x":               "line 3",
		`r model="a`:                 "unfinished",
		`r model="a"b`:               "without a blank",
		"r queueing=0..x":            "invalid duration",
		"r decode=~x..1s":            "invalid duration",
		"r reported.e2e=a":           "invalid duration",
		"r resolution=1":             "missing unit",
		"r queueing|nothing=0..10ms": "no such field",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q): %v, want %q", text, err, want)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, line := range []string{
		"r1 arrival=0 first=40ms end=100ms queueing=0..10ms prefill=10ms..38ms decode=40ms..100ms out=13",
		`"" arrival=?2h end=~2h3m outcome=incomplete`,
		"r clock=monotonic arrival=3m5s queued=1h0m3s outcome=ok",
		`"@a=b" outcome=rejected @f=3.0 @j=json:"{\"a\":\x201}" @t="true" @u= @"x=y"="a b"`,
	} {
		rs, err := Parse(line)
		if err != nil || len(rs) != 1 {
			t.Fatalf("%s: %v", line, err)
		}
		if got := Format(rs[0]); got != line {
			t.Errorf("\n got %s\nwant %s", got, line)
		}
	}
}

// TestRoundTrip parses what Format prints of random requests.
func TestRoundTrip(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		r := random(rnd)
		line := Format(r)
		back, err := Parse(line)
		if err != nil || len(back) != 1 {
			t.Fatalf("%s: %v", line, err)
		}
		if !reflect.DeepEqual(back[0], r) {
			t.Fatalf("\nprinted %s\n   then %s", line, Format(back[0]))
		}
	}
}

func random(rnd *rand.Rand) *trace.Request {
	word := func() string {
		runes := []rune("ab 0=#@\"\\\n\u00a0é~?.:-\ufffd1e")
		n := rnd.IntN(6)
		var s []rune
		for range n {
			s = append(s, runes[rnd.IntN(len(runes))])
		}
		if rnd.IntN(20) == 0 {
			return string(s) + "\xff"
		}
		return string(s)
	}
	at := func(base trace.Time) trace.Time { return base + trace.Time(rnd.Int64N(1<<rnd.IntN(63)+1)-1000) }
	r := &trace.Request{ID: word(), Clock: trace.Clock(rnd.IntN(4)), Resolution: time.Duration(1 + rnd.Int64N(2)*999_999_999), Outcome: trace.Outcome(rnd.IntN(5))}
	var base trace.Time
	if r.Clock == trace.ClockUnix {
		base = Base
	}
	for _, e := range instants {
		if rnd.IntN(2) == 0 {
			*e.at(r) = trace.At(at(base), trace.Basis(1+rnd.IntN(3)))
		}
	}
	for _, e := range counts {
		if rnd.IntN(2) == 0 {
			*e.at(r) = trace.Some(rnd.IntN(1000))
		}
	}
	for _, e := range words {
		if rnd.IntN(2) == 0 {
			*e.at(r) = word()
		}
	}
	for _, e := range reports {
		if rnd.IntN(4) == 0 {
			*e.at(r) = trace.Some(time.Duration(at(0)))
		}
	}
	for range rnd.IntN(4) {
		r.Intervals = append(r.Intervals, trace.Interval{Phase: trace.Phase(1 + rnd.IntN(127)), Basis: trace.Basis(1 + rnd.IntN(3)), Start: at(base), End: at(base)})
	}
	for range rnd.IntN(4) {
		v := []trace.Value{
			{}, trace.StringValue(word()), trace.IntValue(rnd.Int64()), trace.FloatValue(rnd.NormFloat64()), trace.FloatValue(float64(rnd.IntN(9))),
			trace.BoolValue(rnd.IntN(2) == 0), trace.JSONValue(word()), trace.StringValue("1.5"), trace.StringValue("json:1"), trace.StringValue("NaN"),
		}
		r.SetAttr(word(), v[rnd.IntN(len(v))])
	}
	if rnd.IntN(3) == 0 {
		r.Issues = append(r.Issues, trace.Issue{Code: trace.ClockSkew, Severity: trace.Degraded})
	}
	return r
}

func FuzzParse(f *testing.F) {
	f.Add("r1 arrival=0 end=100ms queueing|prefill=~0..10ms @a=1\n")
	f.Add(`"a b" clock=relative end=?1h @"x"="y" issue=bad-number reported.e2e=3s`)
	f.Fuzz(func(t *testing.T, text string) {
		rs, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(FormatAll(rs))
		if err != nil {
			t.Fatalf("%v in\n%s", err, FormatAll(rs))
		}
		if len(rs) != len(again) {
			t.Fatalf("%d requests, then %d", len(rs), len(again))
		}
		for i := range rs {
			if !reflect.DeepEqual(rs[i], again[i]) {
				t.Fatalf("\n%s\n%s", Format(rs[i]), Format(again[i]))
			}
		}
	})
}

func TestSort(t *testing.T) {
	rs := MustParse(t, "b arrival=1s\na arrival=1s\nc\nd arrival=0s")
	Sort(rs)
	var ids string
	for _, r := range rs {
		ids += r.ID
	}
	if ids != "cdab" {
		t.Errorf("order %s", ids)
	}
}
