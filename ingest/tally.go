package ingest

import (
	"cmp"
	"slices"

	"github.com/traceview/traceview/trace"
)

// firstKept is how many issues of each code a Tally keeps whole.
const firstKept = 5

// A Tally counts the issues of a run, those that [Requests] yields in the
// error position and those that requests carry. It keeps the first few of each
// code, so its size does not depend on the input's.
type Tally struct {
	counts            map[trace.Code]*Count
	dropped, degraded int64
}

// Count is how often a code occurred.
type Count struct {
	trace.CodeInfo
	Count int64
	First []trace.Issue // the first few, in the order in which they came
}

// NewTally returns an empty Tally.
func NewTally() *Tally { return &Tally{counts: map[trace.Code]*Count{}} }

// Add counts an issue that stands for itself.
func (t *Tally) Add(i *trace.Issue) {
	t.count(i)
	switch i.Severity {
	case trace.Dropped:
		t.dropped++
	case trace.Degraded:
		t.degraded++
	}
}

// AddRequest counts the issues of a request. However many it has, it is one
// record that is degraded.
func (t *Tally) AddRequest(r *trace.Request) {
	worst := trace.Note
	for i := range r.Issues {
		t.count(&r.Issues[i])
		worst = max(worst, r.Issues[i].Severity)
	}
	switch worst {
	case trace.Dropped: // a part of it
		t.dropped++
	case trace.Degraded:
		t.degraded++
	}
}

func (t *Tally) count(i *trace.Issue) {
	c := t.counts[i.Code]
	if c == nil {
		c = &Count{CodeInfo: i.Code.Info()}
		t.counts[i.Code] = c
	}
	if c.Count++; len(c.First) < firstKept {
		c.First = append(c.First, *i)
	}
}

// Dropped returns how many records, or stretches of input, were lost.
func (t *Tally) Dropped() int64 { return t.dropped }

// Degraded returns how many records lack something or were mended.
func (t *Tally) Degraded() int64 { return t.degraded }

// Summary returns the counts, worst first: by severity, then by number, then
// in the order of [trace.Codes].
func (t *Tally) Summary() []Count {
	order := make(map[trace.Code]int, len(trace.Codes))
	for i, c := range trace.Codes {
		order[c.Code] = i
	}
	list := make([]Count, 0, len(t.counts))
	for _, c := range t.counts {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b Count) int {
		return cmp.Or(
			-cmp.Compare(a.Severity, b.Severity), -cmp.Compare(a.Count, b.Count),
			cmp.Compare(order[a.Code], order[b.Code]), cmp.Compare(a.Code, b.Code))
	})
	return list
}
