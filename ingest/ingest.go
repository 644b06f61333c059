// Package ingest reads traces and logs, whatever they come in, and yields one
// [trace.Request] for each generation that they tell of. Nothing is lost in
// silence: what could not be read, or was odd, comes as a [trace.Issue].
//
// The containers of OpenTelemetry spans are in ingest/otlp, the engines'
// meaning of spans in ingest/engine, vLLM's text log in ingest/vllmlog. This
// package opens, recognises, decompresses and joins. Package analyze comes
// next.
package ingest

import (
	"io"
	"time"

	"github.com/traceview/traceview/trace"
)

// Input is one stream of bytes.
type Input struct {
	Name    string    // as the user named it; "-" is standard input
	ModTime time.Time // zero: not known
	Size    int64     // bytes as stored; negative: not known
	Open    func() (io.ReadCloser, error)
}

// Options are the limits and the knowledge that the input lacks. The zero
// value works.
type Options struct {
	MaxRecord int64 // bytes of one record; 0: 256 MiB
	MaxInput  int64 // bytes of one input once decompressed; 0: 1 TiB
	MaxOpen   int   // spans held back for traces that are not complete; 0: 4 million

	Year int            // of a log's first stamp, where stamps have none; 0: from the input
	Zone *time.Location // of a log's stamps, where they have none; nil: UTC, with a note

	// Reading is called with each of the engine's own statements of its state,
	// in input order; nil: they are passed over.
	Reading func(trace.Reading)
	// Progress is called now and then with the bytes read so far (as stored)
	// over all inputs; nil: not at all.
	Progress func(bytes int64)
}
