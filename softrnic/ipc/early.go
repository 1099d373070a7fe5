package ipc

import (
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// earlyPosts decides whether a post of sends returns without waiting for the daemon. It does so if
// the NIC cannot refuse any of the posted work requests. Otherwise the post waits until the NIC has
// taken or refused them, so that it returns the same errors as package device. The lock of the send
// ring's poster guards earlyPosts.
type earlyPosts struct {
	limits      transport.Config // only Type, MaxSGE and MaxInline are set
	maxSendWR   uint64
	incarnation uint64
	// sends is true if the NIC has taken a send since the last reset. From then on until the next
	// reset, the queue pair is always in a state in which the NIC accepts posts.
	sends bool
}

func newEarlyPosts(t verbs.QPType, q proto.Queue) earlyPosts {
	return earlyPosts{
		limits:    transport.Config{Type: t, MaxSGE: q.MaxSGE, MaxInline: q.MaxInline},
		maxSendWR: uint64(q.MaxSendWR), incarnation: q.Incarnation,
	}
}

// sure reports whether the NIC certainly takes the list of sends. For this the state must accept
// posts, the ring and the NIC's queue must have room, and each work request must be valid. sure is
// false for datagrams, because only the daemon knows their address handles. It is also false for
// operations that change a key of this host (transport.Local), because programs use the new key as
// soon as the post has returned. The caller has called begin.
func (q *qp) sure(wr []verbs.SendWR) bool {
	e, p := &q.early, &q.send
	next := p.tail + uint64(len(wr))
	if !e.sends || q.pd.ctx.ctl.Asks.Load() != 0 || next-p.q.Head.Load() > p.q.Cap() || next-p.q.Done.Load() > e.maxSendWR || !q.pd.ctx.alive(e.incarnation) {
		return false
	}
	for i := range wr {
		if wr[i].AH != nil || transport.Local(wr[i].Op) {
			return false
		}
		if _, err := e.limits.CheckSend(&wr[i]); err != nil {
			return false
		}
	}
	return true
}

// postEarly publishes a list of sends and returns at once; see earlyPosts.
func (q *qp) postEarly(wr []verbs.SendWR) {
	p := &q.send
	for i := range wr {
		slot := p.q.Slot(p.tail + uint64(i))
		ring.PutSend(slot, &wr[i], 0)
		ring.MarkEarly(slot)
	}
	p.tail += uint64(len(wr))
	p.q.Tail.Store(p.tail)
	p.ctx.ring(p.bell)
}
