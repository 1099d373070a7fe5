package transport

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// completer matches the responses of the peer with the work requests of a reliable connection.
type completer struct {
	*core
	req *requester
}

// handle handles a response: an ACK, a NAK, or the data of a READ or an atomic. It drops a response
// to a PSN that is not in flight (a ghost, IBTA 9.7.6.1/ghost).
func (c *completer) handle(now clock.Time, p *wire.Packet, out *Actions) {
	if c.req.sel != nil {
		c.req.sel.handle(now, p, out)
		return
	}
	psn, op := p.BTH.PSN, p.BTH.Opcode.Plain()
	if c.req.offset(psn) >= c.req.offset(c.req.maxPSN) {
		c.saw(p.BTH.Opcode, "stale")
		c.env.Counters.DuplicateAck++ // an old response, or a response to a request that was never sent
		return
	}
	switch op {
	case wire.RCAck:
		c.handleAETH(now, p, out)
	case wire.RCAtomicAck:
		if c.acknowledge(now, psn, out) {
			c.atomicAnswer(p, out)
		}
	default:
		if c.acknowledge(now, psn, out) {
			c.readAnswer(p, out)
		}
	}
	c.req.pump(now, out)
	c.req.sender.checkDrained(out)
}

// nakStatuses has the completion status and the reason for each fatal NAK code (IBTA 9.7.5/codes).
var nakStatuses = map[wire.Syndrome]struct {
	status verbs.Status
	code   reason.Code
}{
	wire.NakInvalid:      {verbs.RemInvReqErr, reason.PeerInvalid},
	wire.NakRemoteAccess: {verbs.RemAccessErr, reason.PeerAccess},
	wire.NakRemoteOp:     {verbs.RemOpErr, reason.PeerOperation},
}

// handleAETH handles an ACK, NAK or RNR NAK whose PSN is in flight.
func (c *completer) handleAETH(now clock.Time, p *wire.Packet, out *Actions) {
	psn, s := p.BTH.PSN, p.AETH.Syndrome
	if s.IsAck() {
		c.sawAnswer(s)
		c.acknowledge(now, psn.Next(), out)
		return
	}
	if c.req.retry.rnrAt != clock.Never && psn == c.req.una && (s.IsRNR() || s == wire.NakPSNSequence) {
		// The requester already waits, because an RNR NAK has refused the request at PSN una. A
		// second RNR NAK for it, or a sequence NAK for the packets behind it, does not change this
		// wait.
		c.saw(p.BTH.Opcode, "while waiting")
		c.env.Counters.DuplicateAck++
		return
	}
	// A NAK acknowledges everything before it (IBTA 9.7.5/nak-acknowledges).
	if !c.acknowledge(now, psn, out) {
		return
	}
	c.sawAnswer(s)
	switch {
	case s.IsRNR():
		c.req.receiverNotReady(now, s.Value(), out)
	case s == wire.NakPSNSequence:
		c.env.Counters.PacketSeqErr++
		c.req.nakked(now, reason.SequenceNak, out)
	default:
		c.fatalNak(s, out)
	}
}

// fatalNak ends the connection. The oldest work request, which the NAK refuses, completes with the
// status of the NAK code.
func (c *completer) fatalNak(s wire.Syndrome, out *Actions) {
	nak, ok := nakStatuses[s]
	n := c.env.Counters
	switch {
	case !ok:
		n.BadResponse++
		nak.status, nak.code = verbs.BadRespErr, reason.PeerUnknown // a reserved NAK code
	case s == wire.NakInvalid:
		n.RemoteInvalidErr++
	case s == wire.NakRemoteAccess:
		n.RemoteAccessErr++
	case s == wire.NakRemoteOp:
		n.RemoteOpErr++
	}
	c.req.sender.failOldest(nak.status, nak.code, out)
}

// acknowledge is called for a response that acknowledges all requests before PSN `end`, and marks
// these as acknowledged. If a READ or atomic before `end` still lacks its response, the response
// that has arrived is an implied NAK for it: acknowledge stops there, calls impliedNak and returns
// false.
func (c *completer) acknowledge(now clock.Time, end wire.PSN, out *Actions) bool {
	moved := false
	for c.req.una != end {
		w := c.req.sender.sq.at(c.req.sender.sq.head)
		if w.answered() {
			if moved {
				c.req.progress()
			}
			c.sawRetry("implied NAK")
			c.req.impliedNak(now, out)
			return false
		}
		moved = true
		c.advance(w, min(c.req.offset(end), w.packets-w.acked), out)
	}
	if moved {
		c.req.progress()
	}
	return true
}

// advance acknowledges n packets of the oldest work request.
func (c *completer) advance(w *sendWQE, n uint32, out *Actions) {
	before := w.inFlight()
	w.acked += n
	c.req.una = c.req.una.Add(int(n))
	if !w.answered() {
		w.sent = max(w.sent, w.acked) // the response is to packets that were sent before the retry
	}
	c.req.window.flight += w.inFlight() - before
	c.req.window.widen(int(n))
	if c.cfg.Flow != nil {
		c.req.pacedAck(int(n))
	}
	if w.acked == w.packets {
		c.req.sender.completeSend(w, verbs.Success, reason.None, out)
	}
}

// positive reports whether a response is positive: it has no AETH, or its AETH says ACK. A NAK is
// always an ACKNOWLEDGE packet and carries no data (IBTA 9.7.5.1/positive).
func positive(p *wire.Packet) bool {
	return !p.BTH.Opcode.Has(wire.HasAETH) || p.AETH.Syndrome.IsAck()
}

// readAnswer handles a READ response packet for the oldest PSN that is not acknowledged (una). The
// packet belongs to a READ or, without payload, to an ATOMIC_WRITE or FLUSH.
func (c *completer) readAnswer(p *wire.Packet, out *Actions) {
	w := c.req.sender.sq.at(c.req.sender.sq.head)
	if !positive(p) || !c.fitsRead(w, p) {
		c.saw(p.BTH.Opcode, "bad")
		c.badResponse(out)
		return
	}
	if c.access.scatter(c.cfg.PD, c.req.sender.sq.sgl(c.req.sender.sq.head), w.acked*c.mtu, p.Payload) != mem.OK {
		c.saw(p.BTH.Opcode, "local")
		c.req.sender.failOldest(verbs.LocProtErr, reason.None, out)
		return
	}
	c.saw(p.BTH.Opcode, "taken")
	c.advance(w, 1, out)
	c.req.progress()
}

// fitsRead checks opcode and length of the next response packet (IBTA 9.7.6.1/response). When the
// requester has requested the rest of a READ again, some responders begin the new responses with
// FIRST or ONLY, and others continue with MIDDLE or LAST. The requester accepts both.
func (c *completer) fitsRead(w *sendWQE, p *wire.Packet) bool {
	op := p.BTH.Opcode.Plain()
	if w.op != verbs.OpRead {
		return (w.op == verbs.OpAtomicWrite || w.op == verbs.OpFlush) && op == wire.RCReadResponseOnly && len(p.Payload) == 0
	}
	missing := w.length - w.acked*c.mtu
	ends := op.Is(wire.OpLast | wire.OpOnly)
	begins := op.Is(wire.OpFirst | wire.OpOnly)
	switch {
	case begins && w.acked != w.askedFrom, !begins && w.acked == 0:
		return false
	case missing > c.mtu:
		return !ends && len(p.Payload) == int(c.mtu)
	}
	return ends && len(p.Payload) == int(missing)
}

// atomicAnswer handles the response to an atomic whose PSN is the oldest one that is not
// acknowledged (una). The response carries the original value of the word.
func (c *completer) atomicAnswer(p *wire.Packet, out *Actions) {
	w := c.req.sender.sq.at(c.req.sender.sq.head)
	if !w.atomic() || !positive(p) {
		c.saw(p.BTH.Opcode, "bad")
		c.badResponse(out)
		return
	}
	word := c.scratch[:atomicSize]
	binary.NativeEndian.PutUint64(word, p.AtomicAck)
	if c.access.scatter(c.cfg.PD, c.req.sender.sq.sgl(c.req.sender.sq.head), 0, word) != mem.OK {
		c.saw(p.BTH.Opcode, "local")
		c.req.sender.failOldest(verbs.LocProtErr, reason.None, out)
		return
	}
	c.saw(p.BTH.Opcode, "taken")
	c.advance(w, 1, out)
	c.req.progress()
}

// badResponse ends the connection because a response does not have the kind or length that the
// oldest work request needs.
func (c *completer) badResponse(out *Actions) {
	c.env.Counters.BadResponse++
	c.req.sender.failOldest(verbs.BadRespErr, reason.PeerBadResponse, out)
}
