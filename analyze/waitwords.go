package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

const (
	// RankConfidence is the confidence below which neither causes nor holders
	// are ranked.
	RankConfidence = 0.6
	// SureConfidence is the one from which causes count as plainly inferred.
	SureConfidence = 0.9
)

// Ranked reports whether the causes are sure enough to be ranked, and the
// holders with them.
func (res *WaitResult) Ranked() bool { return res.Confidence.Or(0) >= RankConfidence }

// Rows lists the causes with waiting: the greatest first, or, where they
// cannot be ranked, unknown first and the others in the order of [Causes].
func (res *WaitResult) Rows() []CauseRow {
	var rows []CauseRow
	for _, c := range res.Causes {
		if c.NS > 0 {
			rows = append(rows, c)
		}
	}
	if res.Ranked() {
		slices.SortStableFunc(rows, func(x, y CauseRow) int { return cmp.Compare(y.NS, x.NS) })
	} else if n := len(rows) - 1; n > 0 && rows[n].Cause == CauseUnknown.String() {
		rows = append(rows[n:], rows[:n]...)
	}
	return rows
}

// Words says in a sentence why requests waited, who made them wait, and what
// was avoidable. It is empty where nothing waited.
func (res *WaitResult) Words() string {
	rows := res.Rows()
	if len(rows) == 0 {
		return ""
	}
	switch {
	case rows[0].Cause == CauseUnknown.String() && len(rows) == 1:
		return "Why requests waited cannot be told from this input."
	case !res.Ranked():
		return "Why requests waited is not known well enough to rank causes or holders: " + res.unsure() + "."
	}
	var parts []string
	for _, c := range foremost(rows) {
		parts = append(parts, units.Percent(c.Share.Or(0))+" is "+c.Cause+res.support(&c))
	}
	parts[0] = strings.Replace(parts[0], " is ", " of waiting is ", 1)
	sentences := []string{join(parts), res.heldWords(), res.avoidableWords()}
	return strings.Join(slices.DeleteFunc(sentences, func(s string) bool { return s == "" }), "; ") + "."
}

// foremost are those of ranked causes that a sentence names.
func foremost(rows []CauseRow) []CauseRow {
	n := 0
	for n < len(rows) && n < 3 && (n == 0 || rows[n].Share.Or(0) >= 0.05) {
		n++
	}
	return rows[:n]
}

// Help says in a sentence what helps against the causes that [WaitResult.Words]
// names. It is empty where nothing waited.
func (res *WaitResult) Help() string {
	rows := res.Rows()
	if len(rows) == 0 {
		return ""
	}
	if !res.Ranked() {
		return "What helps to know it: " + CauseUnknown.Remedy() + ", and limits that are stated (--max-num-seqs, --max-num-batched-tokens, --kv-tokens)."
	}
	var parts []string
	for _, c := range foremost(rows) {
		parts = append(parts, "against "+c.Cause+": "+c.Remedy)
	}
	return "What helps " + strings.Join(parts, "; ") + "."
}

// unsure says how little is known.
func (res *WaitResult) unsure() string {
	sure := units.Percent(res.Confidence.Or(0)) + " of the waiting has a cause that small errors of the limits would not change"
	for _, c := range res.Causes {
		if c.Cause == CauseUnknown.String() && c.NS > 0 {
			return units.Percent(c.Share.Or(0)) + " is unknown, and only " + sure
		}
	}
	return "only " + sure
}

// support says in brackets by which limit a cause is known, and how.
func (res *WaitResult) support(c *CauseRow) string {
	limit := func(name, unit string, of func(*Limits) Limit) string {
		var low, high int64
		hows := map[string]bool{}
		for i := range res.Replicas {
			r := &res.Replicas[i]
			if !slices.ContainsFunc(r.Causes, func(x CauseRow) bool { return x.Cause == c.Cause && x.NS > 0 }) {
				continue
			}
			l := of(&r.Limits)
			v, ok := l.Value.Get()
			if !ok {
				continue
			}
			if len(hows) == 0 {
				low, high = v, v
			}
			low, high = min(low, v), max(high, v)
			hows[l.How] = true
		}
		if len(hows) == 0 {
			return res.how()
		}
		s := name + " = " + units.Count(low)
		if high > low {
			s += " to " + units.Count(high)
		}
		s += unit + ", "
		switch {
		case hows[LimitInferred]:
			return s + res.how()
		case hows[LimitData]:
			return s + "as the data say"
		case hows[LimitLog]:
			return s + "as the engine's log says"
		}
		return s + "as stated"
	}
	var s string
	switch c.Cause {
	case CauseSlots.String():
		s = limit("C", "", func(l *Limits) Limit { return l.Slots })
	case CauseKVCache.String():
		s = limit("K", " tokens", func(l *Limits) Limit { return l.KV })
	case CausePrefill.String():
		s = limit("budget", " tokens", func(l *Limits) Limit { return l.Budget })
	case CauseUnknown.String():
		return ""
	case CauseHold.String():
		s = "nothing ran"
	case CauseStall.String():
		s = res.longestStall() + res.how()
	default:
		s = res.how()
	}
	return " (" + s + ")"
}

// longestStall names the longest stall.
func (res *WaitResult) longestStall() string {
	var most StallSpan
	name := ""
	for i, replica := range res.ReplicaNames() {
		for _, s := range res.Replicas[i].Stalls {
			if s.Confirmed && s.EndNS-s.StartNS > most.EndNS-most.StartNS {
				most, name = s, replica
			}
		}
	}
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%s stood still for %s, ", shown(name), units.Duration(time.Duration(most.EndNS-most.StartNS).Round(10*time.Millisecond), 0))
}

// how says how an inferred cause is known, by the confidence in all of them.
func (res *WaitResult) how() string {
	if res.Confidence.Or(0) >= SureConfidence {
		return "inferred"
	}
	return "mostly inferred, hidden holders or near a limit"
}

// ClassName names a class of requests as people call it: "tenant batch".
func (res *WaitResult) ClassName(class string) string {
	if len(res.By) == 1 {
		return res.By[0] + " " + class
	}
	return class
}

// heldWords names the class that held most of what another one waited for.
func (res *WaitResult) heldWords() string {
	type pair struct{ waiter, holder string }
	ns, waited := map[pair]int64{}, map[string]int64{}
	for _, c := range res.Matrix {
		waited[c.Waiter] += c.NS
		if c.Holder != "" && c.Holder != c.Waiter {
			ns[pair{c.Waiter, c.Holder}] += c.NS
		}
	}
	var most pair
	for _, c := range res.Matrix { // in an order that the data decide
		if k := (pair{c.Waiter, c.Holder}); ns[k] > ns[most] {
			most = k
		}
	}
	if ns[most] < res.WaitingNS/10 || ns[most] < waited[most.waiter]/4 || ns[most] == 0 {
		return ""
	}
	return fmt.Sprintf("%s held %s of what %s waited for", shown(res.ClassName(most.holder)),
		units.Percent(share(ns[most], waited[most.waiter]).Or(0)), shown(res.ClassName(most.waiter)))
}

// avoidableWords says how much waiting was avoidable, and where there was room.
func (res *WaitResult) avoidableWords() string {
	part := share(res.AvoidableNS, res.WaitingNS).Or(0)
	if part < 0.05 {
		return ""
	}
	s := units.Percent(part) + " was avoidable: another replica had no queue and a free slot"
	var hot, idle *ReplicaWaits
	var most float64
	for i := range res.Replicas {
		r := &res.Replicas[i]
		if hot == nil || r.WaitingNS > hot.WaitingNS {
			hot = r
		}
		if idle == nil || r.RunningMean.Or(0) < idle.RunningMean.Or(0) {
			idle = r
		}
		most = max(most, r.RunningMean.Or(0))
	}
	switch {
	case hot == nil:
	case 2*hot.WaitingNS > res.WaitingNS:
		s += fmt.Sprintf(" (%s has %s of the waiting)", shown(hot.Name()), units.Percent(share(hot.WaitingNS, res.WaitingNS).Or(0)))
	case 2*idle.RunningMean.Or(0) < most:
		s += fmt.Sprintf(" (%s ran %s on average, others up to %s)", shown(idle.Name()), units.Number(idle.RunningMean.Or(0)), units.Number(most))
	}
	return s
}

// shown makes a text of the input fit for a sentence: control characters
// cannot steer a terminal, and what is long lacks its middle.
func shown(s string) string {
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, s)
	if r := []rune(s); len(r) > 48 {
		return string(r[:24]) + "…" + string(r[len(r)-23:])
	}
	return s
}

// ReplicaNames names each replica apart from the others: by its own name
// where that is enough, else with its service, model and clock.
func (res *WaitResult) ReplicaNames() []string {
	names, seen := make([]string, len(res.Replicas)), map[string]int{}
	for i := range res.Replicas {
		names[i] = res.Replicas[i].Name()
		seen[names[i]]++
	}
	for i := range names {
		if r := &res.Replicas[i]; seen[names[i]] > 1 {
			parts := slices.DeleteFunc([]string{r.Service, r.Model, r.Replica}, func(s string) bool { return s == "" })
			names[i] = strings.Join(parts, " ")
			if r.Clock != trace.ClockUnix.String() {
				names[i] += " (" + r.Clock + " clock)"
			}
		}
	}
	return names
}

// Pos is where the holder stands in the input.
func (h *Holder) Pos() trace.Pos {
	return trace.Pos{File: h.File, Line: h.Line, Offset: h.Offset}
}
