package analyze

import (
	"strconv"
	"strings"

	"github.com/traceview/traceview/trace"
)

// Dagger marks a quantile that the data do not support.
const Dagger = "†"

// Tables gives the report's numbers as tables: "counts", "rates", "tokens",
// "phases" (with the figures of whole requests below), "kinds", "causes",
// "tail", "tail_causes", "stands_out", "examples", "groups_KEY", "engines", "little". A table without rows is left
// out.
func (r *Report) Tables() []*Table {
	all := []*Table{r.countsTable(), r.ratesTable(), r.tokensTable(), r.PhaseTable(), r.kindsTable(), r.reasonsTable(), r.TailTable(), r.tailCausesTable(), r.standsOutTable(), r.examplesTable()}
	for i := range r.Groups {
		all = append(all, r.Groups[i].Table())
	}
	all = append(all, r.enginesTable(), r.littleTable())
	out := all[:0]
	for _, t := range all {
		if len(t.Rows) > 0 {
			out = append(out, t)
		}
	}
	return out
}

func text(name, title string) Column { return Column{Name: name, Title: title, Text: true} }

func (r *Report) countsTable() *Table {
	t := &Table{Name: "counts", Title: "Requests", Columns: []Column{
		text("count", ""), {Name: "requests", Title: "requests", Unit: UnitRequests},
	}}
	add := func(name string, n int64) { t.Rows = append(t.Rows, []Cell{TextCell(name), IntCell(n)}) }
	c := &r.Counts
	add("all", c.Requests)
	for _, o := range c.Outcomes {
		add(o.Name, o.Requests)
	}
	add("used", c.Used)
	for _, l := range c.LeftOut {
		add("left out: "+l.Name, l.Requests)
	}
	add("inconsistent", c.Inconsistent)
	add("not in the window", c.NotInWindow)
	return t
}

func (r *Report) ratesTable() *Table {
	t := &Table{Name: "rates", Title: "Rates", Columns: []Column{
		text("rate", ""), {Name: "per_s", Title: "per second", Unit: UnitRate},
		{Name: "mean", Title: "mean", Unit: UnitNone}, {Name: "peak", Title: "peak", Unit: UnitNone},
	}}
	num := func(o trace.Opt[float64]) Cell {
		if v, ok := o.Get(); ok {
			return FloatCell(v)
		}
		return Cell{}
	}
	c := &r.Card
	for _, x := range []struct {
		name string
		v    trace.Opt[float64]
	}{
		{"offered requests", c.OfferedPerS}, {"throughput requests", c.ThroughputPerS}, {"goodput requests", c.GoodputPerS},
		{"prompt tokens", c.PromptTokensPerS}, {"output tokens", c.OutputTokensPerS},
	} {
		if x.v.Present() {
			t.Rows = append(t.Rows, []Cell{TextCell(x.name), num(x.v), {}, {}})
		}
	}
	for _, x := range []struct {
		name string
		mean trace.Opt[float64]
		peak trace.Opt[int64]
	}{{"concurrency", c.ConcurrencyMean, c.ConcurrencyPeak}, {"waiting", c.WaitingMean, c.WaitingPeak}} {
		if x.mean.Present() {
			t.Rows = append(t.Rows, []Cell{TextCell(x.name), {}, num(x.mean), OptCell(x.peak)})
		}
	}
	return t
}

func (r *Report) tokensTable() *Table {
	t := &Table{Name: "tokens", Title: "Tokens a request", Columns: []Column{
		text("count", ""), {Name: "requests", Title: "requests", Unit: UnitRequests},
		{Name: "total_tokens", Title: "total", Unit: UnitTokens}, {Name: "mean_tokens", Title: "mean", Unit: UnitTokens},
	}}
	for _, x := range []struct {
		name string
		n    *Tokens
	}{{"prompt", &r.Card.PromptTokens}, {"cached", &r.Card.CachedTokens}, {"output", &r.Card.OutputTokens}} {
		if x.n.Requests == 0 {
			continue
		}
		row := []Cell{TextCell(x.name), IntCell(x.n.Requests), IntCell(x.n.Total), FloatCell(x.n.Mean.Or(0))}
		for _, q := range x.n.Quantiles {
			if len(t.Rows) == 0 {
				t.Columns = append(t.Columns, Column{Name: QName(q.Q) + "_tokens", Title: QName(q.Q), Unit: UnitTokens})
			}
			row = append(row, IntCell(q.Tokens))
		}
		if len(t.Rows) == 0 {
			t.Columns = append(t.Columns, Column{Name: "max_tokens", Title: "max", Unit: UnitTokens})
		}
		t.Rows = append(t.Rows, append(row, OptCell(x.n.Max)))
	}
	return t
}

// QName names a quantile: 0.5 is "p50", 0.999 is "p99.9".
func QName(q float64) string {
	// Ten digits are enough to tell quantiles apart, and hide that 0.07·100 is
	// not 7 in binary.
	s := strconv.FormatFloat(q*100, 'f', 10, 64)
	return "p" + strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// PhaseTable has a row for each phase and, below, for each figure of whole
// requests.
func (r *Report) PhaseTable() *Table {
	t := &Table{Name: "phases", Title: "Where the time goes", Columns: []Column{
		text("phase", ""), text("kind", "kind"),
		{Name: "share", Title: "share", Unit: UnitShare},
		{Name: "mean_ns", Title: "mean", Unit: UnitNanos},
	}}
	var qs []Quantile
	for i := range r.Phases {
		if len(r.Phases[i].Quantiles) > 0 {
			qs = r.Phases[i].Quantiles
		}
	}
	for _, q := range qs {
		n := QName(q.Q)
		t.Columns = append(t.Columns, Column{Name: n + "_ns", Title: n, Unit: UnitNanos},
			Column{Name: n + "_low_ns", Title: n + " low", Unit: UnitNanos}, Column{Name: n + "_high_ns", Title: n + " high", Unit: UnitNanos})
	}
	t.Columns = append(t.Columns,
		Column{Name: "max_ns", Title: "max", Unit: UnitNanos},
		Column{Name: "requests", Title: "requests", Unit: UnitRequests},
		Column{Name: "total_ns", Title: "total", Unit: UnitNanos},
		Column{Name: "total_all_ns", Title: "total of all", Unit: UnitNanos})
	add := func(d *Distribution, kind string, share trace.Opt[float64], all trace.Opt[int64]) {
		row := []Cell{TextCell(d.Name), TextCell(kind), {}, OptCell(d.MeanNS)}
		if kind == "" {
			row[1] = Cell{}
		}
		if v, ok := share.Get(); ok {
			row[2] = FloatCell(v)
		}
		for i := range qs {
			if i >= len(d.Quantiles) {
				row = append(row, Cell{}, Cell{}, Cell{})
				continue
			}
			q := d.Quantiles[i]
			v := IntCell(q.NS)
			if !q.Supported {
				v.Mark = Dagger
			}
			low, high := Cell{}, Cell{}
			if q.Interval != nil {
				low, high = OptCell(q.Interval.LowNS), OptCell(q.Interval.HighNS)
			}
			row = append(row, v, low, high)
		}
		t.Rows = append(t.Rows, append(row, OptCell(d.MaxNS), IntCell(d.Requests), IntCell(d.TotalNS), OptCell(all)))
	}
	if r.Counts.Requests == 0 {
		return t
	}
	for i := range r.Phases {
		p := &r.Phases[i]
		add(&p.Distribution, p.Kind, p.Share, trace.Some(p.TotalAllNS))
	}
	for i := range r.Figures {
		add(&r.Figures[i], "", trace.Opt[float64]{}, trace.Opt[int64]{})
	}
	return t
}

func (r *Report) kindsTable() *Table {
	t := &Table{Name: "kinds", Title: "By kind", Columns: []Column{
		text("kind", ""), {Name: "share", Title: "share", Unit: UnitShare}, {Name: "mean_ns", Title: "mean", Unit: UnitNanos},
		{Name: "total_ns", Title: "total", Unit: UnitNanos}, {Name: "total_all_ns", Title: "total of all", Unit: UnitNanos},
	}}
	if r.Counts.Requests == 0 {
		return t
	}
	for _, k := range r.Kinds {
		row := []Cell{TextCell(k.Kind), {}, OptCell(k.MeanNS), IntCell(k.TotalNS), IntCell(k.TotalAllNS)}
		if v, ok := k.Share.Get(); ok {
			row[1] = FloatCell(v)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// tailTable is an empty table of what the slowest and the median ones have of
// something.
func tailTable(name, title, of string) *Table {
	return &Table{Name: name, Title: title, Columns: []Column{
		text(of, ""), {Name: "difference_ns", Title: "difference", Unit: UnitNanos},
		{Name: "tail_mean_ns", Title: "slow", Unit: UnitNanos}, {Name: "median_mean_ns", Title: "median", Unit: UnitNanos},
	}}
}

// TailTable has a row for each phase of the tail and one for e2e.
func (r *Report) TailTable() *Table {
	t := tailTable("tail", "What makes the slowest slow", "phase")
	if r.Tail == nil {
		return t
	}
	for _, p := range r.Tail.Phases {
		t.Rows = append(t.Rows, []Cell{TextCell(p.Phase), IntCell(p.DifferenceNS), IntCell(p.MeanNS), IntCell(p.MedianMeanNS)})
	}
	t.Rows = append(t.Rows, []Cell{TextCell("e2e"), IntCell(r.Tail.DifferenceNS), IntCell(r.Tail.MeanNS), IntCell(r.Tail.MedianMeanNS)})
	return t
}

// reasonsTable is the waiting by cause.
func (r *Report) reasonsTable() *Table {
	if r.Waiting == nil {
		return causesTable(nil)
	}
	return causesTable(r.Waiting.Causes)
}

// tailCausesTable splits the waiting in the tail by cause.
func (r *Report) tailCausesTable() *Table {
	t := tailTable("tail_causes", "Why the slowest wait", "cause")
	if r.Tail == nil {
		return t
	}
	for _, c := range r.Tail.Causes {
		t.Rows = append(t.Rows, []Cell{TextCell(c.Cause), IntCell(c.DifferenceNS), IntCell(c.MeanNS), IntCell(c.MedianMeanNS)})
	}
	return t
}

// standsOutTable is what the slowest have more often than all others.
func (r *Report) standsOutTable() *Table {
	t := &Table{Name: "stands_out", Title: "What stands out among the slowest", Columns: []Column{
		text("key", "key"), text("value", "value"),
		{Name: "requests", Title: "requests", Unit: UnitRequests}, {Name: "used", Title: "of all", Unit: UnitRequests},
		{Name: "band_share", Title: "of the slowest", Unit: UnitShare}, {Name: "rest_share", Title: "of the others", Unit: UnitShare},
		{Name: "times", Title: "times"}, {Name: "p", Title: "p"},
	}}
	if r.Tail == nil {
		return t
	}
	for _, s := range r.Tail.StandsOut {
		t.Rows = append(t.Rows, []Cell{
			TextCell(s.Key), TextCell(s.Value), IntCell(s.Requests), IntCell(s.Of),
			FloatCell(s.BandShare), FloatCell(s.RestShare), shareCell(s.Ratio), FloatCell(s.P),
		})
	}
	return t
}

func (r *Report) examplesTable() *Table {
	t := &Table{Name: "examples", Title: "Real requests", Columns: []Column{
		text("quantile", ""), {Name: "e2e_ns", Title: "e2e", Unit: UnitNanos}, text("id", "request"), text("position", "where"),
	}}
	for i := range r.Examples {
		e := &r.Examples[i]
		t.Rows = append(t.Rows, []Cell{TextCell(QName(e.Q)), IntCell(e.E2ENS), TextCell(e.ID), TextCell(e.Pos().String())})
	}
	return t
}

// Table has a row for each group.
func (g *Grouping) Table() *Table {
	t := &Table{Name: "groups_" + strings.Join(g.By, "_"), Title: "By " + strings.Join(g.By, ", ")}
	for _, k := range g.By {
		t.Columns = append(t.Columns, text(k, k))
	}
	t.Columns = append(t.Columns,
		Column{Name: "requests", Title: "requests", Unit: UnitRequests},
		Column{Name: "waiting_share", Title: "of waiting", Unit: UnitShare},
		Column{Name: "waiting_all_ns", Title: "waited", Unit: UnitNanos},
		Column{Name: "mean_waiting_ns", Title: "mean wait", Unit: UnitNanos},
		Column{Name: "mean_e2e_ns", Title: "mean e2e", Unit: UnitNanos},
		Column{Name: "p50_e2e_ns", Title: "p50 e2e", Unit: UnitNanos},
		Column{Name: "p99_e2e_ns", Title: "p99 e2e", Unit: UnitNanos})
	for _, x := range g.Rows {
		var row []Cell
		for _, v := range x.Values {
			row = append(row, TextCell(className(v)))
		}
		share := Cell{}
		if v, ok := x.WaitingShare.Get(); ok {
			share = FloatCell(v)
		}
		p99 := OptCell(x.E2EP99)
		if p99.Kind != CellAbsent && !x.P99Supported {
			p99.Mark = Dagger
		}
		t.Rows = append(t.Rows, append(row, IntCell(x.Requests), share, OptCell(x.WaitingAllNS), OptCell(x.WaitingMean),
			OptCell(x.E2EMean), OptCell(x.E2EP50), p99))
	}
	return t
}

func (r *Report) enginesTable() *Table {
	t := &Table{Name: "engines", Title: "What the engines say of themselves", Columns: []Column{
		text("engine", "engine"), text("replica", "replica"), text("file", "file"),
		{Name: "samples", Title: "readings"},
		{Name: "running_mean", Title: "running mean"}, {Name: "running_max", Title: "max"},
		{Name: "waiting_mean", Title: "waiting mean"}, {Name: "waiting_max", Title: "max"},
		{Name: "kv_usage_mean_share", Title: "KV mean", Unit: UnitShare}, {Name: "kv_usage_max_share", Title: "max", Unit: UnitShare},
		{Name: "slots", Title: "slots"}, {Name: "budget_tokens", Title: "step budget"}, {Name: "kv_tokens", Title: "KV tokens"},
	}}
	num := func(o trace.Opt[float64]) Cell {
		if v, ok := o.Get(); ok {
			return FloatCell(v)
		}
		return Cell{}
	}
	for _, e := range r.Engines {
		t.Rows = append(t.Rows, []Cell{TextCell(e.Engine), TextCell(e.Replica), TextCell(e.File), IntCell(e.Samples),
			num(e.RunningMean), OptCell(e.RunningMax), num(e.WaitingMean), OptCell(e.WaitingMax), num(e.KVUsageMean), num(e.KVUsageMax),
			OptCell(e.Slots), OptCell(e.Budget), OptCell(e.KVTokens)})
	}
	return t
}

func (r *Report) littleTable() *Table {
	t := &Table{Name: "little", Title: "Little's law", Columns: []Column{
		text("replica", "replica"), {Name: "mean_waiting", Title: "mean waiting"},
		{Name: "arrivals_per_s", Title: "arrivals", Unit: UnitRate}, {Name: "mean_wait_ns", Title: "mean wait", Unit: UnitNanos},
		{Name: "deviation_share", Title: "deviation", Unit: UnitShare}, text("reason", "reason"),
	}}
	for _, l := range r.Little {
		dev := Cell{}
		if v, ok := l.Deviation.Get(); ok {
			dev = FloatCell(v)
		}
		t.Rows = append(t.Rows, []Cell{TextCell(l.Replica.Or("all")), FloatCell(l.MeanWaiting), FloatCell(l.ArrivalsPerS),
			IntCell(l.MeanWaitNS), dev, TextCell(l.Reason)})
	}
	return t
}
