package vllmlog

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A progress bar ends without a newline: the next line of the log follows a
// carriage return. What is quoted before one is nobody's bar.
func TestProgressBars(t *testing.T) {
	bar := "Loading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]\rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:01<00:01]\r"
	for _, c := range []struct {
		name, log string
		want      result
	}{
		{"before lines", bar + recv(0, "a") + bar + at(2, "Aborted request a."),
			result{Requests: []string{"a aborted arrival=2026-07-28T10:00:00 e2e=2s step=1s"}}},
		{"quoted", recv(0, "a") + "INFO: somebody said 'x\r" + at(2, "Aborted request a."),
			result{Requests: []string{"a incomplete arrival=2026-07-28T10:00:00 step=1s"}, Issues: []string{"foreign-line 2"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, read(t, c.log, in2026)); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}
