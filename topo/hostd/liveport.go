package hostd

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/nl"
)

const (
	// linkPoll is the interval at which the daemon checks the carrier of its port.
	linkPoll = 100 * time.Millisecond
	// maxAddresses is the largest number of addresses of the NIC's port.
	maxAddresses = 64
)

// addressTable is the table of the port's addresses. gids is the present one. fixed has the addresses
// that stay whatever the interface has: the link-local address of the MAC address, as in a kernel, and
// those that the interface did not have when the daemon started.
type addressTable struct{ gids, fixed []verbs.GID }

// newAddressTable returns the table gids. addrs are the addresses of the interface.
func newAddressTable(mac wire.MAC, gids []verbs.GID, addrs []netip.Addr) addressTable {
	p := addressTable{gids: gids, fixed: []verbs.GID{verbs.LinkLocalGID(mac)}}
	for _, g := range gids {
		if !slices.Contains(addrs, g.Addr()) {
			p.fixed = append(p.fixed, g)
		}
	}
	return p
}

// update changes the table of addresses to those that the interface has now. Addresses that stay keep
// their index. One that is gone leaves a free entry, which the next new address takes. Addresses that
// do not fit are left out.
func (p *addressTable) update(addrs []netip.Addr) {
	table := slices.Clone(p.gids)
	for i, g := range table {
		if !slices.Contains(addrs, g.Addr()) && !slices.Contains(p.fixed, g) {
			table[i] = verbs.GID{}
		}
	}
	for _, a := range addrs {
		g := verbs.GIDOf(a)
		if slices.Contains(table, g) {
			continue
		}
		if free := slices.IndexFunc(table, verbs.GID.IsZero); free >= 0 {
			table[free] = g
		} else if len(table) < maxAddresses {
			table = append(table, g)
		}
	}
	for len(table) > 0 && table[len(table)-1].IsZero() {
		table = table[:len(table)-1]
	}
	p.gids = table
}

// livePort keeps the port of the NIC, and the files that show it to programs, like the interface:
// carrier, MTU and addresses.
type livePort struct {
	log    *slog.Logger
	ifname string
	real   bool // false in tests without privileges, which have no interface
	link   port
	dev    *device.Device
	most   int // MTU of the rack's links in bytes
	down   bool
	table  addressTable
	files  sysfs
}

// follow keeps the NIC and the files up to date until stop closes.
func (p *livePort) follow(stop <-chan struct{}) {
	changed := make(chan struct{}, 1)
	changed <- struct{}{}
	var watcher sync.WaitGroup
	if p.real {
		watcher.Go(func() { p.watch(stop, changed) })
	}
	tick := time.NewTicker(linkPoll)
	defer tick.Stop()
	for {
		if down := !p.link.LinkUp(); down != p.down {
			p.down = down
			p.dev.SetLink(!down)
			p.show()
		}
		select {
		case <-stop:
			watcher.Wait()
			return
		case <-changed:
			if p.real {
				p.read()
			}
		case <-tick.C:
		}
	}
}

// watchAgain is how long watch waits after the kernel has lost changes.
const watchAgain = time.Second

// watch puts a token into changed when the interface may have changed.
func (p *livePort) watch(stop <-chan struct{}, changed chan<- struct{}) {
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // there is one already
		}
	}
	for {
		if err := nl.Watch(stop, notify); err != nil {
			p.log.Warn("changes of the interface's MTU and addresses are seen late", "error", err)
		}
		select {
		case <-stop:
			return
		case <-time.After(watchAgain):
			notify() // what happened meanwhile is not known
		}
	}
}

// read gives the NIC the MTU and the addresses that the interface has now.
func (p *livePort) read() {
	now, err := nl.ReadPort(p.ifname)
	if err != nil {
		p.log.Warn("the interface cannot be read; its MTU and addresses stay as they are", "error", err)
		return
	}
	p.table.update(now.Addrs)
	p.dev.With(func(e *engine.Engine) {
		e.SetEnabled(now.Up)
		e.SetMTU(min(now.MTU, p.link.Info().MTU, p.most))
		e.SetGIDs(p.table.gids)
	})
	p.show()
}

func (p *livePort) show() {
	if err := p.write(); err != nil {
		p.log.Error("programs see an old state of the port", "error", err)
	}
}

// write writes the files that show the port to programs.
func (p *livePort) write() error {
	var d verbs.DeviceAttr
	p.dev.With(func(e *engine.Engine) { d = e.Device() })
	return p.files.write(uverbs.Tree(d, p.ifname))
}
