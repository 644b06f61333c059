package vllmlog

import (
	"bytes"
	"context"
	"io"
)

// lineReader splits a stream at newlines. Lines may be of any length up to a
// limit; a longer one is skipped without being held.
type lineReader struct {
	ctx        context.Context
	r          io.Reader
	buf        []byte
	start, end int   // buf[start:end] is read and not yet returned
	off        int64 // of buf[start] in the stream
	n          int   // lines returned
	max        int
	err        error // what ended the stream
}

// physical is one line of the stream, without its newline. It is valid until
// the next call of next and may be written to.
type physical struct {
	text []byte
	off  int64
	no   int
	nl   bool // a newline ended it; false for the last line of a stream without one
	big  bool // it was longer than the limit; text is empty
}

const firstBuffer = 256 << 10

// next returns the next line, or what ended the stream.
func (l *lineReader) next() (ln physical, err error) {
	ln.off = l.off
	scan := l.start
	for {
		if i := bytes.IndexByte(l.buf[scan:l.end], '\n'); i >= 0 {
			i += scan
			ln.text, ln.nl = l.buf[l.start:i], true
			l.off += int64(i + 1 - l.start)
			l.start = i + 1
			break
		}
		if l.err != nil {
			if l.start == l.end && !ln.big {
				return ln, l.err
			}
			ln.text = l.buf[l.start:l.end]
			l.off += int64(l.end - l.start)
			l.start = l.end
			break
		}
		if l.end-l.start > l.max || ln.big {
			ln.big = true
			l.off += int64(l.end - l.start)
			l.start = l.end
		}
		had := l.end - l.start
		l.fill()
		scan = l.start + had
	}
	if ln.big || len(ln.text) > l.max {
		ln.text, ln.big = nil, true
	}
	l.n++
	ln.no = l.n
	return ln, nil
}

// fill reads once, making room first.
func (l *lineReader) fill() {
	if l.start == l.end {
		l.start, l.end = 0, 0
	}
	if l.end == len(l.buf) {
		buf := l.buf
		if l.start == 0 {
			buf = make([]byte, max(firstBuffer, 2*len(buf)))
		}
		l.end = copy(buf, l.buf[l.start:l.end])
		l.start, l.buf = 0, buf
	}
	for range 100 {
		if l.err = l.ctx.Err(); l.err != nil {
			return
		}
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		l.err = err
		if n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}
