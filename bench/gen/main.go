// Gen writes traces of any size, for measuring what reading them costs:
//
//	go run ./bench/gen -shape spans -requests 1000000 -o spans.jsonl
//
// A seed decides every byte. Requests are simulated and written in blocks that
// follow each other in time, so that memory does not grow with the size.
package main

import (
	"bufio"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// shapes are the ways in which requests can be written; log, a server's text
// log, is one more.
var shapes = map[string]func([]*trace.Request) []*trace.Span{
	"spans":    vllm,
	"children": sim.ChildSpans,
	"gateway":  sim.Gateway,
	"mixed":    mixed,
}

func vllm(rs []*trace.Request) []*trace.Span { return sim.V1(rs, sim.VLLM{Attrs: true}) }

// mixed gives every engine some requests in a row.
func mixed(rs []*trace.Request) []*trace.Span {
	engines := []func([]*trace.Request) []*trace.Span{
		vllm, sim.ChildSpans, sim.Gateway,
		func(rs []*trace.Request) []*trace.Span { return sim.V0(rs, sim.VLLM{Attrs: true}) },
		func(rs []*trace.Request) []*trace.Span { return sim.SGLang(rs, sim.SGLangShape{}) },
	}
	var spans []*trace.Span
	i := 0
	for some := range slices.Chunk(rs, 250) {
		spans = append(spans, engines[i%len(engines)](some)...)
		i++
	}
	return spans
}

type options struct {
	shape    string
	form     sim.Form
	requests int
	block    int // how many are simulated at once
	seed     uint64
}

func main() {
	o := options{block: 20_000}
	names := slices.Sorted(maps.Keys(shapes))
	flag.StringVar(&o.shape, "shape", "spans", strings.Join(names, ", ")+" or log")
	flag.StringVar((*string)(&o.form), "form", string(sim.Lines), "lines (JSON) or prefixed (protobuf), where the shape is of spans")
	flag.IntVar(&o.requests, "requests", 100_000, "how many")
	flag.Uint64Var(&o.seed, "seed", 1, "decides every byte")
	to := flag.String("o", "-", "the file to write; -: standard output")
	flag.Parse()
	if err := run(o, *to); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(o options, to string) (err error) {
	f := os.Stdout
	if to != "-" {
		if f, err = os.Create(to); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
	}
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w, o); err != nil {
		return err
	}
	return w.Flush()
}

// write writes the requests, block after block.
func write(w io.Writer, o options) error {
	spans, ok := shapes[o.shape]
	if !ok && o.shape != "log" {
		return fmt.Errorf("no such shape: %q", o.shape)
	}
	if o.form != sim.Lines && o.form != sim.Prefixed {
		return fmt.Errorf("no such form: %q", o.form)
	}
	if o.requests < 1 || o.seed > 1<<30 {
		return errors.New("one request at least, and no seed above a billion")
	}
	var later time.Duration
	for i, left := uint64(0), o.requests; left > 0; i, left = i+1, left-o.block {
		run, err := engine(o.seed<<32+2*i, min(left, o.block), o.shape == "log").Run()
		if err != nil {
			return err
		}
		end := sim.Base
		for _, r := range run.Requests {
			end = max(end, r.Completed.At)
			shift(r, later)
		}
		for i := range run.Readings {
			run.Readings[i].At = run.Readings[i].At.Add(later)
		}
		later += end.Sub(sim.Base)
		if o.shape == "log" {
			err = sim.Log(w, run, "replica-0", sim.LogShape{Version: sim.Log10, Outputs: true})
		} else {
			err = batches(w, spans(run.Requests), o.form)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// engine is near its limit, and has a tenant that sends long prompts, many at
// once. A log is of one replica.
func engine(seed uint64, requests int, log bool) sim.Engine {
	const us, ms = time.Microsecond, time.Millisecond
	e := sim.Engine{
		Seed: seed, Service: "engine", Model: "demo-8b", Replicas: 8, Routing: sim.RoundRobin,
		Slots: 32, Budget: 4096, Chunked: true, Limit: 8000,
		Base: 10 * ms, PerPrefill: 30 * us, PerDecode: 100 * us, Before: 3 * ms, After: ms, Every: 10 * time.Second,
		Tenants: []sim.Tenant{
			{Name: "chat", Requests: requests - requests/5, Rate: 80, Prompt: sim.Length{Min: 20, Max: 1500, Skew: 2}, Output: sim.Length{Min: 5, Max: 300, Skew: 1}, Abort: 0.01, Fail: 0.005},
			{Name: "batch", Requests: requests / 5, Rate: 20, Burst: 40, Prompt: sim.Length{Min: 1000, Max: 6000, Skew: 1}, Output: sim.Length{Min: 40, Max: 150}},
		},
	}
	if log {
		e.Replicas = 1
		for i := range e.Tenants {
			e.Tenants[i].Rate /= 8
		}
	}
	return e
}

// shift moves all that is known of r by d.
func shift(r *trace.Request, d time.Duration) {
	for _, i := range []*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
		if t, ok := i.Get(); ok {
			i.At = t.Add(d)
		}
	}
	for k := range r.Intervals {
		r.Intervals[k].Start, r.Intervals[k].End = r.Intervals[k].Start.Add(d), r.Intervals[k].End.Add(d)
	}
}

// batches writes spans as processes export them: each its own, by their end, so
// many at a time.
func batches(w io.Writer, spans []*trace.Span, form sim.Form) error {
	const size = 64
	var of []*trace.Resource // in the order of their first spans
	by := map[*trace.Resource][]*trace.Span{}
	for _, s := range spans {
		if by[s.Resource] == nil {
			of = append(of, s.Resource)
		}
		by[s.Resource] = append(by[s.Resource], s)
	}
	end := func(s *trace.Span) trace.Time { return s.End.Or(s.Start.Or(0)) }
	var all [][]*trace.Span
	for _, r := range of {
		slices.SortStableFunc(by[r], func(a, b *trace.Span) int { return cmp.Compare(end(a), end(b)) })
		all = slices.AppendSeq(all, slices.Chunk(by[r], size))
	}
	slices.SortStableFunc(all, func(a, b []*trace.Span) int { return cmp.Compare(end(a[len(a)-1]), end(b[len(b)-1])) })
	for _, b := range all {
		if err := sim.Encode(w, b, sim.Encoding{Form: form, Batch: size}); err != nil {
			return err
		}
	}
	return nil
}
