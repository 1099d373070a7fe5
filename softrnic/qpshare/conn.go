package qpshare

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// conn is one shared connection, or the attempt to make one.
type conn struct {
	hub     *Hub
	place   place
	real    verbs.QP // nil while the connection is being made
	private []byte   // private data of the service's answer
	// refs is the number of members' queue pairs that are attached. pending is the number of work
	// requests in flight.
	refs, pending int
	// dead: the connection has failed or is ending, and no further queue pair may attach. gone: the
	// connection was destroyed.
	dead, gone bool
	waiters    []*Member // members that wait until the connection is made
}

// attach attaches the queue pair of a member (one thread) to the connection that the members share
// to the service `at`, and makes this connection if there is none. One member at a time connects;
// if it fails, the next one tries. attach returns the private data of the service's answer.
func (h *Hub) attach(q *qp, at place, p rdmacm.Params, deadline clock.Time) ([]byte, error) {
	m := q.member
	for {
		h.mu.Lock()
		c := h.conns[at]
		switch {
		case h.closed || h.err != nil:
			h.mu.Unlock()
			return nil, &verbs.OpError{Op: "dial", Err: verbs.ErrClosed, Detail: "the shared queues were destroyed"}
		case c == nil:
			c = &conn{hub: h, place: at}
			h.conns[at] = c
			h.mu.Unlock()
			if err := c.connect(p, deadline); err != nil {
				return nil, err
			}
			continue
		case c.real != nil:
			q.conn = c
			c.refs++
			h.mu.Unlock()
			return slices.Clone(c.private), nil
		}
		c.waiters = append(c.waiters, m)
		h.mu.Unlock()
		err := m.gate.Wait(deadline)
		h.mu.Lock()
		c.waiters = slices.DeleteFunc(c.waiters, func(o *Member) bool { return o == m })
		h.mu.Unlock()
		if err != nil {
			return nil, err
		}
	}
}

// connect makes the connection and wakes the members that wait for it.
func (c *conn) connect(p rdmacm.Params, deadline clock.Time) error {
	h := c.hub
	real, err := h.pd.CreateQP(verbs.QPInit{Type: verbs.RC, SendCQ: h.cq, RecvCQ: h.cq, MaxSendWR: h.cfg.Members * h.cfg.Depth, MaxRecvWR: 1})
	var private []byte
	if err == nil {
		if private, err = h.cfg.Manager.Dial(real, c.place.to, c.place.service, p, nil, deadline); err != nil {
			err = errors.Join(err, real.Destroy())
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.forget(c)
	} else {
		c.real, c.private = real, private
		h.all = append(h.all, c)
	}
	for _, m := range c.waiters {
		m.gate.Open()
	}
	c.waiters = nil
	return err
}

// forget prevents further queue pairs from attaching to a connection. The caller holds mu.
func (h *Hub) forget(c *conn) {
	c.dead = true
	if h.conns[c.place] == c {
		delete(h.conns, c.place)
	}
}

// over reports whether the connection can be destroyed: it has neither users nor work requests in
// flight. The caller holds mu.
func (c *conn) over() bool { return c.refs == 0 && c.pending == 0 && c.real != nil && !c.gone }

// detach removes a queue pair from the connection. When the last one is removed, the connection
// ends.
func (c *conn) detach() error {
	h := c.hub
	h.mu.Lock()
	c.refs--
	last := c.refs == 0
	if last {
		h.forget(c)
	}
	over := c.over()
	h.mu.Unlock()
	switch {
	case over:
		return c.destroy()
	case last:
		return c.real.ToError() // ToError flushes the work requests in flight; when all have completed, Hub.poll destroys the queue pair
	}
	return nil
}

// end ends the connection for all members.
func (c *conn) end() error {
	h := c.hub
	h.mu.Lock()
	h.forget(c)
	h.mu.Unlock()
	return c.real.ToError()
}

// destroy destroys the queue pair, once.
func (c *conn) destroy() error {
	h := c.hub
	h.mu.Lock()
	if c.gone || c.real == nil {
		h.mu.Unlock()
		return nil
	}
	c.gone = true
	h.forget(c)
	h.all = slices.DeleteFunc(h.all, func(o *conn) bool { return o == c })
	h.mu.Unlock()
	return c.real.Destroy()
}
