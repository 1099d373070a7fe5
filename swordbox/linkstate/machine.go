package linkstate

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Times of the protocol. Silence is long, because on a busy machine the process of a switch may not run
// for a while.
const (
	Interval = 50 * time.Millisecond
	Silence  = 500 * time.Millisecond
)

// trunks is a set of trunks.
type trunks [MaxTrunks / 8]byte

func (c *trunks) has(i int) bool { return c[i/8]&(1<<(i%8)) != 0 }

func (c *trunks) set(i int, on bool) {
	c[i/8] &^= 1 << (i % 8)
	if on {
		c[i/8] |= 1 << (i % 8)
	}
}

// record is what a switch says of its trunks. A greater number replaces a smaller one; 0 means that the
// switch has said nothing yet.
type record struct {
	number uint64
	works  trunks
}

// neighbour is what a switch sees of one of its own trunks.
type neighbour struct {
	carrier bool
	heard   clock.Time // when the last message came; 0 means never
}

// Machine is the link state of one switch. Make it with New.
type Machine struct {
	topology Topology
	self     int
	records  []record    // by switch
	own      []neighbour // by trunk; unused for trunks of other switches
	due      clock.Time  // when the next message is due
}

// New makes the machine of switch self. first is the first number of its record: greater than all that
// a former incarnation of the switch has used, such as the time in microseconds.
func New(t Topology, self int, first uint64) *Machine {
	m := &Machine{topology: t, self: self, records: make([]record, t.Switches), own: make([]neighbour, len(t.Trunks))}
	m.records[self].number = max(first, 1)
	return m
}

// Carrier tells the machine whether one of the switch's trunks has a carrier.
func (m *Machine) Carrier(now clock.Time, trunk int, up bool) {
	m.own[trunk].carrier = up
	m.look(now)
}

// Deadline returns when Tick must be called.
func (m *Machine) Deadline() clock.Time { return m.due }

// Tick is called at Deadline. It reports whether the switch must send a message on all of its trunks.
func (m *Machine) Tick(now clock.Time) bool {
	m.look(now)
	if now < m.due {
		return false
	}
	m.due = now.Add(Interval)
	return true
}

// look finds out which of the switch's own trunks work. If that has changed, a message is due.
func (m *Machine) look(now clock.Time) {
	r := &m.records[m.self]
	changed := false
	for i, c := range m.topology.Trunks {
		if _, own := c.other(m.self); !own {
			continue
		}
		n := &m.own[i]
		works := n.carrier && n.heard > 0 && now.Sub(n.heard) <= Silence
		changed = changed || works != r.works.has(i)
		r.works.set(i, works)
	}
	if changed {
		r.number++
		m.due = now
	}
}

// Up reports whether a trunk works, as both of its switches say.
func (m *Machine) Up(trunk int) bool {
	c := m.topology.Trunks[trunk]
	return m.records[c.A].works.has(trunk) && m.records[c.B].works.has(trunk)
}

// Routes returns how frames leave the switch now.
func (m *Machine) Routes() Routes { return m.topology.Routes(m.self, m.Up) }

// Receive takes a message that came in on one of the switch's trunks. It ignores one that is none, or
// that comes from another switch than the trunk's.
func (m *Machine) Receive(now clock.Time, trunk int, frame []byte) {
	far, own := m.topology.Trunks[trunk].other(m.self)
	from, list, ok := m.parse(frame)
	if !own || !ok || from != far {
		return
	}
	m.own[trunk].heard = max(now, 1)
	for _, s := range list {
		r := &m.records[s.of]
		switch {
		case s.of == m.self && s.number >= r.number && s.works != r.works:
			// Others still know a record of a former incarnation with a greater number.
			r.number = s.number + 1
			m.due = now
		case s.of != m.self && s.number > r.number:
			if s.works != r.works {
				m.due = now
			}
			*r = s.record
		}
	}
	m.look(now)
}
