package ucma

import (
	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// join is an identifier's membership in a multicast group. Its event contains the group to which
// the queue pair must be attached, and the destination of datagrams. librdmacm attaches the queue
// pair when it reads the event; by the attachment the NIC learns the group and announces its
// membership to the network.
type join struct {
	handle   uint32
	of       *id
	reported uint32 // number of events that the program has read
}

// joinIP executes JoinIPMulticast: it joins a group. The event is queued at once.
func (m *Manager) joinIP(_ call, a joinIPMulticast) (Result, error) {
	return m.join(a.ID, a.UID, a.Addr)
}

// joinAny executes JoinMulticast, which newer libraries use instead of JoinIPMulticast. Its flag
// says whether the program only sends to the group; then the library does not attach the queue
// pair.
func (m *Manager) joinAny(_ call, a joinMulticast) (Result, error) {
	const lastFlag = 1 // RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER
	if a.Flags > lastFlag || int(a.Len) > len(a.Addr) {
		return Result{}, unix.EINVAL
	}
	return m.join(a.ID, a.UID, address(a.Addr[:]))
}

// join joins a group. Like the kernel, it requires an identifier of a datagram service that is
// bound to an address of the NIC, and a group of the same address family.
func (m *Manager) join(handle uint32, uid uint64, addr address) (Result, error) {
	x, err := m.nic.find(handle)
	if err != nil {
		return Result{}, err
	}
	group, ok := addr.parse()
	_, own := gidOf(m.cfg.Device.GIDs, x.src.Addr())
	if !ok || !own || !x.datagrams() || uid == 0 || !group.Addr().IsMulticast() || group.Addr().Is4() != x.src.Addr().Is4() {
		return Result{}, unix.EINVAL
	}
	if len(m.joins) >= maxHandle/m.cfg.Of {
		return Result{}, unix.ENOMEM
	}
	if err := mayTell(m.cfg.Quota); err != nil {
		return Result{}, err
	}
	if err := m.cfg.Quota.Take(Join); err != nil {
		return Result{}, err
	}
	j := &join{handle: unused(m.joins, &m.nextJoin, m.cfg.Of), of: x}
	m.joins[j.handle] = j
	to := datagramParam{QPN: uint32(verbs.MulticastQPN), QKey: x.qkey(), AH: m.cfg.ahOf(x, group.Addr())}
	m.cfg.queue(x.channel, pending{of: x, join: j, event: newEvent(uid, j.handle, multicastJoin, 0, to)})
	return Result{Data: encode(Handle{j.handle})}, nil
}

// leave ends a membership, and removes its event if the program has not read it.
func (m *Manager) leave(_ call, a destroyID) (Result, error) {
	j := m.joins[a.ID]
	if j == nil {
		return Result{}, unix.ENOENT
	}
	delete(m.joins, j.handle)
	m.cfg.Quota.Add(Join, -1)
	ch := j.of.channel
	withdrawn := ch.withdraw(m.cfg.Quota, func(p *pending) bool { return p.join == j })
	return Result{Data: encode(Reported{j.reported}), Withdrawn: uint32(withdrawn), Channel: ch.number}, nil
}

// leaveAll ends the memberships of an identifier, which is about to be destroyed. The caller
// removes the identifier's events.
func (m *Manager) leaveAll(x *id) {
	for h, j := range m.joins {
		if j.of == x {
			delete(m.joins, h)
			m.cfg.Quota.Add(Join, -1)
		}
	}
}
