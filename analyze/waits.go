package analyze

import (
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/traceview/traceview/trace"
)

// Cause is why a nanosecond was waited. Every nanosecond of waiting has exactly
// one, so that causes sum to waiting.
type Cause uint8

const (
	CauseUnknown Cause = iota // none of the others can be shown
	CauseHold                 // nothing ran while work waited
	CauseStall                // requests ran and nothing progressed
	CauseSlots                // all slots were taken
	CauseKVCache              // the next request did not fit into memory
	CausePrefill              // other prompts held the step
	CauseStep                 // nothing was full: the step in flight had to end
)

var causes = [...]struct{ name, remedy string }{
	{"unknown", "more data"},
	{"hold", "the batching policy or its timeout"},
	{"stall", "find what froze"},
	{"slots", "a higher limit if memory and step time allow, else replicas"},
	{"kv_cache", "memory, shorter contexts, prefix reuse, replicas"},
	{"prefill", "chunk size and budget, separating long prompts or prefill from decode"},
	{"step", "shorter steps"},
}

func (c Cause) String() string {
	if int(c) < len(causes) {
		return causes[c].name
	}
	return "invalid"
}

// Remedy says what helps against the cause.
func (c Cause) Remedy() string {
	if int(c) < len(causes) {
		return causes[c].remedy
	}
	return ""
}

// Causes lists the causes in the order of reports.
func Causes() []Cause {
	return []Cause{CauseHold, CauseStall, CauseSlots, CauseKVCache, CausePrefill, CauseStep, CauseUnknown}
}

// WaitOptions says what is known beside the requests. The zero value works.
type WaitOptions struct {
	// Limits as stated; absent: taken from the data where it says them, else
	// inferred.
	Slots, Budget, KVTokens trace.Opt[int64]
	// By are the keys that divide waiters and holders into classes; empty: the
	// first tenant-like key that the requests have ([TenantKeys]), else one
	// class.
	By []string
	// Equal charges equal shares, whatever is scarce.
	Equal bool
	// Sampled says that the requests are a sample, where the data do not:
	// waiting while none of them ran is then unknown and not hold.
	Sampled bool
	// OverTime also looks for what changed while the requests ran, which takes
	// a third more time.
	OverTime bool
}

// WaitPart is a stretch of one request's waiting with one cause.
type WaitPart struct {
	Start, End trace.Time
	Cause      Cause
	Hidden     bool // inferred from holders that the data do not show
	Avoidable  bool // another replica of the model had no queue and a free slot
}

// Waits explains waiting: it gives every nanosecond of it one [Cause] and
// charges it to the requests that held the replica meanwhile. The zero Waits
// is not ready; see [NewWaits].
type Waits struct {
	opts     WaitOptions
	rows     rowList[waitRow]
	added    []uint32        // the rows that were not put aside, in order
	spans    arena[waitSpan] // waiting, of all rows
	text     arena[byte]     // ids of all rows
	segments []trace.Segment // scratch
	waited   []waitSpan      // likewise

	places    interner
	files     interner
	placeRows []placeRow
	dims      interner
	dimValues [][]trace.Opt[string] // of the keys
	key       []byte
	readings  []trace.Reading
	told      []trace.EngineLimits

	classNames []string // while a result is made
}

// waitRow is one request. What is not known of its run is an empty run.
type waitRow struct {
	runStart, runEnd, first int64 // it ran from, to; its prompt was computed until
	queued                  int64
	in, cached, out         int64 // tokens; negative: absent
	span                    uint64
	text                    uint64
	tie                     uint64 // what tells it from others like it
	offset                  int64  // where it stands
	line                    int32
	file                    uint32
	spans                   uint32
	id                      uint32 // length in text
	place, dim, class       uint32
	queues                  bool // it tells when it was queued and scheduled
	aside                   bool // it holds and queues, and why it waited is not asked
	ended                   bool // with the last token
}

// rowList is a list that never moves what it holds: a million rows are not
// copied again and again while they come in.
type rowList[T any] struct {
	blocks []*[rowBlock]T
	n      int
}

const rowBlock = 1 << 12

func (l *rowList[T]) at(i uint32) *T { return &l.blocks[i/rowBlock][i%rowBlock] }

func (l *rowList[T]) add(r *T) {
	if l.n%rowBlock == 0 {
		l.blocks = append(l.blocks, new([rowBlock]T))
	}
	l.n++
	*l.at(uint32(l.n - 1)) = *r
}

// An arena keeps short lists in blocks that never move, each list in one: what
// came before is not copied again and again while more comes in.
type arena[T any] struct{ blocks [][]T }

const (
	firstBlock = 1 << 6 // values; each block has twice as many as the last, up to
	mostBlock  = 1 << 14
)

// add keeps a copy of the list and returns where it is: the block, and the
// place in it in the lower half.
func (a *arena[T]) add(list []T) uint64 {
	n := len(a.blocks) - 1
	if n < 0 || len(list) > cap(a.blocks[n])-len(a.blocks[n]) {
		size := firstBlock
		if n >= 0 {
			size = min(2*cap(a.blocks[n]), mostBlock)
		}
		a.blocks = append(a.blocks, make([]T, 0, max(size, len(list))))
		n++
	}
	at := len(a.blocks[n])
	a.blocks[n] = append(a.blocks[n], list...)
	return uint64(n)<<32 | uint64(at)
}

// get returns the list of length n that add kept at that place.
func (a *arena[T]) get(at uint64, n uint32) []T {
	from := at & math.MaxUint32
	return a.blocks[at>>32][from : from+uint64(n)]
}

// take makes b's lists a's own. Their places grow by what it returns.
func (a *arena[T]) take(b *arena[T]) (by uint64) {
	by = uint64(len(a.blocks)) << 32
	a.blocks = append(a.blocks, b.blocks...)
	return by
}

// waitSpan is a stretch of waiting.
type waitSpan struct{ start, end int64 }

// placeRow is what requests of one place, as far as they tell, have in common.
type placeRow struct {
	place
	resolution        int64
	requests          int64
	sampled, split    bool
	slots, budget, kv trace.Opt[int64]
}

// NewWaits returns an empty Waits.
func NewWaits(opts WaitOptions) *Waits {
	opts.By = slices.Clone(opts.By)
	return &Waits{opts: opts}
}

func (ws *Waits) keys() []string {
	if len(ws.opts.By) > 0 {
		return ws.opts.By
	}
	return TenantKeys
}

// Add takes one request into account. It keeps nothing of r.
func (ws *Waits) Add(r *trace.Request) {
	ws.added = append(ws.added, uint32(ws.rows.n))
	ws.add(r)
}

// Aside takes a request into account whose own waiting is not asked about: it
// held and queued beside the others, who would seem to wait for nothing if it
// were left out. It is none of those that [WaitResult.Parts] counts.
func (ws *Waits) Aside(r *trace.Request) { ws.add(r) }

func (ws *Waits) add(r *trace.Request) {
	w := waitRow{
		in: tokens(r.Input), cached: tokens(r.Cached), out: tokens(r.Output),
		tie: tieOf(r), offset: r.Source.Pos.Offset, line: int32(min(r.Source.Pos.Line, math.MaxInt32)),
		file: ws.files.id(r.Source.Pos.File), queues: r.Queued.Present() && r.Scheduled.Present(), queued: int64(r.Queued.At),
	}
	ws.segments, ws.waited = r.Segments(ws.segments[:0]), ws.waited[:0]
	const compute = trace.Prefill | trace.Decode
	var (
		began, ended, prefilled trace.Opt[trace.Time] // of its compute, as segments tell
		last                    trace.Time
	)
	for _, s := range ws.segments {
		last = s.End
		switch {
		case s.Phase.Kind() == trace.Waiting:
			n := len(ws.waited)
			if n > 0 && ws.waited[n-1].end == int64(s.Start) {
				ws.waited[n-1].end = int64(s.End) // queued, and pushed back at once
				continue
			}
			ws.waited = append(ws.waited, waitSpan{int64(s.Start), int64(s.End)})
		case s.Phase&compute != 0 && s.Phase&^compute == 0:
			began, ended = trace.Some(began.Or(s.Start)), trace.Some(s.End)
			if s.Phase == trace.Prefill {
				prefilled = ended
			}
		}
	}
	w.span, w.spans = ws.spans.add(ws.waited), uint32(len(ws.waited))
	ws.runOf(r, &w, began, ended, prefilled, last)

	ws.key = append(ws.key[:0], cmp.Or(r.ID, r.TraceID)...)
	w.text, w.id = ws.text.add(ws.key), uint32(len(ws.key))
	w.place, w.dim = ws.placeOf(r), ws.dimOf(r)
	ws.rows.add(&w)
}

// tieOf sums up what tells a request from others of the same times and counts.
func tieOf(r *trace.Request) uint64 {
	const k = 0x9e3779b97f4a7c15
	h := uint64(r.Source.Pos.Offset) ^ uint64(r.Source.Pos.Line)<<40
	for _, s := range [...]string{r.ID, r.TraceID, r.SpanID, r.Source.Pos.File} {
		for ; len(s) >= 8; s = s[8:] {
			w := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
				uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
			h = bits.RotateLeft64((h^w)*k, 29)
		}
		for i := range len(s) {
			h = (h ^ uint64(s[i])) * k
		}
		h = (h ^ h>>32) * k
	}
	return h
}

// runOf finds from when to when a request held its engine.
func (ws *Waits) runOf(r *trace.Request, w *waitRow, began, ended, prefilled trace.Opt[trace.Time], last trace.Time) {
	start, ok := r.Scheduled.Get()
	if !ok {
		if start, ok = began.Get(); !ok {
			return
		}
	}
	end, done := r.LastToken.Get()
	if t, ok := ended.Get(); ok && !done {
		end, done = t, true
	}
	if t, ok := r.Completed.Get(); ok && !done {
		end, done = t, true
	}
	w.ended = done
	if r.Outcome != trace.OK || !done {
		// It held on until it was gone, or was last seen.
		end, w.ended = max(end, r.Completed.At, last), false
	}
	w.runStart, w.runEnd, w.first = int64(start), int64(end), int64(start)
	if t, ok := prefilled.Get(); ok && (r.FirstToken.Present() || r.Outcome == trace.OK) {
		w.first = int64(t)
	} else if t, ok := r.FirstToken.Get(); ok {
		w.first = int64(t)
	} else if ok || r.Outcome != trace.OK {
		w.first = w.runEnd
	}
	w.first = min(max(w.first, w.runStart), max(w.runEnd, w.runStart))
}

// placeOf numbers the place of r and takes into account what r tells of it.
func (ws *Waits) placeOf(r *trace.Request) uint32 {
	k := append(ws.key[:0], byte(r.Clock))
	k = binary.AppendVarint(k, int64(r.Resolution))
	for _, s := range []string{r.Service, r.Model, r.Replica} {
		k = binary.AppendUvarint(k, uint64(len(s)))
		k = append(k, s...)
	}
	ws.key = k
	id, ok := ws.places.ids[string(k)]
	if !ok {
		id = ws.places.id(string(k))
		ws.placeRows = append(ws.placeRows, placeRow{place: place{
			r.Clock, strings.Clone(r.Service), strings.Clone(r.Model), strings.Clone(r.Replica),
		}})
	}
	p := &ws.placeRows[id]
	p.requests++
	p.resolution = max(p.resolution, int64(r.Resolution))
	for i := range r.Attrs {
		p.learn(&r.Attrs[i])
	}
	return id
}

// learn takes an attribute that tells of the engine, or of how requests were
// chosen, into account.
func (p *placeRow) learn(a *trace.Attr) {
	name := a.Key[strings.LastIndexByte(a.Key, '.')+1:]
	var limit *trace.Opt[int64]
	switch name {
	case "max_num_seqs", "max_running_requests":
		limit = &p.slots
	case "max_num_batched_tokens":
		limit = &p.budget
	case "kv_cache_tokens", "max_total_num_tokens":
		limit = &p.kv
	case trace.Disaggregated:
		p.split = p.split || a.Key == trace.Disaggregated
		return
	case "SampleRate":
		p.sampled = p.sampled || number64(a.Value) > 1
		return
	case "param", "probability", "ratio":
		if isSampling(a.Key) {
			v := number64(a.Value)
			p.sampled = p.sampled || v >= 0 && v < 1
		}
		return
	default:
		return
	}
	if v := number64(a.Value); v >= 1 && v < math.MaxInt64 {
		*limit = trace.Some(max(limit.Or(0), int64(v))) // the same in any order
	}
}

// number64 reads a value as a number; NaN where it is none.
func number64(v trace.Value) float64 {
	if f, err := strconv.ParseFloat(v.String(), 64); err == nil {
		return f
	}
	return math.NaN()
}

// dimOf numbers the values that r has of the keys that make classes.
func (ws *Waits) dimOf(r *trace.Request) uint32 {
	k := ws.key[:0]
	add := func(n int, v string) {
		k = binary.AppendUvarint(k, uint64(n))
		k = binary.AppendUvarint(k, uint64(len(v)))
		k = append(k, v...)
	}
	for n, by := range ws.opts.By {
		if v, ok := Key(r, by); ok {
			add(n, v)
		}
	}
	for i := range r.Attrs {
		if n := slices.Index(TenantKeys, r.Attrs[i].Key); n >= 0 && len(ws.opts.By) == 0 {
			add(n, r.Attrs[i].Value.String())
		}
	}
	ws.key = k
	if id, ok := ws.dims.ids[string(k)]; ok {
		return id
	}
	var values []trace.Opt[string]
	for _, by := range ws.keys() {
		if v, ok := Key(r, by); ok {
			values = append(values, trace.Some(strings.Clone(v)))
		} else {
			values = append(values, trace.Opt[string]{})
		}
	}
	ws.dimValues = append(ws.dimValues, values)
	return ws.dims.id(string(k))
}

// AddReading takes an engine's statement of its state into account.
func (ws *Waits) AddReading(r trace.Reading) { ws.readings = append(ws.readings, r) }

// Merge takes all that o has seen into account, as if it had been added after
// what ws has. Both must have been made with the same options; o is not used
// afterwards.
func (ws *Waits) Merge(o *Waits) {
	dims := make([]uint32, len(o.dims.names))
	for i, k := range o.dims.names {
		if _, ok := ws.dims.ids[k]; !ok {
			ws.dimValues = append(ws.dimValues, o.dimValues[i])
		}
		dims[i] = ws.dims.id(k)
	}
	files := make([]uint32, len(o.files.names))
	for i, f := range o.files.names {
		files[i] = ws.files.id(f)
	}
	places := make([]uint32, len(o.places.names))
	for i, k := range o.places.names {
		q := o.placeRows[i]
		id, ok := ws.places.ids[k]
		if !ok {
			id = ws.places.id(k)
			ws.placeRows = append(ws.placeRows, q)
		} else {
			p := &ws.placeRows[id]
			p.requests += q.requests
			p.resolution = max(p.resolution, q.resolution)
			p.sampled, p.split = p.sampled || q.sampled, p.split || q.split
			for _, x := range []struct{ to, from *trace.Opt[int64] }{{&p.slots, &q.slots}, {&p.budget, &q.budget}, {&p.kv, &q.kv}} {
				if v, ok := x.from.Get(); ok {
					*x.to = trace.Some(max(x.to.Or(v), v))
				}
			}
		}
		places[i] = id
	}
	for _, i := range o.added {
		ws.added = append(ws.added, i+uint32(ws.rows.n))
	}
	span, text := ws.spans.take(&o.spans), ws.text.take(&o.text)
	for i := range o.rows.n {
		w := *o.rows.at(uint32(i))
		w.span, w.text = w.span+span, w.text+text
		w.dim, w.file, w.place = dims[w.dim], files[w.file], places[w.place]
		ws.rows.add(&w)
	}
	ws.readings = append(ws.readings, o.readings...)
	ws.told = append(ws.told, o.told...)
}

// resolution is the coarsest clock step of those rows.
func (ws *Waits) resolution(rows []uint32) int64 {
	var d int64
	seen := map[uint32]bool{}
	for _, i := range rows {
		if p := ws.rows.at(i).place; !seen[p] {
			seen[p] = true
			d = max(d, ws.placeRows[p].resolution)
		}
	}
	return d
}

// WaitResult is why requests waited and who made them. It is plain data.
// Durations are whole nanoseconds. The causes sum exactly to the waiting, over
// all and for each replica; and so do the cells of the matrix, over all, for
// each replica and for each class of waiter.
type WaitResult struct {
	Requests  int64 `json:"requests"`
	WaitingNS int64 `json:"waiting_ns"`
	// UnplacedNS is the waiting, within unknown, of requests that could not be
	// set beside others: their clock is not that of the rest of their replica,
	// or has no known origin.
	UnplacedNS int64 `json:"unplaced_ns"`
	// Untold counts requests that do not tell when they waited or ran: they
	// may have held the replica unseen.
	Untold int64 `json:"untold_requests"`
	// Confidence is the share of waiting whose cause survives small errors of
	// the limits and of the step model, and does not assume hidden holders.
	Confidence trace.Opt[float64] `json:"confidence"`
	// HiddenNS is waiting whose cause assumes holders that the data do not show.
	HiddenNS    int64          `json:"hidden_ns"`
	AvoidableNS int64          `json:"avoidable_ns"`
	Causes      []CauseRow     `json:"causes"` // in the order of [Causes], those without waiting too
	Replicas    []ReplicaWaits `json:"replicas"`

	By         []string    `json:"by"`         // keys that make classes
	Classes    []string    `json:"classes"`    // sorted; beyond a hundred the last joins those that waited, ran and asked least
	Weighting  string      `json:"weighting"`  // "scarce" or "equal"
	Matrix     []BlameCell `json:"matrix"`     // by waiter, holder, cause; no empty cells
	Holders    []Holder    `json:"holders"`    // the single requests that were charged most
	Overtaking []Overtaken `json:"overtaking"` // by class; no empty rows

	// OverTime is what changed while the requests ran, and what was tested and
	// found steady; empty unless [WaitOptions.OverTime] asks.
	OverTime *ChangeResult `json:"-"`

	ws      *Waits
	of      []int32 // each row's replica; -1: none
	work    []*replicaWork
	charges []int64
}

// CauseRow is the waiting of one cause.
type CauseRow struct {
	Cause      string             `json:"cause"`
	Remedy     string             `json:"remedy"`
	NS         int64              `json:"ns"`
	Share      trace.Opt[float64] `json:"share"` // of all waiting
	Basis      string             `json:"basis"` // as [trace.Basis] prints; "" without waiting
	Confidence trace.Opt[float64] `json:"confidence"`
	HiddenNS   int64              `json:"hidden_ns"`
	// AvoidableNS is waiting at instants at which another replica of the model
	// had no queue and a free slot. Waiting for a step never is.
	AvoidableNS int64 `json:"avoidable_ns"`
}

// ReplicaWaits is the waiting at one replica.
type ReplicaWaits struct {
	Service string `json:"service"`
	Model   string `json:"model"`
	Replica string `json:"replica"`
	Clock   string `json:"clock"`
	// Assumed: the source names no replica, and the service's requests are
	// taken to share one engine.
	Assumed bool `json:"replica_assumed"`
	Sampled bool `json:"sampled"` // what ran unseen is not known
	// Prefill and decode of some requests ran on two engines: what held which
	// is not told apart, and every cause is unknown.
	Disaggregated bool               `json:"disaggregated"`
	Requests      int64              `json:"requests"`
	WaitingNS     int64              `json:"waiting_ns"`
	Confidence    trace.Opt[float64] `json:"confidence"`
	Causes        []CauseRow         `json:"causes"`
	Limits        Limits             `json:"limits"`
	StepModel     *StepModel         `json:"step_model"` // null: too few requests to fit one
	ToleranceNS   int64              `json:"tolerance_ns"`
	Stalls        []StallSpan        `json:"stalls"`
	StartNS       int64              `json:"start_ns"` // of its first event, on its clock
	EndNS         int64              `json:"end_ns"`
	BusyNS        int64              `json:"busy_ns"` // something ran
	RunningMean   trace.Opt[float64] `json:"running_mean"`
	RunningPeak   int64              `json:"running_peak"`
	WaitingMean   trace.Opt[float64] `json:"waiting_mean"`
	Matrix        []BlameCell        `json:"matrix"`
}

// BlameCell is the waiting of one class that is charged to another. Holder is
// empty where nobody held: hold, stall, and what is unknown while nothing ran.
type BlameCell struct {
	Waiter string `json:"waiter"`
	Holder string `json:"holder"`
	Cause  string `json:"cause"`
	NS     int64  `json:"ns"`
}

// maxClasses is how many classes are told apart.
const maxClasses = 100

// Result explains all that was added so far. More may be added afterwards.
func (ws *Waits) Result() *WaitResult { return ws.result(func(int) bool { return true }) }

// result explains the waiting of those requests that asked tells of, by the
// order in which they were added. The others hold and queue beside them.
func (ws *Waits) result(asked func(i int) bool) *WaitResult {
	res := &WaitResult{
		Weighting: "scarce", ws: ws,
		Replicas: []ReplicaWaits{}, Holders: []Holder{}, Overtaking: []Overtaken{}, Matrix: []BlameCell{},
		of: make([]int32, ws.rows.n), charges: make([]int64, ws.rows.n),
	}
	if ws.opts.Equal {
		res.Weighting = "equal"
	}
	res.OverTime = &ChangeResult{Changes: []Change{}, Tests: []ChangeTest{}}
	for i := range ws.rows.n {
		ws.rows.at(uint32(i)).aside = true
	}
	for i, row := range ws.added {
		if r := ws.rows.at(row); asked(i) {
			r.aside = false
			res.Requests++
		}
	}
	ws.classify(res)
	unplaced := ws.group(res)
	ws.share(res.work)
	alone := len(res.work) == 1
	inParallel(len(res.work), func(i int) {
		p := res.work[i]
		p.prepare(ws.statedLimits(p, alone))
	})
	freeSpells(res.work)

	var sum [causeCount]causeSum
	cells := map[blameKey]int64{}
	overtaken := make([]Overtaken, len(ws.classNames))
	told := make([]telling, len(res.work))
	inParallel(len(res.work), func(i int) { told[i] = res.work[i].tell(res.charges) })
	for i, p := range res.work {
		for k, ns := range told[i].cells {
			cells[k] += ns
		}
		for c, o := range told[i].overtaken {
			overtaken[c].Requests += o.Requests
			overtaken[c].NS += o.NS
		}
		if ws.opts.OverTime {
			res.OverTime.add(told[i].changes, told[i].tests)
		}
		res.Replicas = append(res.Replicas, told[i].replica)
		for c := range sum {
			sum[c].add(p.sum[c])
		}
	}
	res.OverTime.sort()
	for _, i := range unplaced {
		if ws.rows.at(i).aside {
			continue
		}
		for _, s := range ws.spansOf(ws.rows.at(i)) {
			sum[CauseUnknown].ns += s.end - s.start
			res.UnplacedNS += s.end - s.start
			cells[blameKey{ws.rows.at(i).class, nobody, CauseUnknown}] += s.end - s.start
		}
	}
	for c := range sum {
		res.WaitingNS += sum[c].ns
	}
	basis := func(c Cause) trace.Basis {
		b := trace.Absent
		for _, p := range res.work {
			if p.sum[c].ns != 0 {
				b = max(b, p.basis(c))
			}
		}
		return b
	}
	res.Causes, res.Confidence = causeRows(sum, res.WaitingNS, basis)
	for _, s := range sum {
		res.HiddenNS += s.hidden
		res.AvoidableNS += s.avoidable
	}
	res.Matrix = ws.matrix(cells)
	for c, o := range overtaken {
		if o.Requests > 0 {
			o.Class = ws.classNames[c]
			res.Overtaking = append(res.Overtaking, o)
		}
	}
	ws.holders(res)
	return res
}

// telling is what one replica tells.
type telling struct {
	replica   ReplicaWaits
	cells     map[blameKey]int64
	overtaken []Overtaken // by class
	changes   []Change
	tests     []ChangeTest
}

// tell explains the waiting of one replica and adds what its requests are
// charged to their charges, which are no other replica's. What only that needs
// is let go.
func (p *replicaWork) tell(charges []int64) telling {
	p.explain(p.ws.opts.Equal)
	t := telling{cells: map[blameKey]int64{}, overtaken: make([]Overtaken, len(p.ws.classNames))}
	for _, c := range p.blame.close(charges) {
		t.cells[blameKey{c.waiter, c.holder, c.cause}] += c.ns
	}
	p.overtaking(t.overtaken)
	if p.ws.opts.OverTime {
		t.changes, t.tests = p.changes()
	}
	t.replica = p.result(p.ws.matrix(t.cells))
	p.free, p.blame, p.stretches, p.decodes, p.tl = nil, nil, nil, nil, nil
	return t
}

// inParallel calls do with each number below n, on all cores.
func inParallel(n int, do func(i int)) {
	var (
		next atomic.Int64
		all  sync.WaitGroup
	)
	for range min(n, runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	all.Wait()
}

// Parts returns the waiting of the i-th request that was added, in order. The
// parts sum exactly to its waiting. It is nil for an i that was not added.
func (res *WaitResult) Parts(i int) []WaitPart {
	if i < 0 || i >= len(res.ws.added) || int(res.ws.added[i]) >= len(res.of) {
		return nil
	}
	row := res.ws.added[i]
	var parts []WaitPart
	for _, s := range res.ws.spansOf(res.ws.rows.at(row)) {
		if res.of[row] < 0 {
			parts = append(parts, WaitPart{Start: trace.Time(s.start), End: trace.Time(s.end)})
			continue
		}
		parts = res.work[res.of[row]].parts(parts, s)
	}
	return parts
}

// Charged returns how much of others' waiting, and of its own, the i-th
// request that was added is charged.
func (res *WaitResult) Charged(i int) int64 {
	if i < 0 || i >= len(res.ws.added) || int(res.ws.added[i]) >= len(res.charges) {
		return 0
	}
	return res.charges[res.ws.added[i]]
}

func (ws *Waits) spansOf(r *waitRow) []waitSpan { return ws.spans.get(r.span, r.spans) }

func (s *causeSum) add(o causeSum) {
	s.ns += o.ns
	s.sure += o.sure
	s.hidden += o.hidden
	s.avoidable += o.avoidable
}

func causeRows(sum [causeCount]causeSum, all int64, basis func(Cause) trace.Basis) (rows []CauseRow, confidence trace.Opt[float64]) {
	var sure int64
	for _, c := range Causes() {
		s := &sum[c]
		row := CauseRow{Cause: c.String(), Remedy: c.Remedy(), NS: s.ns, Share: share(s.ns, all), HiddenNS: s.hidden, AvoidableNS: s.avoidable}
		if s.ns != 0 && c != CauseUnknown {
			row.Basis, row.Confidence = basis(c).String(), share(s.sure, s.ns)
		}
		sure += s.sure
		rows = append(rows, row)
	}
	return rows, share(sure, all)
}

// basis is how the replica's waiting of a cause is known.
func (p *replicaWork) basis(c Cause) trace.Basis {
	stated := func(l Limit) bool { return l.How == LimitStated || l.How == LimitData || l.How == LimitLog }
	switch c {
	case CauseHold:
		return trace.Derived
	case CauseSlots:
		if stated(p.limit.Slots) && p.sum[c].hidden == 0 && !disproved(&p.limit, p.busy) {
			return trace.Derived
		}
	}
	return trace.Inferred
}

func (p *replicaWork) result(matrix []BlameCell) ReplicaWaits {
	rw := ReplicaWaits{
		Service: p.key.service, Model: p.key.model, Replica: p.key.replica, Clock: p.key.clock.String(),
		Assumed: p.key.replica == "", Sampled: p.sampled, Disaggregated: p.split,
		Limits: p.limit, StepModel: p.model, ToleranceNS: p.tol, Stalls: p.stalls,
		StartNS: p.tl.origin, EndNS: p.tl.origin + p.tl.end, BusyNS: p.busy, RunningPeak: int64(p.peak), Matrix: matrix,
	}
	for _, i := range p.rows {
		if !p.ws.rows.at(i).aside {
			rw.Requests++
		}
	}
	if rw.Stalls == nil {
		rw.Stalls = []StallSpan{}
	}
	if p.tl.end > 0 {
		rw.RunningMean = trace.Some(p.area[0] / float64(p.tl.end))
		rw.WaitingMean = trace.Some(p.area[1] / float64(p.tl.end))
	}
	for _, s := range p.sum {
		rw.WaitingNS += s.ns
	}
	rw.Causes, rw.Confidence = causeRows(p.sum, rw.WaitingNS, p.basis)
	return rw
}

type blameKey struct {
	waiter, holder uint32
	cause          Cause
}

// matrix turns cells into rows, in order.
func (ws *Waits) matrix(cells map[blameKey]int64) []BlameCell {
	rows := make([]BlameCell, 0, len(cells))
	for k, ns := range cells {
		if ns == 0 {
			continue
		}
		c := BlameCell{Waiter: ws.classNames[k.waiter], Cause: k.cause.String(), NS: ns}
		if k.holder != nobody {
			c.Holder = ws.classNames[k.holder]
		}
		rows = append(rows, c)
	}
	slices.SortFunc(rows, func(x, y BlameCell) int {
		return cmp.Or(cmp.Compare(x.Waiter, y.Waiter), cmp.Compare(x.Holder, y.Holder), cmp.Compare(x.Cause, y.Cause))
	})
	return rows
}

// classify gives each row its class and names the classes.
func (ws *Waits) classify(res *WaitResult) {
	keys := ws.keys()
	from, to := 0, len(keys)
	if len(ws.opts.By) == 0 {
		// The first key that any request has.
		from = slices.IndexFunc(keys, func(string) bool {
			from++
			return slices.ContainsFunc(ws.dimValues, func(v []trace.Opt[string]) bool { return v[from-1].Present() })
		})
		if to = from + 1; from < 0 {
			from, to = 0, 0
		}
	}
	res.By = append([]string{}, keys[from:to]...)
	name := func(values []trace.Opt[string]) string {
		if len(values) == 0 {
			return "all"
		}
		var parts []string
		for _, v := range values {
			part := className(v)
			if len(values) > 1 && strings.Contains(v.Or(""), ", ") {
				part = strconv.Quote(v.Or(""))
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ", ")
	}
	names := make([]string, len(ws.dimValues))
	seen := make(map[string]bool, len(names))
	list := make([]string, 0, len(names))
	for d, v := range ws.dimValues {
		names[d] = name(v[from:to])
		if !seen[names[d]] {
			seen[names[d]] = true
			list = append(list, names[d])
		}
	}
	rest := len(list) > maxClasses
	if rest {
		weight := ws.weigh(names)
		slices.SortFunc(list, func(x, y string) int { return cmp.Or(cmp.Compare(weight[y], weight[x]), cmp.Compare(x, y)) })
		list = list[:maxClasses]
	}
	slices.Sort(list)
	number := make(map[string]uint32, len(list))
	for i, n := range list {
		number[n] = uint32(i)
	}
	if rest {
		list = append(list, classRest)
	}
	class := make([]uint32, len(names))
	for d, n := range names {
		c, ok := number[n]
		if !ok {
			c = maxClasses
		}
		class[d] = c
	}
	for i := range ws.rows.n {
		r := ws.rows.at(uint32(i))
		r.class = class[r.dim]
	}
	ws.classNames, res.Classes = list, list
}

// weigh says how much each class matters, before it is known who made whom
// wait: its largest share of what all waited, of the time that all ran and of
// their prompt tokens. A class of few requests may have the prompts that block
// all others.
func (ws *Waits) weigh(names []string) map[string]float64 {
	type sums [3]uint64 // whole numbers: the same in any order
	var all sums
	of := make([]sums, len(names))
	for i := range ws.rows.n {
		r := ws.rows.at(uint32(i))
		if !r.fits(ws) {
			continue
		}
		var s sums
		for _, w := range ws.spansOf(r) {
			s[0] += uint64(w.end - w.start)
		}
		s[1], s[2] = uint64(max(0, r.runEnd-r.runStart)), uint64(max(0, r.in))
		for k, v := range s {
			of[r.dim][k] += v
			all[k] += v
		}
	}
	byName := map[string]sums{}
	for d, n := range names {
		s := byName[n]
		for k, v := range of[d] {
			s[k] += v
		}
		byName[n] = s
	}
	weight := make(map[string]float64, len(byName))
	for n, s := range byName {
		for k, v := range s {
			weight[n] = max(weight[n], float64(v)/float64(max(all[k], 1)))
		}
	}
	return weight
}

// farthest bounds instants, so that differences of any two fit int64.
const farthest = 1 << 61

// group puts the rows to their replicas and returns those that have none.
func (ws *Waits) group(res *WaitResult) (unplaced []uint32) {
	// Requests that do not tell their model join the only model of their
	// replica.
	type engine struct{ service, replica string }
	models := map[engine]map[string]bool{}
	for _, p := range ws.placeRows {
		e := engine{p.service, p.replica}
		if models[e] == nil {
			models[e] = map[string]bool{}
		}
		if p.model != "" {
			models[e][p.model] = true
		}
	}
	final := make([]place, len(ws.placeRows))
	finest := map[place]int64{}
	clocks := map[place]*[trace.ClockRelative + 1]int64{} // requests by clock
	noClock := func(p place) place { p.clock = 0; return p }
	for i, p := range ws.placeRows {
		if m := models[engine{p.service, p.replica}]; p.model == "" && len(m) == 1 {
			for name := range m {
				p.model = name
			}
		}
		final[i] = p.place
		if d, ok := finest[p.place]; !ok || p.resolution < d {
			finest[p.place] = p.resolution
		}
		k := noClock(p.place)
		if clocks[k] == nil {
			clocks[k] = new([trace.ClockRelative + 1]int64)
		}
		if int(p.clock) < len(clocks[k]) {
			clocks[k][p.clock] += p.requests
		}
	}
	byPlace := map[place]*replicaWork{}
	placed := make([]*replicaWork, len(ws.placeRows)) // nil: none
	for i, p := range final {
		main := trace.ClockUnknown
		n := clocks[noClock(p)]
		for c := trace.ClockUnix; int(c) < len(n); c++ {
			if n[c] > 0 && (main == trace.ClockUnknown || n[c] > n[main]) {
				main = c
			}
		}
		if p.clock != main || main == trace.ClockUnknown {
			continue
		}
		w := byPlace[p]
		if w == nil {
			w = &replicaWork{ws: ws, key: p, sampled: ws.opts.Sampled}
			byPlace[p] = w
		}
		w.sampled, w.split = w.sampled || ws.placeRows[i].sampled, w.split || ws.placeRows[i].split
		placed[i] = w
	}
	for i := range ws.rows.n {
		r := ws.rows.at(uint32(i))
		if r.spans == 0 && (r.runEnd <= r.runStart || ws.placeRows[r.place].coarse(finest[final[r.place]])) {
			res.Untold++
			continue
		}
		w := placed[r.place]
		if w == nil || !r.fits(ws) {
			unplaced = append(unplaced, uint32(i))
			continue
		}
		w.rows = append(w.rows, uint32(i))
	}
	for _, w := range byPlace {
		if len(w.rows) > 0 {
			res.work = append(res.work, w)
		}
	}
	slices.SortFunc(res.work, func(x, y *replicaWork) int {
		return cmp.Or(cmp.Compare(x.key.service, y.key.service), cmp.Compare(x.key.model, y.key.model),
			cmp.Compare(x.key.replica, y.key.replica), cmp.Compare(x.key.clock, y.key.clock))
	})
	for i := range res.of {
		res.of[i] = -1
	}
	for n, w := range res.work {
		for _, i := range w.rows {
			res.of[i] = int32(n)
		}
	}
	return unplaced
}

// coarse reports whether requests of p would blur those of a finer clock beside
// them: a line of a log, to a second, beside spans.
func (p *placeRow) coarse(finest int64) bool { return p.resolution >= 1e8 && finest < p.resolution/100 }

// fits reports whether r's instants are such that differences fit int64.
func (r *waitRow) fits(ws *Waits) bool {
	in := func(t int64) bool { return -farthest < t && t < farthest }
	for _, s := range ws.spansOf(r) {
		if !in(s.start) || !in(s.end) {
			return false
		}
	}
	return in(r.runStart) && in(r.runEnd)
}

// order sorts rows by what they are, so that the order of adding never shows.
func (ws *Waits) order(rows []uint32, s *sorter) {
	at := func(r *waitRow) int64 {
		if r.spans > 0 {
			return ws.spansOf(r)[0].start
		}
		return r.runStart
	}
	least := int64(math.MaxInt64)
	for _, i := range rows {
		least = min(least, at(ws.rows.at(i)))
	}
	events := make([]event, len(rows))
	for k, i := range rows {
		events[k] = event{at: at(ws.rows.at(i)) - least, of: i}
	}
	s.sort(events)
	for i := 0; i < len(events); {
		j := i + 1
		for j < len(events) && events[j].at == events[i].at {
			j++
		}
		if j-i > 1 {
			slices.SortFunc(events[i:j], func(x, y event) int { return ws.compare(ws.rows.at(x.of), ws.rows.at(y.of)) })
		}
		i = j
	}
	for k, e := range events {
		rows[k] = e.of
	}
}

func (ws *Waits) compare(x, y *waitRow) int {
	if c := cmp.Or(
		cmp.Compare(x.runStart, y.runStart), cmp.Compare(x.runEnd, y.runEnd), cmp.Compare(x.first, y.first),
		cmp.Compare(x.in, y.in), cmp.Compare(x.cached, y.cached), cmp.Compare(x.out, y.out),
		cmp.Compare(x.class, y.class), cmp.Compare(x.spans, y.spans), cmp.Compare(x.tie, y.tie),
	); c != 0 {
		return c
	}
	return slices.CompareFunc(ws.spansOf(x), ws.spansOf(y), func(a, b waitSpan) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})
}

// statedLimits are the limits that the user, the data or logs say; alone: of
// the only replica.
func (ws *Waits) statedLimits(p *replicaWork, alone bool) Limits {
	var slots, budget, kv trace.Opt[int64]
	seen := map[uint32]bool{}
	for _, i := range p.rows {
		n := ws.rows.at(i).place
		if seen[n] {
			continue
		}
		seen[n] = true
		r := &ws.placeRows[n]
		for _, x := range []struct{ to, from *trace.Opt[int64] }{{&slots, &r.slots}, {&budget, &r.budget}, {&kv, &r.kv}} {
			if v, ok := x.from.Get(); ok {
				*x.to = trace.Some(max(x.to.Or(v), v))
			}
		}
	}
	limit := func(stated, data trace.Opt[int64]) Limit {
		if v, ok := stated.Get(); ok && v > 0 {
			return known(v, LimitStated)
		}
		if v, ok := data.Get(); ok {
			return known(v, LimitData)
		}
		return Limit{}
	}
	l := Limits{Slots: limit(ws.opts.Slots, slots), Budget: limit(ws.opts.Budget, budget), KV: limit(ws.opts.KVTokens, kv)}
	ws.fromLog(&l, p, alone)
	return l
}

// share gives each replica the readings that are its own: those of its service
// and name, and to the only replica those that name none.
func (ws *Waits) share(work []*replicaWork) {
	own := map[place][]trace.Reading{}
	for _, r := range ws.readings {
		if at := int64(r.At); -farthest < at && at < farthest {
			k := place{clock: r.Clock, service: r.Service, replica: r.Replica}
			own[k] = append(own[k], r)
		}
	}
	for _, p := range work {
		k := place{clock: p.key.clock, service: p.key.service, replica: p.key.replica}
		p.readings = slices.Clone(own[k])
		if nobody := (place{clock: k.clock}); len(work) == 1 && k != nobody {
			p.readings = append(p.readings, own[nobody]...)
		}
		slices.SortFunc(p.readings, compareReadings)
	}
}

// freeSpells finds when some replica of each model had no queue and a free
// slot. One that waits is not free itself: the spells that concern it are
// others'.
func freeSpells(work []*replicaWork) {
	type pool struct {
		clock       trace.Clock
		model, name string
	}
	pools := map[pool][]*replicaWork{}
	for _, p := range work {
		k := pool{p.key.clock, p.key.model, ""}
		if k.model == "" {
			k.name = p.key.service
		}
		pools[k] = append(pools[k], p)
	}
	for _, members := range pools {
		if len(members) < 2 {
			continue
		}
		from, to := int64(math.MaxInt64), int64(math.MinInt64)
		for _, p := range members {
			from, to = min(from, p.tl.origin), max(to, p.tl.origin+p.tl.end)
		}
		var all []spell
		for _, p := range members {
			all = p.freeSpells(all, from, to)
		}
		slices.SortFunc(all, func(x, y spell) int { return cmp.Compare(x.start, y.start) })
		joined := all[:0]
		for _, s := range all {
			if n := len(joined); n > 0 && s.start <= joined[n-1].end {
				joined[n-1].end = max(joined[n-1].end, s.end)
				continue
			}
			joined = append(joined, s)
		}
		for _, p := range members {
			p.free = joined
		}
	}
}

// freeSpells appends when p had no queue and a free slot, between two instants
// on its clock. Where no slot limit is known, as many slots count as were
// seen taken at once.
func (p *replicaWork) freeSpells(dst []spell, from, to int64) []spell {
	slots := p.limit.Slots.Value.Or(int64(max(p.peak, 1)))
	var s state
	at := from
	events := p.tl.events
	for i := 0; ; {
		free := s.w == 0 && int64(s.n) < slots
		next := to
		if i < len(events) {
			next = events[i].at + p.tl.origin
		}
		if free && next > at {
			if n := len(dst); n > 0 && dst[n-1].end == at {
				dst[n-1].end = next
			} else {
				dst = append(dst, spell{at, next})
			}
		}
		if i == len(events) {
			return dst
		}
		at = next
		for t := events[i].at; i < len(events) && events[i].at == t; i++ {
			s.change(p.tl, events[i])
		}
	}
}

// holders names the requests that were charged most.
func (ws *Waits) holders(res *WaitResult) {
	var top []int
	less := func(x, y int) int {
		return cmp.Or(cmp.Compare(res.charges[y], res.charges[x]),
			ws.compare(ws.rows.at(uint32(x)), ws.rows.at(uint32(y))), cmp.Compare(res.of[x], res.of[y]))
	}
	for i, ns := range res.charges {
		if ns <= 0 || len(top) == topHolders && less(i, top[len(top)-1]) >= 0 {
			continue
		}
		at, _ := slices.BinarySearchFunc(top, i, less)
		top = slices.Insert(top, at, i)
		top = top[:min(len(top), topHolders)]
	}
	for _, i := range top {
		r := ws.rows.at(uint32(i))
		p := res.work[res.of[i]]
		h := Holder{
			ID: string(ws.text.get(r.text, r.id)), Class: ws.classNames[r.class],
			Service: p.key.service, Model: p.key.model, Replica: p.key.replica,
			Input: r.in, Output: r.out,
			File: ws.files.names[r.file], Line: int(r.line), Offset: r.offset, ScheduledNS: r.runStart, EndNS: r.runEnd, ChargedNS: res.charges[i],
		}
		for _, s := range ws.spansOf(r) {
			h.WaitedNS += s.end - s.start
		}
		res.Holders = append(res.Holders, h)
	}
}
