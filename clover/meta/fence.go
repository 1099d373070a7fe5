package meta

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/store/lease"
)

// Numbers of clients. Each incarnation of the metadata server takes an incarnation number that no
// earlier one had. Its clients get the owner numbers from incarnation<<16 + 1 on. The last number
// of that range is the metadata server's own, under which it connects to the memory servers. When
// the range is used up, the metadata server takes a new incarnation number. No number is used
// twice, because the memory servers refuse numbers that were fenced.
const (
	incarnationBits = 16
	ownNumber       = 1<<incarnationBits - 1
	// maxIncarnation keeps all owner numbers below 1<<31. Sherman, which may use the same memory
	// servers at other times, keeps its owner numbers below this limit, too. firstIncarnations is
	// an upper limit for the first incarnation number, which is random.
	maxIncarnation    = 1<<15 - 1
	firstIncarnations = 1 << 14
	// oldClient is how far a client's number may be behind the newest number before the client must
	// call hello again. When the fenceBatch oldest numbers are no longer in use, the metadata
	// server makes the memory servers forget them (see forgetNumbers).
	oldClient  = 1 << 14
	fenceBatch = 1 << 10
)

var (
	errNumbers = errors.New("the numbers of clients are used up: restart the memory servers")
	errDeposed = errors.New("another metadata server has taken over the memory servers")
	errBetween = errors.New("another metadata server has served the store while this one started: start it again")
)

// takeOver takes an incarnation number, and makes the memory servers end the connections of all
// earlier incarnations and of their clients. From then on only this server and its clients change
// the memory.
//
// Another metadata server may take over at the same time. Each memory server gives a number to only
// one of them, and after that gives out no smaller number. So two metadata servers that have a
// number from all memory servers have different numbers, and the memory servers refuse all
// connections of the one with the smaller number.
//
// A memory service that is restarted forgets the number that it gave, and may give it to another
// metadata server. If a memory service was restarted before this metadata server has connected
// under its number, takeOver takes the next number.
func (s *memories) takeOver() error {
	for restarted := true; restarted; {
		before := s.memory.boots()
		s.owner++
		if err := s.reserve(); err != nil {
			return err
		}
		if err := s.identify(); err != nil {
			return err
		}
		restarted = !slices.Equal(before, s.memory.boots())
	}
	return nil
}

// boots returns the incarnations of the memory services to which the last connections were made.
func (s servers) boots() (list []uint64) {
	for i := range s {
		list = append(list, s[i].ways[0].boot)
	}
	return list
}

// reserve reserves the same owner number at all memory servers. It tries s.owner first. If a server
// already knows that number or a greater one, reserve tries greater numbers.
func (s *memories) reserve() error {
	for i := 0; i < len(s.cfg.Servers); {
		if s.owner > maxIncarnation {
			return errNumbers
		}
		first := s.owner << incarnationBits // no client has this number
		before, err := memservice.Reserve(s.cfg.Context, s.cfg.Manager, s.cfg.Servers[i], first, s.rt.Now().Add(memoryTimeout))
		if err != nil {
			return err
		}
		// If server i knew a greater number, the servers before it may not know that number, so
		// reserve asks all servers again, with a number above it.
		if i++; before >= first {
			s.owner, i = before>>incarnationBits+1, 0
		}
	}
	return nil
}

// identify connects to the memory servers under the metadata server's own number. It also replaces
// a connection to a server whose copies do not count (out), so that a later metadata server is able
// to end all connections.
func (s *memories) identify() error {
	s.self = s.owner<<incarnationBits | ownNumber
	for i := range s.memory {
		out := s.memory[i].out
		if out && !s.connected(i) {
			continue
		}
		if err := s.renewWays(i, s.rt.Now().Add(memoryTimeout)); err != nil && !out {
			return err
		}
	}
	return nil
}

// renewWays ends all connections to a server and makes new ones. After that the server executes no
// request that was sent on a former connection.
func (s *memories) renewWays(i int, deadline clock.Time) error {
	if err := s.breakWays(i); err != nil {
		return err
	}
	return s.openWays(i, deadline)
}

// number returns the number for a new client. When the range of numbers is used up, it takes a new
// incarnation number.
func (s *Server) number() (uint32, error) {
	if s.pool.nextID+1 >= s.pool.endID {
		if s.mem.owner == maxIncarnation {
			return 0, errNumbers
		}
		s.mem.owner++
		if err := s.nextNumbers(); err != nil {
			// Another metadata server may have the same new number. So this server ends its
			// connections under the new number and goes back to its present number. If the other
			// server has taken over, it has fenced the present number, and the next try fails.
			s.mem.owner, s.mem.self = s.mem.owner-1, s.pool.endID
			for i := range s.mem.memory {
				err = errors.Join(err, s.mem.breakWays(i))
			}
			return 0, err
		}
	}
	s.pool.nextID++
	return s.pool.nextID, nil
}

// nextNumbers is called when s.owner has become a new incarnation number. It makes this server give
// the next clients owner numbers of that incarnation.
func (s *Server) nextNumbers() error {
	if err := s.mem.identify(); err != nil {
		return err
	}
	if err := s.succeeds(); err != nil {
		return err
	}
	for i := range s.mem.memory {
		if s.mem.memory[i].out {
			continue
		}
		err := s.mem.verify(i)
		// an empty memory has no superblock; watchMemory formats it
		if errors.Is(err, errLost) {
			s.mem.memory[i].blank = true
		}
		if err == nil {
			err = s.mem.writeOwner(i)
		}
		if err != nil {
			return err
		}
	}
	s.pool.nextID, s.pool.endID = s.mem.owner<<incarnationBits, s.mem.self
	return nil
}

// succeeds returns errDeposed if another metadata server has taken over while this one took its
// next incarnation number and connected under it. Both may have got the same number, because no
// connection had it yet. But a metadata server that takes over makes the memory servers fence
// endID, the number under which this metadata server is connected in its present incarnation. So
// succeeds asks the memory servers whether they have fenced endID. A metadata server that takes
// over later gets a greater number.
func (s *Server) succeeds() error {
	for i, addr := range s.mem.cfg.Servers {
		if s.mem.memory[i].out {
			continue
		}
		h, err := memservice.WhoIs(s.mem.cfg.Context, s.mem.cfg.Manager, addr, s.pool.endID, s.mem.rt.Now().Add(memoryTimeout))
		if err != nil {
			return err
		}
		if h.Fenced {
			s.mem.deposed = true
			return errDeposed
		}
	}
	return nil
}

// ownerOf returns the owner number for a client that says hello. Usually that is the owner number
// that the client already has, so that its connections stay. In these cases it is the new client
// number id: the number that the client has is too old, fenced or of another incarnation, or
// r.Quiet is false, so that the server will fence that number.
func (s *Server) ownerOf(id uint32, r *rpc.Request) uint32 {
	if had := r.Owner; r.Quiet && had > s.pool.fencedTo && had <= s.pool.nextID && id-had <= oldClient/2 {
		return had
	}
	return id
}

// forgetNumbers makes the memory servers forget the numbers of clients that have gone, because the
// tables of owners on the memory servers have limited room. A live client whose number is too old
// must say hello again.
func (s *Server) forgetNumbers() {
	oldest := s.pool.nextID + 1
	for _, cl := range s.pool.clients {
		if oldest = min(oldest, cl.owner); s.pool.nextID-cl.owner > oldClient {
			cl.stale = true
		}
	}
	if oldest-1 >= s.pool.fencedTo+fenceBatch {
		s.pool.fenceTo(oldest - 1)
	}
}

// fenceTo fences all owners with numbers up to `last`.
func (s *pool) fenceTo(last uint32) *lease.Fence {
	s.fencedTo = max(s.fencedTo, last)
	return s.fences.AddTo(last)
}
