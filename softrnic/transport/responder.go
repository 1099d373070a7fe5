package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// message is the kind of multi-packet message that a responder is in the middle of.
type message uint8

const (
	noMessage message = iota
	inSend
	inWrite
)

// responder is the executing half.
type responder struct {
	// ePSN is the expected PSN, msn the number of messages executed (24 bits).
	ePSN wire.PSN
	msn  uint32
	// nakSent says that the current gap was answered with its one sequence NAK.
	nakSent bool
	// established is set by the first request.
	established bool
	// dying says that a request was refused for good: what is owed is still sent, then the queue pair fails.
	dying bool

	msg message
	// received counts the bytes of the SEND in progress.
	received uint32
	// va, rkey and left describe the rest of the WRITE in progress.
	va   uint64
	rkey uint32
	left uint32
	// skip says that the rest of the message that is coming in is dropped (UC).
	skip bool
	// recvHeld says that the head of the receive queue belongs to the message in progress.
	recvHeld bool

	maxRdAtomic int
	owed        []response // in PSN order
	replay      []result   // newest last, at most maxRdAtomic
	torn        torn
	// respondAt is when owed responses or the rest of a torn copy are due.
	respondAt clock.Time
}

func (r *responder) start(a verbs.ToRTR) {
	r.ePSN, r.maxRdAtomic = a.RecvPSN, a.MaxDestRdAtomic
	if depth := maxOwed(a.MaxDestRdAtomic); cap(r.owed) < depth {
		r.owed = make([]response, 0, depth)
	}
	if cap(r.replay) < a.MaxDestRdAtomic {
		r.replay = make([]result, 0, a.MaxDestRdAtomic)
	}
}

// stop drops what is owed.
func (r *responder) stop() {
	r.owed = r.owed[:0]
	r.dying = false
	r.torn.kind = notTorn
	r.respondAt = clock.Never
}

// verdict is the outcome of a check of the chain.
type verdict uint8

const (
	pass verdict = iota
	refuseSequence
	refuseOpcode
	refuseOperation
	refuseDepth
	refuseNotReady
	refuseLength
	refuseTooLong
	refuseAccess
	refuseAlignment
	refuseInvalidate
	refuseLocal
)

// refusal is what follows from a verdict.
type refusal struct {
	why     string
	nak     wire.Syndrome
	recv    verbs.Status // of the receive in use, if any
	event   verbs.AsyncKind
	counter counter
}

// counter names the metric of a refusal.
type counter uint8

const (
	countInvalid counter = iota
	countAccess
	countLocal
)

// count notes the refusal of a request.
func (f *refusal) count(c *metrics.NIC) {
	switch f.counter {
	case countInvalid:
		c.RespInvalidErr++
	case countAccess:
		c.RespAccessErr++
	case countLocal:
		c.RespOpErr++
	}
}

// refusals are the errors for which the connection ends: NAK, the receive in use completes with an error, and the
// queue pair goes to the error state (IBTA 9.9.3/fatal, responder classes B and C). refuseNotReady is none of them.
var refusals = [...]refusal{
	refuseSequence:   {"opcode out of sequence", wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseOpcode:     {"reserved opcode", wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseOperation:  {"operation not enabled on the queue pair", wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseDepth:      {"more READs and atomics than responder resources", wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseLength:     {"wrong length", wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseTooLong:    {"SEND longer than the receive", wire.NakInvalid, verbs.LocLenErr, verbs.EventQPReqErr, countInvalid},
	refuseAccess:     {"remote access error", wire.NakRemoteAccess, verbs.LocAccessErr, verbs.EventQPAccessErr, countAccess},
	refuseAlignment:  {"misaligned atomic", wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseInvalidate: {"key to invalidate is not valid", wire.NakRemoteAccess, verbs.LocAccessErr, verbs.EventQPAccessErr, countAccess},
	refuseLocal:      {"receive buffer not accessible", wire.NakRemoteOp, verbs.LocProtErr, verbs.EventQPFatal, countLocal},
}

// handleRequest takes a request packet (IBTA 9.7.4.1/order).
func (q *QP) handleRequest(now clock.Time, p *wire.Packet, out *Actions) {
	if q.rsp.dying {
		q.saw(p.BTH.Opcode, "after refusal")
		return
	}
	q.settleWrite()
	info := p.BTH.Opcode.Info()
	q.establish(out)
	switch d := wire.Diff(p.BTH.PSN, q.rsp.ePSN); {
	case d > 0:
		q.saw(p.BTH.Opcode, "ahead")
		q.outOfSequence()
	case d < 0:
		q.saw(p.BTH.Opcode, "behind")
		q.duplicate(p, info)
	default:
		q.rsp.nakSent = false
		q.withdrawNak()
		q.expected(p, info, out)
	}
	if q.cfg.CoalesceAcks && len(q.rsp.owed) == 1 && q.rsp.owed[0].kind == owedAck && q.rsp.owed[0].syndrome.IsAck() && !q.rsp.torn.active() {
		q.rsp.respondAt = now
		return
	}
	q.respond(now, out)
}

// establish notes the first packet from the peer. In RTR it is an event: the peer is ready (IBTA 11.6.3.1/established).
func (q *QP) establish(out *Actions) {
	if q.rsp.established {
		return
	}
	q.rsp.established = true
	if q.state == verbs.StateRTR {
		q.raise(verbs.EventCommEst, out)
	}
}

// outOfSequence answers the first packet behind a gap with one NAK; the rest of them is dropped silently (IBTA
// 9.7.5/one-nak).
func (q *QP) outOfSequence() {
	q.env.Counters.OutOfSequence++
	if q.rsp.nakSent {
		return
	}
	q.rsp.nakSent = true
	q.env.Counters.SendSeqNak++
	q.owe(response{kind: owedAck, psn: q.rsp.ePSN, syndrome: wire.NakPSNSequence})
}

// chain is the order of the checks of a request with the expected PSN. The order decides which NAK the peer gets
// (IBTA 9.7.4.1/order).
var chain = [...]struct {
	name  string
	check func(*QP, *wire.Packet, *wire.OpInfo) verdict
}{
	{"opcode sequence", (*QP).checkSequence},
	{"opcode valid", (*QP).checkOperation},
	{"resources", (*QP).checkResources},
	{"length", (*QP).checkLength},
	{"rkey", (*QP).checkKey},
	{"execute", (*QP).execute},
}

// expected runs a request through the chain, completes and acknowledges it.
func (q *QP) expected(p *wire.Packet, info *wire.OpInfo, out *Actions) {
	for i := range chain {
		if v := chain[i].check(q, p, info); v != pass {
			q.sawVerdict(p.BTH.Opcode, v)
			q.refuse(v, out)
			return
		}
	}
	q.sawVerdict(p.BTH.Opcode, pass)
	r := &q.rsp
	switch {
	case info.Flags&wire.OpRead != 0:
		n := packetsOf(p.RETH.Length, q.mtu)
		r.msn = (r.msn + 1) & max24
		r.ePSN = r.ePSN.Add(int(n))
		q.owe(response{kind: owedRead, psn: p.BTH.PSN, packets: n, va: p.RETH.VA, rkey: p.RETH.RKey, length: p.RETH.Length, msn: r.msn, fresh: true})
		return
	case info.Flags&wire.OpAtomic != 0:
		r.msn = (r.msn + 1) & max24
		r.ePSN = r.ePSN.Next()
		q.owe(response{kind: owedAtomic, psn: p.BTH.PSN, value: r.replay[len(r.replay)-1].value, fresh: true})
		return
	}
	if info.Flags&(wire.OpLast|wire.OpOnly) != 0 {
		r.msn = (r.msn + 1) & max24
		q.completeMessage(p, info, out)
	}
	r.ePSN = r.ePSN.Next()
	if p.BTH.AckReq {
		q.owe(response{kind: owedAck, psn: p.BTH.PSN, syndrome: wire.AckNoCredits})
	}
}

// refuse answers a request that failed a check. All but RNR end the connection once the NAK is out.
func (q *QP) refuse(v verdict, out *Actions) {
	c := q.env.Counters
	if v == refuseNotReady {
		c.OutOfBuffer++
		c.SendRnrErr++
		q.owe(response{kind: owedAck, psn: q.rsp.ePSN, syndrome: wire.RNRNak | wire.Syndrome(q.rtr.MinRNRTimer)})
		return
	}
	f := &refusals[v]
	f.count(c)
	if q.rsp.recvHeld {
		q.completeRecv(verbs.WC{Status: f.recv}, out)
	}
	q.owe(response{kind: owedAck, psn: q.rsp.ePSN, syndrome: f.nak})
	q.raise(f.event, out)
	q.rsp.dying = true
}

// completeMessage ends a SEND or WRITE: a receive that it used is completed.
func (q *QP) completeMessage(p *wire.Packet, info *wire.OpInfo, out *Actions) {
	r := &q.rsp
	write := info.Flags&wire.OpWrite != 0
	r.msg = noMessage
	if write {
		q.env.Counters.RxWriteRequests++
	}
	if !r.recvHeld {
		return
	}
	wc := verbs.WC{Opcode: verbs.WCRecv, ByteLen: r.received, Solicited: p.BTH.Solicited}
	if write {
		wc.Opcode = verbs.WCRecvWriteImm
	}
	if info.Flags&wire.OpImm != 0 {
		wc.Flags, wc.Imm = verbs.WithImm, p.ImmDt
	}
	if info.Flags&wire.OpInv != 0 {
		wc.Flags, wc.InvRKey = verbs.WithInv, p.IETH
	}
	q.completeRecv(wc, out)
}

// completeRecv retires the oldest receive.
func (q *QP) completeRecv(wc verbs.WC, out *Actions) {
	c := q.env.Counters
	switch wc.Status {
	case verbs.Success:
		c.RdmaRecvs++
	case verbs.WRFlushErr:
		c.CqeFlushErr++
	default:
		c.CqeErr++
	}
	wc.ID, wc.QPN = q.rq.at(q.rq.head).id, q.cfg.QPN
	if !q.svc.datagram {
		wc.SrcQPN = q.rtr.DestQPN
	}
	q.rq.head++
	q.rsp.recvHeld = false
	out.Done = append(out.Done, Completion{CQ: q.cfg.RecvCQ, WC: wc})
}

// packetsOf is how many response packets a READ has.
func packetsOf(length, mtu uint32) uint32 { return max(1, (length+mtu-1)/mtu) }

// remote is the peer's right to memory that a request names.
func (q *QP) remote(rkey uint32, va uint64, n uint32, need verbs.Access) ([]byte, bool) {
	b, fault := q.env.Mem.Remote(q.cfg.PD, q.cfg.QPN, rkey, va, n, need)
	return b, fault == mem.OK
}
