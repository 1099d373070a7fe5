package scenario

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func ofService(service wire.Opcode) func(*wire.Frame) bool {
	return func(f *wire.Frame) bool { return f.BTH.Opcode.Service() == service }
}

func anyOf(service wire.Opcode, flags wire.OpFlags, change func(f *wire.Frame)) func(*wire.Frame) bool {
	return func(f *wire.Frame) bool {
		if f.BTH.Opcode.Service() != service || !f.BTH.Opcode.Is(flags) {
			return false
		}
		change(f)
		return true
	}
}

// blind is the bug of a NIC that ignores PSNs: each packet of an unreliable connection gets the
// expected PSN.
func blind() func(f *wire.Frame) bool {
	next := make(map[wire.QPN]wire.PSN)
	return func(f *wire.Frame) bool {
		if f.BTH.Opcode.Service() != wire.ServiceUC {
			return false
		}
		was, known := next[f.BTH.DestQP]
		if known && f.BTH.PSN != was {
			f.BTH.PSN = was
		}
		next[f.BTH.DestQP] = f.BTH.PSN.Next()
		return true
	}
}

// open is the bug of a NIC that ignores Q_Keys: each datagram gets the Q_Key that most datagrams
// have.
func open() func(f *wire.Frame) bool {
	seen := make(map[wire.QPN]map[uint32]int)
	return func(f *wire.Frame) bool {
		if f.BTH.Opcode.Service() != wire.ServiceUD {
			return false
		}
		keys := seen[f.BTH.DestQP]
		if keys == nil {
			keys = make(map[uint32]int)
			seen[f.BTH.DestQP] = keys
		}
		keys[f.DETH.QKey]++
		best := f.DETH.QKey
		for k, n := range keys {
			if n > keys[best] {
				best = k
			}
		}
		f.DETH.QKey = best
		return true
	}
}

// From the packets on the wire, the check finds each of these bugs of the unreliable services and
// of shared receive queues.
func TestPlantedBugsOfServicesAreCaught(t *testing.T) {
	t.Parallel()
	const uc, ud, rc = wire.ServiceUC, wire.ServiceUD, wire.ServiceRC
	lose := func(f *wire.Frame) { f.BTH.DestQP ^= 1 << 23 }
	for _, bug := range []struct {
		name, scenario string
		in             func() func(*wire.Frame) bool
		all            bool // every frame is changed, not every fifth
	}{
		{name: "a message with a hole is delivered", scenario: "uc", in: blind, all: true},
		{name: "a whole message is not delivered", scenario: "uc", in: func() func(*wire.Frame) bool { return anyOf(uc, wire.OpOnly, lose) }},
		{name: "a SEND or WRITE has a wrong byte", scenario: "uc", in: func() func(*wire.Frame) bool { return flipPayload(ofService(uc)) }},
		{name: "a WRITE goes to a wrong place", scenario: "uc", in: func() func(*wire.Frame) bool {
			return func(f *wire.Frame) bool {
				f.RETH.VA ^= 8
				return f.BTH.Opcode == wire.UCWriteOnly && f.RETH.Length >= 16
			}
		}},
		{name: "immediate data is wrong", scenario: "uc", in: func() func(*wire.Frame) bool { return anyOf(uc, wire.OpImm, func(f *wire.Frame) { f.ImmDt++ }) }},
		{name: "a datagram with a wrong Q_Key is delivered", scenario: "ud", in: open, all: true},
		{name: "a datagram is not delivered", scenario: "ud", in: func() func(*wire.Frame) bool { return anyOf(ud, wire.OpOnly, lose) }},
		{name: "a datagram has a wrong byte", scenario: "ud", in: func() func(*wire.Frame) bool { return flipPayload(ofService(ud)) }},
		{name: "a datagram has a wrong sender", scenario: "ud", in: func() func(*wire.Frame) bool {
			return anyOf(ud, wire.OpOnly, func(f *wire.Frame) { f.IPv4.Src[3]++; f.IPv6.Src[15]++ })
		}},
		{name: "a message from a shared receive has a wrong byte", scenario: "srq", in: func() func(*wire.Frame) bool { return flipPayload(anyOf(rc, wire.OpSend, func(*wire.Frame) {})) }},
	} {
		t.Run(bug.name, func(t *testing.T) {
			planted, caught := 0, 0
			for seed := uint64(1); seed <= 8; seed++ {
				node := &tamper{in: bug.in(), all: bug.all}
				r := mustFind(t, bug.scenario).Run(seed, Options{Wrap: around(server, node)})
				if node.done == 0 {
					continue
				}
				planted++
				if r.Err != nil {
					caught++
				} else {
					t.Logf("seed %d: not caught (%s)", seed, r.Plan)
				}
			}
			// A NIC that ignores PSNs works correctly while no packet is lost, duplicated or reordered.
			if planted < 4 || caught < planted && !bug.all || caught < planted/2 {
				t.Errorf("caught %d of %d", caught, planted)
			}
		})
	}
}

// around puts a node between a host's NIC and its link.
func around(host string, node *tamper) func(string, simnet.Node) simnet.Node {
	return func(name string, n simnet.Node) simnet.Node {
		if name != host {
			return n
		}
		node.Node = n
		return node
	}
}

// A limit event that is raised too early or too late is found, in plans in which it may be either.
func TestPlantedLimitsAreCaught(t *testing.T) {
	for _, tc := range []struct {
		skew  int
		want  string
		seeds []uint64
	}{
		{20, "limit event", []uint64{2, 4, 8, 10}},
		{-20, "is missing", []uint64{2, 3, 7, 8}},
	} {
		for _, seed := range tc.seeds {
			r := mustFind(t, "srq").Run(seed, Options{skew: tc.skew})
			if r.Err == nil || !strings.Contains(r.Err.Error(), tc.want) {
				t.Errorf("skew %d, seed %d (%s): %v", tc.skew, seed, r.Plan, r.Err)
			}
		}
	}
}
