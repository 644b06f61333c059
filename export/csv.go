package export

import (
	"io"

	"github.com/traceview/traceview/analyze"
)

// WriteCSV writes tables as one CSV table in long form, one line a value:
// table,row,column,value,unit.
func WriteCSV(w io.Writer, tables []*analyze.Table) error { return nil }
