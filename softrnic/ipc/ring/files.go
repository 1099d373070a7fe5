package ring

import (
	"errors"
	"net"

	"golang.org/x/sys/unix"
)

// Files returns the file descriptors in the control messages oob of a received message. The caller
// must close them; they are close-on-exec.
func Files(oob []byte) (fds []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if got, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			fds = append(fds, got...)
		}
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	return fds
}

// Peer returns the process and the user at the other end of a socket.
func Peer(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	cerr := raw.Control(func(fd uintptr) { cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, cerr)
}

// CloseFiles closes file descriptors that are not needed. It ignores errors, because no data can be
// lost.
func CloseFiles(fds ...int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}
