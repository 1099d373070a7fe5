package memlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// ErrClosed is the error of a port that was closed.
var ErrClosed = errors.New("memory link: port is closed")

// recvBytes is the memory for the frames of one Recv: enough for a batch of frames with the largest
// path MTU, or four super-frames.
const recvBytes = 320 << 10

// publishEvery is the number of frames, or super-frames, after which Send publishes them, so that
// the receiver can begin while Send goes on.
const publishEvery = 16

// Config describes a port.
type Config struct {
	// Index becomes Frame.Port of received frames.
	Index int
	// MTU is the longest frame in bytes without its Ethernet header and tag; super-frames may be
	// longer.
	MTU int
	// Merge makes the port send runs of RoCEv2 packets or 1RMA messages as super-frames, as
	// afpacket.Config.Merge does.
	Merge bool
}

// Port is one end of a link, which may be attached to the other end. Recv and Send may run in
// different goroutines. Frames that Recv returns are copies, which the caller may change.
type Port struct {
	cfg Config
	// at is the current link; nil if there is none. A link whose peer has ended stays until all frames
	// from the peer are received.
	at     atomic.Pointer[joint]
	closed atomic.Bool
	down   atomic.Bool // see SetUp
	buf    []byte      // the frames of the last Recv
	head   []byte      // buffer for the headers of a super-frame

	rxPackets, rxBytes, rxDropped atomic.Uint64
	txPackets, txBytes, txDropped atomic.Uint64

	mu sync.Mutex // guards changes of the field `at`, and the fields bells, own and sleeper
	// bells is an epoll descriptor that has an event when the bell of the current link rings, or when
	// the eventfd own is set.
	bells int
	own   int // an eventfd of this process alone, which Wake sets
	// sleeper is true while a waiter sleeps on this port. If the port is closed meanwhile, bells
	// and own are closed only after the waiter has woken: closing an epoll descriptor would remove
	// its events.
	sleeper bool
	// told is set when Ready has returned true because the port was closed. Ready does that only
	// once.
	told atomic.Bool
}

var _ packetio.Port = (*Port)(nil)

// NewPort returns a port that is not attached yet.
func NewPort(cfg Config) (*Port, error) {
	if cfg.MTU < 1 || cfg.MTU > packetio.MaxFrame {
		return nil, fmt.Errorf("memory link: MTU %d: want 1 to %d", cfg.MTU, packetio.MaxFrame)
	}
	bells, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memory link: %w", err)
	}
	own, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		ring.CloseFiles(bells)
		return nil, fmt.Errorf("memory link: %w", err)
	}
	if err := watch(bells, own); err != nil {
		ring.CloseFiles(bells, own)
		return nil, fmt.Errorf("memory link: %w", err)
	}
	return &Port{cfg: cfg, buf: make([]byte, recvBytes), head: make([]byte, 0, packetio.MaxHeaders), bells: bells, own: own}, nil
}

// use returns the current link, or nil. The link is not released until the caller calls done.
func (p *Port) use() *joint {
	for {
		j := p.at.Load()
		if j == nil || j.hold() {
			return j
		}
	}
}

// done ends a use of j, which the method use has begun. The last user releases j.
func (p *Port) done(j *joint) {
	if j.users.Add(-1) == 0 {
		p.rxDropped.Add(j.release())
	}
}

// attach makes j the link of the port, which then owns j, and ends the link that the port had
// before. If the port does not take j (see replace), attach ends j at once and returns false.
func (p *Port) attach(j *joint) bool {
	if !p.replace(j) {
		j.fault()
		p.done(j)
		return false
	}
	p.Wake() // a sleeping waiter has announced its sleep only to the former link
	return true
}

// replace makes j, or nil, the link of the port. It returns false if the port does not take j: the
// port is closed, or cannot watch j's bell.
func (p *Port) replace(j *joint) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if j != nil && (p.closed.Load() || watch(p.bells, j.bell) != nil) {
		return false
	}
	if former := p.at.Swap(j); former != nil {
		p.rxDropped.Add(former.overflow())
		former.fault() // ends the former link, which informs its other end
		p.done(former)
	}
	return true
}

// ended is called when the connection of j has ended. Frames that the other end has sent can still
// be received.
func (p *Port) ended(j *joint) {
	j.gone.Store(true)
	p.Wake()
}

// retire removes a link from which nothing more is received.
func (p *Port) retire(j *joint) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.CompareAndSwap(j, nil) {
		p.rxDropped.Add(j.overflow())
		p.done(j)
	}
}

// Attached reports whether the other end is attached.
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
		packets += uint64(b.Frames[i].Packets())
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

// Send puts the frames of b into the ring, in order. Frames that are too long are dropped, and so
// are all frames while the link is down or not attached; this end counts them. Frames for which the
// ring has no room are dropped, too; the other end counts them.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	if p.closed.Load() {
		return 0, ErrClosed
	}
	j := p.use()
	if j == nil {
		p.txDropped.Add(uint64(packetio.PacketsIn(b.Frames)))
		return 0, nil
	}
	defer p.done(j)
	if j.gone.Load() || p.down.Load() {
		p.txDropped.Add(uint64(packetio.PacketsIn(b.Frames)))
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
		count := uint64(packetio.PacketsIn(rest[:n]))
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
	refused += uint64(packetio.PacketsIn(rest)) // the link has ended, so the remaining frames are refused
	p.txPackets.Add(packets)
	p.txBytes.Add(bytes)
	if refused > 0 {
		p.txDropped.Add(refused)
	}
	return left, nil
}

// put puts the first frame, or the first run of frames as a super-frame, into the ring. limit is
// the length of the longest frame that put merges; 0 means none. put returns the number of frames
// and their bytes. fits is false if the frames are too long for the link, or if the link has ended.
// It is true if put drops the frames because the ring is full: the other end counts them.
func (p *Port) put(j *joint, frames []packetio.Frame, limit int) (n, length int, fits bool) {
	f := &frames[0]
	if limit > 0 && len(frames) > 1 {
		if run := packetio.FirstRun(frames, limit); run.Frames > 1 {
			return p.putRun(j, frames[:run.Frames], &run)
		}
	}
	if length = len(f.Data); !f.Fits(p.cfg.MTU) {
		return 1, length, false
	}
	mem, offset, ok := j.tx.reserve(length)
	switch {
	case !ok:
		j.fault()
		return 1, length, false
	case mem == nil:
		j.tx.drop(f.Packets())
	default:
		copy(mem, f.Data)
		j.tx.commit(offset, length, f)
	}
	return 1, length, true
}

// putRun puts a run of frames into the ring as a super-frame.
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

// Stats returns the counters of the port. RxDropped counts packets for which the ring had no room,
// packets that arrived while the link was down or were left in a link that was replaced, and
// malformed entries.
func (p *Port) Stats() packetio.Stats {
	p.mu.Lock() // with mu, a link that is being replaced is counted only once
	defer p.mu.Unlock()
	s := packetio.Stats{
		RxPackets: p.rxPackets.Load(), RxBytes: p.rxBytes.Load(), RxDropped: p.rxDropped.Load(),
		TxPackets: p.txPackets.Load(), TxBytes: p.txBytes.Load(), TxDropped: p.txDropped.Load(),
	}
	if j := p.use(); j != nil {
		s.RxDropped += j.rx.dropped.Load()
		j.users.Add(-1) // not the last user: the port itself uses it while mu is held
	}
	return s
}

// Ready reports whether frames have arrived that Recv has not taken. It returns false if the other
// end of the link has ended; the port then wakes the waiter by Wake. A waiter may call Ready
// concurrently with Recv. After Close, Ready returns true once.
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

// Sleeping is called by a waiter before it sleeps, so that the sender rings the bell, and after it
// has woken. After Sleeping(true) the waiter checks Ready once more. Only one goroutine at a time
// calls it.
func (p *Port) Sleeping(on bool) {
	p.setSleeper(on)
	if j := p.use(); j != nil {
		j.sleeping(on)
		p.done(j)
	}
}

// setSleeper stores whether a waiter sleeps. If the port was closed during the sleep, it releases
// the descriptors.
func (p *Port) setSleeper(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sleeper = on
	if !on && p.closed.Load() {
		_ = p.release() // Close has already returned, so the error has no receiver
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

// Bell returns the descriptor that has an event when frames arrive for a sleeping waiter, or when
// Wake is called. Waiters watch it edge-triggered and never read it. After Close it is −1.
func (p *Port) Bell() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return -1
	}
	return p.bells
}

// Wake causes an event for a waiter.
func (p *Port) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.own >= 0 {
		_, _ = unix.Write(p.own, one) // if the eventfd is full, it already has an event
	}
}

// one is the number that is added to an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// Close ends the port and its link, and wakes a waiter.
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
