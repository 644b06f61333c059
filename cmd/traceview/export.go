package main

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
	"github.com/traceview/traceview/trace"
)

var exportFormats = []string{"parquet", "pprof", "csv"}

func newExport(env *environment) *cobra.Command {
	in := &input{env: env}
	var (
		outs, columns, frames []string
		format                string
	)
	cmd := &cobra.Command{
		Use:   "export [flags] -o OUT FILE...",
		Short: "Write the phase table (Parquet, CSV) and the waiting profile (pprof)",
		Long: `export writes one row a request with its instants, phases and attributes as a
Parquet or CSV table, and profiles that go tool pprof and its web view show.
Several -o are written in one pass over the input. Outputs appear whole or not
at all.`,
		Example: `  traceview export -o phases.parquet -o waiting.pb.gz trace.jsonl
  traceview export --column tenant --set model=llama-8b -o phases.parquet traces/
  traceview export --frames tenant,replica,phase -o waiting.pb.gz trace.jsonl
  go tool pprof -top waiting.pb.gz
  go tool pprof -tagfocus=band=p99-p100 -top waiting.pb.gz`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(outs) == 0 {
				outs = []string{"-"}
			}
			formats := make([]string, len(outs))
			stdouts := 0
			for i, o := range outs {
				if target(o) != "standard output" && slices.ContainsFunc(outs[:i], func(p string) bool { return filepath.Clean(p) == filepath.Clean(o) }) {
					return usagef("-o %s is given twice", o)
				}
				f, err := chooseFormat(format, o, "", exportFormats)
				if err != nil {
					return err
				}
				if err := env.refuseTerminal(o, f); err != nil {
					return err
				}
				if target(o) == "standard output" {
					stdouts++
				}
				formats[i] = f
			}
			if stdouts > 1 {
				return usagef("only one output can go to standard output")
			}
			if err := checkFrames(frames, formats); err != nil {
				return err
			}
			s, err := in.open(args)
			if err != nil {
				return err
			}
			popts := export.ParquetOptions{Columns: columns, Version: version(), Inputs: s.names(), Window: s.window}
			var (
				stacks *analyze.StackBuilder
				sinks  []sink // the tables
				rows   int64
			)
			// Each table is a nested write, so that all of them end together:
			// none is renamed into place unless the whole input was read.
			var nest func(i int) error
			nest = func(i int) error {
				if i == len(outs) {
					if err := s.eachInWindow(cmd.Context(), func(r *trace.Request) error {
						rows++
						if stacks != nil {
							if err := s.fits(r); err != nil {
								return err
							}
							stacks.Add(r)
						}
						for _, t := range sinks {
							if err := t.Write(r); err != nil {
								return err
							}
						}
						return nil
					}); err != nil {
						return err
					}
					if rows == 0 && s.nothingRead() {
						return s.nothing()
					}
					return nil
				}
				return env.write(outs[i], func(w io.Writer) error {
					var t sink
					var err error
					switch formats[i] {
					case "pprof":
						if stacks == nil {
							stacks = analyze.NewStacks(analyze.StackOptions{Frames: frames})
						}
						if err := nest(i + 1); err != nil {
							return err
						}
						st := stacks.Stacks()
						start, end := s.window()
						if start.Present() {
							st.Start = start
						}
						if end.Present() {
							st.End = end
						}
						return export.WritePprof(w, st)
					case "parquet":
						t, err = export.NewParquet(w, popts)
					case "csv":
						t, err = export.NewRows(w, popts)
					}
					if err != nil {
						return usageError{err}
					}
					sinks = append(sinks, t)
					if err := nest(i + 1); err != nil {
						return err
					}
					return t.Close()
				})
			}
			if err := nest(0); err != nil {
				return err
			}
			if rows == 0 {
				env.warn("no requests: the output has no rows")
			} else if stdouts == 0 {
				env.warn("%s: %s", strings.Join(outs, ", "), counted(rows, "row", "rows"))
			}
			return in.finish(s, args, rows)
		},
	}
	in.addFlags(cmd)
	fl := cmd.Flags()
	fl.StringArrayVarP(&outs, "output", "o", nil, "write to `FILE`; the suffix says the format: .parquet, .csv, .pb.gz; may be given several times")
	fl.StringVar(&format, "format", "", "`FORMAT` of the outputs: "+strings.Join(exportFormats, ", "))
	fl.StringSliceVar(&columns, "column", nil, "attribute `NAMES` that become columns of their own")
	fl.StringSliceVar(&frames, "frames", nil, "`KEYS` of a profile's frames, root first (default "+strings.Join(analyze.DefaultFrames, ",")+")")
	return cmd
}

// sink is a table that takes a request at a time.
type sink interface {
	Write(*trace.Request) error
	Close() error
}

func checkFrames(frames, formats []string) error {
	if len(frames) == 0 {
		return nil
	}
	seen := map[string]bool{}
	for _, f := range frames {
		if f == "" || seen[f] {
			return usagef("--frames: %q is empty or given twice", f)
		}
		seen[f] = true
	}
	if slices.Contains(formats, "pprof") {
		return nil
	}
	return usagef("--frames is for profiles; none of the outputs is one")
}

// warn prints a line on standard error.
func (env *environment) warn(format string, args ...any) {
	fmt.Fprintf(visible{env.stderr}, "traceview: "+format+"\n", args...)
}
