package analyze

import "github.com/traceview/traceview/trace"

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
