package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/ingest"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// examine writes spans, reads them back and checks what came.
func examine(tb testing.TB, spans []*trace.Span, readings []trace.Reading) analyze.Physics {
	tb.Helper()
	var b bytes.Buffer
	if err := sim.Encode(&b, spans, sim.Encoding{Form: sim.Prefixed}); err != nil {
		tb.Fatal(err)
	}
	in := ingest.Input{Name: "x", Size: int64(b.Len()), Open: func() (io.ReadCloser, error) { return io.NopCloser(&b), nil }}
	var c analyze.Check
	for r, err := range ingest.Requests(context.Background(), []ingest.Input{in}, ingest.Options{}) {
		var issue *trace.Issue
		if errors.As(err, &issue) {
			continue
		}
		if err != nil {
			tb.Fatal(err)
		}
		c.Add(r)
	}
	for _, r := range readings {
		c.AddReading(r)
	}
	return c.Report(1).Physics
}

// with lists the laws of a verdict, sorted.
func with(p analyze.Physics, v analyze.Verdict) []string {
	var names []string
	for _, l := range p.Laws {
		if l.Verdict == v {
			names = append(names, l.Law)
		}
	}
	slices.Sort(names)
	return names
}

func explain(p analyze.Physics) string {
	var b strings.Builder
	for _, l := range p.Laws {
		fmt.Fprintf(&b, "\n  %s %s: %s | %s", l.Law, l.Verdict, l.Found, l.Likely)
	}
	return b.String()
}

// A writing is a way in which a run becomes spans.
type writing struct {
	name  string
	spans func([]*trace.Request) []*trace.Span
}

var writings = []writing{
	{"v1", func(rs []*trace.Request) []*trace.Span { return sim.V1(rs, sim.VLLM{}) }},
	{"child spans", sim.ChildSpans},
	{"gateway", sim.Gateway},
	{"v0", func(rs []*trace.Request) []*trace.Span { return sim.V0(rs, sim.VLLM{Attrs: true}) }},
}

// scenario returns a run of a scenario, with time in the front end and with
// readings.
func scenario(tb testing.TB, s sim.Scenario) *sim.Run {
	tb.Helper()
	s.Before, s.After, s.Every = 2*time.Millisecond, time.Millisecond, 500*time.Millisecond
	run, err := s.Run()
	if err != nil {
		tb.Fatal(err)
	}
	return run
}

// clean calls f with runs without defects: every scenario in turn, as every
// kind of spans in turn, with readings and without, one in four of an untidy
// engine, one in five cut at both ends under load. vLLM's spans and the gateway's are not clean where requests abort.
func clean(tb testing.TB, n int, f func(name string, p analyze.Physics)) {
	for i, seed := 0, uint64(1); i < n; seed++ {
		for k, s := range sim.Scenarios(seed) {
			if i == n {
				return
			}
			w := writings[(k+int(seed))%len(writings)]
			if slices.ContainsFunc(s.Tenants, func(t sim.Tenant) bool { return t.Abort+t.Fail > 0 }) {
				w = writings[1]
			}
			if i%4 == 3 {
				s.Unkind = sim.Unkind{ChunkMemory: s.Chunked, Async: s.Chunked, Scatter: 2 * time.Millisecond, Uneven: 0.2}
			}
			run := scenario(tb, s)
			readings := run.Readings
			if i%3 == 0 {
				readings = nil
			}
			spans := w.spans(run.Requests)
			if i%5 == 2 {
				spans = window(spans, 20*time.Second, 70*time.Second)
			}
			f(fmt.Sprintf("%d: %s, seed %d, as %s, %d readings", i, s.Name, seed, w.name, len(readings)), examine(tb, spans, readings))
			i++
		}
	}
}

func TestCleanTraces(t *testing.T) {
	clean(t, 22, func(name string, p analyze.Physics) {
		if f := with(p, analyze.Fails); len(f) > 0 {
			t.Errorf("%s: %v%s", name, f, explain(p))
		}
	})
}

// BenchmarkCheckClean counts the laws that fail on runs without defects: the
// rate of false alarms.
func BenchmarkCheckClean(b *testing.B) {
	const runs = 300
	for b.Loop() {
		alarms, laws := 0, map[analyze.Verdict]int{}
		clean(b, runs, func(name string, p analyze.Physics) {
			if f := with(p, analyze.Fails); len(f) > 0 {
				alarms++
				b.Logf("%s: %v", name, f)
			}
			for _, l := range p.Laws {
				laws[l.Verdict]++
			}
		})
		b.ReportMetric(float64(alarms), "alarms")
		b.ReportMetric(runs, "runs")
		b.ReportMetric(float64(laws[analyze.Untested])/runs, "untested/run")
	}
}

// thin keeps each trace with that probability.
func thin(spans []*trace.Span, p float64, seed uint64) []*trace.Span {
	rnd := rand.New(rand.NewPCG(seed, 1))
	kept := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(spans), func(s *trace.Span) bool {
		k, ok := kept[s.TraceID]
		if !ok {
			k = rnd.Float64() < p
			kept[s.TraceID] = k
		}
		return !k
	})
}

// window keeps the traces whose last span ends between two instants: those that
// an exporter wrote meanwhile.
func window(spans []*trace.Span, from, to time.Duration) []*trace.Span {
	ends := map[string]trace.Time{}
	for _, s := range spans {
		ends[s.TraceID] = max(ends[s.TraceID], s.End.Or(0))
	}
	return slices.DeleteFunc(slices.Clone(spans), func(s *trace.Span) bool {
		return ends[s.TraceID] < sim.Base.Add(from) || ends[s.TraceID] > sim.Base.Add(to)
	})
}

// lose drops the spans of a replica that end after an instant.
func lose(spans []*trace.Span, replica string, after time.Duration) []*trace.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s *trace.Span) bool {
		v, _ := s.ResourceAttr("service.instance.id")
		return v.String() == replica && s.End.Or(0) > sim.Base.Add(after)
	})
}

// scaled multiplies latencies of all spans, as if their unit were another.
func scaled(spans []*trace.Span, by float64, keys ...string) []*trace.Span {
	out := slices.Clone(spans)
	for i, s := range out {
		for _, key := range keys {
			if v, ok := s.Attr("gen_ai.latency." + key); ok {
				f, _ := v.Float()
				out = sim.SetAttr(out, i, "gen_ai.latency."+key, trace.FloatValue(f*by))
			}
		}
	}
	return out
}

var latencies = []string{"time_in_queue", "time_in_model_prefill", "time_in_model_decode", "time_in_model_inference", "time_to_first_token", "e2e"}

// TestDefectsFound plants one defect at a time into clean runs. seen are the
// laws that must fail, no others may; blind are laws that must not claim to
// hold, where the data cannot show the defect.
func TestDefectsFound(t *testing.T) {
	scenarios := map[string]sim.Scenario{}
	for _, s := range sim.Scenarios(3) {
		scenarios[s.Name] = s
	}
	aborting := func(name string, share float64) sim.Scenario {
		s := scenarios[name]
		s.Tenants = slices.Clone(s.Tenants)
		for i := range s.Tenants {
			s.Tenants[i].Abort = share
		}
		return s
	}
	v1, child, gateway := writings[0].spans, writings[1].spans, writings[2].spans
	type spans = []*trace.Span
	same := func(s spans) spans { return s }
	few := func(s spans) spans { return thin(s, 0.1, 1) }
	skew := func(d time.Duration) func(spans) spans {
		return func(s spans) spans { return sim.Skew(s, "engine", d) }
	}
	lost := func(s spans) spans { return lose(s, "replica-2", 0) }
	lostLate := func(s spans) spans { return lose(s, "replica-2", 50*time.Second) }
	for _, c := range []struct {
		name     string
		scenario sim.Scenario
		as       func([]*trace.Request) spans
		spoil    func(spans) spans
		readings bool
		seen     []string
		blind    []string
	}{
		{"engine's clock 50 ms ahead", scenarios["four balanced"], gateway, skew(50 * time.Millisecond), true, []string{"nesting"}, nil},
		{"engine's clock 50 ms behind", scenarios["slots, near"], gateway, skew(-50 * time.Millisecond), false, []string{"nesting"}, nil},
		{"engine's clock 50 ms ahead, nothing around it", scenarios["slots, near"], v1, skew(50 * time.Millisecond), false, nil, []string{"nesting"}},
		{"5 % aborted without a span, readings", aborting("slots, near", 0.05), v1, same, true, []string{"depth", "failures", "holders"}, nil},
		{"5 % aborted without a span, gateway", aborting("slots, near", 0.05), gateway, same, false, []string{"failures", "holders"}, nil},
		{"5 % aborted without a span", aborting("slots, near", 0.05), v1, same, false, []string{"holders"}, []string{"failures", "depth"}},
		{"5 % aborted without a span, light", aborting("light", 0.05), v1, same, false, nil, []string{"failures", "depth"}},
		{"5 % aborted, with spans", aborting("slots, near", 0.05), child, same, true, nil, nil},
		{"all latencies in milliseconds", scenarios["slots, near"], v1, func(s spans) spans { return scaled(s, 1000, latencies...) }, false, []string{"holders", "idle", "order", "phases", "units"}, nil},
		{"decode in milliseconds", scenarios["slots, near"], v1, func(s spans) spans { return scaled(s, 1000, "time_in_model_decode") }, false, []string{"units"}, nil},
		{"latencies a thousandth", scenarios["slots, near"], v1, func(s spans) spans { return scaled(s, 0.001, latencies...) }, false, []string{"idle", "tokens", "units"}, nil},
		{"a tenth sampled, readings", scenarios["slots, over"], v1, few, true, []string{"depth", "holders", "idle", "sampling"}, nil},
		{"a tenth sampled, four replicas, readings", scenarios["four balanced"], child, few, true, []string{"depth", "holders", "idle", "sampling"}, nil},
		{"5 % aborted in a long queue, readings", aborting("slots, over", 0.05), v1, same, true, nil, []string{"failures"}},
		{"nine tenths sampled, readings", scenarios["long prompts"], child, func(s spans) spans { return thin(s, 0.9, 1) }, true, []string{"depth", "failures"}, []string{"sampling"}},
		{"a tenth sampled, slots", scenarios["slots, near"], v1, few, false, []string{"holders", "idle"}, []string{"sampling", "depth", "failures"}},
		{"a tenth sampled, memory", scenarios["memory, over"], child, few, false, []string{"holders"}, []string{"sampling", "depth", "failures"}},
		{"a tenth sampled, light", scenarios["light"], v1, few, false, nil, []string{"sampling", "depth", "failures", "holders"}},
		{"a replica's spans lost, gateway", scenarios["four balanced"], gateway, lost, false, []string{"joined"}, nil},
		{"a replica's spans lost, readings", scenarios["four balanced"], v1, lost, true, []string{"depth"}, nil},
		{"a replica's spans lost", scenarios["four balanced"], v1, lost, false, nil, []string{"depth", "sampling"}},
		{"a replica's spans lost half way, readings", scenarios["four balanced"], v1, lostLate, true, []string{"depth", "silence"}, nil},
		{"a replica's spans lost half way", scenarios["four balanced"], v1, lostLate, false, []string{"silence"}, nil},
		{"a replica's spans lost half way, round robin", scenarios["one of four frozen"], child, lostLate, false, []string{"silence"}, nil},
	} {
		run := scenario(t, c.scenario)
		readings := run.Readings
		if !c.readings {
			readings = nil
		}
		p := examine(t, c.spoil(c.as(run.Requests)), readings)
		if got := with(p, analyze.Fails); !slices.Equal(got, c.seen) {
			t.Errorf("%s: %v fail, want %v%s", c.name, got, c.seen, explain(p))
		}
		untested := with(p, analyze.Untested)
		for _, b := range c.blind {
			if !slices.Contains(untested, b) {
				t.Errorf("%s: %s is blind here, and does not say so%s", c.name, b, explain(p))
			}
		}
	}
}
