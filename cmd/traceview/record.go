package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/traceview/traceview/ingest/receive"
	"github.com/traceview/traceview/internal/units"
)

var (
	recordFormats      = []string{"json", "proto"}
	recordCompressions = []string{"gzip", "zstd"}
)

func newRecord(env *environment) *cobra.Command {
	r := &recorder{env: env}
	cmd := &cobra.Command{
		Use:   "record [flags] -o FOLDER",
		Short: "Take spans from running servers and write them to files",
		Long: `record takes OTLP traces over gRPC and HTTP and writes them to files in FOLDER,
which the other commands read, also while they are being written. It ends when
it is interrupted or a limit is reached: what is in flight is then written and
answered. A second interrupt ends it at once.

A client is answered once its spans are with the operating system: they outlive
a recorder that is killed, and with --sync a machine that loses power. What
cannot be written is not acknowledged; the client is told to send it again, and
the status is 1 in the end. Requests are written whole or refused whole.

With --format proto requests that come in protobuf are kept byte for byte, each
behind its length. With --format json each becomes a line as the OpenTelemetry
collector's file exporter writes it; fields that OTLP does not have (yet) are
then lost. Either way one request is one record. What does not matter to spans is
not kept: headers, the sender's address, when the request came.

Only traces are taken: to exporters of metrics and logs the answer is that there
is no such service.`,
		Example: `  traceview record -o traces/
  traceview record --compress zstd --max-duration 10m -o traces/
  traceview record --otlp-grpc 127.0.0.1:0 --otlp-http off --max-spans 10000 -o traces/
  traceview report traces/`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("record reads no files: %q (the folder to write to is -o FOLDER)", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&r.grpc, "otlp-grpc", "127.0.0.1:4317", "take OTLP/gRPC at `HOST:PORT`; port 0 is any that is free; off: not at all")
	f.StringVar(&r.http, "otlp-http", "127.0.0.1:4318", "take OTLP/HTTP at `HOST:PORT`, likewise")
	f.StringVarP(&r.folder, "output", "o", "", "write to files in `FOLDER`, which is made where it is not there")
	f.StringVar(&r.format, "format", "json", "`FORMAT` of the files: "+strings.Join(recordFormats, ", "))
	f.StringVar(&r.compress, "compress", "", "compress the files by `METHOD`: "+strings.Join(recordCompressions, ", "))
	f.StringVar(&r.rotateSize, "rotate-size", "64MiB", "begin the next file before one is larger than `SIZE`")
	f.StringVar(&r.rotateEvery, "rotate-every", "", "begin the next file after `TIME`, such as 10m")
	f.StringVar(&r.maxBytes, "max-bytes", "", "end before more than `SIZE` is written")
	f.Int64Var(&r.maxSpans, "max-spans", 0, "end when at least `N` spans are written")
	f.StringVar(&r.maxDuration, "max-duration", "", "end after `TIME`")
	f.StringVar(&r.maxRequest, "max-request", "16MiB", "the largest `SIZE` of one request, also once decompressed")
	f.BoolVar(&r.sync, "sync", false, "acknowledge only what has reached the disk")
	return cmd
}

// recorder is one run of the record command.
type recorder struct {
	env *environment

	grpc, http, folder, format, compress string
	rotateSize, rotateEvery              string
	maxBytes, maxDuration, maxRequest    string
	maxSpans                             int64
	sync                                 bool

	line line
}

func (r *recorder) run(ctx context.Context) error {
	w, s, limit, err := r.options()
	if err != nil {
		return err
	}
	g, err := r.listen("otlp-grpc", r.grpc)
	if err != nil {
		return err
	}
	if g != nil {
		defer g.Close()
	}
	h, err := r.listen("otlp-http", r.http)
	if err != nil {
		return err
	}
	if h != nil {
		defer h.Close()
	}
	if g == nil && h == nil {
		return usagef("--otlp-grpc and --otlp-http are both off: nothing can be recorded")
	}
	w.Say, s.Say = r.say, r.say
	writer, err := receive.NewWriter(w)
	if err != nil {
		return err
	}
	server := receive.NewServer(writer, s)
	if g != nil {
		r.say("OTLP/gRPC at http://" + g.Addr().String())
	}
	if h != nil {
		r.say("OTLP/HTTP at http://" + h.Addr().String())
	}
	r.say(fmt.Sprintf("recording to %s until interrupted", r.folder))
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	stop := r.progress(writer, server)
	err = server.Serve(ctx, g, h)
	stop()
	return r.finish(writer.Close(), err, writer.Totals(), server.Stats())
}

// options reads the flags.
func (r *recorder) options() (w receive.WriterOptions, s receive.Options, limit time.Duration, err error) {
	fail := func(err error) (receive.WriterOptions, receive.Options, time.Duration, error) {
		return w, s, limit, err
	}
	if r.folder == "" {
		return fail(usagef("no folder to write to: name it with -o FOLDER"))
	}
	w = receive.WriterOptions{Folder: r.folder, Compress: r.compress, MaxSpans: r.maxSpans, Sync: r.sync}
	switch r.format {
	case "json":
		w.Format = receive.JSON
	case "proto":
		w.Format = receive.Proto
	default:
		return fail(usagef("--format: %q is not one of %s", r.format, strings.Join(recordFormats, ", ")))
	}
	if r.compress != "" && !slices.Contains(recordCompressions, r.compress) {
		return fail(usagef("--compress: %q is not one of %s", r.compress, strings.Join(recordCompressions, ", ")))
	}
	if r.maxSpans < 0 {
		return fail(usagef("--max-spans: %d is below 0", r.maxSpans))
	}
	for _, f := range []struct {
		flag, text string
		into       *int64
	}{
		{"rotate-size", r.rotateSize, &w.RotateSize}, {"max-bytes", r.maxBytes, &w.MaxBytes}, {"max-request", r.maxRequest, &s.MaxRequest},
	} {
		if f.text == "" {
			continue
		}
		if *f.into, err = units.ParseBytes(f.text); err != nil {
			return fail(usagef("--%s: %w", f.flag, err))
		}
		if *f.into < 1 {
			return fail(usagef("--%s: must be at least 1 byte", f.flag))
		}
	}
	if s.MaxRequest > maxRequest {
		return fail(usagef("--max-request: at most %s", units.Bytes(maxRequest)))
	}
	for _, f := range []struct {
		flag, text string
		into       *time.Duration
	}{{"rotate-every", r.rotateEvery, &w.RotateEvery}, {"max-duration", r.maxDuration, &limit}} {
		if f.text == "" {
			continue
		}
		if *f.into, err = units.ParseDuration(f.text); err != nil {
			return fail(usagef("--%s: %w", f.flag, err))
		}
		if *f.into <= 0 {
			return fail(usagef("--%s: must be more than 0", f.flag))
		}
	}
	return w, s, limit, nil
}

// maxRequest keeps a request, written as JSON, below what is read as one record.
const maxRequest = 64 << 20

// listen listens at an address, on loopback where no host is named. A nil
// listener is one that is off.
func (r *recorder) listen(flag, address string) (net.Listener, error) {
	if address == "" || address == "off" {
		return nil, nil
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("--%s: %q is not HOST:PORT (write 127.0.0.1:0, or off)", flag, address)
	}
	if host == "" { // to the world only if it is asked for by name
		host = "127.0.0.1"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("--%s: %w (by another collector? port 0 is any that is free)", flag, err)
		}
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		r.say(fmt.Sprintf("warning: %s is reached from other machines: whoever can connect can write to %s, unencrypted and unasked", a, r.folder))
	}
	return l, nil
}

// finish says what was recorded.
func (r *recorder) finish(closed, served error, t receive.Totals, s receive.Stats) error {
	if s.Refused > 0 {
		r.say(fmt.Sprintf("%s refused, the last: %s", counted(s.Refused, "request", "requests"), s.LastRefusal))
	}
	if t.Spans == 0 {
		r.say("no spans were recorded")
	} else {
		r.say(fmt.Sprintf("%s in %s, %s; see: traceview report %s", counted(t.Spans, "span", "spans"), counted(int64(t.Files), "file", "files"), units.Bytes(t.Bytes), quoteArgs([]string{r.folder})))
	}
	if served != nil {
		return served
	}
	if t.Failed > 0 {
		return fmt.Errorf("%s could not be written: %w", counted(t.Failed, "request", "requests"), closed)
	}
	return closed
}

// say prints a line on standard error.
func (r *recorder) say(text string) {
	r.line.mu.Lock()
	defer r.line.mu.Unlock()
	r.line.wipe(r.env)
	r.env.warn("%s", text)
}

// line is the line of progress.
type line struct {
	mu    sync.Mutex
	shown bool
}

func (l *line) wipe(env *environment) {
	if l.shown {
		fmt.Fprint(env.stderr, "\r\x1b[K")
	}
	l.shown = false
}

// progress shows on a terminal how much was recorded. The returned function
// ends that.
func (r *recorder) progress(w *receive.Writer, s *receive.Server) (stop func()) {
	if !isTerminal(r.env.stderr) {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		var last int64
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			t, n := w.Totals(), s.Stats().Requests
			r.line.mu.Lock()
			r.line.wipe(r.env)
			fmt.Fprintf(r.env.stderr, "recorded %s spans, %s, %s requests/s", units.Count(t.Spans), units.Bytes(t.Bytes), units.Count(n-last))
			r.line.shown, last = true, n
			r.line.mu.Unlock()
		}
	}()
	return func() {
		close(done)
		<-ended
		r.line.mu.Lock()
		defer r.line.mu.Unlock()
		r.line.wipe(r.env)
	}
}
