package receive

import (
	"bytes"
	"net"
	"sync"
	"time"
)

// limited is a listener that closes at once what it accepts beyond maxConns
// connections, so that clients see an error and do not hang.
type limited struct {
	net.Listener
	slots chan struct{}
	greet func(head []byte)
}

// limit limits the connections of l, and shows greet the first bytes of each.
func limit(l net.Listener, greet func(head []byte)) net.Listener {
	return &limited{l, make(chan struct{}, maxConns), greet}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.slots <- struct{}{}:
			return &conn{Conn: c, l: l}, nil
		default:
			c.Close()
		}
	}
}

// conn gives its slot back when it is closed.
type conn struct {
	net.Conn
	l    *limited
	once sync.Once
	seen bool
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if !c.seen && n > 0 {
		c.seen = true
		c.l.greet(p[:n])
	}
	return n, err
}

// Write does not wait for ever for a client that does not read.
func (c *conn) Write(p []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(bodyTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.l.slots })
	return err
}

// A greeting is what clients say first who have come to the wrong port.
type greeting struct {
	prefix, advice string
}

const tlsAdvice = "a client speaks TLS, which this receiver does not: set OTEL_EXPORTER_OTLP_TRACES_INSECURE=true, or write http:// for https:// in the client's endpoint"

var (
	grpcGreeting = []greeting{
		{"\x16\x03", tlsAdvice},
		{"POST ", "a client speaks OTLP/HTTP to the port of OTLP/gRPC: use the other port, or set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=grpc"},
	}
	httpGreeting = []greeting{
		{"\x16\x03", tlsAdvice},
		{"PRI * HTTP/2", "a client speaks OTLP/gRPC to the port of OTLP/HTTP: use the other port, or set OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"},
	}
)

// greet returns a function that tells of clients that greet like this.
func (s *Server) greet(list []greeting) func(head []byte) {
	return func(head []byte) {
		for _, g := range list {
			if bytes.HasPrefix(head, []byte(g.prefix)) {
				s.say(g.advice)
			}
		}
	}
}
