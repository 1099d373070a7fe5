package pipeline

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// defaultQuerier is the source MAC address of queries if the switch has no address.
var defaultQuerier = wire.MAC{0x02, 0x00, 0x5e, 0x00, 0x52, 0x01}

// snooped handles a frame to a multicast group that is not RoCEv2. It returns true if the frame is
// a report. Then it has sent the report to routers only: a host that sees the report of another
// host may suppress its own (RFC 4541, 2.1.1).
func (s *Switch) snooped(in int, f packetio.Frame) bool {
	m := &s.groups.message
	if m.Parse(f.Data) != nil {
		return false
	}
	if m.Query {
		s.groups.queried(s.ctx.Now, in, m)
		return false
	}
	if !s.fdb.trunks.floods(in) {
		s.dropped(in, ReasonNoRoute, f.Packets())
		return true
	}
	s.counters.GroupReports++
	s.groups.reported(s.ctx.Now, in, m)
	for to := range s.ports {
		if to != in && s.ports[to].up && at(s.groups.routers, to) > s.ctx.Now && s.ports.allowed(in, to) && s.fdb.trunks.floods(to) {
			s.send(in, to, f)
		}
	}
	s.notes.add(-1, "read by the switch")
	s.groups.tick(s.ctx.Now, len(s.ports), s.query)
	return true
}

// tick forgets members whose time is over, and sends the queries that are due by query.
func (t *groups) tick(now clock.Time, ports int, query func(to int, m wire.Membership)) {
	if t.due > now {
		return
	}
	t.expire(now)
	if t.state == SnoopSettling && t.settled <= now {
		t.step(onSettled)
		t.settled = clock.Never
	}
	if t.queryAt <= now {
		t.queryAll(now, ports, query)
	}
	t.due = clock.Min(t.settled, t.queryAt)
	for _, g := range t.order {
		if g.asks > 0 && g.askAt <= now {
			g.queryLeft(now, query)
		}
		t.soon(g.askAt)
		for _, until := range g.until {
			if until > 0 {
				t.soon(until)
			}
		}
	}
}

// queryAll sends a query for all groups out of every port. If a router sends such queries, the
// switch sends only the first ones (groups.startup).
func (t *groups) queryAll(now clock.Time, ports int, query func(to int, m wire.Membership)) {
	response, next := queryResponse, queryInterval
	if t.startup > 0 {
		response = startupResponse
		if t.startup--; t.startup > 0 {
			next = startupResponse
		}
	}
	t.queryAt = now.Add(next)
	if response == queryResponse && t.hasRouter(now) {
		return
	}
	for to := range ports {
		query(to, wire.Membership{Group: netip.IPv4Unspecified(), MaxResponse: response})
		query(to, wire.Membership{Group: netip.IPv6Unspecified(), MaxResponse: response})
	}
}

// queryLeft asks whether a member of g is still behind the ports at which a member has left.
func (g *groupEntry) queryLeft(now clock.Time, query func(to int, m wire.Membership)) {
	g.askAt = clock.Never
	if g.asks--; g.asks > 0 {
		g.askAt = now.Add(leaveResponse)
	}
	for to, until := range g.until {
		if until > now && until <= now.Add(leaveAfter) {
			query(to, wire.Membership{Group: g.addr, MaxResponse: leaveResponse})
		}
	}
}

// query sends a query out of a port.
func (s *Switch) query(to int, m wire.Membership) {
	if !s.ports[to].up || s.fdb.trunks.isTrunk(to) { // the neighbour asks its own hosts, and would take this switch for a router
		return
	}
	from := s.self.MAC
	if from == (wire.MAC{}) {
		from = defaultQuerier
	}
	m.Query, m.Source = true, netip.IPv4Unspecified()
	if m.Group.Is6() {
		m.Source = verbs.LinkLocalGID(from).Addr()
	}
	s.counters.GroupQueries++
	s.notes.text = "the switch asks for members"
	s.send(-1, to, packetio.Frame{Data: m.AppendTo(s.out.Alloc(m.Len()), from)})
	s.notes.text = ""
}

func (s *Switch) Snooping(now clock.Time) Snooping { return s.groups.list(now) }

// ForgetGroups forgets all multicast groups and returns how many there were.
func (s *Switch) ForgetGroups() int { return s.groups.forget() }
