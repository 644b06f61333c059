// Package scan reads JSON as it is found in files of traces and logs: values
// one after the other, in an array, one a line or over many, behind the text of
// a log, torn in the middle, with NaN, with keys that stand twice. What is
// broken costs the record that it is in, and is told as a [trace.Issue].
//
// A [Stream] finds the values, a [Parser] reads one; which members there are
// and what they mean is their user's.
package scan

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"github.com/traceview/traceview/trace"
)

// At says where the bytes to read stand, for the positions of records and
// issues.
type At struct {
	File   string
	Offset int64  // of the first byte
	Line   int    // of the first byte; 0: lines are not counted
	Path   string // before paths inside the record, such as "message[3]"
	// Inside says that the bytes are packed at Offset and have no offsets of
	// their own in the input: a message that was compressed by itself.
	Inside bool
}

// Pos returns the place of byte i, without its line.
func (a At) Pos(i int64) trace.Pos {
	p := trace.Pos{File: a.File, Offset: a.Offset, Path: a.Path}
	if !a.Inside {
		p.Offset += i
	}
	return p
}

// Texts makes strings of bytes, the same one where the text repeats soon. It
// is kept from one value to the next. The zero Texts works.
type Texts struct {
	strings [1 << 10]string // by hash: the last string seen there
	scratch []byte
}

// Intern returns b as a string.
func (t *Texts) Intern(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if len(b) > 64 {
		return string(b)
	}
	h := uint32(2166136261) // FNV-1a
	for _, c := range b {
		h = (h ^ uint32(c)) * 16777619
	}
	s := &t.strings[(h^h>>16)%uint32(len(t.strings))]
	if *s != string(b) {
		*s = string(b)
	}
	return *s
}

// maxIssues bounds what one record can complain of.
const maxIssues = 100

// Notes collects the issues of one record.
type Notes struct {
	List []trace.Issue
	pos  trace.Pos
	utf8 bool // the issue about it stands already
}

// Begin forgets all: what follows is about the record at pos.
func (n *Notes) Begin(pos trace.Pos) { *n = Notes{pos: pos} }

// Add notes an issue; of very many, only that there are more.
func (n *Notes) Add(code trace.Code, format string, args ...any) {
	switch {
	case len(n.List) < maxIssues:
		n.List = append(n.List, trace.NewIssue(code, n.pos, format, args...))
	case len(n.List) == maxIssues:
		n.List = append(n.List, trace.NewIssue(code, n.pos, "more of the kind follow in the same place"))
	}
}

// Mend returns text as valid UTF-8. It notes once where it has to change.
func (n *Notes) Mend(text []byte) []byte {
	if utf8.Valid(text) {
		return text
	}
	if !n.utf8 {
		n.utf8 = true
		n.Add(trace.InvalidUTF8, "a text is not valid UTF-8")
	}
	return bytes.ToValidUTF8(text, []byte("\uFFFD"))
}

// Short cuts a text that is quoted in a message.
func Short[T string | []byte](text T) string {
	if len(text) > 40 {
		return strings.ToValidUTF8(string(text[:40]), "") + "…"
	}
	return string(text)
}
