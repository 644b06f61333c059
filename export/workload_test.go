package export

import (
	"bytes"
	"testing"

	"github.com/traceview/traceview/internal/reqtext"
)

func TestWorkload(t *testing.T) {
	rs, err := reqtext.Parse(`
b arrival=1002ms end=5s in=7 out=0 model="a,\"b\""
a arrival=1s end=2s in=100 out=20 model=m
c arrival=1s end=3s in=1 out=2
d arrival=1s end=3s in=1
e end=3s in=1 out=2
f arrival=1000000001ns in=3 out=4 outcome=incomplete model==1
`)
	if err != nil {
		t.Fatal(err)
	}
	for format, want := range map[WorkloadFormat]string{
		Mooncake: `{"timestamp": 0, "input_length": 100, "output_length": 20}
{"timestamp": 0, "input_length": 1, "output_length": 2}
{"timestamp": 0.000001, "input_length": 3, "output_length": 4}
{"timestamp": 2, "input_length": 7, "output_length": 0}
`,
		BurstGPT: `Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
0,m,100,20,120,
0,,1,2,3,
0.000000001,'=1,3,4,7,
0.002,"a,""b""",7,0,7,
`,
	} {
		var b bytes.Buffer
		w := NewWorkload(&b, format)
		for _, r := range rs {
			if err := w.Write(r, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil || b.String() != want || w.LeftOut != 2 {
			t.Errorf("%s: %v, %d left out\n%s", format, err, w.LeftOut, b.String())
		}
	}
}

// Arrivals on two clocks have no order, and nothing is written of them.
func TestWorkloadClocks(t *testing.T) {
	rs, err := reqtext.Parse("a arrival=1s in=1 out=1\nb clock=relative arrival=1s in=1 out=1")
	if err != nil {
		t.Fatal(err)
	}
	w := NewWorkload(&bytes.Buffer{}, Mooncake)
	if err := w.Write(rs[0], nil); err != nil {
		t.Fatal(err)
	}
	if err := w.Write(rs[1], nil); err != ErrTwoClocks {
		t.Error(err)
	}
}
