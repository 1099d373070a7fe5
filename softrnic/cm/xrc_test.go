package cm

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// The answer to a request for XRC has the number of the target in the place of an EE context, and says that the
// target has shared receive queues. The initiator's owner finds it as the number of any queue pair (annex A14).
func TestNumberOfATarget(t *testing.T) {
	a, b := newNode(t, "a", 1, nil), newNode(t, "b", 2, nil)
	must(t, b.m.Listen(testService, netip.Prefix{}, 9))
	req := mad.REQ{Service: testService, QPN: 0x40, MTU: 3, PKey: 0xffff, Type: mad.TypeExtended, ExtendedType: mad.ExtendedXRC}
	_, err := a.m.Connect(0, 1, addrs["a"], addrs["b"], req, &a.out)
	must(t, err)
	if asked := only(t, a).(*mad.REQ); !asked.XRC() {
		t.Errorf("%+v", asked)
	}
	b.m.Handle(0, Way{addrs["b"], addrs["a"], 0xffff}, a.out.Tx[0].MAD[:], &b.out)
	must(t, b.accept(0, b.out.Events[0].Conn, 0x41))
	rep := only(t, b).(*mad.REP)
	if rep.QPN != 0 || rep.LocalEECN != 0x41 || !rep.SRQ || rep.Pair() != 0x41 {
		t.Errorf("%+v", rep)
	}
	a.m.Handle(0, Way{addrs["a"], addrs["b"], 0xffff}, b.out.Tx[0].MAD[:], &a.out)
	if n := len(a.out.Events); n != 1 || a.out.Events[0].Message.(*mad.REP).QPN != 0x41 {
		t.Errorf("%d events: %+v", n, a.out.Events)
	}
}
