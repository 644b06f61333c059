package engine

import "github.com/traceview/traceview/trace"

// SGLang writes vLLM's keys with other meanings, all on the API server's clock
// (observability/trace.py of 2026):
//
//	time_in_model_prefill    first token − dispatched to the scheduler: with the queue
//	time_in_model_inference  finished − dispatched: with the queue
//	time_in_model_decode     finished − first token
//	time_to_first_token      first token − created
//	e2e                      finished − created
//	time_in_queue            never set
//
// So queueing and prefill are one amount here. Its stage spans
// (prefill_waiting, …) would split it; they repeat once for each rank, are lost
// with several tokenizer workers, and are not read.
func readSGLang(r *trace.Request, d durations, tokens bool) {
	from, to, ok := readDispatched(r, d, tokens)
	if !ok {
		return
	}
	claim := func(p trace.Phase, a, z trace.Time) {
		if z > a {
			r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: trace.Derived, Start: a, End: z})
		}
	}
	if d.prefill.Present() && d.ttft.Present() {
		claim(trace.Arrival, r.Arrival.At, from)
	}
	if end, ok := r.Completed.Get(); ok && d.decode.Present() && d.e2e.Present() {
		claim(trace.Completion, to, end)
	}
}

// readDispatched claims prefill and inference as sets with the queue. It
// returns where they lie.
func readDispatched(r *trace.Request, d durations, tokens bool) (from, to trace.Time, ok bool) {
	const first = trace.Queueing | trace.Prefill
	start, ok := r.Arrival.Get()
	if !ok {
		return from, to, false
	}
	if t, ok := d.ttft.Get(); ok && tokens {
		r.FirstToken = trace.At(start.Add(t), trace.Measured)
	}
	p, okp := d.prefill.Get()
	c, okc := d.decode.Get()
	inf, oki := d.inference.Get()
	ttft, okt := d.ttft.Get()
	e2e, oke := d.e2e.Get()

	var chain piece
	switch {
	case okp && okc:
		chain = piece{{first, p}, {trace.Decode, c}}
	case okp:
		chain = piece{{first, p}}
	case okc:
		chain = piece{{trace.Decode, c}}
	case oki:
		chain = piece{{first | trace.Decode, inf}}
	default:
		return from, to, false
	}
	at := start
	switch {
	case okt && (okp || okc):
		at = start.Add(ttft - p)
	case oke && (okc || oki):
		at = start.Add(e2e - chain.length())
	}
	from, to = chain.place(r, start, at)
	setInstants(r, tokens)
	checkLength(r, chain)
	return from, to, true
}
