package analyze

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// WindowVersion is the version of the shape of [WindowResult]. It grows when a
// key changes its meaning; added keys do not change it.
const WindowVersion = 1

// MaxWindows is how many windows a timeline may have.
const MaxWindows = 100_000

const (
	// maxCells bounds windows × series: what does not fit is one series
	// together. As a row of a table, a window takes some 3 kB.
	maxCells = 60_000
	// maxEngineCells bounds windows × engines whose readings are laid over.
	maxEngineCells = 3 * MaxWindows
)

// WindowOptions say how time is cut. The zero value works.
type WindowOptions struct {
	// Every is the length of a window; 0: a round one of which some sixty
	// cover what was seen.
	Every time.Duration
}

// Windows collects requests and readings and lays them on one axis of time,
// cut into windows of equal length. It keeps some 300 bytes a request. The
// order of adding changes nothing.
type Windows struct {
	opts       WindowOptions
	rows       []windowRow
	segments   []trace.Segment
	replicas   []ReplicaName // by number of first use, which never shows
	ids        map[ReplicaName]uint32
	readings   []trace.Reading
	resolution time.Duration
	tells      trace.Phase // single phases that some source claims, alone or with others of the kind
}

// ReplicaName names one engine: what requests that share a queue agree in.
// Parts that the data do not say are empty.
type ReplicaName struct {
	Service string `json:"service"`
	Model   string `json:"model"`
	Replica string `json:"replica"`
}

// String is the shortest of its parts that says something: the replica, else
// the service, else the model, else "".
func (n ReplicaName) String() string { return cmp.Or(n.Replica, n.Service, n.Model) }

func (n ReplicaName) compare(m ReplicaName) int {
	return cmp.Or(strings.Compare(n.Service, m.Service), strings.Compare(n.Replica, m.Replica), strings.Compare(n.Model, m.Model))
}

// windowRow is what is kept of a request. Instants that are absent are below
// zero on ClockUnix and told by has on every clock.
type windowRow struct {
	start, end         int64 // the extent
	arrival, completed int64
	segment            uint64 // where its segments begin
	segments           uint32
	replica            uint32
	clock              trace.Clock
	outcome            trace.Outcome
	has                windowFlag
}

type windowFlag uint8

const (
	windowExtent windowFlag = 1 << iota
	windowArrival
	windowCompleted
)

// NewWindows returns an empty collection.
func NewWindows(opts WindowOptions) *Windows {
	return &Windows{opts: opts, ids: map[ReplicaName]uint32{}}
}

// Add takes one request into account. It keeps nothing of r.
func (w *Windows) Add(r *trace.Request) {
	name := ReplicaName{r.Service, r.Model, r.Replica}
	id, ok := w.ids[name]
	if !ok {
		// The texts may be slices of a whole record.
		name = ReplicaName{strings.Clone(name.Service), strings.Clone(name.Model), strings.Clone(name.Replica)}
		id = uint32(len(w.replicas))
		w.ids[name] = id
		w.replicas = append(w.replicas, name)
	}
	row := windowRow{replica: id, clock: r.Clock, outcome: r.Outcome, segment: uint64(len(w.segments))}
	if start, end, ok := r.Extent(); ok {
		row.start, row.end, row.has = int64(start), int64(end), row.has|windowExtent
	}
	if t, ok := r.Arrival.Get(); ok {
		row.arrival, row.has = int64(t), row.has|windowArrival
	}
	if t, ok := r.Completed.Get(); ok {
		row.completed, row.has = int64(t), row.has|windowCompleted
	}
	w.segments = r.Segments(w.segments)
	row.segments = uint32(uint64(len(w.segments)) - row.segment)
	w.rows = append(w.rows, row)
	w.resolution = max(w.resolution, r.Resolution)
	for _, iv := range r.Intervals {
		if k := iv.Phase.Kind(); k == trace.Waiting || k == trace.Compute {
			w.tells |= iv.Phase
		}
	}
}

// AddReading takes an engine's statement of its state into account.
func (w *Windows) AddReading(r trace.Reading) { w.readings = append(w.readings, r) }

// WindowResult is the answer of [Windows]. It is plain data; durations are
// whole nanoseconds, and what is not known is absent (null in JSON), never 0.
//
// The time by phase of all windows adds up to the phases of the requests'
// breakdowns exactly; the series of the replicas add up to that of all.
type WindowResult struct {
	Version      int              `json:"version"`
	Requests     int64            `json:"requests"`
	NoTime       int64            `json:"no_time"` // requests without any instant: in no window
	Clock        string           `json:"clock"`   // as on the report's card
	ResolutionNS trace.Opt[int64] `json:"resolution_ns"`
	// From the first instant of a request to the last; of a reading where
	// there is no request.
	StartNS int64  `json:"start_ns"`
	EndNS   int64  `json:"end_ns"`
	Start   string `json:"start"` // RFC 3339, UTC; "" unless the clock is unix
	End     string `json:"end"`
	EveryNS int64  `json:"every_ns"`
	// Phases names the sets of phases that PhaseNS gives, in the order of a
	// request's life, unattributed last.
	Phases []string `json:"phases"`
	// Causes names the causes that CauseNS gives; empty where none were asked.
	Causes []string `json:"causes"`
	// Series are all requests together, then, where there are several, each
	// replica by name.
	Series []WindowSeries `json:"series"`
	Notes  []string       `json:"notes"` // what is not shown and why, for people
}

// WindowSeries is the windows of one replica, or of all.
type WindowSeries struct {
	// Replica is null for all together, and for the rest where there are more
	// replicas than can be shown (Rest).
	Replica  *ReplicaName `json:"replica"`
	Rest     bool         `json:"rest"`
	Requests int64        `json:"requests"`
	// Unended counts requests that tell no end, where they are so many that
	// who was in the system is not known; else 0.
	Unended int64  `json:"unended_requests"`
	Windows []Slot `json:"windows"`
}

// Name names the series for people.
func (s *WindowSeries) Name() string {
	switch {
	case s.Rest:
		return "other replicas"
	case s.Replica == nil:
		return "all"
	}
	return cmp.Or(s.Replica.String(), "(no name)")
}

// Slot is what happened in one window: [StartNS, EndNS), the last one with its
// end.
type Slot struct {
	StartNS int64 `json:"start_ns"`
	EndNS   int64 `json:"end_ns"`

	Arrivals int64 `json:"arrivals"`
	Served   int64 `json:"served"` // completed ok
	Failed   int64 `json:"failed"` // ended otherwise

	// Requests in the system (all of their extent), waiting, and running
	// (prefill, decode), mean over the window and most at one instant. Waiting
	// and running are absent where no source tells of them, those in the system
	// where more than a twentieth of the series' requests tell no end, a mean
	// in a window without length.
	SystemMean  trace.Opt[float64] `json:"system_mean"`
	SystemMax   trace.Opt[int64]   `json:"system_max"`
	WaitingMean trace.Opt[float64] `json:"waiting_mean"`
	WaitingMax  trace.Opt[int64]   `json:"waiting_max"`
	RunningMean trace.Opt[float64] `json:"running_mean"`
	RunningMax  trace.Opt[int64]   `json:"running_max"`

	// PhaseNS is the requests' time that falls into the window, in the order
	// of WindowResult.Phases.
	PhaseNS []int64 `json:"phase_ns"`
	// CauseNS divides the waiting in it, in the order of WindowResult.Causes;
	// null where these were not asked.
	CauseNS []int64 `json:"cause_ns"`

	// Engine is what the engines say of themselves; null where none does.
	Engine *EngineSlot `json:"engine"`
}

// EngineSlot is an engine's readings in one window, each standing until the
// next. Over several engines counts are summed and KV usage is the fullest's.
type EngineSlot struct {
	Readings    int64              `json:"readings"`
	RunningMean trace.Opt[float64] `json:"running_mean"`
	RunningMax  trace.Opt[int64]   `json:"running_max"` // null over several engines
	WaitingMean trace.Opt[float64] `json:"waiting_mean"`
	WaitingMax  trace.Opt[int64]   `json:"waiting_max"` // likewise
	KVUsageMax  trace.Opt[float64] `json:"kv_usage_max_share"`
}

// grid cuts an axis of time.
type grid struct {
	start, end, every int64
	n                 int
}

func (g grid) index(t int64) int {
	if t <= g.start {
		return 0
	}
	// As unsigned, since the axis may be longer than int64.
	return int(min((uint64(t)-uint64(g.start))/uint64(g.every), uint64(g.n-1)))
}

// from and to are the borders of window i.
func (g grid) from(i int) int64 { return g.start + int64(i)*g.every }
func (g grid) to(i int) int64 {
	if i == g.n-1 {
		return g.end
	}
	return g.start + int64(i+1)*g.every
}

func newGrid(start, end int64, every time.Duration, resolution time.Duration) (grid, error) {
	length := uint64(end) - uint64(start)
	if every <= 0 {
		every = chooseEvery(length, resolution)
	}
	n := max(1, length/uint64(every)+min(1, length%uint64(every)))
	if n > MaxWindows {
		least := time.Duration(math.MaxInt64)
		for s := range roundSteps {
			if length/uint64(s) < MaxWindows {
				least = s
				break
			}
		}
		return grid{}, fmt.Errorf("windows of %s would be %s over %s, more than %s: take %s or longer, or a part of the time",
			units.Duration(every, 0), units.Count(int64(min(n, math.MaxInt64))), units.Duration(time.Duration(min(length, math.MaxInt64)), 0), units.Count(MaxWindows), least)
	}
	return grid{start, end, int64(every), int(n)}, nil
}

// roundSteps yields the lengths that people use, ascending.
func roundSteps(yield func(time.Duration) bool) {
	for p := time.Duration(1); p < time.Second; p *= 10 {
		for _, m := range []time.Duration{1, 2, 5} {
			if !yield(p * m) {
				return
			}
		}
	}
	const day = 24 * time.Hour
	for _, d := range []time.Duration{
		1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 2 * 3600, 6 * 3600, 12 * 3600,
	} {
		if !yield(d * time.Second) {
			return
		}
	}
	for d := day; d > 0; d *= 2 {
		if !yield(d) {
			return
		}
	}
}

// chooseEvery picks the least round length, no finer than the clocks, of which
// at most sixty cover the axis.
func chooseEvery(length uint64, resolution time.Duration) time.Duration {
	for s := range roundSteps {
		if s >= resolution && length/60 < uint64(s) {
			return s
		}
	}
	return math.MaxInt64
}

// Result computes the windows of all that was added so far. parts gives the
// waiting of the i-th request added by cause, as [WaitResult.Parts] does; nil:
// no causes. The error says that the windows would be too many.
func (w *Windows) Result(parts func(i int) []WaitPart) (*WindowResult, error) {
	res := &WindowResult{
		Version: WindowVersion, Requests: int64(len(w.rows)),
		Phases: []string{}, Causes: []string{}, Series: []WindowSeries{}, Notes: []string{},
	}
	axis, ok := w.axis(res)
	if w.resolution > 0 {
		res.ResolutionNS = trace.Some(int64(w.resolution))
	}
	if !ok {
		return res, nil
	}
	g, err := newGrid(axis.start, axis.end, w.opts.Every, w.resolution)
	if err != nil {
		return nil, err
	}
	res.StartNS, res.EndNS, res.EveryNS = g.start, g.end, g.every
	if res.Clock == trace.ClockUnix.String() {
		res.Start = trace.Time(g.start).UTC().Format(time.RFC3339Nano)
		res.End = trace.Time(g.end).UTC().Format(time.RFC3339Nano)
	}
	b := &windowBuild{Windows: w, grid: g, phase: map[trace.Phase]int{}, parts: parts}
	if parts != nil {
		for i, c := range Causes() {
			b.cause[c] = i
			res.Causes = append(res.Causes, c.String())
		}
	}
	for _, p := range w.phases() {
		b.phase[p] = len(res.Phases)
		res.Phases = append(res.Phases, p.String())
	}
	all := make([]uint32, len(w.rows))
	for i := range all {
		all[i] = uint32(i)
	}
	res.Series = append(res.Series, b.series(all))
	w.split(b, res)
	w.overlay(b, res)
	return res, nil
}

// axis finds the clock and what the windows have to cover.
func (w *Windows) axis(res *WindowResult) (s span, ok bool) {
	see := func(c trace.Clock, start, end int64) bool {
		if !ok {
			s, ok, res.Clock = span{start, end}, true, c.String()
		}
		s.start, s.end = min(s.start, start), max(s.end, end)
		return res.Clock == c.String()
	}
	same := true
	for i := range w.rows {
		if r := &w.rows[i]; r.has&windowExtent != 0 {
			same = see(r.clock, r.start, r.end) && same
		} else {
			res.NoTime++
		}
	}
	if !ok {
		for _, r := range w.readings {
			same = see(r.Clock, int64(r.At), int64(r.At)) && same
			w.resolution = max(w.resolution, r.Resolution)
		}
	}
	switch {
	case !same:
		res.Clock = "mixed"
		res.Notes = append(res.Notes, "The input is on different clocks, which cannot share an axis: show the files apart.")
		return s, false
	case ok && res.Clock == trace.ClockUnknown.String():
		res.Notes = append(res.Notes, "When the requests were sent is not known: they share no axis.")
		return s, false
	case !ok && res.NoTime == 0:
		res.Notes = append(res.Notes, "There is no request and no reading to show.")
	}
	if res.NoTime > 0 {
		res.Notes = append(res.Notes, plural(res.NoTime, "request has no instant and is", "requests have no instant and are")+" in no window.")
	}
	return s, ok
}

// phases lists the sets of phases that have time, in order, unattributed last.
func (w *Windows) phases() []trace.Phase {
	seen := map[trace.Phase]bool{}
	for i := range w.segments {
		seen[w.segments[i].Phase] = true
	}
	delete(seen, trace.Unattributed)
	var list []trace.Phase
	for p := range seen {
		list = append(list, p)
	}
	slices.SortFunc(list, comparePhases)
	return append(list, trace.Unattributed)
}

// windowBuild is what the series share while they are computed.
type windowBuild struct {
	*Windows
	grid
	phase map[trace.Phase]int
	cause [CauseStep + 1]int // index in the order of Causes
	parts func(int) []WaitPart
}

// split adds the series of the replicas where there are several.
func (w *Windows) split(b *windowBuild, res *WindowResult) {
	if len(w.replicas) < 2 {
		if len(w.replicas) == 1 && w.replicas[0] != (ReplicaName{}) {
			res.Series[0].Replica = &w.replicas[0]
		}
		return
	}
	rows := make([][]uint32, len(w.replicas))
	for i := range w.rows {
		id := w.rows[i].replica
		rows[id] = append(rows[id], uint32(i))
	}
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	byName := func(i, j int) int { return w.replicas[i].compare(w.replicas[j]) }
	var rest []uint32
	if most := max(2, maxCells/b.n-1); len(order) > most {
		slices.SortFunc(order, func(i, j int) int { return cmp.Or(cmp.Compare(len(rows[j]), len(rows[i])), byName(i, j)) })
		for _, i := range order[most-1:] {
			rest = append(rest, rows[i]...)
		}
		res.Notes = append(res.Notes, fmt.Sprintf("%s with the fewest requests are shown as one.", plural(int64(len(order)-most+1), "replica", "replicas")))
		order = order[:most-1]
	}
	slices.SortFunc(order, byName)
	for _, i := range order {
		s := b.series(rows[i])
		s.Replica = &w.replicas[i]
		res.Series = append(res.Series, s)
	}
	if rest != nil {
		s := b.series(rest)
		s.Rest = true
		res.Series = append(res.Series, s)
	}
}

// series computes the windows of some rows.
func (b *windowBuild) series(rows []uint32) WindowSeries {
	s := WindowSeries{Requests: int64(len(rows)), Windows: make([]Slot, b.n)}
	phases := newShares(b.grid, len(b.phase))
	var causes *shares
	if b.parts != nil {
		causes = newShares(b.grid, len(Causes()))
	}
	var system, waiting, running edges
	open := 0
	for _, id := range rows {
		r := &b.rows[id]
		if r.has&windowExtent == 0 {
			continue
		}
		if r.has&windowArrival != 0 {
			s.Windows[b.index(r.arrival)].Arrivals++
		}
		if r.has&windowCompleted != 0 {
			if w := &s.Windows[b.index(r.completed)]; r.outcome == trace.OK {
				w.Served++
			} else {
				w.Failed++
			}
		} else {
			open++
		}
		system.add(r.start, r.end)
		for _, g := range b.segments[r.segment : r.segment+uint64(r.segments)] {
			from, to := int64(g.Start), int64(g.End)
			phases.add(b.phase[g.Phase], from, to)
			switch g.Phase.Kind() {
			case trace.Waiting:
				waiting.add(from, to)
			case trace.Compute:
				running.add(from, to)
			}
		}
		if causes != nil {
			for _, part := range b.parts(int(id)) {
				causes.add(b.cause[part.Cause], int64(part.Start), int64(part.End))
			}
		}
	}
	phases.finish()
	if causes != nil {
		causes.finish()
	}
	for i := range s.Windows {
		w := &s.Windows[i]
		w.StartNS, w.EndNS, w.PhaseNS = b.from(i), b.to(i), phases.of(i)
		if causes != nil {
			w.CauseNS = causes.of(i)
		}
	}
	if open <= len(rows)/20 {
		b.depths(s.Windows, system.peaks(b.grid), func(trace.Phase) bool { return true }, func(w *Slot, mean trace.Opt[float64], most int64) {
			w.SystemMean, w.SystemMax = mean, trace.Some(most)
		})
	} else {
		s.Unended = int64(open)
	}
	if b.tells&(trace.Queueing|trace.Preempted) != 0 {
		b.depths(s.Windows, waiting.peaks(b.grid), func(p trace.Phase) bool { return p.Kind() == trace.Waiting }, func(w *Slot, mean trace.Opt[float64], most int64) {
			w.WaitingMean, w.WaitingMax = mean, trace.Some(most)
		})
	}
	if b.tells&(trace.Prefill|trace.Decode) != 0 {
		b.depths(s.Windows, running.peaks(b.grid), func(p trace.Phase) bool { return p.Kind() == trace.Compute }, func(w *Slot, mean trace.Opt[float64], most int64) {
			w.RunningMean, w.RunningMax = mean, trace.Some(most)
		})
	}
	return s
}

// shares adds up time by window and part.
type shares struct {
	grid
	parts int
	ns    []int64 // by window, then part
	// Windows that a stretch covers whole are counted by their difference to
	// the window before, so that a stretch costs the same however long it is.
	whole []int64
}

func newShares(g grid, parts int) *shares {
	return &shares{g, parts, make([]int64, g.n*parts), make([]int64, (g.n+1)*parts)}
}

func (s *shares) add(part int, from, to int64) {
	if to <= from {
		return
	}
	i, j := s.index(from), s.index(to-1)
	if i == j {
		s.ns[i*s.parts+part] += to - from
		return
	}
	s.ns[i*s.parts+part] += s.to(i) - from
	s.ns[j*s.parts+part] += to - s.from(j)
	s.whole[(i+1)*s.parts+part]++
	s.whole[j*s.parts+part]--
}

// finish turns the counts of whole windows into time.
func (s *shares) finish() {
	for i := range s.n {
		for p := range s.parts {
			s.whole[(i+1)*s.parts+p] += s.whole[i*s.parts+p]
			s.ns[i*s.parts+p] += s.whole[i*s.parts+p] * (s.to(i) - s.from(i))
		}
	}
}

// of is the time of window i by part.
func (s *shares) of(i int) []int64 {
	return s.ns[i*s.parts : (i+1)*s.parts : (i+1)*s.parts]
}

// depths gives each window the mean number of requests in some phases and the
// most at once.
func (b *windowBuild) depths(ws []Slot, peaks []int64, in func(trace.Phase) bool, set func(*Slot, trace.Opt[float64], int64)) {
	var of []int
	for p, i := range b.phase {
		if in(p) {
			of = append(of, i)
		}
	}
	for i := range ws {
		var sum int64
		for _, p := range of {
			sum += ws[i].PhaseNS[p]
		}
		var mean trace.Opt[float64]
		if d := ws[i].EndNS - ws[i].StartNS; d > 0 {
			mean = trace.Some(float64(sum) / float64(d))
		}
		set(&ws[i], mean, peaks[i])
	}
}

// edges are the ends of stretches of time.
type edges struct{ starts, ends []int64 }

func (e *edges) add(start, end int64) {
	if end > start {
		e.starts = append(e.starts, start)
		e.ends = append(e.ends, end)
	}
}

// peaks returns how many stretches are open at once at most, in each window.
// Ends come before starts at the same instant.
func (e *edges) peaks(g grid) []int64 {
	slices.Sort(e.starts)
	slices.Sort(e.ends)
	out := make([]int64, g.n)
	var open int64
	var since int64
	for s, t := 0, 0; t < len(e.ends); {
		at := e.ends[t]
		if s < len(e.starts) {
			at = min(at, e.starts[s])
		}
		if open > 0 && at > since {
			for i := g.index(since); i <= g.index(at-1); i++ {
				out[i] = max(out[i], open)
			}
		}
		since = at
		for ; t < len(e.ends) && e.ends[t] == at; t++ {
			open--
		}
		for ; s < len(e.starts) && e.starts[s] == at; s++ {
			open++
		}
	}
	return out
}

// overlay lays the engines' readings over the windows. Readings outside of
// them are not shown.
func (w *Windows) overlay(b *windowBuild, res *WindowResult) {
	// A log's parts are one engine: ingest names servers apart.
	type id struct{ engine, service, replica string }
	byEngine := map[id][]trace.Reading{}
	outside := int64(0)
	for _, r := range w.readings {
		if r.Clock.String() != res.Clock || int64(r.At) < b.start || int64(r.At) > b.end {
			outside++
			continue
		}
		k := id{r.Source.Engine, r.Service, r.Replica}
		byEngine[k] = append(byEngine[k], r)
	}
	if outside > 0 {
		res.Notes = append(res.Notes, plural(outside, "reading lies", "readings lie")+" before the first or after the last request.")
	}
	ids := make([]id, 0, len(byEngine))
	for k := range byEngine {
		ids = append(ids, k)
	}
	slices.SortFunc(ids, func(x, y id) int {
		return cmp.Or(strings.Compare(x.service, y.service), strings.Compare(x.replica, y.replica), strings.Compare(x.engine, y.engine))
	})
	if most := max(2, maxEngineCells/b.n); len(ids) > most {
		res.Notes = append(res.Notes, plural(int64(len(ids)-most), "engine's readings are", "engines' readings are")+" not shown: there are too many engines.")
		ids = ids[:most]
	}
	for _, k := range ids {
		rs := byEngine[k]
		slices.SortFunc(rs, compareReadings)
		slots := b.engine(rs)
		for i := range res.Series {
			s := &res.Series[i]
			// The first series is of all; a reading says nothing of the model.
			if i > 0 && (s.Replica == nil || s.Replica.Service != k.service || !engineAt(k.replica, s.Replica.Replica)) {
				continue
			}
			for j := range slots {
				s.Windows[j].Engine = s.Windows[j].Engine.join(slots[j])
			}
		}
	}
}

// engine gives each window what one engine's readings, sorted, say of it: nil
// where none stands.
func (b *windowBuild) engine(rs []trace.Reading) []*EngineSlot {
	type slot struct {
		n                    int64
		running, waiting, kv held
	}
	slots := make([]*slot, b.n)
	at := func(i int) *slot {
		if slots[i] == nil {
			slots[i] = &slot{}
		}
		return slots[i]
	}
	for i := range rs {
		r := &rs[i]
		from, to := int64(r.At), int64(r.At)
		if i+1 < len(rs) {
			to = int64(rs[i+1].At)
		}
		at(b.index(from)).n++
		for w := b.index(from); w <= b.index(max(from, to-1)); w++ {
			dt := float64(min(to, b.to(w)) - max(from, b.from(w)))
			s := at(w)
			s.running.add(number(r.Running), dt)
			s.waiting.add(number(r.Waiting), dt)
			s.kv.add(r.KVUsage, dt)
		}
	}
	out := make([]*EngineSlot, b.n)
	for i, s := range slots {
		if s != nil {
			out[i] = &EngineSlot{
				Readings: s.n, RunningMean: s.running.mean(), RunningMax: whole(s.running.top),
				WaitingMean: s.waiting.mean(), WaitingMax: whole(s.waiting.top), KVUsageMax: s.kv.top,
			}
		}
	}
	return out
}

// join adds another engine's window.
func (e *EngineSlot) join(f *EngineSlot) *EngineSlot {
	switch {
	case f == nil:
		return e
	case e == nil:
		g := *f
		return &g
	}
	sum := func(x, y trace.Opt[float64]) trace.Opt[float64] {
		if !x.Present() || !y.Present() {
			return trace.Opt[float64]{}
		}
		return trace.Some(x.Or(0) + y.Or(0))
	}
	g := &EngineSlot{
		Readings: e.Readings + f.Readings, RunningMean: sum(e.RunningMean, f.RunningMean), WaitingMean: sum(e.WaitingMean, f.WaitingMean),
		KVUsageMax: e.KVUsageMax,
	}
	if v, ok := f.KVUsageMax.Get(); ok {
		g.KVUsageMax = trace.Some(max(v, e.KVUsageMax.Or(v)))
	}
	return g
}
