package sim

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/traceview/traceview/internal/units"
)

// Drawing says how [QueueResult.Draw] draws. The zero value works.
type Drawing struct {
	Width int  // columns; 0: 80, at least 40
	Rows  int  // requests shown, the first ones; 0: 40
	ASCII bool // nothing beyond ASCII
}

// Draw draws the run as a person would: a row a request on one axis of time,
// with its arrival, its wait and its execution, the worker with its groups
// below, then the figures.
func (r *QueueResult) Draw(w io.Writer, o Drawing) error {
	if o.Width == 0 {
		o.Width = 80
	}
	if o.Rows == 0 {
		o.Rows = 40
	}
	d := drawing{QueueResult: r, shown: r.Served[:min(o.Rows, len(r.Served))], size: map[int]int{}}
	for _, s := range r.Served {
		d.size[s.Group]++
	}
	d.arrive, d.wait, d.setup, d.work, d.axis, d.tick = '▸', '·', '░', '█', '─', '┬'
	if o.ASCII {
		d.arrive, d.wait, d.setup, d.work, d.axis, d.tick = '>', '.', '-', '#', '-', '+'
	}
	d.label = max(len("worker"), len("r")+len(strconv.Itoa(len(d.shown))))
	for _, s := range d.shown {
		d.end = max(d.end, s.End)
	}
	d.choose(max(40, o.Width) - d.label - 2)

	b := new(bytes.Buffer)
	d.lines(b)
	b.WriteByte('\n')
	d.table(b)
	text := b.Bytes()
	if o.ASCII {
		text = bytes.ReplaceAll(text, []byte("µ"), []byte("u"))
		text = bytes.ReplaceAll(text, []byte("—"), []byte("-"))
	}
	_, err := w.Write(text)
	return err
}

type drawing struct {
	*QueueResult
	shown                                 []Served
	size                                  map[int]int // requests of each group
	arrive, wait, setup, work, axis, tick rune
	label                                 int           // columns of the row names
	end                                   time.Duration // of the axis
	cell                                  time.Duration // what a column stands for
	every                                 int           // columns between ticks
	scale                                 units.Scale
}

// scale is the common scale of d, but never above seconds: the columns are
// decimal.
func scale(d time.Duration) units.Scale {
	if d >= time.Minute {
		d = time.Second
	}
	return units.CommonScale(d)
}

// choose picks the time of a column, 1, 2 or 5 times a power of ten, so that
// the run fits, and the distance of the ticks, so that their numbers do.
func (d *drawing) choose(columns int) {
	d.scale = scale(d.end)
	room := len(decimal(d.end, d.scale.Unit, 0)) + len(".55 ms") // right of the last tick
	steps := func(yield func(time.Duration) bool) {
		for p := time.Duration(1); p <= horizon/10; p *= 10 {
			for _, m := range []time.Duration{1, 2, 5} {
				if !yield(p * m) {
					return
				}
			}
		}
	}
	for d.cell = range steps {
		if d.end <= d.cell*time.Duration(columns-room) {
			break
		}
	}
	for step := range steps {
		if step%d.cell != 0 {
			continue
		}
		d.every = int(step / d.cell)
		if widest := len(decimal(d.end+step, d.scale.Unit, 9)); d.every >= widest+2 && d.every >= 5 {
			break
		}
	}
}

// at returns the column of an instant: that of its left border.
func (d *drawing) at(t time.Duration) int { return int((t + d.cell/2) / d.cell) }

func (d *drawing) lines(b *bytes.Buffer) {
	last := d.at(d.end)
	numbers, axis := []rune{}, make([]rune, last+1)
	for i := range axis {
		axis[i] = d.axis
		if i%d.every == 0 {
			axis[i] = d.tick
			for len(numbers) < i {
				numbers = append(numbers, ' ')
			}
			numbers = append(numbers, []rune(decimal(time.Duration(i)*d.cell, d.scale.Unit, 9))...)
		}
	}
	d.row(b, "", append(numbers, []rune(" "+d.scale.Name)...))
	d.row(b, "", axis)

	// A border has a column of its own, left of the column that begins there:
	// so an arrival never hides what follows it.
	worker := blank(last + 2)
	for i, s := range d.shown {
		row := blank(last + 2)
		a := d.at(s.Arrival)
		from, _ := d.execution(row, s)
		for c := a + 1; c <= from; c++ {
			row[c] = d.wait
		}
		row[min(a, from)] = d.arrive
		d.row(b, "r"+strconv.Itoa(i+1), row)
		if i+1 == len(d.shown) || d.shown[i+1].Group != s.Group {
			from, to := d.execution(worker, s)
			if n := []rune(strconv.Itoa(s.Group)); len(n) <= to-from {
				copy(worker[from+1:], n)
			}
		}
	}
	d.row(b, "worker", worker)
}

// execution draws setup and work of s into row and returns their borders.
// What takes any time has a column at least.
func (d *drawing) execution(row []rune, s Served) (from, to int) {
	from, to = d.at(s.Start), d.at(s.End)
	if from == to && s.End > s.Start {
		to++
	}
	work := d.at(s.Start + d.Queue.Setup)
	for c := from; c < to; c++ {
		row[c+1] = d.work
		if c < work {
			row[c+1] = d.setup
		}
	}
	return from, to
}

func (d *drawing) row(b *bytes.Buffer, name string, cells []rune) {
	line := fmt.Sprintf("%-*s %s", d.label, name, string(cells))
	b.WriteString(strings.TrimRight(line, " "))
	b.WriteByte('\n')
}

func (d *drawing) table(b *bytes.Buffer) {
	fmt.Fprintf(b, "%c arrives   %c waits   %c setup   %c work   number: the group\n\n", d.arrive, d.wait, d.setup, d.work)
	unit := d.scale.Name
	rows := [][]string{{"request", "arrival " + unit, "wait " + unit, "latency " + unit, "completed " + unit, "group"}}
	digits := 0
	for _, s := range d.shown {
		for _, t := range []time.Duration{s.Arrival, s.Waited(), s.Latency(), s.End} {
			if _, frac, ok := strings.Cut(decimal(t, d.scale.Unit, 3), "."); ok {
				digits = max(digits, len(frac))
			}
		}
	}
	for i, s := range d.shown {
		row := []string{"r" + strconv.Itoa(i+1)}
		for _, t := range []time.Duration{s.Arrival, s.Waited(), s.Latency(), s.End} {
			row = append(row, pad(decimal(t, d.scale.Unit, 3), digits))
		}
		rows = append(rows, append(row, strconv.Itoa(s.Group)))
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c))
		}
	}
	for _, row := range rows {
		fmt.Fprintf(b, "%-*s", width[0], row[0])
		for i, c := range row[1:] {
			fmt.Fprintf(b, "  %*s", width[i+1], c)
		}
		b.WriteByte('\n')
	}
	if more := len(d.Served) - len(d.shown); more > 0 {
		fmt.Fprintf(b, "and %s more\n", units.Count(int64(more)))
	}
	throughput := "—"
	if v, ok := d.Throughput().Get(); ok {
		throughput = units.Number(v)
	}
	n := time.Duration(len(d.Served))
	mean := (d.Latency() + n/2) / n
	fmt.Fprintf(b, "\nmean latency %s %s, throughput %s requests/s over [0, %s %s]\n",
		decimal(mean, scale(mean).Unit, 3), scale(mean).Name, throughput, decimal(d.End(), scale(d.End()).Unit, 3), scale(d.End()).Name)
}

func blank(n int) []rune { return []rune(strings.Repeat(" ", n)) }

// decimal prints d, not below zero, in a unit, rounded to so many digits, with
// no zero at the end.
func decimal(d, unit time.Duration, digits int) string {
	step := unit
	for range digits {
		if step%10 == 0 {
			step /= 10
		}
	}
	d = (d + step/2) / step * step
	s := strconv.FormatInt(int64(d/unit), 10)
	frac := d % unit
	if frac == 0 || unit%10 != 0 {
		return s
	}
	s += "."
	for frac > 0 {
		frac *= 10
		s += strconv.FormatInt(int64(frac/unit), 10)
		frac %= unit
	}
	return s
}

// pad gives a decimal so many digits behind the point.
func pad(s string, digits int) string {
	if digits == 0 {
		return s
	}
	whole, frac, _ := strings.Cut(s, ".")
	return whole + "." + frac + strings.Repeat("0", digits-len(frac))
}
