package rack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/nl"
)

// Errors for guests, the containers that join a rack which is up.
var (
	// ErrAttached: the interface of the container is already a guest. Nothing was changed.
	ErrAttached = errors.New("is attached already")
	// ErrNoSwitch: the switch does not answer, so no guest can join.
	ErrNoSwitch = errors.New("the switch does not answer: see `rdmalab status`, and `rdmalab restart switch`")
	// ErrGuest begins the errors that concern one guest: what is wrong with it, or why it cannot
	// join.
	ErrGuest = errors.New("guest")
)

// GuestRequest describes a container that shall join a rack.
type GuestRequest struct {
	// Name is the guest's name. If it is "", the guest gets the name Suggested, provided that this
	// is valid and free; otherwise a name made from the container's ID.
	Name, Suggested string
	// Network, Container, Ifname and Netns have the meaning of the fields of guests.Guest.
	Network, Container, Ifname, Netns string
	// MAC is the MAC address of the guest's end of the link; zero means an address that is derived
	// from the guest's IP address.
	MAC wire.MAC
}

// Guests adds guests to a rack that is up, and removes them.
type Guests struct {
	rack *Rack
	// daemon is that of the switch at which guests get their ports: the only one, or the first leaf.
	daemon *control.Client
}

// Guests returns the manager of the rack's guests.
func (r *Rack) Guests() Guests { return Guests{r, r.Control(r.Spec.SwitchNames()[0])} }

// Add connects the network namespace at q.Netns to the switch: it makes a link, gives it addresses
// of the rack's subnets, and opens a port of the switch. It returns when the switch forwards frames
// of the guest. After an error, nothing of the guest is left.
func (gs Guests) Add(ctx context.Context, q GuestRequest) (guests.Guest, error) {
	var g guests.Guest
	err := gs.rack.locked(ctx, func() (err error) {
		g, err = gs.make(&q)
		if err != nil {
			return err
		}
		if err := answer(ctx, gs.daemon, nil); err != nil {
			return fmt.Errorf("%w (%w)", ErrNoSwitch, err)
		}
		// The guest's file is written first, because Remove and Down find the other parts by it.
		if err := guests.Write(gs.rack.Paths, &g); err != nil {
			return err
		}
		if err := gs.plug(ctx, &g); err != nil {
			return errors.Join(err, gs.remove(ctx, &g))
		}
		return nil
	})
	return g, err
}

// make chooses the name, addresses and port of a guest, and returns its description.
func (gs Guests) make(q *GuestRequest) (g guests.Guest, err error) {
	list, err := guests.List(gs.rack.Paths)
	if err != nil {
		return g, err
	}
	taken := append(gs.rack.Spec.HostNames(), gs.rack.Spec.SwitchNames()...)
	for _, t := range gs.rack.Spec.Trunks() {
		leaf, spine := t.Ports()
		taken = append(taken, leaf, spine)
	}
	for i := range list {
		if list[i].Of(q.Network, q.Container, q.Ifname) {
			return g, fmt.Errorf("%s of container %.20s %w, as %s", q.Ifname, q.Container, ErrAttached, list[i].Name)
		}
		taken = append(taken, list[i].Name)
	}
	name := q.Name
	if name == "" {
		name = q.Suggested
		if rackfile.CheckHostName(name) != nil || slices.Contains(taken, name) {
			name = "c-" + digest(q.Network, q.Container, q.Ifname)[:10]
		}
	}
	if slices.Contains(taken, name) {
		return g, fmt.Errorf("%w %s: the rack has a host of that name: %s", ErrGuest, name, strings.Join(taken, " "))
	}
	macs := gs.macs(list)
	if owner, ok := macs[q.MAC]; ok && rackfile.IsStation(q.MAC) {
		return g, fmt.Errorf("%w %s: the MAC address %v is that of %s: choose another, or none", ErrGuest, name, q.MAC, owner)
	}
	for n := 0; ; n++ {
		h, err := gs.rack.Spec.NewGuest(name, "g-"+digest(q.Network, q.Container, q.Ifname), n)
		if err != nil {
			return g, fmt.Errorf("%w: %w", ErrGuest, err)
		}
		_, host := gs.rack.Spec.ByAddr(h.IPv4) // after an apply the hosts' addresses may have gaps
		if host || slices.ContainsFunc(list, func(o guests.Guest) bool { return o.IPv4 == h.IPv4 }) {
			continue
		}
		if rackfile.IsStation(q.MAC) {
			h.MAC = q.MAC
		} else if macs[h.MAC] != "" {
			continue // another guest has requested this MAC address
		}
		return guests.Guest{Host: h, Network: q.Network, Container: q.Container, Ifname: q.Ifname, Netns: q.Netns}, nil
	}
}

// macs returns the name of the owner of each MAC address of the rack: a switch, a host or a
// guest.
func (gs Guests) macs(list []guests.Guest) map[wire.MAC]string {
	m := make(map[wire.MAC]string)
	for _, s := range gs.rack.Spec.SwitchAddresses() {
		m[s.MAC] = s.Name
	}
	for i := range gs.rack.Spec.Hosts {
		m[gs.rack.Spec.Hosts[i].MAC] = gs.rack.Spec.Hosts[i].Name
	}
	for i := range list {
		m[list[i].MAC] = list[i].Name
	}
	return m
}

// plugWait bounds how long the switch may take to open or close a port of a guest.
const plugWait = 5 * time.Second

// digest returns 12 characters made from the parts that identify a guest's interface.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:6])
}

func (gs Guests) plug(ctx context.Context, g *guests.Guest) error {
	end := gs.rack.links().hostEnd(&g.Host)
	end.Netns, end.Name = g.Netns, g.Ifname
	if err := nl.EnableIPv6(g.Netns); err != nil {
		return err
	}
	if err := nl.Connect(gs.rack.links().portEnd(&g.Host), end, gs.rack.Spec.LinkMTU); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("%w %s: the container has an interface %s already: choose another name (%w)", ErrGuest, g.Name, g.Ifname, err)
		}
		return err
	}
	plug := struct {
		Host   string `json:"host"`
		Ifname string `json:"ifname"`
	}{g.Name, g.Port}
	if err := gs.askSwitch(ctx, http.MethodPost, "/ports", plug); err != nil {
		return fmt.Errorf("%w (%w)", ErrNoSwitch, err)
	}
	return nil
}

func (gs Guests) askSwitch(ctx context.Context, method, path string, in any) error {
	ctx, cancel := context.WithTimeout(ctx, plugWait)
	defer cancel()
	return gs.daemon.Call(ctx, method, path, in, nil)
}

// Remove removes a guest. It is no error if the guest does not exist, if the switch does not
// answer, or if the network namespace is gone.
func (gs Guests) Remove(ctx context.Context, network, container, ifname string) error {
	return gs.removeAll(ctx, func(g *guests.Guest) bool { return g.Of(network, container, ifname) })
}

// Keep removes all guests of a network for which keep returns false.
func (gs Guests) Keep(ctx context.Context, network string, keep func(g *guests.Guest) bool) error {
	return gs.removeAll(ctx, func(g *guests.Guest) bool { return g.Network == network && !keep(g) })
}

func (gs Guests) removeAll(ctx context.Context, which func(g *guests.Guest) bool) error {
	return gs.rack.locked(ctx, func() error {
		list, err := guests.List(gs.rack.Paths)
		if err != nil {
			return err
		}
		var errs []error
		for i := range list {
			if which(&list[i]) {
				errs = append(errs, gs.remove(ctx, &list[i]))
			}
		}
		return errors.Join(errs...)
	})
}

// remove removes one guest. It removes the guest's file last; until then every step can be
// repeated.
func (gs Guests) remove(ctx context.Context, g *guests.Guest) error {
	if err := nl.DeleteLink(gs.rack.Paths.Netns(rackfile.SwitchName), g.Port); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("unplug %s: %w", g.Name, err)
	}
	// A switch that does not answer is no error: a crashed switch reads the files of guests when it
	// restarts, and a hung one notices that the interface is gone.
	var said *control.Error
	if err := gs.askSwitch(ctx, http.MethodDelete, "/ports/"+g.Name, nil); errors.As(err, &said) && said.Status != http.StatusNotFound {
		return fmt.Errorf("unplug %s: %w", g.Name, err)
	}
	return guests.Remove(gs.rack.Paths, g.Name)
}

// Check returns the guest if there is a file for it, and an error that says what is wrong with the
// guest, or nil if the guest works.
func (gs Guests) Check(network, container, ifname, netns string) (guests.Guest, error) {
	list, err := guests.List(gs.rack.Paths)
	if err != nil {
		return guests.Guest{}, err
	}
	i := slices.IndexFunc(list, func(g guests.Guest) bool { return g.Of(network, container, ifname) })
	if i < 0 {
		return guests.Guest{}, fmt.Errorf("%w: %s of container %.20s is not attached to network %s", ErrGuest, ifname, container, network)
	}
	g := list[i]
	port, err := nl.LinkByName(gs.rack.Paths.Netns(rackfile.SwitchName), g.Port)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return g, fmt.Errorf("%w %s: its link is gone", ErrGuest, g.Name)
	case err != nil:
		return g, err
	case !port.Up || !port.Carrier:
		return g, fmt.Errorf("%w %s: its link has no carrier", ErrGuest, g.Name)
	}
	end, err := nl.LinkByName(netns, ifname)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return g, fmt.Errorf("%w %s: the container has no interface %s", ErrGuest, g.Name, ifname)
	case err != nil:
		return g, err
	case end.MAC != g.MAC:
		return g, fmt.Errorf("%w %s: %s has the address %v, not %v", ErrGuest, g.Name, ifname, end.MAC, g.MAC)
	}
	addrs, err := nl.Addrs(netns, ifname)
	if err == nil && !slices.Contains(addrs, gs.rack.Spec.Prefix4(&g.Host)) {
		err = fmt.Errorf("%w %s: %s lacks the address %v", ErrGuest, g.Name, ifname, gs.rack.Spec.Prefix4(&g.Host))
	}
	return g, err
}

// Ready returns an error if no guest could join now: the rack is not up, or its switch does not
// answer.
func (r *Rack) Ready(ctx context.Context) error {
	if !exists(r.Paths.Ready()) {
		return rackError(r.Spec.Name, ErrNotUp)
	}
	if err := answer(ctx, r.Control(r.Spec.SwitchNames()[0]), nil); err != nil {
		return rackError(r.Spec.Name, fmt.Errorf("%w (%w)", ErrNoSwitch, err))
	}
	return nil
}
