package raw

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
)

// Server serves the raw tests of other hosts. It listens for their TCP connections.
type Server struct {
	h        Host
	log      *slog.Logger
	listener net.Listener
	wg       sync.WaitGroup
	mu       sync.Mutex // guards the fields below
	closed   bool
	conns    map[net.Conn]struct{}
}

// Listen accepts connections of raw tests. The caller must Close it. Errors of tests go to log.
func Listen(h Host, log *slog.Logger) (*Server, error) {
	at := fmt.Sprint(":", tcpPort)
	if h.At.IsValid() {
		at = netip.AddrPortFrom(h.At, tcpPort).String()
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return nil, err
	}
	s := &Server{h: h, log: log, listener: l, conns: make(map[net.Conn]struct{})}
	s.wg.Go(s.accept)
	return s, nil
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // if no descriptors are left, for example, the next Accept would fail at once
			continue
		}
		if !s.track(c) {
			_ = c.Close() // there are too many tests, or the server is being closed
			continue
		}
		s.wg.Go(func() {
			defer s.drop(c)
			if err := s.handle(c); err != nil {
				s.log.Warn("raw test", "peer", c.RemoteAddr(), "error", err)
			}
		})
	}
}

func (s *Server) track(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxServers {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) drop(c net.Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	_ = c.Close() // the test has ended
}

// handle serves one test: it answers the frames of the session until the client closes c.
func (s *Server) handle(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(setupPatience)); err != nil {
		return err
	}
	var hello [8]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return err
	}
	e, err := s.h.openEnd(binary.BigEndian.Uint64(hello[:]))
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- e.serve() }()
	_, err = c.Write([]byte{'\n'})
	if err == nil {
		err = c.SetDeadline(time.Time{})
	}
	if err == nil {
		_, _ = c.Read(hello[:]) // returns when the client closes the connection
	}
	err = errors.Join(err, e.close())
	if serr := <-served; !errors.Is(serr, afpacket.ErrClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

// Close ends the server and all tests that it serves.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // the goroutine that serves the test then ends
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	return err
}

// dial makes the peer listen for frames of a session until the connection is closed.
func (h *Host) dial(ctx context.Context, to netip.Addr, session uint64) (net.Conn, error) {
	var c net.Conn
	err := h.Inside(func() (err error) {
		d := net.Dialer{Timeout: setupPatience}
		c, err = d.DialContext(ctx, "tcp", netip.AddrPortFrom(to, tcpPort).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], session)
	err = c.SetDeadline(time.Now().Add(setupPatience))
	if err == nil {
		_, err = c.Write(b[:])
	}
	if err == nil {
		_, err = c.Read(b[:1])
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the peer's raw server does not answer: %w", err), c.Close())
	}
	return c, nil
}
