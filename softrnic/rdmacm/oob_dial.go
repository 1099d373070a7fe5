package rdmacm

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxDial limits the time of a Dial, also if its deadline is later or never.
const maxDial = time.Minute

func (o *OOB) Dial(qp verbs.QP, addr netip.Addr, service string, p Params, private []byte, deadline clock.Time) ([]byte, error) {
	const op = "dial"
	if err := checkDial(addr, service, private); err != nil {
		return nil, err
	}
	local, err := LocalEndpoint(o.cfg.Context, qp, addr, p)
	if err != nil {
		return nil, err
	}
	until := o.wall(deadline, maxDial)
	peer := net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr.Unmap(), o.cfg.Port))
	var c net.Conn
	err = o.cfg.inside(func() (err error) {
		d := net.Dialer{Deadline: until}
		c, err = d.DialContext(o.ctx, "tcp", peer.String())
		return err
	})
	if err != nil {
		return nil, o.explain(op, peer, dialError(err))
	}
	if !o.track(c) {
		return nil, verbs.Errorf(op, verbs.ErrClosed, "the manager was closed")
	}
	defer o.drop(c)
	got, err := o.initiate(c, until, qp, p, message{kind: kindRequest, endpoint: local, text: service, private: private})
	if err != nil {
		return nil, o.explain(op, peer, err)
	}
	o.count(func(s *OOBStats) { s.Dialed++ })
	return got, nil
}

func (c *OOBConfig) inside(open func() error) error {
	if c.Inside == nil {
		return open()
	}
	return c.Inside(open)
}

// initiate executes the initiator's part of the exchange.
func (o *OOB) initiate(c net.Conn, until time.Time, qp verbs.QP, p Params, request message) ([]byte, error) {
	if err := c.SetDeadline(until); err != nil {
		return nil, err
	}
	if err := send(c, request); err != nil {
		return nil, err
	}
	reply, err := readMessage(c)
	switch {
	case err != nil:
		return nil, err
	case reply.kind == kindReject:
		return nil, fmt.Errorf("service %q at %v: %w", request.text, c.RemoteAddr(), &RejectError{Reason: reply.text, Private: reply.private})
	case reply.kind != kindReply:
		return nil, fmt.Errorf("%w: kind %d in answer to a request", ErrProtocol, reply.kind)
	case !sameFamily(reply.endpoint, request.endpoint):
		return nil, fmt.Errorf("%w: the peer answers with the address %v", ErrProtocol, reply.endpoint.GID)
	}
	if err := BringUp(o.cfg.Context, qp, p, request.endpoint, reply.endpoint); err != nil {
		o.reject(c, "the initiator's queue pair: "+err.Error())
		return nil, err
	}
	if err := send(c, message{kind: kindReady}); err != nil {
		fail(qp)
		return nil, err
	}
	return reply.private, nil
}

func sameFamily(a, b Endpoint) bool { return a.GID.Addr().Is4() == b.GID.Addr().Is4() }

// dialError converts timeouts, for which package net has an error type of its own.
func dialError(err error) error {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)
	}
	return err
}

func checkAnswer(private []byte, port bool) error {
	switch {
	case len(private) > MaxAnswer:
		return verbs.Errorf("answer", verbs.ErrInvalid, "%d bytes of private data; at most %d", len(private), MaxAnswer)
	case port && len(private) > 0:
		return verbs.Errorf("answer", verbs.ErrInvalid, "a service that is a port has no private data beside the reason")
	}
	return nil
}

// unanswered wraps an error of Request.Accept or Request.Answer in ErrUnanswered, because the
// request can still be answered by another call.
func unanswered(err error) error { return fmt.Errorf("%w: %w", ErrUnanswered, err) }

func checkDial(addr netip.Addr, service string, private []byte) error {
	if err := checkNames("dial", service, private); err != nil || addr.IsValid() {
		return err
	}
	return verbs.Errorf("dial", verbs.ErrInvalid, "no address to dial")
}

func checkNames(op, service string, private []byte) error {
	switch {
	case service == "" || len(service) > MaxService:
		return verbs.Errorf(op, verbs.ErrInvalid, "service name of %d bytes; give 1 to %d", len(service), MaxService)
	case len(private) > MaxPrivate:
		return verbs.Errorf(op, verbs.ErrInvalid, "%d bytes of private data; at most %d", len(private), MaxPrivate)
	}
	return nil
}
