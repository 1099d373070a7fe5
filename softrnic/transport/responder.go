package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// responder handles the requests of the peer. It classifies each by its PSN, makes the executor
// execute it, and answers it.
type responder struct {
	*core
	rcv     *receiver
	exec    executor
	answers answers
	// ePSN is the expected PSN.
	ePSN  wire.PSN
	phase phase
	// skip is true while the rest of the arriving message is dropped (UC only).
	skip bool
	// held is not nil if the connection uses selective retransmission.
	held *heldPackets
}

// start is called at the transition to RTR. It sets the expected PSN and reserves memory for the
// answers to READs and atomics.
func (r *responder) start(a verbs.ToRTR) {
	r.ePSN = a.RecvPSN
	r.answers.start(a.MaxDestRdAtomic)
	if r.held = nil; r.selects() {
		r.held = newHeldPackets(r.cfg.Recovery.Reach(r.cfg.Window), r.cfg.Recovery.Kind)
	}
	if cap(r.exec.replay.all) < a.MaxDestRdAtomic {
		r.exec.replay.all = make([]result, 0, a.MaxDestRdAtomic)
	}
}

// stop drops the responses that were not sent.
func (r *responder) stop() {
	r.phase.on(stopped)
	r.held = nil
	r.answers.stop()
}

func (r *responder) reset() {
	r.ePSN, r.phase, r.skip, r.held = 0, phaseSilent, false, nil
	r.exec.reset()
	r.answers.reset()
}

// verdict is the result of a check of a request (see executor.run).
type verdict uint8

const (
	pass verdict = iota
	refuseSequence
	refuseOpcode
	refuseSRQ
	refuseDomain
	refuseBrokenSRQ
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

// refusal has the consequences of a verdict that refuses a request.
type refusal struct {
	code    reason.Code // of memory: the first of five codes, see reason.OfRemote
	nak     wire.Syndrome
	recv    verbs.Status // completion status of the receive in use, if any
	event   verbs.AsyncKind
	counter counter
}

// counter selects the metric that counts a refusal.
type counter uint8

const (
	countInvalid counter = iota
	countAccess
	countLocal
)

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

// refusals has the errors that end the connection: the responder sends the NAK, the receive in use
// completes with an error, and the queue pair goes to the error state (IBTA 9.9.3/fatal, responder
// classes B and C). refuseNotReady has no entry, because the responder only answers with an RNR
// NAK.
var refusals = [...]refusal{
	refuseSequence:   {reason.BadSequence, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseOpcode:     {reason.ReservedOpcode, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseSRQ:        {reason.NoSRQ, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseDomain:     {reason.WrongXRCDomain, wire.NakRemoteAccess, verbs.LocAccessErr, verbs.EventQPAccessErr, countAccess},
	refuseBrokenSRQ:  {reason.BrokenSRQ, wire.NakRemoteOp, verbs.LocQPOpErr, verbs.EventQPFatal, countLocal},
	refuseOperation:  {reason.NotEnabled, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseDepth:      {reason.TooManyReads, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseLength:     {reason.WrongLength, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseTooLong:    {reason.TooLong, wire.NakInvalid, verbs.LocLenErr, verbs.EventQPReqErr, countInvalid},
	refuseAccess:     {reason.RemoteKey, wire.NakRemoteAccess, verbs.LocAccessErr, verbs.EventQPAccessErr, countAccess},
	refuseAlignment:  {reason.Misaligned, wire.NakInvalid, verbs.RemInvReqErr, verbs.EventQPReqErr, countInvalid},
	refuseInvalidate: {reason.BadInvalidate, wire.NakRemoteAccess, verbs.LocAccessErr, verbs.EventQPAccessErr, countAccess},
	refuseLocal:      {reason.ReceiveKey, wire.NakRemoteOp, verbs.LocProtErr, verbs.EventQPFatal, countLocal},
}

// handle handles a request packet (IBTA 9.7.4.1/order).
func (r *responder) handle(now clock.Time, p *wire.Packet, out *Actions) {
	if r.phase == phaseRefused {
		r.saw(p.BTH.Opcode, "after refusal")
		return
	}
	r.answers.torn.settleWrite()
	info := p.BTH.Opcode.Info()
	r.establish(out)
	switch d := wire.Diff(p.BTH.PSN, r.ePSN); {
	case d > 0:
		r.saw(p.BTH.Opcode, "ahead")
		if r.held != nil {
			r.holdAhead(now, p, int(d), out)
			return
		}
		r.outOfSequence(p)
	case d < 0:
		r.saw(p.BTH.Opcode, "behind")
		r.duplicate(p, info)
	default:
		r.phase.on(heardExpected)
		r.answers.withdrawNak()
		was := r.ePSN
		r.expected(p, info, out)
		if r.held != nil {
			r.executeHeld(was, endsMessage(info), out)
		}
	}
	if r.answers.wait(now) {
		return
	}
	r.respond(now, out)
}

// establish handles the first packet from the peer. In RTR it raises EventCommEst, because the
// packet shows that the peer is ready (IBTA 11.6.3.1/established).
func (r *responder) establish(out *Actions) {
	if r.phase != phaseSilent {
		return
	}
	r.phase.on(heardFirst)
	if r.state == verbs.StateRTR {
		r.raise(verbs.EventCommEst, out)
	}
}

// outOfSequence answers the first packet behind a gap in the PSNs with a sequence NAK. Later
// packets behind the same gap are dropped silently (IBTA 9.7.5/one-nak).
func (r *responder) outOfSequence(p *wire.Packet) {
	r.env.Counters.OutOfSequence++
	if r.phase == phaseGap {
		if n := r.notes.Newest(); n != nil && n.Kind == reason.Missed {
			n.Times++
		}
		return
	}
	r.noteMissed(p)
	r.phase.on(heardAhead)
	r.env.Counters.SendSeqNak++
	r.answers.owe(owedAck, r.ePSN, wire.NakPSNSequence)
}

// expected handles a request with the expected PSN. The executor checks and executes it; then
// expected completes and acknowledges it.
func (r *responder) expected(p *wire.Packet, info *wire.OpInfo, out *Actions) {
	if v := r.exec.run(p, info); v != pass {
		r.refuse(v, p, info, out)
		return
	}
	switch {
	case info.Flags&wire.OpRead != 0:
		n := packetsOf(p.RETH.Length, r.mtu)
		r.answers.executed()
		r.ePSN = r.ePSN.Add(int(n))
		if e := r.answers.oweRead(p, r.access.guests, n); e != nil {
			e.fresh = true
		}
		return
	case info.Flags&(wire.OpAtomic|wire.OpFlush) != 0:
		r.answers.executed()
		r.ePSN = r.ePSN.Next()
		if e := r.answers.oweResult(r.exec.replay.last()); e != nil {
			e.fresh = true
		}
		return
	}
	if info.Flags&(wire.OpLast|wire.OpOnly) != 0 {
		r.answers.executed()
		r.exec.completeMessage(p, info, out)
	}
	r.ePSN = r.ePSN.Next()
	if p.BTH.AckReq {
		r.answers.owe(owedAck, p.BTH.PSN, wire.AckNoCredits)
	}
}

// refuse answers a request that a check has refused. Every refusal except RNR ends the connection
// when its NAK is sent.
func (r *responder) refuse(v verdict, p *wire.Packet, info *wire.OpInfo, out *Actions) {
	c := r.env.Counters
	if v == refuseNotReady {
		c.OutOfBuffer++
		c.SendRnrErr++
		s := wire.RNRNak | wire.Syndrome(r.rtr.MinRNRTimer)
		r.answers.owe(owedAck, r.ePSN, s)
		r.noteNotReady(p, s)
		return
	}
	f := &refusals[v]
	f.count(c)
	code := r.noteRefusal(v, p, info, f.nak)
	if r.rcv.held {
		r.rcv.complete(f.recv, code, out)
	}
	r.answers.owe(owedAck, r.ePSN, f.nak)
	r.raise(f.event, out)
	r.phase.on(refusedFatally)
}

// packetsOf returns the number of packets for length bytes of payload, at least one: the response
// packets of a READ, or the request packets of a SEND or WRITE.
func packetsOf(length, mtu uint32) uint32 { return max(1, (length+mtu-1)/mtu) }

// respond sends the responses that wait. If the last one is a fatal NAK, it then makes the queue
// pair fail.
func (r *responder) respond(now clock.Time, out *Actions) {
	if r.held != nil {
		r.sendSelectiveNak(out)
	}
	if r.answers.send(now, out) && r.phase == phaseRefused {
		r.qp.fault(reason.AfterRefusal, out)
	}
}
