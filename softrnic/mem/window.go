package mem

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Window is a memory window of type 2: a key that a work request lays over a piece of a region for the peer of one queue
// pair, and that an invalidate takes away again (IBTA 10.6.7.2). It has no local key.
type Window struct {
	table *Table
	pd    PD
	index uint32
	key   uint32
	// view is what peers see while the window is bound; parent is the region below it.
	view   Region
	parent *Region
	gone   bool
}

// AllocWindow makes a window that is not bound. It counts as a region of its domain and of the table.
func (t *Table) AllocWindow(pd PD) (*Window, error) {
	const op = "alloc mw"
	if _, ok := t.pds[pd]; !ok {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("no protection domain %d", pd)}
	}
	if t.count >= t.max {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrLimit, Detail: fmt.Sprintf("%d regions and windows exist", t.count)}
	}
	i := t.take()
	w := &Window{table: t, pd: pd, index: i, key: t.keyOf(i)}
	t.slots[i].window = w
	t.count++
	t.pds[pd]++
	return w, nil
}

// RKey is the key of the last bind, or the first one that no bind may use. The next bind needs another one with the same
// upper 24 bits: see verbs.NextRKey.
func (w *Window) RKey() uint32 { return w.key }

// Bound reports whether peers can use the window.
func (w *Window) Bound() bool { return w.parent != nil }

// DeallocWindow ends w, bound or not. Its key is dead when it returns.
func (t *Table) DeallocWindow(w *Window) error {
	if w.table != t || w.gone {
		return &verbs.OpError{Op: "dealloc mw", Err: verbs.ErrInvalid, Detail: "the window does not exist here"}
	}
	t.unbind(w)
	w.gone = true
	t.slots[w.index].window = nil
	t.release(w.index, w.pd)
	return nil
}

// Bind lays the window that key names over a piece of a region, for the peer of queue pair qp, which must be in the
// domain of both. The window must not be bound and key must be a new one; the region must allow windows (verbs.MWBind),
// and local writing if the peer may write. Access is a set of remote rights (IBTA 10.6.7.2.1).
func (t *Table) Bind(pd PD, qp wire.QPN, key uint32, piece verbs.SGE, access verbs.Access) Fault {
	const remote = verbs.RemoteRead | verbs.RemoteWrite | verbs.RemoteAtomic
	w := t.window(key)
	need := verbs.MWBind
	if access&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 {
		need |= verbs.LocalWrite
	}
	switch {
	case w == nil || w.Bound() || w.key == key:
		return BadKey
	case w.pd != pd:
		return BadPD
	case access&^remote != 0 || access == 0:
		return BadAccess
	case piece.Length == 0:
		return BadBounds
	}
	b, fault := t.check(pd, 0, piece.LKey, piece.Addr, uint64(piece.Length), need)
	if fault != OK {
		return fault
	}
	w.parent = t.lookup(piece.LKey)
	w.parent.windows++
	w.key = key
	w.view = Region{table: t, pd: pd, base: piece.Addr, buf: b, access: access, key: key, valid: true, owner: qp, zero: w.parent.zero}
	t.slots[w.index].region = &w.view
	t.bound++
	return OK
}

// window finds a window by a key that it has, or could have.
func (t *Table) window(key uint32) *Window {
	if i := t.keys.fromKey(key >> 8); uint64(i) < uint64(len(t.slots)) {
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

// UnbindFrom takes the windows that are bound to r away from their peers, whoever owns them.
func (t *Table) UnbindFrom(r *Region) {
	if r.table != t || r.windows == 0 {
		return
	}
	for i := range t.slots {
		if w := t.slots[i].window; w != nil && w.parent == r {
			t.unbind(w)
		}
	}
}

// UnbindAll takes the windows away from the peer of a queue pair that ends.
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
