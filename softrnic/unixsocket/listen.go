// Package unixsocket listens on Unix sockets at fixed paths. After a crash of a daemon its socket
// stays at its path: the daemon's next incarnation replaces it. Listen never replaces a socket that a
// process serves, or a file that is no socket.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener is a listening socket of type stream or seqpacket.
type Listener struct {
	*net.UnixListener
	path   string
	socket os.FileInfo // the socket that Listen has made
	close  func() error
}

// Listen listens on path; network is "unix" or "unixpacket". It replaces a socket that no process
// serves any more, and fails if a process serves it or if there is a file that is no socket. Only
// the user of this process may connect, and, if group is not 0, the members of that group. Two
// calls for one path at the same time are not allowed.
func Listen(network, path string, group int) (*Listener, error) {
	if err := removeStale(network, path); err != nil {
		return nil, err
	}
	// The kernel gives the socket's file the mode of the descriptor. It is set before the socket is
	// bound, so the file never has a wider mode.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	listener, err := private.Listen(context.Background(), network, path)
	if err != nil {
		return nil, err
	}
	l := listener.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // a later Listener may have its socket at this path
	if group != 0 {
		err = errors.Join(os.Chown(path, -1, group), os.Chmod(path, 0o660))
	}
	socket, err2 := os.Lstat(path)
	if err := errors.Join(err, err2); err != nil {
		return nil, errors.Join(err, l.Close(), os.Remove(path))
	}
	made := &Listener{UnixListener: l, path: path, socket: socket}
	made.close = sync.OnceValue(made.end)
	return made, nil
}

// removeStale removes the socket at path, if there is one, unless a process may serve it.
func removeStale(network, path string) error {
	at, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case at.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is no socket: remove it, or use another path", path)
	}
	c, err := net.DialUnix(network, nil, &net.UnixAddr{Name: path, Net: network})
	switch {
	case err == nil:
		_ = c.Close() // the connection was only a test whether a process serves the socket
		fallthrough
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EPROTOTYPE): // EAGAIN: its queue is full; EPROTOTYPE: it has another type
		return fmt.Errorf("another process serves %s: end it first", path)
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return err
}

// Close stops listening and removes the socket, unless a later Listener has replaced it. While this
// listener is open, no other file can have the socket's inode number. A second Close returns the
// same result.
func (l *Listener) Close() error { return l.close() }

func (l *Listener) end() error {
	at, err := os.Lstat(l.path)
	if err == nil && os.SameFile(at, l.socket) {
		err = os.Remove(l.path)
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, l.UnixListener.Close())
}
