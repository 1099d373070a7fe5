package perftestpeer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// objects are the verbs objects that every run has: one completion queue and one memory region.
type objects struct {
	rt       verbs.Runtime
	pd       verbs.PD
	cq       verbs.CQ
	mr       verbs.MR
	patience time.Duration
	wcs      [32]verbs.WC
	undo     []func() error // functions that destroy the objects, in the order in which these were made
}

// open makes the objects: a completion queue for n completions, and a region of size bytes. wait is
// how long a completion may take; 0 means patience.
func (o *objects) open(ctx verbs.Context, n, size int, access verbs.Access, wait time.Duration) (err error) {
	o.rt, o.patience = ctx.Runtime(), cmp.Or(wait, patience)
	if o.pd, err = ctx.AllocPD(); err != nil {
		return err
	}
	o.undo = append(o.undo, o.pd.Dealloc)
	if o.cq, err = ctx.CreateCQ(n); err != nil {
		return err
	}
	o.undo = append(o.undo, o.cq.Destroy)
	if o.mr, err = o.pd.RegMR(nil, size, access); err != nil {
		return err
	}
	o.undo = append(o.undo, o.mr.Dereg)
	return nil
}

func (o *objects) createQP(init verbs.QPInit) (verbs.QP, error) {
	init.SendCQ, init.RecvCQ, init.SignalAll = o.cq, o.cq, true
	qp, err := o.pd.CreateQP(init)
	if err == nil {
		o.undo = append(o.undo, qp.Destroy)
	}
	return qp, err
}

// close destroys everything, in the reverse order of creation.
func (o *objects) close() (err error) {
	for _, f := range slices.Backward(o.undo) {
		err = errors.Join(err, f())
	}
	o.undo = nil
	return err
}

// end is a queue pair with its queues and its memory.
type end struct {
	objects
	qp      verbs.QP
	ah      verbs.AH
	peerQPN wire.QPN
	typ     verbs.QPType
}

// openEnd makes an end in state INIT with size bytes of memory. Its queues have room for `sends`
// sends and `recvs` receives. wait is how long a completion may take; 0 means patience.
func openEnd(ctx verbs.Context, typ verbs.QPType, size, sends, recvs int, wait time.Duration) (e *end, err error) {
	e = &end{typ: typ}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	const access = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	if err := e.open(ctx, sends+recvs+1, size, access, wait); err != nil {
		return e, err
	}
	init := verbs.ToInit{Access: access &^ verbs.LocalWrite}
	if typ == verbs.UD {
		init.QKey, init.Access = qkey, 0
	}
	if e.qp, err = e.createQP(verbs.QPInit{Type: typ, MaxSendWR: sends, MaxRecvWR: recvs}); err != nil {
		return e, err
	}
	return e, e.qp.ToInit(init)
}

// link has the values of a connection that connect needs.
type link struct {
	to               verbs.AHAttr
	qpn              wire.QPN
	theirPSN, ourPSN wire.PSN
	mtu              verbs.MTU
	outs, theirOuts  int   // READs and atomics in flight, of this side and of the peer; 0 means one
	timeout          uint8 // code of the ACK timeout; 0 means timeoutCode
}

// connect moves the queue pair to RTS.
func (e *end) connect(l link) error {
	e.peerQPN = l.qpn
	if e.typ == verbs.UD {
		var err error
		if e.ah, err = e.pd.CreateAH(l.to); err != nil {
			return err
		}
		e.undo = append(e.undo, e.ah.Destroy)
	}
	return l.up(e.qp)
}

func (l *link) up(qp verbs.QP) error {
	err := qp.ToRTR(verbs.ToRTR{
		DestQPN: l.qpn, DestGID: l.to.DestGID, SourceGID: l.to.SourceGID, RecvPSN: l.theirPSN, PathMTU: l.mtu,
		MaxDestRdAtomic: max(l.theirOuts, 1), MinRNRTimer: rnrTimer,
	})
	if err != nil {
		return err
	}
	return qp.ToRTS(verbs.ToRTS{SendPSN: l.ourPSN, Timeout: cmp.Or(l.timeout, timeoutCode), RetryCount: retries, RNRRetry: 7, MaxRdAtomic: max(l.outs, 1)})
}

// address adds the destination to a work request of a datagram.
func (e *end) address(wr verbs.SendWR) verbs.SendWR {
	if e.typ == verbs.UD {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, e.peerQPN, qkey
	}
	return wr
}

// grh returns the number of bytes of a receive in front of the payload: 40 for UD, else 0.
func (e *end) grh() int {
	if e.typ == verbs.UD {
		return verbs.GRHLen
	}
	return 0
}

// take waits for completions and returns them. It fails if one of them has failed.
func (o *objects) take() ([]verbs.WC, error) {
	n, err := o.cq.Poll(o.wcs[:])
	if n == 0 && err == nil {
		if err := o.cq.Wait(o.rt.Now().Add(o.patience)); err != nil {
			return nil, fmt.Errorf("no completion: %w", err)
		}
		n, err = o.cq.Poll(o.wcs[:])
	}
	if err != nil {
		return nil, err
	}
	for i := range o.wcs[:n] {
		if wc := &o.wcs[i]; wc.Status != verbs.Success {
			return nil, fmt.Errorf("work request %d: %v", wc.ID, wc.Status)
		}
	}
	return o.wcs[:n], nil
}
