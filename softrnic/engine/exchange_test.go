package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = byte(i)*7 + seed
	}
}

// verify runs one of each operation and compares the bytes.
func verify(t *testing.T, p *pair) {
	t.Helper()
	a, b := p.a, p.b
	fill(a.buf[:5000], 1)
	p.post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, 5000)}, RemoteAddr: b.base + 8192, RKey: b.key})
	p.run(t, p.now+second)
	if !bytes.Equal(b.buf[8192:8192+5000], a.buf[:5000]) {
		t.Error("WRITE did not arrive")
	}
	fill(b.buf[:3000], 2)
	p.post(t, a, verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(20000, 3000)}, RemoteAddr: b.base, RKey: b.key})
	p.run(t, p.now+second)
	if !bytes.Equal(a.buf[20000:23000], b.buf[:3000]) {
		t.Error("READ brought something else")
	}
	binary.NativeEndian.PutUint64(b.buf[40000:], 5)
	p.post(t, a,
		verbs.SendWR{ID: 3, Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(40000, 8)}, RemoteAddr: b.base + 40000, RKey: b.key, CompareAdd: 5, Swap: 9},
		verbs.SendWR{ID: 4, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(40008, 8)}, RemoteAddr: b.base + 40000, RKey: b.key, CompareAdd: 3})
	p.run(t, p.now+second)
	if got := binary.NativeEndian.Uint64(b.buf[40000:]); got != 12 {
		t.Errorf("CAS 5→9 and FAA 3 gave %d, want 12", got)
	}
	if x, y := binary.NativeEndian.Uint64(a.buf[40000:]), binary.NativeEndian.Uint64(a.buf[40008:]); x != 5 || y != 9 {
		t.Errorf("old values %d and %d, want 5 and 9", x, y)
	}
	if err := b.qp.PostRecv([]verbs.RecvWR{{ID: 9, SGL: []verbs.SGE{b.sge(50000, 100)}}}); err != nil {
		t.Fatal(err)
	}
	p.post(t, a, verbs.SendWR{ID: 5, Op: verbs.OpSendImm, Flags: verbs.Signalled | verbs.Inline, Data: []byte("hello"), Imm: 42})
	p.run(t, p.now+second)
	if string(b.buf[50000:50005]) != "hello" {
		t.Error("SEND did not arrive")
	}
	checkDone(t, a, []uint64{1, 2, 3, 4, 5}, b, 9)
}

func checkDone(t *testing.T, a *side, want []uint64, b *side, recv uint64) {
	t.Helper()
	done := a.poll(t)
	if a != b {
		done = append(done, b.poll(t)...)
	}
	var sent []uint64
	for _, wc := range done {
		if wc.Status != verbs.Success {
			t.Errorf("completion %d: %v", wc.ID, wc.Status)
		}
		if wc.Opcode == verbs.WCRecv {
			if wc.ID != recv || wc.ByteLen != 5 || wc.Imm != 42 || wc.Flags&verbs.WithImm == 0 {
				t.Errorf("receive completion %+v", wc)
			}
			continue
		}
		sent = append(sent, wc.ID)
	}
	if fmt.Sprint(sent) != fmt.Sprint(want) {
		t.Errorf("completed %v, want %v", sent, want)
	}
}

func TestExchangeIPv4(t *testing.T) { verify(t, newPair(t, nil)) }

func TestExchangeIPv6(t *testing.T) {
	a := newSide(t, newEngine(t, "a", 1, macA, nil, ipA, ip6A))
	b := newSide(t, newEngine(t, "b", 2, macB, nil, ipB, ip6B))
	p := connectPair(t, a, b, 1, verbs.MTU4096)
	p.tap = func(_ *side, f packetio.Frame) bool {
		if fr := parse(t, f.Data); !fr.V6 || fr.IPv6.HopLimit != 64 || fr.Eth.Type != wire.EtherTypeIPv6 {
			t.Errorf("frame %+v", fr)
		}
		return true
	}
	verify(t, p)
}

// A queue pair that is connected to another one of the same NIC works without a link.
func TestExchangeWithMyself(t *testing.T) {
	e := newEngine(t, "a", 1, macA, nil, ipA)
	a, b := newSide(t, e), newSide(t, e)
	p := connectPair(t, a, b, 0, verbs.MTU1024)
	p.tap = func(*side, packetio.Frame) bool { t.Error("a frame left the NIC"); return true }
	verify(t, p)
}

// Every frame has the form in which a Linux soft-RoCE NIC sends it, so that either end may be one.
func TestFrameHeaders(t *testing.T) {
	p := newPair(t, nil)
	var ids []uint16
	p.tap = func(from *side, f packetio.Frame) bool {
		fr := parse(t, f.Data)
		if !wire.CheckICRC(f.Data) {
			t.Error("wrong ICRC")
		}
		if fr.V6 || fr.IPv4.TTL != 64 || !fr.IPv4.DF || fr.IPv4.TOS != 0 || fr.UDP.Checksum != 0 || fr.UDP.DstPort != 4791 ||
			fr.BTH.PKey != 0xffff || fr.BTH.MigReq || fr.Eth.Tagged {
			t.Errorf("frame %+v", fr)
		}
		if want := sourcePort(p.a.qp.Num(), p.b.qp.Num()); fr.UDP.SrcPort != want {
			t.Errorf("source port %d, want %d in both directions", fr.UDP.SrcPort, want)
		}
		if from == p.a {
			ids = append(ids, fr.IPv4.ID)
			if fr.Eth.Src != macA || fr.Eth.Dst != macB || fr.IPv4.Src != ipA.As4() || fr.IPv4.Dst != ipB.As4() || fr.BTH.DestQP != p.b.qp.Num() {
				t.Errorf("addresses %+v", fr)
			}
		}
		return true
	}
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 4000)}, RemoteAddr: p.b.base, RKey: p.b.key})
	p.run(t, second)
	for i := range ids {
		if ids[i] != ids[0]+uint16(i) {
			t.Errorf("IP IDs %v do not count", ids)
		}
	}
	if len(ids) != 4 {
		t.Errorf("%d request packets, want 4", len(ids))
	}
}

// The numbers of the queue pairs in the captures of Linux rxe: 0x11 and 0x111 (A17.3.1).
func TestSourcePortRule(t *testing.T) {
	for _, c := range []struct {
		a, b wire.QPN
		want uint16
	}{
		{0x11, 0x111, 53793},
		{0x2, 0x3, 0xc006},
		{0x12345, 0xabcde, 0xc2b9},
		{0xfffffe, 0xfffffd, 0xff76},
		{0x800000, 0x800001, 0xc048},
	} {
		if got, back := sourcePort(c.a, c.b), sourcePort(c.b, c.a); got != c.want || back != c.want {
			t.Errorf("ports %#x and %#x between %#x and %#x, want %#x", got, back, uint32(c.a), uint32(c.b), c.want)
		}
	}
}

// The link loses a tenth of all frames, and every message arrives once.
func TestLossIsHealed(t *testing.T) {
	p := newPair(t, nil)
	r := rand.New(rand.NewPCG(7, 7))
	p.tap = func(*side, packetio.Frame) bool { return r.IntN(10) > 0 }
	const adds = 200
	for i := range adds {
		p.post(t, p.a, verbs.SendWR{ID: uint64(i), Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key, CompareAdd: uint64(i)})
		if i%16 == 15 {
			p.run(t, p.now+100*second)
		}
	}
	p.run(t, p.now+100*second)
	if got, want := binary.NativeEndian.Uint64(p.b.buf), uint64(adds*(adds-1)/2); got != want {
		t.Errorf("sum %d, want %d", got, want)
	}
	for i, wc := range p.a.poll(t) {
		if wc.Status != verbs.Success || wc.ID != uint64(i) {
			t.Fatalf("completion %d: %+v", i, wc)
		}
	}
	if p.a.e.counters.RetransPkts == 0 {
		t.Error("nothing was sent again")
	}
}

// A burst that arrives as one super-frame is handled packet by packet; so are random bytes in the
// form of a super-frame.
func TestSuperFrame(t *testing.T) {
	p := newPair(t, nil)
	fill(p.a.buf[:4096], 3)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 4096)}, RemoteAddr: p.b.base, RKey: p.b.key})
	frames := p.a.out.Frames
	const headers = 14 + 20 + 8
	super := bytes.Clone(frames[1].Data) // two middles and the last are equally long
	for _, f := range frames[2:] {
		super = append(super, f.Data[headers:]...)
	}
	seg := len(frames[1].Data) - headers
	p.b.e.Frame(0, 0, frames[0], &p.b.out)
	p.b.e.Frame(0, 0, packetio.Frame{Data: super, SegSize: seg}, &p.b.out)
	p.b.e.EndBatch(0, &p.b.out)
	if !bytes.Equal(p.b.buf[:4096], p.a.buf[:4096]) || p.b.e.counters.RcvdPkts != 4 {
		t.Errorf("not taken: %+v", p.b.e.counters)
	}
	for _, size := range []int{1, 7, 1 << 16} {
		p.b.e.Frame(0, 0, packetio.Frame{Data: super, SegSize: size}, &p.b.out)
	}
}
