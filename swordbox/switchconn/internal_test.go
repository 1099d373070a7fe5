package switchconn

import (
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

var server = netip.MustParseAddr("10.77.0.3")

// newDialer returns a Dialer that resolves the MAC address of any server.
func newDialer(t *testing.T) *Dialer {
	t.Helper()
	d, err := New(Config{
		MAC: wire.MAC{2, 0, 0, 0, 0, 9}, IPv4: netip.MustParseAddr("10.77.0.1"), Rand: rand.New(rand.NewPCG(1, 2)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{2, 0, 0, 0, 0, 3}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// at is a context without observers, for calls that send nothing.
func at(now clock.Time) *pipeline.Ctx { return &pipeline.Ctx{Now: now} }

// The switch's GUID in management datagrams is the EUI-64 of its MAC address.
func TestGUID(t *testing.T) {
	if g := verbs.EUI64(wire.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}); g != 0x001122fffe334455 {
		t.Errorf("%#x", g)
	}
}

// The pause doubles from its least to its longest, and does not overflow.
func TestBackOffDoubles(t *testing.T) {
	want := minBackOff
	for n := range 100 {
		if got := backOff(n); got != want {
			t.Errorf("pause %d is %v, want %v", n, got, want)
		}
		want = min(2*want, maxBackOff)
	}
}

// fixed is a source of one number.
type fixed uint64

func (f fixed) Uint64() uint64 { return uint64(f) }

// When no free QPN is found, the attempt fails and says so.
func TestNoQPNIsFree(t *testing.T) {
	d := newDialer(t)
	d.cfg.Rand = rand.New(fixed(1 << 63))
	first, ok := d.newQPN()
	if !ok || first < firstQPN || first > lastQPN {
		t.Fatalf("%#x, %v", uint32(first), ok)
	}
	d.byQPN[first] = &link{}
	if n, ok := d.newQPN(); ok || n != 0 {
		t.Errorf("%#x, %v; the only number is taken", uint32(n), ok)
	}
	k := Key{Server: server}
	d.Want(k, Target{Service: "memory"})
	d.dial(at(100), d.byKey[k])
	if i := d.List()[0]; i.State != Waiting || i.Attempts != 1 || i.Error != "no QPN is free" || i.Next != clock.Time(100).Add(minBackOff) {
		t.Errorf("%+v", i)
	}
	if st := d.Stats(); st.Dialed != 1 || st.Failed != 1 {
		t.Errorf("%+v", st)
	}
}

// The Dialer says why there is no connection: as long as the last attempt has failed, and if it has no
// room for one.
func TestMissing(t *testing.T) {
	d := newDialer(t)
	k := Key{Server: server}
	d.Want(k, Target{Service: "memory"})
	l := d.byKey[k]
	if why := d.Missing(k); why != "" {
		t.Errorf("before the first attempt: %q", why)
	}
	l.state.on(chDial)
	d.failed(at(100), l, "the server does not answer")
	if why := d.Missing(k); why != "the server does not answer" {
		t.Errorf("after an attempt: %q", why)
	}
	l.state.on(chDial)
	if why := d.Missing(k); why != "the server does not answer" {
		t.Errorf("during the next attempt: %q", why)
	}
	d.up(l, Shared{Key: k, OwnQPN: 0x10})
	if why := d.Missing(k); why != "" {
		t.Errorf("while it is up: %q", why)
	}
	for shard := 1; d.Room(); shard++ {
		d.Want(Key{Server: server, Shard: shard}, Target{Service: "memory"})
	}
	if why := d.Missing(Key{Server: server, Shard: 1 << 9}); !strings.Contains(why, "the maximum") {
		t.Errorf("no room: %q", why)
	}
}

// A second Want sets the target of the next attempt; beyond the bound a connection is refused.
func TestWantAgainAndTooMany(t *testing.T) {
	d := newDialer(t)
	for i := range MaxShared {
		d.Want(Key{Server: server, Shard: i}, Target{Service: "memory"})
	}
	k := Key{Server: server, Shard: 1}
	d.byKey[k].want = false
	d.Want(k, Target{Service: "other", Depth: 3})
	if l := d.byKey[k]; !l.want || l.target != (Target{Service: "other", Depth: 3}) || d.Stats().Refused != 0 {
		t.Errorf("%+v", l)
	}
	d.Want(Key{Server: server, Shard: MaxShared}, Target{})
	s := Shared{Key: Key{Server: server, Shard: MaxShared}, ServerQPN: 0x99, OwnQPN: 0x77, MTU: 1024, Depth: 1}
	if err := d.Adopt(s); err == nil || !strings.Contains(err.Error(), "the maximum") {
		t.Errorf("adopted beyond the bound: %v", err)
	}
	if len(d.List()) != MaxShared || d.Stats().Refused != 2 {
		t.Errorf("%d connections, %+v", len(d.List()), d.Stats())
	}
}

// Each adopted connection has a generation of its own.
func TestGenerationsOfAdopted(t *testing.T) {
	d := newDialer(t)
	for i := range 3 {
		s := Shared{Key: Key{Server: server, Shard: i}, ServerQPN: 0x99, OwnQPN: wire.QPN(0x70 + i), MTU: 1024, Depth: 1}
		if err := d.Adopt(s); err != nil {
			t.Fatal(err)
		}
		e, ok := d.Next()
		if !ok || e.Kind != EventUp || e.Shared.Generation != uint32(i+1) || !e.Shared.Adopted {
			t.Errorf("%+v", e)
		}
	}
}

// Only a refusal for the path MTU that names a valid one lowers the MTU of the next attempt.
func TestLargestMTUOfAServer(t *testing.T) {
	for name, c := range map[string]struct {
		reason mad.Reason
		n      uint8
		code   byte
		want   verbs.MTU
	}{
		"names 1024":     {mad.ReasonInvalidMTU, 1, 3, verbs.MTU1024},
		"names none":     {mad.ReasonInvalidMTU, 0, 3, 0},
		"names code 0":   {mad.ReasonInvalidMTU, 1, 0, 0},
		"names code 6":   {mad.ReasonInvalidMTU, 1, 6, 0},
		"another reason": {mad.ReasonNoResources, 1, 3, 0},
	} {
		d := newDialer(t)
		k := Key{Server: server}
		d.Want(k, Target{Service: "memory"})
		l := d.byKey[k]
		d.rejected(at(0), l, &mad.REJ{Reason: c.reason, InfoLen: c.n, Info: [mad.REJInfo]byte{c.code}})
		if l.largest != c.want || !strings.HasPrefix(l.err, "the server refuses: ") {
			t.Errorf("%s: largest %d, %q", name, l.largest, l.err)
		}
		if m, want := d.mtu(l), min(verbs.MTU4096, max(c.want, 0)); c.want != 0 && m != want || c.want == 0 && m != verbs.MTU4096 {
			t.Errorf("%s: asks for %d", name, m)
		}
	}
}

// Only connections that fail soon after they came up pause the next attempt, each longer than the
// one before; one that was up for long starts over. The connection manager keeps none of them.
func TestPauseAfterAConnection(t *testing.T) {
	d := newDialer(t)
	k := Key{Server: server}
	d.Want(k, Target{Service: "memory"})
	l := d.byKey[k]
	now := clock.Time(0)
	for i, c := range []struct {
		up, pause time.Duration
	}{
		{time.Millisecond, minBackOff},
		{time.Millisecond, 2 * minBackOff},
		{soon, 0},
		{soon - 1, minBackOff},
	} {
		l.state, l.since, l.want = Up, now, true
		l.shared = Shared{Key: k, ServerQPN: 5, OwnQPN: wire.QPN(0x100 + i)}
		now = now.Add(c.up)
		d.end(at(now), l, "it has failed")
		if got := l.next.Sub(now); got != c.pause || l.state != Ending {
			t.Errorf("end %d: pause %v, want %v; state %v", i, got, c.pause, l.state)
		}
		d.forgetFormer(0)
	}
}

// The datagrams that end a connection of a former incarnation are repeated, with growing pauses;
// all but the first count as retries.
func TestRepeatedDREQs(t *testing.T) {
	d := newDialer(t)
	d.cfg.Resolve = func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false } // so that the datagrams are lost
	f := &former{}
	f.conn.Server = server
	d.former = append(d.former, f)
	now := clock.Time(0)
	for i, want := range []time.Duration{30, 60, 120, 240, 480, 1000, 1000} {
		d.endFormer(at(now))
		if got := f.next.Sub(now); got != want*time.Millisecond || d.Stats().Retries != uint64(i) {
			t.Errorf("datagram %d: pause %v, %d retries", i, got, d.Stats().Retries)
		}
		now = f.next
	}
	if d.Clear(server) || d.AllClear() {
		t.Error("it is clear too early")
	}
	d.endFormer(at(clock.Time(0).Add(maxTransit) - 1))
	if d.AllClear() {
		t.Error("it is clear too early")
	}
	f.next = 0
	d.endFormer(at(f.until))
	if !d.AllClear() || d.Stats().Abandoned != 1 {
		t.Errorf("%+v", d.Stats())
	}
}

// The connection manager keeps no connection that the Dialer has ended.
func TestEndedConnectionsAreForgotten(t *testing.T) {
	d := newDialer(t)
	d.cfg.Resolve = func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false }
	k := Key{Server: server}
	d.Want(k, Target{Service: "memory"})
	l := d.byKey[k]
	d.owners++
	l.owner, l.state = d.owners, Up
	d.byConn[l.owner] = l
	var err error
	l.conn, err = d.m.Connect(0, l.owner, d.cfg.IPv4, server, mad.REQ{Service: cm.ServiceOf("memory").ID, QPN: 0x55, MTU: 3}, &d.acts)
	if err != nil {
		t.Fatal(err)
	}
	d.acts.Reset()
	d.end(at(0), l, "it has failed")
	if live, _ := d.m.Conns(); live != 0 {
		t.Errorf("%d connections are kept", live)
	}
}

// The largest path MTU is asked for of which a packet with all headers fits the link.
func TestMTUOfALink(t *testing.T) {
	for _, c := range []struct {
		server string
		link   int
		target int
		want   verbs.MTU
	}{
		{"10.77.0.3", 4096 + 64, 0, verbs.MTU4096},
		{"10.77.0.3", 4096 + 63, 0, verbs.MTU2048},
		{"fd00:77::3", 4096 + 84, 0, verbs.MTU4096},
		{"fd00:77::3", 4096 + 83, 0, verbs.MTU2048},
		{"10.77.0.3", 512 + 64, 0, verbs.MTU512},
		{"10.77.0.3", 512 + 63, 0, verbs.MTU256},
		{"10.77.0.3", 100, 0, verbs.MTU256},
		{"10.77.0.3", 9000, 1024, verbs.MTU1024},
		{"10.77.0.3", 1500, 4096, verbs.MTU1024},
	} {
		d := newDialer(t)
		d.cfg.LinkMTU = c.link
		k := Key{Server: netip.MustParseAddr(c.server)}
		d.Want(k, Target{Service: "memory", MTU: c.target})
		if got := d.mtu(d.byKey[k]); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// The switch's QPNs are all valid ones but 0, 1, those below the first, and that of multicast.
func TestRangeOfQPNs(t *testing.T) {
	for src, want := range map[fixed]wire.QPN{1 << 32: firstQPN, 1<<64 - 1: lastQPN} {
		d := newDialer(t)
		d.cfg.Rand = rand.New(src)
		if n, ok := d.newQPN(); !ok || n != want {
			t.Errorf("the random number %#x makes QPN %#x, want %#x", uint64(src), uint32(n), uint32(want))
		}
	}
}

// Only a DREP of the same server, with the numbers that both ends gave the connection, shows that the
// server has ended it.
func TestDREPThatConfirms(t *testing.T) {
	const own, peers = 0x1111, 0x2222
	drep := func(local, remote mad.CommID) []byte {
		return mad.Append(nil, 7, &mad.DREP{LocalID: local, RemoteID: remote})
	}
	for name, c := range map[string]struct {
		from string
		b    []byte
		want bool
	}{
		"as it is":         {server.String(), drep(peers, own), true},
		"of another host":  {"10.77.0.4", drep(peers, own), false},
		"of another end":   {server.String(), drep(peers+1, own), false},
		"of another of us": {server.String(), drep(peers, own+1), false},
		"the other way":    {server.String(), drep(own, peers), false},
		"a DREQ":           {server.String(), mad.Append(nil, 7, &mad.DREQ{LocalID: peers, RemoteID: own}), false},
		"cut off":          {server.String(), drep(peers, own)[:20], false},
	} {
		d := newDialer(t)
		d.confirmed(server, drep(peers, own)) // there is no former connection
		f := &former{}
		f.conn.Server, f.conn.OwnID, f.conn.ServerID = server, own, peers
		d.former = append(d.former, f)
		if d.confirmed(netip.MustParseAddr(c.from), c.b); d.Clear(server) != c.want || (d.Stats().Ended == 1) != c.want {
			t.Errorf("%s: clear %v, %+v", name, d.Clear(server), d.Stats())
		}
	}
}
