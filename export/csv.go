package export

import (
	"encoding/csv"
	"io"
	"strconv"
	"strings"

	"github.com/traceview/traceview/analyze"
)

// CSVHeader is the one header of what [WriteCSV] writes.
var CSVHeader = []string{"table", "row", "column", "value", "unit"}

// WriteCSV writes tables as one CSV table (RFC 4180, UTF-8, lines end in CRLF)
// in long form: one line for each value.
//
//	table   the table's name: phases
//	row     the row's words, joined by a blank: queueing
//	column  the column's name, which ends in its unit: p99_ns
//	value   a whole number, a decimal number with a point, or a word
//	unit    ns, share (0 to 1), tokens, requests, 1/s, or empty
//
// The first words of a row name it; other words stand as values. Absent values
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
		for names < len(t.Columns) && t.Columns[names].Text {
			names++
		}
		if t.Name == "phases" {
			names = 1 // the kind is a value of the phase, not its name
		}
		for _, row := range t.Rows {
			var name []string
			for i := range names {
				if row[i].Kind == analyze.CellText {
					name = append(name, row[i].Text)
				}
			}
			for i := names; i < len(row); i++ {
				var v string
				switch c := row[i]; c.Kind {
				case analyze.CellText:
					v = noFormula(c.Text)
				case analyze.CellInt:
					v = strconv.FormatInt(c.Int, 10)
				case analyze.CellFloat:
					v = strconv.FormatFloat(c.Num, 'g', -1, 64)
				}
				if v == "" {
					continue
				}
				rec := []string{t.Name, noFormula(strings.Join(name, " ")), t.Columns[i].Name, v, string(t.Columns[i].Unit)}
				if err := out.Write(rec); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

// noFormula keeps a spreadsheet from running a word of the input.
func noFormula(s string) string {
	if s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		return "'" + s
	}
	return s
}
