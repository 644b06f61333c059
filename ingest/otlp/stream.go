package otlp

import (
	"io"

	"github.com/traceview/traceview/internal/scan"
	"github.com/traceview/traceview/trace"
)

// JSON decodes a stream of JSON values, as [scan.Stream] finds them. It returns
// the first error of r, after having decoded what came before, or ErrStopped.
//
// Where a value is torn, the spans that are whole count.
func (d *Decoder) JSON(r io.Reader, at At) error {
	s := scan.Stream{
		R: r, At: at, Max: d.max, What: "spans", Keys: rootKeys, Buf: d.buf,
		Issue: func(is *trace.Issue) bool { return d.sink(nil, is) },
		Decode: func(v scan.Value) (int, bool, error) {
			p := parser{
				Parser: scan.Parser{B: v.B, At: at, Begin: v.Begin, Texts: &d.texts},
				d:      d, partial: v.Partial, report: v.Report, onRoot: v.Ours,
			}
			return p.value()
		},
	}
	err := s.Run()
	d.buf = s.Buf
	d.Others += s.Others
	return err
}

// rootKeys are the keys with which an object that holds spans begins.
var rootKeys = scan.Keys{
	Roots: [][]byte{
		[]byte(`"resourceSpans"`), []byte(`"resource_spans"`), []byte(`"resource"`),
		[]byte(`"scopeSpans"`), []byte(`"scope_spans"`), []byte(`"batches"`),
		[]byte(`"instrumentationLibrarySpans"`),
	},
	Outer: [][]byte{[]byte(`"resourceSpans"`), []byte(`"resource_spans"`)},
}
