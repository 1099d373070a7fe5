package cloversteer

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// rig is a machine with one rule, and a connection to its server.
type rig struct {
	t    *testing.T
	sw   *pipeline.Switch
	m    *Machine
	rule rules.Rule
	flow conntrack.Flow
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, m: New(Config{}), rule: rules.Rule{Server: netip.MustParseAddr("10.0.0.1"), Action: rules.Steer, Mode: rules.Published}}
	r.set(r.rule)
	var err error
	if r.sw, err = pipeline.New(pipeline.Config{Ports: 2, Program: nothing{}}); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) set(list ...rules.Rule) {
	r.t.Helper()
	s, err := rules.NewSet(list)
	if err != nil {
		r.t.Fatal(err)
	}
	r.m.SetRules(s)
}

// send passes a request for a node, whose key is 7, to the machine. It returns the address to which
// the machine sends the request.
func (r *rig) send(port uint16, op wire.Opcode, psn wire.PSN, va uint64) uint64 {
	p := &pipeline.Parsed{}
	p.UDP.SrcPort, p.BTH.Opcode, p.BTH.PSN = port, op, psn
	p.AtomicETH.VA, p.RETH = va, wire.RETH{VA: va, Length: 128}
	p.Payload = make([]byte, 128)
	layout.Hardened.PutNode(p.Payload, layout.Header(1), 7, nil)
	var out packetio.Batch
	r.sw.Step(0, &out, func(c *pipeline.Ctx) {
		r.m.Request(c, conntrack.Seen{Flow: &r.flow, Class: conntrack.New, Span: 1}, &r.rule, p)
	})
	if op == wire.RCCmpSwap {
		return p.AtomicETH.VA
	}
	return p.RETH.VA
}

// Hole 23: after its NIC has changed the UDP source port, a client's append is not recognised and
// leaves the tail as it is; a retransmission of an append that was steered goes where the client
// says. When the former port comes back, what the switch knew of it is there again.
func TestAnotherPortIsAnotherConnection(t *testing.T) {
	const write, swap, read = wire.RCWriteOnly, wire.RCCmpSwap, wire.RCReadRequest
	r := newRig(t)
	for i, c := range []struct {
		port     uint16
		op       wire.Opcode
		psn      wire.PSN
		va, want uint64
	}{
		{1, write, 1, 0x1000, 0x1000},
		{1, write, 2, 0x2000, 0x2000},
		{1, swap, 3, 0x1000, 0x1000}, // the tail is 0x2000
		{1, write, 4, 0x3000, 0x3000},
		{1, swap, 5, 0x1000, 0x2000}, // the tail is 0x3000
		{2, swap, 5, 0x1000, 0x1000}, // a retransmission of it, by another port
		{1, swap, 5, 0x1000, 0x2000},
		{1, write, 6, 0x4000, 0x4000},
		{2, swap, 7, 0x1000, 0x1000}, // its append, by another port
		{2, read, 8, 0x1000, 0x3000},
		{1, swap, 9, 0x1000, 0x3000}, // the append of 0x4000 by the first port
		{2, read, 10, 0x1000, 0x4000},
	} {
		if va := r.send(c.port, c.op, c.psn, c.va); va != c.want {
			t.Errorf("step %d: %v PSN %d by port %d to %#x goes to %#x, want %#x", i, c.op, c.psn, c.port, c.va, va, c.want)
		}
	}
	if s := r.m.Stats(); s.Repeated != 1 || s.Appends != 3 {
		t.Errorf("%d retransmissions, %d appends, want 1 and 3", s.Repeated, s.Appends)
	}
}

// A connection has a track for each of the last maxPorts ports. The track of an older port is forgotten.
func TestTracksOfAConnectionAreBounded(t *testing.T) {
	r := newRig(t)
	var psn wire.PSN
	for port := range uint16(maxPorts + 1) {
		psn = psn.Next()
		r.send(port, wire.RCWriteOnly, psn, 0x1000)
	}
	tracks := r.flow.Ext.(*tracks)
	if len(tracks.byPort) != maxPorts || tracks.of(0) != nil {
		t.Fatalf("%d tracks, that of the oldest port: %v", len(tracks.byPort), tracks.of(0))
	}
	for port := range uint16(maxPorts) {
		if w := tracks.of(port + 1); w == nil || !w.last.written {
			t.Errorf("the track of port %d is forgotten", port+1)
		}
	}
}

// While no rule selects a server, the machine sees no PSNs. When a rule comes back, the PSNs may have
// wrapped: requests must not be taken for retransmissions.
func TestTracksAreForgottenWithTheRules(t *testing.T) {
	r := newRig(t)
	r.send(1, wire.RCWriteOnly, 1<<23-1, 0x1000)
	r.set()
	r.set(r.rule)
	r.send(1, wire.RCWriteOnly, 5, 0x2000)
	r.send(1, wire.RCCmpSwap, 6, 0x1000)
	if s := r.m.Stats(); s.Repeated != 0 || s.Appends != 1 {
		t.Errorf("%d retransmissions, %d appends, want 0 and 1", s.Repeated, s.Appends)
	}
}

// Hole 41: a data WRITE that the next request has overtaken is taken for a retransmission.
func TestOvertakenWriteIsNotSeen(t *testing.T) {
	r := newRig(t)
	r.send(1, wire.RCReadRequest, 2, 0x1000)
	r.send(1, wire.RCWriteOnly, 1, 0x1000)
	if s := r.m.Stats(); s.Repeated != 1 || s.Nodes != 0 {
		t.Errorf("%d retransmissions, %d nodes, want 1 and 0", s.Repeated, s.Nodes)
	}
}
