package conform

import (
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// message holds request i against those beside it: their place in the message, and the length of a WRITE.
func (w *walker) message(i int) (Violation, bool) {
	r := w.reqs[i]
	var before *request
	if i > 0 && w.reqs[i-1].end() == r.at {
		before = w.reqs[i-1]
	}
	if before != nil && !follows(before.p, r.p) {
		return broken(r.p, Sequence, "%v follows %v (#%d)", r.p.Opcode(), before.p.Opcode(), before.p.Number)
	}
	if i < len(w.reqs)-1 && w.reqs[i+1].at == r.end() && !follows(r.p, w.reqs[i+1].p) {
		next := w.reqs[i+1].p
		return broken(r.p, Sequence, "%v (#%d) follows %v", next.Opcode(), next.Number, r.p.Opcode())
	}
	if before != nil && before.p.Opcode().Is(wire.OpFirst|wire.OpMiddle) && before.p.Header.XRCETH.SRQN != r.p.Header.XRCETH.SRQN {
		return broken(r.p, SharedQueue, "it is %#x, #%d of the same message has %#x", r.p.Header.XRCETH.SRQN, before.p.Number, before.p.Header.XRCETH.SRQN)
	}
	if r.at == 0 && w.flow.Agreed != nil && r.p.Opcode().Is(wire.OpMiddle|wire.OpLast) {
		return broken(r.p, Sequence, "%v is the first request", r.p.Opcode())
	}
	return r.length(before)
}

// follows reports whether request b can be the one behind a.
func follows(a, b *flows.Packet) bool {
	x, y := a.Opcode(), b.Opcode()
	if !x.Is(wire.OpFirst | wire.OpMiddle) {
		return !y.Is(wire.OpMiddle | wire.OpLast)
	}
	kinds := wire.OpSend | wire.OpWrite
	return y.Is(wire.OpMiddle|wire.OpLast) && x.Info().Flags&kinds == y.Info().Flags&kinds && x.Service() == y.Service()
}

// length counts the bytes of a WRITE and holds them against the length that its first packet says.
func (r *request) length(before *request) (Violation, bool) {
	op := r.p.Opcode()
	switch {
	case !op.Is(wire.OpWrite):
		return none()
	case op.Is(wire.OpFirst | wire.OpOnly):
		r.first, r.bytes = r, r.p.Length
	case before != nil && before.bytes >= 0:
		r.first, r.bytes = before.first, before.bytes+r.p.Length
	default:
		return none()
	}
	said := int(r.first.p.Header.RETH.Length)
	switch ends := op.Is(wire.OpLast | wire.OpOnly); {
	case ends && r.bytes != said:
		return broken(r.p, Length, "the WRITE has %d bytes, #%d says %d", r.bytes, r.first.p.Number, said)
	case !ends && r.bytes >= said:
		return broken(r.p, Length, "more packets follow %d bytes, #%d says %d", r.bytes, r.first.p.Number, said)
	}
	return none()
}
