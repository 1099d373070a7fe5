package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// service describes how the queue pairs of one transport service differ from those of the others.
type service struct {
	// opcodes are the top three bits of the service's opcodes.
	opcodes wire.Opcode
	// states is the state diagram.
	states []transition
	// ops has a bit for each operation that the send queue accepts (IBTA 10.8.2/operations).
	ops uint32
	// changes are the attributes that Modify can change in at least one state.
	changes verbs.QPMask
	// receive handles a packet from the peer. It is called only in states that receive.
	receive func(q *QP, now clock.Time, p *wire.Packet, out *Actions)
	// oneWay: all requests of a connection go in one direction (XRC). requests: this is the end that sends
	// them, each of which names a shared receive queue of the peer; it hears responses alone, and the other
	// end requests alone.
	oneWay, requests bool
	// datagram: a queue pair has no peer; each work request names its destination.
	datagram bool
	// start begins a work request of UC, and packet sends the next packet of a work request of UC
	// or UD. If one of them fails, it sets w.status. For RC both are nil, and for UD start is nil.
	start  func(u *unreliableSender, w *sendWQE)
	packet func(u *unreliableSender, w *sendWQE, out *Actions)
}

// services is indexed by verbs.QPType. nil means that the type is not supported.
var services [verbs.XRCTarget + 1]*service

func init() { // a composite literal at the declaration would be an initialization cycle through the methods
	services[verbs.RC] = &service{
		opcodes: wire.ServiceRC, states: rcStates, receive: (*QP).handleRC,
		ops: opSet(verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead,
			verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR,
			verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush),
		changes: verbs.ModifyAccess | verbs.ModifyRNRTimer | inRetries | verbs.ModifyPKey | verbs.ModifyDest |
			verbs.ModifyMaxRdAtomic | verbs.ModifyMaxDestRdAtomic,
	}
	services[verbs.UC] = &service{
		opcodes: wire.ServiceUC, states: unreliableStates,
		receive: func(q *QP, _ clock.Time, p *wire.Packet, out *Actions) { q.rsp.handleUC(p, out) },
		start:   (*unreliableSender).startUC, packet: (*unreliableSender).packetUC,
		ops:     opSet(verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR),
		changes: verbs.ModifyAccess | verbs.ModifyPKey | verbs.ModifyDest,
	}
	services[verbs.UD] = &service{
		opcodes: wire.ServiceUD, states: unreliableStates,
		// a datagram whose IP header the caller does not have
		receive: func(q *QP, _ clock.Time, p *wire.Packet, out *Actions) { q.rsp.datagram(p, nil, out) },
		packet:  (*unreliableSender).packetUD, datagram: true,
		ops: opSet(verbs.OpSend, verbs.OpSendImm), changes: verbs.ModifyQKey | verbs.ModifyPKey,
	}
	services[verbs.XRCInitiator] = &service{
		opcodes: wire.ServiceXRC, states: rcStates, receive: (*QP).handleRC, oneWay: true, requests: true,
		ops: opSet(verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead,
			verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR),
		changes: verbs.ModifyAccess | inRetries | verbs.ModifyPKey | verbs.ModifyDest | verbs.ModifyMaxRdAtomic,
	}
	services[verbs.XRCTarget] = &service{
		opcodes: wire.ServiceXRC, states: rcStates, receive: (*QP).handleRC, oneWay: true,
		changes: verbs.ModifyAccess | verbs.ModifyRNRTimer | verbs.ModifyTimeout | verbs.ModifyPKey | verbs.ModifyDest | verbs.ModifyMaxDestRdAtomic,
	}
}

// send starts work requests in the send queue and continues started ones.
func (q *QP) send(now clock.Time, out *Actions) {
	if q.core.svc.packet == nil {
		q.req.pump(now, out)
	} else {
		q.unr.send(now, out)
	}
}

// handleRC handles a packet of a reliable connection, also an extended one. In RTR it drops responses, because nothing
// was sent.
func (q *QP) handleRC(now clock.Time, p *wire.Packet, out *Actions) {
	switch {
	case !p.BTH.Opcode.Is(wire.OpResponse):
		q.rsp.handle(now, p, out)
	case q.core.state != verbs.StateRTR:
		q.cmp.handle(now, p, out)
	default:
		q.core.saw(p.BTH.Opcode, "state")
	}
}

func opSet(ops ...verbs.WROpcode) (set uint32) {
	for _, op := range ops {
		set |= 1 << op
	}
	return set
}

// Service returns the transport service as one of wire's Service constants, which are the top bits
// of the opcodes.
func (q *QP) Service() wire.Opcode { return q.core.svc.opcodes }

// Hears reports whether packets with an opcode may come to the queue pair: it is of the transport service,
// and of the direction if the service has only one.
func (q *QP) Hears(op wire.Opcode) bool {
	s := q.core.svc
	return op.Service() == s.opcodes && (!s.oneWay || op.Is(wire.OpResponse) == s.requests)
}
