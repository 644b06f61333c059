package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
	"github.com/traceview/traceview/ingest"
	"github.com/traceview/traceview/trace"
)

var update = flag.Bool("update", false, "write what the tests got into the golden files and the documentation")

const root = "../.."

// The README's reference is made from the code: each block between
// "<!-- begin NAME -->" and "<!-- end -->" is what generated[NAME] gives.
var generated = map[string]func() string{
	"formats": func() string {
		t := newMarkdown("Format", "Recognised by", "What it yields", "What it cannot tell")
		for _, f := range ingest.Formats() {
			t.row("`"+f.Name+"`", f.Evidence, f.Yields, f.NotTold)
		}
		return t.String()
	},
	"engines": func() string {
		t := newMarkdown("Engine", "Recognised by", "Read from", "What it does not tell")
		for _, e := range ingest.Engines() {
			t.row("`"+e.Name+"`", e.Evidence, e.Version, e.NotTold)
		}
		return t.String()
	},
	"columns":        func() string { return columnsOf("phases.parquet") },
	"table waiting":  func() string { return columnsOf("waiting.parquet") },
	"table blame":    func() string { return columnsOf("blame.parquet") },
	"table timeline": func() string { return columnsOf("timeline.parquet") },

	"request of vllm-v1":     func() string { return requestOf("vllm-v1.jsonl", "cmpl-5f7ee97b4b8b9536-0") },
	"request of gateway":     func() string { return requestOf("gateway.jsonl.gz", "cmpl-4cc14b7d3d46619b-0") },
	"request of child-spans": func() string { return requestOf("child-spans.pb", "cmpl-be61e84a7d45bdcd-0") },
	"request of vllm-log":    func() string { return requestOf("vllm-0.10.log", "chatcmpl-2c255cac878803d9") },

	"metrics": func() string {
		t := newMarkdown("Figure", "Unit", "Definition")
		for _, m := range analyze.Metrics {
			t.row("`"+m.Name+"`", string(m.Unit), m.Definition)
		}
		return t.String()
	},
	"codes": func() string {
		t := newMarkdown("Code", "Severity", "Meaning", "What to do")
		for _, c := range trace.Codes {
			t.row("`"+string(c.Code)+"`", c.Severity.String(), c.Meaning, c.Do)
		}
		return t.String()
	},
	"json": func() string {
		t := newMarkdown("Key", "Unit", "Meaning")
		for _, k := range export.JSONKeys {
			t.row("`"+k.Key+"`", k.Unit, k.Meaning)
		}
		return t.String()
	},
}

// columnsOf describes the columns of a table of a folder, as its schema.md does.
func columnsOf(file string) string {
	t := newMarkdown("Column", "Type", "Unit", "Meaning")
	for _, d := range tableDocs() {
		for _, c := range d.Columns {
			if d.File == file {
				t.row("`"+c.Name+"`", c.Type, c.Unit, c.Meaning)
			}
		}
	}
	return t.String()
}

type markdown struct{ strings.Builder }

func newMarkdown(heads ...string) *markdown {
	m := &markdown{}
	m.row(heads...)
	m.row(strings.Split(strings.Repeat("---,", len(heads))[:4*len(heads)-1], ",")...)
	return m
}

func (m *markdown) row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.ReplaceAll(c, "|", `\|`), "\n", " ")
	}
	fmt.Fprintf(m, "| %s |\n", strings.Join(cells, " | "))
}

// TestREADME checks the generated blocks of the README and of what lies in docs/
// and runs each command of a console block: what it prints must be what stands
// there.
func TestREADME(t *testing.T) {
	t.Chdir(root)
	docs, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append([]string{"README.md"}, docs...) {
		t.Run(path, func(t *testing.T) { checkPage(t, path) })
	}
}

func checkPage(t *testing.T, path string) {
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text := string(old)
	text = eachBlock(t, text, "<!-- begin ", "<!-- end -->", func(head, body string) string {
		name := strings.TrimSuffix(head, " -->")
		f := generated[name]
		if f == nil {
			t.Errorf("there is a block %q that nothing generates", name)
			return body
		}
		return "\n" + f() + "\n"
	})
	dir := t.TempDir() // for what the examples write
	ran := 0
	text = eachBlock(t, text, "```console", "```", func(_, body string) string {
		var out strings.Builder
		for line := range strings.Lines(body) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				ran++
				out.WriteString(line + shell(t, dir, strings.TrimSpace(command)))
			}
		}
		return out.String()
	})
	if path == "README.md" && ran < 5 {
		t.Errorf("ran only %d commands", ran)
	}
	if text == string(old) {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	was, is := strings.Split(string(old), "\n"), strings.Split(text, "\n")
	for i := range is {
		if i >= len(was) || was[i] != is[i] {
			t.Fatalf("line %d is not what the code says; run this test with -update\nis:   %q\nwant: %q", i+1, at(was, i), is[i])
		}
	}
	t.Fatal("there is more than what the code says; run this test with -update")
}

// TestTutorial checks that the figures of which the tutorial speaks are those
// that its commands print.
func TestTutorial(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "docs", "tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	printed := map[string]bool{}
	number := regexp.MustCompile(`[0-9][0-9,.]*[0-9]|[0-9]`)
	prose := eachBlock(t, string(page), "```console", "```", func(_, body string) string {
		for _, n := range number.FindAllString(body, -1) {
			printed[n] = true
		}
		return ""
	})
	quoted := regexp.MustCompile(`([0-9][0-9,.]*) (%|s|to|tokens|requests)\b|: ([0-9][0-9,.]*)`).FindAllStringSubmatch(prose, -1)
	if len(quoted) < 15 {
		t.Errorf("the tutorial speaks of %d figures only", len(quoted))
	}
	for _, q := range quoted {
		if n := q[1] + q[3]; !printed[n] {
			t.Errorf("%q: no command prints %s", q[0], n)
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

// eachBlock replaces what stands between the line that begins with open and
// the one that is close.
func eachBlock(t *testing.T, text, open, close string, f func(head, body string) string) string {
	t.Helper()
	var out strings.Builder
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < len(lines); i++ {
		out.WriteString(lines[i])
		head, ok := strings.CutPrefix(strings.TrimRight(lines[i], "\n"), open)
		if !ok {
			continue
		}
		var body strings.Builder
		j := i + 1
		for ; j < len(lines) && strings.TrimRight(lines[j], "\n") != close; j++ {
			body.WriteString(lines[j])
		}
		if j == len(lines) {
			t.Fatalf("block %q is not closed", lines[i])
		}
		out.WriteString(f(head, body.String()))
		i = j - 1
	}
	return out.String()
}

// shell runs a pipe of traceview commands, go tool pprof, and head and tail with a
// number of lines, and returns what a person would see. A file that -o names is
// written to dir, and read from there again.
func shell(t *testing.T, dir, line string) string {
	t.Helper()
	var stdin bytes.Buffer
	var seen strings.Builder
	stages := strings.Split(line, " | ")
	for i, stage := range stages {
		args := strings.Fields(stage)
		if len(args) > 2 && args[0] == "go" && args[1] == "run" { // go run ./cmd/traceview …
			args = append([]string{"traceview"}, args[3:]...)
		}
		if len(args) < 2 {
			t.Errorf("cannot run %q", stage)
			return ""
		}
		for j, a := range args {
			if _, err := os.Stat(a); err != nil && j > 0 && formatOf(a) != "" || j > 0 && args[j-1] == "-o" {
				args[j] = filepath.Join(dir, a)
			}
		}
		var stdout, stderr bytes.Buffer
		switch args[0] {
		case "traceview":
			if status := run(context.Background(), args[1:], bytes.NewReader(stdin.Bytes()), &stdout, &stderr); status != 0 {
				t.Errorf("%s: status %d: %s", stage, status, stderr.String())
			}
		case "head", "tail":
			n, err := strconv.Atoi(strings.TrimPrefix(args[1], "-"))
			lines := strings.SplitAfter(stdin.String(), "\n")
			lines = slices.DeleteFunc(lines, func(l string) bool { return l == "" }) // behind the last line
			if err != nil || n < 1 || len(lines) < n {
				t.Fatalf("%s: there are %d lines", stage, len(lines))
			}
			if args[0] == "head" {
				lines = lines[:n]
			} else {
				lines = lines[len(lines)-n:]
			}
			stdout.WriteString(strings.Join(lines, ""))
		case "go":
			cmd := exec.Command("go", args[1:]...)
			cmd.Stdout = &stdout
			cmd.Env = append(os.Environ(), "PPROF_TMPDIR="+dir, "PPROF_BINARY_PATH="+dir, "TZ=UTC")
			if err := cmd.Run(); err != nil {
				t.Errorf("%s: %v", stage, err)
			}
		default:
			t.Errorf("cannot run %q", stage)
		}
		stdin = stdout
		if i == len(stages)-1 {
			seen.WriteString(strings.ReplaceAll(stderr.String(), dir+string(filepath.Separator), ""))
		}
	}
	seen.WriteString(stdin.String())
	return seen.String()
}
