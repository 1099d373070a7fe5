package uverbs_test

import (
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// Both sides of a connection are told when its time-wait is over: the side that has ended it, and
// the other one if it has answered the end. The queue pairs may be gone by then (IBTA 12.9.8.4/time-wait).
func TestTimewaitExit(t *testing.T) {
	for name, early := range map[string]func(x, y *ends){
		"after the end": func(_, _ *ends) {},
		"without queue pairs": func(x, y *ends) {
			for _, e := range []*ends{x, y} {
				do[none](e.client, uverbs.DestroyQP, uverbs.Handle{H: e.qp.H}, uint32(0))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, serve.Limits{})
			a, b, x, y, idA, idB, _ := h.meet(t)
			began := time.Now()
			a.do(ucma.Disconnect, idA)
			early(x, y)
			for _, m := range []*manager{a, b} {
				if e := m.next(eventDisconnected); e.Status != 0 {
					t.Errorf("status %d", int32(e.Status))
				}
			}
			if e := a.next(eventTimewaitExit); e.UID != 10 || e.ID != idA || e.Status != 0 {
				t.Errorf("%+v", e)
			}
			if d := time.Since(began); d < 500*time.Millisecond {
				t.Errorf("a time-wait of %v", d)
			}
			time.Sleep(50 * time.Millisecond)
			b.none() // it has not answered
			b.do(ucma.Disconnect, idB)
			if e := b.next(eventTimewaitExit); e.UID != 21 || e.ID != idB {
				t.Errorf("%+v", e)
			}
			for _, m := range []*manager{a, b} {
				m.do(ucma.Disconnect, map[*manager]uint32{a: idA, b: idB}[m]) // changes nothing more
				m.none()
			}
			if n := a.destroy(idA); n != 5 {
				t.Errorf("%d events of the initiator", n)
			}
		})
	}
}

// A peer that does not answer the end of a connection gives the status -ETIMEDOUT, as in the kernel,
// and one that does not answer a request, too.
func TestEndsWithoutAnswer(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, _, _, _, idA, _, _ := h.meet(t)
	x := h.attach(t, 0).queuePair(uverbs.TypeRC)
	id := a.create(11, spaceTCP)
	a.resolve(id, netip.AddrPortFrom(ips[1], servicePort))
	h.devices[1].Down()
	a.do(ucma.Disconnect, idA)
	if e := a.next(eventDisconnected); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("the end has status %d", int32(e.Status))
	}
	a.next(eventTimewaitExit)
	a.do(ucma.Connect, terms(x.qp.QPN, ""), id, uint32(0), [2]uint32{})
	if e := a.next(eventUnreachable); int32(e.Status) != -int32(unix.ETIMEDOUT) {
		t.Errorf("the request has status %d", int32(e.Status))
	}
}
