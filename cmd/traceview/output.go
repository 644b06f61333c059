package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/traceview/traceview/export"
)

// suffixes says which format a file name asks for.
var suffixes = []struct{ suffix, format string }{
	{".txt", "text"},
	{".json", "json"},
	{".csv", "csv"},
	{".parquet", "parquet"},
	{".pb.gz", "pprof"},
	{".pprof", "pprof"},
}

// formatOf returns the format that a path's suffix asks for, "" for none.
func formatOf(path string) string {
	name := strings.ToLower(filepath.Base(path))
	for _, s := range suffixes {
		if strings.HasSuffix(name, s.suffix) {
			return s.format
		}
	}
	return ""
}

// chooseFormat returns the format of one output: the stated one, else the one
// of the suffix, else alt. An alt of "" makes the statement necessary.
func chooseFormat(stated, path, alt string, known []string) (string, error) {
	f := stated
	if f == "" {
		f = formatOf(path)
	}
	if f == "" {
		f = alt
	}
	switch {
	case f == "":
		return "", usagef("no format for %s: say --format %s, or use a suffix such as .parquet or .pb.gz", target(path), strings.Join(known, "|"))
	case !slices.Contains(known, f):
		return "", usagef("format %q is not one of %s here%s", f, strings.Join(known, ", "), elsewhere(f))
	}
	return f, nil
}

// elsewhere says which command writes a format that this one does not.
func elsewhere(format string) string {
	switch format {
	case "parquet", "pprof":
		return "; traceview export writes it"
	case "text", "json":
		return "; traceview report writes it"
	}
	return ""
}

func target(path string) string {
	if path == "" || path == "-" {
		return "standard output"
	}
	return path
}

// write writes one output to a path, whole or not at all, or to standard
// output where the path is empty or "-". An input is not written over.
func (env *environment) write(path string, fn func(io.Writer) error) error {
	if path == "" || path == "-" {
		return fn(env.stdout)
	}
	if in, ok := env.isInput(path); ok {
		return usagef("-o %s would replace the input %s: name another file", path, in)
	}
	return export.WriteFile(path, fn)
}

// textOptions are those of a text that is written to w.
func textOptions(w io.Writer) export.TextOptions {
	return export.TextOptions{Width: width(w), Color: colour(w)}
}

// isInput returns the input that is the same regular file as path.
func (env *environment) isInput(path string) (string, bool) {
	out, err := os.Stat(path)
	if err != nil || !out.Mode().IsRegular() {
		return "", false
	}
	for _, in := range env.inputs {
		if info, err := os.Stat(in.Name); err == nil && in.Name != "-" && os.SameFile(out, info) {
			return in.Name, true
		}
	}
	return "", false
}

// errTerminal refuses to write binary data to a terminal.
var errTerminal = errors.New("standard output is a terminal, and the format is binary: use -o FILE")

func (env *environment) refuseTerminal(path, format string) error {
	if (path == "" || path == "-") && (format == "parquet" || format == "pprof") && isTerminal(env.stdout) {
		return usageError{fmt.Errorf("%s: %w", format, errTerminal)}
	}
	return nil
}
