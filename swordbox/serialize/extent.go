package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

// extent describes a message that writes: its PSNs on the client's connection, and the bytes that
// it may change. Only the first packet of a WRITE names the address. For the later packets the
// switch keeps the extent in the flow's clientOps until the server has acknowledged the WRITE. If
// the switch did not see the first packet, or had no room to keep the extent, the switch takes each
// later packet for a message of its own that may change the whole memory of the server.
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
		return op.extent
	}
	x.n = atomiccache.Everything
	return x
}

// isLong reports whether the message has more than one packet. If so, the switch must keep the
// extent for the later packets.
func (x *extent) isLong() bool { return wire.Diff(x.end, x.first) > 1 }

// isCounted reports whether each word of the table that the extent touches already waits until the
// server has acknowledged the whole message; see clientOps.countedBy.
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
	return op != nil && op.extent == *x
}

// keep stores the extent of a message in clientOps, for the later packets of the message. It is
// called for a message that touches none of the words that the switch tracks; for other messages,
// announce and writeAll store the extent. It does nothing if clientOps has no room or already has
// the extent.
func (k *clientConn) keep(now clock.Time, x *extent) {
	if k.ops.room() && !k.isKept(x) {
		k.addAll(x, k.s.m.words.ClientAll(now, k.s.index, x.va, x.n))
	}
}

// announcePart does the work of announce for a packet of a message whose first packet the switch
// does not know. Such a packet may touch every word. If all words already wait for the newest
// operation in clientOps, which ends with the packet before this one, announcePart extends that
// operation to this packet: one operation for each packet would not fit into clientOps.
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

// announce makes each word of the table that the extent touches wait until the server has
// acknowledged the whole message. The result is false if one of the words does not allow that now.
// If clientOps has no room, announce forgets the oldest operation: its end is never reported, and
// its words wait until no NIC would retransmit the request.
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

// rest is the part of a WRITE of several packets that the client has not sent yet. A client may
// pause in the middle of a message, and meanwhile the switch may begin to track words in the rest.
type rest struct {
	va uint64 // address of the first byte of the next packet
	n  uint32 // bytes from there to the end of the message
	// first is the PSN of the first packet of the message, end the PSN after the last one. Both are
	// the PSNs that the server sees.
	first, end wire.PSN
}

// begin records what follows the first packet f of a WRITE; psn is the PSN of f at the server.
func (r *rest) begin(f *wire.Frame, psn wire.PSN) {
	n := uint32(len(f.Payload))
	*r = rest{va: f.RETH.VA + uint64(n), n: f.RETH.Length - min(n, f.RETH.Length), first: psn, end: psn.Add(1 + restOf(f))}
}

// restOfWrite sends a middle or last packet of a WRITE. Each word that the packet touches must wait
// for the end of the WRITE. If a word has entered the table after the first packet, or has given up
// waiting, restOfWrite makes it wait.
func (g *placing) restOfWrite() outcome {
	m, n := g.l.m, uint32(len(g.f.Payload))
	m.step.cover = m.words.Overlapping(m.step.cover[:0], g.l.s.index, g.l.conn.rest.va, n)
	counted := true
	for _, w := range m.step.cover {
		counted = counted && g.l.conn.ops.countedBy(g.c.Now, w, g.l.conn.rest.end)
	}
	if !counted && (g.roomComes(g.l.conn.rest.first) || !g.l.conn.announce(g.c.Now, &extent{g.l.conn.psns.own, g.l.conn.rest.end, g.l.conn.rest.va, g.l.conn.rest.n})) {
		return mustWait
	}
	out := g.toOwn(g.span)
	if out != mustWait {
		g.l.conn.rest.va, g.l.conn.rest.n = g.l.conn.rest.va+uint64(n), g.l.conn.rest.n-min(n, g.l.conn.rest.n)
	}
	return out
}

// roomComes reports whether clientOps is full now but will have room when the requests before a
// message have been answered. Operations of the message itself make no room: they end with its last
// packet, which cannot be sent before the current packet.
func (g *placing) roomComes(first wire.PSN) bool {
	return !g.l.conn.ops.room() && wire.Diff(g.l.conn.ops.at(g.l.conn.ops.head).end, first) <= 0
}

// partOfUnknown sends a packet of a WRITE whose first packet the switch did not see in order: the
// message had begun before the flow became known. The packet may change any memory, so all words of
// the server wait until the server has acknowledged it.
func (g *placing) partOfUnknown() outcome {
	x := g.l.conn.extentOf(g.f, g.l.conn.psns.own)
	if !g.l.canGo(placeOwn) || x.n != atomiccache.Everything && g.roomComes(x.first) || !g.l.conn.announcePart(g.c.Now, &x) {
		return mustWait
	}
	return g.toOwn(g.span)
}
