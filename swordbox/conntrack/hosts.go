package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Bounds of the address table.
const (
	// maxHostsPerPort is how many addresses the table accepts at a port. Packets from further
	// addresses get no flows.
	maxHostsPerPort = 64
	// maxHostsBehind is that for the ports to other switches: all addresses of the largest rack.
	maxHostsBehind = 1024
	// hostIdle is how long an address must have been silent before the table accepts it at another
	// port, or forgets it to make room at its port. It does not apply to bound addresses.
	hostIdle = 10 * time.Second
)

// host is an address, and the port at which its packets arrive.
type host struct {
	addr  netip.Addr
	port  int
	fixed bool // true if the control plane has bound the address to the port
	// last is when a packet from the address was last seen. For packets of a busy flow (Flow.busy)
	// the table updates it at most once per second and flow (the constant rarely).
	last clock.Time
	// learning lists the host's flows without a peer, in the order of their last packets, the
	// oldest first.
	learning list
	// lost is when the table last evicted a learning flow of the host. The table may have missed
	// later packets of that flow. Valid if anyLost is true.
	lost    clock.Time
	anyLost bool
	// setups counts the host's unanswered REQs. flows counts the flows whose requester is this
	// host.
	setups, flows int
}

// hosts holds the addresses that the switch has seen, and those that were bound to a port.
type hosts struct {
	byAddr  map[netip.Addr]*host
	perPort map[int]int // how many addresses each port has
	found   *host       // the host that the method elsewhere looked up last
	sweepAt clock.Time  // forget does nothing before this time
	stats   *Stats
	trunk   int // the port for which ports to other switches are taken; -1: there are none
}

func newHosts(stats *Stats) hosts {
	return hosts{byAddr: make(map[netip.Addr]*host), perPort: make(map[int]int), stats: stats, trunk: -1}
}

// bind carries out Table.Bind.
func (t *hosts) bind(a netip.Addr, port int) {
	h := t.byAddr[a]
	switch {
	case port < 0 && h != nil:
		h.fixed = false
	case port < 0:
	case h == nil:
		t.byAddr[a] = &host{addr: a, port: port, fixed: true}
		t.perPort[port]++
	default:
		t.rehome(h, port)
		h.fixed = true
	}
}

func (t *hosts) elsewhere(a netip.Addr, port int) bool {
	h := t.found
	if h == nil || h.addr != a {
		if h = t.byAddr[a]; h == nil {
			return false
		}
		t.found = h
	}
	return h.fixed && h.port != port
}

// most is how many addresses the table accepts at a port.
func (t *hosts) most(port int) int {
	if port == t.trunk {
		return maxHostsBehind
	}
	return maxHostsPerPort
}

// from returns the host with address a when a packet from it has arrived at port `in`. It adds the
// host if it is new. It returns nil and the reason if the address belongs to another port, or if
// the address is new and the port already has maxHostsPerPort addresses.
func (t *hosts) from(now clock.Time, a netip.Addr, in int) (*host, Reason) {
	h := t.byAddr[a]
	if h == nil {
		if t.perPort[in] >= t.most(in) && !t.forget(now, in) {
			t.stats.NoRoom++
			return nil, NoRoom
		}
		h = &host{addr: a, port: in, last: now}
		t.byAddr[a] = h
		t.perPort[in]++
		return h, Fine
	}
	if h.port != in && !t.move(now, h, in) {
		t.stats.Spoofed++
		return nil, Spoofed
	}
	h.last = now
	return h, Fine
}

// move accepts the address of h at port `in` instead of its former port, if the address is not
// bound and was silent for hostIdle. It reports whether it did.
func (t *hosts) move(now clock.Time, h *host, in int) bool {
	if h.fixed || now.Sub(h.last) < hostIdle {
		return false
	}
	t.rehome(h, in)
	t.stats.HostMoves++
	return true
}

// home reports whether a packet of a flow may arrive at port `in`. It may if the host is at this
// port, which then becomes the port of the flow. It also may if the ICRC is correct and the host
// may move to this port.
func (t *hosts) home(now clock.Time, fl *Flow, in int, icrc Checker) bool {
	if fl.Port < 0 || fl.host.port == in {
		fl.Port = fl.host.port // this is the first packet of an announced flow, or the host has moved
		return fl.Port == in
	}
	if !intact(icrc) || !t.move(now, fl.host, in) {
		return false
	}
	fl.Port = in
	return true
}

func (t *hosts) rehome(h *host, port int) {
	if t.perPort[h.port]--; t.perPort[h.port] == 0 {
		delete(t.perPort, h.port)
	}
	h.port = port
	t.perPort[port]++
}

// forget removes the addresses at a port that have been silent for hostIdle and have no flows. It
// reports whether there were any.
func (t *hosts) forget(now clock.Time, port int) bool {
	if now < t.sweepAt {
		return false
	}
	t.sweepAt = now.Add(time.Second) // limits the work that a flood of addresses can cause
	found := false
	for a, h := range t.byAddr {
		if h.port == port && !h.fixed && h.flows == 0 && h.setups == 0 && now.Sub(h.last) >= hostIdle {
			delete(t.byAddr, a)
			t.found = nil
			t.perPort[port]--
			found = true
		}
	}
	return found
}

// mostLearning returns the host with the most learning flows; nil if there are no learning flows.
func (t *hosts) mostLearning() *host {
	var most *host
	for _, h := range t.byAddr {
		n := h.learning.n
		if n != 0 && (most == nil || n > most.learning.n || n == most.learning.n && h.addr.Less(most.addr)) {
			most = h
		}
	}
	return most
}
