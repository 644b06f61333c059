package ingest

import "testing"

// What is not read is named by its first bytes, without quoting a text.
func TestDescribe(t *testing.T) {
	for in, want := range map[string]string{
		"PK\x03\x04x":              "it looks like a zip archive",
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
