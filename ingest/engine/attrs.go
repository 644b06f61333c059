package engine

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// A field is an attribute with a meaning of its own.
type field uint8

const (
	fieldNone field = iota
	fieldQueue
	fieldTTFT
	fieldE2E
	fieldPrefill
	fieldDecode
	fieldInference
	fieldRequestID
	fieldRID
	fieldResponseID
	fieldResponseModel
	fieldRequestModel
	fieldFinish
	fieldInput
	fieldOutput
	fieldCached
	fieldMaxTokens
	fieldCount
)

// keys names the attributes that are read. Where several have one meaning, the
// last on the span counts.
var keys = map[string]field{
	"gen_ai.latency.time_in_queue":           fieldQueue,
	"gen_ai.latency.time_to_first_token":     fieldTTFT,
	"gen_ai.latency.e2e":                     fieldE2E,
	"gen_ai.latency.time_in_model_prefill":   fieldPrefill,
	"gen_ai.latency.time_in_model_decode":    fieldDecode,
	"gen_ai.latency.time_in_model_inference": fieldInference,

	"gen_ai.request.id":     fieldRequestID,
	"rid":                   fieldRID,
	"gen_ai.response.id":    fieldResponseID,
	"gen_ai.response.model": fieldResponseModel,
	"gen_ai.request.model":  fieldRequestModel,

	"gen_ai.response.finish_reasons": fieldFinish,
	"gen_ai.response.finish_reason":  fieldFinish,

	"gen_ai.usage.prompt_tokens":     fieldInput,
	"gen_ai.usage.input_tokens":      fieldInput,
	"llm.token_count.prompt":         fieldInput,
	"gen_ai.usage.completion_tokens": fieldOutput,
	"gen_ai.usage.output_tokens":     fieldOutput,
	"llm.token_count.completion":     fieldOutput,

	"gen_ai.usage.cached_tokens":           fieldCached,
	"gen_ai.usage.cache_read.input_tokens": fieldCached,
	"gen_ai.usage.cache_read_input_tokens": fieldCached,

	"gen_ai.request.max_tokens": fieldMaxTokens,
}

// names gives the usual key of each field, for messages.
var names = [fieldCount]string{
	fieldQueue: "time_in_queue", fieldTTFT: "time_to_first_token", fieldE2E: "e2e",
	fieldPrefill: "time_in_model_prefill", fieldDecode: "time_in_model_decode", fieldInference: "time_in_model_inference",
	fieldInput: "prompt tokens", fieldOutput: "completion tokens", fieldCached: "cached tokens", fieldMaxTokens: "max_tokens",
}

// fields are the attributes of one span that have a meaning.
type fields struct {
	v   [fieldCount]trace.Value
	has [fieldCount]bool

	untyped bool // all values are text
}

func (f *fields) read(n *node) {
	f.untyped = n.untyped
	for i := range n.attrs {
		if k := n.attrs[i].field; k != fieldNone && n.attrs[i].Value.Kind() != trace.ValueNone {
			f.v[k], f.has[k] = n.attrs[i].Value, true
		}
	}
}

// text returns the first of the fields that is there, as text.
func (f *fields) text(ks ...field) string {
	for _, k := range ks {
		if f.has[k] {
			if t := f.v[k].String(); t != "" {
				return t
			}
		}
	}
	return ""
}

// finish returns why generation stopped: plain text, JSON text or an array,
// whose first member counts.
func (f *fields) finish() string {
	t := strings.TrimSpace(f.text(fieldFinish))
	if strings.HasPrefix(t, "[") {
		var list []string
		if json.Unmarshal([]byte(t), &list) == nil {
			t = ""
			if len(list) > 0 {
				t = list[0]
			}
		}
	}
	if len(t) > 64 {
		return ""
	}
	return t
}

// number reads a field as a number, noting text where numbers have a type.
func (f *fields) number(r *trace.Request, k field) (float64, bool) {
	v := f.v[k]
	if x, ok := v.Float(); ok {
		return x, true
	}
	if i, ok := v.Int(); ok {
		return float64(i), true
	}
	if t, ok := v.Text(); ok {
		x, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
		if err == nil && !math.IsNaN(x) && !math.IsInf(x, 0) {
			if !f.untyped {
				note(r, trace.NumberAsText, "%s is text", names[k])
			}
			return x, true
		}
	}
	note(r, trace.BadNumber, "%s is no finite number", names[k])
	return 0, false
}

// duration reads a field of seconds. Below zero or longer than limit it is
// garbage: an instant of it was never stamped.
func (f *fields) duration(r *trace.Request, k field, limit time.Duration) (d trace.Opt[time.Duration], garbage bool) {
	if !f.has[k] {
		return d, false
	}
	s, ok := f.number(r, k)
	if !ok {
		return d, false
	}
	ns, err := units.FromSeconds(s)
	switch {
	case err != nil:
		note(r, trace.BadNumber, "%s: %v", names[k], err)
		return d, false
	case ns < 0:
		note(r, trace.NegativeDuration, "%s is %s", names[k], units.Duration(ns, 0))
	case ns > limit:
		note(r, trace.PhaseTooLong, "%s is %s, the span %s", names[k], units.Duration(ns, 0), units.Duration(limit-slack, 0))
	default:
		return trace.Some(ns), false
	}
	return d, true
}

// count reads a field of whole numbers from zero.
func (f *fields) count(r *trace.Request, k field) trace.Opt[int] {
	if !f.has[k] {
		return trace.Opt[int]{}
	}
	if i, ok := f.v[k].Int(); ok && i >= 0 && i <= maxCount {
		return trace.Some(int(i))
	}
	v, ok := f.number(r, k)
	if !ok {
		return trace.Opt[int]{}
	}
	if v < 0 || v != math.Trunc(v) || v > maxCount {
		note(r, trace.BadNumber, "%s is no count", names[k])
		return trace.Opt[int]{}
	}
	return trace.Some(int(v))
}

func note(r *trace.Request, code trace.Code, format string, args ...any) {
	r.Issues = append(r.Issues, trace.NewIssue(code, r.Source.Pos, format, args...))
}

// maxText is the longest text that is kept.
const maxText = 256

// maxAttrs is how many grouping keys a span or a resource may bring:
// OpenTelemetry's own default limit.
const maxAttrs = 128

// content are the words of a key that say that its text is what a user or a
// model wrote.
var content = map[string]bool{
	"prompt": true, "prompts": true, "completion": true, "completions": true,
	"message": true, "messages": true, "content": true, "contents": true,
	"input": true, "inputs": true, "output": true, "outputs": true,
	"instruction": true, "instructions": true, "body": true, "text": true,
	"query": true, "question": true, "answer": true, "arguments": true, "args": true,
	"document": true, "documents": true, "template": true, "definitions": true,
	"statement": true, "description": true, "stacktrace": true, "transcript": true,
	"chunk": true, "payload": true, "data": true, "response": true, "suffix": true,
}

// isContent reports whether text under that key may be a prompt or an answer.
func isContent(key string) bool {
	start := 0
	for i := 0; i <= len(key); i++ {
		switch {
		case i == len(key), key[i] == '.', key[i] == '_', key[i] == '-', key[i] == '/', key[i] == ':', key[i] == ' ':
		case key[i] >= 'A' && key[i] <= 'Z' && i > start && (key[i-1] < 'A' || key[i-1] > 'Z'): // camelCase
			if content[strings.ToLower(key[start:i])] {
				return true
			}
			start = i
			continue
		default:
			continue
		}
		if i > start && content[strings.ToLower(key[start:i])] {
			// A prefix such as gen_ai.response. or http.response. is a name
			// space; only as the last word is it content.
			if w := key[start:i]; i == len(key) || !strings.EqualFold(w, "response") {
				return true
			}
		}
		start = i + 1
	}
	return false
}

// group returns an attribute in the form in which it may be a grouping key.
func (b *Builder) group(a trace.Attr) (trace.Attr, bool) {
	switch a.Value.Kind() {
	case trace.ValueInt, trace.ValueFloat, trace.ValueBool:
		if a.Key == "" || len(a.Key) > maxText {
			return a, false
		}
		return trace.Attr{Key: b.intern(a.Key), Value: a.Value}, true
	case trace.ValueString:
	default:
		return a, false
	}
	t, _ := a.Value.Text()
	if a.Key == "" || len(a.Key) > maxText || isContent(a.Key) {
		return a, false
	}
	if strings.HasSuffix(a.Key, "url") || strings.HasPrefix(a.Key, "url.") || a.Key == "http.target" {
		t, _, _ = strings.Cut(t, "?")
	}
	if len(t) > maxText || strings.ContainsAny(t, "\n\r") {
		return a, false
	}
	return trace.Attr{Key: b.intern(a.Key), Value: trace.StringValue(b.intern(t))}, true
}

// intern returns one copy of a text that repeats. It forgets all once it knows
// many, so that texts which never repeat cost no more than that.
func (b *Builder) intern(s string) string {
	if t, ok := b.texts[s]; ok {
		return t
	}
	if len(b.texts) >= 1<<15 {
		clear(b.texts)
	}
	s = strings.Clone(s)
	b.texts[s] = s
	return s
}

// resource is what is used of a trace.Resource.
type resource struct {
	service, replica string
	vllm, sglang     bool
	attrs            []trace.Attr // grouping keys
}

func (b *Builder) resource(res *trace.Resource) *resource {
	if r, ok := b.resources[res]; ok {
		return r
	}
	if len(b.resources) >= 1<<10 {
		clear(b.resources)
	}
	r := &resource{}
	b.resources[res] = r
	if res == nil {
		return r
	}
	var instance, pod, host string
	for _, a := range res.Attrs {
		t, _ := a.Value.Text()
		if len(t) > maxText {
			continue
		}
		switch a.Key {
		case "service.name":
			if !strings.HasPrefix(t, "unknown_service") {
				r.service = b.intern(t)
			}
			r.sglang = t == "sglang"
			continue
		case "service.instance.id":
			instance = t
			continue
		case "k8s.pod.name":
			pod = t
		case "host.name":
			host = t
		}
		if strings.HasPrefix(a.Key, "vllm.") {
			r.vllm = true
		}
		if g, ok := b.group(a); ok && len(r.attrs) < maxAttrs {
			r.attrs = append(r.attrs, g)
		}
	}
	for _, t := range []string{instance, pod, host} {
		if t != "" {
			r.replica = b.intern(t)
			break
		}
	}
	return r
}
