package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// response handles a response that travels in the direction of flow `back`. The response answers a
// request of the peer of back.
func (t *Table) response(now clock.Time, back *Flow, f *wire.Frame, icrc Checker) Seen {
	if back.Peer == nil {
		if !intact(icrc) {
			t.stats.Damaged++
			return Seen{Response: true, Bad: Corrupt}
		}
		if to := t.learner.response(now, back, f); to != nil {
			t.pair(to, back)
		}
		if back.Peer == nil {
			return Seen{Response: true, Bad: Unknown}
		}
	}
	fl := back.Peer
	s := Seen{Flow: fl, Response: true}
	if fl.PathMTU.MTU == 0 && f.BTH.Opcode.Is(wire.OpRead) && intact(icrc) {
		fl.measure(f)
	}
	syndrome := f.AETH.Syndrome
	negative := f.BTH.Opcode == wire.RCAck && !syndrome.IsAck()
	if negative && syndrome.IsNak() && syndrome != wire.NakPSNSequence && intact(icrc) {
		fl.State.on(evFatal) // IBTA 9.9.2.4
		back.State.on(evFatal)
	}
	if fl.Pinned {
		if fl.host.learning.n != 0 && t.learner.doubtful(fl, f) {
			t.stats.Doubted++
			s.Bad = Implausible
		}
		return s
	}
	covers := f.BTH.PSN
	if negative {
		covers = covers.Add(-1)
	}
	s.Bad = t.covered(now, fl, covers, negative, f, icrc)
	return s
}

// covered records that response f has answered all requests up to psn. If f also shows which PSN
// the responder expects, covered sets Expected to it. negative is true if f is a NAK.
func (t *Table) covered(now clock.Time, fl *Flow, psn wire.PSN, negative bool, f *wire.Frame, icrc Checker) Reason {
	if !fl.reached(psn) {
		if fl.settled(now) || !intact(icrc) {
			t.stats.Implausible++
			return Implausible
		}
		// The request was sent before the switch saw the flow.
		if fl.seen == noRequest {
			fl.from, fl.Expected = psn, psn
		}
		fl.seen, fl.high = max(fl.seen, oneRequest), psn.Next()
	}
	if wire.Diff(psn.Next(), fl.Expected) >= 0 && !intact(icrc) {
		return Fine // if psn is damaged, requests in flight must not count as answered (see Seen.Alone)
	}
	fl.acked(psn)
	if negative || fl.Synced() && wire.Diff(psn, fl.Expected) < 0 || wire.Diff(psn, fl.from) < 0 || !intact(icrc) {
		return Fine
	}
	// The responder has accepted all requests up to psn, so Expected is at least the next PSN. It
	// stays higher if the switch has seen later requests in order, because they may reach the
	// responder, too. If the response is a READ response but not the last one of its READ, the next
	// PSN still belongs to that READ.
	if !endsRead(f.BTH.Opcode) {
		return Fine
	}
	if fl.Synced() {
		t.stats.Resyncs++
	}
	fl.syncTo(psn, f)
	return Fine
}

// endsRead reports whether a response completes the request that it answers. Only a first or middle
// READ response does not.
func endsRead(op wire.Opcode) bool {
	return op != wire.RCReadResponseFirst && op != wire.RCReadResponseMiddle
}
