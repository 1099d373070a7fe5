package scenario

import (
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// coverage is a node around the switch that records the transitions of the switch's state tables.
// From smallReady on, it compares the states after each packet and each tick with those before.
type coverage struct {
	simnet.Node
	run    *smallRun
	states map[entry]*visited
	seen   map[transition]struct{}
	// order has the users of state tables (see entry) in the order in which the last sample visited
	// them. The next sample nearly always visits them in the same order, and then needs no lookup.
	// at is the index in order of the user that the present sample is expected to visit next.
	order []*visited
	at    int
	cause wire.Opcode // opcode of the packet that the switch processes; ticked if there is none
	visit func(table string, n uint32, state string)
}

// entry names a user of one of the switch's state tables: an object (such as a flow) that is always
// in one of the table's states. table is the name of the table, n the number of the object.
type entry struct {
	table string
	n     uint32
}

// visited is a user of a state table of the switch (such as a flow), with the state that it had in
// the last sample.
type visited struct {
	entry
	state string
}

// transition is a change of state of one user (such as a flow) of the state table `table`; from is
// "" if the user is new. cause is the opcode of the packet that caused the change, or ticked.
type transition struct {
	table, from, to string
	cause           wire.Opcode
}

// ticked is the cause of transitions that no packet has caused. No opcode has this value.
const ticked wire.Opcode = 0xff

func (c *coverage) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	op := ticked
	if isPlanned(f.Data) {
		op = wire.Opcode(f.Data[bthAt])
	}
	c.Node.Frame(now, port, f, out)
	c.sample(op)
}

func (c *coverage) Tick(now clock.Time, out *packetio.Batch) {
	c.Node.Tick(now, out)
	c.sample(ticked)
}

// sample compares the states of all users of state tables (see entry) with those of the last sample
// and records the transitions.
func (c *coverage) sample(cause wire.Opcode) {
	if !c.run.adv.on {
		return
	}
	c.run.adv.steps++
	if c.visit == nil {
		c.states, c.seen = make(map[entry]*visited), make(map[transition]struct{})
		c.visit = c.look
	}
	c.cause, c.at = cause, 0
	c.run.program().States(c.visit)
}

func (c *coverage) look(table string, n uint32, state string) {
	v := c.user(entry{table, n})
	if v.state == state {
		return
	}
	before := v.state
	v.state = state
	c.seen[transition{table, before, state, c.cause}] = struct{}{}
}

// user returns the user k, which the sample visits next. Its state is "" if it is new.
func (c *coverage) user(k entry) *visited {
	if c.at == len(c.order) {
		c.order = append(c.order, nil)
	}
	v := c.order[c.at]
	if v == nil || v.entry != k {
		if v = c.states[k]; v == nil {
			v = &visited{entry: k}
			c.states[k] = v
		}
		c.order[c.at] = v
	}
	c.at++
	return v
}
