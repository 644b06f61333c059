package analyze

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// Two requests and one slot: b waits for a's slot, from its arrival to a's end.
const oneSlot = `
a arrival=0   queueing=0..0 prefill=0..2ms decode=2ms..10ms queued=0 scheduled=0 first=2ms last=10ms end=10ms in=10 out=5 service=s replica=g @tenant=x
b arrival=4ms queueing=4ms..10ms prefill=10ms..12ms decode=12ms..14ms queued=4ms scheduled=10ms first=12ms last=14ms end=14ms in=10 out=2 service=s replica=g @tenant=y`

func explained(t *testing.T, text string, frames ...string) (*WaitResult, *Stacks, []*trace.Request) {
	t.Helper()
	rs := reqtext.MustParse(t, text)
	w := NewWaits(WaitOptions{Slots: trace.Some(int64(1))})
	b := NewStacks(StackOptions{Frames: frames})
	for _, r := range rs {
		w.Add(r)
		b.Add(r)
	}
	res := w.Result()
	return res, b.Stacks(res), rs
}

func TestStacksByCause(t *testing.T) {
	res, s, rs := explained(t, oneSlot, "replica", "phase", "cause")
	const want = `replica g; decode  [1 0 8000000 0 8000000]
replica g; decode  [0 0 2000000 0 2000000]
replica g; prefill  [0 0 2000000 0 2000000]
replica g; prefill  [0 0 2000000 0 2000000]
replica g; queueing; slots  [1 6000000 0 0 6000000]
`
	var got strings.Builder
	for line := range strings.Lines(lines(s)) {
		frames, _, _ := strings.Cut(line, "]")
		got.WriteString(frames + "]\n")
	}
	sorted := func(s string) []string { l := strings.Split(strings.TrimSpace(s), "\n"); slices.Sort(l); return l }
	if !slices.Equal(sorted(got.String()), sorted(want)) {
		t.Errorf("got\n%swant\n%s", got.String(), want)
	}

	row := res.Row(1)
	if row.ByCause[CauseSlots] != 6e6 || row.ChargedNS != 0 || res.Row(0).ChargedNS != 6e6 {
		t.Errorf("rows %+v, %+v", res.Row(0), row)
	}
	table := WaitingTable()
	for i, r := range rs {
		res.AppendParts(table, i, r)
	}
	if len(table.Rows) != 1 || table.Rows[0][0].Int != 1 || table.Rows[0][1].Text != "b" || table.Rows[0][2].Text != "slots" || table.Rows[0][7].Int != 6e6 {
		t.Errorf("waiting %+v", table.Rows)
	}
	blame := res.BlameTable()
	if len(blame.Rows) != 1 || blame.Rows[0][0].Text != "y" || blame.Rows[0][1].Text != "x" || blame.Rows[0][3].Int != 6e6 {
		t.Errorf("blame %+v", blame.Rows)
	}
	st, err := BlameStacks(res, []string{"waiter", "cause", "holder"})
	if err != nil {
		t.Fatal(err)
	}
	if got := lines(st); got != "waiter y; slots; holder x  [6000000] \n" {
		t.Errorf("blame %q", got)
	}
	if _, err := BlameStacks(res, []string{"holder", "phase"}); err == nil || !strings.Contains(err.Error(), `"phase"`) {
		t.Errorf("holder by phase: %v", err)
	}
	// A cause frame in the middle keeps its place where there is no cause.
	_, s, _ = explained(t, oneSlot, "cause", "phase")
	if got := lines(s); !strings.Contains(got, "(no cause); prefill") || !strings.Contains(got, "slots; queueing") {
		t.Errorf("got\n%s", got)
	}
}

// Whatever is asked for, profiles by cause and by holder add up to the waiting.
func TestStacksByCauseAddUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		run, err := sim.Engine{
			Seed: rng.Uint64(), Service: "s", Model: "m", Replicas: 1 + rng.IntN(3), Routing: sim.LeastLoaded, Slots: 2 + rng.IntN(5), Budget: 512, Chunked: true,
			Blocks: 120 + rng.IntN(300), Limit: 1600, Base: 10 * time.Millisecond, PerPrefill: 40 * time.Microsecond, PerDecode: 200 * time.Microsecond, Every: time.Second,
			Tenants: []sim.Tenant{
				{Name: "a", Requests: 60, Rate: 6, Prompt: sim.Length{Min: 1, Max: 500}, Output: sim.Length{Min: 1, Max: 80}, Abort: 0.1},
				{Name: "b", Requests: 20, Rate: 3, Burst: 5, Prompt: sim.Length{Min: 300, Max: 1500}, Output: sim.Length{Min: 1, Max: 60}},
			},
		}.Run()
		if err != nil {
			t.Fatal(err)
		}
		frames := slices.Clone(DefaultFrames)
		rng.Shuffle(len(frames), func(i, j int) { frames[i], frames[j] = frames[j], frames[i] })
		w, b := NewWaits(WaitOptions{}), NewStacks(StackOptions{Frames: frames})
		var waiting, e2e int64
		for _, r := range run.Requests {
			w.Add(r)
			b.Add(r)
			br := r.Breakdown()
			waiting += int64(br.Kind(trace.Waiting))
			e2e += int64(br.Extent)
		}
		res := w.Result()
		var requests, waited, all, charged int64
		for _, s := range b.Stacks(res).Samples {
			requests += s.Values[valueRequests]
			waited += s.Values[valueWaiting]
			all += s.Values[valueE2E]
		}
		st, err := BlameStacks(res, []string{"holder", "service", "cause", "waiter"})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range st.Samples {
			charged += s.Values[0]
		}
		if requests != int64(len(run.Requests)) || waited != waiting || all != e2e || charged != waiting {
			t.Fatalf("%d requests, waited %d, e2e %d, charged %d; want %d, %d, %d", requests, waited, all, charged, len(run.Requests), waiting, e2e)
		}
	}
}

// What is put aside holds and queues all the same: the others' waiting has the
// causes, and goes to the holders, that it has among all.
func TestAside(t *testing.T) {
	run, err := sim.Engine{
		Seed: 5, Service: "s", Model: "m", Replicas: 2, Routing: sim.LeastLoaded, Slots: 4, Budget: 512, Chunked: true,
		Blocks: 300, Limit: 1600, Base: 10 * time.Millisecond, PerPrefill: 40 * time.Microsecond, PerDecode: 200 * time.Microsecond,
		Tenants: []sim.Tenant{
			{Name: "a", Requests: 150, Rate: 6, Prompt: sim.Length{Min: 1, Max: 500}, Output: sim.Length{Min: 1, Max: 80}},
			{Name: "b", Requests: 50, Rate: 3, Burst: 5, Prompt: sim.Length{Min: 300, Max: 1500}, Output: sim.Length{Min: 1, Max: 60}},
		},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	all, some := NewWaits(WaitOptions{}), NewWaits(WaitOptions{})
	var chosen []int // the places among all
	for i, r := range run.Requests {
		all.Add(r)
		if v, _ := r.Attr("tenant"); v.String() == "a" {
			some.Add(r)
			chosen = append(chosen, i)
		} else {
			some.Aside(r)
		}
	}
	whole, part := all.Result(), some.Result()
	if part.Requests != int64(len(chosen)) || part.WaitingNS == 0 {
		t.Fatalf("%d requests, %d ns", part.Requests, part.WaitingNS)
	}
	var waiting int64
	for i, of := range chosen {
		want, got := whole.Row(of), part.Row(i)
		if got.ByCause != want.ByCause || got.AvoidableNS != want.AvoidableNS {
			t.Fatalf("request %d: %+v alone, %+v among all", of, got, want)
		}
		for _, ns := range got.ByCause {
			waiting += ns
		}
	}
	if waiting != part.WaitingNS {
		t.Errorf("parts add up to %d, waiting is %d", waiting, part.WaitingNS)
	}
	of := func(res *WaitResult) (cells []BlameCell) {
		for _, c := range res.Matrix {
			if c.Waiter == "a" {
				cells = append(cells, c)
			}
		}
		return cells
	}
	if got, want := of(part), of(whole); !slices.Equal(got, want) {
		t.Errorf("blame\n%+v, among all\n%+v", got, want)
	}
	if part.Parts(len(chosen)) != nil || part.Charged(-1) != 0 {
		t.Error("a request that was not added has parts")
	}
}
