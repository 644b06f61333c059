package analyze

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// What an arena was given it gives back, also after it took another's.
func TestArena(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 9))
	type kept struct {
		list []int
		at   uint64
	}
	var arenas [2]arena[int]
	var lists [2][]kept
	for n := range 20_000 {
		list := make([]int, rnd.IntN(5))
		if n == 700 {
			list = make([]int, 2*mostBlock) // more than a block holds
		}
		for i := range list {
			list[i] = rnd.Int()
		}
		k := n % 2
		lists[k] = append(lists[k], kept{list, arenas[k].add(list)})
	}
	by := arenas[0].take(&arenas[1])
	for k, moved := range []uint64{0, by} {
		for i, l := range lists[k] {
			if got := arenas[0].get(l.at+moved, uint32(len(l.list))); !slices.Equal(got, l.list) {
				t.Fatalf("list %d of arena %d: %d values are not those that were added", i, k, len(got))
			}
		}
	}
}
