package spec

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// HostIfname is the name of the NIC's interface inside every host.
const HostIfname = "rack0"

// Role is the purpose of a host.
type Role string

// Roles. The daemon of a memory host only registers a region. The daemon of a metadata host also
// runs a service.
const (
	Compute  Role = "compute"
	Memory   Role = "memory"
	Metadata Role = "metadata"
)

// Roles lists the roles in the order of their explanation in the documentation.
func Roles() []Role { return []Role{Compute, Memory, Metadata} }

// Values of CPU that are not the number of a processor.
const (
	// NoCPU: a process is not bound.
	NoCPU = -1
	// AutoCPU: on a machine with two or more processors, the switch has one of them and the hosts
	// have the others. Without this, Linux moves two processes that exchange packets onto the same
	// processor; with it, a small rack is twice as fast.
	AutoCPU = -2
)

// Values of Connect.
const (
	// ConnectCM: queue pairs are connected by datagrams of the RDMA connection manager. Faults of
	// links affect these datagrams, too.
	ConnectCM = "cm"
	// ConnectTCP: queue pairs are connected by an exchange over TCP between the hosts.
	ConnectTCP = "tcp"
)

// Values of Cable.
const (
	// CableVeth: RoCEv2 packets cross the pair of interfaces that joins every host to the switch.
	CableVeth = "veth"
	// CableMemory: RoCEv2 packets cross shared memory beside the pair of interfaces.
	CableMemory = "memory"
)

// Rack is a resolved rack: every name, address and default is filled in. It is inert and the same
// on every machine for the same rack file.
type Rack struct {
	Name string `json:"name"`
	// Seed decides MAC addresses and every random choice of faults.
	Seed uint64 `json:"seed"`
	// LinkMTU of every link in bytes, without the Ethernet header.
	LinkMTU int `json:"mtu"`
	// Connect is how queue pairs are connected: ConnectCM or ConnectTCP; "" means ConnectCM.
	Connect string `json:"connect,omitempty"`
	// Cable is what RoCEv2 packets cross between a host's daemon and the switch: CableVeth or
	// CableMemory; "" means CableVeth. Other frames, and all frames of guests, cross the pair of
	// interfaces in both cases.
	Cable string `json:"cable,omitempty"`
	// Group is the name or number of a group of this machine. Its users, and root, may run programs
	// on the NICs of the hosts. "" means that only root may.
	Group string `json:"group,omitempty"`
	// OneRMA describes the NICs without connections; nil means that the hosts have none.
	OneRMA *OneRMA `json:"onerma,omitempty"`
	// Subnet holds the IPv4 addresses of the hosts. Subnet6 holds those of IPv6. The first address
	// of each is the switch's.
	Subnet  netip.Prefix `json:"subnet"`
	Subnet6 netip.Prefix `json:"subnet6"`
	Switch  Switch       `json:"switch"`
	// Hosts are in the order of the rack file; a host's index is its port number on the switch.
	Hosts []Host `json:"hosts"`
	// Faults are active from the beginning.
	Faults []fault.Rule `json:"faults,omitempty"`
}

// Switch is the top-of-rack switch.
type Switch struct {
	// Program is the name of the switch program.
	Program string `json:"program"`
	// Queue is the capacity of each egress queue in packets.
	Queue int `json:"queue"`
	// Spin is how long the switch polls its ports before it blocks.
	Spin time.Duration `json:"spin"`
	// CPU is the processor to which the switch is bound, AutoCPU or NoCPU.
	CPU int `json:"cpu"`
	// Rules of the program swordbox, with the addresses of their servers and an ID each.
	Rules []rules.Rule `json:"rules,omitempty"`
	// Addresses of the switch as an end of connections. Only a switch program that makes
	// connections answers at them.
	IPv4 netip.Addr `json:"ipv4"`
	IPv6 netip.Addr `json:"ipv6"`
	MAC  wire.MAC   `json:"mac"`
}

// Host is one machine of the rack.
type Host struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Port is the interface name of the switch's end of the host's link (at most 15 bytes).
	Port string     `json:"port"`
	IPv4 netip.Addr `json:"ipv4"`
	IPv6 netip.Addr `json:"ipv6"`
	MAC  wire.MAC   `json:"mac"`
	// Memory is the size in bytes of the region that the host registers for others; 0 is none.
	Memory int64 `json:"memory"`
	// Spin is how long the host's NIC polls before it blocks.
	Spin time.Duration `json:"spin"`
	// CPU is the processor to which the host's daemon is bound, AutoCPU or NoCPU.
	CPU int `json:"cpu"`
	// GSO: the host's NIC sends runs of packets as super-frames, as segmentation offload does, and
	// the switch sends such frames to the host. The switch takes them apart for faults, switch
	// programs and captures; tcpdump shows them whole. Without GSO every packet from and to the
	// host is a frame of its own. The default is true.
	GSO bool `json:"gso"`
	// PKeys is the partition table of the host's NIC: P_Keys, whose highest bit is set for a full
	// member. nil means only 0xffff, the default partition.
	PKeys []uint16 `json:"pkeys,omitempty"`
	// TOS is the TOS byte or traffic class of the NIC's packets if the connection or address handle
	// does not set one.
	TOS uint8 `json:"tos,omitempty"`
	// Quota bounds what programs may have of the host's NIC.
	Quota Quota `json:"quota,omitzero"`
}

// Prefix4 is the host's IPv4 address with the prefix length of the rack's subnet.
func (r *Rack) Prefix4(h *Host) netip.Prefix { return netip.PrefixFrom(h.IPv4, r.Subnet.Bits()) }

// Prefix6 is Prefix4 for IPv6.
func (r *Rack) Prefix6(h *Host) netip.Prefix { return netip.PrefixFrom(h.IPv6, r.Subnet6.Bits()) }

// Host returns the host called name, and its index in Hosts.
func (r *Rack) Host(name string) (*Host, int, bool) {
	i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return nil, -1, false
	}
	return &r.Hosts[i], i, true
}

// HostNames lists the hosts' names in order.
func (r *Rack) HostNames() []string {
	names := make([]string, len(r.Hosts))
	for i := range r.Hosts {
		names[i] = r.Hosts[i].Name
	}
	return names
}

// ByRole lists the hosts with a role, in order.
func (r *Rack) ByRole(role Role) []Host {
	var hosts []Host
	for _, h := range r.Hosts {
		if h.Role == role {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// ByAddr returns the host that owns an address.
func (r *Rack) ByAddr(a netip.Addr) (*Host, bool) {
	a = a.Unmap()
	for i := range r.Hosts {
		if r.Hosts[i].IPv4 == a || r.Hosts[i].IPv6 == a {
			return &r.Hosts[i], true
		}
	}
	return nil, false
}

// Neighbour returns the MAC address that belongs to an IP address of a host or of the switch; false
// means that the address belongs to neither.
func (r *Rack) Neighbour(a netip.Addr) (wire.MAC, bool) {
	if h, ok := r.ByAddr(a); ok {
		return h.MAC, true
	}
	a = a.Unmap()
	return r.Switch.MAC, a.IsValid() && (a == r.Switch.IPv4 || a == r.Switch.IPv6)
}

// Address resolves the name of a host, or an address in text form. A host has its IPv4 address, if
// the rack has those.
func (r *Rack) Address(name string) (netip.Addr, error) {
	if h, _, ok := r.Host(name); ok {
		if h.IPv4.IsValid() {
			return h.IPv4, nil
		}
		return h.IPv6, nil
	}
	if a, err := netip.ParseAddr(name); err == nil {
		return a, nil
	}
	return netip.Addr{}, fmt.Errorf("no host %q in this rack; it has %v", name, r.HostNames())
}

// Encode returns the rack as JSON, which Decode reads. The JSON is stored at Paths.Spec.
func (r *Rack) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode rack %s: %w", r.Name, err)
	}
	return append(b, '\n'), nil
}

// Decode reads what Encode wrote.
func Decode(b []byte) (*Rack, error) {
	var r Rack
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("decode rack: %w", err)
	}
	if err := CheckName(r.Name); err != nil {
		return nil, fmt.Errorf("decode rack: %w", err)
	}
	return &r, nil
}
