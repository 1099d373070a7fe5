package layout

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
)

func TestWordFields(t *testing.T) {
	at := Location{Handle: 0xfedcba98, Version: 0xab}
	w := Superseded(0x7e, at)
	// By hand: handle in 59..28, next version in 26..19, entry version in 18..11.
	want := Word(0xfedcba98)<<28 | Word(0xab)<<19 | Word(0x7e)<<11
	if w != want {
		t.Errorf("Superseded %#x, want %#x", uint64(w), uint64(want))
	}
	if got, ok := w.Next(); !ok || got != at || w.EntryVersion() != 0x7e || !w.Valid() {
		t.Errorf("fields of %v: next %v %v, entry %d", w, got, ok, w.EntryVersion())
	}
	if _, ok := Header(3).Next(); ok || !Header(3).Valid() || Header(3).String() != "v3 newest" {
		t.Errorf("fresh header %v", Header(3))
	}
	if d := Tombstone(3); !d.IsTombstone() || !d.Valid() || d == Header(3) {
		t.Errorf("tombstone %v", d)
	}
	if got := w.WithEntryVersion(9); got != Superseded(9, at) {
		t.Errorf("WithEntryVersion %v", got)
	}
}

func TestWordsThatAreNoHeader(t *testing.T) {
	for _, w := range []Word{
		0, 1 << 63, Header(1) | 1<<27, Header(1) | 1, Header(1) | 1<<2, Header(0), Header(1) | 5<<nextShift,
		Header(1) | 5<<handleShift, Tombstone(1) | Superseded(1, Location{5, 5}),
	} {
		if w.Valid() {
			t.Errorf("%#x is taken for a header: %v", uint64(w), w)
		}
	}
}

func TestLocation(t *testing.T) {
	l := Location{77, 12}
	if got, ok := LocationOf(l.Word()); !ok || got != l {
		t.Errorf("LocationOf(%v.Word()) = %v, %v", l, got, ok)
	}
	for _, w := range []Word{0, Header(3), Superseded(1, l), Word(1) << handleShift} {
		if got, ok := LocationOf(w); ok {
			t.Errorf("LocationOf(%#x) = %v", uint64(w), got)
		}
	}
}

func TestVersionsEndInAnEpoch(t *testing.T) {
	v, versions := Version(1), 1
	for {
		next, ok := v.Next()
		if !ok {
			if next != 1 {
				t.Errorf("after the last version comes %d", next)
			}
			break
		}
		v, versions = next, versions+1
	}
	if versions != 254 {
		t.Errorf("%d versions in an epoch, want 254", versions)
	}
}

// A stamp has all bits of a word that a location does not use, and no other bit.
func TestStamps(t *testing.T) {
	seen := Word(0)
	for _, l := range []Location{{1, 1}, {0xffffffff, 255}, {0x12345678, 254}} {
		for bit := range 24 {
			w := l.Stamped(1 << bit)
			if seen |= w ^ l.Word(); w.Handle() != l.Handle || w.EntryVersion() != l.Version {
				t.Errorf("%v with stamp %#x is %#x", l, 1<<bit, uint64(w))
			}
		}
		for _, stamp := range []uint32{0, 1, 0x555555, 0xaaaaaa, MaxStamp} {
			if got, s, ok := StampedLocation(l.Stamped(stamp | 1<<24)); !ok || got != l || s != stamp {
				t.Errorf("%v with stamp %#x is read as %v, %#x, %v", l, stamp, got, s, ok)
			}
		}
	}
	if all := Word(0xffffffff)<<handleShift | 0xff<<entryShift; seen&all != 0 || seen|all != ^Word(0) {
		t.Errorf("stamps use the bits %#x", uint64(seen))
	}
	if w := (Location{}).Stamped(MaxStamp); w != 0 {
		t.Errorf("no location is %#x", uint64(w))
	}
	if _, _, ok := StampedLocation(7); ok {
		t.Error("a stamp without a location is read as one")
	}
}

func TestNodeSizes(t *testing.T) {
	// A value of 1000 bytes must travel in a slab of 1024: one packet at path MTU 1024.
	for _, f := range []Format{Published, Keyed, Hardened} {
		if f.Capacity(1024) < 1000 {
			t.Errorf("%+v holds %d bytes in 1024", f, f.Capacity(1024))
		}
	}
	if c, ok := ClassOf(1024); !ok || c.Size() != 1024 {
		t.Errorf("ClassOf(1024) = %v", c)
	}
	if _, ok := ClassOf(MaxSlab + 1); ok {
		t.Error("a class for more than the largest slab")
	}
}

func TestNode(t *testing.T) {
	value := []byte("the quick brown fox")
	for _, f := range []Format{Published, Keyed, Hardened} {
		slab := bytes.Repeat([]byte{0xee}, 128)
		if !f.PutNode(slab, Header(7), 42, value) {
			t.Fatal("does not fit")
		}
		h, got, err := f.ParseNode(slab, 42)
		if !f.Checked {
			got = got[:len(value)]
		}
		if err != nil || h != Header(7) || !bytes.Equal(got, value) {
			t.Errorf("%+v: %v %q %v", f, h, got, err)
		}
		if f.PutNode(slab, Header(7), 42, make([]byte, f.Capacity(128)+1)) {
			t.Errorf("%+v: a value too long was put", f)
		}
	}
	slab := make([]byte, 128)
	Hardened.PutNode(slab, Header(7), 42, value)
	if _, _, err := Hardened.ParseNode(slab, 43); !errors.Is(err, ErrOtherKey) {
		t.Errorf("another key: %v", err)
	}
}

// Every mixture of cache lines of two versions of an entry is recognised as torn.
func TestEveryMixtureOfTwoVersionsIsTorn(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	const slab, line = 512, 64
	for range 200 {
		old, now := make([]byte, slab), make([]byte, slab)
		value := func() []byte {
			b := make([]byte, r.IntN(Hardened.Capacity(slab)+1))
			for i := range b {
				b[i] = byte(r.Uint32())
			}
			return b
		}
		v := Version(1 + r.IntN(250))
		Hardened.PutNode(old, Header(v), 5, value())
		Hardened.PutNode(now, Header(v+1), 5, value())
		for mask := 1; mask < 1<<(slab/line)-1; mask++ {
			mix := bytes.Clone(old)
			for i := range slab / line {
				if mask>>i&1 != 0 {
					copy(mix[i*line:], now[i*line:(i+1)*line])
				}
			}
			if bytes.Equal(mix, now) || bytes.Equal(mix, old) {
				continue
			}
			h, got, err := Hardened.ParseNode(mix, 5)
			if err != nil {
				continue
			}
			want := old
			if h.EntryVersion() != v {
				want = now
			}
			if _, whole, _ := Hardened.ParseNode(want, 5); !bytes.Equal(got, whole) {
				t.Fatalf("mixture %b of two versions was taken for a node", mask)
			}
		}
	}
}

func TestSpace(t *testing.T) {
	s := Space{Servers: 3, Entries: Counts{0: 10, 3: 7, 8: 2}, Shortcuts: 5}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	type at struct{ server, offset int }
	used := make(map[at]Handle)
	for h := Handle(1); int(h) <= 3*s.Entries.Total(); h++ {
		p, ok := s.Place(h)
		if !ok || p.Offset%MinSlab != 0 || p.Offset+p.Len > s.RegionLen() || p.Offset < SuperblockLen+5*ShortcutLen {
			t.Fatalf("handle %d: %+v %v", h, p, ok)
		}
		for i := 0; i < p.Len; i += MinSlab {
			if other, taken := used[at{p.Server, p.Offset + i}]; taken {
				t.Fatalf("handles %d and %d overlap", other, h)
			}
			used[at{p.Server, p.Offset + i}] = h
		}
		back, c, ok := s.Handle(p.Server, p.Offset)
		if !ok || back != h || c.Size() != p.Len {
			t.Errorf("handle %d leads back to %d (%v, %v)", h, back, c, ok)
		}
		if _, _, ok := s.Handle(p.Server, p.Offset+8); ok {
			t.Errorf("an entry begins inside of handle %d", h)
		}
	}
	for _, h := range []Handle{0, Handle(3*s.Entries.Total() + 1), 0xffffffff} {
		if p, ok := s.Place(h); ok {
			t.Errorf("handle %d is at %+v", h, p)
		}
	}
	if h := s.First(1, 3); h != Handle(1+19+10) {
		t.Errorf("first handle of class 3 on server 1: %d", h)
	}
}

// In a shared space a handle names a node of one class, wherever nodes of other classes could be.
func TestSharedSpace(t *testing.T) {
	s := Space{Servers: 2, Shortcuts: 5}
	s.ShareIn(3*UsualSegment, Classes-1)
	if err := s.Validate(); err != nil || s.Segments() != 3 || s.RegionLen() != s.slabs()+3*UsualSegment {
		t.Fatalf("%v, %d segments, %d bytes", err, s.Segments(), s.RegionLen())
	}
	last, _ := s.Mirror(s.Slots() - 1)
	if table := s.Table(1); table.Len != 3 || table.Offset < last.Offset+RecordLen || table.Offset+3 > s.slabs() {
		t.Errorf("table %+v, the last mirror %+v, nodes from %d", table, last, s.slabs())
	}
	seen := make(map[Place]bool)
	for h := Handle(1); int(h) <= 2*s.Entries.Total(); h++ {
		p, ok := s.Place(h)
		server, k, in := s.Segment(h)
		at := p.Offset - s.slabs()
		if !ok || !in || seen[p] || at%p.Len != 0 || at+p.Len > 3*UsualSegment || server != p.Server || k != at/UsualSegment || !s.Entry(server, p.Offset, p.Len) {
			t.Fatalf("handle %d: %+v, segment %d of %d", h, p, k, server)
		}
		seen[p] = true
	}
	if s.Entry(0, s.slabs()+128, 256) || s.Entry(0, s.slabs()+3*UsualSegment, 128) || s.Entry(0, s.slabs(), 100) {
		t.Error("an entry where none can be")
	}
	in := Superblock{Format: Hardened, Generation: 1, Space: s}
	b := make([]byte, SuperblockLen)
	in.Put(b)
	var out Superblock
	if err := out.Parse(b); err != nil || out != in {
		t.Errorf("%+v %v", out, err)
	}
	s.Entries[2]--
	if s.Validate() == nil {
		t.Error("segments of different lengths")
	}
}

// With shorter segments, the classes with larger entries do not exist.
func TestSharedSpaceOfShortSegments(t *testing.T) {
	s := Space{Servers: 2, Shortcuts: 5}
	s.ShareIn(3*4096, 5)
	if err := s.Validate(); err != nil || s.Segments() != 3 || s.SegmentLen() != 4096 || s.RegionLen() != s.slabs()+3*4096 {
		t.Fatalf("%v, %d segments, %d bytes", err, s.Segments(), s.RegionLen())
	}
	if s.PerSegment(0) != 32 || s.PerSegment(5) != 1 || s.PerSegment(6) != 0 {
		t.Errorf("%d, %d and %d entries of classes 0, 5 and 6 in a segment", s.PerSegment(0), s.PerSegment(5), s.PerSegment(6))
	}
	for h := Handle(1); int(h) <= 2*s.Entries.Total(); h++ {
		p, ok := s.Place(h)
		server, k, in := s.Segment(h)
		at := p.Offset - s.slabs()
		if !ok || !in || p.Len > 4096 || at+p.Len > 3*4096 || server != p.Server || k != at/4096 || !s.Entry(server, p.Offset, p.Len) {
			t.Fatalf("handle %d: %+v, segment %d of %d", h, p, k, server)
		}
	}
	if s.Entry(0, s.slabs(), 8192) {
		t.Error("an entry of 8192 bytes")
	}
	in := Superblock{Format: Hardened, Generation: 1, Space: s}
	b := make([]byte, SuperblockLen)
	in.Put(b)
	var out Superblock
	if err := out.Parse(b); err != nil || out != in {
		t.Errorf("%+v %v", out, err)
	}
	s.Entries[6] = 1
	if s.Validate() == nil {
		t.Error("one entry that is larger than a segment")
	}
}

func TestShortcuts(t *testing.T) {
	s := Space{Servers: 2, Entries: Counts{1}, Shortcuts: 4}
	seen := make(map[Place]bool)
	for i := range 8 {
		p, ok := s.Shortcut(i)
		if !ok || seen[p] || p.Offset%8 != 0 || p.Offset+8 > s.directory() {
			t.Errorf("shortcut %d: %+v %v", i, p, ok)
		}
		seen[p] = true
		r, ok := s.Record(i)
		if !ok || seen[r] || r.Server != p.Server || r.Offset%16 != 0 || r.Offset < s.directory() || r.Offset+16 > s.slabs() {
			t.Errorf("record %d: %+v %v", i, r, ok)
		}
		seen[r] = true
		m, ok := s.Mirror(i)
		if !ok || seen[m] || m.Server == r.Server || m.Offset%16 != 0 || m.Offset+16 > s.slabs() {
			t.Errorf("mirror %d: %+v %v", i, m, ok)
		}
		seen[m] = true
	}
	one := Space{Servers: 1, Entries: Counts{1}, Shortcuts: 64}
	if _, ok := one.Mirror(0); ok || one.slabs() >= one.directory()+65*RecordLen+MinSlab {
		t.Error("a store with one server has mirrors, or room for them")
	}
	b := make([]byte, RecordLen)
	lost := KeyRecord{Key: 7, Lost: true}
	lost.Put(b)
	if out, ok := ParseKeyRecord(b); !ok || out != lost {
		t.Errorf("%+v, %v", out, ok)
	}
	in := KeyRecord{Key: 7, At: Location{9, 3}, Generation: 0xabcdef}
	in.Put(b)
	if out, ok := ParseKeyRecord(b); !ok || out != in {
		t.Errorf("record %+v %v", out, ok)
	}
	if out, ok := ParseKeyRecord(make([]byte, RecordLen)); ok {
		t.Errorf("an empty record is %+v", out)
	}
	if _, ok := s.Shortcut(8); ok {
		t.Error("a shortcut beyond the last")
	}
}

func TestSuperblock(t *testing.T) {
	in := Superblock{Format: Hardened, Server: 3, Generation: 99, Owner: 5, Space: Space{Servers: 4, Entries: Counts{0: 70000, 8: 3}, Shortcuts: 1 << 20}}
	b := make([]byte, SuperblockLen)
	in.Put(b)
	var out Superblock
	if err := out.Parse(b); err != nil || out != in {
		t.Errorf("%+v %v", out, err)
	}
	in.Space.Entries[2] = 1 << 24
	if in.Put(b); out.Parse(b) != nil || out.Space != (Space{}) {
		t.Errorf("a space that does not fit is read as %+v", out.Space)
	}
	if err := out.Parse(make([]byte, SuperblockLen)); !errors.Is(err, ErrSuperblock) {
		t.Errorf("zeros: %v", err)
	}
}

func FuzzParseNode(f *testing.F) {
	slab := make([]byte, 128)
	Hardened.PutNode(slab, Header(1), 1, []byte("x"))
	f.Add(slab, uint64(1))
	f.Fuzz(func(t *testing.T, b []byte, key uint64) {
		for _, format := range []Format{Published, Keyed, Hardened} {
			h, v, err := format.ParseNode(b, key)
			if err == nil && (!h.Valid() || len(v) > format.Capacity(len(b))) {
				t.Errorf("%+v: header %v, %d bytes of value", format, h, len(v))
			}
		}
		var s Superblock
		_ = s.Parse(b)
	})
}
