package pipeline

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// RequestID names a request packet: the server and the queue pair to which it goes, and its PSN.
type RequestID struct {
	Server netip.Addr
	QPN    wire.QPN
	PSN    wire.PSN
}

// Follower traces requests through the switch. The switch calls it for changes and drops of packets
// that the frames at the ports do not show. Programs report changes only while Ctx.Observed is
// true, so a switch with a follower begins with Observe(true). A follower must not call the switch.
type Follower interface {
	// Moved is called before a request leaves under another queue pair or PSN than it had. from is
	// what the client sent.
	Moved(from, to RequestID)
	// Dropped is called when the switch drops a packet.
	Dropped()
}

// Moved tells the follower that a request leaves under another queue pair or PSN. A program calls
// it only if Observed is true.
func (c *Ctx) Moved(from, to RequestID) {
	if f := c.follower; f != nil {
		f.Moved(from, to)
	}
}
