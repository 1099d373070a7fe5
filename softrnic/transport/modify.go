package transport

import (
	"cmp"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Largest values of attributes, by the width of their fields in the specification.
const (
	max24         = 1<<24 - 1
	maxTimerCode  = 31
	maxRetryCount = 7
	rnrForEver    = 7 // as RNRRetry: no limit

	defaultRdAtomic = 16 // READs and atomics in flight, if the attribute is 0

	// DefaultHopLimit is the hop limit of packets if none is set, as in Linux rxe.
	DefaultHopLimit = 64
)

func badAttr(format string, args ...any) error {
	return verbs.Errorf("modify qp", verbs.ErrInvalid, format, args...)
}

// ToInit changes the state from RESET to INIT, or changes the attributes while the state is INIT.
func (q *QP) ToInit(a verbs.ToInit) error {
	to, err := next(q.core.svc.states, q.core.state, evToInit)
	if err != nil {
		return err
	}
	if err := q.validInit(a); err != nil {
		return err
	}
	q.core.init, q.core.state = a, to
	return nil
}

func (q *QP) validInit(a verbs.ToInit) error {
	if extra := a.Access &^ verbs.RemoteRights; extra != 0 {
		return badAttr("access bits %#x are none of RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal, FlushPersistent", extra)
	}
	if a.QKey&verbs.ControlledQKey != 0 && !q.core.anyQKey {
		return &verbs.OpError{
			Op: "modify qp", Err: verbs.ErrAccess,
			Detail: fmt.Sprintf("Q_Key %#x is a privileged one, which begins with a 1 bit; choose one below %#x", a.QKey, uint32(verbs.ControlledQKey)),
		}
	}
	return nil
}

// AllowControlledQKey lets the queue pair have a Q_Key that the system controls: its owner is
// privileged (IBTA 10.2.5/q-key).
func (q *QP) AllowControlledQKey() { q.core.anyQKey = true }

func validTimer(a verbs.ToRTR) error {
	if a.MinRNRTimer > maxTimerCode {
		return badAttr("MinRNRTimer %d; choose a code from 0 to %d", a.MinRNRTimer, maxTimerCode)
	}
	return nil
}

// validRTS checks the attributes of the transition to RTS, except for MaxRdAtomic.
func validRTS(a verbs.ToRTS) error {
	switch {
	case a.SendPSN > max24:
		return badAttr("send PSN %#x has more than 24 bits", uint32(a.SendPSN))
	case a.Timeout > maxTimerCode:
		return badAttr("timeout %d; choose a code from 0 to %d", a.Timeout, maxTimerCode)
	case a.RetryCount > maxRetryCount:
		return badAttr("RetryCount %d; choose 0 to %d", a.RetryCount, maxRetryCount)
	case a.RNRRetry > rnrForEver:
		return badAttr("RNRRetry %d; choose 0 to 6, or 7 for no limit", a.RNRRetry)
	}
	return nil
}

// ToRTR changes the state from INIT to RTR. From then on the responder works. A UD queue pair
// ignores the attributes.
func (q *QP) ToRTR(now clock.Time, a verbs.ToRTR) error {
	to, err := next(q.core.svc.states, q.core.state, evToRTR)
	if err != nil {
		return err
	}
	if q.core.svc.datagram { // UD has no peer, so the port's MTU is used
		q.core.rtr, q.core.state, q.core.mtu = verbs.ToRTR{PathMTU: q.core.cfg.PortMTU}, to, uint32(q.core.cfg.PortMTU)
		q.core.lastNow = now
		return nil
	}
	if !a.PathMTU.Valid() {
		return badAttr("path MTU %d; choose 256, 512, 1024, 2048 or 4096", a.PathMTU)
	}
	if a.DestQPN > max24 || a.RecvPSN > max24 {
		return badAttr("destination QPN %#x or receive PSN %#x has more than 24 bits", uint32(a.DestQPN), uint32(a.RecvPSN))
	}
	if err := validTimer(a); err != nil {
		return err
	}
	if a.MaxDestRdAtomic, err = rdAtomic("MaxDestRdAtomic", a.MaxDestRdAtomic); err != nil {
		return err
	}
	if a.Ahead < 0 || a.Ahead > maxAhead {
		return badAttr("Ahead %d; choose 0 to %d", a.Ahead, maxAhead)
	}
	a.HopLimit = cmp.Or(a.HopLimit, DefaultHopLimit)
	q.core.lastNow = now
	q.core.rtr, q.core.state, q.core.mtu = a, to, uint32(a.PathMTU)
	q.rsp.start(a)
	return nil
}

// ToRTS changes the state from RTR to RTS. From then on the requester works.
func (q *QP) ToRTS(now clock.Time, a verbs.ToRTS) error {
	to, err := next(q.core.svc.states, q.core.state, evToRTS)
	if err != nil {
		return err
	}
	if err := validRTS(a); err != nil {
		return err
	}
	if a.MaxRdAtomic, err = rdAtomic("MaxRdAtomic", a.MaxRdAtomic); err != nil {
		return err
	}
	q.core.lastNow = now
	q.core.rts, q.core.state = a, to
	q.req.sender.nextPSN = a.SendPSN
	q.req.start(a)
	return nil
}

// rdAtomic returns the number of READs and atomics that the attribute n allows: 0 means the
// default, -1 means none.
func rdAtomic(name string, n int) (int, error) {
	switch {
	case n == 0:
		return defaultRdAtomic, nil
	case n == -1:
		return 0, nil
	case n < 0 || n > maxRdAtomic:
		return 0, badAttr("%s %d; choose 1 to %d, or -1 for none", name, n, maxRdAtomic)
	}
	return n, nil
}

// ToSQD lets the send queue drain: started work requests complete, and no others are started. Then
// EventSQDrained is raised, at once if none was started (IBTA 10.3.1/sqd).
func (q *QP) ToSQD(now clock.Time, out *Actions) error {
	to, err := next(q.core.svc.states, q.core.state, evToSQD)
	if err != nil {
		return err
	}
	q.core.lastNow = now
	q.core.state = to
	q.req.sender.draining = true
	q.req.sender.checkDrained(out)
	return nil
}

// ResumeRTS changes the state from SQD or SQE back to RTS, and sends the work requests that were
// posted in the meantime.
func (q *QP) ResumeRTS(now clock.Time, out *Actions) error {
	to, err := next(q.core.svc.states, q.core.state, evResumeRTS)
	if err != nil {
		return err
	}
	q.core.lastNow = now
	if q.core.state == verbs.StateSQE {
		q.core.notes.Reopen()
	}
	q.core.state = to
	q.req.sender.draining = false
	q.send(now, out)
	return nil
}

// ToError changes the state to ERROR. All queued work requests complete with WRFlushErr: sends
// before receives, each queue in order.
func (q *QP) ToError(now clock.Time, out *Actions) error { return q.Fail(now, reason.ByProgram, out) }

// Fail does what ToError does, for another reason than that the program has asked for it.
func (q *QP) Fail(now clock.Time, code reason.Code, out *Actions) error {
	q.core.lastNow = now
	if q.live() && code != reason.AfterFailure {
		q.core.notes.Add(reason.Note{At: now, Kind: reason.Ended, Code: code})
	}
	return q.enterError(evToError, code, out)
}

// Lost notes that the NIC has gone down with the queue pair at time now. Its state stays.
func (q *QP) Lost(now clock.Time) {
	if q.live() {
		q.core.notes.Add(reason.Note{At: now, Kind: reason.Ended, Code: reason.NICDown})
	}
}

// live reports whether the queue pair is connected.
func (q *QP) live() bool {
	switch q.core.state {
	case verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
		return true
	case verbs.StateReset, verbs.StateInit, verbs.StateError:
	}
	return false
}

// fault moves the queue pair to the ERROR state after a work request has failed, or after the
// responder has refused a request with a fatal NAK. code says which of both.
func (q *QP) fault(code reason.Code, out *Actions) {
	if err := q.enterError(evFault, code, out); err != nil {
		panic("transport: fault in a state without traffic: " + q.core.state.String())
	}
}

// enterError moves the queue pair to the ERROR state. It sends the last responses (see
// answers.last), and then flushes the send queue and the receive queue, in this order. The flushed
// completions have the reason code.
func (q *QP) enterError(on event, code reason.Code, out *Actions) error {
	to, err := next(q.core.svc.states, q.core.state, on)
	if err != nil {
		return err
	}
	last := q.core.cfg.SRQ != nil && q.core.state != to
	if q.core.state != to {
		q.core.flushed = code
	}
	q.core.state = to
	q.rsp.answers.torn.settleWrite() // completes a torn WRITE, which was accepted before the error
	q.rsp.answers.last(q.core.lastNow, out)
	q.req.retry.stop()
	q.req.sel.stop()
	q.req.pace.stop()
	q.unr.at, q.req.sender.draining = clock.Never, false
	q.rsp.stop()
	q.req.sender.flush(out)
	q.rcv.flush(out)
	if last {
		q.core.raise(verbs.EventQPLastWQE, out) // no more receives are taken from the SRQ, IBTA 11.6.3.1/last-wqe
	}
	return nil
}

// ToReset changes the state to RESET. It removes all work requests, and the completions that were
// not polled.
func (q *QP) ToReset() error {
	to, err := next(q.core.svc.states, q.core.state, evToReset)
	if err != nil {
		return err
	}
	q.rsp.answers.torn.settleWrite()
	q.core.state = to
	q.forget()
	q.Purge()
	return nil
}

// forget resets everything to the state of a new queue pair, except for the creation attributes.
func (q *QP) forget() {
	q.core.init, q.core.rtr, q.core.rts = verbs.ToInit{}, verbs.ToRTR{}, verbs.ToRTS{}
	q.core.flushed = reason.None
	q.core.notes.Reopen()
	q.req.reset()
	q.unr.at = clock.Never
	if q.core.cfg.Flow != nil {
		q.core.cfg.Flow.Reset()
	}
	q.rcv.reset()
	q.rsp.reset()
}
