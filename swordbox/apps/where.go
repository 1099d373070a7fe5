package apps

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Where is how a program sees the hosts of the rack: by their addresses and ports. Hosts may join and
// leave the rack while the program runs (Move). The switch's loop owns it.
type Where struct {
	Rack *rackfile.Rack
	// Port returns the port of a host or of another switch; nil means that a host's port is its place in
	// the rack.
	Port func(node string) int
	// Trunks are the ports that lead to other switches.
	Trunks []int
	// Wake is how long the switch's process needs to wake up for a deadline, by the rack's clock; 0 means no time.
	Wake time.Duration
}

// Move replaces the rack, and tells the running program which addresses have come and gone.
func (w *Where) Move(running pipeline.Program, rack *rackfile.Rack, port func(node string) int) {
	if w == nil {
		return
	}
	p, _ := running.(*swordbox.Program)
	w.each(func(_ string, a netip.Addr) {
		if _, ok := rack.Neighbour(a); !ok && p != nil {
			p.Connections().Bind(a, -1)
		}
	})
	w.Rack, w.Port = rack, port
	if p != nil {
		w.bind(p)
	}
}

// bind binds the addresses of the hosts and of other switches to their ports.
func (w *Where) bind(p *swordbox.Program) {
	w.each(func(node string, a netip.Addr) {
		if port := w.port(node); port >= 0 {
			p.Connections().Bind(a, port)
		}
	})
}

// each calls f for each address of each host, and of each other switch, whose requests to servers here
// are those of a client.
func (w *Where) each(f func(node string, a netip.Addr)) {
	if w.Rack.Fabric != nil {
		for _, s := range w.Rack.SwitchAddresses() {
			if s.Name != w.Rack.Switch.Name {
				f(s.Name, s.IPv4)
				f(s.Name, s.IPv6)
			}
		}
	}
	for i := range w.Rack.Hosts {
		h := &w.Rack.Hosts[i]
		for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
			if a.IsValid() {
				f(h.Name, a)
			}
		}
	}
}

// Places returns the ports at which the addresses of this switch's hosts may appear (pipeline.Config.Homes).
func (w *Where) Places() pipeline.Places {
	byHost := make(map[string][]int)
	own := func(h *rackfile.Host) (name string, port int, ok bool) {
		port = w.port(h.Name)
		return cmp.Or(h.NIC.Of, h.Name), port, port >= 0 && !slices.Contains(w.Trunks, port)
	}
	for i := range w.Rack.Hosts {
		if name, port, ok := own(&w.Rack.Hosts[i]); ok {
			byHost[name] = append(byHost[name], port)
		}
	}
	out := make(pipeline.Places)
	for i := range w.Rack.Hosts {
		h := &w.Rack.Hosts[i]
		if name, _, ok := own(h); ok {
			out[h.MAC] = byHost[name]
		}
	}
	return out
}

// portOf returns the port of the host that has an address; -1 means that there is none.
func (w *Where) portOf(a netip.Addr) int {
	h, ok := w.Rack.ByAddr(a)
	if !ok || !a.IsValid() {
		return -1
	}
	return w.port(h.Name)
}

func (w *Where) port(node string) int {
	if w.Port != nil {
		return w.Port(node)
	}
	_, place, _ := w.Rack.Host(node)
	return place
}

// paperRate is the rate of links in the DCQCN paper, in bits a second.
const paperRate = 40_000_000_000

// slowing returns the congestion control of the switch's own rates for requests to a server: DCQCN with the parameters
// of the server's NIC, which sends the notifications, or with those of the paper.
func (w *Where) slowing(server netip.Addr) congestion.Config {
	rate := int64(paperRate)
	if q := w.Rack.Switch.Queues; q != nil && q.Rate > 0 {
		rate = q.Rate
	}
	p, _ := congestion.Profile(congestion.ProfilePaper, rate)
	if h, ok := w.Rack.ByAddr(server); ok && h.Congestion != nil {
		p = *h.Congestion
	}
	p.Algorithm = congestion.AlgorithmDCQCN
	return congestion.Config{Params: p, Wake: w.Wake}
}

func (w *Where) neighbour(a netip.Addr) (wire.MAC, bool) { return w.Rack.Neighbour(a) }
