package transport

import (
	"cmp"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// changeable has the attributes that Modify may change, by state. In INIT and RTR there are none,
// because the transition to the next state sets all attributes.
var changeable = map[verbs.QPState]verbs.QPMask{
	verbs.StateRTS: inTraffic,
	verbs.StateSQE: inTraffic,
	verbs.StateSQD: inTraffic | inRetries | verbs.ModifyPKey | verbs.ModifyDest | verbs.ModifyMaxRdAtomic | verbs.ModifyMaxDestRdAtomic,
}

// inTraffic are the attributes that may change while the send queue works.
const inTraffic = verbs.ModifyAccess | verbs.ModifyQKey | verbs.ModifyRNRTimer

// inRetries are the attributes that say when and how often a request is sent again.
const inRetries = verbs.ModifyTimeout | verbs.ModifyRetryCount | verbs.ModifyRNRRetry

// Modify changes attributes without a transition: either all of a, or none and an error (IBTA
// 11.2.5.2/optional). New access rights and a new RNR timer apply from the next packet of the peer
// on. If a retry attribute changes, the retry counters are reset and a running ACK timer starts
// again, with the new values. The caller keeps the route to the peer and the P_Key of packets.
func (q *QP) Modify(now clock.Time, a verbs.QPModify) error {
	if a.Mask&^q.core.svc.changes != 0 {
		return badAttr("attributes %#x are not those of a %v queue pair", a.Mask&^q.core.svc.changes, q.core.cfg.Type)
	}
	if bad := a.Mask &^ changeable[q.core.state]; bad != 0 {
		return &verbs.OpError{Op: "modify qp", Err: verbs.ErrState, Detail: "attributes cannot change in " + q.core.state.String()}
	}
	init, rtr, rts := q.core.init, q.core.rtr, q.core.rts
	reads, readsErr := changedReads(&a, verbs.ModifyMaxRdAtomic, "MaxRdAtomic", a.MaxRdAtomic)
	resources, resourcesErr := changedReads(&a, verbs.ModifyMaxDestRdAtomic, "MaxDestRdAtomic", a.MaxDestRdAtomic)
	for _, f := range [...]struct {
		bit verbs.QPMask
		set func()
	}{
		{verbs.ModifyAccess, func() { init.Access = a.Access }},
		{verbs.ModifyQKey, func() { init.QKey = a.QKey }},
		{verbs.ModifyRNRTimer, func() { rtr.MinRNRTimer = a.MinRNRTimer }},
		{verbs.ModifyTimeout, func() { rts.Timeout = a.Timeout }},
		{verbs.ModifyRetryCount, func() { rts.RetryCount = a.RetryCount }},
		{verbs.ModifyRNRRetry, func() { rts.RNRRetry = a.RNRRetry }},
		{verbs.ModifyPKey, func() { init.PKeyIndex = a.PKeyIndex }},
		{verbs.ModifyDest, func() { moveTo(&rtr, &a.Dest) }},
		{verbs.ModifyMaxRdAtomic, func() { rts.MaxRdAtomic = reads }},
		{verbs.ModifyMaxDestRdAtomic, func() { rtr.MaxDestRdAtomic = resources }},
	} {
		if a.Mask&f.bit != 0 {
			f.set()
		}
	}
	for _, err := range [...]error{q.validInit(init), validTimer(rtr), validRTS(rts), readsErr, resourcesErr} {
		if err != nil {
			return err
		}
	}
	q.core.lastNow = now
	q.core.init, q.core.rtr, q.core.rts = init, rtr, rts
	if a.Mask&inRetries != 0 {
		q.req.retuned(now)
	}
	if a.Mask&verbs.ModifyMaxDestRdAtomic != 0 {
		q.rsp.resize(resources)
	}
	return nil
}

// changedReads returns the number of READs and atomics that an attribute allows, if a changes it.
func changedReads(a *verbs.QPModify, bit verbs.QPMask, name string, n int) (int, error) {
	if a.Mask&bit == 0 {
		return 0, nil
	}
	return rdAtomic(name, n)
}

// moveTo replaces the address of the peer.
func moveTo(rtr *verbs.ToRTR, a *verbs.AHAttr) {
	rtr.DestGID, rtr.SourceGID, rtr.TrafficClass, rtr.FlowLabel = a.DestGID, a.SourceGID, a.TrafficClass, a.FlowLabel
	rtr.HopLimit = cmp.Or(a.HopLimit, DefaultHopLimit)
}

// resize changes how many READs and atomics of the peer may be in flight. Answers that wait to be
// sent are sent; of the stored results the newest stay.
func (r *responder) resize(resources int) {
	r.answers.resize(resources)
	r.exec.replay.resize(resources)
}

// retuned applies new values of the retry attributes to the requests in flight. If the requester
// waits because of an RNR NAK, this wait continues.
func (r *requester) retuned(now clock.Time) {
	waiting := r.retry.rnrAt
	r.retry.start(r.rts)
	r.retry.rnrAt = waiting
	if r.window.flight > 0 && waiting == clock.Never {
		r.armTimer(now)
	}
}
