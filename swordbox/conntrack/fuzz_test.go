package conntrack

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// consistent checks the invariants of a table.
func (r *rig) consistent() {
	r.t.Helper()
	used, learning, closed, perHost := 0, 0, 0, map[*host]int{}
	for id, flow := range r.flows {
		if flow.ID != uint32(id) {
			r.t.Fatalf("flow %d says that it is %d", id, flow.ID)
		}
		if flow.Generation == 0 {
			continue
		}
		used++
		perHost[flow.host]++
		if r.index.get(&flow.key) != flow {
			r.t.Fatalf("flow %d is not found", id)
		}
		if (flow.learn != nil) != (flow.State == Learning) {
			r.t.Fatalf("flow %d is %v, learning %p", id, flow.State, flow.learn)
		}
		if flow.learn != nil {
			learning++
		}
		if flow.State == Closed {
			closed++
		}
		if p := flow.Peer; p != nil && (p.Peer != flow || p.Generation == 0 || p.RespQPN != flow.ReqQPN || p.Requester != flow.Responder) {
			r.t.Fatalf("flow %d and its peer %d disagree", id, p.ID)
		}
		if flow.State != Learning && flow.State != Closed && flow.Peer == nil {
			r.t.Fatalf("flow %d is %v without a peer", id, flow.State)
		}
		if s := flow.setup; s != nil && (!s.replied || s.toB != flow && s.toA != flow || r.setups.known[s.a] != s || r.setups.known[s.b] != s) {
			r.t.Fatalf("flow %d has a foreign set-up", id)
		}
	}
	st := r.Stats()
	if used != st.Flows || used > r.MaxFlows() || learning != st.Learning || learning > r.cfg.Learning || closed != st.Closed {
		r.t.Fatalf("%d flows, %d learning, %d closed: %+v", used, learning, closed, st)
	}
	for _, h := range r.hosts.byAddr {
		if h.flows != perHost[h] || h.setups < 0 {
			r.t.Fatalf("host %v has %d flows, not %d; %d set-ups", h.addr, perHost[h], h.flows, h.setups)
		}
	}
	crowded := 0
	for e, c := range r.learner.pairs {
		crowded += len(c.flows)
		for _, flow := range c.flows {
			if flow.learn == nil || flow.key.addrPair != e {
				r.t.Fatal("a crowd has a foreign flow")
			}
		}
	}
	if crowded != learning || len(r.setups.asked) > r.cfg.Connections || len(r.setups.known) > r.MaxFlows() {
		r.t.Fatalf("%d in crowds of %d, %d asked, %d set up", crowded, learning, len(r.setups.asked), len(r.setups.known))
	}
}

// FuzzTable feeds a small table with sequences of valid and invalid packets, timeouts and control
// calls. Three bytes are a step.
func FuzzTable(f *testing.F) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 8 {
		b := make([]byte, 600)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r := newRig(t, func(c *Config) { c.Connections, c.Learning = 4, 6 })
		for ; len(b) >= 3; b = b[3:] {
			r.fuzzStep(b[0], b[1], b[2])
			r.consistent()
		}
	})
}

// fuzzStep makes the step that three bytes choose.
func (r *rig) fuzzStep(what, who, arg byte) {
	a, b := 1+int(who&3), 1+int(who>>2&3)
	qpn, psn := wire.QPN(2+who>>4), wire.PSN(arg&15).Add(-8)
	ops := []wire.Opcode{wire.RCWriteOnly, wire.RCReadRequest, wire.RCCmpSwap, wire.RCAck, wire.RCAtomicAck, wire.RCReadResponseFirst, wire.RCReadResponseOnly, wire.RCWriteFirst}
	cmID := mad.CommID(1 + arg&3)
	peerID := mad.CommID(1 + arg>>2&3)
	switch what % 16 {
	case 8:
		m := reqFrom(a, b, cmID, qpn, psn)
		r.see(datagram(a, b, m))
	case 9:
		r.see(datagram(a, b, &mad.REP{LocalID: cmID, RemoteID: peerID, QPN: qpn, PSN: psn}))
	case 10:
		r.see(datagram(a, b, &mad.RTU{LocalID: cmID, RemoteID: peerID}))
	case 11:
		r.see(datagram(a, b, reject(cmID, peerID)))
	case 12:
		r.see(datagram(a, b, &mad.DREQ{LocalID: cmID, RemoteID: peerID, QPN: qpn}))
	case 13:
		r.see(datagram(a, b, &mad.DREP{LocalID: cmID, RemoteID: peerID}))
	case 14:
		r.now = r.now.Add(time.Duration(arg) * time.Second)
		r.Tick(r.now)
	case 15:
		switch arg & 7 {
		case 0:
			r.forget(r.now, addr(a))
		case 1:
			r.Bind(addr(a), b)
		case 2:
			if flow := r.flow(a, b, qpn); flow != nil && flow.Peer != nil {
				flow.Pinned = !flow.Pinned
			}
		}
	default:
		f := packet(a, b, qpn, ops[what%8], psn)
		f.RETH.Length = uint32(arg) << 6
		f.Payload = make([]byte, int(arg>>4)<<8)
		r.bad = arg&0x0e == 0x0e
		in := a
		if what&0x80 != 0 && arg&1 == 0 {
			in = b
		}
		r.now++
		if s := r.Packet(r.now, in, f, r); s.Flow != nil && s.Bad == Fine && s.Class == New {
			s.Flow.Advance(s.Span)
		}
		r.bad = false
	}
}

// TestRandomSteps is FuzzTable without a fuzzer.
func TestRandomSteps(t *testing.T) {
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 5))
		r := newRig(t, func(c *Config) { c.Connections, c.Learning = 4, 6 })
		for range 1000 {
			r.fuzzStep(byte(rnd.Uint32()), byte(rnd.Uint32()), byte(rnd.Uint32()))
			r.consistent()
		}
	}
}
