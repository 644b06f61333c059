package records

import (
	"strings"
	"testing"
)

const (
	perfOne  = `[{"start_time": 100.5, "end_time": 102.5, "request": "{\"prompt\": \"a secret\"}", "response": "text", "info": {"input_tokens": 12, "output_tokens": 3, "output_token_times": [101.0, 101.5, 102.25], "lora_adapter": null}, "error": null}]`
	perfNew  = `[{"start_time": 100.5, "end_time": 102.5, "request": "x", "response": null, "info": {"request_metrics": {"text": {"input_tokens": 12}}, "response_metrics": {"output_tokens": 3, "chunk_times": [], "output_token_times": [101.0, 102.25]}, "lora_adapter": "l", "input_tokens": 12}, "error": null}]`
	guideOne = `{"type_": "generative_benchmarks_report", "args": {}, "benchmarks": [{"type_": "generative_benchmark", "requests": {"successful": [{"type_": "generative_request_stats", "request_id": "a", "output": "a secret", "info": {"status": "completed", "timings": {"targeted_start": 1770000000.0, "queued": 1769999999.0, "request_start": 1770000000.5, "first_token_iteration": 1770000001.0, "last_token_iteration": 1770000002.25, "request_end": 1770000002.5}}, "prompt_tokens": 12, "output_tokens": 3}],
"errored": [{"request_id": "b", "info": {"error": "boom", "timings": {"request_start": 1770000001.5, "first_token_iteration": null, "request_end": 1770000001.6}}, "prompt_tokens": 5, "output_tokens": null}],
"incomplete": [{"request_id": "c", "info": {"timings": {"request_start": 1770000002.0, "first_token_iteration": 1770000003.0, "request_end": 1770000004.0}}, "prompt_tokens": 5, "output_tokens": 2}]}}]}`
)

func TestClients(t *testing.T) {
	one := " ok monotonic/1ns 0s - - 500ms 1.75s 2s in=12 out=3"
	for _, tt := range []struct{ name, in, want string }{
		{"inference-perf", perfOne, "inference-perf\n" + one},
		{"inference-perf of 2026", perfNew, "inference-perf\n" + one},
		{"inference-perf, failed", strings.NewReplacer(`"error": null`, `"error": {"error_type": "TimeoutError", "error_msg": ""}`, `"output_tokens": 3, "output_token_times": [101.0, 101.5, 102.25]`, `"output_tokens": 0, "output_token_times": []`).Replace(perfOne),
			"inference-perf\n error monotonic/1ns 0s - - - - 2s in=12 (TimeoutError)"},
		{"inference-perf, no tokens", strings.NewReplacer(`"output_tokens": 3, "output_token_times": [101.0, 101.5, 102.25]`, `"output_tokens": 0, "output_token_times": []`).Replace(perfOne),
			"inference-perf\n error monotonic/1ns 0s - - - - 2s in=12 out=0 (no tokens)"},
		{"inference-perf, ends before it starts", strings.Replace(perfOne, "102.5,", "99.5,", 1), "inference-perf\n incomplete monotonic/1ns 0s - - 500ms 1.75s - in=12 out=3 !end-before-start !missing-end"},
		{"inference-perf, no info", `[{"start_time": 1.0, "end_time": 2.0, "request": "", "response": "", "info": null, "error": null}]`, "inference-perf\n ok monotonic/1ns 0s - - - - 1s"},
		{"inference-perf, torn", perfOne[:200], "inference-perf\n!truncated"},
		{"guidellm", guideOne, "guidellm\na ok unix/1µs 0s - - 500ms 1.75s 2s in=12 out=3\nb error unix/1µs 1s - - - - 1.1s in=5\nc incomplete unix/1µs 1.5s - - 2.5s - - in=5 out=2\n!sent-late"},
		{"guidellm 0.3", `{"benchmarks": [{"type_": "generative_benchmark", "requests": {"successful": [{"request_id": "a", "start_time": 1770000000.5, "end_time": 1770000002.5, "first_token_time": 1770000001.0, "last_token_time": 1770000002.25, "prompt_tokens": 12, "output_tokens": 3}], "errored": [], "incomplete": []}}]}`,
			"guidellm\na ok unix/1µs 0s - - 500ms 1.75s 2s in=12 out=3"},
		{"guidellm, nothing stamped", strings.NewReplacer("1770000000.5", "-1", "1770000002.5", "0").Replace(guideOne),
			"guidellm\na incomplete unix/1µs - - - 0s 0s - in=12 out=3 !no-arrival !missing-end\nb error unix/1µs 0s - - - - 100ms in=5\nc incomplete unix/1µs 500ms - - 1.5s - - in=5 out=2"},
		{"guidellm, torn", guideOne[:500], "guidellm\n!truncated"},
		{"another's benchmarks", `{"context": {}, "benchmarks": [{"name": "x"}]}`, "not recognised"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decode(t, tt.in); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}
