package vllmlog

import (
	"bytes"
	"math"
	"strconv"

	"github.com/traceview/traceview/trace"
)

// What a server says of its limits while it starts, as the versions word it:
//
//	args: Namespace(…, block_size=16, …, max_num_seqs=256, …)           to 0.8, with the defaults
//	non-default args: {'max_num_seqs': 6, …}                            from 0.9
//	Setting max_num_seqs to 256 for OPENAI_API_SERVER usage context.    from 0.8, at DEBUG
//	Defaulting max_num_seqs to 256 for … usage context.                 later, at DEBUG
//	Chunked prefill is enabled with max_num_batched_tokens=512.         from 0.5
//	# GPU blocks: 7326, # CPU blocks: 2048                              to 0.7; the name of the device may differ
//	Maximum concurrency for 4096 tokens per request: 28.62x             from 0.6
//	GPU KV cache size: 78,800 tokens                                    from 0.8; from 0.28 the former in one line with it
//
// "Overriding num_gpu_blocks" is not read: a trial run while the memory is
// measured writes it too, with a number that never serves. Arguments hold
// keys and names; nothing but these numbers is kept of them.

// limits are the figures of one such line; 0: not told.
type limits struct {
	slots, budget int64
	block         int64   // tokens in a block
	kv            int64   // tokens in the KV cache
	blocks        int64   // in the KV cache
	length        int64   // tokens of the longest request
	fit           float64 // how many such requests the KV cache holds
	args          bool    // the arguments of a start: what came before is of another
}

// tells reports whether there is any figure.
func (l *limits) tells() bool {
	return l.slots > 0 || l.budget > 0 || l.block > 0 || l.kv > 0 || l.blocks > 0 || l.fit > 0
}

// commas reads "78,800" and the same without its commas.
func commas(s []byte) (n int64, rest []byte, ok bool) {
	i := 0
	for i < len(s) && i < 24 && (isDigit(s[i]) || s[i] == ',' && i > 0 && i+1 < len(s) && isDigit(s[i+1])) {
		if s[i] != ',' {
			if n > math.MaxInt64/100 {
				return 0, s, false
			}
			n = 10*n + int64(s[i]-'0')
		}
		i++
	}
	return n, s[i:], i > 0 && (i == len(s) || !isDigit(s[i]))
}

// config reads one of the lines above; ok is false where m is none. It is asked
// of every line and looks at the first letter first.
func (ev *event) config(m []byte) (ok bool) {
	switch m[0] {
	case 'R', 'A', 'F', 'E', 'I', 'v', '[':
		return false
	}
	l := limits{}
	whole := true
	switch m[0] {
	case 'n', 'a':
		rest, found := cut(m, "non-default args: {")
		if !found {
			rest, found = cut(m, "args: Namespace(")
		}
		if found {
			whole = l.arguments(m[len(m)-len(rest)-1:])
			l.args, ok = true, true
		}
	case 'S', 'D':
		rest, found := cut(m, "Setting ")
		if !found {
			rest, found = cut(m, "Defaulting ")
		}
		if v, is := cut(rest, "max_num_seqs to "); found && is {
			ok = bytes.Contains(v, []byte(" usage context")) && figure(v, &l.slots)
		} else if v, is := cut(rest, "max_num_batched_tokens to "); found && is {
			ok = bytes.Contains(v, []byte(" usage context")) && figure(v, &l.budget)
		}
	case 'M':
		if rest, found := cut(m, "Maximum concurrency for "); found {
			ok = l.concurrency(rest)
		}
	case '#':
		if rest, found := cut(m, "# "); found {
			if i := device(rest); i > 0 {
				if v, found := cut(rest[i:], " blocks: "); found {
					ok = figure(v, &l.blocks)
				}
			}
		}
	case 'C':
		if rest, found := cut(m, "Chunked prefill is enabled with max_num_batched_tokens="); found {
			ok = figure(rest, &l.budget)
		}
	}
	if i := device(m); !ok && i > 0 {
		if v, found := cut(m[i:], " KV cache size: "); found {
			n, rest, good := commas(v)
			if ok = good && n > 0 && hasPrefix(rest, " tokens"); ok {
				l.kv = n
			}
		}
	}
	if ok {
		told := l // only this one goes to the heap
		ev.kind, ev.limits, ev.torn = config, &told, !whole
	}
	return ok
}

// figure reads a number above zero, which ends where a word or a sentence does.
func figure(s []byte, to *int64) bool {
	n, rest, ok := commas(s)
	if !ok || n < 1 || len(rest) > 0 && rest[0] != '.' && rest[0] != ' ' && rest[0] != ',' {
		return false
	}
	*to = n
	return true
}

// device returns the length of a device's name, such as GPU or cuda.
func device(s []byte) int {
	i := 0
	for i < len(s) && i < 16 && s[i]|0x20-'a' < 26 {
		i++
	}
	return i
}

// concurrency reads "2,048 tokens per request: 1.50x".
func (l *limits) concurrency(s []byte) bool {
	n, rest, ok := commas(s)
	rest, found := cut(rest, " tokens per request: ")
	x, _, whole := bytes.Cut(rest, []byte("x"))
	if !ok || !found || !whole || len(x) > 24 {
		return false
	}
	v, err := strconv.ParseFloat(string(x), 64)
	if err != nil || !(v > 0 && v < 1e12) || n < 1 {
		return false
	}
	l.length, l.fit = n, v
	return true
}

// arguments reads a dictionary, or the fields of a Namespace, from its opening
// bracket on, and reports whether it is whole.
func (l *limits) arguments(s []byte) bool {
	_, ok := skipValue(s, func(at []byte) {
		at = bytes.TrimLeft(at[:min(len(at), 64)], "'")
		for _, f := range [...]struct {
			name string
			to   *int64
		}{{"max_num_seqs", &l.slots}, {"max_num_batched_tokens", &l.budget}, {"block_size", &l.block}} {
			rest, found := cut(at, f.name)
			if !found {
				continue
			}
			v, found := cut(rest, "=")
			if !found {
				v, found = cut(rest, "': ")
			}
			if n, tail, good := number(v); found && good && n > 0 && len(tail) > 0 && (tail[0] == ',' || tail[0] == '}' || tail[0] == ')') {
				*f.to = int64(n)
			}
		}
	})
	if !ok {
		*l = limits{args: true}
	}
	return ok
}

// start is what a server said of its limits since it began to start.
type start struct {
	pos    trace.Pos
	at     trace.Instant
	front  limits // of all its engines
	own    map[int]*limits
	order  []int // of own, as they came
	memory bool  // some engine told of its memory
}

// anyEngine stands for lines that name no engine.
const anyEngine = -1

// maxEngines bounds the engines of a container that are told apart.
const maxEngines = 1024

// engineOf reads the engine's number off the name of its process.
func engineOf(process []byte) int {
	for _, head := range [...]string{"EngineCore_DP", "EngineCore_"} {
		if rest, ok := cut(process, head); ok {
			if n, tail, ok := number(rest); ok && len(tail) == 0 {
				return n
			}
		}
	}
	return anyEngine
}

// config takes a line of a start into account.
func (l *log) config(c *container, e *entry, ev *event) {
	if l.opts.Limits == nil {
		return
	}
	s := c.start
	if ev.limits.args && s != nil && s.memory {
		l.started(c) // again
		s = nil
	}
	if s == nil {
		if !ev.limits.tells() && !ev.limits.args {
			return
		}
		at, _ := l.instant(e)
		s = &start{pos: e.pos, at: at, own: map[int]*limits{}}
		c.start = s
	}
	f := ev.limits
	for _, x := range [...]struct {
		to   *int64
		from int64
	}{{&s.front.slots, f.slots}, {&s.front.budget, f.budget}, {&s.front.block, f.block}} {
		if x.from > 0 {
			*x.to = x.from
		}
	}
	if f.kv == 0 && f.blocks == 0 && f.fit == 0 {
		return
	}
	s.memory = true
	n := engineOf(e.process)
	own := s.own[n]
	if own == nil {
		if len(s.order) >= maxEngines {
			return
		}
		own = &limits{}
		s.own[n], s.order = own, append(s.order, n)
	}
	// Each worker of an engine tells its own; the least is what all have.
	least := func(to *int64, v int64) {
		if v > 0 && (*to == 0 || v < *to) {
			*to = v
		}
	}
	least(&own.kv, f.kv)
	least(&own.blocks, f.blocks)
	if f.fit > 0 && (own.fit == 0 || f.fit < own.fit) {
		own.length, own.fit = f.length, f.fit
	}
}

// tokens is how many tokens fit into the engine's memory; 0: not told.
func (own *limits) tokens(block int64) int64 {
	switch {
	case own.kv > 0:
		return own.kv
	case own.blocks > 0 && block == 0 && own.fit > 0:
		// The line is rounded to hundredths; the size of a block is whole.
		v := own.fit * float64(own.length) / float64(own.blocks)
		if n := math.Round(v); n >= 1 && n < 1<<20 && math.Abs(v-n) <= 0.01*n {
			block = int64(n)
		}
	}
	if own.blocks > math.MaxInt64>>20 || block >= 1<<20 {
		return 0
	}
	return own.blocks * block
}

// started hands on what the container's server said of its limits.
func (l *log) started(c *container) {
	s := c.start
	c.start = nil
	if s == nil {
		return
	}
	opt := func(v int64) (o trace.Opt[int64]) {
		if v > 0 {
			o = trace.Some(v)
		}
		return o
	}
	order := s.order
	if len(order) == 0 {
		order = []int{anyEngine}
	}
	for _, n := range order {
		out := trace.EngineLimits{
			Source: trace.Source{Format: Format, Engine: "vllm", Pos: s.pos}, Clock: trace.ClockUnix, At: s.at,
			Replica: named(c, n), Slots: opt(s.front.slots), Budget: opt(s.front.budget),
		}
		if own := s.own[n]; own != nil {
			out.KVTokens = opt(own.tokens(s.front.block))
		}
		if out.Slots.Present() || out.Budget.Present() || out.KVTokens.Present() {
			l.out(held{limits: &out})
		}
	}
}

// named names an engine of a container.
func named(c *container, engine int) string {
	name := replica(c.name)
	if engine == anyEngine {
		return name
	}
	if name != "" {
		name += " "
	}
	return name + "engine " + strconv.Itoa(engine)
}
