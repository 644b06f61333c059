package engine

import (
	"hash/maphash"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// node is what is kept of a span: no prompts, no events but milestones.
type node struct {
	traceID, spanID, parentID string
	name                      string
	kind                      trace.SpanKind
	scope                     string
	res                       *resource
	start, end                trace.Opt[trace.Time] // absent where the source's are not believable
	rawEnd                    trace.Opt[trace.Time] // of an end that is not
	failed, aborted, refused  bool                  // by the span's status and what it answered
	attrs                     []attr                // with a meaning, or grouping keys
	marks                     []mark
	format                    string
	step                      time.Duration // of its clock, at least 1 ns
	untyped                   bool          // all its values are text
	pos                       trace.Pos
	issues                    []trace.Issue

	engine string      // of a request span; else empty
	sample string      // of a request span: its id without the sample's number
	phase  trace.Phase // of a phase span; else empty
	outer  bool        // can give arrival and completion: HTTP, RPC or a gateway
	half   half        // which of a request's two engines it speaks for
	gate   *gateSpan   // of a span in front of the engine on which a request may wait
	apart  bool        // it is no request by itself: a batch, a cache's own work
	sgl    *sglSpan    // these: what only that writer's spans have
	triton *tritonSpan
	tgi    *tgiSpan
	dynamo *dynamoSpan
	client *clientSpan
}

// attr is an attribute and its meaning, if it has one.
type attr struct {
	trace.Attr
	field field
}

func (n *node) valid() bool { return n.start.Present() && n.end.Present() }

// startup are the spans that vLLM writes once as it starts.
var startup = map[string]bool{
	"Overall Loading": true, "API server setup": true, "EngineCoreProc init": true, "AsyncMPClient init": true,
	"SyncMPClient init": true, "Prepare model": true, "Executor init": true, "Worker init": true, "Init device": true,
	"Load model": true, "Load weights": true, "Initialize model": true, "Download weights - HF": true,
	"Loading (GPU)": true, "Loading (CPU)": true, "Warmup (GPU)": true, "Warmup (CPU)": true, "Capture model": true,
	"Allocate KV cache": true, "Compile graph": true, "Inductor compilation": true, "Dynamo bytecode transform": true,
	"CuTeDSL warmup": true, "DeepGemm warmup": true, "DeepSeek V4 mHC warmup": true, "MiniMax M3 MSA warmup": true,
}

// isStartup reports whether s is such a span: by its code.* attributes, and by
// its name or by vLLM's scope.
func isStartup(s *trace.Span) bool {
	if s.Name == "llm_request" || !slices.ContainsFunc(s.Attrs, func(a trace.Attr) bool { return strings.HasPrefix(a.Key, "code.") }) {
		return false
	}
	return startup[s.Name] || strings.HasPrefix(s.Scope, "vllm.")
}

// fill makes n of s. Slices that n has are used again.
func (b *Builder) fill(n *node, s *trace.Span) {
	*n = node{
		traceID: s.TraceID, spanID: s.SpanID, parentID: s.ParentID,
		name: s.Name, kind: s.Kind, scope: s.Scope, res: b.resource(s.Resource),
		failed: s.Status == trace.StatusError, format: s.Format, step: max(1, s.Step), untyped: s.Untyped, pos: s.Pos, issues: s.Issues,
		attrs: n.attrs[:0], marks: n.marks[:0],
	}
	if len(n.name) <= maxText {
		n.name = b.intern(n.name)
	}
	n.aborted = n.failed && saysAborted(s.StatusMessage)
	odd := func(code trace.Code, format string, args ...any) {
		n.issues = append(n.issues[:len(n.issues):len(n.issues)], trace.NewIssue(code, n.pos, format, args...))
	}
	sane := func(o trace.Opt[trace.Time], what string) trace.Opt[trace.Time] {
		if t, ok := o.Get(); ok && (t <= 0 || t >= horizon) {
			odd(trace.TimeOutOfRange, "%s is %d ns since the epoch", what, t)
			return trace.Opt[trace.Time]{}
		}
		return o
	}
	n.start, n.end = sane(s.Start, "the start"), sane(s.End, "the end")
	if a, ok := n.start.Get(); ok {
		if z, ok := n.end.Get(); ok && z < a {
			odd(trace.EndBeforeStart, "ends %v before it starts", a.Sub(z))
			n.rawEnd, n.end = n.end, trace.Opt[trace.Time]{}
		} else if ok && z.Sub(a) > longestSpan {
			if a < century && z >= century {
				odd(trace.TimeOutOfRange, "starts %v before it ends: its start is not believed", z.Sub(a))
				n.start = trace.Opt[trace.Time]{}
			} else {
				odd(trace.TimeOutOfRange, "ends %v after it starts: its end is not believed", z.Sub(a))
				n.rawEnd, n.end = n.end, trace.Opt[trace.Time]{}
			}
		} else if !ok {
			odd(trace.MissingEnd, "has no end")
		}
	} else {
		odd(trace.MissingStart, "has no start")
	}

	groups := 0
	rpc, proxied, sgl := false, false, n.res.sglang || s.Scope == sglangScope
	var meaning [fieldCount]bool
	v0Only, tri, call := false, false, false
	for _, a := range s.Attrs {
		switch a.Key {
		case "http.response.status_code", "http.status_code":
			// 499: nginx's word for a caller that left. Other refusals are the
			// caller's fault, or 429 and 503 for want of room.
			switch code := a.Value.String(); {
			case code == "499":
				n.failed, n.aborted = true, true
			case code == "503", len(code) == 3 && code[0] == '4':
				n.failed, n.refused = true, true
			case len(code) == 3 && code[0] == '5':
				n.failed = true
			}
		case "error.type":
			// It stands where the operation ended in an error, also where whoever
			// wrote it left the status unset.
			if why := a.Value.String(); why != "" {
				n.failed, n.aborted = true, n.aborted || saysAborted(why)
			}
		}
		if k := keys[a.Key]; k != fieldNone {
			// Lists of attributes are told of here, objects by their container.
			if meaning[k] && slices.ContainsFunc(n.attrs, func(b attr) bool { return b.Key == a.Key && b.Value != a.Value }) &&
				!slices.ContainsFunc(n.issues, func(is trace.Issue) bool { return is.Code == trace.DuplicateKey }) {
				odd(trace.DuplicateKey, "the attribute %s stands twice: the last was used", a.Key)
			}
			meaning[k] = meaning[k] || a.Value.Kind() != trace.ValueNone
			if t, ok := a.Value.Text(); (!ok || len(t) <= maxText) && (a.Value.Kind() != trace.ValueJSON || k == fieldFinish) {
				n.attrs = append(n.attrs, attr{a, k})
			}
			continue
		}
		switch a.Key {
		case "gen_ai.latency.time_in_scheduler", "gen_ai.latency.time_in_model_forward",
			"gen_ai.latency.time_in_model_execute", "gen_ai.usage.num_sequences":
			v0Only = true
		case "module":
			t, _ := a.Value.Text()
			sgl = sgl || t == "sglang::request"
		case "gen_ai.operation.name", "openinference.span.kind", "llm.request.type", "ai.operationId":
			call = call || clientCalls[a.Key][a.Value.String()]
		case "triton.model_name":
			tri = true
		}
		rpc = rpc || strings.HasPrefix(a.Key, "http.") || strings.HasPrefix(a.Key, "url.") || strings.HasPrefix(a.Key, "rpc.")
		proxied = proxied || strings.HasPrefix(a.Key, "llm_d.")
		if groups == maxAttrs {
			continue
		}
		if g, ok := b.group(a); ok {
			groups++
			n.attrs = append(n.attrs, attr{g, fieldNone})
		}
	}
	for _, e := range s.Events {
		if m := milestoneOf(e.Name); m != 0 {
			if at, ok := sane(e.At, "an event").Get(); ok {
				n.marks = append(n.marks, mark{at, m})
			}
		}
	}
	if n.engine = engineOf(n, &meaning, sgl, v0Only); n.engine != "" {
		n.sample = sampled(n)
	}
	n.outer = n.valid() && (n.kind == trace.KindServer || n.kind == trace.KindClient || rpc || isHTTPName(n.name))
	switch {
	case n.name == "llm_request":
		return
	case sgl:
		b.readSGLangSpan(n, s)
		return
	case tri:
		readTritonSpan(n, s)
		return
	case isLLMD(n.name, proxied):
		// The proxy names its own stages prefill and decode: they hold the
		// engines' queues too.
		readLLMDSpan(n, s)
		return
	case n.scope == lmcacheScope:
		n.apart = true
		return
	case n.engine == "" && !proxied:
		n.phase = phaseNames[strings.ToLower(n.name)]
	}
	switch read := byName[n.name]; {
	case read != nil:
		read(n, s)
	case strings.HasPrefix(n.name, "kv_router."):
		readDynamoSpan(n, s)
	case call && n.engine == "":
		readClientSpan(n, s)
	}
}

// lmcacheScope is of LMCache's server, which writes mp.store, mp.retrieve and
// mp.lookup_prefetch in traces of their own.
const lmcacheScope = "lmcache_mp.server"

// byName are the readers of spans that have one name with all who write them.
var byName = map[string]func(*node, *trace.Span){
	"http-request": readDynamoSpan, "handle_payload": readDynamoSpan, "prefill_routing": readDynamoSpan, "router.route_request": readDynamoSpan,
	"proxy_http_request": readRaySpan, "proxy_route_to_replica": readRaySpan,
	"Received Proxy Server Request": readLiteLLMSpan, "litellm_request": readLiteLLMSpan, "raw_gen_ai_request": readLiteLLMSpan,
	"InferRequest": readTritonSpan, "compute": readTritonSpan,
	"generate": readTGISpan, "generate_stream": readTGISpan, "completions": readTGISpan, "chat_completions": readTGISpan,
	"compat_generate": readTGISpan, "vertex_compatibility": readTGISpan, "sagemaker_compatibility": readTGISpan, "batch": readTGISpan,
}

// engineOf recognises the span of a request by the evidence of [Engines];
// empty if it is none.
func engineOf(n *node, has *[fieldCount]bool, sgl, v0Only bool) string {
	split := has[fieldPrefill] || has[fieldDecode] || has[fieldInference]
	first := has[fieldQueue] || has[fieldTTFT]
	anyLatency := split || first || has[fieldE2E]
	newScope := n.res.vllm || n.scope == "vllm.tracing.otel"
	switch {
	case sgl && (anyLatency || strings.Contains(n.name, "Req ")):
		return sglang
	case n.name == "llm_request":
		switch ours := newScope || strings.HasPrefix(n.scope, "vllm"); {
		case split, anyLatency && newScope:
			return vllmV1
		case n.scope == tensorrtScope:
			return tensorrt
		case first && (ours || v0Only):
			return vllmV0
		case ours || v0Only:
			return vllm
		}
		return vllmOrTRT
	case anyLatency:
		return latency
	case slices.ContainsFunc(n.marks, func(m mark) bool { return m.what == queuedMark || m.what == scheduledMark }):
		return events
	}
	return ""
}

// alone reports whether the span tells all that its trace can tell of the
// request: nothing above it, its latencies on it, and no spans of stages below.
func (n *node) alone() bool {
	return n.parentID == "" && n.engine != "" && n.engine != sglang && n.hasLatency() || n.tgi != nil && n.parentID == "" && n.tgi.queue.Present()
}

// hasLatency reports whether any latency attribute is on the span.
func (n *node) hasLatency() bool {
	return slices.ContainsFunc(n.attrs, func(a attr) bool { return a.field >= fieldQueue && a.field <= fieldInference })
}

var methods = []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"}

// isHTTPName recognises names such as "POST /v1/completions".
func isHTTPName(name string) bool {
	m, path, ok := strings.Cut(name, " ")
	return ok && strings.HasPrefix(path, "/") && slices.Contains(methods, m)
}

// saysAborted reports whether a status or a finish reason speaks of a caller
// that left.
func saysAborted(s string) bool {
	s = strings.ToLower(s)
	return strings.Contains(s, "abort") || strings.Contains(s, "cancel")
}

// A stamp tells a span from others with its ids.
type stamp struct {
	start    trace.Time
	request  uint64 // of the request id; 0: none
	content  uint64
	streamed bool // its request was yielded when it came
}

// key is the hash of a span's ids.
type key [2]uint64

// ledger remembers the stamps of spans: of the latest limit spans at least and
// of twice as many at most.
type ledger struct {
	limit    int
	seeds    [2]maphash.Seed
	cur, old map[key]stamp
}

func newLedger(limit int) ledger {
	return ledger{limit: limit, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, cur: map[key]stamp{}}
}

func (l *ledger) get(k key) (stamp, bool) {
	p, ok := l.cur[k]
	if !ok {
		p, ok = l.old[k]
	}
	return p, ok
}

func (l *ledger) put(k key, p stamp) {
	if len(l.cur) >= l.limit {
		l.old, l.cur = l.cur, map[key]stamp{}
	}
	l.cur[k] = p
}

func (l *ledger) key(traceID, spanID string) key {
	type ids struct{ trace, span string }
	v := ids{traceID, spanID}
	return key{maphash.Comparable(l.seeds[0], v), maphash.Comparable(l.seeds[1], v)}
}

// stamp takes everything that a span says of itself; the order of its
// attributes does not count.
func (l *ledger) stamp(s *trace.Span) stamp {
	seed := l.seeds[0]
	var p stamp
	p.start, _ = s.Start.Get()
	type head struct {
		parent, name, scope, message string
		kind                         trace.SpanKind
		status                       trace.StatusCode
		start, end                   trace.Opt[trace.Time]
	}
	sum := maphash.Comparable(seed, head{s.ParentID, s.Name, s.Scope, s.StatusMessage, s.Kind, s.Status, s.Start, s.End})
	for i := range s.Attrs {
		a := &s.Attrs[i]
		sum += maphash.Comparable(seed, *a)
		if a.Key == "gen_ai.request.id" || a.Key == "rid" {
			p.request = maphash.Comparable(seed, a.Value) | 1
		}
	}
	type point struct {
		at   trace.Opt[trace.Time]
		name string
		n    int
	}
	for i, e := range s.Events {
		h := maphash.Comparable(seed, point{e.At, e.Name, i})
		for _, a := range e.Attrs {
			h += maphash.Comparable(seed, a)
		}
		sum += h
	}
	p.content = sum
	return p
}

// meet looks a span up among those seen. drop: it must not count again; code
// says why, or that its ids stand for another span too; again: k is the key
// under which it stands.
func (l *ledger) meet(s *trace.Span, streamed bool) (code trace.Code, drop bool) {
	k := l.key(s.TraceID, s.SpanID)
	p := l.stamp(s)
	p.streamed = streamed
	q, ok := l.get(k)
	if !ok {
		l.put(k, p)
		return "", false
	}
	if p.start != q.start && (p.request != q.request || p.request == 0) {
		// Other spans with these ids are told apart by start and request.
		type other struct {
			k       key
			start   trace.Time
			request uint64
		}
		v := other{k, p.start, p.request}
		k2 := key{maphash.Comparable(l.seeds[0], v), maphash.Comparable(l.seeds[1], v)}
		q, ok = l.get(k2)
		if !ok {
			l.put(k2, p)
			return trace.SpanIDReused, false
		}
	}
	if p.content == q.content {
		return trace.DuplicateSpan, true
	}
	return trace.ConflictingSpan, true
}
