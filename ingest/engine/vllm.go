package engine

import (
	"slices"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// vLLM writes one span a request, llm_request, whose phases are attributes in
// float seconds. Read at v0.5.1 to v0.10.1 (V0), v0.10.2 to the tree of 2026-09
// (V1); the spans of a v0.32.0 server are held against its counters, gauges and
// clients (samples/README.md).
//
//	key                      V1                              V0
//	time_in_queue            scheduled − queued, engine      scheduled − arrival
//	time_in_model_prefill    first token − scheduled, engine —
//	time_in_model_decode     last − first token, engine      —
//	time_in_model_inference  last token − scheduled, engine  —
//	time_to_first_token      first token received − arrival  first token − arrival
//	e2e                      last batch taken up − arrival   finished − arrival
//
// V1's engine intervals are on the engine's monotonic clock, the rest on the
// wall clock of the API server. Its span does not tell: the model, preemptions
// (the wait is inside prefill or decode), the front end before the queue apart
// from that after the last token, requests whose caller left (no span).
// V0's does not tell preemptions, nor the time before the engine's loop took
// the request up.

// durations are the latency attributes that can be believed.
type durations struct {
	queue, prefill, decode, inference, ttft, e2e trace.Opt[time.Duration]
	garbage                                      bool // a milestone was never stamped
}

// durations reads the latency attributes and tells garbage and sentinels from
// values. The engine's stamps are zero where a milestone was not reached:
// differences then are negative or as long as the host is up, or zero between
// two such milestones.
func (f *fields) durations(r *trace.Request) durations {
	limit := time.Duration(longest)
	if e2e, ok := r.E2E().Get(); ok {
		limit = e2e + slack
	}
	var d durations
	var bad [fieldCount]bool
	d.queue, bad[fieldQueue] = f.duration(r, fieldQueue, limit)
	d.prefill, bad[fieldPrefill] = f.duration(r, fieldPrefill, limit)
	d.decode, bad[fieldDecode] = f.duration(r, fieldDecode, limit)
	d.inference, bad[fieldInference] = f.duration(r, fieldInference, limit)
	d.ttft, bad[fieldTTFT] = f.duration(r, fieldTTFT, limit)
	d.e2e, bad[fieldE2E] = f.duration(r, fieldE2E, limit)
	d.garbage = bad[fieldQueue] || bad[fieldPrefill] || bad[fieldDecode] || bad[fieldInference] || bad[fieldTTFT]

	drop := func(o *trace.Opt[time.Duration]) {
		if v, ok := o.Get(); ok && v == 0 {
			*o = trace.Opt[time.Duration]{}
		}
	}
	if bad[fieldPrefill] || bad[fieldInference] {
		drop(&d.queue)
		drop(&d.decode)
	}
	if bad[fieldQueue] && d.prefill.Or(0) == 0 && d.decode.Or(0) == 0 {
		drop(&d.prefill)
		drop(&d.decode)
		drop(&d.inference)
	}
	r.Reported = trace.Reported{E2E: d.e2e, TTFT: d.ttft, Queue: d.queue, Prefill: d.prefill, Decode: d.decode, Inference: d.inference}
	return d
}

// readV1 claims vLLM V1's phases. The engine's chain of queueing, prefill and
// decode is placed so that its first token is where the front end saw it, else
// so that it ends where the engine's e2e does, and moved as little as is needed
// to lie inside the span. Of the span the rest is the front end's, before and
// after together.
func readV1(r *trace.Request, d durations, tokens bool) {
	start, ok := r.Arrival.Get()
	if !ok {
		return
	}
	if t, ok := d.ttft.Get(); ok && tokens {
		r.FirstToken = trace.At(start.Add(t), trace.Measured)
	}
	q, okq := d.queue.Get()
	p, okp := d.prefill.Get()
	c, okc := d.decode.Get()
	if inf, ok := d.inference.Get(); ok {
		switch {
		case okp && okc:
			if diff := (inf - p - c).Abs(); diff > tolerance(r) {
				note(r, trace.Inconsistent, "inference differs by %s from prefill and decode together", units.Duration(diff, 0))
			}
		case okp && inf >= p:
			c, okc = inf-p, true
		case okc && inf >= c:
			p, okp = inf-c, true
		case !okp && !okc:
			readInference(r, d, q, okq, inf)
			return
		}
	}

	whole := okq && okp && okc
	if okq && okc && !okp {
		// Prefill lies between them and is not known: two pieces.
		piece{{trace.Queueing, q}}.place(r, start, start)
		piece{{trace.Decode, c}}.place(r, start, decodeStart(r, d, start, c))
		setInstants(r, tokens)
		if rest, ok := r.E2E().Get(); ok && q+c > rest+tolerance(r) {
			note(r, trace.Inconsistent, "queueing and decode together are %s longer than the span", units.Duration(q+c-rest, 0))
		}
		return
	}
	var chain piece
	if okq {
		chain = append(chain, part{trace.Queueing, q})
	}
	if okp {
		chain = append(chain, part{trace.Prefill, p})
	}
	if okc {
		chain = append(chain, part{trace.Decode, c})
	}
	if len(chain) == 0 {
		return
	}
	at := start
	switch t, okt := d.ttft.Get(); {
	case okt && (okp || okc):
		at = start.Add(t - p)
		if okq {
			at = at.Add(-q)
		}
	case okc && !okq:
		at = decodeStart(r, d, start, p+c)
	case whole:
		if e, ok := d.e2e.Get(); ok {
			at = start.Add(e - q - p - c)
		}
	}
	from, to := chain.place(r, start, at)
	setInstants(r, tokens)
	if whole {
		frontEnd(r, from, to)
	}
	checkLength(r, chain)
}

// decodeStart is where a chain of that length begins which ends with the last
// token, where only its end has a place.
func decodeStart(r *trace.Request, d durations, start trace.Time, length time.Duration) trace.Time {
	if t, ok := d.ttft.Get(); ok && !d.prefill.Present() {
		return start.Add(t)
	}
	if e, ok := d.e2e.Get(); ok {
		return start.Add(e - length)
	}
	if end, ok := r.Completed.Get(); ok {
		return end.Add(-length)
	}
	return start
}

// readInference claims a chain whose prefill and decode are one amount.
func readInference(r *trace.Request, d durations, q time.Duration, okq bool, inf time.Duration) {
	chain := piece{{trace.Prefill | trace.Decode, inf}}
	if okq {
		chain = piece{{trace.Queueing, q}, {trace.Prefill | trace.Decode, inf}}
	}
	start := r.Arrival.At
	at := start
	if e, ok := d.e2e.Get(); ok {
		at = start.Add(e - q - inf)
	} else if end, ok := r.Completed.Get(); ok && !okq {
		at = end.Add(-inf)
	}
	from, to := chain.place(r, start, at)
	if okq {
		r.Queued, r.Scheduled = trace.At(from, trace.Derived), trace.At(from.Add(q), trace.Derived)
		frontEnd(r, from, to)
	} else {
		r.Scheduled = trace.At(from, trace.Derived)
	}
	checkLength(r, chain)
}

// part is a phase of which the amount is known.
type part struct {
	phase trace.Phase
	dur   time.Duration
}

// piece is a run of parts without gaps.
type piece []part

func (c piece) length() time.Duration {
	var d time.Duration
	for _, p := range c {
		d += p.dur
	}
	return d
}

// place claims the parts from at on, moved as little as is needed to lie
// between start and r's end; where they are too long they stick out at the end.
func (c piece) place(r *trace.Request, start, at trace.Time) (from, to trace.Time) {
	if end, ok := r.Completed.Get(); ok {
		at = min(at, end.Add(-c.length()))
	}
	from = max(at, start)
	to = from
	r.Intervals = slices.Grow(r.Intervals, len(c)+2)
	for _, p := range c {
		r.Intervals = append(r.Intervals, trace.Interval{Phase: p.phase, Basis: trace.Derived, Start: to, End: to.Add(p.dur)})
		to = to.Add(p.dur)
	}
	return from, to
}

// setInstants reads the instants off the intervals placed.
func setInstants(r *trace.Request, tokens bool) {
	for _, iv := range r.Intervals {
		switch iv.Phase {
		case trace.Queueing:
			r.Queued, r.Scheduled = trace.At(iv.Start, trace.Derived), trace.At(iv.End, trace.Derived)
		case trace.Prefill:
			r.Scheduled = trace.At(iv.Start, trace.Derived)
			if tokens && !r.FirstToken.Present() {
				r.FirstToken = trace.At(iv.End, trace.Derived)
			}
		case trace.Decode:
			if tokens && !r.FirstToken.Present() {
				r.FirstToken = trace.At(iv.Start, trace.Derived)
			}
			if tokens {
				r.LastToken = trace.At(iv.End, trace.Derived)
			}
		}
	}
}

// frontEnd claims all of the span outside [from, to) as arrival or completion:
// one amount that the source does not split.
func frontEnd(r *trace.Request, from, to trace.Time) {
	claim := func(a, z trace.Time) {
		if z > a {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: trace.Arrival | trace.Completion, Basis: trace.Derived, Start: a, End: z})
		}
	}
	claim(r.Arrival.At, from)
	if end, ok := r.Completed.Get(); ok {
		claim(to, end)
	}
}

func checkLength(r *trace.Request, c piece) {
	if e2e, ok := r.E2E().Get(); ok && c.length() > e2e+tolerance(r) {
		note(r, trace.Inconsistent, "the engine's phases are %s longer than the span", units.Duration(c.length()-e2e, 0))
	}
}

// readV0 claims vLLM V0's phases: one wall clock on which queueing begins at
// arrival. TensorRT-LLM's attributes mean the same.
func readV0(r *trace.Request, d durations, tokens bool) {
	start, ok := r.Arrival.Get()
	if !ok {
		return
	}
	queue, okq := d.queue.Get()
	ttft, okt := d.ttft.Get()
	e2e, oke := d.e2e.Get()
	claim := func(p trace.Phase, basis trace.Basis, from, to time.Duration) {
		if to >= from {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: basis, Start: start.Add(from), End: start.Add(to)})
		} else if from-to > tolerance(r) {
			note(r, trace.Inconsistent, "%s would last %s", p, units.Duration(to-from, 0))
		}
	}
	if okq {
		r.Queued = r.Arrival
		r.Scheduled = trace.At(start.Add(queue), trace.Derived)
		claim(trace.Queueing, trace.Measured, 0, queue)
	}
	if okt && tokens {
		r.FirstToken = trace.At(start.Add(ttft), trace.Measured)
	}
	if !okq && !okt {
		return // e2e alone splits nothing
	}
	if oke && tokens {
		r.LastToken = trace.At(start.Add(e2e), trace.Derived)
	}
	switch {
	case okq && okt:
		claim(trace.Prefill, trace.Derived, queue, ttft)
	case okt:
		claim(trace.Queueing|trace.Prefill, trace.Derived, 0, ttft)
	case oke:
		claim(trace.Prefill|trace.Decode, trace.Derived, queue, e2e)
	}
	if okt && oke {
		claim(trace.Decode, trace.Derived, ttft, e2e)
	}
	if length, ok := r.E2E().Get(); ok && oke {
		claim(trace.Completion, trace.Measured, e2e, length)
	}
}
