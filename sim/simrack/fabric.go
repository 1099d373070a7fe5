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

// fabric is the switches of a rack, one or several, and the trunks between them.
type fabric struct {
	rack   *Rack
	boxes  []*box // in the order of rackfile.Rack.SwitchNames
	trunks []*trunk
	// groups are the groups of the partition, by host, if there are several switches; nil if there is none.
	groups map[wire.MAC]int
}

// build makes the switches and the trunks.
func (f *fabric) build() error {
	for i, name := range f.rack.Spec.SwitchNames() {
		b, err := f.rack.newBox(i, name)
		if err != nil {
			return err
		}
		f.boxes = append(f.boxes, b)
	}
	f.connect()
	return nil
}

// box returns the switch with a name of rackfile.Rack.SwitchNames.
func (f *fabric) box(name string) *box {
	return f.boxes[slices.IndexFunc(f.boxes, func(b *box) bool { return b.name == name })]
}

// connect connects the switches, and gives them their routes.
func (f *fabric) connect() {
	r := f.rack
	for _, t := range r.Spec.Trunks() {
		leaf, far := f.box(t.Leaf), f.box(t.Far)
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
		f.trunks = append(f.trunks, l)
	}
	f.route()
}

// SetTrunk raises or cuts the trunk between two switches. All switches know it at once: what tells them
// takes no time in the simulator.
func (r *Rack) SetTrunk(name string, up bool) error {
	f := &r.fabric
	i := slices.IndexFunc(f.trunks, func(t *trunk) bool { return t.Name() == name })
	if i < 0 {
		return fmt.Errorf("no trunk %q", name)
	}
	f.trunks[i].up = up
	f.trunks[i].link.SetUp(up)
	f.route()
	return nil
}

// route gives the switches the routes over the trunks that are up.
func (f *fabric) route() {
	r := f.rack
	if r.Spec.Fabric == nil {
		return
	}
	names := r.Spec.SwitchNames()
	topology := linkstate.Topology{Switches: len(names)}
	for _, t := range f.trunks {
		topology.Trunks = append(topology.Trunks, linkstate.Trunk{A: slices.Index(names, t.Leaf), B: slices.Index(names, t.Far)})
	}
	addresses := r.Spec.SwitchAddresses()
	for _, b := range f.boxes {
		own := topology.Routes(b.index, func(i int) bool { return f.trunks[i].up })
		out := pipeline.Routes{Ports: make([]bool, len(b.ports)), Tree: make([]bool, len(b.ports)), Hops: make(map[wire.MAC][]int), Groups: f.groups}
		for _, t := range f.trunks {
			if k := b.port(t.Name()); k >= 0 {
				out.Ports[k] = true
			}
		}
		for _, i := range own.Tree {
			out.Tree[b.port(f.trunks[i].Name())] = true
		}
		towards := make(map[string][]int) // ports by switch
		for i, name := range names {
			hops := []int{}
			for _, t := range own.Hops[i] {
				hops = append(hops, b.port(f.trunks[t].Name()))
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
// partition, and so does a restart of the switch; of a leaf, for the paths between its own hosts.
func (r *Rack) Partition(group []string) {
	f := &r.fabric
	side := func(h *Host) int {
		if slices.Contains(group, h.Spec.Name) {
			return 1
		}
		return 0
	}
	if f.groups = nil; len(group) > 0 {
		f.groups = make(map[wire.MAC]int)
		for _, h := range r.hosts {
			f.groups[h.Spec.MAC] = side(h)
		}
	}
	f.route()
	for _, b := range f.boxes {
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
