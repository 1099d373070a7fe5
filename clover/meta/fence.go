package meta

import (
	"errors"
	"net/netip"
	"sync"

	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A client that has shown no sign of life for lease and grace may not be dead: its host, NIC
// included, may have stopped with a request ready to be sent. The memory servers end its
// connections before any of its nodes is given to another client. One thread for each memory server
// requests that, because a server that does not answer must not delay the requests of other
// clients.

// fencer holds the fences that are due. A fence is done when every memory server has ended the
// owner's connections. A server that has restarted meanwhile has no such connections any more.
type fencer struct {
	ctx     verbs.Context
	dialer  rdmacm.Dialer
	servers []netip.Addr

	mu     sync.Mutex // guards the fields below and the fences; not held while a server is asked
	due    [][]*fence // by server, the oldest first; a thread works for a server while it has fences
	asking int        // how many threads send fences
	closed bool
}

// fence is a request to the memory servers to end the connections of an owner. If upTo is true, it
// concerns all owners with numbers up to this one, and they cannot make new connections.
type fence struct {
	owner uint32
	upTo  bool
	open  int // servers that have not ended the connections yet
	// cancelled: the fence is withdrawn, because the owner has nothing in flight any more. It may
	// make new connections.
	cancelled bool
}

func newFencer(cfg *Config) fencer {
	return fencer{ctx: cfg.Context, dialer: cfg.Manager, servers: cfg.Servers, due: make([][]*fence, len(cfg.Servers))}
}

// add adds a fence, and starts the threads that send it to the memory servers.
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
// it; then the fence goes on.
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
	return x.open == 0
}

// run sends the fences to one memory server until it has executed all of them.
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

// next returns the fence that a server is to execute next; nil: there is none, and the thread ends.
// done says that the server has executed the previous one.
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

// close ends the threads after their present requests.
func (f *fencer) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// wait returns when the threads have ended.
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
// earlier one had. Its clients get the owner numbers from incarnation<<16 on; the last of these is
// the metadata server's own, under which it connects to the memory servers. When they are used up,
// it takes a new incarnation number. Numbers are never used twice: the memory servers refuse those
// that were fenced.
const (
	incarnationBits = 16
	ownNumber       = 1<<incarnationBits - 1
	// maxIncarnation keeps all numbers below 1<<31, as Sherman's clients keep theirs, which may use
	// the same memory servers at other times. firstIncarnations bounds the first one, which is
	// random.
	maxIncarnation    = 1<<15 - 1
	firstIncarnations = 1 << 14
	// oldClient is how far a client's number may be behind the newest one before the client must
	// call hello again. When fenceBatch numbers are out of use, the metadata server lets the memory
	// servers forget them.
	oldClient  = 1 << 14
	fenceBatch = 1 << 10
)

var (
	errNumbers = errors.New("the numbers of clients are used up: restart the memory servers")
	errDeposed = errors.New("another metadata server has taken over the memory servers")
)

// takeOver ends the connections of all earlier incarnations and of their clients, and takes an
// incarnation number. From here on, only this server and its clients change the memory.
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
			if last > upTo { // servers that were asked before this one know nothing of these owners
				s.owner, more = last>>incarnationBits+1, i > 0
			}
		}
	}
	return s.identify()
}

// identify connects to the memory servers under the server's own number.
func (s *memories) identify() error {
	if s.owner > maxIncarnation {
		return errNumbers
	}
	s.self = s.owner<<incarnationBits | ownNumber
	for i := range s.memory {
		for _, w := range s.memory[i].ways {
			if err := s.fab.Break(w.peer); err != nil {
				return err
			}
		}
		if err := s.openWays(i, s.rt.Now().Add(memoryTimeout)); err != nil {
			return err
		}
	}
	return nil
}

// number gives the next client its number.
func (s *Server) number() (uint32, error) {
	if s.nextID+1 >= s.endID {
		s.owner++
		if err := s.identify(); err != nil {
			return 0, err
		}
		for i := range s.memory {
			err := s.verify(i)
			if errors.Is(err, errLost) { // an empty memory has no superblock; watchMemory formats it
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

// ownerOf returns the owner number for a client that says hello. It is the client's previous
// number, so that its connections stay; or the new client number id, if the previous one is too
// old, fenced, or of another incarnation, or will be fenced because the client is not quiet.
func (s *Server) ownerOf(id uint32, r *rpc.Request) uint32 {
	if had := r.Owner; r.Quiet && had > s.fencedTo && had <= s.nextID && id-had <= oldClient/2 {
		return had
	}
	return id
}

// forgetNumbers lets the memory servers forget the numbers of clients that have gone, because their
// tables of owners are bounded. A live client with an old number must take a new one.
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

// fenceTo fences all owners up to a number.
func (s *Server) fenceTo(last uint32) *fence {
	s.fencedTo = max(s.fencedTo, last)
	return s.fences.add(s.rt, last, true)
}
