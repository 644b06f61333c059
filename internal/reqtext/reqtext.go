// Package reqtext writes requests by hand, one line each, so that a reader of
// a test can check its numbers by arithmetic:
//
//	r1 arrival=0 end=100ms first=40ms queueing=0..10ms prefill=10ms..38ms decode=40ms..100ms out=13
//
// A line is the request's id and then fields, in any order, apart by blanks. A
// # at the start of a word begins a comment. Words that need blanks are quoted
// as in Go: model="a b"; so is an empty id.
//
//	arrival queued scheduled first last end     instants
//	queueing prefill decode preempted …         intervals (with ..), any phase or set (queueing|prefill), any number
//	in cached out max preemptions               counts
//	outcome finish model service replica        words
//	trace span engine format
//	clock resolution                            "relative", "1s"
//	reported.e2e .ttft .queue .prefill .decode .inference    durations
//	issue                                       codes, one a field; the text is not kept
//	@KEY=VALUE                                  an attribute
//
// Times are durations after the base (0 on clocks other than unix's): 1.5s,
// 250µs, -3ms, 0. They are measured; ~10ms is derived and ?10ms inferred, and
// the mark of an interval stands before its start: queueing=~0..10ms.
//
// Attributes are typed by their looks: 7 is an int, 0.5 a float, true a bool,
// json:[1] JSON, nothing at all a value without content, and everything else,
// quoted or not, text.
//
// What is not said is absent, but: the clock is unix, the resolution 1 ns, and
// the outcome ok where there is an end, else incomplete. No field implies
// another.
package reqtext

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/traceview/traceview/trace"
)

// Base is the instant after which times count on the unix clock:
// 2025-10-09 08:53:20 UTC.
const Base trace.Time = 1_760_000_000_000_000_000

// instants, counts, words and reports are the fields that stand for one place
// of the record each, in the order in which Format prints them.
var (
	instants = []struct {
		key string
		at  func(*trace.Request) *trace.Instant
	}{
		{"arrival", func(r *trace.Request) *trace.Instant { return &r.Arrival }},
		{"queued", func(r *trace.Request) *trace.Instant { return &r.Queued }},
		{"scheduled", func(r *trace.Request) *trace.Instant { return &r.Scheduled }},
		{"first", func(r *trace.Request) *trace.Instant { return &r.FirstToken }},
		{"last", func(r *trace.Request) *trace.Instant { return &r.LastToken }},
		{"end", func(r *trace.Request) *trace.Instant { return &r.Completed }},
	}
	counts = []struct {
		key string
		at  func(*trace.Request) *trace.Opt[int]
	}{
		{"in", func(r *trace.Request) *trace.Opt[int] { return &r.Input }},
		{"cached", func(r *trace.Request) *trace.Opt[int] { return &r.Cached }},
		{"out", func(r *trace.Request) *trace.Opt[int] { return &r.Output }},
		{"max", func(r *trace.Request) *trace.Opt[int] { return &r.MaxTokens }},
		{"preemptions", func(r *trace.Request) *trace.Opt[int] { return &r.Preemptions }},
	}
	words = []struct {
		key string
		at  func(*trace.Request) *string
	}{
		{"finish", func(r *trace.Request) *string { return &r.FinishReason }},
		{"model", func(r *trace.Request) *string { return &r.Model }},
		{"service", func(r *trace.Request) *string { return &r.Service }},
		{"replica", func(r *trace.Request) *string { return &r.Replica }},
		{"trace", func(r *trace.Request) *string { return &r.TraceID }},
		{"span", func(r *trace.Request) *string { return &r.SpanID }},
		{"engine", func(r *trace.Request) *string { return &r.Source.Engine }},
		{"format", func(r *trace.Request) *string { return &r.Source.Format }},
	}
	reports = []struct {
		key string
		at  func(*trace.Request) *trace.Opt[time.Duration]
	}{
		{"reported.e2e", func(r *trace.Request) *trace.Opt[time.Duration] { return &r.Reported.E2E }},
		{"reported.ttft", func(r *trace.Request) *trace.Opt[time.Duration] { return &r.Reported.TTFT }},
		{"reported.queue", func(r *trace.Request) *trace.Opt[time.Duration] { return &r.Reported.Queue }},
		{"reported.prefill", func(r *trace.Request) *trace.Opt[time.Duration] { return &r.Reported.Prefill }},
		{"reported.decode", func(r *trace.Request) *trace.Opt[time.Duration] { return &r.Reported.Decode }},
		{"reported.inference", func(r *trace.Request) *trace.Opt[time.Duration] { return &r.Reported.Inference }},
	}
)

// Parse reads requests in the notation of this package, times after [Base].
func Parse(text string) ([]*trace.Request, error) { return ParseAt(Base, text) }

// ParseAt reads requests whose times count after base.
func ParseAt(base trace.Time, text string) ([]*trace.Request, error) {
	var rs []*trace.Request
	n := 0
	for line := range strings.Lines(text) {
		n++
		fields, err := split(line)
		if err == nil && len(fields) > 0 {
			var r *trace.Request
			if r, err = parse(base, fields); err == nil {
				rs = append(rs, r)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
	}
	return rs, nil
}

// MustParse is [Parse] for tests: text that is wrong, or says something that
// [trace.Request.Check] refuses, ends the test.
func MustParse(t testing.TB, text string) []*trace.Request {
	t.Helper()
	rs, err := Parse(text)
	if err != nil {
		t.Fatalf("reqtext: %v", err)
	}
	for _, r := range rs {
		if err := r.Check(); err != nil {
			t.Fatalf("reqtext: %s: %v", r.ID, err)
		}
	}
	return rs
}

// field is a word of a line: key=value, or a lone key for the id.
type field struct {
	key, value string
	lone       bool // no = in it
	quoted     bool // the value was
	attr       bool // began with @
}

// interval reports whether f is one: arrival is the name of an instant and of
// a phase, and the two dots tell them apart.
func (f field) interval() bool {
	_, ok := trace.ParsePhase(f.key)
	return ok && !f.attr && strings.Contains(f.value, "..")
}

// split takes a line apart; no fields where it is blank or a comment.
func split(line string) ([]field, error) {
	var fields []field
	for {
		line = strings.TrimLeftFunc(line, unicode.IsSpace)
		if line == "" || line[0] == '#' {
			return fields, nil
		}
		var f field
		if line[0] == '@' {
			f.attr, line = true, line[1:]
		}
		var err error
		if f.key, _, line, err = word(line, true); err != nil {
			return nil, err
		}
		if f.lone = !strings.HasPrefix(line, "="); !f.lone {
			if f.value, f.quoted, line, err = word(line[1:], false); err != nil {
				return nil, err
			}
		}
		if r, _ := utf8.DecodeRuneInString(line); line != "" && !unicode.IsSpace(r) {
			return nil, fmt.Errorf("%q follows a quoted text without a blank", line)
		}
		fields = append(fields, f)
	}
}

// word takes a quoted text, or the text up to a blank (for a key: or a =), off
// the front of line.
func word(line string, key bool) (w string, quoted bool, rest string, err error) {
	if strings.HasPrefix(line, `"`) {
		q, err := strconv.QuotedPrefix(line)
		if err != nil {
			return "", false, "", fmt.Errorf("unfinished quote: %s", strings.TrimSpace(line))
		}
		w, err = strconv.Unquote(q)
		return w, true, line[len(q):], err
	}
	end := strings.IndexFunc(line, func(r rune) bool { return unicode.IsSpace(r) || key && r == '=' })
	if end < 0 {
		end = len(line)
	}
	return line[:end], false, line[end:], nil
}

func parse(base trace.Time, fields []field) (*trace.Request, error) {
	id := fields[0]
	if !id.lone || id.attr {
		return nil, fmt.Errorf("%q stands where the request's id should be", id.key)
	}
	r := &trace.Request{ID: id.key, Clock: trace.ClockUnix, Resolution: 1}
	fields = fields[1:]

	// The clock decides what times count from, and comes first for that.
	seen := map[string]bool{}
	for _, f := range fields {
		if f.attr || f.key != "clock" {
			continue
		}
		c := trace.ClockUnknown
		for c.String() != f.value {
			if c++; c > trace.ClockRelative {
				return nil, fmt.Errorf("clock=%s is none of unknown, unix, monotonic, relative", f.value)
			}
		}
		r.Clock = c
	}
	if r.Clock != trace.ClockUnix {
		base = 0
	}
	for _, f := range fields {
		if f.lone {
			return nil, fmt.Errorf("%q has no value: write key=value", f.key)
		}
		name := f.key
		if f.attr {
			name = "@" + name
		}
		if !f.interval() && f.key != "issue" || f.attr {
			if seen[name] {
				return nil, fmt.Errorf("%s stands twice", name)
			}
			seen[name] = true
		}
		var err error
		if f.attr {
			var v trace.Value
			v, err = value(f)
			r.SetAttr(f.key, v)
		} else {
			err = set(r, base, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", name, f.value, err)
		}
	}
	if r.Completed.Present() && !seen["outcome"] {
		r.Outcome = trace.OK
	}
	return r, nil
}

func set(r *trace.Request, base trace.Time, f field) (err error) {
	for _, e := range instants {
		if e.key == f.key && !f.interval() {
			v, b := basis(f.value)
			*e.at(r), err = instant(base, v, b)
			return err
		}
	}
	for _, e := range counts {
		if e.key == f.key {
			n, err := strconv.Atoi(f.value)
			*e.at(r) = trace.Some(n)
			return err
		}
	}
	for _, e := range words {
		if e.key == f.key {
			*e.at(r) = f.value
			return nil
		}
	}
	for _, e := range reports {
		if e.key == f.key {
			d, err := time.ParseDuration(f.value)
			*e.at(r) = trace.Some(d)
			return err
		}
	}
	switch f.key {
	case "clock":
		return nil
	case "resolution":
		r.Resolution, err = time.ParseDuration(f.value)
		return err
	case "outcome":
		for _, o := range trace.Outcomes() {
			if o.String() == f.value {
				r.Outcome = o
				return nil
			}
		}
		return fmt.Errorf("no such outcome")
	case "issue":
		c := trace.Code(f.value)
		r.Issues = append(r.Issues, trace.Issue{Code: c, Severity: c.Info().Severity})
		return nil
	}
	p, ok := trace.ParsePhase(f.key)
	if !ok || p == trace.Unattributed {
		return fmt.Errorf("no such field (an attribute is written @%s)", f.key)
	}
	v, b := basis(f.value)
	from, to, ok := strings.Cut(v, "..")
	if !ok {
		return fmt.Errorf("an interval is written start..end")
	}
	start, err := instant(base, from, b)
	if err != nil {
		return err
	}
	end, err := instant(base, to, b)
	if err != nil {
		return err
	}
	r.Intervals = append(r.Intervals, trace.Interval{Phase: p, Basis: b, Start: start.At, End: end.At})
	return nil
}

// basis takes the mark of how a time is known off its front.
func basis(v string) (string, trace.Basis) {
	if rest, ok := strings.CutPrefix(v, "~"); ok {
		return rest, trace.Derived
	}
	if rest, ok := strings.CutPrefix(v, "?"); ok {
		return rest, trace.Inferred
	}
	return v, trace.Measured
}

func instant(base trace.Time, v string, b trace.Basis) (trace.Instant, error) {
	d, err := time.ParseDuration(v)
	if err != nil {
		return trace.Instant{}, err
	}
	return trace.At(base.Add(d), b), nil
}

func value(f field) (trace.Value, error) {
	if f.quoted {
		return trace.StringValue(f.value), nil
	}
	if f.value == "" {
		return trace.Value{}, nil
	}
	if f.value == "true" || f.value == "false" {
		return trace.BoolValue(f.value == "true"), nil
	}
	if text, ok := strings.CutPrefix(f.value, "json:"); ok {
		if strings.HasPrefix(text, `"`) {
			s, err := strconv.Unquote(text)
			return trace.JSONValue(s), err
		}
		return trace.JSONValue(text), nil
	}
	if i, err := strconv.ParseInt(f.value, 10, 64); err == nil {
		return trace.IntValue(i), nil
	}
	if x, err := strconv.ParseFloat(f.value, 64); err == nil {
		return trace.FloatValue(x), nil
	}
	return trace.StringValue(f.value), nil
}

// Format prints r on one line, without a line feed, so that [Parse] gives it
// back: all but its position and the texts of its issues.
func Format(r *trace.Request) string { return FormatAt(Base, r) }

// FormatAt prints r with times after base.
func FormatAt(base trace.Time, r *trace.Request) string {
	var b strings.Builder
	b.WriteString(quote(r.ID, true))
	put := func(key, value string) {
		b.WriteByte(' ')
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(value)
	}
	if r.Clock != trace.ClockUnix {
		put("clock", r.Clock.String())
		base = 0
	}
	if r.Resolution != 1 {
		put("resolution", duration(r.Resolution))
	}
	for _, e := range instants {
		if i := *e.at(r); i.Present() {
			put(e.key, mark(i.Basis)+duration(i.At.Sub(base)))
		}
	}
	for _, iv := range r.Intervals {
		put(iv.Phase.String(), mark(iv.Basis)+duration(iv.Start.Sub(base))+".."+duration(iv.End.Sub(base)))
	}
	for _, e := range counts {
		if n, ok := e.at(r).Get(); ok {
			put(e.key, strconv.Itoa(n))
		}
	}
	if (r.Outcome == trace.OK) != r.Completed.Present() || r.Outcome > trace.OK {
		put("outcome", r.Outcome.String())
	}
	for _, e := range words {
		if s := *e.at(r); s != "" {
			put(e.key, quote(s, false))
		}
	}
	for _, e := range reports {
		if d, ok := e.at(r).Get(); ok {
			put(e.key, duration(d))
		}
	}
	for _, a := range r.Attrs {
		put("@"+quote(a.Key, true), formatValue(a.Value))
	}
	for _, i := range r.Issues {
		put("issue", quote(string(i.Code), false))
	}
	return b.String()
}

// FormatAll prints requests one a line.
func FormatAll(rs []*trace.Request) string {
	var b strings.Builder
	for _, r := range rs {
		b.WriteString(Format(r))
		b.WriteByte('\n')
	}
	return b.String()
}

func mark(b trace.Basis) string {
	switch b {
	case trace.Derived:
		return "~"
	case trace.Inferred:
		return "?"
	}
	return ""
}

// duration prints d as briefly as it can be read back.
func duration(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// quote quotes s where it would not be read back as it is. A key, or an id,
// may not hold a = or begin with an @.
func quote(s string, key bool) string {
	special := func(r rune) bool {
		return unicode.IsSpace(r) || !unicode.IsPrint(r) || r == '"' || r == utf8.RuneError || key && r == '='
	}
	if s == "" || key && (s[0] == '#' || s[0] == '@') || strings.IndexFunc(s, special) >= 0 {
		return strconv.Quote(s)
	}
	return s
}

func formatValue(v trace.Value) string {
	s := v.String()
	switch v.Kind() {
	case trace.ValueNone:
		return ""
	case trace.ValueJSON:
		if strings.ContainsFunc(s, unicode.IsSpace) || s != strings.ToValidUTF8(s, "") || strings.HasPrefix(s, `"`) {
			// Quoted without blanks: a word of its own.
			return "json:" + strings.ReplaceAll(strconv.QuoteToASCII(s), " ", `\x20`)
		}
		return "json:" + s
	case trace.ValueFloat:
		if !strings.ContainsFunc(s, func(r rune) bool { return r == '.' || r == 'e' || unicode.IsLetter(r) }) {
			s += ".0"
		}
		return s
	case trace.ValueString:
		q := quote(s, false)
		if back, _ := value(field{value: q}); q == s && back != v {
			q = strconv.Quote(s)
		}
		return q
	}
	return s
}

// Sort orders requests by arrival and then id, those without arrival first:
// what a table of them in a test wants.
func Sort(rs []*trace.Request) {
	slices.SortStableFunc(rs, func(a, b *trace.Request) int {
		return cmp.Or(cmp.Compare(a.Arrival.At, b.Arrival.At), strings.Compare(a.ID, b.ID))
	})
}
