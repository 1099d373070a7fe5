package rackplan

import (
	"cmp"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/units"
)

// Again says what to do about a key of the whole rack called name, so that it works as it is written: without the flag,
// down means the rack called default.
func Again(name string) string {
	if name == rackfile.DefaultName {
		return "run `rdmalab down` and `rdmalab up -f` the file"
	}
	return fmt.Sprintf("run `rdmalab down --rack %s` and `rdmalab up -f` the file", name)
}

// remake says what to do about a key of a host.
const remake = "add --replace, which makes the host again and ends its connections"

// wholes lists the differences of keys that concern the whole rack, none of which can change while it
// is up. The switch's program and rules are not among them.
func wholes(now, want *rackfile.Rack) (list []refusal) {
	key := func(name string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			list = append(list, refusal{fmt.Sprintf("%s (%s -> %s)", name, shown(a), shown(b)), Again(now.Name)})
		}
	}
	key("name", now.Name, want.Name)
	key("seed", now.Seed, want.Seed)
	key("mtu", now.LinkMTU, want.LinkMTU)
	key("connect", cmp.Or(now.Connect, rackfile.ConnectCM), cmp.Or(want.Connect, rackfile.ConnectCM))
	key("cable", cmp.Or(now.Cable, rackfile.CableVeth), cmp.Or(want.Cable, rackfile.CableVeth))
	key("daemons", cmp.Or(now.Daemons, rackfile.DaemonsSeparate), cmp.Or(want.Daemons, rackfile.DaemonsSeparate))
	key("fabric", fabric(now), fabric(want))
	key("devices", now.Devices, want.Devices)
	key("slow", now.Slow, want.Slow)
	key("cost", now.Cost, want.Cost)
	key("priority", cmp.Or(now.Priority, rackfile.PriorityNormal), cmp.Or(want.Priority, rackfile.PriorityNormal))
	key("group", now.Group, want.Group)
	key("onerma", now.OneRMA, want.OneRMA)
	key("subnet", now.Subnet, want.Subnet)
	key("subnet6", now.Subnet6, want.Subnet6)
	key("switch queue", now.Switch.Queue, want.Switch.Queue)
	key("switch spin", now.Switch.Spin, want.Switch.Spin)
	key("switch ports, dscp, queues, watchdog", now.Switch.Queues, want.Switch.Queues)
	key("switch cpu", cpu(now.Switch.CPU), cpu(want.Switch.CPU))
	return list
}

// shown is a value of a key in one line.
func shown(v any) string {
	switch v := v.(type) {
	case *rackfile.OneRMA:
		if v == nil {
			return "none"
		}
		return fmt.Sprintf("%+v", *v)
	case *portqueue.Config:
		if v == nil {
			return "none"
		}
		return fmt.Sprintf("rate %s, buffer %s, and their priorities", fault.FormatRate(v.Rate), units.FormatSize(v.Buffer))
	case string:
		return cmp.Or(v, "none")
	}
	return fmt.Sprint(v)
}

// fabric is the fabric of a rack in one line.
func fabric(r *rackfile.Rack) string {
	if r.Fabric == nil {
		return "none"
	}
	text := fmt.Sprintf("%d leaves, %d spines", r.Fabric.Leaves, r.Fabric.Spines)
	if r.Fabric.Strict {
		text += ", strict"
	}
	if c := r.Fabric.CarrierName(); c != rackfile.CarrierUDP || r.Fabric.OnLoopback() {
		text += ", by " + c
	}
	for i, name := range r.SwitchNames() {
		if r.Fabric.Places != nil {
			text += fmt.Sprintf(", %s on %s", name, r.Fabric.Places[i])
		}
	}
	for _, m := range r.Machines {
		text += fmt.Sprintf("; %s at %s, %s, port %d", m.Name, m.SSH, m.Address, m.Port)
	}
	return text
}

// cpu is a processor as a rack file names it.
func cpu(n int) string {
	switch n {
	case rackfile.AutoCPU:
		return "auto"
	case rackfile.NoCPU:
		return "none"
	}
	return fmt.Sprint(n)
}

// merge returns the description that the rack gets: that of the file, with the addresses of the hosts
// that stay, which come first and in their order. A new host gets the addresses of its place in the
// file or, if a host or guest has them, the first free ones. The error is an ErrRefused.
func merge(now Running, want *rackfile.Rack) (*rackfile.Rack, error) {
	out := *want
	out.Hosts, out.Faults, out.Switch.Rules = nil, slices.Clone(want.Faults), nil
	taken := map[netip.Addr]bool{}
	macs := map[wire.MAC]bool{}
	for i := range now.Guests {
		taken[now.Guests[i].IPv4], taken[now.Guests[i].IPv6], macs[now.Guests[i].MAC] = true, true, true
		if _, _, ok := want.Host(now.Guests[i].Name); ok {
			return nil, refuse([]refusal{{"host " + now.Guests[i].Name, "a container that has joined the rack has this name: choose another one"}})
		}
	}
	if refused := nics(now.Rack, want); len(refused) > 0 {
		return nil, refuse(refused)
	}
	for _, h := range now.Rack.Hosts {
		w, _, ok := want.Host(h.Name)
		if !ok {
			continue
		}
		next := *w
		next.IPv4, next.IPv6, next.MAC, next.Port = h.IPv4, h.IPv6, h.MAC, h.Port
		if !next.NIC.Placed {
			next.Leaf = h.Leaf
		}
		out.Hosts = append(out.Hosts, next)
		taken[h.IPv4], taken[h.IPv6], macs[h.MAC] = true, true, true
	}
	for _, h := range want.Hosts {
		if _, _, ok := out.Host(h.Name); ok {
			continue
		}
		for n := 0; taken[h.IPv4] || taken[h.IPv6] || macs[h.MAC]; n++ {
			var err error
			if h.IPv4, h.IPv6, h.MAC, err = want.Numbered(n); err != nil {
				return nil, refuse([]refusal{{"host " + h.Name, err.Error()}})
			}
		}
		taken[h.IPv4], taken[h.IPv6], macs[h.MAC] = true, true, true
		out.Hosts = append(out.Hosts, h)
	}
	// Rules name their servers by addresses, which are now others than at the same place of the file.
	for _, r := range want.Switch.Rules {
		if err := r.Resolve(func(name string) []netip.Addr {
			if a, err := netip.ParseAddr(name); err == nil {
				if h, ok := want.ByAddr(a); ok {
					name = h.Name
				}
			}
			return out.Addresses(name)
		}); err != nil {
			return nil, fmt.Errorf("rule %s: %w", r.ID, err)
		}
		out.Switch.Rules = append(out.Switch.Rules, r)
	}
	return &out, nil
}

// nics refuses a host with several NICs that comes or goes, and another number or other names of NICs:
// an apply makes and removes hosts with one NIC.
func nics(now, want *rackfile.Rack) (refused []refusal) {
	seen := map[string]bool{}
	for _, pair := range [][2]*rackfile.Rack{{now, want}, {want, now}} {
		for _, name := range pair[0].HostNames() {
			a, b := pair[0].NICs(name), pair[1].NICs(name)
			if seen[name] || len(a) == 1 && len(b) <= 1 || slices.EqualFunc(a, b, sameNIC) {
				continue
			}
			seen[name] = true
			refused = append(refused, refusal{fmt.Sprintf("host %s with several NICs, or their number or names,", name), Again(now.Name)})
		}
	}
	return refused
}

func sameNIC(a, b *rackfile.Host) bool { return a.Name == b.Name && a.DeviceName() == b.DeviceName() }

// hosts plans which hosts are removed and made. It returns the differences of hosts that stay and
// cannot change.
func (p *Plan) hosts(now Running, target *rackfile.Rack, replace bool) (refused []refusal) {
	for _, name := range now.Unfinished {
		if _, _, ok := now.Rack.Host(name); !ok {
			p.HostsOut = append(p.HostsOut, name)
			p.add(Remove, "host "+name, "an earlier apply has not finished removing it")
		}
	}
	for i := range now.Rack.Hosts {
		h := &now.Rack.Hosts[i]
		w, _, ok := target.Host(h.Name)
		unfinished := contains(now.Unfinished, h.Name)
		switch {
		case !ok:
			p.HostsOut = append(p.HostsOut, h.Name)
			p.add(Remove, "host "+h.Name, "%s", describe(h))
		case unfinished:
			p.HostsOut, p.HostsIn = append(p.HostsOut, h.Name), append(p.HostsIn, h.Name)
			p.add(Add, "host "+h.Name, "%s (an earlier apply has not finished it)", describe(w))
		default:
			fixed := differences(h, w)
			if len(fixed) == 0 {
				continue
			}
			if len(now.Rack.NICs(h.Machine())) > 1 {
				for _, d := range fixed {
					refused = append(refused, refusal{h.Name + ": " + d, Again(now.Rack.Name)})
				}
				continue
			}
			if !replace {
				for _, d := range fixed {
					refused = append(refused, refusal{h.Name + ": " + d, remake})
				}
				continue
			}
			p.HostsOut, p.HostsIn = append(p.HostsOut, h.Name), append(p.HostsIn, h.Name)
			for _, d := range fixed {
				p.add(Modify, "host "+h.Name, "%s; the host is made again", d)
			}
		}
	}
	for i := range target.Hosts {
		h := &target.Hosts[i]
		if _, _, ok := now.Rack.Host(h.Name); ok {
			continue
		}
		if contains(now.Unfinished, h.Name) && !contains(p.HostsOut, h.Name) {
			p.HostsOut = append(p.HostsOut, h.Name)
		}
		p.HostsIn = append(p.HostsIn, h.Name)
		p.add(Add, "host "+h.Name, "%s", describe(h))
	}
	return refused
}

// describe is a host in one line: role, addresses, memory.
func describe(h *rackfile.Host) string {
	text := fmt.Sprintf("%s %v %v", h.Role, h.IPv4, h.IPv6)
	if h.Memory > 0 {
		text += " memory " + units.FormatSize(h.Memory)
	}
	return text
}

// differences lists the keys of a host that differ and cannot change while it runs: all except its
// quota. Of the quota, reserve is among them: it decides the sizes of the NIC's tables.
func differences(a, b *rackfile.Host) (list []string) {
	key := func(name string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			list = append(list, fmt.Sprintf("%s %v -> %v", name, a, b))
		}
	}
	onOff := map[bool]string{true: "on", false: "off"}
	key("role", a.Role, b.Role)
	key("memory", units.FormatSize(a.Memory), units.FormatSize(b.Memory))
	key("spin", a.Spin, b.Spin)
	key("cpu", cpu(a.CPU), cpu(b.CPU))
	key("gso", onOff[a.GSO], onOff[b.GSO])
	key("rate", a.Rate, b.Rate)
	key("pkeys", fmt.Sprintf("%#x", a.PKeys), fmt.Sprintf("%#x", b.PKeys))
	key("tos", a.TOS, b.TOS)
	key("window", a.Window, b.Window)
	key("acks", a.NIC.Acks, b.NIC.Acks)
	key("recovery", a.Recovery, b.Recovery)
	key("congestion", a.Congestion.String(), b.Congestion.String())
	key("lenient", a.Lenient, b.Lenient)
	key("distinctKeys", a.DistinctKeys, b.DistinctKeys)
	key("nic name", a.DeviceName(), b.DeviceName())
	key("leaf", cmp.Or(a.Leaf, "none"), cmp.Or(b.Leaf, "none"))
	key("nic mtu", a.NIC.MTU, b.NIC.MTU)
	key("nic numa", numa(a), numa(b))
	for _, d := range quotaDifferences(rackfile.Quota{Reserve: a.Quota.Reserve}, rackfile.Quota{Reserve: b.Quota.Reserve}) {
		list = append(list, "quota "+d)
	}
	return list
}

// numa is the NUMA node of a NIC as a rack file names it.
func numa(h *rackfile.Host) string {
	if h.NIC.NUMA == nil {
		return "none"
	}
	return fmt.Sprint(*h.NIC.NUMA)
}

// quotas plans new quotas of hosts that stay.
func (p *Plan) quotas(now Running, target *rackfile.Rack) {
	for i := range target.Hosts {
		w := &target.Hosts[i]
		h, _, ok := now.Rack.Host(w.Name)
		if !ok || h.Quota == w.Quota || contains(p.HostsIn, w.Name) {
			continue
		}
		p.Quotas = append(p.Quotas, w.Name)
		for _, d := range quotaDifferences(h.Quota, w.Quota) {
			p.add(Modify, "host "+w.Name, "quota %s", d)
		}
	}
}

// quotaDifferences lists the keys of two quotas that differ, by the names in rack files.
func quotaDifferences(a, b rackfile.Quota) (list []string) {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	text := func(v reflect.Value) string {
		switch {
		case v.IsZero():
			return "default"
		case v.Kind() == reflect.Int64: // bytes
			return units.FormatSize(v.Int())
		}
		return fmt.Sprint(v.Int())
	}
	for i := range va.NumField() {
		if x, y := text(va.Field(i)), text(vb.Field(i)); x != y {
			name, _, _ := cutTag(va.Type().Field(i).Tag.Get("json"))
			list = append(list, fmt.Sprintf("%s %s -> %s", name, x, y))
		}
	}
	return list
}
