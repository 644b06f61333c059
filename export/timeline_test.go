package export

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

// timeline is a timeline without changes. Of each wait the first half is for
// slots and the rest for the step.
func timeline(t testing.TB, every time.Duration, rs []*trace.Request, readings ...trace.Reading) *analyze.Timeline {
	t.Helper()
	windows := analyze.NewWindows(analyze.WindowOptions{Every: every})
	for _, r := range rs {
		windows.Add(r)
	}
	for _, r := range readings {
		windows.AddReading(r)
	}
	w, err := windows.Result(func(i int) (parts []analyze.WaitPart) {
		for _, g := range rs[i].Segments(nil) {
			if g.Phase.Kind() == trace.Waiting {
				mid := g.Start + (g.End-g.Start)/2
				parts = append(parts, analyze.WaitPart{Start: g.Start, End: mid, Cause: analyze.CauseSlots}, analyze.WaitPart{Start: mid, End: g.End, Cause: analyze.CauseStep})
			}
		}
		return parts
	})
	if err != nil {
		t.Fatal(err)
	}
	return &analyze.Timeline{Windows: w, Changes: &analyze.ChangeResult{}}
}

// rising is a minute in which ever more requests wait, on two replicas.
func rising(t testing.TB) []*trace.Request {
	var b strings.Builder
	for i := range 60 {
		name := []string{"blue", "green"}[i%2]
		wait := 0
		if i >= 20 {
			wait = i - 20
		}
		fmt.Fprintf(&b, "r%d replica=%s arrival=%ds end=%ds queueing=%ds..%ds prefill=%ds..%ds decode=%ds..%ds out=20\n",
			i, name, i, i+wait+6, i, i+wait, i+wait, i+wait+1, i+wait+1, i+wait+6)
	}
	return reqtext.MustParse(t, b.String())
}

// changed is rising with a change of each kind.
func changed(t testing.TB) *analyze.Timeline {
	tl := timeline(t, 2*time.Second, rising(t))
	at := func(s int) int64 { return int64(reqtext.Base) + int64(s)*int64(time.Second) }
	blue, green := analyze.ReplicaName{Replica: "blue"}, analyze.ReplicaName{Replica: "green"}
	num := trace.Some[float64]
	tl.Changes = &analyze.ChangeResult{
		Changes: []analyze.Change{
			{Of: analyze.OfOverload, Phase: "queueing", Replica: blue, AtNS: trace.Some(at(20)), FromNS: at(10), ToNS: at(30), Cause: "slots",
				CapacityPerS: num(0.25), OfferedPerS: num(0.5), Z: num(5.2)},
			{Of: analyze.OfSpeed, Phase: "decode", Replica: green, AtNS: trace.Some(at(40)), FromNS: at(38), ToNS: at(44), Ratio: num(1.104), DecodeRatio: num(1.102), PrefillRatio: num(1.03), P: num(0.002)},
			{Of: analyze.OfSpeed, Phase: "prefill", Replica: blue, FromNS: at(50), ToNS: at(58), Ratio: num(0.9), DecodeRatio: num(1.001), PrefillRatio: num(0.8), P: num(0.002)},
			{Of: analyze.OfStall, Replica: green, AtNS: trace.Some(at(70)), FromNS: at(70), ToNS: at(73)},
			{Of: analyze.OfArrivals, Replica: blue, AtNS: trace.Some(at(80)), FromNS: at(76), ToNS: at(84), ArrivalsBefore: num(0.5), ArrivalsAfter: num(1.25), Z: num(6.1),
				WaitingBefore: num(0.2), WaitingAfter: num(7.5), RunningBefore: num(3), RunningAfter: num(8)},
		},
		Tests: []analyze.ChangeTest{
			{Of: analyze.OfSpeed, Replica: blue, Outcome: analyze.Changed, Requests: 300, P: num(0.002)},
			{Of: analyze.OfSpeed, Replica: green, Outcome: analyze.Changed, Requests: 300, P: num(0.002)},
			{Of: analyze.OfOverload, Replica: blue, Outcome: analyze.Changed, Requests: 300, Z: num(5.2)},
			{Of: analyze.OfOverload, Replica: green, Outcome: analyze.Steady, Requests: 300, Z: num(1.25)},
			{Of: analyze.OfArrivals, Replica: blue, Outcome: analyze.Changed, Requests: 300, Z: num(6.1)},
			{Of: analyze.OfArrivals, Replica: green, Outcome: analyze.Steady, Requests: 300, Z: num(1.5)},
			{Of: analyze.OfStall, Replica: blue, Outcome: analyze.NotTested, Reason: "no model of a step fits", Requests: 300},
			{Of: analyze.OfStall, Replica: green, Outcome: analyze.Changed, Requests: 300},
		},
	}
	return tl
}

func timelines(t testing.TB) map[string]*analyze.Timeline {
	model := reqtext.MustParse(t, `
r1 arrival=0   end=5ms  prefill|decode=0..5ms
r2 arrival=1ms end=10ms queueing=1ms..5ms  prefill|decode=5ms..10ms
r3 arrival=2ms end=15ms queueing=2ms..10ms prefill|decode=10ms..15ms
r4 arrival=3ms end=20ms queueing=3ms..15ms prefill|decode=15ms..20ms
`)
	log := reqtext.MustParse(t, "a arrival=0 end=30s resolution=1s\nb arrival=5s end=9s resolution=1s\n")
	var readings []trace.Reading
	for i, n := range []int{0, 2, 5, 1} {
		readings = append(readings, trace.Reading{
			Clock: trace.ClockUnix, Resolution: time.Second, At: reqtext.Base.Add(time.Duration(i) * 10 * time.Second),
			Running: trace.Some(8), Waiting: trace.Some(n), KVUsage: trace.Some(float64(n) / 10),
		})
	}
	steady := timeline(t, 5*time.Millisecond, model)
	for _, of := range []string{analyze.OfSpeed, analyze.OfOverload, analyze.OfStall} {
		steady.Changes.Tests = append(steady.Changes.Tests, analyze.ChangeTest{Of: of, Outcome: analyze.Steady, Requests: 4})
	}
	return map[string]*analyze.Timeline{
		"model": steady, "log": timeline(t, 10*time.Second, log, readings...),
		"changes": changed(t), "empty": timeline(t, 0, nil),
	}
}

func TestTimelineGolden(t *testing.T) {
	for name, tl := range timelines(t) {
		var b bytes.Buffer
		if err := WriteTimeline(&b, tl, TimelineOptions{}); err != nil {
			t.Fatal(err)
		}
		golden(t, "timeline-"+name+".txt", b.Bytes())
	}
	var b bytes.Buffer
	if err := WriteTimeline(&b, changed(t), TimelineOptions{TextOptions: TextOptions{Width: 60}, ASCII: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, "timeline-ascii.txt", b.Bytes())
}

// Drawings keep to the width, at any width; ASCII is ASCII; every change has
// its mark.
func TestTimelineShapes(t *testing.T) {
	all := timelines(t)
	all["many"] = timeline(t, 100*time.Millisecond, rising(t))
	for name, tl := range all {
		for width := 40; width <= 140; width += 7 {
			for _, ascii := range []bool{false, true} {
				var b bytes.Buffer
				if err := WriteTimeline(&b, tl, TimelineOptions{TextOptions: TextOptions{Width: width}, ASCII: ascii}); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(b.String()) {
					line = strings.TrimSuffix(line, "\n")
					if strings.HasSuffix(line, " ") {
						t.Errorf("%s, width %d: blanks behind %q", name, width, line)
					}
					if n := utf8.RuneCountInString(line); n > width && !strings.Contains(line, "  0 ") && strings.ContainsAny(line, "┤█└") {
						t.Errorf("%s, width %d: a drawing of %d columns: %q", name, width, n, line)
					}
					if ascii && strings.ContainsFunc(line, func(r rune) bool { return r > 126 }) {
						t.Errorf("%s: not ASCII: %q", name, line)
					}
					if marks, ok := strings.CutPrefix(strings.TrimSpace(line), "changes "); ok && name == "changes" {
						if got := strings.Join(strings.Fields(marks), ""); got != "12345" {
							t.Errorf("width %d: marks %q", width, marks)
						}
					}
				}
			}
		}
	}
}

func TestTimelineJSON(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTimelineJSON(&b, changed(t)); err != nil {
		t.Fatal(err)
	}
	var back analyze.Timeline
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	var again bytes.Buffer
	if err := WriteTimelineJSON(&again, &back); err != nil {
		t.Fatal(err)
	}
	if b.String() != again.String() {
		t.Error("what was read back is written differently")
	}
}

// TestTimelineKeys holds the description of the keys to the type.
func TestTimelineKeys(t *testing.T) {
	var want []string
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		switch {
		case typ.Kind() == reflect.Pointer:
			walk(path, typ.Elem())
		case typ.Kind() == reflect.Slice:
			walk(path+"[]", typ.Elem())
		case typ.Kind() == reflect.Struct && !strings.HasPrefix(typ.Name(), "Opt["):
			for i := range typ.NumField() {
				walk(strings.TrimPrefix(path+"."+typ.Field(i).Tag.Get("json"), "."), typ.Field(i).Type)
			}
		default:
			want = append(want, path)
		}
	}
	walk("", reflect.TypeFor[analyze.Timeline]())
	for _, p := range want {
		if !slices.ContainsFunc(TimelineKeys, func(k JSONKey) bool { return k.covers(p) }) {
			t.Errorf("%s is not described", p)
		}
	}
	for _, k := range TimelineKeys {
		if !slices.ContainsFunc(want, k.covers) || k.Meaning == "" {
			t.Errorf("%s is described and not there, or without words", k.Key)
		}
	}
}

// The CSV has every window of every series, and its times add up to the
// requests'.
func TestTimelineCSV(t *testing.T) {
	tl := changed(t)
	var b bytes.Buffer
	if err := WriteCSV(&b, tl.Tables()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"windows,all 0,arrivals,2,requests\r\n", "windows,replica green 0,arrivals,1,requests\r\n",
		"changes,2 speed green,time_ratio,1.104,\r\n", "changes,1 overload blue,cause,slots,\r\n",
		"change_tests,stall blue,outcome,not tested,\r\n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no line %q", want)
		}
	}
	i := slices.Index(tl.Windows.Phases, "queueing")
	var ns int64
	for _, w := range tl.Windows.Series[0].Windows {
		ns += w.PhaseNS[i]
	}
	if want := int64(780 * time.Second); ns != want { // 1 + 2 + … + 39
		t.Errorf("queueing %d, want %d", ns, want)
	}
}
