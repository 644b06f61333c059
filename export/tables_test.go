package export

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/analyze"
)

func TestWriteTable(t *testing.T) {
	tab := &analyze.Table{Name: "t", Columns: []analyze.Column{
		{Name: "who", Text: true, Title: "who"}, {Name: "at", Unit: analyze.UnitTime, Meaning: "when"},
		{Name: "ns", Unit: analyze.UnitNanos}, {Name: "mean", Float: true}, {Name: "share", Unit: analyze.UnitShare},
	}, Rows: [][]analyze.Cell{
		{analyze.TextCell("a"), analyze.IntCell(1_760_000_000_000_000_001), analyze.IntCell(7), analyze.FloatCell(1.5), analyze.IntCell(1)},
		{analyze.TextCell("\xff"), {}, {}, {}, {}},
	}}
	write := func() []byte {
		var b bytes.Buffer
		if err := WriteTable(&b, tab, ParquetOptions{Version: "v", Inputs: []string{"x"}, RowGroup: 1}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	data := write()
	if !bytes.Equal(data, write()) {
		t.Error("the same table gives other bytes")
	}
	f := openParquet(t, data)
	for i, want := range []string{"string", "timestamp", "int64", "double", "double"} {
		if got := typeOf(t, f.Schema().Fields()[i]); got != want || TableColumns(tab)[i].Type != want {
			t.Errorf("column %d is %s, documented as %s, want %s", i, got, TableColumns(tab)[i].Type, want)
		}
	}
	want := []map[string]any{
		{"who": "a", "at": int64(1_760_000_000_000_000_001), "ns": int64(7), "mean": 1.5, "share": 1.0},
		{"who": "\uFFFD"},
	}
	if d := cmp.Diff(want, table(t, data)); d != "" {
		t.Error(d)
	}
	if v, ok := f.Lookup(ParquetSchemaKey); !ok || v == "" {
		t.Error("no schema version in the metadata")
	}

	tab.Rows = [][]analyze.Cell{{analyze.TextCell("a"), analyze.FloatCell(1), {}, {}, {}}}
	if err := WriteTable(&bytes.Buffer{}, tab, ParquetOptions{}); err == nil || !strings.Contains(err.Error(), "column at") {
		t.Errorf("a fraction as an instant: %v", err)
	}
	var b bytes.Buffer
	if err := WriteSchema(&b, []SchemaOf{{"t.parquet", "Things.", TableColumns(tab)}}); err != nil || !strings.Contains(b.String(), "| `at` | timestamp | ns | when |") {
		t.Errorf("%v\n%s", err, b.String())
	}
}
