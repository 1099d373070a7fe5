package trunkport

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// socket makes a UDP socket from local to peer that never makes IP fragments. What the kernel does not
// have is added to found.
func socket(local, peer netip.AddrPort, found *refusals) (fd int, err error) {
	if fd, err = newSocket(peer, unix.SOCK_DGRAM); err != nil {
		return -1, err
	}
	if err := setup(fd, local, peer, found); err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// newSocket makes a socket of a kind to a peer that does not block.
func newSocket(peer netip.AddrPort, kind int) (int, error) {
	family := unix.AF_INET
	if peer.Addr().Is6() {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, fmt.Errorf("make socket: %w", err)
	}
	return fd, nil
}

// enlarge gives a socket large queues.
func enlarge(fd int) {
	for _, opt := range [][2]int{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[0], socketBuffer) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, opt[1], socketBuffer) // the kernel may grant less; any size is enough
		}
	}
}

func setup(fd int, local, peer netip.AddrPort, found *refusals) error {
	enlarge(fd)
	level, opt, do := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO
	if peer.Addr().Is6() {
		level, opt, do = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO
	}
	if err := unix.SetsockoptInt(fd, level, opt, do); err != nil {
		return fmt.Errorf("forbid IP fragments: %w", err)
	}
	for f, try := range map[feature]func() error{
		noGRO:     func() error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1) },
		noSegment: func() error { return unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) }, // an old kernel would ignore the control message
	} {
		if errno, ok := errors.AsType[unix.Errno](try()); ok {
			found.add(f, errno)
		}
	}
	if err := bind(fd, local, "UDP"); err != nil {
		return err
	}
	if err := unix.Connect(fd, sockaddr(peer)); err != nil {
		return fmt.Errorf("there is no way to %v: %w", peer.Addr(), err)
	}
	return nil
}

// bind gives a socket its address. protocol is that of the port, for errors.
func bind(fd int, local netip.AddrPort, protocol string) error {
	err := unix.Bind(fd, sockaddr(local))
	switch {
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("this machine has no address %v: correct `address` of the machine in the rack file (%w)", local.Addr(), err)
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("%s port %d is in use: give the machine another `port` in the rack file (%w)", protocol, local.Port(), err)
	case err != nil:
		return fmt.Errorf("bind: %w", err)
	}
	return nil
}

func sockaddr(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// pathMTU returns the path MTU of a connected socket, as far as the kernel knows it.
func pathMTU(fd int, v6 bool) (int, error) {
	if v6 {
		return unix.GetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MTU)
	}
	return unix.GetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_MTU)
}
