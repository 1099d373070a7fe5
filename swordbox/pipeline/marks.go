package pipeline

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Marker is a Program that hears of the packets of its own that an egress queue behind it has marked.
type Marker interface {
	// Marked is called for a packet that the switch has made, and in which the queue has set CE at time now. The
	// packet is valid during the call. The program sends nothing.
	Marked(now clock.Time, f *wire.Frame)
}

// Marks tells the program of a switch what the egress queues behind the switch have marked.
type Marks struct {
	self   *Self
	marker Marker // the program if it is a Marker; otherwise nil
	frame  wire.Frame
}

// Marked is called by the owner of the queues with a frame in which they have set CE (portqueue.Bank.OnMark). Its
// calls, and those of the switch, follow one another.
func (m *Marks) Marked(now clock.Time, frame []byte) {
	if m.marker == nil || len(frame) < 12 || !m.self.owns(wire.MAC(frame[6:12])) || wire.ParseFrame(frame, &m.frame) != nil {
		return
	}
	m.marker.Marked(now, &m.frame)
}
