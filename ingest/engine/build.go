package engine

import (
	"cmp"
	"slices"

	"github.com/traceview/traceview/trace"
)

// family is what stands around the span of a request.
type family struct {
	children []*node // its phase spans
	// The spans around it, innermost first. The last gives arrival and
	// completion; single: no other request is below it.
	outers []*node
	single bool
	// The span of the prefill engine, where n is the decode engine's, and its
	// phase spans.
	prefill         *node
	prefillChildren []*node
	part            bool // what is built goes into another request
	// The waits in front of the engine, and when they ended at the latest.
	gates []trace.Interval
	until trace.Time
}

// build makes the request of n.
func (b *Builder) build(n *node, around family) *trace.Request {
	b.nested = nil
	r := &trace.Request{
		TraceID: n.traceID, SpanID: n.spanID,
		Source:  trace.Source{Format: n.format, Engine: n.engine, Pos: n.pos},
		Service: n.res.service, Replica: n.res.replica,
		Clock: trace.ClockUnix, Resolution: n.step,
		Issues: slices.Clone(n.issues),
	}
	if n.kind == trace.KindClient && n.engine == unknown && len(around.outers) == 0 {
		// The caller's own span and nothing of whom it called: its resource says
		// who asked, and a request's place is who served it.
		r.Service, r.Replica = "", ""
	}
	if t, ok := n.start.Get(); ok {
		r.Arrival = trace.At(t, trace.Measured)
	}
	if t, ok := n.end.Get(); ok {
		r.Completed = trace.At(t, trace.Measured)
	}
	f := &b.fields
	*f = fields{}
	f.read(n)
	for _, c := range around.children {
		r.Resolution = max(r.Resolution, c.step)
	}
	for _, o := range around.outers {
		r.Resolution = max(r.Resolution, o.step)
	}
	r.ID = f.text(fieldRequestID, fieldRID, fieldResponseID)
	if r.Model = f.text(fieldResponseModel, fieldRequestModel); r.Model != "" {
		r.Model = b.intern(r.Model)
	}
	if r.FinishReason = f.finish(); r.FinishReason != "" {
		r.FinishReason = b.intern(r.FinishReason)
	}
	r.Input, r.Output = f.count(r, fieldInput), f.count(r, fieldOutput)
	r.Cached, r.MaxTokens = f.count(r, fieldCached), f.count(r, fieldMaxTokens)

	d := f.durations(r)
	tokens := r.Output.Or(1) > 0
	b.phases(r, n, d, around, tokens)
	if n.sgl != nil && n.sgl.replica != "" && r.Replica == "" {
		r.Replica = n.sgl.replica
	}
	if at, ok := n.rawEnd.Get(); ok {
		r.SetAttr("raw_end_unix_nano", trace.IntValue(int64(at)))
	}

	failed, aborted := n.failed, n.aborted
	// An answer that refuses, where no engine was seen to take the request up:
	// it never came to a queue.
	refused := n.refused && len(r.Intervals) == 0 && !r.FirstToken.Present()
	outers := around.outers
	b.attributes(r, n, outers)
	readTransfers(r, outers)
	for _, o := range outers {
		b.onWorker(r, o)
	}
	b.onWorker(r, n)
	if n.half == decodeHalf && n.engine != sglang {
		awaitsCache(r)
	}
	if p := around.prefill; p != nil {
		joinHalves(r, b.build(p, family{children: around.prefillChildren, part: true}), n.engine == sglang)
		failed, aborted = failed || p.failed, aborted || p.aborted
	} else if !around.part && (n.half == prefillHalf || n.half == decodeHalf) {
		lone(r, n.half)
	}
	waitInside(r, around.gates)
	if len(outers) > 0 {
		outer := outers[len(outers)-1]
		b.nested = widen(r, outer, around.gates, around.until)
		for _, o := range outers {
			fillIn(r, o, around.single)
		}
		failed, aborted = failed || outer.failed, aborted || outer.aborted
	}

	never := d.garbage && !tokens
	switch {
	case !r.Completed.Present() || !r.Arrival.Present():
		r.Outcome = trace.Incomplete
	case aborted, saysAborted(r.FinishReason):
		r.Outcome = trace.Aborted
	case refused:
		r.Outcome = trace.Rejected
	case failed, r.FinishReason == "error":
		r.Outcome = trace.Error
	case never:
		// No token and milestones that were never stamped: the engine writes
		// that for a request that it dropped. It does not say why.
		r.Outcome = trace.Aborted
	default:
		r.Outcome = trace.OK
	}
	return r
}

// phases claims what n and its children tell of r's phases.
func (b *Builder) phases(r *trace.Request, n *node, d durations, around family, tokens bool) {
	children := around.children
	start, okStart := n.start.Get()
	firstMark := first(n.marks, firstTokenMark)
	if !tokens {
		firstMark = trace.Instant{}
	}
	if firstMark.Present() && okStart {
		if firstMark.At < start {
			note(r, trace.Inconsistent, "the first token is %v before the start", start.Sub(firstMark.At))
			firstMark = trace.Instant{}
		} else {
			d.ttft = trace.Some(firstMark.At.Sub(start))
		}
	}
	ttft, okTTFT := d.ttft.Get()
	switch {
	case n.engine == triton:
		readTriton(r, n, children)
	case n.engine == tgi:
		readTGI(r, n.tgi)
	case n.engine == dynamo && len(children) == 0:
		readDynamo(r, n, around.outers)
	case n.client != nil && n.engine == n.client.engine:
		readClient(r, n.client)
	case n.engine == sglang && len(children) > 0:
		if okStart && okTTFT && tokens && n.half != prefillHalf {
			r.FirstToken = trace.At(start.Add(ttft), trace.Measured)
		}
		readStages(r, n, children, d, tokens)
	case len(children) > 0 || hasScheduling(n.marks):
		if okStart && okTTFT && tokens {
			r.FirstToken = trace.At(start.Add(ttft), trace.Measured)
		}
		// Where nothing else tells who wrote the span, its phases' form does.
		nameless := n.engine == vllmOrTRT || n.engine == unknown
		if len(children) > 0 {
			if nameless {
				r.Source.Engine = phaseSpans
			}
			readChildren(r, children, tokens)
			break
		}
		if nameless {
			r.Source.Engine = events
		}
		var e2e trace.Instant
		if e, ok := d.e2e.Get(); ok && okStart && tokens {
			e2e = trace.At(start.Add(e), trace.Derived)
		}
		readEvents(r, n.marks, e2e)
	case n.engine == sglang:
		readSGLang(r, d, tokens)
	case n.engine == vllmV1:
		readV1(r, d, tokens)
	case n.engine == vllmV0:
		readV0(r, d, tokens)
	case n.engine == vllm:
		// V0's or V1's: nothing that is true of both splits e2e.
	case n.engine == tensorrt:
		readTensorRT(r, n, d, tokens)
	case n.engine == llmd, n.engine == rayServe:
		// Layers in front of an engine that was not seen.
	case n.engine == vllmOrTRT:
		readV0(r, d, tokens)
		note(r, trace.EngineAmbiguous, "llm_request without a scope: vLLM or TensorRT-LLM")
	case n.engine == latency:
		readLatency(r, d, tokens)
		note(r, trace.EngineAmbiguous, "latency attributes on a span %.40q of no known engine", n.name)
	default:
		note(r, trace.EngineUnknown, "no engine recognised in span %.40q", n.name)
	}
	if firstMark.Present() {
		r.FirstToken = firstMark
	}
}

// attributes gathers r's grouping keys.
func (b *Builder) attributes(r *trace.Request, n *node, outers []*node) {
	all := append(b.attrs[:0], n.res.attrs...)
	add := func(attrs []attr) {
		for i := range attrs {
			if attrs[i].field == fieldNone {
				all = append(all, attrs[i].Attr)
			}
		}
	}
	for _, o := range slices.Backward(outers) {
		add(o.attrs)
	}
	add(n.attrs)
	all = append(all, r.Attrs...)
	slices.SortStableFunc(all, func(x, y trace.Attr) int { return cmp.Compare(x.Key, y.Key) })
	b.attrs = all
	kept := all[:0]
	for i, a := range all {
		if i+1 == len(all) || all[i+1].Key != a.Key {
			kept = append(kept, a)
		}
	}
	r.Attrs = slices.Clone(kept)
}
