package vllmlog

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// jsonFields calls f with each key and raw value of the JSON object that s
// is, top level only. It reports whether s is one, alone; with cut, a value
// that s ends in counts as whole. It is for log lines of many megabytes of
// which three short fields matter.
func jsonFields(s []byte, cut bool, f func(key, raw []byte)) bool {
	s = jsonSpace(s)
	if len(s) == 0 || s[0] != '{' {
		return false
	}
	s = jsonSpace(s[1:])
	if len(s) > 0 && s[0] == '}' {
		return len(jsonSpace(s[1:])) == 0
	}
	for {
		key, rest, ok := jsonString(s)
		if !ok {
			return cut
		}
		s = jsonSpace(rest)
		if len(s) == 0 || s[0] != ':' {
			return cut && len(s) == 0
		}
		s = jsonSpace(s[1:])
		rest, ok = jsonSkip(s)
		if !ok {
			if cut && len(s) > 0 {
				f(key[1:len(key)-1], s)
			}
			return cut
		}
		f(key[1:len(key)-1], s[:len(s)-len(rest)])
		s = jsonSpace(rest)
		if len(s) == 0 {
			return cut
		}
		if s[0] == '}' {
			return len(jsonSpace(s[1:])) == 0
		}
		if s[0] != ',' {
			return false
		}
		s = jsonSpace(s[1:])
	}
}

func jsonSpace(s []byte) []byte {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t' || s[0] == '\r' || s[0] == '\n') {
		s = s[1:]
	}
	return s
}

// jsonString cuts a string, quotes included, off the start of s.
func jsonString(s []byte) (str, rest []byte, ok bool) {
	if len(s) == 0 || s[0] != '"' {
		return nil, s, false
	}
	end := -1
	for i := 1; i < len(s); {
		if end < i {
			q := bytes.IndexByte(s[i:], '"')
			if q < 0 {
				return nil, s, false
			}
			end = i + q
		}
		esc := bytes.IndexByte(s[i:end], '\\')
		if esc < 0 {
			return s[:end+1], s[end+1:], true
		}
		i += esc + 2
	}
	return nil, s, false
}

// jsonSkip passes over one value. It checks brackets and strings, no more.
func jsonSkip(s []byte) (rest []byte, ok bool) {
	if len(s) == 0 {
		return s, false
	}
	depth := 0
	for i := 0; i < len(s); {
		switch s[i] {
		case '"':
			_, rest, ok := jsonString(s[i:])
			if !ok {
				return s, false
			}
			i = len(s) - len(rest)
			if depth == 0 {
				return rest, true
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return s[i:], i > 0
			}
			if depth--; depth == 0 {
				return s[i+1:], true
			}
		case ',':
			if depth == 0 {
				return s[i:], i > 0
			}
		}
		i++
	}
	return nil, false
}

// jsonText appends the text of a raw JSON string, which may lack its closing
// quote. What is no string has no text.
func jsonText(dst, raw []byte) ([]byte, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return dst, false
	}
	s := raw[1:]
	for {
		i := bytes.IndexByte(s, '\\')
		if i < 0 {
			if n := len(s); n > 0 && s[n-1] == '"' {
				s = s[:n-1]
			}
			return append(dst, s...), true
		}
		dst = append(dst, s[:i]...)
		if i+1 >= len(s) {
			return dst, true
		}
		c := s[i+1]
		s = s[i+2:]
		switch c {
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'u':
			r, n := jsonHex(s)
			s = s[n:]
			if utf16.IsSurrogate(r) && len(s) > 1 && s[0] == '\\' && s[1] == 'u' {
				low, n := jsonHex(s[2:])
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					r, s = pair, s[2+n:]
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		}
		dst = append(dst, c)
	}
}

// jsonHex reads four hexadecimal digits.
func jsonHex(s []byte) (r rune, n int) {
	for n < 4 && n < len(s) {
		d := hexDigit(s[n])
		if d < 0 {
			return utf8.RuneError, n
		}
		r = r<<4 | rune(d)
		n++
	}
	return r, n
}

func hexDigit(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}
