package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// requestOf shows one row of a sample's phase table: its instants and
// durations, and what adds up to what. Columns that are null are left out, and
// so are causes of no time. It is for docs/phase-table.md and is run in the
// repository's folder.
func requestOf(file, id string) string {
	var table, errs bytes.Buffer
	if status := run(context.Background(), []string{"export", "--format", "csv", "--year", "2025", "--zone", "UTC", filepath.Join("samples", file)}, nil, &table, &errs); status != 0 {
		return errs.String()
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil {
		return err.Error()
	}
	head := rows[0]
	at := slices.IndexFunc(rows, func(r []string) bool { return r[slices.Index(head, "request_id")] == id })
	if at < 0 {
		return "no request " + id
	}
	row := map[string]string{}
	for i, v := range rows[at] {
		row[head[i]] = v
	}
	number := func(name string) string {
		n, err := strconv.ParseInt(row[name], 10, 64)
		if err != nil {
			return row[name]
		}
		return units.Count(n)
	}
	t := newMarkdown("Column", "Value")
	for _, name := range head {
		switch v := row[name]; {
		case v == "", strings.HasPrefix(name, "cause_") && v == "0":
		case slices.Contains([]string{"arrival", "queued", "scheduled", "first_token", "last_token", "completed"}, name):
			t.row("`"+name+"`", v)
		case strings.HasSuffix(name, "_ns"):
			t.row("`"+name+"`", number(name))
		}
	}
	sum := func(total string, parts []string) {
		var told []string
		for _, name := range parts {
			if v := row[name]; v != "" && v != "0" {
				told = append(told, "`"+name+"` "+number(name))
			}
		}
		if len(told) > 0 {
			fmt.Fprintf(t, "\n%s = `%s` %s\n", strings.Join(told, " + "), total, number(total))
		}
	}
	var phases, causes []string
	for _, p := range analyze.PhaseColumns() {
		phases = append(phases, analyze.PhaseColumn(p))
	}
	for _, c := range analyze.Causes() {
		causes = append(causes, analyze.CauseColumn(c))
	}
	sum("e2e_ns", append(phases, analyze.OtherSetsColumn, analyze.PhaseColumn(trace.Unattributed)))
	sum("waiting_ns", causes)
	return t.String()
}

// A column that is null in some sample says when it is.
func TestNullsAreDescribed(t *testing.T) {
	for _, sample := range []string{"vllm-v1.jsonl", "vllm-v0.json", "child-spans.pb", "gateway.jsonl.gz", "vllm-0.10.log"} {
		folder := filepath.Join(t.TempDir(), "tables")
		call(t, nil, "export", "--year", "2025", "--zone", "UTC", "-o", folder+"/", filepath.Join(root, "samples", sample))
		for _, d := range tableDocs() {
			rows := readTable(t, folder, strings.TrimSuffix(d.File, ".parquet"))
			for _, c := range d.Columns {
				if strings.HasPrefix(c.Type, "list") || strings.HasPrefix(c.Type, "map") || strings.Contains(c.Meaning, "null") {
					continue
				}
				if slices.ContainsFunc(rows, func(r map[string]any) bool { return r[c.Name] == nil }) {
					t.Errorf("%s of %s: %s is null, and not said to be: %s", d.File, sample, c.Name, c.Meaning)
				}
			}
		}
	}
}

// Links between pages lead somewhere.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ (.*)$`)
	for _, page := range append(pages, filepath.Join(root, "README.md"), filepath.Join(root, "samples", "README.md")) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], ":") { // elsewhere
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			target := page
			if file != "" {
				target = filepath.Join(filepath.Dir(page), file)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %s leads nowhere", page, m[1])
				continue
			}
			if anchor == "" {
				continue
			}
			to, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(heading.FindAllStringSubmatch(string(to), -1), func(h []string) bool {
				name := strings.Map(func(r rune) rune {
					switch {
					case r == ' ':
						return '-'
					case r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z':
						return r
					}
					return -1
				}, strings.ToLower(h[1]))
				return name == anchor
			})
			if !found {
				t.Errorf("%s: %s has no heading %s", page, target, anchor)
			}
		}
	}
}
