package analyze

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// explain runs Waits over requests and checks that all its books balance.
func explain(t testing.TB, opts WaitOptions, rs []*trace.Request) *WaitResult {
	t.Helper()
	ws := NewWaits(opts)
	for _, r := range rs {
		ws.Add(r)
	}
	res := ws.Result()
	if err := checkBooks(res, rs); err != nil {
		t.Fatal(err)
	}
	return res
}

// checkBooks reports a sum that does not come out.
func checkBooks(res *WaitResult, rs []*trace.Request) error {
	var waiting, byCause, charged, charges int64
	causes := map[string]int64{}
	for i, r := range rs {
		b := r.Breakdown()
		want := b.Kind(trace.Waiting)
		waiting += int64(want)
		var got time.Duration
		var last trace.Time
		for k, p := range res.Parts(i) {
			if p.End <= p.Start || k > 0 && p.Start < last {
				return fmt.Errorf("request %d: part %d out of order: %v", i, k, res.Parts(i))
			}
			last = p.End
			got += p.End.Sub(p.Start)
			causes[p.Cause.String()] += int64(p.End.Sub(p.Start))
		}
		if got != want {
			return fmt.Errorf("request %d: parts sum to %v, waiting is %v", i, got, want)
		}
		if c := res.Charged(i); c < 0 {
			return fmt.Errorf("request %d is charged %d", i, c)
		} else {
			charges += c
		}
	}
	if res.WaitingNS != waiting {
		return fmt.Errorf("waiting %d, requests say %d", res.WaitingNS, waiting)
	}
	for _, c := range res.Causes {
		byCause += c.NS
		if causes[c.Cause] != c.NS {
			return fmt.Errorf("%s: %d in all, parts say %d", c.Cause, c.NS, causes[c.Cause])
		}
	}
	if byCause != waiting {
		return fmt.Errorf("causes sum to %d, waiting is %d", byCause, waiting)
	}
	cells := map[[2]string]int64{}
	var matrix int64
	for _, c := range res.Matrix {
		if c.NS <= 0 {
			return fmt.Errorf("cell %+v", c)
		}
		matrix += c.NS
		if c.Holder != "" {
			charged += c.NS
		}
		cells[[2]string{c.Waiter, c.Cause}] += c.NS
	}
	if matrix != waiting || charged != charges {
		return fmt.Errorf("matrix %d of %d waiting; %d charged to classes, %d to requests", matrix, waiting, charged, charges)
	}
	var inReplicas int64
	for _, rw := range res.Replicas {
		var cells, causes int64
		for _, c := range rw.Matrix {
			cells += c.NS
		}
		for _, c := range rw.Causes {
			causes += c.NS
		}
		if cells != rw.WaitingNS || causes != rw.WaitingNS {
			return fmt.Errorf("replica %s: waiting %d, matrix %d, causes %d", rw.Replica, rw.WaitingNS, cells, causes)
		}
		inReplicas += rw.WaitingNS
	}
	if inReplicas+res.UnplacedNS != waiting {
		return fmt.Errorf("replicas have %d and nobody %d of %d", inReplicas, res.UnplacedNS, waiting)
	}
	return nil
}

func causeOf(res *WaitResult, c Cause) CauseRow {
	for _, r := range res.Causes {
		if r.Cause == c.String() {
			return r
		}
	}
	return CauseRow{}
}

const msNS = int64(time.Millisecond)

// Two requests and one slot: b waits 10 ms for a. Then nothing runs while c
// waits.
func TestWaitsByHand(t *testing.T) {
	rs := reqtext.MustParse(t, `
a queued=0 scheduled=0 first=2ms last=10ms end=10ms prefill=0..2ms decode=2ms..10ms in=10 out=5 @tenant=x
b queued=0 scheduled=10ms first=12ms last=20ms end=20ms queueing=0..10ms prefill=10ms..12ms decode=12ms..20ms in=10 out=5 @tenant=y
c queued=25ms scheduled=30ms first=32ms last=40ms end=40ms queueing=25ms..30ms prefill=30ms..32ms decode=32ms..40ms in=10 out=5 @tenant=x
`)
	res := explain(t, WaitOptions{Slots: trace.Some[int64](1)}, rs)
	if got := causeOf(res, CauseSlots).NS; got != 10*msNS {
		t.Errorf("slots %d", got)
	}
	if got := causeOf(res, CauseHold).NS; got != 5*msNS {
		t.Errorf("hold %d", got)
	}
	want := []BlameCell{{"x", "", "hold", 5 * msNS}, {"y", "x", "slots", 10 * msNS}}
	if !reflect.DeepEqual(res.Matrix, want) {
		t.Errorf("matrix %+v", res.Matrix)
	}
	if got := res.Charged(0); got != 10*msNS {
		t.Errorf("a is charged %d", got)
	}
	if p := res.Parts(1); len(p) != 1 || p[0].Cause != CauseSlots || p[0].Start != reqtext.Base {
		t.Errorf("parts of b: %v", p)
	}
	if len(res.Holders) != 1 || res.Holders[0].ID != "a" || res.Holders[0].Class != "x" {
		t.Errorf("holders %+v", res.Holders)
	}
	if _, err := json.Marshal(res); err != nil {
		t.Error(err)
	}
}

// The waits of the model that started it: definitions, section 11.
func TestWaitsQueueModel(t *testing.T) {
	for _, c := range []struct {
		policy sim.Policy
		opts   WaitOptions
		cause  Cause
		want   int64
	}{
		{sim.Batch, WaitOptions{}, CauseHold, 6 * msNS},
		{sim.Individual, WaitOptions{Slots: trace.Some[int64](1)}, CauseSlots, 24 * msNS},
	} {
		q := sim.Queue{Setup: 4 * time.Millisecond, PerRequest: time.Millisecond, Policy: c.policy}
		for i := range 4 {
			q.Arrivals = append(q.Arrivals, time.Duration(i)*time.Millisecond)
		}
		run, err := q.Run()
		if err != nil {
			t.Fatal(err)
		}
		res := explain(t, c.opts, run.Requests())
		if got := causeOf(res, c.cause).NS; got != c.want || res.WaitingNS != c.want {
			t.Errorf("%s: %v %d of %d, want %d", c.policy, c.cause, got, res.WaitingNS, c.want)
		}
	}
}

// randomEngine draws an engine of any kind.
func randomEngine(rnd *rand.Rand, requests int) sim.Engine {
	const ms = time.Millisecond
	e := sim.Engine{
		Seed: rnd.Uint64(), Service: "s", Model: "m", Replicas: 1 + rnd.IntN(3), Routing: []sim.Routing{sim.RoundRobin, sim.LeastLoaded, sim.Sticky}[rnd.IntN(3)],
		Slots: 1 + rnd.IntN(12), Chunked: rnd.IntN(2) == 0, Limit: 600,
		Base: 5 * ms, PerPrefill: 20 * time.Microsecond, PerDecode: 200 * time.Microsecond, PerResident: 100 * time.Microsecond,
		Before: time.Duration(rnd.IntN(3)) * ms, After: time.Duration(rnd.IntN(3)) * ms, Every: time.Second,
		Tenants: []sim.Tenant{
			{Name: "a", Requests: requests, Rate: 20, Prompt: sim.Length{Min: 1, Max: 500, Skew: 1}, Output: sim.Length{Min: 1, Max: 60, Skew: 1}, Abort: 0.1, Fail: 0.1},
			{Name: "b", Requests: requests, Rate: 10, Burst: 10, Prompt: sim.Length{Min: 50, Max: 550}, Output: sim.Length{Min: 1, Max: 200}, Start: time.Second},
		},
	}
	e.Budget = e.Slots + rnd.IntN(500)
	if !e.Chunked {
		e.Budget = e.Limit + e.Slots
	}
	if rnd.IntN(3) > 0 {
		e.Blocks = (e.Limit+1)/sim.BlockTokens + 1 + rnd.IntN(40)
	}
	return e
}

// plain is a result without what it keeps for Parts and Charged.
func plain(t *testing.T, res *WaitResult) string {
	t.Helper()
	b, err := json.MarshalIndent(res, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWaitsProperties runs engines of all kinds: the books balance, the order
// of adding shows nowhere, and a shift of all times only in instants.
func TestWaitsProperties(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for n := range 60 {
		run, err := randomEngine(rnd, 40).Run()
		if err != nil {
			t.Fatal(err)
		}
		opts := WaitOptions{Equal: n%4 == 0}
		if n%3 == 0 {
			opts.Slots, opts.KVTokens = trace.Some(int64(run.Engine.Slots)), trace.Some(int64(run.Engine.Blocks*sim.BlockTokens))
		}
		if n%5 == 0 {
			opts.By = []string{"prompt_bucket", "tenant"}
		}
		rs := run.Requests
		res := explain(t, opts, rs)
		want := plain(t, res)

		mixed := slices.Clone(rs)
		rnd.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		again := explain(t, opts, mixed)
		if got := plain(t, again); got != want {
			t.Fatalf("another order, another result:\n%s\n%s", got, want)
		}
		for i, r := range mixed {
			j := slices.Index(rs, r)
			if !slices.Equal(again.Parts(i), res.Parts(j)) || again.Charged(i) != res.Charged(j) {
				t.Fatalf("another order: request %s has other parts or charges", r.ID)
			}
		}

		const by = 12345678901
		var shifted []*trace.Request
		for _, r := range rs {
			shifted = append(shifted, later(r, by))
		}
		moved := explain(t, opts, shifted)
		if !reflect.DeepEqual(moved.Matrix, res.Matrix) || !reflect.DeepEqual(moved.Causes, res.Causes) || !reflect.DeepEqual(moved.Overtaking, res.Overtaking) || !slices.Equal(moved.charges, res.charges) {
			t.Fatal("a shift of all times changes the result")
		}
	}
}

// later returns r by a duration later.
func later(r *trace.Request, by trace.Time) *trace.Request {
	v := *r
	v.Intervals = slices.Clone(r.Intervals)
	move(&v, by)
	return &v
}

// move makes r later by a duration.
func move(r *trace.Request, by trace.Time) {
	for _, i := range [...]*trace.Instant{&r.Arrival, &r.Queued, &r.Scheduled, &r.FirstToken, &r.LastToken, &r.Completed} {
		if i.Present() {
			i.At += by
		}
	}
	for i := range r.Intervals {
		r.Intervals[i].Start += by
		r.Intervals[i].End += by
	}
}

// A request without a tenant is not one whose tenant is "" or "(none)".
func TestClassesAreKeptApart(t *testing.T) {
	const text = `
r1 service=s arrival=0 queued=0 scheduled=1ms end=2ms queueing=0..1ms decode=1ms..2ms
r2 service=s arrival=0 queued=0 scheduled=2ms end=3ms queueing=0..2ms decode=2ms..3ms @tenant=""
r3 service=s arrival=0 queued=0 scheduled=4ms end=5ms queueing=0..4ms decode=4ms..5ms @tenant=(none)
r4 service=s arrival=0 queued=0 scheduled=8ms end=9ms queueing=0..8ms decode=8ms..9ms @tenant="\"\""
r5 service=s arrival=0 queued=0 scheduled=16ms end=17ms queueing=0..16ms decode=16ms..17ms @tenant="a, (none)"`
	for _, c := range []struct {
		by   []string
		want []string
	}{
		{[]string{"tenant"}, []string{"\"\"", `"(none)"`, `"\"\""`, "(none)", "a, (none)"}},
		{[]string{"tenant", "route"}, []string{`"", (none)`, `"(none)", (none)`, `"\"\"", (none)`, `"a, (none)", (none)`, "(none), (none)"}},
	} {
		w, b := NewWaits(WaitOptions{By: c.by}), NewStacks(StackOptions{Frames: c.by})
		a := New(Options{By: c.by})
		for _, r := range reqtext.MustParse(t, text) {
			w.Add(r)
			b.Add(r)
			a.Add(r)
		}
		res := w.Result()
		slices.Sort(c.want)
		if !slices.Equal(res.Classes, c.want) {
			t.Errorf("by %q: classes %q, want %q", c.by, res.Classes, c.want)
		}
		waited := map[string]int64{}
		for _, cell := range res.Matrix {
			waited[cell.Waiter] += cell.NS
		}
		for i, name := range c.want {
			if n := bits.OnesCount64(uint64(waited[name] / 1e6)); n != 1 {
				t.Errorf("by %q: class %d, %q, waited %d ns: of several requests", c.by, i, name, waited[name])
			}
		}
		frames := map[string]bool{}
		for _, s := range b.Stacks(nil).Samples {
			frames[strings.Join(s.Frames, ";")] = true
		}
		if len(frames) != 5 {
			t.Errorf("by %q: frames %v", c.by, frames)
		}
		groups := a.Report().Groups[0]
		if len(groups.Rows) != 5 {
			t.Errorf("by %q: %d groups", c.by, len(groups.Rows))
		}
		rows := map[string]bool{}
		for _, r := range groups.Table().Rows {
			rows[r[0].Text] = true
		}
		if len(rows) != 5 {
			t.Errorf("by %q: the table's rows are named %v", c.by, rows)
		}
	}
}

// TestClassesThatMatter has one class of few requests and long prompts behind
// 150 that have more requests: those that are joined are of these.
func TestClassesThatMatter(t *testing.T) {
	var text strings.Builder
	for i := range 150 {
		for k := range 2 {
			fmt.Fprintf(&text, "r%d-%d arrival=%[3]dms queued=%[3]dms scheduled=%[3]dms first=%[4]dms last=%[5]dms end=%[5]dms in=10 out=2 prefill=%[3]dms..%[4]dms decode=%[4]dms..%[5]dms @tenant=t%[1]d\n", i, k, 10*i+k, 10*i+k+1, 10*i+k+2)
		}
	}
	text.WriteString("long arrival=0 queued=0 scheduled=1ms first=2ms last=3ms end=3ms in=30000 out=2 queueing=0..1ms prefill=1ms..2ms decode=2ms..3ms @tenant=zz\n")
	res := explain(t, WaitOptions{}, reqtext.MustParse(t, text.String()))
	if len(res.Classes) != maxClasses+1 || !slices.Contains(res.Classes, "zz") {
		t.Errorf("%d classes: %q", len(res.Classes), res.Classes)
	}
}

// TestBudgetOfUnknownPrompts takes the counts of tokens away: no size of a step
// can be told then.
func TestBudgetOfUnknownPrompts(t *testing.T) {
	for _, tokens := range []bool{true, false} {
		var rs []*trace.Request
		for i := range 60 {
			in, at := 100, 100*i
			end, last := at+10, at+110
			if i%2 == 1 {
				in, end, last = 300, at+30, at+60
			}
			count := ""
			if tokens {
				count = fmt.Sprintf("in=%d out=3 ", in)
			}
			text := fmt.Sprintf("a%d service=s arrival=%[3]dms queued=%[3]dms scheduled=%[3]dms first=%[4]dms last=%[5]dms end=%[5]dms %[2]sprefill=%[3]dms..%[4]dms decode=%[4]dms..%[5]dms", i, count, at, end, last)
			if i%2 == 1 { // it is refused once, and another's step ends within its prompt
				text = strings.Replace(text, fmt.Sprintf("arrival=%[1]dms queued=%[1]dms", at), fmt.Sprintf("arrival=%[1]dms queued=%[1]dms queueing=%[1]dms..%[2]dms", at-15, at), 1)
				text += fmt.Sprintf("\nb%d service=s arrival=%[3]dms queued=%[3]dms scheduled=%[3]dms first=%[4]dms last=%[5]dms end=%[5]dms %[2]sprefill=%[3]dms..%[4]dms decode=%[4]dms..%[5]dms", i, strings.Replace(count, "300", "50", 1), at-20, at-10, at+15)
			}
			rs = append(rs, reqtext.MustParse(t, text)...)
		}
		res := explain(t, WaitOptions{}, rs)
		budget := res.Replicas[0].Limits.Budget
		if budget.Low.Present() != tokens || budget.High.Present() != tokens {
			t.Errorf("tokens told: %v, budget from %v to %v", tokens, budget.Low, budget.High)
		}
	}
}
