package receive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// lines writes records "1\n", "2\n" … of the given length until Write fails.
func lines(w *Writer, n, length int) (written int, err error) {
	for i := range n {
		if err := w.Write(fmt.Appendf(nil, "%0*d\n", length-1, i), 2); err != nil {
			return i, err
		}
	}
	return n, nil
}

func newWriter(t *testing.T, opts WriterOptions) *Writer {
	t.Helper()
	if opts.Folder == "" {
		opts.Folder = t.TempDir()
	}
	w, err := NewWriter(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	return w
}

// sizes are those of the folder's files in the order of their names.
func sizes(t *testing.T, folder string) (list []int64) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, info.Size())
	}
	return list
}

// A file is filled as far as whole records go; a record that is too large for
// any has one of its own.
func TestRotateSize(t *testing.T) {
	for _, c := range []struct {
		rotate, length int64
		want           []int64
	}{
		{100, 10, []int64{100, 100, 50}},
		{99, 10, []int64{90, 90, 70}},
		{101, 10, []int64{100, 100, 50}},
		{10, 100, slices.Repeat([]int64{100}, 25)},
		{1, 3, slices.Repeat([]int64{3}, 25)},
		{1000, 10, []int64{250}},
	} {
		w := newWriter(t, WriterOptions{RotateSize: c.rotate})
		if _, err := lines(w, 25, int(c.length)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if got := sizes(t, w.opts.Folder); !slices.Equal(got, c.want) {
			t.Errorf("files of %d bytes, records of %d: %v, want %v", c.rotate, c.length, got, c.want)
		}
		list, _ := records(t, w.opts.Folder)
		for i, b := range list {
			if want := fmt.Sprintf("%0*d", c.length-1, i); string(b) != want {
				t.Errorf("record %d of the files by name is %s", i, b)
			}
		}
		got := w.Totals()
		if got.Files != len(c.want) || got.Bytes != 25*c.length || got.Records != 25 || got.Spans != 50 {
			t.Errorf("totals %+v", got)
		}
	}
}

// An idle file is ended when its time has come, and the next begun.
func TestRotateEvery(t *testing.T) {
	w := newWriter(t, WriterOptions{RotateEvery: 20 * time.Millisecond})
	for i := range 3 {
		if _, err := lines(w, 1, 10); err != nil {
			t.Fatal(err)
		}
		if got := sizes(t, w.opts.Folder); len(got) != i+1 {
			t.Fatalf("%d files, want %d", len(got), i+1)
		}
		time.Sleep(60 * time.Millisecond)
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		opts         WriterOptions
		written      int
		bytes, spans int64
	}{
		{WriterOptions{MaxBytes: 100}, 10, 100, 20},
		{WriterOptions{MaxBytes: 109}, 10, 100, 20},
		{WriterOptions{MaxBytes: 9}, 0, 0, 0},
		{WriterOptions{MaxSpans: 7}, 4, 40, 8}, // the record that reaches it is whole
		{WriterOptions{MaxSpans: 8}, 4, 40, 8},
		{WriterOptions{MaxSpans: 1, MaxBytes: 10}, 1, 10, 2},
	} {
		w := newWriter(t, c.opts)
		n, err := lines(w, 25, 10)
		if n != c.written || !errors.Is(err, ErrFull) {
			t.Errorf("%+v: %d written, %v", c.opts, n, err)
		}
		select {
		case <-w.Full():
		default:
			t.Errorf("%+v: not full", c.opts)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if got := w.Totals(); got.Bytes != c.bytes || got.Spans != c.spans || got.Failed != 0 {
			t.Errorf("%+v: %+v", c.opts, got)
		}
		if err := w.Write([]byte("x"), 1); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}

// Of what many write at once, each is whole, and the limits hold.
func TestWriteAtOnce(t *testing.T) {
	for _, opts := range []WriterOptions{{RotateSize: 1000}, {MaxSpans: 301}, {MaxBytes: 3005}, {Compress: "zstd", RotateSize: 400}} {
		w := newWriter(t, opts)
		var wg sync.WaitGroup
		var mu sync.Mutex
		acknowledged := map[string]bool{}
		for g := range 20 {
			wg.Go(func() {
				for i := range 20 {
					b := fmt.Appendf(nil, "%03d %05d\n", g, i)
					if err := w.Write(b, 1); err == nil {
						mu.Lock()
						acknowledged[strings.TrimSpace(string(b))] = true
						mu.Unlock()
					} else if !errors.Is(err, ErrFull) {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		w.Close()
		list, _ := records(t, w.opts.Folder)
		for _, b := range list {
			if !acknowledged[string(b)] {
				t.Errorf("%q was written and not acknowledged, or twice", b)
			}
			delete(acknowledged, string(b))
		}
		if len(acknowledged) > 0 {
			t.Errorf("%+v: %d acknowledged and not written", opts, len(acknowledged))
		}
		want := 400
		switch {
		case opts.MaxSpans > 0:
			want = 301
		case opts.MaxBytes > 0:
			want = 300
		}
		if len(list) != want || w.Totals().Records != int64(want) {
			t.Errorf("%+v: %d records, want %d", opts, len(list), want)
		}
	}
}

// sick is a disk that has room for so many bytes.
type sick struct {
	file
	room     *int
	truncate error
}

func (s sick) Write(p []byte) (int, error) {
	n := min(len(p), *s.room)
	*s.room -= n
	n, err := s.file.Write(p[:n])
	if err == nil && n < len(p) {
		err = &os.PathError{Op: "write", Path: "/secret", Err: syscall.ENOSPC}
	}
	return n, err
}

func (s sick) Truncate(n int64) error {
	if s.truncate != nil {
		return s.truncate
	}
	return s.file.Truncate(n)
}

func sicken(w *Writer, room *int, truncate error) {
	w.create = func(path string) (file, error) {
		f, err := create(path)
		return sick{f, room, truncate}, err
	}
}

// A record that does not fit on the disk is refused and leaves nothing behind;
// what comes when there is room again is written.
func TestDiskFull(t *testing.T) {
	var said []string
	room := 25
	w := newWriter(t, WriterOptions{Say: func(s string) { said = append(said, s) }})
	sicken(w, &room, nil)
	n, err := lines(w, 5, 10)
	if n != 2 || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("%d written, %v", n, err)
	}
	if got := sizes(t, w.opts.Folder); !slices.Equal(got, []int64{20}) {
		t.Errorf("sizes %v: part of a record is left", got)
	}
	if _, err := lines(w, 5, 10); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	room = 1000
	if n, err := lines(w, 3, 10); n != 3 {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Close forgot the error: %v", err)
	}
	if got := sizes(t, w.opts.Folder); !slices.Equal(got, []int64{50}) {
		t.Errorf("sizes %v", got)
	}
	if got := w.Totals(); got.Records != 5 || got.Failed != 2 || got.Files != 1 || got.Bytes != 50 {
		t.Errorf("totals %+v", got)
	}
	if len(said) != 2 || !strings.Contains(said[0], "no space") || !strings.Contains(said[1], "works again") {
		t.Errorf("said %q", said)
	}
}

// Where even taking back fails, the file is left to the reader, which counts the
// torn record, and the next is begun.
func TestDiskBroken(t *testing.T) {
	room := 25
	w := newWriter(t, WriterOptions{})
	sicken(w, &room, errors.New("no"))
	lines(w, 5, 10)
	room = 100
	if n, err := lines(w, 2, 10); n != 2 {
		t.Fatal(err)
	}
	w.Close()
	if got := sizes(t, w.opts.Folder); !slices.Equal(got, []int64{25, 20}) {
		t.Errorf("sizes %v", got)
	}
}

// A file in which nothing could be written goes.
func TestDiskFullFromTheBegin(t *testing.T) {
	room := 5
	w := newWriter(t, WriterOptions{})
	sicken(w, &room, nil)
	if n, err := lines(w, 1, 10); n != 0 || err == nil {
		t.Fatal(n, err)
	}
	w.Close()
	if got := sizes(t, w.opts.Folder); len(got) != 0 || w.Totals().Files != 0 {
		t.Errorf("sizes %v, totals %+v", got, w.Totals())
	}
}

// A folder in which no file can be made is known before anything is taken, and
// one that is lost later is an error of each record.
func TestFolder(t *testing.T) {
	dir := t.TempDir()
	taken := filepath.Join(dir, "file")
	if err := os.WriteFile(taken, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{taken, filepath.Join(taken, "below")} {
		if _, err := NewWriter(WriterOptions{Folder: folder}); err == nil {
			t.Errorf("%s was taken for a folder", folder)
		}
	}
	if _, err := NewWriter(WriterOptions{Folder: dir, Compress: "lz4"}); err == nil {
		t.Error("lz4 was taken for a compression")
	}
	w := newWriter(t, WriterOptions{Folder: filepath.Join(dir, "a", "b")})
	if err := os.RemoveAll(w.opts.Folder); err != nil {
		t.Fatal(err)
	}
	if n, err := lines(w, 1, 10); n != 0 || err == nil {
		t.Error("a record was written into a folder that is gone")
	}
}

// Whoever clears the folder meanwhile loses what was there, and no more.
func TestFolderCleared(t *testing.T) {
	w := newWriter(t, WriterOptions{})
	for range 2 {
		if _, err := lines(w, 3, 10); err != nil {
			t.Fatal(err)
		}
		if got := sizes(t, w.opts.Folder); !slices.Equal(got, []int64{30}) {
			t.Errorf("sizes %v", got)
		}
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(w.opts.Folder); err != nil {
		t.Fatal(err)
	}
	if n, err := lines(w, 1, 10); n != 0 || err == nil {
		t.Error("a record was written into a folder that is gone")
	}
}

// Two writers into one folder do not write over each other's files.
func TestTwoWriters(t *testing.T) {
	dir := t.TempDir()
	a, b := newWriter(t, WriterOptions{Folder: dir, RotateSize: 10}), newWriter(t, WriterOptions{Folder: dir, RotateSize: 10})
	b.begun = a.begun
	for range 3 {
		for _, w := range []*Writer{a, b} {
			if _, err := lines(w, 1, 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := sizes(t, dir); len(got) != 6 {
		t.Errorf("%d files", len(got))
	}
}

// While it is written to, a compressed file reads whole: each write ends what it
// began.
func TestCompressedWhileWritten(t *testing.T) {
	for _, method := range []string{"gzip", "zstd"} {
		w := newWriter(t, WriterOptions{Compress: method, Sync: true})
		for i := range 3 {
			if _, err := lines(w, 1, 1000); err != nil {
				t.Fatal(err)
			}
			list, _ := records(t, w.opts.Folder)
			if len(list) != i+1 || !bytes.HasSuffix(list[i], []byte("0000")) {
				t.Fatalf("%s: %d records after %d writes", method, len(list), i+1)
			}
		}
	}
}
