package mem

import (
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Entry describes a region or a bound memory window for listings.
type Entry struct {
	Number     uint32 // as in a Refusal
	PD         PD
	Base, Size uint64
	Access     verbs.Access
	// LKey is 0 for a window.
	LKey, RKey uint32
	Valid      bool // the keys can be used
	Far        bool // the memory is another process's
	Zero       bool // zero-based: device memory
	Windows    int  // memory windows that are bound to the region
	Window     bool
	// ForPeerOf is the queue pair for whose peer alone a window is; 0 if there is no such limit.
	ForPeerOf wire.QPN
}

// Entry describes the region. A region for fast registration that is registered is described as the
// part that has keys.
func (r *Region) Entry() Entry {
	n := r.index + 1
	windows := r.bound()
	if r.view != nil && r.view.valid {
		r = r.view
	}
	return Entry{
		Number: n, PD: r.pd, Base: r.base, Size: r.size, Access: r.access, LKey: r.lkey, RKey: r.rkey, Valid: r.valid, Far: r.far != nil, Zero: r.zero,
		Windows: windows,
	}
}

// Entry describes the window. A window that is not bound has neither memory nor rights.
func (w *Window) Entry() Entry {
	e := Entry{Number: w.index + 1, PD: w.pd, RKey: w.key, Window: true}
	if w.Bound() {
		v := &w.view
		e.Base, e.Size, e.Access, e.Valid, e.Far, e.Zero, e.ForPeerOf = v.base, v.size, v.access, true, v.far != nil, v.zero, v.owner
	}
	return e
}
