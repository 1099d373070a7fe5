package memlink

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// bell wakes one end of one link: a pair of sockets that this end makes. It keeps the one that is
// heard, and hands the other one over to be rung.
//
// Both processes share the open file of what is handed over, with its flags and what fills it. So
// an eventfd would not do: its peer can make each write to it wait. Sending on a socket takes a
// flag of its own that says not to wait, and no lock that the peer can hold.
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

// sound rings a bell of the other side. A full one has rung and was not answered; one that its peer
// has broken wakes no other process than that peer.
func sound(theirs int) { _ = unix.Send(theirs, stroke, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) }

// mostStrokes bounds how many strokes are taken at once. A socket holds fewer, unless its peer goes
// on ringing; then it also wakes by the next one.
const mostStrokes = 1024

// answer takes the strokes of a bell, so that the next one is heard.
func answer(ours int, buf []byte) {
	for range mostStrokes {
		if _, err := unix.Read(ours, buf); err != nil {
			return
		}
	}
}

// watch makes an epoll descriptor notice each stroke.
func watch(epfd, ours int) error {
	return unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, ours, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
}

// checkBell refuses descriptors of other kinds than newBell makes; a send on them might wait.
func checkBell(fd int) error {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	kind, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err = errors.Join(err, err2); err != nil {
		return fmt.Errorf("the bell is no socket: %w", err)
	}
	if domain != unix.AF_UNIX || kind != unix.SOCK_DGRAM {
		return fmt.Errorf("the bell is a socket of domain %d, type %d", domain, kind)
	}
	return nil
}
