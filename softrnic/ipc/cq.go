package ipc

import (
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

type cq struct {
	ctx         *Context
	h           uint32
	bell        uint32
	id          uint32
	incarnation uint64
	bytes       []byte

	mu         sync.Mutex // guards the fields below; not held during a wait
	q          *ring.Queue
	head       uint64     // position of the next completion to take from the ring
	kept       []verbs.WC // completions that purge took out of the ring but did not remove: they are not of the purged queue pair
	emptyPolls int        // consecutive polls that found no completion
	closed     bool
}

// CreateCQ makes a completion queue. depth is the depth of the NIC's queue; completions in the
// shared ring do not count against it.
func (c *Context) CreateCQ(depth int) (verbs.CQ, error) {
	var r proto.Queue
	bytes, err := c.callMemory(proto.OpCreateCQ, proto.CreateCQ{Depth: depth}, &r, &r.Length, undo{proto.OpDestroyCQ, &r.H})
	if err != nil {
		return nil, err
	}
	q := &cq{
		ctx: c, h: r.H, bell: r.Bell, id: r.Number, incarnation: r.Incarnation, bytes: bytes,
		q: ring.NewQueue(bytes, r.Slots, ring.WCSlot),
	}
	c.maps.remember(q)
	return q, nil
}

// unmap is called when the context is closed.
func (c *cq) unmap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.release()
}

// release unmaps the ring. The caller holds mu.
func (c *cq) release() {
	c.closed = true
	_ = ring.Unmap(c.bytes) // cannot fail: it is mapped
	c.bytes = nil
}

func (c *cq) ID() uint32 { return c.id }

// look returns how many completions can be taken without a wait. It is the first step of a poll.
// The caller holds mu.
func (c *cq) look(op string) (int, error) {
	if !c.closed && c.ctx.session.gone.Load() {
		return 0, c.ctx.session.over(op)
	}
	if c.closed || !c.ctx.alive(c.incarnation) {
		return 0, verbs.Errorf(op, verbs.ErrClosed, "the object was destroyed, or its NIC went down")
	}
	return len(c.kept) + int(c.q.Tail.Load()-c.head), nil
}

func (c *cq) Poll(wc []verbs.WC) (int, error) {
	c.mu.Lock()
	n, err := c.look("use CQ")
	if err == nil && n > 0 && len(wc) > 0 {
		n = c.take(wc)
		c.emptyPolls = 0
		c.mu.Unlock()
		return n, nil
	}
	c.emptyPolls++
	emptyPolls := c.emptyPolls
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	c.ctx.missed(emptyPolls)
	return 0, nil
}

// missed is called after a poll that found no completion; emptyPolls is the number of such polls in
// a row. Once in pollsPerReport empty polls, missed tells the daemon that the program polls. After
// `eager` empty polls, each further one yields the processor to other processes.
func (c *Context) missed(emptyPolls int) {
	if emptyPolls%pollsPerReport == 1 {
		c.ctl.Polls.Add(1)
	}
	if emptyPolls > eager {
		pollpace.Pause(emptyPolls, c.inside)
	}
}

// take moves completions to wc. The caller holds mu, and there is at least one completion.
func (c *cq) take(wc []verbs.WC) int {
	n := copy(wc, c.kept)
	c.kept = c.kept[:copy(c.kept, c.kept[n:])]
	if n == len(wc) {
		return n
	}
	for tail := c.q.Tail.Load(); n < len(wc) && c.head < tail; n++ {
		wc[n] = ring.WC(c.q.Slot(c.head))
		c.head++
	}
	c.taken()
	return n
}

// taken tells the daemon which completions were taken. If the daemon has completions for which the
// ring had no room, taken also rings the bell, so that the daemon adds them.
func (c *cq) taken() {
	c.q.Head.Store(c.head)
	if c.q.Backlog.Load() != 0 {
		c.ctx.ring(c.bell)
	}
}

// purge removes the completions of a queue pair that was reset or destroyed.
func (c *cq) purge(n wire.QPN) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.kept = slices.DeleteFunc(c.kept, func(wc verbs.WC) bool { return wc.QPN == n })
	for tail := c.q.Tail.Load(); c.head < tail; c.head++ {
		if wc := ring.WC(c.q.Slot(c.head)); wc.QPN != n {
			c.kept = append(c.kept, wc)
		}
	}
	c.taken()
}

func (c *cq) Arm(solicited bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	const op = "use CQ"
	if _, err := c.look(op); err != nil {
		return err
	}
	how := uint64(1)
	if solicited {
		how = 2
	}
	c.q.Arm.Store(how)
	c.ctx.ring(c.bell)
	if !c.ctx.armed(c.q, c.bell) {
		return c.ctx.session.over(op)
	}
	return nil
}

// armed waits until the daemon has armed the queue. It returns false if the daemon is gone.
func (c *Context) armed(q *ring.Queue, bell uint32) bool {
	emptyPolls := 0
	for look := 1; q.Arm.Load() != 0; look++ {
		if c.session.gone.Load() {
			return false
		}
		if look < 4*eager && c.spin > 0 {
			if look > eager {
				pollpace.Pause(look, c.inside)
			}
			continue
		}
		wake := c.session.wakes.next()
		q.Wait.Store(1)
		if q.Arm.Load() != 0 && !c.sleep(wake, c.runtime.Now().Add(again)) {
			c.unserved(bell, &emptyPolls)
		}
	}
	return true
}

func (c *cq) WaitEvent(deadline clock.Time) error {
	return c.wait("wait for CQ event", deadline, func() (bool, error) {
		if _, err := c.look("use CQ"); err != nil {
			return false, err
		}
		return c.q.Fired.Load() != 0 && c.q.Fired.Swap(0) != 0, nil
	})
}

func (c *cq) Wait(deadline clock.Time) error {
	return c.wait("wait for CQ", deadline, func() (bool, error) {
		n, err := c.look("use CQ")
		return n > 0, err
	})
}

// wait calls ready until it returns true or an error, or the deadline has passed: at first in a
// polling loop, later with a sleep between two calls. mu is held during a call of ready.
func (c *cq) wait(op string, deadline clock.Time, ready func() (bool, error)) error {
	pace := c.ctx.pacer()
	rt := c.ctx.runtime
	var end clock.Time
	polling := c.ctx.spin > 0 && pace.Begin()
	for look := 1; ; look++ {
		var wake <-chan struct{}
		c.mu.Lock()
		if !polling {
			wake = c.ctx.session.wakes.next()
			if !c.closed {
				c.q.Wait.Store(1)
			}
		}
		done, err := ready()
		c.mu.Unlock()
		switch {
		case err != nil || done:
			if polling && end != 0 {
				pace.Found()
			}
			return err
		case look%pollsPerReport == 1:
			c.ctx.ctl.Polls.Add(1)
		}
		if look <= eager && polling {
			continue
		}
		now := rt.Now()
		if now >= deadline {
			return &verbs.OpError{Op: op, Err: verbs.ErrTimeout}
		}
		if end == 0 {
			end = now.Add(c.ctx.spin)
		}
		if polling {
			polling = !pace.Pause() && now < end
			continue
		}
		c.ctx.doze(wake, deadline)
	}
}

// Resize changes the depth of the NIC's queue. Completions that are already in the shared ring do
// not count against it.
func (c *cq) Resize(depth int) error {
	return c.change("resize CQ", proto.OpResizeCQ, proto.ResizeCQ{H: c.h, Depth: depth})
}

func (c *cq) Moderate(count int, period time.Duration) error {
	return c.change("moderate CQ", proto.OpModerateCQ, proto.ModerateCQ{H: c.h, Count: count, Period: period})
}

// change makes a call about the queue, if the queue still exists.
func (c *cq) change(op string, what proto.Op, args any) error {
	c.mu.Lock()
	_, err := c.look(op)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.ctx.session.call(what, args, nil)
}

func (c *cq) Destroy() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.ctx.destroyQueue("destroy CQ", proto.OpDestroyCQ, c.h, c.closed, c)
	if c.closed {
		c.ctx.session.wakes.all()
	}
	return err
}
