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
// which is stdin and may stand once. A file that is named twice, by whatever
// path, is one input: a log's requests would count twice. Nothing is read yet. The error names an
// operand that is not there or holds no file.
func Open(args []string, stdin io.Reader) ([]Input, error) {
	var inputs []Input
	used := false
	seen := map[string]bool{}
	add := func(some ...Input) {
		for _, in := range some {
			if in.Size >= 0 { // a regular file
				path := canonical(in.Name)
				if seen[path] {
					continue
				}
				seen[path] = true
			}
			inputs = append(inputs, in)
		}
	}
	for _, arg := range args {
		if arg == "-" {
			if used {
				return nil, errors.New("standard input (-) is named twice, but can be read only once")
			}
			used = true
			add(Input{Name: "-", Size: -1, Open: func() (io.ReadCloser, error) { return io.NopCloser(stdin), nil }})
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
			add(file(arg, info))
			continue
		}
		some, err := folder(arg)
		if err != nil {
			return nil, err
		}
		if len(some) == 0 {
			return nil, fmt.Errorf("%s: the folder has no files", arg)
		}
		add(some...)
	}
	return inputs, nil
}

// canonical is the path of a file without links and detours.
func canonical(name string) string {
	if path, err := filepath.EvalSymlinks(name); err == nil {
		name = path
	}
	if path, err := filepath.Abs(name); err == nil {
		name = path
	}
	return name
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
