package fusee

import (
	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// copied is a copy, on another server, of a block's word in the block table. The client is changing
// it from was to now by a CAS; word is the offset in the buffer of the value that the CAS finds.
//
// The other servers with replicas of a block's objects have such copies. They are all that remains
// of the word when the block's server loses its memory (see Master.fill). A client raises the
// copies before an object gets a version that they do not have. So no slot ever has the same value
// twice, whatever memory is lost.
type copied struct {
	server   int
	at       uint64
	was, now layout.BlockUse
	word     int
}

// copies are the copies of the block word that the client is changing.
type copies struct {
	mem  *memory
	list []copied
}

// write adds CASes of the copies of a block's word to the batch. was is the value that the
// copies have as far as the client knows, now is the new one. After the batch was executed,
// settle checks the values that the CASes have found.
func (s *copies) write(shape *layout.Shape, id blockID, was, now layout.BlockUse) {
	s.list = s.list[:0]
	for j := 1; j < shape.Replicas; j++ {
		if server, _ := shape.Replica(id.server, 0, j); s.mem.has(server) {
			at := shape.BlockTable(j) + 8*uint64(id.block)
			s.list = append(s.list, copied{server, at, was, now, s.mem.swap(server, at, uint64(was), uint64(now))})
		}
	}
}

// settle executes the batch, if it was not executed yet. Then it repeats those CASes of
// write that have found another value than expected. It ends when all copies have the length of
// the word `now`, and its version or a greater one.
func (s *copies) settle(now layout.BlockUse, deadline clock.Time) error {
	for {
		if err := s.mem.rest(deadline); err != nil {
			return err
		}
		rest := s.list[:0]
		for _, c := range s.list {
			v, err := s.mem.fab.Word(c.word)
			if err != nil {
				return err
			}
			found := layout.BlockUse(v)
			if found == c.was || found.Covers(now.Units(), now.Version()) {
				continue
			}
			c.was, c.now = found, layout.UseLeft(now.Units(), max(now.Version(), found.Version()), 0).Copy()
			rest = append(rest, c)
		}
		if s.list = rest; len(rest) == 0 {
			return nil
		}
		for i := range rest {
			c := &rest[i]
			c.word = s.mem.swap(c.server, c.at, uint64(c.was), uint64(c.now))
		}
	}
}
