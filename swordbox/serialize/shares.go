package serialize

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// shares divides the places of the pool of held requests among the hosts. A host is a port of the
// switch; it may have any number of addresses and connections. A quarter of the places is reserved:
// each port has the same number of places that no other port can take. The other places are common.
// A host may use at most twice as many common places as are free. So hosts that need places at the
// same time get the same number, and some places stay free: one host alone gets two thirds of the
// common places, and each of n hosts gets 2/(2n+1) of them. A host whose requests wait therefore
// does not delay the requests of another host.
type shares struct {
	// most is how many requests the switch can hold (the number of places). inUse is how many it
	// holds now.
	most, inUse int
	// reserve is how many places are reserved for each port, and ports is the number of ports.
	// common is the number of places that are not reserved, and taken is how many of the common
	// places are in use.
	reserve, ports, common, taken int
	// wanted is true if a flow has asked for a place without success since a place last became
	// free.
	wanted bool
	hosts  []share // index is the port + 1; index 0 is for requests whose port is not known
}

// share says how many places one host uses.
type share struct {
	held int
	// peak is the largest value of held so far. refused counts the requests for which there was no
	// room.
	peak    int
	refused uint64
	// addr is the source of the request that was held or refused last.
	addr netip.Addr
}

const (
	// reserveOf says how many places are reserved: one of every reserveOf.
	reserveOf = 4
	// commonPerFree is how many common places a host may use for each common place that is free.
	commonPerFree = 2
)

func newShares(most int) shares {
	s := shares{most: most, hosts: make([]share, pipeline.MaxPorts+1)}
	s.divide(pipeline.MaxPorts)
	return s
}

// fit computes the reserve of each port again (divide) if the number of ports has changed.
func (s *shares) fit(ports int) {
	if ports != s.ports {
		s.divide(ports)
	}
}

// divide computes the reserve of each port for a number of ports.
func (s *shares) divide(ports int) {
	s.ports = ports
	// One more than the number of ports: requests whose port is not known have a reserve, too.
	s.reserve = s.most / reserveOf / (ports + 1)
	s.common = s.most - s.reserve*(ports+1)
	s.taken = 0
	for i := range s.hosts {
		s.taken += max(0, s.hosts[i].held-s.reserve)
	}
}

// room reports whether the host at a port may have one more held request.
func (s *shares) room(port int) bool {
	h := &s.hosts[port+1]
	return s.inUse < s.most && (h.held < s.reserve || h.held-s.reserve < commonPerFree*(s.common-s.taken))
}

// limit returns how many held requests the host at a port may have while the other hosts keep what
// they have now.
func (s *shares) limit(port int) int {
	over := max(0, s.hosts[port+1].held-s.reserve)
	return s.reserve + max(0, (commonPerFree*(s.common-s.taken+over)+commonPerFree)/(commonPerFree+1))
}

// refused counts the requests for which a share had no room.
func (s *shares) refused() (n uint64) {
	for i := range s.hosts {
		n += s.hosts[i].refused
	}
	return n
}

// take counts one more held request of the host at a port. The caller has checked room.
func (s *shares) take(port int) {
	h := &s.hosts[port+1]
	if h.held >= s.reserve {
		s.taken++
	}
	h.held++
	h.peak = max(h.peak, h.held)
	s.inUse++
}

// giveBack undoes take.
func (s *shares) giveBack(port int) {
	h := &s.hosts[port+1]
	h.held--
	if h.held >= s.reserve {
		s.taken--
	}
	s.inUse--
}
