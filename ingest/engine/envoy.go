package engine

import (
	"time"

	"github.com/traceview/traceview/trace"
)

// Envoy AI Gateway (after v1.1.0, internal/tracing) writes one span for a call,
// ChatCompletion, Completion, Message, …, by OpenInference's conventions or
// OpenTelemetry's. It is the gateway's: around an engine's span it gives arrival
// and end, without one it is the request. Its event "First Token Stream Event"
// is written when all chunks have come, so that it is no first token. Not told:
// the first token, and all that the engine does.
const envoyScope = "envoyproxy/ai-gateway"

func readEnvoySpan(n *node, s *trace.Span) {
	if s.Scope == envoyScope {
		n.client.engine, n.client.ttft = envoyGateway, trace.Opt[time.Duration]{}
	}
}
