package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/traceview/traceview/ingest"
)

// The text and the JSON have every format and engine, and no line is too long.
func TestFormats(t *testing.T) {
	var text, js, errs bytes.Buffer
	if got := run(context.Background(), []string{"formats"}, nil, &text, &errs); got != 0 {
		t.Fatal(got, errs.String())
	}
	if got := run(context.Background(), []string{"formats", "--format", "json"}, nil, &js, &errs); got != 0 {
		t.Fatal(got, errs.String())
	}
	var all struct{ Formats, Engines []map[string]string }
	if err := json.Unmarshal(js.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	if len(all.Formats) != len(ingest.Formats()) || len(all.Engines) != len(ingest.Engines()) {
		t.Errorf("%d formats, %d engines", len(all.Formats), len(all.Engines))
	}
	for _, f := range append(all.Formats, all.Engines...) {
		if !strings.Contains(text.String(), "\n"+f["name"]+"\n") {
			t.Errorf("the text lacks %s", f["name"])
		}
	}
	for line := range strings.Lines(text.String()) {
		if n := len([]rune(line)) - 1; n > 100 {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	for _, args := range [][]string{{"formats", "--format", "csv"}, {"formats", "x"}} {
		if got := run(context.Background(), args, nil, &text, &errs); got != statusUsage {
			t.Errorf("%v: status %d", args, got)
		}
	}
}

// TestSampleReports holds what the report and the phase table (of its CSV) say
// of the samples of containers and engines.
func TestSampleReports(t *testing.T) {
	for _, name := range []string{
		"jaeger.json", "zipkin.json", "python-console.txt", "js-console.txt", "go-console.json", "clickhouse.jsonl", "clickhouse.parquet",
		"sglang.jsonl.gz", "sglang-pd.jsonl.gz", "triton.json", "tensorrt-llm.jsonl", "text-generation-inference.jsonl", "dynamo.pb", "llm-d.jsonl.gz", "genai-client.jsonl",
		"vllm-instrumented.jsonl", "ray-serve.jsonl.gz", "litellm.jsonl", "envoy-ai-gateway.jsonl",
		"vllm-real-bench.json", "vllm-bench.json", "aiperf.jsonl", "vllm-request-stats.jsonl", "requests.jsonl",
		"sglang-metrics.jsonl", "sglang-log.jsonl", "dynamo-request-trace.jsonl", "tensorrt-llm-metrics.json", "tgi-log.jsonl", "ollama.jsonl", "llama-cpp.jsonl", "vllm-response.jsonl",
		"inference-perf.json", "guidellm.json", "mooncake.jsonl", "bailian.jsonl", "azure-llm-trace.csv", "burstgpt.csv",
	} {
		var got, table, errs bytes.Buffer
		for _, c := range []struct {
			args []string
			to   *bytes.Buffer
		}{{[]string{"report"}, &got}, {[]string{"report", "--format", "csv"}, &table}} {
			if status := run(context.Background(), append(c.args, filepath.Join(root, "samples", name)), nil, c.to, &errs); status != 0 {
				t.Fatalf("%s: status %d: %s", name, status, errs.String())
			}
		}
		got.WriteString("\n")
		for line := range strings.Lines(table.String()) {
			if strings.HasPrefix(line, "table,") || strings.HasPrefix(line, "phases,") {
				got.WriteString(line)
			}
		}
		text := strings.ReplaceAll(filepath.ToSlash(got.String()), root+"/", "") + errs.String()
		golden := filepath.Join("testdata", "samples", name+".report")
		if *update {
			if err := os.MkdirAll(filepath.Dir(golden), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(golden, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if text != string(want) {
			t.Errorf("%s is not what %s holds; run this test with -update\n%s", name, golden, text)
		}
	}
}

// Layers around an engine, and requests on two, break no law.
func TestSampleChecks(t *testing.T) {
	for _, name := range []string{"sglang-pd.jsonl.gz", "llm-d.jsonl.gz", "vllm-instrumented.jsonl", "ray-serve.jsonl.gz", "dynamo.pb", "litellm.jsonl", "sglang.jsonl.gz"} {
		var out, errs bytes.Buffer
		if status := run(context.Background(), []string{"check", filepath.Join(root, "samples", name)}, nil, &out, &errs); status != 0 || strings.Contains(out.String(), "FAILS") {
			t.Errorf("%s: status %d\n%s%s", name, status, out.String(), errs.String())
		}
	}
}
