package records

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// A workload is arrivals and lengths: requests that were, or are to be, sent
// somewhere. Nothing is known of how they were served, so that they have neither
// an end nor a phase, and count as incomplete.

// workloadNotTold is what no workload tells.
const workloadNotTold = "how requests were served: no end, no first token, no phase, no wait"

// Mooncake is the trace format of Mooncake (FAST '25), JSON lines, which AIPerf,
// Dynamo's and guidellm's replay read and Dynamo's generators write. Read off the
// traces' lines and the documentation of AIPerf 0.13.
//
//	timestamp      ms from the first request  arrival
//	input_length   tokens of the prompt
//	output_length  tokens of the answer
//	hash_ids       blocks of the prompt       not kept
//
// Lines without a timestamp, which are sent when the one before has ended, have no
// arrival.
var Mooncake = Format{
	Name:     "mooncake",
	Evidence: "JSON lines with input_length and output_length, and no chat_id (Mooncake's traces)",
	Yields:   "a workload: arrivals, tokens of prompts and answers",
	NotTold:  workloadNotTold + "; which prompts begin alike (hash_ids are not kept)",
	Sniff: sniff(mooncakeNames, func(has func(string) bool) bool {
		return has("input_length") && has("output_length") && !has("chat_id") && !has("parent_chat_id")
	}),
	engine: trace.Workload, clock: trace.ClockRelative, step: time.Millisecond,
	value: func(p *parser) { p.lengths(mooncakeNames, millis) },
}

// Bailian is the traces of Alibaba's Bailian (Qwen, ATC '25), JSON lines: the same
// members, with timestamp in seconds, and the chat that a request is of. Read off
// the README of qwen-bailian-usagetraces-anon. parent_chat_id, of the turn before,
// is not kept.
var Bailian = Format{
	Name:     "bailian",
	Evidence: "JSON lines with chat_id or parent_chat_id, input_length and output_length (Bailian's traces)",
	Yields:   "a workload: arrivals, tokens, and as attributes request_type and turn",
	NotTold:  Mooncake.NotTold + "; which request a turn follows",
	Sniff: sniff(bailianNames, func(has func(string) bool) bool {
		return has("input_length") && has("output_length") && (has("chat_id") || has("parent_chat_id"))
	}),
	engine: trace.Workload, clock: trace.ClockRelative, step: time.Millisecond,
	value: func(p *parser) { p.lengths(bailianNames, secs) },
}

var (
	mooncakeNames = []string{"timestamp", "input_length", "output_length", "session_id", "hash_ids"}
	bailianNames  = []string{"timestamp", "input_length", "output_length", "session_id", "hash_ids", "chat_id", "parent_chat_id", "type", "turn"}
)

// lengths reads a line of Mooncake's or Bailian's, whose timestamp counts units of
// 10^exp ns.
func (p *parser) lengths(names []string, exp int) {
	f := make([]int, len(bailianNames))
	for i := range f {
		f[i] = none
	}
	r := p.begin("")
	if !p.fields(0, names, f[:len(names)]) || f[1] == none && f[2] == none {
		return
	}
	p.ours()
	p.unread(names)
	r.ID = p.text("chat_id", f[5])
	if f[0] >= 0 {
		p.I = f[0]
		if tok := p.Scalar("timestamp", "number"); tok != nil {
			r.Arrival, r.Resolution = p.workTime(string(tok), exp, r.Resolution)
		}
	}
	r.Input, r.Output = p.count("input_length", f[1]), p.count("output_length", f[2])
	for _, a := range []struct {
		key, name string
		at        int
	}{{"session_id", "session_id", f[3]}, {"request_type", "type", f[7]}, {"turn", "turn", f[8]}} {
		if s := p.short(a.name, a.at); s != "" {
			r.SetAttr(a.key, trace.StringValue(s))
		}
	}
	p.workload(r)
}

// workTime reads an arrival in units of 10^exp ns, and its last digit, which is at
// most coarse: zeros at the end may not be written.
func (p *parser) workTime(text string, exp int, coarse time.Duration) (in trace.Instant, step time.Duration) {
	_, digits, _ := strings.Cut(text, ".")
	if digits == "0" { // so some write whole numbers
		digits = ""
	}
	step = min(coarse, pow10(max(0, exp-len(digits))))
	ns, ok := parseNanos([]byte(text), exp)
	if !ok {
		p.Notes.Add(trace.BadNumber, "the time of arrival is no number")
		return in, step
	}
	return trace.At(trace.Time(ns), trace.Measured), step
}

// workload gives a request of which arrival and lengths are known.
func (p *parser) workload(r *trace.Request) {
	if !r.Arrival.Present() {
		p.Notes.Add(trace.NoArrival, "when it arrived is not told")
	}
	if r.Clock == trace.ClockRelative && r.Arrival.At >= since2000 {
		r.Clock = trace.ClockUnix
	}
	if r.Outcome == trace.OK { // nobody says so
		r.Outcome = trace.Incomplete
	}
	p.settle(r)
	p.yield(r)
}

// AzureTrace is the Azure LLM inference traces of 2023 and 2024 and the multimodal
// one of 2025, CSV. Read off their descriptions: dates without a zone in 2023
// (seven digits of a second), with +00:00 in 2024.
var AzureTrace = Format{
	Name:     "azure-llm-trace",
	Evidence: "CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens (Azure's LLM inference traces)",
	Yields:   "a workload: arrivals, tokens; the number of images as attribute num_images",
	NotTold:  workloadNotTold + "; ids, the model, failures; in 2023 the zone (--zone, else UTC)",
	Sniff:    sniffTable("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
	engine:   trace.Workload, clock: trace.ClockUnix, step: 100,
	columns: []string{"TIMESTAMP", "ContextTokens", "GeneratedTokens", "NumImages"},
	row: func(p *parser, r *trace.Request, cell []string) {
		if t, zoned, ok := parseStamp(cell[0], p.d.zone); ok {
			r.Arrival, r.Resolution = trace.At(t, trace.Measured), stampStep(cell[0])
			p.zone(zoned)
		} else if cell[0] != "" {
			p.Notes.Add(trace.BadField, "TIMESTAMP is no date and time")
		}
		r.Input, r.Output = p.cellCount("ContextTokens", cell[1]), p.cellCount("GeneratedTokens", cell[2])
		if n, ok := p.cellCount("NumImages", cell[3]).Get(); ok {
			r.SetAttr("num_images", trace.IntValue(int64(n)))
		}
	},
}

// BurstGPT is the traces of BurstGPT, CSV, which vllm bench serve takes as
// --dataset-name burstgpt (its lengths alone). Read off its README: Timestamp is
// in seconds from the first day's midnight, and an answer of no tokens is a
// failure.
var BurstGPT = Format{
	Name:     "burstgpt",
	Evidence: "CSV with the columns Timestamp, Request tokens and Response tokens (BurstGPT)",
	Yields:   "a workload: arrivals, tokens, the model, failures (answers of no tokens); log_type and session_id as attributes",
	NotTold:  workloadNotTold + "; why a request failed",
	Sniff:    sniffTable("Timestamp", "Request tokens", "Response tokens"),
	engine:   trace.Workload, clock: trace.ClockRelative, step: time.Second,
	columns: []string{"Timestamp", "Request tokens", "Response tokens", "Model", "Log Type", "Session ID", "Total tokens"},
	row: func(p *parser, r *trace.Request, cell []string) {
		if cell[0] != "" {
			r.Arrival, r.Resolution = p.workTime(cell[0], secs, r.Resolution)
		}
		r.Input, r.Output = p.cellCount("Request tokens", cell[1]), p.cellCount("Response tokens", cell[2])
		if n, ok := r.Output.Get(); ok && n == 0 {
			r.Outcome, r.FinishReason = trace.Error, noTokens
		}
		if n, ok := p.cellCount("Total tokens", cell[6]).Get(); ok && r.Input.Present() && r.Output.Present() && n != r.Input.Or(0)+r.Output.Or(0) {
			p.Notes.Add(trace.BadField, "Total tokens is not Request tokens + Response tokens")
		}
		r.Model = p.Texts.Intern([]byte(cell[3]))
		for i, key := range []string{"log_type", "session_id"} {
			if s := cell[4+i]; s != "" && len(s) <= 64 {
				r.SetAttr(key, trace.StringValue(s))
			}
		}
	},
}

// cellCount reads a number of tokens.
func (p *parser) cellCount(name, text string) trace.Opt[int] {
	if text == "" {
		return trace.Opt[int]{}
	}
	n, ok := parseNanos([]byte(text), 0)
	if !ok || n < 0 || n > 1<<40 || strings.Contains(text, ".") && strings.Trim(text[strings.Index(text, ".")+1:], "0") != "" {
		p.Notes.Add(trace.BadNumber, "%s is no number of tokens", name)
		return trace.Opt[int]{}
	}
	return trace.Some(int(n))
}

// sniffTable returns a function that reports whether an input's first line has
// such columns.
func sniffTable(names ...string) func([]byte) bool {
	return func(head []byte) bool {
		line, _, _ := bytes.Cut(head, []byte("\n"))
		if len(line) > 4096 {
			return false
		}
		cells, _ := splitRow(line, delimiter(line))
		for _, n := range names {
			if !slices.ContainsFunc(cells, func(c string) bool { return strings.EqualFold(c, n) }) {
				return false
			}
		}
		return true
	}
}
