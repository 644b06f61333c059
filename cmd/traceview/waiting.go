package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
)

func newWaiting(env *environment) *cobra.Command {
	in := &input{env: env}
	var (
		limits      engineLimits
		by          []string
		format, out string
	)
	cmd := &cobra.Command{
		Use:   "waiting [flags] FILE...",
		Short: "Show why requests waited, and who made them wait",
		Long: `waiting gives every nanosecond of waiting one cause, and charges it to the
requests that held the replica meanwhile:

  hold      nothing ran while work waited
  stall     requests ran and nothing progressed
  slots     as many ran as may run at once
  kv_cache  the next request did not fit into memory
  prefill   other prompts held the step
  step      nothing was full: the step in flight had to end
  unknown   none of these can be shown

Causes add up to the waiting, and so does what is charged with what nobody held,
to the nanosecond. Limits that are not stated and not in the input are inferred,
and shown with what supports them. The confidence is the share of waiting whose
cause survives small errors of the limits; below 60 % nothing is ranked.

Waiting is avoidable while another replica of the model has no queue and a free
slot. The matrix is accounting: it says who held the replica while others waited,
not what would be if they were gone.`,
		Example: `  traceview waiting trace.jsonl
  traceview waiting --by tenant,prompt_bucket --from 30s --to 90s trace.jsonl
  traceview waiting --max-num-seqs 64 --kv-tokens 120000 traces/
  traceview waiting --format csv -o waiting.csv trace.jsonl`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := chooseFormat(format, out, "text", reportFormats)
			if err != nil {
				return err
			}
			if err := distinct("by", by); err != nil {
				return err
			}
			opts := analyze.Options{By: by}
			if opts.Wait, err = limits.options(cmd); err != nil {
				return err
			}
			s, rep, why, err := in.explain(cmd.Context(), args, opts)
			if err != nil {
				return err
			}
			if err := env.write(out, func(w io.Writer) error {
				switch f {
				case "json":
					return export.WriteWaitingJSON(w, why)
				case "csv":
					return export.WriteCSV(w, why.Tables())
				}
				return export.WriteWaiting(w, why, rep, textOptions(w))
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
	fl.StringSliceVar(&by, "by", nil, "divide those who wait and those who hold by these `KEYS` (default: by tenant, where requests have one)")
	fl.StringVar(&format, "format", "", "`FORMAT`: "+strings.Join(reportFormats, ", ")+" (default: by the suffix of -o, else text)")
	fl.StringVarP(&out, "output", "o", "", "write to `FILE` instead of standard output")
	return cmd
}
