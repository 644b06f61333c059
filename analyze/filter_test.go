package analyze

import (
	"testing"

	"github.com/traceview/traceview/internal/reqtext"
	"github.com/traceview/traceview/trace"
)

func TestParseBound(t *testing.T) {
	const first trace.Time = 1_000_000_000_000_000_000
	for _, c := range []struct {
		text string
		want int64 // on the unix clock
	}{
		{"30s", int64(first) + 30e9},
		{"-1.5s", int64(first) - 1.5e9},
		{"0s", int64(first)},
		{"1970-01-01T00:00:01.5Z", 1.5e9},
		{"1970-01-01T01:00:00+01:00", 0},
		{"1772366400", 1772366400e9},
		{"1772366400.000000001", 1772366400e9 + 1},
		{"1772366400000000001", 1772366400000000001},
		{"0", 0},
	} {
		b, err := ParseBound(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if got, ok := b.resolve(trace.ClockUnix, first); !ok || int64(got) != c.want {
			t.Errorf("%q: %d, want %d", c.text, got, c.want)
		}
	}
	for _, bad := range []string{"", "soon", "1.", "1.0000000001", "2300-01-01T00:00:00Z", "99999999999", "-5", "5 parrots", "NaN"} {
		if b, err := ParseBound(bad); err == nil {
			t.Errorf("%q read as %+v", bad, b)
		}
	}
}

func TestWindow(t *testing.T) {
	rs := reqtext.MustParse(t, `
a arrival=5s
b arrival=10s
c arrival=15s
d end=20s
e clock=relative arrival=100s
f clock=relative arrival=107s`)
	var o Origin
	for _, r := range rs {
		o.See(r)
	}
	for _, c := range []struct{ from, to, want string }{
		{"", "", "abcdef"},
		{"5s", "", "bcf"}, // from is inside, on each clock
		{"", "5s", "ae"},  // to is outside
		{"5s", "10s", "bf"},
		{"1760000010", "", "bc"}, // a calendar time says nothing of a clock without calendar
	} {
		var f Filter
		var err error
		if c.from != "" {
			if f.From, err = ParseBound(c.from); err != nil {
				t.Fatal(err)
			}
		}
		if c.to != "" {
			if f.To, err = ParseBound(c.to); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		a := New(Options{From: f.From, To: f.To})
		for _, r := range rs {
			a.Add(r)
			if f.InWindow(r, &o) {
				got += r.ID
			}
		}
		if got != c.want {
			t.Errorf("%q to %q: %q, want %q", c.from, c.to, got, c.want)
		}
		if n := a.Report().Counts; n.Requests != int64(len(c.want)) || n.NotInWindow != int64(6-len(c.want)) {
			t.Errorf("%q to %q: the report has %+v", c.from, c.to, n)
		}
	}
}

func TestFilterApply(t *testing.T) {
	for _, c := range []struct {
		where, set []string
		want       string
	}{
		{nil, nil, "ab"},
		{[]string{"tenant=x"}, nil, "a"},
		{[]string{"tenant=x", "tenant=y"}, nil, "ab"},
		{[]string{"tenant=x", "model=n"}, nil, ""},
		{[]string{"model="}, nil, "b"},
		{[]string{"model=m"}, []string{"model=m"}, "ab"},
		{[]string{"model=n"}, []string{"model=n"}, "b"},   // a has a model
		{[]string{"model=n"}, []string{"model:=n"}, "ab"}, // replaced
		{[]string{"zone=1"}, []string{"zone=1"}, "ab"},
		{[]string{"tenant=z"}, []string{"tenant:=z"}, "ab"},
	} {
		var f Filter
		for _, s := range c.where {
			x, err := ParseWhere(s)
			if err != nil {
				t.Fatal(err)
			}
			f.Where = append(f.Where, x)
		}
		for _, s := range c.set {
			x, err := ParseSet(s)
			if err != nil {
				t.Fatal(err)
			}
			f.Set = append(f.Set, x)
		}
		got := ""
		for _, r := range reqtext.MustParse(t, "a arrival=0 model=m @tenant=x\nb arrival=0 @tenant=y") {
			if f.Apply(r) {
				got += r.ID
			}
			if err := r.Check(); err != nil {
				t.Error(err)
			}
		}
		if got != c.want {
			t.Errorf("where %q set %q: %q, want %q", c.where, c.set, got, c.want)
		}
	}
	for _, bad := range []string{"", "model", "=x", " =x"} {
		if _, err := ParseWhere(bad); err == nil {
			t.Errorf("condition %q", bad)
		}
	}
	for _, bad := range []string{"", "model", "=x", "model=", ":=x", "outcome=ok", "prompt_bucket:=1"} {
		if _, err := ParseSet(bad); err == nil {
			t.Errorf("setting %q", bad)
		}
	}
}

func TestFilterWindow(t *testing.T) {
	bound := func(s string) (b Bound) {
		if s != "" {
			var err error
			if b, err = ParseBound(s); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	var none, seen Origin
	seen.see(trace.ClockUnix, 1000e9)
	absent, some := trace.Opt[trace.Time]{}, trace.Some[trace.Time]
	for _, c := range []struct {
		from, to string
		o        *Origin
		start    trace.Opt[trace.Time]
		end      trace.Opt[trace.Time]
	}{
		{"", "", &seen, absent, absent},
		{"5s", "", &seen, some(1005e9), absent},
		{"", "7s", &seen, absent, some(1007e9)},
		{"5s", "1700000000", &none, absent, some(1700000000e9)},
	} {
		f := Filter{From: bound(c.from), To: bound(c.to)}
		if start, end := f.Window(c.o); start != c.start || end != c.end {
			t.Errorf("%q to %q: %v to %v, want %v to %v", c.from, c.to, start, end, c.start, c.end)
		}
	}
	for _, c := range []struct {
		from, to string
		empty    bool
	}{{"", "", false}, {"5s", "", false}, {"5s", "6s", false}, {"5s", "5s", true}, {"1700000000", "6s", false}} {
		f := Filter{From: bound(c.from), To: bound(c.to)}
		if f.Empty() != c.empty {
			t.Errorf("%q to %q: empty is %v", c.from, c.to, f.Empty())
		}
	}
}
