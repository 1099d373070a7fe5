package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The unreliable datagram: SENDs of one packet, each with its own destination. The responder does
// not check PSNs; the Q_Key decides whether it accepts a datagram (IBTA 9.8.3).

// checkDatagram checks the attributes that only datagrams have.
func checkDatagram(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.AH == nil || wr.AH.Handle() == 0:
		return verbs.Errorf(op, verbs.ErrInvalid, "a datagram needs an address handle")
	case wr.RemoteQPN > max24:
		return verbs.Errorf(op, verbs.ErrInvalid, "remote QPN %#x has more than 24 bits", uint32(wr.RemoteQPN))
	}
	return nil
}

// packetUD sends w, the oldest work request, and completes it. A datagram that is longer than the
// MTU of the port completes with success, but is not sent (C10-93.1.1).
func (u *unreliableSender) packetUD(w *sendWQE, out *Actions) {
	if w.length > u.sender.mtu {
		u.sender.env.Counters.TooLong++
		u.sender.completeSend(w, verbs.Success, reason.None, out)
		return
	}
	tx := u.sender.newPacket(out)
	tx.BTH.Opcode = wire.UDSendOnly
	if w.op == verbs.OpSendImm {
		tx.BTH.Opcode, tx.ImmDt = wire.UDSendOnlyImm, w.imm
	}
	tx.BTH.DestQP, tx.BTH.PSN = w.to.qpn, u.sender.nextPSN
	tx.BTH.Solicited = w.flags&verbs.Solicited != 0
	tx.DETH = wire.DETH{QKey: w.to.qkey, SrcQP: u.sender.cfg.QPN}
	if w.to.qkey&verbs.ControlledQKey != 0 {
		tx.DETH.QKey = u.sender.init.QKey
	}
	out.Tx[len(out.Tx)-1].AH = w.to.ah
	if w.length > 0 {
		tx.Payload = out.alloc(int(w.length))
		if w.flags&verbs.Inline != 0 {
			copy(tx.Payload, u.sender.sq.data(u.sender.sq.send))
		} else if u.sender.access.gather(tx.Payload, u.sender.sq.sgl(u.sender.sq.send), 0) != mem.OK {
			w.status = verbs.LocProtErr
			out.Tx = out.Tx[:len(out.Tx)-1]
			return
		}
	}
	u.sender.nextPSN = u.sender.nextPSN.Next()
	u.sender.completeSend(w, verbs.Success, reason.None, out)
}

// HandleDatagram handles a received datagram of UD. ip is the IP header of the packet, 20 or 40
// bytes. It is copied to the end of the 40 bytes in front of the payload.
func (q *QP) HandleDatagram(now clock.Time, p *wire.Packet, ip []byte, out *Actions) {
	if q.accepts(now, p) {
		q.rsp.datagram(p, ip, out)
	}
}

// datagram receives a datagram if its Q_Key is right and the oldest receive has room for 40 bytes
// and the payload. Any other datagram is dropped and counted, and the receive stays posted (IBTA
// 9.8.3.1, 9.9.3/silent).
func (r *responder) datagram(p *wire.Packet, ip []byte, out *Actions) {
	c := r.env.Counters
	info := p.BTH.Opcode.Info()
	n := uint32(len(p.Payload))
	switch {
	case info.Flags&wire.OpSend == 0:
		r.sawVerdict(p.BTH.Opcode, refuseOpcode)
		r.refuseSilently(refuseOpcode, p, info, out)
		return
	case p.DETH.QKey != r.init.QKey:
		r.saw(p.BTH.Opcode, "Q_Key")
		c.QKeyErr++
		r.noteQKey(p)
		return
	case n > r.mtu:
		r.sawVerdict(p.BTH.Opcode, refuseLength)
		r.refuseSilently(refuseLength, p, info, out)
		return
	case !r.rcv.ready():
		r.sawVerdict(p.BTH.Opcode, refuseNotReady)
		r.refuseSilently(refuseNotReady, p, info, out)
		return
	case verbs.GRHLen+uint64(n) > r.rcv.oldest().length:
		r.sawVerdict(p.BTH.Opcode, refuseTooLong)
		r.refuseSilently(refuseTooLong, p, info, out)
		return
	}
	grh := &r.scratch
	clear(grh[:])
	copy(grh[len(grh)-min(len(ip), len(grh)):], ip)
	sgl := r.rcv.sgl()
	if r.access.scatter(r.rcv.pd, sgl, 0, grh[:]) != mem.OK || r.access.scatter(r.rcv.pd, sgl, verbs.GRHLen, p.Payload) != mem.OK {
		r.sawVerdict(p.BTH.Opcode, refuseLocal)
		r.refuseSilently(refuseLocal, p, info, out)
		return
	}
	r.sawVerdict(p.BTH.Opcode, pass)
	wc := r.rcv.complete(verbs.Success, reason.None, out)
	wc.Opcode, wc.Flags, wc.ByteLen = verbs.WCRecv, verbs.WithGRH, verbs.GRHLen+n
	wc.SrcQPN, wc.Solicited = p.DETH.SrcQP, p.BTH.Solicited
	if len(ip) < len(grh) {
		wc.Flags |= verbs.OverIPv4
	}
	if info.Flags&wire.OpImm != 0 {
		wc.Flags |= verbs.WithImm
		wc.Imm = p.ImmDt
	}
}
