package memlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// ErrClosed is the error of a port that was closed.
var ErrClosed = errors.New("memory link: port is closed")

// recvBytes is the memory for the frames of one Recv: a batch of frames with the largest path MTU,
// four super-frames.
const recvBytes = 320 << 10

// publishEvery is after how many frames a Send shows the receiver what it has put: the receiver
// begins while the sender goes on.
const publishEvery = 16

// Config describes a port.
type Config struct {
	// Index becomes Frame.Port of received frames.
	Index int
	// MTU is the longest frame in bytes without its Ethernet header and tag; super-frames may be
	// longer.
	MTU int
	// Merge sends runs of RoCEv2 packets as super-frames, as afpacket.Config.Merge.
	Merge bool
}

// Port is one end of a link, attached to the other end or not. Recv and Send may run in different
// goroutines. Frames that Recv returns are copies; the caller may change them.
type Port struct {
	cfg Config
	// at is the present link, nil if there is none. A link whose peer has gone stays until what the
	// peer has sent is received.
	at     atomic.Pointer[joint]
	closed atomic.Bool
	down   atomic.Bool
	buf    []byte
	head   []byte // scratch: the headers of a super-frame

	rxPackets, rxBytes, rxDropped atomic.Uint64
	txPackets, txBytes, txDropped atomic.Uint64

	mu sync.Mutex // guards changes of at, and the fields below against Close
	// bells is an epoll descriptor that watches the bells of the present link and own.
	bells int
	own   int // an eventfd that no other process has
	// sleeper: a waiter has said that it sleeps. A port that is closed meanwhile keeps bells and own
	// until the waiter has woken: an epoll descriptor that closes takes its events with it.
	sleeper bool
	// told: a look after Close has noticed it.
	told atomic.Bool
}

var _ packetio.Port = (*Port)(nil)

// maxHeaders is room for the headers of a super-frame: Ethernet with a tag, IPv6, UDP.
const maxHeaders = 14 + 4 + 40 + 8

// NewPort makes a port that is not attached yet.
func NewPort(cfg Config) (*Port, error) {
	if cfg.MTU < 1 || cfg.MTU > maxFrame {
		return nil, fmt.Errorf("memory link: MTU %d: want 1 to %d", cfg.MTU, maxFrame)
	}
	bells, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory link: %w", err)
	}
	own, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		shut(bells)
		return nil, fmt.Errorf("memory link: %w", err)
	}
	if err := watch(bells, own); err != nil {
		shut(bells, own)
		return nil, fmt.Errorf("memory link: %w", err)
	}
	return &Port{cfg: cfg, buf: make([]byte, recvBytes), head: make([]byte, 0, maxHeaders), bells: bells, own: own}, nil
}

// use returns the present link for as long as the caller needs it, nil if there is none; done ends
// that.
func (p *Port) use() *joint {
	for {
		j := p.at.Load()
		if j == nil || j.hold() {
			return j
		}
	}
}

// done ends a use of j. The last one releases what j has.
func (p *Port) done(j *joint) {
	if j.users.Add(-1) == 0 {
		p.rxDropped.Add(j.release())
	}
}

// attach makes j the link of the port, and ends the former one. It owns j, and ends it at once if
// the port is closed; it then reports false.
func (p *Port) attach(j *joint) bool {
	if !p.replace(j) {
		j.fault()
		p.done(j)
		return false
	}
	p.Wake() // a sleeping waiter has told the former link that it sleeps
	return true
}

// replace makes j the link of the port, nil for none. It reports false if the port does not take j.
func (p *Port) replace(j *joint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j != nil && (p.closed.Load() || watch(p.bells, j.bell) != nil) {
		return false
	}
	if former := p.at.Swap(j); former != nil {
		p.rxDropped.Add(former.overflow())
		former.fault() // tells its other end
		p.done(former)
	}
	return true
}

// ended is called when the connection of j has ended. What its other end has sent can still be
// received.
func (p *Port) ended(j *joint) {
	j.gone.Store(true)
	p.Wake()
}

// retire forgets a link that has ended and from which nothing more can be received.
func (p *Port) retire(j *joint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.CompareAndSwap(j, nil) {
		p.rxDropped.Add(j.overflow())
		p.done(j)
	}
}

// Attached reports whether the other end is there.
func (p *Port) Attached() bool {
	j := p.at.Load()
	return j != nil && !j.gone.Load()
}

// SetUp sets whether the link is up. A link that is down drops frames in both directions.
func (p *Port) SetUp(up bool) { p.down.Store(!up) }

// Recv resets b and appends copies of the frames that have arrived, at most 64.
func (p *Port) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	if p.closed.Load() {
		return 0, ErrClosed
	}
	j := p.use()
	if j == nil {
		return 0, nil
	}
	defer p.done(j)
	if gone := j.gone.Load(); !j.rx.ready() {
		if gone {
			p.retire(j)
		}
		return 0, nil
	}
	bad, ok := j.rx.take(b, p.cfg.Index, p.buf)
	if !ok {
		j.fault()
		p.retire(j)
	}
	var packets, bytes uint64
	for i := range b.Frames {
		packets += uint64(packetsOf(&b.Frames[i]))
		bytes += uint64(len(b.Frames[i].Data))
	}
	if p.down.Load() {
		bad, packets, bytes = bad+packets, 0, 0
		b.Reset()
	}
	if bad > 0 {
		p.rxDropped.Add(bad)
	}
	p.rxPackets.Add(packets)
	p.rxBytes.Add(bytes)
	return len(b.Frames), nil
}

// Send puts the frames of b into the ring, in order. Frames that are too long, and all while the
// link is down or the other end is not there, are dropped and counted here; those for which the ring
// has no room are lost to the other end, which counts them.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	if p.closed.Load() {
		return 0, ErrClosed
	}
	j := p.use()
	if j == nil {
		p.txDropped.Add(packetsIn(b.Frames))
		return 0, nil
	}
	defer p.done(j)
	if j.gone.Load() || p.down.Load() {
		p.txDropped.Add(packetsIn(b.Frames))
		return 0, nil
	}
	left := 0
	limit := 0
	if p.cfg.Merge {
		limit = p.cfg.MTU + minFrame
	}
	if !j.tx.begin() {
		j.fault()
	}
	var packets, bytes, refused uint64
	unseen := 0
	rest := b.Frames
	for len(rest) > 0 && !j.gone.Load() {
		n, length, fits := p.put(j, rest, limit)
		count := packetsIn(rest[:n])
		if !fits {
			refused += count
		} else {
			left, packets, bytes = left+n, packets+count, bytes+uint64(length)
		}
		rest = rest[n:]
		if unseen++; unseen == publishEvery {
			unseen = 0
			if j.tx.publish() {
				j.wake()
			}
		}
	}
	if j.tx.publish() {
		j.wake()
	}
	refused += packetsIn(rest) // the link has ended
	p.txPackets.Add(packets)
	p.txBytes.Add(bytes)
	if refused > 0 {
		p.txDropped.Add(refused)
	}
	return left, nil
}

// put puts the first frame, or the first run of frames as a super-frame. It returns how many frames
// that were and their bytes; fits is false if the link does not take such frames.
func (p *Port) put(j *joint, frames []packetio.Frame, limit int) (n, length int, fits bool) {
	f := &frames[0]
	if limit > 0 && len(frames) > 1 {
		if run := packetio.FirstRun(frames, limit); run.Frames > 1 {
			return p.putRun(j, frames[:run.Frames], &run)
		}
	}
	if length = len(f.Data); !p.takes(f) {
		return 1, length, false
	}
	mem, offset, ok := j.tx.reserve(length)
	switch {
	case !ok:
		j.fault()
		return 1, length, false
	case mem == nil:
		j.tx.drop(packetsOf(f))
	default:
		copy(mem, f.Data)
		j.tx.commit(offset, length, f)
	}
	return 1, length, true
}

// putRun puts a run of frames as a super-frame.
func (p *Port) putRun(j *joint, frames []packetio.Frame, run *packetio.Run) (n, length int, fits bool) {
	head, super := run.AppendHeaders(p.head[:0], frames)
	length = len(head)
	for i := range frames {
		length += len(frames[i].Data) - run.Headers
	}
	mem, offset, ok := j.tx.reserve(length)
	switch {
	case !ok:
		j.fault()
		return len(frames), length, false
	case mem == nil:
		j.tx.drop(len(frames))
	default:
		at := copy(mem, head)
		for i := range frames {
			at += copy(mem[at:], frames[i].Data[run.Headers:])
		}
		j.tx.commit(offset, length, &super)
	}
	return len(frames), length, true
}

// takes reports whether the link takes a frame: a packet within the MTU, with a tag beside it, or a
// super-frame.
func (p *Port) takes(f *packetio.Frame) bool {
	n := len(f.Data)
	if n < minFrame || n > maxFrame || f.SegSize > maxFrame {
		return false
	}
	if f.SegSize > 0 || f.Offload.Type != 0 {
		return true
	}
	const tag = 4
	limit := p.cfg.MTU + minFrame
	if f.Data[12] == 0x81 && f.Data[13] == 0 {
		limit += tag
	}
	return n <= limit
}

// packetsOf returns how many packets f stands for. Of a kernel's super-frame the port does not know
// the headers; it is one.
func packetsOf(f *packetio.Frame) int {
	if f.SegSize <= 0 {
		return 1
	}
	return f.Packets()
}

func packetsIn(frames []packetio.Frame) (n uint64) {
	for i := range frames {
		n += uint64(packetsOf(&frames[i]))
	}
	return n
}

// Stats returns the counters of the port. RxDropped are packets for which the ring had no room,
// those that a link which was replaced still held, and malformed entries.
func (p *Port) Stats() packetio.Stats {
	p.mu.Lock() // a link that is replaced now counts once
	defer p.mu.Unlock()
	s := packetio.Stats{
		RxPackets: p.rxPackets.Load(), RxBytes: p.rxBytes.Load(), RxDropped: p.rxDropped.Load(),
		TxPackets: p.txPackets.Load(), TxBytes: p.txBytes.Load(), TxDropped: p.txDropped.Load(),
	}
	if j := p.use(); j != nil {
		s.RxDropped += j.rx.dropped.Load()
		j.users.Add(-1) // the port itself uses it while mu is held
	}
	return s
}

// Ready reports whether frames wait; for a waiter, beside Recv. It reports once that the port was
// closed.
func (p *Port) Ready() bool {
	if p.closed.Load() && !p.told.Swap(true) {
		return true
	}
	j := p.use()
	if j == nil {
		return false
	}
	ready := j.rx.ready() && !j.gone.Load()
	p.done(j)
	return ready
}

// Sleeping is told by a waiter that it is about to sleep, so that the sender rings the bell, and
// that it no longer does. After Sleeping(true) the waiter looks once more. One goroutine at a time
// calls it.
func (p *Port) Sleeping(on bool) {
	p.setSleeper(on)
	if j := p.use(); j != nil {
		j.sleeping(on)
		p.done(j)
	}
}

// setSleeper notes whether a waiter sleeps. The one that Close has woken releases what it slept on.
func (p *Port) setSleeper(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleeper = on
	if !on && p.closed.Load() {
		_ = p.release() // Close has returned
	}
}

// release closes the descriptors. The caller holds mu.
func (p *Port) release() error {
	if p.bells < 0 {
		return nil
	}
	err := errors.Join(unix.Close(p.bells), unix.Close(p.own))
	p.bells, p.own = -1, -1
	return err
}

// Bell is the descriptor that has an event when frames arrive for a sleeping waiter, or Wake is
// called. It is watched for edges and never read. -1: the port is closed.
func (p *Port) Bell() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return -1
	}
	return p.bells
}

// Wake gives a waiter an event.
func (p *Port) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own >= 0 {
		_, _ = unix.Write(p.own, one) // full means that it has an event
	}
}

// one is what is added to an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Close ends the port, its link and a Wait on it.
func (p *Port) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	p.replace(nil)
	p.Wake()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sleeper {
		return nil
	}
	return p.release()
}
