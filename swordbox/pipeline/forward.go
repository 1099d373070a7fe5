package pipeline

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// reservedPrefix is the prefix of the addresses that a bridge does not forward (IEEE 802.1Q, table
// 8-1). The prefix is the whole address except the low four bits.
var reservedPrefix = wire.MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x00}

func isReserved(m wire.MAC) bool {
	m[5] &= 0xf0
	return m == reservedPrefix
}

// forward sends f out of port `to`. If `to` is negative, the destination address decides the port.
// in is the ingress port; -1: the switch made the frame. forward reports whether it sent a frame.
func (s *Switch) forward(in, to int, f packetio.Frame) bool {
	if to < 0 {
		dst := addressee(&f)
		if dst.IsMulticast() {
			f = encoded(f, s.out, s.parsed.sealer)
			if isReserved(dst) {
				s.dropped(in, ReasonReserved, f.Packets())
				return false
			}
			return s.spread(in, f, s.groups.wanted(f.Data))
		}
		if s.self.owns(dst) {
			s.dropped(in, ReasonSelf, f.Packets())
			return false
		}
		hop, fixed := s.fdb.trunks.hop(dst, f.Data)
		switch {
		case fixed && hop < 0:
			s.dropped(in, ReasonNoRoute, f.Packets())
			return false
		case fixed:
			to = hop
		default:
			if to = s.fdb.lookup(s.ctx.Now, dst); to < 0 {
				return s.spread(in, encoded(f, s.out, s.parsed.sealer), nil)
			}
		}
	}
	switch {
	case to >= len(s.ports) || !s.ports[to].up:
		s.dropped(in, ReasonPortDown, f.Packets())
	case to == in:
		s.dropped(in, ReasonSamePort, f.Packets())
	case !s.ports.allowed(in, to) || s.fdb.trunks.parted(s.fdb.groups, in, to, f.Data):
		s.dropped(in, ReasonPartition, f.Packets())
	default:
		s.send(in, to, f)
		return true
	}
	return false
}

func addressee(f *packetio.Frame) wire.MAC {
	if f.Open != nil {
		return f.Open.Frame.Eth.Dst
	}
	return wire.MAC(f.Data[:6])
}

// spread sends f out of every port except its ingress port. If g is not nil, it sends f only to
// ports where the multicast group g has members. It counts f as dropped only if no port got it.
func (s *Switch) spread(in int, f packetio.Frame, g *groupEntry) bool {
	sent, blocked, unwanted := false, false, false
	if !s.fdb.trunks.floods(in) {
		s.dropped(in, ReasonNoRoute, f.Packets())
		return false
	}
	for to := range s.ports {
		switch {
		case to == in || !s.ports[to].up || !s.fdb.trunks.floods(to):
		case g != nil && !s.fdb.trunks.isTrunk(to) && !s.groups.has(g, to, s.ctx.Now):
			unwanted = true
		case !s.ports.allowed(in, to) || s.fdb.trunks.parted(s.fdb.groups, in, to, f.Data):
			blocked = true
		default:
			s.send(in, to, f)
			sent = true
		}
	}
	switch {
	case sent && g != nil:
		s.counters.Multicast++
	case sent:
		s.counters.Flooded++
	case unwanted && !blocked:
		s.dropped(in, ReasonNoMember, f.Packets())
	case blocked:
		s.dropped(in, ReasonPartition, f.Packets())
	default:
		s.dropped(in, ReasonPortDown, f.Packets())
	}
	return sent
}

// send sends f, which came in at port `in` (-1: the switch made it), out of a port, unless the program
// keeps it.
func (s *Switch) send(in, to int, f packetio.Frame) {
	if s.program.queued.Has(to) {
		f = encoded(f, s.out, s.parsed.sealer)
		if s.ctx.kept(to, f) {
			return
		}
	}
	if f.Open != nil {
		s.openSent = true
	}
	f.Port, f.Origin = to, int16(in+1)
	p := &s.ports[to]
	p.TxPackets += uint64(f.Packets())
	p.TxBytes += uint64(f.Len())
	if s.notes.text != "" {
		s.notes.add(len(s.out.Frames), s.notes.text)
	}
	s.out.Frames = append(s.out.Frames, f)
}

// dropped counts dropped packets that came in at port `in`; -1: the switch made them.
func (s *Switch) dropped(in int, r Reason, packets int) {
	c := &s.lost
	if in >= 0 {
		c = &s.ports[in].PortCounters
	}
	c.drop(r, packets)
	if s.notes.on {
		if f := s.ctx.follower; f != nil {
			f.Dropped()
		}
		s.notes.add(-1, "dropped by the switch: "+string(r)+s.decisions.author())
	}
}

// CountDrop counts packets that were dropped outside the pipeline or by a program, for example
// because a fault was injected, the egress queue was full or the port was down. port is the port at
// which they arrived, or through which they were to leave. If there is no such port, CountDrop does
// nothing.
func (s *Switch) CountDrop(port int, r Reason, packets int) {
	if port >= 0 && port < len(s.ports) {
		s.ports[port].drop(r, packets)
	}
}

// SetPort sets whether a port is up. When a port goes down, the switch forgets the addresses and
// the members of multicast groups behind it.
func (s *Switch) SetPort(i int, up bool) {
	if s.ports[i].up && !up {
		s.fdb.flush(i)
		s.groups.flush(s.ctx.Now, i)
	}
	if up && !s.ports[i].up {
		s.groups.portUp(s.ctx.Now)
	}
	s.ports[i].up = up
}

// AddPort adds a port after the others and returns its number; -1: there are already MaxPorts. The
// new port is down and in no partition.
func (s *Switch) AddPort() int {
	if len(s.ports) == MaxPorts {
		return -1
	}
	for i := range s.ports {
		if b := s.ports[i].blocked; b != nil {
			s.ports[i].blocked = append(b, false)
		}
	}
	s.ports = append(s.ports, port{})
	return len(s.ports) - 1
}

// ReusePort gives port i, which is down, to another host: its counters begin again.
func (s *Switch) ReusePort(i int) { s.ports[i].PortCounters = PortCounters{} }

// Partition stops all frames between ports of different groups. group[i] is the group of port i. A
// port with a negative group, or beyond the slice, reaches all ports. A nil slice ends all
// partitions.
func (s *Switch) Partition(group []int) {
	s.fdb.groups = group
	of := func(i int) int {
		if i >= len(group) {
			return -1
		}
		return group[i]
	}
	for i := range s.ports {
		blocked := make([]bool, len(s.ports))
		for j := range blocked {
			blocked[j] = of(i) >= 0 && of(j) >= 0 && of(i) != of(j)
		}
		s.ports[i].blocked = nil
		if slices.Contains(blocked, true) {
			s.ports[i].blocked = blocked
		}
	}
}

// Port returns a copy of a port's counters.
func (s *Switch) Port(i int) PortCounters {
	c := s.ports[i].PortCounters
	c.Drops = maps.Clone(c.Drops)
	return c
}

// Counters returns the counters of the switch. The map counts, by reason, the drops of packets that
// the switch itself had made.
func (s *Switch) Counters() (Counters, map[Reason]uint64) {
	c := s.counters
	c.Groups, c.GroupFull = len(s.groups.byAddr), s.groups.full
	c.MACs, c.MACMoves, c.MACFull, c.MACForeign = len(s.fdb.entries), s.fdb.moves, s.fdb.full, s.fdb.foreign
	c.Flows, c.FlowOverflow = len(s.flows.table), s.flows.overflow
	return c, maps.Clone(s.lost.Drops)
}

// Flows returns the flow counters, sorted by packets, the largest number first.
func (s *Switch) Flows() []Flow { return s.flows.list(s.ctx.Now) }

func (s *Switch) Spec() Spec { return s.program.spec }

// MAC is a learnt address with its port.
type MAC struct {
	MAC  wire.MAC      `json:"mac"`
	Port int           `json:"port"`
	Idle time.Duration `json:"idle"`
}

// MACs returns the learnt addresses, sorted by port and address.
func (s *Switch) MACs() []MAC {
	list := make([]MAC, 0, len(s.fdb.entries))
	for mac, e := range s.fdb.entries {
		list = append(list, MAC{mac, e.port, s.ctx.Now.Sub(e.seen)})
	}
	slices.SortFunc(list, func(a, b MAC) int { return cmp.Or(cmp.Compare(a.Port, b.Port), bytes.Compare(a.MAC[:], b.MAC[:])) })
	return list
}

// ForgetMACs forgets all learnt addresses and returns how many there were.
func (s *Switch) ForgetMACs() int {
	n := len(s.fdb.entries)
	for i := range s.ports {
		s.fdb.flush(i)
	}
	return n
}

// ForgetFlows removes all flow counters and returns how many there were.
func (s *Switch) ForgetFlows() int {
	n := len(s.flows.table)
	clear(s.flows.table)
	clear(s.flows.recent[:])
	return n
}

// Bounds returns how many addresses the switch learns, and how many flows it counts, at most.
func (s *Switch) Bounds() (macs, flows int) { return s.fdb.max, s.flows.max }
