package engine

import (
	"fmt"
	"slices"
	"testing"

	"github.com/traceview/traceview/trace"
)

// sgl makes a span as SGLang does: of no kind, service "sglang".
func sgl(parent *trace.Span, name string, from, to float64, attrs ...any) *trace.Span {
	s := with(span(name, at(from), at(to), attrs...), service("sglang"))
	s.Kind, s.Scope = trace.KindInternal, "sglang server"
	if parent != nil {
		below(parent, s)
	}
	return s
}

func scheduler(parent *trace.Span, rank int, from, to float64) *trace.Span {
	return sgl(parent, fmt.Sprintf("Scheduler  [TP %d] (host:4c4c4544 | pid:5%d)", rank, rank), from, to,
		"host_id", "4c4c4544deadbeef", "pid", 50+rank, "thread_label", "Scheduler", "tp_rank", rank)
}

func event(s *trace.Span, name string, t float64) {
	s.Events = append(s.Events, trace.Event{At: at(t), Name: name})
}

func TestSGLangStages(t *testing.T) {
	// Two ranks tell the same, the second a little later; the steps of decoding
	// come one by one. arrival 0.2, queueing 0.7 + 0.1, prefill 0.5, decode 1.5.
	req := sgl(nil, " Req 7d1e4c0b", 0, 3.25, "rid", "7d1e", "module", "sglang::request", "in", 512, "out", 90, "gen_ai.usage.cached_tokens", 128,
		"ttft", 1.45, "prefill", 1.3, "decode", 1.8, "e2e", 3.25, "gen_ai.response.finish_reasons", `["stop"]`)
	req.TraceID = "0000000000000000a1b2c3d4e5f60718"
	tok := sgl(req, "Tokenizer (host:4c4c4544 | pid:7)", 0, 0.15, "host_id", "4c4c4544deadbeef", "pid", 7, "thread_label", "Tokenizer")
	spans := []*trace.Span{sgl(tok, "tokenize", 0, 0.1), sgl(tok, "api_server_dispatch", 0.1, 0.15), tok}
	for rank := range 2 {
		late := float64(rank) * 0.00001
		th := scheduler(req, rank, 0.16, 3.1)
		work := sgl(th, "prefill_forward", 0.9+late, 1.4+late)
		dec := sgl(th, "decode_forward", 1.5+late, 3+late)
		spans = append(spans, sgl(th, "request_process", 0.16, 0.2+late), sgl(th, "prefill_waiting", 0.2+late, 0.9+late), work,
			sgl(work, "chunked_prefill", 0.9, 1.2), sgl(th, "decode-waiting", 1.4+late, 1.5+late), dec)
		for i := range 15 {
			spans = append(spans, sgl(dec, "decode_loop", 1.5+0.1*float64(i), 1.6+0.1*float64(i), "decode_ct", i))
		}
		spans = append(spans, th)
	}
	spans = append(spans, req)
	got := run(Options{}, spans...)
	check(t, got, "7d1e sglang ok arrival=0 queued=0.2 scheduled=0.9 first=1.45 last=~3 end=3.25 | arrival=0.2 queueing=0.8 prefill=0.5 decode=1.5 completion=0.25")
	if r := got.requests[0]; r.TraceID != req.TraceID || r.Cached.Or(0) != 128 || r.FinishReason != "stop" || r.Replica != "4c4c4544/50" || r.Reported.Prefill.Or(0) != sec(1.3) {
		t.Errorf("%+v", r)
	}

	// The same in any order.
	for _, mixed := range [][]*trace.Span{slices.Concat(spans[20:], spans[:20])} {
		if a, b := show(run(Options{}, mixed...).requests[0]), show(got.requests[0]); a != b {
			t.Errorf("another order:\n%s\n%s", a, b)
		}
	}

	// Retracted at 3, computed anew from 5 to 6: preempted 2, and the new prompt
	// is decode's. Retracted again at 7 until a chunk at 8.
	req = sgl(nil, " Req r", 0, 10, "rid", "retract", "out", 9)
	th := scheduler(req, 0, 0, 10)
	dec := sgl(th, "decode_forward", 2, 9)
	event(dec, "retract", 3)
	event(dec, "retract", 7)
	event(dec, "schedule", 8)
	check(t, run(Options{}, req, th, dec, sgl(th, "prefill_waiting", 0, 1), sgl(th, "prefill_forward", 1, 2),
		sgl(dec, "prefill_forward", 5, 6), sgl(dec, "chunked_prefill", 8, 8.5), sgl(dec, "decode_waiting", 6, 6.25), sgl(dec, "decode_forward", 6.25, 9)),
		"retract sglang ok arrival=0 queued=0 scheduled=1 first=~2 last=~9 end=10 | queueing=1.25 prefill=1 decode=3.75 preempted=3 completion=1")

	// Never resumed, and the caller left.
	req = sgl(nil, " Req a", 0, 5, "rid", "gone", "out", 9)
	th = with(scheduler(req, 0, 0, 5), func(s *trace.Span) {
		s.Status, s.Attrs = trace.StatusError, append(s.Attrs, attributes("type", "abort", "message", "AbortReq")...)
	})
	dec = sgl(th, "decode_forward", 2, 3)
	event(dec, "retract", 3)
	got = run(Options{}, req, th, dec, sgl(th, "prefill_waiting", 0, 1), sgl(th, "prefill_forward", 1, 2))
	check(t, got,
		"gone sglang aborted arrival=0 queued=0 scheduled=1 first=~2 last=~3 end=5 | queueing=1 prefill=1 decode=1 preempted=2")
	if n := got.requests[0].Preemptions.Or(0); n != 1 {
		t.Errorf("%d preemptions", n)
	}

	// A waiting span alone: the API server's figures say the rest. This is the
	// example of queueing|prefill as an upper bound: 0.89 in all.
	req = sgl(nil, " Req e", 0, 2.5, "rid", "upper", "out", 90, "ttft", 0.9, "prefill", 0.89, "e2e", 2.5, "decode", 1.6)
	th = scheduler(req, 0, 0.012, 2.49)
	check(t, run(Options{}, req, th, sgl(th, "prefill_waiting", 0.015, 0.715)),
		"upper sglang ok arrival=0 queued=0.015 first=0.9 end=2.5 | arrival=0.015 queueing=0.7 queueing|prefill=0.185 decode=1.6")

	// With several tokenizer workers the schedulers' spans are missing.
	req = sgl(nil, " Req w", 0, 2.5, "rid", "workers", "out", 90, "ttft", 0.9, "prefill", 0.75, "decode", 1.5, "e2e", 2.4)
	th = sgl(req, "MultiTokenizer-0 (host:4c4c4544 | pid:9)", 0, 0.15, "thread_label", "MultiTokenizer-0")
	check(t, run(Options{}, req, th, sgl(th, "tokenize", 0, 0.1)),
		"workers sglang ok arrival=0 first=0.9 last=~2.4 end=2.5 | arrival=0.15 queueing|prefill=0.75 decode=1.5 completion=0.1")

	// 2025: a room above, blanks in names, no span for decoding but its steps,
	// and a prefill that began with the wait. One of a single token.
	room := sgl(nil, "Bootstrap Room 0x0", 0, 4, "bootstrap_room", "0x0")
	req = sgl(room, " Req old", 0, 4, "rid", "old", "out", 3)
	th = scheduler(req, 0, 0, 4)
	check(t, run(Options{}, room, req, th, sgl(th, "process req", 0, 0.5), sgl(th, "prefill", 0.5, 2), sgl(th, "decode loop", 2, 3), sgl(th, "decode loop", 3, 3.5)),
		"old sglang ok arrival=0 first=~2 last=~3.5 end=4 | arrival=0.5 queueing|prefill=1.5 decode=1.5 completion=0.5")
	req = sgl(nil, "unified Req one", 0, 4, "rid", "one", "out", 1)
	th = scheduler(req, 0, 0, 4)
	check(t, run(Options{}, req, th, sgl(th, "prefill_waiting", 0, 1), sgl(th, "prefill_forward", 1, 3)),
		"one sglang ok arrival=0 queued=0 scheduled=1 first=~3 last=~3 end=4 | queueing=1 prefill=2 completion=1")

	// Two processes a few microseconds apart are no fault; a second is.
	req = sgl(nil, " Req u", 0, 4, "rid", "apart", "out", 2)
	th = scheduler(req, 0, 0, 4)
	check(t, run(Options{}, req, th, sgl(th, "prefill_waiting", 0, 1.00002), sgl(th, "prefill_forward", 1, 2), sgl(th, "decode_forward", 2, 4)),
		"apart sglang ok arrival=0 queued=0 scheduled=1 first=~2 last=~4 end=4 | queueing=1 prefill=1 decode=2 conflict=0.00002")
	req = sgl(nil, " Req v", 0, 4, "rid", "odd", "out", 2)
	th = scheduler(req, 0, 0, 4)
	check(t, run(Options{}, req, th, sgl(th, "prefill_waiting", 0, 2), sgl(th, "prefill_forward", 1, 3)),
		"odd sglang ok arrival=0 queued=0 scheduled=1 first=~3 end=4 | queueing=1 prefill=2 unattributed=1 conflict=1 | inconsistent")
}

// Prefill and decode on two engines that both have the request from the start.
func TestSGLangHalves(t *testing.T) {
	// The prefill engine: queued at 0.5, 1 to 3 the prompt, 3 to 4 the transfer.
	// The decode engine: ready at 0.75, has all at 4.25, waits until 4.5.
	halves := func(room string, parent *trace.Span) []*trace.Span {
		p := sgl(parent, "prefill Req 1", 0, 4.25, "rid", "one", "bootstrap_room", room, "out", 1, "in", 9, "gen_ai.usage.cached_tokens", 4)
		pt := scheduler(p, 0, 0.25, 4.25)
		d := sgl(parent, "decode Req 1", 0, 9, "rid", "one", "bootstrap_room", room, "out", 50, "ttft", 4.75)
		dt := scheduler(d, 4, 0.25, 8)
		return []*trace.Span{p, pt, d, dt,
			sgl(pt, "prefill_prepare", 0.25, 0.5), sgl(pt, "prefill_bootstrap", 0.5, 0.75), sgl(pt, "prefill_waiting", 0.75, 1),
			sgl(pt, "prefill_forward", 1, 3), sgl(pt, "prefill_transfer_kv_cache", 3, 4),
			sgl(dt, "decode_prepare", 0.25, 0.5), sgl(dt, "decode_bootstrap", 0.5, 0.75), sgl(dt, "decode_transferred", 0.75, 4.25),
			sgl(dt, "decode_waiting", 4.25, 4.5), sgl(dt, "decode_forward", 4.5, 8)}
	}
	const want = "one sglang ok arrival=0 queued=0.5 scheduled=1 first=4.75 last=~8 end=9 | arrival=0.5 queueing=0.75 prefill=2 decode=3.5 transfer=1.25 completion=1"
	// Two traces that share a room, and one trace.
	spans := halves("0x5f3a", nil)
	got := run(Options{}, spans...)
	check(t, got, want)
	if r := got.requests[0]; r.Output.Or(0) != 50 || r.Input.Or(0) != 9 || r.Cached.Or(0) != 4 || r.Replica != "4c4c4544/54" {
		t.Errorf("%+v", r)
	} else if v, _ := r.Attr("prefill.replica"); v.String() != "4c4c4544/50" {
		t.Errorf("prefill on %v", v)
	}
	slices.Reverse(spans)
	check(t, run(Options{}, spans...), want)
	room := sgl(nil, "Bootstrap Room 0x5f3b", 0, 9)
	check(t, run(Options{}, append(halves("", room), room)...), want)

	// With the load balancer of 2025 beside them.
	room = sgl(nil, "Bootstrap Room 0x5f3c", 0, 9)
	lb := sgl(room, "router Req 5f3c", 0, 9, "rid", "5f3c")
	check(t, run(Options{}, append(halves("", room), room, lb, sgl(lb, "mini_lb_launch", 0, 0.1), sgl(lb, "wait_pd_finish", 0.1, 9))...), want)

	// Two requests under one parent are told apart by their rooms.
	agent := sgl(nil, "agent", 0, 20)
	check(t, run(Options{}, append(append(halves("0x1", agent), halves("0x2", agent)...), agent)...), want, want)

	// One half alone.
	spans = halves("0x7", nil)
	check(t, run(Options{}, slices.Concat(spans[:2], spans[4:9])...),
		"one sglang incomplete arrival=0 queued=0.5 scheduled=1 first=~3 | arrival=0.5 queueing=0.5 prefill=2 transfer=1 | half-request")
	spans = halves("0x7", nil)
	check(t, run(Options{}, slices.Concat(spans[2:4], spans[9:])...),
		"one sglang ok arrival=0 queued=0.5 scheduled=4.5 first=4.75 last=~8 end=9 | arrival=0.5 queueing=0.5 decode=3.5 queueing|prefill|transfer=3.5 completion=1 | half-request")

	// Clocks that are two seconds apart.
	spans = halves("0x8", nil)
	for _, s := range slices.Concat(spans[2:4], spans[9:]) {
		s.Start, s.End = trace.Some(s.Start.Or(0).Add(-sec(2))), trace.Some(s.End.Or(0).Add(-sec(2)))
	}
	got = run(Options{}, spans...)
	if c := got.requests[0].Issues; len(c) != 1 || c[0].Code != trace.ClockSkew {
		t.Errorf("issues %v", c)
	}
}

// A thousand spans of steps are held as one for each thread.
func TestSGLangSteps(t *testing.T) {
	req := sgl(nil, " Req s", 0, 1000, "rid", "steps", "out", 1000)
	th := scheduler(req, 0, 0, 1000)
	b := NewBuilder(Options{MaxOpen: 5})
	var got result
	yield := func(r *trace.Request, i *trace.Issue) bool {
		if r != nil {
			got.requests = append(got.requests, r)
		} else {
			got.issues = append(got.issues, *i)
		}
		return true
	}
	for i := range 1000 {
		b.Add(sgl(th, "decode_loop", float64(i), float64(i+1)), yield)
	}
	b.Add(sgl(th, "prefill_waiting", 0, 0), yield)
	b.Add(th, yield)
	b.Add(req, yield)
	if b.held != 4 || len(b.steps) != 1 {
		t.Errorf("%d spans held, %d of steps", b.held, len(b.steps))
	}
	b.Finish(yield)
	check(t, got, "steps sglang ok arrival=0 queued=0 last=~1000 end=1000 | decode=1000")
	if len(b.steps)+len(b.groups)+len(b.rooms) != 0 || b.held != 0 {
		t.Errorf("left behind: %d steps, %d held", len(b.steps), b.held)
	}
}
