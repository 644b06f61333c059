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
	runs := []struct {
		args []string
		sums bool
	}{
		{[]string{"report", file}, true},
		{[]string{"waiting", file}, true},
		{[]string{"timeline", file}, true},
		{[]string{"export", "--format", "pprof", file}, true},
		{[]string{"export", "--format", "pprof", "--frames", "waiter,holder", file}, true},
		{[]string{"export", "-o", filepath.Join(t.TempDir(), "tables") + "/", file}, true},
		{[]string{"export", "--format", "csv", file}, false},
		{[]string{"check", file}, false},
	}
	for _, n := range []int{300, 200} {
		write(spans[:n])
		for _, r := range runs {
			args, want := r.args, 0
			if n == 300 && r.sums {
				want = 1
			}
			var out, errs bytes.Buffer
			if got := run(context.Background(), args, strings.NewReader(""), &out, &errs); got != want {
				t.Errorf("%d requests, %v: status %d, want %d: %s", n, args, got, want, &errs)
			}
			if want == 1 && (out.Len() > 0 || !strings.Contains(errs.String(), "more than 292 years")) {
				t.Errorf("%d requests, %v: %d bytes of output, %s", n, args, out.Len(), &errs)
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
