package export

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// busy is a generated queue: one server, requests every 0.2 s that take 0.15 s
// or, every 17th, 2 s.
func busy(t testing.TB, n int) []*trace.Request {
	t.Helper()
	var b strings.Builder
	free := 0
	for i := range n {
		at := i * 200
		run := 150
		if i%17 == 0 {
			run = 900
		}
		start := max(at, free)
		free = start + run
		outcome := "ok"
		if i%40 == 39 {
			outcome = "aborted"
		}
		fmt.Fprintf(&b, "cmpl-%d arrival=%dms queueing=%dms..%dms prefill=%dms..%dms first=%dms decode=%dms..%dms last=%dms end=%dms in=%d out=%d outcome=%s model=llama-3-8b replica=gpu-%d service=chat engine=vllm-v1 format=otlp-json @tenant=t%d @host.name=node-a\n",
			i, at, at, start, start, start+50, start+50, start+50, free, free, free+1, 10+i%900, 2+i%100, outcome, i%2, i%7)
	}
	return reqtext.MustParse(t, b.String())
}

// spells is a generated run whose slowest requests come in twenty spells, all
// of one tenant.
func spells(t testing.TB) []*trace.Request {
	t.Helper()
	var b strings.Builder
	for i := range 2000 {
		d, tenant := 10+i%7, "b"
		if i%4 == 0 {
			tenant = "a"
		}
		if i%100 == 0 {
			d = 500
		}
		fmt.Fprintf(&b, "r%d arrival=%dms end=%dms @tenant=%s\n", i, 100*i, 100*i+d, tenant)
	}
	return reqtext.MustParse(t, b.String())
}

func reportOf(opts analyze.Options, rs []*trace.Request, readings ...trace.Reading) *analyze.Report {
	a := analyze.New(opts)
	for _, r := range rs {
		a.Add(r)
	}
	for _, r := range readings {
		a.AddReading(r)
	}
	return a.Report()
}

func cases(t testing.TB) map[string]*analyze.Report {
	model := `
a arrival=0   queueing=0..0      prefill=0..5ms     end=5ms
b arrival=1ms queueing=1ms..5ms  prefill=5ms..10ms  end=10ms
c arrival=2ms queueing=2ms..10ms prefill=10ms..15ms end=15ms
d arrival=3ms queueing=3ms..15ms prefill=15ms..20ms end=20ms`
	log := "r1 arrival=0 end=3s resolution=1s engine=vllm-log format=vllm-log in=5 model=\"a\x1b[31m\"\nr2 arrival=1s end=1s resolution=1s engine=vllm-log format=vllm-log outcome=aborted"
	return map[string]*analyze.Report{
		"busy":   reportOf(analyze.Options{}, busy(t, 1500)),
		"by":     reportOf(analyze.Options{By: []string{"tenant", "replica"}, Quantiles: []float64{0.5, 0.95}}, busy(t, 1500)),
		"model":  reportOf(analyze.Options{}, reqtext.MustParse(t, model)),
		"spells": reportOf(analyze.Options{}, spells(t)),
		"empty":  reportOf(analyze.Options{}, nil),
		"zero":   reportOf(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 queueing=0..0 end=0")),
		"clocks": reportOf(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 end=1s prefill=0..1s\nb clock=relative arrival=0 end=2s prefill=0..1s")),
		"failed": reportOf(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 end=30s outcome=error\nb arrival=0 end=30s outcome=error\nc arrival=1s")),
		"log": reportOf(analyze.Options{}, reqtext.MustParse(t, log),
			trace.Reading{Source: trace.Source{Engine: "vllm-log"}, Replica: "engine 0", Clock: trace.ClockUnix, Resolution: 1e9, At: reqtext.Base, Running: trace.Some(1), Waiting: trace.Some(0), KVUsage: trace.Some(0.25)},
			trace.Reading{Source: trace.Source{Engine: "vllm-log"}, Replica: "engine 0", Clock: trace.ClockUnix, Resolution: 1e9, At: reqtext.Base + 10e9, Running: trace.Some(2), Waiting: trace.Some(4), KVUsage: trace.Some(0.5)}),
		"unsplit": reportOf(analyze.Options{}, reqtext.MustParse(t, "a arrival=0 queueing|prefill=0..3ms decode=3ms..5ms arrival|completion=5ms..6ms end=7ms engine=sglang format=otlp-proto\nb arrival=1ms queueing|prefill=1ms..9ms decode=9ms..11ms end=12ms engine=sglang format=otlp-proto")),
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s (rewrite with -update): %s", name, d)
	}
}

func TestWriteText(t *testing.T) {
	for name, r := range cases(t) {
		var b bytes.Buffer
		if err := WriteText(&b, r, TextOptions{}); err != nil {
			t.Fatal(err)
		}
		golden(t, "report-"+name+".txt", b.Bytes())
		for i, line := range strings.Split(b.String(), "\n") {
			if strings.TrimRight(line, " ") != line {
				t.Errorf("%s line %d ends in blanks", name, i+1)
			}
			if n := utf8.RuneCountInString(line); n > 100 {
				t.Errorf("%s line %d is %d columns wide", name, i+1, n)
			}
		}
		if s := b.String(); strings.ContainsRune(s, '\x1b') || strings.Contains(s, "NaN") || strings.Contains(s, "%!") {
			t.Errorf("%s: control characters, NaN or a bad format in\n%s", name, s)
		}
		var coloured bytes.Buffer
		if err := WriteText(&coloured, r, TextOptions{Color: true}); err != nil {
			t.Fatal(err)
		}
		bare := strings.NewReplacer(string(bold), "", string(dim), "", "\x1b[0m", "").Replace(coloured.String())
		if bare != b.String() {
			t.Errorf("%s: colour changes more than colour", name)
		}
	}
}

func TestWriteJSON(t *testing.T) {
	for name, r := range cases(t) {
		var b bytes.Buffer
		if err := WriteJSON(&b, r); err != nil {
			t.Fatal(err)
		}
		var back analyze.Report
		dec := json.NewDecoder(bytes.NewReader(b.Bytes()))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&back); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(&back, r) {
			t.Errorf("%s: reads back as something else", name)
		}
		if name == "model" {
			golden(t, "report-model.json", b.Bytes())
		}
	}
}

// TestJSONKeys holds the description of the keys to the type.
func TestJSONKeys(t *testing.T) {
	var want []string
	var walk func(path string, t reflect.Type)
	walk = func(path string, typ reflect.Type) {
		for typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		switch {
		case strings.HasPrefix(typ.Name(), "Opt["):
			want = append(want, path)
		case typ.Kind() == reflect.Slice:
			walk(path+"[]", typ.Elem())
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				if f.Anonymous {
					walk(path, f.Type)
					continue
				}
				walk(strings.TrimPrefix(path+"."+f.Tag.Get("json"), "."), f.Type)
			}
		default:
			want = append(want, path)
		}
	}
	walk("", reflect.TypeFor[analyze.Report]())
	var missing, extra []string
	for _, p := range want {
		if _, ok := DescribeJSON(p); !ok {
			missing = append(missing, p)
		}
	}
	for _, k := range JSONKeys {
		if !slices.ContainsFunc(want, k.covers) {
			extra = append(extra, k.Key)
		}
		if k.Meaning == "" {
			t.Errorf("%s has no meaning", k.Key)
		}
	}
	if missing != nil || extra != nil {
		t.Errorf("not described: %q; described and not there: %q", missing, extra)
	}
}

func TestWriteCSV(t *testing.T) {
	for name, r := range cases(t) {
		var b bytes.Buffer
		if err := WriteCSV(&b, r.Tables()); err != nil {
			t.Fatal(err)
		}
		recs, err := csv.NewReader(&b).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(recs[0], CSVHeader) {
			t.Errorf("%s: header %q", name, recs[0])
		}
		seen := map[string]bool{}
		for _, rec := range recs[1:] {
			if k := strings.Join(rec[:3], "\x00"); seen[k] && rec[0] != "engines" {
				t.Errorf("%s: twice %q", name, rec)
			} else {
				seen[k] = true
			}
			if strings.HasSuffix(rec[2], "_ns") != (rec[4] == "ns") {
				t.Errorf("%s: column %s has unit %q", name, rec[2], rec[4])
			}
		}
	}
	evil := &analyze.Table{Name: "groups_tenant", Columns: []analyze.Column{{Name: "tenant", Text: true}, {Name: "n"}, {Name: "word", Text: true}},
		Rows: [][]analyze.Cell{{analyze.TextCell("=1+1"), analyze.IntCell(-5), analyze.TextCell("a,\"b\"\nc")}}}
	var b bytes.Buffer
	if err := WriteCSV(&b, []*analyze.Table{evil}); err != nil {
		t.Fatal(err)
	}
	want := "table,row,column,value,unit\r\ngroups_tenant,'=1+1,n,-5,\r\ngroups_tenant,'=1+1,word,\"a,\"\"b\"\"\r\nc\",\r\n"
	if b.String() != want {
		t.Errorf("%q, want %q", b.String(), want)
	}
}

func BenchmarkWriteText(b *testing.B) {
	r := reportOf(analyze.Options{}, busy(b, 1500))
	b.ReportAllocs()
	for b.Loop() {
		if err := WriteText(&bytes.Buffer{}, r, TextOptions{}); err != nil {
			b.Fatal(err)
		}
	}
}
