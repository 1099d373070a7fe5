package hostd

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
)

// guestsFresh is how long the list of guests is used before it is read again. A guest may leave,
// and another guest may get its address.
const guestsFresh = time.Second

// neighbours resolves the IP addresses of guests. Guests join and leave while the daemon runs.
type neighbours struct {
	paths rackfile.Paths
	log   *slog.Logger

	mu     sync.Mutex // guards the fields below
	read   time.Time  // when the guests' files were read last
	list   []guests.Guest
	failed string // the text of the error of the last reading; "" means none
}

// find returns the MAC address of the guest that has an IP address. The bool is false if there is
// no such guest.
func (n *neighbours) find(a netip.Addr) (wire.MAC, bool) {
	a = a.Unmap()
	n.mu.Lock()
	defer n.mu.Unlock()
	if time.Since(n.read) > guestsFresh {
		n.refresh()
	}
	for i := range n.list {
		if g := &n.list[i]; g.IPv4 == a || g.IPv6 == a {
			return g.MAC, true
		}
	}
	return wire.MAC{}, false
}

// refresh reads the guests' files. If one of them cannot be read, the former list remains, and the
// host logs the error once. The caller holds mu.
func (n *neighbours) refresh() {
	n.read = time.Now()
	list, err := guests.List(n.paths)
	if err == nil {
		n.list, n.failed = list, ""
		return
	}
	if n.failed != err.Error() {
		n.failed = err.Error()
		n.log.Warn("addresses of guests that joined since the last reading are not resolved", "error", err)
	}
}
