package rackfile

import (
	"fmt"
	"net/netip"

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
	v4, v6, mac, err := r.Numbered(len(r.Hosts) + n)
	if err != nil {
		return Host{}, fmt.Errorf("%s: %w", name, err)
	}
	h := Host{
		Name: name, Role: Guest, Port: port, IPv4: v4, IPv6: v6, MAC: mac,
		Spin: defaultSpin, CPU: NoCPU,
	}
	if r.Slow > 0 {
		h.Spin = 0
	}
	return h, nil
}

// IsStation reports whether m can be the MAC address of a host: it is neither zero nor a group
// address.
func IsStation(m wire.MAC) bool { return m != (wire.MAC{}) && !m.IsMulticast() }

// Numbered returns the addresses of host number n, counted from 0, of the rack's subnets. The error
// says that the subnets have no such host.
func (r *Rack) Numbered(n int) (v4, v6 netip.Addr, mac wire.MAC, err error) {
	k := switchIndex + 1 + n
	if k > (numbering{r.Subnet, r.Subnet6, len(r.SwitchNames())}).last() {
		name, narrow := "subnet", r.Subnet
		if hostBits(r.Subnet6) < hostBits(r.Subnet) {
			name, narrow = "subnet6", r.Subnet6
		}
		return v4, v6, mac, fmt.Errorf("%s %v has no address left; use a shorter prefix in the rack file", name, narrow)
	}
	return nth(r.Subnet, k), nth(r.Subnet6, k), macOf(r.Seed, k), nil
}
