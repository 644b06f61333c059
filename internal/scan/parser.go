package scan

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/traceview/traceview/trace"
)

// A Parser reads one value that stands at the begin of B.
//
// Nothing is kept of what is skipped, and skipping looks at brackets and
// quotes only. A syntax error stops parsing where it stands; the record that
// it is in can then be left by its brackets ([Parser.Recover]).
type Parser struct {
	B     []byte
	I     int // the next byte to look at
	At    At
	Begin trace.Pos // of B[0]

	Wrong string // the syntax error, empty: none
	BadAt int    // its place
	Ended bool   // B ended too early
	Err   error  // of whoever takes the records: reading stops
	Notes Notes
	Texts *Texts

	lines, linesAt int // ends of lines in B[:linesAt]
}

// Pos returns the place of B[i]; to count lines costs least in order.
func (p *Parser) Pos(i int) trace.Pos {
	pos := p.Begin
	pos.Path = p.At.Path
	if !p.At.Inside {
		pos.Offset += int64(i)
	}
	if pos.Line > 0 {
		if i < p.linesAt {
			p.lines, p.linesAt = 0, 0
		}
		p.lines += bytes.Count(p.B[p.linesAt:i], []byte{'\n'})
		p.linesAt = i
		pos.Line += p.lines
	}
	return pos
}

// Fail notes the first syntax error.
func (p *Parser) Fail(what string) {
	if p.Wrong == "" {
		p.Wrong, p.BadAt, p.Ended = what, p.I, p.I >= len(p.B)
	}
}

// Peek skips blanks and returns the byte there; 0 at the end.
func (p *Parser) Peek() byte {
	for p.I < len(p.B) {
		switch c := p.B[p.I]; c {
		case ' ', '\t', '\n', '\r':
			p.I++
		default:
			return c
		}
	}
	return 0
}

// Enter steps into an object or array and reports whether it has a member.
func (p *Parser) Enter(open, end byte) bool {
	if p.Wrong != "" || p.Err != nil {
		return false
	}
	if p.Peek() != open {
		p.Fail("expected " + string(open))
		return false
	}
	p.I++
	if p.Peek() == end {
		p.I++
		return false
	}
	return true
}

// Next steps past a comma and reports whether there is a member behind it.
func (p *Parser) Next(end byte) bool {
	if p.Wrong != "" || p.Err != nil {
		return false
	}
	switch p.Peek() {
	case ',':
		p.I++
		return true
	case end:
		p.I++
	default:
		p.Fail("expected , or " + string(end))
	}
	return false
}

// Raw reads a string without its quotes and reports whether it has escapes.
func (p *Parser) Raw() (text []byte, escaped bool) {
	if p.Wrong != "" {
		return nil, false
	}
	if p.Peek() != '"' {
		p.Fail("expected a string")
		return nil, false
	}
	b, start := p.B, p.I+1
	for i := start; i < len(b); i++ {
		switch b[i] {
		case '"':
			p.I = i + 1
			return b[start:i], escaped
		case '\\':
			escaped = true
			i++
		}
	}
	p.I = len(b)
	p.Fail("a string without an end")
	return nil, false
}

// Key reads a member's name and the colon.
func (p *Parser) Key() []byte {
	k, escaped := p.Raw()
	if p.Peek() != ':' {
		p.Fail("expected :")
		return nil
	}
	p.I++
	if escaped {
		k, _ = Unescape(nil, k)
	}
	return k
}

// Token reads a number or a bare word.
func (p *Parser) Token() []byte {
	p.Peek()
	start := p.I
	for p.I < len(p.B) {
		switch p.B[p.I] {
		case ' ', '\t', '\n', '\r', ',', ':', '"', '{', '}', '[', ']':
			if p.I == start {
				p.Fail("expected a value")
			}
			return p.B[start:p.I]
		}
		p.I++
	}
	p.Fail("the value has no end")
	return nil
}

// Skip passes over a value of any kind.
func (p *Parser) Skip() {
	if p.Wrong != "" {
		return
	}
	switch p.Peek() {
	case '"':
		p.Raw()
	case '{', '[':
		if end := Closing(p.B, p.I); end >= 0 {
			p.I = end
		} else {
			p.I = len(p.B)
			p.Fail("brackets without an end")
		}
	default:
		p.Token()
	}
}

// Closing returns the index behind the bracket that closes the one at b[i].
func Closing(b []byte, i int) int {
	depth := 0
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return -1
}

// Null skips a null and reports whether there was one.
func (p *Parser) Null() bool {
	if p.Wrong == "" && p.Peek() == 'n' && bytes.HasPrefix(p.B[p.I:], []byte("null")) {
		p.I += 4
		return true
	}
	return false
}

// A seen notes which members an object had.
type Seen uint32

// Twice notes member n and reports a second one.
func (p *Parser) Twice(s *Seen, n uint, key []byte) {
	if *s&(1<<n) != 0 {
		p.Notes.Add(trace.DuplicateKey, "the key %q stands twice in one object", key)
	}
	*s |= 1 << n
}

// Recover leaves the value that began at start by its brackets, after a syntax
// error in it. Where it has no end the error stays.
func (p *Parser) Recover(start int) bool {
	if p.Err != nil || start >= len(p.B) || p.B[start] != '{' && p.B[start] != '[' {
		return false
	}
	end := Closing(p.B, start)
	if end < 0 || p.Ended {
		return false
	}
	p.I, p.Wrong = end, ""
	return true
}

// WrongType skips a value that has the wrong type and says so.
func (p *Parser) WrongType(key string, want string) {
	p.Skip()
	if p.Wrong == "" {
		p.Notes.Add(trace.BadField, "%s is no %s", Short(key), want)
	}
}

// Str reads a string; nil for a null and for a value of another type, of which
// it complains. The bytes hold until the next call.
func (p *Parser) Str(key string) []byte {
	if p.Null() {
		return nil
	}
	if p.Peek() != '"' {
		p.WrongType(key, "text")
		return nil
	}
	b, escaped := p.Raw()
	if escaped {
		var ok bool
		p.Texts.scratch, ok = Unescape(p.Texts.scratch[:0], b)
		b = p.Texts.scratch
		if !ok {
			p.Notes.Add(trace.BadField, "%s has an escape that JSON does not know", Short(key))
			return nil
		}
	}
	return p.Notes.Mend(b)
}

// Text is Str as a string.
func (p *Parser) Text(key string) string { return p.Texts.Intern(p.Str(key)) }

// Plain reads a text in which escapes make no sense, such as an id.
func (p *Parser) Plain(key string) []byte {
	if p.Null() {
		return nil
	}
	if p.Peek() != '"' {
		p.WrongType(key, "text")
		return nil
	}
	b, _ := p.Raw()
	return b
}

// Scalar reads a number, a bare word or a string without escapes; nil for a
// Null and for other types, of which it complains.
func (p *Parser) Scalar(key string, want string) []byte {
	if p.Null() {
		return nil
	}
	switch p.Peek() {
	case '"':
		b, _ := p.Raw()
		return b
	case '{', '[':
		p.WrongType(key, want)
		return nil
	}
	return p.Token()
}

// Int reads a 64-bit integer, as a number or in quotes.
func (p *Parser) Int(key string) (int64, bool) {
	tok := p.Scalar(key, "number")
	if tok == nil {
		return 0, false
	}
	if x, v := ParseInteger(tok); v == Fine {
		if i, ok := x.Int64(); ok {
			return i, true
		}
	}
	p.Notes.Add(trace.BadNumber, "%s is no 64-bit integer", Short(key))
	return 0, false
}

// Float reads a finite number, also in quotes.
func (p *Parser) Float(key string) (float64, bool) {
	tok := p.Scalar(key, "number")
	if tok == nil {
		return 0, false
	}
	f, ok := ParseFloat(tok)
	if !ok {
		p.Notes.Add(trace.BadNumber, "%s is no finite number", Short(key))
		return 0, false
	}
	return f, true
}

// Unescape appends the text of a JSON string's inside. A surrogate without its
// pair becomes invalid UTF-8, to be mended; ok is false for an unknown escape.
func Unescape(dst, raw []byte) (text []byte, ok bool) {
	for i := 0; i < len(raw); i++ {
		c := raw[i]
		if c != '\\' {
			dst = append(dst, c)
			continue
		}
		if i++; i == len(raw) {
			return dst, false
		}
		switch raw[i] {
		case '"', '\\', '/':
			dst = append(dst, raw[i])
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, ok := hex4(raw[i+1:])
			if !ok {
				return dst, false
			}
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+2 < len(raw) && raw[i+1] == '\\' && raw[i+2] == 'u' {
					low, _ = hex4(raw[i+3:])
				}
				if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
					dst = append(dst, 0xff)
					continue
				}
				i += 6
			}
			dst = utf8.AppendRune(dst, r)
		default:
			return dst, false
		}
	}
	return dst, true
}

// hex4 reads four hexadecimal digits.
func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return -1, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
