package export

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// WriteFile writes a file whole or not at all: write fills a temporary file
// beside path, which then takes path's place. If anything fails, closing
// included, path is as it was and the temporary file is gone. An existing
// file keeps its mode, and one that may not be written is not replaced. A
// symbolic link stays one: the file that it names is replaced.
//
// What is no regular file (a terminal, /dev/stdout, /dev/null, a named pipe)
// cannot be replaced and is written to as it stands.
//
// The file survives a crash of the program, not one of the machine: nothing is
// synced to the disk, since the result can be made again.
func WriteFile(path string, write func(io.Writer) error) error {
	target, mode, direct, err := resolve(path)
	if err != nil {
		return err
	}
	if direct {
		// O_APPEND: /dev/stdout may be a file that others have written to.
		f, err := os.OpenFile(target, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			return err
		}
		return fill(f, write)
	}
	f, err := tempBeside(target, mode)
	if err != nil {
		return err
	}
	done := false
	defer func() { // also where write panics
		if !done {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if err := fill(f, write); err != nil {
		var perr *fs.PathError
		if errors.As(err, &perr) && perr.Path == f.Name() { // a name that the user never gave
			return fmt.Errorf("cannot write %s: %w", path, perr.Err)
		}
		return err
	}
	if err := os.Rename(f.Name(), target); err != nil {
		return err
	}
	done = true
	return nil
}

// resolve finds what path stands for: the file to replace and its mode (0
// where there is none yet), or direct where it must be written in place.
func resolve(path string) (target string, mode fs.FileMode, direct bool, err error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path); err == nil {
			return "", 0, false, fmt.Errorf("%s: a symbolic link that leads nowhere", path)
		}
		return path, 0, false, nil
	}
	switch {
	case err != nil:
		return "", 0, false, err
	case info.IsDir():
		return "", 0, false, fmt.Errorf("%s: is a directory; name a file in it", path)
	case !info.Mode().IsRegular():
		return path, 0, true, nil
	}
	if link, err := os.Lstat(path); err == nil && link.Mode()&fs.ModeSymlink != 0 {
		abs, err := filepath.Abs(path)
		if err != nil {
			return "", 0, false, err
		}
		// /dev/stdout and /dev/fd/3 look like files when redirected to one, but
		// mean an open file.
		if strings.HasPrefix(abs, "/dev/") || strings.HasPrefix(abs, "/proc/") {
			return path, 0, true, nil
		}
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", 0, false, err
		}
	}
	// A rename would replace a file that is protected against writing.
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return "", 0, false, err
	}
	if err := f.Close(); err != nil {
		return "", 0, false, err
	}
	return path, info.Mode().Perm(), false, nil
}

// tempBeside creates a file in path's folder. With mode 0 it gets what the
// umask leaves of 0666, which os.CreateTemp does not offer.
func tempBeside(path string, mode fs.FileMode) (*os.File, error) {
	for i := 0; ; i++ {
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".traceview-%d-%d.tmp", os.Getpid(), i))
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if errors.Is(err, fs.ErrExist) && i < 10000 {
			continue
		}
		var perr *fs.PathError
		if errors.As(err, &perr) {
			return nil, fmt.Errorf("cannot write %s: %w", path, perr.Err)
		}
		if err == nil && mode != 0 {
			if err = f.Chmod(mode); err != nil {
				f.Close()
				os.Remove(name)
			}
		}
		return f, err
	}
}

// fill runs write over f and closes it.
func fill(f *os.File, write func(io.Writer) error) error {
	b := bufio.NewWriterSize(f, 64<<10)
	err := write(b)
	if err == nil {
		err = b.Flush()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}
