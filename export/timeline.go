package export

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// TimelineOptions say how a timeline is drawn. The zero value works.
type TimelineOptions struct {
	TextOptions
	ASCII bool // nothing beyond ASCII
}

// WriteTimelineJSON writes a timeline as one JSON object, indented, with a
// newline at its end, keys as [TimelineKeys] says. What is not known is null. The lists "phase_ns" and
// "cause_ns" of a window follow "phases" and "causes".
func WriteTimelineJSON(w io.Writer, t *analyze.Timeline) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(t)
}

// TimelineKeys describes every key of a timeline in JSON, in its order.
var TimelineKeys = []JSONKey{
	{"timeline.version", "", "version of this shape"},
	{"timeline.requests", "requests", "all that were read"},
	{"timeline.no_time", "requests", "without any instant: in no window"},
	{"timeline.clock", "", "unix, monotonic, relative, unknown; mixed: no windows; empty where nothing has a time"},
	{"timeline.resolution_ns", "ns", "the coarsest clock step of all requests"},
	{"timeline.start_ns", "ns", "the first instant of a request, of a reading where there is no request; where windows begin"},
	{"timeline.end_ns", "ns", "the last one"},
	{"timeline.start", "", "RFC 3339, UTC; empty unless the clock is unix"},
	{"timeline.end", "", "likewise"},
	{"timeline.every_ns", "ns", "length of a window; the last may be shorter"},
	{"timeline.phases[]", "", "what phase_ns lists, in order"},
	{"timeline.causes[]", "", "what cause_ns lists, in order"},
	{"timeline.series[].replica.*", "", "whose windows; null for all requests together, which come first, and for the rest"},
	{"timeline.series[].rest", "", "true where replicas with few requests are joined, because there are too many"},
	{"timeline.series[].requests", "requests", "of the series"},
	{"timeline.series[].unended_requests", "requests", "of these that tell no end, where they are too many to know who was in the system; else 0"},
	{"timeline.series[].windows[].start_ns", "ns", "a window is [start, end); the last has its end"},
	{"timeline.series[].windows[].end_ns", "ns", "likewise"},
	{"timeline.series[].windows[].arrivals", "requests", "that arrived in it"},
	{"timeline.series[].windows[].served", "requests", "that completed ok in it"},
	{"timeline.series[].windows[].failed", "requests", "that ended otherwise in it"},
	{"timeline.series[].windows[].system_*", "requests", "in the system, mean and most at once; null where more than a twentieth of the series' requests tell no end (unended_requests)"},
	{"timeline.series[].windows[].waiting_*", "requests", "waiting, likewise; null where no source tells"},
	{"timeline.series[].windows[].running_*", "requests", "in prefill or decode, likewise"},
	{"timeline.series[].windows[].phase_ns[]", "ns", "time of requests that falls into it, by phase; all windows add up to the phases' totals exactly"},
	{"timeline.series[].windows[].cause_ns[]", "ns", "of which waiting, by cause"},
	{"timeline.series[].windows[].engine.*", "", "what the engines say of themselves, each reading standing until the next; over several engines counts are summed, KV usage is the fullest's; null where none does"},
	{"timeline.notes[]", "", "what is not shown and why"},
	{"over_time.changes[].of", "", "speed, arrivals, overload, stall"},
	{"over_time.changes[].phase", "", "that changed: decode, prefill, prefill|decode for both, queueing; empty of a stall and of arrivals"},
	{"over_time.changes[].replica.*", "", "where; changes are looked for in each replica alone"},
	{"over_time.changes[].at_ns", "ns", "the instant; null where only the stretch is known"},
	{"over_time.changes[].from_ns", "ns", "the stretch in which it lies; of a stall its begin"},
	{"over_time.changes[].to_ns", "ns", "likewise; of a stall its end"},
	{"over_time.changes[].time_ratio", "", "time after / before for the same work, of decodes with the prompts beside them; null unless of speed"},
	{"over_time.changes[].decode_time_ratio", "", "the same of the decodes' own steps"},
	{"over_time.changes[].prefill_time_ratio", "", "the same of a prompt token; null where prompts are too little of the time"},
	{"over_time.changes[].capacity_requests_per_s", "1/s", "taken up while the queue grew; null unless an overload"},
	{"over_time.changes[].offered_requests_per_s", "1/s", "that came meanwhile"},
	{"over_time.changes[].cause", "", "what was short in an overload"},
	{"over_time.changes[].p", "", "share of random orders of the same blocks of requests that show as much; null unless of speed"},
	{"over_time.changes[].z", "", "growth of the queue (overload) or change of the rate (arrivals) in standard deviations of chance; null of others"},
	{"over_time.changes[].arrivals_before_per_s", "1/s", "that were queued before; null unless of arrivals"},
	{"over_time.changes[].arrivals_after_per_s", "1/s", "and after"},
	{"over_time.changes[].waiting_*", "requests", "waiting on average before and after a change of speed or arrivals, to the next such change; measured, not tested; null of others"},
	{"over_time.changes[].running_*", "requests", "running, likewise"},
	{"over_time.tests[].of", "", "what was asked"},
	{"over_time.tests[].replica.*", "", "of which replica"},
	{"over_time.tests[].outcome", "", "changed, steady, not tested"},
	{"over_time.tests[].reason", "", "why not tested, or steady all the same"},
	{"over_time.tests[].requests", "requests", "or decodes that it rests on"},
	{"over_time.tests[].p", "", "of the largest change"},
	{"over_time.tests[].z", "", "of the queue at the last arrival (overload), of the largest change (arrivals)"},
}

// WriteTimeline writes a timeline for people: what changed and what was tested
// and found steady; depth and phases drawn over time with the changes marked;
// where the windows are few, their numbers.
//
// A column of the drawing stands for one window or several, or a window takes
// several columns; its heading says which.
func WriteTimeline(w io.Writer, t *analyze.Timeline, opts TimelineOptions) error {
	p := &timelinePage{Timeline: t, page: page{width: opts.Width, color: opts.Color, res: time.Duration(t.Windows.ResolutionNS.Or(0))}, full: []rune("▁▂▃▄▅▆▇█")}
	if opts.ASCII {
		p.full = []rune(".-=#")
	}
	if p.width <= 0 {
		p.width = 100
	}
	p.width = max(p.width, 40)
	if len(t.Windows.Series) == 0 {
		p.wrap("", "There is no axis of time to show.", bold)
	} else {
		p.changes()
		p.layout()
		p.depths()
		p.shares("Share of the requests' time", t.Windows.Phases, func(w *analyze.Slot) []int64 { return w.PhaseNS })
		p.shares("Share of the waiting", t.Windows.Causes, func(w *analyze.Slot) []int64 { return w.CauseNS })
		p.replicas()
		p.numbers()
	}
	if len(t.Windows.Notes) > 0 {
		p.heading("Limits")
		for _, n := range t.Windows.Notes {
			p.wrap("  ", n, plain)
		}
	}
	text := p.b.String()
	if opts.ASCII {
		text = toASCII.Replace(text)
	}
	_, err := io.WriteString(w, text)
	return err
}

// toASCII spells what the program itself writes; names of the input stay.
var toASCII = strings.NewReplacer("µ", "u", "—", "-", "±", "+-", "×", "x", "≥", ">=", "≤", "<=", "│", "|", "┤", "|", "└", "+", "─", "-", "┬", "+", "…", "...")

// timelinePage is the text of a timeline under way.
type timelinePage struct {
	*analyze.Timeline
	page
	full []rune // by height, the last is full

	label int // columns left of the drawing
	wide  int // columns of a window
	group int // windows of a column
	cols  int
}

// layout fits the windows into the width.
func (p *timelinePage) layout() {
	n := len(p.Windows.Series[0].Windows)
	p.label = 9
	for _, ph := range p.Windows.Phases {
		p.label = max(p.label, cells(ph)+1)
	}
	p.label = min(p.label, 22) + 2
	words := cells(units.Percent(0.9995)) // stand on the right
	for i := range p.Windows.Series {
		words = max(words, cells(units.Count(p.Windows.Series[i].Requests)))
	}
	room := p.width - p.label - cells("│ ") - words
	p.wide, p.group = 1, 1
	if n > room {
		p.group = (n + room - 1) / room
		p.cols = (n + p.group - 1) / p.group
		return
	}
	p.wide = min(room/n, 6)
	p.cols = n * p.wide
}

// column is where an instant stands in the drawing.
func (p *timelinePage) column(t int64) int {
	every := float64(p.Windows.EveryNS) * float64(p.group) / float64(p.wide)
	return max(0, min(int((float64(t)-float64(p.Windows.StartNS))/every), p.cols-1))
}

// spread gives each column the mean of a value over its windows, weighted. A
// column without a value is NaN.
func (p *timelinePage) spread(s *analyze.WindowSeries, f func(*analyze.Slot) (v, weight float64)) []float64 {
	out := make([]float64, p.cols)
	for c := range out {
		var sum, weight float64
		first := c / p.wide * p.group
		for i := first; i < min(first+p.group, len(s.Windows)); i++ {
			v, w := f(&s.Windows[i])
			sum += v * w
			weight += w
		}
		out[c] = math.NaN()
		if weight > 0 {
			out[c] = sum / weight
		}
	}
	return out
}

// mean reads a mean that may be absent, weighted by the window's length.
func mean(of func(*analyze.Slot) trace.Opt[float64]) func(*analyze.Slot) (float64, float64) {
	return func(w *analyze.Slot) (float64, float64) {
		v, ok := of(w).Get()
		if !ok {
			return 0, 0
		}
		return v, max(float64(w.EndNS-w.StartNS), 1)
	}
}

// height draws v, of top, in eighths: 0 is blank, anything else shows.
func (p *timelinePage) height(v, top float64) rune {
	if !(v > 0) || !(top > 0) {
		return ' '
	}
	n := len(p.full)
	return p.full[max(0, min(int(math.Round(v/top*float64(n))), n)-1)]
}

// depths draws how many waited and ran.
func (p *timelinePage) depths() {
	all := &p.Windows.Series[0]
	each := units.Duration(time.Duration(p.Windows.EveryNS), 0)
	switch {
	case p.group > 1:
		each = units.Duration(time.Duration(p.Windows.EveryNS)*time.Duration(p.group), 0) + " a column"
	case p.wide > 1:
		each += " in " + strconv.Itoa(p.wide) + " columns"
	default:
		each += " a column"
	}
	when := units.Duration(time.Duration(p.Windows.EndNS-p.Windows.StartNS), p.res)
	if p.Windows.Start != "" {
		when = p.date(p.Windows.StartNS) + " to " + p.date(p.Windows.EndNS) + " UTC, " + when
	}
	p.heading("Depth over time, " + each)
	p.wrap("  ", requests(all.Requests)+", "+when, dim)
	drawn := false
	for _, d := range []struct {
		name string
		of   func(*analyze.Slot) trace.Opt[float64]
		most func(*analyze.Slot) trace.Opt[int64]
	}{
		{"waiting", func(w *analyze.Slot) trace.Opt[float64] { return w.WaitingMean }, func(w *analyze.Slot) trace.Opt[int64] { return w.WaitingMax }},
		{"running", func(w *analyze.Slot) trace.Opt[float64] { return w.RunningMean }, func(w *analyze.Slot) trace.Opt[int64] { return w.RunningMax }},
		{"in the system", func(w *analyze.Slot) trace.Opt[float64] { return w.SystemMean }, func(w *analyze.Slot) trace.Opt[int64] { return w.SystemMax }},
		{"waiting, by the engines' own counts", engineMean(func(e *analyze.EngineSlot) trace.Opt[float64] { return e.WaitingMean }), engineMost(func(e *analyze.EngineSlot) trace.Opt[int64] { return e.WaitingMax })},
		{"running, by the engines' own counts", engineMean(func(e *analyze.EngineSlot) trace.Opt[float64] { return e.RunningMean }), engineMost(func(e *analyze.EngineSlot) trace.Opt[int64] { return e.RunningMax })},
	} {
		known, most := false, trace.Opt[int64]{}
		for i := range all.Windows {
			w := &all.Windows[i]
			known = known || d.of(w).Present()
			if v, ok := d.most(w).Get(); ok {
				most = trace.Some(max(v, most.Or(v)))
			}
		}
		if !known || d.name == "in the system" && drawn {
			continue
		}
		drawn = true
		name := d.name
		if v, ok := most.Get(); ok {
			name += ", at most " + units.Count(v)
		}
		p.chart(name, p.spread(all, mean(d.of)), most.Or(0) > 0)
	}
	if !drawn {
		p.line("  not known: "+units.Count(all.Unended)+" of "+requests(all.Requests)+" tell no end", plain)
		return
	}
	p.axis()
}

func engineMean(of func(*analyze.EngineSlot) trace.Opt[float64]) func(*analyze.Slot) trace.Opt[float64] {
	return func(w *analyze.Slot) trace.Opt[float64] {
		if w.Engine == nil {
			return trace.Opt[float64]{}
		}
		return of(w.Engine)
	}
}

func engineMost(of func(*analyze.EngineSlot) trace.Opt[int64]) func(*analyze.Slot) trace.Opt[int64] {
	return func(w *analyze.Slot) trace.Opt[int64] {
		if w.Engine == nil {
			return trace.Opt[int64]{}
		}
		return of(w.Engine)
	}
}

// chartRows is the height of a drawing of depth.
const chartRows = 4

// chart draws one value over time, four rows high.
func (p *timelinePage) chart(name string, v []float64, some bool) {
	var top float64
	for _, x := range v {
		if x > top {
			top = x
		}
	}
	p.line("  "+name, plain)
	if top == 0 {
		words := "none at any time"
		if some {
			words = "never for long"
		}
		p.line(p.left("0")+words, dim)
		return
	}
	// A round top, so that the drawing can be read off.
	top = roundUp(top)
	for row := chartRows - 1; row >= 0; row-- {
		label := ""
		switch row {
		case chartRows - 1:
			label = strconv.FormatFloat(top, 'g', -1, 64)
		case 0:
			label = "0"
		}
		line := make([]rune, len(v))
		for i, x := range v {
			part := x/top*chartRows - float64(row)
			switch {
			case row > 0 && part*float64(len(p.full)) < 0.5, math.IsNaN(x):
				line[i] = ' '
			default:
				line[i] = p.height(part, 1)
			}
		}
		p.line(p.left(label)+string(line), plain)
	}
}

// left is a row's label with the edge of the drawing.
func (p *timelinePage) left(label string) string {
	if n := p.label - 2; cells(label) > n {
		label = shorten(label, n)
	}
	return strings.Repeat(" ", max(0, p.label-1-cells(label))) + label + "┤"
}

// roundUp is the least of 1, 2, 3, 4, 5, 6, 8 times a power of ten that is not
// below v.
func roundUp(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 3, 4, 5, 6, 8} {
		if m*p >= v*(1-1e-12) {
			return m * p
		}
	}
	return 10 * p
}

// axis draws the time with the changes marked below it.
func (p *timelinePage) axis() {
	every, step, unit := p.ticks()
	line, numbers := []rune(strings.Repeat("─", p.cols)), ""
	for c, i := 0, int64(0); c < p.cols; c, i = c+every, i+1 {
		line[c] = '┬'
		numbers += strings.Repeat(" ", c-cells(numbers)) + strconv.FormatInt(i*int64(step/unit.Unit), 10)
	}
	p.line(strings.Repeat(" ", p.label-1)+"└"+string(line), plain)
	p.line(strings.Repeat(" ", p.label)+numbers+" "+unit.Name, dim)
	if len(p.Changes.Changes) == 0 {
		return
	}
	marks := []rune(strings.Repeat(" ", p.cols))
	for i, c := range p.Changes.Changes {
		at := p.column(c.AtNS.Or(c.FromNS))
		switch {
		case marks[at] != ' ' || i > 8:
			marks[at] = '*'
		default:
			marks[at] = rune('1' + i)
		}
	}
	p.line(strings.Repeat(" ", max(0, p.label-8))+"changes "+string(marks), bold)
}

// ticks picks how many columns lie between two numbers of the axis, and the
// unit, so that the numbers are whole and have room.
func (p *timelinePage) ticks() (every int, step time.Duration, unit units.Scale) {
	cell := time.Duration(p.Windows.EveryNS) * time.Duration(p.group) // of wide columns
	for _, s := range []units.Scale{
		{Name: "h", Unit: time.Hour}, {Name: "min", Unit: time.Minute}, {Name: "s", Unit: time.Second},
		{Name: "ms", Unit: time.Millisecond}, {Name: "µs", Unit: time.Microsecond}, {Name: "ns", Unit: 1},
	} {
		room := len(strconv.FormatInt(int64(cell/s.Unit)*int64(p.cols/p.wide), 10)) + 3
		for _, k := range []int{1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 25, 30, 60} {
			if step := cell * time.Duration(k); k*p.wide >= room && k*p.wide <= max(room, p.cols/3) && step/time.Duration(k) == cell && step%s.Unit == 0 {
				return k * p.wide, step, s
			}
		}
	}
	return p.cols, 0, units.Scale{Name: "ns", Unit: 1} // no room but for the 0
}

// shares draws a strip for each part of the requests' time.
func (p *timelinePage) shares(title string, names []string, of func(*analyze.Slot) []int64) {
	all := &p.Windows.Series[0]
	totals := make([]int64, len(names))
	var sum float64
	for i := range all.Windows {
		for j, ns := range of(&all.Windows[i]) {
			totals[j] += ns
			sum += float64(ns)
		}
	}
	if sum == 0 {
		return
	}
	p.heading(title + ", full height is all of it")
	for j, name := range names {
		if totals[j] == 0 {
			continue
		}
		v := p.spread(all, func(w *analyze.Slot) (float64, float64) {
			var whole float64
			for _, ns := range of(w) {
				whole += float64(ns)
			}
			if whole == 0 {
				return 0, 0
			}
			return float64(of(w)[j]) / whole, whole
		})
		p.strip(name, v, 1, units.Percent(float64(totals[j])/sum))
	}
}

// strip draws a value in one row, with words behind it.
func (p *timelinePage) strip(name string, v []float64, top float64, words string) {
	line := make([]rune, len(v))
	for i, x := range v {
		line[i] = p.height(x, top)
	}
	p.line(p.left(name)+string(line)+"│ "+words, plain)
}

// replicas draws the replicas beside each other on one scale.
func (p *timelinePage) replicas() {
	list := p.Windows.Series[1:]
	if len(list) == 0 {
		return
	}
	of, what := func(w *analyze.Slot) trace.Opt[float64] { return w.WaitingMean }, "waiting"
	if !list[0].Windows[0].WaitingMean.Present() {
		of, what = func(w *analyze.Slot) trace.Opt[float64] { return w.SystemMean }, "in the system"
	}
	const most = 16
	var top float64
	var rows [][]float64
	for i := range list[:min(len(list), most)] {
		v := p.spread(&list[i], mean(of))
		for _, x := range v {
			if x > top {
				top = x
			}
		}
		rows = append(rows, v)
	}
	if top == 0 {
		return
	}
	top = roundUp(top)
	p.heading("Requests " + what + " by replica, full height is " + strconv.FormatFloat(top, 'g', -1, 64))
	for i, v := range rows {
		p.strip(word(list[i].Name()), v, top, units.Count(list[i].Requests))
	}
	if more := len(list) - most; more > 0 {
		p.line("  and "+units.Count(int64(more))+" more", dim)
	}
}

// numbersMost is how many windows are printed in numbers.
const numbersMost = 24

// numbers prints the windows of all requests.
func (p *timelinePage) numbers() {
	all := &p.Windows.Series[0]
	if len(all.Windows) > numbersMost {
		p.line("", plain)
		p.wrap("  ", units.Count(int64(len(all.Windows)))+" windows: --format csv and json give the numbers of each", dim)
		return
	}
	every := time.Duration(p.Windows.EveryNS)
	scale := units.CommonScale(every)
	p.heading("Windows, by their begin in " + scale.Name)
	g := &grid{left: map[int]bool{}}
	engine := false
	for i := range all.Windows {
		engine = engine || all.Windows[i].Engine != nil
	}
	head := []string{"from", "arrived", "served", "failed", "waiting", "most", "running", "most"}
	if engine {
		head = append(head, "engine: waiting", "running", "KV most")
	}
	g.add(head...)
	num := func(o trace.Opt[float64]) string {
		if v, ok := o.Get(); ok {
			return units.Number(v)
		}
		return "—"
	}
	count := func(o trace.Opt[int64]) string {
		if v, ok := o.Get(); ok {
			return units.Count(v)
		}
		return "—"
	}
	for i := range all.Windows {
		w := &all.Windows[i]
		from := strconv.FormatFloat(float64(w.StartNS-p.Windows.StartNS)/float64(scale.Unit), 'f', -1, 64)
		row := []string{from, units.Count(w.Arrivals), units.Count(w.Served), units.Count(w.Failed),
			num(w.WaitingMean), count(w.WaitingMax), num(w.RunningMean), count(w.RunningMax)}
		if engine {
			kv := "—"
			if e := w.Engine; e != nil {
				if v, ok := e.KVUsageMax.Get(); ok {
					kv = units.Percent(v)
				}
				row = append(row, num(e.WaitingMean), num(e.RunningMean), kv)
			} else {
				row = append(row, "—", "—", kv)
			}
		}
		g.add(row...)
	}
	p.grid(g)
}

func (p *timelinePage) date(t int64) string { return trace.Time(t).UTC().Format(time.DateTime) }

// offset prints an instant as the time since the first, and by the clock.
func (p *timelinePage) offset(t int64) string {
	s := "+" + units.Duration(time.Duration(t-p.Windows.StartNS).Round(max(p.res, time.Millisecond)), p.res)
	if p.Windows.Start != "" {
		s += " (" + trace.Time(t).UTC().Format("15:04:05") + ")"
	}
	return s
}

// changes says what changed, and what was asked and found steady.
func (p *timelinePage) changes() {
	r := p.Changes
	asked := slices.ContainsFunc(r.Tests, func(t analyze.ChangeTest) bool { return t.Outcome != analyze.NotTested })
	switch n := len(r.Changes); {
	case len(r.Tests) == 0:
		p.wrap("", "Nothing could be tested for changes: no request tells when it waited and ran.", bold)
		return
	case !asked:
		p.wrap("", "Too little to tell whether anything changed.", bold)
	case n == 0:
		p.wrap("", "No change found.", bold)
	case n == 1:
		p.wrap("", "1 change found.", bold)
	default:
		p.wrap("", units.Count(int64(n))+" changes found.", bold)
	}
	const most = 20
	for i := range r.Changes {
		if i == most {
			p.line("  and "+units.Count(int64(len(r.Changes)-most))+" more", dim)
			break
		}
		label := strconv.Itoa(i+1) + "  "
		p.wrap(strings.Repeat(" ", max(0, 5-cells(label)))+label, p.change(&r.Changes[i]), plain)
	}
	for of := range r.Tests {
		// One line for each question, at its first test.
		if of > 0 && r.Tests[of].Of == r.Tests[of-1].Of {
			continue
		}
		p.tests(r.Tests[of].Of)
	}
}

// change is one change in words.
func (p *timelinePage) change(c *analyze.Change) string {
	where := ""
	if n := word(c.Replica.String()); n != "" && len(p.Windows.Series) > 1 {
		where = n + ": "
	}
	at := "between " + p.offset(c.FromNS) + " and " + p.offset(c.ToNS)
	if t, ok := c.AtNS.Get(); ok {
		at = "at " + p.offset(t)
	}
	switch c.Of {
	case analyze.OfOverload:
		about := units.Duration(time.Duration(c.ToNS-c.FromNS)/2, 0)
		return where + fmt.Sprintf("overload from %s on, give or take %s: %s requests/s come, %s are taken up; short of: %s; z = %s", strings.TrimPrefix(at, "at "), about,
			units.Number(c.OfferedPerS.Or(math.NaN())), units.Number(c.CapacityPerS.Or(math.NaN())), c.Cause, units.Number(c.Z.Or(math.NaN())))
	case analyze.OfArrivals:
		return where + fmt.Sprintf("arrivals go from %s to %s requests/s %s, give or take %s%s; z = %s", units.Number(c.ArrivalsBefore.Or(math.NaN())), units.Number(c.ArrivalsAfter.Or(math.NaN())), at, units.Duration(time.Duration(c.ToNS-c.FromNS)/2, 0), with(c), units.Number(c.Z.Or(math.NaN())))
	case analyze.OfStall:
		return where + fmt.Sprintf("stall from %s to %s, %s: every request that ran across it is late", p.offset(c.FromNS), p.offset(c.ToNS), p.duration(c.ToNS-c.FromNS))
	}
	// Decode alone is what the test sees; of a prompt token only the models
	// of both sides tell.
	var parts []string
	if strings.Contains(c.Phase, trace.Decode.String()) {
		parts = append(parts, "decode"+slower(c.DecodeRatio))
	}
	if strings.Contains(c.Phase, trace.Prefill.String()) {
		parts = append(parts, "prefill"+slower(c.PrefillRatio)+" a prompt token")
	}
	return where + fmt.Sprintf("%s %s; decodes with the prompts beside them%s for the same work%s; p = %s", strings.Join(parts, ", "), at, slower(c.Ratio), with(c), units.Number(c.P.Or(math.NaN())))
}

// with says how deep the queue was before and after a change.
func with(c *analyze.Change) string {
	if !c.WaitingBefore.Present() || !c.WaitingAfter.Present() {
		return ""
	}
	return fmt.Sprintf("; with it, waiting goes from %s to %s, running from %s to %s", units.Number(c.WaitingBefore.Or(0)), units.Number(c.WaitingAfter.Or(0)),
		units.Number(c.RunningBefore.Or(0)), units.Number(c.RunningAfter.Or(0)))
}

// slower prints a ratio of times.
func slower(o trace.Opt[float64]) string {
	switch v, ok := o.Get(); {
	case !ok:
		return " changes speed"
	case v >= 1:
		return " " + units.Percent(v-1) + " slower"
	default:
		return " " + units.Percent(1-v) + " faster"
	}
}

// tests says of one question where it was asked and what was not found.
func (p *timelinePage) tests(of string) {
	var steady, not int
	var least, most, reason = math.Inf(1), math.Inf(-1), ""
	for _, t := range p.Changes.Tests {
		if t.Of != of {
			continue
		}
		switch t.Outcome {
		case analyze.Steady:
			steady++
			least = min(least, t.P.Or(math.Inf(1)))
			most = max(most, t.Z.Or(math.Inf(-1)))
		case analyze.NotTested:
			not++
			reason = t.Reason
		}
	}
	on := func(n int) string {
		if n == 1 {
			return "1 replica"
		}
		return units.Count(int64(n)) + " replicas"
	}
	if steady > 0 {
		words := map[string]string{
			analyze.OfSpeed: "speed for the same work is steady", analyze.OfOverload: "no overload", analyze.OfArrivals: "arrivals are steady", analyze.OfStall: "no stall",
		}[of] + " on " + on(steady)
		if !math.IsInf(least, 0) {
			words += " (p ≥ " + units.Number(least) + ")"
		}
		if !math.IsInf(most, 0) {
			words += " (z ≤ " + units.Number(most) + ")"
		}
		p.wrap("  tested: ", words, plain)
	}
	if not > 0 {
		p.wrap("  not tested: ", of+" on "+on(not)+": "+reason, plain)
	}
}
