package export

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/trace"
)

func TestShorten(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{
		{"replica-0", 9, "replica-0"}, {"replica-0", 8, "repl…a-0"}, {"abc", 1, "…"}, {"abc", 0, ""}, {"", 0, ""},
		{"日本語モデル", 12, "日本語モデル"}, {"日本語モデル", 9, "日本…デル"}, {"日本語モデル", 8, "日本…ル"}, {"日本語", 2, "…"},
		{"e\u0301e\u0301e\u0301e\u0301", 3, "e\u0301…e\u0301"}, // no accent without its letter
		{"👩‍👩‍👧‍👦 family of four", 8, "👩‍👩‍👧‍👦 f…our"},
	} {
		if got := shorten(c.s, c.n); got != c.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", c.s, c.n, got, c.want)
		}
	}
}

func FuzzShorten(f *testing.F) {
	f.Add("org/a-model-with-a-long-name", 12)
	f.Add("日本語モデル", 7)
	f.Fuzz(func(t *testing.T, s string, n int) {
		if n < 0 || n > 1000 || !utf8.ValidString(s) {
			return
		}
		got := shorten(s, n)
		if cells(s) <= n {
			if got != s {
				t.Fatalf("%q fits into %d and is %q", s, n, got)
			}
			return
		}
		if n == 0 {
			return
		}
		if w := cells(got); w > n {
			t.Fatalf("%q takes %d cells, not %d", got, w, n)
		}
		// Some way to divide it at an ellipsis gives the ends of s.
		for i, r := range got {
			if r == '…' && strings.HasPrefix(s, got[:i]) && strings.HasSuffix(s, got[i+len("…"):]) {
				return
			}
		}
		t.Fatalf("%q is cut to %q without a mark", s, got)
	})
}

// drawName draws a name of any kind, short or long.
func drawName(rnd *rand.Rand) string {
	parts := []string{"a", "replica", "-", "7f9c8d6b5-x2kzq", "org/", "Meta-Llama-3.1-405B-Instruct", ".", "日本語", "e\u0301", "👍🏽", "👩‍👩‍👧‍👦", " ", "שלום", "\x1b[31m", "\u200b", "(none)", "_", "|", "ﷺ", "0123456789"}
	var b strings.Builder
	for range rnd.IntN([]int{1, 2, 6, 30}[rnd.IntN(4)]) {
		b.WriteString(parts[rnd.IntN(len(parts))])
	}
	return b.String()
}

// No line is wider than the page, whatever the input calls its things, and
// however large its numbers are.
func TestNoLineIsTooWide(t *testing.T) {
	rnd := rand.New(rand.NewPCG(8, 0))
	for i := range 60 {
		pool := make([]string, 3+rnd.IntN(12))
		for j := range pool {
			pool[j] = drawName(rnd)
		}
		any := func() string { return pool[rnd.IntN(len(pool))] }
		unit := []time.Duration{1, time.Microsecond, time.Millisecond, time.Second, time.Hour}[rnd.IntN(5)]
		by := make([]string, rnd.IntN(5))
		for j := range by {
			by[j] = fmt.Sprint(drawName(rnd), j)
		}
		opts := analyze.Options{By: by}
		if rnd.IntN(3) == 0 {
			opts.Quantiles = []float64{0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999}
		}
		if rnd.IntN(2) == 0 {
			opts.Wait.Slots = trace.Some(int64(1 + rnd.IntN(3)))
		}
		opts.Wait.OverTime = true
		a := analyze.New(opts)
		waits, windows := analyze.NewWaits(analyze.WaitOptions{By: by, OverTime: true}), analyze.NewWindows(analyze.WindowOptions{})
		at := trace.Time(1_760_000_000_000_000_000)
		for j := range 2 + rnd.IntN(60) {
			at += trace.Time(rnd.Int64N(int64(unit)) + 1)
			span := func() trace.Time { return trace.Time(rnd.Int64N(2*int64(unit)) + 1) }
			q := at + span()
			s := q + span()*trace.Time(rnd.IntN(3))
			f := s + span()
			l := f + span()
			r := &trace.Request{
				ID: any(), Clock: trace.ClockUnix, Resolution: 1, Service: any(), Model: any(), Replica: any(), Outcome: trace.OK,
				Source:  trace.Source{Format: "otlp-json", Engine: any(), Pos: trace.Pos{File: any(), Line: j}},
				Arrival: trace.At(at, trace.Measured), Queued: trace.At(q, trace.Measured), Scheduled: trace.At(s, trace.Measured),
				FirstToken: trace.At(f, trace.Measured), LastToken: trace.At(l, trace.Measured), Completed: trace.At(l, trace.Measured),
				Input: trace.Some(rnd.IntN(1 << 30)), Output: trace.Some(rnd.IntN(1 << 30)),
				Attrs: []trace.Attr{{Key: "tenant", Value: trace.StringValue(any())}, {Key: "host.name", Value: trace.StringValue(any())}, {Key: "gpu." + any(), Value: trace.StringValue(any())}, {Key: "sampling.rule", Value: trace.StringValue(any())}},
				Intervals: []trace.Interval{
					{Phase: trace.Arrival | trace.Queueing | trace.Transfer | trace.Completion, Start: at, End: q}, {Phase: trace.Queueing, Start: q, End: s},
					{Phase: trace.Prefill, Start: s, End: f}, {Phase: trace.Decode, Start: f, End: l},
				},
			}
			for _, k := range by {
				r.Attrs = append(r.Attrs, trace.Attr{Key: k, Value: trace.StringValue(any())})
			}
			a.Add(r)
			waits.Add(r)
			windows.Add(r)
			reading := trace.Reading{At: q, Clock: trace.ClockUnix, Service: any(), Replica: any(), Source: r.Source, Running: trace.Some(rnd.IntN(1 << 30)), Waiting: trace.Some(rnd.IntN(1 << 30))}
			a.AddReading(reading)
			windows.AddReading(reading)
		}
		rep, why := a.Explain()
		if rnd.IntN(2) == 0 && len(why.Replicas) > 0 {
			why.Replicas[0].Stalls = append(why.Replicas[0].Stalls, analyze.StallSpan{StartNS: int64(at), EndNS: int64(at) + int64(unit)*60, Running: 1 << 30, Confirmed: true})
		}
		result := waits.Result()
		series, err := windows.Result(result.Parts)
		if err != nil {
			t.Fatal(err)
		}
		line := &analyze.Timeline{Windows: series, Changes: result.OverTime}
		for _, width := range []int{60, 80, 100, 140} {
			o := TextOptions{Width: width}
			for name, write := range map[string]func(*bytes.Buffer) error{
				"report":   func(b *bytes.Buffer) error { return WriteText(b, rep, o) },
				"waiting":  func(b *bytes.Buffer) error { return WriteWaiting(b, why, rep, o) },
				"timeline": func(b *bytes.Buffer) error { return WriteTimeline(b, line, TimelineOptions{TextOptions: o}) },
			} {
				var b bytes.Buffer
				if err := write(&b); err != nil {
					t.Fatal(err)
				}
				for l := range strings.Lines(b.String()) {
					if l = strings.TrimSuffix(l, "\n"); uniseg.StringWidth(l) > width {
						t.Fatalf("case %d, %s: %d cells in a width of %d\n%s\n", i, name, uniseg.StringWidth(l), width, l)
					}
				}
			}
		}
	}
}
