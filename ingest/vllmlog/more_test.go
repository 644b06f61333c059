package vllmlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/traceview/traceview/trace"
)

func TestYear(t *testing.T) {
	day := func(y int, m time.Month, d int) time.Time { return time.Date(y, m, d, 12, 0, 0, 0, time.UTC) }
	line := func(date, msg string) string { return "INFO " + date + " 10:00:00 [x.py:7] " + msg + "\n" }
	arrive := func(date, id string) string {
		return line(date, "Received request "+id+": params: None, lora_request: None.")
	}
	abort := func(date, id string) string { return line(date, "Aborted request "+id+".") }
	for _, c := range []struct {
		name string
		opts Options
		log  string
		want string // the arrivals' days, by arrival of their ends
		code string
	}{
		{"stated", Options{Year: 2021}, arrive("03-01", "a"), "2021-03-01", ""},
		{"stated, over New Year", Options{Year: 2021}, arrive("12-31", "a") + abort("01-02", "a") + arrive("01-02", "b"), "2021-12-31 2022-01-02", ""},
		{"of the file", Options{ModTime: day(2025, 3, 2)}, arrive("03-01", "a"), "2025-03-01", "year-assumed"},
		{"the last is not after the file", Options{ModTime: day(2025, 3, 2)}, arrive("03-05", "a"), "2024-03-05", "year-assumed"},
		{"over New Year", Options{ModTime: day(2025, 3, 2)}, arrive("12-31", "a") + abort("01-02", "a") + arrive("01-02", "b"), "2024-12-31 2025-01-02", "year-assumed"},
		{"over two", Options{ModTime: day(2025, 3, 2)}, arrive("12-31", "a") + arrive("03-01", "b") + arrive("12-01", "c") + arrive("01-02", "d"), "2023-12-31 2024-03-01 2024-12-01 2025-01-02", "year-assumed"},
		{"29 February", Options{ModTime: day(2026, 7, 2)}, arrive("02-28", "a") + arrive("02-29", "b"), "2024-02-28 2024-02-29", "year-assumed"},
		{"29 February after New Year", Options{ModTime: day(2026, 7, 2)}, arrive("12-31", "a") + arrive("02-29", "b") + arrive("03-01", "c"), "2023-12-31 2024-02-29 2024-03-01", "year-assumed"},
		{"29 February of a stated year that has none", Options{Year: 2025}, arrive("02-28", "a") + arrive("02-29", "b"), "2025-02-28 -", ""},
		{"stragglers of the old year", Options{Year: 2025}, arrive("12-31", "a") + arrive("01-01", "b") + arrive("12-31", "c") + arrive("01-01", "d"), "2025-12-31 2026-01-01 2025-12-31 2026-01-01", ""},
		{"an outer stamp before", Options{ModTime: day(2030, 1, 1)}, "2019-12-31T23:59:59Z " + arrive("12-31", "a") + arrive("01-01", "b"), "2019-12-31 2020-01-01", "year-assumed"},
		{"an outer stamp after", Options{ModTime: day(2030, 1, 1)}, arrive("12-31", "b") + "2020-01-01T00:00:01Z " + arrive("01-01", "a"), "2019-12-31 2020-01-01", "year-assumed"},
		{"an outer stamp in another zone", Options{}, "2020-01-01T00:00:01+02:00 " + arrive("01-01", "a"), "2019-12-31", ""},
		{"nothing", Options{}, arrive("03-01", "a"), "2024-03-01", "year-assumed"},
		{"before the epoch", Options{}, "1969-12-31T00:00:01Z " + arrive("12-31", "a"), "-", ""},
		{"far ahead", Options{}, "9999-12-31T00:00:01Z " + arrive("12-31", "a"), "-", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opts.Zone = time.UTC
			var days []string
			code := ""
			err := Read(context.Background(), strings.NewReader(c.log), c.opts, func(r *trace.Request, i *trace.Issue) bool {
				switch {
				case i != nil && i.Code == trace.YearAssumed:
					code += string(i.Code)
				case r != nil && r.Arrival.Present():
					days = append(days, r.Arrival.At.UTC().Format(time.DateOnly))
				case r != nil:
					days = append(days, "-")
					if len(r.Issues) == 0 || r.Issues[0].Code != trace.ImpossibleDate {
						t.Errorf("no word of the date: %v", r.Issues)
					}
				}
				return true
			})
			if got := strings.Join(days, " "); err != nil || got != c.want || code != c.code {
				t.Errorf("%s %q, want %s %q; %v", got, code, c.want, c.code, err)
			}
		})
	}
}

func TestZone(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	got := read(t, recv(0, "a"), Options{Year: 2026, Zone: zone})
	want := result{Requests: []string{"a incomplete arrival=2026-07-28T08:00:00 step=1s"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}

// TestHeldBack: while the year is open, so many are held back and no more.
func TestHeldBack(t *testing.T) {
	var b strings.Builder
	for i := range maxHeld + 10 {
		id := fmt.Sprintf("r%d", i)
		b.WriteString(recv(i/100, id))
		b.WriteString(at(i/100, "Aborted request "+id+"."))
	}
	r := &counter{r: strings.NewReader(b.String())}
	n, first := 0, int64(-1)
	err := Read(context.Background(), r, Options{ModTime: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}, func(q *trace.Request, i *trace.Issue) bool {
		if q != nil {
			if n++; q.Arrival.At.UTC().Year() != 2024 || q.ID != fmt.Sprintf("r%d", n-1) {
				t.Fatalf("request %d is %s", n, show(q))
			}
			if first < 0 {
				first = r.n
			}
		}
		return true
	})
	if err != nil || n != maxHeld+10 || first < int64(b.Len()/2) {
		t.Errorf("%d requests, the first after %d of %d bytes; %v", n, first, b.Len(), err)
	}
}

type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// TestTooManyOpen: a log that never tells of an end keeps a bounded number.
func TestTooManyOpen(t *testing.T) {
	i := 0
	lines := readerFunc(func(p []byte) (int, error) {
		if i == maxOpen+3 {
			return 0, io.EOF
		}
		i++
		return copy(p, recv(0, fmt.Sprintf("r%d", i))), nil
	})
	n, over := 0, 0
	err := Read(context.Background(), lines, in2026, func(r *trace.Request, _ *trace.Issue) bool {
		n++
		if len(r.Issues) == 1 && r.Issues[0].Code == trace.TooManyOpen {
			over++
		}
		if r.ID != fmt.Sprintf("r%d", n) {
			t.Fatalf("request %d is %s", n, r.ID)
		}
		return true
	})
	if err != nil || n != maxOpen+3 || over != 3 {
		t.Errorf("%d requests, %d given up; %v", n, over, err)
	}
}

// TestEqualIDs: any number of requests of one id, and of ends of it, costs no
// more than as many of different ids.
func TestEqualIDs(t *testing.T) {
	i := 0
	lines := readerFunc(func(p []byte) (int, error) {
		if i++; i > 2*maxOpen {
			return 0, io.EOF
		}
		if i%3 == 0 {
			return copy(p, at(1, "Added request a-0a1b2c3d.")), nil
		}
		if i > maxOpen && i%2 == 0 {
			return copy(p, at(1, "Request a aborted.")), nil
		}
		return copy(p, recv(0, "a")), nil
	})
	n := 0
	err := Read(context.Background(), lines, in2026, func(r *trace.Request, _ *trace.Issue) bool {
		if r != nil {
			n++
		}
		return true
	})
	want := 0
	for i := 1; i <= 2*maxOpen; i++ {
		if i%3 != 0 && (i <= maxOpen || i%2 != 0) {
			want++
		}
	}
	if err != nil || n != want {
		t.Errorf("%d requests, want %d; %v", n, want, err)
	}
}

func TestJSONStamp(t *testing.T) {
	for _, c := range []struct {
		raw, want string
		step      time.Duration
	}{
		{`1785232805`, "2026-07-28T10:00:05", time.Second},
		{`1785232805.25`, "2026-07-28T10:00:05.25", 10 * time.Millisecond},
		{`"1785232805.123456"`, "2026-07-28T10:00:05.123456", time.Microsecond},
		{`1785232805123`, "2026-07-28T10:00:05.123", time.Millisecond},
		{`1785232805123456`, "2026-07-28T10:00:05.123456", time.Microsecond},
		{`1785232805123456789`, "2026-07-28T10:00:05.123456789", 1},
		{`"2026-07-28T12:00:05.123456+0200"`, "2026-07-28T10:00:05.123456", time.Microsecond},
		{`"2026-07-28 10:00:05,123"`, "2026-07-28T10:00:05.123", time.Millisecond},
		{`"07-28 10:00:05"`, "2026-07-28T10:00:05", time.Second},
		{`9999999999999999999`, "", 0},
		{`1.5`, "", 0},
		{`1.234567890123456`, "", 0},
		{`null`, "", 0},
		{`"10:00:05"`, "", 0},
		{`""`, "", 0},
	} {
		st := jsonStamp([]byte(c.raw))
		k := clock{year: 2026, known: true, base: 2026, leapYear: noLeap}
		k.tick(&st)
		got := ""
		if at, _, ok := k.instant(&st); ok {
			got = at.UTC().Format(layout)
		}
		if got != c.want || st.res != c.step {
			t.Errorf("%s: %s by %v, want %s by %v", c.raw, got, st.res, c.want, c.step)
		}
	}
}

// TestCalendar: dates agree with the standard library's for every day of the
// range.
func TestCalendar(t *testing.T) {
	k := clock{}
	for d := time.Date(1970, 1, 1, 1, 2, 3, 4, time.UTC); d.Year() <= 2261; d = d.AddDate(0, 0, 1) {
		got, ok := k.date(d.Year(), int(d.Month()), d.Day(), 3723, 4, false, 0)
		if !ok || got != trace.Time(d.UnixNano()) {
			t.Fatalf("%v is %v", d, got.UTC())
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestLongLine(t *testing.T) {
	prompt := strings.Repeat(`x\'{"\n`, 20<<20/7)
	ids := "[1" + strings.Repeat(", 12345", 1<<20) + "]"
	line := at(0, "Received request a: prompt: '"+prompt+"', params: SamplingParams(n=1, max_tokens=5), prompt_token_ids: "+ids+", lora_request: None.")
	end := at(3, "Aborted request a.")
	want := result{Requests: []string{"a aborted arrival=2026-07-28T10:00:00 e2e=3s step=1s in=1048577 max=5"}}
	if d := cmp.Diff(want, read(t, line+end, in2026)); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if !Sniff([]byte(line[:64<<10])) {
		t.Error("a head in the middle of the first line is not recognised")
	}
	opts := in2026
	opts.MaxRecord = 1 << 20
	want = result{Requests: []string{"a aborted completed=2026-07-28T10:00:03 step=1s !no-arrival"}, Issues: []string{"record-too-large 1"}}
	if d := cmp.Diff(want, read(t, line+end, opts)); d != "" {
		t.Errorf("over the limit, -want +got:\n%s", d)
	}
	// The same in pieces.
	var b strings.Builder
	for s := strings.TrimSuffix(line, "\n"); len(s) > 0; {
		n := min(dockerPiece, len(s))
		tag := "P"
		if n == len(s) {
			tag = "F"
		}
		b.WriteString("2026-07-28T10:00:00.000000000Z stdout " + tag + " " + s[:n] + "\n")
		s = s[n:]
	}
	b.WriteString("2026-07-28T10:00:03.000000000Z stdout F " + end)
	want = result{Requests: []string{"a aborted arrival=2026-07-28T10:00:00 e2e=3s step=1ns in=1048577 max=5"}}
	if d := cmp.Diff(want, read(t, b.String(), in2026)); d != "" {
		t.Errorf("in pieces, -want +got:\n%s", d)
	}
	want = result{Requests: []string{"a aborted completed=2026-07-28T10:00:03 step=1ns !no-arrival"}, Issues: []string{"record-too-large 1"}}
	if d := cmp.Diff(want, read(t, b.String(), opts)); d != "" {
		t.Errorf("in pieces, over the limit, -want +got:\n%s", d)
	}
}

func TestPositions(t *testing.T) {
	log := "noise\n" + recv(0, "a")
	err := Read(context.Background(), iotest.OneByteReader(strings.NewReader(log)), Options{File: "f.log", Year: 2026}, func(r *trace.Request, _ *trace.Issue) bool {
		if want := (trace.Pos{File: "f.log", Offset: 6, Line: 2}); r != nil && r.Source.Pos != want {
			t.Errorf("at %+v, want %+v", r.Source.Pos, want)
		}
		return true
	})
	if err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	broken := errors.New("broken")
	n := 0
	count := func(r *trace.Request, _ *trace.Issue) bool {
		if r != nil {
			n++
		}
		return true
	}
	log := recv(0, "a") + recv(1, "b")
	err := Read(context.Background(), io.MultiReader(strings.NewReader(log), iotest.ErrReader(broken)), in2026, count)
	if !errors.Is(err, broken) || n != 2 {
		t.Errorf("%d requests, %v", n, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Read(ctx, strings.NewReader(log), in2026, count); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := Read(context.Background(), readerFunc(func([]byte) (int, error) { return 0, nil }), in2026, count); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("no progress: %v", err)
	}
	n = 0
	err = Read(context.Background(), strings.NewReader(log), in2026, func(*trace.Request, *trace.Issue) bool { n++; return false })
	if err != nil || n != 1 {
		t.Errorf("stopped: %d calls, %v", n, err)
	}
}

func TestSniff(t *testing.T) {
	noise := strings.Repeat("pulling layer 3/7\n", 500)
	for _, c := range []struct {
		name, head string
		want       bool
	}{
		{"empty", "", false},
		{"blank", "\n\n", false},
		{"text", noise, false},
		{"after noise", noise + recv(0, "a"), true},
		{"in the middle of a line", noise + recv(0, "a")[:60], true},
		{"statistics", at(0, "Engine 000: Avg prompt throughput: 0.0 tokens/s"), true},
		{"loggers of vLLM", `{"name": "vllm.engine", "message": "Starting"}` + "\n", true},
		{"any JSON log", `{"name": "app", "message": "Starting"}` + "\n", false},
		{"a cut JSON record", `{"asctime": "2026-03-01 10:00:00,100", "message": "Received request a: prompt: 'xx`, true},
		{"OTLP", `{"resourceSpans":[{"x":"INFO 07-28 10:00:00 [x.py:7] Added request a."}]}`, false},
		{"OTLP lines", `{"resourceSpans":[]}` + "\n" + `{"resourceSpans":[]}` + "\n", false},
		{"pretty OTLP", "{\n \"resourceSpans\": [\n \"INFO 07-28 10:00:00 [x.py:7] Added request a.\"\n]}", false},
		{"an array of OTLP", `[{"resourceSpans":[]}]`, false},
		{"another program's log", "2026-07-28 10:00:00,123 INFO app: Received request from 10.0.0.1\n", false},
		{"uvicorn alone", "INFO:     Started server process [7]\n", false},
		{"gzip", "\x1f\x8b\x08\x00\x00\x00\x00\x00", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			head := []byte(c.head)
			if Sniff(head) != c.want {
				t.Errorf("want %v", c.want)
			}
			if string(head) != c.head {
				t.Error("the head was written to")
			}
		})
	}
}

// outputs is all that a log gives, as text.
func outputs(t testing.TB, log []byte, opts Options) string {
	var b strings.Builder
	opts.Reading = func(r trace.Reading) { fmt.Fprintf(&b, "%+v\n", r) }
	opts.Limits = func(l trace.EngineLimits) {
		for _, v := range []trace.Opt[int64]{l.Slots, l.Budget, l.KVTokens} {
			if n, ok := v.Get(); ok && n < 1 {
				t.Errorf("a limit of %d", n)
			}
		}
		fmt.Fprintf(&b, "%+v\n", l)
	}
	err := Read(context.Background(), bytes.NewReader(log), opts, func(r *trace.Request, i *trace.Issue) bool {
		if i != nil {
			fmt.Fprintf(&b, "%+v\n", *i)
			return true
		}
		if err := r.Check(); err != nil {
			t.Errorf("%s: %v", show(r), err)
		}
		fmt.Fprintf(&b, "%+v\n", *r)
		return true
	})
	if err != nil {
		t.Error(err)
	}
	return b.String()
}

// TestPromptsStay cuts every line of the sample at every place, and takes
// every byte out: no word of a prompt, an output or an error's text gets out.
func TestPromptsStay(t *testing.T) {
	whole := outputs(t, []byte(strings.Join(plainSample(), "\n")), in2026)
	if strings.Contains(whole, canary) {
		t.Fatalf("whole lines:\n%s", whole)
	}
	for i, msg := range sample {
		line := inner["plain"](i, msg)
		for n := range len(line) {
			for _, bad := range []string{line[:n], line[:n] + line[n+1:], line[:n] + " " + line[n:], line[:n] + "\n" + line[n:]} {
				if got := outputs(t, []byte(bad+"\nx\n"), in2026); strings.Contains(got, canary) {
					t.Fatalf("%s\ngives\n%s", bad, got)
				}
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/*.*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 0)
	}
	for in, write := range inner {
		_ = in
		for _, o := range outer {
			var b strings.Builder
			for i, msg := range sample {
				b.WriteString(o.wrap(i, write(i, strings.ReplaceAll(msg, canary, "x"))) + "\n")
			}
			f.Add([]byte(b.String()), 2026)
		}
	}
	f.Add([]byte(at(0, "args: Namespace(block_size=16, max_num_seqs=256, x=['a', 'b'])")+at(1, "# GPU blocks: 10, # CPU blocks: 2")+
		at(1, "Maximum concurrency for 4,096 tokens per request: 0.04x")+at(2, "non-default args: {'max_num_seqs': 6}")+
		"(EngineCore_DP1 pid=3) "+at(3, "GPU KV cache size: 3,072 tokens")), 2026)
	f.Fuzz(func(t *testing.T, log []byte, year int) {
		Sniff(log)
		opts := Options{Year: year, MaxRecord: 1 << 16}
		first := outputs(t, log, opts)
		if second := outputs(t, bytes.Clone(log), opts); first != second {
			t.Errorf("two runs differ:\n%s\n%s", first, second)
		}
		// A prompt with the log in it gives one request and nothing else.
		injected := at(0, "Received request a: prompt: "+repr(log)+", params: None, lora_request: None.")
		got := read(t, injected, in2026)
		if len(got.Requests) != 1 || !strings.HasPrefix(got.Requests[0], "a incomplete arrival=2026-07-28T10:00:00 step=1s") || got.Issues != nil || got.Readings != nil {
			t.Errorf("a prompt made events: %+v", got)
		}
	})
}

// repr writes text as Python does.
func repr(s []byte) string {
	var b strings.Builder
	b.WriteByte('\'')
	for _, r := range string(s) {
		switch {
		case r == '\'' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7f || r == '\uFFFD':
			fmt.Fprintf(&b, `\x%02x`, r&0xff)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('\'')
	return b.String()
}

// benchLog is a generated log: request lines of about the length that chat
// gives, with as many other lines.
func benchLog() []byte {
	var b bytes.Buffer
	ids := "[1" + strings.Repeat(", 2047", 200) + "]"
	for i := range 2000 {
		id := fmt.Sprintf("chatcmpl-%016x", i)
		p := "(APIServer pid=7) "
		b.WriteString(p + at(i/100, "Received request "+id+": prompt: '"+strings.Repeat("some words of a prompt\\n", 30)+"', params: SamplingParams(n=1, presence_penalty=0.0, frequency_penalty=0.0, repetition_penalty=1.0, temperature=0.7, top_p=1.0, top_k=-1, min_p=0.0, seed=None, stop=[], stop_token_ids=[], bad_words=[], include_stop_str_in_output=False, ignore_eos=False, max_tokens=128, min_tokens=0, logprobs=None, prompt_logprobs=None, skip_special_tokens=True, spaces_between_special_tokens=True, truncate_prompt_tokens=None, guided_decoding=None, extra_args=None), prompt_token_ids: "+ids+", prompt_embeds shape: None, lora_request: None."))
		b.WriteString(p + at(i/100, "Added request "+id+"-0a1b2c3d."))
		b.WriteString(p + "INFO:     10.0.0.7:51324 - \"POST /v1/chat/completions HTTP/1.1\" 200 OK\n")
		if i%10 == 0 {
			b.WriteString(p + at(i/100, "Engine 000: Avg prompt throughput: 1.5 tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, GPU KV cache usage: 50.0%, Prefix cache hit rate: 25.0%"))
		}
		b.WriteString(p + at(i/100+1, "Generated response "+id+" (streaming complete): output: 'some words', output_token_ids: None, finish_reason: streaming_complete"))
	}
	return b.Bytes()
}

func BenchmarkRead(b *testing.B) {
	log := benchLog()
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		err := Read(context.Background(), bytes.NewReader(log), in2026, func(r *trace.Request, _ *trace.Issue) bool {
			n++
			return true
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkShortLines is a log without prompts, as the newest versions write.
func BenchmarkShortLines(b *testing.B) {
	var buf bytes.Buffer
	for i := range 5000 {
		id := fmt.Sprintf("chatcmpl-%016x", i)
		buf.WriteString("2026-07-28T10:00:00.123456789Z stdout F (APIServer pid=7) " + recv(i/100, id))
		buf.WriteString("2026-07-28T10:00:00.123456789Z stdout F (APIServer pid=7) " + at(i/100, "Added request "+id+"-0a1b2c3d."))
		buf.WriteString("2026-07-28T10:00:01.123456789Z stdout F (APIServer pid=7) " + at(i/100, "Aborted request(s) "+id+"-0a1b2c3d."))
	}
	log := buf.Bytes()
	b.SetBytes(int64(len(log)))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if err := Read(context.Background(), bytes.NewReader(log), in2026, func(*trace.Request, *trace.Issue) bool { n++; return true }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "requests/s")
}

// BenchmarkSplitLines is the floor: the same bytes, cut at newlines.
func BenchmarkSplitLines(b *testing.B) {
	log := benchLog()
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		lines := lineReader{ctx: context.Background(), r: bytes.NewReader(log), max: DefaultMaxRecord}
		for {
			if _, err := lines.next(); err != nil {
				break
			}
		}
	}
}
