package conntrack

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// conn is a model of a connection: a client that sends requests within a window, and a server that
// answers in order. Its packets cross the table one at a time in a random order.
type conn struct {
	a, b   int
	qa, qb wire.QPN
	next   wire.PSN // PSN of the client
	serve  wire.PSN // PSN of the next request that the server answers
	acked  wire.PSN // PSN up to which the client has responses
	window int
	kinds  []wire.Opcode // of requests by PSN, used in turn; nil: WRITEs
}

func (c *conn) op(psn wire.PSN) wire.Opcode {
	if len(c.kinds) == 0 {
		return wire.RCWriteOnly
	}
	return c.kinds[int(psn)%len(c.kinds)]
}

func (c *conn) canAsk() bool    { return int(wire.Diff(c.next, c.acked)) < c.window }
func (c *conn) canAnswer() bool { return wire.Diff(c.next, c.serve) > 0 }

func (c *conn) ask(r *rig) {
	r.ask(packet(c.a, c.b, c.qb, c.op(c.next), c.next))
	c.next = c.next.Next()
}

func (c *conn) answer(r *rig) {
	op := wire.RCAck
	switch c.op(c.serve) {
	case wire.RCReadRequest, wire.RCAtomicWrite, wire.RCFlush:
		op = wire.RCReadResponseOnly
	case wire.RCCmpSwap:
		op = wire.RCAtomicAck
	}
	r.see(packet(c.b, c.a, c.qa, op, c.serve))
	c.serve = c.serve.Next()
	c.acked = c.serve
}

// check fails if any two flows are paired wrongly, and returns how many connections are known.
func check(t *testing.T, r *rig, conns []*conn) (known int) {
	t.Helper()
	right := map[string]bool{}
	for _, c := range conns {
		right[fmt.Sprintf("%d:%#x>%d:%#x", c.a, uint32(c.qa), c.b, uint32(c.qb))] = true
		right[fmt.Sprintf("%d:%#x>%d:%#x", c.b, uint32(c.qb), c.a, uint32(c.qa))] = true
	}
	list := r.paired()
	for _, p := range list {
		if !right[p] {
			t.Fatalf("%s is no connection", p)
		}
	}
	return len(list) / 2
}

// Many connections between the same two hosts that start with the same PSN, at any pace, are
// paired, and never wrongly.
func TestLearnIdenticalPSNs(t *testing.T) {
	for seed := range uint64(20) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		r := newRig(t, nil)
		start := []wire.PSN{0, 3185, 0xfffff0}[rnd.IntN(3)]
		var conns []*conn
		for i := range 2 + rnd.IntN(30) {
			conns = append(conns, &conn{
				a: 1, b: 2, qa: wire.QPN(0x100 + i), qb: wire.QPN(0x200 + i), next: start, serve: start, acked: start,
				window: 1 + rnd.IntN(8),
			})
		}
		for step := 0; step < 100_000 && len(r.paired()) < 2*len(conns); step++ {
			if c := conns[rnd.IntN(len(conns))]; c.canAnswer() && (!c.canAsk() || rnd.IntN(2) == 0) {
				c.answer(r)
			} else {
				c.ask(r)
			}
			if step%16 == 0 {
				check(t, r, conns)
			}
		}
		if n := check(t, r, conns); n != len(conns) {
			t.Errorf("seed %d: %d of %d connections known", seed, n, len(conns))
		}
	}
}

// Connections in perfect lockstep differ only in the kinds of their requests. If these are the
// same, too, the table does not pair the flows. One step out of lockstep is enough to pair them.
func TestLearnLockstep(t *testing.T) {
	for _, differ := range []bool{false, true} {
		r := newRig(t, nil)
		conns := []*conn{{a: 1, b: 2, qa: 0x11, qb: 0x21, window: 9}, {a: 1, b: 2, qa: 0x12, qb: 0x22, window: 9}}
		if differ {
			conns[1].kinds = []wire.Opcode{wire.RCWriteOnly, wire.RCCmpSwap, wire.RCReadRequest, wire.RCAtomicWrite, wire.RCFlush}
		}
		step := func() {
			conns[0].ask(r)
			conns[1].ask(r)
			conns[0].answer(r)
			conns[1].answer(r)
		}
		for range 50 {
			step()
		}
		want := 0
		if differ {
			want = 2
		}
		if n := check(t, r, conns); n != want {
			t.Errorf("differ %v: %d known, want %d", differ, n, want)
		}
		conns[0].ask(r)
		conns[0].answer(r)
		for range 10 {
			step()
		}
		if n := check(t, r, conns); n != 2 {
			t.Errorf("differ %v: %d known in the end", differ, n)
		}
	}
}

// Both ends may send requests. The connection is learnt from either direction.
func TestLearnBothWays(t *testing.T) {
	r := newRig(t, nil)
	there := &conn{a: 1, b: 2, qa: 0x11, qb: 0x22, next: 100, serve: 100, acked: 100, window: 4}
	back := &conn{a: 2, b: 1, qa: 0x22, qb: 0x11, next: 900, serve: 900, acked: 900, window: 4}
	other := &conn{a: 2, b: 1, qa: 0x23, qb: 0x12, next: 900, serve: 900, acked: 900, window: 4}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		c := []*conn{there, back, other}[rnd.IntN(3)]
		if c.canAnswer() && !c.canAsk() {
			c.answer(r)
		} else {
			c.ask(r)
		}
	}
	if n := check(t, r, []*conn{there, other}); n != 2 {
		t.Errorf("%d known: %v", n, r.paired())
	}
	if flow := r.flow(2, 1, 0x11); !flow.Synced() || flow.Expected != back.next {
		t.Errorf("the way back: %+v, want %d", flow, back.next)
	}
}

// A table that starts in the middle of connections sees retransmissions of requests without having
// seen the requests after them, and sees their responses. It must draw no conclusions from those;
// with Settle it waits.
func TestLearnInTheMiddle(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		r := newRig(t, func(c *Config) { c.Settle = time.Second })
		var conns []*conn
		for i := range 2 + rnd.IntN(6) {
			// PSNs 100 to 110 were sent before; some responses were lost, so that clients
			// retransmit.
			conns = append(conns, &conn{a: 1, b: 2, qa: wire.QPN(0x100 + i), qb: wire.QPN(0x200 + i), next: 111, serve: wire.PSN(100 + rnd.IntN(12)), acked: 100, window: 12})
			if rnd.IntN(2) == 0 {
				conns[i].next = wire.PSN(100 + rnd.IntN(11)) // the client retransmits from there
			}
		}
		for range 400 {
			c := conns[rnd.IntN(len(conns))]
			switch {
			case rnd.IntN(2) == 0 && wire.Diff(111, c.serve) > 0 || c.canAnswer() && !c.canAsk():
				c.answer(r)
			default:
				c.ask(r)
			}
			check(t, r, conns)
		}
		for r.now = r.now.Add(time.Minute); r.now < clock.Time(3*time.Minute); r.now = r.now.Add(time.Second) {
			c := conns[rnd.IntN(len(conns))]
			if c.canAnswer() {
				c.answer(r)
			} else {
				c.ask(r)
			}
			check(t, r, conns)
		}
	}
}

// A forged response comes in at another port than the flow's, so it is no evidence. With its own
// address a host can only affect its own connections.
func TestForgedResponses(t *testing.T) {
	r := newRig(t, nil)
	victims := []*conn{
		{a: 1, b: 2, qa: 0x11, qb: 0x21, next: 100, serve: 100, acked: 100, window: 2},
		{a: 1, b: 2, qa: 0x12, qb: 0x22, next: 500, serve: 500, acked: 500, window: 2},
	}
	rnd := rand.New(rand.NewPCG(9, 9))
	forged := 0
	for _, c := range victims { // the flows that the table knows are older
		c.ask(r)
		c.answer(r)
	}
	for range 400 {
		c := victims[rnd.IntN(2)]
		if c.canAnswer() && !c.canAsk() {
			c.answer(r)
		} else {
			c.ask(r)
		}
		// Host 3 acknowledges with the other connection's queue pair, once with the address of host
		// 2 and once with its own.
		f := packet(2, 1, victims[1-rnd.IntN(2)].qa, wire.RCAck, c.serve.Add(rnd.IntN(3)-1))
		r.now++
		if s := r.Packet(r.now, 3, f, r); s.Bad == Spoofed || s.Bad == NoRoom {
			forged++
		} else if r.flow(2, 1, c.qa) != nil && s.Bad != Unknown {
			t.Fatalf("a forged response: %+v", s)
		}
		r.see(packet(3, 1, c.qa, wire.RCAck, c.serve))
		check(t, r, victims)
	}
	if n := check(t, r, victims); n != 2 || forged < 300 {
		t.Errorf("%d known, %d refused", n, forged)
	}
	if r.Stats().Spoofed < 300 {
		t.Errorf("%+v", r.Stats())
	}
}

// A bound address cannot be taken by another port, not even by the first packet; an address that is
// not bound can move after a silence.
func TestSpoofedFirst(t *testing.T) {
	r := newRig(t, nil)
	r.Bind(addr(2), 2)
	f := packet(2, 1, 0x11, wire.RCAck, 5)
	if s := r.Packet(r.now, 3, f, r); s.Bad != Spoofed || r.Stats().Flows != 0 {
		t.Errorf("%+v", s)
	}
	if s := r.Packet(r.now, 2, f, r); s.Bad != Unknown {
		t.Errorf("the true one: %+v", s)
	}
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	f = packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected)
	if s := r.Packet(r.now, 7, f, r); s.Bad != Spoofed || s.Flow != flow || flow.Port != 1 {
		t.Errorf("at another port: %+v", s)
	}
	r.now = r.now.Add(hostIdle)
	if s := r.Packet(r.now, 7, f, r); s.Bad != Fine || s.Class != New || flow.Port != 7 || r.Stats().HostMoves != 1 {
		t.Errorf("after a silence: %+v, port %d", s, flow.Port)
	}
	r.Bind(addr(2), -1)
	r.now = r.now.Add(hostIdle)
	if s := r.Packet(r.now, 8, packet(2, 1, 0x11, wire.RCAck, flow.Expected.Add(-1)), r); s.Bad != Fine {
		t.Errorf("after Bind was taken back: %+v", s)
	}
}

// Nothing is learnt from a damaged packet.
func TestDamagedPackets(t *testing.T) {
	r := newRig(t, nil)
	r.bad = true
	for range 5 {
		if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, 1)); s.Bad != Corrupt || s.Flow != nil {
			t.Fatalf("%+v", s)
		}
	}
	r.bad = false
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	r.bad = true
	first := packet(1, 2, 0x22, wire.RCWriteFirst, flow.Expected)
	first.Payload = make([]byte, 1024)
	r.see(first)
	r.see(packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected))
	r.see(packet(2, 1, 0x11, wire.RCAck, flow.Expected))
	if flow.PathMTU.MTU != 0 || flow.Expected != 103 {
		t.Errorf("%+v", flow)
	}
	flow.Checked = true
	for _, f := range []*wire.Frame{packet(1, 2, 0x22, wire.RCWriteOnly, 103), packet(2, 1, 0x11, wire.RCAck, 103)} {
		if s := r.see(f); s.Bad != Corrupt || s.Flow != flow {
			t.Errorf("%+v", s)
		}
	}
}

// A flood of new queue pairs does not make the table grow, evicts only learning flows, those of the
// flooding host first, and is counted; known connections stay.
func TestFlood(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Connections, c.Learning = 32, 16 })
	var flows []*Flow
	for i := range 20 {
		flows = append(flows, r.learn(1, 2, wire.QPN(0x100+i), wire.QPN(0x200+i), 7))
	}
	young := packet(4, 2, 0x999, wire.RCWriteOnly, 55) // another host's flow that is still learning
	r.ask(young)
	for i := range 5000 {
		r.see(packet(3, 1+i%2, wire.QPN(0x1000+i), wire.RCWriteOnly, 1))
		r.see(packet(3, 1+i%2, wire.QPN(0x9000+i), wire.RCAck, 1))
	}
	st := r.Stats()
	if st.Flows > 64 || st.Learning > 16 || st.Evicted < 9000 {
		t.Errorf("%+v", st)
	}
	if r.flow(4, 2, 0x999) == nil {
		t.Error("the flood took another host's flow")
	}
	for i, flow := range flows {
		if s := r.ask(packet(1, 2, wire.QPN(0x200+i), wire.RCWriteOnly, flow.Expected)); s.Flow != flow || s.Class != New {
			t.Fatalf("flow %d: %+v", i, s)
		}
	}
	if len(r.flows) > 64 || len(r.learner.slots) > 16 {
		t.Errorf("%d flows, %d slots", len(r.flows), len(r.learner.slots))
	}
	// With real connections up to the bound there is no room, and no known flow is evicted.
	for i := range 32 {
		for range confirm {
			r.ask(packet(5, 6, wire.QPN(0x200+i), wire.RCWriteOnly, 3))
			r.see(packet(6, 5, wire.QPN(0x100+i), wire.RCAck, 3))
		}
	}
	if r.Stats().Flows > 64 {
		t.Errorf("%+v", r.Stats())
	}
	for i, flow := range flows {
		if r.flow(1, 2, wire.QPN(0x200+i)) != flow || flow.Peer == nil {
			t.Fatalf("flow %d is gone", i)
		}
	}
}

// A flood of source addresses from one port is bounded, too.
func TestFloodOfAddresses(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	for i := range 5000 {
		f := packet(9, 2, 0x22, wire.RCWriteOnly, 1)
		f.IPv4.Src = [4]byte{172, 16, byte(i >> 8), byte(i)}
		r.now++
		r.Packet(r.now, 9, f, r)
	}
	if st := r.Stats(); st.Hosts > maxHostsPerPort+2 || st.NoRoom < 4900 {
		t.Errorf("%+v", st)
	}
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected)); s.Class != New {
		t.Errorf("%+v", s)
	}
	r.now = r.now.Add(time.Hour)
	for range 100 { // first the idle flows are forgotten, then their addresses
		r.Tick(r.now)
		r.now = r.now.Add(time.Second)
	}
	f := packet(9, 2, 0x22, wire.RCWriteOnly, 1)
	if s := r.see(f); s.Bad != Fine {
		t.Errorf("after the flood: %+v", s)
	}
}

// Of 1,200 connections between two hosts that start with the same PSN, at least 1,000 are learnt.
func TestThousandConnections(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Connections = 4096 })
	rnd := rand.New(rand.NewPCG(4, 4))
	var conns []*conn
	for i := range 1200 {
		conns = append(conns, &conn{a: 1, b: 2, qa: wire.QPN(0x10000 + i), qb: wire.QPN(0x20000 + i), next: 3185, serve: 3185, acked: 3185, window: 4})
	}
	begin := time.Now()
	for range 600_000 {
		if c := conns[rnd.IntN(len(conns))]; c.canAnswer() && (!c.canAsk() || rnd.IntN(2) == 0) {
			c.answer(r)
		} else {
			c.ask(r)
		}
		r.now = r.now.Add(10 * time.Microsecond)
	}
	n := check(t, r, conns)
	t.Logf("%d of %d known after %v, %+v", n, len(conns), time.Since(begin), r.Stats())
	if n < 1000 {
		t.Errorf("%d of %d known", n, len(conns))
	}
}

// An application connects the queue pair of a silent connection again, out of band. The table does
// not use the old flow for the new connection. If the flow is pinned, the table refuses the
// packets.
func TestReuse(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		gen := flow.Generation
		flow.Pinned = pinned
		r.now = r.now.Add(r.cfg.Quarantine + time.Second)
		if pinned {
			for _, psn := range []wire.PSN{100, 5, 102, 103 + nearby} {
				if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, psn)); s.Bad != Quarantined || s.Flow != flow {
					t.Errorf("PSN %d: %+v", psn, s)
				}
			}
			if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected)); s.Bad != Fine || s.Class != New {
				t.Errorf("the true one after a silence: %+v", s)
			}
			continue
		}
		r.see(packet(1, 2, 0x22, wire.RCWriteOnly, 100))
		if now := r.flow(1, 2, 0x22); now.Generation == gen || now.State != Learning || r.flow(2, 1, 0x11) != nil || r.Stats().Reused != 1 {
			t.Errorf("%+v, %+v", now, r.Stats())
		}
		r.learn(1, 2, 0x19, 0x22, 101)
	}
}

// First is true only for the first request of a flow of which no packet was missed.
func TestFirst(t *testing.T) {
	r := newRig(t, nil)
	for i, want := range []bool{true, false, false} {
		s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, wire.PSN(5+i/2))) // the second one is a retransmission of the first
		if got := s.Flow.First(); got != want {
			t.Errorf("request %d: %v", i, got)
		}
	}
	r = newRig(t, func(c *Config) { c.Settle = 0 })
	if r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 5)).Flow.First() {
		t.Error("there may have been requests before the table looked")
	}
}
