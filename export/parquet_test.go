package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

// writeParquet writes requests without their causes.
func writeParquet(w io.Writer, rs []*trace.Request, o ParquetOptions) error {
	p, err := NewParquet(w, o)
	if err != nil {
		return err
	}
	for _, r := range rs {
		if err := p.Write(r, nil); err != nil {
			return err
		}
	}
	return p.Close()
}

func parquetBytes(t testing.TB, rs []*trace.Request, o ParquetOptions) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := writeParquet(&b, rs, o); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func openParquet(t testing.TB, data []byte) *parquet.File {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// table reads a file as one map a row, from the levels of its values alone.
// Null columns are not in the map. A list is []string, a map map[string]any
// with nil for null.
func table(t testing.TB, data []byte) []map[string]any {
	t.Helper()
	f := openParquet(t, data)
	paths := f.Schema().Columns()
	var out []map[string]any
	for _, g := range f.RowGroups() {
		rows := g.Rows()
		buf := make([]parquet.Row, 7)
		for {
			n, err := rows.ReadRows(buf)
			for _, r := range buf[:n] {
				out = append(out, rowMap(paths, r))
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func rowMap(paths [][]string, r parquet.Row) map[string]any {
	m := make(map[string]any)
	var keys []string
	value := func(v parquet.Value) any {
		switch {
		case v.IsNull():
			return nil
		case v.Kind() == parquet.Int64:
			return v.Int64()
		case v.Kind() == parquet.Double:
			return v.Double()
		}
		return v.String()
	}
	for _, v := range r {
		path := paths[v.Column()]
		name := path[0]
		if v.RepetitionLevel() == 0 && path[len(path)-1] == "key" {
			keys = nil
		}
		switch {
		case len(path) == 1:
			if !v.IsNull() {
				m[name] = value(v)
			}
		case v.DefinitionLevel() == 0: // empty
		case path[len(path)-1] == "element":
			l, _ := m[name].([]string)
			m[name] = append(l, v.String())
		case path[len(path)-1] == "key":
			keys = append(keys, v.String())
		default:
			if m[name] == nil {
				m[name] = make(map[string]any)
			}
			m[name].(map[string]any)[keys[0]] = value(v)
			keys = keys[1:]
		}
	}
	return m
}

func TestParquet(t *testing.T) {
	base := int64(reqtext.Base)
	rs := reqtext.MustParse(t, `r1 trace=5b8efff798038103d269b633813fc60c engine=vllm-v1 format=otlp-json arrival=0 queued=1ns scheduled=3ns first=7ns last=27ns end=30ns queueing=1ns..3ns prefill=3ns..7ns decode=7ns..27ns preempted=10ns..10ns completion=27ns..30ns in=100 cached=0 out=9 max=64 preemptions=0 service=s replica=g model=m finish=stop issue=inconsistent issue=bad-number issue=inconsistent @tenant=a @n=7 @none=`)
	got := table(t, parquetBytes(t, rs, ParquetOptions{Columns: []string{"tenant", "prompt_bucket", "not.there"}}))
	want := []map[string]any{{
		"request_id": "r1", "trace_id": "5b8efff798038103d269b633813fc60c", "source": "otlp-json", "engine": "vllm-v1",
		"service": "s", "replica": "g", "model": "m", "outcome": "ok", "finish_reason": "stop",
		"arrival": base, "queued": base + 1, "scheduled": base + 3, "first_token": base + 7, "last_token": base + 27, "completed": base + 30,
		"arrival_unix_nano": base, "e2e_ns": int64(30), "ttft_ns": int64(7),
		"queueing_ns": int64(2), "prefill_ns": int64(4), "decode_ns": int64(20), "preempted_ns": int64(0), "completion_ns": int64(3),
		"unattributed_ns": int64(1), "waiting_ns": int64(2), "compute_ns": int64(24), "overhead_ns": int64(3),
		"overlap_ns": int64(0), "outside_ns": int64(0), "conflict_ns": int64(0), "tpot_ns": 2.5,
		"prompt_tokens": int64(100), "cached_tokens": int64(0), "output_tokens": int64(9), "max_tokens": int64(64), "preemptions": int64(0),
		"resolution_ns": int64(1), "clock": "unix", "issues": []string{"inconsistent", "bad-number"},
		"attributes": map[string]any{"tenant": "a", "n": "7", "none": nil},
		"tenant":     "a", "prompt_bucket": "64-127", "row": int64(0),
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("everything known: -want +got\n%s", diff)
	}
}

// How a phase is null, 0 or a number, and where sets go. Columns that are not
// about that are left out.
func TestParquetPhases(t *testing.T) {
	type ns = map[string]any
	num := func(n int64) any { return n }
	tests := []struct {
		name, in string
		want     ns
	}{
		{"no claim is null, all is unattributed", "r arrival=0 end=9ns", ns{"e2e_ns": num(9), "unattributed_ns": num(9)}},
		{"a claim of no length is 0", "r arrival=0 end=9ns queueing=2ns..2ns", ns{"e2e_ns": num(9), "unattributed_ns": num(9), "queueing_ns": num(0), "waiting_ns": num(0)}},
		{"no instant at all", "r outcome=error", ns{}},
		{"no end: as far as it was seen", "r arrival=0 queueing=0..4ns prefill=4ns..9ns", ns{"queueing_ns": num(4), "prefill_ns": num(5), "unattributed_ns": num(0), "waiting_ns": num(4), "compute_ns": num(5)}},
		{"sets with columns", "r arrival=0 end=9ns queueing|prefill=0..2ns prefill|decode=2ns..5ns arrival|completion=5ns..9ns", ns{
			"e2e_ns": num(9), "queueing_prefill_ns": num(2), "prefill_decode_ns": num(3), "frontend_ns": num(4), "unattributed_ns": num(0),
			"compute_ns": num(3), "overhead_ns": num(4)}},
		{"other sets", "r arrival=0 end=9ns queueing|decode=0..2ns arrival|transfer=2ns..5ns prefill=5ns..9ns", ns{
			"e2e_ns": num(9), "prefill_ns": num(4), "unattributed_ns": num(0), "overhead_ns": num(3), "compute_ns": num(4),
			"other_sets_ns": num(5), "other_sets": ns{"queueing|decode": num(2), "arrival|transfer": num(3)}}},
		{"a wider claim that narrower ones use up is null", "r arrival=0 end=9ns queueing|prefill=0..9ns prefill=3ns..9ns queueing=0..3ns", ns{
			"e2e_ns": num(9), "prefill_ns": num(6), "queueing_ns": num(3), "unattributed_ns": num(0), "waiting_ns": num(3), "compute_ns": num(6), "overlap_ns": num(9)}},
		{"two claims meet in a set that nobody claims", "r arrival=0 end=9ns queueing|prefill=0..9ns prefill|decode=3ns..9ns", ns{
			"e2e_ns": num(9), "prefill_ns": num(6), "queueing_prefill_ns": num(3), "prefill_decode_ns": num(0), "unattributed_ns": num(0), "compute_ns": num(6), "overlap_ns": num(6)}},
		{"a claim outside is 0 and outside", "r arrival=0 end=9ns decode=9ns..12ns", ns{"e2e_ns": num(9), "decode_ns": num(0), "compute_ns": num(0), "unattributed_ns": num(9), "outside_ns": num(3)}},
		{"conflict", "r arrival=0 end=9ns decode=0..9ns queueing=4ns..9ns", ns{"e2e_ns": num(9), "decode_ns": num(4), "queueing_ns": num(5), "unattributed_ns": num(0), "waiting_ns": num(5), "compute_ns": num(4), "overlap_ns": num(5), "conflict_ns": num(5)}},
	}
	for _, tt := range tests {
		got := table(t, parquetBytes(t, reqtext.MustParse(t, tt.in), ParquetOptions{}))[0]
		maps.DeleteFunc(got, func(k string, v any) bool {
			return !strings.HasSuffix(k, "_ns") && k != "other_sets" || k == "resolution_ns" ||
				slices.Contains([]string{"overlap_ns", "outside_ns", "conflict_ns"}, k) && v == int64(0)
		})
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
	}
}

// Instants of a clock without a calendar are no timestamps; durations stay.
func TestParquetClock(t *testing.T) {
	rs := reqtext.MustParse(t, "r arrival=5ns queued=6ns first=7ns end=9ns clock=monotonic")
	got := table(t, parquetBytes(t, rs, ParquetOptions{}))[0]
	for _, c := range []string{"arrival", "queued", "first_token", "completed", "arrival_unix_nano"} {
		if v, ok := got[c]; ok {
			t.Errorf("%s is %v, want null", c, v)
		}
	}
	if got["e2e_ns"] != int64(4) || got["ttft_ns"] != int64(2) || got["clock"] != "monotonic" {
		t.Errorf("e2e %v, ttft %v, clock %v", got["e2e_ns"], got["ttft_ns"], got["clock"])
	}
}

// For every row, whatever the source claims: the parts add up, and so do the
// kinds.
func TestParquetAddsUp(t *testing.T) {
	rs := randomRequests(rand.New(rand.NewPCG(5, 5)), 1000)
	rows := table(t, parquetBytes(t, rs, ParquetOptions{RowGroup: 300}))
	if len(rows) != len(rs) {
		t.Fatalf("%d rows, want %d", len(rows), len(rs))
	}
	n := func(row map[string]any, columns ...string) (sum int64) {
		for _, c := range columns {
			if v, ok := row[c].(int64); ok {
				sum += v
			}
		}
		return sum
	}
	for i, row := range rows {
		b := rs[i].Breakdown()
		if row["request_id"] != rs[i].ID {
			t.Fatalf("row %d is %v, want %v", i, row["request_id"], rs[i].ID)
		}
		parts := n(row, "arrival_ns", "queueing_ns", "prefill_ns", "decode_ns", "preempted_ns", "transfer_ns", "completion_ns",
			"frontend_ns", "queueing_prefill_ns", "prefill_decode_ns", "other_sets_ns", "unattributed_ns")
		if parts != int64(b.Extent) {
			t.Errorf("row %d: parts add up to %d, want %d", i, parts, b.Extent)
		}
		if e2e, ok := row["e2e_ns"]; ok && e2e != parts {
			t.Errorf("row %d: e2e %v, parts %d", i, e2e, parts)
		} else if ok != b.Complete {
			t.Errorf("row %d: e2e there is %v, want %v", i, ok, b.Complete)
		}
		for c, k := range map[string]trace.Kind{"waiting_ns": trace.Waiting, "compute_ns": trace.Compute, "overhead_ns": trace.Overhead, "unattributed_ns": trace.Unknown} {
			if got := n(row, c); got != int64(b.Kind(k)) {
				t.Errorf("row %d: %s %d, want %d", i, c, got, b.Kind(k))
			}
		}
		var sets int64
		if m, ok := row["other_sets"].(map[string]any); ok {
			for name, v := range m {
				p, ok := trace.ParsePhase(name)
				if !ok || int64(b.Of(p)) != v {
					t.Errorf("row %d: other set %q is %v, want %d", i, name, v, b.Of(p))
				}
				sets += v.(int64)
			}
		}
		if got := n(row, "other_sets_ns"); got != sets {
			t.Errorf("row %d: other sets %d, their map %d", i, got, sets)
		}
		attrs, _ := row["attributes"].(map[string]any)
		if len(attrs) != len(rs[i].Attrs) {
			t.Errorf("row %d: %d attributes, want %d", i, len(attrs), len(rs[i].Attrs))
		}
		for _, a := range rs[i].Attrs {
			if v := attrs[a.Key]; a.Value.Kind() == trace.ValueNone && v != nil || a.Value.Kind() != trace.ValueNone && v != a.Value.String() {
				t.Errorf("row %d: attribute %s is %v, want %q", i, a.Key, v, a.Value)
			}
		}
	}
}

// The documented columns are those of the file, in the order they are
// promised in, with their types.
func TestParquetSchema(t *testing.T) {
	const want = "request_id trace_id source engine service replica model outcome finish_reason " +
		"arrival queued scheduled first_token last_token completed arrival_unix_nano e2e_ns ttft_ns " +
		"arrival_ns queueing_ns prefill_ns decode_ns preempted_ns transfer_ns completion_ns frontend_ns queueing_prefill_ns prefill_decode_ns unattributed_ns " +
		"waiting_ns compute_ns overhead_ns overlap_ns outside_ns conflict_ns tpot_ns " +
		"prompt_tokens cached_tokens output_tokens max_tokens preemptions resolution_ns clock issues attributes other_sets_ns other_sets cause_hold_ns cause_stall_ns cause_slots_ns cause_kv_cache_ns cause_prefill_ns cause_step_ns cause_unknown_ns avoidable_ns charged_ns row"
	var names []string
	fields := openParquet(t, parquetBytes(t, nil, ParquetOptions{})).Schema().Fields()
	for i, doc := range ParquetColumns() {
		names = append(names, doc.Name)
		if doc.Meaning == "" || strings.HasSuffix(doc.Name, "_ns") && doc.Unit != "ns" {
			t.Errorf("%s: meaning %q, unit %q", doc.Name, doc.Meaning, doc.Unit)
		}
		if i >= len(fields) || fields[i].Name() != doc.Name {
			t.Fatalf("column %d of the file is not %s", i, doc.Name)
		}
		if got := typeOf(t, fields[i]); got != doc.Type {
			t.Errorf("%s is documented as %s: the file has %s", doc.Name, doc.Type, got)
		}
	}
	if len(fields) != len(names) {
		t.Errorf("%d columns in the file, %d documented", len(fields), len(names))
	}
	if got := strings.Join(names, " "); got != want {
		t.Errorf("columns\n%s\nwant\n%s", got, want)
	}
}

// typeOf names the type of a column of a file in the words of ColumnDoc. Single
// values are optional, lists and maps are not.
func typeOf(t *testing.T, n parquet.Node) string {
	leaf := func(n parquet.Node) string {
		name := n.Type().String()
		switch name {
		case "STRING":
			return "string"
		case "TIMESTAMP(isAdjustedToUTC=true,unit=NANOS)":
			return "timestamp"
		case "INT(64,true)":
			return "int64"
		case "DOUBLE":
			return "double"
		}
		return name
	}
	if n.Leaf() {
		if !n.Optional() {
			t.Errorf("%v is not optional", n)
		}
		return leaf(n)
	}
	if !n.Required() {
		t.Errorf("%v is not required", n)
	}
	entry := n.Fields()[0]
	var of []string
	for _, f := range entry.Fields() {
		of = append(of, leaf(f))
	}
	return strings.ToLower(n.Type().String()) + "<" + strings.Join(of, ", ") + ">"
}

func TestParquetMetadata(t *testing.T) {
	rs := reqtext.MustParse(t, "a arrival=5ns end=9ns\nb arrival=2ns end=7ns\nc arrival=3ns")
	keys := []string{ParquetSchemaKey, ParquetVersionKey, ParquetInputsKey, ParquetStartKey, ParquetEndKey}
	at := func(n trace.Time) string { return fmt.Sprint(reqtext.Base + n) }
	tests := []struct {
		name string
		rs   []*trace.Request
		o    ParquetOptions
		want []string // by keys; "" is absent
	}{
		{"all", rs, ParquetOptions{Version: "v1", Inputs: []string{"a.json", "-"}}, []string{"1", "v1", `["a.json","-"]`, at(2), at(9)}},
		{"stated window", rs, ParquetOptions{Window: func() (start, end trace.Opt[trace.Time]) {
			return trace.Some(trace.Time(1)), trace.Some(trace.Time(2))
		}}, []string{"1", "", "", "1", "2"}},
		{"no rows", nil, ParquetOptions{}, []string{"1", "", "", "", ""}},
		{"no calendar", reqtext.MustParse(t, "a arrival=5ns end=9ns clock=relative"), ParquetOptions{}, []string{"1", "", "", "", ""}},
	}
	for _, tt := range tests {
		f := openParquet(t, parquetBytes(t, tt.rs, tt.o))
		var got []string
		for _, k := range keys {
			v, _ := f.Lookup(k)
			got = append(got, v)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tt.name, diff)
		}
		if f.NumRows() != int64(len(tt.rs)) {
			t.Errorf("%s: %d rows, want %d", tt.name, f.NumRows(), len(tt.rs))
		}
		if by := f.Metadata().CreatedBy; !strings.HasPrefix(by, "traceview version ") {
			t.Errorf("%s: created by %q", tt.name, by)
		}
	}
}

func TestParquetColumnNames(t *testing.T) {
	for _, columns := range [][]string{{""}, {"model"}, {"Model"}, {"tenant", "tenant"}, {"tenant", "TENANT"}} {
		if _, err := NewParquet(io.Discard, ParquetOptions{Columns: columns}); err == nil {
			t.Errorf("columns %q: no error", columns)
		}
	}
	odd := []string{"http.route", "a b", "ä,\"'", "x\xffy"}
	rs := reqtext.MustParse(t, "r @http.route=/v1")
	got := table(t, parquetBytes(t, rs, ParquetOptions{Columns: odd}))[0]
	if got["http.route"] != "/v1" {
		t.Errorf("http.route is %v", got["http.route"])
	}
}

func TestParquetSameBytes(t *testing.T) {
	rs := randomRequests(rand.New(rand.NewPCG(9, 9)), 500)
	o := ParquetOptions{Columns: []string{"tenant"}, RowGroup: 100, Version: "v", Inputs: []string{"x"}}
	first := parquetBytes(t, rs, o)
	for range 3 {
		if !bytes.Equal(first, parquetBytes(t, rs, o)) {
			t.Fatal("the same requests give other bytes")
		}
	}
}

// Groups end at the row limit, and early where rows are large.
func TestParquetRowGroups(t *testing.T) {
	groups := func(data []byte) (n []int64) {
		for _, g := range openParquet(t, data).RowGroups() {
			n = append(n, g.NumRows())
		}
		return n
	}
	rs := randomRequests(rand.New(rand.NewPCG(9, 9)), 250)
	if got := groups(parquetBytes(t, rs, ParquetOptions{RowGroup: 100})); !slices.Equal(got, []int64{100, 100, 50}) {
		t.Errorf("groups of %v rows", got)
	}
	if got := groups(parquetBytes(t, rs[:200], ParquetOptions{RowGroup: 100})); !slices.Equal(got, []int64{100, 100}) {
		t.Errorf("groups of %v rows", got)
	}
	large := &trace.Request{ID: "x", Clock: trace.ClockUnix, Resolution: 1}
	large.SetAttr("note", trace.StringValue(strings.Repeat("0123456789abcdef", parquetGroupBytes/4/16)))
	if got := groups(parquetBytes(t, []*trace.Request{large, large, large, large, large}, ParquetOptions{})); !slices.Equal(got, []int64{4, 1}) {
		t.Errorf("groups of %v large rows", got)
	}
}

func TestParquetInvalidText(t *testing.T) {
	r := &trace.Request{ID: "a\xffb", Clock: trace.ClockUnix, Resolution: 1}
	if got := table(t, parquetBytes(t, []*trace.Request{r}, ParquetOptions{}))[0]["request_id"]; got != "a\uFFFDb" {
		t.Errorf("request_id %q", got)
	}
}

// failAfter fails once n bytes were written.
type failAfter struct{ n int }

func (f *failAfter) Write(p []byte) (int, error) {
	if f.n -= len(p); f.n < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestParquetWriteError(t *testing.T) {
	rs := randomRequests(rand.New(rand.NewPCG(9, 9)), 500)
	whole := len(parquetBytes(t, rs, ParquetOptions{RowGroup: 100}))
	for _, n := range []int{0, 3, whole / 2, whole - 1} {
		err := writeParquet(&failAfter{n}, rs, ParquetOptions{RowGroup: 100})
		if err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("disk full after %d of %d bytes: %v", n, whole, err)
		}
	}
	if err := writeParquet(&failAfter{whole}, rs, ParquetOptions{RowGroup: 100}); err != nil {
		t.Error(err)
	}
}

func BenchmarkParquet(b *testing.B) {
	rs := randomRequests(rand.New(rand.NewPCG(1, 1)), 10000)
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		size = len(parquetBytes(b, rs, ParquetOptions{}))
	}
	b.ReportMetric(float64(len(rs)*b.N)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(float64(size)/float64(len(rs)), "bytes/row")
}

// randomRequests makes requests of all outcomes and clocks with claims of any
// set, that may overlap, stick out or be missing.
func randomRequests(rnd *rand.Rand, n int) []*trace.Request {
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	count := func(below int) trace.Opt[int] {
		if rnd.IntN(3) == 0 {
			return trace.Opt[int]{}
		}
		return trace.Some(rnd.IntN(below))
	}
	rs := make([]*trace.Request, n)
	for i := range rs {
		at := reqtext.Base + trace.Time(rnd.Int64N(1e12))
		instant := func(after int64) trace.Instant {
			if rnd.IntN(5) == 0 {
				return trace.Instant{}
			}
			return trace.At(at+trace.Time(after), trace.Measured)
		}
		length := rnd.Int64N(1e10)
		r := &trace.Request{
			ID: fmt.Sprint("cmpl-", i), TraceID: pick("", "5b8efff798038103d269b633813fc60c"),
			Source:  trace.Source{Format: "otlp-json", Engine: pick("vllm-v1", "unknown")},
			Service: pick("", "chat", "batch"), Model: pick("m1", "m2"), Replica: pick("", "gpu-0", "gpu-1"),
			Clock: trace.ClockUnix, Resolution: 1,
			Arrival: instant(0), Queued: instant(length / 9), Scheduled: instant(length / 5),
			FirstToken: instant(length / 3), LastToken: instant(length - length/9), Completed: instant(length),
			Input: count(5000), Cached: count(100), Output: count(500), MaxTokens: count(1000), Preemptions: count(3),
			FinishReason: pick("", "stop", "length"),
		}
		if rnd.IntN(20) == 0 {
			r.Clock = trace.ClockMonotonic
		}
		if r.Completed.Present() {
			r.Outcome = trace.Outcomes()[rnd.IntN(5)]
		}
		for range rnd.IntN(6) {
			from := at + trace.Time(rnd.Int64N(1e10)-1e9)
			r.Intervals = append(r.Intervals, trace.Interval{
				Phase: trace.Phase(1 + rnd.IntN(127)), Basis: trace.Measured,
				Start: from, End: from + trace.Time(rnd.Int64N(1e10)*rnd.Int64N(2)),
			})
		}
		for range rnd.IntN(4) {
			r.SetAttr(pick("tenant", "http.route", "empty", "n"), []trace.Value{{}, trace.StringValue(pick("", "a", "ä")), trace.IntValue(7)}[rnd.IntN(3)])
		}
		for range rnd.IntN(3) {
			r.Issues = append(r.Issues, trace.NewIssue(trace.Inconsistent, trace.Pos{}, "x"), trace.NewIssue(trace.BadNumber, trace.Pos{}, "y"))
		}
		if err := r.Check(); err != nil {
			panic(err)
		}
		rs[i] = r
	}
	return rs
}
