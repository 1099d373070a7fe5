package scenario

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// coverage counts the transitions of the switch's state tables. It wraps the switch and compares
// the states before and after each packet and each tick of the phase.
type coverage struct {
	run    *smallRun
	node   sim.Node
	states map[entry]string
	seen   map[transition]struct{}
	cause  wire.Opcode // opcode of the packet that is being processed; ticked: none is
	visit  func(table string, n uint32, state string)
}

// entry identifies a user of a state table.
type entry struct {
	table string
	n     uint32
}

// transition is a change of state, or a state that a packet has not changed.
type transition struct {
	table, from, to string
	cause           wire.Opcode
}

// ticked is the cause of transitions that no packet has caused. No opcode has this value.
const ticked wire.Opcode = 0xff

// Frame passes a frame to the switch and samples the states.
func (c *coverage) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	op := ticked
	if isPlanned(f.Data) {
		op = wire.Opcode(f.Data[bthAt])
	}
	c.node.Frame(now, port, f, out)
	c.sample(op)
}

// Tick ticks the switch and samples the states.
func (c *coverage) Tick(now clock.Time, out *packetio.Batch) {
	c.node.Tick(now, out)
	c.sample(ticked)
}

// Deadline returns the switch's deadline.
func (c *coverage) Deadline() clock.Time { return c.node.Deadline() }

// sample compares all states with the last sample and counts the transitions.
func (c *coverage) sample(cause wire.Opcode) {
	if !c.run.adv.on {
		return
	}
	c.run.adv.steps++
	if c.visit == nil {
		c.states, c.seen = make(map[entry]string), make(map[transition]struct{})
		c.visit = c.look
	}
	c.cause = cause
	c.run.program().States(c.visit)
}

func (c *coverage) look(table string, n uint32, state string) {
	k := entry{table, n}
	before, known := c.states[k]
	if known && before == state {
		return
	}
	c.states[k] = state
	c.seen[transition{table, before, state, c.cause}] = struct{}{}
}
