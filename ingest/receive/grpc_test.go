package receive

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"
)

const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

func dial(t testing.TB, address string) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// call sends bytes as a message.
func call(ctx context.Context, c *grpc.ClientConn, method string, body []byte, opts ...grpc.CallOption) ([]byte, error) {
	var answer []byte
	err := c.Invoke(ctx, method, &body, &answer, append(opts, grpc.ForceCodecV2(rawCodec{}))...)
	return answer, err
}

// Each kind of message has the answer that OTLP/gRPC asks for.
func TestGRPC(t *testing.T) {
	r := start(t, WriterOptions{Format: Proto}, Options{MaxRequest: limitInTest})
	c := dial(t, r.grpc)
	pb := inProto(t, sample(0, 3))
	// A field that OTLP does not have, which pdata would lose.
	unknown := append(bytes.Clone(pb), 0xfa, 0x7f, 1, 'x')
	for _, x := range []struct {
		name, method string
		body         []byte
		opts         []grpc.CallOption
		code         codes.Code
		spans        int
	}{
		{name: "spans", body: pb, spans: 3},
		{name: "gzip", body: pb, opts: []grpc.CallOption{grpc.UseCompressor(gzip.Name)}, spans: 3},
		{name: "an unknown field", body: unknown, spans: 3},
		{name: "nothing"},
		{name: "garbage", body: []byte("\xff\xff\xff\xff"), code: codes.InvalidArgument},
		{name: "cut off", body: pb[:len(pb)-1], code: codes.InvalidArgument},
		{name: "too large", body: make([]byte, limitInTest+1), code: codes.ResourceExhausted},
		{name: "a bomb", body: make([]byte, 3*limitInTest), opts: []grpc.CallOption{grpc.UseCompressor(gzip.Name)}, code: codes.ResourceExhausted},
		{name: "many batches without spans", body: bytes.Repeat([]byte{0x0a, 0}, limitInTest/8)},
		{name: "too many batches", body: bytes.Repeat([]byte{0x0a, 0}, limitInTest/2), code: codes.ResourceExhausted},
		{name: "metrics", method: "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export", body: pb, code: codes.Unimplemented},
		{name: "logs", method: "/opentelemetry.proto.collector.logs.v1.LogsService/Export", body: pb, code: codes.Unimplemented},
		{name: "another method", method: "/opentelemetry.proto.collector.trace.v1.TraceService/Import", body: pb, code: codes.Unimplemented},
	} {
		before := r.w.Totals()
		if x.method == "" {
			x.method = exportMethod
		}
		answer, err := call(t.Context(), c, x.method, x.body, x.opts...)
		if status.Code(err) != x.code || len(answer) > 0 {
			t.Errorf("%s: %v, %q; want %v", x.name, err, answer, x.code)
		}
		for _, d := range status.Convert(err).Details() {
			t.Errorf("%s: a client is told to come again: %v", x.name, d)
		}
		if got := int(r.w.Totals().Spans - before.Spans); got != x.spans {
			t.Errorf("%s: %d spans were written, want %d", x.name, got, x.spans)
		}
	}
	r.stop()
	list, _ := records(t, r.folder)
	for i, want := range [][]byte{pb, pb, unknown} {
		if !bytes.Equal(list[i], want) {
			t.Errorf("message %d was not kept byte for byte", i)
		}
	}
	if s := r.Stats(); s.Requests != 13 || s.Refused != 8 {
		t.Errorf("stats %+v", s)
	}
}

// A call that ends before its message has come is the client's fault.
func TestGRPCNoMessage(t *testing.T) {
	r := start(t, WriterOptions{}, Options{})
	s, err := dial(t, r.grpc).NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true}, exportMethod)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := s.RecvMsg(new(ptraceotlp.ExportResponse)); status.Code(err) != codes.InvalidArgument {
		t.Error(err)
	}
}

// A client that may come again is told when.
func TestGRPCRetry(t *testing.T) {
	w := newWriter(t, WriterOptions{})
	room := 0
	sicken(w, &room, nil)
	r := serve(t, w, Options{})
	_, err := call(t.Context(), dial(t, r.grpc), exportMethod, inProto(t, sample(0, 1)))
	st := status.Convert(err)
	if st.Code() != codes.Unavailable || len(st.Details()) != 1 {
		t.Fatal(err)
	}
	if d, ok := st.Details()[0].(*errdetails.RetryInfo); !ok || d.RetryDelay.AsDuration() != retryAfter {
		t.Errorf("details %v", st.Details())
	}
}

// Clients that never send their message hold the requests that may be open; the
// next is told to come again if it has waited long, and is taken when they have
// gone.
func TestGRPCBusy(t *testing.T) {
	r := start(t, WriterOptions{}, Options{})
	r.grace = time.Millisecond
	var streams sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	c := dial(t, r.grpc)
	for range maxOpen {
		s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, exportMethod)
		if err != nil {
			t.Fatal(err)
		}
		streams.Go(func() { s.RecvMsg(new(ptraceotlp.ExportResponse)) })
	}
	for len(r.open) < maxOpen {
		time.Sleep(time.Millisecond)
	}
	short, stop := context.WithTimeout(t.Context(), time.Millisecond)
	defer stop()
	if _, why := r.admit(short); why != errBusy {
		t.Errorf("beyond %d requests: %v", maxOpen, why)
	}
	answer := make(chan error)
	go func() {
		_, err := call(t.Context(), c, exportMethod, nil)
		answer <- err
	}()
	cancel()
	streams.Wait()
	if err := <-answer; err != nil {
		t.Errorf("after they have gone: %v", err)
	}
}

// When the server stops under load, what was acknowledged is in the files, each
// span once, and nothing else is: no client gave up on an answer.
func TestStopUnderLoad(t *testing.T) {
	for _, opts := range []WriterOptions{{Format: Proto, RotateSize: 20_000}, {Compress: "zstd"}} {
		r := start(t, opts, Options{})
		var (
			clients      sync.WaitGroup
			mu           sync.Mutex
			acknowledged = map[uint64]bool{}
			next, sent   atomic.Int64
		)
		client := func(send func(body []byte) bool) {
			clients.Go(func() {
				for {
					n := next.Add(5) - 5
					if !send(inProto(t, sample(int(n), 5))) {
						return
					}
					sent.Add(5)
					mu.Lock()
					for i := range uint64(5) {
						acknowledged[uint64(n)+i+1] = true
					}
					mu.Unlock()
				}
			})
		}
		for range 4 {
			c := dial(t, r.grpc)
			client(func(body []byte) bool {
				_, err := call(context.Background(), c, exportMethod, body)
				return err == nil
			})
			client(func(body []byte) bool { return sendHTTP(r.http, body) })
		}
		for sent.Load() < 2000 {
			time.Sleep(time.Millisecond)
		}
		r.stop()
		clients.Wait()
		spans := spansOf(t, r.folder)
		for _, s := range spans {
			n, _ := s.Attr("gen_ai.usage.prompt_tokens")
			i, _ := n.Int()
			if !acknowledged[uint64(i)+1] {
				t.Errorf("span %d is in the files twice, or was not acknowledged", i)
			}
			delete(acknowledged, uint64(i)+1)
		}
		if len(acknowledged) > 0 || int64(len(spans)) != sent.Load() {
			t.Errorf("%d of %d acknowledged spans are not in the files, which have %d", len(acknowledged), sent.Load(), len(spans))
		}
	}
}

func BenchmarkGRPC(b *testing.B) {
	benchmark(b, func(r *receiver) func([]byte) bool {
		c := dial(b, r.grpc)
		return func(body []byte) bool {
			_, err := call(context.Background(), c, exportMethod, body)
			return err == nil
		}
	})
}

func BenchmarkHTTP(b *testing.B) {
	benchmark(b, func(r *receiver) func([]byte) bool {
		return func(body []byte) bool { return sendHTTP(r.http, body) }
	})
}

// benchmark sends batches as large as the SDKs' from four clients.
func benchmark(b *testing.B, connect func(*receiver) func([]byte) bool) {
	for _, opts := range []WriterOptions{{}, {Compress: "zstd"}, {Format: Proto}, {Format: Proto, Compress: "zstd"}, {Format: Proto, Sync: true}} {
		name := fmt.Sprintf("proto=%v/compress=%s/sync=%v", opts.Format == Proto, opts.Compress, opts.Sync)
		b.Run(name, func(b *testing.B) {
			r := start(b, opts, Options{})
			body := inProto(b, sample(0, 512))
			var clients sync.WaitGroup
			var left atomic.Int64
			left.Store(int64(b.N))
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			for range 4 {
				send := connect(r)
				clients.Go(func() {
					for left.Add(-1) >= 0 {
						if !send(body) {
							b.Error("refused")
						}
					}
				})
			}
			clients.Wait()
			b.ReportMetric(float64(512*b.N)/b.Elapsed().Seconds(), "spans/s")
		})
	}
}
