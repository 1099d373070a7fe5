package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// heldPackets has the requests that have arrived ahead of the expected PSN, with selective
// retransmission. They are executed in PSN order, by the same checks as all others, when the packets
// before them have arrived: no request takes effect before one that was posted earlier.
type heldPackets struct {
	ahead   *selective.Arrivals
	packets []heldPacket // by Arrivals.Place
	// merge: one NAK may report several requests that follow each other. waits: such a NAK is to be
	// sent, for the newest request and `run` ones before it.
	merge, waits bool
	newest       wire.PSN
	run          uint8
	// at is when the next held message is to be executed.
	at clock.Time
}

// heldPacket is a copy of a packet. Its payload is in buf, whose memory stays for later packets.
type heldPacket struct {
	packet wire.Packet
	buf    []byte
}

// maxRun is the largest number that the low bits of a selective NAK can hold.
const maxRun = 31

func newHeldPackets(reach int, kind selective.Kind) *heldPackets {
	a := selective.NewArrivals(reach)
	return &heldPackets{ahead: a, packets: make([]heldPacket, a.Size()), merge: kind == selective.RACK, at: clock.Never}
}

// holdAhead keeps a request that has arrived d packets ahead of the expected one, and reports it to
// the peer.
func (r *responder) holdAhead(now clock.Time, p *wire.Packet, d int, out *Actions) {
	h := r.held
	r.env.Counters.OutOfSequence++
	if d >= h.ahead.Size() || len(p.Payload) > int(r.mtu) {
		return // the peer sends it again
	}
	if r.phase != phaseGap {
		r.notes.Add(reason.Note{
			At: r.lastNow, Kind: reason.Missed, Opcode: p.BTH.Opcode, Syndrome: wire.SelectiveNak, First: r.ePSN, Last: p.BTH.PSN.Add(-1), Times: 1,
		})
		r.phase.on(heardAhead)
	} else if n := r.notes.Newest(); n != nil && n.Kind == reason.Missed {
		n.Times++
	}
	if h.ahead.Mark(d) {
		x := &h.packets[h.ahead.Place(d)]
		x.buf = append(x.buf[:0], p.Payload...)
		x.packet = *p
		x.packet.Payload = x.buf
	}
	switch {
	case h.waits && h.merge && p.BTH.PSN == h.newest.Next() && h.run < maxRun:
		h.newest, h.run = p.BTH.PSN, h.run+1
	default:
		r.sendSelectiveNak(out)
		h.waits, h.newest, h.run = true, p.BTH.PSN, 0
		if h.merge {
			h.run = uint8(h.ahead.Run(d, maxRun))
		}
	}
	if h.merge && r.cfg.CoalesceAcks {
		r.answers.at = clock.Min(r.answers.at, now)
		return
	}
	r.sendSelectiveNak(out)
}

// sendSelectiveNak sends the selective NAK that waits, if there is one.
func (r *responder) sendSelectiveNak(out *Actions) {
	h := r.held
	if !h.waits {
		return
	}
	h.waits = false
	if wire.Diff(h.newest, r.ePSN) <= 0 {
		return // executed meanwhile: the ACK says so
	}
	r.env.Counters.SendSeqNak++
	tx := r.newPacket(out)
	tx.BTH.Opcode, tx.BTH.PSN = wire.RCAck, r.ePSN
	tx.AETH = wire.AETH{Syndrome: wire.SelectiveNak | wire.Syndrome(h.run), MSN: uint32(h.newest)}
}

// executeHeld is called when the expected PSN was `was` and a request has been handled, which was the
// last one of a message if ends is true. It executes the held requests that follow, up to the end of
// the message, and acknowledges them. The next message
// is due in the next instant, so that held messages do not keep other queue pairs waiting, and so that
// each change of memory is a step of its own. A request for which there is no receive stays held, until the peer sends it again.
func (r *responder) executeHeld(was wire.PSN, ends bool, out *Actions) {
	h := r.held
	h.at = clock.Never
	for executed := false; ; executed = true {
		n := uint32(r.ePSN-was) & max24
		if n > 0 {
			h.ahead.Advance(int(n))
		}
		if was = r.ePSN; n == 0 || r.phase == phaseRefused || !h.ahead.Has(0) {
			if executed && r.phase != phaseRefused {
				r.answers.owe(owedAck, r.ePSN.Add(-1), wire.AckNoCredits)
			}
			return
		}
		if ends {
			r.answers.owe(owedAck, r.ePSN.Add(-1), wire.AckNoCredits)
			h.at = r.lastNow + 1
			return
		}
		ends = r.executeOldest(out)
	}
}

// executeOldest executes the held request that is expected, and reports whether it ends a message.
func (r *responder) executeOldest(out *Actions) bool {
	r.answers.torn.settleWrite()
	p := &r.held.packets[r.held.ahead.Place(0)].packet
	info := p.BTH.Opcode.Info()
	r.expected(p, info, out)
	return endsMessage(info)
}

// endsMessage reports whether a packet is the last one of a message, or the only one.
func endsMessage(info *wire.OpInfo) bool { return info.Flags&(wire.OpFirst|wire.OpMiddle) == 0 }

// tickHeld executes the next held message, which is due.
func (r *responder) tickHeld(now clock.Time, out *Actions) {
	r.held.at = clock.Never
	if r.phase == phaseRefused || !r.held.ahead.Has(0) {
		return
	}
	was := r.ePSN
	ends := r.executeOldest(out)
	r.executeHeld(was, ends, out)
	r.respond(now, out)
}
