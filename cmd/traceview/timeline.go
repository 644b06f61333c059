package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

func newTimeline(env *environment) *cobra.Command {
	in := &input{env: env}
	var (
		every, format, out string
		ascii              bool
		limits             engineLimits
	)
	cmd := &cobra.Command{
		Use:   "timeline [flags] FILE...",
		Short: "Show depth, phases and causes over time, and what changed",
		Long: `timeline cuts the time into windows and shows in each how many requests arrived,
waited and ran, in which phase their time was spent and why they waited. Time by
phase is cut at the borders of windows, so that windows add up to the report's
totals exactly.

It looks for changes in each replica alone: an instant from which decoding takes
longer for the same work, one from which requests come more or less often, a
queue that begins to grow without bound, a stall. How many waited and ran before
and after stands beside them; a queue that only wanders raises nothing.
What was tested and found steady is said too. Each change has its instant, or
the stretch in which it lies, its size, and how sure it is: p is the share of
random orders of the same measurements that show as much, z how far a queue
grew, or the rate changed, in standard deviations of what chance does.`,
		Example: `  traceview timeline trace.jsonl
  traceview timeline --every 10s --from 5m --to 15m trace.jsonl
  traceview timeline --format csv -o windows.csv traces/`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := chooseFormat(format, out, "text", reportFormats)
			if err != nil {
				return err
			}
			var opts analyze.WindowOptions
			if every != "" {
				if opts.Every, err = units.ParseDuration(every); err != nil {
					return usagef("--every: %w", err)
				}
				if opts.Every <= 0 {
					return usagef("--every: %s is not above zero", every)
				}
			}
			wopts, err := limits.options(cmd)
			if err != nil {
				return err
			}
			wopts.OverTime = true
			windows, waits := analyze.NewWindows(opts), analyze.NewWaits(wopts)
			s, err := in.open(args)
			if err != nil {
				return err
			}
			s.opts.Reading = func(r trace.Reading) {
				windows.AddReading(r)
				waits.AddReading(r)
			}
			s.opts.Limits, s.aside = waits.AddLimits, waits.Aside
			var requests int64
			if err := s.eachInWindow(cmd.Context(), func(r *trace.Request) error {
				requests++
				windows.Add(r)
				waits.Add(r)
				return s.fits(r)
			}); err != nil {
				return err
			}
			if requests == 0 && s.nothingRead() {
				return s.nothing()
			}
			why := waits.Result()
			t := &analyze.Timeline{Changes: why.OverTime}
			if t.Windows, err = windows.Result(why.Parts); err != nil {
				return usagef("--every: %w", err)
			}
			if err := env.write(out, func(w io.Writer) error {
				switch f {
				case "json":
					return export.WriteTimelineJSON(w, t)
				case "csv":
					return export.WriteCSV(w, t.Tables())
				}
				return export.WriteTimeline(w, t, export.TimelineOptions{
					TextOptions: textOptions(w), ASCII: ascii,
				})
			}); err != nil {
				return err
			}
			return in.finish(s, args, requests)
		},
	}
	in.addFlags(cmd)
	limits.addLimits(cmd)
	fl := cmd.Flags()
	fl.StringVar(&every, "every", "", "the `LENGTH` of a window, such as 10s (default: a round one of which some sixty cover the time)")
	fl.StringVar(&format, "format", "", "`FORMAT`: "+strings.Join(reportFormats, ", ")+" (default: by the suffix of -o, else text)")
	fl.StringVarP(&out, "output", "o", "", "write to `FILE` instead of standard output")
	fl.BoolVar(&ascii, "ascii", false, "draw with ASCII characters only")
	return cmd
}
