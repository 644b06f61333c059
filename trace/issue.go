package trace

import (
	"fmt"
	"strings"
)

// Severity says what an issue cost.
type Severity uint8

const (
	Note     Severity = iota // nothing lost
	Degraded                 // a field is missing or mended
	Dropped                  // a record is gone
)

var severityNames = [...]string{"note", "degraded", "dropped"}

func (s Severity) String() string { return name(severityNames[:], int(s)) }

// Pos is a place in the input. Zero fields are not known.
type Pos struct {
	File   string // as the user named it; "-" is standard input
	Offset int64  // bytes from the start of the decompressed input, 0-based
	Line   int    // 1-based
	Path   string // inside the record: "resourceSpans[0].scopeSpans[1].spans[2]"
}

func (p Pos) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	switch {
	case p.Line > 0:
		fmt.Fprintf(&b, ":%d", p.Line)
	case p.Offset > 0:
		fmt.Fprintf(&b, " at byte %d", p.Offset)
	}
	if p.Path != "" {
		if b.Len() > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(p.Path)
	}
	return b.String()
}

// Issue is something odd in the input that did not stop the run.
type Issue struct {
	Code     Code
	Severity Severity
	Pos      Pos
	Msg      string // one clause, no position, no code: "ends 1 ms before it starts"
	Err      error  // the cause, where there is one
}

// NewIssue returns an issue of the severity that its code has in [Codes].
func NewIssue(code Code, pos Pos, format string, args ...any) Issue {
	return Issue{Code: code, Severity: code.Info().Severity, Pos: pos, Msg: fmt.Sprintf(format, args...)}
}

// Error makes *Issue an error, so that it can stand in the error position of
// a sequence of requests.
func (i *Issue) Error() string {
	var b strings.Builder
	if p := i.Pos.String(); p != "" {
		b.WriteString(p)
		b.WriteString(": ")
	}
	b.WriteString(i.Msg)
	if i.Err != nil {
		fmt.Fprintf(&b, ": %v", i.Err)
	}
	fmt.Fprintf(&b, " [%s]", i.Code)
	return b.String()
}

func (i *Issue) Unwrap() error { return i.Err }
