package records

import (
	"bytes"
	"math"
	"time"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// parseNanos reads a number of units of 10^exp nanoseconds, to the nearest
// nanosecond. No float takes part where it is written without an exponent.
func parseNanos(tok []byte, exp int) (int64, bool) {
	x, v := scan.ParseScaled(tok, exp)
	if v == scan.Fraction {
		if bytes.ContainsAny(tok, "eE") {
			f, ok := scan.ParseFloat(tok)
			f *= math.Pow10(exp)
			if !ok || math.Abs(f) > 1<<53 {
				return 0, false
			}
			return int64(math.Round(f)), true
		}
		point := bytes.IndexByte(tok, '.')
		end := min(len(tok), point+1+exp) // behind the last digit of a nanosecond
		if point < 0 {
			return 0, false
		}
		for _, c := range tok[end:] {
			if c < '0' || c > '9' {
				return 0, false
			}
		}
		up := end < len(tok) && tok[end] >= '5'
		if exp == 0 && end == point+1 { // nothing behind the point is kept
			end = point
		}
		if x, v = scan.ParseScaled(tok[:end], exp); v != scan.Fine {
			return 0, false
		}
		ns, ok := x.Int64()
		switch {
		case !ok || ns == math.MaxInt64 || ns == math.MinInt64:
			return 0, false
		case up && (x.Neg || tok[0] == '-'):
			ns--
		case up:
			ns++
		}
		return ns, true
	}
	if v != scan.Fine {
		return 0, false
	}
	return x.Int64()
}

// layouts are the forms of stamps without a zone.
var layouts = []string{"2006-01-02 15:04:05", "2006-01-02T15:04:05", "2006-01-02 15:04:05,000"}

// parseStamp reads a date and time; zoned says whether it had a zone.
func parseStamp(text string, zone *time.Location) (t trace.Time, zoned, ok bool) {
	if len(text) > 64 {
		return 0, false, false
	}
	when, err := time.Parse(time.RFC3339Nano, text)
	if zoned = err == nil; !zoned {
		if when, err = time.Parse("2006-01-02 15:04:05Z07:00", text); err == nil {
			zoned = true
		}
	}
	if zone == nil {
		zone = time.UTC
	}
	for i := 0; err != nil && i < len(layouts); i++ {
		when, err = time.ParseInLocation(layouts[i], text, zone)
	}
	if err != nil || when.Year() < 1970 || when.Year() > 2200 {
		return 0, false, false
	}
	return trace.Time(when.UnixNano()), zoned, true
}

// stamp reads a date and time as text.
func (p *parser) stamp(key string, at int) trace.Instant {
	if at < 0 {
		return trace.Instant{}
	}
	t, zoned, ok := parseStamp(p.text(key, at), p.d.zone)
	if !ok {
		p.Notes.Add(trace.BadField, "%s is no date and time", scan.Short(key))
		return trace.Instant{}
	}
	p.zone(zoned)
	return trace.At(t, trace.Measured)
}

// zone says once that stamps have no zone.
func (p *parser) zone(zoned bool) {
	if !zoned && p.d.zone == nil && !p.d.file.zoned {
		p.d.file.zoned = true
		p.Notes.Add(trace.ZoneAssumed, "stamps have no zone: read as UTC")
	}
}
