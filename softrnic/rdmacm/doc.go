// Package rdmacm brings two queue pairs of two hosts to RTS: one side dials a service of a host,
// the other side listens for it and accepts or rejects. Both hand over up to MaxPrivate bytes of
// their own, which carry what an application needs to begin (a region's address, key and length).
//
// Manager is the interface for applications. CM is the exchange by the datagrams of the RDMA
// connection manager, OOB the out-of-band one over the hosts' own TCP.
//
// Services of datagrams have no connections: with CM, a host lists them (ListenDatagrams) and
// others ask for the queue pair and Q_Key behind a name (ResolveDatagrams), as librdmacm's UDP port
// space does.
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

// MaxPrivate is the most private data a side may send by any exchange, in bytes. CM's messages have
// less room: see MaxRequestPrivate.
const MaxPrivate = 256

// MaxAnswer is the most private data of Request.Answer, in bytes.
const MaxAnswer = 64

// MaxService is the longest name of a service, in bytes.
const MaxService = 64

// Errors that the methods wrap. A deadline that passes is verbs.ErrTimeout, a closed listener or
// manager verbs.ErrClosed, no way to the peer verbs.ErrUnreachable.
var (
	ErrRejected = errors.New("connection rejected")
	ErrProtocol = cm.ErrProtocol
	ErrInUse    = errors.New("service has a listener already")
)

// RejectError ends a Dial without a connection: the peer refused, or answered a request that wants
// no connection.
type RejectError struct {
	Reason string
	// Code is the reason code of the connection manager's REJ; zero in other exchanges.
	Code mad.Reason
	// Private is the data that the peer's service gave to Request.Answer, nil if it gave none. For
	// a service that is a port, it is all private data of the REJ.
	Private []byte
}

// Error shows the peer's reason.
func (e *RejectError) Error() string { return fmt.Sprintf("%v by the peer: %s", ErrRejected, e.Reason) }

// Unwrap returns ErrRejected.
func (e *RejectError) Unwrap() error { return ErrRejected }

// Params are the attributes of a connection that an application chooses. The zero value is usable.
// The source address is the first GID of the device in the peer's family.
type Params struct {
	// PathMTU is the largest path MTU wanted; the smaller one of both sides is used. 0: 4096, or
	// less if the link MTU demands it.
	PathMTU verbs.MTU
	// Access is what the peer may do to the memory of this side through the queue pair. The zero
	// value lets it write, read and do atomics (in regions that grant it); NoAccess lets it do
	// nothing.
	Access   verbs.Access
	NoAccess bool
	// RdAtomic is how many READs and atomics may be outstanding in each direction; the smaller one
	// of both sides is used. 0: 16.
	RdAtomic int
	// Timeout is the code of the local ACK timeout, 4.096 µs · 2^Timeout. 0: 15 (134 ms).
	Timeout uint8
	// RetryCount and RNRRetry are those of verbs.ToRTS, but 0 means 7, the usual choice, and
	// NoRetry means 0. With CM, a side that leaves them and Timeout at 0 takes the values of its
	// peer: the responder all three, the initiator RNRRetry.
	RetryCount, RNRRetry uint8
	// MinRNRTimer is the code of the RNR timer that this side asks for. 0: 12 (0.64 ms).
	MinRNRTimer  uint8
	TrafficClass uint8
	// PKeyIndex is the index of the connection's partition in verbs.DeviceAttr.PKeys. With CM, only
	// the initiator's counts: the responder takes the entry of its own table that the request fits.
	PKeyIndex int
}

// NoRetry as RetryCount or RNRRetry asks for no retry.
const NoRetry uint8 = 255

// Dialer connects.
type Dialer interface {
	// Dial connects qp, which must be in RESET, to a service of the host with address to, and
	// returns the peer's private data when qp is in RTS and the peer is able to receive. On error
	// qp is in ERROR or untouched.
	Dial(qp verbs.QP, to netip.Addr, service string, p Params, private []byte, deadline clock.Time) ([]byte, error)
}

// Listener receives the requests for one service.
type Listener interface {
	// Accept waits for the next request.
	Accept(deadline clock.Time) (Request, error)
	// Close ends waiting Accepts; waiting requests are rejected. Closing twice is harmless.
	Close() error
}

// Request is the request of a peer that waits for an answer. One of Accept, Reject and Answer must
// be called.
type Request interface {
	Service() string
	// Peer is the address of the peer's NIC.
	Peer() netip.Addr
	Private() []byte
	// Accept connects qp, which must be in RESET, and returns when it is in RTS and the peer has
	// reported that it is ready too. On error qp is in ERROR or untouched.
	Accept(qp verbs.QP, p Params, private []byte, deadline clock.Time) error
	Reject(reason string) error
	// Answer ends the exchange without a connection: it is Reject with at most MaxAnswer bytes in
	// the service's own format, for requests that want no connection and for refusals that programs
	// must tell apart. The dialer finds both in its RejectError. A service that is a port has no
	// room for data.
	Answer(reason string, private []byte) error
}

// Manager is both sides.
type Manager interface {
	Dialer
	// Listen takes requests for a service from now on.
	Listen(service string) (Listener, error)
}
