package analyze

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// Options say what to report. The zero value works.
type Options struct {
	// By are the keys of one grouping (see [Key]); empty: each of service,
	// model, replica, [TenantKeys], [RouteKeys] and prompt_bucket that divides
	// the requests, as a grouping of its own. Of more than 50 values over the
	// whole input a key is left out.
	By []string
	// Quantiles to give, in (0, 1); empty: 0.5, 0.9, 0.99.
	Quantiles []float64
	// From and To choose requests by arrival; see [Filter].
	From, To Bound
	// Objectives that a request must all meet to count as goodput.
	Objectives []Objective
	// AllOutcomes takes requests into the latency figures that ended
	// otherwise than ok, as far as their end is known.
	AllOutcomes bool
	// Wait says what is known beside the requests for telling why they waited.
	// Its By is not looked at: classes are those of By above.
	Wait WaitOptions
}

// Analyzer collects requests and readings, and reports on them. It keeps some
// 400 bytes a request and not the request. The order in which requests are
// added, or how they are split between analyzers that are merged, changes
// nothing in the report.
type Analyzer struct {
	opts      Options
	rows      rowList[row]
	parts     arena[trace.Part] // of the rows
	waits     arena[span]       // claimed waiting of the rows
	text      arena[byte]       // ids and paths of the rows
	dims      interner          // dim tuples
	dimRows   []dim             // what each tuple says
	files     interner
	traits    traits
	hardware  map[string]map[string]int64
	versions  map[string]int64
	sampling  map[string]map[string]int64
	origin    Origin
	readings  []trace.Reading
	told      []trace.EngineLimits
	fileNamed bool   // some replicas are called after a log's file
	why       *Waits // with the same rows
	key       []byte // scratch
	part      []trace.Part
	wait      []span

	// The values so far of each of defaultBy, where no keys were asked for; nil
	// once there are more than most: then dims no longer tell them apart.
	values []map[string]bool
}

// row is a request's share of the columns. It holds no pointers, so that the
// collector passes over millions of them.
type row struct {
	start, end   int64 // the extent
	arrival      int64 // start where hasArrival
	ttft, tpot   int64 // tpot rounded to whole nanoseconds; negative: absent
	in, out      int64 // tokens; negative: absent
	cached       int64
	outside      int64
	overlap      int64
	conflict     int64
	offset       int64
	text         uint64 // where its id and path begin
	part         uint64
	wait         uint64
	line         int32
	file, dim    uint32
	idLen, path  uint32
	parts, waits uint32
	traits       uint32 // what stands out is looked for in
	at           uint32 // its place in the order of adding, while a report is made
	clock        trace.Clock
	outcome      trace.Outcome
	has          flag
}

type flag uint8

const (
	hasArrival flag = 1 << iota
	hasExtent
	complete // arrival and completion are known
	inconsistent
	tellsWaiting // some claim is of a waiting phase alone
	placedFirst  // the first token's place depends on how front-end time divides
	onTwoEngines // prefill and decode ran on two
)

// span is a stretch of time.
type span struct{ start, end int64 }

// dim is what many requests agree in: the values that groupings and the card
// use.
type dim struct {
	service, model, replica, engine, format string
	resolution                              time.Duration
	by                                      []trace.Opt[string] // values of Analyzer.keys()
}

// interner numbers strings by first use. The numbers depend on the order of
// input and never reach a report.
type interner struct {
	ids   map[string]uint32
	names []string
}

func (n *interner) id(s string) uint32 {
	if id, ok := n.ids[s]; ok {
		return id
	}
	if n.ids == nil {
		n.ids = make(map[string]uint32)
	}
	s = strings.Clone(s) // s may be a slice of a whole record
	id := uint32(len(n.names))
	n.ids[s] = id
	n.names = append(n.names, s)
	return id
}

// defaultBy are the keys that are tried where the user names none.
var defaultBy = slices.Concat([]string{"service", "model", "replica"}, TenantKeys, RouteKeys, []string{"prompt_bucket"})

// New returns an empty analyzer.
func New(opts Options) *Analyzer {
	if len(opts.Quantiles) == 0 {
		opts.Quantiles = []float64{0.5, 0.9, 0.99}
	}
	opts.Quantiles = slices.Clone(opts.Quantiles)
	opts.Quantiles = slices.DeleteFunc(opts.Quantiles, func(q float64) bool { return !(q > 0 && q < 1) })
	slices.Sort(opts.Quantiles)
	opts.Quantiles = slices.Compact(opts.Quantiles)
	opts.By = slices.Clone(opts.By)
	opts.Wait.By = opts.By
	a := &Analyzer{
		opts:     opts,
		why:      NewWaits(opts.Wait),
		hardware: map[string]map[string]int64{},
		versions: map[string]int64{},
		sampling: map[string]map[string]int64{},
	}
	if len(opts.By) == 0 {
		for range defaultBy {
			a.values = append(a.values, map[string]bool{})
		}
	}
	return a
}

// value returns r's value of the i-th of keys().
func (a *Analyzer) value(r *trace.Request, i int) (string, bool) {
	if len(a.opts.By) > 0 {
		return Key(r, a.opts.By[i])
	}
	if a.values[i] == nil {
		return "", false
	}
	v, ok := Key(r, defaultBy[i])
	return v, ok && a.see(i, v)
}

// see adds a value to those of the i-th of defaultBy. It returns false where
// there are too many.
func (a *Analyzer) see(i int, v string) bool {
	if a.values[i] == nil {
		return false
	}
	if !a.values[i][v] {
		if len(a.values[i]) == most {
			a.values[i] = nil
			return false
		}
		a.values[i][strings.Clone(v)] = true
	}
	return true
}

func (a *Analyzer) keys() []string {
	if len(a.opts.By) > 0 {
		return a.opts.By
	}
	return defaultBy
}

// Aside takes a request into account that is not reported on, as
// [Waits.Aside] does. It keeps nothing of r.
func (a *Analyzer) Aside(r *trace.Request) { a.why.Aside(r) }

// Add takes one request into account. It keeps nothing of r.
func (a *Analyzer) Add(r *trace.Request) {
	a.why.Add(r)
	a.fileNamed = a.fileNamed || r.ReplicaInferred
	b := r.Breakdown()
	w := row{
		ttft: -1, tpot: -1, in: tokens(r.Input), out: tokens(r.Output), cached: tokens(r.Cached),
		outside: int64(b.Outside), overlap: int64(b.Overlap), conflict: int64(b.Conflict),
		offset: r.Source.Pos.Offset, line: int32(min(r.Source.Pos.Line, math.MaxInt32)),
		clock: r.Clock, outcome: r.Outcome,
	}
	start, end, ok := r.Extent()
	if ok {
		w.start, w.end, w.has = int64(start), int64(end), w.has|hasExtent
	}
	if t, ok := r.Arrival.Get(); ok {
		w.arrival, w.has = int64(t), w.has|hasArrival
		a.origin.See(r)
	}
	if b.Complete {
		w.has |= complete
	}
	if b.Inconsistent() {
		w.has |= inconsistent
	}
	if d, ok := r.TTFT().Get(); ok && d >= 0 {
		w.ttft = int64(d)
		if r.FirstToken.Basis != trace.Measured && b.Of(trace.Arrival|trace.Completion) > 0 {
			w.has |= placedFirst
		}
	}
	if _, ok := r.Attr(trace.Disaggregated); ok {
		w.has |= onTwoEngines
	}
	w.tpot = tpot(r).Or(-1)
	parts, waits := append(a.part[:0], b.Parts...), a.wait[:0]
	for _, iv := range r.Intervals {
		if iv.Phase.Kind() == trace.Waiting {
			w.has |= tellsWaiting
			s := span{max(int64(iv.Start), w.start), min(int64(iv.End), w.end)}
			if s.end > s.start {
				waits = append(waits, s)
			}
		}
		if b.Of(iv.Phase) == 0 && reportsZero(r.Intervals, iv.Phase) {
			parts = appendZero(parts, iv.Phase)
		}
	}
	waits = union(waits)
	w.part, w.parts = a.parts.add(parts), uint32(len(parts))
	w.wait, w.waits = a.waits.add(waits), uint32(len(waits))
	a.part, a.wait = parts, waits

	id := r.ID
	if id == "" {
		id = r.TraceID
	}
	a.key = append(append(a.key[:0], id...), r.Source.Pos.Path...)
	w.text = a.text.add(a.key)
	w.idLen, w.path = uint32(len(id)), uint32(len(r.Source.Pos.Path))
	w.file = a.files.id(r.Source.Pos.File)
	w.dim, w.traits = a.dim(r), a.traits.of(r)
	a.rows.add(&w)

	for _, at := range r.Attrs {
		switch {
		case at.Key == "service.version":
			a.versions[at.Value.String()]++
		case isHardware(at.Key):
			count(a.hardware, at.Key, at.Value.String(), 1)
		case isSampling(at.Key):
			count(a.sampling, at.Key, at.Value.String(), 1)
		}
	}
}

// reportsZero reports whether a claim of p that got no time says that the
// phase took none. A set that a narrower claim covers has been refined: it
// says nothing of its own.
func reportsZero(ivs []trace.Interval, p trace.Phase) bool {
	return !slices.ContainsFunc(ivs, func(iv trace.Interval) bool { return iv.Phase != p && iv.Phase&^p == 0 })
}

// appendZero adds a part of no length, once.
func appendZero(parts []trace.Part, p trace.Phase) []trace.Part {
	if slices.ContainsFunc(parts, func(q trace.Part) bool { return q.Phase == p }) {
		return parts
	}
	return append(parts, trace.Part{Phase: p})
}

// union sorts the spans and joins those that touch.
func union(in []span) []span {
	if len(in) < 2 {
		return in
	}
	slices.SortFunc(in, func(x, y span) int { return cmp.Compare(x.start, y.start) })
	out := in[:1]
	for _, x := range in[1:] {
		if last := &out[len(out)-1]; x.start <= last.end {
			last.end = max(last.end, x.end)
		} else {
			out = append(out, x)
		}
	}
	return out
}

func tokens(o trace.Opt[int]) int64 { return int64(o.Or(-1)) }

func count(m map[string]map[string]int64, key, value string, n int64) {
	if m[key] == nil {
		m[strings.Clone(key)] = map[string]int64{}
	}
	m[key][value] += n
}

// isHardware reports whether an attribute tells of the machine.
func isHardware(key string) bool {
	switch key {
	case "k8s.node.name", "cloud.region", "cloud.availability_zone":
		return true
	}
	return strings.HasPrefix(key, "host.") || strings.HasPrefix(key, "gpu.") || strings.HasPrefix(key, "hw.")
}

// isSampling reports whether an attribute tells of how traces were chosen.
func isSampling(key string) bool {
	switch key {
	case "sampler.type", "sampler.param", "SampleRate":
		return true
	}
	return strings.HasPrefix(key, "sampling.")
}

// dim numbers the values that r shares with others.
func (a *Analyzer) dim(r *trace.Request) uint32 {
	k := a.key[:0]
	add := func(s string) {
		k = binary.AppendUvarint(k, uint64(len(s)))
		k = append(k, s...)
	}
	for _, s := range []string{r.Service, r.Model, r.Replica, r.Source.Engine, r.Source.Format} {
		add(s)
	}
	k = binary.AppendVarint(k, int64(r.Resolution))
	for i := range a.keys() {
		v, ok := a.value(r, i)
		if !ok {
			k = append(k, 0)
			continue
		}
		k = append(k, 1)
		add(v)
	}
	a.key = k
	if id, ok := a.dims.ids[string(k)]; ok {
		return id
	}
	d := dim{
		service: strings.Clone(r.Service), model: strings.Clone(r.Model), replica: strings.Clone(r.Replica),
		engine: strings.Clone(r.Source.Engine), format: strings.Clone(r.Source.Format), resolution: r.Resolution,
	}
	for i := range a.keys() {
		if v, ok := a.value(r, i); ok {
			d.by = append(d.by, trace.Some(strings.Clone(v)))
		} else {
			d.by = append(d.by, trace.Opt[string]{})
		}
	}
	a.dimRows = append(a.dimRows, d)
	return a.dims.id(string(k))
}

// AddReading takes an engine's statement of its state into account.
func (a *Analyzer) AddReading(r trace.Reading) {
	a.readings = append(a.readings, r)
	a.why.AddReading(r)
}

// AddLimits takes an engine's statement of its limits into account.
func (a *Analyzer) AddLimits(l trace.EngineLimits) {
	a.told = append(a.told, l)
	a.why.AddLimits(l)
}

// Merge takes all that b has seen into account. Both must have been made with
// the same options; b is not used afterwards.
func (a *Analyzer) Merge(b *Analyzer) {
	dims := make([]uint32, len(b.dims.names))
	for i, k := range b.dims.names {
		if _, ok := a.dims.ids[k]; !ok {
			a.dimRows = append(a.dimRows, b.dimRows[i])
		}
		dims[i] = a.dims.id(k)
	}
	for i := range a.values {
		if b.values[i] == nil {
			a.values[i] = nil
		}
		for v := range b.values[i] {
			a.see(i, v)
		}
	}
	files := make([]uint32, len(b.files.names))
	for i, f := range b.files.names {
		files[i] = a.files.id(f)
	}
	sets := a.traits.merge(&b.traits)
	text, part, wait := a.text.take(&b.text), a.parts.take(&b.parts), a.waits.take(&b.waits)
	for i := range b.rows.n {
		w := *b.rows.at(uint32(i))
		w.text, w.part, w.wait = w.text+text, w.part+part, w.wait+wait
		w.dim, w.file, w.traits = dims[w.dim], files[w.file], sets[w.traits]
		a.rows.add(&w)
	}
	for v, n := range b.versions {
		a.versions[v] += n
	}
	for k, m := range b.hardware {
		for v, n := range m {
			count(a.hardware, k, v, n)
		}
	}
	for k, m := range b.sampling {
		for v, n := range m {
			count(a.sampling, k, v, n)
		}
	}
	for c, t := range b.origin {
		if at, ok := t.Get(); ok {
			a.origin.see(trace.Clock(c), at)
		}
	}
	a.readings = append(a.readings, b.readings...)
	a.told = append(a.told, b.told...)
	a.fileNamed = a.fileNamed || b.fileNamed
	a.why.Merge(b.why)
}
