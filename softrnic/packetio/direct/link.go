package direct

import (
	"errors"
	"sync/atomic"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// ErrClosed is the error of an end that was closed.
var ErrClosed = errors.New("direct link: port is closed")

// Link joins a host with the switch. Its ends are opened and closed independently, as often as the
// host or the switch ends and starts again.
type Link struct {
	fabric *Fabric
	host   side
	sw     side
	listed bool // the link is in fabric.ready; guarded by fabric.mu
}

// side is what a link keeps of one of its ends: the frames for it, and who has opened it.
type side struct {
	in   queue
	port atomic.Pointer[Port] // nil: the end is not open
	down atomic.Bool
}

func (f *Fabric) newLink() *Link { return &Link{fabric: f, host: side{in: queue{last: true}}} }

// Host opens the host's end; mtu is the longest frame in bytes without its Ethernet header and tag.
// A port that was open before is closed.
func (l *Link) Host(mtu int) *Port { return l.open(&l.host, &l.sw, 0, mtu) }

// Switch opens the switch's end. index becomes Frame.Port of received frames.
func (l *Link) Switch(index, mtu int) *Port { return l.open(&l.sw, &l.host, index, mtu) }

func (l *Link) open(own, peer *side, index, mtu int) *Port {
	p := &Port{link: l, own: own, peer: peer, index: index, mtu: mtu}
	own.down.Store(false)
	if was := own.port.Swap(p); was != nil {
		was.closed.Store(true)
	}
	p.discard() // what came for a former end
	return p
}

// Cut takes the link from the present end of the host: it drops all frames from now on.
func (l *Link) Cut() {
	if p := l.host.port.Load(); p != nil {
		p.cut.Store(true)
	}
}

// owner is how other threads use the NIC at the host's end (packetio.Carrier).
type owner struct {
	handle func() bool
	wake   func()
}

// serveNIC makes the NIC at this end handle its frames. It returns false if it has none, or if another
// thread is inside the NIC, which then handles them.
func (s *side) serveNIC() bool {
	p := s.port.Load()
	if p == nil || s.in.n.Load() == 0 {
		return false
	}
	o := p.owner.Load()
	return o != nil && o.handle()
}

// Port is one end of a link.
type Port struct {
	link      *Link
	own, peer *side
	index     int
	mtu       int
	closed    atomic.Bool
	cut       atomic.Bool // see Link.Cut
	open      atomic.Bool // see TakeOpen
	owner     atomic.Pointer[owner]

	rxPackets, rxBytes, rxDropped atomic.Uint64
	txPackets, txBytes, txDropped atomic.Uint64
}

var (
	_ packetio.Carrier = (*Port)(nil)
	_ packetio.Opener  = (*Port)(nil)
)

// InProcess says that the other end is in this process.
func (p *Port) InProcess() {}

// Attached reports whether the other end is open.
func (p *Port) Attached() bool {
	q := p.peer.port.Load()
	return q != nil && !q.cut.Load()
}

// TakeOpen says that the owner of this end handles open packets.
func (p *Port) TakeOpen() { p.open.Store(true) }

// PassesOpen reports whether the other end is open, and its owner handles open packets.
func (p *Port) PassesOpen() bool {
	q := p.peer.port.Load()
	return q != nil && q.open.Load()
}

// SetUp sets whether the link is up, as this end sees it. A link that is down drops frames in both
// directions.
func (p *Port) SetUp(up bool) { p.own.down.Store(!up) }

func (p *Port) isUp() bool { return !p.cut.Load() && !p.own.down.Load() && !p.peer.down.Load() }

// forSwitch reports whether this end is the host's, which sends to the switch.
func (p *Port) forSwitch() bool { return p.own == &p.link.host }

// Recv resets b and appends the frames that have arrived.
func (p *Port) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	if p.closed.Load() {
		return 0, ErrClosed
	}
	if p.own.in.n.Load() == 0 {
		return 0, nil
	}
	n := p.own.in.take(b, p.index)
	if !p.forSwitch() {
		p.link.fabric.waiting.Add(int64(-n))
	}
	packets := packetio.PacketsIn(b.Frames)
	if !p.isUp() {
		if !p.own.in.last {
			packetio.ReturnAll(b.Frames)
		}
		b.Reset()
		p.rxDropped.Add(uint64(packets))
		return 0, nil
	}
	bytes := 0
	for i := range b.Frames {
		bytes += b.Frames[i].Len()
	}
	p.rxPackets.Add(uint64(packets))
	p.rxBytes.Add(uint64(bytes))
	return n, nil
}

// Send gives the frames of b to the other end. It drops and counts frames that are too long or find
// no room, and all frames while the link is down or the other end is not open. Frames to a host are
// sent by the thread that runs the switch.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	if p.closed.Load() {
		return 0, ErrClosed
	}
	if len(b.Frames) == 0 {
		return 0, nil
	}
	q := &p.peer.in
	n, packets, bytes, dropped := 0, 0, 0, 0
	q.mu.Lock()
	to := p.peer.port.Load() // with the lock, because Close takes the port away before it drops what waits
	open := to != nil && !to.cut.Load() && p.isUp()
	for i := range b.Frames {
		f := &b.Frames[i]
		size := f.Len() // put may return an open packet
		if !open || !f.Fits(p.mtu) || !q.put(f) {
			dropped += f.Packets()
			if f.Open != nil {
				f.Open.Return()
			}
			continue
		}
		n++
		packets += f.Packets()
		bytes += size
	}
	q.n.Store(int32(len(q.in.Frames)))
	if p.forSwitch() && n > 0 {
		p.link.fabric.arrived(to.index)
		p.link.fabric.waiting.Add(int64(n))
	}
	q.mu.Unlock()
	p.txPackets.Add(uint64(packets))
	p.txBytes.Add(uint64(bytes))
	if dropped > 0 {
		p.txDropped.Add(uint64(dropped))
	}
	if !p.forSwitch() && n > 0 && !p.link.listed {
		p.link.listed = true
		p.link.fabric.ready = append(p.link.fabric.ready, p.link)
	}
	return n, nil
}

// Serve sets how other threads use this host's NIC; see packetio.Carrier.
func (p *Port) Serve(handle func() bool, wake func()) { p.owner.Store(&owner{handle, wake}) }

// Carry carries on the frames that the calling thread has sent, and handles those that have arrived
// while it was inside the NIC.
func (p *Port) Carry() {
	p.link.fabric.carry()
	for range maxTurns {
		if !p.own.serveNIC() {
			return
		}
		p.link.fabric.carry()
	}
	if o := p.owner.Load(); o != nil {
		o.wake() // the NIC's own goroutine does the rest
	}
}

// Trim gives back the memory that a burst of frames has left in both directions of the link. It is
// called from time to time; the link keeps its memory as long as frames arrive between two calls.
func (p *Port) Trim() {
	p.own.in.trim()
	p.peer.in.trim()
}

// Stats returns the counters of this end.
func (p *Port) Stats() packetio.Stats {
	return packetio.Stats{
		RxPackets: p.rxPackets.Load(), RxBytes: p.rxBytes.Load(), RxDropped: p.rxDropped.Load(),
		TxPackets: p.txPackets.Load(), TxBytes: p.txBytes.Load(), TxDropped: p.txDropped.Load(),
	}
}

// Close closes this end. Frames that wait for it are dropped.
func (p *Port) Close() error {
	if p.closed.Swap(true) || !p.own.port.CompareAndSwap(p, nil) {
		return nil
	}
	p.discard()
	return nil
}

// discard drops and counts the frames that wait at this end.
func (p *Port) discard() {
	frames, packets := p.own.in.drop()
	if !p.forSwitch() {
		p.link.fabric.waiting.Add(int64(-frames))
	}
	p.rxDropped.Add(uint64(packets))
}
