package engine

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/traceview/traceview/trace"
)

const secret = "SECRET PROMPT"

// source deals out bytes; zeros once they are used up.
type source struct{ data []byte }

func (s *source) next(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	v := int(s.data[0]) % n
	s.data = s.data[1:]
	return v
}

var (
	fuzzNames = []string{"llm_request", "POST /v1/completions", "queue", "prefill", "decode", "preempted", "inference",
		"step", "kv_transfer", " Req 1", "llm_core", "Load model", "detokenize",
		"prefill Req 1", "decode Req 2", "Scheduler [TP 1] (host:a | pid:1)", "prefill_waiting", "prefill_forward", "decode_forward", "decode_loop",
		"prefill_transfer_kv_cache", "decode_transferred",
		"http-request", "handle_payload", "kv_router.route_request", "gateway.request", "gateway.request_orchestration", "forward_request",
		"proxy_http_request", "proxy_route_to_replica", "litellm_request", "InferRequest", "compute", "model", "generate", "batch", "chat demo"}
	fuzzKeys = []string{"queue", "ttft", "e2e", "prefill", "decode", "inference", "id", "in", "out",
		"gen_ai.response.finish_reason", "http.route", "gen_ai.prompt", "code.function", "module", "llm_d.x", "rid", "tenant",
		"bootstrap_room", "tp_rank", "gen_ai.request.max_tokens", "component", "instance_id", "ttft_ms", "phase", "llm_d.pd_proxy.connector",
		"triton.model_name", "triton.trace_parent_id", "total_time", "queue_time", "validation_time", "inference_time", "time_per_token", "batch_size",
		"gen_ai.operation.name", "gen_ai.response.time_to_first_chunk"}
	fuzzEvents = []string{"QUEUED", "SCHEDULED", "PREEMPTED", "RESUMED", "first_token", "LAST_TOKEN", "journey.FINISHED", "x", "retract",
		"QUEUE_START", "COMPUTE_START", "COMPUTE_END", "REQUEST_END", "HTTP_RECV_START", "HTTP_SEND_END", "kv_cache_transfer_start", "kv_cache_transfer_end",
		"ctx_server.selected", "First Token Stream Event"}
	fuzzResources = []*trace.Resource{
		nil,
		{Attrs: attributes("service.name", "vllm-server", "vllm.process_id", "4", "gen_ai.prompt", secret)},
		{Attrs: attributes("service.name", "gateway", "host.name", "h")},
		{Attrs: attributes("service.name", "sglang")},
	}
)

// instant is mostly within ten seconds after t0, sometimes absurd.
func (s *source) instant() trace.Opt[trace.Time] {
	switch s.next(32) {
	case 0:
		return trace.Opt[trace.Time]{}
	case 1:
		return trace.Some(trace.Time(math.MaxInt64 - int64(s.next(100))))
	case 2:
		return trace.Some(trace.Time(s.next(100) - 50))
	case 3:
		return trace.Some(t0.Add(sec(float64(s.next(256)) / 1e9)))
	}
	return trace.Some(t0.Add(sec(float64(s.next(200)) / 20)))
}

func (s *source) value() any {
	switch s.next(16) {
	case 0:
		return math.NaN()
	case 1:
		return "NaN"
	case 2:
		return -float64(s.next(100)) * 1e4
	case 3:
		return float64(s.next(100)) * 1e300
	case 4:
		return fmt.Sprint(s.next(5))
	case 5:
		return s.next(20) - 5
	case 6:
		return trace.JSONValue(`["abort"]`)
	case 7:
		return 0.0
	case 8:
		return []string{"prefill", "decode", "backend", "Decode", "chat", "431.2ms", "1.5s", "4µs"}[s.next(8)]
	}
	return float64(s.next(100)) / 20
}

func spansOf(data []byte) (out []*trace.Span) {
	s := &source{data}
	for len(s.data) > 0 && len(out) < 100 {
		sp := &trace.Span{
			TraceID: "1", SpanID: fmt.Sprint(len(out) + 1),
			Name: fuzzNames[s.next(len(fuzzNames))], Kind: trace.SpanKind(s.next(6)),
			Scope:    []string{"", "vllm.llm_engine", "vllm.tracing.otel", "sglang server", "trt.llm", "triton-server", "envoyproxy/ai-gateway"}[s.next(7)],
			Resource: fuzzResources[s.next(len(fuzzResources))],
			Start:    s.instant(), Status: trace.StatusCode(s.next(16) / 7), StatusMessage: secret, Format: "test",
		}
		sp.Pos.Line = len(out) + 1
		sp.End = s.instant()
		if a, ok := sp.Start.Get(); ok && a < horizon && s.next(4) > 0 {
			sp.End = trace.Some(a.Add(sec(float64(s.next(100)) / 10)))
		}
		switch s.next(16) { // mostly a tree, sometimes not
		case 0:
			sp.TraceID = []string{"", "2", "3"}[s.next(3)]
		case 1:
			sp.SpanID = fmt.Sprint(s.next(24))
		case 2:
			sp.SpanID = ""
		case 3:
			sp.ParentID = fmt.Sprint(s.next(24))
		case 4, 5:
		default:
			if len(out) > 0 {
				sp.ParentID = out[len(out)-1-s.next(min(4, len(out)))].SpanID
			}
		}
		for range s.next(8) {
			key := fuzzKeys[s.next(len(fuzzKeys))]
			v := s.value()
			if key == "gen_ai.prompt" {
				v = secret
			}
			sp.Attrs = append(sp.Attrs, attributes(key, v)...)
		}
		for range s.next(12) - 5 {
			sp.Events = append(sp.Events, trace.Event{At: s.instant(), Name: fuzzEvents[s.next(len(fuzzEvents))], Attrs: attributes("gen_ai.prompt", secret)})
		}
		out = append(out, sp)
	}
	return out
}

// lines tells everything about a result but in which order it came.
func lines(r result) (out []string) {
	for _, q := range r.requests {
		slices.SortFunc(q.Issues, func(a, b trace.Issue) int { return strings.Compare(a.Error(), b.Error()) })
		out = append(out, fmt.Sprintf("%+v", *q))
	}
	for _, i := range r.issues {
		out = append(out, i.Error())
	}
	slices.Sort(out)
	return out
}

// verify checks what holds for any spans at all.
func verify(t *testing.T, spans []*trace.Span) {
	t.Helper()
	before := fmt.Sprintf("%+v", deref(spans))
	got := run(Options{}, spans...)
	if after := fmt.Sprintf("%+v", deref(spans)); after != before {
		t.Error("the spans were changed")
	}
	for _, r := range got.requests {
		if err := r.Check(); err != nil {
			t.Errorf("%v: %s", err, show(r))
		}
	}
	for _, l := range lines(got) {
		if strings.Contains(l, secret) {
			t.Errorf("a prompt got out: %s", l)
		}
	}
	if len(got.requests) > len(spans) {
		t.Errorf("%d requests of %d spans", len(got.requests), len(spans))
	}
	if again := run(Options{}, spans...); !reflect.DeepEqual(lines(again), lines(got)) {
		t.Error("the same spans gave another result")
	}
	run(Options{MaxOpen: 3}, spans...)
}

func deref(spans []*trace.Span) (out []trace.Span) {
	for _, s := range spans {
		out = append(out, *s)
	}
	return out
}

func randomSpans(rnd *rand.Rand) []*trace.Span {
	data := make([]byte, rnd.IntN(400))
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	return spansOf(data)
}

// unique drops spans whose ids came before.
func unique(spans []*trace.Span) []*trace.Span {
	seen := map[[2]string]bool{}
	return slices.DeleteFunc(spans, func(s *trace.Span) bool {
		k := [2]string{s.TraceID, s.SpanID}
		dup := seen[k] && s.TraceID != "" && s.SpanID != ""
		seen[k] = true
		return dup
	})
}

func TestRandomSpans(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	requests := 0
	for range 1500 {
		spans := randomSpans(rnd)
		verify(t, spans)

		// The order of spans changes nothing but which duplicate counts.
		spans = unique(spans)
		want := run(Options{}, spans...)
		requests += len(want.requests)
		mixed := slices.Clone(spans)
		rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		if got := run(Options{}, mixed...); !reflect.DeepEqual(lines(got), lines(want)) {
			t.Fatalf("the order of spans counts:\n%s\n\n%s", strings.Join(lines(got), "\n"), strings.Join(lines(want), "\n"))
		}
	}
	if requests < 3000 {
		t.Errorf("only %d requests: the spans are too odd to test anything", requests)
	}
}

// A constant added to all times moves instants and no duration.
func TestShiftedSpans(t *testing.T) {
	const by = 12345678901
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		spans := slices.DeleteFunc(randomSpans(rnd), func(s *trace.Span) bool {
			a, z := s.Start.Or(t0), s.End.Or(t0)
			return a < t0 || z < t0 || a > horizon/2 || z > horizon/2
		})
		for _, s := range spans {
			s.Events = slices.DeleteFunc(s.Events, func(e trace.Event) bool { t := e.At.Or(t0); return t < t0 || t > horizon/2 })
		}
		move := func(o trace.Opt[trace.Time]) trace.Opt[trace.Time] {
			if t, ok := o.Get(); ok {
				return trace.Some(t.Add(by))
			}
			return o
		}
		var moved []*trace.Span
		for _, s := range spans {
			m := *s
			m.Start, m.End = move(s.Start), move(s.End)
			m.Events = slices.Clone(s.Events)
			for i := range m.Events {
				m.Events[i].At = move(m.Events[i].At)
			}
			moved = append(moved, &m)
		}
		got, want := run(Options{}, moved...), run(Options{}, spans...)
		if len(got.requests) != len(want.requests) {
			t.Fatalf("%d requests, unmoved %d", len(got.requests), len(want.requests))
		}
		for i, r := range got.requests {
			w := want.requests[i]
			if !reflect.DeepEqual(r.Breakdown(), w.Breakdown()) || r.TTFT() != w.TTFT() || r.Reported != w.Reported || r.Outcome != w.Outcome {
				t.Fatalf("moved:\n%s\n%s", show(r), show(w))
			}
			if a, ok := w.Arrival.Get(); ok && r.Arrival.At != a.Add(by) {
				t.Fatalf("arrival %v, want %v", r.Arrival.At, a.Add(by))
			}
		}
	}
}

func FuzzBuilder(f *testing.F) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		data := make([]byte, rnd.IntN(300))
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		verify(t, spansOf(data))
		samePacked(t, spansOf(data))
	})
}
