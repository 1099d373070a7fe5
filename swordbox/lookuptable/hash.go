package lookuptable

import (
	"cmp"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/units"
)

// Hash is a value of the key `hash` of rules: it decides which frames share an entry, and where the
// entry is. The switch calls its functions for each frame, so they must neither block nor allocate,
// and the same argument must always have the same result.
type Hash struct {
	// Name is the value of the key.
	Name string
	// Of returns the hash of a key, from which Layout.Place computes the server and the home slot. nil
	// stands for that of Mix.
	Of func(k Key) uint64
	// Key returns the key of a frame's or an entry's flow (or destination, with match=destination): frames
	// with equal keys share an entry. It cannot change V6 and Mask. Its result has the address of a machine in Dst, and is the
	// result for itself, too: lists of entries have keys that it has made. nil means that a key stays as it is.
	Key func(k Key) Key
}

// Mix is the name of the default. CRC32 is the one that chips of switches compute.
const (
	Mix   = "mix"
	CRC32 = "crc32"
)

var named = map[string]Hash{
	Mix:   {Name: Mix},
	CRC32: {Name: CRC32, Of: crcOf},
}

// RegisterHash adds a hash of another module, under a name of small letters, digits and dashes. Init
// functions call it. It panics if the name is taken or is no name, or if there is neither function. remove
// removes the hash; only tests call it.
func RegisterHash(h Hash) (remove func()) {
	if _, taken := named[h.Name]; taken || h.Of == nil && h.Key == nil || !units.IsName(h.Name) {
		panic(fmt.Sprintf("hash %q: the name is taken, is no name, or has no function", h.Name))
	}
	named[h.Name] = h
	return func() { delete(named, h.Name) }
}

// Hashes returns the names of all hashes in their order.
func Hashes() []string { return slices.Sorted(maps.Keys(named)) }

func checkHash(name string) error {
	if _, ok := named[name]; !ok {
		return fmt.Errorf("%.40q is unknown; %suse one of %s", name, nearest.Meant(name, Hashes()), strings.Join(Hashes(), ", "))
	}
	return nil
}

// hashOf returns the hash with a name; "" is the default.
func hashOf(name string) Hash { return named[cmp.Or(name, Mix)] }

// sum returns the hash of a key.
func (h *Hash) sum(k *Key) uint64 {
	if h.Of == nil {
		return k.Hash()
	}
	return h.Of(*k)
}

// keyed returns the key that stands for k.
func (h *Hash) keyed(k Key) Key {
	if h.Key == nil {
		return k
	}
	made := h.Key(k)
	made.V6, made.Mask = k.V6, k.Mask // an entry's addresses are of the frame's version
	return made
}

// crcOf returns the CRC-32 of IEEE 802.3 over the source and destination address (4 or 16 bytes each),
// the protocol, the ports and, if it is not 0, the number of the mask.
func crcOf(k Key) uint64 {
	n := 4
	if k.V6 {
		n = 16
	}
	c := crcAdd(^uint32(0), k.Src[:n]...)
	c = crcAdd(c, k.Dst[:n]...)
	c = crcAdd(c, k.Proto, byte(k.SrcPort>>8), byte(k.SrcPort), byte(k.DstPort>>8), byte(k.DstPort))
	if k.Mask != 0 {
		c = crcAdd(c, k.Mask)
	}
	return uint64(^c)
}

// crcAdd adds bytes to a CRC. The functions of hash/crc32 would make them escape to the heap.
func crcAdd(c uint32, b ...byte) uint32 {
	for _, x := range b {
		c = crc32.IEEETable[byte(c)^x] ^ c>>8
	}
	return c
}
