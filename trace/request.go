package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Interval is a source's claim that a request was in a phase from Start to
// End (exclusive). Claims may overlap and may leave gaps.
type Interval struct {
	Phase      Phase
	Basis      Basis
	Start, End Time
}

// Outcome is how a request ended.
type Outcome uint8

const (
	Incomplete Outcome = iota // its end was not observed (or not believable), or its begin
	OK                        // served
	Error                     // failed in the engine or on the way
	Aborted                   // the caller left
	Rejected                  // refused before being queued
)

var outcomeNames = [...]string{"incomplete", "ok", "error", "aborted", "rejected"}

func (o Outcome) String() string { return name(outcomeNames[:], int(o)) }

// Outcomes lists the outcomes in the order of reports.
func Outcomes() []Outcome { return []Outcome{OK, Error, Aborted, Rejected, Incomplete} }

// Source says where a request came from.
type Source struct {
	Format string // how the bytes were written: "otlp-json", "otlp-proto", "vllm-log"
	Engine string // who wrote them: "vllm-v0", "vllm-v1", "unknown", …
	Pos    Pos    // the first record that spoke of it
}

// Workload is the engine of requests of which only arrival and lengths are known,
// as files for replay hold them: nobody tells that they were served.
const Workload = "workload"

// Reported holds what the source itself calls these figures, kept beside
// ours and never used instead. Definitions differ between sources.
type Reported struct {
	E2E, TTFT, Queue, Prefill, Decode, Inference Opt[time.Duration]
}

// Nesting is how the engine's request span lies inside the span of the
// outermost service, by the clocks that wrote them: before anything was moved.
type Nesting struct {
	Service, Replica string        // of the outer span
	Before, After    time.Duration // from its start to the engine's, from the engine's end to its end; below zero: two clocks differ
}

// Disaggregated is the attribute, true, of a request of which one engine computed
// the prompt and another went on from there. Its replica is the second; the
// first stands in the attributes prefill.service and prefill.replica.
const Disaggregated = "disaggregated"

// Request is one generation served for one caller. All data is plain; copying
// is safe as long as slices are not written through.
type Request struct {
	ID      string // the engine's id of the request; may be empty, may repeat
	TraceID string // lower-case hexadecimal; empty where there is no trace
	SpanID  string // of the engine's request span, likewise

	Source                  Source
	Service, Replica, Model string // empty: not in the data
	// ReplicaInferred: no line names the replica; a file's name stands for it.
	ReplicaInferred bool

	Clock      Clock
	Resolution time.Duration // the coarsest clock step behind its instants

	// Arrival: the outermost observed service received it. Queued: it entered
	// the engine's queue. Scheduled: it first got work. FirstToken, LastToken:
	// those tokens existed. Completed: the outermost observed service was done;
	// absent while running, cut off, or not believable.
	Arrival, Queued, Scheduled, FirstToken, LastToken, Completed Instant

	// Token counts: of the prompt, of that found in the prefix cache, produced,
	// and allowed to be produced. Preemptions: how often it was pushed back.
	Input, Cached, Output, MaxTokens, Preemptions Opt[int]

	Outcome      Outcome
	FinishReason string // as the source says it: "stop", "length", …

	Outer Opt[Nesting] // the outermost service around the engine, where its span was seen

	Intervals []Interval // as the source claims them
	Reported  Reported
	Attrs     []Attr  // grouping keys, sorted by key, each key once, no prompts
	Issues    []Issue // what was odd about this record
}

// E2E is completed − arrival, absent where one is.
func (r *Request) E2E() Opt[time.Duration] { return r.Completed.Sub(r.Arrival) }

// TTFT, time to first token, is first token − arrival, absent where one is.
func (r *Request) TTFT() Opt[time.Duration] { return r.FirstToken.Sub(r.Arrival) }

// TPOT, time per output token in nanoseconds, is (last − first token) /
// (output tokens − 1), absent below two tokens.
func (r *Request) TPOT() Opt[float64] {
	d, ok := r.LastToken.Sub(r.FirstToken).Get()
	n, okn := r.Output.Get()
	if !ok || !okn || n < 2 || d < 0 {
		return Opt[float64]{}
	}
	return Some(float64(d) / float64(n-1))
}

// Attr returns the attribute of that key.
func (r *Request) Attr(key string) (Value, bool) {
	i, ok := slices.BinarySearchFunc(r.Attrs, key, func(a Attr, k string) int { return cmp.Compare(a.Key, k) })
	if !ok {
		return Value{}, false
	}
	return r.Attrs[i].Value, true
}

// SetAttr sets an attribute, keeping the order.
func (r *Request) SetAttr(key string, v Value) {
	i, ok := slices.BinarySearchFunc(r.Attrs, key, func(a Attr, k string) int { return cmp.Compare(a.Key, k) })
	if ok {
		r.Attrs[i].Value = v
		return
	}
	r.Attrs = slices.Insert(r.Attrs, i, Attr{key, v})
}

// Check reports the first way in which r breaks the rules that hold for every
// request an ingester may yield. It is for tests and fuzzing.
func (r *Request) Check() error {
	for _, in := range []struct {
		name string
		i    Instant
	}{
		{"arrival", r.Arrival}, {"queued", r.Queued}, {"scheduled", r.Scheduled},
		{"first token", r.FirstToken}, {"last token", r.LastToken}, {"completed", r.Completed},
	} {
		if in.i.Basis > Inferred {
			return fmt.Errorf("%s: invalid basis %d", in.name, in.i.Basis)
		}
		if in.i.Basis == Absent && in.i.At != 0 {
			return fmt.Errorf("%s: absent, yet %d", in.name, in.i.At)
		}
		if r.Clock == ClockUnix && in.i.At < 0 {
			return fmt.Errorf("%s: before the epoch", in.name)
		}
	}
	if d, ok := r.E2E().Get(); ok && d < 0 {
		return fmt.Errorf("completed %v before arrival", -d)
	}
	for i, iv := range r.Intervals {
		switch {
		case iv.Phase == Unattributed || iv.Phase&^allPhases != 0:
			return fmt.Errorf("interval %d: phase %#x", i, uint16(iv.Phase))
		case iv.Basis == Absent || iv.Basis > Inferred:
			return fmt.Errorf("interval %d: basis %d", i, iv.Basis)
		case iv.End < iv.Start:
			return fmt.Errorf("interval %d: ends before it starts", i)
		}
	}
	for i := 1; i < len(r.Attrs); i++ {
		if r.Attrs[i-1].Key >= r.Attrs[i].Key {
			return fmt.Errorf("attributes out of order: %q, %q", r.Attrs[i-1].Key, r.Attrs[i].Key)
		}
	}
	for _, o := range []Opt[int]{r.Input, r.Cached, r.Output, r.MaxTokens, r.Preemptions} {
		if v, ok := o.Get(); ok && v < 0 {
			return fmt.Errorf("negative count %d", v)
		}
	}
	if r.Resolution <= 0 {
		return fmt.Errorf("resolution %v", r.Resolution)
	}
	if r.Outcome > Rejected {
		return fmt.Errorf("outcome %d", r.Outcome)
	}
	if r.Outcome == OK && !r.Completed.Present() {
		return fmt.Errorf("ok without an end")
	}
	b := r.Breakdown()
	return b.Check()
}

// Reading is an engine's own statement of its state at an instant, as its
// log's statistics lines or its metrics give it. It is about an engine, not
// about a request.
type Reading struct {
	Source           Source
	Service, Replica string
	Clock            Clock
	Resolution       time.Duration
	At               Time
	Running, Waiting Opt[int]
	KVUsage          Opt[float64] // share of the KV cache in use, 0 to 1
	PrefixHit        Opt[float64] // share of prompt tokens found in the prefix cache, 0 to 1
	PromptRate       Opt[float64] // prompt tokens per second since the last reading
	OutputRate       Opt[float64] // output tokens per second since the last reading
	Preemptions      Opt[int]     // as the source counts them
}

// EngineLimits is an engine's own statement of its limits, as its log gives it
// while the server starts. It is about an engine, not about a request.
type EngineLimits struct {
	Source           Source
	Service, Replica string // as in Reading
	Clock            Clock
	At               Instant    // when it started; absent where the line has no time
	Slots            Opt[int64] // requests that run at once
	Budget           Opt[int64] // tokens in a step
	KVTokens         Opt[int64] // tokens that fit into the KV cache
}
