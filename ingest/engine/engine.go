// Package engine turns OpenTelemetry spans into requests. Which keys exist and
// who wrote them decides what a span means: the same gen_ai.latency.* key is
// another interval from another engine, so each engine has a table and a file
// of its own. [Engines] lists them.
//
// # What becomes a request
//
// A span that an engine writes for each request (by name, by its latency
// attributes, or by scheduler events), and any span with prefill or decode
// spans below it. Of nested ones the innermost counts. A trace without any
// gives its callers' spans of calls to a model, with what the caller saw; without
// those one request for each outermost server span, with its length alone.
// Client and server spans above a request give its arrival and end, as long as
// all requests below them are that one or samples of it; an HTTP server's span
// beside a request's, of the same process, is taken for one above it where no
// other was under way. A layer between caller and engine (Dynamo, llm-d, Ray
// Serve, LiteLLM, Envoy AI Gateway) is a request of its own only where nothing
// of an engine is below it; where its spans say that a request waits in front of
// the engine, that is queueing.
//
// Of a request that ran on a prefill and a decode engine, both engines' spans
// are one request: the first gives arrival and prefill, the second the rest,
// and the time in which the KV cache is on its way is transfer. If one of the
// two is missing, the other counts with a half-request issue.
//
// # Outcomes
//
// No end or no start: incomplete. Else a status, an error.type or a finish
// reason that speaks of abort or cancel, or an HTTP status of 499: aborted. An
// HTTP status of 4xx or 503 of a span below which no engine took anything up:
// rejected. Another error status (an HTTP status of 5xx and an error.type are one), of the span or
// of the outermost one used: error. No output tokens beside milestones that were never
// stamped (a phase below zero or far longer than the span): aborted, since
// vLLM writes that for requests that it dropped. All others are ok: vLLM sets
// no status.
//
// # Replicas
//
// Replica is the resource's service.instance.id, else k8s.pod.name, else
// host.name; of SGLang without these the scheduler's host and process, of Dynamo
// the worker's instance. vllm.process_id is no replica: one vLLM deployment may run several
// API servers before the same engine, each with a process of its own; it stays
// among the attributes. The SDK's default service name, unknown_service, counts
// as not in the data. A caller's span below which nothing was seen has neither
// service nor replica: they would be the caller's.
//
// # Attributes
//
// Scalar attributes of the span, of its resource and of the outer spans used
// become grouping keys; where a key repeats, the span wins over outer spans and
// these over the resource. What was read as a phase, a count or an id is not
// repeated. To keep prompts and answers out, a text is left out if a word of
// its key names content (prompt, message, content, input, output, body, text,
// …), if it is longer than 256 bytes, or if it has a line break; of a URL only
// the part before the query is kept. Arrays and maps are left out, and all
// beyond 128 a span.
package engine

import (
	"time"

	"github.com/traceview/traceview/trace"
)

// Engine says how a kind of span is recognised and read.
type Engine struct {
	Name     string // as in trace.Source.Engine
	Evidence string // what makes a span one of its
	Version  string // what the reading was checked against
	Missing  string // what its spans do not tell
}

// The names of the engines.
const (
	sglang     = "sglang"
	vllmV1     = "vllm-v1"
	vllmV0     = "vllm-v0"
	vllm       = "vllm"
	vllmOrTRT  = "vllm-or-tensorrt-llm"
	latency    = "latency-attributes"
	events     = "scheduler-events"
	phaseSpans = "phase-spans"
	unknown    = "unknown"

	triton       = "triton"
	tensorrt     = "tensorrt-llm"
	tgi          = "text-generation-inference"
	dynamo       = "dynamo"
	llmd         = "llm-d"
	rayServe     = "ray-serve"
	liteLLM      = "litellm"
	envoyGateway = "envoy-ai-gateway"
	genaiClient  = "genai-client"
)

// Engines lists what is recognised, in the order in which it is tried.
var Engines = []Engine{
	{sglang, `scope "sglang server", module "sglang::request" or service.name "sglang"`,
		"observability/trace.py and req_time_stats.py of 2026, tracing/trace.py of 2025",
		"where its schedulers' stages are missing (several tokenizer workers): queueing apart from prefill, preemption"},
	{vllmV1, `llm_request with gen_ai.latency.time_in_model_prefill, _decode or _inference, or vLLM's newer scope`,
		"v0.10.2 to the tree of 2026-09",
		"the model, preemption (inside prefill or decode), how front-end time divides into before and after, aborted requests; where prefill and decode run on two engines and the router passes no trace context on, that their two traces are one request"},
	{vllmV0, `llm_request with gen_ai.latency.time_in_queue or time_to_first_token, and scope "vllm.llm_engine" or a V0-only key`,
		"v0.5.1 to v0.10.1",
		"preemption (inside decode), time before the engine's loop took the request, aborted requests"},
	{vllm, "llm_request in a vLLM scope without phases", "v0.5.1 to the tree of 2026-09",
		"all phases"},
	{tensorrt, `llm_request in the scope "trt.llm"`, "llmapi/otel_tracing.py of 2025",
		"when exactly it arrived (the start is the end less e2e), the model, what came after the last token; −1 stands for absent"},
	{vllmOrTRT, "llm_request with no more than queue, first token and e2e, and no vLLM scope", "vLLM v0.10.1, TensorRT-LLM 1.0",
		"which of the two wrote it; prefill and decode are derived; −1 stands for absent"},
	{latency, "gen_ai.latency.* on a span of another name and scope", "semantic-conventions-genai#408",
		"who wrote it: prefill may contain queueing"},
	{events, "events QUEUED and SCHEDULED on a span (also as journey.QUEUED)", "vLLM forks of 2026",
		"what the events leave open"},
	{triton, `triton.model_name on a span, with compute below it`, "2.73.0dev, mode=opentelemetry",
		"the first token, tokens, prefill apart from decode; by default it traces one request in a thousand"},
	{tgi, `total_time and queue_time as text on a router's span (generate, chat_completions, …), or service.name "text-generation-inference…"`, "3.3.6-dev0",
		"the model, the prompt's tokens, the first token, prefill apart from decode, pauses while others' prompts are computed"},
	{dynamo, "handle_payload with component or instance_id, below http-request; its engines' own spans count where they are there", "docs of 2026",
		"without an engine's span: the queue apart from prefill; without ttft_ms prefill apart from decode"},
	{llmd, "gateway.request, or forward_request with llm_d.*; vLLM's spans count where they are there", "llm-d-router v0.9.0-rc.2",
		"all that the engines do; by default it samples one request in ten"},
	{rayServe, "proxy_http_request; vLLM's spans count where they are there", "docs of 2.5x", "all that the replica does"},
	{phaseSpans, "prefill or decode spans below a server or internal span", "vLLM proposals and plugins of 2026",
		"what lies between the phase spans"},
	{liteLLM, "litellm_request, Received Proxy Server Request, or a call with litellm.call_id, where no engine's span is", "v1.81 and LITELLM_OTEL_V2",
		"phases: it sees the call from outside"},
	{envoyGateway, `a call in the scope "envoyproxy/ai-gateway", where no engine's span is`, "after v1.1.0",
		"phases, and the first token (its event comes with the last)"},
	{genaiClient, "gen_ai.operation.name chat, openinference.span.kind LLM, llm.request.type or ai.operationId, where no engine's span is", "semantic-conventions-genai of 2026",
		"phases: arrival, first token and end are what the caller saw"},
	{unknown, "a trace with none of these", "", "everything but arrival and completion"},
}

// Options are the limits of a [Builder]. The zero value works.
type Options struct {
	MaxOpen int // spans held back until Finish; 0: 4 million
	// Memory is how many bytes the spans that are held back may take; beyond
	// it they wait in a temporary file. What names their traces does not
	// count, and stays. 0: they may take any number.
	Memory int64
}

// slack is how much longer than its span a duration may be before it is held
// for garbage: the span's end and the engine's stamps come from two clocks.
const slack = 50e6

// rounding is what float seconds and float start stamps may be off by.
const rounding = 1000

// tolerance is rounding, and what the steps of r's clock may be off by.
func tolerance(r *trace.Request) time.Duration {
	if r.Resolution > 1 {
		return rounding + 2*r.Resolution
	}
	return rounding
}

// longest is the longest duration believed of a span without an end.
const longest = 24 * 3600e9

// longestSpan is the longest that a span is believed to last. A start that was
// never set, or set in seconds, makes spans of half a century: they would
// stretch the window over it, and some two hundred of them overflow a sum.
const longestSpan = 366 * 24 * 3600e9

// century is the year 2000: no trace is older.
const century trace.Time = 946684800e9

// maxCount is the largest number of tokens that one request is believed to
// have: sums over any number of requests fit.
const maxCount = 1e9

// horizon bounds instants so that no sum of one and durations overflows.
const horizon trace.Time = 1 << 62
