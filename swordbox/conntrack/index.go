package conntrack

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// ends names the two ends of a packet; IPv4 addresses are both in a.
type ends struct {
	a, b, c, d uint64
	v6         bool
}

// key names a row.
type key struct {
	ends
	qpn wire.QPN
}

// endsOf are the two ends of a packet.
func endsOf(f *wire.Frame) ends {
	be := binary.BigEndian
	if !f.V6 {
		return ends{a: uint64(be.Uint32(f.IPv4.Src[:]))<<32 | uint64(be.Uint32(f.IPv4.Dst[:]))}
	}
	s, d := &f.IPv6.Src, &f.IPv6.Dst
	return ends{be.Uint64(s[:]), be.Uint64(s[8:]), be.Uint64(d[:]), be.Uint64(d[8:]), true}
}

// endsBetween is endsOf for a packet from src to dst, which are of one family and without zone.
func endsBetween(src, dst netip.Addr) ends {
	var f wire.Frame
	if src.Is4() {
		f.IPv4.Src, f.IPv4.Dst = src.As4(), dst.As4()
	} else {
		f.V6, f.IPv6.Src, f.IPv6.Dst = true, src.As16(), dst.As16()
	}
	return endsOf(&f)
}

// back are the ends of a packet the other way.
func (e ends) back() ends {
	if !e.v6 {
		e.a = bits.RotateLeft64(e.a, 32)
		return e
	}
	return ends{e.c, e.d, e.a, e.b, true}
}

// hash spreads keys. seed keeps a peer from choosing keys that meet.
func (k *key) hash(seed uint64) uint32 {
	h := hash4(k.a, k.qpn, seed)
	if k.v6 {
		w := mix(mix(uint64(h)^k.b, k.c^seed), k.d^0xbf58476d1ce4e5b9)
		h = uint32(w ^ w>>32)
	}
	return h
}

// hash4 is hash for IPv4.
func hash4(a uint64, qpn wire.QPN, seed uint64) uint32 {
	h := mix(a^seed, uint64(qpn)^0x9e3779b97f4a7c15)
	return uint32(h ^ h>>32)
}

// mix is the folded product of two words.
func mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x^0x2545f4914f6cdd1d, y^0xd6e8feb86659fd93)
	return hi ^ lo
}

// index finds rows by key: open addressing with linear probing, at most half full. It never grows.
type index struct {
	slots []slot
	mask  uint32
	seed  uint64
}

type slot struct {
	hash uint32
	row  *Row // nil: free
}

func newIndex(rows int, seed uint64) index {
	n := uint32(1) << bits.Len32(uint32(2*rows-1))
	return index{slots: make([]slot, n), mask: n - 1, seed: seed}
}

// find returns the row of a packet, or nil. It is get without a key in memory, for IPv4.
func (x *index) find(f *wire.Frame) *Row {
	if f.V6 {
		k := key{endsOf(f), f.BTH.DestQP}
		return x.get(&k)
	}
	a := uint64(binary.BigEndian.Uint32(f.IPv4.Src[:]))<<32 | uint64(binary.BigEndian.Uint32(f.IPv4.Dst[:]))
	h := hash4(a, f.BTH.DestQP, x.seed)
	for i := h & x.mask; ; i = (i + 1) & x.mask {
		s := &x.slots[i&uint32(len(x.slots)-1)]
		if s.row == nil {
			return nil
		}
		if r := s.row; s.hash == h && r.key.a == a && r.key.qpn == f.BTH.DestQP && !r.key.v6 {
			return r
		}
	}
}

// get returns the row of k, or nil.
func (x *index) get(k *key) *Row {
	h := k.hash(x.seed)
	for i := h & x.mask; ; i = (i + 1) & x.mask {
		s := &x.slots[i]
		if s.row == nil {
			return nil
		}
		if s.hash == h && s.row.key == *k {
			return s.row
		}
	}
}

// put enters a row whose key is not there.
func (x *index) put(r *Row) {
	h := r.key.hash(x.seed)
	i := h & x.mask
	for x.slots[i].row != nil {
		i = (i + 1) & x.mask
	}
	x.slots[i] = slot{h, r}
}

// remove takes a row out and closes the gap, so that no search ends early.
func (x *index) remove(r *Row) {
	i := r.key.hash(x.seed) & x.mask
	for x.slots[i].row != r {
		if x.slots[i].row == nil {
			return
		}
		i = (i + 1) & x.mask
	}
	for j := i; ; {
		x.slots[i] = slot{}
		for {
			j = (j + 1) & x.mask
			if x.slots[j].row == nil {
				return
			}
			if home := x.slots[j].hash & x.mask; (j-home)&x.mask >= (j-i)&x.mask {
				break // it may move to i, which is between its home and j
			}
		}
		x.slots[i] = x.slots[j]
		i = j
	}
}
