package sim

import (
	"strconv"

	"github.com/traceview/traceview/trace"
)

// childNames are the names of the spans that stand for a phase.
var childNames = map[trace.Phase]string{
	trace.Queueing: "queue", trace.Prefill: "prefill", trace.Decode: "decode", trace.Preempted: "preempted",
	trace.Prefill | trace.Decode: "inference",
}

// ChildSpans writes requests as engines with a span a phase do: a server span
// llm_request with the children queue, prefill, decode and preempted (or
// inference, where compute is not split). It covers all outcomes: one that did
// not end well has status error and an error.type, and the children that it got
// to; one that has not ended has no end.
func ChildSpans(rs []*trace.Request) []*trace.Span {
	var spans []*trace.Span
	res := resources{}
	for _, r := range rs {
		root := requestSpan(r, Scope, res.of(r.Service, r.Replica, nil))
		root.Attrs = append(root.Attrs, usage(r)...)
		root.Attrs = append(root.Attrs, r.Attrs...)
		root.Start, root.End = when(r.Arrival), when(r.Completed)
		if r.Outcome != trace.OK && r.Outcome != trace.Incomplete {
			root.Status, root.StatusMessage = trace.StatusError, r.Outcome.String()
			root.Attrs = append(root.Attrs, trace.Attr{Key: "error.type", Value: trace.StringValue(r.Outcome.String())})
		}
		spans = append(spans, root)
		for _, iv := range r.Intervals {
			name, ok := childNames[iv.Phase]
			if !ok {
				continue
			}
			spans = append(spans, &trace.Span{
				TraceID: r.TraceID, SpanID: spanID(fromHex(r.SpanID), 0, len(spans)), ParentID: r.SpanID,
				Name: name, Kind: trace.KindInternal, Scope: Scope, Resource: root.Resource,
				Start: trace.Some(iv.Start), End: trace.Some(iv.End),
			})
		}
	}
	return spans
}

// requestSpan starts a server span llm_request for r.
func requestSpan(r *trace.Request, scope string, res *trace.Resource) *trace.Span {
	return &trace.Span{
		TraceID: r.TraceID, SpanID: r.SpanID, Name: "llm_request", Kind: trace.KindServer, Scope: scope, Resource: res,
		Attrs: []trace.Attr{{Key: "gen_ai.request.id", Value: trace.StringValue(r.ID)}},
	}
}

// usage lists the model and the counts that r has.
func usage(r *trace.Request) []trace.Attr {
	var attrs []trace.Attr
	if r.Model != "" {
		attrs = append(attrs, trace.Attr{Key: "gen_ai.response.model", Value: trace.StringValue(r.Model)})
	}
	for _, c := range []struct {
		key string
		n   trace.Opt[int]
	}{
		{"gen_ai.request.max_tokens", r.MaxTokens},
		{"gen_ai.usage.prompt_tokens", r.Input},
		{"gen_ai.usage.completion_tokens", r.Output},
	} {
		if n, ok := c.n.Get(); ok {
			attrs = append(attrs, trace.Attr{Key: c.key, Value: trace.IntValue(int64(n))})
		}
	}
	return attrs
}

func when(i trace.Instant) trace.Opt[trace.Time] {
	if t, ok := i.Get(); ok {
		return trace.Some(t)
	}
	return trace.Opt[trace.Time]{}
}

// resources keeps one resource for each process.
type resources map[[2]string]*trace.Resource

func (rs resources) of(service, instance string, more []trace.Attr) *trace.Resource {
	key := [2]string{service, instance}
	if res := rs[key]; res != nil {
		return res
	}
	res := &trace.Resource{}
	if service != "" {
		res.Attrs = append(res.Attrs, trace.Attr{Key: "service.name", Value: trace.StringValue(service)})
	}
	if instance != "" {
		res.Attrs = append(res.Attrs, trace.Attr{Key: "service.instance.id", Value: trace.StringValue(instance)})
	}
	res.Attrs = append(res.Attrs, more...)
	rs[key] = res
	return res
}

func fromHex(id string) uint64 {
	n, _ := strconv.ParseUint(id[max(0, len(id)-16):], 16, 64)
	return n
}
