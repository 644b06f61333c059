package spanfile

import (
	"bufio"
	"bytes"
	"io"

	"github.com/traceview/traceview/internal/scan"
)

// What a process prints is kept by others, who put something before each line
// or the line into an object of their own. It is taken off here before what an
// SDK printed is looked for.

// A wrapper takes off what it knows. whole says that the line ends with text;
// else the next goes on with it. ok is false for a line that is not of it.
type wrapper func(line []byte) (text []byte, whole, ok bool)

var wrappers = []wrapper{dockerLine, lokiLine, criLine, rayLine, kubectlLine, composeLine}

// dockerLine reads docker's json-file: {"log":"…\n","stream":…,"time":…}.
func dockerLine(line []byte) (text []byte, whole, ok bool) {
	if !bytes.HasPrefix(line, []byte(`{"log":`)) {
		return nil, false, false
	}
	text, ok = member(line, "log")
	return bytes.TrimSuffix(text, []byte("\n")), bytes.HasSuffix(text, []byte("\n")), ok && text != nil
}

// lokiLine reads what logcli -o jsonl shows: {"labels":{…},"line":"…","timestamp":…}.
func lokiLine(line []byte) (text []byte, whole, ok bool) {
	first, _, _ := bytes.Cut(line, []byte(":"))
	switch string(first) {
	case `{"labels"`, `{"line"`, `{"timestamp"`:
	default:
		return nil, false, false
	}
	text, ok = member(line, "line")
	return bytes.TrimSuffix(text, []byte("\n")), true, ok && text != nil
}

// member returns the text of an object's member.
func member(object []byte, name string) (text []byte, ok bool) {
	p := parser{Parser: scan.Parser{B: object, Texts: new(scan.Texts)}, c: &PythonConsole}
	p.object("a line", func(key []byte) {
		if string(key) == name && p.Peek() == '"' {
			text = bytes.Clone(p.Str(name))
		} else {
			p.Skip()
		}
	})
	return text, p.Wrong == ""
}

// criLine reads what Kubernetes' runtimes write: 2026-01-02T03:04:05.6Z stdout F …
func criLine(line []byte) (text []byte, whole, ok bool) {
	if len(line) < 20 || line[4] != '-' || line[10] != 'T' {
		return nil, false, false
	}
	for _, stream := range []string{" stdout ", " stderr "} {
		i := bytes.Index(line[:min(len(line), 64)], []byte(stream))
		if i < 0 || len(line) < i+len(stream)+1 {
			continue
		}
		tag := line[i+len(stream)]
		text = line[i+len(stream)+1:]
		return bytes.TrimPrefix(text, []byte(" ")), tag != 'P', tag == 'F' || tag == 'P'
	}
	return nil, false, false
}

// rayLine reads what Ray's driver shows: (ProxyActor pid=4100, ip=…) …
func rayLine(line []byte) (text []byte, whole, ok bool) {
	end := bytes.IndexByte(line[:min(len(line), 128)], ')')
	if len(line) == 0 || line[0] != '(' || end < 0 || !bytes.Contains(line[:end], []byte(" pid=")) {
		return nil, false, false
	}
	return bytes.TrimPrefix(line[end+1:], []byte(" ")), true, true
}

// kubectlLine reads what kubectl logs --prefix shows: [pod/x/y] …
func kubectlLine(line []byte) (text []byte, whole, ok bool) {
	end := bytes.Index(line[:min(len(line), 256)], []byte("] "))
	if !bytes.HasPrefix(line, []byte("[pod/")) || end < 0 {
		return nil, false, false
	}
	return line[end+2:], true, true
}

// composeLine reads what docker compose shows: vllm-1  | …
func composeLine(line []byte) (text []byte, whole, ok bool) {
	end := bytes.Index(line[:min(len(line), 128)], []byte(" | "))
	if end < 0 {
		if end = bytes.Index(line[:min(len(line), 128)], []byte(" |")); end < 0 || end != len(line)-2 {
			return nil, false, false
		}
		line = append(bytes.Clone(line), ' ')
	}
	if name := bytes.TrimRight(line[:end], " "); len(name) == 0 || bytes.ContainsAny(name, " {}[]\"'():,") {
		return nil, false, false
	}
	return line[end+3:], true, true
}

// wrapperOf returns the wrapper of most lines of head; nil: there is none.
func wrapperOf(head []byte) wrapper {
	const enough = 64
	for _, w := range wrappers {
		lines, of := 0, 0
		for line := range bytes.Lines(head) {
			if line = bytes.TrimRight(plainText(line[:min(len(line), 1<<12)]), "\r\n"); len(line) == 0 {
				continue
			}
			lines++
			if _, _, ok := w(line); ok || len(line) >= 1<<11 { // which may be cut
				of++
			}
			if lines == enough {
				break
			}
		}
		if of > 0 && of > lines/2 {
			return w
		}
	}
	return nil
}

// Inside returns head without what others put before each line; nil: there is
// nothing of the kind.
func Inside(head []byte) []byte {
	w := wrapperOf(head)
	if w == nil {
		return nil
	}
	inner, _ := io.ReadAll(&unwrapped{r: bufio.NewReaderSize(bytes.NewReader(head), maxLine), w: w}) // memory does not fail
	return inner
}

// Wrapped reports whether head is of a container that a process prints, behind
// what others put before each line, and returns that container.
func Wrapped(head []byte) *Container {
	inner := Inside(head)
	for _, c := range []*Container{&PythonConsole, &GoConsole, &JSConsole} {
		if c.Sniff(inner) {
			return c
		}
	}
	return nil
}

// Unwrap returns a reader of r, which begins with head, without what others put
// before each line.
func Unwrap(head []byte, r io.Reader) io.Reader {
	w := wrapperOf(head)
	if w == nil {
		return r
	}
	return &unwrapped{r: bufio.NewReaderSize(r, maxLine), w: w}
}

// Console decodes what a process prints, in a container that [Wrapped] may
// return.
func (d *Decoder) Console(c *Container, r io.Reader, at scan.At) error {
	if c == &JSConsole {
		return d.JS(r, at)
	}
	return d.JSON(c, r, at)
}

// maxLine is how long a line may be to be unwrapped as a whole; of longer ones
// only the begin is looked at.
const maxLine = 256 << 10

type unwrapped struct {
	r    *bufio.Reader
	w    wrapper
	out  []byte
	long bool // the middle of a long line
	err  error
}

func (u *unwrapped) Read(p []byte) (int, error) {
	for len(u.out) == 0 {
		if u.err != nil {
			return 0, u.err
		}
		u.fill()
	}
	n := copy(p, u.out)
	u.out = u.out[n:]
	return n, nil
}

func (u *unwrapped) fill() {
	line, err := u.r.ReadSlice('\n')
	part := err == bufio.ErrBufferFull
	if err != nil && !part {
		u.err = err
	}
	if begun := u.long; begun {
		u.long, u.out = part, line
		return
	}
	u.long = part
	text, whole, ok := u.w(bytes.TrimRight(plainText(line), "\r\n"))
	if !ok {
		u.out = line
		return
	}
	u.out = append(u.out[:0:0], text...)
	if whole && bytes.HasSuffix(line, []byte("\n")) {
		u.out = append(u.out, '\n')
	}
}
