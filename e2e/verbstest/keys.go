package verbstest

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// register returns a signalled fast registration of n bytes of mr, from offset off.
func (e *end) register(id uint64, mr verbs.MR, off, n int, rkey uint32, access verbs.Access) verbs.SendWR {
	piece := mr.SGE(off, n)
	return verbs.SendWR{ID: id, Op: verbs.OpRegMR, Flags: verbs.Signalled, SGL: []verbs.SGE{piece}, RKey: rkey, BindAccess: access}
}

// put WRITEs 8 bytes to mr with an R_Key, and checks the status of the WRITE. It uses a new queue
// pair, because a refused WRITE takes the queue pair to the error state.
func (e *end) put(to *end, mr verbs.MR, off int, rkey uint32, want verbs.Status) {
	e.t.Helper()
	q, peer := e.qp(verbs.RC, nil), to.qp(verbs.RC, nil)
	connect(e, to, q, peer)
	wr := inline(77, verbs.OpWrite, "put here")
	wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(off), rkey
	must(e.t, q.PostSend(wr))
	e.want(77, want)
	must(e.t, q.Destroy())
	must(e.t, peer.Destroy())
}

// testFastReg registers parts of a region by work requests. The registrations are invalidated by
// work requests of the host and of its peer.
func testFastReg(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	mr, err := b.pd.AllocFastMR(nil, 4096)
	must(t, err)
	first := mr.RKey()
	a.put(b, mr, 0, first, verbs.RemAccessErr)
	must(t, qb.PostSend(b.register(1, mr, 1024, 1024, first, full)))
	b.want(1, verbs.Success)
	a.put(b, mr, 1024, first, verbs.Success)
	a.put(b, mr, 1020, first, verbs.RemAccessErr)
	a.put(b, mr, 1024, mr.LKey(), verbs.RemAccessErr)
	var got [8]byte
	must(t, mr.ReadAt(got[:], 1024))
	if string(got[:]) != "put here" {
		t.Errorf("the memory holds %q", got)
	}
	// In the host's own work requests, the L_Key that belongs to the R_Key names the registration.
	piece := mr.SGE(1024, 8)
	piece.LKey = verbs.LKeyWith(piece.LKey, first)
	must(t, qb.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{piece}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()}))
	b.want(2, verbs.Success)
	must(t, a.mr.ReadAt(got[:], 0))
	if string(got[:]) != "put here" {
		t.Errorf("the WRITE brought %q", got)
	}
	// The peer invalidates the registration by a SEND with Invalidate. The next registration covers
	// another part of the region, with another key.
	must(t, qb.PostRecv(verbs.RecvWR{ID: 3, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
	inv := inline(4, verbs.OpSendInv, "done")
	inv.InvRKey = first
	must(t, qa.PostSend(inv))
	a.want(4, verbs.Success)
	b.want(3, verbs.Success)
	a.put(b, mr, 1024, first, verbs.RemAccessErr)
	next := verbs.NextRKey(first)
	must(t, qb.PostSend(b.register(5, mr, 0, 4096, next, verbs.LocalWrite|verbs.RemoteWrite)))
	b.want(5, verbs.Success)
	a.put(b, mr, 4088, next, verbs.Success)
	a.put(b, mr, 4088, first, verbs.RemAccessErr)
	must(t, qb.PostSend(verbs.SendWR{ID: 6, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: next}))
	b.want(6, verbs.Success)
	a.put(b, mr, 4088, next, verbs.RemAccessErr)
	must(t, qb.PostSend(verbs.SendWR{ID: 7, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: next}))
	b.want(7, verbs.MWBindErr)
	must(t, mr.Dereg())
	wantErr(t, "no bytes", second(b.pd.AllocFastMR(nil, 0)), verbs.ErrInvalid)
}

// testInvalidationRights: a work request cannot invalidate a region that was registered by the
// verb, whatever its rights, and the two keys of a region are not interchangeable (IBTA
// 10.6.5/invalidate).
func testInvalidationRights(t *testing.T, w *World) {
	a, b := w.ends(t)
	private, err := b.pd.RegMR(nil, 64, verbs.LocalWrite)
	must(t, err)
	if b.mr.LKey() == b.mr.RKey() {
		t.Errorf("L_Key and R_Key are both %#x", b.mr.RKey())
	}
	for _, key := range []uint32{b.mr.RKey(), b.mr.LKey(), private.RKey(), private.LKey()} {
		q, peer := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
		connect(a, b, q, peer)
		must(t, peer.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
		inv := inline(2, verbs.OpSendInv, "away")
		inv.InvRKey = key
		must(t, q.PostSend(inv))
		a.want(2, verbs.RemAccessErr)
		b.want(1, verbs.LocAccessErr)
		must(t, q.Destroy())
		must(t, peer.Destroy())
		q, peer = a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
		connect(a, b, q, peer)
		must(t, peer.PostSend(verbs.SendWR{ID: 3, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: key}))
		b.want(3, verbs.MWBindErr)
		must(t, q.Destroy())
		must(t, peer.Destroy())
	}
	a.put(b, b.mr, 0, b.mr.RKey(), verbs.Success)
	a.put(b, b.mr, 0, b.mr.LKey(), verbs.RemAccessErr)
	q, peer := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
	connect(a, b, q, peer)
	s := a.mr.SGE(0, 8)
	s.LKey = a.mr.RKey()
	must(t, q.PostSend(verbs.SendWR{ID: 4, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{s}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
	a.want(4, verbs.LocProtErr)
}

// testRereg changes the rights of a region whose keys the peer has.
func testRereg(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	mr, err := b.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteRead|verbs.MWBind)
	must(t, err)
	lkey, rkey, at := mr.LKey(), mr.RKey(), mr.Addr()
	a.put(b, mr, 0, rkey, verbs.RemAccessErr)
	must(t, mr.Rereg(verbs.LocalWrite|verbs.RemoteWrite|verbs.MWBind))
	a.put(b, mr, 0, rkey, verbs.Success)
	if mr.LKey() != lkey || mr.RKey() != rkey || mr.Addr() != at {
		t.Error("keys or addresses have changed")
	}
	wantErr(t, "remote write without local write", mr.Rereg(verbs.RemoteWrite), verbs.ErrInvalid)
	wantErr(t, "unknown rights", mr.Rereg(1<<7), verbs.ErrInvalid)
	mw, err := b.pd.AllocMW()
	must(t, err)
	key, err := mw.RKey()
	must(t, err)
	key = verbs.NextRKey(key)
	must(t, qb.PostSend(verbs.SendWR{ID: 1, Op: verbs.OpBindMW, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, 64)}, RKey: key, BindAccess: verbs.RemoteWrite}))
	b.want(1, verbs.Success)
	wantErr(t, "below a window", mr.Rereg(0), verbs.ErrBusy)
	must(t, mw.Dealloc())
	must(t, mr.Rereg(0))
	must(t, qa.PostSend(verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: mr.Addr(), RKey: rkey}))
	a.want(2, verbs.RemAccessErr)
	fast, err := b.pd.AllocFastMR(nil, 64)
	must(t, err)
	wantErr(t, "memory for fast registration", fast.Rereg(full), verbs.ErrInvalid)
	must(t, mr.Dereg())
	wantErr(t, "deregistered", mr.Rereg(0), verbs.ErrClosed)
}
