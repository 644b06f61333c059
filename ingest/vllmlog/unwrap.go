package vllmlog

import (
	"bytes"
	"math"
	"time"

	"github.com/traceview/traceview/trace"
)

// entry is one logical line: what is left when its wrappers are taken off,
// and what they said.
type entry struct {
	pos       trace.Pos
	cr        bool   // it ended in a carriage return
	torn      bool   // the stream ended in it
	container []byte // compose's or kubectl's name of where it comes from
	process   []byte // vLLM's name of the process
	pid       int    // its number, where it has a name
	at        stamp
	prefix    []byte // the engine's own prefix, to know continuation lines by
	engine    bool   // it carries the engine's prefix, or comes as JSON
	vllm      bool   // its JSON names one of vLLM's loggers
	text      []byte
}

// part is a line that a container runtime wrote in pieces.
type part struct {
	entry entry
	buf   []byte
	big   bool // over the limit; its text is dropped
	cr    bool // the last piece ended in CR
}

// unwrapper takes off the wrappers of each physical line, joins pieces, and
// hands on the logical lines.
type unwrapper struct {
	max  int
	emit func(*entry)
	big  func(trace.Pos)
	cut  bool // the input may end in the middle of a line
	// parts are the lines in pieces, by container and stream.
	parts   map[string]*part
	order   []*part
	held    int // bytes in parts
	scratch [maxLayers][]byte
}

const (
	maxLayers = 12
	maxParts  = 1024 // streams with pieces at one time
	// dockerPiece is the length at which docker's json-file driver splits.
	dockerPiece = 16 << 10
)

// line takes one physical line.
func (u *unwrapper) line(s []byte, e entry) {
	s = plain(s)
	n := len(s)
	s = bytes.TrimRight(s, "\r")
	e.cr = len(s) < n
	u.peel(s, &e, 0)
}

// finish hands on the pieces whose last never came.
func (u *unwrapper) finish() {
	for _, p := range u.order {
		if len(p.buf) > 0 {
			p.entry.torn = true
			u.flush(p)
		}
	}
}

// take empties p.
func (u *unwrapper) take(p *part) []byte {
	s := p.buf
	u.held -= len(s)
	if p.buf = s[:0]; cap(s) > firstBuffer {
		p.buf = nil
	}
	return s
}

// flush hands on what p holds as a line.
func (u *unwrapper) flush(p *part) {
	s := plain(u.take(p))
	e := p.entry
	n := len(s)
	s = bytes.TrimRight(s, "\r\n")
	e.cr = bytes.IndexByte(s[len(s):n], '\r') >= 0
	u.peel(s, &e, 1)
}

// plain takes terminal escapes (colours, mostly) out of s, in place.
func plain(s []byte) []byte {
	i := bytes.IndexByte(s, 0x1b)
	if i < 0 {
		return s
	}
	out := i
	for i < len(s) {
		if s[i] != 0x1b {
			j := bytes.IndexByte(s[i:], 0x1b)
			if j < 0 {
				j = len(s) - i
			}
			out += copy(s[out:], s[i:i+j])
			i += j
			continue
		}
		i++
		if i < len(s) && s[i] == '[' {
			for i++; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
		}
		i++
	}
	return s[:out]
}

// see keeps the better of two stamps.
func (e *entry) see(s stamp) {
	if s.better(&e.at) {
		e.at = s
	}
}

// peel takes layer after layer off s.
func (u *unwrapper) peel(s []byte, e *entry, layer int) {
	for ; layer < maxLayers; layer++ {
		if len(s) == 0 {
			return
		}
		if u.own(s, e) {
			return
		}
		var rest []byte
		ok := false
		switch c := s[0]; {
		case c == '(':
			e.process, e.pid, rest, ok = process(s)
		case c == '[':
			rest, ok = bracketed(s, e)
		case c == '{':
			if u.object(s, e, layer) {
				return
			}
		case c == '<':
			if n, r, isNum := number(s[1:]); isNum && n < 1000 && hasPrefix(r, ">") {
				rest, ok = r[1:], true
				if hasPrefix(rest, "1 ") {
					rest = rest[2:]
				}
			}
		case isDigit(c):
			var st stamp
			if st, rest, ok = dateTime(s); ok {
				if ok = hasPrefix(rest, " "); ok {
					e.see(st)
					rest = rest[1:]
					if stream, whole, text, isCRI := cri(rest); !isCRI {
						rest = unit(rest)
					} else if rest, ok = u.piece(text, e, stream, whole); !ok {
						return
					}
				}
			}
		case c|0x20-'a' < 26:
			if rest, ok = compose(s, e); !ok {
				rest, ok = syslog(s, e)
			}
		}
		if !ok {
			break
		}
		s = rest
	}
	// A progress bar, which the line overwrites. Text with quotes is none.
	if i := bytes.LastIndexByte(s, '\r'); i >= 0 && !bytes.ContainsAny(s[:i], "'\"\\`") && u.own(s[i+1:], e) {
		return
	}
	// Text that the user had put in front of the engine's prefix.
	if i := levelAt(s); i > 0 && u.own(s[i:], e) {
		return
	}
	e.text = s
	u.emit(e)
}

// cri reads "stdout F " behind the stamp of a container runtime.
func cri(s []byte) (stream []byte, whole bool, text []byte, ok bool) {
	if len(s) < 8 || !hasPrefix(s, "stdout ") && !hasPrefix(s, "stderr ") || s[7] != 'F' && s[7] != 'P' {
		return nil, false, nil, false
	}
	stream, whole, text = s[:6], s[7] == 'F', s[8:]
	if len(text) == 0 {
		return stream, whole, text, true
	}
	return stream, whole, text[1:], text[0] == ' '
}

// own reads the engine's own prefix, "LEVEL MM-DD HH:MM:SS [file:line] ", also
// with a whole date or a fraction, and hands on the line where there is one.
func (u *unwrapper) own(s []byte, e *entry) bool {
	n := level(s)
	if n == 0 {
		return false
	}
	st, t, ok := monthDay(s[n:])
	if ok {
		t = st.fraction(t)
	} else if st, t, ok = dateTime(s[n:]); !ok { // a datefmt of the user's
		return false
	}
	if !hasPrefix(t, " ") {
		return false
	}
	t = t[1:]
	end := bytes.IndexByte(t[:min(len(t), 300)], ']')
	if end < 0 {
		return false
	}
	place := bytes.TrimPrefix(t[:end], []byte("["))
	i := bytes.LastIndexByte(place, ':')
	if i <= 0 || i+1 == len(place) || bytes.IndexByte(place, ' ') >= 0 {
		return false
	}
	if _, rest, ok := number(place[i+1:]); !ok || len(rest) > 0 {
		return false
	}
	e.see(st)
	e.prefix = s[:len(s)-len(t)+end+1]
	e.engine = true
	e.text = bytes.TrimPrefix(t[end+1:], []byte(" "))
	u.emit(e)
	return true
}

var levels = [...]string{"INFO ", "WARNING ", "ERROR ", "DEBUG ", "CRITICAL ", "TRACE ", "WARN "}

// level returns the length of the level and its space at the start of s.
func level(s []byte) int {
	if len(s) < 5 || s[0]-'A' >= 26 {
		return 0
	}
	for _, l := range levels {
		if hasPrefix(s, l) {
			return len(l)
		}
	}
	return 0
}

// levelAt finds the engine's prefix behind a short text of the user's. Text
// with quotes is none: it may be somebody's message.
func levelAt(s []byte) int {
	const most = 64
	head := s[:min(len(s), most+len("CRITICAL 01-02 03:04:05"))]
	for i := 0; ; {
		j := bytes.IndexByte(head[i:], ':')
		if j < 0 {
			return 0
		}
		i += j
		if i >= 10 && i+3 < len(head) && head[i+3] == ':' && head[i-3] == ' ' && head[i-6] == '-' && head[i-9] == ' ' {
			end := i - 9 // the space after the level
			for _, l := range levels {
				if at := end + 1 - len(l); at > 0 && at <= most && hasPrefix(head[at:], l) {
					if bytes.ContainsAny(head[:at], "'\"\\`") {
						return 0
					}
					return at
				}
			}
			return 0
		}
		i++
	}
}

// process reads "(APIServer pid=7) " or "(VllmWorker rank=1 pid=7) ".
func process(s []byte) (name []byte, pid int, rest []byte, ok bool) {
	end := bytes.IndexByte(s[:min(len(s), 128)], ')')
	if end < 0 {
		return nil, 0, s, false
	}
	in := s[1:end]
	i := bytes.LastIndex(in, []byte(" pid="))
	if i <= 0 {
		return nil, 0, s, false
	}
	pid, tail, isNum := number(in[i+5:])
	if !isNum || len(tail) > 0 {
		return nil, 0, s, false
	}
	name = in[:i]
	if j := bytes.Index(name, []byte(" rank=")); j > 0 {
		name = name[:j]
	}
	return name, pid, bytes.TrimPrefix(s[end+1:], []byte(" ")), true
}

// bracketed reads kubectl's "[pod/NAME/CONTAINER] " or a stamp in brackets.
func bracketed(s []byte, e *entry) (rest []byte, ok bool) {
	end := bytes.IndexByte(s[:min(len(s), 600)], ']')
	if end < 0 {
		return s, false
	}
	in, rest := s[1:end], bytes.TrimPrefix(s[end+1:], []byte(" "))
	if hasPrefix(in, "pod/") && bytes.IndexByte(in, ' ') < 0 {
		e.container = in
		return rest, true
	}
	st, tail, ok := dateTime(in)
	if !ok || len(tail) > 0 {
		return s, false
	}
	e.see(st)
	return rest, true
}

// compose reads "service-1  | ".
func compose(s []byte, e *entry) (rest []byte, ok bool) {
	i := 0
	for i < len(s) && i < 200 && (s[i]|0x20-'a' < 26 || isDigit(s[i]) || s[i] == '-' || s[i] == '_' || s[i] == '.' || s[i] == '@') {
		i++
	}
	name := s[:i]
	for i < len(s) && s[i] == ' ' {
		i++
	}
	if i == len(name) || i >= len(s) || s[i] != '|' {
		return s, false
	}
	e.container = name
	return bytes.TrimPrefix(s[i+1:], []byte(" ")), true
}

var months = [...]string{"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"}

// syslog reads "Jul 28 10:00:05[.123456] host unit[pid]: ".
func syslog(s []byte, e *entry) (rest []byte, ok bool) {
	if len(s) < 16 || s[3] != ' ' || s[6] != ' ' {
		return s, false
	}
	mo := 0
	for i, m := range months {
		if hasPrefix(s, m) {
			mo = i + 1
		}
	}
	d, isNum := two(s[4:])
	if s[4] == ' ' && isDigit(s[5]) {
		d, isNum = int(s[5]-'0'), true
	}
	sec, isTime := timeOfDay(s[7:])
	if mo == 0 || !isNum || !isTime {
		return s, false
	}
	st := stamp{ok: true, mo: mo, d: d, sec: sec}
	st.bad = d < 1 || d > dayBefore[mo+1]-dayBefore[mo]
	rest = st.fraction(s[15:])
	if !hasPrefix(rest, " ") {
		return s, false
	}
	after := unit(rest[1:])
	if len(after) == len(rest)-1 {
		return s, false
	}
	e.see(st)
	return after, true
}

// unit passes over "host unit[pid]: " or "host unit: "; s itself where it does
// not start so.
func unit(s []byte) []byte {
	i := bytes.IndexByte(s[:min(len(s), 256)], ' ')
	if i <= 0 {
		return s
	}
	tag, _, ok := bytes.Cut(s[i+1:min(len(s), i+256)], []byte(": "))
	if !ok || len(tag) == 0 || bytes.IndexByte(tag, ' ') >= 0 || tag[len(tag)-1] != ']' || bytes.IndexByte(tag, '[') <= 0 {
		return s
	}
	return s[i+1+len(tag)+2:]
}

// part returns what is held of that stream; nil where nothing ever was.
func (u *unwrapper) part(e *entry, stream []byte) *part {
	var key [256]byte
	return u.parts[string(append(append(key[:0], e.container...), stream...))]
}

// piece takes one piece of a line that a container runtime may have split.
// ok is false where the line goes on in another piece.
func (u *unwrapper) piece(s []byte, e *entry, stream []byte, whole bool) (line []byte, ok bool) {
	p := u.part(e, stream)
	if whole && (p == nil || len(p.buf) == 0 && !p.big) {
		return s, true
	}
	if p == nil {
		if len(u.order) == maxParts {
			return s, true // as a line of its own
		}
		p = &part{}
		if u.parts == nil {
			u.parts = map[string]*part{}
		}
		u.parts[string(e.container)+string(stream)] = p
		u.order = append(u.order, p)
	}
	if len(p.buf) == 0 && !p.big {
		p.entry = *e
		p.entry.container = bytes.Clone(e.container)
		p.entry.process, p.entry.prefix, p.entry.text = nil, nil, nil
	}
	if p.big = p.big || u.held+len(s) > u.max; p.big {
		u.held -= len(p.buf)
		p.buf = p.buf[:0]
		if whole {
			p.big = false
			u.big(p.entry.pos)
		}
		return nil, false
	}
	p.buf = append(p.buf, s...)
	u.held += len(s)
	if !whole {
		p.cr = e.cr
		return nil, false
	}
	line = u.take(p)
	cr := e.cr || p.cr && len(s) == 0 // split between CR and LF
	*e = p.entry
	e.cr = cr
	return plain(line), true
}

// object reads a line that is a JSON object: docker's json-file, or a JSON
// formatter's record. It reports whether it handed the line on.
func (u *unwrapper) object(s []byte, e *entry, layer int) bool {
	var log, stream, message []byte
	var moment stamp
	ok := jsonFields(s, u.cut, func(key, raw []byte) {
		switch string(key) {
		case "log":
			log = raw
		case "stream":
			stream = raw
		case "message", "msg":
			message = raw
		case "name", "logger":
			e.vllm = e.vllm || hasPrefix(raw, `"vllm`)
		case "time", "asctime", "timestamp", "ts", "@timestamp":
			if st := jsonStamp(raw); st.better(&moment) {
				moment = st
			}
		}
	})
	if !ok || log == nil && message == nil {
		return false
	}
	if log != nil && moment.hasZone {
		moment.res = time.Nanosecond // docker cuts trailing zeros
	}
	e.see(moment)
	raw := message
	if log != nil {
		raw = log
	}
	text, ok := jsonText(u.scratch[layer][:0], raw)
	if !ok {
		return false
	}
	if cap(text) <= 1<<20 {
		u.scratch[layer] = text
	}
	if log == nil {
		e.engine = true
		text = bytes.TrimRight(plain(text), "\r\n")
		e.cr = false
		// The message may be a formatted line, or hold another wrapper.
		if len(text) > 0 {
			u.peel(text, e, layer+1)
		}
		return true
	}
	whole := len(text) > 0 && text[len(text)-1] == '\n'
	if p := u.part(e, stream); p != nil && len(p.buf) > 0 && len(p.buf) < dockerPiece && starts(text) {
		// Collectors cut the newline: what was held is a line.
		text = bytes.Clone(text)
		u.flush(p)
	}
	text = bytes.TrimSuffix(text, []byte("\n"))
	n := len(text)
	text = bytes.TrimRight(text, "\r\n")
	e.cr = len(text) < n
	if text, ok = u.piece(text, e, stream, whole); !ok {
		return true
	}
	u.peel(plain(text), e, layer+1)
	return true
}

// starts reports whether s begins as a line of the engine does.
func starts(s []byte) bool {
	if len(s) > 0 && s[0] == '\x1b' {
		s = plain(bytes.Clone(s[:min(len(s), 256)]))
	}
	if hasPrefix(s, "(") {
		_, _, s, _ = process(s)
	}
	return level(s) > 0 || levelAt(s) > 0 || hasPrefix(s, "INFO: ") || hasPrefix(s, `{"`)
}

// jsonStamp reads the time of a JSON record: a date, or seconds, milliseconds
// or nanoseconds since 1970.
func jsonStamp(raw []byte) (st stamp) {
	if raw = bytes.Trim(raw, `" `); len(raw) == 0 {
		return st
	}
	if st, rest, ok := dateTime(raw); ok && len(rest) == 0 {
		return st
	}
	if st, rest, ok := monthDay(raw); ok && len(rest) == 0 {
		return st
	}
	n, rest, ok := number(raw)
	if !ok && len(raw) == 19 && len(rest) == 1 {
		n, rest = n*10+int(rest[0]-'0'), nil
	} else if !ok || len(raw)-len(rest) < 10 {
		return st
	}
	var tail stamp
	if more := tail.fraction(rest); len(more) > 0 {
		return st
	}
	st = stamp{ok: true, hasYear: true, hasZone: true, res: time.Second}
	ns := int64(tail.ns)
	switch {
	case n < 0 || n > math.MaxInt64/int(time.Second) && n < 1e11:
		return stamp{}
	case n < 1e11:
		if len(rest) > 0 {
			st.res = tail.res
		}
		ns += int64(n) * 1e9
	case n < 1e14:
		st.res, ns = time.Millisecond, int64(n)*1e6+ns/1e3
	case n < 1e17:
		st.res, ns = time.Microsecond, int64(n)*1e3
	default:
		st.res, ns = 1, int64(n)
	}
	if ns < 0 || ns > math.MaxInt64-dayNs {
		return stamp{}
	}
	t := time.Unix(0, ns).UTC()
	st.year, st.mo, st.d = t.Year(), int(t.Month()), t.Day()
	st.sec, st.ns = t.Hour()*3600+t.Minute()*60+t.Second(), t.Nanosecond()
	return st
}

func two(s []byte) (int, bool) {
	if len(s) < 2 || !isDigit(s[0]) || !isDigit(s[1]) {
		return 0, false
	}
	return int(s[0]-'0')*10 + int(s[1]-'0'), true
}

// timeOfDay reads "HH:MM:SS" as seconds of the day.
func timeOfDay(s []byte) (int, bool) {
	if len(s) < 8 || s[2] != ':' || s[5] != ':' {
		return 0, false
	}
	h, ok1 := two(s)
	m, ok2 := two(s[3:])
	sec, ok3 := two(s[6:])
	return h*3600 + m*60 + sec, ok1 && ok2 && ok3 && h < 24 && m < 60 && sec < 60
}

// monthDay reads vLLM's own "MM-DD HH:MM:SS".
func monthDay(s []byte) (st stamp, rest []byte, ok bool) {
	if len(s) < 14 || s[2] != '-' || s[5] != ' ' || s[8] != ':' || s[11] != ':' {
		return st, s, false
	}
	mo, ok1 := two(s)
	d, ok2 := two(s[3:])
	sec, ok3 := timeOfDay(s[6:])
	if !ok1 || !ok2 {
		return st, s, false
	}
	st = stamp{ok: true, mo: mo, d: d, sec: sec, res: time.Second}
	st.bad = !ok3 || mo < 1 || mo > 12 || d < 1 || d > dayBefore[mo+1]-dayBefore[mo]
	return st, s[14:], true
}

// dateTime reads "YYYY-MM-DD HH:MM:SS", with a T or a space, a fraction after
// a point or a comma, and a zone.
func dateTime(s []byte) (st stamp, rest []byte, ok bool) {
	if len(s) < 19 || s[4] != '-' || s[7] != '-' || s[10] != 'T' && s[10] != ' ' {
		return st, s, false
	}
	hi, ok1 := two(s)
	lo, ok2 := two(s[2:])
	mo, ok3 := two(s[5:])
	d, ok4 := two(s[8:])
	sec, ok5 := timeOfDay(s[11:])
	if !ok1 || !ok2 || !ok3 || !ok4 || s[13] != ':' || s[16] != ':' {
		return st, s, false
	}
	st = stamp{ok: true, hasYear: true, year: hi*100 + lo, mo: mo, d: d, sec: sec}
	st.bad = !ok5 || mo < 1 || mo > 12 || d < 1 || d > dayBefore[mo+1]-dayBefore[mo]
	rest = st.fraction(s[19:])
	if len(rest) > 0 && rest[0] == 'Z' {
		st.hasZone = true
		return st, rest[1:], true
	}
	if len(rest) >= 5 && (rest[0] == '+' || rest[0] == '-') {
		h, ok1 := two(rest[1:])
		n := 3
		if rest[3] == ':' {
			n = 4
		}
		m, ok2 := two(rest[n:])
		if ok1 && ok2 && h < 24 && m < 60 {
			st.hasZone, st.east = true, h*3600+m*60
			if rest[0] == '-' {
				st.east = -st.east
			}
			rest = rest[n+2:]
		}
	}
	return st, rest, true
}

// fraction reads ".123456789" or ",123", and sets the clock's step from the
// number of digits. From seven on it is a nanosecond: writers cut zeros.
func (st *stamp) fraction(s []byte) (rest []byte) {
	st.res = time.Second
	if len(s) < 2 || s[0] != '.' && s[0] != ',' || !isDigit(s[1]) {
		return s
	}
	i, step := 1, int(time.Second)
	for ; i < len(s) && isDigit(s[i]); i++ {
		if step > 1 {
			step /= 10
			st.ns += int(s[i]-'0') * step
		}
	}
	if st.res = time.Duration(step); st.res < time.Microsecond {
		st.res = time.Nanosecond
	}
	return s[i:]
}
