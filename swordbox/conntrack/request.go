package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// nearby is how far ahead of the highest PSN seen a request may be without a check of its ICRC.
// Such a gap may be due to requests that were lost before the switch.
const nearby = 4096

// request classifies a request of a flow in the same way as its responder does.
func (t *Table) request(now clock.Time, fl *Flow, f *wire.Frame, icrc Checker) Seen {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	if (fl.seen == noRequest || wire.Diff(psn, fl.high) > nearby) && !intact(icrc) {
		// high decides which responses are plausible. A damaged PSN that is far ahead must not
		// become high.
		t.stats.Damaged++
		return refused(fl, false, Corrupt)
	}
	s := Seen{Flow: fl, Span: 1}
	if op == wire.RCReadRequest {
		if !intact(icrc) {
			// A damaged length would move Expected, and the requests that follow would pass for
			// duplicates. A wrong bit in the opcode makes a SEND of 16 bytes a READ of any length.
			t.stats.Damaged++
			return refused(fl, false, Corrupt)
		}
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
