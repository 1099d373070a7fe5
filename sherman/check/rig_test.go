package check_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/rdmalab/rdmalab/sherman/check"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

// rig is a tree in local memory.
type rig struct {
	t      testing.TB
	super  layout.Superblock
	memory [][]byte
	next   []uint64
	root   layout.Addr
	// levels are the pages, leaves first, from left to right.
	levels [][]layout.Addr
	want   check.Content
	locks  []check.Lock
}

const generation = 0x5eed

// keyOf returns the keys of rigs, with gaps between them.
func keyOf(i int) uint64 { return uint64(10*i + 10) }

// newRig makes a tree of n keys with pages that are filled to a share of 3/4.
func newRig(t testing.TB, kind layout.Kind, n int) *rig {
	t.Helper()
	r := &rig{t: t, super: layout.Superblock{
		Shape: layout.Shape{Kind: kind}.WithDefaults(), Generation: generation, Servers: 2, Locks: 1024, Chunk: layout.MinChunk,
	}}
	fill := r.super.Shape.Slots(0) * 3 / 4
	pages := 2*n/fill + 64
	r.super.Len = r.super.FirstChunk() + uint64(pages*r.super.Shape.Page)
	for range r.super.Servers {
		r.memory = append(r.memory, make([]byte, r.super.Len))
		r.next = append(r.next, r.super.FirstChunk())
	}
	r.leaves(n, fill)
	for level := 1; len(r.levels[level-1]) > 1; level++ {
		r.internals(level)
	}
	r.root = r.levels[len(r.levels)-1][0]
	return r
}

// alloc takes a page of a server.
func (r *rig) alloc(server int) layout.Addr {
	at := r.next[server]
	r.next[server] += uint64(r.super.Shape.Page)
	return layout.At(server, at)
}

func (r *rig) bytes(a layout.Addr) []byte {
	return r.memory[a.Server()][a.Offset() : a.Offset()+uint64(r.super.Shape.Page)]
}

// page parses a page in place.
func (r *rig) page(a layout.Addr) *layout.Page {
	r.t.Helper()
	var p layout.Page
	if err := p.Parse(r.super.Shape, r.bytes(a)); err != nil {
		r.t.Fatal(err)
	}
	return &p
}

// init makes an empty page.
func (r *rig) init(a layout.Addr, h layout.Header) *layout.Page {
	h.Self, h.Generation = a, r.super.Generation
	var p layout.Page
	p.Init(r.super.Shape, r.bytes(a), h)
	return &p
}

func (r *rig) leaves(n, fill int) {
	count := max(1, (n+fill-1)/fill)
	at := make([]layout.Addr, count+1)
	for i := range count {
		at[i] = r.alloc(i % 2)
	}
	low := func(i int) uint64 {
		switch i {
		case 0:
			return 0
		case count:
			return layout.MaxKey
		}
		return keyOf(i * fill)
	}
	for i := range count {
		p := r.init(at[i], layout.Header{Lowest: low(i), Highest: low(i + 1), Sibling: at[i+1]})
		for j := range min(fill, n-i*fill) {
			key := keyOf(i*fill + j)
			p.Put(j, key, value(key))
			r.want.Add(key)
		}
	}
	r.levels = [][]layout.Addr{at[:count]}
}

func value(key uint64) []byte { return binary.LittleEndian.AppendUint64(nil, key^0x77) }

func (r *rig) internals(level int) {
	below := r.levels[level-1]
	fill := r.super.Shape.Slots(level) * 3 / 4
	count := (len(below) + fill - 1) / fill
	at := make([]layout.Addr, count+1)
	for i := range count {
		at[i] = r.alloc(i % 2)
	}
	for i := range count {
		kids := below[i*fill : min(len(below), (i+1)*fill)]
		h := layout.Header{Level: level, Lowest: r.page(kids[0]).Lowest, Highest: layout.MaxKey, Sibling: at[i+1], Leftmost: kids[0]}
		if i < count-1 {
			h.Highest = r.page(below[(i+1)*fill]).Lowest
		}
		p := r.init(at[i], h)
		for _, k := range kids[1:] {
			p.PutChild(r.page(k).Lowest, k)
		}
	}
	r.levels = append(r.levels, at[:count])
}

// change rewrites a page with another header.
func (r *rig) change(a layout.Addr, f func(h *layout.Header)) {
	old := r.page(a)
	var keys []uint64
	var values [][]byte
	for _, i := range old.Order(nil) {
		rec, _ := old.Slot(int(i))
		keys = append(keys, rec.Key)
		values = append(values, append([]byte(nil), rec.Value...))
	}
	h := old.Header
	f(&h)
	var p layout.Page
	p.Init(r.super.Shape, r.bytes(a), h)
	for i, k := range keys {
		if h.Level > 0 {
			p.PutChild(k, layout.Addr(binary.LittleEndian.Uint64(values[i])))
		} else {
			p.Put(i, k, values[i])
		}
	}
}

// read reads the memory.
func (r *rig) read(a layout.Addr, b []byte) error {
	if a.Server() >= len(r.memory) || a.Offset()+uint64(len(b)) > uint64(len(r.memory[a.Server()])) {
		return fmt.Errorf("%d bytes at %v are not in the memory", len(b), a)
	}
	copy(b, r.memory[a.Server()][a.Offset():])
	return nil
}

func (r *rig) config() check.Config {
	return check.Config{
		Super: r.super, Root: r.root, Ends: append([]uint64(nil), r.next...), Read: r.read, Locks: r.locks, Want: &r.want,
	}
}

func (r *rig) check() *check.Report {
	r.t.Helper()
	rep, err := check.Check(r.config())
	if err != nil {
		r.t.Fatal(err)
	}
	return rep
}
