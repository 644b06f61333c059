//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/traceview/traceview/ingest"
	"github.com/traceview/traceview/trace"
)

// recording is a traceview record of its own process.
type recording struct {
	cmd        *exec.Cmd
	grpc, http string
	folder     string
	stderr     words
	ended      chan struct{} // closed when stderr is
}

func record(t *testing.T, args ...string) *recording {
	t.Helper()
	exe, err := exec.LookPath("traceview") // which testscript made
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{folder: t.TempDir(), ended: make(chan struct{})}
	r.cmd = exec.Command(exe, append([]string{"record", "--otlp-grpc", "127.0.0.1:0", "--otlp-http", "127.0.0.1:0", "-o", r.folder}, args...)...)
	pipe, err := r.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.cmd.Process.Kill() })
	up := make(chan struct{})
	go func() {
		defer close(r.ended)
		lines := bufio.NewScanner(pipe)
		for lines.Scan() {
			fmt.Fprintln(&r.stderr, lines.Text())
			if strings.Contains(lines.Text(), "OTLP/HTTP at") {
				close(up)
			}
		}
	}()
	select {
	case <-up:
	case <-r.ended:
		t.Fatalf("it ended: %s", r.stderr.String())
	}
	r.grpc = regexp.MustCompile(`OTLP/gRPC at http://(\S+)`).FindStringSubmatch(r.stderr.String())[1]
	r.http = regexp.MustCompile(`OTLP/HTTP at http://(\S+)`).FindStringSubmatch(r.stderr.String())[1]
	return r
}

// wait waits for its end and returns its status; −1: it was killed.
func (r *recording) wait() int {
	<-r.ended
	r.cmd.Wait()
	return r.cmd.ProcessState.ExitCode()
}

// exporter is one of the Go SDK, which does not send again.
func (r *recording) exporter(t *testing.T, i int) *otlptrace.Exporter {
	t.Helper()
	var e *otlptrace.Exporter
	var err error
	if i%2 == 0 {
		e, err = otlptracegrpc.New(t.Context(), otlptracegrpc.WithInsecure(), otlptracegrpc.WithEndpoint(r.grpc), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	} else {
		e, err = otlptracehttp.New(t.Context(), otlptracehttp.WithInsecure(), otlptracehttp.WithEndpoint(r.http), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// batch makes n vLLM-like spans with ids from first on.
func batch(first, n int) []sdktrace.ReadOnlySpan {
	var list tracetest.SpanStubs
	for i := first; i < first+n; i++ {
		tid := oteltrace.TraceID{1, 12: byte(i >> 24), 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
		start := time.Unix(1_700_000_000, int64(i)*1_000_003)
		list = append(list, tracetest.SpanStub{
			Name: "llm_request", StartTime: start, EndTime: start.Add(500_000_007),
			SpanContext: oteltrace.NewSpanContext(oteltrace.SpanContextConfig{TraceID: tid, SpanID: oteltrace.SpanID{1, 7: 1}}),
			Attributes: []attribute.KeyValue{
				attribute.String("gen_ai.request.id", fmt.Sprintf("r%d", i)),
				attribute.Float64("gen_ai.latency.time_in_queue", 0.125),
				attribute.Float64("gen_ai.latency.time_to_first_token", 0.25),
				attribute.Float64("gen_ai.latency.time_in_model_prefill", 0.125),
			},
			InstrumentationScope: instrumentation.Scope{Name: "vllm.llm_engine"},
		})
	}
	return list.Snapshots()
}

// recorded reads a folder as report does: how often each request's id is there.
func recorded(t *testing.T, folder string) (ids map[string]int, issues []string) {
	t.Helper()
	inputs, err := ingest.Open([]string{folder}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ids = map[string]int{}
	for r, err := range ingest.Requests(context.Background(), inputs, ingest.Options{}) {
		var is *trace.Issue
		switch {
		case errors.As(err, &is):
			issues = append(issues, string(is.Code))
		case err != nil:
			t.Fatal(err)
		default:
			ids[r.ID]++
			for _, is := range r.Issues {
				issues = append(issues, string(is.Code))
			}
		}
	}
	return ids, issues
}

// load sends batches from six clients until each meets an error, and returns
// the ids of acknowledged requests, and of those whose fate no answer told.
// underway is called once so many batches are acknowledged.
func load(t *testing.T, r *recording, batches int, underway func()) (acknowledged, open map[string]int) {
	acknowledged, open = map[string]int{}, map[string]int{}
	var (
		clients sync.WaitGroup
		mu      sync.Mutex
		next, n int
	)
	for c := range 6 {
		e := r.exporter(t, c)
		defer e.Shutdown(context.Background())
		clients.Go(func() {
			for {
				mu.Lock()
				first := next
				next += 3
				mu.Unlock()
				err := e.ExportSpans(context.Background(), batch(first, 3))
				mu.Lock()
				into := acknowledged
				if err != nil {
					into = open
				}
				for i := range 3 {
					into[fmt.Sprintf("r%d", first+i)]++
				}
				if n++; n == batches {
					underway()
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	clients.Wait()
	return acknowledged, open
}

// Interrupted under load, the recorder answers what is in flight and ends with
// status 0; what it acknowledged is what its files hold, each request once.
func TestRecordInterrupted(t *testing.T) {
	for _, args := range [][]string{{"--rotate-size", "50KB"}, {"--format", "proto", "--compress", "zstd"}} {
		r := record(t, args...)
		acknowledged, open := load(t, r, 300, func() { r.cmd.Process.Signal(os.Interrupt) })
		if s := r.wait(); s != 0 {
			t.Fatalf("status %d: %s", s, r.stderr.String())
		}
		ids, issues := recorded(t, r.folder)
		for id := range ids {
			if open[id] > 0 { // written, and the client was gone
				t.Errorf("%s is written and not acknowledged", id)
			}
		}
		if !maps.Equal(ids, acknowledged) || len(issues) > 0 {
			t.Errorf("%d requests in the files, %d acknowledged; issues %v", len(ids), len(acknowledged), issues)
		}
		if want := fmt.Sprintf("%s spans in ", strings.TrimSuffix(counted(int64(len(ids)), "", ""), " ")); !strings.Contains(r.stderr.String(), want) || !strings.Contains(r.stderr.String(), "see: traceview report "+r.folder) {
			t.Errorf("it said %s, want %s", r.stderr.String(), want)
		}
	}
}

// Killed under load, it leaves files that hold all that it acknowledged.
func TestRecordKilled(t *testing.T) {
	for _, args := range [][]string{{"--rotate-size", "50KB"}, {"--format", "proto", "--compress", "gzip"}, {"--format", "proto"}} {
		r := record(t, args...)
		acknowledged, open := load(t, r, 300, func() { r.cmd.Process.Kill() })
		r.wait()
		ids, issues := recorded(t, r.folder)
		for id := range acknowledged {
			if ids[id] != 1 {
				t.Errorf("%v: %s was acknowledged and is %d times in the files", args, id, ids[id])
			}
		}
		for id := range ids {
			if acknowledged[id]+open[id] == 0 {
				t.Errorf("%v: %s was never sent", args, id)
			}
		}
		if i := slices.IndexFunc(issues, func(c string) bool { return c != string(trace.Truncated) }); i >= 0 {
			t.Errorf("%v: issues %v", args, issues)
		}
	}
}

// A file that was torn in the midst of a record counts up to there, and the
// rest as truncated.
func TestRecordTorn(t *testing.T) {
	for _, args := range [][]string{{}, {"--format", "proto"}, {"--compress", "zstd"}, {"--compress", "gzip", "--format", "proto"}} {
		r := record(t, append(args, "--max-spans", "9")...)
		e := r.exporter(t, 0)
		for i := range 3 {
			if err := e.ExportSpans(t.Context(), batch(3*i, 3)); err != nil {
				t.Fatal(err)
			}
		}
		e.Shutdown(t.Context())
		if s := r.wait(); s != 0 {
			t.Fatalf("status %d: %s", s, r.stderr.String())
		}
		files, err := filepath.Glob(filepath.Join(r.folder, "*"))
		if err != nil || len(files) != 1 {
			t.Fatal(files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(files[0], b[:len(b)-20], 0o666); err != nil {
			t.Fatal(err)
		}
		ids, issues := recorded(t, r.folder)
		if len(ids) < 6 || !slices.Contains(issues, string(trace.Truncated)) {
			t.Errorf("%v: %d requests, issues %v", args, len(ids), issues)
		}
	}
}

// An interrupt waits for a request that is on its way; a second one does not.
func TestRecordInterruptedTwice(t *testing.T) {
	for _, second := range []bool{false, true} {
		r := record(t)
		body := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"}]}]}]}`
		c, err := net.Dial("tcp", r.http)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// The answer to the head says that the request is being received.
		fmt.Fprintf(c, "POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", len(body))
		answers := bufio.NewReader(c)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatal(line, err)
		}
		r.cmd.Process.Signal(os.Interrupt)
		for !strings.Contains(r.stderr.String(), "waiting up to") {
			select {
			case <-r.ended:
				t.Fatalf("it ended without the request: %s", r.stderr.String())
			case <-time.After(10 * time.Millisecond):
			}
		}
		if second {
			r.cmd.Process.Signal(os.Interrupt)
			if s := r.wait(); s != -1 {
				t.Errorf("status %d after the second interrupt: %s", s, r.stderr.String())
			}
			continue
		}
		fmt.Fprint(c, body)
		rest, err := io.ReadAll(answers)
		if err != nil || !strings.Contains(string(rest), "200 OK") {
			t.Errorf("the answer is %q, %v", rest, err)
		}
		if s := r.wait(); s != 0 || !strings.Contains(r.stderr.String(), "1 span in 1 file") {
			t.Errorf("status %d: %s", s, r.stderr.String())
		}
	}
}

// A port that is taken is said with what helps, and nothing is left listening.
func TestRecordPortTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var stderr words
	folder := filepath.Join(t.TempDir(), "out")
	if s := run(t.Context(), []string{"record", "-o", folder, "--otlp-grpc", ":0", "--otlp-http", l.Addr().String()}, nil, io.Discard, &stderr); s != 1 || !strings.Contains(stderr.String(), "--otlp-http: ") {
		t.Errorf("status %d: %s", s, stderr.String())
	}
	if _, err := os.Stat(folder); err == nil {
		t.Error("the folder was made")
	}
}

// A run whose disk fills up says so, tells clients to come again, and ends with
// status 1; that is the same for a folder that goes away.
func TestRecordWriteFails(t *testing.T) {
	r := record(t)
	if err := os.RemoveAll(r.folder); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"x"}]}]}]}`)
	res, err := http.Post("http://"+r.http+"/v1/traces", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 503 || !strings.Contains(string(answer), "cannot write") {
		t.Errorf("%s: %s, %v", res.Status, answer, err)
	}
	r.cmd.Process.Signal(os.Interrupt)
	if s := r.wait(); s != 1 || !strings.Contains(r.stderr.String(), "clients are told to send again") || !strings.Contains(r.stderr.String(), "1 request could not be written") {
		t.Errorf("status %d: %s", s, r.stderr.String())
	}
}
