package export

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// WriteWaitingJSON writes why requests waited as one JSON object, indented,
// with a newline at its end. Keys are the fields of [analyze.WaitResult]; they
// are never renamed. Durations and instants are whole nanoseconds, shares 0 to
// 1; what is not known is null.
func WriteWaitingJSON(w io.Writer, res *analyze.WaitResult) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(res)
}

// WriteWaiting writes for people why requests waited: the verdict, the causes,
// the limits they rest on, the replicas, who held what others waited for, the
// requests that made others wait most, overtaking and stalls. rep is the report
// on the same requests.
func WriteWaiting(w io.Writer, res *analyze.WaitResult, rep *analyze.Report, opts TextOptions) error {
	p := newPage(opts, rep)
	p.waitVerdict(res, rep)
	if res.WaitingNS > 0 {
		p.causes(res)
		p.limits(res)
		p.replicas(res)
		if res.Ranked() {
			p.matrix(res)
			p.holders(res)
		}
		p.overtaking(res)
	} else if rep.Counts.Requests > 0 || rep.Counts.Readings > 0 {
		p.engines(rep)
	}
	p.stalls(res)
	_, err := io.WriteString(w, p.b.String())
	return err
}

func (p *page) waitVerdict(res *analyze.WaitResult, rep *analyze.Report) {
	say := func(s string) { p.wrap("", s, bold) }
	switch {
	case rep.Counts.Requests == 0:
		for _, s := range rep.Verdict {
			say(s)
		}
	case res.WaitingNS > 0:
		say(res.Words())
	case slices.ContainsFunc(rep.Phases, func(ph analyze.PhaseRow) bool { return ph.Kind == trace.Waiting.String() }):
		say("No request waited.")
	default:
		say("No request tells how long it waited: there is no waiting to explain.")
		for _, ph := range rep.Phases {
			if ph.Kind == trace.Unsplit.String() && ph.TotalAllNS > 0 {
				say("What it waited is inside " + ph.Name + ", which the source does not split.")
			}
		}
		if l := rep.LogWait; l != nil {
			say("By the engine's own counts a request waits " + p.duration(l.MeanNS) + " on average (inferred; between " +
				p.duration(l.LowNS) + " and " + p.duration(l.HighNS) + ").")
		} else if len(rep.Engines) == 0 {
			say("Nor does the input have readings of how many waited.")
		}
	}
}

func (p *page) causes(res *analyze.WaitResult) {
	t := p.timesFor(res.WaitingNS)
	p.heading("Why requests waited, in " + t.scale.Name + " (" + requests(res.Requests) + ")")
	g := &grid{left: map[int]bool{0: true, 3: true}, whole: map[int]bool{0: true, 3: true}}
	head := []string{"", "waiting", "of waiting", "basis", "confidence", "avoidable"}
	if res.HiddenNS > 0 {
		head = append(head, "hidden holders")
	}
	g.add(head...)
	row := func(name, basis string, ns int64, share, sure trace.Opt[float64], avoidable, hidden int64) {
		cells := []string{name, t.format(ns), percent(share), basis, percent(sure), t.format(avoidable)}
		if res.HiddenNS > 0 {
			cells = append(cells, t.format(hidden))
		}
		g.add(cells...)
	}
	rows := res.Rows()
	for _, c := range rows {
		basis := c.Basis
		if basis == "" {
			basis = "—"
		}
		row(c.Cause, basis, c.NS, c.Share, c.Confidence, c.AvoidableNS, c.HiddenNS)
	}
	row("all", "", res.WaitingNS, trace.Some(1.0), res.Confidence, res.AvoidableNS, res.HiddenNS)
	p.grid(g)
	p.line("", plain)
	p.line("  What helps", dim)
	for _, c := range rows {
		p.wrap("  "+c.Cause+strings.Repeat(" ", max(1, 10-cells(c.Cause))), c.Remedy, plain)
	}
	if !res.Ranked() {
		p.wrap("  ", "Below a confidence of "+units.Percent(analyze.RankConfidence)+" neither causes nor holders are ranked. State limits that are known (--max-num-seqs, --max-num-batched-tokens, --kv-tokens).", dim)
	}
	if res.HiddenNS > 0 {
		p.wrap("  ", "Hidden holders: the cause assumes requests that held the replica and are not in the data.", dim)
	}
	if res.UnplacedNS > 0 {
		p.wrap("  ", t.format(res.UnplacedNS)+" "+t.scale.Name+" of the unknown is of requests that cannot be set beside others: their clock is another.", dim)
	}
	if res.Untold > 0 {
		do := " do not tell when they waited or ran: they"
		if res.Untold == 1 {
			do = " does not tell when it waited or ran: it"
		}
		p.wrap("  ", requests(res.Untold)+do+" may have held a replica unseen.", dim)
	}
}

func percent(o trace.Opt[float64]) string {
	if v, ok := o.Get(); ok {
		return units.Percent(v)
	}
	return "—"
}

// most is how many replicas, classes and requests a block of text shows.
const most = 10

func (p *page) limits(res *analyze.WaitResult) {
	p.heading("Limits used, and what supports them")
	names := res.ReplicaNames()
	wide := 0
	for i, n := range names[:min(len(names), most)] {
		names[i] = shorten(word(n), p.width/2-4)
		wide = max(wide, cells(names[i]))
	}
	for i := range res.Replicas {
		if i == most {
			p.more(len(res.Replicas) - most)
			break
		}
		r := &res.Replicas[i]
		l := &r.Limits
		parts := []string{
			p.slots(r), limit("KV cache", " tokens", &l.KV), limit("step budget", " tokens", &l.Budget),
		}
		if l.RefusedNS > 0 {
			parts = append(parts, "requests were seen and not taken for "+p.duration(l.RefusedNS))
		}
		if m := r.StepModel; m != nil {
			parts = append(parts, "a step takes "+units.Duration(time.Duration(m.BaseNS).Round(10*time.Microsecond), 0)+" and "+
				units.Number(m.TokenNS/1e3)+" µs a prompt token (fitted to "+requests(int64(m.Rows))+")")
		} else {
			parts = append(parts, "too few requests to fit what a step takes")
		}
		parts = append(parts, "clocks agree within "+units.Duration(time.Duration(r.ToleranceNS), 0))
		if l.Changed {
			parts = append(parts, "the log states several values while it served: those limits are taken as not stated")
		}
		if r.Sampled {
			parts = append(parts, "the requests are a sample: what ran unseen is unknown")
		}
		if r.Disaggregated {
			parts = append(parts, "prefill and decode ran on two engines: what held which is unknown")
		}
		if r.Assumed {
			parts = append(parts, "the source names no replica: one engine is assumed")
		}
		p.wrap("  "+names[i]+strings.Repeat(" ", wide-cells(names[i])+2), strings.Join(parts, "; "), plain)
	}
}

// limit says what a limit is and why that is believed.
// slots says how many slots a replica has, and where that cannot be right.
func (p *page) slots(r *analyze.ReplicaWaits) string {
	s := limit("slots", "", &r.Limits.Slots)
	if r.Disproved() {
		s += ", though more ran for " + p.duration(r.Limits.OverNS)
	}
	return s
}

func limit(name, unit string, l *analyze.Limit) string {
	if v, ok := l.Value.Get(); ok {
		s := name + " " + units.Count(v) + unit + ", "
		switch l.How {
		case analyze.LimitStated:
			return s + "stated"
		case analyze.LimitData:
			return s + "as the data say"
		case analyze.LimitLog:
			return s + "input (log line)"
		}
		s += "inferred from " + percent(l.Share) + " of the refused time, in " + units.Count(l.Intervals) + " stretches"
		if v, ok := l.Spread.Get(); ok {
			s += " that differ by " + units.Percent(v)
		}
		return s
	}
	low, okLow := l.Low.Get()
	high, okHigh := l.High.Get()
	if okLow && okHigh {
		return name + " at least " + units.Count(low) + ", below " + units.Count(high) + unit
	}
	return name + " not known"
}

func (p *page) more(n int) {
	if n > 0 {
		p.line("  and "+units.Count(int64(n))+" more", dim)
	}
}

func (p *page) replicas(res *analyze.WaitResult) {
	if len(res.Replicas) < 2 {
		return
	}
	var typical int64
	for i := range res.Replicas {
		typical = max(typical, res.Replicas[i].WaitingNS)
	}
	t := p.timesFor(typical)
	p.heading("Replicas, in " + t.scale.Name)
	g := &grid{left: map[int]bool{0: true}, whole: map[int]bool{}}
	head := []string{"", "requests", "waiting", "of waiting", "avoidable", "running", "of slots", "busy"}
	if res.Ranked() {
		g.left[len(head)], g.whole[len(head)] = true, true
		head = append(head, "mostly")
	}
	g.add(head...)
	names := res.ReplicaNames()
	for i := range res.Replicas {
		if i == most {
			break
		}
		r := &res.Replicas[i]
		running := "—"
		if v, ok := r.RunningMean.Get(); ok {
			running = units.Number(v)
		}
		row := []string{
			word(names[i]), units.Count(r.Requests), t.format(r.WaitingNS), percent(ratio(r.WaitingNS, res.WaitingNS)),
			percent(ratio(r.AvoidableNS(), r.WaitingNS)), running, percent(r.Use()), percent(r.Busy()),
		}
		if res.Ranked() {
			var main analyze.CauseRow
			for _, c := range r.Causes {
				if c.NS > main.NS {
					main = c
				}
			}
			if main.NS > 0 {
				row = append(row, main.Cause+" "+percent(main.Share))
			}
		}
		g.add(row...)
	}
	p.grid(g)
	p.more(len(res.Replicas) - most)
}

func ratio(part, whole int64) trace.Opt[float64] {
	if whole <= 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(float64(part) / float64(whole))
}

// matrix prints who waited for whom: the classes that waited and held most,
// the rest in sums.
func (p *page) matrix(res *analyze.WaitResult) {
	const (
		others = "others"
		nobody = "nobody"
	)
	waited, held := map[string]int64{}, map[string]int64{}
	var free int64 // held by nobody
	for _, c := range res.Matrix {
		waited[c.Waiter] += c.NS
		if c.Holder == "" {
			free += c.NS
		} else {
			held[c.Holder] += c.NS
		}
	}
	top := func(m map[string]int64, n int) (list []string, rest bool) {
		for _, c := range res.Classes {
			if m[c] > 0 {
				list = append(list, c)
			}
		}
		slices.SortStableFunc(list, func(x, y string) int {
			switch {
			case m[x] > m[y]:
				return -1
			case m[x] < m[y]:
				return 1
			}
			return 0
		})
		return list[:min(len(list), n)], len(list) > n
	}
	const column = 12
	waiters, moreWaiters := top(waited, most)
	const corner = "waited ↓  held →"
	first := cells(corner)
	for _, c := range waiters {
		first = max(first, min(cells(word(c)), 2*column))
	}
	t := p.timesFor(res.WaitingNS)
	number := max(cells(t.format(res.WaitingNS)), cells(others), cells(units.Percent(0.9995)))
	// As many holders as there is room for.
	holders, moreHolders := top(held, len(held))
	for len(holders) > 1 {
		wide := 2 + first + 2 + number // with the sum
		for _, h := range holders {
			wide += 2 + max(number, min(cells(word(h)), column))
		}
		if moreHolders {
			wide += 2 + number
		}
		if free > 0 {
			wide += 2 + number
		}
		if wide <= p.width {
			break
		}
		holders, moreHolders = holders[:len(holders)-1], true
	}

	by := "all requests"
	if len(res.By) > 0 {
		by = "by " + word(strings.Join(res.By, ", "))
	}
	p.heading("Who held what others waited for, " + by + ", in " + t.scale.Name)
	g := &grid{left: map[int]bool{0: true}}
	head := []string{corner}
	for _, h := range holders {
		head = append(head, shorten(word(h), column))
	}
	if moreHolders {
		head = append(head, others)
	}
	if free > 0 {
		head = append(head, nobody)
	}
	g.add(append(head, "all")...)
	row := func(name string, is func(string) bool) {
		sums := make([]int64, len(holders)+3)
		at := func(h string) int {
			if h == "" {
				return len(holders) + 1
			}
			if i := slices.Index(holders, h); i >= 0 {
				return i
			}
			return len(holders)
		}
		var all int64
		for _, c := range res.Matrix {
			if is(c.Waiter) {
				sums[at(c.Holder)] += c.NS
				all += c.NS
			}
		}
		times, shares := []string{shorten(word(name), 2*column)}, []string{""}
		cell := func(ns int64) {
			times = append(times, t.format(ns))
			shares = append(shares, percent(ratio(ns, all)))
		}
		for i := range holders {
			cell(sums[i])
		}
		if moreHolders {
			cell(sums[len(holders)])
		}
		if free > 0 {
			cell(sums[len(holders)+1])
		}
		g.add(append(times, t.format(all))...)
		g.add(append(shares, percent(ratio(all, res.WaitingNS)))...)
	}
	for _, c := range waiters {
		row(c, func(s string) bool { return s == c })
	}
	if moreWaiters {
		row(others, func(s string) bool { return !slices.Contains(waiters, s) })
	}
	if len(waited) > 1 {
		row("all", func(string) bool { return true })
	}
	p.grid(g)
	how := "Charged in proportion to what is scarce: a slot each, tokens in memory, prompt tokens computed, a share of the step (--blame equal charges equal shares)."
	if res.Weighting == "equal" {
		how = "Charged in equal shares to all that ran (--blame scarce charges in proportion to what is scarce)."
	}
	p.wrap("  ", how+" Shares are of what the class waited, in the last column of all waiting. It says who held the replica, not what would be without them.", dim)
}

// origins are the first events of replicas by clock: what instants are printed
// after.
func origins(res *analyze.WaitResult) map[string]int64 {
	at := map[string]int64{}
	for i := range res.Replicas {
		r := &res.Replicas[i]
		if first, ok := at[r.Clock]; !ok || r.StartNS < first {
			at[r.Clock] = r.StartNS
		}
	}
	return at
}

// after names the instant that instants are printed after.
func (p *page) after(at map[string]int64) string {
	if ns, ok := at[trace.ClockUnix.String()]; ok && len(at) == 1 {
		digits := time.RFC3339Nano
		if p.res >= time.Second {
			digits = time.RFC3339
		}
		return time.Unix(0, ns).UTC().Format(digits)
	}
	return "the first event"
}

func (p *page) holders(res *analyze.WaitResult) {
	if len(res.Holders) == 0 {
		return
	}
	at := origins(res)
	clock := map[string]string{} // of a replica
	names := map[string]string{}
	key := func(service, model, replica string) string { return service + "\x00" + model + "\x00" + replica }
	all := res.ReplicaNames()
	for i := range res.Replicas {
		r := &res.Replicas[i]
		k := key(r.Service, r.Model, r.Replica)
		clock[k], names[k] = r.Clock, all[i]
	}
	list := res.Holders[:min(len(res.Holders), most)]
	var latest int64
	for i := range list {
		h := &list[i]
		latest = max(latest, h.ScheduledNS-at[clock[key(h.Service, h.Model, h.Replica)]])
	}
	t, from := p.timesFor(list[0].ChargedNS), p.timesFor(latest)
	p.heading("Requests that made others wait most, in " + t.scale.Name + "; from: " + from.scale.Name + " after " + p.after(at))
	g := &grid{left: map[int]bool{0: true, 1: true}}
	head := []string{"", "class", "replica", "prompt", "output", "from", "ran", "charged", "waited"}
	several := len(res.Replicas) > 1
	if several {
		g.left[2] = true
	} else {
		head = slices.Delete(head, 2, 3)
	}
	g.add(head...)
	tokens := func(n int64) string {
		if n < 0 {
			return "—"
		}
		return units.Count(n)
	}
	var where []string
	for i := range list {
		h := &list[i]
		k := key(h.Service, h.Model, h.Replica)
		row := []string{shorten(holderName(h), 32), word(h.Class)}
		if several {
			row = append(row, word(names[k]))
		}
		g.add(append(row, tokens(h.Input), tokens(h.Output), from.format(h.ScheduledNS-at[clock[k]]),
			t.format(h.EndNS-h.ScheduledNS), t.format(h.ChargedNS), t.format(h.WaitedNS))...)
		pos := h.Pos()
		pos.File = word(pos.File)
		if s := pos.String(); s != "" && i < 3 {
			where = append(where, s)
		}
	}
	p.grid(g)
	if len(where) > 0 {
		p.wrap("  ", "the first at "+strings.Join(where, ", "), dim)
	}
}

func holderName(h *analyze.Holder) string {
	if h.ID == "" {
		return "(no id)"
	}
	return word(h.ID)
}

func (p *page) overtaking(res *analyze.WaitResult) {
	if len(res.Overtaking) == 0 {
		return
	}
	list := slices.Clone(res.Overtaking)
	var typical int64
	for _, o := range list {
		typical = max(typical, o.NS)
	}
	if res.Ranked() {
		slices.SortStableFunc(list, func(x, y analyze.Overtaken) int {
			switch {
			case x.NS > y.NS:
				return -1
			case x.NS < y.NS:
				return 1
			}
			return 0
		})
	}
	t := p.timesFor(typical)
	p.heading("Overtaken: waited on while requests queued later were taken up, in " + t.scale.Name)
	g := &grid{left: map[int]bool{0: true}}
	g.add("", "requests", "time")
	for i, o := range list {
		if i == most {
			break
		}
		g.add(word(o.Class), units.Count(o.Requests), t.format(o.NS))
	}
	p.grid(g)
	p.more(len(list) - most)
}

func (p *page) stalls(res *analyze.WaitResult) {
	at := origins(res)
	names := res.ReplicaNames()
	g := &grid{left: map[int]bool{0: true, 4: true}, whole: map[int]bool{4: true}}
	n, stalled, unsure := 0, false, false
	for i := range res.Replicas {
		for _, s := range res.Replicas[i].Stalls {
			if n++; n > most {
				continue
			}
			if n == 1 {
				p.heading("Nothing progressed; from: after " + p.after(at))
				g.add("", "from", "for", "running", "")
			}
			verdict := "no progress"
			if s.Confirmed {
				verdict, stalled = "a stall", true
			} else {
				unsure = true
			}
			g.add(word(names[i]), p.duration(s.StartNS-at[res.Replicas[i].Clock]), p.duration(s.EndNS-s.StartNS),
				units.Count(int64(s.Running)), verdict)
		}
	}
	if n == 0 {
		return
	}
	p.grid(g)
	p.more(n - most)
	if stalled {
		p.wrap("  ", "a stall: every request that ran across it was late", dim)
	}
	if unsure {
		p.wrap("  ", "no progress: too few ran to call it a stall", dim)
	}
}
