package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/traceview/traceview/ingest"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// truth is a run in which everything happens: bursts, preemptions, aborts,
// errors, rejections.
func truth(t *testing.T) *sim.Run {
	t.Helper()
	const ms = time.Millisecond
	run, err := sim.Engine{
		Seed: 11, Service: "s", Model: "m", Replicas: 2, Routing: sim.LeastLoaded, Slots: 6, Budget: 256, Chunked: true, Blocks: 90, Limit: 800,
		Base: 10 * ms, PerPrefill: 50 * time.Microsecond, PerDecode: 300 * time.Microsecond, Before: 2 * ms, After: ms, Every: 2 * time.Second,
		Tenants: []sim.Tenant{
			{Name: "a", Requests: 150, Rate: 10, Prompt: sim.Length{Min: 5, Max: 400, Skew: 1}, Output: sim.Length{Min: 1, Max: 150}, Abort: 0.1, Fail: 0.05},
			{Name: "b", Requests: 60, Rate: 4, Burst: 15, Prompt: sim.Length{Min: 200, Max: 780}, Output: sim.Length{Min: 10, Max: 60}},
		},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// read reads one input and returns its requests and all codes.
func read(t *testing.T, data []byte, o ingest.Options) ([]*trace.Request, []trace.Code) {
	t.Helper()
	in := ingest.Input{Name: "x", Size: int64(len(data)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
	var rs []*trace.Request
	var codes []trace.Code
	for r, err := range ingest.Requests(context.Background(), []ingest.Input{in}, o) {
		var issue *trace.Issue
		if errors.As(err, &issue) {
			codes = append(codes, issue.Code)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
		for _, i := range r.Issues {
			codes = append(codes, i.Code)
		}
	}
	slices.Sort(codes)
	return rs, slices.Compact(codes)
}

// shown is what must agree between a request and what a format lets be known.
func shown(r *trace.Request) string {
	b := r.Breakdown()
	return fmt.Sprint(b.Parts, b.Unattributed, r.ID, r.SpanID, r.Service, r.Replica, r.Model, r.Arrival, r.FirstToken.At, r.Completed,
		r.Input, r.Output, r.MaxTokens, r.Preemptions, r.Outcome, r.FinishReason, r.Resolution)
}

// TestTruth writes a run as every engine, in the containers, and must get it
// back to the nanosecond that the format carries.
func TestTruth(t *testing.T) {
	run := truth(t)
	rs := run.Requests
	for i, c := range []struct {
		name  string
		spans []*trace.Span
		want  []*trace.Request
		codes []trace.Code
	}{
		{"v1", sim.V1(rs, sim.VLLM{Attrs: true}), sim.VisibleV1(rs, sim.VLLM{Attrs: true}), nil},
		{"v0", sim.V0(rs, sim.VLLM{}), sim.VisibleV0(rs, sim.VLLM{}), nil},
		{"child spans", sim.ChildSpans(rs), sim.VisibleChildSpans(rs), nil},
		{"gateway", sim.Gateway(rs), sim.VisibleGateway(rs), []trace.Code{trace.EngineUnknown}}, // requests that only the gateway knows
		{"sglang", sim.SGLang(rs, sim.SGLangShape{Ranks: 2, Steps: 3}), sim.VisibleSGLang(rs), nil},
		{"sglang halves", sim.SGLangHalves(rs), sim.VisibleSGLangHalves(rs), nil},
		{"triton", sim.Triton(rs), sim.VisibleTriton(rs), nil},
		{"tensorrt", sim.TensorRT(rs), sim.VisibleTensorRT(rs), nil},
		{"tgi", sim.TGI(rs), sim.VisibleTGI(rs), nil},
		{"dynamo", sim.Dynamo(rs), sim.VisibleDynamo(rs), nil},
		{"llm-d", sim.LLMD(rs), sim.VisibleLLMD(rs), nil},
		{"server beside", sim.Instrumented(rs), sim.VisibleInstrumented(rs), []trace.Code{trace.MissingParent}}, // the caller's
		{"ray serve", sim.RayServe(rs), sim.VisibleRayServe(rs), nil},
		{"litellm", sim.LiteLLM(rs), sim.VisibleLiteLLM(rs), nil},
		{"envoy", sim.Envoy(rs), sim.VisibleEnvoy(rs), nil},
		{"clients", sim.Clients(rs), sim.VisibleClients(rs), nil},
		{"unknown", sim.Unknown(rs), sim.VisibleUnknown(rs), []trace.Code{trace.EngineUnknown}},
	} {
		forms, comps := sim.Forms(), sim.Compressions()
		for _, form := range forms {
			for _, comp := range comps {
				// All pairs for the first; what it is packed in is not the others' business.
				if i > 3 && form != forms[i%len(forms)] && comp != comps[i%len(comps)] {
					continue
				}
				name := fmt.Sprintf("%s %s %s", c.name, form, comp)
				var b bytes.Buffer
				if err := sim.Encode(&b, c.spans, sim.Encoding{Form: form, Compression: comp}); err != nil {
					t.Fatal(err)
				}
				got, codes := read(t, b.Bytes(), ingest.Options{})
				if !slices.Equal(codes, c.codes) {
					t.Errorf("%s: issues %v, want %v", name, codes, c.codes)
				}
				byID := map[string]*trace.Request{}
				for _, r := range got {
					byID[r.TraceID] = r
				}
				if len(got) != len(c.want) || len(byID) != len(got) {
					t.Errorf("%s: %d requests, want %d", name, len(got), len(c.want))
				}
				for _, w := range c.want {
					g := byID[w.TraceID]
					if g == nil || shown(g) != shown(w) {
						t.Fatalf("%s:\n got %v\nwant %v", name, g, shown(w))
					}
					for _, a := range w.Attrs {
						if v, _ := g.Attr(a.Key); v != a.Value {
							t.Fatalf("%s: %s is %v, want %v", name, a.Key, v, a.Value)
						}
					}
				}
			}
		}
	}
}

// TestTruthSpanFiles writes a run as engines whose times are in attributes and
// as one whose phases are spans, in every container that is not OTLP, and must
// get it back within what the container's clock leaves open.
func TestTruthSpanFiles(t *testing.T) {
	rs := truth(t).Requests
	for _, c := range []struct {
		name  string
		spans []*trace.Span
		want  []*trace.Request
		codes []trace.Code
	}{
		{"v1", sim.V1(rs, sim.VLLM{Attrs: true}), sim.VisibleV1(rs, sim.VLLM{Attrs: true}), nil},
		{"child spans", sim.ChildSpans(rs), sim.VisibleChildSpans(rs), nil},
		{"gateway", sim.Gateway(rs), sim.VisibleGateway(rs), []trace.Code{trace.EngineUnknown}},
	} {
		for _, form := range sim.SpanFiles() {
			for _, comp := range []sim.Compression{sim.Plain, sim.Gzip, sim.Zstd} {
				name := fmt.Sprintf("%s %s %s", c.name, form, comp)
				var b bytes.Buffer
				if err := sim.Encode(&b, c.spans, sim.Encoding{Form: form, Compression: comp}); err != nil {
					t.Fatal(err)
				}
				got, codes := read(t, b.Bytes(), ingest.Options{Zone: time.UTC})
				if !slices.Equal(codes, c.codes) {
					t.Errorf("%s: issues %v, want %v", name, codes, c.codes)
				}
				byID := map[string]*trace.Request{}
				for _, r := range got {
					byID[r.TraceID] = r
				}
				if len(got) != len(c.want) || len(byID) != len(got) {
					t.Errorf("%s: %d requests, want %d", name, len(got), len(c.want))
				}
				for _, w := range c.want {
					g := byID[w.TraceID]
					if g == nil {
						t.Fatalf("%s: request %s of trace %s is missing", name, w.ID, w.TraceID)
					}
					if why := differ(g, w, form); why != "" {
						t.Fatalf("%s: %s: %s\n got %v\nwant %v", name, w.ID, why, shown(g), shown(w))
					}
				}
			}
		}
	}
}

// differ says how a request that was read from that form is not the one that
// was written. Each instant is cut to the form's step, so that a duration is
// off by less than one step and a part, between two of them, by less than two.
func differ(g, w *trace.Request, form sim.Form) string {
	off := trace.Time(form.Step() - 1)
	near := func(a, b trace.Instant) bool {
		return a.Present() == b.Present() && a.At-b.At <= 2*off && b.At-a.At <= 2*off
	}
	gb, wb := g.Breakdown(), w.Breakdown()
	sum := func(b trace.Breakdown, p trace.Phase) (d time.Duration) {
		for _, part := range b.Parts {
			if part.Phase == p {
				d += part.Dur
			}
		}
		return d
	}
	for _, b := range []trace.Breakdown{gb, wb} {
		for _, part := range b.Parts {
			if d := sum(gb, part.Phase) - sum(wb, part.Phase); d.Abs() > 2*time.Duration(off) {
				return fmt.Sprintf("%v is off by %v", part.Phase, d)
			}
		}
	}
	switch {
	case gb.Check() != nil:
		return gb.Check().Error()
	case g.Resolution != form.Step():
		return fmt.Sprintf("resolution %v", g.Resolution)
	case !near(g.Arrival, w.Arrival), !near(g.FirstToken, w.FirstToken), !near(g.Completed, w.Completed):
		return "an instant"
	case fmt.Sprint(g.ID, g.SpanID, g.Service, g.Replica, g.Model, g.Input, g.Output, g.MaxTokens, g.Preemptions, g.Outcome, g.FinishReason) !=
		fmt.Sprint(w.ID, w.SpanID, w.Service, w.Replica, w.Model, w.Input, w.Output, w.MaxTokens, w.Preemptions, w.Outcome, w.FinishReason):
		return "a field"
	}
	for _, a := range w.Attrs {
		if v, _ := g.Attr(a.Key); v != a.Value && (!form.Untyped() || v.String() != a.Value.String()) {
			return fmt.Sprintf("%s is %v, want %v", a.Key, v, a.Value)
		}
	}
	return ""
}

// TestTruthLog writes a run as every version's log in every wrapper.
func TestTruthLog(t *testing.T) {
	run := truth(t)
	for _, version := range sim.LogVersions() {
		for _, wrapper := range sim.Wrappers() {
			for _, crlf := range []bool{false, true} {
				o := sim.LogShape{Version: version, Wrapper: wrapper, CRLF: crlf, Outputs: version == sim.Log10 || version == sim.Log16}
				if crlf {
					o.Piece = 100 // some lines are split between CR and LF
				}
				var b bytes.Buffer
				if err := sim.Log(&b, run, "replica-0", o); err != nil {
					t.Fatal(err)
				}
				var readings []trace.Reading
				got, _ := read(t, b.Bytes(), ingest.Options{Year: 2025, Zone: time.UTC, Reading: func(r trace.Reading) {
					r.Source = trace.Source{}
					readings = append(readings, r)
				}})
				byID := map[string]*trace.Request{}
				for _, r := range got {
					byID[r.ID] = r
				}
				want := sim.VisibleLog(run, "replica-0", o)
				if len(got) != len(want) {
					t.Errorf("%+v: %d requests, want %d", o, len(got), len(want))
				}
				for _, w := range want {
					if g := byID[w.ID]; g == nil || shown(g) != shown(w) {
						t.Fatalf("%+v:\n got %v\nwant %v", o, g, shown(w))
					}
				}
				if w := sim.VisibleReadings(run, "replica-0", o); !slices.Equal(readings, w) {
					t.Errorf("%+v: readings\n got %+v\nwant %+v", o, readings, w)
				}
			}
		}
	}
}

// TestDefects: each ordered defect gives exactly its issues, loses what it must
// and leaves the rest as it was.
func TestDefects(t *testing.T) {
	run := truth(t)
	want := map[string][]trace.Part{}
	for _, v := range sim.VisibleV1(run.Requests, sim.VLLM{}) {
		b := v.Breakdown()
		want[v.ID] = b.Parts
	}
	for _, d := range sim.Defects() {
		data, err := d.Make(run)
		if err != nil {
			t.Fatal(err)
		}
		got, codes := read(t, data, ingest.Options{})
		wantCodes := slices.Sorted(slices.Values(d.Codes))
		if !slices.Equal(codes, wantCodes) {
			t.Errorf("%s: issues %v, want %v", d.Name, codes, wantCodes)
		}
		if len(got) != len(want)-d.Lost {
			t.Errorf("%s: %d requests, want %d", d.Name, len(got), len(want)-d.Lost)
		}
		changed := 0
		for _, r := range got {
			if b := r.Breakdown(); !slices.Equal(b.Parts, want[r.ID]) {
				changed++
			}
		}
		if (changed == 0) != d.Whole {
			t.Errorf("%s: %d requests changed", d.Name, changed)
		}
	}
}

// TestTruthRecords writes a run as records of single requests in every form, and
// must get back what the form tells of it.
func TestTruthRecords(t *testing.T) {
	rs := truth(t).Requests
	tell := func(r *trace.Request) string {
		b := r.Breakdown()
		return fmt.Sprint(b.Parts, b.Unattributed, r.ID, r.Service, r.Replica, r.Model, r.Clock, r.Arrival.At, r.Queued.At, r.Scheduled.At, r.FirstToken.At,
			r.LastToken.At, r.Completed.At, r.Input, r.Output, r.MaxTokens, r.Preemptions, r.Outcome, r.Resolution)
	}
	for _, form := range sim.RecordForms() {
		var b bytes.Buffer
		if err := sim.WriteRecords(&b, rs, form); err != nil {
			t.Fatal(err)
		}
		got, codes := read(t, b.Bytes(), ingest.Options{})
		want := sim.VisibleRecords(rs, form)
		if len(codes) > 0 || len(got) != len(want) {
			t.Errorf("%s: %d requests, want %d; issues %v", form, len(got), len(want), codes)
			continue
		}
		for i, w := range want {
			g := got[i]
			if g.Source.Format != string(form) {
				t.Fatalf("%s is read as %s", form, g.Source.Format)
			}
			if err := g.Check(); err != nil || tell(g) != tell(w) {
				t.Fatalf("%s: %v\n got %s\nwant %s", form, err, tell(g), tell(w))
			}
		}
	}
}
