package export

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/traceview/traceview/analyze"
)

// WriteJSON writes a report as one JSON object, indented, with a newline at its
// end. [JSONKeys] describes the keys. Keys are never renamed; they are added,
// and "version" grows if one changes its meaning. Durations are integers of
// nanoseconds, times integers on the measurement's clock, shares are 0 to 1.
// What is not known is null, never 0 and never left out. Lists are sorted as
// described.
func WriteJSON(w io.Writer, r *analyze.Report) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// JSONKey describes a key of the report in JSON. Lists are marked by []; a key
// that ends in * stands for all that begin so.
type JSONKey struct{ Key, Unit, Meaning string }

func (k JSONKey) covers(path string) bool {
	if p, ok := strings.CutSuffix(k.Key, "*"); ok {
		return strings.HasPrefix(path, p)
	}
	return path == k.Key
}

// DescribeJSON returns what [JSONKeys] says of a key.
func DescribeJSON(path string) (JSONKey, bool) {
	for _, k := range JSONKeys {
		if k.covers(path) {
			return k, true
		}
	}
	return JSONKey{}, false
}

// JSONKeys describes every key of the report, in its order.
var JSONKeys = []JSONKey{
	{"version", "", "version of this shape"},
	{"verdict[]", "", "sentences: where the time goes, why requests waited and what helps, what makes the slowest slow"},

	{"counts.requests", "requests", "in the window"},
	{"counts.outcomes[].*", "requests", "by outcome: ok, error, aborted, rejected, incomplete; zeros too"},
	{"counts.not_ok_share", "share", "of the requests that were not served"},
	{"counts.not_ok_mark", "", "true above 1 %: quantiles over ok requests alone may look better than it was"},
	{"counts.used", "requests", "in the latency figures: ok, with arrival and end"},
	{"counts.left_out[].*", "requests", "not in the latency figures, by reason; most first"},
	{"counts.inconsistent", "requests", "whose source claims time twice, outside the request or for phases that exclude each other"},
	{"counts.overlap_ns", "ns", "claimed more than once, beyond the first time"},
	{"counts.outside_ns", "ns", "claimed outside the request"},
	{"counts.conflict_ns", "ns", "claimed for phases that exclude each other"},
	{"counts.not_in_window", "requests", "arrived outside --from and --to: counted in throughput, concurrency and waiting as far as they lie in the window, in no other figure"},
	{"counts.readings", "", "statements of engines about their own state"},

	{"measurement.clock", "", "unix, monotonic, relative, unknown; mixed where requests are on several; empty without requests"},
	{"measurement.resolution_ns", "ns", "the coarsest clock step of the requests used and of those that tell of waiting; of all where there are none"},
	{"measurement.coarser_requests", "requests", "whose clock step is coarser than that: no figure of phases, ttft, tpot, e2e or waiting is of them"},
	{"measurement.window.stated", "", "true where --from or --to set it; else first arrival to last completion"},
	{"measurement.window.start_ns", "ns", "on the clock"},
	{"measurement.window.end_ns", "ns", "on the clock"},
	{"measurement.window.length_ns", "ns", "what rates divide by"},
	{"measurement.window.start", "", "RFC 3339, UTC; empty unless the clock is unix"},
	{"measurement.window.end", "", "likewise"},
	{"measurement.offered_requests_per_s", "1/s", "arrivals in the window / its length"},
	{"measurement.throughput_requests_per_s", "1/s", "requests completed ok in the window / its length"},
	{"measurement.prompt_tokens_per_s", "1/s", "prompt tokens of those"},
	{"measurement.output_tokens_per_s", "1/s", "output tokens of those"},
	{"measurement.goodput_requests_per_s", "1/s", "of those that met every objective; null without objectives"},
	{"measurement.objectives[]", "", "the objectives"},
	{"measurement.concurrency_mean", "", "requests in the system (arrival ≤ t < completed), over the window; null where some have no known end"},
	{"measurement.concurrency_peak", "", "most at once; null likewise"},
	{"measurement.concurrency_mean_low", "", "the mean if requests without a known end had left when last seen"},
	{"measurement.concurrency_mean_high", "", "the mean if they had stayed to the end of the window"},
	{"measurement.waiting_mean", "", "requests waiting, where the source tells"},
	{"measurement.waiting_peak", "", "most at once"},
	{"measurement.request_time_ns", "ns", "sum over all requests: they overlap, so this is no busy time"},
	{"measurement.prompt_tokens.*", "tokens", "prompt lengths over the requests that report them: requests, total, mean, max, quantiles"},
	{"measurement.cached_tokens.*", "tokens", "prompt tokens found in the prefix cache, likewise"},
	{"measurement.output_tokens.*", "tokens", "output lengths, likewise"},
	{"measurement.services[].*", "requests", "by service; most first, here and below; empty: not in the data"},
	{"measurement.versions[].*", "requests", "by service.version, over the whole input"},
	{"measurement.models[].*", "requests", "by model"},
	{"measurement.replicas[].*", "requests", "by replica"},
	{"measurement.engines[].*", "requests", "by engine"},
	{"measurement.formats[].*", "requests", "by input format"},
	{"measurement.files[].*", "requests", "by input file"},
	{"measurement.hardware[].*", "", "attributes of the machine (host.*, gpu.*, hw.*, k8s.node.name, cloud.region) with their values, over the whole input"},
	{"measurement.sampling[].*", "", "attributes that tell how traces were chosen, likewise"},

	{"phases[].name", "", "arrival, queueing, prefill, decode, transfer, preempted, completion, sets such as queueing|prefill, unattributed"},
	{"phases[].requests", "requests", "used requests whose source reports the phase; the quantiles are over these"},
	{"phases[].total_ns", "ns", "over the used requests, exact; all phases add up to the total of e2e"},
	{"phases[].mean_ns", "ns", "over all used requests; all phases add up to the mean of e2e"},
	{"phases[].min_ns", "ns", "over the requests that report it"},
	{"phases[].max_ns", "ns", "likewise"},
	{"phases[].quantiles[].q", "", "0.99 is p99"},
	{"phases[].quantiles[].ns", "ns", "type 7 (linear), rounded"},
	{"phases[].quantiles[].interval.low_ns", "ns", "95 % interval by inverted batch means over slices of time; null: not bounded by the data"},
	{"phases[].quantiles[].interval.high_ns", "ns", "likewise"},
	{"phases[].quantiles[].interval.slices", "", "slices of time"},
	{"phases[].quantiles[].interval.n_eff", "", "independent requests that would tell as much; at most the requests"},
	{"phases[].quantiles[].supported", "", "false: fewer than ten independent requests lie beyond the quantile"},
	{"phases[].kind", "", "waiting, compute, overhead, unsplit (a set of several kinds), unknown (unattributed)"},
	{"phases[].total_all_ns", "ns", "over all requests, used or not: what Parquet and pprof add up to"},
	{"phases[].share", "share", "of the used requests' e2e"},

	{"kinds[].kind", "", "waiting, compute, overhead, unsplit, unknown"},
	{"kinds[].total_ns", "ns", "over the used requests"},
	{"kinds[].total_all_ns", "ns", "over all requests"},
	{"kinds[].mean_ns", "ns", "over the used requests"},
	{"kinds[].share", "share", "of the used requests' e2e"},

	{"figures[].name", "", "ttft, tpot, e2e"},
	{"figures[].requests", "requests", "used requests that have the figure"},
	{"figures[].total_ns", "ns", "their sum"},
	{"figures[].mean_ns", "ns", "over the requests that have it"},
	{"figures[].min_ns", "ns", "the least"},
	{"figures[].max_ns", "ns", "the greatest"},
	{"figures[].quantiles[].*", "", "as in phases"},

	{"waiting.waiting_ns", "ns", "waiting of all requests in the window: total_all_ns of the kind waiting; null where no request tells"},
	{"waiting.confidence", "share", "of it whose cause survives small errors of the limits and of the step model; below 0.6 do not rank causes"},
	{"waiting.hidden_ns", "ns", "of it whose cause assumes holders that are not in the data"},
	{"waiting.avoidable_ns", "ns", "of it while another replica of the model had no queue and a free slot"},
	{"waiting.causes[].cause", "", "hold, stall, slots, kv_cache, prefill, step, unknown; zeros too"},
	{"waiting.causes[].remedy", "", "what helps"},
	{"waiting.causes[].ns", "ns", "the causes add up to waiting_ns exactly"},
	{"waiting.causes[].share", "share", "of waiting_ns"},
	{"waiting.causes[].basis", "", "derived or inferred; empty without waiting, and of unknown"},
	{"waiting.causes[].confidence", "share", "as above, of this cause; null of unknown"},
	{"waiting.causes[].hidden_ns", "ns", "as above"},
	{"waiting.causes[].avoidable_ns", "ns", "as above"},

	{"tail.band", "", "which requests are the slow ones, by e2e"},
	{"tail.requests", "requests", "how many"},
	{"tail.from_ns", "ns", "the least e2e among them"},
	{"tail.median_band", "", "what they stand beside"},
	{"tail.median_requests", "requests", "how many"},
	{"tail.mean_ns", "ns", "mean e2e of the slow ones"},
	{"tail.median_mean_ns", "ns", "mean e2e around the median"},
	{"tail.difference_ns", "ns", "the one less the other"},
	{"tail.phases[].*", "ns", "the same by phase, which add up exactly"},
	{"tail.causes[].*", "ns", "the waiting phases together by cause, which add up to them exactly"},
	{"tail.stands_out[].key", "", "an attribute or derived key whose value the slow requests have more often than all others, beyond chance; the most over-represented first"},
	{"tail.stands_out[].value", "", "the value"},
	{"tail.stands_out[].requests", "requests", "of the slow ones that have it"},
	{"tail.stands_out[].used", "requests", "of all used ones that have it"},
	{"tail.stands_out[].band_share", "share", "of the slow ones"},
	{"tail.stands_out[].rest_share", "share", "of all others"},
	{"tail.stands_out[].times", "", "the one over the other; null where no other request has it"},
	{"tail.stands_out[].p", "", "how often chance alone shows as much: the larger of a hypergeometric and, for spells, a sign test over slices of time"},
	{"tail.tested_values", "", "values looked at: that ten requests have and not all; what is shown keeps the false share below 5 %"},

	{"examples[].q", "", "the quantile of e2e that the request stands for"},
	{"examples[].e2e_ns", "ns", "its e2e"},
	{"examples[].id", "", "its id, else its trace's; may be empty"},
	{"examples[].file", "", "where it stands"},
	{"examples[].line", "", "1-based; 0: not known"},
	{"examples[].offset", "", "bytes into the decompressed file"},
	{"examples[].path", "", "inside the record"},
	{"examples[].phases[].*", "ns", "its phases, which add up to its e2e"},

	{"groups[].by[]", "", "the keys of the grouping"},
	{"groups[].rows[].values[]", "", "one for each key; null where the data do not say"},
	{"groups[].rows[].requests", "requests", "in the group; groups are sorted by waiting, then by e2e"},
	{"groups[].rows[].used", "requests", "of these in latency figures"},
	{"groups[].rows[].waiting_all_ns", "ns", "waiting of all its requests; null where no source tells"},
	{"groups[].rows[].waiting_share", "share", "of all waiting"},
	{"groups[].rows[].mean_waiting_ns", "ns", "over its used requests whose source tells"},
	{"groups[].rows[].e2e_total_ns", "ns", "over its used requests"},
	{"groups[].rows[].mean_e2e_ns", "ns", "likewise"},
	{"groups[].rows[].p50_e2e_ns", "ns", "likewise"},
	{"groups[].rows[].p99_e2e_ns", "ns", "likewise"},
	{"groups[].rows[].p99_supported", "", "as in phases"},
	{"groups[].rows[].p50_e2e_interval*", "ns", "as in phases; null where the group is too small for one"},
	{"groups[].rows[].p99_e2e_interval*", "ns", "likewise"},

	{"engine_readings[].engine", "", "who stated it"},
	{"engine_readings[].service", "", "may be empty"},
	{"engine_readings[].replica", "", "may be empty"},
	{"engine_readings[].file", "", "where it stands"},
	{"engine_readings[].samples", "", "readings"},
	{"engine_readings[].start_ns", "ns", "time of the first"},
	{"engine_readings[].end_ns", "ns", "time of the last"},
	{"engine_readings[].running_mean", "", "over time, each reading standing until the next"},
	{"engine_readings[].running_max", "", "the most in one reading"},
	{"engine_readings[].waiting_mean", "", "likewise"},
	{"engine_readings[].waiting_max", "", "the most in one reading"},
	{"engine_readings[].kv_usage_mean_share", "share", "of the KV cache in use, likewise"},
	{"engine_readings[].kv_usage_max_share", "share", "the most in one reading"},
	{"engine_readings[].preemptions", "", "the largest count stated"},
	{"engine_readings[].slots", "requests", "that it runs at once, as its log states when it starts"},
	{"engine_readings[].budget_tokens", "tokens", "that it computes in a step, likewise"},
	{"engine_readings[].kv_tokens", "tokens", "that fit into its KV cache, likewise"},

	{"inferred_wait.arrivals", "requests", "that arrived between the first and the last reading"},
	{"inferred_wait.mean_ns", "ns", "mean wait by Little's law; only where no request tells its own wait"},
	{"inferred_wait.low_ns", "ns", "with the lesser of two neighbouring readings throughout"},
	{"inferred_wait.high_ns", "ns", "with the greater"},

	{"littles_law[].replica", "", "null: over all"},
	{"littles_law[].mean_waiting", "", "requests waiting, over the window"},
	{"littles_law[].arrivals_per_s", "1/s", "arrival rate"},
	{"littles_law[].mean_wait_ns", "ns", "of the requests that tell"},
	{"littles_law[].deviation_share", "share", "of rate × wait from the mean number waiting"},
	{"littles_law[].beyond_1_percent", "", "whether the law is off by more than 1 %"},
	{"littles_law[].reason", "", "empty unless beyond 1 %"},

	{"limits[]", "", "what this measurement cannot tell, in sentences"},
}
