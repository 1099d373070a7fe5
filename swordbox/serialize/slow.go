package serialize

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// cnpInterval is the shortest time between two congestion notifications to a client (hole 38).
const cnpInterval = clock.Time(50 * time.Microsecond)

const (
	// maxMarked bounds the clients that a link remembers as marked; with more, all are told.
	maxMarked = 64
	// markAge is how long a mark counts. The server's NIC answers a mark by a notification within 50 us, or by none
	// because it has just sent one.
	markAge = clock.Time(time.Millisecond)
	// leastApart is the shortest time between two notifications of a server that count: no NIC sends more on a
	// connection, and each costs a look at all requests in flight.
	leastApart = clock.Time(2 * time.Microsecond)
)

// slowing is what a link needs to find the clients that a notification of the server is for.
type slowing struct {
	// marked are the flows of which the switch's queue has marked packets within markAge, in the order of their
	// newest marks. overflow is when there were more than maxMarked, plus markAge.
	marked   []markedFlow
	overflow clock.Time
	next     clock.Time  // the next notification counts from then on
	bytes    []flowBytes // scratch
	random   *rand.Rand  // made when it is first needed
}

// markedFlow is a flow with the time of its newest mark. told is true if a notification has been passed on to it
// since.
type markedFlow struct {
	flowID
	at   clock.Time
	told bool
}

// flowID identifies a flow, as in requester.Tag.
type flowID struct{ flow, generation uint32 }

type flowBytes struct {
	flowID
	bytes int
}

func ofTag(t requester.Tag) flowID { return flowID{t.Flow, t.Generation} }

// Marked is called when the egress queue in front of a server has set CE in a packet that the switch has sent
// on a shared connection.
func (m *Machine) Marked(now clock.Time, f *wire.Frame) {
	s := m.byAddr[f.DstAddr()]
	if s == nil || !s.slow.ByMarks() {
		return
	}
	for _, k := range s.links {
		if k.conn.State() != requester.Up || k.conn.Link().To.DestQP != f.BTH.DestQP {
			continue
		}
		if t, ok := k.conn.Requests.Sent(f.BTH.PSN); ok {
			k.slowing.mark(now, ofTag(t))
			if s.slow == rules.SlowQueue {
				m.slowFlow(now, ofTag(t))
			}
		}
		return
	}
}

// mark notes a mark of a flow.
func (w *slowing) mark(now clock.Time, id flowID) {
	w.expire(now)
	if i := slices.IndexFunc(w.marked, func(f markedFlow) bool { return f.flowID == id }); i >= 0 {
		w.marked = slices.Delete(w.marked, i, i+1)
	}
	if len(w.marked) == maxMarked {
		w.overflow = now + markAge
		return
	}
	w.marked = append(w.marked, markedFlow{id, now, false})
}

// expire removes marks that do not count any more.
func (w *slowing) expire(now clock.Time) {
	old := 0
	for old < len(w.marked) && w.marked[old].at+markAge <= now {
		old++
	}
	w.marked = slices.Delete(w.marked, 0, old)
}

// forget forgets the marks of a connection that has ended.
func (w *slowing) forget() { w.marked, w.overflow = w.marked[:0], 0 }

// congested handles a congestion notification of the server: it sends one to each client that is to slow down
// (rules.Slowed), except those to which it has sent one within cnpInterval, or lowers the rates that the switch has
// for them.
func (k *link) congested(ctx *pipeline.Ctx) {
	w := &k.slowing
	k.s.m.received++
	if ctx.Now < w.next {
		return
	}
	w.next = ctx.Now + leastApart
	switch k.s.slow {
	case rules.SlowShare:
		k.notifyOne(ctx, w.drawn(k))
	case rules.SlowHeaviest:
		k.notifyOne(ctx, w.heaviest(k))
	case rules.SlowConnection:
		k.lower(ctx.Now)
	case rules.SlowMarked, rules.SlowFlow, rules.SlowQueue:
		if w.expire(ctx.Now); len(w.marked) > 0 && w.overflow <= ctx.Now {
			if k.s.slow != rules.SlowQueue { // its marks have counted at once
				k.notifyMarked(ctx)
			}
			return
		}
		fallthrough
	case rules.SlowAll:
		k.conn.Requests.Each(func(t requester.Tag, _ wire.PSN, _ wire.Opcode, _ clock.Time) { k.notify(ctx, ofTag(t)) })
	}
}

// notifyMarked tells the clients that have been marked since they were last told, or the one that was marked last.
func (k *link) notifyMarked(ctx *pipeline.Ctx) {
	list, told := k.slowing.marked, false
	for i := range list {
		if f := &list[i]; !f.told {
			f.told, told = true, true
			k.notify(ctx, f.flowID)
		}
	}
	if !told {
		k.notify(ctx, list[len(list)-1].flowID)
	}
}

func (k *link) notifyOne(ctx *pipeline.Ctx, i int) {
	if i >= 0 {
		k.notify(ctx, k.slowing.bytes[i].flowID)
	}
}

// notify sends a congestion notification to the client of a flow, or lowers the flow's rate if the switch has it, if
// the last one was not within cnpInterval.
func (k *link) notify(ctx *pipeline.Ctx, id flowID) {
	m := k.s.m
	if k.s.slow.BySwitch() {
		m.slowFlow(ctx.Now, id)
		return
	}
	ln := m.flows.byTag(requester.Tag{Flow: id.flow, Generation: id.generation})
	if ln == nil || ln.replies.cnpAt > ctx.Now {
		return
	}
	ln.replies.cnpAt = ctx.Now + cnpInterval
	m.stats.CNPs++
	ln.replies.back().ACK(&m.step.tx, 0, 0)
	m.step.tx.BTH.Opcode, m.step.tx.BTH.BECN, m.step.tx.AETH = wire.CNP, true, wire.AETH{}
	ctx.Emit(&m.step.tx, "")
}

// count adds up the bytes in flight of each flow, and returns all of them.
func (w *slowing) count(k *link) (total int) {
	w.bytes = w.bytes[:0]
	k.conn.Requests.InFlight(func(t requester.Tag, n int) {
		total += n
		id := ofTag(t)
		for i := range w.bytes {
			if w.bytes[i].flowID == id {
				w.bytes[i].bytes += n
				return
			}
		}
		w.bytes = append(w.bytes, flowBytes{id, n})
	})
	return total
}

// heaviest returns the index in bytes of the flow with the most bytes in flight, the first one of several; -1:
// there is none.
func (w *slowing) heaviest(k *link) int {
	w.count(k)
	best := -1
	for i := range w.bytes {
		if best < 0 || w.bytes[i].bytes > w.bytes[best].bytes {
			best = i
		}
	}
	return best
}

// drawn returns the index in bytes of a flow, drawn with a probability in proportion to its bytes in flight; -1:
// there is none.
func (w *slowing) drawn(k *link) int {
	total := w.count(k)
	if total == 0 {
		return -1
	}
	if w.random == nil {
		w.random = rand.New(rand.NewPCG(uint64(k.ownQPN), uint64(k.generation)))
	}
	at := w.random.IntN(total)
	for i := range w.bytes {
		if at -= w.bytes[i].bytes; at < 0 {
			return i
		}
	}
	return -1
}
