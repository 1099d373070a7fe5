package rdmacm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// acceptPause is the pause after a failed accept: for example without free file descriptors, the
// next accept would fail at once, too.
const acceptPause = 10 * time.Millisecond

func (o *OOB) Listen(service string) (Listener, error) {
	const op = "listen"
	if err := checkNames(op, service, nil); err != nil {
		return nil, err
	}
	if o.listener == nil {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "this manager was made without a listen address")
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	case o.services[service] != nil:
		return nil, verbs.Errorf(op, ErrInUse, "%q", service)
	}
	l := &listener{o: o, service: service, backlog: make(chan *request, o.cfg.Backlog), closed: make(chan struct{})}
	o.services[service] = l
	return l, nil
}

// acceptLoop accepts TCP connections until Close.
func (o *OOB) acceptLoop() {
	for {
		c, err := o.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		if !o.track(c) {
			return
		}
		select {
		case o.busy <- struct{}{}:
			o.wg.Go(func() { o.handshake(c) })
		default: // as many handshakes are in progress as OOBConfig.Handshakes allows
			o.count(func(s *OOBStats) { s.Busy++ })
			o.reject(c, "too many connection requests at the same time; try again")
			o.drop(c)
		}
	}
}

// handshake reads the request of one peer and queues it for its service. On error it closes the
// connection.
func (o *OOB) handshake(c net.Conn) {
	defer func() { <-o.busy }()
	if err := o.receive(c); err != nil {
		_ = o.explain("accept", c.RemoteAddr(), err) // called only to count the error: reject informs the peer
		if errors.Is(err, ErrProtocol) || errors.Is(err, errRefused) {
			o.reject(c, err.Error())
		}
		o.drop(c)
	}
}

// errRefused is the error of a valid request that cannot be served.
var errRefused = errors.New("refused")

func (o *OOB) receive(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(o.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	m, err := readMessage(c)
	if err != nil {
		return err
	}
	if m.kind != kindRequest {
		return fmt.Errorf("%w: kind %d instead of a request", ErrProtocol, m.kind)
	}
	o.mu.Lock()
	l := o.services[m.text]
	o.mu.Unlock()
	if l == nil {
		return fmt.Errorf("%w: no service %q here", errRefused, m.text)
	}
	return l.queue(&request{o: o, c: c, m: m, expires: time.Now().Add(maxDial)})
}

// listener has the requests for one service.
type listener struct {
	o       *OOB
	service string
	backlog chan *request
	closed  chan struct{}
	mu      sync.Mutex // mu is held while a request is queued, so that none is queued after shut
}

func (l *listener) queue(r *request) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return fmt.Errorf("%w: service %q has ended", errRefused, l.service)
	default:
	}
	select {
	case l.backlog <- r:
		return nil
	default:
		l.o.count(func(s *OOBStats) { s.Busy++ })
		return fmt.Errorf("%w: service %q has too many waiting requests", errRefused, l.service)
	}
}

// Accept waits for the next request. It skips requests that are so old that their initiators have
// given up.
func (l *listener) Accept(deadline clock.Time) (Request, error) {
	const op = "accept"
	var expired <-chan time.Time
	if deadline != clock.Never {
		t := time.NewTimer(max(0, deadline.Sub(l.o.cfg.Context.Runtime().Now())))
		defer t.Stop()
		expired = t.C
	}
	for {
		select {
		case <-l.closed:
			return nil, verbs.Errorf(op, verbs.ErrClosed, "service %q", l.service)
		case r := <-l.backlog:
			if time.Now().After(r.expires) {
				l.o.count(func(s *OOBStats) { s.TimedOut++ })
				l.o.drop(r.c)
				continue
			}
			return r, nil
		case <-expired:
			return nil, verbs.Errorf(op, verbs.ErrTimeout, "no request for service %q", l.service)
		}
	}
}

func (l *listener) Close() error {
	l.o.mu.Lock()
	if l.o.services[l.service] == l {
		delete(l.o.services, l.service)
	}
	l.o.mu.Unlock()
	l.shut()
	return nil
}

// shut ends the calls of Accept that wait, and rejects the requests in the backlog.
func (l *listener) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.closed:
		return
	default:
		close(l.closed)
	}
	for {
		select {
		case r := <-l.backlog:
			_ = r.Reject("the service has ended") // the peer may have closed the connection
		default:
			return
		}
	}
}

// request is a connection request that waits for an answer.
type request struct {
	o       *OOB
	c       net.Conn
	m       message
	expires time.Time // when the initiator has certainly given up
	// answered is true when Accept, Reject or Answer has begun to answer the request. Later calls of
	// these methods fail at once.
	answered atomic.Bool
}

func (r *request) Service() string  { return r.m.text }
func (r *request) Peer() netip.Addr { return r.m.endpoint.GID.Addr() }
func (r *request) Private() []byte  { return r.m.private }

func (r *request) Accept(qp verbs.QP, p Params, private []byte, deadline clock.Time) error {
	const op = "accept"
	if err := checkNames(op, r.m.text, private); err != nil {
		return unanswered(err)
	}
	if r.answered.Swap(true) {
		return verbs.Errorf(op, verbs.ErrState, "the request was answered already")
	}
	defer r.o.drop(r.c)
	if err := r.respond(qp, p, private, deadline); err != nil {
		return r.o.explain(op, r.c.RemoteAddr(), err)
	}
	r.o.count(func(s *OOBStats) { s.Accepted++ })
	return nil
}

// respond executes the responder's part of the exchange.
func (r *request) respond(qp verbs.QP, p Params, private []byte, deadline clock.Time) error {
	local, err := LocalEndpoint(r.o.cfg.Context, qp, r.Peer(), p)
	if err == nil {
		err = BringUp(r.o.cfg.Context, qp, p, local, r.m.endpoint)
	}
	if err != nil {
		r.o.reject(r.c, "the responder's queue pair: "+err.Error())
		return err
	}
	if err := r.confirm(local.Agree(r.m.endpoint), private, deadline); err != nil {
		fail(qp)
		return err
	}
	return nil
}

// confirm sends the reply and waits for the initiator's ready message.
func (r *request) confirm(agreed Endpoint, private []byte, deadline clock.Time) error {
	if err := r.c.SetDeadline(r.o.wall(deadline, r.o.cfg.HandshakeTimeout)); err != nil {
		return err
	}
	if err := send(r.c, message{kind: kindReply, endpoint: agreed, private: private}); err != nil {
		return err
	}
	m, err := readMessage(r.c)
	switch {
	case err != nil:
		return err
	case m.kind == kindReject:
		return &RejectError{Reason: m.text}
	case m.kind != kindReady:
		return fmt.Errorf("%w: kind %d instead of ready", ErrProtocol, m.kind)
	}
	return nil
}

func (r *request) Reject(reason string) error { return r.Answer(reason, nil) }

// Answer answers the request with a reject message that carries the private data.
func (r *request) Answer(reason string, private []byte) error {
	if err := checkAnswer(private, false); err != nil {
		return unanswered(err)
	}
	if r.answered.Swap(true) {
		return verbs.Errorf("reject", verbs.ErrState, "the request was answered already")
	}
	r.o.answer(r.c, reason, private)
	r.o.drop(r.c)
	return nil
}
