package analyze

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

// cellsOf is a row of a table by the columns' names, absent cells left out.
func cellsOf(t *testing.T, tab *Table, row []Cell) map[string]Cell {
	t.Helper()
	if len(row) != len(tab.Columns) {
		t.Fatalf("%d cells under %d columns", len(row), len(tab.Columns))
	}
	m := map[string]Cell{}
	for i, c := range row {
		if c.Kind != CellAbsent {
			m[tab.Columns[i].Name] = c
		}
	}
	return m
}

func TestWindowTable(t *testing.T) {
	// 20 ms in two windows: r1 waits 6 ms in the first and 2 ms in the second.
	rs := reqtext.MustParse(t, `
r1 service=s replica=g arrival=0 queued=4ms scheduled=12ms end=20ms arrival|completion=0..4ms queueing=4ms..12ms queueing|decode=12ms..14ms
r2 service=s model=m arrival=1ms end=2ms`)
	all := func(i int) (parts []WaitPart) {
		for _, s := range rs[i].Segments(nil) {
			if s.Phase.Kind() == trace.Waiting {
				parts = append(parts, WaitPart{Start: s.Start, End: s.End, Cause: CauseSlots})
			}
		}
		return parts
	}
	tab := windowsBy(t, 10*time.Millisecond, all, rs).Table()
	if len(tab.Rows) != 6 {
		t.Fatalf("%d rows, want two windows of all and of two replicas", len(tab.Rows))
	}
	base := int64(reqtext.Base)
	for i, want := range []map[string]Cell{
		0: {"series": TextCell("all"), "window": IntCell(0), "start": IntCell(base), "end_unix_nano": IntCell(base + 10e6), "offset_ns": IntCell(0),
			"length_ns": IntCell(10e6), "frontend_ns": IntCell(4e6), "queueing_ns": IntCell(6e6), "waiting_ns": IntCell(6e6), "cause_slots_ns": IntCell(6e6),
			"cause_step_ns": IntCell(0), "other_sets_ns": IntCell(0), "unattributed_ns": IntCell(1e6), "overhead_ns": IntCell(4e6)},
		1: {"window": IntCell(1), "start_unix_nano": IntCell(base + 10e6), "end": IntCell(base + 20e6), "offset_ns": IntCell(10e6),
			"queueing_ns": IntCell(2e6), "other_sets_ns": IntCell(2e6), "frontend_ns": IntCell(0), "cause_slots_ns": IntCell(2e6), "unattributed_ns": IntCell(6e6)},
		2: {"series": TextCell("replica"), "service": TextCell("s"), "model": TextCell("m")},
		4: {"series": TextCell("replica"), "service": TextCell("s"), "replica": TextCell("g"), "window": IntCell(0)},
	} {
		row := cellsOf(t, tab, tab.Rows[i])
		for name, c := range want {
			if row[name] != c {
				t.Errorf("row %d: %s is %+v, want %+v", i, name, row[name], c)
			}
		}
	}
	// Nobody says decode, nor has an engine said anything; r2 has no replica.
	for _, absent := range []string{"decode_ns", "compute_ns", "engine_readings", "engine_waiting_mean", "running_mean", "model"} {
		if c, ok := cellsOf(t, tab, tab.Rows[0])[absent]; ok {
			t.Errorf("%s is %+v, want nothing", absent, c)
		}
	}
	if c, ok := cellsOf(t, tab, tab.Rows[2])["replica"]; ok {
		t.Errorf("replica is %+v, want nothing", c)
	}

	// On another clock there are offsets and no dates; without causes none.
	tab = windows(t, 5*time.Millisecond, reqtext.MustParse(t, `r clock=monotonic arrival=1s queueing=1s..1.008s end=1.01s`)).Table()
	row := cellsOf(t, tab, tab.Rows[1])
	if row["offset_ns"] != IntCell(5e6) || row["length_ns"] != IntCell(5e6) || row["queueing_ns"] != IntCell(3e6) {
		t.Errorf("a monotonic clock: %+v", row)
	}
	for _, absent := range []string{"start", "end", "start_unix_nano", "end_unix_nano", "cause_slots_ns"} {
		if c, ok := row[absent]; ok {
			t.Errorf("a monotonic clock: %s is %+v", absent, c)
		}
	}
}

// The columns are the same whatever the input, those of times add up to the
// requests' time, and those of causes to the waiting.
func TestWindowTableAddsUp(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	empty := (&WindowResult{}).Table()
	for range 100 {
		rs := randomRequests(rnd, rnd.IntN(12))
		tab := windowsBy(t, 0, inTwo(rs), rs).Table()
		for i, c := range tab.Columns {
			if c != empty.Columns[i] {
				t.Fatalf("column %d is %+v, and %+v of nothing", i, c, empty.Columns[i])
			}
		}
		var want, got int64
		for _, r := range rs {
			b := r.Breakdown()
			want += int64(b.Extent)
		}
		for _, cells := range tab.Rows {
			row := cellsOf(t, tab, cells)
			if row["series"].Text != "all" {
				continue
			}
			var caused int64
			for _, c := range Causes() {
				caused += row[CauseColumn(c)].Int
			}
			for _, name := range windowPhases() {
				got += row[name].Int
			}
			if caused != row["waiting_ns"].Int {
				t.Fatalf("causes add up to %d, waiting is %d", caused, row["waiting_ns"].Int)
			}
		}
		if got != want {
			t.Fatalf("windows have %d ns, requests %d", got, want)
		}
	}
	for _, c := range empty.Columns {
		if strings.HasSuffix(c.Name, "_ns") != (c.Unit == UnitNanos && !strings.HasSuffix(c.Name, "_unix_nano")) || c.Meaning == "" {
			t.Errorf("%+v: a unit that the name does not say, or no meaning", c)
		}
	}
}
