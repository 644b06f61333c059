package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// logFormat is the Source.Format of requests of a text log.
const logFormat = "vllm-log"

// words fills the verdict and the limits.
func (w *work) words() {
	w.rep.Verdict = w.verdict()
	w.rep.Limits = w.limits()
}

func (w *work) verdict() []string {
	c := &w.rep.Counts
	switch {
	case c.Requests == 0 && c.NotInWindow > 0:
		return []string{fmt.Sprintf("No request arrived in the window asked for; %s outside it.", plural(c.NotInWindow, "request was", "requests were"))}
	case c.Requests == 0 && c.Readings > 0:
		return []string{fmt.Sprintf("There is no request, only %s of %s.",
			plural(c.Readings, "reading", "readings"), plural(int64(len(w.rep.Engines)), "engine", "engines"))}
	case c.Requests == 0:
		return []string{"There is no request to report on."}
	case c.Used == 0 && w.workload():
		return []string{fmt.Sprintf("This is a workload: when %s arrived and how long they are. How they were served is not in it: no end, no phase, no wait.", plural(c.Requests, "request", "requests"))}
	case c.Used == 0:
		var why []string
		for _, l := range c.LeftOut {
			why = append(why, units.Count(l.Requests)+" "+l.Name)
		}
		return []string{fmt.Sprintf("None of %s can be used for latency figures: %s.", plural(c.Requests, "request", "requests"), strings.Join(why, ", ")) + w.inferred()}
	}
	e2e := &w.rep.Figures[len(w.rep.Figures)-1]
	mean := w.duration(e2e.MeanNS.Or(0))
	if e2e.TotalNS == 0 {
		return []string{fmt.Sprintf("%s, all of zero length: there is no time to divide.", plural(c.Used, "request", "requests"))}
	}
	var parts []string
	for _, k := range w.rep.Kinds {
		if k.TotalNS == 0 {
			continue
		}
		name := k.Kind
		switch name {
		case trace.Unknown.String():
			name = "unattributed"
			if k.TotalNS == e2e.TotalNS {
				return []string{fmt.Sprintf("The source tells when requests begin and end and nothing between: all of the mean e2e of %s is unattributed.", mean) + w.inferred()}
			}
		case trace.Unsplit.String():
			name = w.unsplit() + " (not split by the source)"
		}
		parts = append(parts, units.Percent(k.Share.Or(0))+" "+name)
	}
	return append([]string{fmt.Sprintf("The requests' time (mean e2e %s) is %s.", mean, join(parts)) + w.inferred()}, append(w.reasonSentences(), w.tailSentence()...)...)
}

// unsplit names the sets of phases whose members differ in kind.
func (w *work) unsplit() string {
	var names []string
	for _, p := range w.phases {
		if p.Kind() == trace.Unsplit && w.total[p] > 0 {
			names = append(names, p.String())
		}
	}
	return join(names)
}

// inferred is the sentence on the mean wait by Little's law, if there is one.
func (w *work) inferred() string {
	l := w.rep.LogWait
	if l == nil {
		return ""
	}
	return fmt.Sprintf(" By the engine's own counts a request waits %s on average (inferred; between %s and %s).",
		w.duration(l.MeanNS), w.duration(l.LowNS), w.duration(l.HighNS))
}

// reasonSentences say why the requests waited and what helps, if that is a
// hundredth of their time or more.
func (w *work) reasonSentences() []string {
	for _, k := range w.rep.Kinds {
		if s := w.why.Words(); k.Kind == trace.Waiting.String() && k.Share.Or(0) >= 0.01 && s != "" {
			if help := w.why.Help(); help != "" {
				return []string{s, help}
			}
			return []string{s}
		}
	}
	return nil
}

// tailSentence says which phases make the slow requests slow: the largest
// differences of either sign, until they come to within a tenth of the whole.
func (w *work) tailSentence() []string {
	t := w.rep.Tail
	if t == nil || t.DifferenceNS <= 0 {
		return nil
	}
	abs := func(ns int64) int64 { return max(ns, -ns) }
	list := slices.Clone(t.Phases)
	slices.SortStableFunc(list, func(x, y TailPhase) int {
		return cmp.Compare(abs(y.DifferenceNS), abs(x.DifferenceNS))
	})
	var parts []string
	rest := t.DifferenceNS
	for _, p := range list {
		if p.DifferenceNS == 0 || len(parts) == 3 || abs(rest) <= t.DifferenceNS/10 {
			break
		}
		sign := "+"
		if p.DifferenceNS < 0 {
			sign = "−"
		}
		parts = append(parts, sign+w.duration(abs(p.DifferenceNS))+" "+p.Phase+w.reason(&p))
		rest -= p.DifferenceNS
	}
	verb := "take"
	if t.Requests == 1 {
		verb = "takes"
	}
	return []string{fmt.Sprintf("The %s %s +%s over the median: %s.", t.Band, verb, w.duration(t.DifferenceNS), join(parts))}
}

// reason names in brackets the cause of most of what a phase of waiting adds
// to the tail.
func (w *work) reason(p *TailPhase) string {
	if p.Kind != trace.Waiting.String() || !w.why.Ranked() {
		return ""
	}
	var all int64
	var most TailCause
	for _, c := range w.rep.Tail.Causes {
		all += c.DifferenceNS
		if c.DifferenceNS > most.DifferenceNS {
			most = c
		}
	}
	switch {
	case p.DifferenceNS <= 0 || most.DifferenceNS <= all/2 || most.Cause == CauseUnknown.String():
		return ""
	case most.DifferenceNS < all-all/10:
		return " (mostly " + most.Cause + ")"
	}
	return " (" + most.Cause + ")"
}

func (w *work) duration(ns int64) string {
	return units.Duration(time.Duration(ns), time.Duration(w.rep.Card.ResolutionNS.Or(0)))
}

func join(parts []string) string {
	switch n := len(parts); n {
	case 0:
		return ""
	case 1:
		return parts[0]
	default:
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return units.Count(n) + " " + many
}

// limits lists what this measurement cannot tell: one sentence each.
func (w *work) limits() []string {
	out := []string{}
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	c, card := &w.rep.Counts, &w.rep.Card
	if c.Requests == 0 {
		return out
	}
	if c.NotOKMark && c.Used > 0 && !w.opts.AllOutcomes {
		say("%s of the requests were not served: quantiles are over the served alone and may look better than it was.", units.Percent(c.NotOKShare.Or(0)))
	}
	if card.Clock == trace.ClockUnknown.String() {
		say("When the requests were sent is not known: no rates, no concurrency, no intervals over all of them.")
	} else if w.mixed {
		say("The requests are on different clocks: no rates, no concurrency, no intervals over all of them.")
	} else if card.Window == nil {
		say("No request has an arrival: no rates and no concurrency.")
	} else if card.Window.LengthNS == 0 {
		say("The window has no length: no rates and no concurrency.")
	} else if card.Window.Stated {
		say("Latencies are those of requests that arrived in the window; served, concurrency and waiting also count those that arrived before it.")
	}
	if low, high := card.ConcurrencyLow.Or(0), card.ConcurrencyHigh.Or(0); low < high {
		say("%s no known end: concurrency takes such requests to have left when last seen, or to have stayed.",
			plural(c.count(trace.Incomplete), "request has", "requests have"))
	}
	if res := card.ResolutionNS.Or(0); res >= int64(time.Millisecond) {
		say("Instants are known to %s: shorter times are bounds.", units.Duration(time.Duration(res), 0))
	}
	has := func(p trace.Phase) bool { _, ok := w.all[p]; return ok && p != trace.Unattributed }
	engines := map[string]bool{}
	vllm, spans, log := false, false, false
	for _, e := range card.Engines {
		engines[e.Name] = true
		vllm = vllm || strings.HasPrefix(e.Name, "vllm")
	}
	for _, f := range card.Formats {
		spans = spans || strings.HasPrefix(f.Name, "otlp")
		log = log || f.Name == logFormat
	}
	if (engines["vllm-v0"] || engines["vllm-v1"]) && has(trace.Decode) {
		say("decode is an upper bound: vLLM's spans count the time a preempted request waits into it.")
	}
	if has(trace.Arrival | trace.Completion) {
		say("arrival|completion is the front end before and after the engine together: the source gives only their sum.")
	}
	placed, two := int64(0), int64(0)
	for _, r := range w.used {
		if r.has&placedFirst != 0 {
			placed++
		}
		if r.has&onTwoEngines != 0 {
			two++
		}
	}
	if two > 0 {
		say("%s on two engines, one for prefill and one for decode: the timeline is of the second, and why they waited is unknown.", plural(two, "request ran", "requests ran"))
	}
	if placed > 0 {
		say("ttft of %s is placed by the engine's phases: it may be off by as much as the front end took.", plural(placed, "request", "requests"))
	}
	if s := w.unsplit(); s != "" {
		say("%s: the source gives one amount, which is not guessed apart.", s)
	}
	if vllm && spans && has(trace.Queueing) && c.Requests == c.count(trace.OK) {
		say("No failure is visible: vLLM writes no span for an aborted request.")
	}
	if log {
		say("A log line tells no request's time in the queue.")
	}
	if w.fileNamed {
		say("Replicas that no line names are called after their log's file (inferred).")
	}
	if spans && len(card.Sampling) == 0 {
		say("The data do not say whether traces were sampled: rates and concurrency are those of the requests seen.")
	} else if len(card.Sampling) > 0 {
		say("The traces were sampled: rates and concurrency are those of the requests seen.")
	}
	if c.Inconsistent > 0 {
		say("%s claimed twice, outside the request or for phases that exclude each other: distrust their split.", plural(c.Inconsistent, "request has time", "requests have time"))
	}
	for _, l := range w.rep.Little {
		if l.BeyondPercent && !l.Replica.Present() {
			say("Little's law is off by %s: %s.", units.Percent(max(l.Deviation.Or(0), -l.Deviation.Or(0))), l.Reason)
		}
	}
	if w.doubtful() {
		say("† marks a quantile beyond which too few independent requests lie to rely on it.")
	}
	return out
}

// doubtful reports whether some quantile is not supported.
func (w *work) doubtful() bool {
	for i := range w.rep.Figures {
		for _, q := range w.rep.Figures[i].Quantiles {
			if !q.Supported {
				return true
			}
		}
	}
	for i := range w.rep.Groups {
		for _, g := range w.rep.Groups[i].Rows {
			if g.E2EP99.Present() && !g.P99Supported {
				return true
			}
		}
	}
	return false
}

// count is the number of requests of that outcome.
func (c *Counts) count(o trace.Outcome) int64 {
	for _, n := range c.Outcomes {
		if n.Name == o.String() {
			return n.Requests
		}
	}
	return 0
}
