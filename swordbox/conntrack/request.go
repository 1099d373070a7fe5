package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// request classifies a request of row r as its responder would.
func (t *Table) request(now clock.Time, r *Row, f *wire.Frame, icrc Checker) Seen {
	op, psn := f.BTH.Opcode, f.BTH.PSN
	if (!r.asked || wire.Diff(psn, r.high) > nearby) && !intact(icrc) {
		// A damaged PSN so far off would spoil what answers are measured by.
		t.stats.Damaged++
		return refused(r, false, Corrupt)
	}
	s := Seen{Row: r, Span: 1}
	if op == wire.RCReadRequest {
		s.Span = r.SpanOf(f.RETH.Length)
	}
	if r.State == Connecting {
		r.opened()
		r.Peer.opened()
	}
	switch d := wire.Diff(psn, r.Expected); {
	case !r.Synced:
		t.unsynced(r, psn, s.Span)
	case d == 0:
		s.Class, s.Alone = New, r.quiet() && t.settled(now, r)
		if s.Span == 0 {
			r.readPSN, r.readLen = psn, f.RETH.Length
		}
	case d > 0:
		s.Class = Ahead
	default:
		s.Class = Duplicate
	}
	r.reach(psn, s.Span, f.RETH.Length)
	if r.MTU == 0 && op.Is(wire.OpFirst|wire.OpMiddle) && isMTU(len(f.Payload)) && intact(icrc) {
		r.learnMTU(len(f.Payload))
	}
	if r.learn != nil && intact(icrc) {
		t.asks(r, f, s.Span)
	}
	return s
}

// opened notes that a connection is used.
func (r *Row) opened() {
	if r.State == Connecting {
		r.State = Open
	}
}

// reach moves high over a request. Behind a READ of unknown span it is a bound from above, until more is known.
func (r *Row) reach(psn wire.PSN, span int, n uint32) {
	if r.more = r.asked; !r.asked {
		r.asked, r.from, r.high = true, psn, psn
	}
	if end := psn.Add(r.atMost(span, n)); wire.Diff(end, r.high) > 0 || r.loose != 0 && wire.Diff(psn, r.loosePSN) > 0 {
		r.high, r.loose = end, 0
		if span == 0 {
			r.loose, r.loosePSN = n, psn
		}
	}
}

// tighten makes high exact, if it can be.
func (r *Row) tighten() {
	if span := r.SpanOf(r.loose); r.loose != 0 && span != 0 {
		r.high, r.loose = r.loosePSN.Add(span), 0
	}
}

// unsynced follows a row whose responder has not said yet where it is: the first request seen is as good a guess as any.
func (t *Table) unsynced(r *Row, psn wire.PSN, span int) {
	switch {
	case r.openRead:
	case !r.asked:
		r.Expected = psn.Add(span)
	case psn == r.Expected:
		r.Expected = psn.Add(span)
	}
}

// atMost is a bound of the span of a request for n bytes from above.
func (r *Row) atMost(span int, n uint32) int {
	if span != 0 {
		return span
	}
	return int((uint64(n) + minMTU - 1) / minMTU)
}

// learnMTU notes the MTU of both halves of a connection.
func (r *Row) learnMTU(n int) {
	r.setMTU(n)
	if r.Peer != nil {
		r.Peer.setMTU(n)
	}
}

// setMTU notes the MTU, and counts the responses of a READ that waited for it.
func (r *Row) setMTU(n int) {
	r.MTU, r.atLeast = n, n
	r.countRead()
}

// countRead moves Expected over the READ of unknown span, now that it is known.
func (r *Row) countRead() {
	r.tighten()
	if span := r.SpanOf(r.readLen); r.openRead && span != 0 {
		r.openRead, r.Synced = false, true
		r.Expected = r.readPSN.Add(span)
	}
}
