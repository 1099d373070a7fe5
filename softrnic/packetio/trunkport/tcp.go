package trunkport

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

const (
	// pathMTUOfTCP is that of the longest datagrams of a trunk: a stream has no limit.
	pathMTUOfTCP = trunk.MaxMTU
	// redial is the time between two tries to connect.
	redial = trunk.Interval
	// unheard is how long a connection brings no datagram of the peer until it is given up.
	unheard = 2 * trunk.Silence
	// mostRefused is how many datagrams of a connection are refused until it is ended, if none was the
	// peer's. Some may be of a key that this end has no longer.
	mostRefused = 16
	// mostStreams is how many connections the listening end has at the same time. Which of them is the peer's
	// it knows when a datagram has come that only the peer can make.
	mostStreams = 4
)

var errNoConnection = errors.New("there is no connection to the peer")

// tcp carries datagrams by a TCP connection. The end on the side trunk.Near listens at its address, the
// other one connects, and connects again when the connection has ended or brings nothing.
//
//	state of the connecting end   what happens                    then
//	no stream                     redial has passed               connecting
//	connecting                    the kernel reports success      connected
//	connecting, connected         an error, the peer closes it,   no stream
//	                              or unheard has passed
//
// The listening end takes connections from the peer's address only, and sends on none until a datagram
// has come from it that only the peer can make: the connecting end's hello, which waits for the
// connection. Another proven stream takes its place if that has brought nothing for trunk.Silence, or has
// ended.
type tcp struct {
	cfg      *Config
	epoll    int
	listener int // -1: this end connects
	streams  []*stream
	// best is the stream on which is sent; nil if there is none. last is that of the datagram that was
	// returned last.
	best, last *stream
	dial       clock.Time // when the next try is due
	failed     error      // of the last try
	events     [mostStreams + 1]unix.EpollEvent
}

func (c *Config) tcp() (*tcp, error) {
	t := &tcp{cfg: c, epoll: -1, listener: -1}
	var err error
	if t.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make epoll: %w", err)
	}
	begin := t.mayConnect
	if c.Trunk.Side == trunk.Near {
		begin = t.listen
	}
	if err := c.within(begin); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *tcp) listen() error {
	fd, err := newSocket(t.cfg.Peer, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	t.listener = fd
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fmt.Errorf("use the address again: %w", err)
	}
	if err := bind(fd, t.cfg.Local, "TCP"); err != nil {
		return err
	}
	if err := unix.Listen(fd, mostStreams); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	return t.watch(fd, unix.EPOLL_CTL_ADD, unix.EPOLLIN)
}

// mayConnect returns an error if this machine does not have the address from which it is to connect.
func (t *tcp) mayConnect() error {
	fd, err := newSocket(t.cfg.Peer, unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	return errors.Join(bind(fd, netip.AddrPortFrom(t.cfg.Local.Addr(), 0), "TCP"), unix.Close(fd))
}

func (t *tcp) watch(fd, op int, events uint32) error {
	if err := unix.EpollCtl(t.epoll, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("watch connection: %w", err)
	}
	return nil
}

// connect begins a connection.
func (t *tcp) connect(now clock.Time) error {
	fd := -1
	err := t.cfg.within(func() (err error) {
		if fd, err = newSocket(t.cfg.Peer, unix.SOCK_STREAM); err != nil {
			return err
		}
		if err := bind(fd, netip.AddrPortFrom(t.cfg.Local.Addr(), 0), "TCP"); err != nil {
			return err
		}
		if err := unix.Connect(fd, sockaddr(t.cfg.Peer)); err != nil && err != unix.EINPROGRESS {
			return fmt.Errorf("connect: %w", err)
		}
		return nil
	})
	if err == nil {
		err = t.add(now, fd, true)
	}
	if err != nil && fd >= 0 {
		return errors.Join(err, unix.Close(fd))
	}
	return err
}

// add adds a connection. One that has come gets large queues when it is proven to be the peer's.
func (t *tcp) add(now clock.Time, fd int, connecting bool) error {
	if connecting {
		enlarge(fd)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("send at once: %w", err)
	}
	s := &stream{fd: fd, connecting: connecting, writable: connecting, heard: now}
	events := uint32(unix.EPOLLIN)
	if connecting {
		events |= unix.EPOLLOUT
	}
	if err := t.watch(fd, unix.EPOLL_CTL_ADD, events); err != nil {
		return err
	}
	t.streams = append(t.streams, s)
	if connecting {
		t.best = s
	}
	return nil
}

// accept takes the connections that have come. Those from another address than the peer's are closed.
func (t *tcp) accept(now clock.Time) {
	for {
		fd, from, err := unix.Accept4(t.listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		if err != nil {
			return // none is left, or one has ended before it was taken
		}
		if addrOf(from) != t.cfg.Peer.Addr() {
			_ = unix.Close(fd) // nothing was written
			continue
		}
		if len(t.streams) == mostStreams {
			t.makeRoom()
		}
		if t.add(now, fd, false) != nil {
			_ = unix.Close(fd) // nothing was written
		}
	}
}

// makeRoom ends the stream, of those on which is not sent, that has been silent for the longest time; one
// that is not proven before one that is.
func (t *tcp) makeRoom() {
	var last *stream
	for _, s := range t.streams {
		if s != t.best && (last == nil || last.proven && !s.proven || last.proven == s.proven && s.heard < last.heard) {
			last = s
		}
	}
	t.end(last)
}

// addrOf returns the address of a peer.
func addrOf(a unix.Sockaddr) netip.Addr {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr)
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr)
	default:
		return netip.Addr{}
	}
}

// end closes a stream. What is not sent is lost.
func (t *tcp) end(s *stream) {
	_ = unix.Close(s.fd) // the trunk notices what is lost
	t.streams = slices.DeleteFunc(t.streams, func(x *stream) bool { return x == s })
	if t.last == s {
		t.last = nil
	}
	if t.best == s {
		t.best = nil
		for _, x := range t.streams {
			if x.proven && (t.best == nil || x.heard > t.best.heard) {
				t.best = x
			}
		}
	}
}

// endBroken closes the streams that have ended.
func (t *tcp) endBroken() {
	for i := len(t.streams) - 1; i >= 0; i-- {
		if s := t.streams[i]; s.broken && !s.has() {
			t.end(s)
		}
	}
}

func (t *tcp) ready(now clock.Time) bool {
	if t.more() {
		return true
	}
	n, err := unix.EpollWait(t.epoll, t.events[:], 0)
	if err != nil {
		return false
	}
	for _, e := range t.events[:n] {
		if int(e.Fd) == t.listener {
			t.accept(now)
			continue
		}
		i := slices.IndexFunc(t.streams, func(s *stream) bool { return s.fd == int(e.Fd) })
		if i < 0 {
			continue // it made room for another
		}
		s := t.streams[i]
		if e.Events&(unix.EPOLLOUT|unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			t.connected(s)
		}
		s.readable = s.readable || e.Events&(unix.EPOLLIN|unix.EPOLLERR|unix.EPOLLHUP) != 0
	}
	for _, s := range t.streams {
		if s.readable && !s.broken {
			s.receive()
		}
	}
	t.endBroken()
	return t.more()
}

// connected is called when the kernel has room, or an error, for a stream.
func (t *tcp) connected(s *stream) {
	if s.connecting {
		errno, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err == nil && errno != 0 {
			err = unix.Errno(errno)
		}
		if err != nil {
			s.broken, t.failed = true, fmt.Errorf("connect: %w", err)
			return
		}
		s.connecting = false
	}
	t.flush(s)
}

// flush sends what waits, and has the kernel report room if something still does.
func (t *tcp) flush(s *stream) {
	s.flush()
	if waits := len(s.out) > 0; waits != s.writable && !s.broken && !s.connecting {
		events := uint32(unix.EPOLLIN)
		if waits {
			events |= unix.EPOLLOUT
		}
		if t.watch(s.fd, unix.EPOLL_CTL_MOD, events) != nil {
			s.broken = true
		}
		s.writable = waits
	}
}

func (t *tcp) more() bool { return slices.ContainsFunc(t.streams, (*stream).has) }

func (t *tcp) next() []byte {
	for _, s := range t.streams {
		if s.has() {
			t.last = s
			return s.next()
		}
	}
	return nil
}

func (t *tcp) took(now clock.Time, accepted bool) {
	s := t.last
	switch {
	case s == nil || !accepted && s.proven:
		return
	case !accepted:
		if s.refused++; s.refused > mostRefused {
			s.broken, s.in, s.took = true, s.in[:0], 0
		}
		return
	case !s.proven && t.listener >= 0:
		enlarge(s.fd)
	}
	s.proven, s.heard = true, now
	if t.best != s && (t.best == nil || now.Sub(t.best.heard) > trunk.Silence) {
		t.best = s
	}
}

func (t *tcp) send(train trunk.Train) (rest []byte, err error) {
	s := t.best
	switch {
	case s == nil || s.connecting || s.broken:
		return train.Data, errNoConnection
	case s.full():
		return train.Data, unix.EAGAIN
	}
	for b := train.Data; len(b) > 0; {
		n := min(train.Size, len(b))
		s.put(b[:n])
		b = b[n:]
	}
	t.flush(s)
	return nil, nil
}

func (t *tcp) sendOne(d []byte) error {
	s := t.best
	switch {
	case s == nil || s.broken || s.connecting && len(s.out) > 0:
		return errNoConnection
	case s.full():
		return unix.EAGAIN
	}
	s.put(d)
	t.flush(s)
	return nil
}

func (t *tcp) pathMTU() (int, error) { return pathMTUOfTCP, nil }

func (t *tcp) tick(now clock.Time) time.Duration {
	t.endBroken()
	for i := len(t.streams) - 1; i >= 0; i-- {
		if s := t.streams[i]; now.Sub(s.heard) > unheard && !s.waits() {
			t.end(s)
		}
	}
	if t.listener >= 0 {
		if len(t.streams) > 0 {
			return redial
		}
		return time.Hour
	}
	if len(t.streams) == 0 && now >= t.dial {
		t.dial = now.Add(redial)
		t.failed = t.connect(now) // it is tried again
	}
	return redial
}

func (t *tcp) bell() int { return t.epoll }

func (t *tcp) trouble() string {
	if t.failed == nil || t.best != nil && t.best.proven {
		return ""
	}
	return t.failed.Error()
}

func (t *tcp) close() error {
	for len(t.streams) > 0 {
		t.end(t.streams[0])
	}
	var errs []error
	for _, fd := range []int{t.listener, t.epoll} {
		if fd >= 0 {
			errs = append(errs, unix.Close(fd))
		}
	}
	t.listener, t.epoll = -1, -1
	return errors.Join(errs...)
}
