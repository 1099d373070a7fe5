package ucma

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Identifier is an identifier in a listing. It is a copy.
type Identifier struct {
	Handle   uint32
	Space    uint32 // enum rdma_port_space
	QPType   uint8  // enum ibv_qp_type
	State    State
	Src, Dst netip.AddrPort // invalid as long as they are not known
	Conn     mad.CommID     // its connection on the NIC; 0 if there is none
}

// spaceBase begins the numbers of enum rdma_port_space, which name the port spaces of services.
const spaceBase = 0x100

// Identifiers returns the identifiers of a program on a NIC, in ascending order of their handles, without
// those that have moved to another NIC or listen for one there.
func (Step) Identifiers(m *Manager) (out []Identifier) {
	for _, x := range m.nic.ids {
		if x.away || x.mirror {
			continue
		}
		i := Identifier{Handle: x.handle, Space: spaceBase | uint32(x.space), QPType: x.qpType, State: x.state, Src: x.src, Dst: x.dst}
		if x.conn != nil {
			i.Conn = x.conn.ID
		}
		out = append(out, i)
	}
	slices.SortFunc(out, func(a, b Identifier) int { return cmp.Compare(a.Handle, b.Handle) })
	return out
}
