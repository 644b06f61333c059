package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// Whatever the memory, the answer is the same to the byte, and no file is left.
func TestMemoryChangesNothing(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Setenv("TMP", dir)
	samples := filepath.Join(root, "samples")
	for _, name := range []string{"child-spans.pb", "gateway.jsonl.gz", "llm-d.jsonl.gz", "jaeger.json", "sglang-pd.jsonl.gz", "vllm-real.pb"} {
		for _, args := range [][]string{{"report", "--format", "json"}, {"check", "--format", "json"}} {
			tell := func(more ...string) string {
				var out, errs bytes.Buffer
				if status := run(t.Context(), append(append(args, more...), filepath.Join(samples, name)), nil, &out, &errs); status != 0 {
					t.Fatalf("%s %s: status %d, %s", args[0], name, status, &errs)
				}
				return out.String()
			}
			if tell() != tell("--memory", "1B") {
				t.Errorf("%s %s: not the same with --memory 1B", args[0], name)
			}
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestMachineMemory(t *testing.T) {
	if n := machineMemory(); n < 64<<20 {
		t.Errorf("this machine has %d bytes", n)
	}
	const meminfo = "MemFree:         100 kB\nMemTotal:       24683520 kB\nHugePages_Total:       0\n"
	for _, c := range []struct{ got, want int64 }{
		{totalOf(meminfo, 7), 24683520 << 10}, {totalOf("", 7), 7}, {totalOf("MemTotal: x kB", 7), 7}, {totalOf("MemTotal: 0 kB", 7), 7},
		{limitOf("max\n", 7), 7}, {limitOf("5\n", 7), 5}, {limitOf("9223372036854771712\n", 7), 7}, {limitOf("", 7), 7},
	} {
		if c.got != c.want {
			t.Errorf("%d, want %d", c.got, c.want)
		}
	}
}
