package rack

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/container"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// links makes the links of the hosts and the trunks between switches, restores them, and waits until the
// switches have noticed that they work or do not.
type links struct {
	spec  *rackfile.Rack
	paths rackfile.Paths
	keep  keeper
}

func (r *Rack) links() links { return links{r.Spec, r.Paths, r.keep} }

// makeAll makes the links of all hosts on this machine, and the trunks between its switches.
func (l links) makeAll() error {
	return each(onMachine(l.spec, l.spec.LinkNames()), func(link string) error {
		if h, _, ok := l.spec.Host(link); ok {
			return l.make(h)
		}
		if _, ok := l.spec.Devices.Named(link); ok {
			return nil // it exists
		}
		return l.makeTrunk(link)
	})
}

// makeTrunk makes a trunk between two switches, whose ends are in the namespace of all switches.
func (l links) makeTrunk(name string) error {
	c, _ := l.spec.TrunkNamed(name)
	if c.Carried {
		return nil // its switches make it, of datagrams
	}
	leaf, far := c.Ports()
	mtu := l.spec.LinkMTU // that of the link that carries the longest frames
	for i := range l.spec.Hosts {
		mtu = max(mtu, l.spec.MTUOf(&l.spec.Hosts[i]))
	}
	netns, alias := l.paths.Netns(rackfile.SwitchName), "rdmalab/"+l.spec.Name+"/"+name
	return nl.Connect(nl.End{Netns: netns, Name: leaf, Alias: alias}, nl.End{Netns: netns, Name: far, Alias: alias}, mtu)
}

func (l links) make(h *rackfile.Host) error {
	return nl.Connect(l.portEnd(h), l.hostEnd(h), l.spec.MTUOf(h))
}

func (l links) portEnd(h *rackfile.Host) nl.End { return container.PortEnd(l.spec, l.paths, h) }

func (l links) hostEnd(h *rackfile.Host) nl.End {
	return container.HostEnd(l.spec, h, l.paths.Netns(h.Name))
}

// restore configures the host's end of its link. If that end was removed, restore makes the
// link again.
func (l links) restore(h *rackfile.Host) error {
	_, err := nl.LinkByName(l.paths.Netns(h.Name), h.Ifname())
	if !errors.Is(err, fs.ErrNotExist) {
		return nl.Configure(l.hostEnd(h))
	}
	// The switch's end still exists if the host's end was renamed or moved to another namespace. It
	// must be removed first.
	if err := nl.DeleteLink(l.paths.Netns(rackfile.SwitchName), h.Port); err != nil {
		return err
	}
	return l.make(h)
}

// settleWait bounds how long settle waits for the switch to notice that a link has changed.
const settleWait = time.Second

// settle waits until the switch has noticed a change of a host's link, so that the change applies
// to the next frame. If the switch hangs or does not answer, settle does not wait.
func (l links) settle(ctx context.Context, host string) {
	h, _, ok := l.spec.Host(host)
	if !ok {
		return
	}
	port, err := nl.LinkByName(l.paths.Netns(rackfile.SwitchName), h.Port)
	if err != nil {
		return
	}
	if hung, err := l.keep.hung(l.spec.LeafOf(h)); err != nil || hung {
		return
	}
	_ = waitFor(settleWait, "the switch", func() (bool, error) { // an error means only that the switch notices the change later
		var s struct {
			Ports []struct {
				Host  string `json:"host"`
				State string `json:"state"`
			} `json:"ports"`
		}
		if err := answer(ctx, control.NewClient(l.paths.Socket(l.spec.LeafOf(h))), &s); err != nil {
			return true, nil
		}
		for _, p := range s.Ports {
			if p.Host == host {
				return (p.State == "up") == port.Carrier, nil
			}
		}
		return true, nil
	})
}

// trunksWait bounds how long the switches of a rack may take until they know that all trunks work.
const trunksWait = 10 * time.Second

// awaitTrunks waits until each switch of the rack knows that all trunks work, so that frames reach all
// hosts when the rack is up.
func (l links) awaitTrunks(ctx context.Context) error {
	if l.spec.Fabric == nil || slices.ContainsFunc(l.spec.Faults, func(f fault.Rule) bool { _, trunk := l.spec.TrunkNamed(f.Link); return trunk }) {
		return nil // with a fault from the beginning, a trunk may never work
	}
	if l.spec.Machine != "" {
		return nil // the other machines may come up later
	}
	return each(l.spec.SwitchNames(), func(name string) error {
		return waitFor(trunksWait, name+" to know all trunks", func() (bool, error) {
			var s struct {
				Trunks []struct {
					Up bool `json:"up"`
				} `json:"trunks"`
			}
			if err := answer(ctx, control.NewClient(l.paths.Socket(name)), &s); err != nil {
				return false, err
			}
			for _, c := range s.Trunks {
				if !c.Up {
					return false, nil
				}
			}
			return len(s.Trunks) > 0, nil
		})
	})
}
