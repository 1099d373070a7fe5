package memservice

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// looks is how many connections a request makes the service look at for dead ones.
	looks = 4
	// afterlife is how long the service keeps a connection that it has found dead. When a client
	// has been killed, the switch may still have requests of it in flight on other connections; they
	// must find the region. A switch gives a silent server up after a second.
	afterlife = 10 * time.Second
	// shortAfterlife is afterlife if there is no memory for a new connection.
	shortAfterlife = 2 * time.Second
)

// dead reports whether a connection has failed, or was ended by the client's NIC, as when the client
// is killed. Such a client sends no request to end it.
func (c *Conn) dead() bool {
	a, err := c.QP.Query()
	return err != nil || a.State == verbs.StateError
}

// deadFor returns for how long the service has known that a connection is dead; -1: it is not dead.
func (s *Server) deadFor(c *Conn) time.Duration {
	now := s.rt.Now()
	switch {
	case !c.dead():
		return -1
	case c.died == 0:
		c.died = now
	}
	return now.Sub(c.died)
}

// bury looks at the next connections, in turn, and ends those that have been dead for longer than
// afterlife. It is called for each request.
func (s *Server) bury() {
	for range min(looks, len(s.conns)) {
		if s.next >= len(s.conns) {
			s.next = 0
		}
		if s.deadFor(s.conns[s.next]) < afterlife {
			s.next++
			continue
		}
		s.end(s.next)
	}
}

// makeRoom ends connections that have been dead for longer than shortAfterlife, the oldest first,
// until the connections use n bytes less. It ends none if that would not be enough.
func (s *Server) makeRoom(n int64) {
	var list []*Conn
	for _, c := range s.conns {
		if n <= 0 {
			break
		}
		if s.deadFor(c) >= shortAfterlife {
			list = append(list, c)
			n -= c.bytes
		}
	}
	if n > 0 {
		return
	}
	for _, c := range list {
		s.endID(c.id)
	}
}
