package simrack

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/linkstate"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// trunk is a link between two switches of the fabric.
type trunk struct {
	rackfile.Trunk
	link *simnet.Link
	up   bool
}

// addTrunks connects the switches of the fabric, and gives them their routes.
func (r *Rack) addTrunks() error {
	for _, t := range r.Spec.Trunks() {
		leaf, far := r.boxOf(t.Leaf), r.boxOf(t.Far)
		cfg := simnet.LinkConfig{
			Name: t.Name(), A: simnet.End{Node: far.node, Port: far.port(t.Name())}, B: simnet.End{Node: leaf.node, Port: leaf.port(t.Name())},
			Delay: r.opt.Delay, Rate: r.opt.Rate, Queue: r.opt.Queue,
		}
		if c := r.opt.Cost; c != nil {
			cfg.Overhead = c.Link.Overhead
		}
		if q := r.Spec.Switch.Queues; q != nil {
			cfg.Rate, cfg.Overhead = q.Rate, q.Overhead
		}
		l := &trunk{Trunk: t, link: r.net.Connect(cfg), up: true}
		l.link.SetFaults(r.injectors(t.Name(), r.Spec.Faults))
		r.trunks = append(r.trunks, l)
	}
	r.route()
	return nil
}

// SetTrunk raises or cuts the trunk between two switches. All switches know it at once: what tells them
// takes no time in the simulator.
func (r *Rack) SetTrunk(name string, up bool) error {
	i := slices.IndexFunc(r.trunks, func(t *trunk) bool { return t.Name() == name })
	if i < 0 {
		return fmt.Errorf("no trunk %q", name)
	}
	r.trunks[i].up = up
	r.trunks[i].link.SetUp(up)
	r.route()
	return nil
}

// route gives the switches of the fabric the routes over the trunks that are up.
func (r *Rack) route() {
	if r.Spec.Fabric == nil {
		return
	}
	names := r.Spec.SwitchNames()
	topology := linkstate.Topology{Switches: len(names)}
	for _, t := range r.trunks {
		topology.Trunks = append(topology.Trunks, linkstate.Trunk{A: slices.Index(names, t.Leaf), B: slices.Index(names, t.Far)})
	}
	addresses := r.Spec.SwitchAddresses()
	for _, b := range r.boxes {
		own := topology.Routes(b.index, func(i int) bool { return r.trunks[i].up })
		out := pipeline.Routes{Ports: make([]bool, len(b.ports)), Tree: make([]bool, len(b.ports)), Hops: make(map[wire.MAC][]int), Groups: r.groups}
		for _, t := range r.trunks {
			if k := b.port(t.Name()); k >= 0 {
				out.Ports[k] = true
			}
		}
		for _, i := range own.Tree {
			out.Tree[b.port(r.trunks[i].Name())] = true
		}
		towards := make(map[string][]int) // ports by switch
		for i, name := range names {
			hops := []int{}
			for _, t := range own.Hops[i] {
				hops = append(hops, b.port(r.trunks[t].Name()))
			}
			towards[name], out.Hops[addresses[i].MAC] = hops, hops
		}
		for i := range r.Spec.Hosts {
			h := &r.Spec.Hosts[i]
			if leaf := r.Spec.LeafOf(h); leaf != b.name {
				out.Hops[h.MAC] = towards[leaf]
			} else {
				out.Hops[h.MAC] = []int{b.port(h.Name)}
			}
		}
		b.trunks.Route(out)
	}
}

// Partition cuts every path between the hosts of a group and all others. An empty group ends the
// partition, and so does a restart of a switch for its hosts.
func (r *Rack) Partition(group []string) {
	side := func(h *Host) int {
		if slices.Contains(group, h.Spec.Name) {
			return 1
		}
		return 0
	}
	if r.groups = nil; len(group) > 0 {
		r.groups = make(map[wire.MAC]int)
		for _, h := range r.hosts {
			r.groups[h.Spec.MAC] = side(h)
		}
	}
	r.route()
	for _, b := range r.boxes {
		var sides []int
		for _, name := range b.ports {
			switch h := r.Host(name); {
			case len(group) == 0:
			case h == nil:
				sides = append(sides, -1)
			default:
				sides = append(sides, side(h))
			}
		}
		b.pipe.Partition(sides)
	}
}
