package analyze

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/traceview/traceview/trace"
)

// StandOut is a value of a key that is over-represented among the slowest
// requests, by more than chance explains.
type StandOut struct {
	Key       string  `json:"key"` // a derived key or an attribute
	Value     string  `json:"value"`
	Requests  int64   `json:"requests"`   // in the band that have it
	Of        int64   `json:"used"`       // all used requests that have it
	BandShare float64 `json:"band_share"` // of the band
	RestShare float64 `json:"rest_share"` // of all other used requests
	// Ratio is BandShare / RestShare; null where no other request has it.
	Ratio trace.Opt[float64] `json:"times"`
	P     float64            `json:"p"` // how often chance alone would show as much; see [Tail]
}

const (
	// fewest is how many requests have to have a value for it to be looked at.
	fewest = 10
	// longest is how many bytes a value has at most: longer ones are no classes.
	longest = 200
	// spells is into how many slices of time a run is cut. It is not fewer where
	// the queue has a long memory: that makes slow requests come together, and
	// what counts here is which of those that came together are slow. With 32,
	// chance stood out in 6 of 200 steady runs, with 20 in 2.
	spells = 20
	// falseShare bounds the expected share of what is shown that chance made.
	falseShare = 0.05
)

// traits numbers the values that requests have of all keys, derived ones and
// attributes, and the sets of them. A key of more than [most] values divides
// nothing and is left out.
type traits struct {
	keys   interner
	values []*interner // by key; nil: left out
	sets   interner    // of pairs of key and value
	key    []byte      // scratch
}

// of numbers the set of what r has.
func (t *traits) of(r *trace.Request) uint32 {
	t.key = t.key[:0]
	for _, k := range derivedOrder {
		if v, ok := derivedKeys[k](r); ok {
			t.add(k, v)
		}
	}
	for i := range r.Attrs {
		if a := &r.Attrs[i]; derivedKeys[a.Key] == nil {
			t.add(a.Key, a.Value.String())
		}
	}
	return t.sets.id(string(t.key))
}

// derivedOrder is the derived keys in an order that never changes.
var derivedOrder = DerivedKeys()

func (t *traits) add(key, value string) {
	k := t.keys.id(key)
	if int(k) == len(t.values) {
		t.values = append(t.values, &interner{})
	}
	in := t.values[k]
	if in == nil {
		return
	}
	if len(value) > longest {
		t.values[k] = nil
		return
	}
	v := in.id(value)
	if int(v) >= most {
		t.values[k] = nil
		return
	}
	t.key = binary.AppendUvarint(t.key, uint64(k))
	t.key = binary.AppendUvarint(t.key, uint64(v))
}

// each calls fn with the pairs of a set whose keys are not left out.
func (t *traits) each(set string, fn func(key, value uint32)) {
	for b := []byte(set); len(b) > 0; {
		k, n := binary.Uvarint(b)
		v, m := binary.Uvarint(b[n:])
		b = b[n+m:]
		if t.values[k] != nil {
			fn(uint32(k), uint32(v))
		}
	}
}

// merge takes all sets of o into account and returns their numbers here.
func (t *traits) merge(o *traits) []uint32 {
	for k, name := range o.keys.names {
		if id := t.keys.id(name); int(id) == len(t.values) {
			t.values = append(t.values, &interner{})
		} else if o.values[k] != nil {
			continue
		}
		if o.values[k] == nil {
			t.values[t.keys.id(name)] = nil
		}
	}
	sets := make([]uint32, len(o.sets.names))
	for i, s := range o.sets.names {
		t.key = t.key[:0]
		o.each(s, func(k, v uint32) { t.add(o.keys.names[k], o.values[k].names[v]) })
		sets[i] = t.sets.id(string(t.key))
	}
	return sets
}

// trait is how many requests have a value, by slice of time.
type trait struct {
	key, value uint32
	band, all  []int64 // of the band; of all used
	sumBand    int64
	sumAll     int64
}

// standOut compares what the slow requests have with what all others have.
//
// Two things that are not what they look like have to be told apart from what
// stands out. A value may be frequent in the band as any draw of so few may
// have it: that is the hypergeometric test. And slow requests come in spells:
// what a request of a spell has, its neighbours are likely to have too, and
// a hundred of them show hardly more than one. So the excess has to come back
// in slice after slice of time: under chance, the excess of a slice is as
// likely above as below, and all signs are tried. The larger of the two
// probabilities counts, and of all values that were looked at those are kept
// that keep the expected share of false ones below 5 % (Benjamini and
// Hochberg).
func (w *work) standOut(slow []*row) {
	t := w.rep.Tail
	if w.slices == 0 { // no common axis of time
		return
	}
	slice := func(r *row) int {
		b := spells * float64(r.arrival-w.start) / float64(w.end-w.start)
		return int(max(0, min(b, spells-1)))
	}
	var (
		list  []trait
		at    = map[[2]uint32]int{}
		ofSet = make([][]int, len(w.traits.sets.names)) // places in list
		known = make([]bool, len(ofSet))
	)
	count := func(r *row, band bool) {
		if !known[r.traits] {
			known[r.traits] = true
			w.traits.each(w.traits.sets.names[r.traits], func(k, v uint32) {
				i, ok := at[[2]uint32{k, v}]
				if !ok {
					i = len(list)
					at[[2]uint32{k, v}] = i
					list = append(list, trait{key: k, value: v, band: make([]int64, spells), all: make([]int64, spells)})
				}
				ofSet[r.traits] = append(ofSet[r.traits], i)
			})
		}
		b := slice(r)
		for _, i := range ofSet[r.traits] {
			if band {
				list[i].band[b]++
				list[i].sumBand++
			} else {
				list[i].all[b]++
				list[i].sumAll++
			}
		}
	}
	inBand := make([]int64, spells)
	for _, r := range slow {
		inBand[slice(r)]++
		count(r, true)
	}
	for _, r := range w.used {
		count(r, false)
	}
	n, k := int64(len(w.used)), int64(len(slow))
	lf := logFactorials(len(w.used))
	var found []StandOut
	for i := range list {
		x := &list[i]
		if x.sumAll < fewest || x.sumAll == n {
			continue
		}
		t.TestedValues++
		s := StandOut{
			Key: w.traits.keys.names[x.key], Value: w.traits.values[x.key].names[x.value],
			Requests: x.sumBand, Of: x.sumAll,
			BandShare: float64(x.sumBand) / float64(k), RestShare: float64(x.sumAll-x.sumBand) / float64(n-k),
		}
		if s.BandShare <= s.RestShare {
			continue
		}
		if s.P = hypergeometric(lf, n, x.sumAll, k, x.sumBand); s.P > falseShare {
			continue
		}
		excess := make([]float64, spells)
		for b := range excess {
			excess[b] = float64(x.band[b]) - float64(inBand[b])*s.RestShare
		}
		s.P = max(s.P, signFlips(excess))
		if s.RestShare > 0 {
			s.Ratio = trace.Some(s.BandShare / s.RestShare)
		}
		found = append(found, s)
	}
	slices.SortFunc(found, func(x, y StandOut) int {
		return cmp.Or(cmp.Compare(x.P, y.P), cmp.Compare(x.Key, y.Key), cmp.Compare(x.Value, y.Value))
	})
	keep := 0
	for i, s := range found {
		if s.P <= falseShare*float64(i+1)/float64(t.TestedValues) {
			keep = i + 1
		}
	}
	found = found[:keep]
	slices.SortStableFunc(found, func(x, y StandOut) int {
		return cmp.Or(
			cmp.Compare(y.Ratio.Or(math.Inf(1)), x.Ratio.Or(math.Inf(1))), cmp.Compare(y.Requests, x.Requests),
			cmp.Compare(x.Key, y.Key), cmp.Compare(x.Value, y.Value))
	})
	t.StandsOut = append(t.StandsOut, found...)
}

// logFactorials returns ln i! for i up to n.
func logFactorials(n int) []float64 {
	f := make([]float64, n+1)
	for i := 2; i <= n; i++ {
		f[i] = f[i-1] + math.Log(float64(i))
	}
	return f
}

// hypergeometric is the probability that of k drawn from n, of which x have a
// value, at least a have it.
func hypergeometric(lf []float64, n, x, k, a int64) float64 {
	choose := func(n, k int64) float64 { return lf[n] - lf[k] - lf[n-k] }
	var p float64
	for i := max(a, k-(n-x)); i <= min(x, k); i++ {
		p += math.Exp(choose(x, i) + choose(n-x, k-i) - choose(n, k))
	}
	return min(p, 1)
}

// signFlips is the share of the ways to give each number either sign in which
// they come to as much as they do. All are tried: the sums of either half of
// the numbers, sorted, are matched.
func signFlips(x []float64) float64 {
	var total, size float64
	for _, v := range x {
		total += v
		size += math.Abs(v)
	}
	sums := func(x []float64) []float64 {
		all := []float64{0}
		for _, v := range x {
			for _, s := range all[:len(all):len(all)] {
				all = append(all, s-v)
			}
			half := all[:len(all)/2]
			for i := range half {
				half[i] += v
			}
		}
		slices.Sort(all)
		return all
	}
	first, second := sums(x[:len(x)/2]), sums(x[len(x)/2:])
	want := total - size*1e-12 // what rounding may take away
	var count, j = 0, len(second)
	for _, s := range first {
		for j > 0 && s+second[j-1] >= want {
			j--
		}
		count += len(second) - j
	}
	return float64(count) / (float64(len(first)) * float64(len(second)))
}
