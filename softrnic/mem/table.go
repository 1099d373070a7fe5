package mem

import (
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// PD is the number of a protection domain. 0 is never allocated.
type PD uint32

const (
	// defaultMaxRegions is the largest number of regions if New is called with 0.
	defaultMaxRegions = 1 << 16
	// maxIndex is the largest index: it must fit into the upper 24 bits of a key.
	maxIndex = 1<<24 - 1
	// maxPDs is the largest number of protection domains of a NIC.
	maxPDs = 1 << 16

	pageSize = 4096
	// The addresses that the table chooses for regions begin above firstBase, which looks like an
	// address in the heap or in a mapping of a C program. lastBase is the largest end address of a
	// region, so that addresses do not overflow.
	firstBase = 0x7f00_0000_0000
	lastBase  = 1 << 62
	// maxGap is the largest gap between two regions, in pages. Because of the gaps, an address just
	// beyond the end of a region is in no region.
	maxGap = 64
)

// Table has the protection domains and regions of one NIC.
type Table struct {
	rand  *rand.Rand
	max   int // largest number of regions and windows
	count int // present number of regions and windows
	bound int // number of windows that are bound
	// The upper 24 bits of a key are the index in slots, permuted: by local for L_Keys, by remote
	// for R_Keys. Both are the same permutation, unless the keys are distinct.
	local, remote keySpace
	distinct      bool
	slots         []slot
	// lastLocal and lastRemote are the regions that were found last by an L_Key and by an R_Key. A
	// lookup tries them first, because most traffic is to one region. They are never nil: noRegion
	// means that there is none.
	lastLocal, lastRemote *Region
	free                  []uint32   // indexes of free slots; the first has been free longest
	pds                   map[PD]int // number of regions and windows of each protection domain
	nextPD                PD
	next                  uint64 // lowest virtual address that was not used yet
	tear                  TearFunc
	word                  [8]byte // scratch for words of far memory (see Far)
}

// noRegion is a region that is not valid. lastLocal and lastRemote point to it when they name no
// region.
var noRegion = &Region{}

// slot holds a region or a window, or neither. In the slot of a window, region is the memory that
// the window gives access to while it is bound. tag is the low byte of the first keys of the region
// or window. It changes each time the slot is taken again, so that keys of a deregistered region
// are not valid for the next one in its slot.
type slot struct {
	region *Region
	window *Window
	tag    uint8
}

// New returns an empty table. r determines all keys and addresses. If maxRegions is not positive,
// or too large, it becomes defaultMaxRegions. The L_Key and the R_Key of a region are the same number, as
// with NICs of vendors and with the kernel's rxe: programs take one for the other.
func New(r *rand.Rand, maxRegions int) *Table {
	if maxRegions <= 0 || maxRegions > maxIndex {
		maxRegions = defaultMaxRegions
	}
	keys := newKeySpace(r)
	return &Table{
		rand:  r,
		max:   maxRegions,
		local: keys, remote: keys,
		lastLocal: noRegion, lastRemote: noRegion,
		pds:  make(map[PD]int),
		next: firstBase + uint64(r.IntN(1<<20))*pageSize,
	}
}

// NewDistinct is New for a table in which no L_Key is an R_Key of the same region, so that a program which takes
// one for the other fails.
func NewDistinct(r *rand.Rand, maxRegions int) *Table {
	t := New(r, maxRegions)
	// Both permutations come from one draw of random numbers. A second draw would change the
	// addresses, which the same random numbers determine, of all runs with a given seed.
	t.local, t.distinct = t.remote.other(), true
	return t
}

func (t *Table) AllocPD() (PD, error) {
	if len(t.pds) >= maxPDs {
		return 0, verbs.Errorf("alloc pd", verbs.ErrLimit, "%d protection domains exist", len(t.pds))
	}
	for {
		t.nextPD++
		if _, taken := t.pds[t.nextPD]; t.nextPD != 0 && !taken {
			t.pds[t.nextPD] = 0
			return t.nextPD, nil
		}
	}
}

// DeallocPD ends pd. It fails with ErrBusy while pd has regions or windows.
func (t *Table) DeallocPD(pd PD) error {
	n, ok := t.pds[pd]
	switch {
	case !ok:
		return verbs.Errorf("dealloc pd", verbs.ErrInvalid, "no protection domain %d", pd)
	case n > 0:
		return verbs.Errorf("dealloc pd", verbs.ErrBusy, "end its %d regions and windows first", n)
	}
	delete(t.pds, pd)
	return nil
}

// Reg registers buf, which still belongs to the caller and must exist until Dereg. Remote write and
// remote atomic access need local write access (IBTA 10.6.3/local-write).
func (t *Table) Reg(pd PD, buf []byte, access verbs.Access) (*Region, error) {
	return t.reg(pd, Region{buf: buf, size: uint64(len(buf)), access: access})
}

func validAccess(access verbs.Access) (why string, ok bool) {
	const all = verbs.LocalWrite | verbs.RemoteRights | verbs.MWBind
	switch {
	case access&^all != 0:
		return fmt.Sprintf("unknown access bits %#x", access&^all), false
	case access&(verbs.RemoteWrite|verbs.RemoteAtomic) != 0 && access&verbs.LocalWrite == 0:
		return "remote write and remote atomic access need LocalWrite too", false
	}
	return "", true
}

// RegZero is Reg for a zero-based region: its first virtual address is 0.
func (t *Table) RegZero(pd PD, buf []byte, access verbs.Access) (*Region, error) {
	return t.reg(pd, Region{buf: buf, size: uint64(len(buf)), access: access, zero: true})
}

// maxFar is the length of the largest region of far memory: addresses of a program have 47 bits.
const maxFar = 1 << 47

// RegFar registers length bytes of far memory (see Far) from its address start on. Their virtual
// addresses begin at base, which the caller chooses. Regions may overlap, because the key selects
// the region.
func (t *Table) RegFar(pd PD, far Far, start, base, length uint64, access verbs.Access) (*Region, error) {
	if length > maxFar || start > maxFar-length || base > math.MaxUint64-length {
		return nil, verbs.Errorf("reg mr", verbs.ErrInvalid, "%d bytes at %#x, with base %#x, do not fit into the address space", length, start, base)
	}
	return t.reg(pd, Region{far: far, start: start, base: base, size: length, access: access})
}

// reg registers a region. It sets the keys and, unless the region is zero-based or far memory (see
// Far), the address; the caller has set the other fields.
func (t *Table) reg(pd PD, region Region) (*Region, error) {
	fail := func(err error, format string, args ...any) (*Region, error) {
		return nil, verbs.Errorf("reg mr", err, format, args...)
	}
	if _, ok := t.pds[pd]; !ok {
		return fail(verbs.ErrInvalid, "no protection domain %d", pd)
	}
	if why, ok := validAccess(region.access); !ok {
		return fail(verbs.ErrInvalid, "%s", why)
	}
	if region.size == 0 && !region.zero { // of device memory, a region may be empty: nothing can be accessed by it
		return fail(verbs.ErrInvalid, "a region needs at least one byte")
	}
	if t.count >= t.max {
		return fail(verbs.ErrLimit, "%d regions and windows exist", t.count)
	}
	if !region.zero && region.far == nil {
		span := (region.size + pageSize - 1) &^ (pageSize - 1)
		base := t.next + uint64(1+t.rand.IntN(maxGap))*pageSize
		if base+span > lastBase {
			return fail(verbs.ErrLimit, "the virtual address space is used up")
		}
		t.next, region.base = base+span, base
	}
	i := t.take()
	r := &region
	r.table, r.pd, r.index, r.valid = t, pd, i, true
	r.lkey, r.rkey = t.keysOf(i)
	t.slots[i].region = r
	t.count++
	t.pds[pd]++
	return r, nil
}

// keysOf returns the current keys of slot i.
func (t *Table) keysOf(i uint32) (lkey, rkey uint32) {
	tag := uint32(t.slots[i].tag)
	return t.local.toKey(i)<<8 | tag, t.remote.toKey(i)<<8 | tag
}

// take returns the index of a free slot, and gives the slot a new low byte of its keys.
func (t *Table) take() uint32 {
	if n := len(t.free); n > 0 && len(t.slots) >= t.max {
		// The slot that has been free for the longest time, so that keys are reused as late as possible.
		i := t.free[0]
		t.free = t.free[1:]
		t.slots[i].tag++
		return i
	}
	// Slots whose keys would be equal and must not be, or whose key would be 0, are never used.
	for i := uint32(len(t.slots)); ; i++ {
		if l, r := t.local.toKey(i), t.remote.toKey(i); (l != r || !t.distinct) && l != 0 && r != 0 {
			break
		}
		t.slots = append(t.slots, slot{})
	}
	t.slots = append(t.slots, slot{tag: uint8(t.rand.Uint32())})
	return uint32(len(t.slots) - 1)
}

func (t *Table) release(i uint32, pd PD) {
	t.slots[i].region, t.lastLocal, t.lastRemote = nil, noRegion, noRegion // so that the garbage collector can free the region
	t.free = append(t.free, i)
	t.count--
	t.pds[pd]--
}

// Dereg ends r. When it returns, the keys of r are invalid. It fails if r was deregistered before,
// and with ErrBusy while windows are bound to r.
func (t *Table) Dereg(r *Region) error {
	const op = "dereg mr"
	switch {
	case r.table != t || r.gone:
		return verbs.Errorf(op, verbs.ErrInvalid, "the region is not registered here")
	case r.bound() > 0:
		return verbs.Errorf(op, verbs.ErrBusy, "invalidate or deallocate its %d memory windows first", r.bound())
	}
	t.unregister(r)
	r.valid, r.gone = false, true
	t.release(r.index, r.pd)
	return nil
}

// Rereg changes the access rights of r; its keys and addresses stay. It fails in the same cases as
// Dereg. It fails with ErrInvalid for rights that Reg refuses, and for a region for fast
// registration, whose rights a work request sets.
func (t *Table) Rereg(r *Region, access verbs.Access) error {
	const op = "rereg mr"
	switch {
	case r.table != t || r.gone:
		return verbs.Errorf(op, verbs.ErrInvalid, "the region is not registered here")
	case r.view != nil:
		return verbs.Errorf(op, verbs.ErrInvalid, "memory for fast registration gets its rights by a work request")
	case r.bound() > 0:
		return verbs.Errorf(op, verbs.ErrBusy, "invalidate or deallocate its %d memory windows first", r.bound())
	}
	if why, ok := validAccess(access); !ok {
		return &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: why}
	}
	r.access = access
	return nil
}

// lookupLocal returns the valid region with an L_Key, or nil.
func (t *Table) lookupLocal(key uint32) *Region {
	if r := t.lastLocal; r.lkey == key && r.valid {
		return r
	}
	return t.findLocal(key)
}

// findLocal looks up the valid region with an L_Key in the table, and makes it t.lastLocal. It
// returns nil if there is none.
func (t *Table) findLocal(key uint32) *Region {
	r := t.at(t.local.fromKey(key >> 8))
	if r == nil || r.lkey != key || !r.valid {
		return nil
	}
	t.lastLocal = r
	return r
}

// lookupRemote returns the valid region, or the memory of a bound window, that an R_Key names; else
// nil.
func (t *Table) lookupRemote(key uint32) *Region {
	if r := t.lastRemote; r.rkey == key && r.valid {
		return r
	}
	return t.findRemote(key)
}

// findRemote does the work of lookupRemote for memory that is not lastRemote.
func (t *Table) findRemote(key uint32) *Region {
	r := t.at(t.remote.fromKey(key >> 8))
	if r == nil || r.rkey != key || !r.valid {
		return nil
	}
	t.lastRemote = r
	return r
}

// at returns the region in slot i, or nil.
func (t *Table) at(i uint32) *Region {
	if uint64(i) >= uint64(len(t.slots)) {
		return nil
	}
	return t.slots[i].region
}

// Local checks an SGE of a work request and returns the memory that it names. write says that the
// NIC will write to the memory. An SGE of length 0 needs no valid key.
func (t *Table) Local(pd PD, s verbs.SGE, write bool) (Piece, Fault) {
	if s.Length == 0 {
		return Piece{}, OK
	}
	var need verbs.Access
	if write {
		need = verbs.LocalWrite
	}
	r := t.lookupLocal(s.LKey)
	if r == nil {
		return Piece{}, BadKey
	}
	return r.check(pd, s.Addr, uint64(s.Length), need)
}

// Read checks an SGE like Local, and fills dst with the SGE's bytes from offset `off` on. The
// caller ensures that the SGE has enough bytes there.
func (t *Table) Read(pd PD, s *verbs.SGE, off uint32, dst []byte) Fault {
	r := t.lookupLocal(s.LKey)
	if r == nil {
		return BadKey
	}
	p, fault := r.check(pd, s.Addr, uint64(s.Length), 0)
	switch {
	case fault != OK:
		return fault
	case r.far == nil:
		copy(dst, r.buf[p.off+uint64(off):])
	case !r.far.Read(dst, r.start+p.off+uint64(off)):
		return BadPage
	}
	return OK
}

// Write checks an SGE like Local, and copies src to the SGE's bytes from offset off on. The caller
// ensures that the SGE has so many bytes.
func (t *Table) Write(pd PD, s *verbs.SGE, off uint32, src []byte) Fault {
	r := t.lookupLocal(s.LKey)
	if r == nil {
		return BadKey
	}
	p, fault := r.check(pd, s.Addr, uint64(s.Length), verbs.LocalWrite)
	switch {
	case fault != OK:
		return fault
	case r.far == nil:
		copy(r.buf[p.off+uint64(off):], src)
	case !r.far.Write(src, r.start+p.off+uint64(off)):
		return BadPage
	}
	return OK
}

// Remote checks the memory that the peer of queue pair qp names in a request, and returns it. need
// is one of the remote access rights. A length of 0 is not checked (C9-88).
func (t *Table) Remote(pd PD, qp wire.QPN, rkey uint32, va uint64, length uint32, need verbs.Access) (Piece, Fault) {
	if length == 0 {
		return Piece{}, OK
	}
	r := t.lookupRemote(rkey)
	if r == nil || (r.owner != 0 && r.owner != qp) {
		return Piece{}, BadKey
	}
	return r.check(pd, va, uint64(length), need)
}

// Whole checks a FLUSH of a whole region, which names a region or window by rkey but no range in
// it. The peer of queue pair qp has sent this request; Whole checks the peer's rights as Remote
// does.
func (t *Table) Whole(pd PD, qp wire.QPN, rkey uint32, need verbs.Access) Fault {
	r := t.lookupRemote(rkey)
	if r == nil || (r.owner != 0 && r.owner != qp) {
		return BadKey
	}
	_, fault := r.check(pd, r.base, 0, need)
	return fault
}

// check makes the checks of an access that follow the lookup of the key.
func (r *Region) check(pd PD, va, n uint64, need verbs.Access) (Piece, Fault) {
	switch {
	case r.pd != pd:
		return Piece{}, BadPD
	case r.access&need != need:
		return Piece{}, BadAccess
	case va < r.base || va-r.base > r.size || n > r.size-(va-r.base):
		return Piece{}, BadBounds
	}
	return Piece{r, va - r.base, n}, OK
}

// Locate returns the memory of up to n bytes from va on, in the region that an R_Key names. If va
// is not a multiple of 8, the result begins with the bytes of va's 8-byte word before va, as far as
// they are in the region. Locate also returns whether the region is zero-based, which means device
// memory. It only identifies the memory of a request: it checks no rights, and the caller must
// neither read nor write the bytes. It returns nil if the key is invalid, if va is outside of the
// region, or if the memory is far memory (see Far).
func (t *Table) Locate(key uint32, va uint64, n int) (b []byte, zero bool) {
	r := t.lookupRemote(key)
	if r == nil || va < r.base || va-r.base >= uint64(len(r.buf)) {
		return nil, false
	}
	end := va - r.base + min(uint64(max(n, 0)), uint64(len(r.buf))-(va-r.base))
	return r.buf[max(va&^7, r.base)-r.base : end], r.zero
}
