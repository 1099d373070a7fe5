package verbsengine

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Context is an open device. It keeps a list of its objects for Close.
type Context struct {
	shell  Shell
	poller Poller // shell, if it implements Poller; else nil
	poster Poster // shell, if it implements Poster; else nil
	// The fields below are guarded by exclusive use of the engine; see Shell.Enter.
	closed bool
	pds    map[*pd]struct{}
	cqs    map[*cq]struct{}
	dms    map[*dm]struct{}
	xrcds  map[*xrcd]struct{}

	cm    ConnManager
	owner *engine.Owner // of the objects that are made; nil means unknown
}

var _ verbs.Context = (*Context)(nil)

// New opens the device that shell runs.
func New(shell Shell) *Context {
	poller, _ := shell.(Poller)
	poster, _ := shell.(Poster)
	c := &Context{shell: shell, poller: poller, poster: poster, pds: make(map[*pd]struct{}), cqs: make(map[*cq]struct{}), dms: make(map[*dm]struct{}), xrcds: make(map[*xrcd]struct{})}
	c.cm.ctx = c
	return c
}

func (c *Context) Runtime() verbs.Runtime { return c.shell }

func (c *Context) Device() verbs.DeviceAttr {
	_, e, _ := c.shell.Enter()
	defer c.shell.Leave()
	return e.Device()
}

func (c *Context) open(op string) error {
	if c.closed {
		return &verbs.OpError{Op: op, Err: verbs.ErrClosed, Detail: "the context was closed"}
	}
	return nil
}

func (c *Context) AllocPD() (verbs.PD, error) {
	_, e, _ := c.shell.Enter()
	defer c.shell.Leave()
	if err := c.open("alloc PD"); err != nil {
		return nil, err
	}
	p, err := e.AllocPD()
	if err != nil {
		return nil, err
	}
	p.SetOwner(c.owner)
	return listed(c.pds, c.newPD(p)), nil
}

func (c *Context) CreateCQ(depth int) (verbs.CQ, error) {
	const op = "create CQ"
	ring, err := c.room(op, depth)
	if err != nil {
		return nil, err
	}
	_, e, _ := c.shell.Enter()
	defer c.shell.Leave()
	if err := c.open(op); err != nil {
		return nil, err
	}
	q, err := e.AddCQ(ring)
	if err != nil {
		return nil, err
	}
	q.SetOwner(c.owner)
	handle := &cq{ctx: c, cq: q}
	handle.nonEmpty, handle.event = awaited{cq: q}, awaited{cq: q, event: true}
	return listed(c.cqs, handle), nil
}

// NextAsyncEvent waits for an asynchronous event. The NIC has one queue of events, so with several
// contexts each event goes to only one of them.
func (c *Context) NextAsyncEvent(deadline clock.Time) (verbs.AsyncEvent, error) {
	w := &asyncWait{ctx: c}
	if err := waitError("next async event", c.shell.Await(w, deadline)); err != nil {
		return verbs.AsyncEvent{}, err
	}
	if !w.got {
		return verbs.AsyncEvent{}, c.open("next async event")
	}
	return w.ev, nil
}

// asyncWait is the condition that an event was taken or the context was closed.
type asyncWait struct {
	ctx *Context
	ev  verbs.AsyncEvent
	got bool
}

// Patient says that the shell need not poll for events.
func (w *asyncWait) Patient() bool { return true }

// Ready takes an event if there is one.
func (w *asyncWait) Ready(e *engine.Engine) bool {
	if w.ctx.closed {
		return true
	}
	w.ev, w.got = e.Events.NextAsyncEvent()
	return w.got
}

// Close destroys all objects of c, queue pairs first. A second Close does nothing.
func (c *Context) Close() error {
	now, e, out := c.shell.Enter()
	defer c.shell.Leave()
	if c.closed {
		return nil
	}
	c.closed = true
	e.Events.Notify()
	c.cm.close(now, e, out)
	var errs []error
	qps, mrs := c.objects()
	for _, q := range qps {
		q.qp.DetachAll(out)
		errs = append(errs, verbs.Gone(q.qp.Destroy()))
	}
	for _, m := range mrs {
		m.mr.UnbindWindows() // windows that another context has bound to regions of the same domain
		errs = append(errs, verbs.Gone(m.mr.Dereg()))
	}
	errs = append(errs, c.closeMemory()...)
	for p := range c.pds {
		for a := range p.ahs {
			errs = append(errs, verbs.Gone(a.ah.Destroy()))
		}
		for s := range p.srqs {
			errs = append(errs, verbs.Gone(s.srq.Destroy()))
		}
		if !p.borrowed {
			errs = append(errs, verbs.Gone(p.pd.Dealloc()))
		}
	}
	for x := range c.xrcds {
		if !x.borrowed {
			errs = append(errs, verbs.Gone(x.x.Dealloc()))
		}
	}
	for q := range c.cqs {
		errs = append(errs, verbs.Gone(q.cq.Destroy()))
	}
	clear(c.xrcds)
	clear(c.pds)
	clear(c.cqs)
	return errors.Join(errs...)
}

// objects returns the queue pairs and regions of the context, in an order that is the same in every
// run. The order matters, because the NIC reuses keys and numbers in the order in which they were
// freed.
func (c *Context) objects() (qps []*qp, mrs []*mr) {
	for p := range c.pds {
		qps = slices.AppendSeq(qps, maps.Keys(p.qps))
		mrs = slices.AppendSeq(mrs, maps.Keys(p.mrs))
	}
	for x := range c.xrcds {
		qps = slices.AppendSeq(qps, maps.Keys(x.targets.qps))
	}
	slices.SortFunc(qps, func(a, b *qp) int { return cmp.Compare(a.QPN(), b.QPN()) })
	slices.SortFunc(mrs, func(a, b *mr) int { return cmp.Compare(a.addr, b.addr) })
	return qps, mrs
}

// waitError adds the operation to the error of a wait.
func waitError(op string, err error) error {
	if err == nil {
		return nil
	}
	return &verbs.OpError{Op: op, Err: err}
}

// posted reports work requests to the shell if it is a Poster.
func (c *Context) posted(n int) {
	if c.poster != nil {
		c.poster.Posted(n)
	}
}

// step is the step of the engine in which a call is executed: its time, and where its frames go.
type step struct {
	now clock.Time
	out *packetio.Batch
}

// step calls f with exclusive use of the engine. Posts and polls call Enter and Leave themselves.
func (c *Context) step(f func(s step) error) error {
	now, _, out := c.shell.Enter()
	defer c.shell.Leave()
	return f(step{now, out})
}

// ask calls f, which returns a property of an object, with exclusive use of the engine.
func ask[T any](c *Context, f func() (T, error)) (T, error) {
	c.shell.Enter()
	defer c.shell.Leave()
	return f()
}

// listed adds the handle of a new object to list.
func listed[H comparable](list map[H]struct{}, handle H) H {
	list[handle] = struct{}{}
	return handle
}

// end destroys an object by f, and removes its handle from list if the object has ended.
func end[H comparable](c *Context, list map[H]struct{}, handle H, f func() error) error {
	return c.step(func(step) error {
		err := f()
		if verbs.Gone(err) == nil {
			delete(list, handle)
		}
		return err
	})
}

// SetOwner says to which process the objects belong that the context makes from now on.
func (c *Context) SetOwner(o *engine.Owner) {
	c.shell.Enter()
	defer c.shell.Leave()
	c.owner = o
}
