package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// arrive creates a learning flow for a packet whose flow the table does not know.
func (t *Table) arrive(now clock.Time, in int, k *key, f *wire.Frame, icrc Checker) (*Flow, Reason) {
	if !intact(icrc) {
		t.stats.Damaged++
		return nil, Corrupt
	}
	if !t.started {
		t.started, t.start = true, now
	}
	h, bad := t.hosts.from(now, f.SrcAddr(), in)
	if bad != Fine {
		return nil, bad
	}
	t.roomToLearn(now, h)
	fl := t.newFlow(now, k, h, f.DstAddr())
	if fl == nil {
		t.stats.NoRoom++
		return nil, NoRoom
	}
	fl.State.on(evPacket)
	fl.Port = in
	fl.follow(f)
	until := clock.Time(0)
	settle := max(t.cfg.Settle, t.cfg.Quarantine)
	if t.cfg.Settle > 0 && now < t.start.Add(t.cfg.Settle) || h.anyLost && now < h.lost.Add(settle) {
		until, fl.Middle = now.Add(settle), true
	}
	t.learner.start(now, fl, until)
	return fl, Fine
}

// roomToLearn evicts a learning flow if there is no room for another one of host h: h has half of
// Config.Learning already, or all hosts together have Config.Learning.
func (t *Table) roomToLearn(now clock.Time, h *host) {
	switch {
	case h.learning.n >= max(1, t.cfg.Learning/2):
		t.evict(now, h.learning.head)
	case t.learner.full():
		if h.learning.n == 0 {
			h = t.hosts.mostLearning()
		}
		t.evict(now, h.learning.head)
	}
}

// newFlow adds a flow with key k, which is not in the table yet. It returns nil if there is no
// room.
func (t *Table) newFlow(now clock.Time, k *key, h *host, responder netip.Addr) *Flow {
	if t.used >= t.MaxFlows() && !t.makeRoom(now, h) {
		return nil
	}
	var fl *Flow
	if n := len(t.free); n != 0 {
		fl = t.flows[t.free[n-1]]
		t.free = t.free[:n-1]
	} else {
		fl = &Flow{ID: uint32(len(t.flows))}
		t.flows = append(t.flows, fl)
	}
	if t.serial++; t.serial == 0 {
		t.serial = 1
	}
	*fl = Flow{
		ID: fl.ID, Generation: t.serial, Ends: Ends{Requester: h.addr, Responder: responder, RespQPN: k.qpn},
		Route: Route{Port: -1}, Last: now, Since: now, entry: entry{key: *k, host: h},
	}
	t.used++
	h.flows++
	t.index.put(fl)
	t.wake(now)
	return fl
}

// makeRoom removes a flow to make room for a new one of host h: a learning flow of h, or else a
// flow in quarantine that is not pinned, with its peer, or else a learning flow of another host. It
// removes no other kind of flow. The result reports whether it removed one.
func (t *Table) makeRoom(now clock.Time, h *host) bool {
	if h.learning.head != nil {
		t.evict(now, h.learning.head)
		return true
	}
	for fl := t.closed.head; fl != nil; fl = fl.next {
		if !fl.Pinned {
			t.drop(fl)
			return true
		}
	}
	if v := t.hosts.mostLearning(); v != nil {
		t.evict(now, v.learning.head)
		return true
	}
	return false
}

// evict removes a learning flow to make room. From then on the table may miss requests of the host
// of this flow.
func (t *Table) evict(now clock.Time, fl *Flow) {
	t.stats.Evicted++
	fl.host.lost, fl.host.anyLost = now, true
	t.drop(fl)
}

// drop removes a flow and its peer from the table.
func (t *Table) drop(fl *Flow) {
	peer := fl.Peer
	t.release(fl)
	if peer != nil {
		t.release(peer)
	}
}

// release removes one flow from the table.
func (t *Table) release(fl *Flow) {
	if fl.State == Closed {
		t.closed.remove(fl)
	} else {
		t.cfg.OnClose(fl)
	}
	t.learner.stop(fl)
	if fl.setup != nil {
		t.setups.forget(fl.setup)
	}
	if fl.Peer != nil && fl.Peer.Peer == fl {
		fl.Peer.Peer = nil
	}
	t.index.remove(fl)
	fl.host.flows--
	t.used--
	*fl = Flow{ID: fl.ID}
	t.free = append(t.free, fl.ID)
}

// end closes a connection and puts the keys of both flows into quarantine.
func (t *Table) end(now clock.Time, fl *Flow) {
	if fl.State == Closed {
		return
	}
	t.stats.Ended++
	if fl.setup != nil {
		t.setups.forget(fl.setup)
	}
	for _, fl := range []*Flow{fl, fl.Peer} {
		if fl == nil {
			continue
		}
		t.cfg.OnClose(fl)
		t.learner.stop(fl)
		fl.State.on(evEnded)
		fl.until = now.Add(t.cfg.Quarantine)
		t.closed.push(fl)
	}
}

func (t *Table) pair(a, b *Flow) {
	t.learner.stop(a)
	t.learner.stop(b)
	for _, p := range [][2]*Flow{{a, b}, {b, a}} {
		fl, peer := p[0], p[1]
		fl.Peer, fl.ReqQPN = peer, peer.RespQPN
		fl.State.on(evPaired)
		fl.PathMTU.atLeast = max(fl.PathMTU.atLeast, peer.PathMTU.atLeast)
		if peer.PathMTU.MTU != 0 && fl.PathMTU.MTU == 0 {
			fl.setMTU(peer.PathMTU.MTU)
		}
	}
}

// nearby is how many PSNs a request may be ahead of the expected PSN after a silence. If it is
// farther ahead, or behind, reuse takes its queue pair for that of a new connection.
const nearby = 4096

// reuse checks a request that arrives after a silence of Config.Quarantine, which is longer than
// any NIC retries. If its PSN is not near the expected one, the queue pair belongs to a new
// connection. Then the table forgets the flow or, if the flow is pinned, refuses the request.
func (t *Table) reuse(now clock.Time, fl *Flow, f *wire.Frame) Reason {
	if fl.State == Closed || fl.State == Learning || f.BTH.Opcode.Is(wire.OpResponse) || !fl.Synced() || fl.seen == noRequest {
		return Fine
	}
	if fl.Peer != nil && now.Sub(fl.Peer.Last) < t.cfg.Quarantine {
		return Fine
	}
	if d := wire.Diff(f.BTH.PSN, fl.Expected); d >= 0 && d < nearby {
		return Fine
	}
	t.stats.Reused++
	if fl.Pinned {
		return Quarantined
	}
	t.drop(fl)
	return Fine
}

// Interval and amount of work of the sweep.
const (
	// sweepEvery is the interval at which each flow is checked for silence.
	sweepEvery = time.Second
	// sweepFlows is how many flows one Tick checks.
	sweepFlows = 256
)

// wake schedules the sweep, if it is not scheduled yet.
func (t *Table) wake(now clock.Time) {
	if t.sweep == clock.Never {
		t.sweep = now.Add(sweepEvery)
	}
}

// Tick forgets flows that have been silent for too long. The caller calls it at Deadline. Each call
// checks a part of the table, so that the whole table is checked about every sweepEvery.
func (t *Table) Tick(now clock.Time) {
	if now < t.sweep {
		return
	}
	t.setups.expire(now)
	for range min(sweepFlows, len(t.flows)) {
		if t.cursor >= len(t.flows) {
			t.cursor = 0
		}
		if fl := t.flows[t.cursor]; fl.Generation != 0 {
			t.age(now, fl)
		}
		t.cursor++
	}
	t.sweep = clock.Never
	if t.used > 0 || len(t.setups.asked) > 0 {
		t.sweep = now.Add(max(time.Millisecond, sweepEvery*sweepFlows/time.Duration(max(sweepFlows, len(t.flows)))))
	}
}

// age ends or forgets a flow that has been silent for too long.
func (t *Table) age(now clock.Time, fl *Flow) {
	last := fl.Last
	if fl.Peer != nil {
		last = max(last, fl.Peer.Last)
	}
	silent := now.Sub(last)
	switch {
	case fl.State == Closed:
		if now >= fl.until {
			t.release(fl)
		}
	case fl.State == Closing:
		if silent >= t.cfg.Quarantine {
			t.end(now, fl)
		}
	case silent < t.cfg.Idle:
	case !fl.pinned():
		t.stats.Idled++
		t.drop(fl)
	case t.used-t.closed.n > t.MaxFlows()-t.MaxFlows()/8:
		// A host that crashes leaves pinned flows without a DREQ. The table ends them when it is
		// nearly full. If the queue pair of such a flow is still alive, the table refuses its
		// requests, the queue pair fails, and its application sees that.
		t.stats.GivenUp++
		t.end(now, fl)
	}
}

// Deadline returns when Tick must be called; clock.Never: no call is needed.
func (t *Table) Deadline() clock.Time { return t.sweep }
