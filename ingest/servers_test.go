package ingest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

// named is an input's name and text.
type named struct{ name, text string }

// where reads inputs and tells of each request, reading and statement of
// limits where it belongs, and of the issues about logs.
func where(t *testing.T, inputs ...named) string {
	t.Helper()
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	opts := Options{Year: 2025, Zone: time.UTC}
	opts.Reading = func(r trace.Reading) {
		add("%s/%s running %d", r.Service, r.Replica, r.Running.Or(-1))
	}
	opts.Limits = func(l trace.EngineLimits) {
		add("%s/%s slots %d", l.Service, l.Replica, l.Slots.Or(-1))
	}
	var ins []Input
	for _, in := range inputs {
		ins = append(ins, inMemory(in.name, []byte(in.text)))
	}
	for r, err := range Requests(t.Context(), ins, opts) {
		var is *trace.Issue
		switch {
		case errors.As(err, &is):
			add("! %s %s", is.Code, is.Pos.File)
		case err != nil:
			t.Fatal(err)
		default:
			mark := ""
			if r.ReplicaInferred {
				mark = "?"
			}
			e2e := "-"
			if d, ok := r.E2E().Get(); ok {
				e2e = d.String()
			}
			if err := r.Check(); err != nil {
				t.Error(err)
			}
			add("%s/%s%s %s %v %s", r.Service, r.Replica, mark, r.ID, r.Outcome, e2e)
		}
	}
	return strings.Join(out, "\n")
}

// at is vLLM's line some seconds after 2025-10-09T08:53:20, when the requests
// of spans begin.
func at(s int, text string) string {
	return time.Unix(1760000000+int64(s), 0).UTC().Format("INFO 01-02 15:04:05 [x.py:7] ") + text + "\n"
}

func received(s int, id string) string {
	return at(s, "Received request "+id+": params: None, lora_request: None.")
}

func aborted(s int, id string) string { return at(s, "Aborted request(s) "+id+".") }

func stats(s, engine, running int) string {
	return at(s, fmt.Sprintf("Engine %03d: Avg prompt throughput: 1.0 tokens/s, Avg generation throughput: 1.0 tokens/s, Running: %d reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%%, Prefix cache hit rate: 0.0%%", engine, running))
}

func slots(s, n int) string { return at(s, fmt.Sprintf("non-default args: {'max_num_seqs': %d}", n)) }

// spansOf is a document with one request of a service and its replica.
func spansOf(replica, id string) string {
	return strings.Replace(doc(id), `"resourceSpans":[{`, `"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"llm"}},{"key":"service.instance.id","value":{"stringValue":"`+replica+`"}}]},`, 1) + "\n"
}

// callerOf is a document with the span of a caller alone, as of a load generator.
func callerOf(service string) string {
	return `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"` + service + `"}},{"key":"service.instance.id","value":{"stringValue":"c1"}}]},` +
		`"scopeSpans":[{"spans":[{"name":"POST /v1/completions","kind":3,"traceId":"000000000000000000000000000000cc","spanId":"00000000000000cc",` +
		`"startTimeUnixNano":"1760000000000000000","endTimeUnixNano":"1760000001000000000"}]}]}]}` + "\n"
}

func TestWhoseLog(t *testing.T) {
	for _, c := range []struct {
		name   string
		inputs []named
		want   string
	}{
		{"a log alone is named by nobody", []named{{"a.log", slots(-9, 6) + received(0, "a") + stats(1, 0, 1)}}, `
/engine 0 running 1
/ a incomplete -
/ slots 6`},
		{"of spans and log the span counts, and what has no span stays", []named{
			{"t.json", spansOf("r1", "a")},
			{"a.log", slots(-9, 6) + received(0, "a") + received(0, "b") + stats(1, 0, 1) + aborted(2, "b")},
		}, `
llm/r1 a ok 1s
! log-and-span a.log
llm/r1 slots 6
llm/r1 running 1
llm/r1 b aborted 2s`},
		{"the same, the log first", []named{
			{"a.log", slots(-9, 6) + received(0, "a") + received(0, "b") + stats(1, 0, 1) + aborted(2, "b")},
			{"t.json", spansOf("r1", "a")},
		}, `
llm/r1 a ok 1s
! log-and-span a.log
llm/r1 slots 6
llm/r1 running 1
llm/r1 b aborted 2s`},
		{"a caller's span has no id: it may be the log's, and nothing says so", []named{
			{"t.json", spansOf("r1", "a") + callerOf("load")},
			{"a.log", slots(-9, 6) + received(0, "a") + received(0, "b") + stats(1, 0, 1) + aborted(2, "b")},
		}, `
llm/r1 a ok 1s
/  ok 1s
! log-and-span a.log
! may-count-twice a.log
llm/r1 slots 6
llm/r1 running 1
llm/r1 b aborted 2s`},
		{"a caller's span, and a log of which spans tell all", []named{
			{"t.json", spansOf("r1", "a") + callerOf("load")},
			{"a.log", slots(-9, 6) + received(0, "a") + stats(1, 0, 1)},
		}, `
llm/r1 a ok 1s
/  ok 1s
! log-and-span a.log
llm/r1 slots 6
llm/r1 running 1`},
		{"one engine here and one there, without a request in common", []named{
			{"t.json", spansOf("r1", "a")},
			{"a.log", slots(-9, 6) + stats(1, 0, 1)},
		}, `
! request-logging-off a.log
llm/r1 a ok 1s
llm/r1 slots 6
llm/r1 running 1`},
		{"other requests here and there", []named{
			{"t.json", spansOf("r1", "a")},
			{"a.log", slots(-9, 6) + received(0, "x") + stats(1, 0, 1)},
		}, `
llm/r1 a ok 1s
! engine-unmatched a.log
/ slots 6
/engine 0 running 1
/ x incomplete -`},
		{"two replicas, and no request in common", []named{
			{"t.json", spansOf("r1", "a") + spansOf("r2", "b")},
			{"a.log", slots(-9, 6) + stats(1, 0, 1)},
		}, `
! request-logging-off a.log
llm/r1 a ok 1s
llm/r2 b ok 1s
! engine-unmatched a.log
/ slots 6
/engine 0 running 1`},
		{"two replicas, and the log is of one of them", []named{
			{"t.json", spansOf("r1", "a") + spansOf("r2", "b")},
			{"a.log", slots(-9, 6) + received(0, "b") + stats(1, 0, 1)},
		}, `
llm/r1 a ok 1s
llm/r2 b ok 1s
! log-and-span a.log
llm/r2 slots 6
llm/r2 running 1`},
		{"containers named as the replicas", []named{
			{"t.json", spansOf("r1", "a") + spansOf("r2", "b")},
			{"a.log", "r1  | " + slots(-9, 6) + "r2  | " + slots(-9, 7)},
		}, `
! no-requests a.log
llm/r1 a ok 1s
llm/r2 b ok 1s
llm/r1 slots 6
llm/r2 slots 7`},
		{"a file named as the replica", []named{
			{"t.json", spansOf("r1", "a") + spansOf("r2", "b")},
			{"logs/r2.log", slots(-9, 6) + stats(1, 0, 1)},
		}, `
! request-logging-off logs/r2.log
llm/r1 a ok 1s
llm/r2 b ok 1s
llm/r2 slots 6
llm/r2 running 1`},
		{"two engines that are one replica in the spans", []named{
			{"t.json", spansOf("r1", "a")},
			{"a.log", received(0, "a") + stats(1, 0, 1) + stats(1, 1, 2)},
		}, `
llm/r1 a ok 1s
! log-and-span a.log
! engine-unmatched a.log
/engine 0 running 1
/engine 1 running 2`},
		{"two engines, by their numbers", []named{
			{"t.json", spansOf("dp-0", "a") + spansOf("dp-1", "b")},
			{"a.log", slots(-9, 6) + received(0, "a") + received(0, "b") + stats(1, 0, 1) + stats(1, 1, 2)},
		}, `
llm/dp-0 a ok 1s
llm/dp-1 b ok 1s
! log-and-span a.log
llm/dp-0 slots 6
llm/dp-1 slots 6
llm/dp-0 running 1
llm/dp-1 running 2`},
		{"two servers that are one replica in the spans", []named{
			{"t.json", spansOf("", "a") + spansOf("", "b")},
			{"a.log", received(0, "a") + stats(1, 0, 1)},
			{"b.log", received(0, "b") + stats(1, 0, 2)},
		}, `
llm/ a ok 1s
llm/ b ok 1s
! log-and-span a.log
! log-and-span b.log
! engine-unmatched a.log
! engine-unmatched b.log
/engine 0 running 1
/engine 0 running 2`},
		{"two servers' logs", []named{
			{"x/a.log", received(0, "a") + stats(1, 0, 1)},
			{"x/b.log", received(0, "b") + stats(1, 0, 2)},
		}, `
! replica-inferred x/a.log
! replica-inferred x/b.log
/a engine 0 running 1
/b engine 0 running 2
/a? a incomplete -
/b? b incomplete -`},
		{"the same names in two folders", []named{
			{"x/vllm.log", received(0, "a")},
			{"y/vllm.log", received(0, "b")},
		}, `
! replica-inferred x/vllm.log
! replica-inferred y/vllm.log
/x/vllm.log? a incomplete -
/y/vllm.log? b incomplete -`},
		{"a rotated log is one server's, and its requests go on", []named{
			{"a.log", aborted(7, "a") + stats(8, 0, 2)},
			{"a.log.1", received(0, "a") + stats(1, 0, 1)},
		}, `
/engine 0 running 2
/engine 0 running 1
/ a aborted 7s`},
		{"names as of rotation, of the same time", []named{
			{"a.log.2", received(0, "a") + stats(9, 0, 1)},
			{"a.log.1", received(1, "b") + stats(8, 0, 2)},
		}, `
! replica-inferred a.log.1
! replica-inferred a.log.2
/a.log.2 engine 0 running 1
/a.log.1 engine 0 running 2
/a.log.2? a incomplete -
/a.log.1? b incomplete -`},
		{"the kubelet's names", []named{
			{"pods/p1/vllm/0.log", received(0, "a")},
			{"pods/p1/vllm/1.log", aborted(9, "a")},
			{"pods/p2/vllm/0.log", received(0, "b")},
		}, `
! replica-inferred pods/p1/vllm/0.log
! replica-inferred pods/p2/vllm/0.log
/pods/p1/vllm? a aborted 9s
/pods/p2/vllm? b incomplete -`},
		{"a log of another zone", []named{
			{"t.json", spansOf("r1", "a")},
			{"a.log", received(7200, "a")},
		}, `
llm/r1 a ok 1s
! log-and-span a.log
! log-clock a.log`},
		{"an id used twice, with a span for one", []named{
			{"t.json", spansOf("r1", "a")},
			{"a.log", received(-50, "a") + received(0, "a")},
		}, `
llm/r1 a ok 1s
! log-and-span a.log
llm/r1 a incomplete -
! request-id-reused a.log`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := "\n" + where(t, c.inputs...); got != c.want {
				t.Errorf("got%s\nwant%s", got, c.want)
			}
		})
	}
}

// Beyond the bounds logs are handed on as they come, and that is said where
// there are spans.
func TestLogsBeyondBounds(t *testing.T) {
	defer func(n int) { maxLogged = n }(maxLogged)
	maxLogged = 2
	log := named{"a.log", received(0, "a") + received(0, "b") + received(0, "c") + received(0, "d") + stats(1, 0, 1)}
	want := `
/ a incomplete -
/ b incomplete -
/ c incomplete -
/engine 0 running 1
/ d incomplete -
llm/r1 a ok 1s
! too-many-open `
	got := "\n" + where(t, log, named{"t.json", spansOf("r1", "a")})
	if !strings.HasSuffix(got, "llm/r1 a ok 1s\n! too-many-open ") || strings.Count(got, " incomplete") != 4 {
		t.Errorf("got%s\nwant%s", got, want)
	}
	got = where(t, named{"b.log", stats(1, 0, 1)}, log)
	if strings.Contains(got, string(trace.TooManyOpen)) || strings.Count(got, " incomplete") != 4 || strings.Count(got, "running") != 2 {
		t.Errorf("got\n%s", got)
	}
	many := spansOf("r1", "a") + spansOf("r1", "b") + spansOf("r1", "c")
	if got := where(t, named{"t.json", many}, named{"b.log", received(0, "c")}); !strings.Contains(got, string(trace.TooManyOpen)) {
		t.Errorf("got\n%s", got)
	}
}

func TestStem(t *testing.T) {
	for file, want := range map[string]string{
		"a.log": "a.log", "a.log.1": "a.log", "x/a.log.12.gz": "x/a.log", "a.log-20261201.gz": "a.log", "a.log-20261201": "a.log",
		"a-2026-12-01.log": "a-2026-12-01.log", "a.log.2026-12-01": "a.log", "id-json.log.3": "id-json.log",
		"p/c/0.log": "p/c/", "p/c/0.log.20261201-120000.gz": "p/c/", "7.log": "7.log", "vllm-1.log": "vllm-1.log", "1": "1", "": "",
	} {
		if got := stem(file); got != want {
			t.Errorf("%q: %q, want %q", file, got, want)
		}
	}
}

// FuzzServers reads two inputs together: the same bytes give the same requests,
// each of which keeps its rules, and nothing comes of a third name.
func FuzzServers(f *testing.F) {
	log := slots(-9, 6) + received(0, "a") + received(0, "b") + stats(1, 0, 1) + stats(1, 1, 2) + aborted(2, "b")
	f.Add([]byte(log), []byte(spansOf("r1", "a")+spansOf("r2", "b")))
	f.Add([]byte(log), []byte("r1  | "+log))
	f.Add([]byte(received(0, "a")), []byte(aborted(9, "a")))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a)+len(b) > 1<<16 {
			return
		}
		for _, names := range [][2]string{{"a.log", "b.log"}, {"a.log.1", "a.log"}} {
			first := where(t, named{names[0], string(a)}, named{names[1], string(b)})
			if second := where(t, named{names[0], string(a)}, named{names[1], string(b)}); first != second {
				t.Fatalf("two runs differ:\n%s\n%s", first, second)
			}
		}
	})
}
