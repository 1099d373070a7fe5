package rackfile

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxNumberBits bounds the numbers of addresses: a MAC address has 16 bits for them (macOf).
const maxNumberBits = 16

// numbering says which numbers the addresses of a rack have in its subnets.
type numbering struct {
	subnet, subnet6 netip.Prefix
	switches        int
}

// of is the number of the address of switch i of the rack (SwitchNames). The first has the first address. The
// others have the last ones, so that the hosts have the same addresses with one switch and with several.
func (n numbering) of(i int) int {
	if i == 0 {
		return switchIndex
	}
	return 1<<min(hostBits(n.subnet), hostBits(n.subnet6), maxNumberBits) - 1 - i
}

// last is the highest number that a host's address can have in both subnets. The numbers above it are those of
// switches, and the broadcast address of IPv4.
func (n numbering) last() int {
	if n.switches == 1 {
		return min(1<<min(hostBits(n.subnet), 31)-2, 1<<min(hostBits(n.subnet6), 31)-1)
	}
	return n.of(n.switches-1) - 1
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
	numbers := numbering{r.Subnet, r.Subnet6, len(names)}
	for i, name := range names {
		n, station := numbers.of(i), switchIndex
		if i > 0 {
			station = 1<<maxNumberBits - 1 - i // above those of all NICs, which may be more than a small subnet has addresses
		}
		list = append(list, SwitchAddress{name, nth(r.Subnet, n), nth(r.Subnet6, n), macOf(r.Seed, station)})
	}
	return list
}
