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
