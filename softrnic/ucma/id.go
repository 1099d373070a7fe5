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
	uid     uint64 // the program's name for it; 0: none yet
	channel *channel
	state   State
	// space is the port space: that of mad.PortService, or 0 for one that has no use here.
	space    mad.ServiceID
	src, dst netip.AddrPort
	port     bool // its port is counted as used
	options  options
	reported uint32 // events that the program has read
	conn     *engine.CMConn
	listener *engine.CMListener
	// backlog bounds the requests that wait for an answer, waiting counts them. of is the listener
	// whose request this is, until it is answered.
	backlog, waiting int
	of               *id
	terms            terms
}

// terms are what both ends of a connection have said.
type terms struct {
	qpn, peerQPN wire.QPN
	// psn is the first PSN that this side expects, peerPSN that which the peer expects.
	psn, peerPSN wire.PSN
	mtu          uint8 // code
	// resources is how many READs and atomics the peer may have outstanding here, depth how many
	// this side may have there.
	resources, depth uint8
	retry, rnrRetry  uint8
	ackTimeout       uint8
	qkey             uint32
	pkeyIndex        uint16 // of the port's table
}

// datagrams reports whether it is of a datagram service.
func (x *id) datagrams() bool { return x.space == mad.SpaceUDP }

// service is the number of its own port's service.
func (x *id) service(port uint16) mad.ServiceID { return mad.PortService(x.space, port) }

// answered notes that the request was answered, or needs no answer any more.
func (x *id) answered() {
	if x.of != nil {
		x.of.waiting--
		x.of = nil
	}
}
