package cm

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Entry describes a connection for listings.
type Entry struct {
	ID, RemoteID   mad.CommID // numbers of the connection on this side and on the peer's; RemoteID is 0 until it is known
	State          State
	Local, Peer    netip.Addr
	Service        mad.ServiceID
	QPN, RemoteQPN wire.QPN // queue pairs of this side and of the peer; 0 until they are known
	Datagrams      bool     // a resolution of a datagram service
	Retries        int      // how often a message that waits for an answer may still be sent again
}

// Entries returns all connections, also those in time-wait, in the order of their numbers.
func (m *Machine) Entries() []Entry {
	out := make([]Entry, 0, len(m.table.conns))
	for _, c := range m.table.conns {
		out = append(out, Entry{
			ID: c.id, RemoteID: c.remoteID, State: c.state, Local: c.local, Peer: c.peer, Service: c.service, QPN: c.qpn, RemoteQPN: c.remQPN, Datagrams: c.sidr,
			Retries: int(c.retries),
		})
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// Services returns the services for which an application listens, in ascending order.
func (m *Machine) Services() []mad.ServiceID {
	var out []mad.ServiceID
	for s := range m.listeners {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
