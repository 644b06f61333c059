package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
	"github.com/traceview/traceview/trace"
)

func newCheck(env *environment) *cobra.Command {
	in := &input{env: env}
	var format, out string
	var slots int64
	cmd := &cobra.Command{
		Use:   "check [flags] FILE...",
		Short: "List what is wrong with the input, worst first",
		Long: `check reads the input as report does and lists everything that was odd about it:
how often, where first, what became of it, and what to do. It also shows how far
the source's own figures differ from those by the definitions, and which laws that
every trace obeys fail here, hold, or cannot be tested on this input.

"dropped": a record is gone. "degraded": a field is missing or was mended.
"note": nothing was lost.`,
		Example: `  traceview check trace.jsonl
  traceview check --strict --format json server.log`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f, err := chooseFormat(format, out, "text", []string{"text", "json"})
			if err != nil {
				return err
			}
			if slots < 0 || slots == 0 && cmd.Flags().Changed("max-num-seqs") {
				return usagef("--max-num-seqs must be at least 1")
			}
			s, err := in.open(args)
			if err != nil {
				return err
			}
			c := analyze.Check{Chosen: in.divides()}
			if cmd.Flags().Changed("max-num-seqs") {
				c.Limits.Slots = trace.Some(slots)
			}
			s.opts.Reading, s.opts.Limits = c.AddReading, c.AddLimits
			if err := s.eachInWindow(cmd.Context(), func(r *trace.Request) error { c.Add(r); return nil }); err != nil {
				return err
			}
			rep := c.Report(len(s.inputs))
			for _, n := range s.tally.Summary() {
				info := n.Code.Info()
				iss := analyze.CheckIssue{
					Code: string(n.Code), Severity: n.Severity.String(), Count: n.Count, Meaning: info.Meaning, Do: info.Do,
				}
				for _, i := range n.First {
					iss.First = append(iss.First, strings.TrimSuffix(i.Error(), " ["+string(i.Code)+"]"))
				}
				rep.Issues = append(rep.Issues, iss)
			}
			if err := env.write(out, func(w io.Writer) error {
				if f == "json" {
					return export.WriteCheckJSON(w, rep)
				}
				return export.WriteCheckText(w, rep, export.TextOptions{Width: width(w)})
			}); err != nil {
				return err
			}
			if rep.Requests+rep.Readings == 0 && s.nothingRead() {
				return fmt.Errorf("no input could be read")
			}
			if d := s.tally.Dropped(); in.strict && d > 0 {
				return droppedError{d}
			}
			return nil
		},
	}
	in.addFlags(cmd)
	fl := cmd.Flags()
	fl.Int64Var(&slots, "max-num-seqs", 0, "the `LIMIT` of requests that a replica runs at once, where it is known")
	fl.StringVar(&format, "format", "", "`FORMAT`: text or json (default: by the suffix of -o, else text)")
	fl.StringVarP(&out, "output", "o", "", "write to `FILE` instead of standard output")
	return cmd
}

// divides reports whether the conditions may tear apart requests that shared
// an engine: those that began before --from, those of another tenant.
func (in *input) divides() bool {
	return in.from != "" || slices.ContainsFunc(in.where, func(w string) bool {
		key, _, _ := strings.Cut(w, "=")
		return !slices.Contains([]string{"service", "model", "replica"}, key)
	})
}
