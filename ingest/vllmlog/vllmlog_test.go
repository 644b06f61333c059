package vllmlog

import (
	"context"
	"encoding/json"

	"fmt"

	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/trace"
)

// result is what a log gives: a line a request, in order of yield; a line a
// reading; the codes of the issues of the whole.
type result struct {
	Requests, Readings, Issues []string
}

func (r result) without(code trace.Code) result {
	r.Issues = slices.DeleteFunc(slices.Clone(r.Issues), func(s string) bool { return strings.HasPrefix(s, string(code)) })
	return r
}

const layout = "2006-01-02T15:04:05.999999999"

func show(r *trace.Request) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v", r.ID, r.Outcome)
	if r.Replica != "" {
		fmt.Fprintf(&b, " replica=%s", r.Replica)
	}
	if t, ok := r.Arrival.Get(); ok {
		fmt.Fprintf(&b, " arrival=%s", t.UTC().Format(layout))
	} else if t, ok := r.Completed.Get(); ok {
		fmt.Fprintf(&b, " completed=%s", t.UTC().Format(layout))
	}
	if d, ok := r.TTFT().Get(); ok {
		fmt.Fprintf(&b, " ttft=%v", d)
	}
	for _, iv := range r.Intervals {
		fmt.Fprintf(&b, " %v=%v", iv.Phase, iv.End.Sub(iv.Start))
	}
	if d, ok := r.E2E().Get(); ok {
		fmt.Fprintf(&b, " e2e=%v", d)
	}
	if r.Completed.Basis == trace.Derived {
		b.WriteString("(derived)")
	}
	fmt.Fprintf(&b, " step=%v", r.Resolution)
	for _, o := range []struct {
		name string
		v    trace.Opt[int]
	}{{"in", r.Input}, {"out", r.Output}, {"max", r.MaxTokens}} {
		if n, ok := o.v.Get(); ok {
			fmt.Fprintf(&b, " %s=%d", o.name, n)
		}
	}
	if r.FinishReason != "" {
		fmt.Fprintf(&b, " reason=%s", r.FinishReason)
	}
	if r.Model != "" {
		fmt.Fprintf(&b, " model=%s", r.Model)
	}
	for _, a := range r.Attrs {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
	}
	for _, i := range r.Issues {
		fmt.Fprintf(&b, " !%s", i.Code)
	}
	return b.String()
}

func showReading(r trace.Reading) string {
	s := fmt.Sprintf("%s %s run=%d wait=%d kv=%v", r.Replica, r.At.UTC().Format(layout), r.Running.Or(-1), r.Waiting.Or(-1), r.KVUsage.Or(-1))
	if v, ok := r.PrefixHit.Get(); ok {
		s += fmt.Sprintf(" prefix=%v", v)
	}
	if v, ok := r.Preemptions.Get(); ok {
		s += fmt.Sprintf(" preemptions=%d", v)
	}
	return s + fmt.Sprintf(" in=%v/s out=%v/s", r.PromptRate.Or(-1), r.OutputRate.Or(-1))
}

func read(t testing.TB, log string, opts Options) result {
	t.Helper()
	var res result
	opts.Reading = func(r trace.Reading) { res.Readings = append(res.Readings, showReading(r)) }
	err := Read(context.Background(), strings.NewReader(log), opts, func(r *trace.Request, i *trace.Issue) bool {
		if i != nil {
			res.Issues = append(res.Issues, fmt.Sprintf("%s %d", i.Code, i.Pos.Line))
			return true
		}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", show(r), err)
		}
		if r.Source.Format != Format || r.Source.Engine != "vllm" || r.Clock != trace.ClockUnix || r.Source.Pos.Line == 0 {
			t.Errorf("source %+v, clock %v", r.Source, r.Clock)
		}
		res.Requests = append(res.Requests, show(r))
		return true
	})
	if err != nil {
		t.Error(err)
	}
	return res
}

// in2026 spares tests of other things the notes about year and zone.
var in2026 = Options{Year: 2026, Zone: time.UTC}

func TestCases(t *testing.T) {
	mod := time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name string
		opts Options
		want result
	}{
		{"compose-prefix-ansi.log", Options{ModTime: mod}, result{
			Requests: []string{"chatcmpl-c1 aborted replica=vllm-1 arrival=2025-10-23T16:18:20 e2e=11s step=1s in=3 max=16"},
			Readings: []string{"vllm-1 engine 0 2025-10-23T16:18:25 run=1 wait=2 kv=0.001 prefix=0 in=0.3/s out=3.2/s"},
			Issues:   []string{"year-assumed 0", "zone-assumed 0", "foreign-line 5"},
		}},
		{"crlf-log-injection-batch-ids.log", in2026, result{Requests: []string{
			"cmpl-b1-1 aborted arrival=2026-06-01T09:00:00 e2e=3s step=1s in=3 max=16",
			"cmpl-b1-0 incomplete arrival=2026-06-01T09:00:00 step=1s in=3 max=16",
			"cmpl-b2-0 incomplete arrival=2026-06-01T09:00:05 step=1s in=1 max=4",
		}}},
		{"duplicate-request-id.log", in2026, result{Requests: []string{
			"id incomplete arrival=2026-03-02T10:00:00 step=1s in=1 max=4 !ambiguous-end !lost-at-restart",
			"id incomplete arrival=2026-03-02T10:00:01 step=1s in=1 max=4 !request-id-reused !ambiguous-end !lost-at-restart",
			"id aborted arrival=2026-03-02T10:05:00 e2e=2s step=1s in=1 max=4",
		}}},
		{"engine-id-suffix.log", in2026, result{Requests: []string{
			"cmpl-99-0 aborted arrival=2026-04-02T08:00:01 e2e=8s step=1s max=32",
			"cmpl-99-1 aborted arrival=2026-04-02T08:00:01 e2e=8s step=1s max=32",
			"chatcmpl-11aa22bb33cc44dd incomplete arrival=2026-04-02T08:00:00 step=1s max=32",
		}}},
		{"json-lines-log.jsonl", Options{}, result{
			Requests: []string{
				"chatcmpl-j1 aborted arrival=2026-03-01T10:00:00.1 e2e=1.25s step=1ms max=8",
				"chatcmpl-j9 aborted completed=2026-03-01T10:00:01.35 step=1ms !no-arrival",
			},
			Issues: []string{"zone-assumed 0", "foreign-line 3"},
		}},
		{"mixed-resolution.log", Options{}, result{
			Requests: []string{"chatcmpl-mr aborted arrival=2026-02-03T10:00:00.95 e2e=5.05s step=1s in=2 max=4"},
			Issues:   []string{"year-assumed 0", "zone-assumed 0", "foreign-line 3"},
		}},
		{"stats-only-two-engines.log", in2026, result{
			Readings: []string{
				"engine 1 2026-07-07T07:07:07 run=8 wait=40 kv=1 prefix=0 in=1/s out=50/s",
				"engine 0 2026-07-07T07:07:07 run=2 wait=0 kv=0.095 prefix=0 in=1/s out=10/s",
				"engine 1 2026-07-07T07:07:17 run=8 wait=38 kv=0.999 prefix=0 in=1/s out=49/s",
				"engine 0 2026-07-07T07:07:17 run=1 wait=0 kv=0.04 prefix=0 in=1/s out=11/s",
			},
			Issues: []string{"request-logging-off 1"},
		}},
		{"year-rollover-and-leap-day.log", Options{}, result{
			Requests: []string{
				"cmpl-ny1-0 aborted arrival=2023-12-31T23:59:58 e2e=9s step=1s in=3 max=16",
				"cmpl-ny2-0 incomplete arrival=2024-02-29T08:00:00 step=1s in=3 max=16",
			},
			Readings: []string{"engine 0 2024-01-01T00:00:04 run=1 wait=0 kv=0.001 prefix=0 in=0.3/s out=1.6/s"},
			Issues:   []string{"year-assumed 0", "zone-assumed 0"},
		}},
		{"year-rollover-and-leap-day.log", in2026, result{ // a wrong year is not mended
			Requests: []string{
				"cmpl-ny1-0 aborted arrival=2026-12-31T23:59:58 e2e=9s step=1s in=3 max=16",
				"cmpl-ny2-0 incomplete step=1s in=3 max=16 !impossible-date",
			},
			Readings: []string{"engine 0 2027-01-01T00:00:04 run=1 wait=0 kv=0.001 prefix=0 in=0.3/s out=1.6/s"},
		}},
		{"empty-and-zero-profile.log", Options{}, result{Issues: []string{"empty-input 0"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b, err := os.ReadFile(filepath.Join("testdata", c.name))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, read(t, string(b), c.opts)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if want := c.name != "empty-and-zero-profile.log"; Sniff(b) != want {
				t.Errorf("Sniff is %v", !want)
			}
		})
	}
}

// TestShapes has a row for each line shape and version.
func TestShapes(t *testing.T) {
	params := "SamplingParams(n=2, best_of=1, temperature=0.7, stop=[', n=9, max_tokens=7', \"it's\"], stop_token_ids=[], max_tokens=16, min_tokens=0, structured_outputs=StructuredOutputsParams(json={'max_tokens=3': [1, (2)]}), extra_args=None)"
	for _, c := range []struct{ versions, line, want string }{
		{"0.4.0-0.4.2", `Received request cmpl-1: prompt: 'Say "hi"\nplease', sampling_params: ` + params + `, prompt_token_ids: [1, 9, 8], lora_request: None.`, "received cmpl-1 n=2 max=16 in=3"},
		{"0.4.3-0.5.2", `Received request cmpl-1: prompt: "it's, params: x", params: ` + params + `, prompt_token_ids: [], lora_request: None.`, "received cmpl-1 n=2 max=16 in=0"},
		{"0.5.3-0.8.5", `Received request cmpl-1: prompt: None, params: ` + params + `, prompt_token_ids: None, lora_request: None, prompt_adapter_request: None.`, "received cmpl-1 n=2 max=16"},
		{"0.9", `Received request cmpl-1: prompt: 'a\'b\\', params: ` + params + `, prompt_token_ids: [7], prompt_embeds shape: torch.Size([3, 4]), lora_request: LoRARequest(lora_name='x', lora_int_id=1), prompt_adapter_request: None.`, "received cmpl-1 n=2 max=16 in=1"},
		{"0.10-0.11.0", `Received request urn:x:1: prompt: '', params: BeamSearchParams(beam_width=2, max_tokens=5), prompt_token_ids: [7, 8], prompt_embeds shape: None, lora_request: None.`, "received urn:x:1 max=5 in=2"},
		{"0.11.1-", `Received request embd-1: params: PoolingParams(task='embed'), lora_request: None.`, "received embd-1"},
		{"no parameters", `Received request embd-1: params: None, lora_request: None.`, "received embd-1"},
		{"unlimited", `Received request a: params: SamplingParams(n=1, max_tokens=None), lora_request: None.`, "received a n=1"},
		{"0.11.1- DEBUG", `Request cmpl-1 details: prompt: 'x', prompt_token_ids: [1, 2], prompt_embeds shape: None.`, "details cmpl-1 in=2"},
		{"torn in the prompt", `Received request cmpl-1: prompt: 'abc`, "received torn cmpl-1"},
		{"torn in the fields", `Received request cmpl-1: params: SamplingParams(n=1), lora_requ`, "received torn cmpl-1 n=1"},
		{"torn in the id", `Received request cmpl`, "received torn"},
		{"no id", `Received request 'x', params: SamplingParams(n=1), lora_request: None.`, "received torn"},
		{"no id, in one word", `Received request "x: params: None, lora_request: None.`, "received torn"},
		{"no ids", `Aborted request(s) a,'b',c.`, "aborted torn"},
		{"another message", `Received a request with trace context but tracing is disabled`, "other"},
		{"V0, V1", `Added request cmpl-1.`, "added cmpl-1"},
		{"0.14-", `Added request 0_cmpl-1-0a1b2c3d.`, "added 0_cmpl-1-0a1b2c3d"},
		{"torn", `Added request cmpl-1`, "added torn"},
		{"0.4.0-0.6.1", `Finished request cmpl-1.`, "finished cmpl-1"},
		{"-0.10", `Aborted request cmpl-1.`, "aborted cmpl-1"},
		{"0.10.1-", `Aborted request(s) a-1,b-2.`, "aborted a-1,b-2"},
		{"0.8.5-", `Request cmpl-1 aborted.`, "aborted cmpl-1"},
		{"0.8.5- dead", `Request cmpl-1 failed (engine dead).`, "failed cmpl-1"},
		{"0.8.5- bad", `Request cmpl-1 failed (bad request).`, "refused cmpl-1"},
		{"2026 bad", `Request cmpl-1 failed (bad request): too long: Aborted request x.`, "refused cmpl-1"},
		{"2026 input", `Request cmpl-1 failed (input error): no.`, "refused cmpl-1"},
		{"0.8.5- other", `Request cmpl-1 failed.`, "failed cmpl-1"},
		{"2026 other", `Request cmpl-1 failed due to ValueError: x.`, "failed cmpl-1"},
		{"no such", `Request cmpl-1 is fine.`, "other"},
		{"0.10.1- whole", `Generated response chatcmpl-1: output: 'Hello, finish_reason: x', output_token_ids: [1, 2, 3], finish_reason: stop`, "generated chatcmpl-1 out=3 reason=stop"},
		{"0.10.1- delta", `Generated response chatcmpl-1 (streaming delta): output: 'He', output_token_ids: None, finish_reason: None`, "generated chatcmpl-1 delta reason=None"},
		{"0.10.1- stream", `Generated response chatcmpl-1 (streaming complete): output: "it's", output_token_ids: None, finish_reason: streaming_complete`, "generated chatcmpl-1 end reason=streaming_complete"},
		{"2026-08 whole", `Generated response a:b: output: 'Hello', finish_reason: length`, "generated a:b reason=length"},
		{"2026-08 DEBUG", `Generated response chatcmpl-1 (streaming complete) details: output_token_ids: [1]`, "other"},
		{"torn", `Generated response chatcmpl-1: output: 'Hel`, "generated torn chatcmpl-1"},
		{"Rust completion", `completions{request_id=cmpl-1 engine_request_id=cmpl-1-0badcafe}: completion finished model=org/m-8b prompt_tokens=42 output_tokens=17 finish_reason=stop`, "served cmpl-1 in=42 out=17 reason=stop model=org/m-8b"},
		{"Rust chat", `http{method=POST}:chat{request_id="c-1"}: chat completion finished stream=true model="m" prompt_tokens=4 output_tokens=1 finish_reason="length"`, "served c-1 in=4 out=1 end reason=length model=m"},
		{"Rust, no scope", `generate finished model=m prompt_tokens=4 output_tokens=1 finish_reason=abort`, "served in=4 out=1 reason=abort model=m"},
		{"Rust torn", `completion finished model=m prompt_to`, "served torn model=m"},
		{"V0 preemption", `Sequence group cmpl-1 is preempted by PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. total_num_cumulative_preemption=51`, "preempted cmpl-1"},
		{"start", `vLLM API server version 0.9.1`, "started"},
		{"uvicorn's start", `Started server process [7]`, "started"},
		{"death", `EngineCore encountered a fatal error.`, "died"},
		{"death seen", `AsyncLLM output_handler failed.`, "died"},
		{"V0 death", `Engine background task failed`, "died"},
		{"0.32 tokens counted", `Received request tokenize-b13cfe0a8b534c9f: params: None, lora_request: None.`, "other"},
		{"0.32 stop", `[shutdown] API server: shutdown triggered`, "stopping"},
		{"0.32 on a CPU", `Engine 000: Avg prompt throughput: 299.9 tokens/s, Avg generation throughput: 134.5 tokens/s, Running: 1 reqs, Waiting: 2 reqs, CPU KV cache usage: 4.2%`, "statistics 0/0 run=1 wait=2 kv=0.042 prefix=-1 preemptions=-1 299.9 134.5"},
		{"0.32 with remote caches", `Engine 000: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, KV fetch: 2 waiting to start, 1 in progress, 0 completed waiting, GPU KV cache usage: 1.0%`, "statistics 0/0 run=3 wait=4 kv=0.01 prefix=-1 preemptions=-1 1.5 2"},
		{"V0 0.4.0", `Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Swapped: 1 reqs, Pending: 4 reqs, GPU KV cache usage: 12.5%, CPU KV cache usage: 0.0%`, "statistics -1/0 run=3 wait=5 kv=0.125 prefix=-1 preemptions=-1 1.5 2"},
		{"V0 0.4.3-", `Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Swapped: 0 reqs, Pending: 4 reqs, GPU KV cache usage: 12.5%, CPU KV cache usage: 0.0%.`, "statistics -1/0 run=3 wait=4 kv=0.125 prefix=-1 preemptions=-1 1.5 2"},
		{"V1", `Engine 012: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 99.9%, Prefix cache hit rate: 12.0%`, "statistics 12/0 run=3 wait=4 kv=0.999 prefix=0.12 preemptions=-1 1.5 2"},
		{"2026", `Engine 000: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, Deferred: 1 reqs, Preemptions: 5, GPU KV cache usage: 1.0%, Prefix cache hit rate: 12.0%, External prefix cache hit rate: 1.0%, MM cache hit rate: 2.0%, Corrupted: 0 reqs`, "statistics 0/0 run=3 wait=4 kv=0.01 prefix=0.12 preemptions=-1 1.5 2"},
		{"aggregate", `2 Engines Aggregated: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 12.0%`, "statistics -1/2 run=3 wait=4 kv=0.01 prefix=0.12 preemptions=-1 1.5 2"},
		{"Rust", `Avg prompt tput: 1.5 toks/s, Avg generation tput: 2.0 toks/s, Reqs Running: 3, Waiting: 4, Deferred: 1 reqs, Preemptions: 5, GPU KV cache used: 1.0%, Prefix cache hit rate: 12.0%`, "statistics -1/0 run=3 wait=4 kv=0.01 prefix=0.12 preemptions=5 1.5 2"},
		{"not a number", `Engine 000: Avg prompt throughput: nan tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs`, "statistics torn"},
		{"iteration", `Engine 000: Iteration(3): 1 context requests, 5 context tokens`, "other"},
		{"iteration, old", `Iteration(3): 1 context requests, 5 context tokens, 0 generation requests`, "other"},
		{"speculation", `SpecDecoding metrics: Mean acceptance length: 2.1`, "other"},
		{"V0 second line", `Prefix cache hit rate: GPU: 0.00%, CPU: 0.00%`, "other"},
		{"the help on a prompt", `Starting: Received request a: params: None, lora_request: None.`, "other"},
	} {
		t.Run(c.versions, func(t *testing.T) {
			if got := showEvent(parse([]byte(c.line))); got != c.want {
				t.Errorf("%s\n got %s\nwant %s", c.line, got, c.want)
			}
		})
	}
}

func showEvent(ev event) string {
	s := [...]string{"other", "received", "details", "added", "finished", "aborted", "failed", "refused", "generated", "served", "statistics", "preempted", "started", "died", "stopping"}[ev.kind]
	if ev.torn {
		s += " torn"
	}
	if ev.id != nil {
		s += " " + string(ev.id)
	}
	for _, o := range []struct {
		name string
		n    int
	}{{"n", ev.n}, {"max", ev.maxTokens}, {"in", ev.input}, {"out", ev.output}} {
		if o.n >= 0 {
			s += fmt.Sprintf(" %s=%d", o.name, o.n)
		}
	}
	if ev.delta {
		s += " delta"
	}
	if ev.stream {
		s += " end"
	}
	if ev.reason != nil {
		s += " reason=" + string(ev.reason)
	}
	if ev.model != nil {
		s += " model=" + string(ev.model)
	}
	if st := ev.stats; ev.kind == statistics && !ev.torn {
		s += fmt.Sprintf(" %d/%d run=%d wait=%d kv=%v prefix=%v preemptions=%d %v %v", st.engine, st.engines, st.running, st.waiting, st.kv, st.prefix, st.preemptions, st.prompt, st.output)
	}
	return s
}

const canary = "CANARY"

// sample is a generated log of every kind of event. The n-th line is of second
// n after 10:00.
var sample = []string{
	`Received request chatcmpl-1: prompt: '` + canary + ` it\'s \x1b[0m {"a"} ` + canary + `', params: SamplingParams(n=1, stop=['` + canary + `'], max_tokens=8), prompt_token_ids: [1, 2, 3], lora_request: None.`,
	`Added request chatcmpl-1-0a1b2c3d.`,
	`Received request cmpl-2-0: params: SamplingParams(n=2, max_tokens=8), lora_request: None.`,
	`Request cmpl-2-0 details: prompt: "` + canary + `", prompt_token_ids: [1, 2], prompt_embeds shape: None.`,
	`Added request 0_cmpl-2-0-0a1b2c3e.`,
	`Added request 1_cmpl-2-0-0a1b2c3f.`,
	`Generated response chatcmpl-1 (streaming delta): output: '` + canary + `', output_token_ids: None, finish_reason: None`,
	`Engine 000: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 50.0%, Prefix cache hit rate: 25.0%`,
	`Generated response chatcmpl-1 (streaming delta): output: '` + canary + `', output_token_ids: None, finish_reason: None`,
	`Generated response chatcmpl-1 (streaming complete): output: '` + canary + `', output_token_ids: None, finish_reason: streaming_complete`,
	`Aborted request(s) 0_cmpl-2-0-0a1b2c3e,1_cmpl-2-0-0a1b2c3f.`,
	`Request cmpl-2-0 aborted.`,
	`Received request cmpl-3: params: SamplingParams(n=1, max_tokens=8), lora_request: None.`,
	`Request cmpl-3 failed (bad request): ` + canary + `.`,
	`completions{request_id=cmpl-4 engine_request_id=cmpl-4-0badcafe}: completion finished model=org/m-8b prompt_tokens=42 output_tokens=17 finish_reason=stop`,
	`Received request cmpl-5: prompt: '` + canary + `', params: SamplingParams(n=1, max_tokens=8), prompt_token_ids: None, lora_request: None.`,
}

// sampleWant is what sample gives under a wrapper whose clock has that step
// and the replica of that name.
func sampleWant(step, replica string) result {
	if replica != "" {
		replica = " replica=" + replica
	}
	engine := "engine 0"
	if replica != "" {
		engine = strings.TrimPrefix(replica, " replica=") + " engine 0"
	}
	return result{
		Requests: []string{
			"chatcmpl-1 ok" + replica + " arrival=2026-07-28T10:00:00 ttft=6s decode=2s e2e=9s step=" + step + " in=3 max=8",
			"cmpl-2-0 aborted" + replica + " arrival=2026-07-28T10:00:02 e2e=8s step=" + step + " in=2 max=8 n=2",
			"cmpl-3 rejected" + replica + " arrival=2026-07-28T10:00:12 e2e=1s step=" + step + " max=8",
			"cmpl-4 ok" + replica + " completed=2026-07-28T10:00:14 step=" + step + " in=42 out=17 reason=stop model=org/m-8b !no-arrival",
			"cmpl-5 incomplete" + replica + " arrival=2026-07-28T10:00:15 step=" + step + " max=8",
		},
		Readings: []string{engine + " 2026-07-28T10:00:07 run=3 wait=4 kv=0.5 prefix=0.25 in=1.5/s out=2/s"},
	}
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// inner are the ways in which vLLM itself writes a line, outer those in which
// runtimes wrap it; sec is the second after 10:00.
var inner = map[string]func(sec int, msg string) string{
	"plain": func(sec int, m string) string { return fmt.Sprintf("INFO 07-28 10:00:%02d [x.py:7] %s", sec, m) },
	"old":   func(sec int, m string) string { return fmt.Sprintf("INFO 07-28 10:00:%02d x.py:7] %s", sec, m) },
	"process": func(sec int, m string) string {
		return fmt.Sprintf("(APIServer pid=1) INFO 07-28 10:00:%02d [a/b/x.py:7] %s", sec, m)
	},
	"rank": func(sec int, m string) string {
		return fmt.Sprintf("(VllmWorker rank=0 pid=1) DEBUG 07-28 10:00:%02d [x.py:7] %s", sec, m)
	},
	"colour": func(sec int, m string) string {
		return fmt.Sprintf("\x1b[1;36m(APIServer pid=1)\x1b[0;0m \x1b[32mINFO\x1b[0m \x1b[90m07-28 10:00:%02d\x1b[0m \x1b[90m[x.py:7]\x1b[0m %s", sec, m)
	},
	"prefix": func(sec int, m string) string {
		return fmt.Sprintf("blue: replica 3 >INFO 07-28 10:00:%02d [x.py:7] %s", sec, m)
	},
	"warning": func(sec int, m string) string { return fmt.Sprintf("WARNING 07-28 10:00:%02d [x.py:7] %s", sec, m) },
}

var outer = map[string]struct {
	step, replica string
	wrap          func(sec int, line string) string
}{
	"none":        {"1s", "", func(_ int, l string) string { return l }},
	"crlf":        {"1s", "", func(_ int, l string) string { return l + "\r" }},
	"docker":      {"1ns", "", func(sec int, l string) string { return dockerLine(sec, l+"\n") }},
	"docker crlf": {"1ns", "", func(sec int, l string) string { return dockerLine(sec, l+"\r\n") }},
	"docker pieces": {"1ns", "", func(sec int, l string) string {
		return dockerLine(sec, l[:20]) + "\n" + dockerLine(sec, l[20:40]) + "\n" + dockerLine(sec, l[40:]+"\n")
	}},
	// Two lines of three are split, one of them between CR and LF: all the
	// same, every line ends in CRLF.
	"docker crlf pieces": {"1ns", "", func(sec int, l string) string {
		switch sec % 3 {
		case 0:
			return dockerLine(sec, l+"\r") + "\n" + dockerLine(sec, "\n")
		case 1:
			return dockerLine(sec, l[:30]) + "\n" + dockerLine(sec, l[30:]+"\r\n")
		}
		return dockerLine(sec, l+"\r\n")
	}},
	"docker without newlines": {"1ns", "", func(sec int, l string) string { return dockerLine(sec, l) }},
	"cri": {"1ns", "", func(sec int, l string) string {
		return fmt.Sprintf("2026-07-28T10:00:%02d.000000000Z stderr F %s", sec, l)
	}},
	"cri pieces": {"1ns", "", func(sec int, l string) string {
		at := fmt.Sprintf("2026-07-28T12:00:%02d.000000000+02:00 ", sec)
		other := at + "stdout P half a line \n"
		return at + "stderr P " + l[:9] + "\n" + other + at + "stderr P " + l[9:30] + "\n" + at + "stderr F " + l[30:]
	}},
	"kubectl": {"1ns", "", func(sec int, l string) string { return fmt.Sprintf("2026-07-28T10:00:%02d.000000000Z %s", sec, l) }},
	"kubectl prefix": {"1ns", "vllm-0", func(sec int, l string) string {
		return fmt.Sprintf("[pod/vllm-0/vllm] 2026-07-28T10:00:%02d.000000000Z %s", sec, l)
	}},
	"compose":        {"1s", "vllm-1", func(_ int, l string) string { return "vllm-1  | " + l }},
	"compose colour": {"1s", "vllm-1", func(_ int, l string) string { return "\x1b[36mvllm-1  |\x1b[0m " + l }},
	"compose stamps": {"1ns", "vllm-1", func(sec int, l string) string {
		return fmt.Sprintf("vllm-1  | 2026-07-28T10:00:%02d.000000000Z %s", sec, l)
	}},
	"syslog": {"1s", "", func(sec int, l string) string { return fmt.Sprintf("Jul 28 10:00:%02d host vllm[12]: %s", sec, l) }},
	"journald": {"1µs", "", func(sec int, l string) string {
		return fmt.Sprintf("2026-07-28T10:00:%02d.000000+0000 host vllm[12]: %s", sec, l)
	}},
	"rfc5424": {"1ms", "", func(sec int, l string) string {
		return fmt.Sprintf("<30>1 2026-07-28T10:00:%02d.000Z host vllm[12]: %s", sec, l)
	}},
	"server": {"1ms", "", func(sec int, l string) string {
		return fmt.Sprintf("2026-07-28 10:00:%02d.000 77 frontend.trace %s", sec, l[strings.LastIndex(l, ":7] ")+4:])
	}},
	"logging": {"1ms", "", func(sec int, l string) string {
		return fmt.Sprintf("2026-07-28 10:00:%02d,000 - vllm.x - INFO - %s", sec, l[strings.LastIndex(l, ":7] ")+4:])
	}},
	"journald of docker": {"1ns", "", func(sec int, l string) string {
		return fmt.Sprintf("Jul 28 10:00:%02d host dockerd[1]: %s", sec, dockerLine(sec, l+"\n"))
	}},
}

func dockerLine(sec int, log string) string {
	return fmt.Sprintf(`{"log":%s,"stream":"stderr","time":"2026-07-28T10:00:%02dZ"}`, quoted(log), sec)
}

func TestWrappers(t *testing.T) {
	for in, write := range inner {
		for out, o := range outer {
			t.Run(in+" in "+out, func(t *testing.T) {
				var b strings.Builder
				for i, msg := range sample {
					b.WriteString(o.wrap(i, write(i, msg)) + "\n")
				}
				got := read(t, b.String(), in2026)
				want := sampleWant(o.step, o.replica)
				if out == "cri pieces" { // the other stream's line never ends
					want.Issues = []string{"foreign-line 2"}
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("-want +got:\n%s", d)
				}
				if !Sniff([]byte(b.String())) {
					t.Error("not recognised")
				}
			})
		}
	}
}

func TestJSON(t *testing.T) {
	for name, c := range map[string]struct {
		step string
		line func(sec int, msg string) string
	}{
		"asctime": {"1ms", func(sec int, m string) string {
			return fmt.Sprintf(`{"asctime": "2026-07-28 10:00:%02d,000", "levelname": "INFO", "message": %s}`, sec, quoted(m))
		}},
		"timestamp": {"1µs", func(sec int, m string) string {
			return fmt.Sprintf(`{"level":"info","msg":%s,"timestamp":"2026-07-28T12:00:%02d.000000+02:00"}`, quoted(m), sec)
		}},
		"process": {"1s", func(sec int, m string) string {
			return fmt.Sprintf(`(APIServer pid=1) {"time": "2026-07-28T10:00:%02dZ", "message": %s, "x": {"y": ["}"]}}`, sec, quoted(m))
		}},
		"ts": {"1ms", func(sec int, m string) string {
			return fmt.Sprintf(`{"ts": %d.250, "message": %s}`, 1785232800+sec, quoted(m))
		}},
		"docker": {"1ns", func(sec int, m string) string {
			return dockerLine(sec, fmt.Sprintf("(APIServer pid=1) {\"asctime\": \"2026-07-28 11:11:%02d,000\", \"message\": %s}\n", sec, quoted(m)))
		}},
		"formatted": {"1s", func(sec int, m string) string {
			return fmt.Sprintf(`{"message": %s}`, quoted(inner["process"](sec, m)))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			for i, msg := range sample {
				b.WriteString(c.line(i, msg) + "\n")
			}
			want, got := sampleWant(c.step, ""), read(t, b.String(), in2026)
			if name == "ts" {
				for i := range got.Requests {
					got.Requests[i] = strings.Replace(got.Requests[i], ".25 ", " ", 1)
				}
				got.Readings[0] = strings.Replace(got.Readings[0], ".25 ", " ", 1)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
			if !Sniff([]byte(b.String())) {
				t.Error("not recognised")
			}
		})
	}
	t.Run("no time", func(t *testing.T) {
		got := read(t, `{"message": "Received request a: params: None, lora_request: None."}
{"message": "Aborted request a."}
{"message": "Received request b: params: None, lora_request: None."}
{"message": "Finished request b."}
`, Options{})
		want := result{Requests: []string{"a aborted step=1s", "b incomplete step=1s"}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	})
}

func plainSample() []string {
	var lines []string
	for i, m := range sample {
		lines = append(lines, inner["process"](i, m))
	}
	return lines
}

// TestForeignLines puts foreign lines at every place of a log: only the note
// of them may differ.
func TestForeignLines(t *testing.T) {
	foreign := []string{
		`ts=2025-10-23T16:18:31.001Z level=info msg="Received request chatcmpl-zz from scraper"`,
		`2026-07-28 10:00:00 the user said Aborted request chatcmpl-1.`,
		`Aborted request chatcmpl-1.`,
		`  "INFO 07-28 10:00:01 [x.py:7] Aborted request chatcmpl-1."`,
		`Traceback (most recent call last):`,
		`{"level":"info","text":"Aborted request chatcmpl-1."}`,
		`{"resourceSpans":[]}`,
		`{"message": "`,
		"\x00\xff\xfe garbage \x1b[",
		`Jan 05 01:02:03 host sshd[3]: session closed`,
		`INFO:     10.0.0.7:51324 - "POST /v1/chat/completions HTTP/1.1" 200 OK`,
		strings.Repeat("[", 500),
		"\r",
	}
	lines := plainSample()
	want := sampleWant("1s", "")
	for at := range len(lines) + 1 {
		all := slices.Insert(slices.Clone(lines), at, foreign...)
		for _, end := range []string{"\n", "\r\n"} {
			got := read(t, strings.Join(all, end)+end, in2026)
			if len(got.Issues) != 1 || !strings.HasPrefix(got.Issues[0], "foreign-line") {
				t.Errorf("issues %q", got.Issues)
			}
			if d := cmp.Diff(want, got.without(trace.ForeignLine), cmp.Transformer("len", func(s []string) string { return strings.Join(s, "\n") })); d != "" {
				t.Errorf("foreign lines before line %d, -want +got:\n%s", at+1, d)
			}
		}
	}
}

// TestContinuation: a message of several lines repeats its prefix on each and
// ends all but the last in CRLF.
func TestContinuation(t *testing.T) {
	p := "(APIServer pid=1) INFO 07-28 10:00:0"
	log := p + "0 [logger.py:7] Received request a: params: None, lora_request: None.\n" +
		p + "1 [logger.py:7] Received request b: params: None, lora_request: None.\n" +
		p + "3 [async_llm.py:9] Request b failed (bad request): text\r\n" +
		p + "3 [async_llm.py:9] Aborted request a.\r\n" +
		p + "3 [async_llm.py:9] Aborted request a.\n" +
		p + "5 [async_llm.py:9] Aborted request a.\n"
	want := result{Requests: []string{
		"b rejected arrival=2026-07-28T10:00:01 e2e=2s step=1s",
		"a aborted arrival=2026-07-28T10:00:00 e2e=5s step=1s",
	}}
	if d := cmp.Diff(want, read(t, log, in2026)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// at is a line of that second after 10:00 on 28 July.
func at(sec int, msg string) string {
	return fmt.Sprintf("INFO 07-28 10:%02d:%02d [x.py:7] %s\n", sec/60, sec%60, msg)
}

// recv is a Received line likewise.
func recv(sec int, id string) string {
	return at(sec, "Received request "+id+": params: None, lora_request: None.")
}

// had is a statistics line likewise.
func had(sec, running, waiting int) string {
	return at(sec, fmt.Sprintf("Engine 000: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: %d reqs, Waiting: %d reqs, GPU KV cache usage: 1.0%%", running, waiting))
}

func TestLife(t *testing.T) {
	for _, c := range []struct {
		name, log string
		want      []string
		issues    []string
	}{
		{"both words for one abort", recv(0, "a") + at(1, "Aborted request a.") + at(2, "Request a aborted."),
			[]string{"a aborted arrival=2026-07-28T10:00:00 e2e=1s step=1s"}, nil},
		{"V0's finish after a failure", recv(0, "a") + at(1, "Request a failed.") + at(2, "Finished request a."),
			[]string{"a error arrival=2026-07-28T10:00:00 e2e=1s step=1s"}, nil},
		{"the engine dies", recv(0, "a") + recv(1, "b") + at(3, "EngineCore encountered a fatal error.") + at(4, "Request b failed (engine dead).") + recv(5, "c"),
			[]string{
				"b error arrival=2026-07-28T10:00:01 e2e=3s step=1s",
				"a error arrival=2026-07-28T10:00:00 e2e=3s(derived) step=1s",
				"c incomplete arrival=2026-07-28T10:00:05 step=1s",
			}, nil},
		{"it dies when told to stop", recv(0, "a") + at(3, "[shutdown] API server: shutdown triggered") + at(3, "AsyncLLM output_handler failed."),
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, nil},
		{"it dies with fewer requests than have no end", recv(0, "a") + recv(1, "b") + had(2, 1, 1) + recv(3, "c") + had(4, 1, 1) + recv(5, "d") + at(6, "EngineCore encountered a fatal error."),
			[]string{
				"a error arrival=2026-07-28T10:00:00 e2e=6s(derived) step=1s",
				"b error arrival=2026-07-28T10:00:01 e2e=5s(derived) step=1s",
				"c error arrival=2026-07-28T10:00:03 e2e=3s(derived) step=1s",
				"d error arrival=2026-07-28T10:00:05 e2e=1s(derived) step=1s",
			}, nil},
		{"it dies with more requests than it has", recv(0, "a") + recv(1, "b") + had(2, 2, 0) + recv(3, "c") + had(4, 1, 0) + recv(5, "d") + at(6, "EngineCore encountered a fatal error."),
			[]string{
				"a incomplete arrival=2026-07-28T10:00:00 step=1s",
				"b incomplete arrival=2026-07-28T10:00:01 step=1s",
				"c error arrival=2026-07-28T10:00:03 e2e=3s(derived) step=1s",
				"d error arrival=2026-07-28T10:00:05 e2e=1s(derived) step=1s",
			}, nil},
		{"finished because it died", recv(0, "a") + at(3, "Engine background task failed") + at(4, "Finished request a."),
			[]string{"a error arrival=2026-07-28T10:00:00 e2e=4s step=1s"}, nil},
		{"it dies of memory", recv(0, "a") + "(EngineCore pid=9) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" + recv(2, "b") + at(3, "Dumping input data for V1 LLM engine (v0.9.0) with config: x") + at(4, "EngineCore encountered a fatal error.") + "INFO:     Started server process [1]\n" + recv(5, "c"),
			[]string{
				"a error arrival=2026-07-28T10:00:00 step=1s",
				"b error arrival=2026-07-28T10:00:02 e2e=1s(derived) step=1s",
				"c incomplete arrival=2026-07-28T10:00:05 step=1s",
			}, nil},
		{"an access line ends nothing", recv(0, "a") + "2026-07-28T10:00:01Z (APIServer pid=7) INFO:     10.0.0.7:51324 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n",
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, nil},
		{"the engine's ids tell equal ones apart", recv(0, "a") + at(0, "Added request a-00000001.") + recv(1, "a") + at(1, "Added request a-00000002.") +
			at(3, "Aborted request(s) a-00000001.") + at(3, "Request a aborted.") + at(5, "Aborted request(s) a-00000002."),
			[]string{
				"a aborted arrival=2026-07-28T10:00:00 e2e=3s step=1s",
				"a aborted arrival=2026-07-28T10:00:01 e2e=4s step=1s !request-id-reused",
			}, nil},
		{"as many ends as equal ids", recv(0, "a") + recv(1, "a") + at(2, "Aborted request a.") + at(3, "Aborted request a.") + recv(4, "a") + at(5, "Aborted request a."),
			[]string{
				"a incomplete arrival=2026-07-28T10:00:01 step=1s !request-id-reused !ambiguous-end",
				"a incomplete arrival=2026-07-28T10:00:00 step=1s !ambiguous-end",
				"a aborted arrival=2026-07-28T10:00:04 e2e=1s step=1s",
			}, nil},
		{"an id that ends like the engine's", recv(0, "req") + recv(0, "req-deadbeef") + at(1, "Added request req-deadbeef.") + at(2, "Aborted request req-deadbeef.") +
			at(2, "Request req-deadbeef aborted.") + at(4, "Aborted request req."),
			[]string{
				"req-deadbeef aborted arrival=2026-07-28T10:00:00 e2e=2s step=1s",
				"req aborted arrival=2026-07-28T10:00:00 e2e=4s step=1s",
			}, nil},
		{"such an id with a suffix", recv(0, "req-deadbeef") + at(1, "Added request req-deadbeef-0a1b2c3d.") + at(2, "Aborted request(s) req-deadbeef-0a1b2c3d."),
			[]string{"req-deadbeef aborted arrival=2026-07-28T10:00:00 e2e=2s step=1s"}, nil},
		{"an arrival after the engine's line", at(0, "Added request a.") + recv(0, "a") + at(2, "Aborted request a."),
			[]string{"a aborted arrival=2026-07-28T10:00:00 e2e=2s step=1s"}, nil},
		{"no arrival", at(2, "Aborted request(s) a-0a1b2c3d.") + at(2, "Request a aborted."),
			[]string{"a aborted completed=2026-07-28T10:00:02 step=1s !no-arrival"}, nil},
		{"samples and their outputs", at(0, "Received request a: params: SamplingParams(n=2, max_tokens=3), lora_request: None.") +
			at(1, "Generated response a: output: 'x', output_token_ids: [1, 2, 3], finish_reason: length") + at(2, "Generated response a: output: 'y', output_token_ids: [4], finish_reason: stop"),
			[]string{"a ok arrival=2026-07-28T10:00:00 e2e=2s step=1s out=4 max=3 reason=stop n=2"}, nil},
		{"V0's parallel samples", recv(0, "a") + at(0, "Added request a_parallel_sample_0.") + at(3, "Aborted request a_parallel_sample_0."),
			[]string{"a aborted arrival=2026-07-28T10:00:00 e2e=3s step=1s"}, nil},
		{"several API servers", "(ApiServer_0 pid=8) " + recv(0, "a") + "(ApiServer_1 pid=9) " + recv(1, "a") + "(ApiServer_1 pid=9) " + at(3, "Aborted request a.") +
			"(ApiServer_1 pid=9) INFO:     Started server process [9]\n" + "(ApiServer_0 pid=8) " + at(5, "Aborted request a."),
			[]string{
				"a aborted arrival=2026-07-28T10:00:01 e2e=2s step=1s",
				"a aborted arrival=2026-07-28T10:00:00 e2e=5s step=1s",
			}, nil},
		{"a restart in one of two containers", "blue-1  | " + recv(0, "a") + "green-1 | " + recv(0, "b") + "blue-1  | INFO:     Started server process [1]\n" + "green-1 | " + at(4, "Aborted request b."),
			[]string{
				"a incomplete replica=blue-1 arrival=2026-07-28T10:00:00 step=1s !lost-at-restart",
				"b aborted replica=green-1 arrival=2026-07-28T10:00:00 e2e=4s step=1s",
			}, nil},
		{"lines of one place and second in a log with CRLF", strings.ReplaceAll(recv(0, "a")+recv(0, "b")+at(2, "Aborted request a.")+at(2, "Aborted request b."), "\n", "\r\n"),
			[]string{
				"a aborted arrival=2026-07-28T10:00:00 e2e=2s step=1s",
				"b aborted arrival=2026-07-28T10:00:00 e2e=2s step=1s",
			}, nil},
		{"an end told twice ends no other", recv(0, "req") + recv(0, "req-deadbeef") + at(1, "Finished request req-deadbeef.") + at(2, "Aborted request req-deadbeef.") + at(3, "Finished request req."),
			[]string{
				"req-deadbeef ok arrival=2026-07-28T10:00:00 e2e=1s step=1s",
				"req ok arrival=2026-07-28T10:00:00 e2e=3s step=1s",
			}, nil},
		{"a stamp of no year", recv(0, "a") + "INFO 13-45 10:00:05 [x.py:7] Aborted request a.\n",
			[]string{"a aborted arrival=2026-07-28T10:00:00 step=1s !impossible-date"}, nil},
		{"an end before the arrival", recv(60, "a") + at(0, "Finished request a."),
			[]string{"a incomplete arrival=2026-07-28T10:01:00 step=1s !end-before-start"}, []string{"clock-backwards 0"}},
		{"lines that are not whole", recv(0, "a") + at(0, "Received request b: prompt: 'x") + at(1, "Aborted request a"),
			[]string{
				"a incomplete arrival=2026-07-28T10:00:00 step=1s",
				"b incomplete arrival=2026-07-28T10:00:00 step=1s !bad-log-line",
			}, []string{"bad-log-line 3"}},
		{"a torn end", recv(0, "a") + strings.TrimSuffix(at(1, "Received request b: par"), "\n"),
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, []string{"truncated 2"}},
		{"messages whose first line is short", recv(0, "a") +
			`{"time":"2026-07-28T10:00:01Z","log":"INFO 07-28 10:00:01 [x.py:7] \nsecond line\n"}` + "\n" +
			`{"time":"2026-07-28T10:00:01Z","message":"Engine \nsecond line"}` + "\n" + `{"time":"2026-07-28T10:00:01Z","message":"\nsecond line"}` + "\n",
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, nil},
		{"a torn record", recv(0, "a") + `{"log":"INFO 07-28 10:00:01 [logger.py:40] Received request b: prompt: 'x', par`,
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, []string{"truncated 2"}},
		{"a whole record of something else, without a newline", recv(0, "a") + `{"level":"info","id":7}`,
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, []string{"foreign-line 2"}},
		{"no newline at the end", recv(0, "a") + strings.TrimSuffix(at(1, "Aborted request a."), "\n"),
			[]string{"a aborted arrival=2026-07-28T10:00:00 e2e=1s step=1s"}, nil},
		{"preemptions", recv(0, "a") + strings.Repeat(at(1, "Sequence group a is preempted by PreemptionMode.SWAP mode because x."), 2),
			[]string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, []string{"preemption-sampled 2"}},
		{"ids cut by --max-log-len", at(0, "Received request a: prompt: '"+strings.Repeat("x", 20)+"', params: None, prompt_token_ids: [1"+strings.Repeat(", 1", 19)+"], lora_request: None.") +
			at(0, "Received request b: prompt: '"+strings.Repeat("x", 40)+"', params: None, prompt_token_ids: [1"+strings.Repeat(", 1", 19)+"], lora_request: None.") +
			at(0, "Received request c: prompt: '"+strings.Repeat("x", 20)+"', params: None, prompt_token_ids: [1"+strings.Repeat(", 1", 19)+"], lora_request: None."),
			[]string{
				"a incomplete arrival=2026-07-28T10:00:00 step=1s",
				"b incomplete arrival=2026-07-28T10:00:00 step=1s in=20",
				"c incomplete arrival=2026-07-28T10:00:00 step=1s in=20",
			}, nil},
		{"the order within a step", "2026-07-28T10:00:00.950Z " + recv(0, "a") + at(0, "Aborted request a."),
			[]string{"a aborted arrival=2026-07-28T10:00:00.95 e2e=0s(derived) step=1s"}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := read(t, c.log, in2026)
			got.Readings = nil // of no matter here
			if d := cmp.Diff(result{Requests: c.want, Issues: c.issues}, got); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
