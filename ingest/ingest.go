// Package ingest reads traces and logs, whatever they come in, and yields one
// [trace.Request] for each generation that they tell of. Nothing is lost in
// silence: what could not be read, or was odd, comes as a [trace.Issue].
//
// OpenTelemetry's own containers of spans are in ingest/otlp, those of others
// (stores, consoles, tables) in ingest/spanfile, the engines' meaning of spans
// in ingest/engine, vLLM's text log in ingest/vllmlog. This package opens,
// recognises, decompresses, takes archives apart and joins. Package analyze
// comes next.
package ingest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/ingest/engine"
	"github.com/traceview/traceview/ingest/otlp"
	"github.com/traceview/traceview/ingest/records"
	"github.com/traceview/traceview/ingest/spanfile"
	"github.com/traceview/traceview/ingest/vllmlog"
	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// Input is one stream of bytes.
type Input struct {
	Name    string    // as the user named it; "-" is standard input
	ModTime time.Time // zero: not known
	Size    int64     // bytes as stored; negative: not known, as of what is no regular file
	Open    func() (io.ReadCloser, error)
}

// Options are the limits and the knowledge that the input lacks. The zero
// value works.
type Options struct {
	MaxRecord int64 // bytes of one record; 0: 256 MiB
	MaxInput  int64 // bytes of one input once decompressed; 0: 1 TiB
	MaxOpen   int   // spans held back for traces that are not complete; 0: 4 million
	Memory    int64 // bytes that those spans may take before they go to a temporary file; 0: any number

	Year int            // of a log's first stamp, where stamps have none; 0: from the input
	Zone *time.Location // of a log's stamps, where they have none; nil: UTC, with a note

	// Reading is called with each of the engine's own statements of its state,
	// in input order; nil: they are passed over.
	Reading func(trace.Reading)
	// Limits is called with what engines say of their limits, likewise.
	Limits func(trace.EngineLimits)
	// Progress is called now and then with the bytes read so far (as stored)
	// over all inputs; nil: not at all.
	Progress func(bytes int64)
}

func (o Options) withDefaults() Options {
	if o.MaxRecord <= 0 {
		o.MaxRecord = 256 << 20
	}
	if o.MaxInput <= 0 {
		o.MaxInput = 1 << 40
	}
	return o
}

// Requests reads all inputs in order and yields every request. Spans of one
// trace are joined over all inputs.
//
// A *trace.Issue in the error position is about one record, span or input that
// is part of no request: the sequence goes on. Issues about a request are in
// the request and are not yielded again. Any other error (an input that cannot
// be read, the context's) is the last pair.
func Requests(ctx context.Context, inputs []Input, opts Options) iter.Seq2[*trace.Request, error] {
	return func(yield func(*trace.Request, error) bool) {
		run := &run{
			ctx: ctx, opts: opts.withDefaults(), yield: yield,
			builder: engine.NewBuilder(engine.Options{MaxOpen: opts.MaxOpen, Memory: opts.Memory}),
			ids:     map[uint64]seenID{},
			several: len(inputs) > 1, formats: formats,
		}
		defer func() {
			if err := run.builder.Close(); err != nil {
				run.fail(err)
			}
		}()
		copies := newCopies(inputs)
		for _, in := range inputs {
			if first, ok := copies.of(in); ok {
				is := trace.NewIssue(trace.CopiedInput, trace.Pos{File: in.Name}, "it has the very content of %.200s", first.Name)
				if !run.issue(&is) {
					return
				}
				run.progress(int(in.Size)) // it need not be read
				continue
			}
			err := run.input(in)
			if err == nil {
				err = run.builder.Err()
			}
			if err != nil {
				run.fail(err)
				return
			}
			if run.stopped {
				return
			}
		}
		if err := run.finish(); err != nil {
			run.fail(err)
		}
	}
}

// run is one call of Requests.
type run struct {
	ctx     context.Context
	opts    Options
	yield   func(*trace.Request, error) bool
	stopped bool

	builder *engine.Builder
	stored  int64 // bytes read as stored, over all inputs
	told    int64 // the same when Progress was last called
	calls   int

	several bool // inputs, or files in archives
	formats []format
	logs    logs

	joined int    // requests made of spans
	spans  []held // inputs with spans

	ids     map[uint64]seenID // by hashes of requests' ids
	halves  held              // requests whose id a request for one token had too
	clock   trace.Clock
	mixed   bool
	clocked bool // clock is set
	units   unitWatch
}

// seenID is what is known of the requests with one id.
type seenID struct {
	service   uint16 // a hash of the first's
	told      bool   // that there are several of that service
	one, more bool   // one was for a single token, one for more: see [run.halves]
}

// held is how many spans an input had.
type held struct {
	pos trace.Pos
	n   int
}

func (run *run) fail(err error) {
	if !run.stopped {
		run.stopped = true
		run.yield(nil, err)
	}
}

// issue yields an issue. It returns false to stop, like all that yields here.
func (run *run) issue(is *trace.Issue) bool { return run.give(nil, is) }

func (run *run) give(r *trace.Request, is *trace.Issue) bool {
	if run.stopped || run.cancelled() {
		return false
	}
	var ok bool
	if is != nil {
		ok = run.yield(nil, is)
	} else {
		ok = run.yield(r, nil) && run.watch(r)
	}
	run.stopped = run.stopped || !ok
	return ok
}

// cancelled looks at the context now and then.
func (run *run) cancelled() bool {
	run.calls++
	return run.calls%256 == 0 && run.ctx.Err() != nil
}

// maxIDs bounds how many requests' ids are remembered.
const maxIDs = 1 << 21

// watch tells what shows only over several requests.
func (run *run) watch(r *trace.Request) bool {
	run.units.see(r)
	switch {
	case !r.Arrival.Present(): // nothing of it is placed on a clock with others
	case !run.clocked:
		run.clocked, run.clock = true, r.Clock
	case r.Clock != run.clock && !run.mixed:
		run.mixed = true
		is := trace.NewIssue(trace.MixedClocks, r.Source.Pos, "its clock is %v, that of others %v", r.Clock, run.clock)
		if !run.yield(nil, &is) {
			return false
		}
	}
	if r.ID == "" {
		return true
	}
	h, service := hash(r.ID), uint16(hash(r.Service))
	one, more := r.MaxTokens.Or(0) == 1 && r.Output.Or(1) == 1, r.Output.Or(0) > 1
	id, seen := run.ids[h]
	if !seen && len(run.ids) >= maxIDs {
		return true
	}
	if seen && strings.HasPrefix(r.Source.Engine, "vllm") && (one && id.more || more && id.one) {
		if run.halves.n++; run.halves.n == 1 {
			run.halves.pos = r.Source.Pos
		}
	}
	tell := seen && id.service == service && !id.told
	if !seen {
		id.service = service
	}
	id.one, id.more, id.told = id.one || one, id.more || more, id.told || tell
	run.ids[h] = id
	if tell && !slices.ContainsFunc(r.Issues, func(is trace.Issue) bool { return is.Code == trace.RequestIDReused }) {
		is := trace.NewIssue(trace.RequestIDReused, r.Source.Pos, "request id %.80q stands for more than one request", r.ID)
		return run.yield(nil, &is)
	}
	return true
}

// hash is FNV-1a.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// finish closes the traces and says of inputs with spans that none was a
// request's.
func (run *run) finish() error {
	run.builder.Finish(run.fromSpans)
	if err := run.ctx.Err(); err != nil && !run.stopped {
		return err
	}
	if err := run.builder.Err(); err != nil {
		return err
	}
	for _, s := range run.spans {
		if run.joined > 0 || run.stopped {
			break
		}
		is := trace.NewIssue(trace.NoRequests, s.pos, "none of its %d spans is a request's", s.n)
		run.issue(&is)
	}
	run.settle()
	if n := run.halves.n; n > 0 && !run.stopped {
		is := trace.NewIssue(trace.HalfRequest, run.halves.pos, "%d requests have the id of one for a single token in another trace: if a router asks a prefill engine first, each counts as two, and neither trace says so", n)
		run.issue(&is)
	}
	run.unitIssues()
	run.progress(0)
	return nil
}

func (run *run) fromSpans(r *trace.Request, is *trace.Issue) bool {
	if r != nil {
		run.joined++
		if run.several {
			run.logs.span(r)
		}
	}
	return run.give(r, is)
}

// part is an input, or what was compressed in it, or a file of an archive.
type part struct {
	in  Input
	raw *raw
	out *limited // what is decoded
	dec *otlp.Decoder

	inside   bool        // others put something before each line: bytes have no places of their own
	file     io.ReaderAt // the input itself, where it can be read anywhere and nothing is around it
	archives int         // around it
	left     *int64      // bytes that all files of the archives around it may have yet
}

func (p *part) pos(off int64) trace.Pos { return trace.Pos{File: p.in.Name, Offset: off} }

// at is where a text begins.
func (p *part) at() scan.At { return scan.At{File: p.in.Name, Line: 1, Inside: p.inside} }

// input reads one input. The error is one that ends the run.
func (run *run) input(in Input) (err error) {
	if err := run.ctx.Err(); err != nil {
		return err
	}
	var f io.ReadCloser
	if in.Size < 0 { // no regular file: it may keep us waiting
		f = await(run.ctx, in.Open)
	} else if f, err = in.Open(); err != nil {
		return fmt.Errorf("cannot open %s: %w", in.Name, plainly(err))
	}
	defer func() {
		if e := f.Close(); e != nil && err == nil && !run.stopped {
			err = fmt.Errorf("cannot close %s: %w", in.Name, e)
		}
	}()
	p := &part{in: in, raw: &raw{run: run, r: f}}
	if at, ok := f.(io.ReaderAt); ok && in.Size >= 0 {
		p.file = at
	}
	p.dec = otlp.NewDecoder(run.opts.MaxRecord, run.span)
	err = run.part(p, p.raw, 0)
	if p.raw.failed() {
		if cause := run.ctx.Err(); cause != nil {
			return cause
		}
		var opening *openError
		if errors.As(p.raw.err, &opening) {
			return fmt.Errorf("cannot open %s: %w", in.Name, plainly(opening.error))
		}
		return fmt.Errorf("cannot read %s: %w", in.Name, plainly(p.raw.err))
	}
	if cause := run.ctx.Err(); cause != nil && !run.stopped {
		return cause
	}
	return run.failed(p, err)
}

// span takes what a decoder of spans gives.
func (run *run) span(s *trace.Span, is *trace.Issue) bool {
	switch {
	case is != nil:
		return run.issue(is)
	case run.cancelled():
		return false
	}
	return run.builder.Add(s, run.fromSpans)
}

// plainly drops the call and the path from an error of package os: the message
// has them.
func plainly(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// failed turns the error that ended an input into its issue.
func (run *run) failed(p *part, err error) error {
	var is trace.Issue
	off := int64(0)
	if p.out != nil {
		off = p.out.n
	}
	switch {
	case err == nil || err == otlp.ErrStopped || run.stopped:
		return nil
	case errors.Is(err, errTooLarge):
		is = trace.NewIssue(trace.InputTooLarge, p.pos(off), "reading stopped after %d bytes", run.opts.MaxInput)
	case errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF):
		is = trace.NewIssue(trace.Truncated, p.pos(off), "the compressed data breaks off, %d bytes of content from its begin", off)
	default:
		is = trace.NewIssue(trace.BadCompression, p.pos(off), "the compressed data is damaged, %d bytes of content from its begin", off)
		is.Err = err
	}
	run.issue(&is)
	return nil
}

// sniffed is how many bytes are looked at to recognise a format.
const sniffed = 256 << 10

// maxLayers is how often one thing may be compressed.
const maxLayers = 2

// part reads what r gives, under that many layers of compression.
func (run *run) part(p *part, r io.Reader, layers int) error {
	out := &limited{r: r, max: run.opts.MaxInput}
	if p.out = out; p.left != nil {
		out.max = min(out.max, *p.left)
		defer func() { *p.left -= out.n }()
	}
	br := bufio.NewReaderSize(p.out, sniffed)
	head, err := br.Peek(sniffed)
	if err != nil && err != io.EOF && len(head) == 0 {
		return err
	}
	whole := err == io.EOF
	blank := len(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n\x00")) == 0
	if whole && blank {
		what := "there is nothing in it"
		if len(head) > 0 {
			what = fmt.Sprintf("there is nothing in its %d bytes", len(head))
		}
		is := trace.NewIssue(trace.EmptyInput, p.pos(0), "%s", what)
		run.issue(&is)
		return nil
	}
	if kind := compressionOf(head); kind != plain {
		if layers == maxLayers {
			is := trace.NewIssue(trace.UnknownFormat, p.pos(0), "it is compressed more than %d times over", maxLayers)
			run.issue(&is)
			return nil
		}
		p.file = nil
		z, err := kind.open(br)
		if err != nil {
			return err
		}
		defer z.Close()
		return run.part(p, z, layers+1)
	}
	for _, f := range run.formats {
		if f.sniff(head) {
			return f.read(run, p, br)
		}
	}
	if err != nil && err != io.EOF {
		return err
	}
	if inner := spanfile.Inside(head); !p.inside && len(inner) > 0 {
		for _, f := range run.formats {
			if f.sniff(inner) {
				p.inside, p.file = true, nil
				return f.read(run, p, bufio.NewReaderSize(spanfile.Unwrap(head, br), sniffed))
			}
		}
	}
	is := trace.NewIssue(trace.UnknownFormat, p.pos(0), "%s", describe(head))
	run.issue(&is)
	return nil
}

func (run *run) json(p *part, r *bufio.Reader) error {
	err := p.dec.JSON(r, p.at())
	return run.ended(p, p.dec.Spans, p.dec.Others, err)
}

func (run *run) proto(p *part, r *bufio.Reader) error {
	err := p.dec.Proto(r, otlp.At{File: p.in.Name})
	return run.ended(p, p.dec.Spans, p.dec.Others, err)
}

// spanFile reads spans that are not OTLP.
func (run *run) spanFile(c *spanfile.Container, p *part, r *bufio.Reader) error {
	d := spanfile.NewDecoder(run.opts.MaxRecord, run.opts.Zone, run.span)
	err := d.JSON(c, r, p.at())
	return run.ended(p, d.Spans, d.Others, err)
}

// jsConsole reads what Node.js shows of spans.
func (run *run) jsConsole(p *part, r *bufio.Reader) error {
	d := spanfile.NewDecoder(run.opts.MaxRecord, run.opts.Zone, run.span)
	err := d.JS(r, p.at())
	return run.ended(p, d.Spans, d.Others, err)
}

// records reads records of one request each.
func (run *run) records(f *records.Format, p *part, r *bufio.Reader) error {
	d := records.NewDecoder(run.opts.MaxRecord, run.opts.Zone, run.give)
	err := d.Read(f, r, p.at())
	if d.Requests == 0 && err == nil && !run.stopped && !p.raw.failed() {
		is := trace.NewIssue(trace.NoRequests, p.pos(0), "there are no records of single requests in it")
		run.issue(&is)
	}
	return err
}

// wrapped reads what an SDK prints behind what others put before each line.
// Lines have their places in the input, bytes do not.
func (run *run) wrapped(p *part, r *bufio.Reader) error {
	head, _ := r.Peek(sniffed) // what there is was looked at before
	d := spanfile.NewDecoder(run.opts.MaxRecord, run.opts.Zone, run.span)
	err := d.Console(spanfile.Wrapped(head), spanfile.Unwrap(head, r), scan.At{File: p.in.Name, Line: 1, Inside: true})
	return run.ended(p, d.Spans, d.Others, err)
}

// parquet reads spans in a Parquet file.
func (run *run) parquet(p *part, r *bufio.Reader) error {
	at, size, err := run.anywhere(p, r, "a Parquet file")
	if at == nil {
		return err
	}
	d := spanfile.NewDecoder(run.opts.MaxRecord, run.opts.Zone, run.span)
	known, err := d.Parquet(at, size, scan.At{File: p.in.Name})
	p.raw.rest(p.in.Size)
	if !known {
		return err
	}
	return run.ended(p, d.Spans, d.Others, err)
}

// ended notes what an input of spans held: so many, and so many other objects.
func (run *run) ended(p *part, n, others int, err error) error {
	if n > 0 {
		run.spans = append(run.spans, held{p.pos(0), n})
		return err
	}
	if err != nil || p.raw.failed() { // which says enough
		return err
	}
	what := "there are no spans in it"
	if others > 0 {
		what = fmt.Sprintf("it has %d JSON objects without spans", others)
	}
	is := trace.NewIssue(trace.NoRequests, p.pos(0), "%s", what)
	run.issue(&is)
	return err
}

func (run *run) log(p *part, r *bufio.Reader) error {
	found := 0
	to := run.hold(p.in.Name)
	err := vllmlog.Read(run.ctx, r, vllmlog.Options{
		File: p.in.Name, ModTime: p.in.ModTime, Year: run.opts.Year, Zone: run.opts.Zone,
		MaxRecord: int(min(run.opts.MaxRecord, math.MaxInt)),
		Reading: func(reading trace.Reading) {
			found++
			to.reading(reading)
		},
		Limits: to.limit,
	}, func(r *trace.Request, is *trace.Issue) bool {
		if r != nil {
			found++
			return to.request(r)
		}
		return run.issue(is)
	})
	if found == 0 && !run.stopped && run.ctx.Err() == nil && !p.raw.failed() {
		is := trace.NewIssue(trace.NoRequests, p.pos(0), "no line tells of a request or of the engine's state")
		run.issue(&is)
	}
	return err
}
