package ingest

import (
	"strings"
	"testing"

	"github.com/traceview/traceview/internal/sim"
)

// What is not read is named by its first bytes, without quoting a text.
func TestDescribe(t *testing.T) {
	for in, want := range map[string]string{
		"BZh9":                     "it looks like bzip2-compressed data",
		"\xff\xfeI\x00N\x00":       "it looks like UTF-16 text, as PowerShell's > writes it: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)",
		"\xfe\xff\x00I\x00N":       "it looks like UTF-16 text: convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)",
		" {\"intended_start\": 1}": `it looks like JSON that begins with the key "intended_start"`,
		"\x00\x01":                 "it is binary and begins with the bytes 00 01",
		"null":                     nothingInIt,
		`{"data":[],"total":0,"errors":[{"code":404,"msg":"trace not found"}]}`: nothingInIt,
		`{"traceEvents":[{"ph":"X"}]}`:                                          "it looks like " + chromeTrace,
		`[{"ph":"X","ts":1,"pid":2}]`:                                           "it looks like " + chromeTrace,
		`{"data":{"resultType":"matrix"},"status":"success"}`:                   "it looks like an answer of Prometheus: it holds no requests. Give traces or logs",
		"a prompt": "it is text without a line of vLLM's log or a JSON object of OpenTelemetry spans",
	} {
		if got := describe([]byte(in)); got != want {
			t.Errorf("%q: %s", in, got)
		}
	}
}

// A damaged first message costs that message, not the file.
func TestFirstFrameDamaged(t *testing.T) {
	for _, e := range []sim.Encoding{{Form: sim.Prefixed, Batch: 1}, {Form: sim.Lines, Compression: sim.ZstdFramed, Batch: 1}} {
		data := encode(t, 3, e)
		data[4], data[5] = 0xff, 0xff
		got := strings.Join(lines(t, Options{}, inMemory("x", data)), "\n")
		if n := strings.Count(got, "chatcmpl-"); n != 2 || !strings.Contains(got, "! bad-frame") {
			t.Errorf("%v:\n%s", e, got)
		}
	}
}

// Traces in others' own forms are named, with what to do.
func TestDescribeExports(t *testing.T) {
	for in, want := range map[string]string{
		`[[{"trace_id":1,"span_id":2,"parent_id":0,"name":"llm_request","service":"a","start":1788000000000000000,"duration":2500000000,"meta":{"a":"b"}}]]`:            "Datadog",
		`{"Timestamp":"2026-08-30T10:00:00Z","trace.trace_id":"5b","trace.span_id":"ee","name":"llm_request","duration_ms":2500.0}`:                                     "Honeycomb",
		`{"id":"o","traceId":"t","type":"GENERATION","startTime":"2026-08-30T10:00:00Z","completionStartTime":"2026-08-30T10:00:01Z","endTime":"2026-08-30T10:00:02Z"}`: "Langfuse",
		`[{"common":{"attributes":{}},"spans":[{"id":"1","trace.id":"2","timestamp":1,"attributes":{"duration.ms":1}}]}]`:                                               "New Relic",
		`{"traceId":"1","spanId":"2","startTime":"2026-08-30T10:00:00Z","durationInNanos":1}`:                                                                           "OpenSearch",
		`{"_index":"jaeger-span-2026","_source":{"traceID":"1","spanID":"2"}}`:                                                                                          "_source",
	} {
		var got string
		for _, err := range Requests(t.Context(), []Input{inMemory("x", []byte(in))}, Options{}) {
			got += err.Error()
		}
		if !strings.Contains(got, want) || !strings.Contains(got, "[unknown-format]") {
			t.Errorf("%s: %s", want, got)
		}
	}
}
