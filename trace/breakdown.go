package trace

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Part is the time attributed to one set of phases.
type Part struct {
	Phase Phase
	Dur   time.Duration
}

// Breakdown attributes every nanosecond of a request once.
//
// Two identities hold exactly:
//
//	Σ Parts + Unattributed = Extent
//	Claimed = (Extent − Unattributed) + Overlap + Outside
type Breakdown struct {
	// Extent is e2e where Complete. Else it runs from arrival (or the first
	// claim, where arrival is absent) to the last instant known.
	Extent   time.Duration
	Complete bool

	Parts        []Part        // by phase set, ascending; no zero durations
	Unattributed time.Duration // claimed by nobody
	Claimed      time.Duration // sum of the lengths of all claims
	Overlap      time.Duration // claimed more than once, beyond the first time
	Outside      time.Duration // claimed before arrival or after the end
	// Conflict is the part of the attributed time on which claims had nothing
	// in common: the one that started last has it.
	Conflict time.Duration
	// Doubled is time that two claims of the very same set cover. Unlike the
	// rest of Overlap it is no refinement of a wider claim by a narrower one.
	Doubled time.Duration
}

// Of returns the time attributed to exactly that set of phases; for
// Unattributed that which nobody claimed.
func (b *Breakdown) Of(p Phase) time.Duration {
	if p == Unattributed {
		return b.Unattributed
	}
	for _, part := range b.Parts {
		if part.Phase == p {
			return part.Dur
		}
	}
	return 0
}

// Kind returns the time of that kind; the kinds sum to Extent.
func (b *Breakdown) Kind(k Kind) time.Duration {
	if k == Unknown {
		return b.Unattributed
	}
	var d time.Duration
	for _, p := range b.Parts {
		if p.Phase.Kind() == k {
			d += p.Dur
		}
	}
	return d
}

// Rounding is the time that sources cannot tell from none: engines stamp in
// float64 seconds since 1970, which steps by 238 ns, and give phases as
// differences of such.
const Rounding = time.Microsecond

// Inconsistent reports whether the source claimed time twice, outside the
// request, or for phases that exclude each other, by more than Rounding.
func (b *Breakdown) Inconsistent() bool {
	return b.Outside > Rounding || b.Conflict > Rounding || b.Doubled > Rounding
}

// Check reports a broken identity.
func (b *Breakdown) Check() error {
	sum := b.Unattributed
	for _, p := range b.Parts {
		if p.Dur <= 0 {
			return fmt.Errorf("breakdown: %v has %d ns", p.Phase, p.Dur)
		}
		sum += p.Dur
	}
	if sum != b.Extent {
		return fmt.Errorf("breakdown: parts add up to %d ns, not %d", sum, b.Extent)
	}
	if want := b.Extent - b.Unattributed + b.Overlap + b.Outside; b.Claimed != want {
		return fmt.Errorf("breakdown: claimed %d ns, but attributed + overlap + outside is %d", b.Claimed, want)
	}
	if b.Unattributed < 0 || b.Overlap < 0 || b.Outside < 0 || b.Conflict < 0 || b.Doubled < 0 {
		return fmt.Errorf("breakdown: negative remainder: %+v", *b)
	}
	return nil
}

// Extent returns the stretch that the breakdown of r covers: arrival to
// completed, each replaced by the outermost known instant where it is absent.
// ok is false where r has no instant at all.
func (r *Request) Extent() (start, end Time, ok bool) {
	see := func(t Time) {
		if !ok {
			start, end, ok = t, t, true
		}
		start, end = min(start, t), max(end, t)
	}
	for _, i := range []Instant{r.Queued, r.Scheduled, r.FirstToken, r.LastToken, r.Arrival, r.Completed} {
		if i.Present() {
			see(i.At)
		}
	}
	for _, iv := range r.Intervals {
		see(iv.Start)
		see(iv.End)
	}
	if r.Arrival.Present() {
		start, end = r.Arrival.At, max(end, r.Arrival.At)
	}
	if r.Completed.Present() {
		end = r.Completed.At
		start = min(start, end)
	}
	return start, end, ok
}

// Segment is a stretch of a request's extent that is attributed to one set of
// phases. Unattributed stretches are segments too.
type Segment struct {
	Phase      Phase
	Start, End Time
}

// Breakdown attributes r's time to the intersection of the claims on it: no
// claim, Unattributed; one, that; a wider over a narrower one, the narrower;
// claims with nothing in common, the one that started last (in a tie the
// higher phase), and the time counts as Conflict too.
func (r *Request) Breakdown() Breakdown {
	var b Breakdown
	var parts [allPhases + 1]time.Duration
	r.attribute(&b, func(p Phase, start, end Time) { parts[p] += end.Sub(start) })
	b.Unattributed = parts[Unattributed]
	for p, d := range parts {
		if d > 0 && p != 0 {
			b.Parts = append(b.Parts, Part{Phase(p), d})
		}
	}
	return b
}

// Segments appends to dst the stretches whose lengths Breakdown sums, in
// order, without gaps from the extent's start to its end, and returns it.
// Neighbours differ in phase.
func (r *Request) Segments(dst []Segment) []Segment {
	var b Breakdown
	from := len(dst)
	r.attribute(&b, func(p Phase, start, end Time) {
		if n := len(dst); n > from && dst[n-1].Phase == p {
			dst[n-1].End = end
			return
		}
		dst = append(dst, Segment{p, start, end})
	})
	return dst
}

// attribute sweeps over r's claims and hands out each stretch in order of
// time. It fills in all of b but the sums of the stretches.
func (r *Request) attribute(b *Breakdown, emit func(p Phase, start, end Time)) {
	start, end, ok := r.Extent()
	if !ok {
		return
	}
	b.Extent = end.Sub(start)
	b.Complete = r.Arrival.Present() && r.Completed.Present()

	// Room on the stack for as many claims as requests usually have.
	var (
		claimRoom          [8]Interval
		endRoom, stackRoom [8]int
		setRoom            [8]Phase
	)
	claims := claimRoom[:0]
	for _, iv := range r.Intervals {
		if iv.End <= iv.Start {
			continue
		}
		b.Claimed += iv.End.Sub(iv.Start)
		inside := max(0, min(iv.End, end).Sub(max(iv.Start, start)))
		b.Outside += iv.End.Sub(iv.Start) - inside
		if inside > 0 {
			claims = append(claims, iv)
		}
	}
	if inOrder(claims) {
		t := start
		for _, iv := range claims {
			from, to := max(iv.Start, start), min(iv.End, end)
			if from > t {
				emit(Unattributed, t, from)
			}
			emit(iv.Phase, from, to)
			t = to
		}
		if end > t {
			emit(Unattributed, t, end)
		}
		return
	}
	slices.SortFunc(claims, func(x, y Interval) int {
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(x.Phase, y.Phase), cmp.Compare(x.End, y.End))
	})
	ends := endRoom[:0] // indices of claims by end
	for i := range claims {
		ends = append(ends, i)
	}
	slices.SortFunc(ends, func(i, j int) int { return cmp.Compare(claims[i].End, claims[j].End) })

	// One sweep. active counts the open claims of each set, so that a step
	// costs the number of distinct sets and not the number of claims; stack
	// holds the open claims by start, ended ones removed when they reach the
	// top.
	var (
		active [allPhases + 1]int
		sets   = setRoom[:0] // distinct sets with active > 0
		stack  = stackRoom[:0]
		open   int
		ni, ne int
		t      = start
	)
	for t < end {
		for ne < len(ends) && claims[ends[ne]].End <= t {
			p := claims[ends[ne]].Phase
			if active[p]--; active[p] == 0 {
				sets = slices.DeleteFunc(sets, func(q Phase) bool { return q == p })
			}
			open--
			ne++
		}
		for ni < len(claims) && claims[ni].Start <= t {
			p := claims[ni].Phase
			if active[p]++; active[p] == 1 {
				sets = append(sets, p)
			}
			stack = append(stack, ni)
			open++
			ni++
		}
		next := end
		if ni < len(claims) {
			next = min(next, claims[ni].Start)
		}
		if ne < len(ends) {
			next = min(next, claims[ends[ne]].End)
		}
		d := next.Sub(t)
		if open == 0 {
			emit(Unattributed, t, next)
		} else {
			who := Phase(allPhases)
			doubled := false
			for _, p := range sets {
				who &= p
				doubled = doubled || active[p] > 1
			}
			if doubled {
				b.Doubled += d
			}
			if who == Unattributed {
				for claims[stack[len(stack)-1]].End <= t {
					stack = stack[:len(stack)-1]
				}
				who = claims[stack[len(stack)-1]].Phase
				b.Conflict += d
			}
			emit(who, t, next)
			b.Overlap += time.Duration(open-1) * d
		}
		t = next
	}
}

// inOrder reports whether claims follow one another without overlap, as most
// requests' do. There is nothing to decide between them then.
func inOrder(claims []Interval) bool {
	for i := range claims {
		if claims[i].Phase == Unattributed || i > 0 && claims[i].Start < claims[i-1].End {
			return false
		}
	}
	return true
}
