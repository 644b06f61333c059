package export

import (
	"encoding/csv"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/trace"
)

// Rows writes requests as CSV, one line each, with the columns of
// [ParquetColumns] and the same values.
//
// Instants are RFC 3339 with nanoseconds, durations whole nanoseconds, a list
// is its members joined by semicolons, a map is a JSON object. What is not
// known is an empty cell. RFC 4180 with LF; the first line names the columns. A text
// that a spreadsheet would take for a formula begins with an apostrophe.
type Rows struct {
	w       *csv.Writer
	columns []requestColumn
	row     requestRow
	values  []parquet.Value
	cells   []string
}

// NewRows returns a writer of lines to w; of the options it heeds Columns. It
// fails as [NewParquet] does.
func NewRows(w io.Writer, o ParquetOptions) (*Rows, error) {
	columns, err := withColumns(o.Columns)
	if err != nil {
		return nil, err
	}
	r := &Rows{w: csv.NewWriter(w), columns: columns}
	for _, c := range columns {
		r.cells = append(r.cells, noFormula(c.Name))
	}
	return r, r.w.Write(r.cells)
}

// Write adds a line, as [ParquetWriter.Write] adds a row.
func (r *Rows) Write(req *trace.Request, why *analyze.RowWaits) error {
	r.row.set(req, why)
	r.cells = r.cells[:0]
	for _, c := range r.columns {
		r.values = c.put(r.values[:0], &r.row, 0)
		r.cells = append(r.cells, cellOf(c, r.values))
	}
	return r.w.Write(r.cells)
}

// Close writes out what is buffered. It does not close the underlying writer.
func (r *Rows) Close() error {
	r.w.Flush()
	return r.w.Error()
}

// cellOf turns a column's values, as they go into a Parquet table, into text.
func cellOf(c requestColumn, values []parquet.Value) string {
	switch {
	case strings.HasPrefix(c.Type, "map"):
		half := len(values) / 2
		m := make(map[string]any, half)
		for i, k := range values[:half] {
			if k.IsNull() {
				return ""
			}
			switch v := values[half+i]; {
			case v.IsNull():
				m[k.String()] = nil
			case v.Kind() == parquet.Int64:
				m[k.String()] = v.Int64()
			default:
				m[k.String()] = v.String()
			}
		}
		text, err := json.Marshal(m) // sorts its keys
		if err != nil {
			return ""
		}
		return string(text)
	case strings.HasPrefix(c.Type, "list"):
		var parts []string
		for _, v := range values {
			if !v.IsNull() {
				parts = append(parts, v.String())
			}
		}
		return noFormula(strings.Join(parts, ";"))
	}
	v := values[0]
	switch {
	case v.IsNull():
		return ""
	case c.Type == "timestamp":
		return trace.Time(v.Int64()).UTC().Format(time.RFC3339Nano)
	case v.Kind() == parquet.Int64:
		return strconv.FormatInt(v.Int64(), 10)
	case v.Kind() == parquet.Double:
		return strconv.FormatFloat(v.Double(), 'g', -1, 64)
	}
	return noFormula(v.String())
}
