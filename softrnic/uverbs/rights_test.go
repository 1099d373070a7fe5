package uverbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The rights that the transition to RTS sets are those that the queue pair has.
func TestAccessOnTheWayToRTS(t *testing.T) {
	const remoteRead = 4
	h := newHouse(t, serve.Limits{})
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
	modify, _ := modifier(h, t)
	for _, state := range []uint8{1, 2, 3} {
		rights := uint32(0)
		if state == 3 {
			rights = uverbs.MaskAccess
		}
		errno := modify(b, needs(b.typ, state-1, state)|rights, func(m *uverbs.ModifyQPArgs) {
			m.State, m.Port, m.Access, m.PathMTU, m.DestQPN, m.MaxDestRdAtomic, m.MaxRdAtomic = state, 1, allow&^1, 3, a.qp.QPN, 4, 4
			m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[0]), 1, 1
			m.Timeout, m.RetryCount, m.RNRRetry = b.timeout, 7, 7
			if state == 3 {
				m.Access = remoteRead
			}
		})
		if errno != 0 {
			t.Fatal(errno)
		}
	}
	a.connect(b, 1)
	a.post(opRead, 0, 8, addr(b.buf), b.mr.RKey)
	a.succeeds()
	a.post(opWrite, 0, 8, addr(b.buf), b.mr.RKey)
	if c := a.next(); verbs.Status(c.Status) != verbs.RemInvReqErr {
		t.Errorf("WRITE without the right: %v", verbs.Status(c.Status))
	}
}

// A program that puts a malformed receive into its ring breaks the rules of the rings: it is cut
// off when the receive is needed, and its peer is told that there is none.
func TestMalformedReceive(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, b := h.linked(t, uverbs.TypeRC)
	slot := b.recv.Slot(b.recv.Producer())
	b.receive(0, 100)
	slot[28] = 0xff // the number of pieces
	a.post(opSend, 0, 100, 0, 0)
	if _, _, _, ok := receive(t, b.conn); ok {
		t.Error("the daemon has sent something")
	}
	h.works(t)
}

// A completion queue may have a single entry, also by a resize.
func TestSmallestCompletionQueue(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	c := h.attach(t, 0)
	for _, n := range []uint32{1, 5} {
		cq := do[madeCQ](c, uverbs.CreateCQ, uverbs.CQArgs{CQE: n, Channel: -1})
		if size := do[uverbs.CQSize](c, uverbs.ResizeCQ, uverbs.ResizeCQArgs{H: cq.CQ.H, CQE: 1}); size.CQE != 1 {
			t.Errorf("from %d entries: %d, want 1", n, size.CQE)
		}
	}
	if _, errno := c.raw(uverbs.CreateCQ, uverbs.NoChannel, uverbs.Encode(uverbs.CQArgs{Channel: -1})); errno != unix.EINVAL {
		t.Errorf("without entries: %v", errno)
	}
}

// Of sends that one doorbell announces, those that cannot be executed fail, and the others are
// flushed: those in flight before them, and those behind them. All complete in their order, and the
// first one raises the event for which the queue is armed.
func TestRefusedSends(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	b := h.attach(t, 1).queuePair(uverbs.TypeRC)
	e, channel := h.attach(t, 0).onChannel()
	b.connect(e, 0)
	e.connect(b, 1)
	b.receive(0, 100)
	do[none](e.client, uverbs.ReqNotifyCQ, uverbs.Notify{H: e.cq})
	const noOp = 200
	h.devices[0].With(func(*engine.Engine) { // so that the daemon sees all of them at once
		for i, op := range []uint32{opSend, noOp, opSend, noOp, noOp, opSend} {
			e.post(op, i, 8, 0, 0)
		}
	})
	for i, want := range []verbs.Status{verbs.WRFlushErr, verbs.LocQPOpErr, verbs.WRFlushErr, verbs.LocQPOpErr, verbs.LocQPOpErr, verbs.WRFlushErr} {
		if c := e.next(); c.ID != uint64(i) || verbs.Status(c.Status) != want || c.QPN != e.qp.QPN {
			t.Errorf("completion %d: %+v, want %v", i, c, want)
		}
	}
	if e.send.Consumer() != e.send.Producer() {
		t.Errorf("entries up to %d of %d are free", e.send.Consumer(), e.send.Producer())
	}
	var ev [8]byte
	if n, err := unix.Read(channel, ev[:]); n != 8 || err != nil {
		t.Errorf("event of %d bytes, %v", n, err)
	}
}

// A completion queue that has no room for the completion of a refused send is in error.
func TestRefusedSendsOverrun(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	b, e := h.attach(t, 1).queuePair(uverbs.TypeRC), h.attach(t, 0).queuePair(uverbs.TypeRC)
	cq := do[madeCQ](e.client, uverbs.CreateCQ, uverbs.CQArgs{User: 6, CQE: 1, Channel: -1})
	qp := do[made](e.client, uverbs.CreateQP, uverbs.QPArgs{
		User: 9, PD: e.pd, SendCQ: cq.CQ.H, RecvCQ: e.cq, MaxSend: 7, MaxRecv: 7, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC,
	})
	e.qp, e.send, e.recv = qp.QP, e.view(qp.Send), e.view(qp.Recv)
	events := e.asyncEvents()
	e.connect(b, 1)
	for range 3 { // one in the program's ring, one in the NIC's queue
		e.post(200, 0, 8, 0, 0)
	}
	wantEvent(t, events, 6, eventCQErr)
}

// As with the kernel's rxe and NICs of vendors, both keys of a region are the same number, also of device memory and
// after rereg, and programs may take one for the other. A NIC with distinct keys refuses that.
func TestBothKeysOfARegion(t *testing.T) {
	for _, distinct := range []bool{false, true} {
		h := newHouseThat(t, distinct)
		a, b := h.linked(t, uverbs.TypeRC)
		dm := do[uverbs.Handle](a.client, uverbs.AllocDM, uverbs.AllocDMArgs{Length: 64}).H
		of := do[uverbs.MR](a.client, uverbs.RegDM, uverbs.RegDMArgs{Length: 64, PD: a.pd, DM: dm, Access: allow | uverbs.ZeroBased})
		mr := do[uverbs.MR](a.client, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(a.buf), Length: 4096, VA: addr(a.buf), PD: a.pd, Access: allow})
		again := do[uverbs.Rereged](a.client, uverbs.ReregMR, uverbs.ReregMRArgs{H: mr.H, Flags: uverbs.ReregTranslation, Start: addr(a.buf), Length: 8192, VA: addr(a.buf)})
		for _, k := range [][2]uint32{{a.mr.LKey, a.mr.RKey}, {of.LKey, of.RKey}, {mr.LKey, mr.RKey}, {again.LKey, again.RKey}} {
			if (k[0] != k[1]) != distinct {
				t.Errorf("keys %#x and %#x; distinct: %v", k[0], k[1], distinct)
			}
		}
		want := verbs.Success
		if distinct {
			want = verbs.LocProtErr
		}
		b.receive(0, 64)
		a.mr.LKey = a.mr.RKey
		a.post(opSend, 0, 64, 0, 0)
		if c := a.next(); verbs.Status(c.Status) != want {
			t.Errorf("R_Key in place of the L_Key: %v, want %v; distinct: %v", verbs.Status(c.Status), want, distinct)
		}
	}
}
