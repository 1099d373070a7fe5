package verbstest

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// register returns a signalled fast registration of n bytes of mr, from offset off.
func (e *end) register(id uint64, mr verbs.MR, off, n int, rkey uint32, access verbs.Access) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: verbs.OpRegMR, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(off, n)}, RKey: rkey, BindAccess: access}
}

// put WRITEs 8 bytes to mr with an R_Key, and checks the status of the WRITE. It uses a new queue
// pair, because a refused WRITE takes the queue pair to the error state.
func (e *end) put(to *end, mr verbs.MR, off int, rkey uint32, want verbs.Status) {
	e.t.Helper()
	q, peer := e.joined(to, verbs.RC, nil)
	wr := inline(77, verbs.OpWrite, "put here")
	wr.RemoteAddr, wr.RKey = mr.Addr()+uint64(off), rkey
	e.post(q, wr, want)
	must(e.t, q.Destroy())
	must(e.t, peer.Destroy())
}

// byOtherKey is the status of a work request that takes one key of a region for the other: both may be the same
// number. refused is the status if they are not.
func byOtherKey(mr verbs.MR, refused verbs.Status) verbs.Status {
	if mr.LKey() == mr.RKey() {
		return verbs.Success
	}
	return refused
}

// testFastReg registers parts of a region by work requests. The registrations are invalidated by
// work requests of the host and of its peer.
func testFastReg(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	mr := need(b.pd.AllocFastMR(nil, 4096))(t)
	first := mr.RKey()
	a.put(b, mr, 0, first, verbs.RemAccessErr)
	b.post(qb, b.register(1, mr, 1024, 1024, first, full), verbs.Success)
	a.put(b, mr, 1024, first, verbs.Success)
	a.put(b, mr, 1020, first, verbs.RemAccessErr)
	a.put(b, mr, 1024, mr.LKey(), byOtherKey(mr, verbs.RemAccessErr))
	holds(t, "WRITE of the peer", mr, 1024, "put here")
	// In the host's own work requests, the L_Key that belongs to the R_Key names the registration.
	piece := mr.SGE(1024, 8)
	piece.LKey = verbs.LKeyWith(piece.LKey, first)
	b.post(qb, verbs.SendWR{ID: 2, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{piece}, RemoteAddr: a.mr.Addr(), RKey: a.mr.RKey()}, verbs.Success)
	holds(t, "WRITE of the host", a.mr, 0, "put here")
	// The peer invalidates the registration by a SEND with Invalidate. The next registration covers
	// another part of the region, with another key.
	must(t, qb.PostRecv(verbs.RecvWR{ID: 3, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
	inv := inline(4, verbs.OpSendInv, "done")
	inv.InvRKey = first
	a.post(qa, inv, verbs.Success)
	b.want(3, verbs.Success)
	a.put(b, mr, 1024, first, verbs.RemAccessErr)
	next := verbs.NextRKey(first)
	b.post(qb, b.register(5, mr, 0, 4096, next, verbs.LocalWrite|verbs.RemoteWrite), verbs.Success)
	a.put(b, mr, 4088, next, verbs.Success)
	a.put(b, mr, 4088, first, verbs.RemAccessErr)
	b.post(qb, verbs.SendWR{ID: 6, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: next}, verbs.Success)
	a.put(b, mr, 4088, next, verbs.RemAccessErr)
	b.post(qb, verbs.SendWR{ID: 7, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: next}, verbs.MWBindErr)
	must(t, mr.Dereg())
	wantErr(t, "no bytes", second(b.pd.AllocFastMR(nil, 0)), verbs.ErrInvalid)
}

// testInvalidationRights: a work request cannot invalidate a region that was registered by the
// verb, whatever its rights, and the two keys of a region are not interchangeable unless they are the same number (IBTA
// 10.6.5/invalidate).
func testInvalidationRights(t *testing.T, w *World) {
	a, b := w.ends(t)
	private := need(b.pd.RegMR(nil, 64, verbs.LocalWrite))(t)
	for _, key := range []uint32{b.mr.RKey(), b.mr.LKey(), private.RKey(), private.LKey()} {
		q, peer := a.joined(b, verbs.RC, nil)
		must(t, peer.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
		inv := inline(2, verbs.OpSendInv, "away")
		inv.InvRKey = key
		a.post(q, inv, verbs.RemAccessErr)
		b.want(1, verbs.LocAccessErr)
		must(t, q.Destroy())
		must(t, peer.Destroy())
		q, peer = a.joined(b, verbs.RC, nil)
		b.post(peer, verbs.SendWR{ID: 3, Op: verbs.OpLocalInv, Flags: verbs.Signalled, InvRKey: key}, verbs.MWBindErr)
		must(t, q.Destroy())
		must(t, peer.Destroy())
	}
	a.put(b, b.mr, 0, b.mr.RKey(), verbs.Success)
	a.put(b, b.mr, 0, b.mr.LKey(), byOtherKey(b.mr, verbs.RemAccessErr))
	q, _ := a.joined(b, verbs.RC, nil)
	s := a.mr.SGE(0, 8)
	s.LKey = a.mr.RKey()
	a.post(q, verbs.SendWR{ID: 4, Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{s}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}, byOtherKey(a.mr, verbs.LocProtErr))
}

// testRereg changes the rights of a region whose keys the peer has.
func testRereg(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	mr := need(b.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteRead|verbs.MWBind))(t)
	lkey, rkey, at := mr.LKey(), mr.RKey(), mr.Addr()
	a.put(b, mr, 0, rkey, verbs.RemAccessErr)
	must(t, mr.Rereg(verbs.LocalWrite|verbs.RemoteWrite|verbs.MWBind))
	a.put(b, mr, 0, rkey, verbs.Success)
	expect(t, mr.LKey() == lkey && mr.RKey() == rkey && mr.Addr() == at, "keys or addresses have changed")
	wantErr(t, "remote write without local write", mr.Rereg(verbs.RemoteWrite), verbs.ErrInvalid)
	wantErr(t, "unknown rights", mr.Rereg(1<<7), verbs.ErrInvalid)
	mw := need(b.pd.AllocMW())(t)
	key := need(mw.RKey())(t)
	key = verbs.NextRKey(key)
	b.post(qb, verbs.SendWR{ID: 1, Op: verbs.OpBindMW, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, 64)}, RKey: key, BindAccess: verbs.RemoteWrite}, verbs.Success)
	wantErr(t, "below a window", mr.Rereg(0), verbs.ErrBusy)
	must(t, mw.Dealloc())
	must(t, mr.Rereg(0))
	a.post(qa, verbs.SendWR{ID: 2, Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: mr.Addr(), RKey: rkey}, verbs.RemAccessErr)
	fast := need(b.pd.AllocFastMR(nil, 64))(t)
	wantErr(t, "memory for fast registration", fast.Rereg(full), verbs.ErrInvalid)
	must(t, mr.Dereg())
	wantErr(t, "deregistered", mr.Rereg(0), verbs.ErrClosed)
}
