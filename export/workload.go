package export

import (
	"bufio"
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/trace"
)

// A WorkloadFormat is a form of arrivals and lengths, for replay.
type WorkloadFormat string

const (
	// Mooncake is JSON lines: timestamp, milliseconds from the first arrival, with
	// as many digits behind the point as it takes (none for whole ones), and
	// input_length and output_length, tokens. There is no hash_ids: which prompts
	// begin alike is not known.
	Mooncake WorkloadFormat = "mooncake"
	// BurstGPT is a CSV table with the columns Timestamp (seconds from the first
	// arrival), Model, Request tokens, Response tokens, Total tokens and Log Type,
	// which is empty. Lines end in LF.
	BurstGPT WorkloadFormat = "burstgpt"
)

// ErrTwoClocks says that arrivals cannot be put on one axis.
var ErrTwoClocks = errors.New("the requests are on different clocks: no workload can be written of all of them; export the inputs apart")

// Workload writes the arrivals and lengths of requests, and no text, in the order
// of arrival, ties in that of the input. Write keeps them, Close writes.
type Workload struct {
	w      io.Writer
	format WorkloadFormat
	clock  trace.Clock
	list   []arrival
	models map[string]string // that were seen: the same string for each

	// LeftOut counts requests that have no arrival on a clock that others share, or
	// not both lengths: they cannot be sent again.
	LeftOut int64
}

type arrival struct {
	at      trace.Time
	in, out int
	model   string
}

// NewWorkload returns a writer of the format.
func NewWorkload(w io.Writer, format WorkloadFormat) *Workload {
	return &Workload{w: w, format: format, models: map[string]string{}}
}

// Write takes a request. The error is [ErrTwoClocks].
func (x *Workload) Write(r *trace.Request, _ *analyze.RowWaits) error {
	at, ok := r.Arrival.Get()
	in, okIn := r.Input.Get()
	out, okOut := r.Output.Get()
	if !ok || !okIn || !okOut || r.Clock == trace.ClockUnknown {
		x.LeftOut++
		return nil
	}
	if len(x.list) == 0 {
		x.clock = r.Clock
	} else if r.Clock != x.clock {
		return ErrTwoClocks
	}
	model, ok := x.models[r.Model]
	if !ok {
		model = strings.Clone(r.Model)
		x.models[model] = model
	}
	x.list = append(x.list, arrival{at, in, out, model})
	return nil
}

// Close writes what was taken.
func (x *Workload) Close() error {
	slices.SortStableFunc(x.list, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	w := bufio.NewWriter(x.w)
	if x.format == BurstGPT {
		w.WriteString("Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n")
	}
	var line []byte
	for _, a := range x.list {
		ns := int64(a.at.Sub(x.list[0].at))
		line = line[:0]
		switch x.format {
		case BurstGPT:
			line = append(appendUnits(line, ns, 9), ',')
			line = append(append(line, csvCell(noFormula(a.model))...), ',')
			line = append(strconv.AppendInt(line, int64(a.in), 10), ',')
			line = append(strconv.AppendInt(line, int64(a.out), 10), ',')
			line = append(strconv.AppendInt(line, int64(a.in)+int64(a.out), 10), ",\n"...)
		default:
			line = appendUnits(append(line, `{"timestamp": `...), ns, 6)
			line = strconv.AppendInt(append(line, `, "input_length": `...), int64(a.in), 10)
			line = strconv.AppendInt(append(line, `, "output_length": `...), int64(a.out), 10)
			line = append(line, "}\n"...)
		}
		w.Write(line)
	}
	return w.Flush()
}

// appendUnits appends ns, which is not below zero, in units of 10^exp ns, without
// zeros at the end.
func appendUnits(b []byte, ns int64, exp int) []byte {
	s := strconv.FormatInt(ns, 10)
	if len(s) <= exp {
		s = strings.Repeat("0", exp+1-len(s)) + s
	}
	b = append(b, s[:len(s)-exp]...)
	if f := strings.TrimRight(s[len(s)-exp:], "0"); f != "" {
		b = append(append(b, '.'), f...)
	}
	return b
}

// csvCell quotes a text where CSV needs it. What ends a line becomes a blank.
func csvCell(s string) string {
	s = strings.NewReplacer("\n", " ", "\r", " ").Replace(s)
	if strings.ContainsAny(s, ",;\t\"") {
		return `"` + strings.ReplaceAll(s, `"`, `""`) + `"`
	}
	return s
}
