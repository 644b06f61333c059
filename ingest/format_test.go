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
		"a prompt":                 "it is text without a line of vLLM's log or a JSON object of OpenTelemetry spans",
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
