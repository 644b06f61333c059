package ingest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/sim"
)

// vllmLog is a generated log of n requests, each aborted after a second.
func vllmLog(n int) []byte {
	var b bytes.Buffer
	begin := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	for i := range n {
		at := begin.Add(time.Duration(i) * 50 * time.Millisecond)
		stamp := at.Format("01-02 15:04:05")
		fmt.Fprintf(&b, "(APIServer pid=7) INFO %s [logger.py:42] Received request chatcmpl-%06d: prompt: 'made up', params: SamplingParams(n=1, max_tokens=8), prompt_token_ids: None, lora_request: None.\n", stamp, i)
		fmt.Fprintf(&b, "(APIServer pid=7) INFO %s [async_llm.py:270] Added request chatcmpl-%06d.\n", stamp, i)
		if i >= 20 {
			fmt.Fprintf(&b, "(APIServer pid=7) INFO %s [async_llm.py:430] Aborted request(s) chatcmpl-%06d.\n", stamp, i-20)
		}
	}
	return b.Bytes()
}

func BenchmarkRequests(b *testing.B) {
	const n = 10000
	for _, bench := range []struct {
		name string
		data []byte
	}{
		{"json", encode(b, n, sim.Encoding{Form: sim.Lines, Batch: 512})},
		{"json-gzip", encode(b, n, sim.Encoding{Form: sim.Lines, Batch: 512, Compression: sim.Gzip})},
		{"proto", encode(b, n, sim.Encoding{Form: sim.Proto})},
		{"frames-zstd", encode(b, n, sim.Encoding{Form: sim.Prefixed, Batch: 512, Compression: sim.ZstdFramed})},
		{"log", vllmLog(n)},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.SetBytes(int64(len(bench.data)))
			b.ReportAllocs()
			got := 0
			for b.Loop() {
				for r := range Requests(b.Context(), []Input{inMemory("x", bench.data)}, Options{Year: 2026, Zone: time.UTC}) {
					if r != nil {
						got++
					}
				}
			}
			if got != n*b.N {
				b.Fatalf("%d requests in %d rounds", got, b.N)
			}
			b.ReportMetric(float64(got)/b.Elapsed().Seconds(), "requests/s")
		})
	}
}
