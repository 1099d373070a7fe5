package pipeline

import "github.com/rdmalab/rdmalab/softrnic/wire"

// Marker is a Program that hears of the packets of its own that an egress queue behind it has marked.
type Marker interface {
	// Marked is called for a packet that the switch has made, and in which the queue has set CE. The packet is
	// valid during the call. The program sends nothing.
	Marked(f *wire.Frame)
}

// marks passes marks on to the program.
type marks struct {
	marker Marker // the program if it is a Marker; otherwise nil
	frame  wire.Frame
}

// Marked is called by the owner of the egress queues behind the switch with a frame in which they have set CE
// (portqueue.Bank.OnMark).
func (s *Switch) Marked(frame []byte) {
	if s.marks.marker == nil || len(frame) < 12 || !s.self.owns(wire.MAC(frame[6:12])) || wire.ParseFrame(frame, &s.marks.frame) != nil {
		return
	}
	s.marks.marker.Marked(&s.marks.frame)
}
