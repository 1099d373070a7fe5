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

// maxMarked bounds the clients that a link remembers as marked; more count as all.
const maxMarked = 64

// slowing is what a link needs to find the clients that a notification of the server is for.
type slowing struct {
	// marked are the flows of which the switch's queue has marked packets since the last notification.
	// overflow is true if there were more than maxMarked.
	marked   []flowID
	overflow bool
	bytes    []flowBytes // scratch
	random   *rand.Rand  // made when it is first needed
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
func (m *Machine) Marked(f *wire.Frame) {
	s := m.byAddr[f.DstAddr()]
	if s == nil {
		return
	}
	for _, k := range s.links {
		l := k.conn.Link()
		if k.conn.State() != requester.Up || l.To.DestQP != f.BTH.DestQP {
			continue
		}
		if t, ok := k.conn.Sent(f.BTH.PSN); ok {
			k.slowing.mark(ofTag(t))
		}
		return
	}
}

func (w *slowing) mark(id flowID) {
	switch {
	case slices.Contains(w.marked, id):
	case len(w.marked) == maxMarked:
		w.overflow = true
	default:
		w.marked = append(w.marked, id)
	}
}

// congested handles a congestion notification of the server: it sends one to each client that is to slow down
// (rules.Slowed), except those to which it has sent one within cnpInterval.
func (k *link) congested(ctx *pipeline.Ctx) {
	k.s.m.stats.CNPsReceived++
	w := &k.slowing
	switch {
	case k.s.slow == rules.SlowMarked && len(w.marked) > 0 && !w.overflow:
		for _, id := range w.marked {
			k.notify(ctx, id)
		}
	case k.s.slow == rules.SlowShare:
		k.notifyOne(ctx, w.drawn(k))
	case k.s.slow == rules.SlowHeaviest:
		k.notifyOne(ctx, w.heaviest(k))
	default:
		k.conn.Each(func(t requester.Tag, _ wire.PSN, _ wire.Opcode, _ clock.Time) { k.notify(ctx, ofTag(t)) })
	}
	w.marked, w.overflow = w.marked[:0], false
}

func (k *link) notifyOne(ctx *pipeline.Ctx, i int) {
	if i >= 0 {
		k.notify(ctx, k.slowing.bytes[i].flowID)
	}
}

// notify sends a congestion notification to the client of a flow, if the last one was not within cnpInterval.
func (k *link) notify(ctx *pipeline.Ctx, id flowID) {
	m := k.s.m
	ln := m.flows.byTag(requester.Tag{Flow: id.flow, Generation: id.generation})
	if ln == nil || ln.cnpAt > ctx.Now {
		return
	}
	ln.cnpAt = ctx.Now + cnpInterval
	m.stats.CNPs++
	ln.back().ACK(&m.step.tx, 0, 0)
	m.step.tx.BTH.Opcode, m.step.tx.BTH.BECN, m.step.tx.AETH = wire.CNP, true, wire.AETH{}
	ctx.Emit(&m.step.tx, "")
}

// count adds up the bytes in flight of each flow, and returns all of them.
func (w *slowing) count(k *link) (total int) {
	w.bytes = w.bytes[:0]
	k.conn.InFlight(func(t requester.Tag, n int) {
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
