package hostd

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// guestsFresh is how long the list of guests is used before it is read again. A guest may leave,
// and another guest may get its address.
const guestsFresh = time.Second

// neighbours resolves the IP addresses of guests. Guests join and leave while the daemon runs.
type neighbours struct {
	paths spec.Paths
	mu    sync.Mutex
	read  time.Time // when list was read from the guests' files
	list  []guests.Guest
}

// find returns the MAC address of the guest that has an IP address. The bool is false if there is
// no such guest.
func (n *neighbours) find(a netip.Addr) (wire.MAC, bool) {
	a = a.Unmap()
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) > guestsFresh {
		// If a file cannot be read, List returns no guests, and no guest's address is resolved.
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
