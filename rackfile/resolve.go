package rackfile

import (
	"cmp"
	"fmt"
	"net/netip"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// switchIndex is the number of the switch's address in the subnets. The hosts' numbers follow it.
const switchIndex = 1

// resolve makes the rack with the names and addresses of its hosts. It does not check parts of the
// file that depend on a part with a mistake, because that would only repeat the mistake.
func (d *decoder) resolve(f *file) *Rack {
	rack := f.Rack
	r := &rack
	hosted := d.sound(func() {
		d.hosts(f, r)
		d.furtherNICs(f, r)
		d.machines(f, r)
		d.leaves(f, r)
	}) && f.hosted
	hosted = hosted && d.sound(func() { deviceEntries(f.devices).connect(d, r) })
	if hosted && f.nets && d.sound(func() { d.addresses(f, r) }) && f.switched {
		d.rules(f, r)
	}
	d.slowMotion(f, r)
	if hosted && f.nets {
		d.queues(f, r)
	}
	for i := range f.faults {
		e := &f.faults[i]
		if hosted && e.sound && r.SwitchOf(e.rule.Link) == "" {
			d.errorf(e.linkAt, "link %.60q is no host of this rack; %shosts: %v", e.rule.Link, nearest.Meant(e.rule.Link, r.LinkNames()), r.LinkNames())
		}
		r.Faults = append(r.Faults, e.rule)
	}
	return r
}

func (d *decoder) hosts(f *file, r *Rack) {
	seen := make(map[string]ast.Node)
	for i := range f.hosts {
		e := &f.hosts[i]
		if e.PKeys != nil && r.Connect == ConnectTCP {
			d.errorf(e.nameAt, "pkeys need the connection manager, which agrees on a partition; remove pkeys or connect: tcp")
		}
		for _, name := range e.names {
			if err := CheckHostName(name); err != nil {
				d.errorf(e.nameAt, "%v", err)
				continue
			}
			if at, ok := seen[name]; ok {
				d.errorf(e.nameAt, "host name %q is taken already in line %d; names must differ", name, position(at).Line)
				continue
			}
			seen[name] = e.nameAt
			if len(r.Hosts) == d.size.hosts {
				d.errorf(e.nameAt, "%s", d.size.tooMany())
				return
			}
			h := e.host(name, r.Congestion)
			if why := h.unpaced(); why != "" {
				d.errorf(e.nameAt, "%s", why)
				return
			}
			r.Hosts = append(r.Hosts, h)
			if e.nicsAt != nil {
				f.further[name], f.nicsAt[name] = e.further, e.nicsAt
			}
		}
	}
}

// host makes the host `name` of the entry e, which may stand for several hosts. control is the
// congestion control of hosts that have none of their own. The host has no addresses yet.
func (e *hostEntry) host(name string, control *congestion.Params) Host {
	h := e.Host
	h.Name, h.Port = name, name
	if h.Congestion == nil {
		h.Congestion = control
	}
	if h.Memory < 0 {
		h.Memory = map[Role]int64{Memory: defaultMemory, Metadata: defaultMetadataMemory}[h.Role]
	}
	return h
}

func (d *decoder) addresses(f *file, r *Rack) {
	hosts, switches := len(r.HostNames()), len(r.SwitchNames())
	last := switches + hosts
	what := "the switch"
	if switches > 1 {
		what = fmt.Sprintf("%d switches", switches)
	}
	// In IPv4, the last address of the subnet is for broadcast, so the subnet must have one address
	// more.
	if size := hostBits(r.Subnet); size < 31 && last+1 >= 1<<size {
		d.errorf(cmp.Or(f.subnetsAt[0], f.node), "subnet %v is too small for %s and %d hosts; use a shorter prefix", r.Subnet, what, hosts)
		return
	}
	if size := hostBits(r.Subnet6); size < 31 && (last >= 1<<size || hosts >= numbering{r.Subnet, r.Subnet6, len(r.SwitchNames())}.last()) {
		d.errorf(cmp.Or(f.subnetsAt[1], f.node), "subnet6 %v is too small for %s and %d hosts; use a shorter prefix", r.Subnet6, what, hosts)
		return
	}
	r.Switch.IPv4, r.Switch.IPv6 = nth(r.Subnet, switchIndex), nth(r.Subnet6, switchIndex)
	r.Switch.MAC = macOf(r.Seed, switchIndex)
	for i := range hosts {
		n := switchIndex + 1 + i
		h := &r.Hosts[i]
		h.IPv4, h.IPv6, h.MAC = nth(r.Subnet, n), nth(r.Subnet6, n), macOf(r.Seed, n)
	}
	d.railAddresses(f, r, hosts)
}

func hostBits(p netip.Prefix) int { return p.Addr().BitLen() - p.Bits() }

// nth returns the address that is n above the first one of the subnet p.
func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr().AsSlice()
	for i := len(a) - 1; n > 0 && i >= 0; i-- {
		n += int(a[i])
		a[i] = byte(n)
		n >>= 8
	}
	addr, _ := netip.AddrFromSlice(a) // a has the length of p's address
	return addr
}

// macOf returns the locally administered MAC address of number n. Two of its bytes are made from
// the seed, so that racks with different seeds differ.
func macOf(seed uint64, n int) wire.MAC {
	h := seed * 0x9e3779b97f4a7c15 // the multiplication spreads small seeds over all bits
	return wire.MAC{0x02, 0x72, byte(h >> 56), byte(h >> 48), byte(n >> 8), byte(n)}
}
