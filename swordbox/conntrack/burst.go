package conntrack

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// bthLen is what is looked at of each packet of a burst.
const bthLen = 12

// Known is the row whose direction a packet has, if both ends of its connection are known; nil if not. Nothing is noted.
func (t *Table) Known(f *wire.Frame) *Row {
	if r := t.index.find(f); r != nil && r.Peer != nil {
		return r
	}
	return nil
}

// Burst is Packet for several packets at once: b is the packets of a super-frame from their BTH on, each of size bytes but
// for the last, and f the first of them. It works for a part of one message on a busy connection that is known: packets in
// order, none of which is a READ or an atomic. Otherwise nothing was noted, and the answer is nil: hand the packets to
// Packet one by one. The row is that of the requests.
func (t *Table) Burst(now clock.Time, in int, f *wire.Frame, b []byte, size int) *Row {
	if size < bthLen || f.BTH.Opcode.Service() != wire.ServiceRC || !uniform(&f.BTH, b, size) {
		return nil
	}
	r := t.index.find(f)
	if r == nil || r.State != Open || r.Port != in || now.Sub(r.Last) >= rarely || r.mistrusts() || r.Pinned || r.Peer.Pinned {
		return nil
	}
	n := (len(b) + size - 1) / size
	if f.BTH.Opcode.Is(wire.OpResponse) {
		return t.answerBurst(now, r, f, n)
	}
	if r.MTU == 0 || !r.Synced {
		return nil
	}
	end := f.BTH.PSN.Add(n)
	if wire.Diff(f.BTH.PSN, r.Expected) <= 0 && wire.Diff(end, r.Expected) > 0 {
		r.Expected = end
	}
	r.reach(f.BTH.PSN, n, 0)
	r.more = true
	r.Last = now
	return r
}

// answerBurst notes packets of a READ response: the last one says it all.
func (t *Table) answerBurst(now clock.Time, back *Row, f *wire.Frame, n int) *Row {
	r := back.Peer
	last := f.BTH.PSN.Add(n - 1)
	if !r.Synced || r.MTU == 0 || !r.asked || wire.Diff(last, r.high) >= 0 || wire.Diff(last, r.Expected) >= 0 {
		return nil
	}
	if !r.HasAcked || wire.Diff(last, r.Acked) > 0 {
		r.Acked, r.HasAcked = last, true
	}
	back.Last = now
	return r
}

// uniform reports whether the packets of a burst go to one queue pair with PSNs one behind the other, and are SENDs and
// WRITEs or READ responses.
func uniform(h *wire.BTH, b []byte, size int) bool {
	op, qp, psn := h.Opcode, uint32(h.DestQP), h.PSN
	response := op.Is(wire.OpResponse)
	for ; len(b) > 0; b = b[min(size, len(b)):] {
		if len(b) < bthLen {
			return false
		}
		if o := wire.Opcode(b[0]); o != op {
			if !burstOp(o, response) {
				return false
			}
			op = o
		}
		if binary.BigEndian.Uint32(b[4:])&0xffffff != qp || wire.PSN(binary.BigEndian.Uint32(b[8:])&0xffffff) != psn {
			return false
		}
		psn = psn.Next()
	}
	return burstOp(h.Opcode, response)
}

// burstOp reports whether an opcode takes one PSN and is part of a message or of a READ response.
func burstOp(op wire.Opcode, response bool) bool {
	if op.Service() != wire.ServiceRC || !op.Is(wire.OpPayload) {
		return false
	}
	if response {
		return op.Is(wire.OpResponse)
	}
	return op.Is(wire.OpSend | wire.OpWrite)
}
