package vllmlog

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

// told reads a log and shows what it says of limits, and the codes of issues.
func told(t *testing.T, log string, opts Options) (limits, issues []string) {
	t.Helper()
	opts.Limits = func(l trace.EngineLimits) {
		s := l.Replica
		if at, ok := l.At.Get(); ok {
			s += " " + at.UTC().Format(layout)
		}
		for _, x := range []struct {
			name string
			v    trace.Opt[int64]
		}{{"slots", l.Slots}, {"budget", l.Budget}, {"kv", l.KVTokens}} {
			if v, ok := x.v.Get(); ok {
				s += fmt.Sprintf(" %s=%d", x.name, v)
			}
		}
		limits = append(limits, strings.TrimSpace(s))
	}
	err := Read(context.Background(), strings.NewReader(log), opts, func(_ *trace.Request, i *trace.Issue) bool {
		if i != nil {
			issues = append(issues, string(i.Code))
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
	return limits, issues
}

// What each version says, in its own words, with made-up numbers.
func TestLimits(t *testing.T) {
	const (
		v0 = "INFO 05-04 14:43:16 api_server.py:151] "
		v8 = "INFO 05-04 14:43:16 [core.py:1] "
		ap = "(APIServer pid=7) INFO 05-04 14:43:16 [utils.py:233] "
		ec = "(EngineCore_DP0 pid=9) INFO 05-04 14:43:40 [kv_cache_utils.py:864] "
	)
	const at = "2026-05-04T14:43:16 "
	for name, c := range map[string]struct {
		lines  []string
		want   []string
		issues []string
	}{
		"0.4: all arguments, with their defaults": {
			[]string{
				v0 + "vLLM API server version 0.4.1",
				v0 + "args: Namespace(host=None, allowed_origins=['*'], chat_template='max_num_seqs=9, ', block_size=16, num_gpu_blocks_override=None, max_num_batched_tokens=None, max_num_seqs=256, max_log_len=None)",
				v0 + "Initializing an LLM engine (v0.4.1) with config: model='m', max_seq_len=8192, seed=0)",
				v0 + "# GPU blocks: 865, # CPU blocks: 327",
				"INFO:     Started server process [9264]",
			},
			[]string{at + "slots=256 kv=13840"}, nil,
		},
		"0.6: chunked prefill": {
			[]string{
				v0 + "args: Namespace(block_size=16, max_num_batched_tokens=None, max_num_seqs=64)",
				v0 + "Chunked prefill is enabled with max_num_batched_tokens=512.",
				v0 + "# GPU blocks: 1000, # CPU blocks: 2048",
				v0 + "Maximum concurrency for 4096 tokens per request: 3.91x",
			},
			[]string{at + "slots=64 budget=512 kv=16000"}, nil,
		},
		"0.7: the size of a block shows in the concurrency": {
			[]string{v0 + "# cuda blocks: 33660, # CPU blocks: 0", v0 + "Maximum concurrency for 4096 tokens per request: 131.48x"},
			[]string{at + "kv=538560"}, nil,
		},
		"blocks of a size that is not told": {
			[]string{v0 + "args: Namespace(block_size=None, max_num_seqs=None)", v0 + "# GPU blocks: 33660, # CPU blocks: 0"},
			nil, nil,
		},
		"a concurrency that fits no block": {
			[]string{v0 + "# GPU blocks: 1000", v0 + "Maximum concurrency for 1000 tokens per request: 1.51x"},
			nil, nil,
		},
		"0.8, at DEBUG: the defaults": {
			[]string{
				"DEBUG 05-04 14:43:16 [arg_utils.py:1811] Setting max_num_batched_tokens to 8192 for OPENAI_API_SERVER usage context.",
				"DEBUG 05-04 14:43:16 [arg_utils.py:1819] Setting max_num_seqs to 1024 for OPENAI_API_SERVER usage context.",
				v8 + "GPU KV cache size: 78,800 tokens",
				v8 + "GPU KV cache size: 78,784 tokens",
				v8 + "Maximum concurrency for 8,192 tokens per request: 9.62x",
			},
			[]string{at + "slots=1024 budget=8192 kv=78784"}, nil, // of two workers the least
		},
		"0.10: an engine has a number": {
			[]string{
				ap + "non-default args: {'api_key': ['sk-1', \"it's\"], 'max_num_seqs': 32, 'hf_overrides': {'max_num_seqs': 5}, 'config_format': <ConfigFormat.AUTO: 'auto'>}",
				ec + "Chunked prefill is enabled with max_num_batched_tokens=2048.",
				ec + "Overriding num_gpu_blocks=0 with num_gpu_blocks_override=512",
				ec + "GPU KV cache size: 100,000 tokens",
			},
			[]string{"engine 0 " + at + "slots=32 budget=2048 kv=100000"}, nil,
		},
		"0.28: one line, and the device is no GPU": {
			[]string{
				ap + "non-default args: {'max_num_seqs': 6, 'max_num_batched_tokens': 512, 'block_size': 32}",
				"(EngineCore pid=9) INFO 05-04 14:43:40 [kv_cache_utils.py:2327] CPU KV cache size: 3,072 tokens, Maximum concurrency for 2,048 tokens per request: 1.50x",
			},
			[]string{at + "slots=6 budget=512 kv=3072"}, nil,
		},
		"two engines behind one front end": {
			[]string{
				ap + "non-default args: {'data_parallel_size': 2, 'max_num_seqs': 6}",
				"(EngineCore_DP1 pid=9) INFO 05-04 14:43:40 [kv_cache_utils.py:1] GPU KV cache size: 2,000 tokens",
				"(EngineCore_DP0 pid=9) INFO 05-04 14:43:40 [kv_cache_utils.py:1] GPU KV cache size: 1,000 tokens",
			},
			[]string{"engine 1 " + at + "slots=6 kv=2000", "engine 0 " + at + "slots=6 kv=1000"}, nil,
		},
		"two starts": {
			[]string{
				ap + "non-default args: {'max_num_seqs': 6}",
				ec + "GPU KV cache size: 1,000 tokens",
				strings.ReplaceAll(ap, "14:43", "15:00") + "non-default args: {'max_num_seqs': 8}",
				strings.ReplaceAll(ec, "14:43", "15:00") + "GPU KV cache size: 900 tokens",
			},
			[]string{"engine 0 " + at + "slots=6 kv=1000", "engine 0 2026-05-04T15:00:16 slots=8 kv=900"}, nil,
		},
		"two containers": {
			[]string{
				"a-1  | " + ap + "non-default args: {'max_num_seqs': 6}",
				"b-1  | " + ap + "non-default args: {'max_num_seqs': 7}",
				"b-1  | " + ec + "GPU KV cache size: 900 tokens",
			},
			[]string{"a-1 " + at + "slots=6", "b-1 engine 0 " + at + "slots=7 kv=900"}, nil,
		},
		"arguments that are cut": {
			[]string{ap + "non-default args: {'max_num_seqs': 25", ec + "GPU KV cache size: 900 tokens"},
			[]string{"engine 0 2026-05-04T14:43:40 kv=900"}, []string{"bad-log-line"},
		},
		"numbers that are none": {
			[]string{
				ap + "Chunked prefill is enabled with max_num_batched_tokens=12e4.",
				ap + "Defaulting max_num_seqs to the usage context",
				ap + "non-default args: {'max_num_seqs': 0, 'max_num_batched_tokens': -5, 'block_size': 99999999999999999999}",
				ec + "GPU KV cache size: 99,999,999,999,999,999,999 tokens",
				ec + "GPU KV cache size: , tokens",
				ec + "Maximum concurrency for 0 tokens per request: NaNx",
			},
			nil, nil,
		},
		"no arguments, and no limits": {[]string{ap + "non-default args: {'model': 'm'}"}, nil, nil},
	} {
		got, issues := told(t, strings.Join(c.lines, "\n")+"\n", in2026)
		issues = slices.DeleteFunc(issues, func(s string) bool { return s == string(trace.ForeignLine) })
		if !slices.Equal(got, c.want) || !slices.Equal(issues, c.issues) {
			t.Errorf("%s:\n got %q, issues %q\nwant %q, issues %q", name, got, issues, c.want, c.issues)
		}
	}
}

// The year of a start is that of the log around it.
func TestLimitsYear(t *testing.T) {
	log := at(0, "non-default args: {'max_num_seqs': 6}") + at(1, "Received request a: params: None, lora_request: None.")
	got, issues := told(t, log, Options{ModTime: time.Date(2025, 12, 24, 0, 0, 0, 0, time.UTC), Zone: time.UTC})
	if !slices.Equal(got, []string{"2025-07-28T10:00:00 slots=6"}) || !slices.Equal(issues, []string{"year-assumed"}) {
		t.Errorf("%q, issues %q", got, issues)
	}
}

// A prompt with such a line in it states nothing.
func TestLimitsInPrompt(t *testing.T) {
	log := at(0, `Received request a: prompt: 'x\nGPU KV cache size: 5 tokens', params: None, lora_request: None.`) +
		at(0, "please say: GPU KV cache size: 5 tokens")
	if got, _ := told(t, log, in2026); got != nil {
		t.Errorf("%q", got)
	}
}

// Two front ends that take turns are two servers; one that follows another is
// the same server again.
func TestServersMixed(t *testing.T) {
	line := func(pid, sec int) string {
		return fmt.Sprintf("(APIServer pid=%d) %s", pid, at(sec, "Received request r"+fmt.Sprint(sec)+": params: None, lora_request: None."))
	}
	for _, c := range []struct {
		log  string
		want int
	}{
		{line(7, 1) + line(7, 2), 0},
		{line(7, 1) + line(7, 2) + line(9, 3) + line(9, 4), 0},
		{line(7, 1) + line(9, 2) + line(7, 3) + line(9, 4), 1},
		{"a-1  | " + line(7, 1) + "b-1  | " + line(9, 2) + "a-1  | " + line(7, 3), 0},
		{strings.ReplaceAll(line(7, 1)+line(9, 2)+line(7, 3), "APIServer", "ApiServer_0"), 0},
	} {
		_, issues := told(t, c.log, in2026)
		n := 0
		for _, i := range issues {
			if i == string(trace.ServersMixed) {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%q: %v", c.log, issues)
		}
	}
}
