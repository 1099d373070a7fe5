package lookuptable

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// A connection that gets a new entry has no old one in the cache, also if the pool has the old host again before the
// entry is written.
func TestOldEntryIsForgotten(t *testing.T) {
	s := newServed(t, virtual+"cache=8")
	s.attach()
	s.sends([]byte{4}, segment(7, flagSYN, 1))
	s.sends([]byte{4}, segment(7, 0, 1)) // cached: ms1
	s.rule(virtualBase + "pool=ms0 cache=8")
	s.held, s.left = true, nil
	s.send(segment(7, flagSYN, 2))
	for i := 0; s.m.tables[0].balancer.held == 0; i++ {
		if i > 100 {
			t.Fatal("the first packet does not wait for its entry")
		}
		s.deliver(1)
	}
	s.rule(virtualBase + "pool=ms0,ms1 cache=8")
	s.send(segment(7, 0, 3))
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	s.send(segment(7, 0, 4))
	if got := s.backends(); len(got) != 3 || got[0] != 3 || got[1] != 3 || got[2] != 3 {
		t.Errorf("one connection goes to %v; entries %q", got, s.entries())
	}
}

// A SYN whose ports had a connection with an entry that is being removed waits for the removal: TCP sends it again.
func TestPortsAreUsedAgain(t *testing.T) {
	for _, cache := range []string{"cache=0", "cache=8"} {
		s := newServed(t, virtual+cache)
		s.attach()
		s.sends([]byte{4, 4}, segment(7, flagSYN, 1), segment(7, flagFIN, 2))
		s.run(linger - 1)
		s.held, s.left = true, nil
		s.run(2)
		s.send(segment(7, flagSYN, 3))
		if got := s.backends(); len(got) != 0 {
			t.Errorf("%s: the SYN goes to %v while the entry is removed", cache, got)
		}
		s.held = false
		s.step(func(*pipeline.Ctx) {})
		s.left = nil
		s.send(segment(7, flagSYN, 3), segment(7, 0, 4))
		if got := s.backends(); len(got) != 2 || len(s.entries()) != 1 || len(s.m.tables[0].removing) != 0 {
			t.Errorf("%s: the new connection goes to %v, entries %q", cache, got, s.entries())
		}
	}
}

// answerOf is a TCP packet of the host 10.0.0.4 to the client of segment(7, …).
func answerOf(flags byte) []byte {
	b := segment(7, flags, 1)
	ip := b[ethLen:]
	copy(ip[12:], []byte{10, 0, 0, 4, 10, 0, 0, 1})
	ip[20], ip[21], ip[22], ip[23] = 0, 80, 0, 7
	return b
}

// A connection that the host refuses has no entry after a while, and so has one that ended before others ended often.
func TestEndedConnectionsHaveNoEntry(t *testing.T) {
	s := newServed(t, virtual+"cache=0")
	s.attach()
	s.sends([]byte{4}, segment(7, flagSYN, 1))
	s.step(func(c *pipeline.Ctx) { s.m.Take(c, portOfFrom, packetio.Frame{Data: answerOf(flagRST)}) })
	s.run(2 * linger)
	if got := s.entries(); len(got) != 0 {
		t.Errorf("entries after the host has refused: %q", got)
	}
	for range 100 {
		s.send(segment(7, flagSYN, 1), segment(7, flagFIN, 1))
	}
	if n := len(s.m.tables[0].closing); n != 1 {
		t.Errorf("one connection is %d times among those that end", n)
	}
	s.run(3 * linger)
	if got := s.entries(); len(got) != 0 {
		t.Errorf("entries after the end: %q", got)
	}
	s.send(segment(9, flagFIN, 1)) // of no connection
	s.run(2 * linger)
	if x := s.m.tables[0]; len(x.closing) != 0 || s.m.Stats().Refused != 0 || x.why != "" {
		t.Errorf("a FIN of no connection: %d end, %+v, %q", len(x.closing), s.m.Stats(), x.why)
	}
}

// RoCEv2 of a host of the pool is no answer of a virtual address, also if its UDP source port is that of the service.
func TestRoCEIsNoAnswer(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=0 vip=cn1 vport=50000 pool=ms1")
	s.attach()
	b := ping(rocePort, 1, 32)
	ip := b[ethLen:]
	copy(ip[12:], []byte{10, 0, 0, 4, 10, 0, 0, 1})
	ip[20], ip[21] = 50000>>8, 50000&0xff
	s.step(func(c *pipeline.Ctx) {
		if s.m.Take(c, portOfFrom, packetio.Frame{Data: b}) {
			t.Error("RoCEv2 is rewritten")
		}
	})
}
