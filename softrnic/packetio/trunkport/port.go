package trunkport

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/packetio/afpacket"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// ErrClosed says that the port was closed before the call.
var ErrClosed = errors.New("port is closed")

// socketBuffer is the requested size in bytes of the socket's two queues.
const socketBuffer = 8 << 20

// maxDatagrams is how many datagrams Recv takes: those of a stranger may have no frames.
const maxDatagrams = 1024

// maxFrames is how many frames of datagrams Recv returns, unless the last datagram had more.
const maxFrames = 64

// Config describes a port.
type Config struct {
	// Local is the address of the socket, Peer that of the other end.
	Local, Peer netip.AddrPort
	// Trunk describes the end. Open sets Carrier, Random, Wall, IPv6 and MTU.
	Trunk trunk.Config
	// Index becomes Frame.Port of received frames.
	Index int
	// Limit is the length of the longest packet that is merged with others into a super-frame; 0 means that
	// none is.
	Limit int
	// Cut opens the trunk cut at this end.
	Cut bool
	// Carrier is that of the datagrams; both ends have the same.
	Carrier Carrier
	// Within runs a function in the network namespace of the sockets; nil means that this is the one of the
	// thread that calls Open, and of the loop.
	Within func(func() error) error
}

// Port is the end of a trunk. Recv, Send and Tick belong to one goroutine at a time.
type Port struct {
	cfg     Config
	clk     *real.Clock
	working atomic.Bool // for LinkUp

	// mu guards the fields below, for Stats, Switch and Close.
	mu    sync.Mutex
	line  carrier // nil: the port is closed
	train []byte
	end   *trunk.End
	out   trunk.Out
	stats packetio.Stats
	found refusals
}

var (
	_ packetio.Port   = (*Port)(nil)
	_ afpacket.Source = (*Port)(nil)
)

// Open makes the sockets.
func Open(cfg Config) (*Port, error) {
	if !cfg.Local.IsValid() || !cfg.Peer.IsValid() || cfg.Local.Addr().Is4() != cfg.Peer.Addr().Is4() {
		return nil, fmt.Errorf("trunk %s: %s: want two addresses of the same kind", cfg.Trunk.Trunk, cfg.whence())
	}
	p := &Port{cfg: cfg, clk: real.New(), train: make([]byte, 0, trunk.TrainSize)}
	line, err := p.cfg.open(&p.found)
	if err != nil {
		return nil, fmt.Errorf("trunk %s %s: %w", cfg.Trunk.Trunk, cfg.whence(), err)
	}
	mtu, err := line.pathMTU()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("trunk %s %s: read the path MTU: %w", cfg.Trunk.Trunk, cfg.whence(), err), line.close())
	}
	p.line = line
	c := cfg.Trunk
	c.IPv6, c.MTU = cfg.Peer.Addr().Is6(), mtu
	c.Carrier = strings.ToUpper(cfg.Carrier.String())
	c.Wall = time.Now().UnixNano() - int64(p.clk.Now())
	c.Random = func() (b [32]byte) {
		_, _ = rand.Read(b[:]) // it never fails: crypto/rand ends the process
		return b
	}
	p.end = trunk.New(c)
	p.Switch(!cfg.Cut)
	return p, nil
}

// Switch cuts the trunk at this end, or ends that.
func (p *Port) Switch(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end.Switch(p.clk.Now(), on, &p.out)
	p.flush()
}

// Recv resets b and appends the frames that have arrived.
func (p *Port) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		return 0, ErrClosed
	}
	now := p.clk.Now()
	p.end.Begin(now, b)
	// The kernel is asked once: frames may be in the memory of their datagrams.
	more := p.line.ready(now)
	for n := 0; more && n < maxDatagrams && len(b.Frames) < maxFrames && p.end.Room(); n++ {
		p.line.took(now, p.end.Receive(now, p.line.next(), b, &p.out))
		more = p.line.more()
	}
	p.flush()
	for i := range b.Frames {
		f := &b.Frames[i]
		f.Port = p.cfg.Index
		p.stats.RxPackets += uint64(f.Packets())
		p.stats.RxBytes += uint64(len(f.Data))
	}
	return len(b.Frames), nil
}

// Send transmits the frames of b in order. Frames for which the kernel has no room, or for which the
// trunk does not work, are dropped and counted.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		return 0, ErrClosed
	}
	sent := 0
	for rest := b.Frames; len(rest) > 0; {
		t, n := p.end.Pack(rest, p.cfg.Limit, p.train)
		if n == 0 {
			p.drop(rest)
			break
		}
		unsent, err := p.line.send(t)
		if err != nil {
			p.end.Unsent(unsent, (len(unsent)+t.Size-1)/t.Size)
		}
		switch {
		case err == nil:
			sent += n
			for i := range rest[:n] {
				p.stats.TxPackets += uint64(rest[i].Packets())
				p.stats.TxBytes += uint64(len(rest[i].Data))
			}
		case errors.Is(err, unix.EBADF):
			return sent, ErrClosed
		default:
			p.refused(err)
			p.drop(rest[:n])
		}
		rest = rest[n:]
	}
	return sent, nil
}

func (p *Port) drop(frames []packetio.Frame) {
	p.stats.TxDropped += uint64(packetio.PacketsIn(frames))
	p.end.Dropped(len(frames))
}

// refused asks the kernel for the path MTU if it has refused a datagram because of its length.
func (p *Port) refused(err error) {
	if !errors.Is(err, unix.EMSGSIZE) && !errors.Is(err, unix.EINVAL) {
		return
	}
	if mtu, err := p.line.pathMTU(); err == nil {
		p.end.TooBig(p.clk.Now(), mtu)
	}
}

// flush sends the datagrams that the end wants to be sent beside those of trains. The caller holds mu.
func (p *Port) flush() {
	for _, d := range p.out.Datagrams {
		if err := p.line.sendOne(d); err != nil {
			p.end.Unsent(d, 1)
			p.refused(err)
		}
	}
	p.out.Datagrams = p.out.Datagrams[:0]
	p.working.Store(p.end.Working())
}

// Tick sends what the trunk needs beside frames, if it is due. It returns how long it takes until Tick or Recv
// must be called.
func (p *Port) Tick() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		return time.Hour
	}
	now := p.clk.Now()
	next := p.line.tick(now)
	if at := p.end.Deadline(); now >= at {
		p.end.Tick(now, &p.out)
		p.flush()
	}
	at := p.end.Deadline()
	if at == clock.Never {
		return next
	}
	return max(0, min(next, at.Sub(now)))
}

// LinkUp reports whether both ends hear each other.
func (p *Port) LinkUp() bool { return p.working.Load() }

// Stats returns the counters of frames. RxDropped is 0: what is lost are datagrams.
func (p *Port) Stats() packetio.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

// Trunk returns the counters of the trunk.
func (p *Port) Trunk() trunk.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.end.Stats()
	s.Fallbacks, s.Slow = p.found.count, p.found.text()
	if p.line != nil && s.Trouble != "" {
		if why := p.line.trouble(); why != "" {
			s.Trouble += "; " + why
		}
	}
	return s
}

// Ready reports whether datagrams have come. It asks the kernel for them.
func (p *Port) Ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line != nil && p.line.ready(p.clk.Now())
}

// Sleeping does nothing: the kernel reports each datagram that comes.
func (p *Port) Sleeping(bool) {}

// Bell returns the file that becomes readable when something has come; -1 if the port is closed.
func (p *Port) Bell() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		return -1
	}
	return p.line.bell()
}

// Close closes the sockets. Its peer is told that the trunk is cut. A Wait goes on: the loop that waits is the
// one that closes its ports.
func (p *Port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.line == nil {
		return nil
	}
	p.end.Switch(p.clk.Now(), false, &p.out)
	p.flush()
	err := p.line.close()
	p.line = nil
	p.working.Store(false)
	return err
}
