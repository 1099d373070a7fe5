package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// response notes a response that came on the direction back, which is the peer of the row that it answers.
func (t *Table) response(now clock.Time, back *Row, f *wire.Frame, icrc Checker) Seen {
	if back.Peer == nil {
		if !intact(icrc) {
			t.stats.Damaged++
			return Seen{Response: true, Bad: Corrupt}
		}
		t.answers(now, back, f)
		if back.Peer == nil {
			return Seen{Response: true, Bad: Unknown}
		}
	}
	r := back.Peer
	s := Seen{Row: r, Response: true}
	if r.MTU == 0 && f.BTH.Opcode.Is(wire.OpRead) && intact(icrc) {
		r.measure(f)
	}
	syndrome := f.AETH.Syndrome
	negative := f.BTH.Opcode == wire.RCAck && !syndrome.IsAck()
	if negative && syndrome.IsNak() && syndrome != wire.NakPSNSequence && intact(icrc) {
		t.fatal(r)
	}
	if r.Pinned {
		if r.host.learning.n != 0 && t.doubtful(r, f) {
			t.stats.Doubted++
			s.Bad = Implausible
		}
		return s
	}
	covers := f.BTH.PSN
	if negative {
		covers = covers.Add(-1)
	}
	s.Bad = t.covered(now, r, covers, negative, f, icrc)
	return s
}

// covered notes that everything up to a PSN has been answered. A row that is not in step with its responder gets there.
func (t *Table) covered(now clock.Time, r *Row, psn wire.PSN, negative bool, f *wire.Frame, icrc Checker) Reason {
	if !r.asked || wire.Diff(psn, r.high) >= 0 {
		if t.settled(now, r) || !intact(icrc) {
			t.stats.Implausible++
			return Implausible
		}
		r.asked, r.high = true, psn.Next() // it was asked before the switch looked
	}
	if !r.HasAcked || wire.Diff(psn, r.Acked) > 0 {
		r.Acked, r.HasAcked = psn, true
	}
	if negative || r.Synced && wire.Diff(psn, r.Expected) < 0 || wire.Diff(psn, r.from) < 0 || !intact(icrc) {
		return Fine
	}
	// The responder has accepted everything up to psn, and what the switch has seen in order behind it may come to it.
	if !endsRead(f.BTH.Opcode) {
		return Fine // the PSN behind it is that READ's, too
	}
	if r.Synced {
		t.stats.Resyncs++
	}
	if r.loose != 0 && wire.Diff(psn, r.loosePSN) >= 0 && f.BTH.Opcode.Is(wire.OpRead) {
		r.high, r.loose = psn.Next(), 0 // that READ's last response
	}
	r.openRead, r.Synced = false, true
	if wire.Diff(psn, r.Expected) >= 0 {
		r.Expected = psn.Next()
	}
	return Fine
}

// endsRead reports whether a response leaves no READ before it open.
func endsRead(op wire.Opcode) bool {
	return op != wire.RCReadResponseFirst && op != wire.RCReadResponseMiddle
}

// measure learns the MTU from a READ response.
func (r *Row) measure(f *wire.Frame) {
	switch n := len(f.Payload); {
	case f.BTH.Opcode == wire.RCReadResponseFirst || f.BTH.Opcode == wire.RCReadResponseMiddle:
		if isMTU(n) {
			r.learnMTU(n)
		}
	case f.BTH.Opcode == wire.RCReadResponseOnly && n > r.atLeast && n <= maxMTU:
		if r.atLeast = n; r.openRead && r.readLen == uint32(n) {
			r.countRead()
		}
		if n > maxMTU/2 {
			r.learnMTU(maxMTU)
		}
	}
}

// fatal notes a NAK that ends a connection (IBTA 9.9.2.4).
func (t *Table) fatal(r *Row) {
	for _, r := range []*Row{r, r.Peer} {
		if r != nil && r.State != Closed {
			r.State = Closing
		}
	}
}
