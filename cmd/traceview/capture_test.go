package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/ingest"
	"github.com/traceview/traceview/trace"
)

// What samples/capture kept of a real vLLM is held against what the server
// itself counted and what its clients saw. The tables in samples/README.md are
// what these tests find; -update writes them.

const captured = "samples/vllm-real"

// TestCapture makes the tables of samples/README.md.
func TestCapture(t *testing.T) {
	t.Chdir(root)
	const path = "samples/README.md"
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]func(*testing.T) string{"counters": captureCounters, "clients": captureClients, "gauges": captureGauges, "log": captureLog}
	text := eachBlock(t, string(old), "<!-- begin ", "<!-- end -->", func(head, body string) string {
		name := strings.TrimSuffix(head, " -->")
		f := tables[name]
		if f == nil {
			return body
		}
		delete(tables, name)
		t.Run(name, func(t *testing.T) { body = "\n" + f(t) + "\n" })
		return body
	})
	for name := range tables {
		t.Errorf("%s has no block %q", path, name)
	}
	switch {
	case text == string(old) || t.Failed():
	case *update:
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the tests find; run this one with -update", path)
	}
}

// captureCounters holds the report against the server's counters: how much
// they grew over the capture.
func captureCounters(t *testing.T) string {
	before, after := prometheus(t, captured+"-before.prom"), prometheus(t, captured+"-after.prom")
	grew := func(name string) float64 {
		v, ok := after[name]
		if !ok {
			t.Fatalf("no counter %s", name)
		}
		return v - before[name]
	}
	type tokenCount struct {
		Total int64 `json:"total_tokens"`
	}
	var rep struct {
		Counts      struct{ Requests int }
		Measurement struct {
			Prompt tokenCount `json:"prompt_tokens"`
			Output tokenCount `json:"output_tokens"`
		}
		Phases, Figures []struct {
			Name  string
			Total int64 `json:"total_ns"`
		}
	}
	if err := json.Unmarshal(call(t, nil, "report", "--format", "json", captured+".jsonl"), &rep); err != nil {
		t.Fatal(err)
	}
	total := map[string]int64{}
	for _, p := range append(rep.Phases, rep.Figures...) {
		total[p.Name] = p.Total
	}
	var e2e, late time.Duration
	for _, r := range readAll(t, captured+".jsonl") {
		d, ok := r.Reported.E2E.Get()
		if !ok {
			t.Fatalf("%s reports no e2e", r.ID)
		}
		e2e += d
		late += r.E2E().Or(0) - d
	}
	left := 0 // clients that left after the first token
	for _, c := range clients(t) {
		if c.outcome == "aborted" && c.first != 0 {
			left++
		}
	}

	m := newMarkdown("figure", "the server's counter", "traceview", "difference", "why")
	n := rep.Counts.Requests
	count := func(figure, counter string, ours int64, want float64, why string) {
		theirs := grew(counter)
		if d := float64(ours) - theirs; d != want {
			t.Errorf("%s: %d, and %s grew by %v: differ by %v, want %v", figure, ours, counter, theirs, d, want)
		}
		m.row(figure, fmt.Sprintf("%.0f", theirs), strconv.FormatInt(ours, 10), fmt.Sprintf("%+.0f", float64(ours)-theirs), why)
	}
	// The counters are sums of float64 seconds. Ours are of the same float64s,
	// each rounded to a nanosecond (half of one at most); beside that stands
	// what a float64 of the sum can hold, once for every addition.
	seconds := func(figure, counter string, ours int64, why string) float64 {
		theirs := grew(counter)
		d := float64(ours) - theirs*1e9
		m.row(figure, fmt.Sprintf("%.6f s", theirs), fmt.Sprintf("%.6f s", float64(ours)/1e9), difference(d), why)
		return d
	}
	same := func(figure, counter string, ours int64, requests int) {
		d := seconds(figure, counter, ours, "rounding to a nanosecond a request")
		if limit := float64(requests)*0.5 + float64(requests)*math.Abs(float64(ours))*0x1p-53; math.Abs(d) > limit {
			t.Errorf("%s differs from %s by %.3f ns, more than rounding: %.3f ns", figure, counter, d, limit)
		}
	}

	finished := 0.0
	for name, v := range after {
		if strings.HasPrefix(name, "vllm:request_success_total{") {
			finished += v - before[name]
		}
	}
	if float64(n) != finished {
		t.Errorf("%d requests, the server counted %v", n, finished)
	}
	m.row("requests", fmt.Sprintf("%.0f", finished), strconv.Itoa(n), fmt.Sprintf("%+.0f", float64(n)-finished), "")
	same("queueing", "vllm:request_queue_time_seconds_sum", total["queueing"], n)
	same("prefill", "vllm:request_prefill_time_seconds_sum", total["prefill"], n)
	same("decode", "vllm:request_decode_time_seconds_sum", total["decode"], n)
	same("prefill + decode", "vllm:request_inference_time_seconds_sum", total["prefill"]+total["decode"], 2*n)
	same("e2e, as the spans report it", "vllm:e2e_request_latency_seconds_sum", int64(e2e), n)
	if d := seconds("e2e", "vllm:e2e_request_latency_seconds_sum", total["e2e"],
		"ours goes to the end of the span; vLLM's stops when the front end begins with the batch that holds the last output"); math.Abs(d-float64(late)) > float64(n) {
		t.Errorf("e2e differs by %.0f ns, and the spans are longer than they say by %d ns", d, late)
	}
	const ttft = "vllm:time_to_first_token_seconds"
	count("first tokens", ttft+"_count", int64(n), float64(-left), "clients that left after the first token: no span")
	more := seconds("ttft", ttft+"_sum", total["ttft"], "of these clients")
	if more > 0 || left == 0 && more < -float64(n) {
		t.Errorf("ttft is %.0f ns more than the counter", more)
	}
	count("prompt tokens", "vllm:request_prompt_tokens_sum", rep.Measurement.Prompt.Total, 0, "")
	count("output tokens", "vllm:request_generation_tokens_sum", rep.Measurement.Output.Total, 0, "")
	for _, c := range []struct {
		figure, counter string
		ours            int64
	}{
		{"prompt tokens computed", "vllm:prompt_tokens_total", rep.Measurement.Prompt.Total},
		{"output tokens made", "vllm:generation_tokens_total", rep.Measurement.Output.Total},
	} {
		theirs := grew(c.counter)
		if d := float64(c.ours) - theirs; d > 0 || left == 0 && d != 0 {
			t.Errorf("%s: %d, the server counted %v", c.figure, c.ours, theirs)
		}
		m.row(c.figure, fmt.Sprintf("%.0f", theirs), strconv.FormatInt(c.ours, 10), fmt.Sprintf("%+.0f", float64(c.ours)-theirs), "of requests that clients left")
	}
	preempted := grew("vllm:request_num_preemptions_sum")
	if preempted == 0 {
		t.Error("nothing was preempted: the capture shows less than it should")
	}
	m.row("preemptions", fmt.Sprintf("%.0f", preempted), "not told", "", "no span tells them; the wait is in decode")
	return m.String()
}

// difference writes ns with the unit that it needs.
func difference(ns float64) string {
	switch d := math.Abs(ns); {
	case d < 1e3:
		return fmt.Sprintf("%+.1f ns", ns)
	case d < 1e6:
		return fmt.Sprintf("%+.3f µs", ns/1e3)
	}
	return fmt.Sprintf("%+.3f ms", ns/1e6)
}

// client is what one client saw of its call; instants on the clock that the
// server has too, 0 where there is none.
type client struct {
	id, tenant, trace, outcome string
	sent, first, end           trace.Time
}

func clients(t *testing.T) []client {
	t.Helper()
	var all []client
	for _, row := range table(t, captured+"-client.csv") {
		all = append(all, client{row["id"], row["tenant"], row["trace_id"], row["outcome"],
			instant(t, row["sent_unix_nano"]), instant(t, row["first_chunk_unix_nano"]), instant(t, row["end_unix_nano"])})
	}
	return all
}

// captureClients holds each request against what its client saw: one clock of
// one machine, so that the order is strict.
func captureClients(t *testing.T) string {
	byTrace := map[string][]*trace.Request{}
	for _, r := range readAll(t, captured+".jsonl") {
		byTrace[r.TraceID] = append(byTrace[r.TraceID], r)
	}
	type seen struct{ calls, spans int }
	ends := map[string]seen{}
	var before, first, after []time.Duration
	for _, c := range clients(t) {
		rs := byTrace[c.trace]
		s := ends[c.outcome]
		ends[c.outcome] = seen{s.calls + 1, s.spans + len(rs)}
		if (c.outcome == "ok") != (len(rs) > 0) {
			t.Errorf("%s ended %s and has %d spans", c.id, c.outcome, len(rs))
		}
		if len(rs) == 0 {
			continue
		}
		// Samples of one call: its first chunk is of the first, its end of the last.
		token, last := rs[0].FirstToken, rs[0].Completed
		for _, r := range rs {
			d := r.Arrival.At.Sub(c.sent)
			if d < 0 {
				t.Errorf("%s arrived %v before it was sent", c.id, -d)
			}
			before = append(before, d)
			if r.FirstToken.Present() {
				token.At = min(token.At, r.FirstToken.At)
			}
			last.At = max(last.At, r.Completed.At)
		}
		d := c.end.Sub(last.At)
		if d < 0 {
			t.Errorf("%s was complete %v after its client had all of it", c.id, -d)
		}
		after = append(after, d)
		if c.first != 0 && token.Present() {
			d := c.first.Sub(token.At)
			if d < 0 {
				t.Errorf("the first token of %s is %v later than its client saw one", c.id, -d)
			}
			first = append(first, d)
		}
	}
	// vLLM's own benchmark, by the number at the end of the id.
	var bench struct {
		TTFTs     []float64 `json:"ttfts"`
		Latencies []float64 `json:"latencies"`
	}
	data, err := os.ReadFile(captured + "-bench.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &bench); err != nil {
		t.Fatal(err)
	}
	var ttft, e2e []time.Duration
	for _, r := range readAll(t, captured+".jsonl") {
		id, ok := strings.CutPrefix(r.ID, "cmpl-bench-")
		if !ok {
			continue
		}
		i, err := strconv.Atoi(strings.Split(id, "-")[1])
		if err != nil || i >= len(bench.TTFTs) || i >= len(bench.Latencies) {
			t.Fatalf("the benchmark has no request %s", r.ID)
		}
		d := time.Duration(bench.TTFTs[i]*1e9) - r.TTFT().Or(0)
		l := time.Duration(bench.Latencies[i]*1e9) - r.E2E().Or(0)
		if d < 0 || l < 0 {
			t.Errorf("the benchmark has %v less ttft and %v less e2e for %s", -d, -l, r.ID)
		}
		ttft, e2e = append(ttft, d), append(e2e, l)
	}
	if len(ttft) != len(bench.TTFTs) {
		t.Errorf("%d of the benchmark's %d requests are in the spans", len(ttft), len(bench.TTFTs))
	}

	m := newMarkdown("the client", "", "calls", "requests in the spans", "median", "p90", "most")
	spread := func(what, than string, d []time.Duration, requests int) {
		slices.Sort(d)
		ms := func(i int) string { return fmt.Sprintf("%.3f ms", d[i].Seconds()*1e3) }
		m.row(what, than, strconv.Itoa(len(d)), strconv.Itoa(requests), ms(len(d)/2), ms(len(d)*9/10), ms(len(d)-1))
	}
	for _, o := range []string{"aborted", "rejected"} {
		m.row(o, "", strconv.Itoa(ends[o].calls), strconv.Itoa(ends[o].spans), "", "", "")
	}
	spread("sent", "before arrival", before, len(before))
	spread("saw the first chunk", "after the first token", first, len(first))
	spread("had the end", "after completed", after, ends["ok"].spans)
	spread("vllm bench: ttft", "more than the span's", ttft, len(ttft))
	spread("vllm bench: latency", "more than the span's e2e", e2e, len(e2e))
	return m.String()
}

// The limits that the server was started with.
const (
	capturedSlots  = 6
	capturedBudget = 512
	capturedKV     = 96 * 32
)

// captureGauges holds the depth by the spans, and why requests waited, against
// the server's gauges: each reading stands until the next.
func captureGauges(t *testing.T) string {
	type step struct {
		at               trace.Time
		running, waiting int
	}
	waits := analyze.NewWaits(analyze.WaitOptions{
		Slots: trace.Some[int64](capturedSlots), Budget: trace.Some[int64](capturedBudget), KVTokens: trace.Some[int64](capturedKV),
	})
	var steps []step
	for _, r := range readAll(t, captured+".jsonl") {
		waits.Add(r)
		steps = append(steps, step{r.Queued.At, 0, 1}, step{r.Scheduled.At, 1, -1}, step{r.LastToken.At, -1, 0})
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	first := steps[0].at

	// What of each stood in the time between two readings, in seconds times
	// requests.
	var gauge, ours, apart struct{ running, waiting float64 }
	var most, peak struct{ running, waiting int }
	var full, free float64 // waiting while the gauge shows all slots taken, and not
	var now step
	rows := table(t, captured+"-gauges.csv")
	for i, row := range rows[:len(rows)-1] {
		at := instant(t, row["answered_unix_nano"])
		s := instant(t, rows[i+1]["answered_unix_nano"]).Sub(at).Seconds()
		for len(steps) > 0 && steps[0].at <= at {
			now.running, now.waiting = now.running+steps[0].running, now.waiting+steps[0].waiting
			peak.running, peak.waiting = max(peak.running, now.running), max(peak.waiting, now.waiting)
			steps = steps[1:]
		}
		running, waiting := number(t, row["running"]), number(t, row["waiting"])
		gauge.running, gauge.waiting = gauge.running+running*s, gauge.waiting+waiting*s
		ours.running, ours.waiting = ours.running+float64(now.running)*s, ours.waiting+float64(now.waiting)*s
		apart.running, apart.waiting = apart.running+math.Abs(running-float64(now.running))*s, apart.waiting+math.Abs(waiting-float64(now.waiting))*s
		most.running, most.waiting = max(most.running, int(running)), max(most.waiting, int(waiting))
		if running >= capturedSlots {
			full += waiting * s
		} else {
			free += waiting * s
		}
	}
	of := func(s float64) string { return fmt.Sprintf("%.1f s", s) }
	m := newMarkdown("requests × time", "by the gauges", "by the spans", "apart, either way", "most by the gauges", "most by the spans")
	m.row("running", of(gauge.running), of(ours.running), of(apart.running), strconv.Itoa(most.running), strconv.Itoa(peak.running))
	m.row("waiting", of(gauge.waiting), of(ours.waiting), of(apart.waiting), strconv.Itoa(most.waiting), strconv.Itoa(peak.waiting))
	both := func(g struct{ running, waiting float64 }) float64 { return g.running + g.waiting }
	m.row("both", of(both(gauge)), of(both(ours)), "", "", "")
	// A preempted request waits on the gauges and runs in the spans. A request
	// that its client left is on the gauges alone. The rest is the front end:
	// it delays the gauges, and the spans do not tell which part of its time in
	// a request came first.
	left := 0.0
	for _, c := range clients(t) {
		if c.outcome == "aborted" {
			left += c.end.Sub(c.sent).Seconds()
		}
	}
	if both(ours) > both(gauge)*1.02 || both(ours) < both(gauge)*0.98-left {
		t.Errorf("in the engine for %s by the gauges, for %s by the spans; requests that clients left account for %s", of(both(gauge)), of(both(ours)), of(left))
	}

	res := waits.Result()
	cause := map[string]float64{}
	for _, c := range res.Causes {
		cause[c.Cause] = float64(c.NS) / 1e9
	}
	w := newMarkdown("waiting, request × time", "by the gauges", "by cause, from the spans and the server's limits")
	var rest []string
	for _, c := range res.Causes {
		if c.Cause != analyze.CauseSlots.String() && c.NS > 0 {
			rest = append(rest, fmt.Sprintf("%s %s", c.Cause, of(cause[c.Cause])))
		}
	}
	w.row("all slots taken", of(full), "slots "+of(cause["slots"]))
	w.row("slots free", of(free), strings.Join(rest, ", "))
	if d := math.Abs(cause["slots"]-full) / gauge.waiting; d > 0.10 {
		t.Errorf("%.1f %% of waiting is for slots by one of gauges and spans alone", d*100)
	}
	text := m.String() + "\n" + w.String()

	// The server never stood still: it made tokens in every gap of the spans.
	for _, r := range res.Replicas {
		for _, s := range r.Stalls {
			if s.Confirmed {
				t.Errorf("a stall of %v, %v after the first request, is confirmed", time.Duration(s.EndNS-s.StartNS), trace.Time(s.StartNS).Sub(first))
			}
		}
	}
	return text
}

// captureLog holds the server's log against the spans.
func captureLog(t *testing.T) string {
	spans := map[string]*trace.Request{}
	for _, r := range readAll(t, captured+".jsonl") {
		spans[r.ID] = r
	}
	outcomes := map[trace.Outcome]int{}
	both := 0
	for _, r := range readAll(t, captured+".log.gz") {
		outcomes[r.Outcome]++
		s := spans[r.ID]
		if s == nil {
			if r.Outcome == trace.OK {
				t.Errorf("%s is served in the log and has no span", r.ID)
			}
			continue
		}
		both++
		delete(spans, r.ID)
		// The line is written after the prompt is rendered, and stamped with
		// whole seconds.
		if d := s.Arrival.At.Sub(r.Arrival.At); d >= time.Second {
			t.Errorf("%s arrived %v after its line in the log", r.ID, d)
		}
		if r.Outcome == trace.Aborted {
			t.Errorf("%s is aborted in the log and has a span", r.ID)
		}
	}
	if len(spans) > 0 {
		t.Errorf("%d requests have a span and no line in the log", len(spans))
	}
	m := newMarkdown("requests in the log", "ok", "aborted", "no known end", "error", "also in the spans")
	all := 0
	for _, n := range outcomes {
		all += n
	}
	m.row(strconv.Itoa(all), strconv.Itoa(outcomes[trace.OK]), strconv.Itoa(outcomes[trace.Aborted]),
		strconv.Itoa(outcomes[trace.Incomplete]), strconv.Itoa(outcomes[trace.Error]), strconv.Itoa(both))
	if outcomes[trace.Error] > 0 {
		t.Error("no request failed, and the log is read as if some had")
	}
	return m.String() + "\n" + captureLimits(t)
}

// captureLimits holds what the log adds to the spans: its limits are those
// that the server was started with, and requests count once.
func captureLimits(t *testing.T) string {
	type limit struct {
		Value *int64
		How   string
	}
	type cause struct {
		Cause string
		NS    int64
	}
	type result struct {
		Requests   int
		WaitingNS  int64 `json:"waiting_ns"`
		Confidence float64
		Causes     []cause
		Replicas   []struct {
			Limits struct {
				Slots  limit
				Budget limit `json:"budget_tokens"`
				KV     limit `json:"kv_tokens"`
			}
		}
	}
	m := newMarkdown("waiting", "limits", "unknown", "slots", "kv_cache", "other", "confidence")
	waiting := func(what string, args ...string) result {
		t.Helper()
		var r result
		if err := json.Unmarshal(call(t, nil, append([]string{"waiting", "--format", "json", "--year", "2026"}, args...)...), &r); err != nil {
			t.Fatal(err)
		}
		if len(r.Replicas) != 1 {
			t.Fatalf("%s: %d replicas", what, len(r.Replicas))
		}
		l := r.Replicas[0].Limits
		var limits []string
		for _, x := range []struct {
			name string
			limit
		}{{"slots", l.Slots}, {"budget", l.Budget}, {"KV", l.KV}} {
			if x.Value != nil {
				limits = append(limits, fmt.Sprintf("%s %d (%s)", x.name, *x.Value, x.How))
			}
		}
		ns := map[string]int64{}
		for _, c := range r.Causes {
			ns[c.Cause] = c.NS
		}
		share := func(v int64) string { return fmt.Sprintf("%.1f %%", 100*float64(v)/float64(r.WaitingNS)) }
		m.row(what, strings.Join(limits, ", "), share(ns["unknown"]), share(ns["slots"]), share(ns["kv_cache"]),
			share(r.WaitingNS-ns["unknown"]-ns["slots"]-ns["kv_cache"]), fmt.Sprintf("%.1f %%", 100*r.Confidence))
		return r
	}
	spans := waiting("the spans alone", captured+".jsonl")
	both := waiting("with the log", captured+".jsonl", captured+".log.gz")
	stated := waiting("with the limits as flags", "--max-num-seqs", strconv.Itoa(capturedSlots),
		"--max-num-batched-tokens", strconv.Itoa(capturedBudget), "--kv-tokens", strconv.Itoa(capturedKV), captured+".jsonl")
	l := both.Replicas[0].Limits
	for _, x := range []struct {
		limit
		want int64
	}{{l.Slots, capturedSlots}, {l.Budget, capturedBudget}, {l.KV, capturedKV}} {
		if x.Value == nil || *x.Value != x.want || x.How != analyze.LimitLog {
			t.Errorf("the log states %+v, want %d", x.limit, x.want)
		}
	}
	if !slices.Equal(both.Causes, stated.Causes) || both.WaitingNS != spans.WaitingNS {
		t.Errorf("causes with the log are %v, with the same limits as flags %v", both.Causes, stated.Causes)
	}
	if left := both.Requests - spans.Requests; left < 0 || left > 20 {
		t.Errorf("%d requests with the log and %d without: some count twice", both.Requests, spans.Requests)
	}
	return m.String()
}

// The same messages as protobuf give the same table.
func TestCaptureProtobuf(t *testing.T) {
	t.Chdir(root)
	export := func(name string) [][]string {
		rows, err := csv.NewReader(strings.NewReader(string(call(t, nil, "export", "--format", "csv", name)))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		source := slices.Index(rows[0], "source")
		for _, r := range rows[1:] {
			r[source] = ""
		}
		return rows
	}
	a, b := export(captured+".jsonl"), export(captured+".pb")
	if !slices.EqualFunc(a, b, slices.Equal) {
		t.Error("the protobuf messages give other rows than the JSON lines")
	}
	if len(a) < 100 {
		t.Errorf("%d rows", len(a))
	}
}

// readAll reads the requests of a file.
func readAll(t *testing.T, name string) []*trace.Request {
	t.Helper()
	inputs, err := ingest.Open([]string{name}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []*trace.Request
	for r, err := range ingest.Requests(t.Context(), inputs, ingest.Options{Year: 2026}) {
		var issue *trace.Issue
		switch {
		case errors.As(err, &issue):
			if issue.Severity > trace.Note {
				t.Error(issue)
			}
		case err != nil:
			t.Fatal(err)
		default:
			all = append(all, r)
		}
	}
	return all
}

// prometheus reads a page of metrics, less the labels that are the same on all.
func prometheus(t *testing.T, name string) map[string]float64 {
	t.Helper()
	f, err := os.Open(filepath.FromSlash(name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	values := map[string]float64{}
	for in := bufio.NewScanner(f); in.Scan(); {
		name, value, _ := strings.Cut(in.Text(), "} ")
		name, labels, _ := strings.Cut(name, "{")
		var kept []string
		for _, l := range strings.Split(labels, ",") {
			if !strings.HasPrefix(l, "engine=") && !strings.HasPrefix(l, "model_name=") {
				kept = append(kept, l)
			}
		}
		if len(kept) > 0 {
			name += "{" + strings.Join(kept, ",") + "}"
		}
		values[name] = number(t, value)
	}
	return values
}

// table reads a CSV file with a head.
func table(t *testing.T, name string) []map[string]string {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var all []map[string]string
	for _, r := range rows[1:] {
		m := map[string]string{}
		for i, v := range r {
			m[rows[0][i]] = v
		}
		all = append(all, m)
	}
	return all
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func instant(t *testing.T, s string) trace.Time {
	t.Helper()
	if s == "" {
		return 0
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return trace.Time(v)
}

// TestCaptureV0 holds the requests of the engine that vLLM had before against
// its counters.
func TestCaptureV0(t *testing.T) {
	t.Chdir(root)
	const name = captured + "-v0"
	after := prometheus(t, name+"-after.prom") // there were none before
	var requests, prompt, output int64
	var queue, ttft, e2e time.Duration
	for _, r := range readAll(t, name+".jsonl") {
		if r.Source.Engine != "vllm-v0" || r.Outcome != trace.OK {
			t.Errorf("%s is of %s and ended %v", r.ID, r.Source.Engine, r.Outcome)
		}
		requests++
		prompt, output = prompt+int64(r.Input.Or(0)), output+int64(r.Output.Or(0))
		queue += r.Scheduled.At.Sub(r.Queued.At)
		ttft += r.TTFT().Or(0)
		e2e += r.Reported.E2E.Or(0)
	}
	// Half a nanosecond a request, and what a float64 of the sum cannot hold.
	// The engine counts e2e a little after it stamps the end: by a clock read
	// later in the same step.
	rounding := float64(requests) * (0.5e-9 + e2e.Seconds()*0x1p-53)
	for _, c := range []struct {
		counter     string
		ours        float64
		least, most float64 // of the counter less ours
	}{
		{"vllm:e2e_request_latency_seconds_count", float64(requests), 0, 0},
		{"vllm:request_prompt_tokens_sum", float64(prompt), 0, 0},
		{"vllm:request_generation_tokens_sum", float64(output), 0, 0},
		{"vllm:request_queue_time_seconds_sum", queue.Seconds(), -rounding, rounding},
		{"vllm:time_to_first_token_seconds_sum", ttft.Seconds(), -rounding, rounding},
		{"vllm:e2e_request_latency_seconds_sum", e2e.Seconds(), -rounding, float64(requests) * 1e-3},
	} {
		theirs, ok := after[c.counter]
		if d := theirs - c.ours; !ok || d < c.least || d > c.most {
			t.Errorf("%s is %v, the spans have %v: %v apart", c.counter, theirs, c.ours, d)
		}
	}
	if requests < 50 {
		t.Errorf("%d requests", requests)
	}
}
