package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// changeable has the attributes that Modify may change, by state. In INIT and RTR there are none,
// because the transition to the next state sets all attributes.
var changeable = map[verbs.QPState]verbs.QPMask{
	verbs.StateRTS: inTraffic,
	verbs.StateSQE: inTraffic,
	verbs.StateSQD: inTraffic | verbs.ModifyTimeout | verbs.ModifyRetryCount | verbs.ModifyRNRRetry,
}

// inTraffic are the attributes that may change while the send queue works.
const inTraffic = verbs.ModifyAccess | verbs.ModifyQKey | verbs.ModifyRNRTimer

// Modify changes attributes without a transition: either all of a, or none and an error (IBTA
// 11.2.5.2/optional). New access rights and a new RNR timer apply from the next packet of the peer
// on. If a retry attribute changes, the retry counters are reset and a running ACK timer starts
// again, with the new values.
func (q *QP) Modify(now clock.Time, a verbs.QPModify) error {
	if a.Mask&^q.svc.changes != 0 {
		return badAttr("attributes %#x are not those of a %v queue pair", a.Mask&^q.svc.changes, q.cfg.Type)
	}
	if bad := a.Mask &^ changeable[q.state]; bad != 0 {
		return &verbs.OpError{Op: "modify qp", Err: verbs.ErrState, Detail: "attributes cannot change in " + q.state.String()}
	}
	init, rtr, rts := q.init, q.rtr, q.rts
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
	} {
		if a.Mask&f.bit != 0 {
			f.set()
		}
	}
	for _, err := range [...]error{validInit(init), validTimer(rtr), validRTS(rts)} {
		if err != nil {
			return err
		}
	}
	q.lastNow = now
	q.init, q.rtr, q.rts = init, rtr, rts
	if a.Mask&^inTraffic != 0 {
		q.req.retuned(now)
	}
	return nil
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
