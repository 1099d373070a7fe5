package serialize

import (
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Kind is the registry entry of the hardened handler for the actions move and atomics.
var Kind = handler.Kind{
	Name: "hardened", Actions: []rules.Action{rules.Move, rules.Atomics}, Mode: rules.Hardened,
	New: func(e *handler.Env) handler.Handler {
		cfg := Config{Moving: e.Moving, Answered: e.Answered, Failed: e.Failed, Late: e.Late}
		cfg.Shared.Silence = e.Silence
		return New(cfg)
	},
	Listings: []handler.Listing{handler.NewListing(heldHelp, (*Machine).heldShares, printHeld)},
}

// Kind returns the machine's entry of the registry.
func (m *Machine) Kind() *handler.Kind { return &Kind }

// Wants lists the shared connections that a rule needs: one for each shard.
func (m *Machine) Wants(r *rules.Rule) []handler.Wanted {
	if r.Service == "" {
		return nil
	}
	list := make([]handler.Wanted, r.NumShards())
	for i := range list {
		list[i] = handler.Want(r, switchconn.Key{Server: r.Server, Shard: i})
	}
	return list
}

// Strict marks the machine as handler.Strict: the switch drops requests with unknown opcodes to the
// servers of its rules. Such a request could change words whose values the machine tracks.
func (m *Machine) Strict() {}
