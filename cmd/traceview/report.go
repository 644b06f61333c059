package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
	"github.com/traceview/traceview/internal/units"
	"github.com/traceview/traceview/trace"
)

var reportFormats = []string{"text", "json", "csv"}

func newReport(env *environment) *cobra.Command {
	in := &input{env: env}
	var (
		limits                    engineLimits
		by, quantiles, objectives []string
		format, out               string
		allOutcomes               bool
	)
	cmd := &cobra.Command{
		Use:   "report [flags] FILE...",
		Short: "Show where the time of requests went, on one screen",
		Long: `report says in a sentence where the time of the requests went, then shows what
was measured, how the requests ended, the time by phase, what makes the slowest
ones slow, which groups wait most, and what the measurement cannot tell.

Percentiles are over requests that ended ok. Every nanosecond of a request is in
exactly one phase; what the source does not explain is unattributed.`,
		Example: `  traceview report trace.jsonl
  traceview report --by tenant,model --where outcome=ok traces/
  traceview report --from 30s --to 90s --objective ttft=500ms trace.jsonl.gz
  traceview report --format json server.log | jq .figures`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := chooseFormat(format, out, "text", reportFormats)
			if err != nil {
				return err
			}
			if err := distinct("by", by); err != nil {
				return err
			}
			opts := analyze.Options{By: by, AllOutcomes: allOutcomes}
			if len(quantiles) > maxQuantiles {
				return usagef("--quantile: %d are given, at most %d can be shown", len(quantiles), maxQuantiles)
			}
			if opts.Wait, err = limits.options(cmd); err != nil {
				return err
			}
			for _, q := range quantiles {
				v, err := parseQuantile(q)
				if err != nil {
					return err
				}
				opts.Quantiles = append(opts.Quantiles, v)
			}
			for _, o := range objectives {
				v, err := parseObjective(o)
				if err != nil {
					return err
				}
				opts.Objectives = append(opts.Objectives, v)
			}
			s, rep, _, err := in.explain(cmd.Context(), args, opts)
			if err != nil {
				return err
			}
			if err := env.write(out, func(w io.Writer) error {
				switch f {
				case "json":
					return export.WriteJSON(w, rep)
				case "csv":
					return export.WriteCSV(w, rep.Tables())
				}
				return export.WriteText(w, rep, textOptions(w))
			}); err != nil {
				return err
			}
			env.warnOfKeys(rep, by)
			return in.finish(s, args, rep.Counts.Requests)
		},
	}
	in.addFlags(cmd)
	limits.addFlags(cmd)
	fl := cmd.Flags()
	fl.StringSliceVar(&by, "by", nil, "group by these `KEYS`: service, model, replica, outcome, prompt_bucket, … or any attribute")
	fl.StringSliceVar(&quantiles, "quantile", nil, "`QUANTILES` to show, such as 0.5,0.95 or p50,p95 (default p50,p90,p99)")
	fl.StringArrayVar(&objectives, "objective", nil, "`FIGURE=LIMIT` that a request must meet to count as goodput: ttft, tpot or e2e")
	fl.BoolVar(&allOutcomes, "all-outcomes", false, "take requests that did not end ok into the latency figures")
	fl.StringVar(&format, "format", "", "`FORMAT`: "+strings.Join(reportFormats, ", ")+" (default: by the suffix of -o, else text)")
	fl.StringVarP(&out, "output", "o", "", "write to `FILE` instead of standard output")
	return cmd
}

// warnOfKeys names the keys that were asked for and that no request has.
func (env *environment) warnOfKeys(rep *analyze.Report, keys []string) {
	env.warnOfMissing(slices.DeleteFunc(slices.Clone(keys), func(k string) bool { return grouped(rep, k) }), rep.Counts.Requests)
}

// warnOfMissing names keys that none of that many requests has.
func (env *environment) warnOfMissing(keys []string, requests int64) {
	for _, k := range keys {
		if requests > 0 {
			env.warn("no request has %s", k)
		}
	}
}

// grouped reports whether some group has a value for the key.
func grouped(rep *analyze.Report, key string) bool {
	for _, g := range rep.Groups {
		i := slices.Index(g.By, key)
		if i < 0 {
			continue
		}
		for _, r := range g.Rows {
			if r.Values[i].Present() {
				return true
			}
		}
	}
	return false
}

// explain reads the inputs into a report and why its requests waited. The
// window is the analyzer's, which knows the first arrival only at the end.
func (in *input) explain(ctx context.Context, args []string, opts analyze.Options) (*source, *analyze.Report, *analyze.WaitResult, error) {
	s, err := in.open(args)
	if err != nil {
		return nil, nil, nil, err
	}
	opts.From, opts.To = s.filter.From, s.filter.To
	a := analyze.New(opts)
	s.opts.Reading, s.opts.Limits, s.aside = a.AddReading, a.AddLimits, a.Aside
	if err := s.each(ctx, func(r *trace.Request) error { a.Add(r); return s.fits(r) }); err != nil {
		return nil, nil, nil, err
	}
	rep, why := a.Explain()
	if rep.Counts.Requests+rep.Counts.NotInWindow+rep.Counts.Readings == 0 && s.nothingRead() {
		return nil, nil, nil, s.nothing()
	}
	return s, rep, why, nil
}

// nothingRead reports whether no input was of a format that is read.
func (s *source) nothingRead() bool {
	var n int64
	for _, c := range s.tally.Summary() {
		if c.Code == trace.UnknownFormat || c.Code == trace.EmptyInput {
			n += c.Count
		}
	}
	return n >= int64(len(s.inputs))
}

// nothing is the error of a run in which no input could be read at all: what
// each is instead, and what can be done.
func (s *source) nothing() error {
	var lines []string
	for _, c := range s.tally.Summary() {
		for _, i := range c.First {
			lines = append(lines, i.Error())
		}
		lines = append(lines, c.Meaning+": "+c.Do)
	}
	return errors.New(strings.Join(lines, "\n  "))
}

// maxQuantiles bounds the time of a report: each quantile of each phase has an
// interval, which looks at every request.
const maxQuantiles = 100

// parseQuantile reads 0.99, p99 or p99.9.
func parseQuantile(s string) (float64, error) {
	t, percent := strings.CutPrefix(strings.TrimSpace(s), "p")
	v, err := strconv.ParseFloat(t, 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v < 1) {
		return 0, usagef("--quantile: %q is not between 0 and 1 (write 0.99 or p99)", s)
	}
	return v, nil
}

// parseObjective reads ttft=500ms.
func parseObjective(s string) (analyze.Objective, error) {
	k, v, ok := strings.Cut(s, "=")
	if !ok || k != "ttft" && k != "tpot" && k != "e2e" {
		return analyze.Objective{}, usagef("--objective: %q is not FIGURE=LIMIT with ttft, tpot or e2e (write ttft=500ms)", s)
	}
	d, err := units.ParseDuration(v)
	if err != nil {
		return analyze.Objective{}, usagef("--objective: %w", err)
	}
	if d < 0 {
		return analyze.Objective{}, usageError{fmt.Errorf("--objective: %s is below zero", v)}
	}
	return analyze.Objective{Figure: k, MaxNS: int64(d)}, nil
}
