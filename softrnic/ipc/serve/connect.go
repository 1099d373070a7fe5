package serve

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// disconnecter is a manager whose connections can be ended.
type disconnecter interface {
	Disconnect(qp verbs.QP, deadline clock.Time) error
	AwaitDisconnect(qp verbs.QP, deadline clock.Time) error
}

type (
	listenerObject struct{ l rdmacm.Listener }
	requestObject  struct{ r rdmacm.Request }
)

// deadline of a call that may take so long.
func (c *client) deadline(timeout time.Duration) clock.Time {
	if timeout < 0 {
		return clock.Never
	}
	return c.ctx.Runtime().Now().Add(timeout)
}

// connections is the manager, if there is one.
func (c *client) connections(op string) (Manager, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.manager == nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported, Detail: "this daemon makes no connections"}
	}
	return c.manager, nil
}

func (c *client) dial(a proto.Connect) (any, error) {
	m, err := c.connections("dial")
	if err != nil {
		return nil, err
	}
	o, err := c.queue("dial", a.QP, kindQP)
	if err != nil {
		return nil, err
	}
	private, err := m.Dial(o.qp, a.To, a.Service, a.Params, a.Private, c.deadline(a.Timeout))
	return proto.Data{Data: private}, err
}

func (c *client) listen(a proto.Service) (any, error) {
	m, err := c.connections("listen")
	if err != nil {
		return nil, err
	}
	if err := c.reserve("listen", kindListener, 0, 0); err != nil {
		return nil, err
	}
	l, err := m.Listen(a.Name)
	if err != nil {
		c.giveBack(kindListener, 0, 0)
		return nil, err
	}
	return proto.Handle{H: c.put(&listenerObject{l})}, nil
}

func (c *client) unlisten(a proto.Handle) (any, error) {
	o, err := get[*listenerObject](c, "close listener", a.H)
	if err != nil {
		return nil, err
	}
	c.drop(a.H)
	c.giveBack(kindListener, 0, 0)
	return nil, o.l.Close()
}

// closeListeners is the end of a client: its manager may be one of all.
func (c *client) closeListeners() error {
	c.mu.Lock()
	var listeners []rdmacm.Listener
	var requests []rdmacm.Request
	for _, o := range c.objects {
		switch o := o.(type) {
		case *listenerObject:
			listeners = append(listeners, o.l)
		case *requestObject:
			requests = append(requests, o.r)
		}
	}
	c.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, r := range requests {
		_ = r.Reject("the application has ended") // unless it was answered just now
	}
	return errors.Join(errs...)
}

// closeManager is closeListeners for an application that goes on.
func (c *client) closeManager(proto.None) (any, error) {
	m, err := c.connections("close manager")
	if err != nil {
		return nil, err
	}
	err = errors.Join(c.closeListeners(), m.Close()) // ends what waits
	next, nerr := c.s.cfg.Manager(c.ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if nerr != nil {
		c.manager, err = nil, errors.Join(err, nerr)
	} else {
		c.manager = next
	}
	for h, o := range c.objects {
		switch o.(type) {
		case *listenerObject:
			c.counts[kindListener]--
		case *requestObject:
			c.counts[kindRequest]--
		default:
			continue
		}
		delete(c.objects, h)
	}
	return nil, err
}

// closeContext destroys all objects, for an application that is about to go and wants to know when they are gone.
func (c *client) closeContext(proto.None) (any, error) {
	var err error
	if m, merr := c.connections("close"); merr == nil {
		err = errors.Join(c.closeListeners(), m.Close())
	}
	c.left = c.ctx.Close()
	c.s.closeShared(c)
	return nil, errors.Join(err, c.left)
}

func (c *client) nextRequest(a proto.Wait) (any, error) {
	o, err := get[*listenerObject](c, "accept", a.H)
	if err != nil {
		if _, merr := c.connections("accept"); merr != nil {
			return nil, merr
		}
		return nil, &verbs.OpError{Op: "accept", Err: verbs.ErrClosed, Detail: "no such listener"}
	}
	if err := c.reserve("accept", kindRequest, 0, 0); err != nil {
		return nil, err
	}
	r, err := o.l.Accept(c.deadline(a.Timeout))
	if err != nil {
		c.giveBack(kindRequest, 0, 0)
		return nil, err
	}
	in := proto.Incoming{Service: r.Service(), Peer: r.Peer(), Private: r.Private()}
	in.H = c.put(&requestObject{r})
	select {
	case <-c.gone: // closeListeners may have passed by
		_ = r.Reject("the application has ended") // unless that did it
	default:
	}
	return in, nil
}

// request takes a request that shall be answered.
func (c *client) request(op string, h uint32) (rdmacm.Request, error) {
	o, err := get[*requestObject](c, op, h)
	if err != nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrState, Detail: "the request was answered already"}
	}
	return o.r, nil
}

// answered forgets a request. It may be answered once.
func (c *client) answered(h uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.objects[h].(*requestObject); ok {
		delete(c.objects, h)
		c.counts[kindRequest]--
	}
}

func (c *client) accept(a proto.Connect) (any, error) {
	r, err := c.request("accept", a.H)
	if err != nil {
		return nil, err
	}
	o, err := c.queue("accept", a.QP, kindQP)
	if err != nil {
		return nil, err
	}
	err = r.Accept(o.qp, a.Params, a.Private, c.deadline(a.Timeout))
	if !errors.Is(err, verbs.ErrInvalid) { // then it was not answered
		c.answered(a.H)
	}
	return nil, err
}

func (c *client) reject(a proto.Reject) (any, error) {
	r, err := c.request("reject", a.H)
	if err != nil {
		return nil, err
	}
	c.answered(a.H)
	return nil, r.Reject(a.Reason)
}

// ending is common to what is about the end of a connection.
func (c *client) ending(op string, a proto.Wait, f func(d disconnecter, qp verbs.QP, deadline clock.Time) error) (any, error) {
	o, err := c.queue(op, a.H, kindQP)
	if err != nil {
		return nil, err
	}
	m, err := c.connections(op)
	if err != nil {
		return nil, err
	}
	d, ok := m.(disconnecter)
	if !ok {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported, Detail: "connections of this daemon's kind have no end of their own"}
	}
	return nil, f(d, o.qp, c.deadline(a.Timeout))
}

func (c *client) disconnect(a proto.Wait) (any, error) {
	return c.ending("disconnect", a, disconnecter.Disconnect)
}

func (c *client) disconnected(a proto.Wait) (any, error) {
	return c.ending("await disconnect", a, disconnecter.AwaitDisconnect)
}
