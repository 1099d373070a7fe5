package transport

import (
	"fmt"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// xrcRequest returns a request of XRC to process 1 that passes all checks at PSN psn, and registers the key that
// it invalidates.
func xrcRequest(t *testing.T, b *side, p *process, op wire.Opcode, psn wire.PSN) *wire.Packet {
	t.Helper()
	x := &wire.Packet{BTH: wire.BTH{Opcode: op, PSN: psn, AckReq: true}, XRCETH: wire.XRCETH{SRQN: 1}}
	switch {
	case op.Is(wire.OpFirst | wire.OpMiddle):
		x.Payload = make([]byte, everyMTU)
	case op.Is(wire.OpPayload):
		x.Payload = make([]byte, everyTail)
	}
	x.RETH = wire.RETH{VA: p.mem.Base(), RKey: p.mem.RKey(), Length: uint32(len(x.Payload))}
	switch {
	case op.Is(wire.OpFirst):
		x.RETH.Length += everyTail
	case op.Is(wire.OpRead):
		x.RETH.Length = everyTail
	}
	x.AtomicETH = wire.AtomicETH{VA: p.mem.Base(), RKey: p.mem.RKey()}
	if op.Is(wire.OpInv) {
		r, err := b.env.Mem.AllocFast(p.pd, make([]byte, 64))
		if err != nil {
			t.Fatal(err)
		}
		if f := b.env.Mem.Register(p.pd, r.RKey(), verbs.SGE{Addr: r.Base(), Length: 64, LKey: r.LKey()}, allAccess); f != mem.OK {
			t.Fatal(f)
		}
		x.IETH = r.RKey()
	}
	return x
}

// Every request of XRC is executed, and refused for each fault of the shared receive queue that it names, also within
// a message that has begun; the NAK is an acknowledgement of XRC (annex A14).
func TestXRCEveryRequest(t *testing.T) {
	faults := map[string]struct {
		ruin   func(d *domain, x *wire.Packet)
		answer wire.Syndrome
	}{
		"none":           {func(*domain, *wire.Packet) {}, wire.AckNoCredits},
		"no queue":       {func(_ *domain, x *wire.Packet) { x.XRCETH.SRQN = 9 }, wire.NakInvalid},
		"another domain": {func(d *domain, _ *wire.Packet) { d.foreign = 1 }, wire.NakRemoteAccess},
		"broken queue":   {func(d *domain, _ *wire.Packet) { d.processes[1].srq.Break() }, wire.NakRemoteOp},
	}
	for i := range 256 {
		op := wire.Opcode(i)
		if op.Service() != wire.ServiceXRC || !op.Is(wire.OpRequest) {
			continue
		}
		for name, f := range faults {
			t.Run(fmt.Sprint(op, "/", name), func(t *testing.T) {
				_, b, d := newXRCPair(t, 4096)
				p := d.processes[1]
				if err := p.srq.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{p.sge(0, 2048)}}); err != nil {
					t.Fatal(err)
				}
				psn := defaultLink.psnA
				if op.Is(wire.OpMiddle | wire.OpLast) {
					first := wire.RCSendFirst
					if op.Is(wire.OpWrite) {
						first = wire.RCWriteFirst
					}
					x := xrcRequest(t, b, p, first|wire.ServiceXRC, psn)
					if op.Is(wire.OpMiddle) {
						x.RETH.Length += everyMTU
					}
					b.qp.Handle(0, x, &b.out)
					b.out.Reset()
					psn = psn.Next()
				}
				x := xrcRequest(t, b, p, op, psn)
				f.ruin(d, x)
				b.qp.Handle(0, x, &b.out)
				if len(b.out.Tx) != 1 {
					t.Fatalf("%d answers", len(b.out.Tx))
				}
				y := &b.out.Tx[0].Packet
				if y.BTH.Opcode.Service() != wire.ServiceXRC || !y.BTH.Opcode.Is(wire.OpResponse) || y.BTH.PSN != psn || y.AETH.Syndrome != f.answer {
					t.Errorf("the answer is %v, want %v", y, f.answer)
				}
				if dead := b.qp.State() == verbs.StateError; dead != (name != "none") {
					t.Errorf("the target is in %v", b.qp.State())
				}
			})
		}
	}
}
