package ingest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// inMemory is an input of these bytes.
func inMemory(name string, data []byte) Input {
	return Input{Name: name, Size: int64(len(data)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// lines reads inputs and describes each pair of the sequence by a line:
// "id outcome e2e phases | issues", or "! code" for an issue that stands alone.
func lines(t testing.TB, opts Options, inputs ...Input) []string {
	t.Helper()
	var out []string
	for r, err := range Requests(t.Context(), inputs, opts) {
		var is *trace.Issue
		switch {
		case errors.As(err, &is):
			out = append(out, "! "+string(is.Code))
		case err != nil:
			t.Fatal(err)
		default:
			out = append(out, line(t, r))
		}
	}
	return out
}

func line(t testing.TB, r *trace.Request) string {
	if err := r.Check(); err != nil {
		t.Errorf("%s: %v", r.ID, err)
	}
	var b strings.Builder
	e2e := "-"
	if d, ok := r.E2E().Get(); ok {
		e2e = d.String()
	}
	fmt.Fprintf(&b, "%s %v %s", r.ID, r.Outcome, e2e)
	for _, p := range r.Breakdown().Parts {
		fmt.Fprintf(&b, " %v=%v", p.Phase, p.Dur)
	}
	for i, is := range r.Issues {
		if i == 0 {
			b.WriteString(" |")
		}
		b.WriteString(" " + string(is.Code))
	}
	return b.String()
}

func compare(t *testing.T, got []string, want string) {
	t.Helper()
	if g := strings.Join(got, "\n"); g != want {
		t.Errorf("got\n%s\nwant\n%s", g, want)
	}
}

// TestCases reads inputs that users reported, as whole files. What the
// requests are in full is tested where they are made, in engine and vllmlog.
func TestCases(t *testing.T) {
	const zone = "\n! zone-assumed"
	tests := map[string]string{
		"aborted-span-counted-success/input.json": "good ok 2s\nclient-gone aborted 100ms\nerr-string-code error 200ms",
		"duplicate-request-id/input.json":         "id ok 2s\nid ok 3s\n! request-id-reused",
		"duplicate-request-id/input.log": "id incomplete - | ambiguous-end lost-at-restart\n" +
			"id incomplete - | request-id-reused ambiguous-end lost-at-restart\nid aborted 2s" + zone,
		"empty-and-zero-profile/input.empty.json":       "! no-requests",
		"empty-and-zero-profile/input.zero-length.json": "! empty-input",
		"empty-and-zero-profile/input.blank.log":        "! empty-input",
		"empty-and-zero-profile/input.all-zero.json":    "z ok 0s",
		"end-before-start/input.json": "ok ok 2s\nskewed incomplete - | end-before-start\n" +
			"unfinished incomplete - | missing-end",
		"file-exporter-leftovers/input.truncated.json":      "! truncated\ng1 ok 1s\ng2 ok 1.5s",
		"file-exporter-leftovers/input.two-members.json.gz": "g1 ok 1s\ng2 ok 1.5s",
		"file-exporter-leftovers/input.gz-cut.json.gz":      "! truncated\ng1 ok 1s",
		"file-exporter-leftovers/input.length-prefixed.bin": "g1 ok 1s\ng2 ok 1.5s",
		"file-exporter-leftovers/input.javaagent.log":       "g1 ok 1s",
		"milestones-never-reached/input.json": "done ok 3s queueing=500ms prefill=500ms decode=2s\n" +
			"never-scheduled aborted 1s | negative-duration negative-duration\n" +
			"no-first-token aborted 4s queueing=250ms | negative-duration phase-too-long",
		"ns-precision-and-number-types/input.json": "n2 ok 129ns | number-as-text phase-too-long engine-ambiguous\n" +
			"n3 ok 1s | bad-number bad-number engine-ambiguous\nn1 ok 2ns | engine-ambiguous",
		"otlp-without-ids/input.json": "w1 ok 300ms queueing=50µs prefill=100ms decode=150ms arrival|completion=49.95ms | missing-ids\n" +
			"w2 ok 300ms queueing=50µs prefill=100ms decode=150ms arrival|completion=49.95ms | missing-ids",
		"overlap-counted-beyond-wall/input.json": "o1 ok 10s queueing=1s prefill=1s decode=8s\no2 ok 10s queueing=1s prefill=1s decode=8s\n" +
			"o3 ok 10s queueing=1s prefill=1s decode=8s\no4 ok 10s queueing=1s prefill=1s decode=8s\n" +
			"too-long ok 4s queueing=500ms prefill=500ms | phase-too-long",
		"percentile-off-by-one/input.json": "p01 ok 100ms\np02 ok 200ms\np03 ok 300ms\np04 ok 400ms\np05 ok 500ms\n" +
			"p06 ok 600ms\np07 ok 700ms\np08 ok 800ms\np09 ok 900ms\np10 ok 1s",
		"queue-negative-after-requeue/input.json": "session ok 1m0s arrival=1s queueing=1.2s prefill=500ms decode=57.3s | negative-duration\n" +
			"retracted ok 10s decode=9s | negative-duration",
		"same-span-exported-twice/input.json": "! duplicate-span\n! conflicting-span\n! duplicate-span\nd1 ok 1s\nd2 ok 2s",
		// The gateway's 3 s are the request; the engine's 2.5 s lie inside.
		"skew-shift-must-move-both-ends/input.json": "skew ok 3s queueing=500ms prefill=400ms decode=1.6s arrival|completion=500ms | clock-skew",
		"trace-with-missing-root/input.json": "child-a ok 2s | missing-parent\nchild-b ok 1s | missing-parent\nself-parent ok 1s | self-parent\n" +
			"loop-1 ok 1s | parent-cycle\nloop-2 ok 600ms | parent-cycle",
		"compose-prefix-ansi/input.log":          "chatcmpl-c1 aborted 11s" + zone + "\n! foreign-line",
		"crlf-log-injection-batch-ids/input.log": "cmpl-b1-1 aborted 3s\ncmpl-b1-0 incomplete -\ncmpl-b2-0 incomplete -" + zone,
		"engine-id-suffix/input.log":             "cmpl-99-0 aborted 8s\ncmpl-99-1 aborted 8s\nchatcmpl-11aa22bb33cc44dd incomplete -" + zone,
		"json-lines-log/input.jsonl":             "chatcmpl-j1 aborted 1.25s\nchatcmpl-j9 aborted - | no-arrival" + zone + "\n! foreign-line",
		"mixed-resolution/input.log":             "chatcmpl-mr aborted 5.05s" + zone + "\n! foreign-line",
		"stats-only-two-engines/input.log":       strings.TrimPrefix(zone, "\n") + "\n! request-logging-off",
		"all-requests-timed-out/input.jsonl":     "f0 error 30s\nf1 error 30s\nf2 error 30s",
		// Latencies count from the sending; that it was late is said, and by how much.
		"coordinated-omission/input.jsonl":          "c0 ok 500ms\nc1 ok 500ms\nc2 ok 500ms\nc3 ok 500ms\nc4 ok 500ms\n! sent-late",
		"error-record-zero-span-warmup/input.jsonl": "e1 error -\ne2 ok 1s\n! warm-up",
		"failed-requests-poison-stats/input.jsonl":  "r0 ok 2s\nr1 ok 2s\nr2 ok 2s\nr3 error 1m0s\nr4 error - | no-arrival",
		"json-duplicate-key/input.jsonl":            "dk ok 400ms | duplicate-key", // the time to the first token is not known
		"two-clocks/input.jsonl": "k0 ok 2.75s queueing=500ms prefill=250ms decode=2s\n" +
			"k1 ok 2.75s queueing=2.25s prefill=500ms",
		// The request without a token and without an error is none that was served.
		"zero-token-success/input.json":                       " ok 180ms\n error -\n ok 120ms\n ok 350ms",
		"coordinated-omission-other-names/unknown-plan.jsonl": "c0 ok 500ms\nc1 ok 500ms\n! unread-field",
		"coordinated-omission-other-names/latency.jsonl":      "c0 ok 500ms\nc1 ok 500ms\n! sent-late",
		"failed-requests-other-marks/success.jsonl":           "r0 ok 2s\nr1 ok 2s\nr3 error 1m0s\nr4 error - | no-arrival",
		"failed-requests-other-marks/status.jsonl": "r0 ok 2s\nr1 error 2s\nr3 error 1m0s | negative-duration\n" +
			"r4 incomplete - | no-arrival missing-end",
		"failed-requests-other-marks/first.jsonl": "r4 error - | no-arrival\nr0 ok 2s\nr1 ok 2s | phase-too-long\n" +
			"r2 incomplete - | end-before-start missing-end\nr5 error - | time-out-of-range",
		"failed-requests-other-marks/units.jsonl": "r0 ok 2s\nr1 ok 2ms | phase-too-long\nr2 ok 2s\n! wrong-unit",
		"json-duplicate-key-other-keys/input.jsonl": "r0 ok - | duplicate-key no-arrival\nr1 ok 2s | duplicate-key\n" +
			" incomplete - | duplicate-key duplicate-key missing-end",
		"json-duplicate-key-other-keys/attribute.json": "d ok 1s queueing=100ms prefill=100ms decode=100ms arrival|completion=700ms | duplicate-key",
		"json-duplicate-key-other-keys/jaeger.json":    " ok 5s | duplicate-key engine-ambiguous",
		"two-clocks-other-sides/ray-data.jsonl":        "k0 ok - prefill=250ms decode=2s | no-arrival",
		"two-clocks-other-sides/own.jsonl":             "k0 ok 3s queueing=500ms prefill=250ms decode=2s arrival|completion=250ms",
		"two-clocks-other-sides/all-monotonic.jsonl":   "k3 ok 1.75s queueing=250ms prefill=500ms decode=1s",
		"zero-token-success-other-tools/aiperf.jsonl":  "z error 400ms\nz2 ok 400ms",
		"zero-token-success-other-tools/own.jsonl":     "r0 error 2s\nr1 ok 2s",
		"wrapped-by-others/spans.docker.log":           "g1 ok 1s\ng2 ok 1.5s",
		"wrapped-by-others/spans.loki.jsonl":           "g1 ok 1s\ng2 ok 1.5s",
		"wrapped-by-others/tgi.docker.log":             " ok 2.513908s arrival=187.4µs queueing=431.2ms prefill|decode=2.081302s",
		"wrapped-by-others/own.k8s.log":                "r1 ok 1.903s",
		"aborted-span-other-marks/input.json":          "x1 aborted 100ms\nx2 error 100ms\nx3 error 100ms\nx4 aborted 100ms",
		"skew-drifting/input.jsonl": "s1 ok 3s queueing=500ms prefill=400ms decode=1.6s arrival|completion=500ms | clock-skew\n" +
			"s2 ok 2.5s queueing=500ms prefill=400ms decode=1.6s | clock-skew\ns3 ok 2.5s queueing=500ms prefill=400ms decode=1.6s | clock-skew",
		"own-date-format/whole-date.log":       "a aborted 1h0m4s" + zone,
		"own-date-format/fraction.log":         "a aborted 2.377s" + zone,
		"year-rollover-and-leap-day/input.log": "cmpl-ny1-0 aborted 9s\ncmpl-ny2-0 incomplete - | impossible-date" + zone,
	}
	const dir = "testdata/cases"
	files := 0
	inputs, err := Open([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range inputs {
		name := filepath.ToSlash(strings.TrimPrefix(in.Name, filepath.FromSlash(dir)+string(filepath.Separator)))
		if strings.HasSuffix(name, "/case.md") { // why it is as it is
			continue
		}
		want, ok := tests[name]
		if !ok {
			t.Errorf("%s: nothing is expected of it", name)
			continue
		}
		files++
		t.Run(name, func(t *testing.T) {
			compare(t, lines(t, Options{Year: 2026}, in), want)
		})
	}
	if files != len(tests) {
		t.Errorf("%d of %d files are there", files, len(tests))
	}
}

// TestExactTimes holds times that float64 cannot.
func TestExactTimes(t *testing.T) {
	in, err := Open([]string{"testdata/cases/ns-precision-and-number-types/input.json"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]trace.Time{"n1": 1760000000000000001, "n2": 1760000000000000001, "n3": 1760000000000000000}
	for r, err := range Requests(t.Context(), in, Options{}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Arrival.At != want[r.ID] {
			t.Errorf("%s arrived at %d, want %d", r.ID, r.Arrival.At, want[r.ID])
		}
	}
}

// spans are n requests' spans of vLLM as V1 writes them: request i takes 1 s
// and i ns. The data is made up.
func spans(n int) []*trace.Span {
	res := &trace.Resource{Attrs: []trace.Attr{{Key: "service.name", Value: trace.StringValue("vllm")}}}
	var list []*trace.Span
	for i := range n {
		start := trace.Time(1_760_000_000_000_000_000 + int64(i)*1_000_000)
		list = append(list, &trace.Span{
			TraceID: fmt.Sprintf("%032x", i+1), SpanID: fmt.Sprintf("%016x", i+1),
			Name: "llm_request", Kind: trace.KindServer, Scope: "vllm.llm_engine", Resource: res,
			Start: trace.Some(start), End: trace.Some(start.Add(time.Second + time.Duration(i))),
			Attrs: []trace.Attr{
				{Key: "gen_ai.request.id", Value: trace.StringValue(fmt.Sprintf("chatcmpl-%06d", i))},
				{Key: "gen_ai.request.max_tokens", Value: trace.IntValue(256)},
				{Key: "gen_ai.request.temperature", Value: trace.FloatValue(0.7)},
				{Key: "gen_ai.request.top_p", Value: trace.FloatValue(0.95)},
				{Key: "gen_ai.request.n", Value: trace.IntValue(1)},
				{Key: "gen_ai.usage.prompt_tokens", Value: trace.IntValue(int64(100 + i%900))},
				{Key: "gen_ai.usage.completion_tokens", Value: trace.IntValue(int64(1 + i%200))},
				{Key: "gen_ai.latency.time_in_queue", Value: trace.FloatValue(0.25)},
				{Key: "gen_ai.latency.time_to_first_token", Value: trace.FloatValue(0.375)},
				{Key: "gen_ai.latency.time_in_model_prefill", Value: trace.FloatValue(0.125)},
				{Key: "gen_ai.latency.time_in_model_decode", Value: trace.FloatValue(0.5)},
				{Key: "gen_ai.latency.time_in_model_inference", Value: trace.FloatValue(0.625)},
				{Key: "gen_ai.latency.e2e", Value: trace.FloatValue(0.99)},
			},
		})
	}
	return list
}

func encode(t testing.TB, n int, e sim.Encoding) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := sim.Encode(&b, spans(n), e); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestContainers reads the same spans out of everything that can hold them.
func TestContainers(t *testing.T) {
	var want string
	for _, form := range sim.Forms() {
		for _, c := range sim.Compressions() {
			data := encode(t, 200, sim.Encoding{Form: form, Compression: c})
			got := strings.Join(lines(t, Options{}, inMemory("x", data)), "\n")
			if want == "" {
				want = got
				if n := strings.Count(want, "ok 1.0000"); n != 199 || strings.Contains(want, "!") {
					t.Fatalf("%d requests as they should be:\n%s", n, want)
				}
			}
			if got != want {
				t.Errorf("%s %s differs: %.300s", form, c, got)
			}
		}
	}
	double := gzipped(t, zstded(t, encode(t, 200, sim.Encoding{Form: sim.Proto})))
	if got := strings.Join(lines(t, Options{}, inMemory("x", double)), "\n"); got != want {
		t.Errorf("zstd in gzip differs: %.300s", got)
	}
}

// TestWrappedConsole reads what an SDK printed out of what others made of it.
func TestWrappedConsole(t *testing.T) {
	data := encode(t, 20, sim.Encoding{Form: sim.PythonConsole})
	want := lines(t, Options{}, inMemory("x", data))
	if len(want) != 20 {
		t.Fatal(want)
	}
	for _, prefix := range []string{"(ProxyActor pid=1) ", "2026-08-29T10:40:00.123456789Z stdout F ", "[pod/a/b] ", "vllm-1  | "} {
		wrapped := prefix + strings.ReplaceAll(strings.TrimSuffix(string(data), "\n"), "\n", "\n"+prefix) + "\n"
		if got := lines(t, Options{}, inMemory("x", []byte(wrapped))); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s differs: %.300q", prefix, got)
		}
		for r := range Requests(t.Context(), []Input{inMemory("x", []byte(wrapped))}, Options{}) {
			if pos := r.Source.Pos; pos.Offset != 0 || pos.Line < 1 || r.Source.Format != "otel-console-python" {
				t.Errorf("%s: %+v", prefix, r.Source)
			}
		}
	}
}

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zstded(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(data, nil)
}

func framed(messages ...[]byte) []byte {
	var b []byte
	for _, m := range messages {
		b = binary.BigEndian.AppendUint32(b, uint32(len(m)))
		b = append(b, m...)
	}
	return b
}

// doc is a document with one request of 1 s.
func doc(id string) string {
	return `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.llm_engine"},"spans":[{"name":"llm_request","traceId":"` +
		fmt.Sprintf("%032x", []byte(id)) + `","spanId":"0000000000000001","startTimeUnixNano":"1760000000000000000","endTimeUnixNano":"1760000001000000000",` +
		`"attributes":[{"key":"gen_ai.request.id","value":{"stringValue":"` + id + `"}}]}]}]}]}`
}

func TestBrokenInput(t *testing.T) {
	a, b := []byte(doc("a")), []byte(doc("b"))
	both := doc("a") + "\n" + doc("b") + "\n"
	noise := make([]byte, 40000) // that no compression shortens
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = 'a' + byte(x>>24)%26
	}
	long := []byte(doc("a") + "\n" + `{"x":"` + string(noise) + `"}` + "\n" + doc("b"))
	flip := func(b []byte, i int) []byte {
		b = bytes.Clone(b)
		b[i] ^= 0xff
		return b
	}
	gz, zs := gzipped(t, long), zstded(t, long)
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"text", []byte("hello\nworld\n"), "! unknown-format"},
		{"binary", []byte("\x01\x02\x03\x04\x05\x06\x07\x08"), "! unknown-format"},
		{"other JSON", []byte(`{"hello":1}`), "! unknown-format"},
		{"metrics only", []byte(`{"resourceMetrics":[{}]}`), "! no-requests"},
		{"blanks", []byte(" \n\r\n\t"), "! empty-input"},
		{"gzip of nothing", gzipped(t, nil), "! empty-input"},
		{"gzip three times", gzipped(t, gzipped(t, gzipped(t, a))), "! unknown-format"},
		{"gzip cut", gz[:len(gz)-100], "! truncated\na ok 1s"},
		{"gzip cut in its header", gz[:5], "! truncated"},
		{"gzip damaged", flip(gz, len(gz)-5), "! bad-compression\na ok 1s\nb ok 1s"}, // its checksum
		{"gzip, then rubbish", append(bytes.Clone(gzipped(t, []byte(both))), "rubbish rubbish"...), "! bad-compression\na ok 1s\nb ok 1s"},
		{"zstd cut", zs[:len(zs)-4], "! truncated"},
		{"zstd damaged", flip(zs, len(zs)-1), "! bad-compression"}, // its checksum: the block is lost
		{"frames", framed(a, b), "a ok 1s\nb ok 1s"},
		{"frames, gzip", framed(gzipped(t, a), gzipped(t, b)), "a ok 1s\nb ok 1s"},
		{"frames, one damaged", framed(gzipped(t, a), flip(gzipped(t, b), 30), gzipped(t, b)), "! bad-compression\na ok 1s\nb ok 1s"},
		{"frames, the last cut", framed(a, b)[:len(framed(a, b))-9], "! truncated\na ok 1s"},
		{"frames, cut in a length", append(framed(a, b), 0, 0), "! truncated\na ok 1s\nb ok 1s"},
		{"frames, zeros between", append(append(framed(a), make([]byte, 1000)...), framed(b)...), "! bad-frame\na ok 1s\nb ok 1s"},
		{"frames, a length too small", append(append([]byte{0, 0, 0, 9}, a...), framed(b)...), "! truncated\n! bad-frame\nb ok 1s"},
		{"frames, a length too large", append(append([]byte{0, 0, 9, 9}, a...), framed(b)...), "! bad-json\n! truncated\na ok 1s\nb ok 1s"},
		{"frames of metrics", framed([]byte(`{"resourceMetrics":[{}]}`)), "! no-requests"},
		{"one bad span", []byte(strings.Replace(both, `"name":"llm_request",`, `"name" "llm_request",`, 1)), "! bad-span\nb ok 1s"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			compare(t, lines(t, Options{}, inMemory("x", tt.in)), tt.want)
			// The run goes on with the next input.
			got := lines(t, Options{}, inMemory("x", tt.in), inMemory("y", []byte(doc("last"))))
			if !strings.Contains(strings.Join(got, "\n"), "last ok 1s") {
				t.Errorf("the next input is lost: %q", got)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	a, b := []byte(doc("a")), []byte(doc("b"))
	big := []byte(`{"resourceSpans":[],"x":"` + strings.Repeat("y", 1<<20) + `"}`)
	opts := Options{MaxRecord: 10000, MaxInput: 100000}
	tests := []struct {
		name string
		in   []byte
		want string
	}{
		{"a record too large", []byte(doc("a") + "\n" + string(big[:50000]) + "\"}\n" + doc("b")), "! record-too-large\na ok 1s\nb ok 1s"},
		{"a bomb", gzipped(t, bytes.Repeat([]byte(doc("a")+"\n"), 1000)), "! input-too-large"},
		{"a frame too large", framed(a, big[:20000], b), "! record-too-large\na ok 1s\nb ok 1s"},
		{"a frame of small records, too large", framed(a, bytes.Repeat(append(a, '\n'), 50), b), "! record-too-large\na ok 1s\nb ok 1s"},
		{"a frame that is a bomb", framed(a, gzipped(t, big[:20000]), b), "! record-too-large\na ok 1s\nb ok 1s"},
		{"frames that are bombs together", framed(bytes.Split(bytes.Repeat(append(gzipped(t, append(bytes.Repeat([]byte(" "), 9000), a...)), "\xff\xff\xff\xff"...), 20), []byte("\xff\xff\xff\xff"))...), "! input-too-large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, l := range lines(t, opts, inMemory("x", tt.in)) {
				if !strings.HasPrefix(l, "! duplicate-span") && (len(got) == 0 || tt.want != "! input-too-large") {
					got = append(got, l)
				}
			}
			compare(t, got, tt.want)
		})
	}
}

func TestRunIssues(t *testing.T) {
	// One trace over two inputs: the gateway's span is in the first.
	gateway := `{"resourceSpans":[{"scopeSpans":[{"spans":[{"name":"POST","kind":3,"traceId":"0000000000000000000000000000000a","spanId":"000000000000000a","startTimeUnixNano":"1759999999000000000","endTimeUnixNano":"1760000002000000000"}]}]}]}`
	inner := strings.NewReplacer(`"name":"llm_request"`, `"name":"llm_request","parentSpanId":"000000000000000a"`,
		fmt.Sprintf("%032x", []byte("a")), "0000000000000000000000000000000a").Replace(doc("a"))
	compare(t, lines(t, Options{}, inMemory("x", []byte(gateway)), inMemory("y", []byte(inner))), "a ok 3s arrival=1s completion=1s")

	// An id that three requests share is told of once.
	var three string
	for i := range 3 {
		three += strings.Replace(doc("a"), `"000000000000000`, fmt.Sprintf(`"00000000000000%d`, i), 1)
	}
	compare(t, lines(t, Options{}, inMemory("x", []byte(three))), "a ok 1s\na ok 1s\n! request-id-reused\na ok 1s")
}

// A router that passes no context on leaves two traces of a request: a prefill
// engine's for one token, and a decode engine's, in either order.
func TestHalvesApart(t *testing.T) {
	half := func(trace, service, limit, out string) string {
		return strings.NewReplacer(
			fmt.Sprintf("%032x", []byte("a")), strings.Repeat(trace, 32),
			`{"resourceSpans":[{`, `{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"`+service+`"}}]},`,
			`"attributes":[{"key":"gen_ai.request.id"`, `"attributes":[{"key":"gen_ai.request.max_tokens","value":{"intValue":`+limit+`}},{"key":"gen_ai.usage.completion_tokens","value":{"intValue":`+out+`}},{"key":"gen_ai.request.id"`,
		).Replace(doc("a"))
	}
	prefill, decode := inMemory("p", []byte(half("1", "prefill", "1", "1"))), inMemory("d", []byte(half("2", "decode", "100", "50")))
	for _, in := range [][]Input{{prefill, decode}, {decode, prefill}} {
		compare(t, lines(t, Options{}, in...), "a ok 1s\na ok 1s\n! half-request")
	}
	short := inMemory("s", []byte(half("2", "decode", "100", "1")))
	compare(t, lines(t, Options{}, prefill, short), "a ok 1s\na ok 1s")
}

func TestMixedClocks(t *testing.T) {
	var got []string
	run := &run{ids: map[uint64]seenID{}, yield: func(_ *trace.Request, err error) bool {
		got = append(got, err.Error())
		return true
	}}
	for _, c := range []trace.Clock{trace.ClockUnix, trace.ClockUnix, trace.ClockMonotonic, trace.ClockMonotonic, trace.ClockRelative} {
		run.watch(&trace.Request{Clock: c, Arrival: trace.At(1, trace.Measured)})
	}
	compare(t, got, "its clock is monotonic, that of others unix [mixed-clocks]")
}

// TestPositions holds where issues and requests are said to stand.
func TestPositions(t *testing.T) {
	bad := strings.Replace(doc("a"), `"name":"llm_request",`, `"name" 7,`, 1)
	at := int64(strings.Index(bad, `{"name" 7`))
	first := []byte(doc("b"))
	const path = "resourceSpans[0].scopeSpans[0].spans[0]"
	for _, tt := range []struct {
		name string
		in   []byte
		want trace.Pos
	}{
		{"line", []byte(doc("b") + "\n" + bad), trace.Pos{File: "x", Line: 2, Offset: int64(len(first)) + 1 + at, Path: path}},
		{"gzip", gzipped(t, []byte(doc("b")+"\n"+bad)), trace.Pos{File: "x", Line: 2, Offset: int64(len(first)) + 1 + at, Path: path}},
		{"frame", framed(first, []byte(bad)), trace.Pos{File: "x", Offset: int64(len(first)) + 8 + at, Path: "message[1]." + path}},
		{"gzip in a frame", framed(first, gzipped(t, []byte(bad))), trace.Pos{File: "x", Offset: int64(len(first)) + 8, Path: "message[1]." + path}},
	} {
		var got []trace.Pos
		for _, err := range Requests(t.Context(), []Input{inMemory("x", tt.in)}, Options{}) {
			var is *trace.Issue
			if errors.As(err, &is) {
				got = append(got, is.Pos)
			}
		}
		if len(got) != 1 || got[0] != tt.want {
			t.Errorf("%s: got %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

func TestReadErrors(t *testing.T) {
	bad := errors.New("the disk is gone")
	in := inMemory("x", nil)
	in.Open = func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(doc("a")), iotest.ErrReader(bad))), nil
	}
	var last error
	n := 0
	for _, err := range Requests(t.Context(), []Input{in, inMemory("y", []byte(doc("b")))}, Options{}) {
		n++
		last = err
	}
	if !errors.Is(last, bad) || !strings.Contains(last.Error(), "x") {
		t.Errorf("got %v after %d", last, n)
	}
	in.Open = func() (io.ReadCloser, error) { return nil, os.ErrPermission }
	for _, err := range Requests(t.Context(), []Input{in}, Options{}) {
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("got %v", err)
		}
	}
}

// closer notes that it was closed.
type closer struct {
	io.Reader
	closed *int
}

func (c closer) Close() error { *c.closed++; return nil }

func TestStopAndCancel(t *testing.T) {
	data := encode(t, 2000, sim.Encoding{})
	for _, gz := range []bool{false, true} {
		if gz {
			data = gzipped(t, data)
		}
		closed := 0
		in := inMemory("x", nil)
		in.Open = func() (io.ReadCloser, error) { return closer{bytes.NewReader(data), &closed}, nil }
		n := 0
		for range Requests(t.Context(), []Input{in}, Options{}) {
			if n++; n == 3 {
				break
			}
		}
		if n != 3 || closed != 1 {
			t.Errorf("%d pairs, closed %d times", n, closed)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		closed, n = 0, 0
		var last error
		for _, err := range Requests(ctx, []Input{in, in}, Options{}) {
			if n++; n == 3 {
				cancel()
			}
			last = err
		}
		if !errors.Is(last, context.Canceled) || n > 600 || closed != 1 {
			t.Errorf("%d pairs, the last with %v, closed %d times", n, last, closed)
		}
	}
}

func TestProgress(t *testing.T) {
	data := encode(t, 3000, sim.Encoding{})
	var calls []int64
	lines(t, Options{Progress: func(n int64) { calls = append(calls, n) }}, inMemory("x", data), inMemory("y", data))
	if len(calls) < 3 || calls[len(calls)-1] != 2*int64(len(data)) {
		t.Errorf("%d calls, the last with %d of %d", len(calls), calls[len(calls)-1], 2*len(data))
	}
	for i := 1; i < len(calls); i++ {
		if calls[i] <= calls[i-1] {
			t.Errorf("from %d to %d", calls[i-1], calls[i])
		}
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.json", "a/z.json", "a/.hidden", ".git/x", "a.json"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	inputs, err := Open([]string{dir, "-", filepath.Join(dir, "a", ".hidden")}, strings.NewReader("from stdin"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, in := range inputs {
		f, err := in.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, _ := io.ReadAll(f)
		f.Close()
		rel, _ := filepath.Rel(dir, in.Name)
		if in.Name == "-" {
			rel = "-"
		}
		got = append(got, fmt.Sprintf("%s %d %s", filepath.ToSlash(rel), in.Size, data))
	}
	compare(t, got, "a/z.json 8 a/z.json\na.json 6 a.json\nb.json 6 b.json\n- -1 from stdin\na/.hidden 9 a/.hidden")

	empty := t.TempDir()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{filepath.Join(dir, "none")}, "no such file or folder"},
		{[]string{empty}, "has no files"},
		{[]string{"-", "-"}, "only once"},
	} {
		if _, err := Open(tt.args, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.args, err, tt.want)
		}
	}
}

func TestTally(t *testing.T) {
	tally := NewTally()
	add := func(code trace.Code, n int) {
		for i := range n {
			is := trace.NewIssue(code, trace.Pos{Line: i + 1}, "x")
			tally.Add(&is)
		}
	}
	add(trace.DuplicateSpan, 7)
	add(trace.BadSpan, 2)
	add(trace.Truncated, 2)
	add(trace.BadField, 1)
	add("unheard-of", 9)
	tally.AddRequest(&trace.Request{Issues: []trace.Issue{
		trace.NewIssue(trace.BadNumber, trace.Pos{}, "x"), trace.NewIssue(trace.BadNumber, trace.Pos{}, "y"),
	}})
	tally.AddRequest(&trace.Request{Issues: []trace.Issue{trace.NewIssue(trace.NumberAsText, trace.Pos{}, "x")}})
	var got []string
	for _, c := range tally.Summary() {
		got = append(got, fmt.Sprintf("%v %s %d %d", c.Severity, c.Code, c.Count, len(c.First)))
	}
	compare(t, got, "dropped truncated 2 2\ndropped bad-span 2 2\ndegraded bad-number 2 2\ndegraded bad-field 1 1\n"+
		"note unheard-of 9 5\nnote duplicate-span 7 5\nnote number-as-text 1 1")
	if tally.Dropped() != 4 || tally.Degraded() != 2 {
		t.Errorf("%d dropped, %d degraded", tally.Dropped(), tally.Degraded())
	}
}

func TestFormats(t *testing.T) {
	for _, f := range Formats() {
		if f.Name == "" || f.Evidence == "" || f.Yields == "" {
			t.Errorf("not described: %+v", f)
		}
	}
	for _, e := range Engines() {
		if e.Name == "" || e.Evidence == "" || e.NotTold == "" {
			t.Errorf("not described: %+v", e)
		}
	}
}
