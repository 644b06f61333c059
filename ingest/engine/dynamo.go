package engine

import (
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// NVIDIA Dynamo (docs/observability/tracing.md of 2026) writes spans of its
// frontend and of its workers' envelopes; the engines' own spans are below:
//
//	http-request                       the whole request                  arrival, end
//	kv_router.*, router.route_request  choosing a worker, waiting for one to be free
//	                                   until handle_payload begins        arrival|queueing
//	prefill_routing                    the choice, and the prefill call   likewise
//	handle_payload                     on a worker: its queue and its work
//
// component on handle_payload, and phase on the route, say which of the two
// engines a worker is. Where no engine's span is below, handle_payload is the
// request: queueing|prefill before the first token (ttft_ms of http-request) and
// decode after it; on a decode worker queueing|transfer|prefill before it.
//
// Not told without an engine's span: its queue apart from prefill, preemption,
// and without ttft_ms, which newer frontends write, prefill apart from decode.

// dynamoSpan is what only Dynamo's spans have.
type dynamoSpan struct {
	payload bool
	worker  string                   // the instance that a payload is on
	ttft    trace.Opt[time.Duration] // from the start of http-request
}

func readDynamoSpan(n *node, s *trace.Span) {
	if n.name == "http-request" || n.name == "handle_payload" {
		known := false
		for _, key := range []string{"uri", "x_request_id", "ttft_ms", "component", "instance_id"} {
			_, ok := s.Attr(key)
			known = known || ok
		}
		if !known {
			return // others use these names too
		}
	}
	x := &dynamoSpan{}
	n.dynamo, n.phase, n.outer = x, 0, n.valid()
	switch {
	case n.name == "http-request":
		if v, ok := s.Attr("ttft_ms"); ok {
			ms, okF := v.Float()
			if i, ok := v.Int(); ok {
				ms, okF = float64(i), true
			}
			if d, err := units.FromSeconds(ms / 1e3); okF && err == nil && d > 0 {
				x.ttft = trace.Some(d)
			}
		}
	case n.name == "handle_payload":
		x.payload = true
		if v, ok := s.Attr("instance_id"); ok && len(v.String()) <= maxText {
			x.worker = v.String()
		}
		n.attrs = dropAttrs(n.attrs, "trace_id", "parent_id")
		if n.engine == "" {
			n.engine, n.sample = dynamo, ""
		}
		switch v, _ := s.Attr("component"); v.String() {
		case "prefill":
			n.half = prefillHalf
		case "decode":
			n.half = decodeHalf
		case "backend":
			n.half = eitherHalf
		}
	case n.name == "prefill_routing":
		n.half, n.gate = prefillHalf, &gateSpan{phase: trace.Arrival | trace.Queueing}
	case strings.HasSuffix(n.name, ".route_request"):
		n.gate = &gateSpan{phase: trace.Arrival | trace.Queueing}
		switch v, _ := s.Attr("phase"); v.String() {
		case "Prefill":
			n.half = prefillHalf
		case "Decode":
			n.half = eitherHalf
		}
	default: // kv_router.…
		n.outer, n.gate = false, &gateSpan{phase: trace.Arrival | trace.Queueing}
	}
}

// onWorker sets r's replica from a worker's envelope, where nothing else does.
func (b *Builder) onWorker(r *trace.Request, n *node) {
	if n.dynamo != nil && n.dynamo.worker != "" && r.Replica == "" {
		r.Replica = b.intern(n.dynamo.worker)
	}
}

// payload is when a worker had the request i: the start of its envelope, at or
// above i; horizon if there is none.
func payload(nodes []*node, links []link, i int32) trace.Time {
	for steps := 0; i >= 0 && steps < maxClimb; i, steps = links[i].parent, steps+1 {
		if d := nodes[i].dynamo; d != nil && d.payload {
			return nodes[i].start.Or(horizon)
		}
	}
	return horizon
}

// readDynamo claims what a worker's envelope tells, with the first token where
// the frontend has it.
func readDynamo(r *trace.Request, n *node, outers []*node) {
	a, okA := r.Arrival.Get()
	z, okZ := r.Completed.Get()
	if !okA || !okZ {
		return
	}
	before := trace.Queueing | trace.Prefill
	switch n.half {
	case prefillHalf:
		claimAll(r, before, trace.Measured, []stretch{{a, z}})
		return
	case decodeHalf:
		before |= trace.Transfer
	}
	for _, o := range outers {
		if o.dynamo == nil {
			continue
		}
		if ttft, ok := o.dynamo.ttft.Get(); ok {
			first := o.start.Or(0).Add(ttft)
			if first < a || first > z {
				break // another clock, or another request
			}
			r.FirstToken, r.LastToken = trace.At(first, trace.Measured), trace.At(z, trace.Derived)
			claimAll(r, before, trace.Derived, []stretch{{a, first}})
			claimAll(r, trace.Decode, trace.Derived, []stretch{{first, z}})
			return
		}
	}
	claimAll(r, before|trace.Decode, trace.Measured, []stretch{{a, z}})
}
