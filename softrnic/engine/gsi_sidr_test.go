package engine

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// ask sends b a SIDR request for a datagram service and runs until nothing is in flight.
func ask(t *testing.T, p *pair, s mad.ServiceID) *CMConn {
	t.Helper()
	c, err := gsi(t, p.a.e).Resolve(p.now, ipA, ipB, mad.SIDRReq{Service: s, PKey: wire.DefaultPKey}, &p.a.out)
	if err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	return c
}

// A service for connections rejects a SIDR request, and a datagram service rejects a connection
// request. A SIDR request that finds a full list is rejected, and one that the application does not
// answer in time is forgotten (IBTA 12.11).
func TestQuestionsAndConnections(t *testing.T) {
	p := unconnected(t)
	g := gsi(t, p.b.e)
	if _, err := g.Listen(testService, netip.Prefix{}, 4); err != nil {
		t.Fatal(err)
	}
	l, err := g.ListenDatagrams(testService+1, netip.Prefix{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if c := ask(t, p, testService); c.Answered == nil || c.Answered.Status != mad.SIDRUnsupported {
		t.Errorf("a question after connections: %+v", c.Answered)
	}
	c, err := gsi(t, p.a.e).Connect(p.now, ipA, ipB, mad.REQ{Service: testService + 1, QPN: p.a.qp.Num(), MTU: 3, PKey: wire.DefaultPKey}, &p.a.out)
	if err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	if c.End != cm.EventRejected {
		t.Errorf("a connection to a datagram service: %v", c.End)
	}
	first := ask(t, p, testService+1)
	if c := ask(t, p, testService+1); c.Answered == nil || c.Answered.Status != mad.SIDRNoQP {
		t.Errorf("a question too many: %+v", c.Answered)
	}
	p.run(t, p.now+100*second)
	if first.Answered != nil && first.Answered.Status == mad.SIDRValid || first.End == 0 && first.Answered == nil {
		t.Errorf("a question that was not taken: %+v", first)
	}
	if c := l.Next(); c != nil {
		t.Errorf("it is still there: %+v", c)
	}
	if _, err := gsi(t, p.a.e).Resolve(p.now, ipA, ip6B, mad.SIDRReq{}, &p.a.out); err == nil {
		t.Error("a question to another family is sent")
	}
	again := ask(t, p, testService+1)
	r := l.Next()
	if r == nil || r.Ask == nil || r.Peer != ipA {
		t.Fatalf("no question: %+v", r)
	}
	if err := g.Answer(p.now, r, mad.SIDRRep{QPN: 5, QKey: 6}, &p.b.out); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	if again.Answered == nil || again.Answered.QPN != 5 || again.Answered.QKey != 6 || again.Answered.Service != testService+1 {
		t.Errorf("answer %+v", again.Answered)
	}
	p.a.e.Down(0)
	if _, err := p.a.e.GSI(); err == nil {
		t.Error("a NIC that is down asks")
	}
}
