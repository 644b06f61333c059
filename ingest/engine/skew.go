package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/traceview/traceview/trace"
)

// Two processes' clocks are held against each other before anything is moved:
// each served request whose engine span is inside another bounds how far the
// engine's clock may be off, and all of a pair together tell whether one
// constant puts every span inside. Then all of the pair are moved by it, also
// those that seemed to fit; where none does, it is only said.

// process is where a span was written.
type process struct{ service, replica string }

// nested is a request's place in the span around it, by the clocks that wrote
// them.
type nested struct {
	outer, inner process
	start, end   trace.Time       // of the span around it
	gates        []trace.Interval // where it waited in that span before the engine had it
	until        trace.Time       // which was then at the latest
}

// offset is by how much a pair's engine spans have to be moved.
type offset struct {
	by       time.Duration // 0: not at all, or no constant does
	requests int           // that it is taken from
}

// others says on how many requests an offset rests.
func (c offset) others() string {
	if c.requests < 2 {
		return ""
	}
	return fmt.Sprintf(", as %d requests of both services tell", c.requests)
}

// bounds are what a pair's requests say: each lets the engine's span be moved
// by low to high.
type bounds struct {
	low, high []time.Duration
	last      offset // as of that many requests
}

const (
	maxBounds = 4 << 20 // requests that are looked at
	maxPairs  = 1 << 16
	// minQueue is how many requests wait at least before the clocks are
	// estimated early, where more spans are open than may be.
	minQueue = 1 << 12
)

// queued is something to be yielded once the clocks are known.
type queued struct {
	r  *trace.Request
	in *nested
	is *trace.Issue
}

// clocks holds the pairs of processes.
type clocks struct {
	pairs map[[2]process]*bounds
	seen  int // requests in them
	queue []queued
}

func (c *clocks) see(r *trace.Request, n *nested) {
	rounding := tolerance(r)
	low, high := n.start.Sub(r.Arrival.At), n.end.Sub(r.Completed.At)
	// A caller that leaves ends the outer span while the engine's goes on.
	if r.Outcome != trace.OK || low > high+rounding {
		return
	}
	k := [2]process{n.outer, n.inner}
	p := c.pairs[k]
	if c.seen >= maxBounds || p == nil && len(c.pairs) >= maxPairs {
		return
	}
	if p == nil {
		if c.pairs == nil {
			c.pairs = map[[2]process]*bounds{}
		}
		p = &bounds{}
		c.pairs[k] = p
	}
	c.seen++
	p.low, p.high = append(p.low, low), append(p.high, high)
}

// offset is the least by which all spans of the pair come inside. Where there is
// none, one in a hundred may be odd.
func (p *bounds) offset() offset {
	if len(p.low) < 2*p.last.requests {
		return p.last // sorting all again for each few more would not end
	}
	slices.Sort(p.low)
	slices.Sort(p.high)
	n := len(p.low)
	low, high := p.low[n-1], p.high[0]
	if low > high+2*rounding {
		low, high = p.low[n-1-n/100], p.high[n/100]
	}
	c := offset{requests: n}
	switch {
	case low > high+2*rounding, low <= rounding && high >= -rounding:
	case low > 0:
		c.by = low
	default:
		c.by = high
	}
	p.last = c
	return c
}

// settle estimates the clocks and yields what is queued.
func (b *Builder) settle() {
	offsets := map[[2]process]offset{}
	for k, p := range b.clocks.pairs {
		offsets[k] = p.offset()
	}
	queue := b.clocks.queue
	b.clocks.queue = nil
	for i, q := range queue {
		queue[i] = queued{} // let go of what was yielded
		switch {
		case b.stopped:
			return
		case q.is != nil:
			b.tell(*q.is)
			continue
		case q.in != nil:
			k := [2]process{q.in.outer, q.in.inner}
			c, ok := offsets[k]
			if !ok {
				// Nobody of the pair was served: each can only speak for itself.
				alone := bounds{low: []time.Duration{q.in.start.Sub(q.r.Arrival.At)}, high: []time.Duration{q.in.end.Sub(q.r.Completed.At)}}
				c = alone.offset()
			}
			q.in.widen(q.r, c)
		}
		if !b.stopped && !b.yield(q.r, nil) {
			b.stopped = true
		}
	}
}
