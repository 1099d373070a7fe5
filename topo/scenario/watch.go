package scenario

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/sim"
)

// watched is a server's NIC with a function that sees each frame handed to the NIC, in order. The
// messages that a NIC must deliver by an unreliable service follow from these frames and from the
// sent messages, so a scenario can predict them without counters.
type watched struct {
	sim.Node
	env   *env
	see   func(f *wire.Frame)
	frame wire.Frame
}

// Frame shows the frame to see and hands it on. A frame that is damaged or for another host is not
// shown.
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

// stock predicts how many receives of one queue are posted and not taken.
type stock struct{ free int }

// grip says whether a queue pair has taken a receive from its stock for the message that is arriving.
type grip struct {
	from *stock
	held bool
}

// take makes sure that the queue pair has a receive; false: there is none.
func (g *grip) take() bool {
	if !g.held && g.from.free > 0 {
		g.from.free--
		g.held = true
	}
	return g.held
}

// use ends that: the message is complete.
func (g *grip) use() { g.held = false }
