package pipeline

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Routes says how a switch that is one of several reaches hosts and the other switches. All in Hops have places that
// never change, so the switch does not learn their addresses. It learns those of guests, also at the
// ports of Tree. The switch owns the slices and the map.
type Routes struct {
	// Ports has, by port, whether it leads to another switch. Tree has those of them on which frames are
	// flooded: they form one tree of all switches.
	Ports, Tree []bool
	// Hops has the ports that lead to a host: its own, or those of the shortest paths to its switch. None
	// means that the host cannot be reached now.
	Hops map[wire.MAC][]int
	// Groups has the group of the partition of each host behind another switch that is in one.
	Groups map[wire.MAC]int
}

// Trunks makes a switch one of several (Config.Trunks). The zero value has no routes yet.
type Trunks struct {
	Routes
	fdb *fdb // that of the switch
}

// Route replaces the routes. The switch forgets the addresses that it has learnt at ports to other
// switches.
func (t *Trunks) Route(r Routes) {
	t.Routes = r
	for i, trunk := range r.Ports {
		if trunk {
			t.fdb.flush(i)
		}
	}
}

// isTrunk reports whether a port leads to another switch.
func (t *Trunks) isTrunk(port int) bool {
	return t != nil && port >= 0 && port < len(t.Ports) && t.Ports[port]
}

// floods reports whether flooded frames may pass a port.
func (t *Trunks) floods(port int) bool { return !t.isTrunk(port) || t.Tree[port] }

// learns reports whether the switch may learn that an address is behind a port.
func (t *Trunks) learns(mac wire.MAC, port int) bool {
	if t == nil {
		return true
	}
	_, fixed := t.Hops[mac]
	return !fixed && t.floods(port)
}

// hop returns the port through which a frame goes to its destination, if that is a host of the rack; a
// negative port means that no path leads there now. All frames of one flow take the same of several
// paths.
func (t *Trunks) hop(dst wire.MAC, frame []byte) (port int, ok bool) {
	if t == nil {
		return 0, false
	}
	hops, ok := t.Hops[dst]
	switch {
	case len(frame) < 14 && len(hops) > 0: // a program asks for the port of an address without a packet
		return hops[0], true
	case len(hops) == 0:
		return -1, ok
	case len(hops) == 1:
		return hops[0], true
	}
	if _, fixed := t.Hops[wire.MAC(frame[6:12])]; !fixed {
		// A guest is learnt where the tree leads to it, so its frames take the tree.
		for _, port := range hops {
			if t.floods(port) {
				return port, true
			}
		}
	}
	return hops[flowHash(frame)%uint32(len(hops))], true
}

// parted reports whether the partition of the rack keeps a frame from going out of port `to`. in is its
// ingress port.
func (t *Trunks) parted(groups []int, in, to int, frame []byte) bool {
	if t == nil || len(t.Groups) == 0 || in < 0 || len(frame) < 12 {
		return false
	}
	of := func(port int, far wire.MAC) int {
		if t.isTrunk(port) {
			if g, ok := t.Groups[far]; ok {
				return g
			}
			return -1
		}
		if port < len(groups) {
			return groups[port]
		}
		return -1
	}
	a, b := of(in, wire.MAC(frame[6:12])), of(to, wire.MAC(frame[:6]))
	return a >= 0 && b >= 0 && a != b
}

// flowHash is a hash of the addresses and ports of a frame (FNV-1a, mixed once more, so that its lowest
// bits depend on all bytes).
func flowHash(b []byte) uint32 {
	h := uint32(2166136261)
	add := func(bytes []byte) {
		for _, c := range bytes {
			h = (h ^ uint32(c)) * 16777619
		}
	}
	if len(b) < 14 {
		return 0 // a program asks for the port of an address without a packet
	}
	head, kind := 14, binary.BigEndian.Uint16(b[12:])
	if kind == wire.EtherTypeVLAN && len(b) >= 18 {
		head, kind = 18, binary.BigEndian.Uint16(b[16:])
	}
	switch {
	case kind == wire.EtherTypeIPv4 && len(b) >= head+20:
		add(b[head+12 : head+20])
		ports := head + 4*int(b[head]&15)
		if later := binary.BigEndian.Uint16(b[head+6:]) & 0x3fff; later == 0 && len(b) >= ports+4 { // fragments have no ports, or only the first has
			add(b[ports : ports+4])
		}
	case kind == wire.EtherTypeIPv6 && len(b) >= head+40:
		add(b[head+8 : head+40])
		if len(b) >= head+44 {
			add(b[head+40 : head+44])
		}
	default:
		add(b[:12])
	}
	h ^= h >> 16
	h *= 0x85ebca6b
	return h ^ h>>13
}
