// Package receive takes OTLP traces over gRPC and HTTP and writes them to files
// that package ingest reads.
//
// A request is written whole or refused whole, so that no answer is ever a
// partial success, and it is answered only once it is written: see [Writer].
// Spans are not judged here. What is odd about them the reader says, of the
// file, as often as it is asked.
package receive

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
)

// Options are what a [Server] allows. The zero value works.
type Options struct {
	// MaxRequest is the largest request in bytes, as sent and once
	// decompressed; 0: 16 MiB.
	MaxRequest int64
	// Say is told, once of each kind, what a client does that cannot work, such
	// as speaking TLS; nil: nobody is. It may be called at any time.
	Say func(string)
}

// A Server takes requests and hands them to its writer. The memory it needs is
// bounded by maxOpen requests of the largest size and as many decoded ones as
// there are processors.
type Server struct {
	w     *Writer
	write func(record []byte, spans int) error // the writer's
	opts  Options

	open     chan struct{} // requests that are being received or written
	decoding chan struct{}
	closing  atomic.Bool
	grace    time.Duration // for requests in flight when the server stops

	mu    sync.Mutex
	stats Stats
	said  map[string]bool
}

// Stats counts the requests of a [Server].
type Stats struct {
	Requests    int64  // answered, well or not
	Refused     int64  // of these, not taken: malformed, too large, at a bad time
	LastRefusal string // why the last of these was not taken; empty: none was
}

const (
	maxOpen     = 32       // requests at once; more wait
	maxConns    = 1000     // connections of each listener
	maxHeader   = 32 << 10 // bytes
	maxElements = 1 << 20  // spans, attributes and the like in one request, by weight

	beginTimeout = 10 * time.Second // for a connection's first words, and a request's header
	bodyTimeout  = 30 * time.Second // for the whole of a request
	idleTimeout  = 5 * time.Minute  // for a connection without requests
	graceTime    = 10 * time.Second // for requests in flight when the server stops
	retryAfter   = 5 * time.Second  // what clients are told who shall come again
)

// NewServer returns a server that writes to w.
func NewServer(w *Writer, opts Options) *Server {
	if opts.MaxRequest <= 0 {
		opts.MaxRequest = 16 << 20
	}
	return &Server{
		w: w, write: w.Write, opts: opts, grace: graceTime,
		open:     make(chan struct{}, maxOpen),
		decoding: make(chan struct{}, runtime.GOMAXPROCS(0)),
		said:     map[string]bool{},
	}
}

// Stats returns the counts so far.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

// Serve takes OTLP/gRPC on g and OTLP/HTTP on h, of which one may be nil, until
// ctx ends or the writer is full. Then it takes no more, answers what is in
// flight and returns nil; clients that take longer than ten seconds to be done
// are cut off, unanswered. The error is one of a listener. The writer is left
// open.
func (s *Server) Serve(ctx context.Context, g, h net.Listener) error {
	failed := make(chan error, 2)
	var ends []func(context.Context)
	if g != nil {
		ends = append(ends, s.serveGRPC(limit(g, s.greet(grpcGreeting)), failed))
	}
	if h != nil {
		ends = append(ends, s.serveHTTP(limit(h, s.greet(httpGreeting)), failed))
	}
	var err error
	select {
	case <-ctx.Done():
	case <-s.w.Full():
	case err = <-failed:
	}
	s.closing.Store(true)
	wait := time.AfterFunc(time.Second, func() {
		s.say(fmt.Sprintf("waiting up to %v for requests that are on their way", s.grace))
	})
	defer wait.Stop()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	var wg sync.WaitGroup
	for _, end := range ends {
		wg.Go(func() { end(last) })
	}
	wg.Wait()
	return err
}

// A refusal is why a request was not taken.
type refusal struct {
	code  codes.Code
	http  int
	retry bool // the same request may be taken later
	msg   string
}

func (r *refusal) Error() string { return r.msg }

func malformed(format string, args ...any) *refusal {
	// Parsers quote what they do not understand.
	msg := strings.ToValidUTF8(fmt.Sprintf(format, args...), "\uFFFD")
	return &refusal{codes.InvalidArgument, 400, false, msg}
}

func tooLarge(format string, args ...any) *refusal {
	return &refusal{codes.ResourceExhausted, 413, false, fmt.Sprintf(format, args...)}
}

func later(format string, args ...any) *refusal {
	return &refusal{codes.Unavailable, 503, true, fmt.Sprintf(format, args...)}
}

var (
	errClosing = later("the receiver is shutting down")
	errBusy    = later("%d requests are being received already", maxOpen)
)

// admit waits until a request may be received. The returned function must be
// called when it is done.
func (s *Server) admit(ctx context.Context) (leave func(), why *refusal) {
	if s.closing.Load() {
		return nil, errClosing
	}
	wait, cancel := context.WithTimeout(ctx, beginTimeout)
	defer cancel()
	select {
	case s.open <- struct{}{}:
		return func() { <-s.open }, nil
	case <-wait.Done():
		return nil, errBusy
	}
}

// take unpacks and decodes one request and writes it. A nil refusal means that
// it is written.
func (s *Server) take(ctx context.Context, body []byte, packed unpack, from Format) *refusal {
	select {
	case s.decoding <- struct{}{}:
	case <-ctx.Done():
		return later("%v", ctx.Err())
	}
	var (
		record []byte
		spans  int
		why    *refusal
	)
	if packed != nil {
		body, why = packed(body, s.opts.MaxRequest)
	}
	if why == nil {
		record, spans, why = encode(body, from, s.w.opts.Format)
	}
	<-s.decoding
	if why != nil || spans == 0 {
		return why
	}
	err := s.write(record, spans)
	var path *fs.PathError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrClosed):
		return errClosing
	case errors.Is(err, ErrFull):
		return later("%v", err)
	case errors.As(err, &path):
		err = path.Err // the path is no business of the client's
	}
	return later("cannot write: %v", err)
}

// answered counts a request.
func (s *Server) answered(why *refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Requests++
	if why != nil {
		s.stats.Refused++
		s.stats.LastRefusal = why.msg
	}
}

// say tells msg, once.
func (s *Server) say(msg string) {
	s.mu.Lock()
	again := s.said[msg]
	s.said[msg] = true
	s.mu.Unlock()
	if !again && s.opts.Say != nil {
		s.opts.Say(msg)
	}
}
