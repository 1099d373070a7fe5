package lookuptable

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// A server that does not answer any more fails after a quarter of a second. Its packets in flight are lost
// and counted, and the program is asked for another connection, on which lookups go on.
func TestServerThatDoesNotAnswer(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=0 depth=2")
	s.attach()
	s.add(false, pinged("80")+" egress=port0")
	k, l := s.server(0), s.m.Links.All[0]
	k.deaf = true
	for i := range 5 {
		s.send(ping(80, byte(i), 9))
	}
	s.run(200 * time.Millisecond)
	if len(s.failed) != 0 || !l.srv.Up() || s.m.InFlight() != 5 {
		t.Errorf("after 200 ms: %v, up %v, %d in flight", s.failed, l.srv.Up(), s.m.InFlight())
	}
	s.run(100 * time.Millisecond)
	if st := s.m.Stats(); len(s.failed) != 1 || st.Failures != 1 || st.Lost != 5 || l.srv.Up() || s.m.InFlight() != 0 || l.srv.Cells() != 0 {
		t.Errorf("%v; up %v, %d in flight, %+v", s.failed, l.srv.Up(), s.m.InFlight(), st)
	}
	if list := s.m.list(s.now); list[0].Table[0].Up || list[0].Table[0].Why != s.failed[0] || s.m.Deadline() != clock.Never {
		t.Errorf("%+v, deadline %v", list[0].Table[0], s.m.Deadline())
	}
	k.deaf = false
	s.attach()
	if s.send(ping(80, 9, 9)); !bytes.Equal(s.ids(0), []byte{9}) {
		t.Errorf("%v leave", s.ids(0))
	}
}

// A connection that ends takes the packets in flight with it, those, too, that wait for their READs. The
// next ones find no connection.
func TestConnectionThatEnds(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=0 depth=1")
	s.attach()
	s.held = true
	l := s.m.Links.All[0]
	s.send(ping(80, 1, 9), ping(80, 2, 9), ping(81, 3, 9), ping(82, 4, 9))
	key := flowOf(ping(82, 4, 9))
	if s.m.InFlight() != 4 || !l.srv.Busy(key.Hash()) || l.srv.Busy(key.Hash()+1) {
		t.Errorf("%d in flight", s.m.InFlight())
	}
	s.step(func(c *pipeline.Ctx) { s.m.Detach(c, l.Key(), l.Generation()) })
	if st := s.m.Stats(); st.Lost != 4 || s.m.InFlight() != 0 || l.srv.Cells() != 0 || l.srv.Busy(key.Hash()) {
		t.Errorf("%d in flight, %+v", s.m.InFlight(), st)
	}
}

// A packet whose cell does not come back as it was written is lost; those before and behind it are not, and
// keep their order.
func TestCellsThatAreLost(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=1024 cache=0 depth=8")
	s.attach()
	s.add(false, pinged("80")+" egress=port0")
	for _, tc := range []struct{ lost, want []byte }{
		{[]byte{0}, []byte{1, 2, 3}}, {[]byte{1, 2}, []byte{0, 3}}, {[]byte{3}, []byte{0, 1, 2}}, {[]byte{0, 1, 2, 3}, nil}, {nil, []byte{0, 1, 2, 3}},
	} {
		before := s.m.Stats()
		s.left = nil
		s.held = true
		for i := range byte(4) {
			s.send(ping(80, i, 9))
		}
		cell := byte(0)
		for i := range s.answers {
			if p := s.answers[i].Payload; len(p) > 0 && len(p) != Probe*SlotLen {
				if slices.Contains(tc.lost, cell) {
					clear(p)
				}
				cell++
			}
		}
		s.held = false
		s.step(func(*pipeline.Ctx) {})
		if got := s.ids(0); !slices.Equal(got, tc.want) {
			t.Errorf("without %v: %v leave", tc.lost, got)
		}
		if st := s.m.Stats(); cell != 4 || st.Lost-before.Lost != uint64(len(tc.lost)) || s.m.InFlight() != 0 {
			t.Errorf("without %v: %+v, %d in flight", tc.lost, st, s.m.InFlight())
		}
	}
}

// When a rule moves its table, the packets in flight are lost, and what still comes back for them is not
// taken for anything else: not for new packets, changes or pages.
func TestAnswersForTheFormerTable(t *testing.T) {
	const rule = "table=ms0 capacity=16 cells=8 cell=512 cache=0 depth=8"
	s := newServed(t, rule)
	s.attach()
	s.add(false, pinged("80")+" egress=port0", pinged("81")+" dscp=1")
	s.held = true
	s.send(ping(80, 1, 9), ping(80, 2, 9))
	s.add(true, pinged("81"))
	s.step(func(c *pipeline.Ctx) { _, _ = s.m.Page(c, "r", 0, 0) })
	if n := s.m.tables[0].waiting(); n != 2 {
		t.Errorf("%d changes and pages wait", n)
	}
	s.rule(rule + " base=0x4000")
	if st := s.m.Stats(); st.Lost != 2 || s.m.InFlight() != 0 || s.m.tables[0].waiting() != 0 {
		t.Errorf("%+v, %d in flight", st, s.m.InFlight())
	}
	s.send(ping(80, 3, 9), ping(80, 4, 9))
	s.add(false, pinged("82")+" dscp=2")
	s.step(func(c *pipeline.Ctx) { _, _ = s.m.Page(c, "r", 0, 0) })
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	if st := s.m.Stats(); st.Misses != 2 || st.Hits != 0 || st.Lost != 2 || !bytes.Equal(s.ids(0), []byte{3, 4}) {
		t.Errorf("%+v, %v leave", st, s.ids(0))
	}
	if got := s.entries(); !slices.Equal(got, []string{pinged("82") + " dscp=2"}) {
		t.Errorf("the new table has %q", got)
	}
	k := s.server(0)
	if bytes.Equal(k.memory[0x4000:][:23*SlotLen], make([]byte, 23*SlotLen)) {
		t.Error("the new table has no slot")
	}
}

// A table without a rule needs no server any more: its packets and changes are forgotten, its connection is
// not used for another table, and it goes when it ends.
func TestTableThatGoes(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512 cache=0")
	s.attach()
	s.held = true
	s.send(ping(80, 1, 9))
	s.add(false, pinged("80")+" drop")
	l := s.m.Links.All[0]
	s.rule("table=ms1 capacity=16 cells=8 cell=512 cache=0")
	if l.Needed() || len(s.m.Links.All) != 2 || s.m.Stats().Lost != 1 || s.m.InFlight() != 0 || l.srv.InFlight() != 0 || l.srv.Waiting() != 0 {
		t.Errorf("%d connections, %+v", len(s.m.Links.All), s.m.Stats())
	}
	s.held = false
	s.step(func(*pipeline.Ctx) {})
	if s.offer(l, 4096) {
		t.Error("a connection to the former server is used")
	}
	s.step(func(c *pipeline.Ctx) { s.m.Detach(c, l.Key(), 1) })
	if len(s.m.Links.All) != 1 || s.m.Uses(l.Key()) || s.m.Mine(firstOwn) {
		t.Errorf("%d connections", len(s.m.Links.All))
	}
	if s.m.Links.All[0].Key().Server != netip.MustParseAddr("10.0.0.4") {
		t.Error("the server of the new rule has gone")
	}
	s.rule("")
	if len(s.m.Links.All) != 0 || s.m.ports.Marks.Has(portOfFrom) {
		t.Errorf("without a rule there are %d connections", len(s.m.Links.All))
	}
}

// A packet to a queue pair of the switch that its server has not sent is dropped and counted, and changes
// nothing.
func TestStrangers(t *testing.T) {
	s := newServed(t, "table=ms0 capacity=16 cells=8 cell=512")
	s.attach()
	var p wire.Frame
	p.IPv4 = wire.IPv4{Src: [4]byte{10, 0, 0, 77}, Dst: [4]byte{10, 0, 0, 9}, TTL: 64}
	p.BTH = wire.BTH{Opcode: wire.RCAck, DestQP: firstOwn, PSN: s.server(0).psn}
	p.AETH.Syndrome = wire.NakRemoteOp
	for i, from := range []wire.QPN{firstOwn, firstOwn + 1} {
		p.BTH.DestQP = from
		s.step(func(c *pipeline.Ctx) {
			if v := s.m.Owned(c, &pipeline.Parsed{Frame: p}); v.Action != pipeline.ActDrop || v.Reason != ReasonStranger {
				t.Errorf("a packet to queue pair %v: %+v", from, v)
			}
		})
		if st := s.m.Stats(); st.Strangers != uint64(i+1) || !s.m.Links.All[0].srv.Up() {
			t.Errorf("%+v", st)
		}
	}
	p.IPv4.Src = [4]byte{10, 0, 0, 3}
	p.BTH.DestQP = firstOwn
	s.step(func(c *pipeline.Ctx) {
		if v := s.m.Owned(c, &pipeline.Parsed{Frame: p}); v.Action != pipeline.ActConsume {
			t.Errorf("a packet of the server: %+v", v)
		}
	})
}

// A connection whose path MTU is too small for a cell, or for the slots of a lookup, is not used; the reason
// says both numbers.
func TestPathMTUOfConnections(t *testing.T) {
	for _, tc := range []struct {
		rule string
		mtu  int
		ok   bool
	}{
		{"cell=2048", 2048, true}, {"cell=2048", 1024, false}, {"cell=512", 512, true}, {"cell=512", 256, false},
	} {
		s := newServed(t, "table=ms0 capacity=16 cells=4 "+tc.rule)
		l := s.m.Links.All[0]
		if ok := s.offer(l, tc.mtu); ok != tc.ok || !ok && !strings.Contains(l.Why(), "path MTU of "+map[int]string{1024: "1024", 256: "256"}[tc.mtu]) {
			t.Errorf("%+v: used %v, %q", tc, ok, l.Why())
		}
	}
	// A lookup of a published table reads one slot.
	s := newServed(t, "table=ms0 capacity=16 cells=4 cell=2048")
	l := s.m.Links.All[0]
	l.table.Published = true
	if want := fmt.Sprintf("or the %d bytes that a lookup reads", SlotLen); s.offer(l, 1024) || !strings.Contains(l.Why(), want) {
		t.Errorf("a published table: %q, want %q", l.Why(), want)
	}
	// A rule whose cells get larger cannot use the connection any more, and can when they are smaller again.
	const rule = "table=ms0 capacity=16 cells=4 cell="
	s = newServed(t, rule+"1024")
	l = s.m.Links.All[0]
	s.offer(l, 1024)
	for i, cell := range []string{"2048", "512"} {
		ok := i == 1
		if s.rule(rule + cell); l.srv.Up() != ok || (l.Why() == "") != ok {
			t.Errorf("cells of %s bytes: up %v, %q", cell, l.srv.Up(), l.Why())
		}
		s.send(ping(80, 1, 9))
		if st := s.m.Stats(); st.Blocked != 1 || st.Misses != uint64(i) {
			t.Errorf("cells of %s bytes: %+v", cell, st)
		}
	}
}
