package rackfile

import (
	"cmp"
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

// read reads an element of the list devices.
func (e *deviceEntry) read(d *decoder, n ast.Node) {
	*e = deviceEntry{at: n, nameAt: n, leafAt: n}
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
}

// parseIfname reads the name of a network device, as Linux allows it.
func parseIfname(s string) (string, error) {
	if s == "" || len(s) > maxIfname || s == "." || s == ".." || strings.ContainsAny(s, "/: \t\r\n\v\f") {
		return s, fmt.Errorf("%.40q is no name of a network device; `ip link` lists them", s)
	}
	return s, nil
}

// deviceEntries is the list devices.
type deviceEntries []deviceEntry

// connect checks the network devices of a rack, whose hosts have their leaves.
func (l deviceEntries) connect(d *decoder, r *Rack) {
	if len(l) == 0 {
		return
	}
	taken := append(r.LinkNames(), r.SwitchNames()...)
	for _, c := range r.Trunks() {
		leaf, far := c.Ports()
		taken = append(taken, leaf, far)
	}
	switch {
	case r.Shared():
		d.errorf(l[0].at, "devices need separate processes: leave out `daemons: shared` and --compact, or `devices`")
		return
	case r.Slow > 0:
		d.errorf(l[0].at, "what is behind a device runs at full speed: leave out `slow`, or `devices`")
		return
	}
	machineOf := func(dev Device) string {
		if r.Fabric == nil {
			return ""
		}
		return r.MachineOf(cmp.Or(dev.Leaf, leafName(0)))
	}
	for i := range l {
		e := &l[i]
		dev := e.Device
		dev.Name = cmp.Or(dev.Name, dev.Ifname)
		switch err := CheckHostName(dev.Name); {
		case err != nil:
			d.errorf(e.nameAt, "%.40q cannot be the name of a port as well; write one beside it, like name: out", dev.Name)
		case slices.Contains(taken, dev.Name):
			d.errorf(e.nameAt, "port name %q is taken already; choose another by name", dev.Name)
		case slices.ContainsFunc(r.Devices, func(o Device) bool { return o.Ifname == dev.Ifname && machineOf(o) == machineOf(dev) }):
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
	ports := map[string]int{}
	for i := range r.Hosts {
		ports[r.LeafOf(&r.Hosts[i])]++
	}
	for _, c := range r.Trunks() {
		ports[c.Leaf]++
		ports[c.Far]++
	}
	for _, name := range r.SwitchNames() {
		if n := ports[name] + len(r.Devices.At(name)); n > MaxPorts {
			d.errorf(l[0].at, "%s would have %d ports, and has at most %d; give the rack fewer hosts or devices", name, n, MaxPorts)
		}
	}
}

// Devices are the network devices of a rack.
type Devices []Device

// Named returns the device whose port has a name; false if there is none.
func (l Devices) Named(name string) (Device, bool) {
	if i := slices.IndexFunc(l, func(d Device) bool { return d.Name == name }); i >= 0 {
		return l[i], true
	}
	return Device{}, false
}

// At returns the devices that are ports of a switch.
func (l Devices) At(name string) (list Devices) {
	for _, d := range l {
		if cmp.Or(d.Leaf, SwitchName) == name {
			list = append(list, d)
		}
	}
	return list
}
