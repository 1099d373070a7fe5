package serialize

import (
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Kind is the registry entry of the published handler for the actions move and atomics.
var Kind = handler.Kind{
	Name: "published", Actions: []rules.Action{rules.Move, rules.Atomics}, Mode: rules.Published,
	New: func(*handler.Env) handler.Handler { return New() },
}

// Kind returns the machine's entry of the registry.
func (m *Machine) Kind() *handler.Kind { return &Kind }
