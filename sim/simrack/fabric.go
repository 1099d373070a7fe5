package simrack

import (
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
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
		cfg := r.linkTo(leaf, t.Name(), simnet.End{Node: far.node, Port: far.port(t.Name())})
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
	topology := apps.Topology(r.Spec)
	for _, b := range f.boxes {
		own := topology.Routes(b.index, func(i int) bool { return f.trunks[i].up })
		w := apps.Wiring{Switch: b.name, Ports: len(b.ports), Host: b.port}
		tree := make([]bool, len(f.trunks))
		for i, t := range f.trunks {
			w.Trunks = append(w.Trunks, b.port(t.Name()))
			tree[i] = slices.Contains(own.Tree, i)
		}
		out := w.Routes(r.Spec, own.Hops, tree)
		out.Groups = f.groups
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
