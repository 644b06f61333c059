package analyze

import "github.com/traceview/traceview/trace"

// ReportVersion is the version of the shape of [Report]. It grows when a key
// changes its meaning; added keys do not change it.
const ReportVersion = 1

// Report is the answer of an [Analyzer]: where the time of the requests went.
// It is plain data. Durations are whole nanoseconds, keys end in their unit,
// and what is not known is absent (null in JSON), never 0.
//
// "Used" requests are those that latency figures speak of: outcome ok (unless
// [Options.AllOutcomes]), arrival and completion known. Totals are given over
// the used requests (total_ns) and over all of them (total_all_ns), the
// incomplete ones as far as they got.
type Report struct {
	Version int            `json:"version"`
	Verdict []string       `json:"verdict"` // sentences for people
	Counts  Counts         `json:"counts"`
	Card    Card           `json:"measurement"`
	Phases  []PhaseRow     `json:"phases"`  // in the order of a request's life, unattributed last
	Kinds   []KindRow      `json:"kinds"`   // all five, in the order of trace.Kinds
	Figures []Distribution `json:"figures"` // ttft, tpot, e2e
	// Waiting is why all requests in the window waited; null where none tells
	// that it did.
	Waiting  *ReportWaiting `json:"waiting"`
	Tail     *Tail          `json:"tail"` // null where fewer than two requests are used
	Examples []Example      `json:"examples"`
	Groups   []Grouping     `json:"groups"`
	Engines  []EngineState  `json:"engine_readings"`
	// LogWait is the mean wait that an engine's own counts imply, where no
	// request tells how long it waited.
	LogWait *LittleWait   `json:"inferred_wait"`
	Little  []LittleCheck `json:"littles_law"`
	Limits  []string      `json:"limits"` // what this measurement cannot tell, for people
}

// NamedCount is how many requests have a name.
type NamedCount struct {
	Name     string `json:"name"`
	Requests int64  `json:"requests"`
}

// Counts says what became of every request that was offered.
type Counts struct {
	Requests int64        `json:"requests"` // in the window; all that the figures below divide
	Outcomes []NamedCount `json:"outcomes"` // all five, zeros too
	// NotOKShare is the share of requests that were not served. Above 1 % a
	// percentile over ok requests alone is marked (NotOKMark).
	NotOKShare trace.Opt[float64] `json:"not_ok_share"`
	NotOKMark  bool               `json:"not_ok_mark"`

	Used    int64        `json:"used"`     // in the latency figures
	LeftOut []NamedCount `json:"left_out"` // of the latency figures, by reason; sums to Requests − Used

	// Requests whose claims contradict each other or their extent, and by how
	// much. The time is in no phase total.
	Inconsistent int64 `json:"inconsistent"`
	OverlapNS    int64 `json:"overlap_ns"`  // claimed more than once, beyond the first time
	OutsideNS    int64 `json:"outside_ns"`  // claimed outside the request
	ConflictNS   int64 `json:"conflict_ns"` // claimed for phases that exclude each other

	NotInWindow int64 `json:"not_in_window"` // arrived outside From and To: only in rates of completions and in concurrency
	Readings    int64 `json:"readings"`      // statements of engines about their state
}

// Card is what one has to know of a measurement before comparing it.
type Card struct {
	Clock        string           `json:"clock"`            // "unix", "monotonic", "relative", "unknown"; "mixed"; "" without requests
	ResolutionNS trace.Opt[int64] `json:"resolution_ns"`    // of the requests used and of those that tell of waiting; of all where there are none
	Coarser      int64            `json:"coarser_requests"` // whose clock step is coarser than that
	Window       *Window          `json:"window"`           // null where requests share no clock or have no arrival

	// Rates over the window. Arrivals; requests completed ok inside it; their
	// tokens; those that met every objective.
	OfferedPerS      trace.Opt[float64] `json:"offered_requests_per_s"`
	ThroughputPerS   trace.Opt[float64] `json:"throughput_requests_per_s"`
	PromptTokensPerS trace.Opt[float64] `json:"prompt_tokens_per_s"`
	OutputTokensPerS trace.Opt[float64] `json:"output_tokens_per_s"`
	GoodputPerS      trace.Opt[float64] `json:"goodput_requests_per_s"`
	Objectives       []string           `json:"objectives"`

	// Requests in the system (arrival ≤ t < completed) and, where the source
	// tells, waiting, over the window. Where requests have no known end, the
	// mean lies between Low, as if they had left when last seen, and High, as
	// if they had stayed; Mean and Peak are null then.
	ConcurrencyMean trace.Opt[float64] `json:"concurrency_mean"`
	ConcurrencyPeak trace.Opt[int64]   `json:"concurrency_peak"`
	ConcurrencyLow  trace.Opt[float64] `json:"concurrency_mean_low"`
	ConcurrencyHigh trace.Opt[float64] `json:"concurrency_mean_high"`
	WaitingMean     trace.Opt[float64] `json:"waiting_mean"`
	WaitingPeak     trace.Opt[int64]   `json:"waiting_peak"`
	// RequestTimeNS is the sum of the extents of all requests: request-seconds.
	// Requests overlap, so that it may exceed the window; it is no busy time.
	RequestTimeNS int64 `json:"request_time_ns"`

	PromptTokens Tokens `json:"prompt_tokens"`
	CachedTokens Tokens `json:"cached_tokens"`
	OutputTokens Tokens `json:"output_tokens"`

	Services []NamedCount `json:"services"`
	Versions []NamedCount `json:"versions"`
	Models   []NamedCount `json:"models"`
	Replicas []NamedCount `json:"replicas"`
	Engines  []NamedCount `json:"engines"`
	Formats  []NamedCount `json:"formats"`
	Files    []NamedCount `json:"files"`
	Hardware []AttrValues `json:"hardware"` // host.*, gpu.*, …: empty where not in the data
	Sampling []AttrValues `json:"sampling"` // what the data say of how they were sampled
}

// Window is the stretch of time that rates refer to.
type Window struct {
	Stated   bool   `json:"stated"`   // by From and To; else first arrival to last completion
	StartNS  int64  `json:"start_ns"` // on the card's clock
	EndNS    int64  `json:"end_ns"`
	LengthNS int64  `json:"length_ns"`
	Start    string `json:"start"` // RFC 3339, UTC; "" unless the clock is unix
	End      string `json:"end"`
}

// Tokens is the distribution of a token count over the requests that report it.
type Tokens struct {
	Requests  int64              `json:"requests"`
	Total     int64              `json:"total_tokens"`
	Mean      trace.Opt[float64] `json:"mean_tokens"`
	Max       trace.Opt[int64]   `json:"max_tokens"`
	Quantiles []TokenQuantile    `json:"quantiles"`
}

// TokenQuantile is a quantile (type 7, rounded to whole tokens).
type TokenQuantile struct {
	Q      float64 `json:"q"`
	Tokens int64   `json:"tokens"`
}

// AttrValues is an attribute with its values over all requests.
type AttrValues struct {
	Key    string       `json:"key"`
	Values []NamedCount `json:"values"`
}

// Distribution is a duration over some requests.
type Distribution struct {
	Name      string           `json:"name"`     // "e2e", "ttft", "tpot", or a phase
	Requests  int64            `json:"requests"` // that have it, among the used
	TotalNS   int64            `json:"total_ns"` // exact; for tpot the sum of per-request figures
	MeanNS    trace.Opt[int64] `json:"mean_ns"`  // rounded; see Name's metric for what it divides by
	MinNS     trace.Opt[int64] `json:"min_ns"`
	MaxNS     trace.Opt[int64] `json:"max_ns"`
	Quantiles []Quantile       `json:"quantiles"` // over the requests that have it
}

// Quantile is a quantile of type 7, rounded to whole nanoseconds, with the
// 95 % interval that is right for requests that queue behind each other.
type Quantile struct {
	Q  float64 `json:"q"`
	NS int64   `json:"ns"`
	// Interval is null where none can be given: too few requests, or none with
	// a place in time.
	Interval *Interval `json:"interval"`
	// Supported is false where the effective sample is too small for this
	// quantile: E = n_eff · min(q, 1−q) below 10, or no interval.
	Supported bool `json:"supported"`
}

// Interval is a confidence interval of 95 %. An absent end is not bounded by
// the data.
type Interval struct {
	LowNS  trace.Opt[int64]   `json:"low_ns"`
	HighNS trace.Opt[int64]   `json:"high_ns"`
	Slices int                `json:"slices"` // of time that it was computed from
	NEff   trace.Opt[float64] `json:"n_eff"`  // independent requests that would tell as much
}

// PhaseRow is a phase's line. Its MeanNS divides by all used requests, so that
// means add up to the mean of e2e; its quantiles are over the Requests whose
// source reports the phase, be it with zero length.
type PhaseRow struct {
	Distribution
	Kind       string             `json:"kind"`
	TotalAllNS int64              `json:"total_all_ns"` // over all requests, used or not
	Share      trace.Opt[float64] `json:"share"`        // of the used requests' e2e
}

// KindRow is the time of one kind.
type KindRow struct {
	Kind       string             `json:"kind"`
	TotalNS    int64              `json:"total_ns"`
	TotalAllNS int64              `json:"total_all_ns"`
	MeanNS     trace.Opt[int64]   `json:"mean_ns"`
	Share      trace.Opt[float64] `json:"share"`
}

// ReportWaiting is the waiting by cause over all requests in the window, used
// or not. The causes sum exactly to WaitingNS, which is total_all_ns of the
// kind waiting. [WaitResult] has more.
type ReportWaiting struct {
	WaitingNS   int64              `json:"waiting_ns"`
	Confidence  trace.Opt[float64] `json:"confidence"` // null where nothing waited
	HiddenNS    int64              `json:"hidden_ns"`
	AvoidableNS int64              `json:"avoidable_ns"`
	Causes      []CauseRow         `json:"causes"` // in the order of [Causes], those without waiting too
}

// Tail sets the slowest requests by e2e beside those around the median. The
// differences by phase sum exactly to the difference in e2e; those by cause
// exactly to those of the waiting phases together.
type Tail struct {
	Band           string      `json:"band"` // "slowest 1 %", "slowest 3 requests"
	Requests       int64       `json:"requests"`
	FromNS         int64       `json:"from_ns"`         // the least e2e in the band
	MedianBand     string      `json:"median_band"`     // "p45 to p55"
	MedianRequests int64       `json:"median_requests"` //
	MeanNS         int64       `json:"mean_ns"`         // of e2e over the band
	MedianMeanNS   int64       `json:"median_mean_ns"`
	DifferenceNS   int64       `json:"difference_ns"`
	Phases         []TailPhase `json:"phases"`
	Causes         []TailCause `json:"causes"` // of the waiting; in the order of [Causes], none empty
	// StandsOut are the values of attributes and derived keys that the slow
	// requests have more often than all others, by more than chance explains;
	// the most over-represented first. TestedValues is how many values were
	// looked at: those that ten requests have and not all.
	StandsOut    []StandOut `json:"stands_out"`
	TestedValues int64      `json:"tested_values"`
}

// TailPhase is a phase's part in a tail.
type TailPhase struct {
	Phase        string `json:"phase"`
	Kind         string `json:"kind"`
	MeanNS       int64  `json:"mean_ns"`
	MedianMeanNS int64  `json:"median_mean_ns"`
	DifferenceNS int64  `json:"difference_ns"`
}

// TailCause is a cause's part in the waiting of a tail.
type TailCause struct {
	Cause        string `json:"cause"`
	MeanNS       int64  `json:"mean_ns"`
	MedianMeanNS int64  `json:"median_mean_ns"`
	DifferenceNS int64  `json:"difference_ns"`
}

// Example is the real request whose e2e is nearest in rank to a quantile: its
// phases sum to exactly its e2e.
type Example struct {
	Q      float64       `json:"q"`
	E2ENS  int64         `json:"e2e_ns"`
	ID     string        `json:"id"` // the request's; else of its trace; else ""
	File   string        `json:"file"`
	Line   int           `json:"line"`   // 1-based; 0: not known
	Offset int64         `json:"offset"` // bytes
	Path   string        `json:"path"`
	Phases []PhaseAmount `json:"phases"`
}

// Pos is where the example stands in the input.
func (e *Example) Pos() trace.Pos {
	return trace.Pos{File: e.File, Line: e.Line, Offset: e.Offset, Path: e.Path}
}

// PhaseAmount is a phase's time in one request.
type PhaseAmount struct {
	Phase string `json:"phase"`
	NS    int64  `json:"ns"`
}

// Grouping divides the requests by keys. Rows are sorted by who waits most;
// where no waiting is known, by who takes most time.
type Grouping struct {
	By   []string `json:"by"`
	Rows []Group  `json:"rows"`
}

// Group is the requests that agree in the values of a grouping.
type Group struct {
	Values       []trace.Opt[string] `json:"values"` // one a key; null where the data do not say
	Requests     int64               `json:"requests"`
	Used         int64               `json:"used"`
	WaitingAllNS trace.Opt[int64]    `json:"waiting_all_ns"` // over all its requests; null where no source tells
	WaitingShare trace.Opt[float64]  `json:"waiting_share"`  // of all waiting
	WaitingMean  trace.Opt[int64]    `json:"mean_waiting_ns"`
	E2ETotalNS   int64               `json:"e2e_total_ns"` // over the used
	E2EMean      trace.Opt[int64]    `json:"mean_e2e_ns"`
	E2EP50       trace.Opt[int64]    `json:"p50_e2e_ns"`
	E2EP99       trace.Opt[int64]    `json:"p99_e2e_ns"`
	P99Supported bool                `json:"p99_supported"` // as of a Quantile
	// Nil where the group is too small for one.
	E2EP50Interval *Interval `json:"p50_e2e_interval"`
	E2EP99Interval *Interval `json:"p99_e2e_interval"`
}

// EngineState sums up what one engine stated of itself. Means are over time,
// each reading standing until the next.
type EngineState struct {
	Engine      string             `json:"engine"`
	Service     string             `json:"service"`
	Replica     string             `json:"replica"`
	File        string             `json:"file"`
	Samples     int64              `json:"samples"`
	StartNS     int64              `json:"start_ns"`
	EndNS       int64              `json:"end_ns"`
	RunningMean trace.Opt[float64] `json:"running_mean"`
	RunningMax  trace.Opt[int64]   `json:"running_max"`
	WaitingMean trace.Opt[float64] `json:"waiting_mean"`
	WaitingMax  trace.Opt[int64]   `json:"waiting_max"`
	KVUsageMean trace.Opt[float64] `json:"kv_usage_mean_share"`
	KVUsageMax  trace.Opt[float64] `json:"kv_usage_max_share"`
	Preemptions trace.Opt[int64]   `json:"preemptions"` // the largest count stated
	// Limits as its log states them when it starts, the last time it did.
	Slots    trace.Opt[int64] `json:"slots"`
	Budget   trace.Opt[int64] `json:"budget_tokens"`
	KVTokens trace.Opt[int64] `json:"kv_tokens"`
}

// LittleWait is a mean wait by Little's law: ∫ waiting dt / arrivals, inferred
// from an engine's counts. LowNS and HighNS take the lesser and the greater of
// the two readings on each side of a stretch for the whole stretch: they hold
// if the depth stays between neighbouring readings.
type LittleWait struct {
	Arrivals int64 `json:"arrivals"`
	MeanNS   int64 `json:"mean_ns"`
	LowNS    int64 `json:"low_ns"`
	HighNS   int64 `json:"high_ns"`
}

// LittleCheck compares the mean number waiting with arrival rate × mean wait.
type LittleCheck struct {
	Replica       trace.Opt[string]  `json:"replica"` // null: over all
	MeanWaiting   float64            `json:"mean_waiting"`
	ArrivalsPerS  float64            `json:"arrivals_per_s"`
	MeanWaitNS    int64              `json:"mean_wait_ns"`
	Deviation     trace.Opt[float64] `json:"deviation_share"` // of the product from the measured mean
	BeyondPercent bool               `json:"beyond_1_percent"`
	Reason        string             `json:"reason"` // "" unless beyond 1 %
}
