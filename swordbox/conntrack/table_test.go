package conntrack

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The index gives the same results as a map under random additions and removals, in a table with
// many collisions.
func TestIndexAgreesWithMap(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		const flows = 24
		x := newIndex(flows, seed)
		model := map[wire.QPN]*Flow{}
		for step := range 2000 {
			q := wire.QPN(rnd.IntN(64))
			k := key{addrPair{a: 7}, q}
			if r := model[q]; r != nil {
				x.remove(r)
				delete(model, q)
			} else if len(model) < flows {
				model[q] = &Flow{entry: entry{key: k}}
				x.put(model[q])
			}
			for q := range wire.QPN(64) {
				k := key{addrPair{a: 7}, q}
				if got := x.get(&k); got != model[q] {
					t.Fatalf("seed %d step %d: key %d is %p, want %p", seed, step, q, got, model[q])
				}
			}
		}
	}
}

// Keys of different families and directions differ, and reversing a key twice gives the original.
func TestAddrPair(t *testing.T) {
	v4 := addrsBetween(addr(1), addr(2))
	var f wire.Frame
	f.V6 = true
	f.IPv6.Src, f.IPv6.Dst = addr(1).As16(), addr(2).As16()
	v6 := addrsOf(&f)
	all := []addrPair{v4, v4.back(), v6, v6.back()}
	for i, a := range all {
		if a.back().back() != a {
			t.Errorf("%v: back is %v", a, a.back())
		}
		for _, b := range all[i+1:] {
			if a == b {
				t.Errorf("%v twice", a)
			}
		}
	}
	if addrsOf(packet(1, 2, 3, wire.RCAck, 0)) != v4 {
		t.Error("a packet's ends are not those of its addresses")
	}
}

// The class of a request is what its responder would decide (IBTA C9-60 and following: expected,
// ahead, behind).
func TestClasses(t *testing.T) {
	r := newRig(t, nil)
	for _, start := range []wire.PSN{5, 0xfffffc} {
		qa, qb := wire.QPN(0x100+start), wire.QPN(0x200+start)
		flow := r.learn(1, 2, qa, qb, start)
		at := flow.Expected
		for i, c := range []struct {
			off   int
			class Class
		}{{0, New}, {0, Duplicate}, {1, New}, {3, Ahead}, {2, New}, {-3, Duplicate}, {-1<<23 + 3, Duplicate}, {1<<23 + 2, Ahead}, {3, New}} {
			s := r.ask(packet(1, 2, qb, wire.RCWriteOnly, at.Add(c.off)))
			if s.Flow != flow || s.Class != c.class || s.Span != 1 || s.Bad != Fine || s.Response {
				t.Errorf("%d: PSN %+d of %d is %v (%+v), want %v", i, c.off, start, s.Class, s, c.class)
			}
		}
	}
}

// A request is Alone only if every request before it was answered.
func TestAlone(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	p := flow.Expected
	ask := func(psn wire.PSN) bool { return r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, psn)).Alone }
	ack := func(psn wire.PSN) { r.see(packet(2, 1, 0x11, wire.RCAck, psn)) }
	if !ask(p) {
		t.Error("first after all were answered")
	}
	if ask(p.Add(1)) {
		t.Error("with one outstanding")
	}
	ack(p)
	if ask(p.Add(2)) {
		t.Error("with one still outstanding")
	}
	ack(p.Add(2))
	if ask(p.Add(4)) {
		t.Error("ahead of a gap")
	}
	if ask(p.Add(3)) {
		t.Error("while one ahead may be in flight")
	}
	ask(p.Add(4))
	ack(p.Add(4))
	if !ask(p.Add(5)) {
		t.Error("after all were answered")
	}
}

// READs take as many PSNs as they have responses; with an unknown MTU their span becomes known with
// the first response.
func TestReadSpans(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	read := func(psn wire.PSN, n uint32) Seen {
		f := packet(1, 2, 0x22, wire.RCReadRequest, psn)
		f.RETH.Length = n
		return r.ask(f)
	}
	answer := func(op wire.Opcode, psn wire.PSN, n int) {
		f := packet(2, 1, 0x11, op, psn)
		f.Payload = make([]byte, n)
		r.see(f)
	}
	p := flow.Expected
	for _, n := range []uint32{0, 1, 256} {
		if s := read(p, n); s.Span != 1 || s.Class != New {
			t.Fatalf("READ of %d: %+v", n, s)
		}
		answer(wire.RCReadResponseOnly, p, int(n))
		p = p.Next()
	}
	if s := read(p, 3000); s.Span != 0 || s.Class != New || flow.Synced() {
		t.Fatalf("READ of unknown span: %+v, synced %v", s, flow.Synced())
	}
	if s := read(p, 3000); s.Class != Unsynced {
		t.Errorf("after a READ of unknown span: %+v", s)
	}
	answer(wire.RCReadResponseFirst, p, 1024)
	if flow.PathMTU.MTU != 1024 || !flow.Synced() || flow.Expected != p.Add(3) || flow.Peer.PathMTU.MTU != 1024 {
		t.Fatalf("after the first response: %+v", flow)
	}
	answer(wire.RCReadResponseMiddle, p.Add(1), 1024)
	answer(wire.RCReadResponseLast, p.Add(2), 952)
	if s := read(p.Add(3), 4096); s.Span != 4 || s.Class != New || !s.Alone {
		t.Errorf("READ of 4096 at MTU 1024: %+v", s)
	}
	if flow.Expected != p.Add(7) {
		t.Errorf("expected %d, want %d", flow.Expected, p.Add(7))
	}
}

// A READ that is answered by one packet is a lower bound of the MTU, and for the largest MTU also
// its value.
func TestMTUOfOnePacket(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	for _, c := range []struct{ n, mtu int }{{1000, 0}, {2049, 4096}} {
		p := flow.Expected
		f := packet(1, 2, 0x22, wire.RCReadRequest, p)
		f.RETH.Length = uint32(c.n)
		r.ask(f)
		f = packet(2, 1, 0x11, wire.RCReadResponseOnly, p)
		f.Payload = make([]byte, c.n)
		r.see(f)
		if flow.Expected != p.Next() || !flow.Synced() || flow.PathMTU.MTU != c.mtu || flow.PathMTU.SpanOf(uint32(c.n)) != 1 {
			t.Fatalf("READ of %d: %+v", c.n, flow)
		}
	}
	if flow.PathMTU.SpanOf(4097) != 2 {
		t.Errorf("span of 4097 is %d", flow.PathMTU.SpanOf(4097))
	}
}

// The first packet of a message has the size of the MTU, also on a flow that has no peer yet.
func TestMTUOfMessages(t *testing.T) {
	r := newRig(t, nil)
	f := packet(1, 2, 0x22, wire.RCWriteFirst, 99)
	f.Payload = make([]byte, 2048)
	r.ask(f)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	if flow.PathMTU.MTU != 2048 || flow.Peer.PathMTU.MTU != 2048 {
		t.Errorf("MTUs %d and %d", flow.PathMTU.MTU, flow.Peer.PathMTU.MTU)
	}
	f = packet(2, 1, 0x11, wire.RCSendFirst, 7)
	f.Payload = make([]byte, 1000) // no MTU
	r.ask(f)
	if flow.PathMTU.MTU != 2048 {
		t.Errorf("MTU %d", flow.PathMTU.MTU)
	}
}

// Service types without acknowledgements, datagrams and notifications pass without a flow.
func TestUntrackedPackets(t *testing.T) {
	r := newRig(t, nil)
	for _, op := range []wire.Opcode{wire.UCWriteOnly, wire.UCSendFirst, wire.UDSendOnly, wire.CNP, 0x50, 0xa4} {
		if s := r.see(packet(1, 2, 0x22, op, 1)); s.Flow != nil || s.Bad != Untracked {
			t.Errorf("%v: %+v", op, s)
		}
	}
	if s := r.see(packet(1, 2, gsi, wire.UDSendOnly, 1)); s.Bad != Untracked {
		t.Errorf("an empty datagram: %+v", s)
	}
	if st := r.Stats(); st.Flows != 0 {
		t.Errorf("%+v", st)
	}
	// Opcodes of vendors in the space of reliable connections take PSNs like others.
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	if s := r.ask(packet(1, 2, 0x22, 0x19, flow.Expected)); s.Class != New || s.Span != 1 || s.Flow != flow {
		t.Errorf("unknown opcode: %+v", s)
	}
}

// A flow whose expected PSN the table has lost is synchronised again by what the responder accepts.
// Responses to PSNs that were not requested are ignored.
func TestResync(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	p := flow.Expected
	r.see(packet(1, 2, 0x22, wire.RCWriteOnly, p)) // the table did not see them
	r.see(packet(2, 1, 0x11, wire.RCAck, p))
	if flow.Expected != p.Next() || r.Stats().Resyncs != 1 {
		t.Errorf("expected %d, want %d; %+v", flow.Expected, p.Next(), r.Stats())
	}
	if s := r.see(packet(2, 1, 0x11, wire.RCAck, p.Add(5))); s.Bad != Implausible || flow.Expected != p.Next() {
		t.Errorf("an answer to nothing: %+v, expected %d", s, flow.Expected)
	}
	flow.Pinned = true
	r.see(packet(1, 2, 0x22, wire.RCWriteOnly, p.Add(1)))
	if s := r.see(packet(2, 1, 0x11, wire.RCAck, p.Add(1))); s.Bad != Fine || flow.Expected != p.Next() {
		t.Errorf("a pinned flow was synced: %+v, expected %d", s, flow.Expected)
	}
}

// NAKs acknowledge the requests before them, and fatal ones end the connection.
func TestNAKs(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	p := flow.Expected
	for i := range 3 {
		r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, p.Add(i)))
	}
	nak := func(psn wire.PSN, s wire.Syndrome) {
		f := packet(2, 1, 0x11, wire.RCAck, psn)
		f.AETH.Syndrome = s
		r.see(f)
	}
	nak(p.Add(1), wire.NakPSNSequence)
	if flow.Acked != p || flow.State != Open || flow.Expected != p.Add(3) {
		t.Errorf("sequence NAK: %+v", flow)
	}
	nak(p.Add(2), wire.RNRNak|5)
	if flow.Acked != p.Add(1) || flow.State != Open {
		t.Errorf("RNR NAK: %+v", flow)
	}
	nak(p.Add(2), wire.NakRemoteAccess)
	if flow.State != Closing || flow.Peer.State != Closing {
		t.Errorf("fatal NAK: %v, %v", flow.State, flow.Peer.State)
	}
	r.now = r.now.Add(r.cfg.Quarantine + time.Second)
	for range 20 {
		r.Tick(r.now)
		r.now = r.now.Add(time.Second)
	}
	if flow.State != Closed {
		t.Errorf("state %v after a silence", flow.State)
	}
}

// Silent flows are forgotten, pinned ones stay, and OnClose is called once.
func TestIdle(t *testing.T) {
	var closed []uint32
	r := newRig(t, func(c *Config) { c.OnClose = func(r *Flow) { closed = append(closed, r.ID) } })
	a := r.learn(1, 2, 0x11, 0x22, 100)
	b := r.learn(1, 2, 0x12, 0x23, 100)
	b.Pinned = true
	gen := a.Generation
	for end := r.now.Add(r.cfg.Idle + 2*time.Second); r.now < end; r.now = r.now.Add(100 * time.Millisecond) {
		r.Tick(r.now)
	}
	if got := r.paired(); !slices.Equal(got, []string{"1:0x12>2:0x23", "2:0x23>1:0x12"}) {
		t.Errorf("left: %v", got)
	}
	slices.Sort(closed)
	if !slices.Equal(closed, []uint32{0, 1}) || r.Stats().Idled != 1 {
		t.Errorf("closed %v, %+v", closed, r.Stats())
	}
	if n := r.learn(3, 4, 1, 2, 5); n.Generation == gen || n.Ext != nil {
		t.Errorf("generation %d reused", gen)
	}
}

// Packets of a host that come through several ports to other switches are those of one host; at a port
// of the switch's own hosts its address is still another's.
func TestTrunksAreOnePlace(t *testing.T) {
	table := NewTable(Config{Seed: 1, Trunks: []int{3, 4, 5}})
	a := netip.MustParseAddr("10.0.0.9")
	for _, in := range []int{3, 5, 4} {
		if _, why := table.hosts.from(1, a, table.at(in)); why != 0 {
			t.Errorf("at port %d: %v", in, why)
		}
	}
	if table.at(2) != 2 {
		t.Error("a port of a host is taken for another")
	}
	table.Bind(a, 2)
	if !table.Elsewhere(a, 4) || table.Elsewhere(a, 2) {
		t.Error("an address that is bound to a port is not")
	}
}
