package scan

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/traceview/traceview/trace"
)

// ErrStopped is returned when whoever takes the records wanted no more.
var ErrStopped = errors.New("stopped by the receiver")

// Keys are the keys, in quotes, by which an object is known to hold records,
// as they stand first in it.
type Keys struct {
	Roots [][]byte
	Outer [][]byte // of what can only be the outermost object
	Lines [][]byte // of what can only be the outermost object where it begins a line
}

// A Value is one JSON object of a stream.
type Value struct {
	B       []byte
	Begin   trace.Pos // of B[0]
	Partial bool      // B breaks off at its end
	Report  bool      // tell of a syntax error even where no records are meant
	// Ours is to be called once it is sure that the value is meant to hold
	// records, before anything is told of it.
	Ours func() error
}

// A Stream finds the values in a stream of bytes: one object, one a line, one
// after the other, pretty-printed, an array of them, also one without its end,
// or objects behind the text of a log line.
//
// Only one value is held in memory at a time. Where a value is torn, reading
// resumes at the next line, or at what looks like the begin of another value.
type Stream struct {
	R    io.Reader
	At   At
	Max  int64  // bytes of one value; larger ones are passed over
	What string // what the values hold, for messages: "spans"
	Keys Keys
	// Learn: where values turn out to begin lines, all with one key, a line
	// that begins so inside a value says that the value is torn.
	Learn bool
	Logs  bool // text between the values is a program's log: nothing is lost
	// Decode takes a value. It returns how many of its bytes were used (less
	// than all where another value seems to begin inside), and whether it was
	// meant to hold records.
	Decode func(Value) (used int, ours bool, err error)
	Issue  func(*trace.Issue) bool // false: stop
	Buf    []byte                  // to be used again; may be nil
	Others int                     // objects that hold none

	learnt [][]byte

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
	ours    bool // a torn value in it was meant to hold records
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
func (s *Stream) more() (moved int, ok bool) {
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
		n, err := s.R.Read(s.buf[len(s.buf):cap(s.buf)])
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
func (s *Stream) count(i int) {
	if i > s.lineAt {
		if s.line > 0 {
			s.line += bytes.Count(s.buf[s.lineAt:i], []byte{'\n'})
		}
		s.lineAt = i
	}
}

// pos returns the place of buf[i], which must not lie before an earlier one.
func (s *Stream) pos(i int) trace.Pos {
	s.count(i)
	p := s.At.Pos(s.base + int64(i))
	p.Line = s.line
	return p
}

// Run reads all. It returns the first error of R, after having read what came
// before, or that of Decode, or ErrStopped.
func (s *Stream) Run() error {
	if s.Buf == nil {
		s.Buf = make([]byte, 0, 64<<10)
	}
	s.buf, s.bad, s.line = s.Buf[:0], -1, s.At.Line
	s.learnt = s.Keys.Lines
	err := s.run()
	s.Buf = s.buf
	return err
}

func (s *Stream) run() error {
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
func (s *Stream) bom() bool {
	mark := []byte("\xef\xbb\xbf")
	if !s.ahead(len(mark)) || !bytes.HasPrefix(s.buf[s.i:], mark) {
		return false
	}
	s.i += len(mark)
	return true
}

// ahead makes sure that n bytes from s.i on are there, and reports whether the
// input has them.
func (s *Stream) ahead(n int) bool {
	for len(s.buf) < s.i+n {
		if _, ok := s.more(); !ok {
			return false
		}
	}
	return true
}

// rootAhead is how many bytes tell whether an object holds records, at most.
const rootAhead = 64

// begins reports whether b begins with an object whose first key is one of
// keys, which stand in quotes.
func begins(b []byte, keys [][]byte) bool {
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

// Begins reports whether b begins with an object that holds records.
func (k Keys) Begins(b []byte) bool { return begins(b, k.Roots) }

// Last returns the index of the last outermost object that begins in b; −1
// where none does.
func (k Keys) Last(b []byte) int {
	last := -1
	for _, key := range k.Outer {
		for rest := b; ; {
			i := bytes.LastIndex(rest, key)
			if i < 0 || i <= last {
				break
			}
			j := len(bytes.TrimRight(rest[max(0, i-16):i], " \t\r\n")) + max(0, i-16) - 1
			if j >= 0 && rest[j] == '{' {
				last = max(last, j)
				break
			}
			rest = rest[:i]
		}
	}
	return last
}

// garbage passes over the text from s.i to the end of the line, or to an
// object in it that holds spans.
func (s *Stream) garbage() error {
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
				if !s.Keys.Begins(s.buf[i:]) {
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
func (s *Stream) open(i int, why skipped) {
	s.badPos = s.pos(i)
	s.bad, s.why, s.lines, s.control, s.ours = s.base+int64(i), why, 0, false, false
}

// flush ends the stretch that is passed over, if there is one, before s.i.
func (s *Stream) flush(atEnd bool) error {
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
	case (s.why == text && (s.behind || s.Logs) || s.Logs && !s.ours) && !s.control:
		is = trace.NewIssue(trace.ForeignLine, s.badPos, "no %s in %d bytes of text", s.What, n)
	case s.why == text:
		is = trace.NewIssue(trace.BadJSON, s.badPos, "%d bytes are no JSON", n)
	default:
		is = trace.NewIssue(trace.BadJSON, s.badPos, "a value stops in the middle; %d bytes skipped", n)
	}
	return s.issue(is)
}

func (s *Stream) issue(is trace.Issue) error {
	if !s.Issue(&is) {
		return ErrStopped
	}
	return nil
}

// value finds the end of the object that begins at s.i, by its brackets, and
// decodes it.
func (s *Stream) value() error {
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
				if begins(b[i+1:], s.Keys.Outer) || begins(b[i+1:], s.learnt) {
					return s.tear(i+1, large, true)
				}
			}
			i++
		}
		// More is needed. s.i stays at the begin of the value, or, in one that
		// is too large, moves along.
		if !large && int64(len(s.buf)-s.i) > s.Max {
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

func (s *Stream) tooLarge() error {
	return s.issue(trace.NewIssue(trace.RecordTooLarge, s.pos(s.i), "a value is larger than %d bytes", s.Max))
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
func (s *Stream) whole(end int, large bool) error {
	if !large && int64(end-s.i) > s.Max {
		large = true
		if err := s.tooLarge(); err != nil {
			return err
		}
	}
	if large {
		s.i = end
		return nil
	}
	n, ours, err := s.decode(end, false)
	if err != nil {
		return err
	}
	if !ours && s.bad < 0 { // inside a torn value, its parts look like values
		s.Others++
	}
	if ours && s.Learn && s.Keys.Outer == nil {
		s.learn(s.buf[s.i:end])
	}
	s.i += n
	return nil
}

// learn takes the first key of a whole value for that of all, unless lines
// inside the value begin with objects of their own.
func (s *Stream) learn(b []byte) {
	key := bytes.TrimLeft(b[1:], " \t\r\n")
	end := bytes.IndexByte(key[min(1, len(key)):], '"')
	if len(key) == 0 || key[0] != '"' || end < 0 || end > rootAhead/2 || bytes.Contains(b, []byte("\n{")) {
		return
	}
	s.learnt = [][]byte{bytes.Clone(key[:end+2])}
	s.Learn = false
}

// tear takes the value that begins at s.i and breaks off at buf[end]. more
// says that the input goes on there.
func (s *Stream) tear(end int, large, more bool) error {
	if large {
		s.i = end
		return nil
	}
	// Where the writer went on without a new line, the next value is inside.
	if p := s.Keys.Last(s.buf[s.i+1 : end]); p >= 0 {
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
	_, ours, err := s.decode(end, true)
	if err != nil {
		return err
	}
	if !more && why == torn { // a failing reader: its error says it all
		s.i, s.bad = len(s.buf), -1
		return nil
	}
	lines := bytes.Count(bytes.TrimRight(s.buf[s.i:end], " \t\r\n"), []byte{'\n'})
	if old >= 0 && !ours { // a part of what is being passed over already
		s.bad, s.badPos = old, oldPos
		s.lines += lines
		if s.why == text || why == torn {
			s.why = torn
		}
	} else {
		s.bad, s.badPos, s.why, s.lines, s.control, s.ours = start, pos, why, lines, false, ours
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
func (s *Stream) onlyBlanks(end int) bool {
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

// decode has buf[s.i:end] decoded, of which partial says that it is torn.
func (s *Stream) decode(end int, partial bool) (n int, ours bool, err error) {
	return s.Decode(Value{
		B: s.buf[s.i:end], Begin: s.pos(s.i), Partial: partial, Report: s.bad < 0,
		// What was passed over before is told before what comes now, but only
		// once it is sure that this is a value with records.
		Ours: func() error { return s.flush(false) },
	})
}
