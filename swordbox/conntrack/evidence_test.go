package conntrack

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func (r *rig) writes(b int, qb wire.QPN, psns ...wire.PSN) {
	for _, psn := range psns {
		r.ask(packet(1, b, qb, wire.RCWriteOnly, psn))
	}
}

func (r *rig) acks(b int, qa wire.QPN, psns ...wire.PSN) {
	for _, psn := range psns {
		r.see(packet(b, 1, qa, wire.RCAck, psn))
	}
}

// One response does not pair two flows, nor do two, nor retransmissions of one.
func TestConfirmation(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x22, 1, 2, 3)
	r.acks(2, 0x11, 1, 1, 1, 1, 2)
	if len(r.paired()) != 0 {
		t.Fatal("paired after responses to two requests")
	}
	r.acks(2, 0x11, 3)
	if len(r.paired()) != 2 {
		t.Fatal("not paired after three")
	}
}

// A second candidate makes the confirmations start over.
func TestSecondCandidate(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x22, 1, 2, 3, 4)
	r.acks(2, 0x11, 1, 2)
	r.writes(2, 0x23, 1, 2, 3)
	r.acks(2, 0x11, 3)
	if len(r.paired()) != 0 {
		t.Fatal("paired with two candidates")
	}
	r.acks(2, 0x11, 4)
	if len(r.paired()) != 0 {
		t.Fatal("paired by confirmations from before the second candidate")
	}
}

// A request that was lost before the switch and retransmitted counts as requested.
func TestRetransmissionFillsAGap(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x22, 1, 3, 2, 3, 4)
	r.acks(2, 0x11, 1, 2, 3, 4)
	if got := r.paired(); len(got) != 2 {
		t.Fatalf("%v", got)
	}
}

// Queue pairs that ended without a response do not stay candidates, even if their PSNs are ahead of
// those in use.
func TestDeadFlowsAreNoCandidates(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x31, 0x300000, 0x300001)
	r.writes(2, 0x32, 0x7fff00)
	for i := range wire.PSN(2 * maxRuns) { // with gaps, so that there are more runs of PSNs than the table remembers
		r.writes(2, 0x33, 0x200000+3*i)
	}
	r.writes(2, 0x22, 1, 2, 3)
	r.acks(2, 0x11, 1, 2, 3)
	if got := r.paired(); len(got) != 2 {
		t.Fatalf("%v", got)
	}
}

// A request that arrives after its successor counts as requested.
func TestReorderedRequestCounts(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x22, 3, 1, 2)
	r.acks(2, 0x11, 1, 2, 3)
	r.writes(2, 0x22, 4, 5)
	r.acks(2, 0x11, 4, 5)
	if got := r.paired(); len(got) != 2 || r.Stats().Contradicted != 0 {
		t.Fatalf("%v, %+v", got, r.Stats())
	}
}

// Two flows claim the same peer. One of them must be wrong, so neither is paired. (The table is
// configured as if no connection had existed at its start, which is wrong here.)
func TestContested(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x22, 100) // repeated: the requester had sent PSNs up to 110 before the table tracked the flow
	r.writes(2, 0x23, 100, 101, 102, 103, 104, 105, 106, 107, 108)
	r.acks(2, 0x11, 105, 106)      // a response for the first flow, but only the second one fits
	r.acks(2, 0x12, 100, 101, 102) // a response for the second flow
	r.acks(2, 0x11, 107)
	if len(r.paired()) != 0 || r.Stats().Contested == 0 {
		t.Fatalf("%v, %+v", r.paired(), r.Stats())
	}
	for _, qpn := range []wire.QPN{0x11, 0x12} {
		if l := r.flow(2, 1, qpn).learn; l.fits != nil || l.votes != 0 {
			t.Errorf("the flow to %#x keeps %d votes", uint32(qpn), l.votes)
		}
	}
}

// Conclusions about a flow end with it: its slot may be used for another flow.
func TestConclusionsEndWithTheFlow(t *testing.T) {
	r := newRig(t, nil)
	r.writes(2, 0x22, 1)
	r.writes(2, 0x23, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	r.acks(2, 0x11, 5) // this confirmation does not count for the first flow
	r.drop(r.flow(1, 2, 0x22))
	r.drop(r.flow(1, 2, 0x23))
	r.writes(2, 0x25, 6, 7, 8, 9)
	r.writes(2, 0x24, 6, 7, 8, 9) // this flow uses the slot of the first one
	r.acks(2, 0x12, 9)
	r.writes(2, 0x24, 10, 11, 12, 13)
	r.acks(2, 0x11, 10, 11, 12)
	if got := r.paired(); len(got) != 2 || got[0] != "1:0x11>2:0x24" && got[1] != "1:0x11>2:0x24" {
		t.Fatalf("%v", got)
	}
}

// When a REP finds no room for its second flow, the first one is released.
func TestRefusedReply(t *testing.T) {
	r := newRig(t, nil)
	r.connect()
	r.see(datagram(1, 2, reject(0xa1, 0xb1)))
	if st := r.Stats(); st.Flows != 0 || len(r.setups.known) != 0 {
		t.Errorf("%+v", st)
	}
	r.connect()
	r.see(datagram(2, 1, reject(0xb1, 0xa1)))
	if st := r.Stats(); st.Flows != 0 || len(r.setups.known) != 0 {
		t.Errorf("%+v", st)
	}
}

// A bound address stays at its port, however long it is silent.
func TestBoundAddressStays(t *testing.T) {
	r := newRig(t, nil)
	r.Bind(addr(1), 1)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	r.now = r.now.Add(2 * hostIdle)
	if s := r.Packet(r.now, 7, packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected), r); s.Bad != Spoofed {
		t.Errorf("%+v", s)
	}
}

// When all flows are in use, a host that needs a new one loses one of its own learning flows.
func TestFullTable(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Connections, c.Learning = 8, 16 })
	for i := range 6 {
		r.learn(1, 2, wire.QPN(0x100+i), wire.QPN(0x200+i), 7)
	}
	r.ask(packet(4, 2, 0x998, wire.RCWriteOnly, 55))
	r.ask(packet(4, 2, 0x999, wire.RCWriteOnly, 55))
	for i := range 100 {
		r.see(packet(5, 2, wire.QPN(0x1000+i), wire.RCWriteOnly, 1))
	}
	if r.flow(4, 2, 0x998) == nil || r.flow(4, 2, 0x999) == nil || r.Stats().Flows != 16 || r.Stats().Evicted != 98 {
		t.Errorf("%+v", r.Stats())
	}
	// An announced connection replaces a learning flow.
	r.connect()
	if got := len(r.paired()); got != 14 {
		t.Errorf("%d flows have a peer", got)
	}
}

// The first packet after a silence may be lost. Then the second one still belongs to the same
// connection.
func TestLossAfterASilence(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		r := newRig(t, nil)
		flow := r.learn(1, 2, 0x11, 0x22, 100)
		flow.Pinned = pinned
		gen := flow.Generation
		r.now = r.now.Add(r.cfg.Quarantine + time.Second)
		if s := r.see(packet(1, 2, 0x22, wire.RCWriteOnly, flow.Expected.Next())); s.Bad != Fine || s.Class != Ahead || flow.Generation != gen {
			t.Errorf("pinned %v: %+v", pinned, s)
		}
	}
}

// A request of a flow whose earlier requests the table may have missed is not Alone before the flow
// is settled.
func TestAloneInTheMiddle(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Settle = time.Second })
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 103)); s.Alone {
		t.Error("at the start")
	}
	r.acks(2, 0x11, 103)
	r.now = r.now.Add(r.cfg.Quarantine)
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 104)); !s.Alone || s.Flow != flow {
		t.Errorf("later: %+v", s)
	}
	// A connection that begins after the table's start has no earlier requests that the table may
	// have missed.
	late := r.learn(1, 2, 0x12, 0x23, 100)
	if s := r.ask(packet(1, 2, 0x23, wire.RCWriteOnly, late.Expected)); !s.Alone || late.Middle || !flow.Middle {
		t.Errorf("a later connection: %+v", s)
	}
}

// An evicted flow may have missed packets when it is created again.
func TestAloneAfterEviction(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Learning = 4 })
	r.writes(2, 0x22, 1)
	r.writes(2, 0x23, 1)
	r.writes(2, 0x24, 1)
	if r.Stats().Evicted == 0 {
		t.Fatal("nothing had to go")
	}
	r.drop(r.flow(1, 2, 0x23))
	r.drop(r.flow(1, 2, 0x24))
	r.learn(1, 2, 0x11, 0x22, 5)
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 8)); s.Alone {
		t.Error("alone after an eviction")
	}
	if !r.flow(1, 2, 0x22).Middle {
		t.Error("not said to be in the middle")
	}
}

// forget ends all connections of an address.
func (t *Table) forget(now clock.Time, a netip.Addr) {
	for _, fl := range t.flows {
		switch {
		case fl.Generation == 0 || fl.State == Closed || fl.Requester != a && fl.Responder != a:
		case fl.State == Learning:
			t.drop(fl)
		default:
			t.end(now, fl)
		}
	}
}

// All connections of an address end, and those of other addresses stay.
func TestForget(t *testing.T) {
	r := newRig(t, nil)
	gone := r.learn(1, 2, 0x11, 0x22, 100)
	stays := r.learn(1, 3, 0x12, 0x23, 100)
	r.writes(2, 0x29, 7)
	r.forget(r.now, addr(2))
	if gone.State != Closed || gone.Peer.State != Closed || stays.State != Open || r.flow(1, 2, 0x29) != nil {
		t.Errorf("%v, %v", gone.State, stays.State)
	}
}

// After Clear the table assumes that connections existed before; pinned flows stay.
func TestClear(t *testing.T) {
	r := newRig(t, nil)
	pinned := r.learn(1, 2, 0x11, 0x22, 100)
	pinned.Pinned = true
	r.learn(1, 2, 0x12, 0x23, 100)
	r.writes(2, 0x24, 7)
	if n := r.Clearable(); n != 3 {
		t.Errorf("%d flows can be cleared", n)
	}
	if n := r.Clear(); n != 3 || r.flow(1, 2, 0x22) != pinned || r.Stats().Flows != 2 {
		t.Errorf("%d cleared, %+v", n, r.Stats())
	}
	r.learn(1, 2, 0x12, 0x23, 103)
	if s := r.ask(packet(1, 2, 0x23, wire.RCWriteOnly, 106)); s.Alone {
		t.Error("alone in the middle")
	}
}

// Crashed hosts leave pinned flows. They stay while there is room; when the table is nearly full,
// the silent ones are ended.
func TestPinnedFlowsOfCrashedHosts(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Connections = 16 })
	for i := range 13 {
		r.learn(1, 2, wire.QPN(0x100+i), wire.QPN(0x200+i), 7).Pinned = true
	}
	age := func(d time.Duration) {
		for end := r.now.Add(d); r.now < end; r.now = r.now.Add(time.Second) {
			r.ask(packet(1, 2, 0x200, wire.RCWriteOnly, r.flow(1, 2, 0x200).Expected)) // one of their hosts is alive
			r.Tick(r.now)
		}
	}
	age(r.cfg.Idle + 2*time.Second)
	if st := r.Stats(); st.GivenUp != 0 || st.Flows != 26 {
		t.Fatalf("with room: %+v", st)
	}
	r.learn(1, 2, 0x300, 0x400, 7).Pinned = true
	r.learn(1, 2, 0x301, 0x401, 7).Pinned = true
	age(2 * time.Second)
	if st := r.Stats(); st.GivenUp != 1 || r.flow(1, 2, 0x200).State != Open || r.flow(1, 2, 0x401).State != Open {
		t.Fatalf("nearly full: %+v", st)
	}
	age(r.cfg.Quarantine + 2*time.Second)
	if st := r.Stats(); st.Flows != 28 {
		t.Fatalf("after the quarantine: %+v", st)
	}
}

// IPv6 connections are tracked like IPv4 connections, and at the same time.
func TestIPv6(t *testing.T) {
	r := newRig(t, nil)
	r.learn(1, 2, 0x11, 0x22, 100)
	v6 := func(a, b int, qpn wire.QPN, op wire.Opcode, psn wire.PSN) *wire.Frame {
		f := packet(a, b, qpn, op, psn)
		f.V6 = true
		f.IPv6 = wire.IPv6{HopLimit: 64, Src: [16]byte{0xfd, 15: byte(a)}, Dst: [16]byte{0xfd, 15: byte(b)}}
		return f
	}
	for psn := range wire.PSN(confirm) {
		r.ask(v6(1, 2, 0x22, wire.RCWriteOnly, 500+psn))
		r.see(v6(2, 1, 0x11, wire.RCAck, 500+psn))
	}
	s := r.ask(v6(1, 2, 0x22, wire.RCWriteOnly, 500+confirm))
	if s.Class != New || s.Flow.Peer == nil || s.Flow.Requester != netip.AddrFrom16([16]byte{0xfd, 15: 1}) || !s.Flow.Path.V6 {
		t.Errorf("%+v, %+v", s, s.Flow)
	}
	if flow := r.flow(1, 2, 0x22); flow.Expected != 103 || r.Stats().Flows != 4 || r.Stats().Hosts != 4 {
		t.Errorf("IPv4: %+v, %+v", flow, r.Stats())
	}
}

// The first response of a READ does not show where the next request begins: the rest may be lost,
// and is then requested again.
func TestPartOfAReadSyncsNothing(t *testing.T) {
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	flow.sync = unsynced // the switch does not know the expected PSN any more
	ask := packet(1, 2, 0x22, wire.RCReadRequest, 103)
	ask.RETH.Length = 600
	r.ask(ask)
	first := packet(2, 1, 0x11, wire.RCReadResponseFirst, 103)
	first.Payload = make([]byte, 512)
	r.see(first)
	rest := packet(1, 2, 0x22, wire.RCReadRequest, 104)
	rest.RETH.Length = 88
	if s := r.ask(rest); s.Class == New {
		t.Errorf("the rest of a READ is taken for a new request: %+v", s)
	}
	r.see(packet(2, 1, 0x11, wire.RCReadResponseOnly, 104))
	if s := r.ask(packet(1, 2, 0x22, wire.RCWriteOnly, 105)); s.Class != New {
		t.Errorf("what follows is %v", s.Class)
	}
}
