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
	return &heldPackets{ahead: a, packets: make([]heldPacket, a.Size()), merge: kind == selective.RACK}
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

// executeHeld is called when the request with PSN was has been handled as the expected one. It
// executes the held requests that follow, and then acknowledges them. A request for which there is
// no receive stays held, until the peer sends it again.
func (r *responder) executeHeld(was wire.PSN, out *Actions) {
	executed := false
	for {
		n := uint32(r.ePSN-was) & max24
		if n == 0 {
			break
		}
		r.held.ahead.Advance(int(n))
		was = r.ePSN
		if r.phase == phaseRefused || !r.held.ahead.Has(0) {
			break
		}
		executed = true
		r.answers.torn.settleWrite()
		p := &r.held.packets[r.held.ahead.Place(0)].packet
		r.expected(p, p.BTH.Opcode.Info(), out)
	}
	if executed && r.phase != phaseRefused {
		r.answers.owe(owedAck, r.ePSN.Add(-1), wire.AckNoCredits)
	}
}
