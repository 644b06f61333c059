//go:build unix

package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file's name does not reach the terminal with its control characters.
func TestNamesInMessages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a\x1b[2J\u009bb")
	if err := os.WriteFile(file, []byte("nothing that is read"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"report", file}, {"report", file + "none"}, {"check", file}, {"export", "-o", file + ".csv", file}, {"export", "-o", file, file}} {
		var out, errs bytes.Buffer
		run(context.Background(), args, strings.NewReader(""), &out, &errs)
		if all := out.String() + errs.String(); strings.ContainsAny(all, "\x1b\u009b") || !strings.Contains(all, "a\uFFFD[2J\uFFFDb") {
			t.Errorf("%s: %q", args[0], all)
		}
	}
}
