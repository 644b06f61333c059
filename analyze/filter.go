package analyze

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// Bound is one end of a stretch of arrivals: an instant, or an offset from the
// first arrival. The zero Bound does not bound.
type Bound struct {
	set, offset bool
	at          int64
}

// Present reports whether the bound bounds.
func (b Bound) Present() bool { return b.set }

// ParseBound reads an end of a stretch of time: RFC 3339 ("2026-03-01T12:00:00Z"),
// Unix seconds or nanoseconds (an integer from 10^14 on is nanoseconds; seconds
// may have a fraction), or an offset from the first arrival ("30s", "5m").
func ParseBound(s string) (Bound, error) {
	s = strings.TrimSpace(s)
	if d, err := units.ParseDuration(s); err == nil && s != "0" {
		return Bound{set: true, offset: true, at: int64(d)}, nil
	}
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		// UnixNano is undefined outside the years that int64 holds.
		if y := t.Year(); y < 1678 || y > 2261 {
			return Bound{}, fmt.Errorf("time %q does not fit int64 nanoseconds", s)
		}
		return Bound{set: true, at: t.UnixNano()}, nil
	}
	if ns, ok := unixNanos(s); ok {
		return Bound{set: true, at: ns}, nil
	}
	return Bound{}, fmt.Errorf("not a time: %q (write 2026-03-01T12:00:00Z, Unix seconds such as 1772366400, or an offset from the first arrival such as 30s)", s)
}

// unixNanos reads Unix seconds with an optional fraction, or nanoseconds, by
// digits: a float would lose the nanoseconds.
func unixNanos(s string) (int64, bool) {
	whole, frac, dot := strings.Cut(s, ".")
	n, err := strconv.ParseUint(whole, 10, 63)
	if err != nil {
		return 0, false
	}
	if !dot {
		if n >= 1e14 {
			return int64(n), true
		}
		if n > math.MaxInt64/1_000_000_000 {
			return 0, false
		}
		return int64(n) * 1e9, true
	}
	if n >= math.MaxInt64/1_000_000_000 || frac == "" || len(frac) > 9 {
		return 0, false
	}
	f, err := strconv.ParseUint(frac+strings.Repeat("0", 9-len(frac)), 10, 63)
	if err != nil {
		return 0, false
	}
	return int64(n)*1e9 + int64(f), true
}

// resolve returns the instant on a clock whose first arrival is first. ok is
// false where the bound says nothing about that clock: a calendar time about a
// clock that has no calendar.
func (b Bound) resolve(clock trace.Clock, first trace.Time) (trace.Time, bool) {
	if !b.offset {
		return trace.Time(b.at), clock == trace.ClockUnix
	}
	at := int64(first) + b.at
	if b.at > 0 && at < int64(first) {
		at = math.MaxInt64
	} else if b.at < 0 && at > int64(first) {
		at = math.MinInt64
	}
	return trace.Time(at), true
}

// Origin is the first arrival on each clock: what offsets count from. The zero
// Origin has seen nothing.
type Origin [trace.ClockRelative + 1]trace.Opt[trace.Time]

// See takes r's arrival into account.
func (o *Origin) See(r *trace.Request) {
	if t, ok := r.Arrival.Get(); ok && int(r.Clock) < len(o) {
		o.see(r.Clock, t)
	}
}

func (o *Origin) see(c trace.Clock, t trace.Time) {
	if first, ok := o[c].Get(); !ok || t < first {
		o[c] = trace.Some(t)
	}
}

// Filter selects requests and adds what the user knows and the data do not
// say. The zero Filter keeps all as they are.
//
// From and To choose by arrival: From ≤ arrival < To. Offsets count from the
// first arrival, on each clock, of the requests that pass Where: whoever
// streams has to see all requests once ([Origin]) before the first can be
// kept or left, see [Filter.NeedsOrigin].
type Filter struct {
	Where    []Condition
	Set      []Setting
	From, To Bound
}

// Condition asks that a key has a value. Conditions on one key are
// alternatives, conditions on different keys must all hold.
type Condition struct{ Key, Value string }

// Setting states the value of a key for all requests that do not have it, or
// with Override for all.
type Setting struct {
	Key, Value string
	Override   bool
}

// ParseWhere reads "key=value". The value may be empty: the request does not
// have the key.
func ParseWhere(s string) (Condition, error) {
	k, v, ok := strings.Cut(s, "=")
	if k = strings.TrimSpace(k); !ok || k == "" {
		return Condition{}, fmt.Errorf("not a condition: %q (write key=value, such as model=llama or tenant=a)", s)
	}
	return Condition{k, v}, nil
}

// ParseSet reads "key=value", or "key:=value" which also replaces what the
// data say. A derived key other than service, model and replica cannot be set.
func ParseSet(s string) (Setting, error) {
	k, v, ok := strings.Cut(s, "=")
	k, override := strings.CutSuffix(k, ":")
	if k = strings.TrimSpace(k); !ok || k == "" || v == "" {
		return Setting{}, fmt.Errorf("not a setting: %q (write key=value, such as model=llama; key:=value also replaces what the data say)", s)
	}
	switch k {
	case "service", "model", "replica":
	default:
		if derivedKeys[k] != nil {
			return Setting{}, fmt.Errorf("%s cannot be set: it is read off each request (service, model, replica and attributes can)", k)
		}
	}
	return Setting{k, v, override}, nil
}

// Apply writes the settings into r and reports whether r meets the conditions.
// It does not look at From and To: that is [Filter.InWindow].
func (f *Filter) Apply(r *trace.Request) bool {
	for _, s := range f.Set {
		s.apply(r)
	}
	for i, c := range f.Where {
		if slices.ContainsFunc(f.Where[:i], func(d Condition) bool { return d.Key == c.Key }) {
			continue // the key has been looked at
		}
		v, ok := Key(r, c.Key)
		if !slices.ContainsFunc(f.Where[i:], func(d Condition) bool {
			return d.Key == c.Key && (d.Value == "" && (!ok || v == "") || ok && d.Value == v)
		}) {
			return false
		}
	}
	return true
}

func (s Setting) apply(r *trace.Request) {
	var field *string
	switch s.Key {
	case "service":
		field = &r.Service
	case "model":
		field = &r.Model
	case "replica":
		field = &r.Replica
	default:
		if _, has := r.Attr(s.Key); !has || s.Override {
			r.Attrs = slices.Clone(r.Attrs) // others may hold the slice
			r.SetAttr(s.Key, trace.StringValue(s.Value))
		}
		return
	}
	if *field == "" || s.Override {
		*field = s.Value
	}
}

// Empty reports whether no arrival can lie in [From, To). Bounds of different
// kinds are not compared.
func (f *Filter) Empty() bool {
	return f.From.set && f.To.set && f.From.offset == f.To.offset && f.From.at >= f.To.at
}

// Window returns From and To as instants of the unix clock, absent where they
// do not bound or have no first arrival there to count from.
func (f *Filter) Window(o *Origin) (from, to trace.Opt[trace.Time]) {
	first := o[trace.ClockUnix]
	at := func(b Bound) (t trace.Opt[trace.Time]) {
		if b.set && (!b.offset || first.Present()) {
			if v, ok := b.resolve(trace.ClockUnix, first.Or(0)); ok {
				t = trace.Some(v)
			}
		}
		return t
	}
	return at(f.From), at(f.To)
}

// NeedsOrigin reports whether InWindow looks at the origin.
func (f *Filter) NeedsOrigin() bool { return f.From.set && f.From.offset || f.To.set && f.To.offset }

// InWindow reports whether r arrived in [From, To). A request without an
// arrival, or on a clock that a bound says nothing about, is in no window
// that is bounded.
func (f *Filter) InWindow(r *trace.Request, o *Origin) bool {
	if !f.From.set && !f.To.set {
		return true
	}
	t, ok := r.Arrival.Get()
	return ok && inWindow(f.From, f.To, r.Clock, t, o)
}

func inWindow(from, to Bound, c trace.Clock, t trace.Time, o *Origin) bool {
	if int(c) >= len(o) {
		return false
	}
	first := o[c].Or(0)
	if from.set {
		if at, ok := from.resolve(c, first); !ok || t < at {
			return false
		}
	}
	if to.set {
		if at, ok := to.resolve(c, first); !ok || t >= at {
			return false
		}
	}
	return true
}
