package ingest

import (
	"bytes"
	"crypto/sha256"
	"io"

	"github.com/traceview/traceview/trace"
)

// A file that was copied under another name would count twice. Spans are told
// apart by their ids; a log's lines have none.

// copies finds files with the same content. It reads only files of one size,
// and of them no more than their first bytes if these differ.
type copies struct {
	sizes map[int64]int
	seen  map[copyKey][]Input
}

// copyKey is what copies agree in.
type copyKey struct {
	size int64
	head [sha256.Size]byte
}

func newCopies(inputs []Input) *copies {
	c := &copies{sizes: map[int64]int{}, seen: map[copyKey][]Input{}}
	for _, in := range inputs {
		c.sizes[in.Size]++
	}
	return c
}

// of returns the earlier input that in is a copy of.
func (c *copies) of(in Input) (first Input, ok bool) {
	if in.Size <= 0 || c.sizes[in.Size] < 2 {
		return Input{}, false
	}
	sum, ok := digest(in, sniffed)
	if !ok {
		return Input{}, false // reading it will tell
	}
	k := copyKey{in.Size, sum}
	if before := c.seen[k]; len(before) > 0 {
		whole, ok := digest(in, in.Size)
		for _, b := range before {
			if other, ok2 := digest(b, b.Size); ok && ok2 && whole == other {
				return b, true
			}
		}
	}
	c.seen[k] = append(c.seen[k], in)
	return Input{}, false
}

// digest sums up the first n bytes of an input.
func digest(in Input, n int64) (sum [sha256.Size]byte, ok bool) {
	f, err := in.Open()
	if err != nil {
		return sum, false
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.CopyN(h, f, n); err != nil && err != io.EOF {
		return sum, false
	}
	h.Sum(sum[:0])
	return sum, true
}

// same drops logs that tell the very same as an earlier one, such as one that
// is there compressed and plain.
func (run *run) same() {
	g := &run.logs
	seen := map[[sha256.Size]byte]string{}
	kept := g.held[:0]
	for _, l := range g.held {
		if len(l.requests)+len(l.readings) == 0 {
			kept = append(kept, l)
			continue
		}
		sum := l.digest()
		if first, ok := seen[sum]; ok {
			is := trace.NewIssue(trace.CopiedInput, trace.Pos{File: l.file}, "it tells the very same as %.200s", first)
			run.issue(&is)
			continue
		}
		seen[sum] = l.file
		kept = append(kept, l)
	}
	clear(g.held[len(kept):])
	g.held = kept
}

// digest sums up what a log tells, wherever it stands.
func (l *logged) digest() (sum [sha256.Size]byte) {
	var b bytes.Buffer
	h := sha256.New()
	number := func(vs ...int64) {
		for _, v := range vs {
			for range 8 {
				b.WriteByte(byte(v))
				v >>= 8
			}
		}
	}
	for _, r := range l.requests {
		b.Reset()
		b.WriteString(r.Replica + "\x00" + r.ID)
		number(int64(len(r.ID)), int64(r.Source.Pos.Line), int64(r.Arrival.At), int64(r.Completed.At), int64(r.Outcome))
		h.Write(b.Bytes())
	}
	for _, r := range l.readings {
		b.Reset()
		b.WriteString(r.Replica)
		number(int64(r.Source.Pos.Line), int64(r.At), int64(r.Running.Or(-1)), int64(r.Waiting.Or(-1)))
		h.Write(b.Bytes())
	}
	h.Sum(sum[:0])
	return sum
}
