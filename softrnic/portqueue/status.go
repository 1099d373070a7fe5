package portqueue

import "github.com/rdmalab/rdmalab/softrnic/clock"

// Status is the state of a priority of a port.
type Status struct {
	Priority int   `json:"priority"`
	Frames   int   `json:"frames"`
	Bytes    int64 `json:"bytes"`
	// Paused: the peer has stopped the priority. Pausing: this port has stopped it at the peer. Storm:
	// the watchdog has found a storm.
	Paused  bool `json:"paused,omitempty"`
	Pausing bool `json:"pausing,omitempty"`
	Storm   bool `json:"storm,omitempty"`
	// Source has the bytes of the frames that came in at this port.
	Source Usage `json:"source"`
	Stats
}

// Port returns the state of the priorities of a port.
func (b *Bank) Port(now clock.Time, i int) [Priorities]Status {
	var list [Priorities]Status
	p := &b.ports[i]
	for prio := range list {
		q := &p.queues[prio]
		q.settle(now)
		st := Status{
			Priority: prio, Frames: q.frames, Bytes: q.bytes, Paused: q.paused(now), Pausing: p.xoff>>prio&1 != 0, Storm: q.storm,
			Source: b.buffer.sources[i][prio], Stats: q.stats,
		}
		if st.Pausing {
			st.TxDuration += micros(now.Sub(p.paused[prio]))
		}
		list[prio] = st
	}
	return list
}

// Ports returns the number of ports.
func (b *Bank) Ports() int { return len(b.ports) }

// Used returns how the buffer is used.
func (b *Bank) Used() Usage { return b.buffer.used }

// Pauses returns how many global pause frames, and how many malformed ones, have come in.
func (b *Bank) Pauses() (global, malformed uint64) { return b.globals, b.malformed }

// Waits appends to list the ports whose priority is paused and holds frames that came in at port `in`: the
// peer of that port, which this machine pauses, waits for them.
func (b *Bank) Waits(now clock.Time, in, prio int, list []int) []int {
	for to := range b.ports {
		p := &b.ports[to]
		q := &p.queues[prio]
		if !q.paused(now) {
			continue
		}
		for k := q.first; k >= 0; k = p.slots[k].next {
			if p.slots[k].in == in {
				list = append(list, to)
				break
			}
		}
	}
	return list
}

// Halted reports whether the priority of a port is paused, with a frame that waits, and how many frames have
// left it so far.
func (b *Bank) Halted(now clock.Time, i, prio int) (left uint64, halted bool) {
	q := &b.ports[i].queues[prio]
	return q.stats.TxPackets, q.frames > 0 && q.paused(now)
}
