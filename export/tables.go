package export

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/traceview/traceview/analyze"
)

// WriteTable writes a table as Parquet, compressed with zstd: words as
// dictionary-encoded strings, instants ([analyze.UnitTime]) as timestamps of
// nanoseconds in UTC, what is true or not as boolean, columns with a fraction
// as double and others as int64.
// What is not known is null. Of the options it heeds Version, Inputs and
// RowGroup. The same table gives the same bytes.
func WriteTable(w io.Writer, t *analyze.Table, o ParquetOptions) error {
	columns := make([]requestColumn, len(t.Columns))
	group := make(parquet.Group, len(t.Columns))
	for i, c := range t.Columns {
		columns[i] = requestColumn{ColumnDoc: tableColumn(c)}
		var node parquet.Node
		switch columns[i].Type {
		case "string":
			node = parquet.Encoded(parquet.String(), &parquet.RLEDictionary)
		case "timestamp":
			node = parquet.Timestamp(parquet.Nanosecond)
		case "double":
			node = parquet.Leaf(parquet.DoubleType)
		case "boolean":
			node = parquet.Leaf(parquet.BooleanType)
		default:
			node = parquet.Int(64)
		}
		group[c.Name] = parquet.Optional(node)
	}
	if len(group) != len(columns) {
		return fmt.Errorf("table %s: two columns have one name", t.Name)
	}
	p := parquet.NewWriter(w,
		parquet.NewSchema(t.Name, orderedGroup{group, columns}),
		parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("traceview", cmp.Or(o.Version, "unknown"), ""))
	if o.RowGroup <= 0 {
		o.RowGroup = parquetRowGroup
	}
	if err := o.describe(p); err != nil {
		return err
	}
	row := make(parquet.Row, len(columns))
	for n, cells := range t.Rows {
		for i, c := range cells {
			v, level := parquet.NullValue(), 0
			if c.Kind != analyze.CellAbsent {
				var ok bool
				if v, ok = cellValue(c, columns[i].Type); !ok {
					return fmt.Errorf("table %s: column %s cannot hold what is in row %d", t.Name, columns[i].Name, n)
				}
				level = 1
			}
			row[i] = v.Level(0, level, i)
		}
		if _, err := p.WriteRows([]parquet.Row{row}); err != nil {
			return fmt.Errorf("parquet: %w", err)
		}
		if (n+1)%o.RowGroup == 0 {
			if err := p.Flush(); err != nil {
				return fmt.Errorf("parquet: %w", err)
			}
		}
	}
	if err := p.Close(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// cellValue is a cell that is present as a value of that type.
func cellValue(c analyze.Cell, typ string) (v parquet.Value, ok bool) {
	switch {
	case c.Kind == analyze.CellText:
		return parquet.ByteArrayValue([]byte(valid(c.Text))), typ == "string"
	case typ == "double" && c.Kind == analyze.CellInt:
		return parquet.DoubleValue(float64(c.Int)), true
	case typ == "boolean":
		return parquet.BooleanValue(c.Int != 0), c.Kind == analyze.CellInt
	case c.Kind == analyze.CellFloat:
		return parquet.DoubleValue(c.Num), typ == "double"
	}
	return parquet.Int64Value(c.Int), typ == "int64" || typ == "timestamp"
}

// tableColumn describes a column of a table.
func tableColumn(c analyze.Column) ColumnDoc {
	d := ColumnDoc{Name: c.Name, Type: "int64", Unit: string(c.Unit), Meaning: cmp.Or(c.Meaning, c.Title)}
	switch {
	case c.Text:
		d.Type, d.Unit = "string", ""
	case c.Unit == analyze.UnitTime:
		d.Type, d.Unit = "timestamp", "ns"
	case c.Flag:
		d.Type = "boolean"
	case c.Float || c.Unit == analyze.UnitShare || c.Unit == analyze.UnitRate:
		d.Type = "double"
	}
	return d
}

// TableColumns describes the columns of a table as [WriteTable] writes it.
func TableColumns(t *analyze.Table) []ColumnDoc {
	docs := make([]ColumnDoc, len(t.Columns))
	for i := range docs {
		docs[i] = tableColumn(t.Columns[i])
	}
	return docs
}

// SchemaOf is one table of a folder, for [WriteSchema].
type SchemaOf struct {
	File, Meaning string
	Columns       []ColumnDoc
}

// WriteSchema writes as Markdown what the columns of tables mean.
func WriteSchema(w io.Writer, tables []SchemaOf) error {
	var b strings.Builder
	b.WriteString("# The tables in this folder\n\nInstants are UTC, durations whole nanoseconds (`_ns`). What is not known is null, never 0.\n")
	for _, t := range tables {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| Column | Type | Unit | Meaning |\n| --- | --- | --- | --- |\n", t.File, t.Meaning)
		for _, c := range t.Columns {
			// A bar ends a cell, in code too.
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", strings.ReplaceAll(c.Name, "|", `\|`), c.Type, c.Unit, strings.ReplaceAll(c.Meaning, "|", `\|`))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
