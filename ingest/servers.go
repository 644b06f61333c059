package ingest

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// Where there are several inputs, what logs tell is held until all are read.
// Only then is it known whose log each is: a log and spans of one server tell
// of the same requests, rotated parts of a log are one server's, others are
// different servers'. A log names none of these but its containers.

// Bounds of what is held. Beyond them logs are read as they come.
var (
	maxLogged   = 1 << 18 // requests
	maxReadings = 1 << 20
	maxPlaces   = 1 << 12 // services and replicas of spans
)

// logged is what one log tells.
type logged struct {
	file     string
	requests []*trace.Request
	readings []trace.Reading
	limits   []trace.EngineLimits

	from, to trace.Time // of what has a time
	dated    bool
}

func (l *logged) see(t trace.Time) {
	if !l.dated {
		l.from, l.to, l.dated = t, t, true
	}
	l.from, l.to = min(l.from, t), max(l.to, t)
}

// place is where requests of spans say that they ran.
type place struct{ service, replica string }

// seen is what is kept of the spans' requests of one id.
type seen struct {
	arrival trace.Time // of the first
	place   int32
	n       int32
}

// logs joins logs with each other and with spans.
type logs struct {
	held     []*logged
	requests int
	readings int
	stopped  bool // beyond the bounds

	places []place
	models []string // of the places; "" where there are several, or none
	index  map[place]int32
	ids    map[string]seen
	beyond bool // not all ids are kept
	noID   int  // requests of spans without an id
}

// keep takes what a log tells: it holds it, or hands it on where it need not.
type keep struct {
	run *run
	*logged
}

// hold begins to hold what the log in a file tells.
func (run *run) hold(file string) keep {
	k := keep{run: run}
	if run.several && !run.logs.stopped {
		k.logged = &logged{file: file}
		run.logs.held = append(run.logs.held, k.logged)
	}
	return k
}

func (k keep) holds() bool { return k.logged != nil && !k.run.logs.stopped }

func (k keep) reading(r trace.Reading) {
	g := &k.run.logs
	if !k.holds() {
		if k.run.opts.Reading != nil {
			k.run.opts.Reading(r)
		}
		return
	}
	k.see(r.At)
	k.readings = append(k.readings, r)
	if g.readings++; g.readings > maxReadings {
		k.run.release()
	}
}

func (k keep) limit(l trace.EngineLimits) {
	switch {
	case k.holds():
		k.limits = append(k.limits, l)
	case k.run.opts.Limits != nil:
		k.run.opts.Limits(l)
	}
}

func (k keep) request(r *trace.Request) bool {
	g := &k.run.logs
	if !k.holds() {
		return k.run.give(r, nil)
	}
	for _, i := range []trace.Instant{r.Arrival, r.Completed} {
		if t, ok := i.Get(); ok {
			k.see(t)
		}
	}
	k.requests = append(k.requests, r)
	if g.requests++; g.requests > maxLogged {
		return k.run.release()
	}
	return true
}

// release hands on what is held, since it is too much.
func (run *run) release() bool {
	g := &run.logs
	held := g.held
	g.held, g.stopped = nil, true
	for _, l := range held {
		for _, t := range l.limits {
			if run.opts.Limits != nil {
				run.opts.Limits(t)
			}
		}
		for _, r := range l.readings {
			if run.opts.Reading != nil {
				run.opts.Reading(r)
			}
		}
		for _, r := range l.requests {
			if !run.give(r, nil) {
				return false
			}
		}
	}
	return true
}

// span takes note of a request that spans tell of.
func (g *logs) span(r *trace.Request) {
	if r.ID == "" {
		g.noID++
	}
	// The texts may be slices of a whole record.
	p := place{r.Service, r.Replica}
	n, ok := g.index[p]
	switch {
	case !ok && len(g.places) >= maxPlaces:
		g.beyond = true
		return
	case !ok:
		if g.index == nil {
			g.index, g.ids = map[place]int32{}, map[string]seen{}
		}
		n = int32(len(g.places))
		p = place{strings.Clone(r.Service), strings.Clone(r.Replica)}
		g.places, g.models, g.index[p] = append(g.places, p), append(g.models, strings.Clone(r.Model)), n
	case g.models[n] != r.Model:
		g.models[n] = ""
	}
	if r.ID == "" {
		return
	}
	s, ok := g.ids[r.ID]
	if !ok {
		if len(g.ids) >= maxLogged {
			g.beyond = true
			return
		}
		s = seen{r.Arrival.At, n, 0}
	}
	s.n++
	g.ids[strings.Clone(r.ID)] = s
}

// server is one that logs tell of.
type server struct {
	name    string // of its container; "": not told
	file    string // the first of its log, where no line names it
	stem    string // what its parts' names share, likewise
	label   string // the name that stands for it, likewise, where one is needed
	engines map[string]bool
	joined  map[int32]int // requests that spans of a place tell of too
	left    int           // requests that they do not
	states  bool          // it says something of its engines

	place    int32            // the replica of the spans that it is; -1: not known
	several  bool             // it shares the place, or has several engines
	numbered map[string]int32 // the replicas that its engines are
}

// split takes the engine's own name off a reading's replica.
var split = regexp.MustCompile(`^(.*?) ?(engine \d+|\d+ engines)?$`)

func engineOf(replica string) (container, engine string) {
	if !strings.Contains(replica, "engine") {
		return replica, "" // as nearly all are
	}
	m := split.FindStringSubmatch(replica)
	if m == nil {
		return replica, ""
	}
	return m[1], m[2]
}

// rotated is what rotation and compression add to the name of a log.
var rotated = regexp.MustCompile(`(?i)(\.(gz|zst|zstd)|[.-]\d{4}-?\d{2}-?\d{2}([T_.-]?\d{2}[:.-]?\d{2}[:.-]?\d{2})?(\.\d+)?|\.\d{1,10})$`)

// stem is the name that all parts of a rotated log share.
func stem(file string) string {
	file = filepath.ToSlash(file)
	dir, base := path.Split(file)
	for {
		loc := rotated.FindStringIndex(base)
		if loc == nil || loc[0] == 0 {
			break
		}
		base = base[:loc[0]]
	}
	if s := strings.TrimSuffix(base, ".log"); strings.Trim(s, "0123456789") == "" && dir != "" {
		base = "" // as the kubelet names them: 0.log, 1.log after a restart
	}
	return dir + base
}

// settle finds out whose logs were read and hands on what they tell.
func (run *run) settle() {
	g := &run.logs
	if g.stopped && len(g.places) > 0 {
		is := trace.NewIssue(trace.TooManyOpen, trace.Pos{}, "logs of more than %d requests or %d readings were not joined with the spans: what both tell of counts twice", maxLogged, maxReadings)
		run.issue(&is)
	}
	if g.beyond && len(g.held) > 0 {
		is := trace.NewIssue(trace.TooManyOpen, trace.Pos{}, "the ids of more than %d requests of spans were not kept: what logs tell of them may count twice", maxLogged)
		run.issue(&is)
	}
	if len(g.held) == 0 {
		return
	}
	run.same()
	of := g.servers()
	servers := slices.Compact(slices.SortedFunc(maps.Values(of), func(a, b *server) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.file, b.file))
	}))
	g.resume(of)
	for _, l := range g.held {
		run.join(l, of)
		if n := len(l.requests); n > 0 && g.noID > 0 {
			is := trace.NewIssue(trace.MayCountTwice, trace.Pos{File: l.file}, "no span has the id of %d of its requests, and %d requests of spans have no id: those of them that are the same count twice", n, g.noID)
			run.issue(&is)
		}
		for _, r := range l.requests {
			s, _ := g.of(of, l, r.Replica)
			s.left++
		}
	}
	run.place(servers)
	run.name(servers)
	for _, l := range g.held {
		for _, t := range l.limits {
			if run.opts.Limits == nil {
				break
			}
			s, engine := g.of(of, l, t.Replica)
			if engine == "" && s.numbered != nil { // of all its engines
				for _, e := range slices.Sorted(maps.Keys(s.numbered)) {
					t.Service, t.Replica = run.at(s, e)
					run.opts.Limits(t)
				}
				continue
			}
			t.Service, t.Replica = run.at(s, engine)
			run.opts.Limits(t)
		}
		for _, r := range l.readings {
			s, engine := g.of(of, l, r.Replica)
			if r.Service, r.Replica = run.at(s, engine); run.opts.Reading != nil {
				run.opts.Reading(r)
			}
		}
	}
	for _, l := range g.held {
		for _, r := range l.requests {
			s, _ := g.of(of, l, r.Replica)
			switch {
			case s.place >= 0:
				p := g.places[s.place]
				r.Service, r.Replica = p.service, p.replica
				r.Model = cmp.Or(r.Model, g.models[s.place])
			case s.name == "":
				r.Replica, r.ReplicaInferred = s.label, s.label != ""
			}
			if !run.give(r, nil) {
				return
			}
		}
	}
}

type logKey struct{ container, file string }

// of returns the server that a name in a log stands for, and its engine.
func (g *logs) of(of map[logKey]*server, l *logged, replica string) (*server, string) {
	container, engine := engineOf(replica)
	k := logKey{container: container}
	if container == "" {
		k.file = l.file
	}
	return of[k], engine
}

// servers tells servers apart: by the container's name; without one, parts of
// a rotated log are one server's if they do not overlap in time, other files
// are different servers'.
func (g *logs) servers() map[logKey]*server {
	of := map[logKey]*server{}
	parts := map[string][]*logged{}
	var stems []string
	add := func(l *logged, replica string) *server {
		container, engine := engineOf(replica)
		k := logKey{container: container}
		if container == "" {
			k.file = l.file
		}
		s := of[k]
		if s == nil {
			s = &server{name: container, file: k.file, stem: filepath.ToSlash(k.file), engines: map[string]bool{}, joined: map[int32]int{}, place: -1}
			of[k] = s
			if container == "" {
				name := stem(l.file)
				if parts[name] == nil {
					stems = append(stems, name)
				}
				parts[name] = append(parts[name], l)
			}
		}
		if engine != "" {
			s.engines[engine] = true
		}
		return s
	}
	for _, l := range g.held {
		for _, r := range l.requests {
			add(l, r.Replica)
		}
		for _, r := range l.readings {
			add(l, r.Replica).states = true
		}
		for _, t := range l.limits {
			add(l, t.Replica).states = true
		}
	}
	for _, name := range stems {
		files := parts[name]
		slices.SortStableFunc(files, func(a, b *logged) int { return cmp.Compare(a.from, b.from) })
		apart := false
		for i := 1; i < len(files); i++ {
			apart = apart || files[i].dated && files[i-1].dated && files[i].from < files[i-1].to.Add(-time.Second)
		}
		if apart {
			continue
		}
		first := of[logKey{file: files[0].file}]
		first.stem = name
		for _, l := range files[1:] {
			s := of[logKey{file: l.file}]
			maps.Copy(first.engines, s.engines)
			first.states = first.states || s.states
			of[logKey{file: l.file}] = first
		}
	}
	return of
}

// resume joins a request that was open at the end of one part of a log with
// its end in the next.
func (g *logs) resume(of map[logKey]*server) {
	type key struct {
		s  *server
		id string
	}
	order := slices.Clone(g.held)
	slices.SortStableFunc(order, func(a, b *logged) int { return cmp.Compare(a.from, b.from) })
	open := map[key]*trace.Request{}
	for _, l := range order {
		var kept []*trace.Request
		for _, r := range l.requests {
			s, _ := g.of(of, l, r.Replica)
			k := key{s, r.ID}
			if o := open[k]; o != nil && !r.Arrival.Present() && r.Source.Pos.File != o.Source.Pos.File {
				if d, ok := r.Completed.Sub(o.Arrival).Get(); ok && d >= 0 {
					o.Completed, o.Outcome, o.FinishReason = r.Completed, r.Outcome, r.FinishReason
					o.Resolution = max(o.Resolution, r.Resolution)
					if !o.Output.Present() {
						o.Output = r.Output
					}
					delete(open, k)
					continue
				}
			}
			kept = append(kept, r)
		}
		l.requests = kept
		for _, r := range l.requests {
			if r.Outcome == trace.Incomplete && r.Arrival.Present() && !r.Completed.Present() {
				s, _ := g.of(of, l, r.Replica)
				open[key{s, r.ID}] = r
			}
		}
	}
}

// zoneOff is by how much a log's stamps may differ from the spans' before it
// is said.
const zoneOff = time.Minute

// join leaves out the requests of a log that spans tell of too, which say all
// that it says and more.
func (run *run) join(l *logged, of map[logKey]*server) {
	g := &run.logs
	byID := map[string][]*trace.Request{}
	for _, r := range l.requests {
		if s, ok := g.ids[r.ID]; ok && s.n > 0 {
			byID[r.ID] = append(byID[r.ID], r)
		}
	}
	if len(byID) == 0 {
		return
	}
	drop := map[*trace.Request]bool{}
	var off []time.Duration
	for _, r := range l.requests {
		rs := byID[r.ID]
		if len(rs) == 0 || rs[0] != r { // once an id
			continue
		}
		spans := g.ids[r.ID]
		away := func(r *trace.Request) time.Duration {
			if !r.Arrival.Present() {
				return 1 << 62
			}
			return r.Arrival.At.Sub(spans.arrival).Abs()
		}
		// Of more than there are spans those that an engine writes no span
		// for stay, and then those that are farthest away.
		slices.SortStableFunc(rs, func(a, b *trace.Request) int {
			return cmp.Or(cmp.Compare(rank(a.Outcome), rank(b.Outcome)), cmp.Compare(away(a), away(b)))
		})
		for _, r := range rs[:min(len(rs), int(spans.n))] {
			drop[r] = true
			s, _ := g.of(of, l, r.Replica)
			s.joined[spans.place]++
			if r.Arrival.Present() && len(rs) == 1 {
				off = append(off, r.Arrival.At.Sub(spans.arrival))
			}
		}
		spans.n -= int32(min(len(rs), int(spans.n)))
		g.ids[r.ID] = spans
	}
	l.requests = slices.DeleteFunc(l.requests, func(r *trace.Request) bool { return drop[r] })
	is := trace.NewIssue(trace.LogAndSpan, trace.Pos{File: l.file}, "spans tell of %d of its requests too: the spans count", len(drop))
	run.issue(&is)
	if len(off) > 0 {
		slices.Sort(off)
		if d := off[len(off)/2]; d.Abs() > zoneOff {
			is := trace.NewIssue(trace.LogClock, trace.Pos{File: l.file}, "its stamps are %v off the spans' of the same requests", d.Round(time.Second))
			run.issue(&is)
		}
	}
}

// rank puts first what spans are written for.
func rank(o trace.Outcome) int {
	switch o {
	case trace.Aborted, trace.Rejected:
		return 2
	case trace.Error:
		return 1
	}
	return 0
}

// place finds the replicas of the spans that servers are.
func (run *run) place(servers []*server) {
	g := &run.logs
	if len(g.places) == 0 {
		return
	}
	taken := map[int32]int{}
	for _, s := range servers {
		switch {
		case len(s.joined) == 1:
			for p := range s.joined {
				s.place = p
			}
		case len(s.joined) > 1:
		case len(servers) == 1 && len(g.places) == 1 && (s.left == 0 || len(g.ids) == 0):
			s.place = 0
		default:
			for i, p := range g.places {
				if p.replica != "" && p.replica == cmp.Or(s.name, fileName(s.stem)) {
					if s.place >= 0 {
						s.place = -1
						break
					}
					s.place = int32(i)
				}
			}
		}
		if s.place >= 0 {
			taken[s.place]++
		}
	}
	for _, s := range servers {
		if why := g.unmatched(s, taken); why != "" && (s.states || s.left > 0 && len(s.joined) == 0) {
			is := trace.NewIssue(trace.EngineUnmatched, trace.Pos{File: s.file}, "%s: what it says of limits and of running and waiting requests is not used at a replica", why)
			run.issue(&is)
		}
	}
}

// unmatched says why what a server says of its engines cannot be set beside a
// replica of the spans; "" where it can.
func (g *logs) unmatched(s *server, taken map[int32]int) string {
	who := "the log"
	if s.name != "" {
		who = fmt.Sprintf("%.80q", s.name)
	}
	switch {
	case s.place < 0:
		if s.numbered = g.numbered(s); s.numbered != nil {
			return ""
		}
		if len(s.joined) == 0 && s.left > 0 && len(g.ids) > 0 {
			return fmt.Sprintf("none of the %d requests of %s is in the spans, by its id; if it is of one of their replicas, requests count twice", s.left, who)
		}
		return fmt.Sprintf("%s is none of the spans' %d replicas for certain", who, len(g.places))
	case taken[s.place] > 1:
		s.several = true
		return fmt.Sprintf("%s is one of %d servers that are one replica in the spans", who, taken[s.place])
	case len(s.engines) > 1:
		s.several = true
		return fmt.Sprintf("%s is of several engines that are one replica in the spans", who)
	}
	for e := range s.engines {
		if strings.HasSuffix(e, " engines") {
			s.several = true
			return fmt.Sprintf("%s is of %s that are one replica in the spans", who, e)
		}
	}
	return ""
}

// numbered finds the replicas of data-parallel engines: as many as there are,
// of one service, whose names end in their numbers.
func (g *logs) numbered(s *server) map[string]int32 {
	if len(s.engines) < 2 || len(s.engines) != len(g.places) || len(s.joined) > 0 && len(s.joined) != len(g.places) {
		return nil
	}
	out := map[string]int32{}
	for i, p := range g.places {
		head := strings.TrimRight(p.replica, "0123456789")
		n, err := strconv.Atoi(p.replica[len(head):])
		e := "engine " + strconv.Itoa(n)
		if err != nil || p.service != g.places[0].service || head != strings.TrimRight(g.places[0].replica, "0123456789") || !s.engines[e] {
			return nil
		}
		out[e] = int32(i)
	}
	if len(out) != len(s.engines) {
		return nil
	}
	return out
}

// name gives servers that are no replica of the spans, and that no line names,
// the name of their file, where there are several.
func (run *run) name(servers []*server) {
	if len(servers) < 2 {
		return
	}
	uses := map[string]int{}
	for _, s := range servers {
		uses[cmp.Or(s.name, fileName(s.stem))]++
	}
	for _, s := range servers {
		if s.name != "" || s.place >= 0 || s.numbered != nil {
			continue
		}
		s.label = fileName(s.stem)
		if uses[s.label] > 1 {
			s.label = strings.TrimSuffix(s.stem, "/")
		}
		is := trace.NewIssue(trace.ReplicaInferred, trace.Pos{File: s.file}, "no line names the server: it is called %.80q after its file", s.label)
		run.issue(&is)
	}
}

// fileName is the name of a log without its folder and suffix, or of its
// folder where all but a number is suffix.
func fileName(stem string) string {
	dir, base := path.Split(stem)
	if base == "" {
		base = path.Base(dir)
	}
	if ext := path.Ext(base); ext != base {
		base = strings.TrimSuffix(base, ext)
	}
	return base
}

// at is the service and replica of a server's engine.
func (run *run) at(s *server, engine string) (service, replica string) {
	g := &run.logs
	if i, ok := s.numbered[engine]; ok {
		return g.places[i].service, g.places[i].replica
	}
	if s.place >= 0 && !s.several {
		return g.places[s.place].service, g.places[s.place].replica
	}
	return "", strings.TrimSpace(cmp.Or(s.name, s.label) + " " + engine)
}
