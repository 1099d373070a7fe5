package ipc_test

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A shared region that is closed while its domain is in use, and then made again, uses up no
// further domain; otherwise a program could exhaust the NIC's domains.
func TestUnshareWhileTheDomainIsUsed(t *testing.T) {
	h := newHouse(t, 0, nil)
	c := h.open(t, 0)
	for range 3 {
		s, err := c.Share("x", 4096, verbs.LocalWrite)
		must(t, err)
		mr, err := s.PD.RegMR(nil, 64, 0)
		must(t, err)
		must(t, s.MR.Dereg())
		if err := c.Unshare("x"); !errors.Is(err, verbs.ErrBusy) {
			t.Errorf("unshare while its domain is in use: %v", err)
		}
		must(t, mr.Dereg())
		must(t, s.PD.Dealloc())
	}
	s, err := c.Share("x", 4096, verbs.LocalWrite)
	must(t, err)
	must(t, s.MR.Store64(0, 1))
	if o := h.objects(0); o.PDs != 1 || o.MRs != 1 {
		t.Errorf("%+v: want one domain and one region", o)
	}
	must(t, s.MR.Dereg())
	must(t, s.PD.Dealloc())
	must(t, c.Unshare("x"))
	must(t, c.Close())
	h.empty(t)
}

// A program that has ended leaves no region, even if another program's memory window is bound to
// it.
func TestWindowOnTheRegionOfOneWhoHasGone(t *testing.T) {
	h := newHouse(t, 0, nil)
	a, b := h.open(t, 0), h.open(t, 0)
	sa, err := a.Share("x", 4096, verbs.LocalWrite)
	must(t, err)
	sb, err := b.Share("x", 0, 0)
	must(t, err)
	mr, err := sa.PD.RegMR(nil, 4096, verbs.LocalWrite|verbs.MWBind)
	must(t, err)
	r, err := newReader(b, b) // for its completion queue
	must(t, err)
	qp, err := sb.PD.CreateQP(verbs.QPInit{SendCQ: r.cq, RecvCQ: r.cq})
	must(t, err)
	must(t, qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite}))
	must(t, qp.ToRTR(verbs.ToRTR{DestQPN: qp.QPN(), DestGID: b.Device().GIDs[0], PathMTU: verbs.MTU1024}))
	must(t, qp.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7}))
	mw, err := sb.PD.AllocMW()
	must(t, err)
	key, err := mw.RKey()
	must(t, err)
	r.qp, r.wr = qp, []verbs.SendWR{{
		Op: verbs.OpBindMW, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, 64)}, RKey: verbs.NextRKey(key), BindAccess: verbs.RemoteWrite,
	}}
	must(t, r.read())
	must(t, a.Close())
	h.eventually(t, func() (any, bool) {
		o := h.objects(0)
		return o, o.MRs == 3 // the region of b's reader, and the shared one
	})
	// The memory that has been freed cannot be reached through the window.
	r.wr = []verbs.SendWR{{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: mr.Addr(), RKey: verbs.NextRKey(key)}}
	if err := r.read(); err == nil {
		t.Error("a WRITE through the window was done")
	}
	must(t, b.Close())
	last := h.open(t, 0)
	must(t, last.Unshare("x"))
	must(t, last.Close())
	h.empty(t)
}

// self returns a queue pair that is connected to itself.
func self(t *testing.T, c *ipc.Context, pd verbs.PD) (verbs.QP, verbs.CQ) {
	t.Helper()
	cq, err := c.CreateCQ(8)
	must(t, err)
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq})
	must(t, err)
	must(t, qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead}))
	must(t, qp.ToRTR(verbs.ToRTR{DestQPN: qp.QPN(), DestGID: c.Device().GIDs[0], PathMTU: verbs.MTU1024}))
	must(t, qp.ToRTS(verbs.ToRTS{Timeout: 17, RetryCount: 7}))
	return qp, cq
}

// done posts a work request and returns the status of its completion.
func done(t *testing.T, c *ipc.Context, qp verbs.QP, cq verbs.CQ, wr verbs.SendWR) verbs.Status {
	t.Helper()
	wr.Flags |= verbs.Signalled
	must(t, qp.PostSend(wr))
	must(t, cq.Wait(c.Runtime().Now().Add(10*time.Second)))
	var wc [1]verbs.WC
	_, err := cq.Poll(wc[:])
	must(t, err)
	return wc[0].Status
}

// No program can invalidate a shared region for later programs, neither with a work request of its
// own nor with one of a peer.
func TestSharedRegionCannotBeInvalidated(t *testing.T) {
	h := newHouse(t, 0, nil)
	a := h.open(t, 0)
	s, err := a.Share("x", 4096, verbs.LocalWrite|verbs.RemoteRead|verbs.RemoteWrite)
	must(t, err)
	for _, op := range []verbs.WROpcode{verbs.OpLocalInv, verbs.OpSendInv} {
		for _, key := range []uint32{s.MR.RKey(), s.MR.LKey()} {
			qp, cq := self(t, a, s.PD)
			wr := verbs.SendWR{Op: op, InvRKey: key}
			if op == verbs.OpSendInv {
				must(t, qp.PostRecv(verbs.RecvWR{}))
			}
			if st := done(t, a, qp, cq, wr); st == verbs.Success {
				t.Errorf("%v of key %#x: %v", op, key, st)
			}
		}
	}
	must(t, a.Close())
	b := h.open(t, 0)
	s, err = b.Share("x", 0, 0)
	must(t, err)
	qp, cq := self(t, b, s.PD)
	if st := done(t, b, qp, cq, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{s.MR.SGE(0, 8)}, RemoteAddr: s.MR.Addr(), RKey: s.MR.RKey()}); st != verbs.Success {
		t.Errorf("a later program: %v", st)
	}
}
