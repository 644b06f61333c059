package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Where sums would overflow there is an error and no figure; rows, which sum
// nothing, are still written.
func TestSumsThatDoNotFit(t *testing.T) {
	var spans []string
	for i := range 300 { // of a year each
		spans = append(spans, fmt.Sprintf(`{"traceId":"%032x","spanId":"%016x","name":"llm_request","startTimeUnixNano":"1700000000000000000","endTimeUnixNano":"1731536000000000000"}`, i+1, i+1))
	}
	file := filepath.Join(t.TempDir(), "years.json")
	write := func(spans []string) {
		t.Helper()
		text := `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.llm_engine"},"spans":[` + strings.Join(spans, ",") + `]}]}]}`
		if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	runs := [][]string{{"report", file}, {"export", "--format", "pprof", file}, {"export", "--format", "csv", file}, {"check", file}}
	for n, want := range map[int][4]int{300: {1, 1, 0, 0}, 200: {0, 0, 0, 0}} {
		write(spans[:n])
		for i, args := range runs {
			var out, errs bytes.Buffer
			if got := run(context.Background(), args, strings.NewReader(""), &out, &errs); got != want[i] {
				t.Errorf("%d requests, %v: status %d, want %d: %s", n, args[0], got, want[i], &errs)
			}
			if want[i] == 1 && (out.Len() > 0 || !strings.Contains(errs.String(), "more than 292 years")) {
				t.Errorf("%d requests, %v: %d bytes of output, %s", n, args[0], out.Len(), &errs)
			}
		}
	}
}

// A report has as many quantiles as a person may want, not more.
func TestManyQuantiles(t *testing.T) {
	for n, want := range map[int]int{100: 0, 101: 2} {
		var out, errs bytes.Buffer
		list := strings.TrimSuffix(strings.Repeat("0.5,", n), ",")
		if got := run(context.Background(), []string{"report", "--quantile", list, filepath.Join(root, "samples", "vllm-v1.jsonl")}, strings.NewReader(""), &out, &errs); got != want {
			t.Errorf("%d quantiles: status %d, want %d: %s", n, got, want, &errs)
		}
	}
}
