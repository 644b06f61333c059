package analyze

import "github.com/traceview/traceview/trace"

// RowWaits is what a [WaitResult] says of one request, in nanoseconds.
type RowWaits struct {
	ByCause     [causeCount]int64 // its waiting, indexed by [Cause]
	AvoidableNS int64             // of its waiting
	ChargedNS   int64             // of others' waiting, charged to it
}

// Row sums the parts of the i-th request that was added.
func (res *WaitResult) Row(i int) RowWaits {
	w := RowWaits{ChargedNS: res.Charged(i)}
	for _, p := range res.Parts(i) {
		ns := int64(p.End.Sub(p.Start))
		w.ByCause[p.Cause] += ns
		if p.Avoidable {
			w.AvoidableNS += ns
		}
	}
	return w
}

// WaitingTable returns an empty table of stretches of waiting, which
// [WaitResult.AppendParts] fills.
func WaitingTable() *Table {
	return &Table{Name: "waiting", Title: "Stretches of waiting", Columns: []Column{
		{Name: "row", Title: "row", Meaning: "the request's row in the phase table, from 0"},
		{Name: "request_id", Title: "request", Text: true, Meaning: "the engine's id of the request; null where it has none"},
		{Name: "cause", Title: "cause", Text: true, Meaning: "why it waited: hold, stall, slots, kv_cache, prefill, step or unknown"},
		{Name: "start", Title: "from", Unit: UnitTime, Meaning: "begin of the stretch; null where the clock is not unix, as the other instants"},
		{Name: "end", Title: "to", Unit: UnitTime, Meaning: "the stretch ends before this instant; null likewise"},
		{Name: "start_unix_nano", Unit: UnitNanos, Meaning: "start as nanoseconds since 1970-01-01 UTC, for readers that cut timestamps to microseconds; null as start is"},
		{Name: "end_unix_nano", Unit: UnitNanos, Meaning: "end, likewise; null as end is"},
		{Name: "ns", Title: "time", Unit: UnitNanos, Meaning: "its length, on any clock; a request's stretches add up to its waiting_ns"},
		flagColumn("hidden", "hidden", "whether the cause is inferred from holders that the data do not show"),
		flagColumn("avoidable", "avoidable", "whether another replica of the model had no queue and a free slot"),
	}}
}

// AppendParts adds the stretches of the i-th request that was added, which is
// r.
func (res *WaitResult) AppendParts(t *Table, i int, r *trace.Request) {
	for _, p := range res.Parts(i) {
		var start, end Cell
		if r.Clock == trace.ClockUnix {
			start, end = IntCell(int64(p.Start)), IntCell(int64(p.End))
		}
		t.Rows = append(t.Rows, []Cell{
			IntCell(int64(i)), textCell(r.ID), TextCell(p.Cause.String()), start, end, start, end,
			IntCell(int64(p.End.Sub(p.Start))), flagCell(p.Hidden), flagCell(p.Avoidable),
		})
	}
}

// BlameTable gives the waiting as charged, a row for each class of waiter,
// class of holder and cause. Its ns add up to all waiting.
func (res *WaitResult) BlameTable() *Table {
	t := &Table{Name: "blame", Title: "Who made whom wait", Columns: []Column{
		{Name: "waiter", Title: "who waited", Text: true, Meaning: "the class of those who waited: their values of the keys of --by, joined by a comma; (none) where a request has no value, in quotes what could be taken for that; (all other) joins, beyond a hundred classes, those with the least share of waiting, running time and prompt tokens; all where there is no key"},
		{Name: "holder", Title: "for whom", Text: true, Meaning: "the class of those who held the replica meanwhile, likewise; null where nobody did (hold, stall, unknown while nothing ran)"},
		{Name: "cause", Title: "cause", Text: true, Meaning: "why they waited"},
		{Name: "ns", Title: "time", Unit: UnitNanos, Meaning: "waiting charged"},
	}}
	for _, c := range res.Matrix {
		var holder Cell
		if c.Holder != "" {
			holder = TextCell(c.Holder)
		}
		t.Rows = append(t.Rows, []Cell{TextCell(c.Waiter), holder, TextCell(c.Cause), IntCell(c.NS)})
	}
	return t
}
