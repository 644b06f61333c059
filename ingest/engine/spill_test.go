package engine

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// told is all that a builder yields.
type told struct {
	Requests []*trace.Request
	Issues   []trace.Issue
}

func tell(t *testing.T, spans []*trace.Span, o Options) (all told, spilled int64) {
	t.Helper()
	b := NewBuilder(o)
	take := func(r *trace.Request, is *trace.Issue) bool {
		if r != nil {
			all.Requests = append(all.Requests, r)
		} else {
			all.Issues = append(all.Issues, *is)
		}
		return true
	}
	for _, s := range spans {
		b.Add(s, take)
	}
	b.Finish(take)
	if b.file != nil {
		spilled = b.file.size
	}
	if err := errors.Join(b.Err(), b.Close()); err != nil {
		t.Fatal(err)
	}
	return all, spilled
}

// What waited in a file must be what waited in memory, also where traces are
// closed early or joined with others.
func TestSpill(t *testing.T) {
	dir := tempDir(t)
	rs := tightRun(t, 5, 40)
	for name, spans := range map[string][]*trace.Span{
		"children": sim.ChildSpans(rs), "gateway": sim.Gateway(rs), "sglang": sim.SGLang(rs, sim.SGLangShape{Ranks: 2, Steps: 3}),
		"halves": sim.SGLangHalves(rs), "llm-d": sim.LLMD(rs), "ray": sim.RayServe(rs),
	} {
		spans = sim.Shuffle(spans, 1)
		for _, open := range []int{0, 40} {
			want, none := tell(t, spans, Options{MaxOpen: open})
			if none != 0 {
				t.Fatalf("%s: %d bytes went to a file unasked", name, none)
			}
			for _, memory := range []int64{1, 3000} {
				got, spilled := tell(t, spans, Options{MaxOpen: open, Memory: memory})
				if d := cmp.Diff(want, got, cmp.AllowUnexported(trace.Value{}, trace.Opt[int]{}, trace.Opt[time.Duration]{}, trace.Opt[trace.Nesting]{}, trace.Opt[trace.Time]{}, trace.Opt[float64]{})); d != "" {
					t.Fatalf("%s, %d spans, %d bytes (- in memory, + spilled):\n%s", name, open, memory, d)
				}
				if spilled == 0 && memory == 1 {
					t.Errorf("%s: nothing went to a file", name)
				}
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// tempDir is where temporary files go while the test runs.
func tempDir(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	return dir
}

// A file that is open has no name: nothing is left of a program that is killed.
func TestSpillFileHasNoName(t *testing.T) {
	dir := tempDir(t)
	f, err := newSpillFile()
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 && runtime.GOOS != "windows" {
		t.Errorf("while it is open: %v, %v", left, err)
	}
	if err := f.close(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Where the file cannot be written or read, the builder stops and says so.
func TestSpillFails(t *testing.T) {
	spans := sim.ChildSpans([]*trace.Request{{TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331", Arrival: trace.At(5e9, trace.Measured), Completed: trace.At(6e9, trace.Measured)}})
	yield := func(*trace.Request, *trace.Issue) bool { t.Error("told of something"); return true }

	t.Setenv("TMPDIR", t.TempDir()+"/not there")
	t.Setenv("TMP", t.TempDir()+"/not there")
	b := NewBuilder(Options{Memory: 1})
	if b.Add(spans[0], yield) || b.Err() == nil {
		t.Errorf("goes on, with %v", b.Err())
	}
	if b.Add(spans[0], yield) || b.Finish(yield) {
		t.Error("goes on after it failed")
	}

	tempDir(t)
	b = NewBuilder(Options{Memory: 1})
	if !b.Add(spans[0], yield) {
		t.Fatal(b.Err())
	}
	if err := b.file.f.Truncate(3); err != nil {
		t.Fatal(err)
	}
	if b.Finish(yield) || b.Err() == nil {
		t.Errorf("goes on, with %v", b.Err())
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
