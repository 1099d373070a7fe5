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
// attached. It reports these groups by IGMP or MLD, as the Linux kernel does for sockets and for
// rdma_cm on rxe. It reports a group twice when the first queue pair is attached, once in answer to
// each query, and once when the last queue pair is detached.

const (
	// robustness is how often a new group is reported: one report may be lost (RFC 3376, 8.1).
	robustness = 2
	// repeatAfter is the time between the reports of a new group (RFC 3376, 8.11; RFC 3810, 9.11).
	repeatAfter = time.Second
	// maxReports is the largest number of reports that one Tick sends. If more are due, the next Tick
	// is due at once.
	maxReports = 64
	// leastResponse is the lower bound for the maximum response time in a query; a shorter time is
	// treated as this one. The NIC sends reports at random times within the response time, and ignores
	// further general queries until the response time is over. So a flood of queries costs little.
	leastResponse = 100 * time.Millisecond
)

// groups are the multicast groups to which queue pairs of the NIC are attached.
type groups struct {
	byGID    map[verbs.GID]*group
	order    []*group   // in the order of their first attachment
	attached int        // number of attachments of queue pairs to all groups
	due      clock.Time // when tick must be called
	next     int        // index in `order` at which tick continues
	// oldIGMP and oldMLD choose the format of reports: IGMP 2 if the last IGMP query that the NIC
	// answered was of version 1 or 2, MLD 1 if the last such MLD query was of version 1.
	oldIGMP, oldMLD bool
	// asked4 and asked6: until these times the NIC ignores further general queries over IPv4 and over
	// IPv6, because it is still sending the reports for the last one.
	asked4, asked6 clock.Time
	message        wire.Membership // reused to build and parse messages
	port           *port
	counters       *metrics.NIC
}

// open starts with no group.
func (t *groups) open(p *port, c *metrics.NIC) {
	*t = groups{byGID: make(map[verbs.GID]*group), due: clock.Never, port: p, counters: c}
}

// group is a multicast group with at least one queue pair.
type group struct {
	addr netip.Addr
	mac  wire.MAC
	qps  []*QP // in the order in which they were attached
	// due is when the next report of the group must be sent. left is how many reports of a new
	// group are still to be sent; it is 0 for an answer to a query.
	due  clock.Time
	left int
}

// AttachMulticast makes the queue pair receive the datagrams to a group. The first attachment to a
// group makes the NIC report the group.
func (q *QP) AttachMulticast(now clock.Time, gid verbs.GID, out *packetio.Batch) error {
	const op = "attach multicast"
	if err := q.checkGroup(op, gid); err != nil {
		return err
	}
	e := q.e
	t, l := &e.Tables.groups, &e.cfg.Limits
	g := t.byGID[gid]
	switch {
	case g != nil && slices.Contains(g.qps, q):
		return nil // a queue pair attached twice still gets one copy of each datagram (IBTA 10.5.1/once)
	case t.attached >= l.Attachments:
		return verbs.Errorf(op, verbs.ErrLimit, "%d attachments exist", t.attached)
	case g != nil && len(g.qps) >= l.GroupQPs:
		return verbs.Errorf(op, verbs.ErrLimit, "%d queue pairs are attached to %v", len(g.qps), gid)
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

// DetachMulticast ends an attachment. It fails with ErrInvalid if there is none.
func (q *QP) DetachMulticast(gid verbs.GID, out *packetio.Batch) error {
	const op = "detach multicast"
	if err := q.checkGroup(op, gid); err != nil {
		return err
	}
	if g := q.e.Tables.groups.byGID[gid]; g == nil || !slices.Contains(g.qps, q) {
		return verbs.Errorf(op, verbs.ErrInvalid, "queue pair %#x is not attached to %v", uint32(q.Num()), gid)
	}
	q.detach(gid, out)
	return nil
}

// checkGroup returns an error if the queue pair must not be attached to the group (IBTA 10.5.1/ud).
func (q *QP) checkGroup(op string, gid verbs.GID) error {
	switch err := alive(op, q.dead); {
	case err != nil:
		return err
	case q.connected():
		return verbs.Errorf(op, verbs.ErrInvalid, "queue pair %#x is not for datagrams", uint32(q.Num()))
	case !gid.IsMulticast():
		return verbs.Errorf(op, verbs.ErrInvalid, "%v is no multicast address", gid)
	}
	return nil
}

// DetachAll ends all attachments of a queue pair. It is called when its application has ended.
func (q *QP) DetachAll(out *packetio.Batch) {
	for i := 0; i < len(q.e.Tables.groups.order) && q.attached > 0 && !q.dead; {
		g := q.e.Tables.groups.order[i]
		if slices.Contains(g.qps, q) {
			q.detach(verbs.GIDOf(g.addr), out)
		}
		if i < len(q.e.Tables.groups.order) && q.e.Tables.groups.order[i] == g {
			i++
		}
	}
}

// detach removes the queue pair from a group to which it is attached.
func (q *QP) detach(gid verbs.GID, out *packetio.Batch) {
	t := &q.e.Tables.groups
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

// reported reports whether hosts send IGMP or MLD reports of a group. They send none for the group
// of all hosts, and none for groups whose scope is the host itself (RFC 3376, 6; RFC 3810, 6).
func reported(a netip.Addr) bool {
	if a.Is4() {
		return a != netip.AddrFrom4([4]byte{224, 0, 0, 1})
	}
	const scopeMask, interfaceLocal = 0x0f, 1
	return a != netip.IPv6LinkLocalAllNodes() && a.As16()[1]&scopeMask > interfaceLocal
}

// of returns the group to which frame f is addressed; nil if no queue pair is attached to it. The
// frame's MAC address must be that of the group, too.
func (t *groups) of(f *wire.Frame) *group {
	if g := t.byGID[destGID(f)]; g != nil && g.mac == f.Eth.Dst {
		return g
	}
	return nil
}

// receive handles a frame to the group after all checks that do not depend on a queue pair. Each
// attached queue pair that receives and has the right P_Key gets a copy (IBTA 10.5.1/copies). The
// frame's destination QPN must be that of multicast (IBTA 10.5.2/qpn).
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
	for _, qp := range g.qps { // receiving changes no attachment, so g.qps stays the same
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

// queried handles a multicast frame that is not RoCEv2. If it is a membership query, the NIC
// reports the group that the query names, or all groups for a general query. It sends each report
// at a random time within the query's maximum response time (RFC 3376, 5.2).
func (t *groups) queried(now clock.Time, b []byte, r *rand.Rand) {
	var eth wire.Ethernet
	m := &t.message
	if len(t.order) == 0 || eth.Parse(b) != nil || eth.Tagged && eth.VLAN() != 0 || m.Parse(b) != nil || !m.Query {
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

// answer schedules a report of group g at a random time within the given duration.
func (t *groups) answer(g *group, now clock.Time, within time.Duration, r *rand.Rand) {
	if reported(g.addr) {
		g.due = clock.Min(g.due, now.Add(time.Duration(r.Int64N(int64(within)+1))))
		t.due = clock.Min(t.due, g.due)
	}
}

// announce reports all groups again. It is called when the port has got its carrier back, because
// it may now be connected to another switch.
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
			t.next = at + 1 // the next Tick begins with the group behind this one
		}
		t.due = clock.Min(t.due, g.due)
	}
}

// report sends a report of a group and sets the time of its next report.
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

// tell sends one IGMP or MLD report of a group. The source of an IGMP report is the NIC's first
// IPv4 address, or the unspecified address if the NIC has none. The source of an MLD report is the
// link-local address that belongs to the NIC's MAC address.
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
