package apps

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/linkstate"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Topology returns the switches of a rack, numbered in the order of SwitchNames, and its trunks in the order
// of Trunks.
func Topology(r *rackfile.Rack) linkstate.Topology {
	names := r.SwitchNames()
	out := linkstate.Topology{Switches: len(names)}
	for _, t := range r.Trunks() {
		out.Trunks = append(out.Trunks, linkstate.Trunk{A: slices.Index(names, t.Leaf), B: slices.Index(names, t.Far)})
	}
	return out
}

// Wiring says what the ports of a switch that is one of several lead to.
type Wiring struct {
	Switch string // its name
	Ports  int    // how many ports it has
	// Trunks has, by trunk of the topology, the number of its port; -1: it is a trunk of other switches.
	Trunks []int
	// Host returns the port of a host that is connected to the switch; negative if it has none.
	Host func(name string) int
}

// Routes makes the routes to all hosts and switches of the rack. hops are the trunks that lead to each
// switch; tree has, by trunk, whether the switch floods frames over it. The caller adds the groups of a
// partition.
func (w *Wiring) Routes(r *rackfile.Rack, hops [][]int, tree []bool) pipeline.Routes {
	out := pipeline.Routes{Ports: make([]bool, w.Ports), Tree: make([]bool, w.Ports), Hops: make(map[wire.MAC][]int)}
	for i, port := range w.Trunks {
		if port >= 0 {
			out.Ports[port], out.Tree[port] = true, tree[i]
		}
	}
	towards := make(map[string][]int) // ports by switch; none: this one, or one that cannot be reached
	for i, s := range r.SwitchAddresses() {
		ports := []int{}
		for _, trunk := range hops[i] {
			ports = append(ports, w.Trunks[trunk])
		}
		towards[s.Name], out.Hops[s.MAC] = ports, ports
	}
	for i := range r.Hosts {
		h := &r.Hosts[i]
		if leaf := r.LeafOf(h); leaf != w.Switch {
			out.Hops[h.MAC] = towards[leaf]
		} else if port := w.Host(h.Name); port >= 0 {
			out.Hops[h.MAC] = []int{port}
		}
	}
	return out
}
