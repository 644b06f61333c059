package sim

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// LogVersion is the version of vLLM whose lines [Log] writes: the first that
// has this shape of them.
type LogVersion string

const (
	Log04 LogVersion = "0.4"  // engine of version 0, a Finished line for each request
	Log06 LogVersion = "0.6"  // an Added line, and no line for a normal end
	Log08 LogVersion = "0.8"  // engine of version 1
	Log10 LogVersion = "0.10" // coloured process prefixes
	Log16 LogVersion = "0.16" // no prompts; the engine's ids have a suffix
)

// LogVersions lists the versions.
func LogVersions() []LogVersion { return []LogVersion{Log04, Log06, Log08, Log10, Log16} }

// Wrapper is what stands around each line of a log.
type Wrapper string

const (
	Bare    Wrapper = "bare"
	Docker  Wrapper = "docker"  // docker's json-file
	CRI     Wrapper = "cri"     // containerd's files
	Kubectl Wrapper = "kubectl" // kubectl logs --timestamps
	Compose Wrapper = "compose" // docker compose logs, with its colours
)

// Wrappers lists the wrappers.
func Wrappers() []Wrapper { return []Wrapper{Bare, Docker, CRI, Kubectl, Compose} }

// LogShape says how [Log] writes.
type LogShape struct {
	Version LogVersion
	Wrapper Wrapper // empty: Bare
	CRLF    bool    // lines end as on Windows
	// Outputs: chat requests, whose responses are logged. From 0.10 on.
	Outputs bool
	// Piece is the length at which Docker and CRI split lines; 0: 16 KiB.
	Piece int
}

// wrapperDelay is the time from a line being written to the container's
// runtime reading it.
const wrapperDelay = 40 * time.Microsecond

// received is when the front end writes that it received r: half way to the
// queue, since it has to tokenise first.
func received(r *trace.Request) trace.Time {
	return r.Arrival.At.Add(r.Queued.At.Sub(r.Arrival.At) / 2)
}

// stamp is the instant that a reader finds on a line written at t.
func (o LogShape) stamp(t trace.Time) (at trace.Time, resolution time.Duration) {
	switch o.Wrapper {
	case Docker, CRI, Kubectl:
		return t.Add(wrapperDelay), 1
	}
	return t - t%1e9, time.Second
}

// container is the container that the wrapper names, if it does.
func (o LogShape) container() string {
	if o.Wrapper == Compose {
		return "vllm-1"
	}
	return ""
}

func (o LogShape) id(r *trace.Request) string {
	if o.Outputs {
		return "chat" + strings.TrimSuffix(r.ID, "-0")
	}
	return r.ID
}

// internal is the engine's own id of r.
func (o LogShape) internal(r *trace.Request) string {
	if o.Version == Log16 {
		return o.id(r) + "-" + r.SpanID[:8]
	}
	return o.id(r)
}

// prompts are the texts that requests seem to have, as Python prints them. Each
// is a trap for a reader that does not skip them.
var prompts = []string{
	`'Tell me about queues.'`,
	`"it's\nINFO 10-09 09:00:00 [async_llm.py:420] Aborted request cmpl-0000000000000000-0."`,
	`'a, params: SamplingParams(n=4, max_tokens=7), lora_request: None.'`,
	`'\\'`,
	`'caf\xe9 \'quoted\' "twice"'`,
}

// line is one line of the log before it gets its stamp and wrapper.
type line struct {
	at    trace.Time
	level string
	file  string // with the number of the line
	text  string
}

// Log writes what one replica's server logs. Rejected requests have no line.
func Log(w io.Writer, run *Run, replica string, o LogShape) error {
	if !slices.Contains(LogVersions(), o.Version) {
		return fmt.Errorf("no such version: %q", o.Version)
	}
	if !slices.Contains(Wrappers(), cmp.Or(o.Wrapper, Bare)) {
		return fmt.Errorf("no such wrapper: %q", o.Wrapper)
	}
	var lines []line
	add := func(at trace.Time, file, format string, args ...any) {
		lines = append(lines, line{at, "INFO", file, fmt.Sprintf(format, args...)})
	}
	for i, r := range run.Requests {
		if r.Replica != replica || r.Outcome == trace.Rejected {
			continue
		}
		o.request(add, i, r)
	}
	for _, x := range VisibleReadings(run, replica, LogShape{Version: o.Version, Wrapper: Docker}) {
		o.reading(add, x)
	}
	slices.SortStableFunc(lines, func(a, b line) int { return cmp.Compare(a.at, b.at) })
	var b bytes.Buffer
	for _, l := range lines {
		o.write(&b, l)
	}
	_, err := w.Write(b.Bytes())
	return err
}

func (o LogShape) request(add func(trace.Time, string, string, ...any), i int, r *trace.Request) {
	const head = "n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, temperature=0.7, top_p=1.0, top_k=-1, min_p=0.0, seed=None, stop=['\\n', 'a)'], stop_token_ids=[]"
	params := fmt.Sprintf("SamplingParams(%s, ignore_eos=False, max_tokens=%d, min_tokens=0, logprobs=None, extra_args=None)", head, r.MaxTokens.Or(0))
	prompt := prompts[i%len(prompts)]
	tokens := "None" // as for chat
	if o.Version == Log04 {
		tokens = "[" + strings.TrimSuffix(strings.Repeat("17, ", r.Input.Or(0)), ", ") + "]"
	}
	id, at := o.id(r), received(r)
	switch o.Version {
	case Log04:
		add(at, "async_llm_engine.py:508", "Received request %s: prompt: %s, sampling_params: %s, prompt_token_ids: %s, lora_request: None.", id, prompt, params, tokens)
	case Log06, Log08:
		add(at, "logger.py:39", "Received request %s: prompt: %s, params: %s, prompt_token_ids: %s, lora_request: None, prompt_adapter_request: None.", id, prompt, params, tokens)
	case Log10:
		add(at, "logger.py:40", "Received request %s: prompt: %s, params: %s, prompt_token_ids: %s, prompt_embeds shape: None, lora_request: None.", id, prompt, params, tokens)
	case Log16:
		add(at, "logger.py:49", "Received request %s: params: %s, lora_request: None.", id, params)
	}
	switch o.Version {
	case Log06:
		add(r.Queued.At, "engine.py:291", "Added request %s.", id)
	case Log08, Log10, Log16:
		add(r.Queued.At, "async_llm.py:271", "Added request %s.", o.internal(r))
	}
	end := r.Completed.At
	switch {
	case o.Version == Log04 && (r.Outcome == trace.OK || r.Outcome == trace.Error):
		// The engine of that time says so after an error too.
		add(end, "async_llm_engine.py:120", "Finished request %s.", id)
	case r.Outcome == trace.Aborted && o.Version == Log04:
		add(end, "async_llm_engine.py:133", "Aborted request %s.", id)
	case r.Outcome == trace.Aborted && o.Version == Log06:
		add(end, "engine.py:304", "Aborted request %s.", id)
	case r.Outcome == trace.Aborted && o.Version == Log16:
		add(end, "async_llm.py:420", "Aborted request(s) %s.", o.internal(r))
		add(end, "async_llm.py:368", "Request %s aborted.", id)
	case r.Outcome == trace.Aborted:
		add(end, "async_llm.py:420", "Aborted request %s.", id)
		add(end, "async_llm.py:368", "Request %s aborted.", id)
	case r.Outcome == trace.Error && o.Version != Log06:
		add(end, "async_llm.py:390", "Request %s failed.", id)
	case r.Outcome == trace.OK && o.logsOutputs():
		add(end, "logger.py:101", "Generated response %s: output: %s, output_token_ids: None, finish_reason: %s", id, prompt, r.FinishReason)
	}
}

func (o LogShape) logsOutputs() bool { return o.Outputs && (o.Version == Log10 || o.Version == Log16) }

func (o LogShape) reading(add func(trace.Time, string, string, ...any), x trace.Reading) {
	rates := fmt.Sprintf("Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s", x.PromptRate.Or(0), x.OutputRate.Or(0))
	kv := fmt.Sprintf("GPU KV cache usage: %.1f%%", 100*x.KVUsage.Or(0))
	at := x.At.Add(-wrapperDelay)
	switch o.Version {
	case Log04, Log06:
		text := fmt.Sprintf("%s, Running: %d reqs, Swapped: 0 reqs, Pending: %d reqs, %s, CPU KV cache usage: 0.0%%", rates, x.Running.Or(0), x.Waiting.Or(0), kv)
		if o.Version == Log06 {
			text += "."
		}
		add(at, "metrics.py:345", "%s", text)
	default:
		add(at, "loggers.py:123", "Engine 000: %s, Running: %d reqs, Waiting: %d reqs, %s, Prefix cache hit rate: 0.0%%", rates, x.Running.Or(0), x.Waiting.Or(0), kv)
	}
}

// write gives a line its stamp, its process and its wrapper.
func (o LogShape) write(b *bytes.Buffer, l line) {
	file := l.file + "]"
	if o.Version != Log04 && o.Version != Log06 {
		file = "[" + file
	}
	text := fmt.Sprintf("%s %s %s %s", l.level, l.at.UTC().Format("01-02 15:04:05"), file, l.text)
	switch o.Version {
	case Log10:
		text = "\x1b[1;36m(APIServer pid=1)\x1b[0;0m " + text
	case Log16:
		text = "(APIServer pid=1) " + text
	}
	eol := "\n"
	if o.CRLF {
		eol = "\r\n"
	}
	stamp := l.at.Add(wrapperDelay).UTC().Format("2006-01-02T15:04:05.000000000Z")
	piece := cmp.Or(o.Piece, 16<<10)
	switch o.Wrapper {
	case Docker:
		for rest := text + eol; rest != ""; {
			n := min(piece, len(rest))
			quoted, _ := json.Marshal(rest[:n]) // a string always can
			fmt.Fprintf(b, `{"log":%s,"stream":"stdout","time":"%s"}`+"\n", quoted, stamp)
			rest = rest[n:]
		}
	case CRI:
		for ; len(text) > piece; text = text[piece:] {
			fmt.Fprintf(b, "%s stdout P %s%s", stamp, text[:piece], eol)
		}
		fmt.Fprintf(b, "%s stdout F %s%s", stamp, text, eol)
	case Kubectl:
		fmt.Fprintf(b, "%s %s%s", stamp, text, eol)
	case Compose:
		fmt.Fprintf(b, "\x1b[36m%s  | \x1b[0m%s%s", o.container(), text, eol)
	default:
		b.WriteString(text + eol)
	}
}

// VisibleLog returns what [Log] lets be known of the requests: arrival, and end
// and outcome where the version has a line for them, with the resolution of the
// stamps. No phase is known. In 0.4 an error looks like a normal end, and the
// prompt's tokens are listed.
func VisibleLog(run *Run, replica string, o LogShape) []*trace.Request {
	return visible(run.Requests, func(v *trace.Request) bool {
		if v.Replica != replica || v.Outcome == trace.Rejected {
			return false
		}
		at, res := o.stamp(received(v))
		end, _ := o.stamp(v.Completed.At)
		r := trace.Request{
			ID: o.id(v), Replica: o.container(), Clock: trace.ClockUnix, Resolution: res, Arrival: trace.At(at, trace.Measured), MaxTokens: v.MaxTokens,
		}
		if o.Version == Log04 {
			r.Input = v.Input
		}
		switch {
		case v.Outcome == trace.OK && (o.Version == Log04 || o.logsOutputs()), v.Outcome == trace.Aborted, v.Outcome == trace.Error && o.Version != Log06:
			r.Outcome, r.Completed = v.Outcome, trace.At(end, trace.Measured)
			if o.Version == Log04 && v.Outcome == trace.Error {
				r.Outcome = trace.OK
			}
		}
		if r.Outcome == trace.OK && o.logsOutputs() {
			r.FinishReason = v.FinishReason
		}
		*v = r
		return true
	})
}

// VisibleReadings returns the engine's own statements that [Log] writes, with
// the digits that they have there. The replica is as the line names it.
func VisibleReadings(run *Run, replica string, o LogShape) []trace.Reading {
	round := func(v float64, digits int) float64 {
		f, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'f', digits, 64), 64)
		return f
	}
	var out []trace.Reading
	step := 0
	for _, x := range run.Readings {
		if x.Replica != replica {
			continue
		}
		prompt, output := 0, 0
		for ; step < len(run.Steps) && run.Steps[step].Start <= x.At; step++ {
			if s := run.Steps[step]; replicaName(s.Replica) == replica {
				prompt += s.PrefillTokens
				output += s.OutputTokens
			}
		}
		every := run.Engine.Every.Seconds()
		x.PromptRate, x.OutputRate = trace.Some(round(float64(prompt)/every, 1)), trace.Some(round(float64(output)/every, 1))
		x.KVUsage = trace.Some(round(x.KVUsage.Or(0), 3))
		x.At, x.Resolution = o.stamp(x.At)
		x.Service, x.Replica = "", o.container()
		if o.Version != Log04 && o.Version != Log06 {
			x.Replica, x.PrefixHit = strings.TrimSpace(x.Replica+" engine 0"), trace.Some(0.0)
		}
		out = append(out, x)
	}
	return out
}
