package layout

import "testing"

// FuzzPage: whatever the bytes of a page are, no method panics, and changes stay inside the page.
func FuzzPage(f *testing.F) {
	for _, s := range []Shape{{}, {Page: 256, Value: 54}, {Kind: Published}, {Kind: Published, Page: 256, Value: 20}, {Kind: Checksummed}, {Kind: Checksummed, Page: 256, Value: 20}} {
		s = s.WithDefaults()
		var p, sib Page
		p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
		for k := range uint64(3) {
			p.Put(int(k), k, []byte{1})
		}
		f.Add(append([]byte(nil), p.Bytes...), uint8(s.Kind), uint8(s.Value), uint64(1))
		p.Init(s, p.Bytes, Header{Level: 1, Highest: MaxKey, Leftmost: 1 << 20})
		p.PutChild(5, 1<<21)
		p.PutChild(3, 1<<22)
		f.Add(append([]byte(nil), p.Bytes...), uint8(s.Kind), uint8(s.Value), uint64(4))
		p.Split(Fresh{At: 1 << 23}, make([]byte, s.Page), &sib, nil, nil)
		f.Add(append([]byte(nil), sib.Bytes...), uint8(s.Kind), uint8(s.Value), uint64(9))
	}
	f.Fuzz(func(t *testing.T, b []byte, kind, value uint8, key uint64) {
		s := Shape{Kind: Kind(kind), Page: len(b), Value: int(value)}
		if s.Validate() != nil {
			return
		}
		var p, sib Page
		if p.Parse(s, b) != nil {
			return
		}
		p.Find(key)
		p.Child(key)
		p.Count()
		ranges := []Range{}
		if slot := p.FreeSlot(); slot >= 0 && p.Level == 0 {
			ranges = append(ranges, p.Put(slot, key, []byte{1}), p.Remove(slot))
		} else if slot >= 0 {
			ranges = append(ranges, p.PutChild(key, 1<<20))
		}
		if p.CanSplit() {
			_, _, ranges = p.Split(Fresh{At: 1 << 20}, make([]byte, s.Page), &sib, nil, ranges)
		}
		for _, r := range ranges {
			if r.Off < 0 || r.Len < 1 || r.Off+r.Len > len(b) {
				t.Fatalf("a change at %d of %d bytes in a page of %d", r.Off, r.Len, len(b))
			}
			if s.Kind == Hardened && r.Off/Line != (r.Off+r.Len-1)/Line {
				t.Fatalf("a change of more than one line: %d bytes at %d", r.Len, r.Off)
			}
		}
	})
}

// FuzzSuperblock: a superblock that parses is valid and survives encoding.
func FuzzSuperblock(f *testing.F) {
	s := Superblock{Shape: Shape{}.WithDefaults(), Generation: 7, Servers: 2, Locks: 100, Chunk: 4096, Len: 1 << 20}
	f.Add(s.AppendTo(nil))
	s.HostLocks, s.Server = true, 1
	f.Add(s.AppendTo(nil))
	s.PageLocks, s.Shape.Kind = true, Checksummed
	f.Add(s.AppendTo(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Superblock
		if s.Parse(b) != nil {
			return
		}
		if err := again.Parse(s.AppendTo(nil)); err != nil || again != s {
			t.Fatalf("%+v, %+v: %v", s, again, err)
		}
	})
}

func BenchmarkParseAndFind(b *testing.B) {
	for _, kind := range []Kind{Hardened, Published} {
		b.Run(kind.String(), func(b *testing.B) {
			s := Shape{Kind: kind}.WithDefaults()
			var p Page
			p.Init(s, make([]byte, s.Page), Header{Highest: MaxKey})
			for k := range uint64(s.Slots(0)) {
				p.Put(int(k), k, []byte{1})
			}
			var got Page
			b.ReportAllocs()
			for b.Loop() {
				if err := got.Parse(s, p.Bytes); err != nil {
					b.Fatal(err)
				}
				if _, _, ok, _ := got.Find(uint64(s.Slots(0) - 1)); !ok {
					b.Fatal("not found")
				}
			}
		})
	}
}
