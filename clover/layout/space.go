package layout

import "fmt"

// Lengths in bytes of the fixed parts of a region.
const (
	SuperblockLen = 64
	ShortcutLen   = 8
	RecordLen     = 16
)

// Limits of a space.
const (
	// MaxServers is the largest number of memory servers of a store.
	MaxServers = 64
	// maxEntries and maxShortcuts are the limits for one server.
	maxEntries   = 1 << 25
	maxShortcuts = 1 << 24
)

// Space is the arrangement of a store in the memory of all servers. From it every client computes
// the same addresses. The counts are per server, and equal on all servers. Handles are numbered
// from 1 on: first all entries of server 0, class by class, then those of server 1, and so on.
//
// In a fixed space the entries of each class follow those of the class before. In a shared space
// the entries of all classes begin at the same offset. The memory is divided into segments, and the
// metadata server decides which class the entries of each segment have. In both cases the class of
// an entry can be computed from its handle.
type Space struct {
	Servers int
	// Entries is the number of entries of each class on each server.
	Entries Counts
	// Shortcuts is the number of shortcuts on each server, and also the number of directory
	// records. A key has a shortcut and a record with the same number, the slot of the key.
	Shortcuts int
	// Shared is true if the classes share the memory. Then Entries has, for each class, the number
	// of entries that would fill the whole memory. Classes with larger entries than a segment have
	// none.
	Shared bool
	// Backups is the number of copies of each node besides the first; see Copy.
	Backups int
}

// UsualSegment is the usual length of a segment of a shared space, in bytes. It is the length of
// the largest entry. A small space has shorter segments: see ShareIn.
const UsualSegment = MaxSlab

// ShareIn makes s a shared space: n bytes of each server are divided among the classes as needed.
// Segments have the length of an entry of class `largest`. The space has no larger entries.
func (s *Space) ShareIn(n int, largest Class) {
	s.Shared, s.Entries = true, Counts{}
	for c := range largest + 1 {
		s.Entries[c] = n / largest.Size() * (largest.Size() / c.Size())
	}
}

// Largest returns the largest class that has entries.
func (s *Space) Largest() Class {
	c := Class(Classes - 1)
	for c > 0 && s.Entries[c] <= 0 {
		c--
	}
	return c
}

// SegmentLen returns the length of a segment in bytes. It is 0 in a fixed space.
func (s *Space) SegmentLen() int {
	if !s.Shared {
		return 0
	}
	return s.Largest().Size()
}

// Segments returns the number of segments on each server. It is 0 in a fixed space.
func (s *Space) Segments() int {
	if !s.Shared {
		return 0
	}
	return s.Entries[s.Largest()]
}

// PerSegment returns the number of entries of a class in a segment. It is 0 in a fixed space, and
// for classes that the space does not have.
func (s *Space) PerSegment(c Class) int { return s.SegmentLen() / c.Size() }

// Segment returns the server and the segment of an entry. ok is false if the space does not have
// this handle, or is not shared.
func (s *Space) Segment(h Handle) (server, i int, ok bool) {
	p, ok := s.Place(h)
	if !ok || !s.Shared {
		return 0, 0, false
	}
	return p.Server, (p.Offset - s.slabs()) / s.SegmentLen(), true
}

// Table returns where a server keeps the classes of its segments. The table has one byte for each
// segment: 0 if the segment has no class yet, otherwise the class plus one.
func (s *Space) Table(server int) Place {
	return Place{Server: server, Offset: s.table(), Len: s.Segments()}
}

// Validate returns an error for the first field of s that is out of its limits.
func (s *Space) Validate() error {
	switch total := s.Entries.Total(); {
	case s.Servers < 1 || s.Servers > MaxServers:
		return fmt.Errorf("%d memory servers: want 1 to %d", s.Servers, MaxServers)
	case total < 1 || total > maxEntries:
		return fmt.Errorf("%d entries on a server: want 1 to %d", total, maxEntries)
	case s.Shortcuts < 1 || s.Shortcuts > maxShortcuts:
		return fmt.Errorf("%d shortcuts on a server: want 1 to %d", s.Shortcuts, maxShortcuts)
	case s.Backups < 0 || s.Backups > MaxBackups || s.Backups >= s.Servers:
		return fmt.Errorf("%d copies of a node on %d memory servers: want 1 to %d, and no more than servers", s.Backups+1, s.Servers, MaxBackups+1)
	case s.Backups > 0 && s.Servers > MaxCopied:
		return fmt.Errorf("%d memory servers with copies: want at most %d", s.Servers, MaxCopied)
	}
	for i, n := range s.Entries {
		if n < 0 {
			return fmt.Errorf("%d entries of %v: want 0 or more", n, Class(i))
		}
		if s.Shared && n != s.Segments()*s.PerSegment(Class(i)) {
			return fmt.Errorf("%d entries of %v in %d segments", n, Class(i), s.Segments())
		}
	}
	return nil
}

// RegionLen returns how many bytes of each server's region the store needs.
func (s *Space) RegionLen() int { return s.slabs() + s.data() + s.Backups*s.stride() }

// data returns the length of a server's entries in bytes.
func (s *Space) data() int {
	if s.Shared {
		return s.Segments() * s.SegmentLen()
	}
	return s.Entries.Bytes()
}

// slabs returns the offset of the first entry. It is a multiple of the smallest class.
func (s *Space) slabs() int {
	return (s.table() + s.Segments() + MinSlab - 1) / MinSlab * MinSlab
}

// table returns the offset of the table with the classes of segments.
func (s *Space) table() int {
	return s.directory() + s.Shortcuts*RecordLen*min(s.Backups+2, s.Servers)
}

// mirrors returns the offset of the first mirror (see Mirror). The mirrors are behind all copies of
// the records.
func (s *Space) mirrors() int { return s.directory() + s.Shortcuts*RecordLen*(s.Backups+1) }

// directory returns the offset of the first record.
func (s *Space) directory() int {
	return (SuperblockLen + s.Shortcuts*ShortcutLen + RecordLen - 1) / RecordLen * RecordLen
}

// Slots returns the number of keys that the store can hold.
func (s *Space) Slots() int { return s.Shortcuts * s.Servers }

// Place says where an entry, a shortcut, a record or a table is.
type Place struct {
	Server int
	// Offset is counted from the start of the server's region, in bytes.
	Offset int
	// Len is the length in bytes.
	Len int
}

// Place returns where an entry is. ok is false if the space does not have this handle.
func (s *Space) Place(h Handle) (p Place, ok bool) {
	per := s.Entries.Total()
	if h == 0 || int64(h) > int64(per)*int64(s.Servers) {
		return Place{}, false
	}
	i := int(h) - 1
	p.Server, i = i/per, i%per
	p.Offset = s.slabs()
	for c, n := range s.Entries {
		size := Class(c).Size()
		if i < n {
			p.Offset += i * size
			p.Len = size
			return p, true
		}
		if i -= n; !s.Shared {
			p.Offset += n * size
		}
	}
	return Place{}, false
}

// Entry reports whether n bytes at an offset of a server's region can be an entry.
func (s *Space) Entry(server, offset, n int) bool {
	if !s.Shared {
		_, c, ok := s.Handle(server, offset)
		return ok && c.Size() == n
	}
	c, ok := ClassOf(n)
	at := offset - s.slabs()
	return ok && c.Size() == n && c <= s.Largest() && at >= 0 && at%n == 0 && at+n <= s.data()
}

// Handle returns the entry that begins at an offset of a server's region, and its class. ok is
// false if no entry begins there. In a shared space it returns the entry of the smallest class.
func (s *Space) Handle(server, offset int) (h Handle, c Class, ok bool) {
	at := offset - s.slabs()
	if server < 0 || server >= s.Servers || at < 0 {
		return 0, 0, false
	}
	first := 1 + server*s.Entries.Total()
	for i, n := range s.Entries {
		size := Class(i).Size()
		if at < n*size {
			return Handle(first + at/size), Class(i), at%size == 0
		}
		at -= n * size
		first += n
	}
	return 0, 0, false
}

// First returns the first handle of a class on a server. The other handles of the class follow it.
func (s *Space) First(server int, c Class) Handle {
	h := 1 + server*s.Entries.Total()
	for i := range c {
		h += s.Entries[i]
	}
	return Handle(h)
}

// Shortcut returns where shortcut i of the store is. The shortcuts are distributed over the servers
// in turn.
func (s *Space) Shortcut(i int) (p Place, ok bool) {
	if i < 0 || i >= s.Slots() {
		return Place{}, false
	}
	return Place{Server: i % s.Servers, Offset: SuperblockLen + i/s.Servers*ShortcutLen, Len: ShortcutLen}, true
}

// Record returns where the directory's record of slot i is.
func (s *Space) Record(i int) (p Place, ok bool) {
	if i < 0 || i >= s.Slots() {
		return Place{}, false
	}
	return Place{Server: i % s.Servers, Offset: s.directory() + i/s.Servers*RecordLen, Len: RecordLen}, true
}

// Mirror returns where the mirror of record i is: on the server after those of all copies of the
// record. The mirror repeats which key the record names. ok is false if there is no slot i, or if
// the store has no server besides those of the copies, and so no mirrors.
func (s *Space) Mirror(i int) (p Place, ok bool) {
	if i < 0 || i >= s.Slots() || s.Servers < s.Backups+2 {
		return Place{}, false
	}
	return Place{Server: (i + s.Backups + 1) % s.Servers, Offset: s.mirrors() + i/s.Servers*RecordLen, Len: RecordLen}, true
}
