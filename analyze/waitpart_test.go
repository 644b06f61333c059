package analyze

import (
	"math/rand/v2"
	"testing"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// Only b is asked about: a holds the slot all the same, and c's wait is no
// part of the result.
func TestWaitsOfSome(t *testing.T) {
	ws := NewWaits(WaitOptions{Slots: trace.Some[int64](1)})
	for _, r := range reqtext.MustParse(t, `
a queued=0 scheduled=0    first=2ms  last=10ms end=10ms prefill=0..2ms decode=2ms..10ms in=10 out=5 @tenant=x
b queued=0 scheduled=10ms first=12ms last=20ms end=20ms queueing=0..10ms prefill=10ms..12ms decode=12ms..20ms in=10 out=5 @tenant=y
c queued=4ms scheduled=20ms first=22ms last=40ms end=40ms queueing=4ms..20ms prefill=20ms..22ms decode=22ms..40ms in=10 out=5 @tenant=x
`) {
		ws.Add(r)
	}
	res := ws.result(func(i int) bool { return i == 1 })
	if res.Requests != 1 || res.WaitingNS != 10*msNS || causeOf(res, CauseSlots).NS != 10*msNS || res.Replicas[0].Requests != 1 {
		t.Errorf("%+v", res)
	}
	if len(res.Matrix) != 1 || res.Matrix[0] != (BlameCell{"y", "x", "slots", 10 * msNS}) {
		t.Errorf("matrix %+v", res.Matrix)
	}
	if res.Charged(0) != 10*msNS || res.Charged(1) != 0 {
		t.Errorf("charged %d, %d", res.Charged(0), res.Charged(1))
	}
	if all := ws.Result(); all.WaitingNS != 26*msNS || all.Requests != 3 {
		t.Errorf("afterwards all: %d of %d", all.WaitingNS, all.Requests)
	}
}

// What is asked in two halves adds up to the whole, cause by cause, for each
// class of waiter; and what is added in two parts that are merged gives what
// one gives.
func TestWaitsDivided(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	type account struct{ waiter, cause string }
	for n := range 30 {
		run, err := randomEngine(rnd, 40).Run()
		if err != nil {
			t.Fatal(err)
		}
		opts := WaitOptions{Equal: n%4 == 0}
		if n%2 == 0 {
			opts.KVTokens = trace.Some(int64(run.Engine.Blocks * sim.BlockTokens))
		}
		whole, first, second := NewWaits(opts), NewWaits(opts), NewWaits(opts)
		for i, r := range run.Requests {
			whole.Add(r)
			if i < 30 {
				first.Add(r)
			} else {
				second.Add(r)
			}
		}
		first.Merge(second)
		all := whole.Result()
		if got, want := plain(t, first.Result()), plain(t, all); got != want {
			t.Fatalf("merged, another result:\n%s\n%s", got, want)
		}
		left := map[account]int64{}
		for _, c := range all.Matrix {
			left[account{c.Waiter, c.Cause}] += c.NS
		}
		var waiting, requests, avoidable int64
		for half := range 2 {
			res := whole.result(func(i int) bool { return i%2 == half })
			for _, c := range res.Matrix {
				left[account{c.Waiter, c.Cause}] -= c.NS
			}
			waiting, requests, avoidable = waiting+res.WaitingNS, requests+res.Requests, avoidable+res.AvoidableNS
		}
		if waiting != all.WaitingNS || requests != all.Requests || avoidable != all.AvoidableNS {
			t.Fatalf("halves have %d ns of %d requests, %d avoidable; all %d, %d, %d", waiting, requests, avoidable, all.WaitingNS, all.Requests, all.AvoidableNS)
		}
		for k, ns := range left {
			if ns != 0 {
				t.Fatalf("%v: %d ns are missing", k, ns)
			}
		}
	}
}
