package lease

import (
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Config describes a Fencer.
type Config struct {
	// Context is the verbs context for the requests to memory servers. The caller closes it.
	Context verbs.Context
	Dialer  rdmacm.Dialer
	// Servers are the memory servers. Every fence goes to all of them.
	Servers []netip.Addr
	// Timeout is the time limit of one request. Pause is the time between two attempts.
	Timeout, Pause time.Duration
}

// Fencer holds the fences that are due. For each memory server a thread of its own sends them,
// because a server that does not answer must not delay the requests to others. A thread runs only
// while a fence is due at its server. Any thread may call the methods, and only Wait blocks.
type Fencer struct {
	cfg Config
	rt  verbs.Runtime

	// mu guards the fields below and the fences; it is not held during a request to a server
	mu sync.Mutex
	// due has the fences that each server has yet to execute, the oldest first; a thread works on
	// each list that is not empty
	due    [][]*Fence
	away   []bool // servers for which Over does not wait
	asking int    // how many threads are running
	closed bool
}

// Fence is a request to all memory servers to end the connections of an owner. The Fencer that made
// the Fence has the methods for it: Cancel and Over.
type Fence struct {
	owner uint32
	upTo  bool // true: the fence is for all owners with numbers up to owner
	open  int  // how many servers have not ended the connections yet
	// cancelled is true if the fence is withdrawn, because the owner has nothing in flight any
	// more.
	cancelled bool
}

// waitPause is the period at which Wait polls.
const waitPause = time.Millisecond

// NewFencer makes a Fencer without fences. The caller calls Close and then Wait before it closes
// the context.
func NewFencer(cfg Config) *Fencer {
	n := len(cfg.Servers)
	return &Fencer{cfg: cfg, rt: cfg.Context.Runtime(), due: make([][]*Fence, n), away: make([]bool, n)}
}

// Add begins a fence for one owner, who may connect again later.
func (f *Fencer) Add(owner uint32) *Fence { return f.add(&Fence{owner: owner}) }

// AddTo begins a fence for all owners with numbers up to `last`. None of them can connect again.
func (f *Fencer) AddTo(last uint32) *Fence { return f.add(&Fence{owner: last, upTo: true}) }

// add makes fence x due at each memory server. It starts a thread for each server that had no other
// fence due.
func (f *Fencer) add(x *Fence) *Fence {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.open = len(f.due)
	for i := range f.due {
		if f.due[i] = append(f.due[i], x); len(f.due[i]) == 1 && !f.closed {
			f.asking++
			f.rt.Go("fence", func() { f.run(i) })
		}
	}
	return x
}

// Cancel withdraws a fence. It returns false if a server has executed the fence or may be executing
// it. Then the fence goes on.
func (f *Fencer) Cancel(x *Fence) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	begun := x.open < len(f.due)
	for _, due := range f.due {
		begun = begun || len(due) > 0 && due[0] == x
	}
	x.cancelled = !begun
	return !begun
}

// Over reports whether a fence is done on all servers but those that Leave has named.
func (f *Fencer) Over(x *Fence) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, due := range f.due {
		if !f.away[i] && slices.Contains(due, x) {
			return false
		}
	}
	return true
}

// Leave names the servers for which Over does not wait: those with true in `away`, for instance
// because their data do not count. Fences are still sent to them.
func (f *Fencer) Leave(away []bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	copy(f.away, away)
}

// Idle reports whether server i has executed all fences.
func (f *Fencer) Idle(i int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.due[i]) == 0
}

// run is a thread: it sends the fences to memory server i until the server has executed all of
// them.
func (f *Fencer) run(i int) {
	for x := f.next(i, false); x != nil; {
		do := memservice.Disconnect
		if x.upTo {
			do = memservice.FenceTo
		}
		err := do(f.cfg.Context, f.cfg.Dialer, f.cfg.Servers[i], x.owner, f.rt.Now().Add(f.cfg.Timeout))
		switch {
		case err == nil:
		case errors.Is(err, verbs.ErrClosed):
			f.Close()
		default:
			f.rt.Sleep(f.cfg.Pause)
		}
		x = f.next(i, err == nil)
	}
}

// next returns the fence that server i is to execute next, or nil if there is none and the thread
// must end. done is true if the server has executed the previous fence.
func (f *Fencer) next(i int, done bool) *Fence {
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

// Close makes the threads end after their present requests. Fences that are due stay due.
func (f *Fencer) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
}

// Wait waits until all threads have ended.
func (f *Fencer) Wait() {
	for {
		f.mu.Lock()
		n := f.asking
		f.mu.Unlock()
		if n == 0 {
			return
		}
		f.rt.Sleep(waitPause)
	}
}
