package spanfile

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// What SDKs printed reads the same behind what others put before each line.
func TestWrapped(t *testing.T) {
	quote := func(s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	for _, file := range []string{"python-console.txt", "go-console.json", "js-console.txt"} {
		data, err := os.ReadFile(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		for name, wrap := range map[string]func(string) string{
			"ray": func(l string) string { return "(ProxyActor pid=4100, ip=10.0.0.1) " + l + "\n" },
			"docker": func(l string) string {
				return `{"log":` + quote(l+"\n") + `,"stream":"stdout","time":"2026-08-29T10:40:00.1Z"}` + "\n"
			},
			"cri":     func(l string) string { return "2026-08-29T10:40:00.123456789Z stdout F " + l + "\n" },
			"kubectl": func(l string) string { return "[pod/vllm-0/server] " + l + "\n" },
			"compose": func(l string) string { return "vllm-1  | " + l + "\n" },
			"in pieces": func(l string) string {
				i := len(l) / 2
				return "2026-08-29T10:40:00.123456789Z stdout P " + l[:i] + "\n2026-08-29T10:40:00.123456789Z stdout F " + l[i:] + "\n"
			},
		} {
			var b strings.Builder
			for l := range strings.SplitSeq(strings.TrimRight(string(data), "\n"), "\n") {
				b.WriteString(wrap(l))
			}
			head := []byte(b.String())
			c := Wrapped(head)
			if c == nil || !c.Sniff(data) {
				t.Errorf("%s in %s: not recognised", file, name)
				continue
			}
			got, err := io.ReadAll(Unwrap(head, strings.NewReader(b.String())))
			if err != nil || strings.TrimRight(string(got), "\n") != strings.TrimRight(string(data), "\n") {
				t.Errorf("%s in %s: %v\n%.300s", file, name, err, got)
			}
			spans := 0
			d := NewDecoder(1<<20, nil, func(s *trace.Span, _ *trace.Issue) bool {
				if s != nil {
					spans++
				}
				return true
			})
			if err := d.Console(c, Unwrap(head, strings.NewReader(b.String())), scan.At{File: "f", Line: 1}); err != nil || spans != 3 {
				t.Errorf("%s in %s: %d spans, %v", file, name, spans, err)
			}
		}
		if Wrapped(data) != nil {
			t.Errorf("%s is not wrapped", file)
		}
	}
	long := "[pod/a/b] {\n[pod/a/b] " + strings.Repeat("x", 2*maxLine) + "\n[pod/a/b] }\n"
	got, err := io.ReadAll(Unwrap([]byte(long), strings.NewReader(long)))
	if want := strings.ReplaceAll(long, "[pod/a/b] ", ""); err != nil || string(got) != want {
		t.Errorf("a long line: %d bytes, want %d, %v", len(got), len(want), err)
	}
}

func FuzzWrapped(f *testing.F) {
	f.Add([]byte("(A pid=1) {\n(A pid=1)   \"name\": 1\n"))
	f.Add([]byte("{\"log\":\"a\\n\"}\n{\"log\":\"b\"}\nx | y\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		Wrapped(data)
		got, err := io.ReadAll(Unwrap(data, strings.NewReader(string(data))))
		if err != nil || len(got) > 3*len(data)+2 {
			t.Fatalf("%d bytes of %d, %v", len(got), len(data), err)
		}
	})
}
