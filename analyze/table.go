package analyze

import "github.com/traceview/traceview/trace"

// Table is a result as rows and typed columns, for every exporter.
type Table struct {
	Name    string // stable, snake_case: "phases"
	Title   string // for people
	Columns []Column
	Rows    [][]Cell
	Notes   []string // footnotes: what was left out and why
}

// Unit is what a column's numbers count.
type Unit string

const (
	UnitNone     Unit = ""
	UnitNanos    Unit = "ns"    // exporters for people scale it per column
	UnitShare    Unit = "share" // 0 to 1, printed as a percentage
	UnitTokens   Unit = "tokens"
	UnitRequests Unit = "requests"
	UnitRate     Unit = "1/s"
	UnitTime     Unit = "unix ns" // an instant, nanoseconds since 1970-01-01 UTC
)

// Column describes the cells under it.
type Column struct {
	Name  string // stable, snake_case, with the unit where it has one: "mean_ns"
	Title string // for people: "mean"
	Unit  Unit
	Text  bool // cells are words: left-aligned
	Float bool // cells have a fraction; those of shares and rates always may
	Flag  bool // cells are 1 for true and 0 for false
	Key   bool // cells number the rows: a part of their names, as leading words are
	// Meaning says what the cells are; empty: the title says it.
	Meaning string
}

// Cell is one value: text, an integer, a float, or absent.
type Cell struct {
	Kind CellKind
	Text string
	Int  int64
	Num  float64
	Mark string // a short mark printed behind the value: "†"
}

// CellKind is the type of a [Cell].
type CellKind uint8

const (
	CellAbsent CellKind = iota // not known: null, never 0
	CellText
	CellInt
	CellFloat
)

// TextCell returns a cell of text.
func TextCell(s string) Cell { return Cell{Kind: CellText, Text: s} }

// IntCell returns a cell with an integer.
func IntCell(i int64) Cell { return Cell{Kind: CellInt, Int: i} }

// FloatCell returns a cell with a float.
func FloatCell(f float64) Cell { return Cell{Kind: CellFloat, Num: f} }

// OptCell returns a cell with an integer, or an absent one.
func OptCell(o trace.Opt[int64]) Cell {
	if v, ok := o.Get(); ok {
		return IntCell(v)
	}
	return Cell{}
}

// Stacks is a result as weighted paths, for profiles.
type Stacks struct {
	Types   []ValueType // of the values of each sample
	Default int         // index of the type shown first
	Keys    []string    // what the frames of each depth are, root first: "service", …
	Samples []StackSample
	// The observation window, Unix nanoseconds; absent where requests share no
	// calendar.
	Start, End trace.Opt[trace.Time]
	Comments   []string
}

// ValueType names what a value counts: {"waiting", "nanoseconds"}.
type ValueType struct{ Type, Unit string }

// StackSample is one path from the root to the leaf with its weights.
type StackSample struct {
	Frames []string // root first
	Values []int64  // as many as Types
	Labels []Label  // sorted by key
}

// Label tags a sample. Where Unit is set, Num counts; else Text.
type Label struct {
	Key  string
	Text string
	Num  int64
	Unit string
}
