package ipc

import (
	"strings"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// After `eager` empty polls of a completion queue, a thread yields the processor after each
	// further empty poll, because the daemon may need it. An empty poll takes a tenth of a
	// microsecond. A thread that waits until the daemon has taken entries from a ring reads the
	// head of the ring eagerLooks times before it yields: that is only one word.
	eager      = 4
	eagerLooks = 64
	// Once in pollsPerReport empty polls, a thread tells the daemon that it polls
	// (ring.Control.Polls).
	pollsPerReport = 16
)

// poster is the program's side of a ring of work requests.
type poster struct {
	ctx  *Context
	bell uint32

	mu     sync.Mutex // guards the fields below
	q      *ring.Queue
	tail   uint64 // position behind the newest entry
	closed bool
}

// begin locks the ring and checks that it exists. end unlocks it.
func (p *poster) begin(op string) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return verbs.Errorf(op, verbs.ErrClosed, "the object was destroyed")
	}
	return nil
}

func (p *poster) end() { p.mu.Unlock() }

// state returns the error of operation op on the ring's queue: ErrClosed if this program has
// destroyed the queue, as in package device, and otherwise err, the error of the call to the
// daemon.
func (p *poster) state(op string, err error) error {
	if closed := p.begin(op); closed != nil {
		return closed
	}
	p.end()
	return err
}

// destroyQueue destroys the queue m, whose handle is h, by the request `what` to the daemon. The
// caller holds the locks of m. closed is true if m was destroyed before.
func (c *Context) destroyQueue(op string, what proto.Op, h uint32, closed bool, m mapping) error {
	if closed {
		return verbs.Errorf(op, verbs.ErrClosed, "the object was destroyed")
	}
	err := c.session.call(what, proto.Handle{H: h}, nil)
	if verbs.Gone(err) == nil {
		m.release()
		c.maps.forget(m)
	}
	return err
}

// post publishes n entries that were written behind the tail. It waits until the daemon has taken
// or refused them. The caller has called begin.
func (p *poster) post(op string, n int) error {
	first := p.tail
	p.tail += uint64(n)
	p.q.Tail.Store(p.tail)
	p.ctx.ring(p.bell)
	if !p.ctx.consumed(p.q, p.tail, p.bell) {
		return p.ctx.session.over(op)
	}
	if at := p.q.Refused.Load(); at > first {
		return refusal(p.q, op, int(at-1-first))
	}
	return nil
}

// refusal returns the error for an entry that the daemon refused.
func refusal(q *ring.Queue, op string, index int) error {
	code, text := q.Refusal()
	if name, detail, ok := strings.Cut(text, "\x00"); ok {
		op, text = name, detail
	}
	return &verbs.OpError{Op: op, Err: proto.Sentinel(code), Detail: text, Index: index}
}

// again is how long a thread sleeps before it checks and rings the bell once more. If a wake-up
// were lost, the program would lose this time instead of waiting for ever. No wake-up is lost as
// long as the processor executes no load before an earlier store; see ring.Shared.
var again = 100 * time.Millisecond // tests change it

// unserved is called by a waiting thread if the daemon has not served the bell for the time
// `again`. It rings the bell once more. *emptyPolls counts the calls of unserved in one wait. If
// the daemon does not serve the bell within the patience, unserved abandons the daemon.
func (c *Context) unserved(bell uint32, emptyPolls *int) {
	if *emptyPolls++; time.Duration(*emptyPolls)*again >= c.session.patience {
		c.session.giveUp("the daemon has not looked at what was posted for %v", c.session.patience)
	}
	c.ring(bell)
}

// consumed waits until the daemon has taken all entries of queue q before position `tail`. bell is
// the bell of the queue. consumed returns false if the daemon is gone.
func (c *Context) consumed(q *ring.Queue, tail uint64, bell uint32) bool {
	for range eagerLooks {
		if q.Head.Load() >= tail {
			return true
		}
	}
	pace := c.pacer()
	var end clock.Time
	polling, emptyPolls := c.spin > 0 && pace.Begin(), 0
	for q.Head.Load() < tail {
		if c.session.gone.Load() {
			return false
		}
		if polling {
			now := c.runtime.Now()
			if end == 0 {
				end = now.Add(2 * c.spin)
			}
			polling = !pace.Pause() && now < end
			continue
		}
		wake := c.session.wakes.next()
		q.Wait.Store(1)
		if q.Head.Load() < tail && !c.sleep(wake, c.runtime.Now().Add(again)) {
			c.unserved(bell, &emptyPolls)
		}
	}
	if polling {
		pace.Found()
	}
	return true
}

// word loads or stores a word of a region. The daemon executes the access, between two accesses of
// the NIC.
func (c *Context) word(op string, a ring.Access) (uint64, error) {
	c.wordsMu.Lock()
	defer c.wordsMu.Unlock()
	q := c.words
	at := q.Tail.Load()
	ring.PutAccess(q.Slot(at), a)
	q.Tail.Store(at + 1)
	c.ring(0)
	if !c.consumed(q, at+1, 0) {
		return 0, c.session.over(op)
	}
	if q.Refused.Load() == at+1 {
		return 0, refusal(q, op, 0)
	}
	return q.Value.Load(), nil
}

// postRecv posts receives to a ring, in as many steps as the size of the ring requires.
func (p *poster) postRecv(op string, wr []verbs.RecvWR) error {
	if err := p.begin(op); err != nil {
		return err
	}
	defer p.end()
	for done := 0; done < len(wr); {
		n := min(len(wr)-done, int(p.q.Cap()))
		for i := range n {
			ring.PutRecv(p.q.Slot(p.tail+uint64(i)), &wr[done+i])
		}
		if err := p.post(op, n); err != nil {
			return shifted(err, done)
		}
		done += n
	}
	return nil
}

// shifted adds `by` to the index of the refused work request in err. It is used when err is about a
// part of a posted list, which begins at index `by`.
func shifted(err error, by int) error {
	if op, ok := err.(*verbs.OpError); ok { //nolint:errorlint // made here, not wrapped
		op.Index += by
	}
	return err
}
