package ingest

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// An input that never answers ends with the context, whether it keeps opening
// or reading waiting. A failure shows as a test that does not end.
func TestInputThatNeverAnswers(t *testing.T) {
	for name, open := range map[string]func(cancel func(), wait chan struct{}) (io.ReadCloser, error){
		"open": func(cancel func(), wait chan struct{}) (io.ReadCloser, error) {
			cancel()
			<-wait
			return nil, fs.ErrClosed
		},
		"first read": func(cancel func(), wait chan struct{}) (io.ReadCloser, error) {
			return io.NopCloser(readFunc(func([]byte) (int, error) {
				cancel()
				<-wait
				return 0, io.EOF
			})), nil
		},
		"later read": func(cancel func(), wait chan struct{}) (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(doc("a")), readFunc(func([]byte) (int, error) {
				cancel()
				<-wait
				return 0, io.EOF
			}))), nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			wait := make(chan struct{})
			defer close(wait)
			in := Input{Name: "-", Size: -1, Open: func() (io.ReadCloser, error) { return open(cancel, wait) }}
			var last error
			for _, err := range Requests(ctx, []Input{in}, Options{}) {
				last = err
			}
			if last != context.Canceled {
				t.Errorf("ended with %v", last)
			}
		})
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// What is read through the goroutine is what was there, in pieces of any size.
func TestAwaitedReads(t *testing.T) {
	text := strings.Repeat("0123456789", 3*pieceSize/10)
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "data with EOF": iotest.DataErrReader(strings.NewReader(text)),
		"halves": iotest.HalfReader(strings.NewReader(text)),
	} {
		a := await(context.Background(), func() (io.ReadCloser, error) { return io.NopCloser(r), nil })
		got, err := io.ReadAll(iotest.HalfReader(a))
		if err != nil || string(got) != text {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("%s: after the end: %d, %v", name, n, err)
		}
		if err := a.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The words name the input and the cause once.
func TestOpenErrors(t *testing.T) {
	for _, size := range []int64{-1, 1} {
		in := Input{Name: "x", Size: size, Open: func() (io.ReadCloser, error) {
			return nil, &fs.PathError{Op: "open", Path: "x", Err: fs.ErrPermission}
		}}
		for _, err := range Requests(context.Background(), []Input{in}, Options{}) {
			if !errors.Is(err, fs.ErrPermission) || err.Error() != "cannot open x: permission denied" {
				t.Errorf("size %d: %v", size, err)
			}
		}
	}
}

// A file is one input, however often and by whatever path it is named.
func TestOpenSameFile(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.log", "b.log"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{filepath.Join(dir, "b.log"), dir, dir + "/../" + filepath.Base(dir) + "/a.log"}
	if err := os.Symlink(filepath.Join(dir, "a.log"), filepath.Join(dir, "c.log")); err == nil { // not all systems allow it
		args = append(args, filepath.Join(dir, "c.log"))
	}
	inputs, err := Open(args, nil)
	var got []string
	for _, in := range inputs {
		got = append(got, filepath.Base(in.Name))
	}
	if err != nil || strings.Join(got, " ") != "b.log a.log" {
		t.Errorf("%q, %v", got, err)
	}
}
