package main

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// BenchmarkReport is the whole command over one input, from its bytes to the
// page: MB/s of input, requests/s, allocations.
func BenchmarkReport(b *testing.B) {
	sims, err := sim.Engine{
		Seed: 1, Service: "s", Model: "m", Replicas: 4, Routing: sim.LeastLoaded, Slots: 32, Budget: 2048, Chunked: true, Blocks: 20_000, Limit: 8000,
		Base: 8 * time.Millisecond, PerPrefill: 30 * time.Microsecond, PerDecode: 100 * time.Microsecond, Before: 2 * time.Millisecond, After: time.Millisecond, Every: 10 * time.Second,
		Tenants: []sim.Tenant{
			{Name: "a", Requests: 15_000, Rate: 25, Prompt: sim.Length{Min: 5, Max: 900, Skew: 1}, Output: sim.Length{Min: 1, Max: 200}},
			{Name: "b", Requests: 5_000, Rate: 8, Burst: 20, Prompt: sim.Length{Min: 500, Max: 4000}, Output: sim.Length{Min: 10, Max: 100}},
		},
	}.Run()
	if err != nil {
		b.Fatal(err)
	}
	v1 := sim.V1(sims.Requests, sim.VLLM{Attrs: true})
	spans := func(s []*trace.Span, e sim.Encoding) []byte {
		var buf bytes.Buffer
		if err := sim.Encode(&buf, s, e); err != nil {
			b.Fatal(err)
		}
		return buf.Bytes()
	}
	var log bytes.Buffer
	if err := sim.Log(&log, sims, "replica-0", sim.LogShape{Version: sim.Log16, Outputs: true}); err != nil {
		b.Fatal(err)
	}
	for _, in := range []struct {
		name string
		data []byte
		n    int
	}{
		{"v1 json lines", spans(v1, sim.Encoding{}), len(v1)},
		{"v1 protobuf", spans(v1, sim.Encoding{Form: sim.Prefixed}), len(v1)},
		{"v1 json gzip", spans(v1, sim.Encoding{Compression: sim.Gzip}), len(v1)},
		{"child spans json lines", spans(sim.ChildSpans(sims.Requests), sim.Encoding{}), len(sims.Requests)},
		{"log", log.Bytes(), len(sims.Requests) / 4},
	} {
		for _, command := range []string{"report", "export"} {
			b.Run(command+" "+in.name, func(b *testing.B) {
				args := []string{command, "--format", "json", "--year", "2025", "--zone", "UTC", "-"}
				if command == "export" {
					args = []string{command, "--format", "parquet", "--year", "2025", "--zone", "UTC", "-"}
				}
				b.SetBytes(int64(len(in.data)))
				b.ReportAllocs()
				for b.Loop() {
					if s := run(b.Context(), args, bytes.NewReader(in.data), io.Discard, io.Discard); s != 0 {
						b.Fatalf("status %d", s)
					}
				}
				b.ReportMetric(float64(in.n)*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			})
		}
	}
}
