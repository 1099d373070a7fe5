package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// nearby is how many PSNs past the highest seen a request may be without a check of its ICRC:
// requests that were lost may be missing before it.
const nearby = 4096

// request classifies a request of a flow as its responder would.
func (t *Table) request(now clock.Time, fl *Flow, f *wire.Frame, icrc Checker) Seen {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	if (fl.seen == noRequest || wire.Diff(psn, fl.high) > nearby) && !intact(icrc) {
		// Responses are checked against high: a damaged PSN this far off must not become high.
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
