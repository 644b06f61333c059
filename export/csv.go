package export

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/trace"
)

// CSVHeader is the one header of what [WriteCSV] writes.
var CSVHeader = []string{"table", "row", "column", "value", "unit"}

// WriteCSV writes tables as one CSV table (RFC 4180, UTF-8, lines end in CRLF)
// in long form: one line for each value.
//
//	table   the table's name: phases
//	row     what names the row, joined by a blank: queueing
//	column  the column's name, which ends in its unit: p99_ns
//	value   a whole number, a decimal number with a point, an instant (RFC 3339
//	        with nanoseconds, UTC), true, false, or a word
//	unit    ns, share (0 to 1), tokens, requests, 1/s, or empty
//
// The first words of a row name it, with the key that follows, if any; other
// words stand as values. Absent values
// have no line. A word that a spreadsheet would take for a formula (it begins
// with =, +, -, @, a tab or a carriage return) gets an apostrophe before it.
func WriteCSV(w io.Writer, tables []*analyze.Table) error {
	out := csv.NewWriter(w)
	out.UseCRLF = true
	if err := out.Write(CSVHeader); err != nil {
		return err
	}
	for _, t := range tables {
		names := 0 // leading columns of words
		for names < len(t.Columns) && (t.Columns[names].Text || t.Columns[names].Key) {
			names++
		}
		if t.Name == "phases" {
			names = 1 // the kind is a value of the phase, not its name
		}
		for _, row := range t.Rows {
			var name []string
			for i := range names {
				if v := csvValue(t.Columns[i], row[i]); v != "" {
					name = append(name, v)
				}
			}
			for i := names; i < len(row); i++ {
				v := csvValue(t.Columns[i], row[i])
				if row[i].Kind == analyze.CellText {
					v = noFormula(v)
				}
				if v == "" {
					continue
				}
				rec := []string{t.Name, noFormula(strings.Join(name, " ")), t.Columns[i].Name, v, csvUnit(t.Columns[i])}
				if err := out.Write(rec); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

// csvValue is a cell as text, "" where it is absent.
func csvValue(c analyze.Column, v analyze.Cell) string {
	switch {
	case v.Kind == analyze.CellText:
		return v.Text
	case v.Kind == analyze.CellFloat:
		return strconv.FormatFloat(v.Num, 'g', -1, 64)
	case v.Kind != analyze.CellInt:
		return ""
	case c.Unit == analyze.UnitTime:
		return trace.Time(v.Int).UTC().Format(time.RFC3339Nano)
	case c.Flag:
		return strconv.FormatBool(v.Int != 0)
	}
	return strconv.FormatInt(v.Int, 10)
}

// csvUnit is what a column's numbers count; instants count nothing.
func csvUnit(c analyze.Column) string {
	if c.Unit == analyze.UnitTime {
		return ""
	}
	return string(c.Unit)
}

// noFormula keeps a spreadsheet from running a word of the input.
func noFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
