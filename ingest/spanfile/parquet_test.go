package spanfile

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

func parquetOf(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := sim.Encode(&b, captured(), sim.Encoding{Form: sim.ClickHouseParquet}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readParquet returns the spans and the codes of all issues.
func readParquet(t testing.TB, data []byte) (spans []*trace.Span, codes []string, known bool) {
	t.Helper()
	d := NewDecoder(1<<20, nil, func(s *trace.Span, is *trace.Issue) bool {
		if is != nil {
			codes = append(codes, string(is.Code))
			return true
		}
		for _, is := range s.Issues {
			codes = append(codes, string(is.Code))
		}
		spans = append(spans, s)
		return true
	})
	known, err := d.Parquet(bytes.NewReader(data), int64(len(data)), scan.At{File: "f"})
	if err != nil {
		t.Fatal(err)
	}
	return spans, codes, known
}

func TestParquet(t *testing.T) {
	data := parquetOf(t)
	if !ClickHouseParquet.Sniff(data) {
		t.Error("it is not recognised")
	}
	got, codes, known := readParquet(t, data)
	if len(codes) > 0 || !known {
		t.Errorf("%v, known %v", codes, known)
	}
	want := captured()
	for i, s := range want {
		s.Format, s.Untyped = "clickhouse-parquet", true
		for k, a := range s.Attrs {
			s.Attrs[k].Value = trace.StringValue(a.Value.String())
		}
		for k := range s.Events {
			s.Events[k].Attrs = nil
		}
		if p := got[i].Pos.Path; p != []string{"row[0]", "row[1]", "row[2]"}[i] {
			t.Errorf("span %d at %q", i, p)
		}
		got[i].Pos = trace.Pos{}
		slices.SortFunc(got[i].Resource.Attrs, func(a, b trace.Attr) int { return cmp.Compare(a.Key, b.Key) })
	}
	if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(trace.Value{}, trace.Opt[trace.Time]{})); diff != "" {
		t.Error(diff)
	}
}

func TestBrokenParquet(t *testing.T) {
	data := parquetOf(t)
	footer := func(b []byte) []byte {
		b = append([]byte("PAR1"), b...)
		return append(binary.LittleEndian.AppendUint32(b, uint32(len(b)-4)), "PAR1"...)
	}
	page := bytes.Clone(data)
	for i := 4; i < 60; i++ { // the first pages' headers
		page[i] ^= 0x5a
	}
	spans := captured()
	spans[0].StatusMessage = strings.Repeat("x", 2<<20)
	var bomb bytes.Buffer
	if err := sim.Encode(&bomb, spans, sim.Encoding{Form: sim.ClickHouseParquet}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		data       []byte
	}{
		{"cut", "bad-compression", data[:len(data)/2]},
		{"too short", "bad-compression", data[:7]},
		{"a footer of 4 GiB", "bad-compression", append(bytes.Clone(data[:len(data)-8]), "\xff\xff\xff\xffPAR1"...)},
		{"a list of two billion members", "bad-compression", footer([]byte{0x29, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0})},
		{"nested deep", "bad-compression", footer(bytes.Repeat([]byte{0x1c}, 1000))},
		{"an empty footer", "bad-compression", footer([]byte{0})},
		{"pages damaged", "bad-compression", page},
		{"a page too large", "record-too-large", bomb.Bytes()},
	} {
		spans, codes, _ := readParquet(t, tt.data)
		if strings.Join(codes, " ") != tt.want || len(spans) > 0 {
			t.Errorf("%s: %d spans, %v", tt.name, len(spans), codes)
		}
	}
}

func FuzzParquet(f *testing.F) {
	data := parquetOf(f)
	f.Add(data)
	f.Fuzz(func(t *testing.T, b []byte) {
		spans, codes, known := readParquet(t, b)
		if known && len(codes) == 0 && len(spans) == 0 && bytes.Equal(b, data) {
			t.Fatal("nothing came")
		}
	})
}
