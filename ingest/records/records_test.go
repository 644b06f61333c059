package records

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// decode reads text as the format that is recognised in it, and writes each
// request as "id outcome clock/step arrival [queued scheduled] first last end
// phases in/out | issues", times from the first arrival on, and each issue that
// stands alone as "!code".
func decode(t testing.TB, in string) string {
	t.Helper()
	for _, f := range Formats {
		if f.Sniff([]byte(in[:min(len(in), 256<<10)])) {
			return f.Name + "\n" + read(t, f, in, 1<<20)
		}
	}
	return "not recognised"
}

func read(t testing.TB, f *Format, in string, limit int64) string {
	t.Helper()
	var out []string
	codes := func(list []trace.Issue) (s string) {
		for _, is := range list {
			s += " !" + string(is.Code)
		}
		return s
	}
	var zero trace.Opt[trace.Time]
	d := NewDecoder(limit, nil, func(r *trace.Request, is *trace.Issue) bool {
		if is != nil {
			out = append(out, codes([]trace.Issue{*is})[1:])
			return true
		}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", r.ID, err)
		}
		if a, ok := r.Arrival.Get(); ok && !zero.Present() {
			zero = trace.Some(a)
		}
		line := fmt.Sprintf("%s %v %v/%v", r.ID, r.Outcome, r.Clock, r.Resolution)
		for _, i := range []trace.Instant{r.Arrival, r.Queued, r.Scheduled, r.FirstToken, r.LastToken, r.Completed} {
			if at, ok := i.Get(); ok {
				line += " " + at.Sub(zero.Or(at)).String()
			} else {
				line += " -"
			}
		}
		for _, p := range r.Breakdown().Parts {
			line += fmt.Sprintf(" %v=%v", p.Phase, p.Dur)
		}
		if n, ok := r.Input.Get(); ok {
			line += fmt.Sprintf(" in=%d", n)
		}
		if n, ok := r.Output.Get(); ok {
			line += fmt.Sprintf(" out=%d", n)
		}
		if r.FinishReason != "" {
			line += " (" + r.FinishReason + ")"
		}
		out = append(out, line+codes(r.Issues))
		return true
	})
	if err := d.Read(f, strings.NewReader(in), scan.At{File: "f", Line: 1}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

const aiperfOne = `{"metadata":{"x_request_id":"a","request_start_ns":1760000000000000001,"request_end_ns":1760000001000000001,"benchmark_phase":"profiling","was_cancelled":false},"metrics":{"time_to_first_token":{"value":250.5,"unit":"ms"},"request_latency":{"value":999,"unit":"ms"},"input_sequence_length":{"value":7,"unit":"tokens"}},"error":null}`

const (
	sglangOne   = `{"request_parameters": "{\"rid\": \"7d\"}", "id": "7d", "finish_reason": {"type": "stop"}, "prompt_tokens": 512, "completion_tokens": 90, "cached_tokens": 128, "total_retractions": 0, "queue_time": 0.7, "forward_entry_time": 1788000000.715, "prefill_finished_time": 1788000000.9, "prefill_waiting_latency": 0.0021, "e2e_latency": 2.5, "request_received_ts": 1788000000.0, "request_finished_ts": 1788000002.5}`
	dynamoOne   = `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1788000002500,"request":{"request_id":"b2","model":"demo-70b","input_tokens":4096,"output_tokens":210,"request_received_ms":1788000000000,"prefill_wait_time_ms":412.6,"prefill_time_ms":188.1,"ttft_ms":600.7,"total_time_ms":2500.0,"worker":{"prefill_worker_id":7587890123456789012,"decode_worker_id":7587890123456789013,"decode_dp_rank":1},"finish_reason_metadata":{"finish_reason":"stop"}}}`
	tensorrtOne = `{"request_id":3,"perf_metrics":{"first_iter":10,"timing_metrics":{"server_arrival_time":5120.000,"arrival_time":5120.004,"first_scheduled_time":5120.310,"first_token_time":5120.702,"server_first_token_time":5120.705,"last_token_time":5122.480}}}`
	tgiOne      = `{"timestamp":"2026-08-30T10:00:02.513900Z","level":"INFO","message":"Success","target":"text_generation_router::server","span":{"inference_time":"2.081302s","queue_time":"431.2ms","seed":"None","time_per_token":"23.125ms","total_time":"2.513908s","validation_time":"187.4µs","name":"generate"}}`
	ollamaOne   = `{"model":"demo:8b","created_at":"2026-08-30T10:00:02.500123Z","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":2500000000,"load_duration":41000000,"prompt_eval_count":220,"prompt_eval_duration":310000000,"eval_count":64,"eval_duration":1980000000}`
	llamaOne    = `{"choices":[{"finish_reason":"stop","index":0,"delta":{}}],"created":1788000002,"id":"c","model":"demo-q4","timings":{"cache_n":128,"prompt_n":1085,"prompt_ms":203.4,"predicted_n":247,"predicted_ms":934.1}}`
	responseOne = `{"id":"v","object":"chat.completion","created":1785312005,"model":"m","usage":{"prompt_tokens":913,"completion_tokens":128,"total_tokens":1041},"metrics":{"time_to_first_token_ms":140.2,"generation_time_ms":2463.1,"queue_time_ms":251.1,"mean_itl_ms":19.39},"choices":[]}`
)

func TestFormats(t *testing.T) {
	bench := func(more string) string {
		return `{"num_prompts":2,"completed":2,"duration":3.0,"input_lens":[10,20],"output_lens":[3,1]` + more + `}`
	}
	for _, tt := range []struct{ name, in, want string }{
		{"bench", bench(`,"ttfts":[0.1,0.25],"itls":[[0.02,0.03],[]],"start_times":[100.0,100.5],"errors":["",""]`),
			"vllm-bench\n ok monotonic/1ns 0s - - 100ms 150ms 150ms in=10 out=3\n ok monotonic/1ns 500ms - - 750ms 750ms 750ms in=20 out=1"},
		{"bench, its own latency", bench(`,"ttfts":[0.1,0.25],"itls":[[0.02,0.03],[]],"latencies":[0.2,0.3],"start_times":[100.0,100.5],"errors":["",""]`),
			"vllm-bench\n ok monotonic/1ns 0s - - 100ms 150ms 200ms in=10 out=3\n ok monotonic/1ns 500ms - - 750ms 750ms 800ms in=20 out=1"},
		{"bench without start times", bench(`,"ttfts":[0.1,0.25],"itls":[[0.02,0.03],[]]`),
			"vllm-bench\n ok unknown/1ns 0s - - 100ms 150ms 150ms in=10 out=3 !no-arrival\n ok unknown/1ns 0s - - 250ms 250ms 250ms in=20 out=1 !no-arrival"},
		{"bench, a failure, a gap below zero", bench(`,"ttfts":[0.0,0.25],"itls":[[],[-1]],"start_times":[100.0,100.5],"errors":["boom",""]`),
			"vllm-bench\n error monotonic/1ns 0s - - - - - in=10 out=3\n incomplete monotonic/1ns 500ms - - 750ms - - in=20 out=1 !negative-duration !missing-end"},
		{"bench, arrays of unlike length", bench(`,"ttfts":[0.1],"itls":[[0.02]],"start_times":[100.0,100.5]`),
			"vllm-bench\n ok monotonic/1ns 0s - - 100ms 120ms 120ms in=10 out=3\n!bad-field"},
		{"bench, figures only", `{"num_prompts":2,"completed":2,"request_throughput":1.5}`, "vllm-bench\n"},
		{"bench, two runs of the Rust client", `{"num_prompts":1,"completed":1,"failed_requests":[],"input_lens":[1],"ttfts":[0.1],"itls":[[]],"start_times":[0.0]}` + "\n" +
			`{"num_prompts":1,"completed":1,"failed_requests":[],"input_lens":[1],"ttfts":[0.1],"itls":[[]],"start_times":[0.0]}`,
			"vllm-bench\n ok relative/1ns 0s - - 100ms 100ms 100ms in=1\n!mixed-clocks\n ok relative/1ns 0s - - 100ms 100ms 100ms in=1"},
		{"bench, a key twice", bench(`,"ttfts":[0.1,0.25],"ttfts":[1,2],"itls":[[],[]],"start_times":[100.0,100.5]`),
			"vllm-bench\n!duplicate-key\n incomplete monotonic/1ns 0s - - - - - in=10 out=3 !missing-end\n incomplete monotonic/1ns 500ms - - - - - in=20 out=1 !missing-end"},
		{"bench, torn", bench(`,"ttfts":[0.1,0.25],"itls":[[0.02`)[:120], "vllm-bench\n!truncated"},

		{"aiperf", aiperfOne, "aiperf\na ok unix/1ns 0s - - 250.5ms 999ms 1s in=7"},
		{"aiperf, cancelled", strings.Replace(aiperfOne, `"error":null`, `"error":{"type":"RequestCancellationError","code":499}`, 1), "aiperf\na aborted unix/1ns 0s - - 250.5ms 999ms 1s in=7 (RequestCancellationError)"},
		{"aiperf, no unit", strings.Replace(aiperfOne, `"unit":"ms"`, `"unit":"x"`, 1), "aiperf\na ok unix/1ns 0s - - - - 1s in=7 !bad-field"},
		{"aiperf, ends before it starts", strings.Replace(aiperfOne, `1760000001`, `1750000001`, 1), "aiperf\na incomplete unix/1ns 0s - - 250.5ms 999ms - in=7 !end-before-start !missing-end"},
		{"aiperf, torn line", aiperfOne + "\n" + aiperfOne[:90] + "\n" + aiperfOne, "aiperf\na ok unix/1ns 0s - - 250.5ms 999ms 1s in=7\n!bad-json\na ok unix/1ns 0s - - 250.5ms 999ms 1s in=7"},
		{"aiperf, late", strings.Replace(aiperfOne, `"benchmark_phase"`, `"credit_issued_ns":1759999999000000001,"benchmark_phase"`, 1), "aiperf\na ok unix/1ns 0s - - 250.5ms 999ms 1s in=7\n!sent-late"},
		{"aiperf, warm-up", strings.Replace(aiperfOne, `"profiling"`, `"warmup"`, 1), "aiperf\n!warm-up"},

		{"stats of V1", `{"request_id":"k","arrival_time":1770000000.5,"queued_ts":900.25,"scheduled_ts":900.75,"first_token_ts":901.0,"last_token_ts":903.0}`,
			"vllm-request-stats\nk ok unix/1µs 0s 0s 500ms 750ms 2.75s 2.75s queueing=500ms prefill=250ms decode=2s"},
		{"stats of V1, never scheduled", `{"request_id":"k","arrival_time":1770000000.5,"queued_ts":900.25,"scheduled_ts":0.0,"first_token_ts":0.0,"last_token_ts":0.0}`,
			"vllm-request-stats\nk incomplete unix/1µs 0s 0s - - - - !missing-end"},
		{"stats of V0", `{"arrival_time":1770000000.5,"first_scheduled_time":1770000001.0,"first_token_time":1770000001.25,"last_token_time":1770000000.5,"finished_time":1770000003.0}`,
			"vllm-request-stats\n ok unix/1µs 0s 0s 500ms 750ms - 2.5s queueing=500ms prefill=250ms !negative-duration"},

		{"sglang", sglangOne, "sglang-metrics\n7d ok unix/1µs 0s 15ms 715ms 900ms - 2.5s arrival=15ms queueing=700ms prefill=185ms decode|completion=1.6s in=512 out=90 (stop)"},
		{"sglang, retracted", strings.NewReplacer(`"queue_time": 0.7`, `"queue_time": -2.5`, `"total_retractions": 0`, `"total_retractions": 1`).Replace(sglangOne),
			"sglang-metrics\n7d ok unix/1µs 0s - 715ms 900ms - 2.5s arrival|queueing=715ms prefill=185ms decode|preempted|completion=1.6s in=512 out=90 (stop) !negative-duration"},
		{"sglang without --enable-metrics", `{"request_parameters":"{}","id":"a","finish_reason":{"type":"abort"},"prompt_tokens":5,"completion_tokens":1,"e2e_latency":0.5,"queue_time":NaN}`,
			"sglang-metrics\na aborted unknown/1µs 0s - - - - 500ms in=5 out=1 (abort) !bad-number !no-arrival"},
		{"sglang's log", `{"timestamp":"2026-08-30T10:00:00.000100","event":"request.received","rid":"a","obj":{"text":"x"}}` + "\n" +
			`{"timestamp":"2026-08-30T10:00:00.2","event":"request.received","rid":"b","obj":{}}` + "\n" +
			`{"timestamp":"2026-08-30T10:00:01.000100","event":"request.finished","rid":"a","obj":{},"out":{"meta_info":{"id":"a","prompt_tokens":3,"completion_tokens":2,"e2e_latency":0.999,"finish_reason":{"type":"length"}}}}` + "\n" +
			`{"timestamp":"2026-08-30T10:00:02","event":"request.finished","rid":"c","out":{"meta_info":{"e2e_latency":0.5}}}`,
			"sglang-log\na ok unix/1µs 0s - - - - 1s in=3 out=2 (length) !zone-assumed\nc ok unix/1µs 1.4999s - - - - 1.9999s\nb incomplete unix/1µs 199.9ms - - - - -"},
		{"dynamo", dynamoOne, "dynamo-request-trace\nb2 ok unix/1ms 0s - - 600.7ms - 2.5s arrival|queueing=412.6ms queueing|prefill|transfer=188.1ms decode|preempted|completion=1.8993s in=4096 out=210 (stop)"},
		{"dynamo, wrapped, odd", `{"timestamp":12,"event":` + strings.NewReplacer(`412.6`, `912.6`, `"decode_worker_id":7587890123456789013`, `"decode_worker_id":7587890123456789012`).Replace(dynamoOne) + "}\n" + `{"timestamp":13,"event":{"schema":"dynamo.request.trace.v1","event_type":"tool_end"}}`,
			"dynamo-request-trace\nb2 ok unix/1ms 0s - - 600.7ms - 2.5s arrival|queueing|prefill=600.7ms decode|preempted|completion=1.8993s in=4096 out=210 (stop) !phase-too-long"},
		{"tensorrt", "[" + tensorrtOne + "," + strings.Replace(tensorrtOne, "5122.480", "-1", 1) + "]",
			"tensorrt-llm-metrics\n3 ok monotonic/1µs 0s 4ms 310ms 702ms 2.48s 2.48s arrival=4ms queueing=306ms prefill=392ms decode=1.778s\n" +
				"3 incomplete monotonic/1µs 0s 4ms 310ms 702ms - - arrival=4ms queueing=306ms prefill=392ms !missing-end"},
		{"tensorrt, two servers", `{"ctx_server":"a","gen_server":"b","disagg_server_arrival_time":10.0,"disagg_server_first_token_time":10.5,"ctx_perf_metrics":` + tensorrtOne + `,"gen_perf_metrics":` + strings.Replace(tensorrtOne, `"request_id":3`, `"request_id":9`, 1) + "}",
			"tensorrt-llm-metrics\n3 ok monotonic/1µs 0s - - 500ms 2.275s 2.275s arrival|queueing|prefill|transfer=500ms queueing|decode|transfer|completion=1.775s"},
		{"tgi", `{"timestamp":"2026-08-30T10:00:00Z","level":"INFO","message":"Connected","target":"text_generation_router::server"}` + "\n" + tgiOne,
			"tgi-log\n ok unix/1µs 0s 187.4µs 431.3874ms - - 2.513908s arrival=187.4µs queueing=431.2ms prefill|decode=2.081302s out=90"},
		{"tgi, more than all", strings.Replace(tgiOne, "431.2ms", "931.2ms", 1), "tgi-log\n ok unix/1µs 0s 187.4µs 931.3874ms - - 2.513908s arrival=187.4µs queueing=931.2ms out=90 !phase-too-long"},
		{"ollama", `{"model":"demo:8b","created_at":"2026-08-30T10:00:02Z","message":{"content":"x"},"done":false}` + "\n" + ollamaOne,
			"ollama\n ok unix/1µs 0s - 210ms 520ms 2.5s 2.5s arrival|queueing=41ms prefill=310ms decode=1.98s in=220 out=64 (stop)"},
		{"ollama, all from the cache", strings.Replace(ollamaOne, `"prompt_eval_count":220,"prompt_eval_duration":310000000,`, "", 1), "ollama\n ok unix/1µs 0s - 520ms 520ms 2.5s 2.5s arrival|queueing=41ms decode=1.98s out=64 (stop)"},
		{"ollama, more than all", strings.Replace(ollamaOne, "41000000", "941000000", 1), "ollama\n ok unix/1µs 0s - - - - 2.5s in=220 out=64 (stop) !phase-too-long"},
		{"llama.cpp", llamaOne, "llama.cpp\nc ok unknown/1µs 0s - 0s 203.4ms 1.1375s 1.1375s prefill=203.4ms decode=934.1ms in=1213 out=247 !no-arrival"},
		{"vllm's answer", responseOne, "vllm-response\nv ok unknown/1µs 0s 0s 251.1ms 391.3ms 2.8544s 2.8544s queueing=251.1ms prefill=140.2ms decode=2.4631s in=913 out=128 !no-arrival"},
		{"vllm's answer, null", strings.Replace(responseOne, "251.1", "null", 1), "vllm-response\nv ok unknown/1µs 0s - 0s 140.2ms 2.6033s 2.6033s prefill=140.2ms decode=2.4631s in=913 out=128 !no-arrival"},

		{"own", `{"id":"a","arrival_ms":1770000000000,"queued_ms":1770000000001,"scheduled_ms":1770000000011,"first_token_ms":1770000000111,"last_token_ms":1770000000211,"end_ms":1770000000212,"output_tokens":5}`,
			"requests\na ok unix/1ms 0s 1ms 11ms 111ms 211ms 212ms arrival=1ms queueing=10ms prefill=100ms decode=100ms completion=1ms out=5"},
		{"own, dates", `{"id":"a","arrival":"2026-03-01T12:00:00.5+01:00","end":"2026-03-01T11:00:02Z"}`, "requests\na ok unix/1s 0s - - - - 1.5s"},
		{"own, dates without a zone", `{"id":"a","arrival":"2026-03-01 12:00:00.25","end":"2026-03-01 12:00:01.5"}`, "requests\na ok unix/100ms 0s - - - - 1.25s !zone-assumed"},
		{"own, seconds of the run", `{"request_id":"a","start":0.5,"ttft":0.25,"end":2.5}` + "\n" + `{"request_id":"b","start":1,"end":null}`,
			"requests\na ok relative/1µs 0s - - 250ms - 2s\nb incomplete relative/1s 500ms - - - - - !missing-end"},
		{"own, milliseconds as seconds", `{"request_id":"a","start":1770000000000,"end":1770000000100}`, "requests\na incomplete unix/1ns - - - - - - !bad-number !bad-number !no-arrival !missing-end"},
		{"own, a token outside", `{"id":"a","arrival_s":10,"first_token_s":5,"last_token_s":30,"end_s":20}`, "requests\na ok relative/1s 0s - - - - 10s !negative-duration !phase-too-long"},
		{"own, outcomes", `{"id":"a","arrival_s":1,"end_s":2,"outcome":"rejected"}` + "\n" + `{"id":"b","arrival_s":1,"end_s":2,"outcome":"?","clock":"?"}` + "\n" + `{"id":"c","arrival_s":1,"end_s":2,"error":"timeout","clock":"monotonic"}`,
			"requests\na rejected relative/1s 0s - - - - 1s\nb incomplete relative/1s 0s - - - - 1s !bad-field !bad-field\nc error monotonic/1s 0s - - - - 1s (timeout)"},
		{"own, two units and a key twice", `{"id":"a","id":"b","arrival_s":1,"arrival_ms":1,"end_s":2}`, "requests\n ok relative/1s 0s - - - - 1.999s !duplicate-key !duplicate-key"},
		{"own behind a log's text", "starting\n" + `{"id":"a","arrival_s":1,"end_s":2}` + "\nstopped\n", "requests\n!bad-json\na ok relative/1s 0s - - - - 1s\n!bad-json"},

		{"none of them", `{"id":"x","start":"2026-01-01","name":"y"}`, "not recognised"},
		{"a span", `{"resourceSpans":[{"resource":{}}]}`, "not recognised"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := decode(t, tt.in); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestParseNanos(t *testing.T) {
	for _, tt := range []struct {
		in   string
		exp  int
		want string
	}{
		{"0.06580888600001344", secs, "65808886"}, {"0.0000000015", secs, "2"}, {"-0.0000000015", secs, "-2"}, {"-0.0000000001", secs, "0"},
		{"5.442099973151926e-05", secs, "54421"}, {"1.76e18", nanos, "1760000000000000000"}, {"1760000000.123456789", secs, "1760000000123456789"},
		{"12.7", nanos, "13"}, {"1e300", secs, "none"}, {"NaN", secs, "none"}, {"1.2x", secs, "none"}, {"9223372036854775807", nanos, "9223372036854775807"},
		{"9223372036854775807", millis, "none"}, {"1.76e18", secs, "none"}, {"", secs, "none"}, {"0.9999999999", secs, "1000000000"},
	} {
		got := "none"
		if ns, ok := parseNanos([]byte(tt.in), tt.exp); ok {
			got = fmt.Sprint(ns)
		}
		if got != tt.want {
			t.Errorf("%q is %s, want %s", tt.in, got, tt.want)
		}
	}
}

// The times that a real client saved are those that it printed.
func TestRealBench(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "samples", "vllm-real-bench.json"))
	if err != nil {
		t.Fatal(err)
	}
	var ttft, e2e time.Duration
	n := 0
	d := NewDecoder(1<<20, nil, func(r *trace.Request, is *trace.Issue) bool {
		if is != nil || len(r.Issues) > 0 || r.Outcome != trace.OK || r.Model != "tiny" {
			t.Errorf("%v %+v", is, r)
		}
		n++
		ttft += r.TTFT().Or(0)
		e2e += r.E2E().Or(0)
		return true
	})
	if err := d.Read(&VLLMBench, iotest.HalfReader(strings.NewReader(string(data))), scan.At{File: "f", Line: 1}); err != nil {
		t.Fatal(err)
	}
	// Its mean_ttft_ms is 280.56148929999836.
	if n != 30 || ttft/30 != 280561489 {
		t.Errorf("%d requests, mean TTFT %v, mean e2e %v", n, ttft/30, e2e/30)
	}
}

// Any bytes end; requests keep their rules; the same bytes give the same.
func FuzzRecords(f *testing.F) {
	for _, s := range []string{perfOne, perfNew, guideOne, mooncakeTwo, bailianTwo, azureTwo, burstTwo, aiperfOne, sglangOne, dynamoOne, tensorrtOne, tgiOne, ollamaOne, llamaOne, responseOne} {
		f.Add([]byte(s))
	}
	for _, s := range []string{
		`{"num_prompts":2,"completed":2,"input_lens":[10,20],"output_lens":[3,1],"ttfts":[0.1,0.25],"itls":[[0.02,0.03],[]],"latencies":[1,2],"start_times":[100.0,1e2],"errors":["",""]}`,
		`{"request_id":"k","arrival_time":1770000000.5,"queued_ts":900.25,"scheduled_ts":900.75,"first_token_ts":901.0,"last_token_ts":903.0}`,
		`{"id":"a","arrival_ms":1770000000000,"queued_ms":1770000000001,"scheduled_ms":17,"first_token":"2026-03-01T12:00:00Z","end_ms":1770000000212,"attributes":{"a":1,"b":true,"c":"x","d":1.5}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, format := range Formats {
			once := read(t, format, string(data), 1<<16)
			if again := read(t, format, string(data), 1<<16); again != once {
				t.Fatalf("%s: %q, then %q", format.Name, once, again)
			}
			format.Sniff(data)
		}
	})
}
