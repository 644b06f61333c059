package engine

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/traceview/traceview/trace"
)

// Most spans wait long for the rest of their trace, and say little: they wait
// as some hundred bytes, in which texts that repeat are numbers. What only
// some writers' spans have is kept as it is, with a mark in its place.

// maxTexts is how many texts get a number. Others stand in full.
const maxTexts = 1 << 16

// texts numbers texts, from 1.
type texts struct {
	ids  map[string]uint32
	list []string
}

func (t *texts) id(s string) (uint32, bool) {
	if id, ok := t.ids[s]; ok {
		return id, true
	}
	if len(t.list) >= maxTexts || len(s) > maxText {
		return 0, false
	}
	if t.ids == nil {
		t.ids = map[string]uint32{}
	}
	s = strings.Clone(s) // it may be a piece of much more
	t.list = append(t.list, s)
	t.ids[s] = uint32(len(t.list))
	return uint32(len(t.list)), true
}

// Bits of a packed span's first number. 0 stands for a node that is kept.
const (
	isPacked = 1 << iota
	hasStart
	hasEnd
	hasRawEnd
	isFailed
	isAborted
	isRefused
	isUntyped
	isOuter
	isApart
	ownSample // sample is what sampled says
)

// packs reports whether n can be packed in g.
func packs(g *group, n *node) bool {
	return n.traceID == g.id && len(g.also) == 0 && len(n.issues) == 0 &&
		n.gate == nil && n.sgl == nil && n.triton == nil && n.tgi == nil && n.dynamo == nil && n.client == nil
}

// pack adds n to g.
func (b *Builder) pack(g *group, n *node) {
	flags := uint64(isPacked)
	for _, f := range []struct {
		is  bool
		bit uint64
	}{
		{n.start.Present(), hasStart}, {n.end.Present(), hasEnd}, {n.rawEnd.Present(), hasRawEnd},
		{n.failed, isFailed}, {n.aborted, isAborted}, {n.refused, isRefused}, {n.untyped, isUntyped},
		{n.outer, isOuter}, {n.apart, isApart}, {n.sample == sampled(n), ownSample},
	} {
		if f.is {
			flags |= f.bit
		}
	}
	p := binary.AppendUvarint(b.packing[:0], flags)
	p = appendID(p, n.spanID)
	p = appendID(p, n.parentID)
	for _, s := range []string{n.name, n.scope, n.format, n.engine, n.pos.File, n.pos.Path} {
		p = b.packed.append(p, s)
	}
	p = binary.AppendUvarint(p, uint64(g.resource(n.res)))
	start := n.start.Or(0)
	p = binary.AppendVarint(p, int64(start))
	for _, t := range []trace.Opt[trace.Time]{n.end, n.rawEnd} {
		if at, ok := t.Get(); ok {
			p = binary.AppendVarint(p, int64(at-start)) // may wrap around, and back
		}
	}
	for _, x := range []int64{int64(n.kind), int64(n.step), n.pos.Offset, int64(n.pos.Line), int64(n.phase), int64(n.half)} {
		p = binary.AppendVarint(p, x)
	}
	if flags&ownSample == 0 {
		p = appendText(p, n.sample)
	}
	p = binary.AppendUvarint(p, uint64(len(n.attrs)))
	for _, a := range n.attrs {
		p = b.packed.append(p, a.Key)
		p = append(p, byte(a.field), byte(a.Value.Kind()))
		switch a.Value.Kind() {
		case trace.ValueInt:
			i, _ := a.Value.Int()
			p = binary.AppendVarint(p, i)
		case trace.ValueFloat:
			f, _ := a.Value.Float()
			p = binary.LittleEndian.AppendUint64(p, math.Float64bits(f))
		case trace.ValueBool:
			p = append(p, a.Value.String()[0])
		case trace.ValueString, trace.ValueJSON:
			if a.field == fieldNone || a.field >= fieldResponseModel && a.field <= fieldFinish {
				p = b.packed.append(p, a.Value.String())
			} else {
				p = appendText(append(p, 0), a.Value.String())
			}
		}
	}
	p = binary.AppendUvarint(p, uint64(len(n.marks)))
	for _, m := range n.marks {
		p = binary.AppendVarint(p, int64(m.at-start))
		p = append(p, byte(m.what))
	}
	b.packing = p
	if g.data == nil {
		g.data = make([]byte, 0, len(p))
	}
	g.data = append(g.data, p...)
	b.waiting += int64(len(p))
	g.size++
}

// resource returns the place of r among those of g.
func (g *group) resource(r *resource) int {
	if i := slices.Index(g.resources, r); i >= 0 {
		return i
	}
	g.resources = append(g.resources, r)
	return len(g.resources) - 1
}

// all returns g's nodes in the order of their coming. They stay packed. Where
// they cannot be read, b has failed.
func (b *Builder) all(g *group) []*node {
	data, err := b.stored(g)
	if err != nil {
		b.fail(err)
		return nil
	}
	r := unpacking{data: data, texts: b.packed.list}
	nodes, room := make([]*node, 0, g.size), make([]node, g.size-len(g.nodes))
	for kept := g.nodes; r.data != ""; {
		flags := r.uint()
		if flags == 0 {
			nodes, kept = append(nodes, kept[0]), kept[1:]
			continue
		}
		n := &room[0]
		room = room[1:]
		r.node(g, n, flags)
		nodes = append(nodes, n)
	}
	return nodes
}

// unpacking is what is left of packed spans.
type unpacking struct {
	data  string
	texts []string
}

func (r *unpacking) node(g *group, n *node, flags uint64) {
	is := func(bit uint64) bool { return flags&bit != 0 }
	n.traceID, n.spanID, n.parentID = g.id, r.id(), r.id()
	for _, s := range []*string{&n.name, &n.scope, &n.format, &n.engine, &n.pos.File, &n.pos.Path} {
		*s = r.numbered()
	}
	n.res = g.resources[r.uint()]
	start := trace.Time(r.int())
	if is(hasStart) {
		n.start = trace.Some(start)
	}
	if is(hasEnd) {
		n.end = trace.Some(start + trace.Time(r.int()))
	}
	if is(hasRawEnd) {
		n.rawEnd = trace.Some(start + trace.Time(r.int()))
	}
	n.kind, n.step, n.pos.Offset, n.pos.Line = trace.SpanKind(r.int()), time.Duration(r.int()), r.int(), int(r.int())
	n.phase, n.half = trace.Phase(r.int()), half(r.int())
	n.failed, n.aborted, n.refused, n.untyped = is(isFailed), is(isAborted), is(isRefused), is(isUntyped)
	n.outer, n.apart = is(isOuter), is(isApart)
	if !is(ownSample) {
		n.sample = r.text()
	}
	if k := r.uint(); k > 0 {
		n.attrs = make([]attr, k)
	}
	for i := range n.attrs {
		a := &n.attrs[i]
		a.Key = r.numbered()
		a.field = field(r.byte())
		switch trace.ValueKind(r.byte()) {
		case trace.ValueInt:
			a.Value = trace.IntValue(r.int())
		case trace.ValueFloat:
			a.Value = trace.FloatValue(math.Float64frombits(binary.LittleEndian.Uint64([]byte(r.take(8)))))
		case trace.ValueBool:
			a.Value = trace.BoolValue(r.byte() == 't')
		case trace.ValueString:
			a.Value = trace.StringValue(r.numbered())
		case trace.ValueJSON:
			a.Value = trace.JSONValue(r.numbered())
		}
	}
	if k := r.uint(); k > 0 {
		n.marks = make([]mark, k)
	}
	for i := range n.marks {
		n.marks[i] = mark{start + trace.Time(r.int()), milestone(r.byte())}
	}
	if is(ownSample) {
		n.sample = sampled(n)
	}
}

// append adds the number of s, or 0 and s.
func (t *texts) append(p []byte, s string) []byte {
	if id, ok := t.id(s); ok {
		return binary.AppendUvarint(p, uint64(id))
	}
	return appendText(append(p, 0), s)
}

func appendText(p []byte, s string) []byte {
	return append(binary.AppendUvarint(p, uint64(len(s))), s...)
}

// appendID adds an id behind twice its length; an id of lower-case hexadecimal
// digits, as most are, takes half the room.
func appendID(p []byte, s string) []byte {
	if len(s) > 0 && len(s)%2 == 0 && strings.Trim(s, "0123456789abcdef") == "" {
		p = binary.AppendUvarint(p, uint64(len(s)/2)<<1|1)
		for i := 0; i < len(s); i += 2 {
			p = append(p, digit(s[i])<<4|digit(s[i+1]))
		}
		return p
	}
	return append(binary.AppendUvarint(p, uint64(len(s))<<1), s...)
}

func digit(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

func (r *unpacking) take(n int) string {
	s := r.data[:n]
	r.data = r.data[n:]
	return s
}

func (r *unpacking) byte() byte { return r.take(1)[0] }

func (r *unpacking) uint() (x uint64) {
	for shift := 0; ; shift += 7 {
		c := r.byte()
		x |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return x
		}
	}
}

func (r *unpacking) int() int64 {
	x := r.uint()
	return int64(x>>1) ^ -int64(x&1)
}

func (r *unpacking) text() string { return r.take(int(r.uint())) }

func (r *unpacking) numbered() string {
	if id := r.uint(); id > 0 {
		return r.texts[id-1]
	}
	return r.text()
}

func (r *unpacking) id() string {
	n := r.uint()
	if n&1 != 0 {
		return hex.EncodeToString([]byte(r.take(int(n >> 1))))
	}
	return r.take(int(n >> 1))
}
