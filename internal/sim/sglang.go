package sim

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// SGLangShape says how [SGLang] writes.
type SGLangShape struct {
	Ranks int // schedulers that tell of the same request, some microseconds apart; at least one
	Steps int // spans of single decoding steps, at most so many a request and rank
}

const sglangHost = "4c4c4544a1b2c3d4"

// sglangPID is the process of a replica's scheduler.
func sglangPID(replica string, rank int) int {
	n, _ := strconv.Atoi(strings.TrimLeft(replica, "abcdefghijklmnopqrstuvwxyz-_"))
	return 51000 + 100*n + rank
}

// sglang writes spans of one request in one trace.
type sglang struct {
	spans   []*trace.Span
	res     *trace.Resource
	traceID string
	seed    *trace.Request
	next    int
}

func (w *sglang) span(parent, name string, from, to trace.Time, attrs ...trace.Attr) *trace.Span {
	w.next++
	s := &trace.Span{
		TraceID: w.traceID, SpanID: childID(w.seed, 100+w.next), ParentID: parent, Name: name, Kind: trace.KindInternal, Scope: "sglang server",
		Resource: w.res, Start: trace.Some(from), End: trace.Some(to), Attrs: attrs,
	}
	w.spans = append(w.spans, s)
	return s
}

func (w *sglang) thread(parent, label string, rank, pid int, from, to trace.Time) *trace.Span {
	name := label
	attrs := []trace.Attr{text("host_id", sglangHost), {Key: "pid", Value: trace.IntValue(int64(pid))}, text("thread_label", label)}
	if rank >= 0 {
		name += fmt.Sprintf(" [TP %d] ", rank)
		attrs = append(attrs, trace.Attr{Key: "tp_rank", Value: trace.IntValue(int64(rank))})
	}
	return w.span(parent, fmt.Sprintf("%s(host:%.8s | pid:%d)", name, sglangHost, pid), from, to, attrs...)
}

// SGLang writes requests as SGLang does: a span for the request, one for each
// thread below it, and the stages below these, of which every rank's scheduler
// tells. A request that never got work has no span of its wait, and one that was
// rejected has none at all. The API server sees the first token half its time
// behind the last one after the scheduler has it.
func SGLang(rs []*trace.Request, o SGLangShape) []*trace.Span {
	res := &trace.Resource{Attrs: []trace.Attr{text("service.name", "sglang")}}
	var spans []*trace.Span
	for _, r := range rs {
		if r.Outcome == trace.Rejected {
			continue
		}
		w := &sglang{res: res, traceID: r.TraceID, seed: r}
		root := w.span("", " Req "+r.ID[:min(8, len(r.ID))], r.Arrival.At, r.Completed.At, text("rid", r.ID), text("module", "sglang::request"))
		root.SpanID = r.SpanID
		w.arrives(root, r, "", "api_server_dispatch")
		for rank := range max(1, o.Ranks) {
			w.scheduled(root, r, rank, o.Steps)
		}
		root.Attrs = append(root.Attrs, sglangCounts(r)...)
		if r.Outcome == trace.Error {
			root.Status, root.StatusMessage = trace.StatusError, "error"
		}
		spans = append(spans, w.spans[1:]...)
		spans = append(spans, root) // it ends last
	}
	return spans
}

// arrives writes what the API server does before the scheduler has the request.
func (w *sglang) arrives(root *trace.Span, r *trace.Request, role, dispatch string) {
	mid := r.Arrival.At.Add(r.Queued.At.Sub(r.Arrival.At) / 2)
	tok := w.thread(root.SpanID, role+"Tokenizer", -1, 4711, r.Arrival.At, mid)
	w.span(tok.SpanID, "tokenize", r.Arrival.At, r.Arrival.At.Add(mid.Sub(r.Arrival.At)/2))
	w.span(tok.SpanID, dispatch, r.Arrival.At.Add(mid.Sub(r.Arrival.At)/2), mid)
}

// scheduled writes what the scheduler of a rank tells.
func (w *sglang) scheduled(root *trace.Span, r *trace.Request, rank, steps int) {
	late := time.Duration(rank) * 2 * time.Microsecond
	end := r.Completed.At
	mid := r.Arrival.At.Add(r.Queued.At.Sub(r.Arrival.At) / 2)
	th := w.thread(root.SpanID, "Scheduler", rank, sglangPID(r.Replica, rank), mid, end)
	if r.Outcome == trace.Aborted {
		th.Status = trace.StatusError
		th.Attrs = append(th.Attrs, text("type", "abort"))
	}
	w.span(th.SpanID, "request_process", mid, r.Queued.At.Add(late))
	if !r.Scheduled.Present() {
		return
	}
	w.span(th.SpanID, "prefill_waiting", r.Queued.At.Add(late), r.Scheduled.At.Add(late))
	var open *trace.Span
	retract := func(t trace.Time) {
		open.Events = append(open.Events, trace.Event{At: trace.Some(t), Name: "retract"})
	}
	resumed := false
	for _, iv := range r.Intervals {
		from, to := iv.Start.Add(late), iv.End.Add(late)
		switch iv.Phase {
		case trace.Prefill:
			open = w.span(th.SpanID, "prefill_forward", from, to)
		case trace.Decode:
			if open.Name != "decode_forward" {
				open = w.span(th.SpanID, "decode_forward", from, to)
			} else if open.End = trace.Some(to); resumed {
				w.span(open.SpanID, "prefill_forward", from, from.Add(to.Sub(from)/8))
			}
			for i := range min(steps, int(to.Sub(from)/time.Millisecond)) {
				step := to.Sub(from) / time.Duration(steps)
				w.span(open.SpanID, "decode_loop", from.Add(time.Duration(i)*step), from.Add(time.Duration(i+1)*step),
					trace.Attr{Key: "decode_ct", Value: trace.IntValue(int64(i))})
			}
		case trace.Preempted:
			retract(from)
		}
		resumed = iv.Phase == trace.Preempted
	}
}

// sglangCounts are the attributes that SGLang sets when the request ends.
func sglangCounts(r *trace.Request) []trace.Attr {
	attrs := append([]trace.Attr{text("gen_ai.request.id", r.ID)}, counts(r)...)
	if n, ok := r.Cached.Get(); ok {
		attrs = append(attrs, trace.Attr{Key: "gen_ai.usage.cached_tokens", Value: trace.IntValue(int64(n))})
	}
	if r.Model != "" {
		attrs = append(attrs, text("gen_ai.response.model", r.Model))
	}
	if r.FinishReason != "" {
		attrs = append(attrs, text("gen_ai.response.finish_reasons", `["`+r.FinishReason+`"]`))
	}
	if first, ok := r.FirstToken.Get(); ok {
		first = first.Add(sglangLate(r))
		dispatched := r.Arrival.At.Add(r.Queued.At.Sub(r.Arrival.At) / 2)
		attrs = append(attrs,
			seconds("gen_ai.latency.time_to_first_token", first.Sub(r.Arrival.At)),
			seconds("gen_ai.latency.e2e", r.Completed.At.Sub(r.Arrival.At)),
			seconds("gen_ai.latency.time_in_model_decode", r.Completed.At.Sub(first)),
			seconds("gen_ai.latency.time_in_model_inference", r.Completed.At.Sub(dispatched)),
			seconds("gen_ai.latency.time_in_model_prefill", first.Sub(dispatched)))
	}
	return attrs
}

// sglangLate is how much later than the scheduler the API server has a token.
func sglangLate(r *trace.Request) time.Duration {
	if r.Outcome != trace.OK {
		return 0
	}
	return r.Completed.At.Sub(r.LastToken.At) / 2
}

// VisibleSGLang returns what [SGLang] lets be known: all phases of requests that
// got work, and of the others arrival. The replica is the scheduler's host and
// process.
func VisibleSGLang(rs []*trace.Request) []*trace.Request {
	return visible(rs, func(v *trace.Request) bool {
		if v.Outcome == trace.Rejected {
			return false
		}
		if !v.Scheduled.Present() {
			v.Intervals = []trace.Interval{{Phase: trace.Arrival, Basis: trace.Measured, Start: v.Arrival.At, End: v.Queued.At}}
		}
		if v.FirstToken.Present() {
			v.FirstToken.At = v.FirstToken.At.Add(sglangLate(v))
		}
		v.Service, v.Replica = "sglang", fmt.Sprintf("%.8s/%d", sglangHost, sglangPID(v.Replica, 0))
		v.Attrs = nil
		return true
	})
}
