package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The unreliable datagram: SENDs of one packet, each to an address and a queue pair of its own. PSNs are sent and not
// looked at; a Q_Key opens the door (IBTA 9.8.3).

// privilegedQKey is the bit that makes a work request's Q_Key mean the queue pair's own (IBTA 10.2.5/q-key).
const privilegedQKey = 1 << 31

// checkDatagram validates what only a datagram has.
func checkDatagram(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.AH == nil || wr.AH.Handle() == 0:
		return postErr(op, verbs.ErrInvalid, "a datagram needs an address handle")
	case wr.RemoteQPN > max24:
		return postErr(op, verbs.ErrInvalid, "remote QPN %#x has 24 bits", uint32(wr.RemoteQPN))
	}
	return nil
}

// startUD begins a work request.
func (q *QP) startUD(*sendWQE) {}

// packetUD sends w, the oldest work request, and completes it. One that is longer than the MTU of the port is complete
// without anything sent and without an error (C10-93.1.1).
func (q *QP) packetUD(w *sendWQE, out *Actions) {
	if w.length > q.mtu {
		q.env.Counters.DatagramTooLong++
		q.sq.send++
		q.completeSend(w, verbs.Success, out)
		return
	}
	tx := q.newPacket(out)
	tx.BTH.Opcode = wire.UDSendOnly
	if w.op == verbs.OpSendImm {
		tx.BTH.Opcode, tx.ImmDt = wire.UDSendOnlyImm, w.imm
	}
	tx.BTH.DestQP, tx.BTH.PSN = w.destQPN, q.req.nextPSN
	tx.BTH.Solicited = w.flags&verbs.Solicited != 0
	tx.DETH = wire.DETH{QKey: w.qkey, SrcQP: q.cfg.QPN}
	if w.qkey&privilegedQKey != 0 {
		tx.DETH.QKey = q.init.QKey
	}
	out.Tx[len(out.Tx)-1].AH = w.ah
	if w.length > 0 {
		tx.Payload = out.alloc(int(w.length))
		if w.flags&verbs.Inline != 0 {
			copy(tx.Payload, q.sq.data(q.sq.send))
		} else if q.gather(tx.Payload, q.sq.sgl(q.sq.send), 0) != mem.OK {
			w.status = verbs.LocProtErr
			out.Tx = out.Tx[:len(out.Tx)-1]
			return
		}
	}
	q.req.nextPSN = q.req.nextPSN.Next()
	q.sq.send++
	q.completeSend(w, verbs.Success, out)
}

// handleUD takes a datagram without its IP header.
func (q *QP) handleUD(_ clock.Time, p *wire.Packet, out *Actions) { q.datagram(p, nil, out) }

// HandleDatagram is Handle for unreliable datagrams: ip is the IP header that the packet came with, 20 or 40 bytes, and
// goes into the last bytes of the area in front of the payload. It is not kept.
func (q *QP) HandleDatagram(now clock.Time, p *wire.Packet, ip []byte, out *Actions) {
	if q.accepts(now, p) {
		q.datagram(p, ip, out)
	}
}

// datagram is received if its Q_Key is right and the oldest receive has room for the area and the payload; everything
// else is dropped and counted, and the receive stays posted (IBTA 9.8.3.1, 9.9.3/silent).
func (q *QP) datagram(p *wire.Packet, ip []byte, out *Actions) {
	c := q.env.Counters
	info := p.BTH.Opcode.Info()
	n := uint32(len(p.Payload))
	switch {
	case info.Flags&wire.OpSend == 0:
		q.sawVerdict(p.BTH.Opcode, refuseOpcode)
		q.refuseUnreliable(refuseOpcode, out)
		return
	case p.DETH.QKey != q.init.QKey:
		q.saw(p.BTH.Opcode, "Q_Key")
		c.QKeyErr++
		return
	case n > q.mtu:
		q.sawVerdict(p.BTH.Opcode, refuseLength)
		q.refuseUnreliable(refuseLength, out)
		return
	case !q.ready():
		q.sawVerdict(p.BTH.Opcode, refuseNotReady)
		q.refuseUnreliable(refuseNotReady, out)
		return
	case verbs.GRHLen+uint64(n) > q.rq.at(q.rq.head).length:
		q.sawVerdict(p.BTH.Opcode, refuseTooLong)
		q.refuseUnreliable(refuseTooLong, out)
		return
	}
	var grh [verbs.GRHLen]byte
	copy(grh[len(grh)-min(len(ip), len(grh)):], ip)
	sgl := q.rq.sgl(q.rq.head)
	if q.scatter(q.recvPD, sgl, 0, grh[:]) != mem.OK || q.scatter(q.recvPD, sgl, verbs.GRHLen, p.Payload) != mem.OK {
		q.sawVerdict(p.BTH.Opcode, refuseLocal)
		q.refuseUnreliable(refuseLocal, out)
		return
	}
	wc := verbs.WC{
		Opcode: verbs.WCRecv, Flags: verbs.WithGRH, ByteLen: verbs.GRHLen + n, SrcQPN: p.DETH.SrcQP, Solicited: p.BTH.Solicited,
	}
	if info.Flags&wire.OpImm != 0 {
		wc.Flags |= verbs.WithImm
		wc.Imm = p.ImmDt
	}
	q.sawVerdict(p.BTH.Opcode, pass)
	q.completeRecv(wc, out)
}
