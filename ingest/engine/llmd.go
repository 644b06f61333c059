package engine

import (
	"strings"

	"github.com/traceview/traceview/trace"
)

// llm-d (llm-d-router v0.9.0-rc.2) writes spans of its gateway's endpoint picker
// and of the proxy beside each engine; vLLM's spans are below or beside them:
//
//	gateway.request                        the whole request
//	gateway.request_orchestration          flow control and scheduling: what no span
//	                                       below it explains is the wait for flow control   queueing
//	run_scheduler_profile, … (below it)    choosing an endpoint                             arrival
//	forward_request                        the proxy's whole request
//	prefill, decode, llm_d.pd_proxy.…      its calls to the two engines: which half is below;
//	                                       decode may be below prefill, which has ended then
//
// Without an engine's span the request is forward_request, else gateway.request:
// of its time no more is known than flow control's. llm_d.pd_proxy.true_ttft_ms
// is no TTFT (it ends where decode begins) and stays an attribute.
//
// Not told: all that the engines do; spans of nine requests in ten (its default
// sampler).

// llmdHalves are the proxy's names for its calls.
var llmdHalves = map[string]half{
	"prefill": prefillHalf, "llm_d.pd_proxy.prefill": prefillHalf,
	"decode": eitherHalf, "chunked_decode": eitherHalf, "llm_d.pd_proxy.decode": eitherHalf,
}

func readLLMDSpan(n *node, s *trace.Span) {
	n.phase = 0
	switch n.name {
	case "gateway.request", "forward_request":
		n.outer = n.valid()
		if n.engine == "" {
			n.engine, n.sample = llmd, ""
		}
	case "gateway.request_orchestration":
		n.gate = &gateSpan{phase: trace.Queueing, rest: true}
	default:
		// Every request has a decode call, a prefill call only where it was split.
		n.half = llmdHalves[n.name]
		n.outer = n.outer && n.half == noHalf
	}
}

// isLLMD reports whether a span is of llm-d: by name, or by its attributes.
func isLLMD(name string, attrs bool) bool {
	return name == "gateway.request" || name == "gateway.request_orchestration" || attrs && (name == "forward_request" || llmdHalves[name] != noHalf || strings.HasPrefix(name, "llm_d."))
}
