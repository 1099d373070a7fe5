package engine

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A packet of any opcode that is damaged, from a stranger or of another partition does not reach
// its queue pair (IBTA 7.8.1, 10.9.3).
func TestEveryOpcodeIsGuarded(t *testing.T) {
	drops := []struct {
		name    string
		change  func(f *wire.Frame)
		damage  bool
		counter func(c *metrics.NIC) uint64
	}{
		{"corrupt", func(*wire.Frame) {}, true, func(c *metrics.NIC) uint64 { return c.RxIcrcErr }},
		{"stranger", func(f *wire.Frame) { f.IPv4.Src = [4]byte{1, 2, 3, 4} }, false, func(c *metrics.NIC) uint64 { return c.RxWrongPeer }},
		{"partition", func(f *wire.Frame) { f.BTH.PKey = 0x8001 }, false, func(c *metrics.NIC) uint64 { return c.RxPkeyErr }},
	}
	for kind, service := range map[verbs.QPType]wire.Opcode{verbs.RC: wire.ServiceRC, verbs.UC: wire.ServiceUC, verbs.UD: wire.ServiceUD} {
		for i := range 1 << 8 {
			op := wire.Opcode(i)
			if op.Service() != service || !op.Known() && kind != verbs.RC {
				continue
			}
			for _, d := range drops {
				if kind == verbs.UD && d.name == "stranger" {
					continue // a datagram may come from any sender
				}
				p := guardedPair(t, kind)
				frame := rebuild(t, p.a.out.Frames[0].Data, func(f *wire.Frame) {
					f.BTH.Opcode, f.BTH.AckReq = op, true
					f.Payload = make([]byte, 16)
					d.change(f)
				})
				if d.damage {
					frame[len(frame)-5] ^= 1
				}
				before := bytes.Clone(p.b.buf)
				p.b.e.Frame(0, 0, packetio.Frame{Data: frame}, &p.b.out)
				p.b.e.EndBatch(0, &p.b.out)
				if c := &p.b.e.counters; d.counter(c) != 1 || c.RcvdPkts != 0 || len(p.b.out.Frames) != 0 || !bytes.Equal(before, p.b.buf) || p.b.qp.q.State() != verbs.StateRTS {
					t.Errorf("%v: %v, %s: it had an effect, or was not counted: %+v", kind, op, d.name, c)
				}
			}
		}
	}
}

// guardedPair returns a pair whose first side has one small packet to send.
func guardedPair(t *testing.T, kind verbs.QPType) *pair {
	t.Helper()
	if kind == verbs.UD {
		p := newUDPair(t, nil)
		p.post(t, p.a, datagram(p.a, p.b, ahTo(t, p.a, verbs.AHAttr{DestGID: verbs.GIDOf(ipB)}), 8))
		return p
	}
	p := newTypedPair(t, kind, 0)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	return p
}
