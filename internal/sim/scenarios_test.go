package sim

import "testing"

// TestScenarios: most waiting of each has the cause that it is to have, and
// each cause is the main one of some.
func TestScenarios(t *testing.T) {
	mains := map[string]bool{}
	for _, s := range Scenarios(1) {
		mains[s.Main] = true
		run, err := s.Run()
		if err != nil {
			t.Fatalf("%s: %v", s.Name, err)
		}
		sum, all, preempted := map[string]float64{}, 0.0, 0
		for i, r := range run.Requests {
			preempted += r.Preemptions.Or(0)
			for _, w := range run.Waits(i) {
				sum[w.Cause] += float64(w.End.Sub(w.Start))
				all += float64(w.End.Sub(w.Start))
			}
		}
		if s.Main != "" && sum[s.Main] < 0.6*all {
			t.Errorf("%s: %s is %.2f of waiting", s.Name, s.Main, sum[s.Main]/all)
		}
		for _, c := range map[string][]string{
			"light": {"step", "prefill"}, "slots and memory": {"slots", "kv_cache"}, "short stalls": {"stall"},
		}[s.Name] {
			if sum[c] < 0.05*all {
				t.Errorf("%s: %s is %.2f of waiting", s.Name, c, sum[c]/all)
			}
		}
		if (s.Blocks > 0) != (preempted > 0) {
			t.Errorf("%s: %d preemptions with %d blocks", s.Name, preempted, s.Blocks)
		}
	}
	for _, c := range []string{"hold", "stall", "slots", "kv_cache", "prefill"} {
		if !mains[c] {
			t.Errorf("no scenario of %s", c)
		}
	}
}
