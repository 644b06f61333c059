package analyze

import (
	"strconv"
	"strings"

	"github.com/traceview/traceview/trace"
)

// PhaseColumns are the sets of phases that have a column of their own in
// tables, in the order of a request's life. Time of other sets is summed under
// [OtherSetsColumn].
func PhaseColumns() []trace.Phase {
	return append(trace.Phases(), trace.Arrival|trace.Completion, trace.Queueing|trace.Prefill, trace.Prefill|trace.Decode)
}

// OtherSetsColumn is the column for time of sets that have none of their own.
const OtherSetsColumn = "other_sets_ns"

// PhaseColumn is the column that every table has for the time of a set of
// phases: "queueing_ns", "unattributed_ns"; [OtherSetsColumn] for a set that
// has none of its own.
func PhaseColumn(p trace.Phase) string {
	switch p {
	case trace.Arrival | trace.Completion:
		return "frontend_ns"
	case trace.Queueing | trace.Prefill:
		return "queueing_prefill_ns"
	case trace.Prefill | trace.Decode:
		return "prefill_decode_ns"
	}
	for _, q := range append(trace.Phases(), trace.Unattributed) {
		if p == q {
			return p.String() + "_ns"
		}
	}
	return OtherSetsColumn
}

// CauseColumn is the column that every table has for waiting of a cause.
func CauseColumn(c Cause) string { return "cause_" + c.String() + "_ns" }

// flagColumn and flagCell are of what is true or not.
func flagColumn(name, title, meaning string) Column {
	return Column{Name: name, Title: title, Flag: true, Meaning: meaning}
}

func flagCell(b bool) Cell {
	if b {
		return IntCell(1)
	}
	return IntCell(0)
}

// Names of classes that no value has: see [className].
const (
	classNone = "(none)"
	classRest = "(all other)"
)

// className names a value of a key, or the lack of one, where both stand side
// by side. A value that could be taken for something else is quoted.
func className(v trace.Opt[string]) string {
	s, ok := v.Get()
	switch {
	case !ok:
		return classNone
	case s == "", strings.HasPrefix(s, "("), strings.HasPrefix(s, `"`):
		return strconv.Quote(s)
	}
	return s
}
