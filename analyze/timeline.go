package analyze

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/traceview/traceview/trace"
)

// A timeline is the sweep of one replica: what ran and what waited between two
// neighbouring events. Times are nanoseconds after its first event, so that
// where the measurement lies on the axis changes no figure.
type timeline struct {
	origin int64
	runs   []run
	waits  []wait
	events []event
	// edges are the distinct instants at which a step began or ended: work was
	// taken up, a first or a last token came, a request was pushed back.
	edges    []int64
	instants int   // at which something happened
	end      int64 // of the last event
}

// A run is a stretch during which a request held the replica. Until first it
// computed its prompt.
type run struct {
	start, end, first int64
	row               uint32
	prompt            float64 // prompt tokens: resident from the start
	compute           float64 // of which not found in the prefix cache
	alpha, beta       float64 // resident tokens after first: alpha + beta·t
	rate              float64 // compute tokens per nanosecond of prefill
	last              bool    // ended with the last token, not before
	spans             bool    // its prefill spans an edge
	chunked           bool    // its prefill took several steps
}

// A wait is a stretch during which a request waited.
type wait struct {
	start, end int64
	row        uint32
	admitted   bool    // work was taken up at its end
	aside      bool    // why it waited is not asked
	pushed     bool    // it had run and was pushed back
	need       float64 // tokens that have to fit into memory
	compute    float64 // of which to be computed
}

// eventKind orders events of one instant: leave running, enter running, enter
// waiting. A slot freed and taken at one instant is then never counted twice.
type eventKind uint8

const (
	prefillEnds eventKind = iota
	leaveRunning
	leaveWaiting
	enterRunning
	enterWaiting
)

type event struct {
	at   int64
	of   uint32 // index into runs, or for waiting into waits
	kind eventKind
}

// newTimeline builds the timeline of those rows, which are in an order that
// the data decide.
func (ws *Waits) newTimeline(rows []uint32, sorter *sorter) *timeline {
	tl := &timeline{origin: math.MaxInt64}
	for _, i := range rows {
		r := ws.rows.at(i)
		for _, s := range ws.spansOf(r) {
			tl.origin = min(tl.origin, s.start)
		}
		if r.runEnd > r.runStart {
			tl.origin = min(tl.origin, r.runStart)
		}
	}
	waits := 0
	for _, i := range rows {
		waits += int(ws.rows.at(i).spans)
	}
	tl.runs, tl.waits = make([]run, 0, len(rows)), make([]wait, 0, waits)
	for _, i := range rows {
		tl.add(ws.rows.at(i), ws.spansOf(ws.rows.at(i)), i)
	}
	var n [enterWaiting + 1]int
	for i := range tl.runs {
		if tl.runs[i].first > tl.runs[i].start {
			n[prefillEnds]++
		}
	}
	tl.events = make([]event, 0, n[prefillEnds]+2*len(tl.runs)+2*len(tl.waits))
	for i, r := range tl.runs {
		if r.first > r.start {
			tl.events = append(tl.events, event{r.first, uint32(i), prefillEnds})
		}
	}
	for i, r := range tl.runs {
		tl.events = append(tl.events, event{r.end, uint32(i), leaveRunning})
	}
	for i, w := range tl.waits {
		tl.events = append(tl.events, event{w.end, uint32(i), leaveWaiting})
	}
	for i, r := range tl.runs {
		tl.events = append(tl.events, event{r.start, uint32(i), enterRunning})
	}
	for i, w := range tl.waits {
		tl.events = append(tl.events, event{w.start, uint32(i), enterWaiting})
	}
	sorter.sort(tl.events)
	tl.edges = make([]int64, 0, len(tl.events)-2*len(tl.waits))
	for i, e := range tl.events {
		if i == 0 || e.at != tl.end {
			tl.instants++
		}
		tl.end = e.at
		if tl.isEdge(e) && (len(tl.edges) == 0 || tl.edges[len(tl.edges)-1] != e.at) {
			tl.edges = append(tl.edges, e.at)
		}
	}
	return tl
}

// isEdge reports whether e shows that a step began or ended. The end of a
// request that failed, or of what was seen of it, need not.
func (tl *timeline) isEdge(e event) bool {
	switch e.kind {
	case leaveRunning:
		return tl.runs[e.of].last
	case prefillEnds:
		// A prefill that was cut short ends with its run and shows nothing.
		r := &tl.runs[e.of]
		return r.first < r.end || r.last
	case enterRunning:
		return true
	}
	return false
}

// add appends a row's waits and the runs between them.
func (tl *timeline) add(r *waitRow, spans []waitSpan, row uint32) {
	prompt := float64(max(r.in, 0))
	compute := max(0, prompt-float64(max(r.cached, 0)))
	out := float64(max(r.out, 0))
	runStart, runEnd, first := r.runStart-tl.origin, r.runEnd-tl.origin, r.first-tl.origin
	resident := run{alpha: prompt}
	if d := float64(runEnd - first); d > 0 && first >= runStart {
		resident.beta = out / d
		resident.alpha = prompt - resident.beta*float64(first)
	}
	stretch := func(from, to int64, last bool) {
		if to <= from {
			return
		}
		v := run{
			start: from, end: to, first: min(max(first, from), to), row: row,
			prompt: prompt, compute: compute, alpha: resident.alpha, beta: resident.beta, last: last,
		}
		if d := v.first - v.start; d > 0 {
			v.rate = max(compute, 1) / float64(d)
		}
		tl.runs = append(tl.runs, v)
	}
	at := runStart
	for _, s := range spans {
		w := wait{start: s.start - tl.origin, end: s.end - tl.origin, row: row, aside: r.aside, need: prompt, compute: compute}
		if runEnd > runStart {
			w.admitted = w.end >= runStart && w.end < runEnd
			if w.start > runStart && w.start < runEnd {
				stretch(at, w.start, true)
				w.pushed = true
				if w.start > first {
					w.need = resident.alpha + resident.beta*float64(w.start)
				}
				w.compute = w.need
			}
			at = max(at, min(w.end, runEnd))
		}
		tl.waits = append(tl.waits, w)
	}
	if runEnd > runStart {
		stretch(at, runEnd, r.ended)
	}
}

// A sorter sorts events by time and keeps the order of those of one instant.
// It keeps its memory for the next time.
type sorter struct {
	other  []event
	count  []uint32
	digits [1 << digitBits]int
}

const (
	fewEvents  = 24   // are sorted by insertion
	manyEvents = 2048 // by their digits
	digitBits  = 11
)

// sort cuts the time into as many equal pieces as there are events, by half,
// and sorts what falls into one piece: events are spread over the time, and
// nearly in order when they come, so that a piece holds few and memory is
// passed over in one direction.
func (s *sorter) sort(events []event) {
	if len(events) <= fewEvents {
		insertEvents(events, events)
		return
	}
	var last int64
	for i := range events {
		last = max(last, events[i].at)
	}
	size := bits.Len(uint(len(events) / 2))
	shift := max(0, bits.Len64(uint64(last))-size)
	pieces := int(last>>shift) + 1
	s.count = slices.Grow(s.count[:0], pieces)[:pieces]
	clear(s.count)
	for i := range events {
		s.count[events[i].at>>shift]++
	}
	var at uint32
	for i, n := range s.count {
		s.count[i] = at
		at += n
	}
	s.other = slices.Grow(s.other[:0], len(events))[:len(events)]
	for i := range events {
		n := &s.count[events[i].at>>shift]
		s.other[*n] = events[i]
		*n++
	}
	from := uint32(0)
	for _, to := range s.count {
		switch piece := s.other[from:to]; {
		case len(piece) == 0:
		case len(piece) <= fewEvents:
			insertEvents(events[from:to], piece)
		case len(piece) < manyEvents:
			slices.SortStableFunc(piece, func(x, y event) int { return cmp.Compare(x.at, y.at) })
			copy(events[from:to], piece)
		default:
			s.byDigits(events[from:to], piece, shift)
		}
		from = to
	}
}

// insertEvents writes events to dst, sorted. The two may be one.
func insertEvents(dst, events []event) {
	for i, e := range events {
		for ; i > 0 && dst[i-1].at > e.at; i-- {
			dst[i] = dst[i-1]
		}
		dst[i] = e
	}
}

// byDigits writes events to dst, sorted by the lowest bits of their times, of
// which there are so many: the rest is equal. However many events share a
// piece of the time, it costs them no more than a few passes.
func (s *sorter) byDigits(dst, events []event, n int) {
	from, to := events, dst
	for shift := 0; shift < n; shift += digitBits {
		clear(s.digits[:])
		for i := range from {
			s.digits[from[i].at>>shift&(1<<digitBits-1)]++
		}
		at := 0
		for i, n := range s.digits {
			s.digits[i] = at
			at += n
		}
		for i := range from {
			d := &s.digits[from[i].at>>shift&(1<<digitBits-1)]
			to[*d] = from[i]
			*d++
		}
		from, to = to, from
	}
	if &from[0] != &dst[0] {
		copy(dst, from)
	}
}

// state is what a sweep carries from one event to the next.
type state struct {
	n, w     int
	asked    int     // of w, those that are to be explained
	prefills int     // of n
	spans    int     // of prefills, those that span an edge
	chunked  int     // and those that take several steps
	prompts  float64 // prompt tokens of the running
	resident float64 // with what they have put out so far
	growth   float64 // resident tokens per nanosecond
	compute  float64 // prompt tokens of the prefills
	inChunks float64 // of which of those that take several steps
	rate     float64 // of these, tokens per nanosecond
	speed    float64 // of all prefills
}

// advance takes the state d nanoseconds further.
func (s *state) advance(d int64) { s.resident += s.growth * float64(d) }

// change takes one event into account.
func (s *state) change(tl *timeline, e event) {
	switch e.kind {
	case enterWaiting:
		s.w++
		if !tl.waits[e.of].aside {
			s.asked++
		}
		return
	case leaveWaiting:
		s.w--
		if !tl.waits[e.of].aside {
			s.asked--
		}
		return
	}
	r := &tl.runs[e.of]
	switch e.kind {
	case enterRunning:
		s.n++
		s.prompts += r.prompt
		if r.first > r.start {
			s.prefills++
			s.resident += r.prompt
			s.compute += r.compute
			s.speed += r.rate
			if r.spans {
				s.spans++
			}
			if r.chunked {
				s.chunked++
				s.inChunks += r.compute
				s.rate += r.rate
			}
		} else {
			s.resident += r.at(r.start)
			s.growth += r.beta
		}
	case prefillEnds:
		s.prefills--
		s.compute -= r.compute
		s.speed -= r.rate
		if r.spans {
			s.spans--
		}
		if r.chunked {
			s.chunked--
			s.inChunks -= r.compute
			s.rate -= r.rate
		}
		s.resident += r.at(r.first) - r.prompt
		s.growth += r.beta
	case leaveRunning:
		s.n--
		s.prompts -= r.prompt
		s.resident -= r.at(r.end)
		s.growth -= r.beta
	}
	// Sums of floats that should be zero again are made so.
	if s.prefills == 0 {
		s.compute, s.inChunks, s.rate, s.speed = 0, 0, 0, 0
	}
	if s.n == 0 {
		s.prompts, s.resident, s.growth = 0, 0, 0
	}
}

// at is what r holds in memory at t, after its prefill.
func (r *run) at(t int64) float64 { return r.alpha + r.beta*float64(t) }

// place is where a request ran: requests of one place share an engine.
type place struct {
	clock                   trace.Clock
	service, model, replica string
}
