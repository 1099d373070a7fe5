package conntrack

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// burst returns n packets of one size from host a to b, the first of which is f; ops are their
// opcodes.
func burst(f *wire.Frame, size int, ops ...wire.Opcode) []byte {
	var b []byte
	for i, op := range ops {
		g := *f
		g.BTH.Opcode, g.BTH.PSN = op, f.BTH.PSN.Add(i)
		start := len(b)
		g.Payload = make([]byte, 2048)
		p := g.Packet.AppendTo(nil)
		b = append(b, p[:min(size, len(p))]...)
		if i == len(ops)-1 {
			b = b[:start+size/2]
		}
	}
	return b
}

// A burst leaves the flow in the same state as its packets one by one, for any PSNs; a burst with
// other packets than Burst handles changes nothing.
func TestBurst(t *testing.T) {
	const size = 1040
	taken := 0
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		one, all := newRig(t, nil), newRig(t, nil)
		var flows [2]*Flow
		for i, r := range []*rig{one, all} {
			flows[i] = r.learn(1, 2, 0x11, 0x22, 100)
			if seed%2 == 0 {
				flows[i].learnMTU(1024) // otherwise the table does not know it of a connection with short messages only
			}
		}
		for range 30 {
			n := 2 + rnd.IntN(6)
			f := packet(1, 2, 0x22, wire.RCWriteMiddle, flows[0].Expected.Add(rnd.IntN(12)-6))
			ops := []wire.Opcode{wire.RCWriteMiddle}
			if rnd.IntN(2) == 0 {
				f.BTH.Opcode, ops[0] = wire.RCSendOnly, wire.RCSendOnly
			}
			if response := rnd.IntN(3) == 0 && flows[0].HasAcked; response {
				f = packet(2, 1, 0x11, wire.RCReadResponseMiddle, flows[0].Acked.Add(rnd.IntN(8)-4))
				ops[0] = wire.RCReadResponseMiddle
			}
			for len(ops) < n {
				ops = append(ops, ops[0])
			}
			switch last := ops[n-1]; {
			case last == wire.RCSendOnly:
				ops[n/2] = wire.RCWriteOnly
			case rnd.IntN(2) == 0:
				ops[n-1]++ // MIDDLE to LAST
			}
			in := int(f.IPv4.Src[3])
			all.now++
			got := all.Burst(all.now, in, f, burst(f, size, ops...), size)
			if got != nil {
				taken++
			}
			for i, op := range ops {
				g := *f
				g.BTH.Opcode, g.BTH.PSN = op, f.BTH.PSN.Add(i)
				one.ask(&g)
				if got == nil {
					all.ask(&g)
				}
			}
			a, b := flows[0], flows[1]
			if a.Expected != b.Expected || a.Acked != b.Acked || a.high != b.high || a.PathMTU.MTU != b.PathMTU.MTU || a.Synced() != b.Synced() || got != nil && got != b {
				t.Fatalf("seed %d: %v of %d packets at %d: one by one %d %d %d, at once %d %d %d", seed, ops[0], n, f.BTH.PSN,
					a.Expected, a.Acked, a.high, b.Expected, b.Acked, b.high)
			}
		}
	}
	if taken < 2000 {
		t.Errorf("only %d bursts were taken at once", taken)
	}
}

// Packets that Burst must refuse.
func TestNoBurst(t *testing.T) {
	const size = 1040
	r := newRig(t, nil)
	flow := r.learn(1, 2, 0x11, 0x22, 100)
	flow.learnMTU(1024)
	f := packet(1, 2, 0x22, wire.RCWriteMiddle, flow.Expected)
	good := burst(f, size, wire.RCWriteMiddle, wire.RCWriteMiddle, wire.RCWriteLast)
	change := func(at int, x byte) []byte {
		b := append([]byte(nil), good...)
		b[at] ^= x
		return b
	}
	before := *flow
	for name, try := range map[string]func() *Flow{
		"another queue pair": func() *Flow { return r.Burst(r.now, 1, f, change(size+7, 1), size) },
		"a PSN left out":     func() *Flow { return r.Burst(r.now, 1, f, change(size+11, 8), size) },
		"a READ": func() *Flow {
			return r.Burst(r.now, 1, f, change(size, byte(wire.RCWriteMiddle^wire.RCReadRequest)), size)
		},
		"an answer":       func() *Flow { return r.Burst(r.now, 1, f, change(size, byte(wire.RCWriteMiddle^wire.RCAck)), size) },
		"another service": func() *Flow { return r.Burst(r.now, 1, f, change(size, 0x20), size) },
		"too short":       func() *Flow { return r.Burst(r.now, 1, f, good[:2*size+11], size) },
		"another port":    func() *Flow { return r.Burst(r.now, 3, f, good, size) },
		"no flow":         func() *Flow { return r.Burst(r.now, 1, packet(1, 2, 0x23, wire.RCWriteMiddle, 1), good, size) },
		"tiny":            func() *Flow { return r.Burst(r.now, 1, f, good, 11) },
		"pinned": func() *Flow {
			flow.Pinned = true
			defer func() { flow.Pinned = false }()
			return r.Burst(r.now, 1, f, good, size)
		},
		"checked": func() *Flow {
			flow.Checked = true
			defer func() { flow.Checked = false }()
			return r.Burst(r.now, 1, f, good, size)
		},
	} {
		if try() != nil || *flow != before {
			t.Errorf("%s was taken", name)
		}
	}
	flow.PathMTU.MTU = 0
	if r.Burst(r.now, 1, f, good, size) != nil {
		t.Error("a burst that shows the path MTU was taken while that is not known")
	}
	flow.PathMTU.MTU = before.PathMTU.MTU
	if r.Burst(r.now, 1, f, good, size) != flow || flow.Expected != before.Expected.Add(3) {
		t.Errorf("%+v", flow)
	}
}
