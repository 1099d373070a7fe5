package memcached

import (
	"bufio"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/store/memcached/text"
)

// maxConns is how many connections a Server has at most. Further connections get the answer tooMany
// and are closed.
const (
	maxConns = 1024
	tooMany  = "ERROR Too many open connections"
	// acceptPause is the pause before the next Accept after an error that may be temporary, such as
	// a lack of file descriptors.
	acceptPause = 10 * time.Millisecond
)

// session executes the requests of one connection, in their order. execute writes the answer to w.
type session interface {
	execute(r *text.Request, w io.Writer) error
	// abort makes an execute that waits for another program fail. Other goroutines call it.
	abort()
	close() error
}

// Server serves one table over TCP until it is closed.
type Server struct {
	maxValue int                     // length of the longest value, in bytes
	open     func() (session, error) // makes the session of a connection
	listener net.Listener
	count    counts
	wg       sync.WaitGroup // counts all goroutines of the server

	mu     sync.Mutex           // guards the fields below
	conns  map[net.Conn]session // nil while the session is opened
	closed bool
}

// Listen serves a table on an address like ":11211". The caller closes the Server before the table.
func Listen(addr string, t Table) (*Server, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, err
	}
	return serve(l, t), nil
}

// serve serves a table to the connections of a listener, which then belongs to the Server.
func serve(l net.Listener, t Table) *Server {
	s := newServer(l, t.MaxValue())
	s.open = func() (session, error) { return &executor{t: t, read: t.Read, count: &s.count}, nil }
	s.wg.Go(s.accept)
	return s
}

// newServer makes a Server that does not accept connections yet.
func newServer(l net.Listener, maxValue int) *Server {
	s := &Server{maxValue: maxValue, listener: l, conns: make(map[net.Conn]session)}
	s.count.began = time.Now()
	return s
}

// Close ends the listener and all connections, and returns when no goroutine of the server runs any
// more. A command that is executed meanwhile takes effect; whether its client gets the answer is
// not known.
func (s *Server) Close() error {
	s.mu.Lock()
	var err error
	if !s.closed {
		s.closed = true
		err = s.listener.Close()
		for c, x := range s.conns {
			_ = c.Close() // the client may have closed it
			if x != nil {
				x.abort()
			}
		}
	}
	s.mu.Unlock()
	s.wg.Wait()
	return err
}

func (s *Server) accept() {
	for {
		c, err := s.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			if s.isClosed() {
				return
			}
			time.Sleep(acceptPause)
		case !s.begin(c):
			_, _ = c.Write(text.AppendLine(nil, tooMany)) // the client may not get it
			_ = c.Close()
		}
	}
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// begin serves a connection in a goroutine. It returns false, and does nothing, if there are too
// many connections or the server is closed.
func (s *Server) begin(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[c] = nil
	s.count.conns.Add(1)
	s.count.allConns.Add(1)
	s.wg.Go(func() {
		s.talk(c)
		_ = c.Close() // Server.Close may have closed it
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		s.count.conns.Add(-1)
	})
	return true
}

// opened notes the session of a connection. It returns false if the server is closed.
func (s *Server) opened(c net.Conn, x session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = x
	return !s.closed
}

// talk executes the requests of a connection until it ends. It sends the answers when no complete
// request is left, so the answers to requests that came together leave together.
func (s *Server) talk(c net.Conn) {
	d := text.NewDecoder(s.maxValue)
	w := bufio.NewWriter(c)
	x, err := s.open()
	if err != nil {
		_, _ = c.Write(text.AppendLine(nil, failed(err))) // the client may not get it
		return
	}
	defer func() { _ = x.close() }() // the connection ends anyway
	if !s.opened(c, x) {
		return
	}
	for {
		n, rerr := c.Read(d.Room())
		d.Took(n)
		for r, ok := d.Next(); ok; r, ok = d.Next() {
			if err := x.execute(r, w); err != nil {
				_, _ = w.Write(text.AppendLine(nil, failed(err))) // the client may not get it
				_ = w.Flush()
				return
			}
			if r.Last {
				_ = w.Flush() // an error does not matter, because the connection ends
				return
			}
		}
		if err := w.Flush(); err != nil || rerr != nil {
			return
		}
	}
}
