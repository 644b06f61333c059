// Package export turns results into bytes: text for people, JSON, CSV, Parquet
// and pprof for programs. One file a format; the same input gives the same
// bytes.
package export

import (
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// TextOptions say how text is laid out. The zero value is for a file or pipe.
type TextOptions struct {
	Width int  // columns of the terminal; 0: 100
	Color bool // ANSI colours
}

// WriteText writes a report for people, in the order in which a tired engineer
// needs it: the verdict, what was measured, where the time goes, what makes the
// slowest slow, who waits most, and what the measurement cannot tell.
//
// A block of times shares one unit, stated in its heading. No digit is finer
// than the resolution of the instants; what is not zero and smaller than the
// last digit is a bound ("< 0.01"). "—" is not known, "†" a quantile that too
// few independent requests support.
func WriteText(w io.Writer, r *analyze.Report, opts TextOptions) error {
	p := newPage(opts, r)
	for _, s := range r.Verdict {
		p.wrap("", s, bold)
	}
	p.measurement(r)
	if r.Counts.Requests > 0 {
		p.phases(r)
		p.tail(r)
		for i := range r.Groups {
			p.group(&r.Groups[i], len(r.Groups))
		}
	}
	p.engines(r)
	if len(r.Limits) > 0 {
		p.heading("Limits")
		for _, l := range r.Limits {
			p.wrap("  ", l, plain)
		}
	}
	_, err := io.WriteString(w, p.b.String())
	return err
}

// page collects the text.
type page struct {
	b     strings.Builder
	width int
	color bool
	res   time.Duration
}

func newPage(opts TextOptions, r *analyze.Report) *page {
	p := &page{width: opts.Width, color: opts.Color, res: time.Duration(r.Card.ResolutionNS.Or(0))}
	if p.width <= 0 {
		p.width = 100
	}
	p.width = max(p.width, 40)
	return p
}

type style string

const (
	plain style = ""
	bold  style = "\x1b[1m"
	dim   style = "\x1b[2m"
)

// line writes one line without trailing blanks.
func (p *page) line(s string, st style) {
	s = strings.TrimRight(s, " ")
	if p.color && st != plain && s != "" {
		s = string(st) + s + "\x1b[0m"
	}
	p.b.WriteString(s)
	p.b.WriteByte('\n')
}

func (p *page) heading(s string) {
	p.line("", plain)
	p.wrap("", s, bold)
}

// wrap writes words behind a label, further lines indented as far as the
// first. A word that fits on no line is shortened, unless it is a number.
func (p *page) wrap(label, words string, st style) {
	if most := p.width / 2; cells(label) > most {
		label = shorten(strings.TrimRight(label, " "), most-2) + "  "
	}
	indent := strings.Repeat(" ", cells(label))
	line, empty := label, true
	for _, word := range strings.Fields(words) {
		if room := p.width - cells(indent); cells(word) > room && strings.Trim(word, "0123456789.,:+-TZ()") != "" {
			word = shorten(word, room)
		}
		if !empty && cells(line)+1+cells(word) > p.width {
			p.line(line, st)
			line, empty = indent, true
		}
		if !empty {
			line += " "
		}
		line += word
		empty = false
	}
	p.line(line, st)
}

// cells is the number of columns that s takes in a terminal.
func cells(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return uniseg.StringWidth(s)
		}
	}
	return len(s)
}

// shorten makes s fit into n cells: names differ at their ends, so an ellipsis
// stands for the middle.
func shorten(s string, n int) string {
	if cells(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	var parts []string // what takes a place of its own
	for g := uniseg.NewGraphemes(s); g.Next(); {
		parts = append(parts, g.Str())
	}
	room := n - 1
	head, tail := "", ""
	for i, j := 0, len(parts)-1; i <= j; {
		// The head has the odd cell.
		front := cells(head) <= cells(tail)
		part := parts[j]
		if front {
			part = parts[i]
		}
		if cells(head)+cells(tail)+cells(part) > room {
			break
		}
		if front {
			head, i = head+part, i+1
		} else {
			tail, j = part+tail, j-1
		}
	}
	return head + "…" + tail
}

// longest is how many cells of a text of the input are shown at most.
const longest = 48

// word makes a text of the input fit to be shown: control characters cannot
// steer the terminal, and what is long is shortened.
func word(s string) string {
	return shorten(strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s), longest)
}

// absent stands where something is not known.
const absent = "—"

// value makes a value fit to be shown where others are absent.
func value(s string) string {
	if s == "" || s == absent || strings.HasPrefix(s, `"`) {
		s = strconv.Quote(s)
	}
	return word(s)
}

func requests(n int64) string {
	if n == 1 {
		return "1 request"
	}
	return units.Count(n) + " requests"
}

const missing = "not in the data"

func (p *page) measurement(r *analyze.Report) {
	p.heading("Measurement")
	row := func(label, words string) {
		p.wrap("  "+label+strings.Repeat(" ", max(1, 13-cells(label))), words, plain)
	}
	c, card := &r.Counts, &r.Card

	counts := units.Count(c.Requests)
	var outcomes []string
	for _, o := range c.Outcomes {
		if o.Requests > 0 {
			outcomes = append(outcomes, units.Count(o.Requests)+" "+o.Name)
		}
	}
	if len(outcomes) > 0 {
		counts += ": " + strings.Join(outcomes, ", ")
	}
	if v, ok := c.NotOKShare.Get(); ok && v > 0 {
		counts += " (" + units.Percent(v) + " not ok)"
	}
	if c.NotInWindow > 0 {
		counts += "; " + units.Count(c.NotInWindow) + " more arrived outside the window"
	}
	row("requests", counts)
	var why []string
	for _, l := range c.LeftOut {
		// Those that were not served are in the line above.
		if strings.HasPrefix(l.Name, "no ") {
			why = append(why, units.Count(l.Requests)+" with "+l.Name)
		}
	}
	if len(why) > 0 {
		row("left out", "of latency figures: "+strings.Join(why, ", "))
	}
	if c.Inconsistent > 0 {
		row("inconsistent", requests(c.Inconsistent)+": "+p.duration(c.OverlapNS)+" claimed twice, "+
			p.duration(c.OutsideNS)+" outside, "+p.duration(c.ConflictNS)+" contradictory")
	}
	if c.Requests == 0 {
		return
	}
	if win := card.Window; win == nil {
		row("window", "none: the requests share no clock or have no arrival")
	} else {
		s := p.duration(win.LengthNS)
		if win.Start != "" {
			s = win.Start + " to " + win.End + ", " + s
		}
		if win.Stated {
			s += ", as asked for"
		}
		row("window", s)
	}
	var rates []string
	rate := func(o trace.Opt[float64], unit string) {
		if v, ok := o.Get(); ok {
			rates = append(rates, units.Number(v)+unit)
		}
	}
	rate(card.OfferedPerS, " requests/s offered")
	rate(card.ThroughputPerS, " served")
	rate(card.GoodputPerS, " within "+strings.Join(card.Objectives, " and "))
	rate(card.PromptTokensPerS, " prompt tokens/s")
	rate(card.OutputTokensPerS, " output tokens/s")
	if len(rates) > 0 {
		row("load", strings.Join(rates, ", "))
	}
	if high, ok := card.ConcurrencyHigh.Get(); ok {
		s := units.Number(high) + " in the system on average"
		if low := card.ConcurrencyLow.Or(high); low < high {
			s = "between " + units.Number(low) + " and " + s
		}
		if peak, ok := card.ConcurrencyPeak.Get(); ok {
			s += ", " + units.Count(peak) + " at most"
		}
		if v, ok := card.WaitingMean.Get(); ok {
			s += "; " + units.Number(v) + " waiting, " + units.Count(card.WaitingPeak.Or(0)) + " at most"
		}
		row("concurrency", s)
	}
	row("prompts", lengths(&card.PromptTokens, c.Requests))
	if card.CachedTokens.Requests > 0 {
		row("cached", lengths(&card.CachedTokens, c.Requests))
	}
	row("outputs", lengths(&card.OutputTokens, c.Requests))
	row("model", names(card.Models, c.Requests))
	service := names(card.Services, c.Requests)
	if len(card.Versions) > 0 {
		service += "; version " + names(card.Versions, c.Requests)
	}
	row("service", service)
	row("replicas", names(card.Replicas, c.Requests))
	engine := names(card.Engines, c.Requests)
	if len(card.Formats) > 0 {
		engine += "; read from " + names(card.Formats, c.Requests)
	}
	row("engine", engine)
	if len(card.Files) > 0 {
		row("input", names(card.Files, c.Requests))
	}
	row("hardware", attributes(card.Hardware, c.Requests))
	row("sampling", attributes(card.Sampling, c.Requests))
	clock := card.Clock + ", to " + units.Duration(p.res, 0)
	if card.Coarser > 0 {
		clock += " (" + plural(card.Coarser, "request") + " to a coarser step, in none of the times below)"
	}
	row("clock", clock)
}

func (p *page) duration(ns int64) string { return units.Duration(time.Duration(ns), p.res) }

// lengths sums up a token count.
func lengths(t *analyze.Tokens, of int64) string {
	if t.Requests == 0 {
		return missing
	}
	s := units.Count(int64(math.Round(t.Mean.Or(0)))) + " tokens on average"
	for _, q := range t.Quantiles {
		s += ", " + analyze.QName(q.Q) + " " + units.Count(q.Tokens)
	}
	s += ", most " + units.Count(t.Max.Or(0))
	if t.Requests < of {
		s += " (known for " + units.Count(t.Requests) + ")"
	}
	return s
}

// names lists the first few names; how many requests each has where they are
// several.
func names(list []analyze.NamedCount, of int64) string {
	if len(list) == 0 {
		return missing
	}
	var out []string
	var sum int64
	for i, n := range list {
		sum += n.Requests
		if i >= 4 {
			continue
		}
		s := word(n.Name)
		if len(list) > 1 {
			s += " (" + units.Count(n.Requests) + ")"
		}
		out = append(out, s)
	}
	if more := len(list) - len(out); more > 0 {
		out = append(out, units.Count(int64(more))+" more")
	}
	s := strings.Join(out, ", ")
	if sum < of {
		s += " (not in the data of " + units.Count(of-sum) + ")"
	}
	return s
}

func attributes(list []analyze.AttrValues, of int64) string {
	if len(list) == 0 {
		return missing
	}
	var out []string
	for _, a := range list {
		out = append(out, word(a.Key)+" "+names(a.Values, of))
	}
	return strings.Join(out, "; ")
}

// times prints durations in one unit with the same digits, so that they align.
type times struct {
	scale  units.Scale
	digits int
}

// timesFor picks the unit by the typical of some durations and the digits by
// the unit, none finer than the resolution.
func (p *page) timesFor(typical int64) times {
	s := units.CommonScale(time.Duration(typical), p.res)
	t := times{scale: s}
	switch s.Name {
	case "ns":
	case "µs":
		t.digits = 1
	case "ms":
		t.digits = 2
	default:
		t.digits = 3
	}
	for t.digits > 0 && t.step() < p.res {
		t.digits--
	}
	return t
}

// step is what the last digit is worth.
func (t times) step() time.Duration {
	step := t.scale.Unit
	for range t.digits {
		step /= 10
	}
	return step
}

func (t times) number(ns int64) string {
	return strconv.FormatFloat(float64(ns)/float64(t.scale.Unit), 'f', t.digits, 64)
}

// format prints a duration; one that is not 0 and less than the last digit is
// a bound.
func (t times) format(ns int64) string {
	if d := time.Duration(ns); d != 0 && d.Abs() < t.step() {
		return "< " + t.number(int64(t.step()))
	}
	return t.number(ns)
}

func (t times) signed(ns int64) string {
	if d := time.Duration(ns); d != 0 && d.Abs() < t.step() {
		return "±< " + t.number(int64(t.step()))
	}
	if ns > 0 {
		return "+" + t.number(ns)
	}
	return strings.Replace(t.number(ns), "-", "−", 1)
}

func (t times) opt(o trace.Opt[int64]) string {
	if v, ok := o.Get(); ok {
		return t.format(v)
	}
	return "—"
}

// grid is rows of cells that are aligned when printed. Left columns hold
// words, which are shortened where a row is wider than the page; of these,
// whole ones are the program's own and are not. A cell's mark † stands in a
// place of its own.
type grid struct {
	left, whole map[int]bool
	rows        [][]string
}

func (g *grid) add(row ...string) { g.rows = append(g.rows, row) }

// measure returns how wide the columns are, and which have marks.
func (g *grid) measure() (widths []int, marked []bool) {
	for _, row := range g.rows {
		for i, c := range row {
			if i == len(widths) {
				widths, marked = append(widths, 0), append(marked, false)
			}
			bare, _ := strings.CutSuffix(c, analyze.Dagger)
			marked[i] = marked[i] || bare != c
			widths[i] = max(widths[i], cells(bare))
		}
	}
	return widths, marked
}

// grid writes a grid. Where it is too wide its names are shortened; where that
// is not enough, its columns stand below each other in several blocks, each
// with the names of the rows.
func (p *page) grid(g *grid) {
	widths, marked := g.measure()
	sum := func(columns []int) int {
		n := 0
		for _, i := range columns {
			n += 2 + widths[i]
			if marked[i] {
				n++
			}
		}
		return n
	}
	all := make([]int, len(widths))
	for i := range all {
		all[i] = i
	}
	natural := slices.Clone(widths)
	const least = 12 // cells of a name
	squeeze := func(columns []int, room int) bool {
		for sum(columns) > room {
			widest := -1
			for _, i := range columns {
				if g.left[i] && !g.whole[i] && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				return false
			}
			widths[widest]--
		}
		return true
	}
	if squeeze(all, p.width) {
		p.block(g, all, widths, marked)
		return
	}
	copy(widths, natural)
	names := 0 // leading columns of words
	for names < len(all) && g.left[names] {
		names++
	}
	if names = max(names, 1); !squeeze(all[:names], p.width/2) {
		names = 1
		squeeze(all[:1], p.width/2)
	}
	for rest := all[names:]; len(rest) > 0; {
		room := p.width - sum(all[:names])
		n := 1
		if g.left[rest[0]] {
			widths[rest[0]] = min(widths[rest[0]], room-2)
		}
		for n < len(rest) && sum(rest[:n+1]) <= room {
			n++
		}
		p.block(g, slices.Concat(all[:names], rest[:n]), widths, marked)
		rest = rest[n:]
	}
}

// block writes some columns of a grid.
func (p *page) block(g *grid, columns, widths []int, marked []bool) {
	for n, row := range g.rows {
		line := ""
		for _, i := range columns {
			if i >= len(row) {
				continue
			}
			bare, mark := strings.CutSuffix(row[i], analyze.Dagger)
			if g.left[i] {
				bare = shorten(bare, widths[i])
			}
			line += "  "
			pad := strings.Repeat(" ", max(0, widths[i]-cells(bare)))
			if g.left[i] {
				line += bare + pad
			} else {
				line += pad + bare
			}
			switch {
			case mark:
				line += analyze.Dagger
			case marked[i]:
				line += " "
			}
		}
		st := plain
		if n == 0 {
			st = dim
		}
		p.line(line, st)
	}
}

// bar draws a share, at most width columns, in eighths.
func bar(share float64, width int) string {
	n := int(math.Round(share * float64(width) * 8))
	if n == 0 && share > 0 {
		n = 1
	}
	s := strings.Repeat("█", n/8)
	if n%8 > 0 {
		s += string([]rune("▏▎▍▌▋▊▉")[n%8-1])
	}
	return s
}

func (p *page) phases(r *analyze.Report) {
	var e2e *analyze.Distribution
	for i := range r.Figures {
		if r.Figures[i].Name == "e2e" {
			e2e = &r.Figures[i]
		}
	}
	if e2e == nil || e2e.Requests == 0 {
		return
	}
	t := p.timesFor(e2e.MeanNS.Or(0))
	of := requests(e2e.Requests)
	if e2e.Requests < r.Counts.Requests {
		of = units.Count(e2e.Requests) + " of " + requests(r.Counts.Requests)
	}
	p.heading("Where the time goes, in " + t.scale.Name + " (" + of + ")")
	head := []string{"", "mean"}
	for _, q := range e2e.Quantiles {
		head = append(head, analyze.QName(q.Q))
	}
	last := len(head) + 1
	g := &grid{left: map[int]bool{0: true, last: true}, whole: map[int]bool{last: true}}
	g.add(append(head, "share", "")...)
	shares := map[int]float64{} // by row, to be drawn before the words there
	row := func(name string, t times, d *analyze.Distribution, share trace.Opt[float64]) {
		out := []string{name, t.opt(d.MeanNS)}
		for i := range e2e.Quantiles {
			if i >= len(d.Quantiles) {
				out = append(out, "—")
				continue
			}
			s := t.format(d.Quantiles[i].NS)
			if !d.Quantiles[i].Supported {
				s += analyze.Dagger
			}
			out = append(out, s)
		}
		if v, ok := share.Get(); ok {
			of := ""
			if d.Requests < e2e.Requests {
				of = "quantiles of " + requests(d.Requests)
			}
			shares[len(g.rows)] = v
			out = append(out, units.Percent(v), of)
		} else if d.Requests > 0 && d.Requests < e2e.Requests {
			out = append(out, "", "of "+requests(d.Requests))
		}
		g.add(out...)
	}
	for i := range r.Phases {
		ph := &r.Phases[i]
		if ph.Requests == 0 || ph.TotalNS == 0 && ph.Name == trace.Unattributed.String() && len(r.Phases) > 1 {
			continue // nothing is left over
		}
		row(ph.Name, t, &ph.Distribution, ph.Share)
	}
	row("e2e", t, e2e, trace.Opt[float64]{})
	for i := range r.Figures {
		d := &r.Figures[i]
		if d.Requests == 0 || d.Name == "e2e" {
			continue
		}
		if d.Name == "tpot" {
			own := p.timesFor(d.MeanNS.Or(0))
			name := d.Name
			if own.scale != t.scale {
				name += ", " + own.scale.Name
			}
			row(name, own, d, trace.Opt[float64]{})
			continue
		}
		row(d.Name, t, d, trace.Opt[float64]{})
	}
	p.bars(g, last, shares)
	p.grid(g)
	p.intervals(r, t)
}

// bars draws shares before the words in the last column of rows, as far as
// there is room.
func (p *page) bars(g *grid, last int, shares map[int]float64) {
	const most, least = 20, 4
	widths, marked := g.measure()
	room := p.width - 1 // a blank before the words
	for i, w := range widths {
		if room -= 2 + w; marked[i] {
			room--
		}
	}
	if room < least {
		return
	}
	for n, share := range shares {
		g.rows[n][last] = strings.TrimSpace(bar(share, min(room, most)) + " " + g.rows[n][last])
	}
}

// intervals prints how sure the quantiles of whole requests are.
func (p *page) intervals(r *analyze.Report, t times) {
	g := &grid{left: map[int]bool{0: true}}
	head := []string{"95 % interval"}
	of := 0 // slices of time
	for i := range r.Figures {
		d := &r.Figures[i]
		var row []string
		own := t
		if d.Name == "tpot" {
			own = p.timesFor(d.MeanNS.Or(0))
		}
		for _, q := range d.Quantiles {
			if len(g.rows) == 0 {
				head = append(head, analyze.QName(q.Q))
			}
			if q.Interval == nil {
				continue
			}
			of = q.Interval.Slices
			low, high := "?", "?"
			if v, ok := q.Interval.LowNS.Get(); ok {
				low = own.format(v)
			}
			if v, ok := q.Interval.HighNS.Get(); ok {
				high = own.format(v)
			}
			row = append(row, low+" … "+high)
		}
		if len(row) == 0 {
			continue
		}
		if len(g.rows) == 0 {
			g.add(head...)
		}
		name := d.Name
		if own.scale != t.scale {
			name += ", " + own.scale.Name
		}
		g.add(append([]string{name}, row...)...)
	}
	if len(g.rows) == 0 {
		return
	}
	p.line("", plain)
	p.grid(g)
	p.wrap("  ", "from "+strconv.Itoa(of)+" slices of time; ? is an end that this run does not bound", dim)
}

func (p *page) tail(r *analyze.Report) {
	t := r.Tail
	if t == nil {
		return
	}
	ts := p.timesFor(t.MeanNS)
	p.heading("What makes the slowest slow, in " + ts.scale.Name)
	g := &grid{left: map[int]bool{0: true}}
	g.add("mean of", t.Band, t.MedianBand, "difference")
	last := -1 // waiting phase
	for i, ph := range t.Phases {
		if ph.Kind == trace.Waiting.String() {
			last = i
		}
	}
	for i, ph := range t.Phases {
		g.add(ph.Phase, ts.format(ph.MeanNS), ts.format(ph.MedianMeanNS), ts.signed(ph.DifferenceNS))
		for _, c := range t.Causes {
			if i == last && (len(t.Causes) > 1 || c.Cause != analyze.CauseUnknown.String()) {
				g.add("  "+c.Cause, ts.format(c.MeanNS), ts.format(c.MedianMeanNS), ts.signed(c.DifferenceNS))
			}
		}
	}
	g.add("e2e", ts.format(t.MeanNS), ts.format(t.MedianMeanNS), ts.signed(t.DifferenceNS))
	p.grid(g)
	p.wrap("  ", requests(t.Requests)+" of "+ts.format(t.FromNS)+" or more beside "+requests(t.MedianRequests), dim)
	for _, e := range r.Examples {
		if e.Q < 0.9 {
			continue
		}
		id := word(e.ID)
		if id == "" {
			id = "a request without an id"
		}
		pos := e.Pos()
		pos.File, pos.Path = word(pos.File), ""
		s := analyze.QName(e.Q) + " is near " + id + ", " + ts.format(e.E2ENS)
		if where := pos.String(); where != "" {
			s += " (" + where + ")"
		}
		p.wrap("  ", s, dim)
	}
	p.standsOut(t)
}

// standsOut prints what the slowest have more often than the others.
func (p *page) standsOut(t *analyze.Tail) {
	if len(t.StandsOut) == 0 {
		if t.TestedValues > 0 {
			p.wrap("  ", "no attribute is more frequent among them than chance explains ("+units.Count(t.TestedValues)+" values tested)", dim)
		}
		return
	}
	p.heading("What stands out among the " + t.Band)
	g := &grid{left: map[int]bool{0: true, 1: true}}
	g.add("", "", "of the slowest", "of the others", "times", "requests")
	const rows = 5
	for i, s := range t.StandsOut {
		if i == rows {
			break
		}
		times := "—"
		if v, ok := s.Ratio.Get(); ok {
			times = strconv.FormatFloat(v, 'f', 1, 64)
		}
		g.add(word(s.Key), value(s.Value), units.Percent(s.BandShare), units.Percent(s.RestShare), times,
			units.Count(s.Requests)+" of "+units.Count(t.Requests))
	}
	p.grid(g)
	p.more(len(t.StandsOut) - rows)
	p.wrap("  ", "beyond what chance explains; "+units.Count(t.TestedValues)+" values tested", dim)
}

// group prints who waits most, the first rows.
func (p *page) group(g *analyze.Grouping, of int) {
	rows := 10
	if of > 1 {
		rows = 3
	}
	var typical, wait int64
	told := false
	for _, x := range g.Rows {
		typical = max(typical, x.E2EMean.Or(0))
		wait = max(wait, x.WaitingMean.Or(0))
		told = told || x.WaitingAllNS.Present()
	}
	t := p.timesFor(max(typical, wait))
	by := make([]string, len(g.By))
	for i := range by {
		by[i] = word(g.By[i])
	}
	title := "Who takes most time, by "
	if told {
		title = "Who waits most, by "
	}
	p.heading(title + strings.Join(by, ", ") + ", in " + t.scale.Name)
	out := &grid{left: map[int]bool{}}
	for i := range by {
		out.left[i] = true
	}
	head := append(by, "requests")
	if told {
		head = append(head, "of waiting", "mean wait")
	}
	out.add(append(head, "mean e2e", "p99 e2e")...)
	for i, x := range g.Rows {
		if i == rows {
			break
		}
		var row []string
		for _, v := range x.Values {
			if s, ok := v.Get(); ok {
				row = append(row, value(s))
			} else {
				row = append(row, absent)
			}
		}
		row = append(row, units.Count(x.Requests))
		if told {
			share := "—"
			if v, ok := x.WaitingShare.Get(); ok {
				share = units.Percent(v)
			}
			row = append(row, share, t.opt(x.WaitingMean))
		}
		p99 := t.opt(x.E2EP99)
		if x.E2EP99.Present() && !x.P99Supported {
			p99 += analyze.Dagger
		}
		out.add(append(row, t.opt(x.E2EMean), p99)...)
	}
	p.grid(out)
	if more := len(g.Rows) - rows; more > 0 {
		p.line("  and "+units.Count(int64(more))+" more", dim)
	}
}

func (p *page) engines(r *analyze.Report) {
	if len(r.Engines) == 0 {
		return
	}
	p.heading("What the engines say of themselves")
	g := &grid{left: map[int]bool{0: true}}
	head := []string{"", "readings", "running", "most", "waiting", "most", "KV cache", "most"}
	limits := slices.ContainsFunc(r.Engines, func(e analyze.EngineState) bool {
		return e.Slots.Present() || e.Budget.Present() || e.KVTokens.Present()
	})
	if limits {
		head = append(head, "slots", "step budget", "KV tokens")
	}
	g.add(head...)
	num := func(o trace.Opt[float64], f func(float64) string) string {
		if v, ok := o.Get(); ok {
			return f(v)
		}
		return "—"
	}
	count := func(o trace.Opt[int64]) string {
		if v, ok := o.Get(); ok {
			return units.Count(v)
		}
		return "—"
	}
	for i, e := range r.Engines {
		if i == 10 {
			break
		}
		name := word(e.Replica)
		if name == "" {
			name = word(e.Engine)
		}
		row := []string{name, units.Count(e.Samples), num(e.RunningMean, units.Number), count(e.RunningMax),
			num(e.WaitingMean, units.Number), count(e.WaitingMax), num(e.KVUsageMean, units.Percent), num(e.KVUsageMax, units.Percent)}
		if limits {
			row = append(row, count(e.Slots), count(e.Budget), count(e.KVTokens))
		}
		g.add(row...)
	}
	p.grid(g)
	if more := len(r.Engines) - 10; more > 0 {
		p.line("  and "+units.Count(int64(more))+" more", dim)
	}
}
