package main

import (
	"net"
	"strings"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/analyze"
	"github.com/traceview/traceview/export"
)

func newWeb(env *environment) *cobra.Command {
	e := &exporter{in: &input{env: env}, outs: []output{{path: "-", kind: "pprof"}}}
	var (
		limits    engineLimits
		address   string
		noBrowser bool
	)
	cmd := &cobra.Command{
		Use:   "web [flags] FILE...",
		Short: "Show the waiting profile in pprof's web view",
		Long: `web reads the input and serves pprof's own web view of its profile: flame graph,
top, peek and the rest, until it is interrupted. Nothing else has to be
installed; the graph page alone needs graphviz.`,
		Example: `  traceview web trace.jsonl
  traceview web --frames waiter,cause,holder --no-browser traces/`,
		Args: inputArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.open(cmd, &limits, args); err != nil {
				return err
			}
			// Before the input is read: a port that is taken shows at once.
			host, port, err := net.SplitHostPort(address)
			if err != nil {
				return usagef("--http: %q is not HOST:PORT (write localhost:8080)", address)
			}
			if host == "" { // to the world only if it is asked for by name
				host = "localhost"
			}
			l, err := net.Listen("tcp", net.JoinHostPort(host, port))
			if err != nil {
				return err
			}
			defer l.Close()
			if err := e.read(cmd.Context()); err != nil {
				return err
			}
			st, err := e.profile()
			if err != nil {
				return err
			}
			env.warnOfMissing(e.missing, e.rows)
			if err := e.in.finish(e.src, args, e.rows); err != nil {
				return err
			}
			return export.Web(cmd.Context(), st, export.WebOptions{
				Listener: l, Browser: !noBrowser, Say: func(s string) { env.warn("%s", s) },
			})
		},
	}
	e.in.addFlags(cmd)
	limits.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&address, "http", "localhost:0", "listen at `HOST:PORT`; port 0 is any that is free")
	f.BoolVar(&noBrowser, "no-browser", false, "open no browser")
	f.StringSliceVar(&e.frames, "frames", nil, "`KEYS` of the profile's frames, root first (default "+strings.Join(analyze.DefaultFrames, ",")+"), as in export")
	f.StringSliceVar(&e.by, "by", nil, "divide those who wait and those who hold by these `KEYS` (default: by tenant, where requests have one)")
	return cmd
}
