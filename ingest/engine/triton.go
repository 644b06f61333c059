package engine

import (
	"strings"

	"github.com/traceview/traceview/trace"
)

// Triton Inference Server with --trace-config mode=opentelemetry (read at
// 2.73.0dev, src/tracer.cc) writes InferRequest around the request, a span named
// as the model below it, and below that compute; the times are events:
//
//	HTTP_RECV_START, GRPC_WAITREAD_END … REQUEST_START   InferRequest   arrival
//	REQUEST_START … QUEUE_START                          model          arrival
//	QUEUE_START … COMPUTE_START (compute's)              model          queueing
//	COMPUTE_START … COMPUTE_END                          compute        prefill|decode
//	COMPUTE_END … REQUEST_END, *_SEND_END                               completion
//
// The members of an ensemble, and what a model calls, are spans with a parent's
// id: they are parts of that request, and what one of several computes may be
// the front end's work too: arrival|prefill|decode|completion. Where one waits
// for its turn while another computes, the request waits. A model that never
// came to compute was cancelled in its queue.
//
// Not told: the first token, tokens, prefill apart from decode. By default one
// request in a thousand is traced. InferRequest begins when that is decided: an
// event before it counts.

const tritonScope = "triton-server"

// tritonSpan is what only Triton's spans have.
type tritonSpan struct {
	member         bool // of an ensemble, or called by a model
	model, request string
	queued         trace.Opt[trace.Time]
	begins, ends   trace.Opt[trace.Time] // computing
	answered       trace.Opt[trace.Time]
}

func readTritonSpan(n *node, s *trace.Span) {
	x := &tritonSpan{}
	events := map[string]*trace.Opt[trace.Time]{
		"QUEUE_START": &x.queued, "COMPUTE_START": &x.begins, "COMPUTE_END": &x.ends, "REQUEST_END": &x.answered,
	}
	var early, late trace.Opt[trace.Time]
	for _, e := range s.Events {
		at, ok := e.At.Get()
		if !ok || at <= 0 || at >= horizon {
			continue
		}
		switch to := events[e.Name]; {
		case to != nil:
			*to = trace.Some(at)
		case e.Name == "HTTP_RECV_START" || e.Name == "GRPC_WAITREAD_END":
			early = trace.Some(min(at, early.Or(at)))
		case strings.HasSuffix(e.Name, "_SEND_END"):
			late = trace.Some(max(at, late.Or(at)))
		}
	}
	name, model := s.Attr("triton.model_name")
	switch {
	case model:
		n.triton = x
		if t := name.String(); len(t) <= maxText {
			x.model = t
		}
		if v, ok := s.Attr("triton.request_id"); ok && len(v.String()) <= maxText {
			x.request = v.String()
		}
		n.attrs = dropAttrs(n.attrs, "triton.model_name", "triton.request_id", "triton.trace_id", "triton.trace_parent_id")
		if v, ok := s.Attr("triton.trace_parent_id"); ok && v.String() != "0" && v.String() != "" {
			x.member, n.engine, n.phase = true, "", trace.Queueing
			return
		}
		n.engine = triton
	case s.Name == "compute" && (x.begins.Present() || s.Scope == tritonScope):
		n.triton, n.engine, n.phase = x, "", trace.Prefill|trace.Decode
	case s.Name == "InferRequest":
		// The span is as long as what is known of it.
		if a, ok := n.start.Get(); ok && early.Present() {
			n.start = trace.Some(min(a, early.Or(a)))
		}
		if z, ok := n.end.Get(); ok && late.Present() {
			n.end = trace.Some(max(z, late.Or(z)))
		}
		n.phase = 0
	}
}

// readTriton claims what the model's span n and those below it tell.
func readTriton(r *trace.Request, n *node, children []*node) {
	r.Model, r.ID = n.triton.model, n.triton.request
	begins := map[string]trace.Time{} // of the computing below each model's span
	var work []stretch
	members := 0
	for _, c := range children {
		switch {
		case c.triton == nil:
		case c.triton.member:
			members++
		default:
			a, okA := c.triton.begins.Get()
			z, okZ := c.triton.ends.Get()
			if !okA {
				a, okA = c.start.Get()
			}
			if !okZ {
				z, okZ = c.end.Get()
			}
			if !okA {
				continue
			}
			if t, ok := begins[c.parentID]; !ok || a < t {
				begins[c.parentID] = a
			}
			if okZ && z > a {
				work = append(work, stretch{a, z})
			}
		}
	}
	var queue []stretch
	waits := func(m *node) {
		from, ok := m.triton.queued.Get()
		if !ok {
			return
		}
		to, ok := begins[m.spanID]
		if !ok {
			if m == n && members > 0 {
				return // an ensemble queues through its members
			}
			if to, ok = m.triton.answered.Get(); !ok {
				if to, ok = m.end.Get(); !ok {
					return
				}
			}
			m.aborted = true
		}
		if to > from {
			queue = append(queue, stretch{from, to})
		}
		earliest(&r.Queued, from, trace.Measured)
	}
	waits(n)
	for _, c := range children {
		if c.triton != nil && c.triton.member {
			waits(c)
			n.aborted = n.aborted || c.aborted
		}
	}
	queue, work = union(queue), union(work)
	phase := trace.Prefill | trace.Decode
	if members > 1 {
		phase |= trace.Arrival | trace.Completion
	}
	claimAll(r, trace.Queueing, trace.Measured, queue)
	claimAll(r, phase, trace.Measured, without(work, queue))
	if len(work) > 0 {
		r.Scheduled = trace.At(work[0].from, trace.Measured)
	}
	if a, ok := r.Arrival.Get(); ok && r.Queued.Present() {
		claimAll(r, trace.Arrival, trace.Measured, []stretch{{a, r.Queued.At}})
	}
	if z, ok := r.Completed.Get(); ok && len(work) > 0 {
		claimAll(r, trace.Completion, trace.Measured, without([]stretch{{work[len(work)-1].to, z}}, queue))
	}
	if b := r.Breakdown(); max(b.Outside, b.Conflict, b.Doubled) > tolerance(r) {
		note(r, trace.Inconsistent, "events claim %v outside the span or twice", b.Outside+b.Conflict+b.Doubled)
	}
}
