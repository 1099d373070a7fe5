package scenario

import (
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// loseOne puts a tap in front of each memory server, if the plan's hang begins with the loss of a
// request. The taps drop one request of the planned victim, and inject the planned hang of this host
// at the same time. When the host is resumed, its NIC sends the request again.
func (r *storeRun) loseOne() {
	if r.plan.loses == 0 || r.plan.what != storeHang {
		return
	}
	left := r.plan.loses
	lose := func(now clock.Time, _ int, in *packetio.Frame) bool {
		var g wire.Frame
		if left > 0 && wire.ParseFrame(in.Data, &g) == nil && changes(&g) && sentBy(r.env.rack.Host(r.plan.victim), &g) {
			if left--; left == 0 {
				r.env.rack.At(now, r.inject)
				return false
			}
		}
		return true
	}
	r.plan.rack.Wrap = wrapTwice(r.plan.rack.Wrap, func(name string, n simnet.Node) simnet.Node {
		if strings.HasPrefix(name, "ms") {
			n = &simnet.Tap{Node: n, Pass: lose}
		}
		return n
	})
}

// changes reports whether a request changes the store: a WRITE of at least 128 bytes writes a node,
// a CMP_SWAP appends one to a chain.
func changes(g *wire.Frame) bool {
	return g.BTH.Opcode == wire.RCCmpSwap || g.BTH.Opcode == wire.RCWriteOnly && g.RETH.Length >= 128
}

// sentBy reports whether the source address of frame g is an address of host h.
func sentBy(h *simrack.Host, g *wire.Frame) bool {
	a := g.SrcAddr().Unmap()
	return a == h.Spec.IPv4 || a == h.Spec.IPv6
}

// serviceHang describes the hang of a memory service in a run: at hungAt its process stops, while
// its NIC goes on to execute requests. starved counts the operations that had to wait for it too
// long (see noteStarved).
type serviceHang struct {
	hungAt  clock.Time
	starved int
}

// mixServices names the mix in which a memory service hangs and nothing else fails. Runs with a
// switch that steers, and those with shared queue pairs, do not have it.
const mixServices = "services"

// servicePatience is how long operations on a store with copies may remain unanswered after a
// memory service has begun to hang. In this time the metadata server notices the hang and removes
// the server from the view.
const servicePatience = 5 * time.Second

// mixServices makes a memory service hang: for a short time, or so long that a store with copies
// goes on without it. Some clients open the store during the hang. In half of the runs no link has
// faults.
func (p *storePlan) mixServices(d *draw) {
	p.then, p.loses, p.newcomers = nil, 0, d.between(1, p.clients-1)
	p.storeFaultAt = storeFaultAt{
		what: storeServiceHang, victim: one(d, memoryServers(p.servers)...), after: d.between(1, max(1, (p.clients-p.newcomers)*p.rounds/4)),
		down: one(d, d.span(p.lease/2, 2*time.Second), d.span(2*time.Second, 4*time.Second), d.span(servicePatience, 9*time.Second)),
	}
	if d.chance(0.5) {
		p.rules, p.links = nil, "none"
	}
	p.pace = (p.down + time.Second) / time.Duration(p.rounds)
}

// newcomerPatience bounds how long a newcomer, a client that opens the store after the first fault
// has begun, waits for this fault.
const newcomerPatience = 20 * time.Second

// await makes a newcomer wait until the first fault has begun; for all other clients it returns at
// once. The newcomers of a plan are the clients with the highest numbers.
func (r *storeRun) await(id int, rt verbs.Runtime) {
	if id < r.plan.clients-r.plan.newcomers {
		return
	}
	for end := rt.Now().Add(newcomerPatience); !r.injected && rt.Now() < end; {
		rt.Sleep(time.Millisecond)
	}
}

// noteStarved is called for an operation that ended with ErrTimeout. It counts the operation if it
// began long after the hang of a memory service and waited until its deadline: a store with copies
// must go on without that service if the links have no faults. An operation that ended before its
// deadline is not counted: a change of the view has interrupted it, perhaps the change that brings
// the server back.
func (r *storeRun) noteStarved(began, ended clock.Time) {
	if r.plan.replicas > 1 && len(r.plan.rules) == 0 && r.hungAt != 0 && began > r.hungAt.Add(servicePatience) && ended >= began.Add(storePatience) {
		r.starved++
	}
}
