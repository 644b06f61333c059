package ingest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/traceview/traceview/ingest/otlp"
	"github.com/traceview/traceview/trace"
)

// frameAhead is how many bytes of a message decide whether it is one.
const frameAhead = 64

// sniffFrames reports whether head begins with a length and a message.
func sniffFrames(head []byte) bool {
	if len(head) < 6 {
		return false
	}
	// A greater length would be text: its first byte is no control character.
	n := binary.BigEndian.Uint32(head)
	return n >= 2 && n < 0x20<<24 && isMessage(head[4:min(len(head), 4+int(min(n, frameAhead)))])
}

// sniffFramed is sniffFrames for the begin of an input, whose first message may
// be damaged: then the second is where the first one's length says.
func sniffFramed(head []byte) bool {
	if sniffFrames(head) || len(head) < 4 {
		return sniffFrames(head)
	}
	n := binary.BigEndian.Uint32(head)
	return n >= 2 && int64(n) < int64(len(head)-4) && sniffFrames(head[4+n:])
}

// isMessage reports whether b begins like a message: OTLP or compressed.
func isMessage(b []byte) bool {
	if compressionOf(b) != plain || otlp.SniffProto(b) {
		return true
	}
	b, ok := bytes.CutPrefix(bytes.TrimLeft(b, " \t\r\n"), []byte("{"))
	b = bytes.TrimLeft(b, " \t\r\n")
	return ok && (len(b) == 0 || b[0] == '"' || b[0] == '}')
}

// errShort says that the input ended inside a frame.
var errShort = errors.New("the input ends inside the message")

// frame reads the n bytes of one frame.
type frame struct {
	r *bufio.Reader
	n int64
}

func (f *frame) Read(p []byte) (int, error) {
	if f.n == 0 {
		return 0, io.EOF
	}
	if int64(len(p)) > f.n {
		p = p[:f.n]
	}
	n, err := f.r.Read(p)
	f.n -= int64(n)
	if err == io.EOF {
		err = errShort
	}
	return n, err
}

// frames reads length-prefixed messages, as the collector's file exporter
// writes protobuf, and whatever it compresses by itself.
func (run *run) frames(p *part, r *bufio.Reader) error {
	err := run.messages(p, r)
	return run.ended(p, p.dec.Spans, p.dec.Others, err)
}

func (run *run) messages(p *part, r *bufio.Reader) error {
	var (
		off int64
		u   = unpacker{run: run, part: p}
	)
	defer u.close()
	for i := 0; ; i++ {
		head, err := r.Peek(4 + frameAhead)
		if len(head) == 0 {
			if err == io.EOF {
				err = nil
			}
			return err
		}
		if !sniffFrames(head) {
			n, err := resync(r)
			pos := p.pos(off)
			off += n
			if err != nil && err != io.EOF {
				return err
			}
			code, what := trace.BadFrame, "no message begins here; %d bytes skipped"
			if n < 4+2 && err == io.EOF {
				code, what = trace.Truncated, "last message incomplete (%d bytes)"
			}
			if is := trace.NewIssue(code, pos, what, n); !run.issue(&is) {
				return otlp.ErrStopped
			}
			continue
		}
		size := int64(binary.BigEndian.Uint32(head))
		pos := p.pos(off)
		r.Discard(4)
		f := &frame{r, size}
		at := otlp.At{File: p.in.Name, Offset: off + 4, Path: fmt.Sprintf("message[%d]", i)}
		off += 4 + size
		if size > run.opts.MaxRecord {
			is := trace.NewIssue(trace.RecordTooLarge, pos, "a message has %d bytes, more than %d", size, run.opts.MaxRecord)
			if !run.issue(&is) {
				return otlp.ErrStopped
			}
			err = nil
		} else {
			err = u.message(f, at)
		}
		if err == nil {
			_, err = io.Copy(io.Discard, f)
		}
		var failed *issueError
		switch {
		case err == nil:
		case errors.Is(err, errShort):
			is := trace.NewIssue(trace.Truncated, pos, "last message incomplete (%d of %d bytes)", size-f.n, size)
			if !run.issue(&is) {
				return otlp.ErrStopped
			}
			return nil
		case errors.As(err, &failed):
			failed.issue.Pos = pos
			if !run.issue(&failed.issue) {
				return otlp.ErrStopped
			}
			if _, err := io.Copy(io.Discard, f); err != nil && err != errShort {
				return err
			}
		default:
			return err
		}
	}
}

// resync passes over bytes until a frame seems to begin, and returns how many.
func resync(r *bufio.Reader) (n int64, err error) {
	for {
		b, err := r.Peek(r.Size())
		for i := 1; i < len(b); i++ {
			if i+4 < len(b) && !frameStart[b[i+4]] {
				continue
			}
			if len(b)-i < 4+frameAhead && err == nil {
				break
			}
			if sniffFrames(b[i:]) {
				r.Discard(i)
				return n + int64(i), nil
			}
		}
		if err != nil {
			m, _ := r.Discard(len(b))
			return n + int64(m), err
		}
		m, _ := r.Discard(len(b) - 4 - frameAhead)
		n += int64(m)
	}
}

// frameStart holds the bytes with which a message can begin.
var frameStart = [256]bool{'{': true, ' ': true, '\t': true, '\r': true, '\n': true, 0x1f: true, 0x28: true}

// issueError is an error that is an issue of one message.
type issueError struct{ issue trace.Issue }

func (e *issueError) Error() string { return e.issue.Error() }

// unpacker decodes messages; it keeps what decompresses them.
type unpacker struct {
	run  *run
	part *part
	gz   *gzip.Reader
	zs   *zstd.Decoder
	buf  *bufio.Reader
	n    int64 // bytes decompressed
}

func (u *unpacker) close() {
	if u.zs != nil {
		u.zs.Close()
	}
}

// message decodes one message.
func (u *unpacker) message(f *frame, at otlp.At) error {
	head, _ := f.r.Peek(int(min(f.n, frameAhead)))
	kind := compressionOf(head)
	if kind == plain {
		return u.decode(head, f, at)
	}
	var r io.Reader
	var err error
	switch kind {
	case gz:
		if u.gz == nil {
			u.gz = new(gzip.Reader)
		}
		err, r = u.gz.Reset(f), u.gz
	case zst:
		if u.zs == nil {
			u.zs, err = newZstd(f)
		} else {
			err = u.zs.Reset(f)
		}
		r = u.zs
	}
	if err == nil {
		limit := &limited{r: r, max: min(u.run.opts.MaxRecord, u.run.opts.MaxInput-u.n)}
		if u.buf == nil {
			u.buf = bufio.NewReader(limit)
		} else {
			u.buf.Reset(limit)
		}
		head, _ := u.buf.Peek(frameAhead)
		at.Inside = true
		err = u.decode(head, u.buf, at)
		u.n += limit.n
		if err == errTooLarge && u.n < u.run.opts.MaxInput {
			return &issueError{trace.NewIssue(trace.RecordTooLarge, trace.Pos{}, "a message has more than %d bytes once decompressed", u.run.opts.MaxRecord)}
		}
	}
	if err == nil || errors.Is(err, errShort) || err == otlp.ErrStopped || err == errTooLarge || u.part.raw.failed() {
		return err
	}
	is := trace.NewIssue(trace.BadCompression, trace.Pos{}, "a message is damaged")
	is.Err = err
	return &issueError{is}
}

// decode decodes what is a message once decompressed.
func (u *unpacker) decode(head []byte, r io.Reader, at otlp.At) error {
	if t := bytes.TrimLeft(head, " \t\r\n"); otlp.SniffProto(head) || len(t) > 0 && !bytes.ContainsRune([]byte("{[,]"), rune(t[0])) {
		return u.part.dec.Proto(r, at)
	}
	return u.part.dec.JSON(r, at)
}
