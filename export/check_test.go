package export

import (
	"bytes"
	"strings"
	"testing"

	"github.com/traceview/traceview/analyze"
)

func TestWriteCheckText(t *testing.T) {
	r := &analyze.CheckReport{
		Inputs: 2, Requests: 1200, Readings: 1,
		Issues: []analyze.CheckIssue{
			{Code: "bad-span", Severity: "dropped", Count: 7, Meaning: "a span cannot be read and was left out", Do: "look at the position", First: []string{"a.json:3: x", "a.json:4: y"}},
			{Code: "duplicate-span", Severity: "note", Count: 1, Meaning: "twice", Do: "nothing", First: []string{"b"}},
		},
		Reported: []analyze.ReportedFigure{
			{Name: "e2e", Requests: 1100, Differ: 3, MinNS: -2_000_000, MedianNS: 0, MaxNS: 500},
			{Name: "ttft", Requests: 1, Differ: 0},
		},
		Physics: analyze.Physics{Laws: []analyze.Law{
			{Law: "nesting", Statement: "an inner span lies in the outer", Verdict: analyze.Fails, Found: "3 of 7 do not", Likely: "clocks differ", Distrust: []string{"ttft", "the order of events"}, Example: "r1 (a.json:9)"},
			{Law: "depth", Verdict: analyze.Untested, Found: "no engine readings go with these"},
			{Law: "sampling", Verdict: analyze.Untested, Found: "no engine readings go with these"},
			{Law: "little", Verdict: analyze.Untested, Found: "nobody waited"},
			{Law: "order", Verdict: analyze.Holds, Found: "in all"},
			{Law: "tokens", Verdict: analyze.Holds, Found: "in all"},
		}},
	}
	const want = `1,200 requests in 2 inputs, 1 reading of engine state

DROPPED  bad-span × 7
  what   a span cannot be read and was
         left out
  do     look at the position
  first  a.json:3: x
         a.json:4: y
         and 5 more

NOTE  duplicate-span × 1
  what   twice
  do     nothing
  first  b

FAILS  nesting: an inner span lies in
       the outer
  found     3 of 7 do not
  likely    clocks differ
  distrust  ttft; the order of events
  furthest  r1 (a.json:9)

Cannot be tested
  depth, sampling: no engine readings go
                   with these
  little: nobody waited

Holds: order, tokens

The source's own figures less ours (by the definitions)
  e2e   differs in 3 of 1,100 requests: least -2 ms, median 0 ns, most 500 ns
  ttft  differs in 0 of 1 request
`
	var b bytes.Buffer
	if err := WriteCheckText(&b, r, TextOptions{Width: 40}); err != nil {
		t.Fatal(err)
	}
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	r.Issues, r.Reported = nil, nil
	if err := WriteCheckText(&b, r, TextOptions{}); err != nil || strings.Contains(b.String(), "nothing wrong") {
		t.Errorf("a law fails, and yet: %v\n%s", err, b.String())
	}
	b.Reset()
	if err := WriteCheckText(&b, &analyze.CheckReport{Inputs: 1, Requests: 1}, TextOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), "1 request in 1 input: nothing wrong found\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
