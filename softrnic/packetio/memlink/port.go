package memlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
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
	// at is the present link, nil if there was none yet. A link whose peer has gone stays: what the
	// peer has sent can still be received.
	at     atomic.Pointer[joint]
	closed atomic.Bool
	down   atomic.Bool
	buf    []byte
	head   []byte // scratch: the headers of a super-frame

	rxPackets, rxBytes, rxDropped atomic.Uint64
	txPackets, txBytes, txDropped atomic.Uint64

	mu   sync.Mutex // guards bell against Close
	bell int        // an eventfd
}

var _ packetio.Port = (*Port)(nil)

// maxHeaders is room for the headers of a super-frame: Ethernet with a tag, IPv6, UDP.
const maxHeaders = 14 + 4 + 40 + 8

// NewPort makes a port that is not attached yet.
func NewPort(cfg Config) (*Port, error) {
	if cfg.MTU < 1 || cfg.MTU > maxFrame {
		return nil, fmt.Errorf("memory link: MTU %d: want 1 to %d", cfg.MTU, maxFrame)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("memory link: %w", err)
	}
	return &Port{cfg: cfg, buf: make([]byte, recvBytes), head: make([]byte, 0, maxHeaders), bell: bell}, nil
}

// joint is the memory of one link as one of its ends uses it.
type joint struct {
	tx sender
	rx receiver
	// gone: the other end has ended, or wrote what cannot be.
	gone atomic.Bool
	// broken is called once, when a word of the other end is wrong.
	broken func()
	// peer is the eventfd that wakes the other end.
	peer int
}

// resources of a joint are released when no goroutine uses it any more.
type resources struct {
	mem  []byte
	peer int
}

// newJoint takes over a link's memory and the other end's eventfd. out and in are the directions.
func newJoint(mem []byte, out, in, peer int, broken func()) *joint {
	direction := func(i int) []byte { return mem[i*directLen : (i+1)*directLen : (i+1)*directLen] }
	j := &joint{tx: newSender(direction(out)), peer: peer, broken: broken}
	j.rx.words, j.rx.mem = wordsOf(direction(in)), direction(in)
	runtime.AddCleanup(j, func(r resources) {
		_ = unix.Munmap(r.mem) // no goroutine can reach it any more
		_ = unix.Close(r.peer)
	}, resources{mem, peer})
	return j
}

// wake rings the other end's bell.
func (j *joint) wake() { sound(j.peer) }

// one is what is added to an eventfd.
var one = binary.NativeEndian.AppendUint64(nil, 1)

func sound(bell int) { _, _ = unix.Write(bell, one) } // full means that it has rung

// fault ends a link whose other end has written what cannot be.
func (j *joint) fault() {
	if !j.gone.Swap(true) {
		j.broken()
	}
}

// attach makes j the link of the port.
func (p *Port) attach(j *joint) {
	if former := p.at.Swap(j); former != nil {
		p.rxDropped.Add(former.rx.dropped.Load())
		runtime.KeepAlive(former) // its memory goes away with it
	}
	p.Wake() // a sleeping waiter has told the former link that it sleeps
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
	j := p.at.Load()
	if j == nil || !j.rx.ready() {
		return 0, nil
	}
	bad, ok := j.rx.take(b, p.cfg.Index, p.buf)
	if !ok {
		j.fault()
	}
	runtime.KeepAlive(j)
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
	j := p.at.Load()
	if j == nil || j.gone.Load() || p.down.Load() {
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
	for rest := b.Frames; len(rest) > 0 && !j.gone.Load(); {
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
	runtime.KeepAlive(j)
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

// Stats returns the counters of the port. RxDropped are packets for which the ring had no room, and
// malformed entries.
func (p *Port) Stats() packetio.Stats {
	s := packetio.Stats{
		RxPackets: p.rxPackets.Load(), RxBytes: p.rxBytes.Load(), RxDropped: p.rxDropped.Load(),
		TxPackets: p.txPackets.Load(), TxBytes: p.txBytes.Load(), TxDropped: p.txDropped.Load(),
	}
	if j := p.at.Load(); j != nil {
		s.RxDropped += j.rx.dropped.Load()
		runtime.KeepAlive(j)
	}
	return s
}

// Ready reports whether frames wait; for a waiter, beside Recv.
func (p *Port) Ready() bool {
	j := p.at.Load()
	ready := j != nil && j.rx.ready() && !j.gone.Load()
	runtime.KeepAlive(j)
	return ready
}

// Sleeping is told by a waiter that it is about to sleep, so that the sender rings the bell, and
// that it no longer does. After Sleeping(true) the waiter looks once more.
func (p *Port) Sleeping(on bool) {
	if j := p.at.Load(); j != nil {
		j.rx.sleeping(on)
		runtime.KeepAlive(j)
	}
}

// Bell is the eventfd that is written when frames arrive for a sleeping waiter. It is watched for
// edges and never read. -1: the port is closed.
func (p *Port) Bell() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bell
}

// Wake rings the port's own bell.
func (p *Port) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bell >= 0 {
		sound(p.bell)
	}
}

// Close ends the port and every Wait on it; its link goes with the connection that made it.
func (p *Port) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	if j := p.at.Load(); j != nil {
		j.fault()
	}
	p.Wake()
	p.mu.Lock()
	defer p.mu.Unlock()
	err := unix.Close(p.bell)
	p.bell = -1
	return err
}
