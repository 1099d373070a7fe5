package scenario

import (
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// shown returns a simnet.Tap in front of n. The tap calls the function `see` with each intact packet,
// and then passes the packet on.
func shown(n simnet.Node, see func(f *wire.Frame)) simnet.Node {
	var frame wire.Frame
	return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
		if wire.ParseFrame(f.Data, &frame) == nil && wire.CheckICRC(f.Data) {
			see(&frame)
		}
		return true
	}}
}

// watching returns a simrack.Options.Wrap that calls see with the intact packets for the server's
// NIC, in order. These packets and the messages that clients have sent determine which messages the
// NIC must deliver by an unreliable service. So a scenario can predict them without counters.
func (e *env) watching(see func(f *wire.Frame)) func(string, simnet.Node) simnet.Node {
	return func(name string, n simnet.Node) simnet.Node {
		if name != server {
			return n
		}
		return shown(n, func(f *wire.Frame) {
			if f.Eth.Dst == e.rack.Host(server).Spec.MAC {
				see(f)
			}
		})
	}
}

// stock predicts how many receives of a queue are posted and not taken by a message.
type stock struct{ free int }

// grip predicts when a queue pair takes receives from its stock. held: true if the queue pair has
// taken a receive for the message that is arriving.
type grip struct {
	from *stock
	held bool
}

// take predicts that the queue pair takes a posted receive from its queue (g.from), unless it has
// already taken one for this message. It returns false if no receive is posted.
func (g *grip) take() bool {
	if !g.held && g.from.free > 0 {
		g.from.free--
		g.held = true
	}
	return g.held
}

// use is called when a message is complete: the message has used up the receive that the queue pair
// had taken.
func (g *grip) use() { g.held = false }

// inbox has the objects by which a server receives messages: memory for receives of slot bytes
// each, their completion queue, and the shared receive queue; srq is nil if each queue pair has its
// own queue.
type inbox struct {
	cq   verbs.CQ
	mr   verbs.MR
	buf  []byte
	srq  verbs.SRQ
	slot int
}

// newInbox makes the objects of an inbox. The completion queue has room for the given number of
// completions.
func newInbox(ctx verbs.Context, pd verbs.PD, n, slot, completions int, shared bool) (*inbox, error) {
	b := &inbox{buf: make([]byte, n*slot), slot: slot}
	var err error
	if b.cq, err = ctx.CreateCQ(completions); err != nil {
		return nil, err
	}
	if b.mr, err = pd.RegMR(b.buf, len(b.buf), verbs.LocalWrite); err != nil {
		return nil, err
	}
	if shared {
		b.srq, err = pd.CreateSRQ(verbs.SRQInit{MaxWR: n})
	}
	return b, err
}

// post posts receive i to the queue pair qp, or to the shared queue. g is the grip of the queue pair.
func (b *inbox) post(qp verbs.QP, g *grip, i int) error {
	g.from.free++
	wr := verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(i*b.slot, b.slot)}}
	if b.srq != nil {
		return b.srq.PostRecv(wr)
	}
	return qp.PostRecv(wr)
}

func (b *inbox) bytes(i uint64) []byte { return b.buf[int(i)*b.slot:][:b.slot] }
