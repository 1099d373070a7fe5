package switchd

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// errTaken is the kind of an error for a guest whose name or interface another link uses.
var errTaken = errors.New("taken")

// Plugged is the body of POST /ports: the link of a guest.
type Plugged struct {
	Host   string `json:"host"`
	Ifname string `json:"ifname"`
}

// Bounds of a guest's names, in bytes.
const (
	maxGuestName = 15
	maxIfname    = 15
)

// guestControl adds and removes links while the switch runs: those of guests, and those of hosts
// when the rack's description has changed (hosts.go).
type guestControl struct {
	commands *commands
	ports    *ports
	traffic  *traffic
	faults   *faultControl
	// opening holds a token while a port is opened. The memory link of a host connects to the end
	// that was made last, so the end of a port that is opened twice would be the one that is closed.
	opening chan struct{}
}

func (g *guestControl) handleGuests(m *control.Mux) {
	control.Handle(m, "POST /ports", func(_ *http.Request, p Plugged) (none, error) {
		return none{}, answer(g.Plug(p))
	})
	control.Handle(m, "DELETE /ports/{host}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(g.Unplug(r.PathValue("host")))
	})
}

// Plug adds the link of a guest, and returns when its port is open. The interface must exist. Plug
// has no effect if the link is there already and its port is open.
func (g *guestControl) Plug(p Plugged) error {
	if p.Host == "" || len(p.Host) > maxGuestName || p.Ifname == "" || len(p.Ifname) > maxIfname {
		return handler.Refused(fmt.Errorf("port: host %.40q, ifname %.40q: each has 1 to %d bytes", p.Host, p.Ifname, maxIfname))
	}
	return g.plug(Link{Host: p.Host, Ifname: p.Ifname, Guest: true})
}

// plug adds a link, and returns when its port is open. After an error the link is not there.
func (g *guestControl) plug(l Link) error {
	i, open := -1, false
	if err := g.commands.Try(func() (err error) {
		if i, err = g.addLink(l); err == nil {
			open = g.ports.list[i].io != nil
		}
		return err
	}); err != nil || open {
		return err
	}
	if err := g.open(i, l); err != nil {
		return errors.Join(fmt.Errorf("port of %s: %w", l.Host, err), g.unplug(l.Host, l.Guest))
	}
	return nil
}

// open opens the port of link l, which has the number i, unless it is open already. The error is
// ErrStopped if the daemon has ended.
func (g *guestControl) open(i int, l Link) error {
	g.opening <- struct{}{}
	defer func() { <-g.opening }()
	missing := false
	if err := g.commands.Do(func() { missing = g.ports.links[i] == l && g.ports.list[i].io == nil }); err != nil || !missing {
		return err
	}
	io, err := g.ports.opener(i, l)
	if err != nil {
		return err
	}
	return g.install(i, l, io)
}

// addLink returns the number of link l. A new link gets a free number. Only the loop calls it.
func (g *guestControl) addLink(l Link) (int, error) {
	for i, other := range g.ports.links {
		switch {
		case other == l:
			return i, nil
		case other.Host == l.Host || other.Host != "" && other.Ifname == l.Ifname && other.Device == l.Device && other.Far == l.Far:
			return -1, handler.WithKind(errTaken, fmt.Errorf("port %s of %s is there already", other.Ifname, other.Host))
		}
	}
	i := slices.Index(g.ports.hosts, "")
	if i >= 0 {
		g.traffic.sw.ReusePort(i)
	} else if i = g.traffic.sw.AddPort(); i < 0 {
		return -1, handler.WithKind(errBusy, fmt.Errorf("the switch has its %d ports already; remove a guest first", pipeline.MaxPorts))
	} else {
		g.ports.links, g.ports.hosts, g.ports.list = append(g.ports.links, l), append(g.ports.hosts, l.Host), append(g.ports.list, port{})
	}
	g.ports.links[i], g.ports.hosts[i], g.ports.list[i] = l, l.Host, port{err: errors.New("just added")}
	g.traffic.hub.SetLink(i, l.Host)
	g.traffic.plan.AddLink(l.Host)
	g.traffic.connect(i)
	g.faults.regroup()
	g.ports.publish()
	return i, nil
}

// install makes io the port of link i. If the link was removed meanwhile, or has another port,
// install closes io instead.
func (g *guestControl) install(i int, l Link, io packetio.Port) error {
	used := false
	err := g.commands.Do(func() {
		if used = g.ports.links[i] == l && g.ports.list[i].io == nil; !used {
			return
		}
		g.ports.plug(i, io, nil)
		if err := g.ports.renewWaiter(); err != nil {
			g.ports.log.Error(noWaiter, "error", err)
		}
	})
	if !used {
		return errors.Join(err, io.Close()) // the switch does not use the port
	}
	return err
}

// Unplug removes the link of a guest, its faults, and the frames that they delay.
func (g *guestControl) Unplug(host string) error { return g.unplug(host, true) }

// unplug removes the link of a guest, or of a host.
func (g *guestControl) unplug(host string, guest bool) error {
	return g.commands.Try(func() error {
		i := slices.Index(g.ports.hosts, host)
		switch {
		case i < 0 || host == "":
			return handler.Gone(fmt.Errorf("there is no port of %.40q", host))
		case guest && !g.ports.links[i].Guest:
			return handler.Refused(fmt.Errorf("%s is a host of the rack, not a guest", host))
		}
		if g.ports.list[i].io != nil {
			g.ports.lost(i, errors.New("it has left the rack"))
		}
		g.traffic.plan.RemoveLink(host)
		g.traffic.delays.forget(i)
		if g.traffic.costs != nil {
			g.traffic.costs.Forget(i)
		}
		g.traffic.hub.SetLink(i, "")
		g.ports.links[i], g.ports.hosts[i] = Link{}, ""
		g.faults.groups = without(g.faults.groups, host)
		g.faults.regroup()
		g.ports.publish()
		return nil
	})
}

// without removes a host from the groups of a partition. If fewer than two of several groups
// remain, it returns nil: the partition ends.
func without(groups [][]string, host string) [][]string {
	var out [][]string
	for _, g := range groups {
		g = slices.DeleteFunc(slices.Clone(g), func(h string) bool { return h == host })
		if len(g) > 0 {
			out = append(out, g)
		}
	}
	if len(groups) > 1 && len(out) == 1 {
		// With several groups, a host that is in no group reaches every host. With a single group,
		// all hosts outside the group are the second group. So a partition with the remaining
		// group would cut off hosts that the operator has put in no group.
		return nil
	}
	return out
}
