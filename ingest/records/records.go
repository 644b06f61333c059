// Package records reads files whose records are one request each, and which
// hold no spans: what load generators saw, what engines write of each request,
// and workloads, which are arrivals and lengths alone. Each format has a file or
// a part of one that says what it looks like, where that was read, and what it
// cannot tell. The name is that of what it reads.
//
// What a client measured stays the client's: its time to the first token and
// its end to end are instants of the request, but none of its time is claimed
// for a phase of an engine, which it did not see.
package records

import (
	"bytes"
	"io"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// A Format is a form in which files hold records of requests.
type Format struct {
	Name     string // the value of [trace.Source].Format
	Evidence string // by what content it is recognised
	Yields   string // what comes out of it
	NotTold  string // what it cannot tell
	// Sniff reports whether head, the first bytes of an input, begins like it.
	Sniff func(head []byte) bool

	logs   bool   // other lines are a program's log: nothing is lost with them
	engine string // who wrote it: the value of [trace.Source].Engine
	clock  trace.Clock
	step   time.Duration  // of its clock
	value  func(*parser)  // reads the JSON object that B is
	end    func(*Decoder) // gives what is left; may be nil

	// Of a CSV table, instead of value: the columns that are read, and what reads
	// their cells in a line, "" where there is none.
	columns []string
	row     func(*parser, *trace.Request, []string)
}

// Formats are all, in the order in which they are tried: the last is recognised
// by the least.
var Formats = []*Format{
	&VLLMBench, &AIPerf, &GuideLLM, &InferencePerf, &SGLangMetrics, &SGLangLog, &Dynamo, &TensorRT, &TGI, &Ollama, &VLLMResponse, &LlamaCpp, &VLLMStats,
	&Bailian, &Mooncake, &AzureTrace, &BurstGPT, &Plain,
}

// A Sink takes what is decoded, in input order: exactly one argument is not
// nil; false stops.
type Sink func(*trace.Request, *trace.Issue) bool

// A Decoder decodes any number of files. It is not for concurrent use.
type Decoder struct {
	// Requests counts the requests given to the sink, Others the JSON objects
	// that are something else and were passed over.
	Requests, Others int

	max  int64
	zone *time.Location // of stamps without one; nil: UTC, with a note
	sink Sink

	texts scan.Texts
	buf   []byte
	file  file
}

// file is what is known of the file being read.
type file struct {
	format *Format
	at     scan.At
	zoned  bool // that UTC was assumed is told
	runs   int  // runs of a benchmark
	clock  trace.Clock

	begun map[string]*trace.Request // that have not ended, by id
	order []*trace.Request          // the same as they came, and ended ones

	warm     tally // requests that warmed the server up
	late     tally // requests sent later than meant
	latest   time.Duration
	withPlan int // requests that say when they were meant to be sent

	unread   []string // names of members that are not read, as they came
	unreadAt trace.Pos
	looked   int // records in which such were looked for
}

// tally counts, and remembers the first.
type tally struct {
	n  int
	at trace.Pos
}

func (t *tally) add(at trace.Pos) {
	if t.n++; t.n == 1 {
		t.at = at
	}
}

// NewDecoder returns a decoder that refuses single values of more than
// maxRecord bytes. Stamps without a zone are read in zone; nil: as UTC, with a
// note.
func NewDecoder(maxRecord int64, zone *time.Location, sink Sink) *Decoder {
	return &Decoder{max: maxRecord, zone: zone, sink: sink}
}

// Read decodes a file of the format f. It returns the first error of r, after
// having decoded what came before, or [scan.ErrStopped].
func (d *Decoder) Read(f *Format, r io.Reader, at scan.At) error {
	d.file = file{format: f, at: at}
	if f.row != nil {
		return d.table(f, r, at)
	}
	s := scan.Stream{
		R: r, At: at, Max: d.max, What: "records", Learn: true, Logs: f.logs, Buf: d.buf,
		Issue: func(is *trace.Issue) bool { return d.sink(nil, is) },
		Decode: func(v scan.Value) (int, bool, error) {
			p := parser{
				Parser: scan.Parser{B: v.B, At: at, Begin: v.Begin, Texts: &d.texts},
				d:      d, f: f, v: v,
			}
			p.Notes.Begin(v.Begin)
			if v.Partial && f.Sniff(v.B) { // a record is torn, not a log's line
				p.ours()
			}
			if f.value(&p); p.Wrong != "" && !v.Partial && (p.mine || v.Report) {
				p.issue(trace.BadJSON, p.Pos(p.BadAt), "%s", p.Wrong)
			}
			return len(v.B), p.mine, p.Err
		},
	}
	err := s.Run()
	d.buf = s.Buf
	d.Others += s.Others
	if err != nil {
		return err
	}
	return d.end()
}

// end says what shows only over the whole file.
func (d *Decoder) end() error {
	f := &d.file
	if f.format.end != nil {
		f.format.end(d)
	}
	var list []trace.Issue
	if f.warm.n > 0 {
		list = append(list, trace.NewIssue(trace.WarmUp, f.warm.at, "%d requests that warmed the server up were left out", f.warm.n))
	}
	if f.late.n > 0 {
		list = append(list, trace.NewIssue(trace.SentLate, f.late.at, "%d of %d requests were sent later than meant, by %v at most: latencies count from the sending", f.late.n, f.withPlan, f.latest))
	}
	if len(f.unread) > 0 {
		list = append(list, trace.NewIssue(trace.UnreadField, f.unreadAt, "these members are not read: %s", strings.Join(f.unread, ", ")))
	}
	for i := range list {
		if !d.sink(nil, &list[i]) {
			return scan.ErrStopped
		}
	}
	return nil
}

// A parser decodes one value.
type parser struct {
	scan.Parser
	d    *Decoder
	f    *Format
	v    scan.Value
	mine bool // the value is meant to hold requests
}

func (p *parser) issue(code trace.Code, pos trace.Pos, format string, args ...any) {
	is := trace.NewIssue(code, pos, format, args...)
	p.give(nil, &is)
}

func (p *parser) give(r *trace.Request, is *trace.Issue) {
	p.ours()
	if p.Err == nil && !p.d.sink(r, is) {
		p.Err = scan.ErrStopped
	}
}

// ours notes that the value is meant to hold requests.
func (p *parser) ours() {
	if !p.mine && p.Err == nil {
		p.mine = true
		p.Err = p.v.Ours()
	}
}

// begin returns a new request of the value at hand, or of that place in it, whose
// notes begin anew.
func (p *parser) begin(path string) *trace.Request {
	pos := p.v.Begin
	if pos.Path = p.At.Path; path != "" {
		pos.Path = strings.TrimPrefix(pos.Path+"."+path, ".")
		p.Notes.Begin(pos)
	}
	return &trace.Request{
		Source: trace.Source{Format: p.f.Name, Engine: p.f.engine, Pos: pos},
		Clock:  p.f.clock, Resolution: p.f.step,
	}
}

// Members that are not read are looked for in the first records of a file.
const (
	maxLooked = 100
	maxUnread = 8
)

// unread notes the members of the value at hand that have none of the names. Of
// keys that are no plain word nothing is told: they may be somebody's text.
func (p *parser) unread(names []string) {
	f := &p.d.file
	if f.looked++; f.looked > maxLooked {
		return
	}
	p.I = 0
	p.Peek()
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		key := string(p.Key())
		plain := len(key) <= 40 && !strings.ContainsFunc(key, func(c rune) bool {
			return c > unicode.MaxASCII || !unicode.IsLetter(c) && !unicode.IsDigit(c) && c != '_' && c != '.' && c != '-'
		})
		if plain && len(f.unread) < maxUnread && !slices.Contains(names, key) && !slices.Contains(f.unread, key) {
			if len(f.unread) == 0 {
				f.unreadAt = p.v.Begin
			}
			f.unread = append(f.unread, key)
		}
		p.Skip()
	}
}

// noTokens is the reason of a request that failed by giving none, without an
// error. It is none that was served.
const noTokens = "no tokens"

// horizon bounds instants so that no sum of one and durations overflows.
const horizon = trace.Time(1) << 62

// longest is what no request lasts.
const longest = 366 * 24 * time.Hour

// done gives a request of which no phase is known, without what cannot be.
func (p *parser) done(r *trace.Request) {
	p.settle(r)
	p.yield(r)
}

// yield gives a request as it is.
func (p *parser) yield(r *trace.Request) {
	if p.Wrong != "" || p.v.Partial { // what is missing would read as absent
		return
	}
	r.Issues, p.Notes.List = p.Notes.List, nil
	p.d.Requests++
	p.give(r, nil)
}

// settle takes away the instants that cannot be.
func (p *parser) settle(r *trace.Request) {
	for _, in := range []struct {
		name string
		i    *trace.Instant
	}{
		{"arrival", &r.Arrival}, {"queued", &r.Queued}, {"scheduled", &r.Scheduled},
		{"first token", &r.FirstToken}, {"last token", &r.LastToken}, {"end", &r.Completed},
	} {
		if in.i.Present() && (in.i.At < 0 || in.i.At > horizon) {
			p.Notes.Add(trace.TimeOutOfRange, "the %s is before its clock's zero, or too far ahead", in.name)
			*in.i = trace.Instant{}
		}
	}
	if e2e, ok := r.E2E().Get(); ok && (e2e < 0 || e2e > longest) {
		if e2e < 0 {
			p.Notes.Add(trace.EndBeforeStart, "it ends %v before it starts", -e2e)
		} else {
			p.Notes.Add(trace.TimeOutOfRange, "it would last longer than a year")
		}
		r.Completed = trace.Instant{}
	}
	// An instant outside the request, or before one that it follows, is none.
	slack := r.Resolution + trace.Rounding
	after, name := r.Arrival, "arrival"
	for _, in := range []struct {
		name string
		i    *trace.Instant
	}{{"queued", &r.Queued}, {"scheduled", &r.Scheduled}, {"first token", &r.FirstToken}, {"last token", &r.LastToken}} {
		if !in.i.Present() {
			continue
		}
		if d, ok := in.i.Sub(after).Get(); ok && d < -slack {
			p.Notes.Add(trace.NegativeDuration, "%s is %v before %s", in.name, -d, name)
			*in.i = trace.Instant{}
			continue
		}
		if d, ok := in.i.Sub(r.Completed).Get(); ok && d > slack {
			p.Notes.Add(trace.PhaseTooLong, "%s is %v behind the end", in.name, d)
			*in.i = trace.Instant{}
			continue
		}
		after, name = *in.i, in.name
	}
	if r.Outcome == trace.OK && !r.Completed.Present() {
		r.Outcome = trace.Incomplete
		p.Notes.Add(trace.MissingEnd, "its end is not told")
	}
}

// claim says that r was in a phase from one of its instants to another, where
// both are known.
func claim(r *trace.Request, phase trace.Phase, from, to trace.Instant) {
	if from.Present() && to.Present() && to.At >= from.At {
		r.Intervals = append(r.Intervals, trace.Interval{Phase: phase, Basis: max(from.Basis, to.Basis), Start: from.At, End: to.At})
	}
}

// claimEngine claims the phases of an engine that stamped the begin of each.
func claimEngine(r *trace.Request) {
	claim(r, trace.Queueing, r.Queued, r.Scheduled)
	claim(r, trace.Prefill, r.Scheduled, r.FirstToken)
	claim(r, trace.Decode, r.FirstToken, r.LastToken)
}

// unplaced puts a request of which only durations are known on a clock of its
// own, which begins with it.
func (p *parser) unplaced(r *trace.Request, why string) {
	r.Clock = trace.ClockUnknown
	r.Arrival = trace.At(0, trace.Derived)
	p.Notes.Add(trace.NoArrival, "%s", why)
}

// maxBegun bounds how many requests are remembered until they end.
const maxBegun = 1 << 20

// open remembers a request until it ends.
func (d *Decoder) open(r *trace.Request, issues []trace.Issue) {
	f := &d.file
	if f.begun == nil {
		f.begun = map[string]*trace.Request{}
	}
	if len(f.begun) >= maxBegun {
		is := trace.NewIssue(trace.TooManyOpen, r.Source.Pos, "more than %d requests have not ended: this one is not remembered", maxBegun)
		d.sink(nil, &is)
		return
	}
	r.Issues = issues
	if old := f.begun[r.ID]; old != nil { // the id stands for another request too
		d.Requests++
		d.sink(old, nil)
	}
	f.begun[r.ID] = r
	f.order = append(f.order, r)
	if len(f.order) > 2*len(f.begun)+1000 { // most have ended
		f.order = slices.DeleteFunc(f.order, func(r *trace.Request) bool { return f.begun[r.ID] != r })
	}
}

// close forgets a request that ended, and returns it; nil where it did not begin.
func (d *Decoder) close(id string) *trace.Request {
	r := d.file.begun[id]
	delete(d.file.begun, id)
	return r
}

// unended gives the requests that did not end.
func (d *Decoder) unended() {
	for _, r := range d.file.order {
		if d.file.begun[r.ID] != r {
			continue
		}
		d.Requests++
		if !d.sink(r, nil) {
			return
		}
	}
}

// meant notes when the client meant to send a request that it sent at r.Arrival.
func (p *parser) meant(r *trace.Request, t trace.Opt[trace.Time]) {
	at, ok := t.Get()
	a, okA := r.Arrival.Get()
	if !ok || !okA {
		return
	}
	p.d.file.withPlan++
	late := a.Sub(at)
	if late < 0 || late > longest {
		return
	}
	r.SetAttr("sent_late_ns", trace.IntValue(int64(late)))
	if late >= time.Millisecond {
		p.d.file.late.add(r.Source.Pos)
		p.d.file.latest = max(p.d.file.latest, late)
	}
}

// Where fields finds no member of a name, or none that can be used.
const (
	none  = -1 - iota // there is none
	twice             // it stands twice: which one counts nobody knows
	null
)

// fields notes in to where the values of the names stand in the object at B[at],
// and reports whether it is one.
func (p *parser) fields(at int, names []string, to []int) bool {
	for i := range to {
		to[i] = none
	}
	if at < 0 {
		return false
	}
	p.I = at
	if p.Peek() != '{' {
		return false
	}
	for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
		key := p.Key()
		for i, n := range names {
			if n != string(key) {
				continue
			}
			c := p.Peek()
			switch {
			case to[i] != none:
				p.Notes.Add(trace.DuplicateKey, "the key %q stands twice: its value counts as not reported", n)
				to[i] = twice
			case c == 'n':
				to[i] = null
			default:
				to[i] = p.I
			}
		}
		p.Skip()
	}
	return p.Wrong == ""
}

// text reads a text, or a number as it is written.
func (p *parser) text(key string, at int) string {
	if at < 0 {
		return ""
	}
	p.I = at
	switch p.Peek() {
	case '"':
		return p.Text(key)
	case '{', '[':
		p.WrongType(key, "text")
		return ""
	}
	return p.Texts.Intern(p.Notes.Mend(p.Token()))
}

// short is text of a word or two; longer ones may be somebody's prompt.
func (p *parser) short(key string, at int) string {
	if s := p.text(key, at); len(s) <= 64 {
		return s
	}
	return ""
}

// count reads a number of things.
func (p *parser) count(key string, at int) trace.Opt[int] {
	if at < 0 {
		return trace.Opt[int]{}
	}
	p.I = at
	i, ok := p.Int(key)
	if ok && (i < 0 || i > 1<<40) {
		p.Notes.Add(trace.BadNumber, "%s is %d", scan.Short(key), i)
		ok = false
	}
	if !ok {
		return trace.Opt[int]{}
	}
	return trace.Some(int(i))
}

// is reports whether the value at hand is true.
func (p *parser) is(at int) bool {
	return at >= 0 && bytes.HasPrefix(p.B[at:], []byte("true"))
}

// Units of time: how many nanoseconds they have, as powers of ten.
const (
	nanos  = 0
	micros = 3
	millis = 6
	secs   = 9
)

var unitWords = [...]string{"nanoseconds", "microseconds", "milliseconds", "seconds"}

// nanos reads a number of units of 10^exp ns, to the nearest nanosecond.
func (p *parser) nanos(key string, at, exp int) trace.Opt[int64] {
	if at < 0 {
		return trace.Opt[int64]{}
	}
	p.I = at
	tok := p.Scalar(key, "number")
	if tok == nil {
		return trace.Opt[int64]{}
	}
	ns, ok := parseNanos(tok, exp)
	if f, finite := scan.ParseFloat(tok); !ok && finite && math.Abs(f) >= math.MaxInt64/math.Pow10(exp) {
		p.Notes.Add(trace.BadNumber, "%s is too large for %s: is it in a smaller unit?", scan.Short(key), unitWords[exp/3])
		return trace.Opt[int64]{}
	}
	if !ok {
		p.Notes.Add(trace.BadNumber, "%s is no number of %s", scan.Short(key), unitWords[exp/3])
		return trace.Opt[int64]{}
	}
	return trace.Some(ns)
}

// span reads a duration; one below zero is none.
func (p *parser) span(key string, at, exp int) (none trace.Opt[time.Duration]) {
	ns, ok := p.nanos(key, at, exp).Get()
	switch {
	case !ok:
		return none
	case ns < 0:
		p.Notes.Add(trace.NegativeDuration, "%s is %v", scan.Short(key), time.Duration(ns))
		return none
	case ns > int64(longest):
		p.Notes.Add(trace.TimeOutOfRange, "%s is longer than a year", scan.Short(key))
		return none
	}
	return trace.Some(time.Duration(ns))
}

// positive is span where 0 means that it was not measured.
func (p *parser) positive(key string, at, exp int) trace.Opt[time.Duration] {
	if d := p.span(key, at, exp); d.Or(0) > 0 {
		return d
	}
	return trace.Opt[time.Duration]{}
}

// instant reads a number of units as an instant.
func (p *parser) instant(key string, at, exp int) trace.Instant {
	if ns, ok := p.nanos(key, at, exp).Get(); ok {
		return trace.At(trace.Time(ns), trace.Measured)
	}
	return trace.Instant{}
}

// plus is d after i.
func plus(i trace.Instant, d trace.Opt[time.Duration], b trace.Basis) trace.Instant {
	n, ok := d.Get()
	if t, okT := i.Get(); ok && okT && t >= 0 && t <= horizon {
		return trace.At(t.Add(n), max(b, i.Basis))
	}
	return trace.Instant{}
}

// list walks through an array.
type list struct {
	at      int // where to go on
	started bool
}

// list returns the array at B[at]; nil where there is none.
func (p *parser) list(key string, at int) *list {
	if at < 0 {
		return nil
	}
	p.I = at
	if p.Peek() != '[' {
		p.WrongType(key, "array")
		return nil
	}
	return &list{at: p.I}
}

// next returns the place of the next member; −1 where there is none.
func (p *parser) next(l *list) int {
	p.I = l.at
	more := false
	if l.started {
		more = p.Next(']')
	} else {
		l.started = true
		more = p.Enter('[', ']')
	}
	if !more {
		l.at = p.I
		return none
	}
	p.Peek()
	at := p.I
	if p.Skip(); p.Wrong != "" {
		return none
	}
	l.at = p.I
	return at
}

// sniffed is how many objects are looked at to recognise a format.
const sniffed = 10

// sniff returns a function that reports whether one of the first objects of an
// input, or what there is of it, has such members; a.b is member b of member a.
func sniff(names []string, ok func(has func(string) bool) bool) func([]byte) bool {
	return func(head []byte) bool {
		var texts scan.Texts
		i := 0
		if bytes.HasPrefix(head, []byte("\xef\xbb\xbf")) {
			i = 3
		}
		for range sniffed {
			for i < len(head) && head[i] != '{' {
				if bytes.IndexByte([]byte(" \t\r\n,[\x1e"), head[i]) < 0 { // text: not on this line
					n := bytes.IndexByte(head[i:], '\n')
					if n < 0 {
						return false
					}
					i += n
				}
				i++
			}
			if i >= len(head) {
				return false
			}
			p := parser{Parser: scan.Parser{B: head, Texts: &texts}}
			to := make([]int, len(names))
			p.fields(i, names, to)
			for k, n := range names {
				outer, inner, nested := strings.Cut(n, ".")
				if o := slices.Index(names, outer); nested && o >= 0 && to[o] >= 0 {
					p.Wrong = ""
					p.fields(to[o], []string{inner}, to[k:k+1])
				}
			}
			if ok(func(name string) bool {
				for k, n := range names {
					if n == name {
						return to[k] != none
					}
				}
				return false
			}) {
				return true
			}
			if i = scan.Closing(head, i); i < 0 {
				return false
			}
		}
		return false
	}
}
