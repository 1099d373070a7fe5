package hostd

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// guestsFresh is how long the list of guests is used before it is read again: a guest may leave,
// and another guest may get its address.
const guestsFresh = time.Second

// neighbours resolves the IP addresses of guests, which join and leave while the daemon runs.
type neighbours struct {
	paths spec.Paths
	mu    sync.Mutex
	read  time.Time
	list  []guests.Guest
}

// find returns the MAC address that belongs to a guest's IP address.
func (n *neighbours) find(a netip.Addr) (wire.MAC, bool) {
	a = a.Unmap()
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) > guestsFresh {
		// A guest whose file cannot be read is not resolved.
		n.list, _ = guests.List(n.paths)
		n.read = time.Now()
	}
	for i := range n.list {
		if g := &n.list[i]; g.IPv4 == a || g.IPv6 == a {
			return g.MAC, true
		}
	}
	return wire.MAC{}, false
}
