package conntrack

import "net/netip"

// Elsewhere reports whether an address is bound to another port: what comes in at this one in its name is a lie. Of an
// address that nobody bound nothing is known.
func (t *Table) Elsewhere(a netip.Addr, port int) bool {
	h := t.near
	if h == nil || h.addr != a {
		if h = t.hosts[a]; h == nil {
			return false
		}
		t.near = h
	}
	return h.fixed && h.port != port
}
