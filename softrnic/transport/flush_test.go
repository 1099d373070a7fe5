package transport

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const flushes = verbs.FlushGlobal | verbs.FlushPersistent

// A FLUSH needs the right to each placement that it asks for, of the queue pair and of the region
// (oA19-13). It completes without data, changes no memory and needs no other right.
func TestFlushRights(t *testing.T) {
	for _, granted := range []verbs.Access{0, verbs.FlushGlobal, verbs.FlushPersistent, flushes, verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic} {
		for _, of := range []verbs.Access{0, verbs.FlushGlobal, verbs.FlushPersistent, flushes, verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead} {
			for _, asked := range []verbs.Access{verbs.FlushGlobal, verbs.FlushPersistent, flushes} {
				for _, whole := range []bool{false, true} {
					a, b := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11}), newSide(t, "b", 2, 1<<12, Config{QPN: 0x12})
					l := defaultLink
					l.access = granted
					connect(t, a, b, l)
					r, err := b.env.Mem.Reg(b.pd, make([]byte, 64), of)
					if err != nil {
						t.Fatal(err)
					}
					post(t, a, verbs.SendWR{Op: verbs.OpFlush, Flags: verbs.Signalled, RemoteAddr: r.Base() + 8, RKey: r.RKey(), Flush: verbs.Flush{
						Length: 56, Region: whole, Global: asked&verbs.FlushGlobal != 0, Persistent: asked&verbs.FlushPersistent != 0,
					}})
					settle(t, 0, a, b)
					want := verbs.Success
					switch {
					case granted&asked != asked:
						want = verbs.RemInvReqErr
					case of&asked != asked:
						want = verbs.RemAccessErr
					}
					if wc := onlyWC(t, a.scq); wc.Status != want || wc.Opcode != verbs.WCFlush || wc.ByteLen != 0 {
						t.Errorf("%b of the queue pair, %b of the region, %b asked, whole %v: %+v, want %v", granted, of, asked, whole, wc, want)
					}
				}
			}
		}
	}
}

// The range of a FLUSH is inside the region; one of the whole region has none (oA19-13). A key that
// is not valid is refused for both; only that of a range of no bytes is not looked at (C9-88).
func TestFlushBounds(t *testing.T) {
	for name, c := range map[string]struct {
		off    int
		n      uint32
		whole  bool
		badKey bool
		want   verbs.Status
	}{
		"all":                   {0, 64, false, false, verbs.Success},
		"one byte more":         {0, 65, false, false, verbs.RemAccessErr},
		"before":                {-1, 2, false, false, verbs.RemAccessErr},
		"the whole region":      {-1000, 1 << 31, true, false, verbs.Success},
		"bad key":               {0, 8, false, true, verbs.RemAccessErr},
		"bad key of a region":   {0, 8, true, true, verbs.RemAccessErr},
		"no bytes, and bad key": {0, 0, false, true, verbs.Success},
	} {
		a, b := newPair(t)
		r, err := b.env.Mem.Reg(b.pd, make([]byte, 64), verbs.FlushGlobal)
		if err != nil {
			t.Fatal(err)
		}
		wr := verbs.SendWR{
			Op: verbs.OpFlush, Flags: verbs.Signalled, RemoteAddr: r.Base() + uint64(c.off), RKey: r.RKey(), Flush: verbs.Flush{Length: c.n, Region: c.whole, Global: true},
		}
		if c.badKey {
			wr.RKey ^= 1
		}
		post(t, a, wr)
		settle(t, 0, a, b)
		if wc := onlyWC(t, a.scq); wc.Status != c.want {
			t.Errorf("%s: %v, want %v", name, wc.Status, c.want)
		}
	}
}

// A FLUSH of a region that belongs to another queue pair's window, or to another protection domain,
// is refused.
func TestFlushOfOthers(t *testing.T) {
	a, b := newPair(t)
	other, err := b.env.Mem.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := b.env.Mem.Reg(other, make([]byte, 64), flushes)
	if err != nil {
		t.Fatal(err)
	}
	post(t, a, verbs.SendWR{Op: verbs.OpFlush, Flags: verbs.Signalled, RKey: foreign.RKey(), Flush: verbs.Flush{Region: true, Global: true}})
	settle(t, 0, a, b)
	if wc := onlyWC(t, a.scq); wc.Status != verbs.RemAccessErr {
		t.Errorf("another domain: %v", wc.Status)
	}
	own, err := b.env.Mem.Reg(b.pd, make([]byte, 64), verbs.MWBind)
	if err != nil {
		t.Fatal(err)
	}
	w, err := b.env.Mem.AllocWindow(b.pd)
	if err != nil {
		t.Fatal(err)
	}
	key := verbs.NextRKey(w.RKey())
	if f := b.env.Mem.Bind(b.pd, 0x12, key, verbs.SGE{Addr: own.Base(), Length: 8, LKey: own.LKey()}, verbs.FlushGlobal); f != mem.OK {
		t.Fatal(f)
	}
	for qpn, want := range map[wire.QPN]mem.Fault{0x12: mem.OK, 0x13: mem.BadKey} {
		if f := b.env.Mem.Whole(b.pd, qpn, key, verbs.FlushGlobal); f != want {
			t.Errorf("window of 0x12, queue pair %#x: %v, want %v", uint32(qpn), f, want)
		}
	}
}

// A WRITE whose copy the fault plan tears is complete in memory before the FLUSH behind it is
// answered.
func TestFlushWaitsForTornWrite(t *testing.T) {
	a, b := newPair(t)
	b.env.Mem.SetTear(func(int) mem.Tear { return mem.Tear{Cut: 64, Pause: time.Second} })
	pattern(a.buf[:128], 3)
	post(t, a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.sge(0, 128)}, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()})
	post(t, a, verbs.SendWR{Op: verbs.OpFlush, Flags: verbs.Signalled, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(), Flush: verbs.Flush{Length: 128, Global: true}})
	b.qp.Handle(0, &a.out.Tx[0].Packet, &b.out)
	if b.buf[127] == a.buf[127] {
		t.Fatal("the WRITE is not torn")
	}
	b.qp.Handle(0, &a.out.Tx[1].Packet, &b.out)
	if tx := b.out.Tx; len(tx) != 1 || tx[0].Packet.BTH.Opcode != wire.RCReadResponseOnly || string(b.buf[:128]) != string(a.buf[:128]) {
		t.Errorf("%d answers; the WRITE is complete: %v", len(tx), string(b.buf[:128]) == string(a.buf[:128]))
	}
}
