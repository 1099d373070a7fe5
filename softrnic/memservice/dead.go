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
	// must find the region.
	afterlife = 10 * time.Second
)

// dead reports whether a connection has failed, or was ended by the client's NIC, as when the client
// is killed. Such a client sends no request to end it.
func (c *Conn) dead() bool {
	a, err := c.QP.Query()
	return err != nil || a.State == verbs.StateError
}

// bury looks at the next connections, in turn, and ends those that have been dead for longer than
// afterlife. It is called for each request.
func (s *Server) bury() {
	now := s.rt.Now()
	for range min(looks, len(s.conns)) {
		if s.next >= len(s.conns) {
			s.next = 0
		}
		c := s.conns[s.next]
		switch {
		case !c.dead():
			s.next++
		case c.died == 0:
			c.died = now
			s.next++
		case now.Sub(c.died) < afterlife:
			s.next++
		default:
			s.end(s.next)
		}
	}
}

// buryAll ends all dead connections at once. It is called if there is no memory for a new one.
func (s *Server) buryAll() { s.endIf((*Conn).dead) }
