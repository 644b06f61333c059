package analyze

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// The keys of the labels that [StackBuilder] puts on samples. A label whose
// value the data do not tell is left out.
const (
	LabelOutcome = "outcome"       // as [trace.Outcome] prints
	LabelTenant  = "tenant"        // the first of [TenantKeys] that the request has
	LabelRoute   = "route"         // the first of [RouteKeys] that the request has
	LabelBand    = "band"          // one of [Bands]
	LabelPrompt  = "prompt_tokens" // a number: the least of its power-of-two bucket, see [BucketBounds]
)

// TenantKeys are the attributes that name who sent a request, best first.
var TenantKeys = []string{"tenant", "tenant.id", "tenant_id", "user", "user.id", "user_id", "enduser.id"}

// RouteKeys are the attributes that name what was called, best first.
var RouteKeys = []string{"route", "http.route", "url.path"}

// MaxLabelValues is how many values the labels tenant and route may have: with
// more (a tenant for each user) none is told from another in a profile, which
// would be of a gigabyte. The label is then left out, and a comment says so.
// Frames have no such limit: they were asked for.
const MaxLabelValues = 10_000

// Bands are the latency bands, fastest first. A request's band is the first
// whose upper quantile (0.5, 0.9, 0.99, none) is at least its e2e. The
// quantiles are those of the requests that are ok, as in every table, and
// every request that has an e2e gets its band by them.
var Bands = []string{"p0-p50", "p50-p90", "p90-p99", "p99-p100"}

var bandQuantiles = [...]float64{0.5, 0.9, 0.99} // between the bands

// PhaseFrame is the frame key that splits a request into its phases.
const PhaseFrame = "phase"

// CauseFrame is the frame key that splits waiting by its [Cause]. A path of
// another kind of time has no such frame where it is the last, else one that
// says so.
const CauseFrame = "cause"

// splits reports whether a frame divides a request, where the others are keys
// of the whole.
func splits(frame string) bool { return frame == PhaseFrame || frame == CauseFrame }

// DefaultFrames are the frames of a profile where none are chosen, root first.
var DefaultFrames = []string{"service", "model", "replica", PhaseFrame, CauseFrame}

// StackOptions chooses the frames. The zero value works.
type StackOptions struct {
	// Frames are grouping keys, root first: those of [Key], [PhaseFrame] or
	// [CauseFrame]. Without these two the phases and the causes are summed.
	// Empty: [DefaultFrames].
	Frames []string
}

// A StackBuilder sums requests as weighted paths. It is a reducer: requests in
// any order, split over any number of builders that are merged, give the same
// result. It keeps some 60 bytes a request, since a request's band is known
// only when all have been seen.
type StackBuilder struct {
	frames []string
	groups map[string]uint32 // encoded group to its place
	keys   []string          // by place
	key    []byte            // scratch

	// One entry a request. Its parts follow those of the request before.
	group []uint32
	e2e   []time.Duration // negative: not known
	ok    []bool          // counts for the quantiles
	count []uint16        // of its parts; there are at most 128 sets
	// One entry a part.
	phase []trace.Phase
	dur   []time.Duration

	// Where causes are asked for: the stretches of waiting, of request after
	// request, and how many each has.
	waits []trace.Segment
	spans []uint32

	span Span
}

// NewStacks returns an empty builder.
func NewStacks(o StackOptions) *StackBuilder {
	b := &StackBuilder{frames: slices.Clone(o.Frames), groups: make(map[string]uint32)}
	if len(b.frames) == 0 {
		b.frames = slices.Clone(DefaultFrames)
	}
	return b
}

// Add takes one request into account. It keeps nothing of r.
func (b *StackBuilder) Add(r *trace.Request) {
	b.span.See(r)
	br := r.Breakdown()
	n := len(br.Parts)
	for _, p := range br.Parts {
		b.phase = append(b.phase, p.Phase)
		b.dur = append(b.dur, p.Dur)
	}
	// A request without any time still counts.
	if br.Unattributed > 0 || n == 0 {
		b.phase = append(b.phase, trace.Unattributed)
		b.dur = append(b.dur, br.Unattributed)
		n++
	}
	if slices.Contains(b.frames, CauseFrame) {
		from := len(b.waits)
		b.waits = r.Segments(b.waits)
		kept := slices.DeleteFunc(b.waits[from:], func(s trace.Segment) bool { return s.Phase.Kind() != trace.Waiting })
		b.waits = b.waits[:from+len(kept)]
		b.spans = append(b.spans, uint32(len(kept)))
	}
	b.key = b.encode(b.key[:0], r)
	b.group = append(b.group, b.place(b.key))
	e2e, known := r.E2E().Get()
	if !known {
		e2e = -1
	}
	b.e2e = append(b.e2e, e2e)
	b.ok = append(b.ok, known && r.Outcome == trace.OK)
	b.count = append(b.count, uint16(n))
}

// A group is what a request's samples share: its frames but the phase, and
// its labels but the band. As text it is a list of fields, each a byte that
// says whether it is known, its length and the bytes.
func (b *StackBuilder) encode(buf []byte, r *trace.Request) []byte {
	field := func(s string, ok bool) {
		if !ok {
			buf = append(buf, 0)
			return
		}
		buf = append(buf, 1)
		buf = binary.AppendUvarint(buf, uint64(len(s)))
		buf = append(buf, s...)
	}
	for _, key := range b.frames {
		if !splits(key) {
			field(Key(r, key))
		}
	}
	field(r.Outcome.String(), true)
	field(firstAttr(r, TenantKeys))
	field(firstAttr(r, RouteKeys))
	if n, ok := r.Input.Get(); ok {
		lo, _ := BucketBounds(n)
		field(strconv.Itoa(lo), true)
	} else {
		field("", false)
	}
	return buf
}

// firstAttr returns the first of the attributes that r has.
func firstAttr(r *trace.Request, keys []string) (string, bool) {
	for _, k := range keys {
		if v, ok := r.Attr(k); ok {
			return v.String(), true
		}
	}
	return "", false
}

// decode is the inverse of encode: the frames with gaps at the phase and the
// cause, and the labels.
func (b *StackBuilder) decode(group string) (frames []string, labels []Label) {
	field := func() (string, bool) {
		known := group[0] == 1
		group = group[1:]
		if !known {
			return "", false
		}
		n, w := binary.Uvarint([]byte(group[:min(len(group), binary.MaxVarintLen64)]))
		s := group[w : w+int(n)]
		group = group[w+int(n):]
		return s, true
	}
	for _, key := range b.frames {
		if splits(key) {
			frames = append(frames, "")
		} else if v, ok := field(); ok {
			frames = append(frames, key+" "+className(trace.Some(v)))
		} else {
			frames = append(frames, key+" (not in the data)")
		}
	}
	for _, key := range []string{LabelOutcome, LabelTenant, LabelRoute, LabelPrompt} {
		v, ok := field()
		if !ok {
			continue
		}
		if key == LabelPrompt {
			n, _ := strconv.ParseInt(v, 10, 64)
			labels = append(labels, Label{Key: key, Num: n, Unit: string(UnitTokens)})
			continue
		}
		labels = append(labels, Label{Key: key, Text: v})
	}
	return frames, labels
}

// reduced leaves those labels out of the groups that have more than
// [MaxLabelValues], and returns the place of each group among those that are
// left, these, and the labels. Which labels they are does not depend on the
// order of requests; the places do.
func (b *StackBuilder) reduced() (alias []uint32, keys, left []string) {
	first := 0 // field of the outcome
	for _, key := range b.frames {
		if !splits(key) {
			first++
		}
	}
	labels := []string{LabelTenant, LabelRoute}
	many := make([]bool, len(labels))
	for i := range labels {
		seen := make(map[string]bool)
		for _, k := range b.keys {
			from, to := field(k, first+1+i)
			if k[from] == 0 {
				continue
			}
			if seen[k[from:to]] = true; len(seen) > MaxLabelValues {
				many[i] = true
				left = append(left, labels[i])
				break
			}
		}
	}
	alias = make([]uint32, len(b.keys))
	if len(left) == 0 {
		for i := range alias {
			alias[i] = uint32(i)
		}
		return alias, b.keys, nil
	}
	index := make(map[string]uint32)
	for g, k := range b.keys {
		for i := range labels {
			if many[i] {
				from, to := field(k, first+1+i)
				k = k[:from] + "\x00" + k[to:] // absent
			}
		}
		at, ok := index[k]
		if !ok {
			at = uint32(len(keys))
			index[k] = at
			keys = append(keys, k)
		}
		alias[g] = at
	}
	return alias, keys, left
}

// field returns where the i-th field of an encoded group is.
func field(group string, i int) (from, to int) {
	for ; ; i-- {
		to = from + 1
		if group[from] == 1 {
			n, w := binary.Uvarint([]byte(group[to:min(len(group), to+binary.MaxVarintLen64)]))
			to += w + int(n)
		}
		if i == 0 {
			return from, to
		}
		from = to
	}
}

// place numbers the groups by first use. No result depends on the numbers.
func (b *StackBuilder) place(group []byte) uint32 {
	i, ok := b.groups[string(group)]
	if !ok {
		i = uint32(len(b.keys))
		key := string(group)
		b.groups[key] = i
		b.keys = append(b.keys, key)
	}
	return i
}

// Merge adds what o has seen; o must not be used after. It fails where the
// frames differ.
func (b *StackBuilder) Merge(o *StackBuilder) error {
	if !slices.Equal(b.frames, o.frames) {
		return fmt.Errorf("stacks by %q and by %q do not add up", b.frames, o.frames)
	}
	places := make([]uint32, len(o.keys))
	for i, k := range o.keys {
		places[i] = b.place([]byte(k))
	}
	for _, g := range o.group {
		b.group = append(b.group, places[g])
	}
	b.e2e = append(b.e2e, o.e2e...)
	b.ok = append(b.ok, o.ok...)
	b.count = append(b.count, o.count...)
	b.phase = append(b.phase, o.phase...)
	b.dur = append(b.dur, o.dur...)
	b.waits = append(b.waits, o.waits...)
	b.spans = append(b.spans, o.spans...)
	b.span.Merge(o.span)
	return nil
}

// The values of a sample, in order.
const (
	valueRequests = iota
	valueWaiting
	valueCompute
	valueOverhead
	valueE2E
	stackValues
)

// Stacks returns the sums. Each request gives one path for each set of phases
// with time in it, [trace.Unattributed] included.
//
//   - waiting, compute, overhead are that set's time where it is of that kind
//     ([trace.Phase.Kind]), e2e its time whatever the kind: so unsplit and
//     unattributed time is in e2e alone. Their totals are the sums of
//     [trace.Breakdown.Kind] and Extent over all requests. For a request whose
//     end is not known they go as far as it was seen.
//   - requests is 1 on the path of the request's longest set (the first of
//     equals) and 0 on the others, so that its total is the number of requests
//     and a leaf tells how many requests it dominates.
//
// Where [CauseFrame] is among the frames, a path of waiting is split by the
// causes of why, to which the same requests must have been added in the same
// order; the requests that it stands for go to its longest cause.
func (b *StackBuilder) Stacks(why *WaitResult) *Stacks {
	s := &Stacks{
		Types: []ValueType{
			{"requests", "count"}, {"waiting", "nanoseconds"}, {"compute", "nanoseconds"},
			{"overhead", "nanoseconds"}, {"e2e", "nanoseconds"},
		},
		Default:  valueWaiting,
		Keys:     slices.Clone(b.frames),
		Comments: []string{"requests count on their longest phase"},
	}
	s.Start, s.End = b.span.Bounds()
	limits, banded := b.limits()
	if banded {
		text := "bands by e2e of the ok requests:"
		for i, q := range bandQuantiles {
			text += fmt.Sprintf(" p%.0f %s,", 100*q, units.Duration(time.Duration(limits[i]), 0))
		}
		s.Comments = append(s.Comments, strings.TrimSuffix(text, ","))
	}

	alias, keys, left := b.reduced()
	for _, label := range left {
		s.Comments = append(s.Comments, fmt.Sprintf("label %s left out: more than %s values", label, units.Count(MaxLabelValues)))
	}

	type path struct {
		group uint32
		band  uint8 // len(Bands): none
		phase trace.Phase
		cause uint8 // the cause + 1; 0: none
	}
	sums := make(map[path]*[stackValues]int64)
	at, span := 0, 0
	byCause := slices.Contains(b.frames, CauseFrame) && why != nil
	var causes causeTimes
	split := slices.Contains(b.frames, PhaseFrame)
	for i, g := range b.group {
		n := int(b.count[i])
		phases, durs := b.phase[at:at+n], b.dur[at:at+n]
		at += n
		band := len(Bands)
		if banded && b.e2e[i] >= 0 {
			band = 0
			for band < len(limits) && int64(b.e2e[i]) > limits[band] {
				band++
			}
		}
		if byCause {
			n := int(b.spans[i])
			causes.read(b.waits[span:span+n], why.Parts(i))
			span += n
		}
		longest := 0
		for j, d := range durs {
			if d > durs[longest] {
				longest = j
			}
		}
		for j, d := range durs {
			k := path{group: alias[g], band: uint8(band)}
			if split {
				k.phase = phases[j]
			}
			kind := phases[j].Kind()
			add := func(d time.Duration, counts bool) {
				v := sums[k]
				if v == nil {
					v = new([stackValues]int64)
					sums[k] = v
				}
				if counts {
					v[valueRequests]++
				}
				v[valueE2E] += int64(d)
				switch kind {
				case trace.Waiting:
					v[valueWaiting] += int64(d)
				case trace.Compute:
					v[valueCompute] += int64(d)
				case trace.Overhead:
					v[valueOverhead] += int64(d)
				}
			}
			if kind != trace.Waiting || !byCause {
				add(d, j == longest)
				continue
			}
			of := causes.of(phases[j])
			most := CauseUnknown
			for c, d := range of {
				if d > of[most] {
					most = Cause(c)
				}
			}
			for c, d := range of {
				if d > 0 {
					k.cause = uint8(c) + 1
					add(d, j == longest && Cause(c) == most)
				}
			}
		}
	}

	for k, v := range sums {
		frames, labels := b.decode(keys[k.group])
		for i, key := range b.frames {
			switch {
			case key == PhaseFrame:
				frames[i] = k.phase.String()
			case key == CauseFrame && k.cause > 0:
				frames[i] = Cause(k.cause - 1).String()
			case key == CauseFrame:
				frames[i] = "(no cause)"
			}
		}
		if last := len(frames) - 1; b.frames[last] == CauseFrame && k.cause == 0 {
			frames = frames[:last]
		}
		if int(k.band) < len(Bands) {
			labels = append(labels, Label{Key: LabelBand, Text: Bands[k.band]})
		}
		slices.SortFunc(labels, func(x, y Label) int { return cmp.Compare(x.Key, y.Key) })
		s.Samples = append(s.Samples, StackSample{Frames: frames, Values: v[:], Labels: labels})
	}
	// Values come last: a replica may be named like the words for an absent one.
	slices.SortFunc(s.Samples, func(x, y StackSample) int {
		return cmp.Or(slices.Compare(x.Frames, y.Frames), slices.CompareFunc(x.Labels, y.Labels, func(a, b Label) int {
			return cmp.Or(cmp.Compare(a.Key, b.Key), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Num, b.Num))
		}), slices.Compare(x.Values, y.Values))
	})
	return s
}

// causeTimes is one request's waiting by phase and cause.
type causeTimes struct {
	phases []trace.Phase
	times  [][causeCount]time.Duration
}

// read cuts the stretches of waiting by the parts that cover them.
func (t *causeTimes) read(waits []trace.Segment, parts []WaitPart) {
	t.phases, t.times = t.phases[:0], t.times[:0]
	for _, s := range waits {
		j := slices.Index(t.phases, s.Phase)
		if j < 0 {
			j = len(t.phases)
			t.phases = append(t.phases, s.Phase)
			t.times = append(t.times, [causeCount]time.Duration{})
		}
		for at := s.Start; at < s.End; {
			for len(parts) > 0 && parts[0].End <= at {
				parts = parts[1:]
			}
			end, c := s.End, CauseUnknown
			if len(parts) > 0 {
				end, c = min(end, parts[0].End), parts[0].Cause
			}
			t.times[j][c] += end.Sub(at)
			at = end
		}
	}
}

// of returns the time of a phase by cause.
func (t *causeTimes) of(p trace.Phase) (times [causeCount]time.Duration) {
	if j := slices.Index(t.phases, p); j >= 0 {
		times = t.times[j]
	}
	return times
}

// BlameFrames are the keys that frames of blame can have.
var BlameFrames = []string{"service", "model", "replica", "waiter", CauseFrame, "holder"}

// BlameStacks gives the waiting as charged to those who held the replica: a
// path for each class of waiter, class of holder and cause. The one value is
// the waiting, whose total is that of all requests. What nobody held is charged
// to "holder (nobody)".
//
// Frames are keys of [BlameFrames], root first: waiter above holder asks whom a
// class waited for, holder above waiter whom it kept waiting. It fails on any
// other key, since waiting is charged between classes and not between requests.
func BlameStacks(res *WaitResult, frames []string) (*Stacks, error) {
	for _, f := range frames {
		if !slices.Contains(BlameFrames, f) {
			return nil, fmt.Errorf("frame %q does not go with waiter or holder: waiting is charged between classes, by %s",
				f, strings.Join(BlameFrames, ", "))
		}
	}
	s := &Stacks{Types: []ValueType{{"waiting", "nanoseconds"}}, Keys: slices.Clone(frames)}
	charged := "; charged by what each holds of the thing that is scarce"
	if res.Weighting == "equal" {
		charged = "; charged in equal shares"
	}
	s.Comments = []string{"classes by " + strings.Join(res.By, ", ") + charged}
	sums := map[string]*StackSample{}
	left := map[BlameCell]int64{}
	for _, c := range res.Matrix {
		left[BlameCell{Waiter: c.Waiter, Holder: c.Holder, Cause: c.Cause}] += c.NS
	}
	add := func(c BlameCell, of map[string]string, ns int64) {
		var path []string
		for _, f := range frames {
			name := f + " "
			switch v, known := of[f]; {
			case f == "waiter":
				name += c.Waiter
			case f == CauseFrame:
				name = c.Cause
			case f == "holder" && c.Holder == "":
				name += "(nobody)"
			case f == "holder":
				name += c.Holder
			case known && v != "":
				name += className(trace.Some(v))
			default:
				name += "(not in the data)"
			}
			path = append(path, name)
		}
		k := strings.Join(path, "\x00")
		if sums[k] == nil {
			sums[k] = &StackSample{Frames: path, Values: make([]int64, 1)}
		}
		sums[k].Values[0] += ns
	}
	for _, r := range res.Replicas {
		of := map[string]string{"service": r.Service, "model": r.Model, "replica": r.Replica}
		for _, c := range r.Matrix {
			add(c, of, c.NS)
			left[BlameCell{Waiter: c.Waiter, Holder: c.Holder, Cause: c.Cause}] -= c.NS
		}
	}
	for c, ns := range left { // of requests that are on no replica's clock
		if ns != 0 {
			add(c, nil, ns)
		}
	}
	for _, v := range sums {
		s.Samples = append(s.Samples, *v)
	}
	slices.SortFunc(s.Samples, func(x, y StackSample) int { return slices.Compare(x.Frames, y.Frames) })
	return s, nil
}

// limits returns the e2e between the bands; ok is false where no request has
// one that counts.
func (b *StackBuilder) limits() (limits [len(bandQuantiles)]int64, ok bool) {
	var e2e []int64
	for i, d := range b.e2e {
		if b.ok[i] {
			e2e = append(e2e, int64(d))
		}
	}
	slices.Sort(e2e)
	for i, q := range bandQuantiles {
		limits[i] = stats.Quantile(e2e, q)
	}
	return limits, len(e2e) > 0
}
