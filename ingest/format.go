package ingest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/traceview/traceview/ingest/engine"
	"github.com/traceview/traceview/ingest/otlp"
	"github.com/traceview/traceview/ingest/records"
	"github.com/traceview/traceview/ingest/spanfile"
	"github.com/traceview/traceview/ingest/vllmlog"
)

// Format is what is known of a format that is read.
type Format struct {
	Name     string
	Evidence string // by what content it is recognised
	Yields   string // what comes out of it
	NotTold  string // what it cannot tell
}

// format is a format and how it is read. read returns the error of the reader.
type format struct {
	Format
	sniff func(head []byte) bool
	read  func(*run, *part, *bufio.Reader) error
}

// formats is all that is read, in the order in which it is tried. All but the
// framed ones may be compressed as a whole.
var formats = []format{
	{Format{"tar", "a tar archive's header; mostly compressed as a whole", "what its files hold, each recognised by itself; hidden ones are passed over", inside}, isTar, (*run).tar},
	{Format{"zip", "a zip archive's first bytes", "the same; read in place where it is a file, else in memory", inside}, isZip, (*run).zip},
	{Format{otlp.FormatJSON, otlp.Evidence, "spans, then requests; as one object, one a line, one after the other, or an array", asSpans}, otlp.SniffJSON, (*run).json},
	{Format{otlp.FormatProto, "a protobuf message with a resource and its spans inside", "the same", asSpans}, otlp.SniffProto, (*run).proto},
	{Format{"otlp-frames", "a 4-byte length, big-endian, before each message: JSON or protobuf, plain or compressed by itself (the collector's file exporter)", "the same", asSpans}, sniffFramed, (*run).frames},
	spanFile(&spanfile.Jaeger), spanFile(&spanfile.Zipkin), spanFile(&spanfile.ClickHouse),
	{formatOf(&spanfile.ClickHouseParquet), spanfile.ClickHouseParquet.Sniff, (*run).parquet},
	{Format{"otel-console-python, -go, -js", "what these SDKs print, behind what Ray, docker, Kubernetes or compose put before each line", "the same as without", inside}, func(head []byte) bool { return spanfile.Wrapped(head) != nil }, (*run).wrapped},
	spanFile(&spanfile.PythonConsole), spanFile(&spanfile.GoConsole),
	{formatOf(&spanfile.JSConsole), spanfile.JSConsole.Sniff, (*run).jsConsole},
	{Format{vllmlog.Format, "a line of vLLM's log, behind whatever prefixes", "requests with their arrival, some with their end; the engine's own counts of running and waiting, and its limits where the log has its start", "how long a request waited in the queue, and its phases: no line says so. Lines of single steps (Iteration(…)) are passed over"}, vllmlog.Sniff, (*run).log},
	recordFile(&records.VLLMBench), recordFile(&records.AIPerf), recordFile(&records.GuideLLM), recordFile(&records.InferencePerf),
	recordFile(&records.SGLangMetrics), recordFile(&records.SGLangLog), recordFile(&records.Dynamo), recordFile(&records.TensorRT), recordFile(&records.TGI),
	recordFile(&records.Ollama), recordFile(&records.VLLMResponse), recordFile(&records.LlamaCpp), recordFile(&records.VLLMStats),
	recordFile(&records.Bailian), recordFile(&records.Mooncake), recordFile(&records.AzureTrace), recordFile(&records.BurstGPT), recordFile(&records.Plain),
	{Format{otlp.FormatJSON, "such an object behind the text of a log line (OpenTelemetry Java's logging exporter)", "spans, then requests", asSpans}, otlp.SniffText, (*run).json},
}

// asSpans is what the formats cannot tell that keep all that spans have.
const asSpans = "what the engine's spans do not tell"

// inside is what containers of files cannot tell.
const inside = "what its contents do not tell"

// spanFile is the format of a container of package spanfile.
func spanFile(c *spanfile.Container) format {
	return format{formatOf(c), c.Sniff, func(run *run, p *part, r *bufio.Reader) error {
		return run.spanFile(c, p, r)
	}}
}

// recordFile is a format of package records.
func recordFile(f *records.Format) format {
	return format{Format{f.Name, f.Evidence, f.Yields, f.NotTold}, f.Sniff, func(run *run, p *part, r *bufio.Reader) error {
		return run.records(f, p, r)
	}}
}

func formatOf(c *spanfile.Container) Format { return Format{c.Name, c.Evidence, c.Yields, c.NotTold} }

// Formats lists the formats that are read, in the order in which they are
// tried.
func Formats() []Format {
	var list []Format
	for _, f := range formats {
		list = append(list, f.Format)
	}
	return append(list,
		Format{"docker, Kubernetes, compose, Ray, Loki", "what they put before each line of all formats above, or the object that they put it in", "what is inside", inside},
		Format{"gzip, zstd", "their first bytes", "what is inside, also twice over", inside})
}

// Engine is what is known of an engine whose spans are read.
type Engine struct {
	Name     string // as in trace.Source.Engine
	Evidence string // what makes a span one of its
	Version  string // what the reading was checked against
	NotTold  string // what its spans do not tell
}

// Engines lists the engines whose spans are recognised, in the order in which
// they are tried.
func Engines() []Engine {
	var list []Engine
	for _, e := range engine.Engines {
		list = append(list, Engine{e.Name, e.Evidence, e.Version, e.Missing})
	}
	return list
}

// foreign are other files' first bytes.
var foreign = []struct{ magic, what string }{
	{"BZh", "bzip2-compressed data"},
	{"\xfd7zXZ\x00", "xz-compressed data"},
	{"\x04\x22\x4d\x18", "lz4-compressed data"},
	{"\x7fELF", "a program"},
	{"SQLite format 3", "an SQLite database"},
	{"\x89PNG", "a picture"},
	{"\xff\xfe", "UTF-16 text, as PowerShell's > writes it: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"},
	{"\xfe\xff", "UTF-16 text: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)"},
	{"<", "HTML or XML"},
}

// describe says what an unknown input looks like, without quoting content:
// there could be prompts in it.
func describe(head []byte) string {
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return "it looks like " + f.what
		}
	}
	if what := describeJSON(head); what != "" {
		return what
	}
	t := bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n[")
	if key, ok := firstKey(t); ok {
		return fmt.Sprintf("it looks like JSON that begins with the key %q", key)
	}
	if slices.ContainsFunc(head, func(c byte) bool { return c < ' ' && !strings.ContainsRune("\t\r\n\x1b\f", rune(c)) }) {
		return fmt.Sprintf("it is binary and begins with the bytes % x", head[:min(len(head), 8)])
	}
	return "it is text without a line of vLLM's log or a JSON object of OpenTelemetry spans"
}

// exports are what others call their traces, which are not read, by what stands
// in them, and what to do about it.
var exports = []struct {
	keys []string // all of these, as JSON keys
	what string
}{
	{[]string{"traceEvents"}, chromeTrace},
	{[]string{"ph", "ts", "pid"}, chromeTrace},
	{[]string{"trace_id", "span_id", "start", "duration", "meta"}, "spans as Datadog's agent takes them. They are not read: send the spans to an OpenTelemetry collector too (its file exporter, or traceview record), or export them as OTLP"},
	{[]string{"trace.trace_id", "trace.span_id"}, "events of Honeycomb. They are not read: send the spans to an OpenTelemetry collector too (its file exporter, or traceview record)"},
	{[]string{"completionStartTime", "traceId", "type"}, "observations of Langfuse. They are not read as they are: write id, start (startTime), first_token (completionStartTime) and end (endTime) of each, see docs/own-records.md"},
	{[]string{"trace.id", "timestamp", "attributes", "common"}, newRelic},
	{[]string{"durationInNanos", "startTime", "spanId"}, "spans as OpenSearch keeps them. They are not read: send the spans to an OpenTelemetry collector too (its file exporter, or traceview record)"},
	{[]string{"_source", "_index"}, "documents of Elasticsearch or OpenSearch. Give what stands under _source, one a line (jq -c ._source): spans of Jaeger are read"},
	{[]string{"status", "data", "resultType"}, "an answer of Prometheus: it holds no requests. Give traces or logs"},
}

const (
	chromeTrace = "a Chrome trace (Perfetto, torch.profiler), which tells of no requests. Give the engine's spans or log; traceview writes this format, for chrome://tracing, and does not read it"
	newRelic    = "spans as New Relic takes them. They are not read: send the spans to an OpenTelemetry collector too (its file exporter, or traceview record)"
)

// describeJSON says what unknown JSON looks like; "": it does not tell.
func describeJSON(head []byte) string {
	t := bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	if len(t) == 0 || t[0] != '{' && t[0] != '[' {
		if string(t) == "null" {
			return nothingInIt
		}
		return ""
	}
	for _, e := range exports {
		if !slices.ContainsFunc(e.keys, func(k string) bool {
			return !bytes.Contains(t, []byte(`"`+k+`":`)) && !bytes.Contains(t, []byte(`"`+k+`" :`))
		}) {
			return "it looks like " + e.what
		}
	}
	// What a store answers where it has no such trace.
	var v any
	if len(t) < 4<<10 && json.Unmarshal(t, &v) == nil && empty(v) {
		return nothingInIt
	}
	return ""
}

const nothingInIt = "it is JSON with nothing in it: a store answers so where it has no such trace"

// empty reports whether a JSON value holds neither text nor true nor a number
// but 0, outside of an error.
func empty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k, m := range v {
			if k != "errors" && k != "error" && !empty(m) {
				return false
			}
		}
		return true
	case []any:
		return !slices.ContainsFunc(v, func(m any) bool { return !empty(m) })
	default:
		return v == nil || v == false || v == 0.0 || v == ""
	}
}

// firstKey returns the first key of a JSON object, if it is short.
func firstKey(b []byte) (string, bool) {
	if len(b) == 0 || b[0] != '{' {
		return "", false
	}
	b, ok := bytes.CutPrefix(bytes.TrimLeft(b[1:], " \t\r\n"), []byte(`"`))
	end := bytes.IndexAny(b[:min(len(b), 40)], `"\`)
	if !ok || end < 0 || b[end] != '"' {
		return "", false
	}
	return strings.ToValidUTF8(string(b[:end]), "\uFFFD"), true
}
