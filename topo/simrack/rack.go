package simrack

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/sim"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Options are what a rack file does not say. The zero value is usable.
type Options struct {
	// Seed makes addresses of memory, keys, queue pair numbers, first PSNs and faults; 0: that of the rack.
	Seed uint64
	// Delay of each link; 0: one microsecond.
	Delay time.Duration
	// Rate of each link in bits a second; 0: unlimited.
	Rate int64
	// Queue is the frames that may wait for a link with a Rate; 0: 1024.
	Queue int
	// Window is the engine's, in packets; 0: its default.
	Window int
	// FirstPSN, if set, is asked for the first PSN of each side of each connection.
	FirstPSN func(r *rand.Rand) wire.PSN
	// Datagrams makes Host.Manager connect by the NICs' connection managers, whose datagrams cross the links and share
	// their faults. Without, connections are made as over TCP.
	Datagrams bool
	// MaxEvents, MaxTime and Trace are those of sim.Config.
	MaxEvents uint64
	MaxTime   clock.Time
	Trace     func(*sim.Event)
	// Wrap replaces a node by another one around it, for tests that plant a bug; nil: none.
	Wrap func(name string, n sim.Node) sim.Node
}

// defaultDelay is that of a link.
const defaultDelay = time.Microsecond

// Rack is a rack in virtual time. It is for one goroutine.
type Rack struct {
	Spec  *spec.Rack
	opt   Options
	net   *sim.Net
	hosts []*Host
	sw    sim.NodeID
	pipe  *pipeline.Switch
	seed  uint64
}

// New builds the rack: everything is up, no application runs.
func New(s *spec.Rack, opt Options) (*Rack, error) {
	if opt.Delay == 0 {
		opt.Delay = defaultDelay
	}
	r := &Rack{Spec: s, opt: opt, seed: opt.Seed}
	if r.seed == 0 {
		r.seed = s.Seed
	}
	r.net = sim.New(sim.Config{MaxEvents: opt.MaxEvents, MaxTime: opt.MaxTime, Trace: opt.Trace})
	sw, err := r.newSwitch()
	if err != nil {
		return nil, err
	}
	r.sw = r.net.Add(spec.SwitchName, sw)
	for i := range s.Hosts {
		if err := r.addHost(i); err != nil {
			return nil, fmt.Errorf("host %s: %w", s.Hosts[i].Name, err)
		}
	}
	return r, nil
}

// Lanes of randomness: every part of the rack has its own, so that a change in one does not shift the others.
const (
	laneEngine = 1 + iota
	laneApp
	laneTear
)

// rand returns the generator of one part of the rack.
func (r *Rack) rand(lane, index int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(lane)<<32|uint64(index)))
}

func (r *Rack) newSwitch() (sim.Node, error) {
	if p := r.Spec.Switch.Program; p != "" && p != "forward" {
		return nil, fmt.Errorf("switch program %q: the simulator has forward only", p)
	}
	p, err := pipeline.New(pipeline.Config{Ports: max(1, len(r.Spec.Hosts)), Program: forward.Program{}})
	if err != nil {
		return nil, err
	}
	r.pipe = p
	return r.wrap(spec.SwitchName, p), nil
}

func (r *Rack) wrap(name string, n sim.Node) sim.Node {
	if r.opt.Wrap == nil {
		return n
	}
	return r.opt.Wrap(name, n)
}

// addHost makes host i with its link.
func (r *Rack) addHost(i int) error {
	hs := &r.Spec.Hosts[i]
	h := &Host{Spec: hs, rack: r, index: i, listeners: make(map[string]*listener)}
	eng, err := engine.New(engine.Config{
		Name: hs.Name, MAC: hs.MAC, LinkMTU: r.Spec.LinkMTU, GIDs: gids(hs), Rand: r.rand(laneEngine, i),
		Resolve: r.resolve, Window: r.opt.Window,
	})
	if err != nil {
		return err
	}
	h.eng = eng
	h.tear()
	h.node = r.net.Add(hs.Name, r.wrap(hs.Name, h))
	h.link = r.net.Connect(sim.LinkConfig{
		Name: hs.Name, A: sim.End{Node: h.node}, B: sim.End{Node: r.sw, Port: i},
		Delay: r.opt.Delay, Rate: r.opt.Rate, Queue: r.opt.Queue,
	})
	r.hosts = append(r.hosts, h)
	h.SetFaults(r.Spec.Faults)
	return nil
}

// Host returns the host called name; nil if there is none.
func (r *Rack) Host(name string) *Host {
	if _, i, ok := r.Spec.Host(name); ok {
		return r.hosts[i]
	}
	return nil
}

// Now is the virtual time.
func (r *Rack) Now() clock.Time { return r.net.Now() }

// Events is the number of events handled so far.
func (r *Rack) Events() uint64 { return r.net.Events() }

// At calls f at a virtual time. f may use the methods of Rack and Host, but not wait.
func (r *Rack) At(t clock.Time, f func()) { r.net.At(t, f) }

// Run runs until all clients have returned. A client that waits for ever is a *sim.StuckError with its name.
func (r *Rack) Run() error { return r.net.Run() }

// Stop makes Run return err after the current event.
func (r *Rack) Stop(err error) { r.net.Stop(err) }

// Settle goes on for d of virtual time after Run: what is still on its way arrives.
func (r *Rack) Settle(d time.Duration) error { return r.net.RunUntil(r.net.Now().Add(d)) }

// Close ends what still runs.
func (r *Rack) Close() { r.net.Close() }

// Switch is the pipeline.
func (r *Rack) Switch() *pipeline.Switch { return r.pipe }

// CrashSwitch stops the switch: frames to it and in it are lost.
func (r *Rack) CrashSwitch() { r.net.SetUp(r.sw, false) }

// RestartSwitch starts the switch with empty tables.
func (r *Rack) RestartSwitch() error {
	sw, err := r.newSwitch()
	if err == nil {
		r.net.Replace(r.sw, sw)
	}
	return err
}

// Partition cuts every path between a group of hosts and all others; an empty group heals. A restart of the switch
// heals too.
func (r *Rack) Partition(group []string) {
	if len(group) == 0 {
		r.pipe.Partition(nil)
		return
	}
	side := make([]int, len(r.hosts))
	for _, name := range group {
		if h := r.Host(name); h != nil {
			side[h.index] = 1
		}
	}
	r.pipe.Partition(side)
}

// resolve is every NIC's neighbour table.
func (r *Rack) resolve(a addr) (wire.MAC, bool) {
	h, ok := r.Spec.ByAddr(a)
	if !ok {
		return wire.MAC{}, false
	}
	return h.MAC, true
}

// injectors makes the verdicts of both directions of a host's link.
func (r *Rack) injectors(link string, rules []fault.Rule) (up, down sim.Verdict) {
	one := func(d fault.Dir) sim.Verdict {
		in := fault.NewInjector(r.seed, link, d, rules)
		if !in.Active() {
			return nil
		}
		return in.Frame
	}
	return one(fault.Up), one(fault.Down)
}

// Hosts lists all hosts, in the order of the rack file.
func (r *Rack) Hosts() []*Host { return r.hosts }
