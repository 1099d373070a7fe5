package mem

import (
	"fmt"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// PD is the number of a protection domain. 0 is never allocated.
type PD uint32

const (
	// DefaultMaxRegions bounds the regions of a NIC when New is told 0.
	DefaultMaxRegions = 1 << 16
	// maxIndex keeps a key's index in its upper 24 bits.
	maxIndex = 1<<24 - 1
	// maxPDs bounds the protection domains of a NIC.
	maxPDs = 1 << 16

	pageSize = 4096
	// firstBase is near where a C program would see its heap and mappings; lastBase keeps ends from wrapping.
	firstBase = 0x7f00_0000_0000
	lastBase  = 1 << 62
	// maxGap is the largest unmapped gap between two regions, in pages: an overrun hits no neighbour.
	maxGap = 64
)

// Table holds the protection domains and regions of one NIC.
type Table struct {
	rand   *rand.Rand
	max    int
	count  int
	bound  int // windows
	keys   keySpace
	last   *Region // that lookup found; most traffic is to one
	slots  []slot  // the upper 24 bits of a key are the permuted index here
	free   []uint32
	pds    map[PD]int // regions of each
	nextPD PD
	next   uint64 // lowest virtual address not yet given out
	tear   TearFunc
}

// slot is a place for a region or a window, whose view is the region while it is bound. The low byte of the key changes
// with each registration, so that the key of a region that is gone does not open the next one in its place.
type slot struct {
	region *Region
	window *Window
	tag    uint8
}

// New returns an empty table. All keys and addresses come from r; maxRegions 0 means DefaultMaxRegions.
func New(r *rand.Rand, maxRegions int) *Table {
	if maxRegions <= 0 || maxRegions > maxIndex {
		maxRegions = DefaultMaxRegions
	}
	return &Table{
		rand: r,
		max:  maxRegions,
		keys: newKeySpace(r),
		pds:  make(map[PD]int),
		next: firstBase + uint64(r.IntN(1<<20))*pageSize,
	}
}

// AllocPD makes a protection domain.
func (t *Table) AllocPD() (PD, error) {
	if len(t.pds) >= maxPDs {
		return 0, &verbs.OpError{Op: "alloc pd", Err: verbs.ErrLimit, Detail: fmt.Sprintf("%d protection domains exist", len(t.pds))}
	}
	for {
		t.nextPD++
		if _, taken := t.pds[t.nextPD]; t.nextPD != 0 && !taken {
			t.pds[t.nextPD] = 0
			return t.nextPD, nil
		}
	}
}

// DeallocPD ends pd; ErrBusy while it has regions.
func (t *Table) DeallocPD(pd PD) error {
	n, ok := t.pds[pd]
	switch {
	case !ok:
		return &verbs.OpError{Op: "dealloc pd", Err: verbs.ErrInvalid, Detail: fmt.Sprintf("no protection domain %d", pd)}
	case n > 0:
		return &verbs.OpError{Op: "dealloc pd", Err: verbs.ErrBusy, Detail: fmt.Sprintf("end its %d regions and windows first", n)}
	}
	delete(t.pds, pd)
	return nil
}

// Regions returns how many regions pd has.
func (t *Table) Regions(pd PD) int { return t.pds[pd] }

// Reg registers buf, which stays the caller's memory and must live until Dereg. Remote write and remote atomic
// access need local write access (IBTA 10.6.3/local-write).
func (t *Table) Reg(pd PD, buf []byte, access verbs.Access) (*Region, error) {
	return t.reg(pd, buf, access, false)
}

// RegZero is Reg for a zero-based region: its first virtual address is 0.
func (t *Table) RegZero(pd PD, buf []byte, access verbs.Access) (*Region, error) {
	return t.reg(pd, buf, access, true)
}

func (t *Table) reg(pd PD, buf []byte, access verbs.Access, zero bool) (*Region, error) {
	fail := func(err error, format string, args ...any) (*Region, error) {
		return nil, &verbs.OpError{Op: "reg mr", Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	const all = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.MWBind
	if _, ok := t.pds[pd]; !ok {
		return fail(verbs.ErrInvalid, "no protection domain %d", pd)
	}
	if access&^all != 0 {
		return fail(verbs.ErrInvalid, "unknown access bits %#x", access&^all)
	}
	if access&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && access&verbs.LocalWrite == 0 {
		return fail(verbs.ErrInvalid, "remote write and remote atomic access need LocalWrite too")
	}
	if len(buf) == 0 {
		return fail(verbs.ErrInvalid, "a region needs at least one byte")
	}
	if t.count >= t.max {
		return fail(verbs.ErrLimit, "%d regions and windows exist", t.count)
	}
	base := uint64(0)
	if !zero {
		span := (uint64(len(buf)) + pageSize - 1) &^ (pageSize - 1)
		base = t.next + uint64(1+t.rand.IntN(maxGap))*pageSize
		if base+span > lastBase {
			return fail(verbs.ErrLimit, "the virtual address space is used up")
		}
		t.next = base + span
	}
	i := t.take()
	r := &Region{table: t, pd: pd, base: base, buf: buf, access: access, key: t.keyOf(i), index: i, valid: true, zero: zero}
	t.slots[i].region = r
	t.count++
	t.pds[pd]++
	return r, nil
}

// keyOf is the present key of a place.
func (t *Table) keyOf(i uint32) uint32 { return t.keys.toKey(i)<<8 | uint32(t.slots[i].tag) }

// take finds a free slot and gives it a new tag.
func (t *Table) take() uint32 {
	if n := len(t.free); n > 0 && len(t.slots) >= t.max {
		// Oldest first keeps a key unused as long as possible.
		i := t.free[0]
		t.free = t.free[1:]
		t.slots[i].tag++
		return i
	}
	if t.keys.toKey(uint32(len(t.slots))) == 0 {
		t.slots = append(t.slots, slot{}) // never used, so that key 0 is never valid
	}
	t.slots = append(t.slots, slot{tag: uint8(t.rand.Uint32())})
	return uint32(len(t.slots) - 1)
}

// release gives a place back.
func (t *Table) release(i uint32, pd PD) {
	t.slots[i].region, t.last = nil, nil // not to keep its memory
	t.free = append(t.free, i)
	t.count--
	t.pds[pd]--
}

// Dereg ends r. Its keys are dead when it returns; deregistering twice is an error, and so is ErrBusy while windows are
// bound to it.
func (t *Table) Dereg(r *Region) error {
	const op = "dereg mr"
	switch {
	case r.table != t || r.gone:
		return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "the region is not registered here"}
	case r.windows > 0:
		return &verbs.OpError{Op: op, Err: verbs.ErrBusy, Detail: fmt.Sprintf("invalidate or deallocate its %d memory windows first", r.windows)}
	}
	r.valid, r.gone = false, true
	t.release(r.index, r.pd)
	return nil
}

// lookup finds a valid region by either of its keys.
func (t *Table) lookup(key uint32) *Region {
	if r := t.last; r != nil && r.key == key && r.valid {
		return r
	}
	i := t.keys.fromKey(key >> 8)
	if uint64(i) >= uint64(len(t.slots)) {
		return nil
	}
	r := t.slots[i].region
	if r == nil || r.key != key || !r.valid {
		return nil
	}
	t.last = r
	return r
}

// Local checks a piece of local memory of a work request and returns its bytes. Write says that the NIC will
// write there. A zero length needs no key and returns nil.
func (t *Table) Local(pd PD, s verbs.SGE, write bool) ([]byte, Fault) {
	var need verbs.Access
	if write {
		need = verbs.LocalWrite
	}
	return t.check(pd, 0, s.LKey, s.Addr, uint64(s.Length), need)
}

// Remote checks memory that the peer of queue pair qp named and returns its bytes. Need is one of the remote access
// rights. A zero length is not checked at all (C9-88) and returns nil.
func (t *Table) Remote(pd PD, qp wire.QPN, rkey uint32, va uint64, length uint32, need verbs.Access) ([]byte, Fault) {
	return t.check(pd, qp, rkey, va, uint64(length), need)
}

// check is for local use if qp is 0: windows have no local key.
func (t *Table) check(pd PD, qp wire.QPN, key uint32, va, n uint64, need verbs.Access) ([]byte, Fault) {
	if n == 0 {
		return nil, OK
	}
	r := t.lookup(key)
	switch {
	case r == nil, r.owner != 0 && r.owner != qp:
		return nil, BadKey
	case r.pd != pd:
		return nil, BadPD
	case r.access&need != need:
		return nil, BadAccess
	case va < r.base || va-r.base > uint64(len(r.buf)) || n > uint64(len(r.buf))-(va-r.base):
		return nil, BadBounds
	}
	off := va - r.base
	return r.buf[off : off+n : off+n], OK
}

// Invalidate makes a region's keys useless for peers and for work requests until it is deregistered, and unbinds a
// window that was bound for queue pair qp (SEND with invalidate, local invalidate). Invalidating twice is a BadKey
// fault; a region with bound windows is refused as BadAccess (IBTA 10.6.5/invalidate).
func (t *Table) Invalidate(pd PD, qp wire.QPN, key uint32) Fault {
	r := t.lookup(key)
	switch {
	case r == nil, r.owner != 0 && r.owner != qp:
		return BadKey
	case r.pd != pd:
		return BadPD
	case r.windows > 0:
		return BadAccess
	case r.owner != 0:
		t.unbind(t.window(key))
		return OK
	}
	r.valid = false
	return OK
}

// Locate returns up to n bytes that key and va name, from the beginning of the 8-byte word at va on, and whether they are
// those of a zero-based region, which is memory on the NIC. It is for accounts of what is where: it checks no right, and
// the bytes are not to be read or written. A key or address of nothing gives nil.
func (t *Table) Locate(key uint32, va uint64, n int) (b []byte, zero bool) {
	r := t.lookup(key)
	if r == nil || va < r.base || va-r.base >= uint64(len(r.buf)) {
		return nil, false
	}
	end := va - r.base + min(uint64(max(n, 0)), uint64(len(r.buf))-(va-r.base))
	return r.buf[max(va&^7, r.base)-r.base : end], r.zero
}
