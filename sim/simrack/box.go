package simrack

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// box is one switch of the rack: the only one, or a leaf or spine of the fabric.
type box struct {
	rack  *Rack
	index int    // in the order of rackfile.Rack.SwitchNames
	name  string // in the rack file
	node  simnet.NodeID
	ports []string // names of the links, by port
	pipe  *pipeline.Switch
	// program is that of pipe. trunks makes pipe one of several; nil if it is the only one.
	program pipeline.Program
	trunks  *pipeline.Trunks
	// starts counts how often the switch was started. memory is its journal, which survives a crash of
	// the switch.
	starts int
	memory []byte
}

// newBox makes switch i of the rack.
func (r *Rack) newBox(i int, name string) (*box, error) {
	b := &box{rack: r, index: i, name: name}
	for k := range r.Spec.Hosts {
		if h := &r.Spec.Hosts[k]; r.Spec.LeafOf(h) == name {
			b.ports = append(b.ports, h.Name)
		}
	}
	for _, t := range r.Spec.Trunks() {
		if name == t.Leaf || name == t.Far {
			b.ports = append(b.ports, t.Name())
		}
	}
	if r.Spec.Fabric != nil {
		b.trunks = new(pipeline.Trunks)
	}
	sw, err := b.start()
	if err != nil {
		return nil, err
	}
	b.node = r.net.Add(name, sw)
	timing := boxTiming{transits: r.transits}
	if r.opt.Cost != nil {
		timing.box = cost.NewBox(&r.opt.Cost.Switch)
	}
	if timing != (boxTiming{}) {
		r.net.SetTiming(b.node, timing)
	}
	return b, nil
}

// queue gives the ports of the switch the queues of the rack file. Its links must exist.
func (b *box) queue() error {
	q := b.rack.Spec.Switch.Queues
	if q == nil {
		return nil
	}
	queues, err := portqueue.New(virtual(*q), len(b.ports))
	if err != nil {
		return err
	}
	queues.OnMark = func(now clock.Time, frame []byte) { b.pipe.Marks.Marked(now, frame) } // a restart replaces the switch
	b.rack.net.SetQueues(b.node, queues)
	return nil
}

// start makes a switch with the program of the rack file and empty tables. If the switch was started
// before, its journal has the entries of that incarnation.
func (b *box) start() (simnet.Node, error) {
	own := b.rack.Spec.OnSwitch(b.name)
	program, err := b.newProgram(own, false)
	if err != nil {
		return nil, err
	}
	places := apps.Where{Rack: own, Port: b.port}
	cfg := pipeline.Config{Ports: max(1, len(b.ports)), Program: program, Self: apps.Self(own), Homes: pipeline.NewHomes(places.Places()), Trunks: b.trunks}
	if b.rack.transits != nil {
		cfg.Follower = b.rack.transits
	}
	p, err := pipeline.New(cfg)
	if err != nil {
		return nil, err
	}
	b.pipe, b.program = p, program
	return b.rack.wrap(b.name, p), nil
}

// newProgram makes the switch's program; own is what the switch knows of the rack. late is true if
// connections may be open whose handshakes the program has not seen.
func (b *box) newProgram(own *rackfile.Rack, late bool) (pipeline.Program, error) {
	b.starts++
	if f := b.rack.opt.Program; f != nil {
		return f(own)
	}
	cfg := apps.Config{Rand: b.rack.rand(laneSwitch, b.index<<16|b.starts), Late: late, Nodes: b.rack.opt.Nodes}
	if own.Switch.Program == rackfile.ProgramSwordBox {
		if b.memory == nil {
			b.memory = make([]byte, journal.Size)
		}
		rec, err := journal.Open(b.memory)
		if err != nil {
			return nil, err
		}
		cfg.Journal = rec
	}
	return apps.New(own, cfg)
}

// linkTo describes a link between a switch and another node. If the ports of the switch have a rate, the link
// has this rate.
func (r *Rack) linkTo(b *box, name string, far simnet.End) simnet.LinkConfig {
	cfg := simnet.LinkConfig{
		Name: name, A: far, B: simnet.End{Node: b.node, Port: b.port(name)},
		Delay: r.opt.Delay, Rate: r.opt.Rate, Queue: r.opt.Queue,
	}
	if c := r.opt.Cost; c != nil {
		cfg.Overhead = c.Link.Overhead
	}
	if q := r.Spec.Switch.Queues; q != nil {
		cfg.Rate, cfg.Overhead = q.Rate, q.Overhead
	}
	return cfg
}

// port returns the port of a link of the switch.
func (b *box) port(link string) int { return slices.Index(b.ports, link) }
