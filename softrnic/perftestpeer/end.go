package perftestpeer

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// end is a queue pair with its queues and its memory.
type end struct {
	rt       verbs.Runtime
	pd       verbs.PD
	cq       verbs.CQ
	qp       verbs.QP
	mr       verbs.MR
	ah       verbs.AH
	peer     verbs.AHAttr
	peerQPN  wire.QPN
	typ      verbs.QPType
	patience time.Duration
	wcs      [32]verbs.WC
}

// openEnd makes an end in state INIT with size bytes of memory.
func openEnd(ctx verbs.Context, typ verbs.QPType, size, sends, recvs int, wait time.Duration) (e *end, err error) {
	if wait == 0 {
		wait = patience
	}
	e = &end{rt: ctx.Runtime(), typ: typ, patience: wait}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.pd, err = ctx.AllocPD(); err != nil {
		return e, err
	}
	if e.cq, err = ctx.CreateCQ(sends + recvs + 1); err != nil {
		return e, err
	}
	const access = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	if e.mr, err = e.pd.RegMR(nil, size, access); err != nil {
		return e, err
	}
	q := verbs.QPInit{Type: typ, SendCQ: e.cq, RecvCQ: e.cq, MaxSendWR: sends, MaxRecvWR: recvs, SignalAll: true}
	init := verbs.ToInit{Access: access &^ verbs.LocalWrite}
	if typ == verbs.UD {
		init.QKey, init.Access = qkey, 0
	}
	if e.qp, err = e.pd.CreateQP(q); err != nil {
		return e, err
	}
	return e, e.qp.ToInit(init)
}

// link has the values that connect needs.
type link struct {
	to               verbs.AHAttr
	qpn              wire.QPN
	theirPSN, ourPSN wire.PSN
	mtu              verbs.MTU
	outs, theirOuts  int // READs and atomics, 0: one
}

// connect takes the queue pair to RTS.
func (e *end) connect(l link) error {
	e.peer, e.peerQPN = l.to, l.qpn
	if e.typ == verbs.UD {
		var err error
		if e.ah, err = e.pd.CreateAH(l.to); err != nil {
			return err
		}
	}
	err := e.qp.ToRTR(verbs.ToRTR{
		DestQPN: l.qpn, DestGID: l.to.DestGID, SourceGID: l.to.SourceGID, RecvPSN: l.theirPSN, PathMTU: l.mtu,
		MaxDestRdAtomic: max(l.theirOuts, 1), MinRNRTimer: rnrTimer,
	})
	if err != nil {
		return err
	}
	return e.qp.ToRTS(verbs.ToRTS{SendPSN: l.ourPSN, Timeout: timeoutCode, RetryCount: retries, RNRRetry: 7, MaxRdAtomic: max(l.outs, 1)})
}

// address completes a work request of a datagram.
func (e *end) address(wr verbs.SendWR) verbs.SendWR {
	if e.typ == verbs.UD {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, e.peerQPN, qkey
	}
	return wr
}

// grh is how many bytes of a receive are in front of the payload.
func (e *end) grh() int {
	if e.typ == verbs.UD {
		return verbs.GRHLen
	}
	return 0
}

// take waits for completions and returns them; all succeeded.
func (e *end) take() ([]verbs.WC, error) {
	n, err := e.cq.Poll(e.wcs[:])
	if n == 0 && err == nil {
		if err := e.cq.Wait(e.rt.Now().Add(e.patience)); err != nil {
			return nil, fmt.Errorf("no completion: %w", err)
		}
		n, err = e.cq.Poll(e.wcs[:])
	}
	if err != nil {
		return nil, err
	}
	for i := range e.wcs[:n] {
		if e.wcs[i].Status != verbs.Success {
			return nil, statusError(&e.wcs[i])
		}
	}
	return e.wcs[:n], nil
}

// close destroys everything.
func (e *end) close() error {
	var errs []error
	end := func(err error) { errs = append(errs, err) }
	if e.qp != nil {
		end(e.qp.Destroy())
	}
	if e.ah != nil {
		end(e.ah.Destroy())
	}
	if e.mr != nil {
		end(e.mr.Dereg())
	}
	if e.cq != nil {
		end(e.cq.Destroy())
	}
	if e.pd != nil {
		end(e.pd.Dealloc())
	}
	return errors.Join(errs...)
}
