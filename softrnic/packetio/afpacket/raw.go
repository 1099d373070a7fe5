package afpacket

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The short system calls in the path of packets do not block. They are made by unix.RawSyscall,
// without the bookkeeping of Go's runtime. When a process was idle, its next call with bookkeeping
// wakes the runtime's monitor thread, which then wakes up every 20 µs for a millisecond. On a rack
// at work every process is idle between two packets. There these threads took an eighth of all
// processor time, and made most context switches.

// epollNow returns the events that have occurred, without waiting.
func epollNow(fd uintptr, events []unix.EpollEvent) (n int, err error) {
	r, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, fd, uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), 0, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(r), nil
}

// brief is the largest number of bytes that sendNow sends by unix.RawSyscall. A call with more
// bytes takes longer. If the kernel suspends its thread, other goroutines should run; that needs a
// call with the bookkeeping of Go's runtime.
const brief = 2 << 10

// sendNow calls sendmmsg, which does not wait if the send queue is full. It returns the number of
// messages that were sent.
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

// setEvent sets an eventfd. The call does not block: if the eventfd is full, it is already set.
func setEvent(fd int) {
	one := uint64(1)
	_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&one)), unsafe.Sizeof(one))
}

// clearEvent clears an eventfd. The call does not block, even if the eventfd is not set.
func clearEvent(fd int) {
	var n uint64
	_, _, _ = unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&n)), unsafe.Sizeof(n))
}
