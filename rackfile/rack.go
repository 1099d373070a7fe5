package rackfile

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// HostIfname is the name of the NIC's interface inside every host.
const HostIfname = "rack0"

// Role is the purpose of a host.
type Role string

// Roles of hosts. Clients run on compute hosts. A memory host registers memory, and has a replica
// of the store kvcs. A metadata host runs the server of a store that has one.
const (
	Compute  Role = "compute"
	Memory   Role = "memory"
	Metadata Role = "metadata"
)

// Roles lists the roles in the order in which the documentation explains them.
func Roles() []Role { return []Role{Compute, Memory, Metadata} }

// Values of the fields CPU that are not the number of a processor.
const (
	// NoCPU: the process is not bound to a processor.
	NoCPU = -1
	// AutoCPU: on a machine with two or more processors, the switch gets one of them for itself and
	// the hosts get the others. If nothing is bound, Linux moves two processes that exchange
	// packets onto the same processor; with AutoCPU a small rack is twice as fast.
	AutoCPU = -2
)

// Values of Rack.Connect.
const (
	// ConnectCM: queue pairs are connected by datagrams of the RDMA connection manager. Faults of
	// links affect these datagrams, too.
	ConnectCM = "cm"
	// ConnectTCP: queue pairs are connected by an exchange over TCP between the hosts.
	ConnectTCP = "tcp"
)

// Values of Rack.Cable.
const (
	// CableVeth: RoCEv2 packets cross the pair of interfaces between a host and the switch.
	CableVeth = "veth"
	// CableMemory: RoCEv2 packets cross shared memory, which the host and the switch have beside
	// the pair of interfaces.
	CableMemory = "memory"
)

// Values of Rack.Daemons.
const (
	// DaemonsSeparate: each host, and the switch, has a process of its own.
	DaemonsSeparate = "separate"
	// DaemonsShared: one process has the NICs and services of all hosts, and the switch (package
	// topo/compact). RoCEv2 packets between them do not leave it.
	DaemonsShared = "shared"
)

// Shared reports whether one process runs all hosts and the switch.
func (r *Rack) Shared() bool { return r.Daemons == DaemonsShared }

// Share sets DaemonsShared. It returns an error if the rack has something that the shared process
// cannot have.
func (r *Rack) Share() error {
	switch {
	case r.OneRMA != nil:
		return errors.New("1RMA NICs need separate processes: take `daemons: separate`, or leave out `onerma`")
	case r.Slow > 0:
		return errors.New("slow motion needs separate processes: take `daemons: separate`, or leave out `slow`")
	case r.Cable == CableMemory:
		return errors.New("packets do not leave a shared process: leave out `cable: memory`, or take `daemons: separate`")
	case r.Fabric != nil:
		return errors.New("several switches need separate processes: take `daemons: separate`, or leave out `fabric`")
	case len(r.Devices) > 0:
		return errors.New("network devices need separate processes: take `daemons: separate`, or leave out `devices`")
	}
	r.Daemons = DaemonsShared
	return nil
}

// Values of Rack.Priority.
const (
	// PriorityNormal: the daemons share the processors with all other processes.
	PriorityNormal = "normal"
	// PriorityRealtime: the kernel prefers the daemons to all processes without real-time priority
	// (SCHED_RR).
	PriorityRealtime = "realtime"
)

// Rack is a resolved rack: every name, address and default is filled in. It is plain data, and the
// same on every machine for the same rack file.
type Rack struct {
	Name string `json:"name"`
	// Seed decides MAC addresses and every random choice of faults.
	Seed uint64 `json:"seed"`
	// LinkMTU is the MTU of every link in bytes, without the Ethernet header.
	LinkMTU int `json:"mtu"`
	// Connect is how queue pairs are connected: ConnectCM or ConnectTCP; "" means ConnectCM.
	Connect string `json:"connect,omitempty"`
	// Cable is what carries RoCEv2 packets between a host's daemon and the switch: CableVeth or
	// CableMemory; "" means CableVeth. The pair of interfaces always carries all other frames, and
	// all frames of guests.
	Cable string `json:"cable,omitempty"`
	// Daemons is in which processes the hosts and the switch run: DaemonsSeparate or DaemonsShared; ""
	// means DaemonsSeparate.
	Daemons string `json:"daemons,omitempty"`
	// Priority is the scheduling priority of the daemons of hosts and switch: PriorityNormal or
	// PriorityRealtime; "" means PriorityNormal.
	Priority string `json:"priority,omitempty"`
	// Group is the name or number of a group of this machine. Its users, and root, may run programs
	// on the NICs of the hosts. "" means that only root may.
	Group string `json:"group,omitempty"`
	// Slow is the factor of slow motion: all rates are lower and all times of protocols longer by it
	// than on the hardware of the cost model Cost. 0 means that the rack is not in slow motion; then
	// its NICs, links and switch are as fast as the machine, and Cost is empty.
	Slow int `json:"slow,omitempty"`
	// LogJSON makes the daemons write their logs as JSON, one object a line, and not as text.
	LogJSON bool   `json:"logJson,omitempty"`
	Cost    string `json:"cost,omitempty"`
	// OneRMA describes the hosts' NICs without connections (1RMA); nil means that the hosts have
	// none.
	OneRMA *OneRMA `json:"onerma,omitempty"`
	// Congestion is the congestion control of the hosts that have none of their own; nil means none.
	Congestion *congestion.Params `json:"congestion,omitempty"`
	// Subnet has the IPv4 addresses of the hosts, Subnet6 the IPv6 addresses. The first address of
	// each is that of the switch, or of the first of several (SwitchAddresses).
	Subnet  netip.Prefix `json:"subnet"`
	Subnet6 netip.Prefix `json:"subnet6"`
	Switch  Switch       `json:"switch"`
	// Fabric is the switches of a rack that has several; nil means that it has one. Switch is what they
	// have in common.
	Fabric *Fabric `json:"fabric,omitempty"`
	// Slice says on which machines the rack runs, and with which devices of theirs.
	Slice
	// Hosts are in the order of the rack file, and behind them the further NICs of hosts that have
	// several (FurtherNIC); the index is the port number on the switch.
	Hosts []Host `json:"hosts"`
	// Faults are active from the beginning.
	Faults []fault.Rule `json:"faults,omitempty"`
}

type Switch struct {
	// Name is that of the switch, in the description that it has itself (OnSwitch).
	Name    string `json:"name,omitempty"`
	Program string `json:"program"`
	// Queue is the capacity of each egress queue in packets.
	Queue int `json:"queue"`
	// Spin is how long the switch polls its ports before it blocks.
	Spin time.Duration `json:"spin"`
	// CPU is the processor to which the switch is bound, AutoCPU or NoCPU.
	CPU int `json:"cpu"`
	// Queues describes the egress queues of all ports; nil means that each port has one queue, and is
	// as fast as the machine.
	Queues *portqueue.Config `json:"queues,omitempty"`
	// Rules are the rules of the switch program swordbox. Each has an ID and the addresses of its
	// server.
	Rules []rules.Rule `json:"rules,omitempty"`
	// Addresses of the switch as the end of connections. Only a switch program that makes
	// connections answers at them.
	IPv4 netip.Addr `json:"ipv4"`
	IPv6 netip.Addr `json:"ipv6"`
	MAC  wire.MAC   `json:"mac"`
}

// Strictness is what a NIC refuses of programs.
type Strictness struct {
	// Lenient makes the NIC take commands of unmodified programs that a kernel refuses, where it can
	// execute them.
	Lenient bool `json:"lenient,omitempty"`
	// DistinctKeys makes the L_Key and the R_Key of a region different numbers.
	DistinctKeys bool `json:"distinctKeys,omitempty"`
}

// Host is one machine of the rack.
type Host struct {
	Name string `json:"name"`
	Role Role   `json:"role"`
	// Port is the name of the interface at the switch's end of the host's link (at most 15 bytes).
	Port string     `json:"port"`
	IPv4 netip.Addr `json:"ipv4"`
	IPv6 netip.Addr `json:"ipv6"`
	MAC  wire.MAC   `json:"mac"`
	// Memory is the size in bytes of the region that the host registers for other hosts; 0 means
	// none.
	Memory int64 `json:"memory"`
	// Spin is how long the host's NIC polls before it blocks.
	Spin time.Duration `json:"spin"`
	// CPU is the processor to which the host's daemon is bound, AutoCPU or NoCPU.
	CPU int `json:"cpu"`
	// GSO is true, which is the default, if the host's NIC sends runs of packets as super-frames,
	// as segmentation offload does. Then the switch also sends super-frames to the host. The switch
	// splits them for faults, switch programs and captures; tcpdump shows them whole. Without GSO
	// every packet from and to the host is a separate frame.
	GSO bool `json:"gso"`
	// Rate is that of the NIC's egress in bits per second; 0 means the default of NICQueue.
	Rate int64 `json:"rate,omitempty"`
	// PKeys is the partition table of the host's NIC. The highest bit of a P_Key is set for a full
	// member. nil means the default partition, 0xffff, alone.
	PKeys []uint16 `json:"pkeys,omitempty"`
	// TOS is the TOS byte or traffic class of the NIC's packets, unless the connection or address
	// handle sets one.
	TOS uint8 `json:"tos,omitempty"`
	// Window is the largest number of packets that a queue pair of the NIC has in flight; 0 means 128.
	Window int `json:"window,omitempty"`
	// Recovery is how queue pairs of RC recover from losses, if their peer can do the same: a kind of
	// package selective. "" means go-back-n.
	Recovery string `json:"recovery,omitempty"`
	// Congestion is the congestion control of the host's NIC; nil means none.
	Congestion *congestion.Params `json:"congestion,omitempty"`
	Strictness
	// Quota bounds what programs may use of the host's NIC.
	Quota Quota `json:"quota,omitzero"`
	// NIC tells the NICs of a host apart; zero for a host with one.
	NIC NIC `json:"nic,omitzero"`
	// Leaf is the switch to which the NIC is connected; "" if the rack has one switch.
	Leaf string `json:"leaf,omitempty"`
}

// Prefix4 returns the host's IPv4 address with the prefix length of the rack's subnet.
func (r *Rack) Prefix4(h *Host) netip.Prefix { return netip.PrefixFrom(h.IPv4, r.Subnet.Bits()) }

// Prefix6 returns the host's IPv6 address with the prefix length of the rack's subnet6.
func (r *Rack) Prefix6(h *Host) netip.Prefix { return netip.PrefixFrom(h.IPv6, r.Subnet6.Bits()) }

// Host returns the host called name, or the NIC, as cn0/rxe1, and its index in Hosts; false if there is
// none.
func (r *Rack) Host(name string) (*Host, int, bool) {
	i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.Name == name })
	if i < 0 {
		return nil, -1, false
	}
	return &r.Hosts[i], i, true
}

// HostNames returns the names of the hosts, without their further NICs, in the order of Hosts.
func (r *Rack) HostNames() []string {
	names := make([]string, 0, len(r.Hosts))
	for i := range r.Hosts {
		if !r.Hosts[i].IsNIC() {
			names = append(names, r.Hosts[i].Name)
		}
	}
	return names
}

// ByRole returns the hosts with a role, in the order of Hosts.
func (r *Rack) ByRole(role Role) []Host {
	var hosts []Host
	for _, h := range r.Hosts {
		if h.Role == role {
			hosts = append(hosts, h)
		}
	}
	return hosts
}

// NamesByRole returns the names of the hosts with a role, in the order of Hosts. It fails if there is
// none.
func (r *Rack) NamesByRole(role Role) (names []string, err error) {
	for _, h := range r.ByRole(role) {
		names = append(names, h.Name)
	}
	if names == nil {
		err = fmt.Errorf("rack %s has no %s host: give one `role: %s` in the rack file", r.Name, role, role)
	}
	return names, err
}

// ByAddr returns the host with the IPv4 or IPv6 address a, or false if there is none.
func (r *Rack) ByAddr(a netip.Addr) (*Host, bool) {
	a = a.Unmap()
	for i := range r.Hosts {
		if r.Hosts[i].IPv4 == a || r.Hosts[i].IPv6 == a {
			return &r.Hosts[i], true
		}
	}
	return nil, false
}

// NameOf returns the name of the host with the address addr, or addr if there is none.
func (r *Rack) NameOf(addr string) string {
	if a, err := netip.ParseAddr(addr); err == nil {
		if h, ok := r.ByAddr(a); ok {
			return h.Name
		}
	}
	return addr
}

// PeerName returns the name of the host with a GID in text form, which is an IP address or a link-local
// one, or the text if there is none.
func (r *Rack) PeerName(gid string) string {
	if a, err := netip.ParseAddr(gid); err == nil && a.Is6() {
		if mac, ok := verbs.GIDOf(a).LinkLocalMAC(); ok {
			if i := slices.IndexFunc(r.Hosts, func(h Host) bool { return h.MAC == mac }); i >= 0 {
				return r.Hosts[i].Name
			}
		}
	}
	return r.NameOf(gid)
}

// Neighbour returns the MAC address of the host or switch that has the IP address a, or false if
// neither has it.
func (r *Rack) Neighbour(a netip.Addr) (wire.MAC, bool) {
	if h, ok := r.ByAddr(a); ok {
		return h.MAC, true
	}
	a = a.Unmap()
	for _, s := range r.SwitchAddresses() {
		if a.IsValid() && (a == s.IPv4 || a == s.IPv6) {
			return s.MAC, true
		}
	}
	return wire.MAC{}, false
}

// Address returns the address of the host called name: its IPv4 address or, if it has none, its
// IPv6 address. If name is an address in text form, Address returns this address.
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

// Decode reads the JSON that Encode has written.
func Decode(b []byte) (*Rack, error) {
	var r Rack
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("decode rack: %w", err)
	}
	if err := CheckName(r.Name); err != nil {
		return nil, fmt.Errorf("decode rack: %w", err)
	}
	if r.Fabric != nil {
		if err := r.Fabric.sound(r.Hosts); err != nil {
			return nil, fmt.Errorf("decode rack: %w", err)
		}
	}
	if err := r.Machines.sound(r.Machine, r.Fabric); err != nil {
		return nil, fmt.Errorf("decode rack: %w", err)
	}
	for _, dev := range r.Devices {
		if _, err := parseIfname(dev.Ifname); err != nil || CheckHostName(dev.Name) != nil {
			return nil, fmt.Errorf("decode rack: no network device: %.40q, %.40q", dev.Name, dev.Ifname)
		}
	}
	return &r, nil
}
