package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/traceview/traceview/trace"
)

// BlockTokens is the number of tokens in a KV block.
const BlockTokens = 16

// Routing is how requests find their replica.
type Routing string

const (
	RoundRobin  Routing = "round-robin"
	LeastLoaded Routing = "least-loaded" // the fewest waiting and running, in a tie the first
	Sticky      Routing = "sticky"       // all of one tenant to one replica
)

// Engine is a continuous-batching engine. Each replica runs one step after the
// other. A step gives one token to every request that decodes, then continues
// prompts that are under way, then admits from the queue, in order, as long as
// slots, token budget and KV blocks last. A prompt's blocks are reserved when
// it is admitted. Where a decoding request finds no block, the request admitted
// last is pushed back to the head of the queue and computes everything anew;
// such a step admits nobody. [Unkind] makes it less tidy.
type Engine struct {
	Seed           uint64
	Service, Model string
	Replicas       int // at least 1
	Routing        Routing

	Slots   int  // requests that run at once on a replica
	Budget  int  // tokens in a step
	Chunked bool // a prompt may be spread over steps
	Blocks  int  // KV blocks of a replica; 0: no limit
	Limit   int  // of prompt and output tokens together; longer requests are rejected

	// A step takes Base, PerPrefill for each prompt token, PerDecode for each
	// decoding request, and PerResident for each 1024 tokens in the KV cache.
	Base, PerPrefill, PerDecode, PerResident time.Duration

	// Before and After are the front end's time ahead of the queue and behind
	// the last token: at least this, at most twice it.
	Before, After time.Duration

	// Gather is a batching policy: the queue is let in only once so many wait,
	// or its head has waited for GatherFor. Below 2: no policy.
	Gather    int
	GatherFor time.Duration

	Freezes []Freeze
	Unkind  Unkind

	Tenants []Tenant
	Every   time.Duration // between readings; 0: none
}

// Freeze is a stretch in which a replica does nothing: the step under way takes
// that much longer, and none begins.
type Freeze struct {
	Replica   int
	From, For time.Duration // since Base
}

// Unkind is how an engine strays from the tidy one. The zero value is tidy.
type Unkind struct {
	ChunkMemory bool // blocks are taken as a prompt's chunks are computed, not when it is admitted; only if Chunked
	// Async: who joins a step that others compute in is scheduled then, but
	// computes from the next one on; only if Chunked.
	Async   bool
	Scatter time.Duration // events of a step are seen up to so much late, each by its own
	Uneven  float64       // share of its length by which a step is longer or shorter, at most
}

// Tenant is a source of requests.
type Tenant struct {
	Name           string
	Requests       int
	Rate           float64 // a second, on average
	Burst          int     // requests that arrive together; 0 or 1: a Poisson process
	Start          time.Duration
	Prompt, Output Length
	Abort, Fail    float64 // share whose caller leaves, and that end with an error
	Priority       int     // a lower one goes first
	Cached         float64 // share of a prompt that is found in the prefix cache
}

// Length is a law of token counts: the least of Skew+1 draws from Min to Max,
// each as likely.
type Length struct{ Min, Max, Skew int }

func (l Length) draw(rnd *rand.Rand) int {
	n := l.Max
	for range l.Skew + 1 {
		n = min(n, l.Min+rnd.IntN(l.Max-l.Min+1))
	}
	return n
}

// Blocked says what kept the head of the queue out of a step.
type Blocked string

const (
	ByNothing Blocked = ""         // the queue was empty, or emptied
	BySlots   Blocked = "slots"    // all were taken
	ByKV      Blocked = "kv_cache" // its prompt did not fit into memory, or one was just pushed back
	ByBudget  Blocked = "prefill"  // the step's tokens were used up
	ByPolicy  Blocked = "hold"     // too few had gathered
)

// Step is one iteration of a replica.
type Step struct {
	Replica          int
	Start, End       trace.Time
	PrefillTokens    int // computed of prompts
	OutputTokens     int // that exist at its end
	Running, Waiting int // during the step
	Blocks, Resident int // taken during the step: blocks and tokens
	Blocked          Blocked
	Requests         []int // that took part: indices into Run.Requests
}

// Run is what became of an [Engine].
type Run struct {
	Engine   Engine
	Requests []*trace.Request // by arrival; every instant and interval measured
	Readings []trace.Reading
	Steps    []Step

	truth []truth // of each replica
}

// job is a request on its way.
type job struct {
	req            *trace.Request
	index, replica int
	tenant         int
	prompt, output int
	cached         int // of the prompt
	aborts, fails  bool
	patience       time.Duration // from being queued, where it aborts
	failAt         int           // tokens, where it fails
	before, after  time.Duration

	phase     trace.Phase
	since     trace.Time
	remaining int // tokens to compute before the next token can be decoded
	made      int
	chunk     int // in the step under way
	planned   int // of the budget of the step under way, for the next
	blocks    int
	ended     bool
}

// enter ends the phase that j is in and begins another.
func (j *job) enter(p trace.Phase, t trace.Time) {
	t = max(t, j.since) // an event may be seen late
	if t > j.since {
		j.req.Intervals = append(j.req.Intervals, trace.Interval{Phase: j.phase, Basis: trace.Measured, Start: j.since, End: t})
	}
	j.phase, j.since = p, t
}

func (j *job) end(o trace.Outcome, finish string, t trace.Time) {
	j.enter(trace.Unattributed, max(t, j.req.LastToken.At))
	t = j.since
	j.req.Completed, j.req.Outcome, j.req.FinishReason = trace.At(t, trace.Measured), o, finish
	if o != trace.Rejected {
		j.req.Output = trace.Some(j.made)
	}
	j.ended = true
}

type replica struct {
	queue, running []*job
	busy           bool
	until          trace.Time
	wake           trace.Time // where it does nothing: when to look again; 0: when someone arrives
	used           int        // blocks

	// Of the step under way, for the truth of causes.
	left    int  // of its budget
	pushed  bool // it pushed back
	prefill bool // most of it is prefill
}

// server is a run under way.
type server struct {
	Engine
	run      *Run
	replicas []replica
	rnd      *rand.Rand // of what is unkind
	turn     int        // of round robin
}

// seen is when an event at t is seen.
func (e *server) seen(t trace.Time) trace.Time {
	if e.Unkind.Scatter > 0 {
		return t.Add(time.Duration(e.rnd.Int64N(int64(e.Unkind.Scatter) + 1)))
	}
	return t
}

// Run runs the engine until every request has left. It fails on an engine that
// could not work.
func (e Engine) Run() (*Run, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	jobs := e.jobs()
	run := &Run{Engine: e, truth: make([]truth, e.Replicas)}
	arriving := slices.Clone(jobs) // by the instant at which they are queued
	for i, j := range jobs {
		j.index = i
		run.Requests = append(run.Requests, j.req)
	}
	slices.SortStableFunc(arriving, func(a, b *job) int {
		return cmp.Compare(a.since.Add(a.before), b.since.Add(b.before))
	})
	s := &server{Engine: e, run: run, replicas: make([]replica, e.Replicas), rnd: rand.New(rand.NewPCG(e.Seed, math.MaxUint64))}
	for i := range run.truth {
		run.truth[i].tenants, run.truth[i].until = len(e.Tenants), Base
	}
	var read time.Duration
	for {
		t := trace.Time(math.MaxInt64)
		if len(arriving) > 0 {
			t = arriving[0].since.Add(arriving[0].before)
		}
		for i := range s.replicas {
			if r := &s.replicas[i]; r.busy {
				t = min(t, r.until)
			} else if r.wake > 0 {
				t = min(t, r.wake)
			}
		}
		if t == math.MaxInt64 {
			run.spare()
			return run, nil
		}
		for ; e.Every > 0 && Base.Add(read) <= t; read += e.Every {
			for i := range s.replicas {
				run.Readings = append(run.Readings, e.reading(i, &s.replicas[i], Base.Add(read)))
			}
		}
		for i := range s.replicas {
			if r := &s.replicas[i]; r.busy && r.until == t {
				s.settle(i, t)
				r.busy = false
				s.finish(r, t)
			}
		}
		for len(arriving) > 0 && arriving[0].since.Add(arriving[0].before) == t {
			j := arriving[0]
			arriving = arriving[1:]
			if j.prompt+j.output > e.Limit {
				j.end(trace.Rejected, "", t)
				continue
			}
			i := s.route(j)
			s.settle(i, t)
			j.replica = i
			j.req.Replica = replicaName(i)
			j.req.Queued = trace.At(t, trace.Measured)
			j.enter(trace.Queueing, t)
			s.queue(&s.replicas[i], j)
		}
		for i := range s.replicas {
			if !s.replicas[i].busy {
				s.settle(i, t)
				s.step(i, t)
			}
		}
	}
}

// queue puts j behind all that go before it: who was pushed back stands in
// front of those of its priority, everyone else behind them.
func (e *server) queue(r *replica, j *job) {
	mine := e.Tenants[j.tenant].Priority
	i, _ := slices.BinarySearchFunc(r.queue, mine, func(other *job, mine int) int {
		p := e.Tenants[other.tenant].Priority
		if p < mine || p == mine && j.phase != trace.Preempted {
			return -1
		}
		return 1
	})
	r.queue = slices.Insert(r.queue, i, j)
}

func (e Engine) check() error {
	switch {
	case e.Replicas < 1 || e.Slots < 1 || e.Budget < 1 || e.Limit < 1:
		return errors.New("replicas, slots, budget and limit must be at least 1")
	case e.Base <= 0 || e.PerPrefill < 0 || e.PerDecode < 0 || e.PerResident < 0 || e.Before < 0 || e.After < 0 || e.Every < 0 ||
		e.GatherFor < 0 || e.Unkind.Scatter < 0 || !(e.Unkind.Uneven >= 0 && e.Unkind.Uneven < 1):
		return errors.New("a step must take time, and no time may be below zero")
	case e.Budget < e.Slots:
		return errors.New("a budget below the number of slots would starve who decodes last")
	case !e.Chunked && e.Budget < e.Limit+e.Slots:
		return errors.New("without chunks, the budget must hold the longest prompt beside all who decode")
	case e.Blocks > 0 && e.Blocks < blocks(e.Limit+1):
		return errors.New("the longest request does not fit into the KV cache")
	case (e.Unkind.ChunkMemory || e.Unkind.Async) && !e.Chunked:
		return errors.New("chunk-wise memory and asynchronous scheduling need chunks")
	case e.Unkind.Scatter >= e.Base:
		return errors.New("events may not be seen a step late")
	case !slices.Contains([]Routing{RoundRobin, LeastLoaded, Sticky}, e.Routing):
		return fmt.Errorf("no such routing: %q", e.Routing)
	}
	for _, f := range e.Freezes {
		if f.Replica < 0 || f.Replica >= e.Replicas || f.From < 0 || f.For <= 0 {
			return errors.New("a freeze must be of a replica and take time")
		}
	}
	for _, t := range e.Tenants {
		if !(t.Cached >= 0 && t.Cached < 1) {
			return fmt.Errorf("tenant %s: some of a prompt must be computed", t.Name)
		}
		if !(t.Rate > 0) || t.Prompt.Min < 1 || t.Output.Min < 1 || t.Prompt.Max < t.Prompt.Min || t.Output.Max < t.Output.Min {
			return fmt.Errorf("tenant %s: rate and lengths must be above zero, and no Max below Min", t.Name)
		}
	}
	return nil
}

func replicaName(i int) string { return "replica-" + strconv.Itoa(i) }

func blocks(tokens int) int { return (tokens + BlockTokens - 1) / BlockTokens }

// jobs draws all requests, by arrival.
func (e Engine) jobs() []*job {
	var jobs []*job
	for n, tenant := range e.Tenants {
		rnd := rand.New(rand.NewPCG(e.Seed, uint64(n)))
		burst := max(1, tenant.Burst)
		at := Base.Add(tenant.Start)
		for i := range tenant.Requests {
			if i%burst == 0 {
				at = at.Add(time.Duration(math.Round(rnd.ExpFloat64() / tenant.Rate * float64(burst) * 1e9)))
			} else {
				at = at.Add(time.Duration(rnd.IntN(200_000)))
			}
			j := &job{
				tenant: n, phase: trace.Arrival, since: at,
				prompt: tenant.Prompt.draw(rnd), output: tenant.Output.draw(rnd),
				before: e.Before + time.Duration(rnd.Int64N(int64(e.Before)+1)),
				after:  e.After + time.Duration(rnd.Int64N(int64(e.After)+1)),
			}
			j.cached = int(tenant.Cached * float64(j.prompt))
			j.remaining = j.prompt - j.cached
			fate := rnd.Float64()
			j.aborts = fate < tenant.Abort
			j.fails = !j.aborts && fate < tenant.Abort+tenant.Fail
			j.patience = time.Duration(rnd.Int64N(int64(4 * time.Second)))
			j.failAt = 1 + rnd.IntN(j.output)
			j.req = &trace.Request{
				Service: e.Service, Model: e.Model, Clock: trace.ClockUnix, Resolution: 1,
				Arrival: trace.At(at, trace.Measured), Input: trace.Some(j.prompt), MaxTokens: trace.Some(j.output),
			}
			if j.cached > 0 {
				j.req.Cached = trace.Some(j.cached)
			}
			j.req.SetAttr("tenant", trace.StringValue(tenant.Name))
			jobs = append(jobs, j)
		}
	}
	slices.SortStableFunc(jobs, func(a, b *job) int { return cmp.Compare(a.since, b.since) })
	for i, j := range jobs {
		j.req.TraceID, j.req.SpanID = traceID(e.Seed, i), spanID(e.Seed, i, 0)
		j.req.ID = "cmpl-" + traceID(e.Seed+1, i)[:16] + "-0"
	}
	return jobs
}

func (e *server) route(j *job) int {
	switch e.Routing {
	case LeastLoaded:
		best := 0
		for i, r := range e.replicas {
			if len(r.queue)+len(r.running) < len(e.replicas[best].queue)+len(e.replicas[best].running) {
				best = i
			}
		}
		return best
	case Sticky:
		return j.tenant % len(e.replicas)
	}
	e.turn++
	return (e.turn - 1) % len(e.replicas)
}

// fits reports whether j can have blocks for so many tokens.
func (e *server) fits(r *replica, j *job, tokens int) bool {
	return e.Blocks == 0 || r.used-j.blocks+blocks(tokens) <= e.Blocks
}

func (r *replica) take(j *job, tokens int) {
	r.used += blocks(tokens) - j.blocks
	j.blocks = blocks(tokens)
}

// resident is the number of j's tokens that are computed or were found in the
// prefix cache, while it runs.
func (j *job) resident() int { return j.prompt + j.made - j.remaining }

// entry is the number of tokens that j needs room for to be admitted into a
// step that has so many left.
func (e *server) entry(j *job, left int) int {
	if e.Unkind.ChunkMemory {
		if chunk := max(1, min(j.remaining, left)); chunk < j.remaining {
			return j.resident() + chunk
		}
	}
	return j.prompt + j.made + 1
}

// step starts a step of a replica at t, if there is anything to do.
func (e *server) step(at int, t trace.Time) {
	r := &e.replicas[at]
	gone := func(j *job) bool {
		if !j.aborts || t < j.req.Queued.At.Add(j.patience) {
			return false
		}
		r.used -= j.blocks
		j.blocks = 0
		j.end(trace.Aborted, "abort", t)
		return true
	}
	r.wake = 0
	if until, ok := e.frozen(at, t); ok {
		r.wake = until
		return
	}
	r.queue = slices.DeleteFunc(r.queue, gone)
	r.running = slices.DeleteFunc(r.running, gone)

	s := Step{Replica: at, Start: t}
	budget, decoding := e.Budget, 0
	r.pushed = false
	// room finds blocks for so many tokens of j, a running request, at the
	// expense of those admitted last. It is false if j was itself the last.
	room := func(j *job, tokens int) bool {
		for !e.fits(r, j, tokens) {
			last := r.running[len(r.running)-1]
			r.running = r.running[:len(r.running)-1]
			r.used -= last.blocks
			if last.chunk > 0 {
				budget += last.chunk
				decoding--
			}
			last.blocks, last.chunk, last.remaining = 0, 0, last.prompt+last.made-last.cached
			last.enter(trace.Preempted, t)
			last.req.Preemptions = trace.Some(last.req.Preemptions.Or(0) + 1)
			e.queue(r, last)
			r.pushed = true
			if last == j {
				return false
			}
		}
		r.take(j, tokens)
		return true
	}
	// Before any is pushed back: what it had in the last step is no part of this
	// one's budget.
	for _, j := range r.running {
		j.chunk, j.planned = 0, 0
	}
	// Those that run: a token each, or the next piece of their prompt.
	for i := 0; i < len(r.running); i++ {
		j := r.running[i]
		if j.remaining > 0 {
			continue
		}
		if !room(j, j.prompt+j.made+1) {
			break
		}
		j.chunk = 1
		budget--
		decoding++
	}
	for i := 0; i < len(r.running); i++ {
		j := r.running[i]
		if j.remaining == 0 || budget <= 0 {
			continue
		}
		if e.Unkind.ChunkMemory && !room(j, e.entry(j, budget)) {
			break
		}
		j.chunk = min(j.remaining, budget)
		budget -= j.chunk
		s.PrefillTokens += j.chunk
	}
	early := e.Unkind.Async && len(r.running) > 0
	for len(r.queue) > 0 {
		j := r.queue[0]
		switch {
		case e.gathering(r, t):
			s.Blocked = ByPolicy
			r.wake = j.since.Add(e.GatherFor)
		case r.pushed:
			s.Blocked = ByKV
		case len(r.running) >= e.Slots:
			s.Blocked = BySlots
		case budget <= 0 || !e.Chunked && j.remaining > budget:
			s.Blocked = ByBudget
		case !e.fits(r, j, e.entry(j, budget)):
			s.Blocked = ByKV
		}
		if s.Blocked != ByNothing {
			break
		}
		r.queue = r.queue[1:]
		r.take(j, e.entry(j, budget))
		chunk := min(j.remaining, budget)
		budget -= chunk
		if early {
			j.planned = chunk
		} else {
			j.chunk = chunk
			s.PrefillTokens += chunk
		}
		seen := e.seen(t)
		if !j.req.Scheduled.Present() {
			j.req.Scheduled = trace.At(seen, trace.Measured)
		}
		if j.req.FirstToken.Present() {
			j.enter(trace.Decode, seen)
		} else {
			j.enter(trace.Prefill, seen)
		}
		r.running = append(r.running, j)
	}
	if len(r.running) == 0 {
		return
	}
	s.Running, s.Waiting = len(r.running), len(r.queue)
	for _, j := range r.running {
		s.Blocks += j.blocks
		if j.chunk > 0 && (j.remaining == 0 || j.remaining == j.chunk) {
			s.OutputTokens++
		}
		s.Resident += j.resident()
		s.Requests = append(s.Requests, j.index)
	}
	prefill := time.Duration(s.PrefillTokens) * e.PerPrefill
	length := e.Base + prefill + time.Duration(decoding)*e.PerDecode + time.Duration(s.Resident)*e.PerResident/1024
	r.left, r.prefill = budget, 2*prefill > length
	if e.Unkind.Uneven > 0 {
		length += time.Duration(float64(length) * e.Unkind.Uneven * (2*e.rnd.Float64() - 1))
	}
	s.End = e.thaw(at, t, length)
	r.busy, r.until = true, s.End
	e.run.Steps = append(e.run.Steps, s)
}

// gathering reports whether the policy keeps the queue, which is not empty, out.
func (e *server) gathering(r *replica, t trace.Time) bool {
	return len(r.queue) < e.Gather && t < r.queue[0].since.Add(e.GatherFor)
}

// frozen reports whether a replica does nothing at t, and how long.
func (e *server) frozen(at int, t trace.Time) (until trace.Time, ok bool) {
	for _, f := range e.Freezes {
		from := Base.Add(f.From)
		if f.Replica == at && from <= t && t < from.Add(f.For) {
			until, ok = max(until, from.Add(f.For)), true
		}
	}
	return until, ok
}

// thaw is when a step ends that begins at t and takes so long if nothing
// freezes.
func (e *server) thaw(at int, t trace.Time, length time.Duration) trace.Time {
	for length > 0 {
		next, until := trace.Time(math.MaxInt64), t
		for _, f := range e.Freezes {
			if from := Base.Add(f.From); f.Replica == at && from.Add(f.For) > t && from < next {
				next, until = from, from.Add(f.For)
			}
		}
		if next >= t.Add(length) {
			break
		}
		length -= max(0, next.Sub(t))
		t = until
	}
	return t.Add(length)
}

// finish ends the step under way: tokens appear, requests leave.
func (e *server) finish(r *replica, t trace.Time) {
	r.running = slices.DeleteFunc(r.running, func(j *job) bool {
		if j.chunk == 0 {
			return false
		}
		if j.remaining > 0 {
			if j.remaining -= j.chunk; j.remaining > 0 {
				return false
			}
		}
		j.made++
		seen := e.seen(t)
		if !j.req.FirstToken.Present() {
			j.req.FirstToken = trace.At(seen, trace.Measured)
			j.enter(trace.Decode, seen)
		}
		j.req.LastToken = trace.At(seen, trace.Measured)
		switch {
		case j.fails && j.made == j.failAt:
			j.end(trace.Error, "error", seen)
		case j.made == j.output:
			j.enter(trace.Completion, seen)
			j.end(trace.OK, "length", seen.Add(j.after))
		default:
			return false
		}
		r.used -= j.blocks
		j.blocks = 0
		return true
	})
}

func (e Engine) reading(i int, r *replica, t trace.Time) trace.Reading {
	rd := trace.Reading{
		Service: e.Service, Replica: replicaName(i), Clock: trace.ClockUnix, Resolution: 1, At: t,
		Running: trace.Some(len(r.running)), Waiting: trace.Some(len(r.queue)),
	}
	if e.Blocks > 0 {
		rd.KVUsage = trace.Some(float64(r.used) / float64(e.Blocks))
	}
	return rd
}
