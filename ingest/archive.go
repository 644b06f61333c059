package ingest

import (
	"archive/tar"
	"archive/zip"
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/klauspost/compress/zstd"

	"github.com/traceview/traceview/ingest/otlp"
	"github.com/traceview/traceview/trace"
)

// maxArchives is how deep archives may lie in archives.
const maxArchives = 2

// tarBlock is what a tar archive's members are aligned to.
const tarBlock = 512

// isTar reports whether head begins with a tar archive's header: by its magic,
// or for those of before 1988 by its checksum.
func isTar(head []byte) bool {
	if len(head) < tarBlock {
		return false
	}
	if string(head[257:262]) == "ustar" {
		return true
	}
	sum := 0
	for i, c := range head[:tarBlock] {
		if i >= 148 && i < 156 { // the checksum itself counts as blanks
			c = ' '
		}
		sum += int(c)
	}
	want, err := strconv.ParseInt(strings.Trim(string(head[148:156]), " \x00"), 8, 32)
	return err == nil && head[0] != 0 && int(want) == sum
}

// isZip reports whether head begins with a zip archive.
func isZip(head []byte) bool {
	return bytes.HasPrefix(head, []byte("PK\x03\x04")) || bytes.HasPrefix(head, []byte("PK\x05\x06"))
}

// member returns the part that a file in an archive is; ok is false for those
// that are passed over: hidden ones, as in folders.
func (p *part) member(name string, modTime time.Time) (m *part, ok bool) {
	name = strings.ReplaceAll(name, `\`, "/")
	for dir := range strings.SplitSeq(name, "/") {
		if strings.HasPrefix(dir, ".") && strings.Trim(dir, ".") != "" || dir == "__MACOSX" {
			return nil, false
		}
	}
	in := Input{Name: p.in.Name + ":" + printable(path.Clean(name)), ModTime: modTime, Size: -1}
	return &part{in: in, raw: p.raw, left: p.left, archives: p.archives + 1}, true
}

// maxName is how long a name of a file in an archive may be.
const maxName = 256

// printable is a name from an archive, which anyone can have made, in a form
// that does no harm to terminals and tables.
func printable(name string) string {
	if len(name) > maxName {
		name = name[:maxName] + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(name, "\uFFFD"))
}

// unpack prepares to read the files of an archive, unless it lies too deep.
func (run *run) unpack(p *part) bool {
	if p.archives == maxArchives {
		is := trace.NewIssue(trace.UnknownFormat, p.pos(0), "it is an archive in more than %d archives", maxArchives)
		run.issue(&is)
		return false
	}
	if p.left == nil {
		left := run.opts.MaxInput
		p.left = &left
	}
	run.several = true
	return true
}

// inner reads a file in an archive, which r gives. It returns an error only
// where the whole input ends.
func (run *run) inner(m *part, r io.Reader) error {
	m.dec = otlp.NewDecoder(run.opts.MaxRecord, run.span)
	err := run.part(m, r, 0)
	switch {
	case m.raw.failed() || run.stopped || run.ctx.Err() != nil:
		return err
	case errors.Is(err, errTooLarge):
		return err
	}
	return run.failed(m, err)
}

// tar reads the files of a tar archive as they come.
func (run *run) tar(p *part, r *bufio.Reader) error {
	if !run.unpack(p) {
		return nil
	}
	src := &source{r: r}
	archive := tar.NewReader(src)
	files := 0
	for {
		h, err := archive.Next()
		switch {
		case err == io.EOF:
			return run.endedArchive(p, files)
		case err != nil && src.told, p.raw.failed():
			return nil
		case err != nil && (src.err != nil || errors.Is(err, io.ErrUnexpectedEOF)):
			return err
		case err != nil:
			is := trace.NewIssue(trace.BadCompression, p.pos(p.out.n), "the archive is damaged after %d files", files)
			is.Err = err
			run.issue(&is)
			return nil
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeGNUSparse {
			continue
		}
		m, ok := p.member(h.Name, h.ModTime)
		if !ok {
			continue
		}
		files++
		if err := run.inner(m, archive); err != nil {
			return err
		}
		if run.stopped {
			return nil
		}
		src.told = src.err != nil // with the file that it broke off in
	}
}

// source keeps the error of what it reads.
type source struct {
	r    io.Reader
	err  error // why there is no more
	told bool  // the issue of a file has told of it
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil {
		s.err = err
	}
	return n, err
}

// endedArchive says of an archive that nothing in it was read.
func (run *run) endedArchive(p *part, files int) error {
	if files == 0 {
		is := trace.NewIssue(trace.EmptyInput, p.pos(0), "the archive has no files")
		run.issue(&is)
	}
	return nil
}

// zip reads the files of a zip archive, whose list stands at its end: from the
// file itself where it is one, else from memory.
func (run *run) zip(p *part, r *bufio.Reader) error {
	if !run.unpack(p) {
		return nil
	}
	at, size, err := run.anywhere(p, r, "a zip archive")
	if at == nil {
		return err
	}
	// The list is held in memory, with some six times of what it has here.
	list := &limitedAt{at, max(1<<16, run.opts.MaxRecord/16)}
	archive, err := zip.NewReader(list, size)
	if p.raw.failed() {
		return err
	}
	if err != nil {
		is := trace.NewIssue(trace.BadCompression, p.pos(0), "the zip archive's list of files cannot be read")
		if errors.Is(err, errTooLarge) {
			is = trace.NewIssue(trace.RecordTooLarge, p.pos(0), "the zip archive's list of files has more than %d bytes", max(1<<16, run.opts.MaxRecord/16))
		} else {
			is.Err = err
		}
		run.issue(&is)
		return nil
	}
	list.left = 1<<63 - 1
	archive.RegisterDecompressor(zstd.ZipMethodWinZip, zstd.ZipDecompressor())
	files := 0
	for _, f := range archive.File {
		m, ok := p.member(f.Name, f.Modified)
		if !ok || !f.Mode().IsRegular() {
			continue
		}
		files++
		if err := run.zipped(m, f); err != nil || run.stopped {
			return err
		}
	}
	p.raw.rest(p.in.Size)
	return run.endedArchive(p, files)
}

// anywhere returns what r gives as something that can be read anywhere: the
// input itself where it is a file and nothing is around it, else a copy in
// memory. Nil: an issue has told why not, or err does.
func (run *run) anywhere(p *part, r io.Reader, what string) (at io.ReaderAt, size int64, err error) {
	if p.file != nil {
		return &rawAt{p.raw, p.file}, p.in.Size, nil
	}
	data, err := io.ReadAll(io.LimitReader(r, run.opts.MaxRecord+1))
	switch {
	case err != nil:
		return nil, 0, err
	case int64(len(data)) > run.opts.MaxRecord:
		is := trace.NewIssue(trace.RecordTooLarge, p.pos(0), "%s that is no file of its own is held in memory: it has more than %d bytes", what, run.opts.MaxRecord)
		run.issue(&is)
		return nil, 0, nil
	}
	return bytes.NewReader(data), int64(len(data)), nil
}

// zipped reads a file of a zip archive.
func (run *run) zipped(m *part, f *zip.File) error {
	if f.Flags&1 != 0 {
		is := trace.NewIssue(trace.UnknownFormat, m.pos(0), "it is encrypted")
		run.issue(&is)
		return nil
	}
	r, err := f.Open()
	if err != nil {
		if m.raw.failed() {
			return err
		}
		is := trace.NewIssue(trace.BadCompression, m.pos(0), "it cannot be taken out of the archive (method %d)", f.Method)
		is.Err = err
		run.issue(&is)
		return nil
	}
	defer r.Close() // it was only read
	return run.inner(m, r)
}

// rawAt reads an input as it is stored, anywhere in it.
type rawAt struct {
	raw *raw
	r   io.ReaderAt
}

func (r *rawAt) ReadAt(p []byte, off int64) (int, error) {
	if err := r.raw.run.ctx.Err(); err != nil {
		r.raw.err = err
		return 0, err
	}
	n, err := r.r.ReadAt(p, off)
	if err != nil && err != io.EOF {
		r.raw.err = err
	}
	return n, err
}

// limitedAt fails once more than left was read.
type limitedAt struct {
	r    io.ReaderAt
	left int64
}

func (l *limitedAt) ReadAt(p []byte, off int64) (int, error) {
	if l.left < int64(len(p)) {
		return 0, fmt.Errorf("the list of files: %w", errTooLarge)
	}
	l.left -= int64(len(p))
	return l.r.ReadAt(p, off)
}
