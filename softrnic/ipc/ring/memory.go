package ring

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// seals fix the size of a memory file (a memfd) for every process that has it open.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// New makes a memory file (a memfd) of length bytes, all zero, whose size is sealed. The caller
// must close it.
func New(name string, length int) (fd int, err error) {
	if length <= 0 {
		return -1, fmt.Errorf("ring: memory of %d bytes", length)
	}
	fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("ring: memory file: %w", err)
	}
	if err = unix.Ftruncate(fd, int64(length)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd) // the file is empty, so closing it loses nothing
		return -1, fmt.Errorf("ring: memory of %d bytes: %w", length, err)
	}
	return fd, nil
}

// Map maps the first length bytes of a memory file. The bytes must not be used after Unmap.
func Map(fd, length int) ([]byte, error) {
	b, err := unix.Mmap(fd, 0, length, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("ring: map %d bytes: %w", length, err)
	}
	return b, nil
}

// Populate allocates the pages of a mapping, which must not be empty. A page belongs to the memory
// cgroup of the process that touches it first.
func Populate(b []byte) error {
	err := unix.Madvise(b, unix.MADV_POPULATE_WRITE)
	if errors.Is(err, unix.EINVAL) { // kernels before Linux 5.14
		sum := byte(0)
		for at := 0; at < len(b); at += os.Getpagesize() {
			sum += b[at]
		}
		runtime.KeepAlive(sum)
		return nil
	}
	if err != nil {
		return fmt.Errorf("ring: pages for %d bytes: %w", len(b), err)
	}
	return nil
}

// Unmap ends a mapping; it does nothing for nil.
func Unmap(b []byte) error {
	if b == nil {
		return nil
	}
	return unix.Munmap(b)
}

// ceil2 returns the smallest power of two that is not less than n.
func ceil2(n int) int { return 1 << bits.Len(uint(max(n, 1)-1)) }
