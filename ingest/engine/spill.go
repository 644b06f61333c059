package engine

import (
	"bufio"
	"errors"
	"fmt"
	"os"
)

// extent is a piece of the file that spans wait in.
type extent struct {
	at   int64
	size int
}

// spillFile is a temporary file. Where the system lets a file that is open
// have no name, it has none: it is gone with the program, however that ends.
type spillFile struct {
	f    *os.File
	name string // to be removed; empty: it has been
	size int64
	read []byte // room
}

func newSpillFile() (*spillFile, error) {
	f, err := os.CreateTemp("", "traceview-*.spans")
	if err != nil {
		return nil, err
	}
	s := &spillFile{f: f, name: f.Name()}
	if os.Remove(s.name) == nil {
		s.name = ""
	}
	return s, nil
}

func (s *spillFile) close() error {
	err := s.f.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// spill writes what waits packed to the file: trace after trace, in the order
// in which they will be asked for.
func (b *Builder) spill() (err error) {
	if b.file == nil {
		if b.file, err = newSpillFile(); err != nil {
			return err
		}
	}
	w := bufio.NewWriterSize(b.file.f, 1<<20)
	for _, g := range b.order {
		if g == nil || len(g.data) == 0 {
			continue
		}
		if _, err := w.Write(g.data); err != nil {
			return err
		}
		g.spilled = append(g.spilled, extent{b.file.size, len(g.data)})
		b.file.size += int64(len(g.data))
		g.data = nil
	}
	b.waiting = 0
	return w.Flush()
}

// stored returns all that is packed of g, in the order of its coming.
func (b *Builder) stored(g *group) (string, error) {
	if len(g.spilled) == 0 {
		return string(g.data), nil
	}
	all := b.file.read[:0]
	for _, e := range g.spilled {
		n := len(all)
		all = append(all, make([]byte, e.size)...)
		if _, err := b.file.f.ReadAt(all[n:], e.at); err != nil {
			return "", err
		}
	}
	all = append(all, g.data...)
	b.file.read = all
	return string(all), nil
}

// fail ends b: what waits in its file cannot be written or read.
func (b *Builder) fail(err error) {
	if b.err == nil {
		b.err = fmt.Errorf("the temporary file of spans that wait for their trace: %w", err)
	}
	b.stopped = true
}

// Err returns why the builder could not go on; nil: it could. Its Add and
// Finish have returned false then.
func (b *Builder) Err() error { return b.err }

// Close lets go of the temporary file, if there is one. It can be called at any
// time, and has to be at the end; nothing is added afterwards.
func (b *Builder) Close() error {
	if b.file == nil {
		return nil
	}
	err := b.file.close()
	b.file = nil
	if err != nil {
		return fmt.Errorf("the temporary file of spans that wait for their trace: %w", err)
	}
	return nil
}
