package engine

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Multicast groups. The NIC receives the datagrams to the groups to which its queue pairs are
// attached, and reports these groups by IGMP or MLD, as the kernel of Linux does for programs on
// its sockets and for rdma_cm on rxe: twice when the first queue pair is attached, again for every
// query, and once when the last one is detached.

const (
	// robustness is how many reports tell of a new group: one may be lost (RFC 3376, 8.1).
	robustness = 2
	// repeatAfter is the time between them (RFC 3376, 8.11; RFC 3810, 9.11).
	repeatAfter = time.Second
	// maxReports bounds the reports of one Tick; what is left is due at once.
	maxReports = 64
	// leastResponse is the least time in which a query is answered, and between the general queries
	// that are heard, whatever they grant: a flood of them costs next to nothing.
	leastResponse = 100 * time.Millisecond
)

// groups are the multicast groups to which queue pairs are attached.
type groups struct {
	byGID    map[verbs.GID]*group
	order    []*group // in the order of their first attachment
	attached int      // all queue pairs together
	due      clock.Time
	next     int // place in order at which tick goes on
	// The latest query was one of IGMP 2 or 1, of MLD 1: reports have the format of IGMP 2, of MLD 1.
	oldIGMP, oldMLD bool
	// Until then the latest general query is answered, and others are not heard.
	asked4, asked6 clock.Time
	message        wire.Membership // scratch memory
	port           *port
	counters       *metrics.NIC
}

// newGroups returns groups of which none has a queue pair.
func newGroups(p *port, c *metrics.NIC) groups {
	return groups{byGID: make(map[verbs.GID]*group), due: clock.Never, port: p, counters: c}
}

// group is a multicast group with at least one queue pair.
type group struct {
	addr netip.Addr
	mac  wire.MAC
	qps  []*QP // in the order in which they were attached
	// due is when its next report must be sent; left counts those that tell of a new group. An
	// answer to a query has none left.
	due  clock.Time
	left int
}

// AttachMulticast makes the queue pair receive the datagrams to a group. The first one of a group
// makes the NIC report it.
func (q *QP) AttachMulticast(now clock.Time, gid verbs.GID, out *packetio.Batch) error {
	const op = "attach multicast"
	if err := q.checkGroup(op, gid); err != nil {
		return err
	}
	e := q.e
	t, l := &e.groups, &e.cfg.Limits
	g := t.byGID[gid]
	switch {
	case g != nil && slices.Contains(g.qps, q):
		return nil // one copy of each datagram, however often it is attached (IBTA 10.5.1/once)
	case t.attached >= l.Attachments:
		return opError(op, verbs.ErrLimit, "%d attachments exist", t.attached)
	case g != nil && len(g.qps) >= l.GroupQPs:
		return opError(op, verbs.ErrLimit, "%d queue pairs are attached to %v", len(g.qps), gid)
	}
	if g == nil {
		g = &group{addr: gid.Addr(), due: clock.Never}
		g.mac = wire.GroupMAC(g.addr)
		t.byGID[gid] = g
		t.order = append(t.order, g)
		if reported(g.addr) {
			g.left = robustness
			t.report(now, g, out)
		}
	}
	g.qps = append(g.qps, q)
	q.attached++
	t.attached++
	return nil
}

// DetachMulticast ends an attachment. ErrInvalid: there is none.
func (q *QP) DetachMulticast(gid verbs.GID, out *packetio.Batch) error {
	const op = "detach multicast"
	if err := q.checkGroup(op, gid); err != nil {
		return err
	}
	if g := q.e.groups.byGID[gid]; g == nil || !slices.Contains(g.qps, q) {
		return opError(op, verbs.ErrInvalid, "queue pair %#x is not attached to %v", uint32(q.Num()), gid)
	}
	q.detach(gid, out)
	return nil
}

// checkGroup checks what attachments need (IBTA 10.5.1/ud).
func (q *QP) checkGroup(op string, gid verbs.GID) error {
	switch err := alive(op, q.dead); {
	case err != nil:
		return err
	case q.connected():
		return opError(op, verbs.ErrInvalid, "queue pair %#x is not for datagrams", uint32(q.Num()))
	case !gid.IsMulticast():
		return opError(op, verbs.ErrInvalid, "%v is no multicast address", gid)
	}
	return nil
}

// DetachAll ends all attachments of a queue pair, whose application has ended.
func (q *QP) DetachAll(out *packetio.Batch) {
	for i := 0; i < len(q.e.groups.order) && q.attached > 0 && !q.dead; {
		g := q.e.groups.order[i]
		if slices.Contains(g.qps, q) {
			q.detach(verbs.GIDOf(g.addr), out)
		}
		if i < len(q.e.groups.order) && q.e.groups.order[i] == g {
			i++
		}
	}
}

// detach takes the queue pair out of a group that it is in.
func (q *QP) detach(gid verbs.GID, out *packetio.Batch) {
	t := &q.e.groups
	g := t.byGID[gid]
	g.qps = slices.DeleteFunc(g.qps, func(o *QP) bool { return o == q })
	q.attached--
	t.attached--
	if len(g.qps) > 0 {
		return
	}
	delete(t.byGID, gid)
	t.order = slices.DeleteFunc(t.order, func(o *group) bool { return o == g })
	if reported(g.addr) {
		t.tell(g, wire.RecordToInclude, out)
	}
}

// reported reports whether hosts report a group: not that of all hosts, and no group of a scope that
// does not leave the host (RFC 3376, 6; RFC 3810, 6).
func reported(a netip.Addr) bool {
	if a.Is4() {
		return a != netip.AddrFrom4([4]byte{224, 0, 0, 1})
	}
	const scopeMask, interfaceLocal = 0x0f, 1
	return a != netip.IPv6LinkLocalAllNodes() && a.As16()[1]&scopeMask > interfaceLocal
}

// of is the group to which a frame goes, with the MAC address of that group; nil: no queue pair is
// attached to it.
func (t *groups) of(f *wire.Frame) *group {
	if g := t.byGID[destGID(f)]; g != nil && g.mac == f.Eth.Dst {
		return g
	}
	return nil
}

// receive takes a frame to the group, which has passed all checks that do not depend on a queue
// pair: each attached queue pair that receives gets a copy, if the P_Key is right (IBTA
// 10.5.1/copies). The destination is the queue pair number of multicast (IBTA 10.5.2/qpn).
func (g *group) receive(e *Engine, now clock.Time, b []byte, f *wire.Frame, out *packetio.Batch) {
	c := &e.counters
	switch {
	case f.BTH.DestQP != verbs.MulticastQPN:
		c.RxUnknownQP++
		return
	case f.BTH.Opcode.Service() != wire.ServiceUD:
		c.RxUnsupported++
		return
	}
	ip := ipHeader(b, f)
	c.RcvdPkts++
	c.RcvdBytes += uint64(len(b))
	for _, qp := range g.qps { // a step of a queue pair detaches none
		switch {
		case !qp.receives():
			c.RxUnknownQP++
		case !verbs.SamePartition(f.BTH.PKey, qp.pkey):
			c.RxPkeyErr++
		default:
			c.RcvdMulticast++
			qp.q.HandleDatagram(now, &f.Packet, ip, &e.acts)
			e.rx.touch(now, qp)
			e.deliver(now, qp, out)
		}
	}
}

// queried takes a frame to a group that is not RoCEv2. If it is a query, each group that it concerns
// is reported after a random part of the time that the query grants (RFC 3376, 5.2).
func (t *groups) queried(now clock.Time, b []byte, r *rand.Rand) {
	var eth wire.Ethernet
	m := &t.message
	if len(t.order) == 0 || eth.Parse(b) != nil || eth.Tagged && eth.TCI&vlanMask != 0 || m.Parse(b) != nil || !m.Query {
		return
	}
	old, asked := &t.oldIGMP, &t.asked4
	if m.Group.Is6() {
		old, asked = &t.oldMLD, &t.asked6
	}
	within := max(m.MaxResponse, leastResponse)
	if !m.Group.IsUnspecified() {
		if g := t.byGID[verbs.GIDOf(m.Group)]; g != nil {
			*old = m.Old
			t.answer(g, now, within, r)
		}
		return
	}
	if now < *asked {
		return
	}
	*old, *asked = m.Old, now.Add(within)
	for _, g := range t.order {
		if g.addr.Is4() == m.Group.Is4() {
			t.answer(g, now, within, r)
		}
	}
}

// answer makes a group be reported within a time.
func (t *groups) answer(g *group, now clock.Time, within time.Duration, r *rand.Rand) {
	if reported(g.addr) {
		g.due = clock.Min(g.due, now.Add(time.Duration(r.Int64N(int64(within)+1))))
		t.due = clock.Min(t.due, g.due)
	}
}

// announce makes all groups be reported again: the port has a carrier again, perhaps to another
// switch.
func (t *groups) announce() {
	for _, g := range t.order {
		if reported(g.addr) {
			g.left, g.due, t.due = robustness, 0, 0
		}
	}
}

// tick sends the reports that are due.
func (t *groups) tick(now clock.Time, out *packetio.Batch) {
	if t.due > now {
		return
	}
	t.due = clock.Never
	sent, n, first := 0, len(t.order), t.next
	for i := range n {
		at := (first + i) % n
		g := t.order[at]
		if g.due <= now && sent < maxReports {
			t.report(now, g, out)
			sent++
			t.next = at + 1 // no group waits for those before it again
		}
		t.due = clock.Min(t.due, g.due)
	}
}

// report sends a report of a group, and sets when the next one is due.
func (t *groups) report(now clock.Time, g *group, out *packetio.Batch) {
	kind := wire.RecordIsExclude
	g.due = clock.Never
	if g.left > 0 {
		kind = wire.RecordToExclude
		if g.left--; g.left > 0 {
			g.due = now.Add(repeatAfter)
			t.due = clock.Min(t.due, g.due)
		}
	}
	t.tell(g, kind, out)
}

// tell sends one report of a group. Without an address of its family the source is the unspecified
// one, over IPv6 the link-local one.
func (t *groups) tell(g *group, kind wire.RecordType, out *packetio.Batch) {
	m := &t.message
	*m = wire.Membership{Records: append(m.Records[:0], wire.GroupRecord{Type: kind, Group: g.addr})}
	if g.addr.Is4() {
		m.Old, m.Source = t.oldIGMP, netip.IPv4Unspecified()
	} else {
		m.Old, m.Source = t.oldMLD, verbs.LinkLocalGID(t.port.cfg.MAC).Addr()
	}
	for _, gid := range t.port.cfg.GIDs {
		if a := gid.Addr(); a.Is4() && g.addr.Is4() {
			m.Source = a
			break
		}
	}
	out.Add(0, m.AppendTo(out.Alloc(m.Len()), t.port.cfg.MAC))
	t.counters.GroupReports++
}
