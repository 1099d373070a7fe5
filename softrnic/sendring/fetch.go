package sendring

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

var (
	errObject  = errors.New("the entry names no completion queue, ring or receive queue of its protection domain")
	errMemory  = errors.New("the memory of the ring is not registered")
	errForeign = errors.New("the opmod is not 0, or the index or queue pair number is not that of the entry")
	errBeyond  = errors.New("the entry extends beyond the limit")
)

// fetched has the n blocks that the ring has read ahead of execution; the first one is the block
// with index `from` of the ring.
type fetched struct {
	from, n uint32
	b       []byte
}

// fetch parses the entry at index next into cur. It returns false if the entry was refused.
func (r *Ring) fetch(h Host) bool {
	r.cur = Entry{}
	if !r.block(h, 0) {
		r.refuse(h, errMemory, verbs.LocProtErr)
		return false
	}
	n := min(Blocks(r.raw[:]), MaxBlocks)
	if uint32(n) > r.limit-r.next {
		r.refuse(h, errBeyond, verbs.LocQPOpErr)
		return false
	}
	for i := 1; i < n; i++ {
		if !r.block(h, i) {
			r.refuse(h, errMemory, verbs.LocProtErr)
			return false
		}
	}
	if err := Parse(r.raw[:n*BlockSize], &r.cur); err != nil {
		r.refuse(h, err, verbs.LocQPOpErr)
		return false
	}
	e := &r.cur
	if r.cfg.Checked && (e.OpMod != 0 || e.Index != uint16(r.next) || e.QPN != r.qpn) {
		r.refuse(h, errForeign, verbs.LocQPOpErr)
		return false
	}
	r.held = true
	return true
}

// block puts block i of the entry at index next into raw. It takes the block from those read ahead,
// or reads it from memory. It returns false if the memory of the block is not registered.
func (r *Ring) block(h Host, i int) bool {
	f := &r.fetched
	index := r.next + uint32(i)
	if index-f.from >= f.n {
		f.from, f.n = index, 0
		want := min(uint32(r.cfg.Prefetch), r.limit-index)
		if f.b == nil {
			f.b = make([]byte, r.cfg.Prefetch*BlockSize)
		}
		for ; f.n < max(want, 1); f.n++ {
			place := (index + f.n) & uint32(r.cfg.Blocks-1)
			dst := f.b[f.n*BlockSize:][:BlockSize]
			if !h.Fetch(dst, verbs.SGE{Addr: r.cfg.Addr + uint64(place)*BlockSize, Length: BlockSize, LKey: r.cfg.LKey}) {
				return f.n > 0 && f.copy(index, r.raw[i*BlockSize:])
			}
		}
	}
	return f.copy(index, r.raw[i*BlockSize:])
}

// copy puts the block with this index, which was read ahead, into dst. It always returns true, so
// that Ring.block can return its result.
func (f *fetched) copy(index uint32, dst []byte) bool {
	copy(dst[:BlockSize], f.b[(index-f.from)*BlockSize:])
	return true
}
