package socket

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/softrnic/unixsocket"
)

// Bounds of a Server and of each program.
const (
	maxPrograms = 64
	// maxObjects is how many regions a program may have, and how many pieces of remote memory.
	maxObjects  = 256
	maxMemory   = 1 << 30 // bytes of the regions of a program
	maxInFlight = 64      // requests of a program that have no answer yet
)

type Config struct {
	// Path is the path of the socket; required. Group, if not 0, is the number of a user group that
	// may open the socket as well as its owner; 0 means that only the owner may.
	Path  string
	Group int
	// NIC is the NIC that programs use; required.
	NIC *host.NIC
	Log *slog.Logger // nil means that nothing is logged
}

// Server lets programs on a host use the host's NIC over a unix socket.
type Server struct {
	cfg      Config
	listener *unixsocket.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	programs map[*program]struct{}
	ended    bool
}

// Listen makes a Server for programs that connect to the socket at cfg.Path. A socket that a former
// daemon has left there is replaced.
func Listen(cfg Config) (*Server, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	l, err := unixsocket.Listen("unixpacket", cfg.Path, cfg.Group)
	if err != nil {
		return nil, fmt.Errorf("1RMA: %w", err)
	}
	s := &Server{cfg: cfg, listener: l, programs: make(map[*program]struct{})}
	s.wg.Go(func() {
		host.AcceptAll(l.AcceptUnix, cfg.Log, "a program", func(c *net.UnixConn) { s.wg.Go(func() { s.serve(c) }) })
	})
	return s, nil
}

func (s *Server) serve(conn *net.UnixConn) {
	p, err := s.begin(conn)
	if err != nil {
		refuse(conn, err)
		return
	}
	p.run()
	s.mu.Lock()
	delete(s.programs, p)
	s.mu.Unlock()
}

// refuse answers the first request of a program with an error, and ends the connection. It reads
// the request first, because the kernel drops the answer if the connection is closed with an unread
// message.
func refuse(conn *net.UnixConn, why error) {
	var req request
	a := answer{}
	a.fail(why)
	buf := make([]byte, MaxMessage)
	_ = conn.SetReadDeadline(time.Now().Add(writeWait)) // if it fails, so does Read
	if n, err := conn.Read(buf); err == nil && decode(buf[:n], &req) == nil {
		a.ID = req.ID
	}
	_ = send(conn, &a, nil) // the program sees the end of the connection
	_ = conn.Close()        // the program sees the end of the connection in any case
}

func (s *Server) begin(conn *net.UnixConn) (*program, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return nil, errors.New("the host is ending")
	}
	if len(s.programs) >= maxPrograms {
		return nil, fmt.Errorf("%d programs use the 1RMA NIC: end one", maxPrograms)
	}
	proc, err := s.cfg.NIC.Open(host.ProcessConfig{Slots: maxInFlight})
	if err != nil {
		return nil, err
	}
	p := newProgram(conn, proc)
	s.programs[p] = struct{}{}
	return p, nil
}

// Close ends the connections of all programs, and waits until their memory is unmapped.
func (s *Server) Close() error {
	s.mu.Lock()
	s.ended = true
	for p := range s.programs {
		_ = p.conn.Close() // ends program.receive
	}
	s.mu.Unlock()
	err := s.listener.Close()
	s.wg.Wait()
	return err
}
