package vllmlog

import (
	"bytes"
	"unicode/utf8"
)

// The functions here pass over what Python's repr and dataclasses write. They
// look at prompts only to find their end; no part of one is kept.

// skipString passes over a Python string literal at the start of s and counts
// its characters.
func skipString(s []byte) (rest []byte, chars int, ok bool) {
	if len(s) < 2 || s[0] != '\'' && s[0] != '"' {
		return s, 0, false
	}
	quote := s[0]
	s = s[1:]
	end := bytes.IndexByte(s, quote)
	for {
		if end < 0 {
			return s, 0, false
		}
		esc := bytes.IndexByte(s[:end], '\\')
		if esc < 0 {
			return s[end+1:], chars + utf8.RuneCount(s[:end]), true
		}
		chars += utf8.RuneCount(s[:esc]) + 1
		n := 2
		if esc+1 < len(s) {
			switch s[esc+1] {
			case 'x':
				n = 4
			case 'u':
				n = 6
			case 'U':
				n = 10
			}
		}
		if esc+n > len(s) {
			return s, 0, false
		}
		s = s[esc+n:]
		if end -= esc + n; end < 0 {
			end = bytes.IndexByte(s, quote)
		}
	}
}

// maxNesting bounds the brackets within brackets of a value.
const maxNesting = 256

// skipValue passes over a value of any shape: up to a comma, a closing bracket
// or the end at its own level. field, where not nil, is called with the place
// of each member one level down.
func skipValue(s []byte, field func(at []byte)) (rest []byte, ok bool) {
	var closers [maxNesting]byte
	depth := 0
	for i := 0; i < len(s); {
		switch ch := s[i]; ch {
		case '\'', '"':
			rest, _, ok := skipString(s[i:])
			if !ok {
				return s, false
			}
			i = len(s) - len(rest)
			continue
		case '(', '[', '{':
			if depth == maxNesting {
				return s, false
			}
			closers[depth] = ch + 2
			if ch == '(' {
				closers[depth] = ')'
			}
			depth++
			if depth == 1 && field != nil {
				field(s[i+1:])
			}
		case ')', ']', '}':
			if depth == 0 {
				return s[i:], true
			}
			depth--
			if closers[depth] != ch {
				return s, false
			}
		case ',':
			if depth == 0 {
				return s[i:], true
			}
			if depth == 1 && field != nil && i+1 < len(s) && s[i+1] == ' ' {
				field(s[i+2:])
			}
		}
		i++
	}
	return nil, depth == 0
}

// countInts passes over a list of integers, "[1, 2, 3]", or None, and counts
// them; -1 for None. Long lists are the bulk of a log: commas are counted by
// the byte.
func countInts(s []byte) (rest []byte, n int, ok bool) {
	if r, found := bytes.CutPrefix(s, []byte("None")); found {
		return r, -1, true
	}
	if len(s) == 0 || s[0] != '[' {
		return s, 0, false
	}
	end := bytes.IndexByte(s, ']')
	if end < 0 {
		return s, 0, false
	}
	list := s[1:end]
	if len(list) == 0 {
		return s[2:], 0, true
	}
	if !isDigit(list[0]) || !isDigit(list[len(list)-1]) {
		return s, 0, false
	}
	return s[end+1:], bytes.Count(list, []byte(",")) + 1, true
}

func isDigit(c byte) bool { return c-'0' <= 9 }

// number reads the digits at the start of s; ok is false where there are none
// or too many.
func number(s []byte) (n int, rest []byte, ok bool) {
	i := 0
	for i < len(s) && i < 18 && isDigit(s[i]) {
		n = n*10 + int(s[i]-'0')
		i++
	}
	return n, s[i:], i > 0 && (i == len(s) || !isDigit(s[i]))
}
