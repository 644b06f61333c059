package receive

import (
	"encoding/binary"
	"encoding/json"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/traceview/traceview/ingest/otlp"
)

// A Format is how spans are sent, or written to files.
type Format uint8

const (
	// JSON is a line of OTLP/JSON for each request, as the collector's file
	// exporter writes it: pdata's reading of what was sent, so that fields that
	// pdata does not know are gone.
	JSON Format = iota
	// Proto is the bytes of each request behind their length (4 bytes,
	// big-endian), likewise. Requests in protobuf are kept byte for byte.
	Proto
)

// maxRecord is the largest record that ingest reads unless told otherwise.
const maxRecord = 256 << 20

// encode turns the body of a request into what is written of it, and counts its
// spans. Without spans there is nothing to write.
func encode(body []byte, from, to Format) (record []byte, spans int, why *refusal) {
	if n, ok := elements(body, from); !ok {
		return nil, 0, malformed("malformed protobuf")
	} else if n > maxElements {
		return nil, 0, tooLarge("more than %d spans, attributes and the like in one request", maxElements)
	}
	req := ptraceotlp.NewExportRequest()
	var err error
	switch {
	case from == Proto:
		err = req.UnmarshalProto(body)
	case !json.Valid(body): // pdata passes over what follows the first value
		return nil, 0, malformed("malformed JSON")
	default:
		err = req.UnmarshalJSON(body)
	}
	if err != nil {
		return nil, 0, malformed("not a trace export request: %.200v", err)
	}
	if spans = req.Traces().SpanCount(); spans == 0 {
		return nil, 0, nil
	}
	if to == JSON {
		if record, err = req.MarshalJSON(); err != nil {
			return nil, 0, malformed("cannot be written as JSON: %v", err)
		}
		if len(record) > maxRecord {
			return nil, 0, tooLarge("more than %d bytes as JSON", maxRecord)
		}
		return append(record, '\n'), spans, nil
	}
	// Readers know a message by its first fields: an unusual order is kept, an
	// unusual begin is written anew.
	if from != Proto || !otlp.SniffProto(body) {
		if body, err = req.MarshalProto(); err != nil {
			return nil, 0, malformed("cannot be written as protobuf: %v", err)
		}
	}
	record = binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(body)), uint32(len(body)))
	return append(record, body...), spans, nil
}

// elements weighs what becomes a value of its own when a request is decoded: an
// empty one takes two bytes and becomes a hundred and more. ok is false where
// protobuf is malformed at that level.
func elements(body []byte, from Format) (n int, ok bool) {
	if from == Proto {
		ok = walk(body, msgRequest, 0, &n)
		return n, ok
	}
	quoted := false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case c == '"':
			quoted = !quoted
		case quoted && c == '\\':
			i++
		case !quoted && (c == '{' || c == 'n'): // an object, or null for one
			n += 2
		}
	}
	return n, true
}

// A message is a type of OTLP's messages.
type message uint8

const (
	msgRequest message = iota
	msgResourceSpans
	msgResource
	msgScopeSpans
	msgScope
	msgSpan
	msgEvent
	msgLink
	msgPair
	msgValue
	msgList
	msgPairs
)

// inner says which fields of a message hold messages.
var inner = [...]map[protowire.Number]message{
	msgRequest:       {1: msgResourceSpans},
	msgResourceSpans: {1: msgResource, 2: msgScopeSpans},
	msgResource:      {1: msgPair},
	msgScopeSpans:    {1: msgScope, 2: msgSpan},
	msgScope:         {3: msgPair},
	msgSpan:          {9: msgPair, 11: msgEvent, 13: msgLink},
	msgEvent:         {3: msgPair},
	msgLink:          {4: msgPair},
	msgPair:          {2: msgValue},
	msgValue:         {5: msgList, 6: msgPairs},
	msgList:          {1: msgValue},
	msgPairs:         {1: msgPair},
}

// maxDepth is how deep messages may lie in each other: beyond what protobuf's
// own parsers allow, so that these have the last word.
const maxDepth = 110

// walk adds the messages inside b, which is a message of type m, to n. It
// stops where there are too many.
func walk(b []byte, m message, depth int, n *int) (ok bool) {
	for len(b) > 0 && *n <= maxElements {
		num, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		if in, known := inner[m][num]; known && typ == protowire.BytesType && depth < maxDepth {
			*n++
			if in < msgPair { // these are large
				*n += 3
			}
			field, size := protowire.ConsumeBytes(b)
			if size < 0 || !walk(field, in, depth+1, n) {
				return false
			}
			b = b[size:]
			continue
		}
		if size = protowire.ConsumeFieldValue(num, typ, b); size < 0 {
			return false
		}
		b = b[size:]
	}
	return true
}
