package analyze

import (
	stdflag "flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

var update = stdflag.Bool("update", false, "rewrite the measured blocks of docs/accuracy.md")

// NoteBlock holds a block of docs/accuracy.md to what was measured: with
// -update it is rewritten from all lines, else each of the lines that part
// makes must stand in it.
func NoteBlock(t *testing.T, name string, part, all func() []string) {
	t.Helper()
	const file = "../docs/accuracy.md"
	var lines []string
	if *update {
		lines = all()
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(b), "<!-- "+name+" -->\n```text\n")
	block, tail, closed := strings.Cut(rest, "```\n")
	if !ok || !closed {
		t.Fatalf("%s has no block %q", file, name)
	}
	if *update {
		text := head + "<!-- " + name + " -->\n```text\n" + strings.Join(lines, "\n") + "\n```\n" + tail
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	have := strings.Split(block, "\n")
	for _, line := range part() {
		if !slices.Contains(have, line) {
			t.Errorf("%s, block %q: no such line; run this test with -update:\n%s", file, name, line)
		}
	}
}

// TestNoteChanges holds the note to the error rates of changes over time: what
// is raised on steady runs, and what is found where every step takes longer
// from an instant on, or the engine froze then.
func TestNoteChanges(t *testing.T) {
	const length, at = 5 * time.Minute, 155 * time.Second
	for _, c := range []struct {
		name   string
		factor float64
		freeze time.Duration
	}{{"steady", 1, 0}, {"slower by 5 %", 1.05, 0}, {"slower by 10 %", 1.1, 0}, {"slower by 30 %", 1.3, 0}, {"frozen for 3 s", 1, 3 * time.Second}} {
		lines := func(l load, seeds uint64) string {
			if c.freeze > 0 {
				l.engine.Freezes = []sim.Freeze{{Replica: 0, From: at, For: c.freeze}}
			}
			var found [3]int
			for seed := range seeds {
				var rs []*trace.Request
				if c.factor == 1 {
					rs = l.run(t, seed, length)
				} else {
					rs, _ = l.slowed(t, seed, length, at, c.factor)
				}
				r := overTime(rs)
				for i, of := range []string{OfSpeed, OfOverload, OfStall} {
					if r.of(of) != nil {
						found[i]++
					}
				}
			}
			return fmt.Sprintf("%-20s %3d runs: speed %3d, overload %3d, stall %3d", l.name, seeds, found[0], found[1], found[2])
		}
		t.Run(c.name, func(t *testing.T) {
			NoteBlock(t, c.name, func() []string { return []string{lines(loads()[0], 3)} }, func() (out []string) {
				out = []string{lines(loads()[0], 3)}
				for _, l := range loads() {
					out = append(out, lines(l, 200))
				}
				return out
			})
		})
	}
}

// TestNoteArrivals holds the note to the errors of changes of the arrival rate.
func TestNoteArrivals(t *testing.T) {
	const length = 5 * time.Minute
	for _, c := range []struct {
		name   string
		factor float64
	}{{"arrivals steady", 1}, {"arrivals by 1.25", 1.25}, {"arrivals by 1.5", 1.5}, {"arrivals by 2", 2}} {
		lines := func(l load, seeds uint64) string {
			var off []float64
			for seed := range seeds {
				if x := overTime(l.stepped(t, seed, length, c.factor)).of(OfArrivals); x != nil {
					off = append(off, trace.Time(x.AtNS.Or(0)).Sub(sim.Base.Add(length/2)).Abs().Seconds())
				}
			}
			line := fmt.Sprintf("%-20s %3d runs: arrivals %3d", l.name, seeds, len(off))
			if slices.Sort(off); len(off) > 0 && c.factor > 1 {
				line += fmt.Sprintf(", off by %.1f s at the median, %.1f s at most", off[len(off)/2], off[len(off)-1])
			}
			return line
		}
		t.Run(c.name, func(t *testing.T) {
			NoteBlock(t, c.name, func() []string { return []string{lines(loads()[0], 3)} }, func() (out []string) {
				out = []string{lines(loads()[0], 3)}
				for _, l := range loads() {
					out = append(out, lines(l, 200))
				}
				near := loads()[1]
				near = near.with(0.95 * near.capacity(t))
				near.name = "0.95 of capacity"
				return append(out, lines(near, 200))
			})
		})
	}
}
