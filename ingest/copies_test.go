package ingest

import (
	"fmt"
	"strings"
	"testing"
)

// A copy counts once, whether it is there as it was or compressed.
func TestCopies(t *testing.T) {
	log := received(0, "a") + stats(1, 0, 1) + aborted(2, "a")
	other := strings.Replace(log, "Running: 1", "Running: 2", 1) // of the same size
	const one = "/engine 0 running 1\n/ a aborted 2s"
	if got := where(t, named{"a.log", log}, named{"b.log", log}, named{"c.log", log}); got != "! copied-input b.log\n! copied-input c.log\n"+one {
		t.Errorf("got\n%s", got)
	}
	if got := where(t, named{"a.log", log}, named{"a.log.gz", string(gzipped(t, []byte(log)))}); got != "! copied-input a.log.gz\n"+one {
		t.Errorf("got\n%s", got)
	}
	got := where(t, named{"a.log", log}, named{"b.log", other})
	if strings.Contains(got, "copied-input") || strings.Count(got, "aborted 2s") != 2 {
		t.Errorf("got\n%s", got)
	}
	// Of spans the ids tell as much.
	if got := where(t, named{"a.json", spansOf("r", "a")}, named{"b.json", spansOf("r", "a")}); got != "! copied-input b.json\nllm/r a ok 1s" {
		t.Errorf("got\n%s", got)
	}
	// Files that begin alike, and end otherwise.
	long := strings.Repeat(stats(1, 0, 1), 3000)
	if got := where(t, named{"a.log", long + stats(2, 0, 1)}, named{"b.log", long + stats(2, 0, 2)}); strings.Contains(got, "copied-input") {
		t.Error("two logs are taken for one")
	}
	if got := where(t, named{"a.log", ""}, named{"b.log", ""}); strings.Contains(got, "copied-input") {
		t.Errorf("got\n%s", got)
	}
}

// Values in another unit are said to be, and stay as they are.
func TestWrongUnit(t *testing.T) {
	doc := func(n int, start, e2e int64, factor float64) string {
		var b strings.Builder
		for i := range n {
			s := start + int64(i)
			fmt.Fprintf(&b, `{"resourceSpans":[{"scopeSpans":[{"scope":{"name":"vllm.llm_engine"},"spans":[{"name":"llm_request","traceId":"%032x","spanId":"%016x","startTimeUnixNano":"%d","endTimeUnixNano":"%d","attributes":[`, i+1, i+1, s, s+e2e)
			for _, a := range []struct {
				key string
				v   float64
			}{{"time_in_queue", 0.2}, {"time_in_model_prefill", 0.3}, {"time_in_model_decode", 0.45}} {
				fmt.Fprintf(&b, `{"key":"gen_ai.latency.%s","value":{"doubleValue":%g}},`, a.key, a.v*factor)
			}
			fmt.Fprintf(&b, `{"key":"gen_ai.request.id","value":{"stringValue":"r%d"}},{"key":"gen_ai.usage.completion_tokens","value":{"intValue":"9"}}]}]}]}]}`+"\n", i)
		}
		return b.String()
	}
	const begin, second = 1760000000000000000, 1000000000
	for name, c := range map[string]struct {
		text string
		want int
	}{
		"as it should be":            {doc(20, begin, second, 1), 0},
		"latencies in milliseconds":  {doc(20, begin, second, 1000), 1},
		"latencies a thousandth":     {doc(20, begin, second, 0.001), 1},
		"times in milliseconds":      {doc(20, begin/1000000, second/1000000, 1e-6), 1},
		"too few to tell":            {doc(4, begin, second, 1000), 0},
		"some of many":               {doc(20, begin, second, 1) + doc(2, begin+5, second, 1000), 0},
		"requests that wait shortly": {doc(20, begin, 10*second, 1), 0},
	} {
		if n := strings.Count(strings.Join(lines(t, Options{}, inMemory("x", []byte(c.text))), "\n"), "! wrong-unit"); n != c.want {
			t.Errorf("%s: said %d times, want %d", name, n, c.want)
		}
	}
}
