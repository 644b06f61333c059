package analyze

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestSorter sorts events that are spread over the time, that share a few
// pieces of it or instants, and few that are far from the rest.
func TestSorter(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	var s sorter
	for _, draw := range []struct {
		name string
		at   func(i int) int64
	}{
		{"in order", func(i int) int64 { return int64(i) * 1000 }},
		{"backwards", func(i int) int64 { return 1<<40 - int64(i)*1000 }},
		{"any", func(int) int64 { return rnd.Int64N(1 << 62) }},
		{"one instant", func(int) int64 { return 0 }},
		{"few instants", func(int) int64 { return rnd.Int64N(5) << 30 }},
		{"bursts", func(i int) int64 { return int64(i/100)<<40 + rnd.Int64N(50) }},
		{"one far away", func(i int) int64 {
			if i == 3 {
				return 1 << 61
			}
			return rnd.Int64N(1 << 45)
		}},
	} {
		for _, n := range []int{0, 1, 2, fewEvents, fewEvents + 1, 1000, 3 * manyEvents} {
			events := make([]event, n)
			for i := range events {
				events[i] = event{at: draw.at(i), of: uint32(i)}
			}
			want := slices.Clone(events)
			slices.SortStableFunc(want, func(x, y event) int { return cmp.Compare(x.at, y.at) })
			if s.sort(events); !slices.Equal(events, want) {
				t.Errorf("%s: %d events are out of order", draw.name, n)
			}
		}
	}
}
