package receive

import (
	"context"
	"io"
	"net"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/types/known/durationpb"
)

// traceService is OTLP's trace service over requests as they come: the
// generated one would decode them, and what was sent would be lost. The call is
// described as a stream, which looks the same to a client, because of a stream
// nothing is read before it is asked for.
var traceService = grpc.ServiceDesc{
	ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService",
	HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{
		StreamName:    "Export",
		ClientStreams: true,
		Handler:       func(s any, call grpc.ServerStream) error { return s.(*Server).export(call) },
	}},
	Metadata: "opentelemetry/proto/collector/trace/v1/trace_service.proto",
}

// export answers one request of OTLP/gRPC.
func (s *Server) export(call grpc.ServerStream) error {
	leave, why := s.admit(call.Context())
	if why != nil {
		return why.status()
	}
	defer leave()
	var body []byte
	switch err := call.RecvMsg(&body); err {
	case nil:
	case io.EOF:
		return malformed("a call without a message").status()
	default:
		return err
	}
	if why := s.take(call.Context(), body, nil, Proto); why != nil {
		return why.status()
	}
	return call.SendMsg(new([]byte)) // a response without a field
}

// status is the refusal as gRPC tells it.
func (r *refusal) status() error {
	st := status.New(r.code, r.msg)
	if r.retry {
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(retryAfter)}); err == nil {
			st = with
		}
	}
	return st.Err()
}

// rawCodec hands messages through.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

const (
	maxStreams = 100       // of a connection
	window     = 256 << 10 // bytes that a connection may send before they are asked for
)

// serveGRPC serves on l and returns what ends it. A failure of the listener goes
// to failed.
func (s *Server) serveGRPC(l net.Listener, failed chan<- error) (end func(context.Context)) {
	srv := grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.MaxRecvMsgSize(int(s.opts.MaxRequest)),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxHeaderListSize(maxHeader),
		grpc.ConnectionTimeout(beginTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: idleTimeout, Time: time.Minute, Timeout: beginTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: beginTimeout, PermitWithoutStream: true}),
		grpc.InTapHandle(limitCall),
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(window),
		grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
			return status.Error(codes.Unimplemented, "traces are taken, metrics and logs are not")
		}),
		grpc.StatsHandler(calls{s}),
	)
	srv.RegisterService(&traceService, s)
	go func() {
		if err := srv.Serve(l); err != nil {
			failed <- err
		}
	}()
	return func(ctx context.Context) {
		cut := context.AfterFunc(ctx, srv.Stop)
		srv.GracefulStop()
		cut()
	}
}

// limitCall gives a call a time by which it must have come and be answered.
func limitCall(ctx context.Context, _ *tap.Info) (context.Context, error) {
	timed, cancel := context.WithTimeout(ctx, bodyTimeout)
	context.AfterFunc(ctx, cancel) // the call's own context ends with it
	return timed, nil
}

// calls counts the calls that were let in, also those that grpc refuses by
// itself, such as too large ones.
type calls struct{ s *Server }

func (c calls) HandleRPC(_ context.Context, event stats.RPCStats) {
	end, ok := event.(*stats.End)
	switch {
	case !ok:
	case end.Error != nil:
		st, _ := status.FromError(end.Error)
		c.s.answered(&refusal{code: st.Code(), msg: st.Message()})
	default:
		c.s.answered(nil)
	}
}

func (calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (calls) HandleConn(context.Context, stats.ConnStats)                       {}
