package simrack

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

const (
	// setupDelay is how long one message between dialer and server takes while a connection is made
	// over TCP, in virtual time.
	setupDelay = 50 * time.Microsecond
	// maxBacklog bounds how many requests to connect may wait for Accept of one listener.
	maxBacklog = 128
	// unreachablePatience is how long a dialer without a deadline tries to reach a peer that does
	// not answer.
	unreachablePatience = 30 * time.Second
)

// manager is a rdmacm.Manager in virtual time, for one application. It simulates connections that
// are made over TCP: messages are lost only if they go to crashed hosts.
type manager struct {
	host *Host
	ctx  verbs.Context
	rand *rand.Rand
}

var (
	_ rdmacm.Manager  = (*manager)(nil)
	_ rdmacm.Listener = (*listener)(nil)
	_ rdmacm.Request  = (*request)(nil)
)

// Manager returns the connection manager for queue pairs of ctx, which must be a context of this
// host. With Options.Datagrams, it is that of the NIC (ConnManager); otherwise it simulates
// connections that are made over TCP.
func (h *Host) Manager(ctx verbs.Context) rdmacm.Manager {
	if h.rack.opt.Datagrams {
		return h.ConnManager(ctx)
	}
	return &manager{host: h, ctx: ctx, rand: ctx.Runtime().Rand()}
}

// ConnManager returns a manager for queue pairs of ctx, a context of this host. It uses the NIC's
// connection manager, whose messages are datagrams.
func (h *Host) ConnManager(ctx verbs.Context) *rdmacm.CM {
	m, err := rdmacm.NewCM(rdmacm.CMConfig{Context: ctx, FirstPSN: h.rack.opt.FirstPSN, Backlog: maxBacklog})
	if err != nil {
		panic(fmt.Sprintf("simrack: a context of %s has no connection manager: %v", h.Spec.Name, err))
	}
	h.managers = append(h.managers, m)
	return m
}

// request is a connection that is being made. Dialer and server share the value.
type request struct {
	dialer   *Host
	proc     *simnet.Proc // the thread that dials
	service  string
	private  []byte
	endpoint rdmacm.Endpoint
	peer     netip.Addr
	manager  *manager // the manager of the server's listener

	// The fields answered, reject, reply and remote hold the server's answer. ready and failed hold
	// the dialer's confirmation.
	answered, given bool // given: the dialer has given up
	reject          string
	reply           []byte // private data of the acceptance or rejection
	remote          rdmacm.Endpoint
	acceptor        *simnet.Proc
	ready           bool
	failed          string
}

func (m *manager) Dial(qp verbs.QP, addr netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	local, err := m.endpoint(qp, addr, p, private)
	if err != nil {
		return nil, err
	}
	net := m.host.net()
	req := &request{
		dialer: m.host, proc: net.Current(), service: service, private: slices.Clone(private), endpoint: local,
		peer: local.GID.Addr(),
	}
	if deadline == clock.Never {
		deadline = net.Now().Add(unreachablePatience)
	}
	net.At(net.Now().Add(setupDelay), func() { m.host.rack.deliver(req, addr) })
	for !req.answered {
		if net.Now() >= deadline {
			req.given = true
			req.tell("it does not wait any more") // on a rack, the end of the TCP connection tells the acceptor
			return nil, fmt.Errorf("dial %s: service %q: %w", addr, service, verbs.ErrTimeout)
		}
		req.proc.Park(deadline, fmt.Sprintf("the answer of service %q at %v", service, addr))
	}
	if req.reject != "" {
		return nil, &rdmacm.RejectError{Reason: req.reject, Private: req.reply}
	}
	if err := rdmacm.BringUp(m.ctx, qp, p, local, req.remote); err != nil {
		req.tell(err.Error())
		return nil, err
	}
	req.tell("")
	return req.reply, nil
}

// tell tells the acceptor, after setupDelay, that the dialer has succeeded ("") or why it has
// failed.
func (r *request) tell(failed string) {
	net := r.dialer.net()
	net.At(net.Now().Add(setupDelay), func() {
		r.ready, r.failed = true, failed
		if r.acceptor != nil {
			r.acceptor.Wake()
		}
	})
}

// endpoint checks the private data, and returns the parameters of the queue pair qp for the peer.
func (m *manager) endpoint(qp verbs.QP, peer netip.Addr, p rdmacm.Params, private []byte) (rdmacm.Endpoint, error) {
	if len(private) > rdmacm.MaxPrivate {
		return rdmacm.Endpoint{}, &verbs.OpError{
			Op: "connect", Err: verbs.ErrInvalid,
			Detail: fmt.Sprintf("%d bytes of private data, at most %d", len(private), rdmacm.MaxPrivate),
		}
	}
	e, err := rdmacm.LocalEndpoint(m.ctx, qp, peer, p)
	if f := m.host.rack.opt.FirstPSN; f != nil && err == nil {
		e.PSN = f(m.rand)
	}
	return e, err
}

// deliver passes a request to the host with the address `to`. If that host has crashed or does not
// exist, the request gets no answer.
func (r *Rack) deliver(req *request, to netip.Addr) {
	hs, ok := r.Spec.ByAddr(to)
	if !ok || req.given {
		return
	}
	h := r.Host(hs.Name)
	if h.crashed {
		return
	}
	l := h.listeners[req.service]
	switch {
	case l == nil:
		req.answer(fmt.Sprintf("%s has no service %q", h.Spec.Name, req.service))
	case len(l.backlog) >= maxBacklog:
		req.answer(fmt.Sprintf("service %q of %s has %d requests waiting", req.service, h.Spec.Name, len(l.backlog)))
	default:
		req.manager = l.manager
		l.backlog = append(l.backlog, req)
		l.wake()
	}
}

// answer gives the dialer the server's answer, after setupDelay. reject is the reason for which the
// server rejects the request; "" means that it accepts.
func (r *request) answer(reject string) {
	net := r.dialer.net()
	net.At(net.Now().Add(setupDelay), func() {
		r.answered, r.reject = true, reject
		r.proc.Wake()
	})
}

// over reports whether the dialer waits no longer, because it has an answer or has given up.
func (r *request) over() bool { return r.answered || r.given }

func (r *request) Service() string            { return r.service }
func (r *request) Peer() netip.Addr           { return r.peer }
func (r *request) Private() []byte            { return r.private }
func (r *request) Reject(reason string) error { return r.Answer(reason, nil) }

func (r *request) Answer(reason string, private []byte) error {
	reason = cmp.Or(reason, "no reason given")
	r.reply = slices.Clone(private)
	r.answer(reason)
	return nil
}

// Accept connects qp and waits until the dialer has connected its queue pair, too.
func (r *request) Accept(qp verbs.QP, p rdmacm.Params, private []byte, deadline clock.Time) error {
	m := r.manager
	local, err := m.endpoint(qp, r.peer, p, private)
	if err == nil {
		err = rdmacm.BringUp(m.ctx, qp, p, local, r.endpoint)
	}
	if err != nil {
		r.answer(err.Error())
		return err
	}
	r.remote, r.reply = local.Agree(r.endpoint), slices.Clone(private)
	net := m.host.net()
	r.acceptor = net.Current()
	r.answer("")
	for !r.ready {
		if net.Now() >= deadline {
			_ = qp.ToError() // the queue pair must not be used
			return fmt.Errorf("accept from %v: %w", r.peer, verbs.ErrTimeout)
		}
		r.acceptor.Park(deadline, "the peer to be ready")
	}
	if r.failed != "" {
		_ = qp.ToError() // the queue pair must not be used
		return fmt.Errorf("accept from %v: the peer failed: %s", r.peer, r.failed)
	}
	return nil
}

// listener has the requests to connect to one service of a host.
type listener struct {
	manager *manager
	service string
	backlog []*request
	waiting []*simnet.Proc
	closed  bool
}

func (m *manager) Listen(service string) (rdmacm.Listener, error) {
	if m.host.listeners[service] != nil {
		return nil, fmt.Errorf("listen %q: %w", service, rdmacm.ErrInUse)
	}
	l := &listener{manager: m, service: service}
	m.host.listeners[service] = l
	return l, nil
}

func (l *listener) wake() {
	for _, p := range l.waiting {
		p.Wake()
	}
}

func (l *listener) Accept(deadline clock.Time) (rdmacm.Request, error) {
	net := l.manager.host.net()
	p := net.Current()
	for {
		if l.closed {
			return nil, fmt.Errorf("accept %q: %w", l.service, verbs.ErrClosed)
		}
		if len(l.backlog) > 0 {
			req := l.backlog[0]
			l.backlog = slices.Delete(l.backlog, 0, 1)
			h := l.manager.host
			h.taken = append(slices.DeleteFunc(h.taken, (*request).over), req)
			return req, nil
		}
		if net.Now() >= deadline {
			return nil, fmt.Errorf("accept %q: %w", l.service, verbs.ErrTimeout)
		}
		l.waiting = append(l.waiting, p)
		p.Park(deadline, fmt.Sprintf("requests for service %q", l.service))
		l.waiting = slices.DeleteFunc(l.waiting, func(q *simnet.Proc) bool { return q == p })
	}
}

// Close ends the listener and rejects the requests in its backlog.
func (l *listener) Close() error {
	if l.closed {
		return nil
	}
	l.closed = true
	delete(l.manager.host.listeners, l.service)
	for _, req := range l.backlog {
		req.answer(fmt.Sprintf("service %q has closed", l.service))
	}
	l.backlog = nil
	l.wake()
	return nil
}
