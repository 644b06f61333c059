package receive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// tracesPath is where OTLP/HTTP takes traces.
const tracesPath = "/v1/traces"

// The media types of OTLP/HTTP.
const (
	typeJSON  = "application/json"
	typeProto = "application/x-protobuf"
)

// serveHTTP serves on l and returns what ends it. A failure of the listener goes
// to failed.
func (s *Server) serveHTTP(l net.Listener, failed chan<- error) (end func(context.Context)) {
	srv := &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		ReadHeaderTimeout: beginTimeout,
		ReadTimeout:       bodyTimeout,
		WriteTimeout:      2 * bodyTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          log.New(io.Discard, "", 0), // clients' faults, in clients' words
	}
	go func() {
		if err := srv.Serve(l); err != http.ErrServerClosed {
			failed <- err
		}
	}()
	return func(ctx context.Context) {
		if srv.Shutdown(ctx) != nil {
			srv.Close()
		}
	}
}

// handle answers one request of OTLP/HTTP.
func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	from, why := s.exchange(w, r)
	s.answered(why)
	body := []byte(nil) // a response without a field
	kind := typeProto
	if from == JSON {
		kind = typeJSON
		body = []byte("{}")
	}
	code := http.StatusOK
	if why != nil {
		code, body = why.http, why.body(from)
		if why.retry {
			w.Header().Set("Retry-After", strconv.Itoa(int(retryAfter/time.Second)))
		}
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	if r.Method != http.MethodHead {
		w.Write(body)
	}
}

// body is the Status that OTLP wants in the body of an error.
func (r *refusal) body(as Format) []byte {
	st := status.New(r.code, r.msg)
	var b []byte
	var err error
	if as == JSON {
		b, err = json.Marshal(struct {
			Code    codes.Code `json:"code"`
			Message string     `json:"message"`
		}{r.code, r.msg})
	} else {
		b, err = proto.Marshal(st.Proto())
	}
	if err != nil { // the text was no UTF-8; the status says enough
		return nil
	}
	return b
}

// exchange takes one request and says in which format to answer.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request) (from Format, why *refusal) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == typeProto {
		from = Proto
	}
	switch {
	case r.URL.Path != tracesPath:
		return from, &refusal{codes.Unimplemented, http.StatusNotFound, false, "there is nothing here but " + tracesPath + ": traces are taken, metrics and logs are not"}
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", http.MethodPost)
		return from, &refusal{codes.Unimplemented, http.StatusMethodNotAllowed, false, "traces come by POST"}
	case err != nil || kind != typeProto && kind != typeJSON:
		return from, &refusal{codes.InvalidArgument, http.StatusUnsupportedMediaType, false, "the content type is not one of " + typeProto + ", " + typeJSON}
	}
	leave, why := s.admit(r.Context())
	if why != nil {
		return from, why
	}
	defer leave()
	packed, why := s.encoding(w, r)
	if why != nil {
		return from, why
	}
	body, why := s.read(w, r)
	if why != nil {
		return from, why
	}
	return from, s.take(r.Context(), body, packed, from)
}

// read reads the body of a request as it was sent.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, *refusal) {
	limit := s.opts.MaxRequest
	if r.ContentLength > limit {
		return nil, overLimit(limit)
	}
	var body bytes.Buffer
	_, err := body.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	var over *http.MaxBytesError
	var slow net.Error
	switch {
	case errors.As(err, &over):
		return nil, overLimit(limit)
	case errors.As(err, &slow) && slow.Timeout():
		return nil, &refusal{codes.DeadlineExceeded, http.StatusRequestTimeout, false, fmt.Sprintf("the request did not arrive within %v", bodyTimeout)}
	case err != nil:
		return nil, malformed("the body cannot be read: %v", err)
	}
	return body.Bytes(), nil
}

// An unpack decompresses a body, whose content may have so many bytes.
type unpack func(body []byte, limit int64) ([]byte, *refusal)

// encoding returns what decompresses the body of a request; nil: it is as it is.
func (s *Server) encoding(w http.ResponseWriter, r *http.Request) (unpack, *refusal) {
	name := strings.Join(r.Header.Values("Content-Encoding"), ",")
	switch strings.ToLower(strings.TrimSpace(name)) {
	case "", "identity":
		return nil, nil
	case "gzip":
		return gunzip, nil
	case "zstd":
		return unzstd, nil
	}
	w.Header().Set("Accept-Encoding", "gzip, zstd")
	return nil, &refusal{codes.InvalidArgument, http.StatusUnsupportedMediaType, false, fmt.Sprintf("the content encoding %.40q is not one of gzip, zstd", name)}
}

func gunzip(body []byte, limit int64) ([]byte, *refusal) {
	z := gzips.Get().(*gzip.Reader)
	defer gzips.Put(z)
	if err := z.Reset(bytes.NewReader(body)); err != nil {
		return nil, malformed("the body cannot be decompressed: %v", err)
	}
	return decompress(z, limit)
}

func unzstd(body []byte, limit int64) ([]byte, *refusal) {
	z := zstds.Get().(*zstd.Decoder)
	defer func() {
		z.Reset(nil)
		zstds.Put(z)
	}()
	if err := z.Reset(bytes.NewReader(body)); err != nil {
		return nil, malformed("the body cannot be decompressed: %v", err)
	}
	return decompress(z, limit)
}

func decompress(r io.Reader, limit int64) ([]byte, *refusal) {
	var body bytes.Buffer
	n, err := body.ReadFrom(io.LimitReader(r, limit+1))
	switch {
	case n > limit || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, overLimit(limit)
	case err != nil:
		return nil, malformed("the body cannot be decompressed: %v", err)
	}
	return body.Bytes(), nil
}

func overLimit(limit int64) *refusal {
	return tooLarge("the request is larger than %d bytes", limit)
}

// What decompresses is used again: it is large.
var (
	gzips = sync.Pool{New: func() any { return new(gzip.Reader) }}
	zstds = sync.Pool{New: func() any {
		// Fails for wrong options only. A window of 8 MiB is what RFC 8878 asks
		// of all decoders.
		z, _ := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		return z
	}}
)
