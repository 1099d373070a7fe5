package serve

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel's answer to a query says the same as the lines of the file: of anonymous and shared
// memory, of files, of several mappings at once, and of addresses that are not mapped.
func TestQueryAgreesWithTheLines(t *testing.T) {
	m := ownMemory(t)
	if _, err := m.queryOne(addr([]byte{1})); errors.Is(err, errNoQuery) {
		t.Skip("this kernel has no PROCMAP_QUERY (Linux 6.11)")
	}
	const page = 4096
	name := filepath.Join(t.TempDir(), "a file")
	must(t, os.WriteFile(name, make([]byte, 8*page), 0o600))
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	shared, err := unix.MemfdCreate("shared memory", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(shared)
	must(t, unix.Ftruncate(shared, 8*page))
	for what, c := range map[string]struct{ fd, offset, rights, flags int }{
		"anonymous": {-1, 0, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON},
		"readable":  {-1, 0, unix.PROT_READ, unix.MAP_PRIVATE | unix.MAP_ANON},
		"a file":    {int(file.Fd()), 2 * page, unix.PROT_READ, unix.MAP_PRIVATE},
		"a memfd":   {shared, page, unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED},
	} {
		b, err := unix.Mmap(c.fd, int64(c.offset), 6*page, c.rights, c.flags)
		must(t, err)
		at := addr(b)
		must(t, unix.Mprotect(b[2*page:3*page], unix.PROT_NONE))
		for _, r := range [][2]uint64{{0, 6 * page}, {0, 1}, {5, 2*page + 1}, {page + 7, 6*page - 1}, {3 * page, 6 * page}} {
			got, err := m.query(at+r[0], at+r[1])
			want, werr := m.read(at+r[0], at+r[1])
			if err != nil || werr != nil || !slices.Equal(got, want) {
				t.Errorf("%s %v: %+v, %v; the lines say %+v, %v", what, r, got, err, want, werr)
			}
		}
		must(t, unix.Munmap(b))
	}
	b, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANON)
	must(t, err)
	at := addr(b)
	hole, _, no := unix.Syscall(unix.SYS_MUNMAP, uintptr(at+2*page), page, 0)
	if hole != 0 || no != 0 {
		t.Fatal(no)
	}
	for _, r := range [][2]uint64{{0, 3 * page}, {2 * page, 3 * page}, {2*page + 1, 4 * page}} {
		if got, err := m.query(at+r[0], at+r[1]); !errors.Is(err, unix.EFAULT) || got != nil {
			t.Errorf("over a hole: %+v, %v", got, err)
		}
	}
	for _, r := range [][2]uint64{{0, page}, {1 << 63, 1<<63 + page}, {^uint64(0) - page, ^uint64(0)}} {
		if got, err := m.query(r[0], r[1]); !errors.Is(err, unix.EFAULT) || got != nil {
			t.Errorf("%#x: %+v, %v", r[0], got, err)
		}
	}
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(at), 2*page, 0)
	_, _, _ = unix.Syscall(unix.SYS_MUNMAP, uintptr(at+3*page), page, 0)
}
