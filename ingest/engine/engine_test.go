package engine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

// Times in these tests are seconds after t0; spans are generated.
const t0 trace.Time = 1760000000e9

// at is t0 plus s seconds, exact to the nanosecond for short decimals.
func at(s float64) trace.Opt[trace.Time] { return trace.Some(t0.Add(sec(s))) }

func sec(s float64) time.Duration {
	if s < 0 {
		return -sec(-s)
	}
	return time.Duration(s*1e9 + 0.5)
}

var never trace.Opt[trace.Time]

var ids int

// span makes a span of a vLLM server, with ids of its own. More is read by
// type: attributes as key, value pairs.
func span(name string, start, end trace.Opt[trace.Time], attrs ...any) *trace.Span {
	ids++
	return &trace.Span{
		TraceID: fmt.Sprintf("%032x", ids), SpanID: fmt.Sprintf("%016x", ids),
		Name: name, Kind: trace.KindServer, Scope: "vllm.llm_engine",
		Resource: &trace.Resource{Attrs: []trace.Attr{{Key: "service.name", Value: trace.StringValue("vllm-server")}}},
		Start:    start, End: end, Attrs: attributes(attrs...), Format: "test",
	}
}

func attributes(kv ...any) (out []trace.Attr) {
	for i := 0; i+1 < len(kv); i += 2 {
		var v trace.Value
		switch x := kv[i+1].(type) {
		case string:
			v = trace.StringValue(x)
		case int:
			v = trace.IntValue(int64(x))
		case float64:
			v = trace.FloatValue(x)
		case bool:
			v = trace.BoolValue(x)
		case trace.Value:
			v = x
		}
		key := kv[i].(string)
		if long, ok := short[key]; ok {
			key = long
		}
		out = append(out, trace.Attr{Key: key, Value: v})
	}
	return out
}

// short names of keys in these tests.
var short = map[string]string{
	"queue": "gen_ai.latency.time_in_queue", "ttft": "gen_ai.latency.time_to_first_token", "e2e": "gen_ai.latency.e2e",
	"prefill": "gen_ai.latency.time_in_model_prefill", "decode": "gen_ai.latency.time_in_model_decode",
	"inference": "gen_ai.latency.time_in_model_inference", "id": "gen_ai.request.id",
	"in": "gen_ai.usage.prompt_tokens", "out": "gen_ai.usage.completion_tokens",
}

// with changes a span and returns it.
func with(s *trace.Span, change func(*trace.Span)) *trace.Span {
	change(s)
	return s
}

// below makes child a child of parent.
func below(parent, child *trace.Span) *trace.Span {
	child.TraceID, child.ParentID = parent.TraceID, parent.SpanID
	return child
}

type result struct {
	requests []*trace.Request
	issues   []trace.Issue // of no request
}

func run(o Options, spans ...*trace.Span) (out result) {
	b := NewBuilder(o)
	yield := func(r *trace.Request, i *trace.Issue) bool {
		if r != nil {
			out.requests = append(out.requests, r)
		} else {
			out.issues = append(out.issues, *i)
		}
		return true
	}
	for _, s := range spans {
		b.Add(s, yield)
	}
	b.Finish(yield)
	return out
}

// show writes a request in one line: what a reader can check by arithmetic.
// Times are seconds after t0, with "~" before what is derived.
func show(r *trace.Request) string {
	var w strings.Builder
	sec := func(d time.Duration) string {
		return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.9f", float64(d)/1e9), "0"), ".")
	}
	fmt.Fprintf(&w, "%s %s %s", r.ID, r.Source.Engine, r.Outcome)
	for _, in := range []struct {
		name string
		i    trace.Instant
	}{{"arrival", r.Arrival}, {"queued", r.Queued}, {"scheduled", r.Scheduled}, {"first", r.FirstToken}, {"last", r.LastToken}, {"end", r.Completed}} {
		if t, ok := in.i.Get(); ok {
			mark := ""
			if in.i.Basis != trace.Measured {
				mark = "~"
			}
			fmt.Fprintf(&w, " %s=%s%s", in.name, mark, sec(t.Sub(t0)))
		}
	}
	w.WriteString(" |")
	b := r.Breakdown()
	for _, p := range b.Parts {
		fmt.Fprintf(&w, " %v=%s", p.Phase, sec(p.Dur))
	}
	for _, x := range []struct {
		name string
		d    time.Duration
	}{{"unattributed", b.Unattributed}, {"outside", b.Outside}, {"conflict", b.Conflict}, {"doubled", b.Doubled}} {
		if x.d > 0 {
			fmt.Fprintf(&w, " %s=%s", x.name, sec(x.d))
		}
	}
	if len(r.Issues) > 0 {
		var codes []string
		for _, i := range r.Issues {
			codes = append(codes, string(i.Code))
		}
		slices.Sort(codes)
		fmt.Fprintf(&w, " | %s", strings.Join(codes, " "))
	}
	return w.String()
}

func check(t *testing.T, got result, want ...string) {
	t.Helper()
	var lines []string
	for _, r := range got.requests {
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
		lines = append(lines, show(r))
	}
	for _, i := range got.issues {
		lines = append(lines, "! "+string(i.Code))
	}
	for i := range max(len(lines), len(want)) {
		g, w := "(nothing)", "(nothing)"
		if i < len(lines) {
			g = lines[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d:\n got %s\nwant %s", i, g, w)
		}
	}
}

func TestVLLMV1(t *testing.T) {
	newer := func(s *trace.Span) {
		s.Scope = "vllm.tracing.otel"
		s.Start, s.End = trace.Some[trace.Time](1785312005123456768), trace.Some[trace.Time](1785312008001003211)
	}
	got := run(Options{}, with(span("llm_request", never, never, "ttft", 0.4123, "e2e", 2.8769, "queue", 0.2511,
		"in", 913, "out", 128, "prefill", 0.1402, "decode", 2.4631, "inference", 2.6033,
		"id", "chatcmpl-1", "gen_ai.request.top_p", 1.0, "gen_ai.request.max_tokens", 128), newer))
	if len(got.requests) != 1 || len(got.issues) != 0 {
		t.Fatalf("got %d requests, issues %v", len(got.requests), got.issues)
	}
	r := got.requests[0]
	b := r.Breakdown()
	// The span is 2.877546443 s long.
	for _, p := range []struct {
		phase trace.Phase
		want  time.Duration
	}{
		{trace.Queueing, 251100000}, {trace.Prefill, 140200000}, {trace.Decode, 2463100000},
		{trace.Arrival | trace.Completion, 2877546443 - 251100000 - 2603300000},
		{trace.Unattributed, 0},
	} {
		if d := b.Of(p.phase); d != p.want {
			t.Errorf("%v: %d, want %d", p.phase, d, p.want)
		}
	}
	// The chain has its first token at start + ttft: 0.4123 − 0.1402 − 0.2511 = 0.021 after the start.
	if d := r.Queued.Sub(r.Arrival).Or(-1); d != 21*time.Millisecond {
		t.Errorf("queued %v after arrival", d)
	}
	if d := r.TTFT().Or(0); d != 412300*time.Microsecond || r.FirstToken.Basis != trace.Measured {
		t.Errorf("ttft %v, %v", d, r.FirstToken.Basis)
	}
	if r.Source.Engine != "vllm-v1" || r.MaxTokens.Or(0) != 128 || r.Input.Or(0) != 913 || r.Output.Or(0) != 128 || len(r.Issues) != 0 {
		t.Errorf("%+v", r)
	}
}
