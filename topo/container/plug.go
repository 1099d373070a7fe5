package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// ownNetns is the path of the network namespace of this process, which is the machine's own.
const ownNetns = "/proc/self/ns/net"

// errOwn means that a container uses the machine's own network namespace, so the NIC cannot be put
// into it.
var errOwn = errors.New("the container is in the machine's own network: give it network_mode none")

// cut returns the path of the file that marks a host's link as cut at the switch. If the file
// exists, a new link of the host is cut, too.
func cut(p rackfile.Paths, host string) string { return filepath.Join(p.Dir, "cut", host) }

// MarkCut records whether a host's link is cut at the switch.
func (h *Hosts) MarkCut(host string, is bool) error {
	file := cut(h.paths, host)
	if !is {
		return except(os.Remove(file), fs.ErrNotExist)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, nil, 0o644)
}

// plugger connects containers to the switch of a rack.
type plugger struct {
	rack  *rackfile.Rack
	paths rackfile.Paths
}

// aliasOf returns the text (IFLA_IFALIAS) that is stored with both interfaces of a host's link. It
// names the rack and the host. With PlugDriver, the switch's end has the text of
// driver.endpointAlias instead.
func aliasOf(r *rackfile.Rack, host string) string { return "rdmalab/" + r.Name + "/" + host }

// PortEnd returns the switch's end of a host's link.
func PortEnd(r *rackfile.Rack, p rackfile.Paths, h *rackfile.Host) nl.End {
	return nl.End{Netns: p.Netns(rackfile.SwitchName), Name: h.Port, Alias: aliasOf(r, h.Name)}
}

// HostEnd returns the host's end of its link, in the namespace at netns.
func HostEnd(r *rackfile.Rack, h *rackfile.Host, netns string) nl.End {
	return nl.End{
		Netns: netns, Name: h.Ifname(), MAC: h.MAC, Alias: aliasOf(r, h.Name),
		Addrs: []netip.Prefix{r.Prefix4(h), r.Prefix6(h)},
		// No real link carries a TCP super-frame. NoTSO does not concern RoCEv2 super-frames, which
		// the project splits where it looks at single packets.
		NoTSO: true,
	}
}

// plug puts the NIC into a running container unless it is there. It reports whether the NIC is
// there afterwards. With PlugDriver the engine puts the NIC into the container; plug then only sets
// its name and addresses.
func (p *plugger) plug(h *rackfile.Host, c Container) (bool, error) {
	netns := netnsOf(c.PID)
	if err := checkForeign(netns); err != nil {
		return false, err
	}
	link, err := p.find(h, netns)
	if err != nil {
		return false, err
	}
	if err := nl.Quiet(netns); err != nil {
		return false, err
	}
	switch {
	case link != nil && c.Plug != PlugDriver:
		return true, nil // the NIC was configured before; if it is down, a fault or a user has cut it
	case link != nil:
		err = p.finish(h, netns, link.Name)
	case c.Plug == PlugDriver:
		return false, nil // the container was disconnected from the network
	default:
		// The kernel may not have removed the link of the container's former incarnation yet.
		if err = nl.DeleteLink(p.paths.Netns(rackfile.SwitchName), h.Port); err == nil {
			err = nl.Connect(PortEnd(p.rack, p.paths, h), HostEnd(p.rack, h, netns), p.rack.LinkMTU)
		}
	}
	if err != nil {
		return false, err
	}
	return true, p.keepCut(h)
}

// keepCut cuts a new link if a fault had cut the host's link before.
func (p *plugger) keepCut(h *rackfile.Host) error {
	if _, err := os.Stat(cut(p.paths, h.Name)); err != nil {
		return nil
	}
	return except(nl.SetUp(p.paths.Netns(rackfile.SwitchName), h.Port, false), fs.ErrNotExist)
}

// find returns the interface that has the MAC address of a host's NIC, whatever its name is; nil if
// there is none.
func (p *plugger) find(h *rackfile.Host, netns string) (*nl.Link, error) {
	links, err := nl.Links(netns)
	for i := range links {
		if links[i].MAC == h.MAC {
			return &links[i], nil
		}
	}
	return nil, err
}

// finish sets the name and the addresses of a NIC that is in the container. It may be called again.
func (p *plugger) finish(h *rackfile.Host, netns, name string) error {
	if name != rackfile.HostIfname {
		if err := nl.Rename(netns, name, rackfile.HostIfname); err != nil {
			return err
		}
	}
	return nl.Configure(HostEnd(p.rack, h, netns))
}

// checkForeign returns an error if netns is the machine's own namespace. netns is a path with a
// process ID, which may be that of another process when the container has ended.
func checkForeign(netns string) error {
	dev, inode, err := nl.ID(netns)
	if err != nil {
		return err
	}
	ownDev, own, err := nl.ID(ownNetns)
	if err == nil && dev == ownDev && inode == own {
		err = errOwn
	}
	return err
}

// reconcile inspects a host's containers. If the container that holds the host's network namespace
// runs, reconcile calls plug, which puts the NIC into this namespace unless it is there. It returns
// that container, and whether the container has the NIC now.
func (p *plugger) reconcile(ctx context.Context, hosts *Hosts, h *rackfile.Host) (Container, bool, error) {
	c, err := hosts.network(ctx, h.Name)
	if errors.Is(err, ErrNotFound) || err == nil && !c.Runs() {
		return c, false, nil
	}
	if err != nil {
		return c, false, err
	}
	ok, err := p.plug(h, c)
	now, ierr := hosts.Container(ctx, h.Name, c.Part)
	if ierr == nil && (now.ID != c.ID || now.StartedAt != c.StartedAt || now.PID != c.PID) {
		return now, false, fmt.Errorf("%w: it was restarted meanwhile", errAgain)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return now, false, nil // the container has ended meanwhile; its next start is another event
	}
	return c, ok, err
}

// errAgain means that a host's container was restarted during reconcile. The caller must call
// reconcile again.
var errAgain = errors.New("look again")
