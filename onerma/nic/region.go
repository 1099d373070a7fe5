package nic

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// RegionID names a region of a NIC.
type RegionID uint32

// Region is an entry of the NIC's region table: memory, and the key with which peers may use it.
type Region struct {
	id    RegionID
	mem   *mem.Region
	key   Key
	block cipher.Block // AES with the key of the region
	// version grows with each key that SetKey or a REKEY sets. The NIC ends transfers that began under
	// an earlier version.
	version uint32
	uses    int // number of commands whose local memory is this region
	gone    bool
}

// ID returns the number by which peers name the region.
func (r *Region) ID() RegionID { return r.id }

// Key returns the present K_r, the key of the region.
func (r *Region) Key() Key { return r.key }

// Grant returns K_d, the derived key with which process pid, on the NIC with address `from`, may do
// op on the region. The owner of the region sends K_d to this process over an encrypted channel,
// which is not part of 1RMA.
func (r *Region) Grant(from netip.Addr, pid PID, op onerma.Op) Key {
	return Derive(r.key, from, pid, op)
}

func (r *Region) setKey(k Key) {
	block, err := aes.NewCipher(k[:])
	if err != nil {
		panic(err) // 16 bytes are always a key
	}
	r.key, r.block = k, block
}

// holds reports whether the region has length bytes at offset.
func (r *Region) holds(offset uint64, length int) bool {
	size := uint64(r.mem.Len())
	return uint64(length) <= size && offset <= size-uint64(length)
}

// allows reports whether the region's access rights and length permit request h. It does not check
// the key. A REKEY needs no access right, but its offset must be 0.
func (r *Region) allows(h *onerma.Header) bool {
	switch h.Op {
	case onerma.Read:
		return r.mem.Access()&verbs.RemoteRead != 0 && r.holds(h.Offset, int(h.Length))
	case onerma.Write:
		return r.mem.Access()&verbs.RemoteWrite != 0 && r.holds(h.Offset, int(h.Length))
	case onerma.Rekey:
		return h.Offset == 0
	}
	return false
}

func opError(op string, err error, detail string) error {
	return &verbs.OpError{Op: "onerma " + op, Err: err, Detail: detail}
}

// Register makes a region of memory m. The caller has registered m in a mem.Table and keeps it
// until Deregister. The access rights of m are the rights of peers. The key of the region is
// random.
func (n *NIC) Register(m *mem.Region) (*Region, error) {
	if !n.up {
		return nil, errDown("register")
	}
	i := slices.Index(n.regions, nil)
	if i < 0 {
		return nil, opError("register", verbs.ErrLimit, "all entries of the region table are in use")
	}
	r := &Region{id: RegionID(i + 1), mem: m}
	var k Key
	for j := 0; j < len(k); j += 8 {
		binary.BigEndian.PutUint64(k[j:], n.cfg.Rand.Uint64())
	}
	r.setKey(k)
	n.regions[i] = r
	return r, nil
}

// SetKey replaces K_r, the key of region r, without a REKEY operation; the driver calls it for the
// region's owner. Inbound WRITEs of the region end, and from now on the NIC refuses keys that were
// derived from the old K_r.
func (n *NIC) SetKey(r *Region, k Key) error {
	if r.gone || !n.up {
		return opError("set key", verbs.ErrClosed, "the region was deregistered")
	}
	r.setKey(k)
	r.version++
	n.revoke(r, nil)
	return nil
}

// Rotate replaces K_r as SetKey does, but operations that the NIC has accepted under the old K_r go on: they
// end within the dispatch timeout and the timeout, as always. It is for a new key that those who have the
// old one get, too; SetKey takes a right away.
func (n *NIC) Rotate(r *Region, k Key) error {
	if r.gone || !n.up {
		return opError("rotate", verbs.ErrClosed, "the region was deregistered")
	}
	r.setKey(k)
	return nil
}

// Deregister ends a region. It fails with ErrBusy while commands use the region as their local
// memory. When it returns nil, the NIC does not touch the memory any more.
func (n *NIC) Deregister(r *Region) error {
	switch {
	case r.gone || !n.up:
		return opError("deregister", verbs.ErrClosed, "the region was deregistered")
	case r.uses > 0:
		return opError("deregister", verbs.ErrBusy, "commands use it: wait for their completions")
	}
	r.gone = true
	n.regions[r.id-1] = nil
	n.revoke(r, nil)
	return nil
}

// region returns the region with the given ID; nil if there is none.
func (n *NIC) region(id uint32) *Region {
	if id == 0 || id > uint32(len(n.regions)) {
		return nil
	}
	return n.regions[id-1]
}
