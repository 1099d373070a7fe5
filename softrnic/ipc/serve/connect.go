package serve

import (
	"errors"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// disconnecter is implemented by a Manager that can end a connection without destroying its queue
// pair.
type disconnecter interface {
	Disconnect(qp verbs.QP, deadline clock.Time) error
	AwaitDisconnect(qp verbs.QP, deadline clock.Time) error
}

// connections executes the calls of one client that make and end connections.
type connections struct {
	c *client

	mu      sync.Mutex // guards the fields below
	manager Manager    // nil means that the daemon makes no connections
}

// deadline returns the deadline of a call with that timeout in real time; negative means none.
func (x *connections) deadline(timeout time.Duration) clock.Time {
	return after(x.c.ctx.Runtime().Now(), timeout, x.c.s.cfg.Slow)
}

// after returns when a timeout in real time ends by a clock that is slow by a factor (Config.Slow) and
// shows now. A negative timeout has no end.
func after(now clock.Time, timeout time.Duration, slow int) clock.Time {
	if timeout < 0 {
		return clock.Never
	}
	return now.Add(timeout / time.Duration(max(1, slow)))
}

// get fails with ErrNotSupported if the daemon makes no connections.
func (x *connections) get(op string) (Manager, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.manager == nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported, Detail: "this daemon makes no connections"}
	}
	return x.manager, nil
}

func (x *connections) dial(a proto.Connect) (any, error) {
	m, err := x.get("dial")
	if err != nil {
		return nil, err
	}
	o, err := x.c.objects.queue("dial", a.QP, kindQP)
	if err != nil {
		return nil, err
	}
	private, err := m.Dial(o.qp, a.To, a.Service, a.Params, a.Private, x.deadline(a.Timeout))
	return proto.Data{Data: private}, err
}

func (x *connections) listen(a proto.Service) (any, error) {
	m, err := x.get("listen")
	if err != nil {
		return nil, err
	}
	l, err := made(&x.c.objects, "listen", kindListener, 0, func() (rdmacm.Listener, error) { return m.Listen(a.Name) })
	if err != nil {
		return nil, err
	}
	return proto.Handle{H: x.c.objects.put(l)}, nil
}

func (x *connections) unlisten(a proto.Handle) (any, error) {
	l, err := get[rdmacm.Listener](&x.c.objects, "close listener", a.H)
	if err != nil {
		return nil, err
	}
	x.c.objects.drop(a.H)
	x.c.objects.giveBack(kindListener, 0, 0)
	return nil, l.Close()
}

// closeListeners closes the client's listeners and rejects the connection requests that the client
// has not answered. It does not close the manager.
func (x *connections) closeListeners() error {
	t := &x.c.objects
	t.mu.Lock()
	var listeners []rdmacm.Listener
	var requests []rdmacm.Request
	for _, o := range t.byHandle {
		switch o := o.(type) {
		case rdmacm.Listener:
			listeners = append(listeners, o)
		case rdmacm.Request:
			requests = append(requests, o)
		}
	}
	t.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.Close())
	}
	for _, r := range requests {
		_ = r.Reject("the application has ended") // fails if the request was answered just now
	}
	return errors.Join(errs...)
}

// closeManager ends all listeners and requests of an application and closes its manager. The
// application goes on with a new manager.
func (x *connections) closeManager(proto.None) (any, error) {
	m, err := x.get("close manager")
	if err != nil {
		return nil, err
	}
	err = errors.Join(x.closeListeners(), m.Close()) // Close ends the calls that wait
	next, nerr := x.c.s.cfg.Manager(x.c.ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	if nerr != nil {
		x.manager, err = nil, errors.Join(err, nerr)
	} else {
		x.manager = next
	}
	x.c.objects.dropConnections()
	return nil, err
}

func (x *connections) nextRequest(a proto.Wait) (any, error) {
	l, err := get[rdmacm.Listener](&x.c.objects, "accept", a.H)
	if err != nil {
		if _, merr := x.get("accept"); merr != nil {
			return nil, merr
		}
		return nil, &verbs.OpError{Op: "accept", Err: verbs.ErrClosed, Detail: "no such listener"}
	}
	r, err := made(&x.c.objects, "accept", kindRequest, 0, func() (rdmacm.Request, error) { return l.Accept(x.deadline(a.Timeout)) })
	if err != nil {
		return nil, err
	}
	in := proto.Incoming{Service: r.Service(), Peer: r.Peer(), Private: r.Private()}
	in.H = x.c.objects.put(r)
	select {
	case <-x.c.gone: // the client is being detached: closeListeners may have run before this request got its handle
		_ = r.Reject("the application has ended") // fails if closeListeners has rejected it
	default:
	}
	return in, nil
}

// request returns the peer's connection request with handle h, or ErrState if it was answered.
func (x *connections) request(op string, h uint32) (rdmacm.Request, error) {
	r, err := get[rdmacm.Request](&x.c.objects, op, h)
	if err != nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrState, Detail: "the request was answered already"}
	}
	return r, nil
}

// answered removes the handle h of a connection request. It is called when the application answers
// the request, because a request can be answered only once.
func (x *connections) answered(h uint32) {
	t := &x.c.objects
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.byHandle[h].(rdmacm.Request); ok {
		delete(t.byHandle, h)
		t.counts[kindRequest]--
	}
}

func (x *connections) accept(a proto.Connect) (any, error) {
	r, err := x.request("accept", a.H)
	if err != nil {
		return nil, err
	}
	o, err := x.c.objects.queue("accept", a.QP, kindQP)
	if err != nil {
		return nil, err
	}
	err = r.Accept(o.qp, a.Params, a.Private, x.deadline(a.Timeout))
	if !errors.Is(err, rdmacm.ErrUnanswered) {
		x.answered(a.H)
	}
	return nil, err
}

func (x *connections) reject(a proto.Reject) (any, error) {
	r, err := x.request("reject", a.H)
	if err != nil {
		return nil, err
	}
	if err = r.Answer(a.Reason, a.Private); !errors.Is(err, rdmacm.ErrUnanswered) {
		x.answered(a.H)
	}
	return nil, err
}

// ending calls f, which ends a connection or waits for its end.
func (x *connections) ending(op string, a proto.Wait, f func(d disconnecter, qp verbs.QP, deadline clock.Time) error) (any, error) {
	o, err := x.c.objects.queue(op, a.H, kindQP)
	if err != nil {
		return nil, err
	}
	m, err := x.get(op)
	if err != nil {
		return nil, err
	}
	d, ok := m.(disconnecter)
	if !ok {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrNotSupported, Detail: "this daemon's connections cannot be ended apart from their queue pairs"}
	}
	return nil, f(d, o.qp, x.deadline(a.Timeout))
}

func (x *connections) disconnect(a proto.Wait) (any, error) {
	return x.ending("disconnect", a, disconnecter.Disconnect)
}

func (x *connections) disconnected(a proto.Wait) (any, error) {
	return x.ending("await disconnect", a, disconnecter.AwaitDisconnect)
}
