package transport

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// responseKind is the kind of a response.
type responseKind uint8

const (
	owedAck     responseKind = iota // ACK, NAK or RNR NAK
	owedAtomic                      // ATOMIC_ACK
	owedWritten                     // the response to an ATOMIC_WRITE or FLUSH: a READ response without payload
	owedRead                        // READ responses
)

// response is a response that the responder has yet to send: it owes the response to the peer. Most
// responses are sent in the step that made them. A READ with many response packets is answered in
// bursts, and the responses after it wait, because responses leave in PSN order.
type response struct {
	kind     responseKind
	fresh    bool // the response occupies a responder resource: its request is a new READ, atomic, ATOMIC_WRITE or FLUSH, not a duplicate
	syndrome wire.Syndrome
	psn      wire.PSN
	requests int    // for an ACK: how many requests it answers
	value    uint64 // for an atomic: the original value of the word
	// For a READ: its memory with its protection domain, the total number of its response packets and the number of those sent,
	// and the MSN when it was executed.
	va            uint64
	pd            mem.PD
	rkey          uint32
	length        uint32
	packets, sent uint32
	msn           uint32
}

// isFatal reports whether a response of this kind, with syndrome s, is a NAK that ends the
// connection. The method owe always has room for such a NAK.
func isFatal(kind responseKind, s wire.Syndrome) bool {
	return kind == owedAck && s.IsNak() && s != wire.NakPSNSequence
}

// covers reports whether psn is the PSN of one of the READ's response packets.
func (e *response) covers(psn wire.PSN) bool {
	d := wire.Diff(psn, e.psn)
	return d >= 0 && uint32(d) < e.packets
}

// answers has the responses that a responder has yet to send, and sends them.
type answers struct {
	*core
	rcv  *receiver
	owed []response // in PSN order
	torn torn
	// msn is the number of messages executed (24 bits).
	msn         uint32
	maxRdAtomic int
	// at is when send must be called again: to send further responses, or to finish a torn copy.
	at clock.Time
}

// start reserves memory for the answers to a peer that may have rdAtomic READs and atomics in
// flight.
func (a *answers) start(rdAtomic int) {
	a.maxRdAtomic = rdAtomic
	if depth := maxOwed(rdAtomic); cap(a.owed) < depth {
		a.owed = make([]response, 0, depth)
	}
}

// resize changes the number of READs and atomics that the peer may have in flight.
func (a *answers) resize(rdAtomic int) {
	a.maxRdAtomic = rdAtomic
	a.owed = slices.Grow(a.owed, max(maxOwed(rdAtomic)-len(a.owed), 0))
}

// last is called when the queue pair enters the error state. It sends the acknowledgements of
// executed requests, so that the peer does not take them for lost, and the NAK of a refused
// request. If no fatal NAK is to be sent, it drops READ responses and the responses behind them. If
// a fatal NAK is to be sent, it also sends the READ responses before the NAK, up to Window packets,
// because the NAK must leave in PSN order.
func (a *answers) last(now clock.Time, out *Actions) {
	n := len(a.owed)
	refused := n > 0 && isFatal(a.owed[n-1].kind, a.owed[n-1].syndrome)
	budget := a.cfg.Window
	for i := range a.owed {
		switch e := &a.owed[i]; e.kind {
		case owedAck:
			a.sendAck(e, out)
		case owedAtomic:
			a.sendAtomicAck(e, out)
		case owedWritten:
			a.sendWritten(e, out)
		case owedRead:
			if !refused {
				return
			}
			for e.sent < e.packets {
				outcome := readRefused
				if budget > 0 {
					outcome = a.sendReadResponse(now, e, out)
				}
				if outcome == readWaits {
					continue // this call has paused in a torn copy; the next call makes the packet
				}
				if outcome == readRefused {
					// A NAK that follows missing responses would make the peer request these again, from a queue
					// pair that does not answer, until its retries are used up. So the peer gets another NAK at
					// once: remote operational error, because the queue pair cannot complete the READ.
					nak := response{psn: e.psn.Add(int(e.sent)), syndrome: wire.NakRemoteOp}
					a.sendAck(&nak, out)
					a.notes.Add(reason.Note{
						At: now, Kind: reason.Refused, Code: reason.LostInterrupted, Opcode: wire.RCReadRequest, Syndrome: nak.syndrome, First: nak.psn, Last: nak.psn, Times: 1,
					})
					return
				}
				budget--
			}
		}
	}
}

// stop drops the responses that were not sent.
func (a *answers) stop() {
	a.owed = a.owed[:0]
	a.torn.kind = notTorn
	a.at = clock.Never
}

// reset forgets the connection. The memory of owed and torn.buf stays allocated for the next
// connection.
func (a *answers) reset() {
	a.stop()
	a.msn, a.maxRdAtomic = 0, 0
	a.torn = torn{core: a.core, buf: a.torn.buf}
}

// executed adds an executed message to the MSN.
func (a *answers) executed() { a.msn = (a.msn + 1) & max24 }

// onlyAck reports whether a single positive ACK is all that the responder owes the peer now.
func (a *answers) onlyAck() bool {
	return len(a.owed) == 1 && a.owed[0].kind == owedAck && a.owed[0].syndrome.IsAck() && !a.torn.active()
}

// maxOwed is the largest number of responses that can wait to be sent: rdAtomic new READs and
// atomics, as many repeated ones, an ACK for each of them, and a few more ACKs and NAKs. The last
// place is for the NAK that ends the connection.
func maxOwed(rdAtomic int) int { return 4*rdAtomic + 5 }

// fresh returns the number of responder resources in use: of responses in owed that answer new
// READs, atomics, ATOMIC_WRITEs or FLUSHes, not duplicates.
func (a *answers) fresh() int {
	n := 0
	for i := range a.owed {
		if a.owed[i].fresh {
			n++
		}
	}
	return n
}

// owe adds a response to those to be sent, in PSN order (IBTA 9.7.5/in-order), behind others of the
// same PSN. It returns the response; the caller sets its other fields. The response replaces a
// positive ACK directly before it, because every response acknowledges all requests before it. If
// too many responses wait, owe returns nil; the peer will send the request again.
func (a *answers) owe(kind responseKind, psn wire.PSN, s wire.Syndrome) *response {
	i, requests := len(a.owed), 1
	for i > 0 && wire.Diff(a.owed[i-1].psn, psn) > 0 {
		i--
	}
	// ACKs of their own wait one by one behind READ responses as long as there is room for them.
	alone := a.cfg.Acks == 1 && i > 0 && a.owed[i-1].psn != psn && len(a.owed) < min(cap(a.owed), maxOwed(a.maxRdAtomic))-a.maxRdAtomic-2
	if i > 0 && a.owed[i-1].kind == owedAck && a.owed[i-1].syndrome.IsAck() && !alone {
		a.env.Counters.AckCoalesced++
		i--
		requests += a.owed[i].requests
	} else if !a.insert(i, isFatal(kind, s)) {
		return nil
	}
	e := &a.owed[i]
	*e = response{}
	e.kind, e.psn, e.syndrome, e.requests = kind, psn, s, requests
	return e
}

// oweRead adds the response to a READ of memory in protection domain pd, with n packets, to those to
// be sent.
func (a *answers) oweRead(p *wire.Packet, pd mem.PD, n uint32) *response {
	e := a.owe(owedRead, p.BTH.PSN, 0)
	if e != nil {
		e.packets, e.msn = n, a.msn
		e.va, e.rkey, e.length, e.pd = p.RETH.VA, p.RETH.RKey, p.RETH.Length, pd
	}
	return e
}

// insert makes room for a response at index i. It returns false if too many responses wait. The
// last place is reserved: only a NAK that ends the connection (fatal) gets it.
func (a *answers) insert(i int, fatal bool) bool {
	// cap(a.owed) may exceed maxOwed: reset keeps the memory, and the connection before may have
	// had a larger maxRdAtomic.
	n, most := len(a.owed), min(cap(a.owed), maxOwed(a.maxRdAtomic))
	if n >= most || n == most-1 && !fatal {
		return false
	}
	if a.owed = a.owed[:n+1]; i < n {
		copy(a.owed[i+1:], a.owed[i:])
	}
	return true
}

// withdrawNak removes an RNR NAK and a sequence NAK that wait to be sent behind a long READ. It is
// called when the packet that these NAKs request has arrived.
func (a *answers) withdrawNak() {
	for n := len(a.owed); n > 0 && a.owed[n-1].kind == owedAck && !a.owed[n-1].syndrome.IsAck(); n-- {
		a.owed = a.owed[:n-1]
	}
}

// send sends the responses that wait. A step sends at most Window READ response packets. The rest
// is due at once, so that other queue pairs can send in between. send returns true if all responses
// were sent.
func (a *answers) send(now clock.Time, out *Actions) bool {
	if a.torn.active() {
		if now < a.torn.until {
			a.at = a.torn.until
			return false
		}
		a.torn.settleWrite()
	}
	a.at = clock.Never
	for budget := a.cfg.Window; len(a.owed) > 0; {
		e := &a.owed[0]
		switch e.kind {
		case owedAck:
			a.sendAck(e, out)
		case owedAtomic:
			a.sendAtomicAck(e, out)
		case owedWritten:
			a.sendWritten(e, out)
		case owedRead:
			for e.sent < e.packets {
				if budget == 0 {
					a.at = now
					return false
				}
				if at, wait := mustPause(a.cfg.Flow, now); wait {
					a.at = at
					return false
				}
				budget--
				before := len(out.Tx)
				switch a.sendReadResponse(now, e, out) {
				case readSent:
					charge(a.cfg.Flow, now, before, out)
				case readWaits:
					a.at = a.torn.until
					return false
				case readRefused:
					a.refuseRead(e, out)
					return false
				}
			}
		}
		if len(a.owed) > 1 {
			copy(a.owed, a.owed[1:])
		}
		a.owed = a.owed[:len(a.owed)-1]
	}
	return true
}

func (a *answers) sendAck(e *response, out *Actions) {
	tx := a.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = wire.RCAck|a.svc.opcodes, e.psn
	tx.AETH = wire.AETH{Syndrome: e.syndrome, MSN: a.msn}
}

func (a *answers) sendAtomicAck(e *response, out *Actions) {
	tx := a.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = wire.RCAtomicAck|a.svc.opcodes, e.psn
	tx.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: a.msn}
	tx.AtomicAck = e.value
}

func (a *answers) sendWritten(e *response, out *Actions) {
	tx := a.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = wire.RCReadResponseOnly|a.svc.opcodes, e.psn
	tx.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: a.msn}
}

// readOutcome is the result of making the next response packet of a READ.
type readOutcome uint8

const (
	readSent    readOutcome = iota
	readWaits               // the rest of a torn copy is due later
	readRefused             // the region was deregistered, or its memory unmapped
)

func (a *answers) sendReadResponse(now clock.Time, e *response, out *Actions) readOutcome {
	off := e.sent * a.mtu
	n := min(a.mtu, e.length-off)
	va, psn := e.va+uint64(off), e.psn.Add(int(e.sent))
	src, ok := a.access.remoteIn(e.pd, e.rkey, va, n, verbs.RemoteRead)
	switch {
	case !ok && e.fresh:
		return readRefused
	case !ok:
		// A duplicate READ whose region was deregistered gets no response. It may be an old copy from the
		// network, and a NAK would end the connection.
		e.sent = e.packets
		return readSent
	}
	var payload []byte
	if n > 0 {
		payload = out.alloc(int(n))
		whole, there := a.torn.copyRead(now, psn, payload, src, va)
		switch {
		case !there && e.fresh:
			return readRefused // the memory of the region was unmapped
		case !there:
			e.sent = e.packets
			return readSent
		case !whole:
			return readWaits
		}
	}
	tx := a.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = readOpcode(e.sent, e.packets)|a.svc.opcodes, psn
	if tx.BTH.Opcode.Has(wire.HasAETH) {
		tx.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: e.msn}
	}
	tx.Payload = payload
	e.sent++
	return readSent
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

// refuseRead ends the connection because the region of a READ was deregistered, or its memory
// unmapped, before all response packets were sent. It drops the responses that follow.
func (a *answers) refuseRead(e *response, out *Actions) {
	nak := response{kind: owedAck, psn: e.psn.Add(int(e.sent)), syndrome: wire.NakRemoteAccess}
	off := e.sent * a.mtu
	why := a.env.Mem.Refused(e.pd, a.cfg.QPN, e.rkey, e.va+uint64(off), min(a.mtu, e.length-off), verbs.RemoteRead)
	if why.Fault == mem.OK {
		why.Fault = mem.BadPage
	}
	a.notes.Add(reason.Note{
		At: a.lastNow, Kind: reason.Refused, Code: reason.LateRead, Opcode: wire.RCReadRequest, Syndrome: nak.syndrome, First: nak.psn, Last: nak.psn, Times: 1, Mem: why,
	})
	a.owed = a.owed[:0]
	a.sendAck(&nak, out)
	a.env.Counters.RespAccessErr++
	if a.rcv.held {
		a.rcv.complete(verbs.LocAccessErr, reason.LateRead, out)
	}
	a.raise(verbs.EventQPAccessErr, out)
	a.qp.fault(reason.AfterRefusal, out)
}
