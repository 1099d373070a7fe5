package memservice

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// pastime is a runtime whose time the test sets.
type pastime struct {
	verbs.Runtime
	now clock.Time
}

func (p *pastime) Now() clock.Time { return p.now }

// graveyard is a service with connections of 100 bytes; those of the indexes in dead have failed.
// asked counts questions to the NIC.
func graveyard(n int, dead ...int) (s *Server, rt *pastime, asked *int) {
	rt, asked = &pastime{now: 1}, new(int)
	s = &Server{rt: rt, cfg: Config{Memory: int64(n) * 100, Region: 1}, used: int64(n) * 100}
	for i := range n {
		s.conns = append(s.conns, &Conn{id: uint64(i), bytes: 100, QP: askedQP{state: verbs.StateRTS, asked: asked}})
	}
	for _, i := range dead {
		s.conns[i].QP = askedQP{state: verbs.StateError, asked: asked}
	}
	return s, rt, asked
}

func (s *Server) ids() (list []uint64) {
	for _, c := range s.conns {
		list = append(list, c.id)
	}
	return list
}

// The connection of a client that was killed ends when requests in flight can no longer need it,
// whichever place it has. One request makes the service look at few connections.
func TestDeadConnectionsEnd(t *testing.T) {
	const n = 3*looks + 1
	s, rt, asked := graveyard(n, 0, 5, n-1)
	round := func() {
		for range n/looks + 1 {
			*asked = 0
			if s.bury(); *asked > looks {
				t.Errorf("%d questions", *asked)
			}
		}
	}
	round()
	rt.now = rt.now.Add(afterlife - time.Millisecond)
	if round(); len(s.conns) != n {
		t.Errorf("%d connections left: %v", len(s.conns), s.ids())
	}
	rt.now = rt.now.Add(time.Second)
	for range 2 {
		round()
		if len(s.conns) != n-3 || s.used != (n-3)*100 {
			t.Errorf("%d connections with %d bytes: %v", len(s.conns), s.used, s.ids())
		}
	}
	for _, c := range s.conns {
		if c.dead() {
			t.Errorf("%d is dead", c.id)
		}
	}
	s.conns = nil
	s.bury()
}

// Memory of connections that have failed serves a new client at once.
func TestDeadConnectionsGiveTheirMemory(t *testing.T) {
	s, _, asked := graveyard(8, 1, 2)
	fresh := &Conn{bytes: 150, req: request{bytes: 150}}
	if err := s.roomFor(fresh); err != nil || len(s.conns) != 6 {
		t.Errorf("%v, %d connections", err, len(s.conns))
	}
	*asked = 0
	if err := s.roomFor(fresh); err != nil || *asked != 0 {
		t.Errorf("%v after %d questions", err, *asked)
	}
	if s, _, _ = graveyard(8); s.roomFor(fresh) == nil {
		t.Error("there is no room")
	}
}
