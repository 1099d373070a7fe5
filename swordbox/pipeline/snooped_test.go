package pipeline

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The destination of a frame is read from a whole IP header, with a VLAN tag or without.
func TestDestinationsOfFrames(t *testing.T) {
	frame := func(tagged bool, kind uint16, n int) []byte {
		b := make([]byte, 12)
		if tagged {
			b = append(b, 0x81, 0, 0, 5)
		}
		b = append(b, byte(kind>>8), byte(kind))
		for i := range n {
			b = append(b, byte(i))
		}
		return b
	}
	four, six := netip.AddrFrom4([4]byte{16, 17, 18, 19}), netip.AddrFrom16([16]byte(frame(false, 0, 40)[14+24:]))
	for _, tagged := range []bool{false, true} {
		for _, c := range []struct {
			kind uint16
			n    int
			want netip.Addr
		}{
			{wire.EtherTypeIPv4, 19, netip.Addr{}},
			{wire.EtherTypeIPv4, 20, four},
			{wire.EtherTypeIPv4, 60, four},
			{wire.EtherTypeIPv6, 39, netip.Addr{}},
			{wire.EtherTypeIPv6, 40, six},
			{wire.EtherTypeIPv6, 20, netip.Addr{}},
			{wire.EtherTypeARP, 60, netip.Addr{}},
			{wire.EtherTypeIPv4, 0, netip.Addr{}},
		} {
			b := frame(tagged, c.kind, c.n)
			if got, ok := destination(b); got != c.want || ok != c.want.IsValid() {
				t.Errorf("type %#x, %d bytes, tagged %v: %v, %v", c.kind, c.n, tagged, got, ok)
			}
		}
	}
	for n := range 18 {
		if got, ok := destination(frame(true, wire.EtherTypeIPv4, 20)[:n]); ok {
			t.Errorf("%d bytes go to %v", n, got)
		}
	}
}

// The switch forgets one group without the others, and lists what is left in order.
func TestForgottenGroups(t *testing.T) {
	r := newRig(t, 4, &testProgram{}, nil)
	groups := []netip.Addr{netip.MustParseAddr("239.1.2.9"), netip.MustParseAddr("239.1.2.4"), netip.MustParseAddr("239.1.2.7")}
	for i, g := range groups {
		r.send(i, report(i, joins, g))
	}
	list := func() (out []string) {
		for _, g := range r.Snooping(r.now).Groups {
			out = append(out, fmt.Sprintf("%v %v", g.Group, g.Ports))
		}
		return out
	}
	r.until(10 * time.Second)
	if got := list(); !slices.Equal(got, []string{"239.1.2.4 [1]", "239.1.2.7 [2]", "239.1.2.9 [0]"}) {
		t.Errorf("%q", got)
	}
	r.send(1, report(1, leaves, groups[1]))
	r.until(20 * time.Second)
	if c, _ := r.Counters(); c.Groups != 2 || !slices.Equal(list(), []string{"239.1.2.7 [2]", "239.1.2.9 [0]"}) {
		t.Errorf("%d groups, %q", c.Groups, list())
	}
	r.want("to the forgotten group", r.send(3, toGroup(3, groups[1])), "[0 1 2]")
	if n := r.ForgetGroups(); n != 2 {
		t.Errorf("%d forgotten", n)
	}
	if c, _ := r.Counters(); c.Groups != 0 || r.Deadline() != clock.Never {
		t.Errorf("%d groups, deadline %v", c.Groups, r.Deadline())
	}
}

// A member and a router are present until their time, and not at it.
func TestTimesOfMembers(t *testing.T) {
	r := settledRig(t, 4, 1)
	q := wire.Membership{Query: true, Source: netip.MustParseAddr("10.0.0.3"), Group: netip.IPv4Unspecified(), MaxResponse: 10 * time.Second}
	r.send(3, q.AppendTo(nil, mac(3)))
	begin := time.Duration(r.now)
	r.send(1, report(1, joins, group4))
	for _, c := range []struct {
		at      time.Duration
		to      string
		routers string
	}{
		{begin + routerLife - 1, "[1 3]", "[3]"},
		{begin + routerLife, "[1]", "[]"},
		{begin + groupLife - 1, "[1]", "[]"},
		{begin + groupLife, "[1 2 3]", "[]"}, // the group is forgotten, and flooded
	} {
		r.now = clock.Time(c.at)
		if got := fmt.Sprint(r.Snooping(r.now).Routers); got != c.routers {
			t.Errorf("%v: routers %s", c.at, got)
		}
		for r.Deadline() <= r.now {
			r.tick()
		}
		r.want(fmt.Sprint(c.at), r.send(0, toGroup(0, group4)), c.to)
	}
	// The router behind a port that goes down is gone.
	r = settledRig(t, 4, 1)
	r.send(3, q.AppendTo(nil, mac(3)))
	r.SetPort(3, false)
	r.SetPort(3, true)
	r.want("without the router", r.send(0, toGroup(0, group4)), "[1]")
	if s := r.Snooping(r.now); len(s.Routers) != 0 {
		t.Errorf("routers %v", s.Routers)
	}
}

// The switch asks again when a port comes up, and only then.
func TestQueriesOfPorts(t *testing.T) {
	for _, c := range []struct {
		name    string
		do      func(r *rig)
		queries bool
	}{
		{"up", func(r *rig) { r.SetPort(2, false); r.SetPort(2, true) }, true},
		{"up again", func(r *rig) { r.SetPort(2, true) }, false},
		{"down", func(r *rig) { r.SetPort(2, false) }, false},
		{"down again", func(r *rig) { r.SetPort(2, false); r.SetPort(2, false) }, false},
	} {
		r := settledRig(t, 4, 1)
		c.do(r)
		if got := r.until(11 * time.Second); (len(got) != 0) != c.queries {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Queries come from the address of the switch, or from a fixed one if it has none; the capture says
// why they were sent, and that reports go to routers alone.
func TestNotesOfSnooping(t *testing.T) {
	for _, own := range []wire.MAC{{}, ownMAC} {
		r := newRig(t, 2, &testProgram{}, func(c *Config) { c.Self.MAC = own })
		r.Observe(true)
		r.send(1, report(1, joins, group4))
		from := own
		if own == (wire.MAC{}) {
			from = defaultQuerier
		}
		for _, f := range r.out.Frames {
			var m wire.Membership
			if m.Parse(f.Data) != nil || wire.MAC(f.Data[6:12]) != from {
				t.Errorf("a query from %v", wire.MAC(f.Data[6:12]))
			}
			if m.Group.Is6() && m.Source != verbs.LinkLocalGID(from).Addr() {
				t.Errorf("a query from %v", m.Source)
			}
		}
		const ask = `out%d "the switch asks for members" -1`
		want := []string{`in "read by the switch" -1`, fmt.Sprintf(ask, 0), fmt.Sprintf(ask, 0), fmt.Sprintf(ask, 1), fmt.Sprintf(ask, 1)}
		if got := r.peers(); got != strings.Join(want, "; ") {
			t.Errorf("%s", got)
		}
		if r.send(0, plain(mac(0), mac(9))); r.peers() != "" {
			t.Errorf("another frame: %s", r.peers())
		}
	}
	r := withSelf(t, &testProgram{})
	r.Observe(true)
	r.send(1, bytesOf(t, arpAsk))
	if got := r.peers(); got != `in "answered by the switch" -1; out1 "the switch's own address" -1` {
		t.Errorf("%s", got)
	}
	if r.send(0, plain(mac(0), mac(9))); r.peers() != "" {
		t.Errorf("another frame: %s", r.peers())
	}
}

// Reports go to the routers that are up and that no partition separates from the host.
func TestReportsGoToRouters(t *testing.T) {
	r := settledRig(t, 5, 1)
	for _, port := range []int{2, 3, 4} {
		q := wire.Membership{Query: true, Source: netip.AddrFrom4([4]byte{10, 0, 0, byte(port)}), Group: netip.IPv4Unspecified(), MaxResponse: 10 * time.Second}
		r.send(port, q.AppendTo(nil, mac(port)))
	}
	r.want("report", r.send(1, report(1, joins, group4)), "[2 3 4]")
	r.Partition([]int{0, 0, 1, 0, 0})
	r.want("partition", r.send(1, report(1, joins, group4)), "[3 4]")
	r.want("of a router", r.send(3, report(3, joins, group4)), "[4]")
}

// A switch with one address answers for it, and forwards nothing that claims to come from it.
func TestSwitchOfOneAddress(t *testing.T) {
	r := newRig(t, 3, &testProgram{}, func(c *Config) { c.Self = Self{MAC: ownMAC, Addrs: []netip.Addr{ownIP4}} })
	r.want("request", r.send(1, bytesOf(t, arpAsk)), "[1]")
	f := roceFrame(0, 1, 1, "x")
	f.IPv4.Src = ownIP4.As4()
	r.want("forged", r.send(0, f.AppendTo(nil)), "[]")
	if n := r.Port(0).Drops[ReasonBadSource]; n != 1 {
		t.Errorf("%d drops", n)
	}
	r.want("too short for an Ethernet header", r.send(0, plain(mac(0), mac(1))[:14]), "[1]")
}

// Only a neighbour solicitation of the link is answered: a message that a router has forwarded, of
// another type or code, or that is too short is not, even if its checksum is right.
func TestOtherNeighborMessages(t *testing.T) {
	r := withSelf(t, &testProgram{})
	const ip, msg = 14, 14 + 40
	for what, change := range map[string]func(b []byte) []byte{
		"forwarded": func(b []byte) []byte { b[ip+7]--; return b },
		"type":      func(b []byte) []byte { b[msg] = neighborAnswer; return b },
		"code":      func(b []byte) []byte { b[msg+1] = 1; return b },
		"target":    func(b []byte) []byte { b[msg+23]++; return b },
		"short":     func(b []byte) []byte { b[ip+5] = neighborLen - 1; return b },
	} {
		b := change(bytesOf(t, neighborAskText))
		var h wire.IPv6
		if err := h.Parse(b[ip:]); err != nil {
			t.Fatal(err)
		}
		m := b[msg : msg+int(h.PayloadLen)]
		m[2], m[3] = 0, 0
		sum := icmpv6Sum(&h, m)
		m[2], m[3] = byte(sum>>8), byte(sum)
		r.want(what, r.send(1, b), "[0 2]")
	}
}

// The checksum of ICMPv6 is the one's complement sum of RFC 1071: an odd byte counts as the upper
// half of a word, and each carry is added.
func TestChecksumOfICMPv6(t *testing.T) {
	for _, c := range []struct {
		msg  []byte
		want uint16 // with the length and the number 58 of ICMPv6
	}{
		{nil, ^uint16(58)},
		{[]byte{0xab}, ^uint16(59 + 0xab00)},
		{[]byte{0, 1, 0xab}, ^uint16(61 + 1 + 0xab00)},
		{[]byte{0xff, 0xff - 60}, ^uint16(0xffff)},
		{[]byte{0xff, 0x100 - 60}, ^uint16(1)},
		{[]byte{0xff, 0xff, 0xff, 0xff}, ^uint16(62)},
	} {
		if got := icmpv6Sum(&wire.IPv6{}, c.msg); got != c.want {
			t.Errorf("% x: %#x, want %#x", c.msg, got, c.want)
		}
	}
}

// A program is told that the switch does not know an address, or no longer.
func TestUnknownAddresses(t *testing.T) {
	var got []int
	r, _ := withProgram(t, func(c *Ctx, _ *Parsed) Verdict {
		got = append(got, c.Lookup(mac(0)), c.Lookup(mac(1)), c.Lookup(mac(9)))
		return Consume()
	})
	r.send(0, roce(0, 1, 1, "x"))
	r.now = clock.Time(time.Hour)
	r.send(0, roce(0, 1, 1, "x"))
	if want := []int{0, 1, -1, 0, -1, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
