// Package trace is the record that the rest of traceview speaks of: a request
// to a language-model server, the intervals its source claims for it, and what
// was odd about the input. It depends on the standard library alone.
//
// All instants are int64 nanoseconds, all durations are [time.Duration], so
// that sums are exact. What a number means is said where it is declared; a
// value that the source did not report is absent, never zero.
//
// Package ingest makes Requests, package analyze turns them into results.
package trace

import (
	"strings"
	"time"
)

// Time is an instant in nanoseconds on its request's [Clock]; on ClockUnix
// since 1970-01-01 UTC.
type Time int64

// Sub returns t−u.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Add returns t+d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// UTC returns t as a calendar time. It means something on ClockUnix only.
func (t Time) UTC() time.Time { return time.Unix(0, int64(t)).UTC() }

// Clock says from where a request's instants are counted. Instants of
// different clocks are never put on one axis or subtracted.
type Clock uint8

const (
	ClockUnknown   Clock = iota
	ClockUnix            // nanoseconds since the Unix epoch, UTC
	ClockMonotonic       // since the start of a host or process
	ClockRelative        // since the start of the measurement
)

var clockNames = [...]string{"unknown", "unix", "monotonic", "relative"}

func (c Clock) String() string { return name(clockNames[:], int(c)) }

// Opt is a value that may not have been reported. The zero Opt is absent.
type Opt[T any] struct {
	v  T
	ok bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{v, true} }

// Get returns the value and whether it is present.
func (o Opt[T]) Get() (T, bool) { return o.v, o.ok }

// Or returns the value, or alt where it is absent.
func (o Opt[T]) Or(alt T) T {
	if o.ok {
		return o.v
	}
	return alt
}

// Present reports whether there is a value.
func (o Opt[T]) Present() bool { return o.ok }

// Basis is how a value is known. The zero Basis is Absent.
type Basis uint8

const (
	Absent   Basis = iota
	Measured       // the source says so
	Derived        // arithmetic on measured values
	Inferred       // from a model or an aggregate
)

var basisNames = [...]string{"absent", "measured", "derived", "inferred"}

func (b Basis) String() string { return name(basisNames[:], int(b)) }

// Instant is a point in a request's life and how it is known. The zero
// Instant is absent.
type Instant struct {
	At    Time
	Basis Basis
}

// At returns an instant.
func At(t Time, b Basis) Instant { return Instant{t, b} }

// Get returns the time and whether it is known at all.
func (i Instant) Get() (Time, bool) { return i.At, i.Basis != Absent }

// Present reports whether the instant is known at all.
func (i Instant) Present() bool { return i.Basis != Absent }

// Sub returns i−j, absent where one of them is.
func (i Instant) Sub(j Instant) Opt[time.Duration] {
	if i.Basis == Absent || j.Basis == Absent {
		return Opt[time.Duration]{}
	}
	return Some(i.At.Sub(j.At))
}

// Phase is a set of phases of a request, one bit each. A set of several says
// that the time belongs to one of them and the source does not say to which.
// The empty set is Unattributed.
type Phase uint16

// The phases, in the order in which a request usually passes them. In a tie
// between claims the higher phase wins.
const (
	Arrival    Phase = 1 << iota // received, not yet queued: gateway, tokenising, dispatch
	Queueing                     // in the scheduler's queue, before it first got work
	Prefill                      // from scheduled to the first token
	Decode                       // from the first token to the last, less Preempted
	Transfer                     // KV cache sent between a prefill and a decode engine
	Preempted                    // pushed back to the queue until resumed
	Completion                   // after the last token: detokenising, streaming, network

	Unattributed Phase = 0
	allPhases          = 1<<7 - 1
)

// Phases lists the single phases in order.
func Phases() []Phase {
	return []Phase{Arrival, Queueing, Prefill, Decode, Transfer, Preempted, Completion}
}

var phaseNames = map[Phase]string{
	Arrival: "arrival", Queueing: "queueing", Prefill: "prefill", Decode: "decode",
	Transfer: "transfer", Preempted: "preempted", Completion: "completion",
}

// String names the set, its members in order joined by a bar; the empty set
// is "unattributed".
func (p Phase) String() string {
	if n, ok := phaseNames[p]; ok {
		return n
	}
	if p == Unattributed {
		return "unattributed"
	}
	var parts []string
	for _, q := range Phases() {
		if p&q != 0 {
			parts = append(parts, phaseNames[q])
		}
	}
	return strings.Join(parts, "|")
}

// ParsePhase is the inverse of [Phase.String].
func ParsePhase(s string) (Phase, bool) {
	if s == "unattributed" {
		return Unattributed, true
	}
	var p Phase
next:
	for part := range strings.SplitSeq(s, "|") {
		for q, n := range phaseNames {
			if n == part {
				p |= q
				continue next
			}
		}
		return 0, false
	}
	return p, true
}

// Kind is what a phase is to the one who waits.
type Kind uint8

const (
	Unknown  Kind = iota // unattributed
	Waiting              // queueing, preempted
	Compute              // prefill, decode
	Overhead             // arrival, transfer, completion
	Unsplit              // a set whose members differ in kind
)

var kindNames = [...]string{"unknown", "waiting", "compute", "overhead", "unsplit"}

func (k Kind) String() string { return name(kindNames[:], int(k)) }

// Kinds lists the kinds in the order of reports.
func Kinds() []Kind { return []Kind{Waiting, Compute, Overhead, Unsplit, Unknown} }

// Kind returns the kind that all members of the set share, Unsplit where they
// differ, Unknown for the empty set.
func (p Phase) Kind() Kind {
	const waiting, compute, overhead = Queueing | Preempted, Prefill | Decode, Arrival | Transfer | Completion
	switch {
	case p == Unattributed:
		return Unknown
	case p&^waiting == 0:
		return Waiting
	case p&^compute == 0:
		return Compute
	case p&^overhead == 0:
		return Overhead
	}
	return Unsplit
}

func name(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return "invalid"
	}
	return names[i]
}
