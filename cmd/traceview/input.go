package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/ingest"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

// input holds the flags that say what is read: they mean the same in every
// command.
type input struct {
	env *environment

	where, set          []string
	from, to            string
	year                int
	zone                string
	maxRecord, maxInput string
	maxOpen             int
	memory              string // empty: a quarter of the machine's
	strict              bool
}

func (in *input) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&in.where, "where", nil, "only requests whose `KEY=VALUE` holds; again with the same key: or, with another: and")
	f.StringVar(&in.from, "from", "", "only requests that arrived at or after `TIME`: RFC 3339, or an offset from the first arrival such as 30s")
	f.StringVar(&in.to, "to", "", "only requests that arrived before `TIME`, written likewise")
	f.StringArrayVar(&in.set, "set", nil, "state `KEY=VALUE` (model, service, replica or an attribute) where the input does not say it; KEY:=VALUE also where it does")
	f.IntVar(&in.year, "year", 0, "the `YEAR` of a log's first line, whose stamps have none")
	f.StringVar(&in.zone, "zone", "", "the time `ZONE` of stamps that have none, such as UTC or Europe/Berlin")
	f.StringVar(&in.maxRecord, "max-record", "256MiB", "the largest `SIZE` of one record (span batch, log line)")
	f.StringVar(&in.maxInput, "max-input", "1TiB", "the largest `SIZE` of one input once decompressed")
	f.StringVar(&in.memory, "memory", "", "the `SIZE` that spans may take that wait for the rest of their trace, before they go to a temporary file (default: a quarter of the machine's memory)")
	f.IntVar(&in.maxOpen, "max-open", 4_000_000, "how many `SPANS` may wait for the rest of their trace")
	f.BoolVar(&in.strict, "strict", false, "exit with status 3 if any record was dropped")
}

// inputArgs wants at least one operand.
func inputArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no input: name files or folders, or - for standard input (%s --help)", cmd.CommandPath())
	}
	return nil
}

// source is the inputs of one run, opened, and what is to be left out of them.
type source struct {
	inputs []ingest.Input
	opts   ingest.Options
	filter analyze.Filter
	origin analyze.Origin // what offsets of the window count from
	tally  *ingest.Tally
	unmet  int64 // requests that --where left out
	// aside is called with each request that the filters leave out: it held
	// its engine all the same. Nil: nobody asks.
	aside func(*trace.Request)
	stop  func() // of the progress line

	lengths, claims int64 // of the requests that fits has seen, nanoseconds
}

// errSum says that sums of durations would not be exact.
var errSum = errors.New("the requests' times add up to more than 292 years, which int64 nanoseconds cannot hold: look at the longest (traceview export --format csv), and leave them out with --where")

// fits returns errSum where r's time, or what its source claims of it, would
// make the sum over all requests overflow. Whoever sums asks.
func (s *source) fits(r *trace.Request) error {
	ok := true
	add := func(sum *int64, d time.Duration) {
		ok = ok && int64(d) <= math.MaxInt64-*sum
		*sum += int64(d)
	}
	if start, end, known := r.Extent(); known {
		add(&s.lengths, end.Sub(start))
	}
	for _, iv := range r.Intervals {
		add(&s.claims, iv.End.Sub(iv.Start))
	}
	if !ok {
		return errSum
	}
	return nil
}

func (in *input) open(args []string) (*source, error) {
	s := &source{tally: ingest.NewTally()}
	var err error
	if s.opts, err = in.options(); err != nil {
		return nil, err
	}
	if s.filter, err = in.filter(); err != nil {
		return nil, err
	}
	if s.inputs, err = ingest.Open(args, in.env.stdin); err != nil {
		return nil, err
	}
	in.env.inputs = s.inputs
	s.stop = in.progress(&s.opts, s.inputs)
	return s, nil
}

// names lists the inputs as the user knows them.
func (s *source) names() []string {
	var names []string
	for _, i := range s.inputs {
		names = append(names, i.Name)
	}
	return names
}

// each calls fn with every request that meets the conditions, whenever it
// arrived. Issues go into the tally.
func (s *source) each(ctx context.Context, fn func(*trace.Request) error) error {
	defer s.stop()
	for r, err := range ingest.Requests(ctx, s.inputs, s.opts) {
		var issue *trace.Issue
		switch {
		case errors.As(err, &issue):
			s.tally.Add(issue)
			continue
		case err != nil:
			return err
		}
		s.tally.AddRequest(r)
		if !s.filter.Apply(r) {
			s.unmet++
			s.leave(r)
			continue
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

// eachInWindow calls fn with every request that meets the conditions and
// arrived in the window. Where a bound counts from the first arrival, the
// requests are kept until all have been seen.
func (s *source) eachInWindow(ctx context.Context, fn func(*trace.Request) error) error {
	if !s.filter.NeedsOrigin() {
		return s.each(ctx, func(r *trace.Request) error {
			if !s.filter.InWindow(r, &s.origin) {
				s.leave(r)
				return nil
			}
			return fn(r)
		})
	}
	var kept []*trace.Request
	if err := s.each(ctx, func(r *trace.Request) error {
		s.origin.See(r)
		kept = append(kept, r)
		return nil
	}); err != nil {
		return err
	}
	for _, r := range kept {
		if !s.filter.InWindow(r, &s.origin) {
			s.leave(r)
			continue
		}
		if err := fn(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) leave(r *trace.Request) {
	if s.aside != nil {
		s.aside(r)
	}
}

// window is the observation window that the user stated, once all has been
// read.
func (s *source) window() (start, end trace.Opt[trace.Time]) { return s.filter.Window(&s.origin) }

func (in *input) options() (ingest.Options, error) {
	opts := ingest.Options{Year: in.year, MaxOpen: in.maxOpen}
	var err error
	if opts.MaxRecord, err = units.ParseBytes(in.maxRecord); err != nil {
		return opts, usagef("--max-record: %w", err)
	}
	if opts.MaxInput, err = units.ParseBytes(in.maxInput); err != nil {
		return opts, usagef("--max-input: %w", err)
	}
	if opts.MaxRecord < 1 || opts.MaxInput < 1 {
		return opts, usagef("--max-record and --max-input: must be at least 1 byte")
	}
	if in.year != 0 && (in.year < 1970 || in.year > 2261) {
		return opts, usagef("--year: %d is outside 1970 to 2261", in.year)
	}
	if in.maxOpen < 1 {
		return opts, usagef("--max-open: must be at least 1")
	}
	if opts.Memory = machineMemory() / 4; in.memory != "" {
		if opts.Memory, err = units.ParseBytes(in.memory); err != nil {
			return opts, usagef("--memory: %w", err)
		}
		if opts.Memory < 1 {
			return opts, usagef("--memory: must be at least 1 byte")
		}
	}
	if in.zone != "" {
		if opts.Zone, err = time.LoadLocation(in.zone); err != nil {
			return opts, usagef("--zone: %q is not a time zone (write UTC or Europe/Berlin)", in.zone)
		}
	}
	return opts, nil
}

func (in *input) filter() (f analyze.Filter, err error) {
	for _, w := range in.where {
		c, err := analyze.ParseWhere(w)
		if err != nil {
			return f, usagef("--where: %w", err)
		}
		f.Where = append(f.Where, c)
	}
	for _, w := range in.set {
		c, err := analyze.ParseSet(w)
		if err != nil {
			return f, usagef("--set: %w", err)
		}
		f.Set = append(f.Set, c)
	}
	if in.from != "" {
		if f.From, err = analyze.ParseBound(in.from); err != nil {
			return f, usagef("--from: %w", err)
		}
	}
	if in.to != "" {
		if f.To, err = analyze.ParseBound(in.to); err != nil {
			return f, usagef("--to: %w", err)
		}
	}
	if f.Empty() {
		return f, usagef("--from %s is not before --to %s: no request can have arrived between them", in.from, in.to)
	}
	return f, nil
}

// finish reports the issues on standard error in one line, and turns dropped
// records into an error where --strict was given. Where there were no
// requests, it says why.
func (in *input) finish(s *source, args []string, requests int64) error {
	if requests == 0 && s.unmet > 0 {
		in.env.warn("--where %s: none of %s meets it", strings.Join(in.where, " --where "), counted(s.unmet, "request", "requests"))
	} else if requests == 0 {
		for _, c := range s.tally.Summary() {
			in.env.warn("%v", &c.First[0])
		}
	}
	dropped, degraded := s.tally.Dropped(), s.tally.Degraded()
	if dropped+degraded > 0 {
		in.env.warn("%s; see: traceview check %s", join(counted(dropped, "dropped", "dropped"), counted(degraded, "degraded", "degraded")), quoteArgs(args))
	}
	if in.strict && dropped > 0 {
		return droppedError{dropped}
	}
	return nil
}

func counted(n int64, one, many string) string {
	switch n {
	case 0:
		return ""
	case 1:
		return "1 " + one
	}
	return units.Count(n) + " " + many
}

func join(parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, ", ")
}

// quoteArgs writes operands as a shell reads them.
func quoteArgs(args []string) string {
	var out []string
	for _, a := range args {
		if strings.ContainsFunc(a, func(r rune) bool { return !strings.ContainsRune("./-_+=:,@%", r) && !isWord(r) }) || a == "" {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}

func isWord(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
}

// progress shows on a terminal how far a run is that takes longer than a
// second. The returned function wipes the line.
func (in *input) progress(opts *ingest.Options, inputs []ingest.Input) (stop func()) {
	if !isTerminal(in.env.stderr) {
		return func() {}
	}
	var total int64
	for _, i := range inputs {
		if i.Size < 0 {
			total = -1
			break
		}
		total += i.Size
	}
	start, last, shown := time.Now(), time.Time{}, false
	opts.Progress = func(n int64) {
		now := time.Now()
		if now.Sub(start) < time.Second || now.Sub(last) < 200*time.Millisecond {
			return
		}
		last, shown = now, true
		rate := units.Bytes(int64(float64(n)/now.Sub(start).Seconds())) + "/s"
		if total > 0 {
			fmt.Fprintf(in.env.stderr, "\r\x1b[Kreading %s of %s, %s", units.Bytes(n), units.Bytes(total), rate)
		} else {
			fmt.Fprintf(in.env.stderr, "\r\x1b[Kreading %s, %s", units.Bytes(n), rate)
		}
	}
	return func() {
		if shown {
			fmt.Fprint(in.env.stderr, "\r\x1b[K")
		}
	}
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// width is the number of columns to print to w.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n >= 40 {
			return min(n, 140)
		}
	}
	return 100
}

// colour reports whether w may be coloured.
func colour(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("NO_COLOR") == ""
}

// distinct refuses keys of a flag that are empty or given twice.
func distinct(flag string, keys []string) error {
	for i, k := range keys {
		if strings.TrimSpace(k) == "" || slices.Contains(keys[:i], k) {
			return usagef("--%s: the key %q is empty or given twice", flag, k)
		}
	}
	return nil
}
