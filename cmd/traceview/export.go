package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
	"github.com/traceview/traceview/trace"
)

var exportFormats = []string{"parquet", "pprof", "csv", string(export.Mooncake), string(export.BurstGPT)}

// isWorkload reports whether an output is of arrivals and lengths alone.
func isWorkload(o output) bool {
	return o.kind == string(export.Mooncake) || o.kind == string(export.BurstGPT)
}

func newExport(env *environment) *cobra.Command {
	e := &exporter{in: &input{env: env}}
	var (
		outs   []string
		format string
		limits engineLimits
	)
	cmd := &cobra.Command{
		Use:   "export [flags] -o OUT FILE...",
		Short: "Write the phase table (Parquet, CSV), the waiting profile (pprof), a workload",
		Long: `export writes one row a request with its instants, phases, causes of waiting and
attributes as a Parquet or CSV table, and profiles that go tool pprof and its
web view show. Several -o are written in one pass over the input; an OUT that
is a folder gets all tables and a schema.md. Outputs appear whole or not at all.

A profile's --frames are grouping keys, phase and cause; or, to see who made
whom wait, waiter and holder with cause, service, model, replica: waiter above
holder asks whom a class waited for, holder above waiter whom it kept waiting.

--format mooncake (JSON lines) and burstgpt (CSV) write the workload: when each
request arrived and how many tokens it has, for tools that replay such files. No
text of any request is in it.

Causes need all requests at once: with --no-causes tables are written as the
input is read, in memory that does not grow.`,
		Example: `  traceview export -o phases.parquet -o waiting.pb.gz trace.jsonl
  traceview export -o tables/ traces/
  traceview export --column tenant --set model=llama-8b -o phases.parquet traces/
  traceview export --frames tenant,replica,phase,cause -o waiting.pb.gz trace.jsonl
  traceview export --frames waiter,cause,holder -o blame.pb.gz trace.jsonl
  traceview export --format mooncake -o workload.jsonl trace.jsonl
  go tool pprof -top waiting.pb.gz
  go tool pprof -tagfocus=band=p99-p100 -top waiting.pb.gz`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(outs) == 0 {
				outs = []string{"-"}
			}
			var err error
			if e.outs, err = outputs(env, outs, format); err != nil {
				return err
			}
			if err := e.open(cmd, &limits, args); err != nil {
				return err
			}
			undo, err := makeFolders(e.outs)
			if err == nil {
				err = e.write(cmd.Context(), e.outs)
			}
			if err != nil {
				undo()
				return err
			}
			e.in.env.warnOfMissing(e.missing, e.rows)
			for _, w := range e.workloads {
				if w.LeftOut > 0 {
					env.warn("%s left out of the workload: no arrival, or not both token counts", counted(w.LeftOut, "request", "requests"))
				}
			}
			if e.rows == 0 {
				env.warn("no requests: the output has no rows")
			} else if !slices.ContainsFunc(e.outs, func(o output) bool { return target(o.path) == "standard output" }) {
				env.warn("%s: %s", strings.Join(outs, ", "), counted(e.rows, "row", "rows"))
			}
			return e.in.finish(e.src, args, e.rows)
		},
	}
	e.in.addFlags(cmd)
	limits.addFlags(cmd)
	fl := cmd.Flags()
	fl.StringArrayVarP(&outs, "output", "o", nil, "write to `OUT`; the suffix says the format: .parquet, .csv, .pb.gz; a folder gets all tables; may be given several times")
	fl.StringVar(&format, "format", "", "`FORMAT` of the outputs: "+strings.Join(exportFormats, ", "))
	fl.StringSliceVar(&e.columns, "column", nil, "attribute `NAMES` that become columns of their own")
	fl.StringSliceVar(&e.frames, "frames", nil, "`KEYS` of a profile's frames, root first (default "+strings.Join(analyze.DefaultFrames, ",")+")")
	fl.StringSliceVar(&e.by, "by", nil, "divide those who wait and those who hold by these `KEYS` (default: by tenant, where requests have one)")
	fl.BoolVar(&e.noCauses, "no-causes", false, "leave the causes of waiting out")
	return cmd
}

// output is one file to be written, and what goes into it: a format, or a
// table of a folder.
type output struct {
	path, kind string
	folder     string // that was asked for, and is made where it is not there; empty: a file was
}

// folder is what a folder gets.
var folder = []struct{ name, kind string }{
	{"phases.parquet", "parquet"},
	{"waiting.parquet", "waiting"},
	{"blame.parquet", "blame"},
	{"timeline.parquet", "timeline"},
	{"schema.md", "schema"},
}

// outputs finds out what each -o asks for.
func outputs(env *environment, outs []string, format string) (list []output, err error) {
	stdouts := 0
	for _, o := range outs {
		if info, err := os.Stat(o); err == nil && info.IsDir() || strings.HasSuffix(o, "/") {
			if format != "" && format != "parquet" {
				return nil, usagef("-o %s is a folder: it gets all tables as Parquet, so leave --format %s out", o, format)
			}
			for _, f := range folder {
				list = append(list, output{filepath.Join(o, f.name), f.kind, o})
			}
			continue
		}
		f, err := chooseFormat(format, o, "", exportFormats)
		if err != nil {
			return nil, err
		}
		if err := env.refuseTerminal(o, f); err != nil {
			return nil, err
		}
		if target(o) == "standard output" {
			stdouts++
		}
		list = append(list, output{path: o, kind: f})
	}
	if stdouts > 1 {
		return nil, usagef("only one output can go to standard output")
	}
	for i, o := range list {
		if target(o.path) != "standard output" && slices.ContainsFunc(list[:i], func(p output) bool { return filepath.Clean(p.path) == filepath.Clean(o.path) }) {
			return nil, usagef("-o %s is given twice", o.path)
		}
	}
	return list, nil
}

// makeFolders makes the folders that were asked for and are not there. A file's
// own folder has to be there. undo takes away again what was made, as far as it
// is empty: for where nothing could be written.
func makeFolders(outs []output) (undo func(), err error) {
	var made []string // inner ones last
	undo = func() {
		for _, dir := range slices.Backward(made) {
			os.Remove(dir)
		}
	}
	for _, o := range outs {
		if o.folder == "" {
			continue
		}
		var missing []string
		for dir := filepath.Clean(o.folder); ; dir = filepath.Dir(dir) {
			if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
				break
			}
			missing = append(missing, dir)
		}
		for _, dir := range slices.Backward(missing) {
			if err := os.Mkdir(dir, 0o777); err != nil {
				return undo, err
			}
			made = append(made, dir)
		}
	}
	return undo, nil
}

// exporter writes the outputs of one run.
type exporter struct {
	in                  *input
	outs                []output
	columns, frames, by []string
	noCauses            bool
	waitOpts            analyze.WaitOptions

	src       *source
	sinks     []sink                // the tables that take a request at a time
	workloads []*export.Workload    // those of them
	stacks    *analyze.StackBuilder // nil: no profile of requests is asked for
	waits     *analyze.Waits        // nil: no causes are asked for
	kept      []*trace.Request      // until the causes are known
	why       *analyze.WaitResult
	waiting   *analyze.Table // nil: not asked for
	windows   *analyze.Windows
	series    *analyze.Table // of the windows
	rows      int64
	span      analyze.Span
	missing   []string // keys that were asked for and that no request had so far
}

// sink is a table that takes a request at a time, with what is known of why it
// waited.
type sink interface {
	Write(*trace.Request, *analyze.RowWaits) error
	Close() error
}

func (e *exporter) has(kinds ...string) bool {
	return slices.ContainsFunc(e.outs, func(o output) bool { return slices.Contains(kinds, o.kind) })
}

// ownFrames are the frames that are no keys of requests.
var ownFrames = []string{analyze.PhaseFrame, analyze.CauseFrame, "waiter", "holder"}

// blames reports whether the profile is one of classes.
func (e *exporter) blames() bool {
	return slices.Contains(e.frames, "waiter") || slices.Contains(e.frames, "holder")
}

// open makes all ready to read the inputs.
func (e *exporter) open(cmd *cobra.Command, limits *engineLimits, args []string) (err error) {
	if e.waitOpts, err = limits.options(cmd); err != nil {
		return err
	}
	e.waitOpts.By = e.by
	if err := e.check(); err != nil {
		return err
	}
	e.src, err = e.in.open(args)
	return err
}

// check refuses what does not go together, and prepares what is asked for.
func (e *exporter) check() error {
	if err := distinct("frames", e.frames); err != nil {
		return err
	}
	if err := distinct("by", e.by); err != nil {
		return err
	}
	for _, k := range slices.Concat(e.by, e.columns, e.frames) {
		if !slices.Contains(ownFrames, k) && !slices.Contains(e.missing, k) {
			e.missing = append(e.missing, k)
		}
	}
	if len(e.frames) > 0 && !e.has("pprof") {
		return usagef("--frames is for profiles; none of the outputs is one")
	}
	if e.noCauses {
		if e.blames() || slices.Contains(e.frames, analyze.CauseFrame) || e.has("waiting", "blame", "timeline") {
			return usagef("--no-causes leaves nothing to write of causes, waiters and holders")
		}
	} else if slices.ContainsFunc(e.outs, func(o output) bool { return !isWorkload(o) }) {
		e.waits = analyze.NewWaits(e.waitOpts)
	}
	if e.has("pprof") {
		if e.blames() {
			if _, err := analyze.BlameStacks(&analyze.WaitResult{}, e.frames); err != nil {
				return usageError{fmt.Errorf("--frames: %w", err)}
			}
		} else {
			e.stacks = analyze.NewStacks(analyze.StackOptions{Frames: e.frames})
		}
	}
	if e.has("waiting") {
		e.waiting = analyze.WaitingTable()
	}
	if e.has("timeline") {
		e.windows = analyze.NewWindows(analyze.WindowOptions{})
	}
	return nil
}

// write reads the input and writes the outputs. Each is a nested write, so that
// all of them end together: none takes its place unless all input was read.
func (e *exporter) write(ctx context.Context, outs []output) error {
	if len(outs) == 0 {
		return e.read(ctx)
	}
	o, rest := outs[0], outs[1:]
	popts := export.ParquetOptions{Columns: e.columns, Version: version(), Inputs: e.src.names(), Window: e.src.window}
	return e.in.env.write(o.path, func(w io.Writer) error {
		var t sink
		var err error
		switch o.kind {
		case "parquet":
			t, err = export.NewParquet(w, popts)
		case "csv":
			t, err = export.NewRows(w, popts)
		case string(export.Mooncake), string(export.BurstGPT):
			x := export.NewWorkload(w, export.WorkloadFormat(o.kind))
			e.workloads = append(e.workloads, x)
			t = x
		}
		if err != nil {
			return usageError{err}
		}
		if t != nil {
			e.sinks = append(e.sinks, t)
		}
		if err := e.write(ctx, rest); err != nil {
			return err
		}
		switch o.kind {
		case "pprof":
			st, err := e.profile()
			if err != nil {
				return err
			}
			return export.WritePprof(w, st)
		case "waiting":
			return export.WriteTable(w, e.waiting, popts)
		case "blame":
			return export.WriteTable(w, e.why.BlameTable(), popts)
		case "timeline":
			return export.WriteTable(w, e.series, popts)
		case "schema":
			return export.WriteSchema(w, e.schema())
		}
		return t.Close()
	})
}

// read reads the input once and hands each request to what is to be written.
func (e *exporter) read(ctx context.Context) error {
	if e.waits != nil {
		e.src.aside = e.waits.Aside
		e.src.opts.Limits = e.waits.AddLimits
		e.src.opts.Reading = func(r trace.Reading) {
			e.waits.AddReading(r)
			if e.windows != nil {
				e.windows.AddReading(r)
			}
		}
	}
	if err := e.src.eachInWindow(ctx, func(r *trace.Request) error {
		e.rows++
		e.span.See(r)
		e.missing = slices.DeleteFunc(e.missing, func(k string) bool {
			_, ok := analyze.Key(r, k)
			return ok
		})
		if e.has("pprof", "blame") {
			if err := e.src.fits(r); err != nil {
				return err
			}
		}
		if e.stacks != nil {
			e.stacks.Add(r)
		}
		if e.waits == nil {
			return e.emit(r, nil)
		}
		e.waits.Add(r)
		if e.windows != nil {
			e.windows.Add(r)
		}
		if len(e.sinks) > 0 || e.waiting != nil {
			e.kept = append(e.kept, r)
		}
		return nil
	}); err != nil {
		return err
	}
	if e.rows == 0 && e.src.nothingRead() {
		return e.src.nothing()
	}
	if e.waits == nil {
		return nil
	}
	e.why = e.waits.Result()
	if e.windows != nil {
		series, err := e.windows.Result(e.why.Parts)
		if err != nil {
			return err
		}
		e.series = series.Table()
	}
	for i, r := range e.kept {
		row := e.why.Row(i)
		if err := e.emit(r, &row); err != nil {
			return err
		}
		if e.waiting != nil {
			e.why.AppendParts(e.waiting, i, r)
		}
	}
	return nil
}

func (e *exporter) emit(r *trace.Request, why *analyze.RowWaits) error {
	for _, t := range e.sinks {
		if err := t.Write(r, why); err != nil {
			return err
		}
	}
	return nil
}

// profile is the one that --frames asks for, over the stated window.
func (e *exporter) profile() (st *analyze.Stacks, err error) {
	if e.stacks != nil {
		st = e.stacks.Stacks(e.why)
	} else if st, err = analyze.BlameStacks(e.why, e.frames); err != nil {
		return nil, err
	}
	st.Start, st.End = e.span.Bounds()
	start, end := e.src.window()
	if start.Present() {
		st.Start = start
	}
	if end.Present() {
		st.End = end
	}
	return st, nil
}

// tableDocs says what the tables of a folder are, whatever the input.
func tableDocs() []export.SchemaOf {
	return []export.SchemaOf{
		{File: "phases.parquet", Meaning: "One row a request, in the order of the input. The phases, the sets, `other_sets_ns` and `unattributed_ns` (null as 0) add up to `e2e_ns`; the causes add up to `waiting_ns`.", Columns: export.ParquetColumns()},
		{File: "waiting.parquet", Meaning: "One row a stretch of one request's waiting that has one cause.", Columns: export.TableColumns(analyze.WaitingTable())},
		{File: "blame.parquet", Meaning: "The waiting as charged to those who held the replica meanwhile. `ns` adds up to all waiting.", Columns: export.TableColumns((&analyze.WaitResult{}).BlameTable())},
		{File: "timeline.parquet", Meaning: "One row a window of time of each series: all requests, and each replica. Times by phase and by cause are cut at the borders of windows and add up to those of phases.parquet.", Columns: export.TableColumns((&analyze.WindowResult{}).Table())},
	}
}

// schema says what the tables of a folder are, and what this run's classes are.
func (e *exporter) schema() []export.SchemaOf {
	docs := tableDocs()
	for i := range docs {
		if docs[i].File == "blame.parquet" {
			docs[i].Meaning += " Classes are values of " + classes(e.why.By) + "; charged by " + weighting(e.why.Weighting) + "."
		}
	}
	return docs
}

func weighting(w string) string {
	if w == "equal" {
		return "equal shares"
	}
	return "what each holds of the thing that is scarce"
}

func classes(by []string) string {
	if len(by) == 0 {
		return "no key: all requests are one class"
	}
	return "`" + strings.Join(by, "`, `") + "`"
}

// warn prints a line on standard error.
func (env *environment) warn(format string, args ...any) {
	fmt.Fprintf(visible{env.stderr}, "traceview: "+format+"\n", args...)
}
