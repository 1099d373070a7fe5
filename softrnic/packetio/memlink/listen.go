package memlink

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// maxConns bounds the connections to a Listener; more are closed at once.
const maxConns = 512

// Listener is the switch's side of all its memory links: it gives the daemon of each host that
// connects the memory of its link.
type Listener struct {
	l    *net.UnixListener
	wg   sync.WaitGroup
	path string

	mu     sync.Mutex // guards the fields below
	ports  map[string]*Port
	conns  map[*net.UnixConn]bool
	closed bool
}

// Listen listens on path, in place of a dead socket there. Only the user of this process may
// connect.
func Listen(path string) (*Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("memory links: %w", err)
	}
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, fmt.Errorf("memory links: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("memory links: %w", err), l.Close())
	}
	s := &Listener{l: l, path: path, ports: make(map[string]*Port), conns: make(map[*net.UnixConn]bool)}
	s.wg.Go(s.accept)
	return s, nil
}

// Port makes the switch's end of a host's link, in place of an earlier one. The caller closes it.
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
		if err != nil { // there are no descriptors or no memory now
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
			_ = conn.Close() // closing twice is harmless
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

// serve attaches a host for as long as its connection lasts.
func (s *Listener) serve(conn *net.UnixConn) {
	var h hello
	fds, err := receive(conn, &h, 1)
	if err != nil || len(fds) != 1 {
		return // no host of this program
	}
	p, j, err := s.join(conn, &h, fds[0])
	if err != nil {
		_ = send(conn, welcome{Error: err.Error(), layout: ours}) // the host tries again in any case
		return
	}
	p.attach(j)
	await(conn)
	j.gone.Store(true)
}

// join makes the memory of a host's link and hands it over. It owns the host's bell.
func (s *Listener) join(conn *net.UnixConn, h *hello, bell int) (*Port, *joint, error) {
	s.mu.Lock()
	p := s.ports[h.Host]
	s.mu.Unlock()
	switch {
	case p == nil || p.closed.Load():
		shut(bell)
		return nil, nil, fmt.Errorf("the switch has no memory link of %.40q", h.Host)
	case h.layout != ours:
		shut(bell)
		return nil, nil, fmt.Errorf("the memory of this switch is %+v, that of the host %+v: restart the older one", ours, h.layout)
	}
	fd, err := ring.New("rdmalab-link", memoryLen)
	if err != nil {
		shut(bell)
		return nil, nil, err
	}
	defer shut(fd) // the mappings keep the memory
	mem, err := ring.Map(fd, memoryLen)
	if err != nil {
		shut(bell)
		return nil, nil, err
	}
	const toHost, toSwitch = 1, 0
	j := newJoint(mem, toHost, toSwitch, bell, func() { _ = conn.Close() })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell < 0 {
		return nil, nil, ErrClosed
	}
	return p, j, send(conn, welcome{layout: ours}, fd, p.bell)
}

// Close ends all links and waits for the goroutines.
func (s *Listener) Close() error {
	s.mu.Lock()
	s.closed = true
	for conn := range s.conns {
		_ = conn.Close() // its goroutine ends
	}
	s.mu.Unlock()
	err := s.l.Close() // removes the socket
	s.wg.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
