package rackfile

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Guest is the role of a host that has joined the rack while it was up. It is in no rack file.
const Guest Role = "guest"

// NewGuest makes the description of a guest. Its IP address is number n, counted from 0, after the
// addresses of the hosts in the rack file. Its MAC address is derived from the same number. port is
// the name of the switch's end of its link.
func (r *Rack) NewGuest(name, port string, n int) (Host, error) {
	if err := CheckHostName(name); err != nil {
		return Host{}, err
	}
	k := switchIndex + 1 + len(r.Hosts) + n
	if size := hostBits(r.Subnet); size < 31 && k+1 >= 1<<size {
		return Host{}, fmt.Errorf("subnet %v has no address left for guest %s; use a shorter prefix in the rack file", r.Subnet, name)
	}
	if size := hostBits(r.Subnet6); size < 31 && k >= 1<<size {
		return Host{}, fmt.Errorf("subnet6 %v has no address left for guest %s; use a shorter prefix in the rack file", r.Subnet6, name)
	}
	return Host{
		Name: name, Role: Guest, Port: port, IPv4: nth(r.Subnet, k), IPv6: nth(r.Subnet6, k), MAC: macOf(r.Seed, k),
		Spin: defaultSpin, CPU: NoCPU,
	}, nil
}

// IsStation reports whether m can be the MAC address of a host: it is neither zero nor a group
// address.
func IsStation(m wire.MAC) bool { return m != (wire.MAC{}) && !m.IsMulticast() }
