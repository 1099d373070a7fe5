package meta

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client that has sent nothing for lease and grace need not be dead: its host may have stopped,
// with a request ready to be sent in its NIC. Therefore the memory servers end the client's
// connections before any of its nodes is given to another client. For each memory server a thread
// of its own requests that, because a server that does not answer must not delay the requests of
// other clients.

// fencer holds the fences that are due. A fence is done when every memory server has ended the
// owner's connections. A memory server that restarts meanwhile has no such connections any more.
type fencer struct {
	ctx     verbs.Context
	dialer  rdmacm.Dialer
	servers []netip.Addr

	// guards the fields below and the fences; not held during a request to a server
	mu sync.Mutex
	// for each server, the oldest first; a thread works on each list that is not empty
	due    [][]*fence
	away   []bool // servers on which no fence is waited for, because their copies do not count
	asking int    // how many threads are running
	closed bool
}

// fence asks the memory servers to end the connections of an owner. With upTo, it applies to all
// owners with numbers up to this one, and they cannot connect again.
type fence struct {
	owner uint32
	upTo  bool
	open  int // how many servers have not ended the connections yet
	// cancelled: the fence is withdrawn, because the owner has nothing in flight any more. The
	// owner may connect again.
	cancelled bool
}

func newFencer(cfg *Config) fencer {
	return fencer{ctx: cfg.Context, dialer: cfg.Manager, servers: cfg.Servers, due: make([][]*fence, len(cfg.Servers)), away: make([]bool, len(cfg.Servers))}
}

// add adds a fence. It starts a thread for each memory server that has no other fence due.
func (f *fencer) add(rt verbs.Runtime, owner uint32, upTo bool) *fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	x := &fence{owner: owner, upTo: upTo, open: len(f.servers)}
	for i := range f.due {
		if f.due[i] = append(f.due[i], x); len(f.due[i]) == 1 && !f.closed {
			f.asking++
			rt.Go("fence", func() { f.run(rt, i) })
		}
	}
	return x
}

// cancel withdraws a fence. It returns false if a server has executed the fence or may be executing
// it. Then the fence goes on.
func (f *fencer) cancel(x *fence) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := x.open < len(f.servers)
	for _, due := range f.due {
		begun = begun || len(due) > 0 && due[0] == x
	}
	x.cancelled = !begun
	return !begun
}

// isOver reports whether a fence is done.
func (f *fencer) isOver(x *fence) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, due := range f.due {
		if !f.away[i] && slices.Contains(due, x) {
			return false
		}
	}
	return true
}

// leave sets on which servers no fence is waited for: those with true in away.
func (f *fencer) leave(away []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.away, away)
}

// idle reports whether a server has executed all fences.
func (f *fencer) idle(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.due[i]) == 0
}

// run is a thread: it sends the fences to memory server i until the server has executed all of
// them.
func (f *fencer) run(rt verbs.Runtime, i int) {
	for x := f.next(i, false); x != nil; {
		do := memservice.Disconnect
		if x.upTo {
			do = memservice.FenceTo
		}
		err := do(f.ctx, f.dialer, f.servers[i], x.owner, rt.Now().Add(memoryTimeout))
		switch {
		case err == nil:
		case errors.Is(err, verbs.ErrClosed):
			f.close()
		default:
			rt.Sleep(downPause)
		}
		x = f.next(i, err == nil)
	}
}

// next returns the fence that server i is to execute next, or nil if there is none and the thread
// must end. done: the server has executed the previous fence.
func (f *fencer) next(i int, done bool) *fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	for done || len(f.due[i]) > 0 && f.due[i][0].cancelled {
		f.due[i][0].open--
		f.due[i], done = f.due[i][1:], false
	}
	if f.closed || len(f.due[i]) == 0 {
		f.asking--
		return nil
	}
	return f.due[i][0]
}

// close makes the threads end after their present requests.
func (f *fencer) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// wait waits until all threads have ended.
func (f *fencer) wait(rt verbs.Runtime) {
	for {
		f.mu.Lock()
		n := f.asking
		f.mu.Unlock()
		if n == 0 {
			return
		}
		rt.Sleep(acceptPause)
	}
}

// Numbers of clients. Each incarnation of the metadata server takes an incarnation number that no
// earlier one had. Its clients get the owner numbers from incarnation<<16 + 1 on. The last number
// of that range is the metadata server's own, under which it connects to the memory servers. When
// the range is used up, the metadata server takes a new incarnation number. No number is used
// twice: the memory servers refuse numbers that were fenced.
const (
	incarnationBits = 16
	ownNumber       = 1<<incarnationBits - 1
	// maxIncarnation keeps all numbers below 1<<31. Sherman's clients do the same; they may use the
	// same memory servers at other times. firstIncarnations is an upper limit for the first
	// incarnation number, which is random.
	maxIncarnation    = 1<<15 - 1
	firstIncarnations = 1 << 14
	// oldClient is how far a client's number may be behind the newest number before the client must
	// call hello again. When fenceBatch numbers are no longer in use, the metadata server lets the
	// memory servers forget them.
	oldClient  = 1 << 14
	fenceBatch = 1 << 10
)

var (
	errNumbers = errors.New("the numbers of clients are used up: restart the memory servers")
	errDeposed = errors.New("another metadata server has taken over the memory servers")
)

// takeOver takes an incarnation number, and makes the memory servers end the connections of all
// earlier incarnations and of their clients. From then on only this server and its clients change
// the memory.
func (s *memories) takeOver() error {
	s.owner++
	for more := true; more; {
		more = false
		for i, addr := range s.cfg.Servers {
			upTo := s.owner<<incarnationBits - 1
			last, err := memservice.Retire(s.cfg.Context, s.cfg.Manager, addr, upTo, s.rt.Now().Add(memoryTimeout))
			if err != nil {
				return err
			}
			// The servers asked before server i know nothing of these owners, so takeOver asks them
			// again.
			if last > upTo {
				s.owner, more = last>>incarnationBits+1, i > 0
			}
		}
	}
	return s.identify()
}

// identify connects to the memory servers under the metadata server's own number.
func (s *memories) identify() error {
	if s.owner > maxIncarnation {
		return errNumbers
	}
	s.self = s.owner<<incarnationBits | ownNumber
	for i := range s.memory {
		if s.memory[i].out {
			continue
		}
		if err := s.renewWays(i, s.rt.Now().Add(memoryTimeout)); err != nil {
			return err
		}
	}
	return nil
}

// renewWays ends all connections to a server and makes new ones. After that the server executes no
// request that was sent on a former connection.
func (s *memories) renewWays(i int, deadline clock.Time) error {
	for _, w := range s.memory[i].ways {
		if err := s.fab.Break(w.peer); err != nil {
			return err
		}
	}
	return s.openWays(i, deadline)
}

// number returns the number for a new client. When the range of numbers is used up, it takes a new
// incarnation number.
func (s *Server) number() (uint32, error) {
	if s.nextID+1 >= s.endID {
		s.owner++
		if err := s.identify(); err != nil {
			return 0, err
		}
		for i := range s.memory {
			if s.memory[i].out {
				continue
			}
			err := s.verify(i)
			// an empty memory has no superblock; watchMemory formats it
			if errors.Is(err, errLost) {
				s.memory[i].blank = true
			}
			if err == nil {
				err = s.writeOwner(i)
			}
			if err != nil {
				return 0, err
			}
		}
		s.nextID, s.endID = s.owner<<incarnationBits, s.self
	}
	s.nextID++
	return s.nextID, nil
}

// ownerOf returns the owner number for a client that says hello. Usually it is the client's
// previous number, so that its connections stay. If that number is too old, fenced or of another
// incarnation, or if the client is not quiet and its number will be fenced, it is the new client
// number id.
func (s *Server) ownerOf(id uint32, r *rpc.Request) uint32 {
	if had := r.Owner; r.Quiet && had > s.fencedTo && had <= s.nextID && id-had <= oldClient/2 {
		return had
	}
	return id
}

// forgetNumbers makes the memory servers forget the numbers of clients that have gone, because
// their tables of owners have limited room. A live client whose number is too old must say hello
// again.
func (s *Server) forgetNumbers() {
	oldest := s.nextID + 1
	for _, cl := range s.clients {
		if oldest = min(oldest, cl.owner); s.nextID-cl.owner > oldClient {
			cl.stale = true
		}
	}
	if oldest-1 >= s.fencedTo+fenceBatch {
		s.fenceTo(oldest - 1)
	}
}

// fenceTo fences all owners with numbers up to last.
func (s *Server) fenceTo(last uint32) *fence {
	s.fencedTo = max(s.fencedTo, last)
	return s.fences.add(s.rt, last, true)
}
