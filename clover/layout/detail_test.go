package layout

import (
	"bytes"
	"errors"
	"slices"
	"testing"
)

// The number of a format names its fields, and no other number is a format.
func TestFormatNumbers(t *testing.T) {
	for b := range uint32(8) {
		f, ok := FormatOf(b)
		if ok != (b < 4) || ok && f.Bits() != b {
			t.Errorf("%d is %+v, %v", b, f, ok)
		}
	}
	for f, want := range map[Format][2]int{Published: {8, 56}, Keyed: {16, 48}, Hardened: {24, 40}, {Checked: true}: {16, 48}} {
		if f.Overhead() != want[0] || f.Capacity(64) != want[1] || f.Capacity(f.Overhead()) != 0 || f.Capacity(f.Overhead()-1) != 0 {
			t.Errorf("%+v: overhead %d, capacity %d", f, f.Overhead(), f.Capacity(64))
		}
	}
}

// A change of any bit that the checksum covers is noticed; a longer length than the slab has, too.
func TestEveryBitIsChecked(t *testing.T) {
	for _, f := range []Format{Hardened, {Checked: true}} {
		slab := make([]byte, 64)
		header := Word(0).WithEntryVersion(5)
		for !header.Valid() {
			t.Fatalf("%#x is no header", uint64(header))
		}
		value := []byte("a value of 20 bytes.")
		if !f.PutNode(slab, header, 77, value) {
			t.Fatal("the value does not fit")
		}
		keyAt := HeaderLen
		if f.Keyed {
			keyAt += KeyLen
		}
		for i := HeaderLen; i < len(slab); i++ {
			if i >= keyAt+len(value) && i < len(slab)-CheckLen {
				continue // behind the value
			}
			b := slices.Clone(slab)
			b[i] ^= 1
			if _, _, err := f.ParseNode(b, 77); !errors.Is(err, ErrTorn) {
				t.Errorf("%+v, byte %d: %v", f, i, err)
			}
		}
		if _, _, err := f.ParseNode(slab, 78); f.Keyed && !errors.Is(err, ErrOtherKey) || !f.Keyed && !errors.Is(err, ErrTorn) {
			t.Errorf("%+v with another key: %v", f, err)
		}
		full := make([]byte, f.Capacity(len(slab)))
		if !f.PutNode(slab, header, 77, full) || f.PutNode(slab, header, 77, append(full, 0)) {
			t.Errorf("%+v: the capacity is not the longest value", f)
		}
		if _, got, err := f.ParseNode(slab, 77); err != nil || len(got) != len(full) {
			t.Errorf("%+v: %d bytes, %v", f, len(got), err)
		}
		if _, _, err := f.ParseNode(slab[:f.Overhead()-1], 77); !errors.Is(err, ErrNode) {
			t.Errorf("%+v: a short slab: %v", f, err)
		}
		least := make([]byte, f.Overhead())
		if !f.PutNode(least, header, 77, nil) {
			t.Errorf("%+v: an empty value does not fit", f)
		}
		if _, got, err := f.ParseNode(least, 77); err != nil || len(got) != 0 {
			t.Errorf("%+v: an empty value: %d bytes, %v", f, len(got), err)
		}
	}
}

// Relabel makes a whole copy a node of another version, and leaves a torn copy, a short one and one
// of yet another version as they are.
func TestRelabel(t *testing.T) {
	header := Word(0).WithEntryVersion(5)
	for _, f := range []Format{Published, Keyed, Hardened} {
		slab := make([]byte, 64)
		f.PutNode(slab, header, 77, []byte("value"))
		before := slices.Clone(slab)
		if f.Relabel(slab, 6, 7) || f.Relabel(slab[:f.Overhead()-1], 5, 7) || !bytes.Equal(slab, before) {
			t.Errorf("%+v: a node of another version is changed", f)
		}
		if f.Checked {
			slab[len(slab)-1] ^= 1
			torn := slices.Clone(slab)
			if f.Relabel(slab, 5, 7) || !bytes.Equal(slab, torn) {
				t.Errorf("%+v: a torn node is changed", f)
			}
			slab[len(slab)-1] ^= 1
		}
		if !f.Relabel(slab, 5, 7) {
			t.Errorf("%+v: a whole node is not changed", f)
		}
		h, value, err := f.ParseNode(slab, 77)
		if err != nil || h.EntryVersion() != 7 || !bytes.HasPrefix(value, []byte("value")) {
			t.Errorf("%+v: version %d, %q, %v", f, h.EntryVersion(), value, err)
		}
		if key, ok := KeyOf(slab); f.Keyed && (!ok || key != 77) {
			t.Errorf("%+v: key %d, %v", f, key, ok)
		}
	}
	if _, ok := KeyOf(make([]byte, HeaderLen+KeyLen-1)); ok {
		t.Error("15 bytes have a key")
	}
	if _, ok := KeyOf(make([]byte, HeaderLen+KeyLen)); !ok {
		t.Error("16 bytes have no key")
	}
}

// The bounds of a space are inclusive.
func TestBoundsOfSpaces(t *testing.T) {
	shared := Space{Servers: 1, Shortcuts: 1}
	shared.ShareIn(2*UsualSegment, Classes-1)
	uneven := shared
	uneven.Entries[0]++
	for what, c := range map[string]struct {
		s  Space
		ok bool
	}{
		"the least":             {Space{Servers: 1, Shortcuts: 1, Entries: Counts{1}}, true},
		"no server":             {Space{Shortcuts: 1, Entries: Counts{1}}, false},
		"64 servers":            {Space{Servers: MaxServers, Shortcuts: 1, Entries: Counts{1}}, true},
		"65 servers":            {Space{Servers: MaxServers + 1, Shortcuts: 1, Entries: Counts{1}}, false},
		"no entry":              {Space{Servers: 1, Shortcuts: 1}, false},
		"the most entries":      {Space{Servers: 1, Shortcuts: 1, Entries: Counts{maxEntries}}, true},
		"one entry more":        {Space{Servers: 1, Shortcuts: 1, Entries: Counts{maxEntries, 1}}, false},
		"no shortcut":           {Space{Servers: 1, Entries: Counts{1}}, false},
		"the most shortcuts":    {Space{Servers: 1, Shortcuts: maxShortcuts, Entries: Counts{1}}, true},
		"one shortcut more":     {Space{Servers: 1, Shortcuts: maxShortcuts + 1, Entries: Counts{1}}, false},
		"fewer than no entries": {Space{Servers: 1, Shortcuts: 1, Entries: Counts{2, -1}}, false},
		"shared":                {shared, true},
		"shared unevenly":       {uneven, false},
	} {
		if err := c.s.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The parts of a region follow each other without overlap, and the last slot is the last one of its
// kind on each server.
func TestPartsOfARegion(t *testing.T) {
	for _, servers := range []int{1, 2, 3} {
		s := Space{Servers: servers, Shortcuts: 5}
		s.ShareIn(4*UsualSegment, Classes-1)
		type part struct{ server, at, n int }
		var parts []part
		add := func(p Place) { parts = append(parts, part{p.Server, p.Offset, p.Len}) }
		for i := range s.Slots() {
			for name, f := range map[string]func(int) (Place, bool){"shortcut": s.Shortcut, "record": s.Record, "mirror": s.Mirror} {
				p, ok := f(i)
				if ok != (name != "mirror" || servers > 1) {
					t.Fatalf("%s %d: %v", name, i, ok)
				}
				if ok {
					add(p)
				}
			}
			record, _ := s.Record(i)
			if mirror, ok := s.Mirror(i); ok && mirror.Server != (record.Server+1)%servers {
				t.Errorf("mirror %d is on server %d", i, mirror.Server)
			}
		}
		for _, i := range []int{-1, s.Slots()} {
			_, shortcut := s.Shortcut(i)
			_, record := s.Record(i)
			if _, mirror := s.Mirror(i); shortcut || record || mirror {
				t.Errorf("there is a slot %d", i)
			}
		}
		for server := range servers {
			add(s.Table(server))
			parts = append(parts, part{server, 0, SuperblockLen})
			for h := s.First(server, Classes-1); h < s.First(server, Classes-1)+Handle(s.Entries[Classes-1]); h++ {
				p, ok := s.Place(h)
				if at, i, in := s.Segment(h); !ok || !in || at != server || i != int(h-s.First(server, Classes-1)) {
					t.Errorf("entry %d is in segment %d of server %d, %v", h, i, at, in)
				}
				add(p)
			}
		}
		slices.SortFunc(parts, func(a, b part) int {
			if a.server != b.server {
				return a.server - b.server
			}
			return a.at - b.at
		})
		for i, p := range parts {
			if i > 0 && parts[i-1].server == p.server && parts[i-1].at+parts[i-1].n > p.at {
				t.Errorf("%+v overlaps %+v", parts[i-1], p)
			}
			if p.at+p.n > s.RegionLen() {
				t.Errorf("%+v is behind the end %d", p, s.RegionLen())
			}
		}
		if _, ok := s.Place(0); ok {
			t.Error("there is an entry 0")
		}
		if _, ok := s.Place(Handle(s.Entries.Total()*servers + 1)); ok {
			t.Error("there is an entry behind the last")
		}
	}
}

// Each field of a superblock is read as it was written, with its space at the bounds.
func TestFieldsOfASuperblock(t *testing.T) {
	for _, in := range []Superblock{
		{Format: Hardened, Server: 1, Generation: 1<<64 - 1, Owner: 1<<32 - 1, Store: 1<<32 - 1, Space: Space{Servers: 2, Shortcuts: maxPut, Entries: Counts{maxPut}}},
		{Format: Keyed, Server: MaxServers - 1, Generation: 1, Store: 7},
		{Server: 0, Generation: 1, Space: Space{Servers: MaxServers, Shortcuts: 0x010203, Entries: Counts{1, 2, 3}}},
	} {
		b := bytes.Repeat([]byte{0xff}, SuperblockLen)
		in.Put(b)
		var out Superblock
		if err := out.Parse(b); err != nil || out != in {
			t.Errorf("%+v becomes %+v, %v", in, out, err)
		}
		if out.Parse(b[:SuperblockLen-1]) == nil {
			t.Error("a short superblock is read")
		}
		b[0] ^= 1
		if out.Parse(b) == nil {
			t.Error("a superblock without its magic is read")
		}
	}
	good := Superblock{Generation: 1, Space: Space{Servers: 1, Shortcuts: 1, Entries: Counts{1}}}
	for what, c := range map[string]struct {
		change func(s *Superblock)
		ok     bool
		space  bool
	}{
		"as it is":              {func(*Superblock) {}, true, true},
		"no generation":         {func(s *Superblock) { s.Generation = 0 }, false, false},
		"server 64":             {func(s *Superblock) { s.Server = MaxServers }, false, false},
		"a server of no space":  {func(s *Superblock) { s.Server = 1 }, true, false},
		"too many shortcuts":    {func(s *Superblock) { s.Space.Shortcuts = maxPut + 1 }, true, false},
		"too many of one class": {func(s *Superblock) { s.Space.Entries[1] = maxPut + 1 }, true, false},
		"no space":              {func(s *Superblock) { s.Space.Servers = 0 }, true, false},
	} {
		s, b := good, make([]byte, SuperblockLen)
		c.change(&s)
		s.Put(b)
		var out Superblock
		if err := out.Parse(b); (err == nil) != c.ok || c.ok && (out.Space != Space{}) != c.space {
			t.Errorf("%s: %+v, %v", what, out, err)
		}
	}
	b := make([]byte, SuperblockLen)
	good.Put(b)
	b[8] = 4
	if new(Superblock).Parse(b) == nil {
		t.Error("an unknown format is read")
	}
}

// A record of the directory is read as it was written: of a key, of a lost key, of none.
func TestKeyRecords(t *testing.T) {
	for _, in := range []KeyRecord{
		{Key: 1<<64 - 1, At: Location{Handle: 7, Version: 3}, Generation: 1<<24 - 1},
		{Key: 5, Lost: true},
	} {
		b := make([]byte, RecordLen)
		in.Put(b)
		if out, ok := ParseKeyRecord(b); !ok || out != in {
			t.Errorf("%+v becomes %+v, %v", in, out, ok)
		}
		if _, ok := ParseKeyRecord(b[:RecordLen-1]); ok {
			t.Error("a short record is read")
		}
	}
	if r, ok := ParseKeyRecord(make([]byte, RecordLen)); ok {
		t.Errorf("zeros are %+v", r)
	}
}
