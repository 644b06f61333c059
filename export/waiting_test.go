package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

type explained struct {
	why *analyze.WaitResult
	rep *analyze.Report
}

func explain(opts analyze.Options, rs []*trace.Request, readings ...trace.Reading) explained {
	a := analyze.New(opts)
	for _, r := range rs {
		a.Add(r)
	}
	for _, r := range readings {
		a.AddReading(r)
	}
	rep, why := a.Explain()
	return explained{why, rep}
}

var someWaits map[string]explained

// waits are results of each kind.
func waits(t testing.TB) map[string]explained {
	t.Helper()
	if someWaits == nil {
		someWaits = makeWaits(t)
	}
	return someWaits
}

func makeWaits(t testing.TB) map[string]explained {
	engine := func(f func(*sim.Engine)) []*trace.Request {
		const ms = time.Millisecond
		e := sim.Engine{
			Seed: 3, Service: "chat", Model: "demo-8b", Replicas: 1, Routing: sim.RoundRobin,
			Slots: 6, Chunked: true, Budget: 1024, Limit: 4096,
			Base: 10 * ms, PerPrefill: 40 * time.Microsecond, PerDecode: 200 * time.Microsecond,
			Tenants: []sim.Tenant{
				{Name: "chat", Requests: 300, Rate: 5, Prompt: sim.Length{Min: 20, Max: 400, Skew: 1}, Output: sim.Length{Min: 10, Max: 80}},
				{Name: "batch", Requests: 60, Rate: 1, Burst: 6, Prompt: sim.Length{Min: 800, Max: 3000}, Output: sim.Length{Min: 80, Max: 250}},
			},
		}
		f(&e)
		run, err := e.Run()
		if err != nil {
			t.Fatal(err)
		}
		return run.Requests
	}
	// b waits 10 ms for a's slot; then c, of x, waits 5 ms while nothing runs.
	hand := `
a arrival=0 queued=0 scheduled=0 first=2ms last=10ms end=10ms prefill=0..2ms decode=2ms..10ms in=10 out=5 @tenant=x
b arrival=0 queued=0 scheduled=10ms first=12ms last=20ms end=20ms queueing=0..10ms prefill=10ms..12ms decode=12ms..20ms in=10 out=5 @tenant=y
c arrival=25ms queued=25ms scheduled=30ms first=32ms last=40ms end=40ms queueing=25ms..30ms prefill=30ms..32ms decode=32ms..40ms in=10 out=5 @tenant=x`
	one := analyze.Options{Wait: analyze.WaitOptions{Slots: trace.Some[int64](1)}}
	reading := func(at trace.Time, waiting int) trace.Reading {
		return trace.Reading{Source: trace.Source{Engine: "vllm-log"}, Replica: "engine 0", Clock: trace.ClockUnix, Resolution: 1e9,
			At: reqtext.Base + at, Running: trace.Some(2), Waiting: trace.Some(waiting)}
	}
	return map[string]explained{
		"hand": explain(one, reqtext.MustParse(t, hand)),
		"cluster": explain(analyze.Options{}, engine(func(e *sim.Engine) {
			e.Replicas, e.Slots, e.Tenants[0].Rate = 4, 3, 12
			e.Freezes = []sim.Freeze{{Replica: 1, From: 20 * time.Second, For: 8 * time.Second}}
		})),
		"equal":   explain(analyze.Options{By: []string{"prompt_bucket"}, Wait: analyze.WaitOptions{Equal: true, Budget: trace.Some[int64](1024)}}, engine(func(e *sim.Engine) { e.Tenants[1].Priority = 1 })),
		"none":    explain(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 queueing=0..0 prefill=0..5ms end=5ms")),
		"empty":   explain(analyze.Options{}, nil),
		"unsplit": explain(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 queueing|prefill=0..3ms decode=3ms..5ms end=7ms engine=sglang format=otlp-proto")),
		"log": explain(analyze.Options{}, reqtext.MustParse(t, "r1 arrival=0 end=3s resolution=1s engine=vllm-log format=vllm-log in=5\nr2 arrival=1s end=1s resolution=1s engine=vllm-log format=vllm-log outcome=aborted"),
			reading(0, 0), reading(10e9, 4)),
		"clocks": explain(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 queued=0 scheduled=1s queueing=0..1s end=2s @tenant=\"\x1b[31m\"\nb clock=relative arrival=0 queued=0 scheduled=1s queueing=0..1s end=2s")),
	}
}

func TestWriteWaiting(t *testing.T) {
	for name, x := range waits(t) {
		var b bytes.Buffer
		if err := WriteWaiting(&b, x.why, x.rep, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		golden(t, "waiting-"+name+".txt", b.Bytes())
		for i, line := range strings.Split(b.String(), "\n") {
			if strings.TrimRight(line, " ") != line {
				t.Errorf("%s line %d ends in blanks", name, i+1)
			}
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s line %d is %d columns wide: %q", name, i+1, n, line)
			}
		}
		if s := b.String(); strings.ContainsRune(s, '\x1b') || strings.Contains(s, "NaN") || strings.Contains(s, "%!") {
			t.Errorf("%s: control characters, NaN or a bad format in\n%s", name, s)
		}
	}
}

func TestWriteWaitingJSON(t *testing.T) {
	for name, x := range waits(t) {
		var b bytes.Buffer
		if err := WriteWaitingJSON(&b, x.why); err != nil {
			t.Fatal(err)
		}
		var back analyze.WaitResult
		dec := json.NewDecoder(bytes.NewReader(b.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(back.Causes, x.why.Causes) || !reflect.DeepEqual(back.Matrix, x.why.Matrix) || !reflect.DeepEqual(back.Holders, x.why.Holders) {
			t.Errorf("%s: reads back as something else", name)
		}
		if name == "hand" {
			golden(t, "waiting-hand.json", b.Bytes())
		}
	}
}

// The books balance between the report, the result and its tables, to the
// nanosecond.
func TestWaitingAddsUp(t *testing.T) {
	for name, x := range waits(t) {
		var kind, all, causes int64
		for _, k := range x.rep.Kinds {
			if k.Kind == trace.Waiting.String() {
				kind = k.TotalAllNS
			}
		}
		if x.rep.Waiting != nil {
			all = x.rep.Waiting.WaitingNS
			for _, c := range x.rep.Waiting.Causes {
				causes += c.NS
			}
		}
		if kind != all || causes != all || x.why.WaitingNS != all {
			t.Errorf("%s: the phases have %d ns of waiting, the report %d, its causes %d, the result %d", name, kind, all, causes, x.why.WaitingNS)
		}
		if tail := x.rep.Tail; tail != nil {
			var want, got [2]int64
			for _, p := range tail.Phases {
				if p.Kind == trace.Waiting.String() {
					want[0], want[1] = want[0]+p.MeanNS, want[1]+p.MedianMeanNS
				}
			}
			for _, c := range tail.Causes {
				got[0], got[1] = got[0]+c.MeanNS, got[1]+c.MedianMeanNS
				if c.DifferenceNS != c.MeanNS-c.MedianMeanNS {
					t.Errorf("%s: %+v", name, c)
				}
			}
			if got != want {
				t.Errorf("%s: causes in the tail have %d, phases %d", name, got, want)
			}
		}
		for _, table := range x.why.Tables() {
			sum := func(column string) (ns int64) {
				for i, c := range table.Columns {
					if c.Name != column {
						continue
					}
					for _, row := range table.Rows {
						ns += row[i].Int
					}
				}
				return ns
			}
			switch table.Name {
			case "causes", "blame":
				if got := sum("waiting_ns") + sum("ns"); got != all {
					t.Errorf("%s: table %s has %d of %d", name, table.Name, got, all)
				}
			case "waiting_replicas", "replica_causes":
				if got := sum("waiting_ns"); got+x.why.UnplacedNS != all {
					t.Errorf("%s: table %s has %d of %d", name, table.Name, got, all)
				}
			}
		}
	}
}

func TestWaitingCSV(t *testing.T) {
	for name, x := range waits(t) {
		var b bytes.Buffer
		if err := WriteCSV(&b, x.why.Tables()); err != nil {
			t.Fatal(err)
		}
		recs, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for _, rec := range recs[1:] {
			if k := strings.Join(rec[:3], "\x00"); seen[k] {
				t.Errorf("%s: twice %q", name, rec)
			} else {
				seen[k] = true
			}
			if strings.HasSuffix("_"+rec[2], "_ns") != (rec[4] == "ns") {
				t.Errorf("%s: column %s has unit %q", name, rec[2], rec[4])
			}
		}
	}
}
