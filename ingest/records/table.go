package records

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// table reads a CSV file whose first line names the columns: one request a line.
// Cells may be quoted; a line in a cell may not. A line that is too long, or has
// not the header's number of cells, costs that line.
func (d *Decoder) table(f *Format, r io.Reader, at scan.At) error {
	br := bufio.NewReaderSize(r, 64<<10)
	var (
		offset int64
		number = at.Line
		index  []int // of f.columns in a line
		width  int
		comma  byte
	)
	for {
		line, size, large, err := readLine(br, d.max)
		if err != nil && err != io.EOF {
			return err
		}
		ended := err == nil
		pos := at.Pos(offset)
		pos.Line = number
		offset += size
		number++
		issue := func(code trace.Code, format string, args ...any) error {
			is := trace.NewIssue(code, pos, format, args...)
			if !d.sink(nil, &is) {
				return scan.ErrStopped
			}
			return nil
		}
		switch cells, whole := splitRow(line, comma); {
		case large:
			err := issue(trace.RecordTooLarge, "a line is larger than %d bytes", d.max)
			if err != nil {
				return err
			}
			if index == nil { // it was the header
				return nil
			}
		case index == nil && len(line) > 0:
			comma = delimiter(line)
			cells, _ = splitRow(line, comma)
			width = len(cells)
			if index, err = d.header(f, cells, issue); err != nil {
				return err
			}
			d.file.unreadAt = pos
		case len(bytes.TrimSpace(line)) == 0:
		case !ended && (!whole || len(cells) < width):
			if err := issue(trace.Truncated, "last line incomplete (%d bytes)", size); err != nil {
				return err
			}
		case !whole:
			if err := issue(trace.BadRow, "a quote has no end on its line"); err != nil {
				return err
			}
		case len(cells) != width:
			if err := issue(trace.BadRow, "it has %d cells, the header has %d", len(cells), width); err != nil {
				return err
			}
		default:
			p := parser{Parser: scan.Parser{At: at, Begin: pos, Texts: &d.texts}, d: d, f: f, v: scan.Value{Begin: pos, Ours: func() error { return nil }}}
			p.Notes.Begin(pos)
			picked := make([]string, len(index))
			for i, k := range index {
				if k >= 0 {
					picked[i] = string(p.Notes.Mend([]byte(cells[k])))
				}
			}
			r := p.begin("")
			if f.row(&p, r, picked); !ended {
				is := trace.NewIssue(trace.Truncated, pos, "the last line has no end: its last cell may be cut short")
				is.Severity = trace.Degraded
				p.Notes.List = append(p.Notes.List, is)
			}
			if p.workload(r); p.Err != nil {
				return p.Err
			}
		}
		if !ended {
			return d.end()
		}
	}
}

// header finds the columns of f; −1: there is none, or more than one.
func (d *Decoder) header(f *Format, cells []string, issue func(trace.Code, string, ...any) error) ([]int, error) {
	index := make([]int, len(f.columns))
	for i := range index {
		index[i] = none
	}
	for k, c := range cells {
		known := false
		for i, name := range f.columns {
			if !strings.EqualFold(c, name) {
				continue
			}
			known = true
			if index[i] == none {
				index[i] = k
				continue
			}
			index[i] = twice
			if err := issue(trace.DuplicateKey, "the column %q stands twice: its values count as not reported", name); err != nil {
				return nil, err
			}
		}
		if !known && len(d.file.unread) < maxUnread && len(c) <= 40 && c != "" {
			d.file.unread = append(d.file.unread, strings.ToValidUTF8(c, "\uFFFD"))
		}
	}
	return index, nil
}

// readLine reads a line without its end. Of one beyond the limit nothing is kept.
// The error is io.EOF where the input ends without an end of line.
func readLine(br *bufio.Reader, limit int64) (line []byte, size int64, large bool, err error) {
	for {
		part, err := br.ReadSlice('\n')
		size += int64(len(part))
		if large = large || int64(len(line)+len(part)) > limit; large {
			line = nil
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimRight(line, "\r\n"), size, large, err
	}
}

// delimiter is what stands between the cells of a header.
func delimiter(header []byte) byte {
	for _, c := range []byte(",;\t") {
		if bytes.IndexByte(header, c) >= 0 {
			return c
		}
	}
	return ','
}

// splitRow takes a line apart, without blanks around cells; whole is false where
// a quote has no end.
func splitRow(line []byte, comma byte) (cells []string, whole bool) {
	line = bytes.TrimRight(bytes.TrimPrefix(line, []byte("\xef\xbb\xbf")), "\r\n")
	var cell []byte
	quoted := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '"' && quoted && i+1 < len(line) && line[i+1] == '"':
			cell = append(cell, c)
			i++
		case c == '"':
			quoted = !quoted
		case c == comma && !quoted:
			cells = append(cells, strings.TrimSpace(string(cell)))
			cell = cell[:0]
		default:
			cell = append(cell, c)
		}
	}
	return append(cells, strings.TrimSpace(string(cell))), !quoted
}
