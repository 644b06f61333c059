package sim

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

func smallRun(t testing.TB) *Run {
	t.Helper()
	run, err := Engine{
		Seed: 5, Service: "s", Model: "m", Replicas: 1, Routing: RoundRobin, Slots: 2, Budget: 200, Chunked: true, Blocks: 80, Limit: 400,
		Base: 50 * ms, PerPrefill: 100 * time.Microsecond, PerDecode: ms, Before: 2 * ms, After: ms, Every: 2 * time.Second,
		Tenants: []Tenant{{Name: "a", Requests: 15, Rate: 2, Prompt: Length{20, 430, 0}, Output: Length{2, 30, 0}, Abort: 0.2, Fail: 0.2}},
	}.Run()
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// TestLog has each version's lines in one file, to be read by eye, and each
// wrapper around one version.
func TestLog(t *testing.T) {
	run := smallRun(t)
	for _, v := range LogVersions() {
		var b bytes.Buffer
		if err := Log(&b, run, "replica-0", LogShape{Version: v, Outputs: v == Log16}); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/vllm-"+string(v)+".log", b.Bytes())
	}
	for _, w := range Wrappers() {
		var b bytes.Buffer
		if err := Log(&b, run, "replica-0", LogShape{Version: Log08, Wrapper: w, Piece: 200}); err != nil {
			t.Fatal(err)
		}
		golden(t, "testdata/wrapped-"+string(w)+".log", b.Bytes())
	}
	for _, o := range []LogShape{{Version: "9"}, {Version: Log04, Wrapper: "bag"}} {
		if err := Log(io.Discard, run, "replica-0", o); err == nil {
			t.Errorf("%+v: no error", o)
		}
	}
}

// TestVisibleLog counts what the log of each version tells.
func TestVisibleLog(t *testing.T) {
	run := smallRun(t)
	truth := map[trace.Outcome]int{}
	for _, r := range run.Requests {
		truth[r.Outcome]++
	}
	if truth[trace.OK] == 0 || truth[trace.Aborted] == 0 || truth[trace.Error] == 0 || truth[trace.Rejected] == 0 {
		t.Fatalf("not all outcomes occur: %v", truth)
	}
	for _, c := range []struct {
		o    LogShape
		want map[trace.Outcome]int
	}{
		{LogShape{Version: Log04}, map[trace.Outcome]int{trace.OK: truth[trace.OK] + truth[trace.Error], trace.Aborted: truth[trace.Aborted]}},
		{LogShape{Version: Log06}, map[trace.Outcome]int{trace.Incomplete: truth[trace.OK] + truth[trace.Error], trace.Aborted: truth[trace.Aborted]}},
		{LogShape{Version: Log08, CRLF: true}, map[trace.Outcome]int{trace.Incomplete: truth[trace.OK], trace.Error: truth[trace.Error], trace.Aborted: truth[trace.Aborted]}},
		{LogShape{Version: Log16, Outputs: true, Wrapper: CRI}, map[trace.Outcome]int{trace.OK: truth[trace.OK], trace.Error: truth[trace.Error], trace.Aborted: truth[trace.Aborted]}},
	} {
		got := map[trace.Outcome]int{}
		var b bytes.Buffer
		if err := Log(&b, run, "replica-0", c.o); err != nil {
			t.Fatal(err)
		}
		for _, v := range VisibleLog(run, "replica-0", c.o) {
			got[v.Outcome]++
			if err := v.Check(); err != nil {
				t.Errorf("%s: %v", v.ID, err)
			}
			if n := strings.Count(b.String(), "Received request "+v.ID+":"); n != 1 {
				t.Errorf("%s is received %d times", v.ID, n)
			}
		}
		for o := range trace.Rejected + 1 {
			if got[o] != c.want[o] {
				t.Errorf("%s: %d %v, want %d", c.o.Version, got[o], o, c.want[o])
			}
		}
		if c.o.CRLF && strings.Count(b.String(), "\r\n") != strings.Count(b.String(), "\n") {
			t.Error("a line ends without CR")
		}
	}
}
