package rackfile

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// FurtherNIC is the role of the NICs of a host behind its first one. Rack.Hosts has an entry for each
// of them, behind all hosts.
const FurtherNIC Role = "nic"

const (
	// MaxNICs bounds the number of NICs of a host.
	MaxNICs = 8
	// MaxPorts bounds the number of NICs of all hosts of a rack, which is that of the switch's ports.
	MaxPorts = MaxHosts
	// maxNUMA bounds the number of a NUMA node.
	maxNUMA = 1023
	// NICMark separates the name of a host from that of its NIC's device: cn0/rxe1.
	NICMark = "/"
)

// NIC is what tells the NICs of a host apart.
type NIC struct {
	// Of is the name of the host of a further NIC; "" means that the entry is a host, and describes the
	// first NIC of it.
	Of string `json:"of,omitempty"`
	// Nth counts the NICs of a host from 0.
	Nth int `json:"nth,omitempty"`
	// Device is the name of the NIC for programs over libibverbs; "" means rxe and Nth.
	Device string `json:"device,omitempty"`
	// NUMA is the node near which programs find the NIC; nil means that none is told.
	NUMA *int `json:"numa,omitempty"`
	// MTU is that of the NIC's link in bytes; 0 means Rack.LinkMTU.
	MTU int `json:"mtu,omitempty"`
	// Acks is how many requests an ACK of the NIC answers at most: 1 means each its own; more means that
	// an ACK also waits for further requests; 0 means those that arrive together.
	Acks int `json:"acks,omitempty"`
	// Placed is true if the rack file names the leaf of the host; a rack that is up does not know it.
	Placed bool `json:"-"`
}

// IsNIC reports whether h is a further NIC of a host, and not a host.
func (h *Host) IsNIC() bool { return h.NIC.Of != "" }

// Machine returns the name of the host that has the NIC h: its own if h is a host.
func (h *Host) Machine() string { return cmp.Or(h.NIC.Of, h.Name) }

// DeviceName returns the name of the NIC for programs over libibverbs.
func (h *Host) DeviceName() string { return cmp.Or(h.NIC.Device, deviceName(h.NIC.Nth)) }

// Ifname returns the name of the NIC's interface inside its host.
func (h *Host) Ifname() string { return ifnameOf(h.NIC.Nth) }

// HostAlias returns the name of the NIC's addresses in /etc/hosts: that of the host, and for a further
// NIC that of its interface behind it.
func (h *Host) HostAlias() string {
	if h.IsNIC() {
		return h.NIC.Of + "-" + h.Ifname()
	}
	return h.Name
}

func deviceName(nth int) string { return "rxe" + strconv.Itoa(nth) }

// ifnameOf returns the name of the interface of a host's NIC; that of the first is HostIfname.
func ifnameOf(nth int) string { return strings.TrimSuffix(HostIfname, "0") + strconv.Itoa(nth) }

// NICName returns the name of a further NIC as commands take it.
func NICName(host, device string) string { return host + NICMark + device }

// MachineOf returns the host of a node or NIC by its name: cn0 for cn0 and for cn0/rxe1.
func MachineOf(name string) string {
	host, _, _ := strings.Cut(name, NICMark)
	return host
}

// MTUOf returns the MTU of the link of a NIC in bytes.
func (r *Rack) MTUOf(h *Host) int { return cmp.Or(h.NIC.MTU, r.LinkMTU) }

// NICs returns the NICs of the host called name, the host itself first; none if there is no such host.
func (r *Rack) NICs(name string) (list []*Host) {
	for i := range r.Hosts {
		if r.Hosts[i].Machine() == name {
			list = append(list, &r.Hosts[i])
		}
	}
	return list
}

// HasNICs reports whether a host of the rack has more than one NIC.
func (r *Rack) HasNICs() bool {
	return slices.ContainsFunc(r.Hosts, func(h Host) bool { return h.IsNIC() })
}

// NICNames returns the names of the hosts and of their further NICs, in the order of Hosts: each is the
// name of a link.
func (r *Rack) NICNames() []string {
	names := make([]string, len(r.Hosts))
	for i := range r.Hosts {
		names[i] = r.Hosts[i].Name
	}
	return names
}

// SubnetOf returns the subnets of the NICs number nth of all hosts. Those of the first NICs are the
// rack's, and each further NIC has the next subnets of the same size.
func (r *Rack) SubnetOf(nth int) (v4, v6 netip.Prefix) {
	v4, _ = railSubnet(r.Subnet, nth)
	v6, _ = railSubnet(r.Subnet6, nth)
	return v4, v6
}

// railSubnet returns the subnet that is nth behind p; false if there is none.
func railSubnet(p netip.Prefix, nth int) (netip.Prefix, bool) {
	a := p.Addr().AsSlice()
	if p.Bits() == 0 {
		return p, nth == 0
	}
	last := (p.Bits() - 1) / 8 // the byte with the last bit of the network
	carry := nth << (7 - (p.Bits()-1)%8)
	for i := last; i >= 0 && carry > 0; i-- {
		carry += int(a[i])
		a[i] = byte(carry)
		carry >>= 8
	}
	addr, _ := netip.AddrFromSlice(a) // a has the length of p's address
	return netip.PrefixFrom(addr, p.Bits()), carry == 0 && !addr.IsMulticast() && !addr.IsLoopback() && !addr.IsLinkLocalUnicast()
}

// devicePattern matches the names of devices that the rxe provider of libibverbs takes.
const devicePattern = `^rxe[a-z0-9_]{1,12}$`

// matches reports whether s matches a valid pattern. It compiles the pattern, which a variable would do at the
// start of each process of a rack.
func matches(pattern, s string) bool { return regexp.MustCompile(pattern).MatchString(s) }

func parseDevice(s string) (string, error) {
	if !matches(devicePattern, s) {
		return "", fmt.Errorf("%.40q is no name of a NIC: libibverbs takes rxe and 1 to 12 of a-z, 0-9 and \"_\" behind it", s)
	}
	return s, nil
}

// nicKeys lists the keys that each NIC of a host may have. On the host they are for all of its NICs.
func (d *decoder) nicKeys(h *Host) []entry {
	return []entry{
		set(d, "spin", &h.Spin, parseSpin),
		set(d, "gso", &h.GSO, parseOnOff),
		set(d, "rate", &h.Rate, parsePortRate),
		{key: "pkeys", set: func(n ast.Node) { h.PKeys = d.pkeys(n) }},
		set(d, "tos", &h.TOS, parseTOS),
		set(d, "window", &h.Window, number(1, maxWindow)),
		set(d, "acks", &h.NIC.Acks, number(1, maxAcks)),
		set(d, "recovery", &h.Recovery, parseRecovery),
		{key: "congestion", set: func(n ast.Node) { h.Congestion = d.congestion(n) }},
		set(d, "lenient", &h.Lenient, parseBool),
		set(d, "distinctKeys", &h.DistinctKeys, parseBool),
		{key: "quota", set: func(n ast.Node) { h.Quota = d.quota(n) }},
	}
}

// nics reads the key nics of a host: how many NICs it has, or a list with the keys of each. h describes
// the host without it. The first NIC is that of h, and the others are appended to e.further.
func (d *decoder) nics(n ast.Node, e *hostEntry) {
	list, ok := n.(*ast.SequenceNode)
	if !ok {
		count, _ := text(d, n, "nics", number(1, MaxNICs))
		for nth := 1; nth < count; nth++ {
			e.further = append(e.further, e.Host.further(nth))
		}
		return
	}
	if len(list.Values) == 0 || len(list.Values) > MaxNICs {
		d.errorf(n, "nics lists %d NICs; a host has 1 to %d", len(list.Values), MaxNICs)
		return
	}
	base := e.Host
	for nth, v := range list.Values {
		h := base.further(nth)
		d.mapping(v, "a NIC", append([]entry{
			set(d, "name", &h.NIC.Device, parseDevice),
			set(d, "mtu", &h.NIC.MTU, number(minMTU, maxMTU)),
			pointer(d, "numa", &h.NIC.NUMA, number(0, maxNUMA)),
		}, d.nicKeys(&h)...))
		for i, o := range append([]Host{e.Host}, e.further...)[:nth] {
			if o.DeviceName() == h.DeviceName() {
				d.errorf(v, "NIC %d has the name %s of NIC %d; names must differ", nth, h.DeviceName(), i)
			}
		}
		if nth == 0 {
			h.Role, h.Memory = base.Role, base.Memory
			e.Host = h
		} else {
			e.further = append(e.further, h)
		}
	}
}

// further returns the NIC number nth of a host, which has the properties of the host's NIC. Its memory
// is that of the first NIC alone.
func (h Host) further(nth int) Host {
	h.Role, h.Memory, h.NIC = FurtherNIC, 0, NIC{Nth: nth, Acks: h.NIC.Acks}
	return h
}

// furtherNICs appends the NICs of the hosts behind their first ones to r.Hosts, with their addresses.
// further has them by the index of their host.
func (d *decoder) furtherNICs(f *file, r *Rack) {
	hosts := len(r.Hosts)
	for i := range hosts {
		host := &r.Hosts[i]
		for _, h := range f.further[host.Name] {
			at := cmp.Or(f.nicsAt[host.Name], f.node)
			if len(r.Hosts) == MaxPorts {
				d.errorf(at, "more than %d NICs; give the hosts fewer, or split the rack", MaxPorts)
				return
			}
			h.NIC.Of = host.Name
			h.Name = NICName(host.Name, h.DeviceName())
			h.Port = fmt.Sprintf("%s.%d", host.Name, h.NIC.Nth) // names of hosts have no dot
			if len(h.Port) > maxHostName {
				h.Port = fmt.Sprintf("%d.nic", len(r.Hosts)) // names of hosts begin with a letter
			}
			if _, _, ok := r.Host(h.HostAlias()); ok {
				d.errorf(at, "host name %s is taken: /etc/hosts has it for the NIC %s; rename the host", h.HostAlias(), h.Name)
				return
			}
			if h.Congestion == nil {
				h.Congestion = r.Congestion
			}
			if why := h.unpaced(); why != "" {
				d.errorf(at, "%s", why)
				return
			}
			r.Hosts = append(r.Hosts, h)
		}
	}
	if !r.HasNICs() {
		return
	}
	d.nicsFit(f, r)
}

// nicsFit refuses what hosts with several NICs cannot have.
func (d *decoder) nicsFit(f *file, r *Rack) {
	at := f.node
	for _, n := range f.nicsAt {
		if at == f.node || position(n).Line < position(at).Line {
			at = n
		}
	}
	if r.OneRMA != nil {
		d.errorf(at, "nics: a host has one 1RMA NIC; leave out onerma, or write nics: 1")
	}
	if r.Connect == ConnectTCP {
		d.errorf(at, "nics: connect: tcp exchanges parameters at the addresses of the first NICs alone; take connect: cm, or write nics: 1")
	}
}

// railAddresses gives the further NICs their addresses: in the subnets of their number, with the number
// of their host.
func (d *decoder) railAddresses(f *file, r *Rack, hosts int) {
	for i := hosts; i < len(r.Hosts); i++ {
		h := &r.Hosts[i]
		v4, ok4 := railSubnet(r.Subnet, h.NIC.Nth)
		v6, ok6 := railSubnet(r.Subnet6, h.NIC.Nth)
		if !ok4 || !ok6 {
			d.errorf(cmp.Or(f.subnetsAt[0], f.subnetsAt[1], f.node), "no subnets of this size follow %v and %v for NIC %d of the hosts; take lower ones", r.Subnet, r.Subnet6, h.NIC.Nth)
			return
		}
		_, of, _ := r.Host(h.NIC.Of)
		n := switchIndex + 1 + of
		h.IPv4, h.IPv6, h.MAC = nth(v4, n), nth(v6, n), macOf(r.Seed, switchIndex+1+i)
	}
}
