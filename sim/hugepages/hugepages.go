// Package hugepages lets the heap of a process that runs racks in virtual time grow into huge pages. Such a
// heap has thousands to millions of queue pairs, which are visited in no order: with pages of 4 KiB most
// visits miss the processor's cache of page addresses, and each page costs a fault, which is dear in a
// virtual machine.
//
// In: how much memory the machine has. Out: advice to the kernel, which changes no byte. Read Reserve first.
package hugepages

import (
	"bufio"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// hugePage is the size of a huge page in bytes, of amd64 and of arm64 with pages of 4 KiB.
	hugePage = 2 << 20
	// most is how many bytes Reserve takes at most, of addresses and not of memory.
	most = 64 << 30
)

var once sync.Once

// Reserve makes the runtime take addresses for as large a heap as half of the memory that is available now,
// and asks the kernel to back them by huge pages. The memory itself is taken only when the heap grows into
// it, which it does from the lowest address on. Where the kernel has no huge pages, or the process must not
// have so many addresses (ulimit -v, vm.overcommit_memory 2, GOMEMLIMIT), nothing changes. A second call
// does nothing.
func Reserve() { once.Do(func() { reserve(size()) }) }

// size returns how many bytes are to be reserved; 0 means none.
func size() int {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return 0 // the runtime would believe that the limit is reached
	}
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }()
	return min(available(f)/2, most) &^ (hugePage - 1)
}

// available returns the bytes that a text in the form of /proc/meminfo calls available; 0 if it says
// nothing of them.
func available(meminfo io.Reader) int {
	for in := bufio.NewScanner(meminfo); in.Scan(); {
		f := strings.Fields(in.Text())
		if len(f) == 3 && f[0] == "MemAvailable:" && f[2] == "kB" {
			n, err := strconv.Atoi(f[1])
			if err != nil || n < 0 {
				return 0
			}
			return n << 10
		}
	}
	return 0
}

// reserve reserves n bytes and returns the address of the first; 0 means that none are reserved.
func reserve(n int) uintptr {
	if raced || n < 2*hugePage || !allowed(n) {
		return 0
	}
	// The runtime maps what it has not given out before, so nothing is cleared, which would touch it.
	b := make([]byte, n)
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	from := (first + hugePage - 1) &^ (hugePage - 1)
	// The advice changes how the kernel backs the memory, and none of its bytes.
	_, _, e := unix.Syscall(unix.SYS_MADVISE, from, (first+uintptr(n)-from)&^(hugePage-1), unix.MADV_HUGEPAGE)
	runtime.KeepAlive(b)
	runtime.GC() // from here on the heap grows into the addresses of b
	if e != 0 {
		return 0
	}
	return from
}

// allowed reports whether the process may have n bytes of addresses more. The runtime would end the process if it
// were refused them.
func allowed(n int) bool {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	return err == nil && unix.Munmap(b) == nil
}
