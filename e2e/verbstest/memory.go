package verbstest

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// testMW binds a memory window, lets the peer access it, and invalidates it.
func testMW(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	region, err := b.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.MWBind)
	must(t, err)
	mw, err := b.pd.AllocMW()
	must(t, err)
	old, err := mw.RKey()
	must(t, err)
	key := verbs.NextRKey(old)
	bind := verbs.SendWR{ID: 1, Op: verbs.OpBindMW, Flags: verbs.Signalled, SGL: []verbs.SGE{region.SGE(1024, 1024)}, RKey: key, BindAccess: verbs.RemoteWrite}
	must(t, qb.PostSend(bind))
	if wc := b.want(1, verbs.Success); wc.Opcode != verbs.WCBindMW {
		t.Errorf("bind: %+v", wc)
	}
	if now, err := mw.RKey(); err != nil || now != key {
		t.Errorf("key %#x, %v; want %#x", now, err, key)
	}
	wantErr(t, "region with a window", region.Dereg(), verbs.ErrBusy)
	put := inline(2, verbs.OpWrite, "through the window")
	put.RemoteAddr, put.RKey = region.Addr()+1024, key
	must(t, qa.PostSend(put))
	a.want(2, verbs.Success)
	got := make([]byte, len(put.Data))
	must(t, region.ReadAt(got, 1024))
	if !bytes.Equal(got, put.Data) {
		t.Errorf("brought %q", got)
	}
	must(t, qb.PostSend(verbs.SendWR{ID: 3, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: key}))
	b.want(3, verbs.Success)
	put.ID = 4
	must(t, qa.PostSend(put))
	a.want(4, verbs.RemAccessErr)
	must(t, mw.Dealloc())
	wantErr(t, "key of a window that is gone", second(mw.RKey()), verbs.ErrClosed)
	must(t, region.Dereg())
}

// testDM uses memory on the NIC.
func testDM(t *testing.T, w *World) {
	a, b, qa, _ := w.pair(t, verbs.RC)
	dm, err := b.ctx.AllocDM(1 << 17)
	must(t, err)
	if dm.Len() != 1<<17 {
		t.Errorf("length %d", dm.Len())
	}
	long := bytes.Repeat([]byte("device memory is on the NIC "), 4000)[:100_000]
	must(t, dm.WriteAt(long, 1000))
	got := make([]byte, len(long))
	must(t, dm.ReadAt(got, 1000))
	if !bytes.Equal(got, long) {
		t.Error("device memory holds something else")
	}
	mr, err := b.pd.RegDM(dm, 1000, 1<<16, full)
	must(t, err)
	if mr.Addr() != 0 || mr.Len() != 1<<16 {
		t.Errorf("region at %#x of %d bytes", mr.Addr(), mr.Len())
	}
	must(t, qa.PostSend(
		verbs.SendWR{ID: 1, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 50000)}, RemoteAddr: 0, RKey: mr.RKey()}))
	a.want(1, verbs.Success)
	must(t, a.mr.ReadAt(got[:50000], 0))
	if !bytes.Equal(got[:50000], long[:50000]) {
		t.Error("READ brought something else")
	}
	must(t, mr.Store64(8, 5))
	must(t, qa.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: 8, RKey: mr.RKey(), CompareAdd: 6}))
	a.want(2, verbs.Success)
	if v, err := mr.Load64(8); v != 11 || err != nil {
		t.Errorf("atomic: %d, %v", v, err)
	}
	must(t, mr.WriteAt(long[:40000], 64))
	must(t, mr.ReadAt(got[:40000], 64))
	if !bytes.Equal(got[:40000], long[:40000]) {
		t.Error("the region holds something else")
	}
	wantErr(t, "outside", dm.WriteAt(make([]byte, 2), dm.Len()-1), verbs.ErrInvalid)
	wantErr(t, "region outside", second(b.pd.RegDM(dm, dm.Len(), 1, full)), verbs.ErrInvalid)
	wantErr(t, "in use", dm.Free(), verbs.ErrBusy)
	wantErr(t, "too much", second(b.ctx.AllocDM(b.ctx.Device().MaxDM)), verbs.ErrLimit)
	must(t, mr.Dereg())
	must(t, dm.Free())
	wantErr(t, "after free", dm.ReadAt(got[:1], 0), verbs.ErrClosed)
}

// testLocalAccess reads and writes regions locally, without the NIC.
func testLocalAccess(t *testing.T, w *World) {
	a := w.end(t, 0)
	mr, err := a.pd.RegMR(nil, 3<<20, full)
	must(t, err)
	long := make([]byte, 3<<20)
	for i := range long {
		long[i] = byte(i >> 8)
	}
	must(t, mr.WriteAt(long, 0))
	got := make([]byte, len(long))
	must(t, mr.ReadAt(got, 0))
	if !bytes.Equal(got, long) {
		t.Error("long copies differ")
	}
	must(t, mr.Store64(16, 0x0102030405060708))
	if v, err := mr.Load64(16); v != 0x0102030405060708 || err != nil {
		t.Errorf("word: %#x, %v", v, err)
	}
	for what, err := range map[string]error{
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
	} {
		wantErr(t, what, err, verbs.ErrInvalid)
	}
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
	a, b, qa, qb := w.pair(t, verbs.RC)
	self, loop := b.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
	connect(b, b, self, loop)
	_ = qb
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
	if v, err := b.mr.Load64(128); v != 2*rounds || err != nil {
		t.Errorf("sum %d, %v; want %d", v, err, 2*rounds)
	}
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
