package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// movedBy reports whether a damaged copy of this request could move the flow's PSNs too far. A PSN
// that is ahead raises high, and later requests are then not Alone. A wrong length of a READ, or a
// wrong bit that makes a short SEND look like a READ, raises Expected, and later requests then look
// like duplicates. On an unsynced flow, classify raises Expected without waiting for Advance.
func (q *Sequence) movedBy(op wire.Opcode, psn wire.PSN) bool {
	return q.seen == noRequest || q.sync == unsynced || op == wire.RCReadRequest || wire.Diff(psn, q.high) > 0
}

// request classifies a request of a flow in the same way as its responder does.
func (t *Table) request(now clock.Time, fl *Flow, f *wire.Frame, icrc Checker) Seen {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	if fl.movedBy(op, psn) && !intact(icrc) {
		t.stats.Damaged++
		return refused(fl, false, Corrupt)
	}
	s := Seen{Flow: fl, Span: 1}
	if op == wire.RCReadRequest {
		s.Span = fl.SpanOf(f.RETH.Length)
	}
	if fl.State == Connecting {
		fl.State.on(evUsed)
		fl.Peer.State.on(evUsed)
	}
	if s.Class = fl.classify(psn, s.Span); s.Class == New {
		s.Alone = fl.quiet() && fl.settled(now)
		if s.Span == 0 {
			fl.open = readOf{psn, f.RETH.Length}
		}
	}
	fl.reach(psn, s.Span, f.RETH.Length)
	if fl.MTU == 0 && op.Is(wire.OpFirst|wire.OpMiddle) && isMTU(len(f.Payload)) && intact(icrc) {
		fl.learnMTU(len(f.Payload))
	}
	if fl.learn != nil && intact(icrc) {
		fl.learn.request(f, s.Span)
	}
	return s
}
