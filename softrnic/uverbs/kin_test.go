package uverbs_test

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

const magicChild = uverbs.MagicChild + "test\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "fedcba9876543210"

// join connects as a child of fork of a program that has a device.
func (c *client) join(t testing.TB, socket string) *client {
	t.Helper()
	area, err := unix.FcntlInt(uintptr(c.fds[uverbs.WelcomeArea]), unix.F_DUPFD_CLOEXEC, 0)
	must(t, err)
	conn, errno, _, ok := helloOfChild(t, socket, magicChild, append(selfFiles(t, "/proc/self/mem", "/proc/self/maps"), area))
	if !ok || errno != 0 {
		t.Fatalf("join: %v, error %d", ok, errno)
	}
	return &client{t: t, conn: conn}
}

// helloOfChild is hello for a first message whose answer has no data.
func helloOfChild(t testing.TB, socket, first string, fds []int) (conn *net.UnixConn, errno uint32, got []int, ok bool) {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, _, err = conn.WriteMsgUnix([]byte(first), unix.UnixRights(fds...), nil)
	must(t, err)
	for _, fd := range fds {
		must(t, unix.Close(fd))
	}
	_, errno, got, ok = receive(t, conn)
	return conn, errno, got, ok
}

// Objects of a device belong to all processes that have it. A region of a child lasts as long as the
// device, also when the child's connection has ended, and no descriptor is left over.
func TestChild(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	before := openFiles(t)
	a, b := h.linked(t, uverbs.TypeRC)
	child := a.join(t, h.sockets[0])
	buf := memory(t, 4096)
	fill(buf, 1)
	mr := do[uverbs.MR](child, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(buf), Length: 4096, VA: addr(buf), PD: a.pd, Access: allow})
	must(t, child.conn.Close())
	h.left(t, 1)
	b.receive(0, 100)
	old := a.mr
	a.mr, a.at = mr, addr(buf)
	a.post(opSend, 0, 100, 0, 0)
	a.succeeds()
	b.succeeds()
	a.mr = old
	do[none](a.client, uverbs.DeregMR, uverbs.Handle{H: mr.H})
	if _, errno := a.raw(uverbs.DeregMR, uverbs.NoChannel, uverbs.Encode(uverbs.Handle{H: mr.H})); errno != unix.EINVAL {
		t.Errorf("the region ends twice: %v", errno)
	}
	second := a.join(t, h.sockets[0])
	do[none](second, uverbs.DeregMR, uverbs.Handle{H: old.H})
	a.close()
	h.left(t, 1) // a child's connection alone does not keep a device
	if _, err := second.conn.Write(uverbs.Encode(uverbs.NoChannel, uint32(0), uint32(uverbs.AllocPD), uint32(0), uint64(0))); err == nil {
		if _, _, _, ok := receive(t, second.conn); ok {
			t.Error("a device that has ended executes a command")
		}
	}
	must(t, second.conn.Close())
	b.close()
	h.emptied(t)
	for end := time.Now().Add(20 * time.Second); openFiles(t) > before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, before %d", openFiles(t), before)
		}
	}
}

// Who does not have the memory file of a device cannot join it.
func TestNoChild(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, other := h.attach(t, 0), h.attach(t, 1)
	for name, c := range map[string]struct {
		files []string
		area  *client
		want  unix.Errno
	}{
		"no memory file":            {[]string{"/proc/self/mem", "/proc/self/maps"}, nil, unix.EINVAL},
		"another file":              {[]string{"/proc/self/mem", "/proc/self/maps", "/dev/null"}, nil, unix.EACCES},
		"a device of another NIC":   {[]string{"/proc/self/mem", "/proc/self/maps"}, other, unix.EACCES},
		"no memory of its own":      {[]string{"/dev/null", "/proc/self/maps"}, a, unix.EACCES},
		"more descriptors":          {[]string{"/proc/self/mem", "/proc/self/maps", "/dev/null"}, a, unix.EINVAL},
		"memory in the wrong order": {[]string{"/proc/self/maps", "/proc/self/mem"}, a, unix.EACCES},
	} {
		fds := selfFiles(t, c.files...)
		if c.area != nil {
			fd, err := unix.FcntlInt(uintptr(c.area.fds[uverbs.WelcomeArea]), unix.F_DUPFD_CLOEXEC, 0)
			must(t, err)
			fds = append(fds, fd)
		}
		if _, errno, _, ok := helloOfChild(t, h.sockets[0], magicChild, fds); !ok || unix.Errno(errno) != c.want {
			t.Errorf("%s: %v, %v, want %v", name, ok, unix.Errno(errno), c.want)
		}
	}
	do[uverbs.Handle](a, uverbs.AllocPD)
	h.left(t, 1)
}

// Memory of a child is not shared with the daemon, which would keep it for the regions of a process that has gone.
// A child is no further program, and the processes of a device have a bound.
func TestChildrenAreBounded(t *testing.T) {
	h := newHouse(t, serve.Limits{Clients: 3})
	a := h.attach(t, 0)
	buf := memory(t, 1<<20)
	fill(buf, 1)
	args := uverbs.ShareArgs{Start: addr(buf), End: addr(buf) + 1<<20}
	var last *client
	for range 5 {
		last = a.join(t, h.sockets[0])
		if got := do[uverbs.Share](last, uverbs.ShareMemory, args); got != (uverbs.Share{}) || len(last.fds) != 0 {
			t.Fatalf("a child shares memory: %+v, %d descriptors", got, len(last.fds))
		}
	}
	_ = h.attach(t, 0) // the second program
	pd := do[uverbs.Handle](last, uverbs.AllocPD)
	for range 300 { // processes that leave a region each
		fd, err := unix.FcntlInt(uintptr(a.fds[uverbs.WelcomeArea]), unix.F_DUPFD_CLOEXEC, 0)
		must(t, err)
		conn, errno, _, ok := helloOfChild(t, h.sockets[0], magicChild, append(selfFiles(t, "/proc/self/mem", "/proc/self/maps"), fd))
		if ok && unix.Errno(errno) == unix.ENOMEM {
			return
		}
		if !ok || errno != 0 {
			t.Fatalf("join: %v, error %d", ok, errno)
		}
		c := &client{t: t, conn: conn}
		do[uverbs.MR](c, uverbs.RegMR, uverbs.RegMRArgs{Start: addr(buf), Length: 4096, VA: addr(buf), PD: pd.H, Access: allow})
		must(t, conn.Close())
	}
	t.Error("300 processes have left regions")
}
