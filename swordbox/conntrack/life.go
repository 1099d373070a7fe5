package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
)

// arrive makes a learning row for a packet under a key that is not known.
func (t *Table) arrive(now clock.Time, in int, k *key, f *wire.Frame, icrc Checker) (*Row, Reason) {
	if !intact(icrc) {
		t.stats.Damaged++
		return nil, Corrupt
	}
	if !t.started {
		t.started, t.start = true, now
	}
	h, bad := t.from(now, f.SrcAddr(), in)
	if bad == Fine && !t.roomToLearn(now, h) {
		bad = NoRoom
	}
	var r *Row
	if bad == Fine {
		if r = t.newRow(now, k, h, f.DstAddr()); r == nil {
			bad = NoRoom
		}
	}
	if bad == Spoofed {
		t.stats.Spoofed++
		return nil, bad
	}
	if bad != Fine {
		t.stats.NoRoom++
		return nil, bad
	}
	r.State, r.Port = Learning, in
	t.setPath(r, f)
	t.startLearning(now, r)
	return r, Fine
}

// newRow enters a row under a key that is not there; nil if there is no room.
func (t *Table) newRow(now clock.Time, k *key, h *host, responder netip.Addr) *Row {
	if t.used >= t.MaxRows() && !t.makeRoom(now, h) {
		return nil
	}
	var r *Row
	if n := len(t.free); n != 0 {
		r = t.rows[t.free[n-1]]
		t.free = t.free[:n-1]
	} else {
		r = &Row{ID: uint32(len(t.rows))}
		t.rows = append(t.rows, r)
	}
	if t.serial++; t.serial == 0 {
		t.serial = 1
	}
	*r = Row{
		ID: r.ID, Generation: t.serial, Requester: h.addr, Responder: responder, RespQPN: k.qpn,
		Port: -1, Last: now, Since: now, key: *k, host: h,
	}
	t.used++
	h.rows++
	t.index.put(r)
	if t.sweep == clock.Never {
		t.sweep = now.Add(sweepEvery)
	}
	return r
}

// makeRoom gives up a row: one in quarantine, or one that is learning; those of h first. Nothing else is given up.
func (t *Table) makeRoom(now clock.Time, h *host) bool {
	if h.learning.head != nil {
		t.evict(now, h.learning.head)
		return true
	}
	for r := t.closed.head; r != nil; r = r.next {
		if !r.Pinned {
			t.drop(r)
			return true
		}
	}
	if v := t.crowder(); v != nil {
		t.evict(now, v.learning.head)
		return true
	}
	return false
}

// crowder is the host with the most learning rows, nil if nobody has one.
func (t *Table) crowder() *host {
	var most *host
	for _, h := range t.hosts {
		if h.learning.n != 0 && (most == nil || h.learning.n > most.learning.n || h.learning.n == most.learning.n && h.addr.Less(most.addr)) {
			most = h
		}
	}
	return most
}

// evict gives up a learning row. From then on its host's requests cannot all be known.
func (t *Table) evict(now clock.Time, r *Row) {
	t.stats.Evicted++
	r.host.lost, r.host.anyLost = now, true
	t.drop(r)
}

// drop forgets a row, and its other half.
func (t *Table) drop(r *Row) {
	peer := r.Peer
	t.release(r)
	if peer != nil {
		t.release(peer)
	}
}

// release forgets one row.
func (t *Table) release(r *Row) {
	if r.State == Closed {
		t.closed.remove(r)
	} else {
		t.cfg.OnClose(r)
	}
	t.stopLearning(r)
	if r.setup != nil {
		t.forgetSetup(r.setup)
	}
	if r.Peer != nil && r.Peer.Peer == r {
		r.Peer.Peer = nil
	}
	t.index.remove(r)
	r.host.rows--
	t.used--
	*r = Row{ID: r.ID}
	t.free = append(t.free, r.ID)
}

// end closes a connection: its keys stay in quarantine.
func (t *Table) end(now clock.Time, r *Row) {
	if r.State == Closed {
		return
	}
	t.stats.Ended++
	if r.setup != nil {
		t.forgetSetup(r.setup)
	}
	for _, r := range []*Row{r, r.Peer} {
		if r == nil {
			continue
		}
		t.cfg.OnClose(r)
		t.stopLearning(r)
		r.State, r.until = Closed, now.Add(t.cfg.Quarantine)
		t.closed.push(r)
	}
}

// pair makes two rows the halves of one connection.
func (t *Table) pair(a, b *Row) {
	t.stopLearning(a)
	t.stopLearning(b)
	for _, p := range [][2]*Row{{a, b}, {b, a}} {
		r, peer := p[0], p[1]
		r.Peer, r.ReqQPN, r.State = peer, peer.RespQPN, Open
		r.atLeast = max(r.atLeast, peer.atLeast)
		if peer.MTU != 0 && r.MTU == 0 {
			r.setMTU(peer.MTU)
		}
	}
}

// reuse looks at a request after a silence that is longer than any NIC tries: whoever asks for another PSN than the next
// one is not who asked before. The row is forgotten, or, if it is pinned, its connection can only fail.
func (t *Table) reuse(now clock.Time, r *Row, f *wire.Frame, icrc Checker) Reason {
	if r.State == Closed || r.State == Learning || f.BTH.Opcode.Is(wire.OpResponse) || !r.Synced || !r.asked || !intact(icrc) {
		return Fine
	}
	if r.Peer != nil && now.Sub(r.Peer.Last) < t.cfg.Quarantine {
		return Fine
	}
	if d := wire.Diff(f.BTH.PSN, r.Expected); d >= 0 && d < nearby {
		return Fine
	}
	t.stats.Reused++
	if r.Pinned {
		return Quarantined
	}
	t.drop(r)
	return Fine
}

// nearby is how far ahead of the expected PSN a request may be because those before it were lost.
const nearby = 4096

func (t *Table) setPath(r *Row, f *wire.Frame) { r.Path, r.HasPath = rewrite.PathOf(f), true }

// Forget ends every connection of an address, as its host going away does.
func (t *Table) Forget(now clock.Time, a netip.Addr) {
	for _, r := range t.rows {
		if r.Generation != 0 && r.State != Closed && (r.Requester == a || r.Responder == a) {
			if r.State == Learning {
				t.drop(r)
			} else {
				t.end(now, r)
			}
		}
	}
}

// sweepRows is how many rows one Tick looks at.
const sweepRows = 256

// Tick forgets what has been silent for too long. It looks at a part of the table at a time, and at all of it once in
// sweepEvery.
func (t *Table) Tick(now clock.Time) {
	if now < t.sweep {
		return
	}
	t.expireSetups(now)
	for range min(sweepRows, len(t.rows)) {
		if t.cursor >= len(t.rows) {
			t.cursor = 0
		}
		if r := t.rows[t.cursor]; r.Generation != 0 {
			t.age(now, r)
		}
		t.cursor++
	}
	t.sweep = clock.Never
	if t.used > 0 || len(t.asked) > 0 {
		t.sweep = now.Add(max(time.Millisecond, sweepEvery*sweepRows/time.Duration(max(sweepRows, len(t.rows)))))
	}
}

// age ends a row if it is time.
func (t *Table) age(now clock.Time, r *Row) {
	last := r.Last
	if r.Peer != nil {
		last = max(last, r.Peer.Last)
	}
	silent := now.Sub(last)
	switch {
	case r.State == Closed:
		if now >= r.until {
			t.release(r)
		}
	case r.State == Closing:
		if silent >= t.cfg.Quarantine {
			t.end(now, r)
		}
	case silent < t.cfg.Idle:
	case !r.Pinned && (r.Peer == nil || !r.Peer.Pinned):
		t.stats.Idled++
		t.drop(r)
	case t.used-t.closed.n > t.MaxRows()-t.MaxRows()/8:
		// Queue pairs of hosts that died without a word leave pinned rows. When there is hardly room for others, those are
		// given up: whoever still lives behind one fails, and sees it.
		t.stats.GivenUp++
		t.end(now, r)
	}
}

// Deadline is when Tick wants to be called; clock.Never if not at all.
func (t *Table) Deadline() clock.Time { return t.sweep }
