package layout

import (
	"encoding/binary"
	"errors"

	"github.com/rdmalab/rdmalab/store/superblock"
)

// SuperblockLen is the length of a superblock in bytes.
const SuperblockLen = 64

// ErrSuperblock means that the memory does not begin with a superblock: it was never formatted, or
// was lost.
var ErrSuperblock = errors.New("no superblock: the memory is not formatted, or was lost")

// Superblock is at the start of each region. It shows a client that the memory belongs to the store
// and has the shape that the client knows. Its parts, with offset, name and length:
//
//	 0 magic 8           24 depth 4        40 blocks 4
//	 8 generation 8      28 subtables 4    44 units of a block 4
//	16 format, servers,  32 groups 4       48 zero 16
//	   replicas of objects and of the index, server 1 each, zero 3; 36 zero 4
type Superblock struct {
	Shape Shape
	// Generation identifies the store: a number, never 0, that is the same on all its servers. The
	// memory of a restarted server has no generation until a master fills it.
	Generation uint64
	Server     int
}

// Put writes the superblock to b, which has SuperblockLen bytes.
func (s *Superblock) Put(b []byte) {
	clear(b[:SuperblockLen])
	le := binary.LittleEndian
	le.PutUint64(b, superblock.FUSEE)
	le.PutUint64(b[8:], s.Generation)
	v := &s.Shape
	b[16], b[17], b[18], b[19], b[20] = byte(v.Format), byte(v.Servers), byte(v.Replicas), byte(v.IndexReplicas), byte(s.Server)
	for i, n := range []int{v.Depth, v.Subtables, v.Groups} {
		le.PutUint32(b[24+4*i:], uint32(n))
	}
	le.PutUint32(b[40:], uint32(v.Blocks))
	le.PutUint32(b[44:], uint32(v.BlockUnits))
}

func (s *Superblock) Parse(b []byte) error {
	le := binary.LittleEndian
	if len(b) < SuperblockLen || le.Uint64(b) != superblock.FUSEE {
		return ErrSuperblock
	}
	*s = Superblock{
		Generation: le.Uint64(b[8:]), Server: int(b[20]),
		Shape: Shape{
			Format: Format(b[16]), Servers: int(b[17]), Replicas: int(b[18]), IndexReplicas: int(b[19]),
			Depth: int(le.Uint32(b[24:])), Subtables: int(le.Uint32(b[28:])), Groups: int(le.Uint32(b[32:])),
			Blocks: int(le.Uint32(b[40:])), BlockUnits: int(le.Uint32(b[44:])),
		},
	}
	if s.Generation == 0 || s.Shape.Validate() != nil || s.Server >= s.Shape.Servers {
		return ErrSuperblock
	}
	return nil
}
