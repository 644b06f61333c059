// Package vllmlog reads the text logs of vLLM, all versions from 0.4, and
// yields one [trace.Request] for each request that they tell of.
//
// What is read. Lines are recognised by their shape, not by a version: request
// lines ("Received request", "Added request", "Aborted request(s)", "Generated
// response" and so on), the engines' statistics, the Rust front end's
// "completion finished". Wrappers come off first, in whatever nesting:
// docker's json-file with its pieces, CRI, kubectl's and docker's stamps,
// compose and kubectl prefixes, journald and syslog, JSON formatters, terminal
// colours, carriage returns, the "(APIServer pid=7)" of processes.
//
// What a line means for a request:
//
//   - Arrival is the Received line. vLLM writes it after it has rendered and
//     tokenised the prompt.
//   - Queued and Scheduled are never set and no waiting is claimed: no line of
//     any version gives a request's time in the queue. "Added request" is when
//     the front end sent the request off (V1) or the engine's process picked it
//     up (V0); it joins the engine's id to the request and says no more.
//   - FirstToken and LastToken are the first and the last streaming delta of
//     "Generated response", where outputs are logged, and the time between
//     them is claimed as decode. All other time is unattributed.
//   - Completed and the outcome come from the line that ends the request:
//     Finished and Generated response, ok; Aborted, aborted; failed, error, or
//     rejected where the request was bad. HTTP access lines end nothing: for a
//     stream they are written at its start. A request whose end is not in the
//     log is incomplete. Most versions never log a normal end.
//   - Where the engine dies, what was running is an error that ended then
//     (derived); where the server starts, what was running is lost.
//
// A stamp of the container runtime is used before vLLM's own, which has
// neither year, zone nor fraction; it is when the runtime read the line. A
// request's Resolution is the coarsest step behind its instants. An end in the
// same step as the arrival, but on a coarser clock, is placed at the arrival
// (derived): the order within the step is not known.
//
// Requests are yielded as they end, those still open at the end of the log
// last, in order of arrival. Where the year is not stated and no outer stamp
// has one, up to 65,536 of them are held back, so that the year can be chosen
// with the log's end in view.
//
// Replica is the container's name where compose or kubectl name it. In a
// Reading it is "engine 0", or "2 engines" for an aggregate, behind the
// container's name; empty where the line names no engine.
//
// Prompts and outputs are passed over, never kept: no field of a request and
// no issue has any part of them.
package vllmlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"

	"github.com/traceview/traceview/trace"
)

// Format is the Source.Format of requests and readings from here.
const Format = "vllm-log"

// DefaultMaxRecord is the limit of one line in bytes where none is stated.
const DefaultMaxRecord = 256 << 20

// Options are what the log itself does not say, and limits. The zero value
// works.
type Options struct {
	File      string         // its name, for positions
	ModTime   time.Time      // of the file, to take the year from; zero: not known
	Year      int            // of the first stamp without one; 0: from outer stamps or ModTime
	Zone      *time.Location // of stamps without one; nil: UTC, with a note
	MaxRecord int            // bytes of one line, joined from its pieces; 0: DefaultMaxRecord

	// Reading is called with each statistics line, in the log's order; nil:
	// they are passed over.
	Reading func(trace.Reading)
	// Limits is called with what a server says of its limits while it starts,
	// once an engine and start, after the last line that may add to it; nil:
	// they are passed over.
	Limits func(trace.EngineLimits)
}

// Sniff reports whether head, the first bytes of an input, has a line of
// vLLM's log, behind whatever wrapper and after however many other lines. head
// may end in the middle of a line.
func Sniff(head []byte) bool {
	if t := bytes.TrimLeft(head, "\xef\xbb\xbf \t\r\n"); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		first, _, _ := bytes.Cut(t[:min(len(t), 512)], []byte(":"))
		for _, key := range []string{"resourceSpans", "resourceLogs", "resourceMetrics", "resource_spans"} {
			if bytes.Contains(first, []byte(key)) {
				return false
			}
		}
	}
	found := false
	u := unwrapper{max: len(head), big: func(trace.Pos) {}}
	u.emit = func(e *entry) {
		if e.prefix != nil || e.vllm {
			found = true
			return
		}
		ev := find(e)
		found = found || ev.kind != other && ev.kind != config && ev.kind != started && ev.kind != died && (!ev.torn || ev.id != nil)
	}
	head = bytes.Clone(head) // the unwrapper writes into lines
	for len(head) > 0 && !found {
		line, rest, nl := bytes.Cut(head, []byte("\n"))
		u.cut = !nl
		u.line(line, entry{})
		head = rest
	}
	if !found {
		u.finish()
	}
	return found
}

// find says what a logical line tells. Behind the engine's prefix the message
// begins at once. Other servers that run vLLM inside write their own prefix: a
// stamp and some words, after which the message must be whole.
func find(e *entry) event {
	if e.engine {
		return parse(e.text)
	}
	s := e.text
	if e.process != nil && !hasPrefix(s, "INFO:") {
		// What a process prints past the logger: of interest when it dies.
		if ev := parse(s); ev.kind == died {
			return ev
		}
	}
	if e.at.ok {
		for range 8 {
			if ev := parse(s); ev.kind != other && !ev.torn {
				return ev
			}
			i := bytes.IndexByte(s[:min(len(s), 128)], ' ')
			if i < 0 || !technical(s[:i]) {
				break
			}
			s = bytes.TrimLeft(s[i:], " ")
		}
	} else if s, ok := bytes.CutPrefix(s, []byte("INFO:")); ok {
		s = bytes.TrimLeft(s, " ")
		if ev := parse(s); ev.kind == started && s[0] == 'S' { // uvicorn's lines have no stamp
			return ev
		}
	}
	return event{}
}

// technical reports whether a word may stand in a logger's prefix: a level in
// capitals, or one with digits or signs; no plain word and nothing quoted, as
// sentences have.
func technical(word []byte) bool {
	lower, sign := false, false
	for _, c := range word {
		switch {
		case c == '\'' || c == '"' || c == '=' || c == '\\' || c == '`':
			return false
		case c|0x20-'a' >= 26:
			sign = true
		case c >= 'a':
			lower = true
		}
	}
	return sign || !lower
}

// Read reads a log and yields its requests, and issues that are about a line
// or the log as a whole; those about a request are on the request. It stops
// when yield returns false. The error is the reader's or the context's; what
// was read before it counts.
func Read(ctx context.Context, r io.Reader, opts Options, yield func(*trace.Request, *trace.Issue) bool) error {
	if opts.MaxRecord <= 0 {
		opts.MaxRecord = DefaultMaxRecord
	}
	l := newLog(opts, yield)
	lines := lineReader{ctx: ctx, r: r, max: opts.MaxRecord}
	blank := true
	var err error
	for !l.stopped {
		var ln physical
		if ln, err = lines.next(); err != nil {
			break
		}
		if ln.no == 1 {
			ln.text = bytes.TrimPrefix(ln.text, []byte("\xef\xbb\xbf"))
		}
		pos := trace.Pos{File: opts.File, Offset: ln.off, Line: ln.no}
		if ln.big {
			blank = false
			l.tooLarge(pos)
			continue
		}
		blank = blank && len(bytes.TrimSpace(ln.text)) == 0
		l.unwrap.line(ln.text, entry{pos: pos, torn: !ln.nl})
	}
	if cause := ctx.Err(); cause != nil {
		return cause
	}
	if !l.stopped {
		if blank && errors.Is(err, io.EOF) {
			l.issue(trace.NewIssue(trace.EmptyInput, trace.Pos{File: opts.File}, "there is nothing in it"))
		}
		l.finish()
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}
