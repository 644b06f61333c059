package ingest

import (
	"context"
	"io"
)

// An awaited reads in a goroutine of its own, so that what may never answer (a
// terminal, a pipe whose writer sleeps, a named pipe that nobody has opened for
// writing) does not outlast the context. It reads ahead by one piece.
type awaited struct {
	ctx    context.Context
	pieces chan piece    // unbuffered: while one is used the other is filled
	done   chan struct{} // closed by Close
	rest   []byte
	err    error
}

type piece struct {
	b   []byte
	err error
}

const pieceSize = 64 << 10

// await opens in the goroutine as well: opening a named pipe waits for the
// other side. The error of open comes from the first Read.
func await(ctx context.Context, open func() (io.ReadCloser, error)) *awaited {
	a := &awaited{ctx: ctx, pieces: make(chan piece), done: make(chan struct{})}
	go a.run(open)
	return a
}

func (a *awaited) run(open func() (io.ReadCloser, error)) {
	defer close(a.pieces)
	r, err := open()
	if err != nil {
		a.give(piece{err: &openError{err}})
		return
	}
	defer r.Close() // it was only read
	for bufs, i := [2][]byte{}, 0; ; i ^= 1 {
		if bufs[i] == nil {
			bufs[i] = make([]byte, pieceSize)
		}
		n, err := r.Read(bufs[i])
		if !a.give(piece{bufs[i][:n], err}) || err != nil {
			return
		}
	}
}

func (a *awaited) give(p piece) bool {
	select {
	case a.pieces <- p:
		return true
	case <-a.done:
		return false
	}
}

func (a *awaited) Read(p []byte) (int, error) {
	for len(a.rest) == 0 && a.err == nil {
		select {
		case got, ok := <-a.pieces:
			if !ok {
				return 0, io.EOF
			}
			a.rest, a.err = got.b, got.err
		case <-a.ctx.Done():
			return 0, a.ctx.Err()
		}
	}
	if len(a.rest) == 0 {
		return 0, a.err
	}
	n := copy(p, a.rest)
	a.rest = a.rest[n:]
	return n, nil
}

func (a *awaited) Close() error {
	close(a.done)
	return nil
}

// openError says that it was not reading that failed.
type openError struct{ error }

func (e *openError) Unwrap() error { return e.error }
