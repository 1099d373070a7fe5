package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Bounds of what is remembered about addresses.
const (
	// maxHostsPerPort is how many addresses may be behind a port. A port that claims more gets no rows for them.
	maxHostsPerPort = 64
	// hostIdle is how long an address that nobody bound must be silent before another port may have it.
	hostIdle = 10 * time.Second
)

// host is an address, and the port that it is behind.
type host struct {
	addr netip.Addr
	port int
	// fixed: the control plane said so.
	fixed bool
	last  clock.Time
	// learning are the host's rows without a peer, the one silent for longest first.
	learning list
	// lost is when a learning row was given up or refused; the switch may have missed packets of it.
	lost    clock.Time
	anyLost bool
	// setups are its requests for a connection that nobody has answered; rows all of its rows.
	setups, rows int
}

// Bind says that an address is behind a port and nowhere else, whatever packets claim. A negative port takes it back.
func (t *Table) Bind(a netip.Addr, port int) {
	h := t.hosts[a]
	switch {
	case port < 0 && h != nil:
		h.fixed = false
	case port < 0:
	case h == nil:
		t.hosts[a] = &host{addr: a, port: port, fixed: true}
		t.perPort[port]++
	default:
		t.rehome(h, port)
		h.fixed = true
	}
}

// from returns the host that a packet says it comes from; nil with the reason if it cannot be.
func (t *Table) from(now clock.Time, a netip.Addr, in int) (*host, Reason) {
	h := t.hosts[a]
	if h == nil {
		if t.perPort[in] >= maxHostsPerPort && !t.forgetHost(now, in) {
			return nil, NoRoom
		}
		h = &host{addr: a, port: in, last: now}
		t.hosts[a] = h
		t.perPort[in]++
		return h, Fine
	}
	if h.port != in && !t.moves(now, h, in) {
		return nil, Spoofed
	}
	h.last = now
	return h, Fine
}

// moves lets an address go to another port if it may.
func (t *Table) moves(now clock.Time, h *host, in int) bool {
	if h.fixed || now.Sub(h.last) < hostIdle {
		return false
	}
	t.rehome(h, in)
	t.stats.HostMoves++
	return true
}

func (t *Table) rehome(h *host, port int) {
	if t.perPort[h.port]--; t.perPort[h.port] == 0 {
		delete(t.perPort, h.port)
	}
	h.port = port
	t.perPort[port]++
}

// forgetHost makes room for another address behind a port.
func (t *Table) forgetHost(now clock.Time, port int) bool {
	if now < t.hostSweep {
		return false
	}
	t.hostSweep = now.Add(time.Second) // a flood of addresses must not cost a sweep each
	found := false
	for a, h := range t.hosts {
		if h.port == port && !h.fixed && h.rows == 0 && h.setups == 0 && now.Sub(h.last) >= hostIdle {
			delete(t.hosts, a)
			t.near = nil
			t.perPort[port]--
			found = true
		}
	}
	return found
}
