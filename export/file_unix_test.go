//go:build unix

package export

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

func TestWriteFilePipe(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(path, 0o666); err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 1)
	go func() {
		f, err := os.Open(path)
		if err != nil {
			got <- err.Error()
			return
		}
		defer f.Close()
		data, err := io.ReadAll(f)
		if err != nil {
			got <- err.Error()
			return
		}
		got <- string(data)
	}()
	if err := WriteFile(path, put("through")); err != nil {
		t.Fatal(err)
	}
	if s := <-got; s != "through" {
		t.Errorf("the reader got %q", s)
	}
	only(t, dir, "pipe")
}

// /dev/fd/N is an open file, even where it is one on disk: what is in it stays.
func TestWriteFileOpenFile(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	path := filepath.Join("/dev/fd", strconv.Itoa(int(f.Fd())))
	if _, err := os.Stat(path); err != nil {
		return // no such folder on this system
	}
	for _, s := range []string{"one ", "two"} {
		if err := WriteFile(path, put(s)); err != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, f.Name()); got != "one two" {
		t.Errorf("the file has %q", got)
	}
	only(t, dir, "out")
}
