package ingest

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// compression is how bytes are compressed, by their first ones.
type compression uint8

const (
	plain compression = iota
	gz
	zst
)

func compressionOf(head []byte) compression {
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b, 8}):
		return gz
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return zst
	}
	return plain
}

// open returns a reader of what is inside. Members and frames that follow each
// other read as one.
func (c compression) open(r io.Reader) (io.ReadCloser, error) {
	if c == gz {
		return gzip.NewReader(r)
	}
	z, err := newZstd(r)
	if err != nil {
		return nil, err
	}
	return z.IOReadCloser(), nil
}

// maxWindow is how much of its past zstd may refer to; zstd --long needs it.
const maxWindow = 128 << 20

func newZstd(r io.Reader) (*zstd.Decoder, error) {
	return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
}

var errTooLarge = errors.New("over the limit")

// limited counts what it reads and fails beyond max.
type limited struct {
	r      io.Reader
	n, max int64
}

func (l *limited) Read(p []byte) (int, error) {
	if l.n >= l.max {
		// The limit itself is allowed: only one byte more is too much.
		var one [1]byte
		n, err := l.r.Read(one[:])
		if n > 0 {
			err = errTooLarge
		}
		return 0, err
	}
	n, err := l.r.Read(p[:min(int64(len(p)), l.max-l.n)])
	l.n += int64(n)
	return n, err
}

// raw reads an input as it is stored. It knows its own errors from those of
// what decompresses.
type raw struct {
	run *run
	r   io.Reader
	n   int64 // bytes read
	err error
}

// rest counts what of size bytes was read elsewhere.
func (r *raw) rest(size int64) {
	if n := size - r.n; n > 0 && size < 1<<62 {
		r.n += n
		r.run.progress(int(n))
	}
}

func (r *raw) Read(p []byte) (int, error) {
	if err := r.run.ctx.Err(); err != nil {
		r.err = err
		return 0, err
	}
	n, err := r.r.Read(p)
	r.n += int64(n)
	r.run.progress(n)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}

func (r *raw) failed() bool { return r.err != nil }

// progress counts n more bytes and tells of them after each MiB, and at the
// end, when n is 0.
func (run *run) progress(n int) {
	run.stored += int64(n)
	if run.opts.Progress != nil && (n == 0 || run.stored-run.told >= 1<<20) && run.stored != run.told {
		run.told = run.stored
		run.opts.Progress(run.stored)
	}
}
