package ipc

import (
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Manager makes connections through the daemon: by the NIC's connection manager or by an
// out-of-band exchange over TCP (rdmacm.OOB), as the rack file says. Queue pairs must belong to the
// Manager's context. A context should have one Manager at a time, because Close ends the listeners
// and requests of all Managers of a context.
type Manager struct {
	ctx    *Context
	closed atomic.Bool
}

var _ rdmacm.Manager = (*Manager)(nil)

func (c *Context) Manager() *Manager { return &Manager{ctx: c} }

// timeout returns the time until the deadline as requests encode it: -1 means no limit.
func (c *Context) timeout(deadline clock.Time) time.Duration {
	if deadline == clock.Never {
		return -1
	}
	return max(0, deadline.Sub(c.runtime.Now()))
}

// open returns the handle of q, or 0 if q is nil. It fails if the manager was closed or q belongs
// to another context.
func (m *Manager) open(op string, q verbs.QP) (uint32, error) {
	if m.closed.Load() {
		return 0, verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	}
	if q == nil {
		return 0, nil
	}
	o, ok := q.(*qp)
	if !ok || o == nil || o.pd.ctx != m.ctx {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "the queue pair was not made by this context")
	}
	return o.h, nil
}

func (m *Manager) Dial(qp verbs.QP, addr netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	h, err := m.open("dial", qp)
	if err != nil {
		return nil, err
	}
	var d proto.Data
	err = m.ctx.session.call(proto.OpDial, proto.Connect{QP: h, To: addr, Service: service, Params: p, Private: private, Timeout: m.ctx.timeout(deadline)}, &d)
	return d.Data, err
}

func (m *Manager) Listen(service string) (rdmacm.Listener, error) {
	if _, err := m.open("listen", nil); err != nil {
		return nil, err
	}
	var h proto.Handle
	if err := m.ctx.session.call(proto.OpListen, proto.Service{Name: service}, &h); err != nil {
		return nil, err
	}
	return &listener{m: m, h: h.H}, nil
}

// Disconnect ends the connection of qp; see rdmacm.CM.
func (m *Manager) Disconnect(qp verbs.QP, deadline clock.Time) error {
	return m.ending("disconnect", proto.OpDisconnect, qp, deadline)
}

// AwaitDisconnect waits until either side has ended the connection of qp.
func (m *Manager) AwaitDisconnect(qp verbs.QP, deadline clock.Time) error {
	return m.ending("await disconnect", proto.OpDisconnected, qp, deadline)
}

func (m *Manager) ending(op string, what proto.Op, qp verbs.QP, deadline clock.Time) error {
	h, err := m.open(op, qp)
	if err != nil {
		return err
	}
	return m.ctx.session.call(what, proto.Wait{H: h, Timeout: m.ctx.timeout(deadline)}, nil)
}

// Close ends listening, refuses requests that have not been answered, and ends every wait.
// Connections stay. A second Close does nothing.
func (m *Manager) Close() error {
	if m.closed.Swap(true) {
		return nil
	}
	return verbs.Gone(m.ctx.session.call(proto.OpCloseManager, proto.None{}, nil))
}

// listener receives the requests for one service.
type listener struct {
	m      *Manager
	h      uint32
	closed atomic.Bool
}

func (l *listener) Accept(deadline clock.Time) (rdmacm.Request, error) {
	if l.closed.Load() {
		return nil, verbs.Errorf("accept", verbs.ErrClosed, "the listener was closed")
	}
	var in proto.Incoming
	if err := l.m.ctx.session.call(proto.OpNextRequest, proto.Wait{H: l.h, Timeout: l.m.ctx.timeout(deadline)}, &in); err != nil {
		return nil, err
	}
	return &request{m: l.m, in: in}, nil
}

func (l *listener) Close() error {
	if l.closed.Swap(true) || l.m.closed.Load() {
		return nil
	}
	return l.m.ctx.session.call(proto.OpUnlisten, proto.Handle{H: l.h}, nil)
}

// request is a connection request of a peer that waits for an answer.
type request struct {
	m  *Manager
	in proto.Incoming
}

func (r *request) Service() string  { return r.in.Service }
func (r *request) Peer() netip.Addr { return r.in.Peer }
func (r *request) Private() []byte  { return r.in.Private }

func (r *request) Accept(qp verbs.QP, p rdmacm.Params, private []byte, deadline clock.Time) error {
	h, err := r.m.open("accept", qp)
	if err != nil {
		return err
	}
	return r.m.ctx.session.call(proto.OpAccept, proto.Connect{H: r.in.H, QP: h, Params: p, Private: private, Timeout: r.m.ctx.timeout(deadline)}, nil)
}

func (r *request) Reject(reason string) error { return r.Answer(reason, nil) }

func (r *request) Answer(reason string, private []byte) error {
	return r.m.ctx.session.call(proto.OpReject, proto.Reject{H: r.in.H, Reason: reason, Private: private}, nil)
}
