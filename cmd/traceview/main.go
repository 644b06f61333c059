// Command traceview shows where the time of requests to a language-model
// server went. It reads OpenTelemetry spans and vLLM logs.
//
//	traceview report trace.jsonl
//
// prints one screen; traceview help tells of the other commands.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/ingest"
)

// The exit statuses. They are documented in the help text and the README.
const (
	statusOK      = 0
	statusFailed  = 1
	statusUsage   = 2
	statusDropped = 3 // done, but records were dropped and --strict was given
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends at once
	status := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// usageError is a wrong call of the command: status 2.
type usageError struct{ error }

// droppedError says that --strict was given and records were dropped.
type droppedError struct{ n int64 }

func (e droppedError) Error() string {
	return fmt.Sprintf("--strict: %d dropped", e.n)
}

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// run is the whole command: it reads no globals and exits nothing.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	messages := visible{stderr}
	env := &environment{stdin: stdin, stdout: stdout, stderr: stderr}
	root := newRoot(env)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	var usage usageError
	var dropped droppedError
	switch {
	case err == nil:
		return statusOK
	case errors.As(err, &usage):
		fmt.Fprintf(messages, "traceview: %v\n", err)
		return statusUsage
	case errors.As(err, &dropped):
		fmt.Fprintf(messages, "traceview: %v\n", err)
		return statusDropped
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(messages, "traceview: interrupted")
		return statusFailed
	case errors.Is(err, syscall.EPIPE):
		return statusFailed // the reader of our output has left: nothing to say
	default:
		fmt.Fprintf(messages, "traceview: %v\n", err)
		return statusFailed
	}
}

// visible writes messages: they name files, and names may hold what moves a
// terminal's cursor.
type visible struct{ w io.Writer }

func (v visible) Write(p []byte) (int, error) {
	text := strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, string(p))
	if _, err := io.WriteString(v.w, text); err != nil {
		return 0, err
	}
	return len(p), nil
}

// environment is what a command may use of the outside world.
type environment struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	inputs         []ingest.Input // of this run: they are not written over
}

const rootLong = `traceview shows where the time of requests to a language-model server went:
it reads OpenTelemetry spans or vLLM logs, splits each request into arrival,
queueing, execution (prefill, decode) and completion, and shows where waiting
accumulates. What the input does not tell is shown as unattributed.

FILE is a file, a folder (all files in it), an archive or - for standard input;
several are one measurement. Formats are recognised by content: traceview
formats lists them.

Exit status: 0 done; 1 failed; 2 wrong usage; 3 done, but records were dropped
and --strict was given.`

func newRoot(env *environment) *cobra.Command {
	root := &cobra.Command{
		Use:   "traceview COMMAND [flags] FILE...",
		Short: "Where the time of requests to a language-model server went",
		Long:  rootLong,
		Example: `  traceview report trace.jsonl
  traceview report --by tenant,replica --where outcome=ok traces/
  traceview waiting trace.jsonl
  traceview export -o phases.parquet -o waiting.pb.gz trace.jsonl
  traceview check server.log
  traceview record -o traces/
  traceview simulate --arrivals 0ms,1ms,2ms,3ms --setup 4ms --per-request 1ms | traceview report -`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			msg := fmt.Sprintf("unknown command %q", args[0])
			if s := cmd.SuggestionsFor(args[0]); len(s) > 0 {
				msg += fmt.Sprintf("; did you mean %q?", s[0])
			}
			return usagef("%s (traceview --help lists the commands)", msg)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			cmd.SetOut(env.stderr)
			if err := cmd.Help(); err != nil {
				return err
			}
			return usagef("name a command")
		},
		SuggestionsMinimumDistance: 2,
		CompletionOptions:          cobra.CompletionOptions{HiddenDefaultCmd: false},
		Version:                    versionText(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (%s --help lists the flags)", err, cmd.CommandPath())
	})
	root.AddCommand(newReport(env), newWaiting(env), newExport(env), newCheck(env), newTimeline(env), newSimulate(env), newWeb(env), newRecord(env), newFormats(env), newVersion(env))
	for _, c := range root.Commands() {
		offer(c, "format", formatsOf[c.Name()])
		offer(c, "policy", policies())
		offer(c, "compress", recordCompressions)
	}
	return root
}

// formatsOf is what --format of each command takes, for the shell to offer.
var formatsOf = map[string][]string{
	"report": reportFormats, "waiting": reportFormats, "export": exportFormats, "check": {"text", "json"}, "simulate": {"text", "otlp"},
	"formats": formatKinds,
	"record":  recordFormats,
}

// offer lets the shell complete the values of a flag, if the command has it.
func offer(cmd *cobra.Command, flag string, values []string) {
	if cmd.Flags().Lookup(flag) == nil {
		return
	}
	// The one error is a flag that is not there.
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}
