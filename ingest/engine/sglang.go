package engine

import (
	"slices"
	"strconv"
	"strings"

	"github.com/traceview/traceview/trace"
)

// SGLang (observability/trace.py and req_time_stats.py of 2026, tracing/trace.py
// of 2025) writes a span for the request, " Req 1f0c9a2e", below it one for each
// thread that had to do with it, and below these the stages:
//
//	stage                            from, to                              phase
//	tokenize, api_server_dispatch,   created … in the scheduler's hands    arrival
//	dpc_dispatch, request_process
//	prefill_waiting                  queued, first forward pass            queueing
//	prefill_forward                  forward pass, prompt done             prefill
//	decode_waiting                   prompt done, first decode batch       queueing
//	decode_forward                   first decode batch, finished          decode
//	prefill_bootstrap                waits for the decode engine's hand    queueing
//	prefill_transfer_kv_cache        prompt done, cache sent               transfer
//	decode_bootstrap                 waits for memory and a hand           queueing
//	decode_transferred               waits for prompt and cache            transfer, less what the prefill engine tells;
//	                                                                       without that one queueing|prefill|transfer
//
// Every rank's scheduler writes the same stages: those of the lowest count. A
// step a token, decode_loop, is folded into one stretch as it comes. After an
// event "retract" the request waits until the next forward pass, without a span
// of its own; the prompt is then computed anew inside decode_forward.
//
// On the request's span it writes vLLM's keys with other meanings, all on the
// API server's clock:
//
//	time_in_model_prefill    first token − dispatched to the scheduler: with the queue
//	time_in_model_inference  finished − dispatched: with the queue
//	time_in_model_decode     finished − first token
//	time_to_first_token      first token − created
//	e2e                      finished − created
//	time_in_queue            never set
//
// They are read where the stages are missing, as they are with several
// tokenizer workers: queueing and prefill are one amount then.

const sglangScope = "sglang server"

// sglSpan is what only SGLang's spans have.
type sglSpan struct {
	stage   string // of a stage's span
	thread  bool   // it stands for a thread
	rank    int32  // of its scheduler, below all others the lowest; of no scheduler: the highest
	replica string // of a scheduler's thread: host and process
	room    string // shared by the two engines of one request; empty: none
}

const noRank = int32(1<<31 - 1)

// sglSlack is how far SGLang's processes may be apart: each places its stages
// by a clock offset of its own.
const sglSlack = 100e3

// sglStages are the stages by their names, blanks and hyphens as underscores.
// What 2025 called prefill began where the stage before ended.
var sglStages = map[string]trace.Phase{
	"tokenize": trace.Arrival, "api_server_dispatch": trace.Arrival, "dispatch": trace.Arrival,
	"dpc_dispatch": trace.Arrival, "dc_dispatch": trace.Arrival, "request_process": trace.Arrival, "process_req": trace.Arrival,
	"prefill_prepare": trace.Arrival, "decode_prepare": trace.Arrival,
	"prefill_waiting": trace.Queueing, "decode_waiting": trace.Queueing,
	"prefill_bootstrap": trace.Queueing, "decode_bootstrap": trace.Queueing,
	"prefill_forward": trace.Prefill, "chunked_prefill": trace.Prefill, "prefill": trace.Queueing | trace.Prefill,
	"decode_forward": trace.Decode, "decode_loop": trace.Decode,
	"prefill_transfer_kv_cache": trace.Transfer, "decode_transferred": trace.Transfer,
}

var sglName = strings.NewReplacer(" ", "_", "-", "_")

// isStep reports whether s is SGLang's span of one decoding step.
func isStep(s *trace.Span) bool {
	return s.Scope == sglangScope && (s.Name == "decode_loop" || s.Name == "decode loop")
}

// readSGLangSpan sets what is SGLang's own about a span.
func (b *Builder) readSGLangSpan(n *node, s *trace.Span) {
	x := &sglSpan{rank: noRank}
	n.sgl = x
	if v, ok := s.Attr("bootstrap_room"); ok {
		if t := v.String(); strings.Trim(t, "0x") != "" && len(t) <= 32 && t != "-1" {
			x.room = b.intern(t)
		}
	}
	if label, ok := s.Attr("thread_label"); ok || strings.Contains(s.Name, "| pid:") {
		x.thread = true
		scheduler := strings.Contains(s.Name, "Scheduler") || strings.Contains(label.String(), "Scheduler")
		if scheduler {
			x.rank = 0
			for _, r := range []struct {
				key, mark string
				unit      int32
			}{{"tp_rank", "[TP ", 1}, {"pp_rank", "[PP ", 1 << 12}} {
				x.rank += r.unit * sglRank(s, r.key, r.mark)
			}
		}
		host, _ := s.Attr("host_id")
		pid, _ := s.Attr("pid")
		if h := host.String(); h != "" && len(h) <= maxText && scheduler {
			if len(h) > 8 {
				h = h[:8]
			}
			x.replica = b.intern(h + "/" + pid.String())
		}
		if v, ok := s.Attr("type"); ok {
			n.aborted = saysAborted(v.String())
		}
		return
	}
	if n.engine != "" {
		switch name := strings.ToLower(strings.TrimSpace(n.name)); {
		case strings.HasPrefix(name, "prefill"):
			n.half = prefillHalf
		case strings.HasPrefix(name, "decode"):
			n.half = decodeHalf
		case strings.HasPrefix(name, "router"):
			n.engine = "" // the load balancer of 2025, beside the two engines
		}
		return
	}
	if len(s.Name) > 64 {
		return
	}
	name := sglName.Replace(strings.ToLower(s.Name))
	if p, ok := sglStages[name]; ok {
		n.phase, x.stage = p, b.intern(name)
		for _, e := range s.Events {
			if at, ok := e.At.Get(); ok && e.Name == "retract" && at > 0 && at < horizon {
				n.marks = append(n.marks, mark{at, preemptedMark})
			}
		}
	}
}

// sglRank reads a rank off an attribute or a thread's name.
func sglRank(s *trace.Span, key, mark string) int32 {
	t := ""
	if v, ok := s.Attr(key); ok {
		t = v.String()
	} else if _, rest, ok := strings.Cut(s.Name, mark); ok {
		t, _, _ = strings.Cut(rest, "]")
	}
	i, err := strconv.Atoi(strings.TrimSpace(t))
	if err != nil || i < 0 {
		return 0
	}
	return int32(min(i, 1<<12-1))
}

// threads hands a thread's rank down to the stages below it, and what it says
// of its process to the request.
func threads(n, parent *node, owner int32, nodes []*node) {
	if !n.sgl.thread {
		if parent.sgl != nil {
			n.sgl.rank = parent.sgl.rank
		}
		return
	}
	if owner < 0 || nodes[owner].sgl == nil {
		return
	}
	r := nodes[owner]
	r.aborted, r.failed = r.aborted || n.aborted, r.failed || n.aborted
	if n.sgl.replica != "" && (r.sgl.replica == "" || n.sgl.rank < r.sgl.rank) {
		r.sgl.replica, r.sgl.rank = n.sgl.replica, n.sgl.rank
	}
}

// foldStep adds SGLang's span of one decoding step to those of its parent that
// came before: a request has a thousand of them.
func (b *Builder) foldStep(s *trace.Span) {
	k := [2]string{s.TraceID, s.ParentID}
	if n := b.steps[k]; n != nil {
		a, okA := s.Start.Get()
		z, okZ := s.End.Get()
		if okA && okZ && a > 0 && z >= a && z < horizon && z.Sub(a) <= longestSpan {
			n.start, n.end = trace.Some(min(a, n.start.Or(a))), trace.Some(max(z, n.end.Or(z)))
		}
		return
	}
	b.fill(&b.one, s)
	// Of which of them the rest is must not depend on their order.
	n := &b.one
	n.spanID, n.issues, n.attrs, n.marks = s.ParentID+"/steps", nil, n.attrs[:0], n.marks[:0]
	if !n.valid() {
		n.start, n.end, n.rawEnd = trace.Opt[trace.Time]{}, trace.Opt[trace.Time]{}, trace.Opt[trace.Time]{}
	}
	b.steps[k] = b.hold(n)
}

// readStages claims what SGLang's stages tell.
func readStages(r *trace.Request, n *node, children []*node, d durations, tokens bool) {
	children = slices.DeleteFunc(children, func(c *node) bool { return c.sgl == nil })
	lowest := map[string]int32{}
	for _, c := range children {
		if v, ok := lowest[c.sgl.stage]; !ok || c.sgl.rank < v {
			lowest[c.sgl.stage] = c.sgl.rank
		}
	}
	var arrival, queue, work, both, decode, transfer []stretch
	var retracts, resumes []trace.Time
	var queued trace.Instant // also of a wait of no length
	for _, c := range children {
		if c.sgl.rank != lowest[c.sgl.stage] || !c.valid() {
			continue // the span's own issue says what it lacks
		}
		s := stretch{c.start.Or(0), c.end.Or(0)}
		for _, m := range c.marks {
			retracts = append(retracts, m.at)
		}
		switch c.phase {
		case trace.Arrival:
			arrival = append(arrival, s)
		case trace.Queueing:
			earliest(&queued, s.from, trace.Measured)
			queue = append(queue, s)
		case trace.Prefill:
			resumes = append(resumes, s.from)
			work = append(work, s)
		case trace.Prefill | trace.Queueing:
			resumes = append(resumes, s.from)
			both = append(both, s)
		case trace.Decode:
			resumes = append(resumes, s.from)
			decode = append(decode, s)
		case trace.Transfer:
			transfer = append(transfer, s)
		}
	}
	if len(queue)+len(work)+len(both)+len(decode)+len(transfer) == 0 {
		if d.prefill.Present() || d.decode.Present() || d.inference.Present() {
			readSGLang(r, d, tokens)
			return
		}
		claimAll(r, trace.Arrival, trace.Measured, union(arrival))
		return
	}
	queue, work, both, decode, transfer = union(queue), union(work), union(both), union(decode), union(transfer)

	// From a retraction to the next forward pass it is back in the queue. What
	// is computed from there on is what decoding had to have anew.
	slices.Sort(retracts)
	slices.Sort(resumes)
	retracts, count := slices.Compact(retracts), 0
	var pushed []stretch
	for i := 0; count < len(retracts); count++ {
		t := retracts[count]
		for i < len(resumes) && resumes[i] <= t {
			i++
		}
		switch end, ok := r.Completed.Get(); {
		case i < len(resumes):
			pushed = append(pushed, stretch{t, resumes[i]})
		case ok && end > t:
			pushed = append(pushed, stretch{t, end}) // never resumed
		}
	}
	pushed = union(pushed)
	prompt := append(slices.Clone(work), both...)
	if len(prompt) > 0 {
		prompt = union(prompt)
		if done := prompt[0].to; len(retracts) > 0 && done <= retracts[0] {
			first := r.FirstToken.At // zero where not told
			anew := func(s stretch) bool { return s.from >= max(retracts[0], first) }
			for _, w := range []*[]stretch{&work, &both} {
				for _, s := range *w {
					if anew(s) {
						decode = append(decode, s)
					}
				}
				*w = slices.DeleteFunc(*w, anew)
			}
			decode = union(decode)
		}
	}
	rest := decode
	if len(decode) > 0 {
		var cuts []stretch
		for _, q := range append(slices.Clone(queue), transfer...) {
			if q.from > decode[0].from {
				cuts = append(cuts, q)
			}
		}
		rest = without(decode, union(append(cuts, pushed...)))
	}
	claimAll(r, trace.Queueing, trace.Measured, without(queue, pushed))
	claimAll(r, trace.Queueing|trace.Prefill, trace.Measured, without(both, union(append(slices.Clone(work), queue...))))
	claimAll(r, trace.Prefill, trace.Measured, work)
	claimAll(r, trace.Decode, trace.Measured, rest)
	claimAll(r, trace.Preempted, trace.Measured, pushed)
	claimAll(r, trace.Transfer, trace.Measured, transfer)
	if count > 0 {
		r.Preemptions = trace.Some(count)
	}

	begun := horizon
	for _, all := range [][]stretch{prompt, decode, transfer} {
		if len(all) > 0 {
			begun = min(begun, all[0].from)
		}
	}
	if queued.Present() && queued.At <= begun {
		r.Queued = queued
		if a, ok := r.Arrival.Get(); ok {
			claimAll(r, trace.Arrival, trace.Measured, []stretch{{a, r.Queued.At}})
		}
	} else {
		claimAll(r, trace.Arrival, trace.Measured, union(arrival))
	}
	switch {
	case len(work) > 0:
		r.Scheduled = trace.At(work[0].from, trace.Measured)
	case n.half == decodeHalf && len(decode) > 0:
		r.Scheduled = trace.At(decode[0].from, trace.Measured)
	}
	var last trace.Instant
	if len(prompt) > 0 && tokens {
		if done := prompt[0].to; n.half != decodeHalf && !r.FirstToken.Present() {
			r.FirstToken = trace.At(done, trace.Derived)
		}
		if r.Output.Or(0) == 1 && len(decode) == 0 {
			last = trace.At(prompt[0].to, trace.Derived)
		}
	}
	if len(rest) > 0 && tokens {
		last = trace.At(rest[len(rest)-1].to, trace.Derived)
	}
	if r.LastToken = last; last.Present() && n.half != prefillHalf {
		if end, ok := r.Completed.Get(); ok {
			claimAll(r, trace.Completion, trace.Measured, without([]stretch{{last.At, end}}, pushed))
		}
	}
	// Where the scheduler's stages stop short, the API server's figures may not.
	fill := durations{ttft: d.ttft, e2e: d.e2e}
	if len(prompt) == 0 && n.half == noHalf {
		fill.prefill = d.prefill
	}
	if len(decode) == 0 && r.Output.Or(0) != 1 && n.half == noHalf {
		fill.decode = d.decode
	}
	fillStages(r, fill)
	if b := r.Breakdown(); max(b.Outside, b.Conflict, b.Doubled) > max(sglSlack, tolerance(r)) {
		note(r, trace.Inconsistent, "stages claim %v outside the request's span or twice", b.Outside+b.Conflict+b.Doubled)
	}
}

// fillStages claims, of prefill and decode by the API server's figures, what no
// stage does.
func fillStages(r *trace.Request, d durations) {
	if !d.prefill.Present() && !d.decode.Present() {
		return
	}
	q := *r
	q.Intervals, q.Issues = nil, nil
	readDispatched(&q, d, true)
	var told []stretch
	for _, iv := range r.Intervals {
		told = append(told, stretch{iv.Start, iv.End})
	}
	told = union(told)
	for _, iv := range q.Intervals {
		claimAll(r, iv.Phase, iv.Basis, without([]stretch{{iv.Start, iv.End}}, told))
	}
}

// readSGLang claims what the attributes of the request's span tell.
func readSGLang(r *trace.Request, d durations, tokens bool) {
	from, to, ok := readDispatched(r, d, tokens)
	if !ok {
		return
	}
	claim := func(p trace.Phase, a, z trace.Time) {
		if z > a {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: trace.Derived, Start: a, End: z})
		}
	}
	if d.prefill.Present() && d.ttft.Present() {
		claim(trace.Arrival, r.Arrival.At, from)
	}
	if end, ok := r.Completed.Get(); ok && d.decode.Present() && d.e2e.Present() {
		claim(trace.Completion, to, end)
	}
}

// readDispatched claims prefill and inference as sets with the queue. It
// returns where they lie.
func readDispatched(r *trace.Request, d durations, tokens bool) (from, to trace.Time, ok bool) {
	const first = trace.Queueing | trace.Prefill
	start, ok := r.Arrival.Get()
	if !ok {
		return from, to, false
	}
	if t, ok := d.ttft.Get(); ok && tokens {
		r.FirstToken = trace.At(start.Add(t), trace.Measured)
	}
	p, okp := d.prefill.Get()
	c, okc := d.decode.Get()
	inf, oki := d.inference.Get()
	ttft, okt := d.ttft.Get()
	e2e, oke := d.e2e.Get()

	var chain piece
	switch {
	case okp && okc:
		chain = piece{{first, p}, {trace.Decode, c}}
	case okp:
		chain = piece{{first, p}}
	case okc:
		chain = piece{{trace.Decode, c}}
	case oki:
		chain = piece{{first | trace.Decode, inf}}
	default:
		return from, to, false
	}
	at := start
	switch {
	case okt && (okp || okc):
		at = start.Add(ttft - p)
	case oke && (okc || oki):
		at = start.Add(e2e - chain.length())
	}
	from, to = chain.place(r, start, at)
	setInstants(r, tokens)
	checkLength(r, chain)
	return from, to, true
}
