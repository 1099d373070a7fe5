package nl

import (
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Port is what programs see of an interface besides its carrier.
type Port struct {
	Up    bool // the administrative state
	MTU   int
	Addrs []netip.Addr
}

// ReadPort returns the MTU and the addresses of an interface in a namespace. The error is
// fs.ErrNotExist if there is none.
func ReadPort(path, ifname string) (p Port, err error) {
	link, err := LinkByName(path, ifname)
	if err != nil {
		return p, err
	}
	list, err := Addrs(path, ifname)
	for _, a := range list {
		p.Addrs = append(p.Addrs, a.Addr())
	}
	p.Up, p.MTU = link.Up, link.MTU
	return p, err
}

// Watch calls changed once when it has begun to watch, and after changes of interfaces and addresses in
// the namespace that is pinned at path, until stop closes or the kernel has lost changes because too
// many came at once. changed is called by one goroutine at a time.
func Watch(path string, stop <-chan struct{}, changed func()) error {
	done := make(chan struct{})
	links, addrs := make(chan netlink.LinkUpdate, 16), make(chan netlink.AddrUpdate, 16)
	// The sockets of the subscriptions stay in the namespace.
	err := Do(path, func() error {
		if err := netlink.LinkSubscribe(links, done); err != nil {
			close(done)
			return opError(err, "watch interfaces")
		}
		if err := netlink.AddrSubscribe(addrs, done); err != nil {
			close(done)
			drain(links)
			return opError(err, "watch addresses")
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The subscriptions end when their channels are closed, and may wait to send until then.
	defer func() {
		close(done)
		drain(links)
		drain(addrs)
	}()
	for {
		changed()
		select {
		case <-stop:
			return nil
		case _, ok := <-links:
			if !ok {
				return nil
			}
		case _, ok := <-addrs:
			if !ok {
				return nil
			}
		}
	}
}

func drain[T any](ch <-chan T) {
	go func() {
		for range ch {
		}
	}()
}
