package pipeline

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/transitions"
)

// IGMP and MLD snooping (RFC 4541): the switch reads from the reports of hosts which ports want a
// multicast group, and sends frames to the group to these ports and to those of routers only. A
// group that no report names is flooded, and so are those that stay on the link (wire.GroupFlooded).
//
// Without a router nothing would make hosts repeat their reports, so the switch queries itself, as
// long as there is a group and no router.

// Times of the protocol (RFC 3376, 8; RFC 3810, 9).
const (
	groupRobustness = 2
	queryInterval   = 125 * time.Second
	queryResponse   = 10 * time.Second
	groupLife       = groupRobustness*queryInterval + queryResponse
	routerLife      = groupRobustness*queryInterval + queryResponse/2
	// startupResponse is what the first queries grant, and the time between them: until the last
	// answer is here nothing is filtered, so that a switch that was restarted cuts no member off.
	startupResponse = time.Second
	settleAfter     = (groupRobustness + 1) * startupResponse
	// leaveResponse is what the queries grant that follow a leave: another member behind the same
	// port answers.
	leaveResponse = time.Second
	leaveAfter    = groupRobustness * leaveResponse
)

// MaxGroups bounds the multicast groups that are learnt; more are flooded.
const MaxGroups = 1024

// SnoopState says what the switch does with groups.
type SnoopState uint8

// States of snooping.
const (
	// SnoopIdle: no group is known, all are flooded.
	SnoopIdle SnoopState = iota
	// SnoopSettling: the first report has come; the switch asks who else is a member, and floods.
	SnoopSettling
	// SnoopForwarding: groups that are known go to their members.
	SnoopForwarding
	snoopStates
)

var snoopNames = [snoopStates]string{"idle", "settling", "forwarding"}

// String is the name of the state.
func (s SnoopState) String() string { return snoopNames[s] }

// MarshalText is String, for JSON.
func (s SnoopState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText writes.
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

var snoopCauseNames = [snoopCauses]string{"first report", "settled", "last group gone"}

// String is the name of the cause.
func (c snoopCause) String() string { return snoopCauseNames[c] }

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

// groups are the multicast groups that are known, and the ports of routers.
type groups struct {
	state   SnoopState
	byAddr  map[netip.Addr]*groupEntry
	order   []*groupEntry // in the order in which they were learnt
	routers []clock.Time  // by port: until when a router is behind it
	// due is when tick must be called; settled, queryAt are instants that it waits for.
	due, settled, queryAt clock.Time
	startup               int // queries of the start that are left
	full                  uint64
	message               wire.Membership // scratch memory
}

// groupEntry is a multicast group.
type groupEntry struct {
	addr netip.Addr
	// until is by port: until when a member is behind it; 0: there is none.
	until []clock.Time
	// asks is how many queries follow a leave, the next one at askAt.
	asks  int
	askAt clock.Time
}

func newGroups() groups {
	return groups{byAddr: make(map[netip.Addr]*groupEntry), due: clock.Never, settled: clock.Never, queryAt: clock.Never}
}

// at is the entry of a port, which may be newer than the list.
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

// soon makes tick be called at an instant.
func (t *groups) soon(x clock.Time) { t.due = clock.Min(t.due, x) }

// wanted is the group to whose ports a frame goes; nil: it is flooded.
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

// destination is the IP address to which a frame goes.
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

// reported takes the report of a host behind a port.
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

// leaves gives the other members behind the port the time to answer.
func (t *groups) leaves(now clock.Time, port int, a netip.Addr) {
	g := t.byAddr[a]
	if g == nil || at(g.until, port) <= now.Add(leaveAfter) {
		return
	}
	setAt(&g.until, port, now.Add(leaveAfter))
	g.asks, g.askAt = groupRobustness, now
	t.soon(now)
}

// queried notes that a router is behind a port. A querier without address is a switch (RFC 4541,
// 2.1.1).
func (t *groups) queried(now clock.Time, port int, m *wire.Membership) {
	if !m.Source.IsUnspecified() {
		setAt(&t.routers, port, now.Add(routerLife))
	}
}

func (t *groups) hasRouter(now clock.Time) bool {
	return slices.ContainsFunc(t.routers, func(x clock.Time) bool { return x > now })
}

// flush forgets what is behind a port.
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

// portUp makes the switch ask for members, because one may be behind the port that has come up.
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

// Group is a multicast group that the switch knows.
type Group struct {
	Group netip.Addr `json:"group"`
	// Ports are those with members, by number. Left is the longest time that one of them stays
	// without a new report.
	Ports []int         `json:"ports"`
	Left  time.Duration `json:"left"`
}

// Snooping is what the switch knows of multicast groups.
type Snooping struct {
	State   SnoopState `json:"state"`
	Groups  []Group    `json:"groups"`
	Routers []int      `json:"routers"`
}

// list describes the groups, by address.
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
