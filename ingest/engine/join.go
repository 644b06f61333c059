package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/traceview/traceview/trace"
)

// maxOpen is the default of Options.MaxOpen.
const maxOpen = 4 << 20

// Builder joins spans to requests. A span that tells all by itself gives its
// request at once; all others wait until Finish for their parents and children,
// which may come in any order and from any file.
type Builder struct {
	max       int
	held      int
	groups    map[string]*group
	order     []*group // by the first span's coming
	seen      ledger
	resources map[*trace.Resource]*resource
	texts     map[string]string
	fields    fields       // of the request being built
	attrs     []trace.Attr // likewise
	one       node         // of the span at hand
	rooms     map[string]*group
	steps     map[[2]string]*node // of decoding, by trace and parent
	nested    *nested             // the place of the request that was built last, in the span around it
	clocks    clocks
	packed    texts  // in what is packed
	packing   []byte // room for the span at hand
	memory    int64  // bytes that may wait packed; 0: any number
	waiting   int64  // that do
	file      *spillFile
	err       error
	stopped   bool
	yield     func(*trace.Request, *trace.Issue) bool
}

// group is what is held of one trace, or of several that share a request.
type group struct {
	id        string
	data      []byte   // its spans, packed
	spilled   []extent // those that came before
	nodes     []*node  // those that are not
	size      int      // of both together
	resources []*resource
	also      []string // the other traces
	rooms     []string
	steps     [][2]string
}

// NewBuilder returns a Builder without spans.
func NewBuilder(o Options) *Builder {
	if o.MaxOpen <= 0 {
		o.MaxOpen = maxOpen
	}
	return &Builder{
		max: o.MaxOpen, memory: o.Memory, groups: map[string]*group{}, seen: newLedger(max(o.MaxOpen, 1<<16)),
		resources: map[*trace.Resource]*resource{}, texts: map[string]string{},
		rooms: map[string]*group{}, steps: map[[2]string]*node{},
	}
}

// Add takes the next span. What is complete by it goes to yield, of which
// exactly one argument is not nil; an issue given to yield belongs to no
// request. The issues that s itself carries go with its request, or to yield
// where it is none. Add keeps parts of s, but not s. It returns false once
// yield has: nothing more will be yielded then.
func (b *Builder) Add(s *trace.Span, yield func(*trace.Request, *trace.Issue) bool) bool {
	b.yield = yield
	if b.stopped {
		return false
	}
	if isStep(s) && s.TraceID != "" && s.ParentID != "" {
		b.foldStep(s)
		return !b.stopped
	}
	n := &b.one
	b.fill(n, s)
	if s.TraceID == "" || s.SpanID == "" {
		n.issues = append(n.issues[:len(n.issues):len(n.issues)], trace.NewIssue(trace.MissingIDs, n.pos, "has no trace or span id"))
		b.single(n, isStartup(s))
		return !b.stopped
	}
	now := n.alone()
	if code, drop := b.seen.meet(s, now); code != "" {
		b.tell(trace.NewIssue(code, s.Pos, "span %.40s of trace %.40s %s", s.SpanID, s.TraceID, met[code]))
		if drop {
			return !b.stopped
		}
	}
	switch {
	case isStartup(s):
	case now:
		b.send(b.build(n, family{single: true}))
	default:
		b.hold(n)
	}
	return !b.stopped
}

var met = map[trace.Code]string{
	trace.DuplicateSpan:   "came before, the same",
	trace.ConflictingSpan: "came before with other content",
	trace.SpanIDReused:    "came before for another time",
}

// Finish closes all traces and yields what they hold. It returns false if
// yield has.
func (b *Builder) Finish(yield func(*trace.Request, *trace.Issue) bool) bool {
	b.yield = yield
	for !b.stopped && len(b.order) > 0 {
		b.close()
	}
	if b.stopped {
		return false
	}
	b.settle()
	return !b.stopped
}

// send yields r, which was just built, or queues it behind others that wait
// for the clocks of the spans around them.
func (b *Builder) send(r *trace.Request) {
	n := b.nested
	b.nested = nil
	if n != nil {
		b.clocks.see(r, n)
	}
	if n != nil || len(b.clocks.queue) > 0 {
		b.clocks.queue = append(b.clocks.queue, queued{r: r, in: n})
		return
	}
	if !b.stopped && !b.yield(r, nil) {
		b.stopped = true
	}
}

func (b *Builder) tell(i trace.Issue) {
	if len(b.clocks.queue) > 0 {
		b.clocks.queue = append(b.clocks.queue, queued{is: &i})
		return
	}
	if !b.stopped && !b.yield(nil, &i) {
		b.stopped = true
	}
}

// single handles a span that cannot be joined with others.
func (b *Builder) single(n *node, startup bool) {
	switch {
	case startup:
		return
	case n.engine != "":
	case n.parentID == "", n.kind == trace.KindServer:
		n.engine = unknown
	default:
		for _, i := range n.issues {
			b.tell(i)
		}
		return
	}
	b.send(b.build(n, family{single: true}))
}

// hold keeps n until its trace is closed. It returns what is kept; nil where
// that is packed.
func (b *Builder) hold(n *node) *node {
	g := b.groups[n.traceID]
	if g == nil {
		g = &group{id: strings.Clone(n.traceID)} // it may be a piece of much more
		b.groups[g.id] = g
		b.order = append(b.order, g)
	}
	var kept *node
	if packs(g, n) {
		b.pack(g, n)
	} else {
		kept = b.keep(g, n)
	}
	if n.half != noHalf && n.sgl != nil && n.sgl.room != "" {
		g = b.meet(g, n.sgl.room)
	}
	if n.sgl != nil && n.sgl.stage == "decode_loop" {
		g.steps = append(g.steps, [2]string{kept.traceID, kept.parentID})
	}
	if b.memory > 0 && b.waiting > b.memory {
		if err := b.spill(); err != nil {
			b.fail(err)
			return kept
		}
	}
	for b.held++; b.held > b.max && !b.stopped; {
		if g := b.order[0]; g.size > 0 {
			nodes := b.all(g)
			if b.stopped {
				break
			}
			b.tell(trace.NewIssue(trace.TooManyOpen, nodes[0].pos, "trace %.40s closed with %d of its spans: %d are held", g.id, g.size, b.max))
		}
		b.close()
		if len(b.clocks.queue) > max(b.max/16, minQueue) {
			b.settle()
		}
	}
	return kept
}

// keep adds n to g as it is.
func (b *Builder) keep(g *group, n *node) *node {
	kept := *n
	if n.traceID == g.id {
		kept.traceID = g.id
	}
	kept.attrs, kept.marks = slices.Clone(n.attrs), slices.Clone(n.marks)
	g.nodes = append(g.nodes, &kept)
	g.data = append(g.data, 0)
	b.waiting++
	g.size++
	return &kept
}

// meet joins g with the trace that has a request of the same room. It returns
// what they are one in.
func (b *Builder) meet(g *group, room string) *group {
	other := b.rooms[room]
	switch {
	case other == nil:
		b.rooms[room] = g
		g.rooms = append(g.rooms, room)
	case other != g:
		if other.size < g.size {
			g, other = other, g
		}
		// The smaller one, g, goes into the other; its place in the order stays empty.
		other.nodes = append(b.all(other), b.all(g)...)
		b.waiting -= int64(len(other.data) + len(g.data))
		other.data, other.spilled, other.size, other.resources = make([]byte, len(other.nodes)), nil, len(other.nodes), nil
		b.waiting += int64(len(other.data))
		other.also = append(append(other.also, g.id), g.also...)
		other.rooms = append(other.rooms, g.rooms...)
		other.steps = append(other.steps, g.steps...)
		for _, id := range append(g.also, g.id) {
			b.groups[id] = other
		}
		for _, room := range g.rooms {
			b.rooms[room] = other
		}
		*g = group{id: g.id}
		return other
	}
	return g
}

// link is a node's place in its trace. Indices are of nodes; -1: none.
type link struct {
	parent, child, next int32
	owner               int32 // the nearest request at or above
	top                 int32 // at or above: the outermost span that may be used, for what is below
	request             int32 // at or below: the first request
	below               int32 // number of requests at or below
	phases              int32 // of a request: its last phase span, the others by nextPhase
	nextPhase           int32
	gates, nextGate     int32       // likewise: the spans in front of the engine on which it may have waited
	near                int32       // the nearest span at or above that has a request at or below it
	mixed               bool        // the requests at or below are not one
	above               trace.Phase // the nearest phase span above, below the owner
	odd                 trace.Code  // what is wrong with the link to its parent
	half                half        // which of two engines it is of, by itself or what is above
	into, from          int32       // of the halves of a request: the one that goes on, and the one before
	alone               bool        // a half whose other one is known to be missing
	halved              bool        // a half that goes on elsewhere is at or below
	covered             bool        // it or a span above is below one whose request was yielded
	nested              bool        // it reads as a request, but another above or below it counts
	served              bool        // a server span is above
}

// close builds the oldest trace's requests and forgets it.
func (b *Builder) close() {
	g := b.order[0]
	b.order[0] = nil
	b.order = b.order[1:]
	if g.size == 0 {
		return // it went into another
	}
	delete(b.groups, g.id)
	for _, id := range g.also {
		delete(b.groups, id)
	}
	for _, room := range g.rooms {
		delete(b.rooms, room)
	}
	for _, k := range g.steps {
		delete(b.steps, k)
	}
	b.held -= g.size

	nodes := b.all(g)
	b.waiting -= int64(len(g.data))
	if b.stopped {
		return
	}
	slices.SortStableFunc(nodes, func(x, y *node) int {
		return cmp.Or(cmp.Compare(x.start.Or(0), y.start.Or(0)), cmp.Compare(x.spanID, y.spanID),
			cmp.Compare(x.end.Or(0), y.end.Or(0)), cmp.Compare(x.name, y.name))
	})
	links := b.link(nodes, len(g.also) > 0)
	order := topDown(links)

	for _, i := range order {
		l, n := &links[i], nodes[i]
		l.owner = -1
		if p := l.parent; p >= 0 {
			l.owner, l.covered = links[p].owner, links[p].covered
			l.served = links[p].served || nodes[p].kind == trace.KindServer
			l.half = links[p].half
			if l.odd == "" {
				l.odd = links[p].odd
			}
		}
		if n.half != noHalf {
			l.half = n.half
		}
		if l.covered {
			l.nested = n.engine != "" && n.hasLatency()
			n.engine, n.phase = "", 0
		}
		if n.engine != "" {
			l.owner = i
		}
		// Prefill and decode below a span of no engine make it a request's.
		if n.phase&(trace.Prefill|trace.Decode) != 0 && l.owner < 0 {
			if p := l.parent; p >= 0 && nodes[p].phase == 0 && !nodes[p].apart && nodes[p].kind != trace.KindClient {
				nodes[p].engine, nodes[p].sample = phaseSpans, sampled(nodes[p])
			}
		}
	}
	engines, gates := false, false
	for i, n := range nodes {
		engines = engines || n.engine != ""
		gates = gates || n.gate != nil && !links[i].covered
	}
	if !engines {
		for i, n := range nodes {
			if n.client != nil && !links[i].covered {
				n.engine, n.sample = n.client.engine, ""
			}
		}
	}
	pair(nodes, links, order)
	for _, i := range slices.Backward(order) {
		// Of nested requests the innermost counts; a span around several that
		// has no latencies of its own is none.
		l, n := &links[i], nodes[i]
		if n.engine != "" {
			switch {
			case l.into >= 0:
				l.halved = true // it counts where the other half does
			case l.below == 0 && l.halved:
				n.engine = ""
			case l.below == 0:
				l.below, l.request = 1, i
			case l.mixed && n.hasLatency():
				l.below++
			default:
				// A layer without figures and with no id but the request's
				// is no request that went missing.
				l.nested = n.hasLatency() || n.sample != "" && nodes[l.request].sample != "" && n.sample != nodes[l.request].sample
				n.engine = ""
			}
		}
		if p := l.parent; p >= 0 {
			links[p].halved = links[p].halved || l.halved
		}
		if p := l.parent; p >= 0 && l.below > 0 {
			up := &links[p]
			if up.request < 0 {
				up.request, up.mixed = l.request, l.mixed
			} else {
				up.mixed = up.mixed || l.mixed || !oneRequest(nodes[up.request], nodes[l.request])
			}
			up.below += l.below
		}
	}
	for _, i := range order {
		l, n := &links[i], nodes[i]
		var up *link
		l.owner = -1
		if l.parent >= 0 {
			up = &links[l.parent]
			l.owner, l.top = up.owner, up.top
			if l.owner != l.parent {
				if l.above = nodes[l.parent].phase; l.above == 0 {
					l.above = up.above
				}
			}
		}
		if n.engine != "" {
			l.owner = i
			continue
		}
		if n.sgl != nil && up != nil {
			threads(n, nodes[l.parent], l.owner, nodes)
		}
		if l.top < 0 && n.outer && l.below > 0 && !l.mixed {
			l.top = i
		}
		if o := l.owner; n.phase != 0 && o >= 0 && l.above != n.phase && (l.parent == o || sameFamily(n, nodes[o])) {
			l.nextPhase, links[o].phases = links[o].phases, i
		}
	}
	if gates {
		for _, i := range order {
			l := &links[i]
			if l.near = i; l.below == 0 {
				l.near = -1
				if l.parent >= 0 {
					l.near = links[l.parent].near
				}
			}
			if nodes[i].gate == nil || l.near < 0 || links[l.near].mixed {
				continue
			}
			// What is below the engine's span is no way to it, unless that span
			// is a gateway's itself.
			if r := links[l.near].request; r != l.near || nodes[r].engine == llmd || nodes[r].engine == rayServe {
				l.nextGate, links[r].gates = links[r].gates, i
			}
		}
	}
	b.emit(nodes, links)
}

// emit yields the requests of a trace, by their start, and what is odd about
// spans that belong to none.
func (b *Builder) emit(nodes []*node, links []link) {
	found, servers := false, false
	for i, n := range nodes {
		found = found || n.engine != ""
		servers = servers || n.kind == trace.KindServer && !links[i].covered
	}
	for i, n := range nodes {
		l := &links[i]
		if !found && !l.covered {
			root := l.parent < 0 && (n.parentID == "" || l.odd == trace.SelfParent || l.odd == trace.ParentCycle)
			if !n.apart && (n.kind == trace.KindServer && !l.served || !servers && root) {
				n.engine = unknown
			}
		}
		if n.engine != "" && l.into >= 0 {
			continue // told with its other half
		}
		if n.engine == "" {
			for _, is := range n.issues {
				b.tell(is)
			}
			if l.nested {
				b.tell(trace.NewIssue(trace.NestedRequest, n.pos, "request span %.40s is around or inside another and is none of its own", n.spanID))
			}
			if l.parent < 0 && l.odd != "" && l.below == 0 {
				b.tell(trace.NewIssue(l.odd, n.pos, "span %.40s %s", n.spanID, oddLink[l.odd]))
			}
			continue
		}
		if n.half == noHalf && l.half != eitherHalf {
			n.half = l.half
		}
		f := family{children: phasesOf(nodes, links, int32(i)), single: true}
		if p := l.from; p >= 0 {
			f.prefill, f.prefillChildren = nodes[p], phasesOf(nodes, links, p)
		}
		if l.gates >= 0 {
			f.gates, f.until = gatesOf(nodes, links, int32(i)), min(payload(nodes, links, int32(i)), payload(nodes, links, l.from))
		}
		if l.parent >= 0 && links[l.parent].top >= 0 {
			top := links[l.parent].top
			f.single = links[top].below == 1
			for p, steps := l.parent, 0; p >= 0 && p != top && steps < maxClimb; p, steps = links[p].parent, steps+1 {
				if nodes[p].outer {
					f.outers = append(f.outers, nodes[p])
				}
			}
			f.outers = append(f.outers, nodes[top])
		}
		r := b.build(n, f)
		if l.odd != "" {
			note(r, l.odd, "its span, or one above it, %s", oddLink[l.odd])
		}
		b.send(r)
	}
}

// phasesOf returns the phase spans of the request i, as they were met.
func phasesOf(nodes []*node, links []link, i int32) (children []*node) {
	for c := links[i].phases; c >= 0; c = links[c].nextPhase {
		children = append(children, nodes[c])
	}
	slices.Reverse(children)
	return children
}

// maxClimb is how many spans above a request are asked for attributes.
const maxClimb = 16

var oddLink = map[trace.Code]string{
	trace.MissingParent: "names a parent that is not in the input",
	trace.SelfParent:    "is its own parent",
	trace.ParentCycle:   "is among spans that are each other's parents",
}

// link finds each node's parent; links that lead nowhere or in a circle are
// cut and marked. traces: the nodes are of several.
func (b *Builder) link(nodes []*node, traces bool) []link {
	links := make([]link, len(nodes))
	byID := make(map[string]int32, len(nodes))
	id := func(traceID, spanID string) string {
		if traces {
			return traceID + "/" + spanID
		}
		return spanID
	}
	same := make([]int32, len(nodes)) // the next node of the same id
	for i := len(nodes) - 1; i >= 0; i-- {
		links[i] = link{parent: -1, child: -1, next: -1, owner: -1, top: -1, request: -1, phases: -1, nextPhase: -1, into: -1, from: -1, gates: -1, nextGate: -1, near: -1}
		same[i] = -1
		name := id(nodes[i].traceID, nodes[i].spanID)
		if j, ok := byID[name]; ok {
			same[i] = j
		}
		byID[name] = int32(i)
	}
	for i, n := range nodes {
		if n.parentID == "" {
			continue
		}
		if n.parentID == n.spanID {
			links[i].odd = trace.SelfParent
			continue
		}
		p, ok := byID[id(n.traceID, n.parentID)]
		if !ok {
			if s, ok := b.seen.get(b.seen.key(n.traceID, n.parentID)); ok {
				links[i].covered = s.streamed
			} else {
				links[i].odd = trace.MissingParent
			}
			continue
		}
		// Reused ids: the last that began before the child, else the first.
		at := n.start.Or(0)
		for q, tries := same[p], 0; q >= 0 && tries < 16 && nodes[q].start.Or(0) <= at; q, tries = same[q], tries+1 {
			p = q
		}
		links[i].parent = p
	}
	adopt(nodes, links)
	// A walk that meets a node of its own has found a circle.
	walk := make([]int32, len(nodes))
	for i := range nodes {
		j := int32(i)
		for ; j >= 0 && walk[j] == 0; j = links[j].parent {
			walk[j] = int32(i) + 1
		}
		if j < 0 || walk[j] != int32(i)+1 {
			continue
		}
		for links[j].parent >= 0 {
			next := links[j].parent
			links[j].parent, links[j].odd = -1, trace.ParentCycle
			j = next
		}
	}
	for i := int32(len(nodes)) - 1; i >= 0; i-- {
		if p := links[i].parent; p >= 0 {
			links[i].next, links[p].child = links[p].child, i
		}
	}
	return links
}

// topDown lists all nodes, each after its parent.
func topDown(links []link) []int32 {
	order := make([]int32, 0, len(links))
	for i := range links {
		if links[i].parent < 0 {
			order = append(order, int32(i))
		}
	}
	for k := 0; k < len(order); k++ {
		for c := links[order[k]].child; c >= 0; c = links[c].next {
			order = append(order, c)
		}
	}
	return order
}

// oneRequest reports whether two engine spans are samples of one request: the
// same arrival and, but for the sample's number, the same id.
func oneRequest(x, y *node) bool {
	return x.start == y.start && x.start.Present() && x.sample == y.sample
}

// sampled returns the request id without the number by which vLLM tells the
// samples of one request apart: 0_cmpl-1, cmpl-1_parallel_sample_0.
func sampled(n *node) string {
	for _, a := range n.attrs {
		if a.field == fieldRequestID {
			id := a.Value.String()
			id, _, _ = strings.Cut(id, "_parallel_sample_")
			if num, rest, ok := strings.Cut(id, "_"); ok && num != "" && strings.Trim(num, "0123456789") == "" {
				id = rest
			}
			return id
		}
	}
	return ""
}
