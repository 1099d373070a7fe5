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

// Memory of connections that have been dead for a while serves a new client, as much as it needs. The
// switch may still use the region of one that has just died. If all of them are not enough, they stay.
func TestDeadConnectionsGiveTheirMemory(t *testing.T) {
	s, rt, asked := graveyard(8, 1, 2, 3)
	fresh := func(n int) *Conn { return &Conn{bytes: int64(n), req: request{bytes: uint32(n)}} }
	if s.roomFor(fresh(150)) == nil || len(s.conns) != 8 {
		t.Errorf("%d connections: one that has just died is ended", len(s.conns))
	}
	rt.now = rt.now.Add(shortAfterlife)
	if s.roomFor(fresh(301)) == nil || len(s.conns) != 8 {
		t.Errorf("%d connections: some are ended for nothing", len(s.conns))
	}
	if err := s.roomFor(fresh(150)); err != nil || len(s.conns) != 6 {
		t.Errorf("%v, %d connections", err, len(s.conns))
	}
	*asked = 0
	if err := s.roomFor(fresh(150)); err != nil || *asked != 0 {
		t.Errorf("%v after %d questions", err, *asked)
	}
	if err := s.roomFor(fresh(250)); err != nil || s.used != 500 {
		t.Errorf("%v, %d bytes", err, s.used)
	}
	if s.roomFor(fresh(301)) == nil {
		t.Error("there is room where all live")
	}
}
