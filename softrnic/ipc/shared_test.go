package ipc_test

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A shared region that is taken away while its domain is in use, and made again, costs no domain: else a program could use up
// those of the NIC, for all and for ever.
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

// A program that has ended leaves no region, even if another one's memory window is bound to it.
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
		return o, o.MRs == 3 // of b's reader, and the shared one
	})
	// The window lets nobody reach the memory that is gone.
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
