package swordbox

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// guarded are the servers whose packets handlers must see. The switch drops each packet from or to
// such a server that has a wrong ICRC. A fault behind the switch could restore a damaged packet;
// its receiver would then accept a packet that no handler has seen in this form. The damage may be
// anywhere: a wrong bit in the opcode makes a request look like a response, and a wrong bit in a
// QPN makes the packet seem to belong to another flow. A server stays guarded when its rules are
// removed, because flows with moved requests may be left.
type guarded struct {
	servers map[netip.Addr]bool // nil means that no server is guarded
}

// add adds servers to the guarded ones: those of each rule that a handler carries out, unless the
// handler only queues frames (handler.Queuer). From then on, the switch drops the damaged packets
// from and to these servers.
func (g *guarded) add(s *rules.Set, parts *parts) {
	for i := range s.All() {
		r := &s.All()[i]
		m := parts.machineFor(r)
		if _, queues := m.(handler.Queuer); queues {
			continue // a queuer sends frames on unchanged, and does not read their contents
		}
		if r.Observes() || m != nil {
			if g.servers == nil {
				g.servers = make(map[netip.Addr]bool)
			}
			g.servers[r.Server] = true
			for _, a := range r.Also {
				g.servers[a] = true
			}
		}
	}
}

// flow reports whether a flow is one from or to a guarded server.
func (g *guarded) flow(r *conntrack.Flow) bool {
	return g.servers[r.Responder] || g.servers[r.Requester]
}

// v6 reports whether a packet must be intact because it is an IPv6 packet: the IPv6 header has no
// checksum, so a wrong bit in an address of a guarded server may make it look like another address.
func (g *guarded) v6(f *wire.Frame) bool { return f.V6 && g.servers != nil }

// tracked reports whether a packet of a tracked flow must be intact.
func (g *guarded) tracked(e *flowRule, f *wire.Frame) bool {
	return e.guarded || g.v6(f)
}

// packet reports whether a packet of no tracked flow must be intact.
func (g *guarded) packet(f *wire.Frame) bool {
	return g.v6(f) || g.servers != nil && (g.servers[f.DstAddr()] || g.servers[f.SrcAddr()])
}

// Guards implements pipeline.Guard: it reports whether the switch must drop frames with damaged
// headers, because a handler must see every packet of some flows. This is so if a server is
// guarded, or if there are stale flows or earlier connections of the switch (Own.first).
func (p *Program) Guards() bool {
	return p.guarded.servers != nil || p.cfg.Own != nil && !p.cfg.Own.first()
}
