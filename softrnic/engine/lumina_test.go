package engine

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// U7 (Lumina, SIGCOMM 2023, finding 7): NICs of two vendors set MigReq differently, and one of them takes
// milliseconds for packets of the other or discards them. This one sends 0, and takes 0 and 1 alike, also in
// one message.
func TestMigReqOfOtherNICs(t *testing.T) {
	p := newPair(t, nil)
	const length = 5000
	wr := write(p, length)
	wr.Flags = verbs.Signalled
	for i := range p.a.buf[:length] {
		p.a.buf[i] = byte(i)
	}
	p.post(t, p.a, wr)
	sent := 0
	for {
		for i, from := range []*side{p.a, p.b} {
			to := []*side{p.b, p.a}[i]
			from.in, from.out = from.out, from.in
			from.out.Reset()
			for _, f := range from.in.Frames {
				g := parse(t, bytes.Clone(f.Data))
				if g.BTH.MigReq {
					t.Errorf("packet %v has MigReq", g.BTH.Opcode)
				}
				g.BTH.MigReq = sent%2 == 0
				sent++
				to.e.Frame(p.now, 0, packetio.Frame{Data: g.AppendTo(nil)}, &to.out)
			}
			to.e.EndBatch(p.now, &to.out)
		}
		if len(p.a.out.Frames)+len(p.b.out.Frames) == 0 {
			break
		}
	}
	if wcs := p.a.poll(t); len(wcs) != 1 || wcs[0].Status != verbs.Success || !bytes.Equal(p.b.buf[:length], p.a.buf[:length]) {
		t.Errorf("%+v after %d packets", wcs, sent)
	}
	if c := p.a.e.counters; c.RetransPkts != 0 || p.b.e.counters.RxMalformed != 0 {
		t.Errorf("%d packets sent again, %d malformed", c.RetransPkts, p.b.e.counters.RxMalformed)
	}
}
