package layout

import "fmt"

// Lengths in bytes of the fixed parts of a region.
const (
	SuperblockLen = 64
	ShortcutLen   = 8
	RecordLen     = 16
)

// Bounds of a space.
const (
	// MaxServers is the most memory servers of a store.
	MaxServers = 64
	// maxEntries and maxShortcuts bound one server.
	maxEntries   = 1 << 25
	maxShortcuts = 1 << 24
)

// Space is the arrangement of all memory servers: every client computes the same addresses from it.
// The counts are per server and equal on all servers. Handles are numbered through server 0, then
// server 1, and so on; within a server through the classes.
//
// In a fixed space the entries of each class follow those of the class before. In a shared space
// the entries of all classes begin at the same offset: the memory is divided into segments, and the
// metadata server decides which class the entries of each segment have. A handle also tells the
// class.
type Space struct {
	// Servers is how many memory servers there are.
	Servers int
	// Entries is the number of entries of each class on each server.
	Entries Counts
	// Shortcuts is the number of shortcuts on each server, and also of records of the directory. A
	// key has a shortcut and a record with the same number, its slot.
	Shortcuts int
	// Shared: the classes share the memory. Entries of each class is then the number that would
	// fill the whole memory.
	Shared bool
}

// SegmentLen is the length of a segment of a shared space, in bytes: that of the largest entry.
const SegmentLen = MaxSlab

// Share makes s a shared space: n bytes of each server are divided among the classes as needed.
func (s *Space) Share(n int) {
	s.Shared = true
	for c := range s.Entries {
		s.Entries[c] = n / SegmentLen * (SegmentLen / Class(c).Size())
	}
}

// Segments is the number of segments on each server; 0: the space is fixed.
func (s *Space) Segments() int {
	if !s.Shared {
		return 0
	}
	return s.Entries[Classes-1]
}

// Segment returns the segment in which an entry is, and its server. ok is false for a handle that
// the space does not have.
func (s *Space) Segment(h Handle) (server, i int, ok bool) {
	p, ok := s.Place(h)
	return p.Server, (p.Offset - s.slabs()) / SegmentLen, ok && s.Shared
}

// Table returns where a server keeps the classes of its segments: one byte for each segment, which
// is 0 if the segment has no class yet, otherwise the class plus one.
func (s *Space) Table(server int) Place {
	return Place{Server: server, Offset: s.table(), Len: s.Segments()}
}

// Validate returns an error for the first field of s that is out of bounds.
func (s *Space) Validate() error {
	switch total := s.Entries.Total(); {
	case s.Servers < 1 || s.Servers > MaxServers:
		return fmt.Errorf("%d memory servers: want 1 to %d", s.Servers, MaxServers)
	case total < 1 || total > maxEntries:
		return fmt.Errorf("%d entries on a server: want 1 to %d", total, maxEntries)
	case s.Shortcuts < 1 || s.Shortcuts > maxShortcuts:
		return fmt.Errorf("%d shortcuts on a server: want 1 to %d", s.Shortcuts, maxShortcuts)
	}
	for i, n := range s.Entries {
		if n < 0 {
			return fmt.Errorf("%d entries of %v: want 0 or more", n, Class(i))
		}
		if s.Shared && n != s.Segments()*(SegmentLen/Class(i).Size()) {
			return fmt.Errorf("%d entries of %v in %d segments", n, Class(i), s.Segments())
		}
	}
	return nil
}

// RegionLen is the memory that each server needs, in bytes.
func (s *Space) RegionLen() int {
	if s.Shared {
		return s.slabs() + s.Segments()*SegmentLen
	}
	return s.slabs() + s.Entries.Bytes()
}

// slabs is the offset of the first slab, a multiple of the smallest class.
func (s *Space) slabs() int {
	return (s.table() + s.Segments() + MinSlab - 1) / MinSlab * MinSlab
}

// table is the offset of the table of segments' classes.
func (s *Space) table() int { return s.mirrors() + s.Shortcuts*RecordLen*min(1, s.Servers-1) }

// mirrors is the offset of the first mirror.
func (s *Space) mirrors() int { return s.directory() + s.Shortcuts*RecordLen }

// directory is the offset of the first record.
func (s *Space) directory() int {
	return (SuperblockLen + s.Shortcuts*ShortcutLen + RecordLen - 1) / RecordLen * RecordLen
}

// Slots is the number of keys that the store can hold.
func (s *Space) Slots() int { return s.Shortcuts * s.Servers }

// Place says where an entry or a shortcut is.
type Place struct {
	Server int
	// Offset in the server's region, in bytes.
	Offset int
	// Len is the size of the entry in bytes.
	Len int
}

// Place returns where an entry is; ok is false for a handle that the space does not have.
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
	return ok && c.Size() == n && at >= 0 && at%n == 0 && at+n <= s.Segments()*SegmentLen
}

// Handle returns the entry that begins at an offset of a server's region; ok is false if none
// begins there. In a shared space it returns the entry of the smallest class.
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

// First is the first handle of a class on a server; the other handles of the class follow it.
func (s *Space) First(server int, c Class) Handle {
	h := 1 + server*s.Entries.Total()
	for i := range c {
		h += s.Entries[i]
	}
	return Handle(h)
}

// Shortcut returns where shortcut i of the store is: shortcuts are assigned to the servers in turn.
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

// Mirror returns where the mirror of record i is: on the server after that of the record. The
// mirror repeats that the record names a key, and which key. A store with one server has no
// mirrors: ok is false.
func (s *Space) Mirror(i int) (p Place, ok bool) {
	if i < 0 || i >= s.Slots() || s.Servers < 2 {
		return Place{}, false
	}
	return Place{Server: (i + 1) % s.Servers, Offset: s.mirrors() + i/s.Servers*RecordLen, Len: RecordLen}, true
}
