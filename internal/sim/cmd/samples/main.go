// Samples writes the files of the folder samples anew:
//
//	go run ./internal/sim/cmd/samples -o samples
//
// All of them are invented. A seed decides each, so that the same bytes come
// out every time.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

func main() {
	dir := flag.String("o", "samples", "the folder to write to")
	flag.Parse()
	if err := write(*dir); err != nil {
		fmt.Fprintln(os.Stderr, "samples:", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	files, err := samples()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f.name), f.data, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// sample is one file.
type sample struct {
	name string
	data []byte
}

const ms = time.Millisecond

// chat is the engine of most samples: an ordinary load of short requests, and a
// tenant that sends long prompts, many at once.
func chat(seed uint64, requests int) sim.Engine {
	return sim.Engine{
		Seed: seed, Service: "vllm-blue", Model: "demo-8b", Replicas: 2, Routing: sim.RoundRobin,
		Slots: 8, Budget: 2048, Chunked: true, Blocks: 4000, Limit: 16000,
		Base: 12 * ms, PerPrefill: 60 * time.Microsecond, PerDecode: 300 * time.Microsecond, PerResident: 150 * time.Microsecond,
		Before: 3 * ms, After: ms, Every: 5 * time.Second,
		Tenants: []sim.Tenant{
			{Name: "chat", Requests: requests * 4 / 5, Rate: 4, Prompt: sim.Length{Min: 20, Max: 1500, Skew: 2}, Output: sim.Length{Min: 5, Max: 200, Skew: 1}, Abort: 0.03, Fail: 0.01},
			{Name: "batch", Requests: requests / 5, Rate: 1, Burst: 20, Start: 8 * time.Second, Prompt: sim.Length{Min: 1500, Max: 9000, Skew: 1}, Output: sim.Length{Min: 40, Max: 150}},
		},
	}
}

// tight is an engine whose memory is short, with all that can go wrong.
func tight(seed uint64, requests int) sim.Engine {
	e := chat(seed, requests)
	e.Service, e.Blocks, e.Limit, e.Chunked, e.Budget = "engine", 700, 9200, true, 4096
	e.Tenants[0].Abort, e.Tenants[0].Fail = 0.08, 0.05
	e.Tenants[1].Prompt.Max = 9150
	return e
}

func samples() ([]sample, error) {
	var files []sample
	spans := func(name string, e sim.Engine, f func([]*trace.Request) []*trace.Span, enc sim.Encoding) error {
		run, err := e.Run()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var b bytes.Buffer
		if err := sim.Encode(&b, f(run.Requests), enc); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, sample{name, b.Bytes()})
		return nil
	}
	log := func(name string, e sim.Engine, o sim.LogShape) error {
		e.Replicas = 1
		run, err := e.Run()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var b bytes.Buffer
		if err := sim.Log(&b, run, "replica-0", o); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, sample{name, b.Bytes()})
		return nil
	}
	records := func(name string, e sim.Engine, form sim.Records) error {
		run, err := e.Run()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		var b bytes.Buffer
		if err := sim.WriteRecords(&b, run.Requests, form); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, sample{name, b.Bytes()})
		return nil
	}
	v1 := func(rs []*trace.Request) []*trace.Span { return sim.V1(rs, sim.VLLM{Attrs: true}) }
	v0 := func(rs []*trace.Request) []*trace.Span { return sim.V0(rs, sim.VLLM{Attrs: true}) }
	sgl := func(rs []*trace.Request) []*trace.Span { return sim.SGLang(rs, sim.SGLangShape{Ranks: 2, Steps: 4}) }
	sdk := func(rs []*trace.Request) []*trace.Span { return emit(rs) }
	for _, err := range []error{
		spans("vllm-v1.jsonl", chat(1, 300), v1, sim.Encoding{Form: sim.Lines, Batch: 50}),
		spans("vllm-v0.json", chat(2, 100), v0, sim.Encoding{Form: sim.JSON}),
		spans("child-spans.pb", tight(3, 150), sim.ChildSpans, sim.Encoding{Form: sim.Prefixed}),
		spans("gateway.jsonl.gz", chat(4, 200), sim.Gateway, sim.Encoding{Form: sim.Lines, Compression: sim.Gzip}),
		spans("exporter.json.zst-framed", chat(5, 200), v1, sim.Encoding{Form: sim.Lines, Compression: sim.ZstdFramed, Batch: 100}),
		spans("otel-go-sdk.json", tight(6, 60), sdk, sim.Encoding{Form: sim.Pretty, Batch: 1 << 20}),
		spans("jaeger.json", tight(9, 40), sim.ChildSpans, sim.Encoding{Form: sim.Jaeger}),
		spans("zipkin.json", chat(10, 40), sim.Gateway, sim.Encoding{Form: sim.Zipkin}),
		spans("python-console.txt", chat(11, 40), v1, sim.Encoding{Form: sim.PythonConsole}),
		spans("js-console.txt", chat(15, 40), sim.Gateway, sim.Encoding{Form: sim.JSConsole}),
		spans("go-console.json", tight(12, 30), sdk, sim.Encoding{Form: sim.GoConsole}),
		spans("clickhouse.jsonl", chat(13, 60), v1, sim.Encoding{Form: sim.ClickHouse}),
		spans("clickhouse.parquet", tight(14, 60), sim.ChildSpans, sim.Encoding{Form: sim.ClickHouseParquet}),
		spans("sglang.jsonl.gz", tight(22, 60), sgl, sim.Encoding{Form: sim.Lines, Compression: sim.Gzip}),
		spans("sglang-pd.jsonl.gz", chat(15, 40), sim.SGLangHalves, sim.Encoding{Form: sim.Lines, Compression: sim.Gzip}),
		spans("triton.json", chat(16, 40), sim.Triton, sim.Encoding{Form: sim.JSON}),
		spans("tensorrt-llm.jsonl", chat(17, 40), sim.TensorRT, sim.Encoding{Form: sim.Lines}),
		spans("text-generation-inference.jsonl", chat(18, 40), sim.TGI, sim.Encoding{Form: sim.Lines}),
		spans("dynamo.pb", chat(19, 40), sim.Dynamo, sim.Encoding{Form: sim.Prefixed}),
		spans("llm-d.jsonl.gz", chat(20, 40), sim.LLMD, sim.Encoding{Form: sim.Lines, Compression: sim.Gzip}),
		spans("vllm-instrumented.jsonl", chat(23, 40), sim.Instrumented, sim.Encoding{Form: sim.Lines}),
		spans("ray-serve.jsonl.gz", chat(24, 40), sim.RayServe, sim.Encoding{Form: sim.Lines, Compression: sim.Gzip}),
		spans("litellm.jsonl", chat(25, 30), sim.LiteLLM, sim.Encoding{Form: sim.Lines}),
		spans("envoy-ai-gateway.jsonl", chat(26, 30), sim.Envoy, sim.Encoding{Form: sim.Lines}),
		spans("genai-client.jsonl", chat(21, 40), sim.Clients, sim.Encoding{Form: sim.Lines}),
		records("vllm-bench.json", chat(27, 40), sim.VLLMBench),
		records("aiperf.jsonl", chat(28, 40), sim.AIPerf),
		records("vllm-request-stats.jsonl", chat(29, 40), sim.VLLMStats),
		records("requests.jsonl", tight(30, 40), sim.Own),
		records("inference-perf.json", tight(35, 40), sim.InferencePerf),
		records("guidellm.json", tight(36, 40), sim.GuideLLM),
		records("mooncake.jsonl", chat(31, 60), sim.Mooncake),
		records("bailian.jsonl", chat(32, 60), sim.Bailian),
		records("azure-llm-trace.csv", chat(33, 60), sim.AzureTrace),
		records("burstgpt.csv", chat(34, 60), sim.BurstGPT),
		log("vllm-0.10.log", chat(7, 150), sim.LogShape{Version: sim.Log10, Outputs: true}),
		log("vllm-0.16-docker.log", chat(8, 150), sim.LogShape{Version: sim.Log16, Wrapper: sim.Docker, Outputs: true}),
	} {
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}
