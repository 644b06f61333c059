package analyze

import (
	"math"

	"github.com/traceview/traceview/trace"
)

// Table has a row for each window of each series. Its columns are the same for
// every input.
func (res *WindowResult) Table() *Table {
	t := &Table{Name: "windows", Title: "Windows", Notes: res.Notes, Columns: windowColumns()}
	phases := make([]trace.Phase, len(res.Phases))
	for i, name := range res.Phases {
		phases[i], _ = trace.ParsePhase(name)
	}
	causes := make([]int, causeCount) // by cause, its place among the result's; from 1
	for i, name := range res.Causes {
		for _, c := range Causes() {
			if c.String() == name {
				causes[c] = i + 1
			}
		}
	}
	for i := range res.Series {
		s := &res.Series[i]
		name := []Cell{TextCell("replica"), {}, {}, {}}
		switch {
		case i == 0:
			name[0] = TextCell("all")
		case s.Rest:
			name[0] = TextCell("rest")
		}
		if s.Replica != nil {
			name[1], name[2], name[3] = textCell(s.Replica.Service), textCell(s.Replica.Model), textCell(s.Replica.Replica)
		}
		for j := range s.Windows {
			w := &s.Windows[j]
			row := append(make([]Cell, 0, len(t.Columns)), name...)
			var start, end Cell
			if res.Clock == trace.ClockUnix.String() {
				start, end = IntCell(w.StartNS), IntCell(w.EndNS)
			}
			row = append(row, IntCell(int64(j)), start, end, start, end, lengthCell(res.StartNS, w.StartNS), lengthCell(w.StartNS, w.EndNS),
				IntCell(w.Arrivals), IntCell(w.Served), IntCell(w.Failed), numberCell(w.SystemMean), OptCell(w.SystemMax),
				numberCell(w.WaitingMean), OptCell(w.WaitingMax), numberCell(w.RunningMean), OptCell(w.RunningMax))
			if e := w.Engine; e != nil {
				row = append(row, IntCell(e.Readings), numberCell(e.WaitingMean), OptCell(e.WaitingMax),
					numberCell(e.RunningMean), OptCell(e.RunningMax), numberCell(e.KVUsageMax))
			} else {
				row = append(row, make([]Cell, 6)...)
			}
			times := w.phaseCells(phases)
			row = append(row, times...)
			waits := times[len(times)-len(windowKinds)].Kind != CellAbsent // of the kind waiting
			for _, c := range Causes() {
				if at := causes[c]; at > 0 && waits {
					row = append(row, IntCell(w.CauseNS[at-1]))
				} else {
					row = append(row, Cell{})
				}
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// lengthCell is a length of time; absent where it does not fit.
func lengthCell(from, to int64) Cell {
	if to >= from && uint64(to)-uint64(from) > math.MaxInt64 {
		return Cell{}
	}
	return IntCell(to - from)
}

// windowPhases are the columns for time by phase, in order.
func windowPhases() []string {
	var names []string
	for _, p := range PhaseColumns() {
		names = append(names, PhaseColumn(p))
	}
	return append(names, OtherSetsColumn, PhaseColumn(trace.Unattributed))
}

// windowKinds are the kinds with a column, waiting first.
var windowKinds = []trace.Kind{trace.Waiting, trace.Compute, trace.Overhead}

// phaseCells are the window's times by phase and by kind, null where no
// request of the result has time in any such phase. phases says what PhaseNS
// lists.
func (w *Slot) phaseCells(phases []trace.Phase) (cells []Cell) {
	sums := map[string]int64{}
	kinds := map[trace.Kind]int64{}
	for i, p := range phases {
		sums[PhaseColumn(p)] += w.PhaseNS[i]
		kinds[p.Kind()] += w.PhaseNS[i]
	}
	cell := func(ns int64, told bool) Cell {
		if !told {
			return Cell{}
		}
		return IntCell(ns)
	}
	for _, name := range windowPhases() {
		ns, told := sums[name]
		cells = append(cells, cell(ns, told))
	}
	for _, k := range windowKinds {
		ns, told := kinds[k]
		cells = append(cells, cell(ns, told))
	}
	return cells
}

func windowColumns() []Column {
	columns := []Column{
		{Name: "series", Text: true, Meaning: "whose windows: all requests together (all), one replica (replica), or all replicas with few requests where there are too many (rest)"},
		{Name: "service", Text: true, Meaning: "the replica's service; null where the data do not say; of all requests, that of the only replica, else null"},
		{Name: "model", Text: true, Meaning: "the replica's model; null likewise"},
		{Name: "replica", Text: true, Meaning: "the replica of the service; null likewise"},
		{Name: "window", Key: true, Meaning: "number of the window, from 0; the same in every series"},
		{Name: "start", Title: "from", Unit: UnitTime, Meaning: "begin of the window; null where the clock is not unix, as the other instants"},
		{Name: "end", Title: "to", Unit: UnitTime, Meaning: "its end, which is the begin of the next; the last window has its end too; null likewise"},
		{Name: "start_unix_nano", Unit: UnitNanos, Meaning: "start as nanoseconds since 1970-01-01 UTC, for readers that cut timestamps to microseconds; null as start is"},
		{Name: "end_unix_nano", Unit: UnitNanos, Meaning: "end, likewise; null as end is"},
		{Name: "offset_ns", Unit: UnitNanos, Meaning: "begin of the window after that of the first, on any clock; null where it is over 292 years"},
		{Name: "length_ns", Unit: UnitNanos, Meaning: "end − start; the last window may be shorter"},
		{Name: "arrivals", Title: "arrived", Unit: UnitRequests, Meaning: "requests that arrived in the window"},
		{Name: "served", Title: "served", Unit: UnitRequests, Meaning: "that ended ok in it"},
		{Name: "failed", Title: "failed", Unit: UnitRequests, Meaning: "that ended otherwise in it"},
		{Name: "system_mean", Title: "in the system", Unit: UnitRequests, Float: true, Meaning: "requests arrived and not yet ended, mean over the window; null where it has no length, and, as the next, where more than a twentieth of the requests tell no end"},
		{Name: "system_max", Title: "most", Unit: UnitRequests, Meaning: "most at once; null likewise"},
		{Name: "waiting_mean", Title: "waiting", Unit: UnitRequests, Float: true, Meaning: "of these waiting, likewise; null where no source tells"},
		{Name: "waiting_max", Title: "most", Unit: UnitRequests, Meaning: "most at once; null where no source tells"},
		{Name: "running_mean", Title: "running", Unit: UnitRequests, Float: true, Meaning: "of these in prefill or decode, likewise; null where no source tells"},
		{Name: "running_max", Title: "most", Unit: UnitRequests, Meaning: "most at once; null where no source tells"},
		{Name: "engine_readings", Title: "readings", Unit: "readings", Meaning: "statements of engines about their own state; null, as the next five, where none stands in the window"},
		{Name: "engine_waiting_mean", Title: "waiting", Unit: UnitRequests, Float: true, Meaning: "waiting as engines state it, each reading standing until the next; null likewise"},
		{Name: "engine_waiting_max", Title: "most", Unit: UnitRequests, Meaning: "the most stated; null over several engines"},
		{Name: "engine_running_mean", Title: "running", Unit: UnitRequests, Float: true, Meaning: "running as engines state it; null likewise"},
		{Name: "engine_running_max", Title: "most", Unit: UnitRequests, Meaning: "the most stated; null over several engines"},
		{Name: "engine_kv_usage_max_share", Title: "KV most", Unit: UnitShare, Meaning: "the most of the KV cache in use, as engines state it; over several engines the fullest's; null likewise"},
	}
	for i, name := range windowPhases() {
		meaning := "as in the phase table, of the time that falls into the window; null likewise"
		if i == 0 {
			meaning = "as in the phase table, of the time that falls into the window; null where no request of the input has such time. The phases, the sets, other_sets_ns and unattributed_ns add up over all windows to the phase table's"
		}
		columns = append(columns, Column{Name: name, Unit: UnitNanos, Meaning: meaning})
	}
	for _, k := range windowKinds {
		columns = append(columns, Column{Name: k.String() + "_ns", Unit: UnitNanos, Meaning: "as in the phase table, of the time that falls into the window; null likewise"})
	}
	for i, c := range Causes() {
		meaning := "waiting with cause " + c.String() + " that falls into the window"
		if i > 0 {
			meaning += "; null likewise"
		} else {
			meaning += ". The causes add up to waiting_ns; all are null where it is"
		}
		columns = append(columns, Column{Name: CauseColumn(c), Unit: UnitNanos, Meaning: meaning})
	}
	return columns
}
