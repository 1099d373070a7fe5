package cloversteer

import (
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Kind is the registry entry of the published handler for the action steer.
var Kind = handler.Kind{
	Name: "steer published", Actions: []rules.Action{rules.Steer}, Mode: rules.Published,
	New: func(e *handler.Env) handler.Handler { return New(Config{Failed: e.Failed}) },
}

// Kind returns the machine's entry of the registry.
func (m *Machine) Kind() *handler.Kind { return &Kind }

// Wants lists the connection on which the control plane repairs the chains of the rule's server.
func (m *Machine) Wants(r *rules.Rule) []handler.Wanted {
	if r.Service == "" {
		return nil
	}
	return []handler.Wanted{{
		Key:    switchconn.Key{Server: r.Server, Shard: switchconn.RepairShard},
		Target: switchconn.Target{Service: r.Service, MTU: r.MTU},
	}}
}

// Uses reports whether the connection with key k is for repairs.
func (m *Machine) Uses(k switchconn.Key) bool { return k.Shard == switchconn.RepairShard }
