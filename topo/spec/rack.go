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

// HostIfname is the name of the rack interface inside every host.
const HostIfname = "rack0"

// Role is the purpose of a host.
type Role string

// Roles. A memory host registers its region and sleeps; a metadata host is one with a service of
// its own.
const (
	Compute  Role = "compute"
	Memory   Role = "memory"
	Metadata Role = "metadata"
)

// Roles lists the roles in the order of their explanation in the documentation.
func Roles() []Role { return []Role{Compute, Memory, Metadata} }

// Values of CPU that are no processor.
const (
	// NoCPU: a process is not bound.
	NoCPU = -1
	// AutoCPU: on a machine with two or more processors the switch has one to itself and the hosts
	// have the others. Two processes that exchange packets are then never moved onto the same one,
	// and a small rack is twice as fast.
	AutoCPU = -2
)

// Values of Connect.
const (
	// ConnectCM is by the datagrams of the RDMA connection manager, which share the faults of the
	// links.
	ConnectCM = "cm"
	// ConnectTCP is by an exchange over the hosts' own TCP.
	ConnectTCP = "tcp"
)

// Values of Cable.
const (
	// CableVeth is the pair of interfaces that joins every host to the switch.
	CableVeth = "veth"
	// CableMemory is shared memory beside it, for RoCEv2 alone.
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
	// Connect is how queue pairs are connected: ConnectCM, which "" is too, or ConnectTCP.
	Connect string `json:"connect,omitempty"`
	// Cable is what RoCEv2 packets cross between a host's daemon and the switch: CableVeth, which ""
	// is too, or CableMemory. All else, and guests, use the pair of interfaces in both cases.
	Cable string `json:"cable,omitempty"`
	// Group is the name or the number of the group of the machine whose users, besides root, may run
	// programs on the NICs of the hosts; "": root alone.
	Group string `json:"group,omitempty"`
	// Subnet holds the IPv4 addresses of the hosts, Subnet6 those of IPv6. The first address of
	// each is the switch's.
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
	// CPU that the switch is bound to, AutoCPU or NoCPU.
	CPU int `json:"cpu"`
	// Rules of the program swordbox, with the addresses of their servers and an ID each.
	Rules []rules.Rule `json:"rules,omitempty"`
	// Addresses of the switch as an end of connections: a program without connections does not
	// answer at them.
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
	// CPU that the host's daemon is bound to, AutoCPU or NoCPU.
	CPU int `json:"cpu"`
	// GSO says that the host's NIC sends runs of packets as super-frames, as segmentation offload
	// does, and that the switch sends them to the host as well. The switch and captures of it take
	// them apart where packets matter; tcpdump shows them whole. Without GSO every packet from and
	// to the host is a frame of its own. The default is true.
	GSO bool `json:"gso"`
	// PKeys is the table of partitions of the host's NIC: a P_Key each, with its highest bit for a
	// full member. nil: 0xffff, the default partition, alone.
	PKeys []uint16 `json:"pkeys,omitempty"`
	// TOS is the TOS byte or traffic class of the NIC's packets whose connection or address handle
	// names none.
	TOS uint8 `json:"tos,omitempty"`
	// Quota bounds what programs may have of the host's NIC.
	Quota Quota `json:"quota,omitzero"`
}

// Prefix4 and Prefix6 are the host's addresses with the length of the rack's subnets.
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

// Neighbour is the MAC address behind an IP address of a host or of the switch.
func (r *Rack) Neighbour(a netip.Addr) (wire.MAC, bool) {
	if h, ok := r.ByAddr(a); ok {
		return h.MAC, true
	}
	a = a.Unmap()
	return r.Switch.MAC, a.IsValid() && (a == r.Switch.IPv4 || a == r.Switch.IPv6)
}

// Encode is the rack as the JSON that Decode reads; it is stored at Paths.Spec.
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
