package memlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// bell is a pair of sockets, made by one end of a link, by which the other end can wake it. This
// end keeps the socket that it waits on, and passes the other one to its peer, which sends on it to
// ring the bell.
//
// Both processes share the open file of the passed descriptor, with its flags and its contents. So
// an eventfd cannot be used: the peer could make writes to it block. A send on a socket has its own
// flag against blocking, and takes no lock that the peer can hold.
type bell struct{ ours, theirs int }

func newBell() (bell, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return bell{-1, -1}, fmt.Errorf("memory link: bell: %w", err)
	}
	return bell{pair[0], pair[1]}, nil
}

// stroke is the message that rings a bell.
var stroke = []byte{0}

// sound rings the other end's bell. If the socket is full, the bell has already rung. A peer that
// damages its bell harms only itself.
func sound(theirs int) { _ = unix.Send(theirs, stroke, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }

// mostStrokes is the largest number of strokes, the messages that have rung a bell, that are read
// at once. A socket holds fewer. If more arrive because the peer goes on ringing, the next stroke
// wakes this end again.
const mostStrokes = 1024

// answer reads the strokes of a bell, the messages that have rung it, so that the next stroke
// causes an event.
func answer(ours int, buf []byte) {
	for range mostStrokes {
		if _, err := unix.Read(ours, buf); err != nil {
			return
		}
	}
}

// watch adds a bell to an epoll descriptor, edge-triggered, so that each stroke causes an event.
func watch(epfd, ours int) error {
	return unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, ours, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
}

// checkBell refuses a descriptor that is not a socket as newBell makes it, because a send on it
// might block.
func checkBell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("the bell is no socket: %w", err)
	}
	if domain != unix.AF_UNIX || kind != unix.SOCK_DGRAM {
		return fmt.Errorf("the bell is a socket of domain %d, type %d; want a UNIX datagram socket", domain, kind)
	}
	return nil
}
