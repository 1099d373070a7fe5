package ring

import "golang.org/x/sys/unix"

// Files takes the descriptors out of the control messages oob that came with a message. They are
// the caller's, and are closed when this process executes a program.
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
