package pipeline

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/golden"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var (
	group4 = netip.MustParseAddr("239.1.2.3")
	group6 = netip.MustParseAddr("ff0e::1234")
)

// report returns the report that the host at a port sends.
func report(port int, kind wire.RecordType, groups ...netip.Addr) []byte {
	m := wire.Membership{Source: netip.AddrFrom4([4]byte{10, 0, 0, byte(port)})}
	if groups[0].Is6() {
		m.Source = netip.AddrFrom16([16]byte{0xfe, 0x80, 15: byte(port)})
	}
	for _, g := range groups {
		m.Records = append(m.Records, wire.GroupRecord{Type: kind, Group: g})
	}
	return m.AppendTo(nil, mac(port))
}

const (
	joins  = wire.RecordToExclude
	leaves = wire.RecordToInclude
)

// toGroup returns a RoCEv2 datagram from a host to a multicast group.
func toGroup(port int, group netip.Addr) []byte {
	f := roceFrame(port, 0, 1, "data")
	f.Eth.Dst = wire.GroupMAC(group)
	f.BTH.DestQP, f.BTH.Opcode = 0xffffff, wire.UDSendOnly
	if f.V6 = group.Is6(); f.V6 {
		f.IPv6 = wire.IPv6{HopLimit: 1, Src: [16]byte{0xfe, 0x80, 15: byte(port)}, Dst: group.As16()}
	} else {
		f.IPv4.Dst = group.As4()
	}
	return f.AppendTo(nil)
}

// queries lists the queries that the switch has sent in the last step.
func (r *rig) queries() (list []string) {
	r.t.Helper()
	for _, f := range r.out.Frames {
		var m wire.Membership
		if m.Parse(f.Data) == nil && m.Query {
			list = append(list, fmt.Sprintf("%d %v %v", f.Port, m.Group, m.MaxResponse))
		}
	}
	return list
}

// until runs the switch up to an instant, and returns the queries that it sent.
func (r *rig) until(at time.Duration) (list []string) {
	r.t.Helper()
	for range 10000 {
		next := r.Deadline()
		if next > clock.Time(at) {
			r.now = clock.Time(at)
			return list
		}
		r.now = max(r.now, next)
		r.tick()
		for _, q := range r.queries() {
			list = append(list, fmt.Sprintf("%v: %s", time.Duration(r.now), q))
		}
	}
	r.t.Fatal("deadlines never end")
	return nil
}

// settledRig is a switch on which some hosts have joined groups and the first queries are over.
func settledRig(t *testing.T, ports int, members ...int) *rig {
	t.Helper()
	r := newRig(t, ports, &testProgram{}, nil)
	for _, p := range members {
		r.send(p, report(p, joins, group4))
		r.send(p, report(p, joins, group6))
	}
	r.until(10 * time.Second)
	if s := r.Snooping(r.now); s.State != SnoopForwarding {
		t.Fatalf("state %v", s.State)
	}
	return r
}

func TestSnoopStates(t *testing.T) {
	golden.Check(t, "testdata/snoop.dot", golden.Diagram(t, "snoop", snoopEdges))
	for s := range snoopStates {
		text, err := s.MarshalText()
		if got := SnoopState(9); err != nil || got.UnmarshalText(text) != nil || got != s || got.UnmarshalText([]byte("x")) == nil {
			t.Errorf("%v is written as %q", s, text)
		}
	}
}

// A frame to a group goes to the ports whose hosts have reported the group, except its ingress
// port. A frame to an unknown group, or to a link-local group, goes to all ports.
func TestSnooping(t *testing.T) {
	r := settledRig(t, 5, 1, 3)
	for _, g := range []netip.Addr{group4, group6} {
		r.want("from outside", r.send(0, toGroup(0, g)), "[1 3]")
		r.want("from a member", r.send(1, toGroup(1, g)), "[3]")
	}
	r.want("another group", r.send(0, toGroup(0, netip.MustParseAddr("239.1.2.4"))), "[1 2 3 4]")
	r.send(2, report(2, joins, netip.MustParseAddr("224.0.0.9"), netip.MustParseAddr("239.9.9.9")))
	r.want("on the link", r.send(0, toGroup(0, netip.MustParseAddr("224.0.0.9"))), "[1 2 3 4]")
	r.want("its neighbour", r.send(0, toGroup(0, netip.MustParseAddr("239.9.9.9"))), "[2]")
	r.want("no RoCEv2", r.send(0, plain(mac(0), wire.GroupMAC(group4))), "[1 2 3 4]")
	r.Partition([]int{0, 1, 0, 0, 0})
	r.want("partition", r.send(0, toGroup(0, group4)), "[3]")
	r.Partition([]int{0, 1, 0, 1, 0})
	r.want("partition of all members", r.send(0, toGroup(0, group4)), "[]")
	r.Partition(nil)
	c, _ := r.Counters()
	if c.Multicast != 6 || c.Groups != 3 || c.GroupReports != 5 {
		t.Errorf("counters %+v", c)
	}
	if p := r.Port(0); p.Drops[ReasonPartition] != 1 || p.Drops[ReasonNoMember] != 0 {
		t.Errorf("drops %+v", p.Drops)
	}
}

// A group has one member. A frame from this member goes nowhere, and a frame from another host goes
// only to the member.
func TestOnlyMember(t *testing.T) {
	r := settledRig(t, 3, 1)
	r.want("of the member", r.send(1, toGroup(1, group4)), "[]")
	r.want("to the member", r.send(0, toGroup(0, group4)), "[1]")
	if n := r.Port(1).Drops[ReasonNoMember]; n != 1 {
		t.Errorf("%d drops", n)
	}
}

// The first report makes the switch ask all hosts, twice; until the answers are here it floods.
func TestSettling(t *testing.T) {
	r := newRig(t, 3, &testProgram{}, nil)
	r.want("report", r.send(1, report(1, joins, group4)), "[0 0 1 1 2 2]") // queries of both families
	if got := r.queries(); len(got) != 6 || got[0] != "0 0.0.0.0 1s" || got[1] != "0 :: 1s" {
		t.Errorf("queries %v", got)
	}
	r.want("at once", r.send(0, toGroup(0, group4)), "[1 2]")
	if got := r.until(2900 * time.Millisecond); len(got) != 6 || got[0] != "1s: 0 0.0.0.0 1s" {
		t.Errorf("queries %v", got)
	}
	r.want("settling", r.send(0, toGroup(0, group4)), "[1 2]")
	r.until(3 * time.Second)
	r.want("settled", r.send(0, toGroup(0, group4)), "[1]")
	got := r.until(300 * time.Second)
	if len(got) != 6*2 || got[0] != "2m6s: 0 0.0.0.0 10s" {
		t.Errorf("queries %v", got)
	}
	if s := r.Snooping(r.now); s.State != SnoopIdle || len(s.Groups) != 0 || r.Deadline() != clock.Never {
		t.Errorf("a member that never answers: %+v, deadline %v", s, r.Deadline())
	}
}

// A member is forgotten when its reports end, and kept as long as it answers.
func TestGroupsAge(t *testing.T) {
	for _, stays := range []int{1, 2} {
		r := settledRig(t, 4, 1, 2)
		for at := 100 * time.Second; at < 1000*time.Second; at += 100 * time.Second {
			r.until(at)
			r.send(stays, report(stays, wire.RecordIsExclude, group4))
		}
		want := fmt.Sprint([]int{stays})
		r.want("aged", r.send(0, toGroup(0, group4)), want)
		s := r.Snooping(r.now)
		if len(s.Groups) != 1 || s.Groups[0].Group != group4 || fmt.Sprint(s.Groups[0].Ports) != want || s.Groups[0].Left != 260*time.Second {
			t.Errorf("%+v", s)
		}
	}
}

// When a host leaves a group, the switch queries its port twice for other members. If another host
// answers, the port stays a member.
func TestLeave(t *testing.T) {
	r := settledRig(t, 4, 1, 2)
	r.want("leave", r.send(1, report(1, leaves, group4)), "[1]")
	if got := r.queries(); len(got) != 1 || got[0] != "1 239.1.2.3 1s" {
		t.Errorf("queries %v", got)
	}
	r.want("at once", r.send(0, toGroup(0, group4)), "[1 2]")
	r.send(2, report(2, leaves, group6, group6))
	r.until(11 * time.Second)
	r.send(2, report(2, wire.RecordIsExclude, group6))
	r.until(12 * time.Second)
	r.want("left", r.send(0, toGroup(0, group4)), "[2]")
	r.want("stayed", r.send(0, toGroup(0, group6)), "[1 2]")
	r.want("leaves what it has not joined", r.send(3, report(3, leaves, group4)), "[]")
	if c, _ := r.Counters(); c.GroupQueries != 2*4*2+2+2 {
		t.Errorf("%d queries", c.GroupQueries)
	}
}

// Routers get reports and the frames to all known groups, for as long as they send queries.
// Meanwhile the switch sends none.
func TestRouterPort(t *testing.T) {
	r := settledRig(t, 4, 1)
	q := wire.Membership{Query: true, Source: netip.MustParseAddr("10.0.0.3"), Group: netip.IPv4Unspecified(), MaxResponse: 10 * time.Second}
	r.want("query", r.send(3, q.AppendTo(nil, mac(3))), "[0 1 2]")
	r.want("to the router, too", r.send(0, toGroup(0, group4)), "[1 3]")
	r.want("report", r.send(2, report(2, joins, group4)), "[3]")
	if got := r.until(200 * time.Second); len(got) != 0 {
		t.Errorf("queries %v beside a router", got)
	}
	if s := r.Snooping(r.now); fmt.Sprint(s.Routers) != "[3]" {
		t.Errorf("routers %v", s.Routers)
	}
	r.until(266 * time.Second)
	if s := r.Snooping(r.now); len(s.Routers) != 0 {
		t.Errorf("routers %v", s.Routers)
	}
	q.Source = netip.IPv4Unspecified() // another switch
	r.send(3, q.AppendTo(nil, mac(3)))
	if s := r.Snooping(r.now); len(s.Routers) != 0 {
		t.Errorf("routers %v", s.Routers)
	}
}

// The switch forgets the members behind a port that goes down, and sends queries when a port comes
// up. A port that is added has no members yet.
func TestGroupsOfPorts(t *testing.T) {
	r := settledRig(t, 4, 1, 2)
	r.SetPort(1, false)
	r.want("down", r.send(0, toGroup(0, group4)), "[2]")
	r.SetPort(1, true)
	if got := r.until(11 * time.Second); len(got) != 4*2 {
		t.Errorf("queries %v", got)
	}
	r.want("up", r.send(0, toGroup(0, group4)), "[2]")
	n := r.AddPort()
	r.SetPort(n, true)
	r.want("added", r.send(0, toGroup(0, group4)), "[2]")
	r.send(n, report(n, joins, group4))
	r.want("joined", r.send(0, toGroup(0, group4)), "[2 4]")
	if k := r.ForgetGroups(); k != 2 || r.Snooping(r.now).State != SnoopIdle {
		t.Errorf("%d groups forgotten", k)
	}
	r.want("forgotten", r.send(0, toGroup(0, group4)), "[1 2 3 4]")
	r.send(1, report(1, joins, group4))
	r.SetPort(1, false)
	if r.Snooping(r.now).State != SnoopIdle {
		t.Error("the last member is gone")
	}
}

// The table is bounded; groups that do not fit are flooded.
func TestGroupTableIsBounded(t *testing.T) {
	r := newRig(t, 3, &testProgram{}, nil)
	var last netip.Addr
	for i := range MaxGroups + 10 {
		last = netip.AddrFrom4([4]byte{239, 5, byte(i >> 8), byte(i)})
		r.send(1, report(1, joins, last))
	}
	r.until(5 * time.Second)
	c, _ := r.Counters()
	if c.Groups != MaxGroups || c.GroupFull != 10 {
		t.Errorf("counters %+v", c)
	}
	r.want("did not fit", r.send(0, toGroup(0, last)), "[1 2]")
	r.want("fits", r.send(0, toGroup(0, netip.MustParseAddr("239.5.0.1"))), "[1]")
}

func FuzzSnooping(f *testing.F) {
	f.Add([]byte{1}, report(1, joins, group4))
	f.Add([]byte{2}, report(1, leaves, group6))
	f.Add([]byte{0}, toGroup(0, group4))
	f.Fuzz(func(t *testing.T, times, frame []byte) {
		r := newRig(t, 3, &testProgram{}, nil)
		r.send(2, report(2, joins, group4))
		for _, x := range times {
			r.send(int(x%3), frame)
			r.until(time.Duration(r.now) + time.Duration(x)*time.Second)
		}
		s := r.Snooping(r.now)
		if len(s.Groups) > MaxGroups || (s.State == SnoopIdle) != (len(s.Groups) == 0) {
			t.Errorf("%+v", s)
		}
	})
}

// The names of events and states in the diagrams.

var snoopCauseNames = [snoopCauses]string{"first report", "settled", "last group gone"}

func (c snoopCause) String() string { return snoopCauseNames[c] }
