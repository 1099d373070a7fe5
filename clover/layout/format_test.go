package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
)

// The parts of a region are where every earlier version of the program has put them: the memory
// outlives the process that formatted it. The offsets follow from the lengths of the parts, each
// rounded up to the alignment of the next.
func TestPartsAreWhereTheyWere(t *testing.T) {
	shared := func(servers, shortcuts, segments, backups int) Space {
		s := Space{Servers: servers, Shortcuts: shortcuts, Backups: backups}
		s.ShareIn(segments*MinSlab, 0)
		return s
	}
	for _, c := range []struct {
		s                                                Space
		directory, mirrors, table, slabs, stride, region int
	}{
		// 64 + 8 = 72 → 80; one server has no mirrors; 96 → 128.
		{Space{Servers: 1, Shortcuts: 1, Entries: Counts{1}}, 80, 96, 96, 128, 256, 256},
		// 64 + 16 = 80 as it is; a second server has mirrors: 80 + 32 + 32 = 144 → 256.
		{Space{Servers: 2, Shortcuts: 2, Entries: Counts{1}}, 80, 112, 144, 256, 256, 384},
		// The table of a segment follows the mirrors; the copy has a table and entries: 384 - 144 = 240 → 256.
		// There is no server for a mirror.
		{shared(2, 2, 1, 1), 80, 144, 144, 256, 256, 640},
		// Two backups have two copies of each record: 80 + 3·32 = 176; 384 - 176 = 208 → 256.
		{shared(3, 2, 1, 2), 80, 176, 176, 256, 256, 896},
		// A third server has the mirrors of records with one backup: 80 + 2·32 = 144; 144 + 32 = 176.
		{shared(3, 2, 1, 1), 80, 144, 176, 256, 256, 640},
		// Three shortcuts: 64 + 24 = 88 → 96; 96 + 48 + 48 = 192; 129 segments: 192 + 129 = 321 → 384.
		{shared(2, 3, 129, 0), 96, 144, 192, 384, 192 + 129*128 + 64, 384 + 129*128},
		// A table of one byte moves the entries to the next multiple.
		{shared(1, 8, 1, 0), 128, 256, 256, 384, 256, 512},
		// However many servers there are, a record without copies has one mirror.
		{Space{Servers: 3, Shortcuts: 2, Entries: Counts{1}}, 80, 112, 144, 256, 256, 384},
		// A part that ends at a multiple is not moved: 64 + 8·8 = 128; 128 + 128 = 256.
		{Space{Servers: 1, Shortcuts: 8, Entries: Counts{0, 1}}, 128, 256, 256, 256, 256, 512},
	} {
		s := c.s
		if err := s.Validate(); err != nil {
			t.Fatal(err)
		}
		got := [...]int{s.directory(), s.mirrors(), s.table(), s.slabs(), s.stride(), s.RegionLen()}
		if want := [...]int{c.directory, c.mirrors, c.table, c.slabs, c.stride, c.region}; got != want {
			t.Errorf("%+v: directory, mirrors, table, slabs, stride and region are %v, want %v", c.s, got, want)
		}
	}
}

// The entries of a space with one segment, or with the smallest segments alone, are counted too.
func TestSmallestSharedSpaces(t *testing.T) {
	for _, c := range []struct {
		largest  Class
		segments int
	}{{0, 1}, {0, 3}, {1, 1}, {Classes - 1, 1}} {
		s := Space{Servers: 1, Shortcuts: 1}
		s.ShareIn(c.segments*c.largest.Size(), c.largest)
		if err := s.Validate(); err != nil || s.Largest() != c.largest || s.Segments() != c.segments || s.SegmentLen() != c.largest.Size() {
			t.Errorf("%+v: largest %d, %d segments of %d bytes, %v", c, s.Largest(), s.Segments(), s.SegmentLen(), err)
		}
		if n := c.segments * c.largest.Size(); s.data() != n || s.Entries[c.largest] != c.segments {
			t.Errorf("%+v: %d bytes, want %d", c, s.data(), n)
		}
	}
	var none Space
	if none.Largest() != 0 || none.Entries.Bytes() != 0 || (Counts{2, 1}).Bytes() != 512 {
		t.Errorf("largest %d of a space without entries; %d bytes", none.Largest(), (Counts{2, 1}).Bytes())
	}
	fixed := Space{Servers: 1, Shortcuts: 1, Entries: Counts{1}}
	if fixed.Segments() != 0 || fixed.SegmentLen() != 0 || fixed.Table(0).Len != 0 || fixed.PerSegment(0) != 0 {
		t.Error("a fixed space has segments")
	}
	if _, _, ok := fixed.Segment(1); ok {
		t.Error("an entry of a fixed space is in a segment")
	}
	s := Space{Servers: 1, Shortcuts: 1}
	s.ShareIn(UsualSegment, Classes-1)
	if _, _, ok := s.Segment(Handle(s.Entries.Total() + 1)); ok {
		t.Error("a handle behind the last is in a segment")
	}
}

// Only places inside of a server's entries are entries.
func TestPlacesThatAreNoEntry(t *testing.T) {
	s := Space{Servers: 2, Shortcuts: 1, Entries: Counts{2, 1}}
	begin := s.slabs()
	for _, c := range []struct {
		server, offset, n int
		handle            Handle // 0: no entry begins there
		entry             bool
	}{
		{0, begin, 128, 1, true},
		{0, begin + 128, 128, 2, true},
		{0, begin + 256, 256, 3, true},
		{1, begin, 128, 4, true},
		{1, begin + 256, 128, 6, false}, // the entry is longer
		{0, begin, 256, 1, false},
		{-1, begin, 128, 0, false},
		{2, begin, 128, 0, false},
		{0, begin - 128, 128, 0, false},
		{0, begin + 512, 256, 0, false}, // behind the last
		{0, begin + 64, 128, 0, false},
	} {
		h, _, ok := s.Handle(c.server, c.offset)
		if ok != (c.handle != 0) || ok && h != c.handle {
			t.Errorf("at %d of server %d: handle %d, %v", c.offset, c.server, h, ok)
		}
		if got := s.Entry(c.server, c.offset, c.n); got != c.entry {
			t.Errorf("%d bytes at %d of server %d are an entry: %v", c.n, c.offset, c.server, got)
		}
	}
}

// A superblock has its fields where the picture of the type says, also those of a store with copies.
func TestBytesOfASuperblock(t *testing.T) {
	in := Superblock{
		Format: Hardened, Server: 5, Generation: 0x1122334455667788, Owner: 0x99aabbcc, Store: 0xddeeff01, View: 0x0a0b0c, Out: 0x8021,
		Space: Space{Servers: 6, Shortcuts: 0x010203, Entries: Counts{0: 0x040506, 8: 0x000007}, Backups: 2},
	}
	b := bytes.Repeat([]byte{0xff}, SuperblockLen)
	in.Put(b)
	want := []byte("RMCLVR03")
	le := binary.LittleEndian
	want = append(want, 3, 2, 0x21, 0x80, 5, 0x0c, 0x0b, 0x0a)
	want = le.AppendUint64(want, in.Generation)
	want = le.AppendUint32(want, in.Owner)
	want = append(want, 6, 3, 2, 1, 6, 5, 4)
	want = append(want, make([]byte, 7*3)...)
	want = append(want, 7, 0, 0, 0) // the last entry, and the byte that is 0
	want = le.AppendUint32(want, in.Store)
	if !bytes.Equal(b, want) {
		t.Errorf("% x\nwant\n% x", b, want)
	}
	var out Superblock
	if err := out.Parse(b); err != nil || out != in {
		t.Errorf("%+v becomes %+v, %v", in, out, err)
	}
	former := append([]byte("RMCLVR02"), b[8:]...)
	if err := out.Parse(former); !errors.Is(err, ErrVersion) {
		t.Errorf("a superblock of the former arrangement: %v", err)
	}
	for what, change := range map[string]func(s *Space){
		"more shortcuts than fit": func(s *Space) { s.Shortcuts = maxPut + 1 },
		"no server":               func(s *Space) { s.Servers = 0 },
	} {
		s := in
		change(&s.Space)
		s.Put(b)
		if !bytes.Equal(b[28:storeAt], make([]byte, storeAt-28)) {
			t.Errorf("%s: the superblock has the space % x", what, b[28:storeAt])
		}
	}
}

// A node's bytes are those that clients of every version read: key and value at their offsets,
// zeros behind the value, and in checked formats length, version and the CRC-32C of key, trailer
// and value at the end.
func TestBytesOfANode(t *testing.T) {
	le := binary.LittleEndian
	const key = 0x1122334455667788
	value := []byte("value")
	header := Header(5)
	for _, f := range []Format{Published, Keyed, Hardened, {Checked: true}} {
		want := le.AppendUint64(nil, uint64(header))
		if f.Keyed {
			want = le.AppendUint64(want, key)
		}
		want = append(want, value...)
		want = append(want, make([]byte, 64-len(want))...)
		if f.Checked {
			copy(want[56:], []byte{5, 0, 5, 0})
			covered := append(le.AppendUint64(nil, key), 5, 0, 5, 0)
			le.PutUint32(want[60:], crc32.Checksum(append(covered, value...), crc32.MakeTable(crc32.Castagnoli)))
		}
		slab := bytes.Repeat([]byte{0xee}, 64)
		if !f.PutNode(slab, header, key, value) || !bytes.Equal(slab, want) {
			t.Errorf("%+v:\n% x\nwant\n% x", f, slab, want)
		}
		least := make([]byte, f.Overhead())
		f.PutNode(least, header, key, nil)
		if !f.Keyed && f.Checked {
			continue // Relabel takes the key from the node
		}
		if !f.Relabel(least, 5, 6) || HeaderOf(least) != Header(6) {
			t.Errorf("%+v: a node without a value keeps its version", f)
		}
	}
}

// No location is the word 0, and a word without a handle or without a version is no location.
func TestWordsThatAreNoLocation(t *testing.T) {
	if w := (Location{}).Word(); w != 0 {
		t.Errorf("no location is %#x", uint64(w))
	}
	for _, w := range []Word{0, Header(3), Word(1) << handleShift} {
		if l, _, ok := StampedLocation(w); ok {
			t.Errorf("%#x is the location %v", uint64(w), l)
		}
	}
}
