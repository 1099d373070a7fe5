package conntrack

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// bthLen is the length of a BTH in bytes. For most packets of a burst, the table reads only the
// BTH.
const bthLen = 12

// Known returns the flow of a packet if the table also knows the other direction of its connection
// (Peer); otherwise nil. It changes nothing.
func (t *Table) Known(f *wire.Frame) *Flow {
	if fl := t.index.find(f); fl != nil && fl.Peer != nil {
		return fl
	}
	return nil
}

// Burst does for the packets of a super-frame what Packet does for one packet. b holds the packets
// from their BTH on, each of size bytes except the last; f is the first of them. Burst handles
// packets of SENDs and WRITEs, or packets of READ responses. Their PSNs must be consecutive, and
// the peer of their flow known. The flow must be busy (Flow.busy). Burst returns the flow of the
// requests, or the flow that the responses answer. nil means that Burst has changed nothing, and
// the caller passes the packets to Packet one by one.
func (t *Table) Burst(now clock.Time, in int, f *wire.Frame, b []byte, size int) *Flow {
	if size < bthLen || f.BTH.Opcode.Service() != wire.ServiceRC || !uniform(&f.BTH, b, size) {
		return nil
	}
	fl := t.index.find(f)
	if !fl.busy(now, t.at(in)) || fl.mistrusts() || fl.pinned() {
		return nil
	}
	n := (len(b) + size - 1) / size
	if f.BTH.Opcode.Is(wire.OpResponse) {
		return fl.answerBurst(now, f, n)
	}
	if !fl.Synced() || fl.PathMTU.MTU == 0 && showsMTU(b, size) {
		return nil
	}
	end := f.BTH.PSN.Add(n)
	if wire.Diff(f.BTH.PSN, fl.Expected) <= 0 && wire.Diff(end, fl.Expected) > 0 {
		fl.Expected = end
	}
	fl.reach(f.BTH.PSN, n, 0)
	fl.seen = moreRequests
	fl.Last = now
	return fl
}

// answerBurst records n packets of a READ response that travels in the direction of fl. It looks
// only at the last packet, which also acknowledges all earlier requests. It returns the peer of fl,
// whose requests the packets answer; nil means that nothing was recorded.
func (fl *Flow) answerBurst(now clock.Time, f *wire.Frame, n int) *Flow {
	req := fl.Peer
	last := f.BTH.PSN.Add(n - 1)
	if !req.Synced() || req.PathMTU.MTU == 0 || !req.reached(last) || wire.Diff(last, req.Expected) >= 0 {
		return nil
	}
	req.acked(last)
	fl.Last = now
	return req
}

// Unconnected reports whether Packet would ignore each packet of a super-frame, because it belongs
// to no reliable connection and does not set up one. b and size are those of Burst.
func Unconnected(b []byte, size int) bool {
	if size < bthLen {
		return false
	}
	for ; len(b) > 0; b = b[min(size, len(b)):] {
		if len(b) < bthLen {
			return false
		}
		op := wire.Opcode(b[0])
		ud := op.Service() == wire.ServiceUD
		if !op.Known() || !ud && op.Service() != wire.ServiceUC || ud && wire.QPN(binary.BigEndian.Uint32(b[4:])&0xffffff) == gsi {
			return false
		}
	}
	return true
}

// uniform reports whether the packets of a burst go to one queue pair with consecutive PSNs. Either
// all of them are packets of SENDs and WRITEs, or all are READ responses.
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

// showsMTU reports whether a burst has a first or middle packet of a message. The payload of such a
// packet is as long as the path MTU.
func showsMTU(b []byte, size int) bool {
	for ; len(b) > 0; b = b[min(size, len(b)):] {
		if wire.Opcode(b[0]).Is(wire.OpFirst | wire.OpMiddle) {
			return true
		}
	}
	return false
}

// burstOp reports whether Burst handles packets with an opcode: those of READ responses if response
// is true, those of SENDs and WRITEs if it is false. Each of these packets has a PSN of its own.
func burstOp(op wire.Opcode, response bool) bool {
	if op.Service() != wire.ServiceRC || !op.Is(wire.OpPayload) {
		return false
	}
	if response {
		return op.Is(wire.OpResponse)
	}
	return op.Is(wire.OpSend | wire.OpWrite)
}
