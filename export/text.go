// Package export turns results into bytes: text for people, JSON, CSV, Parquet
// and pprof for programs. One file a format; the same input gives the same
// bytes.
package export

import (
	"io"

	"github.com/traceview/traceview/analyze"
)

// TextOptions say how text is laid out. The zero value is for a file or pipe.
type TextOptions struct {
	Width int  // columns of the terminal; 0: 100
	Color bool // ANSI colours
}

// WriteText writes a report for people: verdict, measurement, phases, tail,
// groups, limits.
func WriteText(w io.Writer, r *analyze.Report, opts TextOptions) error { return nil }
