package analyze

import (
	"strings"
	"testing"

	"github.com/traceview/traceview/trace"
)

func TestWaitWords(t *testing.T) {
	causes := func(ns map[Cause]int64) []CauseRow {
		var sum [causeCount]causeSum
		var all int64
		for c, n := range ns {
			sum[c].ns = n
			all += n
		}
		rows, _ := causeRows(sum, all, func(Cause) trace.Basis { return trace.Inferred })
		return rows
	}
	replica := func(name string, running float64, c []CauseRow, l Limits) ReplicaWaits {
		return ReplicaWaits{Replica: name, RunningMean: trace.Some(running), Causes: c, Limits: l}
	}
	slots := causes(map[Cause]int64{CauseSlots: 94, CauseStep: 4, CausePrefill: 2})
	c64 := Limits{Slots: known(64, LimitInferred)}
	matrix := []BlameCell{{"batch", "batch", "slots", 29}, {"chat", "batch", "slots", 46}, {"chat", "batch", "step", 4}, {"chat", "chat", "slots", 19}, {"chat", "", "unknown", 2}}
	both := causes(map[Cause]int64{CauseKVCache: 60, CauseSlots: 30, CauseHold: 10})
	mixed := Limits{Slots: known(8, LimitStated), KV: known(120000, LimitData)}
	low := causes(map[Cause]int64{CauseSlots: 70, CauseUnknown: 30})
	for _, c := range []struct {
		name string
		res  WaitResult
		want string
		help string // among what helps
	}{
		{"nothing", WaitResult{Causes: causes(nil)}, "", ""},
		{"slots", WaitResult{
			WaitingNS: 100, AvoidableNS: 38, Confidence: trace.Some(0.97), Causes: slots, By: []string{"tenant"}, Matrix: matrix,
			Replicas: []ReplicaWaits{replica("replica-1", 60, slots, c64), replica("replica-2", 1.5, nil, Limits{})},
		}, "94.0 % of waiting is slots (C = 64, inferred); tenant batch held 70.4 % of what tenant chat waited for; " +
			"38.0 % was avoidable: another replica had no queue and a free slot (replica-2 ran 1.500 on average, others up to 60.00).",
			"What helps against slots: a higher limit if memory and step time allow, else replicas."},
		{"hot", WaitResult{
			WaitingNS: 100, AvoidableNS: 72, Confidence: trace.Some(1.0), Causes: slots,
			Replicas: []ReplicaWaits{{Replica: "a", WaitingNS: 97, Causes: slots, Limits: c64}, {Replica: "b", WaitingNS: 3}},
		}, "94.0 % of waiting is slots (C = 64, inferred); 72.0 % was avoidable: another replica had no queue and a free slot (a has 97.0 % of the waiting).", "What helps against slots: "},
		{"several", WaitResult{
			WaitingNS: 100, Confidence: trace.Some(0.7), Causes: both,
			Replicas: []ReplicaWaits{replica("a", 8, both, mixed), replica("b", 8, both, Limits{Slots: known(16, LimitInferred), KV: known(240000, LimitData)})},
		}, "60.0 % of waiting is kv_cache (K = 120,000 to 240,000 tokens, as the data say), " +
			"30.0 % is slots (C = 8 to 16, mostly inferred, hidden holders or near a limit) and 10.0 % is hold (nothing ran).",
			"What helps against kv_cache: memory, shorter contexts, prefix reuse, replicas; against slots: a higher limit if memory and step time allow, else replicas; against hold: the batching policy or its timeout."},
		{"not sure", WaitResult{WaitingNS: 100, AvoidableNS: 90, Confidence: trace.Some(0.44), Causes: low, Matrix: matrix},
			"Why requests waited is not known well enough to rank causes or holders: 30.0 % is unknown, and only 44.0 % of the waiting has a cause that small errors of the limits would not change.",
			"What helps to know it: more data, and limits that are stated (--max-num-seqs, "},
		{"not known", WaitResult{WaitingNS: 5, Confidence: trace.Some(0.0), Causes: causes(map[Cause]int64{CauseUnknown: 5})},
			"Why requests waited cannot be told from this input.", "What helps to know it: more data"},
	} {
		if got := c.res.Words(); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if got := c.res.Help(); !strings.HasPrefix(got, c.help) || (got == "") != (c.help == "") {
			t.Errorf("%s helps: %s\nwant\n%s", c.name, got, c.help)
		}
	}
	rows := (&WaitResult{Confidence: trace.Some(0.44), Causes: low}).Rows()
	if len(rows) != 2 || rows[0].Cause != "unknown" {
		t.Errorf("unsure: %+v, want unknown first", rows)
	}
	if s := shown("a\x1b[31m" + strings.Repeat("x", 100)); strings.ContainsRune(s, '\x1b') || len([]rune(s)) != 48 {
		t.Errorf("shown as %q", s)
	}
}

// In a window that begins at 12 ms only c is asked about. It waits for b, which
// arrived before.
func TestReportReasons(t *testing.T) {
	const text = `
a arrival=0    queued=0    scheduled=0    first=2ms  last=10ms end=10ms prefill=0..2ms decode=2ms..10ms in=10 out=5
b arrival=0    queued=0    scheduled=10ms first=12ms last=20ms end=20ms queueing=0..10ms prefill=10ms..12ms decode=12ms..20ms in=10 out=5
c arrival=14ms queued=14ms scheduled=20ms first=22ms last=30ms end=30ms queueing=14ms..20ms prefill=20ms..22ms decode=22ms..30ms in=10 out=5
d arrival=35ms queued=35ms scheduled=38ms first=39ms last=40ms end=40ms queueing=35ms..38ms prefill=38ms..39ms decode=39ms..40ms in=10 out=5`
	opts := Options{Wait: WaitOptions{Slots: trace.Some[int64](1)}}
	r := report(t, opts, text)
	if w := r.Waiting; w.WaitingNS != 19*ms || w.Causes[2].Cause != "slots" || w.Causes[2].NS != 16*ms || w.Causes[0].NS != 3*ms {
		t.Errorf("%+v", w)
	}
	// The slowest is b; around the median are a and c, which wait 0 and 6 ms.
	want := TailCause{"slots", 10 * ms, 3 * ms, 7 * ms}
	if got := r.Tail.Causes; len(got) != 1 || got[0] != want {
		t.Errorf("tail %+v, want %+v", got, want)
	}
	if s := strings.Join(r.Verdict, " "); !strings.Contains(s, "What helps against slots: ") || !strings.Contains(s, "against hold: ") || !strings.Contains(s, "84.2 % of waiting is slots (C = 1, as stated) and 15.8 % is hold") || !strings.Contains(s, "queueing (slots)") {
		t.Errorf("verdict %q", s)
	}

	from, err := ParseBound("12ms")
	if err != nil {
		t.Fatal(err)
	}
	to, err := ParseBound("30ms")
	if err != nil {
		t.Fatal(err)
	}
	opts.From, opts.To = from, to
	if w := report(t, opts, text).Waiting; w.WaitingNS != 6*ms || w.Causes[2].NS != 6*ms {
		t.Errorf("in the window %+v", w)
	}
	if r := report(t, Options{}, "a arrival=0 end=5ms decode=0..5ms"); r.Waiting != nil {
		t.Errorf("nobody tells of waiting: %+v", r.Waiting)
	}
}

func TestApportionTo(t *testing.T) {
	for _, c := range []struct {
		sums  []int64
		total int64
		want  []int64
	}{
		{[]int64{1, 1, 1}, 2, []int64{1, 1, 0}},
		{[]int64{5, 3, 2}, 1, []int64{1, 0, 0}},
		{[]int64{0, 0}, 0, []int64{0, 0}},
		{[]int64{1 << 61, 1 << 61}, 1 << 60, []int64{1 << 59, 1 << 59}},
		{[]int64{7, 0}, 7, []int64{7, 0}},
	} {
		got := apportionTo(c.sums, c.total)
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%v to %d: %v, want %v", c.sums, c.total, got, c.want)
				break
			}
		}
	}
}
