package verbsengine

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	ring "github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// cq is the application's handle of a completion queue.
type cq struct {
	ctx *Context
	cq  *engine.CQ
	// Conditions of Wait and WaitEvent; they are fields so that waiting allocates nothing.
	nonEmpty, event awaited
}

var _ verbs.CountedCQ = (*cq)(nil)

// Poll takes completions. If there are none, it calls the shell's Progress once and tries again.
func (c *cq) Poll(wc []verbs.WC) (int, error) {
	c.ctx.shell.Enter()
	defer c.ctx.shell.Leave()
	q, err := c.cq.Queue()
	if err != nil {
		return 0, err
	}
	if c.ctx.poller != nil {
		c.ctx.poller.Polled()
	}
	if q.Len() == 0 && len(wc) > 0 {
		c.ctx.shell.Progress()
		if q, err = c.cq.Queue(); err != nil { // the NIC may have gone down in Progress
			return 0, err
		}
	}
	return q.Poll(wc), nil
}

func (c *cq) Arm(solicited bool) error { return c.with(func(q *ring.CQ) { q.Arm(solicited) }) }

// with calls f, if the queue still exists.
func (c *cq) with(f func(q *ring.CQ)) error {
	c.ctx.shell.Enter()
	defer c.ctx.shell.Leave()
	q, err := c.cq.Queue()
	if err == nil {
		f(q)
	}
	return err
}

func (c *cq) WaitEvent(deadline clock.Time) error {
	return c.wait("wait for CQ event", &c.event, deadline)
}

func (c *cq) Wait(deadline clock.Time) error {
	return c.wait("wait for CQ", &c.nonEmpty, deadline)
}

func (c *cq) wait(op string, cond Condition, deadline clock.Time) error {
	if err := waitError(op, c.ctx.shell.Await(cond, deadline)); err != nil {
		return err
	}
	return c.with(func(*ring.CQ) {}) // the wait also ends if the queue was destroyed
}

// room makes a completion queue for the NIC, which takes memory as completions come. It is called
// before Enter, so that the NIC is not held meanwhile.
func (c *Context) room(op string, depth int) (*ring.CQ, error) {
	if most := c.Device().MaxCQE; depth > most {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrLimit, Detail: fmt.Sprintf("depth %d; at most %d", depth, most)}
	}
	return ring.New(depth)
}

func (c *cq) Resize(depth int) error {
	to, err := c.ctx.room("resize CQ", depth)
	if err != nil {
		return err
	}
	return c.ctx.step(func(step) error { return c.cq.Resize(to) })
}

func (c *cq) Moderate(count int, period time.Duration) error {
	return c.ctx.step(func(step) error { return c.cq.Moderate(count, period) })
}

// Number returns the number of the queue. It may be called after Destroy.
func (c *cq) Number() uint32 { return c.cq.ID() }

func (c *cq) IgnoreOverrun() error { return c.with((*ring.CQ).IgnoreOverrun) }

func (c *cq) Destroy() error { return end(c.ctx, c.ctx.cqs, c, c.cq.Destroy) }

// awaited is a condition of a completion queue: that Poll would return completions, or that the event
// which Arm has requested was raised. It is also met when the queue was destroyed.
type awaited struct {
	cq    *engine.CQ
	event bool
}

// Ready reports whether the condition is met; it consumes the event.
func (a *awaited) Ready(*engine.Engine) bool {
	q, err := a.cq.Queue()
	if err != nil {
		return true
	}
	if a.event {
		return q.Fired()
	}
	return q.Len() > 0
}
