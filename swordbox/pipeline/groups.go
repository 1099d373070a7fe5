package pipeline

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/transitions"
)

// IGMP and MLD snooping (RFC 4541): the switch reads the reports of hosts to learn which ports want
// a multicast group. It sends frames to the group only to these ports and to the ports of routers.
// It floods frames to a group that no report has named, and frames to link-local groups
// (wire.GroupFlooded).
//
// Only queries make hosts repeat their reports. So the switch itself sends queries while it knows a
// group and no router. It sends two queries after the first report, and one when a port has come
// up, even if it knows a router.

// Times of the protocol (RFC 3376, 8; RFC 3810, 9).
const (
	groupRobustness = 2
	queryInterval   = 125 * time.Second
	queryResponse   = 10 * time.Second
	groupLife       = groupRobustness*queryInterval + queryResponse
	routerLife      = groupRobustness*queryInterval + queryResponse/2
	// startupResponse is the response time that the first queries grant, and the time between them.
	// After the first report the switch floods all groups for settleAfter. By then the members have
	// answered the last of these queries. So no member loses frames after a restart of the switch.
	startupResponse = time.Second
	settleAfter     = (groupRobustness + 1) * startupResponse
	// leaveResponse is how long hosts may take to answer the queries that the switch sends after a
	// host has left a group. So another member behind the same port answers within this time.
	leaveResponse = time.Second
	leaveAfter    = groupRobustness * leaveResponse
)

// MaxGroups bounds the multicast groups that the switch learns. It floods frames to further groups.
const MaxGroups = 1024

// SnoopState says how the switch forwards frames to multicast groups.
type SnoopState uint8

const (
	// SnoopIdle: the switch knows no group and floods frames to all groups.
	SnoopIdle SnoopState = iota
	// SnoopSettling: the switch has received the first report. It queries for other members, and
	// still floods frames to all groups.
	SnoopSettling
	// SnoopForwarding: frames to a known group go only to its members and to routers.
	SnoopForwarding
	snoopStates
)

var snoopNames = [snoopStates]string{"idle", "settling", "forwarding"}

func (s SnoopState) String() string { return snoopNames[s] }

func (s SnoopState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

func (s *SnoopState) UnmarshalText(text []byte) error {
	i := slices.Index(snoopNames[:], string(text))
	if i < 0 {
		return fmt.Errorf("%.20q is no state of snooping", text)
	}
	*s = SnoopState(i)
	return nil
}

type snoopCause uint8

const (
	onFirstReport snoopCause = iota
	onSettled
	onLastGroupGone
	snoopCauses
)

var snoopEdges = []transitions.Edge[SnoopState, snoopCause]{
	{SnoopIdle, onFirstReport, SnoopSettling},
	{SnoopSettling, onSettled, SnoopForwarding},
	{SnoopSettling, onLastGroupGone, SnoopIdle},
	{SnoopForwarding, onLastGroupGone, SnoopIdle},
}

var snoopTable = func() (t [snoopStates][snoopCauses]SnoopState) {
	transitions.Fill(snoopStates, snoopCauses, snoopEdges, func(s SnoopState, c snoopCause) *SnoopState { return &t[s][c] })
	return t
}()

// groups holds the multicast groups that the switch knows, and the ports of routers.
type groups struct {
	state   SnoopState
	byAddr  map[netip.Addr]*groupEntry
	order   []*groupEntry // the groups in the order in which they were learnt
	routers []clock.Time  // index is the port; the time until which a router is behind it
	// due is when tick must be called. settled is when state SnoopSettling ends. queryAt is when
	// the next query for all groups is due.
	due, settled, queryAt clock.Time
	startup               int             // how many of the first queries have still to be sent
	full                  uint64          // reports of groups that were not learnt; see MaxGroups
	message               wire.Membership // scratch memory
}

type groupEntry struct {
	addr netip.Addr
	// until holds, by port, the time until which a member counts as present; 0 means that no member
	// is behind the port.
	until []clock.Time
	// asks is how many queries for this group are still to be sent after a member has left it.
	// askAt is when the next one is due.
	asks  int
	askAt clock.Time
}

func newGroups() groups {
	return groups{byAddr: make(map[netip.Addr]*groupEntry), due: clock.Never, settled: clock.Never, queryAt: clock.Never}
}

// at returns the entry of a port; 0 if the list has none, because the port is newer than the list.
func at(list []clock.Time, port int) clock.Time {
	if port < len(list) {
		return list[port]
	}
	return 0
}

func setAt(list *[]clock.Time, port int, t clock.Time) {
	for len(*list) <= port {
		*list = append(*list, 0)
	}
	(*list)[port] = t
}

func (t *groups) step(c snoopCause) { t.state = snoopTable[t.state][c] }

// soon makes sure that tick is called at time x at the latest.
func (t *groups) soon(x clock.Time) { t.due = clock.Min(t.due, x) }

// wanted returns the group of a frame if the frame goes only to the group's ports; nil means that
// the switch floods the frame.
func (t *groups) wanted(b []byte) *groupEntry {
	if t.state != SnoopForwarding {
		return nil
	}
	a, ok := destination(b)
	if !ok {
		return nil
	}
	return t.byAddr[a]
}

// destination returns the IP address to which a frame goes. The bool is false if the frame is not
// IP.
func destination(b []byte) (netip.Addr, bool) {
	head, kind := 14, uint16(0)
	if len(b) >= head {
		kind = binary.BigEndian.Uint16(b[12:])
	}
	if kind == wire.EtherTypeVLAN && len(b) >= 18 {
		head, kind = 18, binary.BigEndian.Uint16(b[16:])
	}
	switch {
	case kind == wire.EtherTypeIPv4 && len(b) >= head+20:
		return netip.AddrFrom4([4]byte(b[head+16:])), true
	case kind == wire.EtherTypeIPv6 && len(b) >= head+40:
		return netip.AddrFrom16([16]byte(b[head+24:])), true
	}
	return netip.Addr{}, false
}

// has reports whether a frame to the group goes to a port.
func (t *groups) has(g *groupEntry, port int, now clock.Time) bool {
	return at(g.until, port) > now || at(t.routers, port) > now
}

// reported handles an IGMP or MLD report of a host behind a port: the host joins or leaves the
// groups in its records.
func (t *groups) reported(now clock.Time, port int, m *wire.Membership) {
	for i := range m.Records {
		r := &m.Records[i]
		switch {
		case wire.GroupFlooded(r.Group):
		case r.Joins():
			t.joins(now, port, r.Group)
		case r.Leaves():
			t.leaves(now, port, r.Group)
		}
	}
}

func (t *groups) joins(now clock.Time, port int, a netip.Addr) {
	g := t.byAddr[a]
	if g == nil {
		if len(t.byAddr) >= MaxGroups {
			t.full++
			return
		}
		g = &groupEntry{addr: a, askAt: clock.Never}
		t.byAddr[a] = g
		t.order = append(t.order, g)
		if t.state == SnoopIdle {
			t.step(onFirstReport)
			t.startup, t.queryAt, t.settled = groupRobustness, now, now.Add(settleAfter)
			t.soon(now)
		}
	}
	setAt(&g.until, port, now.Add(groupLife))
	t.soon(now.Add(groupLife))
}

// leaves handles a leave. The membership of the port ends soon, unless another member behind the
// port answers the queries.
func (t *groups) leaves(now clock.Time, port int, a netip.Addr) {
	g := t.byAddr[a]
	if g == nil || at(g.until, port) <= now.Add(leaveAfter) {
		return
	}
	setAt(&g.until, port, now.Add(leaveAfter))
	g.asks, g.askAt = groupRobustness, now
	t.soon(now)
}

// queried records that a router is behind a port. A query whose source address is unspecified comes
// from a switch (RFC 4541, 2.1.1), so it does not count.
func (t *groups) queried(now clock.Time, port int, m *wire.Membership) {
	if !m.Source.IsUnspecified() {
		setAt(&t.routers, port, now.Add(routerLife))
	}
}

func (t *groups) hasRouter(now clock.Time) bool {
	return slices.ContainsFunc(t.routers, func(x clock.Time) bool { return x > now })
}

// flush forgets the members and the router behind a port.
func (t *groups) flush(now clock.Time, port int) {
	for _, g := range t.order {
		if at(g.until, port) > 0 {
			g.until[port] = 0
		}
	}
	if at(t.routers, port) > 0 {
		t.routers[port] = 0
	}
	t.expire(now)
}

// portUp makes the switch send queries when a port has come up, because a member may be behind it.
func (t *groups) portUp(now clock.Time) {
	if t.state != SnoopIdle {
		t.startup, t.queryAt = max(t.startup, 1), now
		t.soon(now)
	}
}

// expire forgets members whose time is over, and groups without members.
func (t *groups) expire(now clock.Time) {
	t.order = slices.DeleteFunc(t.order, func(g *groupEntry) bool {
		members := false
		for port, until := range g.until {
			if until <= now {
				g.until[port] = 0
			} else {
				members = true
			}
		}
		if !members {
			delete(t.byAddr, g.addr)
		}
		return !members
	})
	if len(t.order) == 0 {
		t.forget()
	}
}

// forget forgets all groups and returns how many there were.
func (t *groups) forget() int {
	n := len(t.byAddr)
	clear(t.byAddr)
	t.order = nil
	t.step(onLastGroupGone)
	t.startup, t.settled, t.queryAt, t.due = 0, clock.Never, clock.Never, clock.Never
	return n
}

// Group describes a multicast group that the switch knows.
type Group struct {
	Group netip.Addr `json:"group"`
	// Ports are the numbers of the ports with members. Left is the time after which the switch
	// forgets the group, unless a member reports again.
	Ports []int         `json:"ports"`
	Left  time.Duration `json:"left"`
}

// Snooping describes what the switch knows about multicast groups.
type Snooping struct {
	State   SnoopState `json:"state"`
	Groups  []Group    `json:"groups"`
	Routers []int      `json:"routers"` // ports of routers
}

// list describes the groups, sorted by address.
func (t *groups) list(now clock.Time) Snooping {
	out := Snooping{State: t.state, Groups: []Group{}, Routers: []int{}}
	for _, g := range t.order {
		x := Group{Group: g.addr, Ports: []int{}}
		for port, until := range g.until {
			if until > now {
				x.Ports, x.Left = append(x.Ports, port), max(x.Left, until.Sub(now))
			}
		}
		out.Groups = append(out.Groups, x)
	}
	slices.SortFunc(out.Groups, func(a, b Group) int { return a.Group.Compare(b.Group) })
	for port, until := range t.routers {
		if until > now {
			out.Routers = append(out.Routers, port)
		}
	}
	return out
}
