package otlp

import (
	"bytes"
	"io"
	"slices"

	"github.com/traceview/traceview/trace"
)

// JSON decodes a stream of JSON values: one object, one a line, one after the
// other, pretty-printed, an array of them, also one without its end, or objects
// behind the text of a log line. It returns the first error of r, after having
// decoded what came before, or ErrStopped.
//
// Only one value is held in memory at a time. Where a value is torn, the spans
// that are whole count; reading resumes at the next line, or at what looks
// like the begin of another value.
func (d *Decoder) JSON(r io.Reader, at At) error {
	if d.buf == nil {
		d.buf = make([]byte, 0, 64<<10)
	}
	s := stream{d: d, r: r, at: at, buf: d.buf[:0], bad: -1, line: at.Line}
	err := s.run()
	d.buf = s.buf
	return err
}

// A stream finds the values in a stream of bytes.
type stream struct {
	d  *Decoder
	r  io.Reader
	at At

	buf  []byte // what was read and may be needed yet
	i    int    // the next byte to look at
	base int64  // offset of buf[0]
	err  error  // why there is no more; io.EOF

	line   int // of buf[lineAt]
	lineAt int

	// What is being passed over, until a value that can hold spans comes.
	bad     int64 // where it began; −1: nothing is
	badPos  trace.Pos
	why     skipped
	lines   int  // ends of lines in it
	behind  bool // values stand behind text, as in a log
	control bool // the text has control characters
}

// skipped says what a passed-over stretch is.
type skipped uint8

const (
	text      skipped = iota // no JSON at all
	torn                     // a value that stops in the middle of the input
	tornAtEnd                // the same, and only blanks follow
)

// more reads more. It may forget what is before s.i: indices become less by
// moved. ok is false where there is no more.
func (s *stream) more() (moved int, ok bool) {
	if s.err != nil {
		return 0, false
	}
	if s.i > cap(s.buf)/2 || s.i == len(s.buf) {
		moved = s.i
		s.count(moved)
		s.buf = s.buf[:copy(s.buf, s.buf[moved:])]
		s.base += int64(moved)
		s.lineAt -= moved
		s.i = 0
	}
	if len(s.buf) == cap(s.buf) {
		s.buf = slices.Grow(s.buf, cap(s.buf))
	}
	for range 100 {
		n, err := s.r.Read(s.buf[len(s.buf):cap(s.buf)])
		s.buf = s.buf[:len(s.buf)+n]
		s.err = err
		if n > 0 || err != nil {
			return moved, n > 0
		}
	}
	s.err = io.ErrNoProgress
	return moved, false
}

// count moves the line counter to buf[i].
func (s *stream) count(i int) {
	if i > s.lineAt {
		if s.line > 0 {
			s.line += bytes.Count(s.buf[s.lineAt:i], []byte{'\n'})
		}
		s.lineAt = i
	}
}

// pos returns the place of buf[i], which must not lie before an earlier one.
func (s *stream) pos(i int) trace.Pos {
	s.count(i)
	p := s.at.pos(s.base + int64(i))
	p.Line = s.line
	return p
}

func (s *stream) run() error {
	for {
		if s.i == len(s.buf) {
			if _, ok := s.more(); ok {
				continue
			}
			break
		}
		var err error
		switch c := s.buf[s.i]; c {
		case '\n':
			if s.bad >= 0 {
				s.lines++
			}
			s.i++
		case ' ', '\t', '\r', ',', '[', ']', 0x1e:
			s.i++
		case '{':
			err = s.value()
		default:
			if c == 0xef && s.bom() {
				continue
			}
			err = s.garbage()
		}
		if err != nil {
			return err
		}
	}
	if s.err == io.EOF {
		s.err = nil
		if err := s.flush(true); err != nil {
			return err
		}
	}
	return s.err
}

// bom passes over a byte order mark.
func (s *stream) bom() bool {
	mark := []byte("\xef\xbb\xbf")
	if !s.ahead(len(mark)) || !bytes.HasPrefix(s.buf[s.i:], mark) {
		return false
	}
	s.i += len(mark)
	return true
}

// ahead makes sure that n bytes from s.i on are there, and reports whether the
// input has them.
func (s *stream) ahead(n int) bool {
	for len(s.buf) < s.i+n {
		if _, ok := s.more(); !ok {
			return false
		}
	}
	return true
}

// rootAhead is how many bytes isRoot looks at, at most.
const rootAhead = 64

// roots are the keys by which an object is known to hold spans, as they stand
// first in it.
var roots = [][]byte{
	[]byte(`"resourceSpans"`), []byte(`"resource_spans"`), []byte(`"resource"`),
	[]byte(`"scopeSpans"`), []byte(`"scope_spans"`), []byte(`"batches"`),
	[]byte(`"instrumentationLibrarySpans"`),
}

// isRoot reports whether b begins with an object that holds spans.
func isRoot(b []byte) bool { return hasRoot(b, roots) }

// isOuterRoot is isRoot for what can only be the outermost object.
func isOuterRoot(b []byte) bool { return hasRoot(b, roots[:2]) }

func hasRoot(b []byte, keys [][]byte) bool {
	if len(b) == 0 || b[0] != '{' {
		return false
	}
	b = bytes.TrimLeft(b[1:min(len(b), rootAhead)], " \t\r\n")
	for _, k := range keys {
		if bytes.HasPrefix(b, k) {
			return true
		}
	}
	return false
}

// lastRoot returns the index of the last outermost object that begins in b;
// −1 where none does.
func lastRoot(b []byte) int {
	for {
		i := bytes.LastIndex(b, []byte(`"resource`))
		if i < 0 {
			return -1
		}
		j := len(bytes.TrimRight(b[max(0, i-16):i], " \t\r\n")) + max(0, i-16) - 1
		if j >= 0 && b[j] == '{' && isOuterRoot(b[j:]) {
			return j
		}
		b = b[:i]
	}
}

// garbage passes over the text from s.i to the end of the line, or to an
// object in it that holds spans.
func (s *stream) garbage() error {
	begun := s.bad < 0
	if begun {
		s.open(s.i, text)
	}
	control := false
	for {
		for i := s.i; i < len(s.buf); i++ {
			switch c := s.buf[i]; {
			case c == '\n':
				s.control = s.control || control
				s.i = i
				return nil
			case c == '{':
				s.i = i
				s.ahead(rootAhead)
				i = s.i
				if !isRoot(s.buf[i:]) {
					continue
				}
				if !control && s.why == text {
					// The text on this line is a log's; what came before
					// is lines of their own.
					s.behind = true
					if begun {
						s.bad = -1
					}
				}
				s.control = s.control || control
				return s.value()
			case c < ' ' && c != '\t' && c != '\r' && c != 0x1b:
				control = true
			}
		}
		s.i = len(s.buf)
		if _, ok := s.more(); !ok {
			s.control = s.control || control
			return nil
		}
	}
}

// open begins a stretch that is passed over.
func (s *stream) open(i int, why skipped) {
	s.badPos = s.pos(i)
	s.bad, s.why, s.lines, s.control = s.base+int64(i), why, 0, false
}

// flush ends the stretch that is passed over, if there is one, before s.i.
func (s *stream) flush(atEnd bool) error {
	if s.bad < 0 {
		return nil
	}
	n := s.base + int64(s.i) - s.bad
	s.bad = -1
	var is trace.Issue
	switch {
	case s.why == tornAtEnd && atEnd:
		what := "value"
		if s.lines == 0 {
			what = "line"
		}
		is = trace.NewIssue(trace.Truncated, s.badPos, "last %s incomplete (%d bytes)", what, n)
	case s.why == text && s.behind && !s.control:
		is = trace.NewIssue(trace.ForeignLine, s.badPos, "no spans in %d bytes of text", n)
	case s.why == text:
		is = trace.NewIssue(trace.BadJSON, s.badPos, "%d bytes are no JSON", n)
	default:
		is = trace.NewIssue(trace.BadJSON, s.badPos, "a value stops in the middle; %d bytes skipped", n)
	}
	return s.issue(is)
}

func (s *stream) issue(is trace.Issue) error {
	if !s.d.sink(nil, &is) {
		return ErrStopped
	}
	return nil
}

// value finds the end of the object that begins at s.i, by its brackets, and
// decodes it.
func (s *stream) value() error {
	var (
		i        = s.i
		depth    int
		inString bool
		large    bool // it is over the limit: only its end matters
	)
	for {
		b := s.buf
	scan:
		for i < len(b) {
			if inString {
				for i < len(b) && !stringStop[b[i]] {
					i++
				}
				if i == len(b) {
					break
				}
				switch b[i] {
				case '"':
					inString = false
				case '\\':
					if i+1 == len(b) {
						break scan
					}
					if b[i+1] != '\n' {
						i++
					}
				case '\n':
					return s.tear(i, large, true)
				}
				i++
				continue
			}
			switch b[i] {
			case '"':
				inString = true
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return s.whole(i+1, large)
				}
			case '\n':
				if depth < 2 && (depth < 1 || valueFollows(b[:i])) {
					break
				}
				if len(b)-i < rootAhead && s.err == nil {
					break scan
				}
				if isOuterRoot(b[i+1:]) {
					return s.tear(i+1, large, true)
				}
			}
			i++
		}
		// More is needed. s.i stays at the begin of the value, or, in one that
		// is too large, moves along.
		if !large && int64(len(s.buf)-s.i) > s.d.max {
			large = true
			if err := s.tooLarge(); err != nil {
				return err
			}
		}
		if large {
			s.i = i
		}
		done := s.err != nil // and the scan above knew it
		moved, _ := s.more()
		i -= moved
		if done {
			return s.tear(len(s.buf), large, false)
		}
	}
}

func (s *stream) tooLarge() error {
	return s.issue(trace.NewIssue(trace.RecordTooLarge, s.pos(s.i), "a value is larger than %d bytes", s.d.max))
}

// stringStop holds the bytes at which a string's scan has to look.
var stringStop = [256]bool{'"': true, '\\': true, '\n': true}

// valueFollows reports whether b ends in a colon: what comes next is no new
// value of the stream.
func valueFollows(b []byte) bool {
	b = bytes.TrimRight(b[max(0, len(b)-8):], " \t\r")
	return len(b) > 0 && b[len(b)-1] == ':'
}

// whole takes the value buf[s.i:end].
func (s *stream) whole(end int, large bool) error {
	if !large && int64(end-s.i) > s.d.max {
		large = true
		if err := s.tooLarge(); err != nil {
			return err
		}
	}
	if large {
		s.i = end
		return nil
	}
	n, root, err := s.decode(end, false)
	if err != nil {
		return err
	}
	if !root && s.bad < 0 { // inside a torn value, its parts look like values
		s.d.Others++
	}
	s.i += n
	return nil
}

// tear takes the value that begins at s.i and breaks off at buf[end]. more
// says that the input goes on there.
func (s *stream) tear(end int, large, more bool) error {
	if large {
		s.i = end
		return nil
	}
	// Where the writer went on without a new line, the next value is inside.
	if p := lastRoot(s.buf[s.i+1 : end]); p >= 0 {
		end, more = s.i+1+p, true
	}
	why := torn
	if more {
		n := end - s.i
		if s.onlyBlanks(end) {
			why = tornAtEnd
		}
		end = s.i + n
	} else if s.err == io.EOF {
		why = tornAtEnd
	}
	old, oldPos := s.bad, s.badPos
	start, pos := s.base+int64(s.i), s.pos(s.i)
	_, root, err := s.decode(end, true)
	if err != nil {
		return err
	}
	if !more && why == torn { // a failing reader: its error says it all
		s.i, s.bad = len(s.buf), -1
		return nil
	}
	lines := bytes.Count(bytes.TrimRight(s.buf[s.i:end], " \t\r\n"), []byte{'\n'})
	if old >= 0 && !root { // a part of what is being passed over already
		s.bad, s.badPos = old, oldPos
		s.lines += lines
		if s.why == text || why == torn {
			s.why = torn
		}
	} else {
		s.bad, s.badPos, s.why, s.lines, s.control = start, pos, why, lines, false
	}
	s.i = end
	if why == tornAtEnd {
		s.i = len(bytes.TrimRight(s.buf[:end], " \t\r\n"))
		err = s.flush(true)
		s.i = len(s.buf)
	}
	return err
}

// onlyBlanks reports whether nothing but blanks follows buf[end:] up to the
// end of the input, looking ahead a little.
func (s *stream) onlyBlanks(end int) bool {
	for {
		if len(bytes.TrimLeft(s.buf[end:], " \t\r\n")) > 0 || len(s.buf)-end > 4096 {
			return false
		}
		moved, ok := s.more()
		if end -= moved; !ok {
			return s.err == io.EOF
		}
	}
}

// decode decodes buf[s.i:end], of which partial says that it is torn, and
// returns how much of it was used and whether it was meant to hold spans.
func (s *stream) decode(end int, partial bool) (n int, root bool, err error) {
	p := parser{
		d: s.d, b: s.buf[s.i:end], at: s.at, partial: partial,
		begin: s.pos(s.i), report: s.bad < 0,
		// What was passed over before is told before what comes now, but only
		// once it is sure that this is a value with spans.
		onRoot: func() error { return s.flush(false) },
	}
	return p.value()
}
