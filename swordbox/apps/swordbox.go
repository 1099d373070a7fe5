package apps

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// swordBox makes the program swordbox. It takes the rules from the journal of the former
// incarnation of the switch, because an operator may have changed them. If there was no former
// incarnation, it takes them from the rack file.
func swordBox(s *spec.Rack, cfg Config) (pipeline.Program, error) {
	if cfg.Rand == nil {
		return nil, errors.New("the program swordbox needs a source of random numbers")
	}
	set, ok, err := swordbox.StoredRules(cfg.Journal)
	if err == nil && !ok {
		set, err = rules.NewSet(s.Switch.Rules)
	}
	if err != nil {
		return nil, err
	}
	d, err := switchconn.New(switchconn.Config{
		MAC: s.Switch.MAC, IPv4: s.Switch.IPv4, IPv6: s.Switch.IPv6, Resolve: s.Neighbour, LinkMTU: s.LinkMTU,
		Rand: cfg.Rand, Journal: cfg.Journal,
	})
	if err != nil {
		return nil, err
	}
	track := conntrack.Config{Seed: cfg.Rand.Uint64(), Connections: cfg.Connections}
	if !ok && !cfg.Late {
		track.Settle = -1 // the switch starts before its hosts, so every connection begins later
	}
	own := swordbox.NewOwn(d, cfg.Journal)
	env := handler.Env{
		Moving: own.Moving, Answered: own.Answered, Failed: own.Failed, Silence: cfg.Silence, Hold: cfg.Hold, Nodes: cfg.Nodes,
		Port: portsOf(s), MAC: s.Neighbour, Late: ok || cfg.Late, Behind: own.Behind, FormerlyBehind: own.FormerlyBehind,
	}
	all := make([]handler.Handler, len(handlers))
	for i, k := range handlers {
		all[i] = k.New(&env)
	}
	p := swordbox.New(swordbox.Config{Rules: set, Own: own, Track: track, Handlers: all})
	for port, h := range s.Hosts {
		for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
			if a.IsValid() {
				p.Connections().Bind(a, port)
			}
		}
	}
	if !ok {
		err = p.SetRules(set) // rules in the journal tell the next incarnation that it is not the first
	}
	return p, err
}

// portsOf returns a function that maps the address of a host to its port; -1 means that no host has
// the address.
func portsOf(s *spec.Rack) func(netip.Addr) int {
	return func(a netip.Addr) int {
		return slices.IndexFunc(s.Hosts, func(h spec.Host) bool { return a.IsValid() && (a == h.IPv4 || a == h.IPv6) })
	}
}
