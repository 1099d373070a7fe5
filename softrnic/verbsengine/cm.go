package verbsengine

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// ConnManager is the NIC's connection manager for the threads of one application. The queue pairs
// that it connects may belong to any context of the same NIC.
type ConnManager struct {
	ctx       *Context
	listeners []*engine.CMListener // guarded by exclusive use of the engine
}

func (c *Context) ConnManager() *ConnManager { return &c.cm }

// Step calls f with exclusive use of the NIC; f must not wait. If the context was closed or the NIC
// is down, Step fails with ErrClosed and does not call f.
func (m *ConnManager) Step(op string, f func(now clock.Time, g *engine.GSI, out *packetio.Batch) error) error {
	now, e, out := m.ctx.shell.Enter()
	defer m.ctx.shell.Leave()
	if err := m.ctx.open(op); err != nil {
		return err
	}
	g, err := e.GSI()
	if err != nil {
		return err
	}
	return f(now, g, out)
}

// Await waits until ready returns true, at most until the deadline. It fails if the context is
// closed meanwhile. ready is called with exclusive use of the NIC; it must also return true if the
// object that it checks was destroyed.
func (m *ConnManager) Await(op string, ready func() bool, deadline clock.Time) error {
	err := waitError(op, m.ctx.shell.Await(cmCondition{m.ctx, ready, deadline == clock.Never}, deadline))
	if err != nil {
		return err
	}
	return m.ctx.step(func(step) error { return m.ctx.open(op) })
}

// cmCondition is true when ready returns true or the context was closed.
type cmCondition struct {
	ctx     *Context
	ready   func() bool
	patient bool // the thread waits without a deadline, like a thread that waits for a listener's next request
}

func (c cmCondition) Ready(*engine.Engine) bool { return c.ctx.closed || c.ready() }

func (c cmCondition) Patient() bool { return c.patient }

// Listen accepts requests for a service until Unlisten, or until the context is closed.
func (m *ConnManager) Listen(s mad.ServiceID, backlog int) (*engine.CMListener, error) {
	return m.listen("listen", (*engine.GSI).Listen, s, backlog)
}

// ListenDatagrams accepts SIDR requests for a datagram service, until Unlisten or until the context
// is closed.
func (m *ConnManager) ListenDatagrams(s mad.ServiceID, backlog int) (*engine.CMListener, error) {
	return m.listen("listen for datagrams", (*engine.GSI).ListenDatagrams, s, backlog)
}

func (m *ConnManager) listen(
	op string, open func(*engine.GSI, mad.ServiceID, netip.Prefix, int) (*engine.CMListener, error), s mad.ServiceID, backlog int,
) (l *engine.CMListener, err error) {
	err = m.Step(op, func(_ clock.Time, g *engine.GSI, _ *packetio.Batch) error {
		if l, err = open(g, s, netip.Prefix{}, backlog); err == nil {
			m.listeners = append(m.listeners, l)
		}
		return err
	})
	return l, err
}

// Unlisten ends a listener and rejects the requests that wait in it.
func (m *ConnManager) Unlisten(l *engine.CMListener) error {
	return m.Step("close listener", func(now clock.Time, g *engine.GSI, out *packetio.Batch) error {
		g.Unlisten(now, l, out)
		m.listeners = slices.DeleteFunc(m.listeners, func(o *engine.CMListener) bool { return o == l })
		return nil
	})
}

// close ends the listeners. The context calls it when it is closed.
func (m *ConnManager) close(now clock.Time, e *engine.Engine, out *packetio.Batch) {
	if len(m.listeners) == 0 {
		return
	}
	if g, err := e.GSI(); err == nil { // if the NIC is down, the listeners have already ended
		for _, l := range m.listeners {
			g.Unlisten(now, l, out)
		}
	}
	m.listeners = nil
}
