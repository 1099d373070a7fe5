package switchconn

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// plain is a program that forwards everything.
type plain struct{}

func (plain) Spec() pipeline.Spec                                     { return pipeline.Spec{Name: "plain"} }
func (plain) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
func (plain) Tick(*pipeline.Ctx)                                      {}
func (plain) Deadline() clock.Time                                    { return clock.Never }

var server6 = netip.MustParseAddr("fd00:77::3")

// newDialer6 returns a Dialer with addresses of both families, and a switch for it.
func newDialer6(t *testing.T) (*Dialer, *pipeline.Switch) {
	t.Helper()
	d, err := New(Config{
		MAC: wire.MAC{2, 0, 0, 0, 0, 9}, IPv4: netip.MustParseAddr("10.77.0.1"), IPv6: netip.MustParseAddr("fd00:77::1"), Rand: rand.New(rand.NewPCG(1, 2)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{2, 0, 0, 0, 0, 3}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	sw, err := pipeline.New(pipeline.Config{Ports: 1, Program: plain{}})
	if err != nil {
		t.Fatal(err)
	}
	return d, sw
}

// sent runs a step, and returns the packets that leave.
func sent(t *testing.T, sw *pipeline.Switch, now clock.Time, step func(c *pipeline.Ctx)) (list []wire.Frame) {
	t.Helper()
	var out packetio.Batch
	sw.Step(now, &out, step)
	for _, x := range out.Frames {
		var f wire.Frame
		if err := wire.ParseFrame(slices.Clone(x.Data), &f); err != nil || !wire.CheckICRC(x.Data) {
			t.Fatalf("%v: %v", &f, err)
		}
		list = append(list, f)
	}
	return list
}

// Each request for a connection leaves as a datagram with a PSN of its own, and with the headers of its
// family. It asks for the most retries, and for the ACK timeout of rdmacm.
func TestRequestsThatLeave(t *testing.T) {
	d, sw := newDialer6(t)
	for i, a := range []netip.Addr{server, server6, server} {
		d.Want(Key{Server: a, Shard: i}, Target{Service: "memory"})
	}
	got := sent(t, sw, 100, d.Tick)
	if len(got) != 3 {
		t.Fatalf("%d packets", len(got))
	}
	for i, f := range got {
		var h mad.Header
		req := mad.REQ{}
		if err := h.Parse(f.Payload); err != nil || h.Attr != mad.AttrREQ {
			t.Fatalf("%v, %v", h.Attr, err)
		}
		l := d.links[i]
		req, err := d.request(l, &l.shared)
		if err != nil || req.Retry != 7 || req.RNRRetry != 7 || req.Primary.AckTimeout != 15 || req.ResponderResources != 16 {
			t.Errorf("%+v, %v", req, err)
		}
		if f.V6 != (i == 1) || f.UDP.DstPort != wire.UDPPort || f.UDP.SrcPort < 0xc000 || f.BTH.DestQP != 1 || f.DETH.SrcQP != 1 || !f.V6 && !f.IPv4.DF {
			t.Errorf("%+v", f)
		}
		if i > 0 && wire.Diff(f.BTH.PSN, got[i-1].BTH.PSN) != 1 {
			t.Errorf("PSNs %v and %v", got[i-1].BTH.PSN, f.BTH.PSN)
		}
	}
	// Without an answer a datagram is sent again, and counted.
	if again := sent(t, sw, d.Deadline(), d.Tick); len(again) == 0 || d.Stats().Retries != uint64(len(again)) {
		t.Errorf("%d packets again, %d counted", len(again), d.Stats().Retries)
	}
}

// A connection that is not wanted any more while it is made is given up and forgotten: the server's
// answer makes no connection.
func TestUnwantedWhileItIsMade(t *testing.T) {
	d, sw := newDialer6(t)
	k := Key{Server: server}
	d.Want(k, Target{Service: "memory"})
	sent(t, sw, 100, d.Tick)
	l := d.byKey[k]
	owner := l.owner
	sent(t, sw, 200, func(c *pipeline.Ctx) { d.Unwant(c, k) })
	if l.state == Up || l.state == Dialing || len(d.byConn) != 0 || len(d.byQPN) != 0 || d.HasNext() {
		t.Errorf("state %v, %d attempts, %d queue pairs", l.state, len(d.byConn), len(d.byQPN))
	}
	sent(t, sw, 300, func(c *pipeline.Ctx) {
		d.event(c, cm.Event{Kind: cm.EventReply, Owner: owner, Conn: 1, Message: &mad.REP{QPN: 5}})
	})
	if d.HasNext() || d.Stats().Established != 0 {
		t.Errorf("%+v", d.Stats())
	}
	// One for which no attempt is made goes at once.
	d.Want(Key{Server: server, Shard: 7}, Target{})
	if d.Unwant(at(300), Key{Server: server, Shard: 7}); d.byKey[Key{Server: server, Shard: 7}] != nil {
		t.Errorf("%+v", d.List())
	}
}

// The reason of a service for its refusal is shown, if it has one.
func TestReasonOfARefusal(t *testing.T) {
	text := func(flagged byte, s string) (b [mad.REJPrivate]byte) {
		b[0] = flagged | byte(len(s))
		copy(b[1:], s)
		return b
	}
	for _, c := range []struct {
		reason  mad.Reason
		private [mad.REJPrivate]byte
		want    string
	}{
		{mad.ReasonConsumer, text(cm.Named, "no room"), ` ("no room")`},
		{mad.ReasonConsumer, text(cm.Named, "x"), ` ("x")`},
		{mad.ReasonConsumer, text(cm.Named, ""), ""},
		{mad.ReasonConsumer, text(0, "no room"), ""},
		{mad.ReasonNoResources, text(cm.Named, "no room"), ""},
		{mad.ReasonInvalidService, text(cm.Named, "no room"), ` (no service "memory" there)`},
	} {
		d := newDialer(t)
		k := Key{Server: server}
		d.Want(k, Target{Service: "memory"})
		d.rejected(at(0), d.byKey[k], &mad.REJ{Reason: c.reason, Private: c.private})
		if got, want := d.List()[0].Error, "the server refuses: "+c.reason.String()+c.want; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	d := newDialer(t)
	d.Want(Key{Server: server}, Target{Service: "memory"})
	if d.rejected(at(0), d.links[0], nil); d.List()[0].Error != "the server refuses" {
		t.Errorf("%+v", d.List())
	}
	// The smallest MTU that it can name is taken.
	d.rejected(at(0), d.links[0], &mad.REJ{Reason: mad.ReasonInvalidMTU, InfoLen: 1, Info: [mad.REJInfo]byte{1}})
	if d.mtu(d.links[0]) != verbs.MTU256 {
		t.Errorf("MTU %d", d.mtu(d.links[0]))
	}
}

// A Dialer needs a random source, a way to MAC addresses, a MAC address and an IP address of either
// family.
func TestConfigOfADialer(t *testing.T) {
	full := Config{
		MAC: wire.MAC{2}, IPv4: netip.MustParseAddr("10.77.0.1"), IPv6: netip.MustParseAddr("fd00:77::1"), Rand: rand.New(rand.NewPCG(1, 2)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false },
	}
	for what, c := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"all":              {func(*Config) {}, ""},
		"IPv4 alone":       {func(c *Config) { c.IPv6 = netip.Addr{} }, ""},
		"IPv6 alone":       {func(c *Config) { c.IPv4 = netip.Addr{} }, ""},
		"no address":       {func(c *Config) { c.IPv4, c.IPv6 = netip.Addr{}, netip.Addr{} }, "IP address"},
		"no MAC":           {func(c *Config) { c.MAC = wire.MAC{} }, "MAC"},
		"no MAC, one IP":   {func(c *Config) { c.MAC, c.IPv4 = wire.MAC{}, netip.Addr{} }, "MAC"},
		"no random source": {func(c *Config) { c.Rand = nil }, "required"},
		"no resolver":      {func(c *Config) { c.Resolve = nil }, "required"},
	} {
		cfg := full
		c.change(&cfg)
		_, err := New(cfg)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", what, err, c.want)
		}
	}
}

// Connections are listed by server and shard, in whatever order they were asked for.
func TestListIsSorted(t *testing.T) {
	d := newDialer(t)
	other := netip.MustParseAddr("10.77.0.2")
	for _, k := range []Key{{server, 2}, {other, 5}, {server, 0}, {other, 1}} {
		d.Want(k, Target{})
	}
	var got []Key
	for _, i := range d.List() {
		got = append(got, i.Key)
	}
	if want := []Key{{other, 1}, {other, 5}, {server, 0}, {server, 2}}; !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
}

// An adopted connection has the headers of the switch's packets, whatever it was given with: its
// packets have one source port. An event says that it is up.
func TestHeadersOfAnAdoptedConnection(t *testing.T) {
	d, _ := newDialer6(t)
	for i, a := range []netip.Addr{server, server6} {
		s := Shared{Key: Key{Server: a}, ServerQPN: 0x50, OwnQPN: wire.QPN(0x60 + i), MTU: 1024, Depth: 1}
		s.To.V6, s.To.Payload, s.To.IPv4.TOS = true, []byte("x"), 3
		if d.HasNext() {
			t.Error("an event before anything has happened")
		}
		if err := d.Adopt(s); err != nil || !d.HasNext() {
			t.Fatal(err)
		}
		e, ok := d.Next()
		to := e.Shared.To
		if !ok || e.Kind != EventUp || to.V6 != a.Is6() || len(to.Payload) != 0 || to.IPv4.TOS != 0 || to.UDP.SrcPort != 0xc000|uint16(s.OwnQPN) ||
			to.UDP.DstPort != wire.UDPPort || to.BTH.DestQP != 0x50 || !e.Shared.Adopted {
			t.Errorf("%+v", e.Shared)
		}
		if want := map[bool]uint16{false: wire.EtherTypeIPv4, true: wire.EtherTypeIPv6}[a.Is6()]; to.Eth.Type != want || !a.Is6() && !to.IPv4.DF {
			t.Errorf("%+v", to)
		}
	}
}

// A target without a depth asks for 16 READs.
func TestDepthOfATarget(t *testing.T) {
	for depth, want := range map[int]int{0: 16, 1: 1, 17: 17} {
		if got := (&Target{Depth: depth}).depth(); got != want {
			t.Errorf("%d: %d, want %d", depth, got, want)
		}
	}
}

// Every byte of the MAC address is in the GUID.
func TestGUIDOfAnyMAC(t *testing.T) {
	if got := verbs.EUI64(wire.MAC{0x16, 0x27, 0x38, 0x49, 0x5a, 0x6b}); got != 0x142738fffe495a6b {
		t.Errorf("%#x", got)
	}
}
