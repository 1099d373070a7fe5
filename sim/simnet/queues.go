package simnet

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// SetQueues gives the ports of a node egress queues: frames that the node sends wait there, and pause
// frames that reach the node stop them and do not reach it. The links should have the rate of the
// queues; then nothing waits in the links. nil, which is the default, means that frames go to the links at
// once. The node's links must exist.
func (n *Net) SetQueues(id NodeID, q *portqueue.Bank) {
	n.nodes[id].queues = q
	n.rekey(id)
}

// Queues returns the egress queues of a node; nil if it has none.
func (n *Net) Queues(id NodeID) *portqueue.Bank { return n.nodes[id].queues }

// leave puts a frame that a node has made on its link h, which is at this port of it, or into the queue
// in front of the link.
func (s *nodeState) leave(n *Net, h *half, f *packetio.Frame, port int) {
	if s.queues == nil {
		n.send(h, f)
		return
	}
	if lost := s.queues.Offer(n.now, int(f.Origin)-1, port, *f, ""); lost > 0 {
		h.Stats.LostQueue += uint64(lost)
		n.trace(Event{Kind: LostQueue, Frame: f.Data, half: h})
	}
	s.depart(n)
}

// depart puts the frames on their links that leave the queues of a node now.
func (s *nodeState) depart(n *Net) {
	if s.queues == nil || s.queues.Deadline() > n.now {
		return
	}
	n.queued.leaving.Reset()
	s.queues.Due(n.now, &n.queued.leaving)
	for i := range n.queued.leaving.Frames {
		f := &n.queued.leaving.Frames[i]
		n.send(s.links[f.Port], f)
	}
}

// paused reports whether a frame that has reached a node is a pause frame for its queues, and does what
// it says.
func (s *nodeState) paused(n *Net, id NodeID, port int, frame []byte) bool {
	if s.queues == nil || !s.queues.Control(n.now, port, frame) {
		return false
	}
	s.depart(n)
	n.rekey(id)
	n.queued.halts.watch(n, id, port)
	return true
}

// crashed drops the frames in the queues of a node that is switched off.
func (s *nodeState) crashed(n *Net) {
	if s.queues == nil {
		return
	}
	for i := range s.queues.Ports() {
		if lost := s.queues.Discard(n.now, i); lost > 0 && i < len(s.links) && s.links[i] != nil {
			s.links[i].Stats.LostDown += uint64(lost)
		}
	}
}

// deadlineOf returns when a node that is up, or its queues, must be called next.
func (s *nodeState) deadlineOf() clock.Time {
	at := s.node.Deadline()
	if s.queues != nil {
		at = clock.Min(at, s.queues.Deadline())
	}
	return at
}
