package analyze

import "github.com/traceview/traceview/trace"

// Cause is why a nanosecond was waited. Every nanosecond of waiting has exactly
// one, so that causes sum to waiting.
type Cause uint8

const (
	CauseUnknown Cause = iota // none of the others can be shown
	CauseHold                 // nothing ran while work waited
	CauseStall                // requests ran and nothing progressed
	CauseSlots                // all slots were taken
	CauseKVCache              // the next request did not fit into memory
	CausePrefill              // other prompts held the step
	CauseStep                 // nothing was full: the step in flight had to end
)

var causes = [...]struct{ name, remedy string }{
	{"unknown", "more data"},
	{"hold", "the batching policy or its timeout"},
	{"stall", "find what froze"},
	{"slots", "a higher limit if memory and step time allow, else replicas"},
	{"kv_cache", "memory, shorter contexts, prefix reuse, replicas"},
	{"prefill", "chunk size and budget, separating long prompts or prefill from decode"},
	{"step", "shorter steps"},
}

func (c Cause) String() string {
	if int(c) < len(causes) {
		return causes[c].name
	}
	return "invalid"
}

// Remedy says what helps against the cause.
func (c Cause) Remedy() string {
	if int(c) < len(causes) {
		return causes[c].remedy
	}
	return ""
}

// Causes lists the causes in the order of reports.
func Causes() []Cause {
	return []Cause{CauseHold, CauseStall, CauseSlots, CauseKVCache, CausePrefill, CauseStep, CauseUnknown}
}

// WaitOptions says what is known beside the requests. The zero value works.
type WaitOptions struct {
	// Limits as stated; absent: taken from the data where it says them, else
	// inferred.
	Slots, Budget, KVTokens trace.Opt[int64]
	// By are the keys that divide waiters and holders into classes; empty: the
	// first tenant-like key that the requests have ([TenantKeys]), else one
	// class.
	By []string
	// Equal charges equal shares, whatever is scarce.
	Equal bool
}

// WaitPart is a stretch of one request's waiting with one cause.
type WaitPart struct {
	Start, End trace.Time
	Cause      Cause
	Hidden     bool // inferred from holders that the data do not show
	Avoidable  bool // another replica of the model had no queue and a free slot
}
