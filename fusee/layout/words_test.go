package layout

import (
	"encoding/binary"
	"errors"
	"testing"
)

// The copy of a block's word has the length and the version of its objects, as of a block without a
// client. The copy of no word is none.
func TestCopyOfABlockUse(t *testing.T) {
	if c := BlockUse(0).Copy(); c != 0 || c.Covers(0, 0) {
		t.Errorf("the copy of no word is %#x", uint64(c))
	}
	u := UseBy(7, 3).Ahead(20)
	c := u.Copy()
	if !c.Left() || c.Client() != 0 || c.Units() != 3 || c.Version() != 20 {
		t.Errorf("%#x is copied as %#x", uint64(u), uint64(c))
	}
	for _, x := range []struct {
		units   int
		version uint32
		want    bool
	}{{3, 20, true}, {3, 19, true}, {3, 0, true}, {3, 21, false}, {2, 20, false}, {4, 0, false}, {0, 0, false}} {
		if got := c.Covers(x.units, x.version); got != x.want {
			t.Errorf("it covers objects of %d units with version %d: %v", x.units, x.version, got)
		}
	}
	// Objects of no length are covered by a word of a block that was used.
	if !UseLeft(0, 0, 1).Copy().Covers(0, 0) {
		t.Error("a used block without objects is not covered")
	}
}

// A header is read as it was written, and refused if no Put writes it.
func TestHeadersThatAreRead(t *testing.T) {
	for _, h := range []Header{{}, {Depth: 1, Prefix: 1}, {Depth: 1, Moving: true}, {Depth: 5, Prefix: 0x15, Moving: true}, {Depth: MaxDepth, Prefix: 1<<MaxDepth - 1}} {
		b := make([]byte, 8)
		h.Put(b)
		got := Header{Depth: 9, Prefix: 9, Moving: true}
		if err := got.Parse(b); err != nil || got != h {
			t.Errorf("%+v is read as %+v, %v", h, got, err)
		}
	}
	for what, w := range map[string]uint64{
		"a depth above the greatest":   MaxDepth + 1,
		"a greater one":                MaxDepth + 2,
		"the greatest byte":            0xff,
		"moving without a depth":       movingBit,
		"a prefix longer than depth":   2 | 4<<32,
		"a prefix without a depth":     1 << 32,
		"an unknown bit":               1 | 1<<9,
		"an unknown bit below":         1 | 1<<31,
		"a prefix behind the greatest": MaxDepth | 1<<MaxDepth<<32,
	} {
		var h Header
		if err := h.Parse(binary.LittleEndian.AppendUint64(nil, w)); !errors.Is(err, ErrBucket) {
			t.Errorf("%s: %+v, %v", what, h, err)
		}
	}
}

// An entry of a directory has at most the greatest depth.
func TestDepthOfAnEntry(t *testing.T) {
	for depth, ok := range map[int]bool{0: true, 1: true, MaxDepth: true, MaxDepth + 1: false, 255: false} {
		want := Entry{Depth: depth, Splitting: true}
		var e Entry
		if err := e.Parse(want.Word()); (err == nil) != ok || ok && e != want {
			t.Errorf("depth %d: %+v, %v", depth, e, err)
		}
	}
}

// A split needs a subtable for the keys that move, and a depth below the greatest.
func TestRoomForATwin(t *testing.T) {
	s := aShape(Hardened)
	s.Depth, s.Subtables = 1, 8
	for _, c := range []struct {
		subtable, depth, twin int
		ok                    bool
	}{{1, 1, 3, true}, {3, 2, 7, true}, {0, 3, 8, false}, {1, MaxDepth, 1 | 1<<MaxDepth, false}} {
		if twin, ok := s.Twin(c.subtable, c.depth); twin != c.twin || ok != c.ok {
			t.Errorf("subtable %d with depth %d: %d, %v", c.subtable, c.depth, twin, ok)
		}
	}
	s.Subtables = 1 << (MaxDepth + 1)
	for depth, want := range map[int]bool{MaxDepth - 1: true, MaxDepth: false} {
		if _, ok := s.Twin(0, depth); ok != want {
			t.Errorf("depth %d: %v", depth, ok)
		}
	}
}

// No two clients write the same value into a lease word, and no client writes one twice.
func TestBeats(t *testing.T) {
	seen := map[uint64]bool{}
	for _, number := range []uint32{0, 1, 2, Leases, 1<<31 + 1, 1<<32 - 1} {
		for _, n := range []uint32{0, 1, 2, 1<<31 + 1, 1<<32 - 1} {
			if b := Beat(number, n); seen[b] {
				t.Errorf("client %d, renewal %d: %#x again", number, n, b)
			}
			seen[Beat(number, n)] = true
		}
	}
}
