package analyze

import (
	"slices"
	"time"

	"github.com/traceview/traceview/internal/stats"
	"github.com/traceview/traceview/trace"
)

// Check collects what the check command tells of requests beside their issues:
// how far the source's own figures differ from those by the definitions, and
// whether the input obeys the laws that every true trace does. The zero Check
// is empty. The order of adding changes nothing.
type Check struct {
	// Chosen says that requests were left out that shared their engines with
	// those that are added: what engines state of all, and who held them, then
	// cannot be set beside these.
	Chosen bool
	// Limits are those of the engines, where they are known beside the input.
	// It must be set before the first request is added.
	Limits WaitOptions

	requests, inconsistent int64
	diffs                  [len(reported)][]int64
	readings               []trace.Reading
	told                   []trace.EngineLimits
	a                      *Analyzer // for windows and Little's law
	ws                     *Waits
	p                      physics
}

// reported are the figures of a source that can be set beside ours.
var reported = [...]struct {
	name   string
	theirs func(*trace.Request) trace.Opt[time.Duration]
	ours   func(*trace.Request) trace.Opt[time.Duration]
}{
	{"e2e", func(r *trace.Request) trace.Opt[time.Duration] { return r.Reported.E2E }, (*trace.Request).E2E},
	{"ttft", func(r *trace.Request) trace.Opt[time.Duration] { return r.Reported.TTFT }, (*trace.Request).TTFT},
}

// Add takes a request into account.
func (c *Check) Add(r *trace.Request) {
	c.requests++
	b := r.Breakdown()
	if b.Inconsistent() {
		c.inconsistent++
	}
	if c.a == nil {
		c.a = New(Options{By: []string{"replica"}})
		c.ws = NewWaits(c.Limits)
	}
	c.a.Add(r)
	c.ws.Add(r)
	c.p.add(r, &b)
	for i, f := range reported {
		theirs, ok := f.theirs(r).Get()
		ours, ok2 := f.ours(r).Get()
		if ok && ok2 {
			c.diffs[i] = append(c.diffs[i], int64(theirs-ours))
		}
	}
}

// AddReading takes an engine's statement of its state into account.
func (c *Check) AddReading(r trace.Reading) { c.readings = append(c.readings, r) }

// AddLimits takes an engine's statement of its limits into account.
func (c *Check) AddLimits(l trace.EngineLimits) { c.told = append(c.told, l) }

// CheckReport is what was odd about an input, worst first.
type CheckReport struct {
	Inputs       int              `json:"inputs"`
	Requests     int64            `json:"requests"`
	Readings     int64            `json:"readings"`
	Inconsistent int64            `json:"inconsistent"` // requests whose claims contradict each other or their extent
	Issues       []CheckIssue     `json:"issues"`
	Reported     []ReportedFigure `json:"reported"`
	Physics      Physics          `json:"physics"`
}

// CheckIssue is one code's line.
type CheckIssue struct {
	Code     string   `json:"code"`
	Severity string   `json:"severity"` // dropped, degraded, note
	Count    int64    `json:"count"`
	Meaning  string   `json:"meaning"`
	Do       string   `json:"do"`
	First    []string `json:"first"` // the first few, with their positions
}

// ReportedFigure sets a source's own figure beside ours: the differences
// theirs − ours over the requests that have both.
type ReportedFigure struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
	Differ   int64  `json:"differ"` // requests in which they are not equal
	MinNS    int64  `json:"min_difference_ns"`
	MedianNS int64  `json:"median_difference_ns"`
	MaxNS    int64  `json:"max_difference_ns"`
}

// Report returns the figures; the caller adds the issues.
func (c *Check) Report(inputs int) *CheckReport {
	rep := &CheckReport{Inputs: inputs, Requests: c.requests, Readings: int64(len(c.readings)), Inconsistent: c.inconsistent,
		Issues: []CheckIssue{}, Reported: []ReportedFigure{}, Physics: c.physics()}
	for i, f := range reported {
		d := slices.Clone(c.diffs[i])
		if len(d) == 0 {
			continue
		}
		slices.Sort(d)
		fig := ReportedFigure{Name: f.name, Requests: int64(len(d)), MinNS: d[0], MaxNS: d[len(d)-1], MedianNS: stats.Quantile(d, 0.5)}
		for _, x := range d {
			if x != 0 {
				fig.Differ++
			}
		}
		rep.Reported = append(rep.Reported, fig)
	}
	return rep
}
