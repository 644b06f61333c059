package sim

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/traceview/traceview/trace"
)

// Policy says when the worker of a [Queue] starts, and with how many.
type Policy string

const (
	// Individual: one request a group, in order of arrival, each as soon as
	// the worker is free.
	Individual Policy = "individual"
	// Batch: one group of all requests, once the last has arrived.
	Batch Policy = "batch"
	// Cap: a group starts when the worker is free and either Max requests wait
	// or the first of those waiting has waited for Wait, whichever comes first.
	// It takes the Max first of those that wait then; one that arrives at that
	// very instant waits. With a Wait of 0 a free worker never waits.
	Cap Policy = "cap"
)

// Policies lists the policies.
func Policies() []Policy { return []Policy{Individual, Batch, Cap} }

// Queue is one worker that serves requests in groups. A group costs Setup plus
// PerRequest for each request in it, and a request completes when its group
// does.
type Queue struct {
	Arrivals          []time.Duration // after the start, ascending
	Setup, PerRequest time.Duration
	Policy            Policy
	Max               int           // requests in a group; for Cap, at least 1
	Wait              time.Duration // for Cap
}

// Served is what became of one request of a [Queue]. Times are after the start.
type Served struct {
	Arrival, Start, End time.Duration
	Group               int // 1, 2, … in order of start
}

// Waited is the time before its group started.
func (s Served) Waited() time.Duration { return s.Start - s.Arrival }

// Latency is the time until its group was done.
func (s Served) Latency() time.Duration { return s.End - s.Arrival }

// QueueResult is a run of a [Queue].
type QueueResult struct {
	Queue  Queue
	Served []Served // in order of arrival
}

// horizon bounds simulated time: 146 years, so that no instant leaves int64.
const horizon = 1 << 62

// Run runs the model. It fails on a model that makes no sense.
func (q Queue) Run() (*QueueResult, error) {
	switch {
	case len(q.Arrivals) == 0:
		return nil, errors.New("no arrivals")
	case q.Setup < 0 || q.PerRequest < 0 || q.Wait < 0:
		return nil, errors.New("setup, time per request and longest wait must not be below zero")
	case q.Arrivals[0] < 0:
		return nil, errors.New("an arrival is before 0")
	case !slices.IsSorted(q.Arrivals):
		return nil, errors.New("arrivals are not in order of time")
	case q.Policy == Cap && q.Max < 1:
		return nil, errors.New("policy cap needs the largest number of requests in a group, at least 1")
	case q.Policy != Cap && q.Policy != Individual && q.Policy != Batch:
		return nil, fmt.Errorf("policy %q is none of %v", q.Policy, Policies())
	}
	n := len(q.Arrivals)
	worst := float64(q.Arrivals[n-1]) + float64(q.Wait) + float64(n)*(float64(q.Setup)+float64(q.PerRequest))
	if worst+float64(Base) >= horizon {
		return nil, errors.New("the run is longer than 80 years")
	}
	res := &QueueResult{Queue: q, Served: make([]Served, n)}
	var free time.Duration
	group := 0
	for i := 0; i < n; group++ {
		start, end := q.next(i, free)
		free = start + q.Setup + time.Duration(end-i)*q.PerRequest
		for ; i < end; i++ {
			res.Served[i] = Served{q.Arrivals[i], start, free, group + 1}
		}
	}
	return res, nil
}

// next returns when the group of request i starts and which request is the
// first after it, given that the worker is free from free on.
func (q Queue) next(i int, free time.Duration) (start time.Duration, end int) {
	n := len(q.Arrivals)
	switch q.Policy {
	case Individual:
		return max(free, q.Arrivals[i]), i + 1
	case Batch:
		return max(free, q.Arrivals[n-1]), n
	}
	start = q.Arrivals[i] + q.Wait
	if full := i + q.Max - 1; q.Max <= n-i && q.Arrivals[full] < start {
		start = q.Arrivals[full]
	}
	start = max(start, free)
	for end = i; end < n && end-i < q.Max && q.Arrivals[end] <= start; end++ {
	}
	return start, end
}

// Poisson returns n arrivals of a Poisson process of rate requests a second.
func Poisson(n int, rate float64, seed uint64) ([]time.Duration, error) {
	if n < 1 {
		return nil, errors.New("no arrivals")
	}
	if !(rate > 0) || math.IsInf(rate, 0) {
		return nil, errors.New("the rate of arrivals must be above zero")
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	at := make([]time.Duration, n)
	var t time.Duration
	for i := range at {
		gap := rnd.ExpFloat64() / rate * 1e9
		if float64(t)+gap >= horizon {
			return nil, errors.New("the arrivals take longer than 80 years")
		}
		t += time.Duration(math.Round(gap))
		at[i] = t
	}
	return at, nil
}

// Latency returns the sum of all latencies: divided by their number, the mean.
func (r *QueueResult) Latency() time.Duration {
	var d time.Duration
	for _, s := range r.Served {
		d += s.Latency()
	}
	return d
}

// End returns the last completion.
func (r *QueueResult) End() time.Duration {
	var end time.Duration
	for _, s := range r.Served {
		end = max(end, s.End)
	}
	return end
}

// Throughput returns requests a second over [0, last completion], absent where
// that takes no time.
func (r *QueueResult) Throughput() trace.Opt[float64] {
	if r.End() == 0 {
		return trace.Opt[float64]{}
	}
	return trace.Some(float64(len(r.Served)) / r.End().Seconds())
}

// Requests returns the run as requests. The model has one compute phase, so
// that execution is the set prefill|decode.
func (r *QueueResult) Requests() []*trace.Request {
	rs := make([]*trace.Request, len(r.Served))
	for i, s := range r.Served {
		arrival, start, end := Base.Add(s.Arrival), Base.Add(s.Start), Base.Add(s.End)
		rs[i] = &trace.Request{
			ID: "r" + strconv.Itoa(i+1), TraceID: traceID(0, i), SpanID: spanID(0, i, 0),
			Source:  trace.Source{Engine: Scope},
			Service: "queue-model", Clock: trace.ClockUnix, Resolution: 1,
			Arrival: trace.At(arrival, trace.Measured), Queued: trace.At(arrival, trace.Measured),
			Scheduled: trace.At(start, trace.Measured), Completed: trace.At(end, trace.Measured),
			Outcome: trace.OK,
			Intervals: []trace.Interval{
				{Phase: trace.Queueing, Basis: trace.Measured, Start: arrival, End: start},
				{Phase: trace.Prefill | trace.Decode, Basis: trace.Measured, Start: start, End: end},
			},
		}
		rs[i].SetAttr("group", trace.IntValue(int64(s.Group)))
	}
	return rs
}

// Spans returns the run as spans: for each request a server span llm_request
// with the children queue and inference.
func (r *QueueResult) Spans() []*trace.Span { return ChildSpans(r.Requests()) }
