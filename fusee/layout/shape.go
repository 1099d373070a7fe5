package layout

import "fmt"

// Shape is the arrangement of the memory of all servers.
type Shape struct {
	Format Format
	// Servers is the number of memory servers. Replicas is how many of them have a copy of an
	// object. IndexReplicas is how many of them have the index.
	Servers, Replicas, IndexReplicas int
	// Depth is the local depth of all subtables directly after formatting. Subtables is the number
	// of subtables for which there is room.
	Depth, Subtables int
	// Groups is the number of groups of three buckets in a subtable.
	Groups int
	// Blocks is the number of blocks in an area. BlockUnits is the length of a block in units, a
	// multiple of 64.
	Blocks, BlockUnits int
}

// Limits of a shape.
const (
	maxGroups     = 1 << 20
	maxSubtables  = 1 << MaxDepth
	maxBlocks     = 1 << 24
	maxBlockUnits = 1 << 20
)

// Validate returns an error for the first field that is out of range.
func (s *Shape) Validate() error {
	switch {
	case s.Format > Published:
		return fmt.Errorf("format %d: want %d or %d", s.Format, Hardened, Published)
	case s.Servers < 1 || s.Servers > MaxServers:
		return fmt.Errorf("%d memory servers: want 1 to %d", s.Servers, MaxServers)
	case s.Replicas < 1 || s.Replicas > s.Servers || s.IndexReplicas < 1 || s.IndexReplicas > s.Servers:
		return fmt.Errorf("%d replicas of objects, %d of the index: want 1 to %d, the number of servers", s.Replicas, s.IndexReplicas, s.Servers)
	case s.Depth < 0 || s.Depth > MaxDepth || s.Subtables < 1<<max(s.Depth, 0) || s.Subtables > maxSubtables:
		return fmt.Errorf("depth %d with %d subtables: want depth 0 to %d, and %d to %d subtables", s.Depth, s.Subtables, MaxDepth, 1<<min(max(s.Depth, 0), MaxDepth), maxSubtables)
	case s.Groups < 1 || s.Groups > maxGroups:
		return fmt.Errorf("%d groups of a subtable: want 1 to %d", s.Groups, maxGroups)
	case s.Blocks < 1 || s.Blocks > maxBlocks:
		return fmt.Errorf("%d blocks: want 1 to %d", s.Blocks, maxBlocks)
	case s.BlockUnits < 64 || s.BlockUnits > maxBlockUnits || s.BlockUnits%64 != 0:
		return fmt.Errorf("blocks of %d units: want 64 to %d, a multiple of 64", s.BlockUnits, maxBlockUnits)
	case uint64(s.Blocks)*uint64(s.BlockUnits) > MaxPlace:
		return fmt.Errorf("%d blocks of %d units: want at most %d units", s.Blocks, s.BlockUnits, MaxPlace)
	}
	return nil
}

// Mains returns the number of main buckets in a subtable.
func (s *Shape) Mains() int { return 2 * s.Groups }

// SubtableLen returns the length of a subtable in bytes, to the end of its last bucket.
func (s *Shape) SubtableLen() uint64 { return uint64(s.Groups) * groupBuckets * BucketLen }

// stride returns the distance in bytes from the beginning of a subtable to that of the next one.
func (s *Shape) stride() uint64 {
	if s.Format == Published {
		// The public code does not count the overflow buckets, so subtables overlap.
		return uint64(s.Mains()) * BucketLen
	}
	return s.SubtableLen()
}

// Offsets of the first parts of a region.
const (
	// ClientWord is the offset, on the server with the primary, of the word with the last client
	// number that was given out.
	ClientWord = SuperblockLen + 8
	// DoubtWord is the offset, on the server with the primary, of a word that counts how often
	// frees of objects may have been lost: a client died, or does not know whether its FETCH_ADD on
	// a bitmap was executed.
	DoubtWord = SuperblockLen + 16
	directory = SuperblockLen + 64
)

// EntryAt returns the offset, in a server's region, of the directory's entry for a subtable.
func (s *Shape) EntryAt(subtable int) uint64 { return directory + uint64(subtable)*8 }

func (s *Shape) SubtableAt(n int) uint64 {
	return align(s.EntryAt(s.Subtables)) + uint64(n)*s.stride()
}

// GroupLen is the length of a group of buckets in bytes.
const GroupLen = groupBuckets * BucketLen

// GroupAt returns the offset of a group of buckets in a subtable.
func (s *Shape) GroupAt(subtable, group int) uint64 {
	return s.SubtableAt(subtable) + uint64(group)*GroupLen
}

// Within returns the subtable of the slot at offset `at`, and the slot's offset in it (Hardened
// only).
func (s *Shape) Within(at uint64) (subtable int, off uint64) {
	at -= s.SubtableAt(0)
	return int(at / s.stride()), at % s.stride()
}

// CombinedAt returns the offset of the combined bucket of a main bucket in a subtable.
func (s *Shape) CombinedAt(subtable, main int) uint64 {
	return s.SubtableAt(subtable) + uint64(firstOf(main))*BucketLen
}

// SlotAt returns the offset of slot i in the combined bucket at offset combined.
func SlotAt(combined uint64, i int) uint64 { return combined + uint64(slotAt(i)) }

// BlockTable returns the offset of the block table of an area, which has a word for each block of
// the area: the BlockUse in the table of area 0, a copy of it (BlockUse.Copy) in the tables of the
// other areas. The tables of all areas follow one another.
func (s *Shape) BlockTable(area int) uint64 {
	end := s.SubtableAt(s.Subtables-1) + s.SubtableLen()
	return align(end) + uint64(area)*uint64(s.Blocks)*8
}

func (s *Shape) AreaAt(area int) uint64 {
	return align(s.BlockTable(s.Replicas)) + uint64(area)*s.AreaLen()
}

// AreaLen returns the length of an area in bytes.
func (s *Shape) AreaLen() uint64 { return uint64(s.Blocks) * uint64(s.BlockUnits) * Unit }

// Len returns how many bytes a region needs.
func (s *Shape) Len() uint64 { return s.LeaseAt(0) + 8*Leases }

// Replica returns the server of replica j of an object, and the replica's offset in that server's
// region. server and place say where the first replica is.
func (s *Shape) Replica(server int, place uint64, j int) (at int, off uint64) {
	return (server + j) % s.Servers, s.AreaAt(j) + place*Unit
}

// Holds reports whether r can name an object of this store: its server exists, and the object lies
// in one block.
func (s *Shape) Holds(r Ref) bool {
	return r.Server < s.Servers && r.Units > 0 && r.Place < uint64(s.Blocks)*uint64(s.BlockUnits) &&
		r.Place%uint64(s.BlockUnits)+uint64(r.Units) <= uint64(s.BlockUnits)
}

// align rounds n up to a multiple of Unit.
func align(n uint64) uint64 { return (n + Unit - 1) / Unit * Unit }
