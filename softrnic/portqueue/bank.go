package portqueue

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Bank has the egress queues of all ports of a machine. One goroutine at a time uses it.
type Bank struct {
	// OnMark is called for each frame in which the bank has set CE, when the frame leaves; nil: it is not. The
	// bytes are valid during the call.
	OnMark func(now clock.Time, frame []byte)

	cfg      Config
	ports    []port
	buffer   buffer
	due      clock.Queue // deadlines of ports
	segments packetio.Segments
	marked   []Departure
	since    clock.Time // see Since
	// globals counts global pause frames, which have no effect. malformed counts frames with the
	// EtherType of pause frames that are none.
	globals, malformed uint64
}

// Departure says of a frame that Due has appended what a capture should show.
type Departure struct {
	Index  int // in the batch
	Marked bool
	Note   string // what the caller passed to Offer
}

// New makes the queues of so many ports. All are up.
func New(cfg Config, ports int) (*Bank, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if cfg.Quanta == 0 {
		cfg.Quanta = 65535
	}
	b := &Bank{cfg: cfg, buffer: buffer{size: cfg.Buffer, own: cfg.Own}}
	for range ports {
		b.AddPort()
	}
	return b, nil
}

// AddPort adds a port behind the others. The shared memory becomes smaller by what the port keeps.
func (b *Bank) AddPort() {
	n := len(b.ports)
	b.buffer.size += b.cfg.MinBuffer(n+1) - b.cfg.MinBuffer(n) // what it keeps for itself is not taken from the others
	b.ports = append(b.ports, port{})
	b.ports[len(b.ports)-1].reset()
	b.buffer.sources = append(b.buffer.sources, [Priorities]Usage{})
}

// Config returns the configuration of the ports.
func (b *Bank) Config() Config { return b.cfg }

// Priority returns the priority of a frame: that of its DSCP if it is RoCEv2, otherwise 0.
func (b *Bank) Priority(frame []byte) int {
	if !wire.IsRoCE(frame) {
		return 0
	}
	dscp, _ := wire.DSCPOf(frame)
	return int(b.cfg.DSCP[dscp])
}

// Offer queues a copy of f at port `to`. A super-frame of RoCEv2 is queued as its packets. `in` is the
// port at which the frame came in; -1: it came in at none. note is returned with its departure. Offer
// returns how many packets were dropped because there was no room, or because the watchdog drops the
// priority's frames.
func (b *Bank) Offer(now clock.Time, in, to int, f packetio.Frame, note string) (dropped int) {
	if in >= len(b.ports) {
		in = -1
	}
	prio := b.Priority(f.Data)
	n := b.segments.Open(f)
	if n == 0 {
		if !b.queue(now, in, to, prio, &f, -1, note) {
			dropped = f.Packets()
		}
	}
	for i := range n {
		if !b.queue(now, in, to, prio, &f, i, note) {
			dropped++
		}
	}
	if in >= 0 && b.cfg.Classes[prio].Lossless && b.ports[in].xoff>>prio&1 == 0 && b.buffer.full(&b.cfg, in, prio) {
		b.pausePeer(now, in, prio, true)
	}
	b.rekey(now, to)
	return dropped
}

// queue queues packet i of super-frame f, or f itself if i is -1.
func (b *Bank) queue(now clock.Time, in, to, prio int, f *packetio.Frame, i int, note string) bool {
	p := &b.ports[to]
	q, k := &p.queues[prio], &b.cfg.Classes[prio]
	if q.storm && !b.cfg.Watchdog.Forward {
		q.stats.Discarded++
		return false
	}
	k2 := p.take()
	if k2 < 0 {
		q.stats.Dropped++
		return false
	}
	s := &p.slots[k2]
	if i < 0 {
		s.buf = append(s.buf[:0], f.Data...)
		s.frame = *f
	} else {
		s.buf = b.segments.Append(s.buf[:0], i)
		s.frame = packetio.Frame{}
	}
	if !b.buffer.admit(&b.cfg, in, prio, int64(len(s.buf)), q.bytes) {
		q.stats.Dropped++
		p.give(k2)
		return false
	}
	if in >= 0 {
		st := &b.ports[in].queues[prio].stats
		st.HeadroomPeak = max(st.HeadroomPeak, b.buffer.sources[in][prio].Headroom)
	}
	s.in, s.note, s.mark = in, note, k.ECN.AtEnqueue && b.draws(q, to, prio, s.buf)
	p.push(q, k2)
	return true
}

// draws decides whether a packet is marked while the bytes of queue q wait.
func (b *Bank) draws(q *queue, to, prio int, frame []byte) bool {
	r := &b.cfg.Classes[prio].ECN
	if !r.On() {
		return false
	}
	if e, ok := wire.ECNOf(frame); !ok || e == wire.NotECT || e == wire.CE {
		return false
	}
	stream := b.cfg.Seed ^ uint64(to+1)<<32 ^ uint64(prio+1)<<8
	q.drawn++
	return r.marks(q.bytes, draw(stream, q.drawn))
}

// Since tells when the caller has looked for frames before, or when it stopped waiting for some: those that
// it offers now came later. If the caller did not run for a while, a port may so make up for the time in
// which they waited elsewhere, but not for the time in which there were none.
func (b *Bank) Since(t clock.Time) { b.since = t }

// Deadline returns when Due must be called next.
func (b *Bank) Deadline() clock.Time {
	_, at := b.due.Next()
	return at
}

// maxBurst bounds the frames that leave one port in a call of Due.
const maxBurst = 256

// Due appends to out the frames that leave now, with Frame.Port set, in memory of out: pause frames
// first. The result describes those frames of out that were marked or have a note; it is valid until
// the next call.
func (b *Bank) Due(now clock.Time, out *packetio.Batch) []Departure {
	b.marked = b.marked[:0]
	for range len(b.ports) {
		id, at := b.due.Next()
		if at > now {
			break
		}
		b.serve(now, int(id), out)
		b.rekey(now, int(id))
	}
	return b.marked
}

// serve sends what port i may send now.
func (b *Bank) serve(now clock.Time, i int, out *packetio.Batch) {
	p := &b.ports[i]
	b.watch(now, i)
	if p.announce != 0 || p.refresh <= now {
		b.tellPeer(now, i, out)
	}
	for range maxBurst {
		if p.frames == 0 || b.cfg.Rate > 0 && p.free > now {
			return
		}
		prio := p.choose(now, &b.cfg.Classes)
		if prio < 0 {
			return
		}
		b.depart(now, i, prio, out)
	}
}

// depart lets the first frame of a priority leave port i.
func (b *Bank) depart(now clock.Time, i, prio int, out *packetio.Batch) {
	p := &b.ports[i]
	q := &p.queues[prio]
	index := q.first
	s := p.pop(q)
	n := len(s.buf)
	mark := s.mark || !b.cfg.Classes[prio].ECN.AtEnqueue && b.draws(q, i, prio, s.buf)
	if mark && wire.MarkCE(s.buf) {
		q.stats.Marked++
		if b.OnMark != nil {
			b.OnMark(now, s.buf)
		}
	}
	if mark || s.note != "" {
		b.marked = append(b.marked, Departure{len(out.Frames), mark, s.note})
	}
	f := s.frame
	f.Data, f.Port = append(out.Alloc(n), s.buf...), i
	out.Frames = append(out.Frames, f)
	q.stats.TxPackets += uint64(f.Packets())
	q.stats.TxBytes += uint64(n)
	q.idle, p.served = now, now
	p.occupy(now, n+b.cfg.Overhead, b.cfg.Rate, b.cfg.Lateness)
	in := s.in
	p.give(index)
	b.released(now, in, prio, int64(n))
}

// released returns the bytes of a frame to the buffer, and lets peers go on whose frames have room.
func (b *Bank) released(now clock.Time, in, prio int, n int64) {
	b.buffer.release(in, prio, n)
	if in < 0 || !b.cfg.Classes[prio].Lossless {
		return
	}
	if b.ports[in].xoff>>prio&1 != 0 && b.buffer.low(&b.cfg, in, prio) {
		b.pausePeer(now, in, prio, false)
	}
}

// Discard drops all queued frames of a port, which has lost its link, and ends its pauses. It returns
// the number of packets.
func (b *Bank) Discard(now clock.Time, i int) (packets int) {
	p := &b.ports[i]
	for prio := range p.queues {
		packets += b.drain(now, i, prio)
		q := &p.queues[prio]
		q.settle(now)
		q.until, q.storm = 0, false
	}
	b.rekey(now, i)
	return packets
}

// drain drops the queued frames of a priority.
func (b *Bank) drain(now clock.Time, i, prio int) (packets int) {
	p := &b.ports[i]
	q := &p.queues[prio]
	for q.frames > 0 {
		index := q.first
		s := p.pop(q)
		in, n := s.in, int64(len(s.buf))
		packets += s.frame.Packets()
		p.give(index)
		b.released(now, in, prio, n)
	}
	return packets
}

// rekey computes the deadline of a port again.
func (b *Bank) rekey(now clock.Time, i int) {
	p := &b.ports[i]
	at := p.departure(now, b.since)
	if w := b.cfg.Wake; b.cfg.Rate > 0 && w > 0 {
		at = max(at, min(p.served.Add(w), at.Add(w)))
	}
	at = clock.Min(at, p.refresh)
	if p.announce != 0 {
		at = now
	}
	if w := b.cfg.Watchdog; w.Detect > 0 {
		at = clock.Min(at, b.watched(now, p))
	}
	b.due.Set(uint32(i), at)
}

func micros(d time.Duration) int64 { return d.Microseconds() }
