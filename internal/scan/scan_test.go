package scan

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/traceview/traceview/trace"
)

// texts reads a stream of objects {"id":"…"} and returns their ids, each with
// its place, and the codes of what was odd.
func texts(t testing.TB, r io.Reader, limit int64) string {
	t.Helper()
	var out strings.Builder
	var kept Texts
	s := Stream{
		R: r, At: At{File: "f", Line: 1}, Max: limit, What: "records", Learn: true,
		Issue: func(is *trace.Issue) bool {
			fmt.Fprintf(&out, "!%s@%d:%d ", is.Code, is.Pos.Line, is.Pos.Offset)
			return true
		},
	}
	s.Decode = func(v Value) (int, bool, error) {
		p := Parser{B: v.B, At: s.At, Begin: v.Begin, Texts: &kept}
		var id string
		ours := false
		for ok := p.Enter('{', '}'); ok; ok = p.Next('}') {
			if string(p.Key()) != "id" {
				p.Skip()
				continue
			}
			ours = true
			id = p.Text("id")
		}
		if ours {
			if err := v.Ours(); err != nil {
				return 0, true, err
			}
			if p.Wrong == "" {
				pos := p.Pos(0)
				fmt.Fprintf(&out, "%s@%d:%d ", id, pos.Line, pos.Offset)
			}
		}
		return len(v.B), ours, nil
	}
	if err := s.Run(); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.String())
}

// One byte at a time gives what all at once gives.
func TestStream(t *testing.T) {
	for _, tt := range []struct{ name, in, want string }{
		{"one", `{"id":"a"}`, "a@1:0"},
		{"lines", "{\"id\":\"a\"}\n{\"id\":\"b\"}\r\n", "a@1:0 b@2:11"},
		{"array", "[\n{\"id\":\"a\"},\n{\"id\":\"b\"}\n]\n", "a@2:2 b@3:14"},
		{"array of arrays, without its end", `[[{"id":"a"}],[{"id":"b"}`, "a@1:2 b@1:15"},
		{"one after the other", "{\n  \"id\": \"a\"\n}{\n  \"id\": \"b\"\n}", "a@1:0 b@3:15"},
		{"byte order mark", "\xef\xbb\xbf{\"id\":\"a\"}", "a@1:3"},
		{"text between", "{\"id\":\"a\"}\nhello\n{\"id\":\"b\"}", "a@1:0 !bad-json@2:11 b@3:17"},
		{"others", `{"no":1} {"id":"a"}`, "a@1:9"},
		{"torn at the end", "{\"id\":\"a\"}\n{\"id\":\"b", "a@1:0 !truncated@2:11"},
		{"torn in the middle, in a string", "{\"id\":\"a\"}\n{\"id\":\"b\n{\"id\":\"c\"}\n", "a@1:0 !bad-json@2:11 c@3:20"},
		{"torn in the middle, where lines begin alike", "{\"id\":\"a\"}\n{\"id\":\"b\",\"x\":{\"y\":1\n{\"id\":\"c\"}\n", "a@1:0 !bad-json@2:11 c@3:32"},
		{"too large", "{\"id\":\"a\"}\n{\"id\":\"" + strings.Repeat("b", 5000) + "\"}\n{\"id\":\"c\"}\n", "a@1:0 !record-too-large@2:11 c@3:5021"},
	} {
		for how, r := range map[string]io.Reader{"at once": strings.NewReader(tt.in), "by bytes": iotest.OneByteReader(strings.NewReader(tt.in))} {
			if got := texts(t, r, 4000); got != tt.want {
				t.Errorf("%s, %s:\n got %s\nwant %s", tt.name, how, got, tt.want)
			}
		}
	}
}

// A line that begins like a record inside a value that began no line is none.
func TestLearn(t *testing.T) {
	in := "{\"id\":\"a\",\"list\":[\n{\"id\":\"x\"},\n{\"id\":\"y\"}]}\n{\"id\":\"b\"}\n"
	if got, want := texts(t, strings.NewReader(in), 4000), "a@1:0 b@4:44"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseInteger(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want string
	}{
		{"0", "0"}, {"-0", "0"}, {"12", "12"}, {"-12", "-12"}, {"1.5e1", "15"}, {"1e3", "1000"}, {"18446744073709551615", "too large"},
		{"9223372036854775807", "9223372036854775807"}, {"-9223372036854775808", "-9223372036854775808"}, {"1.5", "fraction"},
		{"1e400", "too large"}, {"1e-400", "fraction"}, {"NaN", "none"}, {"", "none"}, {"1x", "none"}, {"1e", "none"},
	} {
		got := "none"
		switch x, v := ParseInteger([]byte(tt.in)); v {
		case Fine:
			if i, ok := x.Int64(); ok {
				got = fmt.Sprint(i)
			} else {
				got = "too large"
			}
		case TooLarge:
			got = "too large"
		case Fraction:
			got = "fraction"
		}
		if got != tt.want {
			t.Errorf("%q is %s, want %s", tt.in, got, tt.want)
		}
	}
}

// Any bytes end, and whatever is told lies inside them.
func FuzzStream(f *testing.F) {
	for _, s := range []string{`{"id":"a"}`, "[{\"id\":\"\\ud83d\\ude00\"},\n{\"id\":\"b", "x {\"id\": NaN}\n\x1e{\"id\":\"\xff\"}", "{\"id\":\"a\"}\n{\"id\":[[[{\n{\"id\":\"c\"}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		once := texts(t, strings.NewReader(string(data)), 1000)
		if again := texts(t, iotest.HalfReader(strings.NewReader(string(data))), 1000); again != once && !strings.Contains(once, "too-large") {
			t.Fatalf("%q, then %q", once, again)
		}
	})
}
