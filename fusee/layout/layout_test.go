package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/e2e/golden"
)

var formats = []Format{Hardened, Published}

// aShape is a small shape with several servers, subtables and blocks.
func aShape(f Format) Shape {
	return Shape{
		Format: f, Servers: 3, Replicas: 2, IndexReplicas: 2, Depth: 1, Subtables: 4, Groups: 5, Blocks: 6, BlockUnits: 128,
	}
}

// The bytes of everything that is in remote memory.
func TestGoldenBytes(t *testing.T) {
	var out strings.Builder
	put := func(f Format, what string, b []byte) {
		fmt.Fprintf(&out, "%v %s, %d bytes\n%s", f, what, len(b), hex.Dump(b))
	}
	for _, f := range formats {
		var b [SuperblockLen]byte
		super := Superblock{Shape: aShape(f), Generation: 0x1122334455667788, Server: 2}
		super.Put(b[:])
		put(f, "superblock", b[:])
		var h [8]byte
		Header{Depth: 3, Prefix: 5}.Put(h[:])
		put(f, "header of a bucket", h[:])
		Header{Depth: 3, Prefix: 5, Moving: true}.Put(h[:])
		put(f, "header of a bucket whose keys are moved", h[:])
		slot := f.Slot(Ref{Fingerprint: 0xab, Units: 3, Server: 2, Place: 0x123456, Version: 0x78899})
		fmt.Fprintf(&out, "%v slot %#016x\n", f, uint64(slot))
		o := Object{Mark: Valid, Key: 0x0102030405060708, Value: []byte("value"), Next: LinkTo(1, 64), Previous: LinkTo(2, 32), Version: 0x70007, Op: OpUpdate}
		put(f, "object", o.AppendTo(f, nil))
		c, at := o.Commit(f, 0x55, nil)
		put(f, fmt.Sprintf("commit at %d", at.Off), c)
		c, at = o.Finish(f, nil)
		put(f, fmt.Sprintf("finish at %d", at.Off), c)
	}
	fmt.Fprintf(&out, "entry %#016x\nuse of a block %#016x\n", Entry{Depth: 2, Splitting: true}.Word(), uint64(UseBy(9, 4)))
	golden.Check(t, "testdata/bytes.golden", out.String())
}

// The hash of a key decides where all clients look for the key, so it must never change.
func TestGoldenHashes(t *testing.T) {
	var out strings.Builder
	for _, key := range []uint64{0, 1, 2, 1 << 63, ^uint64(0)} {
		h := HashOf(key)
		fmt.Fprintf(&out, "key %#x: fingerprint %#02x, prefix %#x", key, h.Fingerprint(), h.Prefix())
		for _, f := range formats {
			one, two := f.Buckets(h, 34000)
			fmt.Fprintf(&out, ", %v %d and %d", f, one, two)
		}
		out.WriteString("\n")
	}
	golden.Check(t, "testdata/hashes.golden", out.String())
}

// The buckets of a key are two different combined buckets inside of the subtable, evenly spread.
func TestBuckets(t *testing.T) {
	for _, f := range formats {
		s := aShape(f)
		count := make([]int, s.Mains())
		const keys = 20000
		for key := range uint64(keys) {
			one, two := f.Buckets(HashOf(key), s.Mains())
			if one < 0 || one >= s.Groups || two < s.Groups || two >= s.Mains() {
				t.Fatalf("%v: key %d: buckets %d and %d of %d", f, key, one, two, s.Mains())
			}
			count[one]++
			count[two]++
		}
		for i, n := range count {
			if want := 2 * keys / s.Mains(); n < want*8/10 || n > want*12/10 {
				t.Errorf("%v: bucket %d has %d keys, want about %d", f, i, n, want)
			}
		}
	}
}

// The combined buckets of all main buckets cover their subtable. Two neighbours share the overflow
// bucket, and no other bucket.
func TestCombinedBuckets(t *testing.T) {
	s := aShape(Hardened)
	uses := map[uint64][]int{}
	for main := range s.Mains() {
		at := s.CombinedAt(1, main)
		if at < s.SubtableAt(1) || at+CombinedLen > s.SubtableAt(2) {
			t.Errorf("main bucket %d at %d is outside of its subtable", main, at)
		}
		mainAt := at + uint64(main%2)*BucketLen
		for _, b := range []uint64{at, at + BucketLen} {
			if uses[b] = append(uses[b], main); len(uses[b]) > 1 && (b == mainAt || uses[b][0]/2 != main/2) {
				t.Errorf("bucket at %d belongs to main buckets %v", b, uses[b])
			}
		}
	}
	if len(uses) != s.Groups*groupBuckets {
		t.Errorf("%d buckets are used, want %d", len(uses), s.Groups*groupBuckets)
	}
}

// Subtables of the published format overlap; those of the hardened one do not, and no part of a
// region overlaps another one.
func TestParts(t *testing.T) {
	for _, f := range formats {
		s := aShape(f)
		overlap := s.SubtableAt(0)+s.SubtableLen() > s.SubtableAt(1)
		if overlap != (f == Published) {
			t.Errorf("%v: subtables overlap: %v", f, overlap)
		}
		parts := []struct {
			name     string
			from, to uint64
		}{
			{"superblock", 0, SuperblockLen},
			{"words of clients", ClientWord, DoubtWord + 8},
			{"view", ViewWord, ViewWord + 8},
			{"master", MasterWord, MasterWord + 8},
			{"directory", s.EntryAt(0), s.EntryAt(s.Subtables)},
			{"subtables", s.SubtableAt(0), s.SubtableAt(s.Subtables-1) + s.SubtableLen()},
			{"block tables", s.BlockTable(0), s.BlockTable(s.Replicas)},
			{"area 0", s.AreaAt(0), s.AreaAt(0) + s.AreaLen()},
			{"area 1", s.AreaAt(1), s.AreaAt(1) + s.AreaLen()},
			{"leases", s.LeaseAt(0), s.LeaseAt(Leases-1) + 8},
		}
		for i := range parts[1:] {
			if parts[i].to > parts[i+1].from {
				t.Errorf("%v: %s ends at %d, %s begins at %d", f, parts[i].name, parts[i].to, parts[i+1].name, parts[i+1].from)
			}
		}
		if end := parts[len(parts)-1].to; end != s.Len() {
			t.Errorf("%v: the last part ends at %d of %d", f, end, s.Len())
		}
	}
}

// All objects of a block lie in it, behind its bitmap, apart from each other.
func TestObjectsOfABlock(t *testing.T) {
	s := aShape(Hardened)
	for _, units := range []int{1, 2, 3, 64, 127, 128, 255} {
		end := uint64(2*s.BlockUnits + s.bitmapUnits())
		for i := range s.Objects(units) {
			place := s.PlaceOf(2, i, units)
			if place < end || s.BlockOf(place) != 2 || s.IndexOf(place, units) != i {
				t.Errorf("object %d of %d units at %d: block %d, index %d, the one before ends at %d", i, units, place, s.BlockOf(place), s.IndexOf(place, units), end)
			}
			if !s.Holds(Ref{Units: units, Place: place}) {
				t.Errorf("object %d of %d units at %d: not in the area", i, units, place)
			}
			end = place + uint64(units)
		}
		if end > uint64(3*s.BlockUnits) {
			t.Errorf("objects of %d units end at %d", units, end)
		}
	}
	if s.IndexOf(s.PlaceOf(1, 1, 2)+1, 2) != -1 || s.IndexOf(uint64(s.BlockUnits), 1) != -1 {
		t.Error("an object begins inside of another, or in the bitmap")
	}
}

// The replicas of an object are on different servers, as many as Replicas says, and two objects
// never share a place.
func TestReplicas(t *testing.T) {
	s := aShape(Hardened)
	s.Replicas = 3
	type spot struct {
		server int
		off    uint64
	}
	taken := map[spot]string{}
	for server := range s.Servers {
		for _, place := range []uint64{1, 77, s.PlaceOf(s.Blocks-1, 0, 1)} {
			seen := map[int]bool{}
			for j := range s.Replicas {
				at, off := s.Replica(server, place, j)
				if seen[at] || off+Unit > s.Len() {
					t.Errorf("replica %d of %d:%d is on server %d at %d of %d", j, server, place, at, off, s.Len())
				}
				seen[at] = true
				name := fmt.Sprint("replica ", j, " of ", server, ":", place)
				if was, ok := taken[spot{at, off}]; ok {
					t.Errorf("%s and %s are in one place", was, name)
				}
				taken[spot{at, off}] = name
			}
		}
	}
}

// Each object of a word of a bitmap has a bit: the hardened masks are all different, and their sum
// does not carry. The published ones repeat, and one of them sets half of the word.
func TestFreeBits(t *testing.T) {
	for _, f := range formats {
		s := aShape(f)
		var sum uint64
		distinct := map[uint64]bool{}
		for bit := range uint64(64) {
			place := uint64(3*s.BlockUnits+64) + bit
			word, add := s.FreeBit(place)
			if want := uint64(3*s.BlockUnits)*Unit + 8; word != want {
				t.Fatalf("%v: word at %d, want %d", f, word, want)
			}
			distinct[add] = true
			sum += add
		}
		whole := len(distinct) == 64 && sum == ^uint64(0)
		if whole != (f == Hardened) {
			t.Errorf("%v: %d masks, sum %#x", f, len(distinct), sum)
		}
	}
	published := aShape(Published)
	if _, add := published.FreeBit(31); add != 0xffffffff80000000 {
		t.Errorf("the published mask of bit 31 is %#x", add)
	}
}

// A slot encodes its Ref in both formats; only the hardened format has the version.
func TestSlots(t *testing.T) {
	for _, f := range formats {
		for _, r := range []Ref{
			{Fingerprint: 1, Units: 1},
			{Fingerprint: 0xff, Units: MaxUnits, Server: MaxServers - 1, Place: MaxPlace - 1, Version: MaxVersion},
			{Fingerprint: 7, Units: 4, Server: 2, Place: 0x102030, Version: 300},
		} {
			want := r
			if f == Published {
				want.Version = 0
			}
			if got := f.Ref(f.Slot(r)); got != want || f.Empty(f.Slot(r)) {
				t.Errorf("%v: %+v is read as %+v", f, want, got)
			}
		}
		if !f.Empty(0) {
			t.Errorf("%v: memory that was never written is no empty slot", f)
		}
		if r := (Ref{Fingerprint: 9, Units: 3, Server: 1, Place: 5, Version: 7}); f == Hardened {
			left := f.Leave(f.Slot(r))
			if !f.Empty(left) || !f.Leaving(left) || f.Left(left, 9) != f.Slot(r) || left == f.Emptied(r) || f.Leaving(f.Emptied(r)) || f.Leaving(f.Slot(r)) || f.Leaving(0) {
				t.Errorf("%#x leaves %#x", uint64(f.Slot(r)), uint64(left))
			}
		}
		one, two := f.Emptied(Ref{Units: 1, Place: 5, Version: 1}), f.Emptied(Ref{Units: 1, Place: 5, Version: 2})
		if !f.Empty(one) || (one == two) != (f == Published) {
			t.Errorf("%v: two DELETEs leave %#x and %#x", f, one, two)
		}
	}
}

// The outcome of an operation as a recovery reads it from the log entry. In the published format,
// the recovery recognises neither an INSERT that has committed, nor an old value of which only a
// part has arrived.
func TestOutcomes(t *testing.T) {
	const old = Slot(0x8877665544332211)
	for _, f := range formats {
		o := Object{Mark: Valid, Key: 3, Value: []byte("abc"), Version: 9, Op: OpInsert}
		whole := o.AppendTo(f, nil)
		check := func(what string, want, published Outcome, change func(b []byte)) {
			t.Helper()
			if f == Published {
				want = published
			}
			b := bytes.Clone(whole)
			change(b)
			var got Object
			if err := got.Parse(f, b); err != nil || got.Outcome != want {
				t.Errorf("%v, %s: %v %v, want %v", f, what, got.Outcome, err, want)
			}
			if want == Committed && what != "a part of a commit" && got.Old != old && got.Old != 0 {
				t.Errorf("%v, %s: old value %#x", f, what, got.Old)
			}
		}
		put := func(bytes []byte, at Range) func([]byte) {
			return func(b []byte) { copy(b[at.Off:at.Off+at.Len], bytes) }
		}
		check("fresh", Unknown, Unknown, func([]byte) {})
		c, at := o.Commit(f, old, nil)
		if len(c) != at.Len {
			t.Errorf("%v: a commit of %d bytes for %d", f, len(c), at.Len)
		}
		check("a commit", Committed, Committed, put(c, at))
		check("a part of a commit", Incomplete, Committed, put(c[:5], at))
		check("a commit of an INSERT", Committed, Unknown, put(o.Commit(f, 0, nil)))
		check("a loser", Finished, Finished, put(o.Finish(f, nil)))
	}
}

// A reader notices an object that is not whole: the hardened checksum covers all bytes that the
// first WRITE of an object writes, except the mark.
func TestTornObjects(t *testing.T) {
	o := Object{Mark: Valid, Key: 3, Value: bytes.Repeat([]byte("x"), 300), Version: 9, Op: OpUpdate}
	whole := o.AppendTo(Hardened, nil)
	for i := range whole[1:] {
		i++
		b := bytes.Clone(whole)
		b[i] ^= 0x40
		var got Object
		err := got.Parse(Hardened, b)
		if inOutcome := i >= len(b)-EntryLen+atOld; inOutcome && (err != nil || got.Outcome != Incomplete) || !inOutcome && err == nil {
			t.Errorf("byte %d of %d was changed: %v, outcome %v", i, len(b), err, got.Outcome)
		}
	}
	var got Object
	if err := got.Parse(Published, make([]byte, Overhead)); !errors.Is(err, ErrObject) {
		t.Errorf("zeros are an object: %v", err)
	}
	half := append([]byte(nil), o.AppendTo(Published, nil)...)
	clear(half[len(half)-EntryLen:])
	if err := got.Parse(Published, half); !errors.Is(err, ErrTorn) {
		t.Errorf("an object without its log entry: %v", err)
	}
	half = o.AppendTo(Published, nil)
	half[100] ^= 1
	if err := got.Parse(Published, half); err != nil {
		t.Errorf("the published format notices a torn value: %v", err)
	}
}

// After splits of subtables, each hash has one subtable that is in use, and the homes of the hash
// contain it.
func TestDirectory(t *testing.T) {
	s := aShape(Hardened)
	s.Depth, s.Subtables = 1, 8
	words := func(at map[int]Entry) (b []byte) {
		for i := range s.Subtables {
			e, ok := at[i]
			if !ok {
				e = s.Begin(i)
			}
			b = binary.LittleEndian.AppendUint64(b, e.Word())
		}
		return b
	}
	var d Directory
	// 1 was split twice, and its first twin 3 once; 5 is the second twin of 1, and 7 the twin of 3.
	if err := d.Read(&s, words(map[int]Entry{1: {Depth: 3}, 3: {Depth: 3}, 0: {Depth: 1, Splitting: true}})); err != nil {
		t.Fatal(err)
	}
	for n, want := range []bool{true, true, true, true, false, true, false, true} {
		if d.Uses(&s, n) != want {
			t.Errorf("subtable %d is in use: %v", n, !want)
		}
	}
	seen := map[int]bool{}
	for key := range uint64(200) {
		h := HashOf(key)
		n, e := d.Of(&s, h)
		seen[n] = true
		if right := (Header{Depth: e.Depth, Prefix: uint32(n)}); !right.Has(h) {
			t.Errorf("key %d is not in its subtable", key)
		}
		if wrong := (Header{Depth: e.Depth, Prefix: uint32(n) ^ 1<<(e.Depth-1)}); wrong.Has(h) {
			t.Errorf("key %d is in another subtable", key)
		}
		homes := s.Homes(h, nil)
		if !slices.Contains(homes, n) || !slices.IsSorted(homes) || homes[0] != int(h.Prefix()&1) || homes[len(homes)-1] != int(h.Prefix()&7) {
			t.Errorf("key %d of subtable %d has the homes %v", key, n, homes)
		}
	}
	if len(seen) != 5 {
		t.Errorf("subtables with keys: %v", seen)
	}
	for what, b := range map[string][]byte{
		"too few words":                words(nil)[8:],
		"a depth before the first use": words(map[int]Entry{5: {Depth: 2}}),
		"a depth without room":         words(map[int]Entry{5: {Depth: 4}}),
		"a split without room":         words(map[int]Entry{5: {Depth: 3, Splitting: true}}),
		"an unknown bit":               append(words(nil)[:56], 3, 2, 0, 0, 0, 0, 0, 0),
	} {
		if err := d.Read(&s, b); !errors.Is(err, ErrDirectory) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A header that is moving has the keys of its subtable, and had those that the split moves.
func TestMovingHeaders(t *testing.T) {
	for key := range uint64(50) {
		h := HashOf(key)
		m := Header{Depth: 2, Prefix: 1, Moving: true}
		if one := h.Prefix()&1 == 1; m.Had(h) != one || m.Has(h) != (one && !h.Moves(1)) {
			t.Errorf("key %d: had %v, has %v", key, m.Had(h), m.Has(h))
		}
	}
}

// The slots of the main bucket come before those of the overflow bucket.
func TestOrderOfSlots(t *testing.T) {
	for main := range 2 {
		var c Combined
		if err := c.Parse(main, make([]byte, CombinedLen)); err != nil {
			t.Fatal(err)
		}
		seen := map[int]bool{}
		for n := range CombinedSlots {
			slot := c.Order(n)
			if seen[slot] = true; (slot/BucketSlots == main) != (n < BucketSlots) {
				t.Errorf("main %d: slot %d has number %d", main, slot, n)
			}
		}
		if len(seen) != CombinedSlots {
			t.Errorf("main %d: slots %v", main, seen)
		}
	}
	var c Combined
	b := make([]byte, CombinedLen)
	b[3] = 1
	if err := c.Parse(0, b); !errors.Is(err, ErrBucket) {
		t.Errorf("a header with an unknown bit: %v", err)
	}
	if at := SlotAt(128, CombinedSlots-1); at != 128+CombinedLen-8 {
		t.Errorf("the last slot is at %d", at)
	}
}

// The word of a block keeps length, version and room when the block changes hands, and a word of a
// block that was used is never that of a free one.
func TestUseOfABlock(t *testing.T) {
	fresh := UseBy(7, 255)
	if fresh.Client() != 7 || fresh.Units() != 255 || fresh.Left() || fresh.Version() != 0 || BlockUse(0).Left() {
		t.Errorf("a fresh block: %#x", uint64(fresh))
	}
	for _, c := range []struct {
		units   int
		version uint32
		room    int
		want    int
	}{{0, 0, 0, 0}, {255, MaxVersion, 7, 7}, {3, 1 << 19, 5000, 7}, {1, 9, 6, 6}} {
		left := UseLeft(c.units, c.version, c.room)
		again := left.By(1<<32 - 1)
		if !left.Left() || left == 0 || again.Left() || again.Client() != 1<<32-1 || again.By(0) != left {
			t.Errorf("%+v: left %#x, taken over %#x", c, uint64(left), uint64(again))
		}
		for _, u := range []BlockUse{left, again, again.For(17).For(c.units)} {
			if u.Units() != c.units || u.Version() != c.version || u.Room() != c.want {
				t.Errorf("%+v: %#x: %d units, version %d, room %d", c, uint64(u), u.Units(), u.Version(), u.Room())
			}
			if v := u.Ahead(10); v.Version() != min(c.version+10, MaxVersion) || v.Spent() != (c.version == MaxVersion) || v.For(0).Client() != u.Client() ||
				v.Units() != u.Units() || v.Room() != u.Room() || v.Left() != u.Left() {
				t.Errorf("%+v: %#x is raised to %#x", c, uint64(u), uint64(v))
			}
		}
	}
}

// Finish is Commit for an operation that has lost.
func (o *Object) Finish(f Format, b []byte) ([]byte, Range) {
	if f == Published {
		return append(b, byte(OpFinished)|usedBit), o.inEntry(atPublishedOp, 1)
	}
	return o.Commit(f, finishedOld, b)
}

// Has reports whether keys with hash k belong to the subtable.
func (h Header) Has(k Hash) bool { return (k.Prefix()^h.Prefix)&mask(h.Depth) == 0 }
