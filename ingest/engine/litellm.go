package engine

import "github.com/traceview/traceview/trace"

// LiteLLM's proxy writes, in its first generation (callback "otel"), "Received
// Proxy Server Request" around litellm_request around raw_gen_ai_request, since
// v1.81 with the call's attributes on the first; in its second, "chat MODEL"
// below the server's span. What is before the call is the proxy's own work:
// arrival. It has no queue.
//
// Where no engine's span is in the trace, the call is the request, with the time
// to the first chunk as the proxy saw it (second generation, streaming). Not
// told: all that the engine does. Some versions export a span twice with two
// ids: such a request counts twice.
func readLiteLLMSpan(n *node, s *trace.Span) {
	n.phase = 0
	n.outer = n.valid()
	if n.name == "raw_gen_ai_request" {
		return
	}
	readClientSpan(n, s)
	n.client.engine = liteLLM
}
