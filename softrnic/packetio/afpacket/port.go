package afpacket

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// socketBuffer is the requested size in bytes of the socket's two queues. If there is a receive
// ring, the receive queue holds only long frames.
const socketBuffer = 8 << 20

// healthEvery is the number of empty receives after which a port checks that its interface still
// exists. Without this check, a caller that only polls would not notice that the interface was
// removed.
const healthEvery = 1 << 16

// receiver receives frames: a ring or an mmsgReceiver.
type receiver interface {
	// recv appends to b the frames that have arrived, with port as their Frame.Port. It returns how
	// many frames were lost because they were truncated.
	recv(b *packetio.Batch, port int) (cut uint64)
	// ready reports whether there is a frame. It may be called concurrently with recv.
	ready() bool
	// arrived returns when the next frame came to the machine; ok is false if there is none, or if the
	// receiver does not know. It may be called concurrently with recv; then the time may be wrong.
	arrived() (at time.Time, ok bool)
	close()
	String() string
}

// Port is one network interface. Recv and Send may run in different goroutines.
type Port struct {
	cfg  Config
	info Info
	// down: the interface went down, which the kernel reports. The kernel does not report that an
	// interface that is down was removed, so the port then checks for that itself (see checkGone).
	down atomic.Bool

	// mu guards the fields below. Close may be called at any time.
	mu       sync.Mutex
	fd       int
	rx       receiver
	tx       *sender
	merge    merging
	silencer func()
	waiters  []*Waiter
	err      error // why the port can no longer be used
	empty    int   // number of consecutive receives without a frame
	stats    packetio.Stats
}

// Open binds a port to an interface in the network namespace of the calling thread. The port can be
// used from any thread afterwards.
func Open(cfg Config) (*Port, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Slots = cmp.Or(cfg.Slots, defaultSlots)
	// Protocol 0 receives nothing until bind. With another one, frames of other interfaces would be
	// queued in the meantime.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
			err = ErrPrivilege
		}
		return nil, fmt.Errorf("afpacket %s: %w", cfg.Ifname, err)
	}
	p := &Port{cfg: cfg, fd: fd, tx: newSender()}
	if err := p.setup(); err != nil {
		return nil, errors.Join(fmt.Errorf("afpacket %s: %w", cfg.Ifname, err), p.Close())
	}
	return p, nil
}

// setup sets the options in the only order that the kernel accepts: the offload header before the
// ring, the filter before bind, bind last.
func (p *Port) setup() error {
	if err := p.identify(); err != nil {
		return err
	}
	set := func(opt int, name string) error {
		if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, opt, 1); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if err := set(unix.PACKET_IGNORE_OUTGOING, "PACKET_IGNORE_OUTGOING (Linux 4.20)"); err != nil {
		return err
	}
	if err := set(unix.PACKET_VNET_HDR, "PACKET_VNET_HDR"); err != nil {
		return err
	}
	if err := set(unix.PACKET_QDISC_BYPASS, "PACKET_QDISC_BYPASS"); err != nil {
		p.note("sending through the queueing discipline: %v", err)
	}
	p.growBuffers()
	if err := p.attachFilter(); err != nil {
		return err
	}
	if err := p.openReceiver(); err != nil {
		return err
	}
	if p.cfg.Merge {
		p.merge.limit = p.info.MTU + ethernetLen
	}
	p.silence()
	// ETH_P_ALL: a socket that is bound to one protocol would get frames only behind the tc program
	// that the method silence attaches, and that program drops them.
	if err := unix.Bind(p.fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: p.info.Ifindex}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	if p.cfg.Promiscuous {
		all := unix.PacketMreq{Ifindex: int32(p.info.Ifindex), Type: unix.PACKET_MR_PROMISC}
		if err := unix.SetsockoptPacketMreq(p.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &all); err != nil {
			return fmt.Errorf("promiscuous mode: %w", err)
		}
	}
	sa, err := unix.Getsockname(p.fd)
	if ll, ok := sa.(*unix.SockaddrLinklayer); err == nil && ok {
		p.info.MAC = net.HardwareAddr(ll.Addr[:min(int(ll.Halen), len(ll.Addr))]).String()
	}
	return nil
}

// identify finds the interface in the socket's own network namespace.
func (p *Port) identify() error {
	ifr, err := unix.NewIfreq(p.cfg.Ifname)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFINDEX, ifr); err != nil {
		return ErrNoInterface
	}
	p.info.Ifname, p.info.Ifindex = p.cfg.Ifname, int(ifr.Uint32())
	if ifr, err = unix.NewIfreq(p.cfg.Ifname); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFMTU, ifr); err != nil {
		return fmt.Errorf("read MTU: %w", err)
	}
	p.info.MTU = int(ifr.Uint32())
	return nil
}

func (p *Port) growBuffers() {
	for _, opt := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, opt[0], socketBuffer) != nil {
			_ = unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, opt[1], socketBuffer) // the kernel may grant less; any size is enough
		}
	}
}

func (p *Port) openReceiver() error {
	if !p.cfg.NoRing {
		r, err := newRing(p.fd, p.cfg.Slots, p.info.MTU)
		if err == nil {
			p.rx, p.info.Receive = r, r.String()
			return nil
		}
		p.note("receiving with recvmmsg: %v", err)
	}
	r, err := newMmsgReceiver(p.fd)
	if err != nil {
		return err
	}
	p.rx, p.info.Receive = r, r.String()
	return nil
}

func (p *Port) note(format string, args ...any) {
	p.info.Notes = append(p.info.Notes, fmt.Sprintf(format, args...))
}

func (p *Port) Info() Info { return p.info }

// LinkUp reports whether the interface is up and has a carrier.
func (p *Port) LinkUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	const up = unix.IFF_UP | unix.IFF_RUNNING
	return p.flags()&up == up
}

// flags returns the flags of the interface (IFF_UP and so on); 0 if the interface is gone.
func (p *Port) flags() uint16 {
	ifr, err := unix.NewIfreq(p.cfg.Ifname)
	if err != nil || p.err != nil || unix.IoctlIfreq(p.fd, unix.SIOCGIFFLAGS, ifr) != nil {
		return 0
	}
	return ifr.Uint16()
}

// Recv resets b and appends the frames that have arrived, at most 64. They are valid until the next
// Recv. Call it until it returns 0 before you call Wait: while the caller holds frames, Wait
// returns at once.
func (p *Port) Recv(b *packetio.Batch) (int, error) {
	b.Reset()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	p.stats.RxDropped += p.rx.recv(b, p.cfg.Index)
	if len(b.Frames) == 0 {
		if p.empty++; p.empty%healthEvery == 0 || p.down.Load() {
			return 0, p.checkGone()
		}
		return 0, nil
	}
	p.empty = 0
	for i := range b.Frames {
		p.stats.RxPackets += packets(&b.Frames[i])
		p.stats.RxBytes += uint64(len(b.Frames[i].Data))
	}
	return len(b.Frames), nil
}

// checkGone clears the socket's pending error and checks whether the interface was removed, which
// ends the port. A link that is only down is no error: it may come back. The caller holds mu.
func (p *Port) checkGone() error {
	if p.err != nil {
		return p.err
	}
	_, _ = unix.GetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_ERROR) // reading the error clears it
	sa, err := unix.Getsockname(p.fd)
	if ll, ok := sa.(*unix.SockaddrLinklayer); err == nil && ok && ll.Ifindex == p.info.Ifindex {
		p.down.Store(p.flags()&unix.IFF_UP == 0)
		return nil
	}
	p.err = fmt.Errorf("afpacket %s: %w", p.cfg.Ifname, ErrGone)
	return p.err
}

// Stats returns the counters of the port. RxDropped includes frames that were dropped because the
// ring was full.
func (p *Port) Stats() packetio.Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd >= 0 {
		p.readDrops()
	}
	return p.stats
}

// readDrops adds the kernel's drop counter to RxDropped. Reading that counter resets it.
func (p *Port) readDrops() {
	if st, err := unix.GetsockoptTpacketStats(p.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		p.stats.RxDropped += uint64(st.Drops)
	}
}

// Close releases the port and wakes its waiters. Frames that were received before read as zeros
// from then on.
func (p *Port) Close() error {
	p.mu.Lock()
	if p.fd < 0 {
		p.mu.Unlock()
		return nil
	}
	if p.rx != nil {
		p.readDrops()
	}
	waiters := p.waiters
	for _, w := range waiters {
		w.detach(p.fd)
	}
	if p.silencer != nil {
		p.silencer()
	}
	if p.rx != nil {
		p.rx.close()
	}
	err := unix.Close(p.fd)
	p.fd, p.err, p.waiters = -1, ErrClosed, nil
	p.mu.Unlock()
	for _, w := range waiters {
		w.Wake()
	}
	return err
}

// htons converts v to network byte order on machines of either order.
func htons(v uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return binary.NativeEndian.Uint16(b[:])
}
