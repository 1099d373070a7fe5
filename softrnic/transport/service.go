package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// service is a transport service: what its queue pairs do differently. Everything else, from work queues to
// scatter and gather, is common.
type service struct {
	// opcodes are the top three bits of all its packets.
	opcodes wire.Opcode
	// states is its state diagram.
	states []transition
	// ops has a bit for each operation that its send queue takes (IBTA 10.8.2/operations).
	ops uint32
	// send starts and continues what is in the send queue.
	send func(q *QP, now clock.Time, out *Actions)
	// receive takes a packet from the peer, in a state that receives.
	receive func(q *QP, now clock.Time, p *wire.Packet, out *Actions)
	// datagram says that it has no peer: each work request has its own.
	datagram bool
	// start and packet belong to sendUnreliable: begin a work request, send its next packet. What fails sets its status.
	start  func(q *QP, w *sendWQE)
	packet func(q *QP, w *sendWQE, out *Actions)
}

// services is indexed by verbs.QPType. A type that is not there is not supported.
var services [verbs.UD + 1]*service

func init() { // an initializer would refer to itself through the methods
	services[verbs.RC] = &service{
		opcodes: wire.ServiceRC, states: rcStates, send: (*QP).pump, receive: (*QP).handleRC,
		ops: opSet(verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead,
			verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW),
	}
	services[verbs.UC] = &service{
		opcodes: wire.ServiceUC, states: unreliableStates, send: (*QP).sendUnreliable, receive: (*QP).handleUC,
		start: (*QP).startUC, packet: (*QP).packetUC,
		ops: opSet(verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpLocalInv, verbs.OpBindMW),
	}
	services[verbs.UD] = &service{
		opcodes: wire.ServiceUD, states: unreliableStates, send: (*QP).sendUnreliable, receive: (*QP).handleUD,
		start: (*QP).startUD, packet: (*QP).packetUD, datagram: true,
		ops: opSet(verbs.OpSend, verbs.OpSendImm),
	}
}

func opSet(ops ...verbs.WROpcode) (set uint32) {
	for _, op := range ops {
		set |= 1 << op
	}
	return set
}

// Service returns the transport service, one of wire's Service constants: what the opcodes of its packets begin with.
func (q *QP) Service() wire.Opcode { return q.svc.opcodes }
