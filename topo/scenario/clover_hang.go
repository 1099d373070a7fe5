package scenario

import (
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// hanging stands in front of a memory server. It drops one request of the planned victim, and
// injects the planned hang of this host at the same time. When the host is resumed, its NIC sends
// the request again.
type hanging struct {
	sim.Node
	run  *storeRun
	left *int
}

// loseOne puts a node of type hanging in front of each memory server, if the plan's hang begins
// with the loss of a request.
func (r *storeRun) loseOne() {
	if r.plan.loses == 0 || r.plan.what != storeHang {
		return
	}
	left := r.plan.loses
	wrap := r.plan.rack.Wrap
	r.plan.rack.Wrap = func(name string, n sim.Node) sim.Node {
		if wrap != nil {
			n = wrap(name, n)
		}
		if strings.HasPrefix(name, "ms") {
			n = &hanging{n, r, &left}
		}
		return n
	}
}

// Frame passes frames on to the server. It drops the request that the plan chooses, and injects the
// hang of the victim.
func (f *hanging) Frame(now clock.Time, port int, in packetio.Frame, out *packetio.Batch) {
	var g wire.Frame
	if *f.left > 0 && wire.ParseFrame(in.Data, &g) == nil && changes(&g) && sentBy(f.run.env.rack.Host(f.run.plan.victim), &g) {
		if *f.left--; *f.left == 0 {
			f.run.env.rack.At(now, f.run.inject)
			return
		}
	}
	f.Node.Frame(now, port, in, out)
}

// changes reports whether a request changes the store: a WRITE of at least 128 bytes writes a node,
// a CMP_SWAP appends one to a chain.
func changes(g *wire.Frame) bool {
	return g.BTH.Opcode == wire.RCCmpSwap || g.BTH.Opcode == wire.RCWriteOnly && g.RETH.Length >= 128
}

// sentBy reports whether the source address of frame g is that of host h.
func sentBy(h *simrack.Host, g *wire.Frame) bool {
	if a := h.Addr(); !g.V6 && a.Is4() {
		return a.As4() == g.IPv4.Src
	}
	return g.V6 && h.Spec.IPv6.As16() == g.IPv6.Src
}
