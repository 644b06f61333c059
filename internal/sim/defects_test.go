package sim

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/traceview/traceview/trace"
)

// TestDefects makes each defect: it changes the file, leaves the run as it was,
// comes out the same every time and names codes that exist.
func TestDefects(t *testing.T) {
	run := smallRun(t)
	before, _ := run.Engine.Run()
	var sound []byte
	names := map[string]bool{}
	for _, d := range Defects() {
		data, err := d.Make(run)
		if err != nil {
			t.Fatalf("%s: %v", d.Name, err)
		}
		again, _ := d.Make(run)
		if !bytes.Equal(data, again) {
			t.Errorf("%s: two files", d.Name)
		}
		if d.Name == "nothing" {
			sound = data
		} else if bytes.Equal(data, sound) {
			t.Errorf("%s: changes nothing", d.Name)
		}
		if names[d.Name] {
			t.Errorf("%s: stands twice", d.Name)
		}
		names[d.Name] = true
		for _, c := range d.Codes {
			if c.Info().Meaning == "" {
				t.Errorf("%s: no such code: %s", d.Name, c)
			}
		}
	}
	if !reflect.DeepEqual(before, run) {
		t.Error("a defect changed the run")
	}
}

// TestSpoil looks at what each function does to one span of three.
func TestSpoil(t *testing.T) {
	at := func(n int) trace.Opt[trace.Time] { return trace.Some(Base.Add(time.Duration(n) * ms)) }
	res := &trace.Resource{Attrs: []trace.Attr{text("service.name", "s")}}
	spans := []*trace.Span{
		{SpanID: "a", Resource: res, Start: at(0), End: at(1)},
		{SpanID: "b", TraceID: "t", Start: at(2), End: at(3), Attrs: []trace.Attr{{Key: "x", Value: trace.FloatValue(0.25)}}},
		{SpanID: "c"},
	}
	x := func(spans []*trace.Span) string { v, _ := spans[1].Attr("x"); return v.String() }
	for name, ok := range map[string]bool{
		"skew moves start and end":  Skew(spans, "s", ms)[0].Start == at(1) && Skew(spans, "s", ms)[0].End == at(2) && Skew(spans, "s", ms)[1] == spans[1],
		"drop":                      len(DropAttr(spans, 1, "x")[1].Attrs) == 0,
		"rename":                    RenameAttr(spans, 1, "x", "y")[1].Attrs[0].Key == "y",
		"milliseconds":              x(Milliseconds(spans, 1, "x")) == "250",
		"text":                      AsText(spans, 1, "x")[1].Attrs[0].Value == trace.StringValue("0.25"),
		"set":                       SetAttr(spans, 1, "z", trace.IntValue(1))[1].Attrs[1].Key == "z",
		"duplicate":                 len(Duplicate(spans, 1)) == 4 && Duplicate(spans, 1)[3] == spans[1],
		"conflict":                  Conflict(spans, 1)[3].End == at(4) && Conflict(spans, 1)[3].Start == at(2),
		"parent":                    Parent(spans, 1, "p")[1].ParentID == "p",
		"times":                     SetTimes(spans, 1, at(7), at(6))[1].End == at(6),
		"ids":                       StripIDs(spans, 1)[1].SpanID == "" && StripIDs(spans, 1)[1].TraceID == "",
		"shuffle keeps all":         len(Shuffle(spans, 3)) == 3 && slices.Contains(Shuffle(spans, 3), spans[2]),
		"cut":                       string(Cut([]byte("abc"), 2)) == "ab" && string(Cut([]byte("abc"), 9)) == "abc",
		"what was given is as ever": spans[1].SpanID == "b" && x(spans) == "0.25" && len(spans) == 3 && spans[0].Start == at(0),
	} {
		if !ok {
			t.Errorf("%s: not so", name)
		}
	}
	for _, data := range []string{"", "{", `{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}`} {
		if _, err := Undecodable([]byte(data), 1); err == nil {
			t.Errorf("Undecodable(%q): no error", data)
		}
	}
	got, err := Undecodable([]byte(`{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{},"spans":[{"a":1},{"b":2}]}]}]}`+"\nrest"), 1)
	if want := `{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{},"spans":[{"a":1},7]}]}]}` + "\nrest"; err != nil || string(got) != want {
		t.Errorf("Undecodable: %s, %v", got, err)
	}
}
