package engine

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The end of a NIC ends its connections and listeners, and of what it had for itself nothing is
// delivered to the next incarnation.
func TestDownEndsConnections(t *testing.T) {
	p := unconnected(t)
	l := made(gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 4))
	_, b := establish(t, p, l, 0)
	p.b.e.tx.loop.Add(0, nil)
	p.b.e.Down(0)
	if !b.Dead() || !l.Dead() {
		t.Errorf("the connection is dead: %v, the listener: %v", b.Dead(), l.Dead())
	}
	p.b.e.Up()
	if n := len(p.b.e.tx.loop.Frames); n != 0 || p.b.e.Deadline() != clock.Never {
		t.Errorf("%d frames wait, deadline %v", n, p.b.e.Deadline())
	}
}

// A service whose listener has ended may have another one; requests that found no place are refused
// once.
func TestListenersInTurn(t *testing.T) {
	p := unconnected(t)
	g := gsi(t, p.b.e)
	l := made(g.Listen(testService, netip.Prefix{}, 1))
	for range 2 {
		qp := made(p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{}))
		made(gsi(t, p.a.e).Connect(p.now, ipA, ipB, mad.REQ{Service: testService, QPN: qp.Num(), MTU: 3, PKey: wire.DefaultPKey}, &p.a.out))
	}
	p.settle(t)
	if len(g.refused) != 0 || l.Next() == nil {
		t.Errorf("%d refusals wait", len(g.refused))
	}
	g.Unlisten(p.now, l, &p.b.out)
	if _, err := g.Listen(testService, netip.Prefix{}, 1); err != nil {
		t.Error(err)
	}
}

// A request for a connection names the hop limit of the packets, unless its caller has chosen one.
func TestHopLimitOfAConnection(t *testing.T) {
	for chosen, want := range map[uint8]uint8{0: 64, 9: 9} {
		p := unconnected(t)
		req := mad.REQ{Service: testService, QPN: p.a.qp.Num(), MTU: 3, PKey: wire.DefaultPKey, Primary: mad.Path{HopLimit: chosen}}
		made(gsi(t, p.a.e).Connect(p.now, ipA, ipB, req, &p.a.out))
		f := parse(t, p.a.out.Frames[0].Data)
		var h mad.Header
		msg, err := mad.Parse(f.Payload, &h)
		if err != nil {
			t.Fatal(err)
		}
		if got := msg.(*mad.REQ).Primary.HopLimit; got != want {
			t.Errorf("hop limit %d became %d, want %d", chosen, got, want)
		}
	}
}

// A call that fails still carries out what it has found to do: the connection of a queue pair that
// was destroyed ends.
func TestRefusedConnectEndsOthers(t *testing.T) {
	p := unconnected(t)
	l := made(gsi(t, p.b.e).Listen(testService, netip.Prefix{}, 4))
	establish(t, p, l, 0)
	p.settle(t)
	other := made(p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{}))
	req := mad.REQ{Service: testService, QPN: other.Num(), MTU: 3, PKey: wire.DefaultPKey}
	made(gsi(t, p.a.e).Connect(p.now, ipA, ipB, req, &p.a.out))
	if err := p.a.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	p.a.out.Reset()
	_, err := gsi(t, p.a.e).Connect(p.now, ipA, ipB, req, &p.a.out)
	wantErr(t, "a queue pair with a connection", err, verbs.ErrBusy)
	if n := len(p.a.out.Frames); n != 1 {
		t.Errorf("%d frames, want the DREQ", n)
	}
}

// Of several addresses of a family, the first one is the source of reports.
func TestSourceOfReports(t *testing.T) {
	s := udSide(t, newEngine(t, "a", 1, macA, nil, ipA, ip6A, ipB))
	attach(t, s, testGroups[0])
	if m := membership(t, s); len(m) != 1 || m[0].Source != ipA {
		t.Errorf("%+v", m)
	}
}

// A queue pair that attaches to nothing else leaves nothing, and DetachAll stops at its last
// attachment.
func TestDetachAllOfOne(t *testing.T) {
	p := newUDPair(t, nil)
	other := udSide(t, p.b.e)
	p.b.qp.DetachAll(&p.b.out) // it has none
	attach(t, other, testGroups[0])
	attach(t, p.b, testGroups[1])
	p.b.qp.DetachAll(&p.b.out)
	if p.b.qp.attached != 0 || other.qp.attached != 1 || len(p.b.e.Tables.groups.order) != 1 {
		t.Errorf("%d and %d attachments, %d groups", p.b.qp.attached, other.qp.attached, len(p.b.e.Tables.groups.order))
	}
}

// An overflow fails the live queue pairs of the queue, whose requests are flushed at once, and says
// nothing of one in RESET or one that has failed before.
func TestOverflowSparesTheDead(t *testing.T) {
	p := newPair(t, nil)
	e := p.b.e
	small := made(e.CreateCQ(1))
	idle := made(e.CreateQP(p.b.pd, small, small, verbs.QPInit{})) // in RESET
	failed := made(e.CreateQP(p.b.pd, small, small, verbs.QPInit{}))
	live := made(e.CreateQP(p.b.pd, p.b.cq, small, verbs.QPInit{}))
	connect(t, 0, failed, p.a.qp, 0, verbs.MTU1024)
	connect(t, 0, live, p.a.qp, 0, verbs.MTU1024)
	if err := failed.ToError(0, &p.b.out); err != nil {
		t.Fatal(err)
	}
	if err := live.PostSend(0, []verbs.SendWR{{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: p.a.base, RKey: p.a.key}}, &p.b.out); err != nil {
		t.Fatal(err)
	}
	drainEvents(e)
	if err := failed.PostSend(0, []verbs.SendWR{{Flags: verbs.Signalled}, {Flags: verbs.Signalled}}, &p.b.out); err != nil {
		t.Fatal(err)
	}
	if wc := p.b.poll(t); len(wc) != 1 || wc[0].Status != verbs.WRFlushErr {
		t.Errorf("the live one's request: %+v", wc)
	}
	var fatal []wire.QPN
	for ev, ok := e.Events.NextAsyncEvent(); ok; ev, ok = e.Events.NextAsyncEvent() {
		if ev.Kind == verbs.EventQPFatal {
			fatal = append(fatal, ev.QPN)
		}
	}
	if !slices.Equal(fatal, []wire.QPN{live.Num()}) {
		t.Errorf("failed %v, want %v; %v is in RESET", fatal, live.Num(), idle.Num())
	}
}

// What completes nothing is no activity, so that no thread is woken for it.
func TestActivity(t *testing.T) {
	p := newPair(t, nil)
	write := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key}
	p.post(t, p.a, write)
	a, b := p.a.e.Events.Activity(), p.b.e.Events.Activity()
	p.settle(t)
	if p.a.e.Events.Activity() == a || p.b.e.Events.Activity() != b {
		t.Errorf("activity of %d and %d steps", p.a.e.Events.Activity()-a, p.b.e.Events.Activity()-b)
	}
}

// The smallest path MTU fits into the smallest link MTU exactly. Frames leave by port 0.
func TestSmallestLinkMTU(t *testing.T) {
	smallest := int(verbs.MTU256) + ipv4Overhead
	e := newEngine(t, "a", 1, macA, func(c *Config) { c.LinkMTU = smallest }, ipA)
	cfg := e.cfg
	cfg.LinkMTU--
	if cfg.Validate() == nil {
		t.Errorf("a link MTU of %d", cfg.LinkMTU)
	}
	p := newPair(t, nil)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	if port := p.a.out.Frames[0].Port; port != 0 {
		t.Errorf("port %d", port)
	}
}
