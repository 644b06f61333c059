package export

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/units"
)

// WriteCheckJSON writes what was odd about an input as one JSON object, with
// the keys of [analyze.CheckReport].
func WriteCheckJSON(w io.Writer, r *analyze.CheckReport) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteCheckText writes it for people: a block for each code, worst first,
// then the laws that fail, cannot be tested and hold, then how far the source's
// own figures differ from ours.
func WriteCheckText(w io.Writer, r *analyze.CheckReport, opts TextOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s in %s", plural(r.Requests, "request"), plural(int64(r.Inputs), "input"))
	if r.Readings > 0 {
		fmt.Fprintf(&b, ", %s of engine state", plural(r.Readings, "reading"))
	}
	switch {
	case len(r.Issues) == 0 && r.Requests+r.Readings > 0 && !slices.ContainsFunc(r.Physics.Laws, failed):
		b.WriteString(": nothing wrong found\n")
	default:
		b.WriteByte('\n')
	}
	for _, i := range r.Issues {
		fmt.Fprintf(&b, "\n%s  %s × %s\n", strings.ToUpper(i.Severity), i.Code, units.Count(i.Count))
		wrap(&b, "  what   ", i.Meaning, opts.Width)
		wrap(&b, "  do     ", i.Do, opts.Width)
		for n, f := range i.First {
			label := "         "
			if n == 0 {
				label = "  first  "
			}
			b.WriteString(label + f + "\n")
		}
		if rest := i.Count - int64(len(i.First)); rest > 0 {
			fmt.Fprintf(&b, "         and %s more\n", units.Count(rest))
		}
	}
	writeLaws(&b, r.Physics.Laws, opts.Width)
	if len(r.Reported) > 0 {
		b.WriteString("\nThe source's own figures less ours (by the definitions)\n")
		for _, f := range r.Reported {
			fmt.Fprintf(&b, "  %-5s differs in %s of %s", f.Name, units.Count(f.Differ), plural(f.Requests, "request"))
			if f.Differ > 0 {
				fmt.Fprintf(&b, ": least %s, median %s, most %s", duration(f.MinNS), duration(f.MedianNS), duration(f.MaxNS))
			}
			b.WriteByte('\n')
		}
	}
	// Positions and examples name files and ids as the input has them.
	_, err := io.WriteString(w, strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, b.String()))
	return err
}

func failed(l analyze.Law) bool { return l.Verdict == analyze.Fails }

// writeLaws gives a block to each law that fails, a line to each reason why
// some cannot be tested, and one line to all that hold.
func writeLaws(b *strings.Builder, laws []analyze.Law, width int) {
	var holds []string
	var why []string // distinct reasons
	untested := map[string][]string{}
	for _, l := range laws {
		switch l.Verdict {
		case analyze.Fails:
			b.WriteByte('\n')
			wrap(b, "FAILS  ", l.Law+": "+l.Statement, width)
			wrap(b, "  found     ", l.Found, width)
			wrap(b, "  likely    ", l.Likely, width)
			wrap(b, "  distrust  ", strings.Join(l.Distrust, "; "), width)
			if l.Example != "" {
				b.WriteString("  furthest  " + l.Example + "\n")
			}
		case analyze.Untested:
			if untested[l.Found] == nil {
				why = append(why, l.Found)
			}
			untested[l.Found] = append(untested[l.Found], l.Law)
		case analyze.Holds:
			holds = append(holds, l.Law)
		}
	}
	if len(why) > 0 {
		b.WriteString("\nCannot be tested\n")
	}
	for _, w := range why {
		wrap(b, "  "+strings.Join(untested[w], ", ")+": ", w, width)
	}
	if len(holds) > 0 {
		b.WriteByte('\n')
		wrap(b, "Holds: ", strings.Join(holds, ", "), width)
	}
}

func duration(ns int64) string { return units.Duration(time.Duration(ns), 1) }

func plural(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return units.Count(n) + " " + noun
}

// wrap writes words behind a label, further lines indented as far.
func wrap(b *strings.Builder, label, text string, width int) {
	if width == 0 {
		width = 100
	}
	line := label
	empty := true
	for word := range strings.FieldsSeq(text) {
		if !empty && len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line, empty = strings.Repeat(" ", len(label)), true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}
