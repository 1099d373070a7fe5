package executor

import (
	"slices"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Machine is a NIC with the executors of its processes. It is a sans-I/O state machine, like the
// NIC itself.
type Machine struct {
	nic       *nic.NIC
	executors []*Executor
	activity  uint64 // the NIC's Activity when executors were last called
	steps     uint64 // how often executors have acted
	// Ended, if not nil, is called at the end of Frame, EndBatch and Tick if a command has ended
	// since the last of these calls.
	Ended func()
	// Failed, if not nil, is called with the error of a command that the NIC has refused.
	Failed func(error)
}

// NewMachine makes a machine of a NIC. Add adds executors.
func NewMachine(n *nic.NIC) *Machine { return &Machine{nic: n} }

// Add adds the executor of a portal of the NIC.
func (m *Machine) Add(e *Executor) { m.executors = append(m.executors, e) }

// Remove removes an executor whose portal is closed.
func (m *Machine) Remove(e *Executor) {
	m.executors = slices.DeleteFunc(m.executors, func(x *Executor) bool { return x == e })
}

// Activity returns a number that changes when an executor has acted. Then the executor may have
// results.
func (m *Machine) Activity() uint64 { return m.steps }

// Frame passes a frame to the NIC, and lets the executors act.
func (m *Machine) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	m.Receive(now, port, f, out)
	m.EndBatch(now, out)
}

// Receive passes a frame of a receive batch to the NIC. After the last one, the caller must call
// EndBatch: the executors act once for all completions of a batch.
func (m *Machine) Receive(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	m.nic.Frame(now, port, f, out)
}

// Tick lets the NIC and the executors handle the deadlines that have passed.
func (m *Machine) Tick(now clock.Time, out *packetio.Batch) {
	m.nic.Tick(now, out)
	m.EndBatch(now, out)
}

// EndBatch calls the executors after steps of the NIC. Then the NIC sends the commands that they
// have issued.
func (m *Machine) EndBatch(now clock.Time, out *packetio.Batch) {
	ended := m.nic.Activity() != m.activity
	m.activity = m.nic.Activity()
	acted := false
	for _, e := range m.executors {
		if !ended && e.Deadline() > now {
			continue
		}
		acted = true
		m.steps++
		if err := e.Tick(now); err != nil && m.Failed != nil {
			m.Failed(err)
		}
	}
	if acted && m.nic.Deadline() <= now {
		m.nic.Tick(now, out)
	}
	if ended && m.Ended != nil {
		m.Ended()
	}
}

func (m *Machine) Deadline() clock.Time {
	at := m.nic.Deadline()
	for _, e := range m.executors {
		at = clock.Min(at, e.Deadline())
	}
	return at
}
