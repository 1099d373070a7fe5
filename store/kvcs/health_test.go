package kvcs

import (
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A client avoids all replicas: one is dead, another one did not answer in time once. It does not ask the dead one
// again and again until the time to avoid that one is over: after a failure it asks the other one.
func TestAClientThatAvoidsAllReplicasAsksThemInTurn(t *testing.T) {
	const rtt = time.Millisecond
	dead, slow := &Remote{Addr: netip.MustParseAddr("10.0.0.1")}, &Remote{Addr: netip.MustParseAddr("10.0.0.2")}
	list := []*Remote{dead, slow}
	h := new(Health)
	at := func(trips int) clock.Time { return clock.Time(0).Add(time.Duration(trips) * rtt) }
	h.failed(at(5), at(0), dead, nic.Timeout, rtt)
	h.failed(at(105), at(100), slow, nic.Timeout, rtt)
	if r := h.choose(at(105), list, 0); r != dead {
		t.Errorf("the client asks %v, and avoids %v least long", r.Addr, dead.Addr)
	}
	h.failed(at(110), at(105), dead, nic.Timeout, rtt)
	if r := h.choose(at(110), list, 0); r != slow {
		t.Errorf("after another failure of %v the client asks it again", r.Addr)
	}
	h.well(slow)
	if r := h.choose(at(111), list, 0); r != slow {
		t.Errorf("the client asks %v, which is dead", r.Addr)
	}
}

// The same if the replica that answers is avoided for much longer than the other one, or if that one sends NACKs.
func TestAvoidedReplicasHaveTheirTurns(t *testing.T) {
	const rtt = time.Millisecond
	for _, s := range []nic.Status{nic.Timeout, nic.NACK, nic.RemoteAuthenticationFailure} {
		bad, good := &Remote{Addr: netip.MustParseAddr("10.0.0.1")}, &Remote{Addr: netip.MustParseAddr("10.0.0.2")}
		h := new(Health)
		now := clock.Time(0)
		for range 4 { // the time to avoid it becomes 1,600 RTT
			now = now.Add(3 * mostAvoidTimeout * rtt)
			h.failed(now.Add(5*rtt), now, good, nic.Timeout, rtt)
		}
		now = now.Add(10 * rtt)
		h.failed(now, now.Add(-5*rtt), bad, s, rtt)
		asked := 0
		for ; asked < 10 && h.choose(now, []*Remote{bad, good}, 0) != good; asked++ {
			now = now.Add(rtt)
			h.failed(now, now.Add(-rtt), bad, s, rtt)
		}
		if asked > 0 {
			t.Errorf("after %v the client asks this replica again %d times", s, asked)
		}
		// An outage: each READ of both fails. The time to avoid them does not grow meanwhile.
		was := h.sick[good.Addr].period
		for range 20 {
			r := h.choose(now, []*Remote{bad, good}, 0)
			now = now.Add(5 * rtt)
			h.failed(now, now.Add(-5*rtt), r, nic.Timeout, rtt)
		}
		if x := h.sick[good.Addr]; x.period != was || h.sick[bad.Addr].period > avoidTimeout*rtt {
			t.Errorf("after an outage the client avoids the replicas for %v and %v", h.sick[bad.Addr].period, x.period)
		}
	}
}

// READs that were in flight when one of them failed say nothing more: the time to avoid the replica doubles once.
func TestREADsInFlightTogetherCountOnce(t *testing.T) {
	const rtt = time.Millisecond
	r := &Remote{Addr: netip.MustParseAddr("10.0.0.1")}
	h := new(Health)
	at := func(trips int) clock.Time { return clock.Time(0).Add(time.Duration(trips) * rtt) }
	for began := range 5 {
		h.failed(at(began+5), at(began), r, nic.Timeout, rtt)
	}
	if x := h.sick[r.Addr]; x.period != avoidTimeout*rtt || x.until != at(5+avoidTimeout) {
		t.Errorf("after READs that failed together: avoided for %v until %v", x.period, x.until)
	}
	for began := range 5 { // together, after the time is over
		h.failed(at(began+avoidTimeout+15), at(began+avoidTimeout+10), r, nic.Timeout, rtt)
	}
	if x := h.sick[r.Addr]; x.period != 2*avoidTimeout*rtt {
		t.Errorf("after the second failures: avoided for %v", x.period)
	}
}
