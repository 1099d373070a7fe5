package serve

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// States of a queue pair (enum ibv_qp_state).
const (
	stateReset = iota
	stateInit
	stateRTR
	stateRTS
	stateSQD
	stateSQE
	stateErr
)

// keep stores the attributes that a modify command sets.
func (o *programQPObject) keep(a *uverbs.ModifyQPArgs) {
	k, m := &o.attr, a.Mask
	set(m&uverbs.MaskAccess, &k.Access, a.Access)
	set(m&uverbs.MaskQKey, &k.QKey, a.QKey)
	set(m&uverbs.MaskDest, &k.Dest, a.Dest)
	set(m&uverbs.MaskDestQPN, &k.DestQPN, a.DestQPN)
	set(m&uverbs.MaskPKeyIndex, &k.PKeyIndex, a.PKeyIndex)
	set(m&uverbs.MaskRecvPSN, &k.RecvPSN, a.RecvPSN)
	set(m&uverbs.MaskSendPSN, &k.SendPSN, a.SendPSN)
	set(m&uverbs.MaskPort, &k.Port, a.Port)
	set(m&uverbs.MaskPathMTU, &k.PathMTU, a.PathMTU)
	set(m&uverbs.MaskTimeout, &k.Timeout, a.Timeout)
	set(m&uverbs.MaskRetry, &k.RetryCount, a.RetryCount)
	set(m&uverbs.MaskRNRRetry, &k.RNRRetry, a.RNRRetry)
	set(m&uverbs.MaskRdAtomic, &k.MaxRdAtomic, a.MaxRdAtomic)
	set(m&uverbs.MaskDestAtomic, &k.MaxDestRdAtomic, a.MaxDestRdAtomic)
	set(m&uverbs.MaskRNRTimer, &k.MinRNRTimer, a.MinRNRTimer)
	set(m&uverbs.MaskMigration, &k.Migration, a.Migration)
}

// set stores v in the attribute *to unless bit, the bit of the attribute in a mask, is 0.
func set[T any](bit uint32, to *T, v T) {
	if bit != 0 {
		*to = v
	}
}

// orNone converts a program's limit of READs and atomics in flight, where 0 means none, to that of
// package verbs, where 0 means the default and -1 none.
func orNone(n uint8) int {
	if n == 0 {
		return -1
	}
	return int(n)
}

// modifyQP makes a transition, or changes attributes within a state.
func (x *programQueues) modifyQP(o *programQPObject, a uverbs.ModifyQPArgs) (result, error) {
	defer o.current()()
	a.Mask &^= ignored[o.made.Type]
	state, draining := x.stateOf(o)
	o.state = state
	to := state
	set(a.Mask&uverbs.MaskState, &to, a.State)
	err := x.modifyTo(o, to, &a, draining)
	if err != nil {
		x.logRefusal(o, to, err)
		verbsengine.Deny(o.qp, fmt.Errorf("modify QP from %v to %v: %w", verbs.QPState(state), verbs.QPState(to), err))
	}
	return result{}, err
}

func (x *programQueues) modifyTo(o *programQPObject, to uint8, a *uverbs.ModifyQPArgs, draining bool) error {
	if !x.p.c.s.cfg.Lenient {
		if err := x.strict(o, to, a, draining); err != nil {
			return err
		}
	}
	if a.Mask&uverbs.MaskQKey != 0 && a.QKey&verbs.ControlledQKey != 0 && !x.p.privileged() {
		return fmt.Errorf("modify QP: Q_Key %#x begins with a 1 bit, and only root may set such a Q_Key: %w", a.QKey, unix.EPERM)
	}
	before := o.attr
	if a.Mask&uverbs.MaskPKeyIndex != 0 && a.PKeyIndex != before.PKeyIndex && to != stateInit && to != stateRTR && (to != stateSQD || o.state != stateSQD) {
		return badAttr("the P_Key index does not change on the way from %v to %v", verbs.QPState(o.state), verbs.QPState(to))
	}
	o.keep(a)
	err := x.move(o, to, a)
	if err != nil {
		o.attr = before
	}
	return err
}

// privileged reports whether the calling process may set Q_Keys that the system controls. A kernel asks
// for CAP_NET_RAW, which the daemon cannot see.
func (p *program) privileged() bool { return p.by.c.cred.Uid == 0 }

// stateOf returns the current state, which the NIC may have changed, and whether the queue pair is
// draining.
func (x *programQueues) stateOf(o *programQPObject) (state uint8, draining bool) {
	attr, err := o.qp.Query()
	if err != nil {
		return stateErr, false
	}
	return uint8(attr.State), attr.Draining // the numbers are those of libibverbs
}

// maxTimerCode is the largest code of an RNR timer, which has 5 bits.
const maxTimerCode = 31

// move makes the transition to the state `to` that command a requests.
func (x *programQueues) move(o *programQPObject, to uint8, a *uverbs.ModifyQPArgs) error {
	k := &o.attr
	init := verbs.ToInit{Access: uverbs.Granted(k.Access), QKey: k.QKey, PKeyIndex: int(k.PKeyIndex)}
	switch {
	case a.Mask == 0 && (to == stateReset || to == stateErr):
		return nil // nothing to change
	case to == stateReset:
		if err := o.qp.ToReset(); err != nil {
			return err
		}
		if o.own != nil {
			x.p.with(func(*port) { o.own.forget() })
		}
		if o.target != nil {
			x.p.c.s.pump.withdraw(o.qp.QPN())
		}
		return nil
	case to == stateErr:
		return o.qp.ToError()
	case to == stateInit && (o.state == stateReset || o.state == stateInit):
		return o.qp.ToInit(init)
	case to == stateRTR && o.state == stateInit:
		if k.PathMTU > 5 || k.MinRNRTimer > maxTimerCode {
			return unix.EINVAL
		}
		if err := o.qp.ToInit(init); err != nil { // from INIT to INIT, because the command may set access rights
			return err
		}
		return o.qp.ToRTR(verbs.ToRTR{
			DestQPN: wire.QPN(k.DestQPN), DestGID: k.Dest.DestGID, SourceGID: int(k.Dest.SourceGID), RecvPSN: wire.PSN(k.RecvPSN & 0xffffff),
			PathMTU: verbs.MTU(128 << k.PathMTU), MaxDestRdAtomic: orNone(k.MaxDestRdAtomic), MinRNRTimer: k.MinRNRTimer,
			TrafficClass: k.Dest.TClass, HopLimit: k.Dest.Hop, FlowLabel: k.Dest.Flow & flowLabel,
		})
	case to == stateRTS && o.state == stateRTR:
		// The RNR timer is checked before the transition, because a refused command must change nothing.
		if k.MinRNRTimer > maxTimerCode {
			return unix.EINVAL
		}
		changes := o.changes(a.Mask & optional[o.made.Type])
		err := o.qp.ToRTS(verbs.ToRTS{
			SendPSN: wire.PSN(k.SendPSN & 0xffffff), Timeout: k.Timeout, RetryCount: k.RetryCount, RNRRetry: k.RNRRetry, MaxRdAtomic: orNone(k.MaxRdAtomic),
		})
		if err == nil {
			err = o.qp.Modify(changes)
		}
		if err == nil {
			x.ring(o) // posts the work requests that the program posted before this transition
		}
		return err
	case to == stateRTS && (o.state == stateSQD || o.state == stateSQE):
		if a.Mask&^(uverbs.MaskState|uverbs.MaskCurrent|optional[o.made.Type]) != 0 {
			return unix.EINVAL
		}
		if err := o.qp.Modify(o.changes(a.Mask & optional[o.made.Type])); err != nil {
			return err
		}
		return o.qp.ResumeRTS()
	case to == stateSQD && o.state == stateRTS:
		if a.Mask&^(uverbs.MaskState|uverbs.MaskCurrent|uverbs.MaskSQDNotify) != 0 {
			return unix.EINVAL
		}
		return o.qp.ToSQD()
	case to == o.state && a.Mask&^(uverbs.MaskState|uverbs.MaskCurrent|inState) == 0:
		return o.qp.Modify(o.changes(a.Mask))
	}
	return unix.EINVAL
}

// ignored are the attributes that a command may name and that are ignored, by queue pair type, as over a kernel:
// those of the other end.
var ignored = map[uint8]uint32{
	uverbs.TypeXRCInitiator: uverbs.MaskDestAtomic | uverbs.MaskRNRTimer, uverbs.TypeXRCTarget: uverbs.MaskRdAtomic | uverbs.MaskRetry | uverbs.MaskRNRRetry,
}

// optional are the attributes that a transition to RTS may set, by queue pair type. Programs may
// also name attributes that the type does not have; these are ignored.
var optional = map[uint8]uint32{
	uverbs.TypeRC: uverbs.MaskAccess | uverbs.MaskRNRTimer | uverbs.MaskMigration, uverbs.TypeUC: uverbs.MaskAccess | uverbs.MaskMigration,
	uverbs.TypeUD: uverbs.MaskQKey, uverbs.TypeXRCInitiator: uverbs.MaskAccess | uverbs.MaskMigration,
	uverbs.TypeXRCTarget: uverbs.MaskAccess | uverbs.MaskRNRTimer | uverbs.MaskMigration,
}

// inState are the attributes of a queue pair that a modify command can change without a transition,
// in at least one state. The NIC has one port, and no path to migrate to.
const inState = uverbs.MaskAccess | uverbs.MaskQKey | uverbs.MaskRNRTimer | uverbs.MaskTimeout | uverbs.MaskRetry | uverbs.MaskRNRRetry |
	uverbs.MaskPKeyIndex | uverbs.MaskDest | uverbs.MaskRdAtomic | uverbs.MaskDestAtomic | uverbs.MaskPort | uverbs.MaskMigration

// modifyBits has the bit of verbs.QPModify.Mask for each bit of inState that the NIC needs to know.
var modifyBits = map[uint32]verbs.QPMask{
	uverbs.MaskAccess: verbs.ModifyAccess, uverbs.MaskQKey: verbs.ModifyQKey, uverbs.MaskRNRTimer: verbs.ModifyRNRTimer,
	uverbs.MaskTimeout: verbs.ModifyTimeout, uverbs.MaskRetry: verbs.ModifyRetryCount, uverbs.MaskRNRRetry: verbs.ModifyRNRRetry,
	uverbs.MaskPKeyIndex: verbs.ModifyPKey, uverbs.MaskDest: verbs.ModifyDest,
	uverbs.MaskRdAtomic: verbs.ModifyMaxRdAtomic, uverbs.MaskDestAtomic: verbs.ModifyMaxDestRdAtomic,
}

// changes returns the attributes that mask selects, in the form of package verbs. It takes the
// values that the method keep has stored.
func (o *programQPObject) changes(mask uint32) verbs.QPModify {
	m := verbs.QPModify{
		Access: uverbs.Granted(o.attr.Access), QKey: o.attr.QKey, MinRNRTimer: o.attr.MinRNRTimer,
		Timeout: o.attr.Timeout, RetryCount: o.attr.RetryCount, RNRRetry: o.attr.RNRRetry, PKeyIndex: int(o.attr.PKeyIndex),
		Dest:        ahAttr(&o.attr.Dest),
		MaxRdAtomic: orNone(o.attr.MaxRdAtomic), MaxDestRdAtomic: orNone(o.attr.MaxDestRdAtomic),
	}
	for theirs, ours := range modifyBits {
		if mask&theirs != 0 {
			m.Mask |= ours
		}
	}
	return m
}

// ahAttr converts the address of a peer.
func ahAttr(d *uverbs.QPDest) verbs.AHAttr {
	return verbs.AHAttr{DestGID: d.DestGID, SourceGID: int(d.SourceGID), TrafficClass: d.TClass, HopLimit: d.Hop, FlowLabel: d.Flow & flowLabel}
}
