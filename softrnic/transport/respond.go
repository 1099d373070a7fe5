package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// responseKind is what a response is.
type responseKind uint8

const (
	owedAck    responseKind = iota // ACK, NAK or RNR NAK
	owedAtomic                     // ATOMIC_ACK
	owedRead                       // READ responses
)

// response is an answer that the responder owes. Most are sent in the step that made them; a long READ is sent in
// bursts, and what comes after it waits, because answers leave in PSN order.
type response struct {
	kind     responseKind
	fresh    bool // of a new READ or atomic: it occupies a responder resource
	syndrome wire.Syndrome
	psn      wire.PSN
	value    uint64 // of an atomic
	// A READ: memory, response packets in all and sent, MSN when it was executed.
	va            uint64
	rkey          uint32
	length        uint32
	packets, sent uint32
	msn           uint32
}

// covers reports that psn is one of the response packets.
func (e *response) covers(psn wire.PSN) bool {
	d := wire.Diff(psn, e.psn)
	return d >= 0 && uint32(d) < e.packets
}

// maxOwed bounds the responses owed: fresh and repeated READs and atomics, ACKs between them, and a NAK.
func maxOwed(rdAtomic int) int { return 4*rdAtomic + 4 }

// owedFresh counts the responder resources in use.
func (q *QP) owedFresh() int {
	n := 0
	for i := range q.rsp.owed {
		if q.rsp.owed[i].fresh {
			n++
		}
	}
	return n
}

// owe queues a response in PSN order (IBTA 9.7.5/in-order), behind others of the same PSN. It swallows a positive ACK right before it, as
// every response acknowledges what is before it. False says that too many are owed; the peer will ask again.
func (q *QP) owe(e response) bool {
	r := &q.rsp
	i := len(r.owed)
	for i > 0 && wire.Diff(r.owed[i-1].psn, e.psn) > 0 {
		i--
	}
	if i > 0 {
		if prev := &r.owed[i-1]; prev.kind == owedAck && prev.syndrome.IsAck() {
			q.env.Counters.AckCoalesced++
			*prev = e
			return true
		}
	}
	if len(r.owed) == cap(r.owed) {
		return false
	}
	r.owed = append(r.owed, response{})
	copy(r.owed[i+1:], r.owed[i:])
	r.owed[i] = e
	return true
}

// withdrawNak takes back an RNR NAK and a sequence NAK that wait behind a long READ when the packet that they ask for
// has come.
func (q *QP) withdrawNak() {
	r := &q.rsp
	for n := len(r.owed); n > 0 && r.owed[n-1].kind == owedAck && !r.owed[n-1].syndrome.IsAck(); n-- {
		r.owed = r.owed[:n-1]
	}
}

// respond sends what is owed, at most Window READ response packets at a time: the rest is due at once, so that
// other queue pairs come between.
func (q *QP) respond(now clock.Time, out *Actions) {
	r := &q.rsp
	if r.torn.active() {
		if now < r.torn.until {
			r.respondAt = r.torn.until
			return
		}
		q.settleWrite()
	}
	r.respondAt = clock.Never
	for budget := q.cfg.Window; len(r.owed) > 0; {
		e := &r.owed[0]
		switch e.kind {
		case owedAck:
			q.sendAck(e, out)
		case owedAtomic:
			q.sendAtomicAck(e, out)
		case owedRead:
			for e.sent < e.packets {
				if budget == 0 {
					r.respondAt = now
					return
				}
				budget--
				if !q.sendReadResponse(now, e, out) {
					return
				}
			}
		}
		r.owed = r.owed[:copy(r.owed, r.owed[1:])]
	}
	if r.dying {
		q.fault(out)
	}
}

func (q *QP) sendAck(e *response, out *Actions) {
	tx := q.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = wire.RCAck, e.psn
	tx.AETH = wire.AETH{Syndrome: e.syndrome, MSN: q.rsp.msn}
}

func (q *QP) sendAtomicAck(e *response, out *Actions) {
	tx := q.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = wire.RCAtomicAck, e.psn
	tx.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: q.rsp.msn}
	tx.AtomicAck = e.value
}

// sendReadResponse sends the next packet of a READ. False says that respond must stop: the rest of a torn copy is
// due later, or the connection has ended.
func (q *QP) sendReadResponse(now clock.Time, e *response, out *Actions) bool {
	off := e.sent * q.mtu
	n := min(q.mtu, e.length-off)
	va, psn := e.va+uint64(off), e.psn.Add(int(e.sent))
	src, ok := q.remote(e.rkey, va, n, verbs.RemoteRead)
	switch {
	case !ok && e.fresh:
		q.refuseRead(e, out)
		return false
	case !ok:
		// A stray copy of an old request must not end the connection because its region is gone meanwhile.
		e.sent = e.packets
		return true
	}
	var payload []byte
	if n > 0 {
		payload = out.alloc(int(n))
		if !q.copyRead(now, psn, payload, src, va) {
			return false
		}
	}
	tx := q.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = readOpcode(e.sent, e.packets), psn
	if tx.BTH.Opcode != wire.RCReadResponseMiddle {
		tx.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: e.msn}
	}
	tx.Payload = payload
	e.sent++
	return true
}

func readOpcode(i, packets uint32) wire.Opcode {
	switch {
	case packets == 1:
		return wire.RCReadResponseOnly
	case i == 0:
		return wire.RCReadResponseFirst
	case i+1 == packets:
		return wire.RCReadResponseLast
	}
	return wire.RCReadResponseMiddle
}

// refuseRead ends the connection for a READ whose region went away while it was being answered. What is owed behind
// it is not owed any more.
func (q *QP) refuseRead(e *response, out *Actions) {
	nak := response{kind: owedAck, psn: e.psn.Add(int(e.sent)), syndrome: wire.NakRemoteAccess}
	q.rsp.owed = q.rsp.owed[:0]
	q.sendAck(&nak, out)
	q.env.Counters.RespAccessErr++
	if q.rsp.recvHeld {
		q.completeRecv(verbs.WC{Status: verbs.LocAccessErr}, out)
	}
	q.raise(verbs.EventQPAccessErr, out)
	q.fault(out)
}
