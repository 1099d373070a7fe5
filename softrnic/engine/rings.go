package engine

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	// ringBudget is the largest number of entries of one ring that a Tick executes without RingPaced.
	ringBudget = 4
	// maxRingsTick is how many send rings one Tick serves; further ones stay due for the next Tick.
	maxRingsTick = 64
)

// ring is the send ring of a queue pair, with its place in the engine's lists.
type ring struct {
	*sendring.Ring
	place uint32     // index in the agenda of rings
	busy  clock.Time // until this time the NIC is busy with entries that it has fetched
	// from is when the ring's rate (RingInit.Rate) lets it execute its next entry.
	from clock.Time
	// paced is used with RingPaced. true: busy is the end of the execution time of the next entry,
	// which is executed then.
	paced bool
	unit  int // index of the processing unit that executes the entries; see rings.units
	// waits is the number of the completion queue on which the ring waits in a WAIT entry;
	// rings.waiting then lists the ring under this number. 0 means that it does not wait.
	waits uint32
}

// ringUnit is a processing unit: when it is free, with RingPaced, and how many rings belong to it.
type ringUnit struct {
	free  clock.Time
	rings int
}

// rings has the send rings of a NIC: when each is due, and on which completion queue it waits.
type rings struct {
	agenda[QP]
	count   int              // number of rings
	units   []ringUnit       // processing units; none: each ring has one of its own
	waiting map[uint32][]*QP // rings that wait, by the number of the completion queue on which they wait
	ready   []*QP            // rings that the present Tick serves
}

// UseRing makes the queue pair take its send work requests from a send ring in registered memory;
// see package sendring. PostSend fails from then on. The queue pair must be in RESET or INIT. At
// most MaxSendWR entries are in flight.
func (q *QP) UseRing(cfg sendring.Config) error {
	const op = "use ring"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	switch {
	case q.ring != nil:
		return verbs.Errorf(op, verbs.ErrBusy, "the queue pair has a ring")
	case q.q.Service() != wire.ServiceRC:
		return verbs.Errorf(op, verbs.ErrNotSupported, "only a reliable connection can have a ring")
	case q.q.State() != verbs.StateReset && q.q.State() != verbs.StateInit:
		return verbs.Errorf(op, verbs.ErrState, "the state is %v", q.q.State())
	case cfg.Blocks < 0 || cfg.Blocks > sendring.MaxRing:
		return verbs.Errorf(op, verbs.ErrLimit, "%d blocks; at most %d", cfg.Blocks, sendring.MaxRing)
	}
	s := verbs.SGE{Addr: cfg.Addr, Length: uint32(cfg.Blocks * sendring.BlockSize), LKey: cfg.LKey}
	memory, fault := q.e.Tables.env.Mem.Local(q.pd.num, s, false)
	if fault != mem.OK {
		return verbs.Errorf(op, verbs.ErrAccess, "%d blocks at %#x: %v", cfg.Blocks, cfg.Addr, fault)
	}
	var costs sendring.Costs
	costs.Entry, costs.Wait, costs.Enable = q.e.cfg.RingCosts.Of(memory.Zero())
	r, err := sendring.New(q.Num(), cfg, costs, q.q.Config().MaxSendWR)
	if err != nil {
		return err
	}
	q.ring = &ring{Ring: r}
	if units := q.e.cfg.RingCosts.Units; units > 0 {
		if q.e.rings.units == nil {
			q.e.rings.units = make([]ringUnit, units)
		}
		q.ring.unit = q.e.rings.freest()
		q.e.rings.units[q.ring.unit].rings++
	}
	q.ring.place = q.e.rings.add(q)
	q.e.rings.count++
	return nil
}

// Doorbell tells the NIC that it may execute the entries whose index is below limit. It fails for a
// managed ring, whose limit only an ENABLE moves.
func (q *QP) Doorbell(now clock.Time, limit uint32) error {
	const op = "ring doorbell"
	if err := alive(op, q.dead); err != nil {
		return err
	}
	switch {
	case q.ring == nil:
		return verbs.Errorf(op, verbs.ErrInvalid, "the queue pair has no ring")
	case q.ring.Config().Managed:
		return verbs.Errorf(op, verbs.ErrInvalid, "the ring is managed: an ENABLE of another ring moves its limit")
	}
	q.ring.Enable(limit)
	q.e.rings.schedule(now, q)
	return nil
}

// RingState returns what the ring of a queue pair waits for, the index of its next entry and its
// limit. ok is false if the queue pair has no ring.
func (q *QP) RingState() (state sendring.State, next, limit uint32, ok bool) {
	if q.dead || q.ring == nil {
		return 0, 0, 0, false
	}
	next, limit = q.ring.Position()
	return q.ring.State(), next, limit, true
}

// deadline returns when the first ring is due.
func (r *rings) deadline() clock.Time {
	if r.count == 0 {
		return clock.Never
	}
	_, at := r.due.Next()
	return at
}

// schedule makes the ring of qp due as soon as the NIC is not busy with its earlier entries, and its rate allows an entry.
// It does nothing if qp has no ring, or if the ring has nothing to do now.
func (r *rings) schedule(now clock.Time, qp *QP) {
	if qp.ring == nil {
		return
	}
	if qp.ring.Due() {
		r.due.Set(qp.ring.place, max(now, qp.ring.busy, qp.ring.from))
	}
}

// tick executes entries of the rings that are due, at most ringBudget entries of each.
func (r *rings) tick(now clock.Time, e *Engine, out *packetio.Batch) {
	if r.count == 0 {
		return
	}
	r.ready = r.ready[:0]
	for len(r.ready) < maxRingsTick {
		place, at := r.due.Next()
		if at > now {
			break
		}
		r.due.Remove(place)
		r.ready = append(r.ready, r.places[place])
	}
	for _, qp := range r.ready {
		if !qp.dead {
			r.run(now, e, qp, out)
		}
	}
}

func (r *rings) run(now clock.Time, e *Engine, qp *QP, out *packetio.Batch) {
	g := qp.ring
	switch qp.q.State() {
	case verbs.StateRTS, verbs.StateSQD:
	case verbs.StateError, verbs.StateSQE:
		g.Stop()
	default:
		return // ToRTS makes the ring due again
	}
	h := ringHost{e: e, qp: qp, now: now}
	if e.cfg.RingPaced {
		if r.pace(now, &h) {
			return
		}
		ran, _ := g.Run(&h, 1)
		g.spend(now, ran)
		e.counters.RingEntries += uint64(ran)
	} else {
		ran, took := g.Run(&h, ringBudget)
		g.busy = now.Add(took)
		g.spend(now, ran)
		e.counters.RingEntries += uint64(ran)
		if g.State() == sendring.Ready {
			e.counters.RingThrottle++
		}
	}
	e.apply(now, qp, out)
	r.controls(now, e, qp)
	r.settle(now, e, qp, out)
	if len(e.overflowed) > 0 {
		e.apply(now, qp, out) // handles completion queues that overflowed in controls or settle: the queue pairs that use them fail
	}
	e.drainLoop(now, out)
}

// spend takes the time of `ran` entries out of the ring's rate.
func (g *ring) spend(now clock.Time, ran int) {
	if rate := g.Config().Rate; rate > 0 {
		g.from = max(g.from, now).Add(time.Duration(ran) * time.Second / time.Duration(rate))
	}
}

// pace is used with RingPaced. It returns false if the ring may execute its next entry now: the
// entry has no execution time, or this time has passed. Otherwise it returns true, and makes the
// ring due when the execution time will have passed.
func (r *rings) pace(now clock.Time, h *ringHost) bool {
	g := h.qp.ring
	if g.paced {
		g.paced = false
		return false
	}
	d := g.Price(h)
	if d == 0 {
		return false
	}
	g.busy, g.paced = r.begin(now, g).Add(d), true
	if len(r.units) > 0 {
		r.units[g.unit].free = g.busy
	}
	r.schedule(now, h.qp)
	return true
}

// begin returns when the processing unit of a ring can begin with its next entry.
func (r *rings) begin(now clock.Time, g *ring) clock.Time {
	if len(r.units) == 0 {
		return now
	}
	return max(now, r.units[g.unit].free)
}

// settle is called after entries of a ring were executed. If one of them has failed, it moves the
// queue pair to the error state. If the ring waits, settle records on which completion queue.
func (r *rings) settle(now clock.Time, e *Engine, qp *QP, out *packetio.Batch) {
	g := qp.ring
	if wc, ok := g.Failure(); ok {
		e.counters.CqeErr++
		wc.VendorErr = uint32(reason.BadEntry)
		qp.q.Notes().Add(reason.Note{
			At: now, Kind: reason.Failed, Code: reason.BadEntry, Status: wc.Status, WR: reason.WorkRequest{ID: wc.ID},
		})
		r.push(now, e, qp, &wc)
		if qp.live() {
			_ = qp.q.Fail(now, reason.AfterFailure, &e.acts) // cannot fail: the queue pair is in neither RESET nor ERROR
			e.apply(now, qp, out)
		}
	}
	if g.State() == sendring.Waiting && g.waits == 0 {
		if r.waiting == nil {
			r.waiting = make(map[uint32][]*QP)
		}
		g.waits = g.WaitsFor()
		r.waiting[g.waits] = append(r.waiting[g.waits], qp)
		g.Counted(&ringHost{e: e, qp: qp, now: now}) // the count may have been reached since the ring has read it
		r.woken(now, qp)
	}
	r.schedule(now, qp)
}

// completed queues the completions of a step of qp, and wakes the rings that wait for these
// completions.
func (r *rings) completed(now clock.Time, e *Engine, qp *QP) {
	done := e.acts.Done
	if r.count == 0 {
		for i := range done {
			e.complete(now, &done[i])
		}
		return
	}
	for i := range done {
		d := &done[i]
		if qp.ring == nil || d.To != qp.q.Sent() {
			e.complete(now, d)
			r.wake(now, e, d.To.CQ().ID())
			continue
		}
		if qp.ring.Completed(&d.WC) {
			e.complete(now, d)
		}
		r.controls(now, e, qp)
		r.wake(now, e, d.To.CQ().ID())
	}
	r.schedule(now, qp)
}

// controls queues the completions of NOP, WAIT, ENABLE and RECV_ENABLE entries, when all earlier
// requests of qp have completed.
func (r *rings) controls(now clock.Time, e *Engine, qp *QP) {
	for {
		wc, deliver, ok := qp.ring.NextControl()
		if !ok {
			return
		}
		if deliver {
			r.push(now, e, qp, &wc)
		}
	}
}

// push queues a completion that the queue pair itself does not make: that of a ring's control
// entry, or of a work request that was refused.
func (r *rings) push(now clock.Time, e *Engine, qp *QP, wc *verbs.WC) {
	e.Events.activity++
	e.complete(now, &transport.Completion{To: qp.q.Sent(), WC: *wc})
	r.wake(now, e, qp.send.ID())
}

// wake makes those rings due whose WAIT on completion queue cq has ended.
func (r *rings) wake(now clock.Time, e *Engine, cq uint32) {
	list := r.waiting[cq]
	for i := len(list) - 1; i >= 0; i-- {
		qp := list[i]
		qp.ring.Counted(&ringHost{e: e, qp: qp, now: now})
		r.woken(now, qp)
	}
}

// woken removes a ring from the list of waiting rings and makes it due, if its WAIT has ended.
func (r *rings) woken(now clock.Time, qp *QP) {
	if qp.ring.State() == sendring.Waiting {
		return
	}
	r.forget(qp)
	r.schedule(now, qp)
}

// forget removes a ring from the list of waiting ones.
func (r *rings) forget(qp *QP) {
	g := qp.ring
	list := r.waiting[g.waits]
	if i := slices.Index(list, qp); i >= 0 {
		if list = slices.Delete(list, i, i+1); len(list) == 0 {
			delete(r.waiting, g.waits)
		} else {
			r.waiting[g.waits] = list
		}
	}
	g.waits = 0
}

// reset is called when a queue pair enters RESET: its ring starts again at index 0.
func (r *rings) reset(qp *QP) {
	if qp.ring == nil {
		return
	}
	r.forget(qp)
	r.due.Remove(qp.ring.place)
	qp.ring.Reset()
	qp.ring.paced = false
}

// remove forgets the ring of a queue pair that is destroyed.
func (r *rings) remove(qp *QP) {
	if qp.ring == nil {
		return
	}
	r.forget(qp)
	r.agenda.remove(qp.ring.place)
	r.count--
	if len(r.units) > 0 {
		r.units[qp.ring.unit].rings--
	}
}

// freest returns the index of the unit with the fewest rings, the lowest one of several.
func (r *rings) freest() (best int) {
	for i := range r.units {
		if r.units[i].rings < r.units[best].rings {
			best = i
		}
	}
	return best
}

// ringHost gives a ring access to the NIC; it implements sendring.Host.
type ringHost struct {
	e   *Engine
	qp  *QP
	now clock.Time
}

// Fetch copies the memory that s names to dst. It returns false if the protection domain of the
// ring's queue pair does not allow that.
func (h *ringHost) Fetch(dst []byte, s verbs.SGE) bool {
	p, fault := h.e.Tables.env.Mem.Local(h.qp.pd.num, s, false)
	return fault == mem.OK && p.Read(dst, 0)
}

// Completions returns how many completions were added to the completion queue with this number. ok
// is false if no queue pair of the ring's protection domain uses this queue.
func (h *ringHost) Completions(number uint32) (uint32, bool) {
	c := h.e.Tables.cqs[number]
	if c == nil || !h.shares(c) {
		return 0, false
	}
	return uint32(c.q.Counted()), true
}

// shares reports whether a queue pair in the ring's protection domain uses the completion queue.
func (h *ringHost) shares(c *CQ) bool {
	pd := h.qp.pd
	if c.sharer != nil && !c.sharer.dead && c.sharer.pd == pd {
		return true
	}
	for _, qp := range h.e.Tables.order {
		if qp.pd == pd && (qp.send == c || qp.recv == c) {
			c.sharer = qp
			return true
		}
	}
	return false
}

// Enable moves the limit of the managed ring of queue pair n. It returns false if n has no such
// ring, or is not in the protection domain of the ring that executes the ENABLE.
func (h *ringHost) Enable(n wire.QPN, index uint32) bool {
	to := h.e.Tables.qps[n]
	if to == nil || to.pd != h.qp.pd || to.ring == nil || !to.ring.Config().Managed {
		return false
	}
	to.ring.Enable(index)
	if to != h.qp {
		h.e.rings.schedule(h.now, to)
	}
	return true
}

// EnableReceives lets queue pair n use its receives again, as transport.QP.EnableReceives says. n
// must be in the same protection domain as the ring.
func (h *ringHost) EnableReceives(n wire.QPN, index uint32, narrow bool) bool {
	to := h.e.Tables.qps[n]
	return to != nil && to.pd == h.qp.pd && to.q.EnableReceives(index, narrow)
}

func (h *ringHost) Post(wr *verbs.SendWR) error { return h.qp.q.PostSend(h.now, wr, &h.e.acts) }

// Executed counts an entry if it was refused, and passes every entry to Hooks.Executed.
func (h *ringHost) Executed(ev *sendring.Event) {
	if ev.Err != nil {
		h.e.counters.RingRefused++
	}
	if f := h.e.Hooks.Executed; f != nil {
		f(h.qp.Num(), ev)
	}
}
