package switchd

import (
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// errTaken says that a guest's name or interface is another's.
var errTaken = errors.New("taken")

// Plugged is the body of POST /ports: the link of a guest.
type Plugged struct {
	Host   string `json:"host"`
	Ifname string `json:"ifname"`
}

// Bounds of a guest's names.
const (
	maxGuestName = 15
	maxIfname    = 15
)

// handleGuests adds what lets links come and go.
func (d *Daemon) handleGuests(m *control.Mux) {
	control.Handle(m, "POST /ports", func(_ *http.Request, p Plugged) (none, error) {
		return none{}, answer(d.Plug(p))
	})
	control.Handle(m, "DELETE /ports/{host}", func(r *http.Request, _ none) (none, error) {
		return none{}, answer(d.Unplug(r.PathValue("host")))
	})
}

// Plug adds the link of a guest, whose interface must be there, and returns when its port is open. The same link
// again is fine.
func (d *Daemon) Plug(p Plugged) error {
	if p.Host == "" || len(p.Host) > maxGuestName || p.Ifname == "" || len(p.Ifname) > maxIfname {
		return refused(fmt.Errorf("port: host %.40q, ifname %.40q: each has 1 to %d bytes", p.Host, p.Ifname, maxIfname))
	}
	l := Link{Host: p.Host, Ifname: p.Ifname, Guest: true}
	i, open := -1, false
	var err error
	if derr := d.Do(func() {
		if i, err = d.addLink(l); err == nil {
			open = d.ports[i].io != nil
		}
	}); derr != nil || err != nil || open {
		return errors.Join(derr, err)
	}
	io, err := d.cfg.Open(i, l)
	if err != nil {
		return errors.Join(fmt.Errorf("port of %s: %w", p.Host, err), d.Unplug(p.Host))
	}
	return d.install(i, l, io)
}

// addLink finds a place for a link, or the place that it has. Loop only.
func (d *Daemon) addLink(l Link) (int, error) {
	for i, other := range d.links {
		switch {
		case other == l:
			return i, nil
		case other.Host == l.Host || other.Host != "" && other.Ifname == l.Ifname:
			return -1, &kindError{errTaken, fmt.Errorf("port %s of %s is there already", other.Ifname, other.Host)}
		}
	}
	i := slices.Index(d.hosts, "")
	if i < 0 {
		if i = d.sw.AddPort(); i < 0 {
			return -1, &kindError{errBusy, fmt.Errorf("the switch has its %d ports already", pipeline.MaxPorts)}
		}
		d.links, d.hosts, d.ports = append(d.links, l), append(d.hosts, l.Host), append(d.ports, port{})
	}
	d.links[i], d.hosts[i] = l, l.Host
	d.hub.SetLink(i, l.Host)
	d.plan.AddLink(l.Host)
	p := &d.ports[i]
	p.up, p.down = d.plan.Injector(l.Host, fault.Up), d.plan.Injector(l.Host, fault.Down)
	p.queue = pipeline.Queue{MaxPackets: d.cfg.Queue, MaxBytes: maxQueueBytes}
	p.err = errors.New("just added")
	d.regroup()
	d.publish()
	return i, nil
}

// regroup applies the partition again, which may be about a guest that came back.
func (d *Daemon) regroup() {
	if ports, err := d.portGroups(d.groups); err == nil {
		d.sw.Partition(ports)
	}
}

// Unplug takes the link of a guest away, with its faults.
func (d *Daemon) Unplug(host string) error {
	var err error
	derr := d.Do(func() {
		i := slices.Index(d.hosts, host)
		switch {
		case i < 0 || host == "":
			err = gone(fmt.Errorf("there is no port of %.40q", host))
			return
		case !d.links[i].Guest:
			err = refused(fmt.Errorf("%s is a host of the rack, not a guest", host))
			return
		}
		if d.ports[i].io != nil {
			d.lost(i, errors.New("the guest has gone"))
		}
		d.plan.RemoveLink(host)
		d.hub.SetLink(i, "")
		d.links[i], d.hosts[i] = Link{}, ""
		d.groups = without(d.groups, host)
		d.regroup()
		d.publish()
	})
	return errors.Join(derr, err)
}

// without takes a host out of the groups of a partition.
func without(groups [][]string, host string) [][]string {
	var out [][]string
	for _, g := range groups {
		g = slices.DeleteFunc(slices.Clone(g), func(h string) bool { return h == host })
		if len(g) > 0 {
			out = append(out, g)
		}
	}
	if len(groups) > 1 && len(out) == 1 {
		return nil // one group of several would be cut from all the others
	}
	return out
}
