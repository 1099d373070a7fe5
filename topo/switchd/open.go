package switchd

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// opens is what traffic needs for packets that are not encoded.
type opens struct {
	sealer *wire.Sealer
	leaves func(to int) bool // traffic.takesOpen, as a value that is made once
}

// passOpen lets a packet pass that is not encoded (packetio.Open), from host `in`, if nothing looks at its
// bytes: no capture, no fault of the link, no cost model, no queue with a rate, and nothing in the switch
// in front of its program. The program sees the headers. All counters are as for an encoded packet. It
// returns false, and has done nothing, if something looks.
func (t *traffic) passOpen(in int, f *packetio.Frame) bool {
	up := t.ports.list[in].up
	if t.observing || t.queues != nil || t.costs != nil || up.Active() {
		return false
	}
	to, ok := t.sw.Open(t.now, in, f, t.opens.leaves)
	if !ok {
		return false
	}
	up.Passed(&f.Open.Frame)
	if to >= 0 {
		t.ports.list[to].down.Passed(&f.Open.Frame)
		t.enqueue(to, *f, "")
		return true
	}
	start := len(t.out.Frames)
	t.sw.Frame(t.now, in, *f, &t.out)
	t.toHosts(start, nil)
	return true
}

// openToHost queues a packet that is not encoded for a host. It encodes the packet if a fault of the link
// or the host looks at its bytes.
func (t *traffic) openToHost(to int, f packetio.Frame) {
	down := t.ports.list[to].down
	if !t.opens.leaves(to) {
		t.packetToHost(to, t.encoded(f), down, "")
		return
	}
	down.Passed(&f.Open.Frame)
	t.enqueue(to, f, "")
}

// takesOpen reports whether packets that are not encoded may leave through port `to`.
func (t *traffic) takesOpen(to int) bool {
	p := &t.ports.list[to]
	l, ok := p.io.(*doubleLink)
	return ok && !p.down.Active() && l.passesOpen()
}

// encoded returns an open packet as the frame that its sender would have sent.
func (t *traffic) encoded(f packetio.Frame) packetio.Frame {
	f.Data = f.Open.AppendTo(t.scratch.Alloc(f.Len()), t.opens.sealer)
	f.Open.Return()
	f.Open = nil
	return f
}

// keptScratch is the most memory in bytes that is kept for frames that were encoded or changed.
const keptScratch = 4 << 20
