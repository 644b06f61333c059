package scan

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// A Decimal is an integer as a source writes it, read exactly.
type Decimal struct {
	Neg bool
	Abs uint64
}

// A Verdict says how far a text is an integer.
type Verdict uint8

const (
	Fine     Verdict = iota
	TooLarge         // an integer beyond uint64
	Fraction         // a finite number, but not an integer
	NotANumber
)

// ParseInteger reads a JSON number, or the same in quotes, as an integer:
// digits, or any form such as 1.76e18 whose value is one. No float takes part.
func ParseInteger(tok []byte) (Decimal, Verdict) { return ParseScaled(tok, 0) }

// ParseScaled is ParseInteger of the number times 10^exp.
func ParseScaled(tok []byte, exp int) (Decimal, Verdict) {
	var x Decimal
	i := 0
	if i < len(tok) && (tok[i] == '-' || tok[i] == '+') {
		x.Neg = tok[i] == '-'
		i++
	}
	// mantissa: up to 20 significant digits; scale: the power of ten that is
	// still to be applied; rest: a digit that is not zero went unread.
	scale := exp
	var (
		digits      int
		seen, point bool
		over, rest  bool
	)
	for ; i < len(tok); i++ {
		c := tok[i]
		if c == '.' && !point {
			point = true
			continue
		}
		if c < '0' || c > '9' {
			break
		}
		seen = true
		v := uint64(c - '0')
		switch {
		case digits == 0 && v == 0:
			if point {
				scale--
			}
		case over || x.Abs > (math.MaxUint64-v)/10:
			over = true
			rest = rest || v != 0
			if !point {
				scale++
			}
		default:
			x.Abs = x.Abs*10 + v
			digits++
			if point {
				scale--
			}
		}
	}
	if !seen {
		return x, NotANumber
	}
	if i < len(tok) {
		if tok[i] != 'e' && tok[i] != 'E' {
			return x, NotANumber
		}
		i++
		neg := false
		if i < len(tok) && (tok[i] == '-' || tok[i] == '+') {
			neg = tok[i] == '-'
			i++
		}
		if i == len(tok) {
			return x, NotANumber
		}
		power := 0
		for ; i < len(tok); i++ {
			if tok[i] < '0' || tok[i] > '9' {
				return x, NotANumber
			}
			power = min(power*10+int(tok[i]-'0'), 1<<30)
		}
		if neg {
			power = -power
		}
		scale += power
	}
	if x.Abs == 0 {
		return Decimal{}, Fine
	}
	for ; scale < 0 && x.Abs%10 == 0; scale++ {
		x.Abs /= 10
	}
	switch {
	case scale < 0:
		return x, Fraction
	case rest && scale == 0:
		// Digits after the twentieth were dropped and all lay behind the point.
		return x, Fraction
	case rest:
		return x, TooLarge
	}
	for ; scale > 0; scale-- {
		if x.Abs > math.MaxUint64/10 {
			return x, TooLarge
		}
		x.Abs *= 10
	}
	return x, Fine
}

// Int64 returns the value where it fits.
func (x Decimal) Int64() (int64, bool) {
	switch {
	case !x.Neg && x.Abs <= math.MaxInt64:
		return int64(x.Abs), true
	case x.Neg && x.Abs <= 1<<63:
		return -int64(x.Abs), true
	}
	return 0, false
}

// ParseFloat reads a finite number.
func ParseFloat(tok []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(tok), 64)
	return f, err == nil && !bytes.ContainsAny(tok, "xX_") && !math.IsNaN(f) && !math.IsInf(f, 0)
}

// AppendID appends the id that the text says: lower-case hexaDecimal of size
// bytes, also where it was base64; nothing for an empty or zero id; any other
// text as it stands, with ok false.
func AppendID(dst, text []byte, size int) (id []byte, ok bool) {
	hex, zero := true, true
	for _, c := range text {
		hex = hex && (c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F')
		zero = zero && c == '0'
	}
	if zero {
		return dst, true
	}
	if hex {
		for _, c := range text {
			if c >= 'A' && c <= 'F' {
				c += 'a' - 'A'
			}
			dst = append(dst, c)
		}
		return dst, len(text) == 2*size
	}
	var raw [16]byte
	if n := decodeBase64(raw[:], text); n == size {
		return AppendHexID(dst, raw[:n]), true
	}
	return append(dst, text...), false
}

// AppendHexID appends raw in hexaDecimal; nothing where all of it is zero.
func AppendHexID(dst, raw []byte) []byte {
	if !slices.ContainsFunc(raw, func(c byte) bool { return c != 0 }) {
		return dst
	}
	const digits = "0123456789abcdef"
	for _, c := range raw {
		dst = append(dst, digits[c>>4], digits[c&15])
	}
	return dst
}

// decodeBase64 decodes text of either alphabet, padded or not, into dst and
// returns the number of bytes; −1 where it is no base64 or does not fit.
func decodeBase64(dst, text []byte) int {
	for range 2 {
		text = bytes.TrimSuffix(text, []byte("="))
	}
	if len(text)%4 == 1 {
		return -1
	}
	var n int
	var bits uint32
	have := 0
	for _, c := range text {
		var v byte
		switch {
		case c >= 'A' && c <= 'Z':
			v = c - 'A'
		case c >= 'a' && c <= 'z':
			v = c - 'a' + 26
		case c >= '0' && c <= '9':
			v = c - '0' + 52
		case c == '+' || c == '-':
			v = 62
		case c == '/' || c == '_':
			v = 63
		default:
			return -1
		}
		bits = bits<<6 | uint32(v)
		if have += 6; have >= 8 {
			have -= 8
			if n == len(dst) {
				return -1
			}
			dst[n] = byte(bits >> have)
			n++
		}
	}
	return n
}

// AppendQuoted appends text, which is valid UTF-8, as a JSON string.
func AppendQuoted(dst, text []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
