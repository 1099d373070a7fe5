package rackfile

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxNumberBits bounds the numbers of addresses: a MAC address has 16 bits for them (macOf).
const maxNumberBits = 16

// switchNumber is the number of the address of switch i of the rack (SwitchNames) in its subnets. The
// first has the first address. The others have the last ones, so that the hosts have the same addresses
// with one switch and with several.
func (r *Rack) switchNumber(i int) int {
	if i == 0 {
		return switchIndex
	}
	return 1<<r.numberBits() - 1 - i
}

// numberBits is how many bits of both subnets number their addresses.
func (r *Rack) numberBits() int {
	return min(hostBits(r.Subnet), hostBits(r.Subnet6), maxNumberBits)
}

// lastNumber is the highest number that a host's address can have in both subnets. The numbers above it
// are those of switches, and the broadcast address of IPv4.
func (r *Rack) lastNumber() int {
	if r.Fabric == nil {
		return min(1<<min(hostBits(r.Subnet), 31)-2, 1<<min(hostBits(r.Subnet6), 31)-1)
	}
	return r.switchNumber(len(r.SwitchNames())-1) - 1
}

// SwitchAddress is the addresses of one switch of the rack.
type SwitchAddress struct {
	Name       string
	IPv4, IPv6 netip.Addr
	MAC        wire.MAC
}

// SwitchAddresses returns the addresses of all switches of the rack, in the order of SwitchNames.
func (r *Rack) SwitchAddresses() (list []SwitchAddress) {
	names := r.SwitchNames()
	if len(names) == 1 {
		return []SwitchAddress{{names[0], r.Switch.IPv4, r.Switch.IPv6, r.Switch.MAC}}
	}
	for i, name := range names {
		n, station := r.switchNumber(i), switchIndex
		if i > 0 {
			station = 1<<maxNumberBits - 1 - i // above those of all NICs, which may be more than a small subnet has addresses
		}
		list = append(list, SwitchAddress{name, nth(r.Subnet, n), nth(r.Subnet6, n), macOf(r.Seed, station)})
	}
	return list
}

// switchBy returns the switch that has an IP address; false if none has it.
func (r *Rack) switchBy(a netip.Addr) (SwitchAddress, bool) {
	list := r.SwitchAddresses()
	a = a.Unmap()
	i := slices.IndexFunc(list, func(s SwitchAddress) bool { return a.IsValid() && (a == s.IPv4 || a == s.IPv6) })
	if i < 0 {
		return SwitchAddress{}, false
	}
	return list[i], true
}
