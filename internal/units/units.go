// Package units is the one place where numbers change their unit: what sources
// write becomes int64 nanoseconds on the way in, and nanoseconds, counts and
// bytes become text on the way out.
package units

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The reasons for which a source's number is refused.
var (
	ErrNotFinite = errors.New("not a finite number")
	ErrOverflow  = errors.New("does not fit int64 nanoseconds")
	ErrSyntax    = errors.New("not a duration")
)

// FromSeconds turns seconds into nanoseconds, rounded to the nearest. A
// negative duration is returned as it is: whether it makes sense is for the
// caller to say.
func FromSeconds(s float64) (time.Duration, error) {
	if math.IsNaN(s) || math.IsInf(s, 0) {
		return 0, ErrNotFinite
	}
	// The product is rounded once; the nearest decimal of a short literal such
	// as 0.2511 comes out right, since float64 holds 15 digits.
	ns := math.Round(s * 1e9)
	if ns >= math.MaxInt64 || ns <= math.MinInt64 {
		return 0, ErrOverflow
	}
	return time.Duration(ns), nil
}

// ParseDuration reads a duration with its unit ("1.25ms", "4µs", "2m3s", "90s")
// exactly: no float takes part.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(s))
	if err != nil {
		return 0, fmt.Errorf("%w: %q (write it like 250ms, 1.5s or 2m)", ErrSyntax, s)
	}
	return d, nil
}

// ParseBytes reads a size such as "512", "64KiB", "2GiB", "100MB".
func ParseBytes(s string) (int64, error) {
	t := strings.TrimSpace(s)
	num := strings.TrimRight(t, "iBbKMGTkmgt")
	mult, ok := map[string]int64{
		"": 1, "b": 1,
		"k": 1 << 10, "kib": 1 << 10, "kb": 1e3,
		"m": 1 << 20, "mib": 1 << 20, "mb": 1e6,
		"g": 1 << 30, "gib": 1 << 30, "gb": 1e9,
		"t": 1 << 40, "tib": 1 << 40, "tb": 1e12,
	}[strings.ToLower(strings.TrimSpace(t[len(num):]))]
	v, err := strconv.ParseFloat(strings.TrimSpace(num), 64)
	if err != nil || !ok || v < 0 || math.IsNaN(v) || v*float64(mult) >= math.MaxInt64 {
		return 0, fmt.Errorf("not a size: %q (write it like 64MiB or 2GiB)", s)
	}
	return int64(v * float64(mult)), nil
}

// A Scale is a unit of time that a column is printed in.
type Scale struct {
	Name string
	Unit time.Duration
}

var scales = []Scale{
	{"ns", time.Nanosecond}, {"µs", time.Microsecond}, {"ms", time.Millisecond}, {"s", time.Second},
	{"min", time.Minute}, {"h", time.Hour},
}

// CommonScale picks the unit in which the largest of the durations reads well:
// the largest unit of which it is at least one. Above seconds it goes on only
// from ten minutes, and ten hours: people compare seconds.
func CommonScale(ds ...time.Duration) Scale {
	var top time.Duration
	for _, d := range ds {
		top = max(top, d.Abs())
	}
	s := scales[0]
	for _, c := range scales {
		least := c.Unit
		if c.Unit >= time.Minute {
			least *= 10
		}
		if top >= least {
			s = c
		}
	}
	return s
}

// Format prints d in s without the unit, with about four significant digits
// and no digit finer than resolution (0: no limit).
func (s Scale) Format(d, resolution time.Duration) string {
	v := float64(d) / float64(s.Unit)
	digits := 0
	for a := math.Abs(v); digits < 3 && a < 1000 && a != 0; digits++ {
		a *= 10
	}
	if s.Unit == time.Nanosecond {
		digits = 0
	}
	if resolution > 0 {
		// The last digit printed must be worth at least one clock step.
		most := 0
		for step := s.Unit; step/10 >= resolution && step%10 == 0; step /= 10 {
			most++
		}
		digits = min(digits, most)
	}
	return strconv.FormatFloat(v, 'f', digits, 64)
}

// Duration prints d with the unit that suits it alone. A duration shorter
// than the resolution of its clock, but not zero, is a bound: "< 1 s".
func Duration(d, resolution time.Duration) string {
	if resolution > 1 && d != 0 && d.Abs() < resolution {
		return "< " + Duration(resolution, 0)
	}
	s := CommonScale(d)
	if resolution > s.Unit {
		s = CommonScale(max(d.Abs(), resolution))
	}
	t := s.Format(d, resolution)
	if strings.Contains(t, ".") {
		t = strings.TrimRight(strings.TrimRight(t, "0"), ".")
	}
	return t + " " + s.Name
}

// Count prints an integer with thousands apart: 12,345.
func Count(n int64) string {
	t := strconv.FormatInt(n, 10)
	sign := ""
	if t[0] == '-' {
		sign, t = "-", t[1:]
	}
	for i := len(t) - 3; i > 0; i -= 3 {
		t = t[:i] + "," + t[i:]
	}
	return sign + t
}

// Bytes prints a size in binary units: 1.4 GiB.
func Bytes(n int64) string {
	v, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if math.Abs(v) < 1024 {
			break
		}
		v, unit = v/1024, u
	}
	if unit == "B" {
		return strconv.FormatInt(n, 10) + " B"
	}
	return strconv.FormatFloat(v, 'f', 1, 64) + " " + unit
}

// Number prints a plain figure with about four significant digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return "—"
	case a >= 1000:
		return Count(int64(math.Round(v)))
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v == math.Trunc(v):
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

// Percent prints a share (0.94) as a percentage: "94 %". Shares that are not 0
// or 1 never print as such: "< 0.1 %", "> 99.9 %".
func Percent(share float64) string {
	switch p := share * 100; {
	case math.IsNaN(p) || math.IsInf(p, 0):
		return "—"
	case p == 0 || p == 100:
		return strconv.Itoa(int(p)) + " %"
	case p > 0 && p < 0.1:
		return "< 0.1 %"
	case p > 99.9 && p < 100:
		return "> 99.9 %"
	default:
		return strconv.FormatFloat(p, 'f', 1, 64) + " %"
	}
}
