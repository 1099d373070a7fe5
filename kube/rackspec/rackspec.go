// Package rackspec makes the description of a rack from the text in a Rack object, by the rack file's own
// parser, and the links of its hosts. It reaches no cluster.
package rackspec

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/rdmalab/rdmalab/kube/node"
	"github.com/rdmalab/rdmalab/rackfile"
)

// Bounds of the nodes of a rack: those of the machines of a rack file.
const (
	MinNodes = 2
	MaxNodes = 16
)

// Group is the number of the group to which the sockets of NICs belong. Who may use them is decided by who has
// them mounted; see package host.
const Group = 4791

// Machine returns the name of the machine number n, and Leaf that of its leaf.
func Machine(n int) string { return fmt.Sprintf("n%d", n) }

// Leaf returns the name of the leaf of machine n.
func Leaf(n int) string { return fmt.Sprintf("leaf%d", n) }

// Unknown is the address of a machine whose leaf has not reported one: of a block that is nowhere (RFC 5737).
func Unknown(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n + 1)}) }

// ErrUnfit says that a rack file is sound, and cannot be on Kubernetes.
var ErrUnfit = errors.New("cannot be on Kubernetes")

// Parse makes a rack called name on so many nodes from the text of a rack file. The addresses of its machines
// are Unknown.
func Parse(name, text string, nodes int) (*rackfile.Rack, error) {
	if err := rackfile.CheckName(name); err != nil {
		return nil, fmt.Errorf("the name of the Rack: %w", err)
	}
	if nodes < MinNodes || nodes > MaxNodes {
		return nil, fmt.Errorf("nodes: %d; a rack is on %d to %d nodes", nodes, MinNodes, MaxNodes)
	}
	var b strings.Builder
	b.WriteString(strings.TrimRight(text, "\n"))
	b.WriteString("\nmachines:\n")
	for n := range nodes {
		fmt.Fprintf(&b, "  - {name: %s, ssh: \"ssh://%s\", address: %v}\n", Machine(n), Machine(n), Unknown(n))
	}
	r, err := rackfile.ParseFile("spec.rack", []byte(b.String()))
	if err != nil {
		return nil, err
	}
	if err := fits(r, nodes); err != nil {
		return nil, err
	}
	r.Name, r.Group, r.Generation = name, fmt.Sprint(Group), 1
	return r, nil
}

// fits refuses what only a rack of processes has.
func fits(r *rackfile.Rack, nodes int) error {
	for _, name := range []string{"leaf", "nic"} { // of the leaf's DaemonSet and sockets, and of a user's sockets
		if _, _, ok := r.Host(name); ok {
			return fmt.Errorf("host %s: %w: the name is taken; give the host another", name, ErrUnfit)
		}
	}
	switch {
	case r.Fabric.Leaves != nodes || r.Fabric.Spines != 0:
		return fmt.Errorf("fabric: %w: each node has one leaf with a trunk to each other; remove the key, or write {leaves: %d, spines: 0}", ErrUnfit, nodes)
	case len(r.Devices) > 0:
		return fmt.Errorf("devices: %w: they are of a machine; remove the key", ErrUnfit)
	case r.HasNICs():
		return fmt.Errorf("nics: %w: a host has one NIC there; remove the key", ErrUnfit)
	case r.Cable == rackfile.CableMemory:
		return fmt.Errorf("cable: %w: a Pod has no memory in common with the switch; remove the key", ErrUnfit)
	}
	return nil
}

// HostsAt returns the names of the hosts at a leaf.
func HostsAt(r *rackfile.Rack, leaf string) (list []string) {
	for i := range r.Hosts {
		if r.LeafOf(&r.Hosts[i]) == leaf {
			list = append(list, r.Hosts[i].Name)
		}
	}
	return list
}

// Link returns the link of a host, for the plugin.
func Link(r *rackfile.Rack, h *rackfile.Host) node.Link {
	return node.Link{
		Port: h.Port, Ifname: h.Ifname(), MAC: h.MAC.String(), MTU: r.MTUOf(h), Role: string(h.Role),
		Addresses: []netip.Prefix{r.Prefix4(h), r.Prefix6(h)},
	}
}

// At returns the description that the slice of a machine has, with the addresses that are known, by the names
// of the machines. r stays as it is.
func At(r *rackfile.Rack, machine string, addresses map[string]netip.Addr) *rackfile.Rack {
	own := *r
	own.Machine = machine
	own.Machines = append(rackfile.Machines(nil), r.Machines...)
	for i := range own.Machines {
		if a, ok := addresses[own.Machines[i].Name]; ok {
			own.Machines[i].Address = a
		}
	}
	return &own
}
