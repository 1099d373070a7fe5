package afpacket

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The short system calls in the path of packets do not block, and are made without Go's bookkeeping
// (unix.RawSyscall). When a process was idle, its next call with bookkeeping wakes the monitor thread
// of the runtime, which then wakes up every 20 µs for a millisecond. On a rack at work every process
// is idle between two packets, and these threads took an eighth of all processor time and most
// context switches.

// epollNow returns the events that are there.
func epollNow(fd uintptr, events []unix.EpollEvent) (n int, err error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// brief is the largest number of bytes that are sent without bookkeeping. A call with more takes so
// long that other goroutines should run if its thread loses the CPU meanwhile.
const brief = 2 << 10

// sendNow is sendmmsg without waiting for room. It returns the number of messages that were sent.
func sendNow(fd int, messages []mmsghdr, bytes int) (n int, errno unix.Errno) {
	var r uintptr
	at, num := unsafe.Pointer(unsafe.SliceData(messages)), uintptr(len(messages))
	if bytes <= brief {
		r, _, errno = unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(at), num, unix.MSG_DONTWAIT, 0, 0)
	} else {
		r, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(at), num, unix.MSG_DONTWAIT, 0, 0)
	}
	return int(r), errno
}

// setEvent sets an eventfd, which does not block; if it is full, it is set already.
func setEvent(fd int) {
	one := uint64(1)
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
}

// clearEvent clears an eventfd, which does not block; it may be clear already.
func clearEvent(fd int) {
	var n uint64
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), unsafe.Sizeof(n))
}
