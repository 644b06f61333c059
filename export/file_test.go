package export

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func put(text string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

// only fails unless dir holds exactly these files.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("the folder holds %q, want %q", got, names)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for _, text := range []string{"first", "second", "", strings.Repeat("long", 1<<16)} {
		if err := WriteFile(path, put(text)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, path); got != text {
			t.Errorf("%d bytes, want %d", len(got), len(text))
		}
	}
	only(t, dir, "out")
}

func TestWriteFileMode(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // has no such modes
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	// A new file has the mode that any new file has.
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode()
	}
	if err := WriteFile(path, put("x")); err != nil {
		t.Fatal(err)
	}
	if mode(path) != mode(plain) {
		t.Errorf("a new file has mode %v, want %v", mode(path), mode(plain))
	}
	// One that is there keeps its own.
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, put("y")); err != nil {
		t.Fatal(err)
	}
	if mode(path) != 0o640 || content(t, path) != "y" {
		t.Errorf("mode %v, content %q", mode(path), content(t, path))
	}
}

// After a failure the old file is as it was and nothing lies about.
func TestWriteFileFailure(t *testing.T) {
	bad := errors.New("out of ideas")
	half := func(w io.Writer) error {
		if _, err := w.Write(bytes.Repeat([]byte("x"), 1<<20)); err != nil {
			return err
		}
		return bad
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := WriteFile(path, half); !errors.Is(err, bad) {
		t.Errorf("error %v, want %v", err, bad)
	}
	only(t, dir)
	if err := WriteFile(path, put("old")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, half); !errors.Is(err, bad) {
		t.Errorf("error %v, want %v", err, bad)
	}
	func() {
		defer func() { recover() }()
		WriteFile(path, func(io.Writer) error { panic("bug") })
	}()
	if got := content(t, path); got != "old" {
		t.Errorf("content %q, want the old one", got)
	}
	only(t, dir, "out")
}

// A file that cannot be closed, or was closed underneath, is an error.
func TestFillCloseError(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(f, func(io.Writer) error { return f.Close() }); err == nil {
		t.Error("closed twice: no error")
	}
}

func TestWriteFilePlaces(t *testing.T) {
	dir := t.TempDir()
	tests := []struct{ path, want string }{
		{dir, "is a directory"},
		{filepath.Join(dir, "no", "out"), "cannot write " + filepath.Join(dir, "no", "out")},
		{"", ""},
	}
	for _, tt := range tests {
		if err := WriteFile(tt.path, put("x")); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q: error %v, want one with %q", tt.path, err, tt.want)
		}
	}
	only(t, dir)
}

// What is no file is written to, not replaced.
func TestWriteFileDevice(t *testing.T) {
	if err := WriteFile(os.DevNull, put("x")); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().IsRegular() {
		t.Fatalf("%s has become a file", os.DevNull)
	}
}

func TestWriteFileLinks(t *testing.T) {
	dir, else1 := t.TempDir(), t.TempDir()
	target, link := filepath.Join(else1, "target"), filepath.Join(dir, "link")
	if err := os.Symlink(target, link); err != nil {
		if runtime.GOOS == "windows" {
			return // needs a privilege there
		}
		t.Fatal(err)
	}
	if err := WriteFile(link, put("x")); err == nil || !strings.Contains(err.Error(), "leads nowhere") {
		t.Errorf("a link to nothing: error %v", err)
	}
	if err := os.WriteFile(target, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, put("new")); err != nil {
		t.Fatal(err)
	}
	if got := content(t, target); got != "new" {
		t.Errorf("the link's target has %q", got)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link is no link any more: %v, %v", info.Mode(), err)
	}
	only(t, dir, "link")
	only(t, else1, "target")
}

// A full disk fails the temporary file, whose name says nothing to the user.
func TestWriteFileNamesTheOutput(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out.csv")
	err := WriteFile(path, func(io.Writer) error {
		temp, err := os.ReadDir(dir)
		if err != nil || len(temp) != 1 {
			t.Fatalf("%v, %v", temp, err)
		}
		return fmt.Errorf("column 9: %w", &fs.PathError{Op: "write", Path: filepath.Join(dir, temp[0].Name()), Err: errors.New("no space left")})
	})
	if err == nil || err.Error() != "cannot write "+path+": no space left" {
		t.Errorf("got %v", err)
	}
	only(t, dir)
}
