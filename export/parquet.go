package export

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/trace"
)

// ParquetSchema is the version of the Parquet table's schema, in the file's
// metadata under "traceview.schema". It rises when a column is added; no
// column is ever renamed or changes its type, unit or meaning.
const ParquetSchema = 1

// The keys of the file's metadata. All values are text.
const (
	ParquetSchemaKey  = "traceview.schema"                 // [ParquetSchema]
	ParquetVersionKey = "traceview.version"                // of the command
	ParquetInputsKey  = "traceview.inputs"                 // a JSON array of names
	ParquetStartKey   = "traceview.window_start_unix_nano" // of the observation window
	ParquetEndKey     = "traceview.window_end_unix_nano"   // likewise
)

const (
	// parquetRowGroup is the default number of rows in a group. A group is the
	// unit that readers skip and read in parallel, so smaller is better for
	// them, while compression and the footer gain from larger ones. 65,536
	// requests are some 30 MB before compression, with which the writer's
	// memory stays at about 60 MB whatever the number of rows.
	parquetRowGroup = 1 << 16
	// parquetGroupBytes ends a group early where attributes are long.
	parquetGroupBytes = 64 << 20
)

// ParquetOptions says what goes into the table beyond its fixed columns. The
// zero value works.
type ParquetOptions struct {
	// Columns are grouping keys (see [analyze.Key]), each of which becomes a
	// text column of its own after the fixed ones.
	Columns []string
	// Window gives the observation window where it was stated; Close asks for
	// it. Nil, or for an end that is absent: first arrival and last completion
	// of the rows, if all are on the unix clock; else the file names no window.
	Window   func() (start, end trace.Opt[trace.Time])
	Version  string   // of the command; empty: left out of the metadata
	Inputs   []string // names of the inputs; empty: left out of the metadata
	RowGroup int      // rows in a group; 0: 65,536
}

// ColumnDoc describes a column of the table.
type ColumnDoc struct {
	Name    string
	Type    string // "string", "timestamp", "int64", "double", "list<string>", "map<string, string>", "map<string, int64>"
	Unit    string // what the number counts, "ns" or "tokens"; empty: no number
	Meaning string // what it says, and when it is null
}

// ParquetColumns describes the fixed columns, in order.
func ParquetColumns() []ColumnDoc {
	docs := make([]ColumnDoc, len(parquetColumns))
	for i, c := range parquetColumns {
		docs[i] = c.ColumnDoc
	}
	return docs
}

// A ParquetWriter writes requests as a Parquet table, one row each, with the
// columns of [ParquetColumns], compressed with zstd. It keeps one row group in
// memory, whatever the number of rows. The same requests in the same order
// give the same bytes.
type ParquetWriter struct {
	w       *parquet.GenericWriter[any]
	columns []requestColumn
	opts    ParquetOptions
	window  analyze.Span
	row     requestRow
	values  []parquet.Value
	rows    int
	bytes   int
}

// NewParquet returns a writer of the table to w. It fails where a name in
// Columns is empty, repeats, or is that of a fixed column; letter case makes
// no difference, since it makes none to SQL.
func NewParquet(w io.Writer, o ParquetOptions) (*ParquetWriter, error) {
	columns, err := withColumns(o.Columns)
	if err != nil {
		return nil, err
	}
	if o.RowGroup <= 0 {
		o.RowGroup = parquetRowGroup
	}
	group := make(parquet.Group, len(columns))
	for _, c := range columns {
		group[c.Name] = c.node
	}
	p := &ParquetWriter{columns: columns, opts: o}
	p.w = parquet.NewGenericWriter[any](w,
		parquet.NewSchema("request", orderedGroup{group, columns}),
		parquet.Compression(&parquet.Zstd),
		parquet.CreatedBy("traceview", cmp.Or(o.Version, "unknown"), ""))
	return p, nil
}

// withColumns returns the fixed columns and one for each of the keys.
func withColumns(keys []string) ([]requestColumn, error) {
	columns := slices.Clone(parquetColumns)
	names := make(map[string]bool)
	for _, c := range columns {
		names[c.Name] = true
	}
	for _, key := range keys {
		if key == "" {
			return nil, fmt.Errorf("a column needs a name")
		}
		low := strings.ToLower(key)
		if names[low] {
			return nil, fmt.Errorf("column %q is there already; see the attributes column, or choose another", key)
		}
		names[low] = true
		columns = append(columns, textColumn(key, "the value of this key; null where the data do not say", func(r *requestRow) (string, bool) {
			return analyze.Key(r.Request, key)
		}))
	}
	return columns, nil
}

// Write adds a row: a request and why it waited, nil where that was not asked.
// It keeps nothing of either.
func (p *ParquetWriter) Write(r *trace.Request, why *analyze.RowWaits) error {
	p.window.See(r)
	p.row.set(r, why)
	p.values = p.values[:0]
	leaf := 0
	for i := range p.columns {
		p.values = p.columns[i].put(p.values, &p.row, leaf)
		leaf += p.columns[i].leaves
	}
	if _, err := p.w.WriteRows([]parquet.Row{p.values}); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	p.rows++
	p.bytes += 8*leaf + len(p.row.text)
	if p.rows >= p.opts.RowGroup || p.bytes >= parquetGroupBytes {
		p.rows, p.bytes = 0, 0
		if err := p.w.Flush(); err != nil {
			return fmt.Errorf("parquet: %w", err)
		}
	}
	return nil
}

// Close writes what is left and the file's metadata. It does not close the
// underlying writer. Without Close there is no readable file.
func (p *ParquetWriter) Close() error {
	if err := p.opts.describe(p.w); err != nil {
		return err
	}
	set := p.w.SetKeyValueMetadata
	start, end := p.window.Bounds()
	if p.opts.Window != nil {
		s, e := p.opts.Window()
		if s.Present() {
			start = s
		}
		if e.Present() {
			end = e
		}
	}
	if t, ok := start.Get(); ok {
		set(ParquetStartKey, strconv.FormatInt(int64(t), 10))
	}
	if t, ok := end.Get(); ok {
		set(ParquetEndKey, strconv.FormatInt(int64(t), 10))
	}
	if err := p.w.Close(); err != nil {
		return fmt.Errorf("parquet: %w", err)
	}
	return nil
}

// describe says in a file's metadata what wrote it, and from what.
func (o *ParquetOptions) describe(w interface{ SetKeyValueMetadata(key, value string) }) error {
	w.SetKeyValueMetadata(ParquetSchemaKey, strconv.Itoa(ParquetSchema))
	if o.Version != "" {
		w.SetKeyValueMetadata(ParquetVersionKey, valid(o.Version))
	}
	if len(o.Inputs) > 0 {
		names, err := json.Marshal(o.Inputs)
		if err != nil {
			return fmt.Errorf("parquet: %w", err)
		}
		w.SetKeyValueMetadata(ParquetInputsKey, string(names))
	}
	return nil
}

// requestRow is a request with what its columns need.
type requestRow struct {
	*trace.Request
	why     *analyze.RowWaits
	sets    [128]amount   // time attributed to each set of phases
	claimed []trace.Phase // sets with claims
	b       trace.Breakdown
	extent  bool   // there is an instant at all
	n       int64  // its number
	text    []byte // backs the row's text values
}

// amount is the time of a set of phases. It is told where some of the time is
// attributed to that set, or where the source claims a stretch for it that
// comes to nothing: then 0 is a known 0. A wider set all of whose time narrower
// claims took says nothing of its own. What is not told is null.
type amount struct {
	ns   int64
	told bool
}

func (r *requestRow) set(req *trace.Request, why *analyze.RowWaits) {
	if r.Request != nil {
		r.n++
	}
	r.Request, r.why, r.text = req, why, r.text[:0]
	_, _, r.extent = req.Extent()
	r.b = req.Breakdown()
	r.sets = [128]amount{}
	r.claimed = r.claimed[:0]
	for _, iv := range req.Intervals {
		if !r.sets[iv.Phase].told {
			r.sets[iv.Phase].told = true
			r.claimed = append(r.claimed, iv.Phase)
		}
	}
	for _, p := range r.claimed {
		r.sets[p].told = !slices.ContainsFunc(r.claimed, func(q trace.Phase) bool { return q != p && q&^p == 0 })
	}
	for _, p := range r.b.Parts {
		r.sets[p.Phase] = amount{int64(p.Dur), true}
	}
}

// kind sums the sets of a kind; it is told where one of them is.
func (r *requestRow) kind(k trace.Kind) (sum amount) {
	for p := range r.sets {
		if a := r.sets[p]; a.told && trace.Phase(p).Kind() == k {
			sum.ns += a.ns
			sum.told = true
		}
	}
	return sum
}

// others calls f for each set that has no column of its own, ascending.
func (r *requestRow) others(f func(trace.Phase, int64)) {
	for p := range r.sets {
		if a := r.sets[p]; a.told && !slices.Contains(ownColumn, trace.Phase(p)) {
			f(trace.Phase(p), a.ns)
		}
	}
}

// ownColumn are the sets with a column of their own.
var ownColumn = analyze.PhaseColumns()

const (
	frontend        = trace.Arrival | trace.Completion
	queueingPrefill = trace.Queueing | trace.Prefill
	prefillDecode   = trace.Prefill | trace.Decode
)

// string makes a value that lives as long as the row.
func (r *requestRow) string(s string) parquet.Value {
	from := len(r.text)
	r.text = append(r.text, valid(s)...)
	return parquet.ByteArrayValue(r.text[from:len(r.text):len(r.text)])
}

// valid replaces what is not UTF-8, which Parquet strings must be.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// requestColumn is a column of the table and how a row fills it. leaves counts the
// physical columns that it is made of, the first of which has index leaf.
type requestColumn struct {
	ColumnDoc
	node   parquet.Node
	leaves int
	put    func(dst []parquet.Value, r *requestRow, leaf int) []parquet.Value
}

// orderedGroup is a group that keeps the order of its columns, where
// parquet.Group sorts them by name.
type orderedGroup struct {
	parquet.Group
	columns []requestColumn
}

func (g orderedGroup) Fields() []parquet.Field {
	byName := make(map[string]parquet.Field, len(g.columns))
	for _, f := range g.Group.Fields() {
		byName[f.Name()] = f
	}
	fields := make([]parquet.Field, len(g.columns))
	for i, c := range g.columns {
		fields[i] = byName[c.Name]
	}
	return fields
}

// scalar makes an optional column of one value.
func scalar(doc ColumnDoc, node parquet.Node, get func(*requestRow) (parquet.Value, bool)) requestColumn {
	return requestColumn{doc, parquet.Optional(node), 1, func(dst []parquet.Value, r *requestRow, leaf int) []parquet.Value {
		v, ok := get(r)
		if !ok {
			return append(dst, parquet.NullValue().Level(0, 0, leaf))
		}
		return append(dst, v.Level(0, 1, leaf))
	}}
}

// idColumn is text that hardly repeats, so that a dictionary would be waste.
func idColumn(name, meaning string, get func(*requestRow) (string, bool)) requestColumn {
	return scalar(ColumnDoc{name, "string", "", meaning}, parquet.String(), func(r *requestRow) (parquet.Value, bool) {
		s, ok := get(r)
		if !ok {
			return parquet.Value{}, false
		}
		return r.string(s), true
	})
}

func textColumn(name, meaning string, get func(*requestRow) (string, bool)) requestColumn {
	c := idColumn(name, meaning, get)
	c.node = parquet.Optional(parquet.Encoded(parquet.String(), &parquet.RLEDictionary))
	return c
}

func timeColumn(name, meaning string, get func(*requestRow) trace.Instant) requestColumn {
	return scalar(ColumnDoc{name, "timestamp", "ns", meaning}, parquet.Timestamp(parquet.Nanosecond), func(r *requestRow) (parquet.Value, bool) {
		t, ok := get(r).Get()
		return parquet.Int64Value(int64(t)), ok && r.Clock == trace.ClockUnix
	})
}

func intColumn(name, unit, meaning string, get func(*requestRow) (int64, bool)) requestColumn {
	return scalar(ColumnDoc{name, "int64", unit, meaning}, parquet.Int(64), func(r *requestRow) (parquet.Value, bool) {
		n, ok := get(r)
		return parquet.Int64Value(n), ok
	})
}

func setColumn(p trace.Phase, meaning string) requestColumn {
	return intColumn(analyze.PhaseColumn(p), "ns", meaning, func(r *requestRow) (int64, bool) { return r.sets[p].ns, r.sets[p].told })
}

func kindColumn(name, meaning string, k trace.Kind) requestColumn {
	return intColumn(name, "ns", meaning, func(r *requestRow) (int64, bool) {
		a := r.kind(k)
		return a.ns, a.told
	})
}

// causeColumn is a column of the waiting's causes.
func causeColumn(c analyze.Cause, meaning string) requestColumn {
	return intColumn(analyze.CauseColumn(c), "ns", meaning, func(r *requestRow) (int64, bool) {
		if r.why == nil || !r.kind(trace.Waiting).told {
			return 0, false
		}
		return r.why.ByCause[c], true
	})
}

func countColumn(name, unit, meaning string, get func(*requestRow) trace.Opt[int]) requestColumn {
	return intColumn(name, unit, meaning, func(r *requestRow) (int64, bool) {
		n, ok := get(r).Get()
		return int64(n), ok
	})
}

// given makes "" absent.
func given(s string) (string, bool) { return s, s != "" }

// repetition is the level of the i-th entry of a list or map.
func repetition(i int) int { return min(i, 1) }

// parquetColumns is the schema: the one place where columns are named, filled
// and explained.
var parquetColumns = []requestColumn{
	idColumn("request_id", "the engine's id of the request; null where it has none", func(r *requestRow) (string, bool) { return given(r.ID) }),
	idColumn("trace_id", "the trace, lower-case hexadecimal; null where there is none", func(r *requestRow) (string, bool) { return given(r.TraceID) }),
	textColumn("source", "how the input was written: otlp-json, vllm-log, …; null where not known", func(r *requestRow) (string, bool) { return given(r.Source.Format) }),
	textColumn("engine", "who wrote it: vllm-v1, …; null where not known", func(r *requestRow) (string, bool) { return given(r.Source.Engine) }),
	textColumn("service", "the service; null where the data do not say", func(r *requestRow) (string, bool) { return given(r.Service) }),
	textColumn("replica", "the replica of the service; null where the data do not say", func(r *requestRow) (string, bool) { return given(r.Replica) }),
	textColumn("model", "the model; null where the data do not say", func(r *requestRow) (string, bool) { return given(r.Model) }),
	textColumn("outcome", "ok, error, aborted, rejected or incomplete", func(r *requestRow) (string, bool) { return r.Outcome.String(), true }),
	textColumn("finish_reason", "why generation ended, in the source's words; null where it does not say", func(r *requestRow) (string, bool) { return given(r.FinishReason) }),

	timeColumn("arrival", "the outermost observed service received the request; this and the other instants are null where not known and where the clock is not unix", func(r *requestRow) trace.Instant { return r.Arrival }),
	timeColumn("queued", "it entered the engine's queue; null likewise", func(r *requestRow) trace.Instant { return r.Queued }),
	timeColumn("scheduled", "the scheduler first gave it work; null likewise", func(r *requestRow) trace.Instant { return r.Scheduled }),
	timeColumn("first_token", "the first output token existed; null likewise", func(r *requestRow) trace.Instant { return r.FirstToken }),
	timeColumn("last_token", "the last output token existed; null likewise", func(r *requestRow) trace.Instant { return r.LastToken }),
	timeColumn("completed", "the outermost observed service was done; null likewise", func(r *requestRow) trace.Instant { return r.Completed }),
	intColumn("arrival_unix_nano", "ns", "arrival as nanoseconds since 1970-01-01 UTC, for readers that cut timestamps to microseconds; null as arrival is", func(r *requestRow) (int64, bool) {
		t, ok := r.Arrival.Get()
		return int64(t), ok && r.Clock == trace.ClockUnix
	}),

	intColumn("e2e_ns", "ns", "completed − arrival; null where one is not known. The phases, the sets, other_sets_ns and unattributed_ns, null as 0, add up to it exactly; where it is null they go as far as the request was seen", func(r *requestRow) (int64, bool) {
		d, ok := r.E2E().Get()
		return int64(d), ok
	}),
	intColumn("ttft_ns", "ns", "first token − arrival; null where one is not known", func(r *requestRow) (int64, bool) {
		d, ok := r.TTFT().Get()
		return int64(d), ok
	}),
	setColumn(trace.Arrival, "received, not yet queued. Phases and sets are null where the source claims nothing for them, and 0 where a claim comes to nothing"),
	setColumn(trace.Queueing, "in the engine's queue before it first got work; null likewise"),
	setColumn(trace.Prefill, "from scheduled to the first token; null likewise"),
	setColumn(trace.Decode, "from the first token to the last, less preempted; with preempted_ns null an upper bound"),
	setColumn(trace.Preempted, "pushed back to the queue until resumed; null likewise"),
	setColumn(trace.Transfer, "KV cache on its way between engines; null likewise"),
	setColumn(trace.Completion, "after the last token: detokenising, streaming, network; null likewise"),
	setColumn(frontend, "arrival or completion: the source does not split them; null likewise"),
	setColumn(queueingPrefill, "queueing or prefill: the source does not split them; null likewise"),
	setColumn(prefillDecode, "prefill or decode: the source does not split them; null likewise"),
	intColumn(analyze.PhaseColumn(trace.Unattributed), "ns", "what the source leaves unexplained; null where no instant is known", func(r *requestRow) (int64, bool) {
		return int64(r.b.Unattributed), r.extent
	}),
	kindColumn("waiting_ns", "queueing + preempted and sets of them; null where none is told, and without those that are not", trace.Waiting),
	kindColumn("compute_ns", "prefill + decode and sets of them; null likewise", trace.Compute),
	kindColumn("overhead_ns", "arrival + transfer + completion and sets of them; null likewise", trace.Overhead),
	intColumn("overlap_ns", "ns", "claimed again beyond the first time; this and the next two are beside e2e_ns, not part of it, and null where no instant is known", func(r *requestRow) (int64, bool) {
		return int64(r.b.Overlap), r.extent
	}),
	intColumn("outside_ns", "ns", "claimed before arrival or after the end; null likewise", func(r *requestRow) (int64, bool) { return int64(r.b.Outside), r.extent }),
	intColumn("conflict_ns", "ns", "part of the phases' time on which claims had nothing in common; null likewise", func(r *requestRow) (int64, bool) { return int64(r.b.Conflict), r.extent }),
	scalar(ColumnDoc{"tpot_ns", "double", "ns", "(last token − first token) / (output tokens − 1); null below two tokens"}, parquet.Leaf(parquet.DoubleType), func(r *requestRow) (parquet.Value, bool) {
		v, ok := r.TPOT().Get()
		return parquet.DoubleValue(v), ok && !math.IsNaN(v) && !math.IsInf(v, 0)
	}),

	countColumn("prompt_tokens", "tokens", "tokens of the prompt; null where not reported", func(r *requestRow) trace.Opt[int] { return r.Input }),
	countColumn("cached_tokens", "tokens", "of these, found in the prefix cache; null where not reported", func(r *requestRow) trace.Opt[int] { return r.Cached }),
	countColumn("output_tokens", "tokens", "tokens produced; null where not reported", func(r *requestRow) trace.Opt[int] { return r.Output }),
	countColumn("max_tokens", "tokens", "tokens allowed to be produced; null where not reported", func(r *requestRow) trace.Opt[int] { return r.MaxTokens }),
	countColumn("preemptions", "times", "how often it was pushed back; null where not reported", func(r *requestRow) trace.Opt[int] { return r.Preemptions }),
	intColumn("resolution_ns", "ns", "the coarsest clock step behind the row's instants: no finer digit means anything; null where not known", func(r *requestRow) (int64, bool) {
		return int64(r.Resolution), r.Resolution > 0
	}),
	textColumn("clock", "unix, monotonic, relative or unknown; instants of different clocks do not compare", func(r *requestRow) (string, bool) { return r.Clock.String(), true }),

	{ColumnDoc{"issues", "list<string>", "", "codes of what was odd about the record, each once; empty where nothing was"},
		parquet.List(parquet.Encoded(parquet.String(), &parquet.RLEDictionary)), 1, putIssues},
	{ColumnDoc{"attributes", "map<string, string>", "", "all grouping keys of the record, values as text; a value is null where the key came without one"},
		parquet.Map(parquet.Encoded(parquet.String(), &parquet.RLEDictionary), parquet.Optional(parquet.String())), 2, putAttributes},
	intColumn(analyze.OtherSetsColumn, "ns", "time of sets that have no column of their own, summed; null where there are none", func(r *requestRow) (sum int64, told bool) {
		r.others(func(_ trace.Phase, ns int64) { sum, told = sum+ns, true })
		return sum, told
	}),
	{ColumnDoc{"other_sets", "map<string, int64>", "ns", "these sets by name, such as queueing|decode; empty where there are none"},
		parquet.Map(parquet.Encoded(parquet.String(), &parquet.RLEDictionary), parquet.Int(64)), 2, putOtherSets},

	causeColumn(analyze.CauseHold, "waited while nothing ran. The causes add up to waiting_ns; all are null where it is, and where causes were not asked for"),
	causeColumn(analyze.CauseStall, "waited while requests ran and nothing progressed; null likewise"),
	causeColumn(analyze.CauseSlots, "waited because all slots were taken; null likewise"),
	causeColumn(analyze.CauseKVCache, "waited because the next request did not fit into memory; null likewise"),
	causeColumn(analyze.CausePrefill, "waited because other prompts held the step; null likewise"),
	causeColumn(analyze.CauseStep, "waited for the step in flight to end; nothing was full; null likewise"),
	causeColumn(analyze.CauseUnknown, "waited for a cause that cannot be shown; null likewise"),
	intColumn("avoidable_ns", "ns", "of waiting_ns, at instants at which another replica of the model had no queue and a free slot; null likewise", func(r *requestRow) (int64, bool) {
		if r.why == nil || !r.kind(trace.Waiting).told {
			return 0, false
		}
		return r.why.AvoidableNS, true
	}),
	intColumn("charged_ns", "ns", "waiting of others that is charged to this request, which held the replica meanwhile; null where causes were not asked for, or it is not known when it ran", func(r *requestRow) (int64, bool) {
		if r.why == nil || !r.Scheduled.Present() {
			return 0, false
		}
		return r.why.ChargedNS, true
	}),
	intColumn("row", "", "number of the row, from 0; the waiting table refers to it", func(r *requestRow) (int64, bool) { return r.n, true }),
}

func putIssues(dst []parquet.Value, r *requestRow, leaf int) []parquet.Value {
	from := len(dst)
	for i, is := range r.Issues {
		// Issues are few, or of few codes.
		if !slices.ContainsFunc(r.Issues[:i], func(b trace.Issue) bool { return b.Code == is.Code }) {
			dst = append(dst, r.string(string(is.Code)).Level(repetition(len(dst)-from), 1, leaf))
		}
	}
	if len(dst) == from {
		dst = append(dst, parquet.NullValue().Level(0, 0, leaf))
	}
	return dst
}

func putAttributes(dst []parquet.Value, r *requestRow, leaf int) []parquet.Value {
	if len(r.Attrs) == 0 {
		return append(dst, parquet.NullValue().Level(0, 0, leaf), parquet.NullValue().Level(0, 0, leaf+1))
	}
	for i, a := range r.Attrs {
		dst = append(dst, r.string(a.Key).Level(repetition(i), 1, leaf))
	}
	for i, a := range r.Attrs {
		if a.Value.Kind() == trace.ValueNone {
			dst = append(dst, parquet.NullValue().Level(repetition(i), 1, leaf+1))
			continue
		}
		dst = append(dst, r.string(a.Value.String()).Level(repetition(i), 2, leaf+1))
	}
	return dst
}

func putOtherSets(dst []parquet.Value, r *requestRow, leaf int) []parquet.Value {
	from := len(dst)
	r.others(func(p trace.Phase, _ int64) {
		dst = append(dst, r.string(p.String()).Level(repetition(len(dst)-from), 1, leaf))
	})
	if len(dst) == from {
		return append(dst, parquet.NullValue().Level(0, 0, leaf), parquet.NullValue().Level(0, 0, leaf+1))
	}
	from = len(dst)
	r.others(func(_ trace.Phase, ns int64) {
		dst = append(dst, parquet.Int64Value(ns).Level(repetition(len(dst)-from), 1, leaf+1))
	})
	return dst
}
