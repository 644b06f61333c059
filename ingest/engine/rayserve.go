package engine

import "github.com/traceview/traceview/trace"

// Ray Serve (docs of 2.5x, not its source) writes proxy_http_request, below it
// proxy_route_to_replica, and below that a span of the replica; the LLM's work
// is vLLM's own spans. From the route's start to the replica's the request waits
// in a handle's queue:
//
//	proxy_http_request      arrival, end
//	proxy_route_to_replica  until the first span below it   queueing
//
// Where that first span is the engine's own, its front end is in that time too,
// and it is arrival|queueing. Not told without vLLM's spans: all that the
// replica does.
func readRaySpan(n *node, _ *trace.Span) {
	n.outer = n.valid()
	if n.name == "proxy_route_to_replica" {
		n.gate = &gateSpan{phase: trace.Queueing, first: true}
		return
	}
	if n.engine == "" {
		n.engine, n.sample = rayServe, ""
	}
}
