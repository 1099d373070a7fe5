package memservice

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// looks is the number of connections that bury checks at each request, to find dead ones.
	looks = 4
	// afterlife is how long the service keeps a connection that it has found dead. When a client was
	// killed, the switch may still have requests of this client in flight on other connections; these
	// requests must find the region. A switch waits for a silent server for at most a second.
	afterlife = 10 * time.Second
	// shortAfterlife replaces afterlife when there is no memory for a new connection.
	shortAfterlife = 2 * time.Second
)

// dead reports whether a connection has failed, or was ended by the client's NIC because the client
// was killed. A killed client sends no request to end its connection.
func (c *Conn) dead() bool {
	a, err := c.QP.Query()
	return err != nil || a.State == verbs.StateError
}

// deadFor returns for how long the service has known that a connection is dead; −1 means that it is
// not dead.
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

// bury checks the next `looks` connections in turn, and ends those that have been dead for longer
// than afterlife. It is called for each request.
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
// until n bytes are free. If all of them together would not free enough, it ends none.
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
