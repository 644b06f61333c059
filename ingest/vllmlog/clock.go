package vllmlog

import (
	"fmt"
	"time"

	"github.com/traceview/traceview/trace"
)

// stamp is a point in time as a line writes it. Parts may be missing.
type stamp struct {
	ok          bool // there is one
	bad         bool // it is no date of any year, or no time of day
	hasYear     bool
	hasZone     bool
	year, mo, d int
	sec         int // of the day
	ns          int
	east        int // seconds east of Greenwich
	res         time.Duration
}

// better reports whether s says more than t: the year, then the zone, then
// finer steps.
func (s *stamp) better(t *stamp) bool {
	switch {
	case s.ok != t.ok:
		return s.ok
	case s.hasYear != t.hasYear:
		return s.hasYear
	case s.hasZone != t.hasZone:
		return s.hasZone
	}
	return s.res < t.res
}

var (
	// dayBefore[m] is the number of days before month m of a leap year.
	dayBefore = [14]int{0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335, 366}
	leapDay   = dayBefore[2] + 28 // 29 February, counted from 0
)

const (
	dayNs = int64(24 * time.Hour)
	// A year of the log's own calendar has 366 days, so that every date has
	// its place in every year; relative year 0 starts at zeroYear such years,
	// so that a stamp somewhat before the first stays positive.
	calendarDays = 366
	zeroYear     = 8
	noLeap       = -1 << 30
)

func leap(y int) bool { return y%4 == 0 && (y%100 != 0 || y%400 == 0) }

// clock turns stamps into instants. As long as the year of stamps without one
// is open, they become places in a calendar of its own, in which they can be
// ordered; settle makes instants of those once the year is known.
type clock struct {
	zone *time.Location // nil: UTC, not stated
	year int            // stated; 0: not
	mod  time.Time      // of the file; zero: not known

	known bool // base is
	base  int  // the year of relative year 0

	seen      bool // a stamp without a year was
	last      int64
	rel       int // relative year of last
	leapYear  int // relative year of the first 29 February, or noLeap
	anchor    trace.Time
	anchored  bool // anchor is the last instant that came with a year
	usedZone  bool // a stamp without a zone was used
	byAnchor  bool // a year was taken from the anchor
	backwards int
}

// tick takes note of the stamp of any line of the engine: it keeps the
// relative year in step.
func (c *clock) tick(s *stamp) {
	if !s.ok || s.bad || s.hasYear {
		return
	}
	day := dayBefore[s.mo] + s.d - 1
	rel := c.rel
	if !c.seen {
		c.seen, c.leapYear = true, noLeap
	} else {
		now := int64(day)
		was := c.last/dayNs - int64((zeroYear+c.rel)*calendarDays)
		switch {
		case was-now > calendarDays/2:
			rel++ // over New Year
		case now-was >= calendarDays-2 && rel > 2-zeroYear:
			rel-- // a straggler from before it
		}
	}
	place := int64((zeroYear+rel)*calendarDays+day)*dayNs + int64(s.sec)*1e9 + int64(s.ns)
	if c.last-place > int64(max(s.res, time.Second)) {
		c.backwards++
	}
	if day == leapDay && c.leapYear == noLeap {
		c.leapYear = rel
	}
	c.rel, c.last = rel, place
}

// instant returns the instant of the stamp that tick saw last, or its place in
// the log's calendar while the year is open. ok is false where it is no date.
func (c *clock) instant(s *stamp) (t trace.Time, open, ok bool) {
	if !s.ok || s.bad {
		return 0, false, false
	}
	if !s.hasZone {
		c.usedZone = true
	}
	if s.hasYear {
		t, ok = c.date(s.year, s.mo, s.d, s.sec, s.ns, s.hasZone, s.east)
		if ok {
			if c.anchored && c.anchor.Sub(t) > max(s.res, time.Second) {
				c.backwards++
			}
			c.anchor, c.anchored = t, true
		}
		return t, false, ok
	}
	if c.known {
		t, ok = c.at(c.last)
		return t, false, ok
	}
	if c.anchored {
		c.byAnchor = true
		t, ok = c.nearest(s.mo, s.d, s.sec, s.ns)
		return t, false, ok
	}
	return trace.Time(c.last), true, true
}

const yearOfOuter = "stamps have no year; it was taken from the outer stamps of the same log"

// nearest puts a date without a year into the year that brings it closest to
// the last instant that had one.
func (c *clock) nearest(mo, d, sec, ns int) (best trace.Time, ok bool) {
	y := c.anchor.UTC().Year()
	for _, y := range [...]int{y, y - 1, y + 1} {
		t, valid := c.date(y, mo, d, sec, ns, false, 0)
		if valid && (!ok || t.Sub(c.anchor).Abs() < best.Sub(c.anchor).Abs()) {
			best, ok = t, true
		}
	}
	return best, ok
}

// at returns the instant of a place; the year is known.
func (c *clock) at(place int64) (trace.Time, bool) {
	day, rest := int(place/dayNs), place%dayNs
	y, day := c.base+day/calendarDays-zeroYear, day%calendarDays
	mo := 1
	for dayBefore[mo+1] <= day {
		mo++
	}
	return c.date(y, mo, day-dayBefore[mo]+1, int(rest/1e9), int(rest%1e9), false, 0)
}

// date returns the instant of a date; ok is false where that year has none
// such, or where it is before 1970 or does not fit.
func (c *clock) date(y, mo, d, sec, ns int, hasZone bool, east int) (trace.Time, bool) {
	if y < 1970 || y > 2261 || mo == 2 && d == 29 && !leap(y) {
		return 0, false
	}
	var t int64
	if hasZone || c.zone == nil || c.zone == time.UTC {
		day := dayBefore[mo] + d - 1
		if mo > 2 && !leap(y) {
			day--
		}
		p := y - 1
		days := p*365 + p/4 - p/100 + p/400 - 719162 + day
		t = int64(days)*dayNs + int64(sec-east)*1e9 + int64(ns)
	} else {
		t = time.Date(y, time.Month(mo), d, 0, 0, sec, ns, c.zone).UnixNano()
	}
	return trace.Time(t), t >= 0
}

// decide fixes the year of stamps that have none, and says from what it was
// taken; "" where nothing needs to be said.
func (c *clock) decide() (why string) {
	c.known = true
	if c.year != 0 {
		c.base = c.year
		return ""
	}
	if c.anchored {
		var best time.Duration
		near, found := c.anchor.UTC().Year()-c.rel, 0
		for base := near - 4; base <= near+4; base++ { // one of them is a leap year
			c.base = base
			if t, ok := c.at(c.last); ok {
				if d := t.Sub(c.anchor).Abs(); found == 0 || d < best {
					best, found = d, base
				}
			}
		}
		c.base, c.known = found, false // what follows goes by the anchor
		return yearOfOuter
	}
	// The last stamp is not after the file's time; a day's grace for the zone.
	// Without a time of the file: a leap year, so that every date exists.
	source := "nothing else tells it: the last is read as of 2024"
	end := 2024
	if !c.mod.IsZero() {
		source = "taken from the file's time"
		limit := trace.Time(c.mod.UnixNano()).Add(24 * time.Hour)
		end = c.mod.UTC().Year() + 1
		for range 9 {
			c.base = end - c.rel
			if t, ok := c.at(c.last); ok && t <= limit {
				break
			}
			end--
		}
	}
	c.base = end - c.rel
	if c.leapYear != noLeap {
		for range 8 {
			if leap(c.base + c.leapYear) {
				break
			}
			c.base--
		}
		source += ", made to fit a 29 February"
	}
	return fmt.Sprintf("stamps have no year (%s); the first is read as of %d", source, c.base)
}
