package analyze

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func stacksOf(o StackOptions, rs []*trace.Request) *Stacks {
	b := NewStacks(o)
	for _, r := range rs {
		b.Add(r)
	}
	return b.Stacks(nil)
}

// lines prints a sample a line: frames; values; labels.
func lines(s *Stacks) string {
	var b strings.Builder
	for _, x := range s.Samples {
		fmt.Fprintf(&b, "%s  %v ", strings.Join(x.Frames, "; "), x.Values)
		for _, l := range x.Labels {
			if l.Unit != "" {
				fmt.Fprintf(&b, " %s:%d%s", l.Key, l.Num, l.Unit)
			} else {
				fmt.Fprintf(&b, " %s:%s", l.Key, l.Text)
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestStacks(t *testing.T) {
	tests := []struct {
		name, in string
		frames   []string
		want     string // requests, waiting, compute, overhead, e2e
	}{
		{
			name: "each phase is a leaf, the request counts on the longest",
			in:   `r arrival=0 end=10ns queueing=0..2ns prefill=2ns..3ns decode=3ns..9ns completion=9ns..10ns service=s model=m replica=g in=700`,
			want: `
service s; model m; replica g; completion  [0 0 0 1 1]  band:p0-p50 outcome:ok prompt_tokens:512tokens
service s; model m; replica g; decode  [1 0 6 0 6]  band:p0-p50 outcome:ok prompt_tokens:512tokens
service s; model m; replica g; prefill  [0 0 1 0 1]  band:p0-p50 outcome:ok prompt_tokens:512tokens
service s; model m; replica g; queueing  [0 2 0 0 2]  band:p0-p50 outcome:ok prompt_tokens:512tokens
`,
		},
		{
			name:   "what is not split or not claimed is in e2e alone",
			in:     `r arrival=0 end=10ns queueing|prefill=0..4ns prefill|decode=4ns..7ns`,
			frames: []string{"phase"},
			want: `
prefill|decode  [0 0 3 0 3]  band:p0-p50 outcome:ok
queueing|prefill  [1 0 0 0 4]  band:p0-p50 outcome:ok
unattributed  [0 0 0 0 3]  band:p0-p50 outcome:ok
`,
		},
		{
			name:   "of equally long phases the first counts",
			in:     `r arrival=0 end=4ns decode=2ns..4ns queueing=0..2ns`,
			frames: []string{"phase"},
			want: `
decode  [0 0 2 0 2]  band:p0-p50 outcome:ok
queueing  [1 2 0 0 2]  band:p0-p50 outcome:ok
`,
		},
		{
			name: "an unknown end: as far as it was seen, no band",
			in:   "r arrival=0 queueing=0..5ns @tenant=a @http.route=/v1/chat outcome=incomplete",
			want: "\nservice (not in the data); model (not in the data); replica (not in the data); queueing  [1 5 0 0 5]  outcome:incomplete route:/v1/chat tenant:a\n",
		},
		{
			name: "no instant at all still counts",
			in:   "r outcome=error",
			want: "\nservice (not in the data); model (not in the data); replica (not in the data); unattributed  [1 0 0 0 0]  outcome:error\n",
		},
		{
			name:   "without phases they are summed; any key is a frame",
			in:     "r arrival=0 end=4ns decode=2ns..4ns queueing=0..2ns @team=x",
			frames: []string{"team", "outcome"},
			want:   "\nteam x; outcome ok  [1 2 2 0 4]  band:p0-p50 outcome:ok\n",
		},
		{
			name:   "a value is not taken for an absent one",
			in:     "a replica=\"(not in the data)\" arrival=0 end=1ns\nb\nc @tenant=",
			frames: []string{"replica", "tenant"},
			want: `
replica "(not in the data)"; tenant (not in the data)  [1 0 0 0 1]  band:p0-p50 outcome:ok
replica (not in the data); tenant ""  [1 0 0 0 0]  outcome:incomplete tenant:
replica (not in the data); tenant (not in the data)  [1 0 0 0 0]  outcome:incomplete
`,
		},
		{
			name: "the quantiles are those of ok requests, the bands are for all",
			// ok: 10, 20, 30: p50 20, p90 28, p99 29.8, to the nearest 30
			in: `
a arrival=0 end=10ns
b arrival=0 end=20ns
c arrival=0 end=30ns
d arrival=0 end=29ns outcome=error
e arrival=0 end=99ns outcome=aborted
f arrival=0 end=28ns outcome=error
`,
			frames: []string{"outcome"},
			want: `
outcome aborted  [1 0 0 0 99]  band:p99-p100 outcome:aborted
outcome error  [1 0 0 0 28]  band:p50-p90 outcome:error
outcome error  [1 0 0 0 29]  band:p90-p99 outcome:error
outcome ok  [2 0 0 0 30]  band:p0-p50 outcome:ok
outcome ok  [1 0 0 0 30]  band:p90-p99 outcome:ok
`,
		},
		{
			name:   "a prompt of no tokens is a known one",
			in:     "a in=0\nb in=1\nc in=5\nd in=7\ne in=8",
			frames: []string{"outcome"},
			want: `
outcome incomplete  [1 0 0 0 0]  outcome:incomplete prompt_tokens:0tokens
outcome incomplete  [1 0 0 0 0]  outcome:incomplete prompt_tokens:1tokens
outcome incomplete  [2 0 0 0 0]  outcome:incomplete prompt_tokens:4tokens
outcome incomplete  [1 0 0 0 0]  outcome:incomplete prompt_tokens:8tokens
`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := lines(stacksOf(StackOptions{Frames: tt.frames}, reqtext.MustParse(t, tt.in)))
			if diff := cmp.Diff(strings.TrimPrefix(tt.want, "\n"), got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

func TestStacksAliases(t *testing.T) {
	rs := reqtext.MustParse(t, "r @user.id=u @tenant=t @url.path=/p @http.route=/r")
	got := lines(stacksOf(StackOptions{Frames: []string{"outcome"}}, rs))
	if want := "outcome incomplete  [1 0 0 0 0]  outcome:incomplete route:/r tenant:t\n"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStacksWindow(t *testing.T) {
	b := reqtext.Base
	tests := []struct {
		name, in   string
		start, end trace.Opt[trace.Time]
	}{
		{"first arrival, last completion", "a arrival=5ns end=9ns\nb arrival=2ns end=7ns", trace.Some(b + 2), trace.Some(b + 9)},
		{"nothing completed", "a arrival=5ns", trace.Some(b + 5), trace.Opt[trace.Time]{}},
		{"no calendar", "a arrival=5ns end=9ns clock=relative", trace.Opt[trace.Time]{}, trace.Opt[trace.Time]{}},
		{"two clocks", "a arrival=5ns end=9ns\nb arrival=5ns end=9ns clock=monotonic", trace.Opt[trace.Time]{}, trace.Opt[trace.Time]{}},
		{"no requests", "", trace.Opt[trace.Time]{}, trace.Opt[trace.Time]{}},
	}
	for _, tt := range tests {
		s := stacksOf(StackOptions{}, reqtext.MustParse(t, tt.in))
		if s.Start != tt.start || s.End != tt.end {
			t.Errorf("%s: window %v to %v, want %v to %v", tt.name, s.Start, s.End, tt.start, tt.end)
		}
	}
}

// someRequests makes requests of all outcomes with claims of any set, that
// may overlap, stick out or be missing.
func someRequests(rnd *rand.Rand, n int) []*trace.Request {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	rs := make([]*trace.Request, n)
	for i := range rs {
		at := reqtext.Base + trace.Time(rnd.Int64N(1e12))
		r := &trace.Request{
			ID: fmt.Sprint(i), Clock: trace.ClockUnix, Resolution: 1,
			Service: pick("", "chat", "batch"), Model: pick("m1", "m2"), Replica: pick("", "gpu-0", "(not in the data)"),
		}
		if rnd.IntN(10) > 0 {
			r.Arrival = trace.At(at, trace.Measured)
		}
		if rnd.IntN(10) > 0 {
			r.Completed = trace.At(at+trace.Time(rnd.Int64N(1e10)), trace.Measured)
			r.Outcome = trace.Outcomes()[rnd.IntN(5)]
		}
		for range rnd.IntN(6) {
			from := at + trace.Time(rnd.Int64N(1e10)-1e9)
			r.Intervals = append(r.Intervals, trace.Interval{
				Phase: trace.Phase(1 + rnd.IntN(127)), Basis: trace.Measured,
				Start: from, End: from + trace.Time(rnd.Int64N(1e10)*rnd.Int64N(2)),
			})
		}
		if rnd.IntN(2) == 0 {
			r.Input = trace.Some(rnd.IntN(5000))
		}
		if rnd.IntN(2) == 0 {
			r.SetAttr("tenant", trace.StringValue(pick("a", "b", "")))
		}
		if err := r.Check(); err != nil {
			panic(err)
		}
		rs[i] = r
	}
	return rs
}

// The totals of a profile are the sums over the breakdowns, whatever the
// frames, and the number of requests.
func TestStacksTotals(t *testing.T) {
	for seed := range uint64(20) {
		rs := someRequests(rand.New(rand.NewPCG(seed, 1)), 300)
		var want [stackValues]int64
		perPhase := make(map[string]int64)
		for _, r := range rs {
			b := r.Breakdown()
			want[valueRequests]++
			want[valueWaiting] += int64(b.Kind(trace.Waiting))
			want[valueCompute] += int64(b.Kind(trace.Compute))
			want[valueOverhead] += int64(b.Kind(trace.Overhead))
			want[valueE2E] += int64(b.Extent)
			for _, p := range b.Parts {
				perPhase[p.Phase.String()] += int64(p.Dur)
			}
			perPhase["unattributed"] += int64(b.Unattributed)
		}
		for _, frames := range [][]string{nil, {"phase"}, {"replica"}, {"phase", "tenant", "model"}} {
			s := stacksOf(StackOptions{Frames: frames}, rs)
			var got [stackValues]int64
			leaf := make(map[string]int64)
			for _, x := range s.Samples {
				for i, v := range x.Values {
					got[i] += v
				}
				if i := slices.Index(s.Keys, PhaseFrame); i >= 0 {
					leaf[x.Frames[i]] += x.Values[valueE2E]
				}
			}
			if got != want {
				t.Errorf("seed %d, frames %q: totals %v, want %v", seed, frames, got, want)
			}
			if slices.Contains(s.Keys, PhaseFrame) {
				if diff := cmp.Diff(perPhase, leaf); diff != "" {
					t.Errorf("seed %d, frames %q: by phase -want +got\n%s", seed, frames, diff)
				}
			}
		}
	}
}

// Any order and any split give the same stacks.
func TestStacksOrderAndMerge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	rs := someRequests(rnd, 500)
	want := stacksOf(StackOptions{}, rs)
	opt := cmp.AllowUnexported(trace.Opt[trace.Time]{})
	for range 5 {
		rnd.Shuffle(len(rs), func(i, j int) { rs[i], rs[j] = rs[j], rs[i] })
		parts := []*StackBuilder{NewStacks(StackOptions{}), NewStacks(StackOptions{}), NewStacks(StackOptions{})}
		for _, r := range rs {
			parts[rnd.IntN(3)].Add(r)
		}
		for _, p := range parts[1:] {
			if err := parts[0].Merge(p); err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(want, parts[0].Stacks(nil), opt); diff != "" {
			t.Fatalf("-want +got\n%s", diff)
		}
	}
	if err := NewStacks(StackOptions{}).Merge(NewStacks(StackOptions{Frames: []string{"phase"}})); err == nil {
		t.Error("merging different frames: no error")
	}
}

// Moving all requests in time changes no weight.
func TestStacksShift(t *testing.T) {
	rs := someRequests(rand.New(rand.NewPCG(3, 3)), 200)
	want := lines(stacksOf(StackOptions{}, rs))
	shift := func(i *trace.Instant) {
		if i.Present() {
			i.At += trace.Time(time.Hour)
		}
	}
	for _, r := range rs {
		shift(&r.Arrival)
		shift(&r.Completed)
		for i := range r.Intervals {
			r.Intervals[i].Start += trace.Time(time.Hour)
			r.Intervals[i].End += trace.Time(time.Hour)
		}
	}
	if diff := cmp.Diff(want, lines(stacksOf(StackOptions{}, rs))); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// A label of too many values is left out, whatever the order of requests, and
// totals stay. A frame of that key keeps them all.
func TestStacksManyValues(t *testing.T) {
	for _, c := range []struct {
		name          string
		values        int
		frames        []string
		samples       int
		tenant, route bool
	}{
		{"as many as may be", MaxLabelValues, nil, MaxLabelValues, true, true},
		{"one more", MaxLabelValues + 1, nil, 2, false, true},
		{"in the frames", MaxLabelValues + 1, []string{"tenant", PhaseFrame}, MaxLabelValues + 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var rs []*trace.Request
			for i := range 2 * c.values {
				r := &trace.Request{
					Outcome: trace.OK, Clock: trace.ClockUnix, Resolution: 1, Arrival: trace.At(1, trace.Measured), Completed: trace.At(11, trace.Measured),
					Intervals: []trace.Interval{{Phase: trace.Queueing, Basis: trace.Measured, Start: 1, End: 11}},
				}
				r.SetAttr("tenant", trace.StringValue(fmt.Sprint("t", i%c.values)))
				r.SetAttr("route", trace.StringValue(fmt.Sprint("r", i%c.values%2)))
				rs = append(rs, r)
			}
			got := stacksOf(StackOptions{Frames: c.frames}, rs)
			var requests, waiting int64
			for _, s := range got.Samples {
				requests, waiting = requests+s.Values[valueRequests], waiting+s.Values[valueWaiting]
				for key, want := range map[string]bool{LabelTenant: c.tenant, LabelRoute: c.route} {
					if has := slices.ContainsFunc(s.Labels, func(l Label) bool { return l.Key == key }); has != want {
						t.Fatalf("%v: label %s: %v", s.Labels, key, has)
					}
				}
			}
			if n := int64(2 * c.values); len(got.Samples) != c.samples || requests != n || waiting != 10*n {
				t.Errorf("%d samples, %d requests, %d ns", len(got.Samples), requests, waiting)
			}
			if said := slices.Contains(got.Comments, "label tenant left out: more than 10,000 values"); said == c.tenant {
				t.Errorf("comments: %q", got.Comments)
			}
			slices.Reverse(rs)
			if lines(got) != lines(stacksOf(StackOptions{Frames: c.frames}, rs)) {
				t.Error("the order of requests shows")
			}
		})
	}
}

func BenchmarkStacks(b *testing.B) {
	rs := someRequests(rand.New(rand.NewPCG(1, 1)), 10000)
	b.ReportAllocs()
	for b.Loop() {
		stacksOf(StackOptions{}, rs)
	}
	b.ReportMetric(float64(len(rs)*b.N)/b.Elapsed().Seconds(), "requests/s")
}
