package analyze

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// benchRun is the requests of one replica, near its limit, of so
// many classes.
func benchRun(b *testing.B, seed, classes, slots, blocks int) []*trace.Request {
	const each = 2000
	e := sim.Engine{
		Seed: uint64(seed), Service: "s", Model: "m", Replicas: 1, Routing: sim.RoundRobin,
		Slots: slots, Chunked: true, Budget: 2048, Limit: 8192, Blocks: blocks,
		Base: 8 * time.Millisecond, PerPrefill: 20 * time.Microsecond, PerDecode: 100 * time.Microsecond,
	}
	for i := range classes {
		t := sim.Tenant{Name: fmt.Sprint("chat", i), Prompt: sim.Length{Min: 50, Max: 500}, Output: sim.Length{Min: 20, Max: 300}}
		if i%2 == 1 {
			t = sim.Tenant{Name: fmt.Sprint("batch", i), Burst: 20, Prompt: sim.Length{Min: 500, Max: 1500}, Output: sim.Length{Min: 20, Max: 200}}
		}
		t.Requests, t.Rate = each/classes, 40/float64(classes)
		e.Tenants = append(e.Tenants, t)
	}
	run, err := e.Run()
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range run.Requests {
		r.Replica = fmt.Sprint(seed)
	}
	return run.Requests
}

// BenchmarkWaits is what causes and blame cost: of adding and of the result
// apart, in nanoseconds of processor time a request, and in bytes that a
// request takes until the result.
func BenchmarkWaits(b *testing.B) {
	for _, c := range []struct {
		name                              string
		n, replicas, classes, slots, blks int
	}{
		{"10k on 10", 10_000, 10, 2, 64, 0},
		{"100k on 10", 100_000, 10, 2, 64, 0},
		{"1M on 10", 1_000_000, 10, 2, 64, 0},
		{"100k on 2 of 50 classes, preempted", 100_000, 2, 50, 256, 1600},
	} {
		var rs []*trace.Request
		for i := range c.replicas {
			rs = append(rs, benchRun(b, i, c.classes, c.slots, c.blks)[:min(2000, c.n/c.replicas)]...)
		}
		end := rs[0].Arrival.At
		for _, r := range rs {
			end = max(end, r.Completed.At)
		}
		b.Run(c.name, func(b *testing.B) {
			var add, result time.Duration
			var held uint64
			n := 0
			for b.Loop() {
				b.StopTimer()
				before, t := heap(), cpuTime()
				ws := NewWaits(WaitOptions{})
				var moving time.Duration
				b.StartTimer()
				for n = 0; n < c.n; n += len(rs) {
					for _, r := range rs {
						ws.Add(r)
					}
					b.StopTimer()
					t := cpuTime()
					for _, r := range rs { // the same again and again, later each time
						move(r, end-sim.Base)
					}
					moving += cpuTime() - t
					b.StartTimer()
				}
				b.StopTimer()
				add += cpuTime() - t - moving
				held = heap() - before
				t = cpuTime()
				b.StartTimer()
				if res := ws.Result(); res.WaitingNS == 0 {
					b.Fatal("nothing waited")
				}
				result += cpuTime() - t
			}
			per := func(d time.Duration) float64 { return float64(d) / float64(n) / float64(b.N) }
			b.ReportMetric(per(add), "add-cpu-ns/request")
			b.ReportMetric(per(result), "result-cpu-ns/request")
			b.ReportMetric(float64(held)/float64(n), "held-B/request")
		})
	}
}

// heap is what is in use after a collection, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
