package engine

import (
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// Client-side spans of a call to a model: OpenTelemetry's conventions for
// generative AI (semantic-conventions-genai of 2026), OpenInference, OpenLLMetry,
// OpenLIT and Vercel's AI SDK. They are requests only where the trace has no
// span of an engine or a gateway, and tell what the caller saw: arrival is when
// it sent, the first token when the first chunk came, and all of the time is
// unattributed: no phase of an engine is known.
//
//	written by     recognised by                                   first token
//	OpenTelemetry  gen_ai.operation.name chat, text_completion, …  gen_ai.response.time_to_first_chunk, s
//	OpenInference  openinference.span.kind LLM                     event "First Token Stream Event"
//	OpenLLMetry    llm.request.type chat, completion               first event llm.content.completion.chunk
//	OpenLIT        as OpenTelemetry                                gen_ai.server.time_to_first_token (or .ttft), s
//	AI SDK         ai.operationId ….doStream, .doGenerate          ai.response.msToFirstChunk, ms
//
// Calls of tools, agents and embeddings are none. Of nested ones the innermost
// counts. Not told: everything between sending and the answer.

// clientSpan is what only client-side spans have.
type clientSpan struct {
	engine string                   // who wrote it, as in Engines
	ttft   trace.Opt[time.Duration] // as the client saw it
}

// clientCalls are the values that make a call of a span.
var clientCalls = map[string]map[string]bool{
	"gen_ai.operation.name":   {"chat": true, "text_completion": true, "generate_content": true, "completion": true, "generate": true},
	"openinference.span.kind": {"LLM": true},
	"llm.request.type":        {"chat": true, "completion": true},
	"ai.operationId":          {"ai.streamText.doStream": true, "ai.generateText.doGenerate": true, "ai.streamObject.doStream": true, "ai.generateObject.doGenerate": true},
}

// chunkEvents are the names of events that come with the first chunk, in lower
// case. Some come with each.
var chunkEvents = map[string]bool{
	"first token stream event": true, "llm.content.completion.chunk": true, "gen_ai.content.chunk": true,
	"first_token": true, "llm.first_token": true, "ai.stream.firstchunk": true,
}

func readClientSpan(n *node, s *trace.Span) {
	x := &clientSpan{engine: genaiClient}
	n.client = x
	n.outer = n.valid()
	for _, k := range []struct {
		key  string
		unit float64
	}{
		{"gen_ai.response.time_to_first_chunk", 1}, {"gen_ai.server.time_to_first_token", 1}, {"gen_ai.server.ttft", 1},
		{"ai.response.msToFirstChunk", 1e-3},
	} {
		v, ok := s.Attr(k.key)
		if !ok {
			continue
		}
		f, ok := v.Float()
		if i, isInt := v.Int(); isInt {
			f, ok = float64(i), true
		}
		if d, err := units.FromSeconds(f * k.unit); ok && err == nil && d > 0 {
			x.ttft = trace.Some(d)
			break
		}
	}
	if _, ok := s.Attr("litellm.call_id"); ok {
		x.engine = liteLLM
	}
	readEnvoySpan(n, s)
	if a, ok := n.start.Get(); ok && !x.ttft.Present() && x.engine != envoyGateway {
		for _, e := range s.Events {
			if at, ok := e.At.Get(); ok && at > a && at < horizon && len(e.Name) <= 64 && chunkEvents[strings.ToLower(e.Name)] {
				x.ttft = trace.Some(min(at.Sub(a), x.ttft.Or(at.Sub(a))))
			}
		}
	}
}

// readClient sets the first token as the client saw it.
func readClient(r *trace.Request, x *clientSpan) {
	r.Source.Engine = x.engine
	ttft, ok := x.ttft.Get()
	if !ok || !r.Arrival.Present() {
		return
	}
	if e2e, ok := r.E2E().Get(); ok && ttft > e2e+tolerance(r) {
		note(r, trace.PhaseTooLong, "the time to the first chunk is %s, the span %s", units.Duration(ttft, 0), units.Duration(e2e, 0))
		return
	}
	r.Reported.TTFT = trace.Some(ttft)
	r.FirstToken = trace.At(r.Arrival.At.Add(ttft), trace.Measured)
}
