package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// samePacked fails if what waits of spans is not what came. It returns how
// many were packed.
func samePacked(t *testing.T, spans []*trace.Span) (packed int) {
	t.Helper()
	b := NewBuilder(Options{})
	g := &group{id: "g"}
	var want []*node
	for _, s := range spans {
		n := &node{}
		b.fill(n, s)
		n.traceID = g.id
		want = append(want, n)
		if packs(g, n) {
			b.pack(g, n)
			packed++
		} else if b.keep(g, n); len(g.nodes) == 0 {
			t.Fatal("not kept")
		}
	}
	got := b.all(g)
	same := func(x, y *resource) bool { return x == y }
	opts := cmp.Options{cmp.AllowUnexported(node{}, attr{}, mark{}, sglSpan{}, trace.Opt[trace.Time]{}, trace.Opt[time.Duration]{}, trace.Value{}),
		cmp.Comparer(same), cmpopts.EquateEmpty(), cmpopts.IgnoreFields(node{}, "gate", "triton", "tgi", "dynamo", "client")}
	for i, n := range want {
		if d := cmp.Diff(n, got[i], opts); d != "" {
			t.Fatalf("span %d of %d (- came, + waited):\n%s", i, len(spans), d)
		}
	}
	if again := b.all(g); len(again) != len(want) {
		t.Fatalf("%d at the second look, %d before", len(again), len(want))
	}
	return packed
}

// tightRun is what an engine with few slots and little memory served, failed and
// lost of so many requests: requests of every outcome, and preempted ones.
func tightRun(t *testing.T, seed uint64, requests int) []*trace.Request {
	t.Helper()
	e := sim.Engine{
		Seed: seed, Service: "s", Model: "m", Replicas: 2, Routing: sim.RoundRobin, Slots: 4, Budget: 512, Chunked: true, Limit: 2000, Blocks: 130,
		Base: 5 * time.Millisecond, Before: time.Millisecond, After: time.Millisecond,
		Tenants: []sim.Tenant{{Name: "a", Requests: requests, Rate: 40, Prompt: sim.Length{Min: 5, Max: 900}, Output: sim.Length{Min: 1, Max: 100}, Abort: 0.1, Fail: 0.1}},
	}
	run, err := e.Run()
	if err != nil {
		t.Fatal(err)
	}
	return run.Requests
}

func TestPacking(t *testing.T) {
	rs := tightRun(t, 3, 60)
	for name, spans := range map[string][]*trace.Span{
		"v1": sim.V1(rs, sim.VLLM{Attrs: true}), "v0": sim.V0(rs, sim.VLLM{}), "children": sim.ChildSpans(rs), "gateway": sim.Gateway(rs),
		"unknown": sim.Unknown(rs), "sglang": sim.SGLang(rs, sim.SGLangShape{Ranks: 2}), "llm-d": sim.LLMD(rs), "clients": sim.Clients(rs),
		"ray": sim.RayServe(rs), "litellm": sim.LiteLLM(rs), "envoy": sim.Envoy(rs), "tensorrt": sim.TensorRT(rs), "dynamo": sim.Dynamo(rs),
	} {
		n := samePacked(t, spans)
		if name == "children" && n < 300 {
			t.Errorf("only %d of %d child spans are packed", n, len(spans))
		}
	}
	rnd := rand.New(rand.NewPCG(7, 8))
	data := make([]byte, 1000)
	for range 300 {
		for i := range data {
			data[i] = byte(rnd.Uint32())
		}
		samePacked(t, spansOf(data[:rnd.IntN(len(data))]))
	}
}

// A text may be longer than what gets a number, an id anything.
func TestPackingOdd(t *testing.T) {
	long := string(slices.Repeat([]byte("x"), 3*maxText))
	res := &trace.Resource{}
	samePacked(t, []*trace.Span{
		{TraceID: "t", SpanID: "ABCDEF01", ParentID: "abc", Name: long, Resource: res, Scope: long, Kind: 99, Pos: trace.Pos{File: "f", Offset: 1 << 40, Line: 1 << 30, Path: long}},
		{TraceID: "t", SpanID: "0", ParentID: "", Resource: res, Start: trace.Some(trace.Time(1)), End: trace.Some(horizon - 1)},
		{TraceID: "t", SpanID: "00", ParentID: "é", Resource: &trace.Resource{}, Start: trace.Some(trace.Time(5)), Step: time.Second, Untyped: true, Attrs: []trace.Attr{
			{Key: "gen_ai.request.id", Value: trace.StringValue(long[:maxText])}, {Key: "a", Value: trace.BoolValue(true)}, {Key: "b", Value: trace.BoolValue(false)},
			{Key: "c", Value: trace.FloatValue(0.1)}, {Key: "gen_ai.usage.prompt_tokens", Value: trace.IntValue(-1 << 63)}, {Key: "gen_ai.request.model"},
			{Key: "gen_ai.response.finish_reasons", Value: trace.JSONValue(`["stop"]`)}}},
	})
	b := NewBuilder(Options{})
	for i := range maxTexts + 2 {
		b.packed.id(string(rune(i + 0x10000)))
	}
	if n := len(b.packed.list); n != maxTexts {
		t.Errorf("%d texts have numbers", n)
	}
}
