package pipeline

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Flows whose keys have the same place among the recent flows are counted apart, in whatever order
// their packets come, and a flow that the table has removed begins at zero.
func TestFlowsOfOnePlace(t *testing.T) {
	const n = 4
	flows := newFlows(n)
	alike, other := ofOnePlace(n)
	frame := func(i int) *wire.Frame {
		f := roceFrame(0, 1, 0, "")
		f.BTH.DestQP = alike[i]
		return f
	}
	now := clock.Time(0)
	for round := range 3 {
		for i := range n {
			for range i + 1 {
				now++
				flows.count(now, frame(i), 1, 100+round)
			}
		}
	}
	list := flows.list(now)
	for k, f := range list {
		i := n - 1 - k
		if f.QPN != alike[i] || f.Packets != uint64(3*(i+1)) || f.Bytes != uint64((100+101+102)*(i+1)) {
			t.Errorf("flow %d: %+v", i, f)
		}
	}
	if len(list) != n {
		t.Fatalf("%d flows", len(list))
	}
	now = now.Add(flowIdle + time.Second)
	f := frame(0)
	f.BTH.DestQP = other
	flows.count(now, f, 1, 1) // the table is full: silent flows leave
	flows.count(now, frame(n-1), 1, 1)
	if list = flows.list(now); len(list) != 2 || list[0].Packets != 1 || list[1].Packets != 1 {
		t.Errorf("flows %+v", list)
	}
}

// ofOnePlace returns n queue pairs whose flows have one place, and another one whose flow has another.
func ofOnePlace(n int) (alike []wire.QPN, other wire.QPN) {
	place := func(q wire.QPN) int {
		k := flowKey{qpn: q}
		k.dst[3] = 1
		return k.place()
	}
	for q := wire.QPN(0x11); len(alike) < n || other == 0; q++ {
		if place(q) == place(0x11) {
			alike = append(alike, q)
		} else {
			other = q
		}
	}
	return alike[:n], other
}
