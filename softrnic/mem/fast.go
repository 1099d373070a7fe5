package mem

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// AllocFast allocates a region for fast registration: buf gets virtual addresses and keys, but the
// keys are invalid until Register. It counts as a region.
func (t *Table) AllocFast(pd PD, buf []byte) (*Region, error) {
	r, err := t.reg(pd, Region{buf: buf, size: uint64(len(buf))})
	if err != nil {
		return nil, err
	}
	r.valid = false
	r.view = &Region{whole: r}
	return r, nil
}

// Register executes the work request REG_MR (IBTA 10.6.6/fast-register): it makes the keys of a
// region from AllocFast valid for a part of the region's memory. The upper 24 bits of rkey name the
// region; its low byte becomes the low byte of both keys. The L_Key in piece must name the same
// region. The region must be in pd and must not be registered already.
func (t *Table) Register(pd PD, rkey uint32, piece verbs.SGE, access verbs.Access) Fault {
	r := t.fast(rkey)
	switch {
	case r == nil || r.view.valid || r.lkey>>8 != piece.LKey>>8:
		return BadKey
	case r.pd != pd:
		return BadPD
	case piece.Length == 0:
		return BadBounds
	}
	if _, ok := validAccess(access); !ok {
		return BadAccess
	}
	p, fault := r.check(pd, piece.Addr, uint64(piece.Length), 0)
	if fault != OK {
		return fault
	}
	tag := rkey & 0xff
	r.lkey, r.rkey = r.lkey&^0xff|tag, r.rkey&^0xff|tag
	*r.view = p.region(access)
	v := r.view
	v.base, v.lkey, v.rkey, v.index, v.valid, v.whole = piece.Addr, r.lkey, r.rkey, r.index, true, r
	t.slots[r.index].region = r.view
	return OK
}

// fast returns the region for fast registration that an R_Key names. The low byte of the key is
// ignored.
func (t *Table) fast(rkey uint32) *Region {
	r := t.at(t.remote.fromKey(rkey >> 8))
	switch {
	case r == nil:
		return nil
	case r.whole != nil:
		return r.whole
	case r.view != nil:
		return r
	}
	return nil
}

// unregister ends a fast registration, if r has one.
func (t *Table) unregister(r *Region) {
	if r.view != nil && r.view.valid {
		r.view.valid = false
		t.slots[r.index].region = r
	}
}

// bound returns how many windows are bound to r.
func (r *Region) bound() int {
	if r.view != nil {
		return r.view.windows
	}
	return r.windows
}

// Invalidate ends a fast registration in pd, or the bind of a window of type 2 by queue pair qp
// (IBTA 10.6.5/invalidate). After that the region can be registered, or the window bound, again.
// peer says who requests the end: true for the peer of qp (SEND with invalidate), false for the
// host itself (LOCAL_INV). To end a fast registration, the peer needs a remote right to the memory.
// The result is BadKey for an invalid key and for a window of another queue pair, and BadAccess for
// a window of type 1, for a region that Reg made, and for one to which windows are bound.
func (t *Table) Invalidate(pd PD, qp wire.QPN, rkey uint32, peer bool) Fault {
	r := t.lookupRemote(rkey)
	f := r.refusesInvalidate(pd, qp, peer)
	switch {
	case f != OK:
	case r.owner != 0:
		t.unbind(t.window(rkey))
	default:
		t.unregister(r.whole)
	}
	return f
}

// refusesInvalidate returns why the keys of r may not be invalidated; a nil region is no region. The
// arguments are those of Invalidate.
func (r *Region) refusesInvalidate(pd PD, qp wire.QPN, peer bool) Fault {
	switch {
	case r == nil, r.owner != 0 && r.owner != qp:
		return BadKey
	case r.pd != pd:
		return BadPD
	case r.owner != 0:
		return OK
	case r.whole == nil, r.windows > 0, peer && r.access&verbs.RemoteRights == 0:
		return BadAccess
	}
	return OK
}
