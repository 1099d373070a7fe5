package rackfile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/nearest"
)

// Bounds of the machines of a rack.
const (
	maxMachines = maxLeaves // each has a switch
	// DefaultTrunkPort is the first port of a machine's trunks, of a rack whose file does not say
	// another: below the ports that Linux gives out by itself.
	DefaultTrunkPort = 24791
	// maxTrunkPort leaves a port to each trunk of the largest fabric.
	maxTrunkPort = 1<<16 - 1 - maxTrunks
	maxTrunks    = maxLeaves * maxSpines
)

// Machine is a computer that runs a part of a rack: a slice. It is not a host; the hosts are on it.
type Machine struct {
	Name string `json:"name"`
	// SSH is where its sshd is, as in ssh://root@10.0.0.1:22.
	SSH string `json:"ssh"`
	// Address is the one at which the other machines reach its trunks.
	Address netip.Addr `json:"address"`
	// Port is the first UDP or TCP port of its trunks: trunk n of Trunks, counted from 0, has the n-th behind it.
	Port uint16 `json:"port"`
}

// Machines are the machines of a rack, in the order of its file.
type Machines []Machine

// Slice says on which machines a rack runs, and which of them runs the part that a description is for.
type Slice struct {
	// Machines are those of a rack that has several; nil means that it runs on one.
	Machines Machines `json:"machines,omitempty"`
	// Machine is the name of the one of this slice; "" on the client, and of a rack with one machine.
	Machine string `json:"machine,omitempty"`
	// Generation tells the racks of one name apart: each up that makes one gives it another. All slices of
	// a rack have the same.
	Generation uint64 `json:"generation,omitempty"`
	// Devices are network devices of the machines that are ports of a switch.
	Devices Devices `json:"devices,omitempty"`
}

// Login is a machine's SSH, read: the user, "" if ssh is to choose, the machine, and the port, 0 for that
// of ssh.
type Login struct {
	User, Host string
	Port       uint16
}

// loginUser and loginHost match what no program takes for a flag or a command, if it is not longer than
// maxUser or maxLoginHost. (A bound in the expression costs each process of a rack a millisecond.)
var (
	loginUser = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)
	loginHost = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

const (
	maxUser      = 64
	maxLoginHost = 254
)

func isUser(s string) bool { return len(s) <= maxUser && loginUser.MatchString(s) }

func isLoginHost(s string) bool { return len(s) <= maxLoginHost && loginHost.MatchString(s) }

// ParseLogin reads an address like ssh://root@10.0.0.1:22.
func ParseLogin(s string) (Login, error) {
	u, err := url.Parse(s)
	bad := fmt.Errorf("%.80q is no address of ssh; write it like ssh://root@10.0.0.1", s)
	if err != nil || u.Scheme != "ssh" || u.Opaque != "" || u.Path != "" || u.RawQuery != "" || u.Fragment != "" {
		return Login{}, bad
	}
	l := Login{User: u.User.Username(), Host: u.Hostname()}
	if _, secret := u.User.Password(); secret {
		return Login{}, errors.New("the address of ssh has a password; remove it, and give the machine your key (ssh-copy-id)")
	}
	if a, err := netip.ParseAddr(l.Host); err != nil && !isLoginHost(l.Host) || a.Zone() != "" || l.User != "" && !isUser(l.User) {
		return Login{}, bad
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return Login{}, bad
		}
		l.Port = uint16(n)
	}
	return l, nil
}

// Named returns the machine called name; false if there is none.
func (l Machines) Named(name string) (Machine, bool) {
	if i := slices.IndexFunc(l, func(m Machine) bool { return m.Name == name }); i >= 0 {
		return l[i], true
	}
	return Machine{}, false
}

// Names returns the names of the machines.
func (l Machines) Names() []string {
	names := make([]string, len(l))
	for i := range l {
		names[i] = l[i].Name
	}
	return names
}

// MachineOf returns the name of the machine that runs a host, a NIC of it, or a switch; of a trunk that of
// its leaf, which has the trunk's faults. "" means that the rack has one machine, or no such node. A node
// is on this machine if that is Machine.
func (r *Rack) MachineOf(node string) string {
	if len(r.Machines) == 0 {
		return ""
	}
	if at := r.SwitchOf(node); at != "" {
		node = at
	}
	if i := slices.Index(r.Fabric.names(), node); i >= 0 {
		return r.Fabric.Places[i]
	}
	return ""
}

// OnLoopback reports whether all trunks of a fabric on one machine go over the loopback interface of the
// switches' network namespace. f is nil for a rack with one switch.
func (f *Fabric) OnLoopback() bool { return f != nil && f.Places == nil && f.Carrier != "" }

// Remote returns the addresses of the two ends of a carried trunk: that of the switch from, and the other. ok is
// false for all other trunks and switches.
func (r *Rack) Remote(t Trunk, from string) (local, peer netip.AddrPort, ok bool) {
	n := slices.Index(r.Trunks(), t)
	if n < 0 || !t.Carried || from != t.Leaf && from != t.Far {
		return local, peer, false
	}
	if r.Fabric.OnLoopback() {
		// All switches have one network namespace, which is the rack's own.
		lo := netip.AddrFrom4([4]byte{127, 0, 0, 1})
		local, peer = netip.AddrPortFrom(lo, uint16(DefaultTrunkPort+n)), netip.AddrPortFrom(lo, uint16(DefaultTrunkPort+maxTrunks+n))
		if from == t.Far {
			local, peer = peer, local
		}
		return local, peer, true
	}
	near, far := r.MachineOf(t.Leaf), r.MachineOf(t.Far)
	if from == t.Far {
		near, far = far, near
	}
	at := func(name string) netip.AddrPort {
		m, _ := r.Machines.Named(name)
		return netip.AddrPortFrom(m.Address, m.Port+uint16(n))
	}
	return at(near), at(far), true
}

// placement is what a file says of switches and machines: the values of the keys fabric, machines, and
// machine, strict and carrier in fabric, nil if a key is missing, and the machines.
type placement struct {
	fabricAt, machinesAt, placesAt ast.Node
	strictAt, carrierAt            ast.Node
	machines                       []machineEntry
	places                         map[string]string
}

// machineEntry is one element of the list machines.
type machineEntry struct {
	Machine
	at, nameAt ast.Node
	sound      bool
}

// machine reads an element of the list machines.
func (d *decoder) machine(n ast.Node) machineEntry {
	e := machineEntry{at: n, nameAt: n, Machine: Machine{Port: DefaultTrunkPort}}
	e.sound = d.sound(func() {
		var at ast.Node
		port := int(DefaultTrunkPort)
		d.mapping(n, "a machine", []entry{
			{key: "name", required: true, set: func(n ast.Node) {
				e.nameAt = n
				set(d, "name", &e.Name, func(s string) (string, error) { return s, checkName("machine", s, maxHostName) }).set(n)
			}},
			required(set(d, "ssh", &e.SSH, func(s string) (string, error) { _, err := ParseLogin(s); return s, err })),
			{key: "address", set: func(n ast.Node) {
				at = n
				set(d, "address", &e.Address, parseMachineAddress).set(n)
			}},
			set(d, "port", &port, number(1024, maxTrunkPort)),
		})
		e.Port = uint16(port)
		if l, err := ParseLogin(e.SSH); err == nil && at == nil {
			if e.Address, err = parseMachineAddress(l.Host); err != nil {
				d.errorf(n, "machine %s lacks the key \"address\": an address at which the other machines reach it, like 10.0.0.1", e.Name)
			}
		}
	})
	return e
}

func parseMachineAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.IsUnspecified() || a.IsMulticast() || a.Is4In6() || a.Zone() != "" {
		return a, fmt.Errorf("%.60q is no address of a machine; write one like 10.0.0.1", s)
	}
	return a, nil
}

// machines checks the machines of a file, and gives each switch its machine. A rack with machines and
// without the key fabric has a leaf on each.
func (d *decoder) machines(f *file, r *Rack) {
	if f.on.machinesAt == nil {
		if f.on.placesAt != nil {
			d.errorf(f.on.placesAt, "machine needs the key machines, which says which there are")
		}
		if f.on.strictAt != nil && !r.Fabric.OnLoopback() {
			d.errorf(f.on.strictAt, "strict needs the key machines or carrier: pairs of interfaces of one machine lose nothing")
		}
		for i := range f.hosts {
			if at := f.hosts[i].machineAt; at != nil {
				d.errorf(at, "machine needs the key machines, which says which there are")
			}
		}
		return
	}
	for i, e := range f.on.machines {
		if !e.sound {
			return
		}
		for _, o := range f.on.machines[:i] {
			switch {
			case e.Name == o.Name:
				d.errorf(e.nameAt, "machine %s is given twice; names must differ", e.Name)
			case e.Address == o.Address:
				d.errorf(e.at, "machines %s and %s have the same address, and would share their slice: give each its own, or remove one", o.Name, e.Name)
			case e.Address.Is4() != o.Address.Is4():
				d.errorf(e.at, "machine %s has an address of another kind than %s: take IPv4 or IPv6 for all", e.Name, o.Name)
			}
		}
		r.Machines = append(r.Machines, e.Machine)
	}
	if len(r.Machines) < 2 {
		d.errorf(f.on.machinesAt, "a rack has two machines or more, or no key machines")
		return
	}
	if r.Fabric == nil {
		r.Fabric = &Fabric{Leaves: len(r.Machines)}
	}
	if r.Fabric.Leaves == 0 {
		return // a mistake that was found already
	}
	d.places(f, r)
}

// places gives each switch its machine: that of the file, or the leaves one after the other, and then the
// spines.
func (d *decoder) places(f *file, r *Rack) {
	names := r.Fabric.names()
	used := make(map[string]bool)
	for i, name := range names {
		if i >= r.Fabric.Leaves {
			i -= r.Fabric.Leaves
		}
		at := cmp.Or(f.on.places[name], r.Machines[i%len(r.Machines)].Name)
		r.Fabric.Places, used[at] = append(r.Fabric.Places, at), true
	}
	for _, name := range slices.Sorted(maps.Keys(f.on.places)) {
		at := f.on.places[name]
		_, known := r.Machines.Named(at)
		switch {
		case !slices.Contains(names, name):
			d.errorf(f.on.placesAt, "machine: %.40q is no switch of this rack; %sits switches: %v", name, nearest.Meant(name, names), names)
		case !known:
			d.errorf(f.on.placesAt, "machine: %.40q is no machine of this rack; %sits machines: %v", at, nearest.Meant(at, r.Machines.Names()), r.Machines.Names())
		}
	}
	for _, m := range r.Machines {
		if !used[m.Name] {
			d.errorf(f.on.machinesAt, "machine %s has no switch: raise `leaves` of the fabric, or remove the machine", m.Name)
		}
	}
}

// hostMachine checks the machine that a host wants, and reports whether it has a leaf for it.
func (d *decoder) hostMachine(e *hostEntry, r *Rack) bool {
	_, known := r.Machines.Named(e.machine)
	switch {
	case !known:
		d.errorf(e.machineAt, "%.40q is no machine of this rack; %sits machines: %v", e.machine, nearest.Meant(e.machine, r.Machines.Names()), r.Machines.Names())
	case len(r.Fabric.leavesOn(e.machine)) == 0:
		d.errorf(e.machineAt, "machine %s has no leaf, to which a host could be connected: raise `leaves` of the fabric, or place one there", e.machine)
	case e.leafAt != nil && r.MachineOf(e.Leaf) != e.machine:
		d.errorf(e.machineAt, "%s is on machine %s and not on %s: remove one of the keys leaf and machine", e.Leaf, r.MachineOf(e.Leaf), e.machine)
	default:
		return true
	}
	return false
}

// switchMachines reads the key machine of a fabric: the machine of each switch that it names.
func (d *decoder) switchMachines(n ast.Node, f *file) {
	f.on.placesAt, f.on.places = n, make(map[string]string)
	m, ok := n.(ast.MapNode)
	if !ok {
		d.errorf(n, "machine of the fabric must be a mapping, but is %s; write machine: {leaf0: m1}", kindOf(n))
		return
	}
	for it := m.MapRange(); it.Next(); {
		kv := it.KeyValue()
		name, ok := scalar(kv.Key)
		if _, twice := f.on.places[name]; !ok || twice {
			d.errorf(kv, "machine of the fabric: %.40q is no name of a switch, or is given twice", name)
			continue
		}
		if at, ok := text(d, kv.Value, "machine", func(s string) (string, error) { return s, checkName("machine", s, maxHostName) }); ok {
			f.on.places[name] = at
		}
	}
}

// sound returns an error if a description that was read has machines that no rack file gives: these, of
// which machine is that of the slice, with the fabric f.
func (l Machines) sound(machine string, f *Fabric) error {
	if len(l) == 0 {
		if machine != "" || f != nil && f.Places != nil {
			return errors.New("places on machines, and no machines")
		}
		return nil
	}
	if len(l) > maxMachines || f == nil || len(f.Places) != len(f.names()) {
		return fmt.Errorf("%d machines do not fit the fabric", len(l))
	}
	for i, m := range l {
		if _, err := ParseLogin(m.SSH); err != nil {
			return err
		}
		_, err := parseMachineAddress(m.Address.String())
		if err != nil || checkName("machine", m.Name, maxHostName) != nil || m.Port > maxTrunkPort || slices.Index(l.Names(), m.Name) != i {
			return fmt.Errorf("machine %.40q has no sound name, address or port", m.Name)
		}
	}
	for _, at := range append(slices.Clone(f.Places), cmp.Or(machine, l[0].Name)) {
		if _, ok := l.Named(at); !ok {
			return fmt.Errorf("there is no machine %.40q", at)
		}
	}
	return nil
}
