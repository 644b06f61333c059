package main

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/traceview/traceview/internal/sim"
)

// Blocks must be as good as one run: each request once, later blocks later.
func TestBlocksFollow(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b, options{shape: "spans", form: sim.Lines, requests: 250, block: 100, seed: 3}); err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	var first, last [3]int64 // of each block
	for i := range first {
		first[i] = 1 << 62
	}
	for line := range bytes.Lines(b.Bytes()) {
		var m struct {
			ResourceSpans []struct {
				ScopeSpans []struct {
					Spans []struct {
						TraceID string `json:"traceId"`
						Start   int64  `json:"startTimeUnixNano,string"`
						End     int64  `json:"endTimeUnixNano,string"`
					}
				}
			}
		}
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		for _, s := range m.ResourceSpans[0].ScopeSpans[0].Spans {
			if ids[s.TraceID] {
				t.Fatalf("trace %s came before", s.TraceID)
			}
			ids[s.TraceID] = true
			// The blocks are written one after the other, of some 98 spans each.
			k := min(2, (len(ids)-1)/99)
			first[k], last[k] = min(first[k], s.Start), max(last[k], s.End)
		}
	}
	if n := len(ids); n < 240 || n > 250 {
		t.Fatalf("%d spans of 250 requests", n)
	}
	for k := 1; k < 3; k++ {
		if first[k] < first[k-1]+1e9 || last[k] <= last[k-1] {
			t.Errorf("block %d is from %d to %d, the one before from %d to %d", k, first[k], last[k], first[k-1], last[k-1])
		}
	}
}

func TestWrong(t *testing.T) {
	good := options{shape: "log", form: sim.Lines, requests: 10, block: 10}
	for name, spoil := range map[string]func(*options){
		"":         func(*options) {},
		"shape":    func(o *options) { o.shape = "unheard of" },
		"form":     func(o *options) { o.form = sim.JSON },
		"requests": func(o *options) { o.requests = 0 },
	} {
		o := good
		spoil(&o)
		if err := write(&bytes.Buffer{}, o); (err != nil) != (name != "") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
