package uverbs_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// spaceIB is the port space in which an identifier is for any type of queue pair (RDMA_PS_IB).
const spaceIB = 0x13f

// createFor makes an identifier for a type of queue pair.
func (m *manager) createFor(typ uint8, uid uint64, space uint16) uint32 {
	m.t.Helper()
	return binary.NativeEndian.Uint32(m.do(ucma.CreateID, uid, uint64(0), space, typ, [5]byte{}))
}

// listenFor makes a listener at all addresses for a type of queue pair.
func (m *manager) listenFor(typ uint8, uid uint64, space, port uint16) uint32 {
	m.t.Helper()
	id := m.createFor(typ, uid, space)
	m.do(ucma.BindIP, uint64(0), sockaddr(netip.AddrPortFrom(netip.IPv4Unspecified(), port)), id)
	m.do(ucma.Listen, id, uint32(8))
	return id
}

// librdmacm connects an initiator to a target: the attributes of the transitions are those of their types, and
// the connection carries messages until one side ends it (annex A14).
func TestManagerConnectsXRC(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.manages(t, 0), h.manages(t, 1)
	from, maker := h.attach(t, 0).initiator(), h.attach(t, 1).queuePair(uverbs.TypeRC)
	x := maker.xrc(t, "")
	to := maker.as(x.target)
	b.listenFor(uverbs.TypeXRCTarget, 20, spaceIB, servicePort)
	idA := a.createFor(uverbs.TypeXRCInitiator, 10, spaceIB)
	a.resolve(idA, netip.AddrPortFrom(ips[1], servicePort))
	a.bringUp(from, idA, 1)
	wishes := terms(from.qp.QPN, "hello")
	wishes.Resources, wishes.Depth = 5, 4
	a.do(ucma.Connect, wishes, idA, uint32(0), [2]uint32{})
	idB := b.next(connectRequest).ID
	b.bringUp(to, idB, 1, 2, 3)
	b.do(ucma.Accept, uint64(21), terms(x.target.QPN, "welcome"), idB, uint32(0), [2]uint32{})
	if rep := a.next(connectResponse); rep.private(false) != "welcome" || binary.NativeEndian.Uint32(rep.Param[:]) != x.target.QPN {
		t.Errorf("the reply %+v does not name %#x", rep, x.target.QPN)
	}
	a.bringUp(from, idA, 1, 2, 3)
	a.do(ucma.Accept, uint64(0), param{}, idA, uint32(0), [2]uint32{})
	b.next(eventEstablished)
	maker.receive(100, 64)
	from.sendTo(x.srq.SRQ.Num, 0, 64)
	from.succeeds()
	if c := maker.succeeds(); c.QPN != x.target.QPN || c.Len != 64 {
		t.Errorf("received %+v", c)
	}
	a.do(ucma.Disconnect, idA)
	b.next(eventDisconnected)
	b.do(ucma.Disconnect, idB)
	a.next(eventDisconnected)
}

// A listener takes the requests of the type of queue pair that it is for, and rejects others, as in a kernel.
func TestListenersTakeTheirType(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.manages(t, 0), h.manages(t, 1)
	x := h.attach(t, 0).queuePair(uverbs.TypeRC)
	port := uint16(servicePort)
	answers := map[uint8]uint8{uverbs.TypeRC: uverbs.TypeRC, uverbs.TypeUC: uverbs.TypeUC, uverbs.TypeXRCInitiator: uverbs.TypeXRCTarget}
	for _, listener := range []uint8{uverbs.TypeRC, uverbs.TypeUC, uverbs.TypeXRCTarget, uverbs.TypeXRCInitiator} {
		port++
		b.listenFor(listener, 20, spaceIB, port)
		for asks := range answers {
			name := fmt.Sprintf("type %d asks for %d", asks, listener)
			id := a.createFor(asks, 10, spaceIB)
			a.resolve(id, netip.AddrPortFrom(ips[1], port))
			a.do(ucma.Connect, terms(x.qp.QPN, ""), id, uint32(0), [2]uint32{})
			if answers[asks] == listener {
				b.destroy(b.next(connectRequest).ID)
			}
			if e := a.next(eventRejected); e.Status != uint32(mad.ReasonConsumer) {
				t.Errorf("%s: status %d", name, e.Status)
			}
			a.destroy(id)
		}
	}
	id := a.createFor(uverbs.TypeXRCTarget, 10, spaceIB)
	a.resolve(id, netip.AddrPortFrom(ips[1], port))
	if answer, _ := a.raw(ucma.Connect, a.channel, terms(x.qp.QPN, ""), id, uint32(0), [2]uint32{}); unix.Errno(answer.Errno) != unix.EINVAL {
		t.Errorf("an identifier for a target connects: %v", unix.Errno(answer.Errno))
	}
}
