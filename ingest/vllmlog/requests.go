package vllmlog

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"time"

	"github.com/traceview/traceview/trace"
)

const (
	maxOpen       = 1 << 18 // requests without an end at one time
	maxHeld       = 1 << 16 // requests and readings held back while the year is open
	maxContainers = 4096
	maxScopes     = 64 // API servers of one container
	maxRecent     = 4096
	maxInternal   = 1024 // the engine's ids of one request
)

// open is a request whose end has not been seen.
type open struct {
	req        trace.Request
	same       *open // an older one with the same id
	newer      *open // of which this is same
	prev, next *open // by arrival
	seq        int
	scope      *scope
	internal   []string // the engine's ids of it
	n          int      // samples asked for
	ended      int      // of which this many have their output
	outputs    int      // tokens of those; -1: not told
	ambiguous  bool     // an end was that may be its
	bare       bool     // known from the engine's line only: its Received line may follow
}

// scope is one set of ids: an API server, or all of a container where they are
// not told apart.
type scope struct {
	in       *container
	live     map[string]*open // by id
	internal map[string]*open // by the engine's id
	recent   map[string]int   // ids that ended a short while ago, how often
	ring     []string
	next     int
	equal    map[string]*equal // of ids that several have, or had
	suffixed bool              // the engine's ids have a suffix
	plain    bool              // they have none
}

// equal is what is known of the open requests of one id.
type equal struct {
	open int
	ends int // that could not be told apart
}

// death is the end of an engine.
type death struct {
	seq   int // requests up to this one were running
	since int // requests up to this one may have ended before: more are open than the engine had
	at    trace.Instant
	res   time.Duration
}

// container is one source of lines in the stream.
type container struct {
	name   string
	scopes map[string]*scope
	order  []*scope

	front  int          // the process of the last line of a front end
	fronts map[int]bool // those that were before it

	prefix []byte // of the last line of the engine
	cr     bool   // that line ended in a carriage return
	lf     bool   // some line of the engine ended without one

	start    *start  // what was said of limits since the last arguments
	deaths   []death // of its engine, since the last start
	stopping bool    // the server was told to: what dies now is no failure

	// Most ends are not logged. What the engines last said they had bounds
	// what of the open requests can still be running.
	open, begun int
	had         map[string]int // running and waiting, by engine
	then, now   mark           // at the last statistics line but one, and at the last
}

// mark is a place in the order of requests.
type mark struct{ seq, begun int }

// held is something that waits for the year.
type held struct {
	req     *trace.Request
	limits  *trace.EngineLimits
	reading trace.Reading
}

// log is the state of reading one log.
type log struct {
	opts    Options
	yield   func(*trace.Request, *trace.Issue) bool
	stopped bool
	unwrap  unwrapper
	clock   clock

	containers map[string]*container
	order      []*container // as they came
	last       *container
	first, end *open // by arrival
	open, seq  int

	held    []held
	waiting bool // something with an open year was met

	foreign   int
	foreignAt trace.Pos
	requests  int // request lines
	longest   int // text or list of ids so far
	readings  int
	readingAt trace.Pos
	noDate    int
	noDateAt  trace.Pos
	noted     map[trace.Code]bool
}

func newLog(opts Options, yield func(*trace.Request, *trace.Issue) bool) *log {
	l := &log{
		opts: opts, yield: yield,
		clock:      clock{zone: opts.Zone, year: opts.Year, mod: opts.ModTime, known: opts.Year != 0, base: opts.Year, leapYear: noLeap},
		containers: map[string]*container{},
		noted:      map[trace.Code]bool{},
	}
	l.unwrap = unwrapper{max: opts.MaxRecord, emit: l.line, big: l.tooLarge}
	return l
}

func (l *log) issue(i trace.Issue) {
	if !l.stopped && !l.yield(nil, &i) {
		l.stopped = true
	}
}

// once yields an issue unless one of its code was.
func (l *log) once(i trace.Issue) {
	if !l.noted[i.Code] {
		l.noted[i.Code] = true
		l.issue(i)
	}
}

func (l *log) tooLarge(pos trace.Pos) {
	l.issue(trace.NewIssue(trace.RecordTooLarge, pos, "a line of more than %d bytes was skipped", l.opts.MaxRecord))
}

// line takes one logical line.
func (l *log) line(e *entry) {
	if l.stopped {
		return
	}
	c := l.last
	if c == nil || c.name != string(e.container) {
		if c = l.containers[string(e.container)]; c == nil {
			name := string(e.container)
			if len(l.containers) >= maxContainers {
				name = ""
			}
			if c = l.containers[name]; c == nil {
				c = &container{name: name, scopes: map[string]*scope{}}
				l.containers[name] = c
				l.order = append(l.order, c)
			}
		}
		l.last = c
	}
	if e.prefix != nil {
		// A message of several lines has the prefix on each and ends all but
		// its last in CRLF. What stands in the later lines is text. In a log
		// with CRLF throughout they cannot be told.
		follows := c.cr && c.lf && bytes.Equal(e.prefix, c.prefix)
		c.cr = e.cr
		c.lf = c.lf || !e.cr && !e.torn
		c.prefix = append(c.prefix[:0], e.prefix...)
		if follows {
			return
		}
	}
	if e.engine && e.pid > 0 && string(e.process) == "APIServer" {
		l.frontEnd(c, e)
	}
	ev := find(e)
	if e.engine || ev.kind != other {
		l.clock.tick(&e.at)
	}
	if ev.kind == other {
		if e.torn && hasPrefix(e.text, "{") && e.text[len(e.text)-1] != '}' {
			// A record of docker's or of a JSON formatter, whatever it said.
			l.issue(trace.NewIssue(trace.Truncated, e.pos, "the log stops in the middle of a record"))
			return
		}
		if !e.engine && e.process == nil && !access(e.text) {
			if l.foreign++; l.foreign == 1 {
				l.foreignAt = e.pos
			}
		}
		return
	}
	if ev.torn && e.torn {
		l.issue(trace.NewIssue(trace.Truncated, e.pos, "the log stops in the middle of a line"))
		return
	}
	l.event(c, e, &ev)
}

// frontEnd takes note of which process a front end's line is of. After a
// restart it is another one for good; where an older one goes on, two servers
// write to the log.
func (l *log) frontEnd(c *container, e *entry) {
	if e.pid == c.front {
		return
	}
	if c.fronts[e.pid] {
		l.once(trace.NewIssue(trace.ServersMixed, e.pos, "lines of processes %d and %d take turns: they count as one server's", c.front, e.pid))
	}
	if c.front != 0 && len(c.fronts) < maxScopes {
		if c.fronts == nil {
			c.fronts = map[int]bool{}
		}
		c.fronts[c.front] = true
	}
	c.front = e.pid
}

// access reports whether s is a line of the HTTP server: "INFO:     …".
func access(s []byte) bool {
	for _, level := range [...]string{"INFO:", "WARNING:", "ERROR:", "DEBUG:"} {
		if hasPrefix(s, level) {
			return hasPrefix(s[len(level):], "  ")
		}
	}
	return false
}

var torn = map[kind]string{
	received: "Received", details: "details", added: "Added", finished: "Finished", aborted: "Aborted",
	generated: "Generated response", served: "finished", statistics: "statistics", config: "start-up",
}

func (l *log) badLine(e *entry, ev *event) trace.Issue {
	return trace.NewIssue(trace.BadLogLine, e.pos, "a %s line could not be read whole", torn[ev.kind])
}

func (l *log) event(c *container, e *entry, ev *event) {
	if ev.torn && (ev.id == nil || ev.kind != received && ev.kind != generated) {
		l.issue(l.badLine(e, ev))
		return
	}
	switch ev.kind {
	case statistics:
		l.reading(c, e, ev)
		return
	case preempted:
		l.once(trace.NewIssue(trace.PreemptionSampled, e.pos, "the engine logs every fiftieth preemption; requests carry no number of them"))
		return
	case started:
		l.restart(c, e)
		return
	case config:
		l.config(c, e, ev)
		return
	case stopping:
		c.stopping = true
		return
	case died:
		if n := len(c.deaths); !c.stopping && (n == 0 || c.deaths[n-1].seq < l.seq) { // several lines tell of one
			at, _ := l.instant(e)
			c.deaths = append(c.deaths, death{l.seq, c.overBefore(), at, e.at.res})
		}
		return
	}
	l.requests++
	s := c.scope(e.process)
	if ev.kind == aborted {
		for id := range bytes.SplitSeq(ev.id, []byte(",")) {
			l.stop(s, e, ev, bytes.TrimSpace(id))
		}
		return
	}
	switch ev.kind {
	case received:
		l.receive(s, e, ev)
	case details:
		if o := s.find(ev.id); o != nil {
			l.prompt(o, ev)
		}
	case added:
		l.add(s, e, ev)
	case generated:
		l.generated(s, e, ev)
	case finished, failed, refused:
		l.stop(s, e, ev, ev.id)
	case served:
		l.served(s, e, ev)
	}
}

// instant is the instant of a line. open instants are places in the log's
// calendar until the year is known.
func (l *log) instant(e *entry) (trace.Instant, bool) {
	t, isOpen, ok := l.clock.instant(&e.at)
	if !ok {
		return trace.Instant{}, !e.at.ok
	}
	if isOpen {
		l.waiting = true
	} else if l.waiting {
		l.settle()
	}
	return trace.At(t, trace.Measured), true
}

// stamp notes the time of a line on a request, or that it is no date.
func (l *log) stamp(o *open, e *entry) trace.Instant {
	at, ok := l.instant(e)
	if !ok {
		o.issue(trace.NewIssue(trace.ImpossibleDate, e.pos, "the stamp is no date of its year"))
	}
	if at.Present() {
		o.req.Resolution = max(o.req.Resolution, e.at.res)
	}
	return at
}

// issue adds an issue to the request, one of each code.
func (o *open) issue(i trace.Issue) { addIssue(&o.req, i) }

func addIssue(r *trace.Request, i trace.Issue) {
	for _, have := range r.Issues {
		if have.Code == i.Code {
			return
		}
	}
	r.Issues = append(r.Issues, i)
}

// scope returns the set of ids that a process's lines speak of. Several API
// servers ("ApiServer_1") each have their own.
func (c *container) scope(process []byte) *scope {
	if !hasPrefix(process, "ApiServer_") || len(c.order) >= maxScopes {
		process = nil
	}
	s := c.scopes[string(process)]
	if s == nil {
		s = &scope{in: c, live: map[string]*open{}, internal: map[string]*open{}, recent: map[string]int{}, equal: map[string]*equal{}}
		c.scopes[string(process)] = s
		c.order = append(c.order, s)
	}
	return s
}

// find returns the one open request that an id can mean: the engine's own id
// of it, its id, its id with the engine's suffix or the number of a sample. A
// request of which several are open is returned too: see alone.
func (s *scope) find(id []byte) *open {
	if o := s.internal[string(id)]; o != nil {
		return o
	}
	if o := s.live[string(id)]; o != nil {
		return o
	}
	if s.recent[string(id)] > 0 {
		return nil // its end came twice
	}
	base, suffix := withoutSuffix(id)
	if suffix {
		if o := s.live[string(base)]; o != nil {
			return o
		}
	}
	if n, rest, ok := number(id); ok && n >= 0 && len(rest) > 1 && rest[0] == '_' {
		if o := s.live[string(rest[1:])]; o != nil {
			return o
		}
		if base, ok := withoutSuffix(rest[1:]); ok {
			if o := s.live[string(base)]; o != nil {
				return o
			}
		}
	}
	for _, mark := range [...]string{"_parallel_sample_", "-beam-"} {
		if i := bytes.LastIndex(id, []byte(mark)); i > 0 {
			if o := s.live[string(id[:i])]; o != nil {
				return o
			}
		}
	}
	return nil
}

// withoutSuffix cuts the engine's "-<8 hexadecimal digits>" off an id.
func withoutSuffix(id []byte) ([]byte, bool) {
	n := len(id) - 9
	if n <= 0 || id[n] != '-' {
		return id, false
	}
	for _, c := range id[n+1:] {
		if !isDigit(c) && c-'a' >= 6 {
			return id, false
		}
	}
	return id[:n], true
}

// external guesses the id that the caller knows from one that no open request
// has.
func (s *scope) external(id []byte, list bool) []byte {
	base, ok := withoutSuffix(id)
	if !ok || !s.suffixed && (s.plain || !list) {
		return id
	}
	if _, rest, ok := number(base); ok && len(rest) > 1 && rest[0] == '_' {
		return rest[1:]
	}
	return base
}

func (s *scope) remember(id string) {
	if len(s.ring) < maxRecent {
		s.ring = append(s.ring, id)
	} else {
		old := s.ring[s.next]
		if s.recent[old]--; s.recent[old] == 0 {
			delete(s.recent, old)
		}
		s.ring[s.next] = id
		s.next = (s.next + 1) % maxRecent
	}
	s.recent[id]++
}

// begin opens a request.
func (l *log) begin(s *scope, e *entry, id []byte) *open {
	for l.open >= maxOpen {
		o := l.first
		o.issue(trace.NewIssue(trace.TooManyOpen, o.req.Source.Pos, "%d later requests were open before its end was seen", maxOpen))
		l.giveUp(o)
	}
	l.seq++
	o := &open{scope: s, seq: l.seq, n: 1}
	s.in.open++
	s.in.begun++
	o.req.ID = string(id)
	o.req.Replica = replica(s.in.name)
	o.req.Source = trace.Source{Format: Format, Engine: "vllm", Pos: e.pos}
	o.req.Clock = trace.ClockUnix
	if o.same = s.live[o.req.ID]; o.same != nil {
		o.same.newer = o
		if s.equal[o.req.ID] == nil {
			s.equal[o.req.ID] = &equal{open: 1}
		}
		s.equal[o.req.ID].open++
		o.issue(trace.NewIssue(trace.RequestIDReused, e.pos, "another request of this id is open"))
	}
	s.live[o.req.ID] = o
	if o.prev = l.end; o.prev != nil {
		o.prev.next = o
	} else {
		l.first = o
	}
	l.end = o
	l.open++
	return o
}

// replica names the container: the pod of kubectl's "pod/NAME/CONTAINER".
func replica(container string) string {
	if b := []byte(container); hasPrefix(b, "pod/") {
		name, _, _ := bytes.Cut(b[4:], []byte("/"))
		return string(name)
	}
	return container
}

func (l *log) receive(s *scope, e *entry, ev *event) {
	o := s.live[string(ev.id)]
	if o == nil || !o.bare {
		o = l.begin(s, e, ev.id)
	}
	if o.bare {
		// The engine's process was quicker to write.
		o.bare = false
		o.req.Issues = slices.DeleteFunc(o.req.Issues, func(i trace.Issue) bool { return i.Code == trace.NoArrival })
	}
	o.req.Arrival = l.stamp(o, e)
	if ev.torn {
		o.issue(l.badLine(e, ev))
	}
	if ev.n > 1 {
		o.n = ev.n
		o.req.SetAttr("n", trace.IntValue(int64(ev.n)))
	}
	if ev.maxTokens >= 0 {
		o.req.MaxTokens = trace.Some(ev.maxTokens)
	}
	l.prompt(o, ev)
}

// shortest is the least --max-log-len that is looked for.
const shortest = 16

// cutShort reports whether a list of ids is likely cut by --max-log-len, which
// cuts text and ids to the same length and leaves no mark. Then no line is
// longer.
func (l *log) cutShort(ids, chars int) bool {
	longest := l.longest
	l.longest = max(longest, ids, chars)
	return ids >= shortest && ids == chars && ids >= longest
}

// prompt takes the prompt's length.
func (l *log) prompt(o *open, ev *event) {
	if !l.cutShort(ev.input, ev.inputCut) && ev.input >= 0 {
		o.req.Input = trace.Some(ev.input)
	}
}

func (l *log) add(s *scope, e *entry, ev *event) {
	o := s.find(ev.id)
	if o == nil && s.recent[string(ev.id)] > 0 {
		return
	}
	if o == nil {
		o = l.begin(s, e, s.external(ev.id, false))
		o.bare = true
		o.issue(trace.NewIssue(trace.NoArrival, e.pos, "no line of its arrival stands before"))
	}
	id := string(ev.id)
	if id == o.req.ID {
		s.plain = true
		return
	}
	s.suffixed = true
	// Of several with one id, the oldest that the engine has no id for; the
	// two lines are close together.
	for p, n := o, 0; p != nil && n < 64; p, n = p.same, n+1 {
		if len(p.internal) == 0 {
			o = p
		}
	}
	if s.internal[id] == nil && len(o.internal) < maxInternal {
		o.internal = append(o.internal, id)
		s.internal[id] = o
	}
}

// alone returns the one request that an end is of, nil where none is open.
// Where several are open under the id, it says so on each; ambiguous is true.
func (l *log) alone(s *scope, e *entry, ev *event, id []byte) (o *open, ambiguous bool) {
	if ev.twin && s.recent[string(id)] > 0 {
		return nil, true // the same end was told in the engine's words
	}
	o = s.find(id)
	if o == nil || s.internal[string(id)] == o || o.same == nil && s.live[o.req.ID] == o {
		return o, false
	}
	if ev.delta {
		return nil, true
	}
	for p := s.live[o.req.ID]; p != nil && !p.ambiguous; p = p.same { // the older ones know
		p.ambiguous = true
		p.issue(trace.NewIssue(trace.AmbiguousEnd, e.pos, "an end of this id came while several requests of it were open"))
	}
	eq := s.equal[o.req.ID]
	if !ev.twin {
		eq.ends++
	}
	if eq.ends >= eq.open {
		// As many ends as requests: all are over, at times not known apart.
		for p := s.live[o.req.ID]; p != nil; p = s.live[o.req.ID] {
			l.close(p, trace.Instant{}, trace.Incomplete)
		}
	}
	return nil, true
}

// stop ends the request of that id.
func (l *log) stop(s *scope, e *entry, ev *event, id []byte) {
	o, ambiguous := l.alone(s, e, ev, id)
	if ambiguous {
		return
	}
	if o == nil {
		ext := s.external(id, ev.list)
		if s.recent[string(id)] > 0 || s.recent[string(ext)] > 0 {
			return
		}
		o = l.begin(s, e, ext)
		o.issue(trace.NewIssue(trace.NoArrival, e.pos, "its end is in the log, its arrival is not"))
		if len(ext) != len(id) {
			o.internal = append(o.internal, string(id))
		}
	}
	outcome := outcomes[ev.kind]
	if outcome == trace.OK && s.in.death(o) != nil {
		outcome = trace.Error // V0 calls a request finished when its engine died, too
	}
	l.close(o, l.stamp(o, e), outcome)
}

var outcomes = [stopping + 1]trace.Outcome{finished: trace.OK, aborted: trace.Aborted, failed: trace.Error, refused: trace.Rejected}

func (l *log) generated(s *scope, e *entry, ev *event) {
	o, ambiguous := l.alone(s, e, ev, ev.id)
	if ambiguous {
		return
	}
	if o == nil {
		if ev.delta || s.recent[string(ev.id)] > 0 {
			return // pieces alone tell of no request: its end will
		}
		o = l.begin(s, e, ev.id)
		o.issue(trace.NewIssue(trace.NoArrival, e.pos, "its end is in the log, its arrival is not"))
	}
	if ev.torn {
		o.issue(l.badLine(e, ev))
	}
	at := l.stamp(o, e)
	if ev.delta {
		if at.Present() {
			if !o.req.FirstToken.Present() {
				o.req.FirstToken = at
			}
			o.req.LastToken = at
		}
		return
	}
	if !l.cutShort(ev.output, ev.outputCut) && ev.output >= 0 && o.outputs >= 0 {
		o.outputs += ev.output
	} else {
		o.outputs = -1
	}
	if o.ended++; o.ended < o.n {
		return
	}
	if o.outputs >= 0 {
		o.req.Output = trace.Some(o.outputs)
	}
	outcome := trace.OK
	switch reason := string(ev.reason); reason {
	case "abort":
		outcome = trace.Aborted
	case "error":
		outcome = trace.Error
	}
	if !ev.stream && string(ev.reason) != "None" {
		o.req.FinishReason = string(ev.reason)
	}
	l.close(o, at, outcome)
}

// served takes the Rust front end's one line of a request.
func (l *log) served(s *scope, e *entry, ev *event) {
	o := l.begin(s, e, ev.id)
	o.req.Issues = nil // ids of these lines may be absent, and thus the same
	o.issue(trace.NewIssue(trace.NoArrival, e.pos, "this front end logs the end of requests only"))
	if ev.input >= 0 {
		o.req.Input = trace.Some(ev.input)
	}
	o.req.Output = trace.Some(ev.output)
	o.req.Model = string(ev.model)
	o.req.FinishReason = string(ev.reason)
	if ev.stream {
		o.req.SetAttr("stream", trace.BoolValue(true))
	}
	outcome := trace.OK
	switch o.req.FinishReason {
	case "abort":
		outcome = trace.Aborted
	case "error":
		outcome = trace.Error
	}
	l.close(o, l.stamp(o, e), outcome)
}

// close ends a request, takes it off the open ones and hands it on.
func (l *log) close(o *open, at trace.Instant, outcome trace.Outcome) {
	r := &o.req
	r.FirstToken = o.after(r.FirstToken, r.Arrival, "arrival")
	r.LastToken = o.after(r.LastToken, r.FirstToken, "first token")
	if !r.FirstToken.Present() || !r.LastToken.Present() {
		r.FirstToken, r.LastToken = trace.Instant{}, trace.Instant{}
	}
	at = o.after(at, r.LastToken, "last token")
	at = o.after(at, r.Arrival, "arrival")
	if r.Completed = at; outcome == trace.OK && !at.Present() {
		outcome = trace.Incomplete
	}
	r.Outcome = outcome
	if r.Resolution == 0 {
		r.Resolution = time.Second
	}
	l.remove(o)
	l.out(held{req: r})
}

// after returns at, or the instant that it cannot be before where the clock's
// step leaves the order open. One that is earlier by more is not believed.
func (o *open) after(at, least trace.Instant, name string) trace.Instant {
	d, ok := at.Sub(least).Get()
	switch {
	case !ok || d >= 0:
		return at
	case -d < o.req.Resolution:
		return trace.At(least.At, trace.Derived)
	}
	o.issue(trace.NewIssue(trace.EndBeforeStart, o.req.Source.Pos, "a later line is stamped %v before its %s", -d, name))
	return trace.Instant{}
}

// remove takes o off the open ones.
func (l *log) remove(o *open) {
	s := o.scope
	s.in.open--
	switch {
	case o.newer != nil:
		o.newer.same = o.same
	case o.same != nil:
		s.live[o.req.ID] = o.same
	default:
		delete(s.live, o.req.ID)
	}
	if o.same != nil {
		o.same.newer = o.newer
	}
	if eq := s.equal[o.req.ID]; eq != nil {
		if eq.open--; eq.open == 0 {
			delete(s.equal, o.req.ID)
		}
	}
	for _, id := range o.internal {
		delete(s.internal, id)
		s.remember(id)
	}
	s.remember(o.req.ID)
	if o.prev != nil {
		o.prev.next = o.next
	} else {
		l.first = o.next
	}
	if o.next != nil {
		o.next.prev = o.prev
	} else {
		l.end = o.prev
	}
	l.open--
}

// giveUp hands on a request whose end is not in the log.
func (l *log) giveUp(o *open) {
	d := o.scope.in.death(o)
	if d == nil || o.seq <= d.since {
		l.close(o, trace.Instant{}, trace.Incomplete)
		return
	}
	at := d.at
	if at.Present() {
		at.Basis = trace.Derived
		o.req.Resolution = max(o.req.Resolution, d.res)
	}
	l.close(o, at, trace.Error)
}

// death returns the first death of the engine while o was running, nil where
// there was none.
func (c *container) death(o *open) *death {
	i, _ := slices.BinarySearchFunc(c.deaths, o.seq, func(d death, seq int) int { return cmp.Compare(d.seq, seq) })
	if i == len(c.deaths) {
		return nil
	}
	return &c.deaths[i]
}

// restart gives up what ran on a server that starts again.
func (l *log) restart(c *container, e *entry) {
	var lost []*open
	for _, s := range c.order {
		if hasPrefix(e.process, "ApiServer_") && c.scopes[string(e.process)] != s {
			continue
		}
		for _, o := range s.live {
			for ; o != nil; o = o.same {
				lost = append(lost, o)
			}
		}
	}
	slices.SortFunc(lost, func(a, b *open) int { return cmp.Compare(a.seq, b.seq) })
	for _, o := range lost {
		if c.death(o) == nil {
			o.issue(trace.NewIssue(trace.LostAtRestart, e.pos, "the server started again while it was open"))
		}
		l.giveUp(o)
	}
	for _, s := range c.order {
		if len(s.live) == 0 {
			clear(s.recent)
			s.ring, s.next = s.ring[:0], 0
		}
	}
	c.deaths, c.stopping = c.deaths[:0], false
	c.had, c.then, c.now = nil, mark{}, mark{}
}

// count takes note of how many requests an engine says it has.
func (l *log) count(c *container, engine string, st *stats) {
	if c.had == nil {
		c.had = map[string]int{}
	}
	if _, ok := c.had[engine]; ok || len(c.had) < maxScopes {
		c.had[engine] = st.running + st.waiting
	}
	c.then, c.now = c.now, mark{l.seq, c.begun}
}

// overBefore returns the last request that may have ended unseen before now.
// Requests since the last statistics line but one may have been too new for
// the last; where those before are more than the engines had, it is not known
// which of them are over.
func (c *container) overBefore() int {
	had := 0
	for _, n := range c.had {
		had += n
	}
	if c.had == nil || c.open-(c.begun-c.then.begun) <= had {
		return 0
	}
	return c.then.seq
}

func (l *log) reading(c *container, e *entry, ev *event) {
	if l.readings++; l.readings == 1 {
		l.readingAt = e.pos
	}
	st := &ev.stats
	engine := ""
	if st.engine >= 0 {
		engine = "engine " + strconv.Itoa(st.engine)
	} else if st.engines > 0 {
		engine = strconv.Itoa(st.engines) + " engines"
	}
	l.count(c, engine, st)
	if l.opts.Reading == nil {
		return
	}
	at, ok := l.instant(e)
	if !at.Present() {
		if !ok {
			if l.noDate++; l.noDate == 1 {
				l.noDateAt = e.pos
			}
		}
		return
	}
	name := replica(c.name)
	if name != "" && engine != "" {
		name += " "
	}
	r := trace.Reading{
		Source:  trace.Source{Format: Format, Engine: "vllm", Pos: e.pos},
		Replica: name + engine, Clock: trace.ClockUnix, Resolution: e.at.res, At: at.At,
		Running: trace.Some(st.running), Waiting: trace.Some(st.waiting),
		KVUsage:    trace.Some(st.kv),
		PromptRate: trace.Some(st.prompt), OutputRate: trace.Some(st.output),
	}
	if st.prefix >= 0 {
		r.PrefixHit = trace.Some(st.prefix)
	}
	if st.preemptions >= 0 {
		r.Preemptions = trace.Some(st.preemptions)
	}
	l.out(held{reading: r})
}

// out hands on a request or a reading, or holds it back until the year of its
// instants is known.
func (l *log) out(h held) {
	if l.stopped {
		return
	}
	if l.waiting {
		if l.held = append(l.held, h); len(l.held) >= maxHeld {
			l.settle()
		}
		return
	}
	switch {
	case h.limits != nil:
		l.opts.Limits(*h.limits)
		return
	case h.req == nil:
		l.opts.Reading(h.reading)
		return
	}
	finishDecode(h.req)
	if !l.yield(h.req, nil) {
		l.stopped = true
	}
}

// finishDecode claims the time between the first and the last delta.
func finishDecode(r *trace.Request) {
	if d, ok := r.LastToken.Sub(r.FirstToken).Get(); ok && d > 0 {
		r.Intervals = append(r.Intervals, trace.Interval{Phase: trace.Decode, Basis: trace.Measured, Start: r.FirstToken.At, End: r.LastToken.At})
	}
}

// settle fixes the year, makes instants of all places in the log's calendar
// and hands on what was held back.
func (l *log) settle() {
	why := l.clock.decide()
	l.waiting = false
	if why != "" {
		l.once(trace.NewIssue(trace.YearAssumed, trace.Pos{File: l.opts.File}, "%s", why))
	}
	for o := l.first; o != nil; o = o.next {
		l.date(&o.req)
	}
	for _, c := range l.order {
		for i := range c.deaths {
			l.place(&c.deaths[i].at)
		}
		if c.start != nil {
			l.place(&c.start.at)
		}
	}
	all := l.held
	l.held = nil
	for _, h := range all {
		if h.req != nil {
			l.date(h.req)
		} else if h.limits != nil {
			l.place(&h.limits.At)
		} else if t, ok := l.clock.at(int64(h.reading.At)); ok {
			h.reading.At = t
		} else {
			if l.noDate++; l.noDate == 1 {
				l.noDateAt = h.reading.Source.Pos
			}
			continue
		}
		l.out(h)
	}
}

// date makes instants of a request's places in the log's calendar.
func (l *log) date(r *trace.Request) {
	for _, in := range [...]*trace.Instant{&r.Arrival, &r.FirstToken, &r.LastToken, &r.Completed} {
		if !l.place(in) {
			addIssue(r, trace.NewIssue(trace.ImpossibleDate, r.Source.Pos, "a stamp is no date of its year"))
		}
	}
	if r.Outcome == trace.OK && !r.Completed.Present() {
		r.Outcome = trace.Incomplete
	}
	if !r.FirstToken.Present() || !r.LastToken.Present() {
		r.FirstToken, r.LastToken = trace.Instant{}, trace.Instant{}
	}
}

// place makes an instant of a place in the log's calendar; ok is false where it
// is no date.
func (l *log) place(in *trace.Instant) (ok bool) {
	if !in.Present() {
		return true
	}
	if in.At, ok = l.clock.at(int64(in.At)); !ok {
		*in = trace.Instant{}
	}
	return ok
}

// finish ends the log.
func (l *log) finish() {
	l.unwrap.finish()
	for l.first != nil && !l.stopped {
		l.giveUp(l.first)
	}
	for _, c := range l.order {
		l.started(c)
	}
	if l.waiting && !l.stopped {
		l.settle()
	}
	file := trace.Pos{File: l.opts.File}
	if l.noDate > 0 {
		l.issue(trace.NewIssue(trace.ImpossibleDate, l.noDateAt, "%d statistics lines have a stamp that is no date of its year; they were left out", l.noDate))
	}
	if l.clock.byAnchor {
		l.once(trace.NewIssue(trace.YearAssumed, file, "%s", yearOfOuter))
	}
	if l.clock.usedZone && l.opts.Zone == nil {
		l.once(trace.NewIssue(trace.ZoneAssumed, file, "stamps without a time zone were read as UTC"))
	}
	if l.clock.backwards > 0 {
		l.issue(trace.NewIssue(trace.ClockBackwards, file, "lines stamped earlier than the one before by more than the clock's step: %d", l.clock.backwards))
	}
	if l.requests == 0 && l.readings > 0 {
		l.issue(trace.NewIssue(trace.RequestLoggingOff, l.readingAt, "statistics lines: %d, request lines: none; request logging was off", l.readings))
	}
	if l.foreign > 0 {
		l.issue(trace.NewIssue(trace.ForeignLine, l.foreignAt, "the first of %d that are not vLLM's", l.foreign))
	}
}
