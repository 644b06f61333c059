package export

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func stacks(o analyze.StackOptions, rs []*trace.Request) *analyze.Stacks {
	b := analyze.NewStacks(o)
	for _, r := range rs {
		b.Add(r)
	}
	return b.Stacks(nil)
}

func pprofBytes(t *testing.T, s *analyze.Stacks) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := WritePprof(&b, s); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Twelve requests on two replicas: gpu-0 is quick, gpu-1 has a queue. The
// last one fails.
const twoReplicas = `
a1 arrival=0ms    end=30ms   queueing=0ms..1ms     prefill=1ms..10ms     decode=10ms..30ms    service=chat model=org/m-7B replica=gpu-0 in=100 out=21 @tenant=red
a2 arrival=10ms   end=40ms   queueing=10ms..11ms   prefill=11ms..20ms    decode=20ms..40ms    service=chat model=org/m-7B replica=gpu-0 in=120 out=21 @tenant=red
a3 arrival=20ms   end=50ms   queueing=20ms..21ms   prefill=21ms..30ms    decode=30ms..50ms    service=chat model=org/m-7B replica=gpu-0 in=90  out=21 @tenant=blue
a4 arrival=30ms   end=60ms   queueing=30ms..31ms   prefill=31ms..40ms    decode=40ms..60ms    service=chat model=org/m-7B replica=gpu-0 in=64  out=21
b1 arrival=0ms    end=130ms  queueing=0ms..100ms   prefill=100ms..110ms  decode=110ms..130ms  service=chat model=org/m-7B replica=gpu-1 in=100 out=21 @tenant=red
b2 arrival=10ms   end=240ms  queueing=10ms..210ms  prefill=210ms..220ms  decode=220ms..240ms  service=chat model=org/m-7B replica=gpu-1 in=4000 out=21 @tenant=red
b3 arrival=20ms   end=350ms  queueing=20ms..320ms  prefill=320ms..330ms  decode=330ms..345ms  service=chat model=org/m-7B replica=gpu-1 in=4000 out=16 @tenant=blue
b4 arrival=30ms              queueing=30ms..400ms                                             service=chat model=org/m-7B replica=gpu-1 in=4000 @tenant=blue
c1 arrival=40ms   end=70ms   queueing|prefill=40ms..55ms decode=55ms..70ms                    service=chat model=org/m-7B in=100 out=5 outcome=error
`

func TestPprof(t *testing.T) {
	rs := reqtext.MustParse(t, twoReplicas)
	data := pprofBytes(t, stacks(analyze.StackOptions{}, rs))
	p, err := profile.ParseData(data)
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, st := range p.SampleType {
		types = append(types, st.Type+"/"+st.Unit)
	}
	if got, want := strings.Join(types, " "), "requests/count waiting/nanoseconds compute/nanoseconds overhead/nanoseconds e2e/nanoseconds"; got != want {
		t.Errorf("sample types %q, want %q", got, want)
	}
	if p.DefaultSampleType != "waiting" {
		t.Errorf("default sample type %q", p.DefaultSampleType)
	}
	if p.TimeNanos != int64(reqtext.Base) || p.DurationNanos != 350e6 {
		t.Errorf("time %d, duration %d: want the window, %d and 350 ms", p.TimeNanos, p.DurationNanos, reqtext.Base)
	}
	keys := make(map[string]string)
	for _, f := range p.Function {
		keys[f.Name] = f.Filename
	}
	want := map[string]string{
		"service chat": "service", "model org/m-7B": "model", "replica gpu-0": "replica", "replica gpu-1": "replica",
		"replica (not in the data)": "replica", "queueing": "phase", "prefill": "phase", "decode": "phase",
		"queueing|prefill": "phase", "unattributed": "phase",
	}
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("functions and their files -want +got\n%s", diff)
	}
	for _, s := range p.Sample {
		if s.Location[len(s.Location)-1].Line[0].Function.Name != "service chat" {
			t.Errorf("the root is %q", s.Location[len(s.Location)-1].Line[0].Function.Name)
		}
		if s.Label["outcome"] == nil || s.NumLabel["prompt_tokens"] == nil || s.NumUnit["prompt_tokens"][0] != "tokens" {
			t.Errorf("labels %v %v %v", s.Label, s.NumLabel, s.NumUnit)
		}
	}

	// No clock: not in the profile, not in the gzip header (bytes 4 to 7).
	if again := pprofBytes(t, stacks(analyze.StackOptions{}, rs)); !bytes.Equal(data, again) {
		t.Error("the same requests give other bytes")
	}
	if !bytes.Equal(data[4:8], make([]byte, 4)) {
		t.Errorf("the gzip header carries a time: % x", data[4:8])
	}
	slices.Reverse(rs)
	if again := pprofBytes(t, stacks(analyze.StackOptions{}, rs)); !bytes.Equal(data, again) {
		t.Error("the order of requests changes the bytes")
	}
}

// Totals of the profile, as read back, are those of the breakdowns.
func TestPprofTotals(t *testing.T) {
	rs := randomRequests(rand.New(rand.NewPCG(1, 2)), 400)
	want := make([]int64, 5)
	for _, r := range rs {
		b := r.Breakdown()
		for i, v := range []int64{1, int64(b.Kind(trace.Waiting)), int64(b.Kind(trace.Compute)), int64(b.Kind(trace.Overhead)), int64(b.Extent)} {
			want[i] += v
		}
	}
	total := func(p *profile.Profile) []int64 {
		got := make([]int64, 5)
		for _, s := range p.Sample {
			for i, v := range s.Value {
				got[i] += v
			}
		}
		return got
	}
	read := func(rs []*trace.Request) *profile.Profile {
		p, err := profile.ParseData(pprofBytes(t, stacks(analyze.StackOptions{}, rs)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	if got := total(read(rs)); !slices.Equal(got, want) {
		t.Errorf("totals %v, want %v", got, want)
	}
	merged, err := profile.Merge([]*profile.Profile{read(rs[:100]), read(rs[100:])})
	if err != nil {
		t.Fatal(err)
	}
	if got := total(merged); !slices.Equal(got, want) {
		t.Errorf("totals of two halves merged %v, want %v", got, want)
	}
}

func TestPprofRefusesUneven(t *testing.T) {
	s := &analyze.Stacks{Types: []analyze.ValueType{{Type: "a", Unit: "count"}}, Samples: []analyze.StackSample{{Values: []int64{1, 2}}}}
	if err := WritePprof(&bytes.Buffer{}, s); err == nil {
		t.Error("two values of one type: no error")
	}
}

// The flag is shared with the package's other golden tests.
func init() {
	if flag.Lookup("update") == nil {
		flag.Bool("update", false, "write the golden files instead of comparing with them")
	}
}

// goPprof runs go tool pprof, apart from the user's settings. What it prints on
// stderr is the second result.
func goPprof(t *testing.T, dir string, args ...string) (string, string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "pprof"}, args...)...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// HOME stays: go keeps the tool, which it builds at its first use, there.
	cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir, "PPROF_BINARY_PATH="+dir, "TZ=UTC")
	if err := cmd.Run(); err != nil {
		t.Fatalf("go tool pprof %q: %v\n%s", args, err, errs.String())
	}
	return out.String(), errs.String()
}

// What go tool pprof makes of a profile. The tool comes with Go, as the test
// does; what it prints ahead of "Type:" is left out, and where its layout may
// change from one version to the next only words are looked for.
func TestGoToolPprof(t *testing.T) {
	dir := t.TempDir()
	write := func(name, in string) {
		rs := reqtext.MustParse(t, in)
		if err := os.WriteFile(filepath.Join(dir, name), pprofBytes(t, stacks(analyze.StackOptions{}, rs)), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	write("all.pb.gz", twoReplicas)
	write("before.pb.gz", strings.ReplaceAll(twoReplicas, "queueing=20ms..320ms", "queueing=20ms..220ms"))
	write("none.pb.gz", "")
	golden := []struct {
		name string
		args []string
	}{
		{"top", []string{"-top", "all.pb.gz"}},
		{"top-requests", []string{"-top", "-sample_index=requests", "all.pb.gz"}},
		{"top-e2e", []string{"-top", "-sample_index=e2e", "-unit=ms", "all.pb.gz"}},
		{"top-files", []string{"-top", "-files", "all.pb.gz"}},
		{"tagfocus-band", []string{"-top", "-tagfocus=band=p99-p100", "all.pb.gz"}},
		{"tagfocus-tokens", []string{"-top", "-tagfocus=prompt_tokens=2048:", "all.pb.gz"}},
		{"tagroot", []string{"-top", "-cum", "-tagroot=tenant", "all.pb.gz"}},
		{"diff", []string{"-top", "-diff_base=before.pb.gz", "all.pb.gz"}},
	}
	for _, tt := range golden {
		t.Run(tt.name, func(t *testing.T) {
			got, errs := goPprof(t, dir, tt.args...)
			// There is no binary to look for, and nobody should be told so.
			if strings.Contains(errs, "binary") || strings.Contains(errs, "symboliz") {
				t.Errorf("complains:\n%s", errs)
			}
			_, got, ok := strings.Cut(got, "Type: ")
			if !ok {
				t.Fatalf("prints no type:\n%s", got)
			}
			path := filepath.Join("testdata", "pprof", tt.name+".txt")
			if flag.Lookup("update").Value.String() == "true" {
				if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got (-update writes the golden file)\n%s", diff)
			}
		})
	}
	words := []struct {
		name string
		args []string
		want []string
	}{
		{"tags", []string{"-tags", "all.pb.gz"}, []string{"300ms (30.80%): p99-p100", "870ms (89.32%): 2048", "370ms (37.99%): incomplete", "302ms (31.01%): red"}},
		{"traces", []string{"-traces", "all.pb.gz"}, []string{"prompt_tokens:  2048", "band:  p50-p90", "300ms   queueing\n             replica gpu-1\n             model org/m-7B\n             service chat\n"}},
		{"comments", []string{"-comments", "all.pb.gz"}, []string{"requests count on their longest phase", "bands by e2e of the ok requests: p50 30 ms, p90 270 ms, p99 324 ms"}},
		{"raw", []string{"-raw", "all.pb.gz"}, []string{"requests/count waiting/nanoseconds[dflt] compute/nanoseconds overhead/nanoseconds e2e/nanoseconds", "Time: 2025-10-09 08:53:20", "prompt_tokens:[2048 tokens]", "tenant:[blue]"}},
		{"raw of no requests", []string{"-raw", "none.pb.gz"}, []string{"requests/count waiting/nanoseconds[dflt]"}},
	}
	for _, tt := range words {
		t.Run(tt.name, func(t *testing.T) {
			got, _ := goPprof(t, dir, tt.args...)
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q is not in\n%s", w, got)
				}
			}
		})
	}
}

func BenchmarkWritePprof(b *testing.B) {
	s := stacks(analyze.StackOptions{}, randomRequests(rand.New(rand.NewPCG(1, 1)), 10000))
	b.ReportAllocs()
	for b.Loop() {
		if err := WritePprof(&bytes.Buffer{}, s); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(s.Samples)*b.N)/b.Elapsed().Seconds(), "samples/s")
}
