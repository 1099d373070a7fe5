package simrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// gate is a verbs.Gate, by which one thread waits for another, for threads of the simulation.
type gate struct {
	shell *shell
	open  bool
	proc  *sim.Proc // the thread that waits; nil means none
}

// NewGate makes a gate.
func (b *shell) NewGate() verbs.Gate { return &gate{shell: b} }

// Wait parks the running thread until another thread calls Open.
func (g *gate) Wait(deadline clock.Time) error {
	b := g.shell
	b.idle = 0
	for !g.open {
		if b.Now() >= deadline {
			return verbs.ErrTimeout
		}
		g.proc = b.net().Current()
		g.proc.Park(deadline, "another thread of "+b.name)
		g.proc = nil
	}
	g.open = false
	return nil
}

func (g *gate) Open() {
	if g.open = true; g.proc != nil {
		g.proc.Wake()
	}
}
