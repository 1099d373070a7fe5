package memlink

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/unixsocket"
)

// maxConns is the largest number of connections to a Listener; further ones are closed at once.
const maxConns = 512

// Listener is the switch's side of all memory links. When the daemon of a host connects, the
// Listener passes it the memory of its link.
type Listener struct {
	l  *unixsocket.Listener
	wg sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	ports  map[string]*Port
	conns  map[*net.UnixConn]bool
	closed bool
}

// Listen listens on path. It replaces a socket that no process serves any more, and fails if a
// process serves it or if there is a file that is no socket. Only the user of this process may
// connect. Two calls for one path at the same time are not allowed.
func Listen(path string) (*Listener, error) {
	l, err := unixsocket.Listen(network, path, 0)
	if err != nil {
		return nil, fmt.Errorf("memory links: %w", err)
	}
	s := &Listener{l: l, ports: make(map[string]*Port), conns: make(map[*net.UnixConn]bool)}
	s.wg.Go(s.accept)
	return s, nil
}

// Port makes the switch's end of a host's memory link. From then on the host connects to this end,
// also if Port has made one for the host before. The caller must close every end that it gets.
func (s *Listener) Port(host string, cfg Config) (*Port, error) {
	p, err := NewPort(cfg)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ports[host] = p
	return p, nil
}

// acceptPause is the pause after an error of accept.
const acceptPause = 20 * time.Millisecond

func (s *Listener) accept() {
	for {
		conn, err := s.l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptors or memory are available at the moment
			time.Sleep(acceptPause)
			continue
		}
		if !s.admit(conn) {
			_ = conn.Close() // the host tries again
			continue
		}
		s.wg.Go(func() {
			s.serve(conn)
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			_ = conn.Close() // a second Close does nothing
		})
	}
}

func (s *Listener) admit(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= maxConns {
		return false
	}
	s.conns[conn] = true
	return true
}

// serve attaches a host, and returns when its connection has ended.
func (s *Listener) serve(conn *net.UnixConn) {
	var h hello
	fds, err := receive(conn, &h, 1)
	if err != nil || len(fds) != 1 {
		return // the first message is no hello with a bell, so the peer is no daemon of a host
	}
	p := s.port(h.Host)
	j, err := s.join(conn, &h, p, fds[0])
	if err != nil {
		_ = send(conn, welcome{Error: err.Error(), layout: ours}) // the host tries again even if it does not get this answer
		return
	}
	if p.attach(j) {
		await(conn)
		p.ended(j)
	}
}

// port returns the current port of a host, nil if there is none.
func (s *Listener) port(host string) *Port {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ports[host]
}

// join makes the memory of the link of port p and passes it to the host. theirs is the descriptor
// that rings the host's bell: the joint owns it, or join closes it on error.
func (s *Listener) join(conn *net.UnixConn, h *hello, p *Port, theirs int) (j *joint, err error) {
	defer func() {
		if j == nil {
			ring.CloseFiles(theirs)
		}
	}()
	switch {
	case p == nil || p.closed.Load():
		return nil, fmt.Errorf("the switch has no memory link of %.40q", h.Host)
	case h.layout != ours:
		return nil, fmt.Errorf("the memory of this switch is %+v, that of the host %+v: restart the older one", ours, h.layout)
	}
	if err := checkBell(theirs); err != nil {
		return nil, err
	}
	fd, err := ring.New("rdmalab-link", memoryLen)
	if err != nil {
		return nil, err
	}
	defer ring.CloseFiles(fd) // the mappings keep the memory without the descriptor
	b, err := newBell()
	if err != nil {
		return nil, err
	}
	defer ring.CloseFiles(b.theirs) // the host has its own copy when join returns
	if err = send(conn, welcome{layout: ours}, fd, b.theirs); err != nil {
		ring.CloseFiles(b.ours)
		return nil, err
	}
	mem, err := ring.Map(fd, memoryLen)
	if err != nil {
		ring.CloseFiles(b.ours)
		return nil, err
	}
	const toHost, toSwitch = 1, 0
	return newJoint(mem, toHost, toSwitch, theirs, b.ours, func() { _ = conn.Close() }), nil
}

// Close ends all links and waits for the goroutines.
func (s *Listener) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		s.wg.Wait()
		return nil
	}
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close() // its goroutine then ends
	}
	s.mu.Unlock()
	err := s.l.Close()
	s.wg.Wait()
	return err
}
