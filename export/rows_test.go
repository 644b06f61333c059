package export

import (
	"bytes"
	"encoding/csv"
	"strconv"
	"strings"
	"testing"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func TestRows(t *testing.T) {
	reqs, err := reqtext.Parse(`
r1 arrival=0 end=100ms first=40ms queueing=0..10ms prefill=10ms..38ms decode=40ms..100ms out=13 @tenant==cmd()
r2 arrival=5ms outcome=incomplete queueing|decode=5ms..9ms
`)
	if err != nil {
		t.Fatal(err)
	}
	reqs[1].Issues = []trace.Issue{trace.NewIssue(trace.MissingEnd, trace.Pos{}, "x"), trace.NewIssue(trace.BadNumber, trace.Pos{}, "y")}
	var b bytes.Buffer
	w, err := NewRows(&b, ParquetOptions{Columns: []string{"tenant"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range reqs {
		if err := w.Write(r, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	cell := func(row int, column string) string {
		for i, c := range lines[0] {
			if c == column {
				return lines[row][i]
			}
		}
		t.Fatalf("no column %q", column)
		return ""
	}
	for _, c := range []struct {
		row          int
		column, want string
	}{
		{1, "request_id", "r1"}, {1, "e2e_ns", "100000000"}, {1, "queueing_ns", "10000000"}, {1, "unattributed_ns", "2000000"},
		{1, "arrival", "2025-10-09T08:53:20Z"}, {1, "arrival_unix_nano", "1760000000000000000"}, {1, "first_token", "2025-10-09T08:53:20.04Z"},
		{1, "preempted_ns", ""}, {1, "issues", ""}, {1, "attributes", `{"tenant":"=cmd()"}`}, {1, "tenant", "'=cmd()"},
		{2, "e2e_ns", ""}, {2, "completed", ""}, {2, "issues", "missing-end;bad-number"}, {2, "other_sets", `{"queueing|decode":4000000}`},
		{2, "other_sets_ns", "4000000"}, {2, "tenant", ""},
	} {
		if got := cell(c.row, c.column); got != c.want {
			t.Errorf("row %d, %s: %q, want %q", c.row, c.column, got, c.want)
		}
	}
	var fixed []string
	for _, c := range ParquetColumns() {
		fixed = append(fixed, c.Name)
	}
	if got := strings.Join(lines[0], " "); got != strings.Join(append(fixed, "tenant"), " ") {
		t.Errorf("header %s", got)
	}
	// The parts add up as in Parquet.
	sum := int64(0)
	for _, c := range []string{"arrival_ns", "queueing_ns", "prefill_ns", "decode_ns", "preempted_ns", "transfer_ns", "completion_ns", "frontend_ns", "queueing_prefill_ns", "prefill_decode_ns", "other_sets_ns", "unattributed_ns"} {
		if s := cell(1, c); s != "" {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	if sum != 100_000_000 {
		t.Errorf("parts add up to %d", sum)
	}
}
