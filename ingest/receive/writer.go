package receive

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// WriterOptions say what a [Writer] writes. The zero value of each but Folder
// works.
type WriterOptions struct {
	Folder string // is made where it is not there
	Format Format
	// Compress is "gzip", "zstd" or, for neither, "". What is written at once is
	// a gzip member or zstd frame of its own, so that a file that is still
	// being written reads whole.
	Compress string
	// RotateSize is how many bytes a file may have before the next is begun; a
	// record that is larger has a file of its own. 0: 64 MiB.
	RotateSize int64
	// RotateEvery is how long a file is written to; 0: as long as it takes.
	RotateEvery time.Duration
	// MaxBytes is how many bytes are written at most: a record that would pass
	// it is not written, and the writer is full. 0: no limit.
	MaxBytes int64
	// MaxSpans is after how many spans the writer is full. The record that
	// reaches it is written whole. 0: no limit.
	MaxSpans int64
	// Sync makes every record reach the disk, not only the operating system,
	// before it counts as written.
	Sync bool
	// Say is told when writing begins to fail and when it works again; nil:
	// nobody is.
	Say func(string)
}

// A Writer writes records to a folder's files, whose names sort in the order
// in which they were begun. It is for concurrent use; what comes at the same
// time is written at once.
//
// A record is written when the operating system has it: it is then safe from
// the end of this process, however sudden. Files are synced to the disk when
// they are closed; with WriterOptions.Sync each record is, before it counts. A
// file is never left with part of a record, unless the process or the machine
// dies in the midst of it, or the disk refuses even to take it back.
type Writer struct {
	opts   WriterOptions
	create func(path string) (file, error)
	begun  time.Time

	in      chan *entry
	closing chan struct{} // closed by Close
	full    chan struct{} // closed when a limit is reached
	ended   chan struct{} // closed when all is written
	once    sync.Once

	// The rest is the loop's.
	f       file
	path    string
	size    int64
	opened  time.Time
	number  int
	failing bool
	zs      *zstd.Encoder
	gz      *gzip.Writer
	frame   []byte       // of zs, used again
	member  bytes.Buffer // of gz

	mu     sync.Mutex
	totals Totals
}

// file is what a Writer needs of an os.File.
type file interface {
	Write([]byte) (int, error)
	Truncate(int64) error
	Sync() error
	Close() error
}

// Totals are what a [Writer] has done.
type Totals struct {
	Spans, Records, Bytes int64
	Files                 int
	Failed                int64 // records that could not be written
	Err                   error // the last error of writing; nil: there was none
}

// The errors of [Writer.Write] that are not the disk's.
var (
	ErrClosed = errors.New("the writer is closed")
	ErrFull   = errors.New("a limit of the recording is reached")
)

// entry is a record that waits to be written.
type entry struct {
	data  []byte
	spans int
	done  chan error
}

// atOnce is how many bytes are collected before they are written.
const atOnce = 1 << 20

// NewWriter returns a writer into opts.Folder. The first file is made with the
// first record. The error says why files cannot be written there.
func NewWriter(opts WriterOptions) (*Writer, error) {
	if opts.RotateSize <= 0 {
		opts.RotateSize = 64 << 20
	}
	w := &Writer{
		opts: opts, create: create, begun: time.Now().UTC(),
		in: make(chan *entry), closing: make(chan struct{}), full: make(chan struct{}), ended: make(chan struct{}),
	}
	switch opts.Compress {
	case "":
	case "gzip":
		w.gz = gzip.NewWriter(nil)
	case "zstd":
		w.zs, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) // fails for wrong options only
	default:
		return nil, fmt.Errorf("compression %q is not one of gzip, zstd", opts.Compress)
	}
	if err := os.MkdirAll(opts.Folder, 0o777); err != nil {
		return nil, err
	}
	probe, err := os.CreateTemp(opts.Folder, ".traceview-*")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, err
	}
	go w.loop()
	return w, nil
}

// create makes a file that was not there.
func create(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_EXCL, 0o666)
}

// Full is closed when a limit is reached: nothing is written any more.
func (w *Writer) Full() <-chan struct{} { return w.full }

// Totals returns what was done so far.
func (w *Writer) Totals() Totals {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.totals
}

// Write writes one record, which holds so many spans, and returns once that is
// done. After an error nothing of the record is in the files.
func (w *Writer) Write(record []byte, spans int) error {
	e := &entry{record, spans, make(chan error, 1)}
	select {
	case <-w.closing:
		return ErrClosed
	default:
	}
	select {
	case w.in <- e:
		return <-e.done
	case <-w.closing:
		return ErrClosed
	}
}

// Close ends the writer. Its error is that of closing the last file; those of
// records were returned by Write.
func (w *Writer) Close() error {
	w.once.Do(func() { close(w.closing) })
	<-w.ended
	return w.Totals().Err
}

func (w *Writer) loop() {
	defer close(w.ended)
	tick := time.NewTicker(w.pace())
	defer tick.Stop()
	for {
		select {
		case e := <-w.in:
			w.collect(e)
		case now := <-tick.C:
			if w.old(now) {
				w.note(w.end())
			}
		case <-w.closing:
			w.note(w.end())
			return
		}
	}
}

// pace is how often the age of an idle file is looked at.
func (w *Writer) pace() time.Duration {
	if w.opts.RotateEvery <= 0 {
		return time.Hour
	}
	return max(w.opts.RotateEvery/4, time.Millisecond)
}

func (w *Writer) old(now time.Time) bool {
	return w.f != nil && w.opts.RotateEvery > 0 && now.Sub(w.opened) >= w.opts.RotateEvery
}

// collect writes e and what waits behind it.
func (w *Writer) collect(e *entry) {
	limit := min(atOnce, w.opts.RotateSize)
	group := []*entry{e}
	bytes, spans := int64(len(e.data)), int64(e.spans)
	for bytes < limit && !w.enough(spans) {
		select {
		case e := <-w.in:
			if bytes += int64(len(e.data)); bytes > limit {
				w.write(group)
				group, bytes, spans = nil, int64(len(e.data)), 0
			}
			group = append(group, e)
			spans += int64(e.spans)
			continue
		default:
		}
		break
	}
	w.write(group)
}

// enough reports whether the limit of spans is reached with so many more.
func (w *Writer) enough(more int64) bool {
	return w.opts.MaxSpans > 0 && w.Totals().Spans+more >= w.opts.MaxSpans
}

// isFull reports whether a limit was reached.
func (w *Writer) isFull() bool {
	select {
	case <-w.full:
		return true
	default:
		return false
	}
}

// write writes records in one piece, and tells those who wait for them.
func (w *Writer) write(group []*entry) {
	var spans int64
	raw := group[0].data
	for i, e := range group {
		spans += int64(e.spans)
		if i == 1 {
			raw = append(make([]byte, 0, 2*len(raw)), raw...)
		}
		if i > 0 {
			raw = append(raw, e.data...)
		}
	}
	data, err := w.pack(raw)
	total := w.Totals().Bytes
	switch {
	case err != nil:
	case w.isFull():
		err = ErrFull
	case w.opts.MaxBytes > 0 && total+int64(len(data)) > w.opts.MaxBytes:
		if len(group) > 1 { // some may fit
			for i := range group {
				w.write(group[i : i+1])
			}
			return
		}
		close(w.full)
		err = ErrFull
	default:
		err = w.store(data)
	}
	w.mu.Lock()
	switch {
	case err == nil:
		w.totals.Records += int64(len(group))
		w.totals.Spans += spans
		w.totals.Bytes += int64(len(data))
	case err != ErrFull:
		w.totals.Failed += int64(len(group))
		w.totals.Err = err
	}
	w.mu.Unlock()
	w.health(err)
	if err == nil && w.enough(0) {
		close(w.full)
	}
	for _, e := range group {
		e.done <- err
	}
}

// pack compresses data where that is asked for. The result is good until the
// next call.
func (w *Writer) pack(data []byte) ([]byte, error) {
	switch {
	case w.zs != nil:
		w.frame = w.zs.EncodeAll(data, w.frame[:0])
		return w.frame, nil
	case w.gz != nil:
		w.member.Reset()
		w.gz.Reset(&w.member)
		_, err := w.gz.Write(data)
		err = errors.Join(err, w.gz.Close())
		return w.member.Bytes(), err
	}
	return data, nil
}

// store appends data to the current file, or begins the next one. After an
// error the file is as it was before.
func (w *Writer) store(data []byte) error {
	if w.f != nil && (w.size+int64(len(data)) > w.opts.RotateSize || w.old(time.Now()) || w.gone()) {
		w.note(w.end())
	}
	if w.f == nil {
		if err := w.begin(); err != nil {
			return err
		}
	}
	n, err := w.f.Write(data)
	if err == nil && w.opts.Sync {
		err = w.f.Sync()
	}
	if err == nil {
		w.size += int64(n)
		return nil
	}
	if e := w.f.Truncate(w.size); e != nil || w.size == 0 {
		w.end() // it stays as it is: what was to be said of it is said
	}
	return err
}

// gone reports whether someone removed the current file: what is written to it
// would be lost.
func (w *Writer) gone() bool {
	_, err := os.Stat(w.path)
	return errors.Is(err, os.ErrNotExist)
}

// begin makes the next file. Its name has the time at which the writer began
// and a number, so that names sort in time even where the clock is set back.
func (w *Writer) begin() error {
	suffix := map[Format]string{JSON: ".jsonl", Proto: ".pb"}[w.opts.Format] +
		map[string]string{"": "", "gzip": ".gz", "zstd": ".zst"}[w.opts.Compress]
	for {
		w.number++
		name := fmt.Sprintf("spans-%s-%06d%s", w.begun.Format("20060102T150405.000Z"), w.number, suffix)
		w.path = filepath.Join(w.opts.Folder, name)
		f, err := w.create(w.path)
		if errors.Is(err, os.ErrExist) { // of a second writer
			continue
		}
		if err != nil {
			return err
		}
		if w.opts.Sync {
			w.syncFolder()
		}
		w.f, w.size, w.opened = f, 0, time.Now()
		w.mu.Lock()
		w.totals.Files++
		w.mu.Unlock()
		return nil
	}
}

// syncFolder makes a new file's name reach the disk, on systems that can.
func (w *Writer) syncFolder() {
	if d, err := os.Open(w.opts.Folder); err == nil {
		d.Sync()
		d.Close()
	}
}

// end closes the current file, if there is one. A file in which nothing is is
// removed.
func (w *Writer) end() error {
	if w.f == nil {
		return nil
	}
	err := errors.Join(w.f.Sync(), w.f.Close())
	if w.size == 0 {
		if e := os.Remove(w.path); e == nil {
			w.mu.Lock()
			w.totals.Files--
			w.mu.Unlock()
		}
	}
	w.f = nil
	return err
}

// note keeps an error of a file's end: it is nobody's who waits.
func (w *Writer) note(err error) {
	if err == nil {
		return
	}
	w.mu.Lock()
	w.totals.Err = err
	w.mu.Unlock()
	w.health(err)
}

// health tells when writing begins to fail and when it works again.
func (w *Writer) health(err error) {
	switch {
	case err == ErrFull || (err != nil) == w.failing:
		return
	case err != nil:
		w.failing = true
	default:
		w.failing = false
	}
	if w.opts.Say == nil {
		return
	}
	if err != nil {
		w.opts.Say(fmt.Sprintf("cannot write: %v; clients are told to send again", err))
	} else {
		w.opts.Say("writing works again")
	}
}
