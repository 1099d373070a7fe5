package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
)

func goodSuperblock() Superblock {
	return Superblock{
		Shape: Shape{Kind: Hardened, Page: 1024, Value: 8}, Generation: 7, Server: 1, Servers: 3, Locks: 100, Chunk: 1 << 20, Len: 1 << 24,
	}
}

// The first and the last value of each field of a superblock is valid, and the ones beside them are
// not; what is valid is read as it was written, and one damaged byte is noticed.
func TestBoundsOfASuperblock(t *testing.T) {
	for what, c := range map[string]struct {
		change func(s *Superblock)
		ok     bool
	}{
		"as it is":             {func(*Superblock) {}, true},
		"no generation":        {func(s *Superblock) { s.Generation = 0 }, false},
		"the last generation":  {func(s *Superblock) { s.Generation = 1<<64 - 1 }, true},
		"no server":            {func(s *Superblock) { s.Server, s.Servers = 0, 0 }, false},
		"one server":           {func(s *Superblock) { s.Server, s.Servers = 0, 1 }, true},
		"the last of 64":       {func(s *Superblock) { s.Server, s.Servers = 63, 64 }, true},
		"65 servers":           {func(s *Superblock) { s.Servers = 65 }, false},
		"a server behind":      {func(s *Superblock) { s.Server = 3 }, false},
		"server -1":            {func(s *Superblock) { s.Server = -1 }, false},
		"no lock word":         {func(s *Superblock) { s.Locks = 0 }, false},
		"one lock word":        {func(s *Superblock) { s.Locks = 1 }, true},
		"the most lock words":  {func(s *Superblock) { s.Locks = MaxLockWords }, true},
		"one lock word more":   {func(s *Superblock) { s.Locks = MaxLockWords + 1 }, false},
		"locks of pages":       {func(s *Superblock) { s.PageLocks = true }, false},
		"locks of other pages": {func(s *Superblock) { s.PageLocks, s.Shape.Kind = true, Checksummed }, true},
		"the least chunk":      {func(s *Superblock) { s.Chunk = MinChunk }, true},
		"half a least chunk":   {func(s *Superblock) { s.Chunk = MinChunk / 2 }, false},
		"the largest chunk":    {func(s *Superblock) { s.Chunk, s.Len = MaxChunk, 1<<offsetBits }, true},
		"a larger chunk":       {func(s *Superblock) { s.Chunk, s.Len = MaxChunk+1024, 1<<offsetBits }, false},
		"no whole pages":       {func(s *Superblock) { s.Chunk += 512 }, false},
		"too much memory":      {func(s *Superblock) { s.Len = 1<<offsetBits + 1 }, false},
		"one chunk":            {func(s *Superblock) { s.Len = s.FirstChunk() + uint64(s.Chunk) }, true},
		"no whole chunk":       {func(s *Superblock) { s.Len = s.FirstChunk() + uint64(s.Chunk) - 1 }, false},
		"locks in the host":    {func(s *Superblock) { s.HostLocks = true }, true},
		"an unknown kind":      {func(s *Superblock) { s.Shape.Kind = Checksummed + 1 }, false},
	} {
		s := goodSuperblock()
		c.change(&s)
		if err := s.Validate(); (err == nil) != c.ok {
			t.Errorf("%s: %v", what, err)
		}
		b := s.AppendTo([]byte("before"))[6:]
		if len(b) != SuperblockLen {
			t.Fatalf("%s: %d bytes", what, len(b))
		}
		var got Superblock
		if err := got.Parse(b); (err == nil) != c.ok || c.ok && got != s {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
		for i := range b {
			b[i] ^= 1
			if err := got.Parse(b); !errors.Is(err, ErrSuperblock) {
				t.Errorf("%s with byte %d damaged: %v", what, i, err)
			}
			b[i] ^= 1
		}
		if err := got.Parse(b[:SuperblockLen-1]); !errors.Is(err, ErrSuperblock) {
			t.Errorf("%s, short: %v", what, err)
		}
	}
}

// Pages begin behind the lock words of the host, at a multiple of the largest page, and end with the
// memory.
func TestInside(t *testing.T) {
	s := goodSuperblock()
	if s.FirstChunk() != MaxPage {
		t.Errorf("pages begin at %d", s.FirstChunk())
	}
	s.HostLocks, s.Locks = true, (MaxPage-LocksAt)/8
	if s.FirstChunk() != MaxPage {
		t.Errorf("pages begin at %d", s.FirstChunk())
	}
	s.Locks++
	if s.FirstChunk() != 2*MaxPage {
		t.Errorf("pages begin at %d", s.FirstChunk())
	}
	for a, want := range map[Addr]bool{
		0: false, At(0, 2*MaxPage): true, At(2, 2*MaxPage): true, At(3, 2*MaxPage): false, At(0, 2*MaxPage-1024): false,
		At(0, 2*MaxPage+512): false, At(0, s.Len-1024): true, At(0, s.Len): false, At(0, s.Len-512): false,
	} {
		if s.Inside(a) != want {
			t.Errorf("%v: %v", a, !want)
		}
	}
}

// An address has its three parts, up to the last of each, and the incarnations of a page end.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		server int
		offset uint64
		text   string
	}{{0, 1024, "0:0x400"}, {63, 1<<offsetBits - 1, "63:0xffffffffff"}, {5, 0, "5:0x0"}} {
		a := At(c.server, c.offset)
		if a.Server() != c.server || a.Offset() != c.offset || a.Incarnation() != 0 || a.Place() != a || a.String() != c.text {
			t.Errorf("%+v: %v, %d, %#x, %d", c, a, a.Server(), a.Offset(), a.Incarnation())
		}
		first, n := a, 0
		for next, ok := a.Next(); ok; next, ok = a.Next() {
			n++
			if next.Server() != c.server || next.Offset() != c.offset || next.Incarnation() != n || next.Place() != first {
				t.Fatalf("incarnation %d is %v", n, next)
			}
			a = next
		}
		if n != incarnation || a.String() != c.text+"+262143" {
			t.Errorf("%d incarnations, the last is %v", n, a)
		}
	}
	if Addr(0).String() != "none" || Tag(0).String() != "free" || MakeTag(3, 9).String() != "3/9" || MakeTag(3, 9).Owner() != 3 || MakeTag(3, 9).Seq() != 9 {
		t.Errorf("%v, %v, %v", Addr(0), Tag(0), MakeTag(3, 9))
	}
	b := make([]byte, 8)
	binary.NativeEndian.PutUint64(b, uint64(MakeTag(3, 9)))
	if TagOf(b) != MakeTag(3, 9) {
		t.Errorf("%v", TagOf(b))
	}
	for kind, want := range map[Kind]string{Hardened: "sound", Published: "faithful", Checksummed: "checksummed"} {
		if kind.String() != want {
			t.Errorf("%v, want %s", kind, want)
		}
	}
}

// All incarnations of a page have one lock word, the pages of a server are spread over the words,
// and the word of a page does not change with the version of the program.
func TestLockWords(t *testing.T) {
	used := map[int]bool{}
	for i := range uint64(1000) {
		a := At(1, MaxPage+i*1024)
		next, _ := a.Next()
		n := LockOf(a, 100)
		if n < 0 || n >= 100 || LockOf(next, 100) != n || LockOf(a, 1) != 0 || LockOf(a, 0) != 0 {
			t.Fatalf("%v: lock word %d", a, n)
		}
		used[n] = true
	}
	if len(used) != 100 {
		t.Errorf("%d words are used", len(used))
	}
	if got := []int{LockOf(At(0, 16384), DefaultLocks), LockOf(At(1, 16384), DefaultLocks), LockOf(At(0, 17408), DefaultLocks)}; !slices.Equal(got, splitmix) {
		t.Errorf("lock words %v, want %v", got, splitmix)
	}
}

// splitmix are the lock words of three pages, computed with splitmix64 by another program.
var splitmix = []int{3839, 29371, 16468}

// The bounds of a shape are inclusive, and its pages are as large as they say.
func TestBoundsOfShapes(t *testing.T) {
	for _, kind := range []Kind{Hardened, Published, Checksummed} {
		most := MaxPublishedValue
		if kind == Hardened {
			most = MaxHardenedValue
		}
		for _, c := range []struct {
			page, value int
			ok          bool
		}{
			{1024, 8, true},
			{256, 8, true},
			{128, 8, false},
			{16384, 8, true},
			{32768, 8, false},
			{1000, 8, false},
			{1024, 7, false},
			{1024, most, true},
			{1024, most + 1, false},
			{0, 8, false},
			{1024, 0, false},
		} {
			s := Shape{Kind: kind, Page: c.page, Value: c.value}
			if err := s.Validate(); (err == nil) != c.ok {
				t.Errorf("%v: %v", s, err)
			}
		}
	}
	if s := (Shape{}).WithDefaults(); s != (Shape{Page: 1024, Value: 8}) {
		t.Errorf("%+v", s)
	}
	if s := (Shape{Page: 256, Value: 9}).WithDefaults(); s != (Shape{Page: 256, Value: 9}) {
		t.Errorf("%+v", s)
	}
	for _, c := range []struct {
		s             Shape
		level         int
		record, slots int
	}{
		{Shape{Hardened, 1024, 8}, 0, 18, 45},
		{Shape{Hardened, 1024, 8}, 1, 18, 45},
		{Shape{Hardened, 1024, 54}, 0, 64, 15},
		{Shape{Published, 1024, 8}, 0, 18, 54},
		{Shape{Published, 1024, 8}, 1, 16, 61},
		{Shape{Checksummed, 1024, 8}, 0, 16, 60},
		{Shape{Checksummed, 1024, 20}, 1, 16, 60},
		{Shape{Checksummed, 256, 8}, 0, 16, 12},
	} {
		if c.s.RecordLen(c.level) != c.record || c.s.Slots(c.level) != c.slots {
			t.Errorf("%v at level %d: %d records of %d bytes", c.s, c.level, c.s.Slots(c.level), c.s.RecordLen(c.level))
		}
		// The records do not overlap, nor leave the page; those of a hardened page do not cross lines.
		end := publishedHeader
		if c.s.Kind == Hardened {
			end = Line
		}
		for i := range c.slots {
			at := c.s.slotAt(c.level, i)
			if at < end || c.s.Kind == Hardened && at/Line != (at+c.record-1)/Line {
				t.Errorf("%v at level %d: record %d is at %d", c.s, c.level, i, at)
			}
			end = at + c.record
		}
		if end > c.s.Page {
			t.Errorf("%v at level %d ends at %d", c.s, c.level, end)
		}
	}
}

func shapes() []Shape {
	return []Shape{{Hardened, 512, 8}, {Published, 512, 12}, {Checksummed, 512, 12}, {Hardened, 512, 20}}
}

// Every field of a header is read as it was written, and a page of another length is none.
func TestHeaders(t *testing.T) {
	for _, s := range shapes() {
		h := Header{
			Level: 3, Lowest: 1<<63 + 5, Highest: 1<<64 - 2, Sibling: At(5, 1<<39), Leftmost: At(6, 1<<38), Epoch: 200, Last: -1,
		}
		if s.Kind == Hardened {
			h.Self, h.Generation, h.Reach, h.Epoch = At(7, 1<<37), 1<<64-1, 1<<64-3, 900
		}
		b := bytes.Repeat([]byte{0xff}, s.Page)
		var p, got Page
		p.Init(s, b, h)
		if err := got.Parse(s, b); err != nil || got.Header != h || p.Header != h || got.Count() != 0 || got.FreeSlot() < 0 && s.Kind != Hardened {
			t.Errorf("%v: %+v, want %+v, %v", s, got.Header, h, err)
		}
		if err := got.Parse(s, b[:len(b)-1]); !errors.Is(err, ErrPage) {
			t.Errorf("%v: a short page: %v", s, err)
		}
		h.Epoch = 0
		if p.Init(s, b, h); p.Epoch != 1 || p.Parse(s, b) != nil || p.Epoch != 1 {
			t.Errorf("%v: the first epoch is %d", s, p.Epoch)
		}
		if err := got.Parse(s, make([]byte, s.Page)); !errors.Is(err, ErrPage) {
			t.Errorf("%v: zeros: %v", s, err)
		}
		p.End(h.Highest-1, At(9, 1024))
		p.Lead(At(10, 2048))
		if err := got.Parse(s, b); err != nil || got.Highest != h.Highest-1 || got.Sibling != At(9, 1024) || got.Leftmost != At(10, 2048) {
			t.Errorf("%v: %+v, %v", s, got.Header, err)
		}
	}
	h := Header{Lowest: 5, Highest: 9}
	last := Header{Lowest: 5, Highest: MaxKey}
	for key, want := range map[uint64][2]bool{4: {}, 5: {true, true}, 8: {true, true}, 9: {false, true}, MaxKey: {false, true}} {
		if h.Covers(key) != want[0] || last.Covers(key) != want[1] {
			t.Errorf("key %d: %v and %v", key, h.Covers(key), last.Covers(key))
		}
	}
}

// fill puts records with the keys step, 2·step, … into a page until it is full, and returns how
// many. The range that each change returns is all that it has changed.
func fill(t *testing.T, p *Page, step uint64) int {
	t.Helper()
	for i := 1; ; i++ {
		slot := p.FreeSlot()
		if slot < 0 {
			return i - 1
		}
		before := slices.Clone(p.Bytes)
		var r Range
		key := uint64(i) * step
		if p.Level > 0 {
			r = p.PutChild(key, At(1, key*1024))
		} else {
			r = p.Put(slot, key, valueOf(p, key))
		}
		if !bytes.Equal(before[:r.Off], p.Bytes[:r.Off]) || !bytes.Equal(before[r.Off+r.Len:], p.Bytes[r.Off+r.Len:]) {
			t.Fatalf("%v: more than %+v has changed", p.Shape, r)
		}
	}
}

func valueOf(p *Page, key uint64) []byte {
	v := bytes.Repeat([]byte{byte(key)}, p.Shape.Value)
	v[0] = 1
	return v
}

// A leaf holds as many records as its shape says, finds each of them, also after it was read again,
// and not those that were removed; a record that is put again is replaced.
func TestLeaves(t *testing.T) {
	for _, s := range shapes() {
		var p, got Page
		p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
		n := fill(t, &p, 10)
		if n != s.Slots(0) || p.Count() != n || p.CanSplit() != (n >= 2) {
			t.Errorf("%v: %d records, %d slots", s, n, s.Slots(0))
		}
		if err := got.Parse(s, p.Bytes); err != nil {
			t.Fatalf("%v: %v", s, err)
		}
		for i := 1; i <= n; i++ {
			key := uint64(10 * i)
			slot, v, ok, err := got.Find(key)
			if err != nil || !ok || !bytes.Equal(v, valueOf(&p, key)) {
				t.Errorf("%v: key %d: %v, %v", s, key, ok, err)
			}
			if r, state := got.Slot(slot); state != Used || r.Key != key {
				t.Errorf("%v: slot %d has %d", s, slot, r.Key)
			}
			if _, _, ok, _ := got.Find(key + 1); ok {
				t.Errorf("%v: key %d is found", s, key+1)
			}
		}
		slot, _, _, _ := p.Find(20)
		other := valueOf(&p, 77)
		p.Put(slot, 20, other)
		if err := got.Parse(s, p.Bytes); err != nil || got.Count() != n {
			t.Errorf("%v: %d records, %v", s, got.Count(), err)
		}
		if _, v, ok, _ := got.Find(20); !ok || !bytes.Equal(v, other) {
			t.Errorf("%v: the value is % x", s, v)
		}
		slot, _, _, _ = p.Find(10)
		p.Remove(slot)
		if err := got.Parse(s, p.Bytes); err != nil || got.Count() != n-1 {
			t.Errorf("%v: %d records, %v", s, got.Count(), err)
		}
		if _, _, ok, _ := got.Find(10); ok {
			t.Errorf("%v: a removed key is found", s)
		}
		if s.Kind != Hardened && got.FreeSlot() < 0 {
			t.Errorf("%v: there is no room for another record", s)
		}
		order := got.Order(nil)
		for i, slot := range order {
			if r, _ := got.Slot(int(slot)); r.Key != uint64(10*(i+2)) {
				t.Errorf("%v: record %d is %d", s, i, r.Key)
			}
		}
		if len(order) != n-1 {
			t.Errorf("%v: %d records in order", s, len(order))
		}
	}
}

// An internal page leads each key to the child with the highest separator that is not above it.
func TestInternalPages(t *testing.T) {
	for _, s := range shapes() {
		var p, got Page
		p.Init(s, make([]byte, s.Page), Header{Level: 1, Lowest: 3, Highest: MaxKey, Leftmost: At(2, 4096)})
		n := fill(t, &p, 10)
		if err := got.Parse(s, p.Bytes); err != nil || n != s.Slots(1) {
			t.Fatalf("%v: %d children, %v", s, n, err)
		}
		for key := uint64(3); key < uint64(10*n+20); key++ {
			child, at := got.Separator(key)
			wantAt := min(key/10, uint64(n)) * 10
			want := At(1, wantAt*1024)
			if wantAt == 0 {
				want, wantAt = At(2, 4096), 3
			}
			if child != want || at != wantAt || got.Child(key) != want {
				t.Fatalf("%v: key %d leads to %v by %d, want %v by %d", s, key, child, at, want, wantAt)
			}
		}
	}
	if (Record{Value: make([]byte, 7)}).Child() != 0 {
		t.Error("7 bytes are an address")
	}
}

// A split moves the upper half, its first separator becomes the leftmost child of the new page, and
// both pages together lead and hold what the one did.
func TestSplits(t *testing.T) {
	for _, s := range shapes() {
		for level := range 2 {
			var p, sib Page
			p.Init(s, make([]byte, s.Page), Header{
				Level: level, Lowest: 3, Highest: 1 << 40, Sibling: At(3, 8192), Leftmost: Addr(level) * At(2, 4096), Self: At(1, 1024), Generation: 7,
			})
			n := fill(t, &p, 10)
			fresh := Fresh{At: At(4, 16384), Epoch: 3}
			was := p.Epoch
			sep, _, ranges := p.Split(fresh, make([]byte, s.Page), &sib, nil, nil)
			if len(ranges) == 0 || p.Highest != sep || p.Sibling != fresh.At || p.Epoch == was {
				t.Errorf("%v: separator %d, %+v, ranges %v", s, sep, p.Header, ranges)
			}
			if sib.Lowest != sep || sib.Highest != 1<<40 || sib.Sibling != At(3, 8192) || sib.Level != level {
				t.Errorf("%v: the new page is %+v", s, sib.Header)
			}
			if s.Kind == Hardened && (sib.Self != fresh.At || sib.Generation != 7 || sib.Epoch != 3) {
				t.Errorf("%v: the new page is %+v", s, sib.Header)
			}
			for _, page := range []*Page{&p, &sib} {
				var got Page
				want := page.Header
				if s.Kind != Hardened {
					want.Self, want.Generation = 0, 0 // these pages do not have them
				}
				if err := got.Parse(s, page.Bytes); err != nil || got.Header != want {
					t.Errorf("%v: %+v is read as %+v, %v", s, want, got.Header, err)
				}
			}
			want := n
			if level > 0 {
				want-- // the first separator of the new page
				if sib.Leftmost != At(1, sep*1024) {
					t.Errorf("%v: the leftmost child is %v", s, sib.Leftmost)
				}
			}
			if p.Count() != n/2 || p.Count()+sib.Count() != want {
				t.Errorf("%v: %d and %d records of %d", s, p.Count(), sib.Count(), n)
			}
			for i := 1; i <= n; i++ {
				key := uint64(10 * i)
				page := &p
				if !p.Covers(key) {
					page = &sib
				}
				if level > 0 {
					if child, at := page.Separator(key); child != At(1, key*1024) || at != key {
						t.Errorf("%v: key %d leads to %v by %d", s, key, child, at)
					}
				} else if _, v, ok, err := page.Find(key); !ok || err != nil || !bytes.Equal(v, valueOf(&p, key)) {
					t.Errorf("%v: key %d: %v, %v", s, key, ok, err)
				}
			}
		}
	}
}

// One damaged byte of a header or of a checksummed page is noticed, and so is a record of a
// published leaf whose versions differ.
func TestDamagedPages(t *testing.T) {
	for _, s := range shapes() {
		var p, got Page
		p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey, Lowest: 1})
		fill(t, &p, 10)
		last := Line
		if s.Kind == Checksummed {
			last = s.Page - LockLen
		}
		for i := range last {
			p.Bytes[i] ^= 1
			if err := got.Parse(s, p.Bytes); err == nil && s.Kind != Published {
				t.Errorf("%v: byte %d damaged: no error", s, i)
			}
			p.Bytes[i] ^= 1
		}
		if s.Kind == Published {
			p.Bytes[s.slotAt(0, 2)] ^= 1
			if err := got.Parse(s, p.Bytes); err != nil {
				t.Fatal(err)
			}
			if _, _, ok, err := got.Find(30); ok || !errors.Is(err, ErrTorn) {
				t.Errorf("a torn record is found: %v, %v", ok, err)
			}
			if _, _, ok, err := got.Find(20); !ok || err != nil {
				t.Errorf("the record beside a torn one: %v, %v", ok, err)
			}
			p.Bytes[8]++
			if err := got.Parse(s, p.Bytes); !errors.Is(err, ErrTorn) {
				t.Errorf("two versions: %v", err)
			}
		}
	}
}
