package ingest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Open turns operands into inputs, in their order: a file; a folder, which is
// all files below it in the order of their paths, without hidden ones; "-",
// which is stdin and may stand once. Nothing is read yet. The error names an
// operand that is not there or holds no file.
func Open(args []string, stdin io.Reader) ([]Input, error) {
	var inputs []Input
	used := false
	for _, arg := range args {
		if arg == "-" {
			if used {
				return nil, errors.New("standard input (-) is named twice, but can be read only once")
			}
			used = true
			inputs = append(inputs, Input{Name: "-", Size: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }})
			continue
		}
		info, err := os.Stat(arg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("%s: no such file or folder", arg)
		case err != nil:
			return nil, err
		case info.Mode()&fs.ModeSocket != 0:
			return nil, fmt.Errorf("%s: a socket, which cannot be read as a file", arg)
		case !info.IsDir():
			inputs = append(inputs, file(arg, info))
			continue
		}
		some, err := folder(arg)
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			return nil, fmt.Errorf("%s: the folder has no files", arg)
		}
		inputs = append(inputs, some...)
	}
	return inputs, nil
}

func file(name string, info fs.FileInfo) Input {
	in := Input{Name: name, ModTime: info.ModTime(), Size: -1, Open: func() (io.ReadCloser, error) { return os.Open(name) }}
	if info.Mode().IsRegular() {
		in.Size = info.Size()
	}
	return in
}

// folder lists the regular files below dir, also behind links, by path.
func folder(dir string) ([]Input, error) {
	var inputs []Input
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case path == dir:
			return nil
		case strings.HasPrefix(e.Name(), "."):
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case e.IsDir():
			return nil
		}
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // a link to nowhere
			return nil
		case err != nil:
			return err
		case info.Mode().IsRegular():
			inputs = append(inputs, file(path, info))
		}
		return nil
	})
	return inputs, err
}
