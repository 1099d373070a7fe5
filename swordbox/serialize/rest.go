package serialize

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/atomiccache"
)

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

// restOfWrite sends a packet of a WRITE behind the first one. A word that the packet touches must
// wait for the end of the WRITE. Perhaps the word does not wait, because it is newer than the WRITE
// or has waited for too long; then restOfWrite makes it wait.
func (g *placing) restOfWrite() outcome {
	m, n := g.m, uint32(len(g.f.Payload))
	m.step.cover = m.words.Overlapping(m.step.cover[:0], g.s.index, g.rest.va, n)
	counted := true
	for _, w := range m.step.cover {
		counted = counted && g.ops.countedBy(g.c.Now, w, g.rest.end)
	}
	if !counted && (g.roomComes(g.rest.first) || !g.announce(g.c.Now, &extent{g.psns.own, g.rest.end, g.rest.va, g.rest.n})) {
		return mustWait
	}
	out := g.toOwn(g.span)
	if out != mustWait {
		g.rest.va, g.rest.n = g.rest.va+uint64(n), g.rest.n-min(n, g.rest.n)
	}
	return out
}

// roomComes reports whether clientOps is full now but will have room when the requests before a
// message have been answered. Operations of the message itself make no room: they end with its last
// packet, which would have to wait for this one.
func (g *placing) roomComes(first wire.PSN) bool {
	return !g.ops.room() && wire.Diff(g.ops.at(g.ops.head).end, first) <= 0
}

// partOfUnknown sends a packet of a WRITE whose first packet the switch did not see in order: the
// message had begun before the flow became known. All words of the server wait for the packet.
func (g *placing) partOfUnknown() outcome {
	x := g.extentOf(g.f, g.psns.own)
	if !g.canGo(placeOwn) || x.n != atomiccache.Everything && g.roomComes(x.first) || !g.announcePart(g.c.Now, &x) {
		return mustWait
	}
	return g.toOwn(g.span)
}
