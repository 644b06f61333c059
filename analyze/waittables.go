package analyze

import (
	"strconv"

	"github.com/traceview/traceview/trace"
)

// Name names the replica: by its own name, else by its service.
func (r *ReplicaWaits) Name() string {
	switch {
	case r.Replica != "":
		return r.Replica
	case r.Service != "":
		return r.Service
	}
	return "(unnamed)"
}

// Use is the share of the slots that was taken, over the time of the replica;
// absent where no slot limit is known.
func (r *ReplicaWaits) Use() trace.Opt[float64] {
	c, ok := r.Limits.Slots.Value.Get()
	n, okN := r.RunningMean.Get()
	if !ok || !okN || c <= 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(n / float64(c))
}

// Disproved reports whether the slots that are stated cannot be right: more ran
// for over half a percent of the time that anything did. What they explain is
// then not sure.
func (r *ReplicaWaits) Disproved() bool { return disproved(&r.Limits, r.BusyNS) }

// Busy is the share of its time during which the replica ran anything.
func (r *ReplicaWaits) Busy() trace.Opt[float64] { return share(r.BusyNS, r.EndNS-r.StartNS) }

// AvoidableNS is how much of the replica's waiting was avoidable.
func (r *ReplicaWaits) AvoidableNS() int64 {
	var ns int64
	for i := range r.Causes {
		ns += r.Causes[i].AvoidableNS
	}
	return ns
}

// Tables gives the result's numbers as tables: "causes", "waiting_replicas",
// "replica_causes", "limits", "blame", "holders", "overtaking", "stalls". A
// table without rows is left out.
func (res *WaitResult) Tables() []*Table {
	all := []*Table{
		causesTable(res.Causes), res.replicasTable(), res.replicaCausesTable(), res.limitsTable(),
		res.BlameTable(), res.holdersTable(), res.overtakingTable(), res.stallsTable(),
	}
	out := all[:0]
	for _, t := range all {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func shareCell(o trace.Opt[float64]) Cell {
	if v, ok := o.Get(); ok {
		return FloatCell(v)
	}
	return Cell{}
}

func textCell(s string) Cell {
	if s == "" {
		return Cell{}
	}
	return TextCell(s)
}

func nsColumn(name, title string) Column { return Column{Name: name, Title: title, Unit: UnitNanos} }

var causeColumns = []Column{
	nsColumn("waiting_ns", "waiting"), {Name: "share", Title: "of waiting", Unit: UnitShare},
	{Name: "confidence", Title: "confidence", Unit: UnitShare},
	nsColumn("hidden_ns", "hidden holders"), nsColumn("avoidable_ns", "avoidable"),
	{Name: "basis", Title: "basis", Text: true}, {Name: "remedy", Title: "what helps", Text: true},
}

func (c *CauseRow) cells() []Cell {
	return []Cell{IntCell(c.NS), shareCell(c.Share), shareCell(c.Confidence), IntCell(c.HiddenNS), IntCell(c.AvoidableNS), textCell(c.Basis), textCell(c.Remedy)}
}

func causesTable(causes []CauseRow) *Table {
	t := &Table{Name: "causes", Title: "Why requests waited", Columns: append([]Column{text("cause", "")}, causeColumns...)}
	for i := range causes {
		t.Rows = append(t.Rows, append([]Cell{TextCell(causes[i].Cause)}, causes[i].cells()...))
	}
	return t
}

// replicaName is what tells a replica from others, as leading words of a row.
var replicaName = []Column{text("service", "service"), text("model", "model"), text("replica", "replica"), text("clock", "clock")}

func (r *ReplicaWaits) nameCells() []Cell {
	return []Cell{TextCell(r.Service), TextCell(r.Model), TextCell(r.Replica), TextCell(r.Clock)}
}

func (res *WaitResult) replicasTable() *Table {
	t := &Table{Name: "waiting_replicas", Title: "Replicas", Columns: append(replicaName[:4:4],
		Column{Name: "requests", Title: "requests", Unit: UnitRequests},
		nsColumn("waiting_ns", "waiting"), Column{Name: "share", Title: "of waiting", Unit: UnitShare},
		Column{Name: "confidence", Title: "confidence", Unit: UnitShare}, nsColumn("avoidable_ns", "avoidable"),
		Column{Name: "running_mean", Title: "running"}, Column{Name: "running_peak", Title: "at most"},
		Column{Name: "waiting_mean", Title: "waiting on average"},
		Column{Name: "used_share", Title: "of slots", Unit: UnitShare}, nsColumn("busy_ns", "busy"),
		nsColumn("start_ns", "start"), nsColumn("end_ns", "end"), nsColumn("tolerance_ns", "clock tolerance"),
	)}
	for i := range res.Replicas {
		r := &res.Replicas[i]
		t.Rows = append(t.Rows, append(r.nameCells(),
			IntCell(r.Requests), IntCell(r.WaitingNS), shareCell(share(r.WaitingNS, res.WaitingNS)), shareCell(r.Confidence),
			IntCell(r.AvoidableNS()), shareCell(r.RunningMean), IntCell(r.RunningPeak), shareCell(r.WaitingMean),
			shareCell(r.Use()), IntCell(r.BusyNS), IntCell(r.StartNS), IntCell(r.EndNS), IntCell(r.ToleranceNS)))
	}
	return t
}

func (res *WaitResult) replicaCausesTable() *Table {
	t := &Table{Name: "replica_causes", Title: "Why requests waited, by replica", Columns: append(append(replicaName[:4:4], text("cause", "cause")), causeColumns...)}
	for i := range res.Replicas {
		r := &res.Replicas[i]
		for k := range r.Causes {
			if c := &r.Causes[k]; c.NS != 0 {
				t.Rows = append(t.Rows, append(append(r.nameCells(), TextCell(c.Cause)), c.cells()...))
			}
		}
	}
	return t
}

func (res *WaitResult) limitsTable() *Table {
	t := &Table{Name: "limits", Title: "Limits used", Columns: append(append(replicaName[:4:4], text("limit", "limit")),
		Column{Name: "value", Title: "value"}, Column{Name: "at_least", Title: "at least"}, Column{Name: "below", Title: "below"},
		Column{Name: "refused_time_share", Title: "of refused time", Unit: UnitShare},
		Column{Name: "refused_intervals", Title: "stretches"}, Column{Name: "spread_share", Title: "spread", Unit: UnitShare},
		Column{Name: "known", Title: "known", Text: true})}
	for i := range res.Replicas {
		r := &res.Replicas[i]
		for _, l := range r.Limits.Named() {
			t.Rows = append(t.Rows, append(append(r.nameCells(), TextCell(l.Name)),
				OptCell(l.Value), OptCell(l.Low), OptCell(l.High), shareCell(l.Share), IntCell(l.Intervals), shareCell(l.Spread), textCell(l.How)))
		}
	}
	return t
}

// NamedLimit is a limit with the name of what it limits.
type NamedLimit struct {
	Name string // "slots", "budget_tokens", "kv_tokens"
	Limit
}

// Named lists the limits.
func (l *Limits) Named() []NamedLimit {
	return []NamedLimit{{"slots", l.Slots}, {"budget_tokens", l.Budget}, {"kv_tokens", l.KV}}
}

func (res *WaitResult) holdersTable() *Table {
	t := &Table{Name: "holders", Title: "Requests that made others wait most", Columns: []Column{
		text("rank", ""), nsColumn("charged_ns", "charged"), nsColumn("scheduled_ns", "from"), nsColumn("end_ns", "to"), nsColumn("waited_ns", "waited itself"),
		{Name: "prompt_tokens", Title: "prompt", Unit: UnitTokens}, {Name: "output_tokens", Title: "output", Unit: UnitTokens},
		{Name: "line", Title: "line"}, {Name: "offset", Title: "offset"},
		text("id", "request"), text("class", "class"), text("service", "service"), text("model", "model"), text("replica", "replica"), text("file", "file"),
	}}
	count := func(n int64) Cell {
		if n < 0 {
			return Cell{}
		}
		return IntCell(n)
	}
	for i := range res.Holders {
		h := &res.Holders[i]
		t.Rows = append(t.Rows, []Cell{
			TextCell(strconv.Itoa(i + 1)), IntCell(h.ChargedNS), IntCell(h.ScheduledNS), IntCell(h.EndNS), IntCell(h.WaitedNS),
			count(h.Input), count(h.Output), IntCell(int64(h.Line)), IntCell(h.Offset),
			textCell(h.ID), textCell(h.Class), textCell(h.Service), textCell(h.Model), textCell(h.Replica), textCell(h.File),
		})
	}
	return t
}

func (res *WaitResult) overtakingTable() *Table {
	t := &Table{Name: "overtaking", Title: "Overtaken while waiting", Columns: []Column{
		text("class", ""), {Name: "requests", Title: "requests", Unit: UnitRequests}, nsColumn("overtaken_ns", "overtaken"),
	}}
	for _, o := range res.Overtaking {
		t.Rows = append(t.Rows, []Cell{TextCell(o.Class), IntCell(o.Requests), IntCell(o.NS)})
	}
	return t
}

func (res *WaitResult) stallsTable() *Table {
	t := &Table{Name: "stalls", Title: "Nothing progressed", Columns: append(append(replicaName[:4:4], text("stall", "")),
		nsColumn("start_ns", "from"), nsColumn("end_ns", "to"), Column{Name: "running", Title: "running", Unit: UnitRequests},
		Column{Name: "verdict", Title: "verdict", Text: true})}
	for i := range res.Replicas {
		r := &res.Replicas[i]
		for k, s := range r.Stalls {
			verdict := "no progress"
			if s.Confirmed {
				verdict = "stall"
			}
			t.Rows = append(t.Rows, append(r.nameCells(), TextCell(strconv.Itoa(k+1)),
				IntCell(s.StartNS), IntCell(s.EndNS), IntCell(int64(s.Running)), TextCell(verdict)))
		}
	}
	return t
}
