package serve

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/mem"
)

// ownMemory is the memory of this process, as a program's.
func ownMemory(t testing.TB) *programMemory {
	t.Helper()
	mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	must(t, err)
	maps, err := unix.Open("/proc/self/maps", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	m, err := newProgramMemory([]int{mem, maps}, uint32(os.Geteuid()), newStuck())
	must(t, err)
	t.Cleanup(func() { must(t, m.close()) })
	return m
}

// reach is what a registration does: it examines the memory and returns the access to it.
func (m *programMemory) reach(start, end uint64, write bool) (mem.Far, error) {
	_, waits, err := m.examine(start, end, write)
	if err != nil {
		return nil, err
	}
	return m.accessor(waits)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func addr(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }

// The NIC itself copies where a page is there at once, the guard where the kernel may wait for it:
// in files, and in all memory of other users.
func TestWhatIsGuarded(t *testing.T) {
	const page, n = 4096, 3 * 4096
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	must(t, err)
	defer file.Close()
	shared, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(shared)
	var fs unix.Statfs_t
	must(t, unix.Fstatfs(int(file.Fd()), &fs))
	for _, c := range []struct {
		name            string
		fd              int
		foreign, guards bool
	}{
		{"anonymous", -1, false, false},
		{"anonymous, another user's", -1, true, true},
		{"shared", shared, false, false},
		{"a file", int(file.Fd()), false, fs.Type != unix.TMPFS_MAGIC},
	} {
		flags := unix.MAP_PRIVATE | unix.MAP_ANON
		if c.fd >= 0 {
			must(t, unix.Ftruncate(c.fd, n))
			flags = unix.MAP_SHARED
		}
		b, err := unix.Mmap(c.fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, flags)
		must(t, err)
		m := ownMemory(t)
		if c.foreign {
			m.user++
		}
		far, err := m.reach(addr(b), addr(b)+n, true)
		if _, guards := far.(*guard); err != nil || guards != c.guards {
			t.Errorf("%s: guarded: %v, %v", c.name, guards, err)
		} else if !far.Write([]byte("bytes"), addr(b)+page-2) || string(b[page-2:page+3]) != "bytes" {
			t.Errorf("%s: was not written", c.name)
		}
		must(t, unix.Mprotect(b[page:2*page], unix.PROT_READ))
		if _, err := m.reach(addr(b), addr(b)+n, true); !errors.Is(err, unix.EFAULT) {
			t.Errorf("%s: a page that may not be written: %v", c.name, err)
		}
		if _, err := m.reach(addr(b), addr(b)+n, false); err != nil {
			t.Errorf("%s: a page that may be read: %v", c.name, err)
		}
		must(t, unix.Munmap(b))
	}
}

// A registration looks at the pages that it names, and not at those beside them.
func TestPagesBesideARegion(t *testing.T) {
	const page = 4096
	b, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	defer func() { must(t, unix.Munmap(b)) }()
	must(t, unix.Mprotect(b[:page], unix.PROT_NONE))
	must(t, unix.Mprotect(b[2*page:3*page], unix.PROT_READ))
	must(t, unix.Mprotect(b[3*page:], unix.PROT_NONE))
	m := ownMemory(t)
	for _, c := range []struct {
		from, to uint64
		write    bool
		ok       bool
	}{
		{page, 2 * page, true, true},
		{page, 3 * page, true, false},
		{page, 3 * page, false, true},
		{2*page - 1, 2*page + 1, true, false},
		{page - 1, 2 * page, false, false},
		{page, 3*page + 1, false, false},
		{3 * page, 4 * page, false, false},
		{2 * page, 3 * page, false, true},
	} {
		if _, err := m.reach(addr(b)+c.from, addr(b)+c.to, c.write); (err == nil) != c.ok {
			t.Errorf("from %d to %d, for writing: %v: %v", c.from, c.to, c.write, err)
		}
	}
}

// BenchmarkProgramMemory compares a copy that the NIC makes itself with one of the guard.
func BenchmarkProgramMemory(b *testing.B) {
	m := ownMemory(b)
	far, err := m.accessor(true)
	must(b, err)
	p, q := make([]byte, 4096), make([]byte, 4096)
	for _, c := range []struct {
		name string
		far  mem.Far
	}{{"plain", m}, {"guarded", far}} {
		for _, n := range []int{8, 4096} {
			b.Run(fmt.Sprintf("%s-%d", c.name, n), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if !c.far.Read(p[:n], addr(q)) {
						b.Fatal("no memory")
					}
				}
			})
		}
	}
}
