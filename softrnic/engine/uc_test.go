package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// newTypedPair returns a pair with queue pairs of another type.
func newTypedPair(t testing.TB, of verbs.QPType, gid int) *pair {
	t.Helper()
	mk := func(e *Engine) *side {
		s := newSide(t, e)
		qp, err := e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{Type: of})
		if err != nil {
			t.Fatal(err)
		}
		s.qp = qp
		return s
	}
	return connectPair(t, mk(newEngine(t, "a", 1, macA, nil, ipA, ip6A)),
		mk(newEngine(t, "b", 2, macB, nil, ipB, ip6B)), gid, verbs.MTU1024)
}

// UC messages larger than one step may send cross a lossy cable: each message that arrives is
// complete, and they arrive in order.
func TestUCOverALossyCable(t *testing.T) {
	for gid := range 2 {
		p := newTypedPair(t, verbs.UC, gid)
		r := rand.New(rand.NewPCG(5, uint64(gid)))
		lost := 0
		p.tap = func(_ *side, f packetio.Frame) bool {
			if fr := parse(t, f.Data); fr.BTH.Opcode.Service() != wire.ServiceUC || fr.V6 != (gid == 1) {
				t.Errorf("frame %+v", fr)
			}
			if r.IntN(200) == 0 {
				lost++
				return false
			}
			return true
		}
		const size, messages = 40 << 10, 60
		last, arrived := -1, 0
		for m := range messages {
			if p.b.qp.q.Query().RecvQueued == 0 {
				if err := p.b.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{p.b.sge(0, size)}}}); err != nil {
					t.Fatal(err)
				}
			}
			fill(p.a.buf[:size], byte(m))
			p.post(t, p.a, verbs.SendWR{Op: verbs.OpSendImm, Imm: uint32(m), Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, size)}})
			p.run(t, p.now+second)
			if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
				t.Fatalf("message %d: %+v", m, wc)
			}
			for _, wc := range p.b.poll(t) {
				arrived++
				if int(wc.Imm) <= last || wc.ByteLen != size || int(wc.Imm) != m || !bytes.Equal(p.a.buf[:size], p.b.buf[:size]) {
					t.Fatalf("arrived after %d: %+v or other bytes", last, wc)
				}
				last = int(wc.Imm)
			}
		}
		if lost == 0 || arrived == messages || arrived+lost < messages {
			t.Errorf("%d of %d arrived, %d frames lost", arrived, messages, lost)
		}
	}
}

// A packet of one service has no effect on a queue pair of another (IBTA 9.6/service).
func TestServicesDoNotMix(t *testing.T) {
	p := newTypedPair(t, verbs.UC, 0)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	f := rebuild(t, p.a.out.Frames[0].Data, func(f *wire.Frame) { f.BTH.Opcode = wire.RCWriteOnly })
	p.b.e.Frame(0, 0, packetio.Frame{Data: f}, &p.b.out)
	if p.b.e.counters.RxUnsupported != 1 || p.b.buf[0] != 0 || len(p.b.out.Frames) != 0 {
		t.Errorf("an RC packet had an effect on UC: %+v", p.b.e.counters)
	}
}
