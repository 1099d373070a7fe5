package layout

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
)

// Each part of a slot is read as it was written, up to its largest value, in both formats, and no
// part reaches into another one.
func TestPartsOfASlot(t *testing.T) {
	for _, f := range []Format{Hardened, Published} {
		last := Ref{Fingerprint: 255, Units: MaxUnits, Server: MaxServers - 1, Place: MaxPlace - 1, Version: MaxVersion}
		if f == Published {
			last.Server, last.Place, last.Version = 255, 1<<40-1, 0
		}
		for _, r := range []Ref{
			last,
			{Fingerprint: last.Fingerprint},
			{Units: last.Units},
			{Server: last.Server},
			{Place: last.Place},
			{Version: last.Version},
			{Fingerprint: 1, Units: 1, Server: 1, Place: 1, Version: last.Version & 1},
		} {
			s := f.Slot(r)
			if got := f.Ref(s); got != r {
				t.Errorf("%v: %+v is read as %+v", f, r, got)
			}
			if f.Empty(s) != (f == Hardened && r.Units == 0 || s == 0) {
				t.Errorf("%v: %+v is empty: %v", f, r, f.Empty(s))
			}
		}
	}
	if Hardened.String() != "hardened" || Published.String() != "published" {
		t.Errorf("%v, %v", Hardened, Published)
	}
}

func smallShape() Shape {
	return Shape{Servers: 3, Replicas: 2, IndexReplicas: 1, Depth: 1, Subtables: 4, Groups: 5, Blocks: 6, BlockUnits: 128}
}

// The first and the last value of each field of a shape is valid, and the ones beside them are not;
// a superblock has each of them.
func TestBoundsOfAShape(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *Shape)
		ok     bool
	}{
		"as it is":                {func(*Shape) {}, true},
		"published":               {func(s *Shape) { s.Format = Published }, true},
		"an unknown format":       {func(s *Shape) { s.Format = Published + 1 }, false},
		"16 servers":              {func(s *Shape) { s.Servers = MaxServers }, true},
		"17 servers":              {func(s *Shape) { s.Servers = MaxServers + 1 }, false},
		"no server":               {func(s *Shape) { s.Servers = 0 }, false},
		"one of all":              {func(s *Shape) { s.Servers, s.Replicas = 1, 1 }, true},
		"no replica":              {func(s *Shape) { s.Replicas = 0 }, false},
		"as many as servers":      {func(s *Shape) { s.Replicas = 3 }, true},
		"more than servers":       {func(s *Shape) { s.Replicas = 4 }, false},
		"no index":                {func(s *Shape) { s.IndexReplicas = 0 }, false},
		"an index on all":         {func(s *Shape) { s.IndexReplicas = 3 }, true},
		"an index on more":        {func(s *Shape) { s.IndexReplicas = 4 }, false},
		"depth -1":                {func(s *Shape) { s.Depth = -1 }, false},
		"depth 0":                 {func(s *Shape) { s.Depth, s.Subtables = 0, 1 }, true},
		"no subtable":             {func(s *Shape) { s.Depth, s.Subtables = 0, 0 }, false},
		"the largest depth":       {func(s *Shape) { s.Depth, s.Subtables = MaxDepth, maxSubtables }, true},
		"a larger depth":          {func(s *Shape) { s.Depth, s.Subtables = MaxDepth+1, maxSubtables }, false},
		"too few subtables":       {func(s *Shape) { s.Depth = 3 }, false},
		"just enough subtables":   {func(s *Shape) { s.Depth = 2 }, true},
		"too many subtables":      {func(s *Shape) { s.Subtables = maxSubtables + 1 }, false},
		"no group":                {func(s *Shape) { s.Groups = 0 }, false},
		"one group":               {func(s *Shape) { s.Groups = 1 }, true},
		"the most groups":         {func(s *Shape) { s.Groups = maxGroups }, true},
		"one group more":          {func(s *Shape) { s.Groups = maxGroups + 1 }, false},
		"no block":                {func(s *Shape) { s.Blocks = 0 }, false},
		"one block":               {func(s *Shape) { s.Blocks = 1 }, true},
		"the least block":         {func(s *Shape) { s.BlockUnits = 64 }, true},
		"half a word":             {func(s *Shape) { s.BlockUnits = 96 }, false},
		"a block of nothing":      {func(s *Shape) { s.BlockUnits = 0 }, false},
		"the largest block":       {func(s *Shape) { s.Blocks, s.BlockUnits = 16, maxBlockUnits }, true},
		"a larger block":          {func(s *Shape) { s.Blocks, s.BlockUnits = 1, maxBlockUnits+64 }, false},
		"the most units":          {func(s *Shape) { s.Blocks, s.BlockUnits = MaxPlace/64, 64 }, true},
		"more than the most":      {func(s *Shape) { s.Blocks, s.BlockUnits = MaxPlace/64+1, 64 }, false},
		"more blocks than a slot": {func(s *Shape) { s.Blocks, s.BlockUnits = 1<<40, 64 }, false},
	} {
		s := smallShape()
		c.change(&s)
		if err := s.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		if !c.ok {
			continue
		}
		in := Superblock{Shape: s, Generation: 1<<64 - 1, Server: s.Servers - 1}
		b := bytes.Repeat([]byte{0xff}, SuperblockLen)
		in.Put(b)
		var out Superblock
		if err := out.Parse(b); err != nil || out != in {
			t.Errorf("%s: %+v is read as %+v, %v", what, in, out, err)
		}
	}
	in, b := Superblock{Shape: smallShape(), Generation: 7}, make([]byte, SuperblockLen)
	for what, change := range map[string]func(s *Superblock){
		"no generation":   func(s *Superblock) { s.Generation = 0 },
		"a server behind": func(s *Superblock) { s.Server = 3 },
		"a bad shape":     func(s *Superblock) { s.Shape.Groups = 0 },
	} {
		s := in
		change(&s)
		s.Put(b)
		if err := new(Superblock).Parse(b); !errors.Is(err, ErrSuperblock) {
			t.Errorf("%s: %v", what, err)
		}
	}
	in.Put(b)
	if new(Superblock).Parse(b) != nil || new(Superblock).Parse(b[:SuperblockLen-1]) == nil {
		t.Error("the length of a superblock")
	}
	b[7] ^= 1
	if new(Superblock).Parse(b) == nil {
		t.Error("another magic is read")
	}
}

// An object lies in one block of a server of the store; places and indices of the objects of a block
// are each other's reverse, and the bitmap has none.
func TestPlacesOfObjects(t *testing.T) {
	s := smallShape()
	end := uint64(s.Blocks * s.BlockUnits)
	for _, c := range []struct {
		r    Ref
		want bool
	}{
		{Ref{Server: 2, Units: 1, Place: end - 1}, true},
		{Ref{Server: 3, Units: 1, Place: 1}, false},
		{Ref{Units: 0, Place: 1}, false},
		{Ref{Units: 1, Place: end}, false},
		{Ref{Units: 2, Place: end - 1}, false},
		{Ref{Units: 128, Place: 128}, true},
		{Ref{Units: 128, Place: 129}, false},
		{Ref{Units: 2, Place: 127}, false},
	} {
		if s.Holds(c.r) != c.want {
			t.Errorf("%+v: %v", c.r, !c.want)
		}
	}
	for _, blockUnits := range []int{64, 2048, 2112, 4096} {
		s.BlockUnits = blockUnits
		bitmap := map[int]int{64: 1, 2048: 1, 2112: 2, 4096: 2}[blockUnits]
		for _, units := range []int{1, 2, 5, blockUnits - bitmap} {
			n := s.Objects(units)
			if n != (blockUnits-bitmap)/units || s.BitmapLen() != blockUnits/8 {
				t.Errorf("%d objects of %d units in a block of %d", n, units, blockUnits)
			}
			found := 0
			for place := uint64(3 * blockUnits); place < uint64(4*blockUnits); place++ {
				i := s.IndexOf(place, units)
				if i < 0 {
					continue
				}
				if i != found || s.PlaceOf(3, i, units) != place || s.BlockOf(place) != 3 {
					t.Fatalf("place %d is object %d of %d units, at %d", place, i, units, s.PlaceOf(3, i, units))
				}
				found++
			}
			if found != n || n > 0 && s.IndexOf(uint64(3*blockUnits+bitmap), units) != 0 {
				t.Errorf("%d of %d objects of %d units are found", found, n, units)
			}
		}
		if s.Objects(0) != 0 || s.Objects(blockUnits-bitmap+1) != 0 || s.IndexOf(uint64(bitmap), 0) != -1 {
			t.Error("objects of no length, or longer than a block")
		}
	}
	for n, want := range map[int]int{0: 1, Unit - Overhead: 1, Unit - Overhead + 1: 2, MaxUnits*Unit - Overhead: MaxUnits} {
		if Units(n) != want {
			t.Errorf("a value of %d bytes takes %d units", n, Units(n))
		}
	}
}

// The parts of a region follow each other: no two subtables, entries or tables overlap.
func TestPartsFollowEachOther(t *testing.T) {
	s := smallShape()
	at := uint64(0)
	next := func(what string, begin, n uint64) {
		t.Helper()
		if begin < at {
			t.Errorf("%s begins at %d, the part before it ends at %d", what, begin, at)
		}
		at = begin + n
	}
	next("superblock", 0, SuperblockLen)
	next("client word", ClientWord, 8)
	next("doubt word", DoubtWord, 8)
	next("view", ViewWord, 8)
	next("master", MasterWord, 8)
	for i := range s.Subtables {
		next(fmt.Sprint("entry ", i), s.EntryAt(i), 8)
	}
	for i := range s.Subtables {
		next(fmt.Sprint("subtable ", i), s.SubtableAt(i), s.SubtableLen())
		if s.GroupAt(i, s.Groups-1)+GroupLen != at || s.SubtableAt(i)%BucketLen != 0 {
			t.Errorf("subtable %d ends at %d, its last group at %d", i, at, s.GroupAt(i, s.Groups-1)+GroupLen)
		}
		slot := s.GroupAt(i, 2) + uint64(GroupSlot(9))
		if sub, off := s.Within(slot); sub != i || s.SubtableAt(sub)+off != slot {
			t.Errorf("slot %d is at %d of subtable %d", slot, off, sub)
		}
	}
	for i := range s.Replicas {
		next(fmt.Sprint("block table ", i), s.BlockTable(i), uint64(8*s.Blocks))
	}
	for i := range s.Replicas {
		next(fmt.Sprint("area ", i), s.AreaAt(i), s.AreaLen())
		if s.AreaAt(i)%Unit != 0 || s.AreaLen() != uint64(s.Blocks*s.BlockUnits*Unit) {
			t.Errorf("area %d of %d bytes at %d", i, s.AreaLen(), s.AreaAt(i))
		}
	}
	next("leases", s.LeaseAt(0), 8*Leases)
	if s.Len() != at {
		t.Errorf("a region of %d bytes ends at %d", s.Len(), at)
	}
}

// A view has members, a state and an epoch; each change has another epoch, keeps only members, and
// says whether the first member is another one than in the last settled view.
func TestViews(t *testing.T) {
	all := func(int) bool { return true }
	without := func(lost ...int) func(int) bool {
		return func(server int) bool {
			for _, l := range lost {
				if l == server {
					return false
				}
			}
			return true
		}
	}
	first := FirstView(3)
	if first.State() != Settled || first.Epoch() != 1 || first.Mastered() || first.Moved() || !first.Valid(3) || first.Valid(2) || View(0).State() != NoView {
		t.Errorf("%#x", first)
	}
	for server, want := range []bool{true, true, true, false} {
		if first.Has(server) != want {
			t.Errorf("server %d is a member: %v", server, !want)
		}
	}
	if FirstView(MaxServers).Has(MaxServers) || !FirstView(MaxServers).Has(MaxServers-1) || !FirstView(MaxServers).Valid(MaxServers) {
		t.Errorf("%#x", FirstView(MaxServers))
	}
	same := first.Next(all)
	if same.State() != Preparing || same.Epoch() != 2 || !same.Mastered() || same.Moved() || !same.Has(0) || !same.Has(2) {
		t.Errorf("%#x", same)
	}
	later := first.Next(without(1))
	if later.Has(1) || !later.Has(0) || !later.Has(2) || later.Moved() || later.First(1, 2, 3) != 2 || later.First(1, 1, 3) != -1 || later.First(2, 2, 3) != 2 {
		t.Errorf("%#x", later)
	}
	if back := later.As(Settled).Next(all); back.Has(1) {
		t.Errorf("a server comes back: %#x", back)
	}
	moved := first.Next(without(0))
	if !moved.Moved() || moved.First(0, 3, 3) != 1 {
		t.Errorf("%#x", moved)
	}
	if again := moved.Next(all); !again.Moved() || again.Epoch() != 3 {
		t.Errorf("a change that replaces one that moved the first: %#x", again)
	}
	settled := moved.As(Settled)
	if settled.Moved() || settled.State() != Settled || settled.Epoch() != 2 || !settled.Mastered() || settled.Next(all).Moved() {
		t.Errorf("%#x", settled)
	}
	if gone := moved.As(Gone); gone.State() != Gone || !gone.Moved() || !gone.Valid(3) || (gone | 4<<viewState).Valid(3) {
		t.Errorf("%#x", gone)
	}
	s := smallShape() // the index is on server 0, objects on two servers in succession
	for _, c := range []struct {
		lost []int
		want bool
	}{{nil, true}, {[]int{1}, true}, {[]int{2}, true}, {[]int{0}, false}, {[]int{1, 2}, false}} {
		if got := s.Survives(first.Next(without(c.lost...))); got != c.want {
			t.Errorf("without servers %v: survives %v", c.lost, got)
		}
	}
}

// An object is read as it was written, at the ends of each field, and a length beyond the bytes or
// an unknown mark is no object.
func TestFieldsOfObjects(t *testing.T) {
	for _, f := range []Format{Hardened, Published} {
		for _, in := range []Object{
			{Mark: Valid, Key: 1<<64 - 1, Value: bytes.Repeat([]byte{7}, 300), Next: LinkTo(15, 1<<44-1), Previous: LinkTo(1, 5), Op: OpUpdate},
			{Mark: Valid, Key: 5, Value: []byte{}, Op: OpDelete},
			{Mark: Invalid, Key: 5, Value: []byte{1}, Op: OpInsert},
		} {
			if f == Hardened {
				in.Version = MaxVersion
			}
			b := in.AppendTo(f, []byte("ahead"))[5:]
			var out Object
			if err := out.Parse(f, append(b, 9, 9, 9)); err != nil || out.Mark != in.Mark || out.Key != in.Key || !bytes.Equal(out.Value, in.Value) ||
				out.Next != in.Next || out.Previous != in.Previous || out.Op != in.Op || out.Version != in.Version || out.Outcome != Unknown || out.Old != 0 {
				t.Errorf("%v: %+v is read as %+v, %v", f, in, out, err)
			}
			if len(b) != Overhead+len(in.Value) {
				t.Errorf("%v: %d bytes", f, len(b))
			}
			if f == Hardened {
				if h := ParseHead(b[:HeadLen]); h != (Head{in.Mark, in.Version, in.Key}) {
					t.Errorf("%+v", h)
				}
			}
			if err := out.Parse(f, b[:len(b)-1]); !errors.Is(err, ErrObject) {
				t.Errorf("%v: a short object: %v", f, err)
			}
			for what, change := range map[string]func(b []byte){
				"mark": func(b []byte) { b[0] = byte(Pending) + 1 }, "length of the key": func(b []byte) { b[2]++ },
			} {
				bad := bytes.Clone(b)
				change(bad)
				if err := out.Parse(f, bad); !errors.Is(err, ErrObject) {
					t.Errorf("%v with another %s: %v", f, what, err)
				}
			}
			pending := bytes.Clone(b)
			pending[0] = byte(Pending)
			if err := out.Parse(f, pending); (err == nil) != (f == Hardened) {
				t.Errorf("%v pending: %v", f, err)
			}
		}
	}
	if l := LinkTo(15, 1<<44-1); l.Server() != 15 || l.Place() != 1<<44-1 || LinkTo(16, 1).Server() != 0 {
		t.Errorf("%#x", uint64(l))
	}
	if Unknown.String() != "unknown" || Finished.String() != "finished" || (Finished+1).String() != "finished" {
		t.Error("names of outcomes")
	}
}

// Parts begin at multiples of a unit.
func TestAlign(t *testing.T) {
	for n, want := range map[uint64]uint64{0: 0, 1: 256, 255: 256, 256: 256, 257: 512} {
		if align(n) != want {
			t.Errorf("%d becomes %d", n, align(n))
		}
	}
	b := bytes.Repeat([]byte{0xff}, SuperblockLen)
	(&Superblock{Shape: smallShape(), Generation: 7}).Put(b)
	if !bytes.Equal(b[21:24], make([]byte, 3)) || !bytes.Equal(b[48:], make([]byte, 16)) {
		t.Errorf("unused bytes of a superblock: % x", b)
	}
}

// Server returns the server with the first replica of the object.
func (l Link) Server() int { return int(l % MaxServers) }

// Place returns the offset of the object in its area, as a number of units of Unit bytes.
func (l Link) Place() uint64 { return uint64(l >> 4) }
