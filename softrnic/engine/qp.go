package engine

import (
	"errors"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// QP is a queue pair with the route to its peer. Methods that can send take the time now and append
// frames to the batch out.
type QP struct {
	e          *Engine
	q          *transport.QP
	pd         *PD
	send, recv *CQ
	srq        *SRQ  // nil means none
	xrcd       *XRCD // of a target of XRC, which has neither pd nor completion queues; nil for others
	ring       *ring // nil means none; see UseRing
	owner      *Owner
	route      route
	pkey       uint16
	flow       *congestion.Flow // nil means that congestion control is off
	keyed      clock.Time       // the queue pair's present deadline in the schedule
	place      uint32           // index in the schedule
	touched    bool             // whether the queue pair is in receivePath.touched
	awaited    bool             // the connection manager waits for the first packet on this queue pair
	attached   int              // number of multicast groups
	ended      bool             // the shell was told that the queue pair has failed; see Hooks.Failed
	dead       bool
}

const (
	// maxQPNTries is how many random numbers are tried for a new queue pair: with 16384 of 2^24
	// numbers in use, that many collisions in a row are practically impossible.
	maxQPNTries          = 64
	firstQPN    wire.QPN = 2
)

// CreateQP makes a queue pair in RESET. send and recv are its completion queues; the CQ fields of
// init are ignored.
func (e *Engine) CreateQP(pd *PD, send, recv *CQ, init verbs.QPInit) (*QP, error) {
	return e.CreateQPOn(pd, send, recv, nil, init)
}

// CreateQPOn does what CreateQP does, for a queue pair with the shared receive queue srq; nil means
// none. It ignores the SRQ field of init, as well as the CQ fields.
func (e *Engine) CreateQPOn(pd *PD, send, recv *CQ, srq *SRQ, init verbs.QPInit) (*QP, error) {
	const op = "create QP"
	if err := alive(op, pd.dead || send.dead || recv.dead || (srq != nil && srq.dead)); err != nil {
		return nil, err
	}
	var shared *transport.SRQ
	if srq != nil {
		if srq.xrcd != nil {
			return nil, verbs.Errorf(op, verbs.ErrInvalid, "SRQ %#x is for requests of XRC, which name it; a queue pair needs one without XRC domain", srq.num)
		}
		shared = srq.s
	}
	if err := e.cfg.Limits.fits(op, &init); err != nil {
		return nil, err
	}
	qp := &QP{e: e, pd: pd, send: send, recv: recv, srq: srq}
	err := qp.create(transport.Config{
		PD: pd.num, Type: init.Type, SendCQ: send.q, RecvCQ: recv.q, SRQ: shared,
		MaxSendWR: init.MaxSendWR, MaxRecvWR: init.MaxRecvWR, MaxSGE: init.MaxSGE, MaxInline: init.MaxInline, SignalAll: init.SignalAll,
	})
	if err != nil {
		return nil, err
	}
	pd.qps++
	send.refs++
	recv.refs++
	if srq != nil {
		srq.refs++
	}
	return qp, nil
}

// fits refuses a queue pair that is larger than the limits of the NIC.
func (l *Limits) fits(op string, init *verbs.QPInit) error {
	switch {
	case init.MaxSendWR < 0 || init.MaxRecvWR < 0 || init.MaxSGE < 0 || init.MaxInline < 0:
		return verbs.Errorf(op, verbs.ErrInvalid, "negative queue size")
	case init.MaxSendWR > l.QPWR || init.MaxRecvWR > l.QPWR:
		return verbs.Errorf(op, verbs.ErrLimit, "%d send and %d receive work requests; at most %d", init.MaxSendWR, init.MaxRecvWR, l.QPWR)
	case init.MaxSGE > l.SGE:
		return verbs.Errorf(op, verbs.ErrLimit, "%d scatter/gather elements; at most %d", init.MaxSGE, l.SGE)
	case init.MaxInline > l.Inline:
		return verbs.Errorf(op, verbs.ErrLimit, "%d bytes inline; at most %d", init.MaxInline, l.Inline)
	}
	return nil
}

// create makes the transport of a new queue pair, with a number of its own and with what the NIC decides of
// its configuration.
func (q *QP) create(c transport.Config) error {
	const op = "create QP"
	e := q.e
	if len(e.Tables.qps) >= e.cfg.Limits.QPs {
		return verbs.Errorf(op, verbs.ErrLimit, "%d queue pairs exist", len(e.Tables.qps))
	}
	n, ok := e.Tables.newQPN(e.cfg.Rand)
	if !ok {
		return verbs.Errorf(op, verbs.ErrLimit, "no free queue pair number")
	}
	c.QPN, c.PortMTU, c.Window, c.AckEvery, c.CoalesceAcks, c.Acks, c.Recovery, c.Flow = n, e.Port.activeMTU(), e.cfg.Window, e.cfg.Acks.Every, true, e.cfg.Acks.Most, e.cfg.Recovery, e.Port.newFlow()
	t, err := transport.New(e.Tables.env, c)
	if err != nil {
		return err
	}
	q.q, q.flow, q.keyed = t, c.Flow, clock.Never
	e.Tables.qps[n] = q
	e.Tables.order = append(e.Tables.order, q)
	q.place = e.sched.add(q)
	return nil
}

func (q *QP) live() bool {
	return !q.dead && q.q.State() != verbs.StateReset && q.q.State() != verbs.StateError
}

// Num returns the queue pair number. It may be called after Destroy.
func (q *QP) Num() wire.QPN { return q.q.Num() }

func (q *QP) Query() (verbs.QPAttr, error) {
	if err := alive("query QP", q.dead); err != nil {
		return verbs.QPAttr{}, err
	}
	return q.q.Query(), nil
}

func (q *QP) ToInit(a verbs.ToInit) error {
	const op = "modify QP to INIT"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	if err := q.e.Port.checkPKeyIndex(op, a.PKeyIndex); err != nil {
		return err
	}
	if err := q.q.ToInit(a); err != nil {
		return err
	}
	q.pkey = q.e.cfg.PKeys[a.PKeyIndex]
	return nil
}

// ToRTR moves the queue pair from INIT to RTR. It fails with ErrUnreachable if the peer's address
// cannot be resolved.
func (q *QP) ToRTR(now clock.Time, a verbs.ToRTR) error {
	const op = "modify QP to RTR"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	if a.MaxDestRdAtomic > q.e.cfg.Limits.RdAtomic {
		return verbs.Errorf(op, verbs.ErrLimit, "%d responder resources; at most %d", a.MaxDestRdAtomic, q.e.cfg.Limits.RdAtomic)
	}
	r, err := q.routeTo(op, a)
	if err != nil {
		return err
	}
	if err := q.q.ToRTR(now, a); err != nil {
		return err
	}
	q.route = r
	q.e.sched.rekey(q)
	return nil
}

// routeTo returns the route to the peer. A queue pair for datagrams has no peer: its route has only
// the UDP source port.
func (q *QP) routeTo(op string, a verbs.ToRTR) (route, error) {
	if !q.connected() {
		return route{udp: wire.UDP{SrcPort: datagramPort(q.q.Num())}}, nil
	}
	if a.DestGID.IsMulticast() {
		return route{}, verbs.Errorf(op, verbs.ErrInvalid, "destination GID %v is that of a group", a.DestGID)
	}
	r, err := q.e.Port.routeTo(op, verbs.AHAttr{
		DestGID: a.DestGID, SourceGID: a.SourceGID, TrafficClass: a.TrafficClass, HopLimit: a.HopLimit,
		FlowLabel: a.FlowLabel,
	}, a.PathMTU)
	if a.FlowLabel == 0 {
		r.udp.SrcPort = sourcePort(q.q.Num(), a.DestQPN)
	}
	return r, err
}

// connected reports whether the queue pair has one peer.
func (q *QP) connected() bool { return q.q.Service() != wire.ServiceUD }

func (q *QP) ToRTS(now clock.Time, a verbs.ToRTS) error {
	const op = "modify QP to RTS"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	if a.MaxRdAtomic > q.e.cfg.Limits.RdAtomic {
		return verbs.Errorf(op, verbs.ErrLimit, "%d READs and atomics in flight; at most %d", a.MaxRdAtomic, q.e.cfg.Limits.RdAtomic)
	}
	if err := q.q.ToRTS(now, a); err != nil {
		return err
	}
	q.e.rings.schedule(now, q)
	q.e.sched.rekey(q)
	return nil
}

// Modify changes attributes without a transition.
func (q *QP) Modify(now clock.Time, a verbs.QPModify) error {
	const op = "modify QP"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	to, pkey := q.route, q.pkey
	if a.Mask&verbs.ModifyPKey != 0 {
		if err := q.e.Port.checkPKeyIndex(op, a.PKeyIndex); err != nil {
			return err
		}
		pkey = q.e.cfg.PKeys[a.PKeyIndex]
	}
	if err := q.checkReads(op, a); err != nil {
		return err
	}
	if a.Mask&verbs.ModifyDest != 0 {
		var err error
		if to, err = q.movedTo(op, a.Dest); err != nil {
			return err
		}
	}
	err := q.q.Modify(now, a)
	if err == nil {
		q.route, q.pkey = to, pkey
	}
	q.e.sched.rekey(q)
	return err
}

// checkReads refuses more READs and atomics in flight than the NIC has.
func (q *QP) checkReads(op string, a verbs.QPModify) error {
	most := q.e.cfg.Limits.RdAtomic
	if a.Mask&verbs.ModifyMaxRdAtomic != 0 && a.MaxRdAtomic > most || a.Mask&verbs.ModifyMaxDestRdAtomic != 0 && a.MaxDestRdAtomic > most {
		return verbs.Errorf(op, verbs.ErrLimit, "%d READs and atomics in flight, %d responder resources; at most %d", a.MaxRdAtomic, a.MaxDestRdAtomic, most)
	}
	return nil
}

// movedTo returns the route to the peer at its new address. In a state without a peer it returns the
// present one; then Modify is refused.
func (q *QP) movedTo(op string, a verbs.AHAttr) (route, error) {
	rtr := q.q.Query().RTR
	if !rtr.PathMTU.Valid() {
		return q.route, nil
	}
	rtr.DestGID, rtr.SourceGID, rtr.TrafficClass, rtr.HopLimit, rtr.FlowLabel = a.DestGID, a.SourceGID, a.TrafficClass, a.HopLimit, a.FlowLabel
	return q.routeTo(op, rtr)
}

// ToSQD lets the send queue drain.
func (q *QP) ToSQD(now clock.Time, out *packetio.Batch) error {
	return q.transition("modify QP to SQD", q.q.ToSQD, now, out)
}

// ResumeRTS moves the queue pair back from SQD or SQE to RTS.
func (q *QP) ResumeRTS(now clock.Time, out *packetio.Batch) error {
	return q.transition("modify QP to RTS", q.q.ResumeRTS, now, out)
}

// ToError moves the queue pair to ERROR and flushes all work requests that are not complete.
func (q *QP) ToError(now clock.Time, out *packetio.Batch) error {
	return q.transition("modify QP to ERROR", q.q.ToError, now, out)
}

// FailSend moves the queue pair to ERROR, which flushes the work requests that are not complete,
// and then adds a completion with status LocQPOpErr for work request id, which PostSend has
// refused because of why.
func (q *QP) FailSend(now clock.Time, id uint64, why error, out *packetio.Batch) {
	if q.dead || q.xrcd != nil { // a target has no send queue
		return
	}
	q.q.Notes().Add(reason.Note{
		At: now, Kind: reason.Failed, Code: reason.BadPost, Status: verbs.LocQPOpErr, WR: reason.WorkRequest{ID: id}, Text: "the post is refused: " + why.Error(),
	})
	_ = q.q.Fail(now, reason.AfterFailure, &q.e.acts) // cannot fail: ERROR can be reached from each state
	q.e.apply(now, q, out)
	q.e.drainLoop(now, out)
	q.e.counters.CqeErr++
	q.e.rings.push(now, q.e, q, &verbs.WC{ID: id, Status: verbs.LocQPOpErr, QPN: q.Num(), VendorErr: uint32(reason.BadPost)})
	q.e.apply(now, q, out)
	q.e.drainLoop(now, out)
}

func (q *QP) transition(op string, step func(clock.Time, *transport.Actions) error, now clock.Time, out *packetio.Batch) error {
	if err := alive(op, q.dead); err != nil {
		return err
	}
	err := step(now, &q.e.acts)
	q.e.apply(now, q, out)
	q.e.drainLoop(now, out)
	return err
}

// ToReset forgets all work requests and removes their completions from the completion queues.
func (q *QP) ToReset() error {
	if err := alive("modify QP to RESET", q.dead); err != nil {
		return err
	}
	q.e.former.retire(q)
	if err := q.q.ToReset(); err != nil {
		return err
	}
	q.ended = false
	if q.xrcd != nil {
		q.xrcd.drop(q.Num())
	}
	q.e.verbFaults.forget(q)
	q.e.Tables.env.Mem.UnbindAll(q.Num())
	q.e.rings.reset(q)
	q.e.sched.rekey(q)
	q.e.gsi.qpGone(q)
	return nil
}

// PostSend queues work requests in order and sends what may be sent. If one is refused,
// OpError.Index is its index. The queue pair notes the reason, unless it is a full queue or the
// state, which programs try again.
func (q *QP) PostSend(now clock.Time, wrs []verbs.SendWR, out *packetio.Batch) error {
	if err := alive("post send", q.dead); err != nil {
		return err
	}
	if q.ring != nil {
		return verbs.Errorf("post send", verbs.ErrInvalid, "the queue pair takes its work requests from a ring; write them there")
	}
	var refused error
	for i := range wrs {
		if wrs[i].AH != nil {
			if err := q.checkAH(wrs[i].AH); err != nil {
				refused = indexed(err, i)
				break
			}
		}
		if err := q.q.PostSend(now, &wrs[i], &q.e.acts); err != nil {
			refused = indexed(err, i)
			break
		}
	}
	if refused != nil && !errors.Is(refused, verbs.ErrNoSpace) && !errors.Is(refused, verbs.ErrState) {
		q.Deny(now, refused)
	}
	q.e.apply(now, q, out)
	q.e.drainLoop(now, out)
	return refused
}

// PostRecv queues receives in order. If one is refused, OpError.Index is its index.
func (q *QP) PostRecv(wrs []verbs.RecvWR) error {
	if err := alive("post receive", q.dead); err != nil {
		return err
	}
	var refused error
	for i := range wrs {
		if err := q.q.PostRecv(&wrs[i]); err != nil {
			refused = indexed(err, i)
			break
		}
	}
	q.e.sched.rekey(q)
	return refused
}

func indexed(err error, i int) error {
	var op *verbs.OpError
	if errors.As(err, &op) {
		op.Index = i
	}
	return err
}

// Destroy ends the queue pair and unbinds the memory windows bound through it. Work requests that
// are not complete get no completion, and completions that were not polled are removed. It fails
// with ErrBusy while the queue pair is attached to a multicast group (IBTA 10.5.3/destroy).
func (q *QP) Destroy() error {
	const op = "destroy QP"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	if q.attached > 0 {
		return verbs.Errorf(op, verbs.ErrBusy, "detach it from its %d multicast groups first", q.attached)
	}
	e := q.e
	e.former.retire(q)
	q.dead = true
	q.q.Purge()
	e.verbFaults.forget(q)
	e.Tables.env.Mem.UnbindAll(q.Num())
	e.sched.remove(q.place)
	e.rings.remove(q)
	e.gsi.qpGone(q)
	delete(e.Tables.qps, q.Num())
	if i := slices.Index(e.Tables.order, q); i >= 0 {
		e.Tables.order = slices.Delete(e.Tables.order, i, i+1)
	}
	if q.xrcd != nil {
		q.xrcd.targets--
		return nil
	}
	q.pd.qps--
	q.send.refs--
	q.recv.refs--
	if q.srq != nil {
		q.srq.refs--
	}
	return nil
}

// AllowControlledQKey lets the queue pair have a Q_Key that the system controls; see
// transport.QP.AllowControlledQKey.
func (q *QP) AllowControlledQKey() { q.q.AllowControlledQKey() }
