package apps

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile"
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

func (w *Where) neighbour(a netip.Addr) (wire.MAC, bool) { return w.Rack.Neighbour(a) }
