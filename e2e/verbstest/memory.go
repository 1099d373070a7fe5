package verbstest

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// testMW binds a memory window, lets the peer access it, and invalidates it.
func testMW(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	region := need(b.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.MWBind))(t)
	mw := need(b.pd.AllocMW())(t)
	old := need(mw.RKey())(t)
	key := verbs.NextRKey(old)
	bind := verbs.SendWR{ID: 1, Op: verbs.OpBindMW, Flags: verbs.Signalled, SGL: []verbs.SGE{region.SGE(1024, 1024)}, RKey: key, BindAccess: verbs.RemoteWrite}
	wc := b.post(qb, bind, verbs.Success)
	expect(t, wc.Opcode == verbs.WCBindMW, "bind: %+v", wc)
	if now, err := mw.RKey(); err != nil || now != key {
		t.Errorf("key %#x, %v; want %#x", now, err, key)
	}
	wantErr(t, "region with a window", region.Dereg(), verbs.ErrBusy)
	put := inline(2, verbs.OpWrite, "through the window")
	put.RemoteAddr, put.RKey = region.Addr()+1024, key
	a.post(qa, put, verbs.Success)
	holds(t, "WRITE", region, 1024, string(put.Data))
	b.post(qb, verbs.SendWR{ID: 3, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: key}, verbs.Success)
	put.ID = 4
	a.post(qa, put, verbs.RemAccessErr)
	must(t, mw.Dealloc())
	wantErr(t, "key of a window that is gone", second(mw.RKey()), verbs.ErrClosed)
	must(t, region.Dereg())
}

// testDM uses memory on the NIC.
func testDM(t *testing.T, w *World) {
	a, b, qa, _ := w.pair(t, verbs.RC)
	dm := need(b.ctx.AllocDM(1 << 17))(t)
	expect(t, dm.Len() == 1<<17, "length %d", dm.Len())
	long := strings.Repeat("device memory is on the NIC ", 4000)[:100_000]
	must(t, dm.WriteAt([]byte(long), 1000))
	holds(t, "device memory", dm, 1000, long)
	mr := need(b.pd.RegDM(dm, 1000, 1<<16, full))(t)
	expect(t, mr.Addr() == 0 && mr.Len() == 1<<16, "region at %#x of %d bytes", mr.Addr(), mr.Len())
	a.post(qa, a.remote(1, verbs.OpRead, 0, 50000, mr, 0), verbs.Success)
	holds(t, "READ", a.mr, 0, long[:50000])
	must(t, mr.Store64(8, 5))
	a.post(qa, verbs.SendWR{ID: 2, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: 8, RKey: mr.RKey(), CompareAdd: 6}, verbs.Success)
	loads(t, "atomic", mr, 8, 11)
	must(t, mr.WriteAt([]byte(long[:40000]), 64))
	holds(t, "region of device memory", mr, 64, long[:40000])
	wantErr(t, "outside", dm.WriteAt(make([]byte, 2), dm.Len()-1), verbs.ErrInvalid)
	wantErr(t, "region outside", second(b.pd.RegDM(dm, dm.Len(), 1, full)), verbs.ErrInvalid)
	wantErr(t, "in use", dm.Free(), verbs.ErrBusy)
	wantErr(t, "too much", second(b.ctx.AllocDM(b.ctx.Device().MaxDM)), verbs.ErrLimit)
	must(t, mr.Dereg())
	must(t, dm.Free())
	wantErr(t, "after free", dm.ReadAt(make([]byte, 1), 0), verbs.ErrClosed)
}

// testLocalAccess reads and writes regions locally, without the NIC.
func testLocalAccess(t *testing.T, w *World) {
	a := w.end(t, 0)
	mr := need(a.pd.RegMR(nil, 3<<20, full))(t)
	long := make([]byte, 3<<20)
	for i := range long {
		long[i] = byte(i >> 8)
	}
	must(t, mr.WriteAt(long, 0))
	holds(t, "long copies", mr, 0, string(long))
	got := make([]byte, 2)
	must(t, mr.Store64(16, 0x0102030405060708))
	loads(t, "word", mr, 16, 0x0102030405060708)
	wantErrs(t, verbs.ErrInvalid, map[string]error{
		"read behind":                mr.ReadAt(got[:2], mr.Len()-1),
		"write before":               mr.WriteAt(got[:2], -1),
		"load askew":                 second(mr.Load64(4)),
		"store askew":                mr.Store64(12, 1),
		"load behind":                second(mr.Load64(mr.Len())),
		"read far":                   mr.ReadAt(got[:1], 1<<62),
		"no bytes":                   second(a.pd.RegMR(nil, 0, full)),
		"negative":                   second(a.pd.RegMR(nil, -1, full)),
		"unknown access":             second(a.pd.RegMR(nil, 64, 1<<7)),
		"remote write without local": second(a.pd.RegMR(nil, 64, verbs.RemoteWrite)),
	})
	if s := mr.SGE(8, 16); s.Addr != mr.Addr()+8 || s.Length != 16 || s.LKey != mr.LKey() {
		t.Errorf("SGE: %+v", s)
	}
	must(t, mr.Dereg())
	for what, err := range map[string]error{
		"read": mr.ReadAt(got[:1], 0), "write": mr.WriteAt(got[:1], 0), "load": second(mr.Load64(0)), "store": mr.Store64(0, 1), "dereg": mr.Dereg(),
	} {
		wantErr(t, what+" after dereg", err, verbs.ErrClosed)
	}
}

// testAtomics makes both ends count in the same word, through their NICs and locally.
func testAtomics(t *testing.T, w *World) {
	a, b, qa, _ := w.pair(t, verbs.RC)
	self, _ := b.joined(b, verbs.RC, nil)
	const rounds = 200
	word := b.mr.Addr() + 128
	must(t, b.mr.Store64(128, 0))
	add := func(e *end, q verbs.QP) {
		for range rounds {
			must(t, q.PostSend(verbs.SendWR{Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(0, 8)}, RemoteAddr: word, RKey: b.mr.RKey(), CompareAdd: 1}))
			if wc := e.next(); wc.Status != verbs.Success {
				t.Errorf("atomic: %v", wc.Status)
				return
			}
		}
	}
	rt := a.ctx.Runtime()
	rt.Go("far", func() { add(a, qa) })
	add(b, self)
	rt.Wait()
	loads(t, "sum", b.mr, 128, 2*rounds)
	// A remote CMP_SWAP whose comparison fails must not undo a local store that the processor makes
	// while the NIC executes it.
	for i := range uint64(rounds) {
		must(t, qa.PostSend(verbs.SendWR{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: word, RKey: b.mr.RKey(), CompareAdd: 1 << 40, Swap: 7}))
		must(t, b.mr.Store64(128, i))
		if v, err := b.mr.Load64(128); v != i || err != nil {
			t.Fatalf("stored %d, loaded %d, %v", i, v, err)
		}
		a.next()
	}
}
