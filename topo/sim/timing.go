package sim

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// frame returns f as a packetio.Frame with this port.
func (f *inFlight) frame(port int) packetio.Frame {
	return packetio.Frame{
		Data: f.data, SegSize: int(f.segSize), Port: port,
		CsumPartial: f.csumPartial, CsumStart: f.csumStart, CsumOffset: f.csumOffset,
	}
}

// detain is called for a frame that has reached a node with a Timing. It keeps the frame until the
// time that Timing.Arrive returns, or returns false if the node gets the frame now.
func (n *Net) detain(s *nodeState, e *event) bool {
	at := s.timing.Arrive(n.now, e.to.dst.Port, e.frame.data)
	if at <= n.now {
		return false
	}
	if s.held >= maxHeld {
		n.overflow(e.to, e.frame.data)
		n.pool.put(e.frame.data)
		return true
	}
	s.held++
	e.at, e.stage = at, inside
	n.heap.push(*e)
	return true
}

// hold is called for a frame that a node with a Timing has made. It keeps a copy of the frame until
// the time that Timing.Depart returns, or returns false if the frame leaves now.
func (n *Net) hold(s *nodeState, f *packetio.Frame, cause Cause) bool {
	at := s.timing.Depart(n.now, f.Port, f.Data, cause)
	if at <= n.now {
		return false
	}
	h := s.links[f.Port]
	if s.held >= maxHeld {
		n.overflow(h, f.Data)
		return true
	}
	s.held++
	data := n.pool.get(len(f.Data))
	copy(data, f.Data)
	n.heap.push(event{at: at, to: h, stage: leaving, frame: inFlight{
		data: data, segSize: int32(f.SegSize),
		csumPartial: f.CsumPartial, csumStart: f.CsumStart, csumOffset: f.CsumOffset,
	}})
	return true
}

func (n *Net) overflow(h *half, frame []byte) {
	h.Stats.LostQueue++
	n.trace(Event{Kind: LostQueue, Frame: frame, half: h})
}

// resume is called when the time of a frame inside a node is over. It passes the frame on, to the
// node or to the link. If the node was switched off meanwhile, the frame is lost.
func (n *Net) resume(e *event) {
	id := e.to.dst.Node
	if e.stage == leaving {
		id = e.to.src
	}
	s := &n.nodes[id]
	s.held--
	switch {
	case !s.up:
		e.to.Stats.LostDown++
		n.trace(Event{Kind: LostDown, Frame: e.frame.data, half: e.to})
	case e.stage == leaving:
		f := e.frame.frame(0)
		n.send(e.to, &f)
	default:
		n.hand(e)
	}
	n.pool.put(e.frame.data)
}
