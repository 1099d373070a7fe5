package cm

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Listeners of one service at different addresses each get the requests to theirs; a request to
// another address of the NIC is refused as the kernel's connection manager does.
func TestListenersByAddress(t *testing.T) {
	at := func(s string) netip.Prefix { return netip.MustParsePrefix(s) }
	n := newNode(t, "b", 1, nil)
	must(t, n.m.Listen(testService, at("0.0.0.0/0"), 4))
	must(t, n.m.Listen(testService, at("fd00:77::2/128"), 6))
	for _, taken := range []netip.Prefix{{}, at("10.77.0.2/32"), at("::/0"), at("fd00:77::2/128")} {
		if err := n.m.Listen(testService, taken, 7); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("a listener at %v: %v", taken, err)
		}
	}
	must(t, n.m.Listen(testService, at("fd00:77::3/128"), 8))
	n.m.Unlisten(testService, 8)
	must(t, n.m.Listen(testService+1, netip.Prefix{}, 9))
	must(t, n.m.Listen(testService+3, at("10.77.0.2/32"), 10)) // the only one of its service

	for i, c := range []struct {
		local   string
		service mad.ServiceID
		owner   uint64 // 0: refused
		reason  mad.Reason
		status  mad.SIDRStatus
	}{
		{local: "10.77.0.2", service: testService, owner: 4},
		{local: "10.77.0.3", service: testService, owner: 4},
		{local: "fd00:77::2", service: testService, owner: 6},
		{local: "fd00:77::3", service: testService, reason: mad.ReasonConsumer, status: mad.SIDRNoQP},
		{local: "fd00:77::3", service: testService + 1, owner: 9},
		{local: "fd00:77::3", service: testService + 2, reason: mad.ReasonInvalidService, status: mad.SIDRUnsupported},
		{local: "10.77.0.3", service: testService + 3, reason: mad.ReasonConsumer, status: mad.SIDRNoQP},
	} {
		local := netip.MustParseAddr(c.local)
		req := &mad.REQ{
			LocalID: mad.CommID(i + 1), Service: c.service, QPN: wire.QPN(0x40 + i), MTU: 3, PKey: 0xffff,
			Primary: mad.Path{RemoteGID: local.As16()},
		}
		for _, msg := range []mad.Message{req, &mad.SIDRReq{RequestID: mad.CommID(i + 1), Service: c.service, PKey: 0xffff}} {
			n.out.Reset()
			n.m.Handle(0, Way{local, netip.MustParseAddr("fd00:77::9"), 0xffff}, mad.Append(nil, 7, msg), &n.out)
			if c.owner != 0 {
				if len(n.out.Events) != 1 || n.out.Events[0].Owner != c.owner {
					t.Errorf("%v: events %v, want owner %d", c, n.out.Events, c.owner)
				}
				continue
			}
			switch r := only(t, n).(type) {
			case *mad.REJ:
				if r.Reason != c.reason {
					t.Errorf("%v: refused for %v, want %v", c, r.Reason, c.reason)
				}
			case *mad.SIDRRep:
				if r.Status != c.status {
					t.Errorf("%v: refused with %v, want %v", c, r.Status, c.status)
				}
			}
		}
	}
}
