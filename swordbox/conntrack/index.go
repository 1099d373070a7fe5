package conntrack

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// addrPair is the source and the destination address of a packet. For IPv4, both are in a.
type addrPair struct {
	a, b, c, d uint64
	v6         bool
}

// key is the part of a request that names its flow: the addresses and the destination queue pair.
// The UDP source port is not part of it, because NICs change that port during a connection. The
// published machines have the port in their own keys, as the paper has (hole 23).
type key struct {
	addrPair
	qpn wire.QPN
}

func addrsOf(f *wire.Frame) addrPair {
	be := binary.BigEndian
	if !f.V6 {
		return addrPair{a: uint64(be.Uint32(f.IPv4.Src[:]))<<32 | uint64(be.Uint32(f.IPv4.Dst[:]))}
	}
	s, d := &f.IPv6.Src, &f.IPv6.Dst
	return addrPair{be.Uint64(s[:]), be.Uint64(s[8:]), be.Uint64(d[:]), be.Uint64(d[8:]), true}
}

// addrsBetween returns the address pair of a packet from src to dst. Both are IPv4 or both IPv6,
// without zone.
func addrsBetween(src, dst netip.Addr) addrPair {
	var f wire.Frame
	if src.Is4() {
		f.IPv4.Src, f.IPv4.Dst = src.As4(), dst.As4()
	} else {
		f.V6, f.IPv6.Src, f.IPv6.Dst = true, src.As16(), dst.As16()
	}
	return addrsOf(&f)
}

// back returns the address pair of packets in the other direction.
func (e addrPair) back() addrPair {
	if !e.v6 {
		e.a = bits.RotateLeft64(e.a, 32)
		return e
	}
	return addrPair{e.c, e.d, e.a, e.b, true}
}

// hash returns the hash of the key. The seed keeps hosts from choosing keys that collide.
func (k *key) hash(seed uint64) uint32 {
	h := hash4(k.a, k.qpn, seed)
	if k.v6 {
		w := mix(mix(uint64(h)^k.b, k.c^seed), k.d^0xbf58476d1ce4e5b9)
		h = uint32(w ^ w>>32)
	}
	return h
}

// hash4 returns the hash of a key with IPv4 addresses.
func hash4(a uint64, qpn wire.QPN, seed uint64) uint32 {
	h := mix(a^seed, uint64(qpn)^0x9e3779b97f4a7c15)
	return uint32(h ^ h>>32)
}

// mix returns the product of two words, folded to one word.
func mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^0x2545f4914f6cdd1d, y^0xd6e8feb86659fd93)
	return hi ^ lo
}

// index finds flows by key: open addressing with linear probing, at most half full. It never grows.
type index struct {
	slots []slot
	mask  uint32
	seed  uint64
}

type slot struct {
	hash uint32
	flow *Flow // nil means that the place is free
}

func newIndex(flows int, seed uint64) index {
	n := uint32(1) << bits.Len32(uint32(2*flows-1))
	return index{slots: make([]slot, n), mask: n - 1, seed: seed}
}

// find returns the flow of a packet; nil if there is none. For IPv4 it does what get does, but
// without building a key in memory.
func (x *index) find(f *wire.Frame) *Flow {
	if f.V6 {
		k := key{addrsOf(f), f.BTH.DestQP}
		return x.get(&k)
	}
	a := uint64(binary.BigEndian.Uint32(f.IPv4.Src[:]))<<32 | uint64(binary.BigEndian.Uint32(f.IPv4.Dst[:]))
	h := hash4(a, f.BTH.DestQP, x.seed)
	for i := h & x.mask; ; i = (i + 1) & x.mask {
		s := &x.slots[i&uint32(len(x.slots)-1)]
		if s.flow == nil {
			return nil
		}
		if fl := s.flow; s.hash == h && fl.key.a == a && fl.key.qpn == f.BTH.DestQP && !fl.key.v6 {
			return fl
		}
	}
}

// get returns the flow with key k; nil if there is none.
func (x *index) get(k *key) *Flow {
	h := k.hash(x.seed)
	for i := h & x.mask; ; i = (i + 1) & x.mask {
		s := &x.slots[i]
		if s.flow == nil {
			return nil
		}
		if s.hash == h && s.flow.key == *k {
			return s.flow
		}
	}
}

// put adds a flow whose key is not in the index.
func (x *index) put(fl *Flow) {
	h := fl.key.hash(x.seed)
	i := h & x.mask
	for x.slots[i].flow != nil {
		i = (i + 1) & x.mask
	}
	x.slots[i] = slot{h, fl}
}

// remove deletes a flow. It closes the gap in the slots, so that no later search ends too early.
func (x *index) remove(fl *Flow) {
	i := fl.key.hash(x.seed) & x.mask
	for x.slots[i].flow != fl {
		if x.slots[i].flow == nil {
			return
		}
		i = (i + 1) & x.mask
	}
	for j := i; ; {
		x.slots[i] = slot{}
		for {
			j = (j + 1) & x.mask
			if x.slots[j].flow == nil {
				return
			}
			if home := x.slots[j].hash & x.mask; (j-home)&x.mask >= (j-i)&x.mask {
				break // the flow at j may move to i, because i is between its home slot and j
			}
		}
		x.slots[i] = x.slots[j]
		i = j
	}
}
