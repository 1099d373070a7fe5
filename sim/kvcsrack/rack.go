package kvcsrack

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/store/kvcs"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Config describes a rack. Fields that are not marked as required have defaults.
type Config struct {
	Seed uint64
	// Servers and Hosts are the numbers of replicas and of hosts for clients; required.
	Servers, Hosts int
	Shape          kvcs.Shape // required
	// RTT is the round-trip time of the rack; required. Delay is the delay of a link in one
	// direction; 0 means RTT / 4.
	RTT, Delay time.Duration
	Rate       int64 // rate of the links, in bits a second; 0 means that frames take no time
	// MTU, Window and Threshold are those of nic.Config. First is the first congestion window.
	MTU, Window, Threshold int
	First                  float64
	// Lease and Patience are those of kvcs.CoordinatorConfig.
	Lease, Patience time.Duration
	// Rules are fault rules. The link of a host has the host's name.
	Rules []fault.Rule
	Sim   simnet.Config
	// Wrap, if not nil, returns the node of the simulator that takes the place of n, the node of a
	// host.
	Wrap func(name string, n simnet.Node) simnet.Node
}

// Rack is a rack in virtual time.
type Rack struct {
	Net   *simnet.Net
	Hosts []*Host // the coordinator's host, the servers, the hosts of clients
	cfg   Config
	coord *kvcs.Coordinator
	pids  nic.PID
	err   error
}

// maxClients bounds the threads of a host, which share its NIC.
const maxClients = 64

// Name returns the name of a host: co, ms0, ms1 and so on, cn0, cn1 and so on.
func (c *Config) Name(i int) string {
	switch {
	case i == 0:
		return "co"
	case i <= c.Servers:
		return fmt.Sprintf("ms%d", i-1)
	}
	return fmt.Sprintf("cn%d", i-1-c.Servers)
}

func addrOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(1 + i)}) }

func macOf(a netip.Addr) (wire.MAC, bool) {
	b := a.As4()
	return wire.MAC{2, 0, 0, 0, b[2], b[3]}, true
}

// New makes a rack whose coordinator and servers run.
func New(cfg Config) (*Rack, error) {
	cfg.Delay = cmp.Or(cfg.Delay, cfg.RTT/4)
	r := &Rack{Net: simnet.New(cfg.Sim), cfg: cfg}
	n := 1 + cfg.Servers + cfg.Hosts
	sw, err := pipeline.New(pipeline.Config{Ports: n, Program: forward.Program{}})
	if err != nil {
		return nil, err
	}
	box := r.Net.Add("switch", sw)
	for i := range n {
		h := &Host{rack: r, Name: cfg.Name(i), addr: addrOf(i), rand: rand.New(rand.NewPCG(cfg.Seed, uint64(i)))}
		h.ports = make(map[uint16]*Port)
		var node simnet.Node = h
		if cfg.Wrap != nil {
			node = cfg.Wrap(h.Name, h)
		}
		if err := h.boot(); err != nil {
			return nil, err
		}
		h.node = r.Net.Add(h.Name, node)
		up := fault.NewInjector(cfg.Seed, h.Name, fault.Up, cfg.Rules)
		down := fault.NewInjector(cfg.Seed, h.Name, fault.Down, cfg.Rules)
		h.Link = r.Net.Connect(simnet.LinkConfig{
			Name: h.Name, A: simnet.End{Node: h.node}, B: simnet.End{Node: box, Port: i}, Delay: cfg.Delay, Rate: cfg.Rate, Up: up.Frame, Down: down.Frame,
		})
		r.Hosts = append(r.Hosts, h)
	}
	for _, h := range r.Hosts {
		if err := r.serve(h); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// serve starts the coordinator or the server of a host.
func (r *Rack) serve(h *Host) error {
	switch i := slices.Index(r.Hosts, h); {
	case i == 0:
		return r.coordinate()
	case i <= r.cfg.Servers:
		return h.serve()
	}
	return nil
}

func (r *Rack) coordinate() (err error) {
	h := r.Hosts[0]
	r.pids++
	if h.rekeys, err = h.nic.Open(r.pids, 16); err != nil {
		return err
	}
	r.coord, err = kvcs.NewCoordinator(kvcs.CoordinatorConfig{
		Addr: h.addr, PID: r.pids, Shape: r.cfg.Shape, Rand: h.rand, RTT: r.cfg.RTT, Lease: r.cfg.Lease, Patience: r.cfg.Patience,
	})
	h.machine = r.coord
	return err
}

func (r *Rack) Coordinator() *kvcs.Coordinator { return r.coord }

// Server returns the host of server i, and Compute the host of clients with number i.
func (r *Rack) Server(i int) *Host  { return r.Hosts[1+i] }
func (r *Rack) Compute(i int) *Host { return r.Hosts[1+r.cfg.Servers+i] }

// Host returns the host with an address; nil if there is none.
func (r *Rack) Host(a netip.Addr) *Host {
	for _, h := range r.Hosts {
		if h.addr == a {
			return h
		}
	}
	return nil
}

// Part drops all frames between host h and the coordinator's host if off is true, and lets them
// pass again if off is false. Clients still reach both hosts.
func (r *Rack) Part(h *Host, off bool) {
	co := r.Hosts[0]
	for _, pair := range [][2]*Host{{co, h}, {h, co}} {
		if pair[0].cut == nil {
			pair[0].cut = make(map[netip.Addr]bool)
		}
		pair[0].cut[pair[1].addr] = off
	}
}

func (r *Rack) fail(err error) {
	if r.err == nil && err != nil {
		r.err = err
		r.Net.Stop(err)
	}
}

// Client runs f as a thread with a client on a compute host.
func (r *Rack) Client(host int, f func(c *kvcs.Client, p *Port) error) *simnet.Proc {
	h := r.Compute(host)
	port, err := h.open()
	if err != nil {
		r.fail(err)
		return nil
	}
	port.proc = r.Net.Go(fmt.Sprintf("%s/%d", h.Name, port.number), false, func(p *simnet.Proc) {
		defer h.close(port)
		c, err := kvcs.Open(kvcs.ClientConfig{
			Port: port, PID: h.pid, RTT: r.cfg.RTT, Number: r.cfg.Seed<<16 ^ uint64(host)<<8 ^ uint64(port.number), Health: &h.health,
		}, r.Net.Now().Add(10*time.Second))
		if err == nil {
			err = f(c, port)
		}
		if err != nil {
			r.fail(fmt.Errorf("%s: %w", p.Name(), err))
		}
	})
	return port.proc
}

// Run runs until all clients have returned.
func (r *Rack) Run() error { return cmp.Or(r.err, r.Net.Run()) }
