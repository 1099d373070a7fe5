package meta

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// alone is a metadata server of two memory servers that are out, so that it speaks to none.
func alone() *Server {
	s, _ := lossy()
	s.mem.cfg.Servers = make([]netip.Addr, 2)
	s.mem.memory[0].out, s.mem.memory[1].out = true, true
	s.pool.clients = map[uint32]*client{}
	s.mem.owner, s.pool.epoch = 7, 3
	s.mem.self = 7<<16 | 0xffff
	s.pool.nextID, s.pool.endID = 7<<16, s.mem.self
	return s
}

// Clients get the numbers of an incarnation one after the other, except the last one, which is the
// server's. Then the server takes the next incarnation, until there is none.
func TestNumbersOfClients(t *testing.T) {
	s := alone()
	if n, err := s.number(); n != 7<<16+1 || err != nil {
		t.Errorf("the first number is %#x, %v", n, err)
	}
	s.pool.nextID = s.mem.self - 2
	for _, want := range []uint32{7<<16 | 0xfffe, 8<<16 + 1, 8<<16 + 2} {
		if n, err := s.number(); n != want || err != nil {
			t.Errorf("number %#x, %v, want %#x", n, err, want)
		}
	}
	if s.mem.owner != 8 || s.mem.self != 8<<16|0xffff || s.pool.endID != s.mem.self {
		t.Errorf("incarnation %d, own number %#x, end %#x", s.mem.owner, s.mem.self, s.pool.endID)
	}
	for owner, want := range map[uint32]error{maxIncarnation - 1: nil, maxIncarnation: errNumbers} {
		s.mem.owner, s.pool.nextID = owner, s.pool.endID-1
		if _, err := s.number(); !errors.Is(err, want) {
			t.Errorf("after incarnation %d: %v, want %v", owner, err, want)
		}
	}
}

// A client that says hello again keeps the number of its connections if it is quiet, and the number
// is neither fenced, nor of the future, nor too old.
func TestNumberThatAClientKeeps(t *testing.T) {
	const fenced, next = 100, 1 << 16
	for _, c := range []struct {
		had, id uint32
		quiet   bool
		keeps   bool
	}{
		{fenced + 1, fenced + 2, true, true},
		{fenced + 1, fenced + 2, false, false},
		{fenced, fenced + 2, true, false},
		{next, next + 1, true, true},
		{next + 1, next + 2, true, false},
		{1000, 1000 + oldClient/2, true, true},
		{1000, 1001 + oldClient/2, true, false},
	} {
		s := alone()
		s.pool.fencedTo, s.pool.nextID = fenced, next
		want := c.id
		if c.keeps {
			want = c.had
		}
		if got := s.ownerOf(c.id, &rpc.Request{Owner: c.had, Quiet: c.quiet}); got != want {
			t.Errorf("%+v: number %d", c, got)
		}
	}
}

// Numbers that no client uses any more are fenced in batches. A client whose number is too old must
// say hello again, and its number stays until then.
func TestOldNumbersAreForgotten(t *testing.T) {
	for _, c := range []struct {
		next, fenced, owner, want uint32
		stale                     bool
	}{
		{next: 5000, fenced: 5000 - fenceBatch, want: 5000},
		{next: 5000, fenced: 5001 - fenceBatch, want: 5001 - fenceBatch},
		{next: 9000, owner: fenceBatch + 1, want: fenceBatch},
		{next: 9000, owner: fenceBatch, want: 0},
		{next: 9000 + oldClient, owner: 9000, want: 8999},
		{next: 9001 + oldClient, owner: 9000, want: 8999, stale: true},
	} {
		s := alone()
		s.pool.nextID, s.pool.fencedTo = c.next, c.fenced
		cl := &client{owner: c.owner}
		if c.owner != 0 {
			s.pool.clients[1] = cl
		}
		if s.forgetNumbers(); s.pool.fencedTo != c.want || cl.stale != c.stale {
			t.Errorf("%+v: fenced to %d, stale %v", c, s.pool.fencedTo, cl.stale)
		}
	}
}

// A client that says hello is told its number and what it needs to know of the store. There is no
// room for more than so many clients, and none without a number.
func TestWelcome(t *testing.T) {
	s := alone()
	s.mem.memory[1].out, s.mem.memory[0].generation, s.mem.memory[1].generation = false, 5, 6
	hello := func() (a rpc.Answer) {
		s.hello(&rpc.Request{Op: rpc.OpHello, Seq: 9, Client: 3}, &a, clock.Time(11))
		return a
	}
	a := hello()
	w := a.Welcome
	if a.Status != rpc.OK || w == nil || w.Client != 7<<16+1 || w.Owner != w.Client || w.Incarnation != 7 || len(w.Servers) != 2 {
		t.Fatalf("%+v", a)
	}
	if w.Servers[0].Generation != 0 || w.Servers[1].Generation != 6 { // the first one is out
		t.Errorf("%+v", w.Servers)
	}
	if cl := s.pool.clients[w.Client]; cl.former != 3 || cl.epoch != 3 || cl.heard != 11 || cl.seq != 9 || !cl.quiet || !s.chains.sweepDue || !s.members.probeDue {
		t.Errorf("%+v", cl)
	}
	for n := uint32(1 << 30); len(s.pool.clients) < maxClients-1; n++ {
		s.pool.clients[n] = &client{}
	}
	if a := hello(); a.Status != rpc.OK {
		t.Errorf("the last place: %v", a.Status)
	}
	if a := hello(); a.Status != rpc.Refused || a.Welcome != nil || len(s.pool.clients) != maxClients {
		t.Errorf("one more client: %v; %d clients", a.Status, len(s.pool.clients))
	}
	s.pool.clients = map[uint32]*client{}
	s.mem.owner, s.pool.nextID = maxIncarnation, s.pool.endID-1
	if a := hello(); a.Status != rpc.Busy || len(s.pool.clients) != 0 {
		t.Errorf("without a number: %v; %d clients", a.Status, len(s.pool.clients))
	}
}

// The outcome of an inquiry is taken once, and is fresh until its time is over.
func TestOutcomeOfAnInquiry(t *testing.T) {
	for at, fresh := range map[clock.Time]bool{5: true, 6: false} {
		q := inquiry{ended: true, ran: true, until: 5}
		if ran, is, known := q.take(at); !known || !ran || is != fresh {
			t.Errorf("at %d: ran %v, fresh %v, known %v", at, ran, is, known)
		}
		if _, _, known := q.take(at); known {
			t.Errorf("at %d: known twice", at)
		}
	}
	if _, _, known := new(inquiry).take(0); known {
		t.Error("there was no inquiry")
	}
}

// A question that had an answer counts however late the metadata server sees that. One that had none
// counts only if the metadata server sees it soon.
func TestLateOutcomeOfAQuestion(t *testing.T) {
	for _, c := range []struct {
		ran, late bool
		missed    int
	}{{true, false, 0}, {true, true, 0}, {false, false, 2}, {false, true, 1}} {
		s, _ := lossy()
		s.mem.space.Backups, s.members.change = 1, new(change)
		s.members.watched = make([]watched, len(s.mem.memory))
		w := &s.members.watched[0]
		w.missed, w.asked, w.ended, w.ran, w.until = 1, 7, true, c.ran, 100
		w.asking, w.askAt = false, clock.Never
		s.members.watched[1].askAt = clock.Never
		now := clock.Time(100)
		if c.late {
			now++
		}
		if err := s.members.watchServices(now); err != nil || w.missed != c.missed {
			t.Errorf("%+v: %d missed, %v", c, w.missed, err)
		}
	}
}
