package rackfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

const (
	// maxDevices bounds the network devices of a rack.
	maxDevices = 16
	// maxIfname is the length of the longest name of a network device in bytes.
	maxIfname = 15
)

// Device is a network device of the machine that is a plain port of a switch: the switch learns what is
// behind it.
type Device struct {
	// Name is that of the port. Ifname is the name of the device on the machine.
	Name   string `json:"name"`
	Ifname string `json:"port"`
	// Leaf is the switch of the port, in a rack with the key fabric.
	Leaf string `json:"leaf,omitempty"`
	// Uplink takes the device also if it has the default route of the machine.
	Uplink bool `json:"uplink,omitempty"`
}

// deviceEntry is one element of the list devices.
type deviceEntry struct {
	Device
	at, nameAt, leafAt ast.Node
}

func (d *decoder) deviceEntry(n ast.Node) deviceEntry {
	e := deviceEntry{at: n, nameAt: n, leafAt: n}
	d.mapping(n, "a device", []entry{
		required(set(d, "port", &e.Ifname, parseIfname)),
		{key: "name", set: func(n ast.Node) {
			e.nameAt = n
			set(d, "name", &e.Name, func(s string) (string, error) { return s, CheckHostName(s) }).set(n)
		}},
		{key: "leaf", set: func(n ast.Node) {
			e.leafAt = n
			set(d, "leaf", &e.Leaf, func(s string) (string, error) { return s, checkName("leaf", s, maxHostName) }).set(n)
		}},
		set(d, "uplink", &e.Uplink, parseBool),
	})
	return e
}

// parseIfname reads the name of a network device, as Linux allows it.
func parseIfname(s string) (string, error) {
	if s == "" || len(s) > maxIfname || s == "." || s == ".." || strings.ContainsAny(s, "/: \t\r\n\v\f") {
		return s, fmt.Errorf("%.40q is no name of a network device; `ip link` lists them", s)
	}
	return s, nil
}

// devices checks the network devices of a rack, whose hosts have their leaves.
func (d *decoder) devices(f *file, r *Rack) {
	if len(f.devices) == 0 {
		return
	}
	taken := append(r.LinkNames(), r.SwitchNames()...)
	for _, c := range r.Trunks() {
		leaf, far := c.Ports()
		taken = append(taken, leaf, far)
	}
	if err := r.deviceless(); err != nil {
		d.errorf(f.devices[0].at, "%v", err)
		return
	}
	for i := range f.devices {
		e := &f.devices[i]
		dev := e.Device
		dev.Name = cmp.Or(dev.Name, dev.Ifname)
		switch err := CheckHostName(dev.Name); {
		case err != nil:
			d.errorf(e.nameAt, "%.40q cannot be the name of a port as well; write one beside it, like name: out", dev.Name)
		case slices.Contains(taken, dev.Name):
			d.errorf(e.nameAt, "port name %q is taken already; choose another by name", dev.Name)
		case slices.ContainsFunc(r.Devices, func(o Device) bool { return o.Ifname == dev.Ifname && r.samePlace(o, dev) }):
			d.errorf(e.at, "device %q is a port already; remove one", dev.Ifname)
		case r.Fabric == nil && dev.Leaf != "":
			d.errorf(e.leafAt, "leaf needs the key fabric, which says how many leaves there are")
		case r.Fabric != nil && !slices.Contains(r.Fabric.names()[:r.Fabric.Leaves], cmp.Or(dev.Leaf, leafName(0))):
			d.errorf(e.leafAt, "%.40q is no leaf of this fabric; its leaves are leaf0 to %s", dev.Leaf, leafName(r.Fabric.Leaves-1))
		default:
			if r.Fabric != nil {
				dev.Leaf = cmp.Or(dev.Leaf, leafName(0))
			}
			r.Devices, taken = append(r.Devices, dev), append(taken, dev.Name)
		}
	}
	for _, name := range r.SwitchNames() {
		if n := r.portsAt(name); n > MaxPorts {
			d.errorf(f.devices[0].at, "%s would have %d ports, and has at most %d; give the rack fewer hosts or devices", name, n, MaxPorts)
		}
	}
}

// deviceless returns an error if the rack has something with which it cannot have devices.
func (r *Rack) deviceless() error {
	switch {
	case r.Shared():
		return errors.New("devices need separate processes: leave out `daemons: shared` and --compact, or `devices`")
	case r.Slow > 0:
		return errors.New("what is behind a device runs at full speed: leave out `slow`, or `devices`")
	}
	return nil
}

// samePlace reports whether two devices are on one machine.
func (r *Rack) samePlace(a, b Device) bool {
	at := func(dev Device) string { return r.MachineOf(cmp.Or(dev.Leaf, leafName(0))) }
	return r.Fabric == nil || at(a) == at(b)
}

// portsAt is how many ports a switch has.
func (r *Rack) portsAt(name string) (n int) {
	for i := range r.Hosts {
		if r.LeafOf(&r.Hosts[i]) == name {
			n++
		}
	}
	for _, c := range r.Trunks() {
		if c.Leaf == name || c.Far == name {
			n++
		}
	}
	return n + len(r.DevicesAt(name))
}

// DeviceNamed returns the device whose port has a name; false if there is none.
func (r *Rack) DeviceNamed(name string) (Device, bool) {
	if i := slices.IndexFunc(r.Devices, func(d Device) bool { return d.Name == name }); i >= 0 {
		return r.Devices[i], true
	}
	return Device{}, false
}

// DevicesAt returns the devices that are ports of a switch.
func (r *Rack) DevicesAt(name string) (list []Device) {
	for _, d := range r.Devices {
		if r.SwitchOf(d.Name) == name {
			list = append(list, d)
		}
	}
	return list
}
