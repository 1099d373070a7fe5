package mem

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Window is a memory window (IBTA 10.6.7.2): an R_Key that a bind work request gives to a part of a
// region. It has no L_Key. A window of type 2 is for the peer of one queue pair only, and an
// invalidate unbinds it. A window of type 1 is for the peers of all queue pairs of its protection
// domain. A bind of such a window replaces the bind before; a bind of length 0 only ends it.
type Window struct {
	table *Table
	pd    PD
	index uint32
	key   uint32
	// view is the memory that peers can access while the window is bound. parent is the region of
	// which this memory is a part.
	view   Region
	parent *Region
	type1  bool
	gone   bool
}

// AllocWindow makes an unbound window. It counts as a region of its domain and of the table.
func (t *Table) AllocWindow(pd PD) (*Window, error) {
	const op = "alloc mw"
	if _, ok := t.pds[pd]; !ok {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "no protection domain %d", pd)
	}
	if t.count >= t.max {
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d regions and windows exist", t.count)
	}
	i := t.take()
	_, key := t.keysOf(i)
	w := &Window{table: t, pd: pd, index: i, key: key}
	t.slots[i].window = w
	t.count++
	t.pds[pd]++
	return w, nil
}

// RKey returns the R_Key of the last bind, or before the first bind a value that no bind may use.
// The next bind needs a key with the same upper 24 bits and another low byte; see verbs.NextRKey.
func (w *Window) RKey() uint32 { return w.key }

// MakeType1 turns w, which was just allocated, into a window of type 1. New windows are of type 2.
func (w *Window) MakeType1() { w.type1 = true }

// Bound reports whether peers can use the window.
func (w *Window) Bound() bool { return w.parent != nil }

// DeallocWindow ends w, whether it is bound or not. When it returns, peers can no longer use its
// key.
func (t *Table) DeallocWindow(w *Window) error {
	if w.table != t || w.gone {
		return verbs.Errorf("dealloc mw", verbs.ErrInvalid, "the window does not exist here")
	}
	t.unbind(w)
	w.gone = true
	t.slots[w.index].window = nil
	t.release(w.index, w.pd)
	return nil
}

// Bind binds a memory window (IBTA 10.6.7.2.1). From then on the peer of queue pair qp, with a
// window of type 1 the peer of any queue pair in pd, can access the memory piece under the R_Key
// key. access has the peer's rights, which must be remote rights or none. The upper 24 bits of key
// name the window; key itself must differ from the window's previous one. A window of type 2 must
// not be bound already; one of type 1 is unbound if the piece is empty. Window and region must be
// in the protection domain pd. The region must have been registered with verbs.MWBind, and with
// verbs.LocalWrite if access has RemoteWrite or RemoteAtomic. The result is OK, or the Fault for a
// condition that is not met.
func (t *Table) Bind(pd PD, qp wire.QPN, key uint32, piece verbs.SGE, access verbs.Access) Fault {
	w := t.window(key)
	need := verbs.MWBind
	if access&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 {
		need |= verbs.LocalWrite
	}
	switch {
	case w == nil || (w.Bound() && !w.type1) || w.key == key:
		return BadKey
	case w.pd != pd:
		return BadPD
	case w.type1 && piece.Length == 0:
		t.unbind(w)
		w.key = key
		return OK
	case access&^verbs.RemoteRights != 0:
		return BadAccess
	case piece.Length == 0:
		return BadBounds
	}
	parent := t.lookupLocal(piece.LKey)
	if parent == nil {
		return BadKey
	}
	p, fault := parent.check(pd, piece.Addr, uint64(piece.Length), need)
	if fault != OK {
		return fault
	}
	if w.type1 {
		t.unbind(w)
		qp = 0
	}
	w.parent = parent
	w.parent.windows++
	w.key = key
	w.view = p.region(access)
	w.view.base, w.view.rkey, w.view.valid, w.view.owner, w.view.zero = piece.Addr, key, true, qp, parent.zero
	t.slots[w.index].region = &w.view
	t.bound++
	return OK
}

// window returns the window that a key names, or nil. The low byte of the key is ignored.
func (t *Table) window(key uint32) *Window {
	if i := t.remote.fromKey(key >> 8); uint64(i) < uint64(len(t.slots)) {
		return t.slots[i].window
	}
	return nil
}

func (t *Table) unbind(w *Window) {
	if w.parent == nil {
		return
	}
	w.parent.windows--
	w.parent = nil
	w.view.valid = false
	t.slots[w.index].region = nil
	t.bound--
}

// UnbindFrom unbinds all windows that are bound to r, of all queue pairs. Peers lose their access.
func (t *Table) UnbindFrom(r *Region) {
	if r.table != t || r.bound() == 0 {
		return
	}
	if r.view != nil {
		r = r.view
	}
	for i := range t.slots {
		if w := t.slots[i].window; w != nil && w.parent == r {
			t.unbind(w)
		}
	}
}

// UnbindAll unbinds all windows of type 2 that queue pair qp has bound. It is called when qp is
// reset or destroyed.
func (t *Table) UnbindAll(qp wire.QPN) {
	if t.bound == 0 {
		return
	}
	for i := range t.slots {
		if w := t.slots[i].window; w != nil && w.Bound() && w.view.owner == qp {
			t.unbind(w)
		}
	}
}
