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

// Receive reads a message into b, with the file descriptors that came with it, which the caller must close.
// oob has room for their control message. flags are those of recvmsg(2). After an error Receive returns
// none: it has closed them. An empty message, which is an error of the end of the connection, may have
// descriptors, too.
func Receive(conn *net.UnixConn, b, oob []byte) (n int, fds []int, flags int, err error) {
	n, oobn, flags, _, err := conn.ReadMsgUnix(b, oob)
	fds = Files(oob[:oobn])
	if err != nil {
		CloseFiles(fds...)
		return 0, nil, flags, err
	}
	return n, fds, flags, nil
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
