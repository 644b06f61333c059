package sim

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"testing"

	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/traceview/traceview/trace"
)

// TestEncode takes every form in every compression apart by hand and counts
// the spans.
func TestEncode(t *testing.T) {
	res, err := Queue{Arrivals: millis(0, 1, 2, 3, 4), Setup: 4 * ms, PerRequest: ms, Policy: Individual}.Run()
	if err != nil {
		t.Fatal(err)
	}
	spans := res.Spans() // 15 of them
	for _, form := range Forms() {
		for _, c := range Compressions() {
			var b bytes.Buffer
			if err := Encode(&b, spans, Encoding{Form: form, Compression: c, Batch: 4}); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, td := range decode(t, b.Bytes(), form, c) {
				n += td.SpanCount()
			}
			if n != len(spans) {
				t.Errorf("%s %s: %d spans, want %d", form, c, n, len(spans))
			}
		}
	}
	if err := Encode(io.Discard, spans, Encoding{Form: "xml"}); err == nil {
		t.Error("no error for an unknown form")
	}
	if err := Encode(io.Discard, spans, Encoding{Compression: "rar"}); err == nil {
		t.Error("no error for an unknown compression")
	}
	if err := Encode(io.Discard, []*trace.Span{{TraceID: "zz"}}, Encoding{}); err == nil {
		t.Error("no error for an id that is no number")
	}
}

func decode(t *testing.T, data []byte, form Form, c Compression) (tds []ptrace.Traces) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s %s: %v", form, c, err)
		}
	}
	split := func(data []byte) (blobs [][]byte) {
		for len(data) > 0 {
			n := binary.BigEndian.Uint32(data)
			blobs, data = append(blobs, data[4:4+n]), data[4+n:]
		}
		return blobs
	}
	proto := func(m []byte) {
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(m)
		check(err)
		tds = append(tds, td)
	}
	switch c {
	case Gzip, GzipMembers:
		z, err := gzip.NewReader(bytes.NewReader(data))
		check(err)
		data, err = io.ReadAll(z)
		check(err)
	case Zstd, ZstdFramed:
		dec, err := zstd.NewReader(nil)
		check(err)
		defer dec.Close()
		frames := [][]byte{data}
		if c == ZstdFramed {
			frames = split(data)
		}
		data = nil
		for _, f := range frames {
			plain, err := dec.DecodeAll(f, nil)
			check(err)
			if c == ZstdFramed && (form == Prefixed || form == Proto) {
				proto(plain)
				continue
			}
			data = append(data, plain...)
		}
	}
	switch form {
	case Proto:
		if c != ZstdFramed {
			proto(data)
		}
	case Prefixed:
		for _, m := range split(data) {
			proto(m)
		}
	default:
		dec := json.NewDecoder(bytes.NewReader(data))
		for {
			var raw json.RawMessage
			err := dec.Decode(&raw)
			if err == io.EOF {
				break
			}
			check(err)
			objects := []json.RawMessage{raw}
			if form == Array {
				check(json.Unmarshal(raw, &objects))
			}
			for _, o := range objects {
				td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(o)
				check(err)
				tds = append(tds, td)
			}
		}
	}
	return tds
}

// TestEncodeFields writes one span with everything and reads the JSON by eye.
func TestEncodeFields(t *testing.T) {
	s := &trace.Span{
		TraceID: "5b8efff798038103d269b633813fc60c", SpanID: "eee19b7ec3c1b174", ParentID: "00f1e2d3c4b5a697",
		Name: "n", Kind: trace.KindServer, Scope: "s", Start: trace.Some(trace.Time(1)), End: trace.Some(trace.Time(-1)),
		Status: trace.StatusError, StatusMessage: "m", Resource: &trace.Resource{Attrs: []trace.Attr{{Key: "service.name", Value: trace.StringValue("e")}}},
		Attrs: []trace.Attr{
			{Key: "i", Value: trace.IntValue(7)}, {Key: "f", Value: trace.FloatValue(0.25)}, {Key: "nan", Value: trace.FloatValue(math.NaN())},
			{Key: "b", Value: trace.BoolValue(true)}, {Key: "j", Value: trace.JSONValue(`["x"]`)}, {Key: "none"},
		},
		Events: []trace.Event{{At: trace.Some(trace.Time(5)), Name: "e"}},
	}
	var b bytes.Buffer
	if err := Encode(&b, []*trace.Span{s}, Encoding{Form: Pretty}); err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/span.json", b.Bytes())
}
