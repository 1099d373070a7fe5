package ucma

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Ports has the ports that the identifiers (rdma_cm_id) of all programs on a NIC use.
type Ports struct{ used map[mad.ServiceID][]*id }

func NewPorts() *Ports { return &Ports{used: make(map[mad.ServiceID][]*id)} }

// The range in which take searches for a free port. It is the default range of Linux.
const (
	firstPort = 32768
	numPorts  = 28232
)

// take gives an identifier an address and a port. Port 0 means a port that no identifier uses;
// start, a random number, says where in the range of such ports the search begins.
func (p *Ports) take(x *id, at netip.AddrPort, start uint32) error {
	if !x.options.familyChosen {
		x.options.only = at.Addr().Is4()
	}
	for i := uint32(0); at.Port() == 0; i++ {
		if i == numPorts {
			return unix.EADDRNOTAVAIL
		}
		if n := uint16(firstPort + (start%numPorts+i)%numPorts); p.used[x.service(n)] == nil {
			at = netip.AddrPortFrom(at.Addr(), n)
		}
	}
	if err := p.check(x, at, x.options.reuse); err != nil {
		return err
	}
	x.src = at
	s := x.service(at.Port())
	p.used[s] = append(p.used[s], x)
	return nil
}

// check returns an error if an identifier cannot have an address and port because of other
// identifiers with this port. It follows the rules of the kernel (cma_check_port). reuse is true if
// the identifier may have the same address as other identifiers whose option reuse is set.
func (p *Ports) check(x *id, at netip.AddrPort, reuse bool) error {
	a := at.Addr()
	for _, o := range p.used[x.service(at.Port())] {
		b := o.src.Addr()
		switch {
		case o == x || reuse && o.options.reuse || x.options.only && o.options.only && a.Is4() != b.Is4():
		case anyAddr(a) || anyAddr(b):
			return unix.EADDRNOTAVAIL
		case a == b:
			return unix.EADDRINUSE
		}
	}
	return nil
}

// release frees the port of an identifier, if it has one. Identifiers of peers' requests have no
// port of their own.
func (p *Ports) release(x *id) {
	s := x.service(x.src.Port())
	left := slices.DeleteFunc(p.used[s], func(o *id) bool { return o == x })
	if p.used[s] = left; len(left) == 0 {
		delete(p.used, s)
	}
}
