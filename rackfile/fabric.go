package rackfile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// Bounds of a fabric.
const (
	maxLeaves = 16
	maxSpines = 8
)

// Fabric is the switches of a rack that has several: leaves, to which the hosts are connected, and
// spines, each with a trunk to each leaf. Without spines each leaf has a trunk to each other leaf.
type Fabric struct {
	Leaves int `json:"leaves"`
	Spines int `json:"spines"`
	// Places are the names of the machines of all switches, the leaves first; nil if the rack has one
	// machine.
	Places []string `json:"places,omitempty"`
	// Strict says that measurements fail if the network between machines loses something of a trunk.
	Strict bool `json:"strict,omitempty"`
	// Carrier says what carries the trunks between machines: CarrierTCP, or by UDP. On one machine, with a
	// value other than "", it carries all trunks, over the loopback interface of the switches' network namespace.
	Carrier string `json:"carrier,omitempty"`
}

// What carries trunks that are no pairs of interfaces.
const (
	CarrierUDP = "udp"
	CarrierTCP = "tcp"
)

// CarrierName returns what carries the trunks that have one: CarrierUDP or CarrierTCP.
func (f *Fabric) CarrierName() string { return cmp.Or(f.Carrier, CarrierUDP) }

// Trunk connects two switches. Its name is that of its port at both. Leaf has its faults; Far is a
// spine, or without spines a leaf with a greater number.
type Trunk struct {
	Leaf, Far string
	// Carried is whether datagrams carry it: one between machines, or, if the rack file gives the trunks of
	// one machine a carrier, each.
	Carried bool
	// leafHere and farHere are whether its ends are on the machine of this slice.
	leafHere, farHere bool
}

// EndsHere returns the switches on the machine of this slice at which the trunk ends: none, one or two.
func (c Trunk) EndsHere() (list []string) {
	if c.leafHere {
		list = append(list, c.Leaf)
	}
	if c.farHere {
		list = append(list, c.Far)
	}
	return list
}

// Name returns the name of the trunk, as commands and faults take it.
func (c Trunk) Name() string { return c.Leaf + "-" + c.Far }

// Ports returns the names of the interfaces at the two ends.
func (c Trunk) Ports() (leaf, far string) { return c.Leaf + "-" + c.Far, c.Far + "-" + c.Leaf }

func leafName(n int) string  { return "leaf" + strconv.Itoa(n) }
func spineName(n int) string { return "spine" + strconv.Itoa(n) }

// names returns the names of the switches, the leaves first.
func (f *Fabric) names() (list []string) {
	for n := range f.Leaves + f.Spines {
		list = append(list, f.name(n))
	}
	return list
}

// name returns the name of a switch by its number: that in names.
func (f *Fabric) name(n int) string {
	if n < f.Leaves {
		return leafName(n)
	}
	return spineName(n - f.Leaves)
}

// placeOf returns the machine of a switch by its number; "" if the rack has one machine, or the description
// is refused.
func (f *Fabric) placeOf(n int) string {
	if n < len(f.Places) {
		return f.Places[n]
	}
	return ""
}

// SwitchNames returns the names of the switches of the rack: SwitchName alone, or those of the fabric.
func (r *Rack) SwitchNames() []string {
	if r.Fabric == nil {
		return []string{SwitchName}
	}
	return r.Fabric.names()
}

// IsSwitch reports whether a node of the rack is a switch.
func (r *Rack) IsSwitch(node string) bool { return slices.Contains(r.SwitchNames(), node) }

// IsSpine reports whether a node of the rack is a spine; no node is if f is nil.
func (f *Fabric) IsSpine(node string) bool {
	return f != nil && slices.Contains(f.names()[f.Leaves:], node)
}

// NamespaceOf returns the node whose network namespace a node has: all switches have one.
func (r *Rack) NamespaceOf(node string) string {
	if r.IsSwitch(node) {
		return SwitchName
	}
	return node
}

// Trunks returns the trunks between switches, in an order that all switches know; none if the rack has
// one switch.
func (r *Rack) Trunks() (list []Trunk) {
	if r.Fabric == nil {
		return nil
	}
	for l := range r.Fabric.Leaves {
		for s := range r.Fabric.Spines {
			list = append(list, r.Fabric.trunk(l, r.Fabric.Leaves+s, r.Machine))
		}
		for far := l + 1; r.Fabric.Spines == 0 && far < r.Fabric.Leaves; far++ {
			list = append(list, r.Fabric.trunk(l, far, r.Machine))
		}
	}
	return list
}

// trunk describes the trunk between two switches by their numbers, as a machine sees it.
func (f *Fabric) trunk(leaf, far int, machine string) Trunk {
	near, there := f.placeOf(leaf), f.placeOf(far)
	return Trunk{f.name(leaf), f.name(far), near != there || f.OnLoopback(), near == machine, there == machine}
}

// TrunkNamed returns the trunk with a name; false if there is none.
func (r *Rack) TrunkNamed(name string) (Trunk, bool) {
	list := r.Trunks()
	if i := slices.IndexFunc(list, func(c Trunk) bool { return c.Name() == name }); i >= 0 {
		return list[i], true
	}
	return Trunk{}, false
}

// SwitchOf returns the switch that has the port of a link: of a host's NIC its own switch, of a trunk
// the leaf, of a device that of its port. "" means that there is no such link.
func (r *Rack) SwitchOf(link string) string {
	if h, _, ok := r.Host(link); ok {
		return r.LeafOf(h)
	}
	if c, ok := r.TrunkNamed(link); ok {
		return c.Leaf
	}
	if d, ok := r.Devices.Named(link); ok {
		return cmp.Or(d.Leaf, SwitchName)
	}
	return ""
}

// LeafOf returns the switch to which a NIC is connected.
func (r *Rack) LeafOf(h *Host) string {
	if r.Fabric == nil {
		return SwitchName
	}
	return cmp.Or(h.Leaf, leafName(0)) // guests are at the first leaf
}

// LinkNames returns the names of all links: those of the NICs, those of the trunks, and those of the ports
// of devices.
func (r *Rack) LinkNames() []string {
	names := r.NICNames()
	for _, c := range r.Trunks() {
		names = append(names, c.Name())
	}
	for _, d := range r.Devices {
		names = append(names, d.Name)
	}
	return names
}

// sound returns an error if a description that was read has switches or places that no rack file gives.
func (f *Fabric) sound(hosts []Host) error {
	if f.Leaves < 1 || f.Leaves > maxLeaves || f.Spines < 0 || f.Spines > maxSpines {
		return fmt.Errorf("a fabric of %d leaves and %d spines", f.Leaves, f.Spines)
	}
	if f.Leaves == 1 && f.Spines == 0 {
		return errors.New("a fabric of one leaf and no spine")
	}
	for i := range hosts {
		if h := &hosts[i]; !slices.Contains(f.names()[:f.Leaves], h.Leaf) {
			return fmt.Errorf("host %.40q is at %.40q, which is no leaf", h.Name, h.Leaf)
		}
	}
	return nil
}

// ErrFabric is the kind of an error for what a rack with several switches does not have.
var ErrFabric = errors.New("a rack with the key fabric")

// fits returns an error if the rack has something that a fabric does not carry.
func (f *Fabric) fits(r *Rack) error {
	switch {
	case r.Shared():
		return fmt.Errorf("%w has separate processes: leave out `daemons: shared` and --compact", ErrFabric)
	case r.Cable == CableMemory:
		return fmt.Errorf("%w has no memory links: leave out `cable: memory`", ErrFabric)
	case r.Slow > 0:
		return fmt.Errorf("%w runs at full speed: leave out `slow`", ErrFabric)
	case r.Switch.Queues != nil && slices.ContainsFunc(r.Switch.Queues.Classes[:], func(c portqueue.Class) bool { return c.Lossless }):
		return fmt.Errorf("%w has lossy queues: a pause would have to spread over its trunks; leave out `lossless`", ErrFabric)
	}
	return nil
}

// fabric reads the key fabric.
func (d *decoder) fabric(n ast.Node, of *file) *Fabric {
	f := &Fabric{}
	d.mapping(n, "fabric", []entry{
		required(set(d, "leaves", &f.Leaves, number(1, d.size.leaves))),
		required(set(d, "spines", &f.Spines, number(0, d.size.spines))),
		{key: "machine", set: func(n ast.Node) { d.switchMachines(n, of) }},
		{key: "strict", set: func(n ast.Node) {
			of.on.strictAt = n
			set(d, "strict", &f.Strict, parseBool).set(n)
		}},
		{key: "carrier", set: func(n ast.Node) {
			of.on.carrierAt = n
			set(d, "carrier", &f.Carrier, word(CarrierUDP, CarrierTCP)).set(n)
		}},
	})
	return f
}

// leaves gives each NIC its leaf: that of the file, or the hosts one after the other. Further NICs of a
// host are on the leaves behind that of the first.
func (d *decoder) leaves(f *file, r *Rack) {
	if r.Fabric == nil {
		for i := range f.hosts {
			if f.hosts[i].leafAt != nil {
				d.errorf(f.hosts[i].leafAt, "leaf needs the key fabric, which says how many leaves there are")
			}
		}
		if why := r.Fabric.crowded(r); why != "" {
			d.errorf(f.node, "%s", why)
		}
		return
	}
	if r.Fabric.Leaves == 0 || len(r.Machines) > 0 && r.Fabric.Places == nil {
		return // a mistake that was found already
	}
	if r.Fabric.Leaves == 1 && r.Fabric.Spines == 0 {
		d.errorf(f.on.fabricAt, "a fabric of one leaf and no spine is one switch: leave out `fabric`, or give it more leaves")
		return
	}
	if err := r.Fabric.fits(r); err != nil {
		d.errorf(cmp.Or(f.on.fabricAt, f.on.machinesAt), "%v", err)
		return
	}
	wanted := make(map[string]string) // machines of hosts, as the file says
	taken := r.SwitchNames()
	for _, c := range r.Trunks() {
		leaf, far := c.Ports()
		taken = append(taken, leaf, far)
	}
	for i := range f.hosts {
		e := &f.hosts[i]
		for _, name := range e.names {
			if h, _, ok := r.Host(name); ok {
				h.NIC.Placed = e.leafAt != nil || e.machineAt != nil
			}
			wanted[name] = e.machine
			if slices.Contains(taken, name) {
				d.errorf(e.nameAt, "host name %q is that of a switch or trunk of the fabric; choose another", name)
			}
		}
		if e.leafAt != nil && !slices.Contains(r.Fabric.names()[:r.Fabric.Leaves], e.Leaf) {
			d.errorf(e.leafAt, "%.40q is no leaf of this fabric; its leaves are leaf0 to %s", e.Leaf, leafName(r.Fabric.Leaves-1))
			return
		}
		if e.machineAt != nil && !d.hostMachine(e, r) {
			return
		}
	}
	r.Fabric.place(r.Hosts, wanted)
	if why := r.Fabric.crowded(r); why != "" {
		d.errorf(f.on.fabricAt, "%s", why)
	}
}

// crowded says which switch of a rack, of a fabric or the only one (nil), would have more links than ports; ""
// means none.
func (f *Fabric) crowded(r *Rack) string {
	links := make(map[string]int)
	for i := range r.Hosts {
		links[r.LeafOf(&r.Hosts[i])]++
	}
	for _, t := range r.Trunks() {
		links[t.Leaf]++
		links[t.Far]++
	}
	for _, name := range r.SwitchNames() {
		if links[name] > MaxPorts {
			return fmt.Sprintf("%s would have %d links, and has %d ports; give the rack more leaves (key fabric)", name, links[name], MaxPorts)
		}
	}
	return ""
}

// place gives a leaf to the NICs that have none: one after the other, or one of the machine that a host
// wants. Further NICs are behind all hosts, and on the machine of the first.
func (f *Fabric) place(hosts []Host, wanted map[string]string) {
	first, given := make(map[string]string), make(map[string]int) // leaves by host, hosts by machine
	for i := range hosts {
		h := &hosts[i]
		if h.IsNIC() {
			near := f.near(first[h.NIC.Of])
			h.Leaf = near[(slices.Index(near, first[h.NIC.Of])+h.NIC.Nth)%len(near)]
			continue
		}
		if at := wanted[h.Name]; h.Leaf == "" && at != "" {
			own := f.leavesOn(at)
			h.Leaf = own[given[at]%len(own)]
			given[at]++
		}
		if h.Leaf == "" {
			h.Leaf = leafName(i % f.Leaves)
		}
		first[h.Name] = h.Leaf
	}
}

// near returns the leaves on the machine of a leaf: all, if the rack has one machine.
func (f *Fabric) near(leaf string) []string {
	if f.Places == nil {
		return f.names()[:f.Leaves]
	}
	return f.leavesOn(f.Places[slices.Index(f.names(), leaf)])
}

// leavesOn returns the leaves on a machine.
func (f *Fabric) leavesOn(machine string) (list []string) {
	for i := range f.Leaves {
		if f.Places[i] == machine {
			list = append(list, leafName(i))
		}
	}
	return list
}

// RuleAt returns the switch that carries out a rule, whose server is resolved: the server's own, which
// each request to it passes. "" means that no host of the rack has the server's address.
func (r *Rack) RuleAt(rule *rules.Rule) string {
	if r.Fabric == nil {
		return SwitchName
	}
	if h, ok := r.ByAddr(rule.Server); ok {
		return r.LeafOf(h)
	}
	return ""
}

// steers returns an error if a rule steers at another leaf than those before it. Memory that a rule uses
// may be at any leaf: the switch reaches it over trunks.
func (f *Fabric) steers(r *Rack, rule *rules.Rule, others []rules.Rule) error {
	if rule.Action != rules.Steer {
		return nil
	}
	at := r.RuleAt(rule)
	for i := range others {
		if o := &others[i]; o.Action == rules.Steer && r.RuleAt(o) != at {
			return fmt.Errorf("rule %s steers at %s, this one at %s, and a chain may cross both: give the servers the same `leaf`", o.ID, r.RuleAt(o), at)
		}
	}
	return nil
}

// OnSwitch returns the description of one switch of the rack: with the rules for the servers that are
// connected to it, the faults of its links, and its own addresses. A spine forwards only.
func (r *Rack) OnSwitch(name string) *Rack {
	own := *r
	if own.Switch.Name = name; r.Fabric == nil {
		return &own
	}
	for _, at := range r.SwitchAddresses() {
		if at.Name == name {
			own.Switch.IPv4, own.Switch.IPv6, own.Switch.MAC = at.IPv4, at.IPv6, at.MAC
		}
	}
	own.Switch.Rules, own.Faults = nil, nil
	for _, rule := range r.Switch.Rules {
		if r.RuleAt(&rule) == name {
			own.Switch.Rules = append(own.Switch.Rules, rule)
		}
	}
	for _, f := range fault.Named(r.Faults) { // numbered in the whole rack
		if r.SwitchOf(f.Link) == name {
			own.Faults = append(own.Faults, f)
		}
	}
	if r.Fabric.IsSpine(name) {
		own.Switch.Program = ProgramForward
	}
	return &own
}
