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
// such a step admits nobody.
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

	Tenants []Tenant
	Every   time.Duration // between readings; 0: none
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
}

// job is a request on its way.
type job struct {
	req            *trace.Request
	index, replica int
	prompt, output int
	aborts, fails  bool
	patience       time.Duration // from being queued, where it aborts
	failAt         int           // tokens, where it fails
	before, after  time.Duration

	phase     trace.Phase
	since     trace.Time
	remaining int // tokens to compute before the next token can be decoded
	made      int
	chunk     int // in the step under way
	blocks    int
	ended     bool
}

// enter ends the phase that j is in and begins another.
func (j *job) enter(p trace.Phase, t trace.Time) {
	if t > j.since {
		j.req.Intervals = append(j.req.Intervals, trace.Interval{Phase: j.phase, Basis: trace.Measured, Start: j.since, End: t})
	}
	j.phase, j.since = p, t
}

func (j *job) end(o trace.Outcome, finish string, t trace.Time) {
	j.enter(trace.Unattributed, t)
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
	used           int // blocks
}

// Run runs the engine until every request has left. It fails on an engine that
// could not work.
func (e Engine) Run() (*Run, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	jobs := e.jobs()
	run := &Run{Engine: e}
	arriving := slices.Clone(jobs) // by the instant at which they are queued
	for i, j := range jobs {
		j.index = i
		run.Requests = append(run.Requests, j.req)
	}
	slices.SortStableFunc(arriving, func(a, b *job) int {
		return cmp.Compare(a.since.Add(a.before), b.since.Add(b.before))
	})
	replicas := make([]replica, e.Replicas)
	turn := 0
	var read time.Duration
	for {
		t := trace.Time(math.MaxInt64)
		if len(arriving) > 0 {
			t = arriving[0].since.Add(arriving[0].before)
		}
		for i := range replicas {
			if replicas[i].busy {
				t = min(t, replicas[i].until)
			}
		}
		if t == math.MaxInt64 {
			return run, nil
		}
		for ; e.Every > 0 && Base.Add(read) <= t; read += e.Every {
			for i := range replicas {
				run.Readings = append(run.Readings, e.reading(i, &replicas[i], Base.Add(read)))
			}
		}
		for i := range replicas {
			if r := &replicas[i]; r.busy && r.until == t {
				r.busy = false
				r.finish(t)
			}
		}
		for len(arriving) > 0 && arriving[0].since.Add(arriving[0].before) == t {
			j := arriving[0]
			arriving = arriving[1:]
			if j.prompt+j.output > e.Limit {
				j.end(trace.Rejected, "", t)
				continue
			}
			i := e.route(j, replicas, &turn)
			j.replica = i
			j.req.Replica = replicaName(i)
			j.req.Queued = trace.At(t, trace.Measured)
			j.enter(trace.Queueing, t)
			replicas[i].queue = append(replicas[i].queue, j)
		}
		for i := range replicas {
			if !replicas[i].busy {
				e.step(run, i, &replicas[i], t)
			}
		}
	}
}

func (e Engine) check() error {
	switch {
	case e.Replicas < 1 || e.Slots < 1 || e.Budget < 1 || e.Limit < 1:
		return errors.New("replicas, slots, budget and limit must be at least 1")
	case e.Base <= 0 || e.PerPrefill < 0 || e.PerDecode < 0 || e.PerResident < 0 || e.Before < 0 || e.After < 0 || e.Every < 0:
		return errors.New("a step must take time, and no time may be below zero")
	case e.Budget < e.Slots:
		return errors.New("a budget below the number of slots would starve who decodes last")
	case !e.Chunked && e.Budget < e.Limit+e.Slots:
		return errors.New("without chunks, the budget must hold the longest prompt beside all who decode")
	case e.Blocks > 0 && e.Blocks < blocks(e.Limit+1):
		return errors.New("the longest request does not fit into the KV cache")
	case !slices.Contains([]Routing{RoundRobin, LeastLoaded, Sticky}, e.Routing):
		return fmt.Errorf("no such routing: %q", e.Routing)
	}
	for _, t := range e.Tenants {
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
				phase: trace.Arrival, since: at,
				prompt: tenant.Prompt.draw(rnd), output: tenant.Output.draw(rnd),
				before: e.Before + time.Duration(rnd.Int64N(int64(e.Before)+1)),
				after:  e.After + time.Duration(rnd.Int64N(int64(e.After)+1)),
			}
			j.remaining = j.prompt
			fate := rnd.Float64()
			j.aborts = fate < tenant.Abort
			j.fails = !j.aborts && fate < tenant.Abort+tenant.Fail
			j.patience = time.Duration(rnd.Int64N(int64(4 * time.Second)))
			j.failAt = 1 + rnd.IntN(j.output)
			j.req = &trace.Request{
				Service: e.Service, Model: e.Model, Clock: trace.ClockUnix, Resolution: 1,
				Arrival: trace.At(at, trace.Measured), Input: trace.Some(j.prompt), MaxTokens: trace.Some(j.output),
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

func (e Engine) route(j *job, replicas []replica, turn *int) int {
	switch e.Routing {
	case LeastLoaded:
		best := 0
		for i, r := range replicas {
			if len(r.queue)+len(r.running) < len(replicas[best].queue)+len(replicas[best].running) {
				best = i
			}
		}
		return best
	case Sticky:
		tenant, _ := j.req.Attr("tenant")
		for i, t := range e.Tenants {
			if t.Name == tenant.String() {
				return i % len(replicas)
			}
		}
	}
	*turn++
	return (*turn - 1) % len(replicas)
}

// step starts a step of a replica at t, if there is anything to do.
func (e Engine) step(run *Run, at int, r *replica, t trace.Time) {
	gone := func(j *job) bool {
		if !j.aborts || t < j.req.Queued.At.Add(j.patience) {
			return false
		}
		r.used -= j.blocks
		j.blocks = 0
		j.end(trace.Aborted, "abort", t)
		return true
	}
	r.queue = slices.DeleteFunc(r.queue, gone)
	r.running = slices.DeleteFunc(r.running, gone)

	s := Step{Replica: at, Start: t}
	budget, pushed := e.Budget, false
	fits := func(j *job, tokens int) bool {
		return e.Blocks == 0 || r.used-j.blocks+blocks(tokens) <= e.Blocks
	}
	take := func(j *job, tokens int) {
		r.used += blocks(tokens) - j.blocks
		j.blocks = blocks(tokens)
	}
	// Those that run: a token each, or the next piece of their prompt.
	decoding := 0
	for i := 0; i < len(r.running); i++ {
		j := r.running[i]
		j.chunk = 0
		if j.remaining > 0 {
			continue
		}
		for !fits(j, j.prompt+j.made+1) {
			last := r.running[len(r.running)-1]
			r.running = r.running[:len(r.running)-1]
			r.used -= last.blocks
			if last.chunk > 0 {
				budget += last.chunk
				decoding--
			}
			last.blocks, last.chunk, last.remaining = 0, 0, last.prompt+last.made
			last.enter(trace.Preempted, t)
			last.req.Preemptions = trace.Some(last.req.Preemptions.Or(0) + 1)
			r.queue = slices.Insert(r.queue, 0, last)
			pushed = true
			if last == j {
				break
			}
		}
		if j.blocks == 0 {
			break // it was itself the last
		}
		take(j, j.prompt+j.made+1)
		j.chunk = 1
		budget--
		decoding++
	}
	for _, j := range r.running {
		if j.remaining > 0 && budget > 0 {
			j.chunk = min(j.remaining, budget)
			budget -= j.chunk
			s.PrefillTokens += j.chunk
		}
	}
	for len(r.queue) > 0 {
		j := r.queue[0]
		switch {
		case pushed:
			s.Blocked = ByKV
		case len(r.running) >= e.Slots:
			s.Blocked = BySlots
		case budget == 0 || !e.Chunked && j.remaining > budget:
			s.Blocked = ByBudget
		case !fits(j, j.remaining+1):
			s.Blocked = ByKV
		}
		if s.Blocked != ByNothing {
			break
		}
		r.queue = r.queue[1:]
		take(j, j.remaining+1)
		j.chunk = min(j.remaining, budget)
		budget -= j.chunk
		s.PrefillTokens += j.chunk
		if !j.req.Scheduled.Present() {
			j.req.Scheduled = trace.At(t, trace.Measured)
		}
		if j.req.FirstToken.Present() {
			j.enter(trace.Decode, t)
		} else {
			j.enter(trace.Prefill, t)
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
		s.Resident += j.prompt + j.made - j.remaining
		s.Requests = append(s.Requests, j.index)
	}
	s.End = t.Add(e.Base + time.Duration(s.PrefillTokens)*e.PerPrefill + time.Duration(decoding)*e.PerDecode +
		time.Duration(s.Resident)*e.PerResident/1024)
	r.busy, r.until = true, s.End
	run.Steps = append(run.Steps, s)
}

// finish ends the step under way: tokens appear, requests leave.
func (r *replica) finish(t trace.Time) {
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
		if !j.req.FirstToken.Present() {
			j.req.FirstToken = trace.At(t, trace.Measured)
			j.enter(trace.Decode, t)
		}
		j.req.LastToken = trace.At(t, trace.Measured)
		switch {
		case j.fails && j.made == j.failAt:
			j.end(trace.Error, "error", t)
		case j.made == j.output:
			j.enter(trace.Completion, t)
			j.end(trace.OK, "length", t.Add(j.after))
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
