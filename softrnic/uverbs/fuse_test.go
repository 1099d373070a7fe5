package uverbs_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// Requests of FUSE that the server below answers.
const (
	fuseOpen    = 14
	fuseRelease = 18
	fuseFlush   = 25
	fuseInit    = 26
)

// silentFile returns a file of a FUSE server that answers an open, and no request about the attributes.
func silentFile(t testing.TB) string {
	t.Helper()
	file, _ := silentFileOf(t, "silent")
	return file
}

// silentFileOf is silentFile with this name. end ends the file system, and with it the requests that wait.
func silentFileOf(t testing.TB, name string) (file string, end func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts a file system")
	}
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("this kernel has no FUSE: /dev/fuse: %v", err)
	}
	file = filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, unix.Mount("fuse", file, "fuse", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("fd=%d,rootmode=100600,user_id=0,group_id=0,allow_other", server)))
	served := make(chan struct{})
	go func() {
		defer close(served)
		serveFUSE(server)
	}()
	end = sync.OnceFunc(func() {
		must(t, unix.Unmount(file, unix.MNT_FORCE|unix.MNT_DETACH))
		<-served
		must(t, unix.Close(server))
	})
	t.Cleanup(end)
	return file, end
}

// serveFUSE answers requests until the file system is unmounted.
func serveFUSE(server int) {
	b := make([]byte, 1<<17)
	for {
		n, err := unix.Read(server, b)
		if err != nil || n < 40 {
			return
		}
		var body []byte
		switch binary.NativeEndian.Uint32(b[4:]) {
		case fuseInit:
			body = make([]byte, 64)
			binary.NativeEndian.PutUint32(body, 7)
			binary.NativeEndian.PutUint32(body[4:], 31)
			binary.NativeEndian.PutUint32(body[20:], 4096)
		case fuseOpen:
			body = make([]byte, 16)
		case fuseFlush, fuseRelease:
		default:
			continue
		}
		out := make([]byte, 16, 80)
		binary.NativeEndian.PutUint32(out, uint32(16+len(body)))
		copy(out[8:], b[8:16])
		if _, err := unix.Write(server, append(out, body...)); err != nil {
			return
		}
	}
}

// A domain is found by its file also if the server of the file does not answer: the daemon asks it nothing.
func TestXRCFileOfASilentServer(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	file := silentFile(t)
	a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 0).queuePair(uverbs.TypeRC)
	start := time.Now()
	x, y := a.xrc(t, file), b.xrc(t, file)
	do[uverbs.QP](b.client, uverbs.OpenQP, uverbs.OpenQPArgs{XRCD: y.domain, QPN: x.target.QPN, Type: uverbs.TypeXRCTarget})
	if d := time.Since(start); d > 10*time.Second {
		t.Errorf("the daemon has waited for %v", d)
	}
}

// A program that gives files of a server that does not answer as its memory is refused after a second. A user can have
// some such questions open, and no more; other users attach meanwhile, and the daemon ends.
func TestMemoryOfASilentServer(t *testing.T) {
	file, end := silentFileOf(t, "mem")
	h := newHouse(t, serve.Limits{})
	before := openFiles(t)
	for i := range 6 {
		start := time.Now()
		conn, errno, _, ok := hello(t, h.sockets[0], magic, selfFiles(t, file, "/proc/self/maps"))
		want := unix.EACCES
		if i >= 4 {
			want = unix.ENOMEM
		}
		if d := time.Since(start); !ok || unix.Errno(errno) != want || d > 15*time.Second {
			t.Errorf("try %d: %v, %v after %v; want %v", i, ok, unix.Errno(errno), d, want)
		}
		must(t, conn.Close())
	}
	h.attach(t, 0).close() // memory of this procfs needs no question
	end()
	filesEnd(t, before)
	h.works(t)
}
