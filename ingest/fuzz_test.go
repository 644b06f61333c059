package ingest

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/trace"
)

// FuzzRequests holds what is true of any input: the run ends without an error,
// every request keeps its rules, issues lie inside the input, and the same
// bytes give the same pairs.
func FuzzRequests(f *testing.F) {
	files, err := filepath.Glob("testdata/cases/*/*")
	if err != nil || len(files) == 0 {
		f.Fatal("no seeds", err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, form := range sim.Forms() {
		f.Add(encode(f, 3, sim.Encoding{Form: form}))
	}
	f.Add(encode(f, 3, sim.Encoding{Form: sim.Proto, Compression: sim.ZstdFramed}))
	for _, form := range sim.SpanFiles() {
		f.Add(encode(f, 2, sim.Encoding{Form: form}))
	}
	f.Add(tarred(f, packed{"a", doc("a")}, packed{"b.gz", string(gzipped(f, []byte(doc("b"))))}))
	f.Add(zipped(f, packed{"a", doc("a")}, packed{"b.gz", string(gzipped(f, []byte(doc("b"))))}))
	f.Fuzz(func(t *testing.T, data []byte) {
		opts := Options{MaxRecord: 1 << 20, MaxInput: 1 << 22, Year: 2026}
		var first []string
		for range 2 {
			var got []string
			for r, err := range Requests(t.Context(), []Input{inMemory("x", data)}, opts) {
				var is *trace.Issue
				switch {
				case errors.As(err, &is):
					if is.Pos.Offset < 0 || is.Pos.Offset > opts.MaxInput || !strings.HasPrefix(is.Pos.File, "x") {
						t.Fatalf("an issue at %+v", is.Pos)
					}
					got = append(got, is.Error())
				case err != nil:
					t.Fatal(err)
				default:
					got = append(got, line(t, r))
				}
			}
			if first == nil {
				first = got
			}
			if len(data) > 0 && len(got) == 0 {
				t.Fatal("nothing came, not even an issue")
			}
			if len(got) != len(first) {
				t.Fatalf("%d pairs, then %d", len(first), len(got))
			}
			for i := range got {
				if got[i] != first[i] {
					t.Fatalf("%s, then %s", first[i], got[i])
				}
			}
		}
	})
}
