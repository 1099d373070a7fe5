package layout

import (
	"slices"
	"testing"
)

// span is a range of bytes of one server's region.
type span struct {
	server, at, n int
	what          string
}

// disjoint reports spans that overlap or are outside of the region.
func disjoint(t *testing.T, s *Space, spans []span) {
	t.Helper()
	slices.SortFunc(spans, func(a, b span) int {
		if a.server != b.server {
			return a.server - b.server
		}
		return a.at - b.at
	})
	for i, p := range spans {
		if p.server < 0 || p.server >= s.Servers || p.at < 0 || p.at+p.n > s.RegionLen() {
			t.Errorf("%+v is outside of a region of %d bytes", p, s.RegionLen())
		}
		if i > 0 && spans[i-1].server == p.server && spans[i-1].at+spans[i-1].n > p.at {
			t.Errorf("%+v overlaps %+v", spans[i-1], p)
		}
	}
}

// The copies of an entry, of a table and of a record are on the servers after it, each at the same
// distance; no two of them share a byte; entries begin at multiples of the smallest class; the
// region ends with the last copy.
func TestCopies(t *testing.T) {
	fixed := Space{Shortcuts: 3, Entries: Counts{0: 5, 2: 3}}
	shared := Space{Shortcuts: 3}
	shared.ShareIn(3*512, 2)
	for name, s := range map[string]Space{"fixed": fixed, "shared": shared} {
		for servers := 2; servers <= 4; servers++ {
			for backups := 1; backups <= min(MaxBackups, servers-1); backups++ {
				s.Servers, s.Backups = servers, backups
				if err := s.Validate(); err != nil {
					t.Fatal(err)
				}
				var spans []span
				end := 0
				copies := func(what string, at func(j int) Place) {
					distance := at(1).Offset - at(0).Offset
					for j := range backups + 1 {
						p := at(j)
						if p.Server != (at(0).Server+j)%servers || p.Offset != at(0).Offset+j*distance || p.Len != at(0).Len {
							t.Errorf("%s, %d servers: copy %d of %s %+v is at %+v", name, servers, j, what, at(0), p)
						}
						spans = append(spans, span{p.Server, p.Offset, p.Len, what})
						end = max(end, p.Offset+p.Len)
					}
				}
				for i := range s.Slots() {
					p, _ := s.Shortcut(i)
					spans = append(spans, span{p.Server, p.Offset, p.Len, "shortcut"})
					copies("record", func(j int) Place {
						p, ok := s.RecordCopy(i, j)
						if !ok {
							t.Fatalf("record %d has no copy %d", i, j)
						}
						return p
					})
					first, _ := s.RecordCopy(i, 0)
					last, _ := s.RecordCopy(i, backups)
					record, _ := s.Record(i)
					mirror, ok := s.Mirror(i)
					if first != record || ok != (servers > backups+1) || ok && mirror.Server != (last.Server+1)%servers {
						t.Errorf("record %d: copies %+v to %+v, record %+v, mirror %+v", i, first, last, record, mirror)
					}
					if ok {
						spans = append(spans, span{mirror.Server, mirror.Offset, mirror.Len, "mirror"})
					}
				}
				for server := range servers {
					spans = append(spans, span{server, 0, SuperblockLen, "superblock"})
					if s.Shared {
						copies("table", func(j int) Place { return s.Copy(s.Table(server), j) })
					}
					for c := range Class(Classes) {
						if s.Shared && c != s.Largest() {
							continue // entries of other classes are in the same memory
						}
						for i := range s.Entries[c] {
							p, ok := s.Place(s.First(server, c) + Handle(i))
							if !ok || p.Len != c.Size() {
								t.Fatalf("entry %d of %v: %+v", i, c, p)
							}
							copies("entry", func(j int) Place { return s.Copy(p, j) })
							for j := range backups + 1 {
								if at := s.Copy(p, j).Offset; at%MinSlab != 0 {
									t.Errorf("%s: copy %d of an entry begins at %d", name, j, at)
								}
							}
						}
					}
				}
				disjoint(t, &s, spans)
				if s.RegionLen()-end >= MinSlab {
					t.Errorf("%s, %d servers, %d backups: the region has %d bytes, the last copy ends at %d", name, servers, backups, s.RegionLen(), end)
				}
			}
		}
	}
}

// The bounds of the numbers of servers and copies are inclusive.
func TestBoundsOfCopies(t *testing.T) {
	for _, c := range []struct {
		servers, backups int
		ok               bool
	}{
		{1, 0, true},
		{1, -1, false},
		{1, 1, false},
		{2, 1, true},
		{2, 2, false},
		{3, 2, true},
		{4, 3, false},
		{MaxCopied, MaxBackups, true},
		{MaxCopied + 1, 1, false},
		{MaxCopied + 1, 0, true},
	} {
		s := Space{Servers: c.servers, Backups: c.backups, Shortcuts: 1, Entries: Counts{1}}
		if err := s.Validate(); (err == nil) != c.ok {
			t.Errorf("%d servers, %d backups: %v", c.servers, c.backups, err)
		} else if err != nil && c.servers == 2 && err.Error() != "3 copies of a node on 2 memory servers: want 1 to 3, and no more than servers" {
			t.Errorf("%v", err)
		}
	}
}
