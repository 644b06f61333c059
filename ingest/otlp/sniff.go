package otlp

import (
	"bytes"
	"encoding/binary"
)

// Evidence is what SniffJSON looks for, for documentation.
const Evidence = `a JSON object or array with a key such as "resourceSpans" or "scopeSpans"`

// evidence are the keys that no other JSON has. Metrics and logs count too:
// they share files with spans.
var evidence = [][]byte{
	[]byte(`"resourceSpans"`), []byte(`"resource_spans"`), []byte(`"scopeSpans"`), []byte(`"scope_spans"`),
	[]byte(`"instrumentationLibrarySpans"`), []byte(`"instrumentation_library_spans"`),
	[]byte(`"resourceMetrics"`), []byte(`"resourceLogs"`),
}

func hasEvidence(head []byte) bool {
	for _, k := range evidence {
		if bytes.Contains(head, k) {
			return true
		}
	}
	return false
}

// SniffJSON reports whether head, the first bytes of an input, begins like
// OTLP as JSON.
func SniffJSON(head []byte) bool {
	b := bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n\x1e")
	if bytes.HasPrefix(b, []byte("[")) {
		b = bytes.TrimLeft(b[1:], " \t\r\n")
	}
	return bytes.HasPrefix(b, []byte("{")) && hasEvidence(b)
}

// SniffText reports whether head has OTLP as JSON behind the text of a line,
// as OpenTelemetry Java's logging exporter writes it, or behind lines that are
// none.
func SniffText(head []byte) bool {
	if !hasEvidence(head) {
		return false
	}
	for {
		i := bytes.IndexByte(head, '{')
		if i < 0 {
			return false
		}
		if head = head[i:]; rootKeys.Begins(head) {
			return true
		}
		head = head[1:]
	}
}

// SniffProto reports whether head begins like OTLP as protobuf: a resource
// with its spans, whose first fields have lengths that fit into each other.
func SniffProto(head []byte) bool {
	outer, b, ok := prefixed(head, 0x0a)
	if !ok || outer == 0 {
		return false
	}
	for _, tag := range []byte{0x0a, 0x12, 0x1a} { // resource, scope with spans, schema
		inner, c, ok := prefixed(b, tag)
		if !ok || inner+uint64(len(b)-len(c)) > outer {
			continue
		}
		return inner == 0 || tag == 0x1a || len(c) == 0 || c[0] == 0x0a || c[0] == 0x12 || c[0] == 0x1a || tag == 0x0a && c[0] == 0x10
	}
	return false
}

// prefixed reads a tag and a length.
func prefixed(b []byte, tag byte) (n uint64, rest []byte, ok bool) {
	if len(b) < 2 || b[0] != tag {
		return 0, nil, false
	}
	n, m := binary.Uvarint(b[1:])
	if m <= 0 {
		return 0, nil, false
	}
	return n, b[1+m:], true
}
