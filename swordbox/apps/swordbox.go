package apps

import (
	"errors"
	"net/netip"

	"github.com/rdmalab/rdmalab/swordbox/apps/serialize"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/hard"
	"github.com/rdmalab/rdmalab/swordbox/paper"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/steer"
	"github.com/rdmalab/rdmalab/swordbox/steer/published"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// swordBox makes the program that serialises requests to memory servers. The rules are those of a former life of the
// switch, which an operator may have changed; without one, those of the rack file.
func swordBox(s *spec.Rack, cfg Config) (pipeline.Program, error) {
	if cfg.Rand == nil {
		return nil, errors.New("the program swordbox needs a source of random numbers")
	}
	set, ok, err := serialize.StoredRules(cfg.Record)
	if err == nil && !ok {
		set, err = rules.NewSet(s.Switch.Rules)
	}
	if err != nil {
		return nil, err
	}
	d, err := dial.New(dial.Config{
		MAC: s.Switch.MAC, IPv4: s.Switch.IPv4, IPv6: s.Switch.IPv6, Resolve: s.Neighbour, LinkMTU: s.LinkMTU,
		Rand: cfg.Rand, Record: cfg.Record,
	})
	if err != nil {
		return nil, err
	}
	track := conntrack.Config{Seed: cfg.Rand.Uint64()}
	if !ok && !cfg.Late {
		track.Settle = -1 // the switch is there before its hosts
	}
	own := serialize.NewOwn(d, cfg.Record)
	h := hard.Config{Moving: own.Moving, Answered: own.Answered, Failed: own.Failed}
	h.Shared.Silence = cfg.Silence
	p := serialize.New(serialize.Config{
		Rules: set, Own: own, Track: track,
		Hard:  hard.New(h),
		Paper: paper.New(),
		Steer: steer.New(steer.Config{Hold: cfg.Hold, Nodes: cfg.Nodes}), SteerPaper: published.New(published.Config{Failed: own.Failed}),
	})
	for port, h := range s.Hosts {
		for _, a := range []netip.Addr{h.IPv4, h.IPv6} {
			if a.IsValid() {
				p.Connections().Bind(a, port)
			}
		}
	}
	if !ok {
		err = p.SetRules(set) // so that the next life knows that it is not the first
	}
	return p, err
}
