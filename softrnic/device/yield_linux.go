package device

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// yield lets other goroutines, then other processes, have the processor: the switch and the peer may share it.
func yield() {
	runtime.Gosched()
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // cannot fail
}
