package nic

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// onTheWay counts the bytes of data messages on their way to NIC i.
func (w *world) onTheWay(i int) (n int) {
	var f onerma.Frame
	for _, x := range w.flights {
		if onerma.ParseFrame(x.data, &f) == nil && f.Kind == onerma.Data && f.IPv4.Dst == w.nics[i].egress.self {
			n += len(f.Sealed) - onerma.TagLen
		}
	}
	return n
}

// given checks that NIC i has its whole window again when the last timeout has passed, and waits for
// nothing.
func (w *world) given(i int) {
	w.t.Helper()
	w.settle()
	if used, _ := w.nics[i].Window(); used != 0 || w.nics[i].Deadline() != clock.Never {
		w.t.Errorf("%d bytes are missing in the window at the end", used)
	}
}

// A process that opens portals, READs and closes them without waiting gets no more than the window.
func TestBytesOfAClosedPortalStayInTheWindow(t *testing.T) {
	w := newWorld(t, 2, nil)
	for range 3 {
		p := w.portal(0, 5, 16)
		for i := range 16 {
			w.issue(p, w.command(onerma.Read, 5, uint64(i*4096), 4096))
		}
		w.nics[0].Tick(w.now, &w.out)
		w.flush()
		p.Close()
	}
	w.run(w.now.Add(half)) // until the requests are there
	if _, size := w.nics[0].Window(); w.onTheWay(0) == 0 || w.onTheWay(0) > size {
		t.Errorf("%d bytes are on the way to a NIC with a window of %d", w.onTheWay(0), size)
	}
	w.given(0)
	p := w.portal(0, 6, 1)
	w.want(w.one(p, w.command(onerma.Read, 6, 0, 4096)), OK)
}

// The key of a region changes while data of WRITEs are on the way: they count in the window until
// their timeout.
func TestBytesOfRefusedWritesStayInTheWindow(t *testing.T) {
	w := newWorld(t, 2, nil)
	p := w.portal(0, 5, 16)
	for i := range 16 {
		w.issue(p, w.command(onerma.Write, 5, uint64(i*4096), 4096))
	}
	for end := w.now.Add(10 * rtt); w.onTheWay(1) == 0 && w.now < end; {
		w.run(w.next())
	}
	if err := w.nics[1].SetKey(w.regions[1], Key{5}); err != nil {
		t.Fatal(err)
	}
	if used, _ := w.nics[1].Window(); used == 0 || used < w.onTheWay(1) {
		t.Errorf("%d bytes are on the way, and the window says %d", w.onTheWay(1), used)
	}
	w.given(1)
}
