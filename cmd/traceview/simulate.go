package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/internal/sim"
	"github.com/traceview/traceview/internal/units"
)

func newSimulate(env *environment) *cobra.Command {
	var (
		arrivals, out, format     string
		setup, perRequest, policy string
		wait                      string
		size, count               int
		rate                      float64
		seed                      uint64
		ascii, quiet              bool
	)
	cmd := &cobra.Command{
		Use:   "simulate [flags]",
		Short: "Run the queue model: one worker that serves requests in groups",
		Long: `simulate runs a queue with one worker. A group of requests costs a setup time
plus a time for each request in it, and a request completes when its group does.

Policies: individual (one at a time, in order), batch (one group of all, once
the last has arrived), cap (at most --size in a group, started as soon as that
many wait, or --wait after the first of them arrived).

On a terminal, with --format text or with -o FILE it draws the timeline; else,
so that it can be piped into traceview report -, it writes the trace as
OpenTelemetry JSON to standard output and the drawing to standard error.`,
		Example: `  traceview simulate --arrivals 0ms,1ms,2ms,3ms --setup 4ms --per-request 1ms
  traceview simulate --arrivals 0ms,1ms,2ms,3ms --setup 4ms --per-request 1ms --policy batch | traceview report -
  traceview simulate --rate 200 --count 1000 --seed 7 --setup 4ms --per-request 1ms --policy cap --size 8 --wait 20ms -o trace.jsonl`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := sim.Queue{Policy: sim.Policy(policy), Max: size}
			var err error
			for _, d := range []struct {
				to   *time.Duration
				flag string
				text string
			}{{&q.Setup, "setup", setup}, {&q.PerRequest, "per-request", perRequest}, {&q.Wait, "wait", wait}} {
				if *d.to, err = units.ParseDuration(d.text); err != nil {
					return usagef("--%s: %w", d.flag, err)
				}
			}
			switch {
			case (arrivals != "") == cmd.Flags().Changed("rate"):
				return usagef("say when requests arrive: either --arrivals 0ms,1ms,… or --rate N")
			case arrivals != "":
				for _, c := range []string{"count", "seed"} {
					if cmd.Flags().Changed(c) {
						return usagef("--%s goes with --rate, not with --arrivals", c)
					}
				}
				for part := range strings.SplitSeq(arrivals, ",") {
					d, err := units.ParseDuration(part)
					if err != nil {
						return usagef("--arrivals: %w", err)
					}
					q.Arrivals = append(q.Arrivals, d)
				}
			default:
				if q.Arrivals, err = sim.Poisson(count, rate, seed); err != nil {
					return usagef("--rate: %w", err)
				}
			}
			if q.Policy != sim.Cap {
				for _, c := range []string{"size", "wait"} {
					if cmd.Flags().Changed(c) {
						return usagef("--%s goes with --policy cap", c)
					}
				}
			}
			switch format {
			case "", "text", "otlp":
			default:
				return usagef("--format: %q is neither text nor otlp", format)
			}
			if !slices.Contains(sim.Policies(), q.Policy) {
				return usagef("--policy: %q is none of %s", policy, strings.Join(policies(), ", "))
			}
			if q.Policy == sim.Cap && size < 1 {
				return usagef("--policy cap needs --size, the most requests in a group, at least 1")
			}
			res, err := q.Run()
			if err != nil {
				return usageError{err}
			}

			if quiet && format == "text" {
				return usagef("--quiet with --format text: there would be nothing")
			}
			drawing, trace := env.stdout, io.Writer(nil)
			switch {
			case out != "" && out != "-":
				if format == "text" {
					return usagef("-o writes the trace; leave --format text out, the drawing is printed")
				}
			case format == "text" || format == "" && out == "" && !quiet && isTerminal(env.stdout):
			default:
				drawing, trace = env.stderr, env.stdout
			}
			if out != "" && out != "-" {
				if err := env.write(out, func(w io.Writer) error { return sim.Encode(w, res.Spans(), sim.Encoding{}) }); err != nil {
					return err
				}
			} else if trace != nil {
				if err := sim.Encode(trace, res.Spans(), sim.Encoding{}); err != nil {
					return err
				}
				if format == "otlp" {
					return nil
				}
			}
			if quiet {
				return nil
			}
			return res.Draw(drawing, sim.Drawing{Width: width(drawing), ASCII: ascii})
		},
	}
	f := cmd.Flags()
	f.StringVar(&arrivals, "arrivals", "", "`TIMES` at which requests arrive, such as 0ms,1ms,2ms")
	f.Float64Var(&rate, "rate", 0, "requests `PER SECOND`, arriving at random (Poisson)")
	f.IntVar(&count, "count", 1000, "`NUMBER` of requests, with --rate")
	f.Uint64Var(&seed, "seed", 1, "`SEED` of the arrivals, with --rate")
	f.StringVar(&setup, "setup", "0s", "`DURATION` that a group costs once")
	f.StringVar(&perRequest, "per-request", "0s", "`DURATION` that each request in a group costs")
	f.StringVar(&policy, "policy", "individual", fmt.Sprintf("`POLICY`: %v", strings.Join(policies(), ", ")))
	f.IntVar(&size, "size", 0, "most `REQUESTS` in a group, with --policy cap")
	f.StringVar(&wait, "wait", "0s", "longest `DURATION` that a free worker waits for a group to fill, with --policy cap")
	f.StringVar(&format, "format", "", "`FORMAT` on standard output: text or otlp (default: text on a terminal, else otlp)")
	f.StringVarP(&out, "output", "o", "", "write the trace to `FILE`; - is standard output")
	f.BoolVarP(&quiet, "quiet", "q", false, "draw nothing beside the trace")
	f.BoolVar(&ascii, "ascii", false, "draw with ASCII characters only")
	return cmd
}

func policies() (names []string) {
	for _, p := range sim.Policies() {
		names = append(names, string(p))
	}
	return names
}
