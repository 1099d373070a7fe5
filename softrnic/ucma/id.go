package ucma

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// id is an identifier: rdma_cm_id of librdmacm.
type id struct {
	handle  uint32
	uid     uint64 // the number by which the program knows the identifier; 0 means none yet
	channel *channel
	state   State
	// space is the port space, as mad.PortService uses it, and qpType the type of the queue pair that the
	// identifier is for: typeRC and so on.
	space  mad.ServiceID
	qpType uint8
	// looped is true if the peer is this machine's loopback address, or any address: the identifier
	// has a device, but no route.
	looped   bool
	src, dst netip.AddrPort // of this host and of the peer; invalid as long as it is not known
	options  options
	reported uint32             // number of events that the program has read
	conn     *engine.CMConn     // the connection or SIDR exchange on the NIC; nil if there is none
	listener *engine.CMListener // the listener on the NIC; nil if the identifier does not listen
	// For a listener, backlog is the largest number of requests that may wait for an answer, and
	// waiting is their number. For a peer's request, `of` is its listener until the request is
	// answered.
	backlog, waiting int
	of               *id
	terms            terms
	away             bool // it has moved to another NIC, and keeps its handle; see Take
	mirror           bool // it listens for an identifier of another NIC; see Mirror
}

// terms are the parameters of a connection, as far as they are known: first this side's wishes, at
// the end what both sides have agreed on.
type terms struct {
	peerQPN wire.QPN
	// psn is the first PSN that this side expects. peerPSN is the first PSN that the peer expects.
	psn, peerPSN wire.PSN
	mtu          uint8 // code of the path MTU (enum ibv_mtu)
	// resources is how many READs and atomics of the peer this side may have in execution. depth is
	// how many of this side may be in flight to the peer.
	resources, depth uint8
	retry, rnrRetry  uint8
	ackTimeout       uint8
	qkey             uint32
	pkeyIndex        uint16 // index in the port's P_Key table
}

// datagrams reports whether the identifier belongs to a datagram service.
func (x *id) datagrams() bool { return x.qpType == typeUD }

// services are the transport services by which identifiers of a queue pair type request connections. An
// identifier for a target requests none: it takes requests of initiators.
var services = map[uint8]struct{ typ, extended uint8 }{
	typeRC: {mad.TypeRC, 0}, typeUC: {mad.TypeUC, 0}, typeXRCInitiator: {mad.TypeExtended, mad.ExtendedXRC},
}

// takes reports whether a request of a peer is for the identifier's type of queue pair, as in the kernel
// (cma_ib_check_req_qp_type).
func (x *id) takes(c *engine.CMConn) bool {
	switch {
	case c.Ask != nil:
		return x.datagrams()
	case c.Request.XRC():
		return x.qpType == typeXRCTarget
	case c.Request.Type == mad.TypeUC:
		return x.qpType == typeUC
	}
	return x.qpType == typeRC
}

// service returns the service number of a port in the identifier's port space.
func (x *id) service(port uint16) mad.ServiceID { return mad.PortService(x.space, port) }

// answered is called when a peer's request was answered, or needs no answer any more. The request
// then no longer counts as waiting at its listener.
func (x *id) answered() {
	if x.of != nil {
		x.of.waiting--
		x.of = nil
	}
}
