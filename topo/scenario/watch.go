package scenario

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// watched stands around a server's NIC and calls the function see with each frame that is for the
// NIC, in order. These frames and the messages that clients have sent determine which messages a
// NIC must deliver by an unreliable service, so that a scenario can predict them without counters.
type watched struct {
	sim.Node
	env   *env
	see   func(f *wire.Frame)
	frame wire.Frame
}

// Frame calls see with the frame unless it is damaged or for another host, and then passes the
// frame to the NIC.
func (w *watched) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	if wire.ParseFrame(f.Data, &w.frame) == nil && wire.CheckICRC(f.Data) && w.frame.Eth.Dst == w.env.rack.Host(server).Spec.MAC {
		w.see(&w.frame)
	}
	w.Node.Frame(now, port, f, out)
}

// watching returns a simrack.Options.Wrap that calls see with the frames for the server's NIC.
func (e *env) watching(see func(f *wire.Frame)) func(string, sim.Node) sim.Node {
	return func(name string, n sim.Node) sim.Node {
		if name != server {
			return n
		}
		return &watched{Node: n, env: e, see: see}
	}
}

// stock predicts how many receives of a queue are posted and not taken by a message.
type stock struct{ free int }

// grip is a queue pair's hold on the receives in its stock. held: true if the queue pair has taken
// a receive for the message that is arriving.
type grip struct {
	from *stock
	held bool
}

// take takes a receive from the stock, unless the queue pair has taken one already. It returns
// false if the stock is empty.
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
