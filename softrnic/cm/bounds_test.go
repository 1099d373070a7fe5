package cm

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// only is the one datagram that a step has sent.
func only(t *testing.T, n *node) mad.Message {
	t.Helper()
	if len(n.out.Tx) != 1 {
		t.Fatalf("%d datagrams", len(n.out.Tx))
	}
	_, m := decode(t, n.out.Tx[0].MAD[:])
	return m
}

// The first and the last value of a field that can be served is, and the ones beside them are not.
func TestBoundsOfARequest(t *testing.T) {
	for _, c := range []struct {
		change func(*mad.REQ)
		want   mad.Reason // 0: it is reported
	}{
		{func(r *mad.REQ) { r.MTU = 0 }, mad.ReasonInvalidMTU},
		{func(r *mad.REQ) { r.MTU = 1 }, 0},
		{func(r *mad.REQ) { r.MTU = 5 }, 0},
		{func(r *mad.REQ) { r.MTU = 6 }, mad.ReasonInvalidMTU},
		{func(r *mad.REQ) { r.QPN = 1 }, mad.ReasonUnsupported},
		{func(r *mad.REQ) { r.QPN = 2 }, 0},
		{func(r *mad.REQ) { r.QPN = 0xfffffe }, 0},
		{func(r *mad.REQ) { r.QPN = 0xffffff }, mad.ReasonUnsupported},
		{func(r *mad.REQ) { r.Type = 1 }, 0},
		{func(r *mad.REQ) { r.Type = 2 }, mad.ReasonInvalidType},
		{func(r *mad.REQ) { r.Type, r.ExtendedType = mad.TypeExtended, mad.ExtendedXRC }, 0},
		{func(r *mad.REQ) { r.Type = mad.TypeExtended }, mad.ReasonInvalidType},
		{func(r *mad.REQ) { r.Type, r.ExtendedType = mad.TypeExtended, 2 }, mad.ReasonInvalidType},
	} {
		n := newNode(t, "b", 1, nil)
		must(t, n.m.Listen(testService, netip.Prefix{}, 9))
		req := &mad.REQ{LocalID: 5, Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Primary: mad.Path{RemoteGID: addrs["b"].As16()}}
		c.change(req)
		n.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, mad.Append(nil, 7, req), &n.out)
		if c.want == 0 {
			if len(n.out.Events) != 1 || n.out.Events[0].Kind != EventRequest || len(n.out.Tx) != 0 {
				t.Errorf("type %d, MTU %d, QPN %#x: events %v, %d datagrams", req.Type, req.MTU, uint32(req.QPN), n.out.Events, len(n.out.Tx))
			}
			continue
		}
		if rej, ok := only(t, n).(*mad.REJ); !ok || rej.Reason != c.want || rej.RemoteID != 5 || len(n.out.Events) != 0 {
			t.Errorf("type %d, MTU %d, QPN %#x: %+v, events %v", req.Type, req.MTU, uint32(req.QPN), rej, n.out.Events)
		}
	}
}

// An RTU for a connection that does not exist draws a REJ, so that its sender does not keep what
// this side has forgotten.
func TestRTUOfNoConnection(t *testing.T) {
	n := newNode(t, "b", 1, nil)
	n.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, mad.Append(nil, 7, &mad.RTU{LocalID: 5, RemoteID: 6}), &n.out)
	rej, ok := only(t, n).(*mad.REJ)
	if !ok || rej.RemoteID != 5 || rej.LocalID != 6 || rej.Reason != mad.ReasonInvalidID {
		t.Errorf("%+v", rej)
	}
}

// Release ends what one owner has and leaves others theirs.
func TestReleaseLeavesOthersAlone(t *testing.T) {
	n := newNode(t, "b", 1, nil)
	must(t, n.m.Listen(testService, netip.Prefix{}, 8))
	must(t, n.m.Listen(testService+1, netip.Prefix{}, 9))
	var ids [2]mad.CommID
	for i := range ids {
		req := mad.REQ{Service: testService, QPN: wire.QPN(0x20 + i), MTU: 3, PKey: 0xffff}
		var err error
		ids[i], err = n.m.Connect(0, uint64(8+i), addrs["b"], addrs["a"], req, &n.out)
		must(t, err)
	}
	n.out.Reset()
	n.m.Release(0, 9, &n.out)
	if n.m.State(ids[0]) != REQSent || n.m.State(ids[1]) != Idle {
		t.Errorf("the states are %v and %v", n.m.State(ids[0]), n.m.State(ids[1]))
	}
	if len(n.m.listeners) != 1 || len(n.m.listeners[testService]) != 1 {
		t.Errorf("listeners %v", n.m.listeners)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
