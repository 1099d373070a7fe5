package hostd

import (
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/nl"
)

const (
	// linkPoll is the interval at which the daemon checks the carrier of its port if nothing tells it that the
	// interface has changed, and kernelPoll that if the kernel does.
	linkPoll   = 100 * time.Millisecond
	kernelPoll = 250 * time.Millisecond
	// maxAddresses is the largest number of addresses of the NIC's port.
	maxAddresses = 64
)

// addressTable is the table of the port's addresses. gids is the present one. fixed has the addresses
// that stay whatever the interface has: the link-local address of the MAC address, as in a kernel, and
// those that the interface has not had since the daemon started.
type addressTable struct {
	gids, fixed []verbs.GID
	local       verbs.GID // the link-local address of the MAC address
}

// newAddressTable returns the table gids. addrs are the addresses of the interface.
func newAddressTable(mac wire.MAC, gids []verbs.GID, addrs []netip.Addr) addressTable {
	p := addressTable{gids: gids, local: verbs.LinkLocalGID(mac)}
	p.fixed = []verbs.GID{p.local}
	for _, g := range gids {
		if !slices.Contains(addrs, g.Addr()) {
			p.fixed = append(p.fixed, g)
		}
	}
	return p
}

// update changes the table of addresses to those that the interface has now. Addresses that stay keep
// their index. One that is gone leaves a free entry, which the next new address takes, so that the
// table never gets shorter. Addresses that do not fit are left out.
func (p *addressTable) update(addrs []netip.Addr) {
	table := slices.Clone(p.gids)
	p.fixed = slices.DeleteFunc(p.fixed, func(g verbs.GID) bool {
		return g != p.local && slices.Contains(addrs, g.Addr())
	})
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
	p.gids = table
}

// livePort keeps the port of the NIC, and the files that show it to programs, like the interface:
// carrier, MTU and addresses. The files change before the NIC raises the event, so that a program that
// reads them because of the event finds the new state.
type livePort struct {
	log     *slog.Logger
	netns   string
	ifname  string
	real    bool // false in tests without privileges, which have no interface
	link    port
	dev     *device.Device
	most    int // MTU of the rack's links in bytes
	down    bool
	table   addressTable
	files   sysfs
	counted metrics.NIC // what the files show
	behind  bool        // the last read of the interface, or the last write of the files, failed
}

// follow keeps the NIC and the files up to date until stop closes.
func (p *livePort) follow(stop <-chan struct{}) {
	changed := make(chan struct{}, 1)
	var watcher sync.WaitGroup
	poll := linkPoll
	if p.real {
		poll = kernelPoll
		watcher.Go(func() { p.watch(stop, changed) })
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	count := time.NewTicker(uverbs.CounterPeriod)
	defer count.Stop()
	for {
		if down := !p.link.LinkUp(); down != p.down {
			p.down = down
			p.settle(p.show())
			p.dev.SetLink(!down)
		}
		select {
		case <-stop:
			watcher.Wait()
			return
		case <-changed:
			p.settle(p.read())
		case <-count.C:
			if !p.behind && p.dev.Counters() != p.counted {
				p.settle(p.show())
			}
		case <-tick.C:
			if p.behind {
				p.settle(p.read())
			}
		}
	}
}

// settle notes whether programs see the present state of the port. It logs the first of several
// failures.
func (p *livePort) settle(err error) {
	if err != nil && !p.behind {
		p.log.Error("programs see an old state of the port until this works again", "error", err)
	}
	p.behind = err != nil
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
		if err := nl.Watch(p.netns, stop, notify); err != nil {
			p.log.Warn("changes of the interface's MTU and addresses are seen late", "error", err)
			notify()
		}
		select {
		case <-stop:
			return
		case <-time.After(watchAgain):
		}
	}
}

// read gives the NIC and the files the MTU and the addresses that the interface has now.
func (p *livePort) read() error {
	if !p.real {
		return p.show()
	}
	now, err := nl.ReadPort(p.netns, p.ifname)
	if err != nil {
		return err
	}
	p.table.update(now.Addrs)
	p.dev.With(func(e *engine.Engine) {
		e.Port.SetEnabled(now.Up)
		e.Port.SetMTU(min(now.MTU, p.link.Info().MTU, p.most))
	})
	err = p.show()
	p.dev.With(func(e *engine.Engine) { e.SetGIDs(p.table.gids) })
	return err
}

// show writes the files that show the port to programs.
func (p *livePort) show() error {
	var d verbs.DeviceAttr
	p.dev.With(func(e *engine.Engine) { d = e.Device() })
	d.PortDown, d.GIDs = p.down, p.table.gids
	files, c := uverbs.Tree(d, p.files.at), p.dev.Counters()
	maps.Copy(files, uverbs.CounterFiles(&c, p.files.at))
	p.counted = c
	return p.files.write(files, uverbs.Links(p.files.at))
}
