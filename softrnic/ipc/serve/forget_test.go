package serve

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// remembered is what the server knows of the objects of its only program.
type remembered struct {
	QPs, CQs, SRQs, PortCQs, Settled, AHs, MRs, Bells, Handles, Owners int
}

func (h *house) remembers() (r remembered) {
	h.s.pump.with(func(*engine.Engine) {
		r.QPs, r.CQs, r.SRQs = len(h.s.pump.qps), len(h.s.pump.cqs), len(h.s.pump.srqs)
		for _, p := range h.s.pump.ports {
			r.PortCQs, r.Settled, r.AHs, r.MRs = len(p.cqs), len(p.settled), len(p.ahs), len(p.mrs)
			for _, b := range p.bells {
				if b != nil {
					r.Bells++
				}
			}
			p.c.objects.mu.Lock()
			r.Handles = len(p.c.objects.byHandle)
			p.c.objects.mu.Unlock()
			if g := p.c.prog; g != nil {
				r.Owners = len(g.queues.qpOwners) + len(g.queues.cqOwners) + len(g.queues.srqOwners)
				for _, of := range g.objects {
					r.Handles += len(of)
				}
			}
		}
	})
	return r
}

// Of two objects of each kind that a program has made, the daemon knows the one that is left, and
// after its end neither: a program that makes and destroys objects for years takes no memory of the
// daemon.
func TestDestroyedObjectsAreForgotten(t *testing.T) {
	one := remembered{QPs: 1, CQs: 1, SRQs: 1, PortCQs: 1, AHs: 1, MRs: 1, Bells: 4, Handles: 8}
	h := newHouse(t)
	c := h.open(t)
	none := h.remembers()
	if none != (remembered{Bells: 1}) { // that of memory accesses
		t.Errorf("of a new program: %+v", none)
	}
	var ends [2][]func() error
	for i := range ends {
		pd, err := c.AllocPD()
		must(t, err)
		cq, err := c.CreateCQ(8)
		must(t, err)
		srq, err := pd.CreateSRQ(verbs.SRQInit{MaxWR: 4})
		must(t, err)
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
		must(t, err)
		ah, err := pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(houseIP)})
		must(t, err)
		mr, err := pd.RegMR(nil, 64, verbs.LocalWrite)
		must(t, err)
		mw, err := pd.AllocMW()
		must(t, err)
		dm, err := c.AllocDM(64)
		must(t, err)
		ends[i] = []func() error{qp.Destroy, srq.Destroy, cq.Destroy, ah.Destroy, mr.Dereg, mw.Dealloc, dm.Free, pd.Dealloc}
	}
	for i, left := range []remembered{one, none} {
		for _, end := range ends[i] {
			must(t, end())
		}
		if r := h.remembers(); r != left {
			t.Errorf("after the end of object %d of each kind: %+v, want %+v", i, r, left)
		}
	}
	must(t, c.Close())
	if r := h.remembers(); r != (remembered{}) {
		t.Errorf("after the end of the program: %+v", r)
	}
}

// The same of an unmodified program.
func TestDestroyedObjectsOfAnUnmodifiedProgram(t *testing.T) {
	one := remembered{QPs: 1, CQs: 1, SRQs: 1, PortCQs: 1, Settled: 1, AHs: 1, Bells: 2, Handles: 6, Owners: 3}
	h := newHouse(t)
	u := h.attach(t)
	none := h.remembers()
	type object struct {
		end  uverbs.Op
		args []any
	}
	var ends [2][]object
	buf := make([]byte, 64)
	for i := range ends {
		pd := u.do(uverbs.AllocPD, pointer)
		cq := u.do(uverbs.CreateCQ, pointer, uverbs.CQArgs{CQE: 7, Channel: -1})
		srq := u.do(uverbs.CreateSRQ, pointer, uverbs.SRQArgs{PD: pd, MaxWR: 3, MaxSGE: 1})
		qp := u.do(uverbs.CreateQP, pointer, uverbs.QPArgs{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC})
		ah := u.do(uverbs.CreateAH, pointer, uverbs.AHArgs{PD: pd, Attr: uverbs.AHAttr{DestGID: verbs.GIDOf(houseIP), Global: 1, Port: 1}})
		mr := u.do(uverbs.RegMR, pointer, uverbs.RegMRArgs{Start: addr(buf), Length: 64, VA: addr(buf), PD: pd, Access: 1})
		ends[i] = []object{
			{uverbs.DestroyQP, []any{pointer, qp, uint32(0)}},
			{uverbs.DestroySRQ, []any{pointer, srq, uint32(0)}},
			{uverbs.DestroyCQ, []any{pointer, cq, uint32(0)}},
			{uverbs.DestroyAH, []any{ah}},
			{uverbs.DeregMR, []any{mr}},
			{uverbs.DeallocPD, []any{pd}},
		}
	}
	for i, left := range []remembered{one, none} {
		for _, o := range ends[i] {
			u.do(o.end, o.args...)
		}
		if r := h.remembers(); r != left {
			t.Errorf("after the end of object %d of each kind: %+v, want %+v", i, r, left)
		}
	}
}

// The end of an object of an unmodified program counts the events that the NIC has raised for it
// and the pump has not sent yet.
func TestEventsThatWaitAtTheEnd(t *testing.T) {
	h := newHouse(t)
	u := h.attach(t)
	u.do(uverbs.GetContext, pointer)
	pd := u.do(uverbs.AllocPD, pointer)
	cq := u.do(uverbs.CreateCQ, pointer, uverbs.CQArgs{CQE: 7, Channel: -1})
	srq := u.do(uverbs.CreateSRQ, pointer, uverbs.SRQArgs{PD: pd, MaxWR: 3, MaxSGE: 1})
	qp := u.do(uverbs.CreateQP, pointer, uverbs.QPArgs{PD: pd, SendCQ: cq, RecvCQ: cq, MaxSend: 1, MaxRecv: 1, MaxSGE: 1, MaxRecvSGE: 1, Type: uverbs.TypeRC})
	raise := func(ev verbs.AsyncEvent) {
		h.s.pump.with(func(*engine.Engine) {
			for n := range h.s.pump.qps {
				ev.QPN = n
			}
			for n := range h.s.pump.cqs {
				ev.CQ = n
			}
			for n := range h.s.pump.srqs {
				ev.SRQ = n
			}
			h.s.pump.hear(ev)
		})
	}
	raise(verbs.AsyncEvent{Kind: verbs.EventQPFatal})
	if n := u.do(uverbs.DestroyQP, pointer, qp, uint32(0)); n != 1 {
		t.Errorf("%d events of the queue pair", n)
	}
	raise(verbs.AsyncEvent{Kind: verbs.EventSRQLimit})
	if n := u.do(uverbs.DestroySRQ, pointer, srq, uint32(0)); n != 1 {
		t.Errorf("%d events of the shared receive queue", n)
	}
	raise(verbs.AsyncEvent{Kind: verbs.EventCQErr})
	before := h.remembers()
	_, err := u.conn.Write(uverbs.Encode(uverbs.NoChannel, uint32(0), uint32(uverbs.DestroyCQ), uint32(0), pointer, cq, uint32(0)))
	must(t, err)
	if data, errno := u.answer(); errno != 0 || len(data) != 8 || data[0] != 0 || data[4] != 1 {
		t.Errorf("the end of the completion queue: %v, % x; before: %+v", errno, data, before)
	}
}

// The numbers of objects that ended with the NIC have no owner: they may be those of others next.
func TestNumbersAfterTheNICWasDown(t *testing.T) {
	h := newHouse(t)
	c := h.open(t)
	pd, err := c.AllocPD()
	must(t, err)
	cq, err := c.CreateCQ(8)
	must(t, err)
	_, err = pd.CreateSRQ(verbs.SRQInit{MaxWR: 4})
	must(t, err)
	_, err = pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	must(t, err)
	if r := h.remembers(); r.QPs != 1 || r.CQs != 1 || r.SRQs != 1 {
		t.Errorf("%+v", r)
	}
	incarnation := func() (n uint64) {
		h.s.pump.with(func(e *engine.Engine) {
			h.s.pump.noticeDown(e)
			n = h.s.pump.ports[0].ctl.Incarnation.Load()
		})
		return n
	}
	before := incarnation()
	if again := incarnation(); again != before {
		t.Errorf("incarnation %d becomes %d while the NIC is up", before, again)
	}
	h.dev.Down()
	if after := incarnation(); after == before {
		t.Errorf("the incarnation is %d when the NIC is down, too", after)
	}
	if r := h.remembers(); r.QPs != 0 || r.CQs != 0 || r.SRQs != 0 {
		t.Errorf("%+v", r)
	}
	h.dev.Up()
}
