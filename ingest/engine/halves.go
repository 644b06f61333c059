package engine

import (
	"slices"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// Where prefill and decode run on two engines, each writes a request span of
// its own: two halves of one request. What says which half a span is:
//
//	SGLang    the name, "prefill Req …" and "decode Req …"; they share a bootstrap room, perhaps over two traces
//	llm-d     its proxy's spans prefill and decode around the engine's (decode may be below prefill)
//	Dynamo    component on handle_payload, phase on route_request, prefill_routing
//	TensorRT  the event ctx_server.selected above the two: the earlier one is prefill's
//	else      one request id on two servers, of which the first was asked for a single token
//
// The two of which nothing else of the kind is below the same span belong
// together, else those of the same room or request id. The prefill engine's
// half gives arrival and prefill, the decode engine's the tokens and the end.
//
// A decode engine that is no SGLang counts the time in which it waits for the
// KV cache as time in its queue: there it is queueing|transfer, as far as no
// span says when the transfer was.

// half is which of the two engines a span speaks for.
type half uint8

const (
	noHalf      half = iota
	prefillHalf      // the engine that computes the prompt
	decodeHalf       // the engine that goes on from there
	eitherHalf       // decode, if there is a prefill half; else all of it
)

// pair finds the halves that belong together. Spans come after their parents
// in order.
func pair(nodes []*node, links []link, order []int32) {
	// Of requests around requests only the innermost is a half.
	type open struct {
		prefill, decode         int32    // the last of each that waits for its other half
		prefills, decodes, some int32    // how many; requests at or below
		plain                   [2]int32 // of which nothing is said: the first two
		plains                  int32
	}
	var opens []open
	for _, i := range order {
		if nodes[i].engine != "" && (links[i].half != noHalf || mayBeHalf(nodes[i])) || splits(nodes[i]) {
			opens = make([]open, len(nodes))
			break
		}
	}
	if opens == nil {
		return
	}
	var left []int32 // what no span joins
	join := func(p, d int32) {
		links[p].into, links[d].from = d, p
		nodes[p].half, nodes[d].half = prefillHalf, decodeHalf
	}
	for k := len(order) - 1; k >= 0; k-- {
		i := order[k]
		o, n := &opens[i], nodes[i]
		if n.engine != "" && o.some == 0 {
			o.some = 1
			switch links[i].half {
			case prefillHalf:
				o.prefill, o.prefills = i, 1
			case decodeHalf, eitherHalf:
				o.decode, o.decodes = i, 1
			case noHalf:
				o.plain[0], o.plains = i, 1
			}
			left = append(left, i)
		}
		if o.prefills == 1 && o.decodes == 1 {
			join(o.prefill, o.decode)
			o.prefills, o.decodes = 0, 0
		}
		if o.plains == 2 && splits(n) {
			p, d := o.plain[0], o.plain[1]
			if p > d { // nodes are in order of their start
				p, d = d, p
			}
			join(p, d)
			o.plains = 0
		}
		if isWhole(n) {
			// Both halves of a request are below it: what is left is alone.
			if o.prefills == 1 {
				links[o.prefill].alone = true
			}
			if o.decodes == 1 {
				links[o.decode].alone = true
			}
			o.prefills, o.decodes = 0, 0
		}
		if p := links[i].parent; p >= 0 {
			up := &opens[p]
			up.some += o.some
			if o.prefills > 0 {
				up.prefill, up.prefills = o.prefill, up.prefills+o.prefills
			}
			if o.decodes > 0 {
				up.decode, up.decodes = o.decode, up.decodes+o.decodes
			}
			for k := range min(o.plains, 2) {
				if up.plains+k < 2 {
					up.plain[up.plains+k] = o.plain[k]
				}
			}
			up.plains += o.plains
		}
	}
	// Over all trees: the only two, else by room or request id.
	free := left[:0]
	var prefills, decodes, lastP, lastD int32
	for _, i := range left {
		if links[i].into >= 0 || links[i].from >= 0 || links[i].alone {
			continue
		}
		free = append(free, i)
		switch links[i].half {
		case prefillHalf:
			prefills, lastP = prefills+1, i
		case decodeHalf, eitherHalf:
			decodes, lastD = decodes+1, i
		}
	}
	if prefills == 1 && decodes == 1 && len(free) == 2 {
		join(lastP, lastD)
		return
	}
	first := map[string]int32{} // of a name; -1: of several
	for _, i := range free {
		if name := halfName(nodes[i]); name != "" && (links[i].half == prefillHalf || links[i].half == noHalf && mayBeHalf(nodes[i])) {
			if _, ok := first[name]; ok {
				first[name] = -1
			} else {
				first[name] = i
			}
		}
	}
	for _, i := range free {
		p, ok := first[halfName(nodes[i])]
		if !ok || p < 0 || p == i || links[p].into >= 0 || links[i].half == prefillHalf {
			continue
		}
		if links[p].half == noHalf && (links[i].half != noHalf || nodes[p].res == nodes[i].res || mayBeHalf(nodes[i]) || nodes[i].start.Or(0) < nodes[p].start.Or(0)) {
			continue
		}
		join(p, i)
	}
}

// isWhole reports whether n is a layer's span of one whole request.
func isWhole(n *node) bool {
	return n.engine == llmd || n.dynamo != nil && n.name == "http-request"
}

// splits reports whether n is a router's span that sent its request to two
// engines.
func splits(n *node) bool {
	return slices.ContainsFunc(n.marks, func(m mark) bool { return m.what == splitMark })
}

// mayBeHalf reports whether n, of which nothing says that it is a half, could
// be what a prefill engine was asked for: a single token.
func mayBeHalf(n *node) bool {
	if n.sample == "" {
		return false
	}
	var limit, made int64
	for i := range n.attrs {
		switch a := &n.attrs[i]; a.field {
		case fieldMaxTokens:
			limit, _ = a.Value.Int()
		case fieldOutput:
			made, _ = a.Value.Int()
		}
	}
	return limit == 1 && made <= 1
}

// halfName is what both halves of a request are called.
func halfName(n *node) string {
	if n.sgl != nil && n.sgl.room != "" {
		return n.sgl.room
	}
	return n.sample
}

// awaitsCache files what a decode engine calls its queue under what it is.
func awaitsCache(r *trace.Request) {
	if outOfQueue(r) {
		return
	}
	for i := range r.Intervals {
		if iv := &r.Intervals[i]; iv.Phase == trace.Queueing {
			iv.Phase |= trace.Transfer
		}
	}
}

// outOfQueue takes the transfers that r has out of its queueing: engines count
// the wait for a KV cache into their queue's. It reports whether there are any.
func outOfQueue(r *trace.Request) bool {
	var moved, queued []stretch
	for _, iv := range r.Intervals {
		switch iv.Phase {
		case trace.Transfer:
			moved = append(moved, stretch{iv.Start, iv.End})
		case trace.Queueing:
			queued = append(queued, stretch{iv.Start, iv.End})
		}
	}
	if len(moved) == 0 || len(queued) == 0 {
		return len(moved) > 0
	}
	keep := r.Intervals[:0]
	basis := trace.Measured
	for _, iv := range r.Intervals {
		if iv.Phase != trace.Queueing {
			keep = append(keep, iv)
		} else {
			basis = max(basis, iv.Basis)
		}
	}
	r.Intervals = keep
	claimAll(r, trace.Queueing, basis, without(union(queued), union(moved)))
	return true
}

// lone notes that r is half a request. What the prefill engine ends with is not
// its end.
func lone(r *trace.Request, h half) {
	if h == decodeHalf {
		note(r, trace.HalfRequest, "the prefill engine's span is missing: what came before is not known")
		for i := range r.Intervals {
			// SGLang's decode engine waits for the prompt too.
			if iv := &r.Intervals[i]; iv.Phase == trace.Transfer && r.Source.Engine == sglang {
				iv.Phase |= trace.Queueing | trace.Prefill
			}
		}
		return
	}
	note(r, trace.HalfRequest, "the decode engine's span is missing: what came after is not known")
	r.Completed, r.LastToken = trace.Instant{}, trace.Instant{}
}

// joinHalves adds the prefill engine's half q to the decode engine's r.
// together: both began with the request; else the second began when the first
// had ended.
func joinHalves(r, q *trace.Request, together bool) {
	r.Issues = append(r.Issues, q.Issues...)
	r.Resolution = max(r.Resolution, q.Resolution)
	r.SetAttr(trace.Disaggregated, trace.BoolValue(true))
	if q.Service != "" {
		r.SetAttr("prefill.service", trace.StringValue(q.Service))
	}
	if q.Replica != "" {
		r.SetAttr("prefill.replica", trace.StringValue(q.Replica))
	}
	if together {
		joinTogether(r, q)
	} else {
		if a, okA := r.Arrival.Get(); okA {
			if z, okZ := q.Completed.Get(); okZ && z.Sub(a) > tolerance(r) {
				note(r, trace.ClockSkew, "the decode engine begins %s before the prefill engine ends: nothing was moved", units.Duration(z.Sub(a), 0))
			}
		}
		r.Intervals = append(r.Intervals, q.Intervals...)
	}
	if a, ok := q.Arrival.Get(); !ok {
		r.Arrival = trace.Instant{}
	} else if !r.Arrival.Present() || a < r.Arrival.At {
		r.Arrival = q.Arrival
	}
	if e2e, ok := r.E2E().Get(); ok && e2e < 0 {
		note(r, trace.ClockSkew, "the decode engine ends %s before the prefill engine begins: its end is not believed", units.Duration(-e2e, 0))
		r.Completed = trace.Instant{}
	}
	r.Queued, r.Scheduled = q.Queued, q.Scheduled
	if !r.FirstToken.Present() {
		r.FirstToken = q.FirstToken
	}
	if !r.Input.Present() {
		r.Input = q.Input
	}
	if r.ID == "" {
		r.ID = q.ID
	}
	if r.Model == "" {
		r.Model = q.Model
	}
	// To the decode engine all of the prompt was there.
	r.Cached = q.Cached
	// Neither engine's own figures are about the whole.
	r.Reported = trace.Reported{}
}

// joinTogether joins claims of engines that both had the request from the
// start: what the decode engine waits for while the other one works is that
// work.
func joinTogether(r, q *trace.Request) {
	var theirs, running []stretch
	for _, iv := range q.Intervals {
		if iv.Phase&(trace.Completion|trace.Decode) == 0 {
			theirs = append(theirs, stretch{iv.Start, iv.End})
		}
	}
	// Once the decode engine has the cache, what it tells counts.
	const runs = trace.Decode | trace.Preempted | trace.Completion
	had := horizon
	for _, iv := range r.Intervals {
		if iv.Phase == trace.Transfer && (had == horizon || iv.End > had) {
			had = iv.End
		}
	}
	var begun trace.Instant
	var before, after []trace.Interval
	for _, iv := range r.Intervals {
		if iv.Phase&runs != 0 {
			earliest(&begun, iv.Start, iv.Basis)
		} else if iv.Start < had {
			before = append(before, iv)
			continue
		}
		after = append(after, iv)
		running = append(running, stretch{iv.Start, iv.End})
	}
	theirs, running = union(theirs), union(running)
	r.Intervals = after
	for _, c := range byPhase(before) {
		claimAll(r, c.phase, c.basis, without(union(c.all), theirs))
	}
	var early time.Duration
	for _, c := range byPhase(q.Intervals) {
		switch {
		case c.phase&(trace.Completion|trace.Decode) != 0:
			// What the prefill engine does after its token is nobody's wait.
		case c.phase == trace.Transfer:
			// The sender learns later than the receiver that all is there.
			claimAll(r, c.phase, c.basis, without(union(c.all), running))
		default:
			for _, s := range c.all {
				if begun.Present() {
					early = max(early, s.to.Sub(begun.At))
				}
			}
			claimAll(r, c.phase, c.basis, c.all)
		}
	}
	if early > max(sglSlack, tolerance(r)) {
		note(r, trace.ClockSkew, "decoding begins %s before the prompt is done: nothing was moved", units.Duration(early, 0))
	}
}

// claims are all claims of one set of phases.
type claims struct {
	phase trace.Phase
	basis trace.Basis
	all   []stretch
}

// byPhase sorts claims by what they are, in the order in which each comes first.
func byPhase(ivs []trace.Interval) (out []claims) {
	at := map[trace.Phase]int{}
	for _, iv := range ivs {
		i, ok := at[iv.Phase]
		if !ok {
			i = len(out)
			at[iv.Phase] = i
			out = append(out, claims{phase: iv.Phase})
		}
		out[i].basis = max(out[i].basis, iv.Basis)
		out[i].all = append(out[i].all, stretch{iv.Start, iv.End})
	}
	return out
}
