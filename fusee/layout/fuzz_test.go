package layout

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzObject: Parse does not panic on any bytes. AppendTo makes the same bytes from what Parse
// accepts, and Parse recognises a commit.
func FuzzObject(f *testing.F) {
	for _, format := range formats {
		o := Object{Mark: Valid, Key: 1, Value: []byte("abc"), Version: 1, Op: OpInsert}
		f.Add(o.AppendTo(format, nil), uint8(format))
		f.Add(make([]byte, Overhead), uint8(format))
	}
	f.Fuzz(func(t *testing.T, b []byte, format uint8) {
		var o, again Object
		v := Format(format % 2)
		if o.Parse(v, b) != nil {
			return
		}
		bytesOf := o.AppendTo(v, nil)
		if err := again.Parse(v, bytesOf); err != nil || again.Key != o.Key || !bytes.Equal(again.Value, o.Value) || again.Next != o.Next || again.Version != o.Version {
			t.Fatalf("%+v, %+v: %v", o, again, err)
		}
		c, at := again.Commit(v, 5, nil)
		if at.Off+at.Len > len(bytesOf) || at.Len != len(c) {
			t.Fatalf("a commit at %+v of %d bytes", at, len(bytesOf))
		}
		copy(bytesOf[at.Off:], c)
		if err := o.Parse(v, bytesOf); err != nil || o.Outcome != Committed && o.Op != OpFinished || o.Op != OpFinished && o.Old != 5 {
			t.Fatalf("after a commit: %+v %v", o, err)
		}
	})
}

// FuzzCombined: no method panics on any bytes.
func FuzzCombined(f *testing.F) {
	f.Add(make([]byte, CombinedLen), 1, uint64(7))
	f.Fuzz(func(t *testing.T, b []byte, main int, key uint64) {
		var c Combined
		if c.Parse(main&0xff, b) != nil {
			return
		}
		for i, h := range c.Heads {
			var put [8]byte
			if h.Put(put[:]); !bytes.Equal(put[:], b[i*BucketLen:][:8]) {
				t.Fatalf("%+v is written as %x", h, put)
			}
			if h.Depth == 0 && !h.Has(HashOf(key)) || h.Has(HashOf(key)) && !h.Had(HashOf(key)) {
				t.Fatalf("%+v does not have a key", h)
			}
		}
	})
}

// FuzzSuperblock: a superblock that parses is valid and survives encoding.
func FuzzSuperblock(f *testing.F) {
	for _, format := range formats {
		var b [SuperblockLen]byte
		s := Superblock{Shape: aShape(format), Generation: 1}
		s.Put(b[:])
		f.Add(b[:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Superblock
		if s.Parse(b) != nil {
			return
		}
		var put [SuperblockLen]byte
		s.Put(put[:])
		if err := again.Parse(put[:]); err != nil || again != s {
			t.Fatalf("%+v, %+v: %v", s, again, err)
		}
		v := s.Shape
		if v.Len() < v.AreaAt(0) || v.AreaAt(0) < v.SubtableAt(0) {
			t.Fatalf("a region of %d bytes with areas at %d, subtables at %d", v.Len(), v.AreaAt(0), v.SubtableAt(0))
		}
	})
}

// FuzzDirectory: a directory that is read has a subtable for every hash.
func FuzzDirectory(f *testing.F) {
	f.Add(uint64(1), uint64(1), uint64(2), uint64(3))
	f.Add(uint64(0), uint64(1), uint64(2), uint64(3))
	f.Fuzz(func(t *testing.T, one, two, three, key uint64) {
		s := aShape(Hardened)
		for _, n := range []int{1, 2, 3} {
			s.Depth, s.Subtables = 0, n
			var d Directory
			var b []byte
			for _, w := range []uint64{one, two, three} {
				b = binary.LittleEndian.AppendUint64(b, w)
			}
			if d.Read(&s, b[:8*n]) != nil {
				continue
			}
			if n, e := d.Of(&s, HashOf(key)); n >= s.Subtables || d.At(n) != e {
				t.Fatalf("%d %+v of %+v", n, e, d)
			}
		}
	})
}
