package layout

// Limits of a space with copies.
const (
	// MaxBackups is the largest number of copies of a node besides the first.
	MaxBackups = 2
	// MaxCopied is the largest number of memory servers of a store with several copies of each
	// node. A superblock has one bit for each.
	MaxCopied = 16
)

// Copy returns the place of copy j of an entry, or of a table with the classes of segments. p is
// the place of copy 0, as the methods Place and Table return it. Copy j is on the j-th server after
// that of copy 0, and its offset is greater by j times the stride. So one handle names all copies
// of an entry: a location is one word as in a store without copies, and a client appends a node by
// one compare-and-swap on each copy of the newest node.
func (s *Space) Copy(p Place, j int) Place {
	return Place{Server: (p.Server + j) % s.Servers, Offset: p.Offset + j*s.stride(), Len: p.Len}
}

// RecordCopy returns where copy j of record i is. Copy 0 is the record itself. The other copies are
// on the servers after it; the mirror, if there is one, is on the server after the last copy.
func (s *Space) RecordCopy(i, j int) (p Place, ok bool) {
	if p, ok = s.Record(i); j > 0 {
		p.Offset += j * s.Shortcuts * RecordLen
		p.Server = (p.Server + j) % s.Servers
	}
	return p, ok
}

// stride returns the length of the table and the entries of one server, in bytes. It is rounded up,
// so that all copies of entries begin at multiples of MinSlab.
func (s *Space) stride() int {
	n := s.slabs() - s.table() + s.data()
	return (n + MinSlab - 1) / MinSlab * MinSlab
}
