package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// The books agree: whatever the input, the totals of the report over all
// requests, the sums of every table's columns and the totals of the profiles
// are the same to the nanosecond. The phase table's Parquet form has the values
// of its CSV form: package export tests that.
func TestBooks(t *testing.T) {
	dir := t.TempDir()
	for i, in := range bookInputs(t) {
		t.Run(in.name, func(t *testing.T) {
			file := filepath.Join(dir, strconv.Itoa(i))
			if err := os.WriteFile(file, in.data, 0o666); err != nil {
				t.Fatal(err)
			}
			some := [][]string{nil, {"--where", "tenant="}, {"--from", "2s", "--to", "20s"}}[i%3]
			if in.spans && i%3 == 1 { // no log knows tenants
				some[1] = "tenant=a"
			}
			command := func(args ...string) []byte {
				return call(t, nil, slices.Concat(args, some, []string{"--zone", "UTC", "--year", "2025", file})...)
			}
			profile, blame := filepath.Join(dir, strconv.Itoa(i)+".pb.gz"), filepath.Join(dir, strconv.Itoa(i)+".blame.pb.gz")
			rows := tableSums(t, command("export", "-o", "-", "--format", "csv"))
			command("export", "-o", profile)
			command("export", "-o", blame, "--frames", "waiter,cause,holder")
			rep, waiting := reportTotals(t, command("report", "--format", "json"))
			if rows["causes"] != rows["kind waiting"] {
				t.Errorf("the causes add up to %d, waiting is %d", rows["causes"], rows["kind waiting"])
			}
			delete(rows, "causes")
			if rep["requests"] == 0 || in.spans && rep["e2e"] == 0 {
				t.Fatalf("there is nothing to add up: %v", rep)
			}
			agree(t, "the report", rep, "the table", rows)
			for k, n := range profileTotals(t, profile) {
				if rep[k] != n {
					t.Errorf("%s: the report has %d, the profile %d", k, rep[k], n)
				}
			}
			if n := profileTotals(t, blame)["kind waiting"]; n != rep["kind waiting"] {
				t.Errorf("the report has %d of waiting, the profile of waiters and holders %d", rep["kind waiting"], n)
			}
			folder := filepath.Join(dir, strconv.Itoa(i)+".tables")
			command("export", "-o", folder+"/")
			balance(t, folder, some == nil, rep, waiting, command)
			for cause, n := range leaves(t, profile) {
				if waiting[cause] != n {
					t.Errorf("%s: the report has %d, the profile %d", cause, waiting[cause], n)
				}
			}
		})
	}
}

// agree compares sums by name; one that is not there is 0.
func agree(t *testing.T, what string, x map[string]int64, other string, y map[string]int64) {
	t.Helper()
	for k := range x {
		if x[k] != y[k] {
			t.Errorf("%s: %s has %d, %s %d", k, what, x[k], other, y[k])
		}
	}
	for k := range y {
		if _, ok := x[k]; !ok && y[k] != 0 {
			t.Errorf("%s: %s has nothing, %s %d", k, what, other, y[k])
		}
	}
}

// balance holds the tables of a folder against each other, the report's totals
// and what the command waiting says of the same requests. Where these are not
// the whole input, some of the waiting is charged to others, which are in no
// row of the phase table.
func balance(t *testing.T, folder string, whole bool, rep, said map[string]int64, command func(...string) []byte) {
	phases, waiting, blame, timeline := readTable(t, folder, "phases"), readTable(t, folder, "waiting"), readTable(t, folder, "blame"), readTable(t, folder, "timeline")

	// What the phase table says of causes, of all and of each request.
	want := map[string]int64{}
	byRow := map[int64]map[string]int64{}
	var charged int64
	for i, r := range phases {
		if r["row"] != int64(i) {
			t.Fatalf("row %d is called %v", i, r["row"])
		}
		of := map[string]int64{}
		for _, c := range analyze.Causes() {
			of[c.String()] = integer(r[analyze.CauseColumn(c)])
		}
		of["avoidable"] = integer(r["avoidable_ns"])
		byRow[int64(i)] = of
		for k, ns := range of {
			want[k] += ns
		}
		charged += integer(r["charged_ns"])
	}
	var all int64
	for _, c := range analyze.Causes() {
		all += want[c.String()]
	}
	if all != rep["kind waiting"] {
		t.Errorf("the causes of the phase table add up to %d, the report's waiting is %d", all, rep["kind waiting"])
	}

	got := map[string]int64{}
	ofRow := map[int64]map[string]int64{}
	var hidden int64
	for _, r := range waiting {
		row, cause, ns := integer(r["row"]), r["cause"].(string), integer(r["ns"])
		if start, ok := r["start_unix_nano"]; ok && (integer(r["end_unix_nano"])-integer(start) != ns || r["start"] != start || r["end"] != r["end_unix_nano"]) {
			t.Fatalf("a stretch of %d ns: %v", ns, r)
		}
		if ofRow[row] == nil {
			ofRow[row] = map[string]int64{}
		}
		ofRow[row][cause] += ns
		got[cause] += ns
		if r["avoidable"] == true {
			ofRow[row]["avoidable"] += ns
			got["avoidable"] += ns
		}
		if r["hidden"] == true {
			hidden += ns
		}
		if id := phases[row]["request_id"]; r["request_id"] != id {
			t.Fatalf("a stretch of request %v is said to be of %v", id, r["request_id"])
		}
	}
	agree(t, "the phase table", want, "the waiting table", got)
	for row, of := range byRow {
		for k, ns := range of {
			if ofRow[row][k] != ns {
				t.Fatalf("row %d, %s: the phase table has %d, the waiting table %d", row, k, ns, ofRow[row][k])
			}
		}
	}

	// Whose waiting, and for whom.
	delete(want, "avoidable")
	sums, cells := map[string]int64{}, map[analyze.BlameCell]int64{}
	for _, r := range blame {
		holder, held := r["holder"].(string)
		c := analyze.BlameCell{Waiter: r["waiter"].(string), Holder: holder, Cause: r["cause"].(string)}
		cells[c] += integer(r["ns"])
		sums[c.Cause] += integer(r["ns"])
		if held {
			charged -= integer(r["ns"])
		}
	}
	agree(t, "the phase table", want, "the blame table", sums)
	if charged > 0 || whole && charged < 0 {
		t.Errorf("the phase table charges %d more than the blame table", charged)
	}

	// What happened when.
	names := tableNames()
	for _, series := range []bool{true, false} { // all together, and the replicas
		over, caused, n := map[string]int64{}, map[string]int64{}, 0
		for _, r := range timeline {
			if (r["series"] == "all") != series {
				continue
			}
			n++
			for _, c := range analyze.Causes() {
				caused[c.String()] += integer(r[analyze.CauseColumn(c)])
			}
			for column, name := range names {
				over[name] += integer(r[column])
			}
			over["other_sets"] += integer(r["other_sets_ns"])
		}
		if n == 0 && !series {
			continue // one replica
		}
		agree(t, "the phase table", want, "the timeline", caused)
		for k, ns := range over {
			switch _, single := trace.ParsePhase(k); {
			case single || strings.HasPrefix(k, "kind "):
				if ns != rep[k] {
					t.Errorf("%s: the report has %d, the timeline %d", k, rep[k], ns)
				}
			case k == "other_sets":
				for _, r := range phases {
					ns -= integer(r["other_sets_ns"])
				}
				if ns != 0 {
					t.Errorf("other sets: the timeline has %d more than the phase table", ns)
				}
			}
		}
	}

	// The other commands on the same requests.
	var why struct {
		WaitingNS   int64 `json:"waiting_ns"`
		HiddenNS    int64 `json:"hidden_ns"`
		AvoidableNS int64 `json:"avoidable_ns"`
		Causes      []analyze.CauseRow
		Matrix      []analyze.BlameCell
	}
	if err := json.Unmarshal(command("waiting", "--format", "json"), &why); err != nil {
		t.Fatal(err)
	}
	told := map[string]int64{}
	for _, c := range why.Causes {
		told[c.Cause] = c.NS
	}
	agree(t, "the phase table", want, "traceview waiting", told)
	for _, c := range why.Matrix {
		ns := c.NS
		if c.NS = 0; cells[c] != ns {
			t.Errorf("%s for %s, %s: traceview waiting has %d, the blame table %d", c.Waiter, c.Holder, c.Cause, ns, cells[c])
		}
	}
	if why.WaitingNS != rep["kind waiting"] || why.HiddenNS != hidden || why.AvoidableNS != got["avoidable"] || len(why.Matrix) != len(cells) {
		t.Errorf("traceview waiting has %d, hidden %d, avoidable %d in %d cells; the tables %d, %d, %d in %d", why.WaitingNS, why.HiddenNS, why.AvoidableNS,
			len(why.Matrix), rep["kind waiting"], hidden, got["avoidable"], len(cells))
	}
	want["hidden"], want["avoidable"] = hidden, got["avoidable"]
	agree(t, "the tables", want, "the report", said)
}

// integer is a value of a table, 0 where it is null.
func integer(v any) int64 {
	n, _ := v.(int64)
	return n
}

// readTable reads a table of a folder, one map a row, without nulls and what
// is no single value.
func readTable(t *testing.T, folder, name string) (rows []map[string]any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, name+".parquet"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	paths := f.Schema().Columns()
	for _, g := range f.RowGroups() {
		read := g.Rows()
		buf := make([]parquet.Row, 100)
		for {
			n, err := read.ReadRows(buf)
			for _, row := range buf[:n] {
				m := map[string]any{}
				for _, v := range row {
					switch path := paths[v.Column()]; {
					case len(path) > 1 || v.IsNull():
					case v.Kind() == parquet.Int64:
						m[path[0]] = v.Int64()
					case v.Kind() == parquet.Double:
						m[path[0]] = v.Double()
					case v.Kind() == parquet.Boolean:
						m[path[0]] = v.Boolean()
					case v.Kind() == parquet.ByteArray:
						m[path[0]] = v.String()
					}
				}
				rows = append(rows, m)
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		read.Close()
	}
	return rows
}

type bookInput struct {
	name  string
	spans bool // not a log, which may know no end
	data  []byte
}

// bookInputs is a random run of the engine in every format that it can be
// written in; each form, compression and wrapper comes at least once.
func bookInputs(t *testing.T) (all []bookInput) {
	rnd := rand.New(rand.NewPCG(11, 7))
	engine := func() *sim.Run {
		run, err := sim.Engine{
			Seed: rnd.Uint64(), Service: "s", Model: "m", Replicas: 1 + rnd.IntN(2), Routing: sim.LeastLoaded,
			Slots: 2 + rnd.IntN(6), Budget: 256 << rnd.IntN(4), Chunked: true, Blocks: 140 + rnd.IntN(100), Limit: 2200,
			Base: time.Duration(1 + rnd.IntN(20e6)), PerPrefill: time.Duration(1 + rnd.IntN(90_000)), PerDecode: time.Duration(1 + rnd.IntN(400_000)),
			Before: time.Duration(rnd.IntN(5e6)), After: time.Duration(rnd.IntN(5e6)), Every: 5 * time.Second,
			Tenants: []sim.Tenant{
				{Name: "a", Requests: 60, Rate: 5, Prompt: sim.Length{Min: 1, Max: 900, Skew: 1}, Output: sim.Length{Min: 1, Max: 120}, Abort: 0.1, Fail: 0.1},
				{Name: "b", Requests: 20, Rate: 2, Burst: 5, Prompt: sim.Length{Min: 300, Max: 2300}, Output: sim.Length{Min: 1, Max: 60}},
			},
		}.Run()
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	add := func(name string, spans bool, write func(*bytes.Buffer) error) {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, bookInput{name, spans, b.Bytes()})
	}
	writers := []struct {
		name  string
		spans func([]*trace.Request) []*trace.Span
	}{
		{"v1", func(rs []*trace.Request) []*trace.Span { return sim.V1(rs, sim.VLLM{Attrs: true}) }},
		{"v0", func(rs []*trace.Request) []*trace.Span { return sim.V0(rs, sim.VLLM{Attrs: true}) }},
		{"child-spans", sim.ChildSpans}, {"gateway", sim.Gateway}, {"unknown", sim.Unknown},
	}
	for i := range max(len(writers), len(sim.Forms()), len(sim.Compressions())) {
		w, e := writers[i%len(writers)], sim.Encoding{Form: sim.Forms()[i%len(sim.Forms())], Compression: sim.Compressions()[i%len(sim.Compressions())], Batch: 1 + rnd.IntN(100)}
		add(fmt.Sprintf("%s %s %s", w.name, e.Form, e.Compression), true, func(b *bytes.Buffer) error {
			return sim.Encode(b, w.spans(engine().Requests), e)
		})
	}
	for i, v := range sim.LogVersions() {
		shape := sim.LogShape{Version: v, Wrapper: sim.Wrappers()[i%len(sim.Wrappers())], CRLF: i%2 == 1, Outputs: v == sim.Log10 || v == sim.Log16}
		add(fmt.Sprintf("log %s %s", v, shape.Wrapper), false, func(b *bytes.Buffer) error {
			return sim.Log(b, engine(), "replica-0", shape)
		})
	}
	return all
}

// tableNames gives the names that the report has for columns of durations.
func tableNames() map[string]string {
	named := map[string]string{
		"waiting_ns": "kind waiting", "compute_ns": "kind compute", "overhead_ns": "kind overhead",
		"overlap_ns": "overlap", "outside_ns": "outside", "conflict_ns": "conflict",
	}
	for _, p := range append(analyze.PhaseColumns(), trace.Unattributed) {
		named[analyze.PhaseColumn(p)] = p.String()
	}
	return named
}

// tableSums adds up the columns of durations, by the names that the report
// has for them, and counts the rows as "requests".
func tableSums(t *testing.T, table []byte) map[string]int64 {
	rows, err := csv.NewReader(bytes.NewReader(table)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	named := tableNames()
	for _, c := range analyze.Causes() {
		named[analyze.CauseColumn(c)] = "causes"
	}
	sums := map[string]int64{"requests": int64(len(rows) - 1)}
	for _, row := range rows[1:] {
		for i, name := range rows[0] {
			k, known := named[name]
			switch {
			case row[i] == "":
			case name == "other_sets":
				sets := map[string]int64{}
				if err := json.Unmarshal([]byte(row[i]), &sets); err != nil {
					t.Fatal(err)
				}
				for set, ns := range sets {
					sums[set] += ns
				}
			case known:
				n, err := strconv.ParseInt(row[i], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				sums[k] += n
			}
		}
	}
	for k, n := range sums {
		if _, ok := trace.ParsePhase(k); ok {
			sums["e2e"] += n
		}
	}
	return sums
}

// reportTotals takes the totals over all requests out of a report, and those of
// its waiting by cause, with what was avoidable and what has hidden holders.
func reportTotals(t *testing.T, report []byte) (totals, waiting map[string]int64) {
	var rep struct {
		Counts struct {
			Requests int64
			Overlap  int64 `json:"overlap_ns"`
			Outside  int64 `json:"outside_ns"`
			Conflict int64 `json:"conflict_ns"`
		}
		Measurement struct {
			RequestTime int64 `json:"request_time_ns"`
		}
		Phases []struct {
			Name  string
			Total int64 `json:"total_all_ns"`
		}
		Kinds []struct {
			Kind  string
			Total int64 `json:"total_all_ns"`
		}
		Waiting struct {
			Hidden    int64 `json:"hidden_ns"`
			Avoidable int64 `json:"avoidable_ns"`
			Causes    []analyze.CauseRow
		}
	}
	if err := json.Unmarshal(report, &rep); err != nil {
		t.Fatal(err)
	}
	totals = map[string]int64{
		"requests": rep.Counts.Requests, "overlap": rep.Counts.Overlap, "outside": rep.Counts.Outside,
		"conflict": rep.Counts.Conflict, "e2e": rep.Measurement.RequestTime,
	}
	for _, p := range rep.Phases {
		totals[p.Name] = p.Total
	}
	for _, k := range rep.Kinds {
		if k.Kind != "unsplit" && k.Kind != "unknown" { // the table has no column for them
			totals["kind "+k.Kind] = k.Total
		}
	}
	waiting = map[string]int64{"hidden": rep.Waiting.Hidden, "avoidable": rep.Waiting.Avoidable}
	for _, c := range rep.Waiting.Causes {
		waiting[c.Cause] = c.NS
	}
	return totals, waiting
}

// leaves gives the waiting by cause, which are the leaves of a profile, as go
// tool pprof sums it. Other kinds of time are not in it.
func leaves(t *testing.T, profile string) map[string]int64 {
	text, err := exec.Command("go", "tool", "pprof", "-top", "-nodecount=0", "-nodefraction=0", "-unit=ns", "-sample_index=waiting", profile).Output()
	if err != nil {
		t.Fatalf("go tool pprof: %v", err)
	}
	sums := map[string]int64{}
	for _, c := range analyze.Causes() {
		sums[c.String()] = 0
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line) // flat, flat%, sum%, cum, cum%, name
		if len(f) != 6 {
			continue
		}
		if _, ok := sums[f[5]]; ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(f[0], "ns"), 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			sums[f[5]] += n
		}
	}
	return sums
}

// profileTotals adds up a profile's samples as go tool pprof reads them.
func profileTotals(t *testing.T, profile string) map[string]int64 {
	raw, err := exec.Command("go", "tool", "pprof", "-raw", profile).Output()
	if err != nil {
		t.Fatalf("go tool pprof: %v", err)
	}
	_, samples, _ := strings.Cut(string(raw), "\nSamples:\n")
	samples, _, _ = strings.Cut(samples, "\nLocations\n")
	head, samples, _ := strings.Cut(samples, "\n")
	keys := []string{"requests", "kind waiting", "kind compute", "kind overhead", "e2e"}
	switch head {
	case "requests/count waiting/nanoseconds[dflt] compute/nanoseconds overhead/nanoseconds e2e/nanoseconds":
	case "waiting/nanoseconds[dflt]": // of waiters and holders
		keys = keys[1:2]
	default:
		t.Fatalf("go tool pprof reads other types:\n%.400s", raw)
	}
	totals := map[string]int64{}
	for line := range strings.Lines(samples) {
		values, _, ok := strings.Cut(line, ": ")
		fields := strings.Fields(values)
		if !ok || len(fields) != len(keys) {
			continue // labels
		}
		for i, f := range fields {
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			totals[keys[i]] += n
		}
	}
	return totals
}
