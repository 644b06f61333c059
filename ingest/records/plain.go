package records

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// Plain is traceview's own form of requests that come from nowhere else: JSON
// lines, one request each, described in docs/own-records.md. Units stand in the
// names of members: _ns, _us, _ms or _s behind one of the names below; without,
// a number is in seconds and a text is RFC 3339. Members of other names are told
// of once a file: one of them may be what its writer meant to count.
var Plain = Format{
	Name:     "requests",
	Evidence: "JSON lines with an id or request_id and an arrival (or start, start_time), and any of end, e2e, first_token, ttft, input_tokens, …: see docs/own-records.md",
	Yields:   "requests as the lines tell them; phases where they have the engine's own stamps (queued, scheduled)",
	NotTold:  "what the lines do not tell",
	Sniff: sniff(plainNames, func(has func(string) bool) bool {
		any := func(bases ...string) bool {
			return slices.ContainsFunc(bases, func(b string) bool {
				return slices.ContainsFunc(plainSuffixes, func(s string) bool { return has(b + s) })
			})
		}
		named := (has("request_id") || has("id")) && any("arrival", "start", "start_time")
		return named && (any("end", "end_time", "first_token", "last_token", "queued", "scheduled", "ttft", "e2e", "latency") || has("input_tokens") || has("output_tokens"))
	}),
	engine: "own-records", clock: trace.ClockUnix, step: 1,
	value: (*parser).plain,
}

// plainSuffixes are the units, as powers of ten of nanoseconds by their place.
var plainSuffixes = []string{"", "_ns", "_us", "_ms", "_s"}

var plainExps = []int{secs, nanos, micros, millis, secs}

// plainTimes are the members with times, each with any suffix.
var plainTimes = []string{
	"arrival", "start", "start_time", "queued", "scheduled", "first_token", "last_token", "end", "end_time", "intended_start",
	"ttft", "e2e", "latency",
}

// plainOthers are the members that have no unit.
var plainOthers = []string{
	"id", "request_id", "trace_id", "service", "replica", "model", "engine", "clock",
	"input_tokens", "cached_tokens", "output_tokens", "max_tokens", "preemptions",
	"outcome", "success", "status", "status_code", "error", "finish_reason", "attributes",
}

var plainNames = func() []string {
	list := slices.Clone(plainOthers)
	for _, n := range plainTimes {
		for _, s := range plainSuffixes {
			list = append(list, n+s)
		}
	}
	return list
}()

// since2000 is the first instant that is taken for one of the calendar.
const since2000 = trace.Time(946_684_800_000_000_000)

func (p *parser) plain() {
	f := make([]int, len(plainNames))
	r := p.begin("")
	if !p.fields(0, plainNames, f) {
		return
	}
	at := func(name string) int { return f[slices.Index(plainNames, name)] }
	id := at("request_id")
	if id == none || id == null {
		id = at("id")
	}
	var step time.Duration
	calendar := false
	instant := func(name string) trace.Instant {
		i, s, stamp := p.plainInstant(name, f)
		step, calendar = max(step, s), calendar || stamp
		return i
	}
	first := func(names ...string) (i trace.Instant) {
		for _, name := range names {
			if i = instant(name); i.Present() {
				break
			}
		}
		return i
	}
	r.Arrival = first("arrival", "start", "start_time")
	r.Completed = first("end", "end_time")
	if id == none || !slices.ContainsFunc(f[len(plainOthers):], func(i int) bool { return i != none }) {
		return
	}
	p.ours()
	p.unread(plainNames)
	r.ID, r.TraceID = p.text("id", id), p.text("trace_id", at("trace_id"))
	r.Service, r.Replica, r.Model = p.text("service", at("service")), p.text("replica", at("replica")), p.text("model", at("model"))
	if s := p.short("engine", at("engine")); s != "" {
		r.Source.Engine = s
	}
	r.Queued, r.Scheduled = instant("queued"), instant("scheduled")
	r.FirstToken, r.LastToken = instant("first_token"), instant("last_token")
	meant := instant("intended_start")
	r.Input, r.Cached, r.Output = p.count("input_tokens", at("input_tokens")), p.count("cached_tokens", at("cached_tokens")), p.count("output_tokens", at("output_tokens"))
	r.MaxTokens, r.Preemptions = p.count("max_tokens", at("max_tokens")), p.count("preemptions", at("preemptions"))
	r.FinishReason = p.short("finish_reason", at("finish_reason"))
	stated := p.plainOutcome(r, f)

	if r.Arrival.At == 0 && r.Completed.At == 0 { // it got nowhere: these are no times
		r.Arrival, r.Completed = trace.Instant{}, trace.Instant{}
	}
	p.plainClock(r, at("clock"), calendar)
	length := func(names ...string) (d trace.Opt[time.Duration]) {
		for _, name := range names {
			for i, s := range plainSuffixes {
				if !d.Present() {
					d = p.span(name, at(name+s), plainExps[i])
				}
			}
		}
		return d
	}
	r.Reported.TTFT, r.Reported.E2E = length("ttft"), length("e2e", "latency")
	if !r.Completed.Present() {
		r.Completed = plus(r.Arrival, r.Reported.E2E, trace.Measured)
	}
	served := r.Output.Or(1) > 0
	if !r.FirstToken.Present() && served { // a time to a token that never came is none
		r.FirstToken = plus(r.Arrival, r.Reported.TTFT, trace.Measured)
	}
	if !served && !stated && r.Outcome == trace.OK {
		r.Outcome, r.FinishReason = trace.Error, noTokens
	}
	two := p.plainTwoClocks(r)
	if !r.Arrival.Present() {
		p.Notes.Add(trace.NoArrival, "when it arrived is not told")
	}
	r.Resolution = max(step, 1)
	p.plainAttrs(r, at("attributes"))
	if meant.Present() {
		p.meant(r, opt(meant))
	}
	p.settle(r)
	switch {
	case two: // the time outside the engine is known as a sum
		claimEngine(r)
		claim(r, trace.Arrival|trace.Completion, r.LastToken, r.Completed)
	case r.Queued.Present() || r.Scheduled.Present():
		claim(r, trace.Arrival, r.Arrival, r.Queued)
		claimEngine(r)
		claim(r, trace.Completion, r.LastToken, r.Completed)
	}
	p.yield(r)
}

// plainInstant reads an instant, with the step in which it is written; stamp
// says that it was a date.
func (p *parser) plainInstant(name string, f []int) (in trace.Instant, step time.Duration, stamp bool) {
	for i, s := range plainSuffixes {
		at := f[slices.Index(plainNames, name+s)]
		if at < 0 {
			continue
		}
		if in.Present() {
			p.Notes.Add(trace.DuplicateKey, "%s stands in two units: the first was used", name)
			break
		}
		p.I = at
		if s == "" && p.B[at] == '"' {
			text := p.text(name, at)
			in = p.stamp(name, at)
			step, stamp = stampStep(text), in.Present()
			continue
		}
		tok := p.Token()
		if p.B[at] == '"' {
			p.Wrong = ""
			p.I = at
			tok, _ = p.Raw()
		}
		in = p.instant(name+s, at, plainExps[i])
		switch exp := plainExps[i]; {
		case !in.Present():
		case bytes.IndexByte(tok, '.') >= 0 || exp <= micros:
			step = min(trace.Rounding, pow10(exp)) // a float of seconds or milliseconds since 1970 has no more
		default:
			step = pow10(exp)
		}
	}
	return in, step, stamp
}

func pow10(exp int) time.Duration {
	d := time.Duration(1)
	for range exp {
		d *= 10
	}
	return d
}

// stampStep is the last digit of a date and time.
func stampStep(text string) time.Duration {
	i := strings.IndexAny(text, ".,")
	if i < 0 {
		return time.Second
	}
	digits := 0
	for i++; i < len(text) && text[i] >= '0' && text[i] <= '9'; i++ {
		digits++
	}
	return pow10(max(0, 9-digits))
}

// plainOutcome reads how the request ended; stated says that the record tells.
func (p *parser) plainOutcome(r *trace.Request, f []int) (stated bool) {
	at := func(name string) int { return f[slices.Index(plainNames, name)] }
	r.Outcome = trace.OK
	if failed := at("error"); failed >= 0 && !p.nothing(failed) {
		r.Outcome = trace.Error
		if p.B[failed] == '"' {
			if why := p.short("error", failed); r.FinishReason == "" {
				r.FinishReason = why
			}
		}
	}
	if at := at("success"); at >= 0 {
		if stated = true; bytes.HasPrefix(p.B[at:], []byte("false")) {
			r.Outcome = trace.Error
		}
	}
	for _, name := range [...]string{"status_code", "status"} {
		code, err := strconv.Atoi(p.short(name, at(name)))
		if err == nil && code >= 400 && code < 600 {
			r.Outcome = trace.Error
			r.SetAttr("error_code", trace.StringValue(strconv.Itoa(code)))
		}
	}
	if word := p.short("status", at("status")); r.Outcome == trace.OK && slices.Contains([]string{"error", "failed", "failure", "timeout", "cancelled"}, strings.ToLower(word)) {
		r.Outcome = trace.Error
		if r.FinishReason == "" {
			r.FinishReason = word
		}
	}
	if word := p.short("outcome", at("outcome")); word != "" {
		for _, o := range trace.Outcomes() {
			if o.String() == word {
				r.Outcome = o
				return true
			}
		}
		p.Notes.Add(trace.BadField, "outcome is none of ok, error, aborted, rejected, incomplete")
		r.Outcome = trace.Incomplete
	}
	return stated
}

// nothing reports whether the value at hand is false, an empty text, list or
// object: what programs write for no error.
func (p *parser) nothing(at int) bool {
	b := p.B[at:]
	if bytes.HasPrefix(b, []byte("false")) || bytes.HasPrefix(b, []byte(`""`)) {
		return true
	}
	if b[0] != '{' && b[0] != '[' {
		return false
	}
	b = bytes.TrimLeft(b[1:], " \t\r\n")
	return len(b) > 0 && (b[0] == '}' || b[0] == ']')
}

// plainTwoClocks places the engine's stamps where they count from another zero
// than arrival, as a monotonic clock's do beside a calendar's: nothing ties the
// two, so it was queued, for all that is known, when it arrived.
func (p *parser) plainTwoClocks(r *trace.Request) bool {
	stamps := [...]*trace.Instant{&r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken}
	var begin trace.Instant
	for _, i := range stamps {
		if i.Present() {
			begin = *i
			break
		}
	}
	if !begin.Present() || begin == r.FirstToken || r.Arrival.At < since2000 || begin.At >= early {
		return false
	}
	off := r.Arrival.At.Sub(begin.At)
	for _, i := range stamps {
		if i.Present() {
			if *i = trace.At(i.At.Add(off), trace.Derived); i.At < r.Arrival.At || i.At > horizon {
				*i = trace.Instant{}
			}
		}
	}
	return true
}

// early is an instant of the calendar's that no server has seen: what is before
// it counts from another zero.
const early = trace.Time(200_000_000_000_000_000)

// plainClock decides from where the file's instants count: as it says, else by
// its first instant.
func (p *parser) plainClock(r *trace.Request, at int, calendar bool) {
	switch word := p.short("clock", at); word {
	case "unix":
		r.Clock = trace.ClockUnix
	case "monotonic":
		r.Clock = trace.ClockMonotonic
	case "relative":
		r.Clock = trace.ClockRelative
	default:
		if word != "" {
			p.Notes.Add(trace.BadField, "clock is none of unix, monotonic, relative")
		}
		if t, ok := r.Arrival.Get(); ok && p.d.file.clock == trace.ClockUnknown {
			p.d.file.clock = trace.ClockRelative
			if calendar || t >= since2000 {
				p.d.file.clock = trace.ClockUnix
			}
		}
		if r.Clock = p.d.file.clock; r.Clock == trace.ClockUnknown {
			r.Clock = trace.ClockUnix
		}
	}
	if r.Clock == trace.ClockUnix && r.Arrival.Present() && r.Arrival.At == 0 { // 1970 is no time
		r.Arrival = trace.Instant{}
	}
}

// maxAttrs bounds a request's attributes.
const maxAttrs = 64

func (p *parser) plainAttrs(r *trace.Request, at int) {
	if at < 0 {
		return
	}
	p.I = at
	if p.Peek() != '{' {
		p.WrongType("attributes", "object")
		return
	}
	n := 0
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		key := p.Texts.Intern(p.Notes.Mend(p.Key()))
		if n++; n > maxAttrs {
			p.Skip()
			continue
		}
		if _, there := r.Attr(key); there {
			p.Notes.Add(trace.DuplicateKey, "an attribute stands twice: the last was used")
		}
		switch p.Peek() {
		case '"':
			r.SetAttr(key, trace.StringValue(p.Text(key)))
		case '{', '[':
			p.WrongType("an attribute", "plain value")
		default:
			switch tok := p.Token(); string(tok) {
			case "null", "":
			case "true", "false":
				r.SetAttr(key, trace.BoolValue(tok[0] == 't'))
			default:
				if ns, ok := parseNanos(tok, 0); ok && bytes.IndexByte(tok, '.') < 0 {
					r.SetAttr(key, trace.IntValue(ns))
				} else {
					r.SetAttr(key, trace.StringValue(string(p.Notes.Mend(tok))))
				}
			}
		}
	}
	if n > maxAttrs {
		p.Notes.Add(trace.BadField, "more than %d attributes: the rest was left out", maxAttrs)
	}
}
