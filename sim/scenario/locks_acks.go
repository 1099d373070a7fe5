package scenario

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// lazyAcks is a node around a NIC that coalesces the NIC's acknowledgements as some adapters do. It
// holds back positive ACKs of a queue pair, and sends only the last of them: when it has `every`
// ACKs, or ackWait after the first. Any other answer of the queue pair is sent at once, and
// acknowledges the requests whose ACKs were held back.
type lazyAcks struct {
	simnet.Node
	every int
	held  []heldAck
	frame wire.Frame
	made  packetio.Batch
}

// lazy returns a simrack.Options.Wrap by which the memory server ms0 acknowledges `every` requests
// with one ACK.
func lazy(every int) func(name string, n simnet.Node) simnet.Node {
	return func(name string, n simnet.Node) simnet.Node {
		if name != "ms0" || every < 2 {
			return n
		}
		return &lazyAcks{Node: n, every: every}
	}
}

// ackWait is the longest time for which lazyAcks holds an ACK back.
const ackWait = 3 * time.Microsecond

// heldAck is the last ACK that is held back for queue pair qp of the host with the address dst. It
// stands for n ACKs. It is sent at the time `due`, unless another answer to the same queue pair is
// sent before that.
type heldAck struct {
	qp   wire.QPN
	dst  netip.Addr
	n    int
	data []byte
	port int
	due  clock.Time
}

// Frame gives the packet to the NIC, and holds back or sends the NIC's answers.
func (l *lazyAcks) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	l.Node.Frame(now, port, f, &l.made)
	l.pass(now, out)
}

// Tick runs the NIC's timers and sends ACKs that were held back for ackWait.
func (l *lazyAcks) Tick(now clock.Time, out *packetio.Batch) {
	if l.Node.Deadline() <= now {
		l.Node.Tick(now, &l.made)
	}
	l.pass(now, out)
	l.held = slices.DeleteFunc(l.held, func(h heldAck) bool {
		if h.due <= now {
			out.Copy(packetio.Frame{Data: h.data, Port: h.port})
		}
		return h.due <= now
	})
}

// Deadline returns the earliest of the NIC's deadline and the times at which ACKs that are held
// back are due.
func (l *lazyAcks) Deadline() clock.Time {
	at := l.Node.Deadline()
	for i := range l.held {
		at = clock.Min(at, l.held[i].due)
	}
	return at
}

func (l *lazyAcks) pass(now clock.Time, out *packetio.Batch) {
	for i := range l.made.Frames {
		f := l.made.Frames[i]
		if wire.ParseFrame(f.Data, &l.frame) != nil || !l.frame.BTH.Opcode.Is(wire.OpResponse) || !l.hold(now, f) {
			out.Copy(f)
		}
	}
	l.made.Reset()
}

// hold holds the answer f back if it is an ACK that may wait, and returns true. Otherwise it
// returns false: f must be sent, and stands for the ACK that was held back for its queue pair.
func (l *lazyAcks) hold(now clock.Time, f packetio.Frame) bool {
	fr := &l.frame
	dst, plain := fr.DstAddr(), fr.BTH.Opcode == wire.RCAck && fr.AETH.Syndrome.IsAck()
	for i := range l.held {
		h := &l.held[i]
		if h.qp != fr.BTH.DestQP || h.dst != dst {
			continue
		}
		h.n++
		if plain && h.n < l.every {
			h.data = append(h.data[:0], f.Data...)
			return true
		}
		l.held = slices.Delete(l.held, i, i+1)
		return false
	}
	if !plain {
		return false
	}
	l.held = append(l.held, heldAck{qp: fr.BTH.DestQP, dst: dst, n: 1, data: slices.Clone(f.Data), port: f.Port, due: now.Add(ackWait)})
	return true
}
