package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// extent describes a message that writes: its PSNs on the client's connection, and the bytes that
// it may change. Only the first packet of a WRITE names the address. For the later packets the
// switch keeps the extent in the flow's clientOps until the server has acknowledged the WRITE. If
// the switch did not see the first packet, or had no room to keep the extent, each later packet
// gets its own extent, which covers the whole memory of the server.
type extent struct {
	first, end wire.PSN // end is the PSN after the last one
	va         uint64
	n          uint32
}

// extentOf returns the extent of the message to which a packet of a WRITE, or an atomic, belongs.
// own is the packet's PSN on the client's connection. n is 0 if the message writes nothing.
func (k *clientConn) extentOf(f *wire.Frame, own wire.PSN) extent {
	x := extent{first: own, end: own.Add(1 + restOf(f))}
	if f.BTH.Opcode.Has(wire.HasRETH | wire.HasAtomicETH) {
		x.va, x.n, _ = target(f)
		return x
	}
	if op := k.ops.messageAt(own); op != nil {
		return extent{op.first, op.end, op.va, op.n}
	}
	x.n = atomiccache.Everything
	return x
}

// isLong reports whether the message has more packets, so that the switch must keep the extent.
func (x *extent) isLong() bool { return wire.Diff(x.end, x.first) > 1 }

// isCounted reports whether all words that the extent touches wait for its message to end.
func (k *clientConn) isCounted(now clock.Time, x *extent) bool {
	step := &k.s.m.step
	step.cover = k.s.m.words.Overlapping(step.cover[:0], k.s.index, x.va, x.n)
	for _, w := range step.cover {
		if !k.ops.countedBy(now, w, x.end) {
			return false
		}
	}
	return true
}

// isKept reports whether the flow's clientOps already has exactly this extent.
func (k *clientConn) isKept(x *extent) bool {
	op := k.ops.messageAt(x.first)
	return op != nil && *x == extent{op.first, op.end, op.va, op.n}
}

// keep stores the extent of a message that touches no word of the table, for the later packets of
// the message. It does nothing if clientOps has no room or already has the extent.
func (k *clientConn) keep(now clock.Time, x *extent) {
	if k.ops.room() && !k.isKept(x) {
		k.addAll(x, k.s.m.words.ClientAll(now, k.s.index, x.va, x.n))
	}
}

// announcePart does what announce does, for a packet of a message whose first packet the switch
// does not know. Such a packet may touch every word. If all words already wait for the packets
// before it, the packet joins their operation: one operation for each packet would not fit into
// clientOps.
func (k *clientConn) announcePart(now clock.Time, x *extent) bool {
	if k.isCounted(now, x) {
		return true
	}
	op := k.ops.newest()
	if x.n != atomiccache.Everything || op == nil || !op.all || op.n != x.n || op.end != x.first || !k.s.m.words.IsRecent(now, op.decision) {
		return k.announce(now, x)
	}
	for _, w := range k.s.m.step.cover {
		if !w.Counts(now, op.decision) {
			return k.announce(now, x)
		}
	}
	op.end = x.end
	return true
}

// announce makes all words that the extent touches wait for the end of its message. The result is
// false if one of the words does not allow that now. If clientOps has no room, announce forgets the
// oldest operation: its end is never reported, and its words wait until no NIC would retransmit the
// request.
func (k *clientConn) announce(now clock.Time, x *extent) bool {
	d := k.s.m.words.ClientAll(now, k.s.index, x.va, x.n)
	if d.Kind == atomiccache.Wait {
		return false
	}
	if !k.ops.room() {
		k.ops.head++
	}
	k.addAll(x, d)
	return true
}
