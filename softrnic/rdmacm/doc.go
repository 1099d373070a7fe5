// Package rdmacm connects two queue pairs of two hosts and moves them to RTS. One side dials a
// service of a host; the other side listens for requests to it and accepts or rejects them. Each
// side sends up to MaxPrivate bytes of private data, for example the address, key and length of a
// region.
//
// Manager is the interface for applications. CM is the exchange by the datagrams of the RDMA
// connection manager, OOB the out-of-band exchange over the hosts' own TCP.
//
// Datagram services have no connections. With CM, a host offers such a service under a name
// (ListenDatagrams), and other hosts ask for the queue pair and Q_Key of this name
// (ResolveDatagrams), as in librdmacm's UDP port space.
package rdmacm

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// MaxPrivate is the largest length of private data in any exchange, in bytes. CM's messages have
// less room: see cm.MaxRequestPrivate.
const MaxPrivate = 256

// MaxAnswer is the largest length of private data in Request.Answer, in bytes.
const MaxAnswer = 64

// MaxService is the largest length of a service's name, in bytes.
const MaxService = 64

// Errors that the methods wrap. They also wrap verbs.ErrTimeout after the deadline, verbs.ErrClosed
// if the listener or manager was closed, and verbs.ErrUnreachable without a route to the peer.
var (
	ErrRejected = errors.New("connection rejected")
	ErrProtocol = cm.ErrProtocol
	ErrInUse    = errors.New("service has a listener already")
	// ErrUnanswered is wrapped when Request.Accept or Request.Answer of a Manager of this package
	// refuses its arguments before it answers: the request still waits, and can be answered by another
	// call.
	ErrUnanswered = errors.New("the request is not answered")
)

// RejectError is the error of a Dial that the peer refused or answered without a connection.
type RejectError struct {
	Reason string
	// Code is the reason code of the connection manager's REJ; zero with OOB.
	Code mad.Reason
	// Private is the data that the peer passed to Request.Answer, nil if there is none. If the
	// service is a port (see CM), it is all private data of the REJ.
	Private []byte
}

func (e *RejectError) Error() string { return fmt.Sprintf("%v by the peer: %s", ErrRejected, e.Reason) }

func (e *RejectError) Unwrap() error { return ErrRejected }

// Params are the attributes of a connection that an application chooses. The zero value is usable.
// The source address is the GID that verbs.SourceGID selects for the peer.
type Params struct {
	// PathMTU is the largest path MTU; the smaller one of both sides is used. 0 means 4096, or less
	// if the link MTU is smaller.
	PathMTU verbs.MTU
	// Access has the rights of the peer to memory of this side through the queue pair. The zero value
	// allows WRITE, READ and atomics in regions that allow them; NoAccess allows nothing.
	Access   verbs.Access
	NoAccess bool
	// RdAtomic is how many READs and atomics may be in flight in each direction; the smaller one of
	// both sides is used. 0 means 16.
	RdAtomic int
	// Timeout is the code of the local ACK timeout, 4.096 µs · 2^Timeout. 0 means 15 (134 ms).
	Timeout uint8
	// RetryCount and RNRRetry are the retry counts of verbs.ToRTS, but 0 means 7, the usual choice,
	// and NoRetry means none. With CM, 0 can mean the peer's value: a responder then uses RetryCount,
	// RNRRetry and Timeout of the REQ, and an initiator RNRRetry of the REP.
	RetryCount, RNRRetry uint8
	// MinRNRTimer is the code of the RNR timer in the RNR NAKs of this side. 0 means 12 (0.64 ms).
	MinRNRTimer  uint8
	TrafficClass uint8
	// PKeyIndex is the index of the connection's P_Key in verbs.DeviceAttr.PKeys. With CM only the
	// initiator's PKeyIndex is used: the responder takes the entry of its own table that matches the
	// P_Key of the request.
	PKeyIndex int
}

// NoRetry as RetryCount or RNRRetry means no retries.
const NoRetry uint8 = 255

// Dialer connects queue pairs to services.
type Dialer interface {
	// Dial connects qp, which must be in RESET, to a service of the host with address addr. It
	// returns the peer's private data when qp is in RTS and the peer can receive. On error qp is in
	// ERROR or unchanged.
	Dial(qp verbs.QP, addr netip.Addr, service string, p Params, private []byte, deadline clock.Time) ([]byte, error)
}

// Listener receives the requests for one service.
type Listener interface {
	// Accept waits for the next request.
	Accept(deadline clock.Time) (Request, error)
	// Close ends the calls of Accept that wait, and rejects the requests that wait. A second Close
	// does nothing.
	Close() error
}

// Request is a connection request of a peer. Accept, Reject or Answer must be called.
type Request interface {
	// Service returns the name of the service that the peer asks for.
	Service() string
	// Peer is the address of the peer's NIC.
	Peer() netip.Addr
	// Private returns the peer's private data.
	Private() []byte
	// Accept connects qp, which must be in RESET. It returns when qp is in RTS and the peer has
	// reported that it is ready, too. On error qp is in ERROR or unchanged.
	Accept(qp verbs.QP, p Params, private []byte, deadline clock.Time) error
	Reject(reason string) error
	// Answer ends the request without a connection. Unlike Reject it also sends up to MaxAnswer bytes
	// in the service's own format. It is for requests that need no connection, and for refusals that
	// programs must distinguish. The dialer finds reason and bytes in its RejectError. A service that
	// is a port (see CM) cannot send such bytes.
	Answer(reason string, private []byte) error
}

// Manager dials and listens.
type Manager interface {
	Dialer
	// Listen accepts requests for a service.
	Listen(service string) (Listener, error)
}
