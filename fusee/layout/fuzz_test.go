package layout

import (
	"bytes"
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
		for _, v := range formats {
			found := c.Find(v, HashOf(key), nil)
			if free := c.Free(v, nil); len(free)+len(found) > CombinedSlots {
				t.Fatalf("slots %v are free, %v name the key", free, found)
			}
		}
		if c.Depth == 0 && !c.Has(HashOf(key)) {
			t.Fatal("a subtable of depth 0 does not have a key")
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

// FuzzDirectory: a directory that parses has an entry for every hash.
func FuzzDirectory(f *testing.F) {
	f.Add(uint64(1), uint64(1), uint64(1|1<<16), uint64(3))
	f.Add(uint64(0), uint64(0), uint64(0), uint64(3))
	f.Fuzz(func(t *testing.T, depth, one, two, key uint64) {
		for _, words := range [][]uint64{nil, {one}, {one, two}, {one, two, one, two}} {
			var d Directory
			if d.Parse(depth, words) != nil {
				continue
			}
			if e := d.Of(HashOf(key)); e.Depth > d.Depth || e.Word() != one && e.Word() != two {
				t.Fatalf("%+v of %+v", e, d)
			}
		}
	})
}
