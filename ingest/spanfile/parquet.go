package spanfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// ClickHouseParquet is the rows of [ClickHouse] as Parquet: SELECT * FROM
// otel_traces FORMAT Parquet. Stamps are UTC, to the step that their column
// states.
//
// A file that is no file of its own is held in memory, and so is a page of each
// column: rows whose pages are larger together than a record may be are passed
// over.
var ClickHouseParquet = Container{
	Name:     "clickhouse-parquet",
	Evidence: `a Parquet file with the columns "TraceId", "SpanId" and "SpanName"`,
	Yields:   "spans, then requests",
	NotTold:  "the types of attributes",
	Sniff:    func(head []byte) bool { return strings.HasPrefix(string(head[:min(4, len(head))]), "PAR1") },
	untyped:  true,
}

// Bounds of what a Parquet file's footer, which is held in memory, may have:
// bytes, and members of all its lists together.
const (
	maxFooter  = 16 << 20
	maxMembers = 1 << 20
)

// the columns that are read, by their paths.
const (
	colTime = iota
	colTrace
	colSpan
	colParent
	colName
	colKind
	colService
	colResKey
	colResValue
	colScope
	colKey
	colValue
	colDuration
	colStatus
	colMessage
	colEventTime
	colEventName
	colCount
)

// columnOf returns the meaning of a leaf of the schema; −1: none.
func columnOf(path []string) int {
	key := func(k, v int) int {
		switch path[len(path)-1] {
		case "key":
			return k
		case "value":
			return v
		}
		return -1
	}
	switch path[0] {
	case "Timestamp":
		return colTime
	case "TraceId":
		return colTrace
	case "SpanId":
		return colSpan
	case "ParentSpanId":
		return colParent
	case "SpanName":
		return colName
	case "SpanKind":
		return colKind
	case "ServiceName":
		return colService
	case "ResourceAttributes":
		return key(colResKey, colResValue)
	case "ScopeName":
		return colScope
	case "SpanAttributes":
		return key(colKey, colValue)
	case "Duration":
		return colDuration
	case "StatusCode":
		return colStatus
	case "StatusMessage":
		return colMessage
	case "Events.Timestamp":
		return colEventTime
	case "Events.Name":
		return colEventName
	}
	return -1
}

// table is a Parquet file of spans.
type table struct {
	parser
	columns []int           // by leaf
	steps   []time.Duration // of stamps, likewise; 0: it is none
	cells   [colCount][]parquet.Value
	leaf    [colCount]int
}

// Parquet decodes a Parquet file of so many bytes, and reports whether it is a
// table that is known. It returns [scan.ErrStopped] or nil: what is wrong with
// the file comes as an issue.
func (d *Decoder) Parquet(r io.ReaderAt, size int64, at scan.At) (known bool, err error) {
	t := &table{parser: parser{Parser: scan.Parser{At: at, Texts: &d.texts}, d: d, c: &ClickHouseParquet, mine: true}}
	pos := at.Pos(0)
	var f *parquet.File
	if err := guard(func() (err error) {
		if err = checkFooter(r, size); err == nil {
			f, err = parquet.OpenFile(r, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
		}
		return err
	}); err != nil {
		is := trace.NewIssue(trace.BadCompression, pos, "the Parquet file's footer cannot be read")
		is.Err = err
		t.give(nil, &is)
		return false, t.Err
	}
	if missing := t.open(f); missing != "" {
		t.issue(trace.UnknownFormat, pos, "it is a Parquet file without the column %q: no table of spans that is known", missing)
		return false, t.Err
	}
	n := 0
	groups := f.Metadata().RowGroups
	for i, g := range f.RowGroups() {
		if i < len(groups) {
			switch held, err := largestPages(r, size, &groups[i]); {
			case err != nil:
				is := trace.NewIssue(trace.BadCompression, pos, "the Parquet file is damaged after %d rows", n)
				is.Err = err
				t.give(nil, &is)
				continue
			case held > d.max:
				t.issue(trace.RecordTooLarge, pos, "the pages that %d rows need at one time have %d bytes", groups[i].NumRows, held)
				continue
			}
		}
		if err := t.group(g, &n); err != nil && t.Err == nil {
			is := trace.NewIssue(trace.BadCompression, pos, "the Parquet file is damaged after %d rows", n)
			is.Err = err
			t.give(nil, &is)
		}
		if t.Err != nil {
			break
		}
	}
	return true, t.Err
}

// largestPages returns how many bytes the largest pages of a row group's
// columns have together once they are decompressed: so much of it is held at one
// time. The pages' headers are read and no more.
func largestPages(r io.ReaderAt, size int64, g *format.RowGroup) (held int64, err error) {
	head := make([]byte, 4<<10)
	var window []byte // of head, what there is from off on
	for i := range g.Columns {
		c := &g.Columns[i].MetaData
		off := c.DataPageOffset
		if d := c.DictionaryPageOffset; d > 0 && d < off {
			off = d
		}
		end := min(size, off+c.TotalCompressedSize)
		largest := int64(0)
		window = nil
		for off >= 0 && off < end {
			w := thriftWalk{b: window}
			packed, plain := w.page()
			switch {
			case w.bad && len(window) < len(head) && int64(len(window)) < size-off:
				n, err := r.ReadAt(head[:min(int64(len(head)), size-off)], off)
				if err != nil && err != io.EOF {
					return 0, err
				}
				if n == len(window) {
					return 0, io.ErrUnexpectedEOF
				}
				window = head[:n]
				continue
			case w.bad && len(head) < maxHeader && int64(len(window)) < size-off: // with long statistics
				head = make([]byte, 4*len(head))
				continue
			case w.bad || packed < 0 || plain < 0:
				return 0, errors.New("a page's header is not well-formed")
			}
			largest = max(largest, packed, plain)
			off += int64(len(window)-len(w.b)) + packed
			window = w.b[min(int64(len(w.b)), packed):]
		}
		held += largest
	}
	return held, nil
}

// maxHeader is how long a page's header may be.
const maxHeader = 16 << 20

// guard turns a panic of the library, which trusts what a file says of itself,
// into an error.
func guard(f func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("%v", x)
		}
	}()
	return f()
}

// open finds the columns. It returns the name of one that must be there and is
// not.
func (t *table) open(f *parquet.File) (missing string) {
	for i := range t.leaf {
		t.leaf[i] = -1
	}
	paths := f.Schema().Columns()
	t.columns, t.steps = make([]int, len(paths)), make([]time.Duration, len(paths))
	for i, path := range paths {
		c := columnOf(path)
		if t.columns[i] = c; c < 0 {
			continue
		}
		t.leaf[c] = i
		if leaf, ok := f.Schema().Lookup(path...); ok {
			t.steps[i] = stepOf(leaf.Node.Type())
		}
	}
	for _, c := range []struct {
		col  int
		name string
	}{{colTrace, "TraceId"}, {colSpan, "SpanId"}, {colName, "SpanName"}} {
		if t.leaf[c.col] < 0 {
			return c.name
		}
	}
	return ""
}

// stepOf returns the unit of a column of stamps; 0 where it is none.
func stepOf(typ parquet.Type) time.Duration {
	if logical := typ.LogicalType(); logical != nil {
		if stamp, ok := logical.Value.(*format.TimestampType); ok && stamp.Unit.Value != nil {
			return stamp.Unit.Value.Duration()
		}
	}
	if old := typ.ConvertedType(); old != nil {
		switch *old {
		case deprecated.TimestampMillis:
			return time.Millisecond
		case deprecated.TimestampMicros:
			return time.Microsecond
		}
	}
	return 0
}

func (t *table) group(g parquet.RowGroup, n *int) (err error) {
	var rows parquet.Rows
	if err := guard(func() error { rows = g.Rows(); return nil }); err != nil {
		return err
	}
	defer func() {
		if e := guard(rows.Close); err == nil {
			err = e
		}
	}()
	buf := make([]parquet.Row, 64)
	for {
		var m int
		err := guard(func() (err error) { m, err = rows.ReadRows(buf); return err })
		for _, row := range buf[:m] {
			t.row(row, *n)
			if *n++; t.Err != nil {
				return nil
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case m == 0:
			return io.ErrNoProgress
		}
	}
}

// row gives the span of one row.
func (t *table) row(row parquet.Row, n int) {
	for i := range t.cells {
		t.cells[i] = t.cells[i][:0]
	}
	for _, v := range row {
		if i := v.Column(); i >= 0 && i < len(t.columns) && t.columns[i] >= 0 {
			t.cells[t.columns[i]] = append(t.cells[t.columns[i]], v)
		}
	}
	pos := t.At.Pos(0)
	pos.Path = t.path + "row[" + strconv.Itoa(n) + "]"
	t.Notes.Begin(pos)
	s := &trace.Span{
		Format: t.c.Name, Untyped: true, Pos: pos,
		TraceID: t.id(t.bytes(colTrace), 16, "trace"), SpanID: t.id(t.bytes(colSpan), 8, "span"), ParentID: t.id(t.bytes(colParent), 8, "parent"),
		Name: t.text(colName), Kind: trace.SpanKind(t.enum("SpanKind", t.bytes(colKind), kindNames)), Scope: t.text(colScope),
		Status: trace.StatusCode(t.enum("StatusCode", t.bytes(colStatus), statusNames)), StatusMessage: t.text(colMessage),
		Attrs: t.pairs(colKey, colValue),
	}
	if step := t.step(colTime); step > 1 {
		s.Step = step
	}
	s.Resource = t.named(t.shared(t.pairs(colResKey, colResValue)), t.text(colService))
	if len(t.cells[colTime]) > 0 {
		s.Start = t.stampOf(colTime, t.cells[colTime][0])
	}
	if d := t.cells[colDuration]; len(d) > 0 && !d[0].IsNull() {
		switch d[0].Kind() {
		case parquet.Int64, parquet.Int32: // unsigned: below zero where it ends before it starts
			s.End = t.after(s.Start, trace.Some(trace.Time(integer(d[0]))))
		default:
			t.Notes.Add(trace.BadField, "Duration is no integer")
		}
	}
	for i, v := range t.cells[colEventTime] {
		if v.IsNull() {
			continue
		}
		e := trace.Event{At: t.stampOf(colEventTime, v)}
		if names := t.cells[colEventName]; i < len(names) && isText(names[i]) {
			e.Name = t.d.texts.Intern(t.Notes.Mend(names[i].ByteArray()))
		}
		s.Events = append(s.Events, e)
	}
	s.Issues, t.Notes.List = t.Notes.List, nil
	t.d.Spans++
	t.give(s, nil)
}

func isText(v parquet.Value) bool {
	return !v.IsNull() && (v.Kind() == parquet.ByteArray || v.Kind() == parquet.FixedLenByteArray)
}

func integer(v parquet.Value) int64 {
	if v.Kind() == parquet.Int32 {
		return int64(v.Int32())
	}
	return v.Int64()
}

// bytes returns the text of a column; nil where there is none.
func (t *table) bytes(col int) []byte {
	if c := t.cells[col]; len(c) > 0 && isText(c[0]) {
		return c[0].ByteArray()
	}
	return nil
}

func (t *table) text(col int) string { return t.d.texts.Intern(t.Notes.Mend(t.bytes(col))) }

// pairs returns the members of a map.
func (t *table) pairs(key, value int) []trace.Attr {
	var list []trace.Attr
	for i, k := range t.cells[key] {
		if !isText(k) {
			continue
		}
		a := trace.Attr{Key: t.d.texts.Intern(t.Notes.Mend(k.ByteArray()))}
		if v := t.cells[value]; i < len(v) && isText(v[i]) {
			a.Value = trace.StringValue(t.d.texts.Intern(t.Notes.Mend(v[i].ByteArray())))
		}
		list = append(list, a)
	}
	return list
}

func (t *table) step(col int) time.Duration {
	if t.leaf[col] < 0 {
		return 0
	}
	return t.steps[t.leaf[col]]
}

// stampOf reads an instant.
func (t *table) stampOf(col int, v parquet.Value) (none trace.Opt[trace.Time]) {
	switch {
	case v.IsNull():
		return none
	case isText(v):
		return t.stamp("a stamp", v.ByteArray())
	case v.Kind() != parquet.Int64 || t.step(col) == 0:
		t.Notes.Add(trace.BadField, "a stamp is no time")
		return none
	}
	step := int64(t.step(col))
	n := v.Int64()
	if n <= 0 || n > (1<<63-1)/step {
		t.Notes.Add(trace.TimeOutOfRange, "a stamp does not fit int64 nanoseconds")
		return none
	}
	return trace.Some(trace.Time(n * step))
}

// checkFooter walks over a Parquet file's footer before the library believes
// what it declares: a list of two billion members is allocated before it is
// read.
func checkFooter(r io.ReaderAt, size int64) error {
	var end [8]byte
	if size < 12 {
		return io.ErrUnexpectedEOF
	}
	if _, err := r.ReadAt(end[:], size-8); err != nil {
		return err
	}
	n := int64(binary.LittleEndian.Uint32(end[:]))
	switch {
	case string(end[4:]) != "PAR1":
		return errors.New("it does not end like a Parquet file")
	case n > size-12:
		return io.ErrUnexpectedEOF
	case n > maxFooter:
		return fmt.Errorf("it has %d bytes, more than %d", n, maxFooter)
	}
	b := make([]byte, n)
	if _, err := r.ReadAt(b, size-8-n); err != nil {
		return err
	}
	w := thriftWalk{b: b}
	w.structure(0)
	if w.bad {
		return errors.New("it is not well-formed")
	}
	return nil
}

// thriftWalk passes over Thrift's compact encoding.
type thriftWalk struct {
	b       []byte
	members int
	bad     bool
}

func (w *thriftWalk) uvarint() uint64 {
	v, n := binary.Uvarint(w.b)
	if n <= 0 {
		w.bad = true
		return 0
	}
	w.b = w.b[n:]
	return v
}

func (w *thriftWalk) skip(n uint64) {
	if n > uint64(len(w.b)) {
		w.bad = true
		return
	}
	w.b = w.b[n:]
}

func (w *thriftWalk) byte() byte {
	if len(w.b) == 0 {
		w.bad = true
		return 0
	}
	c := w.b[0]
	w.b = w.b[1:]
	return c
}

const maxThriftDepth = 32

func (w *thriftWalk) structure(depth int) {
	for !w.bad {
		h := w.byte()
		if h == 0 || w.bad {
			return
		}
		if h>>4 == 0 {
			w.uvarint() // the field's number
		}
		w.value(h&15, depth, true)
	}
}

// page passes over a page's header and returns the size that the page has in
// the file and once it is decompressed.
func (w *thriftWalk) page() (packed, plain int64) {
	for id := int64(0); !w.bad; {
		h := w.byte()
		if h == 0 || w.bad {
			break
		}
		if delta := int64(h >> 4); delta > 0 {
			id += delta
		} else {
			id = zigzag(w.uvarint())
		}
		switch {
		case h&15 == 5 && id == 2:
			plain = zigzag(w.uvarint())
		case h&15 == 5 && id == 3:
			packed = zigzag(w.uvarint())
		default:
			w.value(h&15, 0, true)
		}
	}
	return packed, plain
}

func zigzag(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

// value passes over a value of a type. As a field, a boolean is in its header.
func (w *thriftWalk) value(typ byte, depth int, field bool) {
	if depth > maxThriftDepth {
		w.bad = true
	}
	if w.bad {
		return
	}
	switch typ {
	case 1, 2: // boolean
		if !field {
			w.skip(1)
		}
	case 3: // byte
		w.skip(1)
	case 4, 5, 6: // integers
		w.uvarint()
	case 7: // double
		w.skip(8)
	case 8: // binary
		w.skip(w.uvarint())
	case 9, 10: // list, set
		h := w.byte()
		n := uint64(h >> 4)
		if n == 15 {
			n = w.uvarint()
		}
		w.each(n, func() { w.value(h&15, depth+1, false) })
	case 11: // map
		if n := w.uvarint(); n > 0 {
			h := w.byte()
			w.each(n, func() {
				w.value(h>>4, depth+1, false)
				w.value(h&15, depth+1, false)
			})
		}
	case 12: // struct
		w.structure(depth + 1)
	default:
		w.bad = true
	}
}

func (w *thriftWalk) each(n uint64, f func()) {
	if n > uint64(len(w.b)) || w.members+int(n) > maxMembers {
		w.bad = true
		return
	}
	w.members += int(n)
	for range n {
		if w.bad {
			return
		}
		f()
	}
}
