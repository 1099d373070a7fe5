package hostd

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// guestsFresh is how long what was read of the rack's guests is believed: one can go, and another
// come to its address.
const guestsFresh = time.Second

// neighbours knows the guests of the rack, which come and go while the daemon runs.
type neighbours struct {
	paths spec.Paths
	mu    sync.Mutex
	read  time.Time
	list  []guests.Guest
}

// find gives the MAC of a guest's address.
func (n *neighbours) find(a netip.Addr) (wire.MAC, bool) {
	a = a.Unmap()
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) > guestsFresh {
		// A host whose file cannot be read is no neighbour now.
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
