// Package memcable joins two packetio.Ports by a cable in memory: for tests, and for benchmarks of
// everything above a socket. Frames arrive in the order in which they were sent; a full receive
// queue drops, as a ring does. It starts no goroutine.
package memcable

import (
	"cmp"
	"errors"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// ErrClosed is what a closed port answers.
var ErrClosed = errors.New("memory port: closed")

// Config describes the cable, which joins two ports.
type Config struct {
	// Depth is the number of frames that a receive queue holds; 0 means 1024.
	Depth int
	// BatchSize is the most frames that one Recv returns; 0 means 64.
	BatchSize int
	// Filter, if set, is asked for each frame how many copies arrive: 0 loses it, 1 is normal. from
	// is 0 for frames sent by the first port of the pair and 1 for the second; index counts the
	// frames of that direction from 0. It is called with the direction locked and must not use the
	// ports.
	Filter func(from, index int, f packetio.Frame) int
}

func (c Config) withDefaults() Config {
	c.Depth, c.BatchSize = cmp.Or(c.Depth, 1024), cmp.Or(c.BatchSize, 64)
	return c
}

// Port is one end of the cable. Unlike packetio.Port requires, any goroutines may use it at the
// same time, as long as received frames are not used after another Recv.
type Port struct {
	in, out *queue
	batch   int
	mu      sync.Mutex // guards tx
	tx      packetio.Stats
}

var _ packetio.Port = (*Port)(nil)

// InProcess marks a port whose other end is used by goroutines of this process.
func (*Port) InProcess() {}

// Pair returns the two ends of a new cable.
func Pair(cfg Config) (a, b *Port) {
	cfg = cfg.withDefaults()
	ab, ba := newQueue(cfg.Depth), newQueue(cfg.Depth)
	if cfg.Filter != nil {
		ab.filter = func(i int, f packetio.Frame) int { return cfg.Filter(0, i, f) }
		ba.filter = func(i int, f packetio.Frame) int { return cfg.Filter(1, i, f) }
	}
	a = &Port{in: ba, out: ab, batch: cfg.BatchSize}
	b = &Port{in: ab, out: ba, batch: cfg.BatchSize}
	return a, b
}

// Recv moves frames that have arrived into b.
func (p *Port) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	return p.in.take(b, p.batch)
}

// Send copies the frames into the other end's queue. Frames to a closed end are lost. A frame that
// the cable loses counts as sent, too.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	if _, closed := p.in.state(); closed {
		return 0, ErrClosed
	}
	bytes := p.out.put(b.Frames)
	p.mu.Lock()
	p.tx.TxPackets += uint64(len(b.Frames))
	p.tx.TxBytes += uint64(bytes)
	p.mu.Unlock()
	return len(b.Frames), nil
}

// Close ends the port and every Wait on it. Frames in its queue are lost.
func (p *Port) Close() error {
	p.in.close()
	return nil
}

// Stats returns a copy of the port's counters. Frames lost to a full queue count as RxDropped of
// the receiver.
func (p *Port) Stats() packetio.Stats {
	p.mu.Lock()
	s := p.tx
	p.mu.Unlock()
	p.in.addRxStats(&s)
	return s
}
